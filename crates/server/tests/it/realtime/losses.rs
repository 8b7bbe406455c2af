//! Workers that crash, hang, violate the protocol or are killed: every request gets exactly one answer, and the pool is
//! complete again afterwards.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::{Answer, Client, ProcessFacts, eventually, fake_worker, head};

use crate::hearth::{
    Hearth, LIMIT, OverOnDrop, Serve, Site, in_each_model, is_resident, models, signal, whole_line,
};

#[test]
fn a_crash_becomes_502_and_the_worker_is_replaced() {
    for (model, _site, hearth) in in_each_model() {
        let first = hearth.get("/pid.php").text();
        let answer = hearth.get("/crash.php?signal=11");
        assert_eq!(answer.status, 502, "{model}");
        let id = answer.field("x-request-id").unwrap();
        assert!(answer.text().contains(id), "the page names its request");
        let line = hearth.log_line("signal 11 (SIGSEGV)");
        assert_eq!(line["level"], "ERROR", "{line}");
        let second = hearth.get("/pid.php");
        assert_eq!(second.status, 200, "{model}");
        assert_ne!(second.text(), first, "{model}");
        hearth.wait_idle(1);
        assert_eq!(hearth.status()["pool"]["crashes"], 1, "{model}");
    }
}

#[test]
fn a_crash_cuts_a_started_response() {
    let site = Site::of_scripts();
    let hearth = Hearth::request(&site);
    let mut client = hearth.connect();
    client.send(head("GET", "/crash.php?after=output", &[], 0)).unwrap();
    assert_eq!(client.head().unwrap().status, 200);
    assert_eq!(client.chunk().unwrap().unwrap(), b"before");
    assert!(client.chunk().is_err(), "no last chunk: the client can tell that it is not whole");
    assert_eq!(hearth.get("/hello.php").status, 200);
}

#[test]
fn a_worker_that_exits_while_idle_is_replaced() {
    let site = Site::of_scripts();
    let hearth = Hearth::request(&site);
    for _ in 0..3 {
        let pid = hearth.worker_pid();
        signal(pid, Signal::KILL);
        eventually("it is gone", LIMIT, || ProcessFacts::of(pid).is_none());
        assert_eq!(hearth.get("/hello.php").status, 200);
        hearth.wait_idle(1);
        assert_ne!(hearth.worker_pid(), pid);
    }
}

#[test]
fn a_request_to_a_killed_idle_worker_is_retried_with_its_body() {
    let site = Site::of_scripts()
        .with_file("public/echo.php", "<?php echo file_get_contents('php://input');");
    let hearth = Hearth::request(&site);
    for length in [1, 10_000, 1_000_000] {
        hearth.wait_idle(1);
        let (zygote, body) = (hearth.zygote_pid(), vec![b'x'; length]);
        let stat = format!("/proc/{}/stat", hearth.worker_pid());
        // A stopped zygote does not report that its worker has ended.
        signal(zygote, Signal::STOP);
        signal(hearth.worker_pid(), Signal::KILL);
        eventually("it is gone", LIMIT, || {
            std::fs::read_to_string(&stat).unwrap().contains(") Z ")
        });
        std::thread::scope(|scope| {
            let answer = scope.spawn(|| hearth.post("/echo.php", &[], &body));
            eventually("it waits for another worker", LIMIT, || {
                answer.is_finished() || hearth.status()["pool"]["backlog"] == 1
            });
            signal(zygote, Signal::CONT);
            let answer = answer.join().unwrap();
            assert_eq!(answer.status, 200, "{length}: {}", answer.text());
            assert!(answer.body == body, "{length}: {} came back", answer.body.len());
        });
    }
}

