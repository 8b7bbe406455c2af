//! Differences between models: which process answers, what boots and when, and the model that replaces one that cannot
//! run.

mod ahead;
mod browser;
mod crashes;
mod endurance;
mod entry_scripts;
mod fallback;
mod foreign;
mod foreign_limits;
mod kernels;
mod mediawiki;
mod memory;
mod out_of_memory;
mod pauses;
mod preload;
mod recipes;
mod roundcube;
mod scaling;
mod slow;
mod steady;
mod tt_rss;
mod wait_point;
mod warm_up_classes;
mod worker_scripts;

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use pool::Model;
use serde_json::Value;
use testkit::{Answer, eventually};

use crate::hearth::{Hearth, LIMIT, Serve, Site, in_each_model, isolating, of_tier};

const PID: &str = "<?php while (hearth_handle_request(function () { echo getmypid(); })) { }";

/// PHP code that leaves a thread named `exporter` running in its process.
const THREAD: &str = "$c = FFI::cdef('int pthread_create(unsigned long *, void *, void *, void *);\n\
    int pthread_setname_np(unsigned long, const char *); void *dlsym(void *, const char *);', 'libc.so.6');\n\
    $id = $c->new('unsigned long'); $c->pthread_create(FFI::addr($id), null, $c->dlsym(null, 'pause'), null);\n\
    $c->pthread_setname_np($id->cdata, 'exporter');\n";

/// The header fields of an answer that come from PHP, with their names in lower case.
fn fields_of_php(answer: &Answer) -> Vec<(String, &str)> {
    const OF_SERVER: &[&str] = &[
        "connection",
        "content-encoding",
        "content-length",
        "date",
        "keep-alive",
        "server",
        "transfer-encoding",
        "vary",
        "x-request-id",
    ];
    let fields = answer.fields.iter();
    let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.as_str()));
    fields.filter(|(name, _)| !OF_SERVER.contains(&name.as_str())).collect()
}

fn serve(site: &Site, script: &str, model: &str) -> Serve {
    Serve::new(site.path().join(script)).model(model).workers(1)
}

/// Returns the warnings logged until now, without the warning that PHP runs as root.
fn warnings(hearth: &Hearth) -> Vec<Value> {
    let lines = hearth.log().lines();
    let lines = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let wanted = |line: &Value| line["level"] == "WARN" && line["message"] != "PHP runs as root";
    lines.filter(wanted).collect()
}

/// Returns the scheduling policy of a process, of its first thread.
pub(crate) fn policy(pid: u32) -> i32 {
    const POLICY: usize = 38; // the 41st field of proc(5), the third being the first behind the name
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1;
    fields.split(' ').nth(POLICY).unwrap().parse().unwrap()
}

#[test]
fn workers_of_long_requests_are_scheduled_as_any_process() {
    let script = "<?php $serve = static function (): void { usleep((int) ($_GET['sleep'] ?? 0)); echo 'done'; };
while (frankenphp_handle_request($serve)) {}";
    for model in ["snapshot", "worker"] {
        let site = Site::empty().with_file("worker.php", script);
        let hearth = serve(&site, "worker.php", model).start();
        let mut client = hearth.connect();
        let mut ask = |path: &str| assert_eq!(client.get(path).unwrap().text(), "done");
        let pid = hearth.worker_pid();
        // Eight are known; the next one tells the worker.
        (0..9).for_each(|_| ask("/?sleep=20000"));
        assert_eq!(policy(pid), libc::SCHED_OTHER, "{model}");
        eventually("short requests", LIMIT, || {
            ask("/");
            policy(pid) == libc::SCHED_BATCH
        });
        assert_eq!(hearth.worker_pid(), pid, "{model}: the worker is the same");
    }
}

