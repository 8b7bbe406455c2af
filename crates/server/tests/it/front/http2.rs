//! HTTP/2 to real PHP, in plain text (h2c) and over TLS chosen by ALPN; and HTTP/1.1 over TLS.

use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{Request, Response, StatusCode, Version};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::hearth::{Hearth, LIMIT, Serve, Site, root};

/// Path of the certificate for `localhost` (see its README).
fn certificate(extension: &str) -> PathBuf {
    root().join("crates/front-http/tests/it/certificates/localhost").with_extension(extension)
}

fn over_tls(site: &Site) -> Hearth {
    Serve::new(site.path())
        .model("request")
        .args(&["--tls-cert", certificate("pem").to_str().unwrap()])
        .args(&["--tls-key", certificate("key").to_str().unwrap()])
        .workers(2)
        .start()
}

async fn handshake(hearth: &Hearth, protocols: &[&str]) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate("pem")).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(hearth.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

/// An HTTP/2 connection.
struct Http2 {
    requests: SendRequest<Bytes>,
    _connection: JoinSet<()>,
}

impl Http2 {
    async fn on(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        let (requests, connection) = h2::client::handshake(stream).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { drop(connection.await) });
        Self { requests, _connection: tasks }
    }

    async fn in_the_clear(hearth: &Hearth) -> Self {
        Self::on(TcpStream::connect(hearth.address).await.unwrap()).await
    }

    async fn send(&self, request: Request<()>, body: &[u8]) -> h2::client::ResponseFuture {
        let mut requests = self.requests.clone().ready().await.unwrap();
        let (response, mut stream) = requests.send_request(request, body.is_empty()).unwrap();
        if !body.is_empty() {
            stream.send_data(Bytes::copy_from_slice(body), true).unwrap();
        }
        response
    }

    async fn get(&self, path: &str) -> (Response<()>, String) {
        let request = Request::get(format!("https://localhost{path}")).body(()).unwrap();
        read(self.send(request, b"").await).await
    }
}

async fn read(response: h2::client::ResponseFuture) -> (Response<()>, String) {
    let (head, mut body) = in_time(response).await.unwrap().into_parts();
    let mut text = Vec::new();
    while let Some(data) = in_time(body.data()).await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        text.extend_from_slice(&data);
    }
    (Response::from_parts(head, ()), String::from_utf8(text).unwrap())
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("in time")
}

#[tokio::test]
async fn alpn_chooses_the_protocol_and_php_sees_https() {
    let site = Site::of_scripts();
    let hearth = over_tls(&site);
    assert!(hearth.url.starts_with("https://"), "{}", hearth.url);

    let stream = handshake(&hearth, &["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let client = Http2::on(stream).await;
    let (head, body) = client.get("/superglobals.php?a=1").await;
    assert_eq!((head.status(), head.version()), (StatusCode::OK, Version::HTTP_2));
    let seen: Value = serde_json::from_str(&body).unwrap();
    for (name, value) in [
        ("HTTPS", "on"),
        ("REQUEST_SCHEME", "https"),
        ("SERVER_PROTOCOL", "HTTP/2.0"),
        ("HTTP_HOST", "localhost"),
        ("SERVER_NAME", "localhost"),
        ("REQUEST_URI", "/superglobals.php?a=1"),
        ("REQUEST_METHOD", "GET"),
    ] {
        assert_eq!(seen["server"][name], value, "{name}");
    }

    for protocols in [&["http/1.1"][..], &[]] {
        let mut stream = handshake(&hearth, protocols).await;
        let request =
            "GET /superglobals.php HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        in_time(stream.read_to_string(&mut text)).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(text.contains("\"HTTPS\": \"on\""), "{text}");
        assert!(text.contains("\"SERVER_PROTOCOL\": \"HTTP\\/1.1\""), "{text}");
    }
}

#[tokio::test]
async fn http_2_in_the_clear_reaches_php() {
    let site = Site::of_scripts();
    let hearth = Hearth::request(&site);
    let client = Http2::in_the_clear(&hearth).await;
    let request = Request::post("http://example.org/superglobals.php?input")
        .header("content-type", "application/x-www-form-urlencoded")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(())
        .unwrap();
    let (head, body) = read(client.send(request, b"p=1&q[]=2").await).await;
    assert_eq!(head.status(), StatusCode::OK);
    let seen: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(seen["post"], serde_json::json!({"p": "1", "q": ["2"]}));
    assert_eq!(seen["cookie"], serde_json::json!({"a": "1", "b": "2"}), "RFC 9113 section 8.2.3");
    assert_eq!(seen["input"], "p=1&q[]=2");
    assert_eq!(seen["server"].get("HTTPS"), None);
    assert_eq!(seen["server"]["HTTP_HOST"], "example.org");
}

#[tokio::test]
async fn streams_of_one_connection_run_in_parallel() {
    let site = Site::of_scripts();
    let hearth = Serve::new(site.path()).model("request").workers(2).start();
    let client = Arc::new(Http2::in_the_clear(&hearth).await);
    let gate = site.path().join("gate");
    let slow = Request::get(format!("http://a/gate.php?gate={}", gate.display()));
    let slow = client.send(slow.body(()).unwrap(), b"").await;
    // This request does not wait for the slow one, which continues only now.
    assert_eq!(client.get("/hello.php").await.1, "hello world\n");
    std::fs::write(&gate, "").unwrap();
    assert_eq!(read(slow).await.0.status(), StatusCode::OK);

    let mut streams = JoinSet::new();
    for n in 0..60 {
        let client = Arc::clone(&client);
        streams.spawn(async move {
            let (head, body) = client.get(&format!("/hello.php?name={n}")).await;
            assert_eq!((head.status(), body), (StatusCode::OK, format!("hello {n}\n")));
        });
    }
    while let Some(stream) = streams.join_next().await {
        stream.unwrap();
    }
}

