//! Reloads by generation: a new release replaces the old one without losing a request, and one that fails to boot never
//! does.

mod beside;

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::{Value, json};
use testkit::{Client, ProcessFacts, Running, eventually, head};

use crate::hearth::{
    Hearth, LIMIT, OverOnDrop, Serve, Site, command, every_model, of_tier, runs_worker_script,
};
use crate::operations::upgrade;
use crate::realtime;

/// Releases in separate folders, and a link to the current one, as deployment tools create them.
#[derive(Debug)]
pub(super) struct Deploys(Site);

impl Deploys {
    /// Starts with release 1.
    pub(super) fn new() -> Self {
        let deploys = Self(Site::empty());
        deploys.release(1);
        deploys.point_to(1);
        deploys
    }

    /// Writes a release that prints its number, through included code and in a static file.
    fn release(&self, number: u32) {
        self.answering(number, "echo 'release ', require __DIR__ . '/number.php';");
        self.write(number, "public/number.php", &format!("<?php return {number};"));
        self.write(number, "public/number.txt", &format!("static {number}"));
    }

    /// Writes a release with this front controller.
    pub(super) fn answering(&self, number: u32, php: &str) {
        self.write(number, "public/index.php", &format!("<?php {php}"));
        let worker = "<?php while (hearth_handle_request(function () { require __DIR__ . '/public/index.php'; })) { }";
        self.write(number, "worker.php", worker);
    }

    pub(super) fn write(&self, number: u32, path: &str, text: &str) {
        self.0.write(&format!("releases/{number}/{path}"), text);
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.path().join("current")
    }

    /// Replaces the link atomically, like deployment tools.
    pub(super) fn point_to(&self, number: u32) {
        let new = self.0.path().join("new");
        symlink(format!("releases/{number}"), &new).unwrap();
        std::fs::rename(new, self.path()).unwrap();
    }

    pub(super) fn serve(&self, model: &str) -> Serve {
        let serve = Serve::new(self.path()).model(model);
        // As in production, code is read only once.
        let serve = serve.ini("opcache.enable", "1").ini("opcache.validate_timestamps", "0");
        if runs_worker_script(model) {
            return serve
                .args(&["--worker-script", self.path().join("worker.php").to_str().unwrap()]);
        }
        serve
    }

    /// Returns the command `hearth reload`.
    pub(super) fn reload(&self) -> Command {
        let mut reload = command();
        reload.arg("reload").arg(self.path());
        reload
    }
}

fn ran(mut command: Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

pub(super) fn assert_reloaded(command: Command, generation: u64) {
    let (code, said, why) = ran(command);
    assert_eq!((code, &*why), (Some(0), ""), "{said}");
    assert!(said.starts_with(&format!("generation {generation} ")), "{said}");
}

/// Waits until only one generation is left.
pub(super) fn wait_drained(hearth: &Hearth) {
    eventually("older generations are gone", LIMIT, || hearth.status()["draining"] == json!([]));
}

#[test]
fn a_reload_switches_code_and_files_in_every_model() {
    for model in every_model() {
        let deploys = Deploys::new();
        let hearth = deploys.serve(model).workers(2).start();
        hearth.wait_idle(2);
        assert_eq!(hearth.get("/").text(), "release 1", "{model}");
        assert_eq!(hearth.get("/number.txt").text(), "static 1", "{model}");
        let workers = hearth.worker_pids();
        assert_eq!(hearth.status()["generation"], 1, "{model}");
        for number in 2..=3 {
            deploys.release(number);
            deploys.point_to(number);
            assert_eq!(hearth.get("/").text(), format!("release {}", number - 1), "{model}");
            assert_reloaded(deploys.reload(), number.into());
            assert_eq!(hearth.get("/").text(), format!("release {number}"), "{model}");
            assert_eq!(hearth.get("/number.txt").text(), format!("static {number}"), "{model}");
        }
        wait_drained(&hearth);
        eventually("the old workers are gone", LIMIT, || {
            workers.iter().all(|pid| ProcessFacts::of(*pid).is_none())
        });
        let status = hearth.status();
        assert_eq!((&status["generation"], &status["reloads"]["done"]), (&json!(3), &json!(2)));
        // Counts the requests of earlier generations too, including the checks of two reloads.
        assert!(status["pool"]["requests"].as_u64().unwrap() >= 7, "{model}: {status}");
        let metrics = hearth.admin("/metrics").text();
        assert!(metrics.contains("\nhearth_generation 3\n"), "{metrics}");
        assert_eq!(hearth.log_line("generation took over")["generation"], 2, "{model}");
        assert_eq!(hearth.log_line("generation drained")["generation"], 1, "{model}");
        assert_eq!(hearth.stop().code(), Some(0), "{model}");
    }
}

#[test]
fn a_reload_drops_no_request() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    for (model, clients) in [("worker", 2_000), ("snapshot", 400)] {
        let deploys = Deploys::new();
        let hearth =
            deploys.serve(model).workers(2).set("HEARTH_PHP_BACKLOG", "5000").patient().start();
        let (taken_over, begun) = (AtomicU32::new(1), AtomicU32::new(1));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut clients: Vec<(Client, u32)> =
                        (0..clients / 4).map(|_| (hearth.connect(), 1)).collect();
                    while !over.load(Ordering::Relaxed) {
                        let at_least = taken_over.load(Ordering::SeqCst);
                        for (client, _) in &mut clients {
                            client.send(head("GET", "/", &[], 0)).unwrap();
                        }
                        for (client, seen) in &mut clients {
                            let answer = client.answer_to("GET").unwrap();
                            let text = answer.text();
                            assert_eq!(answer.status, 200, "{model}: {text}");
                            let number: u32 =
                                text.strip_prefix("release ").unwrap().parse().unwrap();
                            // Answers never come from an earlier release than before, or from one that is not deployed
                            // yet.
                            assert!(
                                number >= at_least.max(*seen),
                                "{model}: {number} after {at_least}"
                            );
                            assert!(number <= begun.load(Ordering::SeqCst), "{model}: {number}");
                            *seen = number;
                        }
                    }
                });
            }
            let _over = OverOnDrop(&over);
            for number in 2..=3 {
                eventually("the load runs", LIMIT, || {
                    hearth.status()["pool"]["backlog"].as_u64().unwrap() > clients / 8
                });
                deploys.release(number);
                deploys.point_to(number);
                begun.store(number, Ordering::SeqCst);
                assert_reloaded(deploys.reload(), number.into());
                taken_over.store(number, Ordering::SeqCst);
            }
        });
        wait_drained(&hearth);
        assert_eq!(hearth.get("/").text(), "release 3", "{model}");
        let status = hearth.status();
        assert_eq!(status["pool"]["crashes"], 0, "{model}: {status}");
        assert_eq!(hearth.stop().code(), Some(0), "{model}");
    }
}

