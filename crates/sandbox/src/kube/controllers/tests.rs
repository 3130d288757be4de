//! Controllers case by case: objects in, a moment, objects out. Time is given, so nothing waits.

use serde_json::{Value, json};

use super::{Pace, settle};
use crate::clock::SimTime;
use crate::kube::change::{PatchKind, Write};
use crate::kube::delete::Deletion;
use crate::kube::objects::{At, Objects, meta};
use crate::registry::CloudName;
use crate::world::{ClusterView, NodeCapacity, NodeView, TaintView};

/// A cluster whose clock is moved by hand.
struct Cluster {
    objects: Objects,
    view: ClusterView,
    now: SimTime,
}

impl Cluster {
    fn with_nodes(count: usize) -> Cluster {
        let start = SimTime(1_700_000_000_000);
        let node = |number: usize| NodeView {
            name: format!("node-{number}"),
            ready: true,
            pool: "pool".into(),
            size: "size".into(),
            labels: [("zone".to_owned(), format!("z{number}"))].into(),
            taints: Vec::new(),
            machine: None,
            capacity: NodeCapacity::default(),
            created: start,
        };
        let view = ClusterView {
            id: "cluster".into(),
            name: "cluster".into(),
            cloud: CloudName("nowhere"),
            storage_class: ("standard", "csi.example.com"),
            kubernetes_version: "v1.33.1".into(),
            nodes: (0..count).map(node).collect(),
            api_up: true,
            created: start,
        };
        let mut cluster = Cluster { objects: Objects::new("cluster"), view, now: start };
        cluster.pass(0);
        cluster
    }

    /// Lets so many seconds pass.
    fn pass(&mut self, seconds: i64) {
        self.now = self.now.plus_ms(seconds * 1000);
        settle(&mut self.objects, &self.view, self.now, Pace { instant: false });
    }

    fn make(&mut self, object: Value) -> Value {
        let resource =
            self.objects.by_kind(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap()).unwrap();
        let namespace = if resource.namespaced { "default" } else { "" };
        let made = self.objects.create(resource, namespace, &object, &Write::own(self.now)).unwrap();
        self.pass(0);
        made
    }

    fn at<'a>(&self, group: &str, plural: &str, name: &'a str) -> At<'a> {
        let resource = self.objects.by_plural(group, plural).unwrap();
        At { resource, namespace: if resource.namespaced { "default" } else { "" }, name }
    }

    fn get(&self, group: &str, plural: &str, name: &str) -> Value {
        self.objects.get(self.at(group, plural, name)).unwrap().clone()
    }

    fn patch(&mut self, group: &str, plural: &str, name: &str, patch: Value) {
        let at = self.at(group, plural, name);
        self.objects.patch(at, &PatchKind::Merge, &patch, false, &Write::own(self.now)).unwrap();
        self.pass(0);
    }

    fn delete(&mut self, group: &str, plural: &str, name: &str) {
        let at = self.at(group, plural, name);
        self.objects.delete(at, &Deletion::default(), self.now).unwrap();
        self.pass(0);
    }

    fn pods(&self) -> Vec<&Value> {
        self.objects.rows_of("", "pods").map(|row| &row.object).collect()
    }

    fn ready(&self) -> usize {
        self.pods().iter().filter(|pod| super::is_true(pod, "Ready")).count()
    }

    fn messages(&self, reason: &str) -> Vec<&str> {
        let all = self.objects.rows_of("", "events").map(|row| &row.object);
        all.filter(|event| event["reason"] == reason).filter_map(|event| event["message"].as_str()).collect()
    }
}

fn workload(kind: &str, name: &str, extra: Value) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}},
                 "spec": {"containers": [{"name": "main", "image": "nginx:1.27"}]}}},
    });
    crate::kube::patch::merge(&mut object["spec"], &extra);
    object
}

