//! A cloud of its own, in this one file: its kind, client, lowering, import and simulation. The test is the real command line
//! with this cloud added, so that whatever names clouds anywhere else fails here.

mod support;

use async_trait::async_trait;
use berth_clouds::Credentials;
use berth_clouds::registry::{Cloud, Variables};
use berth_clouds::units::UnitType;
use berth_engine::handler::{Class, Handler, Listed, LowerInput, Outcome, Page, Provider, Raised, Trouble};
use berth_engine::unit::{Change, Field, Identity, Lowered, Observed, Phase, Props, Unit};
use berth_sandbox::http::{Call, Cloud as Api, Refusal, Reply};
use berth_sandbox::kube::KubeServer;
use berth_sandbox::registry::{CloudStore, ClusterTraits, SimulatedCloud};
use berth_sandbox::table::{AnyTable, Object, Table};
use berth_sandbox::world::View;
use berth_sandbox::{CloudName, ClusterView, SimTime, World};
use hyper::Method;
use prost::Message;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::folder::program;
use support::process::Process;
use support::ran::run;
use support::{KEY, free_port};

/// Set for processes that are to be the command line.
const AS_BERTH: &str = "BERTH_TEST_ONE_CLOUD";
const NAME: &str = "harbour";
const DOCK: &str = "harbour.dock";

// ---- the kind

const PROTO: &str = r#"
syntax = "proto3";
package berth.harbour.v1;
import "berth/core/v1/core.proto";
import "berth/options.proto";
import "buf/validate/validate.proto";

// A place where ships lie.
message HarbourDock {
  option (berth.kind) = {api_version: "harbour.berth.dev/v1", provider: "harbour", service: "network"};
  string api_version = 1;
  string kind = 2;
  berth.core.v1.Metadata metadata = 3 [(buf.validate.field).required = true];
  HarbourDockSpec spec = 4 [(buf.validate.field).required = true];
  HarbourDockStatus status = 5;
}

message HarbourDockSpec {
  // Name of the dock.
  string dock_name = 1 [(buf.validate.field).required = true, (berth.example) = "north"];
  // How many ships fit.
  uint32 places = 2 [(buf.validate.field).uint32 = {gte: 1, lte: 9}, (berth.example) = "2"];
  // Account to use.
  berth.core.v1.StringValueOrRef account = 3 [(berth.ref) = {kind: "Account", path: "metadata.name"}];
}

message HarbourDockStatus {
  HarbourDockOutputs outputs = 1;
}

message HarbourDockOutputs {
  // Id of the dock.
  string dock_id = 1;
}
"#;

#[derive(Clone, PartialEq, Message)]
struct DockSpec {
    #[prost(string, tag = "1")]
    dock_name: String,
    #[prost(uint32, tag = "2")]
    places: u32,
}

/// Compiled as the kinds of the build are.
fn kinds() -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("harbour.proto"), PROTO).expect("written");
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let mut compiler = protox::Compiler::new([folder.path(), &protos]).expect("a compiler");
    compiler.include_imports(false).include_source_info(true);
    compiler.open_file("harbour.proto").expect("a valid proto");
    compiler.encode_file_descriptor_set()
}

// ---- the cloud

static CLOUD: Cloud = Cloud {
    name: NAME,
    title: "Harbour",
    api_url: "https://api.harbour.example",
    variables: Variables { token: &["HARBOUR_TOKEN"], api_url: "HARBOUR_API_URL", region: None },
    client: None,
    account: |_| None,
    units: &[UnitType {
        name: DOCK,
        name_properties: &["dock_name"],
        names_are_inner: false,
        summary: |_, facts| facts.notes.push("afloat".into()),
    }],
    main_units: &[("HarbourDock", "dock")],
    place_in_spec: |_, _| None,
    connect: |credentials| Ok(Arc::new(Harbour { docks: Docks { client: Client::new(credentials) } })),
    lower,
};

fn lower(input: &LowerInput<'_>) -> Result<Lowered, Trouble> {
    let spec = DockSpec::decode(input.spec).map_err(|error| Trouble::refused(error.to_string()))?;
    let mut props = Props::new();
    props.insert("name".into(), json!(spec.dock_name));
    props.insert("dock_name".into(), json!(spec.dock_name));
    props.insert("places".into(), json!(spec.places));
    let mut lowered = Lowered { units: vec![Unit::new("dock", DOCK, "", props)], ..Lowered::default() };
    lowered.output("dock_id", "dock", "id");
    Ok(lowered)
}

#[derive(Clone, Serialize, Deserialize)]
struct Dock {
    id: String,
    name: String,
    places: u64,
}

fn observed(dock: Dock) -> Observed {
    let mut props = Props::new();
    props.insert("name".into(), json!(dock.name));
    props.insert("dock_name".into(), json!(dock.name));
    props.insert("places".into(), json!(dock.places));
    Observed { id: dock.id, props, outputs: Props::new(), phase: Phase::Ready }
}

