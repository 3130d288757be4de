//! The drift check of a server, which reads the clouds and keeps what it found.

use super::{CLOUDS_WITHIN, Remote, messages};
use crate::backend::{DriftCheck, Selection, lookup};
use crate::failure::Failure;
use crate::view::drift_view::Findings;
use berth_engine::Drifted;
use berth_server::pb;

pub async fn check(remote: &Remote, selection: &Selection) -> Result<Option<DriftCheck>, Failure> {
    let (request, asked) = selected(remote, selection).await?;
    if asked == Some(0) {
        return Ok(None);
    }
    let answer = compare(remote, request).await?;
    let seen = seen(&answer);
    if seen.checked == 0 && seen.troubles.is_empty() {
        return Ok(None);
    }
    let mut findings = Findings::new();
    for one in &answer.drifted {
        findings.insert(messages::id_of(one.id.as_ref()), one.differences.iter().map(messages::finding).collect());
    }
    Ok(Some(DriftCheck { findings, asked: asked.unwrap_or(seen.checked), calls: answer.calls, seen }))
}

/// What a server is to compare, and how many resources that is, where it is known.
pub async fn selected(remote: &Remote, selection: &Selection) -> Result<(pb::DriftRequest, Option<usize>), Failure> {
    let Selection { addresses, scope } = selection;
    let mut request = pb::DriftRequest {
        org: scope.org.clone().unwrap_or_default(),
        env: scope.env.clone().unwrap_or_default(),
        ..Default::default()
    };
    if addresses.is_empty() {
        return Ok((request, None));
    }
    let found = lookup::find(remote, addresses, scope).await?;
    request.ids = found.iter().map(|stored| messages::to_id(&stored.id)).collect();
    let count = request.ids.len();
    Ok((request, Some(count)))
}

pub async fn compare(remote: &Remote, request: pb::DriftRequest) -> Result<pb::DriftResponse, Failure> {
    let mut request = tonic::Request::new(request);
    request.set_timeout(CLOUDS_WITHIN);
    let mut resources = remote.client.resources();
    let answer = remote.by_worker(resources.drift(request)).await;
    Ok(answer.map_err(|status| remote.fail(&status))?.into_inner())
}

/// How many were compared, and what could not be.
pub fn seen(answer: &pb::DriftResponse) -> Drifted {
    let troubles = answer.problems.iter().map(messages::resource_trouble).collect();
    let counts = answer.much_gone.iter().map(messages::much_gone).collect();
    Drifted { checked: answer.checked as usize, troubles, counts, ..Drifted::default() }
}
