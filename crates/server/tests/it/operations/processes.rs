//! Supervised commands: they run beside the application, are started again, replaced with their release, and never
//! outlive the server.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use testkit::{ProcessFacts, eventually};

use super::reload::Deploys;
use super::upgrade::{upgrade, upgraded};
use crate::hearth::{Hearth, LIMIT, Serve, Site, assert_gone, command, php_version, signal};
use crate::isolation::php_user::{PHP, is_root, programs};
use crate::isolation::user::open;

/// A command that says which release it is of, and ends on TERM once the file `gate` is there.
const WORKER: &str = "trap 'echo asked $RELEASE; while [ ! -e $GATE ]; do sleep 0.05; done; echo finished $RELEASE; exit 0' TERM\n\
                      echo works on $RELEASE\nwhile :; do sleep 0.05; done\n";

fn site(processes: &str) -> Site {
    Site::empty()
        .with_file("public/index.php", "<?php echo 'hello';")
        .with_file("hearth.toml", processes)
}

/// Returns the state of a process.
fn process(hearth: &Hearth, name: &str) -> Value {
    let status = hearth.status();
    let all = status["processes"].as_array().unwrap();
    let one = all.iter().find(|process| process["name"] == name);
    one.unwrap_or_else(|| panic!("no process `{name}`: {status}")).clone()
}

fn pids(hearth: &Hearth, name: &str) -> Vec<u32> {
    let process = process(hearth, name);
    let instances = process["instances"].as_array().unwrap();
    instances.iter().map(|one| one["pid"].as_u64().unwrap().try_into().unwrap()).collect()
}

/// Waits until as many instances run, and returns their process ids.
fn running(hearth: &Hearth, name: &str, count: usize) -> Vec<u32> {
    let mut found = Vec::new();
    eventually("the instances run", LIMIT, || {
        found = pids(hearth, name);
        found.len() == count
    });
    found
}

fn lines_with<'l>(lines: &'l [String], part: &str) -> Vec<&'l String> {
    lines.iter().filter(|line| line.contains(part)).collect()
}

#[test]
fn a_process_has_the_applications_folder_environment_and_php() {
    let site = site(
        "[php.env]\nCOLOUR = \"blue\"\n[processes.facts]\n\
         command = [\"php\", \"-r\", \"echo getcwd(), ' ', getenv('COLOUR'), ' ', getenv('APP_COLOUR'), ' ', PHP_MAJOR_VERSION, '.', PHP_MINOR_VERSION, ' ', getenv('HEARTH_PROCESS'), '.', getenv('HEARTH_PROCESS_NUMBER'), PHP_EOL; sleep(60);\"]\n\
         [processes.own]\ncommand = \"bin/own 'an argument'\"\n",
    );
    site.write("bin/own", "#!/bin/sh\necho \"PHP Warning:  $1\"\nhead -c 10000 /dev/zero | tr '\\0' x >&2\nexec sleep 60\n");
    let own = site.path().join("bin/own");
    std::process::Command::new("chmod").arg("+x").arg(own).status().unwrap();
    let hearth = Hearth::request(&site);
    let folder = site.path().canonicalize().unwrap();
    let facts = format!("{} blue red {} facts.1", folder.display(), php_version());
    let line = hearth.log_line(&facts);
    let pid = running(&hearth, "facts", 1)[0];
    assert_eq!(line["message"], facts, "{line}");
    assert_eq!((&line["target"], &line["source"]), (&"process".into(), &"stdout".into()), "{line}");
    assert_eq!((&line["process.name"], &line["process.pid"]), (&"facts".into(), &pid.into()));
    let line = hearth.log_line("an argument");
    assert_eq!((&line["level"], &line["process.name"]), (&"WARN".into(), &"own".into()), "{line}");
    let longest = "x".repeat(8 * 1024);
    let line = hearth.log_line("xxxx");
    assert_eq!((&line["message"], &line["source"]), (&longest.into(), &"stderr".into()));
    assert_eq!(hearth.stop().code(), Some(0));
}

