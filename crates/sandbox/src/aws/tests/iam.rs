use super::client::{Aws, Expected, Holds, Refused};

const TRUST: &str = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"eks.amazonaws.com"},"Action":"sts:AssumeRole"}]}"#;
const READ: &str = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:Get*","Resource":"*"}]}"#;
const EKS: &str = "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy";

type Step = (&'static str, &'static [(&'static str, &'static str)], Expected);

async fn run(steps: &[Step]) {
    let aws = Aws::instant().await;
    let account = aws.query("sts", "GetCallerIdentity", &[]).await.text("Account");
    for (action, parameters, expected) in steps {
        let parameters: Vec<(&str, String)> =
            parameters.iter().map(|(name, value)| (*name, value.replace("ACCOUNT", &account))).collect();
        let parameters: Vec<(&str, &str)> = parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = aws.query("iam", action, &parameters).await;
        answer.check(&format!("{action} {parameters:?}"), expected);
    }
    aws.sandbox.stop().await;
}

const ROLES: &[Step] = &[
    ("GetRole", &[("RoleName", "a")], Refused(404, "The role with name a cannot be found.")),
    ("CreateRole", &[("RoleName", "a/b"), ("AssumeRolePolicyDocument", TRUST)], Refused(400, "ValidationError")),
    ("CreateRole", &[("RoleName", "a"), ("AssumeRolePolicyDocument", "{")], Refused(400, "MalformedPolicyDocument")),
    (
        "CreateRole",
        &[
            ("RoleName", "a"),
            ("AssumeRolePolicyDocument", TRUST),
            ("Description", "first"),
            ("Tags.member.1.Key", "k"),
            ("Tags.member.1.Value", "v"),
        ],
        Holds(&["<RoleId>AROA", ":role/a</Arn>", "%7B%22Version%22", "<MaxSessionDuration>3600<"]),
    ),
    (
        "CreateRole",
        &[("RoleName", "A"), ("AssumeRolePolicyDocument", TRUST)],
        Refused(409, "Role with name A already exists."),
    ),
    ("UpdateRole", &[("RoleName", "a"), ("MaxSessionDuration", "60")], Refused(400, "greater than or equal to 3600")),
    ("UpdateRole", &[("RoleName", "a"), ("MaxSessionDuration", "7200")], Holds(&[])),
    ("GetRole", &[("RoleName", "a")], Holds(&["<Description>first<", "<MaxSessionDuration>7200<", "<Key>k</Key>"])),
    (
        "AttachRolePolicy",
        &[("RoleName", "a"), ("PolicyArn", "arn:aws:iam::aws:policy/None")],
        Refused(404, "does not exist or is not attachable"),
    ),
    ("AttachRolePolicy", &[("RoleName", "a"), ("PolicyArn", EKS)], Holds(&[])),
    ("AttachRolePolicy", &[("RoleName", "a"), ("PolicyArn", EKS)], Holds(&[])),
    ("ListAttachedRolePolicies", &[("RoleName", "a")], Holds(&["<PolicyName>AmazonEKSClusterPolicy<"])),
    ("ListEntitiesForPolicy", &[("PolicyArn", EKS)], Holds(&["<RoleName>a<"])),
    (
        "PutRolePolicy",
        &[("RoleName", "a"), ("PolicyName", "in"), ("PolicyDocument", TRUST)],
        Refused(400, "MalformedPolicyDocument"),
    ),
    ("PutRolePolicy", &[("RoleName", "a"), ("PolicyName", "in"), ("PolicyDocument", READ)], Holds(&[])),
    ("DeleteRole", &[("RoleName", "a")], Refused(409, "must detach all policies first")),
    ("DetachRolePolicy", &[("RoleName", "a"), ("PolicyArn", EKS)], Holds(&[])),
    ("DetachRolePolicy", &[("RoleName", "a"), ("PolicyArn", EKS)], Refused(404, "NoSuchEntity")),
    ("DeleteRole", &[("RoleName", "a")], Refused(409, "must delete policies first")),
    ("DeleteRolePolicy", &[("RoleName", "a"), ("PolicyName", "in")], Holds(&[])),
    ("CreateInstanceProfile", &[("InstanceProfileName", "p")], Holds(&["<InstanceProfileId>AIPA"])),
    (
        "AddRoleToInstanceProfile",
        &[("InstanceProfileName", "p"), ("RoleName", "none")],
        Refused(404, "The role with name none"),
    ),
    ("AddRoleToInstanceProfile", &[("InstanceProfileName", "p"), ("RoleName", "a")], Holds(&[])),
    ("AddRoleToInstanceProfile", &[("InstanceProfileName", "p"), ("RoleName", "a")], Refused(409, "LimitExceeded")),
    ("DeleteRole", &[("RoleName", "a")], Refused(409, "remove roles from instance profile")),
    ("DeleteInstanceProfile", &[("InstanceProfileName", "p")], Refused(409, "DeleteConflict")),
    ("RemoveRoleFromInstanceProfile", &[("InstanceProfileName", "p"), ("RoleName", "a")], Holds(&[])),
    ("DeleteRole", &[("RoleName", "a")], Holds(&[])),
    (
        "CreateServiceLinkedRole",
        &[("AWSServiceName", "eks.amazonaws.com")],
        Holds(&["/aws-service-role/eks.amazonaws.com/"]),
    ),
    ("DeleteRole", &[("RoleName", "AWSServiceRoleForAmazonEKS")], Refused(400, "UnmodifiableEntity")),
    ("NoSuchAction", &[], Refused(400, "InvalidAction")),
];

#[tokio::test]
async fn roles_live_as_in_iam() {
    run(ROLES).await;
}

