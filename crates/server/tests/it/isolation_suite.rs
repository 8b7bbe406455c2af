//! Everything that one request can leave behind for the next, row by row (tests/php/isolation), in each model.
//!
//! A row damages one thing; afterwards everything must look as it did in a worker that had served nothing. What a model shares is
//! listed here by name and asserted as shared, so that the table of the manual (docs/guide/isolation.md) is true.

use std::collections::{BTreeMap, BTreeSet};

use pool::Model;
use serde_json::{Map, Value};

use crate::hearth::{Hearth, Serve, Site};

/// Everything as it looks, by row.
type Looks = Map<String, Value>;

#[derive(Debug)]
struct Row {
    /// The part of the manual's table.
    part: String,
    title: String,
    name: String,
    /// What a request that does this damage is answered with.
    status: u64,
    /// The answer to a request that does the damage does not tell how things look.
    silent: bool,
    /// This PHP can do it.
    able: bool,
}

/// The application of tests/php/isolation on one worker.
#[derive(Debug)]
struct Suite {
    model: Model,
    hearth: Hearth,
    rows: Vec<Row>,
    _site: Site,
}

impl Suite {
    fn start(model: Model) -> Self {
        let site = Site::empty().with_folder("isolation");
        let script = site.path().join("worker.php");
        let path = if model.runs_worker_script() { script.as_path() } else { site.path() };
        let hearth = Serve::new(path)
            .model(model)
            .workers(1)
            .ini("ffi.enable", "1")
            .ini("session.save_path", &site.path().display().to_string())
            .start();
        let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
        let rows = hearth.get("/?rows").json();
        let rows = rows.as_array().unwrap().iter().map(|row| Row {
            part: text(row, "part"),
            title: text(row, "title"),
            name: text(row, "name"),
            status: row["status"].as_u64().unwrap(),
            silent: row["silent"].as_bool().unwrap(),
            able: row["able"].as_bool().unwrap(),
        });
        let rows = rows.collect();
        Self { model, hearth, rows, _site: site }
    }

    /// How everything looks, and which process says so.
    fn look(&self) -> (Looks, u64) {
        // A process that has just served one request may not be gone yet, and its locks with it.
        let patient = if self.model.is_one_shot() { "&patient" } else { "" };
        let answer = self.hearth.get(&format!("/?look{patient}"));
        assert_eq!(answer.status, 200);
        let left = answer.fields.iter().find(|(_, value)| value.contains("left"));
        assert_eq!(left, None, "a field of another answer");
        let mut looks: Looks = serde_json::from_slice(&answer.body).unwrap();
        let pid = looks.remove("pid").unwrap().as_u64().unwrap();
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
        let late = self.model.runs_worker_script() && row.name == AFTER_THE_ANSWER;
        let status = if late { 200 } else { row.status };
        assert_eq!(u64::from(answer.status), status, "{}: {}", row.name, answer.text());
        let looks: Looks = serde_json::from_slice(&answer.body).ok()?;
        looks.get(&row.name).cloned()
    }

    /// Damages each thing twice and looks after each time.
    fn run(&self) -> Found {
        let (mut before, mut pid) = self.look();
        let mut found = Found::default();
        for row in self.rows.iter().filter(|row| row.able) {
            if self.model == Model::Worker {
                // Each row begins with a boot of its own, or every row would meet the damage of all others.
                assert_eq!(self.hearth.get("/?boot").status, 200);
                (before, pid) = self.look();
            }
            for time in 1..=2 {
                let damaged = self.damage(row);
                if time == 1 && !row.silent {
                    let unharmed = damaged.as_ref() == Some(&before[&row.name]);
                    let harmed_by_nature = row.part == "The request";
                    assert!(!unharmed || harmed_by_nature, "{}: {damaged:?}", row.name);
                }
                let (seen, now) = self.look();
                if now != pid && !self.model.is_one_shot() {
                    found.replaced.insert(row.name.clone());
                }
                pid = now;
                let mut differs = differences(&before, &seen);
                if let Some(what) = differs.remove(&row.name) {
                    println!("{}: {what}", row.name);
                    found.shared.insert(row.name.clone());
                }
                if self.model.isolates() && !differs.is_empty() {
                    found.elsewhere.push(format!("after {} ({time}): {differs:?}", row.name));
                }
                before = if row.silent { self.look().0 } else { seen };
            }
        }
        found
    }
}

/// What an object that is kept does when it is destructed comes too late for the answer, where a script runs on behind its handler.
const AFTER_THE_ANSWER: &str = "error-in-a-destructor";

/// What differs, as `name: before -> after`.
fn differences(before: &Looks, after: &Looks) -> BTreeMap<String, String> {
    let changed = before.iter().filter(|(name, value)| after.get(*name) != Some(value));
    changed.map(|(name, value)| (name.clone(), format!("{value} -> {}", after[name]))).collect()
}

/// What was found in one model.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Rows that are still damaged in the next request.
    shared: BTreeSet<String>,
    /// Rows that cost the worker its life.
    replaced: BTreeSet<String>,
    /// Rows that damaged others (not looked for where nearly everything is shared).
    elsewhere: Vec<String>,
}

#[test]
fn explore() {
    let model = Model::named(&std::env::var("MODEL").unwrap()).unwrap();
    let suite = Suite::start(model);
    let found = suite.run();
    println!("{} rows", suite.rows.len());
    println!("{found:#?}");
    println!("{}", suite.hearth.log().text());
}
