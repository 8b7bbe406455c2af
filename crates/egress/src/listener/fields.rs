//! The header fields that pass from one side to the other.

use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The prefix of Hearth's own fields, which the listener and its callers exchange and no other party gets.
const OURS: &str = "hearth-";

/// Returns the fields of a request as the origin gets them, `Host` included.
pub(crate) fn of_request(mut fields: HeaderMap, host: &HeaderValue) -> HeaderMap {
    if all_pass(&fields)
        && let Some(value) = fields.get_mut(HOST)
    {
        *value = host.clone();
        return fields;
    }
    let mut passed = HeaderMap::with_capacity(fields.len() + 1);
    if !fields.contains_key(HOST) {
        passed.insert(HOST, host.clone());
    }
    pass(fields, &mut passed);
    if let Some(value) = passed.get_mut(HOST) {
        *value = host.clone();
    }
    passed
}

/// Returns the fields of a response as the caller gets them.
pub(crate) fn of_answer(fields: HeaderMap) -> HeaderMap {
    let mut passed = HeaderMap::with_capacity(fields.len() + 2);
    pass(fields, &mut passed);
    passed
}

/// Returns the trailers of either, without those that frame or route a message (RFC 9110, 6.5.1).
pub(crate) fn of_trailers(fields: HeaderMap) -> HeaderMap {
    let mut passed = of_answer(fields);
    for name in [CONTENT_LENGTH, HOST, TRAILER] {
        passed.remove(name);
    }
    passed
}

/// Returns whether the caller wants to upgrade from HTTP/1.1 to something other than HTTP/2.
pub(crate) fn wants_upgrade(fields: &HeaderMap) -> bool {
    fields.get_all(UPGRADE).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"h2c"))
}

/// Returns whether all fields are end-to-end ones, as in most messages.
pub(crate) fn all_pass(fields: &HeaderMap) -> bool {
    fields.keys().all(is_end_to_end)
}

/// Returns the end-to-end fields (RFC 9110, 7.6.1), in order.
fn pass(fields: HeaderMap, passed: &mut HeaderMap) {
    let named: Vec<String> = fields
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        // `Host` is always forwarded, even if `Connection` names it.
        .filter(|name| name != HOST.as_str())
        .collect();
    let mut last: Option<(HeaderName, bool)> = None;
    for (name, value) in fields {
        // Further values of a field come without its name.
        let (name, passes) = match (name, last.take()) {
            (Some(name), _) => {
                let passes =
                    is_end_to_end(&name) && !named.iter().any(|named| name.as_str() == named);
                (name, passes)
            }
            (None, Some(known)) => known,
            (None, None) => continue,
        };
        // `TE: trailers` is true for this hop too.
        if passes || (name == TE && value == "trailers") {
            passed.append(name.clone(), value);
        }
        last = Some((name, passes));
    }
}

fn is_end_to_end(name: &HeaderName) -> bool {
    ![CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE]
        .contains(name)
        && !["keep-alive", "proxy-connection", "http2-settings"].contains(&name.as_str())
        && !name.as_str().starts_with(OURS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    fn list(map: &HeaderMap) -> Vec<(&str, &str)> {
        map.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect()
    }

    #[test]
    fn control_fields_are_removed_and_the_rest_keeps_its_order() {
        let fields = map(&[
            ("accept", "*/*"),
            ("hearth-control", "token=\"x\""),
            ("host", "hearth"),
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("cookie", "a=1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("x-twice", "1"),
            ("transfer-encoding", "chunked"),
            ("x-twice", "2"),
            ("hearth-anything", "1"),
            ("hearth-anything", "2"),
            ("authorization", "Basic x"),
        ]);
        let passed = of_request(fields, &HeaderValue::from_static("a.test"));
        let expected = [
            ("accept", "*/*"),
            ("host", "a.test"),
            ("cookie", "a=1"),
            ("te", "trailers"),
            ("x-twice", "1"),
            ("x-twice", "2"),
            ("authorization", "Basic x"),
        ];
        assert_eq!(list(&passed), expected);
    }

    #[test]
    fn a_request_without_host_gets_one() {
        let passed = of_request(map(&[("accept", "*/*")]), &HeaderValue::from_static("a.test"));
        assert_eq!(list(&passed), [("host", "a.test"), ("accept", "*/*")]);
    }

    #[test]
    fn host_passes_even_when_connection_names_it() {
        let fields = map(&[("host", "hearth"), ("connection", "HOST, x"), ("x", "1")]);
        let passed = of_request(fields, &HeaderValue::from_static("a.test"));
        assert_eq!(list(&passed), [("host", "a.test")]);
    }

    #[test]
    fn trailers_cannot_change_framing_or_routing() {
        let passed = of_trailers(map(&[
            ("content-length", "1"),
            ("transfer-encoding", "chunked"),
            ("host", "b.test"),
            ("trailer", "x"),
            ("hearth-control", "x"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("x-checksum", "abc"),
        ]));
        assert_eq!(list(&passed), [("x-checksum", "abc")]);
    }

    #[test]
    fn an_origin_cannot_forge_broker_fields() {
        let passed = of_answer(map(&[
            ("hearth-declined", "tls"),
            ("set-cookie", "a=1"),
            ("hearth-timing", "x"),
            ("set-cookie", "b=2"),
        ]));
        assert_eq!(list(&passed), [("set-cookie", "a=1"), ("set-cookie", "b=2")]);
    }
}
