//! What lands in the audit log. A change that went well is written by the store in the change's own transaction; everything
//! else (what was refused, and reads of secrets before they are answered) is written by the layer, from here.

use super::principal::Principal;
use crate::api::methods::Method;
use crate::fault::{Code, Fault};
use berth_model::ResourceId;
use berth_store::{Actor, AuditNote, Control};
use bytes::Bytes;
use jiff::Timestamp;
use prost_reflect::{DynamicMessage, Value};

/// The outcome of what was done.
pub const OK: &str = "ok";
/// Texts are cut here: a log of acts is not a store of what callers send.
const TEXT_CHARS_MAX: usize = 500;
/// Objects that one entry names.
const NAMED_MAX: usize = 10;
/// Length and flag before a gRPC message.
const FRAME_HEAD: usize = 5;

/// Methods whose success the store writes, with the change itself.
const WITH_THE_CHANGE: [&str; 11] = [
    "Resources.MoveAccount",
    "Resources.Apply",
    "Resources.Delete",
    "Resources.Import",
    "Resources.Approve",
    "Tasks.Cancel",
    "Access.CreateToken",
    "Access.RevokeToken",
    "Access.Login",
    "Access.Logout",
    "Access.RotateKeys",
];
/// Audited only where secrets are asked for.
const WITH_SECRETS: &str = "Resources.Outputs";

/// What a request says about itself, for its entry in the audit log.
#[derive(Debug, Default, PartialEq, Eq)]
struct AuditDetail {
    /// The objects that it is about.
    target: String,
    detail: String,
    /// Whether it asks for secrets.
    secrets: bool,
}

/// How a resource is named in the log.
pub fn target(id: &ResourceId) -> String {
    named(&id.kind, &id.name, &id.org, &id.env)
}

/// Several resources.
pub fn targets<'i>(ids: impl IntoIterator<Item = &'i ResourceId>) -> String {
    many(ids.into_iter().map(target).collect())
}

/// A note of something that was done, for the store to write with it.
pub fn note(action: &str, target: impl Into<String>, detail: impl Into<String>) -> AuditNote {
    AuditNote { action: action.into(), target: cut(target.into()), detail: cut(detail.into()), outcome: OK.into() }
}

fn named(kind: &str, name: &str, org: &str, env: &str) -> String {
    match (org, env) {
        ("", "") => format!("{kind}/{name}"),
        ("", env) => format!("{kind}/{name} (env {env})"),
        (org, "") => format!("{kind}/{name} (org {org})"),
        (org, env) => format!("{kind}/{name} ({org}/{env})"),
    }
}

fn many(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(NAMED_MAX);
    names.truncate(NAMED_MAX);
    let mut text = names.join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

fn cut(text: String) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// Whether a body is one message and nothing else, uncompressed: only then is what is described what the method reads.
pub(crate) fn is_one_message(body: &[u8]) -> bool {
    let Some((head, message)) = body.split_at_checked(FRAME_HEAD) else { return false };
    head[0] == 0 && u32::try_from(message.len()).is_ok_and(|length| head[1..] == length.to_be_bytes())
}

/// One call to an audited method.
pub(crate) struct Call<'c> {
    pub method: &'static Method,
    pub body: &'c Bytes,
    /// Who calls, or from where.
    pub actor: Actor,
}

impl<'c> Call<'c> {
    pub fn by(principal: &Principal) -> Actor {
        principal.actor.clone()
    }

    /// Writes what is not written yet. An error only where the answer must not be sent for it.
    pub async fn write(&self, control: &Control, failure: Option<&Fault>) -> Result<(), Fault> {
        let outcome = match failure {
            None if WITH_THE_CHANGE.contains(&self.method.label.as_str()) => return Ok(()),
            None => OK,
            // What was not understood was not attempted.
            Some(fault)
                if matches!(
                    fault.code,
                    Code::InvalidArgument | Code::InvalidManifest | Code::TooLarge | Code::TooMany
                ) =>
            {
                return Ok(());
            }
            Some(fault) => fault.code.name(),
        };
        let AuditDetail { target, detail, secrets } = self.describe();
        if self.method.label == WITH_SECRETS && !secrets {
            return Ok(());
        }
        let note = AuditNote {
            action: self.method.audit.clone(),
            target: cut(target),
            detail: cut(detail),
            outcome: outcome.into(),
        };
        match control.audit(note, &self.actor, Timestamp::now()).await {
            Ok(()) => Ok(()),
            Err(error) => {
                tracing::error!(%error, action = self.method.audit, "an entry of the audit log could not be written");
                match failure {
                    Some(_) => Ok(()),
                    None => Err(Fault::new(Code::Unavailable, "the audit log cannot be written just now")
                        .help("try again in a moment: without it nothing is answered")),
                }
            }
        }
    }