#[test]
fn a_release_that_fails_to_boot_never_takes_over() {
    for model in of_tier(["worker", "snapshot", "fork"]) {
        let deploys = Deploys::new();
        let hearth = deploys.serve(model).workers(1).start();
        hearth.wait_idle(1);
        let zygote = hearth.zygote_pid();
        let faults = [
            ("<?php this is no PHP", "syntax error"),
            ("<?php throw new RuntimeException('no database');", "no database"),
            (
                "<?php echo 'not configured'; exit(3);",
                "ended before it called hearth_handle_request()",
            ),
            (
                "<?php ini_set('memory_limit', '8M'); $all = str_repeat('x', 1 << 24);",
                "memory size",
            ),
            ("<?php sleep(100);", "not ready within 1s"),
        ];
        // The last fault takes long to detect.
        let faults = if model == "snapshot" { &faults[..] } else { &faults[..4] };
        for (n, (fault, why)) in faults.iter().enumerate() {
            deploys.release(2);
            deploys.write(2, "worker.php", fault);
            // The limit applies to this release only: other releases boot at the speed of the machine.
            let patience =
                if fault.contains("sleep") { "[php]\nboot_timeout = \"1s\"\n" } else { "" };
            deploys.write(2, "hearth.toml", patience);
            deploys.point_to(2);
            let (code, said, told) = ran(deploys.reload());
            assert_eq!((code, &*said), (Some(1), ""), "{model}");
            assert!(told.contains("the application did not boot"), "{model}: {told}");
            assert!(told.contains(why), "{model}, {why}: {told}");
            assert!(told.contains("\nhint: "), "{model}: {told}");
            assert_eq!(hearth.get("/").text(), "release 1", "{model}");
            assert_eq!(hearth.get("/number.txt").text(), "static 1", "{model}");
            let status = hearth.status();
            assert_eq!(status["generation"], 1, "{model}");
            assert_eq!(status["reloads"]["failed"], n + 1, "{model}");
            assert!(status["reloads"]["last_failure"].as_str().unwrap().contains(why), "{status}");
            assert_eq!(hearth.admin("/up").status, 200);
        }
        assert_eq!(hearth.log_line("reload failed")["level"], "ERROR");
        eventually("the generation that did not boot has ended", LIMIT, || {
            ProcessFacts::children(hearth.process.pid()) == [zygote]
        });
        // A failed reload does not affect the next one.
        deploys.release(3);
        deploys.point_to(3);
        assert_reloaded(deploys.reload(), 2);
        assert_eq!(hearth.get("/").text(), "release 3", "{model}");
        assert_eq!(hearth.status()["reloads"]["last_failure"], Value::Null);
    }
}

