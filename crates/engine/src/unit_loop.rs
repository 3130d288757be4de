//! One unit, from whatever it is to what it should be: look, decide, act, and look again.
//!
//! Every pass starts from what the cloud shows, never from what the last call claimed. So a lost answer, a restart after
//! `kill -9` and the ordinary path are the same code.

use crate::converge::{Shared, Stop};
use crate::diff::{FieldChange, Takes, diff, op_for};
use crate::handler::{Class, Handler, Provider, Trouble};
use crate::observe::read_one;
use crate::plan::{UnitPlan, taken};
use crate::progress::Progress;
use crate::record::{Closing, Intent};
use crate::unit::{Observed, Op, Phase, Props, Unit, UnitState};
use berth_model::ResourceId;
use jiff::Timestamp;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Failed calls in a row before a unit is given up.
const TRIES: u32 = 15;
/// A new object may take this long to show up in reads.
const SHOWS_UP_WITHIN: Duration = Duration::from_secs(30);
/// Updates that were accepted and changed nothing before the cloud is taken at its word.
const USELESS_UPDATES: u32 = 12;
/// A delete that was accepted is asked for again when the object still looks untouched after this.
const DELETE_SHOWS_WITHIN: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

pub(crate) struct UnitRun<'a> {
    pub cx: &'a Shared<'a>,
    pub resource: &'a ResourceId,
    pub unit: &'a Unit,
    pub account: &'a str,
    pub provider: &'a dyn Provider,
    pub handler: &'a dyn Handler,
    /// What the plan announced; nothing that takes something away is done without it.
    pub planned: Option<&'a UnitPlan>,
    pub deadline: Instant,
    pub wait: bool,
}

/// How a unit ended up.
pub(crate) struct Made {
    pub state: UnitState,
    pub observed: Option<Observed>,
    /// Still on its way: nobody waited.
    pub pending: bool,
    pub gate: Option<String>,
}

/// Counts failures in a row and waits in between.
struct Patience {
    failures: u32,
}

impl Patience {
    async fn after(&mut self, cx: &Shared<'_>, trouble: Trouble) -> Result<(), Stop> {
        let Class::Retry { after } = trouble.class else { return Err(trouble.into()) };
        self.failures += 1;
        if self.failures >= TRIES {
            let message = format!("gave up after {TRIES} tries: {}", trouble.message);
            return Err(Trouble { message, ..trouble }.help("run the same command again to go on").into());
        }
        let backoff =
            Duration::from_millis(100).saturating_mul(1 << self.failures.min(6)).mul_f64(rand::random_range(0.5..1.0));
        cx.pause(after.map_or(backoff, |a| a.min(Duration::from_secs(60)))).await
    }
}

/// How long to wait before looking again: in proportion to how long it has taken already, so that short waits cost
/// little time and long ones few calls.
fn pause_after(waited: Duration) -> Duration {
    (waited / 12).clamp(FIRST_PAUSE, LONGEST_PAUSE)
}

