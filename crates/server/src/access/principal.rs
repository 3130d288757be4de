//! Who calls, and what they may see and do.

use crate::fault::{Code, Fault};
use berth_model::ResourceId;
use berth_store::{Actor, ControlError, TokenRow};
use jiff::Timestamp;
use std::sync::Arc;

/// Names of people's sessions begin with this, and names of tokens cannot.
pub const PERSON: &str = "oidc:";
/// What decides about others' resources: only admins write these.
pub const ADMIN_KINDS: [&str; 3] = ["Account", "Environment", "Policy"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Viewer,
    Operator,
    Admin,
    /// Apart from the others: calls the methods of workers and no others.
    Worker,
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Viewer, Role::Operator, Role::Admin, Role::Worker];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
            Role::Worker => "worker",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// Whether it may do what `needed` may.
    pub fn reaches(self, needed: Role) -> bool {
        let rank = |role| match role {
            Role::Viewer => 1,
            Role::Operator => 2,
            Role::Admin => 3,
            Role::Worker => 0,
        };
        match (self, needed) {
            (Role::Worker, Role::Worker) => true,
            (Role::Worker, _) | (_, Role::Worker) => false,
            _ => rank(self) >= rank(needed),
        }
    }
}

/// A caller whose token is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub token_id: String,
    /// Name of the token.
    pub name: String,
    pub actor: Actor,
    /// The person who answers for it; empty where none is known.
    pub owner: String,
    pub role: Role,
    /// Empty: all.
    pub org: String,
    pub env: String,
    pub expires_at: Option<Timestamp>,
}

impl Principal {
    /// `None` for a role that this server does not know, and for a person's session from before identities were kept: such
    /// tokens may do nothing.
    pub fn of(row: &TokenRow) -> Option<Self> {
        let role = Role::parse(&row.role)?;
        let is_person = row.name.starts_with(PERSON);
        if is_person && row.identity.is_empty() {
            return None;
        }
        let name = match role {
            _ if is_person => row.name.clone(),
            Role::Worker => format!("worker:{}", row.name),
            _ => format!("token:{}", row.name),
        };
        let id = if is_person { row.identity.clone() } else { format!("token:{}", row.id) };
        let owner = if row.owner.is_empty() { id.clone() } else { row.owner.clone() };
        Some(Self {
            token_id: row.id.clone(),
            name: row.name.clone(),
            actor: Actor { name, id, owner },
            owner: row.owner.clone(),
            role,
            org: row.org.clone(),
            env: row.env.clone(),
            expires_at: row.expires_at,
        })
    }

    /// The server itself: its controller and the worker inside it.
    pub fn inside(name: &str, role: Role) -> Self {
        Self {
            token_id: String::new(),
            name: name.to_owned(),
            actor: Actor::new(name),
            owner: String::new(),
            role,
            org: String::new(),
            env: String::new(),
            expires_at: None,
        }
    }

    pub fn covers(&self, org: &str, env: &str) -> bool {
        (self.org.is_empty() || self.org == org) && (self.env.is_empty() || self.env == env)
    }

    /// Not confined to an org or an env.
    pub fn is_everywhere(&self) -> bool {
        self.org.is_empty() && self.env.is_empty()
    }

    pub fn may_see(&self, id: &ResourceId) -> bool {
        self.covers(&id.org, &id.env)
    }

    /// For reads: what is outside the scope is not there.
    pub fn see(&self, id: &ResourceId) -> Result<(), Fault> {
        if self.may_see(id) { Ok(()) } else { Err(absent(id)) }
    }

    /// What became of their write. Who else refers to something is not theirs to know everywhere.
    pub fn told(&self, error: ControlError) -> Fault {
        match error {
            ControlError::InUse { id, by, .. } if !self.may_see(&by) => self.held_elsewhere(&id),
            error => error.into(),
        }
    }

    pub fn held_elsewhere(&self, id: &ResourceId) -> Fault {
        let why = format!("something that {} may not change refers to {id}", self.actor.name);
        Fault::new(Code::Denied, why).help(format!("this token is for {}", self.scope()))
    }

    /// For writes: scope and role; what decides about others' resources needs an admin.
    pub fn require(&self, role: Role, id: &ResourceId) -> Result<(), Fault> {
        if !self.may_see(id) {
            let place = place(&id.org, &id.env);
            return Err(Fault::new(Code::Denied, format!("{} may not change {id} in {place}", self.actor.name))
                .help(format!("this token is for {}", self.scope())));
        }
        let needed = if ADMIN_KINDS.contains(&id.kind.as_str()) && role != Role::Viewer { Role::Admin } else { role };
        if !self.role.reaches(needed) {
            return Err(Fault::new(
                Code::Denied,
                format!("{} may not change {id}: it needs the role {}", self.actor.name, needed.as_str()),
            )
            .help(format!("this token has the role {}", self.role.as_str())));
        }
        Ok(())
    }

    /// For what concerns all orgs.
    pub fn require_everywhere(&self) -> Result<(), Fault> {
        if self.is_everywhere() {
            return Ok(());
        }
        Err(Fault::new(Code::Denied, "this concerns all orgs, and the token is for a part of them")
            .help(format!("this token is for {}", self.scope())))
    }

