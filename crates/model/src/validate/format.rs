//! Syntaxes that a pattern cannot say well: address ranges, ports, versions, times.

use super::rules::{Subject, Violation};
use crate::phrasing;
use crate::registry::registry;
use crate::rule::{RuleError, parse_rule};
use crate::schedule::Schedule;
use ipnet::IpNet;
use std::net::IpAddr;
use std::time::Duration;

/// A syntax named by the `(berth.format)` option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// What a cloud may take as an object's name, or as a tag.
    ObjectName,
    Cidr,
    Cidr24,
    Cidr162024,
    IpOrCidr,
    PortRange,
    Version,
    Duration,
    MaintenanceWindow,
    Schedule,
    /// CEL over a plan.
    Rule,
    /// The name of a kind.
    Kind,
    /// A name that no code knows: a test refuses it in any kind.
    Unknown,
}

const DAYS: [&str; 8] = ["any", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

impl Format {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "" => return None,
            "object_name" => Format::ObjectName,
            "cidr" => Format::Cidr,
            "cidr_24" => Format::Cidr24,
            "cidr_16_20_24" => Format::Cidr162024,
            "ip_or_cidr" => Format::IpOrCidr,
            "port_range" => Format::PortRange,
            "version" => Format::Version,
            "duration" => Format::Duration,
            "maintenance_window" => Format::MaintenanceWindow,
            "schedule" => Format::Schedule,
            "rule" => Format::Rule,
            "kind" => Format::Kind,
            _ => Format::Unknown,
        })
    }

    /// What it looks like, for `explain`.
    pub fn describe(self) -> &'static str {
        match self {
            Format::ObjectName => "text as the cloud has it",
            Format::Cidr => "address range (CIDR)",
            Format::Cidr24 => "IPv4 range (CIDR), /24 or wider",
            Format::Cidr162024 => "IPv4 range (CIDR), /16, /20 or /24",
            Format::IpOrCidr => "address, or range (CIDR)",
            Format::PortRange => "port, or ports a-b",
            Format::Version => "explicit version",
            Format::Duration => "duration, such as 90s, 20m or 1h",
            Format::MaintenanceWindow => "day=HH:MM",
            Format::Schedule => "interval such as 30m, cron pattern, or off",
            Format::Rule => "CEL, true or false",
            Format::Kind => "name of a kind",
            Format::Unknown => "unknown format",
        }
    }

    /// What is wrong with a value that is not empty.
    pub(crate) fn broken(self, subject: &Subject<'_>, value: &str) -> Option<Violation> {
        let message = match self {
            Format::ObjectName => object_name(subject, value),
            Format::Cidr => cidr(subject, value, "10.20.0.0/24").err(),
            Format::Cidr24 => range_v4(subject, value, "10.20.0.0/24", |prefix| {
                (prefix > 24).then(|| format!("{} must be /24 or wider, not /{prefix}", subject.bare()))
            }),
            Format::Cidr162024 => range_v4(subject, value, "10.30.0.0/20", |prefix| {
                (![16, 20, 24].contains(&prefix))
                    .then(|| format!("{} must be a /16, /20 or /24, not /{prefix}", subject.bare()))
            }),
            Format::IpOrCidr => match value.parse::<IpAddr>() {
                Ok(_) => None,
                Err(_) if value.contains('/') => cidr(subject, value, "203.0.113.0/24").err(),
                Err(_) => Some(format!(
                    "{} is not an address such as 203.0.113.7 or a range such as 203.0.113.0/24",
                    subject.with(value)
                )),
            },
            Format::PortRange => ports(subject, value),
            Format::Version => version(subject, value),
            Format::Duration => duration(value)
                .is_none()
                .then(|| format!("{} is not a duration such as 90s, 20m or 1h", subject.with(value))),
            Format::MaintenanceWindow => return window(subject, value),
            Format::Schedule => Schedule::parse(value).err().map(|error| format!("{} {error}", subject.with(value))),
            Format::Rule => return rule(subject, value),
            Format::Kind => return kind(subject, value),
            Format::Unknown => Some(format!("{} has a format that is not known", subject.bare())),
        };
        message.map(Violation::new)
    }
}

