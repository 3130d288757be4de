//! The calls that change one unit: intent, one call, outcome, in that order.

use crate::diff::FieldChange;
use crate::handler::{Catalog, Class, Handler, Help, Outcome, Provider, Trouble};
use crate::lower::{adoptable, name_in, taken};
use crate::observe::read_one;
use crate::patience::{Limit, Patience, left_of, pause_after, shows_up_by};
use crate::progress::Progress;
use crate::record::{Closing, EntryId, Intent};
use crate::run::{RunContext, Stop};
use crate::unit::{ASKED_AGAIN, Identity, Observed, Op, Phase, Props, Stray, Unit, UnitState, WaitFor, Waiting};
use berth_model::ResourceId;
use jiff::Timestamp;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A delete that was accepted is asked for again when the object still looks untouched after this.
const DELETE_SHOWS_WITHIN: Duration = Duration::from_secs(5);

/// One unit, and what calls for it need.
pub(crate) struct UnitCalls<'a> {
    pub cx: &'a RunContext<'a>,
    pub catalog: &'a dyn Catalog,
    pub resource: &'a ResourceId,
    pub unit: &'a Unit,
    pub account: &'a str,
    /// Whom the account belongs to.
    pub identity: &'a Identity,
    pub provider: &'a dyn Provider,
    pub handler: &'a dyn Handler,
    pub limit: Limit,
    /// The last step that was logged: a wait looks often, and says the same each time.
    pub logged: Mutex<String>,
}

/// What came of a create that was not refused. The row is the one to go on with.
pub(crate) enum Begun {
    Made(UnitState),
    /// The answer was lost, or the cloud asks to try again.
    Unsure(UnitState, Trouble),
    /// Somebody has the name, and it may be our own earlier attempt that the cloud does not show yet.
    PerhapsOurs(UnitState, Trouble),
}

