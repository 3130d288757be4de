//! What `/metrics` shows. Counters are counted where things happen; what the database knows is asked for when it is shown.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Request {
    /// Such as `Resources.Apply`.
    pub method: &'static str,
    /// `grpc` or `rest`.
    pub protocol: &'static str,
    /// The HTTP status for REST, the code's name for gRPC.
    pub code: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Called {
    pub method: &'static str,
    pub protocol: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct State {
    pub state: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Op {
    /// `apply`, `delete`, `drift`, `plan` or `import`.
    pub op: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Sink {
    /// `file`, `syslog` or `webhook`.
    pub sink: &'static str,
}

/// From half a millisecond to a minute.
const LATENCIES: [f64; 14] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];

/// Operations in one transaction.
const BATCHES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

pub struct Inner {
    registry: Registry,
    pub requests: Family<Request, Counter>,
    latency: Family<Called, Histogram, fn() -> Histogram>,
    pub in_flight: Gauge,
    pub connections: Gauge,
    pub handshakes_failed: Counter,
    /// Looks at the database for a token.
    pub token_lookups: Counter,
    /// Refused because of a limit: too many at once, or too many a second.
    pub turned_away: Counter,
    pub watchers: Gauge,
    /// Watchers that were too slow and were let go.
    pub watchers_dropped: Counter,
    pub leases: Family<Op, Counter>,
    pub leases_expired: Counter,
    pub reports: Family<State, Counter>,
    pub fenced: Counter,
    /// The newest entry whose head a place has taken.
    pub audit_head_offered: Family<Sink, Gauge>,
    pub audit_head_failures: Family<Sink, Counter>,
    /// 1 while the log does not follow from the head that was offered before.
    pub audit_broken: Gauge,
    batch_size: Histogram,
    batch_time: Histogram,
    pub(crate) queue: Gauge,
    pub(crate) running: Gauge,
    pub(crate) tasks: Family<State, Gauge>,
    pub(crate) workers: Gauge,
    pub(crate) resources: Family<State, Gauge>,
}

impl std::ops::Deref for Metrics {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let latency: Family<Called, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(LATENCIES));
        let mut inner = Inner {
            registry: Registry::default(),
            latency,
            requests: Family::default(),
            in_flight: Gauge::default(),
            connections: Gauge::default(),
            handshakes_failed: Counter::default(),
            token_lookups: Counter::default(),
            turned_away: Counter::default(),
            watchers: Gauge::default(),
            watchers_dropped: Counter::default(),
            leases: Family::default(),
            leases_expired: Counter::default(),
            reports: Family::default(),
            fenced: Counter::default(),
            audit_head_offered: Family::default(),
            audit_head_failures: Family::default(),
            audit_broken: Gauge::default(),
            batch_size: Histogram::new(BATCHES),
            batch_time: Histogram::new(LATENCIES),
            queue: Gauge::default(),
            running: Gauge::default(),
            tasks: Family::default(),
            workers: Gauge::default(),
            resources: Family::default(),
        };
        let mut registry = Registry::with_prefix("berth");
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "What is running", build);
        registry.register("requests", "Requests answered", inner.requests.clone());
        let help = "Time from a request's head to its answer's head";
        registry.register_with_unit("request_duration", help, Unit::Seconds, inner.latency.clone());
        registry.register("requests_in_flight", "Requests being answered", inner.in_flight.clone());
        registry.register("connections", "Open connections", inner.connections.clone());
        registry.register("handshakes_failed", "TLS handshakes that failed", inner.handshakes_failed.clone());
        registry.register("token_lookups", "Looks at the database for a token", inner.token_lookups.clone());
        registry.register("requests_turned_away", "Requests refused because of a limit", inner.turned_away.clone());
        registry.register("watchers", "Callers that follow events", inner.watchers.clone());
        registry.register("watchers_dropped", "Watchers let go for being slow", inner.watchers_dropped.clone());
        registry.register("leases", "Tasks handed to workers", inner.leases.clone());
        registry.register("leases_expired", "Leases that ended without a report", inner.leases_expired.clone());
        registry.register("reports", "Ends of tasks that workers reported", inner.reports.clone());
        registry.register("fenced", "Writes of stale workers that were refused", inner.fenced.clone());
        let offered = inner.audit_head_offered.clone();
        registry.register("audit_head_offered", "Newest audit entry whose head a place outside has taken", offered);
        let failures = inner.audit_head_failures.clone();
        registry.register("audit_head_failures", "Attempts to offer the audit log's head that failed", failures);
        let broken = inner.audit_broken.clone();
        registry.register(
            "audit_broken",
            "Whether the audit log no longer follows from the head offered before",
            broken,
        );
        registry.register("database_batch_size", "Operations written in one transaction", inner.batch_size.clone());
        let help = "Time that one transaction took";
        registry.register_with_unit("database_batch_duration", help, Unit::Seconds, inner.batch_time.clone());
        registry.register("queue_depth", "Tasks that wait for a worker", inner.queue.clone());
        registry.register("tasks_running", "Tasks that workers hold", inner.running.clone());
        registry.register("tasks", "Tasks that are open, and that ended lately", inner.tasks.clone());
        registry.register("workers", "Workers seen lately", inner.workers.clone());
        registry.register("resources", "Resources", inner.resources.clone());
        inner.registry = registry;
        Self(Arc::new(inner))
    }
}

impl Metrics {
    pub fn answered(&self, method: &'static str, protocol: &'static str, code: &'static str, took: Duration) {
        self.requests.get_or_create(&Request { method, protocol, code }).inc();
        self.latency.get_or_create(&Called { method, protocol }).observe(took.as_secs_f64());
    }

    pub fn wrote(&self, operations: usize, took: Duration) {
        self.batch_size.observe(operations as f64);
        self.batch_time.observe(took.as_secs_f64());
    }

    /// Counts by state; those that are no more are forgotten.
    pub(crate) fn set(family: &Family<State, Gauge>, counts: Vec<(String, i64)>) {
        family.clear();
        for (state, count) in counts {
            family.get_or_create(&State { state }).set(count);
        }
    }

    /// In the OpenMetrics text form.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into memory cannot fail.
        _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_shown() {
        let metrics = Metrics::default();
        metrics.answered("Resources.Apply", "rest", "200", Duration::from_millis(3));
        metrics.leases_expired.inc();
        let text = metrics.text();
        for line in [
            r#"berth_requests_total{method="Resources.Apply",protocol="rest",code="200"} 1"#,
            r#"berth_request_duration_seconds_bucket{le="0.005",method="Resources.Apply",protocol="rest"} 1"#,
            "berth_leases_expired_total 1",
            "berth_build_info{version=",
            "# EOF",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
