//! What an add-on's `configurationValues` may hold: a JSON schema for each, and the check against it.

use serde_json::{Value, json};

fn object(properties: Value) -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": properties})
}

/// Kubernetes' own types, which have rules of their own elsewhere.
fn any() -> Value {
    json!({"type": "object"})
}

fn list() -> Value {
    json!({"type": "array", "items": {"type": "object"}})
}

fn resources() -> Value {
    let quantities = json!({"type": "object", "additionalProperties": {"type": ["string", "number"]}});
    object(json!({"limits": quantities, "requests": quantities, "claims": list()}))
}

fn texts(names: &[&str]) -> Value {
    let one = |name: &&str| ((*name).to_owned(), json!({"type": ["string", "number", "boolean"]}));
    object(Value::Object(names.iter().map(one).collect()))
}

/// The schema of an add-on's configuration.
pub fn of(addon: &str) -> Value {
    let mut schema = match addon {
        "vpc-cni" => object(json!({
            "affinity": any(), "resources": resources(), "tolerations": list(), "podAnnotations": any(), "podLabels": any(),
            "livenessProbeTimeoutSeconds": {"type": "integer"}, "readinessProbeTimeoutSeconds": {"type": "integer"},
            "env": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
            "eniConfig": object(json!({"create": {"type": "boolean"}, "region": {"type": "string"}, "subnets": any()})),
            "enableNetworkPolicy": {"type": ["string", "boolean"], "enum": ["true", "false", true, false]},
            "enableWindowsIpam": {"type": ["string", "boolean"]}, "enableWindowsPrefixDelegation": {"type": ["string", "boolean"]},
            "warmWindowsPrefixTarget": {"type": "integer"}, "warmWindowsIPTarget": {"type": "integer"},
            "minimumWindowsIPTarget": {"type": "integer"}, "branchENICooldown": {"type": "integer"},
            "init": object(json!({"env": any(), "resources": resources()})),
            "nodeAgent": object(json!({
                "enablePolicyEventLogs": {"type": ["string", "boolean"]}, "enableCloudWatchLogs": {"type": ["string", "boolean"]},
                "healthProbeBindAddr": {"type": ["string", "number"]}, "metricsBindAddr": {"type": ["string", "number"]},
                "conntrackCacheCleanupPeriod": {"type": ["string", "number"]}, "networkPolicyAgentLogFileLocation": {"type": "string"},
                "enabled": {"type": "boolean"}, "resources": resources(),
            })),
        })),
        "coredns" => object(json!({
            "affinity": any(), "computeType": {"type": "string"}, "corefile": {"type": "string"}, "nodeSelector": any(),
            "replicaCount": {"type": "integer", "minimum": 1}, "resources": resources(), "tolerations": list(),
            "topologySpreadConstraints": list(), "podAnnotations": any(), "podLabels": any(),
            "autoScaling": object(json!({
                "enabled": {"type": "boolean"}, "minReplicas": {"type": "integer", "minimum": 2}, "maxReplicas": {"type": "integer"},
            })),
            "podDisruptionBudget": object(json!({
                "enabled": {"type": "boolean"}, "maxUnavailable": {"type": ["integer", "string"]},
                "minAvailable": {"type": ["integer", "string"]},
            })),
        })),
        "kube-proxy" => object(json!({
            "ipvs": texts(&["scheduler"]), "mode": {"type": "string", "enum": ["iptables", "ipvs", "nftables"]},
            "resources": resources(), "podAnnotations": any(), "podLabels": any(), "tolerations": list(),
        })),
        "aws-ebs-csi-driver" => object(json!({
            "controller": object(json!({
                "affinity": any(), "nodeSelector": any(), "tolerations": list(), "resources": resources(), "env": list(),
                "extraVolumeTags": any(), "k8sTagClusterId": {"type": "string"}, "replicaCount": {"type": "integer", "minimum": 1},
                "loggingFormat": {"type": "string", "enum": ["text", "json"]}, "logLevel": {"type": "integer"}, "podLabels": any(),
                "podAnnotations": any(), "sdkDebugLog": {"type": "boolean"}, "batching": {"type": "boolean"},
                "volumeModificationFeature": object(json!({"enabled": {"type": "boolean"}})),
                "region": {"type": "string"}, "defaultFsType": {"type": "string"}, "enableMetrics": {"type": "boolean"},
                "topologySpreadConstraints": list(), "serviceAccount": any(), "additionalArgs": {"type": "array"},
            })),
            "node": object(json!({
                "affinity": any(), "tolerations": list(), "tolerateAllTaints": {"type": "boolean"}, "resources": resources(),
                "enableWindows": {"type": "boolean"}, "loggingFormat": {"type": "string"}, "logLevel": {"type": "integer"},
                "volumeAttachLimit": {"type": "integer"}, "reservedVolumeAttachments": {"type": "integer"}, "env": list(),
                "podLabels": any(), "podAnnotations": any(), "kubeletPath": {"type": "string"}, "additionalArgs": {"type": "array"},
            })),
            "defaultStorageClass": object(json!({"enabled": {"type": "boolean"}})), "sidecars": any(), "storageClasses": list(),
            "image": any(), "useOldCSIDriver": {"type": "boolean"}, "nodeComponentOnly": {"type": "boolean"},
        })),
        "eks-pod-identity-agent" => object(json!({
            "affinity": any(), "nodeSelector": any(), "tolerations": list(), "resources": resources(), "priorityClassName": {"type": "string"},
            "agent": object(json!({"additionalArgs": any()})), "podAnnotations": any(), "podLabels": any(), "hybrid": any(),
        })),
        "metrics-server" => object(json!({
            "affinity": any(), "nodeSelector": any(), "tolerations": list(), "resources": resources(), "podAnnotations": any(),
            "podLabels": any(), "replicas": {"type": "integer", "minimum": 1}, "podDisruptionBudget": any(), "addonResizer": any(),
            "topologySpreadConstraints": list(), "metrics": any(), "serviceMonitor": any(), "updateStrategy": any(),
        })),
        _ => json!({"type": "object", "properties": {
            "affinity": any(), "nodeSelector": any(), "tolerations": list(), "resources": resources(), "podAnnotations": any(), "podLabels": any(),
        }}),
    };
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema
}

