//! The types in include/hearth.h equal those of the Rust side. A C compiler compares each function's signature, and the
//! fields of each structure and their offsets, with the sources.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns all sources with declarations of the ABI, without comments.
fn sources() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let modules = fs::read_dir(folder.join("abi")).expect("the modules");
    let files = modules.map(|entry| entry.expect("an entry").path());
    let files = files.chain([folder.join("abi.rs"), folder.join("calls.rs")]);
    let lines = |file| {
        let source = fs::read_to_string(file).expect("a source");
        let code = source.lines().map(|line| line.split("//").next().unwrap_or_default());
        code.collect::<Vec<_>>().join(" ")
    };
    files.map(lines).collect::<Vec<_>>().join(" ")
}

/// Returns the C type of a Rust type; `calls` has the names of function pointers.
fn c_type(rust: &str, calls: &BTreeMap<String, String>) -> String {
    let rust = rust.trim();
    if let Some(to) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(to, calls));
    }
    if let Some(to) = rust.strip_prefix("*const ") {
        let to = c_type(to, calls);
        return if to.ends_with('*') { format!("{to} const *") } else { format!("const {to} *") };
    }
    if let Some(call) = rust.strip_prefix("Option<").and_then(|rest| rest.strip_suffix('>')) {
        return calls.get(call).cloned().unwrap_or_else(|| panic!("{call} is no function"));
    }
    match rust {
        "c_char" => "char",
        "c_int" => "int",
        "c_void" => "void",
        "usize" => "size_t",
        "u64" => "uint64_t",
        "i64" => "int64_t",
        "u32" => "uint32_t",
        "Bytes" => "hearth_bytes",
        "Engine" => "hearth_engine",
        "Request" => "hearth_request",
        "Response" => "hearth_response",
        "Jar" => "hearth_jar",
        "Mail" => "hearth_mail",
        "Statistics" => "hearth_statistics",
        "Timings" => "hearth_timings",
        "CRecipient" => "hearth_recipient",
        "CPart" => "hearth_part",
        "Tls" => "hearth_tls",
        "Certificate" => "hearth_certificate",
        _ => panic!("no C type is known for {rust:?}"),
    }
    .to_owned()
}

/// Splits a list at its commas, except those within parentheses or angle brackets.
fn parts(list: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut parts) = (0, 0, Vec::new());
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'(' | b'<' => depth += 1,
            b')' | b'>' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(list.get(begin..at).expect("a comma is one byte"));
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(list.get(begin..).expect("a comma is one byte"));
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// Returns the text between these parentheses, and the text after them.
fn parenthesis(text: &str) -> (&str, &str) {
    let mut depth = 1;
    for (at, byte) in text.bytes().enumerate() {
        depth += match byte {
            b'(' => 1,
            b')' => -1,
            _ => 0,
        };
        if depth == 0 {
            let (list, end) = text.split_at(at);
            return (list, end.strip_prefix(')').expect("it ends there"));
        }
    }
    panic!("a parenthesis does not end")
}

/// Returns a function pointer's type, such as `int (*)(char *, size_t)`.
fn pointer(arguments: &[String], result: &str) -> String {
    let list = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
    format!("{result} (*)({list})")
}

fn result(behind: &str, end: char, calls: &BTreeMap<String, String>) -> String {
    match behind.trim_start().strip_prefix("->") {
        Some(rest) => c_type(rest.split(end).next().unwrap_or_default(), calls),
        None => "void".to_owned(),
    }
}

fn calls(sources: &str) -> BTreeMap<String, String> {
    let mut calls = BTreeMap::new();
    for alias in sources.split("pub(crate) type ").skip(1) {
        let Some((name, rest)) = alias.split_once('=') else { continue };
        let Some(rest) = rest.trim().strip_prefix("unsafe extern \"C\" fn(") else { continue };
        let (list, behind) = parenthesis(rest);
        let arguments: Vec<_> = parts(list).into_iter().map(|one| c_type(one, &calls)).collect();
        let result = result(behind, ';', &calls);
        calls.insert(name.trim().to_owned(), pointer(&arguments, &result));
    }
    calls
}

/// Appends assertions about each exported function, and returns how many.
fn functions(sources: &str, calls: &BTreeMap<String, String>, out: &mut String) -> usize {
    let mut count = 0;
    for function in sources.split("extern \"C\" fn hearth_").skip(1) {
        let (name, rest) = function.split_once('(').expect("arguments");
        let (list, behind) = parenthesis(rest);
        let of = |argument: &str| c_type(argument.split_once(':').expect("a type").1, calls);
        let arguments: Vec<_> = parts(list).into_iter().map(of).collect();
        let wanted = pointer(&arguments, &result(behind, '{', calls));
        let _infallible = writeln!(
            out,
            "_Static_assert(_Generic(&hearth_{name}, {wanted}: 1, default: 0), \"hearth_{name}: {wanted}\");"
        );
        count += 1;
    }
    count
}

/// Appends assertions about each structure, and returns how many.
fn structures(sources: &str, calls: &BTreeMap<String, String>, out: &mut String) -> usize {
    let mut count = 0;
    for structure in sources.split("#[repr(C)]").skip(1) {
        let (_, rest) = structure.split_once("pub struct ").expect("a structure");
        let (name, rest) = rest.split_once('{').expect("fields");
        let fields: Vec<_> = parts(rest.split_once('}').expect("their end").0)
            .into_iter()
            .map(|field| field.trim_start_matches("pub ").split_once(':').expect("a type"))
            .map(|(field, of)| (field.trim(), c_type(of, calls)))
            .collect();
        let name = c_type(name, calls);
        let list: Vec<_> = fields.iter().map(|(field, of)| format!("{of} {field};")).collect();
        let list = list.join(" ");
        let _infallible = writeln!(out, "struct of_{name} {{ {list} }};");
        let _infallible = writeln!(
            out,
            "_Static_assert(sizeof({name}) == sizeof(struct of_{name}), \"{name}: size\");"
        );
        for (field, of) in fields {
            let _infallible = writeln!(
                out,
                "_Static_assert(offsetof({name}, {field}) == offsetof(struct of_{name}, {field}) \
                 && _Generic(((struct {name} *)0)->{field}, {of}: 1, default: 0), \"{name}.{field}\");"
            );
        }
        count += 1;
    }
    count
}

fn compile(text: &str) -> (bool, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("types.c");
    fs::write(&file, text).expect("a file");
    let includes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let output = Command::new("cc")
        .args(["-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I"])
        .args([&includes, &file])
        .output()
        .expect("a C compiler");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn header_types_match_the_library_in_c() {
    let sources = sources();
    let calls = calls(&sources);
    let mut text = String::from("#include <hearth.h>\n");
    let functions = functions(&sources, &calls, &mut text);
    let structures = structures(&sources, &calls, &mut text);
    assert!(functions > 90 && structures >= 7 && calls.len() > 8, "{functions} {structures}");
    let (fine, said) = compile(&text);
    assert!(fine, "{said}");

    // The same check does find differences.
    for (right, wrong) in [
        (
            "hearth_response_keep, hearth_response *",
            "hearth_response_keep, const hearth_response *",
        ),
        ("uint64_t total;", "uint32_t total;"),
        ("size_t size; uint64_t queued", "uint64_t queued; size_t size; uint64_t queue"),
    ] {
        assert!(text.contains(right), "{right}");
        assert!(!compile(&text.replace(right, wrong)).0, "{wrong}");
    }
}
