//! Development mode between PHP and the browser: a page shows why the last release did not boot, and pages in browsers reload after an edit.
//!
//! Invariants
//! - Only answers of type `text/html` to a browser's own navigation are changed: a script of one line is appended, and `Content-Length` follows.
//! - While the newest release does not boot, its error answers in place of PHP: never the page of an older release.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderValue,
};
use http::{Method, Request, Response, StatusCode};
use pool::{EventSink as _, PublishedEvent};

use crate::config::{NamedApp, Settings, Token};
use crate::failure::Failure;
use crate::ops::html::Html;
use crate::subsystems::realtime::{DEVELOPMENT_APP, Publisher, Realtime};

/// The channel that notifies pages of edits. A channel whose name begins with `cache-` sends its last event to new subscribers, so that no edit is missed.
const CHANNEL: &str = "cache-hearth-dev";
const EVENT: &str = "changed";

/// Development mode's data about the application.
#[derive(Debug)]
pub(crate) struct Dev {
    /// The key of the application of channels, and its secret, which is not used.
    key: Token,
    secret: Token,
    /// The time of the last change, in milliseconds since 1970: a page that was made earlier reloads.
    version: AtomicU64,
    failure: Mutex<Option<Failure>>,
    publisher: Mutex<Option<Publisher>>,
}

impl Dev {
    /// Returns development mode for a server that starts.
    pub(crate) fn new() -> Self {
        let version = AtomicU64::new(now());
        let (failure, publisher) = (Mutex::default(), Mutex::default());
        Self { key: Token::draw(), secret: Token::draw(), version, failure, publisher }
    }

    /// Returns the application whose channel tells pages of edits.
    pub(crate) fn app(&self, settings: &Settings) -> NamedApp {
        settings.realtime.apps.adopted(DEVELOPMENT_APP, self.key.expose(), self.secret.expose())
    }

    /// Sends edits over these channels from now on.
    pub(crate) fn publish_over(&self, realtime: &Realtime) {
        *self.publisher.lock().expect("no holder panics") = realtime.development_publisher();
        self.publish();
    }

    /// A release has taken over, or has failed to: pages reload, and show which.
    pub(crate) fn changed(&self, failure: Option<Failure>) {
        *self.failure.lock().expect("no holder panics") = failure;
        self.version.fetch_max(now(), Ordering::AcqRel);
        // Two changes in one millisecond are two.
        self.version.fetch_add(1, Ordering::AcqRel);
        self.publish();
    }

    fn publish(&self) {
        let version = self.version.load(Ordering::Acquire).to_string();
        let event =
            PublishedEvent { channels: vec![CHANNEL], name: EVENT, data: &version, except: None };
        if let Some(publisher) = &*self.publisher.lock().expect("no holder panics")
            && let Err(refused) = publisher.publish(&event)
        {
            tracing::debug!(reason = refused.0, "pages in browsers do not reload");
        }
    }

    /// Returns the script that an answer to this request ends with if it is a page; `None` if a program has asked for it.
    pub(crate) fn script_for<B>(&self, request: &Request<B>) -> Option<Bytes> {
        let has_channels = self.publisher.lock().expect("no holder panics").is_some();
        (has_channels && is_navigation(request)).then(|| self.script())
    }

    fn script(&self) -> Bytes {
        let (key, version) = (self.key.expose(), self.version.load(Ordering::Acquire));
        Bytes::from(format!(
            "<script>/* hearth serve --dev */(()=>{{const connect=()=>{{\
             const socket=new WebSocket(location.origin.replace(/^http/,\"ws\")+\"/app/{key}?protocol=7&client=hearth-dev\");\
             const send=(event,data)=>socket.send(JSON.stringify({{event,data}}));\
             socket.onmessage=({{data}})=>{{const message=JSON.parse(data);\
             if(message.event===\"pusher:connection_established\")send(\"pusher:subscribe\",{{channel:\"{CHANNEL}\"}});\
             else if(message.event===\"pusher:ping\")send(\"pusher:pong\",{{}});\
             else if(message.event===\"{EVENT}\"&&Number(message.data)>{version})location.reload()}};\
             socket.onclose=()=>setTimeout(connect,500)}};connect()}})()</script>\n"
        ))
    }

