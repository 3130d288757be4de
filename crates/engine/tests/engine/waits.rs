//! Every wait ends: by what it waits for, by the deadline, by giving up, or by being asked to stop.

use crate::cloud::Fault;
use crate::memory::Crash;
use crate::world::{Spec, World};
use berth_engine::Interrupt;
use berth_engine::ResourceState;
use berth_engine::progress::{Progress, Watcher};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_wait_and_the_next_run_goes_on() {
    let mut world = World::new();
    world.cloud.lock().build = NEVER;
    world.options.timeout = Duration::from_secs(600);
    let started = Instant::now();
    let report = world.apply(&Spec::full()).await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(600) && started.elapsed() < Duration::from_secs(620));
    let trouble = &report.failed[0].1;
    assert!(trouble.to_string().contains("is still building after 10m00s"), "{trouble:?}");
    assert_eq!(world.state.units.len(), 1, "the object is recorded");
    world.cloud.lock().build = Duration::ZERO;
    let now = Instant::now();
    world.cloud.lock().objects.values_mut().for_each(|o| o.ready_at = now);
    world.settle(&Spec::full()).await;
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_never_ends_is_given_up_at_the_deadline() {
    let mut world = World::with(&Spec::full()).await;
    world.cloud.lock().build = NEVER;
    world.options.timeout = Duration::from_secs(60);
    let started = Instant::now();
    let report = world.destroy().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(70));
    assert!(report.failed[0].1.to_string().contains("is still being deleted after 1m00s"), "{report:?}");
    assert_eq!(report.skipped.len(), 4);
}

