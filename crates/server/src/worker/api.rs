//! What a worker may ask of the task manager, over the network or inside a server.

use crate::fault::Fault;
use crate::pb;
use async_trait::async_trait;

#[async_trait]
pub trait TaskApi: Send + Sync {
    async fn lease(&self, request: pb::LeaseRequest) -> Result<pb::LeaseResponse, Fault>;
    async fn heartbeat(&self, request: pb::HeartbeatRequest) -> Result<pb::HeartbeatResponse, Fault>;
    async fn submit_plan(&self, request: pb::SubmitPlanRequest) -> Result<pb::SubmitPlanResponse, Fault>;
    async fn record(&self, request: pb::RecordRequest) -> Result<pb::RecordResponse, Fault>;
    async fn progress(&self, request: pb::ProgressRequest) -> Result<(), Fault>;
    async fn report(&self, request: pb::ReportRequest) -> Result<(), Fault>;
    async fn release(&self, request: pb::ReleaseRequest) -> Result<(), Fault>;
    /// Where it is, for messages.
    fn place(&self) -> String;
}
