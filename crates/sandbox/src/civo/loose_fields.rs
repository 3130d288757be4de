//! Fields that Civo's clients send in more than one form.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer};

/// `"a b"`, `"a,b"` or `["a", "b"]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum WordList {
    One(String),
    Many(Vec<String>),
}

impl WordList {
    pub fn list(self) -> Vec<String> {
        match self {
            WordList::One(text) => text.split_whitespace().map(str::to_owned).collect(),
            WordList::Many(list) => list,
        }
    }
}

/// `true`, `"true"`, `false`, `"false"`.
pub fn loose_bool<'de, D: Deserializer<'de>>(input: D) -> Result<Option<bool>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Loose {
        Bool(bool),
        Text(String),
    }
    Ok(match Option::<Loose>::deserialize(input)? {
        Some(Loose::Bool(value)) => Some(value),
        Some(Loose::Text(text)) if !text.is_empty() => Some(text.eq_ignore_ascii_case("true")),
        _ => None,
    })
}

/// An address, or an address and a prefix length that fits it.
pub fn valid_cidr(text: &str) -> bool {
    let (address, prefix) = text.split_once('/').unwrap_or((text, "0"));
    let longest = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    prefix.len() <= 3 && prefix.parse::<u8>().is_ok_and(|bits| bits <= longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cidrs_are_checked() {
        for good in ["0.0.0.0/0", "10.0.0.0/24", "1.2.3.4", "::/0", "fd00::/64"] {
            assert!(valid_cidr(good), "{good}");
        }
        for bad in ["", "10.0.0.0/33", "10.0.0/24", "::/129", "10.0.0.0/", "10.0.0.0/+8x"] {
            assert!(!valid_cidr(bad), "{bad}");
        }
    }

    #[test]
    fn tags_come_as_text_or_list() {
        let words = |json: &str| serde_json::from_str::<WordList>(json).map(WordList::list).unwrap_or_default();
        assert_eq!(words("\"a  b\""), ["a", "b"]);
        assert_eq!(words("[\"a b\", \"c\"]"), ["a b", "c"]);
        assert!(words("\"\"").is_empty());
    }
}
