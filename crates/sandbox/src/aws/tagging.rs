//! The tagging API: objects of all services by their tags.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::ask::{Ask, Tags};
use super::errors::{Answer, AwsError, fail};
use super::wire::{Action, Protocol, Service};
use super::{Store, paging};

pub static SERVICE: Service = Service {
    scope: "tagging",
    protocol: Protocol::Json {
        target: "ResourceGroupsTaggingAPI_20170126",
        content_type: "application/x-amz-json-1.1",
    },
    actions: &[
        Action::read("GetResources", get_resources),
        Action::read("GetTagKeys", get_tag_keys),
        Action::read("GetTagValues", get_tag_values),
        Action::change("TagResources", tag_resources),
        Action::change("UntagResources", untag_resources),
    ],
};

/// A service whose objects have tags.
pub trait TaggedService: Sync {
    /// ARN and tags of every object of a region.
    fn list(&self, store: &Store, region: &str, account: &str) -> Vec<(String, Tags)>;

    /// Changes the tags of one object; `false` where the ARN is none of this service's.
    fn change(&self, store: &mut Store, arn: &str, change: &dyn Fn(&mut Tags)) -> bool;
}

/// IAM's are not among them, as in AWS.
static SERVICES: &[&dyn TaggedService] = &[
    &super::ec2::Ec2Tags,
    &super::eks::EksTags,
    &super::events::EventTags,
    &super::kms::KmsTags,
    &super::logs::LogsTags,
    &super::s3::S3Tags,
    &super::sqs::SqsTags,
];

/// The tags of the object with an ARN.
pub fn tags_of(ask: &Ask, arn: &str) -> Tags {
    let all = SERVICES.iter().flat_map(|service| service.list(ask.state.store, ask.region, ask.account));
    all.into_iter().find(|(own, _)| own == arn).map(|(_, tags)| tags).unwrap_or_default()
}

fn tagged(ask: &Ask) -> Vec<(String, Tags)> {
    let all = SERVICES.iter().flat_map(|service| service.list(ask.state.store, ask.region, ask.account));
    all.filter(|(_, tags)| !tags.is_empty()).collect()
}

/// `ec2:subnet` of `arn:aws:ec2:R:A:subnet/subnet-1`; `sqs` where an ARN has no type.
fn kind(arn: &str) -> (String, String) {
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    let (service, resource) = (parts.get(2).copied().unwrap_or_default(), parts.get(5).copied().unwrap_or_default());
    let kind = match resource.split_once(['/', ':']) {
        Some((kind, _)) if service != "s3" => kind,
        _ => match service {
            "s3" => "bucket",
            "sqs" => "queue",
            _ => "",
        },
    };
    (service.to_owned(), kind.to_owned())
}

fn of_type(arn: &str, filter: &str) -> bool {
    let (service, kind) = kind(arn);
    match filter.split_once(':') {
        Some((wanted, wanted_kind)) => service == wanted && kind == wanted_kind,
        None => service == filter,
    }
}

fn bad_token() -> Box<AwsError> {
    AwsError::new(400, "PaginationTokenExpiredException", "The pagination token is not valid.")
}

fn get_resources(ask: &mut Ask) -> Answer<Value> {
    let max = match ask.input.int("ResourcesPerPage").unwrap_or(100) {
        max @ 1..=100 => max as usize,
        _ => return fail("InvalidParameterException", "ResourcesPerPage must be between 1 and 100"),
    };
    let (types, arns) = (ask.input.texts("ResourceTypeFilters"), ask.input.texts("ResourceARNList"));
    let filters = ask.input.list("TagFilters");
    let fits = |arn: &str, tags: &Tags| {
        let typed = types.is_empty() || types.iter().any(|filter| of_type(arn, filter));
        let named = arns.is_empty() || arns.contains(&arn);
        let tagged = filters.iter().all(|filter| {
            let values = filter.texts("Values");
            let have = filter.text("Key").and_then(|key| tags.get(key));
            have.is_some_and(|have| values.is_empty() || values.contains(&have.as_str()))
        });
        typed && named && tagged
    };
    let rows: Vec<(String, Tags)> = tagged(ask).into_iter().filter(|(arn, tags)| fits(arn, tags)).collect();
    let mark = ask.input.text("PaginationToken");
    let (rows, next) = paging::slice(rows, |(arn, _)| arn.clone(), mark, max, bad_token)?;
    let shown = rows.into_iter().map(|(arn, tags)| {
        let tags: Vec<Value> = tags.iter().map(|(key, value)| json!({"Key": key, "Value": value})).collect();
        json!({"ResourceARN": arn, "Tags": tags})
    });
    Ok(json!({"ResourceTagMappingList": shown.collect::<Vec<_>>(), "PaginationToken": next.unwrap_or_default()}))
}

fn texts(ask: &Ask, name: &str, all: BTreeSet<String>) -> Answer<Value> {
    let mark = ask.input.text("PaginationToken");
    let (rows, next) = paging::slice(all.into_iter().collect(), Clone::clone, mark, 500, bad_token)?;
    Ok(json!({name: rows, "PaginationToken": next.unwrap_or_default()}))
}

fn get_tag_keys(ask: &mut Ask) -> Answer<Value> {
    let keys = tagged(ask).into_iter().flat_map(|(_, tags)| tags.into_keys()).collect();
    texts(ask, "TagKeys", keys)
}

fn get_tag_values(ask: &mut Ask) -> Answer<Value> {
    let key = ask.input.required("Key")?;
    let values = tagged(ask).into_iter().filter_map(|(_, mut tags)| tags.remove(key)).collect();
    texts(ask, "TagValues", values)
}

fn change_each(ask: &mut Ask, change: &dyn Fn(&mut Tags)) -> Answer<Value> {
    let arns: Vec<String> = ask.input.texts("ResourceARNList").into_iter().map(str::to_owned).collect();
    if arns.is_empty() {
        return fail("InvalidParameterException", "ResourceARNList must not be empty");
    }
    let mut failed = Map::new();
    for arn in arns {
        let store = ask.store();
        if !SERVICES.iter().any(|service| service.change(store, &arn, change)) {
            let message = format!("{arn} does not exist, or cannot be tagged here");
            failed.insert(
                arn,
                json!({"StatusCode": 400, "ErrorCode": "InvalidParameterException", "ErrorMessage": message}),
            );
        }
    }
    Ok(json!({"FailedResourcesMap": failed}))
}

fn tag_resources(ask: &mut Ask) -> Answer<Value> {
    let tags = ask.input.map("Tags");
    change_each(ask, &|all| all.extend(tags.clone()))
}

fn untag_resources(ask: &mut Ask) -> Answer<Value> {
    let keys: Vec<String> = ask.input.texts("TagKeys").into_iter().map(str::to_owned).collect();
    change_each(ask, &|all| all.retain(|key, _| !keys.contains(key)))
}
