//! One unit, from whatever it is to what it should be: look, decide, act, and look again.
//!
//! Every pass starts from what the cloud shows, never from what the last call claimed. So a lost answer, a restart after
//! `kill -9` and the ordinary path are the same code.

use crate::diff::{ChangeEffect, FieldChange, diff, op_for};
use crate::handler::{Class, Trouble};
use crate::observe::read_one;
use crate::patience::{Patience, SHOWS_UP_WITHIN, pause_after, shows_up_by, unanswered_until};
use crate::plan::UnitPlan;
use crate::run::Stop;
use crate::unit::{ASKED_AGAIN, Observed, Op, Phase, Props, Stray, UnitState, WaitFor, Waiting};
use crate::unit_calls::{Begun, UnitCalls};
use crate::unknown::is_unknown;
use jiff::Timestamp;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// Updates that were accepted and changed nothing before the cloud is taken at its word.
const USELESS_UPDATES: u32 = 12;

/// How a unit ended up.
pub(crate) struct Made {
    pub state: UnitState,
    pub observed: Option<Observed>,
    /// Still on its way: nobody waited.
    pub pending: bool,
    pub gate: Option<String>,
    /// Objects that the same create made besides it.
    pub strays: Vec<Stray>,
}

/// What a unit's loop remembers from pass to pass.
struct Work {
    props: Props,
    /// The object that is, or becomes, the unit.
    row: Option<UnitState>,
    /// Objects that it takes the place of; they go once it is ready.
    deposed: Vec<UnitState>,
    /// What was seen and not acted on yet.
    looked: Option<Option<Observed>>,
    reads: Patience,
    calls: Patience,
    /// The cloud's own check of the properties was passed.
    checked: bool,
    waiting: Instant,
    /// Until when a new object may be there without being shown.
    shows_up_by: Option<Instant>,
    /// Until when a taken name may be that of our own earlier attempt.
    ours_until: Option<Instant>,
    /// A create was sent that may have taken effect, or may still do.
    asked: bool,
    /// Until when that create is waited for, where the cloud would make a second object.
    answer_by: Option<Instant>,
    /// Made by this run.
    created: bool,
    /// This run marked the old object as replaced.
    replaced: bool,
    /// Changed by this run.
    updated: bool,
    useless: (Vec<FieldChange>, u32),
}

enum Settled {
    Ready(Option<String>),
    /// Nobody waits for the gate.
    Pending,
    NotYet,
}

/// Brings one unit to what it should be.
pub(crate) struct UnitLoop<'a> {
    pub calls: UnitCalls<'a>,
    /// What the plan announced; nothing that takes something away is done without it.
    pub planned: Option<&'a UnitPlan>,
    pub wait: bool,
}

