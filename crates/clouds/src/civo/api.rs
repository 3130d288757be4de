//! A connection to Civo's HTTP API: one method for each call.

use super::errors::CivoErrors;
use super::wire::*;
use crate::Credentials;
use crate::http::{self, Http, segment};
use berth_engine::handler::{Class, Outcome, Trouble};
use reqwest::Method;
use secrecy::{ExposeSecret, SecretString};

pub const API_URL: &str = "https://api.civo.com";
/// Civo publishes no limit; this is what its own tools stay well below.
const REQUESTS_PER_SECOND: f64 = 20.0;
const BURST: u32 = 100;

pub struct Api {
    http: Http,
    /// Where the API is.
    pub url: String,
}

/// Civo writes region codes in capitals.
pub fn region_code(region: &str) -> String {
    region.to_ascii_uppercase()
}

impl Api {
    pub fn new(credentials: &Credentials) -> Outcome<Self> {
        let url = credentials.api_url.clone().unwrap_or_else(|| API_URL.into()).trim_end_matches('/').to_owned();
        let (requests_per_second, burst) =
            http::limit(&url, credentials.requests_per_second, REQUESTS_PER_SECOND, BURST);
        let http = Http::new(http::Settings {
            base_url: url.clone(),
            foreign: credentials.foreign_url,
            authorization: SecretString::from(format!("bearer {}", credentials.token.expose_secret())),
            requests_per_second,
            burst,
            timeout: http::CALL_TIMEOUT,
            dialect: &CivoErrors,
        })?;
        Ok(Self { http, url })
    }

    pub fn calls(&self) -> u64 {
        self.http.calls()
    }

    pub async fn regions(&self) -> Outcome<Vec<Region>> {
        self.http.get("/v2/regions", &[]).await
    }
    pub async fn versions(&self, region: &str) -> Outcome<Vec<Version>> {
        self.http.get("/v2/kubernetes/versions", &[("region", &region_code(region))]).await
    }
    pub async fn sizes(&self, region: &str) -> Outcome<Vec<Size>> {
        self.http.get("/v2/sizes", &[("region", &region_code(region))]).await
    }
    pub async fn applications(&self, region: &str) -> Outcome<Vec<Application>> {
        self.http.get("/v2/kubernetes/applications", &[("region", &region_code(region))]).await
    }
    pub async fn quota(&self, region: &str) -> Outcome<Quota> {
        self.http.get("/v2/quota", &[("region", &region_code(region))]).await
    }

    pub async fn networks(&self, region: &str) -> Outcome<Vec<Network>> {
        self.http.get("/v2/networks", &[("region", &region_code(region))]).await
    }
    pub async fn network(&self, region: &str, id: &str) -> Outcome<Network> {
        self.http.get(&format!("/v2/networks/{}", segment(id)), &[("region", &region_code(region))]).await
    }
    pub async fn create_network(&self, region: &str, body: &NewNetwork<'_>) -> Outcome<String> {
        let made: Made =
            self.http.send(Method::POST, "/v2/networks", &[("region", &region_code(region))], Some(body)).await?;
        Ok(made.id)
    }
    pub async fn update_network(&self, region: &str, id: &str, body: &NewNetwork<'_>) -> Outcome<()> {
        self.change(Method::PUT, &format!("/v2/networks/{}", segment(id)), region, Some(body)).await
    }
    pub async fn delete_network(&self, region: &str, id: &str) -> Outcome<()> {
        self.delete(&format!("/v2/networks/{}", segment(id)), region).await
    }

