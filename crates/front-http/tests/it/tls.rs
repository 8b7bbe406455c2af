//! TLS with certificate files.

use std::path::Path;
use std::sync::Arc;

use front_http::{Address, BindError, Front, Listen, Options, TlsFiles};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::http2::Http2;
use crate::support::{App, Client, Server};

/// The certificate that the tests' server shows (certificates/README.md).
fn files(name: &str) -> TlsFiles {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/certificates");
    TlsFiles {
        certificate: folder.join(name).with_extension("pem"),
        key: folder.join(name).with_extension("key"),
    }
}

async fn server() -> Server {
    Server::with(|options, _| {
        options.tls = Some(files("localhost"));
        options.listen[0].tls = true;
    })
    .await
}

async fn connect(server: &Server, alpn: &[&str]) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(files("localhost").certificate).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

#[tokio::test]
async fn http_1_1_over_tls_is_https_to_the_application() {
    let server = server().await;
    let mut client = Client::new(connect(&server, &["http/1.1"]).await);
    for _ in 0..2 {
        client.send("GET /describe HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        let told = client.reply().await.json();
        assert_eq!(
            (told["scheme"].as_str(), told["version"].as_str()),
            (Some("Https"), Some("HTTP/1.1"))
        );
    }
    client.send("GET /hint HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(client.head().await.status, 103);
    assert_eq!(client.reply().await.text(), "after the hint");
}

#[tokio::test]
async fn alpn_chooses_http_2() {
    let server = server().await;
    let stream = connect(&server, &["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut client = Http2::over(stream).await;
    let (_, body) = client.get("/describe").await;
    let told: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (told["scheme"].as_str(), told["version"].as_str()),
        (Some("Https"), Some("HTTP/2.0"))
    );
}

#[tokio::test]
async fn http_in_the_clear_is_told_to_use_https() {
    let server = server().await;
    let mut client = server.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let reply = client.reply().await;
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("HTTPS"));
}

#[tokio::test]
async fn a_handshake_that_takes_too_long_is_cut() {
    let mut server = Server::with(|options, _| {
        options.tls = Some(files("localhost"));
        options.listen[0].tls = true;
        options.handshake_timeout = std::time::Duration::from_millis(100);
    })
    .await;
    let mut silent = server.connect().await;
    assert_eq!(silent.rest().await, b"");
    let mut halting = server.connect().await;
    halting.send([0x16, 3, 1, 2]).await;
    assert_eq!(halting.rest().await, b"");
    server.begin_stop();
    server.ended().await;
}

#[tokio::test]
async fn a_useless_certificate_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (good, stranger) = (files("localhost"), files("stranger"));
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let missing = folder.path().join("missing.pem");
    for (certificate, key, named) in [
        (&missing, &good.key, "missing.pem"),
        (&good.certificate, &missing, "missing.pem"),
        (&empty, &good.key, "empty.pem"),
        (&good.certificate, &empty, "empty.pem"),
        (&good.key, &good.key, "localhost.key"),
        (&good.certificate, &stranger.key, "localhost.pem"),
    ] {
        let mut options = Options::new(folder.path());
        options.listen =
            vec![Listen { address: Address::Tcp("127.0.0.1:0".to_owned()), tls: true }];
        options.tls = Some(TlsFiles { certificate: certificate.clone(), key: key.clone() });
        let error = Front::bind(options, App::default()).await.unwrap_err();
        assert!(matches!(error, BindError::Tls(_)));
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[tokio::test]
async fn an_address_that_cannot_be_bound_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut options = Options::new("/");
    options.listen = vec![Listen { address: Address::Tcp(address.clone()), tls: false }];
    let error = Front::bind(options, App::default()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot listen on {address}"));
}