    /// The scope's org and env for queries; `None` takes any.
    pub fn scope_org(&self) -> Option<String> {
        Some(self.org.clone()).filter(|org| !org.is_empty())
    }

    pub fn scope_env(&self) -> Option<String> {
        Some(self.env.clone()).filter(|env| !env.is_empty())
    }

    /// Narrows what a list asks for to the scope; `None` when nothing is in both.
    pub fn narrow(&self, org: Option<String>, env: Option<String>) -> Option<(Option<String>, Option<String>)> {
        let within = |asked: Option<String>, scope: Option<String>| match (asked, scope) {
            (Some(asked), Some(scope)) if asked != scope => None,
            (asked, scope) => Some(asked.or(scope)),
        };
        Some((within(org, self.scope_org())?, within(env, self.scope_env())?))
    }

    /// For people: `org shop, env prod`.
    pub fn scope(&self) -> String {
        if self.is_everywhere() { "all orgs and envs".into() } else { place(&self.org, &self.env) }
    }

    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

/// The same words as for what was never there.
pub fn absent(id: &ResourceId) -> Fault {
    Fault::new(Code::NotFound, format!("{id} does not exist in {}", place(&id.org, &id.env)))
}

fn place(org: &str, env: &str) -> String {
    match (org, env) {
        ("", "") => "no org and no env".into(),
        (org, "") => format!("org {org}"),
        ("", env) => format!("env {env}"),
        (org, env) => format!("org {org}, env {env}"),
    }
}

/// The caller of a method; the layer put it there.
pub fn principal<T>(request: &tonic::Request<T>) -> Result<Arc<Principal>, Fault> {
    request
        .extensions()
        .get::<Arc<Principal>>()
        .cloned()
        .ok_or_else(|| Fault::new(Code::Unauthenticated, "this needs a token"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(role: Role, org: &str, env: &str) -> Principal {
        Principal { org: org.into(), env: env.into(), ..Principal::inside("token:t", role) }
    }

    fn id(kind: &str, org: &str, env: &str) -> ResourceId {
        ResourceId { org: org.into(), env: env.into(), ..ResourceId::new(kind, "x") }
    }

    #[test]
    fn roles_rise_and_workers_stand_apart() {
        use Role::*;
        for (has, needed, may) in [
            (Viewer, Viewer, true),
            (Viewer, Operator, false),
            (Operator, Viewer, true),
            (Operator, Admin, false),
            (Admin, Operator, true),
            (Admin, Worker, false),
            (Worker, Viewer, false),
            (Worker, Worker, true),
        ] {
            assert_eq!(has.reaches(needed), may, "{has:?} {needed:?}");
        }
        assert!(Role::ALL.iter().all(|role| Role::parse(role.as_str()) == Some(*role)));
        assert_eq!(Role::parse("root"), None);
    }

    #[test]
    fn what_is_outside_is_absent_to_readers_and_denied_to_writers() {
        let operator = caller(Role::Operator, "shop", "dev");
        for (org, env, inside) in
            [("shop", "dev", true), ("shop", "prod", false), ("bank", "dev", false), ("", "", false)]
        {
            let id = id("CivoVpc", org, env);
            assert_eq!(operator.may_see(&id), inside);
            assert_eq!(operator.see(&id).err().map(|fault| fault.code), (!inside).then_some(Code::NotFound));
            let written = operator.require(Role::Operator, &id).err().map(|fault| fault.code);
            assert_eq!(written, (!inside).then_some(Code::Denied));
        }
        assert!(caller(Role::Operator, "shop", "").may_see(&id("CivoVpc", "shop", "prod")));
        assert!(caller(Role::Operator, "", "").may_see(&id("CivoVpc", "", "")));
    }

    #[test]
    fn only_admins_write_what_decides_about_others() {
        for kind in ADMIN_KINDS {
            let id = id(kind, "shop", "");
            assert!(caller(Role::Operator, "shop", "").require(Role::Operator, &id).is_err());
            assert!(caller(Role::Admin, "shop", "").require(Role::Operator, &id).is_ok());
            assert!(caller(Role::Admin, "shop", "dev").require(Role::Operator, &id).is_err(), "all envs' is not dev's");
            assert!(caller(Role::Viewer, "shop", "").require(Role::Viewer, &id).is_ok());
        }
    }

    #[test]
    fn lists_are_narrowed() {
        let text = |text: &str| Some(text.to_owned());
        let viewer = caller(Role::Viewer, "shop", "");
        assert_eq!(viewer.narrow(None, text("dev")), Some((text("shop"), text("dev"))));
        assert_eq!(viewer.narrow(text("shop"), None), Some((text("shop"), None)));
        assert_eq!(viewer.narrow(text("bank"), None), None);
        assert_eq!(viewer.narrow(text(""), None), None);
        assert_eq!(caller(Role::Viewer, "", "").narrow(text("bank"), None), Some((text("bank"), None)));
    }
}
