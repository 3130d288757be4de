//! `civo.autoscaler`: Civo's cluster autoscaler, installed into a cluster, with the bounds of the pools that it scales.
//!
//! A cluster and each of its node pools can be resources of their own, and all share one Deployment. Each owner's bounds stand
//! in an annotation of the Deployment; the container's arguments are made from all of them. The last owner to leave takes
//! the Deployment along.

use super::client::Client;
use super::pool_view::short;
use crate::kube::Kube;
use crate::props::{optional_text, put, required_text};
use async_trait::async_trait;
use berth_engine::FieldChange;
use berth_engine::handler::{Class, Handler, Outcome, Trouble};
use berth_engine::unit::{Change, Field, Observed, Op, Phase, Props, Typical};
use secrecy::ExposeSecret;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

pub struct AutoscalerHandler {
    pub client: Arc<Client>,
}

const FIELDS: &[Field] =
    &[Field { name: "cluster_id", change: Change::Replace }, Field { name: "pools", change: Change::InPlace }];

const IMAGE: &str = "registry.k8s.io/autoscaling/cluster-autoscaler:v1.32.0";
const NAME: &str = "cluster-autoscaler";
/// Not `civo-api-access`: Civo's cloud controller uses that secret.
const SECRET: &str = "berth-cluster-autoscaler";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/kube-system/deployments";
const OWNER_ANNOTATION: &str = "autoscaler.berth.dev/";
const TOKEN_ANNOTATION: &str = "berth.dev/token-digest";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Another owner may write at the same moment; after this many times it is the engine's turn to look again.
const WRITE_TRIES: u32 = 5;

fn deployment_path() -> String {
    format!("{DEPLOYMENTS}/{NAME}")
}

/// The objects besides the Deployment: path, body.
fn companions(secret: Value) -> Vec<(String, Value)> {
    let labels = json!({"app": NAME, MANAGED_BY: "berth"});
    let subjects = json!([{"kind": "ServiceAccount", "name": NAME, "namespace": "kube-system"}]);
    let rbac = "rbac.authorization.k8s.io";
    let verbs = |list: &[&str]| json!(list);
    let rule = |group: &str, resources: &[&str], list: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs(list)});
    let seen = ["get", "list", "watch"];
    let cluster_rules = json!([
        rule("", &["events", "endpoints"], &["create", "patch"]),
        rule("", &["pods/eviction"], &["create"]),
        rule("", &["pods/status"], &["update"]),
        rule("", &["nodes"], &["get", "list", "watch", "update"]),
        rule(
            "",
            &[
                "namespaces",
                "pods",
                "services",
                "replicationcontrollers",
                "persistentvolumeclaims",
                "persistentvolumes"
            ],
            &seen
        ),
        rule("apps", &["daemonsets", "replicasets", "statefulsets"], &seen),
        rule("batch", &["jobs", "cronjobs"], &seen),
        rule("policy", &["poddisruptionbudgets"], &seen),
        rule(
            "storage.k8s.io",
            &["storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"],
            &seen
        ),
        rule("coordination.k8s.io", &["leases"], &["create", "get", "update"]),
    ]);
    let own_rules = json!([rule("", &["configmaps"], &["create", "get", "list", "watch", "update", "delete"])]);
    let object = |version: &str, kind: &str, name: &str, namespaced: bool, mut body: Value| {
        body["apiVersion"] = json!(version);
        body["kind"] = json!(kind);
        body["metadata"] = json!({"name": name, "labels": labels});
        if namespaced {
            body["metadata"]["namespace"] = json!("kube-system");
        }
        body
    };
    let rbac_v1 = format!("{rbac}/v1");
    let role_ref = |kind: &str| json!({"apiGroup": rbac, "kind": kind, "name": NAME});
    vec![
        (
            format!("/api/v1/namespaces/kube-system/serviceaccounts/{NAME}"),
            object("v1", "ServiceAccount", NAME, true, json!({})),
        ),
        (
            format!("/apis/{rbac_v1}/clusterroles/{NAME}"),
            object(&rbac_v1, "ClusterRole", NAME, false, json!({"rules": cluster_rules})),
        ),
        (
            format!("/apis/{rbac_v1}/clusterrolebindings/{NAME}"),
            object(
                &rbac_v1,
                "ClusterRoleBinding",
                NAME,
                false,
                json!({"roleRef": role_ref("ClusterRole"), "subjects": subjects}),
            ),
        ),
        (
            format!("/apis/{rbac_v1}/namespaces/kube-system/roles/{NAME}"),
            object(&rbac_v1, "Role", NAME, true, json!({"rules": own_rules})),
        ),
        (
            format!("/apis/{rbac_v1}/namespaces/kube-system/rolebindings/{NAME}"),
            object(&rbac_v1, "RoleBinding", NAME, true, json!({"roleRef": role_ref("Role"), "subjects": subjects})),
        ),
        (
            format!("/api/v1/namespaces/kube-system/secrets/{SECRET}"),
            object("v1", "Secret", SECRET, true, json!({"type": "Opaque", "stringData": secret})),
        ),
    ]
}

