//! Taking over what is already in a cloud: names, references between what is taken over, manifests, and the rows that bind
//! objects to units. Pure: where objects are listed and where manifests are kept is the caller's.

use berth_engine::handler::{Catalog, Raised, Trouble};
use berth_engine::unit::{Identity, Props, UnitState};
use berth_engine::{Request, Wanted, lower_now};
use berth_model::yaml::to_yaml;
use berth_model::{Kind, Manifest, ResourceId, parse, registry};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};

/// An object to take over, with its name here.
pub struct Taken {
    pub id: ResourceId,
    pub raised: Raised,
}

/// An object that no manifest can describe, and why.
#[derive(Clone, Debug)]
pub struct LeftOut {
    pub kind: String,
    /// Its name in the cloud.
    pub name: String,
    /// Its id in the cloud.
    pub object: String,
    pub reason: String,
}

/// Longest name of a resource.
const LONGEST_NAME: usize = 63;

/// Names for everything whose object is not `managed` yet. `used` are the names that are taken.
pub fn name_all(
    raised: Vec<Raised>,
    managed: &HashSet<String>,
    used: &mut HashSet<ResourceId>,
    org: &str,
    env: &str,
) -> Vec<Taken> {
    let mut taken = Vec::new();
    for one in raised {
        if one.units.values().any(|object| managed.contains(object)) {
            continue;
        }
        let mut id =
            ResourceId { kind: one.kind.clone(), name: one.name.clone(), org: org.to_owned(), env: env.to_owned() };
        let mut number = 2;
        while !used.insert(id.clone()) {
            let end = format!("-{number}");
            let start: String = one.name.chars().take(LONGEST_NAME - end.len()).collect();
            id.name = format!("{}{end}", start.trim_end_matches('-'));
            number += 1;
        }
        taken.push(Taken { id, raised: one });
    }
    taken
}

/// Those that a manifest can describe, and those that none can. The second kind is referred to by id.
pub fn describable(taken: Vec<Taken>, account: Option<&str>) -> (Vec<Taken>, Vec<LeftOut>) {
    let (mut fine, mut left_out) = (Vec::with_capacity(taken.len()), Vec::new());
    for one in taken {
        let (_, problems) = parse(&one.id.name, manifest_text(&one, &HashMap::new(), account).as_bytes());
        match problems.into_iter().find(|problem| problem.is_error()) {
            None => fine.push(one),
            Some(problem) => {
                let (kind, object) = (one.id.kind, one.raised.units.into_values().next().unwrap_or_default());
                let reason = format!("{}: {}", problem.path, problem.message);
                left_out.push(LeftOut { kind, name: one.raised.object_name, object, reason });
            }
        }
    }
    (fine, left_out)
}

/// Which of these resources will manage an object that others name by id.
pub fn own_links(taken: &[Taken]) -> HashMap<String, ResourceId> {
    let objects = |one: &Taken| one.raised.units.values().map(|object| (object.clone(), one.id.clone())).collect();
    taken.iter().flat_map(|one| -> Vec<_> { objects(one) }).collect()
}

/// The manifest of one, with references where what it names by id is managed, too.
pub fn manifest_text(one: &Taken, links: &HashMap<String, ResourceId>, account: Option<&str>) -> String {
    let mut spec = one.raised.spec.clone();
    for (field, kind, object) in &one.raised.links {
        let Some(target) = links.get(object).filter(|target| target.kind == *kind) else { continue };
        if let Some(slot) = spec.get_mut(field) {
            *slot = json!({"valueFrom": {"name": target.name, "kind": target.kind}});
            if target.env != one.id.env {
                slot["valueFrom"]["env"] = Value::String(target.env.clone());
            }
        }
    }
    if let (Some(account), Some(spec)) = (account, spec.as_object_mut()) {
        spec.insert("account".into(), Value::String(account.to_owned()));
    }
    let mut metadata = json!({"name": one.id.name});
    for (name, value) in [("org", &one.id.org), ("env", &one.id.env)] {
        if !value.is_empty() {
            metadata[name] = Value::String(value.clone());
        }
    }
    let api_version = registry().kind(&one.id.kind).map(|kind| group_for(kind, &one.id.name)).unwrap_or_default();
    let mut text = to_yaml(&json!({"apiVersion": api_version, "kind": one.id.kind}));
    text.push_str(&to_yaml(&json!({"metadata": metadata})));
    text.push_str(&to_yaml(&json!({"spec": spec})));
    text
}

/// Berth's own group, or that of another tool where only its resources may have such a name.
fn group_for(kind: &Kind, name: &str) -> String {
    let is_label = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let other = kind.aliases.first().filter(|_| !is_label);
    other.unwrap_or(&kind.api_version).clone()
}

/// The manifest that a text made by [`manifest_text`] holds.
pub fn read_back(one: &Taken, file: &str, text: &str) -> Result<Manifest, Trouble> {
    let (mut parsed, problems) = parse(file, text.as_bytes());
    if let Some(problem) = problems.iter().find(|p| p.is_error()) {
        let path = &problem.path;
        return Err(Trouble::refused(format!("{} cannot be described as a manifest: {}", one.id, problem.message))
            .help(format!(
                "{path} has a setting that this kind does not allow; change it in the cloud, then import again"
            )));
    }
    parsed.pop().ok_or_else(|| Trouble::refused(format!("{} gave no manifest", one.id)))
}

/// The rows that bind the objects to the units that the manifests lower to. `identity`: whom the credentials belong to that
/// showed the objects.
pub fn rows(
    catalog: &dyn Catalog,
    request: &Request,
    taken: &[Taken],
    identity: Option<&Identity>,
) -> Result<Vec<UnitState>, Trouble> {
    let by_id: HashMap<&ResourceId, &Taken> = taken.iter().map(|t| (&t.id, t)).collect();
    // Networks before clusters before pools: what is referred to is known by then.
    let mut in_order: Vec<&Wanted> = request.wanted.iter().collect();
    in_order.sort_by_key(|w| {
        ["Vpc", "Firewall", "Cluster"].iter().position(|end| w.manifest.id.kind.ends_with(end)).unwrap_or(3)
    });
    let mut outputs: HashMap<ResourceId, Props> = HashMap::new();
    let mut rows = Vec::new();
    for wanted in in_order {
        let Some(one) = by_id.get(&wanted.manifest.id) else { continue };
        let lowered = lower_now(catalog, request, wanted, &outputs)?;
        let own = lowered.outputs.iter().filter(|(_, from)| from.output == "id");
        let own = own.filter_map(|(name, from)| Some((name.clone(), one.raised.units.get(&from.unit)?.clone().into())));
        outputs.insert(one.id.clone(), own.collect());
        for unit in &lowered.units {
            let Some(object) = one.raised.units.get(&unit.key) else { continue };
            rows.push(UnitState {
                resource: one.id.clone(),
                key: unit.key.clone(),
                token: uuid::Uuid::now_v7().simple().to_string(),
                unit_type: unit.unit_type.clone(),
                scope: unit.scope.clone(),
                account: wanted.account.clone(),
                identity: identity.cloned(),
                id: Some(object.clone()),
                props: unit.props.clone(),
                outputs: Map::new(),
                secrets: BTreeMap::new(),
                deposed: false,
                ready: false,
                updated_at: jiff::Timestamp::now(),
            });
        }
    }
    Ok(rows)
}
