//! Certificates of clients (mutual TLS), as operators set them.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConnection, StreamOwned};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use testkit::{Certificate, certificates, eventually};
use tokio::runtime::Runtime;
use tungstenite::Message;

use crate::front::http3::Http3;
use crate::front::tls::listener;
use crate::hearth::{Hearth, LIMIT, Serve, Site, command};

const VARIABLES: &str = "<?php header('Cache-Control: public, max-age=60'); echo json_encode(array_filter($_SERVER, \
    fn ($name) => str_starts_with($name, 'SSL_') || str_starts_with($name, 'HTTP_SSL'), ARRAY_FILTER_USE_KEY));";

/// An application with the tests' certificates in its folder, and these settings in the section `http`.
fn site(http: &str) -> Site {
    let site = Site::empty().with_file("public/index.php", VARIABLES);
    let ours = certificates();
    ours.origin.write(site.path(), "server");
    ours.client.write(site.path(), "client");
    ours.stranger.write(site.path(), "stranger");
    ours.authority.write(site.path(), "authority");
    site.write("ca.pem", &ours.authority.chain);
    let tls = "tls_cert = [\"server.pem\"]\ntls_key = [\"server.key\"]";
    site.with_file("hearth.toml", &format!("[http]\n{tls}\n{http}\n"))
}

fn serve(site: &Site, more: &[&str]) -> Hearth {
    let run_dir = site.path().join("run");
    Serve::new(site.path())
        .args(&["--model", "request", "--run-dir", run_dir.to_str().unwrap()])
        .args(more)
        .workers(1)
        .start()
}

/// Asks by curl, with a certificate of the site's folder.
fn curl(site: &Site, hearth: &Hearth, with: Option<&str>, more: &[&str]) -> Option<Value> {
    let file = |name: &str, kind: &str| site.path().join(format!("{name}.{kind}"));
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--max-time", "30", "--cacert"]).arg(file("authority", "pem"));
    if let Some(name) = with {
        curl.arg("--cert").arg(file(name, "pem")).arg("--key").arg(file(name, "key"));
    }
    let url = format!("https://127.0.0.1:{}/", hearth.address.port());
    let output = curl.args(more).arg(url).output().unwrap();
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

fn reload(folder: &Path) -> Output {
    command().arg("reload").arg(folder).arg("--run-dir").arg(folder.join("run")).output().unwrap()
}

/// Returns whether an HTTP/3 client gets no answer. It may learn that only after its own handshake.
async fn is_refused(address: SocketAddr, certificate: Option<&Certificate>) -> bool {
    match Http3::with(address, certificate).await {
        Ok(mut client) => !client.is_answered("/").await,
        Err(_refused) => true,
    }
}

#[test]
fn client_certificates_are_required_over_every_version_of_http_and_php_gets_the_client() {
    let site = site("client_ca = \"ca.pem\"\nhttp3 = true\ncache = true");
    let hearth = serve(&site, &[]);
    for version in ["--http1.1", "--http2"] {
        assert_eq!(curl(&site, &hearth, None, &[version]), None, "{version}");
        assert_eq!(curl(&site, &hearth, Some("stranger"), &[version]), None, "{version}");
        let fields = ["-H", "SSL-Client-S-DN: CN=root", "-H", "SSL_CLIENT_VERIFY: x"];
        let client = curl(&site, &hearth, Some("client"), &[&[version], &fields[..]].concat());
        let client = client.expect("an answer");
        assert_eq!(client["SSL_CLIENT_VERIFY"], "SUCCESS", "{version}");
        assert_eq!(client["SSL_CLIENT_S_DN"], "CN=client");
        assert_eq!(client["SSL_CLIENT_S_DN_CN"], "client");
        assert_eq!(client["SSL_CLIENT_I_DN"], "CN=Hearth's tests: authority");
        assert_eq!(client["HTTP_SSL_CLIENT_S_DN"], "CN=root", "a field is a field");
        let shown = Command::new("openssl")
            .args(["x509", "-noout", "-fingerprint", "-sha256", "-serial", "-in"])
            .arg(site.path().join("client.pem"))
            .output()
            .unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap().replace(':', "");
        let fingerprint = client["SSL_CLIENT_FINGERPRINT"].as_str().unwrap().to_uppercase();
        assert!(shown.contains(&format!("={fingerprint}\n")), "{shown} {fingerprint}");
        let serial = client["SSL_CLIENT_M_SERIAL"].as_str().unwrap();
        assert!(shown.contains(serial.trim_start_matches('0')), "{shown} {serial}");
    }
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let ours = certificates();
        let mut known = Http3::with(hearth.address, Some(&ours.client)).await.unwrap();
        let answer: Value = serde_json::from_str(&known.post("/", b"").await).unwrap();
        assert_eq!(answer["SSL_CLIENT_S_DN"], "CN=client");
        for stranger in [None, Some(&ours.stranger)] {
            assert!(is_refused(hearth.address, stranger).await);
        }
    });

    // Other authorities: the certificate is refused at once, and no session is resumed.
    std::fs::write(site.path().join("ca.pem"), &certificates().stranger.chain).unwrap();
    assert!(reload(site.path()).status.success());
    assert_eq!(curl(&site, &hearth, Some("client"), &[]), None);
    std::fs::write(site.path().join("ca.pem"), "no certificate").unwrap();
    let failed = String::from_utf8(reload(site.path()).stderr).unwrap();
    assert!(failed.contains("ca.pem holds no certificate"), "{failed}");
    std::fs::write(site.path().join("ca.pem"), &certificates().authority.chain).unwrap();
    assert!(reload(site.path()).status.success());
    assert!(curl(&site, &hearth, Some("client"), &[]).is_some());
}

