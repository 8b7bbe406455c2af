//! Memory of PHP's processes: each page counted once, and how many workers fit.

use std::process::Command;
use std::time::Duration;

use pool::Model;
use serde_json::Value;
use testkit::{eventually, head};

use crate::hearth::{Hearth, LIMIT, Serve, Site, command, isolating};

/// The boot holds 16 MB.
const BOOTED: &str = "<?php $kept = []; for ($i = 0; $i < 16; $i++) { $kept[] = str_repeat('x', 1 << 20); } \
                      while (hearth_handle_request(function () { echo 'hello'; })) { }";
const MEGABYTE: u64 = 1 << 20;

fn is_read(hearth: &Hearth) -> Value {
    eventually("memory has been read with every worker", LIMIT, || {
        let pool = &hearth.status()["pool"];
        let workers = pool["workers"].as_array().unwrap();
        pool["memory"]["pss_bytes"].is_u64() && workers.iter().all(|one| one["pss_bytes"].is_u64())
    });
    hearth.status()
}

#[test]
fn process_memory_counts_shared_pages_once() {
    for model in ["snapshot", "worker"] {
        let is_snapshot = model == "snapshot";
        if is_snapshot && !isolating().contains(&Model::Snapshot) {
            continue;
        }
        let site = Site::empty().with_file("worker.php", BOOTED);
        let served = site.path().join("worker.php");
        let hearth = Serve::new(served).model(model).workers(4).start();
        hearth.wait_idle(4);
        assert_eq!(hearth.get("/").text(), "hello");
        let status = is_read(&hearth);
        let (pool, number) = (&status["pool"], |value: &Value| value.as_u64().unwrap());
        let memory = &pool["memory"];
        let workers = pool["workers"].as_array().unwrap();
        let zygotes = memory["zygotes"].as_array().unwrap();
        assert_eq!(zygotes.len(), 1, "{memory}");
        assert_eq!(number(&zygotes[0]["pid"]), u64::from(hearth.zygote_pid()));
        let sum: u64 = workers.iter().chain(zygotes).map(|one| number(&one["pss_bytes"])).sum();
        assert_eq!(number(&memory["pss_bytes"]), sum, "{model}: {pool}");
        let (private, shared) = (number(&memory["private_bytes"]), number(&memory["shared_bytes"]));
        assert_eq!(private + shared, sum, "{model}: {memory}");
        for worker in workers {
            let resident = number(&worker["resident_bytes"]);
            let (pss, own) = (number(&worker["pss_bytes"]), number(&worker["private_bytes"]));
            assert!(own <= pss && pss <= resident, "{model}: {worker}");
            assert_eq!(worker["snapshot"].is_object(), is_snapshot, "{model}: {worker}");
            if is_snapshot {
                let (all, shared) =
                    (&worker["snapshot"]["bytes"], &worker["snapshot"]["shared_bytes"]);
                assert!(
                    number(shared) > 16 * MEGABYTE && number(shared) <= number(all),
                    "{worker}"
                );
            }
        }
        if is_snapshot {
            // A worker copies a page that it changes before its snapshot, so workers use different numbers of the
            // file's pages.
            let used = workers.iter().map(|one| number(&one["snapshot"]["shared_bytes"]));
            assert_eq!(number(&memory["snapshot_shared_bytes"]), used.max().unwrap(), "{memory}");
            // Five processes that share nothing would need 80 MB for the boot alone.
            assert!(shared > 16 * MEGABYTE && sum < 4 * 16 * MEGABYTE, "{memory}");
        } else {
            assert!(memory["snapshot_shared_bytes"].is_null(), "{memory}");
        }
        let footprint = &status["applications"][0]["footprint"];
        let (once, each) = (number(&footprint["once_bytes"]), number(&footprint["each_bytes"]));
        assert!(sum - (once + 4 * each) < 4, "{model}: {footprint} of {sum}");
        let metrics = hearth.admin("/metrics").text();
        for name in
            ["hearth_workers_pss_bytes", "hearth_zygote_pss_bytes", "hearth_workers_shared_bytes"]
        {
            let line = metrics.lines().find(|line| line.starts_with(&format!("{name}{{"))).unwrap();
            let value: f64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
            assert!(value > 0.0, "{line}");
        }
        assert!(hearth.admin("/").text().contains("of which they share"), "{model}");
    }
}

/// Returns the number of workers that fit, and the sentence of `hearth check` with it.
fn fit(check: &mut Command) -> (u64, String) {
    let output = check.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.contains(" workers fit into the ")).map(str::to_owned);
    let line = line.unwrap_or_else(|| panic!("{text}"));
    let number = line.split_once("system: ").unwrap().1.split_once(' ').unwrap().0.parse().unwrap();
    (number, line)
}

