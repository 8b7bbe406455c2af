//! The front's own responses: small pages that name the status and the request id, and no internal details.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use pool::DispatchError;

/// A response of the front itself.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: StatusCode,
    /// One sentence for the reader.
    pub(crate) says: &'static str,
    /// Additional header fields.
    pub(crate) fields: Vec<(header::HeaderName, HeaderValue)>,
    /// The connection must be closed after it.
    pub(crate) closes: bool,
}

impl Page {
    pub(crate) fn new(status: StatusCode, says: &'static str) -> Self {
        Self { status, says, fields: Vec::new(), closes: false }
    }

    pub(crate) fn with(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.fields.push((name, value));
        self
    }

    pub(crate) fn closing(mut self) -> Self {
        self.closes = true;
        self
    }

    /// Returns the page for a path without a resource.
    pub(crate) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "Nothing is here.")
    }

    /// Returns the page for a host that no application claims (RFC 9110, section 15.5.20).
    pub(crate) fn misdirected() -> Self {
        Self::new(StatusCode::MISDIRECTED_REQUEST, "This host is not served here.")
    }

    /// Returns the page for an unsupported method.
    pub(crate) fn method_not_allowed(allow: &'static str) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "This method is not allowed here.")
            .with(header::ALLOW, HeaderValue::from_static(allow))
    }

    /// Returns the page for a request body that could not be read.
    pub(crate) fn body_failed(status: StatusCode) -> Self {
        let says = match status {
            StatusCode::PAYLOAD_TOO_LARGE => "The request body is larger than this server takes.",
            StatusCode::REQUEST_TIMEOUT => "The request body took too long.",
            StatusCode::INSUFFICIENT_STORAGE => "The server has no room for the request body.",
            StatusCode::INTERNAL_SERVER_ERROR => "The server could not keep the request body.",
            _ => "The request body could not be read.",
        };
        Self::new(status, says).closing()
    }

    /// Returns the page for a request without capacity.
    pub(crate) fn busy() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "The server is busy. Please try again soon.")
            .with(header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// Returns the page for a request to which PHP gave no response.
    pub(crate) fn dispatch_failed(error: &DispatchError) -> Self {
        match error {
            DispatchError::Overloaded { .. } => Self::busy(),
            DispatchError::Draining => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "The server is shutting down.")
                    .with(header::RETRY_AFTER, HeaderValue::from_static("1"))
                    .closing()
            }
            DispatchError::WorkerDied { .. } => {
                Self::new(StatusCode::BAD_GATEWAY, "The application ended before it answered.")
            }
            DispatchError::TimedOut { .. } => {
                Self::new(StatusCode::GATEWAY_TIMEOUT, "The application did not answer in time.")
            }
            DispatchError::HeadTooLarge => Self::new(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "The request's header fields are too large.",
            ),
            DispatchError::RequestBody(_) => Self::body_failed(StatusCode::BAD_REQUEST),
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "The request could not be answered."),
        }
    }

    /// Renders the page as JSON, HTML, or plain text, according to the request's `Accept`.
    pub(crate) fn render(self, request: &HeaderMap, id: &str) -> Response<Bytes> {
        let status = self.status.as_u16();
        let reason = self.status.canonical_reason().unwrap_or("Error");
        let says = self.says;
        let (kind, text) = match preferred(request) {
            Kind::Json => (
                "application/json",
                format!(
                    "{{\"status\":{status},\"error\":\"{reason}\",\"message\":\"{says}\",\"request_id\":\"{id}\"}}\n"
                ),
            ),
            Kind::Html => (
                "text/html; charset=utf-8",
                format!(
                    "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{status} {reason}</title>\n\
                     <style>body{{font:1rem/1.5 system-ui,sans-serif;margin:15vh auto;max-width:32rem;padding:0 1rem}}\
                     small{{color:#767676}}</style>\n<h1>{status} {reason}</h1>\n<p>{says}</p>\n<p><small>Request {id}</small></p>\n</html>\n"
                ),
            ),
            Kind::Plain => {
                ("text/plain; charset=utf-8", format!("{status} {reason}\n{says}\nRequest {id}\n"))
            }
        };
        let mut response = Response::new(Bytes::from(text));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for (name, value) in self.fields {
            headers.insert(name, value);
        }
        if self.closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Json,
    Html,
    Plain,
}

/// Returns the first of JSON and HTML that the request names.
fn preferred(request: &HeaderMap) -> Kind {
    let accepts = request.get_all(header::ACCEPT);
    let types = accepts.iter().filter_map(|value| value.to_str().ok());
    for range in types.flat_map(|value| value.split(',')) {
        let essence = range.split(';').next().unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case("text/html") {
            return Kind::Html;
        }
        if essence.eq_ignore_ascii_case("application/json") || essence.ends_with("+json") {
            return Kind::Json;
        }
    }
    Kind::Plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(accept: &str) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        let response = Page::not_found().render(&headers, "id-1");
        String::from_utf8(response.into_body().to_vec()).unwrap()
    }

    #[test]
    fn a_page_speaks_the_clients_language() {
        assert_eq!(page("*/*"), "404 Not Found\nNothing is here.\nRequest id-1\n");
        assert_eq!(
            page("application/json, text/html"),
            "{\"status\":404,\"error\":\"Not Found\",\"message\":\"Nothing is here.\",\"request_id\":\"id-1\"}\n"
        );
        assert!(page("text/html,application/xhtml+xml").starts_with("<!doctype html>"));
    }
}
