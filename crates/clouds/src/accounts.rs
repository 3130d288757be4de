//! Which account a resource lives in, and where its credentials come from.

use crate::registry::{self, AccountBlock};
use crate::{Clouds, Credentials};
use berth_engine::handler::{Class, Outcome, Trouble};
use berth_model::pb::berth::core::v1::{AccountSpec, SecretValue, secret_value::Source};
use berth_model::{Manifest, ResourceId};
use prost::Message;
use secrecy::SecretString;
use std::collections::{BTreeMap, HashMap};

/// A token in a file is short; anything longer is the wrong file.
pub const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// Where simulated clouds answer; every account then talks to these.
#[derive(Clone)]
pub struct Simulated {
    /// By the cloud's name. One that is not here has no address, and cannot be called.
    pub urls: BTreeMap<String, String>,
    /// What the simulated clouds were told to accept; any token will do when they were told nothing.
    pub token: Option<String>,
    /// How many times faster than real clouds they are.
    pub pace: f64,
}

impl Simulated {
    pub fn at(urls: BTreeMap<String, String>, token: Option<String>, pace: f64) -> Self {
        Self { urls, token, pace: if pace > 0.0 { pace } else { 1.0 } }
    }

    /// Credentials for one of them. A cloud that is not simulated is refused: its client would otherwise fall back to the
    /// real cloud's address.
    pub fn credentials(&self, provider: &str) -> Outcome<Credentials> {
        let Some(url) = self.urls.get(provider).filter(|url| !url.is_empty()) else {
            return Err(Trouble::refused(format!("the simulated clouds have no {provider}"))
                .help("start a sandbox of this version; an older one may lack a cloud"));
        };
        let mut credentials = Credentials::new(provider, self.token.as_deref().unwrap_or("sandbox"));
        credentials.api_url = Some(url.clone());
        // Simulated clouds have no limit to respect, unless they say so themselves.
        credentials.requests_per_second = 100_000;
        Ok(credentials)
    }
}

/// The accounts that there are, from manifests and from the environment.
#[derive(Default)]
pub struct Accounts {
    by_id: HashMap<ResourceId, Entry>,
    /// Those that cannot be read, and what to say of it.
    unreadable: HashMap<ResourceId, Trouble>,
    env: HashMap<String, Outcome<Credentials>>,
    simulated: Option<Simulated>,
    /// Provider whose credentials came with the request itself: they override any account that is not named.
    given: Option<String>,
}

struct Entry {
    provider: String,
    region: Option<String>,
    credentials: Outcome<Credentials>,
    /// Who may use it; `None` on one's own machine, where everything is one person's.
    allowed_orgs: Option<Vec<String>>,
}

/// What an Account says.
pub struct Declared {
    pub provider: String,
    /// Where its token is, or the token itself.
    pub token: Option<SecretValue>,
    /// The same of one that may only read, where there is one.
    pub observe_token: Option<SecretValue>,
    pub api_url: Option<String>,
    pub region: Option<String>,
    pub requests_per_second: u32,
    pub max_concurrent_tasks: u32,
    /// Orgs that may use it, where it has none itself.
    pub allowed_orgs: Vec<String>,
}

impl Declared {
    /// From an encoded spec.
    pub fn read(id: &ResourceId, spec: &[u8]) -> Outcome<Self> {
        let spec = AccountSpec::decode(spec).map_err(|_| Trouble::refused(format!("{id} cannot be read")))?;
        let (provider, AccountBlock { token, observe_token, api_url, region }) = registry::clouds()
            .find_map(|cloud| Some((cloud.name.to_owned(), (cloud.account)(&spec)?)))
            .ok_or_else(|| Trouble::refused(format!("{id} names no cloud that this version knows")))?;
        let given = |text: String| Some(text).filter(|t| !t.is_empty());
        Ok(Self {
            provider,
            token,
            observe_token: observe_token.filter(|token| token.source.is_some()),
            api_url: given(api_url),
            region: given(region),
            requests_per_second: spec.requests_per_second,
            max_concurrent_tasks: spec.max_concurrent_tasks,
            allowed_orgs: spec.allowed_orgs,
        })
    }
}

