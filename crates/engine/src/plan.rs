//! What would change, and why. Reads clouds, changes nothing.

use crate::deletions::{deletions, gone, live, replaced, strays_of};
use crate::diff::{ChangeEffect, FieldChange, diff, fill, op_for};
use crate::graph::Graph;
use crate::handler::{Catalog, Handler, Provider, Trouble};
use crate::identity::other_account;
use crate::lower::{adoptable, given, in_order, lower, outputs_of, parents};
use crate::much_gone::{GoneCount, Tally};
use crate::names::Names;
use crate::observe::{no_handler, observe};
use crate::patience::shows_up_by;
use crate::prepared::Prepared;
use crate::reason::{PlanReason, WrittenUnitPlan};
use crate::unit::{Change, Identity, Lowered, Observed, Op, Phase, Props, Stray, Unit, UnitState};
use crate::unit_loop::refused_change;
use crate::unknown::is_unknown;
use berth_model::{Manifest, ResourceId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// A resource that should be as its manifest says.
#[derive(Clone)]
pub struct Wanted {
    pub manifest: Arc<Manifest>,
    /// Account that its units live in.
    pub account: String,
    pub default_region: Option<String>,
}

/// What the state holds of a resource.
#[derive(Clone)]
pub struct KnownResource {
    pub manifest: Arc<Manifest>,
    pub outputs: Props,
    pub facts: Props,
    /// Its status says Ready for the generation that is stored.
    pub settled: bool,
}

/// What the state holds.
#[derive(Clone, Default)]
pub struct Known {
    pub resources: HashMap<ResourceId, KnownResource>,
    pub units: HashMap<ResourceId, Vec<UnitState>>,
}

/// What is asked for.
pub struct Request {
    pub wanted: Vec<Wanted>,
    /// Resources to delete.
    pub unwanted: Vec<ResourceId>,
    pub known: Known,
    pub label_prefix: String,
    /// What is not found is gone and made again, also where the state does not say which account it was made in.
    pub allow_recreate: bool,
    /// Whom belongs what the account of something new manages already, by account, org and env.
    pub owners: HashMap<(String, String, String), Vec<Identity>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// In the order of references; deletions last, in the opposite order.
    pub resources: Vec<ResourcePlan>,
    /// Accounts of which so much seems gone that making it again is a question.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub much_gone: Vec<GoneCount>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourcePlan {
    pub id: ResourceId,
    pub action: Action,
    pub units: Vec<UnitPlan>,
    /// Resources of this plan that must be done first (for deletions: that must be gone first).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<ResourceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typical_seconds: Option<u64>,
    /// Objects that the resource's creates made besides its units. Applying leaves them alone, deleting takes them along.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strays: Vec<Stray>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Unchanged,
    Create,
    Update,
    Replace,
    /// An interrupted run made it; it is taken up again.
    Resume,
    Delete,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "WrittenUnitPlan", into = "WrittenUnitPlan")]
pub struct UnitPlan {
    pub key: String,
    pub unit_type: String,
    pub at: String,
    pub op: Option<Op>,
    pub changes: Vec<FieldChange>,
    /// Why, where the changes do not say it.
    pub reason: Option<PlanReason>,
    /// The old object, or what may be there of one that was begun, goes before the new one comes.
    pub delete_first: bool,
    /// It was there and is not found any more.
    pub gone: bool,
    /// What goes holds data of the user's.
    pub loses_data: bool,
}

impl UnitPlan {
    /// Nothing is done to it.
    pub fn untouched(key: impl Into<String>, unit_type: impl Into<String>, at: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            unit_type: unit_type.into(),
            at: at.into(),
            op: None,
            changes: Vec::new(),
            reason: None,
            delete_first: false,
            gone: false,
            loses_data: false,
        }
    }

    /// Whether carrying it out takes away something that is there: needs to be allowed.
    pub fn is_destructive(&self) -> bool {
        matches!(self.op, Some(Op::Replace | Op::Delete)) || self.changes.iter().any(|c| c.effect == ChangeEffect::Roll)
    }

    /// Whether something goes that is still there and still in its place.
    pub fn takes_away(&self) -> bool {
        let is_already = self.op == Some(Op::Delete) && self.reason.is_some_and(PlanReason::is_already);
        self.is_destructive() && !is_already
    }
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.resources.iter().all(|r| r.action == Action::Unchanged)
    }
    /// Whether there is anything to show: something to do, or something that was made twice.
    pub fn is_quiet(&self) -> bool {
        self.is_empty() && self.resources.iter().all(|r| r.strays.is_empty())
    }
    pub fn count(&self, action: Action) -> usize {
        self.resources.iter().filter(|r| r.action == action).count()
    }

    /// Whether both do the same. How long that usually takes is no part of it.
    pub fn does_what(&self, other: &Plan) -> bool {
        self.resources.len() == other.resources.len()
            && self.resources.iter().zip(&other.resources).all(|(one, other)| one.does_what(other))
    }
}

