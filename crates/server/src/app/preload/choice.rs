//! Chooses the files that are preloaded, of those that requests have included.
//!
//! Invariants
//! - All files of PHP in the application's folders are read, not only those that requests included so far: what a file declares may be
//!   declared, or asked for, by code that has not run yet.
//! - A file is chosen only if it is in those folders, none of its declarations is made in another file or asked for by name, and its
//!   classes come without other code: an autoloader then skips the file unnoticed.
//! - Code of the application is read, never run.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::source::{Source, last_part};
use crate::ops::preloaded::Refused;

/// Endings of files with PHP code.
const ENDINGS: &[&str] = &[
    "php", "inc", "module", "install", "theme", "profile", "engine", "phtml", "php5", "php7",
    "php8",
];
/// Folders that are never looked into.
const IGNORED: &[&str] = &[".git", ".svn", "node_modules"];
/// Folders whose code is made while the application runs: names of classes stay the same there, their code does not.
const MADE: &[&str] = &["cache", "var", "tmp", "temp", "storage", "compiled", "templates_c"];
/// The most files and bytes that are read.
const MOST_FILES: usize = 50_000;
const MOST_BYTES: u64 = 512 << 20;

/// The files that are preloaded, and those that are not.
#[derive(Debug, Default)]
pub(super) struct Choice {
    pub files: Vec<PathBuf>,
    pub refused: Vec<Refused>,
}

const OUTSIDE: &str = "outside of the application's folder";
const CHANGES: &str = "its folder is for files that change by themselves";
const NOTHING: &str = "it declares nothing";
const HAS_CODE: &str = "it declares a class and has other code, which an autoloader would skip";
const TWICE: &str = "another file declares the same";
const TESTED: &str = "code asks whether its declarations exist";

/// Chooses among `learned`. `Err`: why none is preloaded.
pub(super) fn choose(folders: &[PathBuf], learned: &[PathBuf]) -> Result<Choice, String> {
    let application = Application::read(folders)?;
    let mut refused: BTreeMap<&'static str, Refused> = BTreeMap::new();
    let mut files = Vec::new();
    for path in learned {
        if let Some(lists) = application.files.get(path).and_then(|source| source.lists) {
            return Err(format!("{} calls {lists}()", path.display()));
        }
        let Some(why) = application.obstacle(path) else {
            files.push(path.clone());
            continue;
        };
        let one = refused.entry(why).or_default();
        if one.files == 0 {
            (one.why, one.first) = (why, path.display().to_string());
        }
        one.files += 1;
    }
    files.sort_unstable();
    Ok(Choice { files, refused: refused.into_values().collect() })
}

/// All code of an application.
#[derive(Debug, Default)]
struct Application {
    folders: Vec<PathBuf>,
    files: HashMap<PathBuf, Source>,
    /// How many files declare a symbol.
    declarations: HashMap<String, usize>,
    tested: HashSet<String>,
    tested_names: HashSet<String>,
}

