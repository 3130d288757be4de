//! Contexts for a batch of leased tasks: what they share is read once.

use crate::access::Principal;
use crate::api::ServerState;
use crate::context::{
    AccountRow, CheckRow, Context, DriftAsk, ImportAsk, KnownRow, PlanAsk, RefreshRow, Sealed, UnitRow, WantedRow,
};
use crate::fault::{Code, Fault};
use berth_clouds::accounts::{Accounts, Declared, account_id, name_of, not_served, serves};
use berth_engine::parents;
use berth_engine::unit::UnitState;
use berth_model::{Manifest, REDACTED, ResourceId};
use berth_store::{Control, Filter, Leased, Store, StoredResource, Task, TaskOp};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// From this many on, the resources of one task are read together.
const MANY: usize = 8;
/// Stands for a secret that is not the stored one.
const NEW_SECRET: &str = "(new secret)";

pub type Built = Result<(Context, Sealed), Fault>;

/// One for each task, in order. Tokens go only to accounts that are for the resources in question, and, where the caller is
/// confined to an org, only those of that org's own accounts: whatever rows and tasks say.
pub async fn contexts(server: &ServerState, caller: &Principal, leased: &[Leased]) -> Vec<Built> {
    let control = &server.control;
    let mut reader = Reader {
        server,
        control,
        confined: &caller.org,
        store: control.store(),
        resources: HashMap::new(),
        units: HashMap::new(),
        accounts: HashMap::new(),
    };
    let changes = leased.iter().filter(|one| one.task.op.mutates());
    let about: Vec<ResourceId> = changes.filter_map(|one| one.task.resource.clone()).collect();
    if let Err(fault) = reader.read_ahead(&about).await {
        // Each is read by itself then, and says what is wrong with it.
        tracing::debug!(%fault, "what the tasks are about could not be read at once");
    }
    let mut built = Vec::with_capacity(leased.len());
    for one in leased {
        let context = match one.task.op {
            TaskOp::Apply | TaskOp::Delete => reader.change(&one.task).await,
            TaskOp::Drift => reader.check(&one.task).await,
            TaskOp::Plan => reader.plan(&one.task).await,
            TaskOp::Import => reader.import(&one.task).await,
        };
        built.push(context.map(|(mut context, sealed)| {
            context.op = one.task.op.as_str().into();
            context.label_prefix = server.config.label_prefix.clone();
            (context, sealed)
        }));
    }
    built
}

struct Reader<'a> {
    server: &'a ServerState,
    control: &'a Control,
    /// The org of the worker that all this is for; empty for one that serves all.
    confined: &'a str,
    store: &'a Store,
    resources: HashMap<ResourceId, Option<Arc<StoredResource>>>,
    units: HashMap<ResourceId, Vec<UnitState>>,
    accounts: HashMap<String, Option<Declared>>,
}

fn bad_payload(task: &Task) -> Fault {
    Fault::new(Code::Internal, format!("what task {} is asked cannot be read", task.id))
}

