//! One call of one action, whatever protocol it came by.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;

use super::errors::{Answer, AwsError};
use super::principal::Principal;
use super::{State, Store};
use crate::clock::SimTime;
use crate::http::{Call, Effects};
use crate::kube::KubeServer;
use crate::table::{Object, Table};

pub type Tags = BTreeMap<String, String>;

/// What an action sees and may change.
pub struct Ask<'a, 'w> {
    /// The service's name in the scope of a signature.
    pub service: &'static str,
    pub action: &'a str,
    pub input: Input,
    pub region: &'a str,
    /// The account's number.
    pub account: &'a str,
    pub principal: &'a Principal,
    pub state: &'a mut State<'w>,
    pub kube: &'a KubeServer,
    pub call: &'a Call,
    /// Whether IAM policies decide.
    pub enforce: bool,
    /// What the answer has besides its output, where the protocol has more.
    pub extra: Extra,
}

/// Status, headers and a body that is not a tree.
#[derive(Default)]
pub struct Extra {
    pub status: Option<u16>,
    pub headers: Vec<(Cow<'static, str>, String)>,
    /// Content type and bytes.
    pub body: Option<(String, Bytes)>,
}

impl Ask<'_, '_> {
    pub fn now(&self) -> SimTime {
        self.state.now
    }

    pub fn store(&mut self) -> &mut Store {
        self.state.store
    }

    pub fn effects(&self) -> &Effects {
        &self.call.effects
    }

    /// A moment in so many simulated seconds, picked from the range; now in an instant world.
    pub fn in_seconds(&mut self, from: u32, to: u32) -> SimTime {
        self.state.now.plus_ms(self.state.dice.seconds(from, to))
    }

    /// `arn:aws:SERVICE:REGION:ACCOUNT:RESOURCE`
    pub fn arn(&self, service: &str, resource: &str) -> String {
        format!("arn:aws:{service}:{}:{}:{resource}", self.region, self.account)
    }

    /// `http://HOST:PORT`, as the caller wrote it.
    pub fn base_url(&self) -> String {
        let host = self.call.headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or("127.0.0.1");
        format!("http://{host}")
    }

    /// The rows with a key, as old as a fault rule lets lists be.
    pub fn rows<'t, T: Object>(&'t self, of: impl FnOnce(&'t Store) -> &'t Table<T>, key: &str) -> Vec<&'t T> {
        of(self.state.store).behind(key, self.call.effects.lag)
    }
}

/// What was sent with a call: a tree, whose leaves are texts where it came as a form.
#[derive(Clone, Debug, Default)]
pub struct Input(pub Value);

impl Input {
    /// The value at `LaunchTemplateData.BlockDeviceMapping`; `None` where there is none, or a null.
    pub fn at(&self, path: &str) -> Option<&Value> {
        at(&self.0, path)
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        text(self.at(path)?)
    }

    pub fn required(&self, path: &str) -> Answer<&str> {
        self.text(path).filter(|text| !text.is_empty()).ok_or_else(|| AwsError::missing(path))
    }

    /// A list's texts; a single text counts as a list of one.
    pub fn texts(&self, path: &str) -> Vec<&str> {
        match self.at(path) {
            Some(Value::Array(items)) => items.iter().filter_map(text).collect(),
            Some(one) => text(one).into_iter().collect(),
            None => Vec::new(),
        }
    }

    pub fn list(&self, path: &str) -> Vec<Input> {
        match self.at(path) {
            Some(Value::Array(items)) => items.iter().cloned().map(Input).collect(),
            _ => Vec::new(),
        }
    }

    pub fn flag(&self, path: &str) -> Option<bool> {
        match self.at(path)? {
            Value::Bool(value) => Some(*value),
            Value::String(text) => Some(text.eq_ignore_ascii_case("true")),
            _ => None,
        }
    }

    pub fn int(&self, path: &str) -> Option<i64> {
        match self.at(path)? {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// A JSON map of texts, such as EKS's tags.
    pub fn map(&self, path: &str) -> Tags {
        let pairs = self.at(path).and_then(Value::as_object).into_iter().flatten();
        pairs.filter_map(|(key, value)| Some((key.clone(), text(value)?.to_owned()))).collect()
    }

    /// A list of key and value, such as IAM's tags.
    pub fn pairs(&self, path: &str, key: &str, value: &str) -> Tags {
        let items = self.list(path);
        let pair = |item: &Input| Some((item.text(key)?.to_owned(), item.text(value).unwrap_or_default().to_owned()));
        items.iter().filter_map(pair).collect()
    }
}

fn text(value: &Value) -> Option<&str> {
    value.as_str()
}

fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(value, |value, name| value.get(name)).filter(|value| !value.is_null())
}
