//! Waiting requests and processes of the foreign models: drains, kills, replacements, settings.

use super::*;
use crate::realtime::losses::{Tally, assert_recycled_unnoticed};

#[test]
fn a_full_backlog_and_a_long_wait_become_503() {
    for model in of_tier(MODELS) {
        let site = Site::of_scripts();
        let hearth = serve(&site, model)
            .workers(1)
            .set("HEARTH_PHP_BACKLOG", "1")
            .set("HEARTH_PHP_BACKLOG_TIMEOUT", "1h")
            .start();
        let (gate, target) = gate(&site);
        let holding = |hearth: &Hearth| {
            let mut runs = hearth.connect();
            runs.send(head("GET", &target, &[], 0)).unwrap();
            assert_eq!(runs.head().unwrap().status, 200);
            runs
        };
        let _runs = holding(&hearth);
        let mut waits = hearth.connect();
        waits.send(head("GET", "/hello.php", &[], 0)).unwrap();
        eventually("one waits", LIMIT, || hearth.status()["pool"]["backlog"] == 1);
        let refused = hearth.get("/hello.php");
        assert_eq!(refused.status, 503, "{model}: the backlog is full");
        assert!(refused.field("retry-after").is_some(), "{model}");
        std::fs::write(&gate, "").unwrap();
        assert_eq!(waits.answer_to("GET").unwrap().status, 200, "{model}: it had its place");

        std::fs::remove_file(&gate).unwrap();
        let hearth =
            serve(&site, model).workers(1).set("HEARTH_PHP_BACKLOG_TIMEOUT", "700ms").start();
        let _runs = holding(&hearth);
        let began = Instant::now();
        assert_eq!(hearth.get("/hello.php").status, 503, "{model}: it has waited too long");
        assert!(began.elapsed() >= Duration::from_millis(700), "{model}");
        std::fs::write(&gate, "").unwrap();
        eventually("a slot is free", LIMIT, || hearth.get("/hello.php").status == 200);
    }
}

#[test]
fn requests_that_run_and_wait_are_answered_before_the_end() {
    for model in of_tier(MODELS) {
        let site = Site::of_scripts();
        let mut hearth = one(&site, model);
        let (gate, target) = gate(&site);
        let mut clients: Vec<Client> = (0..3).map(|_| hearth.send(&target)).collect();
        eventually("one runs, two wait", LIMIT, || hearth.status()["pool"]["backlog"] == 2);
        let mut all = Vec::new();
        eventually("PHP runs", LIMIT, || {
            all = hearth.descendants();
            !all.is_empty()
        });
        hearth.process.signal(Signal::TERM);
        hearth.log_line("draining");
        std::fs::write(&gate, "").unwrap();
        for client in &mut clients {
            assert_eq!(client.answer_to("GET").unwrap().text(), "waiting open", "{model}");
        }
        assert_eq!(hearth.process.wait(LIMIT).code(), Some(0), "{model}");
        assert_gone(&all);
    }
}

#[test]
fn no_process_survives_any_server_exit() {
    let site = Site::of_scripts();
    for model in of_tier(MODELS) {
        for end in ["kill", "patience", "second term"] {
            let mut hearth = serve(&site, model)
                .workers(2)
                .set(
                    "HEARTH_SERVER_SHUTDOWN_PATIENCE",
                    if end == "patience" { "300ms" } else { "60s" },
                )
                .start();
            let _client = hearth.begin("/timeout.php?forever");
            let mut all = Vec::new();
            eventually("all processes run", LIMIT, || {
                all = hearth.descendants();
                all.len()
                    == match model {
                        "fpm" => 3,
                        "builtin" => 2,
                        _ => 1,
                    }
            });
            let began = Instant::now();
            if end == "kill" {
                hearth.process.signal(Signal::KILL);
            } else {
                hearth.process.signal(Signal::TERM);
            }
            if end == "second term" {
                hearth.log_line("draining");
                hearth.process.signal(Signal::TERM);
            }
            hearth.process.wait(LIMIT);
            assert_gone(&all);
            assert!(began.elapsed() < LIMIT, "{model} {end}: {:?}", began.elapsed());
        }
    }
}

