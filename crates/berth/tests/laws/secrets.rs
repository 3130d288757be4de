//! Secrets never rest or travel in the clear: planted in a manifest, in the environment, in a stack input and in what the
//! cloud hands out, they are looked for in everything that a command leaves behind, prints, or is started with.

use crate::harness::Project;
use crate::kill_cases::{CIVO, DIGITALOCEAN, net};
use crate::support::KEY;
use crate::support::cloud::Cloud;
use crate::support::ran::{Ran, start};
use crate::support::search::{Search, Secret, kubeconfig_secrets};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use berth_sandbox::{Config, Speed};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const IN_MANIFEST: &str = "PLANTED-in-the-manifest-7e1f90c2b6";
const IN_CIVO_TOKEN: &str = "PLANTED-in-CIVO-TOKEN-44d1a90e77";
const IN_DIGITALOCEAN_TOKEN: &str = "dop_v1_PLANTED-in-the-token-93b8e1";
const IN_STACK_INPUT: &str = "PLANTED-in-the-stack-input-5a5a81";

impl Search {
    #[track_caller]
    fn ran(&self, ran: &Ran) {
        self.text(&format!("the output of `{}`", ran.line), &format!("{}\n{}", ran.stdout, ran.stderr));
    }
}

fn account() -> String {
    format!(
        "apiVersion: byoc.berth.dev/v1\nkind: Account\nmetadata: {{name: main}}\n\
         spec: {{provider: civo, civo: {{token: {{value: {IN_MANIFEST}}}, region: fra1}}}}\n"
    )
}

fn everything() -> String {
    let civo = CIVO.text().replace("spec:\n", "spec:\n  account: {valueFrom: {name: main}}\n");
    let scaled = "  additionalNodePools:\n    \
                  - {name: web, size: g4s.kube.medium, nodeCount: 1, autoScale: true, minNodes: 1, maxNodes: 3}\n";
    let vpc = "apiVersion: digitalocean.berth.dev/v1\nkind: DigitalOceanVpc\nmetadata: {name: do-net}\nspec: {region: fra1}\n";
    [account(), net("net-a", "fra1", ""), civo + scaled, vpc.to_owned(), DIGITALOCEAN.text()].join("---\n")
}

const SHOP: &str = "CivoKubernetesCluster/shop";
const BLOG: &str = "DigitalOceanKubernetesCluster/blog";

/// A project whose commands have the planted tokens in their environment, and whose command lines are watched.
struct Watched {
    project: Project,
    cloud: Cloud,
    search: Search,
}

