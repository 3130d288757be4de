//! The service `Access`: tokens, logins, the audit log, and the keys.

use super::audit::note;
use super::authenticate::Authenticator;
use super::oidc::Oidc;
use super::principal::{Principal, Role, principal};
use super::token;
use crate::api::arguments::{check_text, invalid_argument};
use crate::fault::{Code, Fault};
use crate::pb;
use berth_store::{
    Actor, AuditQuery, Control, ControlError, LIST_MAX, ListQuery, NewToken, RotateFrom, RotateStep, TokenRow,
};
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret, SecretString};
use std::sync::Arc;
use std::time::Duration;
use tonic::{Request, Response, Status};
use uuid::Uuid;

const DAY: i64 = 24 * 3600;
/// How long a token holds when nobody says, and at most.
const EXPIRES_AFTER: i64 = 90 * DAY;
pub const EXPIRES_AFTER_MAX: i64 = 366 * DAY;
/// How long a login holds.
pub const SESSION: Duration = Duration::from_secs(12 * 3600);
const NAME_CHARS_MAX: usize = 100;
const PAGE: u32 = 100;
/// How long one call seals anew, or follows the chain of hashes: well within what a caller waits.
const PART: Duration = Duration::from_secs(15);
/// Tokens that one call looks at to fill a page for a caller who may see few of them.
const LOOKED_AT_MAX: u32 = 10_000;

pub struct Service {
    control: Control,
    authenticator: Arc<Authenticator>,
    oidc: Option<Arc<Oidc>>,
    /// The server's clouds are simulated.
    sandbox: bool,
}

impl Service {
    pub fn new(authenticator: Arc<Authenticator>, oidc: Option<Arc<Oidc>>, sandbox: bool) -> Self {
        Self { control: authenticator.control().clone(), authenticator, oidc, sandbox }
    }

    async fn create(
        &self,
        caller: &Principal,
        asked: pb::CreateTokenRequest,
    ) -> Result<pb::CreateTokenResponse, Fault> {
        let role = Role::parse(&asked.role)
            .ok_or_else(|| invalid(format!("`{}` is no role", asked.role)).help("viewer, operator, admin or worker"))?;
        check_name(&asked.name)?;
        self.check_scope(&asked.org, &asked.env).await?;
        if !caller.covers(&asked.org, &asked.env) {
            return Err(Fault::new(Code::Denied, "a token cannot reach further than the one that makes it")
                .help(format!("this token is for {}", caller.scope())));
        }
        if role == Role::Worker && !asked.env.is_empty() {
            return Err(invalid("a worker is for an org or for all, not for one env"));
        }
        let seconds = match asked.expires_in_seconds {
            0 => EXPIRES_AFTER,
            seconds if (1..=EXPIRES_AFTER_MAX).contains(&seconds) => seconds,
            _ => return Err(invalid("a token holds from one second to 366 days")),
        };
        let now = Timestamp::now();
        let expires_at = after(now, seconds)?;
        let detail = format!("role {}, for {}, until {expires_at}", role.as_str(), scope(&asked.org, &asked.env));
        let (secret, mut new) = new_token(asked.name, role, asked.org, asked.env, expires_at)?;
        new.owner.clone_from(&caller.owner);
        let note = note("create token", format!("token {} ({})", new.name, new.id), detail);
        let hash = new.hash;
        let row = self.control.create_token(new, &caller.actor, note, now).await?;
        self.authenticator.made(hash);
        Ok(pb::CreateTokenResponse { token: Some(shown(&row)), secret: secret.expose_secret().to_owned() })
    }

    /// A scope is named as orgs and envs are: one that only looks like another would be seen in lists as that other. What is
    /// stored under an older name can still be reached.
    async fn check_scope(&self, org: &str, env: &str) -> Result<(), Fault> {
        for (what, text) in [("org", org), ("env", env)] {
            check_text(what, text)?;
            if berth_model::is_scope_name(text) {
                continue;
            }
            let named = |name: &str| Some(text.to_owned()).filter(|_| what == name);
            let query = ListQuery { org: named("org"), env: named("env"), limit: 1, ..ListQuery::default() };
            if self.control.list(&query).await?.resources.is_empty() {
                return Err(invalid(format!("`{what}` is not the name of an {what}"))
                    .help("use lower-case letters, digits and hyphens, starting and ending with a letter or digit"));
            }
        }
        Ok(())
    }

