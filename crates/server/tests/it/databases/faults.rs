//! Passwords that change, core dumps, and connections in the models that restore nothing.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use serde_json::json;
use testkit::{DATABASE_PASSWORD, Database, DatabaseKind, eventually};

use super::lifetime::clients_closed_politely;
use super::{Shop, client, with_extensions};
use crate::hearth::{Hearth, LIMIT, Serve, Site};

#[test]
fn a_changed_password_reaches_every_kept_session() {
    const NEW: &str = "another password";
    for class in ["PdoMysql", "PdoPgsql", "RedisStream"] {
        let client = client(class);
        let secret = tempfile::NamedTempFile::new().unwrap();
        fs::write(secret.path(), DATABASE_PASSWORD).unwrap();
        let environment = |database: &Database| {
            let place = database.address().display().to_string();
            format!("KIND={class};SERVER={place};PASSWORD_FILE={}", secret.path().display())
        };
        let database = Database::start(client.kind);
        let environment = environment(&database);
        let shop = Shop::with(client, database, |serve| {
            serve.set("HEARTH_PHP_ENV", &environment).set("HEARTH_DATABASES_MAX_LIFETIME", "4s")
        });
        let before = shop.get("look");
        assert_eq!(before["kept"], true, "{class}: {}", shop.hearth.log().text());
        fs::write(secret.path(), NEW).unwrap();
        shop.get(&format!("rotate={}", NEW.replace(' ', "%20")));
        // A request gets the old session or a new one, and no error.
        assert_eq!(shop.get("look")["answer"], before["answer"], "{class}");
        eventually("a session with the new password is kept", LIMIT, || {
            let look = shop.get("look");
            look["kept"] == true && look["id"] != before["id"]
        });
        assert_eq!(shop.get("look")["answer"], before["answer"], "{class}");
        let log = shop.hearth.log().text();
        assert!(!log.contains(NEW) && !log.contains(DATABASE_PASSWORD), "{class}: {log}");
    }
}

#[test]
fn an_expired_password_is_reported_once_and_stops_no_worker() {
    let shop = Shop::open(client("PdoMysql"), |serve| {
        serve.set("HEARTH_DATABASES_MAX_LIFETIME", "1s").set("HEARTH_PHP_WORKERS", "2")
    });
    shop.hearth.wait_idle(2);
    shop.get("rotate=another");
    shop.hearth.log_line("a callback of hearth_on_worker_start() failed");
    eventually("no worker has the old session", LIMIT, || {
        shop.hearth.status()["pool"]["databases"]["kept"] == 0
    });
    assert_eq!(shop.hearth.get("/?nothing").text(), "nothing");
    let log = shop.hearth.log().text();
    assert_eq!(log.matches("a callback of hearth_on_worker_start() failed").count(), 1, "{log}");
    assert!(!log.contains(DATABASE_PASSWORD), "{log}");
}

/// The engine sends a Redis client's `AUTH` again after each request, so it has to remember it.
#[test]
fn secrets_are_in_no_core_dump() {
    let shop = Shop::open(client("RedisStream"), |serve| serve);
    assert_eq!(shop.get("look")["kept"], true);
    // Only the engine's memory has both commands in sequence: the client sends them separately.
    let length = DATABASE_PASSWORD.len();
    let remembered = format!(
        "*2\r\n$4\r\nAUTH\r\n${length}\r\n{DATABASE_PASSWORD}\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n2\r\n"
    );
    let pid = shop.hearth.worker_pid();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let (mut dumped, mut left_out) = (0, 0);
    for mapping in mappings(&maps) {
        let mut bytes = vec![0; mapping.len];
        if memory.read_exact_at(&mut bytes, mapping.start).is_err() {
            continue; // not memory: devices, the kernel's own pages
        }
        let found = memchr::memmem::find_iter(&bytes, remembered.as_bytes()).count();
        // VmFlags of proc(5): `dd`, do not include in a core dump
        *if mapping.flags.contains("dd") { &mut left_out } else { &mut dumped } += found;
    }
    assert_eq!(dumped, 0, "a core dump would have it");
    assert!(left_out > 0, "the memory has no such text: the test searches for the wrong one");
}

