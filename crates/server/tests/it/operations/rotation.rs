//! The access log's file is renamed while the server runs. USR1 makes the server open it again, and ends no process.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Signal, geteuid};
use testkit::{Log, ProcessFacts, Running, eventually, write_program};

use crate::egress::broker::Broker;
use crate::hearth::{
    Hearth, LIMIT, Serve, Site, command, in_each_model, is_resident, php_version, signal,
    worker_folder,
};
use crate::isolation::user::open;

const UNPRIVILEGED: u32 = 65_534;

fn site() -> Site {
    Site::empty().with_file("public/index.html", "hello")
}

/// Starts a server with an access log in a file, and returns both.
fn logging(site: &Site, arguments: &[&str]) -> (Hearth, PathBuf) {
    let path = site.path().join("logs/access.log");
    let serve = Serve::new(site.path())
        .args(&["--access-log", "common"])
        .args(arguments)
        .set("HEARTH_HTTP_ACCESS_LOG_PATH", path.to_str().unwrap());
    (serve.start(), path)
}

fn wait_for_line(file: &Path, part: &str) {
    eventually("the line is in the file", LIMIT, || {
        fs::read_to_string(file).is_ok_and(|text| text.contains(part))
    });
}

/// Waits until the log has this many lines with `part`.
fn wait_for_lines(log: &Log, part: &str, count: usize) {
    eventually("the log has the lines", LIMIT, || log.text().matches(part).count() == count);
}

fn rename(path: &Path, number: usize) -> PathBuf {
    let to = path.with_extension(number.to_string());
    fs::rename(path, &to).unwrap();
    to
}

#[test]
fn a_renamed_access_log_is_reopened_at_usr1_hup_and_reload() {
    let site = site();
    fs::create_dir(site.path().join("logs")).unwrap();
    let (hearth, path) = logging(&site, &[]);
    let reload = || {
        let mut reload = command();
        reload.arg("reload").arg(site.path());
        let said = reload.output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    };
    let ways: [&dyn Fn(); 3] =
        [&|| hearth.process.signal(Signal::USR1), &|| hearth.process.signal(Signal::HUP), &reload];
    for (number, ask) in ways.iter().enumerate() {
        let target = format!("/{number}");
        hearth.get(&target);
        wait_for_line(&path, &target);
        let renamed = rename(&path, number);
        ask();
        eventually("a new file exists", LIMIT, || path.exists());
        assert_eq!(fs::read_to_string(renamed).unwrap().lines().count(), 1);
    }
    assert_eq!(hearth.stop().code(), Some(0));
}

