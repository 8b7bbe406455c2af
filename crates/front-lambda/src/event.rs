//! Events of HTTP integrations: detects their shape, and converts them to requests. The shape determines the format
//! of the reply.
//!
//! Invariants
//! - Takes bytes, returns a request or an error: no I/O, no clock, and no input causes a panic. JSON nested deeper
//!   than 128 levels is rejected.
//! - Whatever the shape, PHP sees the request as the client sent it to the gateway: encoded where the gateway had
//!   decoded, joined where it had split.

mod raw;
mod reply;
mod target;
mod websocket;

use std::net::{IpAddr, Ipv4Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version};
use pool::Scheme;

use raw::{Event, Multiple, Other, Single, Text};
pub(crate) use reply::{Reply, write_json};

/// The sender of an event, which determines the reply's format.
/// <https://docs.aws.amazon.com/lambda/latest/dg/services-apigateway.html>,
/// <https://docs.aws.amazon.com/elasticloadbalancing/latest/application/lambda-functions.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// API Gateway, payload version 1.0: REST APIs, and HTTP APIs configured for it.
    ApiGateway1,
    /// API Gateway, payload version 2.0: HTTP APIs.
    ApiGateway2,
    /// A Function URL.
    FunctionUrl,
    /// An Application Load Balancer.
    LoadBalancer {
        /// The target group has multi-value headers enabled.
        multi_value: bool,
    },
    /// A WebSocket of API Gateway: connect, a message or disconnect.
    WebSocket,
}

/// The request that an event contains.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) shape: Shape,
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
    /// Address of the client, as the gateway saw it.
    pub(crate) remote: IpAddr,
    /// Scheme that the client used.
    pub(crate) scheme: Scheme,
    /// Requested host, without a port.
    pub(crate) server_name: String,
    /// Requested port.
    pub(crate) server_port: u16,
    /// The stage as a path (`/prod`), if the client's path began with it.
    pub(crate) stage: Option<String>,
    /// `requestContext`, as in the event.
    pub(crate) request_context: Bytes,
    /// Variables of a WebSocket's event, as `$_SERVER` has them in `hearth serve`.
    pub(crate) variables: Vec<(&'static str, Bytes)>,
}

/// Reasons why an event is not a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EventError {
    /// The text is not JSON, is nested too deeply, or has a wrong type.
    #[error("the event cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// The JSON is not from a known HTTP sender.
    #[error(
        "{0}, not an HTTP request of API Gateway, a Function URL or a load balancer: an HTTP application has no answer to it"
    )]
    Shape(String),
    /// `isBase64Encoded` is true and the body is not base64.
    #[error("the body of the event is no base64")]
    Base64(#[source] base64::DecodeError),
    /// A part of the request is not allowed by HTTP.
    #[error("the {0} of the event is none that HTTP allows")]
    Part(&'static str),
}

/// Settings for decoding requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading<'a> {
    /// The application's paths include the stage.
    pub(crate) keep_stage: bool,
    /// The path that handles events of WebSockets, if the application has one.
    pub(crate) websocket: Option<&'a str>,
}

