//! Calls of the HTTP API and clients' signatures: whatever comes, nothing passes that the secret has not signed.

#![no_main]

use channels::auth::{self, Call};
use channels::{App, Limits, Rights, Secret, UnixTime};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let app = App {
        id: "3".into(),
        key: "k".into(),
        secret: Secret::new("not among the inputs"),
        rights: Rights::default(),
        limits: Limits::default(),
        history: None,
    };
    // A line for the path, one for the query, the rest is the body.
    let mut parts = input.splitn(3, |byte| *byte == b'\n');
    let [path, query, body] =
        [parts.next(), parts.next(), parts.next()].map(Option::unwrap_or_default);
    let [path, query] = [path, query].map(String::from_utf8_lossy);
    let call = Call { method: "POST", path: &path, query: &query, body };
    assert!(auth::call(&app, &call, UnixTime::from_millis(1_353_088_179_000)).is_err());
    assert!(auth::subscription(&app, &path, &query, None, &query).is_err());
});
