//! Which permission a call needs, and on which resources, as policies name them.

use serde_json::Value;

use super::ask::{Ask, Tags};
use super::iam::evaluate::Context;

/// Prefixes of EC2's ids, and the types of their ARNs.
const EC2_TYPES: [(&str, &str); 16] = [
    ("vpc-", "vpc"),
    ("subnet-", "subnet"),
    ("igw-", "internet-gateway"),
    ("eigw-", "egress-only-internet-gateway"),
    ("eipalloc-", "elastic-ip"),
    ("nat-", "natgateway"),
    ("rtb-", "route-table"),
    ("acl-", "network-acl"),
    ("sg-", "security-group"),
    ("sgr-", "security-group-rule"),
    ("vpce-", "vpc-endpoint"),
    ("lt-", "launch-template"),
    ("eni-", "network-interface"),
    ("pl-", "prefix-list"),
    ("dopt-", "dhcp-options"),
    ("i-", "instance"),
];

/// What calls of EC2 make, and the types of their ARNs.
const EC2_MADE: [(&str, &str); 13] = [
    ("CreateVpc", "vpc"),
    ("CreateSubnet", "subnet"),
    ("CreateInternetGateway", "internet-gateway"),
    ("CreateEgressOnlyInternetGateway", "egress-only-internet-gateway"),
    ("AllocateAddress", "elastic-ip"),
    ("CreateNatGateway", "natgateway"),
    ("CreateRouteTable", "route-table"),
    ("CreateNetworkAcl", "network-acl"),
    ("CreateSecurityGroup", "security-group"),
    ("CreateVpcEndpoint", "vpc-endpoint"),
    ("CreateLaunchTemplate", "launch-template"),
    ("CreateDhcpOptions", "dhcp-options"),
    ("CreateManagedPrefixList", "prefix-list"),
];

/// Such as `ec2:CreateVpc`.
pub fn action(ask: &Ask) -> String {
    let (service, name) = (ask.service, ask.action);
    match service {
        "s3" => format!("s3:{}", s3_permission(name)),
        "tagging" => format!("tag:{name}"),
        _ => format!("{service}:{name}"),
    }
}

/// Permissions of S3 that are named otherwise than the action.
fn s3_permission(action: &str) -> &str {
    match action {
        "HeadBucket" | "ListObjects" | "ListObjectsV2" => "ListBucket",
        "ListBuckets" => "ListAllMyBuckets",
        "HeadObject" => "GetObject",
        "ListObjectVersions" => "ListBucketVersions",
        "CopyObject" | "CreateMultipartUpload" | "UploadPart" | "UploadPartCopy" | "CompleteMultipartUpload" => {
            "PutObject"
        }
        "ListParts" => "ListMultipartUploadParts",
        "ListMultipartUploads" => "ListBucketMultipartUploads",
        "DeleteObjects" => "DeleteObject",
        "GetBucketEncryption" => "GetEncryptionConfiguration",
        "PutBucketEncryption" | "DeleteBucketEncryption" => "PutEncryptionConfiguration",
        "GetBucketLifecycleConfiguration" => "GetLifecycleConfiguration",
        "PutBucketLifecycleConfiguration" | "DeleteBucketLifecycle" => "PutLifecycleConfiguration",
        "GetPublicAccessBlock" => "GetBucketPublicAccessBlock",
        "PutPublicAccessBlock" | "DeletePublicAccessBlock" => "PutBucketPublicAccessBlock",
        "DeleteBucketOwnershipControls" => "PutBucketOwnershipControls",
        "DeleteBucketTagging" => "PutBucketTagging",
        "GetBucketCors" => "GetBucketCORS",
        "PutBucketCors" | "DeleteBucketCors" => "PutBucketCORS",
        "GetBucketAccelerateConfiguration" => "GetAccelerateConfiguration",
        "PutBucketAccelerateConfiguration" => "PutAccelerateConfiguration",
        "GetBucketReplication" => "GetReplicationConfiguration",
        "PutBucketReplication" | "DeleteBucketReplication" => "PutReplicationConfiguration",
        "GetObjectLockConfiguration" => "GetBucketObjectLockConfiguration",
        "PutObjectLockConfiguration" => "PutBucketObjectLockConfiguration",
        "GetBucketNotificationConfiguration" => "GetBucketNotification",
        "PutBucketNotificationConfiguration" => "PutBucketNotification",
        other => other,
    }
}

