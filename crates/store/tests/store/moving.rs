//! A server's state: its keys change while it takes and hands out work, and it moves to another database with everything
//! that servers know.

use crate::backup::{identity, into, make_backup, other_kind, restored};
use crate::fixtures::{actor, applying, ask, at, desired, new_task, note};
use crate::rotation::{account, ring_path, write_ring};
use crate::*;
use berth_store::*;
use secrecy::{ExposeSecret, SecretString};
use std::sync::atomic::{AtomicBool, Ordering};

on_both! {
    a_server_goes_on_while_its_keys_change,
    a_server_moves_with_everything_it_knows,
}

const PAYLOAD: &str = "PLANTED in a task's payload";
const RESULT: &str = "{\"planted\": \"in a task's result\"}";

async fn server(place: &StateLocation, ring: &[u8]) -> Control {
    write_ring(&ring_path(place), ring);
    let options = Options { key: KeySource::File(ring_path(place)), ..options(&place.address) };
    Control::open(Store::open(options).await.unwrap()).await.unwrap()
}

fn wanted(name: &str, token: &str) -> Desired {
    let id = ResourceId::new("Account", name);
    Desired { resource: account(name, token), ready: true, ..desired(&id, json!({})) }
}

fn planned(id: &ResourceId) -> NewTask {
    NewTask { payload: Some(SecretString::from(PAYLOAD)), ..new_task(TaskOp::Plan, id, at(0)) }
}

async fn a_server_goes_on_while_its_keys_change(place: StateLocation) {
    let control = server(&place, &[1]).await;
    let names: Vec<String> = (0..120).map(|number| format!("a{number}")).collect();
    for turn in ["first", "second"] {
        let resources = names.iter().map(|name| wanted(name, turn)).collect();
        control.apply(applying(resources), at(0)).await.unwrap();
    }
    let id = ResourceId::new("Account", "a0");
    let done = control.enqueue(vec![planned(&id)], at(0)).await.unwrap().remove(0);
    let leased = control.lease(ask("w1", 10), at(1)).await.unwrap();
    assert_eq!(leased.len(), 1);
    let ending = Ending { result: Some(RESULT.into()), ..Ending::new(TaskOutcome::Done, "") };
    control.report(&leased[0].held, ending, at(2)).await.unwrap();

    let stop = AtomicBool::new(false);
    let busy = async {
        let mut turn = 0;
        let mut tasks = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            turn += 1;
            let again = vec![wanted("busy", &format!("turn-{turn}"))];
            control.apply(applying(again), at(10 + turn)).await.unwrap();
            tasks.extend(control.enqueue(vec![planned(&id)], at(10 + turn)).await.unwrap());
        }
        (turn, tasks)
    };
    let rotation = async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        write_ring(&ring_path(&place), &[2, 1]);
        let done = control.store().rotate(|_| ()).await.unwrap();
        stop.store(true, Ordering::Relaxed);
        done
    };
    let ((turns, tasks), rotated) = futures::join!(busy, rotation);
    assert!(rotated.resealed >= 240 && turns > 1, "{rotated:?}");
    let by_key = control.store().sealed_by().await.unwrap();
    assert_eq!(by_key.keys().collect::<Vec<_>>(), ["key-2"], "{by_key:?}");
    assert!(!crate::dump::all_rows(&place).await.contains("sealed:v2:key-1"), "nowhere at all");
    control.close().await;
    control.store().close().await;

    let control = server(&place, &[2]).await;
    let account = ResourceId::new("Account", "a7");
    let stored = control.store().resource(&account).await.unwrap().unwrap();
    assert_eq!(control.store().unseal(&stored).unwrap()["spec"]["civo"]["token"]["value"], "second");
    let before = control.revision(&account, 1).await.unwrap().expect("the generation before");
    let before = control.store().unseal_revision(&before).unwrap();
    assert_eq!(before["spec"]["civo"]["token"]["value"], "first");
    let busy = control.store().resource(&ResourceId::new("Account", "busy")).await.unwrap().unwrap();
    let token = &control.store().unseal(&busy).unwrap()["spec"]["civo"]["token"]["value"];
    assert_eq!(*token, format!("turn-{turns}"), "no write was overwritten");
    assert_eq!(control.result(&done).await.unwrap().unwrap().expose_secret(), RESULT);
    for task in tasks.iter().chain([&done]) {
        assert_eq!(control.payload(task).await.unwrap().unwrap().expose_secret(), PAYLOAD);
    }
    // What did not change is known not to have.
    let same = control.apply(applying(vec![wanted("a7", "second")]), at(99)).await.unwrap();
    assert_eq!(same[0].result, AppliedResult::Unchanged);
}

