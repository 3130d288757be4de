//! Ends the programs of a sandbox that was killed and could not end them itself.
//!
//! A shell waits on a pipe that only the sandbox holds open. Programs are told to it as they start and end; when the pipe
//! closes, for whatever reason, it kills those that are left. This needs no code between fork and exec, as a signal on the
//! parent's death would, and works on every Unix.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;

use crate::kube::lock;

/// Reads `+ PID` and `- PID`. `$1` is a folder to remove at the end, if there is one.
const SCRIPT: &str = r#"trap '' HUP INT TERM
alive=' '
while read -r sign pid; do
    case $sign in
    +) alive="$alive$pid " ;;
    -) alive="${alive%% "$pid" *} ${alive#* "$pid" }" ;;
    esac
done
kill -KILL $alive
[ -z "$1" ] || rm -rf "$1" || { sleep 1; rm -rf "$1"; }
"#;

pub struct Guard {
    shell: Mutex<(Child, Option<ChildStdin>)>,
}

impl Guard {
    /// `temporary` is removed when the sandbox is gone.
    pub fn start(temporary: Option<&Path>) -> io::Result<Guard> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "berth-sandbox-guard"]).arg(temporary.unwrap_or(Path::new("")));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // A group of its own: Ctrl-C in a terminal reaches everything that is in the sandbox's.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut shell = command.spawn()?;
        let pipe = shell.stdin.take();
        Ok(Guard { shell: Mutex::new((shell, pipe)) })
    }

    pub fn add(&self, pid: u32) -> io::Result<()> {
        self.tell('+', pid)
    }

    /// The program has ended, and its number may soon be another's.
    pub fn remove(&self, pid: u32) {
        if let Err(error) = self.tell('-', pid) {
            tracing::warn!(%error, pid, "the guard of the sandbox's programs has ended");
        }
    }

    fn tell(&self, sign: char, pid: u32) -> io::Result<()> {
        match &mut lock(&self.shell).1 {
            Some(pipe) => writeln!(pipe, "{sign} {pid}"),
            None => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the guard has ended")),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let (shell, pipe) = &mut *lock(&self.shell);
        drop(pipe.take());
        let _ = shell.wait();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn what_is_left_is_killed_when_the_pipe_closes_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let temporary = folder.path().join("data");
        std::fs::create_dir(&temporary).unwrap();
        let guard = Guard::start(Some(&temporary)).unwrap();
        let mut programs: Vec<Child> = (0..3).map(|_| Command::new("sleep").arg("60").spawn().unwrap()).collect();
        for program in &programs {
            guard.add(program.id()).unwrap();
        }
        guard.remove(programs[1].id());
        drop(guard);
        for n in [0, 2] {
            assert_eq!(programs[n].wait().unwrap().signal(), Some(9));
        }
        assert!(programs[1].try_wait().unwrap().is_none(), "it was taken off the list");
        programs[1].kill().unwrap();
        programs[1].wait().unwrap();
        assert!(!temporary.exists());
    }
}
