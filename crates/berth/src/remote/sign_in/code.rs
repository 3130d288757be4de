//! With a browser: authorization code with PKCE. The browser comes back to this machine with a code that only this process
//! can use.

use super::SignedIn;
use super::callback::{Callback, refused};
use super::provider::{Answered, Provider, challenge, nonce_in, random};
use crate::failure::Failure;
use reqwest::Url;
use std::process::Stdio;

/// Signs in; `open` opens the browser too, where there is one.
pub async fn by_browser(provider: &Provider, open: bool) -> Result<SignedIn, Failure> {
    let callback = Callback::open().await?;
    let (state, nonce, verifier) = (random()?, random()?, random()?);
    let mut page = provider.authorization_endpoint.clone();
    page.query_pairs_mut().extend_pairs([
        ("response_type", "code"),
        ("client_id", &provider.client_id),
        ("redirect_uri", &callback.address),
        ("scope", &provider.scopes.join(" ")),
        ("state", &state),
        ("nonce", &nonce),
        ("code_challenge", &challenge(&verifier)),
        ("code_challenge_method", "S256"),
    ]);
    if open && browse(&page) {
        anstream::eprintln!("sign in with the browser that opened; if none did, open this address:\n\n  {page}\n");
    } else {
        anstream::eprintln!("open this address in a browser on this machine:\n\n  {page}\n");
    }
    let code = callback.code(&state, &provider.issuer).await?;
    let answered = provider
        .token(&[
            ("grant_type", "authorization_code"),
            ("code", &code),
            ("redirect_uri", &callback.address),
            ("client_id", &provider.client_id),
            ("code_verifier", &verifier),
        ])
        .await?;
    match answered {
        Answered::Refused { code, about } => Err(refused(&code, &about)),
        Answered::Token(id_token) if nonce_in(&id_token).as_deref() == Some(&nonce) => Ok(SignedIn { id_token, nonce }),
        Answered::Token(_) => Err(Failure::new("the identity provider answered to another login than this one")),
    }
}

/// Whether a program to open it could be started.
fn browse(page: &Url) -> bool {
    let chosen = std::env::var("BROWSER").ok().filter(|name| !name.is_empty());
    let (program, before): (&str, &[&str]) = match &chosen {
        Some(name) => (name, &[]),
        None if cfg!(target_os = "macos") => ("open", &[]),
        None if cfg!(windows) => ("rundll32", &["url.dll,FileProtocolHandler"]),
        None => ("xdg-open", &[]),
    };
    let mut command = std::process::Command::new(program);
    command.args(before).arg(page.as_str());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().is_ok()
}
