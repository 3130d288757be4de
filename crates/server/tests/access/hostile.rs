//! A worker that is not ours: it speaks gRPC by the published descriptors, shares no code with the real one, holds a token that
//! is confined to one org, and sends whatever it likes. Each attempt is refused and leaves nothing behind.

use crate::call::Protocol;
use crate::setup::Server;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use berth_engine::ResourceState;
use berth_model::ResourceId;
use berth_server::Fault;
use berth_server::access::Role;
use berth_server::api::methods::methods;
use berth_store::{Control, Entries, Filter, TaskState};
use prost::Message;
use prost_reflect::DynamicMessage;
use serde::de::DeserializeSeed;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);
/// The token of an org that the hostile worker has nothing to do with.
const ACME_TOKEN: &str = "acme-cloud-token-0123456789";
const SHOP_TOKEN: &str = "shop-cloud-token-0123456789";

pub struct Worker<'s> {
    server: &'s Server,
    token: String,
    identity: age::x25519::Identity,
    /// Tasks that came along with the one that was waited for.
    spare: Mutex<Vec<Leased>>,
}

/// A task in the worker's hands.
#[derive(Clone)]
pub struct Leased {
    pub held: Value,
    pub op: String,
    pub context: Value,
    /// What was sealed for this worker, in the clear.
    pub credentials: String,
}

impl Leased {
    pub fn is_about(&self, kind: &str, name: &str) -> bool {
        let id = &self.context["resource"];
        id["kind"] == kind && id["name"] == name
    }
}

impl<'s> Worker<'s> {
    pub async fn new(server: &'s Server, org: &str) -> Self {
        let name = format!("worker-{}", uuid::Uuid::now_v7().simple());
        let (token, _) = server.make(&name, Role::Worker, org, "", 3600).await;
        Self { server, token, identity: age::x25519::Identity::generate(), spare: Mutex::default() }
    }

    /// One call by its descriptor.
    pub async fn call(&self, method: &str, request: Value) -> Result<Value, Fault> {
        let label = format!("WorkerService.{method}");
        let known = methods().all().iter().find(|known| known.label == label).expect("a method");
        let message: DynamicMessage = known.descriptor.input().deserialize(request).expect("a request");
        let bytes = message.encode_to_vec();
        let mut frame = vec![0];
        frame.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
        frame.extend(bytes);
        let request = self.server.http.post(format!("{}{}", self.server.running.url(), known.path));
        let request = request.header("content-type", "application/grpc").header("te", "trailers");
        let sent = request.header("authorization", format!("Bearer {}", self.token)).body(frame).send().await.unwrap();
        let headers = sent.headers().clone();
        let refused = |status: &tonic::Status| status.code() != tonic::Code::Ok;
        if let Some(status) = tonic::Status::from_header_map(&headers).filter(refused) {
            return Err(Fault::from_status(&status));
        }
        let body = sent.bytes().await.unwrap();
        let answer = DynamicMessage::decode(known.descriptor.output(), body.get(5..).unwrap_or_default()).unwrap();
        Ok(serde_json::to_value(&answer).unwrap())
    }

    pub async fn lease(&self) -> Vec<Leased> {
        let request = json!({
            "worker": "evil", "changes": 50, "checks": 50, "waitSeconds": 1, "capacity": 50,
            "recipient": self.identity.to_public().to_string(), "version": env!("CARGO_PKG_VERSION"),
            "protocol": berth_server::worker::PROTOCOL,
        });
        let answer = self.call("Lease", request).await.unwrap();
        let bytes = |value: &Value| STANDARD.decode(value.as_str().unwrap_or_default()).unwrap();
        let tasks = answer["tasks"].as_array().cloned().unwrap_or_default();
        let leased = tasks.iter().map(|task| {
            let sealed = bytes(&task["credentials"]);
            let clear = if sealed.is_empty() { Vec::new() } else { age::decrypt(&self.identity, &sealed).unwrap() };
            Leased {
                held: task["held"].clone(),
                op: task["op"].as_str().unwrap().to_owned(),
                context: serde_json::from_slice(&bytes(&task["context"])).unwrap(),
                credentials: String::from_utf8(clear).unwrap(),
            }
        });
        leased.collect()
    }

