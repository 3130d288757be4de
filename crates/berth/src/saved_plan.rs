//! A plan in a file: the manifests it was made from and what it promised. Secrets in it are sealed with the state's key.

use crate::failure::Failure;
use crate::project;
use berth_engine::Plan;
use berth_model::{Manifest, ResourceId};
use berth_store::{NewResource, Store};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Of both sorts of plans: an engine's, and a server's.
pub const VERSION: u32 = 1;
const MOST_BYTES: u64 = 512 << 20;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedPlan {
    /// Also what tells such a file from any other JSON.
    berth_plan: u32,
    manifests: Vec<Sealed>,
    unwanted: Vec<ResourceId>,
    plan: Plan,
}

/// A saved plan, ready to be carried out.
pub struct Opened {
    pub manifests: Vec<Arc<Manifest>>,
    pub unwanted: Vec<ResourceId>,
    pub plan: Plan,
}

#[derive(Serialize, Deserialize)]
struct Sealed {
    manifest: Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sealed: Vec<String>,
}

/// For its owner alone.
pub fn write(plan: &impl Serialize, path: &Path) -> Result<(), Failure> {
    let text = serde_json::to_vec(plan).map_err(|error| Failure::caused("cannot write the plan", &error))?;
    project::write_private(path, &text)
}

fn cannot_read(path: &Path, error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::caused(format!("cannot read the plan {}", path.display()), error)
}

pub fn bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut text));
    read.map(|_| text).map_err(|error| cannot_read(path, &error))
}

/// What a file holds, where this berth knows its version.
pub fn parse<T: DeserializeOwned>(path: &Path, text: &[u8], version: impl Fn(&T) -> u32) -> Result<T, Failure> {
    let saved: T = serde_json::from_slice(text).map_err(|error| {
        cannot_read(path, &error).help("a plan is made with `berth plan --out FILE`; manifests are given with -f")
    })?;
    match version(&saved) {
        VERSION => Ok(saved),
        _ => Err(Failure::new(format!("{} was made by another version of Berth", path.display())).help("plan again")),
    }
}

impl SavedPlan {
    pub fn new(
        store: &Store,
        manifests: &[Arc<Manifest>],
        unwanted: &[ResourceId],
        plan: &Plan,
    ) -> Result<Self, Failure> {
        let mut sealed = Vec::with_capacity(manifests.len());
        for manifest in manifests {
            let (manifest, paths) = store.seal(NewResource::of(manifest)?)?;
            sealed.push(Sealed { manifest, sealed: paths });
        }
        Ok(Self { berth_plan: VERSION, manifests: sealed, unwanted: unwanted.to_vec(), plan: plan.clone() })
    }

    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = bytes(path)?;
        if let Some(server) = crate::remote::saved::server_of(&text) {
            return Err(Failure::new(format!(
                "{} was planned by {server}, not by the embedded engine",
                path.display()
            ))
            .help("choose that server with --context NAME, as `berth context` lists them"));
        }
        parse(path, &text, |saved: &Self| saved.berth_plan)
    }

    /// With secrets in the clear again.
    pub fn open(self, store: &Store) -> Result<Opened, Failure> {
        let mut manifests = Vec::with_capacity(self.manifests.len());
        for one in self.manifests {
            let clear = store.open_sealed(one.manifest, &one.sealed)?;
            let manifest = Manifest::from_json(&clear)
                .map_err(|error| Failure::caused("the plan holds a manifest that cannot be read", &error))?;
            manifests.push(Arc::new(manifest));
        }
        Ok(Opened { manifests, unwanted: self.unwanted, plan: self.plan })
    }
}
