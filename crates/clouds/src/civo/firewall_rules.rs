//! Firewall rules in a normal form: one line of text for each, so that a plan can show them and two spellings of the same
//! rule are equal. `tcp 443 from 0.0.0.0/0`, `deny udp 53 to 10.0.0.0/8, 10.1.0.0/16 (dns)`.

use super::wire::FirewallRule;
use berth_model::pb::berth::civo::v1::CivoFirewallRule;
use serde_json::{Value, json};

const ALL_PORTS: (&str, &str) = ("1", "65535");

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub inbound: bool,
    pub allow: bool,
    pub protocol: String,
    /// `443`, `8000-9000` or `all`; empty for protocols without ports.
    pub ports: String,
    pub cidrs: Vec<String>,
    pub label: String,
}

impl Rule {
    pub fn new(inbound: bool, protocol: &str, ports: &str, cidrs: &[String], label: &str) -> Self {
        let protocol = protocol.to_ascii_lowercase();
        let ports = if protocol == "icmp" { String::new() } else { normal_ports(ports) };
        let mut cidrs: Vec<String> =
            cidrs.iter().map(|c| range(&c.trim().to_ascii_lowercase())).filter(|c| !c.is_empty()).collect();
        if cidrs.is_empty() {
            cidrs.push("0.0.0.0/0".into());
        }
        cidrs.sort();
        cidrs.dedup();
        Self { inbound, allow: true, protocol, ports, cidrs, label: label.trim().to_owned() }
    }

    pub fn from_spec(rule: &CivoFirewallRule, inbound: bool) -> Self {
        let mut made = Self::new(inbound, &rule.protocol, &rule.port_range, &rule.cidrs, &rule.label);
        made.allow = rule.action != "deny";
        made
    }

    /// As a manifest declares it.
    pub fn to_spec(&self) -> Value {
        let mut written = json!({"protocol": self.protocol, "cidrs": self.cidrs});
        if !self.ports.is_empty() && self.ports != "all" {
            written["portRange"] = json!(self.ports);
        }
        if !self.allow {
            written["action"] = json!("deny");
        }
        if !self.label.is_empty() {
            written["label"] = json!(self.label);
        }
        written
    }

    pub fn from_civo(rule: &FirewallRule) -> Self {
        let ports = match (rule.start_port.as_str(), rule.end_port.as_str()) {
            ("" | "0", "" | "0") => rule.ports.clone(),
            (start, "" | "0") => start.to_owned(),
            (start, end) => format!("{start}-{end}"),
        };
        let mut made = Self::new(rule.direction != "egress", &rule.protocol, &ports, &rule.cidr, &rule.label);
        made.allow = rule.action != "deny";
        made
    }

    pub fn to_civo(&self) -> FirewallRule {
        let (start, end) = match self.ports.as_str() {
            "" => ("", ""),
            "all" => ALL_PORTS,
            ports => ports.split_once('-').unwrap_or((ports, ports)),
        };
        FirewallRule {
            id: String::new(),
            protocol: self.protocol.clone(),
            ports: if start == end { start.to_owned() } else { format!("{start}-{end}") },
            start_port: start.to_owned(),
            end_port: end.to_owned(),
            cidr: self.cidrs.clone(),
            direction: if self.inbound { "ingress" } else { "egress" }.into(),
            action: if self.allow { "allow" } else { "deny" }.into(),
            label: self.label.clone(),
        }
    }

    pub fn to_line(&self) -> String {
        let mut line = String::new();
        if !self.allow {
            line.push_str("deny ");
        }
        line.push_str(&self.protocol);
        if !self.ports.is_empty() {
            line.push(' ');
            line.push_str(&self.ports);
        }
        line.push_str(if self.inbound { " from " } else { " to " });
        line.push_str(&self.cidrs.join(", "));
        if !self.label.is_empty() {
            line.push_str(&format!(" ({})", self.label));
        }
        line
    }

