//! Identity providers of a cluster: issuers of tokens other than IAM.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::cluster::Cluster;
use super::errors::About;
use super::updates;
use super::{cluster_checks, find, find_running, page};
use crate::aws::ask::{Ask, Tags};
use crate::aws::errors::Answer;
use crate::clock::SimTime;
use crate::table::Object;
use crate::world::new_id;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Provider {
    pub id: String,
    pub cluster_id: String,
    pub cluster: String,
    pub region: String,
    pub account: String,
    pub name: String,
    /// As it was given.
    config: Value,
    pub tags: Tags,
    active_at: SimTime,
    pub gone_at: Option<SimTime>,
}

impl Object for Provider {
    const TYPE: &'static str = "aws.eks_identity_provider_config";

    fn id(&self) -> &str {
        &self.id
    }

    fn gone_at(&self) -> Option<SimTime> {
        self.gone_at
    }

    fn keys(&self) -> Vec<String> {
        vec![format!("cluster:{}", self.cluster_id), format!("name:{}/{}", self.cluster_id, self.name)]
    }

    fn ledger(&self, now: SimTime) -> Value {
        json!({"name": self.name, "cluster": self.cluster, "region": self.region, "status": self.status(now), "tags": self.tags})
    }
}

impl Provider {
    pub fn arn(&self) -> String {
        let Provider { region, account, cluster, name, id, .. } = self;
        format!("arn:aws:eks:{region}:{account}:identityproviderconfig/{cluster}/oidc/{name}/{id}")
    }

    fn status(&self, now: SimTime) -> &'static str {
        match (self.gone_at, now < self.active_at) {
            (Some(_), _) => "DELETING",
            (None, true) => "CREATING",
            (None, false) => "ACTIVE",
        }
    }
}

pub fn associate(ask: &mut Ask) -> Answer<Value> {
    let cluster = updatable(ask)?;
    let about = About::cluster(&cluster.name);
    let name = ask.input.text("oidc.identityProviderConfigName").unwrap_or_default().to_owned();
    let issuer = ask.input.text("oidc.issuerUrl").unwrap_or_default();
    if name.is_empty() || ask.input.text("oidc.clientId").is_none() {
        return Err(about.bad_parameter("identityProviderConfigName and clientId are required"));
    }
    if !issuer.starts_with("https://") {
        return Err(about.bad_parameter("issuerUrl must use the https scheme"));
    }
    // A cluster takes one provider beside IAM.
    if ask.state.store.eks.identity_providers.count(&format!("cluster:{}", cluster.id)) > 0 {
        return Err(about.in_use("Identity provider config is already associated with cluster."));
    }
    let tags = ask.input.map("tags");
    cluster_checks::tags(about, &tags)?;
    let config = ask.input.at("oidc").cloned().unwrap_or_default();
    let params = vec![("IdentityProviderConfig", json!([{"type": "oidc", "name": name}]).to_string())];
    let answer =
        updates::of_cluster(ask, &cluster, "AssociateIdentityProviderConfig", params, ((600, 900), Map::new()));
    let active_at = ask.in_seconds(600, 900);
    let provider = Provider {
        id: new_id(),
        cluster_id: cluster.id.clone(),
        cluster: cluster.name.clone(),
        region: cluster.region.clone(),
        account: cluster.account.clone(),
        name,
        config,
        tags: tags.clone(),
        active_at,
        gone_at: None,
    };
    ask.store().eks.identity_providers.insert(provider);
    Ok(json!({"update": answer["update"], "tags": tags}))
}

fn updatable(ask: &Ask) -> Answer<Cluster> {
    let cluster = find_running(ask, "clusterName")?;
    match cluster.spec.updating(ask.now()) {
        None => Ok(cluster),
        Some(id) => {
            let message = format!("Cluster {} currently has update {id} in progress", cluster.name);
            Err(About::cluster(&cluster.name).in_use(message))
        }
    }
}

fn find_in<'a>(ask: &'a Ask, cluster: &Cluster) -> Answer<&'a Provider> {
    let name = ask.input.text("identityProviderConfig.name").unwrap_or_default();
    let found = ask.state.store.eks.identity_providers.first(&format!("name:{}/{name}", cluster.id));
    found.filter(|_| ask.input.text("identityProviderConfig.type") == Some("oidc")).ok_or_else(|| {
        About::cluster(&cluster.name).not_found("Identity provider config is not associated with cluster.")
    })
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let provider = find_in(ask, find(ask, "clusterName")?)?;
    let mut shown = provider.config.clone();
    shown["identityProviderConfigArn"] = json!(provider.arn());
    shown["clusterName"] = json!(provider.cluster);
    shown["status"] = json!(provider.status(ask.now()));
    shown["tags"] = json!(provider.tags);
    Ok(json!({"identityProviderConfig": {"oidc": shown}}))
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let key = format!("cluster:{}", find(ask, "clusterName")?.id);
    let rows = ask.rows(|store| &store.eks.identity_providers, &key);
    let shown = rows.iter().map(|provider| json!({"type": "oidc", "name": provider.name})).collect();
    page(ask, "identityProviderConfigs", shown)
}

pub fn disassociate(ask: &mut Ask) -> Answer<Value> {
    let cluster = updatable(ask)?;
    let provider = find_in(ask, &cluster)?.clone();
    let params = vec![("IdentityProviderConfig", json!([{"type": "oidc", "name": provider.name}]).to_string())];
    let answer =
        updates::of_cluster(ask, &cluster, "DisassociateIdentityProviderConfig", params, ((300, 600), Map::new()));
    let gone_at = ask.in_seconds(300, 600);
    ask.store().eks.identity_providers.update(&provider.id, |provider| provider.gone_at = Some(gone_at));
    Ok(answer)
}
