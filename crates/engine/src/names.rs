//! Checks while planning, before anything is made, that a new object's name is free.

use crate::handler::{Catalog, Handler, Provider, Trouble};
use crate::lower::{name_in, taken};
use crate::unit::{Props, Unit};
use crate::unknown::is_unknown;
use std::collections::HashMap;

/// New units of one type up to this many are each looked up; more are compared with the whole list.
const LOOKED_UP: usize = 20;
/// Pages of a list that are read for names.
const PAGES_MAX: u32 = 1_000;

/// Ids by unit type and name, of everything that a list shows.
type Listed = HashMap<(String, String), String>;

#[derive(Default)]
pub(crate) struct Names {
    /// How many of each unit type were looked up.
    lookups: HashMap<String, usize>,
    /// By account, list and scope.
    lists: HashMap<(String, &'static str, String), Listed>,
}

impl Names {
    /// Refuses a name that another object has, and says how to take that object over.
    pub async fn free(
        &mut self,
        catalog: &dyn Catalog,
        (provider, handler, account): (&dyn Provider, &dyn Handler, &str),
        unit: &Unit,
        props: &Props,
    ) -> Result<(), Trouble> {
        let count = self.lookups.entry(unit.unit_type.clone()).or_default();
        *count += 1;
        // A handler's own look needs all of its properties; a name in a list needs none but itself.
        let other = if *count <= LOOKED_UP && !props.values().any(is_unknown) {
            handler.find(props, None).await?.map(|other| other.id)
        } else {
            self.listed(catalog, (provider, account), unit, props).await?
        };
        let Some(id) = other else { return Ok(()) };
        // A list may be behind, and show what is gone.
        match handler.read(&id, props).await {
            Ok(None) => Ok(()),
            Err(trouble) if trouble.is_not_found() => Ok(()),
            _ => Err(taken(catalog, unit, props, &id)),
        }
    }

    async fn listed(
        &mut self,
        catalog: &dyn Catalog,
        (provider, account): (&dyn Provider, &str),
        unit: &Unit,
        props: &Props,
    ) -> Result<Option<String>, Trouble> {
        let name = name_in(catalog, &unit.unit_type, props);
        let (Some(list), Some(name)) = (provider.list_for(&unit.unit_type), name) else { return Ok(None) };
        // Names of pools are their cluster's own: a new cluster has none, and an old one refuses a second itself.
        if catalog.names_are_inner(&unit.unit_type) {
            return Ok(None);
        }
        let key = (account.to_owned(), list, unit.scope.clone());
        if !self.lists.contains_key(&key) {
            let names = read(catalog, provider, list, &unit.scope).await?;
            self.lists.insert(key.clone(), names);
        }
        Ok(self.lists.get(&key).and_then(|names| names.get(&(unit.unit_type.clone(), name.to_owned()))).cloned())
    }
}

async fn read(catalog: &dyn Catalog, provider: &dyn Provider, list: &str, scope: &str) -> Result<Listed, Trouble> {
    let mut names = Listed::new();
    let mut page = 1;
    loop {
        let answer = provider.list(list, scope, page).await?;
        for item in answer.items {
            if let Some(name) = name_in(catalog, item.unit_type, &item.observed.props) {
                names.insert((item.unit_type.to_owned(), name.to_owned()), item.observed.id);
            }
        }
        match answer.next {
            Some(next) if next > page && next <= PAGES_MAX => page = next,
            _ => return Ok(names),
        }
    }
}
