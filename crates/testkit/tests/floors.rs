//! Checks ARCHITECTURE.md: a crate, and a folder of `native/`, imports only from the floors below its own.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The crates that each crate may import. A change of this table is a change of the architecture.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("answer-cache", &[]),
    ("wire", &[]),
    ("http1", &[]),
    ("tls", &[]),
    ("traces", &[]),
    ("unix-stream", &[]),
    ("pool", &["http1", "traces", "unix-stream", "wire"]),
    ("egress", &["http1", "tls", "traces", "unix-stream", "wire"]),
    ("channels", &["http1"]),
    ("dbproxy", &["tls"]),
    ("certificates", &[]),
    ("mail", &[]),
    ("front-http", &["answer-cache", "channels", "http1", "pool", "traces"]),
    ("front-lambda", &["http1", "pool", "traces"]),
    ("capi", &["egress", "mail"]),
    (
        "server",
        &[
            "certificates",
            "channels",
            "dbproxy",
            "egress",
            "front-http",
            "front-lambda",
            "http1",
            "pool",
            "traces",
            "wire",
        ],
    ),
    ("testkit", &["http1", "wire"]),
    ("loadgen", &[]),
];

/// The same for the folders of `native/`. Tests there may include everything.
const NATIVE_MAY_INCLUDE: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("snapshot", &[]),
    ("sessions", &[]),
    ("ext", &["wire"]),
    ("sapi", &["ext", "sessions", "snapshot", "wire"]),
    ("tests", &["ext", "sapi", "sessions", "snapshot", "wire"]),
];

/// The folders of `native/` that use PHP's headers. The others compile without them.
const NATIVE_KNOWS_PHP: &[&str] = &["ext", "sapi", "tests"];

/// The floors inside `crates/server/src`, the highest first. A module imports from its own floor and from those below.
const SERVER_FLOORS: &[&str] =
    &["cli", "commands", "runtime", "app", "subsystems", "ops", "config", "system", "failure"];

/// Maximum number of modules in an import cycle of `server`.
const LARGEST_CYCLE: usize = 4;

/// Maximum number of lines in a source file without its tests.
const LONGEST_FILE: usize = 500;

/// The same for a command of `server`, whose parts are in a folder of its name.
const LONGEST_COMMAND: usize = 200;

/// Folders of source files, and the endings of their names.
const SOURCES: &[(&str, &[&str])] = &[
    ("crates", &["rs"]),
    ("native", &["c", "h"]),
    ("cpp/include", &["hpp"]),
    ("packages", &["php", "ts", "js"]),
];

/// Files that are declarative tables or generated, and may be longer.
const TABLES: &[&str] = &["crates/server/src/config/keys.rs", "crates/capi/src/settings/keys.rs"];

#[test]
fn crates_import_only_from_the_floors_below() {
    let allowed = table(MAY_IMPORT);
    let crates = workspace_dependencies();

    for (name, deps) in &crates {
        let allowed =
            allowed.get(name.as_str()).unwrap_or_else(|| panic!("crate {name} has no floor yet"));
        for dep in deps {
            assert!(allowed.contains(dep.as_str()), "crate {name} may not import {dep}");
        }
    }
    for name in allowed.keys() {
        assert!(crates.contains_key(*name), "the table has a floor for {name}, which is no crate");
    }
}

#[test]
fn sans_io_crates_depend_on_no_runtime() {
    for package in ["answer-cache", "http1", "wire"] {
        let args = ["--edges", "normal", "--prefix", "none", "--locked", "--offline"];
        let tree = cargo(&[&["tree", "--package", package][..], &args].concat());
        let names: BTreeSet<&str> =
            tree.lines().filter_map(|line| line.split_whitespace().next()).collect();

        assert!(names.contains(package), "cargo tree printed something else: {tree}");
        for runtime in ["tokio", "mio", "hyper", "rustix", "libc"] {
            assert!(!names.contains(runtime), "{package} is sans I/O, yet it depends on {runtime}");
        }
    }
}

#[test]
fn native_parts_include_only_from_the_floors_below() {
    let native = root().join("native");
    let allowed = table(NATIVE_MAY_INCLUDE);
    let mut includes = 0;

    for file in c_files(&native) {
        let inside = file.strip_prefix(&native).expect("it was found there");
        let Some(part) = part_of(inside) else { continue };
        let allowed = allowed.get(part).unwrap_or_else(|| panic!("native/{part} has no floor yet"));
        let text = fs::read_to_string(&file).expect("a C file is readable text");

        for include in text.lines().filter_map(included) {
            includes += 1;
            let inside = inside.display();
            if let Some(other) = resolve(&native, &file, include) {
                assert!(
                    other == part || allowed.contains(other.as_str()),
                    "native/{inside} may not include {include}"
                );
            } else if is_php_header(include) {
                assert!(
                    NATIVE_KNOWS_PHP.contains(&part),
                    "native/{inside} may not know PHP, yet it includes {include}"
                );
            }
        }
    }
    assert!(includes > 0, "no C file found in {}", native.display());
}

