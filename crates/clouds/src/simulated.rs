//! A sandbox with a connection to one of its clouds, for tests.

use crate::{Credentials, connect};
use berth_engine::handler::Provider;
use berth_sandbox::{Config, Sandbox, Speed};
use std::sync::Arc;

pub async fn start(cloud: berth_sandbox::CloudName, speed: Speed) -> (Sandbox, Arc<dyn Provider>) {
    let sandbox = Sandbox::start(Config { speed, ..Config::default() }).await.unwrap();
    let mut credentials = Credentials::new(cloud.to_string(), "any-token");
    credentials.api_url = Some(sandbox.url(cloud));
    let cloud = connect(&credentials).unwrap();
    (sandbox, cloud)
}

/// Lets calls fail by this rule, or by none where it is empty.
pub fn fail(sandbox: &Sandbox, rule: &str) {
    let rules = if rule.is_empty() { vec![] } else { vec![rule.parse().unwrap()] };
    sandbox.world().faults().replace(rules);
}
