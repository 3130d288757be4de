//! What the state holds, found by address and made fit to be shown. No cloud is asked.

use crate::args::repeated_flags::RepeatedFlags;
use crate::args::{Address, ScopeArgs, Which, WorkspaceArgs};
use crate::failure::Failure;
use crate::local::project;
use crate::source::Source;
use berth_engine::ResourceState;
use berth_model::{REDACTED, ResourceId, phrasing};
use berth_store::{Filter, Options, Store, StoreError, StoredResource};
use jiff::Timestamp;
use serde_json::Value;

/// The fact that a drift check leaves behind: what it found.
pub const DRIFT: &str = "drift";

/// Opens the state to look at it. Unlike a workspace it needs no cloud, not even a simulated one.
pub async fn open(args: &WorkspaceArgs) -> Result<Source, Failure> {
    match args.which()? {
        Which::Local(_) => Ok(Source::Local(existing(args).await?)),
        server => Source::open(server).await,
    }
}

/// The state, which must be there; where it is not, what to do instead.
pub async fn existing(args: &WorkspaceArgs) -> Result<Store, Failure> {
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

/// The addresses as typed; none where none were given.
pub fn addresses(texts: &[String], scope: &ScopeArgs) -> Result<Vec<Address>, Failure> {
    texts.iter().map(|text| Address::parse(text, scope)).collect()
}

/// What the addresses name, each resource once, by kind and name. No address means: all of the scope.
pub async fn find(source: &Source, addresses: &[Address], scope: &ScopeArgs) -> Result<Vec<StoredResource>, Failure> {
    let (org, env) = (scope.org.clone(), scope.env.clone());
    if addresses.is_empty() {
        return source.resources(&Filter { org, env, ..Filter::default() }).await;
    }
    let mut found = Vec::new();
    for address in addresses {
        let some = source.resources(&filter(address)).await?;
        if some.is_empty() && address.name.is_some() {
            return Err(not_applied(source, address).await?);
        }
        found.extend(some);
    }
    if addresses.len() > 1 {
        found.sort_by(|a, b| a.id.cmp(&b.id));
        found.dedup_by(|a, b| a.id == b.id);
    }
    Ok(found)
}

/// The one resource that an address names.
pub async fn one(source: &Source, text: &str, scope: &ScopeArgs) -> Result<StoredResource, Failure> {
    let address = Address::parse(text, scope)?;
    if address.name.is_none() {
        return Err(Failure::new(format!("`{text}` names a kind, not a resource"))
            .help(format!("write {}/NAME; to see which there are:   berth get {}", address.kind, address.kind)));
    }
    let mut found = source.resources(&filter(&address)).await?;
    match (found.pop(), found.len()) {
        (Some(only), 0) => Ok(only),
        (None, _) => Err(not_applied(source, &address).await?),
        (Some(last), _) => {
            found.push(last);
            let ids: Vec<&ResourceId> = found.iter().map(|stored| &stored.id).collect();
            Err(ambiguous(&address, &ids))
        }
    }
}

fn filter(address: &Address) -> Filter {
    Filter {
        kind: Some(address.kind.clone()),
        name: address.name.clone(),
        org: address.org.clone(),
        env: address.env.clone(),
    }
}

/// Says that it is not there, and what is.
pub async fn not_applied(source: &Source, address: &Address) -> Result<Failure, Failure> {
    let mut failure = Failure::new(format!("{address} is not applied"));
    let others = source.resources(&Filter { kind: Some(address.kind.clone()), ..Filter::default() }).await?;
    let wanted = address.name.as_deref().unwrap_or_default();
    if let Some(same) = others.iter().find(|other| other.id.name == wanted) {
        failure = failure.help(format!("it is there with {}", scope_of(&same.id)));
    } else if let Some(near) = phrasing::nearest(wanted, others.iter().map(|other| other.id.name.as_str())) {
        failure = failure.help(format!("did you mean `{}/{near}`?", address.kind));
    }
    Ok(failure.help("to see what is:   berth get"))
}

/// That the same name is used in several places, and which.
pub fn ambiguous(address: &Address, ids: &[&ResourceId]) -> Failure {
    let places: Vec<String> = ids.iter().map(|id| scope_of(id)).collect();
    Failure::new(format!("{address} is there {} times", ids.len()))
        .note(places.join("; "))
        .help("add --env or --org to say which")
}

/// Where else to look, when nothing is here: simulated clouds have a state of their own.
pub fn elsewhere(args: &WorkspaceArgs) -> Option<&'static str> {
    if args.state.state.is_some() || args.sandbox.sandbox || matches!(args.which(), Ok(Which::Server(_)) | Err(_)) {
        return None;
    }
    let simulated = project::sandbox_state().ok()?;
    simulated.exists().then_some("what is applied to the simulated clouds is seen with --sandbox")
}

