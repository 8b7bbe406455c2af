//! Verification of certificates, and client certificates.

use egress::{
    Certificate, Engine, Fate, HttpVersions, Key, Options, Reason, Scheme, TlsVersion, Trust,
};
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use testkit::{Greeting, Origin, certificates, routes};

use crate::support::*;

fn showing(certificate: &testkit::Certificate) -> Origin {
    Origin::setup().tls(certificate).script(routes).start()
}

fn pem(text: &str) -> std::sync::Arc<[u8]> {
    text.as_bytes().into()
}

/// Returns the pin of `curl --pinnedpubkey sha256//…`, decoded.
fn pin(certificate: &testkit::Certificate) -> [u8; 32] {
    let sha256 = TLS13_AES_128_GCM_SHA256.tls13().expect("its name says so").common.hash_provider;
    sha256.hash(&certificate.public_key).as_ref().try_into().expect("32 bytes")
}

async fn error(engine: &Engine, key: &Key) -> egress::CallError {
    let error = made(engine, get(key, "/")).await.expect_err("it is not to be trusted");
    assert_eq!(error.fate, Fate::Declined);
    error
}

#[tokio::test]
async fn certificates_are_verified_as_by_curl() {
    let all = certificates();
    let named = "SSL: no alternative certificate subject name matches target host name 'localhost'";
    for (certificate, message) in [
        (&all.expired, "SSL certificate problem: certificate has expired"),
        (&all.other_host, named),
        (&all.stranger, "SSL certificate problem: unable to get local issuer certificate"),
    ] {
        let origin = showing(certificate);
        let key = key(&origin);
        let error = error(&engine(), &key).await;
        assert_eq!((error.reason, error.curl), (Reason::Certificate, 60), "{error:?}");
        assert_eq!(error.message, message);
        assert!(origin.requests().is_empty());
        // Without verification the call succeeds.
        let key = Key { trust: Trust::Anyone, ..key };
        assert_eq!(made(&engine(), get(&key, "/")).await.expect("an answer").status, 200);
    }
}

#[tokio::test]
async fn changed_authority_files_are_reloaded() {
    let all = certificates();
    let http1 = Origin::setup().tls(&all.origin).alpn(&[]).script(routes).start();
    let origins = [showing(&all.origin), http1];
    for origin in origins {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ca.pem");
        let hold = |certificate: &testkit::Certificate| {
            // Renames a new file into place, as operators do.
            let new = folder.path().join("new.pem");
            std::fs::write(&new, &certificate.chain).expect("a file");
            std::fs::rename(&new, &file).expect("its place");
        };
        hold(&all.authority);
        let engine = Engine::new(Options { ca: Some(file.clone()), ..Options::default() });
        let key = Key { trust: Trust::System, ..key(&origin) };
        // This connection is in use while the authorities change; it closes after its call.
        let answer = within(engine.call(get(&key, "/bytes/100000"), |_| {})).await.expect("a head");
        let in_use = usize::from(!answer.timing.http2);
        made(&engine, get(&key, "/")).await.expect("an answer");
        hold(&all.stranger);
        eventually("idle connections close", || stats(&engine).connections == in_use).await;
        whole(answer).await.expect("an answer");
        assert_eq!(error(&engine, &key).await.curl, 60);
        hold(&all.authority);
        made(&engine, get(&key, "/")).await.expect("an answer");
    }
}

#[tokio::test]
async fn unverified_connections_serve_no_verified_call() {
    let origin = showing(&certificates().stranger);
    let engine = engine();
    let verified = key(&origin);
    let anyone = Key { trust: Trust::Anyone, ..verified.clone() };
    made(&engine, get(&anyone, "/")).await.expect("an answer");
    assert_eq!(error(&engine, &verified).await.curl, 60);
}

#[tokio::test]
async fn system_or_custom_authorities() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, _) = certificates().authority.write(folder.path(), "ca");
    let origin = showing(&certificates().origin);
    let key = Key { trust: Trust::System, ..key(&origin) };
    // No system trusts the tests' authority.
    assert_eq!(error(&engine(), &key).await.reason, Reason::Certificate);

    let engine = Engine::new(Options { ca: Some(file), ..Options::default() });
    assert_eq!(made(&engine, get(&key, "/")).await.expect("an answer").status, 200);

    let missing = Some(folder.path().join("missing.pem"));
    let engine = Engine::new(Options { ca: missing, ..Options::default() });
    assert_eq!(error(&engine, &key).await.curl, 77);
    let key = Key { trust: Trust::Authorities(pem("no certificate")), ..key };
    assert_eq!(error(&engine, &key).await.curl, 77);
}