#[test]
fn a_process_that_ends_is_started_again_less_and_less_often() {
    let site = site(
        "[processes.failing]\ncommand = [\"sh\", \"-c\", \"echo run >> runs; exit 3\"]\n\
         [processes.stable]\ncommand = \"sleep 600\"\ncount = 2\n",
    );
    let hearth = Hearth::request(&site);
    let ended = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        let is_it = line["message"] == "process ended" && line["process.name"] == "failing";
        is_it.then_some(line)
    };
    eventually("it was started several times", LIMIT, || {
        process(&hearth, "failing")["restarts"].as_u64() >= Some(3)
    });
    let delays: Vec<f64> = hearth
        .log()
        .lines()
        .iter()
        .filter_map(|line| ended(line))
        .inspect(|line| assert_eq!(line["how"], "exit code 3", "{line}"))
        .filter_map(|line| line["again_in"].as_f64())
        .collect();
    assert_eq!(delays.get(..3), Some(&[0.25, 0.5, 1.0][..]), "{delays:?}");
    let state = process(&hearth, "failing");
    assert_eq!((&state["last_exit"]["code"], &state["fails"]), (&3.into(), &true.into()));
    let problems = hearth.status()["problems"].to_string();
    assert!(problems.contains("`failing` ends soon after each start"), "{problems}");
    assert_eq!(hearth.get("/").text(), "hello");

    let two = running(&hearth, "stable", 2);
    signal(two[0], Signal::KILL);
    eventually("another has taken its place", LIMIT, || {
        let now = pids(&hearth, "stable");
        now.len() == 2 && !now.contains(&two[0]) && now.contains(&two[1])
    });
    let state = process(&hearth, "stable");
    assert_eq!((&state["restarts"], &state["last_exit"]["code"]), (&1.into(), &137.into()));
    let metrics = hearth.admin("/metrics").text();
    for line in [
        "hearth_process_running{process=\"stable\"} 2",
        "hearth_process_wanted{process=\"stable\"} 2",
        "hearth_process_restarts_total{process=\"stable\"} 1",
        "hearth_process_last_exit_code{process=\"stable\"} 137",
        "hearth_process_last_exit_code{process=\"failing\"} 3",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let page = hearth.admin("/").text();
    assert!(page.contains("<td>stable</td>") && page.contains("2 of 2"), "{page}");
    let two = running(&hearth, "stable", 2);
    assert_eq!(hearth.stop().code(), Some(0));
    assert_gone(&two);
}

#[test]
fn a_reload_replaces_processes_with_their_release() {
    let deploys = Deploys::new();
    let site = Site::empty();
    let gate = site.path().join("gate");
    std::fs::write(&gate, "").unwrap();
    let worker = |number: u32| format!("RELEASE={number}\nGATE={}\n{WORKER}", gate.display());
    for number in [1, 2] {
        deploys.answering(number, "echo 'hello';");
        deploys.write(number, "bin/worker", &worker(number));
        let toml = "[processes.queue]\ncommand = \"sh bin/worker\"\ncount = 2\n";
        let more = "[processes.more]\ncommand = \"sleep 600\"\n";
        deploys.write(
            number,
            "hearth.toml",
            &(toml.to_owned() + if number == 2 { more } else { "" }),
        );
    }
    let hearth = deploys.serve("request").workers(1).start();
    let old = running(&hearth, "queue", 2);
    eventually("both work", LIMIT, || lines_with(&hearth.log().lines(), "works on 1").len() == 2);
    deploys.point_to(2);
    assert!(deploys.reload().status().unwrap().success());
    eventually("the new release works", LIMIT, || {
        lines_with(&hearth.log().lines(), "works on 2").len() == 2
    });
    let lines = hearth.log().lines();
    assert_eq!(lines_with(&lines, "finished 1").len(), 2, "{lines:#?}");
    assert_eq!(lines_with(&lines, "is killed").len(), 0, "{lines:#?}");
    let new = running(&hearth, "queue", 2);
    running(&hearth, "more", 1);
    assert!(old.iter().all(|pid| !new.contains(pid)), "{old:?} {new:?}");
    assert_gone(&old);
    let state = process(&hearth, "queue");
    assert_eq!((&state["restarts"], &state["instances"][0]["generation"]), (&0.into(), &2.into()));

    // One that is busy keeps its place: never more than `count` work at once.
    std::fs::remove_file(&gate).unwrap();
    deploys.point_to(1);
    assert!(deploys.reload().status().unwrap().success());
    eventually("both were asked", LIMIT, || {
        lines_with(&hearth.log().lines(), "asked 2").len() == 2
    });
    let mut busy = running(&hearth, "queue", 2);
    busy.sort_unstable();
    let mut new = new;
    new.sort_unstable();
    assert_eq!(busy, new);
    let state = process(&hearth, "queue");
    assert_eq!(state["instances"][0]["stopping"], true, "{state}");
    std::fs::write(&gate, "").unwrap();
    eventually("the old release is back", LIMIT, || {
        lines_with(&hearth.log().lines(), "works on 1").len() == 4
    });
    let status = hearth.status();
    assert_eq!(status["processes"].as_array().unwrap().len(), 1, "`more` is not of it: {status}");
    assert_eq!(hearth.stop().code(), Some(0));
}

