//! Stopped processes: the whole server with its workers (docker pause, a frozen control group, SIGSTOP), or only the
//! process that forks the workers. Afterwards every model serves again, no worker's slot is lost, and the server stops
//! on TERM.
//!
//! `HEARTH_LONG=1` pauses for 5, 35 and 120 seconds with the default limits.
#![expect(clippy::print_stdout, reason = "what was measured, and shown when the test fails")]

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::{ProcessFacts, eventually};

use crate::hearth::{Hearth, LIMIT, OverOnDrop, Serve, Site, every_model, models, signal};

const WORKERS: usize = 2;
/// Longer than each limit in [`serve`].
const PAUSE: Duration = Duration::from_secs(4);
/// A client may wait during a whole pause, and one pause takes two minutes.
const PATIENCE: Duration = Duration::from_mins(4);

/// Starts a server whose limits are shorter than [`PAUSE`], if `short`.
fn serve(model: &str, short: bool) -> (Site, Hearth) {
    let (site, path) = Site::of_scripts_in(model);
    let mut serve = Serve::new(path).model(model).workers(WORKERS);
    if short {
        serve = serve
            .set("HEARTH_PHP_BOOT_TIMEOUT", "3s")
            .set("HEARTH_PHP_BACKLOG_TIMEOUT", "3s")
            .args(&["--request-timeout", "3s"]);
    }
    let hearth = serve.start();
    (site, hearth)
}

/// Returns the status of an answer, or why there was none.
fn ask(address: SocketAddr, target: &str) -> String {
    let asked = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.split(' ').nth(1).unwrap_or("nothing").to_owned())
    };
    asked().unwrap_or_else(|error| error.kind().to_string())
}

/// Returns the server and every process below it, parents first.
fn tree(hearth: &Hearth) -> Vec<u32> {
    let mut tree = hearth.descendants();
    tree.insert(0, hearth.process.pid());
    tree
}

/// Stops every process, including those forked in between. Returns them, parents first.
fn stop_all(hearth: &Hearth) -> Vec<u32> {
    let mut stopped = Vec::new();
    loop {
        let tree = tree(hearth);
        if tree == stopped {
            return tree;
        }
        for pid in &tree {
            signal(*pid, Signal::STOP);
        }
        stopped = tree;
    }
}

/// Waits for a response with 200, and returns how long that took.
fn serves_again(hearth: &Hearth) -> Duration {
    let since = Instant::now();
    eventually("it serves again", LIMIT, || ask(hearth.address, "/pid.php") == "200");
    since.elapsed()
}

/// Runs `during` while clients send requests, and counts each kind of answer.
fn under_load(hearth: &Hearth, during: impl FnOnce()) -> BTreeMap<String, usize> {
    let (over, answers) = (AtomicBool::new(false), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        let _ends = OverOnDrop(&over);
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let answer = ask(hearth.address, "/pid.php");
                    *answers.lock().unwrap().entry(answer).or_default() += 1;
                }
            });
        }
        eventually("requests are running", LIMIT, || {
            answers.lock().unwrap().get("200").is_some_and(|number| *number >= 20)
        });
        during();
    });
    answers.into_inner().unwrap()
}

/// Stops the whole tree under load and continues it.
fn whole_tree(model: &str, pause: Duration, short: bool, kills: bool) {
    let (_site, hearth) = serve(model, short);
    let mut took = Duration::ZERO;
    let answers = under_load(&hearth, || {
        let mut tree = stop_all(&hearth);
        if kills && model != "cgi" {
            // Spares the server and, unless each child is a worker, the process that forks workers.
            let first = if model == "builtin" { 1 } else { 2 };
            for pid in tree.drain(first.min(tree.len())..).step_by(2) {
                signal(pid, Signal::KILL);
            }
        }
        std::thread::sleep(pause);
        for pid in tree.iter().rev().chain(&self::tree(&hearth)) {
            signal(*pid, Signal::CONT);
        }
        took = serves_again(&hearth);
    });
    println!("{model}: {pause:?}, kills {kills}: serves after {took:?}; {answers:?}");
    // A request that was being read during the pause may exceed HTTP's time-out for its head.
    let allowed = |answer: &&String| {
        matches!(&***answer, "200" | "408" | "nothing") || (kills && *answer == "502")
    };
    assert!(answers.keys().all(|answer| allowed(&answer)), "{model}: {answers:?}");
    is_whole(&hearth, model);
    assert!(hearth.stop().success(), "{model}");
}

/// No slot is lost: all workers wait for requests.
fn is_whole(hearth: &Hearth, model: &str) {
    println!("{model}: all workers are to be idle");
    if model == "cgi" {
        assert_eq!(ask(hearth.address, "/pid.php"), "200");
    } else {
        hearth.wait_idle(WORKERS);
    }
}

/// Runs the test in three models at a time.
fn in_each_of(models: &[&'static str], test: impl Fn(&'static str) + Sync) {
    models.chunks(3).for_each(|some| at_once(some, &test));
}

/// Runs the test in all models at once, because they mostly wait.
fn at_once(models: &[&'static str], test: impl Fn(&'static str) + Sync) {
    std::thread::scope(|scope| {
        for model in models {
            scope.spawn(|| test(model));
        }
    });
}

#[test]
fn a_pause_of_the_whole_server_costs_no_request_and_no_worker() {
    in_each_of(&every_model(), |model| whole_tree(model, PAUSE, true, false));
}

#[test]
fn workers_that_are_killed_in_a_pause_are_replaced_after_it() {
    in_each_of(&every_model(), |model| whole_tree(model, PAUSE, true, true));
}

