//! Processes that die. The children are this same test binary, told by name which part to play.

use crate::*;
use berth_engine::record::{Closing, Recorder};
use berth_store::Entries;
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

on_both! {
    killed_at_any_instant_every_acknowledged_write_is_there,
    another_process_holds_the_lock,
    readers_see_what_is_committed_while_a_run_writes,
}

const STATE: &str = "BERTH_TEST_STATE";

fn child(part: &str, state: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", part, "--nocapture", "--test-threads=1"])
        .env(STATE, state)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// `None` when the part is not played for a parent (`--include-ignored`): there is nothing to do then.
fn state_of_child() -> Option<String> {
    std::env::var(STATE).ok()
}

/// The operating system frees a dead process's lock at once; PostgreSQL does when it notices that the connection is closed.
async fn begin_after_a_death(store: &Store, place: &StateLocation) -> Run {
    let until = Instant::now() + Duration::from_secs(if place.is_sqlite() { 0 } else { 10 });
    loop {
        match store.begin_run("after a death").await {
            Err(StoreError::Locked { .. }) if Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            result => return result.expect("the lock of a dead process is free"),
        }
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n{line}\n").as_bytes()).and_then(|()| out.flush()).expect("the parent listens");
}

#[tokio::test]
#[ignore = "a part that killed_at_any_instant plays"]
async fn child_writes() {
    let Some(state) = state_of_child() else { return };
    let store = open(&state).await;
    let run = store.begin_run("child_writes").await.unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let workers = (0..16).map(|worker| {
        let (run, pid) = (&run, std::process::id());
        async move {
            let id = save(run, &format!("net-{worker}")).await;
            for turn in 0.. {
                if Instant::now() > until {
                    break;
                }
                let token = format!("{pid}-{worker}-{turn}");
                let mut unit = unit(&id, "network", &token);
                let entry = run.intent(create(&unit)).await.unwrap();
                say(&format!("begun {token}"));
                unit.id = Some(format!("object-{token}"));
                run.close(entry, Closing::Done(Some(Box::new(unit)))).await.unwrap();
                say(&format!("made {token}"));
            }
        }
    });
    futures::future::join_all(workers).await;
}

async fn killed_at_any_instant_every_acknowledged_write_is_there(place: StateLocation) {
    let address = &place.address;
    let (mut begun, mut made) = (HashSet::new(), HashSet::new());
    for lines_until_kill in [1, 37, 150, 400] {
        let mut child = child("durable::child_writes", address);
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut heard = 0;
        // After the kill the rest of the pipe is read too: those lines were said before it.
        for line in out.lines().map_while(Result::ok) {
            let set = match line.split_once(' ') {
                Some(("begun", _)) => &mut begun,
                Some(("made", _)) => &mut made,
                _ => continue,
            };
            set.insert(line.split_once(' ').unwrap().1.to_owned());
            heard += 1;
            if heard == lines_until_kill {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(heard >= lines_until_kill, "the child ended by itself after {heard} lines");

        let store = open(address).await;
        let run = begin_after_a_death(&store, &place).await;
        let units: HashMap<_, _> =
            store.all_units().await.unwrap().into_iter().map(|unit| (unit.token, unit.id)).collect();
        for token in &begun {
            assert!(units.contains_key(token), "the intent of {token} is lost");
        }
        for token in &made {
            assert_eq!(units[token].as_deref(), Some(format!("object-{token}").as_str()), "the end of {token} is lost");
        }
        // Entry and row are written together: neither is ever there without the other.
        let journal = store.journal(Entries::All, 10_000).await.unwrap();
        assert_eq!(journal.len(), units.len());
        for entry in journal {
            assert_eq!(entry.ended_at.is_some(), units[&entry.token].is_some(), "{} is torn", entry.token);
        }
        if place.is_sqlite() {
            assert_eq!(place.texts("PRAGMA integrity_check").await, ["ok"]);
        }
        run.finish().await;
        store.close().await;
    }
    assert!(made.len() > 100 && begun.len() >= made.len());
}

#[tokio::test]
#[ignore = "a part that another_process_holds_the_lock plays"]
async fn child_holds() {
    let Some(state) = state_of_child() else { return };
    let store = open(&state).await;
    let run = store.begin_run("berth apply -f fleet/").await.unwrap();
    say("held");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    run.finish().await;
}

async fn another_process_holds_the_lock(place: StateLocation) {
    let home = place.open().await;
    let mut child = child("durable::child_holds", &home.place.address);
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(out.by_ref().map_while(Result::ok).any(|line| line == "held"));
    let error = refused(home.store.begin_run("berth delete").await);
    let StoreError::Locked { holder, .. } = &error else { panic!("{error}") };
    assert_eq!((holder.pid, holder.command.as_str()), (Some(child.id()), "berth apply -f fleet/"));
    assert!(holder.since.is_some_and(|since| since.duration_until(jiff::Timestamp::now()).as_secs() < 60));
    let text = error.to_string();
    assert!(text.contains(&child.id().to_string()) && text.contains("berth apply -f fleet/"), "{text}");
    assert!(!error.help().is_empty());

    child.kill().unwrap();
    child.wait().unwrap();
    let run = begin_after_a_death(&home.store, &home.place).await;
    save(&run, "net").await;
}

async fn readers_see_what_is_committed_while_a_run_writes(place: StateLocation) {
    let home = place.open().await;
    let run = home.store.begin_run("writer").await.unwrap();
    let id = save(&run, "net").await;
    let writing = {
        let id = id.clone();
        tokio::spawn(async move {
            for number in 0..200 {
                run.save_unit(unit(&id, "network", &format!("t{number:03}"))).await.unwrap();
                run.event(&id, "step", "").await.unwrap();
            }
            run.finish().await;
        })
    };
    // As another process would: opened for itself, reading only.
    let reader = Store::open(Options { must_exist: true, ..options(&home.place.address) }).await.unwrap();
    let mut seen = 0;
    while !writing.is_finished() {
        let units = reader.units_of(&id).await.unwrap();
        assert!(units.len() >= seen, "what was seen stays");
        assert!(units.iter().enumerate().all(|(at, unit)| unit.token == format!("t{at:03}")));
        seen = units.len();
    }
    writing.await.unwrap();
    assert_eq!(reader.units_of(&id).await.unwrap().len(), 200);
    assert_eq!(reader.events(1000).await.unwrap().len(), 200);
}
