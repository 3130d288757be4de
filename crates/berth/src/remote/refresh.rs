//! The state of a server brought up to date: what it says before and after.

use super::{Remote, drift, messages};
use crate::backend::Selection;
use crate::backend::refreshed::{Refreshed, compare};
use crate::failure::Failure;
use berth_model::ResourceId;
use berth_store::{Filter, StoredResource};
use std::collections::BTreeMap;

pub async fn refresh(remote: &Remote, selection: &Selection) -> Result<Refreshed, Failure> {
    let (mut request, _) = drift::selected(remote, selection).await?;
    let scope = Filter {
        org: Some(request.org.clone()).filter(|org| !org.is_empty()),
        env: Some(request.env.clone()).filter(|env| !env.is_empty()),
        ..Filter::default()
    };
    let asked: Vec<ResourceId> = request.ids.iter().map(|id| messages::id_of(Some(id))).collect();
    let read = async || -> Result<BTreeMap<ResourceId, StoredResource>, Failure> {
        let found = match asked.is_empty() {
            true => remote.resources(&scope).await?,
            false => {
                let several = remote.several(&asked).await?;
                several.iter().filter_map(|(_, found)| found.as_ref().map(messages::stored)).collect()
            }
        };
        Ok(found.into_iter().map(|stored| (stored.id.clone(), stored)).collect())
    };
    let before = read().await?;
    request.refresh = true;
    let answer = drift::compare(remote, request).await?;
    let after = read().await?;
    let mut changes = Vec::new();
    for (id, now) in &after {
        if let Some(before) = before.get(id) {
            compare(before, &now.status, &mut changes);
        }
    }
    let seen = drift::seen(&answer);
    Ok(Refreshed {
        changes,
        checked: seen.checked,
        calls: answer.calls,
        troubles: seen.troubles,
        much_gone: Vec::new(),
    })
}
