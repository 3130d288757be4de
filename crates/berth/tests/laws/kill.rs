//! After SIGKILL at any instant, the next run makes the cloud what is declared: no orphan, no duplicate, no manual step.

use crate::declared::{manifests, outline};
use crate::harness::{Cloud, LONGEST, Prepared, Project, Ran, all, until};
use crate::kill_cases::{Case, civo, digitalocean};
use berth_sandbox::Speed;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Fewer than this, and the test has lost some of what it is for.
const FEWEST_POINTS: usize = 200;
/// Kills at moments of no call in particular.
const RANDOM_KILLS: u64 = 40;
/// Simulated seconds a second: provisioning takes long enough to be killed in.
const SPEED: Speed = Speed::Times(1000.0);

impl Case {
    fn args(&self) -> Vec<&str> {
        match self.delete {
            [] => vec!["apply", "-f", "after.yaml", "--yes", "--allow-replace"],
            some => [&["delete", "--yes", "--allow-delete"], some].concat(),
        }
    }

    /// The cloud and the state as they are before the operation.
    fn prepare(&self) -> Prepared {
        Prepared::new(|project, cloud| {
            project.write("after.yaml", &self.after);
            if !self.before.is_empty() {
                project.write("before.yaml", &self.before);
                project.berth(cloud, &["apply", "-f", "before.yaml", "--yes"]).ok();
                cloud.holds(&manifests(&self.before));
            }
        })
    }

    /// The cloud holds what is declared, and a plan says so.
    #[track_caller]
    fn check(&self, project: &Project, cloud: &Cloud, shape: Option<&[String]>, story: &str) {
        let declared = if self.after.is_empty() { Vec::new() } else { manifests(&self.after) };
        let (found, wanted) = (cloud.outline(), outline(&declared));
        assert_eq!(found, wanted, "found (left) is not what is declared (right)\n{story}\n{}", cloud.told());
        if let Some(shape) = shape {
            let found = cloud.shape();
            assert_eq!(found, shape, "not what a run without a kill leaves (right)\n{story}\n{}", cloud.told());
        }
        cloud.adds_up();
        if !declared.is_empty() {
            let plan = project.berth(cloud, &["plan", "-f", "after.yaml", "--detailed-exitcode"]);
            assert_eq!(plan.code, Some(0), "the plan is not empty\n{plan}\n{story}\n{}", cloud.told());
        }
    }
}

/// A case, ready to be killed.
struct Ready {
    case: Case,
    prepared: Prepared,
    calls: u64,
    /// What the cloud looks like after the operation.
    shape: Vec<String>,
    /// How long the operation takes.
    took: Duration,
}

/// Prepares a case and runs it once to its end.
fn ready(case: Case, speed: Speed) -> Ready {
    let prepared = case.prepare();
    let (project, cloud, _folder) = prepared.copy(speed);
    cloud.reset_calls();
    let ran = project.berth(&cloud, &case.args());
    assert_eq!(ran.code, Some(0), "without a kill\n{ran}\n{}", cloud.told());
    let (calls, shape, took) = (cloud.mutating(), cloud.shape(), ran.took);
    case.check(&project, &cloud, None, "without a kill");
    assert!(calls > 0, "the operation changes nothing\n{ran}");
    Ready { case, prepared, calls, shape, took }
}

fn again(project: &Project, cloud: &Cloud, case: &Case, killed: &Ran) -> String {
    let second = project.berth(cloud, &case.args());
    let story = format!("===== killed\n{killed}\n===== once more\n{second}");
    assert_eq!(second.code, Some(0), "the next run failed\n{story}\n{}", cloud.told());
    story
}

fn kill_at_call(ready: &Ready, hold: &str, call: u64) {
    let (project, cloud, _folder) = ready.prepared.copy(Speed::Instant);
    cloud.faults(&[&format!("mutating {hold} nth={call}")]);
    let mut running = project.start(&cloud, &ready.case.args());
    let started = Instant::now();
    while cloud.held() == 0 && !running.has_ended() && started.elapsed() < LONGEST {
        std::thread::sleep(Duration::from_micros(500));
    }
    if cloud.held() == 0 {
        let ran = running.kill();
        panic!("call {call} never came\n{ran}\n{}", cloud.told());
    }
    let killed = running.kill();
    let before = cloud.shape();
    cloud.faults(&[]);
    until("the held call to be let go", || cloud.held() == 0);
    assert_eq!(before, cloud.shape(), "a call whose client is dead took effect");
    let story = again(&project, &cloud, &ready.case, &killed);
    ready.case.check(&project, &cloud, Some(&ready.shape), &story);
}

#[test]
fn killed_at_every_call() {
    let cases: Vec<(String, Case)> =
        civo().into_iter().chain(digitalocean()).map(|case| (case.name.to_owned(), case)).collect();
    let operations = cases.len();
    let prepared = Mutex::new(Vec::new());
    all(cases, |_, case| {
        let ready = ready(case, Speed::Instant);
        prepared.lock().expect("cases").push(ready);
    });
    let prepared = prepared.into_inner().expect("cases");
    let mut points = Vec::new();
    for ready in &prepared {
        for call in 1..=ready.calls {
            for hold in ["hold-before", "hold-after"] {
                points.push((format!("{}: {hold} {call} of {}", ready.case.name, ready.calls), (ready, hold, call)));
            }
        }
    }
    let count = points.len();
    println!("kill points: {count} in {operations} operations");
    all(points, |_, (ready, hold, call)| kill_at_call(ready, hold, call));
    assert!(count >= FEWEST_POINTS, "kill points: {count}, and at least {FEWEST_POINTS} are expected");
}

#[test]
fn killed_at_any_moment() {
    let named = |name: &str| civo().into_iter().chain(digitalocean()).find(|case| case.name == name);
    let names = [
        "CivoKubernetesCluster create with pools",
        "CivoKubernetesCluster replace pools",
        "CivoKubernetesCluster upgrade and scale",
        "CivoKubernetesNodePool create autoscaled",
        "Civo delete everything",
        "DigitalOceanKubernetesCluster create with registry",
        "DigitalOceanKubernetesCluster roll default pool",
        "DigitalOcean delete everything",
    ];
    let prepared = Mutex::new(Vec::new());
    all(names.iter().map(|name| ((*name).to_owned(), named(name).expect("a case"))).collect(), |_, case| {
        let ready = ready(case, SPEED);
        prepared.lock().expect("cases").push(ready);
    });
    let mut prepared = prepared.into_inner().expect("cases");
    prepared.sort_by_key(|ready| ready.case.name);
    let jobs = (0..RANDOM_KILLS).map(|seed| {
        let mut dice = StdRng::seed_from_u64(seed);
        let ready = &prepared[seed as usize % prepared.len()];
        let after = ready.took.mul_f64(dice.random_range(0.0..1.0));
        (format!("{}: seed {seed}, after {after:.1?}", ready.case.name), (ready, after))
    });
    all(jobs.collect(), |_, (ready, after)| {
        let (project, cloud, _folder) = ready.prepared.copy(SPEED);
        let mut running = project.start(&cloud, &ready.case.args());
        std::thread::sleep(after);
        if running.has_ended() {
            // This machine was faster than the first time: it is the end of the operation that is killed.
            running.finish().ok();
            return ready.case.check(&project, &cloud, Some(&ready.shape), "not killed");
        }
        let killed = running.kill();
        let story = again(&project, &cloud, &ready.case, &killed);
        ready.case.check(&project, &cloud, Some(&ready.shape), &story);
    });
    println!("random kills: {RANDOM_KILLS}");
}
