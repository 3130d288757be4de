//! The table: for each method the least role, what a scope means for it, a request, and what whoever may call it gets.

use crate::setup::{Fixture, Reach, Who};
use berth_server::access::Role;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Least {
    Public,
    Anyone,
    Role(Role),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// It makes no difference.
    None,
    /// What is outside is not there.
    Read,
    /// What is outside may not be changed.
    Write,
    /// What is outside is left out.
    List,
    /// For those alone who are not confined.
    Everywhere,
}

pub struct Row {
    pub method: &'static str,
    pub least: Least,
    pub scope: Scope,
    pub request: fn(&Fixture) -> Value,
    /// Code, and a part of the message, for those who may.
    pub passes: (&'static str, &'static str),
    /// A role that this request needs beside the method's: for those who see what it is about.
    pub also: Option<Role>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Unauthenticated,
    Denied,
    Absent,
    Narrowed,
    Passes,
}

impl Row {
    pub fn expected(&self, who: Who) -> Expected {
        let (Least::Role(_) | Least::Anyone) = self.least else { return Expected::Passes };
        let Who::Has(role, reach) = who else { return Expected::Unauthenticated };
        if let Least::Role(least) = self.least
            && !suffices(role, least)
        {
            return Expected::Denied;
        }
        let sees = match self.also {
            Some(also) if !suffices(role, also) => Expected::Denied,
            _ => Expected::Passes,
        };
        match (self.scope, reach) {
            (Scope::None, _) | (_, Reach::All) => sees,
            (Scope::Everywhere, _) => Expected::Denied,
            (_, Reach::Here) => sees,
            (Scope::Read, _) => Expected::Absent,
            (Scope::Write, _) => Expected::Denied,
            (Scope::List, _) => Expected::Narrowed,
        }
    }
}

fn suffices(role: Role, least: Role) -> bool {
    let rank = |role| [Role::Viewer, Role::Operator, Role::Admin].iter().position(|known| *known == role);
    match (role, least) {
        (Role::Worker, Role::Worker) => true,
        (Role::Worker, _) | (_, Role::Worker) => false,
        _ => rank(role) >= rank(least),
    }
}

const OK: (&str, &str) = ("ok", "");
/// No worker runs here: whoever may ask waits for one.
const WAITS: (&str, &str) = ("waits", "");
const VIEWER: Least = Least::Role(Role::Viewer);
const OPERATOR: Least = Least::Role(Role::Operator);
const ADMIN: Least = Least::Role(Role::Admin);
const WORKER: Least = Least::Role(Role::Worker);

fn row(
    method: &'static str,
    least: Least,
    scope: Scope,
    passes: (&'static str, &'static str),
    request: fn(&Fixture) -> Value,
) -> Row {
    Row { method, least, scope, request, passes, also: None }
}

fn network(place: &Fixture) -> Value {
    json!({"kind": "CivoVpc", "name": place.network, "org": "shop", "env": "dev"})
}

fn with(mut value: Value, name: &str, more: Value) -> Value {
    value[name] = more;
    value
}

fn nothing(_: &Fixture) -> Value {
    json!({})
}

fn manifest(name: &str) -> Value {
    json!([{"name": "net.yaml", "text": format!(
        "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: {name}, org: shop, env: dev}}\n\
         spec: {{networkName: {name}, region: fra1}}\n"
    )}])
}

