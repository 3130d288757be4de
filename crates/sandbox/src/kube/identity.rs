//! Who the sandbox clusters are: one certificate authority, one server and one client certificate, and the secret that
//! tokens come from. Kept beside the state file, so that kubeconfigs outlive a restart.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::RngCore;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::SandboxError;

const MAX_FILE_BYTES: u64 = 1 << 20;
const CLUSTERS_DOMAIN: &str = "clusters.localhost";

/// The name under which a cluster can be told apart inside TLS.
pub fn server_name(cluster_id: &str) -> String {
    format!("{cluster_id}.{CLUSTERS_DOMAIN}")
}

/// The cluster that a TLS server name stands for.
pub fn cluster_of(server_name: &str) -> Option<&str> {
    server_name.strip_suffix(CLUSTERS_DOMAIN)?.strip_suffix('.')
}

/// PEM texts, and where the server listened last.
#[derive(Clone, Serialize, Deserialize)]
pub struct Identity {
    pub ca: String,
    server: String,
    server_key: String,
    pub client: String,
    pub client_key: String,
    secret: String,
    pub address: Option<SocketAddr>,
}

fn tls(error: impl std::fmt::Display) -> SandboxError {
    SandboxError::Tls(error.to_string())
}

impl Identity {
    /// What is kept in the folder, or a new identity.
    pub fn load_or_make(folder: Option<&Path>) -> Result<Identity, SandboxError> {
        let Some(folder) = folder else { return Identity::make() };
        let path = folder.join("identity.json");
        match read_limited(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| tls(format!("{}: {error}", path.display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Identity::make(),
            Err(source) => Err(SandboxError::State { path, source }),
        }
    }

    pub fn keep(&self, folder: &Path) -> Result<(), SandboxError> {
        let path = folder.join("identity.json");
        let text = serde_json::to_string(self).map_err(tls)?;
        make_private_folder(folder)
            .and_then(|()| write_private(&path, text.as_bytes()))
            .map_err(|source| SandboxError::State { path, source })
    }

    fn make() -> Result<Identity, SandboxError> {
        let mut params = params("berth sandbox CA", None).map_err(tls)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(tls)?).map_err(tls)?;
        let (server, server_key) = leaf(&ca, "berth sandbox", None, ExtendedKeyUsagePurpose::ServerAuth)?;
        let (client, client_key) = leaf(&ca, "admin", Some("system:masters"), ExtendedKeyUsagePurpose::ClientAuth)?;
        let mut secret = [0u8; 32];
        rand::rng().fill_bytes(&mut secret);
        Ok(Identity { ca: ca.pem(), server, server_key, client, client_key, secret: hex(&secret), address: None })
    }

    /// Takes anyone into the TLS session and verifies those who show a certificate; who may do what is decided for each
    /// request, so that a client without one gets Kubernetes' own 401.
    pub fn server_config(&self) -> Result<rustls::ServerConfig, SandboxError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca.as_bytes()).map_err(tls)?).map_err(tls)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(tls)?;
        let chain = vec![CertificateDer::from_pem_slice(self.server.as_bytes()).map_err(tls)?];
        let key = PrivateKeyDer::from_pem_slice(self.server_key.as_bytes()).map_err(tls)?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(tls)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(tls)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// The bearer token of a cluster: its id, and a keyed hash of it. Nested hashing keeps one cluster's token from telling
    /// another's.
    pub fn token(&self, cluster_id: &str) -> String {
        let inner = Sha256::new().chain_update(&self.secret).chain_update([0]).chain_update(cluster_id).finalize();
        let outer = Sha256::new().chain_update(&self.secret).chain_update([1]).chain_update(inner).finalize();
        format!("{cluster_id}.{}", hex(&outer))
    }
}

pub fn params(name: &str, organization: Option<&str>) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.not_before = rcgen::date_time_ymd(2024, 1, 1);
    params.not_after = rcgen::date_time_ymd(2124, 1, 1);
    Ok(params)
}

fn leaf(
    ca: &CertifiedIssuer<'_, KeyPair>,
    name: &str,
    organization: Option<&str>,
    usage: ExtendedKeyUsagePurpose,
) -> Result<(String, String), SandboxError> {
    let mut params = params(name, organization).map_err(tls)?;
    if usage == ExtendedKeyUsagePurpose::ServerAuth {
        params.subject_alt_names = vec![
            rcgen::SanType::DnsName("localhost".try_into().map_err(tls)?),
            rcgen::SanType::DnsName(format!("*.{CLUSTERS_DOMAIN}").try_into().map_err(tls)?),
            rcgen::SanType::IpAddress(IpAddr::from([127, 0, 0, 1])),
            rcgen::SanType::IpAddress(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])),
        ];
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate().map_err(tls)?;
    let certificate = params.signed_by(&key, ca).map_err(tls)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The folder beside a state file that holds what belongs to the clusters themselves.
pub fn folder_beside(state: &Path) -> PathBuf {
    let mut name = state.as_os_str().to_owned();
    name.push(".kube");
    PathBuf::from(name)
}

pub fn read_limited(path: &Path) -> io::Result<String> {
    read_up_to(path, MAX_FILE_BYTES)
}

pub fn read_up_to(path: &Path, limit: u64) -> io::Result<String> {
    let mut text = String::new();
    let read = io::Read::read_to_string(&mut io::Read::take(std::fs::File::open(path)?, limit + 1), &mut text)?;
    if read as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("larger than {limit} bytes")));
    }
    Ok(text)
}

pub fn make_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Whole or not at all, readable by the owner only.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)
}