/// Decodes the request that `event` contains.
pub(crate) fn decode(event: &Bytes, reading: Reading<'_>) -> Result<Decoded, EventError> {
    let raw: Event<'_> = match serde_json::from_slice(event) {
        Ok(raw) => raw,
        // A list, a number, or fields of other types: valid JSON, but not a request.
        Err(error) if error.is_data() => {
            serde_json::from_slice::<&serde_json::value::RawValue>(event)?;
            return Err(EventError::Shape(other(event)));
        }
        Err(error) => return Err(error.into()),
    };
    let not_http = || EventError::Shape(other(event));
    let context_text = raw.request_context.ok_or_else(not_http)?;
    let context: raw::RequestContext<'_> =
        serde_json::from_str(context_text.get()).map_err(|_other_shape| not_http())?;
    let version = raw.version.map_or("", serde_json::value::RawValue::get);
    let domain = context.domain_name.as_ref().map_or("", Text::as_ref);
    let socket = reading.websocket.filter(|_| context.connection_id.is_some());
    let shape = if socket.is_some() {
        Shape::WebSocket
    } else if context.elb.is_some() {
        Shape::LoadBalancer { multi_value: raw.multi_value_headers.is_some() }
    } else if version == "\"2.0\"" && context.http.is_some() {
        if domain.contains(".lambda-url.") { Shape::FunctionUrl } else { Shape::ApiGateway2 }
    } else if raw.http_method.is_some() && raw.path.is_some() {
        Shape::ApiGateway1
    } else {
        return Err(not_http());
    };
    let (path, stage) = match socket {
        Some(handler) => (handler, None),
        None => path(&raw, &context, shape, reading.keep_stage),
    };
    let method = match &context.http {
        _ if shape == Shape::WebSocket => "POST",
        Some(http) if shape.is_version_2() => http.method.as_ref(),
        _ => raw.http_method.as_ref().ok_or_else(not_http)?.as_ref(),
    };
    let mut uri = String::with_capacity(path.len() + 64);
    target::push_path(&mut uri, path);
    if shape.is_version_2() {
        let query = raw.raw_query_string.as_ref().map_or("", Text::as_ref);
        target::push_raw_query(&mut uri, query);
    } else {
        let multiple = raw.multi_value_query_string_parameters.as_ref();
        let decoded = matches!(shape, Shape::ApiGateway1 | Shape::WebSocket);
        target::push_pairs(&mut uri, multiple, raw.query_string_parameters.as_ref(), decoded);
    }

    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method =
        Method::from_bytes(method.as_bytes()).map_err(|_invalid| EventError::Part("method"))?;
    parts.uri = uri.parse().map_err(|_invalid| EventError::Part("path"))?;
    let protocol = context.http.as_ref().and_then(|http| http.protocol.as_ref());
    parts.version = match protocol.or(context.protocol.as_ref()).map(Text::as_ref) {
        Some("HTTP/2.0" | "HTTP/2") => Version::HTTP_2,
        Some("HTTP/1.0") => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    parts.headers = fields(raw.multi_value_headers.as_ref(), raw.headers.as_ref());
    let binary = raw.is_base64_encoded;
    let body = body(event, raw.body, binary)?;
    let variables = if shape == Shape::WebSocket {
        websocket::variables(&context, binary).ok_or_else(not_http)?
    } else {
        Vec::new()
    };
    let headers = &mut parts.headers;
    if let Some(cookies) = raw.cookies.filter(|cookies| !cookies.is_empty()) {
        let pieces: Vec<&str> = cookies.iter().map(Text::as_ref).collect();
        if let Ok(value) = HeaderValue::from_str(&pieces.join("; ")) {
            headers.insert(COOKIE, value);
        }
    }
    if !headers.contains_key(HOST)
        && let Ok(host) = HeaderValue::from_str(domain)
        && !domain.is_empty()
    {
        headers.insert(HOST, host);
    }
    if shape == Shape::WebSocket {
        headers.remove(CONTENT_TYPE);
    }
    if shape == Shape::WebSocket && !body.is_empty() {
        headers.insert(CONTENT_TYPE, websocket::content_type(binary));
    } else if !body.is_empty() {
        headers
            .entry(CONTENT_TYPE)
            .or_insert(HeaderValue::from_static("application/x-www-form-urlencoded"));
    }
    // The client's length was that of the gateway's body, before base64 and recoding.
    headers.remove(CONTENT_LENGTH);
    if !body.is_empty() {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    if let Some(stage) = stage.as_deref().filter(|_| !reading.keep_stage)
        && let Ok(prefix) = HeaderValue::from_str(stage)
    {
        headers.insert(HeaderName::from_static("x-forwarded-prefix"), prefix);
    }

    let source = context.http.as_ref().and_then(|http| http.source_ip.as_ref());
    let identity = context.identity.as_ref().and_then(|identity| identity.source_ip.as_ref());
    let remote = match source.or(identity) {
        Some(address) => address.as_ref().parse().ok(),
        None => forwarded_for(headers),
    };
    let scheme = match text(headers, "x-forwarded-proto") {
        "http" => Scheme::Http,
        _ => Scheme::Https,
    };
    let default_port = if scheme == Scheme::Https { 443 } else { 80 };
    let (host, port) = host(headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or(""));
    let server_port = text(headers, "x-forwarded-port").parse().ok().or(port);
    Ok(Decoded {
        shape,
        body,
        remote: remote.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        scheme,
        server_name: host.to_owned(),
        server_port: server_port.unwrap_or(default_port),
        stage,
        request_context: event.slice_ref(context_text.get().as_bytes()),
        variables,
        parts,
    })
}

/// Returns whether an event is `{"warmer": true}`, which tools send to keep an environment warm
/// (<https://bref.sh/docs/runtimes/http#cold-starts>).
pub(crate) fn is_warmer(event: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Warmer {
        warmer: bool,
    }
    // Such an event is short: a larger one is not parsed twice.
    event.len() < 1024 && serde_json::from_slice::<Warmer>(event).is_ok_and(|warmer| warmer.warmer)
}

impl Shape {
    /// Returns whether the payload version is 2.0: lower-case fields, separate cookies, unchanged path and query.
    pub(crate) fn is_version_2(self) -> bool {
        matches!(self, Self::ApiGateway2 | Self::FunctionUrl)
    }
}

/// Returns the path, and the stage if the client's path began with it.
fn path<'e>(
    raw: &'e Event<'_>,
    context: &'e raw::RequestContext<'_>,
    shape: Shape,
    keep_stage: bool,
) -> (&'e str, Option<String>) {
    let stage = context.stage.as_ref().map(Text::as_ref);
    let stage = stage.filter(|stage| !stage.is_empty() && *stage != "$default");
    let prefix = stage.map(|stage| format!("/{stage}"));
    let below = |path: &'e str| {
        let rest = path.strip_prefix(prefix.as_deref()?)?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    };
    match shape {
        Shape::ApiGateway2 => {
            let whole = raw.raw_path.as_ref().map_or("/", Text::as_ref);
            // AWS adds the stage on a custom domain too, where the client's path did not begin with it.
            let domain = context.domain_name.as_ref().map_or("", Text::as_ref);
            match below(whole) {
                Some(rest) if !domain.contains(".execute-api.") => (rest, None),
                Some(rest) => (if keep_stage { whole } else { rest }, prefix),
                None => (whole, None),
            }
        }
        Shape::ApiGateway1 => {
            let rest = raw.path.as_ref().map_or("/", Text::as_ref);
            // The default domain has the stage in its paths, a custom domain has not.
            let whole = context.path.as_ref().map_or(rest, Text::as_ref);
            if below(whole).is_some_and(|below| below == rest || (below.is_empty() && rest == "/"))
            {
                (if keep_stage { whole } else { rest }, prefix)
            } else {
                (rest, None)
            }
        }
        Shape::FunctionUrl => (raw.raw_path.as_ref().map_or("/", Text::as_ref), None),
        Shape::LoadBalancer { .. } | Shape::WebSocket => {
            (raw.path.as_ref().map_or("/", Text::as_ref), None)
        }
    }
}

