//! What each write does, and that a failed one harms no other.

use crate::*;
use berth_engine::record::{Closing, EntryId, RecordError, Recorder};
use berth_store::{Entries, Filter};

on_both! {
    a_resource_keeps_its_generation_until_its_manifest_changes,
    filters_narrow_by_each_part_of_the_identity,
    the_life_of_a_unit,
    history_goes_back_in_pages_and_outlives_the_resource,
    one_failing_write_in_a_group_leaves_the_others_whole,
    writes_at_the_same_time_share_a_commit,
    a_batch_of_resources_is_saved_whole_or_not_at_all,
    a_stale_run_is_fenced_off,
    of_many_at_once_one_may_write,
    a_finished_run_frees_the_lock_and_writes_no_more,
    an_entry_that_a_dead_run_left_open_is_settled_by_the_next_look,
}

async fn a_resource_keeps_its_generation_until_its_manifest_changes(place: StateLocation) {
    let home = place.open().await;
    let run = home.store.begin_run("test").await.unwrap();
    let id = vpc("net");
    let first = run.save_resource(new_resource(&id, json!({"region": "fra1", "size": 1}))).await.unwrap();
    assert_eq!((first.generation, first.status.state.as_str(), first.deleting), (1, "Pending", false));
    let mut same = new_resource(&id, json!({"size": 1, "region": "fra1"}));
    same.source.file = "moved.yaml".into();
    let same = run.save_resource(same).await.unwrap();
    assert_eq!((same.generation, same.updated_at, same.created_at), (1, first.updated_at, first.created_at));
    assert_eq!((same.source.file.as_str(), same.source.document), ("moved.yaml", 2));

    run.set_deleting(&id).await.unwrap();
    assert!(home.store.resource(&id).await.unwrap().unwrap().deleting);

    let changed = run.save_resource(new_resource(&id, json!({"region": "fra1", "size": 2}))).await.unwrap();
    assert_eq!((changed.generation, changed.deleting), (2, false));
    assert!(changed.updated_at > first.updated_at);
    assert_eq!(changed.sealed_manifest().unwrap()["spec"]["size"], 2);
    assert_eq!(changed.created_at, first.created_at);

    let stored = home.store.resource(&id).await.unwrap().unwrap();
    assert_eq!((stored.generation, stored.id), (2, id.clone()));
    let elsewhere = ResourceId { env: "dev".into(), ..id.clone() };
    assert!(home.store.resource(&elsewhere).await.unwrap().is_none(), "env is a part of the identity");
    assert!(matches!(run.set_deleting(&elsewhere).await, Err(StoreError::Unknown { .. })));
}

async fn filters_narrow_by_each_part_of_the_identity(place: StateLocation) {
    let home = place.open().await;
    let run = home.store.begin_run("test").await.unwrap();
    let ids = [("CivoVpc", "a", "dev"), ("CivoVpc", "a", "prod"), ("CivoVpc", "b", "prod"), ("Account", "a", "")];
    let all = ids.map(|(kind, name, env)| ResourceId { env: env.into(), ..ResourceId::new(kind, name) });
    run.save_resources(all.iter().map(|id| new_resource(id, json!({}))).collect()).await.unwrap();
    let count = async |kind: Option<&str>, name: Option<&str>, env: Option<&str>| {
        let own = |part: Option<&str>| part.map(str::to_owned);
        let filter = Filter { kind: own(kind), name: own(name), env: own(env), org: None };
        home.store.resources(&filter).await.unwrap().len()
    };
    assert_eq!(count(None, None, None).await, 4);
    assert_eq!(count(Some("CivoVpc"), None, None).await, 3);
    assert_eq!(count(Some("CivoVpc"), Some("a"), None).await, 2);
    assert_eq!(count(None, Some("a"), Some("")).await, 1);
    assert_eq!(count(None, None, Some("none")).await, 0);

    // Byte by byte, whatever the database's language is.
    let names = ["_", "B", "Z-1", "a", "a-1", "ab", "z", "ä"];
    let of_kind = |name: &str| new_resource(&ResourceId::new("Sorted", name), json!({}));
    run.save_resources(names.iter().rev().map(|name| of_kind(name)).collect()).await.unwrap();
    let sorted = Filter { kind: Some("Sorted".into()), ..Filter::default() };
    let read: Vec<_> = home.store.resources(&sorted).await.unwrap().into_iter().map(|one| one.id.name).collect();
    let mut bytewise = names.to_vec();
    bytewise.sort();
    assert_eq!(read, bytewise);
}

