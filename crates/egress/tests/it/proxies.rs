//! Calls through real proxies that follow RFC 9110, 9.3.6 and RFC 1928.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use egress::{Engine, Fate, Key, Options, Proxy, ProxyKind, Reason};
use testkit::{Origin, routes};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::JoinSet;

use crate::support::*;

/// A proxy that records its requests. It ends when it is dropped.
struct Tunnels {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

impl Tunnels {
    async fn start(socks: bool) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let remembered = Arc::clone(&asked);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut tunnels = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let remembered = Arc::clone(&remembered);
                tunnels.spawn(async move {
                    let done = if socks {
                        socks5(stream, remembered).await
                    } else {
                        connect(stream, remembered).await
                    };
                    drop(done);
                });
            }
        });
        Self { port, asked, _task: task }
    }

    fn proxy(&self, kind: ProxyKind, credentials: Option<(&str, &str)>) -> Proxy {
        let credentials = credentials.map(|(user, password)| (user.into(), password.into()));
        Proxy { kind, host: "127.0.0.1".into(), port: self.port, credentials, tls: None }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }
}

async fn connect(mut stream: TcpStream, asked: Arc<Mutex<Vec<String>>>) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    asked.lock().expect("no panic").push(head.clone());
    if !head.contains("Proxy-Authorization: Basic dXNlcjpwYXNzd29yZA==\r\n") {
        return stream.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
    }
    let authority = head.split(' ').nth(1).expect("CONNECT names it");
    let mut origin = TcpStream::connect(authority).await?;
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    copy_bidirectional(&mut stream, &mut origin).await.map(drop)
}

async fn socks5(mut stream: TcpStream, asked: Arc<Mutex<Vec<String>>>) -> std::io::Result<()> {
    let mut offers = [0; 2];
    stream.read_exact(&mut offers).await?;
    let mut methods = vec![0; usize::from(offers[1])];
    stream.read_exact(&mut methods).await?;
    stream.write_all(&[5, 0]).await?;
    let mut request = [0; 4];
    stream.read_exact(&mut request).await?;
    let host = if request[3] == 1 {
        Ipv4Addr::from(stream.read_u32().await?).to_string()
    } else {
        let mut name = vec![0; usize::from(stream.read_u8().await?)];
        stream.read_exact(&mut name).await?;
        String::from_utf8_lossy(&name).into_owned()
    };
    let port = stream.read_u16().await?;
    asked.lock().expect("no panic").push(format!("{host}:{port}"));
    let Ok(mut origin) = TcpStream::connect(format!("{host}:{port}")).await else {
        return stream.write_all(&[5, 5, 0, 1, 0, 0, 0, 0, 0, 0]).await;
    };
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    copy_bidirectional(&mut stream, &mut origin).await.map(drop)
}

#[tokio::test]
async fn https_goes_through_a_tunnel_that_is_kept() {
    let origin = Origin::tls(routes);
    let proxy = Tunnels::start(false).await;
    let key = Key {
        proxy: Some(proxy.proxy(ProxyKind::Http, Some(("user", "password")))),
        ..key(&origin)
    };
    let engine = engine();
    for _ in 0..2 {
        let answer = made(&engine, get(&key, "/path")).await.expect("an answer");
        assert_eq!(answer.timing.address.expect("an address").port(), proxy.port);
    }
    let asked = proxy.asked();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].starts_with(&format!("CONNECT localhost:{} HTTP/1.1\r\n", origin.port())));
    assert_eq!(origin.requests()[1].target, "/path");

    let key = Key { proxy: Some(proxy.proxy(ProxyKind::Http, None)), ..key };
    let error = made(&engine, get(&key, "/")).await.expect_err("it wants a password");
    assert_eq!((error.fate, error.reason, error.curl), (Fate::Declined, Reason::Proxy, 56));
    assert_eq!(error.message, "CONNECT tunnel failed, response 407");
}

#[tokio::test]
async fn http_goes_to_the_proxy_in_absolute_form() {
    // The origin acts as the proxy.
    let proxy = Origin::plain(routes);
    let mut key = Key::plain(0, egress::Scheme::Http, "origin.test", 80);
    key.proxy = Some(Proxy {
        kind: ProxyKind::Http,
        host: "127.0.0.1".into(),
        port: proxy.port(),
        credentials: Some(("user".into(), "password".into())),
        tls: None,
    });
    made(&engine(), get(&key, "/path?q")).await.expect("an answer");
    let seen = &proxy.requests()[0];
    assert_eq!(seen.target, "http://origin.test:80/path?q");
    assert_eq!(seen.authority, "origin.test:80");
    assert_eq!(seen.field("proxy-authorization"), Some("Basic dXNlcjpwYXNzd29yZA=="));
}