/// The bounds of one owner, as the autoscaler takes them: `1:5:POOL`.
fn entries(props: &Props) -> Vec<String> {
    let pools = props.get("pools").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut entries: Vec<String> = pools
        .iter()
        .filter_map(|entry| {
            Some(format!("{}:{}:{}", entry["min"].as_u64()?, entry["max"].as_u64()?, entry["pool"].as_str()?))
        })
        .collect();
    entries.sort();
    entries
}

/// The inverse of `entries`, for what a Deployment says.
fn pools_of(annotation: &str) -> Value {
    let entries = annotation.split(',').filter_map(|entry| {
        let mut parts = entry.splitn(3, ':');
        let (min, max, pool) = (parts.next()?, parts.next()?, parts.next()?);
        Some(json!({"pool": pool, "min": min.parse::<u64>().ok()?, "max": max.parse::<u64>().ok()?}))
    });
    sorted(Value::Array(entries.collect()))
}

/// Bounds in the order of their pools.
pub fn sorted(pools: Value) -> Value {
    let Value::Array(mut entries) = pools else { return pools };
    entries.sort_by_key(|entry| entry["pool"].as_str().unwrap_or_default().to_owned());
    Value::Array(entries)
}

/// One owner's entry, as it was found.
fn seen(region: &str, cluster: &str, owner: &str, pools: Value) -> Observed {
    let mut props = Props::new();
    put(&mut props, "cluster_id", cluster);
    put(&mut props, "region", region);
    put(&mut props, "owner", owner);
    put(&mut props, "pools", pools);
    let id = format!("{cluster}/{}", short(owner));
    Observed { id, props, outputs: Props::new(), phase: Phase::Ready }
}

fn annotation(owner: &str) -> String {
    format!("{OWNER_ANNOTATION}{}", short(owner))
}

fn annotations(deployment: &Value) -> Map<String, Value> {
    deployment.pointer("/metadata/annotations").and_then(Value::as_object).cloned().unwrap_or_default()
}

fn is_ours(deployment: &Value) -> bool {
    deployment.pointer("/metadata/labels").is_some_and(|labels| labels[MANAGED_BY] == "berth")
}

fn not_ours() -> Trouble {
    Trouble::refused("the cluster already has a cluster autoscaler that Berth does not manage")
        .help("remove it:   kubectl -n kube-system delete deployment cluster-autoscaler")
        .help("or leave autoScale out of the manifest, and set its bounds by hand")
}

/// Every owner's annotation on a Deployment.
fn owners(deployment: &Value) -> Map<String, Value> {
    annotations(deployment).into_iter().filter(|(key, _)| key.starts_with(OWNER_ANNOTATION)).collect()
}

