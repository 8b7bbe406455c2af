//! Converts HTTP requests to the events of API Gateway, of a Function URL and of an Application Load Balancer, as
//! documented by AWS.
//!
//! Invariants
//! - Pure: takes a request and the emulator's state, returns JSON.
//! - Requests that a real integration rejects for their size are rejected with the same status and text.
//!
//! Two differences are intended, so that links work in a browser: the scheme in `X-Forwarded-Proto` is the emulator's
//! own, and paths have no stage prefix, as behind a custom domain.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, COOKIE, HOST, HeaderMap, HeaderName};
use http::request::Parts;
use serde_json::{Map, Value, json};

use super::options::Function;
use super::reply::Refused;
use super::time::{common_log, epoch_milliseconds};

/// The integration through which an HTTP request reaches the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integration {
    /// A REST API of API Gateway: payload version 1.0.
    ApiGatewayV1,
    /// An HTTP API of API Gateway: payload version 2.0.
    ApiGatewayV2,
    /// A Function URL.
    FunctionUrl,
    /// An Application Load Balancer whose target group sends single values.
    Alb,
    /// An Application Load Balancer whose target group sends multi-value headers and queries.
    AlbMultiValue,
}

impl Integration {
    /// All integrations by name.
    pub const NAMES: &[(&str, Self)] = &[
        ("function-url", Self::FunctionUrl),
        ("apigw-v1", Self::ApiGatewayV1),
        ("apigw-v2", Self::ApiGatewayV2),
        ("alb", Self::Alb),
        ("alb-multi", Self::AlbMultiValue),
    ];

    /// Returns how long it waits for the function before it responds with an error; `None` for as long as the
    /// function may take.
    pub(super) fn patience(self) -> Option<Duration> {
        match self {
            Self::ApiGatewayV1 => Some(Duration::from_secs(29)),
            Self::ApiGatewayV2 => Some(Duration::from_secs(30)),
            Self::FunctionUrl | Self::Alb | Self::AlbMultiValue => None,
        }
    }

    /// Returns the maximum size of a request body in bytes.
    pub(super) fn body_limit(self) -> usize {
        match self {
            Self::ApiGatewayV1 | Self::ApiGatewayV2 => 10 << 20,
            Self::FunctionUrl => 6 << 20,
            Self::Alb | Self::AlbMultiValue => 1 << 20,
        }
    }

    /// Returns the maximum size of a request head: all field names and values, in bytes.
    pub(super) fn head_limit(self) -> Option<usize> {
        matches!(self, Self::ApiGatewayV1 | Self::ApiGatewayV2).then_some(10_240)
    }

    /// Returns whether it can stream responses.
    pub(super) fn can_stream(self) -> bool {
        matches!(self, Self::ApiGatewayV1 | Self::FunctionUrl)
    }

    /// Returns whether it is an Application Load Balancer of either kind.
    pub(super) fn is_alb(self) -> bool {
        matches!(self, Self::Alb | Self::AlbMultiValue)
    }
}

impl fmt::Display for Integration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, known)| known == self).map(|(name, _)| *name);
        f.write_str(name.expect("every integration has a name"))
    }
}

/// The error for an unknown name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such integration")]
pub struct UnknownIntegration;

impl FromStr for Integration {
    type Err = UnknownIntegration;

    fn from_str(name: &str) -> Result<Self, UnknownIntegration> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, integration)| *integration).ok_or(UnknownIntegration)
    }
}

/// The content of an event besides the request.
#[derive(Clone, Debug)]
pub(super) struct Context<'a> {
    pub(super) function: &'a Function,
    pub(super) request_id: &'a str,
    pub(super) trace_id: &'a str,
    pub(super) remote: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) now: SystemTime,
}

/// Hop-by-hop fields, which are not forwarded (RFC 9110, 7.6.1).
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Returns whether a field belongs to the connection, not to the message.
pub(super) fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(&name.as_str())
}

/// Returns the event of a request.
pub(super) fn event(
    integration: Integration,
    request: &Parts,
    body: &[u8],
    context: &Context<'_>,
) -> Result<Value, Refused> {
    let size: usize =
        request.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if integration.head_limit().is_some_and(|limit| size > limit) {
        return Err(Refused::HeadTooLarge);
    }
    let headers = forwarded(&request.headers, context);
    Ok(match integration {
        Integration::ApiGatewayV1 => version_1(request, &headers, body, context),
        Integration::ApiGatewayV2 => version_2(request, &headers, body, context, "execute-api"),
        Integration::FunctionUrl => version_2(request, &headers, body, context, "lambda-url"),
        Integration::Alb => alb(request, &headers, body, context, false),
        Integration::AlbMultiValue => alb(request, &headers, body, context, true),
    })
}

