//! A client that shares nothing with Berth's own: bytes over TLS, from any address of this machine.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Anything that takes longer hangs.
pub const WITHIN: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: usize = 1 << 20;

#[derive(Clone)]
pub struct Raw {
    address: SocketAddr,
    tls: TlsConnector,
    h2: TlsConnector,
}

pub type Stream = TlsStream<TcpStream>;

impl Raw {
    pub fn new(url: &str, ca: &Path) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca).unwrap() {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut h2 = config.clone();
        h2.alpn_protocols = vec![b"h2".to_vec()];
        let address = url.strip_prefix("https://").unwrap().parse().unwrap();
        Self { address, tls: TlsConnector::from(Arc::new(config)), h2: TlsConnector::from(Arc::new(h2)) }
    }

    /// From that address of this machine.
    pub async fn tcp(&self, from: Ipv4Addr) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        timeout(WITHIN, socket.connect(self.address)).await?
    }

    pub async fn over(&self, stream: TcpStream) -> io::Result<Stream> {
        timeout(WITHIN, self.tls.connect(ServerName::try_from("localhost").unwrap(), stream)).await?
    }

    pub async fn connect(&self, from: Ipv4Addr) -> io::Result<Stream> {
        self.over(self.tcp(from).await?).await
    }

    /// A connection of HTTP/2 that asks for nothing and answers every sign of life, until the server ends it.
    pub async fn idle(&self, from: Ipv4Addr) -> io::Result<tokio::task::JoinHandle<()>> {
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = timeout(WITHIN, self.h2.connect(name, self.tcp(from).await?)).await??;
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await?;
        Ok(tokio::spawn(async move { _ = answer_pings(&mut stream).await }))
    }

    /// One request on a connection of its own.
    pub async fn get(&self, from: Ipv4Addr, path: &str, headers: &str) -> io::Result<Answer> {
        let mut stream = self.connect(from).await?;
        ask(&mut stream, &format!("GET {path} HTTP/1.1\r\nhost: berth\r\n{headers}\r\n")).await
    }
}

async fn answer_pings(stream: &mut Stream) -> io::Result<()> {
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const ACK: u8 = 1;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await?;
        match (head[3], head[4] & ACK) {
            (SETTINGS, 0) => stream.write_all(&[0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0]).await?,
            (PING, 0) => {
                stream.write_all(&[0, 0, 8, PING, ACK, 0, 0, 0, 0]).await?;
                stream.write_all(&payload).await?;
            }
            _ => {}
        }
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

/// Sends, and reads one answer of HTTP/1.1 that says how long it is.
pub async fn ask(stream: &mut Stream, request: &str) -> io::Result<Answer> {
    stream.write_all(request.as_bytes()).await?;
    answer(stream).await
}

pub async fn answer(stream: &mut Stream) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    let read = async {
        loop {
            if let Some(whole) = whole(&bytes) {
                return Ok(whole);
            }
            let mut part = [0; 16 << 10];
            let length = stream.read(&mut part).await?;
            if length == 0 || bytes.len() > ANSWER_BYTES_MAX {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes.extend_from_slice(&part[..length]);
        }
    };
    timeout(WITHIN, read).await?
}

fn whole(bytes: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let length: usize = length.unwrap_or(0);
    (body.len() >= length).then(|| Answer { status, body: body.to_owned() })
}
