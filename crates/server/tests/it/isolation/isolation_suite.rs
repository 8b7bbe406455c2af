//! Everything that one request can leave behind for the next, row by row (tests/php/isolation), in each model.
//!
//! A row damages one thing; afterwards everything must look as in a worker that has served nothing. The state that a
//! model shares is listed here by name and asserted as shared, so that the manual's table (docs/guide/isolation.md) is
//! true.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use pool::Model;
use serde_json::{Map, Value};

use crate::hearth::{Hearth, Serve, Site, isolating, root};

/// The state as a request sees it, by row.
type Looks = Map<String, Value>;

#[derive(Debug)]
struct Row {
    /// The section of the manual's table.
    part: String,
    title: String,
    name: String,
    /// The status of a response to a request that does this damage.
    status: u64,
    /// The response of the damaging request does not show the state.
    silent: bool,
    /// False if this PHP version cannot do the damage.
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
            .model(model.name())
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

    /// Returns the state of one row, or of all rows, and the id of the process that answered.
    fn look(&self, row: &str) -> (Looks, u64) {
        // The process of a previous one-shot request may still run and hold its locks.
        let patient = if self.model.is_one_shot() { "&patient" } else { "" };
        let answer = self.hearth.get(&format!("/?look={row}{patient}"));
        assert_eq!(answer.status, 200);
        let left = answer.fields.iter().find(|(_, value)| value.contains("left"));
        assert_eq!(left, None, "a field of another answer");
        let mut looks: Looks = serde_json::from_slice(&answer.body).unwrap();
        let pid = looks.remove("pid").unwrap().as_u64().unwrap();
        (looks, pid)
    }

    /// Damages one thing. Returns the state after it, unless the damage ended the script.
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

    /// Damages each thing twice. Looks at that row after the first time, and at all rows after the second.
    fn run(&self) -> Found {
        let (mut before, mut pid) = self.look("");
        let mut found = Found::default();
        for row in self.rows.iter().filter(|row| row.able) {
            if self.model == Model::Worker {
                // Each row starts with a new boot, so that it does not find the damage of others.
                assert_eq!(self.hearth.get("/?boot&look=").status, 200);
                (before, pid) = self.look("");
            }
            for all in [false, true] {
                let damaged = self.damage(row);
                if !all && !row.silent {
                    let unharmed = damaged.as_ref() == Some(&before[&row.name]);
                    let harmed_by_nature = row.part == "The request";
                    assert!(!unharmed || harmed_by_nature, "{}: {damaged:?}", row.name);
                }
                let (seen, now) = self.look(if all { "" } else { &row.name });
                let mut differs = differences(&before, &seen);
                if now != pid && !self.model.is_one_shot() {
                    found.replaced.insert(row.name.clone());
                    // State is shared only within one process.
                    differs.retain(|name, _| !shared(self.model).contains(&name.as_str()));
                }
                pid = now;
                if differs.remove(&row.name).is_some() {
                    found.shared.insert(row.name.clone());
                }
                if self.model.isolates() && !differs.is_empty() {
                    found.misplaced.push(format!("after {}: {differs:?}", row.name));
                }
                before.extend(seen);
            }
            if row.silent {
                before = self.look("").0;
            }
        }
        found
    }
}

/// Returns the differences as `name: before -> after`.
fn differences(before: &Looks, after: &Looks) -> BTreeMap<String, String> {
    let changed = after.iter().filter(|(name, value)| before[*name] != **value);
    changed.map(|(name, value)| (name.clone(), format!("{} -> {value}", before[name]))).collect()
}

/// The destructor of a kept object runs after the answer, if the script continues after its handler.
const AFTER_THE_ANSWER: &str = "error-in-a-destructor";

/// The findings in one model.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Rows that are still damaged in the next request.
    shared: BTreeSet<String>,
    /// Rows that end the worker.
    replaced: BTreeSet<String>,
    /// Rows that damage other rows; not checked in models that share nearly everything.
    misplaced: Vec<String>,
}

