//! A sandbox with a network and roles for each test, and short words to talk to its EKS.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use hyper::{HeaderMap, Method};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::aws::sigv4;
use crate::aws::wire::Scope;
use crate::http::Call;
use crate::{Config, Rule, Sandbox, Speed};

pub struct Eks {
    pub sandbox: Sandbox,
    http: reqwest::Client,
    pub subnets: Vec<String>,
    pub vpc: String,
    pub account: String,
}

/// Status, code and body of an answer.
pub struct Answer {
    pub status: u16,
    pub code: String,
    pub body: Value,
}

pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

impl Eks {
    pub async fn instant() -> Eks {
        Eks::start(Config { speed: Speed::Instant, ..Config::default() }).await
    }

    pub async fn failing(rules: &[&str]) -> Eks {
        let fail = rules.iter().map(|rule| rule.parse::<Rule>().unwrap()).collect();
        Eks::start(Config { speed: Speed::Instant, fail, ..Config::default() }).await
    }

    pub async fn start(config: Config) -> Eks {
        let sandbox = Sandbox::start(config).await.unwrap();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut eks = Eks { sandbox, http, subnets: vec![], vpc: String::new(), account: String::new() };
        let me = eks.form("sts", "GetCallerIdentity", "").await;
        eks.account = element(&me, "Account");
        eks.vpc = element(&eks.form("ec2", "CreateVpc", "&CidrBlock=10.0.0.0%2F16").await, "vpcId");
        for (number, zone) in ["a", "b"].into_iter().enumerate() {
            let parameters =
                format!("&VpcId={}&CidrBlock=10.0.{number}.0%2F24&AvailabilityZone=eu-central-1{zone}", eks.vpc);
            let made = eks.form("ec2", "CreateSubnet", &parameters).await;
            eks.subnets.push(element(&made, "subnetId"));
        }
        eks.role("cluster", json!({"Service": "eks.amazonaws.com"})).await;
        eks.role("node", json!({"Service": "ec2.amazonaws.com"})).await;
        eks
    }

    /// An action of a service whose input is a form; the answer's XML.
    pub async fn form(&self, service: &str, action: &str, parameters: &str) -> String {
        let request =
            self.http.post(self.sandbox.url(crate::aws::NAME)).header("authorization", header(service, "AKIA"));
        let answer = request.body(format!("Action={action}{parameters}")).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert_eq!(status, 200, "{action} {parameters}: {text}");
        text
    }

    /// Makes a role; its ARN.
    pub async fn role(&self, name: &str, principal: Value) -> String {
        let trust = json!({"Version": "2012-10-17", "Statement": [
            {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}]});
        let parameters = format!("&RoleName={name}&AssumeRolePolicyDocument={}", encoded(&trust.to_string()));
        self.form("iam", "CreateRole", &parameters).await;
        self.role_arn(name)
    }

    pub fn role_arn(&self, name: &str) -> String {
        format!("arn:aws:iam::{}:role/{name}", self.account)
    }

    pub async fn call(&self, method: Method, path: &str, body: Value) -> Answer {
        let url = format!("{}{path}", self.sandbox.url(crate::aws::NAME));
        let request = self.http.request(method, url).header("authorization", header("eks", "AKIA"));
        let request = if body.is_null() { request } else { request.json(&body) };
        let answer = request.send().await.unwrap();
        let code = answer.headers().get("x-amzn-errortype").map(|code| code.to_str().unwrap().to_owned());
        let status = answer.status().as_u16();
        Answer { status, code: code.unwrap_or_default(), body: answer.json().await.unwrap() }
    }

    pub async fn ok(&self, method: Method, path: &str, body: Value) -> Value {
        let answer = self.call(method.clone(), path, body).await;
        assert_eq!(answer.status, 200, "{method} {path}: {} {}", answer.code, answer.body);
        answer.body
    }

