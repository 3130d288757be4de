//! SQS: queues and their messages.

mod attributes;
mod messages;
mod queues;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Store;
use super::ask::{Ask, Tags};
use super::errors::{Answer, AwsError};
use super::tables::object;
use super::tagging::TaggedService;
use super::wire::{Action, Protocol, Service};
use crate::clock::SimTime;
pub use messages::deliver;

pub static SERVICE: Service = Service {
    scope: "sqs",
    protocol: Protocol::Json { target: "AmazonSQS", content_type: "application/x-amz-json-1.0" },
    actions: &[
        Action::change("CreateQueue", queues::create),
        Action::change("DeleteQueue", queues::delete),
        Action::read("GetQueueUrl", queues::get_url),
        Action::read("ListQueues", queues::list),
        Action::read("ListDeadLetterSourceQueues", queues::dead_letter_sources),
        Action::read("GetQueueAttributes", attributes::get),
        Action::change("SetQueueAttributes", attributes::set),
        Action::change("TagQueue", queues::tag),
        Action::change("UntagQueue", queues::untag),
        Action::read("ListQueueTags", queues::list_tags),
        Action::change("SendMessage", messages::send),
        Action::change("SendMessageBatch", messages::send_batch),
        Action::change("ReceiveMessage", messages::receive),
        Action::change("DeleteMessage", messages::delete),
        Action::change("DeleteMessageBatch", messages::delete_batch),
        Action::change("ChangeMessageVisibility", messages::change_visibility),
        Action::change("ChangeMessageVisibilityBatch", messages::change_visibility_batch),
        Action::change("PurgeQueue", messages::purge),
    ],
};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Queue {
    /// ARN.
    id: String,
    name: String,
    region: String,
    /// Those that were set; the others have their usual values.
    attributes: BTreeMap<String, String>,
    tags: Tags,
    created: SimTime,
    modified: SimTime,
}

object!(
    Queue,
    "aws.sqs_queue",
    id,
    |this| vec![format!("region:{}", this.region)],
    json!({"name": this.name, "region": this.region})
);

impl Queue {
    fn fifo(&self) -> bool {
        self.name.ends_with(".fifo")
    }

    /// An attribute's value as a number of seconds.
    fn seconds(&self, name: &str) -> i64 {
        attributes::value(self, name).and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

super::tables::tables! { queues: Queue, messages: messages::Message }

/// What clients of the older protocol know it as goes into a header.
fn error(code: &'static str, query: &str, message: impl Into<String>) -> Box<AwsError> {
    AwsError::new(400, format!("com.amazonaws.sqs#{code}"), message).details(json!({"query_error": query}))
}

fn no_queue() -> Box<AwsError> {
    error("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.")
}

fn invalid(message: impl Into<String>) -> Box<AwsError> {
    error("InvalidParameterValueException", "InvalidParameterValue", message)
}

fn missing(name: &str) -> Box<AwsError> {
    error(
        "MissingRequiredParameterException",
        "MissingParameter",
        format!("The request must contain the parameter {name}."),
    )
}

fn arn(ask: &Ask, name: &str) -> String {
    ask.arn("sqs", name)
}

fn url(ask: &Ask, name: &str) -> String {
    format!("{}/{}/{name}", ask.base_url(), ask.account)
}

/// The queue that the input's URL means, by whichever host it was written.
fn find<'t>(ask: &'t Ask<'_, '_>) -> Answer<&'t Queue> {
    let url = ask.input.text("QueueUrl").ok_or_else(|| missing("QueueUrl"))?;
    let name = url.rsplit('/').next().unwrap_or_default();
    ask.state.store.sqs.queues.get(&arn(ask, name)).ok_or_else(no_queue)
}

pub fn policy_of(store: &Store, arn: &str) -> Option<String> {
    store.sqs.queues.get(arn)?.attributes.get("Policy").cloned()
}

pub struct SqsTags;

impl TaggedService for SqsTags {
    fn list(&self, store: &Store, region: &str, _: &str) -> Vec<(String, Tags)> {
        let queues = store.sqs.queues.find(&format!("region:{region}"));
        queues.map(|queue| (queue.id.clone(), queue.tags.clone())).collect()
    }

    fn change(&self, store: &mut Store, arn: &str, change: &dyn Fn(&mut Tags)) -> bool {
        store.sqs.queues.update(arn, |queue| change(&mut queue.tags)).is_some()
    }
}
