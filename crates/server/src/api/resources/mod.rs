//! The service Resources: what users declare, and what became of it.

mod apply;
mod check;
mod import;
mod moves;
mod reads;
mod uses;
mod work;

use super::ServerState;
use super::arguments::{check_text, invalid_argument, parse_id};
use super::messages;
use crate::access::principal::absent;
use crate::access::{Principal, Role, audit, principal};
use crate::fault::Fault;
use crate::pb::{self, resources_server::Resources};
use crate::policy_cache;
use berth_model::ResourceId;
use berth_store::{ControlMeta, StoredResource};
use std::collections::HashSet;
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// Resources that one cascade takes along.
const CASCADE_MAX: usize = 10_000;

pub struct Service(pub Arc<ServerState>);

impl Service {
    /// A resource that the caller may see. What is outside their scope is not there.
    async fn find(&self, caller: &Principal, id: &ResourceId) -> Result<StoredResource, Fault> {
        caller.see(id)?;
        self.0.control.store().resource(id).await?.ok_or_else(|| absent(id))
    }

    async fn meta(&self, id: &ResourceId) -> Result<Option<ControlMeta>, Fault> {
        Ok(self.0.control.meta(std::slice::from_ref(id)).await?.into_iter().next())
    }

    async fn shown(&self, stored: &StoredResource) -> Result<pb::Resource, Fault> {
        let meta = self.meta(&stored.id).await?;
        Ok(messages::resource(stored, meta.as_ref(), self.0.is_sandbox())?)
    }

    /// It and everything that refers to it, over any number of steps.
    async fn with_children(&self, id: &ResourceId) -> Result<Vec<ResourceId>, Fault> {
        let mut all = vec![id.clone()];
        let mut seen: HashSet<ResourceId> = all.iter().cloned().collect();
        let mut next = 0;
        while next < all.len() {
            for child in self.0.control.children(&all[next]).await? {
                if seen.insert(child.clone()) {
                    all.push(child);
                }
            }
            next += 1;
            if all.len() > CASCADE_MAX {
                let why = format!("more than {CASCADE_MAX} resources would be deleted with {id}");
                return Err(Fault::new(crate::fault::Code::Refused, why).help("delete some of them first"));
            }
        }
        Ok(all)
    }
}

#[tonic::async_trait]
impl Resources for Service {
    async fn apply(&self, request: Request<pb::ApplyRequest>) -> Result<Response<pb::ApplyResponse>, Status> {
        let caller = principal(&request)?;
        Ok(Response::new(apply::apply(&self.0, &caller, request.into_inner()).await?))
    }

    async fn get(&self, request: Request<pb::GetRequest>) -> Result<Response<pb::Resource>, Status> {
        let caller = principal(&request)?;
        let pb::GetRequest { kind, name, org, env } = request.into_inner();
        let stored = self.find(&caller, &parse_id(kind, name, org, env)?).await?;
        Ok(Response::new(self.shown(&stored).await?))
    }

    async fn list(&self, request: Request<pb::ListRequest>) -> Result<Response<pb::ListResponse>, Status> {
        let caller = principal(&request)?;
        Ok(Response::new(reads::list(&self.0, &caller, request.into_inner()).await?))
    }

    async fn delete(&self, request: Request<pb::DeleteRequest>) -> Result<Response<pb::DeleteResponse>, Status> {
        let caller = principal(&request)?;
        let pb::DeleteRequest { kind, name, org, env, cascade } = request.into_inner();
        let id = parse_id(kind, name, org, env)?;
        caller.require(Role::Operator, &id)?;
        self.find(&caller, &id).await?;
        let ids = if cascade { self.with_children(&id).await? } else { vec![id.clone()] };
        for child in &ids {
            // Its name is not theirs to know.
            if !caller.may_see(child) {
                return Err(caller.held_elsewhere(&id).into());
            }
            caller.require(Role::Operator, child)?;
        }
        let note = audit::note("delete", audit::targets(&ids), "");
        let server = &self.0;
        let deleted = server.control.delete(ids.clone(), &caller.actor, note, server.now()).await;
        deleted.map_err(|error| caller.told(error))?;
        if ids.iter().any(policy_cache::is_cached) {
            server.policy_cache.clear();
        }
        Ok(Response::new(pb::DeleteResponse { deleting: ids.iter().map(Into::into).collect() }))
    }

    async fn plan(&self, request: Request<pb::PlanRequest>) -> Result<Response<pb::PlanResponse>, Status> {
        let caller = principal(&request)?;
        Ok(Response::new(work::plan(&self.0, &caller, request.into_inner()).await?))
    }

