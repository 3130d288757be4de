//! Rules of security groups, each with an id and tags.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::filter::{Filter, one};
use super::permission::{self, Source, Spec};
use super::resource::{Common, Cx, Names, Resource, absent, done, kept, shown};
use super::security_group::{self, SecurityGroup};
use super::tags;
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, fail};
use crate::clock::SimTime;

/// In each direction.
const MAX_PER_GROUP: usize = 60;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SecurityGroupRule {
    pub common: Common,
    pub group: String,
    pub egress: bool,
    pub spec: Spec,
}

kept!(SecurityGroupRule, "aws.security_group_rule", security_group_rules);

impl Resource for SecurityGroupRule {
    const NAMES: Names = Names {
        kind: "security-group-rule",
        prefix: "sgr",
        ids: "SecurityGroupRuleId",
        set: "securityGroupRuleSet",
        not_found: "InvalidSecurityGroupRuleId.NotFound",
        malformed: "InvalidSecurityGroupRuleId.Malformed",
        title: "The security group rule ID '{}' does not exist",
        indexed: &[("group-id", "group")],
    };
    const FILTERS: &'static [Filter<SecurityGroupRule>] =
        &[("group-id", |rule, _| one(&rule.group)), ("security-group-rule-id", |rule, _| one(&rule.common.id))];

    fn indexes(&self) -> Vec<String> {
        let mut keys = vec![format!("group:{}", self.group)];
        if let Source::Group(id) = &self.spec.source {
            keys.push(format!("ref:{id}"));
        }
        keys
    }

    fn show(&self, cx: &Cx) -> Value {
        let Spec { protocol, from, to, source, description } = &self.spec;
        let mut shown = json!({
            "securityGroupRuleId": self.common.id,
            "securityGroupRuleArn": self.arn(cx),
            "groupId": self.group,
            "groupOwnerId": cx.account,
            "isEgress": self.egress,
            "ipProtocol": protocol,
            "fromPort": from.unwrap_or(-1),
            "toPort": to.unwrap_or(-1),
            "description": description,
        });
        match source {
            Source::V4(cidr) => shown["cidrIpv4"] = json!(cidr),
            Source::V6(cidr) => shown["cidrIpv6"] = json!(cidr),
            Source::PrefixList(id) => shown["prefixListId"] = json!(id),
            Source::Group(id) => {
                let vpc = cx.store.security_groups.get(id).map(|group| &group.vpc);
                shown["referencedGroupInfo"] = json!({"groupId": id, "userId": cx.account, "vpcId": vpc});
            }
        }
        shown
    }

    fn facts(&self, _: SimTime) -> Value {
        json!({"group": self.group, "egress": self.egress})
    }
}

pub fn authorize_ingress(ask: &mut Ask) -> Answer<Value> {
    authorize(ask, false)
}

pub fn authorize_egress(ask: &mut Ask) -> Answer<Value> {
    authorize(ask, true)
}

fn authorize(ask: &mut Ask, egress: bool) -> Answer<Value> {
    let group = security_group::find(ask)?;
    let (id, tags) = (group.common.id.clone(), tags::given(&ask.input, "security-group-rule")?);
    let specs = permission::read(ask)?;
    let existing: Vec<&SecurityGroupRule> = group.rules(Cx::of(ask).store, egress).collect();
    for (at, spec) in specs.iter().enumerate() {
        let twice = specs.iter().take(at).any(|other| other.is_same(spec));
        if twice {
            return fail("InvalidParameterValue", "The same permission must not appear multiple times");
        }
        if existing.iter().any(|rule| rule.spec.is_same(spec)) {
            let message = format!("the specified rule \"{}\" already exists", spec.told());
            return fail("InvalidPermission.Duplicate", message);
        }
    }
    if existing.len() + specs.len() > MAX_PER_GROUP {
        let message = "The maximum number of rules per security group has been reached.";
        return fail("RulesPerSecurityGroupLimitExceeded", message);
    }
    let (now, region) = (ask.now(), ask.region);
    let make = |spec: Spec| {
        let common = Common { tags: tags.clone(), default: false, ..Common::made("sgr", region, now) };
        SecurityGroupRule { common, group: id.clone(), egress, spec }
    };
    let rules: Vec<SecurityGroupRule> = specs.into_iter().map(make).collect();
    let answer: Vec<Value> = rules.iter().map(|rule| shown(rule, &Cx::of(ask))).collect();
    rules.into_iter().for_each(|rule| ask.store().ec2.security_group_rules.insert(rule));
    Ok(json!({"return": true, "securityGroupRuleSet": answer}))
}

pub fn revoke_ingress(ask: &mut Ask) -> Answer<Value> {
    revoke(ask, false)
}

pub fn revoke_egress(ask: &mut Ask) -> Answer<Value> {
    revoke(ask, true)
}

