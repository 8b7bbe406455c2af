use super::*;

fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> Parts {
    let mut request = http::Request::builder().method(method).uri(target);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn made(integration: Integration, request: &Parts, body: &[u8]) -> Result<Value, Refused> {
    let function = Function::default();
    let context = Context {
        function: &function,
        request_id: "id-1",
        trace_id: "Root=1-2-3",
        remote: "203.0.113.7:4242".parse().unwrap(),
        local: "127.0.0.1:9000".parse().unwrap(),
        now: SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777),
    };
    event(integration, request, body, &context)
}

const FIELDS: &[(&str, &str)] = &[
    ("host", "localhost:9000"),
    ("user-agent", "test"),
    ("accept", "a"),
    ("accept", "b"),
    ("cookie", "c=1; d=2"),
    ("connection", "keep-alive"),
    ("content-type", "text/plain"),
];

fn post() -> Parts {
    request("POST", "/a%20b?x=1&x=2%263&flag&s=a+b", FIELDS)
}

#[test]
fn a_rest_api_has_decoded_queries_and_capitals() {
    let event = made(Integration::ApiGatewayV1, &post(), b"hi").unwrap();
    assert_eq!(event["httpMethod"], "POST");
    assert_eq!(event["path"], "/a%20b");
    assert_eq!(event["headers"]["Accept"], "b");
    assert_eq!(event["multiValueHeaders"]["Accept"], json!(["a", "b"]));
    assert_eq!(event["headers"]["Cookie"], "c=1; d=2");
    assert_eq!(event["headers"].get("Connection"), None);
    assert_eq!(event["headers"]["X-Forwarded-For"], "203.0.113.7");
    assert_eq!(event["headers"]["X-Amzn-Trace-Id"], "Root=1-2-3");
    let query = json!({"x": ["1", "2&3"], "flag": [""], "s": ["a b"]});
    assert_eq!(event["multiValueQueryStringParameters"], query);
    assert_eq!(event["queryStringParameters"]["x"], "2&3");
    assert_eq!(event["requestContext"]["identity"]["sourceIp"], "203.0.113.7");
    assert_eq!(event["requestContext"]["requestTime"], "06/Nov/1994:08:49:37 +0000");
    assert_eq!((&event["body"], &event["isBase64Encoded"]), (&json!("hi"), &json!(false)));
    let bare = made(Integration::ApiGatewayV1, &request("GET", "/", &[]), b"").unwrap();
    assert_eq!(bare["resource"], "/");
    for absent in
        ["body", "queryStringParameters", "multiValueQueryStringParameters", "pathParameters"]
    {
        assert_eq!(bare[absent], Value::Null, "{absent}");
    }
    let binary = made(Integration::ApiGatewayV1, &post(), b"\xff").unwrap();
    assert_eq!((&binary["body"], &binary["isBase64Encoded"]), (&json!("/w=="), &json!(true)));
}

#[test]
fn an_http_api_and_a_function_url_keep_the_query_and_take_cookies_apart() {
    for (integration, domain) in [
        (Integration::ApiGatewayV2, "local.execute-api.us-east-1.amazonaws.com"),
        (Integration::FunctionUrl, "local.lambda-url.us-east-1.on.aws"),
    ] {
        let event = made(integration, &post(), b"hi").unwrap();
        assert_eq!(event["version"], "2.0");
        assert_eq!(event["rawPath"], "/a%20b");
        assert_eq!(event["rawQueryString"], "x=1&x=2%263&flag&s=a+b");
        let query = json!({"x": "1,2&3", "flag": "", "s": "a b"});
        assert_eq!(event["queryStringParameters"], query);
        assert_eq!(event["cookies"], json!(["c=1", "d=2"]));
        assert_eq!(event["headers"].get("cookie"), None);
        assert_eq!(event["headers"]["accept"], "a,b");
        assert_eq!(event["requestContext"]["domainName"], domain);
        assert_eq!(event["requestContext"]["http"]["userAgent"], "test");
        assert_eq!((&event["body"], &event["isBase64Encoded"]), (&json!("hi"), &json!(false)));
        let bare = made(integration, &request("GET", "/", &[]), b"").unwrap();
        for absent in ["body", "cookies", "queryStringParameters"] {
            assert_eq!(bare.get(absent), None, "{absent}");
        }
        assert_eq!(bare["rawQueryString"], "");
    }
}