/// The Deployment's spec for all owners' bounds. Without any, it waits with no pod: the autoscaler would not start.
fn deployment_spec(owners: &Map<String, Value>) -> Value {
    let mut nodes: Vec<&str> = owners
        .values()
        .filter_map(Value::as_str)
        .flat_map(|list| list.split(','))
        .filter(|entry| !entry.is_empty())
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    let mut command = vec!["./cluster-autoscaler".to_owned(), "--cloud-provider=civo".into()];
    command.extend(nodes.iter().map(|entry| format!("--nodes={entry}")));
    command.extend(
        [
            "--skip-nodes-with-local-storage=false",
            "--skip-nodes-with-system-pods=false",
            "--stderrthreshold=info",
            "--v=2",
        ]
        .map(String::from),
    );
    let from_secret =
        |name: &str, key: &str| json!({"name": name, "valueFrom": {"secretKeyRef": {"name": SECRET, "key": key}}});
    json!({
        "replicas": if nodes.is_empty() { 0 } else { 1 },
        "selector": {"matchLabels": {"app": NAME}},
        "template": {
            "metadata": {"labels": {"app": NAME}},
            "spec": {
                "serviceAccountName": NAME,
                "containers": [{
                    "name": NAME,
                    "image": IMAGE,
                    "command": command,
                    "env": [
                        from_secret("CIVO_API_URL", "api-url"),
                        from_secret("CIVO_API_KEY", "api-key"),
                        from_secret("CIVO_CLUSTER_ID", "cluster-id"),
                        from_secret("CIVO_REGION", "region"),
                    ],
                    "resources": {"requests": {"cpu": "100m", "memory": "300Mi"}, "limits": {"memory": "600Mi"}},
                }],
            },
        },
    })
}

impl AutoscalerHandler {
    async fn kube(&self, region: &str, cluster: &str) -> Outcome<Kube> {
        let kubeconfig = self.client.api.kubeconfig(region, cluster).await?;
        if kubeconfig.trim().is_empty() {
            return Err(Trouble::new(Class::Retry { after: None }, format!("cluster {cluster} has no kubeconfig yet")));
        }
        self.client.kubes.open(&kubeconfig)
    }

    fn secret(&self, region: &str, cluster: &str) -> Value {
        json!({
            "api-url": self.client.api.url,
            "api-key": self.client.token.expose_secret(),
            "cluster-id": cluster,
            "region": super::api::region_code(region),
        })
    }

    /// With a mark of the token on the pod: it reads the secret when it starts, so that another token needs another pod.
    fn running_spec(&self, owners: &Map<String, Value>) -> Value {
        let mut spec = deployment_spec(owners);
        spec["template"]["metadata"]["annotations"] =
            json!({TOKEN_ANNOTATION: short(self.client.token.expose_secret())});
        spec
    }

    /// Writes one owner's bounds, or takes them away. Reads before every write, and a write that another overtook fails.
    async fn write(
        &self,
        kube: &Kube,
        region: &str,
        cluster: &str,
        owner: &str,
        bounds: Option<&[String]>,
    ) -> Outcome<()> {
        let mut last = None;
        let companions = companions(self.secret(region, cluster));
        for _ in 0..WRITE_TRIES {
            let present = kube.get(&deployment_path()).await?;
            if present.as_ref().is_some_and(|deployment| !is_ours(deployment)) {
                return if bounds.is_none() { Ok(()) } else { Err(not_ours()) };
            }
            let mut owners = present.as_ref().map(owners).unwrap_or_default();
            match bounds {
                Some(bounds) => owners.insert(annotation(owner), json!(bounds.join(","))),
                None => owners.remove(&annotation(owner)),
            };
            if owners.is_empty() || present.is_none() && bounds.is_none() {
                return self.remove(kube).await;
            }
            // The account's token may be another one by now.
            let only_secret = present.is_some();
            for (path, object) in companions.iter().filter(|(_, object)| !only_secret || object["kind"] == "Secret") {
                kube.apply(path, object).await?;
            }
            let written = match present {
                None => kube.create(DEPLOYMENTS, &self.new_deployment(&owners)).await,
                Some(deployment) => kube.replace(&deployment_path(), &self.changed(deployment, owners)).await,
            };
            match written {
                Ok(_) => return Ok(()),
                Err(trouble) if trouble.is_retry() || matches!(trouble.class, Class::Taken { .. }) => {
                    last = Some(trouble)
                }
                Err(trouble) => return Err(trouble),
            }
        }
        let trouble = last.unwrap_or_else(|| Trouble::refused("the autoscaler could not be written"));
        Err(Trouble { class: Class::Retry { after: None }, ..trouble })
    }

