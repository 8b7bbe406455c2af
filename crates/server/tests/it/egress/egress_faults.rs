//! Failures around the egress broker: full disks, too few descriptors, origins with false framing, callers that smuggle
//! requests. Each test runs the real program.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use testkit::{
    Greeting, Origin, ProcessFacts, Running, Step, Turn, certificates, eventually, routes,
};

use crate::egress::broker::Broker;
use crate::hearth::{LIMIT, Serve, Site, admin_of, command};

/// Counts the log lines that contain `part`.
fn lines(process: &Running, part: &str) -> usize {
    process.log().lines().iter().filter(|line| line.contains(part)).count()
}

/// Sends a request without reading the answer.
fn ask(broker: &Broker, request: &str) -> UnixStream {
    let mut stream = UnixStream::connect(broker.socket()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    // The broker may refuse the call before it has read the whole request.
    let _sent = stream.write_all(request.as_bytes()).is_ok();
    stream
}

/// Counts the callers that the broker is connected to. A connection has the name that its listener was bound to
/// (`/proc/net/unix`, proc(5)).
fn callers(broker: &Broker) -> usize {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    let folder = broker.folder.path().to_str().unwrap();
    sockets.lines().filter(|line| line.contains(" 03 ") && line.contains(folder)).count()
}

fn answer(mut caller: UnixStream) -> String {
    let mut bytes = Vec::new();
    let _whole = caller.read_to_end(&mut bytes).is_ok();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn an_unwritable_origins_file_fails_no_call_and_no_start() {
    let mut broker = Broker::start(&[]);
    let origin = Origin::plain(routes);
    let memory = broker.folder.path().join("egress.origins");
    std::fs::write(&memory, "0 http kept.invalid 1\n").unwrap();
    // `/dev/full` stands in for a full disk.
    std::os::unix::fs::symlink("/dev/full", broker.folder.path().join("egress.origins.new"))
        .unwrap();
    assert_eq!(broker.curl(&[], &origin.url("/bytes/3")).body.len(), 3);
    broker.process.signal(Signal::TERM);
    assert_eq!(broker.process.wait(LIMIT).code(), Some(0));
    // The last lines may still be in the pipe when the process has ended.
    eventually("the warning", LIMIT, || lines(&broker.process, "origins not remembered") == 1);
    assert_eq!(std::fs::read_to_string(&memory).unwrap(), "0 http kept.invalid 1\n");

    // If the file cannot be read or has another format, the broker starts as if there were none.
    std::fs::remove_file(&memory).unwrap();
    std::fs::create_dir(&memory).unwrap();
    let broker = Broker::start_in(broker.folder, &[]);
    assert_eq!(broker.curl(&[], &origin.url("/bytes/3")).body.len(), 3);
    assert_eq!(lines(&broker.process, "origins of the last run not read"), 1);
}

#[test]
fn a_broker_without_disk_space_for_its_token_fails_cleanly() {
    let folder = tempfile::tempdir().unwrap();
    let hearth = command();
    let mut shell = Command::new("sh");
    // No file may grow by a byte. As on a full disk, a file can be created but not written.
    shell.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""]).arg(hearth.get_program());
    shell.args(["egress", "--socket"]).arg(folder.path().join("egress.sock"));
    let output = shell.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("cannot create ") && stderr.contains("egress.token"), "{stderr}");
    assert!(stderr.contains("\"hint\":\"choose a path"), "{stderr}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn a_missing_or_unwritable_folder_is_named_with_a_hint() {
    for folder in ["/nonexistent/folder", "/proc/self"] {
        let output = command()
            .args(["egress", "--socket", &format!("{folder}/egress.sock")])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{folder}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(folder) && stderr.contains("\"hint\":\"choose a path"), "{stderr}");
    }
}

#[test]
fn a_server_serves_without_a_broker_that_has_no_disk_space() {
    let folder = tempfile::tempdir().unwrap();
    // This path is too long for a socket, but not for a file.
    let run = folder.path().join("r".repeat(100));
    std::fs::create_dir(&run).unwrap();
    let site = Site::empty()
        .with_file("public/index.php", "<?php echo json_encode(getenv('HEARTH_EGRESS'));");
    let hearth = Serve::new(site.path())
        .model("request")
        .workers(1)
        .set("HEARTH_SERVER_RUN_DIR", run.to_str().unwrap())
        .start();
    for _ in 0..3 {
        assert_eq!(hearth.get("/").json(), serde_json::json!(false));
    }
    assert_eq!(lines(&hearth.process, "no egress broker: outgoing calls are made directly"), 1);
    assert!(!run.join("egress.token").exists());
}

