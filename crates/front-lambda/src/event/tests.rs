//! Tests events as AWS documents them, and invalid events.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn decoded(event: &Value) -> Result<Decoded, EventError> {
    decode(&Bytes::from(event.to_string()), Reading::default())
}

fn target(event: &Value) -> String {
    decoded(event).unwrap().parts.uri.to_string()
}

/// Returns an event of API Gateway, version 1.0, with `more` in it.
fn version_1(more: &Value) -> Value {
    with(
        json!({
            "resource": "/{proxy+}",
            "path": "/shop/cart",
            "httpMethod": "GET",
            "headers": {"Host": "api.example.com", "X-Forwarded-Proto": "https", "X-Forwarded-Port": "443"},
            "multiValueHeaders": {
                "Host": ["api.example.com"],
                "X-Forwarded-Proto": ["https"],
                "X-Forwarded-Port": ["443"],
                "X-Twice": ["one", "two"],
            },
            "queryStringParameters": null,
            "multiValueQueryStringParameters": null,
            "requestContext": {
                "stage": "prod",
                "path": "/prod/shop/cart",
                "protocol": "HTTP/1.1",
                "identity": {"sourceIp": "203.0.113.7", "userAgent": "curl/8"},
            },
            "body": null,
            "isBase64Encoded": false,
        }),
        more,
    )
}

/// Returns an event of API Gateway, version 2.0.
fn version_2(more: &Value) -> Value {
    with(
        json!({
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": "/shop/cart",
            "rawQueryString": "",
            "headers": {"host": "api.example.com", "x-forwarded-proto": "https", "x-twice": "one,two"},
            "requestContext": {
                "domainName": "api.example.com",
                "stage": "$default",
                "http": {"method": "GET", "path": "/shop/cart", "protocol": "HTTP/1.1", "sourceIp": "203.0.113.7"},
            },
            "isBase64Encoded": false,
        }),
        more,
    )
}

fn load_balancer(more: &Value) -> Value {
    with(
        json!({
            "requestContext": {"elb": {"targetGroupArn": "arn:aws:elasticloadbalancing:x"}},
            "httpMethod": "GET",
            "path": "/shop/cart",
            "queryStringParameters": {},
            "headers": {"host": "lb.example.com", "x-forwarded-for": "10.9.9.9, 203.0.113.7", "x-forwarded-proto": "http", "x-forwarded-port": "8080"},
            "body": "",
            "isBase64Encoded": false,
        }),
        more,
    )
}

fn with(mut event: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        if value.is_string() && value == "ABSENT" {
            event.as_object_mut().unwrap().remove(name);
        } else {
            event[name] = value.clone();
        }
    }
    event
}

#[test]
fn each_sender_is_recognised_by_its_shape() {
    let shape = |event: &Value| decoded(event).unwrap().shape;
    assert_eq!(shape(&version_1(&json!({}))), Shape::ApiGateway1);
    assert_eq!(shape(&version_1(&json!({"version": "1.0"}))), Shape::ApiGateway1);
    assert_eq!(shape(&version_2(&json!({}))), Shape::ApiGateway2);
    let mut url = version_2(&json!({}));
    url["requestContext"]["domainName"] = "abc123.lambda-url.eu-west-1.on.aws".into();
    assert_eq!(shape(&url), Shape::FunctionUrl);
    assert_eq!(shape(&load_balancer(&json!({}))), Shape::LoadBalancer { multi_value: false });
    let multiple = json!({"headers": "ABSENT", "multiValueHeaders": {"host": ["lb.example.com"]}});
    assert_eq!(shape(&load_balancer(&multiple)), Shape::LoadBalancer { multi_value: true });
}

#[test]
fn client_scheme_and_host_come_from_the_gateway() {
    for event in [version_1(&json!({})), version_2(&json!({}))] {
        let decoded = decoded(&event).unwrap();
        assert_eq!(decoded.remote.to_string(), "203.0.113.7");
        assert_eq!(decoded.scheme, Scheme::Https);
        assert_eq!((&*decoded.server_name, decoded.server_port), ("api.example.com", 443));
    }
    let decoded = decoded(&load_balancer(&json!({}))).unwrap();
    // Addresses before it may have been written by the client.
    assert_eq!(decoded.remote.to_string(), "203.0.113.7");
    assert_eq!(decoded.scheme, Scheme::Http);
    assert_eq!((&*decoded.server_name, decoded.server_port), ("lb.example.com", 8080));
}