#[test]
fn modules_of_server_import_only_from_the_floors_below() {
    let rank = |module: &str| {
        let floor = module.split("::").next().unwrap_or(module);
        SERVER_FLOORS
            .iter()
            .position(|known| *known == floor)
            .unwrap_or_else(|| panic!("server's module {module} has no floor yet"))
    };
    let imports = imports_of_server();
    let seen =
        |module: &str, other: &str| imports.get(module).is_some_and(|all| all.contains(other));

    assert!(seen("ops::subsystem", "ops::status"), "imports by `super::` are seen");
    assert!(seen("ops::reloads", "ops::status"), "imports by `crate::` are seen");
    assert!(imports.len() > SERVER_FLOORS.len(), "few modules were found: {imports:?}");
    for (module, imported) in &imports {
        for other in imported {
            assert!(rank(module) <= rank(other), "server's {module} may not import {other}");
        }
    }
}

#[test]
fn import_cycles_inside_server_are_small() {
    let imports = imports_of_server();
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|module| (module.as_str(), reachable(&imports, module))).collect();

    for (module, all) in &reached {
        let circle: Vec<&str> = all
            .iter()
            .copied()
            .filter(|other| reached.get(other).is_some_and(|back| back.contains(module)))
            .collect();
        assert!(circle.len() <= LARGEST_CYCLE, "these modules import each other: {circle:?}");
    }
}

#[test]
fn source_files_are_short() {
    let root = root();
    for (folder, extensions) in SOURCES {
        let sources = files(&root.join(folder), extensions);
        assert!(!sources.is_empty(), "no source file found in {folder}");
        for file in sources {
            let inside = file.strip_prefix(&root).expect("it was found there");
            let skipped = ["tests", "node_modules", "vendor", "dist"];
            let is_test = inside.iter().any(|part| skipped.iter().any(|name| part == *name))
                || inside.ends_with("tests.rs");
            let is_skipped = is_test && !inside.starts_with("crates/server")
                || TABLES.iter().any(|table| inside == Path::new(table));
            if !is_skipped {
                let text = fs::read_to_string(&file).expect("source is readable text");
                let lines = without_tests(&text).lines().count();
                let is_command = inside.parent() == Some(Path::new("crates/server/src/commands"));
                let longest = if is_command { LONGEST_COMMAND } else { LONGEST_FILE };
                let inside = inside.display();
                assert!(lines <= longest, "{inside} has {lines} lines: there are two files in it");
            }
        }
    }
}

/// Returns a Rust source text up to its module of tests.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

/// Returns the imports of each module of `server`, without tests. A module is `floor::name` with all that is below it, or the file of a
/// floor.
fn imports_of_server() -> BTreeMap<String, BTreeSet<String>> {
    let source = root().join("crates/server/src");
    let paths: Vec<PathBuf> = files(&source, &["rs"])
        .into_iter()
        .map(|file| file.strip_prefix(&source).expect("it was found there").with_extension(""))
        .filter(|inside| {
            let is_test = |part: &OsStr| part.to_str().is_some_and(|part| part.ends_with("tests"));
            inside.as_path() != Path::new("main") && !inside.iter().any(is_test)
        })
        .collect();
    let of =
        |path: &Path| path.iter().filter_map(|part| part.to_str().map(str::to_owned)).collect();
    let all: Vec<Vec<String>> = paths.iter().map(|path| of(path)).collect();
    let modules: BTreeSet<String> = all.iter().map(|parts| first_two(parts)).collect();

    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (inside, parts) in paths.iter().zip(&all) {
        let file = source.join(inside).with_extension("rs");
        let text = fs::read_to_string(file).expect("source is readable text");
        let module = first_two(parts);
        let imported = imports.entry(module.clone()).or_default();
        for path in paths_in(&text, parts) {
            let other = first_two(&path);
            let other = if modules.contains(&other) { other } else { path[0].clone() };
            if other != module {
                imported.insert(other);
            }
        }
    }
    imports
}

fn first_two(parts: &[String]) -> String {
    parts.iter().take(2).map(String::as_str).collect::<Vec<_>>().join("::")
}

/// Returns the paths from the root of the crate that `crate::…` and `super::…` name in the text of module `inside`, before its tests.
fn paths_in(text: &str, inside: &[String]) -> Vec<Vec<String>> {
    let code: Vec<&str> =
        without_tests(text).lines().map(|line| line.split("//").next().unwrap_or(line)).collect();
    let code = code.join("\n");
    let mut paths = Vec::new();
    for rest in code.split("crate::").skip(1) {
        paths_of_tree(&[], rest, &mut paths);
    }
    let mut levels = 0;
    for rest in code.split("super::").skip(1) {
        levels += 1;
        if !rest.is_empty() {
            paths_of_tree(&inside[..inside.len().saturating_sub(levels)], rest, &mut paths);
            levels = 0;
        }
    }
    paths.retain(|path| !path.is_empty());
    paths
}

