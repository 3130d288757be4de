//! Regions and their zones, as a new account sees them.

use serde_json::{Value, json};

use super::filter::{Filter, Filters, one};
use super::resource::Cx;
use crate::aws::ask::{Ask, Tags};
use crate::aws::errors::{Answer, fail};

/// Name, the short form in ids of zones, letters of its zones, whether an account has it without asking for it.
pub struct Region {
    pub name: &'static str,
    short: &'static str,
    letters: &'static str,
    enabled: bool,
}

const fn region(name: &'static str, short: &'static str, letters: &'static str) -> Region {
    Region { name, short, letters, enabled: true }
}

const fn on_request(name: &'static str, short: &'static str) -> Region {
    Region { name, short, letters: "abc", enabled: false }
}

pub static REGIONS: &[Region] = &[
    on_request("af-south-1", "afs1"),
    on_request("ap-east-1", "ape1"),
    region("ap-northeast-1", "apne1", "acd"),
    region("ap-northeast-2", "apne2", "abcd"),
    region("ap-northeast-3", "apne3", "abc"),
    region("ap-south-1", "aps1", "abc"),
    on_request("ap-south-2", "aps2"),
    region("ap-southeast-1", "apse1", "abc"),
    region("ap-southeast-2", "apse2", "abc"),
    on_request("ap-southeast-3", "apse3"),
    on_request("ap-southeast-4", "apse4"),
    on_request("ap-southeast-5", "apse5"),
    region("ca-central-1", "cac1", "abd"),
    on_request("ca-west-1", "caw1"),
    region("eu-central-1", "euc1", "abc"),
    on_request("eu-central-2", "euc2"),
    region("eu-north-1", "eun1", "abc"),
    on_request("eu-south-1", "eus1"),
    on_request("eu-south-2", "eus2"),
    region("eu-west-1", "euw1", "abc"),
    region("eu-west-2", "euw2", "abc"),
    region("eu-west-3", "euw3", "abc"),
    on_request("il-central-1", "ilc1"),
    on_request("me-central-1", "mec1"),
    on_request("me-south-1", "mes1"),
    on_request("mx-central-1", "mxc1"),
    region("sa-east-1", "sae1", "abc"),
    region("us-east-1", "use1", "abcdef"),
    region("us-east-2", "use2", "abc"),
    region("us-west-1", "usw1", "ac"),
    region("us-west-2", "usw2", "abcd"),
];

#[derive(Clone)]
pub struct Zone {
    pub name: String,
    pub id: String,
    pub region: String,
}

/// Zones of a region. One that AWS does not have gets three: tests invent regions.
pub fn zones(name: &str) -> Vec<Zone> {
    let known = REGIONS.iter().find(|region| region.name == name);
    let (short, letters) = known.map_or((name, "abc"), |region| (region.short, region.letters));
    let zone = |(at, letter): (usize, char)| Zone {
        name: format!("{name}{letter}"),
        id: format!("{short}-az{}", at + 1),
        region: name.to_owned(),
    };
    letters.chars().enumerate().map(zone).collect()
}

/// A zone of the region by its name or its id.
pub fn zone(region: &str, name_or_id: &str) -> Option<Zone> {
    zones(region).into_iter().find(|zone| zone.name == name_or_id || zone.id == name_or_id)
}

const REGION_FILTERS: &[Filter<Region>] = &[
    ("region-name", |region, _| one(region.name)),
    ("endpoint", |region, _| one(endpoint(region.name))),
    ("opt-in-status", |region, _| one(opt_in_status(region))),
];

fn endpoint(region: &str) -> String {
    format!("ec2.{region}.amazonaws.com")
}

fn opt_in_status(region: &Region) -> &'static str {
    if region.enabled { "opt-in-not-required" } else { "not-opted-in" }
}

