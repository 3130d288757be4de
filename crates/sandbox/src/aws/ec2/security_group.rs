//! Security groups. Their rules are objects of their own.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Tables;
use super::filter::{Filter, one};
use super::paging;
use super::permission::{self, Source, Spec};
use super::resource::{Common, Cx, Names, Resource, kept, limit, named, page_of, select_ids};
use super::security_group_rule::SecurityGroupRule;
use super::vpc::Vpc;
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, AwsError, fail};
use crate::clock::SimTime;

/// The name of the group that every VPC has.
pub const DEFAULT: &str = "default";
const MAX_NAME_CHARS: usize = 255;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SecurityGroup {
    pub common: Common,
    pub name: String,
    pub description: String,
    pub vpc: String,
}

kept!(SecurityGroup, "aws.security_group", security_groups);

impl SecurityGroup {
    pub fn rules<'a>(&self, store: &'a Tables, egress: bool) -> impl Iterator<Item = &'a SecurityGroupRule> + use<'a> {
        let rules = store.security_group_rules.find(&format!("group:{}", self.common.id));
        rules.filter(move |rule| rule.egress == egress)
    }

    fn of_rules<T: ToString>(&self, cx: &Cx, egress: bool, value: fn(&Spec) -> Option<T>) -> Vec<String> {
        let values = self.rules(cx.store, egress).filter_map(|rule| value(&rule.spec));
        values.map(|value| value.to_string()).collect()
    }
}

fn cidr(spec: &Spec) -> Option<String> {
    if let Source::V4(cidr) = &spec.source { Some(cidr.clone()) } else { None }
}

fn ipv6_cidr(spec: &Spec) -> Option<String> {
    if let Source::V6(cidr) = &spec.source { Some(cidr.clone()) } else { None }
}

fn group(spec: &Spec) -> Option<String> {
    if let Source::Group(id) = &spec.source { Some(id.clone()) } else { None }
}

fn prefix_list(spec: &Spec) -> Option<String> {
    if let Source::PrefixList(id) = &spec.source { Some(id.clone()) } else { None }
}

fn protocol(spec: &Spec) -> Option<String> {
    Some(spec.protocol.clone())
}

impl Resource for SecurityGroup {
    const NAMES: Names = Names {
        kind: "security-group",
        prefix: "sg",
        ids: "GroupId",
        set: "securityGroupInfo",
        not_found: "InvalidGroup.NotFound",
        malformed: "InvalidGroupId.Malformed",
        title: "The security group '{}' does not exist",
        indexed: &[("vpc-id", "vpc"), ("group-name", "name")],
    };
    const FILTERS: &'static [Filter<SecurityGroup>] = &[
        ("group-id", |group, _| one(&group.common.id)),
        ("group-name", |group, _| one(&group.name)),
        ("description", |group, _| one(&group.description)),
        ("vpc-id", |group, _| one(&group.vpc)),
        ("ip-permission.cidr", |group, cx| group.of_rules(cx, false, cidr)),
        ("ip-permission.ipv6-cidr", |group, cx| group.of_rules(cx, false, ipv6_cidr)),
        ("ip-permission.from-port", |group, cx| group.of_rules(cx, false, |spec| spec.from)),
        ("ip-permission.to-port", |group, cx| group.of_rules(cx, false, |spec| spec.to)),
        ("ip-permission.protocol", |group, cx| group.of_rules(cx, false, protocol)),
        ("ip-permission.group-id", |own, cx| own.of_rules(cx, false, group)),
        ("ip-permission.group-name", |own, cx| names(cx, &own.of_rules(cx, false, group))),
        ("ip-permission.prefix-list-id", |group, cx| group.of_rules(cx, false, prefix_list)),
        ("ip-permission.user-id", |own, cx| {
            own.of_rules(cx, false, group).iter().map(|_| cx.account.to_owned()).collect()
        }),
        ("egress.ip-permission.cidr", |group, cx| group.of_rules(cx, true, cidr)),
        ("egress.ip-permission.ipv6-cidr", |group, cx| group.of_rules(cx, true, ipv6_cidr)),
        ("egress.ip-permission.from-port", |group, cx| group.of_rules(cx, true, |spec| spec.from)),
        ("egress.ip-permission.to-port", |group, cx| group.of_rules(cx, true, |spec| spec.to)),
        ("egress.ip-permission.protocol", |group, cx| group.of_rules(cx, true, protocol)),
        ("egress.ip-permission.group-id", |own, cx| own.of_rules(cx, true, group)),
        ("egress.ip-permission.group-name", |own, cx| names(cx, &own.of_rules(cx, true, group))),
        ("egress.ip-permission.prefix-list-id", |group, cx| group.of_rules(cx, true, prefix_list)),
        ("egress.ip-permission.user-id", |own, cx| {
            own.of_rules(cx, true, group).iter().map(|_| cx.account.to_owned()).collect()
        }),
    ];

    fn indexes(&self) -> Vec<String> {
        vec![format!("vpc:{}", self.vpc), format!("name:{}", self.name)]
    }

    fn show(&self, cx: &Cx) -> Value {
        let permissions = |egress: bool| permission::show(cx, self.rules(cx.store, egress).map(|rule| &rule.spec));
        json!({"groupId": self.common.id, "groupName": self.name, "groupDescription": self.description,
               "vpcId": self.vpc, "ownerId": cx.account, "securityGroupArn": self.arn(cx),
               "ipPermissions": permissions(false), "ipPermissionsEgress": permissions(true)})
    }

    fn facts(&self, _: SimTime) -> Value {
        json!({"name": self.name, "vpc": self.vpc})
    }
}