/// Whether an Account is for what lies in this org and env: its own, or, where it has neither, those that it allows.
pub fn serves(account: &ResourceId, allowed_orgs: &[String], org: &str, env: &str) -> bool {
    let own = account.org == org && (account.env.is_empty() || account.env == env);
    own || account.org.is_empty() && account.env.is_empty() && allowed_orgs.iter().any(|allowed| allowed == org)
}

/// Why an Account is not for an org, and what helps.
pub fn not_served(account: &ResourceId, org: &str) -> Trouble {
    let trouble = Trouble::refused(format!("{account} is not for org {org}"));
    match account.org.is_empty() && account.env.is_empty() {
        true => trouble.help(format!("add {org} to `spec.allowedOrgs` of {account}, or apply an Account in org {org}")),
        false => trouble.help(format!("apply an Account in org {org}")),
    }
}

/// An account chosen for a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// As units remember it.
    pub name: String,
    pub region: Option<String>,
}

impl Accounts {
    /// `var` reads the environment.
    pub fn new(simulated: Option<Simulated>, var: impl Fn(&str) -> Option<String>) -> Self {
        let mut accounts = Self { simulated, ..Self::default() };
        for cloud in registry::clouds() {
            let provider = cloud.name;
            let credentials = match &accounts.simulated {
                Some(simulated) => simulated
                    .credentials(provider)
                    .map(|credentials| Credentials { region: cloud.usual_region(&var), ..credentials }),
                None => Credentials::from_env(provider, &var),
            };
            accounts.env.insert(provider.to_owned(), credentials);
        }
        accounts
    }

    /// Credentials given with a stack input, in place of the environment's.
    pub fn given(&mut self, mut credentials: Credentials, var: impl Fn(&str) -> Option<String>) {
        credentials.api_url = credentials.api_url.or_else(|| usual_url(&credentials.provider, &var));
        self.given = Some(credentials.provider.clone());
        match (&self.simulated, self.env.get_mut(&credentials.provider)) {
            // A simulated cloud takes any token; where things are is said all the same.
            (Some(_), Some(Ok(simulated))) => simulated.region = credentials.region.or(simulated.region.take()),
            // Real credentials never stand in for a cloud that is not simulated.
            (Some(_), _) => {}
            _ => {
                self.env.insert(credentials.provider.clone(), Ok(credentials));
            }
        }
    }

    /// Adds an Account resource; its secrets must be in the clear. `spec` is its encoded spec.
    pub fn add(&mut self, id: &ResourceId, spec: &[u8], var: impl Fn(&str) -> Option<String>) -> Outcome<()> {
        let Declared { provider, token, api_url, region, requests_per_second, max_concurrent_tasks, .. } =
            Declared::read(id, spec)?;
        let api_url = api_url.or_else(|| usual_url(&provider, &var));
        let credentials = match &self.simulated {
            Some(simulated) => {
                simulated.credentials(&provider).map(|credentials| Credentials { max_concurrent_tasks, ..credentials })
            }
            None => read_secret(id, &provider, token, &var).map(|token| Credentials {
                provider: provider.clone(),
                token,
                api_url,
                foreign_url: false,
                region: region.clone(),
                requests_per_second,
                max_concurrent_tasks,
            }),
        };
        self.by_id.insert(id.clone(), Entry { provider, region, credentials, allowed_orgs: None });
        Ok(())
    }

    /// Adds an Account to choose from, whose credentials are found elsewhere.
    pub fn declare(&mut self, id: &ResourceId, declared: &Declared) {
        let Declared { provider, region, allowed_orgs, .. } = declared;
        let elsewhere = Err(Trouble::new(Class::Unauthorized, format!("{id}: its credentials are not here")));
        let entry = Entry {
            provider: provider.clone(),
            region: region.clone(),
            credentials: elsewhere,
            allowed_orgs: Some(allowed_orgs.clone()),
        };
        self.unreadable.remove(id);
        self.by_id.insert(id.clone(), entry);
    }

    /// Adds an Account that is there and cannot be read: choosing another in its place would be a mistake.
    pub fn declare_unreadable(&mut self, id: &ResourceId, why: &str) {
        let trouble = Trouble::refused(format!("would use {id}, which cannot be read: {why}"))
            .help(format!("apply {id} again, or restore the state from a backup"));
        self.unreadable.insert(id.clone(), trouble);
        self.by_id.remove(id);
    }

