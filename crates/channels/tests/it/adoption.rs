//! Tests sockets whose request another front has read.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use channels::hub::{Adopted, Stream};
use channels::websocket::Upgrade;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use testkit::certificates;

use super::kit::{Client, PATIENCE, Server, app, frame, request, server_frame};

/// Returns the two ends of one connection.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_read_timeout(Some(PATIENCE)).unwrap();
    (near, listener.accept().unwrap().0)
}

fn upgrade() -> Upgrade {
    let fields: [(&str, &[u8]); 4] = [
        ("upgrade", b"websocket"),
        ("connection", b"upgrade"),
        ("sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-version", b"13"),
    ];
    Upgrade::read(fields, false).unwrap().unwrap()
}

fn adopted(stream: TcpStream) -> Adopted {
    Adopted {
        stream: Stream::Tcp(stream),
        tls: None,
        upgrade: upgrade(),
        answered: true,
        target: "/app/key?protocol=7".into(),
        origin: None,
        secure: false,
        read: Vec::new(),
    }
}

fn server() -> Server {
    Server::with(app(), |options| options.listen.clear())
}

#[test]
fn an_adopted_socket_continues_where_the_other_front_stopped() {
    let server = server();
    let (mut near, far) = pair();
    let subscribe = frame(0x81, br#"{"event":"pusher:subscribe","data":{"channel":"news"}}"#);
    let (early, late) = subscribe.split_at(20);
    near.write_all(late).unwrap();
    server.hub.adopt(Adopted { read: early.to_vec(), ..adopted(far) });
    assert!(server_frame(&mut near).1.starts_with(br#"{"event":"pusher:connection_established""#));
    assert!(String::from_utf8_lossy(&server_frame(&mut near).1).contains("subscription_succeeded"));
    server.publish("news", "one");
    assert!(String::from_utf8_lossy(&server_frame(&mut near).1).contains("one"));
}

#[test]
fn the_answer_to_the_request_can_be_left_to_the_hub() {
    let server = server();
    let (near, far) = pair();
    let hub = &server.hub;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut read = [0; 4096];
            let length = (&far).read(&mut read).unwrap();
            let request = String::from_utf8_lossy(&read[..length]).into_owned();
            let fields = request.lines().filter_map(|line| line.split_once(": "));
            let upgrade =
                Upgrade::read(fields.map(|(name, value)| (name, value.as_bytes())), false)
                    .unwrap()
                    .unwrap();
            hub.adopt(Adopted { answered: false, upgrade, ..adopted(far) });
        });
        Client::upgrade(near, "/app/key?protocol=7").greeted();
    });
}

fn pem(text: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(text.as_bytes()).unwrap()
}

#[test]
fn a_tls_socket_can_be_adopted() {
    let certificates = certificates();
    let server_config =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![pem(&certificates.origin.chain)],
                PrivateKeyDer::from_pem_slice(certificates.origin.key.as_bytes()).unwrap(),
            )
            .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(pem(&certificates.authority.chain)).unwrap();
    let client_config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();

    let server = server();
    let (near, mut far) = pair();
    let client =
        ClientConnection::new(Arc::new(client_config), ServerName::try_from("localhost").unwrap())
            .unwrap();
    let mut client = StreamOwned::new(client, near);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut tls = ServerConnection::new(Arc::new(server_config)).unwrap();
            while tls.is_handshaking() {
                tls.complete_io(&mut far).unwrap();
            }
            let mut read = [0; 4096];
            let mut stream = rustls::Stream::new(&mut tls, &mut far);
            let length = stream.read(&mut read).unwrap();
            assert!(read[..length].starts_with(b"GET /app/key"));
            stream.write_all(&upgrade().answer()).unwrap();
            server.hub.adopt(Adopted { tls: Some(Box::new(tls)), secure: true, ..adopted(far) });
        });
        client.write_all(request("/app/key?protocol=7", "").as_bytes()).unwrap();
        assert!(super::kit::head(&mut client).starts_with("HTTP/1.1 101 "));
    });
    assert!(
        server_frame(&mut client).1.starts_with(br#"{"event":"pusher:connection_established""#)
    );
    client
        .write_all(&frame(0x81, br#"{"event":"pusher:subscribe","data":{"channel":"news"}}"#))
        .unwrap();
    assert!(
        String::from_utf8_lossy(&server_frame(&mut client).1).contains("subscription_succeeded")
    );

    // More than TLS buffers at once, while the client does not read.
    let data = "x".repeat(9_000);
    for _ in 0..100 {
        server.publish("news", &data);
    }
    for _ in 0..100 {
        assert!(String::from_utf8_lossy(&server_frame(&mut client).1).contains(&data));
    }
}