#[test]
fn processes_killed_while_idle_are_replaced() {
    let site = Site::of_scripts();
    for model in of_tier(["fpm", "builtin"]) {
        let hearth = one(&site, model);
        for _ in 0..3 {
            hearth.wait_idle(1);
            let pid = hearth.worker_pid();
            signal(pid, Signal::KILL);
            eventually("it is gone", LIMIT, || ProcessFacts::of(pid).is_none());
            assert_eq!(hearth.get("/hello.php").text(), "hello world\n", "{model}");
            assert_ne!(hearth.worker_pid(), pid, "{model}");
        }
        signal(hearth.worker_pid(), Signal::KILL);
        eventually("without a request, too", LIMIT, || hearth.status()["pool"]["crashes"] == 4);
    }
}

/// Children of php-fpm are terminated: `fpm_signals_init_child()` in php-src gives them the default action.
#[test]
fn usr1_terminates_neither_builtin_nor_cgi() {
    let site = Site::of_scripts();
    let (gate, target) = gate(&site);
    for model in of_tier(["builtin", "cgi"]) {
        let hearth = one(&site, model);
        let mut client = hearth.begin(&target);
        let mut php = Vec::new();
        eventually("it runs", LIMIT, || {
            php = hearth.descendants();
            !php.is_empty()
        });
        for pid in php {
            signal(pid, Signal::USR1);
        }
        std::fs::write(&gate, "").unwrap();
        assert_eq!(client.answer_to("GET").unwrap().text(), "waiting open", "{model}");
        std::fs::remove_file(&gate).unwrap();
        assert_eq!(hearth.get("/hello.php").text(), "hello world\n", "{model}");
        assert_eq!(hearth.status()["pool"]["crashes"], 0, "{model}");
    }
}

#[test]
fn a_killed_php_fpm_is_restarted_with_all_its_children() {
    let site = Site::of_scripts();
    let hearth = serve(&site, "fpm").workers(2).start();
    hearth.wait_idle(2);
    for _ in 0..2 {
        let mut client = hearth.begin("/sleep.php?ms=60000");
        let mut old = Vec::new();
        eventually("php-fpm has its two children", LIMIT, || {
            old = hearth.descendants();
            old.len() == 3
        });
        signal(old[0], Signal::KILL);
        assert_eq!(client.answer_to("GET").unwrap().status, 502);
        assert_gone(&old);
        eventually("another answers", LIMIT, || hearth.get("/hello.php").status == 200);
        hearth.wait_idle(2);
    }
    hearth.log_line("php-fpm died");
}

#[test]
fn killed_processes_under_load_lose_no_response() {
    const KILLED: usize = 12;
    for model in of_tier(["fpm", "builtin"]) {
        let site = Site::of_scripts();
        let hearth = serve(&site, model).workers(3).start();
        hearth.wait_idle(3);
        let over = AtomicBool::new(false);
        let tally = Tally::default();
        let mut killed = 0;
        std::thread::scope(|scope| {
            for client in 0..4 {
                let (hearth, over, tally) = (&hearth, &over, &tally);
                scope.spawn(move || {
                    let mut connection = hearth.connect();
                    let mut n = 0;
                    while !over.load(Ordering::Relaxed) {
                        n += 1;
                        let name = format!("{client}-{n}");
                        let Ok(answer) = connection.get(&format!("/hello.php?name={name}")) else {
                            // The answer is cut off because its process was killed after it had begun to answer.
                            tally.lost.fetch_add(1, Ordering::Relaxed);
                            connection = hearth.connect();
                            continue;
                        };
                        tally.count(&answer, &name, model);
                        if answer.field("connection") == Some("close") {
                            connection = hearth.connect();
                        }
                    }
                });
            }
            let _over = OverOnDrop(&over);
            while killed < KILLED {
                let before = tally.whole.load(Ordering::Relaxed);
                eventually("requests are answered", LIMIT, || {
                    tally.whole.load(Ordering::Relaxed) > before + 3
                });
                if let Some(pid) = hearth.worker_pids().get(killed % 3) {
                    signal(*pid, Signal::KILL);
                    killed += 1;
                }
            }
        });
        hearth.wait_idle(3);
        let (whole, lost) = (tally.whole.into_inner(), tally.lost.into_inner());
        println!("{model}: {killed} killed, {whole} answered, {lost} cut, 502 or 503");
        assert!(lost <= killed, "{model}: {lost} requests lost to {killed} killed processes");
        assert_eq!(hearth.get("/hello.php?name=x").text(), "hello x\n");
    }
}

