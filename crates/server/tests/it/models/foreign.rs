//! The models that run PHP's own programs: php-fpm, `php -S` and `php-cgi` keep the promises of every other model.

mod processes;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::{Client, ProcessFacts, eventually, head};

use crate::hearth::{Hearth, LIMIT, OverOnDrop, Serve, Site, assert_gone, of_tier, signal};

const MODELS: [&str; 3] = ["fpm", "builtin", "cgi"];

fn serve(site: &Site, model: &str) -> Serve {
    Serve::new(site.path()).model(model)
}

/// Starts a server with one worker.
fn one(site: &Site, model: &str) -> Hearth {
    serve(site, model).workers(1).start()
}

/// Writes a script that answers when a file exists, and returns the file and the script's target.
fn gate(site: &Site) -> (std::path::PathBuf, String) {
    site.write(
        "public/gate.php",
        "<?php while (ob_get_level()) { ob_end_flush(); } echo 'waiting '; flush();\n\
         while (!file_exists($_GET['gate'])) { usleep(1000); clearstatcache(); } echo 'open';",
    );
    let gate = site.path().join("gate");
    let target = format!("/gate.php?gate={}", gate.display());
    (gate, target)
}

#[test]
fn foreign_models_deliver_the_scripts_response() {
    let site = Site::of_scripts();
    for model in of_tier(MODELS) {
        let hearth = one(&site, model);
        assert_eq!(hearth.get("/hello.php?name=Ada").text(), "hello Ada\n", "{model}");
        assert_eq!(hearth.get("/no/such/file").text(), "front controller", "{model}");
        let line = |case: &str| hearth.get(&format!("/headers.php?case={case}")).status_line;
        assert_eq!(line("reason"), "HTTP/1.1 418 I'm a teapot", "{model}");
        assert_eq!(line("none"), "HTTP/1.1 204 No Content", "{model}");
        assert_eq!(line("not-modified"), "HTTP/1.1 304 Not Modified", "{model}");
        assert_eq!(line("redirect"), "HTTP/1.1 302 Found", "{model}");
        let answer = hearth.get("/headers.php?case=replace");
        assert_eq!(answer.all("x-many"), ["1", "2"], "{model}");
        assert_eq!(answer.all("set-cookie"), ["a=1", "b=2; HttpOnly; SameSite=Lax"], "{model}");
        assert_eq!(answer.field("content-type"), Some("text/html; charset=UTF-8"), "{model}");
        assert_eq!(answer.all("connection"), [] as [&str; 0], "{model}: that of php -S is its own");
        assert_eq!(hearth.get("/headers.php?case=no-type").field("content-type"), None, "{model}");
        let answer = hearth.connect().request("HEAD", "/hello.php", &[], b"").unwrap();
        assert_eq!((answer.status, answer.body.len()), (200, 0), "{model}");
        for (path, status) in [("/exit.php", 200), ("/fatal.php", 500), ("/exception.php", 500)] {
            assert_eq!(hearth.get(path).status, status, "{model} {path}");
        }
        let large = hearth.get("/large.php?size=10000000");
        assert_eq!(large.body.len(), 10_000_000 / 32 * 32, "{model}");
        let piece = large.body[..32].to_vec();
        assert!(large.body.chunks(32).all(|chunk| chunk == piece), "{model}");
        let pool = &hearth.status()["pool"];
        assert_eq!((&pool["crashes"], &pool["backlog"]), (&0.into(), &0.into()), "{model}");
        assert!(pool["php_version"].as_str().unwrap().starts_with("8."), "{model}: {pool}");
    }
}

#[test]
fn script_output_on_stderr_is_logged_with_its_request() {
    let site = Site::of_scripts().with_file(
        "public/words.php",
        "<?php error_log('through the log'); file_put_contents('php://stderr', \"straight out\\n\"); echo 'done';",
    );
    for model in of_tier(MODELS) {
        let hearth = one(&site, model);
        let answer = hearth.get("/words.php");
        assert_eq!(answer.text(), "done", "{model}");
        for words in ["through the log", "straight out"] {
            let line = hearth.log_line(words);
            assert_eq!(line["target"], "php", "{model}: {line}");
            let text = line.to_string();
            assert!(text.contains(answer.field("x-request-id").unwrap()), "{model}: {text}");
        }
    }
}

