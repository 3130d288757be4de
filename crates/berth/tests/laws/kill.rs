//! After SIGKILL at any instant, the next run makes the cloud what is declared: no orphan, no duplicate, no manual step.

use crate::declared::{manifests, outline};
use crate::harness::{Prepared, Project, all, many};
use crate::kill_cases::{Case, civo, digitalocean};
use crate::support::cloud::Cloud;
use crate::support::ran::Ran;
use crate::support::{LONGEST, until};
use berth_sandbox::Speed;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Fewer than this, and the test has lost some of what it is for.
const FEWEST_POINTS: usize = 350;
/// The same, for kills in the middle of making something that is then deleted.
const FEWEST_HALVES: usize = 30;
/// A delete waits until something that was just begun can no longer appear: many wait at the same time.
const HALVES_AT_ONCE: usize = 24;
/// Kills at moments of no call in particular.
const RANDOM_KILLS: u64 = 40;
/// Simulated seconds a second: provisioning takes long enough to be killed in.
const SPEED: Speed = Speed::Times(1000.0);

impl Case {
    pub fn args(&self) -> Vec<&str> {
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
    pub fn check(&self, project: &Project, cloud: &Cloud, shape: Option<&[String]>, story: &str) {
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

/// Which calls are counted, and held.
#[derive(Clone, Copy)]
enum To {
    Cloud,
    /// The clusters' own APIs, where the autoscaler is installed.
    Clusters,
}

impl To {
    fn path(self) -> &'static str {
        match self {
            To::Cloud => "/v2/**",
            To::Clusters => "/clusters/**",
        }
    }
}

/// A case, ready to be killed.
pub struct Ready {
    pub case: Case,
    pub prepared: Prepared,
    pub calls: u64,
    calls_to_clusters: u64,
    /// What the cloud looks like after the operation.
    pub shape: Vec<String>,
    /// What Berth put into clusters.
    inside: Vec<String>,
    /// How long the operation takes.
    took: Duration,
}

/// Prepares a case and runs it once to its end.
fn ready(case: Case, speed: Speed) -> Ready {
    let prepared = case.prepare();
    let (project, cloud, _folder) = prepared.copy(speed);
    cloud.reset_calls();
    cloud.faults(&["mutating /clusters/** hold-before nth=1000000"]);
    let ran = project.berth(&cloud, &case.args());
    assert_eq!(ran.code, Some(0), "without a kill\n{ran}\n{}", cloud.told());
    let (calls, calls_to_clusters, took) = (cloud.mutating(), cloud.matched(), ran.took);
    cloud.faults(&[]);
    let (shape, inside) = (cloud.shape(), cloud.inside());
    case.check(&project, &cloud, None, "without a kill");
    assert!(calls + calls_to_clusters > 0, "the operation changes nothing\n{ran}");
    Ready { case, prepared, calls, calls_to_clusters, shape, inside, took }
}

fn again(project: &Project, cloud: &Cloud, case: &Case, killed: &Ran) -> String {
    let second = project.berth(cloud, &case.args());
    let story = format!("===== killed\n{killed}\n===== once more\n{second}");
    assert_eq!(second.code, Some(0), "the next run failed\n{story}\n{}", cloud.told());
    story
}

/// So many looks in a row at a cloud that shows the same: a busy machine may be late to act on what was sent.
const SETTLED_LOOKS: usize = 6;

/// Project and cloud after an operation that was cut short.
type Killed = (Project, Cloud, tempfile::TempDir, Ran);

/// A copy of the prepared project and cloud in which the operation was begun and killed at a call. None where that call never
/// came, which may be in a cluster: how many pods a drain has to evict depends on where they were placed. The operation has
/// ended well then.
fn killed(ready: &Ready, to: To, hold: &str, call: u64) -> Option<Killed> {
    let (project, cloud, folder) = ready.prepared.copy(Speed::Instant);
    cloud.faults(&[&format!("mutating {} {hold} nth={call}", to.path())]);
    let mut running = project.start(&cloud, &ready.case.args());
    let started = Instant::now();
    while cloud.held() == 0 && !running.has_ended() && started.elapsed() < LONGEST {
        std::thread::sleep(Duration::from_micros(500));
    }
    if cloud.held() == 0 {
        let may_end = matches!(to, To::Clusters) && call > 1 && running.has_ended();
        let ran = running.kill();
        assert!(may_end && ran.code == Some(0), "call {call} never came\n{ran}\n{}", cloud.told());
        ready.case.check(&project, &cloud, Some(&ready.shape), &format!("call {call} never came\n{ran}"));
        return None;
    }
    let killed = running.kill();
    // Calls beside the held one were sent before the kill: they may still be acted on.
    let (mut before, mut same) = (cloud.shape(), 0);
    until("what was sent before the kill to be acted on", || {
        std::thread::sleep(Duration::from_millis(20));
        let last = std::mem::replace(&mut before, cloud.shape());
        same = if last == before { same + 1 } else { 0 };
        same == SETTLED_LOOKS
    });
    cloud.faults(&[]);
    until("the held call to be let go", || cloud.held() == 0);
    assert_eq!(before, cloud.shape(), "a call whose client is dead took effect");
    Some((project, cloud, folder, killed))
}

fn kill_at_call(ready: &Ready, to: To, hold: &str, call: u64) {
    let Some((project, cloud, _folder, killed)) = killed(ready, to, hold, call) else { return };
    let story = again(&project, &cloud, &ready.case, &killed);
    ready.case.check(&project, &cloud, Some(&ready.shape), &story);
    if ready.calls_to_clusters > 0 {
        assert_eq!(cloud.inside(), ready.inside, "clusters hold something else than without a kill (right)\n{story}");
    }
}

/// Prepares cases, a few at a time.
pub fn prepare(cases: Vec<Case>, speed: Speed) -> Vec<Ready> {
    let prepared = Mutex::new(Vec::new());
    all(cases.into_iter().map(|case| (case.name.to_owned(), case)).collect(), |_, case| {
        let ready = ready(case, speed);
        prepared.lock().expect("cases").push(ready);
    });
    let mut prepared = prepared.into_inner().expect("cases");
    prepared.sort_by_key(|ready| ready.case.name);
    prepared
}

type Point<'a> = (&'a Ready, To, &'static str, u64);

/// Before and after every call of every case.
fn points(prepared: &[Ready]) -> Vec<(String, Point<'_>)> {
    let mut points = Vec::new();
    for ready in prepared {
        for (to, calls, place) in
            [(To::Cloud, ready.calls, ""), (To::Clusters, ready.calls_to_clusters, " in a cluster")]
        {
            for (call, hold) in (1..=calls).flat_map(|call| ["hold-before", "hold-after"].map(|hold| (call, hold))) {
                let name = format!("{}: {hold} {call} of {calls}{place}", ready.case.name);
                points.push((name, (ready, to, hold, call)));
            }
        }
    }
    points
}

#[test]
fn killed_at_every_call() {
    let prepared = prepare(civo().into_iter().chain(digitalocean()).collect(), Speed::Instant);
    let points = points(&prepared);
    let count = points.len();
    println!("kill points: {count} in {} operations", prepared.len());
    all(points, |_, (ready, to, hold, call)| kill_at_call(ready, to, hold, call));
    assert!(count >= FEWEST_POINTS, "kill points: {count}, and at least {FEWEST_POINTS} are expected");
}

/// Deleting what was only half made leaves what was there before.
#[test]
fn killed_while_making_then_deleted() {
    let cases = civo().into_iter().chain(digitalocean()).filter(|case| case.name.contains("create"));
    let prepared = prepare(cases.collect(), Speed::Instant);
    // Before a call is after the one before it; only the first has none.
    let mut points = points(&prepared);
    points.retain(|(_, (_, _, hold, call))| *hold == "hold-after" || *call == 1);
    let count = points.len();
    println!("kill points before a delete: {count} in {} operations", prepared.len());
    many(HALVES_AT_ONCE, points, |_, (ready, to, hold, call)| {
        let (_, untouched, _folder) = ready.prepared.copy(Speed::Instant);
        let (shape, inside) = (untouched.shape(), untouched.inside());
        let Some((project, cloud, _folder, killed)) = killed(ready, to, hold, call) else { return };
        let ids = |text: &str| -> Vec<String> {
            let manifests = if text.is_empty() { Vec::new() } else { manifests(text) };
            manifests.iter().map(|m| m.id.to_string()).collect()
        };
        let there = ids(&ready.case.before);
        let made: Vec<String> = ids(&ready.case.after).into_iter().filter(|id| !there.contains(id)).collect();
        let mut args = vec!["delete", "--yes", "--allow-delete"];
        args.extend(made.iter().map(String::as_str));
        let deleted = project.berth(&cloud, &args);
        let story = format!("===== killed\n{killed}\n===== deleted\n{deleted}\n{}", cloud.told());
        assert_eq!(deleted.code, Some(0), "{story}");
        assert_eq!(cloud.shape(), shape, "not what was there before (right)\n{story}");
        assert_eq!(cloud.inside(), inside, "clusters do not hold what they held before (right)\n{story}");
        cloud.adds_up();
    });
    assert!(count >= FEWEST_HALVES, "kill points before a delete: {count}, at least {FEWEST_HALVES} are expected");
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
    let prepared = prepare(names.iter().map(|name| named(name).expect("a case")).collect(), SPEED);
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
