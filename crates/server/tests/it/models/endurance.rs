//! One worker serves many mixed requests: they leave state behind, end with errors, allocate memory, open files and
//! throw. Its descriptors, mappings and memory do not grow, and every answer is right. Other tests do so while opcache
//! is full or reset, and while workers are killed.
//!
//! `HEARTH_LONG=1` runs ten times as many requests.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pool::Model;
use rustix::process::Signal;
use serde_json::Value;
use testkit::{Client, ProcessFacts, eventually};

use crate::hearth::{LIMIT, OverOnDrop, Serve, Site, each_isolating, isolating, signal};

/// Returns the number of requests.
fn requests(usual: usize) -> usize {
    if std::env::var_os("HEARTH_LONG").is_some() { usual * 10 } else { usual }
}

/// Pseudo-random numbers, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

/// Each kind of request, and the status of its answer.
const KINDS: &[(&str, u16)] = &[
    ("state", 200),
    ("state", 200),
    ("state", 200),
    ("memory", 200),
    ("huge", 200),
    ("objects", 200),
    ("files", 200),
    ("sockets", 200),
    ("session", 200),
    ("fibers", 200),
    ("autoload", 200),
    ("declare", 200),
    ("regex", 200),
    ("xml", 200),
    ("database", 200),
    ("settings", 200),
    ("output", 200),
    ("exit", 200),
    ("exception", 500),
    ("fatal", 500),
    ("out-of-memory", 500),
];

/// Sends one request of the mix and compares the whole answer.
fn ask(client: &mut Client, kind: &str, status: u16, n: usize) {
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let body = format!("n={n}");
    let answer = client.request("POST", &format!("/?kind={kind}&n={n}"), &form, body.as_bytes());
    let answer = answer.unwrap_or_else(|error| panic!("request {n} ({kind}): {error}"));
    assert_eq!(answer.status, status, "request {n} ({kind}): {}", answer.text());
    if status == 200 {
        // The second number counts the requests that this memory has served: always one.
        assert_eq!(answer.text(), format!("{kind} {n} {n} 1"), "request {n}");
    }
}

#[test]
fn ten_thousand_mixed_requests_leave_a_restored_worker_as_it_was() {
    if !isolating().contains(&Model::Snapshot) {
        return;
    }
    let site = Site::empty().with_folder("endurance");
    let hearth = Serve::new(site.path().join("worker.php"))
        .model("snapshot")
        .workers(1)
        .ini("session.save_path", &site.path().display().to_string())
        .args(&["--log-level", "error"])
        .start();
    let worker = hearth.worker_pid();
    let mut client = hearth.connect();
    let mut numbers = Numbers(1);
    let mut mixed = |from: usize, to: usize| {
        for n in from..to {
            // All kinds in turn at first, then in any order.
            let at =
                if n < 10 * KINDS.len() { n % KINDS.len() } else { numbers.below(KINDS.len()) };
            let (kind, status) = KINDS[at];
            ask(&mut client, kind, status, n);
        }
    };
    let (warm, all) = (2_000, requests(10_000));
    mixed(0, warm);
    let before = ProcessFacts::of(worker).unwrap();
    mixed(warm, all);
    let after = ProcessFacts::of(worker).unwrap();
    assert_eq!(hearth.worker_pid(), worker, "one worker has answered all requests");
    println!("{before:?} then {after:?}");
    assert_eq!(after.descriptors, before.descriptors);
    assert_eq!(after.mappings, before.mappings);
    assert!(after.resident <= before.resident + (2 << 20), "{before:?} then {after:?}");
    let pool = &hearth.status()["pool"];
    assert_eq!((&pool["crashes"], &pool["recycled"]), (&0.into(), &0.into()), "{pool}");
}

#[test]
fn a_thousand_mixed_requests_to_one_shot_models_are_correct() {
    let site = Site::empty().with_folder("endurance");
    let hearth = Serve::new(site.path().join("worker.php"))
        .model("fork")
        .workers(2)
        .ini("session.save_path", &site.path().display().to_string())
        .args(&["--log-level", "error"])
        .start();
    let pids = [hearth.process.pid(), hearth.zygote_pid()];
    let mut numbers = Numbers(2);
    let mut client = hearth.connect();
    let mut mixed = |from: usize, to: usize| {
        for n in from..to {
            let (kind, status) = KINDS[numbers.below(KINDS.len())];
            ask(&mut client, kind, status, n);
        }
        hearth.wait_idle(2);
        pids.map(|pid| ProcessFacts::of(pid).unwrap())
    };
    let before = mixed(0, 200);
    let after = mixed(200, requests(1_000));
    for (((pid, before), after), who) in
        pids.into_iter().zip(&before).zip(&after).zip(["server", "zygote"])
    {
        // The connection of the status request may still be closing.
        eventually("no descriptor is left", LIMIT, || {
            ProcessFacts::of(pid).unwrap().descriptors <= before.descriptors
        });
        assert!(after.resident <= before.resident + (1 << 20), "{who}: {before:?} then {after:?}");
    }
    assert_eq!(hearth.status()["pool"]["crashes"], 0);
}

const CLASSES: usize = 300;