    async fn page(&self, caller: &Principal, asked: pb::ListTokensRequest) -> Result<pb::ListTokensResponse, Fault> {
        let size = page_size(asked.page_size)?;
        let mut after = asked.page_token;
        check_id(&after)?;
        let mut tokens = Vec::new();
        let mut looked_at = 0;
        loop {
            let rows = self.control.tokens(&after, size).await?;
            looked_at += size;
            let last = rows.len() < size as usize;
            for row in rows {
                after = row.id.clone();
                if caller.covers(&row.org, &row.env) {
                    tokens.push(shown(&row));
                    if tokens.len() == size as usize {
                        return Ok(pb::ListTokensResponse { tokens, next_page_token: after });
                    }
                }
            }
            if last || looked_at >= LOOKED_AT_MAX {
                let next_page_token = if last { String::new() } else { after };
                return Ok(pb::ListTokensResponse { tokens, next_page_token });
            }
        }
    }

    async fn revoke(&self, caller: &Principal, id: &str) -> Result<pb::Token, Fault> {
        let row = self.find(id).await?.filter(|row| caller.covers(&row.org, &row.env));
        let row = row.ok_or_else(|| Fault::new(Code::NotFound, "there is no such token").help("berth token list"))?;
        self.end(&row.id, &row.name, "revoke token", caller).await
    }

    async fn end(&self, id: &str, name: &str, action: &str, caller: &Principal) -> Result<pb::Token, Fault> {
        let note = note(action, format!("token {name} ({id})"), "");
        let row = self.control.revoke_token(id, &caller.actor, note, Timestamp::now()).await?;
        self.authenticator.forget(id);
        Ok(shown(&row))
    }

    async fn find(&self, id: &str) -> Result<Option<TokenRow>, Fault> {
        check_id(id)?;
        Ok(self.control.token(id).await?)
    }

    async fn log_in(&self, asked: pb::LoginRequest) -> Result<pb::CreateTokenResponse, Fault> {
        let oidc = self.oidc.as_ref().ok_or_else(|| {
            Fault::new(Code::Refused, "people log in with tokens here: no identity provider is set up")
                .help("berth login URL --token-file FILE")
        })?;
        let id_token = SecretString::from(asked.id_token);
        let person = oidc.person(id_token.expose_secret(), &asked.nonce).await?;
        let now = Timestamp::now();
        let expires_at = after(now, SESSION.as_secs().cast_signed())?;
        let scope = scope(&person.org, &person.env);
        let detail = format!(
            "role {}, for {scope}, by group {}, subject {}",
            person.role.as_str(),
            person.group,
            person.subject
        );
        let actor = Actor { name: person.name.clone(), id: person.identity.clone(), owner: person.identity.clone() };
        let (secret, mut new) = new_token(person.name, person.role, person.org, person.env, expires_at)?;
        new.identity.clone_from(&person.identity);
        new.owner = person.identity;
        new.login = Some(person.login);
        let note = note("login", format!("token {}", new.id), detail);
        let hash = new.hash;
        let row = self.control.create_token(new, &actor, note, now).await.map_err(|error| match error {
            ControlError::UsedLogin => super::oidc::invalid("it was used to log in already"),
            error => error.into(),
        })?;
        self.authenticator.made(hash);
        Ok(pb::CreateTokenResponse { token: Some(shown(&row)), secret: secret.expose_secret().to_owned() })
    }

    async fn entries(&self, asked: pb::AuditRequest) -> Result<pb::AuditResponse, Fault> {
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        let query = AuditQuery {
            before: asked.before.max(0),
            actor: given(asked.actor),
            action: given(asked.action),
            limit: page_size(asked.page_size)?,
        };
        let entries = self.control.audit_entries(&query).await?;
        let entries = entries.into_iter().map(|entry| pb::AuditEntry {
            id: entry.id,
            at: entry.at.to_string(),
            actor: entry.actor,
            actor_id: entry.actor_id,
            action: entry.action,
            target: entry.target,
            detail: entry.detail,
            outcome: entry.outcome,
            hash: entry.hash,
            previous: entry.previous,
        });
        Ok(pb::AuditResponse { entries: entries.collect() })
    }
}

fn new_token(
    name: String,
    role: Role,
    org: String,
    env: String,
    expires_at: Timestamp,
) -> Result<(SecretString, NewToken), Fault> {
    let (secret, hash) = token::make().map_err(|error| {
        tracing::error!(%error, "the system gives no random bytes");
        Fault::new(Code::Internal, "no token can be made just now")
    })?;
    let id = Uuid::now_v7().to_string();
    let role = role.as_str().into();
    let (identity, owner) = (String::new(), String::new());
    let new = NewToken { id, name, hash, role, org, env, expires_at: Some(expires_at), identity, owner, login: None };
    Ok((secret, new))
}

/// Whether a state has no token at all: then nobody can call its servers.
pub async fn has_no_token(control: &Control) -> Result<bool, Fault> {
    Ok(control.tokens("", 1).await?.is_empty())
}

