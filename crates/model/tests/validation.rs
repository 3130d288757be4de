//! Bad manifests and what a user reads about them: position, path and text, exactly.
//!
//! A file in `cases/` has one valid manifest (`base`) and many cases. A case takes text out of it (`-`), puts text in its
//! place (`+`), and lists what is then wrong (`=`). `BERTH_BLESS=1 cargo test -p berth-model --test validation` writes the
//! lists anew; read them as a user would before keeping them.

use berth_model::{Diagnostic, parse};
use std::fmt::Write;
use std::path::{Path, PathBuf};

struct Case {
    name: String,
    /// (old, new)
    edits: Vec<(String, String)>,
    expected: Vec<String>,
}

struct Cases {
    base: String,
    cases: Vec<Case>,
}

fn read(text: &str) -> Cases {
    let mut out = Cases { base: String::new(), cases: Vec::new() };
    let mut in_base = false;
    let mut after_old = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("case ") {
            in_base = false;
            out.cases.push(Case { name: name.to_owned(), edits: Vec::new(), expected: Vec::new() });
            continue;
        }
        if line == "base" {
            in_base = true;
            continue;
        }
        if in_base {
            if let Some(line) = line.strip_prefix("    ") {
                out.base.push_str(line);
                out.base.push('\n');
            }
            continue;
        }
        let Some(case) = out.cases.last_mut() else { continue };
        if let Some(old) = line.strip_prefix("  - ") {
            match case.edits.last_mut() {
                Some((before, _)) if after_old => *before = format!("{before}\n{old}"),
                _ => case.edits.push((old.to_owned(), String::new())),
            }
            after_old = true;
            continue;
        }
        if let Some(new) = line.strip_prefix("  + ") {
            let edit = case.edits.last_mut().expect("`+` follows `-`");
            edit.1 = if after_old { new.to_owned() } else { format!("{}\n{new}", edit.1) };
        } else if let Some(expected) = line.strip_prefix("  = ") {
            case.expected.push(expected.to_owned());
        } else {
            assert!(line.trim().is_empty() || line.starts_with('#'), "not a case: {line}");
        }
        after_old = false;
    }
    out
}

fn told(problem: &Diagnostic) -> String {
    let mut out = String::new();
    match problem.span {
        Some(span) => write!(out, "{}:{}", span.line, span.column).unwrap(),
        None => out.push('-'),
    }
    write!(out, " {}: {}", if problem.path.is_empty() { "document" } else { &problem.path }, problem.message).unwrap();
    if let Some(label) = &problem.label {
        write!(out, " [{label}]").unwrap();
    }
    for help in &problem.help {
        write!(out, " ({help})").unwrap();
    }
    out
}

fn apply(base: &str, case: &Case) -> String {
    let mut text = base.to_owned();
    for (old, new) in &case.edits {
        assert_eq!(text.matches(old.as_str()).count(), 1, "{}: `{old}` is not there exactly once", case.name);
        // Whole lines that are taken out leave no empty line behind.
        text = match new.is_empty() {
            true => text.replacen(&format!("{old}\n"), "", 1),
            false => text.replacen(old.as_str(), &new.replace("\\t", "\t"), 1),
        };
    }
    text
}

fn run(name: &str, at_least: usize) {
    let file: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name);
    let text = std::fs::read_to_string(&file).unwrap();
    let Cases { base, cases } = read(&text);
    let (manifests, problems) = parse("case.yaml", base.as_bytes());
    assert_eq!(problems.iter().map(told).collect::<Vec<_>>(), Vec::<String>::new(), "the base must be valid");
    assert_eq!(manifests.len(), 1);
    assert!(cases.len() >= at_least, "{name}: {} cases, and at least {at_least} are wanted", cases.len());

    let bless = std::env::var_os("BERTH_BLESS").is_some();
    let mut wrong = String::new();
    let mut blessed = text[..text.find("\ncase ").unwrap_or(text.len())].trim_end().to_owned();
    blessed.push('\n');
    for case in &cases {
        let edited = apply(&base, case);
        let (_, problems) = parse("case.yaml", edited.as_bytes());
        let found: Vec<String> = match problems.is_empty() {
            true => vec!["ok".to_owned()],
            false => problems.iter().map(told).collect(),
        };
        write!(blessed, "\ncase {}\n", case.name).unwrap();
        for (old, new) in &case.edits {
            old.lines().for_each(|line| writeln!(blessed, "  - {line}").unwrap());
            new.lines().for_each(|line| writeln!(blessed, "  + {line}").unwrap());
        }
        found.iter().for_each(|line| writeln!(blessed, "  = {line}").unwrap());
        if found != case.expected {
            write!(wrong, "\n{}: {}\n  expected {:#?}\n  found {found:#?}\n{edited}", name, case.name, case.expected)
                .unwrap();
        }
    }
    if bless {
        std::fs::write(&file, blessed).unwrap();
    } else {
        assert!(wrong.is_empty(), "{wrong}");
    }
}

