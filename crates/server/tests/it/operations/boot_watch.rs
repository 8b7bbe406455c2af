//! `php.watch = "boot"`: an application that changes its own files is booted again, and a half-written file never takes over.

use std::process::Command;

use testkit::eventually;

use crate::hearth::{Hearth, LIMIT, Serve, Site, of_tier};

/// A worker script that answers with what two files said when it booted, one of them in a folder that `--watch` ignores.
fn site() -> Site {
    let site = Site::empty();
    site.write(
        "worker.php",
        "<?php $said = (require __DIR__ . '/vendor/plugin/one.php') . (require __DIR__ . '/two.php');\n\
         while (hearth_handle_request(function () use ($said) { require_once __DIR__ . '/later.php'; echo $said; })) { }",
    );
    site.write("vendor/plugin/one.php", "<?php return 'a';");
    site.write("two.php", "<?php return 'b';");
    site.write("later.php", "<?php");
    site
}

fn serve(site: &Site, model: &str) -> Serve {
    // As in production: code is read once.
    Serve::new(site.path().join("worker.php"))
        .model(model)
        .set("HEARTH_PHP_WATCH", "boot")
        .ini("opcache.enable", "1")
        .ini("opcache.validate_timestamps", "0")
        .workers(1)
}

fn serves(hearth: &Hearth, text: &str) {
    eventually("the change is served", LIMIT, || hearth.get("/").text() == text);
}

/// In `prespawn` a new process has the new files before the reload.
fn reloads(hearth: &Hearth, count: u32) {
    eventually("the reload is over", LIMIT, || hearth.status()["reloads"]["done"] == count);
}

#[test]
fn an_application_that_changes_its_own_files_is_booted_again() {
    for model in of_tier(["worker", "prespawn", "fork", "snapshot"]) {
        let site = site();
        let hearth = serve(&site, model).start();
        assert_eq!(hearth.get("/").text(), "ab", "{model}");
        // Replaced in place, as Composer and WordPress do it.
        site.write("vendor/plugin/new", "<?php return 'A';");
        std::fs::rename(
            site.path().join("vendor/plugin/new"),
            site.path().join("vendor/plugin/one.php"),
        )
        .unwrap();
        serves(&hearth, "Ab");
        reloads(&hearth, 1);
        let why = hearth.log_line("vendor/plugin/one.php changed")["why"].to_string();
        assert!(why.contains("vendor/plugin/one.php changed"), "{model}: {why}");
        // Neither the same content again, nor a file that the boot has not included.
        site.write("later.php", "<?php // other");
        site.write("two.php", "<?php return 'b';");
        site.write("worker.php.orig", "");
        // The script itself counts.
        let script = std::fs::read_to_string(site.path().join("worker.php")).unwrap();
        site.write("worker.php", &script.replace("echo $said", "echo \"$said!\""));
        serves(&hearth, "Ab!");
        reloads(&hearth, 2);
        let log = hearth.log().text();
        let others = ["later.php changed", "two.php changed"];
        assert!(!others.iter().any(|other| log.contains(other)), "{model}: {log}");
    }
}

#[test]
fn a_half_written_file_never_takes_over() {
    for model in of_tier(["worker", "fork", "snapshot"]) {
        let site = site();
        let hearth = serve(&site, model).start();
        site.write("two.php", "<?php return 'B'; class Half {");
        let reason = hearth.log_line("reload failed")["reason"].to_string();
        assert!(reason.contains("two.php"), "{model}: {reason}");
        assert_eq!(hearth.get("/").text(), "ab", "{model}: the old release goes on");
        site.write("two.php", "<?php return 'B'; class Half { }");
        serves(&hearth, "aB");
    }
}

/// The boot failed for want of a file that the old release does not know: its appearance is no event.
#[test]
fn a_boot_that_failed_is_tried_again() {
    let site = site();
    let hearth = serve(&site, "snapshot").start();
    site.write("two.php", "<?php return require __DIR__ . '/new/three.php';");
    hearth.log_line("reload failed");
    site.write("new/three.php", "<?php return 'c';");
    serves(&hearth, "ac");
    hearth.log_line("and the last try failed");
}

/// At the start another model runs in its place, which keeps no boot.
#[test]
fn a_boot_that_succeeds_at_a_later_attempt_is_watched() {
    let site = site();
    site.write("public/index.php", "<?php echo 'front';");
    let script = std::fs::read_to_string(site.path().join("worker.php")).unwrap();
    let fails = "<?php if (is_file(__DIR__ . '/down')) { throw new Exception('no database'); }";
    site.write("worker.php", &script.replacen("<?php", fails, 1));
    site.write("down", "");
    let hearth = Serve::new(site.path()).workers(1).set("HEARTH_PHP_WATCH", "boot").start();
    assert_eq!(hearth.get("/").text(), "front");
    assert_eq!(hearth.log_line("this model keeps no boot")["model"], "request");
    std::fs::remove_file(site.path().join("down")).unwrap();
    // Logged when the files are watched.
    hearth.log_line("the application boots again, generation took over");
    assert_eq!(hearth.get("/").text(), "ab");
    site.write("two.php", "<?php return 'B';");
    serves(&hearth, "aB");
    hearth.log_line("two.php changed");
}

#[test]
fn a_model_without_a_boot_says_that_nothing_is_watched() {
    let site = Site::empty().with_file("public/index.php", "<?php echo 1;");
    let hearth = Serve::new(site.path()).model("request").set("HEARTH_PHP_WATCH", "boot").start();
    let line = hearth.log_line("this model keeps no boot");
    assert_eq!(line["model"], "request", "{line}");
}

/// The kernel counts watches for each user namespace, too.
#[test]
fn without_room_for_watches_the_files_are_looked_at() {
    const LAUNCHER: &[&str] = &[
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        "echo 0 > /proc/sys/user/max_inotify_watches && exec \"$@\"",
        "sh",
    ];
    let probe = Command::new(LAUNCHER[0]).args(&LAUNCHER[1..]).arg("true").output();
    if !probe.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no user namespace may be made here: {probe:?}");
        return;
    }
    let site = site();
    let hearth = serve(&site, "snapshot").through(LAUNCHER, &[]).start();
    assert_eq!(hearth.get("/").text(), "ab");
    hearth.log_line("looks at the files every 5 s");
    site.write("two.php", "<?php return 'B';");
    serves(&hearth, "aB");
    hearth.log_line("two.php changed");
}
