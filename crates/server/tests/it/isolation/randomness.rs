//! Random numbers never repeat, neither between requests nor between workers, although all workers start with the same
//! memory. tests/php/randomness draws from every generator, also at boot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use pool::Model;
use serde_json::{Map, Value};

use crate::hearth::{LIMIT, Serve, Site, isolating};

/// Generators whose seed has 32 bits. In 1,000 requests, one repeat happens in one of some 8,000 runs, and two
/// practically never. A generator that is not seeded again repeats in nearly every request.
const SMALL: &[&str] = &["mt_rand", "rand", "shuffle", "array_rand", "str_shuffle", "lcg_value"];
/// The generator of ext-gmp. Its seeds differ in 20 bits within a second in one process (`GENERATE_SEED()`,
/// `ext/standard/php_lcg.h` of PHP 8.2), so some runs have a repeat, as they would under php-fpm.
const SMALLER: &str = "gmp_";

fn never_repeats(model: Model, requests: usize) {
    let site = Site::empty().with_folder("randomness");
    let script = site.path().join("worker.php");
    let path = if model.runs_worker_script() { script.as_path() } else { site.path() };
    let seed = if model.boots_in_zygote() { "SEED=1" } else { "SEED=" };
    let hearth = Serve::new(path)
        .model(model.name())
        .workers(3)
        .ini("ffi.enable", "1")
        .set("HEARTH_PHP_ENV", seed)
        .start();
    hearth.wait_idle(3);
    let drawn = Mutex::new(Vec::new());
    let asked = AtomicUsize::new(0);
    let (began, pids) = (Instant::now(), Mutex::new(BTreeSet::new()));
    // A single client gets the same worker every time, so the clients continue until two workers have answered.
    let alone = || pids.lock().unwrap().len() < 2 && began.elapsed() < LIMIT;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = hearth.connect();
                while asked.fetch_add(1, Ordering::Relaxed) < requests || alone() {
                    let answer = client.get("/").unwrap();
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    let numbers: Map<String, Value> = serde_json::from_slice(&answer.body).unwrap();
                    pids.lock().unwrap().insert(numbers["pid"].to_string());
                    drawn.lock().unwrap().push(numbers);
                }
            });
        }
    });
    let drawn = drawn.into_inner().unwrap();
    assert!(drawn.len() >= requests, "{} answers", drawn.len());
    let mut kinds = BTreeMap::<&str, BTreeSet<String>>::new();
    for numbers in &drawn {
        for (kind, number) in numbers {
            kinds.entry(kind).or_default().insert(number.to_string());
        }
    }
    let pids = kinds.remove("pid").unwrap().len();
    assert!(pids > 1, "several workers have answered");
    assert!(kinds.len() >= 19, "{:?}", kinds.keys());
    // Repeats grow with the square, and a busy machine takes more requests until a second worker answers.
    let count = drawn.len();
    let thousands = (count / 1000).max(1);
    for (kind, different) in kinds {
        let repeats = count - different.len();
        let allowed = match kind {
            kind if kind.starts_with(SMALLER) => 3 * thousands * thousands,
            kind if SMALL.contains(&kind) => 1 + count / 5000,
            _ => 0,
        };
        let name = model.name();
        assert!(repeats <= allowed, "{name}: {kind} repeats {repeats} times in {count} requests");
    }
}

#[test]
fn random_numbers_never_repeat_in_a_thousand_requests_after_restores() {
    if isolating().contains(&Model::Snapshot) {
        never_repeats(Model::Snapshot, 1000);
    }
}

#[test]
fn random_numbers_never_repeat_in_a_thousand_requests_of_forks() {
    never_repeats(Model::Fork, 1000);
}

#[test]
fn random_numbers_never_repeat_in_the_other_models() {
    never_repeats(Model::Request, 300);
    never_repeats(Model::Worker, 300);
    never_repeats(Model::Spawn, 150);
    never_repeats(Model::Prespawn, 150);
}
