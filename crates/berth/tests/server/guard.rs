//! Guardrails as people meet them: the real command line of several people against a real server and worker.

use crate::harness::*;
use crate::support::folder::berth;
use crate::support::ran::{Ran, run};
use crate::typed::after;
use berth_server::pb;

/// Somebody with a token of their own.
pub struct Person {
    token: String,
    url: String,
    folder: std::path::PathBuf,
}

impl Person {
    pub async fn new(plane: &Plane, name: &str, role: &str) -> Self {
        let request = pb::CreateTokenRequest { name: name.into(), role: role.into(), ..Default::default() };
        let made = plane.client(0).await.access().create_token(request).await.expect("a token").into_inner();
        Self { token: made.secret, url: plane.urls[0].clone(), folder: plane.folder.path().to_owned() }
    }

    #[track_caller]
    pub fn berth(&self, args: &[&str]) -> Ran {
        let mut command = berth(&self.folder, args);
        command.env("BERTH_SERVER", &self.url).env("BERTH_TOKEN", &self.token);
        command.env("BERTH_CA_FILE", self.folder.join("ca.pem")).env("BERTH_CONFIG", self.folder.join("none.yaml"));
        run(&mut command)
    }

    #[track_caller]
    pub fn apply(&self, text: &str) -> Ran {
        std::fs::write(self.folder.join("given.yaml"), text).unwrap();
        self.berth(&["apply", "-f", "given.yaml", "--yes", "--allow-replace"])
    }
}

const PROTECTED: &str = "\
apiVersion: berth.dev/v1
kind: Environment
metadata: {name: prod}
spec: {protected: true}
";

const POLICIES: &str = "\
apiVersion: berth.dev/v1
kind: Policy
metadata: {name: no-london}
spec:
  rule: action != 'delete' && spec.region.startsWith('lon')
  effect: deny
  message: nothing is made in London
  kinds: [CivoVpc]
---
apiVersion: berth.dev/v1
kind: Policy
metadata: {name: owned}
spec:
  rule: \"!has(resource.labels.team)\"
  effect: warn
  message: whose is it? set the label team
  kinds: [CivoVpc]
";

