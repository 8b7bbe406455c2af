//! Tests which stored answers a request reaches: of clients with a certificate, behind a trusted proxy, and of clients that
//! leave.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use front_http::{Certificate, Certificates, ClientAuthorities, Place, TlsFiles, TrustedHeaders};
use http::{HeaderMap, StatusCode};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{FRESH, PATH, called, calls, get, options, send, start, status, text};
use crate::support::{Client, Reply, Server, until};

/// Starts a front over TLS that asks clients for a certificate, and accepts those without one.
async fn asking_for_certificates() -> Server {
    let ours = testkit::certificates();
    Server::with(|front, folder| {
        ours.authority.write(folder, "authority");
        let file = folder.join("authority.pem");
        let authorities = ClientAuthorities::read(&file, None, false).unwrap();
        let certificates = Certificates::asking(authorities);
        let files = TlsFiles { certificate: file.clone(), key: file };
        let (chain, key) = (ours.origin.chain.as_bytes(), ours.origin.key.as_bytes());
        let origin = Certificate::from_pem(chain, key, &files).unwrap();
        certificates.show(Place::Files, vec![origin]);
        front.tls = Some(certificates);
        front.listen[0].tls = true;
        front.cache = Some(options());
    })
    .await
}

/// Sends a request over TLS, `certified` with the tests' client certificate.
async fn ask_over_tls(server: &Server, certified: bool, method: &str, fields: &[&str]) -> Reply {
    let ours = testkit::certificates();
    let pem = |text: &str| CertificateDer::from_pem_slice(text.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(pem(&ours.authority.chain)).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = if certified {
        let key = PrivateKeyDer::from_pem_slice(ours.client.key.as_bytes()).unwrap();
        builder.with_client_auth_cert(vec![pem(&ours.client.chain)], key).unwrap()
    } else {
        builder.with_no_client_auth()
    };
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let fields = [fields, &[""]].concat().join("\r\n");
    let mut client = Client::new(stream);
    client.send(&format!("{method} {PATH} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n")).await;
    client.reply().await
}

/// RFC 9111, section 4.4.
#[tokio::test]
async fn an_unsafe_request_of_a_client_with_a_certificate_makes_stored_answers_invalid() {
    let server = asking_for_certificates().await;
    let unsafe_fields = ["Content-Length: 0"];
    assert_eq!(text(&ask_over_tls(&server, false, "GET", &[FRESH]).await), "call 1");
    assert_eq!(text(&ask_over_tls(&server, false, "GET", &[]).await), "call 1");
    assert_eq!(text(&ask_over_tls(&server, true, "POST", &unsafe_fields).await), "call 2");
    assert_eq!(text(&ask_over_tls(&server, false, "GET", &[FRESH]).await), "call 3");
    // Its other requests neither get stored answers nor fill the cache.
    let own = ask_over_tls(&server, true, "GET", &[FRESH]).await;
    assert_eq!(text(&own), "call 4");
    assert_eq!(status(&own), "Hearth; fwd=bypass; detail=certificate");
    assert_eq!(text(&ask_over_tls(&server, false, "GET", &[]).await), "call 3");
    assert_eq!(server.cache.as_ref().unwrap().report().stored, 2);
}

/// The host in a stored answer's URL is the one that PHP is told.
#[tokio::test]
async fn behind_a_trusted_proxy_the_url_of_an_answer_has_the_forwarded_host() {
    let server = Server::with(|front, _| {
        front.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
        let names = ["x-forwarded-host", "x-forwarded-proto"];
        let names = names.iter().map(|name| name.parse().unwrap());
        front.trusted_headers = TrustedHeaders::new(names).unwrap();
        front.cache = Some(options());
    })
    .await;
    let cache = server.cache.as_ref().unwrap();
    let https = "X-Forwarded-Proto: https";
    let (ours, other) = ("X-Forwarded-Host: WWW.a.test", "X-Forwarded-Host: b.test");
    let fill = async || {
        get(&server, PATH, &[https, ours, FRESH]).await;
        get(&server, PATH, &[https, other, FRESH]).await;
    };
    fill().await;
    assert_eq!(cache.purge_url(&format!("https://a.example{PATH}")), 0);
    assert_eq!(cache.purge_url(&format!("https://www.a.test{PATH}")), 1);
    fill().await;
    assert_eq!(calls(&server), 3);
    // An unsafe request concerns the host that the proxy names, in `Location` too.
    let location = format!("order: status=303 | location: https://www.a.test{PATH}");
    let fields = [https, ours, "Content-Length: 0", &location];
    send(&server, "POST", "/made-to-order/edit", &fields).await;
    assert_eq!(text(&get(&server, PATH, &[https, other]).await), "call 2");
    assert_eq!(text(&get(&server, PATH, &[https, ours, FRESH]).await), "call 5");
    // One that is no host is not used, as for PHP.
    get(&server, PATH, &[https, "X-Forwarded-Host: <script>", FRESH]).await;
    assert_eq!(cache.purge_url(&format!("https://a.example{PATH}")), 1);
}

/// The pool calls the observer when PHP answers, even if the client has gone.
#[tokio::test]
async fn an_unsafe_request_whose_client_leaves_makes_stored_answers_invalid() {
    let server = start().await;
    let other = "/made-to-order/other";
    for (status, next) in [(500, "call 1"), (303, "call 4")] {
        get(&server, PATH, &[FRESH]).await;
        let (before, abandoned) = (calls(&server), server.app.abandoned.load(Ordering::SeqCst));
        let mut client = server.connect().await;
        let fields = "Content-Length: 0\r\norder: hold";
        client.send(&format!("POST {other} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n\r\n")).await;
        called(&server, before + 1).await;
        // A client that only closes its sending side does that together with its request.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        drop(client);
        until(&server.app.abandoned, abandoned + 1).await;
        assert_eq!(text(&get(&server, PATH, &[]).await), "call 1", "before PHP has answered");
        let observer = server.app.observer.lock().unwrap().clone().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("location", PATH.parse().unwrap());
        observer.head(StatusCode::from_u16(status).unwrap(), &headers);
        assert_eq!(text(&get(&server, PATH, &[FRESH]).await), next);
    }
}