/// Returns the process that forks the workers: the zygote, or php-fpm.
fn forker(hearth: &Hearth) -> u32 {
    hearth.zygote_pid()
}

fn kill_workers(hearth: &Hearth) {
    for pid in hearth.worker_pids() {
        signal(pid, Signal::KILL);
    }
}

#[test]
fn a_hanging_zygote_is_replaced_when_workers_are_missing() {
    let models: Vec<_> =
        every_model().into_iter().filter(|model| *model != "builtin" && *model != "cgi").collect();
    in_each_of(&models, |model| {
        let (_site, hearth) = serve(model, true);
        hearth.wait_idle(WORKERS);
        let stopped = forker(&hearth);
        signal(stopped, Signal::STOP);
        kill_workers(&hearth);
        let took = serves_again(&hearth);
        println!("{model}: serves after {took:?}");
        hearth.wait_idle(WORKERS);
        eventually("the stopped one is gone", LIMIT, || ProcessFacts::of(stopped).is_none());
        assert!(hearth.stop().success(), "{model}");
    });
}

#[test]
fn a_briefly_stopped_zygote_forks_the_missing_workers() {
    in_each_of(&models(), |model| {
        let (_site, hearth) = serve(model, true);
        for kills in [false, true] {
            let answers = under_load(&hearth, || {
                let zygote = forker(&hearth);
                signal(zygote, Signal::STOP);
                if kills {
                    kill_workers(&hearth);
                }
                std::thread::sleep(Duration::from_secs(1));
                signal(zygote, Signal::CONT);
                serves_again(&hearth);
            });
            let allowed = |answer: &String| answer == "200" || (kills && answer == "502");
            assert!(answers.keys().all(allowed), "{model}, kills {kills}: {answers:?}");
            hearth.wait_idle(WORKERS);
        }
        assert!(hearth.stop().success(), "{model}");
    });
}

#[test]
fn a_running_request_survives_its_zygotes_replacement() {
    in_each_of(&["request", "worker", "snapshot"], |model| {
        let (_site, path) = Site::of_scripts_in(model);
        let hearth = Serve::new(path)
            .model(model)
            .workers(WORKERS)
            .set("HEARTH_PHP_BOOT_TIMEOUT", "3s")
            .start();
        hearth.wait_idle(WORKERS);
        let stopped = forker(&hearth);
        std::thread::scope(|scope| {
            let answer = scope.spawn(|| ask(hearth.address, "/sleep.php?ms=9000"));
            let busy = || {
                let status = hearth.status();
                let workers = status["pool"]["workers"].as_array().unwrap().clone();
                let is =
                    |state: &str| workers.iter().find(|worker| worker["state"] == state).cloned();
                Some((is("busy")?, is("idle")?))
            };
            eventually("one is busy", LIMIT, || busy().is_some());
            let (_, idle) = busy().unwrap();
            signal(stopped, Signal::STOP);
            signal(idle["pid"].as_u64().unwrap().try_into().unwrap(), Signal::KILL);
            // The next request finds that the worker has ended.
            serves_again(&hearth);
            hearth.log_line("zygote does not answer");
            assert_eq!(answer.join().unwrap(), "200", "{model}");
        });
        hearth.wait_idle(WORKERS);
        eventually("the stopped one is gone", LIMIT, || ProcessFacts::of(stopped).is_none());
        assert!(hearth.stop().success(), "{model}");
    });
}

#[test]
fn a_server_stops_despite_a_hanging_zygote() {
    let models: Vec<_> =
        every_model().into_iter().filter(|model| *model != "builtin" && *model != "cgi").collect();
    in_each_of(&models, |model| {
        let (_site, hearth) = serve(model, true);
        hearth.wait_idle(WORKERS);
        let processes = tree(&hearth);
        signal(forker(&hearth), Signal::STOP);
        assert!(hearth.stop().success(), "{model}");
        for pid in processes {
            eventually("no process is left", LIMIT, || ProcessFacts::of(pid).is_none());
        }
    });
}

#[test]
fn a_second_signal_stops_a_server_at_once_despite_a_hanging_zygote() {
    in_each_of(&models(), |model| {
        let (_site, mut hearth) = serve(model, true);
        hearth.wait_idle(WORKERS);
        let processes = tree(&hearth);
        signal(forker(&hearth), Signal::STOP);
        hearth.process.signal(Signal::TERM);
        hearth.log_line("draining");
        hearth.process.signal(Signal::TERM);
        assert!(hearth.process.wait(LIMIT).success(), "{model}");
        for pid in processes {
            eventually("no process is left", LIMIT, || ProcessFacts::of(pid).is_none());
        }
    });
}

/// With the default limits, all of which are shorter than the longest pause.
#[test]
fn long_pauses() {
    if std::env::var_os("HEARTH_LONG").is_none() {
        return;
    }
    for seconds in [5, 35, 120] {
        let pause = Duration::from_secs(seconds);
        for kills in [false, true] {
            at_once(&every_model(), |model| whole_tree(model, pause, false, kills));
        }
        // Only the zygote is stopped, which is replaced after ten seconds.
        at_once(&models(), |model| {
            let (_site, hearth) = serve(model, false);
            let mut took = Duration::ZERO;
            let answers = under_load(&hearth, || {
                let zygote = forker(&hearth);
                signal(zygote, Signal::STOP);
                kill_workers(&hearth);
                std::thread::sleep(pause);
                signal(zygote, Signal::CONT);
                took = serves_again(&hearth);
            });
            println!("{model}: zygote for {pause:?}: serves after {took:?}; {answers:?}");
            hearth.wait_idle(WORKERS);
            assert!(hearth.stop().success(), "{model}");
        });
    }
}
