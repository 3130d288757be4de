//! The situations in which commands are printed, and the commands typed as they are printed: by a shell, in the same folder.

use crate::quickstart::{said, shell};
use crate::support::folder::Folder;
use crate::support::ran::start;
use crate::support::server::Server;
use crate::support::until;
use berth_sandbox::{Config, Sandbox, Speed};
use serde_json::json;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const NET: &str = "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {name: net, env: dev}\nspec: {networkName: net, region: fra1}\n";
const CLUSTER: &str = "apiVersion: civo.berth.dev/v1\nkind: CivoKubernetesCluster\nmetadata: {name: shop, env: dev}\nspec:\n  \
     clusterName: shop\n  region: fra1\n  kubernetesVersion: 1.30.5-k3s1\n  network: {valueFrom: {name: net}}\n  \
     defaultNodePool: {size: g4s.kube.medium, nodeCount: 1}\n";
const POOL: &str = "apiVersion: civo.berth.dev/v1\nkind: CivoKubernetesNodePool\nmetadata: {name: batch, env: dev}\nspec: {nodePoolName: \
     batch, cluster: {valueFrom: {name: shop}}, size: g4s.kube.large, nodeCount: 1}\n";

/// The command behind these words, to the end of its line.
#[track_caller]
pub fn after(text: &str, words: &str) -> String {
    let line = text.lines().find(|line| line.contains(words) && line.contains("berth "));
    let line = line.unwrap_or_else(|| panic!("nothing says `{words}`:\n{text}"));
    let rest = &line[line.find(words).unwrap_or(0) + words.len()..];
    rest[rest.find("berth ").unwrap_or_else(|| panic!("no command behind `{words}`: {line}"))..].trim().to_owned()
}

