//! Applications that do not boot: what `hearth check` says of them, and what the server does until they boot.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use rustix::process::Signal;
use serde_json::Value;
use testkit::eventually;

use crate::hearth::{Hearth, LIMIT, OverOnDrop, Serve, Site, command};

/// Boots, unless the file `down` lies beside it.
const WORKER: &str = "<?php if (is_file(__DIR__ . '/down')) { throw new RuntimeException('no database at db.example:3306'); }\n\
                      while (hearth_handle_request(function () { echo 'booted'; })) { }";

/// A site whose front controller answers in any case.
fn site_that_is_down() -> Site {
    Site::empty()
        .with_file("public/index.php", "<?php echo 'front';")
        .with_file("worker.php", WORKER)
        .with_file("down", "")
}

fn mend(site: &Site) {
    std::fs::remove_file(site.path().join("down")).unwrap();
}

fn metric(hearth: &Hearth, name: &str) -> String {
    let text = hearth.admin("/metrics").text();
    let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
    let line = line.unwrap_or_else(|| panic!("no {name} in\n{text}"));
    line.rsplit_once(' ').unwrap().1.to_owned()
}

/// Runs `hearth check`, and returns its exit status, its text, and whether a process of its PHP is left.
fn check(site: &Site, configure: &dyn Fn(&mut Command)) -> (i32, String) {
    let mark = format!("CHECKED={}", site.path().display());
    let mut check = command();
    check.arg("check").arg(site.path()).args(["--listen", "127.0.0.1:0"]);
    check.env("HEARTH_PHP_ENV", &mark);
    configure(&mut check);
    let output = check.output().unwrap();
    let is_marked = |environment: Vec<u8>| {
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        // A process may end meanwhile.
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        assert!(!is_marked(environment), "{} is left", entry.path().display());
    }
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap(), text)
}

#[test]
fn check_boots_the_application_and_names_what_is_wrong() {
    let loops = "while (hearth_handle_request(function () { echo 'here'; })) { }";
    let line = |text: &str, part: &str| {
        let found = text.lines().find(|line| line.contains(part)).map(str::to_owned);
        found.unwrap_or_else(|| panic!("no {part:?} in\n{text}"))
    };
    for (boot, message, hint) in [
        (
            "ini_set('memory_limit', '8M');\nstr_repeat('x', 64 << 20);",
            "worker.php:3: Allowed memory size of 8388608 bytes exhausted",
            "raise `memory_limit`",
        ),
        (
            "throw new RuntimeException('no provider');",
            "worker.php:2: RuntimeException: no provider",
            "correct the application",
        ),
        ("$a = ;", "worker.php:2: syntax error, unexpected token \";\"", "correct the file"),
        (
            "new MongoDB\\Driver\\Manager();",
            "worker.php:2: Error: Class \"MongoDB\\Driver\\Manager\" not found",
            "install PHP's extension `mongodb`",
        ),
        (
            "exit(3);",
            "worker.php ended before it called hearth_handle_request()",
            "exit() or die()",
        ),
        ("sleep(600);", "not ready within 1s", "`php.boot_timeout`"),
    ] {
        // There is nothing that could run in its place.
        let site = Site::empty().with_file("worker.php", &format!("<?php\n{boot}\n{loops}"));
        let began = Instant::now();
        let (code, text) = check(&site, &|check| {
            check.args(["--worker-script", "worker.php"]).current_dir(site.path());
            check.env("HEARTH_PHP_BOOT_TIMEOUT", if boot.contains("sleep") { "1s" } else { "30s" });
        });
        assert!(began.elapsed() < LIMIT, "{boot}");
        assert_eq!(code, 1, "{boot}: {text}");
        let found = line(&text, message);
        assert!(
            found.starts_with("✗ application: the application does not boot in `snapshot`: "),
            "{found}"
        );
        line(&text, hint);
    }

    // A front controller answers in its place.
    let (code, text) = check(&site_that_is_down(), &|_| {});
    assert_eq!(code, 0, "{text}");
    let found = line(&text, "worker.php:1: RuntimeException: no database at db.example:3306");
    assert!(
        found.starts_with("! application: ") && found.contains("`request` would run"),
        "{found}"
    );
    line(&text, "boots in `request`, and answers GET /");

    // In the model `request` the page itself is asked for.
    let page = Site::empty()
        .with_file("public/index.php", "<?php\n\nthrow new LogicException('no page');");
    let (code, text) = check(&page, &|_| {});
    assert_eq!(code, 1, "{text}");
    let found = line(&text, "public/index.php:3: LogicException: no page");
    assert!(found.contains("GET /: status 500"), "{found}");

    let sound = Site::empty()
        .with_file("worker.php", &format!("<?php\necho 'hello from the boot';\n{loops}"));
    let (code, text) = check(&sound, &|_| {});
    assert_eq!(code, 0, "{text}");
    line(&text, "boots in `snapshot`, and answers GET /");
    line(&text, "prints output, which no client gets: hello from the boot");

    // Without a boot no script runs.
    let trace =
        Site::empty().with_file("worker.php", &format!("<?php touch(__DIR__ . '/ran'); {loops}"));
    let (code, text) = check(&trace, &|check| {
        check.arg("--no-boot");
    });
    assert_eq!(code, 0, "{text}");
    assert!(!text.contains("boots in") && !trace.path().join("ran").exists(), "{text}");
}