/// Returns the header fields. Those that HTTP does not allow are dropped, because no client sent them.
fn fields(multiple: Option<&Multiple<'_>>, single: Option<&Single<'_>>) -> HeaderMap {
    let count = multiple.map_or(0, |pairs| pairs.0.len()).max(single.map_or(0, |one| one.0.len()));
    // One for each, and the synthesised ones.
    let mut map = HeaderMap::with_capacity(count + 6);
    let mut append = |name: &Text<'_>, value: &Text<'_>| {
        let name = HeaderName::from_bytes(name.as_ref().as_bytes());
        let value = HeaderValue::from_bytes(value.as_ref().as_bytes());
        if let (Ok(name), Ok(value)) = (name, value) {
            // Fields beyond the map's capacity are dropped.
            drop(map.try_append(name, value));
        }
    };
    match (multiple, single) {
        (Some(multiple), _) if !multiple.0.is_empty() => {
            for (name, values) in &multiple.0 {
                for value in values {
                    append(name, value);
                }
            }
        }
        (_, Some(single)) => single.0.iter().for_each(|(name, value)| append(name, value)),
        _ => {}
    }
    map
}

fn body(event: &Bytes, text: Option<Text<'_>>, base64: bool) -> Result<Bytes, EventError> {
    let Some(Text(text)) = text else { return Ok(Bytes::new()) };
    if base64 {
        let decoded = STANDARD.decode(text.as_bytes()).map_err(EventError::Base64)?;
        return Ok(Bytes::from(decoded));
    }
    Ok(match text {
        std::borrow::Cow::Borrowed(text) if !text.is_empty() => event.slice_ref(text.as_bytes()),
        std::borrow::Cow::Borrowed(_) => Bytes::new(),
        std::borrow::Cow::Owned(text) => Bytes::from(text),
    })
}

/// Returns the client of a load balancer, which appends the address that it saw, with the port if so configured.
fn forwarded_for(headers: &HeaderMap) -> Option<IpAddr> {
    let last = text(headers, "x-forwarded-for").rsplit(',').next().unwrap_or_default().trim();
    last.parse()
        .ok()
        .or_else(|| last.parse::<std::net::SocketAddr>().ok().map(|address| address.ip()))
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Splits an authority into host and port.
fn host(authority: &str) -> (&str, Option<u16>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
        _ => (authority, None),
    }
}

/// Describes another kind of event, as far as it can be recognised.
fn other(event: &[u8]) -> String {
    serde_json::from_slice::<Other<'_>>(event).unwrap_or_default().name()
}

#[cfg(fuzzing)]
pub(crate) mod fuzzing {
    use super::*;

    /// Decodes an event; if it is a request, encodes a reply in the same shape.
    pub fn event(bytes: &[u8]) {
        let event = Bytes::copy_from_slice(bytes);
        let _warm = is_warmer(bytes);
        for keep_stage in [false, true] {
            let websocket = keep_stage.then_some("/ws");
            let reading = Reading { keep_stage, websocket };
            let Ok(decoded) = decode(&event, reading) else { continue };
            let target = decoded.parts.uri.path_and_query().map_or("", |target| target.as_str());
            assert!(target.starts_with('/'), "{target}");
            // The client's fields are echoed, and for any of them the reply must be JSON.
            let reply = Reply { status: http::StatusCode::OK, headers: &decoded.parts.headers };
            let mut out = Vec::new();
            reply.write(&mut out, decoded.shape, &decoded.body);
            assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&out).is_ok());
        }
    }
}

#[cfg(test)]
mod tests;
