//! Tests of the program `hearth` from a shell: output, exit status, help. They need no PHP.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod models;
mod server;

use std::fmt::Write as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use server::{Server, get};

/// Returns the command `hearth` in a clean environment: no settings, and no PHP but the test's.
fn hearth(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hearth"));
    command
        .env_clear()
        .env("HEARTH_LIB_DIR", folder.join("lib"))
        // The format for people, which a pipe does not get by default.
        .env("HEARTH_LOG_FORMAT", "text")
        .current_dir(folder)
        .stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    outcome(&hearth(folder.path()).args(arguments).output().unwrap())
}

fn outcome(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn help_text_is_complete() {
    let (status, stdout, stderr) = run(&["--help"]);
    assert_eq!((status, stderr.as_str()), (0, ""));
    insta::assert_snapshot!(stdout);
    let (_, serve, _) = run(&["serve", "--help"]);
    for word in [
        "Examples:",
        "--listen <ADDR>",
        "[key: php.workers]",
        "HEARTH_PHP_WORKERS",
        "[default: 60s]",
    ] {
        assert!(serve.contains(word), "{word} is missing in\n{serve}");
    }
}

#[test]
fn a_broker_that_cannot_start_gives_reason_and_hint() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "text").unwrap();
    let misuses: &[&[&str]] = &[
        &["--socket", "none/egress.sock"],
        &["--socket", "file"],
        &["--socket", "egress.sock", "--ca", "none.pem"],
        &["--socket", "egress.sock", "--ca", "file"],
        &["--socket", "egress.sock", "--allow-user", "no such user"],
        &["--sokcet", "egress.sock"],
    ];
    let mut seen = String::new();
    for arguments in misuses {
        let mut command = hearth(folder.path());
        let output = command.arg("egress").args(*arguments).output().unwrap();
        let (status, stdout, stderr) = outcome(&output);
        assert_eq!(stdout, "");
        let stderr = stderr.replace(&*folder.path().to_string_lossy(), "FOLDER");
        writeln!(seen, "hearth egress {}\n{stderr}exit status {status}\n", arguments.join(" "))
            .unwrap();
    }
    insta::assert_snapshot!(seen);
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["file"]);
}

#[test]
fn the_version_is_that_of_the_crate() {
    assert_eq!(
        run(&["--version"]),
        (0, format!("hearth {}\n", env!("CARGO_PKG_VERSION")), String::new())
    );
}

#[test]
fn each_misuse_exits_with_2_and_says_what_to_do_last() {
    let mut seen = String::new();
    let misuses: &[&[&str]] = &[
        &["serv"],
        &["start"],
        &["serve", ""],
        &["serve", "--port", "8080"],
        &["serve", "--lisen", ":80"],
        &["serve", "--listen"],
        &["serve", "--listen", "nowhere"],
        &["serve", "--model", "snapshto"],
        &["serve", "--model", "request", "--model", "worker"],
        &["serve", ".", "extra"],
        &["check", "--jsno"],
        &["serve", "--config", "missing.toml"],
        &["serve", "--log-level", "=="],
        &["serve", "--log-level", "warning"],
    ];
    for arguments in misuses {
        let (status, stdout, stderr) = run(arguments);
        assert_eq!((status, stdout.as_str()), (2, ""), "{arguments:?}: {stderr}");
        assert!(stderr.lines().last().unwrap().starts_with("hint: "), "{arguments:?}: {stderr}");
        writeln!(seen, "$ hearth {}\n{}", arguments.join(" "), folderless(&stderr)).unwrap();
    }
    insta::assert_snapshot!(seen);
}