#[tokio::test]
async fn early_hints_and_flushed_pieces_come_as_php_sends_them() {
    let site = Site::of_scripts();
    let gate = site.path().join("gate");
    site.write(
        "public/gate.php",
        "<?php while (ob_get_level()) { ob_end_flush(); } echo 'first'; flush();\n\
         while (!file_exists($_GET['gate'])) { usleep(1000); clearstatcache(); } echo 'second';",
    );
    let hearth = Hearth::request(&site);
    let client = Http2::in_the_clear(&hearth).await;
    let request = Request::get("http://a/early_hints.php").body(()).unwrap();
    let mut response = client.send(request, b"").await;
    let hint = in_time(poll_fn(|cx| response.poll_informational(cx))).await.unwrap().unwrap();
    assert_eq!(hint.status(), StatusCode::EARLY_HINTS);
    assert_eq!(hint.headers().get_all("link").iter().count(), 2);
    assert_eq!(read(response).await.1, "final");

    let target = format!("http://a/gate.php?gate={}", gate.display());
    let response = client.send(Request::get(target).body(()).unwrap(), b"").await;
    let mut body = in_time(response).await.unwrap().into_body();
    assert_eq!(
        in_time(body.data()).await.unwrap().unwrap(),
        "first",
        "while the script still runs"
    );
    std::fs::write(&gate, "").unwrap();
    assert_eq!(in_time(body.data()).await.unwrap().unwrap(), "second");
    while let Some(rest) = in_time(body.data()).await {
        assert_eq!(rest.unwrap(), "", "the end may come as an empty frame");
    }
}

#[tokio::test]
async fn fields_of_http_1_are_not_sent_and_duplicates_are_kept() {
    let site = Site::of_scripts();
    site.write(
        "public/hop.php",
        "<?php header('Connection: keep-alive'); header('Keep-Alive: timeout=5'); header('Transfer-Encoding: chunked');\n\
         header('HTTP/1.1 404 Own Reason'); setcookie('a', '1'); setcookie('b', '2'); echo 'body';",
    );
    let hearth = Hearth::request(&site);
    let client = Http2::in_the_clear(&hearth).await;
    let (head, body) = client.get("/hop.php").await;
    assert_eq!((head.status(), body.as_str()), (StatusCode::NOT_FOUND, "body"));
    for name in ["connection", "keep-alive", "transfer-encoding"] {
        assert!(!head.headers().contains_key(name), "{name}");
    }
    let cookies: Vec<_> = head.headers().get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["a=1", "b=2"]);
}

#[tokio::test]
async fn a_reset_stream_stops_only_its_own_script() {
    let site = Site::of_scripts();
    let hearth = Hearth::request(&site);
    let pid = hearth.worker_pid();
    let seen = site.path().join("seen");
    let client = Http2::in_the_clear(&hearth).await;
    let target = format!("http://a/aborted.php?times=100000&file={}", seen.display());
    let response = client.send(Request::get(target).body(()).unwrap(), b"").await;
    let mut body = in_time(response).await.unwrap().into_body();
    in_time(body.data()).await.unwrap().unwrap();
    drop(body);
    in_time(async {
        while !std::fs::read_to_string(&seen).is_ok_and(|text| text == "[1,1]\n") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(client.get("/pid.php").await.1, pid.to_string(), "on the same connection");
}

#[tokio::test]
async fn a_crash_resets_its_stream_or_answers_502() {
    let site = Site::of_scripts();
    let hearth = Hearth::request(&site);
    let client = Http2::in_the_clear(&hearth).await;
    assert_eq!(client.get("/crash.php").await.0.status(), StatusCode::BAD_GATEWAY);
    let request = Request::get("http://a/crash.php?after=output").body(()).unwrap();
    let response = in_time(client.send(request, b"").await).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    let cut = loop {
        match in_time(body.data()).await {
            Some(Ok(piece)) => assert_eq!(piece, "before"),
            Some(Err(error)) => break error,
            None => panic!("half an answer was taken for a whole one"),
        }
    };
    assert!(cut.is_reset(), "{cut}");
    assert_eq!(client.get("/hello.php").await.1, "hello world\n", "the connection stays open");
}

#[tokio::test]
async fn a_drain_finishes_streams_and_sends_goaway() {
    let site = Site::of_scripts();
    let mut hearth = Hearth::request(&site);
    let client = Http2::in_the_clear(&hearth).await;
    assert_eq!(client.get("/hello.php").await.0.status(), StatusCode::OK);
    let gate = site.path().join("gate");
    let target = format!("http://a/gate.php?gate={}", gate.display());
    let request = Request::get(target).body(()).unwrap();
    let running = client.send(request, b"").await;
    // The request has reached the pool before the signal is sent.
    in_time(async {
        while hearth.status()["pool"]["workers"][0]["state"] != "busy" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    hearth.process.signal(rustix::process::Signal::TERM);
    hearth.log_line("draining");
    std::fs::write(&gate, "").unwrap();
    assert_eq!(read(running).await.0.status(), StatusCode::OK);
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0));
}
