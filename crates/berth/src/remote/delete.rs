//! Resources deleted by a server: it deletes their objects in order, and then forgets the resources.

use super::carry_out::{Job, carry_out};
use super::{PAGE, Remote};
use crate::args::Address;
use crate::backend::{ChangeOptions, Ended};
use crate::failure::Failure;
use berth_model::ResourceId;

pub async fn delete(remote: &Remote, ids: Vec<ResourceId>, options: &ChangeOptions<'_>) -> Result<Ended, Failure> {
    let count = ids.len();
    let job = Job { files: Vec::new(), delete: ids, loaded: None, promise: None, options };
    let ended = carry_out(remote, job).await?;
    Ok(Ended { count, ..ended })
}

pub async fn was_deleted(remote: &Remote, address: &Address) -> Result<bool, Failure> {
    let Some(name) = &address.name else { return Ok(false) };
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    let (org, env) = (part(&address.org), part(&address.env));
    let id = ResourceId { kind: address.kind.clone(), name: name.clone(), org, env };
    let lines = remote.history(&id, PAGE).await?;
    Ok(lines.iter().any(|line| line.change.as_ref().is_some_and(|change| change.op == "delete")))
}
