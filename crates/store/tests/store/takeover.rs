//! From the schema before: what was in it is there, and servers can take it over.

use crate::fixtures::*;
use crate::*;
use berth_store::*;
use jiff::Timestamp;
use secrecy::ExposeSecret;

on_both! { a_state_of_the_first_schema_is_taken_over, }

const SQLITE: &str = include_str!("../../migrations/sqlite/0001_first.sql");
const POSTGRES: &str = include_str!("../../migrations/postgres/0001_first.sql");

/// Rows as the first schema's berth wrote them. The sealed text was made by it, with the tests' key.
const ROWS: &str = include_str!("fixtures/schema-1-running.sql");

async fn a_state_of_the_first_schema_is_taken_over(place: StateLocation) {
    let marks = match place.is_sqlite() {
        true => {
            std::fs::create_dir(place.file().parent().unwrap()).unwrap();
            std::fs::File::create_new(place.file()).unwrap();
            "PRAGMA application_id = 1114797160; PRAGMA user_version = 1"
        }
        false => "CREATE TABLE berth_schema (version BIGINT NOT NULL); INSERT INTO berth_schema (version) VALUES (1)",
    };
    place.sql(if place.is_sqlite() { SQLITE } else { POSTGRES }).await;
    place.sql(ROWS).await;
    place.sql(marks).await;

    let store = open(&place.address).await;
    let id = ResourceId { kind: "CivoVpc".into(), name: "net".into(), org: "acme".into(), env: "prod".into() };
    let stored = store.resource(&id).await.unwrap().expect("it was there before");
    assert_eq!((stored.generation, stored.status.state.as_str()), (3, "Ready"));
    assert!(stored.settled());
    assert_eq!(stored.status.outputs["network_id"], "object-1");
    assert_eq!(stored.updated_at, Timestamp::from_microsecond(1_700_000_000_000_003).unwrap());
    assert_eq!(store.status_secrets(&id).await.unwrap()["kubeconfig"].expose_secret(), "hush");
    let units = store.units_of(&id).await.unwrap();
    assert_eq!((units.len(), units[0].id.as_deref()), (1, Some("object-1")));
    assert_eq!(store.journal(Entries::All, 10).await.unwrap().len(), 2);
    let events = store.events(10).await.unwrap();
    assert_eq!((events.len(), events[0].what.as_str(), events[0].task.as_str()), (1, "imported", ""));
    assert_eq!(place.number("SELECT number FROM fence").await, 41);

    let control = Control::open(store).await.unwrap();
    assert!(control.due(at(0), 10).await.unwrap().is_empty(), "what is ready rests");
    let meta = control.meta(std::slice::from_ref(&id)).await.unwrap().remove(0);
    assert!(meta.labels.is_empty() && meta.due_at.is_none() && meta.plan.is_empty());
    let applied = control.apply(applying(vec![desired(&id, json!({"region": "lon1"}))]), at(0)).await.unwrap();
    assert_eq!((applied[0].generation, applied[0].result), (4, AppliedResult::Updated));
    let before = control.revision(&id, 3).await.unwrap().expect("the generation before");
    assert_eq!(before.sealed_manifest().unwrap()["spec"]["region"], "fra1");
    enqueue_due(&control, at(0)).await;
    let leased = control.lease(ask("w1", 1), at(1)).await.unwrap();
    assert_eq!(leased[0].held.fence, 42, "numbers go on from where runs left them");
    assert!(control.last_event().await.unwrap() > events[0].id);
}
