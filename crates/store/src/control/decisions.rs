//! What the controller decided about resources that were due.

use super::Control;
use super::facts::{self, Found, PatchRow};
use super::server_writer::Operation;
use super::tasks::{self, TaskRow};
use super::tx::Tx;
use super::types::*;
use crate::encode::{check_count, cut};
use crate::row_writes::RowWrite;
use async_trait::async_trait;
use berth_engine::ResourceState;
use berth_engine::lifecycle::{self, Event};
use berth_model::ResourceId;
use jiff::Timestamp;

const DECISIONS_MAX: usize = 10_000;

enum Step {
    Enqueue(Box<TaskRow>),
    Rest(Option<i64>),
    Settle { state: ResourceState, message: String, until: Option<i64> },
    Forget,
}

struct Choice {
    id: ResourceId,
    generation: i64,
    due_mark: i64,
    step: Step,
}

struct Decide {
    decisions: Vec<Choice>,
    now: Timestamp,
}

#[async_trait]
impl Operation for Decide {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let now = self.now.as_microsecond();
        let found = facts::of_many(tx, self.decisions.iter().map(|one| &one.id)).await?;
        let (mut made, mut patches, mut gone) = (Vec::new(), Vec::with_capacity(found.len()), Vec::new());
        for (n, one) in self.decisions.iter().enumerate() {
            let seen =
                |found: &&Found| (found.facts.generation, found.facts.due_mark) == (one.generation, one.due_mark);
            let Some(found) = found.get(&n).filter(seen) else { continue };
            let decision = match &one.step {
                Step::Enqueue(row) => {
                    made.push(row.as_ref());
                    lifecycle::Decision::Begin
                }
                Step::Rest(until) => lifecycle::Decision::Rest { until: *until },
                Step::Settle { state, message, until } => {
                    lifecycle::Decision::Settle { state: *state, message, until: *until }
                }
                Step::Forget => {
                    if found.facts.deleting {
                        gone.push(&one.id);
                    }
                    continue;
                }
            };
            let Some(patch) = lifecycle::transition(&found.facts, &Event::Decided(decision), now) else { continue };
            if matches!(one.step, Step::Settle { .. }) && found.facts.has_other_status(&patch.facts) {
                tx.event(&one.id, patch.facts.state.as_str(), &patch.facts.message, "", self.now);
            }
            patches.push(PatchRow::new(found, patch));
        }
        facts::write(tx, patches).await?;
        if !made.is_empty() {
            tasks::insert(tx, &made).await?;
        }
        for id in gone {
            facts::wake_references(tx, &[id.into()], now).await?;
            tx.write(&RowWrite::ForgetResource(id.clone()), i64::MAX, "", now).await?;
            tx.event(id, "deleted", "", "", self.now);
        }
        Ok(())
    }
}

impl Control {
    /// Each is carried out unless its resource moved on since it was seen.
    pub async fn decide(&self, decisions: Vec<Decision>, now: Timestamp) -> Result<(), ControlError> {
        check_count("the list of decisions", decisions.len(), DECISIONS_MAX)?;
        if decisions.is_empty() {
            return Ok(());
        }
        let mut steps = Vec::with_capacity(decisions.len());
        for Decision { id, generation, due_mark, what } in decisions {
            let step = match what {
                Decided::Enqueue(task) => Step::Enqueue(Box::new(TaskRow::new(self, &task, now)?)),
                Decided::Rest => Step::Rest(None),
                Decided::RestUntil(until) => Step::Rest(Some(until.as_microsecond())),
                Decided::Settle { state, message } => Step::Settle { state, message: cut(message), until: None },
                Decided::SettleUntil { state, message, until } => {
                    Step::Settle { state, message: cut(message), until: Some(until.as_microsecond()) }
                }
                Decided::Forget => Step::Forget,
            };
            steps.push(Choice { id, generation, due_mark, step });
        }
        self.write(Decide { decisions: steps, now }).await
    }
}
