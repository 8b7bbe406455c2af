//! Workers that crash again and again: their address-space layout does not stay the same.

use std::time::Duration;

use testkit::eventually;

use crate::hearth::{Serve, Site};

const CRASH: &str = "<?php posix_kill(getmypid(), 11); sleep(60);";
/// The first address of PHP's engine, a library or PHP's program, which execution chooses at random and forks inherit.
const LAYOUT: &str = "<?php preg_match('/^([0-9a-f]+).*(libphp|bin.php)/m', file_get_contents('/proc/self/maps'), $found); echo $found[1];";

#[test]
fn many_crashes_by_memory_errors_end_an_address_space_layout() {
    // One more than the limit (crates/pool/src/supervisor/crashes.rs), so that none waits for a new worker.
    const WORKERS: usize = 21;
    let (site, path) = Site::of_scripts_in("snapshot");
    site.write("public/crash.php", CRASH);
    site.write("public/layout.php", LAYOUT);
    let hearth = Serve::new(path).model("snapshot").workers(WORKERS).start();
    let first = hearth.get("/layout.php").text();
    assert!(u64::from_str_radix(&first, 16).is_ok(), "{first}");
    for _ in 0..19 {
        assert_eq!(hearth.get("/crash.php").status, 502);
    }
    assert_eq!(hearth.get("/layout.php").text(), first, "forks have one layout");
    assert_eq!(hearth.get("/crash.php").status, 502);
    hearth.log_line("many workers crashed by memory errors");
    eventually("workers with another layout answer", Duration::from_mins(1), || {
        let answer = hearth.get("/layout.php");
        assert_eq!(answer.status, 200);
        answer.text() != first
    });
    assert_eq!(hearth.status()["pool"]["crashes"], 20);
    assert!(hearth.stop().success());
}