/// Makes a token the first admin's. Another server may be quicker: that is as good, where it was given the same one.
pub async fn keep_first_token(control: &Control, secret: &SecretString) -> Result<(), Fault> {
    let now = Timestamp::now();
    let expires_at = after(now, EXPIRES_AFTER_MAX)?;
    let hash = token::hash(secret.expose_secret())
        .ok_or_else(|| invalid("it is not a token: `berth_` and 43 letters, digits, `-` and `_`"))?;
    let new = NewToken {
        id: Uuid::now_v7().to_string(),
        name: "first-admin".into(),
        hash,
        role: Role::Admin.as_str().into(),
        org: String::new(),
        env: String::new(),
        expires_at: Some(expires_at),
        identity: String::new(),
        owner: String::new(),
        login: None,
    };
    let note =
        note("create token", format!("token {} ({})", new.name, new.id), format!("role admin, until {expires_at}"));
    let made = control.create_token(new, &berth_store::Actor::new("server"), note, now).await;
    match made {
        Err(_) if control.token_by_hash(&hash).await?.is_some() => Ok(()),
        made => Ok(made.map(drop)?),
    }
}

/// A new admin's token for whoever holds the database and its key: where every other was lost. It is written down as what
/// it is.
pub async fn recover_token(control: &Control, name: String, seconds: i64) -> Result<(SecretString, pb::Token), Fault> {
    check_name(&name)?;
    let now = Timestamp::now();
    let expires_at = after(now, seconds)?;
    let (secret, new) = new_token(name, Role::Admin, String::new(), String::new(), expires_at)?;
    let detail = format!("role admin, for {}, until {expires_at}, by the database and its key", scope("", ""));
    let note = note("recover token", format!("token {} ({})", new.name, new.id), detail);
    let row = control.create_token(new, &berth_store::Actor::new("database"), note, now).await?;
    Ok((secret, shown(&row)))
}

fn after(now: Timestamp, seconds: i64) -> Result<Timestamp, Fault> {
    now.checked_add(SignedDuration::from_secs(seconds))
        .map_err(|_| Fault::new(Code::Internal, "the clock shows no usable time"))
}

fn scope(org: &str, env: &str) -> String {
    match (org, env) {
        ("", "") => "all orgs and envs".into(),
        (org, "") => format!("org {org}"),
        ("", env) => format!("env {env}"),
        (org, env) => format!("org {org}, env {env}"),
    }
}

/// Nobody can call a token by a name that looks like another's: no blanks, no controls, no prefix of people.
fn check_name(name: &str) -> Result<(), Fault> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(fine) {
        return Err(invalid("a token's name has 1 to 100 letters, digits, `-`, `_`, `.` and `@`"));
    }
    Ok(())
}

/// What could be an id: anything else is not asked for.
fn check_id(id: &str) -> Result<(), Fault> {
    let fine = id.len() <= 36 && id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    if fine { Ok(()) } else { Err(invalid("this is not the id of a token")) }
}

fn page_size(asked: u32) -> Result<u32, Fault> {
    match asked {
        0 => Ok(PAGE),
        size if size <= LIST_MAX => Ok(size),
        _ => Err(invalid(format!("a page has at most {LIST_MAX} entries"))),
    }
}

fn invalid(message: impl Into<String>) -> Fault {
    Fault::new(Code::InvalidArgument, message)
}

fn shown(row: &TokenRow) -> pb::Token {
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string()).unwrap_or_default();
    pb::Token {
        id: row.id.clone(),
        name: row.name.clone(),
        role: row.role.clone(),
        org: row.org.clone(),
        env: row.env.clone(),
        created_at: row.created_at.to_string(),
        created_by: row.created_by.clone(),
        expires_at: time(row.expires_at),
        revoked_at: time(row.revoked_at),
        used_at: time(row.used_at),
        identity: row.identity.clone(),
        owner: row.owner.clone(),
    }
}

#[tonic::async_trait]
impl pb::access_server::Access for Service {
    async fn create_token(
        &self,
        request: Request<pb::CreateTokenRequest>,
    ) -> Result<Response<pb::CreateTokenResponse>, Status> {
        let caller = principal(&request)?;
        Ok(Response::new(self.create(&caller, request.into_inner()).await?))
    }

    async fn list_tokens(
        &self,
        request: Request<pb::ListTokensRequest>,
    ) -> Result<Response<pb::ListTokensResponse>, Status> {
        let caller = principal(&request)?;
        Ok(Response::new(self.page(&caller, request.into_inner()).await?))
    }

    async fn revoke_token(&self, request: Request<pb::RevokeTokenRequest>) -> Result<Response<pb::Token>, Status> {
        let caller = principal(&request)?;
        Ok(Response::new(self.revoke(&caller, &request.into_inner().id).await?))
    }

