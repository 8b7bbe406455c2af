//! `hearth check --boot` lists what the boot reads beside code, each with a verdict (`tests/php/boot_reads`).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::hearth::{Site, command};

fn check(site: &Site, arguments: &[&str]) -> String {
    let mut check = command();
    check.arg("check").arg(site.path().join("worker.php")).args(["--listen", "127.0.0.1:0"]);
    let output = check.args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the line, the verdict and the kind of each read.
fn reads(site: &Site, arguments: &[&str]) -> BTreeSet<(u64, String, String)> {
    let report: Value = serde_json::from_str(&check(site, arguments)).unwrap();
    let reads = report["boot_reads"].as_array().cloned().unwrap_or_default();
    let text = |read: &Value, field: &str| read[field].as_str().unwrap().to_owned();
    reads
        .iter()
        .map(|read| (read["line"].as_u64().unwrap(), text(read, "verdict"), text(read, "kind")))
        .collect()
}

/// Returns what the comments of the script expect.
fn expected() -> BTreeSet<(u64, String, String)> {
    let text = include_str!("../../../../../tests/php/boot_reads/worker.php");
    let of_line = |(number, line): (usize, &str)| {
        let (_, comment) = line.split_once("; // ")?;
        let (verdict, kind) = comment.split_once(' ')?;
        Some((number as u64 + 1, verdict.to_owned(), kind.to_owned()))
    };
    text.lines().enumerate().filter_map(of_line).collect()
}

#[test]
fn check_lists_each_read_of_the_boot_with_its_verdict_and_none_of_a_request() {
    let site = Site::empty().with_folder("boot_reads");
    let expected = expected();
    assert!(expected.len() > 35, "{expected:?}");
    let found = reads(&site, &["--boot", "--json"]);
    let missing: Vec<_> = expected.difference(&found).collect();
    let surplus: Vec<_> = found.difference(&expected).collect();
    assert!(missing.is_empty() && surplus.is_empty(), "missing {missing:?}, surplus {surplus:?}");
    assert!(reads(&site, &["--json"]).is_empty(), "only --boot traces");
}

#[test]
fn check_shows_mistakes_first_folds_repeats_and_no_secret() {
    let site = Site::empty().with_folder("boot_reads");
    let text = check(&site, &["--boot"]);
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part:?} in\n{text}"));
    let mistake = at(
        "! boot: 10 reads of request data at the boot: a mistake: every request gets this value",
    );
    let look = at("a mistake if a request uses the result");
    let fine = at("✓ boot: ");
    assert!(mistake < look && look < fine, "{text}");
    at("- $_GET['page'] at worker.php:11\n");
    at("- mt_rand() at worker.php:38 (3 times)\n");
    at("- new PDO('mysql:…') at worker.php:");
    at("- file_get_contents('http://127.0.0.1:1') at worker.php:");
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn a_connection_of_the_boot_is_fine_where_each_worker_boots() {
    let site = Site::empty().with_folder("boot_reads");
    let found = reads(&site, &["--boot", "--json", "--model", "worker"]);
    let databases = found.iter().filter(|(_, _, kind)| kind == "database");
    assert!(
        databases.clone().count() == 2
            && databases.clone().all(|(_, verdict, _)| verdict == "fine"),
        "{found:?}"
    );
    assert!(
        found.iter().any(|(_, verdict, kind)| (&**verdict, &**kind) == ("mistake", "clock")),
        "{found:?}"
    );
}
