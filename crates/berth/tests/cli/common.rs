//! A folder to run berth in, and what it answered.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub struct Project {
    dir: tempfile::TempDir,
}

pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    dir: PathBuf,
}

impl Project {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary folder") }
    }

    /// With files already in it.
    pub fn with(files: &[(&str, &str)]) -> Self {
        let project = Self::new();
        for (name, text) in files {
            project.write(name, text);
        }
        project
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.dir.path().join(name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).expect("a folder");
        }
        std::fs::write(path, content).expect("a file");
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).expect("a readable file")
    }

    /// The binary, alone with this folder: nothing of the user's environment reaches it.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
        command.args(args).current_dir(self.path()).env_clear();
        command.env("PATH", "/nonexistent").env("HOME", self.path()).env("XDG_DATA_HOME", self.path().join("data"));
        command
    }

    pub fn berth(&self, args: &[&str]) -> Run {
        self.finish(self.command(args).stdin(Stdio::null()))
    }

    pub fn berth_with_input(&self, args: &[&str], input: &[u8]) -> Run {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("berth starts");
        let mut stdin = child.stdin.take().expect("its input");
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            // It may refuse before it has read everything.
            _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().expect("berth ends");
        writer.join().expect("its input was written");
        self.run(output)
    }

    pub fn finish(&self, command: &mut Command) -> Run {
        self.run(command.output().expect("berth runs"))
    }

    fn run(&self, output: std::process::Output) -> Run {
        Run {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8(output.stderr).expect("text"),
            dir: self.path().into(),
        }
    }
}

impl Run {
    pub fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self}");
        self
    }

    pub fn failed(self) -> Self {
        assert_eq!(self.code, Some(1), "{self}");
        self
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dir = self.dir.display().to_string();
        let clean = |text: &str| text.replace(&dir, "[DIR]").replace(env!("CARGO_PKG_VERSION"), "[VERSION]");
        let code = self.code.map_or("killed".to_owned(), |code| code.to_string());
        write!(f, "exit {code}\n----- stdout\n{}----- stderr\n{}", clean(&self.stdout), clean(&self.stderr))
    }
}

/// Compares what was printed with the snapshot of that name.
#[macro_export]
macro_rules! shows {
    ($name:expr, $run:expr) => {
        insta::with_settings!({snapshot_path => "../snapshots", prepend_module_to_snapshot => false, omit_expression => true}, {
            insta::assert_snapshot!($name, $run.to_string());
        })
    };
}

pub const NET: &str = "\
apiVersion: civo.berth.dev/v1
kind: CivoVpc
metadata:
  name: shop-net
spec:
  networkName: shop-net
  region: fra1
";

pub const CLUSTER: &str = "\
apiVersion: civo.berth.dev/v1
kind: CivoKubernetesCluster
metadata:
  name: shop
spec:
  clusterName: shop-k8s
  region: fra1
  kubernetesVersion: 1.30.5-k3s1
  network: {valueFrom: {name: shop-net}}
  firewall: {valueFrom: {name: shop-fw}}
  defaultNodePool:
    size: g4s.kube.medium
    nodeCount: 3
";

pub const FIREWALL: &str = "\
apiVersion: civo.berth.dev/v1
kind: CivoFirewall
metadata:
  name: shop-fw
spec:
  name: shop-fw
  networkId: {valueFrom: {name: shop-net}}
  inboundRules:
    - {protocol: tcp, portRange: \"443\", action: allow, label: https}
";

pub const POOL: &str = "\
apiVersion: civo.berth.dev/v1
kind: CivoKubernetesNodePool
metadata:
  name: shop-batch
spec:
  nodePoolName: batch
  cluster: {valueFrom: {name: shop}}
  size: g4s.kube.large
  nodeCount: 2
";

/// A network, a firewall, a cluster and a pool in a folder.
pub fn shop() -> Project {
    Project::with(&[
        ("shop/net.yaml", NET),
        ("shop/firewall.yaml", FIREWALL),
        ("shop/cluster.yaml", CLUSTER),
        ("shop/pool.yaml", POOL),
    ])
}