/// Requests pages until it is told to stop, and counts what was answered.
fn visit(hearth: &Hearth, over: &AtomicBool, visits: &AtomicUsize) -> BTreeMap<String, usize> {
    let mut answers = BTreeMap::new();
    while !over.load(Ordering::Relaxed) {
        let answer = hearth.get("/");
        assert_eq!(answer.status, 200);
        *answers.entry(answer.text()).or_default() += 1;
        visits.fetch_add(1, Ordering::Relaxed);
    }
    answers
}

#[test]
fn a_failed_boot_is_retried_until_it_takes_over_and_no_request_fails() {
    let site = site_that_is_down();
    let hearth = Serve::new(site.path()).workers(2).start();
    let status = hearth.status();
    assert_eq!((&status["model"], &status["degraded"]), (&"request".into(), &true.into()));
    assert_eq!(status["state"], "ready");
    assert_eq!(status["applications"][0]["fallback"]["degraded"], true);
    let up = hearth.admin("/up");
    assert_eq!((up.status, up.text().as_str()), (200, "degraded\n"));
    assert_eq!(metric(&hearth, "hearth_degraded"), "1");
    let warning = hearth.log_line("model cannot run here, another takes its place");
    assert_eq!(
        warning["why"].as_str().unwrap().rsplit_once("worker.php:").unwrap().1,
        "1: RuntimeException: no database at db.example:3306"
    );

    let (over, visits) = (AtomicBool::new(false), AtomicUsize::new(0));
    let answers = std::thread::scope(|scope| {
        let _over = OverOnDrop(&over);
        let visitors: Vec<_> =
            (0..3).map(|_| scope.spawn(|| visit(&hearth, &over, &visits))).collect();
        let warning = hearth.log_line("the application still does not boot");
        assert_eq!(warning["attempts"], 1);
        assert!(warning["reason"].as_str().unwrap().contains("no database at db.example:3306"));
        let retries = hearth.status()["boot_retries"].clone();
        assert!(retries["failed"].as_u64().unwrap() >= 1, "{retries}");
        assert!(retries["next_in_seconds"].as_u64().unwrap() <= 60, "{retries}");
        let problems = hearth.status()["problems"].to_string();
        assert!(problems.contains("The server is degraded"), "{problems}");
        assert!(hearth.admin("/").text().contains("The server is degraded"), "the dashboard");

        mend(&site);
        eventually("it takes over", LIMIT, || hearth.status()["degraded"] == false);
        // Some further requests.
        let until = visits.load(Ordering::Relaxed) + 20;
        eventually("requests", LIMIT, || visits.load(Ordering::Relaxed) >= until);
        over.store(true, Ordering::Relaxed);
        let answers = visitors.into_iter().map(|visitor| visitor.join().unwrap());
        answers.fold(BTreeMap::<String, usize>::new(), |mut sum, of_one| {
            for (text, count) in of_one {
                *sum.entry(text).or_default() += count;
            }
            sum
        })
    });
    assert_eq!(answers.keys().collect::<Vec<_>>(), ["booted", "front"]);
    hearth.log_line("the application boots again, generation took over");
    eventually("the old one drains", LIMIT, || hearth.status()["draining"] == Value::Array(vec![]));
    let status = hearth.status();
    assert_eq!((&status["model"], &status["generation"]), (&"snapshot".into(), &2.into()));
    assert_eq!(status["boot_retries"]["succeeded"], 1);
    assert_eq!(status["boot_retries"]["next_in_seconds"], Value::Null);
    assert_eq!(status["reloads"]["done"], 0);
    assert_eq!(hearth.admin("/up").text(), "ok\n");
    assert_eq!(metric(&hearth, "hearth_degraded"), "0");
    let total: usize = answers.values().sum();
    assert!(status["applications"][0]["requests"].as_u64().unwrap() >= total as u64, "{status}");

    // From now on a release that does not boot never takes over.
    site.write("down", "");
    hearth.process.signal(Signal::HUP);
    hearth.log_line("reload failed, the old release continues");
    assert_eq!(hearth.get("/").text(), "booted");
    assert_eq!(hearth.status()["degraded"], false);
    assert_eq!(hearth.stop().code(), Some(0));
}

