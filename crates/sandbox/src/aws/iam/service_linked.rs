//! Roles that belong to a service, which alone may change them.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::entity::*;
use super::model::{Grants, Role};
use super::roles;
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, fail};
use crate::aws::ids;

/// Service, name of the role, name of its policy.
const SERVICES: [(&str, &str, &str); 9] = [
    ("eks.amazonaws.com", "AWSServiceRoleForAmazonEKS", "AmazonEKSServiceRolePolicy"),
    ("eks-nodegroup.amazonaws.com", "AWSServiceRoleForAmazonEKSNodegroup", "AWSServiceRoleForAmazonEKSNodegroup"),
    ("eks-fargate.amazonaws.com", "AWSServiceRoleForAmazonEKSForFargate", "AmazonEKSForFargateServiceRolePolicy"),
    ("eks-connector.amazonaws.com", "AWSServiceRoleForAmazonEKSConnector", "AmazonEKSConnectorServiceRolePolicy"),
    (
        "eks-local-outpost.amazonaws.com",
        "AWSServiceRoleForAmazonEKSLocalOutpost",
        "AmazonEKSLocalOutpostServiceRolePolicy",
    ),
    ("autoscaling.amazonaws.com", "AWSServiceRoleForAutoScaling", "AutoScalingServiceRolePolicy"),
    ("spot.amazonaws.com", "AWSServiceRoleForEC2Spot", "AWSEC2SpotServiceRolePolicy"),
    ("spotfleet.amazonaws.com", "AWSServiceRoleForEC2SpotFleet", "AWSEC2SpotFleetServiceRolePolicy"),
    (
        "elasticloadbalancing.amazonaws.com",
        "AWSServiceRoleForElasticLoadBalancing",
        "AWSElasticLoadBalancingServiceRolePolicy",
    ),
];

pub fn unmodifiable<T>(role: &str) -> Answer<T> {
    fail(
        "UnmodifiableEntity",
        format!("Cannot perform the operation on the protected role '{role}' - this role is only modifiable by AWS"),
    )
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let service = ask.input.required("AWSServiceName")?.to_owned();
    let Some((_, name, policy)) = SERVICES.into_iter().find(|(known, _, _)| *known == service) else {
        return fail(
            "InvalidInput",
            format!("Service {service} does not support service-linked roles, or the sandbox does not know them."),
        );
    };
    let name = match ask.input.text("CustomSuffix") {
        Some(suffix) => format!("{name}_{suffix}"),
        None => name.to_owned(),
    };
    if ask.state.store.iam.roles.get(&name).is_some() {
        return fail(
            "InvalidInput",
            format!("Service role name {name} has been taken in this account, please try a different suffix."),
        );
    }
    let description = ask.input.text("Description").map(str::to_owned);
    Ok(json!({"Role": roles::shown(&add(ask, &service, name, policy, description), true)}))
}

/// Makes the role that a service needs for itself, unless it is there.
pub fn ensure(ask: &mut Ask, service: &str, name: &str) {
    let known = SERVICES.into_iter().find(|(own, _, _)| *own == service);
    if let (Some((_, _, policy)), None) = (known, ask.state.store.iam.roles.get(name)) {
        add(ask, service, name.to_owned(), policy, None);
    }
}

fn add(ask: &mut Ask, service: &str, name: String, policy: &str, description: Option<String>) -> Role {
    let path = format!("/aws-service-role/{service}/");
    let trust = json!({
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}],
    });
    let attached = vec![format!("arn:aws:iam::aws:policy/aws-service-role/{policy}")];
    let role = Role {
        unique_id: format!("AROA{}", ids::upper(17)),
        arn: arn(ask, &format!("role{path}{name}")),
        name,
        path,
        trust: trust.to_string(),
        description,
        max_session_seconds: 3600,
        grants: Grants { attached, ..Grants::default() },
        tags: Default::default(),
        created: ask.now(),
    };
    ask.store().iam.roles.insert(role.clone());
    role
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let role = find::<Role>(ask)?;
    let (name, path) = (role.name.clone(), role.path.clone());
    let Some(under) = path.strip_prefix("/aws-service-role/") else {
        return fail("InvalidInput", format!("Role {name} is not a service-linked role."));
    };
    let task = format!("task/aws-service-role/{under}{name}");
    let task = format!("{task}/{}", number(ask, &task));
    ask.store().iam.roles.remove(&name);
    Ok(json!({"DeletionTaskId": task}))
}

/// Follows from the task's name, so that no task has to be kept to be known again.
fn number(ask: &Ask, task: &str) -> String {
    let digest = Sha256::digest(format!("{} {task}", ask.account).as_bytes());
    uuid::Builder::from_random_bytes(std::array::from_fn(|at| digest[at])).into_uuid().to_string()
}

pub fn deletion_status(ask: &mut Ask) -> Answer<Value> {
    let task = ask.input.required("DeletionTaskId")?;
    match task.rsplit_once('/') {
        Some((name, given)) if given == number(ask, name) => Ok(json!({"Status": "SUCCEEDED"})),
        _ => Err(no_such_entity(format!("Deletion task {task} cannot be found."))),
    }
}
