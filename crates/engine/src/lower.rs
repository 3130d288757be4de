//! From a resource to its units: references resolved, lowered, put in order. Pure.

use crate::graph::Graph;
use crate::handler::{Catalog, Class, Help, LowerInput, Target, Trouble};
use crate::plan::{Request, Wanted};
use crate::unit::{Lowered, Props, Unit};
use crate::unknown::{is_unknown, unknown};
use berth_model::case::snake_case;
use berth_model::{Manifest, ResourceId};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Looks a reference's target up: its manifest, and its outputs as far as they are known.
pub(crate) type Lookup<'a> = &'a dyn Fn(&ResourceId) -> Option<(Arc<Manifest>, Props)>;

/// The resources that a manifest refers to, or names plainly where a resource of that name may be.
pub fn parents(manifest: &Manifest) -> Vec<ResourceId> {
    manifest.refs().into_iter().chain(manifest.named()).map(|r| r.to).filter(|to| *to != manifest.id).collect()
}

/// The object's own name.
pub(crate) fn name_in<'p>(catalog: &dyn Catalog, unit_type: &str, props: &'p Props) -> Option<&'p str> {
    catalog.name_properties(unit_type).iter().find_map(|name| props.get(*name)?.as_str())
}

/// Says that a name is taken, and how to go on.
pub(crate) fn taken(catalog: &dyn Catalog, unit: &Unit, props: &Props, other: &str) -> Trouble {
    let name = name_in(catalog, &unit.unit_type, props);
    let (provider, what) = unit.unit_type.split_once('.').unwrap_or(("", "object"));
    let cloud = catalog.cloud_title(provider);
    let place = if unit.scope.is_empty() { String::new() } else { format!(" in {}", unit.scope) };
    Trouble::new(
        Class::Taken { id: Some(other.to_owned()).filter(|id| !id.is_empty()) },
        format!("{cloud} already has a {what} named `{}`{place}, not managed by Berth", name.unwrap_or(&unit.key)),
    )
    .help("to make another, change its name in the manifest")
}

/// Another object has the name: how to take it over as this resource.
pub(crate) fn adoptable(mut trouble: Trouble, resource: &ResourceId) -> Trouble {
    if let Class::Taken { id: Some(object) } = &trouble.class {
        trouble.help.insert(0, Help::Adopt { resource: resource.clone(), object: object.clone() });
    }
    trouble
}

/// The same, where the object turns out to be another resource's.
pub fn managed_already(resource: &ResourceId, object: &str, owner: &ResourceId) -> Trouble {
    let class = Class::Taken { id: Some(object.to_owned()) };
    let message =
        format!("the name that {resource} asks for is taken: {object} has it, which Berth manages already as {owner}");
    Trouble::new(class, message)
        .help(format!("to look at it:   berth describe {owner}{}", owner.flags()))
        .help("to make another, change its name in the manifest")
}

/// Lowers a resource with its references resolved by `target`.
pub(crate) fn lower(
    catalog: &dyn Catalog,
    wanted: &Wanted,
    label_prefix: &str,
    target: Lookup<'_>,
) -> Result<Lowered, Trouble> {
    let manifest = &*wanted.manifest;
    let mut targets = BTreeMap::new();
    // `None` is known only after apply.
    let mut values: HashMap<(String, String), Option<String>> = HashMap::new();
    // A plain name that is a resource's is as good as a reference to it; any other is the cloud's own.
    for reference in manifest.named() {
        if let Some((other, outputs)) = target(&reference.to) {
            targets.insert(snake_case(&reference.field), Target { id: reference.to, spec: other.spec_json(), outputs });
        }
    }
    for reference in manifest.refs() {
        let (other, outputs) = target(&reference.to).ok_or_else(|| {
            Trouble::refused(format!("{} refers to {}, which is not here and not applied", manifest.id, reference.to))
        })?;
        let value = match reference.field_path.strip_prefix("status.outputs.") {
            Some(name) => match outputs.get(name) {
                None => None,
                Some(value) if is_unknown(value) => None,
                Some(Value::String(text)) => Some(text.clone()),
                Some(other) => Some(other.to_string()),
            },
            None => Some(other.field_value(&reference.field_path).ok_or_else(|| {
                Trouble::refused(format!("{} has no value at {}", reference.to, reference.field_path))
                    .help(format!("{} refers to it in spec.{}", manifest.id, reference.field))
            })?),
        };
        values.insert((reference.field.clone(), reference.to.to_string()), value);
        targets.insert(
            snake_case(&reference.field),
            Target { id: reference.to.clone(), spec: other.spec_json(), outputs },
        );
    }
    let spec = manifest.resolve(&|reference| {
        let value = values.get(&(reference.field.clone(), reference.to.to_string()));
        value.map_or_else(|| Some(String::new()), Clone::clone)
    });
    catalog.lower(&LowerInput {
        id: &manifest.id,
        metadata: &manifest.metadata,
        spec: &spec,
        targets: &targets,
        default_region: wanted.default_region.as_deref(),
        label_prefix,
    })
}

