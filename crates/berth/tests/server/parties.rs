//! Workers and servers that do not fit together: of another version, or simulated where the other is real.

use crate::harness::*;
use crate::support::process::Process;
use crate::support::server::Server;
use crate::watch::Terminal;
use berth_server::pb;
use berth_server::worker::PROTOCOL;

const NETWORK: &str =
    "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {name: net}\nspec: {networkName: net, region: fra1}\n";

/// What it has said when it ends by itself.
fn until_ended(process: &mut Process) -> String {
    process.until_ended();
    process.log()
}

/// No task of a simulated server reaches a worker with real credentials, nor the other way round; a worker of its like
/// works on the server's own clouds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_simulated_server_and_a_real_worker_never_work_together() {
    let mut simulated = Plane::start(Setup { workers: 0, sandbox: true, ..Setup::default() }).await;
    simulated.worker_token().await;
    simulated.apply(NETWORK).await;
    simulated.add_worker("real", &[]);
    let said = until_ended(&mut simulated.workers[0]);
    assert!(said.contains("this server works on simulated clouds") && said.contains("--sandbox"), "{said}");
    assert!(simulated.names("civo.network").is_empty(), "the worker's own cloud has something in it");
    simulated.add_worker("simulated", &["--sandbox"]);
    simulated.until_ready().await;
    assert!(simulated.names("civo.network").is_empty(), "it was made in the worker's own cloud");

    let mut real = Plane::start(Setup { workers: 0, ..Setup::default() }).await;
    real.worker_token().await;
    real.apply(NETWORK).await;
    real.add_worker("simulated", &["--sandbox"]);
    let said = until_ended(&mut real.workers[0]);
    assert!(said.contains("this server works on real clouds") && said.contains("without --sandbox"), "{said}");
    assert_eq!(real.list(0).await.unwrap()[0].state, "Pending");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_from_before_the_protocol_had_a_number_is_told_to_upgrade() {
    let plane = Plane::start(Setup { workers: 0, ..Setup::default() }).await;
    plane.worker_token().await;
    plane.apply(NETWORK).await;
    let client = plane.client_as(&std::fs::read_to_string(plane.folder.path().join("worker.token")).unwrap()).await;
    let recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p".to_owned();
    let old = pb::LeaseRequest { worker: "old".into(), changes: 1, recipient, wait_seconds: 1, ..Default::default() };
    let status = client.worker().lease(old.clone()).await.unwrap_err();
    let fault = client.fault(&status);
    // What a worker of any version ends on, with what it prints.
    assert_eq!(fault.code, berth_server::Code::InvalidArgument);
    assert!(fault.message.contains("older version") && fault.help[0].contains("upgrade the worker"), "{fault:?}");
    let new = pb::LeaseRequest { protocol: PROTOCOL, ..old };
    let answer = client.worker().lease(new).await.unwrap().into_inner();
    assert_eq!((answer.protocol, answer.tasks.len(), answer.simulated), (PROTOCOL, 1, None));
}

const CLUSTER: &str = "CivoKubernetesCluster/dev";
const DEV: &str = include_str!("../../../../examples/civo/dev.yaml");

/// A state of simulated clouds is not a real server's, nor the other way round, once something was made in them.
#[test]
fn a_state_is_of_simulated_clouds_or_of_real_ones() {
    let server = Server::start(&[]);
    let user = server.admin();
    user.write("dev.yaml", DEV);
    user.berth(&["apply", "-f", "dev.yaml", "--yes"]).ok();
    let folder = server.stop();
    Server::refused_in(&folder, &[]).exits(1).says("made in simulated clouds").says("start it with --sandbox");
    // As the version before left it: what it is of shows by what lies beside it.
    let clouds = "DELETE FROM meta WHERE name = 'clouds'";
    assert_eq!(sql(&folder.path().join("berth-server/state.db"), clouds), 1);
    Server::refused_in(&folder, &[]).exits(1).says("made in simulated clouds");
    drop(Server::start_in(folder, &[]));
}

