//! The list of clouds. Code outside a cloud's own folder finds it here, and never by its name.

use crate::units::UnitType;
use crate::{Credentials, civo, digitalocean};
use berth_engine::handler::{LowerInput, Outcome, Provider, Trouble};
use berth_engine::unit::Lowered;
use berth_model::pb::berth::core::v1::{AccountSpec, SecretValue};
use std::sync::{Arc, OnceLock};

static BUILT_IN: [&Cloud; 2] = [&civo::CLOUD, &digitalocean::CLOUD];
static ADDED: OnceLock<Vec<&'static Cloud>> = OnceLock::new();

/// What Berth knows of one cloud.
pub struct Cloud {
    /// As kinds, accounts and flags name it: `civo`.
    pub name: &'static str,
    /// As people write it: `Civo`.
    pub title: &'static str,
    /// Where its API is.
    pub api_url: &'static str,
    pub variables: Variables,
    /// Its own command-line program, with the arguments that make it print its version.
    pub client: Option<(&'static str, &'static [&'static str])>,
    /// What an Account says of it; `None` where the Account is with another cloud.
    pub account: fn(&AccountSpec) -> Option<AccountBlock>,
    /// Opens a connection; nothing is sent yet.
    pub connect: fn(&Credentials) -> Outcome<Arc<dyn Provider>>,
    pub units: &'static [UnitType],
    /// For each kind, the key of the unit that a resource is about.
    pub main_units: &'static [(&'static str, &'static str)],
    /// Where in the spec of a kind a unit's properties stand, by its key, where that is not the spec itself.
    pub place_in_spec: fn(&str, &str) -> Option<String>,
    /// Resource and resolved references in, units out. Pure.
    pub lower: fn(&LowerInput<'_>) -> Result<Lowered, Trouble>,
}

/// The environment variables that the cloud's own tools read.
pub struct Variables {
    /// The first is the one to recommend.
    pub token: &'static [&'static str],
    pub api_url: &'static str,
    pub region: Option<&'static str>,
}

/// The block of an Account that is for one cloud.
#[derive(Default)]
pub struct AccountBlock {
    pub token: Option<SecretValue>,
    /// A token that may only read.
    pub observe_token: Option<SecretValue>,
    pub api_url: String,
    pub region: String,
}

/// Adds clouds to the list; has an effect once, before the list was read.
pub fn add(clouds: Vec<&'static Cloud>) -> bool {
    ADDED.set(clouds).is_ok()
}

/// All of them, in the order in which they are shown.
pub fn clouds() -> impl Iterator<Item = &'static Cloud> {
    BUILT_IN.into_iter().chain(ADDED.get_or_init(Vec::new).iter().copied())
}

pub fn names() -> Vec<&'static str> {
    clouds().map(|cloud| cloud.name).collect()
}

pub fn find(name: &str) -> Outcome<&'static Cloud> {
    clouds().find(|cloud| cloud.name == name).ok_or_else(|| {
        Trouble::refused(format!("no cloud is named `{name}`")).help(format!("there are: {}", names().join(", ")))
    })
}

impl Cloud {
    /// The address that the environment gives for its API.
    pub fn usual_url(&self, var: &impl Fn(&str) -> Option<String>) -> Option<String> {
        var(self.variables.api_url).filter(|url| !url.trim().is_empty())
    }

    /// The region that the cloud's own tools would take from the environment.
    pub fn usual_region(&self, var: &impl Fn(&str) -> Option<String>) -> Option<String> {
        let given = self.variables.region.and_then(var).filter(|region| !region.trim().is_empty());
        given.map(|region| region.to_ascii_lowercase())
    }
}
