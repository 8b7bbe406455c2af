//! The time limit of requests in `fpm` and `cgi`: whose process it ends, and what the log says.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{eventually, head};

use crate::hearth::{Hearth, LIMIT, Serve, Site, of_tier};

/// Says in a file which process runs it, and answers when another file exists.
const WAITS: &str = "<?php file_put_contents($_GET['file'] . '.runs', getmypid());\n\
                     while (!file_exists($_GET['file'])) { usleep(1000); clearstatcache(); } echo getmypid();";

/// A request for that script which is under way.
struct Waiting<'h> {
    hearth: &'h Hearth,
    gate: std::path::PathBuf,
    client: testkit::Client,
    sent: Instant,
}

impl<'h> Waiting<'h> {
    fn send(hearth: &'h Hearth, site: &Site, name: &str) -> Self {
        let gate = site.path().join(name);
        let mut client = hearth.connect();
        let target = format!("/waits.php?file={}", gate.display());
        client.send(head("GET", &target, &[], 0)).unwrap();
        Self { hearth, gate, client, sent: Instant::now() }
    }

    /// Waits until the script runs, and returns its process.
    fn runs(&self) -> String {
        let mut pid = String::new();
        eventually("the script runs", LIMIT, || {
            let runs = std::fs::read_to_string(self.gate.with_extension("runs"));
            pid = runs.unwrap_or_default();
            !pid.is_empty()
        });
        pid
    }

    /// The client leaves; the script goes on. Returns its gate.
    fn leave(self) -> std::path::PathBuf {
        // Earlier the end of the connection would be that of what the client sends (docs/decisions/0011-half-close.md).
        std::thread::sleep(Duration::from_millis(700).saturating_sub(self.sent.elapsed()));
        drop(self.client);
        // The server has noticed by then, and has made a new connection to php-fpm.
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(self.hearth.status()["pool"]["timeouts"], 0);
        self.gate
    }
}

#[test]
fn the_time_limit_of_an_abandoned_request_ends_no_process_of_another_request() {
    for model in of_tier(["fpm"]) {
        let site = Site::of_scripts().with_file("public/waits.php", WAITS);
        let serve = Serve::new(site.path()).model(model).workers(2);
        let hearth = serve.args(&["--request-timeout", "6s"]).start();
        // Its time is over first.
        let slow = Waiting::send(&hearth, &site, "slow");
        let process = slow.runs();
        let stuck = Waiting::send(&hearth, &site, "stuck");
        stuck.runs();
        // The connection that replaces the stuck one is first in the line. The slow script's child accepts it.
        stuck.leave();
        let gate = slow.leave();
        std::fs::write(gate, "").unwrap();
        // The third has that much time after the slow one.
        std::thread::sleep(Duration::from_secs(2));
        let mut third = Waiting::send(&hearth, &site, "third");
        assert_eq!(third.runs(), process, "it runs in the child that the slow request had");
        eventually("the time of the slow request is over", LIMIT, || {
            hearth.status()["pool"]["timeouts"] == 1
        });
        std::fs::write(&third.gate, "").unwrap();
        let answer = third.client.answer_to("GET").unwrap();
        assert_eq!((answer.status, answer.text()), (200, process), "{}", hearth.log().text());
        assert_eq!(hearth.status()["pool"]["crashes"], 0);
    }
}

#[test]
fn every_process_stays_in_the_status_when_clients_leave() {
    for model in of_tier(["fpm"]) {
        let site = Site::of_scripts().with_file("public/waits.php", WAITS);
        let hearth = Serve::new(site.path()).model(model).workers(2).start();
        let workers = || hearth.status()["pool"]["workers"].as_array().unwrap().clone();
        let pids = || {
            let pid = |worker: &Value| worker["pid"].as_u64().unwrap().to_string();
            workers().iter().map(pid).collect::<BTreeSet<_>>()
        };
        // The first connection that replaces another is accepted by the child whose script ends first: its own, or
        // that of the other client. Both processes have the place of the other one after two rounds.
        for (round, (first_left, first_ended)) in
            [(0, 1), (1, 0), (0, 0), (0, 1), (1, 0)].into_iter().enumerate()
        {
            let clients =
                [0, 1].map(|n| Waiting::send(&hearth, &site, &format!("client-{round}-{n}")));
            let processes: BTreeSet<_> = clients.iter().map(Waiting::runs).collect();
            assert_eq!((processes.len(), pids()), (2, processes.clone()), "round {round}");
            let served = |workers: &[Value]| -> u64 {
                workers.iter().map(|worker| worker["requests"].as_u64().unwrap()).sum()
            };
            let before = served(&workers());
            let mut clients = clients.map(Some);
            let mut gates = [const { None }; 2];
            for n in [first_left, 1 - first_left] {
                gates[n] = clients[n].take().map(Waiting::leave);
            }
            for (ended, n) in [first_ended, 1 - first_ended].into_iter().enumerate() {
                std::fs::write(gates[n].take().unwrap(), "").unwrap();
                eventually("its process is idle", LIMIT, || {
                    let workers = workers();
                    let idle = workers.iter().filter(|worker| worker["state"] == "idle");
                    idle.count() == ended + 1 && served(&workers) == before + ended as u64 + 1
                });
                assert_eq!(pids(), processes, "round {round}");
            }
        }
    }
}

#[test]
fn every_request_over_its_time_limit_is_logged_with_its_id() {
    for model in of_tier(["cgi", "builtin", "fpm"]) {
        let site = Site::of_scripts();
        let serve = Serve::new(site.path()).model(model).workers(1);
        let hearth = serve.args(&["--request-timeout", "1s"]).start();
        for _ in 0..3 {
            let answer = hearth.get("/sleep.php?ms=60000");
            assert_eq!(answer.status, 504, "{model}");
            let id = answer.field("x-request-id").unwrap().to_owned();
            let is_it = |line: &str| {
                (line.contains("over its time limit") && line.contains(&id)).then_some(())
            };
            let found = hearth.log().find(LIMIT, is_it);
            assert!(found.is_some(), "{model} {id}: {}", hearth.log().text());
        }
    }
}
