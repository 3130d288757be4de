//! Which state a command is about: the project's own, or a server's.

use crate::args::ScopeArgs;
use crate::failure::Failure;
use crate::remote::contexts::{self, Contexts, Target};
use std::path::PathBuf;

/// For every command that a server can answer.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ServerArgs {
    /// Ask this server: the name of a context, as `berth context` lists them
    #[arg(long = "context", id = "server_context", value_name = "NAME", display_order = 890)]
    pub context: Option<String>,
    /// Use the embedded engine and the project's own state, whichever context is current
    #[arg(long, conflicts_with = "server_context", display_order = 891)]
    pub local: bool,
}

impl ServerArgs {
    /// The server that is meant; `None` means the embedded engine.
    pub fn target(&self) -> Result<Option<Target>, Failure> {
        let named =
            self.context.clone().or_else(|| std::env::var("BERTH_CONTEXT").ok().filter(|name| !name.is_empty()));
        match named {
            _ if self.local => Ok(None),
            Some(name) => {
                let context = Contexts::load()?.get(&name)?.clone();
                Ok(Some(Target { name, context }))
            }
            None => contexts::active(),
        }
    }

    /// What `--org` and `--env` are for a command that only a server can answer.
    pub fn scope(&self, given: &ScopeArgs) -> Result<ScopeArgs, Failure> {
        Ok(Which::Server(self.server()?).scope(given))
    }

    /// For commands that only a server can answer.
    pub fn server(&self) -> Result<Target, Failure> {
        let none = || {
            Failure::new("this needs a server, and none is chosen")
                .help("log in to one:   berth login https://HOST:7443")
                .help("to choose one of those that are known:   berth context use NAME")
        };
        match self.local {
            true => Err(Failure::new("this needs a server: it does not go with --local")),
            false => self.target()?.ok_or_else(none),
        }
    }

    /// The state at `path`, or a server. `asked` is the flag that names the project's own state, where one was given.
    pub fn which(&self, path: PathBuf, asked: Option<&'static str>) -> Result<Which, Failure> {
        if let (Some(name), Some(flag)) = (&self.context, asked) {
            return Err(Failure::new(format!(
                "--context {name} asks for a server, and {flag} for the embedded engine"
            ))
            .help("leave one of the two out"));
        }
        match asked {
            Some(_) => Ok(Which::Local(path)),
            None => Ok(self.target()?.map_or(Which::Local(path), Which::Server)),
        }
    }
}

/// Whose resources a command is about.
#[derive(Clone, Debug)]
pub enum Which {
    /// The state at this place.
    Local(PathBuf),
    Server(Target),
}

impl Which {
    /// What `--org` and `--env` are: as given, else as the context says.
    pub fn scope(&self, given: &ScopeArgs) -> ScopeArgs {
        let Which::Server(target) = self else { return given.clone() };
        let or = |given: &Option<String>, default: &str| {
            given.clone().or_else(|| Some(default.to_owned()).filter(|text| !text.is_empty()))
        };
        ScopeArgs { org: or(&given.org, &target.context.org), env: or(&given.env, &target.context.env) }
    }
}