#[tokio::test]
async fn socks5_resolves_locally_or_remotely() {
    let origin = Origin::setup()
        .tls(&testkit::certificates().origin)
        .listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .script(routes)
        .start();
    let proxy = Tunnels::start(true).await;
    let here = Key {
        family: egress::IpFamily::V4,
        proxy: Some(proxy.proxy(ProxyKind::Socks5, None)),
        ..key(&origin)
    };
    let there = Key {
        proxy: Some(proxy.proxy(ProxyKind::Socks5Hostname, Some(("u", "p")))),
        ..key(&origin)
    };
    let engine = engine();
    for key in [&here, &there] {
        assert_eq!(made(&engine, get(key, "/")).await.expect("an answer").status, 200);
    }
    let port = origin.port();
    assert_eq!(proxy.asked(), [format!("127.0.0.1:{port}"), format!("localhost:{port}")]);

    drop(origin);
    let error = made(&crate::support::engine(), get(&there, "/")).await.expect_err("it is gone");
    assert_eq!((error.fate, error.reason, error.curl), (Fate::Declined, Reason::Proxy, 97));
    assert_eq!(error.message, "Can't complete SOCKS5 connection to localhost. (5)");
}

#[tokio::test]
async fn a_proxy_that_is_not_there() {
    let port = Origin::plain(routes).port();
    let mut key = Key::plain(0, egress::Scheme::Https, "origin.test", 443);
    let proxy = Proxy {
        kind: ProxyKind::Http,
        host: "127.0.0.1".into(),
        port,
        credentials: None,
        tls: None,
    };
    key.proxy = Some(proxy.clone());
    let error = made(&engine(), get(&key, "/")).await.expect_err("the port is closed");
    assert_eq!((error.fate, error.reason, error.curl), (Fate::Declined, Reason::Proxy, 7));

    let host = "a".repeat(64) + ".test";
    key.proxy = Some(Proxy { host: host.as_str().into(), ..proxy });
    let error = made(&engine(), get(&key, "/")).await.expect_err("it has no address");
    assert_eq!((error.fate, error.reason, error.curl), (Fate::Declined, Reason::Resolve, 5));
    assert_eq!(error.message, format!("Could not resolve proxy: {host}"));
}

#[tokio::test]
async fn the_deny_list_applies_through_a_proxy() {
    let proxy = Tunnels::start(true).await;
    let origin = Origin::setup().listen(([127, 0, 0, 2], 0).into()).script(routes).start();
    let deny = vec!["127.0.0.2".parse().expect("a network")];
    let engine = Engine::new(Options { deny, ..Options::default() });
    for kind in [ProxyKind::Socks5, ProxyKind::Socks5Hostname, ProxyKind::Http] {
        let key = Key { proxy: Some(proxy.proxy(kind, None)), ..key(&origin) };
        let error = made(&engine, get(&key, "/")).await.expect_err("it is denied");
        assert_eq!(error.reason, Reason::Denied);
    }
    let mut key = Key::plain(0, egress::Scheme::Http, "origin.test", 80);
    key.proxy = Some(Proxy { host: "127.0.0.2".into(), ..proxy.proxy(ProxyKind::Http, None) });
    let error = made(&engine, get(&key, "/")).await.expect_err("the proxy itself is denied");
    assert_eq!(error.reason, Reason::Denied);
    assert!(proxy.asked().is_empty());
}

#[tokio::test]
async fn the_server_of_a_unix_socket_does_not_get_the_proxys_password() {
    let path = std::env::temp_dir().join(format!("hearth-no-proxy-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).expect("a socket");
    let mut server = JoinSet::new();
    server.spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a request"));
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.expect("read");
        String::from_utf8(head).expect("text")
    });
    let credentials = Some(("corp".into(), "secret".into()));
    let host = "127.0.0.1".into();
    let proxy = Proxy { kind: ProxyKind::Http, host, port: 9, credentials, tls: None };
    let plain = Key::plain(0, egress::Scheme::Http, "localhost", 80);
    let key = Key { proxy: Some(proxy), unix: Some(path.as_path().into()), ..plain };
    assert_eq!(
        made(&Engine::new(Options::default()), get(&key, "/info")).await.expect("an answer").text(),
        "ok"
    );
    let head = within(server.join_next()).await.expect("one").expect("no panic").to_lowercase();
    assert!(head.starts_with("get /info http/1.1\r\n"), "{head}");
    assert!(!head.contains("proxy-authorization"), "{head}");
    std::fs::remove_file(path).expect("it is there");
}
