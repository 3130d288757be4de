//! Whatever the bytes, reading them ends in manifests or in diagnostics; what was read is written and read again unchanged.

use berth_model::{Manifest, parse, registry, starter};
use proptest::prelude::*;

fn starters() -> Vec<String> {
    registry().kinds().map(|kind| starter(kind, None).unwrap()).collect()
}

fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    let (manifests, problems) = parse("m.yaml", bytes);
    let length = bytes.len();
    for problem in &problems {
        prop_assert!(!problem.message.is_empty());
        if let Some(span) = problem.span {
            prop_assert!(span.line >= 1 && span.column >= 1);
            prop_assert!(span.start <= span.end && span.start <= length, "{:?} in {} bytes", span, length);
            if let Ok(text) = std::str::from_utf8(bytes) {
                prop_assert!(text.is_char_boundary(span.start), "{:?}", span);
                prop_assert!(span.end > length || text.is_char_boundary(span.end), "{:?}", span);
            }
        }
    }
    for manifest in manifests.iter().filter(|manifest| !manifest.faulty) {
        let json = manifest.to_json();
        let back = Manifest::from_json(&json).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&back, manifest);
        let printed = serde_json::to_string_pretty(&json).unwrap();
        let (again, problems) = parse("m.json", printed.as_bytes());
        prop_assert!(problems.is_empty(), "{:?} in {}", problems, printed);
        prop_assert_eq!(&again[0], manifest);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        check(&bytes)?;
    }

    #[test]
    fn anything_that_looks_like_yaml(text in "([a-z]{1,6}|[ \n:\\-\\[\\]{}\"'#&*!|>%@`,?\t]|---\n|: |\\- |kind: CivoVpc\n){0,80}") {
        check(text.as_bytes())?;
    }

    #[test]
    fn mutated_manifests(
        which in 0usize..8,
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..4, "[ -~\n\t]{0,6}"), 0..6),
    ) {
        let mut text = starters()[which].clone();
        for (at, remove, insert) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + remove).min(text.len());
            text.replace_range(at..end, &insert);
        }
        check(text.as_bytes())?;
    }
}

#[test]
fn starters_are_valid_in_every_variant() {
    let mut count = 0;
    for kind in registry().kinds() {
        for template in [None, Some("dev"), Some("staging"), Some("prod")] {
            let Ok(text) = starter(kind, template) else {
                assert!(template.is_some(), "{} has a starter", kind.name);
                continue;
            };
            let (manifests, problems) = parse("starter.yaml", text.as_bytes());
            assert!(problems.is_empty(), "{problems:?}\n{text}");
            assert_eq!(manifests[0].kind.name, kind.name);
            count += 1;
            // What is commented out is right too: the marks removed one field at a time.
            for (number, line) in text.lines().enumerate().filter(|(_, line)| is_field(line)) {
                let edited: Vec<String> = text
                    .lines()
                    .enumerate()
                    .map(|(n, other)| if n == number { other.replacen("# ", "", 1) } else { other.to_owned() })
                    .collect();
                let (_, problems) = parse("starter.yaml", edited.join("\n").as_bytes());
                let about_line = problems
                    .iter()
                    .filter(|problem| {
                        problem.message.contains("unknown field") || problem.message.contains("is not valid")
                    })
                    .count();
                assert_eq!(about_line, 0, "{line}: {problems:?}");
            }
        }
    }
    assert_eq!(count, 10 + 3 + 3);
    assert!(starter(registry().kind("CivoVpc").unwrap(), Some("dev")).is_err());
    assert!(starter(registry().kind("CivoKubernetesCluster").unwrap(), Some("huge")).is_err());
}

/// A commented field with a value in its line, at the top of the spec.
fn is_field(line: &str) -> bool {
    line.strip_prefix("  # ").is_some_and(|rest| {
        rest.split_once(": ")
            .is_some_and(|(name, _)| name.chars().all(char::is_alphanumeric) && name.starts_with(char::is_lowercase))
    })
}