#[test]
fn gateway_decoded_paths_are_encoded_again() {
    let query =
        json!({"multiValueQueryStringParameters": {"q": ["a&b=c d", "é"], "list[]": ["1", "2"]}});
    assert_eq!(
        target(&version_1(&query)),
        "/shop/cart?list%5B%5D=1&list%5B%5D=2&q=a%26b%3Dc%20d&q=%C3%A9"
    );
    let last = json!({"queryStringParameters": {"q": "100%"}});
    assert_eq!(target(&version_1(&last)), "/shop/cart?q=100%25");
    let path = json!({"rawPath": "/caf\u{e9}/a b?c#d", "rawQueryString": "x=1"});
    assert_eq!(target(&version_2(&path)), "/caf%C3%A9/a%20b%3Fc%23d?x=1");
}

#[test]
fn undecoded_paths_stay_unchanged() {
    let raw = json!({"rawQueryString": "a=%20&b[]=1&c=?&a=2"});
    assert_eq!(target(&version_2(&raw)), "/shop/cart?a=%20&b[]=1&c=?&a=2");
    let query = json!({"queryStringParameters": {"q": "a%26b", "r": "%C3%A9+x"}, "path": "/a%2Fb"});
    assert_eq!(target(&load_balancer(&query)), "/a%2Fb?q=a%26b&r=%C3%A9+x");
    let multiple = json!({"multiValueQueryStringParameters": {"q": ["%31", "2"]}});
    assert_eq!(target(&load_balancer(&multiple)), "/shop/cart?q=%31&q=2");
}

/// Returns an event of API Gateway, version 2.0, of the stage `prod`.
fn staged(domain: &str, path: &str) -> Value {
    let mut event = version_2(&json!({"rawPath": path}));
    event["requestContext"]["stage"] = "prod".into();
    event["requestContext"]["domainName"] = domain.into();
    event
}

/// Returns the target, the stage and `X-Forwarded-Prefix`.
fn read_stage(event: &Value, keep_stage: bool) -> (String, Option<String>, Option<String>) {
    let reading = Reading { keep_stage, websocket: None };
    let decoded = decode(&Bytes::from(event.to_string()), reading).unwrap();
    let prefix = decoded.parts.headers.get("x-forwarded-prefix").cloned();
    let prefix = prefix.map(|prefix| prefix.to_str().unwrap().to_owned());
    (decoded.parts.uri.to_string(), decoded.stage, prefix)
}

#[test]
fn the_stage_prefix_is_hidden_from_the_application() {
    let read = |path: &str, keep_stage| {
        read_stage(&staged("f6g7h8i9j0.execute-api.eu-west-1.amazonaws.com", path), keep_stage)
    };
    let prod = || Some("/prod".to_owned());
    assert_eq!(read("/prod/users", false), ("/users".into(), prod(), prod()));
    assert_eq!(read("/prod/users", true), ("/prod/users".into(), prod(), None));
    assert_eq!(read("/prod", false), ("/".into(), prod(), prod()));
    assert_eq!(read("/products", false), ("/products".into(), None, None));
    let version_1 = version_1(&json!({}));
    assert_eq!(read_stage(&version_1, false), ("/shop/cart".into(), prod(), prod()));
    assert_eq!(read_stage(&version_1, true), ("/prod/shop/cart".into(), prod(), None));
}

#[test]
fn a_custom_domain_has_no_stage_prefix() {
    for keep_stage in [false, true] {
        // Version 2.0 has the stage in its paths, although the client's path had none.
        let read = |path| read_stage(&staged("api.example.com", path), keep_stage);
        assert_eq!(read("/prod/users"), ("/users".into(), None, None));
        assert_eq!(read("/prod"), ("/".into(), None, None));
        assert_eq!(read("/prod/prod/users"), ("/prod/users".into(), None, None));
        assert_eq!(read("/products"), ("/products".into(), None, None));
        // Version 1.0 has the client's path.
        let mut own = version_1(&json!({}));
        own["requestContext"]["path"] = "/shop/cart".into();
        assert_eq!(read_stage(&own, keep_stage), ("/shop/cart".into(), None, None));
    }
}

