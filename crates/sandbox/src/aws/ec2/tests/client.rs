//! A sandbox of its own for each test, and short words to talk to its EC2.

use crate::{Config, Rule, Sandbox, Speed};
use serde_json::Value;

pub struct Ec2 {
    pub sandbox: Sandbox,
    http: reqwest::Client,
    pub region: &'static str,
}

/// An answer: its status and its XML.
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Ec2 {
    pub async fn instant() -> Ec2 {
        Ec2::start(Config { speed: Speed::Instant, ..Config::default() }).await
    }

    pub async fn failing(rules: &[&str]) -> Ec2 {
        let fail = rules.iter().map(|rule| rule.parse::<Rule>().unwrap()).collect();
        Ec2::start(Config { speed: Speed::Instant, fail, ..Config::default() }).await
    }

    pub async fn start(config: Config) -> Ec2 {
        let sandbox = Sandbox::start(config).await.unwrap();
        Ec2 { sandbox, http: reqwest::Client::builder().no_proxy().build().unwrap(), region: "eu-central-1" }
    }

    /// `call("CreateVpc", "CidrBlock=10.0.0.0/16")`; blanks between parameters.
    pub async fn call(&self, action: &str, parameters: &str) -> Answer {
        let form: String = parameters.split(' ').filter(|one| !one.is_empty()).map(|one| format!("&{one}")).collect();
        let form = form.replace(':', "%3A").replace('/', "%2F");
        let credential = format!("AKIA/20260101/{}/ec2/aws4_request", self.region);
        let request = self.http.post(self.sandbox.url(crate::aws::NAME)).body(format!("Action={action}{form}")).header(
            "authorization",
            format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=0"),
        );
        let response = request.send().await.unwrap();
        Answer { status: response.status().as_u16(), body: response.text().await.unwrap() }
    }

    pub async fn ok(&self, action: &str, parameters: &str) -> Answer {
        let answer = self.call(action, parameters).await;
        assert_eq!(answer.status, 200, "{action} {parameters}: {}", answer.body);
        answer
    }

    /// Makes something, and gives the id in that element.
    pub async fn make(&self, action: &str, parameters: &str, element: &str) -> String {
        self.ok(action, parameters).await.first(element).to_owned()
    }

    #[track_caller]
    pub fn refused(&self, action: &str, parameters: &str, code: &str) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        let (action, parameters, code) = (action.to_owned(), parameters.to_owned(), code.to_owned());
        async move {
            let answer = self.call(&action, &parameters).await;
            assert_eq!(
                (answer.status, answer.first("Code")),
                (400, code.as_str()),
                "{at}: {action} {parameters}: {}",
                answer.body
            );
            assert!(!answer.first("Message").is_empty(), "{at}: {}", answer.body);
        }
    }

    pub async fn vpc(&self) -> String {
        self.make("CreateVpc", "CidrBlock=10.0.0.0/16", "vpcId").await
    }

    pub async fn subnet(&self, vpc: &str, cidr: &str) -> String {
        self.make("CreateSubnet", &format!("VpcId={vpc} CidrBlock={cidr}"), "subnetId").await
    }

    /// What the ledger holds that was asked for.
    pub async fn ledger(&self) -> Vec<String> {
        let url = format!("{}/_sandbox/ledger", self.sandbox.url(crate::aws::NAME));
        let ledger: Value = self.http.get(url).send().await.unwrap().json().await.unwrap();
        let own = ledger["objects"].as_array().unwrap().iter().filter(|one| one["default"] != true);
        own.map(|one| format!("{} {}", one["type"].as_str().unwrap(), one["id"].as_str().unwrap())).collect()
    }
}

impl Answer {
    /// The texts of all elements with that name.
    pub fn all(&self, element: &str) -> Vec<&str> {
        let (open, close) = (format!("<{element}>"), format!("</{element}>"));
        let after = self.body.split(open.as_str()).skip(1);
        after.filter_map(|rest| rest.split(close.as_str()).next()).collect()
    }

    #[track_caller]
    pub fn first(&self, element: &str) -> &str {
        self.all(element).first().copied().unwrap_or_else(|| panic!("no {element} in {}", self.body))
    }
}
