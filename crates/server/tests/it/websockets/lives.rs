//! What a connection lives through: reloads, stops, crashes, other applications, processes beside the workers.

use std::fs;
use std::io::Write as _;

use rustix::process::Signal;
use testkit::eventually;
use tungstenite::Message;

use super::{Client, serve, site};
use crate::hearth::{Hearth, LIMIT, Serve, Site, each_isolating, of_tier};
use crate::operations::upgrade::{upgrade, upgraded};

/// Waits for an event that starts so, and returns all events so far.
pub(super) fn events(site: &Site, last: &str) -> Vec<String> {
    let mut events = Vec::new();
    eventually("PHP has handled the event", LIMIT, || {
        let text = fs::read_to_string(site.path().join("events")).unwrap_or_default();
        events = text.lines().map(str::to_owned).collect();
        events.iter().any(|event| event.starts_with(last)) && text.ends_with('\n')
    });
    events
}

/// More messages than wait for the application.
const NUMBERS: [u32; 20] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20];

impl Client {
    fn send_numbers(&mut self) {
        for number in NUMBERS {
            self.send(&number.to_string());
        }
    }

    /// Returns the answers to them.
    fn numbers(&mut self) -> [u32; 20] {
        NUMBERS.map(|_| self.next().parse().unwrap())
    }
}

#[test]
fn messages_of_one_connection_are_in_order_and_connections_run_side_by_side() {
    for model in of_tier(["request", "snapshot"]) {
        let site = site();
        let hearth = serve(&site, model).workers(2).start();
        let (mut one, mut two) = (Client::open(&hearth, "/chat"), Client::open(&hearth, "/chat"));
        one.send("wait go");
        for number in 0..30 {
            one.send(&number.to_string());
        }
        // The other worker is free, and the first connection's messages do not take it.
        for number in 0..30 {
            assert_eq!(two.ask(&format!("b{number}")), format!("b{number}"), "{model}");
        }
        assert!(!events(&site, "message b29").contains(&"message 0".to_owned()), "{model}");
        site.write("go", "");
        assert_eq!(one.next(), "waited go", "{model}");
        for number in 0..30 {
            assert_eq!(one.next(), number.to_string(), "{model}");
        }
    }
}

#[test]
fn messages_find_what_the_boot_left_and_nothing_of_other_messages() {
    for model in each_isolating() {
        let site = site();
        let hearth = serve(&site, model.name()).workers(1).start();
        let mut client = Client::open(&hearth, "/chat");
        for _ in 0..3 {
            assert_eq!(client.ask("count"), "1", "{model:?}");
        }
    }
}

#[test]
fn a_reload_keeps_connections_and_the_new_release_handles_their_messages() {
    for model in of_tier(["request", "snapshot"]) {
        let site = site();
        let hearth = serve(&site, model).workers(1).start();
        let mut client = Client::open(&hearth, "/chat");
        let id = client.ask("id");
        // What is being handled stays with the release that began it.
        client.send("wait go");
        events(&site, "message wait go");
        let changed = super::HANDLER.replace("echo $message;", "echo 'new ', $message;");
        site.write("public/chat.php", &changed);
        hearth.process.signal(Signal::HUP);
        eventually("the new release serves", LIMIT, || hearth.status()["generation"] == 2);
        site.write("go", "");
        assert_eq!(client.next(), "waited go", "{model}");
        assert_eq!(client.ask("hi"), "new hi", "{model}");
        assert_eq!(client.ask("id"), id, "{model}");
        assert_eq!(client.ask(&format!("send {id} late")), "late", "{model}");
        assert_eq!(client.next(), "true", "{model}");
    }
}

#[test]
fn a_stop_closes_connections_after_the_message_in_progress_and_reports_each_end() {
    let site = site();
    let mut hearth = serve(&site, "snapshot").workers(2).start();
    let mut busy = Client::open(&hearth, "/chat");
    let mut idle: Vec<Client> = (0..20).map(|_| Client::open(&hearth, "/chat")).collect();
    busy.send("wait go");
    busy.send_numbers();
    events(&site, "message wait go");
    hearth.process.signal(Signal::TERM);
    for client in &mut idle {
        assert_eq!(client.closed(), (1001, "the server goes away".to_owned()));
    }
    site.write("go", "");
    assert_eq!(busy.next(), "waited go");
    assert_eq!(busy.numbers(), NUMBERS);
    assert_eq!(busy.closed().0, 1001);
    assert!(hearth.process.wait(LIMIT).success(), "{}", hearth.log().text());
    let ends = events(&site, "close")
        .iter()
        .filter(|event| *event == "close 1001 the server goes away")
        .count();
    assert_eq!(ends, 21);
}

#[test]
fn an_upgrade_closes_connections_after_the_message_in_progress_and_the_new_process_takes_their_clients()
 {
    let site = site();
    let run_dir = site.path().join("run");
    let mut hearth =
        serve(&site, "request").args(&["--run-dir", run_dir.to_str().unwrap()]).workers(2).start();
    let (mut busy, mut idle) = (Client::open(&hearth, "/chat"), Client::open(&hearth, "/chat"));
    let id = idle.ask("id");
    busy.send("wait go");
    busy.send_numbers();
    events(&site, "message wait go");
    let successor = upgraded(upgrade(site.path(), &["--run-dir", run_dir.to_str().unwrap()]));
    // An idle connection ends at once, and its client comes back to the new process.
    assert_eq!(idle.closed(), (1001, "the server goes away".to_owned()));
    let mut again = Client::open(&hearth, "/chat");
    assert_eq!(again.ask("hi"), "hi");
    let new = again.ask("id");
    assert_ne!(new, id);
    // What came is answered by the old one, whose ids the new one does not know.
    assert_eq!(again.ask(&format!("send {id} late")), "false");
    site.write("go", "");
    assert_eq!(busy.next(), "waited go");
    assert_eq!(busy.numbers(), NUMBERS);
    assert_eq!(busy.closed().0, 1001);
    assert!(hearth.process.wait(LIMIT).success(), "{}", hearth.log().text());
    assert_eq!(again.ask(&format!("send {new} self")), "self");
    assert_eq!(again.next(), "true");
    let ends = events(&site, "close");
    let ends = ends.iter().filter(|event| *event == "close 1001 the server goes away");
    assert_eq!(ends.count(), 2);
    successor.stop();
    assert_eq!(again.closed().0, 1001);
}

