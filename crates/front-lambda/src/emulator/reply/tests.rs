use super::*;

/// Status, fields and body of a response.
type Seen = (u16, Vec<(String, String)>, String);

fn made(integration: Integration, reply: &str) -> Result<Seen, BadReply> {
    let (head, body) = answer(integration, reply.as_bytes())?;
    let fields = head.headers.iter();
    let fields = fields.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    Ok((head.status.as_u16(), fields.collect(), String::from_utf8(body.to_vec()).unwrap()))
}

fn fields(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_rest_api_takes_both_kinds_of_headers_and_wants_no_other_key() {
    let reply = r#"{"statusCode":"201","headers":{"X-A":1,"Set-Cookie":"lost"},
        "multiValueHeaders":{"Set-Cookie":["a=1","b=2"]},"body":"aGk=","isBase64Encoded":true}"#;
    let expected = fields(&[
        ("x-a", "1"),
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
        ("content-type", "application/json"),
    ]);
    assert_eq!(made(Integration::ApiGatewayV1, reply), Ok((201, expected, "hi".into())));
    let bad = |reply| made(Integration::ApiGatewayV1, reply).unwrap_err().0;
    let unknown = r#"{"statusCode":200,"cookies":[]}"#;
    assert_eq!(bad(unknown), "malformed Lambda proxy response: unknown key `cookies`");
    assert_eq!(bad(r#""hello""#), "the reply is no JSON object");
    assert_eq!(bad(r#"{"statusCode":99}"#), "`statusCode` is no status: 99");
    assert_eq!(bad(r#"{"body":{}}"#), "`body` is no text");
    let broken = bad(r#"{"body":"*","isBase64Encoded":true}"#);
    assert!(broken.starts_with("`body` is no base64: "), "{broken}");
    assert!(bad("<html>").starts_with("the reply is no JSON: "));
}

#[test]
fn an_http_api_infers_missing_fields() {
    for integration in [Integration::ApiGatewayV2, Integration::FunctionUrl] {
        let json = || fields(&[("content-type", "application/json")]);
        assert_eq!(made(integration, r#"{"a":1}"#), Ok((200, json(), r#"{"a":1}"#.into())));
        assert_eq!(made(integration, r#""hello""#), Ok((200, json(), "hello".into())));
        assert_eq!(made(integration, "no json"), Ok((200, json(), "no json".into())));
        let reply = r#"{"statusCode":302,"headers":{"location":"/x","content-length":"9","connection":"close"},"cookies":["a=1","b=2"]}"#;
        let expected = fields(&[
            ("location", "/x"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
            ("content-type", "application/json"),
        ]);
        assert_eq!(made(integration, reply), Ok((302, expected, String::new())));
        let bad = made(integration, r#"{"statusCode":200,"headers":{"a b":"c"}}"#).unwrap_err();
        assert_eq!(bad.0, r#"the name of a header is not allowed: "a b""#);
        assert!(made(integration, r#"{"statusCode":200,"headers":{"a":"b\nc"}}"#).is_err());
    }
}

#[test]
fn a_load_balancer_wants_its_own_kind_of_headers_and_a_status() {
    let single =
        r#"{"statusCode":200,"statusDescription":"200 Fine","headers":{"a":"b"},"body":"x"}"#;
    let (head, _) = answer(Integration::Alb, single.as_bytes()).unwrap();
    assert_eq!(head.reason.as_deref(), Some("Fine"));
    let multi = r#"{"statusCode":200,"multiValueHeaders":{"a":["b","c"]}}"#;
    let expected = fields(&[("a", "b"), ("a", "c"), ("content-type", "application/octet-stream")]);
    assert_eq!(made(Integration::AlbMultiValue, multi), Ok((200, expected, String::new())));
    let bad = |integration, reply| made(integration, reply).unwrap_err().0;
    let wrong = "this target group requires `multiValueHeaders`, not `headers`";
    assert_eq!(bad(Integration::AlbMultiValue, single), wrong);
    let wrong = "this target group requires `headers`, not `multiValueHeaders`";
    assert_eq!(bad(Integration::Alb, multi), wrong);
    assert_eq!(bad(Integration::Alb, "{}"), "`statusCode` is missing");
    let large = format!(r#"{{"statusCode":200,"body":"{}"}}"#, "x".repeat(ALB_LIMIT + 1));
    let wrong = "1048577 bytes are more than the 1 MB of a load balancer";
    assert_eq!(bad(Integration::Alb, &large), wrong);
}

/// Compares each integration's error responses with their exact texts.
#[test]
fn each_integration_has_its_own_error_text() {
    let said = |refused: Refused, integration| {
        let answer = refused.answer(integration);
        (answer.status().as_u16(), String::from_utf8(answer.into_body().to_vec()).unwrap())
    };
    let statuses = |refused| {
        Integration::NAMES.iter().map(|(_, one)| said(refused, *one).0).collect::<Vec<_>>()
    };
    // function-url, apigw-v1, apigw-v2, alb, alb-multi
    assert_eq!(statuses(Refused::Failed), [502, 502, 500, 502, 502]);
    assert_eq!(statuses(Refused::TimedOut), [504, 504, 503, 502, 502]);
    assert_eq!(statuses(Refused::TooLarge), [413, 413, 413, 413, 413]);
    assert_eq!(statuses(Refused::Throttled), [429, 500, 503, 502, 502]);
    assert_eq!(
        said(Refused::Failed, Integration::ApiGatewayV1).1,
        r#"{"message": "Internal server error"}"#
    );
    assert_eq!(
        said(Refused::TooLarge, Integration::ApiGatewayV2).1,
        r#"{"message":"Request Entity Too Large"}"#
    );
    assert!(said(Refused::Failed, Integration::Alb).1.contains("<h1>502 Bad Gateway</h1>"));
}

proptest::proptest! {
    #[test]
    fn any_result_becomes_a_response_or_a_reason(reply in ".{0,200}") {
        for (_, integration) in Integration::NAMES {
            if let Err(BadReply(reason)) = answer(*integration, reply.as_bytes()) {
                proptest::prop_assert!(!reason.is_empty());
            }
        }
    }
}