#[test]
fn a_worker_that_wakes_up_does_not_displace_the_server() {
    for (model, _site, hearth) in in_each_model() {
        eventually("a worker is there", LIMIT, || hearth.worker_pids().len() == 1);
        assert_eq!(policy(hearth.worker_pid()), libc::SCHED_BATCH, "{model}");
        assert_eq!(policy(hearth.process.pid()), libc::SCHED_OTHER, "{model}");
    }
}

#[test]
fn a_scheduling_policy_that_an_operator_chose_stays() {
    for model in of_tier(["snapshot", "worker"]) {
        let (_site, path) = Site::of_scripts_in(model);
        // Only root may choose this one. SCHED_IDLE would get no processor where others are busy.
        let realtime = ["chrt", "--fifo", "1"];
        let may = Command::new(realtime[0]).args(&realtime[1..]).arg("true").output();
        if !may.unwrap().status.success() {
            return;
        }
        let serve = Serve::new(path).model(model).workers(1);
        let hearth = serve.through(&realtime, &[]).start();
        hearth.wait_idle(1);
        assert_eq!(policy(hearth.worker_pid()), libc::SCHED_FIFO, "{model}");
    }
}

#[test]
fn each_one_shot_request_gets_a_process_that_exits_quietly() {
    let site = Site::empty().with_file("public/index.php", "<?php echo getmypid();");
    let site = site.with_file("worker.php", PID);
    for model in of_tier(["spawn", "prespawn", "fork"]) {
        let hearth =
            Serve::new(site.served_in(model, "worker.php")).model(model).workers(2).start();
        let mut client = hearth.connect();
        let mut pids: Vec<String> = (0..20).map(|_| client.get("/").unwrap().text()).collect();
        pids.sort();
        pids.dedup();
        assert_eq!(pids.len(), 20, "{model}");
        hearth.wait_idle(2);
        let pool = &hearth.status()["pool"];
        assert_eq!((&pool["crashes"], &pool["recycled"]), (&0.into(), &0.into()), "{model}");
        assert!(!hearth.log().text().contains("worker.pid"), "{model}: {}", hearth.log().text());
    }
}

#[test]
fn a_boot_ahead_does_not_count_as_request_time() {
    const SCRIPT: &str =
        "<?php $booted = microtime(true); while (hearth_handle_request(function () use ($booted) {
        echo $booted < (float) $_GET['asked'] ? 'ahead' : 'for this request'; })) { }";
    let site = Site::empty().with_file("worker.php", SCRIPT);
    for model in of_tier(["prespawn", "fork", "snapshot"]) {
        let hearth = serve(&site, "worker.php", model).start();
        for _ in 0..2 {
            hearth.wait_idle(1);
            let asked = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
            assert_eq!(hearth.get(&format!("/?asked={asked:.6}")).text(), "ahead", "{model}");
        }
    }
}

#[test]
fn a_booted_application_keeps_the_files_of_its_boot() {
    let old = "<?php function version() { return 'old'; }";
    let site = Site::empty().with_file("version.php", old).with_file(
        "worker.php",
        "<?php require __DIR__ . '/version.php'; while (hearth_handle_request(function () { echo version(); })) { }",
    );
    let ask = |model: &str| {
        site.write("version.php", old);
        let hearth = serve(&site, "worker.php", model).ini("opcache.enable", "0").start();
        hearth.wait_idle(1);
        site.write("version.php", "<?php function version() { return 'new'; }");
        [hearth.get("/").text(), hearth.get("/").text()]
    };
    assert_eq!(ask("snapshot"), ["old", "old"]);
    assert_eq!(ask("fork"), ["old", "old"]);
    assert_eq!(ask("prespawn"), ["old", "new"], "the first had been booted already");
}

