//! Who gets into a cluster, and what they may do there.

use hyper::Method;
use serde_json::{Value, json};

use super::client::{Eks, element, encoded};

const OWN: (&str, &str) = ("AKIA", "AKIA");
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn status(eks: &Eks, cluster: &Value, token: &str, path: &str) -> u16 {
    eks.kube(cluster, token, Method::GET, path, Value::Null).await.0
}

#[tokio::test]
async fn tokens_are_taken_from_their_cluster_alone() {
    let eks = Eks::instant().await;
    let (shop, other) = (eks.cluster("shop").await, eks.cluster("other").await);
    let token = eks.token("shop", OWN, None);
    assert_eq!(status(&eks, &shop, &token, "/api/v1/nodes").await, 200);
    assert_eq!(status(&eks, &shop, "", "/api/v1/nodes").await, 401);
    let url = eks.presigned("shop", OWN, None);
    for (bad, why) in [
        (eks.token("other", OWN, None), "made for another cluster"),
        (eks.token_of(&url.replace("Signature=", "Signature=0")), "signature is wrong"),
        (eks.token_of(&url.replace("Expires=60", "Expires=61")), "signature is wrong"),
        (eks.token_of(&format!("{url}&X=1")), "non-whitelisted"),
        (eks.token_of(&url.replace("GetCallerIdentity", "GetSessionToken")), "unexpected action"),
        (format!("k8s-aws-v1.{}", "a".repeat(5000)), "too large"),
        ("nonsense".into(), "prefix"),
    ] {
        let (code, body) = eks.kube(&shop, &bad, Method::GET, "/api/v1/nodes", Value::Null).await;
        let message = body["message"].as_str().unwrap_or_default();
        assert!(code == 401 && body["reason"] == "Unauthorized" && message.contains(why), "{why}: {code} {body}");
    }
    assert_eq!(status(&eks, &other, &token, "/api/v1/nodes").await, 401);
    // Without the cluster's prefix the token itself says which is meant.
    let root = shop["endpoint"].as_str().unwrap().split("/clusters/").next().unwrap().to_owned();
    let mut bare = shop.clone();
    bare["endpoint"] = json!(root);
    let (code, version) = eks.kube(&bare, &token, Method::GET, "/version", Value::Null).await;
    assert_eq!((code, &version["minor"]), (200, &json!("32")), "{version}");
}

#[tokio::test]
async fn a_principal_may_do_what_its_entry_and_policies_allow() {
    let eks = Eks::instant().await;
    let shop = eks.cluster("shop").await;
    let role = eks.role("dev", json!({"AWS": format!("arn:aws:iam::{}:root", eks.account)})).await;
    let given = eks.form("sts", "AssumeRole", &format!("&RoleArn={}&RoleSessionName=ann", encoded(&role))).await;
    let (key, secret, session) =
        (element(&given, "AccessKeyId"), element(&given, "SecretAccessKey"), element(&given, "SessionToken"));
    let token = eks.token("shop", (&key, &secret), Some(&session));
    let (code, body) = eks.kube(&shop, &token, Method::GET, PODS, Value::Null).await;
    assert!(code == 401 && body["message"].as_str().unwrap().contains("has no access entry in cluster shop"), "{body}");
    assert_eq!(status(&eks, &shop, &eks.token("shop", (&key, "guess"), Some(&session)), PODS).await, 401);

    let entries = "/clusters/shop/access-entries";
    eks.refused(
        Method::POST,
        entries,
        json!({"principalArn": eks.role_arn("none")}),
        ("InvalidParameterException", "invalid principal"),
    )
    .await;
    eks.refused(
        Method::POST,
        entries,
        json!({"principalArn": role, "kubernetesGroups": ["system:masters"]}),
        ("InvalidParameterException", "cannot start with system:"),
    )
    .await;
    eks.post(entries, json!({"principalArn": role, "kubernetesGroups": ["devs"]})).await;
    eks.refused(Method::POST, entries, json!({"principalArn": role}), ("ResourceInUseException", "already in use"))
        .await;
    let (code, body) = eks.kube(&shop, &token, Method::GET, PODS, Value::Null).await;
    let user = format!("arn:aws:sts::{}:assumed-role/dev/ann", eks.account);
    let expected = format!(
        "pods is forbidden: User \"{user}\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    assert_eq!((code, body["message"].as_str()), (403, Some(expected.as_str())));

    let policies = format!("{entries}/{}/access-policies", encoded(&role));
    let policy = |name: &str| format!("arn:aws:eks::aws:cluster-access-policy/{name}");
    let scope = json!({"type": "namespace", "namespaces": ["default"]});
    eks.refused(
        Method::POST,
        &policies,
        json!({"policyArn": policy("None"), "accessScope": scope}),
        ("InvalidParameterException", "policyArn"),
    )
    .await;
    eks.post(&policies, json!({"policyArn": policy("AmazonEKSViewPolicy"), "accessScope": scope})).await;
    assert_eq!(status(&eks, &shop, &token, PODS).await, 200);
    assert_eq!(status(&eks, &shop, &token, "/api/v1/namespaces/kube-system/pods").await, 403);
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (verb, expected) in [("list", true), ("delete", false)] {
        let attributes = json!({"verb": verb, "resource": "pods", "namespace": "default"});
        let ask = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {"resourceAttributes": attributes}});
        let (_, body) = eks.kube(&shop, &token, Method::POST, review, ask).await;
        assert_eq!(body["status"]["allowed"], expected, "{verb}: {body}");
    }
    let me = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    let (_, me) = eks.kube(&shop, &token, Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews", me).await;
    assert_eq!(
        (&me["status"]["userInfo"]["username"], &me["status"]["userInfo"]["groups"]),
        (&json!(user), &json!(["devs", "system:authenticated"]))
    );

    let admin = eks.token("shop", OWN, None);
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "devs"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "devs"}]});
    let (code, body) =
        eks.kube(&shop, &admin, Method::POST, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    assert_eq!(code, 201, "{body}");
    assert_eq!(status(&eks, &shop, &token, "/api/v1/nodes").await, 200, "by the group of its entry");
    eks.ok(Method::DELETE, &format!("{entries}/{}", encoded(&role)), Value::Null).await;
    assert_eq!(status(&eks, &shop, &token, PODS).await, 401);
}

#[tokio::test]
async fn service_accounts_get_tokens_that_the_issuer_vouches_for() {
    let eks = Eks::instant().await;
    let shop = eks.cluster("shop").await;
    let admin = eks.token("shop", OWN, None);
    let ask = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let (code, made) = eks.kube(&shop, &admin, Method::POST, path, ask).await;
    assert_eq!(code, 201, "{made}");
    let token = made["status"]["token"].as_str().unwrap();
    let (code, body) = eks.kube(&shop, token, Method::GET, PODS, Value::Null).await;
    let user = "User \"system:serviceaccount:default:default\"";
    assert!(code == 403 && body["message"].as_str().unwrap().contains(user), "{body}");
    let mut issuer = shop.clone();
    issuer["endpoint"] = shop["identity"]["oidc"]["issuer"].clone();
    let (_, found) = eks.kube(&issuer, "", Method::GET, "/.well-known/openid-configuration", Value::Null).await;
    assert_eq!(found["issuer"], issuer["endpoint"]);
    let (_, keys) = eks.kube(&issuer, "", Method::GET, "/keys", Value::Null).await;
    assert_eq!((&keys["keys"][0]["kty"], &keys["keys"][0]["alg"]), (&json!("RSA"), &json!("RS256")), "{keys}");
}
