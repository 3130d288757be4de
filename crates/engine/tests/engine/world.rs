//! A cloud, a state, and runs of the engine between them.

use crate::catalog::Fake;
use crate::cloud::{Cloud, Fault, name_of};
use crate::memory::{Crash, Memory, State};
use berth_engine::handler::Trouble;
use berth_engine::progress::{Unwatched, Watcher};
use berth_engine::unit::Op;
use berth_engine::{Interrupt, Options, Plan, Planned, Report, Request, Wanted, converge, plan};
use berth_model::{Manifest, ResourceId};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// What is declared: numbers that make manifests, so that tests can change one thing at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    pub cidr: u8,
    pub description: String,
    pub rules: usize,
    pub version: &'static str,
    pub size: &'static str,
    pub nodes: u32,
    /// Pools inside the cluster's manifest: name, size, count.
    pub inner: Vec<(&'static str, &'static str, u32)>,
    /// Pools of their own.
    pub pools: Vec<(&'static str, &'static str, u32)>,
    pub firewall: bool,
}

impl Spec {
    pub fn full() -> Self {
        Self {
            cidr: 1,
            description: "first".into(),
            rules: 1,
            version: "1.29.0",
            size: "small",
            nodes: 2,
            inner: vec![("gpu", "large", 1)],
            pools: vec![("batch", "small", 2)],
            firewall: true,
        }
    }

    pub fn manifests(&self) -> Vec<Arc<Manifest>> {
        let mut text = format!(
            "apiVersion: byoc.berth.dev/v1\nkind: Account\nmetadata: {{name: test}}\nspec: {{provider: civo, civo: {{token: {{value: secret}}}}}}\n\
             ---\napiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: net}}\nspec: {{networkName: net, region: fra1, \
             ipRangeCidr: 10.{}.0.0/24, description: {}, account: {{value: test}}}}\n",
            self.cidr, self.description
        );
        if self.firewall {
            let rules = "{protocol: tcp, portRange: \"443\"},".repeat(self.rules);
            _ = writeln!(
                text,
                "---\napiVersion: civo.berth.dev/v1\nkind: CivoFirewall\nmetadata: {{name: fw}}\nspec: {{name: fw, \
                 networkId: {{valueFrom: {{name: net}}}}, inboundRules: [{rules}]}}"
            );
        }
        let firewall = if self.firewall { "firewall: {valueFrom: {name: fw}}," } else { "" };
        let inner: String = self
            .inner
            .iter()
            .map(|(name, size, count)| format!("{{name: {name}, size: {size}, nodeCount: {count}}},"))
            .collect();
        _ = writeln!(
            text,
            "---\napiVersion: civo.berth.dev/v1\nkind: CivoKubernetesCluster\nmetadata: {{name: k8s}}\nspec: {{clusterName: k8s, \
             region: fra1, kubernetesVersion: {}, network: {{valueFrom: {{name: net}}}}, {firewall} \
             defaultNodePool: {{size: {}, nodeCount: {}}}, additionalNodePools: [{inner}]}}",
            self.version, self.size, self.nodes
        );
        for (name, size, count) in &self.pools {
            _ = writeln!(
                text,
                "---\napiVersion: civo.berth.dev/v1\nkind: CivoKubernetesNodePool\nmetadata: {{name: {name}}}\nspec: \
                 {{nodePoolName: {name}, cluster: {{valueFrom: {{name: k8s}}}}, size: {size}, nodeCount: {count}}}"
            );
        }
        parse(&text)
    }

    /// What a cloud holds of it: type, name, and what tells versions of it apart.
    fn objects(&self) -> BTreeSet<String> {
        let mut objects = BTreeSet::new();
        objects.insert(format!("fake.network net 10.{}.0.0/24 {}", self.cidr, self.description));
        if self.firewall {
            objects.insert(format!("fake.firewall fw {}", self.rules));
        }
        objects.insert(format!("fake.cluster k8s {} {} {}", self.version, self.size, self.nodes));
        for (name, size, count) in self.inner.iter().chain(&self.pools) {
            objects.insert(format!("fake.pool {name} {size} {count}"));
        }
        objects
    }
}

