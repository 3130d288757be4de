//! A folder to run berth in.

use super::ran::{Ran, run, run_with_input};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The binary of this build in a folder, which is its home too: nothing of whoever runs the tests reaches it.
pub fn berth(folder: &Path, args: &[&str]) -> Command {
    program(Path::new(env!("CARGO_BIN_EXE_berth")), folder, args)
}

/// Another version's binary, likewise.
pub fn program(binary: &Path, folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command.args(args).current_dir(folder).stdin(Stdio::null()).env_clear();
    command.env("PATH", "/nonexistent").env("HOME", folder).env("XDG_DATA_HOME", folder.join("data"));
    command
}

pub struct Folder {
    dir: tempfile::TempDir,
    env: Vec<(OsString, OsString)>,
}

impl Folder {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary folder"), env: Vec::new() }
    }

    /// With files already in it.
    pub fn with(files: &[(&str, &str)]) -> Self {
        let folder = Self::new();
        files.iter().for_each(|(name, text)| folder.write(name, text));
        folder
    }

    /// Of somebody who logs in to servers: contexts are kept in `config`.
    pub fn of_user() -> Self {
        let folder = Self::new();
        let config = folder.config();
        folder.and_env("BERTH_CONFIG", config)
    }

    /// With a variable for all of its commands.
    pub fn and_env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn config(&self) -> PathBuf {
        self.path().join("config.yaml")
    }

    pub fn write(&self, name: &str, content: &(impl AsRef<[u8]> + ?Sized)) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, content).expect("a file");
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).expect("a readable file")
    }

    pub fn command(&self, args: &[&str]) -> Command {
        self.equip(berth(self.path(), args))
    }

    /// Any command with the variables of this folder.
    pub fn equip(&self, mut command: Command) -> Command {
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    #[track_caller]
    pub fn berth(&self, args: &[&str]) -> Ran {
        run(&mut self.command(args))
    }

    #[track_caller]
    pub fn berth_with_input(&self, args: &[&str], input: &[u8]) -> Ran {
        run_with_input(&mut self.command(args), input)
    }
}
