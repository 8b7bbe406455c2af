//! Signatures of several applications that are named on the command line.

use channels::Secret;
use channels::auth::sign;
use serde_json::json;

use super::Client;
use crate::hearth::{Hearth, Serve, Site};

const LIST: &str = "1:one:sEcReT-a,2:two:sEcReT-b,3:three:sEcReT-c";

/// Subscribes to a private channel with a signature that `secret` made, and returns the server's event.
fn subscribe(hearth: &Hearth, key: &str, secret: &str) -> String {
    let mut client = Client::open(hearth, key);
    let (_, data) = client.next();
    let text = format!("{}:private-news", data["socket_id"].as_str().unwrap());
    let auth = format!("{key}:{}", sign(&Secret::new(secret), text.as_bytes()));
    let data = json!({"channel": "private-news", "auth": auth});
    client.send(&json!({"event": "pusher:subscribe", "data": data}));
    client.next().0
}

#[test]
fn the_first_rejected_signature_of_each_application_is_logged_with_its_id() {
    let site = Site::empty().with_file("public/index.html", "");
    let hearth = Serve::new(site.path()).args(&["--app", LIST]).start();
    for (key, secret) in [("one", "sEcReT-a"), ("two", "sEcReT-b"), ("three", "sEcReT-c")] {
        assert_eq!(subscribe(&hearth, key, secret), "pusher_internal:subscription_succeeded");
    }
    for key in ["one", "one", "three", "one", "three"] {
        assert_eq!(subscribe(&hearth, key, "sEcReT-b"), "pusher:subscription_error");
    }
    // A call of the HTTP API counts for its application, too.
    assert_eq!(hearth.get("/apps/3/channels").status, 401);
    assert_eq!(hearth.get("/apps/2/channels").status, 401);

    let rejected = hearth.log_line("call of the HTTP API");
    assert_eq!((&rejected["app"], &rejected["level"]), (&json!("2"), &json!("WARN")));
    let lines = hearth.log().lines();
    let ids: Vec<_> = lines
        .iter()
        .filter(|line| line.contains("signature rejected"))
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["app"].clone())
        .collect();
    assert_eq!(ids, ["1", "3", "2"]);
    assert!(!hearth.log().text().contains("sEcReT"), "the log shows a secret");
}
