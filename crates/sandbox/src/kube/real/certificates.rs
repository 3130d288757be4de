//! The certificates and keys of one control plane, made anew at each start. The keys of service accounts' tokens are those of the
//! sandbox, as tokens outlive a restart.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertifiedIssuer, ExtendedKeyUsagePurpose as Usage, IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;

use super::error::RealError;
use crate::kube::identity::{self, write_private};

/// The only name with which the API server lets a client say who is calling.
pub const FRONT_PROXY: &str = "berth-sandbox";

type Issuer = CertifiedIssuer<'static, KeyPair>;

/// Where everything is, and how the sandbox itself connects.
pub struct Certificates {
    folder: PathBuf,
    ca: Issuer,
    /// As the sandbox, which says who is calling.
    pub front_proxy: Arc<ClientConfig>,
    /// As nobody: who is calling follows from what is in the request.
    pub anonymous: Arc<ClientConfig>,
}

impl Certificates {
    /// `cluster_ca` is the authority that the users of the cluster know; its pods are told the same. `token_keys` are those that
    /// sign and check service accounts' tokens.
    pub fn make(folder: &Path, cluster_ca: &str, token_keys: &(String, String)) -> Result<Certificates, RealError> {
        let folder = folder.join("certificates");
        identity::make_private_folder(&folder).map_err(|source| files(&folder, source))?;
        let ca = authority("sandbox control plane CA")?;
        // An authority of its own: whoever has a certificate of this one may say to be anybody.
        let front_proxy_ca = authority("sandbox front proxy CA")?;
        let (certificate, key) = issue(&front_proxy_ca, FRONT_PROXY, None, &[Usage::ClientAuth])?;
        let made = Certificates {
            front_proxy: client_config(&ca.pem(), Some((&certificate, &key)))?,
            anonymous: client_config(&ca.pem(), None)?,
            folder,
            ca,
        };
        made.write("ca.crt", &made.ca.pem())?;
        made.write("front-proxy-ca.crt", &front_proxy_ca.pem())?;
        made.write("cluster-ca.crt", cluster_ca)?;
        let both = [Usage::ServerAuth, Usage::ClientAuth];
        made.leaf("etcd", "etcd", None, &both)?;
        made.leaf("apiserver", "kube-apiserver", None, &[Usage::ServerAuth])?;
        made.leaf("kubelet", "kwok", None, &[Usage::ServerAuth])?;
        made.leaf("kubelet-client", "kube-apiserver-kubelet-client", Some("system:masters"), &[Usage::ClientAuth])?;
        made.write("service-accounts.key", &token_keys.0)?;
        made.write("service-accounts.pub", &token_keys.1)?;
        Ok(made)
    }

    pub fn path(&self, file: &str) -> String {
        self.folder.join(file).to_string_lossy().into_owned()
    }

    /// A kubeconfig with which a program reaches the API server directly; gives its path.
    pub fn kubeconfig(&self, server: &str, user: &str, group: Option<&str>) -> Result<String, RealError> {
        let (certificate, key) = issue(&self.ca, user, group, &[Usage::ClientAuth])?;
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "default",
            "clusters": [{"name": "default", "cluster": {
                "server": server, "certificate-authority-data": STANDARD.encode(self.ca.pem())}}],
            "users": [{"name": "default", "user": {
                "client-certificate-data": STANDARD.encode(certificate), "client-key-data": STANDARD.encode(key)}}],
            "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
        });
        let file = format!("{}.kubeconfig", user.trim_start_matches("system:"));
        self.write(&file, &config.to_string())?;
        Ok(self.path(&file))
    }

    fn leaf(&self, file: &str, name: &str, group: Option<&str>, usages: &[Usage]) -> Result<(), RealError> {
        let (certificate, key) = issue(&self.ca, name, group, usages)?;
        self.write(&format!("{file}.crt"), &certificate)?;
        self.write(&format!("{file}.key"), &key)
    }

    fn write(&self, file: &str, text: &str) -> Result<(), RealError> {
        write_private(&self.folder.join(file), text.as_bytes()).map_err(|source| files(&self.folder, source))
    }
}

fn files(folder: &Path, source: io::Error) -> RealError {
    RealError::Files { folder: folder.to_owned(), source }
}

fn broken(error: impl std::fmt::Display) -> RealError {
    RealError::Certificates(error.to_string())
}

fn authority(name: &str) -> Result<Issuer, RealError> {
    let mut params = identity::params(name, None).map_err(broken)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(broken)?).map_err(broken)
}

/// A certificate and its key. Servers are known by their loopback address alone.
fn issue(ca: &Issuer, name: &str, group: Option<&str>, usages: &[Usage]) -> Result<(String, String), RealError> {
    let mut params = identity::params(name, group).map_err(broken)?;
    if usages.contains(&Usage::ServerAuth) {
        let localhost = SanType::DnsName("localhost".try_into().map_err(broken)?);
        params.subject_alt_names = vec![localhost, SanType::IpAddress([127, 0, 0, 1].into())];
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = usages.to_vec();
    let key = KeyPair::generate().map_err(broken)?;
    let certificate = params.signed_by(&key, ca).map_err(broken)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn client_config(ca: &str, client: Option<(&str, &str)>) -> Result<Arc<ClientConfig>, RealError> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).map_err(broken)?).map_err(broken)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(broken)?
        .with_root_certificates(roots);
    let config = match client {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(broken)?];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(broken)?;
            builder.with_client_auth_cert(chain, key).map_err(broken)?
        }
    };
    Ok(Arc::new(config))
}