/// Text of visible characters; the cloud itself says which of them it takes.
fn object_name(subject: &Subject<'_>, value: &str) -> Option<String> {
    // Marks that change how the text around them is shown.
    let hidden =
        |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    if value.trim() != value {
        return Some(format!("{} must not begin or end with a space", subject.with(value)));
    }
    value
        .chars()
        .any(|c| c.is_control() || hidden(c))
        .then(|| format!("{} has characters that cannot be seen", subject.bare()))
}

fn cidr(subject: &Subject<'_>, value: &str, example: &str) -> Result<IpNet, String> {
    let net: IpNet =
        value.parse().map_err(|_| format!("{} is not an address range such as {example}", subject.with(value)))?;
    if net.addr() != net.network() {
        return Err(format!("{} has bits set beyond its prefix: the range is {}", subject.with(value), net.trunc()));
    }
    Ok(net)
}

fn range_v4(
    subject: &Subject<'_>,
    value: &str,
    example: &str,
    refuse: impl Fn(u8) -> Option<String>,
) -> Option<String> {
    match cidr(subject, value, example) {
        Err(message) => Some(message),
        Ok(IpNet::V6(_)) => Some(format!("{} must be an IPv4 range such as {example}", subject.bare())),
        Ok(IpNet::V4(net)) => refuse(net.prefix_len()),
    }
}

fn ports(subject: &Subject<'_>, value: &str) -> Option<String> {
    let port = |text: &str| -> Option<u32> {
        if text.is_empty() || text.len() > 9 || !text.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        text.parse().ok()
    };
    let (first, last) = match value.split_once('-') {
        Some((first, last)) => (port(first), port(last)),
        None => (port(value), port(value)),
    };
    let (Some(first), Some(last)) = (first, last) else {
        return Some(format!("{} is not a port such as 443 or a range such as 8000-9000", subject.with(value)));
    };
    if [first, last].iter().any(|port| !(1..=65535).contains(port)) {
        return Some(format!("{} is out of bounds: ports go from 1 to 65535", subject.with(value)));
    }
    (first > last).then(|| format!("{} is upside down: did you mean `{last}-{first}`?", subject.with(value)))
}

/// Takes the forms people write: `1.29` (the newest patch on offer), `1.29.0`, `v1.29.0`, `1.29.0-k3s1`, `1.29.0+k3s1`,
/// `1.33.1-do.0`, `talos-v1.5.0`.
fn version(subject: &Subject<'_>, value: &str) -> Option<String> {
    if value.eq_ignore_ascii_case("latest") || value.eq_ignore_ascii_case("stable") {
        return Some(format!(
            "{} must be explicit, not {}: the same manifest would mean another version tomorrow",
            subject.bare(),
            phrasing::shown(value)
        ));
    }
    let core = value.strip_prefix("talos-").unwrap_or(value);
    let core = core.strip_prefix('v').unwrap_or(core);
    let (numbers, suffix) = match core.find(['-', '+']) {
        Some(at) => (&core[..at], Some(&core[at + 1..])),
        None => (core, None),
    };
    let number = |part: &str| !part.is_empty() && part.len() <= 4 && part.bytes().all(|b| b.is_ascii_digit());
    let parts: Vec<&str> = numbers.split('.').collect();
    let suffix_fits = suffix.is_none_or(|suffix| {
        !suffix.is_empty()
            && suffix.len() <= 32
            && suffix.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-')
    });
    let whole = parts.len() == 3 || (parts.len() == 2 && suffix.is_none() && !value.starts_with("talos-"));
    let fits = whole && parts.iter().all(|part| number(part)) && suffix_fits;
    (!fits).then(|| format!("{} is not a version such as 1.30.5", subject.with(value)))
}

fn window(subject: &Subject<'_>, value: &str) -> Option<Violation> {
    let Some((day, time)) = value.split_once('=') else {
        let message = format!("{} is not a day and a time such as sunday=02:00", subject.with(value));
        return Some(Violation::new(message));
    };
    if !DAYS.contains(&day) {
        let message = format!("the day must be {}, not {}", phrasing::either(&DAYS), phrasing::shown(day));
        return Some(Violation { label: phrasing::did_you_mean(day, DAYS), ..Violation::new(message) });
    }
    let clock = |part: &str, below: u8| {
        part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit()) && part.parse::<u8>().is_ok_and(|n| n < below)
    };
    let fits = time.split_once(':').is_some_and(|(hours, minutes)| clock(hours, 24) && clock(minutes, 60));
    (!fits).then(|| Violation::new(format!("{} is not a time of day such as 02:00", phrasing::shown(time))))
}

