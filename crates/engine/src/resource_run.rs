//! The work on one resource: what must go, and what must come, unit by unit.

use crate::deletions::live;
use crate::diff::fill;
use crate::graph::{Graph, Walk};
use crate::handler::{Catalog, Trouble};
use crate::lower::{given, in_order, lower, outputs_of};
use crate::observe::no_handler;
use crate::patience::Limit;
use crate::plan::{Action, Request, ResourcePlan, UnitPlan, Wanted};
use crate::prepared::Prepared;
use crate::record::Status;
use crate::run::{RunContext, Stop};
use crate::state::ResourceState;
use crate::summary::{facts, summary};
use crate::unit::{Lowered, Observed, Op, Props, Stray, Unit, UnitState};
use crate::unit_calls::UnitCalls;
use crate::unit_loop::{Made, UnitLoop};
use crate::unknown::is_unknown;
use berth_model::{Manifest, ResourceId};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use secrecy::SecretString;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use tokio::sync::{Semaphore, SemaphorePermit};

/// What the work on all resources of a plan shares.
pub(crate) struct ResourceRun<'a> {
    pub cx: RunContext<'a>,
    catalog: &'a dyn Catalog,
    request: &'a Request,
    wanted: HashMap<&'a ResourceId, &'a Wanted>,
    /// Resources that others of this plan wait for.
    needed: HashSet<&'a ResourceId>,
    seen: Mutex<HashMap<String, Option<Observed>>>,
    /// Resources as the plan lowered and checked them.
    prepared: Mutex<HashMap<ResourceId, Prepared>>,
    /// What is left of the units of a resource whose first step took some away.
    kept: Mutex<HashMap<ResourceId, Vec<UnitState>>>,
    outputs: Mutex<HashMap<ResourceId, Props>>,
    /// Turns in the accounts that allow only so many at once.
    turns: HashMap<String, Semaphore>,
}

/// One semaphore for each account of the request that sets a limit.
fn turns(catalog: &dyn Catalog, request: &Request) -> HashMap<String, Semaphore> {
    let wanted = request.wanted.iter().map(|w| w.account.as_str());
    let unwanted =
        request.unwanted.iter().filter_map(|id| request.known.units.get(id)).flatten().map(|u| u.account.as_str());
    let accounts: HashSet<&str> = wanted.chain(unwanted).collect();
    let limited = accounts.into_iter().filter_map(|name| Some((name.to_owned(), catalog.most_at_once(name)?)));
    limited.map(|(name, most)| (name, Semaphore::new(most.max(1)))).collect()
}

/// How a step ended.
#[derive(Default)]
pub(crate) struct End {
    pub summary: String,
    pub pending: bool,
    pub strays: Vec<Stray>,
}

impl<'a> ResourceRun<'a> {
    pub fn new(
        cx: RunContext<'a>,
        catalog: &'a dyn Catalog,
        request: &'a Request,
        plans: &'a [ResourcePlan],
        seen: HashMap<String, Option<Observed>>,
        prepared: HashMap<ResourceId, Prepared>,
    ) -> Self {
        Self {
            cx,
            catalog,
            request,
            wanted: request.wanted.iter().map(|w| (&w.manifest.id, w)).collect(),
            needed: plans.iter().flat_map(|p| &p.after).collect(),
            seen: Mutex::new(seen),
            prepared: Mutex::new(prepared),
            kept: Mutex::new(HashMap::new()),
            outputs: Mutex::new(HashMap::new()),
            turns: turns(catalog, request),
        }
    }

    /// The units of a resource, those made first in front: tokens grow with time.
    fn states(&self, id: &ResourceId) -> Vec<UnitState> {
        let kept = self.kept.lock().unwrap_or_else(|e| e.into_inner()).remove(id);
        let mut states = kept.unwrap_or_else(|| self.request.known.units.get(id).cloned().unwrap_or_default());
        states.sort_by(|a, b| a.token.cmp(&b.token));
        states
    }

    fn target(&self, id: &ResourceId) -> Option<(Arc<Manifest>, Props)> {
        let made = self.outputs.lock().unwrap_or_else(|e| e.into_inner()).get(id).cloned();
        match (self.wanted.get(id), self.request.known.resources.get(id)) {
            (Some(wanted), known) => {
                let outputs = made.or_else(|| known.map(|k| k.outputs.clone())).unwrap_or_default();
                Some((wanted.manifest.clone(), outputs))
            }
            (None, Some(known)) => Some((known.manifest.clone(), known.outputs.clone())),
            (None, None) => None,
        }
    }

