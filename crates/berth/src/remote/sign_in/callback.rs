//! Receives the redirect of the browser after a login: one page on this machine, for one answer.

use crate::failure::Failure;
use reqwest::Url;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout, timeout_at};

const PATH: &str = "/callback";
const REQUEST_BYTES_MAX: usize = 16 << 10;
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// Time that a person has to log in.
pub const COMES_BACK_WITHIN: Duration = Duration::from_secs(600);

pub struct Callback {
    listener: TcpListener,
    pub address: String,
}

impl Callback {
    /// Listens on a free port of the loopback interface.
    pub async fn open() -> Result<Self, Failure> {
        let cannot = |error: std::io::Error| {
            Failure::caused("cannot listen on this machine for the browser to come back", &error)
                .help("sign in with a code instead:   berth login --device")
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(cannot)?;
        let port = listener.local_addr().map_err(cannot)?.port();
        Ok(Self { listener, address: format!("http://127.0.0.1:{port}{PATH}") })
    }

    /// The code that the provider sent, once it comes with the right state.
    pub async fn code(&self, state: &str, issuer: &str) -> Result<String, Failure> {
        let end = Instant::now() + COMES_BACK_WITHIN;
        loop {
            let accepted = timeout_at(end, self.listener.accept()).await.map_err(|_| {
                Failure::new("nobody signed in within ten minutes").help("try again, or:   berth login --device")
            })?;
            let Ok((mut stream, _)) = accepted else { continue };
            let Ok(Some(target)) = timeout(REQUEST_WITHIN, read(&mut stream)).await else { continue };
            let Some(answer) = understand(&target, state, issuer) else {
                reply(&mut stream, "404 Not Found", "There is nothing here.").await;
                continue;
            };
            match &answer {
                Ok(_) => {
                    reply(
                        &mut stream,
                        "200 OK",
                        "You are signed in. You may close this page and go back to the terminal.",
                    )
                    .await
                }
                Err(_) => reply(&mut stream, "400 Bad Request", "You are not signed in; the terminal says why.").await,
            }
            return answer;
        }
    }
}

/// `None` for a request that is not the provider's answer, such as one of another login.
fn understand(target: &str, state: &str, issuer: &str) -> Option<Result<String, Failure>> {
    let url = Url::parse("http://127.0.0.1").ok()?.join(target).ok()?;
    if url.path() != PATH {
        return None;
    }
    let value = |name: &str| {
        let mut all = url.query_pairs().filter(|(key, _)| key == name).map(|(_, value)| value.into_owned());
        all.next().filter(|_| all.next().is_none())
    };
    if value("state").as_deref() != Some(state) {
        return None;
    }
    if value("iss").is_some_and(|said| said != issuer) {
        return Some(Err(Failure::new("another identity provider answered than the one that was asked")));
    }
    if let Some(code) = value("error") {
        let about = value("error_description").unwrap_or_default();
        return Some(Err(refused(&code, &about)));
    }
    Some(value("code").ok_or_else(|| Failure::new("the identity provider sent no code")))
}

/// What a provider says when it does not let someone in.
pub fn refused(code: &str, about: &str) -> Failure {
    let failure = match code {
        "access_denied" => Failure::new("the identity provider did not let you in"),
        "expired_token" => Failure::new("the code was not used in time").help("try again:   berth login --device"),
        code => Failure::new(format!("the identity provider refused: {code}")),
    };
    if about.is_empty() { failure } else { failure.note(about) }
}

/// The target of a request for a page.
async fn read(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 2048];
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut chunk).await.ok()?;
        if count == 0 || bytes.len() + count > REQUEST_BYTES_MAX {
            return None;
        }
        bytes.extend_from_slice(&chunk[..count]);
    }
    let text = String::from_utf8(bytes).ok()?;
    let mut words = text.lines().next()?.split(' ');
    let (verb, target) = (words.next()?, words.next()?);
    (verb == "GET" && target.starts_with('/')).then(|| target.to_owned())
}

async fn reply(stream: &mut TcpStream, status: &str, text: &str) {
    let body = format!("<!doctype html><meta charset=utf-8><title>Berth</title><p>{text}</p>\n");
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\ncache-control: no-store\r\n\
         referrer-policy: no-referrer\r\ncontent-security-policy: default-src 'none'\r\nconnection: close\r\n\r\n",
        body.len()
    );
    // Whether the browser shows it makes no difference to the login.
    _ = timeout(REQUEST_WITHIN, async {
        _ = stream.write_all(head.as_bytes()).await;
        _ = stream.write_all(body.as_bytes()).await;
        _ = stream.shutdown().await;
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_this_login_is_taken() {
        let take = |target: &str| understand(target, "st", "https://i").map(|answer| answer.map_err(|f| f.to_string()));
        assert_eq!(take("/callback?state=st&code=abc&iss=https%3A%2F%2Fi"), Some(Ok("abc".into())));
        assert_eq!(take("/callback?state=other&code=abc"), None);
        assert_eq!(take("/callback?code=abc"), None);
        assert_eq!(take("/callback?state=st&state=st&code=abc"), None);
        assert_eq!(take("/favicon.ico"), None);
        let said = |target: &str| take(target).unwrap().unwrap_err();
        assert!(said("/callback?state=st&code=abc&iss=https%3A%2F%2Fevil").contains("another identity provider"));
        assert!(said("/callback?state=st&error=access_denied").contains("did not let you in"));
        assert!(said("/callback?state=st").contains("no code"));
    }
}