impl ResourcePlan {
    /// Whether something goes that is still there.
    pub fn takes_away(&self) -> bool {
        self.units.iter().any(UnitPlan::takes_away)
    }

    pub fn does_what(&self, other: &ResourcePlan) -> bool {
        let timeless = |plan: &ResourcePlan| ResourcePlan { typical_seconds: None, ..plan.clone() };
        timeless(self) == timeless(other)
    }
}

/// What clouds show of units, by the units' tokens. `None`: it is gone.
pub type SeenByToken = HashMap<String, Option<Observed>>;

/// A plan and what was seen while making it.
pub struct Planned {
    /// Shared between the run and whoever reports on it: a plan of thousands of resources is large.
    pub plan: Arc<Plan>,
    /// What stands in the way, by resource. A plan with troubles is not to be carried out.
    pub troubles: Vec<(ResourceId, Trouble)>,
    /// What each object looked like, by its token.
    pub seen: SeenByToken,
    /// Units that were found by their id, with whom the account belongs to: written down when the plan is carried out.
    pub learned: Vec<UnitState>,
    /// Resources to work on, as they were lowered and checked.
    pub(crate) prepared: HashMap<ResourceId, Prepared>,
}

pub async fn plan(catalog: &dyn Catalog, request: &Request) -> Planned {
    let wanted_ids: HashMap<&ResourceId, usize> =
        request.wanted.iter().enumerate().map(|(i, w)| (&w.manifest.id, i)).collect();

    let states: Vec<&UnitState> = request
        .wanted
        .iter()
        .map(|w| &w.manifest.id)
        .chain(&request.unwanted)
        .flat_map(|id| request.known.units.get(id).map(Vec::as_slice).unwrap_or_default())
        .collect();
    let mut troubles = Vec::new();
    let mut seen = SeenByToken::with_capacity(states.len());
    let mut blind: HashSet<&ResourceId> = HashSet::new();
    let looked = observe(catalog, &states, request.allow_recreate).await;
    let learned = looked.learned;
    let mut tally = Tally::default();
    for (state, result) in states.iter().zip(looked.seen) {
        match result {
            Ok(observed) => {
                if !state.deposed && state.id.is_some() && wanted_ids.contains_key(&state.resource) {
                    tally.add(&state.account, observed.is_none() && is_overdue(state));
                }
                seen.insert(state.token.clone(), observed);
            }
            Err(trouble) => {
                if blind.insert(&state.resource) {
                    troubles.push((state.resource.clone(), trouble));
                }
            }
        }
    }

    let order = match by_references(request, &wanted_ids) {
        Ok(order) => order,
        Err(circle) => {
            troubles.push(in_a_circle(request, &circle));
            return Planned { plan: Arc::default(), troubles, seen, learned, prepared: HashMap::new() };
        }
    };

    let mut planner =
        Planner { catalog, request, wanted_ids: &wanted_ids, outputs: HashMap::new(), names: Names::default() };
    let mut resources = Vec::with_capacity(request.wanted.len() + request.unwanted.len());
    let mut prepared = HashMap::new();
    for index in order {
        let wanted = &request.wanted[index];
        if blind.contains(&wanted.manifest.id) {
            continue;
        }
        match planner.resource(wanted, &seen).await {
            Ok((plan, one)) => {
                if stays(request, wanted, &plan) {
                    // Nobody looks again at what stays as it is; in a fleet, that is nearly all that was seen.
                    for state in request.known.units.get(&plan.id).into_iter().flatten() {
                        seen.remove(&state.token);
                    }
                } else if one.is_known() {
                    prepared.insert(plan.id.clone(), one);
                }
                resources.push(plan);
            }
            Err(trouble) => {
                troubles.push((wanted.manifest.id.clone(), adoptable(trouble, &wanted.manifest.id)));
            }
        }
    }
    resources.extend(deletions(catalog, request, &seen).await);
    let plan = Arc::new(Plan { resources, much_gone: tally.much_gone() });
    Planned { plan, troubles, seen, learned, prepared }
}

