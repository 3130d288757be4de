//! All input of a task, as one value that is sent to the worker: a worker has no database and asks for nothing more.
//!
//! Credentials travel apart from it, sealed for the one worker and the one task.

use berth_clouds::accounts::Declared;
use berth_engine::ResourceState;
use berth_engine::record::Status;
use berth_engine::unit::{Identity, Props, UnitState};
use berth_engine::{Known, KnownResource, Request, Wanted};
use berth_model::pb::berth::core::v1::secret_value::Source;
use berth_model::{Manifest, ResourceId};
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use zeroize::Zeroizing;

/// A task's work.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Context {
    /// `apply`, `delete`, `drift`, `plan` or `import`.
    pub op: String,
    /// The resource that the task is about, and the generation that is carried out.
    pub resource: Option<ResourceId>,
    pub generation: i64,
    pub label_prefix: String,
    pub wanted: Vec<WantedRow>,
    pub unwanted: Vec<ResourceId>,
    /// What is not found is made again, also where the state does not say which account it was made in.
    pub allow_recreate: bool,
    pub known: Vec<KnownRow>,
    pub units: Vec<UnitRow>,
    pub accounts: Vec<AccountRow>,
    /// What a drift check looks at.
    pub check: Vec<CheckRow>,
    /// As in [`DriftAsk`].
    pub locate: String,
    /// Write what was seen into units and status; the status as it is.
    pub refresh: bool,
    pub refreshed: Vec<RefreshRow>,
    pub import: Option<ImportAsk>,
}

/// A resource that should be as its manifest says.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct WantedRow {
    pub id: ResourceId,
    /// `None`: the one in `known`, or one that came sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Value>,
    pub account: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

/// What the state holds of a resource; secrets in its manifest are sealed text.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownRow {
    pub manifest: Value,
    pub outputs: Props,
    pub facts: Props,
    pub settled: bool,
}

/// A unit's row, without secrets.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitRow {
    pub resource: ResourceId,
    pub key: String,
    pub token: String,
    pub unit_type: String,
    pub scope: String,
    pub account: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    pub id: Option<String>,
    pub props: Props,
    pub outputs: Props,
    pub deposed: bool,
    pub ready: bool,
    pub updated_at: Timestamp,
}

impl From<&UnitState> for UnitRow {
    fn from(unit: &UnitState) -> Self {
        Self {
            resource: unit.resource.clone(),
            key: unit.key.clone(),
            token: unit.token.clone(),
            unit_type: unit.unit_type.clone(),
            scope: unit.scope.clone(),
            account: unit.account.clone(),
            identity: unit.identity.clone(),
            id: unit.id.clone(),
            props: unit.props.clone(),
            outputs: unit.outputs.clone(),
            deposed: unit.deposed,
            ready: unit.ready,
            updated_at: unit.updated_at,
        }
    }
}

impl From<UnitRow> for UnitState {
    fn from(row: UnitRow) -> Self {
        Self {
            resource: row.resource,
            key: row.key,
            token: row.token,
            unit_type: row.unit_type,
            scope: row.scope,
            account: row.account,
            identity: row.identity,
            id: row.id,
            props: row.props,
            outputs: row.outputs,
            // Left out means "as they are": a write of this unit keeps them.
            secrets: BTreeMap::new(),
            deposed: row.deposed,
            ready: row.ready,
            updated_at: row.updated_at,
        }
    }
}

/// An account, and where its token is to be found. The token itself is never here.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct AccountRow {
    /// As units remember it.
    pub name: String,
    pub provider: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    pub requests_per_second: u32,
    pub max_concurrent_tasks: u32,
    pub token: TokenFrom,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TokenFrom {
    /// With the sealed credentials.
    Sealed,
    /// A variable of the worker's, if it allows that.
    Env(String),
    /// A file of the worker's, if it allows that.
    File(String),
    /// The worker's own.
    WorkerLocal,
    /// There is none.
    Missing,
}