struct Client {
    http: reqwest::Client,
    url: String,
    token: SecretString,
    calls: AtomicU64,
}

impl Client {
    fn new(credentials: &Credentials) -> Self {
        let url = credentials.api_url.clone().unwrap_or_else(|| CLOUD.api_url.into());
        let http = reqwest::Client::builder().no_proxy().build().expect("a client");
        Self { http, url, token: credentials.token.clone(), calls: AtomicU64::new(0) }
    }

    async fn call(&self, method: reqwest::Method, path: &str, body: Option<Value>) -> Outcome<Option<Value>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        request = request.bearer_auth(self.token.expose_secret());
        if let Some(body) = body {
            request = request.body(body.to_string());
        }
        let unreachable = |error: reqwest::Error| Trouble::new(Class::Retry { after: None }, error.to_string());
        let answer = request.send().await.map_err(unreachable)?;
        let status = answer.status();
        let text = answer.text().await.map_err(unreachable)?;
        match status.as_u16() {
            200..300 => Ok(Some(serde_json::from_str(&text).unwrap_or(Value::Null))),
            404 => Ok(None),
            409 => Err(Trouble::new(Class::Taken { id: None }, text)),
            _ => Err(Trouble::refused(format!("Harbour answered {status}: {text}"))),
        }
    }

    async fn docks(&self) -> Outcome<Vec<Dock>> {
        let listed = self.call(reqwest::Method::GET, "/docks", None).await?.unwrap_or_default();
        serde_json::from_value(listed).map_err(|error| Trouble::refused(error.to_string()))
    }
}

struct Docks {
    client: Client,
}

#[async_trait]
impl Handler for Docks {
    fn fields(&self) -> &'static [Field] {
        const FIELDS: &[Field] =
            &[Field { name: "dock_name", change: Change::Replace }, Field { name: "places", change: Change::InPlace }];
        FIELDS
    }

    async fn read(&self, id: &str, _props: &Props) -> Outcome<Option<Observed>> {
        let found = self.client.call(reqwest::Method::GET, &format!("/docks/{id}"), None).await?;
        Ok(found.and_then(|dock| serde_json::from_value(dock).ok()).map(observed))
    }

    async fn find(&self, desired: &Props, _token: Option<&str>) -> Outcome<Option<Observed>> {
        let docks = self.client.docks().await?;
        Ok(docks.into_iter().find(|dock| desired["name"] == dock.name).map(observed))
    }

    async fn create(&self, desired: &Props, _token: &str, _replacing: bool) -> Outcome<String> {
        let body = json!({"name": desired["name"], "places": desired["places"]});
        let made = self.client.call(reqwest::Method::POST, "/docks", Some(body)).await?.unwrap_or_default();
        Ok(made["id"].as_str().unwrap_or_default().to_owned())
    }

    async fn update(&self, observed: &Observed, desired: &Props, _fields: &[&str]) -> Outcome<()> {
        let (path, body) = (format!("/docks/{}", observed.id), json!({"places": desired["places"]}));
        self.client.call(reqwest::Method::PUT, &path, Some(body)).await.map(drop)
    }

    async fn delete(&self, observed: &Observed, _props: &Props, _drain: bool) -> Outcome<()> {
        self.client.call(reqwest::Method::DELETE, &format!("/docks/{}", observed.id), None).await.map(drop)
    }
}

struct Harbour {
    docks: Docks,
}

fn raised(dock: Dock) -> Raised {
    Raised {
        kind: "HarbourDock".into(),
        name: dock.name.clone(),
        spec: json!({"dockName": dock.name, "places": dock.places}),
        object_name: dock.name,
        units: BTreeMap::from([("dock".into(), dock.id)]),
        links: vec![],
    }
}

#[async_trait]
impl Provider for Harbour {
    fn handler(&self, unit_type: &str) -> Option<&dyn Handler> {
        (unit_type == DOCK).then_some(&self.docks as &dyn Handler)
    }

    fn list_for(&self, unit_type: &str) -> Option<&'static str> {
        (unit_type == DOCK).then_some("docks")
    }

    async fn list(&self, _list: &str, _scope: &str, _page: u32) -> Outcome<Page> {
        let docks = self.docks.client.docks().await?.into_iter();
        let items = docks.map(|dock| Listed { unit_type: DOCK, observed: observed(dock) }).collect();
        Ok(Page { items, next: None, pages: Some(1) })
    }

    fn unanswered_limit(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn calls(&self) -> u64 {
        self.docks.client.calls.load(Ordering::Relaxed)
    }

    async fn identity(&self) -> Outcome<Identity> {
        let account = self.docks.client.call(reqwest::Method::GET, "/account", None).await?.unwrap_or_default();
        Ok(Identity::new(NAME, account["id"].as_str().unwrap_or_default(), "master@harbour.example"))
    }

    async fn raise(&self, _kind: &str, id: &str, _scope: &str) -> Outcome<Raised> {
        let found = self.docks.client.docks().await?.into_iter().find(|dock| dock.id == id);
        found.map(raised).ok_or_else(|| Trouble::new(Class::NotFound, format!("no dock has the id {id}")))
    }

    async fn raise_all(&self) -> Outcome<Vec<Raised>> {
        Ok(self.docks.client.docks().await?.into_iter().map(raised).collect())
    }
}

