//! 20,000 requests: memory and descriptors of the server and its workers do not grow.

use testkit::{Client, ProcessFacts, eventually};

use crate::hearth::{Hearth, LIMIT, Serve, Site};

const REQUESTS: usize = 20_000;
/// Caches are warm after this number of requests.
const WARM: usize = 5_000;
/// Allowed growth of resident memory afterwards in bytes: the allocators' rounding, and less than a byte per request.
const GROWTH: u64 = 1 << 20;

fn ask(client: &mut Client, from: usize, to: usize) {
    let form = [("Content-Type", "application/x-www-form-urlencoded"), ("Cookie", "a=1; b=2")];
    for n in from..to {
        let body = format!("n={n}&list[]=1&list[]=2&text={}", "x".repeat(n % 50));
        let answer = client.request("POST", &format!("/index.php?q={n}"), &form, body.as_bytes());
        let answer = answer.unwrap_or_else(|error| panic!("request {n}: {error}"));
        assert_eq!((answer.status, answer.text()), (200, format!("{n} {n} 2")));
    }
}

fn memory_stays_constant(hearth: &Hearth) {
    let worker = hearth.worker_pid();
    let pids = [hearth.process.pid(), hearth.zygote_pid(), worker];
    let mut client = hearth.connect();
    ask(&mut client, 0, WARM);
    let warm = pids.map(|pid| ProcessFacts::of(pid).unwrap());
    ask(&mut client, WARM, REQUESTS);
    let end = pids.map(|pid| ProcessFacts::of(pid).unwrap());
    assert_eq!(hearth.worker_pid(), worker, "one worker has answered all requests");
    for ((warm, end), who) in warm.iter().zip(&end).zip(["server", "zygote", "worker"]) {
        assert!(end.resident <= warm.resident + GROWTH, "{who}: {warm:?} then {end:?}");
    }
    for ((pid, warm), who) in pids.into_iter().zip(warm).zip(["server", "zygote", "worker"]) {
        // The server briefly opens a file in /proc each second.
        let now = || ProcessFacts::of(pid).unwrap().descriptors;
        eventually(&format!("{who}: no descriptor is left"), LIMIT, || now() <= warm.descriptors);
    }
}

const ANSWER: &str = "{ session_id(); $object = new stdClass(); $object->self = $object; \
    header('X-N: ' . $_GET['q']); setcookie('n', $_GET['q']); \
    echo $_GET['q'], ' ', $_POST['n'], ' ', count($_POST['list']); }";

#[test]
fn twenty_thousand_requests_leave_the_model_request_as_it_was() {
    let site = Site::empty().with_file("public/index.php", &format!("<?php {ANSWER}"));
    let hearth = Serve::new(site.path())
        .args(&["--model", "request", "--log-level", "warn"])
        .workers(1)
        .start();
    memory_stays_constant(&hearth);
}

fn with_worker_script(model: &str) -> (Site, Hearth) {
    let site = Site::empty().with_file(
        "public/worker.php",
        &format!(
            "<?php while (hearth_handle_request(function () {ANSWER})) {{ gc_collect_cycles(); }}"
        ),
    );
    let hearth = Serve::new(site.public().join("worker.php"))
        .args(&["--model", model, "--log-level", "warn"])
        .workers(1)
        .start();
    (site, hearth)
}

#[test]
fn twenty_thousand_requests_leave_the_model_worker_as_it_was() {
    let (_site, hearth) = with_worker_script("worker");
    memory_stays_constant(&hearth);
}

#[test]
fn twenty_thousand_requests_leave_the_model_snapshot_as_it_was() {
    let (_site, hearth) = with_worker_script("snapshot");
    memory_stays_constant(&hearth);
}

#[test]
fn two_thousand_processes_leave_the_server_and_the_zygote_as_they_were() {
    let (_site, hearth) = with_worker_script("fork");
    let pids = [hearth.process.pid(), hearth.zygote_pid()];
    let mut client = hearth.connect();
    ask(&mut client, 0, WARM / 10);
    hearth.wait_idle(1);
    let warm = pids.map(|pid| ProcessFacts::of(pid).unwrap());
    ask(&mut client, WARM / 10, REQUESTS / 10);
    hearth.wait_idle(1);
    for ((pid, warm), who) in pids.into_iter().zip(warm).zip(["server", "zygote"]) {
        let end = || ProcessFacts::of(pid).unwrap();
        let resident = end().resident;
        assert!(resident <= warm.resident + GROWTH, "{who}: {warm:?} then {resident}");
        // The pipes and sockets of the last process that ended may still be open, then as now.
        eventually("no descriptor is left", LIMIT, || end().descriptors <= warm.descriptors);
    }
}
