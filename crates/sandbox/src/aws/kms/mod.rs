//! KMS: keys, their policies and aliases, and what they encrypt.

mod aliases;
mod crypto;
mod keys;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::ask::{Ask, Tags};
use super::errors::{Answer, AwsError, fail};
use super::tables::object;
use super::tagging::TaggedService;
use super::wire::{Action, Protocol, Service};
use super::{Store, iam};
use crate::clock::SimTime;
use crate::table::Object;

pub static SERVICE: Service = Service {
    scope: "kms",
    protocol: Protocol::Json { target: "TrentService", content_type: "application/x-amz-json-1.1" },
    actions: &[
        Action::change("CreateKey", keys::create),
        Action::read("DescribeKey", keys::describe),
        Action::read("ListKeys", keys::list),
        Action::read("GetKeyPolicy", keys::get_policy),
        Action::change("PutKeyPolicy", keys::put_policy),
        Action::read("ListKeyPolicies", keys::list_policies),
        Action::read("GetKeyRotationStatus", keys::rotation_status),
        Action::change("EnableKeyRotation", keys::enable_rotation),
        Action::change("DisableKeyRotation", keys::disable_rotation),
        Action::change("UpdateKeyDescription", keys::update_description),
        Action::change("EnableKey", keys::enable),
        Action::change("DisableKey", keys::disable),
        Action::change("ScheduleKeyDeletion", keys::schedule_deletion),
        Action::change("CancelKeyDeletion", keys::cancel_deletion),
        Action::change("TagResource", keys::tag),
        Action::change("UntagResource", keys::untag),
        Action::read("ListResourceTags", keys::list_tags),
        Action::change("CreateAlias", aliases::create),
        Action::change("UpdateAlias", aliases::update),
        Action::change("DeleteAlias", aliases::delete),
        Action::read("ListAliases", aliases::list),
        Action::read("Encrypt", crypto::encrypt),
        Action::read("Decrypt", crypto::decrypt),
        Action::read("ReEncrypt", crypto::re_encrypt),
        Action::read("GenerateDataKey", crypto::generate_data_key),
        Action::read("GenerateDataKeyWithoutPlaintext", crypto::generate_hidden_data_key),
        Action::read("GenerateRandom", crypto::generate_random),
    ],
};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Key {
    pub id: String,
    pub region: String,
    pub arn: String,
    description: String,
    policy: String,
    enabled: bool,
    multi_region: bool,
    /// Days between rotations, where it is rotated.
    rotation_days: Option<i64>,
    created: SimTime,
    /// When it is gone, and after how many days it was to be.
    deletion: Option<(SimTime, i64)>,
    /// 32 bytes, in hexadecimal digits.
    material: String,
    tags: Tags,
}

impl Object for Key {
    const TYPE: &'static str = "aws.kms_key";

    fn id(&self) -> &str {
        &self.id
    }

    fn keys(&self) -> Vec<String> {
        vec![format!("region:{}", self.region), format!("arn:{}", self.arn)]
    }

    fn gone_at(&self) -> Option<SimTime> {
        self.deletion.map(|(at, _)| at)
    }

    fn ledger(&self, _: SimTime) -> Value {
        json!({"name": self.description, "region": self.region, "state": self.state()})
    }
}

