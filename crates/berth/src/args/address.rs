//! How resources are named on the command line: `CivoKubernetesCluster/dev`, `civokubernetesclusters/dev`, or a kind alone.

use crate::failure::Failure;
use berth_model::{Kind, ResourceId, registry};
use std::collections::HashSet;

/// Selects resources. A field that is `None` matches everything.
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

impl ScopeArgs {
    pub fn is_given(&self) -> bool {
        self.env.is_some() || self.org.is_some()
    }

    pub fn matches(&self, id: &ResourceId) -> bool {
        self.org.as_ref().is_none_or(|org| *org == id.org) && self.env.as_ref().is_none_or(|env| *env == id.env)
    }
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

    /// The flags that narrow it down, as a shell takes them.
    pub fn flags(&self) -> String {
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        ResourceId { org: part(&self.org), env: part(&self.env), ..ResourceId::new("", "") }.flags()
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

/// How resources are called beside each other: with their env where the same name is used in several.
#[derive(Debug, Default)]
pub struct Names {
    twice: HashSet<String>,
    /// Of the longest name.
    width: usize,
}

impl Names {
    pub fn of<'a>(ids: impl Iterator<Item = &'a ResourceId>) -> Self {
        let ids: Vec<&ResourceId> = ids.collect();
        let mut seen = HashSet::new();
        let twice = ids.iter().map(ToString::to_string).filter(|name| !seen.insert(name.clone())).collect();
        let mut names = Self { twice, width: 0 };
        names.width = ids.iter().map(|id| names.name(id).chars().count()).max().unwrap_or(0);
        names
    }

    pub fn width(&self) -> usize {
        self.width
    }

    pub fn name(&self, id: &ResourceId) -> String {
        let name = id.to_string();
        match self.twice.contains(&name) {
            false => name,
            true if id.org.is_empty() && id.env.is_empty() => format!("{name} (no env)"),
            true => placed(id),
        }
    }
}

/// A resource with its org and env, for lists of many that come and go.
pub fn placed(id: &ResourceId) -> String {
    match (id.org.as_str(), id.env.as_str()) {
        ("", "") => id.to_string(),
        ("", place) | (place, "") => format!("{id} ({place})"),
        (org, env) => format!("{id} ({org}, {env})"),
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
    fn the_env_is_named_where_a_name_is_used_twice() {
        let mut ids = ["CivoVpc", "CivoVpc", "CivoFirewall"].map(|kind| ResourceId::new(kind, "net"));
        ids[0].env = "dev".into();
        let names = Names::of(ids.iter());
        let shown: Vec<String> = ids.iter().map(|id| names.name(id)).collect();
        assert_eq!(shown, ["CivoVpc/net (dev)", "CivoVpc/net (no env)", "CivoFirewall/net"]);
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["CivoVpc/", "CivoVpc/a/b", "/x", "", "CivoVcp/x"] {
            assert!(Address::parse(text, &ScopeArgs::default()).is_err(), "{text}");
        }
    }
}
