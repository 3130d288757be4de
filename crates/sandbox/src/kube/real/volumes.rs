//! Claims of the cloud's storage class get a volume; a volume whose claim is gone is deleted; one that is asked to grow grows.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Api, Change};
use super::error::RealError;
use super::settled;
use crate::world::ClusterView;

const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Set by the controllers on a claim that is to get a volume now, with what is to make it.
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";

pub async fn sync(api: &Api, view: &ClusterView, moment: Duration) -> Result<(), RealError> {
    let driver = view.storage_class.1;
    let volumes = api.list("/api/v1/persistentvolumes").await?;
    for claim in api.list("/api/v1/persistentvolumeclaims").await? {
        match claim["status"]["phase"].as_str() {
            Some("Pending") if wants_volume(&claim, driver) && settled(&claim, moment) => {
                let name = volume_name(&claim);
                if !volumes.iter().any(|volume| volume["metadata"]["name"] == name.as_str()) {
                    api.change(Change::Create, "/api/v1/persistentvolumes", &volume(view, &claim, &name)).await?;
                }
            }
            Some("Bound") => grow(api, &claim, &volumes, driver).await?,
            _ => {}
        }
    }
    let released = volumes.iter().filter(|volume| ours(volume, driver) && volume["status"]["phase"] == "Released");
    for volume in released.filter(|volume| volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete") {
        let name = volume["metadata"]["name"].as_str().unwrap_or_default();
        api.delete(&format!("/api/v1/persistentvolumes/{name}")).await?;
    }
    Ok(())
}

fn ours(volume: &Value, driver: &str) -> bool {
    volume["metadata"]["annotations"][PROVISIONED_BY] == driver
}

/// The controllers ask by the annotation, which they set at once or, where the class waits for the first consumer, when a pod
/// was placed.
fn wants_volume(claim: &Value, driver: &str) -> bool {
    let asked = claim["metadata"]["annotations"][PROVISIONER] == driver;
    asked && claim["spec"]["volumeName"].is_null() && claim["metadata"]["deletionTimestamp"].is_null()
}

fn volume_name(claim: &Value) -> String {
    format!("pvc-{}", claim["metadata"]["uid"].as_str().unwrap_or_default())
}

fn volume(view: &ClusterView, claim: &Value, name: &str) -> Value {
    let (spec, meta) = (&claim["spec"], &claim["metadata"]);
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: view.storage_class.1}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"], "volumeMode": spec["volumeMode"],
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": spec["storageClassName"],
            "csi": {"driver": view.storage_class.1, "volumeHandle": meta["uid"], "fsType": "ext4"},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta["namespace"],
                         "name": meta["name"], "uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
        },
    })
}

async fn grow(api: &Api, claim: &Value, volumes: &[Value], driver: &str) -> Result<(), RealError> {
    let wanted = &claim["spec"]["resources"]["requests"]["storage"];
    let Some(volume) = volumes.iter().find(|volume| volume["metadata"]["name"] == claim["spec"]["volumeName"]) else {
        return Ok(());
    };
    // The API server lets a request of a bound claim only grow.
    if !ours(volume, driver) || wanted == &claim["status"]["capacity"]["storage"] {
        return Ok(());
    }
    let name = volume["metadata"]["name"].as_str().unwrap_or_default();
    let capacity = json!({"capacity": {"storage": wanted}});
    api.change(Change::Merge, &format!("/api/v1/persistentvolumes/{name}"), &json!({"spec": capacity})).await?;
    let meta = |field: &str| claim["metadata"][field].as_str().unwrap_or_default();
    let path = format!("/api/v1/namespaces/{}/persistentvolumeclaims/{}/status", meta("namespace"), meta("name"));
    api.change(Change::Merge, &path, &json!({"status": capacity})).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_made_when_the_controllers_ask_for_it_and_once() {
        let mut claim = json!({"metadata": {"uid": "u1", "annotations": {}}, "spec": {}});
        assert!(!wants_volume(&claim, "csi.example.com"), "it waits for its first consumer");
        claim["metadata"]["annotations"][PROVISIONER] = json!("csi.example.com");
        assert!(wants_volume(&claim, "csi.example.com"));
        assert!(!wants_volume(&claim, "other"));
        claim["spec"]["volumeName"] = json!("pvc-u1");
        assert!(!wants_volume(&claim, "csi.example.com"));
        assert_eq!(volume_name(&claim), "pvc-u1");
    }
}