/// What other resources give for one, as far as it is known: a digest of each output.
pub(crate) struct Given(Vec<u64>);

impl Given {
    /// Whether all of it is given now, too. What is known besides makes no difference to what was lowered without it: lowering
    /// marks what it needs and does not know.
    pub fn is_in(&self, now: &Given) -> bool {
        self.0.iter().all(|output| now.0.contains(output))
    }
}

pub(crate) fn given(manifest: &Manifest, target: Lookup<'_>) -> Given {
    let mut given = Vec::new();
    for reference in manifest.named().into_iter().chain(manifest.refs()) {
        let outputs = target(&reference.to).map(|(_, outputs)| outputs).unwrap_or_default();
        for (name, value) in outputs.iter().filter(|(_, value)| !is_unknown(value)) {
            let mut hash = DefaultHasher::new();
            (&reference.to, name, value.to_string()).hash(&mut hash);
            given.push(hash.finish());
        }
    }
    Given(given)
}

/// Lowers a resource outside a plan. `outputs` overrides the outputs of a target that are in the state.
pub fn lower_now(
    catalog: &dyn Catalog,
    request: &Request,
    wanted: &Wanted,
    outputs: &HashMap<ResourceId, Props>,
) -> Result<Lowered, Trouble> {
    lower(catalog, wanted, &request.label_prefix, &|id| {
        let known = request.known.resources.get(id);
        let declared = request.wanted.iter().find(|w| w.manifest.id == *id);
        let manifest = declared.map(|w| w.manifest.clone()).or_else(|| known.map(|k| k.manifest.clone()))?;
        let outputs = outputs.get(id).or_else(|| known.map(|k| &k.outputs)).cloned();
        Some((manifest, outputs.unwrap_or_default()))
    })
}

/// The resource's outputs, from its units'. What is not there yet is marked.
pub(crate) fn outputs_of(lowered: &Lowered, made: &HashMap<String, Props>) -> Props {
    let mut outputs = Props::new();
    for (name, from) in &lowered.outputs {
        match made.get(&from.unit).and_then(|o| o.get(&from.output)) {
            Some(value) => outputs.insert(name.clone(), value.clone()),
            None => outputs.insert(name.clone(), unknown(name.as_str())),
        };
    }
    outputs
}

/// Units with those they depend on first.
pub(crate) fn in_order(units: &[Unit]) -> Vec<&Unit> {
    let index: HashMap<&str, usize> = units.iter().enumerate().map(|(i, u)| (u.key.as_str(), i)).collect();
    let mut graph = Graph::new(0..units.len());
    for (after, unit) in units.iter().enumerate() {
        for key in &unit.depends_on {
            if let Some(before) = index.get(key.as_str()) {
                graph.edge(*before, after);
            }
        }
    }
    // Lowering is ours: a circle would be a mistake of Berth's, and the order as written is then as good as any.
    let order = graph.order().unwrap_or_else(|_| (0..units.len()).collect());
    order.into_iter().map(|i| &units[i]).collect()
}
