//! Everything that one request can leave behind for the next, row by row (tests/php/isolation), in each model.
//!
//! A row damages one thing; afterwards everything must look as it did in a worker that had served nothing. What a model shares is
//! listed here by name and asserted as shared, so that the table of the manual (docs/guide/isolation.md) is true.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::hearth::{Hearth, Serve, Site, root};
use crate::models::Model;

/// Everything as it looks, by row.
type Looks = Map<String, Value>;

#[derive(Debug)]
struct Row {
    name: String,
    title: String,
    status: u64,
}

/// The application of tests/php/isolation on one worker.
#[derive(Debug)]
struct Suite {
    hearth: Hearth,
    rows: Vec<Row>,
    _site: Site,
}

impl Suite {
    fn start(model: Model) -> Self {
        let site = Site::empty().with_folder("isolation");
        let path = model.serves(site.path(), &site.path().join("worker.php"));
        let hearth = Serve::new(path)
            .model(model)
            .workers(1)
            .ini("ffi.enable", "1")
            .ini("session.save_path", &site.path().display().to_string())
            .start();
        let rows: Map<String, Value> = serde_json::from_slice(&hearth.get("/?rows").body).unwrap();
        let rows = rows.into_iter().map(|(name, row)| Row {
            name,
            title: row["title"].as_str().unwrap().to_owned(),
            status: row["status"].as_u64().unwrap(),
        });
        let rows = rows.collect();
        Self { hearth, rows, _site: site }
    }

    /// How everything looks, and which process says so.
    fn look(&self) -> (Looks, u64) {
        let answer = self.hearth.get("/?look&patient");
        let mut looks: Looks = serde_json::from_slice(&answer.body)
            .unwrap_or_else(|error| panic!("{error}: {}", answer.text()));
        let pid = looks.remove("pid").unwrap().as_u64().unwrap();
        let left: Vec<_> = answer.all("x-left");
        assert!(left.is_empty() && answer.all("set-cookie").is_empty(), "{:?}", answer.fields);
        assert_eq!(answer.status, 200);
        (looks, pid)
    }

    /// Damages one thing. How it looks then, unless that was the end of the script.
    fn damage(&self, row: &Row) -> Option<Value> {
        const FIELDS: [(&str, &str); 3] = [
            ("Content-Type", "application/x-www-form-urlencoded"),
            ("Cookie", "left=behind"),
            ("X-Left", "behind"),
        ];
        let target = format!("/?do={}&left=behind", row.name);
        let answer = self.hearth.post(&target, &FIELDS, b"left=behind");
        assert_eq!(u64::from(answer.status), row.status, "{}: {}", row.name, answer.text());
        let looks: Looks = serde_json::from_slice(&answer.body).ok()?;
        Some(looks[&row.name].clone())
    }
}

/// What differs, as `name: before -> after`.
fn differences(before: &Looks, after: &Looks) -> BTreeMap<String, String> {
    let names = before.iter().filter(|(name, value)| after.get(*name) != Some(value));
    names
        .map(|(name, value)| {
            (name.clone(), format!("{value} -> {}", after.get(name).unwrap_or(&Value::Null)))
        })
        .collect()
}

/// Rows that are still damaged in the next request, and rows that cost the worker its life.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    shared: BTreeSet<String>,
    retired: BTreeSet<String>,
}

/// Damages each thing twice and looks after each time. `expected` rows may stay damaged, and nothing else may.
fn run(model: Model, expected: &[&str]) -> (Suite, Found) {
    let suite = Suite::start(model);
    let (mut clean, mut pid) = suite.look();
    let mut found = Found::default();
    let mut wrong = Vec::new();
    for row in &suite.rows {
        for time in 1..=2 {
            let damaged = suite.damage(row);
            let (seen, now) = suite.look();
            if now != pid && model.keeps_its_worker() {
                found.retired.insert(row.name.clone());
            }
            pid = now;
            let differs = differences(&clean, &seen);
            if differs.contains_key(&row.name) {
                found.shared.insert(row.name.clone());
            }
            // What is shared may show in other rows too (numbers of objects); that the row itself is meant to be shared explains it.
            if time == 1 && model != Model::Worker && !row.is_silent() {
                assert_ne!(damaged.as_ref(), Some(&clean[&row.name]), "{}: nothing was damaged", row.name);
            }
            if !expected.contains(&row.name.as_str()) && model != Model::Worker {
                let unexpected: Vec<_> = differs.iter().filter(|(name, _)| !expected.contains(&name.as_str())).collect();
                if !unexpected.is_empty() {
                    wrong.push(format!("after {} ({time}): {unexpected:?}", row.name));
                }
            }
            clean = seen;
        }
    }
    assert!(wrong.is_empty(), "{model:?}:\n{}", wrong.join("\n"));
    (suite, found)
}