#[test]
fn a_deployment_gets_pods_that_become_ready_after_a_while() {
    let mut cluster = Cluster::with_nodes(2);
    cluster.make(workload("Deployment", "web", json!({"replicas": 3})));
    assert_eq!((cluster.pods().len(), cluster.ready()), (3, 0));
    let waiting = &cluster.pods()[0]["status"]["containerStatuses"][0]["state"]["waiting"]["reason"];
    assert_eq!(waiting, "ContainerCreating");
    cluster.pass(10);
    assert_eq!(cluster.ready(), 3);
    let deployment = cluster.get("apps", "deployments", "web");
    assert_eq!(deployment["status"]["availableReplicas"], 3);
    assert_eq!(deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    assert!(super::is_true(&deployment, "Available") && super::is_true(&deployment, "Progressing"));
    let pod = cluster.pods()[0].clone();
    assert_eq!(pod["status"]["phase"], "Running");
    assert!(pod["status"]["podIP"].is_string() && pod["status"]["hostIP"].is_string());
    assert!(pod["metadata"]["labels"]["pod-template-hash"].is_string());
    let used: std::collections::BTreeSet<&str> =
        cluster.pods().iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
    assert_eq!(used.len(), 2, "pods are spread over nodes");
}

#[test]
fn a_rollout_never_has_too_few_pods() {
    let mut cluster = Cluster::with_nodes(3);
    cluster.make(workload("Deployment", "web", json!({"replicas": 4})));
    cluster.pass(20);
    cluster.patch(
        "apps",
        "deployments",
        "web",
        json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "nginx:1.28"}]}}}}),
    );
    for _ in 0..60 {
        assert!(cluster.ready() >= 3, "at most one may be missing");
        let active = cluster.pods().iter().filter(|pod| !super::is_leaving(pod)).count();
        assert!(active <= 5, "at most one too many");
        cluster.pass(1);
    }
    let sets: Vec<(i64, String)> = cluster
        .objects
        .rows_of("apps", "replicasets")
        .map(|row| {
            (
                row.object["spec"]["replicas"].as_i64().unwrap(),
                row.object["metadata"]["annotations"]["deployment.kubernetes.io/revision"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    assert!(sets.contains(&(0, "1".into())) && sets.contains(&(4, "2".into())), "{sets:?}");
    assert_eq!((cluster.pods().len(), cluster.ready()), (4, 4));
    // Back to the first template: its ReplicaSet becomes revision 3.
    cluster.patch(
        "apps",
        "deployments",
        "web",
        json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "nginx:1.27"}]}}}}),
    );
    cluster.pass(60);
    assert_eq!(
        cluster.get("apps", "deployments", "web")["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "3"
    );
    assert_eq!(cluster.objects.rows_of("apps", "replicasets").count(), 2);
}

#[test]
fn recreate_takes_all_pods_down_first() {
    let mut cluster = Cluster::with_nodes(1);
    cluster.make(workload("Deployment", "web", json!({"replicas": 2, "strategy": {"type": "Recreate"}})));
    cluster.pass(20);
    cluster.patch("apps", "deployments", "web", json!({"spec": {"template": {"metadata": {"labels": {"v": "2"}}}}}));
    let hashes = |cluster: &Cluster| -> std::collections::BTreeSet<String> {
        cluster
            .pods()
            .iter()
            .map(|pod| pod["metadata"]["labels"]["pod-template-hash"].as_str().unwrap().to_owned())
            .collect()
    };
    for _ in 0..20 {
        assert!(hashes(&cluster).len() <= 1, "never two revisions at once");
        cluster.pass(1);
    }
    assert_eq!(cluster.ready(), 2);
}

#[test]
fn a_rollout_that_cannot_work_is_given_up() {
    let mut cluster = Cluster::with_nodes(1);
    cluster.make(workload("Deployment", "web", json!({"progressDeadlineSeconds": 30})));
    cluster.pass(20);
    cluster.patch(
        "apps",
        "deployments",
        "web",
        json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "nginx:does-not-exist"}]}}}}),
    );
    cluster.pass(10);
    let state = cluster
        .pods()
        .iter()
        .find_map(|pod| pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].as_str());
    assert_eq!(state, Some("ImagePullBackOff"));
    assert_eq!(cluster.ready(), 1, "the old pod stays");
    cluster.pass(60);
    let deployment = cluster.get("apps", "deployments", "web");
    let progress = super::find_condition(&deployment["status"], "Progressing").unwrap();
    assert_eq!((&progress["status"], &progress["reason"]), (&json!("False"), &json!("ProgressDeadlineExceeded")));
}

