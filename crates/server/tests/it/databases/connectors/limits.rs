//! Fewer sessions than workers could use, and two generations at once. No client waits for a kept session, and there
//! are never more sessions than the limit. Only the connector can count them, workers cannot.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use testkit::{DATABASE_PASSWORD, DatabaseKind, eventually};

use super::{Setup, connector};
use crate::databases::{Shop, assert_same, with_extensions};
use crate::hearth::{LIMIT, Serve, Site, command};

const CLASSES: &[(&str, DatabaseKind)] = &[
    ("PdoMysql", DatabaseKind::MariaDb),
    ("PdoPgsql", DatabaseKind::Postgres),
    ("PhpRedis", DatabaseKind::Redis),
];

/// In parallel, because one after the other would take too long.
pub(super) fn for_each(check: fn(&str, DatabaseKind)) {
    std::thread::scope(|scope| {
        for &(class, kind) in CLASSES {
            scope.spawn(move || check(class, kind));
        }
    });
}

fn shop(class: &str, kind: DatabaseKind, sessions: usize, workers: &str) -> Shop {
    Setup::new(kind)
        .key(&format!("sessions = {sessions}"))
        .open(class, |serve| serve.set("HEARTH_PHP_WORKERS", workers))
}

pub(super) fn kept(shop: &Shop) -> Value {
    shop.hearth.status()["pool"]["databases"]["kept"].clone()
}

fn reload(shop: &Shop) {
    let told = command().arg("reload").arg(shop.site.path().join("worker.php")).output().unwrap();
    assert!(told.status.success(), "{told:?}\n{}", shop.hearth.log().text());
}

/// A worker's place at its connector is also a file lock.
fn a_request_that_locks_a_file_leaves_the_workers_place_alone(shop: &Shop) {
    let pid = shop.get("lock")["pid"].clone();
    eventually("it serves again, so it was put back", LIMIT, || shop.get("look")["pid"] == pid);
    let held = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().filter(|entry| {
        let entry = entry.as_ref().unwrap();
        let number = entry.file_name().into_string().unwrap();
        fs::read_link(entry.path()).is_ok_and(|file| file.to_string_lossy().ends_with(".places"))
            && fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}"))
                .is_ok_and(|info| info.contains("lock:"))
    });
    assert!(held.count() > 0, "the worker {pid} has lost its slot");
}

/// Runs several clients at once; the session that each of them finds equals `fresh`.
pub(super) fn concurrent_clients_find_only(fresh: &Value, shop: &Shop) {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    assert_same(&shop.get("look"), fresh, "in a crowd");
                }
            });
        }
    });
}

#[test]
fn connections_are_kept_within_the_sandboxs_writable_paths() {
    let (class, kind) = ("PhpRedis", DatabaseKind::Redis);
    let folder = tempfile::tempdir().unwrap();
    let shop = Setup::new(kind)
        .key("sessions = 3")
        .open(class, |serve| serve.set("HEARTH_SANDBOX_WRITABLE", folder.path().to_str().unwrap()));
    shop.use_until_stable();
    eventually("it is kept", LIMIT, || shop.get("look")["kept"] == true);
}

#[test]
fn with_as_many_sessions_as_workers_each_request_borrows_one() {
    for_each(|class, kind| {
        let shop = shop(class, kind, 2, "3");
        shop.hearth.wait_idle(3);
        shop.hearth.log_line("connections through this connector are not kept");
        shop.hearth.log_line("each request borrows one");
        let fresh = shop.get("look");
        assert_eq!(fresh["kept"], false, "{class}");
        let logins = shop.database.logins();
        concurrent_clients_find_only(&fresh, &shop);
        reload(&shop);
        concurrent_clients_find_only(&fresh, &shop);
        let status = connector(&shop);
        assert_eq!(status["refused"], 0, "{class}: {status}");
        assert_eq!(kept(&shop), 0, "{class}");
        // At most the second worker's session was still to be opened; some sessions may have been in doubt.
        let dropped = usize::try_from(status["dropped"].as_u64().unwrap()).unwrap();
        assert!(shop.database.logins() <= logins + 1 + dropped, "{class}: {status}");
    });
}

