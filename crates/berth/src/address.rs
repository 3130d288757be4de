//! How resources are named on the command line: `CivoKubernetesCluster/dev`, `civokubernetesclusters/dev`, or a kind alone.

use crate::failure::Failure;
use berth_model::{Kind, ResourceId, registry};

/// Which resources are meant. What is `None` is not narrowed down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub kind: String,
    pub name: Option<String>,
    pub org: Option<String>,
    pub env: Option<String>,
}

/// Narrows addresses down, where a name is used in several environments.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ScopeArgs {
    /// Only resources of this environment
    #[arg(long, value_name = "ENV")]
    pub env: Option<String>,
    /// Only resources of this organisation
    #[arg(long, value_name = "ORG")]
    pub org: Option<String>,
}

impl Address {
    pub fn parse(text: &str, scope: &ScopeArgs) -> Result<Self, Failure> {
        let (kind, name) = match text.split_once('/') {
            Some((kind, name)) => (kind, Some(name)),
            None => (text, None),
        };
        if let Some(name) = name
            && (name.is_empty() || name.contains('/'))
        {
            return Err(Failure::new(format!("`{text}` is not an address"))
                .help("write Kind/name, such as CivoKubernetesCluster/shop"));
        }
        Ok(Self {
            kind: find_kind(kind)?.name.clone(),
            name: name.map(str::to_owned),
            org: scope.org.clone(),
            env: scope.env.clone(),
        })
    }

    pub fn matches(&self, id: &ResourceId) -> bool {
        self.kind == id.kind
            && self.name.as_ref().is_none_or(|name| *name == id.name)
            && self.org.as_ref().is_none_or(|org| *org == id.org)
            && self.env.as_ref().is_none_or(|env| *env == id.env)
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{}/{name}", self.kind),
            None => f.write_str(&self.kind),
        }
    }
}

/// A kind as people type it, or what they may have meant.
pub fn find_kind(typed: &str) -> Result<&'static Kind, Failure> {
    registry().find(typed).ok_or_else(|| {
        let failure = Failure::new(format!("there is no kind `{typed}`"));
        match registry().nearest(typed) {
            Some(near) => failure.help(format!("did you mean `{}`?", near.name)),
            None => failure.help("to see all of them:   berth kinds"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_taken_as_people_type_them() {
        for text in ["CivoKubernetesCluster/dev", "civokubernetescluster/dev", "civokubernetesclusters/dev"] {
            let address = Address::parse(text, &ScopeArgs::default()).unwrap();
            assert_eq!(address.to_string(), "CivoKubernetesCluster/dev");
        }
        let all = Address::parse("civovpcs", &ScopeArgs { env: Some("prod".into()), org: None }).unwrap();
        let mut id = ResourceId::new("CivoVpc", "any");
        assert!(!all.matches(&id));
        id.env = "prod".into();
        assert!(all.matches(&id));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["CivoVpc/", "CivoVpc/a/b", "/x", "", "CivoVcp/x"] {
            assert!(Address::parse(text, &ScopeArgs::default()).is_err(), "{text}");
        }
    }
}