    /// Outputs stay while something is changed or has failed, since others may refer to them; those of what goes first do
    /// not: they name objects that will not be there.
    fn status_before(&self, plan: &ResourcePlan, state: ResourceState) -> Status {
        let known = self.request.known.resources.get(&plan.id).filter(|_| !plan.goes_first());
        Status {
            state,
            outputs: known.map(|k| k.outputs.clone()).unwrap_or_default(),
            facts: known.map(|k| k.facts.clone()).unwrap_or_default(),
            ..Status::default()
        }
    }

    /// Before the first change: what the state calls Ready would otherwise still be called so, with outputs of objects that
    /// are gone, if the run ended half way.
    async fn unsettle(&self, plan: &ResourcePlan) -> Result<(), Stop> {
        let settled = self.request.known.resources.get(&plan.id).is_some_and(|k| k.settled);
        if settled && plan.action != Action::Unchanged {
            self.cx.recorder.status(&plan.id, self.status_before(plan, ResourceState::Pending)).await?;
        }
        Ok(())
    }

    fn limit(&self, manifest: Option<&Manifest>) -> Limit {
        Limit::from_now(manifest.and_then(Manifest::timeout).unwrap_or(self.cx.options.timeout))
    }

    /// Waits until the resource's account has room, and keeps the place while the answer lives.
    pub async fn turn(&self, plan: &ResourcePlan) -> Option<SemaphorePermit<'_>> {
        if self.turns.is_empty() || plan.action == Action::Unchanged {
            return None;
        }
        let known =
            || self.request.known.units.get(&plan.id).and_then(|units| units.first()).map(|u| u.account.as_str());
        let account = self.wanted.get(&plan.id).map(|w| w.account.as_str()).or_else(known)?;
        self.turns.get(account)?.acquire().await.ok()
    }

    /// What must go before anything new comes: a whole resource, or the units that are replaced old first.
    pub async fn unmake(&self, plan: &ResourcePlan) -> Result<End, Stop> {
        let whole = plan.action == Action::Delete;
        let known = self.request.known.resources.get(&plan.id).map(|k| &*k.manifest);
        let limit = self.limit(known);
        let mut states = self.states(&plan.id);
        let declared: HashSet<&str> =
            plan.units.iter().filter(|u| u.op != Some(Op::Delete)).map(|u| u.key.as_str()).collect();
        // What is no longer declared goes now, too: it may live inside what is replaced.
        let goes = |u: &&UnitPlan| u.delete_first || !declared.contains(u.key.as_str());
        let going: HashSet<&str> = plan.units.iter().filter(goes).map(|u| u.key.as_str()).collect();
        if whole {
            self.cx.recorder.status(&plan.id, self.status_before(plan, ResourceState::Deleting)).await?;
        } else {
            self.unsettle(plan).await?;
        }
        let mut kept = Vec::new();
        while let Some(state) = states.pop() {
            if !whole && !going.contains(state.key.as_str()) {
                kept.push(state);
                continue;
            }
            self.delete_unit(plan, state, false, limit).await?;
        }
        if whole {
            self.cx.recorder.forget_resource(&plan.id).await?;
            return Ok(End { summary: "deleted".into(), ..End::default() });
        }
        self.kept.lock().unwrap_or_else(|e| e.into_inner()).insert(plan.id.clone(), kept);
        Ok(End::default())
    }

    async fn delete_unit(&self, plan: &ResourcePlan, state: UnitState, drain: bool, limit: Limit) -> Result<(), Stop> {
        let provider = self.catalog.provider(&state.account).await?;
        let handler = provider.handler(&state.unit_type).ok_or_else(|| no_handler(&state.unit_type))?;
        let unit = Unit::new(&state.key, &state.unit_type, &state.scope, state.props.clone());
        let calls = UnitCalls {
            cx: &self.cx,
            catalog: self.catalog,
            resource: &plan.id,
            unit: &unit,
            account: &state.account,
            identity: &provider.identity().await?,
            provider: &*provider,
            handler,
            limit,
            logged: Default::default(),
        };
        calls.delete(&state, drain).await
    }

    /// The resource becomes as declared.
    pub async fn make(&self, plan: &ResourcePlan) -> Result<End, Stop> {
        let Some(wanted) = self.wanted.get(&plan.id).copied() else {
            return Err(Trouble::refused(format!("{} is planned and not declared", plan.id)).into());
        };
        let known = self.request.known.resources.get(&plan.id);
        if plan.action == Action::Unchanged && known.is_some_and(|k| k.settled) {
            return Ok(End::default());
        }
        let Prepared { lowered, checked, .. } = self.prepared(wanted)?;
        let limit = self.limit(Some(&wanted.manifest));
        let keys: HashSet<&str> = lowered.units.iter().map(|u| u.key.as_str()).collect();
        let (states, mut left): (Vec<_>, Vec<_>) =
            self.states(&plan.id).into_iter().partition(|state| keys.contains(state.key.as_str()));
        if !plan.goes_first() {
            self.unsettle(plan).await?;
        }
        let made = self.units_of(plan, wanted, (&lowered, &checked), states, limit).await?;

        while let Some(state) = left.pop() {
            if !plan.units.iter().any(|u| u.key == state.key && u.op == Some(Op::Delete)) {
                return Err(Trouble::refused(format!(
                    "{} of {} is no longer declared, and the plan did not say so",
                    state.key, plan.id
                ))
                .into());
            }
            self.delete_unit(plan, state, true, limit).await?;
        }

        let pending = made.values().any(|m| m.pending);
        self.record(plan, &wanted.account, &lowered, &made, pending).await?;
        let strays: Vec<Stray> = made.values().flat_map(|m| m.strays.iter().cloned()).collect();
        for stray in &strays {
            let detail =
                format!("{} {} was made by the same create; to delete it: {}", stray.unit_type, stray.id, stray.remove);
            self.cx.recorder.event(&plan.id, "made twice", &detail).await?;
        }
        let summary = summary(self.catalog, &plan.id.kind, &lowered, &made);
        Ok(End { summary, pending, strays })
    }

    /// The resource as the plan lowered it, or lowered now where other resources have told more since.
    fn prepared(&self, wanted: &Wanted) -> Result<Prepared, Trouble> {
        let target = |id: &ResourceId| self.target(id);
        let prepared = self.prepared.lock().unwrap_or_else(|e| e.into_inner()).remove(&wanted.manifest.id);
        match prepared.filter(|prepared| prepared.holds(&wanted.manifest, &target)) {
            Some(prepared) => Ok(prepared),
            None => {
                let lowered = lower(self.catalog, wanted, &self.request.label_prefix, &target)?;
                Ok(Prepared::new(lowered, given(&wanted.manifest, &target)))
            }
        }
    }

    /// All units, each as soon as those it depends on are there.
    async fn units_of(
        &self,
        plan: &ResourcePlan,
        wanted: &Wanted,
        (lowered, checked): (&Lowered, &HashSet<String>),
        states: Vec<UnitState>,
        limit: Limit,
    ) -> Result<HashMap<String, Made>, Stop> {
        let mut made: HashMap<String, Made> = HashMap::new();
        if lowered.units.is_empty() {
            return Ok(made);
        }
        let provider = self.catalog.provider(&wanted.account).await?;
        let identity = provider.identity().await?;
        let order = in_order(&lowered.units);
        let index: HashMap<&str, usize> = order.iter().enumerate().map(|(i, u)| (u.key.as_str(), i)).collect();
        let mut graph = Graph::new(0..order.len());
        for (after, unit) in order.iter().enumerate() {
            unit.depends_on
                .iter()
                .filter_map(|key| index.get(key.as_str()))
                .for_each(|before| graph.edge(*before, after));
        }
        let inner: HashSet<&str> = order.iter().flat_map(|u| &u.depends_on).map(String::as_str).collect();
        let live: HashMap<&str, &UnitState> = live(&states);
        let mut walk = Walk::new(graph);
        let mut running = FuturesUnordered::new();
        let mut failed: Option<Stop> = None;
        loop {
            while failed.is_none() {
                let Some(i) = walk.next() else { break };
                let unit = order[i];
                let Some(handler) = provider.handler(&unit.unit_type) else {
                    // What is in flight is still brought to its end.
                    failed = Some(no_handler(&unit.unit_type).into());
                    break;
                };
                let props = fill(&unit.props, &|key, name| {
                    made.get(key).and_then(|m: &Made| m.state.outputs.get(name)).cloned()
                });
                let state = live.get(unit.key.as_str()).map(|state| (*state).clone());
                let is_live = |s: &UnitState| state.as_ref().is_some_and(|live| live.token == s.token);
                let deposed: Vec<UnitState> =
                    states.iter().filter(|s| s.key == unit.key && !is_live(s)).cloned().collect();
                let hint =
                    state.as_ref().and_then(|s| self.seen.lock().unwrap_or_else(|e| e.into_inner()).remove(&s.token));
                let others_wait = self.needed.contains(&plan.id) || inner.contains(unit.key.as_str());
                let (provider, identity) = (&*provider, &identity);
                let is_checked = checked.contains(&unit.key);
                running.push(async move {
                    let calls = UnitCalls {
                        cx: &self.cx,
                        catalog: self.catalog,
                        resource: &plan.id,
                        unit,
                        account: &wanted.account,
                        identity,
                        provider,
                        handler,
                        limit,
                        logged: Default::default(),
                    };
                    let planned = plan.units.iter().find(|u| u.key == unit.key && u.op != Some(Op::Delete));
                    let unit_loop = UnitLoop { calls, planned, wait: self.cx.options.wait || others_wait };
                    (i, unit_loop.make(props, is_checked, state, deposed, hint).await)
                });
            }
            let Some((i, result)) = running.next().await else { break };
            match result {
                Ok(unit) => {
                    made.insert(order[i].key.clone(), unit);
                    walk.done(i);
                }
                Err(stop) => failed = failed.or(Some(stop)),
            }
        }
        failed.map_or(Ok(made), Err)
    }

    /// Status and outputs, from what the units became.
    async fn record(
        &self,
        plan: &ResourcePlan,
        account: &str,
        lowered: &Lowered,
        made: &HashMap<String, Made>,
        pending: bool,
    ) -> Result<(), Stop> {
        let mut by_unit: HashMap<String, Props> =
            made.iter().map(|(key, m)| (key.clone(), m.state.outputs.clone())).collect();
        if lowered.outputs.values().any(|from| from.unit.is_empty()) {
            let identity = self.catalog.provider(account).await?.identity().await?;
            by_unit.insert(String::new(), Props::from_iter([("identity".to_owned(), identity.name().into())]));
        }
        let mut secrets: BTreeMap<String, SecretString> = BTreeMap::new();
        for (name, from) in &lowered.outputs {
            if let Some(secret) = made.get(&from.unit).and_then(|m| m.state.secrets.get(&from.output)) {
                secrets.insert(name.clone(), secret.clone());
            }
        }
        let mut outputs = outputs_of(lowered, &by_unit);
        outputs.retain(|name, value| !secrets.contains_key(name) && !is_unknown(value));
        self.outputs.lock().unwrap_or_else(|e| e.into_inner()).insert(plan.id.clone(), outputs.clone());
        let status = Status {
            state: if pending { ResourceState::Pending } else { ResourceState::Ready },
            message: String::new(),
            outputs,
            secrets,
            facts: facts(self.catalog, &plan.id.kind, made),
            observed_generation: 0,
        };
        self.cx.recorder.status(&plan.id, status).await?;
        if !pending && plan.action != Action::Unchanged {
            self.cx.recorder.ended(&plan.id, ResourceState::Ready, "").await?;
        }
        Ok(())
    }

    pub async fn failed(&self, plan: &ResourcePlan, trouble: &Trouble) {
        let status = Status { message: trouble.to_string(), ..self.status_before(plan, ResourceState::Failed) };
        // The run's own report carries the trouble; a state that cannot be written shows up in the next write.
        let recorded = async {
            self.cx.recorder.status(&plan.id, status).await?;
            self.cx.recorder.ended(&plan.id, ResourceState::Failed, &trouble.to_string()).await
        };
        if let Err(error) = recorded.await {
            tracing::warn!(resource = %plan.id, %error, "could not record the failure");
        }
    }
}
