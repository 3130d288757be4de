//! What is told about what is there is so: states, counts, times, and what still has to be allowed.

use crate::project::{Project, SHOP};
use crate::support::ran::{Ran, run};
use berth_sandbox::Speed;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

const CLUSTER: &str = "CivoKubernetesCluster/shop";

#[test]
fn get_and_describe_agree_while_a_cluster_is_upgraded() {
    let project = Project::at(Speed::Times(100.0), &[("shop.yaml", SHOP)]);
    project.berth(&["apply", "-f", ".", "--yes"]).ok();
    project.write("shop.yaml", &SHOP.replace("1.30.5-k3s1", "1.31.2-k3s1"));
    let mut command = project.command(&["apply", "-f", ".", "--yes"]);
    let mut apply = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("berth runs");
    let until = Instant::now() + Duration::from_secs(30);
    while !project.berth(&["get", CLUSTER]).ok().stdout.contains("  no  ") {
        assert!(Instant::now() < until && apply.try_wait().unwrap().is_none(), "the upgrade begins");
    }
    let one = project.json(&["get", CLUSTER, "-o", "json"]);
    let described = project.berth(&["describe", CLUSTER]).ok();
    assert!(apply.try_wait().unwrap().is_none(), "it is not over");
    assert_eq!((&one["status"]["state"], &one["status"]["ready"]), (&json!("Pending"), &json!(false)), "{one}");
    assert!(described.stdout.contains("Pending") && !described.stdout.contains("state    Ready"), "{described}");
    assert!(apply.wait().unwrap().success());
    let described = project.berth(&["describe", CLUSTER]).ok();
    assert!(described.stdout.lines().any(|line| line.contains("state") && line.contains("Ready")), "{described}");

    // The history counts the whole upgrade, not the call that asked for it.
    let history = project.json(&["history", CLUSTER, "-o", "json"]);
    let upgrade = history.as_array().unwrap().iter().find(|line| {
        line["op"] == "update" && line["what"].as_str().is_some_and(|what| what.contains("kubernetes_version"))
    });
    let seconds = upgrade.unwrap_or_else(|| panic!("{history}"))["seconds"].as_f64().unwrap();
    assert!(seconds > 1.0, "an upgrade of minutes at 200 times their speed took {seconds} s");
}

#[test]
fn nodes_are_those_of_all_pools() {
    let project = Project::applied(&[("shop.yaml", SHOP)]);
    let nodes = |resource: &str| project.json(&["get", resource, "-o", "json"])["status"]["facts"]["nodes"].clone();
    assert_eq!(nodes(CLUSTER), json!(4), "three and the one for graphics");
    assert_eq!(nodes("CivoKubernetesNodePool/shop-batch"), json!(2));
    let id = project.output("civokubernetescluster/shop", "cluster_id");
    project.scale(&id, 5);
    project.berth(&["drift", "--accept"]).ok();
    assert_eq!(nodes(CLUSTER), json!(6));
    project.scale(&id, 6);
    project.berth(&["refresh"]).ok();
    assert_eq!(nodes(CLUSTER), json!(7));
}