#[test]
fn the_end_of_the_server_waits_for_the_work_of_processes() {
    let site = site("[processes.queue]\ncommand = \"sh worker\"\n");
    let gate = site.path().join("gate");
    site.write("worker", &format!("RELEASE=1\nGATE={}\n{WORKER}", gate.display()));
    let mut hearth = Serve::new(site.path())
        .model("request")
        .set("HEARTH_SERVER_SHUTDOWN_PATIENCE", "1s")
        .start();
    hearth.log_line("works on 1");
    let pids = running(&hearth, "queue", 1);
    hearth.process.signal(Signal::TERM);
    hearth.log_line("asked 1");
    let state = process(&hearth, "queue");
    assert_eq!(state["instances"][0]["stopping"], true, "{state}");
    std::fs::write(&gate, "").unwrap();
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0));
    hearth.log_line("finished 1");
    assert_gone(&pids);
}

/// Starts a server whose process `deaf` prints its child, and returns the ids of both.
fn serve_deaf(site: &Site) -> (Hearth, Vec<u32>) {
    let hearth = Hearth::request(site);
    let mut pids = running(&hearth, "deaf", 1);
    let line = hearth.log_line("child ")["message"].as_str().unwrap().to_owned();
    pids.push(line.strip_prefix("child ").unwrap().parse().unwrap());
    (hearth, pids)
}

#[test]
fn a_process_that_ignores_the_signal_is_killed_with_what_it_started() {
    let site = site(
        "[processes.deaf]\ncommand = [\"sh\", \"-c\", \"trap '' TERM; sleep 600 & echo child $!; wait; sleep 600\"]\nstop_timeout = \"1s\"\n",
    );
    let (mut hearth, pids) = serve_deaf(&site);
    hearth.process.signal(Signal::TERM);
    assert_eq!(hearth.process.finish(LIMIT).0.code(), Some(0));
    assert_gone(&pids);
    let lines = hearth.log().lines();
    let killed = lines_with(&lines, "is killed");
    assert_eq!(killed.len(), 1, "{lines:#?}");
    assert!(killed[0].contains("process did not end within 1s (`stop_timeout`)"), "{killed:?}");
}

#[test]
fn an_unknown_command_is_one_line_and_stops_nothing() {
    let site = site(
        "[processes.typo]\ncommand = \"no-such-program --now\"\n\
         [processes.file]\ncommand = \"bin/missing\"\n[processes.late]\ncommand = \"./late\"\n",
    );
    // It can be run, but its interpreter is missing.
    site.write("late", "#!/no/such/interpreter\n");
    let late = site.path().join("late");
    std::process::Command::new("chmod").arg("+x").arg(late).status().unwrap();
    let hearth = Hearth::request(&site);
    assert_eq!(hearth.get("/").text(), "hello");
    let line = hearth.log_line("no program `no-such-program` in PATH");
    assert_eq!((&line["level"], &line["process.name"]), (&"ERROR".into(), &"typo".into()));
    hearth.log_line("bin/missing is no program");
    eventually("the third is refused by the system", LIMIT, || {
        !process(&hearth, "late")["cannot_start"].is_null()
    });
    let status = hearth.status();
    let problems = status["problems"].to_string();
    for name in ["typo", "file", "late"] {
        let text = format!("The process `{name}` cannot be started");
        assert!(problems.contains(&text), "{text} in {problems}");
    }
    let mut check = command();
    let output = check.arg("check").arg(site.path()).args(["--listen", "127.0.0.1:0"]).output();
    let output = output.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("processes: process `typo` cannot be started: no program `no-such-program`"),
        "{text}"
    );
    let lines = hearth.log().lines();
    assert_eq!(lines_with(&lines, "process cannot be started").len(), 3, "{lines:#?}");
    assert_eq!(hearth.stop().code(), Some(0));
}