struct Mapping {
    start: u64,
    len: usize,
    flags: String,
}

/// Parses the mappings in /proc/PID/smaps that can be read and are smaller than a gigabyte.
fn mappings(smaps: &str) -> Vec<Mapping> {
    let mut found: Vec<Mapping> = Vec::new();
    for line in smaps.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if let Some((start, end)) = first.split_once('-')
            && let Ok(start) = u64::from_str_radix(start, 16)
        {
            let end = u64::from_str_radix(end, 16).unwrap();
            let len = usize::try_from(end - start).unwrap();
            found.push(Mapping { start, len, flags: String::new() });
        } else if let Some(flags) = line.strip_prefix("VmFlags: ") {
            flags.clone_into(&mut found.last_mut().unwrap().flags);
        }
    }
    found.retain(|mapping| mapping.flags.contains("rd") && mapping.len < 1 << 30);
    found
}

/// Starts a worker script that keeps one connection to Redis. `?within` uses it, and ends when the test sends a signal.
fn with_redis(database: &Database, settings: &[(&str, &str)]) -> (Site, Hearth) {
    let script = format!(
        "<?php hearth_on_worker_start(function () {{ $redis = new Redis(); $redis->connect('{}'); $redis->auth('{DATABASE_PASSWORD}');\n\
         $GLOBALS['redis'] = $redis; }});\n\
         while (hearth_handle_request(function () {{ if (isset($_GET['within'])) {{ $GLOBALS['redis']->ping(); touch(__DIR__ . '/within');\n\
         for ($i = 0; $i < 4000 && !file_exists(__DIR__ . '/go'); $i++) {{ usleep(5000); }} }} echo getmypid(); }})) {{ }}",
        database.address().display()
    );
    let site = Site::empty().with_file("worker.php", &script);
    let serve = Serve::new(site.path().join("worker.php")).model("snapshot");
    let serve = settings.iter().fold(serve, |serve, (name, value)| serve.set(name, value));
    let hearth = with_extensions(serve)
        .set("HEARTH_DATABASES_RESET_TIMEOUT", "300ms")
        .set("HEARTH_DATABASES_CONNECT_TIMEOUT", "300ms")
        .workers(1)
        .start();
    (site, hearth)
}

fn kept(hearth: &Hearth) -> bool {
    hearth.status()["pool"]["databases"]["kept"] == 1
}

/// A framework's script keeps the connection, and a callback of the application connects again.
#[test]
fn a_connection_reopened_by_a_later_callback_replaces_the_first() {
    let database = Database::start(DatabaseKind::Redis);
    let open = format!(
        "$GLOBALS['redis']->connect('{}'); $GLOBALS['redis']->auth('{DATABASE_PASSWORD}');\n\
         $GLOBALS['kept'][] = hearth_keep_connection($GLOBALS['redis']);",
        database.address().display()
    );
    let script = format!(
        "<?php hearth_on_worker_start(function () {{ $GLOBALS['redis'] = new Redis(); {open} }});\n\
         hearth_on_worker_start(function () {{ $GLOBALS['redis']->close(); {open} }});\n\
         while (hearth_handle_request(function () {{\n\
         echo json_encode([getmypid(), $GLOBALS['kept'], $GLOBALS['redis']->client('id')]); }})) {{ }}"
    );
    let site = Site::empty().with_file("worker.php", &script);
    let serve = Serve::new(site.path().join("worker.php")).model("snapshot");
    let hearth = with_extensions(serve).workers(1).start();
    let first = hearth.get("/").json();
    assert_eq!(first[1], json!([true, true]), "{first}");
    for _ in 0..3 {
        assert_eq!(hearth.get("/").json(), first, "{}", hearth.log().text());
    }
    assert!(kept(&hearth), "{}", hearth.status());
}

