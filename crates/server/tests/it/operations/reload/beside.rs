//! Reloads beside other events: signals, the service manager, clients of channels, changed files.

use super::*;
use crate::operations::upgrade::Manager;

#[test]
fn reloads_requested_during_a_reload_share_the_next_one() {
    let deploys = Deploys::new();
    let hearth = deploys.serve("snapshot").workers(1).start();
    let gate = slow_boot(&deploys, 2);
    let mut first = launch(deploys.reload());
    wait_reloading(&hearth);
    // The reload has read the link's target by then.
    eventually("it boots", LIMIT, || ProcessFacts::children(hearth.process.pid()).len() == 2);
    deploys.release(3);
    deploys.point_to(3);
    let mut others = [launch(deploys.reload()), launch(deploys.reload())];
    // HUP is one more reload request; no event shows when it has arrived.
    hearth.process.signal(Signal::HUP);
    assert_eq!(hearth.get("/").text(), "release 1");
    std::fs::write(gate, "").unwrap();
    assert_eq!(first.wait(LIMIT).code(), Some(0));
    assert!(first.log().wait_for("generation ").starts_with("generation 2 "));
    for other in &mut others {
        assert_eq!(other.wait(LIMIT).code(), Some(0));
    }
    assert_eq!(hearth.get("/").text(), "release 3");
}

#[test]
fn hup_during_the_boot_reloads_once_ready() {
    let deploys = Deploys::new();
    let gate = slow_boot(&deploys, 2);
    let process = deploys.serve("snapshot").workers(1).launch();
    let admin = process.log().wait_for("hearth: admin on http://");
    eventually("it boots", LIMIT, || ProcessFacts::children(process.pid()).len() == 1);
    // The reload has read the link's target by then.
    deploys.release(3);
    deploys.point_to(3);
    process.signal(Signal::HUP);
    std::fs::write(gate, "").unwrap();
    let url = process.log().wait_for("hearth: ready on ");
    let after = |line: &str, part: &str| line.split_once(part).unwrap().1.to_owned();
    let hearth = Hearth {
        address: after(&url, "http://").parse().unwrap(),
        url: after(&url, "ready on "),
        admin: after(&admin, "http://").parse().unwrap(),
        process,
    };
    eventually("the next generation answers", LIMIT, || hearth.status()["generation"] == 2);
    assert_eq!(hearth.get("/").text(), "release 3");
}

#[test]
fn term_in_the_middle_of_a_reload_ends_everything() {
    for model in of_tier(["worker", "snapshot"]) {
        let deploys = Deploys::new();
        let mut hearth = deploys.serve(model).workers(1).start();
        slow_boot(&deploys, 2);
        let mut reload = launch(deploys.reload());
        wait_reloading(&hearth);
        let server = hearth.process.pid();
        eventually("both generations boot", LIMIT, || ProcessFacts::children(server).len() == 2);
        let zygotes = ProcessFacts::children(server);
        let workers: Vec<u32> =
            zygotes.iter().flat_map(|pid| ProcessFacts::children(*pid)).collect();
        hearth.process.signal(Signal::TERM);
        assert_eq!(hearth.process.wait(LIMIT).code(), Some(0), "{model}");
        assert_eq!(reload.wait(LIMIT).code(), Some(1), "{model}");
        reload.log().wait_for("the server is shutting down");
        for pid in zygotes.iter().chain(&workers) {
            eventually("no process is left", LIMIT, || ProcessFacts::of(*pid).is_none());
        }
    }
}

#[test]
fn systemd_is_notified_of_a_reload_and_its_end() {
    let deploys = Deploys::new();
    let manager = Manager::start(deploys.0.path());
    let hearth = deploys.serve("request").workers(1).set("NOTIFY_SOCKET", manager.path()).start();
    assert_eq!(manager.heard(), "READY=1");
    for (number, release) in [(2, "echo 'fine';"), (3, "this is no PHP")] {
        deploys.answering(number, release);
        deploys.point_to(number);
        hearth.process.signal(Signal::HUP);
        let reloading = manager.heard();
        let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(since.parse::<u64>().unwrap() > 0, "{reloading}");
        assert_eq!(manager.heard(), "READY=1");
    }
    assert_eq!(hearth.get("/").text(), "fine");
}

