//! What a server is asked for: pages of resources, their revisions, and who a token belongs to, on both databases.

use crate::fixtures::*;
use crate::*;
use berth_store::*;

on_both! {
    lists_are_paged_and_selected,
    revisions_are_kept_and_bounded,
    tokens_are_found_by_hash_until_revoked,
}

async fn lists_are_paged_and_selected(place: StateLocation) {
    let control = control(&place).await;
    let resources = (0..25).map(|n| {
        let mut one = desired(
            &vpc(&format!("net-{n:02}")),
            json!({"region": if n % 2 == 0 { "fra1" } else { "lon1" }, "big": n > 20}),
        );
        one.labels.insert("n".into(), format!("{}", n % 5));
        if n == 7 {
            one.labels.insert("berth.dev/\"odd\"".into(), "x".into());
            one.labels.insert("berth.dev/odd".into(), "y".into());
        }
        one
    });
    control.apply(applying(resources.collect()), at(0)).await.unwrap();
    let mut other = desired(&ResourceId { org: "other".into(), ..vpc("net-99") }, json!({}));
    other.ready = true;
    control.apply(applying(vec![other]), at(0)).await.unwrap();
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let query = ListQuery { after, limit: 10, ..ListQuery::default() };
        let page = control.list(&query).await.unwrap();
        all.extend(page.resources.into_iter().map(|one| one.resource.id.name));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(all.len(), 26);
    assert!(all.is_sorted());
    let count = async |labels: &str, fields: &str| {
        let labels = LabelTerm::parse(labels).unwrap();
        let fields = FieldTerm::parse(fields).unwrap();
        let query = ListQuery { labels, fields, limit: 100, ..ListQuery::default() };
        control.list(&query).await.unwrap().resources.len()
    };
    assert_eq!(count("n=3", "").await, 5);
    assert_eq!(count("n=3,team=shop", "spec.region=lon1").await, 3);
    assert_eq!(count("n!=3", "").await, 21, "also those without");
    assert_eq!(count("n", "").await, 25);
    assert_eq!(count("!n", "").await, 1);
    assert_eq!(count("berth.dev/odd=y", "").await, 1);
    assert_eq!(count("", "spec.region!=fra1").await, 13);
    assert_eq!(count("", "spec.big=true").await, 4);
    assert_eq!(count("", "state=Ready").await, 1);
    assert_eq!(count("", "deleting=true").await, 0);
    assert_eq!(count("", "drifted=false,deleting!=true").await, 26);
    assert_eq!(count("", "metadata.name=net-04").await, 1);
    assert!(FieldTerm::parse("digest=x").is_err() && FieldTerm::parse("state").is_err());
    assert!(LabelTerm::parse("a'b=c").is_err());
    let scoped = ListQuery { scope_org: Some("other".into()), limit: 10, ..ListQuery::default() };
    let listed = control.list(&scoped).await.unwrap();
    assert_eq!((listed.resources.len(), listed.resources[0].resource.id.name.as_str()), (1, "net-99"));
    assert_eq!(listed.resources[0].meta.labels["team"], "shop");
}

async fn revisions_are_kept_and_bounded(place: StateLocation) {
    let control = control(&place).await;
    let id = vpc("net");
    for n in 1..=25 {
        control.apply(applying(vec![desired(&id, json!({ "n": n }))]), at(n)).await.unwrap();
    }
    let n = async |generation| {
        let found = control.revision(&id, generation).await.unwrap()?;
        assert_eq!((found.at, found.applied_by.as_str()), (at(generation), "token:test"));
        found.sealed_manifest().unwrap()["spec"]["n"].as_i64()
    };
    assert_eq!((n(25).await, n(24).await, n(6).await, n(5).await), (Some(25), Some(24), Some(6), Some(5)));
    assert_eq!((n(4).await, n(26).await), (None, None));
    assert_eq!(place.number("SELECT COUNT(*) FROM revisions").await, REVISIONS_KEPT);
}

async fn tokens_are_found_by_hash_until_revoked(place: StateLocation) {
    let control = control(&place).await;
    let token = |id: &str, byte: u8| NewToken {
        id: id.into(),
        name: "ci".into(),
        hash: [byte; 32],
        role: "operator".into(),
        org: "acme".into(),
        env: "prod".into(),
        expires_at: Some(at(100)),
        ..NewToken::default()
    };
    let made = control.create_token(token("t1", 1), &actor(), note("create token"), at(0)).await.unwrap();
    assert_eq!((made.created_by.as_str(), made.created_at, made.expires_at), ("token:test", at(0), Some(at(100))));
    assert_eq!(control.token_by_hash(&[1; 32]).await.unwrap(), Some(made.clone()));
    assert_eq!(control.token_by_hash(&[2; 32]).await.unwrap(), None);
    let same = control.create_token(token("t2", 1), &actor(), note("create token"), at(0)).await;
    assert!(matches!(same, Err(ControlError::Refused(_))));
    control.create_token(token("t2", 2), &actor(), note("create token"), at(0)).await.unwrap();
    let ids = async |after: &str| {
        control.tokens(after, 1).await.unwrap().into_iter().map(|token| token.id).collect::<Vec<_>>()
    };
    assert_eq!((ids("").await, ids("t1").await, ids("t2").await), (vec!["t1".into()], vec!["t2".into()], vec![]));
    for (seconds, used) in [(10, 10), (40, 10), (70, 70)] {
        control.touch_tokens(vec![("t1".into(), at(seconds))]).await.unwrap();
        assert_eq!(control.token_by_hash(&[1; 32]).await.unwrap().unwrap().used_at, Some(at(used)));
    }
    let revoked = control.revoke_token("t1", &actor(), note("revoke token"), at(5)).await.unwrap();
    assert_eq!(revoked.revoked_at, Some(at(5)));
    let again = control.revoke_token("t1", &actor(), note("revoke token"), at(9)).await.unwrap();
    assert_eq!(again.revoked_at, Some(at(5)));
    let nobody = control.revoke_token("nobody", &actor(), note("revoke token"), at(9)).await;
    assert!(matches!(nobody, Err(ControlError::NotFound(_))));
}
