//! Earlier generations, with their secrets opened.

use super::types::Revision;
use crate::error::StoreError;
use crate::rows::parse;
use crate::sealed_place::SealedPlace;
use crate::store::Store;
use secrecy::ExposeSecret;
use serde_json::Value;

impl Store {
    /// An earlier generation's manifest with its secrets opened: for the moment of use only, never to be kept or shown.
    pub fn unseal_revision(&self, revision: &Revision) -> Result<Value, StoreError> {
        let of = || format!("the manifest of {}", revision.id);
        let mut manifest: Value = parse(&revision.manifest, of)?;
        let pointers: Vec<String> = match revision.sealed_paths.as_str() {
            "" => Vec::new(),
            paths => parse(paths, of)?,
        };
        for pointer in pointers {
            let sealed = || StoreError::Sealed { of: revision.id.to_string() };
            let slot = manifest.pointer_mut(&pointer).ok_or_else(sealed)?;
            let text = slot.as_str().ok_or_else(sealed)?;
            let place = SealedPlace::manifest(&revision.id, &pointer, revision.manifest_seal);
            let clear = self.sealer().open(&place, text, &revision.id.to_string())?;
            *slot = Value::String(clear.expose_secret().to_owned());
        }
        Ok(manifest)
    }
}
