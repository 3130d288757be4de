//! Objects of clouds that manifests name by id and that other resources manage: what is another resource's object is under that
//! resource's scope and approval, however it is named.

use super::check::invalid;
use crate::access::{Principal, Role};
use crate::api::ServerState;
use crate::fault::Fault;
use berth_clouds::one_form;
use berth_model::{Manifest, ResourceId};
use std::collections::HashMap;

/// The resources whose objects a manifest names by id, with the fields that do so.
pub type Uses = HashMap<ResourceId, Vec<(String, ResourceId)>>;

/// Of each manifest. Its own objects are not another's.
pub async fn uses<'m>(server: &ServerState, manifests: impl IntoIterator<Item = &'m Manifest>) -> Result<Uses, Fault> {
    let named: Vec<(&ResourceId, Vec<(String, String)>)> = manifests
        .into_iter()
        .map(|manifest| (&manifest.id, spelt(manifest.literals())))
        .filter(|(_, literals)| !literals.is_empty())
        .collect();
    let mut objects: Vec<String> = named.iter().flat_map(|(_, literals)| literals).map(|(_, id)| id.clone()).collect();
    objects.sort();
    objects.dedup();
    let mut owners: HashMap<String, Vec<ResourceId>> = HashMap::new();
    for (object, owner) in server.control.store().managers(&objects).await? {
        owners.entry(object).or_default().push(owner);
    }
    let mut uses = Uses::new();
    for (id, literals) in named {
        let found = literals.into_iter().flat_map(|(field, object)| {
            let owners = owners.get(&object).into_iter().flatten().filter(|owner| *owner != id);
            owners.map(|owner| (field.clone(), owner.clone())).collect::<Vec<_>>()
        });
        let found: Vec<_> = found.collect();
        if !found.is_empty() {
            uses.insert(id.clone(), found);
        }
    }
    Ok(uses)
}

/// Ids as they are written, and in the one form that clouds give them: another spelling is no other object.
fn spelt(literals: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut all = Vec::with_capacity(literals.len());
    for (field, id) in literals {
        let usual = one_form(&id);
        if usual != id {
            all.push((field.clone(), usual));
        }
        all.push((field, id));
    }
    all
}

/// A caller who uses a resource's object must be allowed to change that resource.
pub async fn check(server: &ServerState, caller: &Principal, manifests: &[Manifest]) -> Result<(), Fault> {
    let uses = uses(server, manifests).await?;
    let mut problems = Vec::new();
    for manifest in manifests {
        for (field, owner) in uses.get(&manifest.id).into_iter().flatten() {
            let Err(fault) = caller.require(Role::Operator, owner) else { continue };
            // Whose it is, is told to those who may see it.
            let whose = if caller.may_see(owner) { owner.to_string() } else { "another resource".into() };
            let message = format!("this is an object of {whose}, which {} may not change", caller.actor.name);
            let mut problem = manifest.problem(&format!("spec.{field}"), message);
            problem.help = fault.help;
            problems.push(problem);
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(invalid(&problems)) }
}