#[test]
fn templates_fill_what_is_not_written() {
    let text = "apiVersion: civo.berth.dev/v1\nkind: CivoKubernetesCluster\nmetadata: {name: shop}\nspec:\n  clusterName: shop\n  region: fra1\n  kubernetesVersion: 1.30.5-k3s1\n  network: net\n  template: prod\n";
    let (manifests, problems) = parse("m.yaml", text.as_bytes());
    assert!(problems.is_empty());
    let shown = |manifest: &Manifest| {
        manifest.filled.iter().map(|filled| format!("{}={}", filled.path, filled.value)).collect::<Vec<_>>()
    };
    let all =
        ["spec.defaultNodePool.size=g4s.kube.large", "spec.defaultNodePool.nodeCount=3", "spec.highlyAvailable=true"];
    assert_eq!(shown(&manifests[0]), all);
    assert_eq!(manifests[0].field_value("spec.defaultNodePool.size").as_deref(), Some("g4s.kube.large"));
    assert_eq!(shown(&Manifest::from_json(&manifests[0].to_json()).unwrap()), all);

    // What is written wins, a `false` too.
    let text = format!("{text}  highlyAvailable: false\n  defaultNodePool: {{nodeCount: 9}}\n");
    let (manifests, problems) = parse("m.yaml", text.as_bytes());
    assert!(problems.is_empty());
    assert_eq!(shown(&manifests[0]), ["spec.defaultNodePool.size=g4s.kube.large"]);
    assert_eq!(manifests[0].field_value("spec.highlyAvailable"), None);
    assert_eq!(manifests[0].field_value("spec.defaultNodePool.nodeCount").as_deref(), Some("9"));
}

#[test]
fn fields_and_places_are_found_by_path() {
    let text = "apiVersion: civo.openmcf.org/v1\nkind: CivoKubernetesCluster\nmetadata:\n  name: shop\n  labels: {team: a}\n  annotations: {berth.dev/timeout: 20m, berth.dev/protect: \"true\", berth.dev/ready-gate: cloud}\nspec:\n  clusterName: shop\n  region: fra1\n  kubernetesVersion: 1.30.5-k3s1\n  network: net\n  defaultNodePool: {size: s, nodeCount: 2}\n  additionalNodePools:\n    - {name: gpu, size: g, nodeCount: 1, labels: {a.b/c: d}}\n";
    let (manifests, problems) = parse("m.yaml", text.as_bytes());
    assert!(problems.is_empty(), "{problems:?}");
    let manifest = &manifests[0];
    for (path, value) in [
        ("apiVersion", "civo.openmcf.org/v1"),
        ("kind", "CivoKubernetesCluster"),
        ("metadata.name", "shop"),
        ("metadata.labels.team", "a"),
        ("spec.region", "fra1"),
        ("spec.network", "net"),
        ("spec.default_node_pool.node_count", "2"),
        ("spec.additionalNodePools[gpu].size", "g"),
        ("spec.additional_node_pools[0].name", "gpu"),
        ("spec.additionalNodePools[gpu].labels[\"a.b/c\"]", "d"),
    ] {
        assert_eq!(manifest.field_value(path).as_deref(), Some(value), "{path}");
        let span = manifest.span_of(path).unwrap();
        assert_eq!(&text[span.start..span.end], value, "{path}");
    }
    for path in ["spec.nothing", "spec.additionalNodePools", "spec.cni", "status.outputs.x", "", "spec"] {
        assert_eq!(manifest.field_value(path), None, "{path}");
    }
    assert!(manifest.protected() && manifest.trusts_cloud());
    assert_eq!(manifest.timeout(), Some(std::time::Duration::from_secs(1200)));
    assert_eq!(manifest.to_json()["apiVersion"], "civo.openmcf.org/v1");
}
