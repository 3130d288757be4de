//! The client of a server, for the command line and for workers.

use crate::fault::{Code, Fault};
use crate::pb::access_client::AccessClient;
use crate::pb::events_client::EventsClient;
use crate::pb::resources_client::ResourcesClient;
use crate::pb::tasks_client::TasksClient;
use crate::pb::worker_service_client::WorkerServiceClient;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{CertificateError, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use std::error::Error as StdError;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tonic::codec::CompressionEncoding;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// For calls that say nothing else.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(20);
const KEEP_ALIVE_WITHIN: Duration = Duration::from_secs(10);
/// A page of a thousand resources with long manifests.
const MESSAGE_BYTES: usize = 64 << 20;
const TIMEOUT_HEADER: &str = "grpc-timeout";

/// Where a server is, how it is known to be the right one, and who calls.
#[derive(Clone, Debug)]
pub struct Connection {
    /// `https://berth.example.com:7443`.
    pub url: String,
    /// Empty where the call needs none, such as asking how to log in.
    pub token: SecretString,
    /// PEM of the authority that signed the server's certificate; the system's own authorities when absent.
    pub ca: Option<Vec<u8>>,
    /// PEM of certificate and key, for servers that ask workers for one.
    pub identity: Option<(Vec<u8>, SecretString)>,
    /// SHA-256 of the server's certificate in hex, colons allowed: this certificate and no other.
    pub fingerprint: Option<String>,
}

impl Connection {
    pub fn new(url: impl Into<String>, token: SecretString) -> Self {
        Self { url: url.into(), token, ca: None, identity: None, fingerprint: None }
    }

    /// Connects, so that whatever is wrong is said now. A connection that breaks later is made again by the next call.
    pub async fn channel(&self) -> Result<Channel, Fault> {
        let endpoint = self.endpoint()?;
        endpoint.connect().await.map_err(|error| self.unreachable(&error))
    }

    /// Typed clients that share one connection and carry the token.
    pub async fn connect(&self) -> Result<Client, Fault> {
        let channel = self.channel().await?;
        self.over(channel)
    }

    /// The same over a connection that is there already.
    pub fn over(&self, channel: Channel) -> Result<Client, Fault> {
        let token = match self.token.expose_secret().trim() {
            "" => None,
            token => {
                let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().map_err(|_| {
                    Fault::new(Code::InvalidArgument, "the token holds characters that no token has")
                        .help("copy it again, whole and without blanks")
                })?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Client { connection: Arc::new(self.clone()), channel, token })
    }

    fn endpoint(&self) -> Result<Endpoint, Fault> {
        let bad = |why: &str| {
            Fault::new(Code::InvalidArgument, format!("{} is not the address of a server: {why}", self.url))
                .help("write it as https://HOST:PORT, such as https://127.0.0.1:7443")
        };
        let uri: tonic::codegen::http::Uri = self.url.parse().map_err(|_| bad("it is not a URL"))?;
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") => return Err(bad("servers speak https only")),
            _ => return Err(bad("it does not begin with https://")),
        }
        if uri.host().is_none_or(str::is_empty) {
            return Err(bad("it names no host"));
        }
        if !uri.path().trim_end_matches('/').is_empty() || uri.query().is_some() {
            return Err(bad("nothing follows host and port"));
        }
        let cannot = |error: tonic::transport::Error| self.unreachable(&error);
        let endpoint = Endpoint::from(uri)
            .user_agent(concat!("berth/", env!("CARGO_PKG_VERSION")))
            .map_err(cannot)?
            .connect_timeout(CONNECT_WITHIN)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE_EVERY)
            .keep_alive_timeout(KEEP_ALIVE_WITHIN)
            .keep_alive_while_idle(true);
        let mut tls = ClientTlsConfig::new().timeout(CONNECT_WITHIN);
        if let Some((certificate, key)) = &self.identity {
            tls = tls.identity(Identity::from_pem(certificate, key.expose_secret()));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        if let Some(text) = &self.fingerprint {
            let wanted = fingerprint(text).ok_or_else(|| {
                Fault::new(Code::InvalidArgument, format!("`{text}` is not the fingerprint of a certificate"))
                    .help("it is 64 hexadecimal digits: the SHA-256 that `berth server` prints when it starts")
            })?;
            return endpoint
                .tls_config_with_verifier(
                    tls,
                    Arc::new(Pinned { expected: ExpectedCertificate::Digest(wanted), provider }),
                )
                .map_err(cannot);
        }
        match &self.ca {
            Some(pem) => endpoint.tls_config(tls.ca_certificate(Certificate::from_pem(pem))).map_err(cannot),
            None => {
                let system = rustls_platform_verifier::Verifier::new(provider).map_err(|error| {
                    Fault::new(Code::Unavailable, format!("the system's certificates cannot be read: {error}"))
                        .help("give the server's own authority:   --ca FILE")
                })?;
                endpoint.tls_config_with_verifier(tls, Arc::new(system)).map_err(cannot)
            }
        }
    }

    /// What a caller reads: the server's own words, or why it could not be asked.
    pub fn fault(&self, status: &tonic::Status) -> Fault {
        if status.details().is_empty()
            && let Some(source) = status.source()
        {
            return self.unreachable(source);
        }
        let fault = Fault::from_status(status);
        match fault.code {
            Code::Unauthenticated if fault.help.is_empty() => fault.help(format!("log in:   berth login {}", self.url)),
            _ => fault,
        }
    }

    /// Cause and cure of a connection that did not come to be, or broke.
    fn unreachable(&self, error: &(dyn StdError + 'static)) -> Fault {
        let at = |why: &str| Fault::new(Code::Unavailable, format!("cannot reach the server at {}: {why}", self.url));
        let late = || at("no answer in time").help("check the address, and the firewalls between here and there");
        let closed = || at("the connection was closed").help("the server may be restarting: try again in a moment");
        let mut last = error.to_string();
        let (mut next, mut outer) = (Some(error), None);
        while let Some(error) = next {
            let inner = error
                .downcast_ref::<std::io::Error>()
                .or_else(|| error.downcast_ref::<h2::Error>().and_then(h2::Error::get_io));
            // An io::Error does not give what it wraps as its source.
            let tls = error
                .downcast_ref::<rustls::Error>()
                .or_else(|| inner.and_then(|io| io.get_ref()).and_then(|inner| inner.downcast_ref()));
            if let Some(tls) = tls {
                return self.distrusted(tls);
            }
            match inner.map(std::io::Error::kind) {
                Some(ErrorKind::ConnectionRefused) => {
                    return at("nothing answers there").help("check that `berth server` is running, and on that port");
                }
                Some(ErrorKind::TimedOut) => return late(),
                Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof) => return closed(),
                // What ended the connection may stand further down.
                _ if is_timeout(error) => outer = Some(late()),
                _ if is_closed(error) => outer = Some(closed()),
                _ => {}
            }
            last = error.to_string();
            next = error.source();
        }
        if let Some(fault) = outer {
            return fault;
        }
        if last.contains("lookup address") {
            return at("its name cannot be resolved").help("check how the host is spelled, and the network");
        }
        at(&last).help("check the address, and that a Berth server answers there")
    }

    fn distrusted(&self, error: &rustls::Error) -> Fault {
        let at = |why: &str| Fault::new(Code::Unavailable, format!("the server at {} is not trusted: {why}", self.url));
        match error {
            rustls::Error::InvalidCertificate(certificate) => match certificate {
                CertificateError::UnknownIssuer if self.ca.is_some() => {
                    at("its certificate is not signed by the authority in the given CA file")
                        .help("`berth server` prints where its CA file is; a server that was set up anew has a new one")
                }
                CertificateError::UnknownIssuer => Fault {
                    unknown_authority: true,
                    ..at("its certificate is signed by an authority that is not known here")
                        .help(format!("give the authority's certificate:   berth login {} --ca FILE", self.url))
                },
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => at(
                    "its certificate is for another name",
                )
                .help("use the name that the certificate was made for, or add this one to the server with --tls-name"),
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    at("its certificate has expired").help("renew it on the server; a wrong clock here looks the same")
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    at("its certificate is not valid yet").help("check the clocks here and there")
                }
                CertificateError::ApplicationVerificationFailure => {
                    at("its certificate has another fingerprint than the one given")
                        .help("ask whoever runs the server for the fingerprint; never skip this check")
                }
                other => at(&format!("its certificate cannot be accepted: {other}")),
            },
            rustls::Error::AlertReceived(alert) => at(&format!("it ended the handshake ({alert:?})"))
                .help("a server that asks for client certificates wants --cert and --key"),
            rustls::Error::InvalidMessage(_) => {
                at("it does not speak TLS").help("check the port: something else than a Berth server may answer there")
            }
            other => at(&other.to_string()),
        }
    }
}

