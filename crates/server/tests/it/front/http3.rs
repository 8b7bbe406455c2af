//! HTTP/3 for operators: PHP answers it, an upgrade keeps its connections, and settings that cannot be are refused.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use h3::client::{RequestStream, SendRequest};
use http::{Request, StatusCode};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use testkit::{Certificate, certificates};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::front::tls::https_get;
use crate::hearth::{LIMIT, Serve, Site, command};
use crate::operations::upgrade::{upgrade, upgraded};

type Stream = RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;

pub(crate) struct Http3 {
    requests: SendRequest<h3_quinn::OpenStreams, Bytes>,
    _driver: JoinSet<()>,
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it happens in time")
}

impl Http3 {
    async fn to(address: SocketAddr) -> Self {
        Self::with(address, None).await.unwrap()
    }

    /// Connects with a certificate. The error is the reason for which the server has closed the connection.
    pub(crate) async fn with(
        address: SocketAddr,
        certificate: Option<&Certificate>,
    ) -> Result<Self, quinn::ConnectionError> {
        let (config, _) = testkit::credulous(&["h3"]);
        let mut config = Arc::unwrap_or_clone(config);
        if let Some(Certificate { chain, key, .. }) = certificate {
            let chain = vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            let key = CertifiedKey::from_der(chain, key, config.crypto_provider()).unwrap();
            config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(key));
        }
        let config = QuicClientConfig::try_from(config).unwrap();
        let mut endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(config)));
        let quic = within(endpoint.connect(address, "localhost").unwrap()).await?;
        let begun = h3::client::new(h3_quinn::Connection::new(quic.clone())).await;
        let Ok((mut connection, requests)) = begun else { return Err(within(quic.closed()).await) };
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            drop(std::future::poll_fn(|cx| connection.poll_close(cx)).await);
        });
        Ok(Self { requests, _driver: driver })
    }

    async fn begin(&mut self, path: &str) -> Stream {
        let request = Request::post(format!("https://localhost{path}"));
        let request = request.header("content-type", "text/plain").body(()).unwrap();
        within(self.requests.send_request(request)).await.unwrap()
    }

    /// Returns whether the server answers, with whatever status.
    pub(crate) async fn is_answered(&mut self, path: &str) -> bool {
        let request = Request::get(format!("https://localhost{path}")).body(()).unwrap();
        match within(self.requests.send_request(request)).await {
            Ok(mut stream) => within(stream.recv_response()).await.is_ok(),
            Err(_refused) => false,
        }
    }

    pub(crate) async fn post(&mut self, path: &str, body: &'static [u8]) -> String {
        let mut stream = self.begin(path).await;
        stream.send_data(Bytes::from_static(body)).await.unwrap();
        answer(stream).await
    }
}

async fn answer(mut stream: Stream) -> String {
    stream.finish().await.unwrap();
    assert_eq!(within(stream.recv_response()).await.unwrap().status(), StatusCode::OK);
    let mut text = Vec::new();
    while let Some(mut piece) = within(stream.recv_data()).await.unwrap() {
        text.extend(piece.copy_to_bytes(piece.remaining()));
    }
    String::from_utf8(text).unwrap()
}

fn site() -> Site {
    Site::of_scripts().with_file(
        "public/index.php",
        "<?php echo $_SERVER['SERVER_PROTOCOL'], ' ', $_SERVER['HTTPS'], ' ', strlen(file_get_contents('php://input'));",
    )
}

fn served(site: &Site) -> Serve {
    let (certificate, key) = certificates().origin.write(site.path(), "shop");
    Serve::new(site.path())
        .args(&["--model", "request", "--http3"])
        .args(&["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()])
        .args(&["--run-dir", site.path().join("run").to_str().unwrap()])
        .workers(1)
}

#[test]
fn php_answers_http3_and_an_upgrade_keeps_its_connections() {
    let site = site();
    let mut hearth = served(&site).start();
    let address = hearth.address;
    let over_tcp = https_get(address, "localhost", &certificates().authority.chain, "/").unwrap();
    let offer = format!("alt-svc: h3=\":{}\"; ma=86400", address.port());
    assert!(over_tcp.to_ascii_lowercase().contains(&offer), "{over_tcp}");
    let runtime = Runtime::new().unwrap();
    let (mut client, mut upload) = runtime.block_on(async {
        let mut client = Http3::to(address).await;
        assert_eq!(client.post("/", b"four").await, "HTTP/3.0 on 4");
        let mut upload = client.begin("/").await;
        upload.send_data(Bytes::from_static(b"begun by the old process")).await.unwrap();
        (client, upload)
    });
    let run_dir = site.path().join("run");
    let successor = upgraded(upgrade(site.path(), &["--run-dir", run_dir.to_str().unwrap()]));
    runtime.block_on(async {
        let mut new = Http3::to(address).await;
        assert_eq!(new.post("/", b"new").await, "HTTP/3.0 on 3");
        for _ in 0..64 {
            let piece = Bytes::from_static(&[b'x'; 16 << 10]);
            within(upload.send_data(piece)).await.unwrap();
        }
        assert_eq!(answer(upload).await, format!("HTTP/3.0 on {}", 24 + (1 << 20)));
        // The old process has said that it takes no more.
        let request = Request::get("https://localhost/").body(()).unwrap();
        let again = within(client.requests.send_request(request)).await;
        assert!(again.is_err() || within(again.unwrap().recv_response()).await.is_err());
        assert_eq!(new.post("/", b"newer").await, "HTTP/3.0 on 5");
    });
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0), "{}", hearth.log().text());
    successor.stop();
    // The sockets are gone with the last process.
    let free = std::net::UdpSocket::bind(address);
    assert!(free.is_ok(), "{free:?}");
    runtime.shutdown_timeout(Duration::from_secs(1));
}

#[test]
fn http3_without_tls_is_refused_with_a_hint() {
    let site = site();
    let output = command().arg("serve").arg(site.path()).arg("--http3").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(said.contains("`http.http3` is on, but no listener speaks HTTPS"), "{said}");
    assert!(said.contains("--tls-cert"), "{said}");
}
