//! Creating, showing, changing and deleting add-ons.

use serde_json::{Map, Value, json};

use super::addon::Addon;
use super::addon_catalog::{self, Offer};
use super::cluster::Cluster;
use super::errors::About;
use super::spec::Spec;
use super::updates::{self, Begin, Of};
use super::{addon_schema, cluster_checks, find, find_running, page, pod_identity, roles, view};
use crate::aws::ask::{Ask, Input};
use crate::aws::errors::Answer;
use crate::clock::SimTime;
use crate::world::new_id;

pub fn find_in<'a>(ask: &'a Ask, cluster: &Cluster, name: &str) -> Answer<&'a Addon> {
    let key = format!("name:{}/{name}", cluster.id);
    ask.state.store.eks.addons.first(&key).ok_or_else(|| {
        let message = format!("No addon: {name} found in cluster: {}", cluster.name);
        About::addon(&cluster.name, name).not_found(message)
    })
}

fn shown(ask: &Ask, addon: &Addon) -> Value {
    let now = ask.now();
    let has_node = view::has_ready_node(ask.state.store, &addon.cluster_id, now);
    addon.shown(now, has_node, &pod_identity::owned_by(ask, addon))
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let cluster = find_running(ask, "clusterName")?;
    let name = ask.input.text("addonName").unwrap_or_default().to_owned();
    let (about, now) = (About::addon(&cluster.name, &name), ask.now());
    let Some(offer) = addon_catalog::find(&name) else {
        return Err(about.bad_parameter("Addon specified is not supported"));
    };
    if ask.state.store.eks.addons.count(&format!("name:{}/{name}", cluster.id)) > 0 {
        return Err(about.in_use("Addon already exists."));
    }
    let tags = ask.input.map("tags");
    cluster_checks::tags(about, &tags)?;
    let members = members(ask, about, offer, cluster.version(now), None)?;
    let identities = ask.input.list("podIdentityAssociations");
    check_identities(ask, about, &identities)?;
    let stuck = ask.effects().stuck;
    let active_at = if stuck { SimTime::NEVER } else { ask.in_seconds(15, 60) };
    let addon = Addon {
        id: new_id(),
        cluster_id: cluster.id.clone(),
        cluster: cluster.name.clone(),
        region: ask.region.to_owned(),
        account: ask.account.to_owned(),
        name,
        spec: Spec::new(members),
        tags,
        created_at: now,
        modified_at: now,
        active_at,
        gone_at: None,
    };
    ask.store().eks.addons.insert(addon.clone());
    pod_identity::set_owned(ask, &cluster, &addon, offer.namespace, &identities);
    let mut answer = shown(ask, &addon);
    answer["status"] = json!("CREATING");
    Ok(json!({"addon": answer}))
}

/// Checks what was asked for: the members to show. `before` is the version that the add-on has.
fn members(
    ask: &Ask,
    about: About,
    offer: &Offer,
    kubernetes: &str,
    before: Option<&str>,
) -> Answer<Map<String, Value>> {
    let input = &ask.input;
    let mut members = Map::new();
    let version = match (input.text("addonVersion"), before) {
        (Some(wanted), _) if wanted != "latest" => {
            if !offer.versions(kubernetes).contains(&wanted) && before != Some(wanted) {
                return Err(about.bad_parameter("Addon version specified is not supported"));
            }
            wanted
        }
        (Some(_), _) => offer.versions(kubernetes).first().copied().unwrap_or_default(),
        (None, Some(before)) => before,
        (None, None) => offer.default_version(kubernetes).unwrap_or_default(),
    };
    members.insert("addonVersion".into(), json!(version));
    let conflicts = input.text("resolveConflicts").unwrap_or("NONE");
    if !matches!(conflicts, "NONE" | "OVERWRITE" | "PRESERVE") || (conflicts == "PRESERVE" && before.is_none()) {
        return Err(about.bad_parameter(format!("Invalid resolveConflicts value: {conflicts}")));
    }
    if let Some(role) = input.text("serviceAccountRoleArn").filter(|role| !role.is_empty()) {
        if !roles::is_role(role) {
            return Err(about.bad_parameter(format!("Invalid serviceAccountRoleArn: {role}")));
        }
        members.insert("serviceAccountRoleArn".into(), json!(role));
    }
    if let Some(text) = input.text("configurationValues") {
        check_values(about, offer.name, text)?;
        let values = if text.is_empty() { Value::Null } else { json!(text) };
        members.insert("configurationValues".into(), values);
    }
    Ok(members)
}

