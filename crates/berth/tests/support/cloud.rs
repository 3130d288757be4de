//! Simulated clouds inside the test.

use berth_sandbox::{CloudName, Config, Rule, Sandbox, Speed};
use serde_json::Value;
use std::sync::OnceLock;
use tokio::runtime::Runtime;

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
    })
}

/// Waits for something that is asynchronous.
pub fn wait_for<T>(work: impl Future<Output = T>) -> T {
    runtime().block_on(work)
}

fn http() -> &'static reqwest::Client {
    static CLIENT: OnceLock<reqwest::Client> = OnceLock::new();
    CLIENT.get_or_init(|| {
        reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().expect("an HTTP client")
    })
}

/// Both simulated clouds.
pub struct Cloud {
    sandbox: Option<Sandbox>,
    pub civo_url: String,
    pub digitalocean_url: String,
}

impl Cloud {
    /// Where provisioning takes no time.
    pub fn instant() -> Self {
        Self::start(Config { speed: Speed::Instant, ..Config::default() })
    }

    pub fn start(config: Config) -> Self {
        let sandbox = runtime().block_on(Sandbox::start(config)).expect("the sandbox starts");
        let (civo_url, digitalocean_url) =
            (sandbox.url(berth_sandbox::civo::NAME), sandbox.url(berth_sandbox::digitalocean::NAME));
        Self { sandbox: Some(sandbox), civo_url, digitalocean_url }
    }

    pub fn sandbox(&self) -> &Sandbox {
        self.sandbox.as_ref().expect("a running sandbox")
    }

    /// The variables that name both clouds, with a token for each.
    pub fn variables(&self) -> [(&'static str, &str); 4] {
        variables(&self.civo_url, &self.digitalocean_url, ["civo-token", "digitalocean-token"])
    }

    pub fn ledgers(&self) -> [Value; 2] {
        let world = self.sandbox().world();
        [world.ledger(berth_sandbox::civo::NAME), world.ledger(berth_sandbox::digitalocean::NAME)]
    }

    /// Replaces the fault rules; none without any.
    pub fn faults(&self, rules: &[&str]) {
        let rules = rules.iter().map(|rule| rule.parse::<Rule>().expect("a rule")).collect();
        self.sandbox().world().faults().replace(rules);
    }

    /// How many calls the first fault rule was for.
    pub fn matched(&self) -> u64 {
        self.sandbox().world().faults().list().first().map_or(0, |(_, matched, _)| *matched)
    }

    pub fn mutating(&self) -> u64 {
        let world = self.sandbox().world();
        world.traffic(berth_sandbox::civo::NAME).mutating()
            + world.traffic(berth_sandbox::digitalocean::NAME).mutating()
    }

    pub fn reset_calls(&self) {
        let world = self.sandbox().world();
        world.traffic(berth_sandbox::civo::NAME).reset();
        world.traffic(berth_sandbox::digitalocean::NAME).reset();
    }

    pub fn held(&self) -> usize {
        let world = self.sandbox().world();
        world.traffic(berth_sandbox::civo::NAME).held() + world.traffic(berth_sandbox::digitalocean::NAME).held()
    }

    /// How many calls were refused and are still to be acted on.
    pub fn late(&self) -> u64 {
        let world = self.sandbox().world();
        world.traffic(berth_sandbox::civo::NAME).late() + world.traffic(berth_sandbox::digitalocean::NAME).late()
    }

    /// The changes that were asked of both clouds, for messages.
    pub fn events(&self) -> String {
        let world = self.sandbox().world();
        let mut text = String::new();
        for cloud in [berth_sandbox::civo::NAME, berth_sandbox::digitalocean::NAME] {
            for event in world.traffic(cloud).events() {
                let fault = event.fault.map(|fault| format!(" [{fault}]")).unwrap_or_default();
                let status = event.status.map_or("-".into(), |status| status.to_string());
                text.push_str(&format!("  {} {} -> {status}{fault}\n", event.method, event.path));
            }
        }
        text
    }

    /// One call of the cloud's own API, as its own tools would make it. Panics unless it succeeds.
    pub fn call(&self, cloud: CloudName, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, answer) = self.try_call(cloud, method, path, body);
        assert!((200..300).contains(&status), "{method} {path} answered {status}: {answer}");
        answer
    }

    pub fn try_call(&self, cloud: CloudName, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let base = match cloud {
            berth_sandbox::civo::NAME => &self.civo_url,
            _ => &self.digitalocean_url,
        };
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let mut request = http().request(method, format!("{base}{path}")).header("authorization", "bearer outside");
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        runtime().block_on(async {
            let answer = request.send().await.expect("an answer");
            let status = answer.status().as_u16();
            let text = answer.text().await.expect("a body");
            (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
        })
    }

    pub fn stop(mut self) {
        if let Some(sandbox) = self.sandbox.take() {
            runtime().block_on(sandbox.stop());
        }
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        if let Some(sandbox) = self.sandbox.take() {
            runtime().block_on(sandbox.stop());
        }
    }
}

/// The variables that name the two clouds, with a token for each.
pub fn variables<'a>(civo: &'a str, digitalocean: &'a str, tokens: [&'a str; 2]) -> [(&'static str, &'a str); 4] {
    [
        ("CIVO_API_URL", civo),
        ("CIVO_TOKEN", tokens[0]),
        ("DIGITALOCEAN_API_URL", digitalocean),
        ("DIGITALOCEAN_ACCESS_TOKEN", tokens[1]),
    ]
}