impl AccountRow {
    /// The row, and the token where the account itself holds it. What only looks gets the one that may only read, where
    /// there is one.
    pub fn of(name: &str, declared: &Declared, only_looks: bool) -> (Self, Option<SecretString>) {
        let token = declared.observe_token.as_ref().filter(|_| only_looks).or(declared.token.as_ref());
        let source = token.and_then(|token| token.source.as_ref());
        let (token, sealed) = match source {
            Some(Source::Value(text)) => (TokenFrom::Sealed, Some(SecretString::from(text.clone()))),
            Some(Source::FromEnv(name)) => (TokenFrom::Env(name.clone()), None),
            Some(Source::FromFile(path)) => (TokenFrom::File(path.clone()), None),
            Some(Source::WorkerLocal(_)) => (TokenFrom::WorkerLocal, None),
            None => (TokenFrom::Missing, None),
        };
        let row = Self {
            name: name.to_owned(),
            provider: declared.provider.clone(),
            api_url: declared.api_url.clone(),
            region: declared.region.clone(),
            requests_per_second: declared.requests_per_second,
            max_concurrent_tasks: declared.max_concurrent_tasks,
            token,
        };
        (row, sealed)
    }
}

/// A resource of a drift check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckRow {
    pub id: ResourceId,
    pub generation: i64,
}

/// A resource whose status is brought up to what clouds show.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct RefreshRow {
    pub id: ResourceId,
    pub generation: i64,
    pub observed_generation: i64,
    pub state: ResourceState,
    pub message: String,
    pub outputs: Props,
    pub facts: Props,
    pub deleting: bool,
}

impl RefreshRow {
    pub fn status(&self) -> Status {
        Status {
            state: self.state,
            message: self.message.clone(),
            outputs: self.outputs.clone(),
            secrets: BTreeMap::new(),
            facts: self.facts.clone(),
            observed_generation: self.observed_generation,
        }
    }
}

/// What to take over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImportAsk {
    pub provider: String,
    /// As units remember it.
    pub account: String,
    /// Empty: everything in the account.
    pub kind: String,
    pub object_id: String,
    pub region: String,
    /// Whom what the account manages in this org and env belongs to, where that is known.
    pub owners: Vec<Identity>,
    /// Where what is taken over will lie.
    pub org: String,
    pub env: String,
}

/// What a plan task is asked, kept sealed with the task: manifests may hold secrets.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanAsk {
    /// As `Manifest::to_json` gives them, secrets in the clear.
    pub manifests: Vec<Value>,
    pub delete: Vec<ResourceId>,
    /// Objects that an import would bind to the manifests' units.
    pub units: Vec<UnitRow>,
    pub allow_recreate: bool,
}

/// What a drift task is asked beyond its resources.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DriftAsk {
    pub refresh: bool,
    /// An account whose objects are to be found by their ids, whomever the credentials belong to; nothing is compared.
    pub locate: String,
}

/// What travels sealed.
#[derive(Default, Serialize, Deserialize)]
pub struct Sealed {
    /// Tokens, by the account's name.
    #[serde(default)]
    tokens: BTreeMap<String, String>,
    /// Manifests that hold secrets in the clear, by the resource's place in `wanted`.
    #[serde(default)]
    manifests: BTreeMap<usize, Value>,
}

/// Why a context or its credentials are of no use. Holds nothing that was sealed.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    #[error("the worker's recipient is not an age recipient")]
    Recipient,
    #[error("the credentials could not be sealed")]
    Seal,
    #[error("the credentials are not for this worker")]
    Unseal,
    #[error("the task's context cannot be read: {0}")]
    Corrupt(String),
}

impl Sealed {
    pub fn token(&mut self, account: &str, token: &SecretString) {
        self.tokens.insert(account.to_owned(), token.expose_secret().to_owned());
    }

    pub fn manifest(&mut self, index: usize, manifest: Value) {
        self.manifests.insert(index, manifest);
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.manifests.is_empty()
    }

