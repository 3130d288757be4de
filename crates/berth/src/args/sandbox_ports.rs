//! Flags of the simulated clouds: an address for each, `--civo ADDR`, and what only one of them has, `--NAME-OPTION`.

use berth_sandbox::{CloudName, CloudOption, CloudOptions, registry};
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, value_parser};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

/// Where each cloud is to listen, and what else was asked of it.
#[derive(Clone, Debug)]
pub struct CloudPorts {
    pub addresses: BTreeMap<CloudName, SocketAddr>,
    pub options: BTreeMap<CloudName, CloudOptions>,
}

fn flag(cloud: CloudName, option: &CloudOption) -> String {
    format!("{cloud}-{}", option.name)
}

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
            for option in cloud.options {
                let name = flag(cloud.name, option);
                let arg = Arg::new(name.clone()).long(name).help(option.help);
                command = command.arg(match option.value {
                    Some(value) => arg.value_name(value),
                    None => arg.action(ArgAction::SetTrue),
                });
            }
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
        let addresses = registry::clouds().filter_map(|cloud| port(cloud.name)).collect();
        let mut options: BTreeMap<CloudName, CloudOptions> = BTreeMap::new();
        for (cloud, option) in registry::clouds().flat_map(|cloud| cloud.options.iter().map(move |o| (cloud.name, o))) {
            let name = flag(cloud, option);
            let given = match option.value {
                Some(_) => matches.get_one::<String>(&name).cloned(),
                None => matches.get_flag(&name).then(String::new),
            };
            if let Some(value) = given {
                options.entry(cloud).or_default().insert(option.name, value);
            }
        }
        Ok(Self { addresses, options })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl CloudPorts {
    /// The same flags for another process.
    pub fn flags(&self) -> impl Iterator<Item = String> {
        let addresses = self.addresses.iter().flat_map(|(name, addr)| [format!("--{name}"), addr.to_string()]);
        let all = self.options.iter().flat_map(|(cloud, options)| options.iter().map(move |given| (cloud, given)));
        addresses.chain(all.flat_map(|(cloud, (name, value))| match value.as_str() {
            "" => vec![format!("--{cloud}-{name}")],
            value => vec![format!("--{cloud}-{name}"), value.to_owned()],
        }))
    }
}
