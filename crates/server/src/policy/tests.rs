use super::*;
use crate::gate::GateInput;
use berth_model::Manifest;
use jiff::Timestamp;
use serde_json::json;

fn policy(spec: Value) -> Policy {
    Policy::of(&ResourceId::new("Policy", "guard"), &json!({"spec": spec}))
}

fn facts(action: &str, now: &str) -> Facts {
    let id = ResourceId { env: "prod".into(), org: "acme".into(), ..ResourceId::new("CivoKubernetesCluster", "shop") };
    let manifest = json!({
        "metadata": {"name": "shop", "labels": {"team": "a"}},
        "spec": {"region": "fra1", "defaultNodePool": {"size": "g4s.kube.large", "nodeCount": 5}},
    });
    let input = GateInput {
        old: Some(json!({"spec": {"region": "fra1", "defaultNodePool": {"nodeCount": 3}}})),
        applied_by: "oidc:alice".into(),
        ..GateInput::new(id.clone(), manifest)
    };
    let units = json!([{"key": "cluster", "type": "civo.cluster", "op": "update", "losesData": false,
                        "changes": [{"field": "default_node_pool.node_count", "from": 3, "to": 5}]}]);
    Facts::of(&id, &input, action, units, now.parse::<Timestamp>().unwrap())
}

fn holds(rule: &str) -> Result<bool, String> {
    let rule = Rule::new(rule).map_err(|error| error.to_string())?;
    rule.holds(&facts("update", "2026-11-13T12:00:00Z")).map_err(|error| error.to_string())
}

#[test]
fn rules_read_every_variable() {
    for rule in [
        "resource.kind == 'CivoKubernetesCluster' && resource.id == 'CivoKubernetesCluster/shop'",
        "resource.name == 'shop' && resource.org == 'acme' && resource.env == 'prod'",
        "resource.labels.team == 'a' && size(resource.annotations) == 0",
        "spec.defaultNodePool.nodeCount > old.defaultNodePool.nodeCount",
        "spec.defaultNodePool.nodeCount * 2 == 10 && !has(spec.network)",
        "spec.defaultNodePool.size.matches('^g4s\\\\.kube\\\\..*')",
        "action == 'update' && action in ['update', 'replace']",
        "units.exists(u, u.op == 'update' && u.type == 'civo.cluster' && !u.losesData)",
        "units.all(u, u.changes.exists(c, c.field.endsWith('node_count') && c.to - c.from == 2))",
        "now.getDayOfWeek() == 5 && now.getDayOfWeek('Asia/Tokyo') == 5",
        "now < timestamp('2027-01-01T00:00:00Z')",
        "actor == 'oidc:alice'",
    ] {
        assert_eq!(holds(rule), Ok(true), "{rule}");
    }
}

#[test]
fn a_rule_that_cannot_be_run_has_its_effect() {
    for (rule, says) in [
        ("spec.nothing == 1", "there is no field `nothing`"),
        ("spec.region - 1 == 2", "does not go with"),
        ("spec.defaultNodePool.nodeCount / 0 == 1", "division by zero"),
        ("spec.region", "it gives a text"),
        ("units[7].op == 'x'", "no such entry"),
    ] {
        for (effect, expected) in [("deny", Effect::Deny), ("warn", Effect::Warn)] {
            let policy = policy(json!({"rule": rule, "effect": effect, "message": "m"}));
            let verdict = policy.judge(&facts("update", "2026-11-13T12:00:00Z")).expect(rule);
            assert_eq!(verdict.effect, expected);
            assert!(verdict.message.contains("could not be evaluated") && verdict.message.contains(says), "{verdict}");
            assert!(verdict.to_string().starts_with("policy guard "));
        }
    }
    // Stored by something else than this version.
    assert!(
        policy(json!({"rule": "nonsense(", "effect": "deny"})).judge(&facts("x", "2026-11-13T12:00:00Z")).is_some()
    );
    assert_eq!(policy(json!({"rule": 5})).effect, Effect::Deny);
    assert!(policy(json!({"rule": 5})).judge(&facts("x", "2026-11-13T12:00:00Z")).is_some());
}

#[test]
fn a_rule_cannot_run_for_long() {
    let list = (0..60).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let started = std::time::Instant::now();
    for rule in [
        format!("[{list}].all(a, [{list}].all(b, [{list}].all(c, [{list}].all(d, a + b + c + d >= 0))))"),
        // Swallowed by `||`, and still no answer.
        format!("[{list}].all(a, [{list}].all(b, [{list}].all(c, a + b + c >= 0))) || true"),
        format!("size([{list}].map(a, [{list}].map(b, [{list}].map(c, [{list}])))) > 0"),
    ] {
        let answer = holds(&rule);
        assert!(answer.as_ref().is_err_and(|error| error.contains("100000 steps")), "{answer:?}");
    }
    assert!(started.elapsed() < std::time::Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn a_policy_is_about_its_kinds_envs_and_org() {
    let id = |kind: &str, org: &str, env: &str| ResourceId {
        org: org.into(),
        env: env.into(),
        ..ResourceId::new(kind, "x")
    };
    let limited = policy(json!({"rule": "true", "kinds": ["CivoVpc"], "envs": ["prod"]}));
    assert!(limited.concerns(&id("CivoVpc", "acme", "prod")));
    assert!(!limited.concerns(&id("CivoVpc", "acme", "dev")));
    assert!(!limited.concerns(&id("CivoFirewall", "acme", "prod")));
    let of_org = Policy::of(&id("Policy", "acme", "prod"), &json!({"spec": {"rule": "true"}}));
    assert!(of_org.concerns(&id("CivoVpc", "acme", "prod")));
    assert!(!of_org.concerns(&id("CivoVpc", "acme", "dev")));
    assert!(!of_org.concerns(&id("CivoVpc", "other", "prod")));
    // A policy that denies everything does not keep its own mending out.
    let all = policy(json!({"rule": "true"}));
    assert!(!all.concerns(&id("Policy", "", "")) && !all.concerns(&id("Environment", "", "")));
    assert!(all.concerns(&id("Account", "", "")));
}

#[test]
fn secrets_are_masked_before_rules_see_them() {
    let manifest = Manifest::from_json(&json!({
        "apiVersion": "byoc.berth.dev/v1", "kind": "Account", "metadata": {"name": "main"},
        "spec": {"provider": "civo", "civo": {"token": {"value": "very-secret"}}},
    }))
    .unwrap();
    let input = GateInput::new(manifest.id.clone(), manifest.redacted().to_json());
    let now = "2026-11-13T12:00:00Z".parse().unwrap();
    let facts = Facts::of(&manifest.id, &input, "create", json!([]), now);
    assert_eq!(Rule::new("spec.civo.token.value == '(secret)'").unwrap().holds(&facts), Ok(true));
    assert_eq!(Rule::new("spec.civo.token.value.contains('very')").unwrap().holds(&facts), Ok(false));
}
