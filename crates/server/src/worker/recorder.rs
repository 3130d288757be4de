//! The engine's recorder without a database: each write is a call, answered when it is on disk.

use super::api::TaskApi;
use super::lease::Lease;
use super::task_log::TaskLog;
use crate::fault::{Code, Fault};
use crate::pb::{self, record_request::Write};
use crate::record_messages;
use async_trait::async_trait;
use berth_engine::ResourceState;
use berth_engine::record::{Closing, EntryId, Intent, RecordError, Recorder, Status};
use berth_engine::unit::UnitState;
use berth_model::ResourceId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

pub struct LeaseRecorder {
    pub api: Arc<dyn TaskApi>,
    pub lease: Arc<Lease>,
    /// The generation that is carried out: what is stored may be newer by the time it is Ready.
    pub generation: i64,
    pub log: Arc<TaskLog>,
    /// Whose entry it is, until it is closed.
    pub entries: Mutex<HashMap<i64, ResourceId>>,
}

impl LeaseRecorder {
    pub fn new(api: Arc<dyn TaskApi>, lease: Arc<Lease>, generation: i64, log: Arc<TaskLog>) -> Self {
        Self { api, lease, generation, log, entries: Mutex::new(HashMap::new()) }
    }

    /// Asks until it is answered or the lease is over; the key makes asking twice redacted. The lease is looked at once more
    /// when the answer has come: what follows an intent is a call to a cloud.
    async fn write(&self, resource: &ResourceId, write: Write) -> Result<i64, RecordError> {
        let request = pb::RecordRequest {
            held: Some(self.lease.held.clone()),
            resource: Some(resource.into()),
            key: uuid::Uuid::now_v7().simple().to_string(),
            write: Some(write),
        };
        let entry = until_answered(&self.lease, || self.api.record(request.clone())).await?.entry;
        if self.lease.holds() { Ok(entry) } else { Err(RecordError::Fenced) }
    }

    fn owner(&self, entry: EntryId) -> Option<ResourceId> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(&entry.0)
    }
}

/// Tries a harmlessly repeated call until it is answered, refused, or the lease is over.
pub async fn until_answered<T, F: Future<Output = Result<T, Fault>>>(
    lease: &Lease,
    call: impl Fn() -> F,
) -> Result<T, RecordError> {
    let mut pause = FIRST_PAUSE;
    loop {
        if !lease.holds() {
            return Err(RecordError::Fenced);
        }
        let fault = match call().await {
            Ok(answer) => return Ok(answer),
            Err(fault) => fault,
        };
        match fault.code {
            Code::Conflict => {
                tracing::warn!(task = %lease.held.task, %fault, "the lease is lost; stopping");
                lease.lose();
                return Err(RecordError::Fenced);
            }
            Code::Unavailable | Code::TimedOut | Code::TooMany | Code::Internal => {
                tracing::debug!(%fault, "the server did not answer; asked again");
            }
            _ => return Err(RecordError::Failed(fault.message)),
        }
        let jittered = pause.mul_f64(rand::random_range(0.5..1.0)).min(lease.left());
        tokio::time::sleep(jittered).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[async_trait]
impl Recorder for LeaseRecorder {
    async fn intent(&self, intent: Intent) -> Result<EntryId, RecordError> {
        let resource = intent.unit.resource.clone();
        self.log.line(&format!("{} {}", intent.op.as_str(), intent.what));
        let entry = self.write(&resource, Write::Intent(record_messages::intent_row(&intent))).await?;
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).insert(entry, resource);
        Ok(EntryId(entry))
    }

    async fn close(&self, entry: EntryId, closing: Closing) -> Result<(), RecordError> {
        let resource = match &closing {
            Closing::Done(Some(unit)) => {
                self.log.hide(unit.secrets.values());
                _ = self.owner(entry);
                Some(unit.resource.clone())
            }
            _ => self.owner(entry),
        };
        let resource = resource.ok_or_else(|| RecordError::Failed(format!("entry {} is not open", entry.0)))?;
        if let Closing::Failed(why) | Closing::Refused(why) = &closing {
            self.log.line(why);
        }
        self.write(&resource, Write::Close(record_messages::close_row(entry, &closing))).await.map(|_| ())
    }

    async fn save_unit(&self, unit: UnitState) -> Result<(), RecordError> {
        self.log.hide(unit.secrets.values());
        self.write(&unit.resource, Write::SaveUnit(record_messages::unit_row(&unit))).await.map(|_| ())
    }

    async fn forget_unit(&self, resource: &ResourceId, key: &str, token: &str) -> Result<(), RecordError> {
        let unit = pb::UnitKey { key: key.into(), token: token.into() };
        self.write(resource, Write::ForgetUnit(unit)).await.map(|_| ())
    }

    async fn status(&self, resource: &ResourceId, mut status: Status) -> Result<(), RecordError> {
        self.log.hide(status.secrets.values());
        status.message = self.log.redacted(&status.message);
        if status.state == ResourceState::Ready && status.observed_generation == 0 {
            status.observed_generation = self.generation;
        }
        self.write(resource, Write::Status(record_messages::status_row(&status))).await.map(|_| ())
    }

    async fn forget_resource(&self, resource: &ResourceId) -> Result<(), RecordError> {
        self.write(resource, Write::ForgetResource(true)).await.map(|_| ())
    }

    async fn event(&self, resource: &ResourceId, what: &str, detail: &str) -> Result<(), RecordError> {
        let note = pb::Note { what: what.into(), detail: self.log.redacted(detail) };
        self.write(resource, Write::Event(note)).await.map(|_| ())
    }
}