/// Everything in which a value does not fit a schema, as EKS says it.
pub fn check(schema: &Value, value: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    walk(schema, value, "$", &mut wrong);
    wrong
}

fn walk(schema: &Value, value: &Value, path: &str, wrong: &mut Vec<String>) {
    let allowed: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        _ => vec![],
    };
    if !allowed.is_empty() && !allowed.iter().any(|name| is_of(value, name)) {
        wrong.push(format!("{path}: {} found, {} expected", type_of(value), allowed.join(" or ")));
        return;
    }
    if let Some(choices) = schema["enum"].as_array()
        && !choices.contains(value)
    {
        let choices: Vec<String> =
            choices.iter().map(|choice| choice.as_str().map_or(choice.to_string(), str::to_owned)).collect();
        wrong.push(format!("{path}: does not have a value in the enumeration [{}]", choices.join(", ")));
    }
    if let (Some(least), Some(number)) = (schema["minimum"].as_i64(), value.as_i64())
        && number < least
    {
        wrong.push(format!("{path}: must have a minimum value of {least}"));
    }
    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
        walk(&schema["items"], item, &format!("{path}[{number}]"), wrong);
    }
    for (name, member) in value.as_object().into_iter().flatten() {
        let under = format!("{path}.{name}");
        match (&schema["properties"][name], &schema["additionalProperties"]) {
            (Value::Null, Value::Bool(false)) => wrong.push(format!(
                "{under}: is not defined in the schema and the schema does not allow additional properties"
            )),
            (Value::Null, other) => walk(other, member, &under, wrong),
            (known, _) => walk(known, member, &under, wrong),
        }
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_of(value: &Value, name: &str) -> bool {
    type_of(value) == name || (name == "number" && value.is_number())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_do_not_fit_are_named() {
        for (addon, value, expected) in [
            ("coredns", json!({"replicaCount": 3, "resources": {"limits": {"cpu": "100m"}}}), ""),
            ("vpc-cni", json!({"env": {"ENABLE_PREFIX_DELEGATION": "true"}}), ""),
            ("coredns", json!({"replicas": 3}), "$.replicas: is not defined in the schema"),
            ("coredns", json!({"replicaCount": "3"}), "$.replicaCount: string found, integer expected"),
            ("coredns", json!({"replicaCount": 0}), "$.replicaCount: must have a minimum value of 1"),
            ("kube-proxy", json!({"mode": "magic"}), "$.mode: does not have a value in the enumeration"),
            ("vpc-cni", json!({"tolerations": ["x"]}), "$.tolerations[0]: string found, object expected"),
            ("coredns", json!([]), "$: array found, object expected"),
        ] {
            let wrong = check(&of(addon), &value).join("; ");
            assert_eq!(wrong.is_empty(), expected.is_empty(), "{addon}: {wrong}");
            assert!(wrong.starts_with(expected), "{addon}: {wrong}");
        }
    }
}
