//! What was applied against what clouds now show. Reads by lists; changes nothing.

use crate::deletions::strays_of;
use crate::diff::{FieldChange, diff};
use crate::handler::{Catalog, Trouble};
use crate::much_gone::{GoneCount, Tally};
use crate::observe::observe;
use crate::plan::Known;
use crate::unit::{Observed, Stray, UnitState};
use berth_model::ResourceId;
use serde::Serialize;
use std::collections::BTreeMap;

/// What was found of one resource.
#[derive(Debug, Default, Serialize)]
pub struct Drift {
    pub gone: Vec<GoneUnit>,
    pub changed: Vec<ChangedUnit>,
    /// What its creates made besides its units, by unit key.
    pub strays: Vec<(String, Stray)>,
}

#[derive(Debug, Serialize)]
pub struct GoneUnit {
    pub key: String,
    pub unit_type: String,
    pub id: String,
}

#[derive(Debug, Serialize)]
pub struct ChangedUnit {
    pub key: String,
    pub unit_type: String,
    /// `from` is what was found, `to` what is declared.
    pub changes: Vec<FieldChange>,
}

#[derive(Default)]
pub struct Drifted {
    pub checked: usize,
    pub drifted: BTreeMap<ResourceId, Drift>,
    pub troubles: Vec<(ResourceId, Trouble)>,
    /// What was seen, for `refresh`.
    pub seen: Vec<(UnitState, Option<Observed>)>,
    /// How much of each account was looked for and not found.
    pub counts: Vec<GoneCount>,
    /// Units that were found by their id, with whom the account belongs to: to be written down.
    pub learned: Vec<UnitState>,
}

impl Drifted {
    /// Accounts of which so much seems gone that it is a question.
    pub fn much_gone(&self) -> Vec<GoneCount> {
        self.counts.iter().filter(|count| count.is_much()).cloned().collect()
    }

    /// What was seen, without what seems gone together with much else: that is a question, not news.
    pub fn believed(&self) -> impl Iterator<Item = &(UnitState, Option<Observed>)> {
        let much = |account: &str| self.counts.iter().any(|one| one.account == account && one.is_much());
        self.seen.iter().filter(move |(unit, observed)| observed.is_some() || !much(&unit.account))
    }
}

/// Checks the units of the given resources. `keep` keeps what was seen.
pub async fn drift(catalog: &dyn Catalog, known: &Known, resources: &[ResourceId], keep: bool) -> Drifted {
    let units: Vec<&UnitState> = resources
        .iter()
        .flat_map(|id| known.units.get(id).map(Vec::as_slice).unwrap_or_default())
        .filter(|u| u.id.is_some() && !u.deposed)
        .collect();
    let mut result = Drifted { checked: resources.len(), ..Drifted::default() };
    let looked = observe(catalog, &units, false).await;
    result.learned = looked.learned;
    let mut tally = Tally::default();
    for (unit, seen) in units.iter().zip(looked.seen) {
        let observed = match seen {
            Ok(observed) => observed,
            Err(trouble) => {
                if result.troubles.last().is_none_or(|(id, _)| *id != unit.resource) {
                    result.troubles.push((unit.resource.clone(), trouble));
                }
                continue;
            }
        };
        tally.add(&unit.account, observed.is_none());
        match &observed {
            None => {
                let gone = GoneUnit {
                    key: unit.key.clone(),
                    unit_type: unit.unit_type.clone(),
                    id: unit.id.clone().unwrap_or_default(),
                };
                result.drifted.entry(unit.resource.clone()).or_default().gone.push(gone);
            }
            Some(observed) => {
                let Ok(provider) = catalog.provider(&unit.account).await else { continue };
                let Some(handler) = provider.handler(&unit.unit_type) else { continue };
                let changes = diff(handler, &unit.props, observed);
                match strays_of(handler, unit).await {
                    Ok(strays) if strays.is_empty() => {}
                    Ok(strays) => {
                        let found = result.drifted.entry(unit.resource.clone()).or_default();
                        found.strays.extend(strays.into_iter().map(|stray| (unit.key.clone(), stray)));
                    }
                    Err(trouble) => result.troubles.push((unit.resource.clone(), trouble)),
                }
                if !changes.is_empty() {
                    let changed = ChangedUnit { key: unit.key.clone(), unit_type: unit.unit_type.clone(), changes };
                    result.drifted.entry(unit.resource.clone()).or_default().changed.push(changed);
                }
            }
        }
        if keep {
            result.seen.push(((*unit).clone(), observed));
        }
    }
    result.counts = tally.counts();
    result
}