/// Returns the fields of the message, with those that a load balancer adds.
fn forwarded(headers: &HeaderMap, context: &Context<'_>) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = headers
        .iter()
        .filter(|(name, _)| !is_hop_by_hop(name) && !is_forwarded(name))
        .map(|(name, value)| (name.as_str().to_owned(), latin1(value.as_bytes())))
        .collect();
    let before = headers.get("x-forwarded-for").map(|value| latin1(value.as_bytes()));
    let remote = context.remote.ip().to_string();
    let addresses = match before {
        Some(before) => format!("{before}, {remote}"),
        None => remote,
    };
    fields.push(("x-amzn-trace-id".into(), context.trace_id.into()));
    fields.push(("x-forwarded-for".into(), addresses));
    fields.push(("x-forwarded-port".into(), context.local.port().to_string()));
    fields.push(("x-forwarded-proto".into(), "http".into()));
    fields
}

fn is_forwarded(name: &HeaderName) -> bool {
    let set = ["x-amzn-trace-id", "x-forwarded-for", "x-forwarded-port", "x-forwarded-proto"];
    set.contains(&name.as_str())
}

/// Converts a field value, which has bytes (RFC 9110, 5.5), to JSON characters.
fn latin1(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes)
        .map_or_else(|_| bytes.iter().copied().map(char::from).collect(), str::to_owned)
}

/// Formats a name like HTTP/1.1 clients, as a REST API does: `User-Agent`.
fn capitals(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| {
            first.to_ascii_uppercase().to_string() + letters.as_str()
        })
    });
    words.collect::<Vec<_>>().join("-")
}

fn host(request: &Parts, context: &Context<'_>) -> String {
    let named = request.headers.get(HOST).map(|host| latin1(host.as_bytes()));
    named.unwrap_or_else(|| context.local.to_string())
}

fn user_agent(headers: &[(String, String)]) -> Option<&str> {
    headers.iter().find(|(name, _)| name == "user-agent").map(|(_, value)| value.as_str())
}

/// Returns the last value of each name.
fn single<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Map<String, Value> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
}

/// Returns all values of each name, in order.
fn multi<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Map<String, Value> {
    let mut all = Map::new();
    for (name, value) in pairs {
        let values = all.entry(name).or_insert_with(|| Value::Array(Vec::new()));
        values.as_array_mut().expect("only arrays are put there").push(value.into());
    }
    all
}

fn borrowed(pairs: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}

fn or_null(map: Map<String, Value>) -> Value {
    if map.is_empty() { Value::Null } else { Value::Object(map) }
}

/// Splits `a=1&b` into pairs, without decoding.
fn raw_query(query: &str) -> Vec<(&str, &str)> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').unwrap_or((part, ""))).collect()
}

fn decoded_query(query: &str) -> Vec<(String, String)> {
    let pairs = raw_query(query).into_iter();
    pairs.map(|(name, value)| (form_decoded(name), form_decoded(value))).collect()
}