#[test]
fn account() {
    run("account.txt", 21);
}

#[test]
fn civo_vpc() {
    run("civo_vpc.txt", 21);
}

#[test]
fn civo_firewall() {
    run("civo_firewall.txt", 21);
}

#[test]
fn civo_kubernetes_cluster() {
    run("civo_kubernetes_cluster.txt", 25);
}

#[test]
fn civo_kubernetes_node_pool() {
    run("civo_kubernetes_node_pool.txt", 21);
}

#[test]
fn digitalocean_vpc() {
    run("digitalocean_vpc.txt", 21);
}

#[test]
fn digitalocean_kubernetes_cluster() {
    run("digitalocean_kubernetes_cluster.txt", 21);
}

#[test]
fn digitalocean_kubernetes_node_pool() {
    run("digitalocean_kubernetes_node_pool.txt", 21);
}

#[test]
fn environment() {
    run("environment.txt", 25);
}

#[test]
fn policy() {
    run("policy.txt", 25);
}

/// What the validators of OpenMCF and Project Planton accept is accepted as it is: a file for each of their rules.
#[test]
fn manifests_of_other_tools_are_accepted_as_they_are() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/other_tools");
    let mut kinds = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let (manifests, problems) = parse(&path.display().to_string(), &bytes);
        assert!(problems.is_empty(), "{}: {problems:#?}", path.display());
        assert!(manifests.iter().all(|manifest| manifest.api_version != manifest.kind.api_version));
        kinds.extend(manifests.into_iter().map(|manifest| manifest.kind.name.clone()));
    }
    assert_eq!(kinds.len(), 7, "{kinds:?}");
}

/// Berth's own groups keep names as labels; a region is kept as the cloud spells it.
#[test]
fn what_other_tools_may_write_is_kept_as_berth_has_it() {
    let vpc =
        "apiVersion: GROUP\nkind: CivoVpc\nmetadata: {name: Depot.Net}\nspec: {networkName: Depot Net, region: LON1}\n";
    let (manifests, problems) = parse("a.yaml", vpc.replace("GROUP", "civo.openmcf.org/v1").as_bytes());
    assert!(problems.is_empty(), "{problems:?}");
    let field = |path: &str| manifests[0].field_value(path).unwrap_or_default();
    assert_eq!(
        [field("spec.region"), field("spec.networkName"), field("metadata.name")],
        ["lon1", "Depot Net", "Depot.Net"]
    );
    let (_, problems) = parse("a.yaml", vpc.replace("GROUP", "civo.berth.dev/v1").as_bytes());
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].path, "metadata.name");
}

/// A spec of each kind that both validators take, with `EXTRA` where a case puts something.
const OF_BOTH: &[(&str, &str, &str)] = &[
    ("civo", "CivoVpc", "networkName: n, region: lon1"),
    ("civo", "CivoFirewall", "name: f, networkId: n"),
    ("civo", "CivoKubernetesNodePool", "nodePoolName: p, cluster: k, size: g4s.kube.small, nodeCount: 2"),
    ("digital-ocean", "DigitalOceanKubernetesNodePool", "nodePoolName: p, cluster: k, size: s-2vcpu-4gb, nodeCount: 2"),
    (
        "digital-ocean",
        "DigitalOceanKubernetesCluster",
        "clusterName: k, region: fra1, kubernetesVersion: '1.33', vpc: n, defaultNodePool: {size: s-2vcpu-4gb, nodeCount: 1}",
    ),
];

/// What is wrong with a manifest of another tool's group, and with the same one in Berth's own.
fn of_both_groups(kind: &str, extra: &str) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
    let (cloud, _, spec) = OF_BOTH.iter().find(|(_, known, _)| *known == kind).unwrap();
    let key = extra.split(':').next().unwrap();
    // A later entry takes the place of an earlier one.
    let kept: Vec<&str> = spec.split(", ").filter(|entry| !entry.starts_with(&format!("{key}:"))).collect();
    let problems = |group: &str| {
        let head = format!("apiVersion: {group}/v1\nkind: {kind}\nmetadata: {{name: n}}\nspec: ");
        parse("a.yaml", format!("{head}{{{}, {extra}}}\n", kept.join(", ")).as_bytes()).1
    };
    (problems(&format!("{cloud}.openmcf.org")), problems(&format!("{}.berth.dev", cloud.replace('-', ""))))
}