/// The database stops between the request's last answer and the answer to the reset.
#[test]
fn an_unanswered_reset_ends_the_worker_and_no_request() {
    let database = Database::start(DatabaseKind::Redis);
    let (site, hearth) = with_redis(&database, &[]);
    eventually("it is kept", LIMIT, || kept(&hearth));
    let answer = std::thread::scope(|scope| {
        let request = scope.spawn(|| hearth.get("/?within").text());
        eventually("it uses it", LIMIT, || site.path().join("within").exists());
        database.pause();
        site.write("go", "");
        request.join().unwrap()
    });
    hearth.log_line("the server did not answer its reset in time");
    // Requests have no connection until the database continues.
    assert_ne!(hearth.get("/").text(), answer);
    database.resume();
    eventually("it is kept again", LIMIT, || kept(&hearth));
    assert_eq!(hearth.status()["pool"]["crashes"], 0);
}

/// No request arrives: the worker itself detects it.
#[test]
fn a_database_that_hangs_while_idle_is_detected_before_a_request() {
    let database = Database::start(DatabaseKind::Redis);
    let (_site, hearth) = with_redis(&database, &[("HEARTH_DATABASES_MAX_IDLE", "100ms")]);
    eventually("it is kept", LIMIT, || kept(&hearth));
    let before = hearth.worker_pid();
    database.pause();
    hearth.log_line("the server did not answer its reset in time");
    eventually("another worker serves", LIMIT, || {
        let pids = hearth.worker_pids();
        pids.len() == 1 && pids != [before]
    });
    database.resume();
    eventually("it is kept again", LIMIT, || kept(&hearth));
}

/// However a request ends, even within a transaction, its own connection is closed in the way of its protocol.
#[test]
fn connections_of_requests_killed_in_a_transaction_are_closed_politely() {
    for (kind, name) in [(DatabaseKind::MariaDb, "mysql"), (DatabaseKind::Postgres, "pgsql")] {
        let database = Database::start(kind);
        let place = if name == "mysql" { "unix_socket" } else { "host" };
        let script = format!(
            "<?php while (hearth_handle_request(function () {{\n\
             $GLOBALS['own'] = $own = new PDO('{name}:{place}={};dbname=shop', 'visitor', '{DATABASE_PASSWORD}');\n\
             $own->beginTransaction(); $own->exec('insert into shop.things (id) values (7)'); echo 'begun';\n\
             match ($_GET['end']) {{ 'exit' => exit, 'fatal' => no_such_function(), 'thrown' => throw new Exception('of a visitor'), default => null }};\n\
             }})) {{ }}",
            database.address().display()
        );
        let site = Site::empty().with_file("worker.php", &script);
        let serve = Serve::new(site.path().join("worker.php")).model("snapshot");
        let hearth = with_extensions(serve).workers(1).start();
        for end in ["exit", "fatal", "thrown", "return"] {
            let answer = hearth.get(&format!("/?end={end}")).text();
            assert!(answer.starts_with("begun"), "{end}: {answer}");
        }
        assert!(hearth.stop().success());
        clients_closed_politely(&database);
    }
}

/// Checks the guide's statements (`databases.md`) about these models.
#[test]
fn a_connection_persists_in_worker_and_is_separate_in_each_fork() {
    for (model, stays) in [("worker", true), ("fork", false)] {
        let database = Database::start(DatabaseKind::MariaDb);
        let site = Site::empty().with_folder("databases");
        let place = database.address().display().to_string();
        let serve = Serve::new(site.path().join("worker.php"))
            .model(model)
            .set("HEARTH_PHP_ENV", &format!("KIND=PdoMysql;SERVER={place}"));
        let hearth = with_extensions(serve).workers(1).start();
        let look = || hearth.get("/?look").json();
        let first = look();
        assert_eq!(first["kept"], stays, "hearth_keep_connection() in {model}");
        hearth.get("/?do=variable");
        let second = look();
        assert_eq!(second["id"] == first["id"], stays, "{model}");
        let left = second["answer"]["mine"] == "secret of a visitor";
        assert_eq!(left, stays, "{model}: what a request leaves in a session");
        assert!(hearth.stop().success());
        clients_closed_politely(&database);
    }
}
