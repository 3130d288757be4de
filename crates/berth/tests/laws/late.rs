//! Calls that are acted on after their caller was told that they failed, and lists that are behind: nothing is made twice, and
//! what was made twice in spite of all is told, and goes with its resource.

use crate::declared::manifests;
use crate::harness::{Project, many, whole};
use crate::kill::{Ready, prepare};
use crate::kill_cases::{CIVO, DIGITALOCEAN, civo, digitalocean, net, vpc};
use crate::support::cloud::Cloud;
use crate::support::{LONGEST, until};
use berth_sandbox::{Config, Speed};
use serde_json::json;
use std::time::Instant;

/// How late and how far behind, for the kills: longer than a command needs to start and look.
const LATE: &str = "late=700ms";
const LAG: &str = "lag=1500ms";
/// Every so many kill points are tried unless all are asked for.
const SAMPLE: usize = 7;
/// Most of the time is spent waiting.
const AT_ONCE: usize = 12;

fn blog() -> String {
    format!("{}---\n{}", vpc("fra1", ""), DIGITALOCEAN.text())
}

/// The network is there, the cluster is not.
fn with_network(cloud: &Cloud) -> Project {
    let project = Project::with(&[("net.yaml", &vpc("fra1", "")), ("blog.yaml", &blog())]);
    project.berth(cloud, &["apply", "-f", "net.yaml", "--yes"]).ok();
    project
}

#[test]
fn a_cluster_whose_create_was_not_answered_is_made_once() {
    let days: Vec<(String, &[&str])> = vec![
        ("answer lost, list behind".into(), &["lag=2s", "POST /v2/kubernetes/clusters drop-after nth=1"]),
        ("acted on 0.3 s after a 504".into(), &["POST /v2/kubernetes/clusters late=300ms nth=1"]),
        ("acted on late, list behind".into(), &["lag=4s", "POST /v2/kubernetes/clusters late=3s nth=1"]),
    ];
    many(days.len(), days, |_, faults| {
        let cloud = Cloud::instant();
        let project = with_network(&cloud);
        cloud.faults(faults);
        project.berth(&cloud, &["apply", "-f", "blog.yaml", "--yes"]).ok();
        until("what is late to be acted on", || cloud.late() == 0);
        cloud.faults(&[]);
        cloud.holds(&manifests(&blog()));
        let plan = project.berth(&cloud, &["plan", "-f", "blog.yaml", "--detailed-exitcode"]).ok();
        assert!(!plan.stdout.contains("made twice"), "{plan}");
        project.berth(&cloud, &["drift"]).ok();
        project.berth(&cloud, &["delete", "-f", "blog.yaml", "--yes", "--allow-delete"]).ok();
        cloud.is_empty();
    });
}

/// The token is on what DigitalOcean would make twice, survives a change of tags, and is nobody's business else.
#[test]
fn the_token_is_a_tag_that_is_no_drift_and_is_not_imported() {
    let cloud = Cloud::instant();
    let text = format!("{}  tags: [one]\n", blog());
    let project = with_network(&cloud);
    project.write("blog.yaml", &text);
    project.berth(&cloud, &["apply", "-f", "blog.yaml", "--yes"]).ok();
    let tags = || {
        let cluster = cloud.objects("digitalocean.cluster").remove(0);
        cluster["tags"].as_array().cloned().unwrap_or_default()
    };
    let token = |tags: &[serde_json::Value]| {
        let own = tags.iter().filter_map(|tag| tag.as_str()).find(|tag| tag.starts_with("terraform:berth-token:"));
        own.unwrap_or_else(|| panic!("no token in {tags:?}")).to_owned()
    };
    let before = token(&tags());
    project.write("blog.yaml", &text.replace("[one]", "[two]"));
    project.berth(&cloud, &["apply", "-f", "blog.yaml", "--yes"]).ok();
    assert_eq!(token(&tags()), before);
    assert!(tags().contains(&json!("two")) && !tags().contains(&json!("one")), "{:?}", tags());
    project.berth(&cloud, &["drift"]).ok();
    let other = Project::new();
    let imported = other.berth(&cloud, &["import", "--all", "--provider", "digitalocean"]).ok();
    let written: String = std::fs::read_dir(other.work())
        .expect("a folder")
        .filter_map(|entry| std::fs::read_to_string(entry.expect("an entry").path()).ok())
        .collect();
    let all = format!("{imported}{written}");
    assert!(all.contains("blog-k8s") && !all.contains("berth-token"), "{all}");
}