pub fn rows() -> Vec<Row> {
    use Scope::*;
    vec![
        row("Resources.Apply", OPERATOR, Write, OK, |_| json!({"files": manifest("applied")})),
        row(
            "Resources.Apply",
            OPERATOR,
            Write,
            OK,
            |place| json!({"delete": [with(network(place), "name", json!("doomed"))]}),
        ),
        row("Resources.Get", VIEWER, Read, OK, network),
        row("Resources.List", VIEWER, List, OK, nothing),
        row("Resources.Delete", OPERATOR, Write, OK, |place| with(network(place), "name", json!("doomed"))),
        row("Resources.Plan", OPERATOR, Write, WAITS, |_| json!({"files": manifest("planned")})),
        row("Resources.Approve", OPERATOR, Write, ("refused", ""), |place| {
            with(network(place), "digest", json!("abc"))
        }),
        row("Resources.GetPlan", VIEWER, Read, ("not-found", "has not been planned"), network),
        row("Resources.Outputs", VIEWER, Read, OK, network),
        Row {
            also: Some(Role::Operator),
            ..row("Resources.Outputs", VIEWER, Read, ("refused", "has no kubeconfig"), |place| {
                with(with(network(place), "kind", json!("CivoKubernetesCluster")), "secrets", json!(["kubeconfig_b64"]))
            })
        },
        row("Resources.Kubeconfig", OPERATOR, Read, ("refused", "has no kubeconfig"), network),
        row("Resources.History", VIEWER, Read, OK, network),
        row("Resources.Units", VIEWER, Read, OK, network),
        row("Resources.Drift", OPERATOR, Read, WAITS, |place| json!({"ids": [network(place)]})),
        row(
            "Resources.MoveAccount",
            ADMIN,
            Everywhere,
            ("not-found", "nothing is managed"),
            |_| json!({"account": "nowhere"}),
        ),
        row(
            "Resources.Import",
            OPERATOR,
            Write,
            WAITS,
            |_| json!({"provider": "civo", "org": "shop", "env": "dev", "kind": "CivoVpc", "name": "found", "objectId": "x", "region": "fra1"}),
        ),
        row("Tasks.List", VIEWER, List, OK, nothing),
        row("Tasks.Get", VIEWER, Read, OK, |place| json!({"id": place.task})),
        row("Tasks.Logs", VIEWER, Read, OK, |place| json!({"id": place.task})),
        row(
            "Tasks.Cancel",
            OPERATOR,
            Read,
            ("refused", "is cancelled already"),
            |place| json!({"id": place.cancelled}),
        ),
        row("Tasks.Workers", VIEWER, None, OK, nothing),
        row("Tasks.Accounts", VIEWER, None, OK, nothing),
        row("Events.List", VIEWER, List, OK, nothing),
        row("Events.Watch", VIEWER, None, OK, nothing),
        row(
            "Access.CreateToken",
            ADMIN,
            Write,
            OK,
            |_| json!({"name": "made", "role": "viewer", "org": "shop", "env": "dev"}),
        ),
        row("Access.ListTokens", ADMIN, List, OK, nothing),
        row("Access.RevokeToken", ADMIN, Read, OK, |place| json!({"id": place.victim})),
        row("Access.WhoAmI", Least::Anyone, None, OK, nothing),
        row("Access.LoginOptions", Least::Public, None, OK, nothing),
        row("Access.Login", Least::Public, None, ("refused", "no identity provider"), |_| json!({"idToken": "x"})),
        row("Access.Logout", Least::Anyone, None, OK, nothing),
        row("Access.Audit", ADMIN, Everywhere, OK, nothing),
        row("Access.VerifyAudit", ADMIN, Everywhere, OK, nothing),
        row("Access.AuditHead", ADMIN, Everywhere, OK, nothing),
        row("Access.RotateKeys", ADMIN, Everywhere, OK, nothing),
        row(
            "WorkerService.Lease",
            WORKER,
            None,
            OK,
            |_| json!({"worker": "w", "draining": true, "protocol": berth_server::worker::PROTOCOL}),
        ),
        row("WorkerService.Heartbeat", WORKER, None, OK, |_| json!({"worker": "w"})),
        row("WorkerService.SubmitPlan", WORKER, None, ("invalid-argument", ""), nothing),
        row("WorkerService.Record", WORKER, None, ("invalid-argument", ""), nothing),
        row("WorkerService.Progress", WORKER, None, ("invalid-argument", ""), nothing),
        row("WorkerService.Report", WORKER, None, ("invalid-argument", ""), nothing),
        row("WorkerService.Release", WORKER, None, ("invalid-argument", ""), nothing),
    ]
}