/// Replaces the name of the temporary folder, which differs each time.
fn folderless(text: &str) -> String {
    let temporary = std::env::temp_dir().display().to_string();
    let words = text.split(' ').map(|word| match word.strip_prefix(&temporary) {
        Some(rest) => format!("TMP/{}", rest.rsplit('/').next().unwrap_or_default()),
        None => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn without_a_command_the_help_comes_on_stderr() {
    let (status, stdout, stderr) = run(&[]);
    assert_eq!((status, stdout.as_str()), (2, ""));
    assert!(stderr.contains("Usage: hearth <COMMAND>"), "{stderr}");
}

#[test]
fn an_unknown_variable_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let output = hearth(folder.path()).arg("serve").env("HEARTH_WORKERS", "2").output().unwrap();
    let (status, _, stderr) = outcome(&output);
    assert_eq!(status, 2);
    assert_eq!(
        stderr,
        "error: unknown setting `HEARTH_WORKERS` (environment)\nhint: did you mean `HEARTH_PHP_WORKERS`?\n"
    );
}

#[test]
fn an_empty_folder_is_rejected() {
    let (status, stdout, stderr) = run(&["serve"]);
    assert_eq!((status, stdout.as_str()), (1, ""));
    assert!(stderr.starts_with("error: nothing to serve in "), "{stderr}");
    assert!(stderr.ends_with(
        "hint: name the application's folder, or its script: `hearth serve path/to/index.php`\n"
    ));
}

#[test]
fn check_says_that_php_is_missing_and_exits_with_1() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("index.php"), "").unwrap();
    let check = |arguments: &[&str]| {
        outcome(
            &hearth(folder.path())
                .arg("check")
                .args(["--listen", "127.0.0.1:0"])
                .args(arguments)
                .output()
                .unwrap(),
        )
    };
    let (status, stdout, stderr) = check(&[]);
    assert_eq!((status, stderr.as_str()), (1, ""));
    assert!(stdout.contains("✗ php: no PHP found"), "{stdout}");
    let (status, stdout, _) = check(&["--json"]);
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((status, &json["fine"]), (1, &serde_json::Value::Bool(false)));
}

#[test]
fn php_gets_its_arguments_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("php");
    let script = "#!/bin/sh\nfor argument; do echo \"<$argument>\"; done; exit 7\n";
    testkit::write_program(&program, script);
    let output = hearth(folder.path())
        .env("HEARTH_PHP_CLI", &program)
        .args(["php", "--help", "-d", "a=b c", "--", "x", "--version"])
        .output()
        .unwrap();
    assert_eq!(
        outcome(&output),
        (7, "<--help>\n<-d>\n<a=b c>\n<-->\n<x>\n<--version>\n".into(), String::new())
    );
}

#[test]
fn a_folder_of_files_is_served_and_term_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("index.html"), "hello").unwrap();
    std::fs::write(folder.path().join("secret.php"), "<?php // secret").unwrap();
    let manager = UnixDatagram::bind(folder.path().join(".notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let notified = || {
        let mut state = [0; 64];
        let length = manager.recv(&mut state).unwrap();
        String::from_utf8(state[..length].to_vec()).unwrap()
    };
    let mut server = Server::start(
        hearth(folder.path()).env("NOTIFY_SOCKET", folder.path().join(".notify")).args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "--log-format",
            "text",
        ]),
    );
    let admin = server.address("admin on http://");
    let front = server.address("ready on http://");
    assert_eq!(notified(), "READY=1");
    assert!(get(&front, "/").ends_with("hello"));
    assert!(get(&front, "/secret.php").starts_with("HTTP/1.1 404"), "PHP source is never sent");
    assert!(get(&admin, "/up").ends_with("ok\n"));
    std::fs::write(folder.path().join("index.html"), "hello again").unwrap();
    server.signal("HUP");
    assert!(notified().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(notified(), "READY=1");
    assert!(get(&front, "/").ends_with("hello again"));
    server.signal("TERM");
    assert_eq!(notified(), "STOPPING=1");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn an_address_in_use_is_an_error_with_its_cause() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("index.html"), "hello").unwrap();
    let (status, _, stderr) =
        outcome(&hearth(folder.path()).args(["serve", "--listen", &address]).output().unwrap());
    assert_eq!(status, 1);
    insta::assert_snapshot!(stderr.replace(&address, "ADDRESS"));
}

#[test]
fn an_address_set_twice_is_reported_as_a_duplicate() {
    // An address that only this test uses, so that its free port stays free.
    let free = std::net::TcpListener::bind("127.0.0.79:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("index.html"), "hello").unwrap();
    let asked = ["serve", "--listen", &address, "--admin", &address];
    let (status, _, stderr) = outcome(&hearth(folder.path()).args(asked).output().unwrap());
    assert_eq!(status, 1);
    let told = format!(
        "hint: only one of these can listen: `http.listen` {address}, `admin.listen` {address};"
    );
    assert!(stderr.contains(&told), "{stderr}");
}