/// The ARNs that a call is about; `*` where it names none.
pub fn resources(ask: &Ask) -> Vec<String> {
    let found = match ask.service {
        "ec2" => ec2(ask),
        "eks" => eks(ask),
        "iam" | "sts" => iam(ask),
        "s3" => s3(ask),
        "kms" => ask
            .input
            .text("KeyId")
            .or(ask.input.text("TargetKeyId"))
            .and_then(|id| super::kms::arn_of(ask, id))
            .into_iter()
            .collect(),
        "sqs" => sqs(ask),
        "logs" => logs(ask),
        "events" => events(ask),
        _ => Vec::new(),
    };
    if found.is_empty() { vec!["*".to_owned()] } else { found }
}

fn ec2(ask: &Ask) -> Vec<String> {
    if ask.action.starts_with("Describe") || ask.action.starts_with("Get") {
        return Vec::new();
    }
    let made = EC2_MADE.iter().find(|(action, _)| *action == ask.action);
    let mut found: Vec<String> = made.map(|(_, kind)| ask.arn("ec2", &format!("{kind}/*"))).into_iter().collect();
    let mut ids = Vec::new();
    leaves(&ask.input.0, &mut ids);
    for id in ids {
        let kind = EC2_TYPES.iter().find(|(prefix, _)| id.starts_with(prefix));
        found.extend(kind.map(|(_, kind)| ask.arn("ec2", &format!("{kind}/{id}"))));
    }
    found.dedup();
    found
}

/// Texts of an input, but for those of tags and filters.
fn leaves<'v>(value: &'v Value, out: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => out.push(text),
        Value::Array(items) => items.iter().for_each(|item| leaves(item, out)),
        Value::Object(map) => {
            let wanted =
                |name: &&String| !["Tag", "TagSpecification", "Filter", "ClientToken"].contains(&name.as_str());
            map.iter().filter(|(name, _)| wanted(name)).for_each(|(_, value)| leaves(value, out));
        }
        _ => {}
    }
}

fn eks(ask: &Ask) -> Vec<String> {
    let text = |name: &str| ask.input.text(name);
    if let Some(arn) = text("resourceArn") {
        return vec![arn.to_owned()];
    }
    let Some(cluster) = text("clusterName").or(text("name")) else {
        return match ask.action {
            "ListClusters" => vec![ask.arn("eks", "cluster/*")],
            _ => Vec::new(),
        };
    };
    let resource = if let (true, Some(group)) = (ask.action.contains("Nodegroup"), text("nodegroupName")) {
        format!("nodegroup/{cluster}/{group}/*")
    } else if let (true, Some(addon)) = (ask.action.contains("Addon"), text("addonName")) {
        format!("addon/{cluster}/{addon}/*")
    } else if let (true, Some(id)) = (ask.action.contains("PodIdentity"), text("associationId")) {
        format!("podidentityassociation/{cluster}/{id}")
    } else {
        format!("cluster/{cluster}")
    };
    vec![ask.arn("eks", &resource)]
}

fn iam(ask: &Ask) -> Vec<String> {
    let text = |name: &str| ask.input.text(name);
    let tables = &ask.state.store.iam;
    let new =
        |kind: &str, name: &str| format!("arn:aws:iam::{}:{kind}{}{name}", ask.account, text("Path").unwrap_or("/"));
    let found = if let Some(name) = text("InstanceProfileName") {
        tables.profiles.get(name).map_or_else(|| new("instance-profile", name), |profile| profile.arn.clone())
    } else if let Some(name) = text("RoleName") {
        tables.roles.get(name).map_or_else(|| new("role", name), |role| role.arn.clone())
    } else if let Some(name) = text("GroupName") {
        tables.groups.get(name).map_or_else(|| new("group", name), |group| group.arn.clone())
    } else if let Some(name) = text("UserName") {
        tables.users.get(name).map_or_else(|| new("user", name), |user| user.arn.clone())
    } else if let (Some(name), "CreatePolicy") = (text("PolicyName"), ask.action) {
        new("policy", name)
    } else if let Some(url) = text("Url") {
        format!("arn:aws:iam::{}:oidc-provider/{}", ask.account, url.trim_start_matches("https://"))
    } else {
        let given = ["PolicyArn", "OpenIDConnectProviderArn", "RoleArn", "PolicySourceArn"];
        return given.into_iter().find_map(text).map(str::to_owned).into_iter().collect();
    };
    vec![found]
}

fn s3(ask: &Ask) -> Vec<String> {
    let Some(bucket) = ask.input.text("Bucket") else { return Vec::new() };
    let object = |key: &str| format!("arn:aws:s3:::{bucket}/{key}");
    match (ask.input.text("Key"), ask.action) {
        (Some(key), _) => vec![object(key)],
        (None, "DeleteObjects") => vec![object("*")],
        (None, _) => vec![format!("arn:aws:s3:::{bucket}")],
    }
}