    /// The inverse of `to_line`.
    pub fn from_line(line: &str) -> Option<Self> {
        let (allow, rest) = match line.strip_prefix("deny ") {
            Some(rest) => (false, rest),
            None => (true, line),
        };
        let (rest, label) = match rest.split_once(" (") {
            Some((rest, label)) => (rest, label.strip_suffix(')')?),
            None => (rest, ""),
        };
        let (what, cidrs, inbound) = match rest.split_once(" from ") {
            Some((what, cidrs)) => (what, cidrs, true),
            None => rest.split_once(" to ").map(|(what, cidrs)| (what, cidrs, false))?,
        };
        let (protocol, ports) = what.split_once(' ').unwrap_or((what, ""));
        let cidrs: Vec<String> = cidrs.split(", ").map(str::to_owned).collect();
        let mut rule = Self::new(inbound, protocol, ports, &cidrs, label);
        rule.allow = allow;
        Some(rule)
    }
}

/// A single address as the range that holds it alone, which is how Civo shows it.
fn range(text: &str) -> String {
    match text.parse() {
        Ok(std::net::IpAddr::V4(address)) => format!("{address}/32"),
        Ok(std::net::IpAddr::V6(address)) => format!("{address}/128"),
        Err(_) => text.to_owned(),
    }
}

fn normal_ports(ports: &str) -> String {
    let ports: String = ports.chars().filter(|c| !c.is_whitespace()).collect();
    match ports.split_once('-') {
        _ if ports.is_empty() || ports == "all" => "all".into(),
        Some(("0" | "1", "65535")) => "all".into(),
        Some((start, end)) if start == end => start.into(),
        _ => ports,
    }
}

/// The lines of several rules, sorted, each once.
pub fn lines<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> Vec<String> {
    let mut lines: Vec<String> = rules.into_iter().map(Rule::to_line).collect();
    lines.sort();
    lines.dedup();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn civo(protocol: &str, start: &str, end: &str, cidr: &[&str], direction: &str) -> FirewallRule {
        FirewallRule {
            protocol: protocol.into(),
            start_port: start.into(),
            end_port: end.into(),
            cidr: cidr.iter().map(|c| c.to_string()).collect(),
            direction: direction.into(),
            ..FirewallRule::default()
        }
    }

    #[test]
    fn what_civo_shows_becomes_the_normal_form() {
        let line = |rule: FirewallRule| Rule::from_civo(&rule).to_line();
        assert_eq!(line(civo("TCP", "443", "443", &["0.0.0.0/0"], "ingress")), "tcp 443 from 0.0.0.0/0");
        assert_eq!(line(civo("tcp", "443", "", &["0.0.0.0/0"], "")), "tcp 443 from 0.0.0.0/0");
        assert_eq!(line(civo("udp", "1", "65535", &["10.0.0.0/8"], "egress")), "udp all to 10.0.0.0/8");
        assert_eq!(line(civo("icmp", "", "", &["b", "a", "b"], "ingress")), "icmp from a, b");
        let ranged = FirewallRule { ports: "8000-9000".into(), ..civo("tcp", "", "", &[], "ingress") };
        assert_eq!(line(ranged), "tcp 8000-9000 from 0.0.0.0/0");
    }

    #[test]
    fn a_line_says_everything_about_its_rule() {
        for line in [
            "tcp 443 from 0.0.0.0/0",
            "deny tcp 22 from 10.0.0.0/8, 192.168.0.0/16 (no (ssh) here)",
            "udp all to 0.0.0.0/0",
            "icmp from 10.0.0.0/8",
            "tcp 8000-9000 to ::/0 (from me to you)",
        ] {
            let rule = Rule::from_line(line).unwrap();
            assert_eq!(rule.to_line(), line);
            assert_eq!(Rule::from_civo(&rule.to_civo()), rule);
        }
        assert_eq!(Rule::from_line("nonsense"), None);
    }
}
