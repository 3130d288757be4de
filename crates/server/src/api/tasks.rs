//! The service Tasks: what is being done and by whom.

use super::arguments::{check_text, invalid_argument};
use super::messages::{task, time};
use super::{ServerState, page};
use crate::access::{Principal, Role, principal};
use crate::fault::{Code, Fault};
use crate::pb::{self, tasks_server::Tasks};
use berth_store::{AuditNote, Task, TaskId, TaskOp, TaskQuery, TaskState};
use std::collections::HashSet;
use std::sync::Arc;
use tonic::{Request, Response, Status};

pub struct Service(pub Arc<ServerState>);

impl Service {
    /// A task that the caller may see. What is outside their scope is not there.
    async fn find(&self, caller: &Principal, given: &str) -> Result<Task, Fault> {
        check_text("id", given)?;
        let absent = || Fault::new(Code::NotFound, "there is no such task").help("those that there are:   berth tasks");
        let found = self.0.control.task(&TaskId(given.to_owned())).await?.ok_or_else(absent)?;
        if visible(caller, &found) { Ok(found) } else { Err(absent()) }
    }
}

/// A task is visible where all of what it is about is.
fn visible(caller: &Principal, task: &Task) -> bool {
    let mut about = task.resource.iter().chain(&task.resources).peekable();
    match about.peek() {
        Some(_) => about.all(|id| caller.may_see(id)),
        None => caller.is_everywhere() || (caller.env.is_empty() && caller.org == task.org),
    }
}

#[tonic::async_trait]
impl Tasks for Service {
    async fn list(&self, request: Request<pb::ListTasksRequest>) -> Result<Response<pb::ListTasksResponse>, Status> {
        let caller = principal(&request)?;
        let pb::ListTasksRequest { state, op, kind, name, org, env, account, page_size, page_token } =
            request.into_inner();
        for (field, text) in [("kind", &kind), ("name", &name), ("org", &org), ("env", &env), ("account", &account)] {
            check_text(field, text)?;
        }
        let limit = page::size(page_size)?;
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        let (open, state) = match state.as_str() {
            "" => (false, None),
            "open" => (true, None),
            text => {
                let why = "it is one of queued, running, done, failed, cancelled, open";
                (false, Some(TaskState::parse(text).ok_or_else(|| invalid_argument("state", why))?))
            }
        };
        let op = match op.as_str() {
            "" => None,
            text => {
                let why = "it is one of apply, delete, drift, plan, import";
                Some(TaskOp::parse(text).ok_or_else(|| invalid_argument("op", why))?)
            }
        };
        let before: Option<String> = page::position(&page_token)?;
        let Some((org, env)) = caller.narrow(given(org), given(env)) else {
            return Ok(Response::new(pb::ListTasksResponse::default()));
        };
        let kind = given(kind).map(|kind| berth_model::registry().find(&kind).map_or(kind, |found| found.name.clone()));
        let query = TaskQuery {
            state,
            open,
            op,
            kind,
            name: given(name),
            org,
            env,
            account: given(account),
            before: before.map(TaskId),
            limit,
        };
        let found = self.0.control.tasks(&query).await.map_err(Fault::from)?;
        let full = found.len() == limit as usize;
        let next_page_token = found.last().filter(|_| full).map(|last| page::token(&last.id.0)).unwrap_or_default();
        let tasks =
            found.iter().filter(|one| visible(&caller, one)).map(|one| task(one, self.0.is_sandbox())).collect();
        Ok(Response::new(pb::ListTasksResponse { tasks, next_page_token }))
    }

    async fn get(&self, request: Request<pb::GetTaskRequest>) -> Result<Response<pb::Task>, Status> {
        let caller = principal(&request)?;
        let found = self.find(&caller, &request.into_inner().id).await?;
        Ok(Response::new(task(&found, self.0.is_sandbox())))
    }