    /// Asks for work until a task is among it.
    pub async fn lease_until(&self, wanted: impl Fn(&Leased) -> bool) -> Leased {
        let end = Instant::now() + SOON;
        loop {
            let new = self.lease().await;
            let mut spare = self.spare.lock().unwrap();
            // The newest lease of a task is the one that counts.
            new.into_iter().for_each(|leased| spare.insert(0, leased));
            if let Some(at) = spare.iter().position(&wanted) {
                return spare.remove(at);
            }
            drop(spare);
            assert!(Instant::now() < end, "the task never came");
        }
    }

    pub async fn submit(&self, held: &Value, plan: &Value) -> Result<Value, Fault> {
        self.call("SubmitPlan", json!({"held": held, "plan": STANDARD.encode(plan.to_string())})).await
    }

    pub async fn record(&self, leased: &Leased, write: Value) -> Result<Value, Fault> {
        self.record_of(&leased.held, &leased.context["resource"], write).await
    }

    pub async fn record_of(&self, held: &Value, id: &Value, write: Value) -> Result<Value, Fault> {
        static KEYS: AtomicU64 = AtomicU64::new(0);
        let key = format!("key-{}", KEYS.fetch_add(1, Ordering::Relaxed));
        let mut request = json!({"held": held, "resource": id, "key": key});
        request.as_object_mut().unwrap().extend(write.as_object().cloned().unwrap());
        self.call("Record", request).await
    }

    pub async fn report(&self, held: &Value, outcome: &str, result: &Value) -> Result<Value, Fault> {
        let result = if result.is_null() { String::new() } else { STANDARD.encode(result.to_string()) };
        self.call("Report", json!({"held": held, "outcome": outcome, "result": result})).await
    }

    /// As an honest worker would: an Account has no objects.
    pub async fn make_ready(&self, leased: &Leased) {
        let plan = json!({"resources": [{"id": leased.context["resource"], "action": "update", "units": []}]});
        assert_eq!(self.submit(&leased.held, &plan).await.unwrap()["proceed"], true);
        self.record(leased, ready(leased, json!({"identity": "me"}))).await.unwrap();
        self.report(&leased.held, "done", &Value::Null).await.unwrap();
    }
}

fn ready(leased: &Leased, outputs: Value) -> Value {
    let generation = leased.context["generation"].as_i64().unwrap();
    json!({"status": {"state": "Ready", "outputs": outputs.to_string(), "observedGeneration": generation.to_string()}})
}

pub fn unit(change: Value) -> Value {
    let mut unit = json!({
        "key": "network", "token": "t1", "unitType": "civo.network", "scope": "fra1", "account": "shop/dev/civo",
        "props": "{}", "outputs": "{}",
    });
    unit.as_object_mut().unwrap().extend(change.as_object().cloned().unwrap());
    unit
}

/// JSON of so many levels.
pub fn deep(levels: usize) -> Value {
    (0..levels).fold(json!("x"), |inner, _| json!([inner]))
}

pub fn intent(op: &str, change: Value) -> Value {
    json!({"intent": {"op": op, "what": "a network", "unit": unit(change)}})
}

pub fn network_plan(leased: &Leased) -> Value {
    let units = json!([{"key": "network", "unit_type": "civo.network", "op": "create"}]);
    json!({"resources": [{"id": leased.context["resource"], "action": "create", "units": units}]})
}

pub fn account(name: &str, org: &str, env: &str, token: &str, more: &str) -> String {
    format!(
        "---\napiVersion: byoc.berth.dev/v1\nkind: Account\nmetadata: {{name: {name}, org: '{org}', env: '{env}'}}\n\
         spec: {{provider: civo, civo: {{token: {{value: {token}}}, region: fra1}}{more}}}\n"
    )
}