    fn new_deployment(&self, owners: &Map<String, Value>) -> Value {
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": NAME,
                "namespace": "kube-system",
                "labels": {"app": NAME, MANAGED_BY: "berth"},
                "annotations": owners,
            },
            "spec": self.running_spec(owners),
        })
    }

    /// A Deployment with other owners; annotations that are not Berth's stay.
    fn changed(&self, mut deployment: Value, owners: Map<String, Value>) -> Value {
        deployment["spec"] = self.running_spec(&owners);
        let mut annotations = annotations(&deployment);
        annotations.retain(|key, _| !key.starts_with(OWNER_ANNOTATION));
        annotations.extend(owners);
        deployment["metadata"]["annotations"] = Value::Object(annotations);
        if let Some(map) = deployment.as_object_mut() {
            map.remove("status");
        }
        deployment
    }

    /// The Deployment goes last: as long as it is there, a removal that was cut short is seen and gone on with. Otherwise the
    /// secret with the account's token could stay behind.
    async fn remove(&self, kube: &Kube) -> Outcome<()> {
        for (path, _) in companions(Value::Null).iter().rev() {
            kube.delete(path).await?;
        }
        kube.delete(&deployment_path()).await
    }

    async fn look(&self, region: &str, cluster: &str, owner: &str) -> Outcome<Option<Observed>> {
        let kube = match self.kube(region, cluster).await {
            Err(trouble) if trouble.is_not_found() => return Ok(None),
            other => other?,
        };
        let Some(deployment) = kube.get(&deployment_path()).await? else {
            return Ok(match self.is_half_there(&kube).await? {
                true => Some(seen(region, cluster, owner, json!([]))),
                false => None,
            });
        };
        let owners = owners(&deployment);
        let Some(bounds) = owners.get(&annotation(owner)).and_then(Value::as_str) else { return Ok(None) };
        // Someone changed the arguments by hand: what runs is not what the annotations say.
        let command = |value: &Value| value.pointer("/template/spec/containers/0/command").cloned();
        let args_differ = deployment.get("spec").and_then(command) != command(&deployment_spec(&owners));
        let pools = if args_differ { json!([]) } else { pools_of(bounds) };
        Ok(Some(seen(region, cluster, owner, pools)))
    }

    /// Without the Deployment, a service account of ours is what an installation or a removal that was cut short left: it is
    /// the first to come and the last of its companions to go.
    async fn is_half_there(&self, kube: &Kube) -> Outcome<bool> {
        let Some((path, _)) = companions(Value::Null).into_iter().next() else { return Ok(false) };
        let account = kube.get(&path).await?;
        let manager =
            account.as_ref().and_then(|a| a.pointer("/metadata/labels")).and_then(|labels| labels.get(MANAGED_BY));
        Ok(manager.and_then(Value::as_str) == Some("berth"))
    }
}