#[test]
fn no_process_outlives_a_killed_server() {
    let site = site(
        "[processes.deaf]\ncommand = [\"sh\", \"-c\", \"trap '' TERM HUP INT; sleep 600 & echo child $!; while :; do wait; done\"]\n",
    );
    let (mut hearth, pids) = serve_deaf(&site);
    hearth.process.signal(Signal::KILL);
    hearth.process.wait(LIMIT);
    assert_gone(&pids);
}

#[test]
fn a_second_term_leaves_no_process() {
    let site = site(
        "[processes.deaf]\ncommand = [\"sh\", \"-c\", \"trap '' TERM; sleep 600 & echo child $!; while :; do wait; done\"]\n",
    );
    let (mut hearth, pids) = serve_deaf(&site);
    hearth.process.signal(Signal::TERM);
    hearth.log_line("draining");
    hearth.process.signal(Signal::TERM);
    hearth.process.wait(LIMIT);
    assert_gone(&pids);
}

#[test]
fn an_upgrade_hands_over_the_places_of_processes() {
    let site = site("[processes.queue]\ncommand = \"sh worker\"\n");
    let gate = site.path().join("gate");
    site.write("worker", &format!("RELEASE=$PPID\nGATE={}\n{WORKER}", gate.display()));
    let mut hearth = Hearth::request(&site);
    let old = hearth.process.pid();
    hearth.log_line(&format!("works on {old}"));
    let successor = upgraded(upgrade(site.path(), &[]));
    hearth.log_line(&format!("asked {old}"));
    // The first one still has its work: the second waits.
    let new = successor.pid();
    eventually("the successor is there", LIMIT, || hearth.status()["pid"] == new);
    assert_eq!(pids(&hearth, "queue"), Vec::<u32>::new());
    // So does a third one that replaces the second meanwhile.
    let second = successor;
    let successor = upgraded(upgrade(site.path(), &[]));
    let new = successor.pid();
    eventually("the third server is there", LIMIT, || hearth.status()["pid"] == new);
    for _ in 0..10 {
        assert_eq!(pids(&hearth, "queue"), Vec::<u32>::new());
        std::thread::sleep(Duration::from_millis(50));
    }
    std::fs::write(&gate, "").unwrap();
    hearth.log_line(&format!("finished {old}"));
    hearth.log_line(&format!("works on {new}"));
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0));
    eventually("the second has ended", LIMIT, || ProcessFacts::of(second.pid()).is_none());
    let pids = running(&hearth, "queue", 1);
    successor.stop();
    assert_gone(&pids);
}

#[test]
fn development_mode_restarts_processes_after_an_edit() {
    let site = site("[processes.queue]\ncommand = \"php worker.php\"\n");
    site.write("worker.php", "<?php echo \"works on one\\n\"; sleep(600);");
    let hearth = Serve::new(site.path()).args(&["--dev"]).start();
    hearth.log().wait_for("works on one");
    site.write("worker.php", "<?php echo \"works on two\\n\"; sleep(600);");
    hearth.log().wait_for("works on two");
    assert_eq!(hearth.stop().code(), Some(0));
}

#[test]
fn a_process_runs_as_phps_user_in_its_sandbox() {
    if !is_root() {
        return;
    }
    let programs = programs();
    let site = site(&format!(
        "[php]\nuser = {PHP}\ngroup = {PHP}\n[sandbox]\nwritable = [\"storage\", \"loose\"]\n\
         [processes.facts]\ncommand = \"php facts.php\"\n"
    ));
    let facts = "<?php @unlink(__DIR__ . '/storage/old'); echo json_encode(['user' => posix_getuid(), 'groups' => posix_getgroups(),\n\
                 'storage' => @file_put_contents(__DIR__ . '/storage/new', 'x'), 'other' => @file_put_contents(__DIR__ . '/other/new', 'x'),\n\
                 'token' => getenv('HEARTH_ADMIN_TOKEN')]), PHP_EOL; exec('sleep 600 > /dev/null & echo child $!', $said); echo $said[0], PHP_EOL; sleep(600);";
    site.write("facts.php", facts);
    for folder in ["storage", "other", "loose"] {
        site.write(&format!("{folder}/old"), "");
        let folder = site.path().join(folder);
        std::fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
    }
    open(site.path());
    let mut hearth = Serve::new(site.path())
        .model("request")
        .set("HEARTH_LIB_DIR", programs.path().to_str().unwrap())
        .set("HEARTH_ADMIN_TOKEN", "a-token-that-cannot-be-guessed")
        .workers(1)
        .start();
    let told = format!(
        "{{\"user\":{PHP},\"groups\":[{PHP}],\"storage\":1,\"other\":false,\"token\":false}}"
    );
    let line = hearth.log_line("groups");
    assert_eq!(line["message"], told, "{line}");
    let line = hearth.log_line("child ");
    let child = line["message"].as_str().unwrap().strip_prefix("child ").unwrap();
    let pids = [line["process.pid"].as_u64().unwrap().try_into().unwrap(), child.parse().unwrap()];
    // The guard is of that user, too.
    hearth.process.signal(Signal::KILL);
    hearth.process.wait(LIMIT);
    assert_gone(&pids);
}

