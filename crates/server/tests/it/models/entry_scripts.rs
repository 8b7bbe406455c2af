//! Several scripts of one application that wait for their requests: each answers as under php-fpm, and all share the workers.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use testkit::eventually;

use crate::extensions::debian_extension;
use crate::hearth::{Hearth, LIMIT, Serve, Site, command, of_tier, php_fpm};

/// A script with a boot of its own. `ahead` says that the boot was another process's.
const ENTRY: &str = "<?php class Boot { public static $times = 0; public $name = __FILE__; } Boot::$times++; $boot = new Boot; header('X-Boot: ' . basename(__FILE__));\n\
    if (function_exists('hearth_await_request')) { hearth_await_request(); }\n\
    if (isset($_GET['die'])) { posix_kill(getmypid(), 9); }\n\
    if (isset($_GET['sleep'])) { usleep((int) $_GET['sleep']); }\n\
    Boot::$times += (int) ($_GET['add'] ?? 0);\n\
    echo json_encode([basename($boot->name), Boot::$times, $_SERVER['SCRIPT_NAME'], $_SERVER['REQUEST_URI'], $_SERVER['PATH_INFO'] ?? '', $_GET, $_POST, $_COOKIE, file_get_contents('php://input'), basename($_SERVER['SCRIPT_FILENAME']), basename(__DIR__), getcwd(), count(get_included_files())]);";

/// Ends the threads that ask until then, also when the test fails.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn site() -> Site {
    Site::empty()
        .with_file("public/index.php", ENTRY)
        .with_file("public/api.php", ENTRY)
        .with_file("public/admin/edit.php", ENTRY)
        .with_file("public/plain.php", "<?php echo 'plain ', $_GET['q'] ?? '';")
}

/// Returns the group of the script whose name ends so.
fn group(hearth: &Hearth, script: &str) -> Value {
    let groups = hearth.status()["pool"]["groups"].clone();
    let all = groups.as_array().cloned().unwrap_or_default();
    let ends = |group: &&Value| group["script"].as_str().is_some_and(|name| name.ends_with(script));
    all.iter().find(ends).cloned().unwrap_or_default()
}

/// Has the script booted ahead, by a request.
fn boot(hearth: &Hearth, script: &str) {
    assert_eq!(hearth.get(script).status, 200, "{script}");
    eventually("it waits", LIMIT, || group(hearth, script)["state"] == "waits");
}

#[test]
fn each_script_waits_at_its_own_point_and_answers_as_under_php_fpm() {
    let site = site();
    let peer = php_fpm(&site.public(), &[]);
    for model in of_tier(["snapshot", "fork", "prespawn"]) {
        println!("model {model}");
        let hearth = Serve::new(site.path()).model(model).workers(3).start();
        boot(&hearth, "/api.php");
        boot(&hearth, "/admin/edit.php");
        assert_eq!(group(&hearth, "/plain.php"), Value::Null);
        let mut here = hearth.connect();
        let mut fpm = testkit::Client::connect(peer.address()).unwrap();
        for round in 0..4 {
            for (method, target, body) in [
                ("GET", format!("/?q={round}&add=1"), ""),
                ("POST", format!("/api.php?q={round}&add=1"), "a=1&b[]=2"),
                ("GET", format!("/api.php/path/{round}"), ""),
                ("GET", format!("/plain.php?q={round}"), ""),
                ("POST", "/admin/edit.php".to_owned(), "x=y"),
                ("GET", format!("/not/there?{round}"), ""),
            ] {
                let fields =
                    [("Content-Type", "application/x-www-form-urlencoded"), ("Cookie", "c=1")];
                let ask = |client: &mut testkit::Client| {
                    let answer = client.request(method, &target, &fields, body.as_bytes()).unwrap();
                    let boot = answer.field("x-boot").map(ToOwned::to_owned);
                    (answer.status, boot, answer.text())
                };
                assert_eq!(ask(&mut here), ask(&mut fpm), "{method} {target}");
            }
        }
        for (script, requests) in [("/index.php", 8), ("/edit.php", 4), ("/api.php", 8)] {
            let group = group(&hearth, script);
            let of = (&group["state"], &group["requests"], &group["crashes"]);
            assert_eq!(of, (&json!("waits"), &json!(requests), &json!(0)), "{group}");
        }
        assert_eq!(group(&hearth, "other scripts")["requests"], 6, "the first of each, and plain");
        let metrics = hearth.admin("/metrics").text();
        assert!(metrics.contains("/api.php\"} 8\n"), "{metrics}");
        let dashboard = hearth.admin("/").text();
        assert!(dashboard.contains("Entry scripts") && dashboard.contains("/admin/edit.php"));
        let top = command().args(["status"]).arg(site.path()).output().unwrap();
        let top = String::from_utf8(top.stdout).unwrap();
        assert!(top.contains("/api.php: waits, 0 of "), "{top}");
        assert!(hearth.stop().success(), "within {LIMIT:?}");
    }
}