#[test]
fn a_failed_boot_never_falls_back_to_the_front_controller() {
    const BROKEN: &str =
        "<?php throw new RuntimeException('no database'); hearth_handle_request(fn () => 1);";
    let deploys = Deploys::new();
    let run_dir = deploys.0.path().join("run");
    let run_dir = ["--run-dir", run_dir.to_str().unwrap()];
    let upgrade = || upgrade::upgrade(&deploys.path(), &run_dir);
    let reload = || {
        let mut reload = deploys.reload();
        reload.args(run_dir);
        reload
    };
    let serve = || Serve::new(deploys.path()).args(&run_dir).workers(1);
    let hearth = serve().start();
    let model = hearth.status()["model"].clone();
    assert_ne!(model, "request", "the worker script was found");
    let old_release_continues = |hearth: &Hearth, command, why: &str| {
        let (code, said, told) = ran(command);
        assert_eq!((code, &*said), (Some(1), ""), "{told}");
        assert!(told.contains(why), "{told}");
        assert_eq!(hearth.get("/").text(), "release 1");
        let status = hearth.status();
        assert_eq!((&status["model"], &status["pid"]), (&model, &hearth.process.pid().into()));
    };
    for command in [&reload, &upgrade] as [&dyn Fn() -> Command; 2] {
        deploys.release(2);
        deploys.point_to(2);
        deploys.write(2, "worker.php", BROKEN);
        old_release_continues(&hearth, command(), "no database");
        deploys.answering(2, "throw new RuntimeException('no answer');");
        old_release_continues(&hearth, command(), "answers / with 500");
    }
    assert_eq!(hearth.stop().code(), Some(0));

    // If no release has booted yet, `request` serves it and a problem says so. Later releases are served the same way
    // until one boots.
    deploys.release(3);
    deploys.point_to(3);
    deploys.write(3, "worker.php", BROKEN);
    let mut hearth = serve().start();
    let served_by_request = |hearth: &Hearth| {
        let status = hearth.status();
        assert_eq!(status["model"], "request", "{status}");
        let problems = status["problems"].to_string();
        assert!(problems.contains("request in place of") && problems.contains("no database"));
        assert_eq!(hearth.get("/").text(), "release 3");
    };
    served_by_request(&hearth);
    assert_reloaded(reload(), 2);
    served_by_request(&hearth);
    let successor = upgrade::upgraded(upgrade());
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0));
    served_by_request(&hearth);
    deploys.release(3);
    assert_reloaded(reload(), 2);
    let status = hearth.status();
    assert_eq!((&status["model"], &status["problems"]), (&model, &json!([])), "{status}");
    successor.stop();
}

#[test]
fn a_release_that_does_not_answer_never_takes_over() {
    for model in of_tier(["request", "fpm", "snapshot"]) {
        let deploys = Deploys::new();
        let hearth = deploys.serve(model).workers(1).start();
        for (fault, why) in [
            ("this is no PHP", "answers / with 500"),
            ("throw new RuntimeException('no database');", "answers / with 500"),
            ("posix_kill(getmypid(), 9);", "does not answer /"),
        ] {
            deploys.answering(2, fault);
            deploys.point_to(2);
            let (code, _, told) = ran(deploys.reload());
            assert_eq!(code, Some(1), "{model}");
            assert!(told.contains(why), "{model}, {fault}: {told}");
            assert_eq!(hearth.get("/").text(), "release 1", "{model}");
        }
        // A maintenance page counts as an answer.
        deploys.answering(2, "http_response_code(503); echo 'back soon';");
        assert_reloaded(deploys.reload(), 2);
        assert_eq!(hearth.get("/").status, 503, "{model}");
    }
}

#[test]
fn the_reload_check_path_is_configurable() {
    let deploys = Deploys::new();
    deploys.write(1, "hearth.toml", "[php]\nreload_check = \"/health\"\n");
    let hearth = deploys.serve("request").workers(1).start();
    for (toml, generation) in [("\"/health\"", None), ("\"off\"", Some(2)), ("\"/health\"", None)] {
        deploys.answering(2, "http_response_code($_SERVER['REQUEST_URI'] === '/health' ? 404 : 200); echo $_SERVER['HEARTH_WARM_UP'] ?? 'none';");
        deploys.write(2, "hearth.toml", &format!("[php]\nreload_check = {toml}\n"));
        deploys.point_to(2);
        if let Some(generation) = generation {
            assert_reloaded(deploys.reload(), generation);
        } else {
            let (code, _, told) = ran(deploys.reload());
            assert_eq!(code, Some(1));
            assert!(told.contains("the new release answers /health with 404"), "{told}");
        }
    }
    assert_eq!(hearth.get("/").text(), "none");
    deploys.answering(2, "http_response_code(isset($_SERVER['HEARTH_WARM_UP']) ? 200 : 404);");
    assert_reloaded(deploys.reload(), 3);
}

