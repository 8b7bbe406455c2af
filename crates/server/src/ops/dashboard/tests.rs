use std::time::Duration;

use pool::{Ending, PoolStatus, Running, SlowRequest, WorkerEnd, WorkerState, WorkerStatus};

use super::*;
use crate::ops::problems::{Level, Problem, Problems};
use crate::ops::status::{OfApplication, Traffic, clients};
use crate::ops::{lifecycle, reloads, workers};
use crate::subsystems::{http, tls};

const HOSTILE: &str = "</td></section><script>alert(1)</script><img src=x onerror='alert(2)'>\"&";

fn worker(state: WorkerState) -> WorkerStatus {
    WorkerStatus {
        application: None,
        pid: 7,
        state,
        requests: 3,
        resident_bytes: 5 << 20,
        pss_bytes: Some(3 << 20),
        private_bytes: None,
        snapshot: None,
        running: None,
    }
}

fn pool_of(workers: Vec<WorkerStatus>) -> PoolStatus {
    PoolStatus { php_version: "8.2.35".into(), requests: 12_345, workers, ..PoolStatus::default() }
}

fn status(pool: Option<PoolStatus>) -> Status {
    let mut status = Status {
        version: "0.1.0",
        pid: 1,
        state: "ready",
        uptime_seconds: 61,
        listeners: vec!["http://127.0.0.1:8080".into()],
        application: Some("an application".into()),
        model: Some("request"),
        generation: Some(1),
        pool,
        ..Status::empty()
    };
    status.problems = problems(&status);
    status
}

/// The problems that all subsystems find in a status.
fn problems(status: &Status) -> Vec<Problem> {
    let mut problems = Problems::default();
    lifecycle::problems_of(status, &mut problems);
    workers::problems_of(status, &mut problems);
    reloads::problems_of(status, &mut problems);
    tls::problems_of(status, &mut problems);
    http::problems_of(status, &mut problems);
    problems.worst_first()
}

fn ended(ending: Ending, seconds_ago: f64, reason: &str) -> WorkerEnd {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let at = now.as_secs_f64() - seconds_ago;
    WorkerEnd { application: None, at, pid: 8, requests: 9, ending, reason: reason.into() }
}

fn traffic(per_second: f64, errors_per_second: f64) -> Traffic {
    Traffic {
        requests: 100,
        errors: 0,
        per_second,
        errors_per_second,
        p50_seconds: Some(0.004_2),
        p95_seconds: Some(0.02),
        p99_seconds: None,
    }
}

#[test]
fn client_supplied_values_are_never_markup() {
    let mut busy = worker(WorkerState::Busy);
    busy.running = Some(Running {
        id: HOSTILE.into(),
        method: HOSTILE.into(),
        path: HOSTILE.into(),
        seconds: 1.0,
    });
    let mut pool = pool_of(vec![busy]);
    pool.ended.push(ended(Ending::Crashed, 1.0, HOSTILE));
    pool.php_version = HOSTILE.into();
    pool.slow.push(SlowRequest {
        application: None,
        at: 1.0,
        id: HOSTILE.into(),
        method: HOSTILE.into(),
        path: HOSTILE.into(),
        model: "request",
        pid: 7,
        seconds: 6.0,
        stack: vec![HOSTILE.into()],
        why: Some(HOSTILE.into()),
    });
    let mut status = status(Some(pool));
    status.application = Some(HOSTILE.into());
    status.listeners = vec![HOSTILE.into()];
    let view = View { status, history: Vec::new() };
    let page = page(&view);
    assert_eq!(page.matches("<script").count(), 1, "its own: {page}");
    assert!(!page.contains("<img") && !page.contains("alert(1)</script>"), "{page}");
    let parts: serde_json::Value = serde_json::from_str(&parts_as_json(&view)).unwrap();
    for (id, part) in parts.as_object().unwrap() {
        let part = part.as_str().unwrap();
        assert!(!part.contains("<script") && !part.contains("<img"), "{id}: {part}");
        assert!(page.contains(&format!("<section id=\"{id}\"")), "{id}");
    }
    assert!(!parts_as_json(&view).contains('\n'));
}

#[test]
fn the_worst_problem_is_first_and_old_ones_expire() {
    assert_eq!(status(Some(pool_of(vec![worker(WorkerState::Idle)]))).problems, []);

    let mut pool = pool_of(vec![worker(WorkerState::Booting)]);
    pool.backlog = 3;
    pool.ended = vec![
        ended(Ending::Crashed, 10.0, "signal 11 (SIGSEGV)"),
        ended(Ending::Crashed, 20.0, "signal 6 (SIGABRT)"),
        ended(Ending::Retired, 20.0, "a thread was left running"),
        ended(Ending::Recycled, 20.0, "max_requests"),
        ended(Ending::TimedOut, 4_000.0, "its request was over the time limit"),
    ];
    let mut status = status(Some(pool));
    status.traffic = Some(traffic(10.0, 2.0));
    let found = problems(&status);
    let texts: Vec<_> = found.iter().map(|problem| (problem.level, &*problem.text)).collect();
    assert_eq!(
        texts,
        [
            (Level::Error, "No worker can take a request."),
            (
                Level::Error,
                "2 workers died in the last five minutes; the last: signal 11 (SIGSEGV)."
            ),
            (Level::Error, "20 % of the last minute's requests failed (status 500 and above)."),
            (Level::Warning, "3 requests wait for a worker: all of them are busy."),
            (
                Level::Warning,
                "1 worker could not be put back in the last five minutes; the last: a thread was left running."
            ),
        ]
    );
    status.traffic = Some(traffic(1_000.0, 1.0));
    assert!(!problems(&status).iter().any(|problem| problem.text.contains('%')));
}