#[test]
fn rules_that_were_changed_outside_are_accepted() {
    let firewall = "\
# Who may come in.
apiVersion: civo.berth.dev/v1
kind: CivoVpc
metadata: {name: net}
spec: {networkName: net, region: fra1}
---
apiVersion: civo.berth.dev/v1
kind: CivoFirewall
metadata: {name: web}
spec:
  name: web
  networkId: {valueFrom: {name: net}}
  inboundRules:
    # for everyone
    - {protocol: tcp, portRange: \"443\", cidrs: [0.0.0.0/0], label: https}
    - protocol: tcp
      portRange: \"80\"
  # nothing else
  tags: [web]
";
    let project = Project::applied(&[("web.yaml", firewall)]);
    let id = project.output("civofirewall/web", "firewall_id");
    let rules = |project: &Project| project.civo("GET", &format!("firewalls/{id}/rules"), None);
    let first = rules(&project).as_array().unwrap().iter().find(|rule| rule["start_port"] == "80").cloned().unwrap();
    project.civo("DELETE", &format!("firewalls/{id}/rules/{}", first["id"].as_str().unwrap()), None);
    let rule = json!({"region": "FRA1", "protocol": "udp", "start_port": "53", "end_port": "53", "cidr": ["10.0.0.0/8"],
        "direction": "egress", "action": "allow", "label": "dns"});
    project.civo("POST", &format!("firewalls/{id}/rules"), Some(rule));

    let drift = project.berth(&["drift"]).exits(2);
    let accept = drift.stdout.lines().find(|line| line.contains("keep what was found:")).expect("what to type");
    assert!(accept.ends_with("berth drift --accept CivoFirewall/web"), "{accept}");
    let accepted = project.berth(&["drift", "--accept", "CivoFirewall/web"]).ok();
    assert!(accepted.stderr.contains("accepted 1 value of 1 resource"), "{accepted}");
    let text = project.read("web.yaml");
    assert!(text.contains("portRange: \"443\"") && !text.contains("portRange: \"80\""), "{text}");
    assert!(text.contains("outboundRules:") && text.contains("10.0.0.0/8") && text.contains("label: dns"), "{text}");
    assert!(
        text.starts_with("# Who may come in.\n") && text.contains("  tags: [web]\n"),
        "the rest is as it was: {text}"
    );
    project.berth(&["drift"]).ok();
    project.berth(&["plan", "-f", ".", "--detailed-exitcode"]).ok();
    assert_eq!(rules(&project).as_array().map(Vec::len), Some(2), "nothing was changed in the cloud");
}

#[test]
fn what_was_allowed_is_not_asked_for() {
    let project = Project::applied(&[("shop.yaml", SHOP)]);
    let told = project.berth(&["plan", "-f", "."]).ok();
    assert!(!told.stdout.contains("needs"), "{told}");
    let refused = project.berth(&["delete", "-f", ".", "--yes"]).exits(1);
    assert!(refused.stderr.contains("Deleting needs --allow-delete."), "{refused}");
    let allowed = project.berth(&["delete", "-f", ".", "--yes", "--allow-delete"]).ok();
    assert!(!allowed.stderr.contains("needs --allow-delete"), "{allowed}");
}

fn simulated(project: &Project, args: &[&str]) -> Ran {
    let mut command = project.command(args);
    for name in ["CIVO_TOKEN", "CIVO_API_URL", "DIGITALOCEAN_ACCESS_TOKEN", "DIGITALOCEAN_API_URL", "BERTH_STATE"] {
        command.env_remove(name);
    }
    run(&mut command)
}

#[test]
fn estimates_are_for_the_speed_of_the_clouds() {
    let project = Project::new(&[("shop.yaml", SHOP)]);
    let typical = |args: &[&str]| -> Vec<u64> {
        let plan: Value = serde_json::from_str(&simulated(&project, args).ok().stdout).expect("JSON");
        let all = plan["resources"].as_array().expect("resources").clone();
        all.iter()
            .filter_map(|one| one["typicalSeconds"].as_u64().or_else(|| one["typical_seconds"].as_u64()))
            .collect()
    };
    let real = typical(&["plan", "-f", ".", "--sandbox", "-o", "json"]);
    assert!(real.iter().any(|seconds| *seconds > 60), "{real:?}");
    let fast = typical(&["plan", "-f", ".", "--sandbox", "--speed", "60", "-o", "json"]);
    assert!(!fast.is_empty() && fast.iter().all(|seconds| *seconds < 10), "{fast:?}");
    assert_eq!(typical(&["plan", "-f", ".", "--sandbox", "--speed", "max", "-o", "json"]), Vec::<u64>::new());
}

#[test]
fn doctor_asks_for_no_token_where_clouds_are_simulated() {
    let project = Project::new(&[]);
    let run = simulated(&project, &["doctor", "--sandbox"]).ok();
    assert!(!run.to_string().to_lowercase().contains("token"), "{run}");
    assert!(run.stdout.contains("sandbox"), "{run}");
}

/// What a command shows on a terminal where its question is answered after a while.
fn answered(project: &Project, args: &[&str], after: Duration, answer: &str) -> String {
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&near).unwrap();
    unlockpt(&near).unwrap();
    let name = ptsname(&near, Vec::new()).unwrap().into_string().unwrap();
    let far = || Stdio::from(File::options().read(true).write(true).open(&name).unwrap());
    let mut command = project.command(args);
    let mut child = command.env("TERM", "dumb").stdin(far()).stdout(far()).stderr(far()).spawn().expect("berth runs");
    drop(command);
    let mut near = File::from(near);
    let (mut text, mut part, mut asked) = (String::new(), [0; 4096], false);
    while let Ok(count @ 1..) = near.read(&mut part) {
        text.push_str(&String::from_utf8_lossy(&part[..count]));
        if !asked && text.contains("[y/N]") {
            asked = true;
            std::thread::sleep(after);
            near.write_all(answer.as_bytes()).unwrap();
        }
    }
    assert!(child.wait().unwrap().success() && asked, "{text}");
    text.replace('\r', "")
}

/// How long someone thinks is no part of how long it took.
#[test]
fn times_do_not_count_the_question() {
    let project = Project::new(&[("shop.yaml", SHOP)]);
    let thinks = Duration::from_secs(4);
    let text = answered(&project, &["apply", "-f", "."], thinks, "y\n");
    let line = text.lines().find(|line| line.contains("Ready in")).unwrap_or_else(|| panic!("{text}"));
    let seconds: u64 = line.trim().trim_end_matches('s').rsplit(' ').next().unwrap().parse().unwrap_or(99);
    assert!(seconds < thinks.as_secs(), "{line}");
}