#[test]
fn a_timed_out_request_becomes_504_and_its_worker_is_killed() {
    for model in &models() {
        let (_site, path) = Site::of_scripts_in(model);
        let hearth = Serve::new(path)
            .args(&["--model", model, "--request-timeout", "500ms"])
            .workers(1)
            .start();
        for busy in ["/timeout.php?forever", "/sleep.php?ms=60000"] {
            let pid = hearth.worker_pid();
            let began = Instant::now();
            assert_eq!(hearth.get(busy).status, 504, "{model} {busy}");
            let took = began.elapsed();
            assert!(took >= Duration::from_millis(500) && took < LIMIT, "{took:?}");
            eventually("the stuck worker is gone", LIMIT, || ProcessFacts::of(pid).is_none());
            // This request has the same limit: on a busy machine a worker may exceed it.
            eventually("the next one answers", LIMIT, || hearth.get("/hello.php").status == 200);
            hearth.wait_idle(1);
        }
        assert!(hearth.status()["pool"]["timeouts"].as_u64().unwrap() >= 2, "{model}");
        hearth.log_line("time limit");
    }
}

/// `pcntl_exec()`, which this machine's embedded PHP may lack, makes the same system call as this FFI code.
#[test]
fn a_worker_that_calls_exec_is_replaced_at_once() {
    const SCRIPT: &str = "<?php file_put_contents($_GET['pid'], getmypid() . \"\\n\");\n\
        $c = FFI::cdef('int execl(const char *, const char *, const char *, void *);');\n\
        $c->execl('/bin/sleep', 'sleep', '1000', null);";
    for model in &models() {
        let (site, path) = Site::of_scripts_in(model);
        site.write("public/exec.php", SCRIPT);
        let hearth = Serve::new(path).model(model).ini("ffi.enable", "1").workers(1).start();
        let file = site.path().join("pid");
        let answer = hearth.get(&format!("/exec.php?pid={}", file.display()));
        assert_eq!(answer.status, 502, "{model}: {}", answer.text());
        let pid: u32 = whole_line(&file).trim().parse().unwrap();
        assert_eq!(hearth.get("/hello.php").status, 200, "{model}");
        eventually("the program is gone", LIMIT, || ProcessFacts::of(pid).is_none());
        hearth.wait_idle(1);
        assert_eq!(hearth.status()["pool"]["crashes"], 1, "{model}");
        assert!(hearth.stop().success(), "{model}");
    }
}

/// A child that PHP code forks does not hide the worker's end, and does not end with the worker or the server.
#[test]
fn an_orphaned_child_delays_no_response_and_no_exit() {
    const SCRIPT: &str = "<?php if (!function_exists('pcntl_fork')) { exit('no'); }\n\
        if (pcntl_fork() === 0) {\n\
            file_put_contents($_GET['folder'] . '/' . getmypid(), '');\n\
            while (!file_exists($_GET['folder'] . '/gate')) { usleep(1000); clearstatcache(); }\n\
            posix_kill(getmypid(), 9);\n\
        }\n\
        $_GET['then'] === 'die' && posix_kill(getmypid(), 9);\n\
        while (true) { usleep(100_000); }";
    for model in &models() {
        let (site, path) = Site::of_scripts_in(model);
        site.write("public/fork.php", SCRIPT);
        let children = site.path().join("children");
        std::fs::create_dir(&children).unwrap();
        let gate = OpenOnDrop(children.join("gate"));
        let hearth = Serve::new(path)
            .args(&["--model", model, "--request-timeout", "2s"])
            .set("HEARTH_SERVER_SHUTDOWN_PATIENCE", "60s")
            .workers(1)
            .start();
        for then in ["die", "stay"] {
            let answer =
                hearth.get(&format!("/fork.php?then={then}&folder={}", children.display()));
            if answer.text() == "no" {
                return;
            }
            assert!(matches!(answer.status, 502 | 504), "{model} {then}: {}", answer.status);
        }
        let mut client = hearth.connect();
        let target = format!("/fork.php?then=stay&folder={}", children.display());
        client.send(head("GET", &target, &[], 0)).unwrap();
        let pids = || {
            let entries = std::fs::read_dir(&children).unwrap();
            entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        };
        eventually("all have forked", LIMIT, || pids().count() == 3);
        drop(client);
        hearth.wait_idle(1);
        assert!(hearth.stop().success(), "{model}");
        let pids: Vec<u32> = pids().collect();
        for pid in &pids {
            assert!(ProcessFacts::of(*pid).is_some(), "{model}: it lives on");
            let socket = format!("/proc/{pid}/fd/3");
            assert!(!Path::new(&socket).exists(), "{model}: the worker's socket is not its own");
        }
        drop(gate);
        eventually("the children have ended", LIMIT, || {
            pids.iter().all(|pid| ProcessFacts::of(*pid).is_none())
        });
    }
}