#[test]
fn absent_parts_are_empty() {
    let mut files_only = status(None);
    files_only.traffic = Some(traffic(2.0, 0.0));
    let step = Report {
        seconds: 5.0,
        requests: 10,
        errors: 1,
        p50: Some(Duration::from_millis(4)),
        p95: Some(Duration::from_millis(20)),
        p99: None,
    };
    let page = page(&View { status: files_only, history: vec![step; 3] });
    for id in ["workers", "slow", "ended", "databases", "egress", "websockets", "realtime"] {
        assert!(page.contains(&format!("<section id=\"{id}\"></section>")), "{id}: {page}");
    }
    assert!(page.contains("Nothing is wrong."), "{page}");
    assert!(page.contains("4.2 ms"), "{page}");
    assert_eq!(page.matches("<polyline").count(), 5, "{page}");
}

#[test]
fn an_unrenewed_certificate_is_a_problem_before_it_expires() {
    let with = |days_left| {
        let mut status = status(None);
        status.certificates = vec![crate::ops::status::tls::Status {
            from: "files",
            names: vec!["shop.example".into()],
            not_after: 0,
            days_left,
            stapled: false,
        }];
        problems(&status).into_iter().map(|problem| problem.level).collect::<Vec<_>>()
    };
    assert_eq!(with(30), []);
    assert_eq!(with(6), [Level::Warning]);
    assert_eq!(with(-1), [Level::Error]);
}

#[test]
fn a_failed_certificate_order_is_a_problem_with_its_reason() {
    let with = |held: bool, failure: Option<&str>| {
        let mut status = status(None);
        let certificate = crate::ops::status::tls::Status {
            from: "authority",
            names: vec!["shop.example".into()],
            not_after: 0,
            days_left: 30,
            stapled: false,
        };
        status.certificates = held.then_some(certificate).into_iter().collect();
        status.acme = Some(crate::ops::status::tls::AcmeStatus {
            domains: vec!["shop.example".into()],
            issued: 0,
            failed: 1,
            last_failure: failure.map(str::to_owned),
            next: None,
        });
        problems(&status).pop().map(|problem| (problem.level, problem.text))
    };
    assert_eq!(with(true, None), None);
    assert_eq!(with(false, None).unwrap().0, Level::Warning);
    let (level, text) = with(true, Some("no listener")).unwrap();
    assert_eq!(level, Level::Warning);
    assert!(text.contains("not renewed: no listener"), "{text}");
    assert_eq!(with(false, Some("no listener")).unwrap().0, Level::Error);
}

#[test]
fn problems_name_their_application() {
    let one = |name: &str, ready, backlog| OfApplication {
        name: name.into(),
        claims: vec![format!("{name}.example.com")],
        application: "an application".into(),
        model: Some("request"),
        fallback: None,
        costs: None,
        preload: None,
        pss_bytes: None,
        footprint: None,
        php_version: "8.2.35".into(),
        wanted: 2,
        least: 1,
        most: 3,
        ready,
        busy: 0,
        backlog,
        overloaded: backlog > 0,
        requests: 1234,
        refused: 0,
        crashes: 0,
        timeouts: 0,
        slow_requests: 0,
    };
    let whose = Some("shop".to_owned());
    let pool = pool_of(vec![WorkerStatus { application: whose, ..worker(WorkerState::Idle) }]);
    let mut status = status(Some(pool));
    status.applications = vec![one("main", 0, 0), one(HOSTILE, 1, 2)];
    status.problems = problems(&status);
    let texts: Vec<&str> = status.problems.iter().map(|problem| &*problem.text).collect();
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert_eq!(texts[0], "No worker of `main` can take a request.");
    let page = page(&View { status, history: Vec::new() });
    assert!(page.contains("main.example.com") && page.contains("2 (1 to 3)"), "{page}");
    assert!(page.contains("<td>shop</td>") && !page.contains(HOSTILE), "{page}");
}

#[test]
fn busiest_addresses_are_shown_and_a_refused_one_is_a_problem() {
    let most = vec![clients::Most { address: "203.0.113.7".into(), connections: 9_000 }];
    let mut status = status(None);
    status.clients = Some(clients::Status {
        connections: 9_400,
        limit: 10_000,
        share: 5_000,
        most,
        refused: Some("203.0.113.7".into()),
        limited: [("share", 3), ("idle", 0), ("slow_head", 12)].into(),
        ..clients::Status::default()
    });
    let problems: Vec<String> = problems(&status).into_iter().map(|problem| problem.text).collect();
    assert_eq!(
        problems,
        [
            "Connections of 203.0.113.7 were refused: it has more than its share of 5000 while places are short. \
             If it is a proxy, name it in `http.trusted_proxies`."
        ]
    );
    let page = page(&View { status, history: Vec::new() });
    assert!(page.contains("<td>203.0.113.7</td>"), "{page}");
    let limits =
        "Limits since the start: 3 connections above a share refused, 12 request heads too slow.";
    assert!(page.contains(limits), "{page}");
}