    pub async fn firewalls(&self, region: &str) -> Outcome<Vec<Firewall>> {
        self.http.get("/v2/firewalls", &[("region", &region_code(region))]).await
    }
    pub async fn firewall_rules(&self, region: &str, id: &str) -> Outcome<Vec<FirewallRule>> {
        let path = format!("/v2/firewalls/{}/rules", segment(id));
        self.http.get(&path, &[("region", &region_code(region))]).await
    }
    pub async fn create_firewall(&self, region: &str, body: &NewFirewall<'_>) -> Outcome<String> {
        let made: Made =
            self.http.send(Method::POST, "/v2/firewalls", &[("region", &region_code(region))], Some(body)).await?;
        Ok(made.id)
    }
    pub async fn rename_firewall(&self, region: &str, id: &str, body: &NewFirewall<'_>) -> Outcome<()> {
        self.change(Method::PUT, &format!("/v2/firewalls/{}", segment(id)), region, Some(body)).await
    }
    pub async fn delete_firewall(&self, region: &str, id: &str) -> Outcome<()> {
        self.delete(&format!("/v2/firewalls/{}", segment(id)), region).await
    }
    pub async fn create_rule(&self, region: &str, firewall: &str, rule: &FirewallRule) -> Outcome<()> {
        let code = region_code(region);
        let body = NewRule { region: &code, rule };
        self.change(Method::POST, &format!("/v2/firewalls/{}/rules", segment(firewall)), region, Some(&body)).await
    }
    pub async fn delete_rule(&self, region: &str, firewall: &str, rule: &str) -> Outcome<()> {
        let path = format!("/v2/firewalls/{}/rules/{}", segment(firewall), segment(rule));
        self.delete(&path, region).await
    }

    pub async fn clusters(&self, region: &str, page: u32) -> Outcome<Page<Cluster>> {
        let query =
            [("region", &*region_code(region)), ("page", &page.to_string()), ("per_page", &PER_PAGE.to_string())];
        self.http.get("/v2/kubernetes/clusters", &query).await
    }
    pub async fn cluster(&self, region: &str, id: &str) -> Outcome<Cluster> {
        self.http.get(&cluster_path(id), &[("region", &region_code(region))]).await
    }
    /// The kubeconfig's text, or an empty one while there is none.
    pub async fn kubeconfig(&self, region: &str, id: &str) -> Outcome<String> {
        let answer: Kubeconfig = self.http.get(&cluster_path(id), &[("region", &region_code(region))]).await?;
        Ok(answer.kubeconfig)
    }
    pub async fn create_cluster(&self, region: &str, body: &ClusterBody<'_>) -> Outcome<String> {
        let path = "/v2/kubernetes/clusters";
        let made: Made = self.http.send(Method::POST, path, &[("region", &region_code(region))], Some(body)).await?;
        Ok(made.id)
    }
    pub async fn update_cluster(&self, region: &str, id: &str, body: &ClusterBody<'_>) -> Outcome<()> {
        self.change(Method::PUT, &cluster_path(id), region, Some(body)).await
    }
    pub async fn delete_cluster(&self, region: &str, id: &str) -> Outcome<()> {
        self.delete(&cluster_path(id), region).await
    }
    pub async fn create_pool(&self, region: &str, cluster: &str, body: &PoolBody<'_>) -> Outcome<()> {
        self.change(Method::POST, &format!("{}/pools", cluster_path(cluster)), region, Some(body)).await
    }
    pub async fn update_pool(&self, region: &str, cluster: &str, pool: &str, body: &PoolBody<'_>) -> Outcome<()> {
        self.change(Method::PUT, &format!("{}/pools/{}", cluster_path(cluster), segment(pool)), region, Some(body))
            .await
    }
    pub async fn delete_pool(&self, region: &str, cluster: &str, pool: &str) -> Outcome<()> {
        self.delete(&format!("{}/pools/{}", cluster_path(cluster), segment(pool)), region).await
    }

    /// Civo answers a delete that it cannot do yet, such as that of a network with a cluster on its way out, with
    /// success and the word `failed`.
    async fn delete(&self, path: &str, region: &str) -> Outcome<()> {
        let answer = self.http.change(Method::DELETE, path, &[("region", &region_code(region))], None).await?;
        let result = serde_json::from_slice::<Done>(&answer).map(|done| done.result).unwrap_or_default();
        match result.as_str() {
            "failed" => {
                let what = format!("DELETE {path}: Civo cannot delete it yet: something in it is still on its way out");
                Err(Trouble::new(Class::Retry { after: None }, what))
            }
            _ => Ok(()),
        }
    }

    async fn change(
        &self,
        method: Method,
        path: &str,
        region: &str,
        body: Option<&(dyn crate::http::erased::Body + '_)>,
    ) -> Outcome<()> {
        self.http.change(method, path, &[("region", &region_code(region))], body).await.map(|_| ())
    }
}

fn cluster_path(id: &str) -> String {
    format!("/v2/kubernetes/clusters/{}", segment(id))
}