#[test]
fn cookies_and_repeated_fields_are_joined() {
    let decoded_2 = decoded(&version_2(&json!({"cookies": ["a=1", "b=2; c"]}))).unwrap();
    assert_eq!(decoded_2.parts.headers["cookie"], "a=1; b=2; c");
    assert_eq!(decoded_2.parts.headers["x-twice"], "one,two");
    let decoded_1 = decoded(&version_1(&json!({}))).unwrap();
    let twice: Vec<_> = decoded_1.parts.headers.get_all("x-twice").iter().collect();
    assert_eq!(twice, ["one", "two"]);
}

#[test]
fn a_body_gets_a_length_and_a_default_type() {
    let text = decoded(&version_2(&json!({"body": "a=1&b=\u{fc}"}))).unwrap();
    assert_eq!(text.body, "a=1&b=\u{fc}");
    assert_eq!(text.parts.headers["content-length"], "8");
    assert_eq!(text.parts.headers["content-type"], "application/x-www-form-urlencoded");
    let binary = json!({"body": "AP8=", "isBase64Encoded": true, "headers": {"content-type": "image/png", "content-length": "4"}});
    let binary = decoded(&version_2(&binary)).unwrap();
    assert_eq!(binary.body, [0, 255].as_slice());
    assert_eq!(binary.parts.headers["content-length"], "2");
    assert_eq!(binary.parts.headers["content-type"], "image/png");
    let none = decoded(&version_1(&json!({}))).unwrap();
    assert!(none.body.is_empty());
    assert!(!none.parts.headers.contains_key("content-type"));
    assert!(!none.parts.headers.contains_key("content-length"));
}

#[test]
fn invalid_base64_bodies_are_rejected() {
    let event = version_2(&json!({"body": "not base64!", "isBase64Encoded": true}));
    assert!(matches!(decoded(&event), Err(EventError::Base64(_))));
}

#[test]
fn events_that_are_no_requests_are_named() {
    for (event, name) in [
        (json!({"Records": [{"eventSource": "aws:sqs", "body": "x"}]}), "an event of aws:sqs"),
        (json!({"Records": [{"EventSource": "aws:sns"}]}), "an event of aws:sns"),
        (
            json!({"version": "0", "detail-type": "Scheduled Event", "detail": {}}),
            "an event of EventBridge",
        ),
        (
            json!({"requestContext": {"connectionId": "x=", "routeKey": "$connect"}}),
            "an event of an API Gateway WebSocket",
        ),
        (json!({"headers": 7}), "an event of another kind"),
        (json!([1, 2]), "an event of another kind"),
        (json!({}), "an event of another kind"),
        (json!("text"), "an event of another kind"),
    ] {
        match decoded(&event) {
            Err(EventError::Shape(found)) => assert_eq!(found, name, "{event}"),
            other => panic!("{event}: {other:?}"),
        }
    }
}