impl Watched {
    fn start(&self, cloud: &Cloud, args: &[&str]) -> Ran {
        let mut command = self.project.command(cloud, args);
        command.env("CIVO_TOKEN", IN_CIVO_TOKEN).env("DIGITALOCEAN_ACCESS_TOKEN", IN_DIGITALOCEAN_TOKEN);
        let running = start(&mut command);
        let proc = PathBuf::from(format!("/proc/{}/cmdline", running.pid()));
        let ended = AtomicBool::new(false);
        let seen = Mutex::new(Vec::new());
        let ran = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    if let Ok(line) = std::fs::read_to_string(&proc) {
                        let mut seen = seen.lock().expect("lines");
                        if !line.is_empty() && !seen.contains(&line) {
                            seen.push(line);
                        }
                    }
                    self.search.files(self.project.root());
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            let ran = running.finish();
            ended.store(true, Ordering::Relaxed);
            ran
        });
        for line in seen.into_inner().expect("lines") {
            self.search.text("a process's arguments", &line);
        }
        self.search.files(self.project.root());
        ran
    }

    /// Runs a command that must show no secret.
    #[track_caller]
    fn quiet(&self, args: &[&str]) -> Ran {
        let ran = self.start(&self.cloud, args);
        self.search.ran(&ran);
        ran
    }

    /// With the planted secrets in manifests, in the environment, and in the key of the state.
    fn new() -> Self {
        let cloud = Cloud::start(Config { speed: Speed::Times(300.0), ..Config::default() });
        let project = Project::new();
        project.write("all.yaml", &everything());
        let stack = net("from-stack", "fra1", "").replace("name: net}", "name: from-stack}").replace('\n', "\n  ");
        project.write(
            "stack.yaml",
            &format!("target:\n  {stack}\nproviderConfig: {{civo: {{apiToken: {IN_STACK_INPUT}}}}}\n"),
        );
        let planted = [
            ("the manifest's token", IN_MANIFEST),
            ("CIVO_TOKEN", IN_CIVO_TOKEN),
            ("DIGITALOCEAN_ACCESS_TOKEN", IN_DIGITALOCEAN_TOKEN),
            ("the stack input's token", IN_STACK_INPUT),
            ("the state's key", KEY),
        ];
        let secrets = planted.iter().map(|(name, text)| Secret::new(name, text)).collect();
        let written = ["all.yaml", "stack.yaml", "kube.yaml"].map(|name| project.work().join(name));
        Watched { search: Search { secrets, known: written.to_vec() }, project, cloud }
    }

    /// From here on there are kubeconfigs, too.
    fn know_kubeconfigs(&mut self) {
        let cluster = self.cloud.id("civo.cluster", "shop-k8s");
        let path = format!("/v2/kubernetes/clusters/{cluster}?region=FRA1");
        let shown = self.cloud.call(berth_sandbox::civo::NAME, "GET", &path, None);
        self.search.secrets.extend(kubeconfig_secrets(shown["kubeconfig"].as_str().expect("a kubeconfig")));
        let blog = self.cloud.id("digitalocean.cluster", "blog-k8s");
        let path = format!("/v2/kubernetes/clusters/{blog}/kubeconfig");
        let shown = self.cloud.call(berth_sandbox::digitalocean::NAME, "GET", &path, None);
        self.search.secrets.extend(kubeconfig_secrets(shown.as_str().expect("a kubeconfig")));
        assert!(self.search.files(self.project.root()) >= 2, "the state is looked at");
    }

    fn look_at_everything(&self) {
        for format in ["table", "wide", "json", "yaml", "name"] {
            self.quiet(&["get", "-o", format]).ok();
            self.quiet(&["outputs", SHOP, "-o", format]).ok();
            self.quiet(&["outputs", BLOG, "-o", format]).ok();
            self.quiet(&["history", "-o", format]).ok();
            self.quiet(&["drift", "-o", format, "-vv"]).ok();
        }
        for resource in ["Account/main", SHOP, BLOG] {
            self.quiet(&["describe", resource, "-vv"]).ok();
            self.quiet(&["history", resource, "-o", "json"]).ok();
        }
        self.quiet(&["get", "Account", "-o", "yaml"]).ok();
        self.quiet(&["refresh", "-vv"]).ok();
        self.quiet(&["doctor", "-vv"]);
        self.quiet(&["apply", "-f", "all.yaml", "--yes", "-o", "json", "-vv"]).ok();
    }

    /// A token that is refused, a create that is refused, a connection that is cut, a manifest that is wrong.
    fn let_things_go_wrong(&self) {
        let strict = Cloud::start(Config { token: Some("another one".into()), ..Config::default() });
        for args in
            [&["plan", "-f", "all.yaml", "-vv"][..], &["drift", "-vv"], &["apply", "-f", "all.yaml", "--yes", "-vv"]]
        {
            let ran = self.start(&strict, args).exits(1);
            self.search.ran(&ran);
        }
        let another = everything().replace("shop-k8s", "other-k8s").replace("blog-k8s", "other-blog");
        self.project.write("refused.yaml", &another.replace(&account(), "").replace("name: shop}", "name: second}"));
        for fault in ["POST 422", "POST 401", "POST drop-before times=30"] {
            self.cloud.faults(&[fault]);
            let args = ["apply", "-f", "refused.yaml", "--yes", "-vv", "--timeout", "3s", "--state", "other.db"];
            self.quiet(&args).exits(1);
        }
        self.cloud.faults(&[]);
        for (right, wrong) in [
            ("token: {value:", "tokn: {valu:"),
            ("provider: civo,", "provider: cvio,"),
            (IN_MANIFEST, &format!("[{IN_MANIFEST}]")),
            (IN_MANIFEST, &format!("[{IN_MANIFEST}")),
        ] {
            self.project.write("all.yaml", &everything().replace(right, wrong));
            for format in ["table", "json"] {
                self.quiet(&["validate", "-f", "all.yaml", "-o", format]).exits(1);
            }
        }
        self.project.write("all.yaml", &everything());
    }

    /// Asked for, it is given, and only there: to standard output, or to the file named.
    fn ask_for_secrets(&self) {
        for (resource, output) in [(SHOP, "kubeconfig_b64"), (BLOG, "kubeconfig")] {
            let printed = self.start(&self.cloud, &["kubeconfig", resource]).ok();
            let shown = self.start(&self.cloud, &["outputs", resource, "--show-secrets", "-o", "json"]).ok();
            let one = self.start(&self.cloud, &["outputs", resource, output, "--show-secrets"]).ok();
            self.start(&self.cloud, &["kubeconfig", resource, "--out", "kube.yaml"]).ok();
            let written = std::fs::read_to_string(self.project.work().join("kube.yaml")).expect("a kubeconfig");
            for text in [&printed.stdout, &shown.stdout, &one.stdout, &written] {
                let found = self.search.secrets.iter().any(|secret| secret.found_in(text.as_bytes()).is_some());
                assert!(found, "the search does not see what was asked for in\n{text}");
            }
            self.search.text("standard error", &format!("{}{}{}", printed.stderr, shown.stderr, one.stderr));
        }
    }
}

#[test]
fn the_search_finds_what_is_there() {
    let secret = Secret::new("planted", IN_MANIFEST);
    let bytes = IN_MANIFEST.as_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    for before in ["", "a", "ab", "abc"] {
        let text = format!("{before}{IN_MANIFEST}and more");
        for form in [text.clone(), STANDARD_NO_PAD.encode(&text), URL_SAFE_NO_PAD.encode(&text), format!("x{hex}y")] {
            assert!(secret.found_in(form.as_bytes()).is_some(), "{form}");
        }
    }
    assert_eq!(secret.found_in(b"nothing of the kind"), None);
}

#[test]
fn no_secret_is_left_anywhere() {
    let mut watched = Watched::new();
    watched.quiet(&["validate", "-f", "all.yaml", "-vv"]).ok();
    watched.quiet(&["validate", "-f", "all.yaml", "-o", "json"]).ok();
    watched.quiet(&["graph", "-f", "all.yaml"]).ok();
    watched.quiet(&["plan", "-f", "all.yaml", "-vv"]).ok();
    watched.quiet(&["plan", "-f", "all.yaml", "-o", "json"]).ok();
    watched.quiet(&["plan", "-f", "all.yaml", "-o", "yaml", "--out", "saved.plan"]).ok();
    watched.quiet(&["apply", "saved.plan", "-vvv"]).ok();
    watched.quiet(&["apply", "--stack-input", "stack.yaml", "--yes", "-vvv"]).ok();

    watched.know_kubeconfigs();
    watched.look_at_everything();
    watched.let_things_go_wrong();
    watched.ask_for_secrets();
    watched.quiet(&["delete", "-f", "all.yaml", "--yes", "--allow-delete", "-vv"]).ok();
    watched.quiet(&["history", "--limit", "1000", "-o", "json"]).ok();
}