/// Decodes `%20` and `+` (URL standard, application/x-www-form-urlencoded).
fn form_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut left = text.as_bytes();
    while let Some((&first, rest)) = left.split_first() {
        left = rest;
        match (first, rest) {
            (b'+', _) => bytes.push(b' '),
            (b'%', [high, low, after @ ..]) => {
                let digits = (char::from(*high).to_digit(16), char::from(*low).to_digit(16));
                if let (Some(high), Some(low)) = digits {
                    bytes.push(u8::try_from(high * 16 + low).expect("two digits make a byte"));
                    left = after;
                } else {
                    bytes.push(b'%');
                }
            }
            _ => bytes.push(first),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the body, and whether it is in base64.
fn body_value(body: &[u8], as_text: bool) -> (String, bool) {
    match std::str::from_utf8(body) {
        Ok(text) if as_text => (text.to_owned(), false),
        _ => (STANDARD.encode(body), true),
    }
}

/// Returns whether HTTP APIs, Function URLs and load balancers treat the body as text; everything else is sent in
/// base64.
fn is_text(headers: &HeaderMap) -> bool {
    let value = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = value(CONTENT_TYPE).split(';').next().unwrap_or_default();
    let media_type = media_type.trim().to_ascii_lowercase();
    value(CONTENT_ENCODING).is_empty()
        && (media_type.starts_with("text/")
            || ["application/json", "application/javascript", "application/xml"]
                .contains(&media_type.as_str()))
}

/// Builds an event of version 1.0. Docs: "Input format of a Lambda function for proxy integration" of API Gateway.
fn version_1(
    request: &Parts,
    headers: &[(String, String)],
    body: &[u8],
    context: &Context<'_>,
) -> Value {
    let headers: Vec<(String, String)> =
        headers.iter().map(|(name, value)| (capitals(name), value.clone())).collect();
    let query = decoded_query(request.uri.query().unwrap_or_default());
    let path = request.uri.path();
    let proxy = path.trim_start_matches('/');
    let (resource, parameters) = if proxy.is_empty() {
        ("/", Value::Null)
    } else {
        ("/{proxy+}", json!({ "proxy": proxy }))
    };
    // APIs that serve binary bodies have `*/*` among their binary media types; text stays readable here.
    let (text, encoded) = body_value(body, true);
    let domain = host(request, context);
    let agent = headers.iter().find(|(name, _)| name == "User-Agent").map(|(_, value)| value);
    json!({
        "resource": resource,
        "path": path,
        "httpMethod": request.method.as_str(),
        "headers": single(borrowed(&headers)),
        "multiValueHeaders": multi(borrowed(&headers)),
        "queryStringParameters": or_null(single(borrowed(&query))),
        "multiValueQueryStringParameters": or_null(multi(borrowed(&query))),
        "pathParameters": parameters,
        "stageVariables": null,
        "requestContext": {
            "accountId": Function::ACCOUNT,
            "apiId": "local",
            "domainName": domain,
            "domainPrefix": domain.split(['.', ':']).next(),
            "extendedRequestId": context.request_id,
            "httpMethod": request.method.as_str(),
            "identity": {
                "accessKey": null,
                "accountId": null,
                "caller": null,
                "cognitoAuthenticationProvider": null,
                "cognitoAuthenticationType": null,
                "cognitoIdentityId": null,
                "cognitoIdentityPoolId": null,
                "principalOrgId": null,
                "sourceIp": context.remote.ip().to_string(),
                "user": null,
                "userAgent": agent,
                "userArn": null,
            },
            "path": path,
            "protocol": "HTTP/1.1",
            "requestId": context.request_id,
            "requestTime": common_log(context.now),
            "requestTimeEpoch": epoch_milliseconds(context.now),
            "resourceId": "local",
            "resourcePath": resource,
            "stage": "local",
        },
        "body": if body.is_empty() { Value::Null } else { text.into() },
        "isBase64Encoded": encoded && !body.is_empty(),
    })
}

/// Builds an event of version 2.0. Docs: "AWS Lambda proxy integrations for HTTP APIs", and "Request payload format"
/// of Function URLs, which have the same.
fn version_2(
    request: &Parts,
    headers: &[(String, String)],
    body: &[u8],
    context: &Context<'_>,
    service: &str,
) -> Value {
    let mut joined: Map<String, Value> = Map::new();
    let mut cookies: Vec<Value> = Vec::new();
    for (name, value) in borrowed(headers) {
        if name == COOKIE.as_str() {
            let each = value.split(';').map(str::trim).filter(|cookie| !cookie.is_empty());
            cookies.extend(each.map(Value::from));
        } else if let Some(Value::String(before)) = joined.get_mut(name) {
            before.push(',');
            before.push_str(value);
        } else {
            joined.insert(name.to_owned(), value.into());
        }
    }
    let raw_query = request.uri.query().unwrap_or_default();
    let mut query: Map<String, Value> = Map::new();
    for (name, value) in decoded_query(raw_query) {
        if let Some(Value::String(before)) = query.get_mut(&name) {
            before.push(',');
            before.push_str(&value);
        } else {
            query.insert(name, value.into());
        }
    }
    let id = "local";
    let path = request.uri.path();
    let mut event = json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": raw_query,
        "headers": joined,
        "requestContext": {
            "accountId": if service == "lambda-url" { "anonymous" } else { Function::ACCOUNT },
            "apiId": id,
            "domainName": format!("{id}.{service}.{}.{}", context.function.region, if service == "lambda-url" { "on.aws" } else { "amazonaws.com" }),
            "domainPrefix": id,
            "http": {
                "method": request.method.as_str(),
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": context.remote.ip().to_string(),
                "userAgent": user_agent(headers),
            },
            "requestId": context.request_id,
            "routeKey": "$default",
            "stage": "$default",
            "time": common_log(context.now),
            "timeEpoch": epoch_milliseconds(context.now),
        },
        "isBase64Encoded": false,
    });
    if !cookies.is_empty() {
        event["cookies"] = cookies.into();
    }
    if !query.is_empty() {
        event["queryStringParameters"] = query.into();
    }
    if !body.is_empty() {
        let (text, encoded) = body_value(body, is_text(&request.headers));
        event["body"] = text.into();
        event["isBase64Encoded"] = encoded.into();
    }
    event
}

/// Builds a load balancer's event. Docs: "Use Lambda functions as targets of an Application Load Balancer". Names and
/// values of the query are not decoded.
fn alb(
    request: &Parts,
    headers: &[(String, String)],
    body: &[u8],
    context: &Context<'_>,
    multi_value: bool,
) -> Value {
    let query = raw_query(request.uri.query().unwrap_or_default());
    let (text, encoded) = body_value(body, body.is_empty() || is_text(&request.headers));
    let group = format!(
        "arn:aws:elasticloadbalancing:{}:{}:targetgroup/local/0123456789abcdef",
        context.function.region,
        Function::ACCOUNT
    );
    let mut event = json!({
        "requestContext": { "elb": { "targetGroupArn": group } },
        "httpMethod": request.method.as_str(),
        "path": request.uri.path(),
        "body": text,
        "isBase64Encoded": encoded,
    });
    if multi_value {
        event["multiValueHeaders"] = multi(borrowed(headers)).into();
        event["multiValueQueryStringParameters"] = multi(query).into();
    } else {
        event["headers"] = single(borrowed(headers)).into();
        event["queryStringParameters"] = single(query).into();
    }
    event
}

#[cfg(test)]
mod tests;