pub fn network(name: &str, org: &str, env: &str, account: &str) -> String {
    format!(
        "---\napiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: {name}, org: {org}, env: {env}}}\n\
         spec: {{networkName: {name}, region: fra1, account: {account}}}\n"
    )
}

pub async fn apply(server: &Server, text: String) {
    let (admin, _) = server.make(&format!("admin-{}", uuid::Uuid::now_v7()), Role::Admin, "", "", 3600).await;
    let request = json!({"files": [{"name": "all.yaml", "text": text}]});
    let answer = server.call(Protocol::Rest, "Resources.Apply", &request, Some(&admin)).await.unwrap();
    assert_eq!(answer.code, "ok", "{answer:?}");
}

/// Two orgs with an account each, and a network in the one that the hostile worker is of.
pub async fn two_orgs() -> Server {
    let server = Server::start().await;
    let text = [
        account("civo-main", "acme", "prod", ACME_TOKEN, ""),
        account("civo", "shop", "dev", SHOP_TOKEN, ""),
        network("treasure", "acme", "prod", "civo-main"),
        network("net", "shop", "dev", "civo"),
        network("other", "shop", "dev", "civo"),
    ];
    apply(&server, text.concat()).await;
    server
}

/// Everything that a worker could leave behind. What a task says of itself is not part of it.
pub async fn footprint(control: &Control) -> String {
    let store = control.store();
    let units = store.all_units().await.unwrap();
    let journal = store.journal(Entries::All, 1000).await.unwrap();
    let events = store.events(1000).await.unwrap();
    let stored = store.resources(&Filter::default()).await.unwrap();
    let ids: Vec<ResourceId> = stored.iter().map(|one| one.id.clone()).collect();
    let metas = control.meta(&ids).await.unwrap();
    let states: Vec<_> = stored.iter().map(|one| (&one.id, one.generation, one.deleting, &one.status)).collect();
    let metas: Vec<_> = metas.iter().map(|meta| (&meta.drift, &meta.plan, &meta.plan_digest, &meta.account)).collect();
    format!("{units:?}\n{journal:?}\n{events:?}\n{states:?}\n{metas:?}")
}

/// Refused for what it is: not by chance, and not by a failure of the server's.
pub fn is_refusal(fault: &Fault) -> bool {
    ["refused", "invalid-argument", "conflict", "not-found", "too-large", "denied"].contains(&fault.code.name())
}

/// A hostile worker of org shop that has readied the shop's account, with the network's task in its hands.
pub async fn with_network(server: &Server) -> (Worker<'_>, Leased) {
    let worker = Worker::new(server, "shop").await;
    let own = worker.lease_until(|leased| leased.is_about("Account", "civo")).await;
    assert!(own.credentials.contains(SHOP_TOKEN), "its own org's token is its own");
    worker.make_ready(&own).await;
    let leased = worker.lease_until(|leased| leased.is_about("CivoVpc", "net")).await;
    (worker, leased)
}

/// As an honest worker would: the network is made, and is this object.
pub async fn network_of(worker: &Worker<'_>, leased: &Leased, object: &str) {
    worker.submit(&leased.held, &network_plan(leased)).await.unwrap();
    let entry = worker.record(leased, intent("create", json!({}))).await.unwrap()["entry"].clone();
    let made = unit(json!({"objectId": object, "ready": true}));
    worker.record(leased, json!({"close": {"entry": entry, "outcome": "done", "unit": made}})).await.unwrap();
    worker.record(leased, ready(leased, json!({"network_id": object}))).await.unwrap();
    worker.report(&leased.held, "done", &Value::Null).await.unwrap();
}

