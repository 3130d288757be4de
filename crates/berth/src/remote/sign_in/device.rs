//! Without a browser here: a code to be entered on any other device (RFC 8628).

use super::SignedIn;
use super::callback::refused;
use super::provider::{Answered, Provider, challenge, nonce_in, random};
use crate::failure::Failure;
use crate::view::terminal::harmless_line;
use std::time::Duration;
use tokio::time::Instant;

const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Default polling interval, and what is added each time the provider asks to slow down.
const INTERVAL: Duration = Duration::from_secs(5);
const SLOWER_BY: Duration = Duration::from_secs(5);
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// Longest time that a code is polled for.
const WAIT_MAX: Duration = Duration::from_secs(1800);

pub async fn by_device(provider: &Provider) -> Result<SignedIn, Failure> {
    let endpoint = provider.device_endpoint.as_ref().ok_or_else(|| {
        Failure::new(format!("the identity provider {} does not know this way to sign in", provider.issuer))
            .help("with a browser on this machine:   berth login")
    })?;
    let (nonce, verifier) = (random()?, random()?);
    let begun = provider
        .post(
            endpoint,
            &[
                ("client_id", &provider.client_id),
                ("scope", &provider.scopes.join(" ")),
                ("nonce", &nonce),
                ("code_challenge", &challenge(&verifier)),
                ("code_challenge_method", "S256"),
            ],
        )
        .await?;
    if let Some(code) = begun["error"].as_str() {
        return Err(refused(code, begun["error_description"].as_str().unwrap_or_default()));
    }
    let text = |name: &str| {
        begun[name].as_str().map(str::to_owned).ok_or_else(|| {
            Failure::new(format!("the identity provider {} did not answer as it should", provider.issuer))
                .note(format!("`{name}` is missing"))
        })
    };
    let device_code = text("device_code")?;
    let (code, page) = (text("user_code")?, text("verification_uri")?);
    let shown = |text: &str| harmless_line(text).into_owned();
    anstream::eprintln!("open {} in any browser, and enter the code\n\n  {}\n", shown(&page), shown(&code));
    if let Some(whole) = begun["verification_uri_complete"].as_str() {
        anstream::eprintln!("or open it with the code in it:\n\n  {}\n", shown(whole));
    }
    let seconds = |name: &str| begun[name].as_u64().map(Duration::from_secs);
    let end = Instant::now() + seconds("expires_in").unwrap_or(WAIT_MAX).min(WAIT_MAX);
    let mut interval = seconds("interval").unwrap_or(INTERVAL).clamp(Duration::from_secs(1), INTERVAL_MAX);
    loop {
        if Instant::now() + interval > end {
            return Err(refused("expired_token", ""));
        }
        tokio::time::sleep(interval).await;
        let answered = provider
            .token(&[
                ("grant_type", GRANT),
                ("device_code", &device_code),
                ("client_id", &provider.client_id),
                ("code_verifier", &verifier),
            ])
            .await?;
        match answered {
            Answered::Refused { code, .. } if code == "authorization_pending" => {}
            Answered::Refused { code, .. } if code == "slow_down" => {
                interval = (interval + SLOWER_BY).min(INTERVAL_MAX)
            }
            Answered::Refused { code, about } => return Err(refused(&code, &about)),
            Answered::Token(id_token) => {
                // The standard has no nonce in this flow. If a provider returns one, it must be the one that was sent.
                return match nonce_in(&id_token) {
                    None => Ok(SignedIn { id_token, nonce: String::new() }),
                    Some(said) if said == nonce => Ok(SignedIn { id_token, nonce }),
                    Some(_) => Err(Failure::new("the identity provider answered to another login than this one")),
                };
            }
        }
    }
}