#[test]
fn without_descriptors_new_callers_are_rejected_and_running_calls_finish() {
    let broker = Broker::start(&[]);
    let origin = Origin::plain(routes);
    assert_eq!(broker.curl(&[], &origin.url("/bytes/3")).body.len(), 3);
    // This origin answers when the test says so.
    let slow = TcpListener::bind("127.0.0.1:0").unwrap();
    let request =
        format!("GET http://{}/ HTTP/1.1\r\nHost: hearth\r\n\r\n", slow.local_addr().unwrap());
    let running: Vec<UnixStream> = (0..4).map(|_| ask(&broker, &request)).collect();
    let taken: Vec<TcpStream> = (0..4).map(|_| slow.accept().unwrap().0).collect();

    let pid = Pid::from_raw(broker.process.pid().try_into().unwrap());
    let open_below = |limit: usize| {
        let names = std::fs::read_dir(format!("/proc/{}/fd", broker.process.pid())).unwrap();
        let numbers = names.filter_map(|name| name.unwrap().file_name().to_str()?.parse().ok());
        numbers.filter(|number: &usize| *number < limit).count()
    };
    eventually("the first caller is gone", LIMIT, || callers(&broker) == 4);
    // RLIMIT_NOFILE limits descriptor numbers: three numbers below it are free.
    let limit = (3..1 << 16).find(|limit| open_below(*limit) + 3 == *limit).unwrap();
    let maximum = getrlimit(Resource::Nofile).maximum;
    let few = Rlimit { current: Some(limit as u64), maximum };
    let before = prlimit(pid, Resource::Nofile, few).unwrap();
    // A call takes two descriptors and a silent caller one. Further callers are refused at once, although none is
    // freed.
    let mut holding = Vec::new();
    for (said, left) in [(&*request, 1), ("", 0)] {
        holding.push(ask(&broker, said));
        eventually("its descriptors are open", LIMIT, || open_below(limit) + left == limit);
    }
    for _ in 0..5 {
        let told = answer(ask(&broker, &request));
        assert!(told.contains("hearth-declined: full;"), "{told:?}");
    }
    for mut origin in taken {
        origin.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").unwrap();
    }
    for caller in running {
        assert!(answer(caller).ends_with("done"), "a running call continues");
    }
    assert_eq!(lines(&broker.process, "caller not accepted"), 1, "{}", broker.process.log().text());

    drop(holding);
    eventually("there is room again", LIMIT, || {
        broker.curl(&[], &origin.url("/bytes/4")).body.len() == 4
    });
    prlimit(pid, Resource::Nofile, before).unwrap();
    assert_eq!(broker.curl(&[], &origin.url("/bytes/5")).body.len(), 5);
}

#[test]
fn a_thousand_callers_cost_bounded_memory() {
    /// Memory of a caller in a build without optimisation: the part of a body that is kept to be sent again (64 KiB),
    /// buffers of heads, futures.
    const EACH: u64 = 96 << 10;
    const CALLERS: usize = 1000;
    let broker = Broker::start(&[]);
    let origin = Origin::tls(|_| Turn::Never);
    let request = format!(
        "POST {} HTTP/1.1\r\nHost: hearth\r\nContent-Length: 1000000\r\n\r\n{}",
        origin.url("/"),
        "x".repeat(60_000)
    );
    let warm: Vec<UnixStream> = (0..10).map(|_| ask(&broker, &request)).collect();
    eventually("the first calls have reached the origin", LIMIT, || origin.requests().len() >= 10);
    let before = ProcessFacts::of(broker.process.pid()).unwrap().resident;
    let callers: Vec<UnixStream> = (0..CALLERS).map(|_| ask(&broker, &request)).collect();
    eventually("all are connected", LIMIT, || {
        ProcessFacts::of(broker.process.pid()).unwrap().descriptors > CALLERS
    });
    std::thread::sleep(Duration::from_millis(500));
    let most = ProcessFacts::of(broker.process.pid()).unwrap().resident;
    let grown = most.saturating_sub(before);
    println!("{before} bytes of its own, {grown} more with {CALLERS} callers");
    assert!(grown < EACH * CALLERS as u64, "{before} bytes of its own have grown by {grown}");
    drop((warm, callers));
    eventually("all are closed", LIMIT, || {
        ProcessFacts::of(broker.process.pid()).unwrap().descriptors < 100
    });
}

