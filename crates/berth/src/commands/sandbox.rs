//! `berth sandbox`: simulated clouds that stay, in the foreground or behind.

use crate::args::sandbox_ports::CloudPorts;
use crate::args::workspace_args::speed;
use crate::cli::{Threads, block_on};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::project;
use crate::local::sandbox::{self, Post, Record};
use crate::signals::StopSignal;
use crate::view::output;
use berth_sandbox::{Config, Rule, Sandbox, Speed, registry};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START_WITHIN: Duration = Duration::from_secs(20);
const STOP_WITHIN: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How much of a log is repeated when the sandbox did not start.
const LOG_TAIL: u64 = 4096;

/// Serve simulated clouds on this machine
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth sandbox --speed 60\n  berth sandbox --background --speed max")]
pub struct Args {
    #[command(flatten)]
    clouds: CloudPorts,
    /// Address for the clusters' Kubernetes APIs
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7072")]
    kube: SocketAddr,
    /// Folder with etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok, to give every cluster a real
    /// control plane
    #[arg(long, value_name = "DIR")]
    kube_bin: Option<PathBuf>,
    /// How much faster than real time provisioning goes, or `max`
    #[arg(long, value_name = "N", value_parser = speed, default_value = "1")]
    speed: Speed,
    /// File that keeps the clouds between runs; with --background, by default one in the project's .berth folder
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// A fault to play, such as `POST /v2/kubernetes/clusters 503 times=2`; may be given more than once
    #[arg(long, value_name = "RULE")]
    fail: Vec<String>,
    /// Chooses among random faults; the same number, the same faults
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The only token to accept; any will do without it
    #[arg(long, value_name = "TOKEN", env = "BERTH_SANDBOX_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Leave it running, and use it for every --sandbox in this project
    #[arg(long, conflicts_with = "stop")]
    background: bool,
    /// End the one that this project has running
    #[arg(long)]
    stop: bool,
    /// The process that --background leaves running
    #[arg(long, hide = true, conflicts_with_all = ["background", "stop"])]
    detached: bool,
}

pub fn run(args: Args) -> CommandResult {
    let folder = project::folder()?;
    if args.stop {
        return stop(&folder);
    }
    let fail = rules(&args.fail)?;
    if args.background {
        return background(&args, &folder);
    }
    block_on(Threads::Two, serve(args, fail, &folder))
}

fn rules(texts: &[String]) -> Result<Vec<Rule>, Failure> {
    let parse = |text: &String| {
        text.parse().map_err(|error| Failure::caused(format!("`{text}` is not a rule for --fail"), &error))
    };
    texts.iter().map(parse).collect()
}

async fn serve(args: Args, fail: Vec<Rule>, folder: &Path) -> CommandResult {
    if args.detached {
        leave_terminal();
    }
    let config = Config {
        clouds: args.clouds.addresses.clone(),
        options: args.clouds.options.clone(),
        kube: args.kube,
        speed: args.speed,
        state: args.state.clone(),
        fail,
        seed: args.seed,
        token: args.token.clone(),
        kube_bin: args.kube_bin.clone(),
        ..Config::default()
    };
    let mut stop = StopSignal::listen()?;
    let started = Sandbox::start(config).await.map_err(|error| sandbox::cannot_start(&error))?;
    // A second sandbox in the same project works, but `--sandbox` continues to use the first.
    let post = Post::take(folder)?;
    let record = Record {
        pid: std::process::id(),
        urls: started.urls(),
        state: args.state.as_ref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone())),
        speed: sandbox::show_speed(args.speed),
    };
    match &post {
        Some(post) => post.write(&record)?,
        None if args.detached => return Err(already(folder)),
        None => {}
    }
    output::print(&how_to(&record, args.token.is_some(), post.is_some()))?;
    if !args.detached {
        anstream::eprintln!("Ctrl-C ends it.");
    }
    stop.wait().await;
    drop(post);
    started.stop().await;
    Ok(Exit::Done)
}

/// How to point berth and the clouds' own tools here.
fn how_to(record: &Record, token_needed: bool, of_project: bool) -> String {
    let Record { state, speed, .. } = record;
    let token = if token_needed { "the one given with --token" } else { "sandbox" };
    let kept = state.as_ref().map_or("nothing is kept".to_owned(), |path| format!("kept in {}", path.display()));
    let pace = if speed == "max" { "no provisioning time".to_owned() } else { format!("speed {speed}") };
    let berth = if of_project { "\n  berth, in this folder    berth <command> --sandbox" } else { "" };
    let shown = if token_needed { "TOKEN" } else { token };
    let (mut addresses, mut anywhere, mut clients, mut terraform) = (String::new(), vec![], vec![], vec![]);
    for cloud in registry::clouds() {
        let Some(url) = record.urls.get(cloud.name.as_str()) else { continue };
        addresses.push_str(&format!("{:<14}{url}\n", cloud.title));
        if let Ok(known) = berth_clouds::registry::find(cloud.name.as_str()) {
            let token = known.variables.token.first().copied().unwrap_or_default();
            let settings = format!("{}={url} {token}={shown}", known.variables.api_url);
            anywhere.push(format!("{settings} berth …"));
            let more: String = cloud.environment.iter().map(|(name, value)| format!(" {name}={value}")).collect();
            terraform.push(format!("export {settings}{more}"));
        }
        if let Some((program, call)) = cloud.client {
            clients.push((program, vec![call(url, shown)]));
        }
    }
    let mut text = format!("{addresses}{pace}; {kept}; token: {token}\n\nTo use it:{berth}\n");
    let ways = [("berth, anywhere", anywhere)].into_iter().chain(clients).chain([("Terraform, OpenTofu", terraform)]);
    for (program, calls) in ways {
        for (n, call) in calls.iter().enumerate() {
            text.push_str(&format!("  {:<25}{call}\n", if n == 0 { program } else { "" }));
        }
    }
    text
}