// ---- the simulation

static SIMULATED: SimulatedCloud = SimulatedCloud {
    name: CloudName(NAME),
    title: "Harbour",
    port: 7079,
    store: || Box::new(Store::default()),
    api: |world, _: Arc<KubeServer>, _| Ok(Arc::new(HarbourApi { world })),
    options: &[],
    storage_class: ("crane", "crane.harbour.example"),
    clusters: ClusterTraits::PLAIN,
    client: None,
    environment: &[],
};

#[derive(Default)]
struct Store {
    docks: Table<Dock>,
}

impl Object for Dock {
    const TYPE: &'static str = "harbour.dock";

    fn id(&self) -> &str {
        &self.id
    }

    fn keys(&self) -> Vec<String> {
        vec![String::new(), format!("name:{}", self.name)]
    }

    fn gone_at(&self) -> Option<SimTime> {
        None
    }

    fn ledger(&self, _now: SimTime) -> Value {
        json!({"name": self.name, "places": self.places})
    }
}

impl CloudStore for Store {
    fn tables(&self) -> Vec<&dyn AnyTable> {
        vec![&self.docks]
    }

    fn tables_mut(&mut self) -> Vec<&mut dyn AnyTable> {
        vec![&mut self.docks]
    }

    fn seed(&mut self, _now: SimTime) {}

    fn cluster_view(&self, _id: &str, _now: SimTime) -> Option<ClusterView> {
        None
    }
}

struct HarbourApi {
    world: Arc<World>,
}

impl Api for HarbourApi {
    fn name(&self) -> CloudName {
        SIMULATED.name
    }

    fn handle(&self, call: &Call) -> Reply {
        let segments = call.segments();
        let path: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
        self.world.with(|view: &mut View<'_, Store>| answer(view, call, &path))
    }

    fn refuse(&self, _: Option<&Call>, refusal: &Refusal) -> Reply {
        Reply::text(refusal.status(), refusal.to_string())
    }
}

fn answer(view: &mut View<'_, Store>, call: &Call, path: &[&str]) -> Reply {
    let docks = &mut view.store.docks;
    match (&call.method, path) {
        (&Method::GET, ["account"]) => Reply::json(200, &json!({"id": view.account})),
        (&Method::GET, ["docks"]) => Reply::json(200, &docks.find("").collect::<Vec<_>>()),
        (&Method::GET, ["docks", id]) => docks.get(id).map_or(Reply::empty(404), |dock| Reply::json(200, dock)),
        (&Method::POST, ["docks"]) => {
            let body: Value = call.json().unwrap_or_default();
            let name = body["name"].as_str().unwrap_or_default().to_owned();
            if docks.count(&format!("name:{name}")) > 0 {
                return Reply::text(409, format!("there is a dock named {name}"));
            }
            let id = format!("dock-{}", docks.len() + 1);
            let dock = Dock { id, name, places: body["places"].as_u64().unwrap_or_default() };
            docks.insert(dock.clone());
            Reply::json(201, &dock)
        }
        (&Method::PUT, ["docks", id]) => {
            let body: Value = call.json().unwrap_or_default();
            docks.update(id, |dock| dock.places = body["places"].as_u64().unwrap_or_default());
            Reply::empty(200)
        }
        (&Method::DELETE, ["docks", id]) => Reply::empty(if docks.remove(id).is_some() { 200 } else { 404 }),
        _ => Reply::empty(404),
    }
}

// ---- the test

fn main() -> ExitCode {
    if std::env::var_os(AS_BERTH).is_some() {
        assert!(berth_model::add_kinds(kinds()));
        assert!(berth_clouds::registry::add(vec![&CLOUD]));
        assert!(berth_sandbox::registry::add(vec![&SIMULATED]));
        return berth::main();
    }
    let folder = tempfile::tempdir().expect("a folder");
    let project = Project { folder: folder.path() };
    project.looked_up();
    project.lived();
    project.imported();
    project.served();
    println!("a cloud in one file: ok");
    ExitCode::SUCCESS
}

struct Project<'a> {
    folder: &'a Path,
}

const MANIFEST: &str = "apiVersion: harbour.berth.dev/v1\nkind: HarbourDock\nmetadata: {name: north}\n\
                        spec: {dockName: north, places: 2}\n";

