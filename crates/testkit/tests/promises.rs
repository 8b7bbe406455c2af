//! Checks that every test and file that docs/promises.md names exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of words of a promise.
const LONGEST_PROMISE: usize = 25;

#[test]
fn every_test_named_beside_a_promise_exists() {
    let text = fs::read_to_string(root().join("docs/promises.md")).expect("the page is there");
    let tests = test_names(&root().join("crates"));

    let mut named = 0;
    let mut missing = Vec::new();
    for row in text.lines().filter_map(|line| line.strip_prefix('|')) {
        let held_by = row.trim_end_matches('|').rsplit('|').next().expect("a row has cells");
        for name in code_spans(held_by) {
            named += 1;
            let there =
                if name.contains('/') { root().join(name).is_file() } else { tests.contains(name) };
            if !there {
                missing.push(name);
            }
        }
    }

    assert!(named > 20, "the page has its tables: {named} names found");
    assert!(missing.is_empty(), "docs/promises.md names what does not exist: {missing:#?}");
}

#[test]
fn every_promise_names_a_test() {
    let text = fs::read_to_string(root().join("docs/promises.md")).expect("the page is there");
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [promise, held_by] = cells[..] else { panic!("two columns: {row}") };
        assert!(!held_by.is_empty(), "nothing holds: {promise}");
    }
}

/// A longer promise is two, or belongs into the page that its row links.
#[test]
fn promises_are_short() {
    let text = fs::read_to_string(root().join("docs/promises.md")).expect("the page is there");
    let promises = text.lines().filter_map(|line| line.strip_prefix("| ")?.split('|').next());
    let long: Vec<&str> =
        promises.filter(|promise| promise.split_whitespace().count() > LONGEST_PROMISE).collect();
    assert!(long.is_empty(), "more than {LONGEST_PROMISE} words: {long:#?}");
}

/// Finds a row that was merged twice, or changed in one of two copies.
#[test]
fn no_two_promises_have_the_same_tests() {
    let text = fs::read_to_string(root().join("docs/promises.md")).expect("the page is there");
    let mut seen = BTreeSet::new();
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let held_by = row.trim_matches('|').rsplit('|').next().expect("a row has cells").trim();
        // A file may hold several promises, and so may a test.
        if held_by.matches('`').count() > 2 && !held_by.contains('/') {
            assert!(seen.insert(held_by), "two rows are held by the same tests: {row}");
        }
    }
    assert!(seen.len() > 20, "the page has its tables: {} rows found", seen.len());
}

/// Returns the texts between backticks.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the names of functions in Rust files below `dir` that have a test attribute.
fn test_names(dir: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).expect("a folder of crates is readable") {
            let path = entry.expect("a directory entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a Rust file is readable text");
                names.extend(tests_in(&text));
            }
        }
    }
    names
}

fn tests_in(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut under_attribute = false;
    for line in text.lines().map(str::trim) {
        if line == "#[test]" || line.starts_with("#[tokio::test") {
            under_attribute = true;
        } else if line.starts_with("#[ignore") {
            // A disabled test does not hold a promise.
            under_attribute = false;
        } else if let Some(rest) = line.trim_start_matches("async ").strip_prefix("fn ") {
            let name = rest.split('(').next().filter(|_| under_attribute);
            names.extend(name.map(str::to_owned));
            under_attribute = false;
        }
    }
    names
}

fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates/");
    crates.parent().expect("the workspace").to_owned()
}
