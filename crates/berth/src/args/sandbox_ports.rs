//! A flag for each simulated cloud: `--civo ADDR`.

use berth_sandbox::{CloudName, registry};
use clap::{Arg, ArgMatches, Command, FromArgMatches, value_parser};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

/// Where each cloud is to listen.
#[derive(Clone, Debug)]
pub struct CloudPorts(pub BTreeMap<CloudName, SocketAddr>);

impl clap::Args for CloudPorts {
    fn augment_args(mut command: Command) -> Command {
        for cloud in registry::clouds() {
            let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, cloud.port));
            let arg = Arg::new(cloud.name.as_str())
                .long(cloud.name.as_str())
                .value_name("ADDR")
                .help(format!("Address for {}'s API", cloud.title))
                .default_value(usual.to_string())
                .value_parser(value_parser!(SocketAddr));
            command = command.arg(arg);
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for CloudPorts {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let port = |name: CloudName| Some((name, *matches.get_one::<SocketAddr>(name.as_str())?));
        Ok(Self(registry::clouds().filter_map(|cloud| port(cloud.name)).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl CloudPorts {
    /// The same flags for another process.
    pub fn flags(&self) -> impl Iterator<Item = String> {
        self.0.iter().flat_map(|(name, addr)| [format!("--{name}"), addr.to_string()])
    }
}