#[test]
fn pods_that_fit_nowhere_say_why() {
    let mut cluster = Cluster::with_nodes(3);
    let big = json!({"template": {"spec": {"containers": [{"name": "main", "image": "a:1", "resources": {"requests": {"cpu": "64"}}}]}}});
    cluster.make(workload("Deployment", "big", big));
    let pod = cluster.pods()[0].clone();
    let placed = super::find_condition(&pod["status"], "PodScheduled").unwrap();
    assert_eq!(placed["reason"], "Unschedulable");
    let why = "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.";
    assert_eq!(placed["message"], why);
    assert_eq!(cluster.messages("FailedScheduling"), [why]);
    cluster.view.nodes.iter_mut().for_each(|node| {
        node.taints = vec![TaintView { key: "only".into(), value: "us".into(), effect: "NoSchedule".into() }];
    });
    cluster.make(workload("Deployment", "small", json!({})));
    let small = cluster.pods().into_iter().find(|pod| meta(pod, "name").starts_with("small")).unwrap().clone();
    let placed =
        super::find_condition(&small["status"], "PodScheduled").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(placed.starts_with("0/3 nodes are available: 3 node(s) had untolerated taint {only: us}."), "{placed}");
}

#[test]
fn a_node_that_goes_takes_its_pods_and_others_come() {
    let mut cluster = Cluster::with_nodes(2);
    cluster.make(workload("Deployment", "web", json!({"replicas": 4})));
    cluster.make(workload("DaemonSet", "agent", json!({})));
    cluster.pass(20);
    assert_eq!(cluster.ready(), 6);
    cluster.view.nodes.remove(0);
    cluster.pass(0);
    cluster.pass(20);
    assert_eq!(cluster.ready(), 5, "{:?}", cluster.pods().iter().map(|pod| meta(pod, "name")).collect::<Vec<_>>());
    assert!(cluster.pods().iter().all(|pod| pod["spec"]["nodeName"] == "node-1"));
    // A Node object that somebody deletes stays away although its machine is there.
    cluster.delete("", "nodes", "node-1");
    cluster.pass(20);
    assert_eq!(cluster.objects.rows_of("", "nodes").count(), 0);
    let waiting = cluster.pods().iter().filter(|pod| pod["status"]["phase"] == "Pending").count();
    assert_eq!(waiting, 4, "{:?}", cluster.messages("FailedScheduling"));
}

#[test]
fn taints_drive_pods_away_and_budgets_count_them() {
    let mut cluster = Cluster::with_nodes(2);
    cluster.make(workload("Deployment", "web", json!({"replicas": 2})));
    cluster.make(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}}));
    cluster.pass(20);
    let budget = cluster.get("policy", "poddisruptionbudgets", "web");
    assert_eq!((&budget["status"]["currentHealthy"], &budget["status"]["disruptionsAllowed"]), (&json!(2), &json!(0)));
    let pod = cluster.pods()[0].clone();
    assert!(super::forbids(&cluster.objects, &pod).is_some());
    cluster.patch("", "nodes", "node-0", json!({"spec": {"taints": [{"key": "out", "effect": "NoExecute"}]}}));
    cluster.pass(20);
    assert!(cluster.pods().iter().all(|pod| pod["spec"]["nodeName"] == "node-1"));
    assert_eq!(cluster.ready(), 2);
}