async fn a_server_moves_with_everything_it_knows(place: StateLocation) {
    let control = server(&place, &[1]).await;
    for turn in ["first", "second"] {
        control.apply(applying(vec![wanted("main", turn)]), at(0)).await.unwrap();
    }
    let id = vpc("net");
    control.apply(applying(vec![desired(&id, json!({"region": "fra1"}))]), at(0)).await.unwrap();
    let token = NewToken {
        id: "t1".into(),
        name: "ci".into(),
        hash: [7; 32],
        role: "operator".into(),
        org: "acme".into(),
        env: String::new(),
        expires_at: Some(at(500)),
        ..NewToken::default()
    };
    let token = control.create_token(token, &actor(), note("create token"), at(1)).await.unwrap();
    let ids = control.enqueue(vec![planned(&id), planned(&id)], at(1)).await.unwrap();
    let leased = control.lease(ask("w1", 1), at(2)).await.unwrap().remove(0);
    control.progress(&leased.held, "at it", vec![(at(3), "a line".into())], at(3)).await.unwrap();
    for number in 0..20 {
        control.audit(note(&format!("act {number}")), &actor(), at(4)).await.unwrap();
    }
    let (identity, recipients) = identity();
    // While the server runs, and goes on after that.
    let backup = make_backup(control.store(), &recipients).await;
    let events = control.last_event().await.unwrap();
    let audit = control.verify_audit().await.unwrap();
    assert!(audit.whole && audit.entries >= 22);
    let later = control.lease(ask("w2", 1), at(5)).await.unwrap().remove(0);
    assert_ne!(later.held.task, leased.held.task);

    let target = other_kind(&place).await;
    let ring = ring_path(&target);
    let done = restored(&backup, &identity, into(&target.address, &ring, false)).await.unwrap();
    assert_eq!((done.audit.whole, done.audit.entries), (true, audit.entries));
    let moved = Control::open(Store::open(into(&target.address, &ring, false).into).await.unwrap()).await.unwrap();
    assert_eq!(moved.token_by_hash(&[7; 32]).await.unwrap(), Some(token));
    assert_eq!(moved.verify_audit().await.unwrap(), audit);
    assert_eq!(
        moved.events_after(0, &EventFilter::default(), 1000).await.unwrap().len(),
        control.events_after(0, &EventFilter::default(), 1000).await.unwrap().iter().filter(|e| e.id <= events).count()
    );
    for task in &ids {
        assert_eq!(moved.payload(task).await.unwrap().unwrap().expose_secret(), PAYLOAD);
    }
    assert_eq!(moved.task_log(&leased.held.task, 0, 10).await.unwrap().len(), 1);
    let account = ResourceId::new("Account", "main");
    let before = moved.revision(&account, 1).await.unwrap().expect("the generation before");
    assert_eq!(moved.store().unseal_revision(&before).unwrap()["spec"]["civo"]["token"]["value"], "first");

    // Neither who had a task when the backup was made nor who got one after it can write here.
    for held in [&leased.held, &later.held] {
        let late = moved.report(held, Ending::new(TaskOutcome::Done, ""), at(6)).await;
        assert!(matches!(late, Err(ControlError::Fenced)), "{late:?}");
        assert!(moved.heartbeat("w1", vec![held.clone()], fixtures::LEASE, at(6)).await.unwrap().kept.is_empty());
    }
    moved.expire(at(6)).await.unwrap();
    let again = moved.lease(ask("w3", 10), at(7)).await.unwrap();
    assert_eq!(again.len(), 2, "both tasks are done again");
    assert!(again.iter().all(|one| one.held.fence > later.held.fence + 1_000_000));
    for one in &again {
        moved.report(&one.held, Ending::new(TaskOutcome::Done, ""), at(8)).await.unwrap();
    }
    moved.audit(note("after"), &actor(), at(9)).await.unwrap();
    assert_eq!(moved.verify_audit().await.unwrap().entries, audit.entries + 1, "the chain goes on");
    let events_there = moved.events_after(events, &EventFilter::default(), 1000).await.unwrap();
    assert!(events_there.iter().all(|event| event.id > events + 1_000_000));
    // A log that someone shortened before the backup is told.
    moved.close().await;
    moved.store().close().await;
    target.sql("DELETE FROM audit WHERE id = 5").await;
    let store = Store::open(into(&target.address, &ring, false).into).await.unwrap();
    let shortened = make_backup(&store, &recipients).await;
    let there = other_kind(&target).await;
    let done = restored(&shortened, &identity, into(&there.address, &ring_path(&there), false)).await.unwrap();
    assert_eq!((done.audit.whole, done.audit.broken_at), (false, Some(5)));
}