    async fn cancel(&self, request: Request<pb::CancelTaskRequest>) -> Result<Response<pb::Task>, Status> {
        let caller = principal(&request)?;
        let found = self.find(&caller, &request.into_inner().id).await?;
        for about in found.resource.iter().chain(&found.resources) {
            caller.require(Role::Operator, about)?;
        }
        let note = AuditNote {
            action: "cancel".into(),
            target: format!("task {}", found.id),
            detail: found.resource.as_ref().map(|about| format!("{} {about}", found.op.as_str())).unwrap_or_default(),
            outcome: "ok".into(),
        };
        let server = &self.0;
        server.control.cancel(&found.id, &caller.actor, note, server.now()).await.map_err(Fault::from)?;
        let found = self.find(&caller, &found.id.0).await?;
        Ok(Response::new(task(&found, self.0.is_sandbox())))
    }

    async fn logs(&self, request: Request<pb::TaskLogsRequest>) -> Result<Response<pb::TaskLogsResponse>, Status> {
        let caller = principal(&request)?;
        let pb::TaskLogsRequest { id, page_size, page_token } = request.into_inner();
        let limit = page::size(page_size)?;
        let after: Option<i64> = page::position(&page_token)?;
        let found = self.find(&caller, &id).await?;
        let after = after.unwrap_or_default().max(0);
        let lines = self.0.control.task_log(&found.id, after, limit).await.map_err(Fault::from)?;
        // A task that is open may still write: its log has a next page always.
        let last = lines.last().map(|(number, ..)| *number);
        let more = lines.len() == limit as usize || found.state.is_open();
        let next_page_token = if more { page::token(&last.unwrap_or(after)) } else { String::new() };
        let lines = lines.into_iter().map(|(_, at, text)| pb::LogLine { at: time(at), text }).collect();
        Ok(Response::new(pb::TaskLogsResponse { lines, next_page_token }))
    }

    async fn workers(
        &self,
        request: Request<pb::ListWorkersRequest>,
    ) -> Result<Response<pb::ListWorkersResponse>, Status> {
        let caller = principal(&request)?;
        let workers = self.0.control.workers().await.map_err(Fault::from)?;
        // Who is confined sees that there are workers, and the names of those that worked for them: another org's may tell
        // whose it is.
        let met = match caller.is_everywhere() {
            true => None,
            false => {
                let (org, env, limit) = (caller.scope_org(), caller.scope_env(), page::PAGE_MAX);
                let query = TaskQuery { org, env, limit, ..TaskQuery::default() };
                let tasks = self.0.control.tasks(&query).await.map_err(Fault::from)?;
                let seen = tasks.into_iter().filter(|one| visible(&caller, one)).map(|one| one.worker);
                Some(seen.collect::<HashSet<String>>())
            }
        };
        let workers = workers
            .into_iter()
            .map(|worker| pb::Worker {
                name: match &met {
                    Some(met) if !met.contains(&worker.name) => String::new(),
                    _ => worker.name,
                },
                services: worker.services,
                capacity: worker.capacity,
                running: worker.running,
                version: worker.version,
                seen_at: time(worker.seen_at),
                draining: worker.draining,
                sandbox: self.0.is_sandbox(),
            })
            .collect();
        Ok(Response::new(pb::ListWorkersResponse { workers }))
    }

    async fn accounts(
        &self,
        request: Request<pb::ListAccountsRequest>,
    ) -> Result<Response<pb::ListAccountsResponse>, Status> {
        let caller = principal(&request)?;
        let loads = self.0.control.loads().await.map_err(Fault::from)?;
        let mine = |load: &berth_store::AccountLoad| {
            // A caller who is confined to an env sees the accounts of that env.
            let account = berth_clouds::accounts::account_id(&load.account);
            let env = account.map(|account| account.env).unwrap_or_default();
            caller.covers(&load.org, if env.is_empty() { &caller.env } else { &env })
        };
        let accounts = loads
            .into_iter()
            .filter(mine)
            .map(|load| pb::AccountLoad {
                account: load.account,
                org: load.org,
                queued: load.queued,
                running: load.running,
                limit: load.limit,
            })
            .collect();
        Ok(Response::new(pb::ListAccountsResponse { accounts }))
    }
}
