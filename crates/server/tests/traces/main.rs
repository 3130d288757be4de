//! One trace from a REST request, over the store and the task that it led to, to each call to a cloud; received by a real
//! OTLP receiver. In a process of its own: telemetry is of the whole process.

#[path = "../support/mod.rs"]
mod support;
#[path = "../api/world.rs"]
#[allow(dead_code)]
mod world;

use berth_server::telemetry::{self, LogFormat, Telemetry};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::trace::v1::Span;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tonic::{Request, Response, Status};
use world::{World, vpc};

#[derive(Clone, Default)]
struct Receiver(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let scopes = request.into_inner().resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        self.0.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// Serves gRPC without TLS, as a collector beside a server does.
async fn receive(receiver: Receiver) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = tonic::service::Routes::new(TraceServiceServer::new(receiver)).prepare().into_axum_router();
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_from_a_request_to_a_call_to_a_cloud() {
    let receiver = Receiver::default();
    let endpoint = receive(receiver.clone()).await;
    let guard = telemetry::start(&Telemetry {
        service: "berth-server",
        format: LogFormat::Json,
        otlp_endpoint: Some(endpoint),
        ..Telemetry::default()
    })
    .unwrap();
    let world = World::busy().await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let body = serde_json::json!({"files": [{"name": "a.yaml", "text": vpc("net")}]});
    let request = world.request(reqwest::Method::POST, "/v1/resources").json(&body);
    let answer = request.header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    world.ready("/v1/resources/CivoVpc/net").await;

    let ours = |span: &&Span| span.trace_id.iter().map(|byte| format!("{byte:02x}")).collect::<String>() == trace;
    let text = |span: &Span, key: &str| {
        let value = span.attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?;
        Some(format!("{:?}", value.value?))
    };
    let end = Instant::now() + Duration::from_secs(30);
    let spans = loop {
        let spans: Vec<Span> = receiver.0.lock().unwrap().iter().filter(ours).cloned().collect();
        let made =
            |span: &Span| span.name == "call" && text(span, "method").is_some_and(|method| method.contains("POST"));
        if spans.iter().any(made) && spans.iter().any(|span| span.name == "task") {
            break spans;
        }
        assert!(Instant::now() < end, "{:?}", spans.iter().map(|span| &span.name).collect::<Vec<_>>());
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let one = |name: &str| spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no span {name}"));
    // The request is the caller's child, the write and the task are the request's, and the call is the task's.
    let request = one("Resources.Apply");
    assert_eq!(request.parent_span_id, [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
    let write = spans.iter().any(|span| span.name == "write" && span.parent_span_id == request.span_id);
    assert!(write, "the write is not in the request");
    let task = one("task");
    assert_eq!(task.parent_span_id, request.span_id);
    let calls: Vec<&Span> = spans.iter().filter(|span| span.name == "call").collect();
    assert!(calls.iter().all(|call| call.parent_span_id == task.span_id), "{calls:?}");
    assert!(calls.iter().any(|call| text(call, "status").is_some()));
    // What travels in a trace is nobody's secret.
    let all = format!("{:?}", receiver.0.lock().unwrap());
    for secret in [world.token.as_str(), "Bearer"] {
        assert!(!all.contains(secret), "a trace holds {secret}");
    }
    world.stop().await;
    guard.stop();
}
