//! Volumes: claims get one from their storage class, it grows with them and goes with them.

use serde_json::{Value, json};

use super::{Change, Scene, due_change, is_leaving, kind, set_status, spread, tell, warn};
use crate::kube::objects::{Stored, meta, no_finalizers};
use crate::kube::quantity;

const MAKE_MS: (i64, i64) = (2_000, 5_000);
const CONTROLLER: &str = "persistentvolume-controller";
const PROTECTION: &str = "kubernetes.io/pvc-protection";
const SELECTED: &str = "volume.kubernetes.io/selected-node";

pub fn run(scene: &Scene) -> Vec<Change> {
    let mut changes = Vec::new();
    for row in scene.objects.rows_of("", "persistentvolumeclaims") {
        if is_leaving(&row.object) {
            release(scene, &row.object, &mut changes);
        } else if row.object["status"]["phase"] == "Bound" {
            grow(scene, row, &mut changes);
        } else {
            bind(scene, row, &mut changes);
        }
    }
    for row in scene.objects.rows_of("", "persistentvolumes") {
        volume(scene, row, &mut changes);
    }
    changes
}

fn class_of<'a>(scene: &'a Scene, claim: &Value) -> Option<&'a Value> {
    scene.objects.peek("storage.k8s.io", "storageclasses", "", claim["spec"]["storageClassName"].as_str()?)
}

fn users<'a>(scene: &'a Scene, claim: &'a Value) -> impl Iterator<Item = &'a Value> {
    scene.objects.rows_of("", "pods").map(|row| &row.object).filter(move |pod| {
        meta(pod, "namespace") == meta(claim, "namespace") && claims_of(pod).any(|name| name == meta(claim, "name"))
    })
}

fn claims_of(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str())
}

fn waits_for_consumer(class: &Value) -> bool {
    class["volumeBindingMode"] == "WaitForFirstConsumer"
}

fn bind(scene: &Scene, row: &Stored, changes: &mut Vec<Change>) {
    let (claims, claim, now) = (kind("", "persistentvolumeclaims"), &row.object, scene.now);
    let size = &claim["spec"]["resources"]["requests"]["storage"];
    let pending =
        |changes: &mut Vec<Change>, due| changes.extend(set_status(claims, row, json!({"phase": "Pending"}), due));
    if let Some(volume) = existing(scene, claim) {
        let mut bound = volume.clone();
        bound["spec"]["claimRef"] = reference(claim);
        bound["status"] = json!({"phase": "Bound"});
        changes.push(Change::Set { resource: kind("", "persistentvolumes"), object: bound, due: None });
        let capacity = volume["spec"]["capacity"]["storage"].clone();
        changes.push(bound_claim(claim, meta(volume, "name"), &capacity));
        return;
    }
    let Some(class) = class_of(scene, claim) else {
        pending(changes, None);
        let why = match claim["spec"]["storageClassName"].as_str().filter(|name| !name.is_empty()) {
            Some(name) => ("ProvisioningFailed", format!("storageclass.storage.k8s.io \"{name}\" not found")),
            None => {
                ("FailedBinding", "no persistent volumes available for this claim and no storage class is set".into())
            }
        };
        if claim["status"]["phase"] != "Pending" {
            changes.push(if why.0 == "FailedBinding" {
                tell(claim, CONTROLLER, why.0, why.1)
            } else {
                warn(claim, CONTROLLER, why.0, why.1)
            });
        }
        return;
    };
    if class["provisioner"] == "kubernetes.io/no-provisioner" {
        return pending(changes, None);
    }
    let placed = users(scene, claim).find_map(|pod| pod["spec"]["nodeName"].as_str());
    if waits_for_consumer(class) && placed.is_none() {
        if claim["status"]["phase"] != "Pending" {
            let why = "waiting for first consumer to be created before binding";
            changes.push(tell(claim, CONTROLLER, "WaitForFirstConsumer", why.into()));
        }
        return pending(changes, None);
    }
    match row.due {
        None => {
            pending(changes, None);
            let provisioner = class["provisioner"].as_str().unwrap_or_default();
            let why = format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
            );
            changes.push(tell(claim, CONTROLLER, "ExternalProvisioning", why));
            let wait = spread(meta(claim, "uid"), MAKE_MS.0, MAKE_MS.1);
            changes.push(due_change(claims, claim, Some(scene.pace.after(now, wait))));
        }
        Some(due) if due <= now => {
            let name = format!("pvc-{}", meta(claim, "uid"));
            changes.push(make(claim, class, &name, size, placed));
            changes.push(tell(
                claim,
                "csi-provisioner",
                "ProvisioningSucceeded",
                format!("Successfully provisioned volume {name}"),
            ));
            changes.push(bound_claim(claim, &name, size));
        }
        Some(_) => {}
    }
}

