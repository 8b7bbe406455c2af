//! Many clients that send nothing, or almost nothing. Others are served at the same time, PHP keeps running, and the
//! server frees what they used.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit, setrlimit};
use testkit::{ProcessFacts, eventually};

use crate::hearth::{Hearth, LIMIT, Serve, Site, signal};

/// Connects from another address of this machine, and sends only `says`.
fn client(hearth: &Hearth, says: &str) -> TcpStream {
    // Servers that other tests start at the same time must not inherit it.
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
    connect(&socket, &hearth.address).unwrap();
    let mut stream = TcpStream::from(socket);
    // The server may have refused the connection.
    let _sent = stream.write_all(says.as_bytes());
    stream
}

#[test]
fn with_few_descriptors_idle_clients_block_no_worker_and_no_client() {
    let site = Site::empty().with_file("public/index.php", "<?php echo getmypid();");
    site.write("public/large.bin", &"x".repeat(16 << 20));
    let limited = ["sh", "-c", "ulimit -n 256; exec \"$0\" \"$@\""];
    let serve = Serve::new(site.path()).model("request").workers(2);
    let hearth = serve.through(&limited, &[]).start();
    let said = hearth.log_line("fewer connections than `http.connection_limit`");
    assert_eq!(said["open_files"], 256, "{said}");
    let places = said["connections"].as_u64().unwrap();
    assert_eq!(hearth.status()["clients"]["limit"], places);
    let mut crowd = Vec::new();
    for number in 0..300 {
        crowd.push(client(
            &hearth,
            match number % 6 {
                // The file stays open while the client reads nothing.
                0 => "GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n",
                1 => "GET / HTTP/1.1\r\nHos",
                2 => "GET /large.bin HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nRange: bytes=0-9\r\n\r\n",
                _ => "",
            },
        ));
    }
    for _ in 0..3 {
        let before = hearth.worker_pids();
        for worker in &before {
            signal(*worker, Signal::KILL);
        }
        eventually("they are replaced", LIMIT, || {
            let now = hearth.worker_pids();
            now.len() == 2 && now.iter().all(|worker| !before.contains(worker))
        });
        for _ in 0..5 {
            let answer = hearth.get("/");
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    }
    let clients = &hearth.status()["clients"];
    let applied = |limit: &str| clients["limited"][limit].as_u64().unwrap();
    assert!(applied("idle") + applied("share") > 0, "{clients}");
    let log = hearth.log().text();
    assert!(!log.contains("could not be forked") && !log.contains("accept fails"), "{log}");
    drop(crowd);
}

#[test]
fn a_worker_is_forked_once_descriptors_are_free() {
    let site = Site::empty().with_file("public/index.php", "<?php echo 'there';");
    let hearth = Hearth::request(&site);
    let worker = hearth.worker_pid();
    let server = Pid::from_raw(hearth.process.pid().try_into().unwrap());
    // The limit is below the number of open descriptors, so no more can be opened.
    let maximum = getrlimit(Resource::Nofile).maximum;
    let few = Rlimit { current: Some(8), maximum };
    let before = prlimit(server, Resource::Nofile, few).unwrap();
    signal(worker, Signal::KILL);
    let said = hearth.log_line("worker could not be forked");
    assert!(said["error"].as_str().unwrap().contains("os error 24"), "{said}");
    prlimit(server, Resource::Nofile, before).unwrap();
    eventually("another one answers", LIMIT, || hearth.get("/").text() == "there");
    assert_ne!(hearth.worker_pid(), worker);
}

#[test]
fn memory_of_large_heads_is_freed_after_disconnection() {
    const CLIENTS: usize = 2_000;
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let site = Site::empty()
        .with_file("public/index.php", "<?php echo 'there';")
        .with_file("public/app.css", "body{}");
    let hearth = Serve::new(site.path())
        .model("request")
        .workers(1)
        .set("HEARTH_HTTP_HEADER_TIMEOUT", "10m")
        .start();
    assert_eq!(hearth.get("/app.css").status, 200);
    let resident = || ProcessFacts::of(hearth.process.pid()).unwrap().resident >> 20;
    let before = resident();
    let head = format!("GET /app.css HTTP/1.1\r\nHost: a\r\nX-Long: {}", "y".repeat(60 << 10));
    let mut crowd: Vec<TcpStream> = (0..CLIENTS).map(|_| client(&hearth, &head)).collect();
    eventually("all of it has arrived", LIMIT, || {
        hearth.status()["clients"]["unfinished"] == CLIENTS
            && resident() > before + ((CLIENTS as u64 * 50) >> 10)
    });
    // Allocations that live longer lie between freed ones.
    for stream in &mut crowd {
        stream.write_all(b"\r\n\r\n").unwrap();
    }
    eventually("all are answered", LIMIT, || hearth.status()["clients"]["idle"] == CLIENTS);
    drop(crowd);
    eventually("the memory is given back", Duration::from_mins(1), || resident() < before + 24);
}