#[tokio::test]
async fn a_client_certificate() {
    let all = certificates();
    let origin =
        Origin::setup().tls(&all.origin).client_authority(&all.authority).script(routes).start();
    let key = key(&origin);
    let certificate = Certificate { chain: pem(&all.client.chain), key: pem(&all.client.key) };
    let known = Key { certificate: Some(certificate), ..key.clone() };
    let engine = engine();
    assert_eq!(made(&engine, get(&known, "/")).await.expect("an answer").status, 200);
    assert!(origin.connections()[0].tls.as_ref().expect("a handshake").client_certificate);

    // In TLS 1.3 the refusal arrives after the client's Finished message, so data may already have been sent.
    let refused =
        made(&engine, get(&key, "/")).await.expect_err("the origin requires a client certificate");
    assert!(matches!(refused.curl, 35 | 52 | 55 | 56), "{refused:?}");

    let wrong = Certificate { chain: pem(&all.client.chain), key: pem(&all.origin.key) };
    let wrong = Key { certificate: Some(wrong), ..key };
    let error = error(&engine, &wrong).await;
    assert_eq!((error.reason, error.curl), (Reason::Certificate, 58));
}

#[tokio::test]
async fn pins_apply_with_and_without_other_verification() {
    let all = certificates();
    let origin = showing(&all.origin);
    let right = [pin(&all.client), pin(&all.origin)];
    let wrong = [pin(&all.client)];
    for trust in [key(&origin).trust, Trust::Anyone] {
        let key = Key { trust, ..key(&origin) };
        let pinned = Key { pins: right.as_slice().into(), ..key.clone() };
        assert_eq!(made(&engine(), get(&pinned, "/")).await.expect("an answer").status, 200);
        let pinned = Key { pins: wrong.as_slice().into(), ..key };
        let error = error(&engine(), &pinned).await;
        assert_eq!((error.reason, error.curl), (Reason::Certificate, 90));
        assert_eq!(error.message, "SSL: public key does not match pinned public key");
    }
}

#[tokio::test]
async fn tls_versions_without_overlap_fail() {
    let origin = Origin::setup().tls(&certificates().origin).tls12().script(routes).start();
    let old = key(&origin);
    made(&engine(), get(&old, "/")).await.expect("an answer");
    assert_eq!(origin.connections()[0].tls.as_ref().expect("a handshake").version, "TLSv1.2");
    let new = Key { tls_min: TlsVersion::V1_3, ..old };
    let error = error(&engine(), &new).await;
    assert_eq!((error.reason, error.curl), (Reason::Tls, 35));
}

#[tokio::test]
async fn alpn_negotiates_the_protocol() {
    for (alpn, http, version) in [
        (&["h2", "http/1.1"][..], HttpVersions::Negotiate, 2),
        (&["h2", "http/1.1"], HttpVersions::Http1, 1),
        (&["http/1.1"], HttpVersions::Negotiate, 1),
        (&[], HttpVersions::Negotiate, 1),
        (&["h2"], HttpVersions::Http2, 2),
    ] {
        let origin = Origin::setup().tls(&certificates().origin).alpn(alpn).script(routes).start();
        let key = Key { http, ..key(&origin) };
        made(&engine(), get(&key, "/")).await.expect("an answer");
        assert_eq!(origin.requests()[0].version, version, "{alpn:?}");
        let handshake = origin.connections()[0].tls.clone().expect("a handshake");
        assert_eq!(handshake.server_name.as_deref(), Some("localhost"));
    }
    let origin = Origin::setup().tls(&certificates().origin).alpn(&["http/1.1"]).start();
    let key = Key { http: HttpVersions::Http2, ..key(&origin) };
    assert!(matches!(error(&engine(), &key).await.reason, Reason::Tls | Reason::Unsupported));
}

#[tokio::test]
async fn a_new_connection_resumes_the_session_of_an_old_one() {
    let origin =
        Origin::setup().tls(&certificates().origin).alpn(&["http/1.1"]).script(routes).start();
    let engine = engine();
    for _ in 0..2 {
        made(&engine, get(&key(&origin), "/close")).await.expect("an answer");
    }
    let resumed: Vec<bool> = origin
        .connections()
        .iter()
        .map(|connection| connection.tls.as_ref().expect("a handshake").resumed)
        .collect();
    assert_eq!(resumed, [false, true]);
}

#[tokio::test]
async fn a_server_without_tls_is_recognised() {
    let origin = Origin::setup().greet(|_| Greeting::Rubbish(b"220 smtp.test\r\n".into())).start();
    let mut key = Key::plain(0, Scheme::Https, "127.0.0.1", origin.port());
    key.trust = Trust::Anyone;
    let error = error(&engine(), &key).await;
    assert_eq!((error.reason, error.curl), (Reason::Tls, 35));
}