fn net(env: &str, region: &str, name: &str) -> String {
    format!(
        "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {{name: net, env: {env}}}\nspec: {{networkName: {name}, \
         region: {region}}}\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_protected_environment_waits_for_somebody_else() {
    let plane = Plane::start(Setup::default()).await;
    let root = Person::new(&plane, "root", "admin").await;
    let alice = Person::new(&plane, "alice", "operator").await;
    let bob = Person::new(&plane, "bob", "operator").await;
    root.apply(PROTECTED).ok();
    // Operators do not write guards.
    alice.apply(&PROTECTED.replace("true", "false")).exits(1).says("it needs the role admin");

    alice.apply(&net("prod", "fra1", "shop")).exits(2).says("CivoVpc/net waits for approval");
    assert!(plane.names("civo.network").is_empty(), "nothing is made before");
    let approve = ["approve", "civovpc/net", "--env", "prod", "--yes"];
    alice.berth(&approve).exits(1).says("token:alice applied CivoVpc/net: somebody else must approve it");
    bob.berth(&["approve", "civovpc/net", "--env", "prod", "--yes", "--digest", "0000"]).exits(1).says("another plan");
    bob.berth(&approve).ok().says("CivoVpc/net is approved");
    alice.berth(&["wait", "civovpc/net", "--env", "prod"]).ok();
    assert_eq!(plane.names("civo.network"), ["shop"]);
    bob.berth(&approve).exits(1).says_all(&["no plan that waits", "approved by token:bob"]);

    // Nothing to do waits for nobody; another change waits anew, also for the one who approved before.
    alice.apply(&net("prod", "fra1", "shop")).ok();
    bob.apply(&net("prod", "fra1", "store")).exits(2).says("waits for approval");
    bob.berth(&approve).exits(1).says("somebody else must approve it");
    let waiting = |digest: String| pb::ApproveRequest {
        kind: "CivoVpc".into(),
        name: "net".into(),
        env: "prod".into(),
        digest,
        ..Default::default()
    };
    let get = pb::GetRequest { kind: "CivoVpc".into(), name: "net".into(), env: "prod".into(), ..Default::default() };
    let seen = plane.client(0).await.resources().get_plan(get.clone()).await.unwrap().into_inner();
    assert!(seen.awaiting && seen.approved_by.is_empty() && seen.digest.len() == 64, "{seen:?}");
    // Meanwhile the plan becomes another: what was looked at is not approved any more.
    bob.apply(&net("prod", "fra1", "bazaar")).exits(2).says("waits for approval");
    let stale = plane.client(0).await.resources().approve(waiting(seen.digest.clone())).await.expect_err("stale");
    assert_eq!(stale.code(), tonic::Code::Aborted, "{stale}");
    alice.berth(&approve).ok().says("is approved");
    alice.berth(&["wait", "civovpc/net", "--env", "prod"]).ok();
    assert_eq!(plane.names("civo.network"), ["bazaar"]);

    // A deletion waits too, and not for the one who asked for it.
    alice
        .berth(&["delete", "civovpc/net", "--env", "prod", "--yes", "--allow-delete"])
        .exits(2)
        .says("waits for approval");
    alice.berth(&approve).exits(1).says("somebody else must approve it");
    assert_eq!(plane.names("civo.network"), ["bazaar"]);
    bob.berth(&approve).ok();
    plane.until("gone", LONGEST, |all| all.iter().all(|r| kind(r) != "CivoVpc")).await;
    assert!(plane.names("civo.network").is_empty());
    // What was refused is remembered.
    let audit = root.berth(&["audit"]).ok();
    let refused = audit.text().lines().filter(|line| line.contains("approve") && line.contains("denied")).count();
    assert_eq!(refused, 3, "{}", audit.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_deny_and_warn_wherever_a_plan_is_shown_or_carried_out() {
    let plane = Plane::start(Setup::default()).await;
    let root = Person::new(&plane, "root", "admin").await;
    let alice = Person::new(&plane, "alice", "operator").await;
    root.apply(POLICIES).ok();
    alice.apply(&net("dev", "lon1", "shop")).exits(1).says_all(&["no-london", "nothing is made in London"]);
    // Not only the command line asks: what is applied by a call of its own is stopped at the gate.
    plane.apply(&net("dev", "lon1", "shop")).await;
    plane
        .until("blocked", LONGEST, |all| {
            all.iter().any(|r| r.state == "Blocked" && r.message.contains("policy no-london denies it"))
        })
        .await;
    assert!(plane.names("civo.network").is_empty());

    alice.apply(&net("dev", "fra1", "shop")).ok().says_all(&["owned", "whose is it?"]);
    assert_eq!(plane.names("civo.network"), ["shop"]);
    let events = plane.client(0).await.events().list(pb::ListEventsRequest::default()).await.unwrap().into_inner();
    let warned = events.events.iter().any(|e| e.what == "PolicyWarning" && e.detail.contains("whose is it?"));
    assert!(warned, "{:?}", events.events);

    // A rule that cannot be run denies.
    root.apply(&POLICIES.replace("spec.region.startsWith('lon')", "spec.nothing == 'x'")).ok();
    alice.apply(&net("dev", "fra1", "store")).exits(1).says_all(&["no-london", "could not be evaluated", "`nothing`"]);
    // What is taken away holds no more.
    root.berth(&["delete", "policy/no-london", "--yes", "--allow-delete"]).ok();
    alice.apply(&net("dev", "fra1", "store")).ok();
    assert_eq!(plane.names("civo.network"), ["store"]);
}

/// The worker dies when half of an approved plan is done: the rest goes on without a second approval.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approved_plan_that_was_cut_short_goes_on() {
    let mut plane = Plane::start(Setup { lease: "3s", ..Setup::default() }).await;
    let root = Person::new(&plane, "root", "admin").await;
    let alice = Person::new(&plane, "alice", "operator").await;
    let bob = Person::new(&plane, "bob", "operator").await;
    root.apply(PROTECTED).ok();
    alice.apply(&net("prod", "fra1", "shop")).exits(2).says("waits for approval");
    bob.berth(&["approve", "civovpc/net", "--env", "prod", "--yes"]).ok();
    bob.berth(&["wait", "civovpc/net", "--env", "prod"]).ok();

    let cluster = "apiVersion: civo.berth.dev/v1\nkind: CivoKubernetesCluster\nmetadata: {name: shop, env: prod}\nspec:\n  \
                   clusterName: shop\n  region: fra1\n  kubernetesVersion: 1.30.5-k3s1\n  network: {valueFrom: {name: net}}\n  \
                   defaultNodePool: {size: g4s.kube.medium, nodeCount: 1}\n  additionalNodePools:\n    - {name: batch, size: \
                   g4s.kube.large, nodeCount: 1}\n";
    alice.apply(cluster).exits(2).says("CivoKubernetesCluster/shop waits for approval");
    plane.faults(&["POST /v2/kubernetes/clusters/*/pools delay=60s"]);
    bob.berth(&["approve", "civokubernetescluster/shop", "--env", "prod", "--yes"]).ok();
    let until = std::time::Instant::now() + LONGEST;
    while plane.objects("civo.cluster").is_empty() {
        assert!(std::time::Instant::now() < until, "the cluster is not made: {}", plane.told());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    plane.workers[0].kill();
    plane.faults(&[]);
    plane.workers[0].start_again();
    plane
        .until("Ready without a second approval", LONGEST, |all| {
            assert!(all.iter().all(|r| r.state != "AwaitingApproval"), "it waits a second time");
            all.iter().all(|r| r.state == "Ready")
        })
        .await;
    assert_eq!(plane.made("civo.cluster"), 1);
    let get = pb::GetRequest {
        kind: "CivoKubernetesCluster".into(),
        name: "shop".into(),
        env: "prod".into(),
        ..Default::default()
    };
    let plan = plane.client(0).await.resources().get_plan(get).await.unwrap().into_inner();
    assert_eq!(plan.approved_by, "token:bob");
    let tasks = plane.tasks(pb::ListTasksRequest { kind: "CivoKubernetesCluster".into(), ..Default::default() }).await;
    assert!(tasks.iter().any(|task| task.attempts > 1 || tasks.len() > 2), "the work was cut short: {tasks:?}");
}

/// Split as a shell does, where nothing is quoted.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().skip(1).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_printed_by_guards_work_for_those_they_are_for() {
    let plane = Plane::start(Setup::default()).await;
    let root = Person::new(&plane, "root", "admin").await;
    let alice = Person::new(&plane, "alice", "operator").await;
    let bob = Person::new(&plane, "bob", "operator").await;
    root.apply(&format!("{PROTECTED}---\n{POLICIES}")).ok();

    let denied = alice.apply(&net("dev", "lon1", "shop")).exits(1).says("denied by policy no-london");
    alice.berth(&words(&after(&denied.text(), "to see the policies:"))).ok().says_all(&["no-london", "owned"]);
    // What is stored all the same is blocked, and says so.
    plane.apply(&net("dev", "lon1", "shop")).await;
    let blocked = alice.berth(&["wait", "civovpc/net", "--env", "dev"]).exits(1).says_all(&["is blocked", "no-london"]);
    alice.berth(&words(&after(&blocked.text(), "plan and history:"))).ok().says_all(&["Blocked", "CivoVpc/net"]);

    // Whoever applied is told whom to ask; that one can type it, and the other can wait.
    let waits =
        alice.apply(&net("prod", "fra1", "shop")).exits(2).says("CivoVpc/net waits for approval by someone else");
    let approve = format!("{} --yes", after(&waits.text(), "someone else approves it with:"));
    alice.berth(&words(&approve)).exits(1).says("somebody else must approve it");
    let approved = bob.berth(&words(&approve)).ok().says("is approved");
    bob.berth(&words(&after(&approved.text(), "to follow it:"))).ok();
    alice.berth(&words(&after(&waits.text(), "to wait until then:"))).ok();
    assert_eq!(plane.names("civo.network"), ["shop"]);

    // Out of time: the server goes on, and it can be followed or stopped.
    plane.faults(&["POST /v2/networks delay=5s"]);
    let slow = |name: &str| {
        let text = net("dev", "fra1", name).replace("name: net,", &format!("name: {name},"));
        std::fs::write(alice.folder.join("slow.yaml"), text).unwrap();
        alice.berth(&["apply", "-f", "slow.yaml", "--yes", "--timeout", "1s"]).exits(1).says("the server goes on with")
    };
    root.berth(&["delete", "civovpc/net", "--env", "dev", "--yes"]).ok();
    alice.berth(&words(&after(&slow("two").text(), "to follow it:"))).ok();
    alice.berth(&words(&after(&slow("one").text(), "to stop it:"))).ok().says("stops after the call in flight");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_apply_again_says_that_it_waits() {
    let plane = Plane::start(Setup::default()).await;
    let root = Person::new(&plane, "root", "admin").await;
    let alice = Person::new(&plane, "alice", "operator").await;
    let bob = Person::new(&plane, "bob", "operator").await;
    root.apply(PROTECTED).ok();
    let told = ["waits for approval by someone else", "berth approve CivoVpc/net --env prod"];
    alice.apply(&net("prod", "fra1", "shop")).exits(2).says_all(&told);
    let started = std::time::Instant::now();
    alice.apply(&net("prod", "fra1", "shop")).exits(2).says_all(&told);
    alice.berth(&["apply", "civovpc/net", "--env", "prod", "--yes"]).exits(2).says_all(&told);
    assert!(started.elapsed() < LONGEST / 2, "at once, not {:?}", started.elapsed());

    // Whoever says so stays until it was approved and carried out.
    let stays = std::thread::spawn(move || {
        alice
            .berth(&["apply", "-f", "given.yaml", "--yes", "--wait"])
            .ok()
            .says_all(&["waits for approval", "1 resource Ready"]);
        alice
    });
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(!stays.is_finished(), "it stays");
    bob.berth(&["approve", "civovpc/net", "--env", "prod", "--yes"]).ok();
    let alice = stays.join().unwrap();
    assert_eq!(plane.names("civo.network"), ["shop"]);

    // A deletion likewise.
    let delete = ["delete", "civovpc/net", "--env", "prod", "--yes", "--allow-delete"];
    alice.berth(&delete).exits(2).says_all(&told);
    let again = alice.berth(&delete).exits(2).says_all(&told);
    assert!(!again.text().contains("needs --allow-delete"), "it was given: {}", again.text());
    bob.berth(&["approve", "civovpc/net", "--env", "prod", "--yes"]).ok();
    alice.berth(&words(&after(&again.text(), "to wait until then:"))).ok();

    // Once nothing is protected any more, the same apply goes on.
    alice.apply(&net("prod", "fra1", "store")).exits(2).says_all(&told);
    root.apply(&PROTECTED.replace("true", "false")).ok();
    alice.apply(&net("prod", "fra1", "store")).ok();
    assert_eq!(plane.names("civo.network"), ["store"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_would_be_refused_says_so() {
    let plane = Plane::start(Setup::default()).await;
    let root = Person::new(&plane, "root", "admin").await;
    root.apply(POLICIES).ok();
    let plan = |text: &str| {
        std::fs::write(root.folder.join("planned.yaml"), text).unwrap();
        root.berth(&["plan", "-f", "planned.yaml", "--out", "it.plan"])
    };
    let denied =
        plan(&net("dev", "lon1", "shop")).exits(1).says_all(&["denied by policy no-london", "apply would refuse this"]);
    assert!(!denied.text().contains("berth apply"), "{}", denied.text());
    plan(&net("dev", "fra1", "shop")).ok().says_all(&["warning by policy owned", "berth apply it.plan"]);

    let kept = |region: &str| {
        let text = net("dev", region, "shop");
        text.replace("env: dev}", "env: dev, annotations: {berth.dev/protect: \"true\"}}")
    };
    root.apply(&kept("fra1")).ok();
    let refused = plan(&kept("nyc1"))
        .exits(1)
        .says_all(&["CivoVpc/net is protected: it may not be replaced", "berth.dev/protect"]);
    assert!(!refused.text().contains("berth apply"), "{}", refused.text());
}

/// A task is of one resource: what others live in cannot be replaced under them. The plan says so, and what helps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_says_no_where_a_server_cannot_do_it() {
    let plane = Plane::start(Setup::default()).await;
    let root = Person::new(&plane, "root", "admin").await;
    let both = |region: &str| {
        format!(
            "{}---\napiVersion: civo.berth.dev/v1\nkind: CivoKubernetesCluster\nmetadata: {{name: shop, env: dev}}\nspec:\n  \
             clusterName: shop\n  region: {region}\n  kubernetesVersion: 1.30.5-k3s1\n  network: {{valueFrom: {{name: \
             net}}}}\n  defaultNodePool: {{size: g4s.kube.medium, nodeCount: 1}}\n",
            net("dev", region, "shop")
        )
    };
    root.apply(&both("fra1")).ok();
    std::fs::write(root.folder.join("given.yaml"), both("nyc1")).unwrap();
    let no = ["CivoVpc/net cannot be replaced while CivoKubernetesCluster/shop uses it"];
    let refused = root.berth(&["plan", "-f", "given.yaml"]).exits(1).says_all(&no);
    root.berth(&["apply", "-f", "given.yaml", "--yes", "--allow-replace"]).exits(1).says_all(&no);
    assert_eq!(plane.names("civo.cluster"), ["shop"], "nothing was changed");
    let cure = format!("{} --yes --allow-delete", after(&refused.text(), "before all of it is applied again:"));
    root.berth(&words(&cure)).ok();
    root.berth(&["apply", "-f", "given.yaml", "--yes"]).ok();
    assert_eq!(plane.objects("civo.cluster")[0]["region"], "NYC1", "{:?}", plane.objects("civo.cluster"));
}
