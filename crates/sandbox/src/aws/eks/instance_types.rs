//! Machine types of EC2: what their names say of processors, memory and architecture.

/// What a node of a type has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceType {
    pub cpus: u32,
    pub memory_mib: u64,
    pub arm: bool,
    /// How many pods the network plugin has addresses for.
    pub pods: u32,
}

const FAMILIES: &str = "acdfghimprtuvxz";

/// `m6g.2xlarge`; nothing where there is no such type.
pub fn find(name: &str) -> Option<InstanceType> {
    let (family, size) = name.split_once('.')?;
    let letters: String = family.chars().take_while(char::is_ascii_lowercase).collect();
    let rest = family.strip_prefix(letters.as_str())?;
    let generation: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let suffix = rest.strip_prefix(generation.as_str())?;
    let first = letters.chars().next()?;
    let known = FAMILIES.contains(first) && letters.len() <= 4 && generation.len() == 1;
    if !known || suffix.len() > 4 || !suffix.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') {
        return None;
    }
    let burstable = first == 't';
    let cpus = match size {
        "nano" | "micro" | "small" if burstable => 2,
        "medium" if burstable => 2,
        "medium" => 1,
        "large" => 2,
        "xlarge" => 4,
        "metal" => 96,
        _ => {
            let times: u32 = size.strip_suffix("xlarge")?.parse().ok().filter(|times| (2..=112).contains(times))?;
            if burstable && times > 2 {
                return None;
            }
            times * 4
        }
    };
    let memory_mib = match (first, size) {
        ('t', "nano") => 512,
        ('t', "micro") => 1024,
        ('t', "small") => 2048,
        ('c', _) => u64::from(cpus) * 2048,
        ('t', "medium") => 4096,
        ('r' | 'z' | 'i' | 'h', _) => u64::from(cpus) * 8192,
        ('x' | 'u', _) => u64::from(cpus) * 16384,
        _ => u64::from(cpus) * 4096,
    };
    let pods = match cpus {
        1 => 8,
        2 if memory_mib <= 1024 => 4,
        2 if memory_mib <= 2048 => 11,
        2 if memory_mib <= 4096 && burstable => 17,
        2 if burstable => 35,
        2 => 29,
        4..=8 => 58,
        9..=48 => 234,
        _ => 737,
    };
    Some(InstanceType { cpus, memory_mib, arm: first == 'a' || suffix.contains('g'), pods })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_a_machine_has() {
        for (name, cpus, gib, arm) in [
            ("t3.medium", 2, 4, false),
            ("t4g.small", 2, 2, true),
            ("m5.large", 2, 8, false),
            ("m6g.2xlarge", 8, 32, true),
            ("c7i.4xlarge", 16, 32, false),
            ("r6i.xlarge", 4, 32, false),
        ] {
            let found = find(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!((found.cpus, found.memory_mib, found.arm), (cpus, gib * 1024, arm), "{name}");
        }
        for name in ["", "m5", "m5.huge", "large.m5", "t3.16xlarge", "q1.large", "m5.1xlarge", "M5.large"] {
            assert_eq!(find(name), None, "{name}");
        }
    }
}
