//! State that reaches the next request: none in the model `request`, exactly the application's own state in `worker`.

mod adversary;
mod isolation_effects;
mod isolation_suite;
pub(crate) mod php_user;
pub(crate) mod published_leaks;
mod randomness;
mod sandbox;
pub(crate) mod user;
mod verified_restores;
mod verify;

use std::process::Command;
use std::sync::Barrier;

use serde_json::{Value, json};

use crate::hearth::{Hearth, LIMIT, Serve, Site, models};

const SESSION: &str = "PHPSESSID";

/// Builds `NAME.c` of a site into `NAME.so`.
fn build_library(site: &Site, name: &str, options: &[&str]) {
    let (library, source) = (format!("{name}.so"), format!("{name}.c"));
    let built = Command::new("gcc")
        .args(["-O2", "-shared", "-fPIC"])
        .args(options)
        .args(["-o", &library, &source])
        .current_dir(site.path())
        .status();
    assert!(built.unwrap().success(), "the library is built");
}

/// Returns the session cookie that an answer sets.
fn cookie(answer: &testkit::Answer) -> Option<String> {
    let set = answer.all("set-cookie").into_iter().find(|value| value.starts_with(SESSION))?;
    Some(set.split(';').next().unwrap().to_owned())
}

/// Starts a server whose sessions are in the site's folder.
fn with_sessions(serve: Serve, site: &Site) -> Hearth {
    let folder = site.path().join("sessions");
    std::fs::create_dir_all(&folder).unwrap();
    serve.workers(1).ini("session.save_path", &folder.display().to_string()).start()
}

#[test]
fn a_request_leaves_nothing_behind_in_the_model_request() {
    let site = Site::of_scripts();
    let hearth = Hearth::request(&site);
    let look = || {
        let mut seen = hearth.get("/state.php?look").json();
        seen.as_object_mut().unwrap().remove("pid").unwrap();
        seen
    };
    let clean = look();
    let pid = hearth.worker_pid();
    for _ in 0..3 {
        let changed = hearth.get("/state.php?change").json();
        assert_eq!(changed["pid"], pid);
        assert_ne!(changed["ini"], clean["ini"], "the change took place: {changed}");
        assert_eq!(look(), clean, "after a change");
    }
    // also when the script that changed the state ended with an error
    assert!(hearth.get("/state.php?change&fail").text().contains("undefined function"));
    assert_eq!(look(), clean, "after a fatal error");
    assert_eq!(hearth.worker_pid(), pid);
}

#[test]
fn a_worker_script_gets_per_request_engine_state_restored() {
    let site = Site::of_scripts().with_script("state_worker.php", "../state_worker.php");
    let hearth =
        Serve::new(site.path().join("state_worker.php")).model("worker").workers(1).start();
    let look = || hearth.get("/?look").json();
    let clean = look();
    for round in 1..4 {
        let changed = hearth.get("/?change").json();
        assert_ne!(changed["ini"], clean["ini"], "the change took place: {changed}");
        let seen = look();
        assert_eq!(seen["static"], round);
        for (name, value) in seen.as_object().unwrap() {
            if SHARED.contains(&name.as_str()) {
                assert_ne!(*value, clean[name], "{name} is not shared any more: tell the manual");
            } else {
                assert_eq!(*value, clean[name], "{name} after change {round}");
            }
        }
    }
}

/// The state that requests of one worker script share: the application's memory, and the process's own
/// (docs/guide/models.md).
const SHARED: &[&str] = &[
    "static",
    "global",
    "constant",
    // of PHP
    "autoloaders",
    "context",
    "encoding",
    "env",
    "error handler",
    "exception handler",
    "libxml",
    "timezone",
    "wrapper",
    // of the process
    "directory",
    "environ",
    "getenv",
    "locale",
    "server",
    "umask",
];

#[test]
fn a_worker_scripts_superglobals_belong_to_its_request() {
    let site = Site::empty().with_script("worker.php", "worker.php");
    let hearth = Hearth::worker(&site, "worker.php");
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let full = hearth
        .post("/superglobals?a=1", &[form, ("Cookie", "c=1"), ("X-Secret", "s")], b"p=1")
        .json();
    assert_eq!(full["get"], json!({"a": "1"}));
    assert_eq!(full["post"], json!({"p": "1"}));
    assert_eq!(full["cookie"], json!({"c": "1"}));
    assert_eq!(full["request"], json!({"a": "1", "p": "1"}));
    assert_eq!(full["server"]["HTTP_X_SECRET"], "s");

    let bare = hearth.get("/superglobals").json();
    for name in ["get", "post", "cookie", "files", "request"] {
        assert_eq!(bare[name], json!([]), "{name}");
    }
    assert_eq!(bare["server"].get("HTTP_X_SECRET"), None);
    assert_eq!(bare["server"].get("HTTP_COOKIE"), None);
    assert_eq!(bare["input"], "");
    assert_eq!(bare["filter_get"], Value::Null);
    assert_eq!(bare["headers"].as_object().unwrap().get("X-Secret"), None);
}