#[test]
fn bodies_arrive_whole_with_and_without_a_length() {
    let site = Site::of_scripts();
    let body: Vec<u8> =
        (0..5_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for model in of_tier(MODELS) {
        let hearth = one(&site, model);
        let fields = [("Content-Type", "application/octet-stream")];
        let whole = hearth.post("/input.php", &fields, &body).json();
        assert_eq!(whole["length"], body.len(), "{model}");
        // A body larger than the part kept in memory, and smaller ones.
        for length in [5_000_000, 1000, 0] {
            let mut client = hearth.connect();
            let fields = [fields[0], ("Transfer-Encoding", "chunked")];
            client.send(head("POST", "/input.php", &fields, 0)).unwrap();
            for chunk in body[..length].chunks(700_000) {
                client.send(format!("{:x}\r\n", chunk.len())).unwrap();
                client.send(chunk).unwrap();
                client.send("\r\n").unwrap();
            }
            client.send("0\r\n\r\n").unwrap();
            let chunked = client.answer_to("POST").unwrap().json();
            assert_eq!(chunked["length"], length, "{model}");
            if length == body.len() {
                assert_eq!(chunked["sha256"], whole["sha256"], "{model}: the same bytes");
            }
        }
        let form = [("Content-Type", "application/x-www-form-urlencoded")];
        assert_eq!(hearth.post("/input.php", &form, b"a=1&b=2").json()["post"], 2, "{model}");
        let skipped = hearth.post("/input.php?skip", &fields, &body).json();
        assert_eq!(skipped["skipped"], true, "{model}: an answer before the body is read");
        let upload = [("Content-Type", "multipart/form-data; boundary=b0undary")];
        let file = b"--b0undary\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\r\nwords\r\n--b0undary--\r\n";
        let answer = hearth.post("/upload.php", &upload, file).json();
        let got = &answer["files"][0];
        assert_eq!(
            (&got["name"], &got["size"], &got["error"]),
            (&"a.txt".into(), &5.into(), &0.into()),
            "{model}"
        );
        assert_eq!(hearth.get("/hello.php").text(), "hello world\n", "{model}");
    }
}

#[test]
fn flushed_output_reaches_the_client_immediately() {
    for model in of_tier(MODELS) {
        let site = Site::of_scripts();
        let hearth = one(&site, model);
        let (gate, target) = gate(&site);
        let mut client = hearth.connect();
        client.send(head("GET", &target, &[], 0)).unwrap();
        assert_eq!(client.head().unwrap().status, 200, "{model}");
        assert_eq!(client.chunk().unwrap().unwrap(), b"waiting ", "{model}: while the script runs");
        std::fs::write(&gate, "").unwrap();
        assert_eq!(client.chunk().unwrap().unwrap(), b"open", "{model}");
        assert_eq!(client.chunk().unwrap(), None, "{model}");
    }
}

#[test]
fn a_slow_reader_throttles_php_and_not_server_memory() {
    let site = Site::of_scripts().with_file(
        "public/much.php",
        "<?php while (ob_get_level()) { ob_end_flush(); } for ($i = 0; $i < 100; $i++) { echo str_repeat('x', 1000000); }",
    );
    for model in of_tier(MODELS) {
        // The script's 100 MB, and php-fpm's copy of them in PHP 8.4.
        let hearth = serve(&site, model).workers(1).ini("memory_limit", "512M").start();
        assert_eq!(hearth.get("/hello.php").status, 200);
        let before = ProcessFacts::of(hearth.process.pid()).unwrap().resident;
        let mut client = hearth.connect();
        client.send(head("GET", "/much.php", &[], 0)).unwrap();
        assert_eq!(client.head().unwrap().status, 200, "{model}");
        std::thread::sleep(Duration::from_millis(500));
        let now = ProcessFacts::of(hearth.process.pid()).unwrap().resident;
        assert!(now < before + (10 << 20), "{model}: {before} then {now} bytes");
        let mut got = 0;
        while let Some(chunk) = client.chunk().unwrap() {
            got += chunk.len();
        }
        assert_eq!(got, 100_000_000, "{model}");
    }
}

#[test]
fn a_crash_becomes_502_and_the_next_request_gets_another_process() {
    for model in of_tier(MODELS) {
        let site = Site::of_scripts().with_file(
            "public/half.php",
            "<?php while (ob_get_level()) { ob_end_flush(); } echo 'before'; flush();\n\
             while (!file_exists($_GET['gate'])) { usleep(1000); clearstatcache(); } posix_kill(getmypid(), 9); sleep(10);",
        );
        let gate = site.path().join("gate");
        let target = format!("/half.php?gate={}", gate.display());
        let hearth = one(&site, model);
        let first = hearth.get("/pid.php").text();
        assert_eq!(hearth.get("/crash.php?signal=11").status, 502, "{model}");
        let line = hearth.log_line("signal 11 (SIGSEGV)");
        assert_eq!(line["level"], "ERROR", "{model}: {line}");
        let second = hearth.get("/pid.php");
        assert_eq!(second.status, 200, "{model}");
        assert_ne!(second.text(), first, "{model}");
        let mut client = hearth.connect();
        client.send(head("GET", &target, &[], 0)).unwrap();
        assert_eq!(client.head().unwrap().status, 200, "{model}");
        assert_eq!(client.chunk().unwrap().unwrap(), b"before", "{model}");
        std::fs::write(&gate, "").unwrap();
        assert!(client.chunk().is_err(), "{model}: the client can tell that it is not whole");
        assert_eq!(hearth.get("/hello.php").status, 200, "{model}");
        eventually("both are counted", LIMIT, || hearth.status()["pool"]["crashes"] == 2);
    }
}

#[test]
fn a_timed_out_request_becomes_504_and_its_process_ends() {
    let site = Site::of_scripts().with_file(
        "public/stuck.php",
        "<?php file_put_contents($_GET['file'], getmypid()); ignore_user_abort(true); set_time_limit(0); while (true) { }",
    );
    let file = site.path().join("pid");
    let target = format!("/stuck.php?file={}", file.display());
    for model in of_tier(MODELS) {
        let hearth = serve(&site, model).args(&["--request-timeout", "1500ms"]).workers(1).start();
        // These requests have the same limit: on a busy machine PHP may exceed it.
        let answers = || {
            eventually("PHP answers again", LIMIT, || {
                hearth.get("/hello.php").text() == "hello world\n"
            });
        };
        for busy in [&*target, "/sleep.php?ms=60000"] {
            let began = Instant::now();
            assert_eq!(hearth.get(busy).status, 504, "{model} {busy}");
            let took = began.elapsed();
            assert!(took >= Duration::from_millis(1500) && took < LIMIT, "{model}: {took:?}");
            answers();
        }
        let stuck = std::fs::read_to_string(&file).unwrap().parse().unwrap();
        eventually("the stuck process is gone", LIMIT, || ProcessFacts::of(stuck).is_none());
        // The limit also applies to a script whose client has disconnected.
        std::fs::remove_file(&file).unwrap();
        let mut client = hearth.connect();
        client.send(head("GET", &target, &[], 0)).unwrap();
        eventually("the script runs", LIMIT, || {
            std::fs::read_to_string(&file).is_ok_and(|pid| !pid.is_empty())
        });
        drop(client);
        answers();
        let stuck = std::fs::read_to_string(&file).unwrap().parse().unwrap();
        eventually("that one has ended, too", LIMIT, || ProcessFacts::of(stuck).is_none());
        let pool = &hearth.status()["pool"];
        let timeouts = if model == "cgi" { 2 } else { 3 };
        assert!(pool["timeouts"].as_u64().unwrap() >= timeouts, "{model}: {pool}");
        assert_eq!(pool["crashes"], 0, "{model}");
        hearth.log_line("time limit");
    }
}

#[test]
fn a_disconnected_client_ends_its_script_and_costs_no_worker() {
    let site = Site::of_scripts().with_file(
        "public/endless.php",
        "<?php register_shutdown_function(function () { file_put_contents($_GET['file'], connection_aborted()); });\n\
         while (ob_get_level()) { ob_end_flush(); } while (true) { echo str_repeat('x', 10000); flush(); }",
    );
    for model in of_tier(MODELS) {
        let hearth = one(&site, model);
        let file = site.path().join(model);
        for _ in 0..3 {
            let mut client = hearth.connect();
            client
                .send(head("GET", &format!("/endless.php?file={}", file.display()), &[], 0))
                .unwrap();
            assert_eq!(client.head().unwrap().status, 200, "{model}");
            assert!(client.chunk().unwrap().is_some(), "{model}");
            drop(client);
            assert_eq!(hearth.get("/hello.php").text(), "hello world\n", "{model}");
        }
        if model != "cgi" {
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "1", "{model}: PHP knows it");
        }
        let pool = &hearth.status()["pool"];
        assert_eq!((&pool["crashes"], &pool["timeouts"]), (&0.into(), &0.into()), "{model}");
    }
}