/// Creates a file when the test ends, even if it fails.
struct OpenOnDrop(PathBuf);

impl Drop for OpenOnDrop {
    fn drop(&mut self) {
        std::fs::write(&self.0, "").unwrap();
    }
}

/// Counts what clients of `/hello.php?name=` got while processes were killed.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) whole: AtomicUsize,
    pub(crate) lost: AtomicUsize,
}

impl Tally {
    /// Counts a response: whole, with its own content, or lost (502, 503).
    pub(crate) fn count(&self, answer: &Answer, name: &str, model: &str) {
        match answer.status {
            200 => {
                assert_eq!(answer.text(), format!("hello {name}\n"), "{model}");
                self.whole.fetch_add(1, Ordering::Relaxed);
            }
            502 | 503 => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            other => panic!("{model}: {other}: {}", answer.text()),
        }
    }
}

#[test]
fn killed_workers_under_load_lose_no_response() {
    for model in &models() {
        let (_site, path) = Site::of_scripts_in(model);
        let hearth = Serve::new(path).model(model).workers(3).start();
        hearth.wait_idle(3);
        let over = AtomicBool::new(false);
        let tally = Tally::default();
        let mut killed = 0;
        std::thread::scope(|scope| {
            for client in 0..4 {
                let (hearth, over, tally) = (&hearth, &over, &tally);
                scope.spawn(move || {
                    let mut connection = hearth.connect();
                    let mut n = 0;
                    while !over.load(Ordering::Relaxed) {
                        n += 1;
                        let name = format!("{client}-{n}");
                        let answer = connection
                            .get(&format!("/hello.php?name={name}"))
                            .unwrap_or_else(|error| panic!("{model}: request {name}: {error}"));
                        tally.count(&answer, &name, model);
                        if answer.field("connection") == Some("close") {
                            connection = hearth.connect();
                        }
                    }
                });
            }
            let _over = OverOnDrop(&over);
            let end = Instant::now() + LIMIT;
            while killed < 12 && Instant::now() < end {
                let pids = hearth.worker_pids();
                if let Some(pid) = pids.get(killed % 3) {
                    signal(*pid, Signal::KILL);
                    killed += 1;
                }
                std::thread::sleep(Duration::from_millis(60));
            }
        });
        hearth.wait_idle(3);
        let (whole, lost) = (tally.whole.into_inner(), tally.lost.into_inner());
        println!("{model}: {killed} killed, {whole} answered, {lost} times 502 or 503");
        assert!(killed == 12 && whole > 12, "{model}: {killed} killed, {whole} answered");
        assert!(lost <= killed, "{model}: {lost} requests lost to {killed} killed workers");
        assert_eq!(hearth.get("/hello.php?name=x").text(), "hello x\n");
    }
}

