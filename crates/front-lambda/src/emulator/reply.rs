//! Converts a function's result to the HTTP response of an integration, and builds the integrations' own error
//! responses.
//!
//! Invariants
//! - Pure: takes JSON, returns head and body.
//! - A result that the real integration would not understand is a gateway error here too, with the reason in the
//!   developer's log.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, SET_COOKIE};
use http::{Response, StatusCode};
use serde_json::{Map, Value};

use super::Integration;
use super::integration::is_hop_by_hop;

/// Maximum size of a load balancer target's response in bytes.
const ALB_LIMIT: usize = 1 << 20;

/// The reason why a result is invalid, for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct BadReply(pub(super) String);

/// Status, reason and fields of a response.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) reason: Option<String>,
    pub(super) headers: HeaderMap,
}

impl Head {
    fn new(status: StatusCode) -> Self {
        Self { status, reason: None, headers: HeaderMap::new() }
    }

    /// Parses the prelude of a streamed body.
    pub(super) fn of_prelude(prelude: &Value) -> Result<Self, BadReply> {
        let prelude = object(prelude)?;
        let status = prelude.get("statusCode").map_or(Ok(StatusCode::OK), status)?;
        let mut head = Self::new(status);
        head.add_single(prelude)?;
        head.add_multi(prelude)?;
        head.add_cookies(prelude)?;
        Ok(head)
    }

    fn add(&mut self, name: &str, value: &Value) -> Result<(), BadReply> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            _ => return Err(BadReply(format!("the value of the header {name} is no text"))),
        };
        let wrong = |what: &str| BadReply(format!("{what} of a header is not allowed: {name:?}"));
        let name = HeaderName::try_from(name).map_err(|_invalid| wrong("the name"))?;
        let value = HeaderValue::try_from(text).map_err(|_invalid| wrong("the value"))?;
        // The length is that of the body as it is sent.
        if !is_hop_by_hop(&name) && name != CONTENT_LENGTH {
            self.headers.append(name, value);
        }
        Ok(())
    }

    fn add_single(&mut self, reply: &Map<String, Value>) -> Result<(), BadReply> {
        let Some(headers) = part(reply, "headers")? else { return Ok(()) };
        headers.iter().try_for_each(|(name, value)| self.add(name, value))
    }

    fn add_multi(&mut self, reply: &Map<String, Value>) -> Result<(), BadReply> {
        let Some(headers) = part(reply, "multiValueHeaders")? else { return Ok(()) };
        for (name, values) in headers {
            let values = values.as_array().ok_or_else(|| {
                BadReply(format!("multiValueHeaders: the values of {name} are no list"))
            })?;
            // A name in both lists is the same field; the multi-value list has all its values.
            if let Ok(name) = HeaderName::try_from(name.as_str()) {
                self.headers.remove(name);
            }
            values.iter().try_for_each(|value| self.add(name, value))?;
        }
        Ok(())
    }

    fn add_cookies(&mut self, reply: &Map<String, Value>) -> Result<(), BadReply> {
        let Some(cookies) = reply.get("cookies").filter(|cookies| !cookies.is_null()) else {
            return Ok(());
        };
        let cookies = cookies.as_array().ok_or_else(|| BadReply("`cookies` is no list".into()))?;
        cookies.iter().try_for_each(|cookie| self.add(SET_COOKIE.as_str(), cookie))
    }

    fn or_content_type(mut self, default: &'static str) -> Self {
        self.headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(default));
        self
    }

    /// Builds the response with this body.
    pub(super) fn with_body<B>(self, body: B) -> Response<B> {
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        if let Some(reason) = self
            .reason
            .and_then(|reason| hyper::ext::ReasonPhrase::try_from(reason.into_bytes()).ok())
        {
            response.extensions_mut().insert(reason);
        }
        response
    }
}

