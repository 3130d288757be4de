//! Any bytes: reading them must not panic, and what is read must survive being printed and read again.
#![no_main]

use berth_model::{Manifest, graph, parse, set_scalar, stack_input};
use libfuzzer_sys::fuzz_target;
use std::collections::HashSet;

fuzz_target!(|bytes: &[u8]| {
    let (manifests, problems) = parse("fuzz.yaml", bytes);
    for problem in &problems {
        assert!(!problem.message.is_empty());
        assert!(problem.span.is_none_or(|span| span.start <= span.end && span.start <= bytes.len()));
        let _ = serde_json::to_string(problem);
    }
    let _ = graph(&manifests, &HashSet::new());
    let _ = stack_input("fuzz.yaml", bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        for path in ["spec.region", "spec.defaultNodePool.nodeCount", "spec.additionalNodePools[gpu].nodeCount"] {
            let _ = set_scalar(text, 0, path, &serde_json::json!("fra1"));
        }
    }
    for manifest in manifests.iter().filter(|manifest| !manifest.faulty) {
        let json = manifest.to_json();
        let back = Manifest::from_json(&json).expect("what was printed is a manifest");
        assert!(&back == manifest);
        let (again, problems) = parse("fuzz.json", json.to_string().as_bytes());
        assert!(problems.is_empty(), "printed manifest is refused: {problems:?}");
        assert!(&again[0] == manifest);
        let _ = manifest.redacted();
        let _ = manifest.resolve(&|to| to.to.to_string());
        assert!(manifest.span_of("metadata.name").is_some());
    }
});
