//! `hearth.toml`: names, untyped values, and the line each stands on.

use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::value::Raw;
use super::{ConfigError, KEYS, Origin, SECTIONS, nearest};

/// A read file.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    /// Where it lies.
    pub path: PathBuf,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    name: String,
    raw: Raw,
    line: usize,
}

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
        let mut file = Self { path: path.to_owned(), entries: Vec::new() };
        for (section, content) in document.get_ref() {
            match content.get_ref() {
                DeValue::Table(keys)
                    if SECTIONS.iter().any(|known| known.name == section.get_ref()) =>
                {
                    for (key, value) in keys {
                        file.entries.push(Entry {
                            name: format!("{}.{}", section.get_ref(), key.get_ref()),
                            raw: raw(value.get_ref()),
                            line: line(key.span().start),
                        });
                    }
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
        Ok(file)
    }

    /// What relative paths in it are relative to.
    pub(crate) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or_else(|| Path::new("/"))
    }

    pub(super) fn get(&self, name: &str) -> Option<(&Raw, usize)> {
        self.entries.iter().find(|entry| entry.name == name).map(|entry| (&entry.raw, entry.line))
    }

    /// Errs on the first name that is no setting.
    pub(super) fn check_names(&self) -> Result<(), ConfigError> {
        match self.entries.iter().find(|entry| !KEYS.iter().any(|key| key.name == entry.name)) {
            None => Ok(()),
            Some(entry) => Err(ConfigError::UnknownKey {
                name: entry.name.clone(),
                origin: Origin::File { path: self.path.clone(), line: entry.line },
                nearest: nearest_key(&entry.name),
            }),
        }
    }
}

/// The right key in the wrong section, a key like it in its section, or any key like it.
fn nearest_key(name: &str) -> Option<String> {
    let bare = name.rsplit('.').next().unwrap_or(name);
    if let Some(elsewhere) = KEYS.iter().find(|key| key.section_and_key().1 == bare) {
        return Some(elsewhere.name.to_owned());
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
    let sections = SECTIONS.iter().map(|section| section.name);
    nearest(name, sections.chain(KEYS.iter().map(|key| key.name))).map(str::to_owned)
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