async fn the_life_of_a_unit(place: StateLocation) {
    let home = place.open().await;
    let run = home.store.begin_run("test").await.unwrap();
    let id = save(&run, "net").await;

    // The intent leaves a row without id, and an open entry.
    let mut net = unit(&id, "network", "t1");
    let entry = run.intent(create(&net)).await.unwrap();
    let rows = home.store.units_of(&id).await.unwrap();
    assert_eq!((rows.len(), rows[0].id.clone(), rows[0].token.as_str()), (1, None, "t1"));
    assert_eq!(rows[0].props, net.props);
    let open = home.store.journal(Entries::Open, 10).await.unwrap();
    assert_eq!((open.len(), open[0].id, open[0].op.as_str(), open[0].unit.as_str()), (1, entry.0, "create", "network"));
    assert_eq!((&open[0].resource, open[0].fence), (&id, run.fence()));

    // Done: the row as it now stands, the entry closed.
    net.id = Some("obj-1".into());
    net.outputs = props(json!({"network_id": "obj-1"}));
    run.close(entry, Closing::Done(Some(Box::new(net.clone())))).await.unwrap();
    assert!(home.store.journal(Entries::Open, 10).await.unwrap().is_empty());
    let rows = home.store.units_by_object("obj-1").await.unwrap();
    assert_eq!((rows.len(), rows[0].resource.clone(), rows[0].outputs.clone()), (1, id.clone(), net.outputs.clone()));

    // An entry ends once.
    assert!(matches!(run.close(entry, Closing::Failed("again".into())).await, Err(RecordError::Failed(_))));

    // A failed update changes nothing but the journal; ready is written without an entry.
    let update = Intent { op: Op::Update, what: "rename".into(), unit: net.clone() };
    let entry = run.intent(update).await.unwrap();
    run.close(entry, Closing::Failed("connection reset".into())).await.unwrap();
    net.ready = true;
    net.id = None; // written by someone who did not look: a known id stays known
    run.save_unit(net.clone()).await.unwrap();
    let row = home.store.units_of(&id).await.unwrap().remove(0);
    assert_eq!((row.ready, row.id.as_deref(), row.deposed), (true, Some("obj-1"), false));

    // A refused create leaves no row, a refused update does.
    let other = unit(&id, "network", "t2");
    let entry = run.intent(create(&other)).await.unwrap();
    assert_eq!(home.store.units_of(&id).await.unwrap().len(), 2);
    run.close(entry, Closing::Refused("quota".into())).await.unwrap();
    let entry = run.intent(Intent { op: Op::Update, what: "rename".into(), unit: row.clone() }).await.unwrap();
    run.close(entry, Closing::Refused("no".into())).await.unwrap();
    assert_eq!(home.store.units_of(&id).await.unwrap().len(), 1);

    // Deleted.
    let entry = run.intent(Intent { op: Op::Delete, what: "delete".into(), unit: row }).await.unwrap();
    run.close(entry, Closing::Done(None)).await.unwrap();
    assert!(home.store.units_of(&id).await.unwrap().is_empty());
    let outcomes: Vec<_> =
        home.store.journal(Entries::All, 10).await.unwrap().into_iter().map(|entry| entry.outcome).collect();
    assert_eq!(outcomes, ["done", "refused", "refused", "failed", "done"]);

    run.status(&id, ready(json!({"network_id": "obj-1"}))).await.unwrap();
    let stored = home.store.resource(&id).await.unwrap().unwrap();
    assert_eq!(stored.status.outputs["network_id"], "obj-1");
    assert!(stored.status_at.is_some());

    run.save_unit(unit(&id, "rest", "t9")).await.unwrap();
    run.forget_resource(&id).await.unwrap();
    assert!(home.store.resource(&id).await.unwrap().is_none());
    assert!(home.store.all_units().await.unwrap().is_empty());
}

