use super::client::{Aws, Holds, Refused};
use serde_json::json;

/// A user of IAM with one inline policy; its key.
async fn user(aws: &Aws, policy: serde_json::Value) -> String {
    aws.query("iam", "CreateUser", &[("UserName", "ann")]).await.check("CreateUser", &Holds(&[]));
    let parameters = [("UserName", "ann"), ("PolicyName", "p"), ("PolicyDocument", &policy.to_string())];
    aws.query("iam", "PutUserPolicy", &parameters).await.check("PutUserPolicy", &Holds(&[]));
    aws.query("iam", "CreateAccessKey", &[("UserName", "ann")]).await.text("AccessKeyId")
}

#[tokio::test]
async fn a_policy_that_lacks_one_action_refuses_just_that() {
    let mut aws = Aws::enforcing().await;
    let statement = json!({"Effect": "Allow", "NotAction": ["ec2:CreateVpc", "iam:CreateRole", "kms:CreateKey", "s3:PutObject"], "Resource": "*"});
    let key = user(&aws, json!({"Version": "2012-10-17", "Statement": [statement]})).await;
    let bucket =
        "<CreateBucketConfiguration><LocationConstraint>eu-central-1</LocationConstraint></CreateBucketConfiguration>";
    aws.with_key(&key, None);
    let refused = aws.query("ec2", "CreateVpc", &[("CidrBlock", "10.0.0.0/16")]).await;
    refused.check("CreateVpc", &Refused(403, "<Code>UnauthorizedOperation</Code>"));
    assert!(
        refused.body.contains("You are not authorized to perform this operation. User: arn:aws:iam::"),
        "{}",
        refused.body
    );
    assert!(refused.body.contains(":vpc/* because no identity-based policy allows the ec2:CreateVpc action. Encoded authorization failure message: "), "{}", refused.body);
    let encoded = refused.body.split("failure message: ").nth(1).unwrap().split('<').next().unwrap().to_owned();
    aws.query("sts", "DecodeAuthorizationMessage", &[("EncodedMessage", &encoded)])
        .await
        .check("decode", &Holds(&["ec2:CreateVpc"]));
    aws.query("ec2", "DescribeVpcs", &[]).await.check("DescribeVpcs", &Holds(&[]));
    aws.query("iam", "CreateRole", &[("RoleName", "r"), ("AssumeRolePolicyDocument", "{}")])
        .await
        .check("CreateRole", &Refused(403, "is not authorized to perform: iam:CreateRole on resource: arn:aws:iam::"));
    aws.query("iam", "ListRoles", &[]).await.check("ListRoles", &Holds(&[]));
    let refused = aws.json("kms", "TrentService.CreateKey", &json!({})).await;
    refused.check("CreateKey", &Refused(400, "AccessDeniedException"));
    aws.json("kms", "TrentService.ListKeys", &json!({})).await.check("ListKeys", &Holds(&[]));
    aws.send("s3", ("PUT", "/own-bucket"), &[], bucket).await.check("CreateBucket", &Holds(&[]));
    aws.send("s3", ("PUT", "/own-bucket/k"), &[], "x")
        .await
        .check("PutObject", &Refused(403, "<Code>AccessDenied</Code>"));
    aws.query("sts", "GetCallerIdentity", &[]).await.check("GetCallerIdentity", &Holds(&[":user/ann<"]));
    aws.sandbox.stop().await;
}

#[tokio::test]
async fn roles_are_assumed_and_passed_only_by_those_who_may() {
    let mut aws = Aws::enforcing().await;
    let account = aws.query("sts", "GetCallerIdentity", &[]).await.text("Account");
    let trust = |principal: String| {
        json!({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": principal}, "Action": "sts:AssumeRole"}]}).to_string()
    };
    let statement = json!({"Effect": "Allow", "Action": ["iam:*InstanceProfile"], "Resource": "*"});
    let passes = json!({
        "Effect": "Allow", "Action": "iam:PassRole", "Resource": format!("arn:aws:iam::{account}:role/named"),
        "Condition": {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
    });
    let key = user(&aws, json!({"Version": "2012-10-17", "Statement": [statement, passes]})).await;
    for (name, principal) in
        [("named", format!("arn:aws:iam::{account}:user/ann")), ("account", format!("arn:aws:iam::{account}:root"))]
    {
        let parameters = [("RoleName", name), ("AssumeRolePolicyDocument", &trust(principal))];
        aws.query("iam", "CreateRole", &parameters).await.check("CreateRole", &Holds(&[]));
    }
    aws.with_key(&key, None);
    for (name, expected) in
        [("named", Holds(&["ASIA"])), ("account", Refused(403, "is not authorized to perform: sts:AssumeRole"))]
    {
        let arn = format!("arn:aws:iam::{account}:role/{name}");
        aws.query("sts", "AssumeRole", &[("RoleArn", &arn), ("RoleSessionName", "ci")]).await.check(name, &expected);
    }
    aws.query("iam", "CreateInstanceProfile", &[("InstanceProfileName", "p")]).await.check("profile", &Holds(&[]));
    for (name, expected) in [("account", Refused(403, "iam:PassRole")), ("named", Holds(&[]))] {
        let parameters = [("InstanceProfileName", "p"), ("RoleName", name)];
        aws.query("iam", "AddRoleToInstanceProfile", &parameters).await.check(name, &expected);
    }
    aws.sandbox.stop().await;
}
