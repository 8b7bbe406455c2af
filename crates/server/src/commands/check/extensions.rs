//! PHP's extensions that do not suit the model, by what `scripts/test-extensions` found (docs/extensions.tsv).

use pool::Model;

use super::{Report, Topic};
use crate::app::php::{Info, has_extension};

/// A line for each PHP version and extension, see tests/php/extensions/page.php.
const TABLE: &str = include_str!("../../../../../docs/extensions.tsv");

/// A line of the table.
struct Row<'table> {
    php: &'table str,
    /// The name that PHP itself has for the extension.
    name: &'table str,
    /// The result in the model asked for.
    word: &'table str,
    advice: &'table str,
}

/// Reports loaded extensions that do not suit the model. Those that Debian does not have are unknown.
pub(crate) fn look(report: &mut Report, model: Model, info: &Info) {
    let Some(column) = column_of(model) else { return };
    let rows: Vec<Row<'_>> = TABLE.lines().filter_map(|line| row(line, column)).collect();
    let minor = minor_of(&info.php_version);
    for row in rows.iter().filter(|row| has_extension(info, row.name)) {
        // A version that was tested without this extension says nothing of it: the newest that has it does.
        let newest =
            rows.iter().filter(|other| other.name == row.name).map(|other| other.php).max();
        let own = rows.iter().any(|other| other.name == row.name && other.php == minor);
        if row.php == if own { minor } else { newest.unwrap_or_default() } {
            warn(report, model, row);
        }
    }
}

fn warn(report: &mut Report, model: Model, row: &Row<'_>) {
    let (name, model) = (row.name, model.name());
    let what = match row.word {
        "retires" => {
            format!(
                "extension {name} leaves threads running: in `{model}` each request that uses it costs a fork"
            )
        }
        "late retires" => format!(
            "extension {name} runs threads: the boot cannot use it, and in `{model}` each request that does costs a fork"
        ),
        "boot retires" => format!(
            "extension {name}: if the boot uses it, each request that does so too costs a fork in `{model}`"
        ),
        "late yes" => format!("extension {name} runs threads: the boot cannot use it in `{model}`"),
        "blind" => format!(
            "extension {name} sees the worker script as one request in `{model}`, and reports none of those within"
        ),
        "leaks" => {
            format!("extension {name} keeps state of a request for the next one in `{model}`")
        }
        "refused" => format!("extension {name} cannot be used in `{model}`"),
        "fails" => format!("extension {name} does not answer reliably in `{model}`"),
        _ => return,
    };
    let hint = if row.advice.is_empty() { "see docs/extensions.md" } else { row.advice };
    report.warning(Topic::Php, what, hint);
}

/// The column of a model in the table.
fn column_of(model: Model) -> Option<usize> {
    match model {
        Model::Request => Some(5),
        Model::Snapshot => Some(6),
        Model::Fork => Some(7),
        Model::Worker => Some(8),
        _ => None,
    }
}

fn row(line: &str, column: usize) -> Option<Row<'_>> {
    if line.starts_with('#') {
        return None;
    }
    let cells: Vec<&str> = line.split('\t').collect();
    Some(Row {
        php: cells.first()?,
        name: cells.get(2)?,
        word: cells.get(column)?,
        advice: cells.get(10).copied().unwrap_or_default(),
    })
}

/// Returns `8.2` for `8.2.36`.
fn minor_of(version: &str) -> &str {
    version.rsplit_once('.').map_or(version, |(minor, _)| minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the findings of `hearth check` for a PHP with these extensions.
    fn findings(php: &str, extensions: &[&str], model: Model) -> String {
        let extensions = extensions.iter().map(|name| ((*name).to_owned(), None)).collect();
        let info = Info {
            php_version: php.to_owned(),
            sapi: "hearth".to_owned(),
            zts: false,
            extensions,
            ini_file: None,
            scanned: serde_json::Value::Null,
            ini: Vec::new(),
            opcache: serde_json::Value::Null,
            apcu: false,
            complaints: Vec::new(),
        };
        let mut report = Report::default();
        look(&mut report, model, &info);
        report.text(false)
    }

    #[test]
    fn check_warns_of_extensions_that_the_matrix_found_unfit_for_the_model() {
        let text = findings("8.2.36", &["zmq", "json", "gd"], Model::Snapshot);
        assert!(text.contains("extension zmq runs threads"), "{text}");
        assert!(!text.contains("json") && !text.contains("gd"), "{text}");
        assert!(!findings("8.2.36", &["zmq"], Model::Request).contains("zmq"));
        // A newer PHP, for which Debian has no such package.
        let text = findings("8.9.1", &["zmq"], Model::Snapshot);
        assert_eq!(text.matches("extension zmq").count(), 1, "{text}");
    }

    #[test]
    fn every_line_of_the_matrix_has_a_word_for_each_model() {
        let words = "yes, shared, retires, boot retires, late yes, late retires, refused, leaks, blind, fpm, fails, loads not";
        let words: Vec<&str> = words.split(", ").collect();
        let models = [Model::Request, Model::Snapshot, Model::Fork, Model::Worker];
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            for model in models {
                let row = row(line, column_of(model).unwrap()).unwrap();
                assert!(words.contains(&row.word), "{line}");
            }
        }
        assert!(TABLE.lines().count() > 100, "every extension of Debian's archive");
    }
}