impl Key {
    fn state(&self) -> &'static str {
        match (self.deletion, self.enabled) {
            (Some(_), _) => "PendingDeletion",
            (None, true) => "Enabled",
            (None, false) => "Disabled",
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Alias {
    /// ARN.
    id: String,
    name: String,
    region: String,
    key: String,
    created: SimTime,
    updated: SimTime,
}

object!(
    Alias,
    "aws.kms_alias",
    id,
    |this| vec![format!("region:{}", this.region), format!("key:{}", this.key)],
    json!({"name": this.name, "region": this.region})
);

super::tables::tables! { keys: Key, aliases: Alias }

/// Keys that AWS itself makes for a service when it first needs one: every region has them, and nobody can change them.
const AWS_ALIASES: [&str; 8] = [
    "alias/aws/ebs",
    "alias/aws/eks",
    "alias/aws/rds",
    "alias/aws/s3",
    "alias/aws/secretsmanager",
    "alias/aws/sns",
    "alias/aws/sqs",
    "alias/aws/ssm",
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The key behind an alias of AWS, which follows from account and region.
fn aws_key(region: &str, account: &str, alias: &str) -> Key {
    let digest = |what: &str| Sha256::digest(format!("{what} {account} {region} {alias}").as_bytes());
    let id = hex(&digest("id"));
    let id = format!("{}-{}-4{}-8{}-{}", &id[..8], &id[8..12], &id[12..15], &id[15..18], &id[18..30]);
    let service = alias.rsplit('/').next().unwrap_or_default();
    Key {
        arn: format!("arn:aws:kms:{region}:{account}:key/{id}"),
        id,
        region: region.to_owned(),
        description: format!("Default key that protects my {service} data when no other key is defined"),
        policy: default_policy(account),
        enabled: true,
        multi_region: false,
        rotation_days: Some(365),
        created: SimTime(1_577_836_800_000),
        deletion: None,
        material: hex(&digest("material")),
        tags: Tags::new(),
    }
}

fn default_policy(account: &str) -> String {
    json!({
        "Version": "2012-10-17",
        "Id": "key-default-1",
        "Statement": [{
            "Sid": "Enable IAM User Permissions",
            "Effect": "Allow",
            "Principal": {"AWS": format!("arn:aws:iam::{account}:root")},
            "Action": "kms:*",
            "Resource": "*",
        }],
    })
    .to_string()
}

/// A key and who manages it.
struct Found {
    key: Key,
    by_aws: bool,
}

/// The key that an id, an ARN or an alias means.
fn find(ask: &Ask, id: &str) -> Answer<Found> {
    let (store, region, account) = (&ask.state.store.kms, ask.region, ask.account);
    let prefix = format!("arn:aws:kms:{region}:{account}:");
    let name = id.strip_prefix(&prefix).unwrap_or(id);
    if name.starts_with("alias/") {
        if AWS_ALIASES.contains(&name) {
            return Ok(Found { key: aws_key(region, account, name), by_aws: true });
        }
        let arn = format!("{prefix}{name}");
        let key = store.aliases.get(&arn).and_then(|alias| store.keys.get(&alias.key));
        return match key {
            Some(key) => Ok(Found { key: key.clone(), by_aws: false }),
            None => fail("NotFoundException", format!("Alias {arn} is not found.")),
        };
    }
    let name = name.strip_prefix("key/").unwrap_or(name);
    if let Some(key) = store.keys.get(name).filter(|key| key.region == region) {
        return Ok(Found { key: key.clone(), by_aws: false });
    }
    let of_aws = AWS_ALIASES.iter().map(|alias| aws_key(region, account, alias)).find(|key| key.id == name);
    match of_aws {
        Some(key) => Ok(Found { key, by_aws: true }),
        None => fail("NotFoundException", format!("Key '{prefix}key/{name}' does not exist")),
    }
}

/// The key that the input names.
fn asked(ask: &Ask) -> Answer<Found> {
    find(ask, ask.input.required("KeyId").map_err(|_| missing("keyId"))?)
}

fn missing(member: &str) -> Box<AwsError> {
    let text = format!(
        "1 validation error detected: Value null at '{member}' failed to satisfy constraint: Member must not be null"
    );
    AwsError::new(400, "ValidationException", text)
}

/// Changes the key that the input names; those of AWS cannot be changed.
fn change(ask: &mut Ask, work: impl FnOnce(&mut Key)) -> Answer<()> {
    let Found { key, by_aws } = asked(ask)?;
    own(&key, by_aws)?;
    ask.store().kms.keys.update(&key.id, work);
    Ok(())
}

fn own(key: &Key, by_aws: bool) -> Answer<()> {
    match by_aws {
        true => fail(
            "UnsupportedOperationException",
            format!("You cannot perform this operation on AWS managed key {}.", key.arn),
        ),
        false => Ok(()),
    }
}

fn not_leaving(key: &Key) -> Answer<()> {
    match key.deletion {
        Some(_) => fail("KMSInvalidStateException", format!("{} is pending deletion.", key.arn)),
        None => Ok(()),
    }
}

/// The ARN of what an id means, for policies.
pub fn arn_of(ask: &Ask, id: &str) -> Option<String> {
    find(ask, id).ok().map(|found| found.key.arn)
}

pub fn policy_of(store: &Store, arn: &str) -> Option<String> {
    store.kms.keys.first(&format!("arn:{arn}")).map(|key| key.policy.clone())
}

fn check_policy(ask: &Ask) -> Answer<Option<String>> {
    let Some(text) = ask.input.text("Policy") else { return Ok(None) };
    match iam::parse_policy(text, iam::Attached::Resource) {
        Ok(_) => Ok(Some(text.to_owned())),
        Err(reason) => fail("MalformedPolicyDocumentException", reason),
    }
}

pub struct KmsTags;

impl TaggedService for KmsTags {
    fn list(&self, store: &Store, region: &str, _: &str) -> Vec<(String, Tags)> {
        store.kms.keys.find(&format!("region:{region}")).map(|key| (key.arn.clone(), key.tags.clone())).collect()
    }

    fn change(&self, store: &mut Store, arn: &str, change: &dyn Fn(&mut Tags)) -> bool {
        let id = store.kms.keys.first(&format!("arn:{arn}")).map(|key| key.id.clone());
        id.is_some_and(|id| store.kms.keys.update(&id, |key| change(&mut key.tags)).is_some())
    }
}
