//! Accounts: whose they are, which one is meant, and how much at once they allow.

use crate::harness::Project;
use crate::support::cloud::Cloud;
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

fn account(name: &str, place: &str, token: &str) -> String {
    format!(
        "---\napiVersion: byoc.berth.dev/v1\nkind: Account\nmetadata: {{name: {name}{place}}}\nspec: {{provider: civo, civo: {{token: {{value: {token}}}}}}}\n"
    )
}

#[test]
fn applying_an_account_asks_who_it_belongs_to() {
    let cloud = Cloud::start(Config { speed: Speed::Instant, token: Some("the-good-one".into()), ..Config::default() });
    let project = Project::with(&[
        ("bad.yaml", &account("main", "", "a-bad-one")),
        ("good.yaml", &account("main", "", "the-good-one")),
    ]);
    let refused = project.berth(&cloud, &["apply", "-f", "bad.yaml", "--yes"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.to_string().contains("check the token"), "{refused}");
    assert_eq!(project.berth(&cloud, &["apply", "-f", "good.yaml", "--yes"]).code, Some(0));
    let identity = project.berth(&cloud, &["outputs", "account/main", "identity"]);
    assert!(identity.code == Some(0) && identity.to_string().contains('@'), "{identity}");
}

#[test]
fn accounts_of_an_org_and_of_an_env_are_not_taken_for_each_other() {
    let cloud = Cloud::start(Config { speed: Speed::Instant, token: Some("the-good-one".into()), ..Config::default() });
    let network = "---\napiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {name: net, env: a}\nspec: {account: b, networkName: net, region: fra1}\n";
    let both =
        format!("{}{}{network}", account("b", ", org: a", "a-bad-one"), account("b", ", env: a", "the-good-one"));
    let project = Project::with(&[("all.yaml", both.trim_start_matches("---\n"))]);
    // Whichever of the two is met first, the network's own env decides.
    for _ in 0..6 {
        let plan = project.berth(&cloud, &["plan", "-f", "all.yaml"]);
        assert_eq!(plan.code, Some(0), "{plan}");
    }
}
