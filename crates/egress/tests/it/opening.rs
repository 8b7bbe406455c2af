//! Connections that fail or are slow to open, and the calls that wait for them.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use egress::{
    CallError, Engine, Fate, HttpVersions, Key, Limits, Options, Proxy, ProxyKind, Reason, Scheme,
};
use testkit::{After, Origin, Reply, certificates};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::*;

const SECOND: Duration = Duration::from_secs(1);
const NEVER: Duration = Duration::from_hours(24);

/// A SOCKS proxy that is also the origin. It runs in the test's own runtime, so that both have the same paused clock.
struct Slow {
    key: Key,
    begun: Arc<AtomicUsize>,
    /// Number of connections that closed before the proxy answered.
    closed: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Slow {
    /// Starts it; `after` is the proxy's delay on each of its connections.
    async fn start(after: fn(usize) -> Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let begun = Arc::new(AtomicUsize::new(0));
        let closed = Arc::new(AtomicUsize::new(0));
        let (count, left) = (Arc::clone(&begun), Arc::clone(&closed));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let after = after(count.fetch_add(1, SeqCst));
                let left = Arc::clone(&left);
                connections.spawn(async move { drop(serve(stream, after, left).await) });
            }
        });
        let host = "127.0.0.1".into();
        let kind = ProxyKind::Socks5Hostname;
        let proxy = Some(Proxy { kind, host, port, credentials: None, tls: None });
        let key = Key { proxy, ..Key::plain(0, Scheme::Http, "origin.test", 80) };
        Self { key, begun, closed, _tasks: tasks }
    }

    fn begun(&self) -> usize {
        self.begun.load(SeqCst)
    }

    /// Makes a call, and returns its result and duration.
    async fn call(&self, engine: &Engine, limits: Limits) -> (Result<(), CallError>, Duration) {
        let begin = Instant::now();
        let mut call = get(&self.key, "/");
        call.limits = limits;
        let answer = engine.call(call, |_| {}).await;
        let took = begin.elapsed();
        let whole = match answer {
            Ok(answer) => whole(answer).await.map(drop),
            Err(error) => Err(error),
        };
        (whole, took)
    }
}

async fn serve(
    mut stream: TcpStream,
    after: Duration,
    closed: Arc<AtomicUsize>,
) -> std::io::Result<()> {
    stream.read_exact(&mut [0; 3]).await?;
    tokio::select! {
        () = sleep(after) => {}
        _closed = stream.read_u8() => {
            closed.fetch_add(1, SeqCst);
            return Ok(());
        }
    }
    stream.write_all(&[5, 0]).await?;
    // Version, command, reserved byte, type and length of the name, the name, the port.
    stream.read_exact(&mut [0; 5 + "origin.test".len() + 2]).await?;
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await?;
    }
}

fn facts(error: &CallError) -> (Fate, Reason, u8) {
    (error.fate, error.reason, error.curl)
}

