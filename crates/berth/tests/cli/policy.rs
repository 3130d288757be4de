//! `berth policy test`: wrong input first, then what passes and what does not.

use crate::shop::CLUSTER;
use crate::shows;
use crate::support::folder::Folder;

const POLICIES: &str = "\
apiVersion: berth.dev/v1
kind: Policy
metadata:
  name: no-friday-deletes
spec:
  rule: action == 'delete' && now.getDayOfWeek() == 5
  effect: deny
  message: nothing is deleted on Fridays
---
apiVersion: berth.dev/v1
kind: Policy
metadata:
  name: large
spec:
  rule: spec.defaultNodePool.nodeCount > 2
  effect: warn
  message: more than two nodes
  kinds: [CivoKubernetesCluster]
";

const TESTS: &str = "\
kind: PolicyTest
cases:
  - name: a network goes on a Thursday
    resource: &net
      apiVersion: civo.berth.dev/v1
      kind: CivoVpc
      metadata: {name: net}
      spec: {networkName: net, region: fra1}
    action: delete
    expect: allow
  - name: and not on a Friday
    resource: *net
    action: delete
    now: 2026-11-13T12:00:00Z
    expect: deny
    policy: no-friday-deletes
    message: on Fridays
";

fn project(tests: &str) -> Folder {
    Folder::with(&[("policies/all.yaml", POLICIES), ("tests.yaml", tests), ("cluster.yaml", CLUSTER)])
}

fn test(tests: &str) -> crate::support::ran::Ran {
    project(tests).berth(&["policy", "test", "-f", "policies/", "tests.yaml"])
}

#[test]
fn policy_wrong_input() {
    shows!("policy_no_files", project(TESTS).berth(&["policy", "test"]));
    shows!("policy_no_policies", project(TESTS).berth(&["policy", "test", "-f", "cluster.yaml", "tests.yaml"]));
    shows!("policy_no_such_tests", project(TESTS).berth(&["policy", "test", "-f", "policies/", "nothing.yaml"]));
    shows!("policy_not_tests", project(CLUSTER).berth(&["policy", "test", "-f", "policies/", "tests.yaml"]));
    shows!("policy_bad_plan", project(TESTS).berth(&["policy", "test", "-f", "policies/", "--plan", "tests.yaml"]));
    shows!("policy_nothing_to_judge", project(TESTS).berth(&["policy", "test", "-f", "policies/"]));
}

#[test]
fn policy_bad_cases() {
    let bad = "\
kind: PolicyTest
casses: []
cases:
  - resource:
      apiVersion: civo.berth.dev/v1
      kind: CivoVpc
      metadata: {name: net}
      spec: {networkName: net, region: fra9}
    action: destroy
    expct: deny
    old: {regin: fra1}
  - expect: maybe
    units: [{kee: x, op: make}]
  - just words
";
    shows!("policy_bad_cases", test(bad).exits(1));
    shows!("policy_bad_time", test(&TESTS.replace("2026-11-13T12:00:00Z", "friday")).exits(1));
    let rule = project(TESTS);
    rule.write("policies/all.yaml", &POLICIES.replace("action ==", "acton =="));
    shows!("policy_bad_rule", rule.berth(&["policy", "test", "-f", "policies/", "tests.yaml"]).exits(1));
}

#[test]
fn policy_passes_and_fails() {
    shows!("policy_passes", test(TESTS).ok());
    let wrong = TESTS.replace("expect: allow", "expect: warn").replace("on Fridays", "on Sundays");
    shows!("policy_fails", test(&wrong).exits(1));
    shows!(
        "policy_fails_json",
        project(&wrong).berth(&["policy", "test", "-f", "policies/", "tests.yaml", "-o", "json"]).exits(1)
    );
}

#[test]
fn policy_judges_manifests() {
    let project = project(TESTS);
    let judged = ["policy", "test", "-f", "policies/", "-f", "cluster.yaml", "--now", "2026-11-13T12:00:00Z"];
    shows!("policy_judges", project.berth(&judged).ok());
    let plan = r#"{"resources": [{"id": {"kind": "CivoKubernetesCluster", "name": "shop"}, "action": "delete",
        "units": [{"key": "cluster", "unitType": "civo.cluster", "op": "delete"}]}]}"#;
    project.write("plan.json", plan);
    shows!("policy_judges_plan", project.berth(&[&judged[..], &["--plan", "plan.json"]].concat()).exits(1));
    project.write("other.json", &plan.replace("shop", "other"));
    shows!("policy_judges_other", project.berth(&[&judged[..], &["--plan", "other.json"]].concat()).exits(1));
}

/// The examples' tests pass, and say of every example policy both that it holds and that it does not.
#[test]
fn example_policies_are_tested() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let (policies, tests) = (format!("{examples}/policies"), format!("{examples}/policies.test.yaml"));
    let run = Folder::new().berth(&["policy", "test", "-f", &policies, &tests, "-o", "json"]).ok();
    let told: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let said: Vec<&str> = told["cases"].as_array().unwrap().iter().filter_map(|case| case["got"].as_str()).collect();
    assert_eq!((said.len(), &told["failed"]), (9, &serde_json::json!(0)), "{run}");
    for outcome in ["allow", "deny", "warn"] {
        assert!(said.contains(&outcome), "{run}");
    }
}