#[test]
fn a_stateful_set_goes_in_order_and_keeps_its_volumes() {
    let mut cluster = Cluster::with_nodes(2);
    let claims = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    cluster.make(workload(
        "StatefulSet",
        "db",
        json!({"replicas": 3, "serviceName": "db", "volumeClaimTemplates": claims}),
    ));
    assert_eq!(cluster.pods().len(), 1, "the second waits for the first");
    cluster.pass(60);
    let names: Vec<&str> = cluster.pods().iter().map(|pod| meta(pod, "name")).collect();
    assert_eq!(names, ["db-0", "db-1", "db-2"]);
    assert_eq!(cluster.ready(), 3);
    assert_eq!(cluster.get("", "persistentvolumeclaims", "data-db-2")["status"]["phase"], "Bound");
    cluster.patch("apps", "statefulsets", "db", json!({"spec": {"replicas": 1}}));
    cluster.pass(30);
    assert_eq!(cluster.pods().len(), 1);
    assert_eq!(cluster.objects.rows_of("", "persistentvolumeclaims").count(), 3, "claims stay");
    cluster.patch("apps", "statefulsets", "db", json!({"spec": {"template": {"metadata": {"labels": {"v": "2"}}}}}));
    cluster.pass(30);
    assert_eq!(cluster.pods()[0]["metadata"]["labels"]["v"], "2");
    let status = cluster.get("apps", "statefulsets", "db")["status"].clone();
    assert_eq!(status["currentRevision"], status["updateRevision"]);
}

fn job(name: &str, command: &[&str], extra: Value) -> Value {
    let mut object = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1", "command": command}]}}}});
    crate::kube::patch::merge(&mut object["spec"], &extra);
    object
}

#[test]
fn jobs_complete_fail_and_expire() {
    let mut cluster = Cluster::with_nodes(1);
    cluster.make(job(
        "good",
        &["sh", "-c", "echo done"],
        json!({"completions": 3, "parallelism": 2, "ttlSecondsAfterFinished": 100}),
    ));
    cluster.make(job("bad", &["sh", "-c", "exit 3"], json!({"backoffLimit": 1})));
    cluster.pass(60);
    assert!(super::is_true(&cluster.get("batch", "jobs", "good"), "Complete"));
    assert_eq!(cluster.get("batch", "jobs", "good")["status"]["succeeded"], 3);
    let bad = cluster.get("batch", "jobs", "bad");
    assert!(super::is_true(&bad, "Failed"), "{bad}");
    assert_eq!(bad["status"]["failed"], 2);
    cluster.pass(120);
    assert!(cluster.objects.peek("batch", "jobs", "default", "good").is_none(), "its time to live is over");
}

#[test]
fn a_cron_job_keeps_its_schedule_while_nobody_looks() {
    let mut cluster = Cluster::with_nodes(1);
    let template = job("x", &["true"], json!({}))["spec"].clone();
    cluster.make(json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"},
        "spec": {"schedule": "*/10 * * * *", "jobTemplate": {"spec": template}}}));
    cluster.pass(3600);
    assert_eq!(cluster.objects.rows_of("batch", "jobs").count(), 3, "three successful ones are kept");
    let last = cluster.get("batch", "cronjobs", "tick")["status"]["lastScheduleTime"].as_str().unwrap().to_owned();
    let last: jiff::Timestamp = last.parse().unwrap();
    assert!(cluster.now.0 - last.as_millisecond() < 600_000);
    assert_eq!(last.as_second() % 600, 0);
}

#[test]
fn services_find_ready_pods_and_get_an_address() {
    let mut cluster = Cluster::with_nodes(1);
    cluster.make(workload("Deployment", "web", json!({"replicas": 2})));
    cluster.make(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}}));
    assert!(cluster.get("", "endpoints", "web")["subsets"].is_null());
    cluster.pass(10);
    let endpoints = cluster.get("", "endpoints", "web");
    assert_eq!(endpoints["subsets"][0]["addresses"].as_array().unwrap().len(), 2);
    assert_eq!(endpoints["subsets"][0]["ports"][0]["port"], 8080);
    assert_eq!(cluster.objects.rows_of("discovery.k8s.io", "endpointslices").count(), 1);
    assert!(cluster.get("", "services", "web")["status"]["loadBalancer"]["ingress"].is_null());
    cluster.pass(120);
    let service = cluster.get("", "services", "web");
    assert!(service["status"]["loadBalancer"]["ingress"][0]["ip"].is_string());
    assert!(service["spec"]["ports"][0]["nodePort"].as_u64().unwrap() >= 30_000);
    cluster.delete("", "services", "web");
    assert_eq!(cluster.objects.rows_of("", "endpoints").count(), 0);
    assert_eq!(cluster.objects.rows_of("discovery.k8s.io", "endpointslices").count(), 0);
}