    /// The account of a resource: the one it names, else the provider's only one in the same org and env, else the
    /// environment's.
    pub fn choose(&self, manifest: &Manifest) -> Outcome<Choice> {
        let id = &manifest.id;
        if id.kind == "Account" {
            let region = self.by_id.get(id).and_then(|entry| entry.region.clone());
            return Ok(Choice { name: name_of(id), region });
        }
        // What no cloud serves needs no account.
        if manifest.kind.provider.is_empty() {
            return Ok(Choice { name: String::new(), region: None });
        }
        let provider = &manifest.kind.provider;
        let chosen = match self.choose_for(provider, manifest.account().as_deref(), &id.org, &id.env) {
            Err(trouble) if trouble.class == Class::Unauthorized && manifest.account_of_other_tool() => {
                self.choose_for(provider, None, &id.org, &id.env)
            }
            chosen => chosen,
        };
        chosen.map_err(|trouble| {
            let message = format!("{id} {trouble}");
            trouble.reworded(message)
        })
    }

    /// The account for something of this provider in this org and env, named or not.
    pub fn choose_for(&self, provider: &str, name: Option<&str>, org: &str, env: &str) -> Outcome<Choice> {
        if let Some(name) = name {
            let wanted = ResourceId { kind: "Account".into(), name: name.into(), org: org.into(), env: env.into() };
            // An account may be shared by all environments.
            let shared = ResourceId { env: String::new(), ..wanted.clone() };
            let global = ResourceId { org: String::new(), ..shared.clone() };
            let places = [&wanted, &shared, &global];
            if let Some(trouble) = places.iter().find_map(|id| self.unreadable.get(*id)) {
                return Err(trouble.clone());
            }
            let found = places.into_iter().find_map(|id| Some((id, self.by_id.get(id)?)));
            // A stack input brings the credentials that it names.
            if found.is_none() && self.given.as_deref() == Some(provider) {
                return Ok(self.of_environment(provider));
            }
            let Some((account, entry)) = found else {
                let message = format!("names the account `{name}`, which is not here and not applied");
                return Err(Trouble::new(Class::Unauthorized, message).help(
                    "apply an Account of that name, or leave `spec.account` out to use the environment's token",
                ));
            };
            if let Some(allowed) = &entry.allowed_orgs
                && !serves(account, allowed, org, env)
            {
                let trouble = not_served(account, org);
                return Err(trouble.reworded(format!("names {account}, which is not for org {org}")));
            }
            if entry.provider != provider {
                return Err(Trouble::refused(format!("names {account}, which is an account with {}", entry.provider)));
            }
            return Ok(Choice { name: name_of(account), region: entry.region.clone() });
        }
        if let Some((_, trouble)) = self.unreadable.iter().find(|(id, _)| id.org == org && id.env == env) {
            return Err(trouble.clone());
        }
        let fits = |account: &ResourceId, entry: &Entry| {
            entry.provider == provider && account.org == org && account.env == env
        };
        let mut own: Vec<&ResourceId> =
            self.by_id.iter().filter(|(id, entry)| fits(id, entry)).map(|(id, _)| id).collect();
        own.sort();
        match own.as_slice() {
            _ if self.given.as_deref() == Some(provider) => {}
            [only] => return Ok(Choice { name: name_of(only), region: self.by_id[*only].region.clone() }),
            [one, other, ..] if self.env.get(provider).is_none_or(Result::is_err) => {
                return Err(Trouble::refused(format!("names no account, and {one} and {other} both fit"))
                    .help("name one of them in `spec.account`"));
            }
            _ => {}
        }
        Ok(self.of_environment(provider))
    }

    fn of_environment(&self, provider: &str) -> Choice {
        let region = self.env.get(provider).and_then(|c| c.as_ref().ok()).and_then(|c| c.region.clone());
        Choice { name: format!("env:{provider}"), region }
    }

    /// The connections, each made when it is first needed.
    pub fn into_clouds(self) -> Clouds {
        let mut clouds = Clouds::new().at_pace(self.simulated.map(|simulated| simulated.pace));
        for (provider, credentials) in self.env {
            clouds = clouds.account(format!("env:{provider}"), credentials);
        }
        for (id, entry) in self.by_id {
            clouds = clouds.account(name_of(&id), entry.credentials);
        }
        clouds
    }
}

