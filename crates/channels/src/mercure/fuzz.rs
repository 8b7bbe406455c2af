//! The entry point of the fuzz target: everything that a client sends.

use std::time::Duration;

use super::authorization::{self, Unauthorized};
use super::selector::{self, Selector};
use super::token::Claims;
use super::update::Update;
use super::{Algorithm, Key, Options, Request};

/// Reads a line with a token, one with a query, and a form.
///
/// # Panics
/// If a token passes that the key has not signed, or an event has more than the fields of its update.
#[cfg_attr(test, expect(unreachable_pub, reason = "a fuzz target calls it"))]
pub fn fuzz(input: &[u8]) {
    let key = Key::new(Algorithm::HS256, "not among the inputs").expect("the key is not empty");
    let mut parts = input.splitn(3, |byte| *byte == b'\n').map(String::from_utf8_lossy);
    let [token, query, form] =
        [parts.next(), parts.next(), parts.next()].map(Option::unwrap_or_default);
    assert!(Claims::verify(&token, &key, 1).is_none(), "the token is not signed");
    // What is in a signed token is read as well.
    let _claims = Claims::read(token.as_bytes(), 1);

    let options = options(&key);
    let field = |name: &str| ["cookie", "authorization"].contains(&name).then_some(&*token);
    let request =
        Request { method: "GET", path: super::PATH, query: &query, field: &field, body: b"" };
    assert!(
        matches!(
            authorization::claims(&request, &options, Some(&key), 1),
            Ok(None) | Err(Unauthorized)
        ),
        "the token is not signed"
    );

    let Ok(mut update) = Update::read(&form) else { return };
    update.id.push('x');
    let message = format!(r#"{{"event":"update","data":{}}}"#, update.json());
    assert_eq!(Update::of_message(message.as_bytes()).as_ref(), Some(&update), "{message}");
    let event = update.event();
    let event = str::from_utf8(&event).expect("an event is text");
    let lines = event.split(['\r', '\n']).filter(|line| !line.is_empty());
    let fields = ["event: ", "retry: ", "id: ", "data: "];
    for line in lines {
        assert!(fields.iter().any(|field| line.starts_with(field)), "{event:?}");
    }
    assert_eq!(event.find("\n\n"), Some(event.len() - 2), "one event: {event:?}");

    let selectors: Vec<Selector> =
        crate::auth::parameters(&query).map(|(_, topic)| Selector::new(&topic)).collect();
    selector::any(&selectors, &update.topics);
    for topic in &update.topics {
        assert!(selector::any(&[Selector::new(topic)], std::slice::from_ref(topic)));
    }
}

/// Settings of a hub for tests.
pub(super) fn options(key: &Key) -> Options {
    Options {
        publisher: Some(key.clone()),
        subscriber: Some(key.clone()),
        anonymous: true,
        cookie: "mercureAuthorization".into(),
        publish_origins: vec!["https://example.com".into()],
        cors_origins: vec!["https://example.com".into()],
        subscriptions: false,
        heartbeat: Duration::ZERO,
        connections: 100,
        queue: 100,
        events: 10,
        memory: 1024 * 1024,
        age: Duration::from_mins(1),
    }
}
