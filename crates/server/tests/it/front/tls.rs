//! TLS for operators: certificates that change on disk, listeners with and without TLS, and their figures in `/status`
//! and `/metrics`.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use testkit::{AcmeAuthority, AcmeFault, AcmeSetup, Certificate, Client, certificates, eventually};

use super::sockets::get_through;
use crate::hearth::{Hearth, LIMIT, Serve, Site, command};

/// Sends a GET over TLS to the server with this name, and trusts only the tests' authority.
pub(crate) fn https_get(
    address: SocketAddr,
    name: &str,
    authority: &str,
    path: &str,
) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let session = ClientConnection::new(Arc::new(config), name.clone()).unwrap();
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(LIMIT))?;
    let mut stream = StreamOwned::new(session, socket);
    let host = name.to_str();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8(answer).unwrap())
}

fn put(certificate: &Certificate, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    certificate.write(folder, name)
}

/// Returns the address in the ready line number `index`.
pub(crate) fn listener(hearth: &Hearth, index: usize) -> SocketAddr {
    let ready = |line: &str| line.strip_prefix("hearth: ready on ").map(str::to_owned);
    eventually("every listener is ready", LIMIT, || {
        hearth.log().text().lines().filter_map(ready).count() > index
    });
    let url = hearth.log().text().lines().filter_map(ready).nth(index).unwrap();
    url.split_once("://").unwrap().1.parse().unwrap()
}

fn says(hearth: &Hearth, name: &str) -> bool {
    let answer = https_get(hearth.address, name, &certificates().authority.chain, "/");
    answer.is_ok_and(|answer| answer.ends_with("front controller"))
}

#[test]
fn changed_certificate_files_are_reloaded_only_as_whole_pairs() {
    let (site, ours) = (Site::of_scripts(), certificates());
    let (certificate, key) = put(&ours.origin, site.path(), "first");
    let (second, second_key) = put(&ours.expired, site.path(), "second");
    let path = |path: &PathBuf| path.to_str().unwrap().to_owned();
    let hearth = Serve::new(site.path())
        .args(&["--model", "request", "--tls-cert", &path(&certificate), "--tls-key", &path(&key)])
        .args(&["--tls-cert", &path(&second), "--tls-key", &path(&second_key)])
        .args(&["--run-dir", &path(&site.path().join("run"))])
        .workers(1)
        .start();
    assert!(hearth.url.starts_with("https://"));
    hearth.log_line("certificate is over");
    assert!(says(&hearth, "localhost"));
    assert!(!says(&hearth, "other.example"));
    let metrics = hearth.admin("/metrics").text();
    let line = "hearth_certificate_expires_timestamp_seconds{name=\"localhost\",from=\"files\"}";
    assert!(metrics.contains(line), "{metrics}");

    // The certificate changes before its key does.
    std::fs::write(&second, &ours.other_host.chain).unwrap();
    hearth.log_line("changed certificate rejected");
    assert!(says(&hearth, "localhost"));
    assert!(!says(&hearth, "other.example"));
    let reload = command()
        .arg("reload")
        .arg(site.path())
        .args(["--run-dir"])
        .arg(site.path().join("run"))
        .output()
        .unwrap();
    assert_eq!(reload.status.code(), Some(1));
    let why = String::from_utf8(reload.stderr).unwrap();
    assert!(why.contains("second.pem cannot be used with the key"), "{why}");

    std::fs::write(&second_key, &ours.other_host.key).unwrap();
    eventually("the new certificate is shown", LIMIT, || says(&hearth, "other.example"));
    assert!(says(&hearth, "localhost"));
    let shown = hearth.status()["certificates"].clone();
    assert_eq!(shown[1]["names"], serde_json::json!(["other.example"]));
    assert_eq!((&shown[1]["from"], &shown[1]["stapled"]), (&"files".into(), &false.into()));
    assert!(shown[1]["days_left"].as_i64().unwrap() > 365);
}