thread_local! {
    /// The same few texts are applied thousands of times.
    static PARSED: RefCell<HashMap<String, Vec<Arc<Manifest>>>> = RefCell::default();
}

pub fn parse(text: &str) -> Vec<Arc<Manifest>> {
    if let Some(manifests) = PARSED.with_borrow(|parsed| parsed.get(text).cloned()) {
        return manifests;
    }
    let (manifests, problems) = berth_model::parse("test.yaml", text.as_bytes());
    assert!(problems.is_empty(), "{problems:?}\n{text}");
    let manifests: Vec<Arc<Manifest>> = manifests.into_iter().map(Arc::new).collect();
    PARSED.with_borrow_mut(|parsed| parsed.insert(text.to_owned(), manifests.clone()));
    manifests
}

pub struct World {
    pub cloud: Cloud,
    pub state: State,
    pub options: Options,
    pub watcher: Arc<dyn Watcher>,
    /// Writes of the last run.
    pub writes: usize,
}

/// How a run ended, or why it was not begun.
pub type Ran = Result<Report, Vec<(ResourceId, Trouble)>>;

impl World {
    pub fn new() -> Self {
        let watcher = Arc::new(Unwatched);
        Self { cloud: Cloud::new(), state: State::default(), options: Options::default(), watcher, writes: 0 }
    }

    /// The same world once more, to go on differently.
    pub fn copy(&self) -> Self {
        let (options, watcher) = (self.options.clone(), self.watcher.clone());
        Self { cloud: self.cloud.copy(), state: self.state.clone(), options, watcher, writes: 0 }
    }

    pub async fn with(spec: &Spec) -> Self {
        let mut world = Self::new();
        world.settle(spec).await;
        world
    }

    pub fn request(&self, manifests: &[Arc<Manifest>], unwanted: Vec<ResourceId>) -> Request {
        let wanted = manifests.iter().map(|manifest| Wanted {
            manifest: manifest.clone(),
            account: "test".into(),
            default_region: None,
        });
        Request {
            wanted: wanted.collect(),
            unwanted,
            known: self.state.known(),
            label_prefix: "berth".into(),
            allow_recreate: false,
            owners: Default::default(),
        }
    }

    pub async fn plan(&self, spec: &Spec) -> Planned {
        plan(&Fake::new(self.cloud.clone()), &self.request(&spec.manifests(), Vec::new())).await
    }

    pub async fn apply(&mut self, spec: &Spec) -> Ran {
        self.run(&spec.manifests(), Vec::new(), Crash::Never, Interrupt::default()).await
    }

    pub async fn destroy(&mut self) -> Ran {
        let all = self.state.resources.keys().cloned().collect();
        self.run(&[], all, Crash::Never, Interrupt::default()).await
    }

    pub async fn run(
        &mut self,
        manifests: &[Arc<Manifest>],
        unwanted: Vec<ResourceId>,
        crash: Crash,
        interrupt: Interrupt,
    ) -> Ran {
        let fake = Fake::new(self.cloud.clone());
        let request = self.request(manifests, unwanted);
        let planned = plan(&fake, &request).await;
        if !planned.troubles.is_empty() {
            self.revive();
            return Err(planned.troubles);
        }
        Ok(self.carry_out(request, planned, crash, interrupt).await)
    }

    pub async fn carry_out(
        &mut self,
        mut request: Request,
        planned: Planned,
        crash: Crash,
        interrupt: Interrupt,
    ) -> Report {
        self.state.begin_run();
        for wanted in &request.wanted {
            self.state.declare(&wanted.manifest);
            if let Some(known) = request.known.resources.get_mut(&wanted.manifest.id) {
                known.settled = self.state.resources[&wanted.manifest.id].settled;
            }
        }
        let (killer, asked) = (self.cloud.clone(), self.cloud.clone());
        let memory = Memory::new(
            std::mem::take(&mut self.state),
            crash,
            move || killer.lock().dead = true,
            move || asked.lock().dead,
        );
        let fake = Fake::new(self.cloud.clone());
        let work = converge(&fake, &memory, &*self.watcher, interrupt, &self.options, &request, planned);
        // Virtual time: a run that would never end is found by it.
        let report = tokio::time::timeout(Duration::from_secs(24 * 3600), work).await.expect("the run does not end");
        self.writes = *memory.writes.lock().unwrap();
        self.state = memory.state.into_inner().unwrap();
        if !self.cloud.lock().dead {
            assert_eq!(self.state.open_entries(), 0, "a run that was not killed closes its journal");
        }
        self.revive();
        report
    }

