//! Logs, and traces from a request over the task that it led to, to each call to a cloud.

use crate::api::methods::Method;
use axum::body::Body;
use axum::http::Request;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::time::Duration;
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

/// Bytes of a path that the log shows; paths are ASCII.
const PATH_SHOWN: usize = 200;
/// How long the last spans may take to be sent when the process ends.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Text,
    /// One object for each line.
    Json,
}

#[derive(Clone, Debug, Default)]
pub struct Telemetry {
    /// Such as `berth-server`.
    pub service: &'static str,
    pub format: LogFormat,
    /// 0: what matters, 1: every request, 2: more.
    pub verbose: u8,
    pub color: bool,
    /// Such as `http://127.0.0.1:4317`; none: no traces are sent.
    pub otlp_endpoint: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("traces cannot be sent to {endpoint}")]
    Otlp { endpoint: String, source: opentelemetry_otlp::ExporterBuildError },
}

/// Sends what is left when it is dropped or stopped.
pub struct TracerShutdown(Option<SdkTracerProvider>);

impl TracerShutdown {
    pub fn stop(self) {
        if let Some(provider) = &self.0
            && let Err(error) = provider.shutdown_with_timeout(FLUSH_WITHIN)
        {
            tracing::warn!(%error, "the last traces could not be sent");
        }
    }
}

/// Starts logs, and traces where an endpoint is given. Inside a runtime; once for a process.
pub fn start(telemetry: &Telemetry) -> Result<TracerShutdown, TelemetryError> {
    let level = match telemetry.verbose {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // Only Berth's own crates speak: an HTTP library's log could show headers, and tokens with them.
    let targets = || Targets::new().with_target("berth", level);
    let plain = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let mut layers: Vec<Box<dyn Layer<Registry> + Send + Sync>> = vec![match telemetry.format {
        LogFormat::Text => plain.with_ansi(telemetry.color).with_filter(targets()).boxed(),
        LogFormat::Json => {
            let json = plain.json().flatten_event(true).with_current_span(true).with_span_list(false);
            json.with_filter(targets()).boxed()
        }
    }];
    let provider =
        telemetry.otlp_endpoint.as_deref().map(|endpoint| provider(telemetry.service, endpoint)).transpose()?;
    if let Some(provider) = &provider {
        let traces = tracing_opentelemetry::layer().with_tracer(provider.tracer("berth"));
        layers.push(traces.with_filter(Targets::new().with_target("berth", LevelFilter::INFO)).boxed());
    }
    tracing_subscriber::registry().with(layers).init();
    Ok(TracerShutdown(provider))
}

fn provider(service: &'static str, endpoint: &str) -> Result<SdkTracerProvider, TelemetryError> {
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()
        .map_err(|source| TelemetryError::Otlp { endpoint: endpoint.to_owned(), source })?;
    let resource = Resource::builder()
        .with_service_name(service)
        .with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    Ok(SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build())
}

/// A span for a request; a caller's trace goes on in it.
pub fn request_span(request: &Request<Body>, method: Option<&'static Method>) -> Span {
    let name = method.map_or("request", |method| method.label.as_str());
    let path = request.uri().path();
    let span = tracing::info_span!(
        "request",
        otel.name = name,
        otel.kind = "server",
        http.method = %request.method(),
        http.path = path.get(..PATH_SHOWN).unwrap_or(path),
        code = Empty,
    );
    if let Some(parent) = request.headers().get("traceparent").and_then(|value| value.to_str().ok()) {
        go_on(&span, parent);
    }
    span
}

pub fn answered(span: &Span, label: &str, code: &str, took: Duration) {
    if span.is_disabled() {
        return;
    }
    span.record("code", code);
    span.in_scope(|| tracing::debug!(method = label, code, ms = took.as_secs_f64() * 1000.0, "answered"));
}

/// Makes a span part of the trace that a `traceparent` names.
pub fn go_on(span: &Span, traceparent: &str) {
    if traceparent.is_empty() || span.is_disabled() {
        return;
    }
    let context = TraceContextPropagator::new().extract(&TraceParent(traceparent));
    if context.span().span_context().is_valid() {
        _ = span.set_parent(context);
    }
}

/// The W3C trace context of the current span, to be kept with a task; empty where nothing is traced.
pub fn traceparent() -> String {
    let mut text = String::new();
    let context = Span::current().context();
    if context.span().span_context().is_valid() {
        TraceContextPropagator::new().inject_context(&context, &mut TraceParentText(&mut text));
    }
    text
}

struct TraceParent<'t>(&'t str);

impl Extractor for TraceParent<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == "traceparent").then_some(self.0)
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent"]
    }
}

struct TraceParentText<'t>(&'t mut String);

impl Injector for TraceParentText<'_> {
    fn set(&mut self, key: &str, value: String) {
        if key == "traceparent" {
            *self.0 = value;
        }
    }
}
