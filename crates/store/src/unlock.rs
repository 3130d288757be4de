//! Finding the key ring and proving that it is the state's.

use crate::db::{Connection, Query};
use crate::error::StoreError;
use crate::key::{self, Found, KeySource};
use crate::keyring::{KeyRing, Keys};
use crate::location::Location;
use crate::seal::{KEY_BYTES, Place, Sealer, first_digest_key, open_and_tell, random, seal_with};
use crate::sql;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use secrecy::ExposeSecret;
use zeroize::Zeroizing;

/// Opens with the state's key and no other.
pub(crate) const KEY_CHECK: &str = "key_check";
/// What manifests' digests are made with. Sealed as a secret is, so that it outlives the keys that seal it: a manifest that
/// did not change is known to be unchanged whatever key came since.
pub(crate) const DIGEST_KEY: &str = "digest_key";

const KEY_CHECK_TEXT: &str = "berth";

/// A new state takes whatever ring there is, or a new one.
pub(crate) async fn unlock(
    connection: &mut Connection,
    source: &KeySource,
    location: &Location,
) -> Result<Sealer, StoreError> {
    let check = meta(connection, KEY_CHECK).await?;
    let stamp = source.stamp();
    let (ring, place): (KeyRing, String) = match source.find()? {
        Found::Keys { ring, place } => (ring, place),
        Found::Absent { path: place } if check.is_some() => {
            return Err(StoreError::KeyMissing { state: location.to_string(), place: place.display().to_string() });
        }
        Found::Absent { path } => key::create(&path)?,
    };
    let is_new = check.is_none();
    let check = match check {
        Some(check) => check,
        None => {
            let sealed = seal_with(ring.first(), &Place::meta(KEY_CHECK), KEY_CHECK_TEXT)?;
            // Another process may be first, with another key.
            set_once(connection, KEY_CHECK, sealed).await?
        }
    };
    let secret = match open_and_tell(&ring, &Place::meta(KEY_CHECK), &check) {
        Ok((text, key)) if text.expose_secret() == KEY_CHECK_TEXT => first_digest_key(key.secret()),
        _ => return Err(StoreError::WrongKey { state: location.to_string(), place }),
    };
    let digest_key = digest_key(connection, &ring, if is_new { None } else { Some(secret) }).await?;
    Ok(Sealer::new(Keys::new(source.clone(), ring, stamp), &digest_key))
}

/// Whether a ring is the one that a state is sealed with, by the state's key check.
pub(crate) fn opens(ring: &KeyRing, check: &str) -> bool {
    open_and_tell(ring, &Place::meta(KEY_CHECK), check).is_ok_and(|(text, _)| text.expose_secret() == KEY_CHECK_TEXT)
}

/// A state from before digests had a secret of their own goes on with the one that it has always had.
async fn digest_key(
    connection: &mut Connection,
    ring: &KeyRing,
    before: Option<Zeroizing<[u8; KEY_BYTES]>>,
) -> Result<Zeroizing<[u8; KEY_BYTES]>, StoreError> {
    let sealed = match meta(connection, DIGEST_KEY).await? {
        Some(sealed) => sealed,
        None => {
            let key = match before {
                Some(key) => key,
                None => {
                    let mut key = Zeroizing::new([0u8; KEY_BYTES]);
                    random(&mut *key)?;
                    key
                }
            };
            let text = Zeroizing::new(STANDARD_NO_PAD.encode(*key));
            set_once(connection, DIGEST_KEY, seal_with(ring.first(), &Place::meta(DIGEST_KEY), &text)?).await?
        }
    };
    let of = "the state itself";
    let (text, _) = open_and_tell(ring, &Place::meta(DIGEST_KEY), &sealed).map_err(|unopened| unopened.of(of))?;
    let bytes = STANDARD_NO_PAD.decode(text.expose_secret()).map(Zeroizing::new).unwrap_or_default();
    let key: Option<[u8; KEY_BYTES]> = bytes.as_slice().try_into().ok();
    key.map(Zeroizing::new).ok_or_else(|| StoreError::Sealed { of: of.into() })
}

async fn meta(connection: &mut Connection, name: &str) -> Result<Option<String>, StoreError> {
    Query::new(sql::META).bind(name).fetch_optional(connection).await?.map(|row| row.get(0)).transpose()
}

/// What is there afterwards: of two who come at once, the first one's.
async fn set_once(connection: &mut Connection, name: &str, value: String) -> Result<String, StoreError> {
    Query::new(sql::SET_META_ONCE).bind(name).bind(&value).execute(connection).await?;
    Ok(meta(connection, name).await?.unwrap_or(value))
}
