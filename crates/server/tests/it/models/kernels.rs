//! The model `snapshot` if the kernel or a container refuses system calls: the calls it needs, and the model that
//! replaces it without them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use pool::Model;
use rustix::process::Signal;
use serde_json::Value;
use testkit::eventually;

use crate::hearth::{Hearth, LIMIT, Serve, Site, isolating, php_version, refusing, worker_folder};

const COUNT: &str = "<?php $count = 0; while (hearth_handle_request(function () use (&$count) { echo ++$count, ' ', getmypid(); })) { }";

/// Calls that no container's default seccomp profile allows without privileges, and that kernels before 6.7 do not
/// have.
const NOT_NEEDED: &str = "userfaultfd=1,pagemap_scan=25";

fn serve(site: &Site) -> Serve {
    Serve::new(site.path().join("worker.php")).workers(1)
}

fn through(serve: Serve, refused: &str) -> Serve {
    let launcher = refusing(refused);
    serve.through(&launcher.iter().map(|word| &**word).collect::<Vec<_>>(), &[])
}

/// Both answers come from a process that has served no request before.
fn isolated(hearth: &Hearth) -> [String; 2] {
    [(); 2].map(|()| {
        let text = hearth.get("/").text();
        text.strip_prefix("1 ").unwrap_or_else(|| panic!("{text}")).to_owned()
    })
}

fn fallback(hearth: &Hearth) -> Value {
    hearth.log_line("model cannot run here, another takes its place")
}

#[test]
fn snapshot_runs_without_kernel_write_tracking() {
    if !isolating().contains(&Model::Snapshot) {
        return;
    }
    let site = Site::empty().with_file("worker.php", COUNT);
    let hearth = through(serve(&site), NOT_NEEDED).start();
    assert_eq!(hearth.status()["model"], "snapshot");
    let [first, second] = isolated(&hearth);
    assert_eq!(first, second, "one process, put back after each answer");
    assert!(!hearth.log().text().contains("another replaces it"));
    assert!(hearth.stop().success());
}

#[test]
fn fork_replaces_snapshot_without_memfd_create() {
    let site = Site::empty().with_file("worker.php", COUNT);
    let hearth = through(serve(&site), "memfd_create=1").start();
    assert_eq!(hearth.status()["model"], "fork");
    let [first, second] = isolated(&hearth);
    assert_ne!(first, second, "a process for each request");
    let warning = fallback(&hearth);
    assert!(warning["why"].as_str().unwrap().contains("memfd_create"), "{warning}");
    assert!(warning["hint"].as_str().unwrap().contains("memfd_create"), "{warning}");
}

#[test]
fn the_hint_names_the_call_or_limit_that_snapshot_needs() {
    let site = Site::empty().with_file("worker.php", COUNT);
    let hint = |serve: Serve| {
        let hearth = serve.start();
        assert_eq!(hearth.status()["model"], "fork");
        fallback(&hearth)["hint"].as_str().unwrap().to_owned()
    };
    let close_range = hint(through(serve(&site), "close_range=1"));
    assert!(close_range.contains("allow close_range"), "{close_range}");
    let file_size = hint(serve(&site).through(&["prlimit", "--fsize=262144"], &[]));
    assert!(file_size.contains("ulimit -f"), "{file_size}");
}

#[test]
fn reload_tries_snapshot_again_when_memfd_create_is_allowed() {
    if !isolating().contains(&Model::Snapshot) {
        return;
    }
    let name = format!("hearth-worker-{}", php_version());
    let worker = worker_folder().canonicalize().unwrap().join(&name).display().to_string();
    let confined = format!("{} {worker}", refusing("memfd_create=1").join(" "));
    let launcher = format!(
        "#!/bin/sh\nif [ -e \"$0.confined\" ]; then exec {confined} \"$@\"; fi\nexec {worker} \"$@\"\n"
    );
    let site = Site::empty()
        .with_file("worker.php", COUNT)
        .with_file(&format!("lib/{name}"), &launcher)
        .with_file(&format!("lib/{name}.confined"), "");
    let lib = site.path().join("lib");
    fs::set_permissions(lib.join(&name), Permissions::from_mode(0o755)).unwrap();
    let hearth = serve(&site).set("HEARTH_LIB_DIR", lib.to_str().unwrap()).start();
    let status = hearth.status();
    assert_eq!(status["model"], "fork");
    let why = &status["applications"][0]["fallback"]["why"];
    assert!(why.as_str().unwrap().contains("memfd_create"), "{status}");

    fs::remove_file(lib.join(format!("{name}.confined"))).unwrap();
    hearth.process.signal(Signal::HUP);
    eventually("it takes over", LIMIT, || hearth.status()["generation"] == 2);
    let status = hearth.status();
    assert_eq!(status["model"], "snapshot");
    assert!(status["applications"][0]["fallback"].is_null(), "{status}");
    let [first, second] = isolated(&hearth);
    assert_eq!(first, second, "one process, put back after each answer");
}

#[test]
fn fork_replaces_snapshot_under_a_small_file_size_limit() {
    let site = Site::empty().with_file("worker.php", COUNT);
    let hearth = serve(&site).through(&["prlimit", "--fsize=262144"], &[]).start();
    assert_eq!(hearth.status()["model"], "fork");
    assert_ne!(isolated(&hearth)[0], isolated(&hearth)[1]);
    let warning = fallback(&hearth);
    assert!(warning["why"].as_str().unwrap().contains("RLIMIT_FSIZE"), "{warning}");
}

#[test]
fn a_soft_file_size_limit_stays_unchanged() {
    if !isolating().contains(&Model::Snapshot) {
        return;
    }
    let script = "<?php while (hearth_handle_request(function () { echo file_get_contents('/proc/self/limits'); })) { }";
    let site = Site::empty().with_file("worker.php", script);
    let hearth = serve(&site).through(&["prlimit", "--fsize=262144:unlimited"], &[]).start();
    assert_eq!(hearth.status()["model"], "snapshot");
    let limits = hearth.get("/").text();
    let limit = limits.lines().find(|line| line.starts_with("Max file size")).unwrap();
    assert!(limit.contains("262144"), "{limit}");
}

#[test]
fn workers_share_the_memory_of_their_snapshots() {
    if !isolating().contains(&Model::Snapshot) {
        return;
    }
    // The boot holds 32 MB in strings that are too large for the arena's first chunks.
    let script = "<?php $held = []; for ($i = 0; $i < 32; $i++) { $held[] = random_bytes(1 << 20); } \
                  while (hearth_handle_request(function () use ($held) { echo strlen($held[31]); })) { }";
    let site = Site::empty().with_file("worker.php", script);
    let hearth = Serve::new(site.path().join("worker.php")).workers(4).start();
    assert_eq!(hearth.status()["model"], "snapshot");
    hearth.wait_idle(4);
    for _ in 0..20 {
        assert_eq!(hearth.get("/").text(), "1048576");
    }
    hearth.wait_idle(4);
    for pid in hearth.worker_pids() {
        let private = private_kb(pid);
        assert!(private < 16 << 10, "process {pid} has {private} KB for itself");
    }
}

/// Returns the memory that no other process maps, from `/proc/PID/smaps_rollup` (proc(5)).
fn private_kb(pid: u32) -> u64 {
    let path = Path::new("/proc").join(pid.to_string()).join("smaps_rollup");
    let text = fs::read_to_string(path).unwrap();
    let line = text.lines().find(|line| line.starts_with("Private_Dirty:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