#[test]
fn without_a_tracker_the_application_is_forked_for_each_request() {
    let site = Site::empty().with_file("worker.php", PID);
    let script = site.path().join("worker.php");
    let hearth = Serve::new(script).workers(1).set("HEARTH_SNAPSHOT_TRACKER", "none").start();
    assert_eq!(hearth.status()["model"], "fork");
    let [warning] = &warnings(&hearth)[..] else { panic!("{:?}", warnings(&hearth)) };
    assert_eq!((&warning["model"], &warning["instead"]), (&"snapshot".into(), &"fork".into()));
    assert_ne!(hearth.get("/").text(), hearth.get("/").text());
}

#[test]
fn an_application_that_boots_with_threads_runs_as_request() {
    let loops = "while (hearth_handle_request(function () { echo 'loop'; })) { }";
    let site = Site::empty()
        .with_file("public/index.php", "<?php echo 'front controller';")
        .with_file("worker.php", &format!("<?php {THREAD} {loops}"));
    let hearth = Serve::new(site.path()).workers(1).ini("ffi.enable", "1").start();
    assert_eq!(hearth.get("/").text(), "front controller");
    assert_eq!(hearth.status()["model"], "request");
    let [warning] = &warnings(&hearth)[..] else { panic!("{:?}", warnings(&hearth)) };
    assert!(
        warning["why"].as_str().unwrap().contains("threads while it booted (exporter)"),
        "{warning}"
    );

    // The application can boot in each process instead, because that process is not forked afterwards.
    let hearth = serve(&site, "worker.php", "prespawn").ini("ffi.enable", "1").start();
    assert_eq!(hearth.get("/").text(), "loop");
}

#[test]
fn a_request_that_leaves_a_thread_retires_its_worker() {
    let handler = format!("if (isset($_GET['thread'])) {{ {THREAD} }} echo getmypid();");
    let site = Site::empty().with_file(
        "worker.php",
        &format!("<?php while (hearth_handle_request(function () {{ {handler} }})) {{ }}"),
    );
    let hearth = serve(&site, "worker.php", "snapshot").ini("ffi.enable", "1").start();
    let first = hearth.get("/").text();
    assert_eq!(hearth.get("/").text(), first, "one worker, put back after each answer");
    assert_eq!(hearth.get("/?thread").text(), first);
    assert_ne!(hearth.get("/").text(), first);
    eventually("it is counted", LIMIT, || hearth.status()["pool"]["retired"] == 1);
    assert_eq!(hearth.status()["pool"]["crashes"], 0);
    let line = hearth.log_line("worker retired");
    assert!(line["reason"].as_str().unwrap().contains("thread"), "{line}");
    assert_eq!(line["requests"], 3, "{line}");
}

#[test]
fn an_upload_queued_behind_a_retiring_worker_is_answered() {
    let handler = format!(
        "if (isset($_GET['thread'])) {{ {THREAD} }} echo file_get_contents('php://input');"
    );
    let site = Site::empty().with_file(
        "worker.php",
        &format!("<?php while (hearth_handle_request(function () {{ {handler} }})) {{ }}"),
    );
    let hearth = serve(&site, "worker.php", "snapshot").ini("ffi.enable", "1").start();
    let mut client = hearth.connect();
    for round in 1..=10 {
        let body = format!("{round}").repeat(1000 * round);
        assert_eq!(client.get("/?thread").unwrap().status, 200);
        let answer = client.request("POST", "/", &[], body.as_bytes()).unwrap();
        assert_eq!((answer.status, answer.text()), (200, body));
        eventually("it is counted", LIMIT, || hearth.status()["pool"]["retired"] == round);
    }
    assert_eq!(hearth.status()["pool"]["crashes"], 0);
}

#[test]
fn a_snapshot_locates_phps_free_memory() {
    if isolating().contains(&Model::Snapshot) {
        let site = Site::empty().with_file("worker.php", PID);
        let hearth = serve(&site, "worker.php", "snapshot").start();
        assert_eq!(hearth.get("/").text(), hearth.worker_pid().to_string());
        let log = hearth.log().text();
        assert!(!log.contains("keeps its free memory otherwise"), "{log}");
    }
}
