//! Trust by fingerprint: the server's certificate is compared with the fingerprint that the user was given, and pinned from then on.

use crate::client::{ExpectedCertificate, Pinned, fingerprint};
use crate::fault::{Code, Fault};
use rustls::ClientConfig;
use rustls_pki_types::{CertificateDer, ServerName};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

const SHOWN_WITHIN: Duration = Duration::from_secs(10);
const HTTPS_PORT: u16 = 443;

/// What was recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trusted {
    /// The authority that signed the server's certificate, as PEM: it holds when the server's certificate is renewed.
    Authority(String),
    /// The server's certificate itself; the fingerprint as hexadecimal digits.
    Certificate(String),
}

/// Looks at what a server shows. Nothing is sent to it.
pub async fn by_fingerprint(url: &str, text: &str) -> Result<Trusted, Fault> {
    let digits = text.trim();
    let digits = digits.strip_prefix("sha256:").or_else(|| digits.strip_prefix("SHA256:")).unwrap_or(digits);
    let wanted = fingerprint(digits).ok_or_else(|| {
        Fault::new(Code::InvalidArgument, format!("`{text}` is not the fingerprint of a certificate"))
            .help("it is `sha256:` and 64 hexadecimal digits; `berth server` prints it when it starts")
    })?;
    let shown = shown(url).await?;
    let found = shown.iter().position(|certificate| {
        let digest: [u8; 32] = Sha256::digest(certificate).into();
        digest == wanted
    });
    match found {
        Some(0) => Ok(Trusted::Certificate(digits.replace(':', "").to_ascii_lowercase())),
        Some(index) => Ok(Trusted::Authority(pem(&shown[index]))),
        None => Err(Fault::new(
            Code::Unavailable,
            format!("the server at {url} is not trusted: nothing that it shows has the fingerprint given"),
        )
        .help("ask whoever runs the server for the fingerprint; never skip this check")),
    }
}

async fn shown(url: &str) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let at = |why: String| Fault::new(Code::Unavailable, format!("cannot reach the server at {url}: {why}"));
    let parsed = reqwest::Url::parse(url).map_err(|error| at(error.to_string()))?;
    let host = parsed.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = parsed.port().unwrap_or(HTTPS_PORT);
    let name = ServerName::try_from(host.clone()).map_err(|error| at(error.to_string()))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| at(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { expected: ExpectedCertificate::Any, provider }))
        .with_no_client_auth();
    let look = async {
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        Ok::<_, std::io::Error>(stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec())
    };
    match timeout(SHOWN_WITHIN, look).await {
        Ok(Ok(shown)) => Ok(shown.into_iter().map(CertificateDer::into_owned).collect()),
        Ok(Err(error)) => Err(at(error.to_string()).help("check the address, and that `berth server` is running")),
        Err(_) => Err(at("no answer in time".into())),
    }
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}