    pub async fn get(&self, path: &str) -> Value {
        self.ok(Method::GET, path, Value::Null).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Value {
        self.ok(Method::POST, path, body).await
    }

    /// The error's code, and a part of its message.
    pub async fn refused(&self, method: Method, path: &str, body: Value, (code, part): (&str, &str)) {
        let answer = self.call(method.clone(), path, body.clone()).await;
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert!(
            answer.code == code && message.contains(part),
            "{method} {path} {body}: {} {}",
            answer.code,
            answer.body
        );
        assert!((400..500).contains(&answer.status), "{}", answer.status);
    }

    pub fn cluster_input(&self, name: &str) -> Value {
        json!({"name": name, "roleArn": self.role_arn("cluster"), "version": "1.32",
               "resourcesVpcConfig": {"subnetIds": self.subnets}, "accessConfig": {"authenticationMode": "API"}})
    }

    pub async fn cluster(&self, name: &str) -> Value {
        self.post("/clusters", self.cluster_input(name)).await;
        self.get(&format!("/clusters/{name}")).await["cluster"].clone()
    }

    pub fn group_input(&self, name: &str) -> Value {
        json!({"nodegroupName": name, "nodeRole": self.role_arn("node"), "subnets": self.subnets,
               "scalingConfig": {"minSize": 1, "maxSize": 5, "desiredSize": 2}, "labels": {"tier": "web"}})
    }

    /// A token as `aws eks get-token` makes it.
    pub fn token(&self, cluster: &str, (key, secret): (&str, &str), session: Option<&str>) -> String {
        self.token_of(&self.presigned(cluster, (key, secret), session))
    }

    pub fn token_of(&self, url: &str) -> String {
        format!("k8s-aws-v1.{}", URL_SAFE_NO_PAD.encode(url))
    }

    pub fn presigned(&self, cluster: &str, (key, secret): (&str, &str), session: Option<&str>) -> String {
        let base = self.sandbox.url(crate::aws::NAME);
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let date = time[..8].to_owned();
        let credential = encoded(&format!("{key}/{date}/eu-central-1/sts/aws4_request"));
        let session = session.map(|token| format!("&X-Amz-Security-Token={}", encoded(token))).unwrap_or_default();
        let url = format!(
            "{base}/?Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}\
             &X-Amz-Date={time}&X-Amz-Expires=60&X-Amz-SignedHeaders=host%3Bx-k8s-aws-id{session}"
        );
        let mut headers = HeaderMap::new();
        headers.insert("host", base.trim_start_matches("http://").parse().unwrap());
        headers.insert("x-k8s-aws-id", cluster.parse().unwrap());
        let call = Call::new(Method::GET, &url.parse().unwrap(), headers, Bytes::new());
        let scope = Scope { access_key: key.into(), date, region: "eu-central-1".into(), service: "sts".into() };
        format!("{url}&X-Amz-Signature={}", sigv4::presigned(&call, &scope, secret))
    }

    /// A request to a cluster's own API: status and body.
    pub async fn kube(&self, cluster: &Value, token: &str, method: Method, path: &str, body: Value) -> (u16, Value) {
        let ca = base64::engine::general_purpose::STANDARD
            .decode(cluster["certificateAuthority"]["data"].as_str().unwrap())
            .unwrap();
        let client =
            reqwest::Client::builder().no_proxy().add_root_certificate(reqwest::Certificate::from_pem(&ca).unwrap());
        let url = format!("{}{path}", cluster["endpoint"].as_str().unwrap());
        let request = client.build().unwrap().request(method, url);
        let request = if token.is_empty() { request } else { request.bearer_auth(token) };
        let request = if body.is_null() { request } else { request.json(&body) };
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }
}

fn header(service: &str, key: &str) -> String {
    let credential = format!("{key}/20260101/eu-central-1/{service}/aws4_request");
    format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=0")
}

/// The text of the first element with that name.
pub fn element(xml: &str, name: &str) -> String {
    let rest = xml.split(&format!("<{name}>")).nth(1).unwrap_or_else(|| panic!("no {name} in {xml}"));
    rest.split('<').next().unwrap_or_default().to_owned()
}