#[tokio::test(start_paused = true)]
async fn a_hanging_connect_blocks_no_other_call() {
    let slow = Slow::start(|number| if number == 0 { NEVER } else { Duration::ZERO }).await;
    let engine = engine();
    let limits = Limits { connect: 3 * SECOND, queue: SECOND };
    // The first caller's own attempt hangs, and another is started in parallel.
    let (answer, took) = slow.call(&engine, limits).await;
    answer.expect("an answer");
    assert!(took < limits.connect, "{took:?}");
    assert_eq!(slow.begun(), 2);
    let (answer, took) = slow.call(&engine, limits).await;
    answer.expect("an answer");
    assert!(took < SECOND && slow.begun() == 2, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_waiting_for_anothers_connect_is_declined_at_its_timeout() {
    let mut slow = Slow::start(|_| NEVER).await;
    // One connection serves all calls.
    slow.key.http = HttpVersions::Http2;
    let engine = engine();
    let limits = Limits { connect: SECOND / 2, queue: SECOND };
    let late = (Fate::Declined, Reason::Connect, 28);
    let queued = (Fate::Declined, Reason::Queue, 28);
    let second = async {
        sleep(SECOND / 10).await;
        slow.call(&engine, limits).await
    };
    let (first, second) = tokio::join!(slow.call(&engine, limits), second);
    assert_eq!(facts(&first.0.expect_err("it hangs")), late);
    assert_eq!(facts(&second.0.expect_err("it hangs")), queued);

    // For a minute callers arrive, each with a connect time-out of 30 s. A handful of connections are opened. Only
    // callers with their own attempt wait longer than the queue's time-out.
    let limits = Limits { connect: 30 * SECOND, queue: SECOND };
    let begin = Instant::now();
    let mut patient = 0;
    while begin.elapsed() < 60 * SECOND {
        let (answer, took) = slow.call(&engine, limits).await;
        let error = answer.expect_err("it hangs");
        if took > SECOND + SECOND / 10 {
            assert_eq!(facts(&error), late);
            patient += 1;
        } else {
            assert_eq!(facts(&error), queued);
        }
    }
    assert!(patient <= 3, "{patient}");
    assert!(slow.begun() <= 8, "{} connections", slow.begun());
}

#[tokio::test(start_paused = true)]
async fn a_connect_may_take_as_long_as_its_caller_waits() {
    let slow = Slow::start(|_| 34 * SECOND).await;
    let engine = engine();
    let limits = Limits { connect: 75 * SECOND, queue: SECOND };
    let (answer, took) = slow.call(&engine, limits).await;
    answer.expect("an answer");
    assert!(took >= 34 * SECOND && took < 36 * SECOND, "{took:?}");
    assert!(slow.begun() <= 4, "{} connections", slow.begun());

    // When no caller waits any more, the connection and its parallel attempts are closed.
    let slow = Slow::start(|_| NEVER).await;
    let limits = Limits { connect: 3 * SECOND, queue: SECOND };
    slow.call(&engine, limits).await.0.expect_err("it hangs");
    sleep(40 * SECOND).await;
    assert_eq!(slow.closed.load(SeqCst), slow.begun());
}

#[tokio::test]
async fn a_refusal_is_reported_at_once() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let key = Key::plain(0, Scheme::Http, "127.0.0.1", port);
    let engine = engine();
    let (calling, call) = (engine.clone(), get(&key, "/long"));
    let mut long = JoinSet::new();
    long.spawn(async move { made(&calling, call).await });
    let (mut stream, _) = within(listener.accept()).await.expect("a connection");
    within(stream.read_u8()).await.expect("a request");
    drop(listener);

    let mut refused = get(&key, "/");
    refused.limits = Limits { connect: NEVER, queue: NEVER };
    let error = made(&engine, refused).await.expect_err("the port is closed");
    assert_eq!(facts(&error), (Fate::Declined, Reason::Connect, 7));

    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.expect("it is read");
    let answer = within(long.join_next()).await.expect("one").expect("no panic");
    assert_eq!(answer.expect("an answer").text(), "ok");
}

#[tokio::test]
async fn calls_that_wait_for_their_turn_are_not_measured_by_the_connect_timeout() {
    let origin = Origin::setup()
        .tls(&certificates().origin)
        .alpn(&["http/1.1"])
        .script(|_| Reply::text("ok").delayed(SECOND / 20).after(After::Close).into())
        .start();
    let engine = Engine::new(Options { http1_connections: 4, ..Options::default() });
    let mut calls = JoinSet::new();
    // They take more than twice the time that a connect may take.
    for _ in 0..200 {
        let (engine, mut call) = (engine.clone(), get(&key(&origin), "/"));
        call.limits = Limits { connect: SECOND, queue: NEVER };
        calls.spawn(async move { made(&engine, call).await });
    }
    while let Some(answer) = within(calls.join_next()).await {
        assert_eq!(answer.expect("no panic").expect("an answer").text(), "ok");
    }
}
