//! A worker: leases a task, looks, journals, calls the cloud, records, reports. It knows nothing but what the server answers.

use crate::world::{SharedWorld, cloud};
use berth_engine::ResourceState;
use berth_engine::record::{Closing, EntryId, Intent, Status};
use berth_engine::unit::{Op, Props, UnitState};
use berth_model::ResourceId;
use berth_store::{Ending, Held, Recorded, TaskOp, TaskOutcome};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::future::poll_fn;
use std::task::Poll;

pub const LEASE: SignedDuration = SignedDuration::from_secs(30);

/// A task with its context.
#[derive(Clone, Debug)]
pub struct Work {
    pub held: Held,
    pub op: TaskOp,
    pub resource: ResourceId,
    pub generation: i64,
    pub units: Vec<UnitState>,
}

#[derive(Clone, Debug)]
pub enum Request {
    Lease { worker: String },
    Beat { worker: String, held: Held },
    Record { held: Held, key: String, write: Box<Recorded> },
    Report { held: Held, ending: Box<Ending> },
    Release { held: Held },
}

#[derive(Clone, Debug)]
pub enum Answer {
    Leased(Option<Box<Work>>),
    /// Kept, and whether to stop.
    Beat {
        kept: bool,
        cancel: bool,
    },
    Recorded(Option<EntryId>),
    Done,
    Fenced,
    /// Nobody knows whether it took effect.
    Lost,
}

pub struct Worker {
    pub world: SharedWorld,
    pub name: String,
    pub number: usize,
}

/// Why a task was left.
enum Left {
    Fenced,
    /// The lease may have ended: nothing more is done.
    Late,
    Cancelled,
}

impl Worker {
    async fn call(&self, request: Request) -> Answer {
        let number = {
            let mut world = self.world.borrow_mut();
            let number = world.number();
            world.requests.push(crate::world::Sent { number, worker: self.number, request });
            number
        };
        poll_fn(|_| match self.world.borrow_mut().arrived.remove(&number) {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        })
        .await
    }

    fn now(&self) -> Timestamp {
        self.world.borrow().now
    }

    /// For ever: until the scheduler drops it.
    pub async fn run(self) {
        loop {
            let sent = self.now();
            let answer = self.call(Request::Lease { worker: self.name.clone() }).await;
            if let Answer::Leased(Some(work)) = answer {
                let mut task = Task { worker: &self, until: sent + LEASE, keys: 0, work: *work };
                match task.carry_out().await {
                    Ok(()) | Err(Left::Fenced | Left::Late) => {}
                    Err(Left::Cancelled) => {
                        let ending = Ending::new(TaskOutcome::Cancelled, "asked to stop");
                        let _ =
                            task.send(Request::Report { held: task.work.held.clone(), ending: ending.into() }).await;
                    }
                }
            }
        }
    }
}

struct Task<'a> {
    worker: &'a Worker,
    /// Counted from before the lease was asked for.
    until: Timestamp,
    keys: u32,
    work: Work,
}