async fn history_goes_back_in_pages_and_outlives_the_resource(place: StateLocation) {
    let home = place.open().await;
    let run = home.store.begin_run("test").await.unwrap();
    let (id, other) = (save(&run, "net").await, save(&run, "other").await);
    run.event(&id, "accepted", "").await.unwrap();
    run.event(&other, "accepted", "").await.unwrap();
    let entry = run.intent(create(&unit(&id, "network", "t1"))).await.unwrap();
    run.close(entry, Closing::Failed("it rained".into())).await.unwrap();
    run.event(&id, "failed", &"x".repeat(1 << 20)).await.unwrap();
    run.forget_resource(&id).await.unwrap();

    let lines = home.store.history(&id, 2, 0).await.unwrap();
    assert_eq!(lines.len(), 2);
    assert_eq!((lines[0].what.as_str(), lines[0].change.is_none(), lines[0].detail.len()), ("failed", true, 16 << 10));
    let change = lines[1].change.as_ref().unwrap();
    assert_eq!(
        (change.op.as_str(), change.outcome.as_str(), lines[1].detail.as_str()),
        ("create", "failed", "it rained")
    );
    let rest = home.store.history(&id, 2, 1).await.unwrap();
    assert_eq!((rest.len(), rest[0].what.as_str()), (1, "accepted"));
    assert_eq!(home.store.events(100).await.unwrap().len(), 3);
}

async fn one_failing_write_in_a_group_leaves_the_others_whole(place: StateLocation) {
    let home = place.open().await;
    let run = home.store.begin_run("test").await.unwrap();
    let id = save(&run, "net").await;
    let nowhere = vpc("nowhere");
    let writes = (0..300).map(async |number| match number % 100 {
        50 => ("unknown entry", run.close(EntryId(4711), Closing::Done(None)).await),
        70 => ("unknown resource", run.save_unit(unit(&nowhere, "network", "t")).await),
        _ => ("fine", run.save_unit(unit(&id, "network", &format!("t{number}"))).await),
    });
    let (mut fine, mut failed) = (0, 0);
    for (what, result) in futures::future::join_all(writes).await {
        match (what, result) {
            ("fine", Ok(())) => fine += 1,
            ("unknown entry", Err(RecordError::Failed(text))) if text.contains("4711") => failed += 1,
            ("unknown resource", Err(RecordError::Failed(text))) if text.contains("CivoVpc/nowhere") => failed += 1,
            (what, result) => panic!("{what}: {result:?}"),
        }
    }
    assert_eq!((fine, failed), (294, 6));
    assert_eq!(home.store.units_of(&id).await.unwrap().len(), 294);
}

async fn writes_at_the_same_time_share_a_commit(place: StateLocation) {
    let home = place.open().await;
    let run = home.store.begin_run("test").await.unwrap();
    let id = vpc("net");
    let wal = || match home.place.is_sqlite() {
        true => std::fs::metadata(home.place.file().with_extension("db-wal")).unwrap().len(),
        false => 0,
    };
    let before = wal();
    let writes = (0..600).map(|number| {
        let (run, id) = (&run, &id);
        async move { run.event(id, "counted", &number.to_string()).await }
    });
    assert!(futures::future::join_all(writes).await.iter().all(Result::is_ok));
    if home.place.is_sqlite() {
        // Each commit writes every page that it changed: three for an event. Alone, 600 of them would be 7 MB.
        let grown = wal() - before;
        assert!(grown < 1 << 20, "{grown} bytes were written for 600 events");
    } else {
        let commits = home.place.number("SELECT COUNT(DISTINCT xmin::text) FROM events").await;
        assert!(commits < 60, "{commits} commits for 600 events");
    }
    assert_eq!(home.store.events(1000).await.unwrap().len(), 600);
}

async fn a_batch_of_resources_is_saved_whole_or_not_at_all(place: StateLocation) {
    let home = place.open().await;
    let run = home.store.begin_run("test").await.unwrap();
    let mut batch: Vec<_> = (0..10).map(|n| new_resource(&vpc(&format!("n{n}")), json!({}))).collect();
    batch[7].secrets.push("/spec/not/there".into());
    assert!(matches!(run.save_resources(batch).await, Err(StoreError::Corrupt { .. })));
    let mut large = new_resource(&vpc("large"), json!({"text": "x".repeat(5 << 20)}));
    assert!(matches!(refused(run.save_resource(large).await), StoreError::TooLarge { .. }));
    assert!(home.store.resources(&Filter::default()).await.unwrap().is_empty());
    large = new_resource(&vpc("large"), json!({"text": "x".repeat(1 << 20)}));
    run.save_resource(large).await.unwrap();
    assert_eq!(home.store.resources(&Filter::default()).await.unwrap().len(), 1);
}

