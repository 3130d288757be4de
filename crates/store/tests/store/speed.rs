//! How fast servers write. Not a test of right and wrong: `cargo test --release -p berth-store --test store -- --ignored
//! speed:: --nocapture --test-threads 1`. A durable commit needs a real disk; `TMPDIR` says which.

use crate::fixtures::*;
use crate::*;
use berth_store::*;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const CALLERS: usize = 32;
const FOR: Duration = Duration::from_secs(5);

async fn measure(place: StateLocation) {
    let of = if place.is_sqlite() { "SQLite" } else { "PostgreSQL" };
    let control = control(&place).await;
    let (made, next) = (AtomicU32::new(0), AtomicU32::new(0));
    let clock = Instant::now();
    let callers = (0..CALLERS).map(|_| async {
        while clock.elapsed() < FOR {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let id = ResourceId { org: format!("org-{}", n % 10), ..vpc(&format!("net-{n}")) };
            let one = Desired { account: format!("account-{}", n % 40), ..desired(&id, spec(n)) };
            control.apply(applying(vec![one]), at(0)).await.expect("applied");
            made.fetch_add(1, Ordering::Relaxed);
        }
    });
    futures::future::join_all(callers).await;
    let creates = f64::from(made.load(Ordering::Relaxed)) / clock.elapsed().as_secs_f64();
    println!(
        "{of}: {creates:.0} creates accepted per second by {CALLERS} callers, {} in all",
        made.load(Ordering::Relaxed)
    );
    let clock = Instant::now();
    let mut queued = 0;
    while queued < 60_000 {
        let more = enqueue_due(&control, at(0)).await;
        queued += more;
        if more == 0 {
            break;
        }
    }
    println!("{of}: {:.0} tasks made per second by the controller", queued as f64 / clock.elapsed().as_secs_f64());
    for workers in [1, 4, 16] {
        let done = AtomicU32::new(0);
        let clock = Instant::now();
        let all = (0..workers).map(|worker| {
            let (control, done) = (&control, &done);
            async move {
                while clock.elapsed() < FOR {
                    let leased = control.lease(ask(&format!("w{worker}"), 16), at(1)).await.expect("leased");
                    let reports = leased
                        .iter()
                        .map(|one| control.report(&one.held, Ending::new(TaskOutcome::Refused, ""), at(1)));
                    for report in futures::future::join_all(reports).await {
                        report.expect("reported");
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    if leased.is_empty() {
                        break;
                    }
                }
            }
        });
        futures::future::join_all(all).await;
        let rate = f64::from(done.load(Ordering::Relaxed)) / clock.elapsed().as_secs_f64();
        println!("{of}: {rate:.0} tasks leased and reported per second by {workers} workers of 16 places");
    }
    assert!(creates > 0.0);
}

/// Some 600 bytes.
fn spec(n: u32) -> Value {
    json!({"region": "fra1", "n": n, "text": "x".repeat(400)})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes half a minute, and says how fast"]
async fn sqlite() {
    measure(crate::place::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes half a minute, and says how fast"]
async fn postgres() {
    measure(crate::place::postgres().await).await;
}
