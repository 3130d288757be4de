//! Parts of messages: names as people read them, the nearest name to a mistyped one, lists, quoted values.

use crate::case::snake_case;

/// `nodeCount` → `node count`, `ip_range_cidr` → `IP range CIDR`.
pub fn humanise(name: &str) -> String {
    let snake = snake_case(name);
    // `is_default` reads better as `default`.
    let snake = snake.strip_prefix("is_").unwrap_or(&snake);
    let words: Vec<String> = snake.split('_').filter(|word| !word.is_empty()).map(abbreviation).collect();
    words.join(" ")
}

fn abbreviation(word: &str) -> String {
    match word {
        "ip" | "cidr" | "api" | "url" | "cni" | "vpc" => word.to_uppercase(),
        "kubernetes" => "Kubernetes".to_owned(),
        "ips" => "IPs".to_owned(),
        "cidrs" => "CIDRs".to_owned(),
        _ => word.to_owned(),
    }
}

/// The candidate that was most likely meant, if any is near enough to be worth saying.
pub fn nearest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    closest(given, candidates, |given, candidate| given.len() >= 3 && candidate.starts_with(given))
}

/// The same for values, which people also write out: `production` for `prod`.
pub fn nearest_value<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    closest(given, candidates, |given, candidate| {
        given.len() >= 3 && candidate.len() >= 3 && (candidate.starts_with(given) || given.starts_with(candidate))
    })
}

fn closest<'a>(
    given: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    alike: impl Fn(&str, &str) -> bool,
) -> Option<&'a str> {
    // Comparing is quadratic in the length, so that very long names are not worth the time.
    if given.is_empty() || given.len() > 100 {
        return None;
    }
    let wanted = given.to_lowercase();
    let mut best: Option<(f64, &str)> = None;
    for candidate in candidates {
        let other = candidate.to_lowercase();
        let mut score = strsim::normalized_damerau_levenshtein(&wanted, &other);
        if alike(&wanted, &other) {
            score = score.max(0.75);
        }
        if score >= 0.6 && best.is_none_or(|(most, _)| score > most) {
            best = Some((score, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// ``did you mean `x`?``
pub fn did_you_mean<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(given, candidates).map(|near| format!("did you mean `{near}`?"))
}

/// `a`, `a or b`, `a, b or c`.
pub fn either<S: AsRef<str>>(items: &[S]) -> String {
    joined(items, "or")
}

/// `a`, `a and b`, `a, b and c`.
pub fn all<S: AsRef<str>>(items: &[S]) -> String {
    joined(items, "and")
}

fn joined<S: AsRef<str>>(items: &[S], word: &str) -> String {
    match items {
        [] => String::new(),
        [one] => one.as_ref().to_owned(),
        [head @ .., last] => {
            let head: Vec<&str> = head.iter().map(AsRef::as_ref).collect();
            format!("{} {word} {}", head.join(", "), last.as_ref())
        }
    }
}

/// Most characters of a value that a message repeats.
const SHOWN_CHARS: usize = 60;

/// A value as a message repeats it: in backticks, on one line, not too long.
pub fn shown(value: &str) -> String {
    let mut out = String::from("`");
    for (n, c) in value.chars().enumerate() {
        if n == SHOWN_CHARS {
            out.push('…');
            break;
        }
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out.push('`');
    out
}

/// As a shell takes it.
pub fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_well() {
        assert_eq!(humanise("nodeCount"), "node count");
        assert_eq!(humanise("ip_range_cidr"), "IP range CIDR");
        assert_eq!(humanise("isDefaultForRegion"), "default for region");
        assert_eq!(humanise("apiAllowedCidrs"), "API allowed CIDRs");
        assert_eq!(either(&["a", "b", "c"]), "a, b or c");
    }

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        assert_eq!(nearest("kubernetesVerison", ["region", "kubernetesVersion"]), Some("kubernetesVersion"));
        assert_eq!(nearest("FRA1", ["lon1", "fra1"]), Some("fra1"));
        assert_eq!(nearest("banana", ["region", "size"]), None);
        assert_eq!(nearest("namespace", ["name", "env"]), None);
        assert_eq!(nearest_value("production", ["dev", "prod"]), Some("prod"));
    }
}
