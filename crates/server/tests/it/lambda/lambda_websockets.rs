//! Events of API Gateway's WebSockets where the front controller waits for its requests.

use serde_json::{Value, json};
use testkit::eventually;

use crate::hearth::{LIMIT, Site, each_isolating};
use crate::lambda::{Lambda, body, get};

/// Answers with its process, and refuses connections of `?refuse`.
const HANDLER: &str = "if (isset($_GET['refuse'])) { http_response_code(403); } \
                       echo 'handler ', $_SERVER['HEARTH_SOCKET_EVENT'] ?? '-', ' ', file_get_contents('php://input');";
const FRONT: &str = "<?php hearth_await_request(); echo 'front ', $_SERVER['REQUEST_URI'];";

fn event(kind: &str, query: &Value, message: &Value) -> Value {
    json!({
        "headers": {"Host": "ws.example.com"},
        "queryStringParameters": query,
        "requestContext": {
            "routeKey": "$default", "eventType": kind, "connectionId": "abc=", "domainName": "ws.example.com",
            "stage": "prod", "identity": {"sourceIp": "192.0.2.1"},
        },
        "body": message,
        "isBase64Encoded": false,
    })
}

#[test]
fn a_handler_of_websockets_is_run_beside_a_front_controller_that_waits() {
    let models = each_isolating();
    for (handler, waits) in [("<?php ", false), ("<?php hearth_await_request(); ", true)] {
        let site = Site::empty()
            .with_file("public/index.php", FRONT)
            .with_file("public/ws.php", &format!("{handler}{HANDLER}"));
        for model in &models {
            let model = model.name();
            let variables = [("HEARTH_WEBSOCKETS_ROUTES", "/ws.php")];
            let lambda = Lambda::start(site.path(), &["--model", model], &variables);
            let told = |event: &Value| lambda.invoke(event).json();
            for round in 0..3 {
                let refused = told(&event("CONNECT", &json!({"refuse": "1"}), &Value::Null));
                assert_eq!(refused["statusCode"], 403, "{model}, {waits}, {round}: {refused}");
                let answer = told(&event("MESSAGE", &Value::Null, &json!("hello")));
                assert_eq!(answer["body"], "handler message hello", "{model}, {waits}, {round}");
                assert_eq!(body(&lambda.invoke(&get("/x"))), "front /x", "{model}, {waits}");
                let ended = told(&event("DISCONNECT", &Value::Null, &Value::Null));
                assert_eq!(ended["body"], "handler close ", "{model}, {waits}, {round}");
            }
            assert!(lambda.stop().success(), "{model}");
        }
    }
}

#[test]
fn a_handler_of_websockets_is_run_after_a_restore() {
    let site = Site::empty()
        .with_file("public/index.php", FRONT)
        .with_file("public/ws.php", &format!("<?php {HANDLER}"));
    let variables =
        [("HEARTH_WEBSOCKETS_ROUTES", "/ws.php"), ("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start")];
    let lambda = Lambda::start(site.path(), &["--model", "fork"], &variables);
    eventually("it waits to be restored", LIMIT, || lambda.api.restore_asked());
    lambda.api.restore();
    for _ in 0..2 {
        let answer = lambda.invoke(&event("MESSAGE", &Value::Null, &json!("hello"))).json();
        assert_eq!(answer["body"], "handler message hello");
        assert_eq!(body(&lambda.invoke(&get("/x"))), "front /x");
    }
    assert!(lambda.stop().success());
}