#[test]
fn twenty_reloads_leave_the_server_as_it_was() {
    let deploys = Deploys::new();
    let hearth = deploys.serve("snapshot").workers(1).start();
    let facts = |reloads: u32| {
        for _ in 0..reloads {
            let (code, _, why) = ran(deploys.reload());
            assert_eq!(code, Some(0), "{why}");
            assert_eq!(hearth.get("/").text(), "release 1");
        }
        wait_drained(&hearth);
        hearth.wait_idle(1);
        // The output of processes that have just ended may still be being read.
        eventually("one generation's processes are left", LIMIT, || {
            ProcessFacts::children(hearth.process.pid()).len() == 1
        });
        ProcessFacts::of(hearth.process.pid()).unwrap()
    };
    let before = facts(5);
    let after = facts(20);
    assert!(after.descriptors <= before.descriptors + 2, "{before:?} {after:?}");
    assert!(after.resident <= before.resident + (2 << 20), "{before:?} {after:?}");
    assert_eq!(hearth.status()["generation"], 26);
}

#[test]
fn realtime_clients_stay_connected_over_a_reload() {
    let deploys = Deploys::new();
    let publish = |number: u32| {
        deploys.answering(
            number,
            &format!("hearth_publish('news', 'said', ['release' => {number}]); echo 'published';"),
        );
    };
    publish(1);
    let hearth = deploys.serve("worker").args(&["--app", "1:key:secret"]).workers(1).start();
    let mut client = realtime::Client::open(&hearth, "key");
    assert_eq!(client.next().0, "pusher:connection_established");
    client.send(&json!({"event": "pusher:subscribe", "data": {"channel": "news"}}));
    assert_eq!(client.next().0, "pusher_internal:subscription_succeeded");
    publish(2);
    deploys.point_to(2);
    assert_reloaded(deploys.reload(), 2);
    // One event for the reload's check, one for a request.
    for _ in 0..2 {
        assert_eq!(client.next(), ("said".to_owned(), json!({"release": 2})));
        assert_eq!(hearth.get("/").text(), "published");
    }
}

#[test]
fn a_server_is_found_by_its_application_or_run_folder() {
    let deploys = Deploys::new();
    let run_dir = deploys.0.path().join("run");
    let run_dir = run_dir.to_str().unwrap();
    let (code, _, told) = ran(deploys.reload());
    assert_eq!(code, Some(1));
    assert!(told.starts_with("error: no server of this user serves "), "{told}");
    let hearth = deploys.serve("request").args(&["--run-dir", run_dir]).workers(1).start();
    assert_eq!(ran(deploys.reload()).0, Some(1), "its run folder is not among the default ones");
    let mut reload = deploys.reload();
    reload.args(["--run-dir", run_dir]);
    assert_reloaded(reload, 2);
    let mut curl = Command::new("curl");
    curl.args([
        "-s",
        "-X",
        "POST",
        "--unix-socket",
        &format!("{run_dir}/control.sock"),
        "http://hearth/reload",
    ]);
    let (_, said, _) = ran(curl);
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["generation"], 3, "{said}");
    // Every client that reaches the admin address may read, but not change anything.
    let own_name = hearth.admin.to_string();
    let mut client = Client::connect(hearth.admin).unwrap();
    let post = client.request("POST", "/reload", &[("Host", &own_name)], b"").unwrap();
    assert_eq!(post.status, 405);
    assert_eq!(hearth.stop().code(), Some(0));
    let mut reload = deploys.reload();
    reload.args(["--run-dir", run_dir]);
    let (code, _, told) = ran(reload);
    assert_eq!(code, Some(1));
    assert!(told.contains("no server answers at "), "{told}");
    assert_eq!(std::fs::read_dir(run_dir).unwrap().count(), 0, "nothing is left in it");
}