#[test]
fn a_reload_rereads_settings_and_names_those_that_need_a_restart() {
    let deploys = Deploys::new();
    let hearth = deploys.serve("request").start();
    deploys.release(2);
    deploys.write(
        2,
        "hearth.toml",
        "[php]\nworkers = 3\n[php.env]\nCOLOUR = \"blue\"\n[http]\nstatic_files = false\nbody_limit = \"1MiB\"\n[realtime]\ndrain = \"1s\"\n",
    );
    deploys.point_to(2);
    let (code, said, _) = ran(deploys.reload());
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.ends_with("not applied, restart for it: http.body_limit, realtime.drain\n"),
        "{said}"
    );
    hearth.wait_idle(3);
    assert_eq!(hearth.get("/number.txt").text(), "release 2");
    assert_eq!(
        hearth.status()["reloads"]["restart_for"],
        json!(["http.body_limit", "realtime.drain"])
    );
    assert_eq!(hearth.log_line("need a restart")["settings"], "http.body_limit, realtime.drain");
    // Invalid settings are reported as at the start, and change nothing.
    deploys.write(2, "hearth.toml", "[php]\nworker = 3\n");
    hearth.process.signal(Signal::HUP);
    let line = hearth.log_line("reload failed");
    assert!(line["reason"].as_str().unwrap().contains("unknown setting `php.worker`"), "{line}");
    std::fs::remove_file(deploys.path()).unwrap();
    hearth.process.signal(Signal::HUP);
    assert!(hearth.log().wait_for("cannot read").contains("current"));
    assert_eq!(hearth.get("/").text(), "release 2");
}

/// Writes a release whose front controller answers when a file exists.
fn gate(deploys: &Deploys, number: u32) -> PathBuf {
    let gate = deploys.0.path().join(format!("gate{number}"));
    let wait = format!(
        "if ($_SERVER['REQUEST_URI'] === '/gate') {{ while (!file_exists('{}')) {{ usleep(1000); clearstatcache(); }} }} echo 'release {number}';",
        gate.display()
    );
    deploys.answering(number, &wait);
    gate
}

#[test]
fn a_request_is_answered_by_the_release_that_accepted_it() {
    for model in every_model() {
        let deploys = Deploys::new();
        let gate = gate(&deploys, 1);
        let hearth = deploys.serve(model).workers(1).start();
        let mut clients: Vec<Client> = (0..3).map(|_| hearth.send("/gate")).collect();
        eventually("one runs, two wait", LIMIT, || hearth.status()["pool"]["backlog"] == 2);
        deploys.release(2);
        deploys.point_to(2);
        assert_reloaded(deploys.reload(), 2);
        assert_eq!(hearth.get("/").text(), "release 2", "{model}");
        let status = hearth.status();
        assert_eq!(status["draining"][0]["generation"], 1, "{model}: {status}");
        std::fs::write(&gate, "").unwrap();
        for client in &mut clients {
            assert_eq!(client.answer_to("GET").unwrap().text(), "release 1", "{model}");
            // The next request on the same connection goes to the new release.
            assert_eq!(client.get("/").unwrap().text(), "release 2", "{model}");
        }
        wait_drained(&hearth);
    }
}

#[test]
fn an_old_release_finishes_within_the_drain_limit() {
    let deploys = Deploys::new();
    gate(&deploys, 1);
    let hearth =
        deploys.serve("request").workers(1).set("HEARTH_SERVER_SHUTDOWN_PATIENCE", "500ms").start();
    let mut client = hearth.begin("/gate");
    deploys.release(2);
    deploys.point_to(2);
    assert_reloaded(deploys.reload(), 2);
    assert_eq!(client.answer_to("GET").unwrap().status, 502);
    wait_drained(&hearth);
    assert_eq!(hearth.get("/").text(), "release 2");
}

/// Writes a release whose boot waits for a file.
fn slow_boot(deploys: &Deploys, number: u32) -> PathBuf {
    deploys.release(number);
    let gate = deploys.0.path().join(format!("boot{number}"));
    let worker =
        std::fs::read_to_string(deploys.0.path().join(format!("releases/{number}/worker.php")));
    let wait = format!(
        "<?php while (!file_exists('{}')) {{ usleep(1000); clearstatcache(); }} ",
        gate.display()
    );
    deploys.write(number, "worker.php", &worker.unwrap().replacen("<?php ", &wait, 1));
    deploys.point_to(number);
    gate
}

fn launch(mut command: Command) -> Running {
    Running::start(&mut command)
}

fn wait_reloading(hearth: &Hearth) {
    eventually("a reload is under way", LIMIT, || hearth.status()["reloads"]["under_way"] == true);
}
