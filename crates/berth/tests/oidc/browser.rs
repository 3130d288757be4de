//! As much of a browser as Keycloak's pages need: cookies, forms and redirects, each by hand.

use regex::Regex;
use reqwest::header::{CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Response, Url};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const REDIRECTS_MAX: usize = 10;

pub struct Browser {
    http: reqwest::Client,
    cookies: BTreeMap<String, String>,
}

impl Browser {
    pub fn new() -> Self {
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(Duration::from_secs(60))
            .build()
            .unwrap();
        Self { http, cookies: BTreeMap::new() }
    }

    pub async fn get(&mut self, url: &str) -> Response {
        let request = self.http.get(url).header(COOKIE, self.jar());
        self.keep(request.send().await.unwrap())
    }

    async fn post(&mut self, url: &str, form: &[(&str, &str)]) -> Response {
        let request = self.http.post(url).header(COOKIE, self.jar());
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(encoded(form));
        self.keep(request.send().await.unwrap())
    }

    fn jar(&self) -> String {
        self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
    }

    fn keep(&mut self, response: Response) -> Response {
        for cookie in response.headers().get_all(SET_COOKIE) {
            let text = cookie.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = text.split_once('=').unwrap();
            self.cookies.insert(name.into(), value.into());
        }
        response
    }

    /// Follows redirects on the provider's own host; the page, or where it leads away to.
    async fn follow(&mut self, mut response: Response) -> Result<(Url, String), String> {
        for _ in 0..REDIRECTS_MAX {
            let from = response.url().clone();
            let Some(to) = response.headers().get(LOCATION).map(|to| to.to_str().unwrap().to_owned()) else {
                return Ok((from, response.text().await.unwrap()));
            };
            let to = from.join(&to).unwrap();
            if to.port() != from.port() {
                return Err(to.to_string());
            }
            response = self.get(to.as_str()).await;
        }
        panic!("too many redirects");
    }

    /// Fills in the login form; the address that Keycloak sends the browser back to.
    pub async fn sign_in(&mut self, page: &str, user: &str, password: &str) -> String {
        let first = self.get(page).await;
        let (at, html) = self.follow(first).await.expect("a login page");
        let answer = self.post(&action(&at, &html), &[("username", user), ("password", password)]).await;
        match self.follow(answer).await {
            Err(away) => away,
            Ok((at, html)) => panic!("still at {at}: {html}"),
        }
    }

    /// Logs in and says yes to the device.
    pub async fn approve_device(&mut self, page: &str, user: &str, password: &str) {
        let first = self.get(page).await;
        let (at, html) = self.follow(first).await.expect("a login page");
        let answer = self.post(&action(&at, &html), &[("username", user), ("password", password)]).await;
        let (at, html) = self.follow(answer).await.expect("a page that asks");
        let code = Regex::new(r#"name="code" value="([^"]+)""#).unwrap();
        let code = code.captures(&html).unwrap_or_else(|| panic!("no question at {at}: {html}"))[1].to_owned();
        let answer = self.post(&action(&at, &html), &[("code", &code), ("accept", "Yes")]).await;
        let (_, html) = self.follow(answer).await.expect("a last page");
        assert!(html.contains("Device Login Successful"), "{html}");
    }

    /// The token endpoint's answer.
    pub async fn token(&mut self, issuer: &str, form: &[(&str, &str)]) -> Value {
        self.post(&format!("{issuer}/protocol/openid-connect/token"), form).await.json().await.unwrap()
    }
}

fn encoded(form: &[(&str, &str)]) -> String {
    Url::parse_with_params("http://x", form).unwrap().query().unwrap().to_owned()
}

/// Where the page's form goes.
fn action(at: &Url, html: &str) -> String {
    let action = Regex::new(r#"<form[^>]*\saction="([^"]+)""#).unwrap();
    let action = action.captures(html).unwrap_or_else(|| panic!("no form at {at}: {html}"))[1].replace("&amp;", "&");
    at.join(&action).unwrap().to_string()
}