impl Application {
    fn read(folders: &[PathBuf]) -> Result<Self, String> {
        let mut all = Self::default();
        let mut to_read: Vec<PathBuf> =
            folders.iter().filter_map(|folder| folder.canonicalize().ok()).collect();
        all.folders.clone_from(&to_read);
        let mut seen: HashSet<PathBuf> = to_read.iter().cloned().collect();
        let (mut files, mut bytes) = (0, 0);
        while let Some(folder) = to_read.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok) {
                let name = entry.file_name();
                let Ok(path) = entry.path().canonicalize() else { continue };
                if IGNORED.iter().any(|ignored| name == *ignored) || !seen.insert(path.clone()) {
                    continue;
                }
                let Ok(metadata) = fs::metadata(&path) else { continue };
                if metadata.is_dir() {
                    to_read.push(path);
                } else if metadata.is_file() && has_code(&path) {
                    (files, bytes) = (files + 1, bytes + metadata.len());
                    if files > MOST_FILES || bytes > MOST_BYTES {
                        return Err(format!(
                            "there are more than {MOST_FILES} files or {} MB of code to look at",
                            MOST_BYTES >> 20
                        ));
                    }
                    all.add(path)?;
                }
            }
        }
        Ok(all)
    }

    fn add(&mut self, path: PathBuf) -> Result<(), String> {
        let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut source = Source::of(&text);
        let symbols: HashSet<&String> = source.declared.iter().chain(&source.conditional).collect();
        for symbol in symbols {
            *self.declarations.entry(symbol.clone()).or_default() += 1;
        }
        self.tested.extend(source.tested.drain());
        self.tested_names.extend(source.tested_names.drain());
        self.files.insert(path, source);
        Ok(())
    }

    /// Returns why a file is not preloaded.
    fn obstacle(&self, path: &Path) -> Option<&'static str> {
        let Some(source) = self.files.get(path) else { return Some(OUTSIDE) };
        let inside = self.folders.iter().find_map(|folder| path.strip_prefix(folder).ok());
        let changes = |part: std::path::Component<'_>| {
            let part = part.as_os_str().to_string_lossy().to_lowercase();
            MADE.contains(&&*part)
        };
        if inside.unwrap_or(path).components().any(changes) {
            return Some(CHANGES);
        }
        if source.declared.is_empty() {
            return Some(NOTHING);
        }
        if source.has_classes && source.has_code {
            return Some(HAS_CODE);
        }
        let is_twice = |symbol: &String| self.declarations.get(symbol).is_some_and(|n| *n > 1);
        let conditional = source.conditional.iter().any(|symbol| source.declared.contains(symbol));
        if conditional || source.declared.iter().any(is_twice) {
            return Some(TWICE);
        }
        let is_tested = |symbol: &String| {
            self.tested.contains(symbol) || self.tested_names.contains(last_part(symbol))
        };
        source.declared.iter().any(is_tested).then_some(TESTED)
    }
}

fn has_code(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ENDINGS.contains(&&*ending.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what becomes of `a.php`, which requests have included.
    fn chosen(files: &[(&str, &str)]) -> String {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("<?php {text}")).unwrap();
        }
        let (root, first) = (folder.path().canonicalize().unwrap(), files[0].0);
        match choose(std::slice::from_ref(&root), &[root.join(first)]) {
            Ok(Choice { files, .. }) if files == [root.join(first)] => "preloaded".into(),
            Ok(Choice { refused, .. }) => {
                refused.first().map(|one| one.why).unwrap_or_default().into()
            }
            Err(why) => why.replace(root.to_str().unwrap(), ""),
        }
    }

    #[test]
    fn a_file_is_preloaded_only_if_nothing_can_tell() {
        for (files, expected) in [
            (&[("a.php", "class A {}"), ("b.php", "new A;")][..], "preloaded"),
            (&[("a.php", "require 'b.php'; function a() {}")], "preloaded"),
            (&[("a.php", "class A {} A::start();")], HAS_CODE),
            (&[("a.php", "class A {}"), ("lib/b.php", "class A {}")], TWICE),
            (&[("a.php", "function a() {}"), ("b.php", "if (1) { function a() {} }")], TWICE),
            (&[("a.php", "function a() {}"), ("b.inc", "function_exists('a');")], TESTED),
            (&[("a.php", "class A {}"), ("b.php", "class_exists(\\A::class);")], TESTED),
            (&[("a.php", "namespace N; class A {}"), ("b.php", "class_exists('A');")], "preloaded"),
            (&[("a.php", "class A {}"), ("b.php", "// class A {}")], "preloaded"),
            (&[("var/a.php", "class A {}")], CHANGES),
            (&[("a.php", "echo 1;")], NOTHING),
            (
                &[("a.php", "class A { function f() { get_declared_classes(); } }")],
                "/a.php calls get_declared_classes()",
            ),
        ] {
            assert_eq!(chosen(files), expected, "{files:?}");
        }
        let outside = choose(&["/not/there".into()], &["/other/a.php".into()]).unwrap();
        assert_eq!(outside.refused[0].why, OUTSIDE);
    }
}