#[async_trait]
impl Handler for AutoscalerHandler {
    fn fields(&self) -> &'static [Field] {
        FIELDS
    }

    fn same(&self, field: &str, desired: &Value, observed: &Value) -> bool {
        match field {
            "pools" => sorted(desired.clone()) == sorted(observed.clone()),
            _ => desired == observed,
        }
    }

    fn typical(&self, op: Op, _: &Props, _: &[FieldChange]) -> Typical {
        matches!(op, Op::Create).then_some(Duration::from_secs(3))
    }

    async fn check(&self, mut desired: Props, observed: Option<&Observed>) -> Outcome<Props> {
        if let Some(cluster) = optional_text(&desired, "cluster_id") {
            let current = observed.and_then(|o| optional_text(&o.props, "cluster_id"));
            let id = self.client.cluster_id(required_text(&desired, "region")?, cluster, current).await?;
            put(&mut desired, "cluster_id", id);
        }
        Ok(desired)
    }

    async fn read(&self, id: &str, props: &Props) -> Outcome<Option<Observed>> {
        let cluster = id.split('/').next().unwrap_or(id);
        self.look(required_text(props, "region")?, cluster, required_text(props, "owner")?).await
    }

    /// An owner's entry is its own: there is nothing that could be in its way.
    async fn find(&self, desired: &Props, token: Option<&str>) -> Outcome<Option<Observed>> {
        let (Some(_), Some(cluster)) = (token, optional_text(desired, "cluster_id")) else { return Ok(None) };
        let region = required_text(desired, "region")?;
        let cluster = self.client.cluster_id(region, cluster, None).await?;
        self.look(region, &cluster, required_text(desired, "owner")?).await
    }

    async fn create(&self, desired: &Props, _: &str, _: bool) -> Outcome<String> {
        let region = required_text(desired, "region")?;
        let owner = required_text(desired, "owner")?;
        let cluster = self.client.cluster_id(region, required_text(desired, "cluster_id")?, None).await?;
        let kube = self.kube(region, &cluster).await?;
        self.write(&kube, region, &cluster, owner, Some(&entries(desired))).await?;
        Ok(format!("{cluster}/{}", short(owner)))
    }

    async fn update(&self, observed: &Observed, desired: &Props, _: &[&str]) -> Outcome<()> {
        let region = required_text(desired, "region")?;
        let cluster = required_text(&observed.props, "cluster_id")?;
        let kube = self.kube(region, cluster).await?;
        self.write(&kube, region, cluster, required_text(desired, "owner")?, Some(&entries(desired))).await
    }

    async fn delete(&self, observed: &Observed, props: &Props, _: bool) -> Outcome<()> {
        let region = required_text(props, "region").or_else(|_| required_text(&observed.props, "region"))?;
        let cluster = required_text(&observed.props, "cluster_id")?;
        let kube = match self.kube(region, cluster).await {
            Err(trouble) if trouble.is_not_found() => return Ok(()),
            other => other?,
        };
        self.write(
            &kube,
            region,
            cluster,
            required_text(props, "owner").or_else(|_| required_text(&observed.props, "owner"))?,
            None,
        )
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_all_owners_become_arguments() {
        let owners = json!({"autoscaler.berth.dev/a": "1:5:x,2:3:y", "autoscaler.berth.dev/b": "1:9:z", "autoscaler.berth.dev/c": ""});
        let spec = deployment_spec(owners.as_object().unwrap());
        let command = serde_json::to_string(&spec["template"]["spec"]["containers"][0]["command"]).unwrap();
        assert!(command.contains(r#""--nodes=1:5:x","--nodes=1:9:z","--nodes=2:3:y""#), "{command}");
        assert_eq!(spec["replicas"], 1);
        assert_eq!(deployment_spec(&Map::new())["replicas"], 0);
    }

    #[test]
    fn bounds_are_read_back() {
        let pools = json!([{"pool": "a-1", "min": 1, "max": 5}, {"pool": "b-2", "min": 2, "max": 3}]);
        let mut props = Props::new();
        put(&mut props, "pools", pools.clone());
        assert_eq!(pools_of(&entries(&props).join(",")), pools);
        assert_eq!(pools_of(""), json!([]));
    }
}
