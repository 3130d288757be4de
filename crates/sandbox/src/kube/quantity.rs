//! Amounts such as `500m`, `1.5` and `64Mi`, in thousandths of their unit.

use serde_json::Value;

const SUFFIXES: &[(&str, i128)] = &[
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
];

/// Zero for what is not an amount.
pub fn parse(value: &Value) -> i128 {
    parse_text(&text(value)).unwrap_or(0)
}

pub fn parse_text(text: &str) -> Option<i128> {
    let text = text.trim();
    if let Some(number) = text.strip_suffix('m') {
        return decimal(number, 1);
    }
    if let Some(number) = text.strip_suffix('u').or_else(|| text.strip_suffix('n')) {
        return decimal(number, 1).map(|amount| amount / 1000);
    }
    for (suffix, factor) in SUFFIXES {
        if let Some(number) = text.strip_suffix(suffix) {
            return decimal(number, factor * 1000);
        }
    }
    if let Some((number, exponent)) = text.split_once(['e', 'E']) {
        let exponent: u32 = exponent.trim_start_matches('+').parse().ok().filter(|exponent| *exponent <= 18)?;
        return decimal(number, 1000 * 10i128.pow(exponent));
    }
    decimal(text, 1000)
}

fn decimal(text: &str, factor: i128) -> Option<i128> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && part.is_empty() || part.len() > 18 {
        return None;
    }
    let negative = whole.starts_with('-');
    let number: i128 = if matches!(whole, "" | "-" | "+") { 0 } else { whole.parse().ok()? };
    let share: i128 = if part.is_empty() { 0 } else { part.parse().ok()? };
    let share = share.checked_mul(factor)? / 10i128.pow(part.len() as u32);
    let total = number.abs().checked_mul(factor)? + share;
    Some(if negative { -total } else { total })
}

pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

/// An amount of a resource as Kubernetes shows it: processors in thousandths, memory in binary units.
pub fn show(resource: &str, amount: i128) -> String {
    if resource.ends_with("cpu") {
        return if amount % 1000 == 0 { (amount / 1000).to_string() } else { format!("{amount}m") };
    }
    let units = amount / 1000;
    if resource.ends_with("memory") || resource.ends_with("storage") {
        for (suffix, factor) in SUFFIXES.iter().take(6).rev() {
            if units != 0 && units % factor == 0 {
                return format!("{}{suffix}", units / factor);
            }
        }
    }
    units.to_string()
}

/// What the containers of a pod ask for together: the sum of those that run side by side, or the most of one that comes before.
pub fn of_pod(spec: &Value, part: &str, resource: &str) -> i128 {
    let amount = |container: &Value| {
        let resources = &container["resources"];
        let own = resources[part].get(resource);
        // A limit without a request is the request too.
        own.or_else(|| resources["limits"].get(resource).filter(|_| part == "requests")).map_or(0, parse)
    };
    let list = |name: &str| spec[name].as_array().into_iter().flatten();
    let always = |container: &&Value| container["restartPolicy"] == "Always";
    let side_by_side: i128 =
        list("containers").map(amount).sum::<i128>() + list("initContainers").filter(always).map(amount).sum::<i128>();
    let before = list("initContainers").filter(|c| !always(c)).map(amount).max().unwrap_or(0);
    side_by_side.max(before) + spec["overhead"].get(resource).map_or(0, parse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn amounts_are_read_and_shown() {
        for (text, thousandths) in [
            ("500m", 500),
            ("1", 1000),
            ("1.5", 1500),
            ("2Ki", 2_048_000),
            ("1k", 1_000_000),
            ("1e3", 1_000_000),
            ("0.1", 100),
        ] {
            assert_eq!(parse_text(text), Some(thousandths), "{text}");
        }
        assert_eq!(parse_text("lots"), None);
        assert_eq!(show("cpu", 1500), "1500m");
        assert_eq!(show("requests.memory", parse(&json!("128Mi"))), "128Mi");
        assert_eq!(show("pods", 3000), "3");
    }

    #[test]
    fn a_pod_asks_for_what_its_containers_ask_for() {
        let spec = json!({"containers": [{"resources": {"requests": {"cpu": "100m"}}}, {"resources": {"limits": {"cpu": 1}}}],
            "initContainers": [{"resources": {"requests": {"cpu": "2"}}}]});
        assert_eq!(of_pod(&spec, "requests", "cpu"), 2000);
        assert_eq!(of_pod(&spec, "limits", "cpu"), 1000);
    }
}
