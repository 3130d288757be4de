//! Who a token's bearer is inside a cluster: by its access entries, or by its `aws-auth` map.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::cluster::Cluster;
use super::{access_entry, access_policy, roles, token};
use crate::aws::principal::Principal;
use crate::aws::sigv4;
use crate::aws::wire::{Scope, scope_of};
use crate::aws::{Aws, State, Store, authenticate as signatures, ids};
use crate::clock::SimTime;
use crate::http::Call;
use crate::kube::access::{Login, LoginMap, User};

/// How many of them are remembered.
const MAX_KEYS_AS_SECRETS: usize = 1000;

/// Whom a token for a cluster belongs to; otherwise why it is refused.
pub fn authenticate(aws: &Aws, cluster: &str, token: &str) -> Result<Login, String> {
    let wall_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    aws.world.with(|state: &mut State| {
        let cluster = state.store.eks.clusters.get(cluster).cloned().ok_or("no such cluster")?;
        let call = token::request(token, &cluster.name, wall_s)?;
        let scope = scope_of(&call).filter(|scope| scope.service == "sts").ok_or("the token is not signed for sts")?;
        let account = ids::account_number(state.account);
        let known = signatures::known(aws, state, &call, &scope.access_key, &account);
        let known = known.map_err(|error| error.message.clone())?;
        check_signature(aws, &call, &scope, known.secret.as_deref())?;
        log_in(state.store, &cluster, &known.principal, state.now)
    })
}

/// A token of another cluster has a signature that does not fit here. The secret of a key that the sandbox does not know is
/// taken to be the key itself, as `berth sandbox` suggests it, from the first signature on that says so.
fn check_signature(aws: &Aws, call: &Call, scope: &Scope, secret: Option<&str>) -> Result<(), String> {
    let verified = |secret: &str| sigv4::verify(call, scope, secret).is_ok();
    let mut same = aws.keys_as_secrets.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let good = match secret {
        Some(secret) => verified(secret),
        None if verified(&scope.access_key) => {
            if same.len() < MAX_KEYS_AS_SECRETS {
                same.insert(scope.access_key.clone());
            }
            true
        }
        None => !same.contains(&scope.access_key),
    };
    match good {
        true => Ok(()),
        false => Err("the token's signature is wrong, or made for another cluster".into()),
    }
}

/// The one cluster that a token is good for, where its request does not say which it means.
pub fn cluster_of(aws: &Aws, token: &str) -> Option<String> {
    if !token.starts_with("k8s-aws-") {
        return None;
    }
    let ids: Vec<String> =
        aws.world.with(|state: &mut State| state.store.eks.clusters.iter().map(|row| row.id.clone()).collect());
    let mut fitting = ids.into_iter().filter(|id| authenticate(aws, id, token).is_ok());
    let found = fitting.next();
    found.filter(|_| fitting.next().is_none())
}

fn log_in(store: &Store, cluster: &Cluster, principal: &Principal, now: SimTime) -> Result<Login, String> {
    let canonical = roles::of_session(&principal.arn);
    let mode = cluster.authentication_mode(now);
    let entry = match mode {
        "CONFIG_MAP" => None,
        _ => access_entry::of_principal(&store.eks.access_entries, &cluster.id, &canonical),
    };
    let user = entry.map(|entry| {
        let mut user = named(&entry.username, &principal.arn);
        user.groups.clone_from(&entry.groups);
        user.grants = access_policy::grants(entry);
        user
    });
    // Before there were entries, the creator was an administrator without being written anywhere.
    let creator = mode == "CONFIG_MAP" && cluster.creator_is_admin && canonical == cluster.creator;
    let user = user.or_else(|| creator.then(|| User::master("kubernetes-admin")));
    let map = (mode != "API" && user.is_none()).then(|| LoginMap {
        namespace: "kube-system",
        name: "aws-auth",
        principal: principal.arn.clone(),
        read: in_map,
    });
    if user.is_none() && map.is_none() {
        return Err(format!("{canonical} has no access entry in cluster {}", cluster.name));
    }
    let extra = BTreeMap::from([
        ("accessKeyId".to_owned(), vec![principal.access_key.clone()]),
        ("arn".to_owned(), vec![principal.arn.clone()]),
        ("canonicalArn".to_owned(), vec![canonical]),
        ("principalId".to_owned(), vec![principal.user_id.clone()]),
        ("sessionName".to_owned(), vec![session(&principal.arn).to_owned()]),
    ]);
    let uid = format!("aws-iam-authenticator:{}:{}", cluster.account, principal.user_id);
    let user = user.map(|user| User { uid, extra, ..user }.authenticated());
    Ok(Login { user, map })
}

/// `…:assumed-role/ROLE/SESSION`
fn session(arn: &str) -> &str {
    match arn.contains(":assumed-role/") {
        true => arn.rsplit('/').next().unwrap_or_default(),
        false => "",
    }
}

/// A user whose name may hold places for the session and the account.
fn named(template: &str, arn: &str) -> User {
    let account = arn.split(':').nth(4).unwrap_or_default();
    // Characters that Kubernetes does not take in names of nodes stand for others in sessions.
    let name = template
        .replace("{{SessionNameRaw}}", session(arn))
        .replace("{{SessionName}}", &session(arn).replace('@', "-"))
        .replace("{{AccountID}}", account)
        .replace("{{EC2PrivateDNSName}}", session(arn));
    User { name, ..User::default() }
}

/// Looks a principal up in the data of `aws-auth`.
fn in_map(data: &Value, principal: &str) -> Option<User> {
    let canonical = roles::of_session(principal);
    let list = |field: &str| {
        let text = data[field].as_str().unwrap_or_default();
        crate::kube::parse_yaml(text.as_bytes()).ok().and_then(|value| value.as_array().cloned()).unwrap_or_default()
    };
    let entries = list("mapRoles").into_iter().map(|entry| (entry["rolearn"].clone(), entry));
    let entries = entries.chain(list("mapUsers").into_iter().map(|entry| (entry["userarn"].clone(), entry)));
    let found = entries.into_iter().find(|(arn, _)| arn.as_str() == Some(canonical.as_str()));
    let (_, entry) = found.or_else(|| {
        let accounts = list("mapAccounts");
        let account = principal.split(':').nth(4)?;
        let known = accounts.iter().any(|one| one.as_str() == Some(account) || one.as_u64() == account.parse().ok());
        known.then(|| (Value::Null, serde_json::json!({"username": canonical})))
    })?;
    let mut user = named(entry["username"].as_str().unwrap_or(principal), principal);
    user.groups =
        entry["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    Some(user.authenticated())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_map_names_roles_and_users() {
        let data = serde_json::json!({
            "mapRoles": "- rolearn: arn:aws:iam::111122223333:role/dev\n  username: dev:{{SessionName}}\n  groups:\n  - devs\n",
            "mapUsers": "- userarn: arn:aws:iam::111122223333:user/ann\n  username: ann\n  groups: [\"system:masters\"]\n",
        });
        let role = in_map(&data, "arn:aws:sts::111122223333:assumed-role/dev/ann@example.org").unwrap();
        assert_eq!(
            (role.name.as_str(), role.groups.as_slice()),
            ("dev:ann-example.org", ["devs".into(), "system:authenticated".into()].as_slice())
        );
        assert_eq!(in_map(&data, "arn:aws:iam::111122223333:user/ann").unwrap().name, "ann");
        assert_eq!(in_map(&data, "arn:aws:iam::111122223333:user/bob"), None);
    }
}
