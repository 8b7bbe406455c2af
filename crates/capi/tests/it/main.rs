//! include/hearth.h declares exactly the functions that the library exports. scripts/test-client tests them from C
//! programs.

mod types;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns a text without comments and directives, with each run of white space as one blank.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/*") {
        plain.push_str(before);
        rest = comment.split_once("*/").expect("a comment ends").1;
    }
    plain.push_str(rest);
    let lines = plain.lines().filter(|line| !line.starts_with('#'));
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// Counts the arguments between parentheses.
fn arguments(list: &str) -> usize {
    match list.trim().trim_end_matches(',') {
        "" | "void" => 0,
        list => list.split(',').count(),
    }
}

/// Returns the functions in the header, with their number of arguments.
fn declared() -> BTreeMap<String, usize> {
    let header = fs::read_to_string(root().join("include/hearth.h")).expect("the header");
    plain(&header)
        .split(';')
        .filter(|statement| !statement.contains("typedef"))
        .filter_map(|statement| {
            let (head, list) = statement.split_once('(')?;
            let name = head.rsplit([' ', '*']).next()?;
            name.starts_with("hearth_")
                .then(|| (name.to_owned(), arguments(list.trim_end_matches(')'))))
        })
        .collect()
}

/// Returns the functions in the sources, with their number of arguments.
fn exported() -> BTreeMap<String, usize> {
    let mut exported = BTreeMap::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let modules = fs::read_dir(folder.join("abi")).expect("the modules");
    let files = modules.map(|entry| entry.expect("an entry").path()).chain([folder.join("abi.rs")]);
    for file in files {
        let source = fs::read_to_string(&file).expect("a source");
        for function in source.split("extern \"C\" fn ").skip(1) {
            let (name, rest) = function.split_once('(').expect("arguments");
            if name.starts_with('$') {
                continue; // in a macro, whose invocation has the names
            }
            let list = rest.split_once(')').expect("their end").0;
            let list = list.split_whitespace().collect::<Vec<_>>().join(" ");
            exported.insert(name.to_owned(), arguments(&list));
        }
    }
    exported
}

#[test]
fn the_header_declares_what_the_library_exports() {
    let (declared, exported) = (declared(), exported());
    assert!(declared.len() > 60, "the header could not be read: {declared:?}");
    assert_eq!(declared, exported);
}

#[test]
fn the_headers_version_is_the_crates() {
    let header = fs::read_to_string(root().join("include/hearth.h")).expect("the header");
    let version = env!("CARGO_PKG_VERSION");
    assert!(header.contains(&format!("#define HEARTH_VERSION \"{version}\"\n")));
    for (part, number) in ["MAJOR", "MINOR", "PATCH"].into_iter().zip(version.split('.')) {
        assert!(header.contains(&format!("#define HEARTH_VERSION_{part} {number}\n")), "{part}");
    }
}