/// Adds each path of a `use` tree, or of a path in an expression.
fn paths_of_tree(base: &[String], tree: &str, paths: &mut Vec<Vec<String>>) {
    let tree = tree.trim_start();
    if let Some(group) = tree.strip_prefix('{') {
        let (mut depth, mut branch) = (0, String::new());
        for letter in group.chars() {
            match letter {
                ',' | '}' if depth == 0 => {
                    paths_of_tree(base, &std::mem::take(&mut branch), paths);
                    if letter == '}' {
                        return;
                    }
                    continue;
                }
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            branch.push(letter);
        }
        return;
    }
    let word = tree.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
    let mut path = base.to_vec();
    path.extend(Some(word.to_owned()).filter(|word| !word.is_empty() && word != "self"));
    match tree.strip_prefix(word).and_then(|rest| rest.strip_prefix("::")) {
        Some(rest) if !word.is_empty() => paths_of_tree(&path, rest, paths),
        _ => paths.push(path),
    }
}

/// Returns all modules that `module` imports, directly or indirectly.
fn reachable<'i>(
    imports: &'i BTreeMap<String, BTreeSet<String>>,
    module: &str,
) -> BTreeSet<&'i str> {
    let mut found = BTreeSet::new();
    let mut open = vec![module];
    while let Some(next) = open.pop() {
        for other in imports.get(next).into_iter().flatten() {
            if found.insert(other.as_str()) {
                open.push(other);
            }
        }
    }
    found
}

fn table<'a>(rows: &[(&'a str, &[&'a str])]) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    rows.iter().map(|(name, deps)| (*name, deps.iter().copied().collect())).collect()
}

/// Returns normal (not dev, not build) dependencies between the crates of this workspace.
fn workspace_dependencies() -> BTreeMap<String, Vec<String>> {
    let metadata: Value = serde_json::from_str(&cargo(&[
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--locked",
        "--offline",
    ]))
    .expect("cargo prints JSON");

    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    metadata["packages"]
        .as_array()
        .expect("packages")
        .iter()
        .map(|package| {
            let deps = package["dependencies"].as_array().expect("dependencies").iter();
            let ours = deps.filter(|dep| dep["path"].is_string() && dep["kind"].is_null());
            (text(&package["name"]), ours.map(|dep| text(&dep["name"])).collect())
        })
        .collect()
}

/// Returns cargo's output in the workspace's folder.
fn cargo(args: &[&str]) -> String {
    let out =
        Command::new(env!("CARGO")).args(args).current_dir(root()).output().expect("cargo runs");
    assert!(out.status.success(), "cargo {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("cargo prints UTF-8")
}

fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates/");
    crates.parent().expect("the workspace").to_owned()
}

/// Returns every `.c` and `.h` below `dir`.
fn c_files(dir: &Path) -> Vec<PathBuf> {
    files(dir, &["c", "h"])
}

/// Returns every file below `dir` with one of these extensions.
fn files(dir: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap_or_else(|why| panic!("{}: {why}", dir.display())) {
            let path = entry.expect("a directory entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else if path
                .extension()
                .is_some_and(|ext| extensions.iter().any(|wanted| ext == *wanted))
            {
                found.push(path);
            }
        }
    }
    found
}

/// Returns the folder of `native/` that contains a path; `None` for a file at its top.
fn part_of(inside: &Path) -> Option<&str> {
    let mut components = inside.components();
    let first = components.next()?.as_os_str().to_str()?;
    components.next().map(|_| first)
}

/// Returns `x/y.h` of `#include "x/y.h"` and of `#include <x/y.h>`.
fn included(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?;
    let rest = rest.trim_start();
    let close = match rest.chars().next()? {
        '"' => '"',
        '<' => '>',
        _ => return None,
    };
    rest.get(1..)?.split(close).next()
}

/// Returns the folder of `native/` that an include resolves to: beside the including file, or from `native/` or one of its folders.
fn resolve(native: &Path, file: &Path, include: &str) -> Option<String> {
    let beside = file.parent().map(|dir| dir.join(include));
    let parts = NATIVE_MAY_INCLUDE.iter().map(|(part, _)| native.join(part).join(include));
    let path = beside
        .into_iter()
        .chain([native.join(include)])
        .chain(parts)
        .find_map(|path| path.canonicalize().ok())?;
    let inside = path.strip_prefix(native.canonicalize().ok()?).ok()?;
    part_of(inside).map(str::to_owned)
}

fn is_php_header(include: &str) -> bool {
    ["php", "zend", "Zend/", "main/", "ext/standard/", "SAPI.h", "TSRM"]
        .iter()
        .any(|start| include.starts_with(start))
}
