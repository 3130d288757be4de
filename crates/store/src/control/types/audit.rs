//! Who did something, what is remembered of it, and the tokens that tell them apart.

use jiff::Timestamp;

/// Who did something. Two are the same when their ids are; names are for people to read, and may be alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actor {
    /// `token:ci`, `oidc:alice@example.com`, `controller`, `worker:w1`.
    pub name: String,
    /// `token:` and the token's id; or the issuer, `#` and the subject of a person.
    pub id: String,
    /// The person who answers for it, where one made the token; otherwise the same as `id`.
    pub owner: String,
}

impl Actor {
    /// A part of the server itself, which has no other id than its name.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self { id: name.clone(), owner: name.clone(), name }
    }
}

/// What is to be remembered of an act. An empty action means: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditNote {
    pub action: String,
    pub target: String,
    pub detail: String,
    pub outcome: String,
}

/// Which events to read. `None` takes any.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    pub kind: Option<String>,
    pub name: Option<String>,
    pub org: Option<String>,
    pub env: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// Only older ones than this number; 0: from the newest on.
    pub before: i64,
    pub actor: Option<String>,
    pub action: Option<String>,
    pub limit: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// From 1, without gaps.
    pub id: i64,
    pub at: Timestamp,
    pub actor: String,
    /// Empty in entries from before there were ids.
    pub actor_id: String,
    pub action: String,
    pub target: String,
    pub detail: String,
    pub outcome: String,
    /// Hexadecimal SHA-256 over the previous hash and all fields of this one.
    pub hash: String,
    pub previous: String,
}

/// What a check of the audit log found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditState {
    pub whole: bool,
    /// Entries that were read.
    pub entries: i64,
    /// The first number that is missing or changed.
    pub broken_at: Option<i64>,
    /// Why it is not whole.
    pub broken: Option<AuditBroken>,
    /// The last entry's hash, and its number.
    pub head: String,
    pub last: i64,
    /// There was no time for all of it: go on after the last one.
    pub more: bool,
}

/// What is wrong with an audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditBroken {
    /// An entry does not follow from the one before it, or is missing.
    Entry,
    /// All entries follow from each other, and the sealed head is another one: the log was written anew without the key, or
    /// its head was.
    Head,
    /// A server found the head missing or not genuine at this entry, and went on after it: nothing shows that the entries
    /// before are those that were written.
    HeadLost,
    /// What the head vouches for is as it was written, and no server wrote this entry beside it.
    Added,
}

impl AuditBroken {
    pub fn name(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::Head => "head",
            Self::HeadLost => "head-lost",
            Self::Added => "added",
        }
    }
}

/// The newest entry of the audit log. Kept elsewhere, it shows later whether anything up to it was changed or cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditHead {
    /// 0 for an empty log.
    pub id: i64,
    pub hash: String,
}

/// A token to be kept: its hash, never itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewToken {
    pub id: String,
    pub name: String,
    pub hash: [u8; 32],
    pub role: String,
    pub org: String,
    pub env: String,
    pub expires_at: Option<Timestamp>,
    /// Issuer, `#` and subject, for a person's session.
    pub identity: String,
    /// The person who made it; empty for none.
    pub owner: String,
    /// For a session: what was shown to log in, which must not have been used before.
    pub login: Option<UsedOnce>,
}

/// Something that may be used once, and is of no use after a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedOnce {
    pub hash: [u8; 32],
    pub expires_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    pub id: String,
    pub name: String,
    pub role: String,
    pub org: String,
    pub env: String,
    pub created_at: Timestamp,
    pub created_by: String,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    pub used_at: Option<Timestamp>,
    pub identity: String,
    pub owner: String,
}