#[test]
fn claims_wait_grow_and_are_released() {
    let mut cluster = Cluster::with_nodes(1);
    cluster.make(json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"},
        "provisioner": "csi.example.com", "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true}));
    cluster.make(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}));
    cluster.pass(20);
    assert_eq!(cluster.get("", "persistentvolumeclaims", "data")["status"]["phase"], "Pending");
    cluster.make(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "user"}, "spec": {
        "containers": [{"name": "main", "image": "a:1"}], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}}));
    cluster.pass(20);
    assert_eq!(cluster.get("", "persistentvolumeclaims", "data")["status"]["phase"], "Bound");
    assert_eq!(cluster.objects.rows_of("", "persistentvolumes").count(), 1);
    cluster.patch(
        "",
        "persistentvolumeclaims",
        "data",
        json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}),
    );
    cluster.pass(20);
    assert_eq!(cluster.get("", "persistentvolumeclaims", "data")["status"]["capacity"]["storage"], "2Gi");
    cluster.delete("", "persistentvolumeclaims", "data");
    assert!(cluster.objects.peek("", "persistentvolumeclaims", "default", "data").is_some(), "a pod uses it");
    cluster.delete("", "pods", "user");
    cluster.pass(20);
    assert_eq!(cluster.objects.rows_of("", "persistentvolumes").count(), 0, "its class says Delete");
}

#[test]
fn what_loses_its_owner_goes_unless_it_is_let_go() {
    let mut cluster = Cluster::with_nodes(1);
    for policy in ["Background", "Foreground", "Orphan"] {
        cluster.make(workload("Deployment", "web", json!({"replicas": 1})));
        cluster.pass(10);
        let at = cluster.at("apps", "deployments", "web");
        let deletion = Deletion { propagation: Some(policy.into()), ..Deletion::default() };
        cluster.objects.delete(at, &deletion, cluster.now).unwrap();
        cluster.pass(0);
        assert_eq!(
            cluster.objects.peek("apps", "deployments", "default", "web").is_some(),
            policy == "Foreground",
            "{policy}"
        );
        cluster.pass(30);
        assert!(cluster.objects.peek("apps", "deployments", "default", "web").is_none(), "{policy}");
        assert_eq!(cluster.pods().len(), usize::from(policy == "Orphan"), "{policy}");
    }
    assert!(
        cluster
            .objects
            .rows_of("apps", "replicasets")
            .all(|row| row.object["metadata"].get("ownerReferences").is_none())
    );
}

#[test]
fn a_namespace_takes_everything_with_it_when_nothing_holds_it() {
    let mut cluster = Cluster::with_nodes(1);
    cluster.make(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}));
    let maps = cluster.objects.by_plural("", "configmaps").unwrap();
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/wait"]}});
    cluster.objects.create(maps, "shop", &held, &Write::own(cluster.now)).unwrap();
    cluster.delete("", "namespaces", "shop");
    assert_eq!(cluster.get("", "namespaces", "shop")["status"]["phase"], "Terminating");
    let refused = cluster
        .objects
        .create(maps, "shop", &json!({"metadata": {"name": "late"}}), &Write::own(cluster.now))
        .unwrap_err();
    assert_eq!(refused.code, 403);
    let at = At { resource: maps, namespace: "shop", name: "held" };
    cluster
        .objects
        .patch(at, &PatchKind::Merge, &json!({"metadata": {"finalizers": null}}), false, &Write::own(cluster.now))
        .unwrap();
    cluster.pass(0);
    assert!(cluster.objects.peek("", "namespaces", "", "shop").is_none());
}

