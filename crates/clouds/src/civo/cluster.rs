//! `civo.cluster`: a managed cluster with its default pool.

use super::api::region_code;
use super::client::Client;
use super::default_pool::{self, Step};
use super::kube_api;
use super::normal_form::{is_token_tag, labels_of, own_beginnings, same_words, shown_tags, token_tag};
use super::pool_view::{self, View};
use super::versions;
use super::wire::{Cluster, ClusterBody, InstalledApplication, PoolBody};
use crate::http::gone_is_none;
use crate::props::{number, optional_text, put, required_text, texts, texts_of};
use crate::usual_times::UsualTimes;
use crate::{one_form, ready_gate};
use async_trait::async_trait;
use berth_engine::FieldChange;
use berth_engine::handler::{Class, Handler, Outcome, Trouble};
use berth_engine::unit::{Change, Field, Observed, Op, Phase, Props, Readiness, Typical, WaitFor, Waiting};
use secrecy::SecretString;
use serde_json::{Value, json};
use std::sync::Arc;

pub struct ClusterHandler {
    pub client: Arc<Client>,
}

const SIZE: &str = "default_node_pool.size";
const COUNT: &str = "default_node_pool.node_count";
const LABELS: &str = "default_node_pool.labels";

const TIMES: UsualTimes = UsualTimes { create: 105, replace: 105, delete: 75, adopt: None, field: 5 };

const FIELDS: &[Field] = &[
    Field { name: "cluster_name", change: Change::InPlace },
    Field { name: "region", change: Change::Replace },
    Field { name: "network", change: Change::Replace },
    Field { name: "cni", change: Change::Replace },
    Field { name: "kubernetes_version", change: Change::InPlace },
    Field { name: SIZE, change: Change::Roll },
    Field { name: COUNT, change: Change::InPlace },
    Field { name: LABELS, change: Change::InPlace },
    Field { name: "tags", change: Change::InPlace },
    Field { name: "firewall", change: Change::InPlace },
    Field { name: "applications", change: Change::InPlace },
];

pub fn observed(cluster: &Cluster, region: &str) -> Observed {
    let views = pool_view::views(cluster);
    observed_with(cluster, &views, &default_pool::default_chain(&views), region)
}

