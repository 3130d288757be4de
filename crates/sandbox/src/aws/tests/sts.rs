use super::client::{Aws, Holds, Refused};

#[tokio::test]
async fn temporary_keys_are_their_roles() {
    let mut aws = Aws::instant().await;
    let account = aws.query("sts", "GetCallerIdentity", &[]).await.text("Account");
    let trust = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:AssumeRole"}]}"#;
    let role = [("RoleName", "deploy"), ("AssumeRolePolicyDocument", trust)];
    aws.query("iam", "CreateRole", &role).await.check("CreateRole", &Holds(&[]));
    let arn = format!("arn:aws:iam::{account}:role/deploy");
    for (parameters, expected) in [
        (
            vec![("RoleArn", "arn:aws:iam::1:role/none"), ("RoleSessionName", "ci")],
            Refused(403, "is not authorized to perform: sts:AssumeRole"),
        ),
        (vec![("RoleArn", arn.as_str()), ("RoleSessionName", "")], Refused(400, "roleSessionName")),
        (
            vec![("RoleArn", arn.as_str()), ("RoleSessionName", "ci"), ("DurationSeconds", "7200")],
            Refused(400, "exceeds the MaxSessionDuration"),
        ),
    ] {
        aws.query("sts", "AssumeRole", &parameters).await.check("AssumeRole", &expected);
    }
    let answer = aws.query("sts", "AssumeRole", &[("RoleArn", &arn), ("RoleSessionName", "ci")]).await;
    answer.check("AssumeRole", &Holds(&["<AccessKeyId>ASIA", ":assumed-role/deploy/ci</Arn>"]));
    let (key, token) = (answer.text("AccessKeyId"), answer.text("SessionToken"));
    aws.with_key(&key, Some(&token));
    let seen = aws.query("sts", "GetCallerIdentity", &[]).await;
    assert_eq!(seen.text("Arn"), format!("arn:aws:sts::{account}:assumed-role/deploy/ci"));
    aws.with_key(&key, Some("another"));
    aws.query("sts", "GetCallerIdentity", &[]).await.check("a wrong token", &Refused(403, "InvalidClientTokenId"));
    aws.sandbox.stop().await;
}

#[tokio::test]
async fn the_caller_is_told_in_json_where_it_is_asked_for() {
    let aws = Aws::instant().await;
    let path = "/?Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Credential=K%2F20260101%2Feu-central-1%2Fsts%2Faws4_request";
    let answer = aws.send("sts", ("GET", path), &[("accept", "application/json")], "").await;
    let value = answer.value();
    let result = &value["GetCallerIdentityResponse"]["GetCallerIdentityResult"];
    assert!(result["Arn"].as_str().unwrap().ends_with(":user/sandbox"), "{value}");
    aws.sandbox.stop().await;
}

#[tokio::test]
async fn tokens_of_unknown_issuers_and_audiences_get_no_keys() {
    let aws = Aws::instant().await;
    let token = |claims: &str| {
        use base64::Engine;
        let text = |part: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(part);
        format!("{}.{}.{}", text("{}"), text(claims), text("x"))
    };
    let account = aws.query("sts", "GetCallerIdentity", &[]).await.text("Account");
    let provider = [("Url", "https://oidc.example.com/id/A"), ("ClientIDList.member.1", "sts.amazonaws.com")];
    aws.query("iam", "CreateOpenIDConnectProvider", &provider).await.check("provider", &Holds(&[]));
    let trust = format!(
        r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Principal":{{"Federated":"arn:aws:iam::{account}:oidc-provider/oidc.example.com/id/A"}},"Action":"sts:AssumeRoleWithWebIdentity","Condition":{{"StringEquals":{{"oidc.example.com/id/A:sub":"system:serviceaccount:shop:bot"}}}}}}]}}"#
    );
    aws.query("iam", "CreateRole", &[("RoleName", "pod"), ("AssumeRolePolicyDocument", &trust)])
        .await
        .check("role", &Holds(&[]));
    let arn = format!("arn:aws:iam::{account}:role/pod");
    let claims = |issuer: &str, audience: &str, subject: &str, expires: i64| {
        token(&format!(r#"{{"iss":"{issuer}","aud":"{audience}","sub":"{subject}","exp":{expires}}}"#))
    };
    let (own, audience, bot) = ("https://oidc.example.com/id/A", "sts.amazonaws.com", "system:serviceaccount:shop:bot");
    for (token, expected) in [
        ("nonsense".to_owned(), Refused(400, "InvalidIdentityToken")),
        (
            claims("https://other.example.com", audience, bot, 4_000_000_000),
            Refused(400, "No OpenIDConnect provider found"),
        ),
        (claims(own, "other", bot, 4_000_000_000), Refused(400, "Incorrect token audience")),
        (claims(own, audience, bot, 1), Refused(400, "ExpiredTokenException")),
        (claims(own, audience, "system:serviceaccount:shop:other", 4_000_000_000), Refused(403, "AccessDenied")),
        (
            claims(own, audience, bot, 4_000_000_000),
            Holds(&["<AccessKeyId>ASIA", "<SubjectFromWebIdentityToken>system:serviceaccount:shop:bot<"]),
        ),
    ] {
        let parameters = [("RoleArn", arn.as_str()), ("RoleSessionName", "pod"), ("WebIdentityToken", &token)];
        aws.query("sts", "AssumeRoleWithWebIdentity", &parameters).await.check(&token, &expected);
    }
    aws.sandbox.stop().await;
}