/// A folder, the clouds of its environment, and a shell in it.
struct Here {
    folder: TempDir,
    env: Vec<(&'static str, String)>,
}

impl Here {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), env: Vec::new() }
    }

    fn with(sandbox: &Sandbox) -> Self {
        let env = vec![("CIVO_API_URL", sandbox.url(berth_sandbox::civo::NAME)), ("CIVO_TOKEN", "any".to_owned())];
        Self { env, ..Self::new() }
    }

    /// The same, logged in to a server.
    fn at(user: &Folder) -> Self {
        Self { env: vec![("BERTH_CONFIG", user.config().display().to_string())], ..Self::new() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    fn command(&self, line: &str) -> Command {
        let mut command = shell(self.path(), line);
        command.envs(self.env.iter().map(|(name, value)| (*name, value)));
        command
    }

    /// What it says, whatever it exits with.
    fn says(&self, line: &str) -> String {
        said(&self.command(line).output().unwrap())
    }

    #[track_caller]
    fn ends(&self, line: &str, code: i32) -> String {
        let output = self.command(line).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{line}\n{}", said(&output));
        said(&output)
    }

    #[track_caller]
    fn works(&self, line: &str) -> String {
        self.ends(line, 0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_printed_on_a_laptop_work_there() {
    let sandbox = Sandbox::start(Config { speed: Speed::Instant, ..Config::default() }).await.unwrap();
    let here = Here::with(&sandbox);
    let work = tokio::task::spawn_blocking(move || {
        // Names that are not known.
        here.works(&after(&here.says("berth get qqqqqqqqqq"), "to see all of them:"));
        std::fs::create_dir(here.path().join("empty")).unwrap();
        let begin = after(&here.says("berth validate -f empty"), "to write a first one:");
        here.works(&after(&here.works(&begin), "to check it:"));
        here.works(&after(&here.says("berth init CivoVpc --template prod"), "without a template:"));
        here.write("net.yaml", NET);
        here.write("cluster.yaml", CLUSTER);
        here.write("pool.yaml", POOL);
        here.works(&after(&here.says("berth validate -f pool.yaml"), "to begin one:"));
        std::fs::create_dir(here.path().join("nets")).unwrap();
        here.write("nets/net.yaml", NET);
        here.works(&format!("{} --yes", after(&here.says("berth apply nets"), "to apply manifests:")));
        here.works("berth apply -f cluster.yaml -f pool.yaml --yes");
        assert!(here.works(&after(&here.says("berth describe civovpc"), "to see which there are:")).contains("net"));
        here.works(&after(&here.says("berth graph civovpc/nothing"), "to see all:"));
        // What has a kubeconfig, and what does not.
        assert!(here.works(&after(&here.says("berth kubeconfig civovpc/net"), "to see them:")).contains("shop"));
        let of_pool = after(&here.says("berth kubeconfig civokubernetesnodepool/batch"), "help: ");
        assert!(here.works(&of_pool).contains("apiVersion: v1"));
        let secret = here.says("berth outputs civokubernetescluster/shop kubeconfig_b64");
        assert!(here.works(&after(&secret, "ready to use:")).contains("apiVersion: v1"));
        let staying = here.says("berth wait civokubernetesnodepool/batch --for deleted");
        here.works(&format!("{} --yes --allow-delete", after(&staying, "to delete it:")));
    });
    work.await.unwrap();
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_printed_about_what_changed_outside_work() {
    let sandbox = Sandbox::start(Config { speed: Speed::Instant, ..Config::default() }).await.unwrap();
    let here = Here::with(&sandbox);
    let url = sandbox.url(berth_sandbox::civo::NAME);
    let work = tokio::task::spawn_blocking(move || {
        let civo = |method: &str, path: &str, body: serde_json::Value| {
            let line = format!(
                "curl --fail --silent -X {method} -H 'Authorization: Bearer any' -H 'Content-Type: application/json' \
                 -d '{body}' '{url}/v2/{path}?region=FRA1'"
            );
            serde_json::from_str::<serde_json::Value>(&here.works(&line)).unwrap_or_default()
        };
        here.write("all.yaml", &format!("{NET}---\n{CLUSTER}"));
        here.works("berth apply -f all.yaml --yes");
        let id = here.works("berth outputs civokubernetescluster/shop cluster_id").trim().to_owned();
        let pool = civo("GET", &format!("kubernetes/clusters/{id}"), json!({}))["pools"][0]["id"].clone();
        let scale = |count: u32| {
            let path = format!("kubernetes/clusters/{id}/pools/{}", pool.as_str().unwrap());
            civo("PUT", &path, json!({"count": count, "region": "FRA1"}));
        };
        scale(2);
        here.works(&format!("{} --yes", after(&here.ends("berth drift", 2), "put back what is declared:")));
        scale(3);
        here.works(&after(&here.ends("berth drift", 2), "keep what was found:"));
        here.works("berth plan -f all.yaml --detailed-exitcode");
        // The manifests are elsewhere: what cannot be kept can be put back.
        scale(2);
        std::fs::rename(here.path().join("all.yaml"), here.path().join("kept")).unwrap();
        let refused = here.ends("berth drift --accept", 2);
        here.works(&format!("{} --yes", after(&refused, "put it back:")));
        std::fs::rename(here.path().join("kept"), here.path().join("all.yaml")).unwrap();

        // Gone: made again, or forgotten.
        civo("DELETE", &format!("kubernetes/clusters/{id}"), json!({}));
        let refreshed = here.says("berth refresh");
        let drift = here.ends("berth drift", 2);
        let accepted = here.ends("berth drift --accept", 2);
        let waits = here.ends("berth wait civokubernetescluster/shop", 1);
        here.ends(&after(&waits, "to look:"), 2);
        here.works(&format!("{} --yes", after(&waits, "to carry it out:")));
        // The same commands are printed by the others.
        assert_eq!(after(&refreshed, "make it again:"), after(&waits, "to carry it out:"));
        assert_eq!(after(&drift, "put back what is declared:"), after(&waits, "to carry it out:"));
        assert_eq!(after(&accepted, "make it again:"), after(&waits, "to carry it out:"));
        assert_eq!(after(&accepted, "out of the manifests, and:"), after(&drift, "or forget it:"));
        here.works(&format!("{} --yes --allow-delete", after(&drift, "or forget it:")));

        // A name that is taken: by something else, and by what is managed under another name.
        civo("POST", "networks", json!({"label": "old", "region": "FRA1"}));
        here.write(
            "old.yaml",
            &NET.replace("name: net,", "name: mine,").replace("networkName: net", "networkName: old"),
        );
        let taken = here.ends("berth apply -f old.yaml --yes", 1);
        assert!(taken.contains("not managed by Berth"), "{taken}");
        here.works(&after(&taken, "to adopt it:"));
        here.works("berth plan -f old.yaml --detailed-exitcode");
        here.write("other.yaml", &NET.replace("name: net,", "name: second,"));
        let managed = here.ends("berth plan -f other.yaml", 1);
        assert!(managed.contains("which Berth manages already as CivoVpc/net"), "{managed}");
        assert!(!managed.contains("berth import"), "{managed}");
        assert!(here.works(&after(&managed, "to look at it:")).contains("CivoVpc/net"));
    });
    work.await.unwrap();
    sandbox.stop().await;
}

/// With `--sandbox` and `--state`, what is printed has them too.
#[test]
fn commands_printed_about_simulated_clouds_work() {
    let here = Here::new();
    here.write("net.yaml", NET);
    here.write("cluster.yaml", CLUSTER);
    let free = "--civo 127.0.0.1:0 --digitalocean 127.0.0.1:0 --aws 127.0.0.1:0 --kube 127.0.0.1:0";
    let planned = here.works("berth plan -f net.yaml --sandbox --speed max --out net.plan");
    here.works(&after(&planned, "to carry out exactly this:"));
    let missing = here.ends("berth describe civovpc/nothing --sandbox", 1);
    assert!(here.works(&after(&missing, "to see what is:")).contains("net"));
    let missing = here.ends("berth describe civovpc/nothing --state .berth/sandbox-state.db", 1);
    assert!(here.works(&after(&missing, "to see what is:")).contains("net"));

    let scratch = here.works("berth apply -f net.yaml -f cluster.yaml --sandbox --speed max --yes");
    let merge = after(&scratch, "to use it:");
    let alone = here.works(&merge);
    here.works("berth delete -f cluster.yaml --sandbox --speed max --yes --allow-delete");
    here.works(&format!("{} --speed 60 {free}", after(&alone, "to start one")));
    let again = here.says(&format!("berth sandbox --background {free}"));
    // What is being made, and what is not there yet.
    let begun = here.works("berth apply -f net.yaml -f cluster.yaml --sandbox --no-wait --yes");
    let early = here.ends("berth kubeconfig civokubernetescluster/shop --sandbox", 1);
    let unknown = here.ends("berth outputs civokubernetescluster/shop api_server_endpoint --sandbox", 1);
    assert_eq!(after(&early, "to wait for it:"), after(&unknown, "to wait for it:"));
    here.works(&after(&early, "to wait for it:"));
    here.works(&after(&begun, "to wait for them:"));
    let applied = here.works("berth apply -f net.yaml -f cluster.yaml --sandbox --yes");
    assert!(applied.contains("nothing to do"), "{applied}");
    here.write("more.yaml", &CLUSTER.replace("nodeCount: 1", "nodeCount: 2"));
    let scaled = here.works("berth apply -f more.yaml --sandbox --yes");
    assert_eq!(after(&scaled, "to use it:"), merge);
    here.works(&format!("{merge} --force"));

    // A deletion that was cut short.
    let delete = "exec berth delete civokubernetescluster/shop --sandbox --yes --allow-delete";
    let delete = start(&mut here.command(delete));
    until("the deletion to begin", || here.works("berth get --sandbox").contains("deleting"));
    delete.kill();
    let going = here.ends("berth wait civokubernetescluster/shop --sandbox", 1);
    here.works(&after(&going, "help: "));
    here.works(&after(&again, "to end it:"));
}

#[test]
fn commands_printed_about_keys_work() {
    let server = Server::start(&[]);
    let user = server.admin();
    let here = Here { env: vec![("BERTH_CONFIG", "/nonexistent".into())], ..Here::new() };
    let line = |text: &str| {
        let mut command = shell(server.path(), text);
        let output = command.env("BERTH_CONFIG", user.config().with_file_name("none.yaml")).output().unwrap();
        assert!(output.status.success(), "{text}\n{}", said(&output));
        said(&output)
    };
    let standby = line("berth key new --standby --key-file berth-server/key");
    let used = line(&after(&standby, "on every server:"));
    let rotate = after(&used, "seal the rest with it:");
    assert_eq!(rotate, after(&standby, "seal the rest with it:"));
    let rotated = line(&rotate);
    assert!(rotated.contains("everything is sealed with"), "{rotated}");
    // A laptop's own.
    here.write("net.yaml", NET);
    here.works("berth apply -f net.yaml --sandbox --speed max --yes");
    let only = here.says("berth key retire $(berth key list --sandbox -o name 2>/dev/null || berth key list -o name) --state .berth/sandbox-state.db");
    let made = here.works(&after(&only, "to add another one:"));
    here.works(&format!("{} --state .berth/sandbox-state.db", after(&made, "seal the rest with it:")));
}

#[test]
fn commands_printed_by_a_server_work() {
    let server = Server::start(&[]);
    let user = server.admin();
    let here = Here::at(&user);
    let name = here.works("berth context -o name");
    let name = name.lines().next().unwrap().trim().to_owned();
    // By a context that is named, not the current one.
    let other = Here::at(&user);
    other.works("berth context use --local");
    let at = format!("--context {name}");
    here.write("net.yaml", NET);
    other.write("net.yaml", NET);
    other.works(&format!("berth apply -f net.yaml --yes {at}"));
    let missing = other.ends(&format!("berth describe civovpc/nothing {at}"), 1);
    assert!(other.works(&after(&missing, "to see what is:")).contains("net"));
    let idle = other.ends(&format!("berth tasks cancel civovpc/net --env dev {at}"), 1);
    assert!(other.works(&after(&idle, "to see what was:")).contains("CivoVpc/net"));
    let absent = other.ends(&format!("berth tasks show 0192f3 {at}"), 1);
    let listed = other.works(&after(&absent, "those that there are:"));
    assert!(listed.contains("CivoVpc/net"), "{listed}");
    let task = other.works(&format!("berth tasks -o name {at}"));
    other.works(&format!("berth tasks logs {} {at}", task.lines().next().unwrap().trim()));
    let unused = other.ends(&format!("berth account move nobody --yes {at}"), 1);
    other.works(&after(&unused, "to see the accounts in use:"));
    let revoke = other.ends(&format!("berth token revoke nobody {at}"), 1);
    assert!(other.works(&after(&revoke, "help: ")).contains("admin"));

    // A plan of the embedded engine, while a server is chosen.
    here.works(&format!("berth context use {name}"));
    here.works("berth plan -f net.yaml --sandbox --speed max --out net.plan");
    let elsewhere = here.ends("berth apply net.plan", 1);
    let local = after(&elsewhere, "by the engine:");
    assert!(local.ends_with("--local"), "{local}");
    here.works(&format!("{local} --sandbox"));

    // Logging in and out.
    let login = format!("berth login {} --ca berth-server/ca.pem --token-file berth-server/admin.token", server.url);
    let output = shell(server.path(), &login).env("BERTH_CONFIG", user.config()).output().unwrap();
    here.works(&after(&said(&output), "back to the embedded engine:"));
    here.works(&format!("berth context use {name}"));
    here.works("berth token create second --role admin --out second.token");
    let out = here.works("berth logout");
    let revoke = after(&out, "an admin ends it with:");
    here.works(&format!("berth login {} --token-file second.token", server.url));
    here.works(&revoke);
    drop(server);
    here.works(&after(&here.ends("berth logout", 1), "all the same:"));
}

/// Lines that are for programs go on: they have to be running a while later.
#[test]
fn commands_printed_for_programs_work() {
    let server = Server::start(&[]);
    let user = server.admin();
    let here = Here::at(&user);
    let watch = here.ends("berth watch", 1);
    for words in ["for a log or a program:", "or, for tasks alone:"] {
        let line = after(&watch, words);
        let mut running = start(&mut here.command(&format!("exec {line}")));
        std::thread::sleep(Duration::from_millis(700));
        let ended = running.has_ended();
        let ran = running.kill();
        assert!(!ended, "{line} goes on: {ran}");
    }
}
