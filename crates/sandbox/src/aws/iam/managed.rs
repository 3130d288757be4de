//! Policies that AWS itself provides, in the version that was current when the list was made.

use std::collections::HashMap;
use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

pub struct AwsPolicy {
    pub arn: String,
    pub name: String,
    pub unique_id: String,
    pub path: String,
    pub version: String,
    pub created: String,
    pub updated: String,
    pub document: String,
}

/// One line of the list.
#[derive(Deserialize)]
struct Line {
    name: String,
    path: String,
    version: String,
    created: String,
    updated: String,
    document: Value,
}

static LINES: &str = include_str!("managed.jsonl");

pub fn all() -> &'static [AwsPolicy] {
    static ALL: OnceLock<Vec<AwsPolicy>> = OnceLock::new();
    ALL.get_or_init(|| LINES.lines().filter_map(|line| Some(policy(serde_json::from_str(line).ok()?))).collect())
}

pub fn get(arn: &str) -> Option<&'static AwsPolicy> {
    static BY_ARN: OnceLock<HashMap<&'static str, &'static AwsPolicy>> = OnceLock::new();
    let by_arn = BY_ARN.get_or_init(|| all().iter().map(|policy| (policy.arn.as_str(), policy)).collect());
    by_arn.get(arn).copied()
}

fn policy(line: Line) -> AwsPolicy {
    let digest = Sha256::digest(line.name.as_bytes());
    let id: String = digest.iter().take(17).map(|byte| char::from(b'A' + byte % 26)).collect();
    AwsPolicy {
        arn: format!("arn:aws:iam::aws:policy{}{}", line.path, line.name),
        unique_id: format!("ANPA{id}"),
        name: line.name,
        path: line.path,
        version: line.version,
        created: line.created,
        updated: line.updated,
        document: line.document.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::iam::document::{Attached, parse};

    #[test]
    fn every_policy_of_the_list_can_be_read() {
        assert_eq!(all().len(), LINES.lines().count());
        for policy in all() {
            assert!(parse(&policy.document, Attached::Identity).is_ok(), "{}", policy.arn);
        }
        assert!(get("arn:aws:iam::aws:policy/AmazonEKSClusterPolicy").is_some());
        assert!(get("arn:aws:iam::aws:policy/service-role/AmazonEBSCSIDriverPolicy").is_some());
    }
}
