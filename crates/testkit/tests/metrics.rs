//! Checks that docs/reference/metrics.md lists exactly the metrics that the crates count, and what their texts say.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Quoted names with the same prefix that are not metrics: functions of PHP, and the stream of a test.
const OTHERS: &[&str] =
    &["hearth_await_request", "hearth_handle_request", "hearth_log", "hearth_test"];

#[test]
fn every_metric_is_documented_and_every_documented_metric_is_there() {
    let page = page();
    let documented: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    let sources = sources();
    let counted: BTreeSet<&str> = sources
        .iter()
        .flat_map(|text| text.split('"'))
        .filter(|literal| is_name(literal) && !OTHERS.contains(literal))
        .collect();
    assert!(counted.len() > 50, "{counted:#?}");
    assert_eq!(documented, counted);
}

/// A scrape shows each text alone, and the page sorts its rows.
#[test]
fn the_text_of_a_metric_needs_no_other_text() {
    let page = page();
    let rows = page.lines().filter(|line| line.starts_with("| `hearth_"));
    let mut texts: Vec<&str> =
        rows.filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next()).collect();
    let in_rows = texts.len();
    let sources = sources();
    for source in &sources {
        // A name, what stands between the two literals, and the text that describes it.
        let pieces: Vec<&str> = source.split('"').collect();
        let described = pieces.windows(3).filter(|three| is_name(three[0]));
        texts.extend(described.map(|three| three[2]).filter(|text| text.contains(' ')));
    }
    assert!(in_rows > 50 && texts.len() > in_rows + 50, "{texts:#?}");
    assert!(points_at_another("Those of them that have a request"), "the check sees one");

    texts.retain(|text| points_at_another(text));
    assert!(texts.is_empty(), "these texts say nothing alone: {texts:#?}");
}

/// Returns whether a text has a pronoun whose noun is in another text.
fn points_at_another(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let first = words.clone().next().unwrap_or_default();
    ["it", "its", "their", "they"].contains(&first)
        || words.any(|word| ["these", "those"].contains(&word))
}

fn is_name(literal: &str) -> bool {
    literal.starts_with("hearth_")
        && literal
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit())
}

fn page() -> String {
    fs::read_to_string(root().join("docs/reference/metrics.md")).expect("the page")
}

/// Returns the text of every source file of the crates, without the folders of their tests.
fn sources() -> Vec<String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates") {
        collect(&entry.expect("an entry").path().join("src"), &mut texts);
    }
    texts
}

fn collect(dir: &Path, texts: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            collect(&path, texts);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            texts.push(fs::read_to_string(&path).expect("a source file is text"));
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
