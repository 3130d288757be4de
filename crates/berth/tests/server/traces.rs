//! A collector of traces inside the test, over real gRPC.

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
pub struct Traces(Arc<Mutex<String>>);

#[tonic::async_trait]
impl TraceService for Traces {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        // Names, attributes, events and errors, as text.
        let text = format!("{:?}\n", request.into_inner());
        self.0.lock().expect("the text").push_str(&text);
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Traces {
    /// Its address.
    pub async fn start(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let routes = tonic::service::Routes::new(TraceServiceServer::new(self.clone()));
        tokio::spawn(async move { axum::serve(listener, routes.into_axum_router()).await });
        url
    }

    pub fn text(&self) -> String {
        self.0.lock().expect("the text").clone()
    }
}
