//! Key pairs: public keys that nodes are made with.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::filter::{Filter, one};
use super::resource::{Common, Cx, Names, Resource, kept, select_ids, shown, time};
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, AwsError, fail};
use crate::aws::ids;
use crate::clock::SimTime;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyPair {
    pub common: Common,
    pub name: String,
    /// `rsa` or `ed25519`.
    kind: String,
    fingerprint: String,
    public_key: String,
}

kept!(KeyPair, "aws.key_pair", key_pairs);

impl Resource for KeyPair {
    const NAMES: Names = Names {
        kind: "key-pair",
        prefix: "key",
        ids: "KeyPairId",
        set: "keySet",
        not_found: "InvalidKeyPair.NotFound",
        malformed: "InvalidKeyPair.NotFound",
        title: "The key pair '{}' does not exist",
        indexed: &[("key-name", "name")],
    };
    const FILTERS: &'static [Filter<KeyPair>] = &[
        ("key-name", |key, _| one(&key.name)),
        ("key-pair-id", |key, _| one(&key.common.id)),
        ("fingerprint", |key, _| one(&key.fingerprint)),
    ];

    fn indexes(&self) -> Vec<String> {
        vec![format!("name:{}", self.name)]
    }

    fn show(&self, _: &Cx) -> Value {
        json!({"keyPairId": self.common.id, "keyName": self.name, "keyType": self.kind,
               "keyFingerprint": self.fingerprint, "createTime": time(self.common.created)})
    }

    fn facts(&self, _: SimTime) -> Value {
        json!({"name": self.name})
    }
}

fn by_name<'a>(cx: &Cx<'a>, name: &str) -> Option<&'a KeyPair> {
    cx.store.key_pairs.find(&format!("name:{name}")).find(|key| key.common.region == cx.region)
}

fn absent(name: &str) -> Box<AwsError> {
    AwsError::new(400, "InvalidKeyPair.NotFound", format!("The key pair '{name}' does not exist"))
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let (cx, mut ids) = (Cx::of(ask), ask.input.texts("KeyPairId"));
    for name in ask.input.texts("KeyName") {
        ids.push(&by_name(&cx, name).ok_or_else(|| absent(name))?.common.id);
    }
    let with_key = ask.input.flag("IncludePublicKey") == Some(true);
    let show = |key: &KeyPair| {
        let mut shown = shown(key, &cx);
        if with_key {
            shown["publicKey"] = json!(key.public_key);
        }
        shown
    };
    Ok(json!({"keySet": select_ids::<KeyPair>(ask, &ids)?.into_iter().map(show).collect::<Vec<_>>()}))
}

pub fn import(ask: &mut Ask) -> Answer<Value> {
    let name = ask.input.required("KeyName")?.to_owned();
    let material = STANDARD.decode(ask.input.required("PublicKeyMaterial")?).unwrap_or_default();
    let Ok(public_key) = String::from_utf8(material) else {
        return fail("InvalidKey.Format", "Key is not in valid OpenSSH public key format");
    };
    let kind = match public_key.split_whitespace().next() {
        Some("ssh-rsa") => "rsa",
        Some("ssh-ed25519") => "ed25519",
        _ => return fail("InvalidKey.Format", "Key is not in valid OpenSSH public key format"),
    };
    if by_name(&Cx::of(ask), &name).is_some() {
        return fail("InvalidKeyPair.Duplicate", format!("The keypair '{name}' already exists."));
    }
    let digits = ids::stable(&public_key, 32);
    let pairs: Vec<&str> = (0..16).filter_map(|at| digits.get(at * 2..at * 2 + 2)).collect();
    let common = Common::asked(ask, "key", "key-pair")?;
    let key = KeyPair { common, name, kind: kind.into(), fingerprint: pairs.join(":"), public_key };
    let answer = shown(&key, &Cx::of(ask));
    ask.store().ec2.key_pairs.insert(key);
    let member = |name: &str| answer.get(name).cloned().unwrap_or(Value::Null);
    Ok(json!({"keyPairId": member("keyPairId"), "keyName": member("keyName"),
              "keyFingerprint": member("keyFingerprint"), "tagSet": member("tagSet")}))
}

/// A key that is not there is deleted all the same.
pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let cx = Cx::of(ask);
    let found = match (ask.input.text("KeyPairId"), ask.input.text("KeyName")) {
        (Some(id), _) => cx.get::<KeyPair>(id),
        (None, Some(name)) => by_name(&cx, name),
        (None, None) => return Err(AwsError::missing("KeyName")),
    };
    let id = found.map(|key| key.common.id.clone());
    if let Some(id) = &id {
        ask.store().ec2.key_pairs.remove(id);
    }
    Ok(json!({"return": true, "keyPairId": id}))
}