/// Positions of the wanted resources, each after those that it refers to; or those that refer to each other in a circle.
fn by_references(request: &Request, wanted_ids: &HashMap<&ResourceId, usize>) -> Result<Vec<usize>, Vec<usize>> {
    let mut graph = Graph::new(0..request.wanted.len());
    for (index, wanted) in request.wanted.iter().enumerate() {
        for parent in parents(&wanted.manifest).iter().filter_map(|id| wanted_ids.get(id)) {
            graph.edge(*parent, index);
        }
    }
    graph.order()
}

fn in_a_circle(request: &Request, circle: &[usize]) -> (ResourceId, Trouble) {
    let ids: Vec<&ResourceId> = circle.iter().map(|index| &request.wanted[*index].manifest.id).collect();
    let names: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let message = format!("these refer to each other in a circle: {}", names.join(", "));
    (ids[0].clone(), Trouble::refused(message))
}

/// Whether it would be shown by now if it was there.
fn is_overdue(state: &UnitState) -> bool {
    shows_up_by(state, Duration::ZERO).is_none()
}

/// Whether nothing is left to do for it, not even in the state.
fn stays(request: &Request, wanted: &Wanted, plan: &ResourcePlan) -> bool {
    let known = request.known.resources.get(&plan.id);
    plan.action == Action::Unchanged && known.is_some_and(|k| k.settled && k.manifest == wanted.manifest)
}

struct Planner<'a> {
    catalog: &'a dyn Catalog,
    request: &'a Request,
    wanted_ids: &'a HashMap<&'a ResourceId, usize>,
    /// Outputs of the resources planned so far; unknown ones are marked.
    outputs: HashMap<ResourceId, Props>,
    names: Names,
}

struct PlannedUnit {
    plan: UnitPlan,
    /// What other units and resources may read of it, as far as it is known.
    outputs: Props,
    /// Its properties as the cloud's check answered them, where there was one.
    checked: Option<Props>,
}

