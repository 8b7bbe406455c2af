//! Completes a response for HTTP: its length, its coding, a file in place of its body, and the fields of every
//! response.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode, Version};
use http_body::Body;
use pool::RequestId;

use super::{Answer, Exchange};
use crate::answer_body::{Account, Source};
use crate::application::Application;
use crate::buffered_body::BufferedBody;
use crate::cache::{Filling, Storing};
use crate::compress::{self, Encoder};
use crate::date;
use crate::files::{self, FileOptions, Refused};
use crate::front::Shared;
use crate::protocol::Protocol;
use crate::release::Part;
use crate::rules::{Chosen, Rules};
use crate::site::Site;
use crate::trace;

impl<A: Application> Exchange<'_, A> {
    /// Processes PHP's response. With `storing` it may be stored in the answer cache.
    pub(super) async fn answered(
        &self,
        response: Response<A::Body>,
        part: &Part,
        kept: &Kept,
        storing: Option<Storing>,
    ) -> Answer<A::Body> {
        let (mut head, body) = response.into_parts();
        drop_hop_by_hop(&mut head.headers);
        let size = body.size_hint().exact();
        settle_length(&mut head, size.filter(|_size| kept.method != Method::HEAD));
        if let Some(conditions) = &kept.conditions
            && let Some(path) = part.sendfile.take(&mut head.headers)
            && !is_bodyless(head.status)
        {
            let _not_stored = storing.and_then(|storing| storing.begin(&mut head, size, true));
            drain(body).await;
            return self.send_file(path, head, conditions, (kept, &part.files));
        }
        let fill = storing.and_then(|storing| storing.begin(&mut head, size, false));
        let body = Filling::new(body, fill);
        if kept.method == Method::HEAD || is_bodyless(head.status) {
            // The body is read to its end, so that PHP does not see a disconnected client.
            drain(body).await;
            return Answer { head, source: Source::Empty };
        }
        let body = BufferedBody::new(body, &self.front.buffers, self.site());
        if self.front.compression
            && let Some(coding) = compress::choose(kept.accept_encoding.as_ref(), &mut head, size)
        {
            return Answer { head, source: Source::Encoded(Some(body), Encoder::new(coding)) };
        }
        Answer { head, source: Source::Application(body) }
    }

    /// Returns the client's address, unless it is a trusted proxy that named none.
    pub(super) fn site(&self) -> Option<Site> {
        let known = self.forwarded.client.is_some() || !self.connection.trusted;
        known.then(|| Site::of(self.remote.ip()))
    }

    /// Handles `X-Sendfile` and `X-Accel-Redirect`: sends the file in place of PHP's body, with PHP's fields.
    fn send_file(
        &self,
        path: Result<PathBuf, Refused>,
        mut head: http::response::Parts,
        conditions: &HeaderMap,
        (kept, files): (&Kept, &FileOptions),
    ) -> Answer<A::Body> {
        // An error page has no ranges and no versions.
        let none = HeaderMap::new();
        let conditions = if head.status == StatusCode::OK { conditions } else { &none };
        let outcome = path
            .and_then(|path| files::answer_for_application(&path, &kept.method, conditions, files))
            .and_then(|response| self.spared(response));
        match outcome {
            Ok(response) => {
                let (file_head, body) = response.into_parts();
                head.headers.remove(header::CONTENT_LENGTH);
                for (name, value) in &file_head.headers {
                    let own = *name == header::CONTENT_LENGTH || *name == header::CONTENT_RANGE;
                    if own || !head.headers.contains_key(name) {
                        head.headers.insert(name.clone(), value.clone());
                    }
                }
                if head.status == StatusCode::OK && file_head.status != StatusCode::OK {
                    head.status = file_head.status;
                    head.extensions.clear();
                }
                Answer { head, source: Source::File(body) }
            }
            Err(refused) => {
                tracing::warn!(
                    request.id = &*self.id.0,
                    "application named a file that cannot be sent"
                );
                self.refused(refused, &kept.accept_fields())
            }
        }
    }
}

/// The properties of a request that its response needs. Values share their bytes, so keeping them costs no copy.
pub(super) struct Kept {
    pub(super) method: Method,
    accept: Option<HeaderValue>,
    pub(super) accept_encoding: Option<HeaderValue>,
    /// Conditions and range; kept only if PHP may name a file.
    conditions: Option<HeaderMap>,
}

impl Kept {
    pub(super) fn of(parts: &Parts, files: bool) -> Self {
        let headers = &parts.headers;
        Self {
            method: parts.method.clone(),
            accept: headers.get(header::ACCEPT).cloned(),
            accept_encoding: joined(headers, &header::ACCEPT_ENCODING),
            conditions: files.then(|| {
                let names = [
                    header::RANGE,
                    header::IF_RANGE,
                    header::IF_NONE_MATCH,
                    header::IF_MODIFIED_SINCE,
                    header::IF_MATCH,
                    header::IF_UNMODIFIED_SINCE,
                ];
                let kept = names
                    .into_iter()
                    .filter_map(|name| Some((name.clone(), joined(headers, &name)?)));
                kept.collect()
            }),
        }
    }

    /// Returns the `Accept` fields, for a page of the front.
    pub(super) fn accept_fields(&self) -> HeaderMap {
        self.accept.iter().map(|value| (header::ACCEPT, value.clone())).collect()
    }
}

