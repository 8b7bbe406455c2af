//! Clients that send their bodies as slowly as possible: they hold connections, but no worker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use testkit::{Client, head};

use crate::hearth::{Hearth, OverOnDrop, Serve, Site, of_tier};

const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");
const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Sends a head and the first byte of a body.
fn begin(hearth: &Hearth, kind: (&str, &str), chunked: bool) -> Client {
    let mut client = hearth.connect();
    let mut fields = vec![kind, ("Expect", "100-continue")];
    if chunked {
        fields.push(("Transfer-Encoding", "chunked"));
    }
    let length = if chunked { 0 } else { 1_000_000 };
    client.send(head("POST", "/upload.php", &fields, length)).unwrap();
    assert_eq!(client.head().unwrap().status, 100);
    client.send(if chunked { "10000\r\na" } else { "a" }).unwrap();
    client
}

/// Sends a byte of each body repeatedly until it is refused, and returns the status of each refusal.
fn drip(mut clients: Vec<Client>, over: &AtomicBool) -> Vec<u16> {
    let mut refusals = Vec::new();
    for client in &clients {
        client.set_timeout(Duration::from_millis(2));
    }
    while !clients.is_empty() && !over.load(Ordering::Relaxed) {
        clients.retain_mut(|client| match client.answer_to("POST") {
            Ok(answer) => {
                refusals.push(answer.status);
                false
            }
            Err(_none_yet) => client.send("a").is_ok(),
        });
        thread::sleep(Duration::from_millis(20));
    }
    refusals
}

/// Starts a server with two workers and runs slow clients. Other requests are answered throughout, and the slow clients
/// finally get 408.
fn others_are_answered_while(serve: Serve, clients: impl Fn(&Hearth) -> Vec<Client>) {
    let hearth = serve.workers(2).set("HEARTH_HTTP_BODY_TIMEOUT", "2s").start();
    let clients = clients(&hearth);
    let count = clients.len();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = OverOnDrop(&over);
        let dripping = scope.spawn(|| drip(clients, over.0));
        let mut answered = 0;
        while !dripping.is_finished() {
            assert_eq!(hearth.get("/hello.php").text(), "hello world\n");
            let answer = hearth.post("/upload.php", &[FORM], b"a=1");
            assert_eq!(answer.json()["post"]["a"], "1");
            answered += 1;
        }
        assert_eq!(dripping.join().unwrap(), vec![408; count]);
        assert!(answered > 0, "others send requests while the clients are slow");
    });
    let status = hearth.status();
    assert_eq!((&status["pool"]["refused"], &status["pool"]["crashes"]), (&0.into(), &0.into()));
}

#[test]
fn slowly_sent_forms_hold_no_worker_in_any_model() {
    for model in of_tier(["request", "snapshot", "fpm", "cgi"]) {
        let (_site, path) = Site::of_scripts_in(model);
        for buffering in ["all", "forms"] {
            let serve =
                Serve::new(&path).model(model).set("HEARTH_HTTP_REQUEST_BUFFERING", buffering);
            others_are_answered_while(serve, |hearth| {
                (0..20).map(|n| begin(hearth, FORM, n % 2 == 0)).collect()
            });
        }
    }
}

#[test]
fn other_slowly_sent_bodies_hold_no_worker() {
    let site = Site::of_scripts();
    let serve = Serve::new(site.path()).model("request");
    others_are_answered_while(serve, |hearth| {
        (0..20).map(|n| begin(hearth, JSON, n % 2 == 0)).collect()
    });
}

#[test]
fn a_form_that_arrives_during_a_reload_gets_the_new_release() {
    let site = Site::of_scripts();
    let hearth = Serve::new(site.path())
        .model("request")
        .workers(1)
        .set("HEARTH_SERVER_SHUTDOWN_PATIENCE", "500ms")
        .start();
    let mut client = hearth.connect();
    client.send(head("POST", "/upload.php", &[FORM, ("Expect", "100-continue")], 7)).unwrap();
    assert_eq!(client.head().unwrap().status, 100);
    client.send("a=1").unwrap();
    hearth.process.signal(rustix::process::Signal::HUP);
    hearth.log_line("generation drained");
    client.send("&b=2").unwrap();
    let answer = client.answer_to("POST").unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["post"]["b"], "2");
}
