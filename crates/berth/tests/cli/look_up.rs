//! Commands that answer from what is known, and the help of all commands.

use crate::shop::{CLUSTER, FIREWALL, NET, POOL, shop};
use crate::shows;
use crate::support::folder::Folder;
use crate::support::ran;
use std::process::Stdio;

macro_rules! answers {
    ($($test:ident: $args:expr;)*) => {$(
        #[test]
        fn $test() {
            shows!(stringify!($test), shop().berth(&$args).ok());
        }
    )*};
}

answers! {
    validate_good: ["validate", "-f", "shop/"];
    validate_good_json: ["validate", "-f", "shop/", "-o", "json"];
    kinds: ["kinds"];
    kinds_wide: ["kinds", "-o", "wide"];
    kinds_names: ["kinds", "--provider", "civo", "-o", "name"];
    kinds_yaml: ["kinds", "--provider", "digitalocean", "-o", "yaml"];
    explain_kind: ["explain", "CivoKubernetesCluster"];
    explain_field: ["explain", "civokubernetesclusters.defaultNodePool"];
    explain_leaf: ["explain", "CivoKubernetesCluster.network"];
    explain_json: ["explain", "CivoVpc", "-o", "json"];
    schema_kind: ["schema", "CivoVpc"];
    graph_text: ["graph", "-f", "shop/"];
    graph_dot: ["graph", "-f", "shop/", "--format", "dot"];
    graph_mermaid: ["graph", "-f", "shop/", "--format", "mermaid"];
    graph_svg: ["graph", "-f", "shop/", "--format", "svg"];
    graph_around: ["graph", "-f", "shop/", "civofirewall/shop-fw"];
    init_default: ["init"];
    init_prod: ["init", "CivoKubernetesCluster", "--template", "prod"];
    init_digitalocean: ["init", "DigitalOceanKubernetesCluster"];
}

#[test]
fn unknown_names_get_a_hint() {
    let project = shop();
    for (name, args) in [
        ("unknown_explain_kind", &["explain", "CivoKubernetsCluster"][..]),
        ("unknown_explain_field", &["explain", "CivoKubernetesCluster.defaultNodePol"]),
        ("unknown_schema_kind", &["schema", "banana"]),
        ("unknown_init_kind", &["init", "CivoVcp"]),
        ("unknown_graph_address", &["graph", "-f", "shop/", "CivoVpc/nobody"]),
        ("unknown_provider", &["kinds", "--provider", "aws"]),
        ("unknown_command", &["aply"]),
        ("no_file", &["validate"]),
    ] {
        shows!(name, project.berth(args).exits(1));
    }
}

/// The commands that a help text lists.
fn listed(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let lines = lines.take_while(|line| line.starts_with("  "));
    lines.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).filter(|name| name != "help").collect()
}

fn flags(text: &str) -> Vec<String> {
    let flag = regex::Regex::new("--[a-z][a-z-]+[a-z]").unwrap();
    flag.find_iter(text).map(|found| found.as_str().to_owned()).collect()
}

fn sources(folder: &std::path::Path, into: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.extension().and_then(std::ffi::OsStr::to_str) {
            _ if entry.is_dir() => sources(&entry, into),
            Some("rs" | "md" | "service") => into.push(entry),
            _ => {}
        }
    }
}