fn scope_of(id: &ResourceId) -> String {
    match (id.org.as_str(), id.env.as_str()) {
        ("", "") => "no --env".into(),
        ("", env) => format!("--env {env}"),
        (org, "") => format!("--org {org}"),
        (org, env) => format!("--org {org} --env {env}"),
    }
}

/// A command to type about a resource, with what it takes to find it again.
pub fn command(verb: &str, id: &ResourceId, args: &WorkspaceArgs) -> String {
    RepeatedFlags::from(args).complete(&format!("berth {verb} {id}{}", id.flags()))
}

/// The manifest as applied, with secrets replaced by a word.
pub fn shown_manifest(stored: &StoredResource) -> Result<Value, Failure> {
    let mut manifest = stored.sealed_manifest()?;
    for pointer in stored.sealed_paths()? {
        if let Some(slot) = manifest.pointer_mut(&pointer) {
            *slot = Value::String(REDACTED.into());
        }
    }
    Ok(manifest)
}

/// `yes`, `no` or `failed`.
pub fn readiness(stored: &StoredResource) -> &'static str {
    match stored.status.state {
        ResourceState::Failed => "failed",
        _ if stored.settled() && !stored.deleting => "yes",
        _ => "no",
    }
}

/// Its state, by the same rule as [`readiness`]: what was changed since it was Ready is not.
pub fn state(stored: &StoredResource) -> ResourceState {
    match stored.status.state {
        ResourceState::Ready if !stored.settled() => ResourceState::Pending,
        state => state,
    }
}

/// What keeps it from being ready, in a few words; empty when nothing does.
pub fn phase(stored: &StoredResource) -> String {
    let state = stored.status.state;
    match readiness(stored) {
        "yes" => String::new(),
        _ if stored.deleting => "deleting".into(),
        _ if !stored.status.message.is_empty() => stored.status.message.clone(),
        _ if state == ResourceState::Ready => "changed, and not applied to its end".into(),
        _ => state.as_str().to_lowercase(),
    }
}

/// A fact of the status as text; `-` when it is not known.
pub fn fact(stored: &StoredResource, name: &str) -> String {
    stored.status.facts.get(name).map_or_else(|| "-".into(), value_text)
}

pub fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".into() } else { text.to_owned() }
}

/// A value without quotes, as a shell wants it.
pub fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// `12s`, `3m`, `5h`, `41d`.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Times as people and programs read them.
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let before = |seconds: i64| Timestamp::from_second(1_000_000 - seconds).unwrap();
        for (seconds, text) in [(0, "0s"), (59, "59s"), (60, "1m"), (7200, "2h"), (41 * 86_400 + 5, "41d"), (-5, "0s")]
        {
            assert_eq!(age(before(seconds), now), text);
        }
    }

    #[test]
    fn commands_name_the_place() {
        let mut id = ResourceId::new("CivoVpc", "net");
        assert_eq!(command("get", &id, &WorkspaceArgs::default()), "berth get CivoVpc/net");
        id.env = "prod".into();
        assert_eq!(command("get", &id, &WorkspaceArgs::default()), "berth get CivoVpc/net --env prod");
        id.env = "it's prod".into();
        assert_eq!(command("get", &id, &WorkspaceArgs::default()), r"berth get CivoVpc/net --env 'it'\''s prod'");
    }
}
