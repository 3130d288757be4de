//! Reads what clouds show: by list calls where many objects are asked for, one by one where few are.

use crate::handler::{Catalog, Class, Provider, Trouble};
use crate::identity::{self, belongs};
use crate::unit::{Identity, Observed, UnitState};
use futures::StreamExt;
use std::collections::HashMap;
use std::sync::Arc;

/// Up to this many objects of one list are read one by one: a list call would show mostly others.
const FEW: usize = 3;
/// Calls in flight for one read.
const READS_AT_ONCE: usize = 8;

/// What was seen of each unit asked for, in the same order. `None`: it is gone.
pub type Seen = Vec<Result<Option<Observed>, Trouble>>;

pub struct Looked {
    pub seen: Seen,
    /// Units of earlier versions that were found by their id, with whom the account belongs to: to be written down.
    pub learned: Vec<UnitState>,
}

/// Reads many units, each through the account that it was made in. Those without an id are looked for by their token.
/// `gone_is_sure`: what is not found is gone, also where the state does not say which account it was made in.
pub async fn observe(catalog: &dyn Catalog, units: &[&UnitState], gone_is_sure: bool) -> Looked {
    let mut connections: HashMap<&str, Connection> = HashMap::new();
    for unit in units {
        if !connections.contains_key(unit.account.as_str()) {
            connections.insert(&unit.account, connect(catalog, &unit.account).await);
        }
    }
    let mut seen = look(&connections, units).await;
    let mut learned = Vec::new();
    for (unit, result) in units.iter().zip(&mut seen).filter(|(unit, _)| unit.identity.is_none()) {
        let Ok((_, who)) = &connections[unit.account.as_str()] else { continue };
        match result {
            Ok(Some(_)) => learned.extend(identity::learned(unit, who)),
            Ok(None) if !gone_is_sure => *result = Err(identity::unsure(unit, who)),
            _ => {}
        }
    }
    Looked { seen, learned }
}

/// An account's connection, and whom it belongs to.
type Connection = Result<(Arc<dyn Provider>, Identity), Trouble>;

async fn connect(catalog: &dyn Catalog, account: &str) -> Connection {
    let provider = catalog.provider(account).await?;
    let who = provider.identity().await?;
    Ok((provider, who))
}

async fn look(connections: &HashMap<&str, Connection>, units: &[&UnitState]) -> Seen {
    let mut seen: Seen = vec![Ok(None); units.len()];
    let mut groups: HashMap<(&str, &'static str, &str), Vec<usize>> = HashMap::new();
    let mut single = Vec::new();
    for (index, unit) in units.iter().enumerate() {
        let connected = connections[unit.account.as_str()].as_ref().map_err(Trouble::clone);
        let provider = match connected.and_then(|(provider, who)| belongs(unit, who).map(|()| provider)) {
            Ok(provider) => provider,
            Err(trouble) => {
                seen[index] = Err(trouble);
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
        let Ok((provider, _)) = &connections[account] else { continue };
        single.extend(by_list(&**provider, list, scope, &members, units, &mut seen).await);
    }

    let reads = futures::stream::iter(single.into_iter().map(|index| {
        let unit = units[index];
        let connection = &connections[unit.account.as_str()];
        async move {
            let result = match connection {
                Ok((provider, _)) => read_one(&**provider, unit).await,
                Err(trouble) => Err(trouble.clone()),
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

/// Reads or finds one unit, through the account that it was made in.
pub(crate) async fn read_one(provider: &dyn Provider, unit: &UnitState) -> Result<Option<Observed>, Trouble> {
    belongs(unit, &provider.identity().await?)?;
    let handler = provider.handler(&unit.unit_type).ok_or_else(|| no_handler(&unit.unit_type))?;
    let result = match &unit.id {
        Some(id) => handler.read(id, &unit.props).await,
        // It was found in a list, which may be behind: only a look at the object itself says that it is there.
        None => match handler.find(&unit.props, Some(&unit.token)).await {
            Ok(Some(found)) => handler.read(&found.id, &unit.props).await,
            other => other,
        },
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
