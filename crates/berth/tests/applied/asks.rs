//! Which resources a command means, and what it may do to them.

use crate::project::{Project, SHOP};
use crate::support::ran::run;
use serde_json::json;

fn net(env: &str, more: &str) -> String {
    format!(
        "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: net, env: {env}{more}}}\nspec: {{networkName: net-{env}, region: fra1}}\n"
    )
}

fn names(project: &Project) -> Vec<String> {
    let all = project.json(&["get", "-o", "json"]);
    let name = |one: &serde_json::Value| format!("{} {}", one["metadata"]["name"], one["metadata"]["env"]);
    all.as_array().expect("a list").iter().map(|one| name(one).replace('"', "")).collect()
}

#[test]
fn an_env_narrows_down_what_is_applied_and_deleted() {
    let project = Project::new(&[("dev.yaml", &net("dev", "")), ("prod.yaml", &net("prod", ""))]);
    let none = project.berth(&["apply", "-f", ".", "--env", "qa", "--yes"]).exits(1);
    assert!(none.stderr.contains("none of these manifests is of --env qa"), "{none}");
    project.berth(&["apply", "-f", ".", "--env", "dev", "--yes"]).ok();
    assert_eq!(names(&project), ["net dev"]);

    let both = project.berth(&["apply", "-f", ".", "--yes"]).ok();
    assert!(both.stderr.contains("CivoVpc/net (dev)") && both.stderr.contains("✓ CivoVpc/net (prod)"), "{both}");
    // Whoever names one means one.
    let which = project.berth(&["delete", "civovpc/net", "--yes"]).exits(1);
    assert!(which.stderr.contains("there 2 times") && which.stderr.contains("--env dev; --env prod"), "{which}");
    let gone = project.json(&["delete", "-f", ".", "--env", "dev", "--yes", "-o", "json"]);
    assert_eq!(gone["done"], json!([{"kind": "CivoVpc", "name": "net", "env": "dev"}]));
    assert_eq!(names(&project), ["net prod"]);
    let nothing = project.json(&["delete", "-f", "dev.yaml", "--yes", "-o", "json"]);
    assert_eq!(nothing["done"], json!([]));
}

#[test]
fn protection_is_for_anything() {
    let protected = net("dev", ", annotations: {berth.dev/protect: \"true\"}");
    let project = Project::applied(&[("net.yaml", &protected)]);
    let refused = project.berth(&["delete", "civovpc/net", "--yes", "--allow-delete"]).exits(1);
    assert!(refused.stderr.contains("CivoVpc/net is protected: it may not be deleted"), "{refused}");
    project.write("net.yaml", &protected.replace("fra1", "lon1"));
    let refused = project.berth(&["apply", "-f", ".", "--yes", "--allow-replace"]).exits(1);
    assert!(refused.stderr.contains("it may not be replaced"), "{refused}");
    project.write("net.yaml", &net("dev", ""));
    project.berth(&["apply", "-f", ".", "--yes"]).ok();
    project.berth(&["delete", "civovpc/net", "--yes"]).ok();
    assert!(names(&project).is_empty());
}

#[test]
fn what_takes_something_away_says_which_flag_it_needs() {
    let project = Project::applied(&[("shop.yaml", SHOP)]);
    project.write("shop.yaml", &SHOP.replace("size: g4s.kube.medium", "size: g4s.kube.small"));
    let plan = project.berth(&["plan", "-f", "."]).ok();
    assert!(plan.stdout.contains("What is taken away needs --allow-replace."), "{plan}");
    assert!(!plan.stdout.contains("update in place"), "{plan}");
    let plan = project.json(&["plan", "-f", ".", "-o", "json"]);
    assert_eq!(plan["resources"][1]["units"][0]["unitType"], "civo.cluster", "{plan}");
    let refused = project.berth(&["delete", "-f", ".", "--yes"]).exits(1);
    assert!(refused.stderr.contains("Deleting needs --allow-delete."), "{refused}");
    assert!(refused.stderr.contains("help: look at the plan, then add --allow-delete"), "{refused}");
}

#[test]
fn one_cause_is_told_once() {
    let project = Project::new(&[("shop.yaml", SHOP)]);
    let mut command = project.command(&["plan", "-f", "shop.yaml"]);
    let output = command.env_remove("CIVO_TOKEN").output().expect("berth runs");
    let text = String::from_utf8(output.stderr).expect("text");
    assert_eq!(text.matches("CIVO_TOKEN is not set").count(), 1, "{text}");
    assert!(text.contains("  = CivoVpc/shop-net, declared in shop.yaml:2\n"), "{text}");
    assert!(text.contains("3 resources cannot be planned; nothing was changed"), "{text}");
}

/// The cure for a taken name is typed as it is printed, and cures it.
#[test]
fn a_taken_name_is_adopted_by_the_command_it_prints() {
    let first = Project::applied(&[("net.yaml", &net("dev", ""))]);
    let state = first.path().join(".berth");
    std::fs::remove_dir_all(&state).expect("the state goes");
    let taken = first.berth(&["apply", "-f", "net.yaml", "--yes"]).exits(1);
    let cure = taken.stderr.lines().find_map(|line| line.split_once("to adopt it:   berth ")).expect("a cure").1;
    first.berth(&cure.split_whitespace().collect::<Vec<_>>()).ok();
    first.berth(&["plan", "-f", "net.yaml", "--detailed-exitcode"]).ok();
}

#[test]
fn what_is_no_plan_and_no_resource_says_what_to_type() {
    let project = Project::new(&[("shop.yaml", SHOP)]);
    for (what, help) in [
        ("shop.yaml", "manifests are given with -f"),
        (".", "berth apply -f ."),
        ("shop.plan", "there is no file `shop.plan`"),
        ("civovcp/x", "did you mean `CivoVpc`?"),
    ] {
        let run = project.berth(&["apply", what]).exits(1);
        assert!(run.stderr.contains(help), "{run}");
    }
}

#[test]
fn a_stack_input_brings_the_credentials_that_it_names() {
    let input = "\
target:
  apiVersion: civo.project-planton.org/v1
  kind: CivoVpc
  metadata: {name: net}
  spec: {networkName: net, region: fra1, civoCredentialId: main}
civoCredential: {apiToken: from-the-file}
";
    let project = Project::new(&[("stack.yaml", input)]);
    let mut command = project.command(&["apply", "--stack-input", "stack.yaml", "--yes"]);
    let run = run(command.env_remove("CIVO_TOKEN")).ok();
    assert!(run.stderr.contains("1 resource Ready"), "{run}");
}

#[test]
fn an_org_that_differs_is_named() {
    let cluster =
        SHOP.split("---").nth(1).expect("the cluster").replace("  name: shop\n", "  name: shop\n  org: acme\n");
    let net =
        SHOP.split("---").next().expect("the network").replace("  name: shop-net\n", "  name: shop-net\n  org: shop\n");
    let project = Project::new(&[("net.yaml", &net), ("cluster.yaml", &cluster)]);
    let refused = project.berth(&["validate", "-f", "."]).exits(1);
    assert!(refused.stderr.contains("nothing named `shop-net` of kind CivoVpc in org acme"), "{refused}");
    assert!(refused.stderr.contains("CivoVpc/shop-net in org shop"), "{refused}");
}
