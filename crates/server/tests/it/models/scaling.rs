//! The number of workers follows the load, and requests are refused when there are too many.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use testkit::eventually;

use crate::hearth::{Hearth, LIMIT, Serve, Site, command, models, of_tier};
use crate::operations::upgrade::{upgrade, upgraded};

/// A script that answers only while three requests run at once.
const TOGETHER: &str = "<?php
    $folder = dirname(__DIR__) . '/here';
    $name = $folder . '/' . bin2hex(random_bytes(8));
    touch($name);
    for ($i = 0; $i < 2000 && count(glob($folder . '/*')) < 3; $i++) { usleep(10_000); clearstatcache(); }
    echo count(glob($folder . '/*')) >= 3 ? 'together' : 'alone';";

/// Returns the answers of `TOGETHER` to three concurrent clients.
fn together(hearth: &Hearth, site: &Site) -> Vec<String> {
    let here = site.path().join("here");
    drop(std::fs::remove_dir_all(&here));
    std::fs::create_dir(&here).unwrap();
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..3).map(|_| scope.spawn(|| hearth.get("/together.php").text())).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}

#[test]
fn workers_start_while_requests_wait_and_end_when_idle_in_every_model() {
    for model in &models() {
        let (site, path) = Site::of_scripts_in(model);
        let site = site.with_file("public/together.php", TOGETHER);
        let hearth = Serve::new(path)
            .args(&["--model", model, "--workers-max", "3"])
            .workers(1)
            .set("HEARTH_PHP_WORKERS_IDLE_TIMEOUT", "500ms")
            .start();
        assert_eq!(hearth.status()["pool"]["wanted"], 1, "{model}");
        assert_eq!(together(&hearth, &site), ["together"; 3], "{model}");
        let metrics = hearth.admin("/metrics").text();
        assert!(
            metrics.contains("\nhearth_workers_grown_total{application=\"main\"} 2\n"),
            "{model}: {metrics}"
        );
        hearth.wait_idle(1);
        let pool = hearth.status()["pool"].clone();
        assert_eq!((&pool["wanted"], &pool["grown"]), (&json!(1), &json!(2)), "{model}: {pool}");
        let others = (&pool["crashes"], &pool["recycled"], &pool["retired"], &pool["ended"]);
        assert_eq!(others, (&json!(0), &json!(0), &json!(0), &json!([])), "{model}: {pool}");
        assert_eq!(hearth.get("/").status, 200, "{model}");
        assert_eq!(hearth.stop().code(), Some(0), "{model}");
    }
}

#[test]
fn a_reload_or_upgrade_keeps_the_number_of_workers() {
    let (site, path) = Site::of_scripts_in("request");
    let site = site.with_file("public/together.php", TOGETHER);
    let mut hearth = Serve::new(path)
        .args(&["--model", "request", "--workers-max", "3"])
        .workers(1)
        .set("HEARTH_PHP_WORKERS_IDLE_TIMEOUT", "10m")
        .start();
    assert_eq!(together(&hearth, &site), ["together"; 3]);
    let mut reload = command();
    assert!(reload.arg("reload").arg(site.path()).output().unwrap().status.success());
    let status = hearth.status();
    assert_eq!((&status["generation"], &status["pool"]["wanted"]), (&json!(2), &json!(3)));
    assert_eq!(status["pool"]["grown"], 2, "the old generation's count goes on: {status}");
    let successor = upgraded(upgrade(site.path(), &[]));
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0));
    assert_eq!(hearth.status()["pool"]["wanted"], 3);
    successor.stop();
}

#[test]
fn overload_is_rejected_with_503_in_every_kind_of_model() {
    for model in of_tier(["request", "snapshot", "fork", "builtin"]) {
        let (site, path) = Site::of_scripts_in(model);
        let _site = site.with_file("public/work.php", "<?php usleep(5000); echo 'done';");
        let hearth = Serve::new(path)
            .model(model)
            .workers(1)
            .set("HEARTH_PHP_BACKLOG_TARGET", "20ms")
            .start();
        // Runs until enough requests were refused, on a machine of any speed. Each of them gets exactly one answer.
        let (answered, refused) = (AtomicU32::new(0), AtomicU32::new(0));
        let asked = || {
            let mut connection = hearth.connect();
            while refused.load(Ordering::Relaxed) < 72 {
                let answer = connection.get("/work.php").unwrap();
                match answer.status {
                    200 => {
                        assert_eq!(answer.text(), "done", "{model}");
                        let before = answered.fetch_add(1, Ordering::Relaxed);
                        assert!(before < 20_000, "{model}: nothing is ever refused");
                    }
                    503 => {
                        let after = answer.field("Retry-After").unwrap();
                        after.parse::<NonZeroU32>().unwrap();
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                    other => panic!("{model}: {other}"),
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..24 {
                scope.spawn(asked);
            }
        });
        let answered = answered.into_inner();
        assert!(answered > 16, "{model}: it takes that many to see an overload");
        let pool = hearth.status()["pool"].clone();
        assert!(pool["refused"].as_u64().unwrap() >= 72, "{model}: {pool}");
        eventually("it is over", LIMIT, || {
            hearth.get("/work.php").status == 200 && hearth.status()["pool"]["overloaded"] == false
        });
        assert_eq!(hearth.stop().code(), Some(0), "{model}");
    }
}
