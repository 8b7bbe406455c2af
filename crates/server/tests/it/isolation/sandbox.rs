//! The sandbox: what it forbids to PHP in every model, and that applications run in it.

use std::path::Path;

use serde_json::Value;
use testkit::{Origin, eventually, routes};

use crate::hearth::{Hearth, LIMIT, Serve, Site, models, of_tier};

/// A script that reports a request's rights as JSON. `pid` is an unrelated process, `other` a file or folder outside.
const PROBE: &str = r"<?php
$status = file_get_contents('/proc/self/status');
preg_match('/^NoNewPrivs:\s+(\d)$/m', $status, $privileges);
preg_match('/^Seccomp:\s+(\d)$/m', $status, $filter);
$pid = (int) ($_GET['pid'] ?? 0);
$other = $_GET['other'] ?? '/nowhere';
exec('unshare --user true 2>&1', $said, $unshared);
exec('chroot / true 2>&1', $said, $changed);
header('Content-Type: application/json');
echo json_encode([
    'pid' => getmypid(),
    'no_new_privs' => $privileges[1],
    'filtered' => $filter[1],
    'namespace' => $unshared === 0,
    'root' => $changed === 0,
    'signals' => posix_kill($pid, 0),
    'memory' => @fopen('/proc/' . $pid . '/mem', 'r') !== false,
    'own_memory' => @fopen('/proc/self/mem', 'r') !== false,
    'reads' => @file_get_contents($other . '/secret') === 'secret',
    'writes' => @file_put_contents($other . '/new', 'x') === 1,
    'truncates' => @fopen($other . '/secret', 'c') !== false,
    'links' => @symlink('/etc/passwd', $other . '/link'),
    'removes' => @unlink($other . '/victim'),
    'storage' => @file_put_contents(__DIR__ . '/../storage/note', 'x') === 1,
]);
";

/// Creates an application with a folder that it may write to.
fn site(model: &str) -> (Site, std::path::PathBuf) {
    let (site, served) = Site::of_scripts_in(model);
    site.write("public/probe.php", PROBE);
    site.write("storage/.keep", "");
    (site, served)
}

fn probe(hearth: &Hearth, pid: u32, other: &Path) -> Value {
    hearth.get(&format!("/probe.php?pid={pid}&other={}", other.display())).json()
}

/// Returns whether this kernel scopes signals (Linux 6.12).
fn scopes_signals() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 12)
}

#[test]
fn php_cannot_leave_its_sandbox_in_any_model() {
    for model in &models() {
        println!("model {model}");
        let (_site, served) = site(model);
        let outside = tempfile::tempdir().unwrap();
        let hearth = Serve::new(&served).args(&["--model", model, "--sandbox"]).workers(1).start();
        for _ in 0..2 {
            let told = probe(&hearth, hearth.process.pid(), outside.path());
            assert_eq!(told["no_new_privs"], "1", "{model}: {told}");
            assert_eq!(told["filtered"], "2", "{model}: {told}");
            for never in ["namespace", "root", "memory"] {
                assert_eq!(told[never], false, "{model}: {never} of {told}");
            }
            assert_eq!(told["signals"], !scopes_signals(), "{model}: {told}");
            // No paths are configured, so file access is unchanged.
            assert_eq!(
                (&told["own_memory"], &told["writes"]),
                (&true.into(), &true.into()),
                "{told}"
            );
            std::fs::remove_file(outside.path().join("new")).unwrap();
            std::fs::remove_file(outside.path().join("link")).unwrap();
        }
    }
}

/// A script that prints the result of `unshare(2)` for some flags as JSON: `CLONE_VM`, `CLONE_FILES`, `CLONE_NEWUSER`,
/// and `CLONE_VM` combined with it.
const UNSHARE: &str = r"<?php
$libc = FFI::cdef('long syscall(long number, ...);');
$number = php_uname('m') === 'x86_64' ? 272 : 97;
header('Content-Type: application/json');
echo json_encode(array_map(
    static fn (int $flags): int => $libc->syscall($number, $flags),
    [0x100, 0x400, 0x10000000, 0x10000100],
));
";

#[test]
fn a_worker_in_a_sandbox_may_ask_whether_it_is_alone_in_its_memory() {
    for model in of_tier(["snapshot", "worker"]) {
        println!("model {model}");
        let (site, served) = site(model);
        site.write("public/unshare.php", UNSHARE);
        let hearth = Serve::new(&served)
            .args(&["--model", model, "--sandbox"])
            .ini("ffi.enable", "1")
            .workers(1)
            .start();
        for _ in 0..2 {
            let told = hearth.get("/unshare.php").json();
            assert_eq!(told, serde_json::json!([0, -1, -1, -1]), "{model}");
        }
    }
}

