//! Tests of the scripted origin with curl as the client.

use std::process::Command;
use std::time::Duration;

use super::*;
use crate::http1::Client;
use crate::process::eventually;

const LIMIT: Duration = Duration::from_secs(20);

/// Returns curl's exit status and output.
fn curl(origin: &Origin, arguments: &[&str], path: &str) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let (authority, _) = certificates().authority.write(folder.path(), "authority");
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "20", "--noproxy", "*", "--cacert"])
        .arg(authority)
        .args(arguments)
        .arg(origin.url(path))
        .output()
        .unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn both_http_versions_answer_alike() {
    let origin = Origin::tls(routes);
    for version in ["--http1.1", "--http2"] {
        let measured = curl(
            &origin,
            &[version, "--output", "/dev/null", "--write-out", "%{size_download}"],
            "/bytes/300000",
        );
        assert_eq!(measured, (0, "300000".into()), "{version}");
        let echoed = curl(&origin, &[version, "--data", "a=1"], "/echo");
        assert_eq!(echoed, (0, "a=1".into()), "{version}");
        let (_, hinted) = curl(&origin, &[version, "--include"], "/early-hints");
        assert!(hinted.contains(" 103") && hinted.contains(" 200"), "{version}: {hinted}");
        assert!(hinted.ends_with("hinted"), "{version}: {hinted}");
        let unpacked = curl(&origin, &[version, "--compressed"], "/gzip");
        assert_eq!(unpacked.1, "compressed by gzip", "{version}");
        let redirected = curl(&origin, &[version, "--location"], "/redirect/2");
        assert!(redirected.1.contains("\"/headers\""), "{version}: {redirected:?}");
        let early =
            curl(&origin, &[version, "--write-out", "%{http_code}", "--data", "x"], "/early");
        assert_eq!(early.1, "too large413", "{version}");
        let authorised = curl(&origin, &[version, "--user", "user:password"], "/basic-auth");
        assert_eq!(authorised.1, "welcome", "{version}");
    }
    let (_, trailers) = curl(&origin, &["--http1.1", "--include", "--raw"], "/trailers");
    assert!(trailers.ends_with("0\r\nX-Checksum: abc\r\n\r\n"), "{trailers}");
    let versions: Vec<u8> = origin.requests().iter().map(|seen| seen.version).collect();
    assert!(versions.contains(&1) && versions.contains(&2), "{versions:?}");
}

#[test]
fn curl_reports_each_scripted_fault() {
    let origin = Origin::plain(routes);
    for (path, status) in [("/empty", 52), ("/cut", 18), ("/reset", 56), ("/rubbish", 1)] {
        assert_eq!(curl(&origin, &[], path).0, status, "{path}");
    }
    assert_eq!(curl(&origin, &["--max-time", "0.2"], "/never").0, 28);
    let secure = Origin::tls(routes);
    // 7 is REFUSED_STREAM: curl retries on other connections, and gives up.
    let refusing = Origin::tls(|_| Turn::ResetStream(7));
    assert_eq!(curl(&refusing, &[], "/").0, 56);
    assert!(refusing.requests().len() > 1);
    assert_eq!(curl(&secure, &[], "/reset").0, 92);
    let greeted = |greeting: Greeting| {
        Origin::setup().tls(&certificates().origin).greet(move |_| greeting.clone()).start()
    };
    assert_eq!(curl(&greeted(Greeting::Close), &[], "/").0, 35);
    // The reset may arrive before curl has noticed the connection.
    assert!(matches!(curl(&greeted(Greeting::Reset), &[], "/").0, 7 | 35));
    assert_eq!(curl(&greeted(Greeting::Rubbish(b"no TLS".to_vec())), &[], "/").0, 35);
    assert_eq!(curl(&greeted(Greeting::Silence), &["--max-time", "0.2"], "/").0, 28);
    // Other clients retry; curl 7.88 does not.
    assert_ne!(curl(&greeted(Greeting::GoAwayUnprocessed), &[], "/").0, 0);
}

#[test]
fn test_certificates_have_their_named_faults() {
    let all = certificates();
    for (certificate, status) in
        [(&all.origin, 0), (&all.expired, 60), (&all.other_host, 60), (&all.stranger, 60)]
    {
        let origin = Origin::setup().tls(certificate).script(routes).start();
        assert_eq!(curl(&origin, &[], "/").0, status);
    }
    let origin = Origin::setup().tls(&all.origin).client_authority(&all.authority).start();
    assert_ne!(curl(&origin, &[], "/").0, 0);
    let folder = tempfile::tempdir().unwrap();
    let (chain, key) = all.client.write(folder.path(), "client");
    let own = ["--cert", chain.to_str().unwrap(), "--key", key.to_str().unwrap()];
    assert_eq!(curl(&origin, &own, "/").0, 0);
    assert!(origin.connections().last().unwrap().tls.as_ref().unwrap().client_certificate);
}

#[test]
fn the_record_has_exact_fields_and_bodies() {
    let origin = Origin::plain(routes);
    let mut client = Client::connect(origin.address()).unwrap();
    client.request("POST", "/a?b", &[("X-oDD", "1"), ("x-odd", "2")], b"body").unwrap();
    client.get("/").unwrap();
    let requests = origin.requests();
    let expected =
        [("Host", "example.org"), ("X-oDD", "1"), ("x-odd", "2"), ("Content-Length", "4")];
    let expected: Fields =
        expected.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    assert_eq!(requests[0].fields, expected);
    assert_eq!((requests[0].text().as_str(), requests[0].complete), ("body", true));
    assert_eq!((requests[0].connection, requests[1].connection), (0, 0));
    assert_eq!(origin.open(), 1);
    origin.close_idle();
    assert!(client.is_closed());
    eventually("the connection is seen to be over", LIMIT, || origin.open() == 0);
}

#[test]
fn a_connection_dies_under_the_next_request_when_the_script_says_so() {
    let origin = Origin::plain(|_| Reply::text("once").after(After::CloseAtNext).into());
    let mut client = Client::connect(origin.address()).unwrap();
    assert_eq!(client.get("/").unwrap().text(), "once");
    assert!(client.get("/").is_err());
    assert_eq!(origin.requests().len(), 2);
}
