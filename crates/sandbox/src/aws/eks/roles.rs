//! What EKS looks up and makes in IAM: roles and whom they trust, and the roles that belong to EKS itself.

use super::errors::About;
use crate::aws::ask::Ask;
use crate::aws::authenticate;
use crate::aws::errors::Answer;
use crate::aws::iam::{roles as iam, service_linked};

/// The role that EKS makes for itself with the first cluster, and with the first node group.
pub const FOR_CLUSTERS: (&str, &str) = ("eks.amazonaws.com", "AWSServiceRoleForAmazonEKS");
pub const FOR_NODE_GROUPS: (&str, &str) = ("eks-nodegroup.amazonaws.com", "AWSServiceRoleForAmazonEKSNodegroup");

/// Whether a user or role of this account is there.
pub fn principal_exists(ask: &Ask, arn: &str) -> bool {
    let own = format!("arn:aws:iam::{}:", ask.account);
    let named = arn.strip_prefix(&own).is_some_and(|rest| rest.starts_with("role/") || rest.starts_with("user/"));
    named && (iam::known_principal(ask, arn) || arn == ask.principal.arn)
}

/// Whether a role's trust policy lets a service take it; nothing where there is no such role.
pub fn trusts(ask: &Ask, arn: &str, service: &str) -> Option<bool> {
    iam::by_arn(ask.state.store, arn).map(|role| iam::trusts_service(role, service))
}

pub fn is_role(arn: &str) -> bool {
    let mut parts = arn.splitn(6, ':');
    let head: Vec<&str> = parts.by_ref().take(5).collect();
    matches!(head.as_slice(), ["arn", "aws" | "aws-cn" | "aws-us-gov", "iam", "", account] if account.len() == 12)
        && parts.next().is_some_and(|rest| rest.strip_prefix("role/").is_some_and(|name| !name.is_empty()))
}

pub fn check_cluster_role(ask: &Ask, cluster: &str, arn: &str) -> Answer<()> {
    let about = About::cluster(cluster);
    authenticate::pass_role(ask, arn, "eks.amazonaws.com")?;
    match trusts(ask, arn, "eks.amazonaws.com") {
        Some(true) => Ok(()),
        Some(false) => Err(about.bad_parameter(format!(
            "Role with arn: {arn}, could not be assumed because the trusted entity is not correct"
        ))),
        None if !is_role(arn) => Err(about.bad_parameter(format!("Role with arn: {arn}, is not valid"))),
        None => Err(about.bad_parameter(format!("Role with arn: {arn}, does not exist"))),
    }
}

pub fn check_node_role(ask: &Ask, about: About, arn: &str) -> Answer<()> {
    authenticate::pass_role(ask, arn, "eks.amazonaws.com")?;
    match trusts(ask, arn, "ec2.amazonaws.com") {
        Some(true) => Ok(()),
        Some(false) => Err(about.bad_parameter(format!(
            "Following required service principals [ec2.amazonaws.com] were not found in the trust relationships of nodeRole {arn}"
        ))),
        None => Err(about.bad_parameter(format!("The role with name {} cannot be found.", name(arn)))),
    }
}

/// `arn:aws:iam::1:role/path/NAME`
pub fn name(arn: &str) -> &str {
    arn.rsplit('/').next().unwrap_or(arn)
}

/// Makes the role unless it is there.
pub fn service_linked(ask: &mut Ask, (service, name): (&str, &str)) {
    service_linked::ensure(ask, service, name);
}

/// As IAM names whom a session belongs to: `assumed-role/ROLE/SESSION` is the role, without its path.
pub fn of_session(arn: &str) -> String {
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    match parts.as_slice() {
        [head, partition, "sts", "", account, resource] => match resource.split('/').collect::<Vec<_>>().as_slice() {
            ["assumed-role", role, _] => format!("{head}:{partition}:iam::{account}:role/{role}"),
            _ => arn.to_owned(),
        },
        _ => arn.to_owned(),
    }
}

/// An ARN of a role without the path, for comparison with what a session tells of it.
pub fn without_path(arn: &str) -> String {
    match arn.split_once(":role/") {
        Some((head, path)) => format!("{head}:role/{}", name(path)),
        None => arn.to_owned(),
    }
}
