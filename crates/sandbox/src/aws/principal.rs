//! Who calls: keys that are known, and whom they belong to.

use std::collections::HashMap;
use std::path::Path;

/// Whom a call is made by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub arn: String,
    /// As `GetCallerIdentity` shows it.
    pub user_id: String,
    pub access_key: String,
    pub identity: Identity,
}

/// Whose policies decide what a principal may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// May do everything; the name of its user.
    Administrator(String),
    /// A user of IAM, by name.
    User(String),
    /// A session of a role, by its name, with the documents that narrow it.
    Role { name: String, policies: Vec<String> },
    /// Nobody has signed.
    Nobody,
}

/// The keys that a sandbox takes: access key id to name and secret.
pub struct Credentials(HashMap<String, Key>);

struct Key {
    profile: String,
    secret: String,
}

impl Credentials {
    /// Reads a file in the form of `~/.aws/credentials`. Each profile is a user of that name.
    pub fn read(file: &Path) -> Result<Credentials, String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut sections = Vec::<(String, HashMap<String, String>)>::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])) {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                sections.push((name.trim().trim_start_matches("profile ").to_owned(), HashMap::new()));
            } else if let (Some((key, value)), Some((_, section))) = (line.split_once('='), sections.last_mut()) {
                section.insert(key.trim().to_lowercase(), value.trim().to_owned());
            }
        }
        let key = |(profile, mut section): (String, HashMap<String, String>)| {
            let (id, secret) = (section.remove("aws_access_key_id")?, section.remove("aws_secret_access_key")?);
            Some((id, Key { profile, secret }))
        };
        let keys: HashMap<_, _> = sections.into_iter().filter_map(key).collect();
        match keys.is_empty() {
            true => Err(format!("{}: no profile with aws_access_key_id and aws_secret_access_key", file.display())),
            false => Ok(Credentials(keys)),
        }
    }

    pub fn secret(&self, access_key: &str) -> Option<&str> {
        self.0.get(access_key).map(|key| key.secret.as_str())
    }

    pub fn profile(&self, access_key: &str) -> Option<&str> {
        self.0.get(access_key).map(|key| key.profile.as_str())
    }
}

/// Any key belongs to this user where nothing else is known of it; it may do everything.
pub const ANYBODY: &str = "sandbox";
