//! TLS, always. If no certificate is given, the server creates a small certificate authority once, and a certificate of it at every
//! start. Both kinds are reloaded while the server runs, so that an expired certificate needs no restart.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use std::fmt;
use std::fs;
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a certificate of the own authority holds, in days.
const CERTIFICATE_DAYS: i64 = 180;
const AUTHORITY_YEARS: i64 = 20;
/// How often certificates are looked at again, and the own one is made anew every so many looks.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
const LOOKS_PER_CERTIFICATE: u32 = 30 * 24 * 60;
/// A file of certificates or a key.
const PEM_BYTES_MAX: u64 = 1 << 20;
/// Names that one certificate may be for.
const NAMES_MAX: usize = 64;

#[derive(Clone, Debug)]
pub enum Tls {
    /// Kept in the server's folder; `names` are further names and addresses that clients may use.
    Own {
        names: Vec<String>,
    },
    Given {
        certificate: PathBuf,
        key: PathBuf,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("{} holds no {what} in PEM form", path.display())]
    Pem { path: PathBuf, what: &'static str },
    #[error("the certificate and its key do not belong together, or cannot be used")]
    Use(#[source] rustls::Error),
    #[error("the server's own certificate cannot be made")]
    Make(#[source] rcgen::Error),
    #[error("`{0}` cannot be a name in a certificate")]
    Name(String),
    #[error("the authority for clients cannot be used")]
    ClientAuthority(#[source] rustls::server::VerifierBuilderError),
}

/// What the server shows to clients, exchanged while it runs.
pub struct Certificates {
    source: CertificateSource,
    current: RwLock<Arc<CertifiedKey>>,
}

enum CertificateSource {
    Own { authority: Box<Authority>, names: Vec<String>, folder: PathBuf },
    Given { certificate: PathBuf, key: PathBuf },
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.read().ok().map(|current| current.clone())
    }
}

impl Certificates {
    /// Reads or makes them. `listen` is the address that clients see.
    pub fn open(tls: &Tls, folder: &Path, listen: IpAddr) -> Result<Arc<Self>, TlsError> {
        let source = match tls {
            Tls::Given { certificate, key } => {
                CertificateSource::Given { certificate: certificate.clone(), key: key.clone() }
            }
            Tls::Own { names } => {
                let authority = Box::new(Authority::open(folder)?);
                CertificateSource::Own { authority, names: all_names(names, listen)?, folder: folder.to_owned() }
            }
        };
        let current = RwLock::new(Arc::new(source.load()?));
        Ok(Arc::new(Self { source, current }))
    }

    /// Where clients find what to trust; `None` where the certificate was given.
    pub fn authority(&self) -> Option<PathBuf> {
        match &self.source {
            CertificateSource::Own { folder, .. } => Some(folder.join(AUTHORITY)),
            CertificateSource::Given { .. } => None,
        }
    }

    /// What clients may be told to trust, as `sha256:` and hexadecimal digits: the own authority's certificate, or the one
    /// that was given.
    pub fn fingerprint(&self) -> String {
        let current = self.current.read().ok().map(|current| current.cert.clone()).unwrap_or_default();
        let shown = match &self.source {
            CertificateSource::Own { authority, .. } => Some(&authority.certificate),
            CertificateSource::Given { .. } => current.first(),
        };
        let digest = Sha256::digest(shown.map(|shown| shown.as_ref()).unwrap_or_default());
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{hex}")
    }

    /// Takes up new certificates until told to stop.
    pub async fn renew(self: Arc<Self>, stop: CancellationToken) {
        let mut seen = self.source.stamp();
        let mut looks = 0;
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_AGAIN)).await.is_some() {
            looks += 1;
            let stamp = self.source.stamp();
            let due = match self.source {
                CertificateSource::Own { .. } => looks >= LOOKS_PER_CERTIFICATE,
                CertificateSource::Given { .. } => stamp != seen,
            };
            if !due {
                continue;
            }
            (seen, looks) = (stamp, 0);
            match self.source.load() {
                Ok(fresh) => {
                    if let Ok(mut current) = self.current.write() {
                        *current = Arc::new(fresh);
                    }
                    tracing::info!("a new certificate is in use");
                }
                Err(error) => tracing::error!(%error, "the new certificate cannot be used; the old one stays"),
            }
        }
    }
}

impl CertificateSource {
    fn load(&self) -> Result<CertifiedKey, TlsError> {
        let (chain, key) = match self {
            CertificateSource::Own { authority, names, folder } => authority.issue(names, folder)?,
            CertificateSource::Given { certificate, key } => (read_certificates(certificate)?, private_key(key)?),
        };
        CertifiedKey::from_der(chain, key, &rustls::crypto::aws_lc_rs::default_provider()).map_err(TlsError::Use)
    }