#[test]
fn a_killed_zygote_restarts_and_every_request_is_answered() {
    for model in &models() {
        let (_site, path) = Site::of_scripts_in(model);
        let hearth = Serve::new(path).model(model).workers(2).start();
        hearth.wait_idle(2);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut connection = hearth.connect();
                    while !over.load(Ordering::Relaxed) {
                        let answer = connection.get("/hello.php").unwrap();
                        assert!(matches!(answer.status, 200 | 502 | 503), "{}", answer.status);
                    }
                });
            }
            let _over = OverOnDrop(&over);
            for _ in 0..2 {
                let (zygote, workers) = (hearth.zygote_pid(), hearth.worker_pids());
                signal(zygote, Signal::KILL);
                // Waits for the zygote first: in models with one process for each request, worker ids always change.
                eventually("a new zygote", LIMIT, || {
                    let now = ProcessFacts::children(hearth.process.pid());
                    now.len() == 1 && now[0] != zygote
                });
                eventually("its workers", LIMIT, || {
                    let now = hearth.worker_pids();
                    now.len() >= 2 && !now.iter().any(|pid| workers.contains(pid))
                });
                for pid in workers {
                    eventually("its workers ended with it", LIMIT, || {
                        ProcessFacts::of(pid).is_none()
                    });
                }
            }
        });
        hearth.wait_idle(2);
        assert_eq!(hearth.get("/hello.php").status, 200, "{model}");
    }
}

#[test]
fn a_protocol_error_of_a_worker_fails_only_its_request() {
    let site = Site::of_scripts();
    let hearth = Serve::new(site.path())
        .model("request")
        .workers(1)
        .set("HEARTH_PHP_WORKER_PROGRAM", fake_worker().to_str().unwrap())
        .start();
    for path in ["/malformed", "/huge", "/out-of-turn"] {
        assert_eq!(hearth.get(path).status, 502, "{path}");
        assert_eq!(hearth.get("/hello").text(), "hello", "after {path}");
    }
    let line = hearth.log_line("malformed frame");
    assert_eq!(line["level"], "ERROR", "{line}");
}

#[test]
fn a_full_backlog_is_answered_with_503_and_retry_after() {
    let site = Site::of_scripts();
    let hearth =
        Serve::new(site.path()).model("request").workers(1).set("HEARTH_PHP_BACKLOG", "2").start();
    let gate = site.path().join("gate");
    let target = format!("/gate.php?gate={}", gate.display());
    let mut held: Vec<Client> = Vec::new();
    for waiting in 0..3 {
        let mut client = hearth.connect();
        client.send(head("GET", &target, &[], 0)).unwrap();
        held.push(client);
        let busy = u64::from(waiting > 0);
        eventually("the request has arrived", LIMIT, || {
            let pool = &hearth.status()["pool"];
            pool["backlog"] == waiting && (waiting > 0 || pool["workers"][0]["state"] == "busy")
        });
        assert!(busy <= 1);
    }
    let answer = hearth.get("/hello.php");
    assert_eq!(answer.status, 503);
    assert!(answer.field("retry-after").unwrap().parse::<u32>().unwrap() > 0);
    std::fs::write(&gate, "").unwrap();
    for client in &mut held {
        assert_eq!(client.answer_to("GET").unwrap().text(), "open");
    }
    assert_eq!(hearth.get("/hello.php").status, 200);
}

#[test]
fn a_request_that_waits_too_long_becomes_503() {
    let site = Site::of_scripts();
    let hearth = Serve::new(site.path())
        .model("request")
        .workers(1)
        .set("HEARTH_PHP_BACKLOG_TIMEOUT", "300ms")
        .start();
    let mut busy = hearth.connect();
    let gate = site.path().join("gate");
    let target = format!("/gate.php?gate={}", gate.display());
    busy.send(head("GET", &target, &[], 0)).unwrap();
    hearth.wait_busy(1);
    let began = Instant::now();
    let answer = hearth.get("/hello.php");
    assert_eq!(answer.status, 503);
    assert!(answer.field("retry-after").is_some());
    assert!(began.elapsed() >= Duration::from_millis(300));
    std::fs::write(&gate, "").unwrap();
    assert_eq!(busy.answer_to("GET").unwrap().status, 200);
}

/// Sends 300 requests over three connections, and checks that at least that many of two workers were replaced meanwhile.
pub(crate) fn assert_recycled_unnoticed(hearth: &Hearth, model: &str, least: u64) {
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = hearth.connect();
                for n in 0..100 {
                    let answer = client.get(&format!("/hello.php?name={n}")).unwrap();
                    assert_eq!(answer.text(), format!("hello {n}\n"), "{model}");
                }
            });
        }
    });
    hearth.wait_idle(2);
    let pool = &hearth.status()["pool"];
    assert!(pool["recycled"].as_u64().unwrap() >= least, "{model}: {pool}");
    assert_eq!(pool["crashes"], 0, "{model}");
}