#[test]
fn check_reports_how_many_workers_fit() {
    let site = Site::empty().with_file("worker.php", BOOTED);
    let served = site.path().join("worker.php");
    let check = |boots: bool| {
        let mut check = command();
        check.arg("check").arg(&served).args(["--workers", "2", "--listen", "127.0.0.1:0"]);
        check.args(boots.then_some("--boot"));
        check
    };
    let unmeasured = check(false).output().unwrap();
    let unmeasured = String::from_utf8_lossy(&unmeasured.stdout).into_owned();
    assert!(unmeasured.contains("is measured by `hearth check --boot`"), "{unmeasured}");

    let (number, line) = fit(&mut check(true));
    assert!(number > 2 && line.contains("measured with 2 workers in `"), "{line}");
    let mut small = check(true);
    small.env("HEARTH_SNAPSHOT_TRACKER", "none");
    let (_, line) = fit(&mut small);
    assert!(line.contains("in `fork`"), "{line}");

    let hearth = Serve::new(&served).workers(2).start();
    hearth.wait_idle(2);
    is_read(&hearth);
    let (number, line) = fit(&mut check(false));
    let by = format!("measured by the running server, process {}", hearth.process.pid());
    assert!(number > 2 && line.contains(&by), "{line}");
}

#[test]
fn a_memory_limit_below_the_boot_replaces_workers_only_after_a_request() {
    // A worker that boots is looked at, too: twice in this time.
    let slow = format!("<?php sleep(3); ?>{BOOTED}");
    let site = Site::empty()
        .with_file("worker.php", &slow)
        .with_file("public/index.php", "<?php echo 'hello';");
    for (model, served) in [("worker", "worker.php"), ("request", "public")] {
        let served = site.path().join(served);
        let serve = Serve::new(served).model(model).workers(1);
        let hearth = serve.set("HEARTH_PHP_MEMORY_LIMIT", "1MiB").start();
        hearth.log_line("is below what a worker needs before its first request");
        let workers = || hearth.status()["pool"]["workers"].as_array().unwrap().clone();
        let pid = |worker: &Value| worker["pid"].as_u64();
        let first = workers();
        assert_eq!(first.len(), 1, "{model}: {first:?}");
        // Memory is looked at each second.
        std::thread::sleep(Duration::from_millis(2500));
        let now = workers();
        assert_eq!(now.iter().map(pid).collect::<Vec<_>>(), [pid(&first[0])], "{model}");
        assert_eq!(hearth.status()["pool"]["recycled"], 0, "{model}");
        assert_eq!(hearth.get("/").text(), "hello", "{model}");
        eventually("it is replaced after a request", LIMIT, || {
            hearth.status()["pool"]["recycled"] == 1
        });
        let lines = hearth.log().text();
        assert_eq!(lines.matches("is below what a worker needs").count(), 1, "{model}: {lines}");
    }
}

#[test]
fn a_first_request_over_the_memory_limit_is_no_sign_of_a_limit_below_the_boot() {
    // Holds more than the limit until a file exists.
    let holds = "$kept = str_repeat('x', 110 << 20); file_put_contents($_GET['gate'] . '.runs', '');
                 while (!file_exists($_GET['gate'])) { usleep(1000); clearstatcache(); } echo 'done';";
    let worker = format!("<?php while (hearth_handle_request(function () {{ {holds} }})) {{ }}");
    let site = Site::empty()
        .with_file("worker.php", &worker)
        .with_file("public/index.php", &format!("<?php {holds}"));
    for (model, served) in [("worker", "worker.php"), ("request", "public")] {
        let serve = Serve::new(site.path().join(served)).model(model).workers(1);
        let serve = serve.args(&["--ini", "memory_limit=-1"]);
        let hearth = serve.set("HEARTH_PHP_MEMORY_LIMIT", "100MiB").start();
        let gate = site.path().join(format!("gate-{model}"));
        let mut client = hearth.connect();
        client.send(head("GET", &format!("/?gate={}", gate.display()), &[], 0)).unwrap();
        eventually("the limit is exceeded", LIMIT, || {
            let workers = hearth.status()["pool"]["workers"].clone();
            workers[0]["resident_bytes"].as_u64().unwrap() > 100 * MEGABYTE
        });
        // Memory is looked at each second.
        std::thread::sleep(Duration::from_millis(1500));
        std::fs::write(gate, "").unwrap();
        assert_eq!(client.answer_to("GET").unwrap().text(), "done", "{model}");
        let lines = hearth.log().text();
        assert!(!lines.contains("is below what a worker needs"), "{model}: {lines}");
    }
}
