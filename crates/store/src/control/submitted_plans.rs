//! The plans that workers hand in, and what was decided about them. Plans that wait at once share their statements.

use super::Control;
use super::completion::{self, TaskInHand, in_hand};
use super::facts::{PATCH_COLUMNS, PatchRow, patch_assignments};
use super::server_writer::{BatchFailure, Operation, only};
use super::tx::Tx;
use super::types::*;
use crate::db::Multi;
use crate::encode::{JSON_BYTES_MAX, check_count, cut};
use crate::error::StoreError;
use async_trait::async_trait;
use berth_engine::ResourceState;
use berth_engine::lifecycle::{Ended, Event};
use jiff::Timestamp;
use serde::Serialize;
use std::collections::HashSet;

static SAVE_PLAN: Multi = Multi::joined(
    concat!("UPDATE resources SET ", patch_assignments!(), ", plan = v.plan FROM {rows} WHERE resources.id = v.id"),
    PATCH_COLUMNS,
    &[("plan", "text")],
);
static ACCEPT: Multi = Multi::new(
    "UPDATE tasks SET accepted = v.steps FROM {rows} WHERE tasks.id = v.task",
    &[("task", "text"), ("steps", "text")],
);

#[derive(Serialize)]
struct PlanPatch<'a> {
    #[serde(flatten)]
    patch: PatchRow,
    plan: &'a str,
}

struct SubmitPlan {
    held: Held,
    plan: SubmittedPlan,
    steps: String,
    decision: PlanDecision,
    now: Timestamp,
}

#[derive(Serialize)]
struct AcceptRow<'a> {
    task: &'a str,
    steps: &'a str,
}

impl SubmitPlan {
    /// The task, if it is one that a plan may be handed in for; nothing where this very plan was accepted before.
    fn check<'t>(&self, found: Option<&'t TaskInHand>) -> Result<Option<&'t TaskInHand>, ControlError> {
        let one = found.filter(|one| completion::is_held(&one.task, self.held.fence, self.now));
        let one = one.ok_or(ControlError::Fenced)?;
        let task = &one.task;
        if task.resource.is_none() || !task.op.mutates() {
            return Err(ControlError::Refused(format!("a {} task changes nothing", task.op.as_str())));
        }
        match one.accepted.is_empty() {
            true => Ok(Some(one)),
            // Said again by a worker that did not hear the answer. Another plan would be one that nobody looked at.
            false if one.accepted == self.steps && self.decision == PlanDecision::Proceed => Ok(None),
            false => Err(ControlError::Refused(format!("task {} has an accepted plan already", task.id))),
        }
    }

    /// The task is over where its plan may not be carried out now.
    async fn end(&self, task: &Task, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let (ended, state, message, end) = match &self.decision {
            PlanDecision::Proceed => return Ok(()),
            PlanDecision::AwaitApproval => {
                (Ended::AwaitsApproval, ResourceState::AwaitingApproval, "its plan waits for approval", TaskState::Done)
            }
            PlanDecision::Hold(why) => {
                (Ended::AwaitsApproval, ResourceState::AwaitingApproval, why.as_str(), TaskState::Done)
            }
            PlanDecision::Block(why) => (Ended::Blocked, ResourceState::Blocked, why.as_str(), TaskState::Failed),
        };
        completion::end(tx, task, end, message, self.now, false).await?;
        completion::after(tx, task, ended, &cut(message.to_owned()), self.now).await?;
        if let Some(id) = &task.resource {
            tx.event(id, state.as_str(), message, &task.id.0, self.now);
        }
        Ok(())
    }
}

#[async_trait]
impl Operation for SubmitPlan {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        only(Self::run_many(&[self], tx).await)
    }

    /// A task that is there twice is looked at once more, with what the first plan made of it.
    async fn run_many(ops: &[&Self], tx: &mut Tx<'_>) -> Result<Vec<Result<(), ControlError>>, BatchFailure> {
        let mut answers: Vec<Result<(), ControlError>> = Vec::with_capacity(ops.len());
        let mut left = ops;
        while !left.is_empty() {
            let mut seen = HashSet::new();
            let round = left.iter().take_while(|op| seen.insert(&op.held.task.0)).count();
            let (now, later) = left.split_at(round);
            answers.extend(submit_round(now, tx).await?);
            left = later;
        }
        Ok(answers)
    }
}

/// Plans of different tasks, in a few statements for all.
async fn submit_round(ops: &[&SubmitPlan], tx: &mut Tx<'_>) -> Result<Vec<Result<(), ControlError>>, StoreError> {
    let found = in_hand(tx, ops.iter().map(|op| &op.held.task)).await?;
    let (mut answers, mut plans, mut accepted, mut over) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for op in ops {
        let one = match op.check(found.get(&op.held.task.0)) {
            Ok(Some(one)) => one,
            Ok(None) => {
                answers.push(Ok(()));
                continue;
            }
            Err(error) => {
                answers.push(Err(error));
                continue;
            }
        };
        for warning in &op.plan.warnings {
            if let Some(id) = &one.task.resource {
                tx.event(id, "PolicyWarning", warning, &one.task.id.0, op.now);
            }
        }
        let submitted = Event::PlanSubmitted { digest: &op.plan.digest };
        let patch = one.resource.as_ref().and_then(|found| found.patched(&submitted, op.now.as_microsecond()));
        plans.extend(patch.map(|patch| PlanPatch { patch, plan: &op.plan.text }));
        match op.decision {
            PlanDecision::Proceed => accepted.push(AcceptRow { task: &one.task.id.0, steps: &op.steps }),
            _ => over.push((op, &one.task)),
        }
        answers.push(Ok(()));
    }
    tx.execute_many(&SAVE_PLAN, &plans).await?;
    tx.execute_many(&ACCEPT, &accepted).await?;
    for (op, task) in over {
        op.end(task, tx).await?;
    }
    Ok(answers)
}

impl Control {
    /// The worker's plan, and what the gate said to it. Unless it may proceed, the task is over.
    pub async fn submit_plan(
        &self,
        held: &Held,
        plan: SubmittedPlan,
        decision: PlanDecision,
        now: Timestamp,
    ) -> Result<(), ControlError> {
        check_count("a plan", plan.text.len(), JSON_BYTES_MAX)?;
        let steps = serde_json::to_string(&plan.steps).map_err(|error| StoreError::Database(error.to_string()))?;
        check_count("a plan's steps", steps.len(), JSON_BYTES_MAX)?;
        self.write(SubmitPlan { held: held.clone(), plan, steps, decision, now }).await
    }
}
