//! The prefix lists that AWS keeps: ranges of services, by region.

use serde_json::{Value, json};

use super::filter::{Filter, Filters, one};
use super::paging;
use super::resource::Cx;
use crate::aws::ask::{Ask, Tags};
use crate::aws::errors::{Answer, AwsError};
use crate::aws::ids;

pub struct PrefixList {
    pub id: String,
    pub name: String,
    ranges: &'static [&'static str],
}

/// Service, ranges, and whether gateway endpoints and their routes use it.
const SERVICES: &[(&str, &[&str], bool)] = &[
    ("s3", &["3.5.136.0/22", "52.219.44.0/22", "52.219.72.0/22"], true),
    ("dynamodb", &["3.69.0.0/23", "52.94.17.0/24"], true),
    ("vpc-lattice", &["169.254.171.0/24"], false),
];

/// The id of S3's list, where AWS's own is well known.
const KNOWN: &[(&str, &str)] = &[
    ("us-east-1", "pl-63a5400a"),
    ("us-east-2", "pl-7ba54012"),
    ("us-west-1", "pl-6ba54002"),
    ("us-west-2", "pl-68a54001"),
    ("eu-west-1", "pl-6da54004"),
    ("eu-central-1", "pl-6ea54007"),
    ("ap-southeast-1", "pl-6fa54006"),
    ("ap-southeast-2", "pl-6ca54005"),
    ("ap-northeast-1", "pl-61a54008"),
];

fn id_of(region: &str, service: &str) -> String {
    let known = KNOWN.iter().find(|(own, _)| service == "s3" && *own == region);
    let hashed = || format!("pl-{}", ids::stable(&format!("{region}/{service}"), 8));
    known.map_or_else(hashed, |(_, id)| (*id).to_owned())
}

fn all(region: &str) -> Vec<(PrefixList, bool)> {
    let list = |(service, ranges, gateway): &(&str, &'static [&'static str], bool)| {
        let (id, name) = (id_of(region, service), format!("com.amazonaws.{region}.{service}"));
        (PrefixList { id, name, ranges }, *gateway)
    };
    SERVICES.iter().map(list).collect()
}

pub fn by_id(region: &str, id: &str) -> Option<PrefixList> {
    all(region).into_iter().map(|(list, _)| list).find(|list| list.id == id)
}

/// The list of a service that has gateway endpoints.
pub fn by_service(region: &str, service_name: &str) -> Option<PrefixList> {
    let mut lists = all(region).into_iter().filter(|(_, gateway)| *gateway).map(|(list, _)| list);
    lists.find(|list| list.name == service_name)
}

pub fn absent(id: &str) -> Box<AwsError> {
    AwsError::new(400, "InvalidPrefixListID.NotFound", format!("The prefix list ID '{id}' does not exist"))
}

const FILTERS: &[Filter<PrefixList>] =
    &[("prefix-list-id", |list, _| one(&list.id)), ("prefix-list-name", |list, _| one(&list.name))];

fn selected(ask: &Ask, gateways_only: bool) -> Answer<Vec<PrefixList>> {
    let (cx, filters, ids) = (Cx::of(ask), Filters::read(&ask.input), ask.input.texts("PrefixListId"));
    filters.check(FILTERS)?;
    if let Some(unknown) = ids.iter().find(|id| by_id(ask.region, id).is_none()) {
        return Err(absent(unknown));
    }
    let fits = |list: &PrefixList| {
        (ids.is_empty() || ids.contains(&list.id.as_str())) && filters.fit(list, &cx, FILTERS, &Tags::new())
    };
    let lists = all(ask.region).into_iter().filter(|(_, gateway)| *gateway || !gateways_only);
    Ok(lists.map(|(list, _)| list).filter(fits).collect())
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let (lists, next) = paging::page(&ask.input, selected(ask, true)?, paging::USUAL)?;
    let show = |list: PrefixList| json!({"prefixListId": list.id, "prefixListName": list.name, "cidrSet": list.ranges});
    Ok(json!({"prefixListSet": lists.into_iter().map(show).collect::<Vec<_>>(), "nextToken": next}))
}

pub fn describe_managed(ask: &mut Ask) -> Answer<Value> {
    let (lists, next) = paging::page(&ask.input, selected(ask, false)?, (1, 100))?;
    let show = |list: PrefixList| {
        let arn = format!("arn:aws:ec2:{}:aws:prefix-list/{}", ask.region, list.id);
        json!({"prefixListId": list.id, "prefixListName": list.name, "prefixListArn": arn, "addressFamily": "IPv4",
               "state": "create-complete", "ownerId": "AWS", "tagSet": []})
    };
    Ok(json!({"prefixListSet": lists.into_iter().map(show).collect::<Vec<_>>(), "nextToken": next}))
}

pub fn managed_entries(ask: &mut Ask) -> Answer<Value> {
    let id = ask.input.required("PrefixListId")?;
    let list = by_id(ask.region, id).ok_or_else(|| absent(id))?;
    let entries: Vec<_> = list.ranges.iter().map(|range| json!({"cidr": range})).collect();
    let (entries, next) = paging::page(&ask.input, entries, (1, 100))?;
    Ok(json!({"entrySet": entries, "nextToken": next}))
}