impl UnitLoop<'_> {
    /// `hint` is what the plan saw of `row`, so that the first pass need not look again; `checked` says that it checked the
    /// properties.
    pub async fn make(
        &self,
        props: Props,
        checked: bool,
        row: Option<UnitState>,
        deposed: Vec<UnitState>,
        hint: Option<Option<Observed>>,
    ) -> Result<Made, Stop> {
        if let Some((name, _)) = props.iter().find(|(_, value)| is_unknown(value)) {
            let message = format!("{name} of {} is not known: what it refers to gave no value", self.calls.unit.key);
            return Err(Trouble::refused(message).into());
        }
        let limit = self.calls.provider.unanswered_limit();
        let mut work = Work {
            props,
            shows_up_by: row.as_ref().and_then(|row| shows_up_by(row, limit)),
            asked: row.as_ref().is_some_and(|row| row.id.is_none()),
            answer_by: row.as_ref().and_then(|row| unanswered_until(row, limit)),
            row,
            deposed,
            looked: hint,
            reads: Patience::default(),
            calls: Patience::default(),
            checked,
            waiting: Instant::now(),
            ours_until: None,
            created: false,
            replaced: false,
            updated: false,
            useless: (Vec::new(), 0),
        };
        loop {
            self.calls.cx.go_on()?;
            let Some(observed) = self.look(&mut work).await? else { continue };
            let made = match observed {
                None => {
                    self.absent(&mut work).await?;
                    None
                }
                Some(observed) => self.present(&mut work, observed).await?,
            };
            if let Some(made) = made {
                return Ok(made);
            }
        }
    }

    /// What the cloud shows of the unit, or `None` when it could not be asked this time.
    async fn look(&self, work: &mut Work) -> Result<Option<Option<Observed>>, Stop> {
        let observed = match (work.looked.take(), &work.row) {
            (Some(observed), _) => observed,
            (None, None) => None,
            (None, Some(row)) => match self.calls.cx.unless_interrupted(read_one(self.calls.provider, row)).await? {
                Ok(observed) => {
                    work.reads.worked();
                    observed
                }
                Err(trouble) => {
                    work.reads.after(&self.calls, trouble).await?;
                    return Ok(None);
                }
            },
        };
        // A look by name may find the object that is being replaced: it is not the new one.
        Ok(Some(observed.filter(|seen| !work.deposed.iter().any(|old| old.id.as_deref() == Some(&seen.id)))))
    }

    /// It is not there: made, if that was announced.
    async fn absent(&self, work: &mut Work) -> Result<(), Stop> {
        if let Some(row) = work.row.as_ref().filter(|row| row.id.is_some()) {
            if work.shows_up_by.is_some_and(|by| Instant::now() < by) {
                self.calls.overdue(row.id.as_deref().unwrap_or_default(), &"not shown by the cloud".into())?;
                return self.calls.cx.pause(pause_after(work.waiting.elapsed())).await;
            }
            // Making it once more could make it twice: that is for the next plan to say.
            if work.created {
                return Err(self.calls.moved("was made and is gone again").into());
            }
        }
        if !self.calls.handler.refuses_doubles() && work.answer_by.is_some_and(|by| Instant::now() < by) {
            if self.calls.limit.is_over() {
                let message =
                    format!("a create of {} was not answered, and may still take effect", self.calls.unit.unit_type);
                let help = "run the same command again to go on waiting for it";
                return Err(Trouble::new(Class::Unfinished, message).help(help).into());
            }
            self.calls.doing("waiting whether a create without an answer took effect");
            return self.calls.cx.pause(pause_after(work.waiting.elapsed())).await;
        }
        if !self.planned.is_some_and(|p| matches!(p.op, Some(Op::Create | Op::Replace))) {
            return Err(self.calls.moved("is gone").into());
        }
        if let Some(row) = work.row.take_if(|row| row.id.is_some()) {
            self.calls.cx.recorder.forget_unit(self.calls.resource, &row.key, &row.token).await?;
        }
        if !self.check(work, None).await? {
            return Ok(());
        }
        match self.calls.create(&work.props, work.row.take(), !work.deposed.is_empty(), work.asked).await? {
            Begun::Made(row) => {
                work.calls.worked();
                work.row = Some(row);
                work.created = true;
                work.waiting = Instant::now();
                work.shows_up_by = Some(work.waiting + SHOWS_UP_WITHIN);
            }
            Begun::Unsure(row, trouble) => {
                work.row = Some(row);
                if trouble.class == Class::Unanswered {
                    work.asked = true;
                    work.answer_by = Some(Instant::now() + self.calls.provider.unanswered_limit());
                }
                work.calls.after(&self.calls, trouble).await?;
            }
            Begun::PerhapsOurs(row, trouble) => {
                work.row = Some(row);
                let until = *work.ours_until.get_or_insert_with(|| Instant::now() + SHOWS_UP_WITHIN);
                self.calls.cx.go_on()?;
                if Instant::now() >= until || self.calls.limit.is_over() {
                    return Err(self.calls.name_taken(&work.props, &trouble).await.into());
                }
                self.calls.cx.pause(pause_after(work.waiting.elapsed())).await?;
            }
        }
        Ok(())
    }

    /// Asks the cloud about the properties, once. `false`: not answered, to be asked again.
    async fn check(&self, work: &mut Work, observed: Option<&Observed>) -> Result<bool, Stop> {
        if work.checked {
            return Ok(true);
        }
        match self.calls.cx.unless_interrupted(self.calls.handler.check(work.props.clone(), observed)).await? {
            Ok(resolved) => {
                (work.props, work.checked) = (resolved, true);
                Ok(true)
            }
            Err(trouble) => {
                work.calls.after(&self.calls, trouble).await?;
                Ok(false)
            }
        }
    }

    /// It is there: taken up, waited for, changed, settled.
    async fn present(&self, work: &mut Work, observed: Observed) -> Result<Option<Made>, Stop> {
        let Some(row) = work.row.as_mut() else {
            // Only a row leads to a look; without one there is nothing to compare with.
            return Err(self.calls.moved("appeared").into());
        };
        if row.id.as_deref() != Some(&observed.id) || row.deposed {
            if row.id.is_none() {
                self.calls.step(&format!("found again as {}", observed.id));
            }
            row.id = Some(observed.id.clone());
            row.identity.get_or_insert_with(|| self.calls.identity.clone());
            row.deposed = false;
            row.updated_at = Timestamp::now();
            self.calls.cx.recorder.save_unit(row.clone()).await?;
        }
        // What is replaced goes only when the new object is ready, so that half a replacement is not left behind.
        let wait = self.wait || !work.deposed.is_empty();
        let replace = self.planned.is_some_and(|p| p.op == Some(Op::Replace)) && !work.replaced && !work.created;
        match &observed.phase {
            Phase::Ready => {}
            Phase::Failed { .. } if replace => {}
            Phase::Failed { reason } => {
                let id = &observed.id;
                return Err(Trouble::refused(format!(
                    "{} {id} failed in the cloud: {reason}",
                    self.calls.unit.unit_type
                ))
                .help("look at it in the cloud's own console; delete it there or with `berth delete`, then apply again")
                .into());
            }
            Phase::Pending(_) if !wait => return self.leave(work, observed).await.map(Some),
            Phase::Pending(waiting) => return self.wait_for(work, &observed, waiting).await,
            Phase::Deleting => {
                return self.wait_for(work, &observed, &Waiting::on(WaitFor::Deletion, "being deleted")).await;
            }
        }

        let mut changes = diff(self.calls.handler, &work.props, &observed);
        if !changes.is_empty() {
            if !self.check(work, Some(&observed)).await? {
                work.looked = Some(Some(observed));
                return Ok(None);
            }
            changes = diff(self.calls.handler, &work.props, &observed);
        }
        if !work.deposed.is_empty() {
            // The new object has a name of its own until the old one's is free.
            changes.retain(|change| change.effect != ChangeEffect::InPlace || !self.is_name(&change.field));
        }
        match op_for(&changes) {
            None => self.as_desired(work, observed, wait).await,
            Some(Op::Update) => self.change(work, &observed, changes).await.map(|()| None),
            Some(_) => self.mark_replaced(work, &changes, replace).await.map(|()| None),
        }
    }

    /// Whether a property holds the object's own name, which a new object can take when the old one is gone.
    fn is_name(&self, property: &str) -> bool {
        self.calls.catalog.name_properties(&self.calls.unit.unit_type).contains(&property)
    }

    async fn wait_for(&self, work: &Work, observed: &Observed, waiting: &Waiting) -> Result<Option<Made>, Stop> {
        self.calls.overdue(&observed.id, waiting)?;
        self.calls.doing(&waiting.to_string());
        self.calls.cx.pause(pause_after(work.waiting.elapsed())).await?;
        Ok(None)
    }

    /// Nothing differs: the last gate, then what was replaced goes.
    async fn as_desired(&self, work: &mut Work, observed: Observed, wait: bool) -> Result<Option<Made>, Stop> {
        let gate = match self.settle(work, &observed, wait).await? {
            Settled::NotYet => return Ok(None),
            Settled::Pending => return self.leave(work, observed).await.map(Some),
            Settled::Ready(gate) => gate,
        };
        if !work.deposed.is_empty() {
            while let Some(old) = work.deposed.last() {
                self.calls.doing("removing what was replaced");
                self.calls.delete(old, true).await?;
                work.deposed.pop();
            }
            // Once more around: the old object's name is free now.
            work.waiting = Instant::now();
            return Ok(None);
        }
        let Some(state) = work.row.clone() else { return Ok(None) };
        let strays = match self.calls.cx.unless_interrupted(self.calls.strays_of(&state)).await? {
            Ok(strays) => strays,
            Err(trouble) => {
                work.reads.after(&self.calls, trouble).await?;
                return Ok(None);
            }
        };
        Ok(Some(Made { state, observed: Some(observed), pending: false, gate, strays }))
    }

    async fn change(&self, work: &mut Work, observed: &Observed, changes: Vec<FieldChange>) -> Result<(), Stop> {
        let rolls = changes.iter().any(|c| c.effect == ChangeEffect::Roll);
        let announced = self.planned.is_some_and(|p| match p.op {
            Some(Op::Create | Op::Replace) => true,
            // Once begun, a change may pass through states that the plan did not see.
            Some(Op::Update) if !work.updated && !work.created => {
                changes.iter().all(|c| p.changes.iter().any(|planned| planned.field == c.field))
                    && (!rolls || p.is_destructive())
            }
            Some(Op::Update | Op::Adopt) => !rolls || p.is_destructive(),
            _ => false,
        });
        if !announced {
            return Err(self.calls.moved(&format!("has {} {}", changes[0].field, changes[0].from)).into());
        }
        self.calls.overdue(&observed.id, &"being changed".into())?;
        let mut props = work.props.clone();
        if !work.deposed.is_empty() {
            for (name, value) in props.iter_mut().filter(|(name, _)| self.is_name(name)) {
                if let Some(present) = observed.props.get(name) {
                    *value = present.clone();
                }
            }
        }
        if work.useless.0 == changes && work.useless.1 > 2 {
            self.calls.cx.pause(Duration::from_millis(50) * work.useless.1 * work.useless.1).await?;
        }
        let Some(row) = work.row.as_mut() else { return Ok(()) };
        match self.calls.update(row, &props, observed, &changes).await? {
            Ok(()) => {
                work.calls.worked();
                work.waiting = Instant::now();
                let useless = if work.useless.0 == changes { work.useless.1 + 1 } else { 0 };
                if useless > USELESS_UPDATES {
                    let c = &changes[0];
                    let message = format!(
                        "the cloud accepted the change of {} and still shows {} in place of {}",
                        c.field, c.from, c.to
                    );
                    return Err(Trouble::refused(message)
                        .help(format!("look at {} in the cloud's own console: it may say why", observed.id))
                        .help("apply again: the cloud may only be slow; if it stays so, set the field to what the cloud shows, and report it to the cloud")
                        .into());
                }
                work.useless = (changes, useless);
            }
            Err(trouble) => work.calls.after(&self.calls, trouble).await?,
        }
        work.updated = true;
        Ok(())
    }

    /// Marks the old object as replaced, so that a new one is made. The old one stays until the new one is ready.
    async fn mark_replaced(&self, work: &mut Work, changes: &[FieldChange], allowed: bool) -> Result<(), Stop> {
        let Some(forcing) = changes.iter().find(|c| c.effect == ChangeEffect::Replace) else { return Ok(()) };
        if !allowed {
            return Err(self.calls.moved(&format!("has another {}, which takes a replacement", forcing.field)).into());
        }
        if let Some(why) = changes.iter().find_map(|c| self.calls.handler.refuse_change(&c.field, &c.from, &c.to)) {
            return Err(refused_change(why).into());
        }
        let Some(mut old) = work.row.take() else { return Ok(()) };
        old.deposed = true;
        self.calls.cx.recorder.save_unit(old.clone()).await?;
        work.deposed.push(old);
        (work.replaced, work.checked, work.shows_up_by) = (true, false, None);
        (work.asked, work.answer_by) = (false, None);
        work.waiting = Instant::now();
        Ok(())
    }

    /// The last gate, and the row as it now stands.
    async fn settle(&self, work: &mut Work, observed: &Observed, wait: bool) -> Result<Settled, Stop> {
        let Some(row) = work.row.as_mut() else { return Ok(Settled::NotYet) };
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
            let readiness =
                match self.calls.cx.unless_interrupted(self.calls.handler.ready(observed, &work.props)).await? {
                    Ok(readiness) => readiness,
                    Err(trouble) => {
                        work.calls.after(&self.calls, trouble).await?;
                        return Ok(Settled::NotYet);
                    }
                };
            work.calls.worked();
            if let Some(waiting) = readiness.waiting_for {
                if !wait {
                    return Ok(Settled::Pending);
                }
                self.calls.overdue(&observed.id, &waiting)?;
                self.calls.doing(&waiting.to_string());
                self.calls.cx.pause(pause_after(work.waiting.elapsed())).await?;
                return Ok(Settled::NotYet);
            }
            gate = readiness.gate.or(gate);
            row.secrets.extend(readiness.secrets);
        }
        if let Some(gate) = &gate {
            outputs.insert("gate".into(), gate.clone().into());
        }
        if let Some(when) = row.outputs.get(ASKED_AGAIN) {
            outputs.insert(ASKED_AGAIN.into(), when.clone());
        }
        if !row.ready || row.outputs != outputs || row.props != work.props {
            row.outputs = outputs;
            row.props = work.props.clone();
            row.ready = true;
            row.updated_at = Timestamp::now();
            self.calls.cx.recorder.save_unit(row.clone()).await?;
            self.calls.step("ready");
        }
        Ok(Settled::Ready(gate))
    }

    /// Nobody waits for it: recorded as it is.
    async fn leave(&self, work: &mut Work, observed: Observed) -> Result<Made, Stop> {
        let Some(mut row) = work.row.take() else { return Err(self.calls.moved("appeared").into()) };
        row.outputs.extend(observed.outputs.clone());
        row.outputs.insert("id".into(), observed.id.clone().into());
        row.props = work.props.clone();
        // Whatever it was before, it is on its way now: the next run goes on with it.
        row.ready = false;
        row.updated_at = Timestamp::now();
        self.calls.cx.recorder.save_unit(row.clone()).await?;
        Ok(Made { state: row, observed: Some(observed), pending: true, gate: None, strays: Vec::new() })
    }
}

/// The sentence says what the cloud can do; the help, how to get the manifest there.
pub(crate) fn refused_change(why: String) -> Trouble {
    Trouble::refused(why).help(
        "set the field to a value that the cloud can take (`berth drift --accept` writes the present one into the manifest), or declare another resource with this one",
    )
}
