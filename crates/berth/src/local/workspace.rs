//! The project's own state and the clouds, and what both say about resources.

use crate::args::{Which, WorkspaceArgs};
use crate::backend::Access;
use crate::failure::Failure;
use crate::local::project;
use crate::local::sandbox::{Sandboxed, connect_or_start};
use berth_clouds::accounts::Accounts;
use berth_clouds::{Clouds, Credentials, label_prefix};
use berth_engine::unit::UnitState;
use berth_engine::{Known, Request, Wanted, parents};
use berth_model::{Manifest, ResourceId};
use berth_store::{Filter, Options, Run, Store, StoreError};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use tokio::sync::OnceCell;

/// Up to this many resources are read one by one; more are read all at once.
const FEW: usize = 64;

/// The project's own state with the embedded engine.
pub struct Workspace {
    pub store: Store,
    sandbox: Option<Sandboxed>,
    /// Credentials of a stack input.
    given: OnceLock<Credentials>,
    /// The right to write, once a command has it.
    run: OnceCell<Run>,
    pub args: WorkspaceArgs,
}

impl Workspace {
    pub async fn open(args: &WorkspaceArgs, access: Access) -> Result<Self, Failure> {
        let store = match access {
            Access::Read | Access::Clouds => existing(args).await?,
            Access::Create => Store::open(Options::at(args.state_path()?)).await?,
        };
        let sandbox = match args.sandbox.sandbox && access != Access::Read {
            true => Some(connect_or_start(args.sandbox.speed, &project::folder()?).await?),
            false => None,
        };
        Ok(Self { store, sandbox, given: OnceLock::new(), run: OnceCell::new(), args: args.clone() })
    }

    /// Uses the credentials of a stack input.
    pub fn give(&self, given: Option<Credentials>) {
        if let Some(given) = given {
            _ = self.given.set(given);
        }
    }

    /// The right to write, until the workspace is closed. `command` is what others are told that wait for it.
    pub async fn begin(&self, command: &str) -> Result<&Run, StoreError> {
        self.run.get_or_try_init(|| self.store.begin_run(command)).await
    }

    /// Ends what this command started.
    pub async fn close(self) {
        drop(self.run);
        self.store.close().await;
        if let Some(sandbox) = self.sandbox {
            sandbox.stop().await;
        }
    }

    /// The accounts of these manifests and of the state.
    pub async fn accounts(&self, manifests: &[Arc<Manifest>]) -> Result<Accounts, Failure> {
        let simulated = self.sandbox.as_ref().map(Sandboxed::simulated);
        let var = |name: &str| std::env::var(name).ok();
        let mut accounts = Accounts::new(simulated, var);
        if let Some(given) = self.given.get() {
            accounts.given(given.clone(), var);
        }
        let filter = Filter { kind: Some("Account".into()), ..Filter::default() };
        for stored in self.store.resources(&filter).await? {
            let manifest = stored.manifest(&self.store.unseal(&stored)?)?;
            accounts.add(&manifest.id, &manifest.resolve(&|_| Some(String::new())), var)?;
        }
        for manifest in manifests.iter().filter(|m| m.id.kind == "Account") {
            accounts.add(&manifest.id, &manifest.resolve(&|_| Some(String::new())), var)?;
        }
        Ok(accounts)
    }

    /// The connections to every account, for what is in the state.
    pub async fn clouds(&self) -> Result<Clouds, Failure> {
        Ok(self.accounts(&[]).await?.into_clouds())
    }

    /// What the state holds of these resources and of what they refer to.
    pub async fn known(&self, ids: &[ResourceId], others: &[ResourceId]) -> Result<Known, Failure> {
        if ids.len() + others.len() > FEW {
            return self.known_all().await;
        }
        let mut known = Known::default();
        let mut next: Vec<ResourceId> = ids.iter().chain(others).cloned().collect();
        let mut seen = HashSet::new();
        while let Some(id) = next.pop() {
            if !seen.insert(id.clone()) {
                continue;
            }
            let Some(stored) = self.store.resource(&id).await? else { continue };
            let resource = stored.known()?;
            next.extend(parents(&resource.manifest));
            known.resources.insert(id.clone(), resource);
            let units = self.store.units_of(&id).await?;
            known.units.insert(id, units);
        }
        Ok(known)
    }

    pub async fn known_all(&self) -> Result<Known, Failure> {
        self.known_beside(&[]).await
    }