/// However long, and however often: whoever says when to come back is believed.
#[tokio::test(start_paused = true)]
async fn a_pause_that_the_cloud_asks_for_is_kept() {
    let spec = Spec { firewall: false, inner: vec![], pools: vec![], ..Spec::full() };
    for (seconds, times) in [(75, 1), (20, 30)] {
        let mut world = World::new();
        let asked = Arc::new(Mutex::new(Vec::<Instant>::new()));
        let log = asked.clone();
        world.cloud.set_faults(move |_, what| {
            let mut log = log.lock().unwrap();
            if what != "create" || log.len() > times {
                return Fault::None;
            }
            log.push(Instant::now());
            if log.len() > times { Fault::None } else { Fault::Asks(seconds) }
        });
        let seen = Arc::new(Said::default());
        world.watcher = seen.clone();
        let report = world.apply(&spec).await.unwrap();
        assert!(report.failed.is_empty(), "{report:?}");
        let asked = asked.lock().unwrap();
        assert_eq!(asked.len(), times + 1);
        for pair in asked.windows(2) {
            assert!(pair[1] - pair[0] >= Duration::from_secs(seconds), "{:?}", pair[1] - pair[0]);
        }
        let said = seen.0.lock().unwrap();
        assert!(said.contains(&format!("the cloud asked to wait {seconds} s")), "{said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_beyond_the_deadline_is_told_at_once() {
    let mut world = World::new();
    world.options.timeout = Duration::from_secs(60);
    world.cloud.set_faults(|_, what| if what == "create" { Fault::Asks(75) } else { Fault::None });
    let started = Instant::now();
    let report = world.apply(&Spec::full()).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    let trouble = &report.failed[0].1;
    assert!(trouble.to_string().starts_with("the cloud takes calls again in 75 s, at "), "{trouble:?}");
    assert!(
        trouble.to_string().contains("beyond the 1m00s that the resource may take: create: too many"),
        "{trouble:?}"
    );
    assert!(trouble.help_lines().iter().any(|line| line.starts_with("run the same command again then")), "{trouble:?}");
    world.settle(&Spec::full()).await;
}

/// What is being done, as it was told.
#[derive(Default)]
struct Said(Mutex<Vec<String>>);

impl Watcher for Said {
    fn see(&self, progress: Progress) {
        if let Progress::Doing { what, .. } = progress {
            self.0.lock().unwrap().push(what);
        }
    }
}

/// Reads that work say nothing about changes that do not: the tries are counted apart.
#[tokio::test(start_paused = true)]
async fn a_call_that_always_fails_is_given_up() {
    for what in ["create", "update", "delete", "gate", "read"] {
        let mut world = World::new();
        let mut wanted = Spec::full();
        if what == "update" || what == "delete" || what == "read" {
            world.settle(&wanted).await;
            wanted.nodes = 7;
        }
        let calls = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counter = calls.clone();
        // A plan reads, too: it is let through.
        let from = if what == "read" { 5 } else { 0 };
        world.cloud.set_faults(move |index, made| {
            counter.store(index, std::sync::atomic::Ordering::SeqCst);
            if made == what && index >= from { Fault::Before } else { Fault::None }
        });
        let report = if what == "delete" { world.destroy().await } else { world.apply(&wanted).await }.unwrap();
        assert_eq!(report.failed.len(), 1, "{what}: {report:?}");
        assert!(report.failed[0].1.to_string().starts_with("gave up after 15 tries"), "{what}: {report:?}");
        let calls = calls.load(std::sync::atomic::Ordering::SeqCst);
        assert!(calls < 200, "{what}: {calls} calls");
        if what == "delete" {
            world.destroy().await.unwrap();
            world.assert_empty();
        } else {
            world.settle(&wanted).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_update_without_effect_is_told() {
    let mut world = World::with(&Spec::full()).await;
    world.cloud.lock().ignores = Some("node_count");
    let report = world.apply(&Spec { nodes: 9, ..Spec::full() }).await.unwrap();
    assert!(
        report.failed[0].1.to_string().contains("accepted the change of node_count and still shows 2 in place of 9"),
        "{report:?}"
    );
    let help = report.failed[0].1.help_lines().join("\n");
    assert!(help.contains("console") && help.contains("apply again"), "{help}");
    world.cloud.lock().ignores = None;
    world.settle(&Spec { nodes: 9, ..Spec::full() }).await;
}

#[tokio::test(start_paused = true)]
async fn no_wait_waits_only_for_what_others_need() {
    let mut world = World::new();
    world.cloud.lock().build = Duration::from_secs(300);
    world.options.wait = false;
    let spec = Spec { inner: vec![], ..Spec::full() };
    let report = world.apply(&spec).await.unwrap();
    let pending: Vec<&str> = report.pending.iter().map(|id| id.name.as_str()).collect();
    assert_eq!(pending, ["batch"], "{report:?}");
    assert_eq!(world.state.resources.values().filter(|r| r.status.state == ResourceState::Pending).count(), 1);
    world.options.wait = true;
    world.settle(&spec).await;
}

/// A gate that is not passed is not Ready, whether or not anybody waits.
#[tokio::test(start_paused = true)]
async fn no_wait_does_not_call_a_closed_gate_ready() {
    let mut world = World::new();
    world.cloud.lock().build = Duration::ZERO;
    world.options.wait = false;
    let spec = Spec { inner: vec![], pools: vec![], ..Spec::full() };
    let report = world.apply(&spec).await.unwrap();
    assert_eq!(report.pending.len(), 1, "{report:?}");
    let cluster = world.state.units.values().find(|unit| unit.key == "cluster").unwrap();
    assert!(!cluster.ready && cluster.outputs.contains_key("id"));
    world.options.wait = true;
    world.settle(&spec).await;
    let secrets = world.state.resources.values().find(|r| r.manifest.id.name == "k8s").map(|r| r.status.secrets.len());
    assert_eq!(secrets, Some(1), "the kubeconfig is an output");
}

/// Without waiting, a replacement is still brought to its end: half of one would be paid for twice.
#[tokio::test(start_paused = true)]
async fn no_wait_finishes_a_replacement() {
    let mut world = World::with(&Spec::full()).await;
    world.options.wait = false;
    let large = Spec { pools: vec![("batch", "large", 2)], ..Spec::full() };
    world.apply(&large).await.unwrap();
    assert_eq!(world.cloud.here().len(), 5, "the old pool is gone");
    assert!(!world.state.units.values().any(|unit| unit.deposed));
    world.options.wait = true;
    world.settle(&large).await;
}

/// Asked to stop at any moment, a run ends within its call in flight, and the next one goes on.
#[tokio::test(start_paused = true)]
async fn an_interrupt_at_any_moment_ends_promptly_and_is_gone_on_with() {
    let chain = Spec { cidr: 2, ..Spec::full() };
    let pool = Spec { pools: vec![("batch", "large", 2)], ..Spec::full() };
    let start = World::with(&Spec::full()).await;
    let mut stopped = 0;
    for (from, to) in
        [(World::new(), Some(Spec::full())), (start.copy(), Some(chain)), (start.copy(), Some(pool)), (start, None)]
    {
        for at in (0..900).step_by(7) {
            let mut world = from.copy();
            let interrupt = Interrupt::default();
            let (setter, asked) = (interrupt.clone(), std::sync::Arc::new(std::sync::Mutex::new(None)));
            let when = asked.clone();
            let timer = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(at)).await;
                *when.lock().unwrap() = Some(Instant::now());
                setter.set();
            });
            let all = world.state.resources.keys().cloned().collect();
            let (manifests, unwanted) =
                to.as_ref().map_or_else(|| (Vec::new(), all), |spec| (spec.manifests(), Vec::new()));
            let report = world.run(&manifests, unwanted, Crash::Never, interrupt).await.unwrap();
            timer.abort();
            let asked = *asked.lock().unwrap();
            if let Some(asked) = asked {
                assert!(asked.elapsed() < Duration::from_millis(20), "it took {:?} to stop", asked.elapsed());
            }
            assert!(report.failed.is_empty(), "{report:?}");
            if report.interrupted {
                stopped += 1;
                assert!(!report.left.is_empty() || !report.skipped.is_empty());
            }
            match &to {
                Some(spec) => world.settle(spec).await,
                None => {
                    world.destroy().await.unwrap();
                    world.assert_empty();
                }
            }
        }
    }
    assert!(stopped > 50, "only {stopped} runs were stopped");
}
