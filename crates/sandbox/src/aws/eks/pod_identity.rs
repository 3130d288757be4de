//! Pod identity associations: the role that pods of a service account get.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::addon::Addon;
use super::cluster::Cluster;
use super::errors::About;
use super::{cluster_checks, find, find_running, find_staying, page, roles, time};
use crate::aws::ask::{Ask, Input, Tags};
use crate::aws::errors::Answer;
use crate::clock::SimTime;
use crate::table::Object;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Association {
    /// `a-…`
    pub id: String,
    pub cluster_id: String,
    pub cluster: String,
    pub region: String,
    pub account: String,
    pub namespace: String,
    pub service_account: String,
    pub role: String,
    target_role: Option<String>,
    external_id: Option<String>,
    policy: Option<String>,
    disable_session_tags: bool,
    /// The ARN of the add-on that it belongs to.
    pub owner: Option<String>,
    pub tags: Tags,
    created_at: SimTime,
    modified_at: SimTime,
    pub gone_at: Option<SimTime>,
}

impl Object for Association {
    const TYPE: &'static str = "aws.eks_pod_identity_association";

    fn id(&self) -> &str {
        &self.id
    }

    fn keys(&self) -> Vec<String> {
        let Association { cluster_id, namespace, service_account, .. } = self;
        vec![format!("cluster:{cluster_id}"), format!("for:{cluster_id}/{namespace}/{service_account}")]
    }

    fn gone_at(&self) -> Option<SimTime> {
        self.gone_at
    }

    fn ledger(&self, _: SimTime) -> Value {
        json!({"cluster": self.cluster, "region": self.region, "namespace": self.namespace,
               "service_account": self.service_account, "role": self.role, "tags": self.tags,
               "created_at": self.created_at.rfc3339()})
    }
}

impl Association {
    pub fn arn(&self) -> String {
        let Association { region, account, cluster, id, .. } = self;
        format!("arn:aws:eks:{region}:{account}:podidentityassociation/{cluster}/{id}")
    }

    fn shown(&self) -> Value {
        let mut shown = json!({
            "clusterName": self.cluster, "namespace": self.namespace, "serviceAccount": self.service_account, "roleArn": self.role,
            "associationArn": self.arn(), "associationId": self.id, "tags": self.tags, "createdAt": time(self.created_at),
            "modifiedAt": time(self.modified_at), "disableSessionTags": self.disable_session_tags,
        });
        let optional = [
            ("ownerArn", &self.owner),
            ("targetRoleArn", &self.target_role),
            ("externalId", &self.external_id),
            ("policy", &self.policy),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                shown[name] = json!(value);
            }
        }
        shown
    }
}

fn check_role(ask: &Ask, about: About, role: &str) -> Answer<()> {
    crate::aws::authenticate::pass_role(ask, role, "pods.eks.amazonaws.com")?;
    match roles::is_role(role) && roles::principal_exists(ask, role) {
        true => Ok(()),
        false => Err(about.bad_parameter("Role provided in the request does not exist.")),
    }
}

fn find_in<'a>(ask: &'a Ask, cluster: &Cluster) -> Answer<&'a Association> {
    let id = ask.input.text("associationId").unwrap_or_default();
    let found = ask.state.store.eks.pod_identities.get(id).filter(|one| one.cluster_id == cluster.id);
    found.ok_or_else(|| {
        About::cluster(&cluster.name)
            .not_found(format!("No association found for id: {id} in cluster {}", cluster.name))
    })
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let cluster = find_running(ask, "clusterName")?;
    let about = About::cluster(&cluster.name);
    let (namespace, account) = (ask.input.text("namespace"), ask.input.text("serviceAccount"));
    let (Some(namespace), Some(service_account)) = (namespace, account) else {
        return Err(about.bad_parameter("namespace and serviceAccount are required"));
    };
    let key = format!("for:{}/{namespace}/{service_account}", cluster.id);
    if let Some(taken) = ask.state.store.eks.pod_identities.first(&key) {
        return Err(about.in_use(format!("Association already exists: {}", taken.id)));
    }
    let role = ask.input.text("roleArn").unwrap_or_default();
    check_role(ask, about, role)?;
    let tags = ask.input.map("tags");
    cluster_checks::tags(about, &tags)?;
    let mut one = new(ask, &cluster, namespace, service_account, role);
    one.tags = tags;
    one.disable_session_tags = ask.input.flag("disableSessionTags").unwrap_or(false);
    one.policy = ask.input.text("policy").map(str::to_owned);
    set_target(ask, &mut one);
    let shown = one.shown();
    ask.store().eks.pod_identities.insert(one);
    Ok(json!({"association": shown}))
}