async fn a_stale_run_is_fenced_off(place: StateLocation) {
    let home = place.open().await;
    let stale = home.store.begin_run("first").await.unwrap();
    let id = save(&stale, "net").await;
    // What a lock cannot prevent (a file system without locks, a removed lock file, a standby that took over), the fence
    // does.
    let fresh = if home.place.is_sqlite() {
        std::fs::remove_file(home.place.file().with_extension("db.lock")).unwrap();
        let fresh = home.store.begin_run("second").await.unwrap();
        assert!(fresh.fence() > stale.fence());
        Some(fresh)
    } else {
        assert_eq!(home.place.sql("UPDATE fence SET number = number + 1").await, 1);
        None
    };
    assert!(matches!(stale.event(&id, "late", "").await, Err(RecordError::Fenced)));
    assert!(matches!(stale.intent(create(&unit(&id, "network", "t1"))).await, Err(RecordError::Fenced)));
    assert!(matches!(stale.save_resource(new_resource(&id, json!({"n": 2}))).await, Err(StoreError::Fenced)));
    stale.finish().await;
    let fresh = match fresh {
        Some(fresh) => fresh,
        None => home.store.begin_run("second").await.unwrap(),
    };
    fresh.event(&id, "in time", "").await.unwrap();
    assert_eq!(home.store.events(10).await.unwrap().len(), 1);
    assert!(home.store.journal(Entries::All, 10).await.unwrap().is_empty());
    assert_eq!(home.store.resource(&id).await.unwrap().unwrap().generation, 1);
}

async fn of_many_at_once_one_may_write(place: StateLocation) {
    let home = place.open().await;
    let mut runs = Vec::new();
    for result in futures::future::join_all((0..8).map(|_| home.store.begin_run("one of many"))).await {
        match result {
            Ok(run) => runs.push(run),
            Err(error) => assert!(matches!(error, StoreError::Locked { .. }), "{error}"),
        }
    }
    assert_eq!(runs.len(), 1);
    save(&runs[0], "net").await;
}

async fn a_finished_run_frees_the_lock_and_writes_no_more(place: StateLocation) {
    let home = place.open().await;
    let first = home.store.begin_run("berth apply -f shop/").await.unwrap();
    match home.store.begin_run("second").await {
        Err(StoreError::Locked { holder, .. }) => {
            assert_eq!((holder.pid, holder.command.as_str()), (Some(std::process::id()), "berth apply -f shop/"));
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("two runs at once"),
    }
    let id = save(&first, "net").await;
    first.finish().await;
    first.finish().await;
    assert!(matches!(first.event(&id, "late", "").await, Err(RecordError::Failed(_))));
    let second = home.store.begin_run("second").await.unwrap();
    assert_eq!(second.fence(), first.fence() + 1);
}

async fn an_entry_that_a_dead_run_left_open_is_settled_by_the_next_look(place: StateLocation) {
    let home = place.open().await;
    let dead = home.store.begin_run("first").await.unwrap();
    let (id, other) = (save(&dead, "net").await, save(&dead, "other").await);
    dead.intent(create(&unit(&id, "network", "t1"))).await.unwrap();
    dead.intent(create(&unit(&other, "network", "t2"))).await.unwrap();
    dead.finish().await;

    let run = home.store.begin_run("second").await.unwrap();
    assert_eq!(home.store.journal(Entries::Open, 10).await.unwrap().len(), 2, "beginning a run settles nothing");
    run.save_unit(UnitState { id: Some("found".into()), ..unit(&id, "network", "t1") }).await.unwrap();
    let open = home.store.journal(Entries::Open, 10).await.unwrap();
    assert_eq!((open.len(), &open[0].resource), (1, &other));
    run.status(&other, ready(json!({}))).await.unwrap();
    assert!(home.store.journal(Entries::Open, 10).await.unwrap().is_empty());
    let outcomes: Vec<_> =
        home.store.journal(Entries::All, 10).await.unwrap().into_iter().map(|entry| entry.outcome).collect();
    assert_eq!(outcomes, ["interrupted", "interrupted"]);
}