impl Planner<'_> {
    async fn resource(&mut self, wanted: &Wanted, seen: &SeenByToken) -> Result<(ResourcePlan, Prepared), Trouble> {
        let id = &wanted.manifest.id;
        let lowered = lower(self.catalog, wanted, &self.request.label_prefix, &|target| self.target(target))?;
        let given = given(&wanted.manifest, &|target| self.target(target));
        let mut checked = Vec::new();
        let states = self.request.known.units.get(id).map(Vec::as_slice).unwrap_or_default();
        let live = live(states);

        let mut made: HashMap<String, Props> = HashMap::new();
        let (mut units, mut strays) = (Vec::new(), Vec::new());
        let mut depth: HashMap<String, u64> = HashMap::new();
        let mut typical = 0;
        let provider = match lowered.units.is_empty() && states.is_empty() {
            true => None,
            false => Some(self.catalog.provider(&wanted.account).await?),
        };
        if let Some(provider) = provider.as_deref() {
            // Whoever makes something must say in which account.
            let who = provider.identity().await?;
            if states.is_empty() {
                self.owned_by(&who, wanted)?;
            }
        }
        for unit in in_order(&lowered.units) {
            let Some(provider) = provider.as_deref() else { break };
            let handler = provider.handler(&unit.unit_type).ok_or_else(|| no_handler(&unit.unit_type))?;
            let props = fill(&unit.props, &|key, name| made.get(key).and_then(|outputs| outputs.get(name)).cloned());
            let state = live.get(unit.key.as_str()).copied();
            if let Some(state) = state.filter(|s| s.account != wanted.account) {
                return Err(Trouble::refused(format!(
                    "the account cannot change from {} to {}",
                    state.account, wanted.account
                ))
                .help("delete the resource and apply it again, or put the account back"));
            }
            let observed = state.and_then(|s| seen.get(&s.token)).and_then(Option::as_ref);
            // A look by name may find what is being replaced: it is not the new object.
            let observed = observed.filter(|seen| !replaced(states, &live, &unit.key).any(|old| old == seen.id));
            let PlannedUnit { plan: planned, outputs, checked: resolved } =
                self.unit((provider, handler, &wanted.account), unit, props, state, observed).await?;
            checked.extend(resolved.map(|props| (unit.key.clone(), props)));
            if let Some(op) = planned.op {
                let own = handler.typical(op, &unit.props, &planned.changes).map_or(0, |d| d.as_secs());
                let before = unit.depends_on.iter().filter_map(|key| depth.get(key)).max().copied().unwrap_or(0);
                depth.insert(unit.key.clone(), before + own);
                typical = typical.max(before + own);
            }
            if let Some(state) = state {
                strays.extend(strays_of(handler, state).await?);
            }
            made.insert(unit.key.clone(), outputs);
            units.push(planned);
        }
        let going = self.going(provider.as_deref(), &lowered, states, &live, seen, &units).await?;
        units.extend(going);

        self.outputs.insert(id.clone(), outputs_of(&lowered, &made));
        let action = self.action(wanted, &units);
        let mut after = parents(&wanted.manifest);
        after.retain(|parent| self.wanted_ids.contains_key(parent));
        after.sort();
        after.dedup();
        let typical = (typical as f64 / self.catalog.pace()).round() as u64;
        let typical_seconds = (typical > 0).then_some(typical);
        let mut prepared = Prepared::new(lowered, given);
        checked.into_iter().for_each(|(key, props)| prepared.checked(&key, props));
        Ok((ResourcePlan { id: id.clone(), action, units, after, typical_seconds, strays }, prepared))
    }

    /// What goes: objects that are not declared any more, and those that new ones have taken the place of. `units` is what
    /// is planned for the others.
    async fn going(
        &self,
        provider: Option<&dyn Provider>,
        lowered: &Lowered,
        states: &[UnitState],
        live: &HashMap<&str, &UnitState>,
        seen: &SeenByToken,
        units: &[UnitPlan],
    ) -> Result<Vec<UnitPlan>, Trouble> {
        let keys: HashSet<&str> = lowered.units.iter().map(|u| u.key.as_str()).collect();
        let mut going = Vec::new();
        for state in states {
            let reason = match keys.contains(state.key.as_str()) {
                false => PlanReason::NoLongerDeclared,
                true if live.get(state.key.as_str()).is_none_or(|live| live.token != state.token) => {
                    PlanReason::AlreadyReplaced
                }
                true => continue,
            };
            let handler = provider.and_then(|p| p.handler(&state.unit_type));
            let observed = seen.get(&state.token).and_then(Option::as_ref);
            if let (Some(handler), Some(observed)) = (handler, observed.filter(|_| !keys.contains(state.key.as_str())))
            {
                handler.check_leaving(observed, units).await?;
            }
            going.push(gone(state, handler, seen.get(&state.token).is_none_or(Option::is_some), Some(reason)));
        }
        Ok(going)
    }

    fn action(&self, wanted: &Wanted, units: &[UnitPlan]) -> Action {
        match (units.is_empty(), self.request.known.resources.get(&wanted.manifest.id)) {
            (true, None) => Action::Create,
            // Without units, only the manifest can tell whether there is something to do.
            (true, Some(known)) if !known.settled || known.manifest.to_json() != wanted.manifest.to_json() => {
                Action::Update
            }
            (true, Some(_)) => Action::Unchanged,
            (false, _) => action_of(units),
        }
    }

    /// Nothing is made in another account than the one where the rest is.
    fn owned_by(&self, who: &Identity, wanted: &Wanted) -> Result<(), Trouble> {
        let id = &wanted.manifest.id;
        let place = (wanted.account.clone(), id.org.clone(), id.env.clone());
        let owners = self.request.owners.get(&place).map(Vec::as_slice).unwrap_or_default();
        match owners.first().filter(|_| !owners.contains(who)) {
            Some(own) => Err(other_account(&wanted.account, own, who)),
            None => Ok(()),
        }
    }

    async fn unit(
        &mut self,
        (provider, handler, account): (&dyn Provider, &dyn Handler, &str),
        unit: &Unit,
        props: Props,
        state: Option<&UnitState>,
        observed: Option<&Observed>,
    ) -> Result<PlannedUnit, Trouble> {
        let mut planned = UnitPlan::untouched(&unit.key, &unit.unit_type, &unit.at);
        let going = observed.is_some_and(|seen| seen.phase == Phase::Deleting);
        let Some(observed) = observed.filter(|_| !going) else {
            let props = handler.check(props, None).await?;
            planned.op = Some(Op::Create);
            planned.changes = created(handler, &props);
            // Begun in a place that is itself replaced: should it still show up there, it goes first.
            let dragged = || {
                handler
                    .fields()
                    .iter()
                    .any(|f| f.change == Change::Replace && props.get(f.name).is_some_and(is_unknown))
            };
            planned.delete_first = state.is_some_and(|s| !s.ready) && !going && dragged();
            planned.gone = state.is_some_and(|s| s.id.is_some() && is_overdue(s)) && !going;
            match state {
                Some(_) if going => planned.reason = Some(PlanReason::BeingDeleted),
                Some(state) if state.id.is_some() && state.ready => planned.reason = Some(PlanReason::DeletedOutside),
                Some(_) => planned.reason = Some(PlanReason::BegunNotFound),
                None => self.names.free(self.catalog, (provider, handler, account), unit, &props).await?,
            }
            return Ok(PlannedUnit { plan: planned, outputs: Props::new(), checked: Some(props) });
        };

        let mut changes = diff(handler, &props, observed);
        let mut resolved = None;
        if !changes.is_empty() {
            for change in &changes {
                if let Some(why) = handler.refuse_change(&change.field, &change.from, &change.to) {
                    return Err(refused_change(why));
                }
            }
            let checked = handler.check(props, Some(observed)).await?;
            changes = diff(handler, &checked, observed);
            resolved = Some(checked);
        }
        planned.op = op_for(&changes);
        if planned.op == Some(Op::Replace) {
            // What is forced by something that is itself replaced cannot come first: its place is not there yet.
            let dragged = changes.iter().any(|c| c.effect == ChangeEffect::Replace && is_unknown(&c.to));
            planned.delete_first = dragged || !handler.create_first();
            planned.loses_data = handler.holds_data();
        }
        if planned.op.is_none() && state.is_some_and(|s| s.deposed) {
            planned.op = Some(Op::Adopt);
            planned.reason = Some(PlanReason::Kept);
        } else if planned.op.is_none() && state.is_some_and(|s| s.id.is_none() || !s.ready) {
            planned.op = Some(Op::Adopt);
            planned.reason = Some(PlanReason::BegunFound);
        }
        planned.changes = changes;
        let mut outputs = Props::new();
        if planned.op != Some(Op::Replace) {
            outputs = observed.outputs.clone();
            outputs.insert("id".into(), Value::String(observed.id.clone()));
            // Some outputs are the state's own (first seen at): what the cloud shows overrides what was stored.
            for (name, value) in state.map(|s| &s.outputs).into_iter().flatten() {
                outputs.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        Ok(PlannedUnit { plan: planned, outputs, checked: resolved })
    }

    /// A resource that a reference points at, as it will be.
    fn target(&self, id: &ResourceId) -> Option<(Arc<Manifest>, Props)> {
        let known = self.request.known.resources.get(id);
        match self.wanted_ids.get(id) {
            Some(index) => {
                let outputs = self.outputs.get(id).cloned().unwrap_or_default();
                Some((self.request.wanted[*index].manifest.clone(), outputs))
            }
            None => known.map(|k| (k.manifest.clone(), k.outputs.clone())),
        }
    }
}

/// What a new object will have, in the order of the type's fields. Nothing is said of what is left empty.
fn created(handler: &dyn Handler, props: &Props) -> Vec<FieldChange> {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    let given = handler.fields().iter().filter_map(|field| Some((field.name, props.get(field.name)?)));
    given
        .filter(|(_, value)| !is_empty(value))
        .map(|(field, value)| FieldChange {
            field: field.into(),
            from: Value::Null,
            to: value.clone(),
            effect: ChangeEffect::InPlace,
        })
        .collect()
}

fn action_of(units: &[UnitPlan]) -> Action {
    let any = |op| units.iter().any(|u| u.op == Some(op));
    let all_new = units.iter().all(|u| u.op == Some(Op::Create));
    if any(Op::Replace) {
        Action::Replace
    } else if all_new {
        Action::Create
    } else if any(Op::Update) || any(Op::Create) || any(Op::Delete) {
        Action::Update
    } else if any(Op::Adopt) {
        Action::Resume
    } else {
        Action::Unchanged
    }
}