/// Where the API is, the environment says, unless the account does.
pub fn usual_url(provider: &str, var: &impl Fn(&str) -> Option<String>) -> Option<String> {
    registry::find(provider).ok()?.usual_url(var)
}

/// The Account behind a name that units remember; `None` where the credentials are the environment's.
pub fn account_id(name: &str) -> Option<ResourceId> {
    let id = |org: &str, env: &str, name: &str| ResourceId {
        kind: "Account".into(),
        name: name.into(),
        org: org.into(),
        env: env.into(),
    };
    match name.split('/').collect::<Vec<_>>().as_slice() {
        _ if name.is_empty() || name.starts_with("env:") => None,
        [org, env, name] => Some(id(org, env, name)),
        _ => Some(id("", "", name)),
    }
}

/// How units remember an Account. Three parts whenever there is more than a name, so that no two are written alike.
pub fn name_of(id: &ResourceId) -> String {
    if id.org.is_empty() && id.env.is_empty() { id.name.clone() } else { format!("{}/{}/{}", id.org, id.env, id.name) }
}

fn read_secret(
    id: &ResourceId,
    provider: &str,
    token: Option<SecretValue>,
    var: &impl Fn(&str) -> Option<String>,
) -> Outcome<SecretString> {
    let unauthorized = |message: String| Trouble::new(Class::Unauthorized, message);
    match token.and_then(|t| t.source) {
        Some(Source::Value(text)) => Ok(SecretString::from(text)),
        Some(Source::FromEnv(name)) => match var(&name).filter(|v| !v.trim().is_empty()) {
            Some(value) => Ok(SecretString::from(value.trim().to_owned())),
            None => Err(unauthorized(format!("{id} takes its token from {name}, which is not set"))
                .help(format!("set {name}, then try again"))),
        },
        Some(Source::FromFile(path)) => {
            let read = || -> std::io::Result<String> {
                let file = std::fs::File::open(&path)?;
                let mut text = String::new();
                std::io::Read::read_to_string(&mut std::io::Read::take(file, TOKEN_BYTES_MAX), &mut text)?;
                Ok(text)
            };
            match read() {
                Ok(text) if !text.trim().is_empty() => Ok(SecretString::from(text.trim().to_owned())),
                Ok(_) => Err(unauthorized(format!("{id} takes its token from {path}, which is empty"))),
                Err(error) => {
                    Err(unauthorized(format!("{id} takes its token from {path}, which cannot be read: {error}")))
                }
            }
        }
        // On one machine, this is the worker.
        Some(Source::WorkerLocal(_)) => Credentials::from_env(provider, var).map(|c| c.token),
        None => Err(unauthorized(format!("{id} has no token"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only_civo() -> Simulated {
        Simulated::at([("civo".into(), "http://127.0.0.1:1".into())].into(), None, 1.0)
    }

    #[test]
    fn a_cloud_that_is_not_simulated_is_refused_not_reached_for_real() {
        let var = |name: &str| (name == "DIGITALOCEAN_TOKEN").then(|| "real".to_owned());
        let mut accounts = Accounts::new(Some(only_civo()), var);
        accounts.given(Credentials::new("digitalocean", "real"), var);
        assert!(matches!(&accounts.env["civo"], Ok(credentials) if credentials.api_url.is_some()));
        let Err(refused) = &accounts.env["digitalocean"] else {
            panic!("credentials for a cloud that is not simulated")
        };
        assert_eq!(refused.to_string(), "the simulated clouds have no digitalocean");

        let empty = Simulated::at([("digitalocean".into(), String::new())].into(), None, 1.0);
        assert!(empty.credentials("digitalocean").is_err());
    }

    #[test]
    fn simulated_clouds_are_in_the_region_that_is_given() {
        let simulated = only_civo();
        let var = |name: &str| (name == "CIVO_REGION").then(|| "LON1".to_owned());
        let mut accounts = Accounts::new(Some(simulated), var);
        let region = |accounts: &Accounts| accounts.choose_for("civo", None, "", "").unwrap().region;
        assert_eq!(region(&accounts).as_deref(), Some("lon1"));
        let given = Credentials { region: Some("fra1".into()), ..Credentials::new("civo", "token") };
        accounts.given(given, var);
        assert_eq!(region(&accounts).as_deref(), Some("fra1"));
    }
}