#[test]
fn with_optional_certificates_php_decides_and_plain_listeners_tell_nothing() {
    let http =
        "client_ca = \"ca.pem\"\nclient_certificates = \"optional\"\nredirect_to_https = false";
    let site = site(http);
    let listen = ["--listen", "http://127.0.0.1:0"];
    let hearth = serve(&site, &listen);
    let none = curl(&site, &hearth, None, &[]).unwrap();
    assert_eq!(none, serde_json::json!({"SSL_CLIENT_VERIFY": "NONE"}));
    assert_eq!(curl(&site, &hearth, Some("client"), &[]).unwrap()["SSL_CLIENT_VERIFY"], "SUCCESS");
    assert_eq!(curl(&site, &hearth, Some("stranger"), &[]), None);
    let mut plain = testkit::Client::connect(listener(&hearth, 1)).unwrap();
    assert_eq!(plain.get("/").unwrap().text(), "[]");
}

/// Opens a WebSocket with a certificate, sends messages, and returns their answers.
fn talk(hearth: &Hearth, certificate: &Certificate, messages: &[&str]) -> Vec<String> {
    let (config, _) = testkit::credulous(&["http/1.1"]);
    let mut config = Arc::unwrap_or_clone(config);
    let chain = vec![CertificateDer::from_pem_slice(certificate.chain.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).unwrap();
    let key = CertifiedKey::from_der(chain, key, config.crypto_provider()).unwrap();
    config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(key));
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(hearth.address).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let stream = StreamOwned::new(session, socket);
    let (mut socket, _) = tungstenite::client("ws://localhost/chat", stream).unwrap();
    let mut answer = |text: &&str| {
        socket.send(Message::text(*text)).unwrap();
        socket.read().unwrap().into_text().unwrap().to_string()
    };
    messages.iter().map(&mut answer).collect()
}

#[test]
fn events_of_a_websocket_have_the_certificate_of_their_client() {
    let http = "client_ca = \"ca.pem\"\n[websockets.routes]\n\"/chat\" = \"/index.php\"";
    let site = site(http).with_file(
        "public/index.php",
        "<?php [$event, $client] = [$_SERVER['HEARTH_SOCKET_EVENT'], $_SERVER['SSL_CLIENT_S_DN'] ?? 'none'];\n\
         file_put_contents(dirname(__DIR__) . '/events', \"$event $client\\n\", FILE_APPEND | LOCK_EX);\n\
         if ($event === 'message') echo $client, ' ', $_SERVER['SSL_CLIENT_VERIFY'];",
    );
    let hearth = serve(&site, &[]);
    let answers = talk(&hearth, &certificates().client, &["first", "second"]);
    assert_eq!(answers, ["CN=client SUCCESS", "CN=client SUCCESS"]);
    let expected = "connect CN=client\nmessage CN=client\nmessage CN=client\nclose CN=client\n";
    let events = || std::fs::read_to_string(site.path().join("events")).unwrap_or_default();
    eventually("the close is reported", LIMIT, || events().lines().count() == 4);
    assert_eq!(events(), expected);
}

#[test]
fn client_authorities_that_cannot_be_used_are_refused_at_the_start() {
    let refused = |http: &str, more: &[&str]| {
        let site = site(http);
        let output = command().arg("serve").arg(site.path()).args(more).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let told = refused("client_ca = \"missing.pem\"", &[]);
    assert!(told.contains("cannot read") && told.contains("`http.client_ca`"), "{told}");
    let told = refused("client_ca = \"server.key\"", &[]);
    assert!(told.contains("server.key holds no certificate"), "{told}");
    let told = refused("client_ca = \"ca.pem\"", &["--listen", "http://127.0.0.1:0"]);
    assert!(told.contains("no listener speaks HTTPS"), "{told}");
    let plain = ["--listen", "127.0.0.1:0", "--listen", "http://127.0.0.1:0"];
    let told = refused("client_ca = \"ca.pem\"\nredirect_to_https = false", &plain);
    assert!(told.contains("a listener answers without TLS"), "{told}");
}
