//! `hearth.toml`: names, untyped values, and the line of each.

use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::value::Raw;
use super::{ConfigError, KEYS, OTHER_NAMES, Origin, SECTIONS, applications, nearest, processes};

/// A read file.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    /// The path.
    pub path: PathBuf,
    entries: Vec<Entry>,
    applications: Vec<Table>,
    processes: Vec<Table>,
}

/// A name with its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// `php.workers`; in an application's table also `path`.
    pub name: String,
    /// The value as it was written.
    pub raw: Raw,
    /// The line.
    pub line: usize,
}

/// `[applications.NAME]` or `[processes.NAME]`.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// NAME.
    pub(super) name: String,
    /// The first line.
    pub(super) line: usize,
    pub(super) entries: Vec<Entry>,
}

impl Table {
    pub(super) fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }
}

/// The tables of tables.
const APPLICATIONS: &str = "applications";
const PROCESSES: &str = "processes";

impl File {
    /// Reads a file that must be there.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|cause| ConfigError::Unreadable { path: path.to_owned(), cause })?;
        Self::parse(path, &text)
    }

    /// Reads a file that need not be there.
    pub(crate) fn read_if_there(path: &Path) -> Result<Option<Self>, ConfigError> {
        match Self::read(path) {
            Ok(file) => Ok(Some(file)),
            Err(ConfigError::Unreadable { cause, .. })
                if cause.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the text of a file.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let line = |at: usize| 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
        let document = DeTable::parse(text).map_err(|error| ConfigError::NotToml {
            path: path.to_owned(),
            line: line(error.span().map_or(0, |span| span.start)),
            message: error.message().to_owned(),
        })?;
        let mut file = Self { path: path.to_owned(), ..Self::default() };
        for (section, content) in document.get_ref() {
            match content.get_ref() {
                DeValue::Table(tables)
                    if [APPLICATIONS, PROCESSES].contains(&&**section.get_ref())
                        && tables.values().all(|table| table.get_ref().is_table()) =>
                {
                    let all = match &**section.get_ref() {
                        APPLICATIONS => &mut file.applications,
                        _ => &mut file.processes,
                    };
                    for (name, table) in tables {
                        let DeValue::Table(table) = table.get_ref() else { continue };
                        let mut entries = entries_of(table, line);
                        entries.sort_by_key(|entry| entry.line);
                        all.push(Table {
                            name: name.get_ref().to_string(),
                            line: line(name.span().start),
                            entries,
                        });
                    }
                }
                DeValue::Table(keys)
                    if SECTIONS.iter().any(|known| known.name == section.get_ref()) =>
                {
                    file.entries.extend(entries_in(section.get_ref(), keys, line));
                }
                // No such section, or a value outside any: refused by its bare name.
                other => file.entries.push(Entry {
                    name: section.get_ref().to_string(),
                    raw: raw(other),
                    line: line(section.span().start),
                }),
            }
        }
        file.entries.sort_by_key(|entry| entry.line);
        // As they stand in the file.
        file.applications.sort_by_key(|table| table.line);
        file.processes.sort_by_key(|table| table.line);
        Ok(file)
    }

    /// Returns the base directory for relative paths in the file.
    pub(crate) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or_else(|| Path::new("/"))
    }

    pub(super) fn applications(&self) -> &[Table] {
        &self.applications
    }

    pub(super) fn processes(&self) -> &[Table] {
        &self.processes
    }

    /// Removes the given keys.
    pub(super) fn forget(&mut self, which: impl Fn(&str) -> bool) {
        self.entries.retain(|entry| !which(&entry.name));
    }

    pub(super) fn get(&self, name: &str) -> Option<(&Raw, usize)> {
        self.entries.iter().find(|entry| entry.name == name).map(|entry| (&entry.raw, entry.line))
    }

    /// The names that are no settings.
    pub(super) fn unknown_names(&self) -> Vec<ConfigError> {
        let unknown = |entry: &&Entry| !KEYS.iter().any(|key| key.name == entry.name);
        let mut errors: Vec<ConfigError> =
            self.entries.iter().filter(unknown).map(|entry| self.unknown(entry)).collect();
        errors.extend(applications::unknown_names(&self.path, &self.applications));
        errors.extend(processes::unknown_names(&self.path, &self.processes));
        errors
    }

    fn unknown(&self, entry: &Entry) -> ConfigError {
        for (tables, one) in [(APPLICATIONS, "an application"), (PROCESSES, "a process")] {
            if entry.name == tables {
                return ConfigError::Together {
                    problem: format!(
                        "`{tables}` ({}:{}) has a value outside the table of {one}",
                        self.path.display(),
                        entry.line
                    ),
                    hint: format!("write it below `[{tables}.NAME]`"),
                };
            }
        }
        ConfigError::UnknownKey {
            name: entry.name.clone(),
            origin: Origin::File { path: self.path.clone(), line: entry.line },
            nearest: nearest_key(&entry.name),
        }
    }
}