fn rule(subject: &Subject<'_>, value: &str) -> Option<Violation> {
    let RuleError { message, at, label } = parse_rule(value).err()?;
    let message = format!("{} cannot be used: {message}", subject.bare());
    Some(Violation { label, within: at, ..Violation::new(message) })
}

fn kind(subject: &Subject<'_>, value: &str) -> Option<Violation> {
    let message = match (registry().kind(value), registry().find(value)) {
        (Some(_), _) => return None,
        (None, Some(kind)) => {
            let message = format!("{} must be `{}`, not {}", subject.bare(), kind.name, phrasing::shown(value));
            return Some(Violation { label: Some(format!("write `{}`", kind.name)), ..Violation::new(message) });
        }
        (None, None) => format!("{} is not the name of a kind", subject.with(value)),
    };
    let near = phrasing::did_you_mean(value, registry().kinds().map(|kind| kind.name.as_str()));
    Some(Violation { label: near, ..Violation::new(message) })
}

/// `90s`, `20m`, `1h`, `1h30m`; at least a second, at most a week.
pub fn duration(text: &str) -> Option<Duration> {
    const LONGEST: u64 = 7 * 24 * 3600;
    let mut seconds: u64 = 0;
    let mut rest = text;
    let mut smallest = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest.get(..digits).filter(|digits| !digits.is_empty() && digits.len() <= 9)?.parse().ok()?;
        let unit = match rest.as_bytes().get(digits)? {
            b's' => 1,
            b'm' => 60,
            b'h' => 3600,
            _ => return None,
        };
        // Each unit once, large ones first: `30m1h` is more likely a slip than a wish.
        if unit >= smallest {
            return None;
        }
        smallest = unit;
        seconds += number * unit;
        rest = &rest[digits + 1..];
    }
    (1..=LONGEST).contains(&seconds).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(format: Format, value: &str) -> Option<String> {
        let subject = Subject { human: "it", of: "", hint: "", secret: false };
        format.broken(&subject, value).map(|violation| violation.message)
    }

    #[test]
    fn versions_come_in_the_forms_people_write() {
        for fine in ["1.29", "v1.29", "1.29.0", "v1.29.0", "1.29.0-k3s1", "1.29.0+k3s1", "1.33.1-do.0", "talos-v1.5.0"]
        {
            assert_eq!(broken(Format::Version, fine), None, "{fine}");
        }
        for (bad, message) in [
            ("latest", "it must be explicit, not `latest`: the same manifest would mean another version tomorrow"),
            ("1.29-k3s1", "it `1.29-k3s1` is not a version such as 1.30.5"),
            ("1", "it `1` is not a version such as 1.30.5"),
            ("1.29.x", "it `1.29.x` is not a version such as 1.30.5"),
            ("1.29.0-", "it `1.29.0-` is not a version such as 1.30.5"),
        ] {
            assert_eq!(broken(Format::Version, bad).as_deref(), Some(message));
        }
    }

    #[test]
    fn ranges_say_the_right_network() {
        assert_eq!(broken(Format::Cidr, "0.0.0.0/0"), None);
        assert_eq!(broken(Format::Cidr, "2001:db8::/32"), None);
        assert_eq!(
            broken(Format::Cidr, "10.20.0.5/24").as_deref(),
            Some("it `10.20.0.5/24` has bits set beyond its prefix: the range is 10.20.0.0/24")
        );
        assert_eq!(broken(Format::Cidr24, "10.0.0.0/25").as_deref(), Some("it must be /24 or wider, not /25"));
        assert_eq!(broken(Format::Cidr162024, "10.0.0.0/22").as_deref(), Some("it must be a /16, /20 or /24, not /22"));
        assert_eq!(broken(Format::IpOrCidr, "203.0.113.7"), None);
    }

    #[test]
    fn ports_are_in_bounds_and_in_order() {
        assert_eq!(broken(Format::PortRange, "443"), None);
        assert_eq!(broken(Format::PortRange, "8000-9000"), None);
        for bad in ["0", "65536", "9000-8000", "80,443", "-1", "80-", "+80"] {
            assert!(broken(Format::PortRange, bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn durations_are_strict() {
        assert_eq!(duration("1h30m"), Some(Duration::from_secs(5400)));
        for bad in ["", "90", "s", "30m1h", "0s", "999h", "1d", "-1s", "1m1m"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }
}