fn already(folder: &Path) -> Failure {
    let failure = Failure::new("this project has a sandbox running");
    let failure = match sandbox::recorded(folder) {
        Some(record) => failure.note(format!("process {}, at {}", record.pid, record.addresses())),
        None => failure,
    };
    failure.help("to end it:   berth sandbox --stop")
}

/// Starts this program again, to stay, and waits until it answers.
fn background(args: &Args, folder: &Path) -> CommandResult {
    if sandbox::recorded(folder).is_some() {
        return Err(already(folder));
    }
    project::make(folder)?;
    let log = sandbox::log_path(folder);
    let failed = |error: std::io::Error| Failure::caused("cannot start the sandbox", &error);
    let out = File::options().create(true).append(true).open(&log).map_err(failed)?;
    let begun = out.metadata().map_err(failed)?.len();
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.arg("sandbox").arg("--detached");
    command.args(args.clouds.flags());
    command.args(["--kube", &args.kube.to_string(), "--speed", &sandbox::show_speed(args.speed)]);
    command.args(["--seed", &args.seed.to_string()]);
    command.arg("--state").arg(args.state.clone().unwrap_or_else(|| sandbox::cloud_path(folder)));
    if let Some(folder) = &args.kube_bin {
        command.arg("--kube-bin").arg(folder);
    }
    for rule in &args.fail {
        command.args(["--fail", rule]);
    }
    // By environment: arguments can be read by everyone on the machine.
    if let Some(token) = &args.token {
        command.env("BERTH_SANDBOX_TOKEN", token);
    }
    command.stdin(Stdio::null()).stdout(out.try_clone().map_err(failed)?).stderr(out);
    let mut child = command.spawn().map_err(failed)?;
    let record = block_on(Threads::One, until_it_answers(&mut child, folder, &log, begun))?;
    output::print(&how_to(&record, args.token.is_some(), true))?;
    anstream::eprintln!("running as process {}; to end it:   berth sandbox --stop", record.pid);
    Ok(Exit::Done)
}

async fn until_it_answers(child: &mut Child, folder: &Path, log: &Path, begun: u64) -> Result<Record, Failure> {
    let until = Instant::now() + START_WITHIN;
    loop {
        if let Some(record) = sandbox::recorded(folder)
            && record.pid == child.id()
            && sandbox::answers(&record).await
        {
            return Ok(record);
        }
        if let Ok(Some(_)) = child.try_wait() {
            let said = tail(log, begun);
            let message = said.trim().strip_prefix("error: ").unwrap_or(said.trim()).to_owned();
            return Err(Failure::new(if message.is_empty() { "the sandbox ended at once".into() } else { message }));
        }
        if Instant::now() > until {
            _ = child.kill();
            return Err(Failure::new(format!("the sandbox did not answer within {} s", START_WITHIN.as_secs()))
                .help(format!("what it said is in {}", log.display())));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// What was written to a log since it had so many bytes.
fn tail(log: &Path, begun: u64) -> String {
    let mut bytes = Vec::new();
    let read = File::open(log).and_then(|mut file| {
        file.seek(SeekFrom::Start(begun))?;
        file.take(LOG_TAIL).read_to_end(&mut bytes)
    });
    if read.is_err() {
        bytes.clear();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn stop(folder: &Path) -> CommandResult {
    let Some(record) = sandbox::recorded(folder) else {
        anstream::eprintln!("no sandbox is running for this project");
        return Ok(Exit::Done);
    };
    terminate(record.pid)?;
    let until = Instant::now() + STOP_WITHIN;
    while sandbox::recorded(folder).is_some_and(|now| now.pid == record.pid) || held(folder) {
        if Instant::now() > until {
            return Err(Failure::new(format!("the sandbox, process {}, did not end", record.pid))
                .help(format!("to end it by force:   kill -9 {}", record.pid)));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    anstream::eprintln!("the sandbox, process {}, has ended", record.pid);
    Ok(Exit::Done)
}

/// Whether the right to be the project's sandbox is still taken.
fn held(folder: &Path) -> bool {
    matches!(Post::take(folder), Ok(None))
}

#[cfg(unix)]
fn terminate(pid: u32) -> Result<(), Failure> {
    use rustix::process::{Pid, Signal, kill_process};
    let failed = || Failure::new(format!("process {pid} is not a sandbox"));
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(failed)?;
    kill_process(pid, Signal::TERM)
        .map_err(|error| Failure::caused(format!("cannot end process {pid}"), &std::io::Error::from(error)))
}

#[cfg(not(unix))]
fn terminate(pid: u32) -> Result<(), Failure> {
    Err(Failure::new("a sandbox can only be ended from here on Unix").help(format!("end process {pid} by hand")))
}

/// A session of its own, so that closing the terminal does not end it.
#[cfg(unix)]
fn leave_terminal() {
    _ = rustix::process::setsid();
}

#[cfg(not(unix))]
fn leave_terminal() {}