/// The right key in the wrong section, a key like it in its section, or any key like it.
fn nearest_key(name: &str) -> Option<String> {
    if let Some((_, ours)) = OTHER_NAMES.iter().find(|(theirs, _)| *theirs == name) {
        return Some((*ours).to_owned());
    }
    let bare = name.rsplit('.').next().unwrap_or(name);
    if let Some(other) = KEYS.iter().find(|key| key.section_and_key().1 == bare) {
        return Some(other.name.to_owned());
    }
    if let Some((section, bare)) = name.split_once('.')
        && SECTIONS.iter().any(|known| known.name == section)
    {
        let keys = KEYS.iter().map(super::Key::section_and_key);
        let in_section = keys.filter(|(known, _)| *known == section).map(|(_, key)| key);
        if let Some(key) = nearest(bare, in_section) {
            return Some(format!("{section}.{key}"));
        }
    }
    let sections = SECTIONS.iter().map(|section| section.name).chain([APPLICATIONS, PROCESSES]);
    nearest(name, sections.chain(KEYS.iter().map(|key| key.name))).map(str::to_owned)
}

/// The keys of an application's table, and of the sections in it.
fn entries_of(table: &DeTable<'_>, line: impl Fn(usize) -> usize + Copy) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (key, value) in table {
        match value.get_ref() {
            DeValue::Table(keys) if SECTIONS.iter().any(|known| known.name == key.get_ref()) => {
                entries.extend(entries_in(key.get_ref(), keys, line));
            }
            other => entries.push(Entry {
                name: key.get_ref().to_string(),
                raw: raw(other),
                line: line(key.span().start),
            }),
        }
    }
    entries
}

fn entries_in<'t>(
    section: &'t str,
    keys: &'t DeTable<'_>,
    line: impl Fn(usize) -> usize + 't,
) -> impl Iterator<Item = Entry> + 't {
    keys.iter().map(move |(key, value)| Entry {
        name: format!("{section}.{}", key.get_ref()),
        raw: raw(value.get_ref()),
        line: line(key.span().start),
    })
}

fn raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::Array(items) => {
            Raw::List(items.iter().map(|item| scalar(item.get_ref())).collect())
        }
        DeValue::Table(table) => {
            let mut pairs = Vec::new();
            flatten("", table, &mut pairs);
            Raw::Table(pairs)
        }
        other => Raw::Text(scalar(other)),
    }
}

/// `opcache.enable = 1` in `[php.ini]` is a table in a table for TOML and one name for PHP.
fn flatten(prefix: &str, table: &DeTable<'_>, pairs: &mut Vec<(String, String)>) {
    for (name, value) in table {
        let name = format!("{prefix}{}", name.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => flatten(&format!("{name}."), inner, pairs),
            // A value in a table is one text; whatever takes several splits it at commas.
            DeValue::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| scalar(item.get_ref())).collect();
                pairs.push((name, items.join(",")));
            }
            // PHP's ini parser knows no `true`; `1` is what ini files mean by it.
            DeValue::Boolean(on) => pairs.push((name, u8::from(*on).to_string())),
            other => pairs.push((name, scalar(other))),
        }
    }
}

fn scalar(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(on) => on.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