/// Prints a value of a class, or resets opcache.
const ANSWER: &str = "<?php
spl_autoload_register(static function (string $class): void { require __DIR__ . \"/classes/$class.php\"; });
return static function (): void {
    if (isset($_GET['reset'])) { echo 'reset'; opcache_reset(); return; }
    $class = 'C' . $_GET['n'];
    echo (new $class())->tell();
};
";

/// Writes 300 classes in separate files; the request that names a class loads it.
fn with_classes(site: Site) -> Site {
    for n in 0..CLASSES {
        let parent = if n % 10 == 0 { String::new() } else { format!(" extends C{}", n - n % 10) };
        let mut text = format!(
            "<?php\nclass C{n}{parent} {{\n    const N = {n};\n    public static int $count = 0;\n    private array $list = [{n} => 'n'];\n"
        );
        write!(
            text,
            "    public function tell(): string {{ static $calls = 0; self::$count++; $calls++; return self::N . \" $calls \" . self::$count . ' ' . match (true) {{ isset($this->list[{n}]) => 'whole', default => 'broken' }}; }}\n}}\n"
        )
        .unwrap();
        site.write(&format!("classes/C{n}.php"), &text);
    }
    site.with_file("answer.php", ANSWER)
        .with_file("worker.php", "<?php $answer = require __DIR__ . '/answer.php'; while (hearth_handle_request($answer)) { }")
        .with_file("public/index.php", "<?php (require dirname(__DIR__) . '/answer.php')();")
}

/// Clients request classes while `disturb` runs, and until `disturbed` is true. Returns the number of answers and of
/// lost requests.
fn under_load(
    serve: Serve,
    requests: usize,
    disturb: impl Fn(&crate::hearth::Hearth) + Sync,
    disturbed: impl Fn() -> bool + Sync,
) -> (usize, usize) {
    let hearth = serve.args(&["--log-level", "error"]).start();
    hearth.wait_idle(2);
    let over = AtomicBool::new(false);
    let (asked, whole, lost) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                disturb(&hearth);
            }
        });
        let _over = OverOnDrop(&over);
        let clients: Vec<_> = (0..3_u64)
            .map(|seed| {
                let (hearth, asked, whole, lost) = (&hearth, &asked, &whole, &lost);
                let disturbed = &disturbed;
                scope.spawn(move || {
                    let mut numbers = Numbers(seed);
                    let mut client = hearth.connect();
                    while asked.fetch_add(1, Ordering::Relaxed) < requests || !disturbed() {
                        let n = numbers.below(CLASSES);
                        let answer = client.get(&format!("/?n={n}")).unwrap();
                        match answer.status {
                            200 => {
                                assert_eq!(answer.text(), format!("{n} 1 1 whole"));
                                whole.fetch_add(1, Ordering::Relaxed);
                            }
                            502 | 503 => {
                                lost.fetch_add(1, Ordering::Relaxed);
                            }
                            other => panic!("{other}: {}", answer.text()),
                        }
                        if answer.field("connection") == Some("close") {
                            client = hearth.connect();
                        }
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
    });
    (whole.into_inner(), lost.into_inner())
}

fn loaded(model: Model, site: &Site) -> Serve {
    let script = site.path().join("worker.php");
    let path = if model.runs_worker_script() { script.as_path() } else { site.path() };
    Serve::new(path).model(model.name()).workers(2)
}

/// The models with resident workers, and `fork`.
fn loadable() -> impl Iterator<Item = Model> {
    let models = each_isolating().into_iter();
    models.filter(|model| matches!(model, Model::Request | Model::Fork | Model::Snapshot))
}

#[test]
fn no_answer_is_wrong_while_opcache_is_full() {
    for model in loadable() {
        let site = with_classes(Site::empty());
        let serve = loaded(model, &site)
            .ini("opcache.memory_consumption", "8")
            .ini("opcache.interned_strings_buffer", "1")
            .ini("opcache.max_accelerated_files", "200")
            .ini("opcache.force_restart_timeout", "1");
        let (whole, lost) = under_load(
            serve,
            requests(600),
            |_| std::thread::sleep(Duration::from_millis(50)),
            || true,
        );
        assert_eq!((whole, lost), (requests(600), 0), "{model:?}");
    }
}

#[test]
fn no_answer_is_wrong_while_opcache_is_emptied() {
    for model in loadable() {
        let site = with_classes(Site::empty());
        let (whole, lost) = under_load(
            loaded(model, &site),
            requests(600),
            |hearth| {
                assert_eq!(hearth.get("/?reset").status, 200);
                std::thread::sleep(Duration::from_millis(20));
            },
            || true,
        );
        assert_eq!((whole, lost), (requests(600), 0), "{model:?}");
    }
}

#[test]
fn no_answer_is_wrong_while_workers_are_killed() {
    for model in loadable() {
        let site = with_classes(Site::empty());
        let (began, killed) = (Instant::now(), AtomicUsize::new(0));
        let (whole, lost) = under_load(
            loaded(model, &site),
            requests(600),
            |hearth| {
                // If a worker dies before it is ready, the pool pauses as after a boot that failed.
                let status = hearth.status();
                let workers = status["pool"]["workers"].as_array().unwrap();
                let ready =
                    |worker: &&Value| worker["state"] == "idle" || worker["state"] == "busy";
                let ready: Vec<_> = workers.iter().filter(ready).collect();
                if let [first, _] = *ready {
                    let pid = u32::try_from(first["pid"].as_u64().unwrap()).unwrap();
                    if pid != 0 {
                        signal(pid, Signal::KILL);
                        killed.fetch_add(1, Ordering::Relaxed);
                    }
                }
                std::thread::sleep(Duration::from_millis(30));
            },
            || killed.load(Ordering::Relaxed) > 0 || began.elapsed() > LIMIT,
        );
        let killed = killed.into_inner();
        assert!(whole > 100 && killed > 0, "{model:?}: {whole} answered, {killed} killed");
        assert!(lost <= killed, "{model:?}: {lost} requests lost to {killed} killed workers");
    }
}