/// By rule ids, or by what the rules allow; all must be there before any goes.
fn revoke(ask: &mut Ask, egress: bool) -> Answer<Value> {
    let (cx, group) = (Cx::of(ask), security_group::find(ask)?);
    let mut gone: Vec<SecurityGroupRule> = Vec::new();
    let ids = ask.input.texts("SecurityGroupRuleId");
    for id in &ids {
        let rule = cx.get::<SecurityGroupRule>(id);
        match rule.filter(|rule| rule.group == group.common.id && rule.egress == egress) {
            Some(rule) => gone.push(rule.clone()),
            None => return Err(absent::<SecurityGroupRule>(id)),
        }
    }
    if ids.is_empty() {
        for spec in permission::read(ask)? {
            match group.rules(cx.store, egress).find(|rule| rule.spec.is_same(&spec)) {
                Some(rule) => gone.push(rule.clone()),
                None => {
                    return fail(
                        "InvalidPermission.NotFound",
                        "The specified rule does not exist in this security group.",
                    );
                }
            }
        }
    }
    gone.iter().for_each(|rule| _ = ask.store().ec2.security_group_rules.remove(&rule.common.id));
    let shown: Vec<Value> = gone.iter().map(show_revoked).collect();
    Ok(json!({"return": true, "revokedSecurityGroupRuleSet": shown}))
}

fn show_revoked(rule: &SecurityGroupRule) -> Value {
    let Spec { protocol, from, to, source, description } = &rule.spec;
    let mut shown = json!({"securityGroupRuleId": rule.common.id, "groupId": rule.group, "isEgress": rule.egress,
                           "ipProtocol": protocol, "fromPort": from.unwrap_or(-1), "toPort": to.unwrap_or(-1),
                           "description": description});
    let (member, text) = match source {
        Source::V4(text) => ("cidrIpv4", text),
        Source::V6(text) => ("cidrIpv6", text),
        Source::PrefixList(text) => ("prefixListId", text),
        Source::Group(text) => ("referencedGroupId", text),
    };
    shown[member] = json!(text);
    shown
}

pub fn update_descriptions_ingress(ask: &mut Ask) -> Answer<Value> {
    update_descriptions(ask, false)
}

pub fn update_descriptions_egress(ask: &mut Ask) -> Answer<Value> {
    update_descriptions(ask, true)
}

fn update_descriptions(ask: &mut Ask, egress: bool) -> Answer<Value> {
    let (cx, group) = (Cx::of(ask), security_group::find(ask)?);
    let mut changes: Vec<(String, Option<String>)> = Vec::new();
    for given in ask.input.list("SecurityGroupRuleDescription") {
        let id = given.required("SecurityGroupRuleId")?;
        let rule = cx.get::<SecurityGroupRule>(id).filter(|rule| rule.group == group.common.id);
        let rule = rule.ok_or_else(|| absent::<SecurityGroupRule>(id))?;
        changes.push((rule.common.id.clone(), given.text("Description").map(str::to_owned)));
    }
    if changes.is_empty() {
        for spec in permission::read(ask)? {
            match group.rules(cx.store, egress).find(|rule| rule.spec.is_same(&spec)) {
                Some(rule) => changes.push((rule.common.id.clone(), spec.description)),
                None => {
                    return fail(
                        "InvalidPermission.NotFound",
                        "The specified rule does not exist in this security group.",
                    );
                }
            }
        }
    }
    for (id, description) in changes {
        let description = description.filter(|text| !text.is_empty());
        ask.store().ec2.security_group_rules.update(&id, |rule| rule.spec.description = description);
    }
    done()
}

pub fn modify(ask: &mut Ask) -> Answer<Value> {
    let (cx, group) = (Cx::of(ask), security_group::find(ask)?);
    let mut changes: Vec<(String, Spec)> = Vec::new();
    for given in ask.input.list("SecurityGroupRule") {
        let id = given.required("SecurityGroupRuleId")?;
        let rule = cx.get::<SecurityGroupRule>(id).filter(|rule| rule.group == group.common.id);
        let rule = rule.ok_or_else(|| absent::<SecurityGroupRule>(id))?;
        let wanted = given.at("SecurityGroupRule").cloned().unwrap_or(Value::Null);
        let spec = permission::read_flat(ask, &crate::aws::ask::Input(wanted))?;
        if group
            .rules(cx.store, rule.egress)
            .any(|other| other.common.id != rule.common.id && other.spec.is_same(&spec))
        {
            let message = format!("the specified rule \"{}\" already exists", spec.told());
            return fail("InvalidPermission.Duplicate", message);
        }
        changes.push((rule.common.id.clone(), spec));
    }
    if changes.is_empty() {
        return fail("MissingParameter", "The request must contain the parameter SecurityGroupRule");
    }
    for (id, spec) in changes {
        ask.store().ec2.security_group_rules.update(&id, |rule| rule.spec = spec);
    }
    done()
}

/// Which VPCs have groups whose rules refer to these groups: only other VPCs count, and there is no peering.
pub fn describe_references(ask: &mut Ask) -> Answer<Value> {
    for id in ask.input.texts("GroupId") {
        Cx::of(ask).require::<SecurityGroup>(id)?;
    }
    Ok(json!({"securityGroupReferenceSet": []}))
}