    async fn who_am_i(&self, request: Request<pb::WhoAmIRequest>) -> Result<Response<pb::WhoAmIResponse>, Status> {
        let caller = principal(&request)?;
        let row = self.find(&caller.token_id).await?;
        let row = row.ok_or_else(|| Fault::new(Code::Unauthenticated, "the token is not valid any more"))?;
        Ok(Response::new(pb::WhoAmIResponse { token: Some(shown(&row)) }))
    }

    async fn login_options(
        &self,
        _request: Request<pb::LoginOptionsRequest>,
    ) -> Result<Response<pb::LoginOptionsResponse>, Status> {
        let mut options = pb::LoginOptionsResponse {
            server_version: env!("CARGO_PKG_VERSION").into(),
            sandbox: self.sandbox,
            ..pb::LoginOptionsResponse::default()
        };
        if let Some(oidc) = &self.oidc {
            let config = oidc.config();
            options.issuer = config.issuer.clone();
            options.client_id = config.client_id.clone();
            options.scopes = ["openid".to_owned()].into_iter().chain(config.scopes.iter().cloned()).collect();
        }
        Ok(Response::new(options))
    }

    async fn login(&self, request: Request<pb::LoginRequest>) -> Result<Response<pb::CreateTokenResponse>, Status> {
        Ok(Response::new(self.log_in(request.into_inner()).await?))
    }

    async fn logout(&self, request: Request<pb::LogoutRequest>) -> Result<Response<pb::LogoutResponse>, Status> {
        let caller = principal(&request)?;
        self.end(&caller.token_id, &caller.name, "logout", &caller).await?;
        Ok(Response::new(pb::LogoutResponse {}))
    }

    async fn audit(&self, request: Request<pb::AuditRequest>) -> Result<Response<pb::AuditResponse>, Status> {
        principal(&request)?.require_everywhere()?;
        Ok(Response::new(self.entries(request.into_inner()).await?))
    }

    async fn verify_audit(
        &self,
        request: Request<pb::VerifyAuditRequest>,
    ) -> Result<Response<pb::VerifyAuditResponse>, Status> {
        principal(&request)?.require_everywhere()?;
        let pb::VerifyAuditRequest { after, hash } = request.into_inner();
        check_text("hash", &hash)?;
        if after < 0 {
            return Err(invalid_argument("after", "it is 0 or more").into());
        }
        let state = self.control.verify_audit_from(after, &hash, PART).await.map_err(Fault::from)?;
        Ok(Response::new(pb::VerifyAuditResponse {
            whole: state.whole,
            entries: state.entries,
            broken_at: state.broken_at.unwrap_or_default(),
            head: state.head,
            more: state.more,
            last: state.last,
            reason: state.broken.map(|broken| broken.name().to_owned()).unwrap_or_default(),
        }))
    }

    async fn audit_head(
        &self,
        request: Request<pb::AuditHeadRequest>,
    ) -> Result<Response<pb::AuditHeadResponse>, Status> {
        principal(&request)?.require_everywhere()?;
        let head = self.control.audit_head().await.map_err(Fault::from)?.ok_or_else(|| {
            Fault::new(Code::Refused, "the audit log's head is missing or was not written with this server's key")
                .help("to see what is wrong with the log:   berth audit verify")
        })?;
        Ok(Response::new(pb::AuditHeadResponse { id: head.id, hash: head.hash }))
    }

    async fn rotate_keys(
        &self,
        request: Request<pb::RotateKeysRequest>,
    ) -> Result<Response<pb::RotateKeysResponse>, Status> {
        let caller = principal(&request)?;
        caller.require_everywhere()?;
        let pb::RotateKeysRequest { from } = request.into_inner();
        let from = match from.as_str() {
            "" => RotateFrom::default(),
            text => RotateFrom::parse(text).ok_or_else(|| invalid_argument("from", "it is no answer's `next`"))?,
        };
        // Before it begins: the rotation counts even if the caller disconnects.
        let note = note("rotate keys", "", "");
        self.control.audit(note, &caller.actor, Timestamp::now()).await.map_err(Fault::from)?;
        let step = self.control.store().rotate_on(from, PART, |_| {}).await.map_err(Fault::from)?;
        Ok(Response::new(match step {
            RotateStep::Done(done) => {
                pb::RotateKeysResponse { resealed: done.resealed, key_id: done.key_id, ..Default::default() }
            }
            RotateStep::More(next) => {
                let told = next.progress();
                let at = format!("pass {}, {}", told.pass, told.place);
                pb::RotateKeysResponse { resealed: told.resealed, next: next.to_string(), at, ..Default::default() }
            }
        }))
    }
}
