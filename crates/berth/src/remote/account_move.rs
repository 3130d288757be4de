//! Objects moved to another account by a server, whose workers look for them.

use super::{CLOUDS_WITHIN, Remote, messages};
use crate::backend::{MoveJob, Moved, MovedUnit};
use crate::failure::Failure;
use berth_engine::unit::Identity;
use berth_server::pb;

pub async fn move_account(remote: &Remote, job: &MoveJob<'_>) -> Result<Moved, Failure> {
    let request = |dry_run| {
        let (account, forget_missing) = (job.account.to_owned(), job.forget_missing);
        let mut request = tonic::Request::new(pb::MoveAccountRequest { account, forget_missing, dry_run });
        request.set_timeout(CLOUDS_WITHIN);
        let mut resources = remote.client.resources();
        async move {
            let answer = remote.by_worker(resources.move_account(request)).await;
            Ok::<_, Failure>(answer.map_err(|status| remote.fail(&status))?.into_inner())
        }
    };
    let read = |answer: &pb::MoveAccountResponse| {
        let who = Identity::from_text(answer.identity.clone());
        let who = who.ok_or_else(|| Failure::new("the server does not say which account the credentials belong to"))?;
        Ok::<_, Failure>((who, answer.units.iter().map(moved).collect::<Vec<_>>()))
    };
    let (who, would) = read(&request(true).await?)?;
    if !(job.ask)(&who, &would)? {
        return Ok(None);
    }
    let answer = request(false).await?;
    let (who, did) = read(&answer)?;
    if !answer.done {
        return Err(
            Failure::new("what is managed changed meanwhile; nothing was moved").help("run the same command again")
        );
    }
    Ok(Some((who, did)))
}

fn moved(unit: &pb::MovedUnit) -> MovedUnit {
    MovedUnit {
        resource: messages::id_of(unit.resource.as_ref()),
        unit: unit.unit.clone(),
        id: unit.object_id.clone(),
        from: unit.from.clone(),
        becomes: unit.becomes.clone(),
    }
}
