//! Tests applications that change or are removed while sockets are open, and failing look-ups.

use std::sync::{Arc, Mutex};

use channels::{Answer, App, AppRef, Apps, Found, Unavailable};
use testkit::eventually;

use super::kit::{Client, End, PATIENCE, Server, app, tcp};

/// A source of one application that the test sets; look-ups of all others fail.
#[derive(Debug)]
struct Told(Mutex<Option<Arc<App>>>);

impl Apps for Told {
    fn find(&self, app: AppRef<'_>) -> Found {
        match &*self.0.lock().unwrap() {
            Some(told) if app == AppRef::Key(&told.key) => Found::App(Arc::clone(told)),
            _ => Found::Unknown,
        }
    }

    fn ask(&self, _: AppRef<'_>, answer: Answer) {
        answer(Err(Unavailable));
    }
}

fn server(app: App) -> (Server, Arc<Told>) {
    let told = Arc::new(Told(Mutex::new(Some(Arc::new(app)))));
    (Server::of(Arc::<Told>::clone(&told), |_| {}), told)
}

/// Replaces or removes the application.
fn change(server: &Server, told: &Told, app: Option<App>) {
    let app = app.map(Arc::new);
    told.0.lock().unwrap().clone_from(&app);
    server.channels.renew(&"1".into(), app.as_ref());
}

#[test]
fn a_failed_look_up_makes_the_client_reconnect_later() {
    let (server, _told) = server(app());
    let mut client = Client::upgrade(tcp(server.address), "/app/other?protocol=7");
    let (events, end) = client.rest();
    assert_eq!(events[0]["event"], "pusher:error");
    // With a code from 4100 to 4199 clients wait before they reconnect; from 4200 on they would not.
    assert_eq!((events[0]["data"]["code"].as_u64(), end), (Some(4100), End::Closed(4100)));
    let mut stream = tcp(server.address);
    std::io::Write::write_all(
        &mut stream,
        b"GET /app/other/sse?channels=a HTTP/1.1\r\nHost: a\r\n\r\n",
    )
    .unwrap();
    assert!(super::kit::head(&mut stream).starts_with("HTTP/1.1 503 "));
}

#[test]
fn a_removed_application_closes_all_its_sockets_and_no_others() {
    let (server, told) = server(app());
    // More sockets than one turn of an event loop checks.
    let mut clients: Vec<Client> = (0..2500).map(|_| server.connect()).collect();
    change(&server, &told, None);
    for client in &mut clients {
        assert_eq!(client.rest().1, End::Closed(4001));
    }
    change(&server, &told, Some(App { id: "2".into(), ..app() }));
    let mut other = server.subscriber("news");
    server.channels.renew(&"1".into(), None);
    server.publish("news", "still here");
    assert_eq!(other.data(), "still here");
}

#[test]
fn a_changed_application_applies_to_its_open_sockets() {
    let (server, told) = server(app());
    let mut client = server.subscriber("news");
    let mut limits = app().limits;
    limits.message = 100;
    limits.subscriptions = 1;
    change(&server, &told, Some(App { limits, ..app() }));
    let mut subscribe = || {
        client.say(r#"{"event":"pusher:subscribe","data":{"channel":"more"}}"#);
        let event = client.event()["event"].clone();
        client.say(r#"{"event":"pusher:unsubscribe","data":{"channel":"more"}}"#);
        event
    };
    eventually("a second subscription is one too many", PATIENCE, || {
        subscribe() == "pusher:subscription_error"
    });
    server.publish("news", "on it goes");
    assert_eq!(client.data(), "on it goes");
    client.say(&format!(r#"{{"event":"pusher:ping","data":"{}"}}"#, "x".repeat(100)));
    assert_eq!(client.rest().1, End::Closed(1009));

    let mut rights = app().rights;
    rights.enabled = false;
    let mut client = server.connect();
    change(&server, &told, Some(App { rights, ..app() }));
    assert_eq!(client.rest().1, End::Closed(4003));
    change(&server, &told, Some(app()));
    let mut client = server.connect();
    change(&server, &told, Some(App { key: "other".into(), ..app() }));
    assert_eq!(client.rest().1, End::Closed(4001));
}