/// Longer than Berth waits: then there are two, and everybody is told.
#[test]
fn what_was_made_twice_is_told_and_goes_with_its_resource() {
    let cloud = Cloud::instant();
    let project = with_network(&cloud);
    cloud.faults(&["POST /v2/kubernetes/clusters late=34s nth=1"]);
    let applied = project.berth(&cloud, &["apply", "-f", "blog.yaml", "--yes"]).ok();
    until("the late call to be acted on", || cloud.late() == 0);
    cloud.faults(&[]);
    let clusters = cloud.objects("digitalocean.cluster");
    assert_eq!(clusters.len(), 2, "{applied}\n{}", cloud.told());
    // Which of the two was there first depends on the machine.
    let plan = project.berth(&cloud, &["plan", "-f", "blog.yaml"]).ok();
    let mut ids = clusters.iter().map(|cluster| cluster["id"].as_str().expect("an id"));
    let stray = ids.find(|id| plan.stdout.contains(id)).expect("one of the two is told of").to_owned();
    let remove = format!("doctl kubernetes cluster delete {stray}");
    plan.says_all(&["made twice", &stray, &remove]);
    project.berth(&cloud, &["apply", "-f", "blog.yaml", "--yes"]).ok().says_all(&["made twice", &stray, &remove]);
    let drift = project.berth(&cloud, &["drift", "-o", "json"]).exits(2);
    assert_eq!(drift.json()["drifted"][0]["findings"][0]["stray"], json!(stray), "{drift}");
    project.berth(&cloud, &["drift"]).exits(2).says_all(&["made twice", &stray, &remove]);
    let deleted = project.berth(&cloud, &["delete", "-f", "blog.yaml", "--yes", "--allow-delete"]).ok();
    deleted.says_all(&[&stray, "it is deleted too"]);
    cloud.is_empty();
}

/// Deleted by hand as it says, it is no longer told of.
#[test]
fn a_second_cluster_that_was_deleted_as_told_is_forgotten() {
    let cloud = Cloud::instant();
    let project = with_network(&cloud);
    cloud.faults(&["POST /v2/kubernetes/clusters late=31s nth=1"]);
    project.berth(&cloud, &["apply", "-f", "blog.yaml", "--yes"]).ok();
    until("the late call to be acted on", || cloud.late() == 0);
    cloud.faults(&[]);
    for cluster in cloud.objects("digitalocean.cluster").iter().skip(1) {
        let path = format!("/v2/kubernetes/clusters/{}", cluster["id"].as_str().expect("an id"));
        cloud.call(berth_sandbox::digitalocean::NAME, "DELETE", &path, None);
    }
    let plan = project.berth(&cloud, &["plan", "-f", "blog.yaml", "--detailed-exitcode"]).ok();
    assert!(!plan.stdout.contains("made twice"), "{plan}");
    cloud.holds(&manifests(&blog()));
}

/// Killed while a call is on its way that is acted on after that; the next run begins before it is.
fn killed_with_a_late_call(ready: &Ready, call: u64) {
    let (project, cloud, _folder) = ready.prepared.copy(Speed::Instant);
    cloud.faults(&[&format!("mutating /v2/** {LATE} nth={call}"), LAG]);
    let mut running = project.start(&cloud, &ready.case.args());
    let started = Instant::now();
    while cloud.late() == 0 && !running.has_ended() && started.elapsed() < LONGEST {
        std::thread::sleep(std::time::Duration::from_micros(500));
    }
    let killed = running.kill();
    assert!(cloud.late() > 0, "call {call} never came\n{killed}\n{}", cloud.told());
    cloud.faults(&[LAG]);
    let second = project.berth(&cloud, &ready.case.args());
    let story = format!("===== killed\n{killed}\n===== once more\n{second}");
    assert_eq!(second.code, Some(0), "the next run failed\n{story}\n{}", cloud.told());
    until("the late call to be acted on", || cloud.late() == 0);
    cloud.faults(&[]);
    ready.case.check(&project, &cloud, Some(&ready.shape), &story);
}

