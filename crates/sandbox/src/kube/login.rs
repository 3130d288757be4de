//! From what a request shows to the user it is made by.

use hyper::Method;
use serde_json::Value;

use super::access::{Rbac, User};
use super::api::{Given, Need};
use super::objects::Objects;
use super::status::{self, Refused};
use super::{Clusters, issuer, lock, types};
use crate::registry::CloudName;
use crate::world::ClusterView;

const RBAC: &str = "rbac.authorization.k8s.io";

impl Clusters {
    /// Who asks, and the cluster that is asked. A cluster that is not there is told only to those who could use it.
    pub(super) fn log_in(&self, id: &str, certified: bool, token: &str) -> Result<(User, ClusterView), Refused> {
        let view = self.world.cluster_view(id);
        let own = match () {
            () if certified => Some(User::master("admin")),
            () if !token.is_empty() && token == self.identity.token(id) => Some(User::master("token-admin")),
            () => None,
        };
        match (own, view) {
            (Some(user), Some(view)) => Ok((user, view)),
            (Some(_), None) => {
                self.forget(id);
                Err(status::no_such_cluster(id))
            }
            (None, Some(view)) if !token.is_empty() => {
                let user = self.bearer(&view, token).map_err(|why| status::bad_token(&why))?;
                Ok((user, view))
            }
            (None, _) => Err(status::unauthorized()),
        }
    }

    fn bearer(&self, view: &ClusterView, token: &str) -> Result<User, String> {
        // Every JSON Web Token begins like this.
        if token.starts_with("eyJ") {
            return self.service_account(view, token);
        }
        let api = lock(&self.clouds).get(&view.cloud).and_then(std::sync::Weak::upgrade);
        let login = api.ok_or("the token is not known")?.log_in(&view.id, token)?;
        if let Some(user) = login.user {
            return Ok(user);
        }
        let map = login.map.ok_or("the token's owner is not known here")?;
        let data = self.look(view, Need::Everything, |objects, _| {
            let found = objects.peek("", "configmaps", map.namespace, map.name)?;
            Some(found["data"].clone())
        });
        let user = data.and_then(|data| (map.read)(&data, &map.principal));
        user.ok_or_else(|| {
            format!(
                "{} has no access entry in cluster {} and is not in its {} ConfigMap",
                map.principal, view.name, map.name
            )
        })
    }

    fn service_account(&self, view: &ClusterView, token: &str) -> Result<User, String> {
        let claims = self.issuer.check(token)?;
        if claims["iss"] != self.issuer.url(&view.id) {
            return Err("the token is of another cluster".into());
        }
        let audiences = claims["aud"].as_array();
        if !audiences.into_iter().flatten().any(|audience| audience == issuer::API_AUDIENCE) {
            return Err(format!("the token is not for {}", issuer::API_AUDIENCE));
        }
        let of = &claims["kubernetes.io"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let account = &of["serviceaccount"];
        Ok(User::service_account(&text(&of["namespace"]), &text(&account["name"]), &text(&account["uid"])))
    }

    /// The cluster that a token stands for by itself.
    pub(super) fn cluster_of(&self, token: &str) -> Option<String> {
        if token.starts_with("eyJ") {
            let claims = self.issuer.check(token).ok()?;
            return claims["iss"].as_str()?.rsplit('/').next().map(str::to_owned);
        }
        let clouds: Vec<(CloudName, _)> = lock(&self.clouds).iter().map(|(name, api)| (*name, api.clone())).collect();
        let of_cloud = clouds.into_iter().find_map(|(_, api)| api.upgrade()?.cluster_of(token));
        of_cloud.or_else(|| token.split_once('.').map(|(id, _)| id.to_owned()))
    }

    /// What anybody may read of a cluster's issuer of tokens.
    pub(super) fn issuer_document(&self, method: &Method, path: &[String]) -> Option<Given> {
        let parts: Vec<&str> = path.iter().map(String::as_str).collect();
        let (id, rest) = match parts.as_slice() {
            ["id", id, rest @ ..] => (*id, rest),
            ["clusters", id, rest @ ..] if matches!(rest, [".well-known" | "openid", ..]) => (*id, rest),
            _ => return None,
        };
        let known = *method == Method::GET && self.world.cluster_view(id).is_some();
        match rest {
            [".well-known", "openid-configuration"] if known => Some(Given::Json(200, self.issuer.configuration(id))),
            ["keys"] | ["openid", "v1", "jwks"] if known => Some(Given::Json(200, self.issuer.keys())),
            _ => Some(Given::Json(404, status::no_such_path().body)),
        }
    }

    pub(super) fn rbac(&self, view: &ClusterView) -> Rbac {
        self.look(view, Need::Types, |objects, _| {
            let list = |plural: &str| all(objects, plural);
            Rbac {
                cluster_roles: list("clusterroles"),
                cluster_role_bindings: list("clusterrolebindings"),
                roles: list("roles"),
                role_bindings: list("rolebindings"),
            }
        })
    }
}

fn all(objects: &Objects, plural: &str) -> Vec<Value> {
    let Some(resource) = types::built_in(RBAC, plural) else { return vec![] };
    objects.stored(resource).map(|row| row.object.clone()).collect()
}