    /// For one worker's recipient; nothing when there is nothing to hide.
    pub fn seal(&self, recipient: &str) -> Result<Vec<u8>, ContextError> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let recipient: age::x25519::Recipient = recipient.parse().map_err(|_| ContextError::Recipient)?;
        let clear = Zeroizing::new(serde_json::to_vec(self).map_err(|_| ContextError::Seal)?);
        age::encrypt(&recipient, &clear).map_err(|_| ContextError::Seal)
    }

    pub fn open(sealed: &[u8], identity: &age::x25519::Identity) -> Result<Self, ContextError> {
        if sealed.is_empty() {
            return Ok(Self::default());
        }
        let clear = Zeroizing::new(age::decrypt(identity, sealed).map_err(|_| ContextError::Unseal)?);
        serde_json::from_slice(&clear).map_err(|_| ContextError::Unseal)
    }

    pub fn token_of(&self, account: &str) -> Option<SecretString> {
        self.tokens.get(account).map(|token| SecretString::from(token.clone()))
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        use zeroize::Zeroize;
        self.tokens.values_mut().for_each(Zeroize::zeroize);
    }
}

impl Context {
    pub fn to_json(&self) -> Result<Vec<u8>, ContextError> {
        serde_json::to_vec(self).map_err(|error| ContextError::Corrupt(error.to_string()))
    }

    pub fn from_json(json: &[u8]) -> Result<Self, ContextError> {
        serde_json::from_slice(json).map_err(|error| ContextError::Corrupt(error.to_string()))
    }

    /// What the engine is asked. `region` gives the worker's own region of an account without one.
    pub fn request(
        &mut self,
        sealed: &mut Sealed,
        region: impl Fn(&str) -> Option<String>,
    ) -> Result<Request, ContextError> {
        let corrupt = |error: berth_model::FromJsonError| ContextError::Corrupt(error.to_string());
        let mut known = Known { resources: HashMap::new(), units: self.units_by_resource() };
        for row in self.known.drain(..) {
            let manifest = Arc::new(Manifest::from_json(&row.manifest).map_err(corrupt)?);
            let KnownRow { outputs, facts, settled, .. } = row;
            known.resources.insert(manifest.id.clone(), KnownResource { manifest, outputs, facts, settled });
        }
        let mut wanted = Vec::with_capacity(self.wanted.len());
        for (index, row) in self.wanted.drain(..).enumerate() {
            let manifest = match (sealed.manifests.remove(&index).or(row.manifest), known.resources.get(&row.id)) {
                (Some(json), _) => Arc::new(Manifest::from_json(&json).map_err(corrupt)?),
                (None, Some(known)) => known.manifest.clone(),
                (None, None) => return Err(ContextError::Corrupt(format!("{} has no manifest", row.id))),
            };
            let default_region = row.region.or_else(|| region(&row.account));
            wanted.push(Wanted { manifest, account: row.account, default_region });
        }
        Ok(Request {
            wanted,
            unwanted: std::mem::take(&mut self.unwanted),
            known,
            label_prefix: std::mem::take(&mut self.label_prefix),
            allow_recreate: self.allow_recreate,
            owners: HashMap::new(),
        })
    }

    /// The orgs that the task is about.
    pub fn orgs(&self) -> BTreeSet<String> {
        let wanted = self.wanted.iter().map(|row| &row.id).chain(self.check.iter().map(|row| &row.id));
        let ids = wanted.chain(&self.unwanted).chain(&self.resource).map(|id| id.org.clone());
        ids.chain(self.import.iter().map(|ask| ask.org.clone())).collect()
    }