#[test]
fn a_plain_listener_redirects_to_https_except_for_local_proxies() {
    let (site, ours) = (Site::of_scripts(), certificates());
    let (certificate, key) = put(&ours.origin, site.path(), "origin");
    let socket = site.path().join("app.sock");
    let hearth = Serve::new(site.path())
        .args(&["--model", "request", "--listen", "http://127.0.0.1:0"])
        .args(&["--listen", &format!("unix:{}", socket.display())])
        .args(&["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()])
        .set("HEARTH_HTTP_HSTS", "max-age=300; includeSubDomains")
        .workers(1)
        .start();
    let plain = listener(&hearth, 1);
    let answer = Client::connect(plain)
        .unwrap()
        .request("GET", "/x?y=1", &[("Host", "localhost:80")], b"")
        .unwrap();
    assert_eq!(answer.status, 308);
    let redirect = format!("https://localhost:{}/x?y=1", hearth.address.port());
    assert_eq!(answer.field("location"), Some(redirect.as_str()));
    let answer = https_get(hearth.address, "localhost", &ours.authority.chain, "/").unwrap();
    let hsts = "strict-transport-security: max-age=300; includeSubDomains\r\n";
    assert!(answer.to_ascii_lowercase().contains(&hsts.to_ascii_lowercase()), "{answer}");

    let answer = get_through(&socket, "/");
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
}

#[test]
fn plain_http_is_served_while_a_certificate_is_ordered() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let site = Site::of_scripts();
        let authority = AcmeAuthority::start(AcmeSetup::default());
        let ca = site.path().join("ca.pem");
        std::fs::write(&ca, &certificates().authority.chain).unwrap();
        authority.fault("dir", AcmeFault::Silence);
        let cache = site.path().join("data/acme");
        let serve = || {
            Serve::new(site.path())
                .args(&["--model", "request", "--listen", "http://127.0.0.1:0"])
                .args(&["--acme", "Shop.Example", "--acme-accept-terms"])
                .args(&["--acme-contact", "admin@shop.example"])
                .args(&["--acme-directory", &authority.directory()])
                .set("HEARTH_ACME_DIRECTORY_CA", ca.to_str().unwrap())
                .set("HEARTH_ACME_CACHE", cache.to_str().unwrap())
                .set("HEARTH_ACME_CHALLENGE", challenge)
                .set("HEARTH_HTTP_REDIRECT_TO_HTTPS", "off")
                .workers(1)
        };
        // This server finds no authority: it logs that, continues, and serves plain HTTP.
        let hearth = serve().start();
        hearth.log_line("no certificate yet");
        let plain = listener(&hearth, 1);
        assert_eq!(Client::connect(plain).unwrap().get("/").unwrap().text(), "front controller");
        https_get(hearth.address, "shop.example", authority.authority(), "/").unwrap_err();
        let problem = hearth.status()["problems"][0]["text"].as_str().unwrap().to_owned();
        assert!(problem.contains("no certificate for shop.example yet"), "{problem}");
        assert!(hearth.stop().success());

        // It answers no client before it has the authority's directory.
        let hearth = serve().start();
        let plain = listener(&hearth, 1);
        authority.change(|setup| {
            (setup.tls_port, setup.http_port) = (hearth.address.port(), plain.port());
        });
        eventually("the certificate is shown", LIMIT, || {
            https_get(hearth.address, "shop.example", authority.authority(), "/")
                .is_ok_and(|answer| answer.ends_with("front controller"))
        });
        // The certificate is stored before it is counted.
        eventually("it is counted", LIMIT, || hearth.status()["acme"]["issued"] == 1);
        let status = hearth.status();
        assert_eq!(status["acme"]["failed"], 0);
        assert_eq!(status["certificates"][0]["from"], "authority");
        assert!(hearth.stop().success());

        // The stored certificate is used: the authority gets no request.
        let asked = authority.seen().len();
        let hearth = serve().start();
        eventually("the kept one is shown", LIMIT, || {
            https_get(hearth.address, "shop.example", authority.authority(), "/").is_ok()
        });
        assert_eq!(authority.seen().len(), asked);
    }
}

#[test]
fn local_names_get_certificates_of_the_development_authority() {
    let site = Site::of_scripts();
    let folder = site.path().join("authority");
    let serve = || {
        Serve::new(site.path())
            .args(&["--model", "request", "--tls-local", "--tls-local-name", "Shop.test"])
            .set("HEARTH_HTTP_TLS_LOCAL_CA", folder.to_str().unwrap())
            .workers(1)
    };
    let hearth = serve().start();
    let trust = |folder: &Path| {
        let mut trust = command();
        trust.args(["tls", "trust"]).env("HEARTH_HTTP_TLS_LOCAL_CA", folder);
        String::from_utf8(trust.output().unwrap().stdout).unwrap()
    };
    assert!(trust(&site.path().join("other")).contains("It has been made just now"));
    let said = trust(&folder);
    assert!(!said.contains("made just now"), "{said}");
    let ca = folder.join("hearth-local-ca.pem");
    assert!(
        said.contains(ca.to_str().unwrap()) && said.contains("update-ca-certificates"),
        "{said}"
    );
    let authority = std::fs::read_to_string(&ca).unwrap();
    for name in ["localhost", "127.0.0.1", "shop.test", "app.localhost", "a.b.localhost"] {
        let answer = https_get(hearth.address, name, &authority, "/").unwrap();
        assert!(answer.ends_with("front controller"), "{name}: {answer}");
    }
    for name in ["other.test", "shop.example"] {
        https_get(hearth.address, name, &authority, "/").unwrap_err();
    }
    assert!(hearth.stop().success());
    // The next start uses the same authority, so clients that trust it still do.
    let hearth = serve().start();
    https_get(hearth.address, "localhost", &authority, "/").unwrap();
}
