//! Tokens: hashes, roles and scopes.

use super::server_writer::Operation;
use super::tx::Tx;
use super::types::{Actor, AuditNote, ControlError, NewToken, TokenRow};
use super::{Control, LIST_MAX};
use crate::db::{Multi, Query, Row};
use crate::error::StoreError;
use crate::hex;
use crate::rows::time;
use async_trait::async_trait;
use jiff::Timestamp;
use serde::Serialize;

/// Uses are written down this rarely for each token.
const TOUCH_EVERY_MICROS: i64 = 60_000_000;

macro_rules! token_columns {
    () => {
        "id, name, role, org, env, created_at, created_by, expires_at, revoked_at, used_at, identity, owner"
    };
}

const INSERT: &str = "INSERT INTO tokens (id, name, hash, role, org, env, created_at, created_by, expires_at, \
     identity, owner) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING";
const USE_LOGIN: &str = "INSERT INTO logins (hash, expires_at) VALUES ($1, $2) ON CONFLICT DO NOTHING";
const FORGET_LOGINS: &str = "DELETE FROM logins WHERE expires_at <= $1";
const BY_ID: &str = concat!("SELECT ", token_columns!(), " FROM tokens WHERE id = $1");
const BY_HASH: &str = concat!("SELECT ", token_columns!(), " FROM tokens WHERE hash = $1");
const AFTER: &str = concat!("SELECT ", token_columns!(), " FROM tokens WHERE id > $1 ORDER BY id LIMIT $2");
const LIVE: &str = "SELECT id, hash FROM tokens WHERE id > $1 AND revoked_at IS NULL \
     AND (expires_at IS NULL OR expires_at > $2) ORDER BY id LIMIT $3";
const REVOKE: &str = "UPDATE tokens SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL";

static TOUCH: Multi = Multi::new(
    "UPDATE tokens SET used_at = v.at FROM {rows} \
     WHERE tokens.id = v.id AND (tokens.used_at IS NULL OR tokens.used_at + v.pause <= v.at)",
    &[("id", "text"), ("at", "bigint"), ("pause", "bigint")],
);

/// What is not a hash is no token's.
fn unhex(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(pair).ok();
        *byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).unwrap_or(0);
    }
    bytes
}

fn token(row: &Row) -> Result<TokenRow, StoreError> {
    let maybe = |column: usize| row.get::<Option<i64>>(column)?.map(time).transpose();
    Ok(TokenRow {
        id: row.get(0)?,
        name: row.get(1)?,
        role: row.get(2)?,
        org: row.get(3)?,
        env: row.get(4)?,
        created_at: time(row.get(5)?)?,
        created_by: row.get(6)?,
        expires_at: maybe(7)?,
        revoked_at: maybe(8)?,
        used_at: maybe(9)?,
        identity: row.get(10)?,
        owner: row.get(11)?,
    })
}

struct Create {
    token: NewToken,
    actor: Actor,
    audit: AuditNote,
    now: Timestamp,
}

#[async_trait]
impl Operation for Create {
    type Answer = TokenRow;

    async fn run(&self, tx: &mut Tx<'_>) -> Result<TokenRow, ControlError> {
        if let Some(login) = &self.token.login {
            tx.execute(Query::new(FORGET_LOGINS).bind(self.now.as_microsecond())).await?;
            let hash = hex(&login.hash);
            let query = Query::new(USE_LOGIN).bind(&hash).bind(login.expires_at.as_microsecond());
            if query.execute(tx.connection).await? == 0 {
                return Err(ControlError::UsedLogin);
            }
        }
        let hash = hex(&self.token.hash);
        let query = Query::new(INSERT)
            .bind(&self.token.id)
            .bind(&self.token.name)
            .bind(&hash)
            .bind(&self.token.role)
            .bind(&self.token.org)
            .bind(&self.token.env)
            .bind(self.now.as_microsecond())
            .bind(&self.actor.name)
            .bind(self.token.expires_at.map(|at| at.as_microsecond()))
            .bind(&self.token.identity)
            .bind(&self.token.owner);
        let made = query.execute(tx.connection).await?;
        if made == 0 {
            return Err(ControlError::Refused(format!("there is a token {} already", self.token.id)));
        }
        tx.writes += 1;
        tx.audit(&self.audit, &self.actor, self.now);
        found(tx, &self.token.id).await
    }
}