#[test]
fn the_groups_never_have_more_processes_than_there_may_be_workers() {
    let site = site();
    for workers in [1, 2, 4] {
        let hearth = Serve::new(site.path()).model("snapshot").workers(workers).start();
        boot(&hearth, "/api.php");
        boot(&hearth, "/admin/edit.php");
        let over = AtomicBool::new(false);
        let most = std::thread::scope(|scope| {
            let at_end = AtEnd(&over);
            let watch = scope.spawn(|| {
                let mut most = 0;
                while !over.load(Ordering::Relaxed) {
                    // What lives after the list was read has lived together.
                    let listed = hearth.worker_pids();
                    let lives = |pid: &&u32| Path::new(&format!("/proc/{pid}")).exists();
                    most = most.max(listed.iter().filter(lives).count());
                }
                most
            });
            let clients: Vec<_> = (0..12)
                .map(|client| {
                    let hearth = &hearth;
                    scope.spawn(move || {
                        let script = ["/", "/api.php", "/admin/edit.php", "/plain.php"][client % 4];
                        for round in 0..15 {
                            let answer = hearth.get(&format!("{script}?q={round}&sleep=2000"));
                            assert_eq!(answer.status, 200, "{script}: {}", answer.text());
                        }
                    })
                })
                .collect();
            let ended: Vec<_> =
                clients.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            drop(at_end);
            assert!(ended.iter().all(Result::is_ok), "a request was not answered");
            watch.join().unwrap()
        });
        assert!(most <= workers, "{most} processes for {workers} workers");
        let pool = &hearth.status()["pool"];
        assert_eq!((&pool["most"], &pool["crashes"]), (&json!(workers), &json!(0)), "{pool}");
    }
}

#[test]
fn a_busy_script_leaves_the_others_their_part() {
    let site = site();
    let hearth = Serve::new(site.path()).model("snapshot").workers(2).start();
    boot(&hearth, "/api.php");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let at_end = AtEnd(&over);
        let busy: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        assert_eq!(hearth.get("/?sleep=20000").status, 200);
                    }
                })
            })
            .collect();
        eventually("the front controller is busy", LIMIT, || {
            group(&hearth, "/index.php")["backlog"].as_u64() > Some(1)
        });
        for _ in 0..10 {
            assert_eq!(hearth.get("/api.php").status, 200, "while others wait");
        }
        assert_eq!(group(&hearth, "/api.php")["requests"], 10);
        // Its part while it has a request; what it has after the answer depends on who asks first.
        let asks = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                assert_eq!(hearth.get("/api.php?sleep=20000").status, 200);
            }
        });
        eventually("it has its part", LIMIT, || group(&hearth, "/api.php")["wanted"] == 1);
        drop(at_end);
        for client in busy.into_iter().chain([asks]) {
            client.join().unwrap();
        }
    });
}

#[test]
fn idle_scripts_give_their_workers_back() {
    let site = site();
    let hearth = Serve::new(site.path())
        .model("snapshot")
        .workers(2)
        .set("HEARTH_PHP_WORKERS_IDLE_TIMEOUT", "200ms")
        .start();
    assert_eq!(
        hearth.status()["pool"]["groups"].as_array().unwrap().len(),
        2,
        "no zygote before a request"
    );
    eventually("memory is reported, although other scripts have had no request", LIMIT, || {
        hearth.status()["pool"]["memory"]["pss_bytes"].is_u64()
    });
    boot(&hearth, "/api.php");
    eventually("the front controller has all of them", LIMIT, || {
        group(&hearth, "/index.php")["ready"] == 2
    });
    let of = |script| group(&hearth, script)["wanted"].clone();
    assert_eq!([of("/api.php"), of("other scripts")], [0, 0].map(Value::from));
    assert_eq!(hearth.get("/api.php").status, 200, "and gets one when a request comes");
}