/// Joins all values of a field.
pub(super) fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_none() {
        return Some(first.clone());
    }
    let all: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    HeaderValue::from_bytes(&all.join(&b", "[..])).ok()
}

fn is_bodyless(status: StatusCode) -> bool {
    status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED
}

fn is_length(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    !bytes.is_empty() && bytes.len() < 20 && bytes.iter().all(u8::is_ascii_digit)
}

/// Keeps one valid `Content-Length` of PHP's; `size` is that of the body, if known. Without the field, the framing
/// marks the end of the body.
pub(super) fn settle_length(head: &mut http::response::Parts, size: Option<u64>) {
    let mut said = head.headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = said.next() else { return };
    let several = said.next().is_some();
    let one = !several || head.headers.get_all(header::CONTENT_LENGTH).iter().all(|v| v == first);
    let fits = match size {
        // A 204 has no Content-Length (RFC 9110, section 8.6); a 304 has that of the body that it does not send.
        _ if head.status == StatusCode::NO_CONTENT => false,
        Some(size) if head.status != StatusCode::NOT_MODIFIED => {
            first.as_bytes() == size.to_string().as_bytes()
        }
        _ => is_length(first),
    };
    if !(one && fits) {
        head.headers.remove(header::CONTENT_LENGTH);
    } else if several {
        let first = first.clone();
        head.headers.insert(header::CONTENT_LENGTH, first);
    }
}

pub(super) async fn drain<B: Body + Unpin>(mut body: B) {
    while let Some(Ok(_)) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {}
}

/// Removes hop-by-hop fields, which the front sends itself (RFC 9110, section 7.6.1).
pub(super) fn drop_hop_by_hop(headers: &mut HeaderMap) {
    // One pass over the names instead of eight look-ups: PHP sends few fields.
    let is_hop = |name: &HeaderName| {
        *name == header::CONNECTION
            || *name == header::TRANSFER_ENCODING
            || *name == header::UPGRADE
            || *name == header::TRAILER
            || *name == header::TE
            || name == "keep-alive"
            || name == "proxy-connection"
    };
    if headers.keys().any(is_hop) {
        let mut names: Vec<HeaderName> =
            headers.keys().filter(|name| is_hop(name)).cloned().collect();
        // `Connection` names further fields that end here.
        for value in headers.get_all(header::CONNECTION) {
            let named = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            names.extend(named.filter_map(|name| HeaderName::from_bytes(name).ok()));
        }
        for name in names {
            headers.remove(name);
        }
    }
}

/// The properties of a request that its response depends on.
pub(super) struct About<'r> {
    pub(super) method: &'r Method,
    pub(super) version: Version,
    /// The request has `Transfer-Encoding`.
    pub(super) chunked: bool,
    /// The client uses TLS, to this server or to a trusted proxy.
    pub(super) secure: bool,
    pub(super) id: &'r RequestId,
    /// `Alt-Svc`, if the client can have HTTP/3 instead.
    pub(super) alternative: Option<&'r HeaderValue>,
    /// The rules for the response's fields.
    pub(super) fields: Option<(Arc<Rules>, Chosen)>,
}

/// Sets the fields that every response gets.
pub(super) fn finish<A: Application>(
    front: &Shared<A>,
    about: &About<'_>,
    answer: Answer<A::Body>,
    account: &mut Account,
) -> Response<Source<A::Body>> {
    let Answer { mut head, mut source } = answer;
    let About { method, version, chunked, secure, id, alternative, ref fields } = *about;
    let protocol = Protocol::of(version);
    head.version = version;
    account.status = head.status;
    front.metrics.spoke(protocol);
    if let Some(span) = &mut account.span {
        trace::answered(span, &mut head);
    }
    // HTTP/2 has no reason phrases (RFC 9113, section 8.3.2).
    if let Some(pool::Reason(reason)) = head.extensions.remove::<pool::Reason>()
        && !protocol.has_pseudo_headers()
        && let Ok(reason) = hyper::ext::ReasonPhrase::try_from(reason)
    {
        head.extensions.insert(reason);
    }
    if *method == Method::HEAD && !matches!(source, Source::Empty) {
        if let Source::Whole(bytes) = &source {
            head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
        }
        source = Source::Empty;
    }
    if front.server_header {
        head.headers.entry(header::SERVER).or_insert(HeaderValue::from_static("Hearth"));
    }
    head.headers.entry(header::DATE).or_insert_with(date::now);
    // Never over plain HTTP (RFC 6797, section 7.2).
    if secure && let Some(hsts) = &front.hsts {
        head.headers.entry(header::STRICT_TRANSPORT_SECURITY).or_insert(hsts.clone());
    }
    if let Some(alternative) = alternative {
        head.headers.entry(header::ALT_SVC).or_insert(alternative.clone());
    }
    if front.request_id_header
        && let Ok(id) = HeaderValue::from_str(&id.0)
    {
        head.headers.insert(HeaderName::from_static("x-request-id"), id);
    }
    if let Some((rules, chosen)) = fields
        && let Some(fields) = &rules.fields
        && !head.status.is_informational()
    {
        fields.apply(chosen, &mut head.headers, secure);
    }
    if protocol.multiplexed() {
        head.headers.remove(header::CONNECTION);
    } else if chunked {
        // A request with both Transfer-Encoding and Content-Length may be a smuggling attempt. hyper keeps only the
        // former, so the two cases cannot be distinguished here; RFC 9112 (section 6.1) requires closing the
        // connection for it.
        head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Response::from_parts(head, source)
}