/// Converts what the function returned to the integration's HTTP response.
pub(super) fn answer(integration: Integration, reply: &[u8]) -> Result<(Head, Bytes), BadReply> {
    let parsed: Result<Value, _> = serde_json::from_slice(reply);
    match integration {
        Integration::ApiGatewayV1 => {
            let reply =
                parsed.map_err(|error| BadReply(format!("the reply is no JSON: {error}")))?;
            version_1(object(&reply)?)
        }
        Integration::ApiGatewayV2 | Integration::FunctionUrl => version_2(parsed.ok(), reply),
        Integration::Alb | Integration::AlbMultiValue => {
            let reply =
                parsed.map_err(|error| BadReply(format!("the reply is no JSON: {error}")))?;
            let multi_value = integration == Integration::AlbMultiValue;
            alb(object(&reply)?, multi_value)
        }
    }
}

/// Docs: "Output format of a Lambda function for proxy integration" of API Gateway.
fn version_1(reply: &Map<String, Value>) -> Result<(Head, Bytes), BadReply> {
    let allowed = ["statusCode", "headers", "multiValueHeaders", "body", "isBase64Encoded"];
    if let Some(other) = reply.keys().find(|key| !allowed.contains(&key.as_str())) {
        return Err(BadReply(format!("malformed Lambda proxy response: unknown key `{other}`")));
    }
    let mut head = Head::new(reply.get("statusCode").map_or(Ok(StatusCode::OK), status)?);
    head.add_single(reply)?;
    head.add_multi(reply)?;
    Ok((head.or_content_type("application/json"), body(reply)?))
}

/// Docs: "Lambda function response for format 2.0": without a status the whole result is the body.
fn version_2(parsed: Option<Value>, raw: &[u8]) -> Result<(Head, Bytes), BadReply> {
    let inferred =
        |body: Bytes| (Head::new(StatusCode::OK).or_content_type("application/json"), body);
    match parsed {
        Some(Value::Object(reply)) if reply.contains_key("statusCode") => {
            let mut head = Head::new(status(&reply["statusCode"])?);
            head.add_single(&reply)?;
            head.add_cookies(&reply)?;
            Ok((head.or_content_type("application/json"), body(&reply)?))
        }
        Some(Value::String(text)) => Ok(inferred(text.into())),
        Some(_) | None => Ok(inferred(Bytes::copy_from_slice(raw))),
    }
}

/// Docs: "Respond to the load balancer".
fn alb(reply: &Map<String, Value>, multi_value: bool) -> Result<(Head, Bytes), BadReply> {
    let code = reply.get("statusCode").ok_or_else(|| BadReply("`statusCode` is missing".into()))?;
    let mut head = Head::new(status(code)?);
    let description = reply.get("statusDescription").and_then(Value::as_str).unwrap_or_default();
    // `200 OK`: the number again, then the reason.
    let reason = description.split_once(' ').map_or("", |(_, reason)| reason);
    head.reason = (!reason.is_empty()).then(|| reason.to_owned());
    let (used, other) = if multi_value {
        ("multiValueHeaders", "headers")
    } else {
        ("headers", "multiValueHeaders")
    };
    if part(reply, used)?.is_none() && part(reply, other)?.is_some() {
        return Err(BadReply(format!("this target group requires `{used}`, not `{other}`")));
    }
    if multi_value {
        head.add_multi(reply)?;
    } else {
        head.add_single(reply)?;
    }
    let body = body(reply)?;
    if body.len() > ALB_LIMIT {
        return Err(BadReply(format!(
            "{} bytes are more than the 1 MB of a load balancer",
            body.len()
        )));
    }
    Ok((head.or_content_type("application/octet-stream"), body))
}

fn object(value: &Value) -> Result<&Map<String, Value>, BadReply> {
    value.as_object().ok_or_else(|| BadReply("the reply is no JSON object".into()))
}

fn part<'a>(
    reply: &'a Map<String, Value>,
    name: &str,
) -> Result<Option<&'a Map<String, Value>>, BadReply> {
    match reply.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(map)) => Ok(Some(map)),
        Some(_) => Err(BadReply(format!("`{name}` is no object"))),
    }
}

/// Parses a number, or a text that contains one.
fn status(value: &Value) -> Result<StatusCode, BadReply> {
    let number = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number
        .and_then(|number| u16::try_from(number).ok())
        .and_then(|number| StatusCode::from_u16(number).ok())
        .filter(|status| (200..600).contains(&status.as_u16()))
        .ok_or_else(|| BadReply(format!("`statusCode` is no status: {value}")))
}

