//! What goes: whole resources, and objects that others have taken the place of.

use crate::graph::Graph;
use crate::handler::{Catalog, Handler, Outcome, Provider};
use crate::lower::parents;
use crate::plan::{Action, Request, ResourcePlan, UnitPlan};
use crate::reason::PlanReason;
use crate::unit::{Observed, Op, Stray, UnitState};
use berth_model::ResourceId;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The row that stands for each key. Where a replacement was announced and not begun, the old object is still the unit.
pub(crate) fn live(states: &[UnitState]) -> HashMap<&str, &UnitState> {
    let mut live: HashMap<&str, &UnitState> = HashMap::with_capacity(states.len());
    // Tokens grow with time, so that the newest of several is the greatest.
    for state in states {
        let best = live.entry(&state.key).or_insert(state);
        if (best.deposed, &state.token) > (state.deposed, &best.token) {
            *best = state;
        }
    }
    live
}

/// Ids of the objects that the live one takes the place of.
pub(crate) fn replaced<'a>(
    states: &'a [UnitState],
    live: &'a HashMap<&str, &UnitState>,
    key: &'a str,
) -> impl Iterator<Item = &'a str> {
    let token = live.get(key).map(|state| state.token.as_str());
    let old = states.iter().filter(move |state| state.key == key && token != Some(state.token.as_str()));
    old.filter_map(|state| state.id.as_deref())
}

/// What a unit's create made besides it. Only a create that was sent more than once can have.
pub(crate) async fn strays_of(handler: &dyn Handler, state: &UnitState) -> Outcome<Vec<Stray>> {
    match &state.id {
        Some(id) if state.asked_again() => handler.strays(&state.token, id).await,
        _ => Ok(Vec::new()),
    }
}

pub(crate) fn gone(
    state: &UnitState,
    handler: Option<&dyn Handler>,
    exists: bool,
    reason: Option<PlanReason>,
) -> UnitPlan {
    UnitPlan {
        op: Some(Op::Delete),
        reason,
        loses_data: exists && handler.is_some_and(|h| h.holds_data()),
        ..UnitPlan::untouched(&state.key, &state.unit_type, "")
    }
}

/// Deletions, with what refers to a resource going before it.
pub(crate) async fn deletions(
    catalog: &dyn Catalog,
    request: &Request,
    seen: &HashMap<String, Option<Observed>>,
) -> Vec<ResourcePlan> {
    let index: HashMap<&ResourceId, usize> = request.unwanted.iter().enumerate().map(|(i, id)| (id, i)).collect();
    let mut graph = Graph::new(0..request.unwanted.len());
    let mut after: Vec<Vec<ResourceId>> = vec![Vec::new(); request.unwanted.len()];
    for (child, id) in request.unwanted.iter().enumerate() {
        let Some(known) = request.known.resources.get(id) else { continue };
        for parent in parents(&known.manifest).iter().filter_map(|to| index.get(to)) {
            graph.edge(child, *parent);
            if after[*parent].last() != Some(id) {
                after[*parent].push(id.clone());
            }
        }
    }
    // What stays and has referred to it lets go of it first.
    for wanted in &request.wanted {
        let Some(known) = request.known.resources.get(&wanted.manifest.id) else { continue };
        for parent in parents(&known.manifest).iter().filter_map(|to| index.get(to)) {
            after[*parent].push(wanted.manifest.id.clone());
        }
    }
    let order = graph.order().unwrap_or_else(|_| (0..request.unwanted.len()).collect());
    let mut plans = Vec::with_capacity(order.len());
    for i in order {
        let id = &request.unwanted[i];
        let states = request.known.units.get(id).map(Vec::as_slice).unwrap_or_default();
        let (mut units, mut strays) = (Vec::with_capacity(states.len()), Vec::new());
        let mut typical = Duration::ZERO;
        for state in states {
            let provider: Option<Arc<dyn Provider>> = catalog.provider(&state.account).await.ok();
            let handler = provider.as_deref().and_then(|p| p.handler(&state.unit_type));
            let exists = seen.get(&state.token).is_none_or(Option::is_some);
            typical +=
                handler.filter(|_| exists).and_then(|h| h.typical(Op::Delete, &state.props, &[])).unwrap_or_default();
            if let Some(handler) = handler {
                // Only reported here: the deletion itself looks again, and ends when there are none.
                strays.extend(strays_of(handler, state).await.unwrap_or_default());
            }
            units.push(gone(state, handler, exists, (!exists).then_some(PlanReason::AlreadyGone)));
        }
        let typical_seconds = Some(typical.as_secs()).filter(|s| *s > 0);
        plans.push(ResourcePlan {
            id: id.clone(),
            action: Action::Delete,
            units,
            after: std::mem::take(&mut after[i]),
            typical_seconds,
            strays,
        });
    }
    plans
}
