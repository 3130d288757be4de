use super::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::net::TcpListener;

/// A TLS port that shakes hands and says no more.
struct Port {
    url: String,
    ca: Vec<u8>,
    print: String,
    task: tokio::task::JoinHandle<()>,
}

async fn port() -> Port {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
    let print: Vec<String> = Sha256::digest(leaf.der()).iter().map(|byte| format!("{byte:02X}")).collect();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], rustls_pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            open.push(acceptor.accept(stream).await);
        }
    });
    Port { url, ca: ca.pem().into_bytes(), print: print.join(":"), task }
}

fn to(url: &str) -> Connection {
    Connection::new(url, SecretString::from("berth_test"))
}

#[tokio::test]
async fn who_is_not_trusted_is_said_with_what_to_do() {
    let port = port().await;
    let ask = |connection: Connection| async move { connection.channel().await.map(drop).map_err(|f| f.to_string()) };

    let unknown = to(&port.url).channel().await.unwrap_err();
    assert!(unknown.message.contains("is not trusted: its certificate is signed by an authority"), "{unknown}");
    assert!(unknown.help[0].contains("--ca FILE"), "{:?}", unknown.help);

    assert_eq!(ask(Connection { ca: Some(port.ca.clone()), ..to(&port.url) }).await, Ok(()));
    assert_eq!(ask(Connection { fingerprint: Some(port.print.clone()), ..to(&port.url) }).await, Ok(()));

    let name = port.url.replace("127.0.0.1", "localhost");
    let other = ask(Connection { ca: Some(port.ca.clone()), ..to(&name) }).await.unwrap_err();
    assert!(other.contains("for another name"), "{other}");

    let wrong = Connection { fingerprint: Some("00".repeat(32)), ..to(&port.url) };
    let wrong = ask(wrong).await.unwrap_err();
    assert!(wrong.contains("another fingerprint"), "{wrong}");
    port.task.abort();
}

#[tokio::test]
async fn a_port_where_nothing_answers_is_said() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    drop(listener);
    let fault = to(&url).channel().await.unwrap_err();
    assert_eq!(fault.code, Code::Unavailable);
    assert_eq!(fault.message, format!("cannot reach the server at {url}: nothing answers there"));
    assert_eq!(fault.help, ["check that `berth server` is running, and on that port"]);
}

#[tokio::test]
async fn addresses_that_are_none_are_refused_before_anything_is_sent() {
    for (url, why) in [
        ("http://127.0.0.1:1", "https only"),
        ("127.0.0.1:1", "https://"),
        ("https://127.0.0.1:1/v1", "nothing follows"),
        ("no url at all", "not a URL"),
    ] {
        let fault = to(url).channel().await.unwrap_err();
        assert!(fault.code == Code::InvalidArgument && fault.message.contains(why), "{url}: {fault}");
    }
}

#[test]
fn the_token_is_not_printed() {
    let connection = to("https://127.0.0.1:1");
    assert!(!format!("{connection:?}").contains("berth_test"));
    assert!(fingerprint("zz").is_none() && fingerprint(&"g".repeat(64)).is_none());
    assert_eq!(fingerprint(&format!("{}FF", "00:".repeat(31))).map(|f| f[31]), Some(255));
}
