//! Chooses the files that are preloaded, of those that requests have included.
//!
//! Invariants
//! - All files of PHP in the application's folders are read, not only those that requests included so far: what a file declares may be
//!   declared, or asked for, by code that has not run yet.
//! - Files from outside that requests have included are read, too, and never chosen.
//! - A file is chosen only if none of its declarations is made in another file, asked for by name, or in the way of another function.
//! - A file with classes is chosen only if each script has an autoloader that would include this file for them and does nothing else:
//!   Composer's, and no other. The file has no other code. So an early class is one that the autoloader would have found.
//! - Code of the application is read, never run.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::composer::{Composer, is_composers};
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
const SOUGHT: &str = "code puts together names and asks whether they exist";
const IN_NAMESPACE: &str =
    "it declares a function in a namespace, where it stands in for one of PHP's";
const OTHER_LOADER: &str =
    "it declares a class, and there is an autoloader that is not Composer's or not the only one";
const NOT_FOUND: &str = "it declares a class for which Composer's autoloader does not include it";
const NOT_EVERYWHERE: &str =
    "it declares a class, and not every script includes Composer's autoloader";

/// Chooses among `learned`. `Err`: why none is preloaded.
pub(super) fn choose(
    folder: &Path,
    document_root: &Path,
    learned: &[PathBuf],
) -> Result<Choice, String> {
    let mut application = Application::read(&[folder, document_root])?;
    for path in learned {
        if !application.files.contains_key(path) {
            application.add(path.clone())?;
            application.outside.insert(path.clone());
        }
    }
    application.without_loader = application.script_without_loader(document_root);
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
    seeks_functions: bool,
    seeks_classes: bool,
    /// Files that are in none of the folders.
    outside: HashSet<PathBuf>,
    composers: Vec<Composer>,
    has_other_loader: bool,
    /// A script in the document root may run without Composer's autoloader.
    without_loader: bool,
}

impl Application {
    fn read(folders: &[&Path]) -> Result<Self, String> {
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
        self.seeks_functions |= source.seeks_functions;
        self.seeks_classes |= source.seeks_classes;
        self.has_other_loader |= source.changes_loaders && !is_composers(&path, &source);
        self.composers.extend(Composer::read(&path, &text));
        self.files.insert(path, source);
        Ok(())
    }

    /// Returns whether a script in the document root may run without Composer's autoloader.
    fn script_without_loader(&self, document_root: &Path) -> bool {
        let Ok(root) = document_root.canonicalize() else { return true };
        let [composer] = &self.composers[..] else { return true };
        let mut scripts = self.files.iter().filter(|(path, _)| path.starts_with(&root));
        scripts.any(|(_, source)| source.has_code && !composer.is_included(source))
    }

    /// Returns why the classes of a file are not declared early.
    fn class_obstacle(&self, path: &Path, source: &Source) -> Option<&'static str> {
        if self.seeks_classes {
            return Some(SOUGHT);
        }
        if self.has_other_loader || self.composers.len() > 1 {
            return Some(OTHER_LOADER);
        }
        let is_found = |class: &String| {
            let composer = self.composers.first();
            composer.and_then(|composer| composer.find(class)).is_some_and(|file| file == path)
        };
        if !source.classes.iter().all(is_found) {
            return Some(NOT_FOUND);
        }
        self.without_loader.then_some(NOT_EVERYWHERE)
    }

    /// Returns why the functions of a file are not declared early.
    fn function_obstacle(&self, source: &Source) -> Option<&'static str> {
        let mut functions = source.declared.iter().filter(|symbol| symbol.ends_with("()"));
        if functions.clone().any(|symbol| symbol.contains('\\')) {
            return Some(IN_NAMESPACE);
        }
        (self.seeks_functions && functions.next().is_some()).then_some(SOUGHT)
    }

    /// Returns why a file is not preloaded.
    fn obstacle(&self, path: &Path) -> Option<&'static str> {
        let source = self.files.get(path).filter(|_| !self.outside.contains(path));
        let Some(source) = source else { return Some(OUTSIDE) };
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
        if !source.classes.is_empty() && source.has_code {
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
        if source.declared.iter().any(is_tested) {
            return Some(TESTED);
        }
        self.function_obstacle(source).or_else(|| {
            let has_classes = !source.classes.is_empty();
            has_classes.then(|| self.class_obstacle(path, source)).flatten()
        })
    }
}

