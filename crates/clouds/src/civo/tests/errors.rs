//! What Civo's refusals mean.

use crate::civo::errors::CivoErrors;
use crate::http::{Dialect, Refusal};
use berth_engine::handler::Class;

fn class(status: u16, code: &str, change: bool) -> Option<Class> {
    CivoErrors.class(&Refusal { status, code: code.into(), words: String::new(), change })
}

#[test]
fn codes_decide_before_the_status_does() {
    assert_eq!(class(404, "database_account_not_found", false), Some(Class::Unauthorized));
    assert_eq!(class(500, "database_kubernetes_cluster_not_found", true), Some(Class::NotFound));
    assert_eq!(class(400, "database_kubernetes_cluster_duplicate", true), Some(Class::Taken { id: None }));
    assert_eq!(class(409, "database_duplicate_cluster_name_not_allowed", true), Some(Class::Taken { id: None }));
    assert_eq!(class(403, "quota_limit_reached", true), Some(Class::Quota));
    assert_eq!(class(404, "database_size_not_found", true), Some(Class::Refused));
    assert_eq!(class(500, "something_new", true), None);
    assert_eq!(class(404, "", false), Some(Class::Refused));
}

#[test]
fn words_join_reason_and_details() {
    let body = br#"{"code":"quota_limit_reached","reason":"Too many","details":"instances\nips"}"#;
    assert_eq!(CivoErrors.read(body), ("quota_limit_reached".into(), "Too many, instances ips".into()));
    assert_eq!(CivoErrors.read(b"<html>"), (String::new(), String::new()));
}