pub fn describe_regions(ask: &mut Ask) -> Answer<Value> {
    let (cx, filters) = (Cx::of(ask), Filters::read(&ask.input));
    filters.check(REGION_FILTERS)?;
    let (names, all) = (ask.input.texts("RegionName"), ask.input.flag("AllRegions") == Some(true));
    if let Some(unknown) = names.iter().find(|name| !REGIONS.iter().any(|region| region.name == **name)) {
        return fail("InvalidParameterValue", format!("Invalid region provided: {unknown}"));
    }
    let asked = |region: &&Region| {
        let listed = if names.is_empty() { all || region.enabled } else { names.contains(&region.name) };
        listed && filters.fit(*region, &cx, REGION_FILTERS, &Tags::new())
    };
    let show = |region: &Region| json!({"regionName": region.name, "regionEndpoint": endpoint(region.name), "optInStatus": opt_in_status(region)});
    Ok(json!({"regionInfo": REGIONS.iter().filter(asked).map(show).collect::<Vec<_>>()}))
}

const ZONE_FILTERS: &[Filter<Zone>] = &[
    ("zone-name", |zone, _| one(&zone.name)),
    ("zone-id", |zone, _| one(&zone.id)),
    ("zone-type", |_, _| one("availability-zone")),
    ("region-name", |zone, _| one(&zone.region)),
    ("state", |_, _| one("available")),
    ("opt-in-status", |_, _| one("opt-in-not-required")),
    ("group-name", |zone, _| one(group_name(zone))),
    ("group-long-name", |zone, _| one(&zone.region)),
    ("network-border-group", |zone, _| one(&zone.region)),
    ("message", |_, _| vec![]),
    ("parent-zone-id", |_, _| vec![]),
    ("parent-zone-name", |_, _| vec![]),
];

fn group_name(zone: &Zone) -> String {
    format!("{}-zg-1", zone.region)
}

pub fn describe_availability_zones(ask: &mut Ask) -> Answer<Value> {
    let (cx, filters) = (Cx::of(ask), Filters::read(&ask.input));
    filters.check(ZONE_FILTERS)?;
    let all = zones(ask.region);
    let (names, ids) = (ask.input.texts("ZoneName"), ask.input.texts("ZoneId"));
    for (given, what) in names.iter().map(|name| (name, "zone name")).chain(ids.iter().map(|id| (id, "zone ID"))) {
        if !all.iter().any(|zone| zone.name == *given || zone.id == *given) {
            return fail("InvalidParameterValue", format!("Invalid availability {what}: [{given}]"));
        }
    }
    let asked = |zone: &&Zone| {
        let named = names.is_empty() && ids.is_empty()
            || names.contains(&zone.name.as_str())
            || ids.contains(&zone.id.as_str());
        named && filters.fit(*zone, &cx, ZONE_FILTERS, &Tags::new())
    };
    let show = |zone: &Zone| {
        json!({"zoneName": zone.name, "zoneId": zone.id, "zoneState": "available", "regionName": zone.region,
               "zoneType": "availability-zone", "optInStatus": "opt-in-not-required", "messageSet": [],
               "groupName": group_name(zone), "networkBorderGroup": zone.region})
    };
    Ok(json!({"availabilityZoneInfo": all.iter().filter(asked).map(show).collect::<Vec<_>>()}))
}

pub fn describe_account_attributes(ask: &mut Ask) -> Answer<Value> {
    let cx = Cx::of(ask);
    let default = cx.store.vpcs.first(&format!("default:{}", ask.region)).map_or("none", |vpc| vpc.common.id.as_str());
    let values = [
        ("supported-platforms", "VPC"),
        ("default-vpc", default),
        ("max-instances", "20"),
        ("vpc-max-security-groups-per-interface", "5"),
        ("max-elastic-ips", "5"),
        ("vpc-max-elastic-ips", "5"),
    ];
    let asked = ask.input.texts("AttributeName");
    let shown = values
        .iter()
        .filter(|(name, _)| asked.is_empty() || asked.contains(name))
        .map(|(name, value)| json!({"attributeName": name, "attributeValueSet": [{"attributeValue": value}]}));
    Ok(json!({"accountAttributeSet": shown.collect::<Vec<_>>()}))
}