#[test]
fn a_reload_keeps_sessions_once_the_old_workers_return_theirs() {
    for_each(|class, kind| {
        let shop = shop(class, kind, 3, "2");
        eventually("both are kept", LIMIT, || kept(&shop) == 2);
        let fresh = shop.get("look");
        a_request_that_locks_a_file_leaves_the_workers_place_alone(&shop);
        for _ in 0..2 {
            let old = shop.hearth.worker_pids();
            reload(&shop);
            concurrent_clients_find_only(&fresh, &shop);
            eventually("the new ones keep theirs", LIMIT, || {
                let new = shop.hearth.worker_pids();
                kept(&shop) == 2 && new.len() == 2 && new.iter().all(|pid| !old.contains(pid))
            });
        }
        let status = connector(&shop);
        assert_eq!((&status["refused"], &status["limit"]), (&0.into(), &3.into()), "{class}");
        assert_same(&shop.get("look"), &fresh, class);
    });
}

/// PHP needs no password, so neither its environment nor its memory contains it.
#[test]
fn a_connectors_password_never_reaches_php() {
    let setup = Setup::new(DatabaseKind::Postgres);
    setup.configure();
    let open =
        format!("new PDO('pgsql:host={};dbname=shop', 'visitor', '')", setup.address().display());
    setup.site.write(
        "php.php",
        &format!(
            "<?php hearth_on_worker_start(function () {{ $GLOBALS['client'] = {open}; }});\n\
             while (hearth_handle_request(function () {{ echo $GLOBALS['client']->query('select 42')->fetchColumn(); }})) {{ }}"
        ),
    );
    let serve = Serve::new(setup.site.path().join("php.php")).model("snapshot");
    let hearth = with_extensions(serve).workers(1).start();
    assert_eq!(hearth.get("/").text(), "42", "{}", hearth.log().text());
    let encoded = DATABASE_PASSWORD.replace(' ', "%20");
    for pid in [hearth.worker_pid(), hearth.zygote_pid()] {
        let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let mut read = 0;
        for line in maps.lines() {
            let (start, rest) = line.split_once('-').unwrap();
            let (end, rest) = rest.split_once(' ').unwrap();
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            let len = usize::try_from(number(end) - number(start)).unwrap();
            // Only the process's own writable memory could hold the password.
            if !rest.starts_with("rw-p") || len >= 1 << 26 {
                continue;
            }
            let mut bytes = vec![0; len];
            if memory.read_exact_at(&mut bytes, number(start)).is_err() {
                continue;
            }
            read += len;
            for secret in [DATABASE_PASSWORD, &encoded] {
                assert!(memchr::memmem::find(&bytes, secret.as_bytes()).is_none(), "{line}");
            }
        }
        assert!(read > 1 << 20, "no memory was read");
    }
    for told in [hearth.log().text(), hearth.admin("/status").text(), hearth.admin("/").text()] {
        assert!(!told.contains(DATABASE_PASSWORD) && !told.contains(&encoded), "{told}");
    }
}