#[test]
fn binary_bodies_are_base64() {
    let is_encoded = |fields: &[(&str, &str)]| {
        let request = request("POST", "/", fields);
        made(Integration::FunctionUrl, &request, b"a=1").unwrap()["isBase64Encoded"] == true
    };
    assert!(is_encoded(&[]));
    assert!(is_encoded(&[("content-type", "application/x-www-form-urlencoded")]));
    assert!(is_encoded(&[("content-type", "text/plain"), ("content-encoding", "gzip")]));
    assert!(!is_encoded(&[("content-type", "application/json; charset=utf-8")]));
    assert!(!is_encoded(&[("content-type", "TEXT/html")]));
}

#[test]
fn a_load_balancer_keeps_encoding_and_uses_one_of_two_forms() {
    let single = made(Integration::Alb, &post(), b"hi").unwrap();
    assert_eq!(single["queryStringParameters"], json!({"x": "2%263", "flag": "", "s": "a+b"}));
    assert_eq!(single["headers"]["accept"], "b");
    assert_eq!(single.get("multiValueHeaders"), None);
    let multi = made(Integration::AlbMultiValue, &post(), b"").unwrap();
    assert_eq!(multi["multiValueQueryStringParameters"]["x"], json!(["1", "2%263"]));
    assert_eq!(multi["multiValueHeaders"]["accept"], json!(["a", "b"]));
    assert_eq!(multi.get("headers"), None);
    assert_eq!((&multi["body"], &multi["isBase64Encoded"]), (&json!(""), &json!(false)));
    assert!(multi["requestContext"]["elb"]["targetGroupArn"].is_string());
}

#[test]
fn the_samples_have_the_keys_of_the_events_that_are_made() {
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    let full = request("POST", "/hello?name=Ada", FIELDS);
    for (name, integration) in Integration::NAMES {
        let sample: Value = serde_json::from_str(super::super::sample(name).unwrap().json).unwrap();
        let event = made(*integration, &full, b"hi").unwrap();
        assert_eq!(keys(&sample), keys(&event), "{name}");
        assert_eq!(keys(&sample["requestContext"]), keys(&event["requestContext"]), "{name}");
    }
}

#[test]
fn fields_of_more_than_10_kilobytes_are_refused_by_api_gateway_only() {
    let long = "x".repeat(11_000);
    let request = request("GET", "/", &[("x-long", &long)]);
    assert_eq!(made(Integration::ApiGatewayV2, &request, b""), Err(Refused::HeadTooLarge));
    assert!(made(Integration::FunctionUrl, &request, b"").is_ok());
}

#[test]
fn every_integration_is_found_by_its_name() {
    for (name, integration) in Integration::NAMES {
        assert_eq!(name.parse(), Ok(*integration));
        assert_eq!(integration.to_string(), *name);
    }
    assert_eq!("apigw".parse::<Integration>(), Err(UnknownIntegration));
}

proptest::proptest! {
    #[test]
    fn any_request_becomes_an_event(
        path in "/[ -~&&[^?# \"<>`{}\\\\^|]]{0,20}",
        query in "[a-zA-Z0-9%&=+;._-]{0,40}",
        value in proptest::collection::vec(0x20..=0xff_u8, 0..20),
        body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40),
    ) {
        let mut parts = request("POST", "/", &[]);
        let Ok(uri) = format!("{path}?{query}").parse() else { return Ok(()) };
        parts.uri = uri;
        if let Ok(value) = http::HeaderValue::from_bytes(&value) {
            parts.headers.insert("x-any", value);
        }
        for (_, integration) in Integration::NAMES {
            let event = made(*integration, &parts, &body).unwrap();
            let text = event["body"].as_str().unwrap_or_default();
            let sent = if event["isBase64Encoded"] == true {
                STANDARD.decode(text).unwrap()
            } else {
                text.as_bytes().to_vec()
            };
            proptest::prop_assert_eq!(sent, body.clone());
        }
    }
}