/// What documents and the server's messages tell people to type can be typed.
#[test]
fn every_flag_that_is_named_is_there() {
    // Of kubectl, of curl, of cargo, and of our own tools.
    const OTHERS: &str = "--from-file --from-literal --set --down --api-url --data-binary --fail --silent --cacert --release --bin --replicas --only --endpoint-url";
    let project = Folder::new();
    let mut known: std::collections::HashSet<String> = OTHERS.split(' ').map(str::to_owned).collect();
    for command in listed(&project.berth(&["--help"]).ok().stdout) {
        let help = project.berth(&[&command, "--help"]).ok().stdout;
        for inner in listed(&help) {
            known.extend(flags(&project.berth(&[&command, &inner, "--help"]).ok().stdout));
        }
        known.extend(flags(&help));
    }
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md"), root.join("ARCHITECTURE.md")];
    files.extend(
        ["quickstart", "operations", "guardrails", "manifests", "sandbox", "troubleshooting"]
            .map(|name| root.join(format!("docs/{name}.md"))),
    );
    for folder in ["deploy/systemd", "crates/server/src"] {
        sources(&root.join(folder), &mut files);
    }
    let mut wrong = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        wrong.extend(flags(&text).into_iter().filter(|flag| !known.contains(flag)).map(|flag| (file.clone(), flag)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_help_begins_with_two_examples() {
    let project = Folder::new();
    let root = project.berth(&["--help"]).ok();
    shows!("help", root);
    let commands = listed(&root.stdout);
    assert!(commands.len() >= 10, "{commands:?}");
    for command in &commands {
        let run = project.berth(&[command, "--help"]).ok();
        assert_eq!(project.berth(&["help", command]).ok().stdout, run.stdout);
        let lines: Vec<&str> = run.stdout.lines().take(4).collect();
        let example = |line: &&str| line.starts_with("  ") && line.contains("berth");
        assert!(lines[0] == "Examples:" && lines[1..3].iter().all(example) && lines[3].is_empty(), "{run}");
        shows!(format!("help_{command}"), run);
    }
}

#[test]
fn stdin_and_many_documents_are_read() {
    let all = format!("{NET}---\n{FIREWALL}---\n{CLUSTER}---\n{POOL}");
    let run = Folder::new().berth_with_input(&["validate", "-f", "-", "-o", "name"], all.as_bytes()).ok();
    assert_eq!(run.stdout.lines().count(), 4, "{run}");
    assert!(run.stdout.contains("CivoKubernetesCluster/shop\n"));
}

#[test]
fn other_api_groups_and_json_are_read() {
    let json = r#"{"apiVersion":"civo.openmcf.org/v1","kind":"CivoVpc","metadata":{"name":"a"},"spec":{"network_name":"a","region":"lon1"}}"#;
    let project = Folder::with(&[("a.json", json)]);
    project.berth(&["validate", "-f", "a.json"]).ok();
}

#[test]
fn starters_are_valid_and_never_overwrite() {
    let project = Folder::new();
    for template in ["dev", "staging", "prod"] {
        let file = format!("{template}/cluster.yaml");
        project.berth(&["init", "--template", template, "--out", &file]).ok();
        project.berth(&["validate", "-f", &file]).ok();
    }
    project.write("mine.yaml", "precious");
    let refused = project.berth(&["init", "--out", "mine.yaml"]).exits(1);
    assert_eq!(project.read("mine.yaml"), "precious");
    shows!("init_refuses", refused);
    project.berth(&["init", "--out", "mine.yaml", "--force"]).ok();
    project.berth(&["validate", "-f", "mine.yaml"]).ok();
    let kinds = project.berth(&["kinds", "-o", "name"]).ok().stdout;
    for kind in kinds.lines() {
        let file = format!("kinds/{kind}.yaml");
        project.berth(&["init", kind, "--out", &file]).ok();
        assert!(project.read(&file).contains(&format!("kind: {kind}")));
    }
}

#[test]
fn schemas_of_all_kinds_are_json() {
    let project = Folder::new();
    let run = project.berth(&["schema", "--all"]).ok();
    let schema: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert!(schema.is_object());
    for kind in project.berth(&["kinds", "-o", "name"]).ok().stdout.lines() {
        assert!(run.stdout.contains(&format!("\"{kind}\"")), "{kind}");
    }
}

#[test]
fn manual_pages_and_completions_cover_every_command() {
    let project = Folder::new();
    project.berth(&["man", "--dir", "man1"]).ok();
    let page = project.read("man1/berth-validate.1");
    assert!(page.contains(".SH EXAMPLES") && page.contains("berth validate \\-f shop/"), "{page}");
    assert!(project.read("man1/berth.1").contains("berth\\-sandbox(1)"));
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let run = project.berth(&["completion", shell]).ok();
        assert!(run.stdout.contains("validate") && run.stdout.contains("doctor"), "{shell}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let project = shop();
    let mut child =
        project.command(&["schema", "--all"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn colour_only_when_asked_for() {
    let project = Folder::with(&[("bad.yaml", "kind: CivoVpc\n")]);
    let run = |env: &[(&str, &str)], args: &[&str]| {
        let mut command = project.command(args);
        ran::run(command.envs(env.iter().copied())).exits(1).stderr.contains('\u{1b}')
    };
    let args = &["validate", "-f", "bad.yaml"];
    assert!(!run(&[], args));
    assert!(run(&[("CLICOLOR_FORCE", "1")], args));
    assert!(!run(&[("CLICOLOR_FORCE", "1")], &["validate", "-f", "bad.yaml", "--no-color"]));
}