impl Reader<'_> {
    async fn resource(&mut self, id: &ResourceId) -> Result<Option<Arc<StoredResource>>, Fault> {
        if let Some(known) = self.resources.get(id) {
            return Ok(known.clone());
        }
        let stored = self.store.resource(id).await?.map(Arc::new);
        self.resources.insert(id.clone(), stored.clone());
        Ok(stored)
    }

    async fn units(&mut self, id: &ResourceId) -> Result<Vec<UnitState>, Fault> {
        if let Some(known) = self.units.get(id) {
            return Ok(known.clone());
        }
        let units = self.store.units_of(id).await?;
        self.units.insert(id.clone(), units.clone());
        Ok(units)
    }

    /// These in a few queries, where there are many.
    async fn read_ahead(&mut self, ids: &[ResourceId]) -> Result<(), Fault> {
        if ids.len() < MANY {
            return Ok(());
        }
        // Both before either is kept: what could not be read is not what is not there.
        let (resources, units) = (self.store.resources_of(ids).await?, self.store.units_of_all(ids).await?);
        for id in ids {
            self.resources.insert(id.clone(), None);
            self.units.insert(id.clone(), Vec::new());
        }
        for stored in resources {
            self.resources.insert(stored.id.clone(), Some(Arc::new(stored)));
        }
        for unit in units {
            self.units.entry(unit.resource.clone()).or_default().push(unit);
        }
        Ok(())
    }

    async fn account(&mut self, name: &str) -> Result<Option<&Declared>, Fault> {
        if !self.accounts.contains_key(name) {
            let declared = match account_id(name) {
                None => None,
                Some(id) => match self.resource(&id).await? {
                    None => None,
                    Some(stored) => Some(declared(&stored, &self.store.unseal(&stored)?)?),
                },
            };
            self.accounts.insert(name.to_owned(), declared);
        }
        Ok(self.accounts.get(name).and_then(Option::as_ref))
    }

    /// Adds an account to those that a task uses, if it is for this resource and for this worker.
    async fn use_account(&mut self, name: &str, by: &ResourceId, names: &mut BTreeSet<String>) -> Result<(), Fault> {
        if let Some(id) = account_id(name).filter(|id| id != by) {
            // What an Account allows counts where it is stored or planned; of one that is gone only the name is left.
            let allowed = self.account(name).await?.map(|declared| declared.allowed_orgs.clone()).unwrap_or_default();
            if !serves(&id, &allowed, &by.org, &by.env) {
                return Err(not_served(&id, &by.org).into());
            }
            if !self.confined.is_empty() && id.org != self.confined {
                let why = format!("{id} is not for workers of org {} alone", self.confined);
                return Err(Fault::new(Code::Refused, why).help("run a worker whose token is for all orgs"));
            }
        }
        if !self.confined.is_empty() && by.org != self.confined {
            return Err(Fault::new(Code::Refused, format!("{by} is not for a worker of org {}", self.confined)));
        }
        names.insert(name.to_owned());
        Ok(())
    }

    /// Adds the accounts by name, each token to what is sealed.
    async fn add_accounts(
        &mut self,
        names: BTreeSet<String>,
        only_looks: bool,
        context: &mut Context,
        sealed: &mut Sealed,
    ) -> Result<(), Fault> {
        for name in names {
            let server = self.server;
            if let Some(declared) = self.account(&name).await? {
                server.allow_url(declared).map_err(|trouble| Fault {
                    help: trouble.help_lines(),
                    ..Fault::new(Code::Refused, format!("Account {name}: {trouble}"))
                })?;
                let (row, token) = AccountRow::of(&name, declared, only_looks);
                if let Some(token) = token {
                    sealed.token(&name, &token);
                }
                context.accounts.push(row);
            }
        }
        Ok(())
    }

    async fn use_accounts(
        &mut self,
        units: &[UnitState],
        by: &ResourceId,
        names: &mut BTreeSet<String>,
    ) -> Result<(), Fault> {
        for unit in units {
            self.use_account(&unit.account, by, names).await?;
        }
        Ok(())
    }

    async fn change(&mut self, task: &Task) -> Built {
        let id = task.resource.clone().ok_or_else(|| bad_payload(task))?;
        let Some(stored) = self.resource(&id).await? else {
            return Err(Fault::new(Code::NotFound, format!("{id} is not there any more")));
        };
        let (mut context, mut sealed) = (Context::default(), Sealed::default());
        context.resource = Some(id.clone());
        context.generation = stored.generation;
        let units = self.units(&id).await?;
        let account = if id.kind == "Account" { name_of(&id) } else { task.account.clone() };
        let mut names = BTreeSet::new();
        self.use_accounts(&units, &id, &mut names).await?;
        self.use_account(&account, &id, &mut names).await?;
        context.units = units.iter().map(UnitRow::from).collect();
        if units.iter().any(|unit| unit.identity.is_none()) {
            let meta = self.control.meta(std::slice::from_ref(&id)).await?;
            context.allow_recreate = meta.first().is_some_and(|meta| meta.allow_recreate);
        }
        context.known.push(known(&stored)?);
        if task.op == TaskOp::Delete {
            context.unwanted.push(id);
        } else {
            let manifest = stored.manifest(&context.known[0].manifest)?;
            for parent in parents(&manifest) {
                if let Some(stored) = self.resource(&parent).await? {
                    context.known.push(known(&stored)?);
                }
            }
            // An account's own secret travels as a token; any other kind's with its manifest.
            if id.kind != "Account" && !stored.sealed_paths()?.is_empty() {
                sealed.manifest(0, self.store.unseal(&stored)?);
            }
            let region = self.account(&account).await?.and_then(|declared| declared.region.clone());
            context.wanted.push(WantedRow { id, manifest: None, account, region });
        }
        self.add_accounts(names, false, &mut context, &mut sealed).await?;
        Ok((context, sealed))
    }

    async fn check(&mut self, task: &Task) -> Built {
        let ask: DriftAsk = match self.control.payload(&task.id).await? {
            Some(payload) => serde_json::from_str(payload.expose_secret()).map_err(|_| bad_payload(task))?,
            None => DriftAsk::default(),
        };
        let (mut context, mut sealed) = (Context::default(), Sealed::default());
        context.refresh = ask.refresh;
        context.locate = ask.locate;
        self.read_ahead(&task.resources).await?;
        let mut names = BTreeSet::new();
        for id in &task.resources {
            let Some(stored) = self.resource(id).await? else { continue };
            let units = self.units(id).await?;
            if let Err(fault) = self.use_accounts(&units, id, &mut names).await {
                // Its own trouble, which its next change tells; the others of the batch are compared.
                tracing::warn!(resource = %id, %fault, "it is not compared with its cloud");
                continue;
            }
            context.units.extend(units.iter().map(UnitRow::from));
            context.check.push(CheckRow { id: id.clone(), generation: stored.generation });
            if ask.refresh {
                context.refreshed.push(RefreshRow {
                    id: id.clone(),
                    generation: stored.generation,
                    observed_generation: stored.status.observed_generation,
                    state: stored.status.state,
                    message: stored.status.message.clone(),
                    outputs: stored.status.outputs.clone(),
                    facts: stored.status.facts.clone(),
                    deleting: stored.deleting,
                });
            }
        }
        self.add_accounts(names, true, &mut context, &mut sealed).await?;
        Ok((context, sealed))
    }

    async fn plan(&mut self, task: &Task) -> Built {
        let payload = self.control.payload(&task.id).await?.ok_or_else(|| bad_payload(task))?;
        let ask: PlanAsk = serde_json::from_str(payload.expose_secret()).map_err(|_| bad_payload(task))?;
        let (mut context, mut sealed) = (Context::default(), Sealed::default());
        let mut manifests = Vec::with_capacity(ask.manifests.len());
        for json in &ask.manifests {
            manifests.push(Manifest::from_json(json).map_err(|_| bad_payload(task))?);
        }
        // Accounts that are planned count like those that are stored.
        let mut choices = stored_accounts(self.store).await?;
        for manifest in manifests.iter().filter(|m| m.id.kind == "Account") {
            let declared = Declared::read(&manifest.id, &manifest.resolve(&|_| Some(String::new())))?;
            choices.declare(&manifest.id, &declared);
            self.accounts.insert(name_of(&manifest.id), Some(declared));
        }
        let mut names = BTreeSet::new();
        // Only what is planned is read in clouds; what it refers to is known by its outputs.
        let mut own: BTreeSet<ResourceId> = ask.delete.iter().cloned().collect();
        let mut around = own.clone();
        for (index, manifest) in manifests.into_iter().enumerate() {
            let choice = choices.choose(&manifest)?;
            self.use_account(&choice.name, &manifest.id, &mut names).await?;
            own.insert(manifest.id.clone());
            around.insert(manifest.id.clone());
            around.extend(parents(&manifest));
            let id = manifest.id.clone();
            let shown = if id.kind == "Account" {
                Some(self.masked(&manifest).await?.to_json())
            } else if manifest.redacted() == manifest {
                Some(manifest.to_json())
            } else {
                sealed.manifest(index, manifest.to_json());
                None
            };
            context.wanted.push(WantedRow { id, manifest: shown, account: choice.name, region: choice.region });
        }
        let around: Vec<ResourceId> = around.into_iter().collect();
        self.read_ahead(&around).await?;
        for id in around {
            let Some(stored) = self.resource(&id).await? else { continue };
            let mut row = known(&stored)?;
            if id.kind == "Account" {
                row.manifest = stored.manifest(&row.manifest)?.redacted().to_json();
            }
            context.known.push(row);
            if own.contains(&id) {
                let units = self.units(&id).await?;
                self.use_accounts(&units, &id, &mut names).await?;
                context.units.extend(units.iter().map(UnitRow::from));
            }
        }
        context.units.extend(ask.units);
        context.allow_recreate = ask.allow_recreate;
        context.unwanted = ask.delete;
        self.add_accounts(names, true, &mut context, &mut sealed).await?;
        // An account that is only planned has a stored namesake's token in the cache, or none: the planned one counts.
        Ok((context, sealed))
    }

    /// An account to show: a secret that is not the stored one shows as a new one.
    async fn masked(&mut self, manifest: &Manifest) -> Result<Manifest, Fault> {
        let mut stored: HashMap<String, SecretString> = HashMap::new();
        if let Some(row) = self.resource(&manifest.id).await? {
            let mut old = row.manifest(&self.store.unseal(&row)?)?;
            old.map_secrets(|path, secret| {
                stored.insert(path.to_owned(), SecretString::from(secret.to_owned()));
                String::new()
            });
        }
        let mut shown = manifest.clone();
        shown.map_secrets(|path, secret| {
            let same = stored.get(path).is_none_or(|old| old.expose_secret() == secret);
            if same { REDACTED.to_owned() } else { NEW_SECRET.to_owned() }
        });
        Ok(shown)
    }

    async fn import(&mut self, task: &Task) -> Built {
        let payload = self.control.payload(&task.id).await?.ok_or_else(|| bad_payload(task))?;
        let ask: ImportAsk = serde_json::from_str(payload.expose_secret()).map_err(|_| bad_payload(task))?;
        let (mut context, mut sealed) = (Context::default(), Sealed::default());
        let mut names = BTreeSet::new();
        let place = ResourceId { org: ask.org.clone(), env: ask.env.clone(), ..ResourceId::new("Import", "all") };
        self.use_account(&ask.account, &place, &mut names).await?;
        self.add_accounts(names, true, &mut context, &mut sealed).await?;
        context.import = Some(ask);
        Ok((context, sealed))
    }
}