/// A volume that somebody made beforehand and that fits.
fn existing<'a>(scene: &'a Scene, claim: &Value) -> Option<&'a Value> {
    let wanted = claim["spec"]["volumeName"].as_str().filter(|name| !name.is_empty());
    let class = claim["spec"]["storageClassName"].as_str().unwrap_or_default();
    let size = quantity::parse(&claim["spec"]["resources"]["requests"]["storage"]);
    scene.objects.rows_of("", "persistentvolumes").map(|row| &row.object).find(|volume| {
        let reference = &volume["spec"]["claimRef"];
        let free = reference.is_null()
            || (reference["name"] == meta(claim, "name")
                && reference["namespace"] == meta(claim, "namespace")
                && volume["status"]["phase"] != "Bound");
        let same_class = volume["spec"]["storageClassName"].as_str().unwrap_or_default() == class;
        let named = wanted.is_none_or(|name| meta(volume, "name") == name);
        free && same_class
            && named
            && !is_leaving(volume)
            && quantity::parse(&volume["spec"]["capacity"]["storage"]) >= size
    })
}

fn reference(claim: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": meta(claim, "name"),
           "namespace": meta(claim, "namespace"), "uid": meta(claim, "uid")})
}

fn bound_claim(claim: &Value, volume: &str, size: &Value) -> Change {
    let mut object = claim.clone();
    object["spec"]["volumeName"] = json!(volume);
    let notes = &mut object["metadata"]["annotations"];
    if !notes.is_object() {
        *notes = json!({});
    }
    notes["pv.kubernetes.io/bind-completed"] = json!("yes");
    notes["pv.kubernetes.io/bound-by-controller"] = json!("yes");
    object["status"] =
        json!({"phase": "Bound", "accessModes": claim["spec"]["accessModes"], "capacity": {"storage": size}});
    Change::Set { resource: kind("", "persistentvolumeclaims"), object, due: None }
}

fn make(claim: &Value, class: &Value, name: &str, size: &Value, node: Option<&str>) -> Change {
    let mut body = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": class["provisioner"]},
                     "finalizers": ["kubernetes.io/pv-protection"]},
        "spec": {
            "accessModes": claim["spec"]["accessModes"], "capacity": {"storage": size}, "claimRef": reference(claim),
            "persistentVolumeReclaimPolicy": class["reclaimPolicy"], "storageClassName": meta(class, "name"),
            "volumeMode": claim["spec"].get("volumeMode").cloned().unwrap_or_else(|| json!("Filesystem")),
            "csi": {"driver": class["provisioner"], "fsType": "ext4", "volumeHandle": meta(claim, "uid")},
        },
    });
    if let Some(node) = node {
        body["metadata"]["annotations"][SELECTED] = json!(node);
    }
    Change::Create { resource: kind("", "persistentvolumes"), namespace: String::new(), body }
}