#[test]
fn a_worker_busy_after_its_response_gets_no_request() {
    let site = Site::of_scripts().with_file(
        "public/finish.php",
        "<?php echo 'answered'; fastcgi_finish_request();\n\
         while (!file_exists($_GET['gate'])) { usleep(1000); clearstatcache(); } touch($_GET['file']);",
    );
    let mut hearth = serve(&site, "fpm").workers(2).start();
    hearth.wait_idle(2);
    let ask = |name: &str| {
        let [gate, file] = ["gate of ", ""].map(|of| site.path().join(format!("{of}{name}")));
        let target = format!("/finish.php?gate={}&file={}", gate.display(), file.display());
        assert_eq!(hearth.get(&target.replace(' ', "%20")).text(), "answered");
        (gate, file)
    };
    let (gate, file) = ask("first");
    for _ in 0..20 {
        assert_eq!(hearth.get("/hello.php").text(), "hello world\n");
    }
    assert!(!file.exists(), "the other one has served");
    std::fs::write(gate, "").unwrap();
    eventually("the rest of the script", LIMIT, || file.exists());
    hearth.wait_idle(2);
    let (gate, file) = ask("last");
    hearth.process.signal(Signal::TERM);
    hearth.log_line("draining");
    assert!(!file.exists());
    std::fs::write(gate, "").unwrap();
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0));
    assert!(file.exists(), "a drain lets it end");
}