fn body(reply: &Map<String, Value>) -> Result<Bytes, BadReply> {
    let encoded = reply.get("isBase64Encoded").and_then(Value::as_bool).unwrap_or(false);
    let text = match reply.get("body") {
        None | Some(Value::Null) => return Ok(Bytes::new()),
        Some(Value::String(text)) => text,
        Some(_) => return Err(BadReply("`body` is no text".into())),
    };
    if encoded {
        let decoded = STANDARD.decode(text);
        decoded.map(Bytes::from).map_err(|error| BadReply(format!("`body` is no base64: {error}")))
    } else {
        Ok(text.clone().into())
    }
}

/// Reasons why an integration responds without the function, or in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The request's fields are too large.
    HeadTooLarge,
    /// The request's body, or the event made from it, is too large.
    TooLarge,
    /// Too many invocations are waiting.
    Throttled,
    /// The function failed, or its result is invalid.
    Failed,
    /// The function timed out, or took longer than the integration waits.
    TimedOut,
}

impl Refused {
    /// Returns the client's response.
    pub(super) fn answer(self, integration: Integration) -> Response<Bytes> {
        let (status, text) = if integration.is_alb() {
            self.alb()
        } else {
            match integration {
                Integration::ApiGatewayV1 => self.version_1(),
                Integration::ApiGatewayV2 => self.version_2(),
                _ => self.function_url(),
            }
        };
        let (media_type, body) = if integration.is_alb() {
            let title = format!("{} {text}", status.as_u16());
            let page = format!(
                "<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1></center>\r\n</body>\r\n</html>\r\n"
            );
            ("text/html", page)
        } else {
            ("application/json", text.to_owned())
        };
        Head::new(status).or_content_type(media_type).with_body(Bytes::from(body))
    }

    fn version_1(self) -> (StatusCode, &'static str) {
        match self {
            Self::HeadTooLarge => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                r#"{"message": "Request Header Fields Too Large"}"#,
            ),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, r#"{"message": "Request Too Long"}"#),
            Self::Throttled => {
                (StatusCode::INTERNAL_SERVER_ERROR, r#"{"message": "Internal server error"}"#)
            }
            Self::Failed => (StatusCode::BAD_GATEWAY, r#"{"message": "Internal server error"}"#),
            Self::TimedOut => {
                (StatusCode::GATEWAY_TIMEOUT, r#"{"message": "Endpoint request timed out"}"#)
            }
        }
    }

    fn version_2(self) -> (StatusCode, &'static str) {
        match self {
            Self::HeadTooLarge => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                r#"{"message":"Request Header Fields Too Large"}"#,
            ),
            Self::TooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, r#"{"message":"Request Entity Too Large"}"#)
            }
            Self::Throttled | Self::TimedOut => {
                (StatusCode::SERVICE_UNAVAILABLE, r#"{"message":"Service Unavailable"}"#)
            }
            Self::Failed => {
                (StatusCode::INTERNAL_SERVER_ERROR, r#"{"message":"Internal Server Error"}"#)
            }
        }
    }

    fn function_url(self) -> (StatusCode, &'static str) {
        match self {
            Self::HeadTooLarge => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                r#"{"Message":"Request Header Fields Too Large"}"#,
            ),
            Self::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                r#"{"Message":"Request must be smaller than 6291456 bytes for the InvokeFunction operation"}"#,
            ),
            Self::Throttled => (StatusCode::TOO_MANY_REQUESTS, r#"{"Message":"Rate Exceeded."}"#),
            Self::Failed => (StatusCode::BAD_GATEWAY, "Internal Server Error"),
            Self::TimedOut => (StatusCode::GATEWAY_TIMEOUT, "Gateway Timeout"),
        }
    }

    /// Returns status and text of a load balancer's error page.
    fn alb(self) -> (StatusCode, &'static str) {
        match self {
            Self::HeadTooLarge => {
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "Request Header Fields Too Large")
            }
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large"),
            Self::Throttled | Self::Failed | Self::TimedOut => {
                (StatusCode::BAD_GATEWAY, "Bad Gateway")
            }
        }
    }
}

#[cfg(test)]
mod tests;
