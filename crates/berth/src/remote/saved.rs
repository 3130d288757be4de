//! A server's plan in a file: what it was asked, what it knew then, and what it said it would do. Manifests that hold secrets
//! are not saved: only the server could seal them.

use super::carry_out::ServerPlan;
use super::convert;
use crate::failure::Failure;
use crate::manifests::Loaded;
use crate::saved_plan::{self, VERSION};
use berth_engine::Plan;
use berth_model::ResourceId;
use berth_server::pb;
use serde::{Deserialize, Serialize};
use std::path::Path;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedServerPlan {
    /// Also what tells such a file from any other JSON.
    berth_server_plan: u32,
    pub server: String,
    files: Vec<File>,
    pub promise: Promise,
}

/// What is to be done, or nothing.
#[derive(Serialize, Deserialize)]
pub struct Promise {
    /// Generations that the plan was made from.
    bases: Vec<(ResourceId, i64)>,
    pub plan: Plan,
}

#[derive(Serialize, Deserialize)]
struct File {
    name: String,
    text: String,
}

/// What tells the two sorts of plans from each other.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mark {
    server: Option<String>,
    berth_plan: Option<u32>,
}

impl Promise {
    fn of(planned: &ServerPlan) -> Self {
        Self { bases: bases(&planned.bases), plan: planned.plan.clone() }
    }

    /// Whether a server would still do exactly this.
    pub fn holds(&self, planned: &ServerPlan) -> bool {
        self.plan == planned.plan && self.bases == bases(&planned.bases)
    }
}

fn bases(bases: &[pb::Base]) -> Vec<(ResourceId, i64)> {
    let mut bases: Vec<_> = bases.iter().map(|base| (convert::id_of(base.id.as_ref()), base.generation)).collect();
    bases.sort();
    bases
}

impl SavedServerPlan {
    pub fn new(server: &str, loaded: &Loaded, planned: &ServerPlan) -> Result<Self, Failure> {
        if let Some(secret) =
            loaded.manifests.iter().find(|manifest| manifest.redacted().to_json() != manifest.to_json())
        {
            return Err(Failure::new(format!("{} holds a secret, which a plan in a file would show", secret.id))
                .help("apply it first, by itself; then plan the rest"));
        }
        let files = loaded.files().into_iter().map(|file| File { name: file.name, text: file.text }).collect();
        Ok(Self { berth_server_plan: VERSION, server: server.to_owned(), files, promise: Promise::of(planned) })
    }

    /// For a command that asks `server`.
    pub fn read(path: &Path, server: &str) -> Result<Self, Failure> {
        let shown = path.display();
        let text = saved_plan::bytes(path)?;
        if let Ok(Mark { berth_plan: Some(_), .. }) = serde_json::from_slice(&text) {
            return Err(Failure::new(format!("{shown} was planned by the embedded engine, not by {server}"))
                .help(format!("to carry it out by the engine:   berth apply {shown} --local")));
        }
        let saved = saved_plan::parse(path, &text, |saved: &Self| saved.berth_server_plan)?;
        if saved.server != server {
            return Err(Failure::new(format!("{shown} was planned by {}, not by {server}", saved.server))
                .help("choose that server with --context NAME, as `berth context` lists them"));
        }
        Ok(saved)
    }

    pub fn files(&self) -> Vec<pb::ManifestFile> {
        self.files.iter().map(|file| pb::ManifestFile { name: file.name.clone(), text: file.text.clone() }).collect()
    }
}

/// The server that a file's plan is of, if it is of one.
pub fn server_of(text: &[u8]) -> Option<String> {
    serde_json::from_slice(text).ok().and_then(|mark: Mark| mark.server)
}