#[test]
fn a_process_belongs_to_one_of_several_applications() {
    let site = site(
        "[applications.shop]\npath = \"shop\"\nhosts = [\"shop.test\"]\n[applications.shop.php.env]\nWHOSE = \"shop\"\n\
         [processes.queue]\napplication = \"shop\"\ncommand = [\"sh\", \"-c\", \"echo $WHOSE works in $PWD; exec sleep 600\"]\n",
    );
    site.write("shop/public/index.php", "<?php echo 'shop';");
    let hearth = Hearth::request(&site);
    let folder = site.path().canonicalize().unwrap().join("shop");
    hearth.log_line(&format!("shop works in {}", folder.display()));
    assert_eq!(process(&hearth, "queue")["application"], "shop");
    assert_eq!(hearth.stop().code(), Some(0));
}

/// Waits for the beginning of two minutes.
#[test]
fn cron_starts_a_run_each_minute_and_none_while_one_goes_on() {
    const MINUTES: Duration = Duration::from_secs(150);
    let site = site(
        "[processes.quick]\ncommand = [\"sh\", \"-c\", \"echo ran quickly\"]\ncron = \"* * * * *\"\n\
         [processes.slow]\ncommand = [\"sh\", \"-c\", \"echo began; while [ ! -e gate ]; do sleep 0.1; done; echo done\"]\ncron = \"* * * * *\"\n\
         [processes.never]\ncommand = \"echo never\"\ncron = \"0 0 1 1 *\"\n",
    );
    let hearth = Hearth::request(&site);
    assert!(process(&hearth, "quick")["next_run"].as_str().unwrap().ends_with(":00Z"));
    let log = hearth.log();
    log.find(MINUTES, |line| line.contains("run left out").then_some(())).expect("a second minute");
    eventually("the quick one has run twice", LIMIT, || {
        process(&hearth, "quick")["runs"].as_u64() >= Some(2)
    });
    let slow = process(&hearth, "slow");
    assert_eq!((&slow["runs"], &slow["overlaps"]), (&1.into(), &1.into()), "{slow}");
    assert_eq!(process(&hearth, "never")["runs"], 0);
    // A reload waits for the run, and the next release starts nothing beside it.
    let mut reload = command();
    assert!(reload.arg("reload").arg(site.path()).status().unwrap().success());
    eventually("the run is to end", LIMIT, || {
        process(&hearth, "slow")["instances"][0]["stopping"] == true
    });
    site.write("gate", "");
    hearth.log_line("\"done\"");
    assert_eq!(hearth.stop().code(), Some(0));
}

/// Waits for the beginning of a minute.
#[test]
fn what_a_run_left_in_the_background_is_waited_for_though_its_process_was_removed() {
    const MINUTE: Duration = Duration::from_secs(90);
    let site = site(
        "[processes.schedule]\ncron = \"* * * * *\"\n\
         command = [\"sh\", \"-c\", \"(while [ ! -e gate ]; do sleep 0.1; done; touch finished) & echo left one\"]\n",
    );
    let hearth = Hearth::request(&site);
    let began = |line: &str| line.contains("left one").then_some(());
    hearth.log().find(MINUTE, began).expect("a run");
    eventually("the run has ended", LIMIT, || {
        process(&hearth, "schedule")["instances"].as_array().unwrap().is_empty()
    });
    site.write("hearth.toml", "");
    let mut reload = command();
    assert!(reload.arg("reload").arg(site.path()).status().unwrap().success());
    let mut hearth = hearth;
    hearth.process.signal(Signal::TERM);
    // A server that does not wait has ended by then, and killed it.
    std::thread::sleep(Duration::from_secs(1));
    site.write("gate", "");
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0));
    assert!(site.path().join("finished").exists(), "{}", hearth.log().text());
}