#[test]
fn a_caller_killed_in_an_unread_upload_ends_its_call() {
    let broker = Broker::start(&[]);
    for origin in [Origin::plain(|_| Turn::Never), Origin::tls(|_| Turn::Never)] {
        let idle = ProcessFacts::of(broker.process.pid()).unwrap().descriptors;
        let mut callers: Vec<UnixStream> = (0..3)
            .map(|_| {
                let head = format!(
                    "POST {} HTTP/1.1\r\nHost: hearth\r\nContent-Length: 99999999\r\n\r\n",
                    origin.url("/")
                );
                let mut stream = ask(&broker, &head);
                stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
                // Writes until neither the origin nor the broker reads any more.
                while stream.write_all(&[b'x'; 10_000]).is_ok() {}
                stream
            })
            .collect();
        eventually("all calls have reached the origin", LIMIT, || origin.requests().len() == 3);
        callers.clear();
        eventually("nothing is left of their calls", LIMIT, || {
            let now = ProcessFacts::of(broker.process.pid()).unwrap().descriptors;
            // The HTTP/2 connection stays open when its streams end.
            now <= idle + 1
        });
    }
}

/// Starts an origin of HTTP/1.1 that answers with these bytes and closes.
fn says(bytes: &str) -> Origin {
    let bytes = bytes.as_bytes().to_vec();
    Origin::plain(move |_| {
        Turn::Steps(vec![Step::ReadBody, Step::Send(bytes.clone()), Step::Close])
    })
}

