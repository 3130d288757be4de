//! Resources found by their addresses.

use crate::args::{Address, ScopeArgs};
use crate::backend::Backend;
use crate::failure::Failure;
use berth_model::{ResourceId, phrasing};
use berth_store::{Filter, StoredResource};

/// The addresses as typed; none where none were given.
pub fn addresses(texts: &[String], scope: &ScopeArgs) -> Result<Vec<Address>, Failure> {
    texts.iter().map(|text| Address::parse(text, scope)).collect()
}

/// What the addresses name, each resource once, by kind and name. No address means: all of the scope.
pub async fn find(
    backend: &dyn Backend,
    addresses: &[Address],
    scope: &ScopeArgs,
) -> Result<Vec<StoredResource>, Failure> {
    let (org, env) = (scope.org.clone(), scope.env.clone());
    if addresses.is_empty() {
        return backend.resources(&Filter { org, env, ..Filter::default() }).await;
    }
    let mut found = Vec::new();
    for address in addresses {
        let some = backend.resources(&filter(address)).await?;
        if some.is_empty() && address.name.is_some() {
            return Err(not_applied(backend, address).await?);
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
pub async fn one(backend: &dyn Backend, text: &str, scope: &ScopeArgs) -> Result<StoredResource, Failure> {
    let address = Address::parse(text, scope)?;
    if address.name.is_none() {
        return Err(Failure::new(format!("`{text}` names a kind, not a resource"))
            .help(format!("write {}/NAME; to see which there are:   berth get {}", address.kind, address.kind)));
    }
    let mut found = backend.resources(&filter(&address)).await?;
    match (found.pop(), found.len()) {
        (Some(only), 0) => Ok(only),
        (None, _) => Err(not_applied(backend, &address).await?),
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

/// An error that says that nothing is applied at the address, and suggests what was meant.
pub async fn not_applied(backend: &dyn Backend, address: &Address) -> Result<Failure, Failure> {
    let mut failure = Failure::new(format!("{address} is not applied"));
    let others = backend.resources(&Filter { kind: Some(address.kind.clone()), ..Filter::default() }).await?;
    let wanted = address.name.as_deref().unwrap_or_default();
    if let Some(same) = others.iter().find(|other| other.id.name == wanted) {
        failure = failure.help(format!("it is there with {}", scope_of(&same.id)));
    } else if let Some(near) = phrasing::nearest(wanted, others.iter().map(|other| other.id.name.as_str())) {
        failure = failure.help(format!("did you mean `{}/{near}`?", address.kind));
    }
    Ok(failure.help("to see what is:   berth get"))
}

/// An error that lists the scopes in which the same name is used.
pub fn ambiguous(address: &Address, ids: &[&ResourceId]) -> Failure {
    let places: Vec<String> = ids.iter().map(|id| scope_of(id)).collect();
    Failure::new(format!("{address} is there {} times", ids.len()))
        .note(places.join("; "))
        .help("add --env or --org to say which")
}

fn scope_of(id: &ResourceId) -> String {
    match (id.org.as_str(), id.env.as_str()) {
        ("", "") => "no --env".into(),
        ("", env) => format!("--env {env}"),
        (org, "") => format!("--org {org}"),
        (org, env) => format!("--org {org} --env {env}"),
    }
}
