//! A server's plan in a file: what it was asked, what it knew then, and what it said it would do, with the server's authentication
//! code of all that. The server checks the code before anything is planned or applied. Manifests that hold secrets are not
//! saved: only the server could seal them.

use super::carry_out::ServerPlan;
use super::messages;
use crate::failure::Failure;
use crate::local::manifests::Loaded;
use crate::local::saved_plan::{self, VERSION};
use berth_engine::Plan;
use berth_model::ResourceId;
use berth_server::pb;
use berth_server::values::object_to_struct;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

const MARK: &str = "berthServerPlan";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedServerPlan {
    /// The version; its name identifies such a file.
    berth_server_plan: u32,
    pub server: String,
    /// The server's state.
    state: String,
    files: Vec<File>,
    /// Generations that the plan was made from.
    bases: Vec<(ResourceId, i64)>,
    /// As the server sent it, with fields that a newer server may have added.
    plan: Value,
    code: String,
}

/// A saved plan that was read.
pub struct Promise {
    bases: Vec<(ResourceId, i64)>,
    pub plan: Plan,
    /// What the server verifies.
    pub saved: pb::SavedPlan,
}

#[derive(Serialize, Deserialize)]
struct File {
    name: String,
    text: String,
}

impl Promise {
    /// Whether the server's present plan is the same.
    pub fn holds(&self, planned: &ServerPlan) -> bool {
        let mut bases = bases(&planned.bases);
        bases.sort();
        self.plan.does_what(&planned.plan) && self.bases == bases
    }
}

fn bases(bases: &[pb::Base]) -> Vec<(ResourceId, i64)> {
    bases.iter().map(|base| (messages::id_of(base.id.as_ref()), base.generation)).collect()
}

impl SavedServerPlan {
    pub fn new(server: &str, loaded: &Loaded, planned: &ServerPlan) -> Result<Self, Failure> {
        if let Some(secret) =
            loaded.manifests.iter().find(|manifest| manifest.redacted().to_json() != manifest.to_json())
        {
            return Err(Failure::new(format!("{} holds a secret, which a plan in a file would show", secret.id))
                .help("apply it first, by itself; then plan the rest"));
        }
        if planned.code.is_empty() {
            return Err(Failure::new(format!("{server} is of a version that does not authenticate plans"))
                .help("upgrade the server; or apply without a saved plan:   berth apply -f FILE"));
        }
        let files = loaded.files().into_iter().map(|file| File { name: file.name, text: file.text }).collect();
        Ok(Self {
            berth_server_plan: VERSION,
            server: server.to_owned(),
            state: planned.state.clone(),
            files,
            bases: bases(&planned.bases),
            plan: planned.sent.clone(),
            code: planned.code.clone(),
        })
    }

    /// For a command that asks `server`.
    pub fn read(path: &Path, server: &str) -> Result<Self, Failure> {
        let shown = path.display();
        let file = saved_plan::read(path)?;
        if file.get("berthPlan").is_some() {
            return Err(Failure::new(format!("{shown} was planned by the embedded engine, not by {server}"))
                .help(format!("to carry it out by the engine:   berth apply {shown} --local")));
        }
        saved_plan::check_version(path, &file, MARK)?;
        let saved: Self = serde_json::from_value(file)
            .map_err(|error| Failure::caused(format!("cannot read the plan {shown}"), &error))?;
        if saved.server != server {
            return Err(Failure::new(format!("{shown} was planned by {}, not by {server}", saved.server))
                .help("choose that server with --context NAME, as `berth context` lists them"));
        }
        Ok(saved)
    }

    pub fn files(&self) -> Vec<pb::ManifestFile> {
        self.files.iter().map(|file| pb::ManifestFile { name: file.name.clone(), text: file.text.clone() }).collect()
    }

    pub fn promise(&self) -> Result<Promise, Failure> {
        let plan = Plan::from_json(&self.plan).map_err(|error| Failure::caused("cannot read the plan", &error))?;
        let base =
            |(id, generation): &(ResourceId, i64)| pb::Base { id: Some(messages::to_id(id)), generation: *generation };
        let saved = pb::SavedPlan {
            plan: Some(object_to_struct(&self.plan)),
            bases: self.bases.iter().map(base).collect(),
            state: self.state.clone(),
            code: self.code.clone(),
        };
        let mut bases = self.bases.clone();
        bases.sort();
        Ok(Promise { bases, plan, saved })
    }
}

/// The server that made the plan in a file; `None` if no server did.
pub fn server_of(file: &Value) -> Option<&str> {
    file.get(MARK).and_then(|_| file.get("server")).and_then(Value::as_str)
}
