//! With three calls in ten failing at random, or calls that are acted on late and lists that are behind, everything still
//! becomes what is declared.

use crate::examples::{Example, examples, name};
use crate::harness::{many, whole};
use crate::support::cloud::Cloud;
use crate::support::until;
use berth_sandbox::{Config, Speed};
use std::sync::atomic::{AtomicU64, Ordering};

const SEEDS: u64 = 5;
/// A command that gives up may be run again, as its help says; this often in all.
const TRIES: u32 = 5;
/// Commands wait between their tries most of the time.
const AT_ONCE: usize = 10;

#[test]
fn a_bad_day_changes_nothing_in_the_end() {
    bad_days(&["random=0.3"], SEEDS);
}

#[test]
fn calls_acted_on_late_and_lists_that_are_behind_change_nothing_in_the_end() {
    bad_days(&["lag=1500ms", "late=600ms rate=0.2"], if whole() { SEEDS } else { 1 });
}

fn bad_days(faults: &[&str], seeds: u64) {
    let gave_up = AtomicU64::new(0);
    let jobs: Vec<_> = (1..=seeds)
        .flat_map(|seed| {
            examples().into_iter().map(move |path| (format!("{}, seed {seed}", name(&path)), (path, seed)))
        })
        .collect();
    let count = jobs.len();
    many(AT_ONCE, jobs, |_, (path, seed)| {
        let cloud = Cloud::start(Config { speed: Speed::Instant, seed, ..Config::default() });
        let example = Example::new(&path, cloud);
        let until_done = |args: &[&str]| {
            for tried in 1.. {
                example.cloud.faults(faults);
                let ran = example.project.berth(&example.cloud, args);
                until("what is late to be acted on", || example.cloud.late() == 0);
                example.cloud.faults(&[]);
                if ran.code == Some(0) {
                    return;
                }
                gave_up.fetch_add(1, Ordering::Relaxed);
                assert!(tried < TRIES, "gave up {TRIES} times\n{ran}\n{}", example.cloud.told());
                assert_eq!(ran.code, Some(1), "{ran}");
            }
        };
        until_done(&example.apply_args());
        example.settled("after an apply on a bad day");
        until_done(&["delete", "-f", &example.path, "--yes", "--allow-delete"]);
        example.nothing_left();
    });
    println!("bad days of {faults:?}: {count}, commands that gave up and were run again: {}", gave_up.into_inner());
}