#[test]
fn a_boot_that_fails_ends_the_server_or_leaves_the_fallback_as_set() {
    // A named model is not replaced, unless the setting says so.
    let named: &[&str] = &["--model", "snapshot"];
    for (arguments, action) in [(named, ""), (&[], "exit"), (named, "exit")] {
        let site = site_that_is_down();
        let serve = Serve::new(site.path()).args(arguments);
        let serve =
            if action.is_empty() { serve } else { serve.set("HEARTH_PHP_BOOT_FAILURE", action) };
        let mut process = serve.launch();
        let (status, text) = process.finish(LIMIT);
        assert_eq!(status.code(), Some(1), "{arguments:?} {action}: {text}");
        assert!(text.contains("no database at db.example:3306"), "{text}");
        assert!(!text.contains("ready on"), "{text}");
    }
    for (arguments, action, retried) in [(named, "retry", true), (&[], "fallback", false)] {
        let site = site_that_is_down();
        let hearth = Serve::new(site.path())
            .workers(1)
            .args(arguments)
            .set("HEARTH_PHP_BOOT_FAILURE", action)
            .start();
        assert_eq!(hearth.get("/").text(), "front");
        let status = hearth.status();
        assert_eq!(status["degraded"], true, "{action}");
        assert_eq!(status["boot_retries"]["next_in_seconds"].is_u64(), retried, "{status}");
        mend(&site);
        if !retried {
            // Only a reload boots it again.
            hearth.process.signal(Signal::HUP);
        }
        eventually("it takes over", LIMIT, || hearth.get("/").text() == "booted");
        assert_eq!(hearth.status()["boot_retries"]["succeeded"], u64::from(retried), "{action}");
        assert_eq!(hearth.status()["degraded"], false);
    }
}

#[test]
fn a_boot_that_succeeds_later_replaces_no_other_application() {
    let site = site_that_is_down();
    let other = Site::empty().with_file("public/index.php", "<?php echo getmypid();");
    site.write(
        "hearth.toml",
        &format!(
            "[applications.other]\npath = \"{}\"\nhosts = [\"other.example\"]\n",
            other.path().display()
        ),
    );
    let hearth = Serve::new(site.path()).workers(1).start();
    let of_other = || {
        let mut client = hearth.connect();
        client.request("GET", "/", &[("Host", "other.example")], b"").unwrap().text()
    };
    let pid = of_other();
    assert_eq!(hearth.get("/").text(), "front");
    mend(&site);
    eventually("it takes over", LIMIT, || hearth.get("/").text() == "booted");
    assert_eq!(of_other(), pid, "the other application's worker goes on");
    eventually("the old one drains", LIMIT, || hearth.status()["draining"] == Value::Array(vec![]));
    assert_eq!(of_other(), pid);
    let status = hearth.status();
    let requests =
        status["applications"].as_array().unwrap().iter().find(|one| one["name"] == "other");
    assert_eq!(requests.unwrap()["requests"], 3, "each request is counted once: {status}");
    assert_eq!(hearth.stop().code(), Some(0));
}

#[test]
fn check_starts_request_and_names_the_scripts_that_run_in_it() {
    let waits = "<?php require __DIR__ . '/../code.php'; hearth_await_request(); echo 'here';";
    let site = Site::empty().with_file("public/index.php", waits);
    site.write("code.php", "<?php");
    let (code, text) = check(&site, &|_check| {});
    let line = "all other scripts run as in `request`, which starts (there are none at the top of the document root)";
    assert!(code == 0 && text.contains(line), "{code}: {text}");
    // None of them is run.
    for name in ["status.php", "feed.php"] {
        site.write(&format!("public/{name}"), "<?php touch(__DIR__ . '/it-ran');");
    }
    let (code, text) = check(&site, &|_check| {});
    assert!(code == 0 && text.contains("which starts (feed.php, status.php)"), "{code}: {text}");
    assert!(!site.public().join("it-ran").exists());
}