/// What only the cloud could refuse is marked as taken by the other tool: a check alone accepts it, and no plan is made.
#[test]
fn what_another_validator_takes_is_marked_so() {
    for (kind, extra) in [
        ("CivoVpc", "region: SIN1"),
        ("CivoVpc", "ipRangeCidr: 10.20.0.5/24"),
        ("CivoVpc", "ipRangeCidr: 10.20.0.0/28"),
        ("CivoVpc", "networkName: nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"),
        ("CivoFirewall", "inboundRules: [{protocol: tcp, portRange: '80,443'}]"),
        ("CivoFirewall", "inboundRules: [{protocol: tcp, cidrs: [10.0.0.5/24]}]"),
        ("CivoFirewall", "inboundRules: [{protocol: tcp, action: ACCEPT}]"),
        ("CivoKubernetesNodePool", "size: G4S.Kube.Small"),
        ("CivoKubernetesNodePool", "nodeCount: 5000"),
        ("DigitalOceanKubernetesNodePool", "tags: [a b, v1.2]"),
        ("DigitalOceanKubernetesNodePool", "labels: {a b: c}"),
        ("DigitalOceanKubernetesNodePool", "taints: [{key: a, effect: Sometimes}]"),
        ("DigitalOceanKubernetesCluster", "maintenanceWindow: daily"),
        ("DigitalOceanKubernetesCluster", "controlPlaneFirewallAllowedIps: [office]"),
        ("DigitalOceanKubernetesCluster", "kubernetesVersion: latest"),
        ("DigitalOceanKubernetesCluster", "vpc: {valueFrom: {name: n, fieldPath: status.outputs.nothing}}"),
    ] {
        let (theirs, ours) = of_both_groups(kind, extra);
        assert!(!theirs.is_empty() && theirs.iter().all(|problem| problem.elsewhere), "{extra}: {theirs:#?}");
        assert!(!ours.is_empty() && !ours.iter().any(|problem| problem.elsewhere), "{extra}: {ours:#?}");
    }
    for (kind, extra) in [
        ("CivoFirewall", "inboundRules: [{protocol: gre}]"),
        ("CivoFirewall", "name: ''"),
        ("CivoKubernetesNodePool", "nodeCount: 0"),
        ("CivoKubernetesNodePool", "nodeCount: 2.5"),
        ("CivoKubernetesNodePool", "nodeCounts: 3"),
        ("DigitalOceanKubernetesCluster", "region: nyc3s, autoUpgrade: maybe"),
    ] {
        let (theirs, _) = of_both_groups(kind, extra);
        assert!(theirs.iter().any(|problem| !problem.elsewhere), "{extra}: {theirs:#?}");
    }
}

/// Where another tool's manifest means something, nothing is wrong with it; Berth's own groups stay as strict as they are.
#[test]
fn bounds_and_spellings_of_other_tools_are_for_their_groups_only() {
    for (kind, extra) in [
        ("CivoKubernetesNodePool", "autoScale: true, maxNodes: 4"),
        ("CivoKubernetesNodePool", "autoScale: true, minNodes: 3, maxNodes: 4"),
        ("DigitalOceanKubernetesNodePool", "autoScale: true"),
        ("DigitalOceanKubernetesNodePool", "autoScale: on, minNodes: 1, maxNodes: 4"),
        ("DigitalOceanKubernetesCluster", "region: 8"),
    ] {
        let (theirs, ours) = of_both_groups(kind, extra);
        assert!(theirs.is_empty(), "{extra}: {theirs:#?}");
        assert!(!ours.is_empty(), "{extra}");
    }
    let name = "n".repeat(64);
    let text = |group: &str| {
        format!("apiVersion: {group}\nkind: CivoVpc\nmetadata: {{name: {name}}}\nspec: {{networkName: n, region: 2}}\n")
    };
    let (manifests, problems) = parse("a.yaml", text("civo.openmcf.org/v1").as_bytes());
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(manifests[0].field_value("spec.region").as_deref(), Some("lon2"));
    let (_, problems) = parse("a.yaml", text("civo.berth.dev/v1").as_bytes());
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["metadata.name", "spec.region"], "{problems:?}");
}

/// A reference to what is not there is the same: the other validator looks at one manifest alone.
#[test]
fn references_of_other_tools_are_not_looked_up_by_a_check_alone() {
    for (group, elsewhere) in [("civo.openmcf.org/v1", true), ("civo.berth.dev/v1", false)] {
        let text = format!(
            "apiVersion: {group}\nkind: CivoFirewall\nmetadata: {{name: f}}\nspec: {{name: f, networkId: {{valueFrom: {{name: gone}}}}}}\n"
        );
        let (manifests, problems) = parse("a.yaml", text.as_bytes());
        assert!(problems.is_empty(), "{problems:?}");
        let missing = berth_model::graph(&manifests, &Default::default()).diagnostics;
        assert_eq!(missing.iter().map(|problem| problem.elsewhere).collect::<Vec<_>>(), [elsewhere]);
    }
}
