//! An account that allows only so much at once gets no more than that.

use crate::harness::{Cloud, Project};
use berth_sandbox::{Config, Speed};

const ACCOUNT: &str = "apiVersion: byoc.berth.dev/v1\nkind: Account\nmetadata: {name: small}\nspec:\n  provider: civo\n  maxConcurrentTasks: 1\n  civo: {token: {fromEnv: CIVO_TOKEN}}\n";

#[test]
fn an_account_with_a_limit_is_worked_on_one_resource_at_a_time() {
    // Each network takes real time, so that work at once would be faster than one after the other.
    let cloud = Cloud::start(Config { speed: Speed::Times(20.0), ..Config::default() });
    let networks: String = (0..4)
        .map(|i| format!("---\napiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: n{i}}}\nspec: {{networkName: n{i}, region: fra1}}\n"))
        .collect();
    let free = Project::with(&[("all.yaml", networks.trim_start_matches("---\n"))]);
    let at_once = free.berth(&cloud, &["apply", "-f", "all.yaml", "--yes"]);
    assert_eq!(at_once.code, Some(0), "{at_once}");
    assert_eq!(free.berth(&cloud, &["delete", "-f", "all.yaml", "--yes"]).code, Some(0));

    let limited = Project::with(&[("all.yaml", &format!("{ACCOUNT}{networks}"))]);
    let in_turn = limited.berth(&cloud, &["apply", "-f", "all.yaml", "--yes"]);
    assert_eq!(in_turn.code, Some(0), "{in_turn}");
    // Four times five to ten simulated seconds, against the longest of them.
    assert!(
        in_turn.took > at_once.took + at_once.took / 2,
        "one after the other took {:?}, all at once {:?}\n{in_turn}",
        in_turn.took,
        at_once.took
    );
}