/// One worker for all: the group that a request is for gets it from one that is idle. What is reported of the pool's memory is that of all groups.
#[test]
fn an_idle_script_gives_its_worker_to_a_busy_one_and_memory_counts_all_scripts() {
    const SCRIPTS: [&str; 3] = ["/", "/api.php", "/admin/edit.php"];
    let held = |mebibytes: u32| {
        let hold = format!("<?php $held = str_repeat('x', {mebibytes} << 20);");
        ENTRY.replacen("<?php", &hold, 1)
    };
    let site = Site::empty()
        .with_file("public/index.php", &held(8))
        .with_file("public/api.php", &held(16))
        .with_file("public/admin/edit.php", &held(32));
    let hearth = Serve::new(site.path()).args(&["--model", "snapshot"]).workers(1).start();
    for script in &SCRIPTS[1..] {
        boot(&hearth, script);
    }
    for round in 0..4 {
        for script in SCRIPTS {
            let answer = hearth.get(&format!("{script}?q={round}"));
            assert_eq!(answer.status, 200, "{script}: {}", answer.text());
            assert!(hearth.worker_pids().len() <= 1, "one worker for all scripts");
        }
    }
    // The zygotes stay, whichever script has the worker.
    let memory = || hearth.status()["pool"]["memory"].clone();
    let zygotes = || memory()["zygotes"].as_array().cloned().unwrap_or_default();
    let bytes = |zygote: &Value| zygote["pss_bytes"].as_u64().unwrap_or_default();
    let held: u64 = (8 + 16 + 32) << 20;
    eventually("each script's booted process is counted", LIMIT, || {
        // The fourth is that of scripts that do not wait.
        zygotes().len() == 4 && zygotes().iter().all(|zygote| bytes(zygote) > 0)
    });
    eventually("all that the boots hold is in the pool's memory", LIMIT, || {
        memory()["pss_bytes"].as_u64() > Some(held)
    });
    let pool = &hearth.status()["pool"];
    assert_eq!((&pool["most"], &pool["crashes"]), (&json!(1), &json!(0)), "{pool}");
}

#[test]
fn a_crash_in_one_script_costs_the_others_nothing() {
    let site = site();
    let hearth = Serve::new(site.path()).model("snapshot").workers(3).start();
    boot(&hearth, "/api.php");
    hearth.get("/");
    for _ in 0..3 {
        assert_eq!(hearth.get("/api.php?die").status, 502);
        assert_eq!(hearth.get("/").status, 200);
    }
    assert_eq!(hearth.get("/api.php").status, 200);
    let of = |script| group(&hearth, script)["crashes"].clone();
    assert_eq!([of("/index.php"), of("/api.php")], [0, 3].map(Value::from));
}

#[test]
fn a_script_that_does_not_wait_runs_as_in_request_and_says_so_once() {
    let site = site()
        .with_file("public/never.php", "<?php echo 'never'; exit; hearth_await_request();")
        .with_file("public/broken.php", "<?php if (isset($_SERVER['REQUEST_TIME']) && !isset($_GET['q'])) { throw new Exception('no q'); } hearth_await_request(); echo 'broken';");
    let hearth = Serve::new(site.path()).model("snapshot").workers(2).start();
    for script in ["/never.php", "/broken.php"] {
        hearth.get(&format!("{script}?q=1"));
        eventually("it has failed", LIMIT, || group(&hearth, script)["state"] == "failed");
    }
    for _ in 0..3 {
        assert_eq!(hearth.get("/never.php?q=1").text(), "never");
        assert_eq!(hearth.get("/broken.php?q=1").text(), "broken");
    }
    boot(&hearth, "/api.php");
    assert!(group(&hearth, "/broken.php")["why"].as_str().unwrap().contains("no q"));
    let log = hearth.log().text();
    assert_eq!(log.matches("script cannot be booted ahead").count(), 2, "{log}");
    assert!(hearth.stop().success());
    let check = command()
        .args(["check", "--model", "snapshot", "--listen", "127.0.0.1:0"])
        .arg(site.path())
        .output()
        .unwrap();
    let check = String::from_utf8(check.stdout).unwrap();
    for line in [
        "/api.php is booted ahead, too",
        "/never.php is not booted ahead",
        "/broken.php is not booted ahead",
    ] {
        assert!(check.contains(line), "{line}: {check}");
    }
    assert!(!check.contains("/plain.php"), "{check}");
}

