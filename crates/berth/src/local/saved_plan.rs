//! A plan in a file: the manifests it was made from and what it promised. Secrets in it are sealed with the state's key, and all
//! of it is authenticated with that key: a plan that someone changed, or that is another state's, is refused.

use crate::failure::Failure;
use crate::local::project;
use berth_engine::Plan;
use berth_model::{Manifest, ResourceId};
use berth_store::{NewResource, Store};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Of both sorts of plans, an engine's and a server's. The first was not authenticated.
pub const VERSION: u32 = 2;
const MOST_BYTES: u64 = 512 << 20;
/// Where the authentication code stands; it is of everything else.
const CODE: &str = "code";

/// What is authenticated.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    /// The version; its name identifies such a file.
    berth_plan: u32,
    /// The state that it was planned for.
    state: String,
    manifests: Vec<Sealed>,
    unwanted: Vec<ResourceId>,
    plan: Plan,
}

/// A saved plan that was read and not checked yet.
pub struct SavedPlan {
    path: PathBuf,
    body: Value,
    code: String,
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
        .help("a plan is made with `berth plan --out FILE`; manifests are given with -f")
}

/// A plan's file as it is.
pub fn read(path: &Path) -> Result<Value, Failure> {
    let mut text = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut text));
    read.map_err(|error| cannot_read(path, &error))?;
    serde_json::from_slice(&text).map_err(|error| cannot_read(path, &error))
}

/// Refuses a file of a version whose plans cannot be checked. `mark` is the field that holds the version.
pub fn check_version(path: &Path, file: &Value, mark: &str) -> Result<(), Failure> {
    let shown = path.display();
    match file.get(mark).and_then(Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => Ok(()),
        Some(0 | 1) => {
            Err(Failure::new(format!("{shown} was made by a version of Berth that did not authenticate plans"))
                .help(format!("run berth plan again:   berth plan -f FILE --out {shown}")))
        }
        Some(_) => Err(Failure::new(format!("{shown} was made by another version of Berth"))
            .help(format!("run berth plan again:   berth plan -f FILE --out {shown}"))),
        None => Err(Failure::new(format!("{shown} is not a saved plan"))
            .help("a plan is made with `berth plan --out FILE`; manifests are given with -f")),
    }
}

impl SavedPlan {
    /// Writes a plan of this state.
    pub fn save(
        store: &Store,
        manifests: &[Arc<Manifest>],
        unwanted: &[ResourceId],
        plan: &Plan,
        path: &Path,
    ) -> Result<(), Failure> {
        let mut sealed = Vec::with_capacity(manifests.len());
        for manifest in manifests {
            let (manifest, paths) = store.seal(NewResource::of(manifest)?)?;
            sealed.push(Sealed { manifest, sealed: paths });
        }
        let body = Body {
            berth_plan: VERSION,
            state: store.state_id().to_owned(),
            manifests: sealed,
            unwanted: unwanted.to_vec(),
            plan: plan.clone(),
        };
        let written = |error: &serde_json::Error| Failure::caused("cannot write the plan", error);
        // As it will be read: numbers may look different after they were text.
        let text = serde_json::to_vec(&body).map_err(|error| written(&error))?;
        let mut file: Value = serde_json::from_slice(&text).map_err(|error| written(&error))?;
        file[CODE] = store.plan_code(&file).into();
        write(&file, path)
    }

    pub fn read(path: &Path) -> Result<Self, Failure> {
        let mut body = read(path)?;
        if let Some(server) = crate::remote::saved_plan::server_of(&body) {
            return Err(Failure::new(format!(
                "{} was planned by {server}, not by the embedded engine",
                path.display()
            ))
            .help("choose that server with --context NAME, as `berth context` lists them"));
        }
        check_version(path, &body, "berthPlan")?;
        let code = body.as_object_mut().and_then(|fields| fields.remove(CODE));
        let code = code.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Self { path: path.to_owned(), body, code })
    }

    /// Verifies that this is an unmodified plan of this state, and decrypts its secrets.
    pub fn open(self, store: &Store) -> Result<Opened, Failure> {
        let shown = self.path.display();
        let state = self.body.get("state").and_then(Value::as_str).unwrap_or_default();
        if state != store.state_id() {
            return Err(Failure::new(format!("{shown} was planned for another state, not for {}", store.location()))
                .note(format!("the plan is of state {state}, this one is {}", store.state_id()))
                .help("choose the state that it was planned for with --state FILE, or run berth plan again"));
        }
        if !store.is_plan_code(&self.body, &self.code) {
            return Err(changed(&shown.to_string()));
        }
        let body: Body = serde_json::from_value(self.body).map_err(|error| cannot_read(&self.path, &error))?;
        let mut manifests = Vec::with_capacity(body.manifests.len());
        for one in body.manifests {
            let clear = store.open_sealed(one.manifest, &one.sealed)?;
            let manifest = Manifest::from_json(&clear)
                .map_err(|error| Failure::caused("the plan holds a manifest that cannot be read", &error))?;
            manifests.push(Arc::new(manifest));
        }
        Ok(Opened { manifests, unwanted: body.unwanted, plan: body.plan })
    }
}

fn changed(shown: &str) -> Failure {
    Failure::new(format!("{shown} was changed after it was made; nothing was done"))
        .help(format!("run berth plan again:   berth plan -f FILE --out {shown}"))
}
