//! CloudWatch Logs: groups, streams and their events.

mod groups;
mod streams;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Store;
use super::ask::{Ask, Tags};
use super::errors::{Answer, AwsError, fail};
use super::tables::object;
use super::tagging::TaggedService;
use super::wire::{Action, Protocol, Service};
use crate::clock::SimTime;

pub static SERVICE: Service = Service {
    scope: "logs",
    protocol: Protocol::Json { target: "Logs_20140328", content_type: "application/x-amz-json-1.1" },
    actions: &[
        Action::change("CreateLogGroup", groups::create),
        Action::change("DeleteLogGroup", groups::delete),
        Action::read("DescribeLogGroups", groups::describe),
        Action::change("PutRetentionPolicy", groups::put_retention),
        Action::change("DeleteRetentionPolicy", groups::delete_retention),
        Action::change("AssociateKmsKey", groups::associate_key),
        Action::change("DisassociateKmsKey", groups::disassociate_key),
        Action::change("TagResource", groups::tag),
        Action::change("UntagResource", groups::untag),
        Action::read("ListTagsForResource", groups::list_tags),
        Action::change("TagLogGroup", groups::tag),
        Action::change("UntagLogGroup", groups::untag),
        Action::read("ListTagsLogGroup", groups::list_tags),
        Action::change("CreateLogStream", streams::create),
        Action::change("DeleteLogStream", streams::delete),
        Action::read("DescribeLogStreams", streams::describe),
        Action::change("PutLogEvents", streams::put_events),
        Action::read("GetLogEvents", streams::get_events),
        Action::read("FilterLogEvents", streams::filter_events),
    ],
};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogGroup {
    /// ARN, without what stands for its streams.
    id: String,
    name: String,
    region: String,
    retention_days: Option<i64>,
    key: Option<String>,
    class: String,
    tags: Tags,
    created: SimTime,
}

object!(
    LogGroup,
    "aws.log_group",
    id,
    |this| vec![format!("region:{}", this.region)],
    json!({"name": this.name, "region": this.region})
);

super::tables::tables! { groups: LogGroup, streams: streams::LogStream, batches: streams::Batch }

fn no_group() -> Box<AwsError> {
    AwsError::new(400, "ResourceNotFoundException", "The specified log group does not exist.")
}

fn invalid<T>(message: impl Into<String>) -> Answer<T> {
    fail("InvalidParameterException", message)
}

fn arn(ask: &Ask, name: &str) -> String {
    ask.arn("logs", &format!("log-group:{name}"))
}

/// The group that the input means, by name or by ARN.
fn find<'t>(ask: &'t Ask<'_, '_>) -> Answer<&'t LogGroup> {
    let members = ["logGroupName", "logGroupIdentifier", "resourceArn", "resourceIdentifier"];
    let Some(given) = members.into_iter().find_map(|member| ask.input.text(member)) else {
        return invalid(
            "1 validation error detected: Value null at 'logGroupName' failed to satisfy constraint: Member must not be null",
        );
    };
    let id = match given.starts_with("arn:") {
        true => given.trim_end_matches(":*").to_owned(),
        false => arn(ask, given),
    };
    ask.state.store.logs.groups.get(&id).ok_or_else(no_group)
}

pub struct LogsTags;

impl TaggedService for LogsTags {
    fn list(&self, store: &Store, region: &str, _: &str) -> Vec<(String, Tags)> {
        let groups = store.logs.groups.find(&format!("region:{region}"));
        groups.map(|group| (group.id.clone(), group.tags.clone())).collect()
    }

    fn change(&self, store: &mut Store, arn: &str, change: &dyn Fn(&mut Tags)) -> bool {
        store.logs.groups.update(arn.trim_end_matches(":*"), |group| change(&mut group.tags)).is_some()
    }
}
