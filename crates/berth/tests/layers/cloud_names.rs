//! What differs between clouds stands in their own folders.

use crate::product_sources;

/// Text that names a cloud, for people to read.
const EXAMPLES: [&str; 4] = ["Examples:", "such as ", "\"apiVersion: ", "[\"example\"]"];

/// What differs between clouds stands in their own folders, behind the registries of `clouds` and `sandbox`. Code that names one
/// elsewhere would silently treat the next cloud like one of those that it knows.
#[test]
fn no_code_outside_its_folder_names_a_cloud() {
    let clouds: Vec<&str> = berth_clouds::registry::names();
    assert!(clouds.len() >= 2);
    let mut files = Vec::new();
    for name in ["berth", "server", "store", "engine", "model", "clouds", "sandbox"] {
        files.extend(product_sources(name));
    }
    // Outside the clouds' own folders, the registries and tests.
    files.retain(|path| {
        let mut parts = path.iter().map(|part| part.to_string_lossy());
        !parts.any(|part| {
            clouds.contains(&&*part) || part == "registry.rs" || part.ends_with("tests.rs") || part == "tests"
        })
    });
    assert!(files.len() > 200, "the sources were not found");
    let mut found = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("readable");
        let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let line = line.split("//").next().unwrap_or_default().trim();
            let is_module = line.trim_start_matches("pub ").starts_with("mod ");
            let is_example = EXAMPLES.iter().any(|example| line.contains(example));
            let plain = line.to_lowercase().replace('_', "");
            if !is_module && !is_example && clouds.iter().any(|cloud| plain.contains(cloud)) {
                found.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{} places name a cloud:\n{}", found.len(), found.join("\n"));
}