#[test]
fn a_reload_boots_the_scripts_again_and_loses_no_request() {
    let site = site();
    let hearth = Serve::new(site.path()).model("snapshot").workers(2).start();
    boot(&hearth, "/api.php");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let at_end = AtEnd(&over);
        let clients: Vec<_> = ["/", "/api.php", "/plain.php"]
            .into_iter()
            .map(|script| {
                let (hearth, over) = (&hearth, &over);
                scope.spawn(move || {
                    let mut client = hearth.connect();
                    while !over.load(Ordering::Relaxed) {
                        let answer = client.get(script).unwrap();
                        assert_eq!(answer.status, 200, "{script}: {}", answer.text());
                    }
                })
            })
            .collect();
        for (generation, mark) in [(2, "second"), (3, "third")] {
            site.write(
                "public/api.php",
                &ENTRY.replace("[basename", &format!("['{mark}', basename")),
            );
            assert!(command().arg("reload").arg(site.path()).output().unwrap().status.success());
            assert_eq!(hearth.status()["generation"], generation);
            assert_eq!(group(&hearth, "/api.php")["state"], "waits", "before it takes requests");
            assert!(hearth.get("/api.php").text().starts_with(&format!("[\"{mark}\"")));
        }
        drop(at_end);
        for client in clients {
            client.join().unwrap();
        }
    });
    // A script that does not boot any more costs no other script its reload.
    let reload = || command().arg("reload").arg(site.path()).output().unwrap().status.success();
    site.write(
        "public/api.php",
        "<?php throw new Exception('broken release'); hearth_await_request();",
    );
    assert!(reload());
    assert_eq!(group(&hearth, "/api.php")["state"], "failed");
    assert_eq!(hearth.get("/").status, 200);
    site.write("public/api.php", ENTRY);
    assert!(reload());
    boot(&hearth, "/api.php");
}

#[test]
fn a_setting_names_the_scripts() {
    let included = "<?php $boot = getmypid(); require $_SERVER['DOCUMENT_ROOT'] . '/../wait.php'; echo $boot === getmypid() ? 'here ' : 'ahead ', $_GET['q'] ?? '';";
    let site = site()
        .with_file("wait.php", "<?php hearth_await_request();")
        .with_file("public/wp/one.php", included)
        .with_file("public/wp/two.php", included)
        .with_file("public/wp/deep/one.php", included);
    let hearth = Serve::new(site.path())
        .model("snapshot")
        .workers(2)
        .set("HEARTH_PHP_ENTRIES", "wp/o*.php")
        .start();
    boot(&hearth, "/wp/one.php");
    assert_eq!(hearth.get("/wp/one.php?q=1").text(), "ahead 1");
    for script in ["/wp/two.php", "/wp/deep/one.php"] {
        assert_eq!(hearth.get(&format!("{script}?q=1")).text(), "here 1");
    }
    hearth.get("/api.php");
    assert_eq!(hearth.status()["pool"]["groups"].as_array().unwrap().len(), 3, "front, rest, one");
}

/// Each script that waits has a zygote of its own, and with it a cache of its own.
#[test]
fn scripts_wait_beside_apcu_only_if_a_setting_says_so() {
    const COUNTS: &str = "<?php hearth_await_request(); echo apcu_inc('visits');";
    let Some(apcu) = debian_extension("apcu") else { return };
    let site = Site::empty()
        .with_file("public/index.php", COUNTS)
        .with_file("public/api.php", "<?php echo apcu_inc('visits');");
    let serve = || Serve::new(site.path()).workers(1).ini("extension", &apcu);
    let visits = |hearth: &Hearth| ["/", "/api.php", "/"].map(|path| hearth.get(path).text());
    let check = |args: &[&str]| {
        let mut check = command();
        check.args(["check", "--no-boot", "--ini", &format!("extension={apcu}")]).args(args);
        String::from_utf8(check.arg(site.path()).output().unwrap().stdout).unwrap()
    };
    let hearth = serve().start();
    assert_eq!(hearth.status()["model"], "request");
    assert_eq!(visits(&hearth), ["1", "2", "3"], "one cache");
    let log = hearth.log().text();
    assert!(log.contains("not booted ahead: APCu is enabled"), "{log}");
    let checked = check(&[]);
    assert!(checked.contains("is not booted ahead: APCu is enabled"), "{checked}");

    let named = serve().model("snapshot").set("HEARTH_PHP_WARM_UP", "off");
    let hearth = named.start();
    assert_eq!(visits(&hearth), ["1", "1", "2"], "as the page on APCu says");
    let log = hearth.log().text();
    assert!(log.contains("APCu's cache is divided"), "{log}");
    let checked = check(&["--model", "snapshot"]);
    assert!(checked.contains("APCu is enabled, and each script that waits has"), "{checked}");

    site.write("public/index.php", "<?php hearth_await_request();");
    let hearth = serve().ini("apc.enabled", "0").start();
    assert_eq!(hearth.status()["model"], "snapshot", "a cache that is off is not shared");
}