/// As lists of groups are shown elsewhere.
pub fn show_names(cx: &Cx, groups: &[String]) -> Value {
    let name = |id: &String| cx.store.security_groups.get(id).map(|group| group.name.as_str());
    groups.iter().map(|id| json!({"groupId": id, "groupName": name(id)})).collect()
}

pub fn names(cx: &Cx, groups: &[String]) -> Vec<String> {
    groups.iter().filter_map(|id| Some(cx.store.security_groups.get(id)?.name.clone())).collect()
}

pub fn default_of(store: &Tables, vpc: &str) -> Option<String> {
    let mut groups = store.security_groups.find(&format!("vpc:{vpc}"));
    groups.find(|group| group.name == DEFAULT).map(|group| group.common.id.clone())
}

/// Adds a group that lets everything out, as all new ones do.
pub fn add(store: &mut Tables, group: SecurityGroup) {
    let common = Common::made("sgr", &group.common.region, group.common.created);
    store.security_group_rules.insert(SecurityGroupRule {
        common,
        group: group.common.id.clone(),
        egress: true,
        spec: Spec::all_to(Source::V4("0.0.0.0/0".into())),
    });
    store.security_groups.insert(group);
}

/// The group of a new VPC: its members may talk to each other.
pub fn add_default(store: &mut Tables, vpc: &Common) {
    let common = Common::made("sg", &vpc.region, vpc.created);
    let (name, description) = (DEFAULT.to_owned(), "default VPC security group".to_owned());
    add_open_inside(store, SecurityGroup { common, name, description, vpc: vpc.id.clone() });
}

/// Adds a group whose members may talk to each other.
pub fn add_open_inside(store: &mut Tables, group: SecurityGroup) {
    let Common { id, region, created, .. } = group.common.clone();
    add(store, group);
    store.security_group_rules.insert(SecurityGroupRule {
        common: Common::made("sgr", &region, created),
        group: id.clone(),
        egress: false,
        spec: Spec::all_to(Source::Group(id)),
    });
}

/// Takes a group away with its rules.
pub fn remove(store: &mut Tables, id: &str) {
    let rules: Vec<_> =
        store.security_group_rules.find(&format!("group:{id}")).map(|rule| rule.common.id.clone()).collect();
    rules.iter().for_each(|rule| _ = store.security_group_rules.remove(rule));
    store.security_groups.remove(id);
}