    fn stamp(&self) -> Option<(std::time::SystemTime, std::time::SystemTime)> {
        let CertificateSource::Given { certificate, key } = self else { return None };
        let changed = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
        Some((changed(certificate)?, changed(key)?))
    }
}

/// The configuration for every connection. With an authority for clients, a certificate that a client shows is checked; who
/// needs one is decided by method.
pub fn config(
    certificates: Arc<Certificates>,
    client_authority: Option<&Path>,
) -> Result<rustls::ServerConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Use)?;
    let builder = match client_authority {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in read_certificates(path)? {
                roots.add(certificate).map_err(TlsError::Use)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(TlsError::ClientAuthority)?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

const AUTHORITY: &str = "ca.pem";
const AUTHORITY_KEY: &str = "ca-key.pem";

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

impl Authority {
    /// Reads it, or makes it where there is none.
    fn open(folder: &Path) -> Result<Self, TlsError> {
        let (place, key_place) = (folder.join(AUTHORITY), folder.join(AUTHORITY_KEY));
        let params = authority_params();
        let stored = read(&key_place);
        let key = match stored {
            Ok(text) => KeyPair::from_pem(&text).map_err(TlsError::Make)?,
            Err(TlsError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => {
                let key = KeyPair::generate().map_err(TlsError::Make)?;
                let certificate = params.self_signed(&key).map_err(TlsError::Make)?;
                write(&place, certificate.pem().as_bytes(), 0o644)?;
                // The key comes last: with it, everything is there.
                write(&key_place, key.serialize_pem().as_bytes(), 0o600)?;
                key
            }
            Err(error) => return Err(error),
        };
        let certificate = read_certificates(&place)?.swap_remove(0);
        Ok(Self { issuer: Issuer::new(params, key), certificate })
    }

    fn issue(
        &self,
        names: &[String],
        folder: &Path,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let mut params = CertificateParams::new(names.to_vec()).map_err(TlsError::Make)?;
        params.distinguished_name = named("Berth server");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        valid_for(&mut params, CERTIFICATE_DAYS);
        let key = KeyPair::generate().map_err(TlsError::Make)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(TlsError::Make)?;
        write(&folder.join("cert.pem"), certificate.pem().as_bytes(), 0o644)?;
        write(&folder.join("key.pem"), key.serialize_pem().as_bytes(), 0o600)?;
        let path = folder.join("key.pem");
        let key =
            PrivateKeyDer::try_from(key.serialize_der()).map_err(|_| TlsError::Pem { path, what: "private key" })?;
        Ok((vec![certificate.der().clone(), self.certificate.clone()], key))
    }
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("Berth server's own authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    valid_for(&mut params, AUTHORITY_YEARS * 365);
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// From yesterday, so that a client's slow clock does no harm, for so many days.
fn valid_for(params: &mut CertificateParams, days: i64) {
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let date = |days: i64| {
        let date = today.saturating_add(jiff::Span::new().days(days));
        rcgen::date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    (params.not_before, params.not_after) = (date(-1), date(days));
}

/// The names that clients may use: this machine's, the address that is listened on, and those that were given.
fn all_names(given: &[String], listen: IpAddr) -> Result<Vec<String>, TlsError> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    if !listen.is_unspecified() {
        names.push(listen.to_string());
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let valid = |name: &str| {
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '*' | ':' | '_');
        (1..=253).contains(&name.len()) && name.chars().all(fine)
    };
    names.extend(Some(host.trim().to_owned()).filter(|host| valid(host)));
    for name in given.iter().take(NAMES_MAX) {
        if !valid(name) {
            return Err(TlsError::Name(name.clone()));
        }
        names.push(name.clone());
    }
    names.sort();
    names.dedup();
    Ok(names)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    found
        .ok()
        .filter(|found| !found.is_empty())
        .ok_or_else(|| TlsError::Pem { path: path.to_owned(), what: "certificate" })
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = zeroize::Zeroizing::new(read(path)?);
    PrivateKeyDer::from_pem_slice(text.as_bytes())
        .map_err(|_| TlsError::Pem { path: path.to_owned(), what: "private key" })
}

fn read(path: &Path) -> Result<String, TlsError> {
    let failed = |source| TlsError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = fs::File::open(path).map_err(failed)?;
    std::io::Read::read_to_string(&mut std::io::Read::take(file, PEM_BYTES_MAX), &mut text).map_err(failed)?;
    Ok(text)
}

/// Whole or not at all, and never readable by others for an instant.
pub(crate) fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), TlsError> {
    let failed = |source| TlsError::Write { path: path.to_owned(), source };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let half = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    let put = || {
        let mut file = options.open(&half)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&half, path)
    };
    put().inspect_err(|_| _ = fs::remove_file(&half)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_stays_and_the_certificate_is_new() {
        let folder = tempfile::tempdir().unwrap();
        let own = Tls::Own { names: vec!["berth.example.com".into()] };
        let open = || Certificates::open(&own, folder.path(), "0.0.0.0".parse().unwrap()).unwrap();
        let files = || ["ca.pem", "ca-key.pem", "cert.pem"].map(|name| fs::read(folder.path().join(name)).unwrap());
        open();
        let before = files();
        open();
        let after = files();
        assert_eq!(before[..2], after[..2]);
        assert_ne!(before[2], after[2]);
        use std::os::unix::fs::PermissionsExt;
        for secret in ["ca-key.pem", "key.pem"] {
            let mode = fs::metadata(folder.path().join(secret)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{secret}");
        }
    }

    #[test]
    fn what_is_given_is_used_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        Certificates::open(&Tls::Own { names: vec![] }, folder.path(), "127.0.0.1".parse().unwrap()).unwrap();
        let given = |certificate: &str, key: &str| {
            let tls = Tls::Given { certificate: folder.path().join(certificate), key: folder.path().join(key) };
            Certificates::open(&tls, folder.path(), "127.0.0.1".parse().unwrap()).map(|_| ())
        };
        given("cert.pem", "key.pem").unwrap();
        assert!(matches!(given("cert.pem", "ca-key.pem"), Err(TlsError::Use(_))));
        assert!(matches!(given("key.pem", "key.pem"), Err(TlsError::Pem { .. })));
        assert!(matches!(given("none.pem", "key.pem"), Err(TlsError::Read { .. })));
        let bad = Tls::Own { names: vec!["no name".into()] };
        let opened = Certificates::open(&bad, folder.path(), "127.0.0.1".parse().unwrap());
        assert!(matches!(opened, Err(TlsError::Name(_))));
    }
}
