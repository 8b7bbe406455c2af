//! Tests TLS: certificates, their selection, challenges of authorities, and redirects from listeners without TLS.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use front_http::{
    Address, BindError, Certificate, Certificates, Front, Listen, Options, Place, TlsError,
    TlsFiles,
};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::http2::Http2;
use crate::support::{App, Client, Server};

/// Returns the certificate of the tests' server (certificates/README.md).
fn files(name: &str) -> TlsFiles {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/certificates");
    TlsFiles {
        certificate: folder.join(name).with_extension("pem"),
        key: folder.join(name).with_extension("key"),
    }
}

pub(crate) fn certificates() -> Certificates {
    let certificates = Certificates::new();
    certificates.show(Place::Files, vec![Certificate::read(&files("localhost")).unwrap()]);
    certificates
}

async fn server() -> Server {
    server_with(&certificates()).await
}

async fn server_with(certificates: &Certificates) -> Server {
    Server::with(|options, _| {
        options.tls = Some(certificates.clone());
        options.listen[0].tls = true;
    })
    .await
}

/// Returns a certificate of testkit.
fn of(certificate: &testkit::Certificate) -> Certificate {
    let nowhere = files("nowhere");
    Certificate::from_pem(certificate.chain.as_bytes(), certificate.key.as_bytes(), &nowhere)
        .unwrap()
}