const P: &str = "arn:aws:iam::ACCOUNT:policy/p";

const POLICIES: &[Step] = &[
    (
        "CreatePolicy",
        &[("PolicyName", "p"), ("PolicyDocument", READ)],
        Holds(&["<DefaultVersionId>v1<", "<PolicyId>ANPA"]),
    ),
    (
        "CreatePolicy",
        &[("PolicyName", "p"), ("PolicyDocument", READ)],
        Refused(409, "A policy called p already exists"),
    ),
    (
        "CreatePolicyVersion",
        &[("PolicyArn", P), ("PolicyDocument", READ), ("SetAsDefault", "true")],
        Holds(&["<VersionId>v2<"]),
    ),
    (
        "CreatePolicyVersion",
        &[("PolicyArn", P), ("PolicyDocument", READ), ("SetAsDefault", "true")],
        Holds(&["<IsDefaultVersion>true<"]),
    ),
    (
        "CreatePolicyVersion",
        &[("PolicyArn", P), ("PolicyDocument", READ), ("SetAsDefault", "true")],
        Holds(&["<IsDefaultVersion>true<"]),
    ),
    (
        "CreatePolicyVersion",
        &[("PolicyArn", P), ("PolicyDocument", READ), ("SetAsDefault", "true")],
        Holds(&["<IsDefaultVersion>true<"]),
    ),
    (
        "CreatePolicyVersion",
        &[("PolicyArn", P), ("PolicyDocument", READ), ("SetAsDefault", "true")],
        Refused(409, "can have up to 5 versions"),
    ),
    (
        "DeletePolicyVersion",
        &[("PolicyArn", P), ("VersionId", "v5")],
        Refused(409, "Cannot delete the default version"),
    ),
    ("DeletePolicy", &[("PolicyArn", P)], Refused(409, "more than one version")),
    ("DeletePolicyVersion", &[("PolicyArn", P), ("VersionId", "v1")], Holds(&[])),
    ("GetPolicyVersion", &[("PolicyArn", P), ("VersionId", "v1")], Refused(404, "NoSuchEntity")),
    ("GetPolicyVersion", &[("PolicyArn", EKS), ("VersionId", "v10")], Holds(&["PolicyVersion"])),
    ("ListPolicies", &[("Scope", "Local")], Holds(&["<PolicyName>p<", "<IsTruncated>false<"])),
    ("ListPolicies", &[("Scope", "AWS"), ("MaxItems", "2")], Holds(&["<IsTruncated>true<", "<Marker>"])),
    ("ListPolicies", &[("MaxItems", "0")], Refused(400, "ValidationError")),
];

#[tokio::test]
async fn policies_have_five_versions_at_most() {
    run(POLICIES).await;
}

const O: &str = "arn:aws:iam::ACCOUNT:oidc-provider/oidc.example.com/id/A";

const OTHERS: &[Step] = &[
    ("CreateOpenIDConnectProvider", &[("Url", "ftp://x")], Refused(400, "ValidationError")),
    (
        "CreateOpenIDConnectProvider",
        &[("Url", "https://oidc.example.com/id/A"), ("ClientIDList.member.1", "sts")],
        Holds(&["oidc-provider/oidc.example.com/id/A"]),
    ),
    ("CreateOpenIDConnectProvider", &[("Url", "https://oidc.example.com/id/A")], Refused(409, "EntityAlreadyExists")),
    ("AddClientIDToOpenIDConnectProvider", &[("OpenIDConnectProviderArn", O), ("ClientID", "two")], Holds(&[])),
    ("RemoveClientIDFromOpenIDConnectProvider", &[("OpenIDConnectProviderArn", O), ("ClientID", "sts")], Holds(&[])),
    (
        "GetOpenIDConnectProvider",
        &[("OpenIDConnectProviderArn", O)],
        Holds(&["<Url>oidc.example.com/id/A<", "<ClientIDList><member>two</member></ClientIDList>"]),
    ),
    ("CreateUser", &[("UserName", "ann")], Holds(&["<UserId>AIDA"])),
    ("CreateAccessKey", &[("UserName", "ann")], Holds(&["<AccessKeyId>AKIA", "<SecretAccessKey>"])),
    ("CreateGroup", &[("GroupName", "ops")], Holds(&["<GroupId>AGPA"])),
    ("AddUserToGroup", &[("GroupName", "ops"), ("UserName", "ann")], Holds(&[])),
    ("GetGroup", &[("GroupName", "ops")], Holds(&["<UserName>ann<"])),
    ("DeleteGroup", &[("GroupName", "ops")], Refused(409, "must remove users from group first")),
    ("DeleteUser", &[("UserName", "ann")], Refused(409, "must remove users from group first")),
    ("RemoveUserFromGroup", &[("GroupName", "ops"), ("UserName", "ann")], Holds(&[])),
    ("DeleteUser", &[("UserName", "ann")], Refused(409, "must delete access keys first")),
    ("GetAccountSummary", &[], Holds(&["<entry><key>Users</key><value>1</value></entry>"])),
    ("PutUserPolicy", &[("UserName", "ann"), ("PolicyName", "p"), ("PolicyDocument", READ)], Holds(&[])),
    (
        "SimulatePrincipalPolicy",
        &[
            ("PolicySourceArn", "arn:aws:iam::ACCOUNT:user/ann"),
            ("ActionNames.member.1", "s3:GetObject"),
            ("ActionNames.member.2", "s3:PutObject"),
        ],
        Holds(&["<EvalDecision>allowed<", "<EvalDecision>implicitDeny<"]),
    ),
];

#[tokio::test]
async fn providers_users_and_groups_are_kept() {
    run(OTHERS).await;
}