/// A claim that asks for more gets it, where its class allows that.
fn grow(scene: &Scene, row: &Stored, changes: &mut Vec<Change>) {
    let claim = &row.object;
    let wanted = &claim["spec"]["resources"]["requests"]["storage"];
    let has = &claim["status"]["capacity"]["storage"];
    if quantity::parse(wanted) <= quantity::parse(has)
        || class_of(scene, claim).is_none_or(|class| class["allowVolumeExpansion"] != true)
    {
        return;
    }
    let claims = kind("", "persistentvolumeclaims");
    match row.due {
        Some(due) if due <= scene.now => {
            let name = claim["spec"]["volumeName"].as_str().unwrap_or_default();
            if let Some(volume) = scene.objects.peek("", "persistentvolumes", "", name) {
                let mut larger = volume.clone();
                larger["spec"]["capacity"]["storage"] = wanted.clone();
                changes.push(Change::Set { resource: kind("", "persistentvolumes"), object: larger, due: None });
            }
            let mut object = claim.clone();
            object["status"]["capacity"]["storage"] = wanted.clone();
            changes.push(Change::Set { resource: claims, object, due: None });
            changes.push(tell(
                claim,
                "csi-resizer",
                "FileSystemResizeSuccessful",
                "MountVolume.NodeExpandVolume succeeded for volume".into(),
            ));
        }
        Some(_) => {}
        None => {
            let wait = spread(meta(claim, "uid"), MAKE_MS.0, MAKE_MS.1);
            changes.push(tell(claim, "csi-resizer", "Resizing", "External resizer is resizing volume".into()));
            changes.push(due_change(claims, claim, Some(scene.pace.after(scene.now, wait))));
        }
    }
}

/// A claim that is deleted stays while a pod uses it.
fn release(scene: &Scene, claim: &Value, changes: &mut Vec<Change>) {
    let used = users(scene, claim).any(|pod| !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")));
    if used {
        return;
    }
    let mut object = claim.clone();
    if let Some(Value::Array(list)) = object["metadata"].get_mut("finalizers") {
        list.retain(|name| name != PROTECTION);
    }
    let claims = kind("", "persistentvolumeclaims");
    if no_finalizers(&object) {
        let (namespace, name) = (meta(claim, "namespace").to_owned(), meta(claim, "name").to_owned());
        changes.push(Change::Forget { resource: claims, namespace, name });
    } else if object != *claim {
        changes.push(Change::Set { resource: claims, object, due: None });
    }
}

fn volume(scene: &Scene, row: &Stored, changes: &mut Vec<Change>) {
    let (volumes, volume) = (kind("", "persistentvolumes"), &row.object);
    let reference = &volume["spec"]["claimRef"];
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let claim = scene.objects.peek("", "persistentvolumeclaims", text("namespace"), text("name"));
    let claim = claim.filter(|claim| text("uid").is_empty() || meta(claim, "uid") == text("uid"));
    let phase = match (reference.is_null(), claim) {
        (true, _) => "Available",
        (false, Some(claim))
            if claim["status"]["phase"] == "Bound" && claim["spec"]["volumeName"] == meta(volume, "name") =>
        {
            "Bound"
        }
        (false, Some(_)) => "Available",
        (false, None) if text("uid").is_empty() => "Available",
        (false, None) => "Released",
    };
    let gone = phase == "Released" && volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete";
    if gone || (is_leaving(volume) && phase != "Bound") {
        let name = meta(volume, "name").to_owned();
        changes.push(Change::Forget { resource: volumes, namespace: String::new(), name });
        return;
    }
    if volume["status"]["phase"] != phase {
        changes.extend(set_status(volumes, row, json!({"phase": phase}), None));
    }
}

/// Why a pod's claims keep it from being placed anywhere.
pub fn not_schedulable(scene: &Scene, pod: &Value) -> Option<String> {
    for name in claims_of(pod) {
        let Some(claim) = scene.objects.peek("", "persistentvolumeclaims", meta(pod, "namespace"), name) else {
            return Some(format!("persistentvolumeclaim \"{name}\" not found"));
        };
        if is_leaving(claim) {
            return Some(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        let later = class_of(scene, claim).is_some_and(waits_for_consumer);
        if claim["status"]["phase"] != "Bound" && !later {
            return Some("pod has unbound immediate PersistentVolumeClaims".into());
        }
    }
    None
}

/// A volume in another zone, or on another machine, keeps a pod from a node.
pub fn wrong_node(scene: &Scene, pod: &Value, node: &Value) -> Option<&'static str> {
    for name in claims_of(pod) {
        let claim = scene.objects.peek("", "persistentvolumeclaims", meta(pod, "namespace"), name)?;
        let volume = claim["spec"]["volumeName"].as_str()?;
        let volume = scene.objects.peek("", "persistentvolumes", "", volume)?;
        let terms = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"].clone();
        let spec = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
        if terms.is_array() && !super::placement::matches_node_affinity(&spec, node) {
            return Some("node(s) had volume node affinity conflict");
        }
    }
    None
}
