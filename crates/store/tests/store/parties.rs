//! Who people and tokens are: identities, and logins that are used once.

use crate::fixtures::{actor, applying, at, control, desired, leased, note, planned};
use crate::*;
use berth_store::*;

on_both! {
    nobody_approves_their_own_change_by_another_name,
    a_login_is_used_once_by_all_servers,
}

/// Names are for people: who someone is, and whether somebody else approves, is told by their identity.
async fn nobody_approves_their_own_change_by_another_name(place: StateLocation) {
    let control = control(&place).await;
    let (id, held) = leased(&control, "net", "w1", at(0)).await;
    let person = |name: &str, subject: &str| {
        let id = format!("https://id.example.com#{subject}");
        Actor { name: name.into(), owner: id.clone(), id }
    };
    let approve = |actor: Actor| {
        let (control, id) = (control.clone(), id.clone());
        async move { control.approve(&id, "d", &actor, note("approve"), at(3)).await }
    };
    let again =
        || Apply { actor: person("oidc:alice", "1"), ..applying(vec![desired(&id, json!({"region": "fra1"}))]) };
    // As the version before left it: whoever applies it again is its author.
    place.sql("UPDATE resources SET applied_id = ''").await;
    control.apply(again(), at(1)).await.unwrap();
    control.submit_plan(&held, planned("{}", "d"), PlanDecision::AwaitApproval, at(2)).await.unwrap();
    let other_name = approve(person("oidc:bob", "1")).await;
    assert!(matches!(other_name, Err(ControlError::OwnChange { .. })), "{other_name:?}");
    // A token that the person made is the person's.
    let theirs = Actor { name: "token:ci".into(), id: "token:7".into(), owner: person("", "1").owner };
    assert!(matches!(approve(theirs).await, Err(ControlError::OwnChange { .. })));
    // Known by name alone, as the version before left it: nobody can be told to be somebody else.
    place.sql("UPDATE resources SET applied_id = ''").await;
    for actor in [person("oidc:alice", "1"), person("oidc:bob", "2")] {
        assert!(matches!(approve(actor).await, Err(ControlError::UnknownAuthor { .. })));
    }
    control.apply(again(), at(2)).await.unwrap();
    approve(person("oidc:alice", "2")).await.expect("a namesake is somebody else");
    let meta = control.meta(std::slice::from_ref(&id)).await.unwrap().remove(0);
    assert_eq!((meta.approved_by.as_str(), meta.approved_id.as_str()), ("oidc:alice", "https://id.example.com#2"));
    let entries = control.audit_entries(&AuditQuery { limit: 1, ..AuditQuery::default() }).await.unwrap();
    assert_eq!((entries[0].actor.as_str(), entries[0].actor_id.as_str()), ("oidc:alice", "https://id.example.com#2"));
    let by_id = AuditQuery { actor: Some("https://id.example.com#2".into()), limit: 10, ..AuditQuery::default() };
    assert_eq!(control.audit_entries(&by_id).await.unwrap().len(), 1);
    assert!(control.verify_audit().await.unwrap().whole);
    place
        .sql("UPDATE audit SET actor_id = 'https://id.example.com#3' WHERE actor_id = 'https://id.example.com#2'")
        .await;
    assert!(!control.verify_audit().await.unwrap().whole, "who it was is part of the chain");
}

async fn a_login_is_used_once_by_all_servers(place: StateLocation) {
    let control = control(&place).await;
    let log_in = |id: &str, byte: u8, until: i64, now: i64| {
        let login = Some(UsedOnce { hash: [9; 32], expires_at: at(until) });
        let token = NewToken { id: id.into(), hash: [byte; 32], role: "viewer".into(), login, ..NewToken::default() };
        let control = control.clone();
        async move { control.create_token(token, &actor(), note("login"), at(now)).await }
    };
    log_in("t1", 1, 50, 0).await.unwrap();
    assert!(matches!(log_in("t2", 2, 50, 1).await, Err(ControlError::UsedLogin)));
    assert_eq!(control.token("t2").await.unwrap(), None, "no token comes of it");
    // What has expired is refused for that, and need not be remembered.
    log_in("t3", 3, 150, 51).await.unwrap();
    assert_eq!(place.number("SELECT COUNT(*) FROM logins").await, 1);
}
