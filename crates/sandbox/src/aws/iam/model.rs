//! What IAM holds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::aws::ask::Tags;
use crate::aws::tables::object;
use crate::clock::SimTime;

/// The policies of a role, user or group.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Grants {
    /// Documents by name.
    pub inline: BTreeMap<String, String>,
    /// ARNs, in the order of their attachment.
    pub attached: Vec<String>,
    /// The ARN of the permissions boundary.
    pub boundary: Option<String>,
}

impl Grants {
    fn keys(&self, out: &mut Vec<String>) {
        out.extend(self.attached.iter().map(|arn| format!("attached:{arn}")));
        out.extend(self.boundary.iter().map(|arn| format!("boundary:{arn}")));
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Role {
    pub name: String,
    /// `AROA…`
    pub unique_id: String,
    pub path: String,
    pub arn: String,
    pub trust: String,
    pub description: Option<String>,
    pub max_session_seconds: i64,
    pub grants: Grants,
    pub tags: Tags,
    pub created: SimTime,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct User {
    pub name: String,
    /// `AIDA…`
    pub unique_id: String,
    pub path: String,
    pub arn: String,
    pub grants: Grants,
    pub groups: Vec<String>,
    pub tags: Tags,
    pub created: SimTime,
    /// Whether there is a password for the console, and whether it must be changed.
    pub login_profile: Option<(SimTime, bool)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Group {
    pub name: String,
    /// `AGPA…`
    pub unique_id: String,
    pub path: String,
    pub arn: String,
    pub grants: Grants,
    pub created: SimTime,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccessKey {
    /// `AKIA…`
    pub id: String,
    pub secret: String,
    pub user: String,
    pub active: bool,
    pub created: SimTime,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolicyVersion {
    /// `v1`
    pub id: String,
    pub document: String,
    pub created: SimTime,
}

/// A policy of the account's own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ManagedPolicy {
    pub arn: String,
    pub name: String,
    /// `ANPA…`
    pub unique_id: String,
    pub path: String,
    pub description: Option<String>,
    pub versions: Vec<PolicyVersion>,
    pub default_version: String,
    pub next_version: u32,
    pub tags: Tags,
    pub created: SimTime,
    pub updated: SimTime,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InstanceProfile {
    pub name: String,
    /// `AIPA…`
    pub unique_id: String,
    pub path: String,
    pub arn: String,
    /// The name of its role; there can be one.
    pub role: Option<String>,
    pub tags: Tags,
    pub created: SimTime,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OidcProvider {
    pub arn: String,
    /// Without `https://`.
    pub url: String,
    pub client_ids: Vec<String>,
    pub thumbprints: Vec<String>,
    pub tags: Tags,
    pub created: SimTime,
}

/// Names that differ only in their letters' case are the same name.
pub fn name_key(name: &str) -> String {
    format!("name:{}", name.to_lowercase())
}

fn grantee_keys(name: &str, grants: &Grants) -> Vec<String> {
    let mut keys = vec![name_key(name)];
    grants.keys(&mut keys);
    keys
}

object!(
    Role,
    "aws.iam_role",
    name,
    |this| grantee_keys(&this.name, &this.grants),
    json!({"name": this.name, "arn": this.arn, "default": this.path.starts_with("/aws-service-role/")})
);
object!(
    User,
    "aws.iam_user",
    name,
    |this| {
        let mut keys = grantee_keys(&this.name, &this.grants);
        keys.extend(this.groups.iter().map(|group| format!("group:{group}")));
        keys
    },
    json!({"name": this.name, "arn": this.arn})
);
object!(
    Group,
    "aws.iam_group",
    name,
    |this| grantee_keys(&this.name, &this.grants),
    json!({"name": this.name, "arn": this.arn})
);
object!(AccessKey, "aws.iam_access_key", id, |this| vec![format!("user:{}", this.user)], json!({"user": this.user}));
object!(ManagedPolicy, "aws.iam_policy", arn, |this| vec![name_key(&this.name)], json!({"name": this.name}));
object!(
    InstanceProfile,
    "aws.iam_instance_profile",
    name,
    |this| {
        let mut keys = vec![name_key(&this.name)];
        keys.extend(this.role.iter().map(|role| format!("role:{role}")));
        keys
    },
    json!({"name": this.name, "arn": this.arn})
);
object!(OidcProvider, "aws.iam_oidc_provider", arn, |this| vec![], json!({"url": this.url}));

/// A name for the account.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccountAlias {
    pub name: String,
}

object!(AccountAlias, "aws.iam_account_alias", name, |this| vec![], json!({"name": this.name}));