#[test]
fn processes_are_replaced_after_max_requests_and_no_request_notices() {
    let site = Site::of_scripts();
    for model in of_tier(["fpm", "builtin"]) {
        let hearth = serve(&site, model).args(&["--max-requests", "20"]).workers(2).start();
        assert_recycled_unnoticed(&hearth, model, 8);
    }
}

#[test]
fn settings_and_environment_reach_php_and_a_query_never_becomes_an_argument() {
    let site = Site::of_scripts().with_file(
        "public/look.php",
        "<?php echo json_encode([ini_get('memory_limit'), ini_get('user_agent'), error_reporting() === (E_ALL & ~E_NOTICE), getenv('FROM_HEARTH'), getenv('APP_COLOUR'),\n\
         ini_set('memory_limit', '99M') !== false, php_sapi_name()]);",
    );
    for (model, sapi) in MODELS.into_iter().zip(["fpm-fcgi", "cli-server", "cgi-fcgi"]) {
        let hearth = serve(&site, model)
            .workers(1)
            .ini("memory_limit", "77M")
            .ini("user_agent", "\"of; semicolons\"")
            .ini("error_reporting", "E_ALL & ~E_NOTICE")
            .set("HEARTH_PHP_ENV", "FROM_HEARTH=yes")
            .start();
        let expected = serde_json::json!(["77M", "of; semicolons", true, "yes", "red", true, sapi]);
        assert_eq!(hearth.get("/look.php").json(), expected, "{model}");
        // CVE-2012-1823 and similar attacks
        for query in ["-s", "-dmemory_limit%3d1M", "-n", "+-v"] {
            assert_eq!(
                hearth.get(&format!("/look.php?{query}")).json(),
                expected,
                "{model} {query}"
            );
        }
    }
}

/// Returns the address on loopback that a process listens on (proc(5): `/proc/PID/net/tcp`, `/proc/PID/fd`).
fn listening(pid: u32) -> std::net::SocketAddr {
    let sockets: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .filter_map(|link| {
            Some(link.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned())
        })
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let port = table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let ours = fields[3] == "0A" && sockets.iter().any(|socket| socket == fields[9]);
        ours.then(|| u16::from_str_radix(fields[1].split(':').next_back().unwrap(), 16).unwrap())
    });
    std::net::SocketAddr::from(([127, 0, 0, 1], port.unwrap()))
}

#[test]
fn only_the_server_can_reach_the_builtin_server() {
    let site = Site::of_scripts();
    let hearth = one(&site, "builtin");
    let address = listening(hearth.worker_pid());
    let ask = |fields: &[(&str, &str)]| {
        let mut client = Client::connect(address).unwrap();
        client.request("GET", "/pid.php", fields, b"").unwrap().status
    };
    assert_eq!(ask(&[]), 403);
    assert_eq!(ask(&[("Hearth-Variables", "00000000000000000000000000000000")]), 403);
    let smuggled = hearth.connect().request("GET", "/hello.php", &[("Hearth-Variables", "x")], b"");
    assert_eq!(smuggled.unwrap().text(), "hello world\n", "a client's own field is left out");
}

#[test]
fn a_missing_program_is_named_with_the_package_that_has_it() {
    let site = Site::of_scripts();
    for (model, package) in
        [("fpm", "php7.0-fpm"), ("builtin", "php7.0-cli"), ("cgi", "php7.0-cgi")]
    {
        let mut process = serve(&site, model).args(&["--php", "7.0"]).launch();
        assert_eq!(process.wait(LIMIT).code(), Some(1), "{model}");
        process.log().wait_for(&format!("apt-get install {package}"));
    }
}