impl UnitCalls<'_> {
    /// Begins the object. A lost answer leaves the row, so that the next pass looks for it.
    /// `asked`: an earlier attempt may have taken effect, or may still do.
    pub async fn create(
        &self,
        props: &Props,
        row: Option<UnitState>,
        replacing: bool,
        asked: bool,
    ) -> Result<Begun, Stop> {
        self.cx.go_on()?;
        // An attempt that was recorded and not answered may have made it: then no refusal means that nothing is there.
        let retried = row.is_some();
        let mut row = row.unwrap_or_else(|| self.new_row());
        row.props = props.clone();
        row.identity.get_or_insert_with(|| self.identity.clone());
        row.updated_at = Timestamp::now();
        if asked {
            row.outputs.insert(ASKED_AGAIN.into(), row.updated_at.to_string().into());
        }
        self.doing("creating");
        let intent = Intent { op: Op::Create, what: self.what(props), unit: row.clone() };
        let entry = self.cx.recorder.intent(intent).await?;
        let trouble = match self.handler.create(props, &row.token, replacing).await {
            Ok(id) => {
                self.cx.note_change(self.resource, format!("made {} with id {id}", self.what(props)));
                row.id = Some(id);
                row.updated_at = Timestamp::now();
                self.cx.recorder.close(entry, Closing::Done(Some(Box::new(row.clone())))).await?;
                return Ok(Begun::Made(row));
            }
            Err(trouble) => trouble,
        };
        let message = trouble.to_string();
        let unsure = retried || trouble.is_retry();
        let closing = if unsure { Closing::Failed(message) } else { Closing::Refused(message) };
        self.cx.recorder.close(entry, closing).await?;
        match &trouble.class {
            Class::Retry { .. } | Class::Unanswered => Ok(Begun::Unsure(row, trouble)),
            Class::Taken { .. } if retried => Ok(Begun::PerhapsOurs(row, trouble)),
            Class::Taken { .. } => Err(self.name_taken(props, &trouble).await.into()),
            _ => Err(trouble.into()),
        }
    }

    fn new_row(&self) -> UnitState {
        UnitState {
            resource: self.resource.clone(),
            key: self.unit.key.clone(),
            token: uuid::Uuid::now_v7().simple().to_string(),
            unit_type: self.unit.unit_type.clone(),
            scope: self.unit.scope.clone(),
            account: self.account.to_owned(),
            identity: Some(self.identity.clone()),
            id: None,
            props: Props::new(),
            outputs: Props::new(),
            secrets: Default::default(),
            deposed: false,
            ready: false,
            updated_at: Timestamp::now(),
        }
    }

    pub async fn name_taken(&self, props: &Props, trouble: &Trouble) -> Trouble {
        let found = match &trouble.class {
            Class::Taken { id: Some(id) } => id.clone(),
            _ => self.handler.find(props, None).await.ok().flatten().map(|other| other.id).unwrap_or_default(),
        };
        adoptable(taken(self.catalog, self.unit, props, &found), self.resource)
    }

    pub async fn update(
        &self,
        row: &mut UnitState,
        props: &Props,
        observed: &Observed,
        changes: &[FieldChange],
    ) -> Result<Result<(), Trouble>, Stop> {
        self.cx.go_on()?;
        let fields: Vec<&str> = changes.iter().map(|c| c.field.as_str()).collect();
        self.doing(&format!("changing {}", fields.join(", ")));
        row.ready = false;
        let what = format!("{}: {}", self.what(props), fields.join(", "));
        let entry = self.cx.recorder.intent(Intent { op: Op::Update, what, unit: row.clone() }).await?;
        match self.handler.update(observed, props, &fields).await {
            Ok(()) => {
                let changed = format!("changed {} of {} with id {}", fields.join(", "), self.what(props), observed.id);
                self.cx.note_change(self.resource, changed);
                row.updated_at = Timestamp::now();
                self.cx.recorder.close(entry, Closing::Done(Some(Box::new(row.clone())))).await?;
                Ok(Ok(()))
            }
            Err(trouble) => {
                self.cx.recorder.close(entry, Closing::Failed(trouble.to_string())).await?;
                match trouble.class {
                    Class::Retry { .. } | Class::Unanswered => Ok(Err(trouble)),
                    // Gone in between: the next pass sees it.
                    Class::NotFound => Ok(Err(Trouble { class: Class::Retry { after: None }, ..trouble })),
                    _ => Err(trouble.into()),
                }
            }
        }
    }

    /// Deletes an object and waits until it is gone. The journal's entry is closed however it ends.
    pub async fn delete(&self, row: &UnitState, drain: bool) -> Result<(), Stop> {
        let mut entry = None;
        let result = self.delete_until_gone(row, drain, &mut entry).await;
        let why = match &result {
            Err(Stop::Trouble(trouble)) => trouble.to_string(),
            Err(Stop::Interrupted) => "interrupted".to_owned(),
            Ok(()) | Err(Stop::Record(_)) => return result,
        };
        if let Some(entry) = entry {
            self.cx.recorder.close(entry, Closing::Failed(why)).await?;
        }
        result
    }

    async fn delete_until_gone(&self, row: &UnitState, drain: bool, entry: &mut Option<EntryId>) -> Result<(), Stop> {
        let (mut reads, mut calls) = (Patience::default(), Patience::default());
        let started = Instant::now();
        self.outlast_creates(row).await?;
        let shows_up_by = shows_up_by(row, self.provider.unanswered_limit());
        let mut row = row.clone();
        let mut asked: Option<Instant> = None;
        loop {
            self.cx.go_on()?;
            let observed = match self.cx.unless_interrupted(read_one(self.provider, &row)).await? {
                Ok(observed) => observed,
                Err(trouble) => {
                    reads.after(self, trouble).await?;
                    continue;
                }
            };
            reads.worked();
            let Some(observed) = observed else {
                // Begun a moment ago and not seen yet: it may still appear, and nobody would know of it.
                if asked.is_none() && shows_up_by.is_some_and(|by| Instant::now() < by) {
                    self.overdue(row.id.as_deref().unwrap_or(&row.key), &"not shown by the cloud".into())?;
                    self.cx.pause(pause_after(started.elapsed())).await?;
                    continue;
                }
                let gone = row.id.clone().unwrap_or_default();
                if asked.take().is_some() {
                    self.cx.note_change(self.resource, format!("deleted {} with id {gone}", self.what(&row.props)));
                }
                let strays = match self.cx.unless_interrupted(self.strays_of(&row)).await? {
                    Ok(strays) => strays,
                    Err(trouble) => {
                        reads.after(self, trouble).await?;
                        continue;
                    }
                };
                if let Some(stray) = strays.into_iter().next() {
                    self.overdue(&stray.id, &"there".into())?;
                    self.step(&format!("{} was made by the same create, and goes too", stray.id));
                    row.id = Some(stray.id);
                    match entry.take() {
                        Some(entry) => {
                            self.cx.recorder.close(entry, Closing::Done(Some(Box::new(row.clone())))).await?;
                        }
                        None => self.cx.recorder.save_unit(row.clone()).await?,
                    }
                    // A list may still show what is gone.
                    self.cx.pause(pause_after(started.elapsed())).await?;
                    continue;
                }
                match entry.take() {
                    Some(entry) => self.cx.recorder.close(entry, Closing::Done(None)).await?,
                    None => self.cx.recorder.forget_unit(self.resource, &row.key, &row.token).await?,
                }
                self.step("gone");
                return Ok(());
            };
            self.doing("deleting");
            self.overdue(&observed.id, &Waiting::on(WaitFor::Deletion, "being deleted"))?;
            // Accepted, and not shown as going yet: some clouds take a moment. After a while it is asked for again.
            if observed.phase == Phase::Deleting || asked.is_some_and(|at| at.elapsed() < DELETE_SHOWS_WITHIN) {
                self.cx.pause(pause_after(started.elapsed())).await?;
                continue;
            }
            self.cx.go_on()?;
            if entry.is_none() {
                let mut known = row.clone();
                known.id = Some(observed.id.clone());
                let intent = Intent { op: Op::Delete, what: self.what(&row.props), unit: known };
                *entry = Some(self.cx.recorder.intent(intent).await?);
            }
            match self.handler.delete(&observed, &row.props, drain).await {
                Err(trouble) if !trouble.is_not_found() => calls.after(self, trouble).await?,
                // Not there for the delete and still there for the read: as good as accepted.
                Ok(()) | Err(_) => {
                    asked = Some(Instant::now());
                    calls.worked();
                }
            }
        }
    }

    /// While the object exists, a create that takes effect late is refused, or its object is found as a stray. After the deletion
    /// such an object would be unknown: so the deletion waits until no create can take effect any more.
    async fn outlast_creates(&self, row: &UnitState) -> Result<(), Stop> {
        let limit = self.provider.unanswered_limit();
        let Some(by) = row.asked_again_at().and_then(|at| left_of(limit, at)) else { return Ok(()) };
        let started = Instant::now();
        while Instant::now() < by {
            self.cx.go_on()?;
            self.overdue(row.id.as_deref().unwrap_or(&row.key), &"waited for".into())?;
            self.doing("waiting until no create without an answer can take effect any more");
            self.cx.pause(pause_after(started.elapsed())).await?;
        }
        Ok(())
    }

    /// What else carries the unit's token.
    pub async fn strays_of(&self, row: &UnitState) -> Outcome<Vec<Stray>> {
        if !row.asked_again() {
            return Ok(Vec::new());
        }
        self.handler.strays(&row.token, row.id.as_deref().unwrap_or_default()).await
    }

    pub fn doing(&self, what: &str) {
        self.step(what);
        self.cx.watcher.see(Progress::Doing { resource: self.resource.clone(), what: self.of_unit(what) });
    }

    /// For the log.
    pub fn step(&self, what: &str) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if *logged != what {
            tracing::info!("{}: {}", self.resource, self.of_unit(what));
            what.clone_into(&mut logged);
        }
    }

    fn of_unit(&self, what: &str) -> String {
        if self.unit.key.contains('/') { format!("{}: {what}", self.unit.key) } else { what.to_owned() }
    }

    pub fn overdue(&self, id: &str, waiting: &Waiting) -> Result<(), Stop> {
        if !self.limit.is_over() {
            return Ok(());
        }
        let message = format!("{} {id} is still {waiting} after {}", self.unit.unit_type, self.limit.text());
        let help = self.handler.overdue(id, waiting).into_iter().map(Help::from).collect();
        let trouble = Trouble { help, ..Trouble::new(Class::Unfinished, message) };
        Err(trouble.help("it is recorded: run the same command again to go on waiting; `berth.dev/timeout` or --timeout sets how long").into())
    }

    pub fn moved(&self, what: &str) -> Trouble {
        let message = format!("the cloud changed since the plan was made: {} {what}", self.unit.key);
        Trouble::new(Class::Moved, message).help("plan again, then apply")
    }

    fn what(&self, props: &Props) -> String {
        let name = name_in(self.catalog, &self.unit.unit_type, props).unwrap_or(&self.unit.key);
        if self.unit.scope.is_empty() {
            format!("{} {name}", self.unit.unit_type)
        } else {
            format!("{} {name} in {}", self.unit.unit_type, self.unit.scope)
        }
    }
}
