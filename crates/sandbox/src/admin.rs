//! `/_sandbox/…` on every cloud's port: look at the simulated cloud and break it, no token needed.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use crate::http::{Call, Reply};
use crate::registry::CloudName;
use crate::rule;
use crate::world::World;

pub const PREFIX: &str = "/_sandbox/";
const MAX_WAIT_SECONDS: f64 = 300.0;

pub async fn answer(world: &World, cloud: CloudName, call: &Call) -> Reply {
    let traffic = world.traffic(cloud);
    let what = call.path.trim_start_matches(PREFIX).trim_end_matches('/');
    match (&call.method, what) {
        (&Method::GET, "ledger") => Reply::json(200, &world.ledger(cloud)),
        (&Method::GET, "calls") => Reply::json(200, &traffic.calls()),
        (&Method::POST, "calls/reset") => {
            traffic.reset();
            Reply::json(200, &traffic.calls())
        }
        (&Method::GET, "events") => Reply::json(200, &json!({"events": traffic.events()})),
        (&Method::GET, "held") => {
            let wait = call.query("wait").and_then(|w| w.parse::<f64>().ok()).unwrap_or(0.0);
            let held = match wait.clamp(0.0, MAX_WAIT_SECONDS) {
                wait if wait > 0.0 => traffic.wait_held(Duration::from_secs_f64(wait)).await,
                _ => traffic.held(),
            };
            Reply::json(200, &json!({"held": held}))
        }
        (&Method::GET, "faults") => Reply::json(200, &faults(world)),
        (&Method::POST | &Method::PUT, "faults") => {
            let text = String::from_utf8_lossy(&call.body);
            match rule::parse_lines(&text) {
                Ok(rules) => {
                    world.faults().replace(rules);
                    Reply::json(200, &faults(world))
                }
                Err(error) => Reply::text(400, format!("{error}\n")),
            }
        }
        (&Method::DELETE, "faults") => {
            world.faults().replace(vec![]);
            Reply::json(200, &faults(world))
        }
        (&Method::GET, "clock") => Reply::json(200, &json!({"now": world.now().rfc3339()})),
        _ => Reply::text(404, "the sandbox knows ledger, calls, calls/reset, events, held, faults and clock here\n"),
    }
}

fn faults(world: &World) -> Value {
    let list = world.faults().list();
    let rules: Vec<_> = list
        .into_iter()
        .map(|(rule, matched, struck)| json!({"rule": rule, "matched": matched, "struck": struck}))
        .collect();
    json!({"faults": rules})
}