fn is_timeout(error: &(dyn StdError + 'static)) -> bool {
    error.is::<tonic::TimeoutExpired>()
        || error.is::<tokio::time::error::Elapsed>()
        || error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_timeout)
}

fn is_closed(error: &(dyn StdError + 'static)) -> bool {
    let of_hyper = |error: &hyper::Error| error.is_closed() || error.is_incomplete_message() || error.is_canceled();
    error.downcast_ref::<hyper::Error>().is_some_and(of_hyper)
        || error.downcast_ref::<h2::Error>().is_some_and(h2::Error::is_go_away)
}

/// Clients of one server.
#[derive(Clone, Debug)]
pub struct Client {
    connection: Arc<Connection>,
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
}

pub type Called = InterceptedService<Channel, Attach>;

macro_rules! clients {
    ($($(#[$doc:meta])* $name:ident: $client:ident, $within:expr;)*) => {
        $($(#[$doc])* pub fn $name(&self) -> $client<Called> {
            let service = InterceptedService::new(self.channel.clone(), Attach { token: self.token.clone(), within: $within });
            $client::new(service)
                .accept_compressed(CompressionEncoding::Gzip)
                .max_decoding_message_size(MESSAGE_BYTES)
                .max_encoding_message_size(MESSAGE_BYTES)
        })*
    };
}

impl Client {
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// What a caller reads.
    pub fn fault(&self, status: &tonic::Status) -> Fault {
        self.connection.fault(status)
    }

    clients! {
        resources: ResourcesClient, Some(ANSWER_WITHIN);
        tasks: TasksClient, Some(ANSWER_WITHIN);
        /// Without a limit of its own: a watch lasts.
        events: EventsClient, None;
        access: AccessClient, Some(ANSWER_WITHIN);
        worker: WorkerServiceClient, Some(ANSWER_WITHIN);
    }
}

/// Puts the token on each call, and a limit where the caller set none.
#[derive(Clone, Debug)]
pub struct Attach {
    token: Option<MetadataValue<Ascii>>,
    within: Option<Duration>,
}

impl tonic::service::Interceptor for Attach {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, tonic::Status> {
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        if let Some(within) = self.within
            && request.metadata().get(TIMEOUT_HEADER).is_none()
        {
            request.set_timeout(within);
        }
        Ok(request)
    }
}

/// A SHA-256 as people write it: hex, with or without colons.
pub fn fingerprint(text: &str) -> Option<[u8; 32]> {
    let hex: Vec<u8> = text.trim().bytes().filter(|b| *b != b':').collect();
    if hex.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(hex.chunks(2)) {
        let digit = |b: u8| char::from(b).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(bytes)
}

/// Trusts one certificate, regardless of its issuer and names.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub expected: ExpectedCertificate,
    pub provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
pub(crate) enum ExpectedCertificate {
    Digest([u8; 32]),
    /// Only to look at what is shown: such a connection is closed before anything is sent.
    Any,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found: [u8; 32] = Sha256::digest(end_entity).into();
        match self.expected {
            ExpectedCertificate::Any => Ok(ServerCertVerified::assertion()),
            ExpectedCertificate::Digest(wanted) if wanted == found => Ok(ServerCertVerified::assertion()),
            ExpectedCertificate::Digest(_) => {
                Err(rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
