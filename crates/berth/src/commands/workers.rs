//! `berth workers`: who carries a server's tasks out.

use crate::args::ServerArgs;
use crate::failure::{CommandResult, Exit};
use crate::remote::{messages, with_server};
use crate::view::output::{self, OutputArgs, Table};
use crate::view::resource_view::{age, or_dash};
use berth_server::pb;
use jiff::Timestamp;
use serde_json::{Value, json};

/// List the server's workers
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth workers\n  berth workers -o json")]
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> CommandResult {
    let workers = with_server(&args.server, async |remote| {
        let answer = remote.client.tasks().workers(pb::ListWorkersRequest {}).await;
        Ok(answer.map_err(|status| remote.fail(&status))?.into_inner().workers)
    })?;
    let format = args.output.output;
    if workers.is_empty() && format.is_for_people() {
        anstream::eprintln!("no worker was ever heard of");
        anstream::eprintln!("  to start one:   berth worker --server URL --token-file FILE");
        return Ok(Exit::Done);
    }
    let now = Timestamp::now();
    let value: Vec<Value> = workers.iter().map(|worker| as_json(worker, now)).collect();
    output::show(format, &value, |_| table(&workers), || workers.iter().map(|worker| worker.name.clone()).collect())?;
    Ok(Exit::Done)
}

fn table(workers: &[pb::Worker]) -> String {
    let mut table = Table::new(["NAME", "BUSY", "SEEN", "STATE", "VERSION", "SERVICES"])
        .sandbox(workers.iter().any(|worker| worker.sandbox));
    let now = Timestamp::now();
    for worker in workers {
        table.row([
            or_dash(&worker.name),
            busy(worker),
            seen(worker, now),
            state(worker, now).into(),
            worker.version.clone(),
            services(worker),
        ]);
    }
    table.render()
}

pub fn busy(worker: &pb::Worker) -> String {
    format!("{}/{}", worker.running, worker.capacity)
}

pub fn seen(worker: &pb::Worker, now: Timestamp) -> String {
    messages::maybe_time(&worker.seen_at).map_or_else(|| "-".into(), |at| format!("{} ago", age(at, now)))
}

/// Workers that wait for work ask at least every twenty seconds: one that was not heard of for twice as long is not there.
const HEARD_WITHIN: i64 = 40;

pub fn state(worker: &pb::Worker, now: Timestamp) -> &'static str {
    let heard = |at: Timestamp| now.duration_since(at).as_secs() < HEARD_WITHIN;
    match messages::maybe_time(&worker.seen_at).is_some_and(heard) {
        false => "lost",
        true if worker.draining => "draining",
        true => "ready",
    }
}

pub fn services(worker: &pb::Worker) -> String {
    if worker.services.is_empty() { "all".into() } else { worker.services.join(", ") }
}

fn as_json(worker: &pb::Worker, now: Timestamp) -> Value {
    json!({
        "name": worker.name,
        "services": worker.services,
        "capacity": worker.capacity,
        "running": worker.running,
        "version": worker.version,
        "seenAt": worker.seen_at,
        "draining": worker.draining,
        "sandbox": worker.sandbox,
        "state": state(worker, now),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_is_not_heard_of_is_not_ready() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let seen = |ago: i64, draining| {
            let seen_at = Timestamp::from_second(1_000_000 - ago).unwrap().to_string();
            state(&pb::Worker { seen_at, draining, ..pb::Worker::default() }, now)
        };
        let states = [seen(1, false), seen(30, true), seen(HEARD_WITHIN, false), seen(600, true)];
        assert_eq!(states, ["ready", "draining", "lost", "lost"]);
        assert_eq!(state(&pb::Worker::default(), now), "lost");
    }
}