/// Not killed: told that the call failed, while it is acted on later.
fn told_of_a_late_call(ready: &Ready, call: u64) {
    let (project, cloud, _folder) = ready.prepared.copy(Speed::Instant);
    cloud.faults(&[&format!("mutating /v2/** {LATE} nth={call}"), LAG]);
    let ran = project.berth(&cloud, &ready.case.args());
    let story = ran.to_string();
    assert_eq!(ran.code, Some(0), "the run failed\n{story}\n{}", cloud.told());
    until("the late call to be acted on", || cloud.late() == 0);
    cloud.faults(&[]);
    ready.case.check(&project, &cloud, Some(&ready.shape), &story);
}

#[test]
fn every_call_may_be_acted_on_late_while_lists_are_behind() {
    let prepared = prepare(civo().into_iter().chain(digitalocean()).collect(), Speed::Instant);
    let mut points = Vec::new();
    for ready in &prepared {
        for call in 1..=ready.calls {
            points.push((format!("{}: killed at call {call}", ready.case.name), (ready, call, true)));
            points.push((format!("{}: call {call} late", ready.case.name), (ready, call, false)));
        }
    }
    let all = points.len();
    // Creates are what could be made twice: all of the first calls, and a sample of the rest.
    let mut count = 0;
    points.retain(|(_, (ready, call, _))| {
        count += 1;
        let first = ready.case.name.contains("create") && *call == 1;
        whole() || first || count % SAMPLE == 0
    });
    println!("late calls: {} of {all} points", points.len());
    many(AT_ONCE, points, |_, (ready, call, killed)| match killed {
        true => killed_with_a_late_call(ready, call),
        false => told_of_a_late_call(ready, call),
    });
}

/// The cloud refuses a second object of one name as long as there is a first: once that is deleted, a create that is acted
/// on late would make another one, which nobody knows of.
#[test]
fn what_was_asked_for_twice_is_deleted_once_no_create_can_follow() {
    let days = [
        ("network", "POST /v2/networks", net("net-a", "fra1", "")),
        ("cluster", "POST /v2/kubernetes/clusters civo", format!("{}---\n{}", net("net-a", "fra1", ""), CIVO.text())),
        ("VPC", "POST /v2/vpcs", vpc("fra1", "")),
    ];
    many(days.len(), days.map(|(name, call, text)| (name.to_owned(), (call, text))).to_vec(), |_, (call, text)| {
        let cloud = Cloud::instant();
        let project = Project::with(&[("all.yaml", &text)]);
        cloud.faults(&[&format!("{call} late=4s nth=1")]);
        project.berth(&cloud, &["apply", "-f", "all.yaml", "--yes"]).ok();
        assert!(cloud.late() > 0, "the first create is still to be acted on\n{}", cloud.told());
        project.berth(&cloud, &["delete", "-f", "all.yaml", "--yes", "--allow-delete"]).ok();
        until("the late call to be acted on", || cloud.late() == 0);
        cloud.is_empty();
    });
}

/// What was begun by a call that is acted on late is deleted, too.
#[test]
fn deleting_waits_for_a_create_that_was_not_answered() {
    let cloud = Cloud::start(Config { speed: Speed::Instant, ..Config::default() });
    let project = with_network(&cloud);
    cloud.faults(&["POST /v2/kubernetes/clusters late=8s nth=1", "lag=2s"]);
    let mut running = project.start(&cloud, &["apply", "-f", "blog.yaml", "--yes"]);
    until("the create to come", || cloud.late() > 0 || running.has_ended());
    running.kill();
    project.berth(&cloud, &["delete", "-f", "blog.yaml", "--yes", "--allow-delete"]).ok();
    until("the late call to be acted on", || cloud.late() == 0);
    cloud.faults(&[]);
    cloud.is_empty();
}
