//! Clients that read slowly or not at all. They hold no worker that has finished, cost bounded memory, and other
//! clients are answered.

use std::fs;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{self, SendRequest};
use http::Request;
use testkit::{Client, eventually, head};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::hearth::{Hearth, LIMIT, Serve, Site, of_tier};

/// Models with resident workers, one that starts a process for each request, and one that runs PHP's own program.
const SOME_MODELS: [&str; 5] = ["worker", "request", "snapshot", "prespawn", "fpm"];

/// How long a request waits for a worker: less than the time-outs of these tests' clients, and longer than any step of
/// the tests.
const BACKLOG_TIMEOUT: &str = "20s";

fn serve(model: &str, workers: usize) -> (Site, Serve) {
    let (site, path) = Site::of_scripts_in(model);
    let serve = Serve::new(path)
        .model(model)
        .workers(workers)
        .set("HEARTH_PHP_BACKLOG_TIMEOUT", BACKLOG_TIMEOUT)
        .set("HEARTH_PHP_BACKLOG_TARGET", "off");
    (site, serve)
}

/// An HTTP/2 client that grants no flow-control credit for answers until it is asked to.
struct WithoutCredit {
    requests: SendRequest<Bytes>,
    read: Option<oneshot::Sender<()>>,
    _connection: JoinSet<()>,
}

impl WithoutCredit {
    async fn to(hearth: &Hearth) -> Self {
        let stream = TcpStream::connect(hearth.address).await.unwrap();
        let handshake = client::Builder::new().initial_window_size(0).handshake(stream).await;
        let (requests, mut connection) = handshake.unwrap();
        let (read, told) = oneshot::channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            tokio::select! {
                _ended = &mut connection => return,
                _told = told => {}
            }
            connection.set_initial_window_size(1 << 20).unwrap();
            connection.set_target_window_size(1 << 20);
            drop(connection.await);
        });
        Self { requests, read: Some(read), _connection: tasks }
    }

    async fn get(&mut self, path: &str) -> RecvStream {
        let request = Request::get(format!("http://localhost{path}")).body(()).unwrap();
        let (response, _) = self.requests.send_request(request, true).unwrap();
        let response =
            tokio::time::timeout(LIMIT, response).await.expect("heads need no flow-control credit");
        let response = response.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response.into_body()
    }

    fn read(&mut self) {
        self.read.take().unwrap().send(()).unwrap();
    }
}

