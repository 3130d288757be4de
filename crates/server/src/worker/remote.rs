//! The task manager over the network: one server at a time, the next one when it does not answer.

use super::api::TaskApi;
use crate::client::{Client, Connection};
use crate::fault::{Code, Fault};
use crate::pb;
use async_trait::async_trait;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tonic::{Request, Response, Status};

/// How long a server may take to answer what it need not wait for.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// What a long poll may take beyond the time that it asked for.
const POLL_GRACE: Duration = Duration::from_secs(10);

/// The servers that a worker was given.
pub struct Servers {
    connections: Vec<Connection>,
    current: Mutex<Current>,
}

struct Current {
    index: usize,
    client: Option<Client>,
}

impl Servers {
    /// At least one.
    pub fn new(connections: Vec<Connection>) -> Result<Self, Fault> {
        if connections.is_empty() {
            return Err(Fault::new(Code::InvalidArgument, "no server is given").help("give one with --server URL"));
        }
        Ok(Self { connections, current: Mutex::new(Current { index: 0, client: None }) })
    }

    fn current(&self) -> (usize, Option<Client>) {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        (current.index, current.client.clone())
    }

    async fn client(&self) -> Result<(usize, Client), Fault> {
        let (index, client) = self.current();
        if let Some(client) = client {
            return Ok((index, client));
        }
        let client = match self.connections[index].connect().await {
            Ok(client) => client,
            Err(fault) => {
                self.leave(index);
                return Err(fault);
            }
        };
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.index == index {
            current.client = Some(client.clone());
        }
        Ok((index, client))
    }

    /// The next server's turn, unless someone has already moved on.
    fn leave(&self, index: usize) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.index == index {
            current.index = (index + 1) % self.connections.len();
            current.client = None;
        }
    }

    async fn call<Q, R, F>(
        &self,
        within: Duration,
        message: Q,
        call: impl FnOnce(Client, Request<Q>) -> F,
    ) -> Result<R, Fault>
    where
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let (index, client) = self.client().await?;
        let mut request = Request::new(message);
        request.set_timeout(within);
        // The limit in the request is the server's to keep; a server that hangs keeps none.
        let answer = tokio::time::timeout(within, call(client.clone(), request)).await;
        let fault = match answer {
            Ok(Ok(answer)) => return Ok(answer.into_inner()),
            Ok(Err(status)) => client.fault(&status),
            Err(_) => Fault::new(Code::TimedOut, format!("{} did not answer in time", self.connections[index].url)),
        };
        if matches!(fault.code, Code::Unavailable | Code::TimedOut | Code::Internal) {
            self.leave(index);
        }
        Err(fault)
    }
}

#[async_trait]
impl TaskApi for Servers {
    async fn lease(&self, request: pb::LeaseRequest) -> Result<pb::LeaseResponse, Fault> {
        let within = Duration::from_secs(request.wait_seconds.into()) + POLL_GRACE;
        self.call(within, request, |client, request| async move { client.worker().lease(request).await }).await
    }

    async fn heartbeat(&self, request: pb::HeartbeatRequest) -> Result<pb::HeartbeatResponse, Fault> {
        self.call(ANSWER_WITHIN, request, |client, request| async move { client.worker().heartbeat(request).await })
            .await
    }

    async fn submit_plan(&self, request: pb::SubmitPlanRequest) -> Result<pb::SubmitPlanResponse, Fault> {
        self.call(ANSWER_WITHIN, request, |client, request| async move { client.worker().submit_plan(request).await })
            .await
    }

    async fn record(&self, request: pb::RecordRequest) -> Result<pb::RecordResponse, Fault> {
        self.call(ANSWER_WITHIN, request, |client, request| async move { client.worker().record(request).await }).await
    }

    async fn progress(&self, request: pb::ProgressRequest) -> Result<(), Fault> {
        self.call(ANSWER_WITHIN, request, |client, request| async move { client.worker().progress(request).await })
            .await
            .map(|_: pb::ProgressResponse| ())
    }

    async fn report(&self, request: pb::ReportRequest) -> Result<(), Fault> {
        self.call(ANSWER_WITHIN, request, |client, request| async move { client.worker().report(request).await })
            .await
            .map(|_: pb::ReportResponse| ())
    }

    async fn release(&self, request: pb::ReleaseRequest) -> Result<(), Fault> {
        self.call(ANSWER_WITHIN, request, |client, request| async move { client.worker().release(request).await })
            .await
            .map(|_: pb::ReleaseResponse| ())
    }

    fn place(&self) -> String {
        self.connections[self.current().0].url.clone()
    }
}