fn sql(file: &std::path::Path, text: &'static str) -> u64 {
    use sqlx::{ConnectOptions, Executor};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
        let mut connection = options.connect().await.expect("the file opens");
        connection.execute(text).await.expect("it runs").rows_affected()
    })
}

#[test]
fn what_is_simulated_says_so_and_its_contexts_replace_no_others() {
    let server = Server::start(&[]);
    let user = server.admin();
    user.write("dev.yaml", DEV);
    Terminal::start(&user, &["apply", "-f", "dev.yaml"]).shows("sandbox: ");
    user.berth(&["apply", "-f", "dev.yaml", "--yes"]).ok();
    for args in [
        &["get"][..],
        &["get", "-o", "wide"],
        &["describe", CLUSTER],
        &["tasks"],
        &["events"],
        &["workers"],
        &["doctor"],
    ] {
        user.berth(args).ok().says("sandbox");
    }
    assert_eq!(user.berth(&["get", CLUSTER, "-o", "json"]).ok().json()["status"]["sandbox"], true);
    for list in ["tasks", "events", "workers"] {
        let all = user.berth(&[list, "-o", "json"]).ok().json();
        assert!(
            all.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(|one| one["sandbox"] == true)),
            "{all}"
        );
    }

    // A real cluster's context of the name that this one would have had.
    let real = "apiVersion: v1\nkind: Config\nclusters:\n- name: dev-dev\n  cluster: {server: \"https://real:6443\"}\n\
                users:\n- name: dev-dev\n  user: {token: real}\ncontexts:\n- name: dev-dev\n  \
                context: {cluster: dev-dev, user: dev-dev}\ncurrent-context: dev-dev\n";
    user.write(".kube/config", real);
    let config = || std::fs::read_to_string(user.path().join(".kube/config")).unwrap();
    user.berth(&["kubeconfig", CLUSTER, "--merge", "--context", "dev-dev", "--force"])
        .exits(1)
        .says("begins with `sandbox-`")
        .says("--context sandbox-dev-dev");
    assert_eq!(config(), real);
    user.berth(&["kubeconfig", CLUSTER, "--merge"]).ok().says("context sandbox-dev-dev is in");
    let merged = config();
    assert!(merged.contains("https://real:6443") && merged.contains("current-context: sandbox-dev-dev"), "{merged}");
    // Another server's cluster of the same name, simulated or not, is another cluster.
    let other = Server::start(&[]);
    let stranger = other.admin();
    stranger.write("dev.yaml", DEV);
    stranger.berth(&["apply", "-f", "dev.yaml", "--yes"]).ok();
    let shared = user.path().join(".kube/config").display().to_string();
    let merge = ["kubeconfig", CLUSTER, "--merge", "--kubeconfig", &shared];
    stranger.berth(&merge).exits(1).says("of another cluster").says("--force");
    assert_eq!(config(), merged);
    stranger.berth(&[&merge[..], &["--context", "sandbox-theirs"]].concat()).ok();

    // Deleting takes out what was written for it, wherever that was, and nothing else.
    user.berth(&["kubeconfig", CLUSTER, "--merge", "--kubeconfig", "other"]).ok();
    user.berth(&["delete", "-f", "dev.yaml", "--yes", "--allow-delete"])
        .ok()
        .says("context sandbox-dev-dev is taken out");
    let left = config();
    assert!(
        left.contains("https://real:6443") && left.contains("sandbox-theirs") && !left.contains("sandbox-dev-dev"),
        "{left}"
    );
    assert!(!std::fs::read_to_string(user.path().join("other")).unwrap().contains("sandbox-dev-dev"));
    stranger.berth(&["delete", "-f", "dev.yaml", "--yes", "--allow-delete"]).ok().says("context sandbox-theirs");
    assert!(!config().contains("sandbox-"), "{}", config());
}