    /// Everything in the state. Where a manifest is the one that is declared, both are one: a fleet fits in half the memory.
    async fn known_beside(&self, declared: &[Arc<Manifest>]) -> Result<Known, Failure> {
        let declared: HashMap<&ResourceId, &Arc<Manifest>> = declared.iter().map(|m| (&m.id, m)).collect();
        let mut known = Known::default();
        for stored in self.store.resources(&Filter::default()).await? {
            let (id, mut resource) = stored.into_known()?;
            if let Some(same) = declared.get(&id).filter(|m| ***m == resource.manifest) {
                resource.manifest = (*same).clone();
            }
            known.resources.insert(id, resource);
        }
        for unit in self.store.all_units().await? {
            add_unit(&mut known, unit);
        }
        Ok(known)
    }

    /// Units alone, of these resources or of all: for what needs no manifest, since reading those costs far more.
    pub async fn known_units(&self, ids: Option<&[ResourceId]>) -> Result<Known, Failure> {
        let mut known = Known::default();
        match ids {
            Some(ids) if ids.len() <= FEW => {
                for id in ids {
                    known.units.insert(id.clone(), self.store.units_of(id).await?);
                }
            }
            _ => {
                let chosen: Option<HashSet<&ResourceId>> = ids.map(|ids| ids.iter().collect());
                for unit in self.store.all_units().await? {
                    if chosen.as_ref().is_none_or(|chosen| chosen.contains(&unit.resource)) {
                        add_unit(&mut known, unit);
                    }
                }
            }
        }
        Ok(known)
    }

    /// Everything that plan and converge need for these manifests and deletions.
    pub async fn request(
        &self,
        manifests: &[Arc<Manifest>],
        unwanted: Vec<ResourceId>,
    ) -> Result<(Request, Clouds), Failure> {
        let accounts = self.accounts(manifests).await?;
        let mut wanted = Vec::with_capacity(manifests.len());
        for manifest in manifests {
            let choice = accounts.choose(manifest)?;
            wanted.push(Wanted { manifest: manifest.clone(), account: choice.name, default_region: choice.region });
        }
        let ids: Vec<ResourceId> = manifests.iter().map(|m| m.id.clone()).collect();
        let mut others: Vec<ResourceId> = manifests.iter().flat_map(|m| parents(m)).collect();
        others.extend(unwanted.iter().cloned());
        others.sort();
        others.dedup();
        let known = match ids.len() + others.len() > FEW {
            true => self.known_beside(manifests).await?,
            false => self.known(&ids, &others).await?,
        };
        let mut owners = HashMap::new();
        for one in wanted.iter().filter(|one| known.units.get(&one.manifest.id).is_none_or(Vec::is_empty)) {
            let ResourceId { org, env, .. } = &one.manifest.id;
            let place = (one.account.clone(), org.clone(), env.clone());
            if let Entry::Vacant(entry) = owners.entry(place) {
                entry.insert(self.store.owners(&one.account, org, env).await?);
            }
        }
        let label_prefix = label_prefix(|name| std::env::var(name).ok())?;
        let request = Request { wanted, unwanted, known, label_prefix, allow_recreate: false, owners };
        Ok((request, accounts.into_clouds()))
    }
}

/// Most resources have one unit: room for more would be a large part of a fleet's memory.
fn add_unit(known: &mut Known, unit: UnitState) {
    known.units.entry(unit.resource.clone()).or_insert_with(|| Vec::with_capacity(1)).push(unit);
}

/// The state, which must be there; where it is not, what to do instead.
async fn existing(args: &WorkspaceArgs) -> Result<Store, Failure> {
    match Store::open(Options { must_exist: true, ..Options::at(args.state_path()?) }).await {
        Err(error @ StoreError::Missing { .. }) => {
            let failure = Failure::from(error);
            Err(match elsewhere(args) {
                Some(place) => failure.help(place),
                None => failure,
            })
        }
        other => Ok(other?),
    }
}

/// Where else to look, when nothing is here: simulated clouds have a state of their own.
pub fn elsewhere(args: &WorkspaceArgs) -> Option<&'static str> {
    if args.state.state.is_some() || args.sandbox.sandbox || matches!(args.which(), Ok(Which::Server(_)) | Err(_)) {
        return None;
    }
    let simulated = project::sandbox_state().ok()?;
    simulated.exists().then_some("what is applied to the simulated clouds is seen with --sandbox")
}
