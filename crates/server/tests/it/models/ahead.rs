//! Requests written ahead, with real PHP: killed workers and a reload lose none of them, and none runs twice.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::process::Signal;
use testkit::eventually;

use super::policy;
use crate::hearth::{Hearth, LIMIT, OverOnDrop, Serve, Site, command, of_tier, signal};

const CLIENTS: u32 = 16;
const WORKERS: usize = 2;
const KILLS: u32 = 5;

/// Appends the request's number to a file, so that each run of it is known, and answers with it. It does not sleep:
/// on a busy machine a process that wakes up waits for a processor, and long requests are not written ahead.
const PAGE: &str = "<?php file_put_contents(__DIR__ . '/../run', \"$_GET[n]\\n\", FILE_APPEND);
for ($end = hrtime(true) + 300_000; hrtime(true) < $end;);
echo $_GET['n'];";

/// Waits until requests are in the socket of a busy worker.
fn wait_ahead(hearth: &Hearth) {
    eventually("requests are written ahead", LIMIT, || {
        let metrics = hearth.admin("/metrics").text();
        let ahead = metrics.lines().find(|line| line.starts_with("hearth_backlog_ahead{"));
        ahead.expect("the metric is there").rsplit(' ').next() != Some("0")
    });
}

/// Sends numbered requests until `over`. Each answer is its own, or 502 if its worker was killed. Returns the numbers
/// that were answered.
fn ask(hearth: &Hearth, client: u32, over: &AtomicBool, lost: &AtomicU32) -> Vec<u32> {
    let mut answered = Vec::new();
    let mut connection = hearth.connect();
    for n in (client..).step_by(CLIENTS as usize) {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let answer = connection.get(&format!("/page.php?n={n}")).unwrap();
        if answer.status == 502 {
            lost.fetch_add(1, Ordering::Relaxed);
            connection = hearth.connect();
            continue;
        }
        assert_eq!((answer.status, answer.text()), (200, n.to_string()));
        answered.push(n);
    }
    answered
}

#[test]
fn killed_workers_and_a_reload_lose_no_request_that_is_ahead_and_run_none_twice() {
    for model in of_tier(["request", "worker", "snapshot"]) {
        let (site, path) = Site::of_scripts_in(model);
        site.write("public/page.php", PAGE);
        let hearth = Serve::new(&path).model(model).workers(WORKERS).patient().start();
        let (over, lost) = (AtomicBool::new(false), AtomicU32::new(0));
        let answered: Vec<u32> = std::thread::scope(|scope| {
            let (hearth, over, lost) = (&hearth, &over, &lost);
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| scope.spawn(move || ask(hearth, client, over, lost)))
                .collect();
            let clients_end = OverOnDrop(over);
            for killed in 1..=KILLS {
                wait_ahead(hearth);
                signal(hearth.worker_pids()[0], Signal::KILL);
                eventually("the worker is replaced", LIMIT, || {
                    let pool = &hearth.status()["pool"];
                    let workers = pool["workers"].as_array().unwrap();
                    let serving = workers
                        .iter()
                        .filter(|worker| worker["state"] == "busy" || worker["state"] == "idle");
                    pool["crashes"] == killed && serving.count() == WORKERS
                });
            }
            let before = lost.load(Ordering::Relaxed);
            assert!(before <= KILLS, "{model}: {before} requests were lost with {KILLS} workers");
            wait_ahead(hearth);
            let reload = command().arg("reload").arg(&path).output().unwrap();
            assert!(reload.status.success(), "{model}: {reload:?}");
            wait_ahead(hearth);
            assert_eq!(lost.load(Ordering::Relaxed), before, "{model}: the reload lost none");
            drop(clients_end);
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        let mut runs: HashMap<u32, u32> = HashMap::new();
        for n in std::fs::read_to_string(site.path().join("run")).unwrap().lines() {
            *runs.entry(n.parse().unwrap()).or_default() += 1;
        }
        for n in &answered {
            assert_eq!(
                runs.get(n),
                Some(&1),
                "{model}: request {n} was answered once, so it ran once"
            );
        }
        let twice: Vec<_> = runs.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "{model}: {twice:?}");
    }
}

#[test]
fn while_requests_are_ahead_the_server_displaces_no_worker() {
    let (site, path) = Site::of_scripts_in("request");
    site.write("public/page.php", PAGE);
    let serve = Serve::new(&path).model("request").workers(WORKERS).patient();
    let hearth = serve.set("HEARTH_SERVER_THREADS", "1").start();
    let (over, lost) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let clients_end = OverOnDrop(&over);
        for client in 0..CLIENTS {
            let (hearth, over, lost) = (&hearth, &over, &lost);
            scope.spawn(move || ask(hearth, client, over, lost));
        }
        eventually("the server has the policy of its workers", LIMIT, || {
            policy(hearth.process.pid()) == libc::SCHED_BATCH
        });
        drop(clients_end);
    });
    eventually("it is scheduled as any again", LIMIT, || {
        policy(hearth.process.pid()) == libc::SCHED_OTHER
    });
    assert_eq!(lost.load(Ordering::Relaxed), 0);
}