async fn rest(body: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut bytes = Vec::new();
    while let Some(piece) = tokio::time::timeout(LIMIT, body.data()).await.unwrap() {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        bytes.extend(piece);
    }
    Ok(bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_streams_without_credit_hold_no_worker() {
    for model in SOME_MODELS {
        println!("model {model}");
        let (_site, serve) = serve(model, 2);
        let hearth = serve.start();
        let mut client = WithoutCredit::to(&hearth).await;
        let mut bodies = Vec::new();
        for _ in 0..20 {
            bodies.push(client.get("/large.php?size=20000").await);
        }
        tokio::task::block_in_place(|| {
            assert_eq!(hearth.get("/hello.php?name=other").text(), "hello other\n", "{model}");
            eventually("every worker is idle although no client has read", LIMIT, || {
                is_idle(&hearth, 2)
            });
        });
        client.read();
        for body in &mut bodies {
            assert_eq!(rest(body).await.unwrap().len(), 20_000, "{model}");
        }
    }
}

/// Returns whether this many workers wait for requests.
fn is_idle(hearth: &Hearth, count: usize) -> bool {
    let status = hearth.status();
    let workers = status["pool"]["workers"].as_array().unwrap();
    workers.iter().filter(|worker| worker["state"] == "idle").count() >= count
}

fn never_reading(hearth: &Hearth, target: &str) -> Client {
    let mut client = hearth.connect();
    client.send(head("GET", target, &[], 0)).unwrap();
    client
}

#[test]
fn unread_large_responses_hold_no_worker_and_arrive_whole() {
    const SIZE: usize = 10_000_000;
    for model in SOME_MODELS {
        println!("model {model}");
        let (_site, serve) = serve(model, 2);
        let hearth = serve.start();
        let target = format!("/large.php?size={SIZE}");
        let clients: Vec<Client> = (0..6).map(|_| never_reading(&hearth, &target)).collect();
        assert_eq!(hearth.get("/hello.php?name=other").text(), "hello other\n", "{model}");
        eventually("every worker is idle although no client has read", LIMIT, || {
            is_idle(&hearth, 2)
        });
        for mut client in clients {
            let answer = client.answer_to("GET").unwrap();
            assert_eq!(answer.status, 200, "{model}");
            assert_eq!(answer.body.len(), SIZE, "{model}");
        }
    }
}

#[test]
fn many_unread_responses_use_bounded_memory_and_unlinked_files() {
    let buffers = tempfile::tempdir().unwrap();
    let (_site, serve) = serve("request", 4);
    let hearth = serve
        .set("HEARTH_HTTP_BUFFER_DIR", buffers.path().to_str().unwrap())
        .set("HEARTH_HTTP_BUFFER_MEMORY", "16MiB")
        .start();
    let before = resident(hearth.process.pid());
    let clients: Vec<Client> =
        (0..25).map(|_| never_reading(&hearth, "/large.php?size=10000000")).collect();
    eventually("all were answered", LIMIT, || {
        let status = hearth.status();
        status["pool"]["requests"] == 25 && status["pool"]["backlog"] == 0 && is_idle(&hearth, 4)
    });
    let metric = |name: &str| {
        let text = hearth.admin("/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse::<f64>().unwrap()
    };
    assert!(metric("hearth_spool_file_bytes") > 100e6, "250 MB less what sockets hold");
    assert!(metric("hearth_spool_memory_bytes") < 40e6);
    assert!((metric("hearth_answers_in_files_total") - 25.0).abs() < 0.5);
    let grown = resident(hearth.process.pid()).saturating_sub(before);
    assert!(grown < 150 << 20, "{grown} bytes more in memory");
    assert_eq!(fs::read_dir(buffers.path()).unwrap().count(), 0);
    drop(clients);
    eventually("all of it is released", LIMIT, || {
        metric("hearth_spool_file_bytes") == 0.0 && metric("hearth_spool_memory_bytes") == 0.0
    });
}

/// Returns the resident memory of a process, in bytes.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_endless_streams_hold_only_a_share_of_the_workers() {
    for model in of_tier(["request", "snapshot", "fpm"]) {
        println!("model {model}");
        let (_site, serve) = serve(model, 4);
        let hearth = serve.start();
        let mut client = WithoutCredit::to(&hearth).await;
        let mut bodies = Vec::new();
        for _ in 0..3 {
            bodies.push(client.get("/streaming.php?chunks=1000000&size=2000&pause=20000").await);
        }
        tokio::task::block_in_place(|| {
            eventually("two of three were cut", LIMIT, || is_idle(&hearth, 3));
            let status = hearth.status();
            let workers = status["pool"]["workers"].as_array().unwrap();
            let busy = workers.iter().filter(|worker| worker["state"] == "busy").count();
            assert_eq!(busy, 1, "{model}: one is within the bound");
        });
        client.read();
        assert!(rest(&mut bodies[0]).await.unwrap_err().is_reset(), "{model}");
        let mut last = bodies.pop().unwrap();
        let piece = tokio::time::timeout(LIMIT, last.data()).await.unwrap();
        assert!(piece.unwrap().unwrap().starts_with(b"chunk 1\n"), "{model}");
    }
}

#[tokio::test]
async fn flushed_output_arrives_piece_by_piece_over_http2() {
    let site = Site::empty().with_file(
        "public/index.php",
        "<?php while (ob_get_level()) { ob_end_flush(); }\n\
         echo 'first'; flush();\n\
         while (!is_file($_GET['file'])) { usleep(5000); clearstatcache(); }\n\
         echo 'second';",
    );
    let hearth = Hearth::request(&site);
    let stream = TcpStream::connect(hearth.address).await.unwrap();
    let (mut requests, connection) = client::handshake(stream).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(connection.await) });
    let file = site.path().join("go");
    let uri = format!("http://localhost/?file={}", file.display());
    let (response, _) = requests.send_request(Request::get(uri).body(()).unwrap(), true).unwrap();
    let mut body = tokio::time::timeout(LIMIT, response).await.unwrap().unwrap().into_body();
    let first = tokio::time::timeout(LIMIT, body.data()).await.unwrap();
    assert_eq!(first.unwrap().unwrap(), "first");
    fs::write(&file, "").unwrap();
    assert_eq!(rest(&mut body).await.unwrap(), b"second");
}