#[test]
fn thousands_of_foreign_requests_leave_no_residue() {
    const REQUESTS: usize = 2_000;
    const WARM: usize = 600;
    let site = Site::empty().with_file(
        "public/index.php",
        "<?php header('X-N: ' . $_GET['q']); echo $_GET['q'], ' ', $_POST['n'];",
    );
    for model in of_tier(MODELS) {
        let hearth = serve(&site, model).args(&["--log-level", "warn"]).workers(1).start();
        let form = [("Content-Type", "application/x-www-form-urlencoded"), ("Cookie", "a=1")];
        let mut client = hearth.connect();
        let mut ask = |from: usize, to: usize| {
            for n in from..to {
                let body = format!("n={n}&text={}", "x".repeat(n % 50));
                let answer = client.request("POST", &format!("/?q={n}"), &form, body.as_bytes());
                let answer = answer.unwrap_or_else(|error| panic!("{model}: request {n}: {error}"));
                assert_eq!((answer.status, answer.text()), (200, format!("{n} {n}")), "{model}");
            }
        };
        // A request takes a hundred times as long with php-cgi.
        let (warm, end) = if model == "cgi" { (50, 200) } else { (WARM, REQUESTS) };
        let facts = || ProcessFacts::of(hearth.process.pid()).unwrap();
        ask(0, warm);
        let (before, pids) = (facts(), hearth.worker_pids());
        ask(warm, end);
        let after = facts();
        // The pipes and sockets of the last process that ended may still be open.
        eventually("no descriptor is left", LIMIT, || facts().descriptors <= before.descriptors);
        assert!(
            after.resident <= before.resident + (1 << 20),
            "{model}: {before:?} then {after:?}"
        );
        if model != "cgi" {
            assert_eq!(hearth.worker_pids(), pids, "{model}: one process has answered them all");
        }
        assert_eq!(hearth.status()["pool"]["requests"], end, "{model}");
    }
}
