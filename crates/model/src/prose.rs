//! Text for people.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A sentence for people. It can be shown, passed on and compared with another one, and nothing else: it has none of the
/// methods of `str`, so that no decision can be made from its wording. What a program has to know stands beside it, in a type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Prose(String);

impl Prose {
    /// The sentence with the name of what it is about in front, unless it says the name itself.
    pub fn about(&self, name: &str) -> String {
        if name.is_empty() || self.0.contains(name) { self.0.clone() } else { format!("{name}: {}", self.0) }
    }
}

impl fmt::Display for Prose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Prose {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Prose {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<Prose> for String {
    fn from(prose: Prose) -> Self {
        prose.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_said_once() {
        assert_eq!(Prose::from("it is too large").about("CivoVpc/net"), "CivoVpc/net: it is too large");
        assert_eq!(Prose::from("CivoVpc/net is too large").about("CivoVpc/net"), "CivoVpc/net is too large");
        assert_eq!(Prose::from("it is too large").about(""), "it is too large");
    }
}
