//! DHCP option sets.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::filter::{Filter, one};
use super::resource::{Common, Cx, Names, Resource, done, in_use, kept, named, shown};
use super::vpc::Vpc;
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, fail};
use crate::clock::SimTime;

const KEYS: [&str; 6] = [
    "domain-name",
    "domain-name-servers",
    "ntp-servers",
    "netbios-name-servers",
    "netbios-node-type",
    "ipv6-address-preferred-lease-time",
];

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DhcpOptions {
    pub common: Common,
    pub settings: Vec<(String, Vec<String>)>,
}

kept!(DhcpOptions, "aws.dhcp_options", dhcp_options);

impl Resource for DhcpOptions {
    const NAMES: Names = Names {
        kind: "dhcp-options",
        prefix: "dopt",
        ids: "DhcpOptionsId",
        set: "dhcpOptionsSet",
        not_found: "InvalidDhcpOptionID.NotFound",
        malformed: "InvalidDhcpOptionsId.Malformed",
        title: "The dhcpOption ID '{}' does not exist",
        indexed: &[],
    };
    const FILTERS: &'static [Filter<DhcpOptions>] = &[
        ("dhcp-options-id", |options, _| one(&options.common.id)),
        ("key", |options, _| options.settings.iter().map(|(key, _)| key.clone()).collect()),
        ("value", |options, _| options.settings.iter().flat_map(|(_, values)| values.clone()).collect()),
    ];

    fn indexes(&self) -> Vec<String> {
        if self.common.default { vec![format!("default:{}", self.common.region)] } else { vec![] }
    }

    fn show(&self, cx: &Cx) -> Value {
        let setting = |(key, values): &(String, Vec<String>)| {
            let values: Vec<_> = values.iter().map(|value| json!({"value": value})).collect();
            json!({"key": key, "valueSet": values})
        };
        json!({"dhcpOptionsId": self.common.id, "ownerId": cx.account,
               "dhcpConfigurationSet": self.settings.iter().map(setting).collect::<Vec<_>>()})
    }
}

/// The set that a region's VPCs get.
pub fn default(region: &str, now: SimTime) -> DhcpOptions {
    let domain = match region {
        "us-east-1" => "ec2.internal".to_owned(),
        region => format!("{region}.compute.internal"),
    };
    let settings =
        vec![("domain-name".into(), vec![domain]), ("domain-name-servers".into(), vec!["AmazonProvidedDNS".into()])];
    DhcpOptions { common: Common::made("dopt", region, now), settings }
}

pub fn of_region(ask: &Ask) -> String {
    let default = Cx::of(ask).store.dhcp_options.first(&format!("default:{}", ask.region));
    default.map_or_else(|| "default".into(), |options| options.common.id.clone())
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let common = Common::asked(ask, "dopt", "dhcp-options")?;
    let mut settings = Vec::new();
    for setting in ask.input.list("DhcpConfiguration") {
        let key = setting.required("Key")?;
        if !KEYS.contains(&key) {
            return fail(
                "InvalidParameterValue",
                format!("Value ({key}) for parameter name is invalid. Unknown DHCP option"),
            );
        }
        settings.push((key.to_owned(), setting.texts("Value").into_iter().map(str::to_owned).collect()));
    }
    if settings.is_empty() {
        return fail("MissingParameter", "The request must contain the parameter dhcpConfigurationSet");
    }
    let options = DhcpOptions { common, settings };
    let answer = json!({"dhcpOptions": shown(&options, &Cx::of(ask))});
    ask.store().ec2.dhcp_options.insert(options);
    Ok(answer)
}

pub fn associate(ask: &mut Ask) -> Answer<Value> {
    let vpc = named::<Vpc>(ask, "VpcId")?.common.id.clone();
    let options = match ask.input.required("DhcpOptionsId")? {
        "default" => of_region(ask),
        id => Cx::of(ask).require::<DhcpOptions>(id)?.common.id.clone(),
    };
    ask.store().ec2.vpcs.update(&vpc, |vpc| vpc.dhcp_options = options);
    done()
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let id = named::<DhcpOptions>(ask, "DhcpOptionsId")?.common.id.clone();
    if ask.store().ec2.vpcs.count(&format!("dhcp:{id}")) > 0 {
        return Err(in_use::<DhcpOptions>(&id, "dhcpOptions"));
    }
    ask.store().ec2.dhcp_options.remove(&id);
    done()
}
