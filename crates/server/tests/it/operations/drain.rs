//! The end of a server. TERM answers accepted requests and leaves no process or file behind; a second TERM does not
//! wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::{Client, ProcessFacts, eventually, head};

use crate::hearth::{
    Hearth, LIMIT, Serve, Site, assert_gone, in_each_model, models, runs_worker_script,
};

/// Returns every process of a server except itself.
fn family(hearth: &Hearth) -> Vec<u32> {
    let zygote = hearth.zygote_pid();
    let mut family = ProcessFacts::children(zygote);
    assert!(!family.is_empty(), "workers are the zygote's children");
    family.push(zygote);
    family
}

#[test]
fn a_drain_under_load_answers_every_accepted_request() {
    for model in &models() {
        let (_site, path) = Site::of_scripts_in(model);
        let mut hearth = Serve::new(path).model(model).workers(2).start();
        hearth.wait_idle(2);
        let family = family(&hearth);
        let address = hearth.address;
        let answered = AtomicUsize::new(0);
        // Connected before the signal arrives: no new connection is accepted afterwards.
        let connections = std::array::from_fn::<_, 6, _>(|_| Client::connect(address).unwrap());
        std::thread::scope(|scope| {
            for (client, mut connection) in connections.into_iter().enumerate() {
                let answered = &answered;
                scope.spawn(move || {
                    for n in 0.. {
                        let name = format!("{client}-{n}");
                        // A request that the closing connection did not read does not count as accepted.
                        let sent = connection.send(head(
                            "GET",
                            &format!("/hello.php?name={name}"),
                            &[],
                            0,
                        ));
                        let answer = match sent.and_then(|()| connection.answer_to("GET")) {
                            Ok(answer) => answer,
                            Err(error) => {
                                assert!(
                                    error.to_string().ends_with("closed after \"\"")
                                        || error.kind() != std::io::ErrorKind::UnexpectedEof,
                                    "{model}: half an answer: {error}"
                                );
                                return;
                            }
                        };
                        assert_eq!(answer.text(), format!("hello {name}\n"), "{model}");
                        answered.fetch_add(1, Ordering::Relaxed);
                        if answer.field("connection") == Some("close") {
                            assert!(connection.is_closed());
                            return;
                        }
                    }
                });
            }
            eventually("the load runs", LIMIT, || answered.load(Ordering::Relaxed) > 100);
            hearth.process.signal(Signal::TERM);
        });
        assert_eq!(hearth.process.wait(LIMIT).code(), Some(0), "{model}");
        assert_gone(&family);
    }
}

#[test]
fn requests_that_run_and_wait_are_answered_before_the_end() {
    for (model, site, mut hearth) in in_each_model() {
        let family = family(&hearth);
        let gate = site.path().join("gate");
        site.write("public/static.txt", "static");
        let target = format!("/gate.php?gate={}", gate.display());
        let mut clients: Vec<Client> = (0..3).map(|_| hearth.send(&target)).collect();
        eventually("one runs, two wait", LIMIT, || hearth.status()["pool"]["backlog"] == 2);
        let mut idle = hearth.connect();
        let file = if runs_worker_script(model) { "/public/static.txt" } else { "/static.txt" };
        assert_eq!(idle.get(file).unwrap().text(), "static");
        hearth.process.signal(Signal::TERM);
        hearth.log_line("draining");
        assert_eq!(hearth.admin("/up").status, 503, "a balancer can see it");
        assert!(idle.is_closed(), "connections without a request are closed");
        eventually("new connections are not accepted", LIMIT, || {
            Client::connect(hearth.address).is_err()
        });
        std::fs::write(&gate, "").unwrap();
        for client in &mut clients {
            let answer = client.answer_to("GET").unwrap();
            assert_eq!((answer.status, answer.text().as_str()), (200, "open"));
            assert_eq!(answer.field("connection"), Some("close"));
        }
        assert_eq!(hearth.process.wait(LIMIT).code(), Some(0), "{model}");
        assert_gone(&family);
    }
}

#[test]
fn work_after_the_answer_is_finished_before_the_end() {
    for (model, site, mut hearth) in in_each_model() {
        let [file, gate] = ["after", "gate"].map(|name| site.path().join(name));
        let target = format!("/finish.php?gate={}&file={}", gate.display(), file.display());
        assert_eq!(hearth.get(&target).text(), "answered");
        hearth.process.signal(Signal::TERM);
        hearth.log_line("draining");
        assert!(!file.exists(), "{model}");
        std::fs::write(&gate, "").unwrap();
        assert_eq!(hearth.process.wait(LIMIT).code(), Some(0), "{model}");
        assert!(file.exists(), "{model}: fastcgi_finish_request() promises the rest of the script");
    }
}

/// Sends TERM to a server whose request takes a minute, and checks that all its processes end before.
fn assert_ends_soon(hearth: &mut Hearth, family: &[u32]) {
    let began = Instant::now();
    hearth.process.signal(Signal::TERM);
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_gone(family);
}

#[test]
fn a_second_term_ends_at_once() {
    let site = Site::of_scripts();
    let mut hearth = Hearth::request(&site);
    let family = family(&hearth);
    let _client = hearth.begin("/sleep.php?ms=60000");
    hearth.process.signal(Signal::TERM);
    hearth.log_line("draining");
    assert_ends_soon(&mut hearth, &family);
}

#[test]
fn a_drain_ends_at_its_time_limit() {
    let site = Site::of_scripts();
    let mut hearth = Serve::new(site.path())
        .model("request")
        .workers(1)
        .set("HEARTH_SERVER_SHUTDOWN_PATIENCE", "500ms")
        .start();
    let family = family(&hearth);
    let _client = hearth.begin("/sleep.php?ms=60000");
    assert_ends_soon(&mut hearth, &family);
}

#[test]
fn no_process_outlives_a_server_that_is_killed() {
    for model in &models() {
        let (_site, path) = Site::of_scripts_in(model);
        let mut hearth = Serve::new(path).model(model).workers(2).start();
        hearth.wait_idle(2);
        let _client = hearth.begin("/timeout.php?forever");
        let family = family(&hearth);
        hearth.process.signal(Signal::KILL);
        hearth.process.wait(LIMIT);
        assert_gone(&family);
    }
}
