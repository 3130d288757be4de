//! Programs that are measured, each with its log, and what the operating system counts for them.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take to end when it is asked to.
const STOP_WAIT: Duration = Duration::from_secs(30);

pub struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    pub fn start(name: &'static str, mut command: Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name, child, log })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails, with the end of its log, when the program has ended by itself.
    pub fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<_> = log.lines().rev().take(15).collect();
            let tail: Vec<_> = lines.into_iter().rev().collect();
            bail!("{} ended with {status}:\n{}", self.name, tail.join("\n"));
        }
        Ok(())
    }

    pub fn stop(self) -> Result<()> {
        self.stop_by(Signal::TERM)
    }

    /// Returns when it has ended.
    pub fn stop_by(mut self, signal: Signal) -> Result<()> {
        self.check()?;
        self.signal(signal);
        let until = Instant::now() + STOP_WAIT;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > until {
                bail!("{} does not end", self.name);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            _ = self.child.kill();
            _ = self.child.wait();
        }
    }
}

/// What everyone's data is written to must be able to keep it: where syncing costs nothing, durable creates would too.
pub fn check_disk(folder: &Path) -> Result<()> {
    const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
    let kind = rustix::fs::statfs(folder)?.f_type;
    if IN_MEMORY.contains(&(kind as i64)) {
        bail!("{} is kept in memory: set TMPDIR to a folder on a disk", folder.display());
    }
    Ok(())
}

/// A port that nothing listens on.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// What a process, and the children it has now, use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    pub cpu_seconds: f64,
    /// Of children that have ended.
    pub ended_children_seconds: f64,
    pub resident_mib: f64,
    pub peak_mib: f64,
}

pub fn usage(id: u32) -> Result<Usage> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).context("the process is gone")?;
    // The name may hold anything; the numbers come after its closing bracket.
    let after = stat.rsplit_once(')').context("an unknown form of /proc/PID/stat")?.1;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).context("the process is gone")?;
    let mib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
    };
    Ok(Usage {
        // Linux shows times to programs in hundredths of a second, whatever the kernel's own tick is.
        cpu_seconds: (ticks(11) + ticks(12)) / 100.0,
        ended_children_seconds: (ticks(13) + ticks(14)) / 100.0,
        resident_mib: mib("VmRSS:"),
        peak_mib: mib("VmHWM:"),
    })
}

/// As [`usage`], with every child's CPU time: PostgreSQL is a process for each connection.
pub fn usage_of_all(id: u32) -> Result<Usage> {
    let mut sum = usage(id)?;
    // One that ends meanwhile takes nothing away: its time is its parent's from then on.
    sum.cpu_seconds += sum.ended_children_seconds;
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    for child in children.split_whitespace().filter_map(|text| text.parse().ok()) {
        if let Ok(one) = usage(child) {
            sum.cpu_seconds += one.cpu_seconds;
            // Shared memory is counted once for each process; the sum would say nothing.
        }
    }
    Ok(sum)
}
