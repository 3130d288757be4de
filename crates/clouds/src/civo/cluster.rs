//! `civo.cluster`: a managed cluster with its default pool.

use super::Shared;
use super::api::{Cluster, ClusterBody, PoolBody, region_code};
use super::pools::{self, Step, View};
use super::props::{maybe, number, put, text, texts};
use super::versions;
use crate::one_form;
use crate::times::{NODE_SECONDS, UPGRADE_SECONDS, nodes_between};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use berth_engine::FieldChange;
use berth_engine::handler::{Class, Handler, Outcome, Trouble};
use berth_engine::unit::{Change, Field, Observed, Op, Phase, Props, Readiness, Typical, WaitFor, Waiting};
use secrecy::SecretString;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub struct ClusterHandler(pub Arc<Shared>);

const SIZE: &str = "default_node_pool.size";
const COUNT: &str = "default_node_pool.node_count";
const LABELS: &str = "default_node_pool.labels";

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

/// Marks a cluster with the token that it was made with, so that a create whose answer was lost is found exactly.
pub fn token_tag(token: &str) -> String {
    format!("berth-token:{token}")
}

fn is_token_tag(tag: &str) -> bool {
    tag.starts_with("berth-token:")
}

/// Tags that are the user's or Berth's labels, sorted.
pub fn shown_tags(cluster: &Cluster) -> Vec<String> {
    let tags: BTreeSet<&String> = cluster.tags.iter().filter(|tag| !is_token_tag(tag)).collect();
    tags.into_iter().cloned().collect()
}

