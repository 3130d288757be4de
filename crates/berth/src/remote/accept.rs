//! Accepted drift, declared on a server.

use super::follow::{Goal, Watch, follow};
use super::{Remote, kept_file, messages};
use crate::backend::accept::Accepted;
use crate::failure::Failure;
use berth_engine::Plan;
use berth_server::pb;
use berth_store::StoredResource;
use std::time::Duration;

/// How long a server may take to see that nothing is to be changed.
const DECLARED_WITHIN: Duration = Duration::from_secs(300);

/// Applies manifests with the values that were found. The worker finds nothing to change, and records the resources as ready.
pub async fn accept(remote: &Remote, accepted: Vec<Accepted<'_>>) -> Result<(), Failure> {
    let since = remote.last_event().await?;
    let mut goals = Vec::new();
    for one in accepted {
        let mut stored = StoredResource::shown(one.stored.id.clone(), one.stored.api_version.clone(), &one.json);
        stored.source = one.stored.source.clone();
        let base = pb::Base { id: Some(messages::to_id(&stored.id)), generation: one.stored.generation };
        let request = pb::ApplyRequest { files: vec![kept_file(&stored)?], bases: vec![base], ..Default::default() };
        let answer = remote.client.resources().apply(request).await.map_err(|s| remote.fail(&s))?.into_inner();
        for applied in answer.resources {
            let id = messages::id_of(applied.id.as_ref());
            goals.push(Goal { id, gone: false, generation: applied.generation, before: None });
        }
    }
    let watch = Watch { since, timeout: DECLARED_WITHIN, approvals: false };
    let followed = follow(remote, goals, &Plan::default(), watch).await?;
    match followed.report.failed.into_iter().next() {
        Some((id, trouble)) => Err(Failure::new(format!("{id}: {trouble}"))),
        None => Ok(()),
    }
}
