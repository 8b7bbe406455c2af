//! Events of API Gateway's WebSockets, as the same requests that `hearth serve` makes of its own: one handler serves both.
//! <https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-websocket-api-route-keys-connect-disconnect.html>

use bytes::Bytes;
use http::HeaderValue;

use super::raw::{RequestContext, Text};

/// The close code of a disconnection for which the gateway names none: no close frame came (RFC 6455, 7.4.1).
const LOST: u16 = 1006;

/// Returns the variables of an event; `None` if it is of no known type.
pub(crate) fn variables(
    context: &RequestContext<'_>,
    binary: bool,
) -> Option<Vec<(&'static str, Bytes)>> {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let event = match context.event_type.as_ref()?.as_ref() {
        "CONNECT" => "connect",
        "MESSAGE" => "message",
        "DISCONNECT" => "close",
        _ => return None,
    };
    let mut all = vec![
        ("HEARTH_SOCKET_ID", bytes(context.connection_id.as_ref()?.as_ref())),
        ("HEARTH_SOCKET_EVENT", bytes(event)),
    ];
    match event {
        "message" => all.push(("HEARTH_SOCKET_BINARY", bytes(if binary { "1" } else { "0" }))),
        "close" => {
            let code = context.disconnect_status_code.unwrap_or(LOST);
            let reason = context.disconnect_reason.as_ref().map_or("", Text::as_ref);
            all.push(("HEARTH_SOCKET_CODE", bytes(&code.to_string())));
            all.push(("HEARTH_SOCKET_REASON", bytes(reason)));
        }
        _ => {}
    }
    Some(all)
}

/// Returns the media type of a message.
pub(crate) fn content_type(binary: bool) -> HeaderValue {
    HeaderValue::from_static(if binary {
        "application/octet-stream"
    } else {
        "text/plain; charset=utf-8"
    })
}
