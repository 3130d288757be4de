//! One folder for each cloud: client, unit handlers, lowering, import.
//!
//! Every cloud's folder has the same files:
//!
//! | file | what it holds |
//! |---|---|
//! | `mod.rs` | the descriptor, and the provider that gives out handlers and lists |
//! | `api.rs`, `wire.rs` | one method for each call of the cloud's API; requests and answers |
//! | `client.rs` | what the handlers share: calls, lists that are read together, offers |
//! | `errors.rs` | what the cloud's refusals mean, and the advice for them |
//! | `lower/` | one file for each kind: from a resource to its units. Pure |
//! | `vpc.rs`, `cluster.rs`, `node_pool.rs` | one handler for each type of unit |
//! | `default_pool.rs` | how the default pool of a cluster gets another size. Pure |
//! | `normal_form.rs` | desired and observed properties in one form, so that they can be compared. Pure |
//! | `versions.rs`, `offers.rs` | Kubernetes versions; what the cloud offers |
//! | `kube_api.rs` | what is asked of a cluster's own API |
//! | `raise.rs` | import: from objects to manifests |
//!
//! What only one cloud has is in a file of its own there, such as firewalls and the autoscaler of Civo.

pub mod accounts;
pub mod address;
mod bounds;
mod call_permit;
mod civo;
mod coalesced;
mod digitalocean;
pub mod http;
pub mod import;
pub mod kube;
mod labels;
mod props;
mod ready_gate;
mod recent;
pub mod registry;
#[cfg(test)]
mod simulated;
pub mod units;
mod usual_times;

use async_trait::async_trait;
use berth_engine::handler::{Catalog, Class, LowerInput, Outcome, Provider, SummaryFacts, Trouble};
use berth_engine::unit::{Lowered, Observed};
use secrecy::SecretString;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::OnceCell;

pub use call_permit::{CallPermit, with_call_permit};
pub use labels::{DEFAULT_LABEL_PREFIX, label_prefix, own_labels};

/// A cloud, and the credentials to call it with.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The cloud's name.
    pub provider: String,
    pub token: SecretString,
    /// Address of the API; the cloud's own when absent.
    pub api_url: Option<String>,
    /// The address was chosen by a user of a server: local addresses are refused.
    pub foreign_url: bool,
    /// Region where a resource names none.
    pub region: Option<String>,
    /// How many requests a second may be sent; 0 means the cloud's published limit.
    pub requests_per_second: u32,
    /// How many resources may be worked on at once; 0 means Berth's own limit.
    pub max_concurrent_tasks: u32,
}

/// The canonical form of an object's id. Clouds write UUIDs in lower case with hyphens, and accept other spellings: ids are
/// compared in this form.
pub fn one_form(id: &str) -> String {
    let id = id.trim();
    match uuid::Uuid::try_parse(id) {
        Ok(parsed) => parsed.hyphenated().to_string(),
        Err(_) => id.to_owned(),
    }
}

impl Credentials {
    pub fn new(provider: impl Into<String>, token: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            token: SecretString::from(token.into()),
            api_url: None,
            foreign_url: false,
            region: None,
            requests_per_second: 0,
            max_concurrent_tasks: 0,
        }
    }

    /// From the variables that the clouds' own tools use. `var` reads one of them.
    pub fn from_env(provider: &str, var: impl Fn(&str) -> Option<String>) -> Outcome<Self> {
        let given = |name: &str| var(name).filter(|value| !value.trim().is_empty());
        let cloud = registry::find(provider)?;
        let names = &cloud.variables;
        let Some(token) = names.token.iter().find_map(|name| given(name)) else {
            let name = names.token.first().copied().unwrap_or_default();
            let message = format!("there is no token for {provider}: {name} is not set");
            return Err(Trouble::new(Class::Unauthorized, message)
                .help(format!("set {name} to an API token, or apply an Account and name it in `spec.account`"))
                .help("to try it without an account, add --sandbox"));
        };
        Ok(Self {
            provider: provider.into(),
            token: SecretString::from(token.trim().to_owned()),
            api_url: cloud.usual_url(&var),
            foreign_url: false,
            region: cloud.usual_region(&var),
            requests_per_second: 0,
            max_concurrent_tasks: 0,
        })
    }
}