#[test]
fn fields_and_status_of_one_request_are_not_in_the_next() {
    let site = Site::empty().with_script("worker.php", "worker.php");
    let hearth = Hearth::worker(&site, "worker.php");
    let first = hearth.get("/headers");
    assert_eq!(
        (first.status, first.field("x-once"), first.field("x-callback")),
        (202, Some("1"), Some("1"))
    );
    for _ in 0..2 {
        let next = hearth.get("/plain");
        assert_eq!(
            (next.status, next.field("x-once"), next.field("x-callback")),
            (200, None, None)
        );
        assert_eq!(next.json()["error"], Value::Null, "error_get_last()");
    }
}

#[test]
fn a_session_belongs_to_its_client_alone() {
    for model in &models() {
        let (site, path) = Site::of_scripts_in(model);
        let hearth = with_sessions(Serve::new(path).model(model), &site);
        let (visit, look) = ("/session.php", "/session_look.php");

        let first = hearth.get(visit);
        let ada = cookie(&first).expect("the client is notified of a new session");
        assert_eq!(first.json()["visits"], 1);
        let again = hearth.connect().request("GET", visit, &[("Cookie", &ada)], b"").unwrap();
        assert_eq!(again.json()["visits"], 2, "{model}: the session was written at the end");
        assert_eq!(cookie(&again), None, "{model}: and not begun again");

        // The next visitor without a cookie sees none of it (GHSA-r3xh-3r3w-47gp, GHSA-v3ph-cgqh-r8p5).
        let stranger = hearth.get(look).json();
        assert_eq!(stranger["id"], "", "{model}: {stranger}");
        assert_eq!(stranger["session"], Value::Null, "{model}: {stranger}");
        assert_eq!(stranger["status"], 1, "{model}: PHP_SESSION_NONE");
        let eve = hearth.get(visit);
        assert_eq!(eve.json()["visits"], 1, "{model}");
        assert_ne!(cookie(&eve).unwrap(), ada, "{model}");
        let ada_again = hearth.connect().request("GET", visit, &[("Cookie", &ada)], b"").unwrap();
        assert_eq!(ada_again.json()["visits"], 3, "{model}");
    }
}

#[test]
fn many_clients_with_sessions_never_see_each_other() {
    const CLIENTS: usize = 8;
    const VISITS: u64 = 25;
    for model in &models() {
        let (site, path) = Site::of_scripts_in(model);
        let folder = site.path().join("sessions");
        std::fs::create_dir_all(&folder).unwrap();
        let hearth = Serve::new(path)
            .model(model)
            .workers(2)
            .ini("session.save_path", &folder.display().to_string())
            .start();
        let visit = "/session.php";
        let together = Barrier::new(CLIENTS);
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    together.wait();
                    let mut client = hearth.connect();
                    let first = client.get(visit).unwrap();
                    let id = first.json()["id"].clone();
                    let cookie = cookie(&first).unwrap();
                    for n in 2..=VISITS {
                        let answer =
                            client.request("GET", visit, &[("Cookie", &cookie)], b"").unwrap();
                        assert_eq!(answer.json(), json!({"id": id, "visits": n}), "{model}");
                    }
                });
            }
        });
    }
}

#[test]
fn a_session_handler_does_not_reach_the_next_request() {
    let site = Site::empty().with_script("worker.php", "worker.php");
    let hearth = with_sessions(Serve::new(site.public().join("worker.php")).model("worker"), &site);
    assert_eq!(hearth.get("/session-handler").json()["module"], "user");
    assert_eq!(
        hearth.get("/session-module").json(),
        json!({"module": "files", "handler": "files"})
    );
    assert_eq!(hearth.get("/session").json()["visits"], 1);
}

#[test]
fn random_numbers_of_two_workers_differ() {
    let site = Site::empty().with_file(
        "public/index.php",
        "<?php echo json_encode([getmypid(), mt_rand(), rand(), bin2hex(random_bytes(8)), lcg_value(), uniqid('', true)]);",
    );
    let hearth = Serve::new(site.path()).model("request").workers(2).start();
    let mut seen = std::collections::BTreeMap::<u64, Vec<Value>>::new();
    let deadline = std::time::Instant::now() + LIMIT;
    // Two concurrent requests need two workers.
    while seen.len() < 2 {
        assert!(std::time::Instant::now() < deadline, "only one worker ever answered");
        std::thread::scope(|scope| {
            let both = [(); 2].map(|()| scope.spawn(|| hearth.get("/").json()));
            for answer in both {
                let mut values = answer.join().unwrap().as_array().unwrap().clone();
                let pid = values.remove(0).as_u64().unwrap();
                seen.entry(pid).or_insert(values);
            }
        });
    }
    let values: Vec<_> = seen.values().collect();
    for (ours, theirs) in values[0].iter().zip(values[1]) {
        assert_ne!(ours, theirs, "forked after the seed");
    }
}