/// A role in another account is taken with an id that its trust policy can ask for.
fn set_target(ask: &Ask, one: &mut Association) {
    if let Some(target) = ask.input.text("targetRoleArn") {
        one.target_role = Some(target.to_owned()).filter(|target| !target.is_empty());
        one.external_id = one.target_role.as_ref().map(|_| {
            let Association { region, account, cluster, namespace, service_account, .. } = &*one;
            format!("{region}/{account}/{cluster}/{namespace}/{service_account}")
        });
    }
}

fn new(ask: &Ask, cluster: &Cluster, namespace: &str, service_account: &str, role: &str) -> Association {
    Association {
        id: format!("a-{}", crate::aws::ids::hex(17)),
        cluster_id: cluster.id.clone(),
        cluster: cluster.name.clone(),
        region: cluster.region.clone(),
        account: cluster.account.clone(),
        namespace: namespace.to_owned(),
        service_account: service_account.to_owned(),
        role: role.to_owned(),
        target_role: None,
        external_id: None,
        policy: None,
        disable_session_tags: false,
        owner: None,
        tags: Tags::new(),
        created_at: ask.now(),
        modified_at: ask.now(),
        gone_at: None,
    }
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let cluster = find(ask, "clusterName")?;
    Ok(json!({"association": find_in(ask, cluster)?.shown()}))
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let cluster = find(ask, "clusterName")?;
    let (namespace, account) = (ask.input.text("namespace"), ask.input.text("serviceAccount"));
    let rows = ask.rows(|store| &store.eks.pod_identities, &format!("cluster:{}", cluster.id));
    let shown = rows
        .iter()
        .filter(|one| namespace.is_none_or(|name| name == one.namespace))
        .filter(|one| account.is_none_or(|name| name == one.service_account))
        .map(|one| {
            let mut shown = json!({
                "clusterName": one.cluster, "namespace": one.namespace, "serviceAccount": one.service_account,
                "associationArn": one.arn(), "associationId": one.id,
            });
            if let Some(owner) = &one.owner {
                shown["ownerArn"] = json!(owner);
            }
            shown
        })
        .collect();
    page(ask, "associations", shown)
}

pub fn update(ask: &mut Ask) -> Answer<Value> {
    let cluster = find_staying(ask, "clusterName")?;
    let (about, now) = (About::cluster(&cluster.name), ask.now());
    let mut one = find_in(ask, &cluster)?.clone();
    if let Some(owner) = &one.owner {
        return Err(about.bad_request(format!("The association is managed by {owner}: update the add-on instead")));
    }
    if let Some(role) = ask.input.text("roleArn") {
        check_role(ask, about, role)?;
        one.role = role.to_owned();
    }
    if let Some(disable) = ask.input.flag("disableSessionTags") {
        one.disable_session_tags = disable;
    }
    if let Some(policy) = ask.input.text("policy") {
        one.policy = Some(policy.to_owned()).filter(|policy| !policy.is_empty());
    }
    set_target(ask, &mut one);
    one.modified_at = now;
    let shown = one.shown();
    ask.store().eks.pod_identities.update(&one.id.clone(), |row| *row = one);
    Ok(json!({"association": shown}))
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let cluster = find_staying(ask, "clusterName")?;
    let one = find_in(ask, &cluster)?.clone();
    ask.store().eks.pod_identities.remove(&one.id);
    Ok(json!({"association": one.shown()}))
}

/// The ARNs of an add-on's associations.
pub fn owned_by(ask: &Ask, addon: &Addon) -> Vec<String> {
    let owner = addon.arn();
    let rows = ask.state.store.eks.pod_identities.find(&format!("cluster:{}", addon.cluster_id));
    rows.filter(|one| one.owner.as_ref() == Some(&owner)).map(Association::arn).collect()
}

/// Makes an add-on's associations what was asked for; those that stay as they are keep their ids.
pub fn set_owned(ask: &mut Ask, cluster: &Cluster, addon: &Addon, namespace: &str, wanted: &[Input]) {
    let owner = addon.arn();
    let pair =
        |input: &Input| (input.text("serviceAccount").map(str::to_owned), input.text("roleArn").map(str::to_owned));
    let mut missing: Vec<_> = wanted.iter().map(pair).collect();
    let rows = ask.state.store.eks.pod_identities.find(&format!("cluster:{}", cluster.id));
    let own: Vec<Association> = rows.filter(|one| one.owner.as_ref() == Some(&owner)).cloned().collect();
    for one in own {
        let same = (Some(one.service_account.clone()), Some(one.role.clone()));
        match missing.iter().position(|pair| *pair == same) {
            Some(at) => _ = missing.remove(at),
            None => _ = ask.store().eks.pod_identities.remove(&one.id),
        }
    }
    for (account, role) in missing {
        let (account, role) = (account.unwrap_or_default(), role.unwrap_or_default());
        let mut one = new(ask, cluster, namespace, &account, &role);
        one.owner = Some(owner.clone());
        ask.store().eks.pod_identities.insert(one);
    }
}
