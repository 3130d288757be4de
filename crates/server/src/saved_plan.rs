//! Plans that are saved in files before they are applied. Each carries an authentication code made with a key of the server's state,
//! and is accepted only unchanged: others may be able to write the file.

use crate::fault::{Code, Fault};
use crate::pb;
use crate::values::from_struct;
use berth_store::Store;
use serde_json::{Value, json};

/// What a plan was made of and what it says, for a code.
fn content(
    files: &[pb::ManifestFile],
    delete: &[pb::ResourceId],
    bases: &[pb::Base],
    plan: Option<&prost_types::Struct>,
) -> Value {
    let id = |id: &pb::ResourceId| json!([id.kind, id.name, id.org, id.env]);
    json!({
        "berthServerPlan": 2,
        "files": files.iter().map(|file| json!([file.name, file.text])).collect::<Vec<_>>(),
        "delete": delete.iter().map(id).collect::<Vec<_>>(),
        "bases": bases.iter().map(|base| json!([base.id.as_ref().map(id), base.generation])).collect::<Vec<_>>(),
        "plan": plan.map(from_struct),
    })
}

/// The code of a plan that is about to be answered.
pub fn code(store: &Store, files: &[pb::ManifestFile], delete: &[pb::ResourceId], answer: &pb::PlanResponse) -> String {
    store.plan_code(&content(files, delete, &answer.bases, answer.plan.as_ref()))
}

/// Refuses what this server did not make, or did not make for these files.
pub fn check(
    store: &Store,
    saved: &pb::SavedPlan,
    files: &[pb::ManifestFile],
    delete: &[pb::ResourceId],
) -> Result<(), Fault> {
    let again = "run berth plan again:   berth plan -f FILE --out PLAN";
    if saved.state != store.state_id() {
        return Err(Fault::new(Code::Refused, "the saved plan was made by another server").help(again));
    }
    if !store.is_plan_code(&content(files, delete, &saved.bases, saved.plan.as_ref()), &saved.code) {
        let message = "the saved plan was changed after it was made; nothing was done";
        return Err(Fault::new(Code::Refused, message).help(again));
    }
    Ok(())
}
