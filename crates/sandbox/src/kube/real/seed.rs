//! What the cloud puts into a cluster that has just come up.

use serde_json::{Value, json};

use super::client::{Api, Change};
use super::error::RealError;
use crate::world::ClusterView;

/// Objects that are there already stay as they are.
pub async fn seed(api: &Api, view: &ClusterView) -> Result<(), RealError> {
    let (class, driver) = view.storage_class;
    let storage = "/apis/storage.k8s.io/v1";
    let storage_class = json!({
        "metadata": {"name": class, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": driver, "allowVolumeExpansion": true,
    });
    make(api, &format!("{storage}/storageclasses"), &storage_class).await?;
    // Nothing here attaches volumes to machines.
    let csi_driver = json!({"metadata": {"name": driver}, "spec": {"attachRequired": false, "podInfoOnMount": true}});
    make(api, &format!("{storage}/csidrivers"), &csi_driver).await
}

async fn make(api: &Api, path: &str, object: &Value) -> Result<(), RealError> {
    match api.change(Change::Create, path, object).await {
        Err(RealError::Refused { status: 409, .. }) => Ok(()),
        outcome => outcome.map(drop),
    }
}