/// State that requests of one worker script share. Everything else is new for each of them.
const SHARED_IN_WORKER: &[&str] = &[
    "alarm",
    "assert-options-callback",
    "autoloader",
    "autoloader-of-the-boot-taken-away",
    "child-process-left",
    "class-alias",
    "class-declared",
    "class-loaded-by-the-autoloader",
    "constant",
    "cookies-of-a-curl-handle-left-open",
    "core-dump-filter",
    "curl-handle-of-the-boot",
    "current-directory",
    "cycles-for-the-collector",
    "deep-recursion",
    "default-stream-context",
    "entity-loader-of-libxml",
    "enum-declared",
    "env",
    "environment-of-child-processes",
    "error-handler",
    "error-handler-of-the-boot-taken-away",
    "error-in-a-destructor",
    "errors-of-libxml",
    "errors-of-openssl",
    "exception-handler",
    "exit",
    "exit-deep-in-a-callback",
    "exit-in-a-fiber",
    "exit-in-a-generator",
    "fiber-left-suspended",
    "fiber-of-the-boot",
    "file-included-once",
    "file-locked",
    "file-opened-at-boot-and-closed",
    "file-opened-at-boot-and-locked",
    "files-left-open",
    "function-declared",
    "generator-left-unfinished",
    "generator-of-the-boot",
    "global-array-of-the-boot",
    "global-variable",
    "huge-blocks-of-memory",
    "intl-get-error-code",
    "json-last-error",
    "libxml-use-internal-errors",
    "locale",
    "mb-internal-encoding",
    "mb-regex-encoding",
    "mb-substitute-character-mb-language-mb-detect-order",
    "mt-srand",
    "name-of-the-process",
    "numbers-of-objects",
    "oom-score",
    "open-resources",
    "php-memory-of-the-boot",
    "position-in-a-file-opened-at-boot",
    "position-in-a-folder-opened-at-boot",
    "position-in-an-array-of-the-boot",
    "preg-last-error",
    "priority",
    "property-added-to-an-object-of-the-boot",
    "property-of-an-object-of-the-boot",
    "putenv",
    "putenv-over-a-variable-of-the-boot",
    "putenv-that-takes-a-variable-away",
    "random-engine-of-the-boot",
    "reference-into-an-array-of-the-boot",
    "resource-limit",
    "semaphore-held",
    "setting-of-a-database-connection-of-the-boot",
    "signal-blocked",
    "signal-handler",
    "signal-ignored",
    "sockets-left-open",
    "spl-autoload-extensions",
    "spl-structures-of-the-boot",
    "splobjectstorage-of-the-boot",
    "static-property",
    "static-property-of-a-subclass",
    "static-variable-of-a-closure",
    "static-variable-of-a-function",
    "static-variable-of-a-method",
    "stream-filter",
    "stream-wrapper",
    "stream-wrapper-taken-away",
    "textdomain",
    "tick-function",
    "time-zone",
    "timer-slack",
    "transaction-left-open-on-a-database-connection-of-the-boot",
    "umask",
    "variable-of-a-c-library",
    "weakmap-of-the-boot",
    "weakreference-of-a-request",
];

/// State that PHP itself does not restore when a request shuts down, here as under php-fpm.
const SHARED_IN_REQUEST: &[&str] = &[
    "alarm",
    "core-dump-filter",
    "errors-of-openssl",
    "name-of-the-process",
    "oom-score",
    "priority",
    "resource-limit",
    "signal-blocked",
    "signal-handler",
    "textdomain",
    "timer-slack",
    "variable-of-a-c-library",
];

/// State that a restore cannot undo, so that the worker ends and another replaces it.
const REPLACED_IN_SNAPSHOT: &[&str] =
    &["file-opened-at-boot-and-closed", "priority", "resource-limit"];

