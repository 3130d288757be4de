//! Revisions of StatefulSets and DaemonSets: one ControllerRevision for each template, for `kubectl rollout history|undo`.

use serde_json::{Value, json};

use super::{Change, Scene, controller_of, kind, owner_reference, template};
use crate::kube::objects::{Stored, meta};
use crate::kube::types::ResourceType;

/// The name of the current revision, the hash in it, and what has to be made or renumbered for it.
pub struct Current {
    pub name: String,
    pub hash: String,
    pub changes: Vec<Change>,
}

fn own<'a>(scene: &'a Scene, owner: &'a Value) -> impl Iterator<Item = &'a Stored> {
    scene
        .objects
        .rows_of("apps", "controllerrevisions")
        .filter(move |row| controller_of(&row.object).is_some_and(|by| by["uid"] == owner["metadata"]["uid"]))
}

pub fn current(scene: &Scene, resource: &'static ResourceType, owner: &Value) -> Current {
    let revisions = kind("apps", "controllerrevisions");
    let hash = template::hash(&owner["spec"]["template"]);
    let name = format!("{}-{hash}", meta(owner, "name"));
    let number = |row: &Stored| row.object["revision"].as_i64().unwrap_or(0);
    let newest = own(scene, owner).map(number).max().unwrap_or(0);
    let mut changes = Vec::new();
    match own(scene, owner).find(|row| meta(&row.object, "name") == name) {
        Some(row) if number(row) < newest => {
            let mut object = row.object.clone();
            object["revision"] = json!(newest + 1);
            changes.push(Change::Set { resource: revisions, object, due: None });
        }
        Some(_) => {}
        None => {
            let mut labels = owner["spec"]["template"]["metadata"]["labels"].clone();
            labels["controller-revision-hash"] = json!(hash);
            let mut template = owner["spec"]["template"].clone();
            template["$patch"] = json!("replace");
            let body = json!({
                "apiVersion": "apps/v1", "kind": "ControllerRevision",
                "metadata": {"name": name, "labels": labels, "ownerReferences": owner_reference(resource, owner),
                             "annotations": owner["metadata"]["annotations"]},
                "data": {"spec": {"template": template}}, "revision": newest + 1,
            });
            let namespace = meta(owner, "namespace").to_owned();
            changes.push(Change::Create { resource: revisions, namespace, body });
        }
    }
    let keep = owner["spec"]["revisionHistoryLimit"].as_u64().unwrap_or(10) as usize + 1;
    let mut old: Vec<&Stored> = own(scene, owner).filter(|row| meta(&row.object, "name") != name).collect();
    old.sort_by_key(|row| number(row));
    let surplus = old.len().saturating_sub(keep);
    changes.extend(old.into_iter().take(surplus).map(|row| super::delete(revisions, &row.object)));
    Current { name, hash, changes }
}
