//! A server with two orgs in it, and a token for every kind of caller.

use berth_server::access::{Role, token};
use berth_server::limits::Limits;
use berth_server::start::{Config, Running};
use berth_store::{Actor, AuditNote, Control, NewToken, TaskQuery, TokenRow};
use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Mutex;
use tempfile::TempDir;

use crate::call::Protocol;
use crate::support::start_server;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    All,
    /// Org shop, env dev: where the requests are about.
    Here,
    OtherOrg,
    OtherEnv,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    Nobody,
    Garbage,
    /// Well formed, and of no server.
    Unknown,
    Expired,
    Revoked,
    Has(Role, Reach),
}

impl Who {
    pub fn all() -> Vec<Self> {
        let mut all = vec![Who::Nobody, Who::Garbage, Who::Unknown, Who::Expired, Who::Revoked];
        for role in [Role::Viewer, Role::Operator, Role::Admin] {
            all.extend([Reach::All, Reach::Here, Reach::OtherOrg, Reach::OtherEnv].map(|reach| Who::Has(role, reach)));
        }
        // A worker is for all or for an org.
        all.extend([Reach::All, Reach::Here, Reach::OtherOrg].map(|reach| Who::Has(Role::Worker, reach)));
        all
    }

    fn scope(self) -> (&'static str, &'static str) {
        match self {
            Who::Has(Role::Worker, Reach::Here) => ("shop", ""),
            Who::Has(Role::Worker, Reach::OtherOrg) => ("bank", ""),
            Who::Has(_, Reach::Here) => ("shop", "dev"),
            Who::Has(_, Reach::OtherOrg) => ("bank", "dev"),
            Who::Has(_, Reach::OtherEnv) => ("shop", "prod"),
            _ => ("", ""),
        }
    }
}

pub struct Server {
    pub running: Running,
    pub http: reqwest::Client,
    pub folder: TempDir,
    tokens: Mutex<HashMap<Who, String>>,
}

impl Server {
    pub async fn start() -> Self {
        // The same address fails on purpose hundreds of times.
        Self::with(|config| config.limits = Limits { failed_attempts: 1_000_000, ..Limits::default() }).await
    }

    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let without_worker = |config: &mut Config| {
            config.worker = None;
            change(config);
        };
        let (running, folder, http) = start_server(without_worker).await;
        Self { running, http, folder, tokens: Mutex::default() }
    }

    pub fn control(&self) -> &Control {
        &self.running.server.control
    }

    pub async fn stop(self) {
        self.running.stop().await;
    }

    /// A token for such a caller; a new one where the call will end it.
    pub async fn token(&self, who: Who, fresh: bool) -> Option<String> {
        match who {
            Who::Nobody => return None,
            Who::Garbage => return Some("berth_not-a-token".into()),
            Who::Unknown => return Some(token::make().unwrap().0.expose_secret().to_owned()),
            _ => {}
        }
        let kept = self.tokens.lock().unwrap().get(&who).cloned();
        if let Some(kept) = kept.filter(|_| !fresh) {
            return Some(kept);
        }
        let (role, ends) = match who {
            Who::Has(role, _) => (role, 3600),
            Who::Expired => (Role::Admin, -1),
            _ => (Role::Admin, 3600),
        };
        let (org, env) = who.scope();
        let (secret, row) =
            self.make(&format!("{who:?}").replace(['(', ')', ',', ' '], "-"), role, org, env, ends).await;
        if who == Who::Revoked {
            let actor = Actor::new("test");
            self.control().revoke_token(&row.id, &actor, AuditNote::default(), Timestamp::now()).await.unwrap();
        }
        if !fresh {
            self.tokens.lock().unwrap().insert(who, secret.clone());
        }
        Some(secret)
    }

    pub async fn make(&self, name: &str, role: Role, org: &str, env: &str, seconds: i64) -> (String, TokenRow) {
        let (secret, hash) = token::make().unwrap();
        let now = Timestamp::now();
        let new = NewToken {
            id: uuid::Uuid::now_v7().to_string(),
            name: name.into(),
            hash,
            role: role.as_str().into(),
            org: org.into(),
            env: env.into(),
            expires_at: Some(now + SignedDuration::from_secs(seconds)),
            ..NewToken::default()
        };
        let row = self.control().create_token(new, &Actor::new("test"), AuditNote::default(), now).await.unwrap();
        (secret.expose_secret().to_owned(), row)
    }
}

/// What the requests are about: everything lies in org shop, env dev.
pub struct Fixture {
    pub network: String,
    pub task: String,
    /// One that was cancelled.
    pub cancelled: String,
    /// Id of a token that may be revoked.
    pub victim: String,
}

impl Fixture {
    pub async fn fill(server: &Server) -> Self {
        let network = "only-in-shop-dev".to_owned();
        let (applier, _) = server.make("applier", Role::Admin, "", "", 3600).await;
        let manifest = |kind: &str, name: &str, org: &str, spec: &str| {
            format!(
                "---\napiVersion: civo.berth.dev/v1\nkind: {kind}\nmetadata: {{name: {name}, org: {org}, env: dev}}\nspec: {spec}\n"
            )
        };
        let vpc = |name: &str, org: &str| {
            manifest("CivoVpc", name, org, &format!("{{networkName: {name}-{org}, region: fra1}}"))
        };
        let cluster = "{clusterName: c, region: fra1, kubernetesVersion: 1.30.5-k3s1, \
                       network: {valueFrom: {name: only-in-shop-dev}}, defaultNodePool: {size: g4s.kube.small, nodeCount: 1}}";
        let text = [
            vpc(&network, "shop"),
            vpc("doomed", "shop"),
            vpc("banks-own", "bank"),
            manifest("CivoKubernetesCluster", &network, "shop", cluster),
        ]
        .concat();
        let request = json!({"files": [{"name": "all.yaml", "text": text}]});
        let answer = server.call(Protocol::Rest, "Resources.Apply", &request, Some(&applier)).await.unwrap();
        assert_eq!(answer.code, "ok", "{answer:?}");
        let (_, victim) = server.make("only-in-shop-dev", Role::Viewer, "shop", "dev", 3600).await;
        let task = task_of(server, &network).await;
        let cancelled = task_of(server, "doomed").await;
        let request = json!({"id": cancelled});
        let answer = server.call(Protocol::Grpc, "Tasks.Cancel", &request, Some(&applier)).await.unwrap();
        assert_eq!(answer.code, "ok", "{answer:?}");
        Self { network, task, cancelled, victim: victim.id }
    }
}

/// The controller makes a task for what was applied; no worker takes it.
async fn task_of(server: &Server, name: &str) -> String {
    let kind = Some("CivoVpc".to_owned());
    let query = TaskQuery { kind, name: Some(name.to_owned()), limit: 1, ..TaskQuery::default() };
    for _ in 0..200 {
        if let Some(task) = server.control().tasks(&query).await.unwrap().first() {
            return task.id.0.clone();
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the controller made no task for {name}");
}