#[test]
fn php_reads_and_writes_only_its_allowed_paths() {
    for model in &models() {
        println!("model {model}");
        let (site, served) = site(model);
        let outside = tempfile::tempdir().unwrap();
        for name in ["secret", "victim"] {
            std::fs::write(outside.path().join(name), name).unwrap();
        }
        let storage = site.path().join("storage");
        let hearth = Serve::new(&served)
            .model(model)
            .set("HEARTH_SANDBOX_WRITABLE", storage.to_str().unwrap())
            .set("HEARTH_SANDBOX_READABLE", storage.to_str().unwrap())
            .workers(1)
            .start();
        for _ in 0..2 {
            let told = probe(&hearth, hearth.process.pid(), outside.path());
            for never in ["reads", "writes", "truncates", "links", "removes", "memory"] {
                assert_eq!(told[never], false, "{model}: {never} of {told}");
            }
            assert_eq!(told["storage"], true, "{model}: {told}");
        }
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 2);
    }
}

#[test]
fn a_sandboxed_worker_cannot_inspect_or_signal_others() {
    for model in of_tier(["worker", "request", "snapshot"]) {
        println!("model {model}");
        let (_site, served) = site(model);
        let hearth = Serve::new(&served).args(&["--model", model, "--sandbox"]).workers(2).start();
        hearth.wait_idle(2);
        let pids = hearth.worker_pids();
        let told = probe(&hearth, pids[0], Path::new("/nowhere"));
        let asked = told["pid"].as_u64().unwrap();
        let other = *pids.iter().find(|pid| u64::from(**pid) != asked).unwrap();
        // Requests continue until each worker was asked about the other.
        let told = (0..1000)
            .map(|_| probe(&hearth, other, Path::new("/nowhere")))
            .find(|told| told["pid"] == asked)
            .unwrap();
        assert_eq!(told["memory"], false, "{model}: {told}");
        assert_eq!(told["signals"], !scopes_signals(), "{model}: {told}");
        let zygote = probe(&hearth, hearth.zygote_pid(), Path::new("/nowhere"));
        assert_eq!(zygote["memory"], false, "{model}: {zygote}");
    }
}

#[test]
fn a_missing_sandbox_path_is_named_and_stops_the_start() {
    let (_site, served) = site("request");
    let mut failed = Serve::new(&served).set("HEARTH_SANDBOX_WRITABLE", "/not/there").launch();
    let (status, told) = failed.finish(LIMIT);
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(told.contains("cannot let PHP use /not/there"), "{told}");
    assert!(told.contains("hint: correct `[sandbox]`"), "{told}");
}

#[test]
fn the_zygote_can_inspect_and_end_sandboxed_workers() {
    for model in of_tier(["request", "snapshot"]) {
        println!("model {model}");
        let (site, served) = site(model);
        site.write("public/spin.php", "<?php function spin() { while (true) { } } spin();");
        let hearth = Serve::new(&served)
            .args(&["--model", model, "--sandbox", "--slow", "50ms", "--request-timeout", "1s"])
            .workers(1)
            .start();
        // If the request has not reached its loop, or the zygote has not looked yet, the request is repeated.
        eventually("the loop is seen", LIMIT, || {
            assert_eq!(hearth.get("/spin.php").status, 504, "{model}");
            hearth.status()["pool"]["slow"].to_string().contains("spin() at ")
        });
    }
}

#[test]
fn sandboxed_php_calls_through_the_broker() {
    let origin = Origin::plain(routes);
    for model in of_tier(["request", "snapshot"]) {
        println!("model {model}");
        let (site, served) = site(model);
        site.write("public/call.php", "<?php echo file_get_contents($_GET['url']);");
        let storage = site.path().join("storage");
        let hearth = Serve::new(&served)
            .model(model)
            .set("HEARTH_SANDBOX_WRITABLE", storage.to_str().unwrap())
            .set("HEARTH_SANDBOX_READABLE", storage.to_str().unwrap())
            .ini("hearth.intercept_streams", "1")
            .workers(1)
            .start();
        let answer = hearth.get(&format!("/call.php?url={}", origin.url("/bytes/5")));
        assert_eq!(answer.text().len(), 5, "{model}: {}", answer.text());
        let broker = hearth.status()["egress"].clone();
        assert_eq!(broker["calls"], 1, "{model}: {broker}");
    }
}

#[test]
fn each_application_writes_only_into_its_own_folder() {
    const WRITES: &str = r"<?php
    foreach (explode(',', $_GET['into']) as $folder) {
        echo (int) (@file_put_contents($folder . '/note', 'x') === 1);
    }";
    let site = Site::empty();
    for name in ["main", "shop"] {
        site.write(&format!("{name}/public/index.php"), WRITES);
        site.write(&format!("{name}/storage/.keep"), "");
    }
    let toml = r#"
        [sandbox]
        writable = ["storage"]
        [php]
        model = "request"
        workers = 1
        [applications.shop]
        path = "../shop"
        hosts = "shop.test"
    "#;
    site.write("main/hearth.toml", toml);
    let hearth = Serve::new(site.path().join("main")).start();
    let into = ["main/storage", "shop/storage"].map(|name| site.path().join(name));
    let target = format!("/?into={},{}", into[0].display(), into[1].display());
    for (host, expected) in [("main.test", "10"), ("shop.test", "01")] {
        let answer = hearth.connect().request("GET", &target, &[("Host", host)], b"").unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, expected), "{host}");
    }
}