fn has_code(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ENDINGS.contains(&&*ending.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The maps of Composer: its autoloader finds the classes of `a.php`, `late.php` and `N\\A`.
    const MAPS: &str = "class ComposerStaticInit { public static $classMap = array (\n\
        'A' => __DIR__ . '/../..' . '/a.php', 'Late' => __DIR__ . '/../..' . '/late.php',\n\
        'N\\\\A' => __DIR__ . '/../..' . '/a.php',); }";
    const COMPOSER: &[(&str, &str)] = &[
        ("vendor/composer/autoload_static.php", MAPS),
        (
            "vendor/composer/autoload_real.php",
            "class ComposerAutoloaderInit { function f() { spl_autoload_register(); } }",
        ),
        (
            "vendor/composer/ClassLoader.php",
            "namespace Composer\\Autoload; class ClassLoader { function register() { spl_autoload_register(); } }",
        ),
        ("public/index.php", "require __DIR__ . '/../vendor/autoload.php'; echo 1;"),
    ];

    /// Returns what becomes of the first file, which requests have included.
    fn chosen(files: &[(&str, &str)]) -> String {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("<?php {text}")).unwrap();
        }
        let (root, first) = (folder.path().canonicalize().unwrap(), files[0].0);
        match choose(&root, &root.join("public"), &[root.join(first)]) {
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
            // A function in a namespace comes before PHP's own.
            (&[("a.php", "namespace N; function date($f) {}")], IN_NAMESPACE),
            // Names that are put together.
            (
                &[("a.php", "function a_hook() {}"), ("b.php", "function_exists(\"{$m}_hook\");")],
                SOUGHT,
            ),
            (&[("a.php", "function a() {}"), ("b.php", "class_exists($c, false);")], "preloaded"),
            (&[("a.php", "class A {}"), ("b.php", "class_exists($c, false);")], SOUGHT),
            (&[("a.php", "class A {}"), ("b.php", "function_exists($f);")], "preloaded"),
        ] {
            assert_eq!(chosen(&[files, COMPOSER].concat()), expected, "{files:?}");
        }
        let root = tempfile::tempdir().unwrap();
        let other = tempfile::NamedTempFile::new().unwrap();
        fs::write(other.path(), "<?php class A {}").unwrap();
        let outside = choose(root.path(), root.path(), &[other.path().into()]).unwrap();
        assert_eq!(outside.refused[0].why, OUTSIDE);
    }

    #[test]
    fn classes_are_preloaded_only_where_composers_autoloader_would_include_them() {
        let class = ("a.php", "class A {}");
        assert_eq!(chosen(&[class]), NOT_FOUND, "no autoloader");
        assert_eq!(chosen(&[&[class], COMPOSER].concat()), "preloaded");
        for (more, expected) in [
            // Another autoloader may do something when it has included a file.
            (
                &[(
                    "lib/loader.php",
                    "spl_autoload_register(function ($c) { require \"$c.php\"; $c::_init(); });",
                )][..],
                OTHER_LOADER,
            ),
            (&[("plugins/a/vendor/composer/autoload_static.php", MAPS)], OTHER_LOADER),
            // A page may unserialize what its client sends, where no class would be found.
            (&[("public/old.php", "unserialize($_GET['a']);")], NOT_EVERYWHERE),
            (
                &[("public/new.php", "require '../vendor/autoload.php'; unserialize($_GET['a']);")],
                "preloaded",
            ),
            (&[("public/functions.php", "function show() {}")], "preloaded"),
        ] {
            assert_eq!(chosen(&[&[class], COMPOSER, more].concat()), expected, "{more:?}");
        }
        for (name, code) in [
            ("b.php", "class A {}"),
            ("a.php", "class a {}"),
            ("a.php", "class A {} class B {}"),
            ("a.php", "namespace n; class A {}"),
        ] {
            assert_eq!(chosen(&[&[(name, code)], COMPOSER].concat()), NOT_FOUND, "{code}");
        }
        let function = ("a.php", "function a() {}");
        assert_eq!(chosen(&[function]), "preloaded", "it needs no autoloader");
    }
}