#[tokio::test]
async fn a_worker_of_one_org_never_gets_anothers_token() {
    let server = two_orgs().await;
    let (worker, leased) = with_network(&server).await;
    assert_eq!(worker.submit(&leased.held, &network_plan(&leased)).await.unwrap()["proceed"], true);
    for name in ["acme/prod/civo-main", "civo-main", "acme//civo-main", "", "env:civo", "shop//civo"] {
        let before = footprint(server.control()).await;
        for write in [intent("create", json!({"account": name})), json!({"saveUnit": unit(json!({"account": name}))})] {
            let fault = worker.record(&leased, write).await.expect_err(name);
            assert!(is_refusal(&fault), "{name}: {fault}");
        }
        assert_eq!(footprint(server.control()).await, before, "{name}");
    }
    worker.call("Release", json!({"held": leased.held, "why": "again"})).await.unwrap();
    let again = worker.lease_until(|leased| leased.is_about("CivoVpc", "net")).await;
    assert!(again.credentials.contains(SHOP_TOKEN) && !again.credentials.contains(ACME_TOKEN));

    // A row that was poisoned by other means gives nothing away either.
    worker.submit(&again.held, &network_plan(&again)).await.unwrap();
    worker.record(&again, intent("create", json!({}))).await.unwrap();
    worker.call("Release", json!({"held": again.held, "why": "again"})).await.unwrap();
    let path = server.folder.path().join("server/state.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).busy_timeout(SOON);
    let mut raw = <sqlx::SqliteConnection as sqlx::Connection>::connect_with(&options).await.unwrap();
    let poison = "UPDATE units SET account = 'acme/prod/civo-main'";
    assert_eq!(sqlx::query(poison).execute(&mut raw).await.unwrap().rows_affected(), 1);
    let end = Instant::now() + SOON;
    let id = ResourceId { org: "shop".into(), env: "dev".into(), ..ResourceId::new("CivoVpc", "net") };
    loop {
        for leased in worker.lease().await {
            assert!(!leased.credentials.contains(ACME_TOKEN), "{}", leased.context);
            assert!(!leased.context.to_string().contains("civo-main"), "{}", leased.context);
        }
        let stored = server.control().store().resource(&id).await.unwrap().unwrap();
        if stored.status.state == ResourceState::Failed {
            assert!(stored.status.message.contains("is not for org shop"), "{}", stored.status.message);
            break;
        }
        assert!(Instant::now() < end, "{:?}", stored.status);
    }
    server.stop().await;
}

#[tokio::test]
async fn nothing_that_a_worker_makes_up_is_kept() {
    let server = two_orgs().await;
    let (worker, leased) = with_network(&server).await;
    let other = worker.lease_until(|leased| leased.is_about("CivoVpc", "other")).await;
    let everywhere = Worker::new(&server, "").await;
    let acme = everywhere.lease_until(|leased| leased.is_about("Account", "civo-main")).await;
    everywhere.make_ready(&acme).await;
    let foreign = everywhere.lease_until(|leased| leased.is_about("CivoVpc", "treasure")).await;
    let before = footprint(server.control()).await;

    // Out of turn: nothing is recorded before a plan was accepted, by nobody who does not hold the task.
    let id = &leased.context["resource"];
    let wrong = |fence: i64| json!({"task": leased.held["task"], "fence": fence.to_string()});
    for (what, held) in [
        ("no plan yet", leased.held.clone()),
        ("a fence of tomorrow", wrong(i64::MAX)),
        ("a fence of yesterday", wrong(0)),
        ("a negative fence", wrong(-1)),
        ("another task of the org's", other.held.clone()),
        ("another org's task", foreign.held.clone()),
        ("a task that is not there", json!({"task": "nobody", "fence": "1"})),
    ] {
        for write in writes() {
            let fault = worker.record_of(&held, id, write.clone()).await.expect_err(what);
            assert!(is_refusal(&fault), "{what}: {write}: {fault}");
        }
        if what != "no plan yet" {
            let plan = network_plan(&leased);
            assert!(is_refusal(&worker.submit(&held, &plan).await.expect_err(what)), "{what}");
            if what != "another task of the org's" {
                assert!(is_refusal(&worker.report(&held, "failed", &Value::Null).await.expect_err(what)), "{what}");
                let release = json!({"held": held, "why": "mine"});
                assert!(is_refusal(&worker.call("Release", release).await.expect_err(what)), "{what}");
                let lines = json!({"held": held, "message": "mine", "lines": [{"at": "1", "text": "mine"}]});
                assert!(is_refusal(&worker.call("Progress", lines).await.expect_err(what)), "{what}");
            }
        }
        assert!(is_refusal(&worker.report(&held, "done", &Value::Null).await.expect_err(what)), "{what}");
        assert_eq!(footprint(server.control()).await, before, "{what}");
    }
    let task = foreign.held["task"].as_str().unwrap().to_owned();
    let task = server.control().task(&berth_store::TaskId(task)).await.unwrap().unwrap();
    assert_eq!((task.state, task.message.as_str()), (TaskState::Running, ""), "another org's task goes on");
    server.stop().await;
}

/// One write of each sort, as an honest worker might send it in its turn.
fn writes() -> Vec<Value> {
    vec![
        intent("create", json!({})),
        json!({"close": {"entry": "1", "outcome": "done", "unit": unit(json!({"objectId": "n"}))}}),
        json!({"saveUnit": unit(json!({"objectId": "n"}))}),
        json!({"forgetUnit": {"key": "network", "token": "t1"}}),
        json!({"status": {"state": "Ready", "observedGeneration": "1"}}),
        json!({"forgetResource": true}),
        json!({"event": {"what": "refreshed", "detail": "x"}}),
    ]
}

#[tokio::test]
async fn plans_that_are_not_the_resources_own_are_refused() {
    let server = two_orgs().await;
    let (worker, leased) = with_network(&server).await;
    let id = leased.context["resource"].clone();
    let plan =
        |id: &Value, action: &str, units: Value| json!({"resources": [{"id": id, "action": action, "units": units}]});
    let one = |key: &str, kind: &str, op: &str| json!([{"key": key, "unit_type": kind, "op": op}]);
    let mut treasure = id.clone();
    (treasure["name"], treasure["org"], treasure["env"]) = (json!("treasure"), json!("acme"), json!("prod"));
    let good = network_plan(&leased);
    let twice = json!({"resources": [good["resources"][0], good["resources"][0]]});
    let beside = json!({"resources": [good["resources"][0], {"id": treasure, "action": "unchanged", "units": []}]});
    for (what, plan) in [
        ("another resource", plan(&treasure, "create", one("network", "civo.network", "create"))),
        ("a resource beside its own", beside),
        ("its own resource twice", twice),
        ("nothing", json!({"resources": []})),
        ("a made-up unit", plan(&id, "create", one("backdoor", "civo.network", "create"))),
        ("a made-up type", plan(&id, "create", one("network", "civo.cluster", "create"))),
        ("an update of what is not there", plan(&id, "update", one("network", "civo.network", "update"))),
        ("a deletion of what is not there", plan(&id, "update", one("network", "civo.network", "delete"))),
        ("a change that says it is none", plan(&id, "unchanged", one("network", "civo.network", "create"))),
        ("a change that says it goes on", plan(&id, "resume", one("network", "civo.network", "create"))),
        ("a part of it", plan(&id, "update", json!([]))),
        ("not a plan", json!({"resources": 7})),
        ("too large", json!({"resources": [], "x": "x".repeat(9 << 20)})),
    ] {
        let before = footprint(server.control()).await;
        let fault = worker.submit(&leased.held, &plan).await.expect_err(what);
        assert!(is_refusal(&fault), "{what}: {fault}");
        let fault = worker.record(&leased, intent("create", json!({}))).await.expect_err(what);
        assert!(is_refusal(&fault), "{what}: {fault}");
        assert_eq!(footprint(server.control()).await, before, "{what}");
    }
    // A deletion of what should stay: whoever planned it knows nothing of what is wanted, and gives the task back.
    let answer = worker.submit(&leased.held, &plan(&id, "delete", json!([]))).await.unwrap();
    assert_ne!(answer["proceed"], true);
    assert!(worker.record(&leased, intent("create", json!({}))).await.is_err());
    server.stop().await;
}

/// A close of the entry by which the network is made, with a unit that is changed so.
fn close(entry: &Value, change: Value) -> Value {
    json!({"close": {"entry": entry, "outcome": "done", "unit": unit(change)}})
}

/// What the accepted plan of a network does not allow while `entry` is open.
fn not_allowed(entry: &Value) -> Vec<(&'static str, Value)> {
    let long = "x".repeat(5000);
    let huge = format!("{{\"x\":\"{}\"}}", "x".repeat(5 << 20));
    let secrets: serde_json::Map<String, Value> = (0..1000).map(|n| (format!("s{n}"), json!("x"))).collect();
    let status = |state: &str, generation: i64, more: Value| {
        let mut status = json!({"state": state, "observedGeneration": generation.to_string()});
        status.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        json!({ "status": status })
    };
    let close = |change| close(entry, change);
    vec![
        ("another account in a close", close(json!({"objectId": "n", "account": "acme/prod/civo-main"}))),
        ("another key in a close", close(json!({"objectId": "n", "key": "cluster"}))),
        ("another token in a close", close(json!({"objectId": "n", "token": "t2"}))),
        ("another type in a close", close(json!({"objectId": "n", "unitType": "civo.cluster"}))),
        ("another place in a close", close(json!({"objectId": "n", "scope": "lon1"}))),
        ("gone, though it was to be made", json!({"close": {"entry": entry, "outcome": "done"}})),
        ("a made-up end", json!({"close": {"entry": entry, "outcome": "whatever"}})),
        ("an entry that is not there", json!({"close": {"entry": "999999", "outcome": "failed"}})),
        ("an entry below zero", json!({"close": {"entry": "-1", "outcome": "failed"}})),
        ("a second object under a made-up key", intent("create", json!({"key": "cluster", "token": "t9"}))),
        ("a type that is not the key's", intent("create", json!({"unitType": "civo.cluster", "token": "t9"}))),
        ("a deletion that was not planned", intent("delete", json!({}))),
        ("a replacement that was not planned", intent("replace", json!({"token": "t9"}))),
        ("a made-up operation", intent("destroy", json!({}))),
        ("a row that was never begun", json!({"saveUnit": unit(json!({"token": "t9"}))})),
        ("a row with another type", json!({"saveUnit": unit(json!({"unitType": "civo.cluster"}))})),
        ("a unit without a token", json!({"saveUnit": unit(json!({"token": ""}))})),
        ("a row to forget that stays", json!({"forgetUnit": {"key": "cluster", "token": "t1"}})),
        ("a name without end", intent("create", json!({"token": long}))),
        ("an id without end", json!({"saveUnit": unit(json!({"objectId": long}))})),
        ("properties without end", json!({"saveUnit": unit(json!({"props": huge}))})),
        ("properties that are none", json!({"saveUnit": unit(json!({"props": "[]"}))})),
        ("secrets without end", json!({"saveUnit": unit(json!({"secrets": secrets}))})),
        ("a made-up state", status("Hacked", 0, json!({}))),
        ("no state", status("", 0, json!({}))),
        ("a state that people bring about", status("AwaitingApproval", 0, json!({}))),
        ("Deleting, though it should stay", status("Deleting", 0, json!({}))),
        ("Ready of no generation", status("Ready", 0, json!({}))),
        ("Ready of a generation to come", status("Ready", 2, json!({}))),
        ("Ready for ever", status("Ready", i64::MAX, json!({}))),
        ("Pending of a generation to come", status("Pending", 7, json!({}))),
        ("an output that the kind has not", status("Pending", 0, json!({"outputs": "{\"kubeconfig\":\"x\"}"}))),
        ("a secret that the kind has not", status("Pending", 0, json!({"secrets": {"kubeconfig_b64": "x"}}))),
        ("outputs that are none", status("Pending", 0, json!({"outputs": "7"}))),
        ("facts without end", status("Pending", 0, json!({"facts": format!("{{\"a\":\"{}\"}}", "x".repeat(70_000))}))),
        ("the end of what should stay", json!({"forgetResource": true})),
        ("nothing", json!({"forgetResource": false})),
        ("an approval in the history", json!({"event": {"what": "approved", "detail": "by oidc:boss"}})),
        ("a deletion in the history", json!({"event": {"what": "deleted"}})),
        ("a policy's word in the history", json!({"event": {"what": "PolicyWarning"}})),
    ]
}

/// In its turn, with an accepted plan, and a row of its own.
#[tokio::test]
async fn an_accepted_plan_allows_what_it_says_and_nothing_else() {
    let server = two_orgs().await;
    let (worker, leased) = with_network(&server).await;
    worker.submit(&leased.held, &network_plan(&leased)).await.unwrap();
    worker.submit(&leased.held, &network_plan(&leased)).await.expect("said again by one that did not hear the answer");
    let entry = worker.record(&leased, intent("create", json!({}))).await.unwrap()["entry"].clone();
    let before = footprint(server.control()).await;
    for (what, write) in not_allowed(&entry) {
        let fault = worker.record(&leased, write).await.expect_err(what);
        assert!(is_refusal(&fault), "{what}: {fault}");
        assert_eq!(footprint(server.control()).await, before, "{what}");
    }
    // About another resource, its own org's or not.
    for (org, env, name) in [("shop", "dev", "other"), ("acme", "prod", "treasure"), ("", "", "net")] {
        let id = json!({"kind": "CivoVpc", "name": name, "org": org, "env": env});
        for write in writes() {
            let fault = worker.record_of(&leased.held, &id, write.clone()).await.expect_err(name);
            assert!(is_refusal(&fault), "{name}: {write}: {fault}");
        }
    }
    let other = json!({"resources": [{"id": leased.context["resource"], "action": "update", "units": [
        {"key": "network", "unit_type": "civo.network", "op": "create", "delete_first": true}]}]});
    assert!(is_refusal(&worker.submit(&leased.held, &other).await.expect_err("a second, other plan")));
    let result = json!({"plan": {"resources": []}, "troubles": [], "calls": 0});
    assert!(is_refusal(&worker.report(&leased.held, "done", &result).await.expect_err("a result of a change")));
    assert!(is_refusal(&worker.report(&leased.held, "won", &Value::Null).await.expect_err("a made-up outcome")));
    assert_eq!(footprint(server.control()).await, before);

    // What the plan says is taken; from then on the object is what it is.
    worker.record(&leased, close(&entry, json!({"objectId": "net-1"}))).await.unwrap();
    for (what, write) in [
        ("closed twice", close(&entry, json!({"objectId": "net-1"}))),
        ("another object", json!({"saveUnit": unit(json!({"objectId": "net-2"}))})),
    ] {
        assert!(is_refusal(&worker.record(&leased, write).await.expect_err(what)), "{what}");
    }
    worker.record(&leased, json!({"saveUnit": unit(json!({"objectId": "net-1", "ready": true}))})).await.unwrap();
    worker.record(&leased, ready(&leased, json!({"network_id": "net-1"}))).await.unwrap();
    worker.report(&leased.held, "done", &Value::Null).await.unwrap();
    for write in writes() {
        assert!(is_refusal(&worker.record(&leased, write).await.expect_err("the task is over")));
    }

    // Another resource of the org cannot be bound to the same object.
    let other = worker.lease_until(|leased| leased.is_about("CivoVpc", "other")).await;
    worker.submit(&other.held, &network_plan(&other)).await.unwrap();
    let entry = worker.record(&other, intent("create", json!({}))).await.unwrap()["entry"].clone();
    let stolen = json!({"close": {"entry": entry, "outcome": "done", "unit": unit(json!({"objectId": "net-1"}))}});
    assert!(is_refusal(&worker.record(&other, stolen).await.expect_err("an object has one resource")));
    // Nor does one task make rows without end.
    for n in 0..40 {
        if let Err(fault) = worker.record(&other, intent("create", json!({"token": format!("m{n}")}))).await {
            assert!(is_refusal(&fault) && n > 3, "{n}: {fault}");
            break;
        }
        assert!(n < 39, "rows have a limit");
    }
    server.stop().await;
}