fn check_text(what: &str, text: &str) -> Answer<()> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || " ._-:/()#,@[]+=&;{}!$*".contains(c);
    match text.chars().all(allowed) && text.chars().count() <= MAX_NAME_CHARS {
        true => Ok(()),
        false => fail(
            "InvalidParameterValue",
            format!("Value ({text}) for parameter {what} is invalid. Character sets beyond ASCII are not supported."),
        ),
    }
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let (name, description) = (ask.input.required("GroupName")?, ask.input.required("GroupDescription")?);
    check_text("GroupName", name)?;
    check_text("GroupDescription", description)?;
    if name.starts_with("sg-") {
        return fail(
            "InvalidParameterValue",
            "invalid value for parameter groupName: Group names cannot begin with \"sg-\"",
        );
    }
    if name == DEFAULT {
        return fail("InvalidParameterValue", "Cannot use reserved security group name: default");
    }
    let (cx, name, description) = (Cx::of(ask), name.to_owned(), description.to_owned());
    let vpc = match ask.input.text("VpcId") {
        Some(id) => cx.require::<Vpc>(id)?.common.id.clone(),
        None => match cx.store.vpcs.first(&format!("default:{}", ask.region)) {
            Some(vpc) => vpc.common.id.clone(),
            None => return fail("VPCIdNotSpecified", "No default VPC for this user"),
        },
    };
    if cx.store.security_groups.find(&format!("vpc:{vpc}")).any(|group| group.name == name) {
        let message = format!("The security group '{name}' already exists for VPC '{vpc}'");
        return fail("InvalidGroup.Duplicate", message);
    }
    let count = cx.store.security_groups.count(&format!("region:{}", ask.region));
    limit(count, ask.state.quota.firewalls as usize, "SecurityGroupLimitExceeded", "security groups")?;
    let common = Common::asked(ask, "sg", "security-group")?;
    let group = SecurityGroup { common, name, description, vpc };
    let answer = json!({"return": true, "groupId": group.common.id, "tagSet": super::tags::set(&group.common.tags),
                        "securityGroupArn": group.arn(&Cx::of(ask))});
    add(&mut ask.store().ec2, group);
    Ok(answer)
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let (cx, mut ids) = (Cx::of(ask), ask.input.texts("GroupId"));
    for name in ask.input.texts("GroupName") {
        ids.push(&by_name(&cx, name)?.common.id);
    }
    page_of(ask, &cx, select_ids::<SecurityGroup>(ask, &ids)?, paging::USUAL)
}

/// A group of the default VPC by its name.
fn by_name<'a>(cx: &Cx<'a>, name: &str) -> Answer<&'a SecurityGroup> {
    let vpc = cx.store.vpcs.first(&format!("default:{}", cx.region)).map(|vpc| &vpc.common.id);
    let found = cx.store.security_groups.find(&format!("name:{name}")).find(|group| Some(&group.vpc) == vpc);
    found.ok_or_else(|| {
        let message =
            format!("The security group '{name}' does not exist in default VPC '{}'", vpc.map_or("none", |id| id));
        AwsError::new(400, "InvalidGroup.NotFound", message)
    })
}

/// The group that a call names by its id, or by its name in the default VPC.
pub fn find<'a>(ask: &'a Ask<'_, '_>) -> Answer<&'a SecurityGroup> {
    match ask.input.text("GroupName") {
        Some(name) if ask.input.text("GroupId").is_none() => by_name(&Cx::of(ask), name),
        _ => named::<SecurityGroup>(ask, "GroupId"),
    }
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let (cx, group) = (Cx::of(ask), find(ask)?);
    let id = group.common.id.clone();
    if group.name == DEFAULT {
        let message = format!("the specified group: \"{id}\" name: \"default\" cannot be deleted by a user");
        return fail("CannotDelete", message);
    }
    let key = format!("group:{id}");
    let referred = cx.store.security_group_rules.find(&format!("ref:{id}")).any(|rule| rule.group != id);
    if cx.store.network_interfaces.count(&key) > 0 || cx.store.endpoints.count(&key) > 0 || referred {
        return fail("DependencyViolation", format!("resource {id} has a dependent object"));
    }
    remove(&mut ask.store().ec2, &id);
    Ok(json!({"return": true, "groupId": id}))
}