impl UnitRun<'_> {
    pub async fn make(
        &self,
        mut props: Props,
        mut state: Option<UnitState>,
        mut deposed: Vec<UnitState>,
        hint: Option<Option<Observed>>,
    ) -> Result<Made, Stop> {
        let mut looked = hint;
        let mut patience = Patience { failures: 0 };
        let mut checked = false;
        let mut created_at: Option<Instant> = None;
        let mut waiting = Instant::now();
        let mut useless: (Vec<FieldChange>, u32) = (Vec::new(), 0);
        let mut acted = false;
        loop {
            self.cx.go_on()?;
            let observed = match (looked.take(), &state) {
                (Some(observed), _) => observed,
                (None, None) => None,
                (None, Some(row)) => match read_one(self.provider, row).await {
                    Ok(observed) => {
                        patience.failures = 0;
                        observed
                    }
                    Err(trouble) => {
                        patience.after(self.cx, trouble).await?;
                        continue;
                    }
                },
            };

            let Some(observed) = observed else {
                if let Some(row) = &state
                    && row.id.is_some()
                {
                    if created_at.is_some_and(|at| at.elapsed() < SHOWS_UP_WITHIN) {
                        self.cx.pause(pause_after(waiting.elapsed())).await?;
                        continue;
                    }
                    self.cx.recorder.forget_unit(self.resource, &row.key, &row.token).await?;
                    state = None;
                }
                if !self.planned.is_some_and(|p| matches!(p.op, Some(Op::Create | Op::Replace | Op::Adopt))) && !acted {
                    return Err(self.moved("it is gone").into());
                }
                if !checked {
                    match self.handler.check(props.clone(), None).await {
                        Ok(resolved) => (props, checked) = (resolved, true),
                        Err(trouble) => {
                            patience.after(self.cx, trouble).await?;
                            continue;
                        }
                    }
                }
                match self.create(&props, state.take(), !deposed.is_empty()).await? {
                    Ok(row) => {
                        patience.failures = 0;
                        if row.id.is_some() {
                            created_at = Some(Instant::now());
                        }
                        state = Some(row);
                        acted = true;
                        waiting = Instant::now();
                    }
                    Err((row, trouble)) => {
                        state = Some(row);
                        patience.after(self.cx, trouble).await?;
                    }
                }
                continue;
            };

            let Some(row) = state.as_mut() else {
                // Only a row leads to a look; without one there is nothing to compare with.
                return Err(self.moved("it appeared").into());
            };
            if row.id.as_deref() != Some(&observed.id) {
                row.id = Some(observed.id.clone());
                row.updated_at = Timestamp::now();
                self.cx.recorder.save_unit(row.clone()).await?;
                acted = true;
            }

            match &observed.phase {
                Phase::Failed { reason } => {
                    let id = &observed.id;
                    return Err(Trouble::refused(format!("{} {id} failed in the cloud: {reason}", self.unit.unit_type))
                        .help("look at it in the cloud's own console; delete it there or with `berth delete`, then apply again")
                        .into());
                }
                Phase::Pending { .. } | Phase::Deleting => {
                    let what = match &observed.phase {
                        Phase::Pending { what } => what.as_str(),
                        _ => "being deleted",
                    };
                    if !self.wait && observed.phase != Phase::Deleting {
                        return self.leave(row.clone(), &props, observed).await;
                    }
                    self.overdue(&observed.id, what)?;
                    self.doing(what);
                    self.cx.pause(pause_after(waiting.elapsed())).await?;
                    continue;
                }
                Phase::Ready => {}
            }

            let mut changes = diff(self.handler, &props, &observed);
            if !changes.is_empty() && !checked {
                match self.handler.check(props.clone(), Some(&observed)).await {
                    Ok(resolved) => (props, checked) = (resolved, true),
                    Err(trouble) => {
                        patience.after(self.cx, trouble).await?;
                        looked = Some(Some(observed));
                        continue;
                    }
                }
                changes = diff(self.handler, &props, &observed);
            }
            let rolls = changes.iter().any(|c| c.takes == Takes::Roll);
            match op_for(&changes) {
                None if !deposed.is_empty() && row.ready => {
                    for old in deposed.drain(..) {
                        self.doing("removing what was replaced");
                        self.delete(old, true).await?;
                    }
                    waiting = Instant::now();
                }
                None => match self.settle(row, &props, &observed, &mut patience, &mut waiting).await? {
                    Settled::NotYet => {}
                    // Once more around: the old object's name may be free now.
                    Settled::Ready(_) if !deposed.is_empty() => looked = Some(Some(observed)),
                    Settled::Ready(gate) => {
                        return Ok(Made { state: row.clone(), observed: Some(observed), pending: false, gate });
                    }
                },
                // A new object under a temporary name is right as it is until the old one is gone.
                Some(Op::Update) if !deposed.is_empty() && only_names(&changes) && row.ready => {
                    for old in deposed.drain(..) {
                        self.doing("removing what was replaced");
                        self.delete(old, true).await?;
                    }
                }
                Some(Op::Update) if !deposed.is_empty() && only_names(&changes) => {
                    self.settle(row, &props, &observed, &mut patience, &mut waiting).await?;
                }
                Some(Op::Update) => {
                    let allowed = self.planned.is_some_and(|p| match p.op {
                        Some(Op::Create | Op::Replace) => true,
                        Some(Op::Update | Op::Adopt) => !rolls || p.is_destructive(),
                        _ => false,
                    });
                    if !allowed {
                        return Err(self.moved(&format!("{} is {}", changes[0].field, changes[0].from)).into());
                    }
                    if useless.0 == changes {
                        useless.1 += 1;
                        if useless.1 > USELESS_UPDATES {
                            let c = &changes[0];
                            let message = format!(
                                "the cloud accepted the change of {} and still shows {} in place of {}",
                                c.field, c.from, c.to
                            );
                            return Err(Trouble::refused(message).into());
                        }
                        if useless.1 > 2 {
                            self.cx.pause(Duration::from_millis(50) * useless.1 * useless.1).await?;
                        }
                    } else {
                        useless = (changes.clone(), 0);
                    }
                    match self.update(row, &props, &observed, &changes).await? {
                        Ok(()) => {
                            patience.failures = 0;
                            waiting = Instant::now();
                        }
                        Err(trouble) => patience.after(self.cx, trouble).await?,
                    }
                    acted = true;
                }
                Some(_) => {
                    let forcing = changes.iter().find(|c| c.takes == Takes::Replace).map_or("", |c| &c.field);
                    let allowed = self.planned.is_some_and(|p| p.op == Some(Op::Replace));
                    if !allowed || acted || !deposed.is_empty() {
                        return Err(self.moved(&format!("{forcing} differs, which takes a replacement")).into());
                    }
                    if let Some(why) = changes.iter().find_map(|c| self.handler.refuse_change(&c.field, &c.from, &c.to))
                    {
                        return Err(Trouble::refused(why).into());
                    }
                    let mut old = row.clone();
                    old.deposed = true;
                    self.cx.recorder.save_unit(old.clone()).await?;
                    deposed.push(old);
                    (state, acted, checked) = (None, true, false);
                }
            }
        }
    }

    /// Begins the object: intent, call, outcome. A lost answer leaves the row, so that the next pass looks for it.
    async fn create(
        &self,
        props: &Props,
        row: Option<UnitState>,
        replacing: bool,
    ) -> Result<Result<UnitState, (UnitState, Trouble)>, Stop> {
        let retried = row.is_some();
        let mut row = row.unwrap_or_else(|| UnitState {
            resource: self.resource.clone(),
            key: self.unit.key.clone(),
            token: uuid::Uuid::now_v7().simple().to_string(),
            unit_type: self.unit.unit_type.clone(),
            scope: self.unit.scope.clone(),
            account: self.account.to_owned(),
            id: None,
            props: props.clone(),
            outputs: Props::new(),
            secrets: Default::default(),
            deposed: false,
            ready: false,
            updated_at: Timestamp::now(),
        });
        row.props = props.clone();
        self.doing("creating");
        let intent = Intent { op: Op::Create, what: self.what(props), unit: row.clone() };
        let entry = self.cx.recorder.intent(intent).await?;
        match self.handler.create(props, &row.token, replacing).await {
            Ok(id) => {
                row.id = Some(id);
                row.updated_at = Timestamp::now();
                self.cx.recorder.close(entry, Closing::Done(Some(Box::new(row.clone())))).await?;
                Ok(Ok(row))
            }
            Err(trouble) if trouble.is_retry() => {
                self.cx.recorder.close(entry, Closing::Failed(trouble.message.clone())).await?;
                Ok(Err((row, trouble)))
            }
            Err(trouble) => {
                if let Class::Taken { id } = &trouble.class {
                    // Taken by our own earlier attempt whose answer was lost: the next pass finds it by its token.
                    if retried && let Ok(Some(_)) = read_one(self.provider, &row).await {
                        self.cx.recorder.close(entry, Closing::Failed("made by an earlier attempt".into())).await?;
                        return Ok(Ok(row));
                    }
                    self.cx.recorder.close(entry, Closing::Refused(trouble.message.clone())).await?;
                    let found = match id {
                        Some(id) => id.clone(),
                        None => self.handler.find(props, None).await.ok().flatten().map(|o| o.id).unwrap_or_default(),
                    };
                    return Err(taken(self.unit, self.resource, props, &found).into());
                }
                self.cx.recorder.close(entry, Closing::Refused(trouble.message.clone())).await?;
                Err(trouble.into())
            }
        }
    }

    async fn update(
        &self,
        row: &mut UnitState,
        props: &Props,
        observed: &Observed,
        changes: &[FieldChange],
    ) -> Result<Result<(), Trouble>, Stop> {
        let fields: Vec<&str> = changes.iter().map(|c| c.field.as_str()).collect();
        self.doing(&format!("changing {}", fields.join(", ")));
        row.ready = false;
        let what = format!("{}: {}", self.what(props), fields.join(", "));
        let entry = self.cx.recorder.intent(Intent { op: Op::Update, what, unit: row.clone() }).await?;
        match self.handler.update(observed, props, &fields).await {
            Ok(()) => {
                row.updated_at = Timestamp::now();
                self.cx.recorder.close(entry, Closing::Done(Some(Box::new(row.clone())))).await?;
                Ok(Ok(()))
            }
            Err(trouble) => {
                self.cx.recorder.close(entry, Closing::Failed(trouble.message.clone())).await?;
                // Gone in between: the next pass sees it.
                if trouble.is_retry() || trouble.is_not_found() {
                    Ok(Err(as_retry(trouble)))
                } else {
                    Err(trouble.into())
                }
            }
        }
    }

    /// The last gate, and the row as it now stands.
    async fn settle(
        &self,
        row: &mut UnitState,
        props: &Props,
        observed: &Observed,
        patience: &mut Patience,
        waiting: &mut Instant,
    ) -> Result<Settled, Stop> {
        let mut gate = row.outputs.get("gate").and_then(Value::as_str).map(str::to_owned);
        let mut outputs = observed.outputs.clone();
        outputs.insert("id".into(), observed.id.clone().into());
        outputs.entry("created_at").or_insert_with(|| {
            row.outputs
                .get("created_at")
                .cloned()
                .unwrap_or_else(|| Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into())
        });
        if !row.ready {
            match self.handler.ready(observed, props).await {
                Ok(readiness) => {
                    patience.failures = 0;
                    if let Some(what) = readiness.waiting_for {
                        if self.wait {
                            self.overdue(&observed.id, &what)?;
                            self.doing(&what);
                            self.cx.pause(pause_after(waiting.elapsed())).await?;
                            return Ok(Settled::NotYet);
                        }
                        return Ok(Settled::Ready(None));
                    }
                    gate = readiness.gate.or(gate);
                    row.secrets.extend(readiness.secrets);
                }
                Err(trouble) => {
                    patience.after(self.cx, trouble).await?;
                    return Ok(Settled::NotYet);
                }
            }
        }
        if let Some(gate) = &gate {
            outputs.insert("gate".into(), gate.clone().into());
        }
        if !row.ready || row.outputs != outputs || row.props != *props {
            row.outputs = outputs;
            row.props = props.clone();
            row.ready = true;
            row.updated_at = Timestamp::now();
            self.cx.recorder.save_unit(row.clone()).await?;
        }
        Ok(Settled::Ready(gate))
    }

    /// Nobody waits for it: recorded as it is.
    async fn leave(&self, mut row: UnitState, props: &Props, observed: Observed) -> Result<Made, Stop> {
        row.outputs = observed.outputs.clone();
        row.outputs.insert("id".into(), observed.id.clone().into());
        row.props = props.clone();
        row.updated_at = Timestamp::now();
        self.cx.recorder.save_unit(row.clone()).await?;
        Ok(Made { state: row, observed: Some(observed), pending: true, gate: None })
    }

    /// Deletes an object and waits until it is gone.
    pub async fn delete(&self, row: UnitState, drain: bool) -> Result<(), Stop> {
        let mut patience = Patience { failures: 0 };
        let started = Instant::now();
        let mut entry = None;
        let mut asked: Option<Instant> = None;
        loop {
            self.cx.go_on()?;
            let observed = match read_one(self.provider, &row).await {
                Ok(observed) => observed,
                Err(trouble) => {
                    patience.after(self.cx, trouble).await?;
                    continue;
                }
            };
            let Some(observed) = observed else {
                match entry {
                    Some(entry) => self.cx.recorder.close(entry, Closing::Done(None)).await?,
                    None => self.cx.recorder.forget_unit(self.resource, &row.key, &row.token).await?,
                }
                return Ok(());
            };
            // Accepted, and not shown as going yet: some clouds take a moment. After a while it is asked for again.
            if observed.phase == Phase::Deleting || asked.is_some_and(|at| at.elapsed() < DELETE_SHOWS_WITHIN) {
                self.overdue(&observed.id, "being deleted")?;
                self.doing("deleting");
                self.cx.pause(pause_after(started.elapsed())).await?;
                continue;
            }
            if entry.is_none() {
                let mut known = row.clone();
                known.id = Some(observed.id.clone());
                let intent = Intent { op: Op::Delete, what: self.what(&row.props), unit: known };
                entry = Some(self.cx.recorder.intent(intent).await?);
            }
            self.doing("deleting");
            self.overdue(&observed.id, "being deleted")?;
            match self.handler.delete(&observed, &row.props, drain).await {
                Ok(()) => {
                    asked = Some(Instant::now());
                    patience.failures = 0;
                }
                Err(trouble) if trouble.is_not_found() => {}
                Err(trouble) => {
                    if !trouble.is_retry()
                        && let Some(entry) = entry
                    {
                        self.cx.recorder.close(entry, Closing::Failed(trouble.message.clone())).await?;
                    }
                    patience.after(self.cx, trouble).await?;
                }
            }
        }
    }

    fn doing(&self, what: &str) {
        let what = if self.unit.key.contains('/') { format!("{}: {what}", self.unit.key) } else { what.to_owned() };
        self.cx.watcher.see(Progress::Doing { resource: self.resource.clone(), what });
    }

    fn overdue(&self, id: &str, what: &str) -> Result<(), Stop> {
        if Instant::now() < self.deadline {
            return Ok(());
        }
        let message = format!("{} {id} is still {what} after {}", self.unit.unit_type, self.cx.waited(self.deadline));
        let trouble = Trouble { class: Class::Refused, message, help: self.handler.overdue(id, what) };
        Err(trouble.help("it is recorded: run the same command again to go on waiting; `berth.dev/timeout` or --timeout sets how long").into())
    }

    fn moved(&self, what: &str) -> Trouble {
        Trouble::refused(format!("the cloud changed since the plan was made: {} {what}", self.unit.key))
            .help("plan again, then apply")
    }

    fn what(&self, props: &Props) -> String {
        let name = ["cluster_name", "network_name", "node_pool_name", "name"]
            .iter()
            .find_map(|n| props.get(*n)?.as_str())
            .unwrap_or(&self.unit.key);
        if self.unit.scope.is_empty() {
            format!("{} {name}", self.unit.unit_type)
        } else {
            format!("{} {name} in {}", self.unit.unit_type, self.unit.scope)
        }
    }
}

enum Settled {
    Ready(Option<String>),
    NotYet,
}

/// Changes that wait for the old object's name to become free.
fn only_names(changes: &[FieldChange]) -> bool {
    changes.iter().all(|c| c.field == "name" || c.field.ends_with("_name"))
}

fn as_retry(trouble: Trouble) -> Trouble {
    let class = if trouble.is_retry() { trouble.class.clone() } else { Class::Retry { after: None } };
    Trouble { class, ..trouble }
}
