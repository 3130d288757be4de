//! A command under way, and how it ended.

use super::LONGEST;
use serde_json::Value;
use std::fmt;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Runs a command to its end.
#[track_caller]
pub fn run(command: &mut Command) -> Ran {
    start(command).finish()
}

/// The same with a text to read.
#[track_caller]
pub fn run_with_input(command: &mut Command, input: &[u8]) -> Ran {
    let mut running = start(command.stdin(Stdio::piped()));
    let mut stdin = running.child.stdin.take().expect("its input");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // It may refuse before it has read everything.
        _ = stdin.write_all(&input);
    });
    let ran = running.finish();
    writer.join().expect("its input was written");
    ran
}

/// Starts a command and leaves it running.
#[track_caller]
pub fn start(command: &mut Command) -> Running {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("berth starts");
    let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
    Running {
        stdout: drain(child.stdout.take().expect("its output")),
        stderr: drain(child.stderr.take().expect("its errors")),
        child,
        line: format!("berth {}", args.join(" ")),
        folder: command.get_current_dir().unwrap_or(Path::new(".")).to_owned(),
        started: Instant::now(),
    }
}

fn drain(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A killed process closes its end; what came until then is what there is.
        _ = from.read_to_end(&mut bytes);
        bytes
    })
}

/// A command under way.
pub struct Running {
    child: Child,
    stdout: JoinHandle<Vec<u8>>,
    stderr: JoinHandle<Vec<u8>>,
    line: String,
    folder: PathBuf,
    started: Instant,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("its status").is_some()
    }

    /// Waits for its end, and not for ever.
    #[track_caller]
    pub fn finish(mut self) -> Ran {
        while !self.has_ended() {
            if self.started.elapsed() > LONGEST {
                let line = self.line.clone();
                let ran = self.kill();
                panic!("`{line}` did not end within {LONGEST:?}\n{ran}");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.end()
    }

    /// SIGKILL, now.
    pub fn kill(mut self) -> Ran {
        self.child.kill().expect("it is killed");
        self.end()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it gets the signal");
    }

    fn end(mut self) -> Ran {
        let code = self.child.wait().expect("its end").code();
        let text = |thread: JoinHandle<Vec<u8>>| {
            let bytes = thread.join().expect("its output");
            // One that was killed may have been in the middle of a letter.
            if code.is_some() {
                String::from_utf8(bytes).expect("text")
            } else {
                String::from_utf8_lossy(&bytes).into_owned()
            }
        };
        let (stdout, stderr) = (text(self.stdout), text(self.stderr));
        Ran { line: self.line, code, stdout, stderr, took: self.started.elapsed(), folder: self.folder }
    }
}

/// How a command ended.
#[derive(Debug)]
pub struct Ran {
    pub line: String,
    /// `None`: killed by a signal.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
    folder: PathBuf,
}

impl Ran {
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "\n{self}");
        self
    }

    #[track_caller]
    pub fn ok(self) -> Self {
        self.exits(0)
    }

    /// This text is in what it printed.
    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text) || self.stdout.contains(text), "`{text}` is missing:\n{self}");
        self
    }

    /// Every one of these texts is.
    #[track_caller]
    pub fn says_all(self, texts: &[&str]) -> Self {
        texts.iter().fold(self, |ran, text| ran.says(text))
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("no JSON: {error}\n{self}"))
    }

    pub fn words(&self) -> Vec<String> {
        self.stdout.split_whitespace().map(str::to_owned).collect()
    }

    /// All that it printed.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// What it printed, for a snapshot.
    pub fn printed(&self) -> String {
        let code = self.code.map_or("killed".to_owned(), |code| code.to_string());
        let text = format!("exit {code}\n----- stdout\n{}----- stderr\n{}", self.stdout, self.stderr);
        text.replace(&self.folder.display().to_string(), "[DIR]")
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code.map_or("killed".to_owned(), |code| code.to_string());
        let Ran { line, stdout, stderr, took, .. } = self;
        write!(f, "$ {line}\nexit {code} after {took:.1?}\n----- stdout\n{stdout}----- stderr\n{stderr}")
    }
}
