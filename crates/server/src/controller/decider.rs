//! What is to be done about one resource. Pure but for reading what it refers to.

use super::next_check::NextChecks;
use super::{PRIORITY_CHANGE, PRIORITY_REPAIR, PRIORITY_RETRY};
use crate::fault::{Code, Fault};
use crate::tasks::read_account;
use berth_clouds::accounts::account_id;
use berth_engine::ResourceState;
use berth_model::ResourceId;
use berth_store::{Control, Decided, Decision, Due, NewTask, StoredResource, TaskOp, UnreadableRow};
use jiff::{SignedDuration, Timestamp};
use std::collections::HashMap;
use std::sync::Arc;

/// What waits for another is looked at again after this at the latest; it is woken long before.
const WAITS_AGAIN: SignedDuration = SignedDuration::from_secs(120);

/// Decides about one batch; what several refer to is read once.
pub struct Decider<'a> {
    control: &'a Control,
    now: Timestamp,
    resources: HashMap<ResourceId, Option<Arc<StoredResource>>>,
    limits: HashMap<String, u32>,
    next_checks: NextChecks<'a>,
}

impl<'a> Decider<'a> {
    pub fn new(control: &'a Control, now: Timestamp) -> Self {
        let (resources, limits) = (HashMap::new(), HashMap::new());
        Self { control, now, resources, limits, next_checks: NextChecks::new(control) }
    }

    async fn resource(&mut self, id: &ResourceId) -> Result<Option<Arc<StoredResource>>, Fault> {
        if let Some(known) = self.resources.get(id) {
            return Ok(known.clone());
        }
        let stored = self.control.store().resource(id).await?.map(Arc::new);
        self.resources.insert(id.clone(), stored.clone());
        Ok(stored)
    }

    /// How many tasks of an account may run at once; 0 for any number.
    pub async fn account_limit(&mut self, account: &str) -> Result<u32, Fault> {
        if let Some(limit) = self.limits.get(account) {
            return Ok(*limit);
        }
        let stored = match account_id(account) {
            Some(id) => self.resource(&id).await?,
            None => None,
        };
        // Read without its secrets: if those are unreadable, the task reports it.
        let limit = match stored {
            Some(stored) => read_account(&stored)?.max_concurrent_tasks,
            None => 0,
        };
        self.limits.insert(account.to_owned(), limit);
        Ok(limit)
    }

    /// What cannot be decided about one resource is its own trouble, not that of those behind it; only a database that does
    /// not answer ends the round.
    pub async fn decide(&mut self, due: Due) -> Result<Decision, Fault> {
        let what = match self.verdict(&due).await {
            Ok(what) => what,
            Err(fault) if fault.code == Code::Unavailable => return Err(fault),
            Err(fault) => {
                tracing::warn!(resource = %due.resource.id, %fault, "nothing can be decided about it");
                Decided::SettleUntil { state: ResourceState::Failed, message: fault.message, until: self.later() }
            }
        };
        Ok(Decision { id: due.resource.id, generation: due.resource.generation, due_mark: due.meta.due_mark, what })
    }

    /// A row that cannot be read is that resource's own failure.
    pub fn unreadable(&self, row: UnreadableRow) -> Decision {
        tracing::warn!(resource = %row.id, cause = %row.cause, "it cannot be read");
        let what = Decided::SettleUntil { state: ResourceState::Failed, message: row.cause, until: self.later() };
        Decision { id: row.id, generation: row.generation, due_mark: row.due_mark, what }
    }

    async fn verdict(&mut self, due: &Due) -> Result<Decided, Fault> {
        let stored = &due.resource;
        // Its end will make the resource due again.
        if due.task.is_some() {
            return Ok(Decided::Rest);
        }
        let unmade = berth_model::registry().kind(&stored.id.kind).is_none_or(|kind| kind.service.is_empty());
        if stored.deleting {
            // Those that refer to it go first; the last one's end wakes it.
            if self.control.has_children(&stored.id).await? {
                return Ok(Decided::RestUntil(self.later()));
            }
            if unmade {
                return Ok(Decided::Forget);
            }
            return Ok(Decided::Enqueue(self.task(due, TaskOp::Delete, PRIORITY_CHANGE).await?));
        }
        if unmade {
            return Ok(Decided::Rest);
        }
        if stored.settled() {
            let repairs = !due.meta.drift.is_empty() && self.next_checks.of(&stored.id, self.now).await?.1;
            return match repairs {
                true => Ok(Decided::Enqueue(self.task(due, TaskOp::Apply, PRIORITY_REPAIR).await?)),
                false => Ok(Decided::Rest),
            };
        }
        if stored.status.state == ResourceState::AwaitingApproval && due.meta.approved_by.is_empty() {
            return Ok(Decided::Rest);
        }
        if let Some(message) = self.waits_for(stored, &due.meta.account).await? {
            return Ok(Decided::SettleUntil { state: ResourceState::Pending, message, until: self.later() });
        }
        let priority = if due.meta.attempts > 0 { PRIORITY_RETRY } else { PRIORITY_CHANGE };
        Ok(Decided::Enqueue(self.task(due, TaskOp::Apply, priority).await?))
    }

    fn later(&self) -> Timestamp {
        self.now.checked_add(WAITS_AGAIN).unwrap_or(self.now)
    }

    /// Why it cannot begin yet: what it refers to must be Ready first.
    async fn waits_for(&mut self, stored: &StoredResource, account: &str) -> Result<Option<String>, Fault> {
        let manifest = stored.manifest(&stored.sealed_manifest()?)?;
        let needed = manifest.refs().into_iter().map(|r| (r.to, true));
        // A plain name may be the cloud's own: it counts where a resource has it.
        let named = manifest.named().into_iter().map(|r| (r.to, false));
        for (parent, must) in needed.chain(named).filter(|(parent, _)| *parent != stored.id) {
            match self.resource(&parent).await? {
                None if must => return Ok(Some(format!("waits for {parent}, which is not applied"))),
                None => {}
                Some(other) if other.deleting => {
                    return Ok(Some(format!("waits for {parent}, which is being deleted")));
                }
                Some(other) if !other.settled() => {
                    let state = other.status.state;
                    return Ok(Some(match state {
                        ResourceState::Failed | ResourceState::Blocked | ResourceState::AwaitingApproval => {
                            format!("waits for {parent}, which is {state}")
                        }
                        _ => format!("waits for {parent}"),
                    }));
                }
                Some(_) => {}
            }
        }
        if let Some(account) = account_id(account).filter(|id| *id != stored.id)
            && let Some(other) = self.resource(&account).await?
            && !other.settled()
        {
            return Ok(Some(format!("waits for {account}, which is {}", other.status.state)));
        }
        Ok(None)
    }

    async fn task(&mut self, due: &Due, op: TaskOp, priority: i32) -> Result<NewTask, Fault> {
        let stored = &due.resource;
        let account_limit = self.account_limit(&due.meta.account).await?;
        Ok(NewTask {
            op,
            resource: Some(stored.id.clone()),
            resources: Vec::new(),
            org: stored.id.org.clone(),
            service: due.meta.service.clone(),
            account: due.meta.account.clone(),
            account_limit,
            priority,
            run_after: self.now,
            generation: stored.generation,
            refresh: false,
            payload: None,
            trace: due.meta.trace.clone(),
        })
    }
}