    /// Returns the page with the reason why the newest release does not boot, if it does not.
    pub(crate) fn failure_page(&self) -> Option<Response<Bytes>> {
        let failure = self.failure.lock().expect("no holder panics");
        let failure = failure.as_ref()?;
        let mut page = Html::default();
        page.raw(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>The application did not boot</title>\
             <style>body{font:16px/1.5 system-ui,sans-serif;margin:3rem auto;max-width:60rem;padding:0 1rem}\
             pre{background:#f6f2ee;border-left:4px solid #c33;padding:1rem;white-space:pre-wrap}</style></head>\
             <body><h1>The application did not boot</h1>\n<pre>",
        );
        for line in failure.message().lines() {
            page.text(line).raw("\n");
        }
        page.raw("</pre>\n");
        if let Some(hint) = failure.hint() {
            page.raw("<p>").text(hint).raw(".</p>\n");
        }
        page.raw("<p>The next change of a file is the next try.</p>\n</body></html>\n");
        let mut response = Response::new(Bytes::from(page.into_string()));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Some(response)
    }
}

/// Returns whether the script can be appended to an answer, and makes room for it in `Content-Length`.
pub(crate) fn takes_script<B>(response: &mut Response<B>, script: &Bytes) -> bool {
    let status = response.status();
    if status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    {
        return false;
    }
    let headers = response.headers_mut();
    let is_page = headers.get(CONTENT_TYPE).is_some_and(|kind| {
        kind.as_bytes().get(..9).is_some_and(|start| start.eq_ignore_ascii_case(b"text/html"))
    });
    // A policy may forbid the script, and a browser would complain of it.
    let whole = [CONTENT_ENCODING, CONTENT_RANGE, CONTENT_SECURITY_POLICY]
        .iter()
        .all(|name| !headers.contains_key(name));
    let download = headers
        .get(CONTENT_DISPOSITION)
        .is_some_and(|how| how.as_bytes().to_ascii_lowercase().starts_with(b"attachment"));
    if !is_page || !whole || download {
        return false;
    }
    match length(headers) {
        None => true,
        Some(Ok(length)) => {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length + script.len() as u64));
            true
        }
        Some(Err(())) => false,
    }
}

fn length(headers: &HeaderMap) -> Option<Result<u64, ()>> {
    let value = headers.get(CONTENT_LENGTH)?;
    Some(value.to_str().ok().and_then(|text| text.trim().parse().ok()).ok_or(()))
}

/// Returns whether a browser asks for a page to show: not a script of a page, which would get the script of Hearth with each fragment.
fn is_navigation<B>(request: &Request<B>) -> bool {
    let field = |name: &str| request.headers().get(name).map(HeaderValue::as_bytes);
    let accepts_pages = || {
        let accept = request.headers().get(ACCEPT).map(HeaderValue::as_bytes).unwrap_or_default();
        accept.windows(9).any(|part| part == b"text/html") && field("x-requested-with").is_none()
    };
    matches!(*request.method(), Method::GET | Method::POST)
        && field("sec-fetch-dest").map_or_else(accepts_pages, |goal| goal == b"document")
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method, headers: &[(&'static str, &str)]) -> Request<()> {
        let mut request = Request::builder().method(method);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    #[test]
    fn only_a_browser_that_opens_a_page_gets_the_script() {
        for (is_one, headers) in [
            (true, &[("sec-fetch-dest", "document")][..]),
            (true, &[("accept", "text/html,application/xhtml+xml")]),
            (false, &[("sec-fetch-dest", "empty"), ("accept", "text/html")]),
            (false, &[("accept", "text/html"), ("x-requested-with", "XMLHttpRequest")]),
            (false, &[("accept", "*/*")]),
            (false, &[]),
        ] {
            assert_eq!(is_navigation(&request(Method::GET, headers)), is_one, "{headers:?}");
        }
        assert!(!is_navigation(&request(Method::HEAD, &[("accept", "text/html")])));
    }

    #[test]
    fn only_whole_pages_take_the_script() {
        let script = Bytes::from_static(b"12345");
        let takes = |status: u16, headers: &[(&str, &str)]| {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(*name, *value);
            }
            let mut response = response.body(()).unwrap();
            takes_script(&mut response, &script)
                .then(|| response.headers().get(CONTENT_LENGTH).cloned())
        };
        let page = ("content-type", "text/html; charset=UTF-8");
        assert_eq!(takes(200, &[page]), Some(None));
        assert_eq!(takes(404, &[page, ("content-length", "7")]), Some(Some(HeaderValue::from(12))));
        for headers in [
            &[("content-type", "application/json")][..],
            &[page, ("content-encoding", "gzip")],
            &[page, ("content-range", "bytes 0-1/2")],
            &[page, ("content-security-policy", "default-src 'self'")],
            &[page, ("content-disposition", "attachment; filename=a.html")],
            &[],
        ] {
            assert_eq!(takes(200, headers), None, "{headers:?}");
        }
        assert_eq!(takes(304, &[page]), None);
    }

    #[test]
    fn the_failure_of_the_newest_release_is_the_page() {
        let dev = Dev::new();
        assert!(dev.failure_page().is_none());
        let before = dev.version.load(Ordering::Acquire);
        dev.changed(Some(Failure::failed(
            "unexpected token \"<\" in a.php on line 3",
            "correct it",
        )));
        let page = dev.failure_page().unwrap();
        assert_eq!(page.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let text = String::from_utf8(page.into_body().to_vec()).unwrap();
        assert!(text.contains("unexpected token &quot;&lt;&quot; in a.php on line 3"), "{text}");
        dev.changed(None);
        assert!(dev.failure_page().is_none());
        assert!(dev.version.load(Ordering::Acquire) >= before + 2);
    }
}
