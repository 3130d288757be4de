//! What is made from descriptors for people and editors: `explain`, schemas, stack inputs.

use berth_model::{Explanation, explain, registry, schema, schema_all, stack_input};
use secrecy::ExposeSecret;
use std::fmt::Write;

fn table(explanation: &Explanation) -> String {
    let mut out = format!(
        "{} {}\n{}\n{}\n\n",
        explanation.kind,
        explanation.path,
        explanation.meaning,
        explanation.api_versions.join(", ")
    );
    for row in explanation.fields.iter().chain(&explanation.outputs) {
        writeln!(out, "{} | {} | {} | {}", row.field, row.holds, row.rules, row.meaning).unwrap();
    }
    for rule in &explanation.rules {
        writeln!(out, "rule: {rule}").unwrap();
    }
    for row in &explanation.templates {
        writeln!(out, "template {}: {} = {}", row.template, row.path, row.value).unwrap();
    }
    out
}

#[test]
fn every_kind_is_explained() {
    for kind in registry().kinds() {
        let explanation = explain(kind, "").unwrap();
        assert!(
            explanation.fields.iter().chain(&explanation.outputs).all(|row| !row.meaning.is_empty()),
            "{}",
            kind.name
        );
        insta::assert_snapshot!(format!("explain_{}", kind.name), table(&explanation));
    }
}

#[test]
fn a_field_is_explained() {
    let kind = registry().kind("CivoKubernetesCluster").unwrap();
    insta::assert_snapshot!("explain_field_pool", table(&explain(kind, "defaultNodePool").unwrap()));
    insta::assert_snapshot!("explain_field_version", table(&explain(kind, "spec.kubernetesVersion").unwrap()));
    insta::assert_snapshot!("explain_field_template", table(&explain(kind, "template").unwrap()));
    insta::assert_snapshot!("explain_field_metadata", table(&explain(kind, "metadata").unwrap()));
    assert_eq!(explain(kind, "status.outputs").unwrap().fields.len(), 4);
    assert_eq!(explain(kind, "additionalNodePools[gpu].taints.effect").unwrap().fields[0].field, "effect");
    let error = explain(kind, "defaultNodePool.nodeCuont").unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.help.as_str()),
        ("CivoKubernetesCluster has no field `defaultNodePool.nodeCuont`", "did you mean `nodeCount`?")
    );
    assert!(explain(kind, "region.x").is_err());
}

#[test]
fn schemas() {
    for name in ["Account", "CivoVpc", "CivoKubernetesCluster", "Environment", "Policy"] {
        insta::assert_json_snapshot!(format!("schema_{name}"), schema(registry().kind(name).unwrap()));
    }
    let all = schema_all();
    assert_eq!(all["oneOf"].as_array().unwrap().len(), 10);
    for kind in registry().kinds() {
        let one = &all["$defs"][&kind.name];
        assert_eq!(one["properties"]["kind"]["const"], kind.name.as_str());
        assert_eq!(one["properties"]["spec"]["additionalProperties"], false);
    }
    // What a template fills is not asked for.
    let cluster = &all["$defs"]["CivoKubernetesCluster"]["properties"]["spec"];
    assert!(!cluster["required"].as_array().unwrap().contains(&"defaultNodePool".into()));
}

const TARGET: &str = "target:\n  apiVersion: civo.project-planton.org/v1\n  kind: CivoVpc\n  metadata:\n    name: net\n  spec:\n    networkName: net\n    region: fra1\n";

#[test]
fn stack_inputs_are_read() {
    for config in [
        "providerConfig:\n  apiToken: planted\n  defaultRegion: lon1\n",
        "provider_config: {api_token: planted, default_region: lon1}\n",
        "providerCredential:\n  civo: {apiToken: planted, region: lon1}\n",
        "civo_credential: {api_token: planted, default_region: lon1}\n",
        "providerConfig: {credential: {credentialType: API_TOKEN, apiToken: planted, defaultRegion: lon1}}\n",
    ] {
        let (manifest, credential) = stack_input("in.yaml", format!("{config}{TARGET}").as_bytes()).unwrap();
        assert_eq!((manifest.id.name.as_str(), manifest.api_version.as_str()), ("net", "civo.project-planton.org/v1"));
        let credential = credential.unwrap();
        assert_eq!((credential.provider.as_str(), credential.region.as_deref()), ("civo", Some("lon1")));
        assert_eq!(credential.token.expose_secret(), "planted");
        assert!(!format!("{credential:?}").contains("planted"));
    }
    let json = r#"{"target": {"apiVersion": "digital-ocean.openmcf.org/v1", "kind": "DigitalOceanVpc", "metadata": {"name": "n"}, "spec": {"region": "fra1"}}, "provider_config": {"api_token": "t"}}"#;
    let (manifest, credential) = stack_input("in.json", json.as_bytes()).unwrap();
    assert_eq!((manifest.id.kind.as_str(), credential.unwrap().provider.as_str()), ("DigitalOceanVpc", "digitalocean"));
    assert!(stack_input("in.yaml", TARGET.as_bytes()).unwrap().1.is_none());
}

#[test]
fn bad_stack_inputs_are_refused_with_places() {
    let told = |text: &str| -> Vec<String> {
        stack_input("in.yaml", text.as_bytes()).unwrap_err().iter().map(ToString::to_string).collect()
    };
    assert_eq!(told("a: b\n"), ["in.yaml:1:1: a stack input needs `target`, the manifest"]);
    assert_eq!(told(""), ["in.yaml: the stack input is empty"]);
    assert_eq!(
        told(&TARGET.replace("fra1", "fra9")),
        ["in.yaml:8:13: region must be lon1, lon2, fra1, nyc1, phx1 or mum1, not `fra9` (did you mean `fra1`?)"]
    );
    assert_eq!(
        told(&format!("providerConfig: planted\n{TARGET}")),
        ["in.yaml:1:1: providerConfig must be a mapping with `apiToken`"]
    );
    assert_eq!(
        told(&format!("providerConfig: {{apiTokn: planted}}\n{TARGET}")),
        ["in.yaml:1:1: providerConfig has no `apiToken`"]
    );
}
