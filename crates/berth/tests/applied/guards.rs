//! Environments and policies without a server: stored as resources, and policies hold.

use crate::project::Project;
use serde_json::json;

const GUARDS: &str = "\
apiVersion: berth.dev/v1
kind: Environment
metadata: {name: prod}
spec: {protected: true, drift: {schedule: 1h}}
---
apiVersion: berth.dev/v1
kind: Policy
metadata: {name: no-london}
spec:
  rule: action != 'delete' && spec.region.startsWith('lon')
  effect: deny
  message: nothing is made in London
---
apiVersion: berth.dev/v1
kind: Policy
metadata: {name: owned}
spec:
  rule: \"!has(resource.labels.team)\"
  effect: warn
  message: whose is it? set the label team
";

fn net(region: &str) -> String {
    format!(
        "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: net, env: prod}}\nspec: {{networkName: net, region: {region}}}\n"
    )
}

#[test]
fn policies_hold_on_a_laptop_too() {
    let project = Project::new(&[("guards.yaml", GUARDS), ("net.yaml", &net("lon1"))]);
    // One that is applied with what it is about holds already, and then nothing at all is stored.
    let refused = project.berth(&["apply", "-f", ".", "--yes"]).exits(1);
    assert!(
        refused.stderr.contains("policy no-london denies it: nothing is made in London; nothing was changed"),
        "{refused}"
    );
    assert_eq!(project.json(&["get", "-o", "json"]), json!([]));

    let applied = project.berth(&["apply", "-f", "guards.yaml", "--yes"]).ok();
    assert!(applied.stderr.contains("note: Environment/prod is protected"), "{applied}");
    assert!(applied.stderr.contains("3 resources Ready"), "{applied}");
    let again = project.berth(&["apply", "-f", "guards.yaml", "--yes"]).ok();
    assert!(again.stderr.contains("nothing to do"), "{again}");

    project.berth(&["apply", "-f", "net.yaml", "--yes"]).exits(1);
    let plan = project.berth(&["plan", "-f", "net.yaml", "--out", "net.plan"]).exits(1);
    assert!(plan.stderr.contains("denied: CivoVpc/net: policy no-london denies it"), "{plan}");
    assert!(plan.stderr.contains("apply would refuse this") && !plan.stderr.contains("berth apply"), "{plan}");
    project.write("net.yaml", &net("fra1"));
    let warned = project.berth(&["apply", "-f", "net.yaml", "--yes"]).ok();
    assert!(warned.stderr.contains("warning: CivoVpc/net: policy owned warns: whose is it?"), "{warned}");

    // Guards can be changed and taken away, whatever they say.
    project.write("guards.yaml", &GUARDS.replace("action != 'delete' && spec.region.startsWith('lon')", "1 == 1"));
    project.berth(&["apply", "-f", "guards.yaml", "--yes"]).ok();
    let refused = project.berth(&["delete", "civovpc/net", "--yes"]).exits(1);
    assert!(refused.stderr.contains("policy no-london denies it"), "{refused}");
    project.berth(&["delete", "-f", "guards.yaml", "--yes"]).ok();
    project.berth(&["delete", "civovpc/net", "--yes"]).ok();
    assert_eq!(project.json(&["get", "-o", "json"]), json!([]));
}

#[test]
fn a_plan_tells_about_protection() {
    let kept =
        |region: &str| net(region).replace("env: prod}", "env: prod, annotations: {berth.dev/protect: \"true\"}}");
    let project = Project::applied(&[("net.yaml", &kept("fra1"))]);
    project.write("net.yaml", &kept("nyc1"));
    let plan = project.berth(&["plan", "-f", "net.yaml"]).exits(1);
    assert!(plan.stderr.contains("CivoVpc/net is protected: it may not be replaced"), "{plan}");
    assert!(plan.stderr.contains("berth.dev/protect"), "{plan}");
}
