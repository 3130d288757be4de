//! Workloads, logs, metrics and rules of the API, by real kubectl.

use super::*;

const WEB: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      tolerations: [{key: only, operator: Exists}]
      containers:
      - {name: web, image: "nginx:1.27", ports: [{containerPort: 80}]}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_follows_a_workload() {
    let lab = Lab::start().await;
    std::fs::write(lab.file("web.yaml"), WEB).unwrap();
    lab.kubectl("apply -f web.yaml").await;
    lab.kubectl("rollout status deployment/web --timeout=20s").await;
    let pods = lab.kubectl("get pods -l app=web -o wide").await;
    assert_eq!(pods.matches("1/1     Running").count(), 3, "{pods}");
    lab.kubectl("set image deployment/web web=nginx:1.28").await;
    lab.kubectl("rollout status deployment/web --timeout=20s").await;
    let history = lab.kubectl("rollout history deployment/web").await;
    assert!(history.contains("1 ") && history.contains("2 "), "{history}");
    lab.kubectl("rollout undo deployment/web").await;
    assert_eq!(lab.kubectl("get deploy web -o jsonpath={.spec.template.spec.containers[0].image}").await, "nginx:1.27");
    let told = lab.kubectl("describe deployment web").await;
    assert!(told.contains("Scaled up replica set") && told.contains("NewReplicaSetAvailable"), "{told}");
    let logs = lab.kubectl("logs deployment/web --tail=5").await;
    assert!(logs.contains("starting web"), "{logs}");
    let (ok, why) = lab.try_kubectl("exec deploy/web -- ls").await;
    assert!(!ok && why.contains("nothing runs in them"), "{why}");
    assert!(lab.kubectl("top nodes").await.contains("CPU(cores)"));
    assert!(lab.kubectl("top pods").await.contains("web-"));
    lab.kubectl("create job once --image=busybox:1").await;
    lab.kubectl("create poddisruptionbudget web --selector=app=web --min-available=3").await;
    let node = lab.kubectl("get pods -l app=web -o jsonpath={.items[0].spec.nodeName}").await;
    let (ok, why) =
        lab.try_kubectl(&format!("drain {node} --ignore-daemonsets --force --delete-emptydir-data --timeout=3s")).await;
    assert!(!ok && why.contains("would violate the pod's disruption budget"), "{why}");
    lab.kubectl("delete pdb web").await;
    lab.kubectl(&format!("drain {node} --ignore-daemonsets --force --delete-emptydir-data --timeout=20s")).await;
    let moved = lab.kubectl("get pods -l app=web -o wide").await;
    assert!(!moved.contains(&node) && moved.matches("Running").count() == 3, "{moved}");
    lab.kubectl("delete deployment web").await;
    assert!(lab.kubectl("get pods -l app=web").await.contains("No resources found"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_knows_types_and_their_fields() {
    let lab = Lab::start().await;
    let explained = lab.kubectl("explain deployment.spec.replicas").await;
    assert!(explained.contains("Number of desired pods") && explained.contains("<integer>"), "{explained}");
    std::fs::write(lab.file("crd.yaml"), include_str!("../../../tests/charts/shop/crds/boats.yaml")).unwrap();
    lab.kubectl("apply -f crd.yaml").await;
    lab.kubectl("wait --for=condition=Established crd/boats.shop.example.com --timeout=10s").await;
    assert!(lab.kubectl("explain boat.spec.sails").await.contains("How many sails it has"));
    std::fs::write(
        lab.file("boat.yaml"),
        "apiVersion: shop.example.com/v1\nkind: Boat\nmetadata: {name: a}\nspec: {sails: 3}\n",
    )
    .unwrap();
    lab.kubectl("apply -f boat.yaml").await;
    let shown = lab.kubectl("get bt").await;
    assert!(shown.contains("SAILS") && shown.contains("red"), "{shown}");
    lab.kubectl("scale boat a --replicas=5").await;
    assert_eq!(lab.kubectl("get boat a -o jsonpath={.spec.sails}").await, "5");
    let (ok, why) = lab.try_kubectl("patch boat a --type=merge -p {\"spec\":{\"sails\":12}}").await;
    assert!(!ok && why.contains("spec.sails in body should be less than or equal to 9"), "{why}");
    let (ok, why) = lab.try_kubectl("patch boat a --type=merge -p {\"spec\":{\"oars\":1}}").await;
    assert!(ok && why.contains("unknown field \"spec.oars\""), "{why}");
}