#[test]
fn after_dropping_root_logs_reopen_with_the_users_rights() {
    if !geteuid().is_root() {
        return;
    }
    let site = site();
    open(site.path());
    let logs = site.path().join("logs");
    fs::create_dir(&logs).unwrap();
    chown(&logs, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
    let (hearth, path) = logging(&site, &["--user", &UNPRIVILEGED.to_string()]);
    let renamed = rename(&path, 1);
    hearth.process.signal(Signal::USR1);
    eventually("a new file exists", LIMIT, || path.exists());
    assert_eq!(
        (fs::metadata(&path).unwrap().uid(), fs::metadata(renamed).unwrap().len()),
        (UNPRIVILEGED, 0)
    );

    // The folder belongs to root, like /var/log.
    chown(&logs, Some(0), Some(0)).unwrap();
    let renamed = rename(&path, 2);
    hearth.process.signal(Signal::USR1);
    let line = hearth.log_line("cannot reopen the access log");
    assert_eq!(line["level"], "WARN", "{line}");
    assert!(line["error"].as_str().unwrap().contains("Permission denied"), "{line}");
    assert!(line["hint"].as_str().unwrap().contains("create it for him"), "{line}");
    hearth.get("/kept");
    wait_for_line(&renamed, "/kept");
    // Creates the file first, like logrotate's `create`.
    fs::write(&path, "").unwrap();
    chown(&path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
    hearth.process.signal(Signal::USR1);
    wait_for_lines(hearth.log(), "access log reopened", 2);
    hearth.get("/new");
    wait_for_line(&path, "/new");
    assert_eq!(hearth.stop().code(), Some(0));
}

#[test]
fn the_channels_command_reopens_its_access_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let mut channels = command();
    channels
        .current_dir(folder.path())
        .args(["channels", "--listen", "127.0.0.1:0", "--app", "shop:key:secret"])
        .env("HEARTH_HTTP_ACCESS_LOG", "common")
        .env("HEARTH_HTTP_ACCESS_LOG_PATH", &path);
    let mut process = Running::start(&mut channels);
    process.log().wait_for("hearth: ready on ");
    for (number, way) in [Signal::USR1, Signal::HUP].into_iter().enumerate() {
        rename(&path, number);
        process.signal(way);
        eventually("a new file exists", LIMIT, || path.exists());
    }
    process.signal(Signal::TERM);
    let (status, said) = process.finish(LIMIT);
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(!said.contains("ignored"), "{said}");
}

/// Returns a process and all processes below it.
fn all_of(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    all.extend(ProcessFacts::children(pid).into_iter().flat_map(all_of));
    all
}

#[test]
fn usr1_terminates_no_hearth_process() {
    for (model, _site, hearth) in in_each_model() {
        assert_eq!(hearth.get("/hello.php").status, 200, "{model}");
        hearth.wait_idle(1);
        let workers = hearth.worker_pids();
        // Workers come last, because the process that forks them would only start others.
        for pid in all_of(hearth.process.pid()) {
            signal(pid, Signal::USR1);
        }
        hearth.log_line("USR1 ignored");
        assert_eq!(hearth.get("/hello.php").status, 200, "{model}");
        hearth.wait_idle(1);
        if is_resident(model) {
            assert_eq!(hearth.worker_pids(), workers, "{model}");
        }
        assert_eq!(hearth.status()["pool"]["crashes"], 0, "{model}");
        assert_eq!(hearth.stop().code(), Some(0), "{model}");
    }
    let mut broker = Broker::start_with(&[], &[]);
    broker.process.signal(Signal::USR1);
    broker.process.log().wait_for("USR1 ignored");
    broker.process.signal(Signal::HUP);
    broker.process.log().wait_for("HUP ignored: this command reloads nothing");
    broker.process.signal(Signal::TERM);
    assert_eq!(broker.process.wait(LIMIT).code(), Some(0));
}

#[test]
fn usr1_terminates_no_starting_server() {
    let site = Site::empty().with_file("public/index.php", "<?php echo 'hello';");
    let programs = tempfile::tempdir().unwrap();
    let at = |name: &str| programs.path().join(name);
    let (worker, library) =
        (format!("hearth-worker-{}", php_version()), format!("hearth-{}.so", php_version()));
    std::os::unix::fs::symlink(worker_folder().join(&library), at(&library)).unwrap();
    // The server runs the worker program to get its PHP version before it has listeners or signal handlers.
    write_program(
        &at(&worker),
        &format!(
            "#!/bin/sh\n: > {0}\nwhile [ ! -e {1} ]; do sleep 0.02; done\nexec {2} \"$@\"\n",
            at("asked").display(),
            at("go").display(),
            worker_folder().join(&worker).display()
        ),
    );
    let process = Serve::new(site.path())
        .model("request")
        .workers(1)
        .set("HEARTH_LIB_DIR", programs.path().to_str().unwrap())
        .launch();
    eventually("PHP is asked", LIMIT, || at("asked").exists());
    process.signal(Signal::USR1);
    fs::write(at("go"), "").unwrap();
    process.log().wait_for("hearth: ready on ");
}

#[test]
fn a_target_that_accepts_no_more_lines_does_not_delay_the_end() {
    let site = site();
    fs::create_dir(site.path().join("logs")).unwrap();
    let path = site.path().join("logs/access.log");
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    // Both ends: opening waits for neither. Never read.
    let reader = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let size = rustix::pipe::fcntl_setpipe_size(&reader, 4096).unwrap();
    // Longer than the test may take.
    let arguments = ["--access-log", "common"];
    let hearth = Serve::new(site.path())
        .args(&arguments)
        .set("HEARTH_HTTP_ACCESS_LOG_PATH", path.to_str().unwrap())
        .set("HEARTH_SERVER_SHUTDOWN_PATIENCE", "1h")
        .start();
    let line = 80;
    for n in 0..size / line * 2 {
        assert_eq!(hearth.get(&format!("/?{n:040}")).status, 200);
    }
    let log = hearth.log().clone();
    assert_eq!(hearth.stop().code(), Some(0));
    assert!(log.text().contains("the access log lost its last lines"), "{}", log.text());
}
