//! The running programs of one control plane.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use tokio::process::{Child, Command};

use super::error::RealError;
use super::guard::Guard;

/// How much of a program's log is repeated when it ended.
const LOG_TAIL_BYTES: u64 = 2048;
const PIDS: &str = "pids";

/// Killed when dropped.
pub struct Processes {
    guard: Arc<Guard>,
    folder: PathBuf,
    running: Vec<Process>,
}

struct Process {
    name: &'static str,
    pid: u32,
    child: Child,
}

impl Processes {
    /// Each program writes to `NAME.log` in the folder, and is found again by the file `pids`.
    pub fn new(guard: Arc<Guard>, folder: PathBuf) -> Processes {
        Processes { guard, folder, running: Vec::new() }
    }

    pub fn start(&mut self, name: &'static str, program: PathBuf, arguments: Vec<String>) -> Result<(), RealError> {
        let failed = |source| RealError::Start { program: name, source };
        let log = std::fs::File::create(self.log(name)).map_err(failed)?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.folder).kill_on_drop(true);
        // What the programs would otherwise take from, or leave in, the home folder of the user.
        command.env_remove("KUBECONFIG").env("HOME", &self.folder).env("KWOK_WORKDIR", self.folder.join("kwok"));
        command.stdin(Stdio::null()).stdout(log.try_clone().map_err(failed)?).stderr(log);
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn().map_err(failed)?;
        let Some(pid) = child.id() else {
            return Err(failed(io::Error::other("it ended at once")));
        };
        if let Err(source) = self.guard.add(pid).and_then(|()| self.note(pid)) {
            let _ = child.start_kill();
            return Err(failed(source));
        }
        self.running.push(Process { name, pid, child });
        Ok(())
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    fn note(&self, pid: u32) -> io::Result<()> {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(self.folder.join(PIDS))?;
        io::Write::write_all(&mut file, format!("{pid}\n").as_bytes())
    }

    /// The first program that is no longer running, and the end of its log.
    pub fn ended(&mut self) -> Option<RealError> {
        let (name, status) = self.running.iter_mut().find_map(|process| match process.child.try_wait() {
            Ok(Some(status)) => Some((process.name, status.to_string())),
            Ok(None) => None,
            Err(error) => Some((process.name, error.to_string())),
        })?;
        let log = self.log(name);
        Some(RealError::Ended { program: name, status, said: tail(&log).unwrap_or_default(), log })
    }

    /// Kills them all, the last started first. Nothing is lost: what was answered is in etcd's log.
    pub async fn stop(&mut self) {
        while let Some(mut process) = self.running.pop() {
            if process.child.id().is_some()
                && let Err(error) = process.child.kill().await
            {
                tracing::warn!(%error, program = process.name, "a program of a sandbox cluster cannot be ended");
            }
            self.guard.remove(process.pid);
        }
        let _ = std::fs::remove_file(self.folder.join(PIDS));
    }
}

impl Drop for Processes {
    /// The children die with their handles; the guard must not take their numbers for theirs later.
    fn drop(&mut self) {
        for process in &mut self.running {
            let _ = process.child.start_kill();
            self.guard.remove(process.pid);
        }
    }
}

fn tail(log: &Path) -> io::Result<String> {
    let mut file = std::fs::File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned())
}

/// Kills what an earlier sandbox left running in this folder. A number that is another process's by now is left alone: the
/// programs all have the folder in their arguments.
pub fn end_leftovers(folder: &Path) {
    let Ok(pids) = std::fs::read_to_string(folder.join(PIDS)) else { return };
    for pid in pids.lines().filter_map(|line| line.trim().parse::<u32>().ok()) {
        if command_line(pid).is_some_and(|line| line.contains(&*folder.to_string_lossy())) {
            tracing::warn!(pid, "a program that an earlier sandbox left running is ended");
            let script = r#"kill -KILL "$1"; n=0; while kill -0 "$1" 2>/dev/null && [ $n -lt 50 ]; do sleep 0.1; n=$((n+1)); done"#;
            let _ = std::process::Command::new("sh").args(["-c", script, "end", &pid.to_string()]).status();
        }
    }
    let _ = std::fs::remove_file(folder.join(PIDS));
}

fn command_line(pid: u32) -> Option<String> {
    if Path::new("/proc/self").exists() {
        return std::fs::read(format!("/proc/{pid}/cmdline"))
            .ok()
            .map(|line| String::from_utf8_lossy(&line).into_owned());
    }
    let shown =
        std::process::Command::new("ps").args(["-ww", "-o", "command=", "-p", &pid.to_string()]).output().ok()?;
    Some(String::from_utf8_lossy(&shown.stdout).into_owned())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn sh() -> PathBuf {
        PathBuf::from("/bin/sh")
    }

    #[tokio::test]
    async fn a_program_that_ended_is_told_with_the_end_of_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let guard = Arc::new(Guard::start(None).unwrap());
        let mut processes = Processes::new(guard, folder.path().to_owned());
        processes.start("etcd", sh(), vec!["-c".into(), "sleep 60".into()]).unwrap();
        assert!(processes.ended().is_none());
        processes.start("kwok", sh(), vec!["-c".into(), "echo no stages; exit 3".into()]).unwrap();
        let mut ended = None;
        for _ in 0..200 {
            ended = processes.ended();
            if ended.is_some() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        let text = ended.unwrap().to_string();
        assert!(text.starts_with("kwok ended (exit status: 3): no stages"), "{text}");
        processes.stop().await;
        assert!(!folder.path().join(PIDS).exists());
    }

    #[tokio::test]
    async fn only_programs_of_this_folder_are_leftovers() {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(": {}; sleep 5; :", folder.path().display());
        let mut left = std::process::Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        std::fs::write(folder.path().join(PIDS), format!("{}\n{}\n", left.id(), other.id())).unwrap();
        let pid = left.id();
        let reaper = std::thread::spawn(move || left.wait().unwrap());
        end_leftovers(folder.path());
        assert!(!reaper.join().unwrap().success(), "process {pid} was killed");
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