/// Returns the certificate presented for this server name, and the negotiated protocol.
async fn shown(
    server: &Server,
    name: &'static str,
    alpn: &[&str],
) -> io::Result<(CertificateDer<'static>, Option<Vec<u8>>)> {
    let (config, shown) = testkit::credulous(alpn);
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let name = ServerName::try_from(name).unwrap();
    let mut stream = TlsConnector::from(config).connect(name, stream).await?;
    let (_, session) = stream.get_ref();
    let chain = session.peer_certificates().unwrap();
    let certificate = chain[0].clone();
    let stapled = shown.stapled();
    if alpn == ["acme-tls/1"] {
        assert_eq!(session.alpn_protocol(), Some(&b"acme-tls/1"[..]));
        // No request is accepted there.
        let _gone = stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let mut rest = Vec::new();
        let _gone = stream.read_to_end(&mut rest).await;
        assert_eq!(rest, b"");
    }
    Ok((certificate, Some(stapled).filter(|stapled| !stapled.is_empty())))
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

/// Connects by HTTP/2 over TLS.
pub(crate) async fn http2_of(server: &Server) -> Http2 {
    Http2::over(connect(server, &["h2"]).await).await
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
async fn plain_http_on_a_tls_port_is_told_to_use_https() {
    let server = server().await;
    let mut client = server.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n").await;
    // The server reads only the first bytes. What follows must not reset the connection before the answer is read.
    let piece = vec![b'x'; 64 << 10];
    for _ in 0..128 {
        assert!(client.send_if_taken(&piece).await, "reset");
    }
    let reply = client.reply().await;
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("HTTPS"));
}

#[tokio::test]
async fn a_handshake_that_takes_too_long_is_cut() {
    let mut server = Server::with(|options, _| {
        options.tls = Some(certificates());
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

#[test]
fn a_useless_certificate_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (good, stranger) = (files("localhost"), files("stranger"));
    let (empty, missing) = (folder.path().join("empty.pem"), folder.path().join("missing.pem"));
    let garbage = folder.path().join("garbage.pem");
    std::fs::write(&empty, "").unwrap();
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(&garbage, pem).unwrap();
    let read = |certificate: &Path, key: &Path| {
        Certificate::read(&TlsFiles { certificate: certificate.into(), key: key.into() })
    };
    for (certificate, key, named) in [
        (&missing, &good.key, "missing.pem"),
        (&good.certificate, &missing, "missing.pem"),
        (&empty, &good.key, "empty.pem"),
        (&garbage, &good.key, "garbage.pem"),
        (&good.certificate, &empty, "empty.pem"),
        (&good.key, &good.key, "localhost.key"),
        (&good.certificate, &stranger.key, "localhost.pem"),
    ] {
        let error = read(certificate, key).unwrap_err();
        assert!(error.to_string().contains(named), "{error}");
    }
    let mixed = read(&good.certificate, &stranger.key).unwrap_err();
    assert!(matches!(mixed, TlsError::Unusable { .. }));
}

#[tokio::test]
async fn sni_selects_the_certificate() {
    let ours = testkit::certificates();
    let (first, wild, other) =
        (Certificate::read(&files("localhost")).unwrap(), of(&ours.origin), of(&ours.other_host));
    assert!(wild.names().contains(&"127.0.0.1".to_owned()));
    assert_eq!(other.names(), ["other.example"]);
    let certificates = Certificates::new();
    let server = server_with(&certificates).await;
    // There is no certificate yet: the handshake fails, the listener stays open.
    shown(&server, "localhost", &["h2"]).await.unwrap_err();

    certificates.show(Place::Authority, vec![wild]);
    certificates.show(Place::Files, vec![first, other]);
    let names =
        ["localhost", "other.example", "a.test", "a.b.test", "unknown.example", "127.0.0.1"];
    let mut seen = Vec::new();
    for name in names {
        seen.push(shown(&server, name, &["h2"]).await.unwrap().0);
    }
    let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let (wild, other) = (der(&ours.origin.chain), der(&ours.other_host.chain));
    let first = CertificateDer::from_pem_file(files("localhost").certificate).unwrap();
    // `*` matches one label, and an unknown name gets the first.
    assert_eq!(seen, [&first, &other, &wild, &first, &first, &first].map(CertificateDer::clone));
}

#[tokio::test]
async fn changed_certificates_apply_to_new_connections() {
    let ours = testkit::certificates();
    let certificates = certificates();
    let server = server_with(&certificates).await;
    let mut before = Client::new(connect(&server, &["http/1.1"]).await);
    let (old, _) = shown(&server, "localhost", &["h2"]).await.unwrap();
    certificates.show(Place::Files, vec![of(&ours.origin)]);
    assert_ne!(shown(&server, "localhost", &["h2"]).await.unwrap().0, old);
    before.send("GET /describe HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(before.reply().await.status, 200);
}

#[tokio::test]
async fn an_ocsp_response_beside_the_certificate_is_stapled() {
    let folder = tempfile::tempdir().unwrap();
    let ours = testkit::certificates();
    let (certificate, key) = ours.origin.write(folder.path(), "origin");
    let files = TlsFiles { certificate, key };
    assert!(files.stapled().ends_with("origin.pem.ocsp"));
    let certificates = Certificates::new();
    let server = server_with(&certificates).await;
    // An invalid response is ignored, and the certificate is presented without it.
    for (response, stapled) in
        [(&include_bytes!("certificates/response.ocsp")[..], true), (b"?", false)]
    {
        std::fs::write(files.stapled(), response).unwrap();
        let read = Certificate::read(&files).unwrap();
        assert_eq!(read.is_stapled(), stapled);
        certificates.show(Place::Files, vec![read]);
        let (_, seen) = shown(&server, "localhost", &["h2"]).await.unwrap();
        assert_eq!(seen, stapled.then(|| response.to_vec()));
    }
}

#[tokio::test]
async fn only_the_authority_gets_the_challenge_certificate() {
    let ours = testkit::certificates();
    let certificates = certificates();
    let server = server_with(&certificates).await;
    shown(&server, "localhost", &["acme-tls/1"]).await.unwrap_err();
    certificates.prove("localhost", of(&ours.stranger));
    let challenge = CertificateDer::from_pem_slice(ours.stranger.chain.as_bytes()).unwrap();
    assert_eq!(shown(&server, "localhost", &["acme-tls/1"]).await.unwrap().0, challenge);
    shown(&server, "a.test", &["acme-tls/1"]).await.unwrap_err();
    for alpn in [&["h2"][..], &[], &["acme-tls/1", "http/1.1"]] {
        assert_ne!(shown(&server, "localhost", alpn).await.unwrap().0, challenge);
    }
    certificates.forget();
    shown(&server, "localhost", &["acme-tls/1"]).await.unwrap_err();
}

#[tokio::test]
async fn a_local_certificate_is_created_once_per_name() {
    let ours = testkit::certificates();
    let (certificates, count) = (certificates(), Arc::new(AtomicUsize::new(0)));
    let (other, counted) = (of(&ours.other_host), Arc::clone(&count));
    certificates.make(move |name| {
        counted.fetch_add(1, Ordering::Relaxed);
        (name == "app.localhost").then(|| other.clone())
    });
    let server = server_with(&certificates).await;
    let made = CertificateDer::from_pem_slice(ours.other_host.chain.as_bytes()).unwrap();
    for _ in 0..2 {
        assert_eq!(shown(&server, "app.localhost", &["h2"]).await.unwrap().0, made);
        assert_ne!(shown(&server, "localhost", &["h2"]).await.unwrap().0, made);
    }
    assert_eq!(count.load(Ordering::Relaxed), 1);
    assert_ne!(shown(&server, "unknown.example", &["h2"]).await.unwrap().0, made);
}

/// Starts a front whose second listener uses TLS and whose first redirects there.
async fn redirecting(change: impl FnOnce(&mut Options)) -> (Server, Certificates) {
    let certificates = certificates();
    let server = Server::with(|options, _| {
        let address = options.listen[0].address.clone();
        options.listen[0].redirect = true;
        options.listen.push(Listen::tls(address));
        options.tls = Some(certificates.clone());
        change(options);
    })
    .await;
    (server, certificates)
}

#[tokio::test]
async fn a_redirect_listener_only_redirects_to_https() {
    let (server, _) = redirecting(|_| {}).await;
    let port = server.bound[1].to_string().rsplit_once(':').unwrap().1.to_owned();
    for (path, method) in
        [("/describe?a=%20b&c", "GET"), ("/", "POST"), ("/nothing//at/all", "PUT")]
    {
        let ask = format!(
            "{method} {path} HTTP/1.1\r\nHost: a.example:8080\r\nContent-Length: 0\r\n\r\n"
        );
        let reply = server.ask(&ask).await;
        assert_eq!(reply.status, 308);
        assert_eq!(reply.field("location").unwrap(), format!("https://a.example:{port}{path}"));
    }
    // Hosts that are invalid or cannot be redirected to.
    for host in ["evil.example/@", "", "a b"] {
        let reply = server.ask(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        assert_eq!((reply.status, reply.field("location")), (400, None), "{host}");
    }
    let (server, _) = redirecting(|options| options.https_port = 443.try_into().ok()).await;
    let reply = server.get("/x").await;
    assert_eq!(reply.field("location").unwrap(), "https://a.example/x");
}

#[tokio::test]
async fn a_trusted_tls_proxy_is_not_redirected() {
    let trusted = |options: &mut Options| {
        options.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
    };
    let (server, _) = redirecting(trusted).await;
    assert_eq!(server.get_with("/describe", "X-Forwarded-Proto: https").await.status, 200);
    assert_eq!(server.get_with("/describe", "X-Forwarded-Proto: http").await.status, 308);
    let (server, _) = redirecting(|_| {}).await;
    assert_eq!(server.get_with("/describe", "X-Forwarded-Proto: https").await.status, 308);
}

#[tokio::test]
async fn http_01_challenges_are_answered_before_redirects() {
    let (server, certificates) = redirecting(|_| {}).await;
    certificates.answer("token", "token.thumbprint");
    let reply = server.get("/.well-known/acme-challenge/token").await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "token.thumbprint"));
    assert_eq!(server.get("/.well-known/acme-challenge/other").await.status, 308);
    certificates.forget();
    assert_eq!(server.get("/.well-known/acme-challenge/token").await.status, 308);
}

#[tokio::test]
async fn hsts_is_sent_over_tls_only() {
    const HSTS: &str = "max-age=31536000";
    let (server, _) = redirecting(|options| {
        options.hsts = Some(HSTS.to_owned());
        options.listen[0].redirect = false;
        options.listen.swap(0, 1);
    })
    .await;
    let mut client = Client::new(connect(&server, &["http/1.1"]).await);
    for path in ["/describe", "/nothing//../..//"] {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
        assert_eq!(client.reply().await.field("strict-transport-security").unwrap(), HSTS);
    }
    let front_http::Bound::Tcp { address, tls: false } = server.bound[1] else { panic!() };
    let mut plain = Client::new(TcpStream::connect(address).await.unwrap());
    plain.send("GET /describe HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(plain.reply().await.field("strict-transport-security"), None);
}

#[tokio::test]
async fn invalid_tls_settings_fail_at_start() {
    let nothing = || Options::new("/");
    let address = || Address::Tcp("127.0.0.1:0".to_owned());
    let mut options = nothing();
    options.listen = vec![Listen::tls(address())];
    let error = Front::bind(options, App::default()).await.unwrap_err();
    assert!(matches!(error, BindError::NoCertificate { .. }));
    let mut options = nothing();
    options.listen = vec![Listen { redirect: true, ..Listen::plain(address()) }];
    let error = Front::bind(options, App::default()).await.unwrap_err();
    assert!(matches!(error, BindError::NowhereToSend { .. }));
    let mut options = nothing();
    options.listen = vec![Listen::plain(address())];
    options.hsts = Some("max-age=1\n".to_owned());
    let error = Front::bind(options, App::default()).await.unwrap_err();
    assert!(matches!(error, BindError::Hsts { .. }));
}

#[tokio::test]
async fn an_address_that_cannot_be_bound_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut options = Options::new("/");
    options.listen = vec![Listen::plain(Address::Tcp(address.clone()))];
    let error = Front::bind(options, App::default()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot listen on {address}"));
}

#[tokio::test]
async fn a_client_gets_aes_with_128_bits_unless_it_prefers_chacha20_or_knows_only_others() {
    use rustls::CipherSuite as Suite;
    const AES_128: Suite = Suite::TLS13_AES_128_GCM_SHA256;
    const AES_256: Suite = Suite::TLS13_AES_256_GCM_SHA384;
    const CHACHA: Suite = Suite::TLS13_CHACHA20_POLY1305_SHA256;
    const OLD_128: Suite = Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    const OLD_256: Suite = Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
    const OLD_CHACHA: Suite = Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
    let server = server().await;
    let authority = CertificateDer::from_pem_file(files("localhost").certificate).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(authority).unwrap();
    for (offered, chosen) in [
        (&[AES_256, CHACHA, AES_128][..], AES_128),
        (&[CHACHA, AES_256, AES_128], CHACHA),
        (&[AES_256, CHACHA], AES_256),
        (&[AES_128, AES_256], AES_128),
        (&[OLD_256, OLD_128, OLD_CHACHA], OLD_128),
        (&[OLD_CHACHA, OLD_128], OLD_CHACHA),
        (&[OLD_256], OLD_256),
    ] {
        let mut provider = ring::default_provider();
        let all = std::mem::take(&mut provider.cipher_suites);
        let of = |wanted: &Suite| all.iter().find(|suite| suite.suite() == *wanted).copied();
        provider.cipher_suites = offered.iter().filter_map(of).collect();
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        let stream = TcpStream::connect(server.address()).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        let suite = stream.get_ref().1.negotiated_cipher_suite().unwrap().suite();
        assert_eq!(suite, chosen, "{offered:?}");
    }
}