fn shared(model: Model) -> &'static [&'static str] {
    match model {
        Model::Worker => SHARED_IN_WORKER,
        Model::Request | Model::Fpm => SHARED_IN_REQUEST,
        _ => &[],
    }
}

/// Runs the suite and compares its findings with the lists above.
fn shares_exactly_what_the_manual_says(model: Model) {
    let suite = Suite::start(model);
    let found = suite.run();
    let able = |names: &[&str]| -> BTreeSet<String> {
        let rows = suite.rows.iter().filter(|row| row.able && names.contains(&row.name.as_str()));
        rows.map(|row| row.name.clone()).collect()
    };
    for name in shared(model).iter().chain(REPLACED_IN_SNAPSHOT) {
        assert!(suite.rows.iter().any(|row| row.name == *name), "{name} is no row any more");
    }
    let replaced = if model == Model::Snapshot { REPLACED_IN_SNAPSHOT } else { &[] };
    let expected =
        Found { shared: able(shared(model)), replaced: able(replaced), misplaced: Vec::new() };
    assert_eq!(found, expected, "the state that the next request sees");
    assert_eq!(suite.hearth.status()["pool"]["crashes"], 0);
}

#[test]
fn the_model_worker_shares_exactly_what_the_manual_says() {
    shares_exactly_what_the_manual_says(Model::Worker);
}

#[test]
fn the_model_request_shares_exactly_what_the_manual_says() {
    shares_exactly_what_the_manual_says(Model::Request);
}

/// php-fpm itself, which the model `request` is compared with.
#[test]
fn php_fpm_shares_what_the_model_request_does() {
    shares_exactly_what_the_manual_says(Model::Fpm);
}

#[test]
fn the_model_spawn_shares_nothing() {
    shares_exactly_what_the_manual_says(Model::Spawn);
}

#[test]
fn the_model_prespawn_shares_nothing() {
    shares_exactly_what_the_manual_says(Model::Prespawn);
}

#[test]
fn the_model_fork_shares_nothing() {
    shares_exactly_what_the_manual_says(Model::Fork);
}

#[test]
fn the_model_snapshot_shares_exactly_what_the_manual_says() {
    if isolating().contains(&Model::Snapshot) {
        shares_exactly_what_the_manual_says(Model::Snapshot);
    }
}

/// `UPDATE=1` rewrites the table.
#[test]
fn the_table_of_the_manual_is_what_the_tests_assert() {
    let suite = Suite::start(Model::Request);
    let mut table = String::new();
    let mut part = "";
    for row in &suite.rows {
        if part != row.part {
            part = &row.part;
            write!(table, "\n| {part} | `worker` | `request` | `snapshot` |\n|---|---|---|---|\n")
                .unwrap();
        }
        let state =
            |model| if shared(model).contains(&row.name.as_str()) { "**shared**" } else { "fresh" };
        let [worker, request, snapshot] =
            [Model::Worker, Model::Request, Model::Snapshot].map(state);
        writeln!(table, "| {} | {worker} | {request} | {snapshot} |", marked(&row.title)).unwrap();
    }
    let path = root().join("docs/guide/isolation.md");
    let manual = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = manual.split_once("<!-- table -->\n").unwrap();
    let (_, after) = rest.split_once("\n<!-- end of table -->").unwrap();
    let expected = format!("{before}<!-- table -->\n{table}\n<!-- end of table -->{after}");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &expected).unwrap();
    } else {
        assert!(manual == expected, "{}: UPDATE=1 rewrites the table", path.display());
    }
}

/// Formats PHP's names as code.
fn marked(title: &str) -> String {
    let words = title.split(' ').map(|word| {
        let (name, comma) = word.strip_suffix(',').map_or((word, ""), |name| (name, ","));
        let is_code = name.ends_with("()")
            || name.contains("://")
            || name.starts_with('$')
            || name.contains('\\');
        if is_code { format!("`{name}`{comma}") } else { word.to_owned() }
    });
    words.collect::<Vec<_>>().join(" ")
}
