//! Who made a backup. The keys inside prove nothing: a forged backup holds keys of the forger.

use super::{BackupError, Identity};
use crate::db::{Connection, Query};
use crate::error::StoreError;
use crate::from_hex;
use crate::key::{Found, KeySource};
use crate::keyring::KeyRing;
use hmac::Mac;

/// Tokens that are named one by one.
const NAMED_MAX: i64 = 100;
const ACCESS: &str = "SELECT name, role, org, env FROM tokens WHERE revoked_at IS NULL \
     AND (expires_at IS NULL OR expires_at > $1) ORDER BY role, name LIMIT $2";

/// What shows who made a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A key of the ring that was here before it.
    Key(String),
    /// Somebody who knows the passphrase.
    Passphrase,
    /// Nothing; the caller accepted that.
    Unknown,
}

/// A token that works where the backup was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub name: String,
    pub role: String,
    pub org: String,
    pub env: String,
}

/// The authentication code of a backup, and what it is of.
pub(super) struct Code {
    pub sha256: Vec<u8>,
    pub rows: u64,
    pub key: String,
    pub hmac: String,
}

impl Code {
    /// `None` when the ring does not have the key.
    fn is_by(&self, ring: &KeyRing) -> Option<bool> {
        let key = ring.find(&self.key)?;
        let hmac = from_hex(&self.hmac).unwrap_or_default();
        Some(key.backup_mac(&self.sha256, self.rows).verify_slice(&hmac).is_ok())
    }
}

/// `inside` are the keys that came with the backup. With `accept`, what is not known is no error; what is known to be false is.
pub(super) fn origin(
    code: Option<&Code>,
    inside: Option<&KeyRing>,
    source: &KeySource,
    identity: &Identity,
    accept: bool,
) -> Result<Origin, BackupError> {
    let Some(code) = code else {
        return if accept { Ok(Origin::Unknown) } else { Err(BackupError::NoCode) };
    };
    let forged = || BackupError::Forged { key: code.key.clone() };
    let place = match source.find()? {
        Found::Keys { ring, place } => match code.is_by(&ring) {
            Some(true) => return Ok(Origin::Key(code.key.clone())),
            Some(false) => return Err(forged()),
            None => place,
        },
        Found::Absent { path } => path.display().to_string(),
    };
    match inside.and_then(|ring| code.is_by(ring)) {
        Some(false) => Err(forged()),
        // A passphrase encrypts as well as it decrypts: only those who know it can have made this.
        Some(true) if matches!(identity, Identity::Passphrase(_)) => Ok(Origin::Passphrase),
        _ if accept => Ok(Origin::Unknown),
        _ => Err(BackupError::OtherKey { key: code.key.clone(), place }),
    }
}

/// The tokens that work, by role and name.
pub(super) async fn access(connection: &mut Connection) -> Result<Vec<Access>, StoreError> {
    let now = jiff::Timestamp::now().as_microsecond();
    let rows = Query::new(ACCESS).bind(now).bind(NAMED_MAX).fetch_all(connection).await?;
    let access =
        |row: &crate::db::Row| Ok(Access { name: row.get(0)?, role: row.get(1)?, org: row.get(2)?, env: row.get(3)? });
    rows.iter().map(access).collect()
}