#[test]
fn a_stuck_old_release_delays_only_the_second_next_reload() {
    let deploys = Deploys::new();
    let gate = gate(&deploys, 1);
    let hearth = deploys.serve("request").workers(1).start();
    let mut clients = Vec::new();
    for generation in 2..=3 {
        let client = hearth.begin("/gate");
        clients.push(client);
        assert_reloaded(deploys.reload(), generation);
    }
    let mut third = launch(deploys.reload());
    wait_reloading(&hearth);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!third.has_ended(), "two generations are enough");
    assert_eq!(hearth.get("/").text(), "release 1");
    std::fs::write(gate, "").unwrap();
    assert_eq!(third.wait(LIMIT).code(), Some(0));
    for mut client in clients {
        assert_eq!(client.answer_to("GET").unwrap().text(), "release 1");
    }
}

#[test]
fn watch_mode_reloads_on_a_change() {
    let site = Site::empty();
    let says = |number: u32| site.write("src/number.php", &format!("<?php return {number};"));
    says(1);
    site.write(
        "worker.php",
        "<?php $number = require __DIR__ . '/src/number.php'; while (hearth_handle_request(function () use ($number) {\n\
         file_put_contents(__DIR__ . '/var/seen.txt', 'x', FILE_APPEND); echo $number; })) { }",
    );
    site.write("var/seen.txt", "");
    site.write("vendor/big/library.php", "<?php");
    let hearth = Serve::new(site.path().join("worker.php"))
        .args(&["--model", "snapshot", "--watch"])
        .workers(1)
        .start();
    let wait_for = |number: &str| {
        eventually("the change is served", LIMIT, || hearth.get("/").text() == number);
        eventually("no reload is in progress", LIMIT, || {
            hearth.status()["reloads"]["under_way"] == false
        });
    };
    assert_eq!(hearth.get("/").text(), "1");
    says(2);
    wait_for("2");
    assert!(hearth.log_line("src/number.php changed")["why"].is_string());
    // An error is reported, and the next change fixes it.
    site.write("src/number.php", "<?php this is no PHP");
    assert!(hearth.log_line("reload failed")["reason"].as_str().unwrap().contains("syntax error"));
    assert_eq!(hearth.get("/").text(), "2");
    says(3);
    wait_for("3");
    // New folders are watched. Changes in ignored folders have no effect.
    let reloads = hearth.status()["reloads"]["done"].as_u64().unwrap();
    site.write("vendor/big/library.php", "<?php // changed");
    assert_eq!(hearth.get("/").text(), "3");
    std::fs::create_dir(site.path().join("new")).unwrap();
    eventually("the new folder is seen", LIMIT, || {
        hearth.status()["reloads"]["done"].as_u64().unwrap() > reloads
    });
    let line = hearth.log_line("\"new changed");
    assert!(line["why"].as_str().unwrap().starts_with("new changed"), "{line}");
    site.write("new/file.php", "<?php");
    hearth.log_line("new/file.php changed");
    assert!(!hearth.log().text().contains("vendor/big"), "{}", hearth.log().text());
    assert!(!hearth.log().text().contains("seen.txt"), "{}", hearth.log().text());
}

#[test]
fn realtime_callbacks_use_the_new_release() {
    let deploys = Deploys::new();
    let knows = |number: u32| {
        deploys.answering(
            number,
            &format!(
                "header('Content-Type: application/json'); echo ($_GET['key'] ?? '') === 'key{number}'\n\
                 ? '{{\"id\":\"app{number}\",\"key\":\"key{number}\",\"secret\":\"secret\"}}' : 'null';"
            ),
        );
    };
    knows(1);
    let hearth = deploys.serve("request").args(&["--lookup", "php:/apps"]).workers(1).start();
    let greeted = |key: &str| {
        let mut client = realtime::Client::open(&hearth, key);
        assert_eq!(client.next().0, "pusher:connection_established", "{key}");
        client
    };
    let mut first = greeted("key1");
    knows(2);
    deploys.point_to(2);
    assert_reloaded(deploys.reload(), 2);
    wait_drained(&hearth);
    greeted("key2");
    // The clients are still connected.
    first.send(&json!({"event": "pusher:ping", "data": {}}));
    assert_eq!(first.next().0, "pusher:pong");
}