    /// From the request alone. A message that cannot be decoded counts as one that asks for secrets.
    fn describe(&self) -> AuditDetail {
        let message = self.body.get(FRAME_HEAD..);
        let message = message.and_then(|bytes| DynamicMessage::decode(self.method.descriptor.input(), bytes).ok());
        let Some(message) = message else { return AuditDetail { secrets: true, ..AuditDetail::default() } };
        let text = |name: &str| text(&message, name);
        let secrets = list(&message, "secrets", |value| value.as_str().map(str::to_owned));
        let detail = match secrets.is_empty() {
            true => String::new(),
            false => format!("secrets {}", many(secrets.clone())),
        };
        let named = |value: &Value| {
            let id = value.as_message()?;
            let text = |name: &str| self::text(id, name);
            Some(named(&text("kind"), &text("name"), &text("org"), &text("env")))
        };
        let (kind, name, id) = (text("kind"), text("name"), text("id"));
        let target = if self.method.label == "Access.CreateToken" {
            let detail = format!("role {}", text("role"));
            return AuditDetail { target: format!("token {name}"), detail, secrets: false };
        } else if !kind.is_empty() && !name.is_empty() {
            self::named(&kind, &name, &text("org"), &text("env"))
        } else if !id.is_empty() {
            id
        } else {
            let mut all = list(&message, "files", |value| Some(self::text(value.as_message()?, "name")));
            all.extend(list(&message, "ids", named));
            all.extend(list(&message, "delete", named));
            all.extend(Some(text("provider")).filter(|provider| !provider.is_empty()));
            many(all)
        };
        AuditDetail { target, detail, secrets: !secrets.is_empty() }
    }
}

fn text(message: &DynamicMessage, name: &str) -> String {
    let value = message.get_field_by_name(name);
    value.as_deref().and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn list(message: &DynamicMessage, name: &str, of: impl Fn(&Value) -> Option<String>) -> Vec<String> {
    let value = message.get_field_by_name(name);
    value.as_deref().and_then(Value::as_list).into_iter().flatten().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::methods::methods;
    use crate::pb;
    use prost::Message;

    fn described(method: &str, message: &impl Message) -> AuditDetail {
        let mut body = vec![0; FRAME_HEAD];
        body.extend(message.encode_to_vec());
        let method = methods().all().iter().find(|known| known.label == method).unwrap();
        let call = Call { method, body: &body.into(), actor: Actor::new("token:t") };
        call.describe()
    }

    #[test]
    fn requests_tell_what_they_are_about_and_never_a_secret() {
        let get = pb::GetRequest { kind: "CivoVpc".into(), name: "net".into(), org: "shop".into(), env: "dev".into() };
        assert_eq!(described("Resources.Kubeconfig", &get).target, "CivoVpc/net (shop/dev)");
        let outputs = pb::OutputsRequest {
            kind: "A".into(),
            name: "b".into(),
            secrets: vec!["password".into()],
            ..Default::default()
        };
        let expected = AuditDetail { target: "A/b".into(), detail: "secrets password".into(), secrets: true };
        assert_eq!(described("Resources.Outputs", &outputs), expected);
        let file = pb::ManifestFile { name: "shop.yaml".into(), text: "token: hush".into() };
        let plan = pb::PlanRequest { files: vec![file], ..Default::default() };
        assert_eq!(described("Resources.Plan", &plan).target, "shop.yaml");
        let login = pb::LoginRequest { id_token: "hush".into(), nonce: "hush".into() };
        assert_eq!(described("Access.Login", &login), AuditDetail::default());
        let ids = (0..12).map(|n| pb::ResourceId { kind: "K".into(), name: n.to_string(), ..Default::default() });
        let drift = pb::DriftRequest { ids: ids.collect(), ..Default::default() };
        assert!(described("Resources.Drift", &drift).target.ends_with("K/9 and 2 more"));
    }

    #[test]
    fn a_body_that_is_cut_off_is_described_as_nothing() {
        for body in [&b""[..], &[0, 0], &[0, 0, 0, 0, 9, 0xff]] {
            let method = methods().at("/berth.api.v1.Resources/Outputs").unwrap();
            let body = Bytes::copy_from_slice(body);
            let call = Call { method, body: &body, actor: Actor::new("t") };
            assert_eq!(call.describe(), AuditDetail { secrets: true, ..AuditDetail::default() });
            assert!(!is_one_message(&body));
        }
        assert!(is_one_message(&[0, 0, 0, 0, 0]) && is_one_message(&[0, 0, 0, 0, 1, 8]));
        for body in [&[1, 0, 0, 0, 0][..], &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert!(!is_one_message(body), "compressed, or more than one");
        }
    }

    #[test]
    fn what_the_store_writes_is_audited_by_name() {
        for label in WITH_THE_CHANGE.iter().chain([&WITH_SECRETS]) {
            let method = methods().all().iter().find(|method| method.label == **label);
            assert!(method.is_some_and(|method| !method.audit.is_empty()), "{label}");
        }
    }
}