#[test]
fn workers_are_replaced_after_max_requests_and_no_request_notices() {
    for model in models().iter().filter(|model| is_resident(model)) {
        let (_site, path) = Site::of_scripts_in(model);
        let hearth =
            Serve::new(path).args(&["--model", model, "--max-requests", "20"]).workers(2).start();
        assert_recycled_unnoticed(&hearth, model, 4);
    }
}

#[test]
fn a_worker_above_its_memory_cap_is_replaced_and_its_request_answered() {
    const KEEPS: &str = "<?php $kept = []; while (hearth_handle_request(function () use (&$kept) {
        $kept[] = str_repeat('x', (int) ($_GET['bytes'] ?? 0));
        echo getmypid();
    })) { }";
    let site = Site::empty().with_file("public/worker.php", KEEPS);
    let hearth = Serve::new(site.public().join("worker.php"))
        .model("worker")
        .workers(1)
        .ini("memory_limit", "-1")
        .set("HEARTH_PHP_MEMORY_LIMIT", "64MiB")
        .start();
    let first = hearth.get("/").text();
    assert_eq!(hearth.get("/?bytes=100000000").text(), first, "the request itself is answered");
    eventually("another worker answers", LIMIT, || hearth.get("/").text() != first);
    eventually("the first has ended", LIMIT, || hearth.status()["pool"]["recycled"] == 1);
    assert_eq!(hearth.status()["pool"]["crashes"], 0);
}

#[test]
fn a_worker_script_that_stops_booting_is_retried() {
    const GOOD: &str = "<?php while (hearth_handle_request(function () { echo getmypid(); })) { }";
    let site = Site::empty().with_file("public/worker.php", GOOD);
    let hearth = Serve::new(site.public().join("worker.php"))
        .model("worker")
        .workers(1)
        .ini("opcache.enable", "0")
        .set("HEARTH_PHP_BACKLOG_TIMEOUT", "300ms")
        .start();
    let pid = hearth.get("/").text();
    site.write(
        "public/worker.php",
        "<?php throw new LogicException('half a deploy'); hearth_handle_request();",
    );
    signal(pid.parse().unwrap(), Signal::KILL);
    hearth.log_line("half a deploy");
    let began = Instant::now();
    let mut boots = 0;
    while began.elapsed() < Duration::from_secs(1) {
        let answer = hearth.get("/");
        assert!(matches!(answer.status, 502 | 503), "{}", answer.text());
        let log = hearth.log().lines();
        boots = log.iter().filter(|line| line.contains("half a deploy")).count();
    }
    assert!(boots < 20, "{boots} boots in a second: there is a pause between them");
    site.write("public/worker.php", GOOD);
    eventually("it boots again", LIMIT, || hearth.get("/").status == 200);
}

#[test]
fn a_worker_that_has_grown_too_large_is_replaced_after_its_request() {
    let site = Site::of_scripts().with_file(
        "worker.php",
        "<?php $kept = []; while (hearth_handle_request(function () use (&$kept) {\n\
         if (isset($_GET['grow'])) { $kept[] = str_repeat('x', 90 << 20); } echo getmypid(); })) { }",
    );
    let hearth = Serve::new(site.path().join("worker.php"))
        .model("worker")
        .workers(1)
        .ini("memory_limit", "-1")
        .set("HEARTH_PHP_MEMORY_LIMIT", "80MiB")
        .start();
    let pid = hearth.get("/").text();
    assert_eq!(hearth.get("/?grow").text(), pid);
    eventually("another worker", LIMIT, || hearth.get("/").text() != pid);
    assert_eq!(hearth.status()["pool"]["crashes"], 0);
}