    async fn approve(&self, request: Request<pb::ApproveRequest>) -> Result<Response<pb::Resource>, Status> {
        let caller = principal(&request)?;
        let pb::ApproveRequest { kind, name, org, env, digest } = request.into_inner();
        check_text("digest", &digest)?;
        if digest.is_empty() {
            return Err(invalid_argument("digest", "it is needed: which plan was looked at").into());
        }
        let id = parse_id(kind, name, org, env)?;
        caller.require(Role::Operator, &id)?;
        self.find(&caller, &id).await?;
        // What it uses elsewhere is approved along with it.
        for used in self.0.control.parents(&id).await.map_err(Fault::from)? {
            if used.kind != "Account" && caller.require(Role::Operator, &used).is_err() {
                let why = format!("{id} uses something that {} may not change", caller.actor.name);
                let fault = Fault::new(crate::fault::Code::Denied, why);
                return Err(fault.help(format!("this token is for {}", caller.scope())).into());
            }
        }
        let note = audit::note("approve", audit::target(&id), format!("plan {digest}"));
        let server = &self.0;
        server.control.approve(&id, &digest, &caller.actor, note, server.now()).await.map_err(Fault::from)?;
        let stored = self.find(&caller, &id).await?;
        Ok(Response::new(self.shown(&stored).await?))
    }

    async fn get_plan(&self, request: Request<pb::GetRequest>) -> Result<Response<pb::PlanResponse>, Status> {
        let caller = principal(&request)?;
        let pb::GetRequest { kind, name, org, env } = request.into_inner();
        let stored = self.find(&caller, &parse_id(kind, name, org, env)?).await?;
        Ok(Response::new(work::last_plan(&self.0, &stored).await?))
    }

    async fn import(&self, request: Request<pb::ImportRequest>) -> Result<Response<pb::ImportResponse>, Status> {
        let caller = principal(&request)?;
        Ok(Response::new(import::import(&self.0, &caller, request.into_inner()).await?))
    }

    async fn outputs(&self, request: Request<pb::OutputsRequest>) -> Result<Response<pb::OutputsResponse>, Status> {
        let caller = principal(&request)?;
        let pb::OutputsRequest { kind, name, org, env, secrets } = request.into_inner();
        let id = parse_id(kind, name, org, env)?;
        let stored = self.find(&caller, &id).await?;
        if secrets.is_empty() {
            let outputs = reads::outputs(&stored, &Default::default());
            return Ok(Response::new(pb::OutputsResponse { outputs: Some(outputs) }));
        }
        caller.require(Role::Operator, &id)?;
        reads::known_secrets(&stored, &secrets)?;
        let found = self.0.control.store().status_secrets(&id).await.map_err(Fault::from)?;
        let asked = found.into_iter().filter(|(name, _)| secrets.contains(name)).collect();
        Ok(Response::new(pb::OutputsResponse { outputs: Some(reads::outputs(&stored, &asked)) }))
    }

    async fn kubeconfig(&self, request: Request<pb::GetRequest>) -> Result<Response<pb::KubeconfigResponse>, Status> {
        let caller = principal(&request)?;
        let pb::GetRequest { kind, name, org, env } = request.into_inner();
        let id = parse_id(kind, name, org, env)?;
        let stored = self.find(&caller, &id).await?;
        caller.require(Role::Operator, &id)?;
        let secret = reads::kubeconfig_name(&stored)?;
        let kubeconfig = reads::kubeconfig(&self.0, &stored, secret).await?;
        Ok(Response::new(pb::KubeconfigResponse { kubeconfig }))
    }

    async fn history(&self, request: Request<pb::HistoryRequest>) -> Result<Response<pb::HistoryResponse>, Status> {
        let caller = principal(&request)?;
        let pb::HistoryRequest { kind, name, org, env, page_size, page_token } = request.into_inner();
        let id = parse_id(kind, name, org, env)?;
        // What is gone has a history, too.
        caller.see(&id)?;
        Ok(Response::new(reads::history(&self.0, &id, page_size, &page_token).await?))
    }

    async fn units(&self, request: Request<pb::GetRequest>) -> Result<Response<pb::UnitsResponse>, Status> {
        let caller = principal(&request)?;
        let pb::GetRequest { kind, name, org, env } = request.into_inner();
        let stored = self.find(&caller, &parse_id(kind, name, org, env)?).await?;
        let units = self.0.control.store().units_of(&stored.id).await.map_err(Fault::from)?;
        Ok(Response::new(pb::UnitsResponse { units: units.iter().map(reads::unit).collect() }))
    }

    async fn drift(&self, request: Request<pb::DriftRequest>) -> Result<Response<pb::DriftResponse>, Status> {
        let caller = principal(&request)?;
        Ok(Response::new(work::drift(&self.0, &caller, request.into_inner()).await?))
    }

    async fn move_account(
        &self,
        request: Request<pb::MoveAccountRequest>,
    ) -> Result<Response<pb::MoveAccountResponse>, Status> {
        let caller = principal(&request)?;
        Ok(Response::new(moves::move_account(&self.0, &caller, request.into_inner()).await?))
    }
}
