//! Checks that docs/reference/metrics.md lists exactly the metrics that the crates count.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Quoted names with the same prefix that are not metrics: functions of PHP, and the stream of a test.
const OTHERS: &[&str] =
    &["hearth_await_request", "hearth_handle_request", "hearth_log", "hearth_test"];

#[test]
fn every_metric_is_documented_and_every_documented_metric_is_there() {
    let page = fs::read_to_string(root().join("docs/reference/metrics.md")).expect("the page");
    let documented: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name.to_owned())
        .collect();
    let mut counted = BTreeSet::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates") {
        collect(&entry.expect("an entry").path().join("src"), &mut counted);
    }
    assert!(counted.len() > 50, "{counted:#?}");
    assert_eq!(documented, counted);
}

/// Returns literals of the Rust files below `dir` that may be the name of a metric.
fn collect(dir: &Path, names: &mut BTreeSet<String>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source file is text");
            let literals = text.split('"').filter(|literal| literal.starts_with("hearth_"));
            let is_name = |name: &&str| {
                name.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit())
            };
            let metrics = literals.filter(is_name).filter(|name| !OTHERS.contains(name));
            names.extend(metrics.map(str::to_owned));
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