    /// Units alone, for a check.
    pub fn units_by_resource(&mut self) -> HashMap<ResourceId, Vec<UnitState>> {
        let mut units: HashMap<ResourceId, Vec<UnitState>> = HashMap::new();
        for row in self.units.drain(..) {
            units.entry(row.resource.clone()).or_default().push(row.into());
        }
        units
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn vpc() -> Value {
        json!({"apiVersion": "civo.berth.dev/v1", "kind": "CivoVpc", "metadata": {"name": "net"},
               "spec": {"networkName": "net", "region": "fra1"}})
    }

    fn context() -> Context {
        let id = ResourceId { kind: "CivoVpc".into(), name: "net".into(), org: String::new(), env: String::new() };
        Context {
            op: "apply".into(),
            resource: Some(id.clone()),
            generation: 3,
            label_prefix: "planton".into(),
            wanted: vec![WantedRow { id: id.clone(), manifest: None, account: "env:civo".into(), region: None }],
            known: vec![KnownRow { manifest: vpc(), outputs: Props::new(), facts: Props::new(), settled: false }],
            units: vec![UnitRow {
                resource: id,
                key: "network".into(),
                token: "t".into(),
                unit_type: "civo.network".into(),
                scope: "fra1".into(),
                account: "env:civo".into(),
                identity: Identity::from_text("civo:1 ann"),
                id: Some("n-1".into()),
                props: Props::new(),
                outputs: Props::new(),
                deposed: false,
                ready: true,
                updated_at: Timestamp::UNIX_EPOCH,
            }],
            ..Context::default()
        }
    }

    #[test]
    fn a_context_survives_the_way_and_becomes_a_request() {
        let sent = context();
        let mut read = Context::from_json(&sent.to_json().unwrap()).unwrap();
        assert_eq!(read, sent);
        let request = read.request(&mut Sealed::default(), |_| Some("lon1".into())).unwrap();
        assert_eq!(request.wanted[0].manifest.id.name, "net");
        assert_eq!(request.wanted[0].default_region.as_deref(), Some("lon1"));
        assert_eq!(request.known.units.values().map(Vec::len).sum::<usize>(), 1);
    }

    #[test]
    fn what_only_looks_gets_a_token_that_may_only_read() {
        let account = |observe: Value| {
            let mut civo = json!({"token": {"value": "may-change"}, "region": "fra1"});
            civo.as_object_mut().unwrap().extend(observe.as_object().cloned().unwrap());
            let json = json!({"apiVersion": "byoc.berth.dev/v1", "kind": "Account", "metadata": {"name": "main"},
                              "spec": {"provider": "civo", "civo": civo}});
            let manifest = Manifest::from_json(&json).unwrap();
            Declared::read(&manifest.id, &manifest.resolve(&|_| Some(String::new()))).unwrap()
        };
        let token = |declared: &Declared, only_looks| {
            let (row, token) = AccountRow::of("main", declared, only_looks);
            (row.token, token.map(|token| token.expose_secret().to_owned()))
        };
        let sealed = |text: &str| (TokenFrom::Sealed, Some(text.to_owned()));
        let both = account(json!({"observeToken": {"value": "may-read"}}));
        assert_eq!((token(&both, true), token(&both, false)), (sealed("may-read"), sealed("may-change")));
        let local = account(json!({"observeToken": {"fromEnv": "CIVO_READER"}}));
        assert_eq!(token(&local, true), (TokenFrom::Env("CIVO_READER".into()), None));
        let one = account(json!({}));
        assert_eq!((token(&one, true), token(&one, false)), (sealed("may-change"), sealed("may-change")));
    }

    #[test]
    fn credentials_open_for_their_worker_alone() {
        let (mine, other) = (age::x25519::Identity::generate(), age::x25519::Identity::generate());
        let mut sealed = Sealed::default();
        sealed.token("acme", &SecretString::from("hunter2-hunter2"));
        let bytes = sealed.seal(&mine.to_public().to_string()).unwrap();
        assert!(!bytes.windows(7).any(|w| w == b"hunter2"));
        assert_eq!(Sealed::open(&bytes, &mine).unwrap().token_of("acme").unwrap().expose_secret(), "hunter2-hunter2");
        assert!(matches!(Sealed::open(&bytes, &other), Err(ContextError::Unseal)));
        assert!(matches!(sealed.seal("nobody"), Err(ContextError::Recipient)));
        assert!(Sealed::default().seal("nobody").unwrap().is_empty());
    }

    #[test]
    fn a_manifest_with_secrets_comes_sealed() {
        let mut read = context();
        read.known.clear();
        let mut sealed = Sealed::default();
        sealed.manifest(0, vpc());
        assert_eq!(read.request(&mut sealed, |_| None).unwrap().wanted[0].manifest.id.kind, "CivoVpc");
    }
}