/// What is stored of a resource, for references to it.
fn known(stored: &StoredResource) -> Result<KnownRow, Fault> {
    Ok(KnownRow {
        manifest: stored.sealed_manifest()?,
        outputs: stored.status.outputs.clone(),
        facts: stored.status.facts.clone(),
        settled: stored.settled(),
    })
}

/// What a stored Account says, its secrets sealed.
pub fn read_account(stored: &StoredResource) -> Result<Declared, Fault> {
    declared(stored, &stored.sealed_manifest()?)
}

/// What a stored Account says in its manifest, as JSON with or without sealed secrets.
fn declared(stored: &StoredResource, json: &Value) -> Result<Declared, Fault> {
    let manifest = stored.manifest(json)?;
    Ok(Declared::read(&stored.id, &manifest.resolve(&|_| Some(String::new())))?)
}

/// The stored Accounts, to choose from. Their credentials stay where they are.
async fn stored_accounts(store: &Store) -> Result<Accounts, Fault> {
    let mut accounts = Accounts::default();
    let filter = Filter { kind: Some("Account".into()), ..Filter::default() };
    for stored in store.resources(&filter).await? {
        match read_account(&stored) {
            Ok(declared) => accounts.declare(&stored.id, &declared),
            Err(fault) => accounts.declare_unreadable(&stored.id, &fault.message),
        }
    }
    Ok(accounts)
}