#[test]
fn invalid_or_endlessly_nested_json_is_rejected() {
    for text in ["", "{", "{\"version\": \"2.0\"", "\u{0}", "nul"] {
        let event = Bytes::from(text);
        assert!(
            matches!(decode(&event, Reading::default()), Err(EventError::Unreadable(_))),
            "{text}"
        );
    }
    let deep = format!("{{\"headers\":{}1{}}}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    assert!(decode(&Bytes::from(deep), Reading::default()).is_err());
}

#[test]
fn only_warming_events_are_warmers() {
    assert!(is_warmer(br#"{"warmer": true}"#));
    assert!(!is_warmer(br#"{"warmer": false}"#));
    assert!(!is_warmer(br#"{"path": "/"}"#));
    assert!(!is_warmer(b"[]"));
}

/// Returns a reply as JSON.
fn replied(shape: Shape, headers: &[(&str, &str)], body: &[u8]) -> Value {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name: HeaderName = name.parse().unwrap();
        map.append(name, HeaderValue::from_str(value).unwrap());
    }
    let mut out = Vec::new();
    Reply { status: http::StatusCode::CREATED, headers: &map }.write(&mut out, shape, body);
    serde_json::from_slice(&out).unwrap()
}

const FIELDS: &[(&str, &str)] = &[
    ("content-type", "text/html; charset=UTF-8"),
    ("set-cookie", "a=1"),
    ("set-cookie", "b=2"),
    ("x-twice", "one"),
    ("x-twice", "two"),
    ("connection", "close"),
    ("content-length", "5"),
];

#[test]
fn each_sender_gets_the_reply_that_it_expects() {
    assert_eq!(
        replied(Shape::ApiGateway1, FIELDS, b"caf\xc3\xa9"),
        json!({
            "statusCode": 201,
            "multiValueHeaders": {
                "content-type": ["text/html; charset=UTF-8"],
                "set-cookie": ["a=1", "b=2"],
                "x-twice": ["one", "two"],
            },
            "isBase64Encoded": false,
            "body": "caf\u{e9}",
        })
    );
    for shape in [Shape::ApiGateway2, Shape::FunctionUrl] {
        assert_eq!(
            replied(shape, FIELDS, b"x"),
            json!({
                "statusCode": 201,
                "headers": {"content-type": "text/html; charset=UTF-8", "x-twice": "one, two"},
                "cookies": ["a=1", "b=2"],
                "isBase64Encoded": false,
                "body": "x",
            })
        );
    }
    assert_eq!(
        replied(Shape::LoadBalancer { multi_value: false }, FIELDS, b"x"),
        json!({
            "statusCode": 201,
            "statusDescription": "201 Created",
            "headers": {
                "content-type": "text/html; charset=UTF-8",
                "set-cookie": "a=1",
                "Set-cookie": "b=2",
                "x-twice": "one, two",
            },
            "isBase64Encoded": false,
            "body": "x",
        })
    );
    let multiple = replied(Shape::LoadBalancer { multi_value: true }, FIELDS, b"x");
    assert_eq!(multiple["multiValueHeaders"]["set-cookie"], json!(["a=1", "b=2"]));
    assert_eq!(multiple["headers"], Value::Null);
}

#[test]
fn binary_response_bodies_are_base64() {
    let reply = |fields: &[(&str, &str)], body: &[u8]| {
        let reply = replied(Shape::FunctionUrl, fields, body);
        (reply["isBase64Encoded"].as_bool().unwrap(), reply["body"].as_str().unwrap().to_owned())
    };
    assert_eq!(reply(&[("content-type", "image/png")], b"text"), (true, "dGV4dA==".into()));
    assert_eq!(reply(&[("content-type", "text/plain")], b"\xff\xfe"), (true, "//4=".into()));
    let gzip = [("content-type", "text/html"), ("content-encoding", "gzip")];
    assert_eq!(reply(&gzip, b"text"), (true, "dGV4dA==".into()));
    assert_eq!(reply(&[("content-type", "application/vnd.api+json")], b"{}"), (false, "{}".into()));
    assert_eq!(reply(&[], b""), (false, String::new()));
    assert_eq!(reply(&[("content-type", "image/png")], b""), (true, String::new()));
}

#[test]
fn a_streamed_answer_begins_with_its_head_and_eight_nuls() {
    let headers = HeaderMap::new();
    let mut out = Vec::new();
    let reply = Reply { status: http::StatusCode::OK, headers: &headers };
    reply.write_prelude(&mut out, Shape::FunctionUrl);
    assert_eq!(out, b"{\"statusCode\":200,\"headers\":{}}\0\0\0\0\0\0\0\0");
}

proptest! {
    #[test]
    fn no_event_causes_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(decode(&Bytes::from(bytes), Reading::default()));
    }

    #[test]
    fn any_path_and_query_reach_php(path in "\\PC{0,30}", name in "\\PC{1,10}", value in "\\PC{0,20}") {
        let query = json!({ name.as_str(): [value.as_str()] });
        let event = version_1(&json!({"path": format!("/{path}"), "multiValueQueryStringParameters": query}));
        let decoded = decoded(&event).unwrap();
        let sent = decoded.parts.uri.query().unwrap_or_default();
        let (name_sent, value_sent) = sent.split_once('=').unwrap();
        prop_assert_eq!(unescape(name_sent), name);
        prop_assert_eq!(unescape(value_sent), value);
        // What looked like an escape before still does, because gateways do not distinguish.
        if !path.contains('%') {
            prop_assert_eq!(unescape(decoded.parts.uri.path()), format!("/{path}"));
        }
    }

    #[test]
    fn a_body_arrives_as_php_wrote_it(body in proptest::collection::vec(any::<u8>(), 0..200), text in any::<bool>()) {
        let kind = if text { "text/plain" } else { "application/octet-stream" };
        let reply = replied(Shape::ApiGateway2, &[("content-type", kind)], &body);
        let sent = reply["body"].as_str().unwrap();
        let arrived = if reply["isBase64Encoded"].as_bool().unwrap() {
            STANDARD.decode(sent).unwrap()
        } else {
            sent.as_bytes().to_vec()
        };
        prop_assert_eq!(arrived, body);
    }
}

fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next().unwrap(), rest.next().unwrap()];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// Returns an event of a WebSocket with `more` in its context.
fn socket(kind: &str, more: &Value, body: &Value) -> Value {
    let context = json!({
        "routeKey": "$default", "eventType": kind, "connectionId": "L0SM9cOFvHcCIhw=", "stage": "prod",
        "domainName": "abc.execute-api.eu-west-1.amazonaws.com", "apiId": "abc", "requestTimeEpoch": 1,
        "identity": {"sourceIp": "203.0.113.7"},
    });
    let context = with(context, more);
    with(json!({"requestContext": context, "isBase64Encoded": false}), body)
}

#[test]
fn events_of_websockets_are_the_requests_that_serve_makes_of_its_own() {
    let reading = Reading { keep_stage: false, websocket: Some("/chat") };
    let read = |event: &Value| decode(&Bytes::from(event.to_string()), reading).unwrap();
    let variables = |decoded: &Decoded| {
        let all = decoded.variables.iter();
        all.map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value)))
            .collect::<Vec<_>>()
    };
    let connect = json!({
        "headers": {"Host": "abc.execute-api.eu-west-1.amazonaws.com", "Cookie": "a=1"},
        "multiValueHeaders": {"Host": ["abc.execute-api.eu-west-1.amazonaws.com"], "Cookie": ["a=1"]},
        "queryStringParameters": {"name": "ann b"},
        "multiValueQueryStringParameters": {"name": ["ann b"]},
    });
    let decoded = read(&socket("CONNECT", &json!({"routeKey": "$connect"}), &connect));
    assert_eq!((decoded.parts.method.as_str(), decoded.shape), ("POST", Shape::WebSocket));
    assert_eq!(decoded.parts.uri, "/chat?name=ann%20b");
    assert_eq!(decoded.parts.headers[COOKIE], "a=1");
    assert_eq!(
        variables(&decoded),
        ["HEARTH_SOCKET_ID=L0SM9cOFvHcCIhw=", "HEARTH_SOCKET_EVENT=connect"]
    );

    let decoded = read(&socket("MESSAGE", &json!({}), &json!({"body": "gr\u{fc}\u{df}e"})));
    assert_eq!(decoded.body, "gr\u{fc}\u{df}e".as_bytes());
    assert_eq!(decoded.parts.headers[CONTENT_TYPE], "text/plain; charset=utf-8");
    assert_eq!(variables(&decoded)[1..], ["HEARTH_SOCKET_EVENT=message", "HEARTH_SOCKET_BINARY=0"]);
    let mut out = Vec::new();
    let headers = HeaderMap::new();
    Reply { status: http::StatusCode::OK, headers: &headers }.write(&mut out, decoded.shape, b"hi");
    let reply: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((&reply["statusCode"], &reply["body"]), (&json!(200), &json!("hi")));

    let ended = json!({"routeKey": "$disconnect", "disconnectStatusCode": 1001, "disconnectReason": "Going away"});
    let decoded = read(&socket("DISCONNECT", &ended, &json!({})));
    let expected =
        ["HEARTH_SOCKET_EVENT=close", "HEARTH_SOCKET_CODE=1001", "HEARTH_SOCKET_REASON=Going away"];
    assert_eq!(variables(&decoded)[1..], expected);

    // Without a path for them, they are refused as before.
    let event = Bytes::from(socket("MESSAGE", &json!({}), &json!({})).to_string());
    let error = decode(&event, Reading::default()).unwrap_err();
    assert!(error.to_string().contains("API Gateway WebSocket"), "{error}");
}