#[test]
fn check_reports_what_the_session_limit_allows() {
    let site = Site::empty()
        .with_file("worker.php", "<?php while (hearth_handle_request(function () {})) {}");
    for (model, sessions, expected) in [
        ("snapshot", 1, Some("has 1 session for 3 workers: connections are not kept")),
        ("snapshot", 3, Some("has 3 sessions for 3 workers: connections are not kept")),
        ("snapshot", 4, None),
        ("worker", 2, Some("has 2 sessions for 3 workers: a client without a free one waits 5s")),
        ("worker", 3, None),
    ] {
        site.write(
            "hearth.toml",
            &format!(
                "[php]\nmodel = '{model}'\nworkers = 3\n\
                 [databases.connectors.main]\nurl = 'mysql://shop@127.0.0.2:9/shop'\nsessions = {sessions}\n"
            ),
        );
        let told = command().arg("check").arg(site.path().join("worker.php")).output().unwrap();
        let told = [told.stdout, told.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        let found = told.lines().find(|line| line.contains("for 3 workers"));
        match expected {
            Some(expected) => assert!(found.is_some_and(|line| line.contains(expected)), "{told}"),
            None => assert_eq!(found, None, "{told}"),
        }
        let each = "each of 3 workers keeps its connections through it, where it opens 1 or fewer; `sessions = 8` for 2";
        assert_eq!(told.contains(each), (model, sessions) == ("snapshot", 4), "{told}");
        assert!(told.contains("cannot connect to 127.0.0.2:9"), "{told}");
    }
}

/// The lock file by which the workers of a connector count their places, found through a worker that keeps a session.
fn places_of(worker: u32) -> PathBuf {
    let files = fs::read_dir(format!("/proc/{worker}/fd")).unwrap();
    let mut files = files.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    files.find(|file| file.to_string_lossy().ends_with(".places")).unwrap()
}

#[test]
fn session_slots_that_cannot_be_opened_are_reported_with_the_reason() {
    let shop = shop("PhpRedis", DatabaseKind::Redis, 3, "1");
    assert_eq!(shop.get("look")["kept"], true);
    let pid = shop.hearth.worker_pid();
    let places = places_of(pid);
    fs::remove_file(&places).unwrap();
    fs::create_dir(&places).unwrap();
    shop.get("do=close");
    shop.hearth.log_line("the places of its connector cannot be opened: Is a directory");
    assert_eq!(shop.get("look")["kept"], false);
}

/// A worker needs its kept session and a borrowed one at the same time. If all sessions but one were kept, it would
/// wait for itself.
#[test]
fn a_worker_gets_a_session_for_each_connection_it_may_not_keep() {
    const OPEN: &str = "function open() { $redis = new Redis(); $redis->connect('SOCKET'); $redis->ping(); return $redis; }\n\
        function kept() { $redis = open(); if (hearth_keep_connection($redis)) { return $redis; } LEFT return null; }\n";
    // Four cases. Both workers keep all three. Each keeps two. None is kept. All are kept, and the new workers of a
    // reload keep theirs only later. With four sessions, each keeps one, and the others are refused and closed.
    let cases = [
        (9, 3, 6, ""),
        (8, 3, 4, ""),
        (3, 3, 0, ""),
        (12, 3, 6, "$GLOBALS['left'][] = $redis;"),
        (7, 4, 2, ""),
    ];
    for (sessions, opened, expected, left) in cases {
        let setup = Setup::new(DatabaseKind::Redis).key(&format!("sessions = {sessions}"));
        setup.configure();
        let script = format!(
            "<?php {} hearth_on_worker_start(function () {{ for ($i = 0; $i < {opened}; $i++) {{ $GLOBALS['all'][] = kept(); }} }});\n\
             while (hearth_handle_request(function () {{\n\
             $all = array_map(fn ($redis) => $redis ?? open(), $GLOBALS['all']);\n\
             foreach ($all as $redis) {{ $redis->ping(); }} echo getmypid(); }})) {{ }}",
            OPEN.replace("SOCKET", setup.address().to_str().unwrap()).replace("LEFT", left)
        );
        setup.site.write("php.php", &script);
        let script = setup.site.path().join("php.php");
        let serve = Serve::new(&script).model("snapshot");
        let hearth = with_extensions(serve).workers(2).start();
        // The first two workers may have kept too many; they are replaced.
        hearth.wait_idle(2);
        let kept = || hearth.status()["pool"]["databases"]["kept"] == expected;
        eventually("as many are kept", LIMIT, kept);
        for _ in 0..2 {
            for _ in 0..20 {
                let answer = hearth.get("/");
                assert_eq!(answer.status, 200, "{sessions}: {}", hearth.log().text());
            }
            let status = hearth.status()["connectors"][0].clone();
            assert_eq!(status["refused"], 0, "{sessions}: {status}");
            let told = command().arg("reload").arg(&script).output().unwrap();
            assert!(told.status.success(), "{told:?}\n{}", hearth.log().text());
        }
        eventually("as many are kept again", LIMIT, kept);
        if expected > 0 {
            let wanted = fs::read(places_of(hearth.worker_pids()[0])).unwrap()[0];
            assert_eq!(wanted, opened, "{sessions}: no client needed more");
        }
    }
}

/// Each of two workers opens two connections through one connector, which has places for half of them. No worker is
/// replaced for a place that never becomes free.
#[test]
fn workers_stay_unchanged_when_too_few_session_slots_exist() {
    let setup = Setup::new(DatabaseKind::Redis).key("sessions = 5");
    setup.configure();
    let socket = setup.address();
    let open = format!(
        "foreach (['a', 'b'] as $name) {{ $redis = new Redis(); $redis->connect('{}'); $redis->ping();\n\
         $GLOBALS[$name] = hearth_keep_connection($redis) ? $redis : null; }}",
        socket.display()
    );
    setup.site.write(
        "php.php",
        &format!(
            "<?php hearth_on_worker_start(function () {{ {open} }});\n\
             while (hearth_handle_request(function () {{ echo getmypid(); }})) {{ }}"
        ),
    );
    let serve = Serve::new(setup.site.path().join("php.php")).model("snapshot");
    let hearth = with_extensions(serve).workers(2).start();
    hearth.wait_idle(2);
    let pids = hearth.worker_pids();
    // This is longer than the interval at which workers check for a free place.
    std::thread::sleep(Duration::from_secs(3));
    hearth.get("/");
    assert_eq!(hearth.worker_pids(), pids, "{}", hearth.log().text());
    let pool = hearth.status()["pool"].clone();
    assert_eq!((&pool["databases"]["kept"], &pool["recycled"]), (&2.into(), &0.into()), "{pool}");
    // A worker that ends frees its places, and the next worker gets them.
    crate::hearth::signal(pids[0], rustix::process::Signal::KILL);
    eventually("as many are kept as before", LIMIT, || {
        let pool = hearth.status()["pool"].clone();
        pool["databases"]["kept"] == 2 && !hearth.worker_pids().contains(&pids[0])
    });
}

#[test]
fn a_failed_reload_leaves_the_session_slots_unchanged() {
    const GOOD: &str = "<?php while (hearth_handle_request(function () { echo 'good'; })) { }";
    let url = "redis://127.0.0.1:1?sslmode=disable";
    let connector = format!("[databases.connectors.main]\nurl = '{url}'\nsessions = 3\n");
    let with = |workers: usize| format!("[php]\nworkers = {workers}\n{connector}");
    let run_dir = tempfile::tempdir().unwrap();
    let site = Site::empty().with_file("hearth.toml", &with(2)).with_file("worker.php", GOOD);
    let script = site.path().join("worker.php");
    let hearth = Serve::new(&script)
        .args(&["--model", "worker", "--run-dir", run_dir.path().to_str().unwrap()])
        .start();
    let file = format!("databases/main.{}.places", hearth.process.pid());
    let places = || fs::metadata(run_dir.path().join(&file)).unwrap().len();
    let reloads = || {
        let mut told = command();
        told.args(["reload", "--run-dir", run_dir.path().to_str().unwrap()]).arg(&script);
        told.status().unwrap().success()
    };
    assert_eq!(places(), 2);
    site.write("hearth.toml", &with(3));
    site.write(
        "worker.php",
        "<?php throw new LogicException('half a deploy'); hearth_handle_request();",
    );
    assert!(!reloads());
    assert_eq!(places(), 2);
    site.write("worker.php", GOOD);
    assert!(reloads());
    assert_eq!(places(), 0, "as many workers as sessions: none is kept");
}
