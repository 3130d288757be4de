//! Encodes the input of callers for the database: sizes are checked and secrets are sealed. Runs and servers share it.

use crate::error::StoreError;
use crate::row_writes::{ResourceRow, RowWrite, StatusRow, UnitAfter, UnitRow};
use crate::run::NewResource;
use crate::seal::Sealer;
use crate::sealed_place::{SealNumber, SealedPlace};
use berth_engine::record::{Closing, EntryId, Intent, Status};
use berth_engine::unit::{Op, Props, UnitState};
use berth_model::ResourceId;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// JSON of one manifest, or of one unit's properties.
pub(crate) const JSON_BYTES_MAX: usize = 4 << 20;
/// One secret; kubeconfigs are some 10 KiB.
pub(crate) const SECRET_BYTES_MAX: usize = 1 << 20;
/// Texts for people are cut, not refused: losing the write would be worse.
pub(crate) const TEXT_BYTES_MAX: usize = 16 << 10;

/// Makes rows, with the secrets sealed by the state's key.
#[derive(Clone, Copy)]
pub(crate) struct Encoder<'a> {
    pub sealer: &'a Sealer,
}

/// Empty secrets in a unit or status mean "as they are": bulk reads leave them out, so writing such a unit back must not
/// lose them.
impl Encoder<'_> {
    pub fn resource(&self, resource: NewResource) -> Result<ResourceRow, StoreError> {
        let NewResource { id, api_version, mut manifest, secrets, source } = resource;
        let digest = self.sealer.digest(&manifest);
        let number = SealNumber::draw()?;
        for pointer in &secrets {
            match manifest.pointer_mut(pointer) {
                Some(Value::String(clear)) => {
                    check(&id, "a secret", clear.len(), SECRET_BYTES_MAX)?;
                    let sealed = self.sealer.seal(&SealedPlace::manifest(&id, pointer, number), clear)?;
                    drop(Zeroizing::new(std::mem::replace(clear, sealed)));
                }
                // Writing on would leave a secret in the clear that the caller believes to be sealed.
                _ => {
                    return Err(StoreError::Corrupt {
                        of: format!("the manifest of {id}"),
                        cause: format!("no text at {pointer}, where a secret should be"),
                    });
                }
            }
        }
        let sealed_paths = if secrets.is_empty() { String::new() } else { Value::from(secrets).to_string() };
        let manifest = manifest.to_string();
        check(&id, "the manifest", manifest.len(), JSON_BYTES_MAX)?;
        Ok(ResourceRow {
            api_version,
            manifest,
            manifest_seal: number.0,
            sealed_paths,
            digest,
            source_file: source.file,
            source_document: source.document,
            id,
        })
    }

    pub fn unit(&self, unit: &UnitState) -> Result<Box<UnitRow>, StoreError> {
        let id = &unit.resource;
        let number = SealNumber::draw()?;
        let secrets =
            self.seal(id, &unit.secrets, |name| SealedPlace::unit(id, &unit.key, &unit.token, name, number))?;
        Ok(Box::new(UnitRow {
            resource: id.clone(),
            key: unit.key.clone(),
            token: unit.token.clone(),
            unit_type: unit.unit_type.clone(),
            scope: unit.scope.clone(),
            account: unit.account.clone(),
            identity: unit.identity.as_ref().map(|identity| cut(identity.text().to_owned())).unwrap_or_default(),
            object_id: unit.id.clone(),
            deposed: unit.deposed,
            ready: unit.ready,
            props: json(id, &unit.props)?,
            outputs: json(id, &unit.outputs)?,
            secrets,
            secrets_seal: number.0,
        }))
    }

    fn seal(
        &self,
        id: &ResourceId,
        secrets: &BTreeMap<String, SecretString>,
        place: impl Fn(&str) -> SealedPlace,
    ) -> Result<String, StoreError> {
        for (name, secret) in secrets {
            check(id, name, secret.expose_secret().len(), SECRET_BYTES_MAX)?;
        }
        self.sealer.seal_all(secrets, place)
    }

    pub fn intent(&self, intent: Intent) -> Result<RowWrite, StoreError> {
        let unit = self.unit(&intent.unit)?;
        let creates = intent.unit.id.is_none() && matches!(intent.op, Op::Create | Op::Replace | Op::Adopt);
        Ok(RowWrite::Intent { op: intent.op.as_str(), creates, what: cut(intent.what), unit })
    }

    pub fn close(&self, entry: EntryId, closing: Closing) -> Result<RowWrite, StoreError> {
        let (outcome, detail, after) = match closing {
            Closing::Done(Some(unit)) => ("done", String::new(), UnitAfter::Save(self.unit(&unit)?)),
            Closing::Done(None) => ("done", String::new(), UnitAfter::Gone),
            Closing::Failed(detail) => ("failed", cut(detail), UnitAfter::Keep),
            Closing::Refused(detail) => ("refused", cut(detail), UnitAfter::Undo),
        };
        Ok(RowWrite::Close { entry: entry.0, outcome, detail, after })
    }

    pub fn status(&self, resource: &ResourceId, status: &Status) -> Result<RowWrite, StoreError> {
        let names: Vec<&String> = status.secrets.keys().collect();
        let number = SealNumber::draw()?;
        let row = StatusRow {
            secret_names: serde_json::to_string(&names).map_err(|error| StoreError::Database(error.to_string()))?,
            secrets: self.seal(resource, &status.secrets, |name| SealedPlace::status(resource, name, number))?,
            secrets_seal: number.0,
            outputs: json(resource, &status.outputs)?,
            facts: json(resource, &status.facts)?,
            state: status.state,
            message: cut(status.message.clone()),
            observed_generation: status.observed_generation,
        };
        Ok(RowWrite::Status { resource: resource.clone(), status: Box::new(row) })
    }

    pub fn event(&self, resource: &ResourceId, what: &str, detail: &str) -> RowWrite {
        RowWrite::Event { resource: resource.clone(), what: cut(what.into()), detail: cut(detail.into()) }
    }
}

fn json(id: &ResourceId, props: &Props) -> Result<String, StoreError> {
    let text = serde_json::to_string(props).map_err(|error| StoreError::Database(error.to_string()))?;
    check(id, "a unit's or status's properties", text.len(), JSON_BYTES_MAX)?;
    Ok(text)
}

pub(crate) fn check(id: &ResourceId, what: &str, bytes: usize, limit: usize) -> Result<(), StoreError> {
    if bytes > limit { Err(too_large(&format!("{what} of {id}"), bytes, limit)) } else { Ok(()) }
}

pub(crate) fn check_count(what: &str, count: usize, limit: usize) -> Result<(), StoreError> {
    if count > limit { Err(too_large(what, count, limit)) } else { Ok(()) }
}

pub(crate) fn too_large(what: &str, bytes: usize, limit: usize) -> StoreError {
    StoreError::TooLarge { what: what.to_owned(), bytes, limit }
}

pub(crate) fn cut(mut text: String) -> String {
    // PostgreSQL keeps none in a text.
    if text.contains('\0') {
        text = text.replace('\0', "\u{fffd}");
    }
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("short".into()), "short");
        let long = cut("ü".repeat(TEXT_BYTES_MAX));
        assert!(long.len() <= TEXT_BYTES_MAX && long.ends_with('ü'));
        assert_eq!(cut("a\0b".into()), "a\u{fffd}b");
    }
}
