//! An application that damages its own process in every way that PHP, FFI and a C library allow (tests/php/adversary).
//! In the model `snapshot` the next request finds none of it. Damage that cannot be undone costs the worker, never the
//! next request.

use pool::Model;
use testkit::eventually;

use crate::hearth::{Hearth, LIMIT, Serve, Site, isolating};

/// Damage that cannot be undone, or not exactly: the worker is replaced after the answer.
const RETIRING: &[&str] = &[
    "change_limit",
    "change_nice",
    "close_boot",
    "leave_thread",
    "map_over",
    "map_over_raw",
    "php_handle_closed",
    "replace_boot",
    "unmap_boot",
];

/// Damage that PHP answers with an error.
const FAILING: &[&str] = &["php_exception", "php_fatal", "php_memory_limit"];

#[derive(Debug)]
struct Adversary {
    hearth: Hearth,
    clean: String,
    _site: Site,
}

impl Adversary {
    /// Starts the application; `None` if this machine cannot run the model.
    fn start(oracle: &str) -> Option<Self> {
        if !isolating().contains(&Model::Snapshot) {
            return None;
        }
        let site = Site::empty().with_folder("adversary");
        super::build_library(&site, "adversary", &["-Wall", "-Wextra", "-Werror"]);
        let hearth = Serve::new(site.path().join("worker.php"))
            .model("snapshot")
            .workers(1)
            .ini("ffi.enable", "1")
            .ini("session.save_path", &site.path().display().to_string())
            .set("HEARTH_SNAPSHOT_ORACLE", oracle)
            .start();
        let clean = hearth.get("/?look").text();
        assert!(clean.contains("descriptor"), "{clean}");
        Some(Self { hearth, clean, _site: site })
    }

    fn names(&self) -> Vec<String> {
        let names = self.hearth.get("/?names").json();
        let names = names.as_array().unwrap();
        names.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    }

    fn damage(&self, name: &str, n: u64) {
        let answer = self.hearth.get(&format!("/?do={name}&n={n}"));
        let status = if FAILING.contains(&name) { 500 } else { 200 };
        assert_eq!(answer.status, status, "{name} {n}: {}\n{}", answer.text(), self.log());
    }

    /// Returns the lines that differ from the output of a worker that has served nothing.
    fn differences(&self) -> Vec<String> {
        let now = self.hearth.get("/?look").text();
        let lines = self.clean.lines().zip(now.lines()).filter(|(was, is)| was != is);
        let mut found: Vec<_> = lines.map(|(was, is)| format!("{was} -> {is}")).collect();
        if self.clean.lines().count() != now.lines().count() {
            found.push(format!("other lines:\n{now}"));
        }
        found
    }

    /// Returns the process id of the idle worker.
    fn pid(&self) -> u32 {
        // An idle worker may still retire, because it makes a complete check when it has time.
        let mut pids = Vec::new();
        eventually("one worker is idle", LIMIT, || {
            self.hearth.wait_idle(1);
            pids = self.hearth.worker_pids();
            pids.len() == 1
        });
        pids[0]
    }

    fn log(&self) -> String {
        self.hearth.log().text()
    }

    /// Checks that no worker has crashed and that the oracle has found nothing.
    fn assert_in_order(&self) {
        let log = self.log();
        let wrong = |line: &&str| line.contains("worker died") || line.contains("oracle:");
        assert_eq!(log.lines().find(wrong), None);
    }
}

/// Does each damage four times, in its four kinds, and looks for it after each.
fn each_by_itself(oracle: &str) {
    let Some(adversary) = Adversary::start(oracle) else { return };
    let mut wrong = Vec::new();
    for name in adversary.names() {
        let before = adversary.pid();
        for n in 0..4 {
            adversary.damage(&name, n);
            let differences = adversary.differences();
            if !differences.is_empty() {
                wrong.push(format!("{name} {n}: {differences:?}"));
            }
        }
        let replaced = adversary.pid() != before;
        if replaced != RETIRING.contains(&name.as_str()) {
            wrong.push(format!(
                "{name}: the worker was {}replaced",
                if replaced { "" } else { "not " }
            ));
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), adversary.log());
    adversary.assert_in_order();
}

#[test]
fn the_next_request_finds_no_damage() {
    each_by_itself("0");
}

#[test]
fn the_oracle_finds_no_damage() {
    each_by_itself("1");
}

#[test]
fn damages_in_any_order_are_undone() {
    let Some(adversary) = Adversary::start("0") else { return };
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    println!("seed {seed}");
    let mut state = seed;
    let mut random = || {
        // `SplitMix64`
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let mut names = adversary.names();
    names.retain(|name| !RETIRING.contains(&name.as_str()));
    let before = adversary.pid();
    let mut done = Vec::new();
    for _ in 0..300 {
        for _ in 0..=random() % 4 {
            let name = &names[usize::try_from(random() % names.len() as u64).unwrap()];
            let n = random() % 4;
            done.push(format!("{name} {n}"));
            adversary.damage(name, n);
        }
        let differences = adversary.differences();
        let last = &done[done.len().saturating_sub(8)..];
        assert!(differences.is_empty(), "{differences:?} after {last:?}, seed {seed}");
    }
    assert_eq!(adversary.pid(), before, "one worker has served all requests: {}", adversary.log());
    adversary.assert_in_order();
}
