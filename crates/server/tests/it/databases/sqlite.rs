//! A connection to `SQLite` of a worker's start, whose locks belong to the process and not to the request.

use std::path::Path;
use std::process::Command;

use testkit::eventually;

use crate::hearth::{Hearth, LIMIT, Serve, Site};

const SCRIPT: &str = r"<?php
hearth_on_worker_start(function () {
    global $db;
    $db = new PDO('sqlite:' . __DIR__ . '/data.db');
    $db->setAttribute(PDO::ATTR_TIMEOUT, 0);
    $db->exec('PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS t (n); SELECT count(*) FROM t');
});
while (hearth_handle_request(function () {
    global $db;
    switch ($_GET['do']) {
        case 'insert':
            $db->exec('INSERT INTO t VALUES (1)');
            break;
        case 'leave open':
            $db->exec('BEGIN IMMEDIATE; INSERT INTO t VALUES (1)');
            break;
        case 'read the file':
            strlen(file_get_contents(__DIR__ . '/data.db'));
            break;
    }
    echo getmypid();
})) {
}
";

fn served() -> (Site, Hearth) {
    let site = Site::empty().with_file("worker.php", SCRIPT);
    let hearth = Serve::new(site.path().join("worker.php")).model("snapshot").workers(1).start();
    hearth.wait_idle(1);
    (site, hearth)
}

/// Returns the worker's process id.
fn asked(hearth: &Hearth, what: &str) -> String {
    let answer = hearth.get(&format!("/?do={}", what.replace(' ', "+")));
    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    answer.text()
}

/// Runs PHP in a folder and returns what it printed.
pub(super) fn php(folder: &Path, script: &str) -> String {
    let output = Command::new("php").args(["-r", script]).current_dir(folder).output().unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

/// Another process inserts a row and returns how many there are then.
fn outside(folder: &Path) -> String {
    let script = "$db = new PDO('sqlite:data.db'); $db->exec('INSERT INTO t VALUES (2)'); \
                  echo $db->query('SELECT count(*) FROM t')->fetchColumn();";
    php(folder, script)
}

fn retired(hearth: &Hearth, count: u64) {
    eventually("the worker has retired", LIMIT, || hearth.status()["pool"]["retired"] == count);
    assert!(hearth.log_line("a lock on a file that the boot had locked").is_object());
    hearth.wait_idle(1);
}

#[test]
fn a_connection_to_sqlite_of_the_start_stays_with_its_locks() {
    let (site, hearth) = served();
    let first = asked(&hearth, "insert");
    for rows in [2, 4, 6] {
        assert_eq!(outside(site.path()), rows.to_string());
        assert_eq!(asked(&hearth, "insert"), first);
    }
    assert_eq!(hearth.status()["pool"]["retired"], 0);
}

#[test]
fn a_request_that_leaves_a_transaction_of_sqlite_open_blocks_no_other_process() {
    let (site, hearth) = served();
    asked(&hearth, "leave open");
    retired(&hearth, 1);
    assert_eq!(outside(site.path()), "1", "the transaction is gone");
}

#[test]
fn a_worker_whose_request_lost_the_locks_of_sqlite_writes_no_more() {
    let (site, hearth) = served();
    let first = asked(&hearth, "insert");
    asked(&hearth, "read the file");
    retired(&hearth, 1);
    assert_eq!(outside(site.path()), "2");
    assert_ne!(asked(&hearth, "insert"), first);
    assert_eq!(outside(site.path()), "4");
}