struct Revoke {
    id: String,
    actor: Actor,
    audit: AuditNote,
    now: Timestamp,
}

#[async_trait]
impl Operation for Revoke {
    type Answer = TokenRow;

    async fn run(&self, tx: &mut Tx<'_>) -> Result<TokenRow, ControlError> {
        found(tx, &self.id).await?;
        tx.execute(Query::new(REVOKE).bind(&self.id).bind(self.now.as_microsecond())).await?;
        tx.audit(&self.audit, &self.actor, self.now);
        // Servers that cache tokens must read them again.
        tx.news = true;
        found(tx, &self.id).await
    }
}

async fn found(tx: &mut Tx<'_>, id: &str) -> Result<TokenRow, ControlError> {
    let row = tx.row(Query::new(BY_ID).bind(id)).await?;
    Ok(token(&row.ok_or_else(|| ControlError::NotFound(format!("token {id}")))?)?)
}

#[derive(Serialize)]
struct Used {
    id: String,
    at: i64,
    pause: i64,
}

struct Touch(Vec<Used>);

#[async_trait]
impl Operation for Touch {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        tx.execute_many(&TOUCH, &self.0).await?;
        Ok(())
    }
}

impl Control {
    pub async fn create_token(
        &self,
        token: NewToken,
        actor: &Actor,
        audit: AuditNote,
        now: Timestamp,
    ) -> Result<TokenRow, ControlError> {
        self.write(Create { token, actor: actor.clone(), audit, now }).await
    }

    pub async fn token_by_hash(&self, hash: &[u8; 32]) -> Result<Option<TokenRow>, StoreError> {
        let hash = hex(hash);
        self.store().pool().row(Query::new(BY_HASH).bind(&hash), token).await
    }

    pub async fn token(&self, id: &str) -> Result<Option<TokenRow>, StoreError> {
        self.store().pool().row(Query::new(BY_ID).bind(id), token).await
    }

    /// By id, after that one.
    pub async fn tokens(&self, after: &str, limit: u32) -> Result<Vec<TokenRow>, StoreError> {
        let query = Query::new(AFTER).bind(after).bind(i64::from(limit.clamp(1, LIST_MAX)));
        self.store().pool().rows(query, token).await
    }

    /// Ids and hashes of the tokens that hold, by id, after that one.
    pub async fn live_tokens(
        &self,
        after: &str,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<(String, [u8; 32])>, StoreError> {
        let query = Query::new(LIVE).bind(after).bind(now.as_microsecond()).bind(i64::from(limit.clamp(1, LIST_MAX)));
        self.store().pool().rows(query, |row| Ok((row.get(0)?, unhex(&row.get::<String>(1)?)))).await
    }

    /// Revoking again changes nothing.
    pub async fn revoke_token(
        &self,
        id: &str,
        actor: &Actor,
        audit: AuditNote,
        now: Timestamp,
    ) -> Result<TokenRow, ControlError> {
        self.write(Revoke { id: id.to_owned(), actor: actor.clone(), audit, now }).await
    }

    /// Remembers when tokens were last used, each at most once a minute.
    pub async fn touch_tokens(&self, used: Vec<(String, Timestamp)>) -> Result<(), ControlError> {
        let rows =
            used.into_iter().map(|(id, at)| Used { id, at: at.as_microsecond(), pause: TOUCH_EVERY_MICROS }).collect();
        self.write(Touch(rows)).await
    }
}
