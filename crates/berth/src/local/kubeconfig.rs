//! A cluster's kubeconfig: a new one from the cloud, or the one that the state keeps. Both are in base64.

use super::carry_out::trouble_failures;
use super::workspace::Workspace;
use crate::backend::Access;
use crate::failure::Failure;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use berth_engine::handler::{Catalog, Class, Trouble};
use berth_engine::identity::fresh_secrets;
use berth_store::StoredResource;
use secrecy::{ExposeSecret, SecretString};

/// Decoded.
pub async fn read(workspace: &Workspace, stored: &StoredResource, name: &str) -> Result<SecretString, Failure> {
    let id = &stored.id;
    let damaged = || Failure::new(format!("the kubeconfig that the state keeps of {id} is damaged"));
    let secret = match fresh(workspace, stored, name).await? {
        Some(fresh) => fresh,
        None => workspace.store.status_secrets(id).await?.remove(name).ok_or_else(damaged)?,
    };
    let bytes = STANDARD.decode(secret.expose_secret().trim()).map_err(|_| damaged())?;
    let mut text = String::from_utf8(bytes).map_err(|_| damaged())?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(SecretString::from(text))
}

/// From the cloud, where it issues them for a limited time. The one in the state is used when the cloud cannot be asked.
async fn fresh(workspace: &Workspace, stored: &StoredResource, name: &str) -> Result<Option<SecretString>, Failure> {
    let Ok(workspace) = Workspace::open(&workspace.args, Access::Clouds).await else { return Ok(None) };
    let asked = async {
        let refused = |failure: Failure| Trouble::refused(failure.to_string());
        let clouds = workspace.clouds().await.map_err(refused)?;
        let units = workspace.store.units_of(&stored.id).await.map_err(|error| refused(error.into()))?;
        for unit in units.iter().filter(|unit| !unit.deposed) {
            let provider = clouds.provider(&unit.account).await?;
            if let Some(mut secrets) = fresh_secrets(&*provider, unit).await? {
                return Ok(secrets.remove(name));
            }
        }
        Ok::<_, Trouble>(None)
    };
    let fresh = asked.await;
    workspace.close().await;
    match fresh {
        Err(trouble) if trouble.class == Class::OtherAccount => {
            Err(trouble_failures(&[(stored.id.clone(), trouble)], &|_| None).remove(0))
        }
        Err(trouble) => {
            tracing::info!(%trouble, "the kubeconfig is the one kept in the state");
            Ok(None)
        }
        Ok(fresh) => Ok(fresh),
    }
}