#[test]
fn webhooks_that_nobody_answers_for_fail_as_they_say() {
    let mut cluster = Cluster::with_nodes(1);
    let hook = |policy: &str| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "guard"}, "webhooks": [{"name": "guard.example.com", "failurePolicy": policy, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "clientConfig": {"service": {"name": "guard", "namespace": "default", "path": "/check"}}}]})
    };
    cluster.make(hook("Fail"));
    let maps = cluster.objects.by_plural("", "configmaps").unwrap();
    let body = json!({"metadata": {"name": "a"}});
    let refused = cluster.objects.create(maps, "default", &body, &Write::own(cluster.now)).unwrap_err();
    assert_eq!(refused.code, 500);
    assert_eq!(
        refused.body["message"],
        "Internal error occurred: failed calling webhook \"guard.example.com\": failed to call webhook: Post \
         \"https://guard.default.svc:443/check?timeout=10s\": service \"guard\" not found"
    );
    cluster.patch(
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        "guard",
        json!({"webhooks": hook("Ignore")["webhooks"]}),
    );
    cluster.objects.create(maps, "default", &body, &Write::own(cluster.now)).unwrap();
}

#[test]
fn quotas_count_and_refuse() {
    let mut cluster = Cluster::with_nodes(1);
    cluster.make(json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}}));
    cluster.make(workload("Deployment", "web", json!({"replicas": 3})));
    cluster.pass(10);
    assert_eq!(cluster.pods().len(), 2);
    let why = cluster.messages("FailedCreate");
    assert!(why[0].contains("exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"), "{why:?}");
    assert_eq!(cluster.get("", "resourcequotas", "q")["status"]["used"]["pods"], "2");
}

#[test]
fn custom_types_are_defined_checked_and_removed() {
    let mut cluster = Cluster::with_nodes(1);
    cluster.make(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "boats.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {"type": "object",
             "properties": {"spec": {"type": "object", "required": ["sails"], "properties": {"sails": {"type": "integer"}, "color": {"type": "string", "default": "red"}}}}}}}]}}));
    assert!(super::is_true(
        &cluster.get("apiextensions.k8s.io", "customresourcedefinitions", "boats.example.com"),
        "Established"
    ));
    let boat = cluster.make(json!({"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "a"}, "spec": {"sails": 2, "oars": 4}}));
    assert_eq!(boat["spec"], json!({"sails": 2, "color": "red"}), "defaults are filled in, unknown fields dropped");
    let resource = cluster.objects.by_plural("example.com", "boats").unwrap();
    let bad = json!({"metadata": {"name": "b"}, "spec": {"sails": "two"}});
    let refused = cluster.objects.create(resource, "default", &bad, &Write::own(cluster.now)).unwrap_err();
    assert_eq!(
        refused.body["message"],
        "Boat.example.com \"b\" is invalid: spec.sails: Invalid value: \"string\": spec.sails in body must be of type integer: \"string\""
    );
    cluster.delete("apiextensions.k8s.io", "customresourcedefinitions", "boats.example.com");
    assert!(cluster.objects.by_plural("example.com", "boats").is_none());
    assert!(!cluster.objects.all_rows().any(|(key, _)| key.1 == "boats"));
}

#[test]
fn five_hundred_pods_cost_nothing_while_nothing_happens() {
    let mut cluster = Cluster::with_nodes(6);
    cluster.make(workload("Deployment", "web", json!({"replicas": 500})));
    cluster.pass(120);
    assert_eq!(cluster.ready(), 500);
    let before = cluster.objects.version();
    let start = std::time::Instant::now();
    for _ in 0..1000 {
        cluster.pass(1);
    }
    assert_eq!(cluster.objects.version(), before);
    assert!(start.elapsed() < std::time::Duration::from_secs(1), "{:?} for a thousand looks", start.elapsed());
}