    /// After a kill: the next process, on a cloud that works.
    pub fn revive(&self) {
        self.cloud.lock().dead = false;
        self.cloud.set_faults(|_, _| Fault::None);
    }

    /// One clean run, after which everything is as declared.
    pub async fn settle(&mut self, spec: &Spec) {
        let report = self.apply(spec).await.unwrap_or_else(|troubles| panic!("{troubles:?}"));
        self.assert_settled(spec, &report).await;
    }

    /// After that run everything is as declared, once, and stays so.
    #[track_caller]
    pub fn assert_settled(&mut self, spec: &Spec, report: &Report) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        async move {
            assert!(report.failed.is_empty() && report.skipped.is_empty(), "{at}: {report:?}");
            self.assert_holds(spec, at);
            let before = self.cloud.lock().log.len();
            let planned = self.plan(spec).await;
            assert!(planned.troubles.is_empty(), "{at}: {:?}", planned.troubles);
            assert!(planned.plan.is_empty(), "{at}: {}", ops(&planned.plan));
            self.apply(spec).await.unwrap_or_else(|troubles| panic!("{at}: {troubles:?}"));
            assert_eq!(self.cloud.lock().log.len(), before, "{at}: applying twice changes nothing");
            assert_eq!(self.writes, 0, "{at}: and writes nothing");
        }
    }

    fn assert_holds(&self, spec: &Spec, at: &std::panic::Location<'_>) {
        let here = self.cloud.here();
        let mut held: Vec<String> = here
            .iter()
            .map(|o| {
                let shown = ["cidr", "description", "rules", "version", "size", "node_count"];
                let text = |v: &serde_json::Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
                let values: Vec<String> = shown.iter().filter_map(|n| o.props.get(*n)).map(text).collect();
                format!("{} {} {}", o.unit_type, name_of(&o.props), values.join(" "))
            })
            .collect();
        held.sort();
        let declared: Vec<String> = spec.objects().into_iter().collect();
        assert_eq!(held, declared, "{at}: {:#?}", self.cloud.lock().log);
        let rows: BTreeSet<Option<&str>> = self.state.units.values().map(|unit| unit.id.as_deref()).collect();
        let ids: BTreeSet<Option<&str>> = here.iter().map(|o| Some(o.id.as_str())).collect();
        assert_eq!(rows, ids, "{at}: the state knows each object");
        assert_eq!(self.state.units.len(), here.len(), "{at}: once");
        assert!(self.state.units.values().all(|unit| unit.ready && !unit.deposed), "{at}");
        assert!(self.state.resources.values().all(|r| r.settled), "{at}");
    }

    #[track_caller]
    pub fn assert_empty(&self) {
        assert!(self.cloud.here().is_empty(), "{:?}\n{:#?}", self.cloud.here(), self.cloud.lock().log);
        assert!(self.state.units.is_empty() && self.state.resources.is_empty());
    }
}

/// A plan in one line, for comparing.
pub fn ops(plan: &Plan) -> String {
    let op = |op: Option<Op>| op.map_or("-".into(), |op| format!("{op:?}").to_lowercase());
    let resource = |r: &berth_engine::ResourcePlan| {
        let units: Vec<String> = r.units.iter().map(|u| format!("{} {}", u.key, op(u.op))).collect();
        format!("{}: {}", r.id.name, units.join(", "))
    };
    plan.resources.iter().map(resource).collect::<Vec<_>>().join("; ")
}