#[test]
fn a_worker_that_dies_in_a_message_ends_its_own_connection_only() {
    for model in of_tier(["request", "snapshot"]) {
        let site = site();
        let hearth = serve(&site, model).workers(2).start();
        let (mut one, mut two) = (Client::open(&hearth, "/chat"), Client::open(&hearth, "/chat"));
        let id = one.ask("id");
        one.send("die");
        one.send("never");
        assert_eq!(one.closed(), (1011, "the application failed".to_owned()), "{model}");
        let seen = events(&site, "close 1011");
        assert!(!seen.contains(&"message never".to_owned()), "{model}: {seen:?}");
        assert_eq!(two.ask(&format!("send {id} x")), "false", "{model}");
        assert_eq!(two.ask("still here"), "still here", "{model}");
    }
}

#[test]
fn a_client_that_vanishes_is_reported_after_its_last_message() {
    let site = site();
    let hearth = serve(&site, "request").workers(1).start();
    let mut client = Client::open(&hearth, "/chat");
    client.send("wait go");
    client.send_numbers();
    events(&site, "message wait go");
    drop(client);
    site.write("go", "");
    let seen = events(&site, "close");
    let expected = NUMBERS.map(|number| format!("message {number}"));
    let ends = ["message wait go".to_owned(), "close 1006 ".to_owned()];
    assert_eq!(seen[1..], [&ends[..1], &expected, &ends[1..]].concat());

    // One that closes in order and does not wait has its own code.
    let mut client = Client::open(&hearth, "/chat");
    client.send_numbers();
    client.0.get_mut().write_all(&[0x88, 0x80, 0, 0, 0, 0]).unwrap();
    drop(client);
    let seen = events(&site, "close 1005");
    assert_eq!(seen[seen.len() - 21..], [&expected[..], &["close 1005 ".to_owned()]].concat());
}

#[test]
fn another_application_cannot_send_even_with_the_id() {
    let (site, other) = (site(), site_named("other"));
    site.write(
        "hearth.toml",
        &format!(
            "[websockets]\nroutes = [\"/chat=/chat.php\"]\n[applications.other]\npath = \"{}\"\nhosts = [\"other.test\"]\n\
             [applications.other.websockets]\nroutes = [\"/chat=/chat.php\"]\n",
            other.path().display()
        ),
    );
    let hearth = Hearth::request(&site);
    let mut ours = Client::open(&hearth, "/chat");
    let host = [("host", "other.test")];
    let mut theirs = Client::open_with(&hearth, "/chat", &host).unwrap().0;
    let id = ours.ask("id");
    assert_eq!(theirs.ask(&format!("send {id} stolen")), "false");
    assert_eq!(theirs.ask(&format!("close-other {id}")), "false");
    let own = theirs.ask("id");
    assert_eq!(theirs.ask(&format!("send {own} own")), "own");
    assert_eq!(ours.ask("untouched"), "untouched");
    let status = hearth.status();
    let names =
        status["websockets"].as_array().unwrap().iter().map(|of| of["application"].as_str());
    assert_eq!(names.collect::<Vec<_>>(), [Some("main"), Some("other")]);
}

fn site_named(name: &str) -> Site {
    let site = site();
    site.write("name", name);
    site
}

#[test]
fn a_process_beside_the_workers_sends_and_closes() {
    // As a queue worker: it learns ids from a file, and has the extension.
    let site = site().with_file(
        "queue.php",
        "<?php while (!is_file(__DIR__ . '/job')) { usleep(5000); clearstatcache(); }\n\
         $id = file_get_contents(__DIR__ . '/job');\n\
         $sent = hearth_socket_send($id, 'done');\n\
         $closed = hearth_socket_close($id, 4002, 'by the queue');\n\
         file_put_contents(__DIR__ . '/result', json_encode([$sent, $closed, hearth_socket_send($id, 'late')]) . \"\\n\");\n\
         sleep(60);",
    );
    site.write(
        "hearth.toml",
        &format!(
            "[websockets]\nroutes = [\"/chat=/chat.php\"]\n[processes.queue]\ncommand = \"php -d extension={} queue.php\"\nstop_timeout = \"1s\"\n",
            super::extension()
        ),
    );
    let hearth = Serve::new(site.path()).model("snapshot").workers(1).start();
    let mut client = Client::open(&hearth, "/chat");
    let id = client.ask("id");
    site.write("job", &id);
    assert_eq!(client.next(), "done");
    assert_eq!(client.closed(), (4002, "by the queue".to_owned()));
    assert_eq!(crate::hearth::whole_line(&site.path().join("result")), "[true,true,false]\n");
}

#[test]
fn a_message_sent_while_connecting_waits_for_the_handshake() {
    let site = site();
    let hearth = serve(&site, "request").workers(1).start();
    let mut client = Client::open(&hearth, "/chat?greet=1");
    assert_eq!(client.next(), "hello");
    client.0.send(Message::Ping(vec![1, 2].into())).unwrap();
    assert!(matches!(client.0.read().unwrap(), Message::Pong(bytes) if bytes[..] == [1, 2]));
}