#[test]
fn wrong_lengths_never_complete_a_response() {
    let broker = Broker::start(&[]);
    // The origin declares more than it sends: curl's error 18, as without a broker. For chunked bodies it is 18 or 56,
    // depending on how they end.
    for short in [
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ] {
        let origin = says(short);
        let cut = broker.curl(&[], &origin.url("/"));
        assert!(matches!(cut.status, 18 | 56), "{short:?}: {cut:?}");
        assert_eq!(cut.text(), "half", "{short:?}");
    }
    // The origin sends more than it declares. The rest is no answer, and the next caller does not get it.
    let long = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nonlyHTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled";
    let origin = Origin::plain(move |seen| match seen.path() {
        "/long" => Turn::Steps(vec![Step::send(long), Step::Hold]),
        _ => routes(seen),
    });
    for _ in 0..5 {
        assert_eq!(broker.curl(&[], &origin.url("/long")).text(), "only");
        assert_eq!(broker.curl(&[], &origin.url("/bytes/3")).body.len(), 3);
    }
    for lie in [
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\nContent-Length: 0x2\r\n\r\nab",
    ] {
        let origin = says(lie);
        let answer = broker.curl(&[], &origin.url("/"));
        let told = answer.field("hearth-failed").unwrap_or_default();
        assert!(told.starts_with("rubbish; errno=8"), "{lie:?}: {answer:?}");
    }
    for lie in [
        "FFFFFFFFFFFFFFFFF\r\nab\r\n0\r\n\r\n",
        "-2\r\nab\r\n0\r\n\r\n",
        "xyz\r\nab\r\n",
        "2\r\nabc\r\n0\r\n\r\n",
    ] {
        let origin = says(&format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{lie}"));
        let answer = broker.curl(&[], &origin.url("/"));
        assert_ne!(
            (answer.status, answer.field("hearth-failed")),
            (0, None),
            "{lie:?}: {answer:?}"
        );
    }
}

#[test]
fn a_silent_origin_delays_only_its_caller_up_to_its_timeout() {
    let broker = Broker::start(&[]);
    let silent = Origin::setup().tls(&certificates().origin).greet(|_| Greeting::Silence).start();
    let control = format!("Hearth-Control: token=\"{}\", connect-timeout=200", broker.token());
    let stalled = broker.curl(&["--header", &control], &silent.url("/"));
    let told = stalled.field("hearth-declined").unwrap_or_default();
    assert!(told.starts_with("connect; errno=28;"), "{stalled:?}");

    let rubbish = Origin::setup()
        .tls(&certificates().origin)
        .greet(|_| Greeting::Rubbish(b"SSH-2.0-x\r\n".to_vec()))
        .start();
    let told = broker.curl(&[], &rubbish.url("/"));
    assert!(
        told.field("hearth-declined").unwrap_or_default().starts_with("tls; errno=35;"),
        "{told:?}"
    );

    let origin = Origin::plain(routes);
    let never = broker.curl(&["--max-time", "0.3"], &origin.url("/never"));
    assert_eq!(never.status, 28, "curl's own limit: {never:?}");
    eventually("its connection is closed", LIMIT, || origin.open() == 0);
    assert_eq!(broker.curl(&[], &origin.url("/bytes/3")).body.len(), 3);
}

#[test]
fn a_body_smuggles_no_second_request() {
    let broker = Broker::start(&[]);
    for origin in [Origin::plain(routes), Origin::tls(routes)] {
        let post = |path: &str, body: &str, fields: &str| {
            let url = origin.url(path);
            let head = format!(
                "POST {url} HTTP/1.1\r\nHost: hearth\r\nTransfer-Encoding: chunked\r\n{fields}\r\n"
            );
            answer(ask(&broker, &(head + body)))
        };
        // Extensions of chunks are for one hop only (RFC 9112, 7.1.1).
        let extended = post("/extended", "4;name=\"a;b\"\r\nbody\r\n0;last\r\n\r\n", "");
        assert!(extended.starts_with("HTTP/1.1 200 "), "{extended}");
        assert_eq!(origin.requests().last().unwrap().text(), "body");

        // Trailers cannot set the length, the host, or the broker's control field.
        let trailed = post(
            "/trailed",
            "4\r\nbody\r\n0\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\nHost: evil.test\r\n\
             Hearth-Control: x\r\nX-Checksum: abc\r\n\r\n",
            "Trailer: Content-Length, Transfer-Encoding, Host, Hearth-Control, X-Checksum\r\n",
        );
        assert!(trailed.starts_with("HTTP/1.1 200 "), "{trailed}");
        let seen = origin.requests().pop().unwrap();
        assert_eq!((seen.text(), seen.complete), ("body".to_owned(), true));
        assert!(origin.url("/").contains(&seen.authority), "{}", seen.authority);
        let trailers: Vec<&str> = seen.trailers.iter().map(|(name, _)| name.as_str()).collect();
        assert!(
            trailers.iter().all(|name| name.eq_ignore_ascii_case("x-checksum")),
            "{trailers:?}"
        );

        // A body with invalid framing makes the request invalid, and the bytes after it are not a request.
        for (body, told) in [
            ("FFFFFFFFFFFFFFFFF\r\nbody\r\n0\r\n\r\n", "a size beyond all bounds"),
            ("-4\r\nbody\r\n0\r\n\r\n", "a negative size"),
            ("0x4\r\nbody\r\n0\r\n\r\n", "a prefix"),
            ("4\r\nbodyGET / HTTP/1.1\r\n\r\n", "more than the chunk"),
            ("4\nbody\n0\n\n", "bare LF"),
        ] {
            let got = post("/broken", body, "");
            assert!(!got.starts_with("HTTP/1.1 200 "), "{told}: {got}");
        }
        let two = "4\r\nbody\r\n0\r\n\r\nGET http://127.0.0.1:1/smuggled HTTP/1.1\r\nHost: hearth\r\n\r\n";
        let two = post("/two", two, "");
        assert_eq!(two.matches("HTTP/1.1 ").count(), 1, "{two}");
        let seen = origin.requests();
        assert!(seen.iter().all(|seen| seen.complete != (seen.path() == "/broken")), "{seen:?}");
        let paths: Vec<&str> =
            seen.iter().map(testkit::Seen::path).filter(|path| *path != "/broken").collect();
        assert_eq!(paths, ["/extended", "/trailed", "/two"]);
    }
}

#[test]
fn waiting_calls_and_saved_handshakes_are_reported_per_origin() {
    let settings = [("HEARTH_EGRESS_CONNECTIONS", "1"), ("HEARTH_EGRESS_QUEUE_TIMEOUT", "25s")];
    let broker = Broker::start_with(&settings, &["--admin", "127.0.0.1:0"]);
    let admin = broker.process.log().wait_for("hearth: admin on http://");
    let admin = admin.rsplit('/').next().unwrap().parse().unwrap();
    let told = |line: &str| {
        let metrics = admin_of(admin, "/metrics").text();
        assert!(!metrics.is_empty());
        metrics.lines().any(|known| known == line)
    };
    let secure = Origin::tls(routes);
    for _ in 0..3 {
        assert_eq!(broker.curl(&[], &secure.url("/bytes/3")).body.len(), 3);
    }
    let name = secure.url("");
    let name = name.trim_end_matches('/');
    eventually("the saved handshakes are reported", LIMIT, || {
        told(&format!("hearth_egress_handshakes_saved_total{{origin=\"{name}\"}} 2"))
            && told(&format!("hearth_egress_handshakes_total{{origin=\"{name}\"}} 1"))
    });

    let plain = Origin::plain(|_| Turn::Never);
    let name = plain.url("");
    let name = name.trim_end_matches('/');
    let request = format!("GET {} HTTP/1.1\r\nHost: hearth\r\n\r\n", plain.url("/"));
    let callers: Vec<UnixStream> = (0..3).map(|_| ask(&broker, &request)).collect();
    eventually("two wait for the one connection", LIMIT, || {
        told(&format!("hearth_egress_waiting{{origin=\"{name}\"}} 2"))
            && told(&format!("hearth_egress_connections{{origin=\"{name}\"}} 1"))
            && told("hearth_egress_callers 3")
    });
    drop(callers);
    eventually("no caller is waiting", LIMIT, || {
        told(&format!("hearth_egress_waiting{{origin=\"{name}\"}} 0"))
            && told("hearth_egress_callers 0")
    });
}