/// As `observed`, for those who have looked at the pools already.
pub fn observed_with(cluster: &Cluster, views: &[View<'_>], chain: &[usize], region: &str) -> Observed {
    let default: Vec<&View<'_>> = chain.iter().map(|i| &views[*i]).filter(|view| !view.leaving()).collect();
    let sizes: Vec<&str> = default.iter().map(|view| view.size).collect();
    let mut props = Props::new();
    put(&mut props, "cluster_name", cluster.name.as_str());
    put(&mut props, "region", region);
    put(&mut props, "network", cluster.network_id.as_str());
    put(&mut props, "cni", cluster.cni_plugin.as_str());
    put(&mut props, "kubernetes_version", cluster.kubernetes_version.as_str());
    // While one pool takes another's place both are shown, so that the change is never taken for finished.
    put(&mut props, SIZE, sizes.join(" + "));
    if let Some(view) = default.last() {
        put(&mut props, COUNT, view.wanted);
        put(&mut props, LABELS, json!(view.labels));
    }
    put(&mut props, "tags", shown_tags(cluster));
    put(&mut props, "firewall", cluster.firewall_id.as_str());
    let mut applications: Vec<String> = cluster.installed_applications.iter().map(application_name).collect();
    applications.sort();
    put(&mut props, "applications", applications);

    let mut outputs = Props::new();
    put(&mut outputs, "api_server_endpoint", cluster.api_endpoint.as_str());
    put(&mut outputs, "created_at", cluster.created_at.as_str());
    Observed { id: cluster.id.clone(), props, outputs, phase: phase(cluster, &default, chain.len() > default.len()) }
}

fn application_name(installed: &InstalledApplication) -> String {
    let name = if installed.name.is_empty() { &installed.application } else { &installed.name };
    if installed.plan.is_empty() { name.clone() } else { format!("{name}:{}", installed.plan) }
}

/// `leaving`: a pool whose place another took is still on its way out.
fn phase(cluster: &Cluster, default: &[&View<'_>], leaving: bool) -> Phase {
    let active: u32 = default.iter().map(|view| view.active()).sum();
    let wanted: u32 = default.iter().filter_map(|view| view.wanted).sum();
    let settled = !leaving && default.iter().all(|view| view.is_ready());
    let pending = |what: String| Phase::Pending(what.into());
    match cluster.status.to_ascii_uppercase().as_str() {
        "DELETING" | "DELETED" => Phase::Deleting,
        "FAILED" | "ERROR" => Phase::Failed { reason: format!("Civo says that the cluster is {}", cluster.status) },
        "UPGRADING" => pending(format!("upgrading to {}", cluster.kubernetes_version)),
        // Another pool may be on its way; that is for its own unit to tell.
        "ACTIVE" | "SCALING" if settled && cluster.ready != Some(false) => Phase::Ready,
        "ACTIVE" | "SCALING" if leaving => pending("removing the old nodes".into()),
        "ACTIVE" | "SCALING" if !settled => pending(format!("scaling: {active} of {wanted} nodes")),
        _ => pending(format!("building: {active} of {wanted} nodes ready")),
    }
}

fn has_application(installed: &[String], wanted: &str) -> bool {
    let split = |text: &str| {
        let (name, plan) = text.split_once(':').unwrap_or((text, ""));
        (name.to_ascii_lowercase(), plan.to_ascii_lowercase())
    };
    let (name, plan) = split(wanted);
    installed.iter().map(|i| split(i)).any(|(n, p)| n == name && (plan.is_empty() || p.is_empty() || p == plan))
}

impl ClusterHandler {
    async fn roll(&self, region: &str, cluster: &Cluster, desired: &Props) -> Outcome<()> {
        let size = required_text(desired, SIZE)?;
        let views = pool_view::views(cluster);
        match default_pool::next_step(&views, size) {
            Step::Done | Step::Wait => Ok(()),
            Step::Create { id } => {
                let current = default_pool::default_chain(&views).last().and_then(|i| views[*i].wanted);
                let body = PoolBody {
                    id: Some(&id),
                    count: number(desired, COUNT).or(current),
                    size: Some(size),
                    labels: Some(labels_of(desired, LABELS)),
                    region: Some(&region_code(region)),
                    ..PoolBody::default()
                };
                match self.client.api.create_pool(region, &cluster.id, &body).await {
                    // Its id says what it is for: one that is there already was made by an earlier attempt.
                    Err(trouble) if matches!(trouble.class, Class::Taken { .. }) => Ok(()),
                    other => other,
                }
            }
            Step::Remove { old, new } => {
                let find = |id: &str| views.iter().find(|view| view.id == id);
                if !ready_gate::trusts_cloud(desired) {
                    kube_api::drain(&self.client, region, &cluster.id, find(&old), find(&new)).await?;
                }
                self.client.api.delete_pool(region, &cluster.id, &old).await
            }
        }
    }

    /// Says who has the name.
    async fn taken(&self, region: &str, name: &str, trouble: Trouble) -> Trouble {
        if !matches!(trouble.class, Class::Taken { .. }) {
            return trouble;
        }
        // Names are unique in the whole account: the other may be in another region.
        let mut places = vec![region.to_owned()];
        if let Ok(regions) = self.client.offers.regions(&self.client.api).await {
            places.extend(regions.iter().map(|(code, _)| code.clone()).filter(|code| code != region));
        }
        for place in &places {
            let index = self.client.cluster_index(place).await.ok();
            if let Some(other) = index.iter().flat_map(|index| index.iter()).find(|entry| entry.name == name) {
                let id = &other.id;
                return Trouble::new(
                    Class::Taken { id: Some(id.clone()) },
                    format!("Civo already has a cluster named `{name}` in {place}"),
                )
                .help(format!("look at it:   civo kubernetes show {id} --region {}", region_code(place)))
                .help("to make another, change spec.clusterName");
            }
        }
        Trouble::new(Class::Taken { id: None }, format!("Civo already has a cluster named `{name}`"))
            .help("to make another, change spec.clusterName")
    }
}

#[async_trait]
impl Handler for ClusterHandler {
    fn fields(&self) -> &'static [Field] {
        FIELDS
    }

    fn holds_data(&self) -> bool {
        true
    }

    fn same(&self, field: &str, desired: &Value, observed: &Value) -> bool {
        match field {
            "kubernetes_version" => match (desired.as_str(), observed.as_str()) {
                (Some(desired), Some(observed)) => versions::same(desired, observed),
                _ => desired == observed,
            },
            "cni" => desired == observed || (desired == "flannel" && (observed.is_null() || observed == "")),
            "tags" => {
                let desired = texts_of(desired);
                let own = own_beginnings(desired.iter().map(String::as_str), ":");
                same_words(desired, texts_of(observed), &own)
            }
            // Installed applications are never taken away: Civo cannot, and they hold data.
            "applications" => {
                let installed = texts_of(observed);
                texts_of(desired).iter().all(|wanted| has_application(&installed, wanted))
            }
            _ => desired == observed,
        }
    }

    fn refuse_change(&self, field: &str, from: &Value, to: &Value) -> Option<String> {
        let (from, to) = (from.as_str()?, to.as_str()?);
        (field == "kubernetes_version" && versions::is_downgrade(from, to)).then(|| {
            format!("the cluster runs Kubernetes {from}, and a cluster cannot go back to {to}: set kubernetesVersion to {from} or newer")
        })
    }

    fn typical(&self, op: Op, props: &Props, changes: &[FieldChange]) -> Typical {
        TIMES.of(op, changes, u64::from(number(props, COUNT).unwrap_or(1)))
    }

    async fn check(&self, mut desired: Props, observed: Option<&Observed>) -> Outcome<Props> {
        let Client { api, offers, .. } = &*self.client;
        let region = required_text(&desired, "region")?.to_owned();
        let now = |field: &str| observed.and_then(|o| o.props.get(field));
        offers.check_region(api, &region, observed.is_none()).await?;
        if now("cluster_name") != desired.get("cluster_name") {
            check_name(required_text(&desired, "cluster_name")?)?;
        }
        let version = required_text(&desired, "kubernetes_version")?.to_owned();
        // A version that the cluster already has need not be on offer any more.
        let resolved = match now("kubernetes_version").and_then(Value::as_str) {
            Some(current) if versions::same(&version, current) => versions::kept(&version, current),
            _ => offers.version(api, &region, &version).await?,
        };
        put(&mut desired, "kubernetes_version", resolved);
        if now(SIZE) != desired.get(SIZE) {
            offers.check_size(api, &region, required_text(&desired, SIZE)?).await?;
        }
        let installed = now("applications").map(texts_of).unwrap_or_default();
        let mut applications = Vec::new();
        for wanted in texts(&desired, "applications") {
            let found = has_application(&installed, &wanted);
            applications.push(if found { wanted } else { offers.application(api, &region, &wanted).await? });
        }
        if desired.contains_key("applications") {
            put(&mut desired, "applications", applications);
        }
        if let Some(network) = optional_text(&desired, "network") {
            let id = match observed.is_none() {
                true => self.client.network_id(&region, network).await?,
                false => one_form(network),
            };
            put(&mut desired, "network", id);
        }
        if let Some(firewall) = optional_text(&desired, "firewall") {
            let id = match now("firewall").and_then(Value::as_str) == Some(firewall) {
                true => firewall.to_owned(),
                false => self.client.firewall_id(&region, firewall).await?,
            };
            put(&mut desired, "firewall", id);
        }
        Ok(desired)
    }

    async fn read(&self, id: &str, props: &Props) -> Outcome<Option<Observed>> {
        let region = required_text(props, "region")?;
        Ok(gone_is_none(self.client.api.cluster(region, id).await)?.map(|cluster| observed(&cluster, region)))
    }

    async fn find(&self, desired: &Props, token: Option<&str>) -> Outcome<Option<Observed>> {
        let region = required_text(desired, "region")?;
        let name = required_text(desired, "cluster_name")?;
        let index = self.client.cluster_index(region).await?;
        let found = match token {
            Some(token) => index.iter().find(|entry| entry.token_tag.as_deref() == Some(&token_tag(token))),
            None => index.iter().find(|entry| entry.name == name),
        };
        match found {
            Some(entry) => self.read(&entry.id, desired).await,
            None => Ok(None),
        }
    }

    async fn create(&self, desired: &Props, token: &str, _: bool) -> Outcome<String> {
        let region = required_text(desired, "region")?;
        let name = required_text(desired, "cluster_name")?;
        let mut tags = texts(desired, "tags");
        tags.push(token_tag(token));
        let applications = texts(desired, "applications").join(",");
        let code = region_code(region);
        let pool = default_pool::first_default(token);
        let body = ClusterBody {
            region: &code,
            name: Some(name),
            cluster_type: Some("k3s"),
            kubernetes_version: Some(versions::exact(required_text(desired, "kubernetes_version")?)),
            network_id: Some(required_text(desired, "network")?),
            tags: Some(tags.join(" ")),
            pools: Some(vec![PoolBody {
                id: Some(&pool),
                count: number(desired, COUNT),
                size: Some(required_text(desired, SIZE)?),
                labels: Some(labels_of(desired, LABELS)).filter(|labels| !labels.is_empty()),
                ..PoolBody::default()
            }]),
            applications: (!applications.is_empty()).then_some(applications),
            instance_firewall: optional_text(desired, "firewall"),
            firewall_id: None,
            cni_plugin: optional_text(desired, "cni"),
        };
        match self.client.api.create_cluster(region, &body).await {
            Ok(id) => Ok(id),
            Err(trouble) => Err(self.taken(region, name, trouble).await),
        }
    }

    async fn update(&self, observed: &Observed, desired: &Props, fields: &[&str]) -> Outcome<()> {
        let region = required_text(&observed.props, "region")?;
        let cluster = self.client.api.cluster(region, &observed.id).await?;
        let code = region_code(region);
        let changes = |field: &str| fields.contains(&field);
        if ["cluster_name", "tags", "firewall", "applications"].into_iter().any(changes) {
            let tags = changes("tags").then(|| {
                let mut tags = texts(desired, "tags");
                tags.extend(cluster.tags.iter().filter(|tag| is_token_tag(tag)).cloned());
                tags.join(" ")
            });
            let missing = changes("applications").then(|| {
                let installed: Vec<String> = cluster.installed_applications.iter().map(application_name).collect();
                let wanted = texts(desired, "applications").into_iter();
                wanted.filter(|w| !has_application(&installed, w)).collect::<Vec<_>>().join(",")
            });
            let body = ClusterBody {
                region: &code,
                name: changes("cluster_name").then(|| required_text(desired, "cluster_name")).transpose()?,
                tags,
                firewall_id: changes("firewall").then(|| required_text(desired, "firewall")).transpose()?,
                applications: missing.filter(|names| !names.is_empty()),
                ..ClusterBody::default()
            };
            return self.client.api.update_cluster(region, &observed.id, &body).await;
        }
        if changes("kubernetes_version") {
            let version = required_text(desired, "kubernetes_version")?;
            if cluster.status.eq_ignore_ascii_case("upgrading") || versions::same(version, &cluster.kubernetes_version)
            {
                return Ok(());
            }
            let version = Some(versions::exact(version));
            let body = ClusterBody { region: &code, kubernetes_version: version, ..ClusterBody::default() };
            return self.client.api.update_cluster(region, &observed.id, &body).await;
        }
        if changes(SIZE) {
            return self.roll(region, &cluster, desired).await;
        }
        let views = pool_view::views(&cluster);
        let labels = labels_of(desired, LABELS);
        if let Some(pool) = default_pool::default_chain(&views).last().map(|i| &views[*i])
            && (changes(COUNT) && pool.wanted != number(desired, COUNT) || changes(LABELS) && pool.labels != labels)
        {
            // A pool's labels are replaced as a whole, and so is its count.
            let count = number(desired, COUNT).or(pool.wanted);
            let body = PoolBody { count, labels: Some(labels), region: Some(&code), ..PoolBody::default() };
            return self.client.api.update_pool(region, &observed.id, pool.id, &body).await;
        }
        Ok(())
    }

    async fn delete(&self, observed: &Observed, props: &Props, _: bool) -> Outcome<()> {
        let region = required_text(props, "region").or_else(|_| required_text(&observed.props, "region"))?;
        self.client.api.delete_cluster(region, &observed.id).await
    }

    async fn ready(&self, observed: &Observed, props: &Props) -> Outcome<Readiness> {
        let region = required_text(&observed.props, "region")?;
        let kubeconfig = SecretString::from(self.client.api.kubeconfig(region, &observed.id).await?);
        let nodes = number(&observed.props, COUNT).unwrap_or(0);
        ready_gate::readiness(&self.client.kubes, &kubeconfig, "kubeconfig_b64", props, nodes).await
    }

    fn overdue(&self, id: &str, waiting: &Waiting) -> Vec<String> {
        match waiting.on {
            WaitFor::Access => vec![
                "check that the firewall lets this machine reach port 6443: spec.firewall, or spec.apiAllowedCidrs"
                    .into(),
                "look at it yourself:   curl -k ADDRESS/version".into(),
                "where Berth is not meant to reach it, set the annotation berth.dev/ready-gate: cloud".into(),
            ],
            WaitFor::Parts => vec![
                "look at the nodes:   kubectl describe nodes".into(),
                format!("replace one that does not come up:   civo kubernetes recycle {id} --node NAME"),
            ],
            WaitFor::Work | WaitFor::Deletion => vec![
                format!("look at it:   civo kubernetes show {id}, or https://dashboard.civo.com/kubernetes"),
                "check that the region has capacity and that the network has free addresses".into(),
                "Civo usually needs 2 minutes, at most 10".into(),
            ],
        }
    }
}

/// Checks a cluster's name against Civo's rules, before anything is made.
fn check_name(name: &str) -> Outcome<()> {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if name.chars().all(inside) && name.starts_with(edge) && name.ends_with(edge) {
        return Ok(());
    }
    Err(Trouble::refused(format!("Civo does not take `{name}` as the name of a cluster"))
        .help("in spec.clusterName use letters, digits, hyphens and dots, starting and ending with a letter or digit"))
}

fn edge(c: char) -> bool {
    c.is_ascii_alphanumeric()
}