impl Project<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = program(&std::env::current_exe().expect("this program"), self.folder, args);
        command.env(AS_BERTH, "1").env("NO_COLOR", "1").env("BERTH_KEY", KEY);
        command
    }

    fn run(&self, code: i32, args: &[&str]) -> String {
        run(&mut self.command(args)).exits(code).text()
    }

    /// The same with an account at the cloud of this address.
    fn run_at(&self, url: &str, args: &[&str]) -> String {
        run(self.command(args).env("HARBOUR_API_URL", url).env("HARBOUR_TOKEN", "any")).ok().text()
    }

    fn looked_up(&self) {
        let explained = self.run(0, &["explain", "HarbourDock"]);
        assert!(explained.contains("A place where ships lie.") && explained.contains("places"), "{explained}");
        assert!(self.run(0, &["kinds", "--provider", NAME]).contains("HarbourDock"));
        assert!(self.run(0, &["init", "HarbourDock"]).contains("dockName: north"));
        let help = self.run(0, &["sandbox", "--help"]);
        assert!(help.contains("--harbour <ADDR>") && help.contains("Address for Harbour's API"), "{help}");
        let checked = self.run(0, &["doctor"]);
        assert!(checked.contains("there is no token for harbour: HARBOUR_TOKEN is not set"), "{checked}");
    }

    /// Made, changed outside, seen, repaired and deleted, on a sandbox that stays.
    fn lived(&self) {
        std::fs::write(self.folder.join("dock.yaml"), MANIFEST).expect("written");
        let free = "127.0.0.1:0";
        let all = ["sandbox", "--background", "--speed", "max", "--kube", free];
        let clouds: Vec<String> = berth_sandbox::registry::clouds().map(|cloud| format!("--{}", cloud.name)).collect();
        let own = format!("--{NAME}");
        let ports = clouds.iter().chain([&own]).flat_map(|flag| [flag.as_str(), free]);
        let started = self.run(0, &all.into_iter().chain(ports).collect::<Vec<_>>());
        let line = started.lines().find(|line| line.starts_with("Harbour ")).expect(&started);
        let url = line.split_whitespace().last().expect("an address").to_owned();
        assert!(started.contains(&format!("HARBOUR_API_URL={url} HARBOUR_TOKEN=sandbox berth")), "{started}");

        self.run(0, &["apply", "-f", "dock.yaml", "--sandbox", "--yes"]);
        self.run(0, &["plan", "-f", "dock.yaml", "--sandbox"]);
        assert!(self.run(0, &["outputs", "HarbourDock/north", "dock_id", "--sandbox"]).contains("dock-1"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let changed = runtime.block_on(async {
            let client = reqwest::Client::builder().no_proxy().build().expect("a client");
            client.put(format!("{url}/docks/dock-1")).body(r#"{"places": 7}"#).send().await
        });
        assert!(changed.expect("an answer").status().is_success());
        let drift = self.run(2, &["drift", "--sandbox"]);
        assert!(drift.contains("places") && drift.contains('7'), "{drift}");
        self.run(0, &["apply", "-f", "dock.yaml", "--sandbox", "--yes"]);
        self.run(0, &["drift", "--sandbox"]);

        let checked = self.run_at(&url, &["doctor"]);
        assert!(checked.contains("master@harbour.example"), "{checked}");
        std::fs::write(self.folder.join("url"), url).expect("written");
    }

    fn imported(&self) {
        let url = std::fs::read_to_string(self.folder.join("url")).expect("an address");
        let other = tempfile::tempdir().expect("a folder");
        let other = Project { folder: other.path() };
        other.run_at(&url, &["import", "--all", "--provider", NAME, "--out", "found"]);
        other.run_at(&url, &["plan", "-f", "found"]);
        self.run(0, &["delete", "HarbourDock/north", "--sandbox", "--yes", "--allow-delete"]);
        self.run(0, &["sandbox", "--stop"]);
    }

    /// Through a server with its own worker.
    fn served(&self) {
        let listen = format!("127.0.0.1:{}", free_port());
        let args = ["server", "--sandbox", "--speed", "max", "--folder", "server", "--listen", &listen];
        let mut server = Process::start("server", self.folder, self.command(&args));
        server.until_says("berth login ");
        let url = format!("https://{listen}");
        self.run(0, &["login", &url, "--ca", "server/ca.pem", "--token-file", "server/admin.token"]);
        self.run(0, &["apply", "-f", "dock.yaml", "--yes"]);
        let listed = self.run(0, &["get"]);
        assert!(listed.contains("HarbourDock") && listed.contains("yes"), "{listed}");
        self.run(0, &["plan", "-f", "dock.yaml"]);
        self.run(0, &["delete", "HarbourDock/north", "--yes", "--allow-delete"]);
    }
}