fn sqs(ask: &Ask) -> Vec<String> {
    let name = ask.input.text("QueueName").or(ask.input.text("QueueUrl").and_then(|url| url.rsplit('/').next()));
    name.map(|name| ask.arn("sqs", name)).into_iter().collect()
}

fn logs(ask: &Ask) -> Vec<String> {
    let given =
        ask.input.text("resourceArn").or(ask.input.text("logGroupIdentifier").filter(|id| id.starts_with("arn:")));
    match (given, ask.input.text("logGroupName")) {
        (Some(arn), _) => vec![arn.to_owned()],
        (None, Some(name)) => vec![ask.arn("logs", &format!("log-group:{name}"))],
        (None, None) => vec![ask.arn("logs", "log-group:")],
    }
}

fn events(ask: &Ask) -> Vec<String> {
    if let Some(arn) = ask.input.text("ResourceARN") {
        return vec![arn.to_owned()];
    }
    let bus = ask.input.text("EventBusName").filter(|bus| *bus != "default");
    let name = ask.input.text("Rule").or(ask.input.text("Name"));
    let resource = name.map(|name| match bus {
        _ if ask.action.contains("EventBus") => format!("event-bus/{name}"),
        Some(bus) => format!("rule/{bus}/{name}"),
        None => format!("rule/{name}"),
    });
    resource.map(|resource| ask.arn("events", &resource)).into_iter().collect()
}

/// The policy of a bucket, key or queue.
pub fn policy(ask: &Ask, resource: &str) -> Option<String> {
    let store = &ask.state.store;
    if let Some(rest) = resource.strip_prefix("arn:aws:s3:::") {
        let bucket = rest.split('/').next().unwrap_or(rest);
        return super::s3::policy_of(store, bucket);
    }
    match resource.split(':').nth(2)? {
        "kms" => super::kms::policy_of(store, resource),
        "sqs" => super::sqs::policy_of(store, resource),
        _ => None,
    }
}

/// The tags of what a call is about.
pub fn tags(ask: &Ask, resource: &str) -> Tags {
    let iam = &ask.state.store.iam;
    let name = resource.rsplit('/').next().unwrap_or_default();
    match resource.split(':').nth(2) {
        Some("iam") => {
            let role = iam.roles.get(name).filter(|role| role.arn == resource).map(|role| &role.tags);
            let user = || iam.users.get(name).filter(|user| user.arn == resource).map(|user| &user.tags);
            let policy = || iam.policies.get(resource).map(|policy| &policy.tags);
            role.or_else(user).or_else(policy).cloned().unwrap_or_default()
        }
        Some(_) => super::tagging::tags_of(ask, resource.trim_end_matches("/*")),
        None => Tags::new(),
    }
}

/// The tags that a call gives, in whichever form its service has them.
pub fn request_tags(ask: &Ask) -> Tags {
    let input = &ask.input;
    let mut tags = input.pairs("Tags", "Key", "Value");
    tags.extend(input.pairs("Tags", "TagKey", "TagValue"));
    tags.extend(input.pairs("Tag", "Key", "Value"));
    for specification in input.list("TagSpecification") {
        tags.extend(specification.pairs("Tag", "Key", "Value"));
    }
    tags.extend(input.map("tags"));
    tags
}

/// Keys that only one service has.
pub fn own_keys(ask: &Ask, context: &mut Context) {
    let input = &ask.input;
    match ask.service {
        "iam" => {
            for (key, member) in [
                ("iam:PermissionsBoundary", "PermissionsBoundary"),
                ("iam:PolicyARN", "PolicyArn"),
                ("iam:AWSServiceName", "AWSServiceName"),
            ] {
                if let Some(value) = input.text(member) {
                    context.set(key, value);
                }
            }
        }
        "ec2" => {
            context.set("ec2:Region", ask.region);
            if let Some((action, _)) = EC2_MADE.iter().find(|(action, _)| *action == ask.action) {
                context.set("ec2:CreateAction", *action);
            }
        }
        "s3" => {
            for (key, member) in [
                ("s3:prefix", "prefix"),
                ("s3:delimiter", "delimiter"),
                ("s3:max-keys", "max-keys"),
                ("s3:VersionId", "versionId"),
            ] {
                if let Some(value) = ask.call.query(member) {
                    context.set(key, value);
                }
            }
        }
        "eks" => {
            if let Some(cluster) = input.text("clusterName").or(input.text("name")) {
                context.set("eks:clusterName", cluster);
            }
        }
        _ => {}
    }
}
