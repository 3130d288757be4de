//! Which database and which key ring a command of the operator's is about.

use crate::args::StateArgs;
use crate::failure::Failure;
use berth_store::{KeySource, Location, Options};
use std::path::PathBuf;

#[derive(clap::Args, Clone, Debug, Default)]
pub struct KeyArgs {
    /// File with the key ring; by default what BERTH_KEY, BERTH_KEY_COMMAND or BERTH_KEY_FILE say, else the user's own
    #[arg(long, value_name = "FILE", conflicts_with = "key_command")]
    pub key_file: Option<PathBuf>,
    /// Command that prints the key ring; it is started without a shell
    #[arg(long, value_name = "COMMAND")]
    pub key_command: Option<String>,
}

impl KeyArgs {
    /// The key ring. A server keeps its own beside its database: there it is found without being named.
    pub fn source(&self, location: Option<&Location>) -> KeySource {
        if let Some(path) = &self.key_file {
            return KeySource::File(path.clone());
        }
        if let Some(command) = &self.key_command {
            return KeySource::Command(command.clone());
        }
        let said = |name: &str| std::env::var_os(name).is_some_and(|text| !text.is_empty());
        let is_said = ["BERTH_KEY", "BERTH_KEY_COMMAND", "BERTH_KEY_FILE"].into_iter().any(said);
        let beside = location.and_then(Location::path).and_then(|path| Some(path.parent()?.join("key")));
        match beside.filter(|path| !is_said && path.is_file()) {
            Some(path) => KeySource::File(path),
            None => KeySource::Usual,
        }
    }
}

#[derive(clap::Args, Clone, Debug, Default)]
pub struct DatabaseArgs {
    /// Database, as sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE; the environment hides a password better
    #[arg(long, value_name = "URL", env = "BERTH_DB", hide_env_values = true, conflicts_with = "state")]
    pub db: Option<String>,
    #[command(flatten)]
    pub state: StateArgs,
    #[command(flatten)]
    pub key: KeyArgs,
}

impl DatabaseArgs {
    /// Whether a database was named, by argument or environment.
    pub fn is_said(&self) -> bool {
        self.db.is_some() || self.state.state.is_some()
    }

    pub fn location(&self) -> Result<Location, Failure> {
        match &self.db {
            Some(url) => Ok(url.parse()?),
            None => Ok(self.state.path()?.into()),
        }
    }

    /// For a database that is there.
    pub fn existing(&self) -> Result<Options, Failure> {
        let location = self.location()?;
        let key = self.key.source(Some(&location));
        Ok(Options { location, key, must_exist: true })
    }
}