/// Opens a connection; nothing is sent yet.
pub fn connect(credentials: &Credentials) -> Outcome<Arc<dyn Provider>> {
    (registry::find(&credentials.provider)?.connect)(credentials)
}

/// Resource and resolved references in, units out. Pure.
pub fn lower(input: &LowerInput<'_>) -> Result<Lowered, Trouble> {
    match input.id.kind.as_str() {
        // An account makes nothing in its cloud; Berth only asks whom it belongs to.
        "Account" => {
            let mut lowered = Lowered::default();
            lowered.output("identity", "", "identity");
            Ok(lowered)
        }
        // Facts for Berth itself.
        "Environment" | "Policy" => Ok(Lowered::default()),
        name => match berth_model::registry().kind(name) {
            Some(kind) => (registry::find(&kind.provider)?.lower)(input),
            None => Err(Trouble::refused(format!("no cloud knows the kind {name}"))),
        },
    }
}

/// The spec of the resource that is lowered.
fn decode_spec<T: prost::Message + Default>(input: &LowerInput<'_>) -> Result<T, Trouble> {
    T::decode(input.spec).map_err(|e| Trouble::refused(format!("the spec of {} cannot be read: {e}", input.id)))
}

/// The accounts of a run, each connected when it is first needed.
#[derive(Default)]
pub struct Clouds {
    accounts: BTreeMap<String, Account>,
    /// Of simulated clouds; real ones have none.
    pace: Option<f64>,
}

struct Account {
    credentials: Outcome<Credentials>,
    connection: OnceCell<Arc<dyn Provider>>,
}

impl Clouds {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an account by its name (or `env:civo` and the like). Why its credentials are missing can be told later, when
    /// and if someone needs them.
    pub fn account(mut self, name: impl Into<String>, credentials: Outcome<Credentials>) -> Self {
        self.accounts.insert(name.into(), Account { credentials, connection: OnceCell::new() });
        self
    }

    /// These clouds run so many times faster than real ones.
    pub fn at_pace(mut self, pace: Option<f64>) -> Self {
        self.pace = pace;
        self
    }

    /// How many requests were sent so far, over all accounts.
    pub fn calls(&self) -> u64 {
        self.accounts.values().filter_map(|account| account.connection.get()).map(|provider| provider.calls()).sum()
    }
}

#[async_trait]
impl Catalog for Clouds {
    fn lower(&self, input: &LowerInput<'_>) -> Result<Lowered, Trouble> {
        lower(input)
    }

    fn most_at_once(&self, account: &str) -> Option<usize> {
        let credentials = self.accounts.get(account)?.credentials.as_ref().ok()?;
        usize::try_from(credentials.max_concurrent_tasks).ok().filter(|most| *most > 0)
    }

    fn pace(&self) -> f64 {
        self.pace.unwrap_or(1.0)
    }

    fn cloud_title(&self, provider: &str) -> &'static str {
        units::cloud_title(provider)
    }

    fn name_properties(&self, unit_type: &str) -> &'static [&'static str] {
        units::name_properties(unit_type)
    }

    fn names_are_inner(&self, unit_type: &str) -> bool {
        units::names_are_inner(unit_type)
    }

    fn main_unit(&self, kind: &str) -> Option<&'static str> {
        units::main_unit(kind)
    }

    fn place_in_spec(&self, kind: &str, key: &str) -> Option<String> {
        units::place_in_spec(kind, key)
    }

    fn summary_facts(&self, unit_type: &str, observed: &Observed) -> SummaryFacts {
        units::summary_facts(unit_type, observed)
    }

    async fn provider(&self, account: &str) -> Outcome<Arc<dyn Provider>> {
        let Some(found) = self.accounts.get(account) else {
            return Err(Trouble::new(Class::Unauthorized, format!("there is no account named `{account}`"))
                .help("apply an Account of that name, or leave `spec.account` out to use the environment's token"));
        };
        let connection = found.connection.get_or_try_init(|| async {
            let credentials = found.credentials.clone()?;
            connect(&credentials)
        });
        connection.await.cloned()
    }
}