/// JSON or YAML that fits the add-on's schema.
fn check_values(about: About, addon: &str, text: &str) -> Answer<()> {
    if text.trim().is_empty() {
        return Ok(());
    }
    let values = match serde_json::from_str::<Value>(text) {
        Ok(values) => values,
        Err(_) => crate::kube::parse_yaml(text.as_bytes())
            .map_err(|_| about.bad_parameter("ConfigurationValue is not in valid JSON or YAML format."))?,
    };
    let wrong = addon_schema::check(&addon_schema::of(addon), &values);
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(about.bad_parameter(format!(
            "ConfigurationValue provided in request is not supported: Json schema validation failed with error: [{}]",
            wrong.join(", ")
        ))),
    }
}

fn check_identities(ask: &Ask, about: About, identities: &[Input]) -> Answer<()> {
    for identity in identities {
        let role = identity.text("roleArn").unwrap_or_default();
        if !roles::principal_exists(ask, role) {
            return Err(about.bad_parameter("Role provided in the request does not exist."));
        }
    }
    Ok(())
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let cluster = find(ask, "clusterName")?;
    let addon = find_in(ask, cluster, ask.input.text("addonName").unwrap_or_default())?;
    Ok(json!({"addon": shown(ask, addon)}))
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let key = format!("cluster:{}", find(ask, "clusterName")?.id);
    let rows = ask.rows(|store| &store.eks.addons, &key);
    let mut names: Vec<&str> = rows.iter().map(|addon| addon.name.as_str()).collect();
    names.sort_unstable();
    let names = names.into_iter().map(Value::from).collect();
    page(ask, "addons", names)
}

pub fn update(ask: &mut Ask) -> Answer<Value> {
    let cluster = find_running(ask, "clusterName")?;
    let addon = find_in(ask, &cluster, ask.input.text("addonName").unwrap_or_default())?.clone();
    let (about, now) = (About::addon(&cluster.name, &addon.name), ask.now());
    if let Some(id) = addon.spec.updating(now) {
        return Err(about.in_use(format!("Addon {} currently has update {id} in progress", addon.name)));
    }
    if addon.gone_at.is_some() || now < addon.active_at {
        let message =
            format!("Addon {} cannot be updated as it is currently in {} state", addon.name, addon.status(now, true));
        return Err(about.in_use(message));
    }
    let Some(offer) = addon_catalog::find(&addon.name) else {
        return Err(about.bad_parameter("Addon specified is not supported"));
    };
    let mut members = members(ask, about, offer, cluster.version(now), Some(addon.spec.text("addonVersion", now)))?;
    // An empty role takes it away.
    if ask.input.text("serviceAccountRoleArn") == Some("") {
        members.insert("serviceAccountRoleArn".into(), Value::Null);
    }
    let mut params: Vec<(&str, String)> = Vec::new();
    for (param, member) in [
        ("AddonVersion", "addonVersion"),
        ("ServiceAccountRoleArn", "serviceAccountRoleArn"),
        ("ResolveConflicts", "resolveConflicts"),
        ("ConfigurationValues", "configurationValues"),
    ] {
        if let Some(value) = ask.input.text(member) {
            params.push((param, value.to_owned()));
        }
    }
    if ask.input.at("podIdentityAssociations").is_some() {
        let identities = ask.input.list("podIdentityAssociations");
        check_identities(ask, about, &identities)?;
        params.push((
            "PodIdentityAssociations",
            json!(identities.iter().map(|one| &one.0).collect::<Vec<_>>()).to_string(),
        ));
        pod_identity::set_owned(ask, &cluster, &addon, offer.namespace, &identities);
    }
    let of = Of { node_group: None, addon: Some(addon.name.clone()) };
    let (id, at, shown) = updates::begin(ask, &cluster, Begin { of, kind: "AddonUpdate", params, takes: (15, 60) });
    ask.store().eks.addons.update(&addon.id, |addon| {
        addon.spec.update(now, &id, at, members);
        addon.modified_at = now;
    });
    Ok(json!({"update": shown}))
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let cluster = find(ask, "clusterName")?.clone();
    let addon = find_in(ask, &cluster, ask.input.text("addonName").unwrap_or_default())?.clone();
    let now = ask.now();
    let mut answer = shown(ask, &addon);
    if addon.gone_at.is_none() {
        let gone_at = ask.in_seconds(10, 40);
        pod_identity::set_owned(ask, &cluster, &addon, "", &[]);
        ask.store().eks.addons.update(&addon.id, |addon| {
            addon.gone_at = Some(gone_at);
            addon.modified_at = now;
        });
        // What was preserved runs on, and belongs to nobody.
        if ask.input.flag("preserve") == Some(true) {
            ask.store().eks.clusters.update(&cluster.id, |cluster| cluster.preserved.push(addon.name.clone()));
        }
    }
    answer["status"] = json!("DELETING");
    Ok(json!({"addon": answer}))
}
