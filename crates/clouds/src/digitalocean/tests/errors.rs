//! What DigitalOcean's refusals mean, and what a user is told.

use crate::digitalocean::errors::{DigitalOceanErrors, cluster_overdue, pool_overdue, taken};
use crate::http::{Dialect, Refusal};
use berth_engine::handler::Class;
use berth_engine::unit::WaitFor;
use serde_json::json;

fn class(status: u16, words: &str) -> Option<Class> {
    DigitalOceanErrors.class(&Refusal { status, code: String::new(), words: words.into(), change: true })
}

#[test]
fn refusals_have_a_meaning() {
    let again = Some(Class::Retry { after: None });
    assert_eq!(class(403, "Can not delete VPC with members"), again);
    assert_eq!(class(403, "Can not delete default VPC"), Some(Class::Refused));
    assert_eq!(class(403, "You are not authorized to perform this operation"), None);
    assert_eq!(class(403, "you have reached your droplet limit"), Some(Class::Quota));
    assert_eq!(class(422, "a cluster with this name already exists"), Some(Class::Taken { id: None }));
    assert_eq!(class(422, "This action would exceed your account's droplet limit"), Some(Class::Quota));
    assert_eq!(class(422, "size is invalid"), None);
    assert_eq!(class(412, "cluster is not in a state to do this"), again);
    assert_eq!(DigitalOceanErrors.read(br#"{"id":"not_found","message":"gone"}"#), ("not_found".into(), "gone".into()));
    assert_eq!(DigitalOceanErrors.read(b"<html>"), (String::new(), String::new()));
}

#[test]
fn a_taken_name_tells_whose_it_is() {
    let trouble = taken("cluster", "blog-k8s", Some("id-1".into()));
    assert_eq!(trouble.to_string(), "DigitalOcean already has a cluster named `blog-k8s`, not managed by Berth");
    assert_eq!(trouble.class, Class::Taken { id: Some("id-1".into()) });
}

#[test]
fn each_long_wait_says_what_to_check() {
    insta::assert_yaml_snapshot!(
        "overdue",
        json!({
            "stuck": cluster_overdue("c-1", WaitFor::Work),
            "refused": cluster_overdue("c-1", WaitFor::Access),
            "nodes": cluster_overdue("c-1", WaitFor::Parts),
            "pool": pool_overdue("p-1"),
        })
    );
}
