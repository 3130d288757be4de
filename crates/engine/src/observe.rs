//! Reads what clouds show: by list calls where many objects are asked for, one by one where few are.

use crate::handler::{Catalog, Class, Provider, Trouble};
use crate::unit::{Observed, UnitState};
use futures::StreamExt;
use std::collections::HashMap;
use std::sync::Arc;

/// Up to this many objects of one list are read one by one: a list call would show mostly others.
const FEW: usize = 3;
/// Calls in flight for one read.
const READS_AT_ONCE: usize = 8;

/// What was seen of each unit asked for, in the same order. `None`: it is gone.
pub type Seen = Vec<Result<Option<Observed>, Trouble>>;

/// Reads many units. Those without an id are looked for by their token.
pub async fn observe(catalog: &dyn Catalog, units: &[&UnitState]) -> Seen {
    let mut seen: Seen = vec![Ok(None); units.len()];
    let mut groups: HashMap<(&str, &'static str, &str), Vec<usize>> = HashMap::new();
    let mut single = Vec::new();
    let mut providers: HashMap<&str, Result<Arc<dyn Provider>, Trouble>> = HashMap::new();
    for (index, unit) in units.iter().enumerate() {
        if !providers.contains_key(unit.account.as_str()) {
            providers.insert(&unit.account, catalog.provider(&unit.account).await);
        }
        let provider = match &providers[unit.account.as_str()] {
            Ok(provider) => provider,
            Err(trouble) => {
                seen[index] = Err(trouble.clone());
                continue;
            }
        };
        match provider.list_for(&unit.unit_type) {
            Some(list) if unit.id.is_some() => {
                groups.entry((&unit.account, list, &unit.scope)).or_default().push(index);
            }
            _ => single.push(index),
        }
    }

    for ((account, list, scope), members) in groups {
        if members.len() <= FEW {
            single.extend(members);
            continue;
        }
        let Ok(provider) = &providers[account] else { continue };
        single.extend(by_list(&**provider, list, scope, &members, units, &mut seen).await);
    }

    let reads = futures::stream::iter(single.into_iter().map(|index| {
        let unit = units[index];
        let provider = providers.get(unit.account.as_str()).cloned();
        async move {
            let result = match provider {
                Some(Ok(provider)) => read_one(&*provider, unit).await,
                Some(Err(trouble)) => Err(trouble),
                None => Ok(None),
            };
            (index, result)
        }
    }))
    .buffer_unordered(READS_AT_ONCE);
    let results: Vec<_> = reads.collect().await;
    for (index, result) in results {
        seen[index] = result;
    }
    seen
}

/// Fills `seen` from a list, page by page, and returns those that are still to be read singly: an object that a list did
/// not show may have slipped between two pages, so that only a read of its own says that it is gone.
async fn by_list(
    provider: &dyn Provider,
    list: &str,
    scope: &str,
    members: &[usize],
    units: &[&UnitState],
    seen: &mut Seen,
) -> Vec<usize> {
    let mut wanted: HashMap<&str, HashMap<&str, usize>> = HashMap::new();
    // Two rows may stand for one object (imported twice): a list shows it once, so that the other row reads for itself.
    let mut singly = Vec::new();
    for index in members {
        let Some(id) = units[*index].id.as_deref() else { continue };
        singly.extend(wanted.entry(&units[*index].unit_type).or_default().insert(id, *index));
    }
    let mut left = members.len() - singly.len();
    let mut page = 1;
    while left > 0 {
        let answer = match provider.list(list, scope, page).await {
            Ok(answer) => answer,
            Err(trouble) => {
                wanted
                    .into_values()
                    .flat_map(HashMap::into_values)
                    .for_each(|index| seen[index] = Err(trouble.clone()));
                return singly;
            }
        };
        for item in answer.items {
            let found = wanted.get_mut(item.unit_type).and_then(|ids| ids.remove(item.observed.id.as_str()));
            if let Some(index) = found {
                seen[index] = Ok(Some(item.observed));
                left -= 1;
            }
        }
        match answer.next {
            Some(next) if next > page => page = next,
            _ => break,
        }
        // A large account with few of ours in it: reading these is cheaper than walking the rest of the list.
        if answer.pages.is_some_and(|pages| (pages.saturating_sub(page - 1)) as usize > left) {
            break;
        }
    }
    singly.extend(wanted.into_values().flat_map(HashMap::into_values));
    singly
}

/// Reads or finds one unit.
pub async fn read_one(provider: &dyn Provider, unit: &UnitState) -> Result<Option<Observed>, Trouble> {
    let handler = provider.handler(&unit.unit_type).ok_or_else(|| no_handler(&unit.unit_type))?;
    let result = match &unit.id {
        Some(id) => handler.read(id, &unit.props).await,
        None => handler.find(&unit.props, Some(&unit.token)).await,
    };
    match result {
        Err(trouble) if trouble.class == Class::NotFound => Ok(None),
        other => other,
    }
}

pub(crate) fn no_handler(unit_type: &str) -> Trouble {
    Trouble::refused(format!("this version of Berth does not know units of type {unit_type}"))
        .help("the state was written by a newer version: upgrade this one")
}