impl Task<'_> {
    fn in_time(&self) -> Result<(), Left> {
        if self.worker.now() < self.until { Ok(()) } else { Err(Left::Late) }
    }

    /// Says it again while the answer is lost and there is time.
    async fn send(&mut self, request: Request) -> Result<Answer, Left> {
        loop {
            self.in_time()?;
            match self.worker.call(request.clone()).await {
                Answer::Lost => {}
                Answer::Fenced => return Err(Left::Fenced),
                answer => return Ok(answer),
            }
        }
    }

    async fn record(&mut self, write: Recorded) -> Result<Option<EntryId>, Left> {
        self.keys += 1;
        let key = format!("{}-{}", self.work.held.fence, self.keys);
        let request = Request::Record { held: self.work.held.clone(), key, write: Box::new(write) };
        match self.send(request).await? {
            Answer::Recorded(entry) => Ok(entry),
            _ => Err(Left::Fenced),
        }
    }

    /// Before every call to the cloud.
    async fn still_ours(&mut self) -> Result<(), Left> {
        let now = self.worker.now();
        if now + LEASE / 2 >= self.until {
            let request = Request::Beat { worker: self.worker.name.clone(), held: self.work.held.clone() };
            match self.send(request).await? {
                Answer::Beat { cancel: true, .. } => return Err(Left::Cancelled),
                // Counted from before the first time it was said.
                Answer::Beat { kept: true, .. } => self.until = self.until.max(now + LEASE),
                _ => return Err(Left::Fenced),
            }
        }
        self.in_time()
    }

    async fn carry_out(&mut self) -> Result<(), Left> {
        self.in_time()?;
        if self.faulty() {
            let request = Request::Release { held: self.work.held.clone() };
            self.send(request).await?;
            return Ok(());
        }
        match self.work.op {
            TaskOp::Delete => self.delete().await?,
            _ => self.apply().await?,
        }
        let mut ending = Ending::new(TaskOutcome::Done, "");
        if self.work.op == TaskOp::Apply && self.faulty() {
            ending = Ending::new(TaskOutcome::Failed, "the cloud said no");
            ending.retry_at = Some(self.worker.now() + SignedDuration::from_secs(3));
        }
        self.send(Request::Report { held: self.work.held.clone(), ending: ending.into() }).await?;
        Ok(())
    }

    fn faulty(&self) -> bool {
        let mut world = self.worker.world.borrow_mut();
        !world.calm && world.rng.once_in(12)
    }

    fn unit(&self, token: &str, object: Option<u64>, generation: i64) -> UnitState {
        UnitState {
            resource: self.work.resource.clone(),
            key: "network".into(),
            token: token.into(),
            unit_type: "sim.network".into(),
            scope: "here".into(),
            account: "main".into(),
            identity: None,
            id: object.map(|id| id.to_string()),
            props: json!({ "generation": generation }).as_object().cloned().unwrap_or_default(),
            outputs: Props::new(),
            secrets: Default::default(),
            deposed: false,
            ready: true,
            updated_at: Timestamp::UNIX_EPOCH,
        }
    }

    async fn intent(&mut self, op: Op, unit: UnitState) -> Result<EntryId, Left> {
        let intent = Intent { op, what: "a network".into(), unit };
        self.record(Recorded::Intent(intent)).await?.ok_or(Left::Fenced)
    }

    async fn close(&mut self, entry: EntryId, unit: Option<UnitState>) -> Result<(), Left> {
        let closing = Closing::Done(unit.map(Box::new));
        self.record(Recorded::Close { entry, closing }).await.map(|_| ())
    }

    async fn apply(&mut self) -> Result<(), Left> {
        let Work { held, resource, generation, .. } = self.work.clone();
        let status = |state| Recorded::Status {
            resource: resource.clone(),
            status: Status { state, observed_generation: generation, ..Status::default() },
        };
        let mut known = self.work.units.first().cloned();
        // Looks before it acts: a delete that was begun may have taken effect.
        self.still_ours().await?;
        if let Some(unit) = &known
            && let Some(object) = unit.id.as_ref().and_then(|id| id.parse().ok())
            && !cloud(&self.worker.world, &held, |cloud| cloud.objects.contains_key(&object))
        {
            let (key, token) = (unit.key.clone(), unit.token.clone());
            self.record(Recorded::ForgetUnit { resource: resource.clone(), key, token }).await?;
            known = None;
        }
        let (token, object) = match known {
            Some(unit) => {
                let object = unit.id.as_ref().and_then(|id| id.parse().ok());
                (unit.token, object)
            }
            None => {
                let number = self.worker.world.borrow_mut().number();
                (format!("token-{number}"), None)
            }
        };
        if object.is_none() {
            // Journalled first: whoever comes after us looks for this token.
            let entry = self.intent(Op::Create, self.unit(&token, None, generation)).await?;
            self.still_ours().await?;
            let made = cloud(&self.worker.world, &held, |cloud| {
                cloud.find(&resource, &token).unwrap_or_else(|| cloud.create(&resource, &token, generation))
            });
            // One that was found may be of an earlier generation.
            cloud(&self.worker.world, &held, |cloud| cloud.update(made, generation));
            self.close(entry, Some(self.unit(&token, Some(made), generation))).await?;
        } else if let Some(id) = object {
            let entry = self.intent(Op::Update, self.unit(&token, object, generation)).await?;
            self.still_ours().await?;
            cloud(&self.worker.world, &held, |cloud| cloud.update(id, generation));
            self.close(entry, Some(self.unit(&token, object, generation))).await?;
        }
        self.record(status(ResourceState::Ready)).await.map(|_| ())
    }

    async fn delete(&mut self) -> Result<(), Left> {
        let Work { held, resource, units, .. } = self.work.clone();
        for unit in units {
            let entry = self.intent(Op::Delete, unit.clone()).await?;
            self.still_ours().await?;
            cloud(&self.worker.world, &held, |cloud| {
                let known = unit.id.as_ref().and_then(|id| id.parse().ok());
                if let Some(id) = known.or_else(|| cloud.find(&resource, &unit.token)) {
                    cloud.delete(id);
                }
            });
            self.close(entry, None).await?;
        }
        self.record(Recorded::ForgetResource(resource)).await.map(|_| ())
    }
}
