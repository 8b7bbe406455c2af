//! Properties of every head and every `Hearth-Control`, checked by the fuzz targets and by proptest.

#![cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "public for the fuzz targets only"))]

use http::header::{CONNECTION, HOST, HeaderName, TE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue};

use super::control::{CONTROL, Control, Token, control};
use super::fields;
use super::refusal::Refusal;
use super::target::{check, target};

/// The listener's limit of fields.
const FIELDS: usize = 1000;
/// A placeholder for the token in inputs, so that a fuzzer gets past it.
const PLACE: &str = "TOKEN";

/// Checks that an accepted head names one target, and that no connection field is passed on.
pub fn head(bytes: &[u8]) {
    let Some((_, text)) = bytes.split_first() else { return };
    let Ok(Some(end)) = ::http1::strict_end(text, 0) else { return };
    let Ok(facts) = ::http1::check(&text[..end]) else { return };
    let Ok(uri) = check(facts.target) else { return };
    if facts.fields > FIELDS {
        return;
    }
    let mut fields = vec![::http1::EMPTY_FIELD; FIELDS];
    let request = ::http1::parse(text, &mut fields).expect("it passed").expect("it is complete");
    let mut map = HeaderMap::new();
    for field in request.fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).expect("a token");
        map.append(name, HeaderValue::from_bytes(field.value).expect("no control characters"));
    }
    match target(facts.target, uri, &map) {
        Ok(target) => {
            assert!(!target.host.is_empty() && target.port > 0);
            assert_eq!(target.uri.scheme_str().map(str::len), Some(target.scheme.word().len()));
            let host = HeaderValue::try_from(&target.authority).expect("a host is ASCII");
            goes_on(&fields::of_request(map, &host), &host);
        }
        Err(refusal) => one_answer(&refusal),
    }
}

/// Checks the fields that an origin gets.
fn goes_on(fields: &HeaderMap, host: &HeaderValue) {
    assert_eq!(fields.get_all(HOST).iter().collect::<Vec<_>>(), [host], "one Host, the target's");
    assert!(!fields.contains_key(CONNECTION) && !fields.contains_key(TRANSFER_ENCODING));
    assert!(fields.keys().all(|name| !name.as_str().starts_with("hearth-")));
    assert!(fields.get_all(TE).iter().all(|value| value == "trailers"));
}

/// Checks values of `Hearth-Control`, one per line: nothing counts without the token, and all that counts is
/// supported.
pub fn options(bytes: &[u8]) {
    let token = Token::new([7; 32]);
    let right = format!("token=\"{}\"", token.digits());
    let mut map = HeaderMap::new();
    let mut knows = false;
    for line in bytes.split(|byte| *byte == b'\n').take(3) {
        let text = String::from_utf8_lossy(line).replace(PLACE, &right);
        knows |= text.contains(token.digits());
        if let Ok(value) = HeaderValue::from_str(&text) {
            map.append(CONTROL, value);
        }
    }
    match control(&map, &token) {
        Ok(wanted) if map.is_empty() => assert_eq!(wanted, Control::default()),
        Ok(wanted) => {
            assert!(knows && map.len() == 1, "it counts without the token, or twice");
            assert!(wanted.tls_min <= wanted.tls_max);
            let files = wanted.certificate.iter().flat_map(|(chain, key)| [chain, key]);
            assert!(files.chain(&wanted.ca).all(|path| path.is_absolute()));
            let proxy = wanted.proxy.as_ref().map(|proxy| (&proxy.host, proxy.port));
            let other = wanted.connect_to.as_ref().map(|(host, port)| (host, *port));
            for (host, port) in proxy.into_iter().chain(other) {
                assert!(port > 0 && !host.is_empty());
                assert!(
                    host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/@[]".contains(&byte))
                );
            }
            assert!(wanted.connect_timeout.is_none_or(|limit| !limit.is_zero()));
        }
        Err(refusal) => one_answer(&refusal),
    }
}

/// Checks that a refusal stays one response with one field, whatever text it repeats.
fn one_answer(refusal: &Refusal) {
    let bytes = refusal.bytes();
    let Some(answer) = ::http1::parse_response(&bytes) else {
        panic!("no answer: {}", bytes.escape_ascii());
    };
    let declined: Vec<_> = answer.head.headers.get_all("hearth-declined").iter().collect();
    let [declined] = declined[..] else { panic!("{} times declined", declined.len()) };
    sfv::Parser::new(declined.as_bytes()).parse::<sfv::Item>().expect("a structured field");
    assert_eq!(answer.field("content-length"), Some(&*answer.body.len().to_string()));
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    /// Runs the committed corpus of a fuzz target.
    fn corpus(name: &str, run: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
        let files: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
        assert!(files.len() > 5, "{name}: {} inputs", files.len());
        for file in files {
            run(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }

    #[test]
    fn the_committed_corpora_pass() {
        corpus("listener_head", head);
        corpus("listener_control", options);
    }

    #[test]
    fn heads_that_failed_before() {
        for text in [
            "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nConnection: Host\r\n\r\n",
            "POST http://a.test/ HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "POST http://a.test/ HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n",
            "GET http://a:b:c/ HTTP/1.1\r\n\r\n",
            "GET http://a.test/\" HTTP/1.1\r\n\r\n",
            "GET //\\ HTTP/1.1\r\n\r\n",
        ] {
            let mut bytes = vec![9];
            bytes.extend_from_slice(text.as_bytes());
            head(&bytes);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_accepted_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            head(&bytes);
            options(&bytes);
        }

        #[test]
        fn heads_that_resemble_valid_ones(
            cut in any::<u8>(),
            request in "(GET|POST|CONNECT|X!) (http://|https://|/|\\*|hTTp:)[!-~]{0,20} HTTP/1.1",
            fields in proptest::collection::vec(
                "(Host|Hearth-Origin|Hearth-Control|Connection|Content-Length|Transfer-Encoding|TE|Upgrade|[!-9A-z]{1,8}): ?\
                 (hearth|http://[a-z:0-9@./]{0,9}|chunked|close, [a-zA-Z-]{1,9}|host|content-length|trailers|[0-9]{1,25}|[ -\u{ff}]{0,20})",
                0..6,
            ),
        ) {
            let mut bytes = vec![cut];
            bytes.extend_from_slice(request.as_bytes());
            for field in fields {
                bytes.extend_from_slice(b"\r\n");
                bytes.extend_from_slice(field.as_bytes());
            }
            bytes.extend_from_slice(b"\r\n\r\n");
            head(&bytes);
        }

        #[test]
        fn options_that_resemble_valid_ones(
            lines in proptest::collection::vec(
                "(TOKEN|token=\"[0-9a-f]{0,4}\")?(, ?(verify|ca|cert|key|pin|tls-min|tls-max|http|ip|interface|connect-to|proxy|\
                 connect-timeout|timing|[a-z*]{1,4})(=(\\?[01]|[0-9.-]{1,18}|\"[ -~]{0,20}\"|%\"[ -~]{0,9}\"|\
                 \"(http|socks5h?)://[a-z:@%0-9\\[\\].]{0,20}\"|\"/[ -~]{0,9}\"|\\([0-9 ]{0,5}\\)|:[A-Z]{0,4}:))?){0,4}",
                1..3,
            ),
        ) {
            options(lines.join("\n").as_bytes());
        }
    }
}
