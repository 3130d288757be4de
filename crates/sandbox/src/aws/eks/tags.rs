//! Tags of everything that has an ARN here.

use serde_json::{Value, json};

use super::cluster_checks;
use super::errors::About;
use crate::aws::Store;
use crate::aws::ask::{Ask, Tags};
use crate::aws::errors::{Answer, AwsError};
use crate::aws::tagging::TaggedService;

/// Runs `work` on the tags of the object with an ARN. Tables are asked by cluster, so that a foreign ARN costs nothing.
fn with_tags<R>(store: &mut Store, region: &str, arn: &str, work: impl FnOnce(&mut Tags) -> R) -> Option<R> {
    let resource = arn.splitn(6, ':').nth(5)?;
    let mut parts = resource.split('/');
    let (kind, name) = (parts.next()?, parts.next()?);
    let eks = &mut store.eks;
    let cluster = eks.clusters.first(&format!("name:{region}/{name}"))?;
    let (id, key, own) = (cluster.id.clone(), format!("cluster:{}", cluster.id), cluster.arn());
    macro_rules! in_table {
        ($table:ident) => {{
            let found = eks.$table.find(&key).find(|row| row.arn() == arn)?.id.clone();
            eks.$table.update(&found, |row| work(&mut row.tags))
        }};
    }
    match kind {
        "cluster" if own == arn => eks.clusters.update(&id, |cluster| work(&mut cluster.tags)),
        "nodegroup" => in_table!(node_groups),
        "addon" => in_table!(addons),
        "access-entry" => in_table!(access_entries),
        "podidentityassociation" => in_table!(pod_identities),
        "identityproviderconfig" => in_table!(identity_providers),
        _ => None,
    }
}

/// For those who look for tags across services.
pub struct EksTags;

impl TaggedService for EksTags {
    fn list(&self, store: &Store, region: &str, _: &str) -> Vec<(String, Tags)> {
        let (eks, mut found) = (&store.eks, Vec::new());
        macro_rules! of_table {
            ($($table:ident),+) => {$(
                let here = eks.$table.iter().filter(|row| row.region == region);
                found.extend(here.map(|row| (row.arn(), row.tags.clone())));
            )+};
        }
        of_table!(clusters, node_groups, addons, access_entries, pod_identities, identity_providers);
        found
    }

    fn change(&self, store: &mut Store, arn: &str, change: &dyn Fn(&mut Tags)) -> bool {
        let region = arn.split(':').nth(3).unwrap_or_default();
        arn.starts_with("arn:aws:eks:") && with_tags(store, region, arn, |tags| change(tags)).is_some()
    }
}

fn on<R>(ask: &mut Ask, work: impl FnOnce(&mut Tags) -> R) -> Answer<R> {
    let arn = ask.input.text("resourceArn").unwrap_or_default().to_owned();
    if !arn.starts_with("arn:aws:eks:") {
        return Err(AwsError::new(400, "BadRequestException", format!("Invalid resource ARN: {arn}")));
    }
    let region = ask.region.to_owned();
    with_tags(ask.store(), &region, &arn, work)
        .ok_or_else(|| AwsError::new(404, "NotFoundException", format!("Resource {arn} not found")))
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let tags = on(ask, |tags| tags.clone())?;
    Ok(json!({"tags": tags}))
}

pub fn tag(ask: &mut Ask) -> Answer<Value> {
    let new = ask.input.map("tags");
    if new.is_empty() {
        return Err(AwsError::new(400, "BadRequestException", "At least one tag must be provided"));
    }
    cluster_checks::tags(About::default(), &new)
        .map_err(|error| AwsError::new(400, "BadRequestException", error.message.clone()))?;
    let room = on(ask, |tags| tags.keys().filter(|key| !new.contains_key(*key)).count() + new.len() <= 50)?;
    if !room {
        return Err(AwsError::new(400, "BadRequestException", "The resource cannot have more than 50 tags"));
    }
    on(ask, |tags| tags.extend(new))?;
    Ok(json!({}))
}

pub fn untag(ask: &mut Ask) -> Answer<Value> {
    let keys: Vec<String> = ask.input.texts("tagKeys").into_iter().map(str::to_owned).collect();
    on(ask, |tags| tags.retain(|key, _| !keys.contains(key)))?;
    Ok(json!({}))
}