pub fn observed(cluster: &Cluster, region: &str) -> Observed {
    let views = pools::views(cluster);
    observed_with(cluster, &views, &pools::default_chain(&views), region)
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

fn application_name(installed: &super::api::InstalledApplication) -> String {
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

/// Whether tags or labels are as desired. Those that Berth itself writes count only where they say that the object is this
/// very resource's: an imported object has none of them, or another's.
pub fn same_words(desired: Vec<String>, observed: Vec<String>, own: &[String]) -> bool {
    if let [_, name, kind, ..] = own {
        let mut marks = desired.iter().filter(|item| item.starts_with(name) || item.starts_with(kind));
        let mut written = desired.iter().filter(|item| own.iter().any(|beginning| item.starts_with(beginning)));
        if marks.all(|item| observed.contains(item)) && !written.all(|item| observed.contains(item)) {
            return false;
        }
    }
    without_own(desired, own) == without_own(observed, own)
}

fn without_own(items: impl IntoIterator<Item = String>, own: &[String]) -> BTreeSet<String> {
    items.into_iter().filter(|item| !own.iter().any(|prefix| item.starts_with(prefix))).collect()
}

/// The beginnings of Berth's own labels, found by the one that is always among them.
pub fn own_beginnings<'a>(items: impl IntoIterator<Item = &'a str>, separator: &str) -> Vec<String> {
    let marker = format!("-resource{separator}true");
    let Some(prefix) = items.into_iter().find_map(|item| item.strip_suffix(&marker)) else { return Vec::new() };
    // Name and kind stand where `same_words` looks for them.
    ["resource", "resource-name", "resource-kind", "resource-id", "organization", "environment"]
        .iter()
        .map(|name| format!("{prefix}-{name}{separator}"))
        .collect()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
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
        let size = text(desired, SIZE)?;
        let views = pools::views(cluster);
        match pools::next_step(&views, size) {
            Step::Done | Step::Wait => Ok(()),
            Step::Create { id } => {
                let current = pools::default_chain(&views).last().and_then(|i| views[*i].wanted);
                let body = PoolBody {
                    id: Some(&id),
                    count: number(desired, COUNT).or(current),
                    size: Some(size),
                    labels: Some(pools::labels_of(desired, LABELS)),
                    region: Some(&region_code(region)),
                    ..PoolBody::default()
                };
                match self.0.api.create_pool(region, &cluster.id, &body).await {
                    // Its id says what it is for: one that is there already was made by an earlier attempt.
                    Err(trouble) if matches!(trouble.class, Class::Taken { .. }) => Ok(()),
                    other => other,
                }
            }
            Step::Remove { old, new } => {
                let find = |id: &str| views.iter().find(|view| view.id == id);
                if maybe(desired, "ready_gate") != Some("cloud") {
                    self.0.drain(region, &cluster.id, find(&old), find(&new)).await?;
                }
                self.0.api.delete_pool(region, &cluster.id, &old).await
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
        if let Ok(regions) = self.0.offers.regions(&self.0.api).await {
            places.extend(regions.iter().map(|(code, _)| code.clone()).filter(|code| code != region));
        }
        for place in &places {
            let index = self.0.cluster_index(place).await.ok();
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
                let desired = strings(desired);
                let own = own_beginnings(desired.iter().map(String::as_str), ":");
                same_words(desired, strings(observed), &own)
            }
            // Installed applications are never taken away: Civo cannot, and they hold data.
            "applications" => {
                let installed = strings(observed);
                strings(desired).iter().all(|wanted| has_application(&installed, wanted))
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
        let nodes = u64::from(number(props, COUNT).unwrap_or(1));
        let takes = |change: &FieldChange| match change.field.as_str() {
            "kubernetes_version" => UPGRADE_SECONDS,
            COUNT => NODE_SECONDS * nodes_between(change),
            SIZE => NODE_SECONDS * (nodes + 1),
            _ => 5,
        };
        Some(Duration::from_secs(match op {
            Op::Create | Op::Replace => 105,
            Op::Update => changes.iter().map(takes).sum(),
            Op::Delete => 75,
            Op::Adopt => return None,
        }))
    }

    async fn check(&self, mut desired: Props, observed: Option<&Observed>) -> Outcome<Props> {
        let Shared { api, offers, .. } = &*self.0;
        let region = text(&desired, "region")?.to_owned();
        let now = |field: &str| observed.and_then(|o| o.props.get(field));
        offers.check_region(api, &region, observed.is_none()).await?;
        if now("cluster_name") != desired.get("cluster_name") {
            check_name(text(&desired, "cluster_name")?)?;
        }
        let version = text(&desired, "kubernetes_version")?.to_owned();
        // A version that the cluster already has need not be on offer any more.
        let resolved = match now("kubernetes_version").and_then(Value::as_str) {
            Some(current) if versions::same(&version, current) => versions::kept(&version, current),
            _ => offers.version(api, &region, &version).await?,
        };
        put(&mut desired, "kubernetes_version", resolved);
        if now(SIZE) != desired.get(SIZE) {
            offers.check_size(api, &region, text(&desired, SIZE)?).await?;
        }
        let installed = now("applications").map(strings).unwrap_or_default();
        let mut applications = Vec::new();
        for wanted in texts(&desired, "applications") {
            let found = has_application(&installed, &wanted);
            applications.push(if found { wanted } else { offers.application(api, &region, &wanted).await? });
        }
        if desired.contains_key("applications") {
            put(&mut desired, "applications", applications);
        }
        if let Some(network) = maybe(&desired, "network") {
            let id = match observed.is_none() {
                true => self.0.network_id(&region, network).await?,
                false => one_form(network),
            };
            put(&mut desired, "network", id);
        }
        if let Some(firewall) = maybe(&desired, "firewall") {
            let id = match now("firewall").and_then(Value::as_str) == Some(firewall) {
                true => firewall.to_owned(),
                false => self.0.firewall_id(&region, firewall).await?,
            };
            put(&mut desired, "firewall", id);
        }
        Ok(desired)
    }

    async fn read(&self, id: &str, props: &Props) -> Outcome<Option<Observed>> {
        let region = text(props, "region")?;
        match self.0.api.cluster(region, id).await {
            Ok(cluster) => Ok(Some(observed(&cluster, region))),
            Err(trouble) if trouble.is_not_found() => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    async fn find(&self, desired: &Props, token: Option<&str>) -> Outcome<Option<Observed>> {
        let region = text(desired, "region")?;
        let name = text(desired, "cluster_name")?;
        let index = self.0.cluster_index(region).await?;
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
        let region = text(desired, "region")?;
        let name = text(desired, "cluster_name")?;
        let mut tags = texts(desired, "tags");
        tags.push(token_tag(token));
        let applications = texts(desired, "applications").join(",");
        let code = region_code(region);
        let pool = pools::first_default(token);
        let body = ClusterBody {
            region: &code,
            name: Some(name),
            cluster_type: Some("k3s"),
            kubernetes_version: Some(versions::exact(text(desired, "kubernetes_version")?)),
            network_id: Some(text(desired, "network")?),
            tags: Some(tags.join(" ")),
            pools: Some(vec![PoolBody {
                id: Some(&pool),
                count: number(desired, COUNT),
                size: Some(text(desired, SIZE)?),
                labels: Some(pools::labels_of(desired, LABELS)).filter(|labels| !labels.is_empty()),
                ..PoolBody::default()
            }]),
            applications: (!applications.is_empty()).then_some(applications),
            instance_firewall: maybe(desired, "firewall"),
            firewall_id: None,
            cni_plugin: maybe(desired, "cni"),
        };
        match self.0.api.create_cluster(region, &body).await {
            Ok(id) => Ok(id),
            Err(trouble) => Err(self.taken(region, name, trouble).await),
        }
    }

    async fn update(&self, observed: &Observed, desired: &Props, fields: &[&str]) -> Outcome<()> {
        let region = text(&observed.props, "region")?;
        let cluster = self.0.api.cluster(region, &observed.id).await?;
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
                name: changes("cluster_name").then(|| text(desired, "cluster_name")).transpose()?,
                tags,
                firewall_id: changes("firewall").then(|| text(desired, "firewall")).transpose()?,
                applications: missing.filter(|names| !names.is_empty()),
                ..ClusterBody::default()
            };
            return self.0.api.update_cluster(region, &observed.id, &body).await;
        }
        if changes("kubernetes_version") {
            let version = text(desired, "kubernetes_version")?;
            if cluster.status.eq_ignore_ascii_case("upgrading") || versions::same(version, &cluster.kubernetes_version)
            {
                return Ok(());
            }
            let version = Some(versions::exact(version));
            let body = ClusterBody { region: &code, kubernetes_version: version, ..ClusterBody::default() };
            return self.0.api.update_cluster(region, &observed.id, &body).await;
        }
        if changes(SIZE) {
            return self.roll(region, &cluster, desired).await;
        }
        let views = pools::views(&cluster);
        let labels = pools::labels_of(desired, LABELS);
        if let Some(pool) = pools::default_chain(&views).last().map(|i| &views[*i])
            && (changes(COUNT) && pool.wanted != number(desired, COUNT) || changes(LABELS) && pool.labels != labels)
        {
            // A pool's labels are replaced as a whole, and so is its count.
            let count = number(desired, COUNT).or(pool.wanted);
            let body = PoolBody { count, labels: Some(labels), region: Some(&code), ..PoolBody::default() };
            return self.0.api.update_pool(region, &observed.id, pool.id, &body).await;
        }
        Ok(())
    }

    async fn delete(&self, observed: &Observed, props: &Props, _: bool) -> Outcome<()> {
        let region = text(props, "region").or_else(|_| text(&observed.props, "region"))?;
        self.0.api.delete_cluster(region, &observed.id).await
    }

    async fn ready(&self, observed: &Observed, props: &Props) -> Outcome<Readiness> {
        let region = text(&observed.props, "region")?;
        let kubeconfig = self.0.api.kubeconfig(region, &observed.id).await?;
        if kubeconfig.trim().is_empty() {
            return Ok(Readiness { waiting_for: Some("waiting for its kubeconfig".into()), ..Readiness::default() });
        }
        let mut readiness = Readiness::default();
        readiness.secrets.insert("kubeconfig_b64".into(), SecretString::from(STANDARD.encode(&kubeconfig)));
        if maybe(props, "ready_gate") == Some("cloud") {
            readiness.gate = Some("cloud".into());
            return Ok(readiness);
        }
        readiness.gate = Some("api".into());
        let kube = self.0.kubes.open(&kubeconfig)?;
        if let Err(why) = kube.answers().await {
            let what = format!("waiting for the API server at {} to answer: {why}", kube.server());
            readiness.waiting_for = Some(Waiting::on(WaitFor::Access, what));
            return Ok(readiness);
        }
        // Who may not list nodes cannot be told about them; the API server has answered, which is what counts.
        if let Ok(nodes) = kube.nodes(None).await {
            let wanted = number(&observed.props, COUNT).unwrap_or(0) as usize;
            let ready = nodes.iter().filter(|node| node.ready).count();
            if ready < wanted {
                let names: Vec<&str> =
                    nodes.iter().filter(|node| !node.ready).map(|node| node.name.as_str()).take(3).collect();
                let which = if names.is_empty() { String::new() } else { format!(" (NotReady: {})", names.join(", ")) };
                let what = format!("waiting for nodes: {ready} of {wanted} are Ready{which}");
                readiness.waiting_for = Some(Waiting::on(WaitFor::Parts, what));
            }
        }
        Ok(readiness)
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

/// What Civo takes as a cluster's name: told before anything is made.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_tags_count_where_they_are_this_resources() {
        let words = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
        let own = ["p-resource:true", "p-resource-name:shop", "p-resource-kind:K", "p-resource-id:2"];
        let desired = words(&[&own[..], &["web"]].concat());
        let beginnings = own_beginnings(desired.iter().map(String::as_str), ":");
        let same = |observed: &[&str]| same_words(desired.clone(), words(observed), &beginnings);
        assert!(same(&[&own[..], &["web"]].concat()));
        assert!(same(&["web"]), "imported, without any");
        assert!(same(&["web", "p-resource:true", "p-resource-name:other", "p-resource-kind:K"]), "another resource's");
        assert!(!same(&["web", "p-resource:true", "p-resource-name:shop", "p-resource-kind:K", "p-resource-id:1"]));
        assert!(!same(&["web", "p-resource:true", "p-resource-name:shop", "p-resource-kind:K"]));
        assert!(!same(&own), "the user's own always count");
    }
}
