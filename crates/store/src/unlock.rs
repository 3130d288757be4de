//! Finds the key ring and checks that it belongs to the state.

use crate::db::{Connection, Query};
use crate::error::StoreError;
use crate::key::{self, Found, KeySource};
use crate::keyring::{KeyRing, Keys, RingKey};
use crate::location::Location;
use crate::seal::{KEY_BYTES, Sealer, first_digest_key, open_and_tell, random, seal_with};
use crate::sealed_place::SealedPlace;
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

/// What saved plans are authenticated with, and the state is named after. Sealed as `digest_key` is.
const STATE_KEY: &str = "state_key";
/// The audit log's newest entry, sealed: see `control::audit`.
pub(crate) const AUDIT_HEAD: &str = "audit_head";

/// In a state whose audit head is not sealed, as it was before.
const KEY_CHECK_TEXT: &str = "berth";
/// In a state that has all of the above: whatever of it is missing was taken out.
const KEY_CHECK_KEYED: &str = "berth keyed";

const UPDATE_META: &str = "UPDATE meta SET value = $3 WHERE name = $1 AND value = $2";
const SET_META: &str = "INSERT INTO meta (name, value) VALUES ($1, $2) \
     ON CONFLICT (name) DO UPDATE SET value = excluded.value";
const HAS_ROWS: &str =
    "SELECT COUNT(*) FROM (SELECT id FROM audit UNION ALL SELECT id FROM resources LIMIT 1) AS any_row";

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
    let gone = |mark| StoreError::MarkGone { state: location.to_string(), mark };
    let is_new = check.is_none();
    let check = match check {
        Some(check) => Some(check),
        None => {
            let rows: i64 = Query::new(HAS_ROWS).fetch_one(connection).await?.get(0)?;
            if rows == 0 {
                mark(connection, &ring, None).await?;
            }
            // Where there are rows, another process may have made the state just now.
            Some(meta(connection, KEY_CHECK).await?.ok_or_else(|| gone(KEY_CHECK))?)
        }
    };
    let wrong = || StoreError::WrongKey { state: location.to_string(), place: place.clone() };
    let (text, key) = opened_check(&ring, check.as_deref().unwrap_or_default()).ok_or_else(wrong)?;
    let first_digest = first_digest_key(key.secret());
    if let Some(old) = check.filter(|_| text == KEY_CHECK_TEXT) {
        mark(connection, &ring, Some(&old)).await?;
    }
    let before = if is_new { None } else { Some(first_digest) };
    let digest_key = match meta(connection, DIGEST_KEY).await? {
        Some(sealed) => sealed,
        None => set_once(connection, DIGEST_KEY, sealed_key(&ring, DIGEST_KEY, before)?).await?,
    };
    let digest_key = opened_key(&ring, DIGEST_KEY, &digest_key)?;
    let state_key = meta(connection, STATE_KEY).await?.ok_or_else(|| gone(STATE_KEY))?;
    let state_key = opened_key(&ring, STATE_KEY, &state_key)?;
    Ok(Sealer::new(Keys::new(source.clone(), ring, stamp), &digest_key, &state_key))
}

/// Puts the state's marks in, all or none: in a new state, or in one of before (`old` is its key check), whose audit log
/// is taken over as it is. Of two processes that come at once, the first one's stand.
async fn mark(connection: &mut Connection, ring: &KeyRing, old: Option<&str>) -> Result<(), StoreError> {
    connection.run(connection.dialect().begin).await?;
    let done = mark_in(connection, ring, old).await;
    let ended = connection.run(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }).await;
    done.and(ended)
}

async fn mark_in(connection: &mut Connection, ring: &KeyRing, old: Option<&str>) -> Result<(), StoreError> {
    if let Connection::Postgres(_) = connection {
        connection.run(sql::POSTGRES_WRITE_TURN).await?;
    }
    let check = seal_with(ring.first(), &SealedPlace::meta(KEY_CHECK), KEY_CHECK_KEYED)?;
    let query = match old {
        Some(old) => Query::new(UPDATE_META).bind(KEY_CHECK).bind(old).bind(&check),
        None => Query::new(sql::SET_META_ONCE).bind(KEY_CHECK).bind(&check),
    };
    if query.execute(connection).await? == 0 {
        return Ok(());
    }
    let state_key = sealed_key(ring, STATE_KEY, None)?;
    Query::new(sql::SET_META_ONCE).bind(STATE_KEY).bind(&state_key).execute(connection).await?;
    let head = meta(connection, AUDIT_HEAD).await?.unwrap_or_else(|| "0 ".into());
    let head = seal_with(ring.first(), &SealedPlace::meta(AUDIT_HEAD), &head)?;
    Query::new(SET_META).bind(AUDIT_HEAD).bind(&head).execute(connection).await?;
    Ok(())
}

/// What a key check says, and the key that it is sealed with.
fn opened_check<'r>(ring: &'r KeyRing, check: &str) -> Option<(String, &'r RingKey)> {
    let (text, key) = open_and_tell(ring, &SealedPlace::meta(KEY_CHECK), check).ok()?;
    let text = text.expose_secret();
    [KEY_CHECK_TEXT, KEY_CHECK_KEYED].contains(&text).then(|| (text.to_owned(), key))
}

/// Whether a ring is the one that a state is sealed with, by the state's key check.
pub(crate) fn opens(ring: &KeyRing, check: &str) -> bool {
    opened_check(ring, check).is_some()
}

/// A key of the state's own, sealed: this one, or a random one. A state from before digests had a secret of their own goes on with
/// the one that it has always had.
fn sealed_key(ring: &KeyRing, name: &str, key: Option<Zeroizing<[u8; KEY_BYTES]>>) -> Result<String, StoreError> {
    let key = match key {
        Some(key) => key,
        None => {
            let mut key = Zeroizing::new([0u8; KEY_BYTES]);
            random(&mut *key)?;
            key
        }
    };
    seal_with(ring.first(), &SealedPlace::meta(name), &Zeroizing::new(STANDARD_NO_PAD.encode(*key)))
}

fn opened_key(ring: &KeyRing, name: &str, sealed: &str) -> Result<Zeroizing<[u8; KEY_BYTES]>, StoreError> {
    let of = "the state itself";
    let (text, _) = open_and_tell(ring, &SealedPlace::meta(name), sealed).map_err(|unopened| unopened.of(of))?;
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
