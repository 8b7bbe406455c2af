//! Converts paths and queries of events to request targets. Gateways decode some of them, so characters that a URI
//! does not allow are encoded again; existing escapes stay.

use super::raw::{Multiple, Single, Text};

/// Returns whether a byte stays unencoded: those allowed in a path or query (RFC 3986 section 3.3), and those that
/// clients send in spite of it and
/// `http::Uri` and PHP accept: `[`, `]`, `|`, `^`, `{`, `}`, `\`.
fn passes(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'#' | b'<' | b'>' | b'`' | b'?')
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn push_encoded(out: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    for digit in [byte >> 4, byte & 15] {
        out.push(char::from(DIGITS.get(usize::from(digit)).copied().unwrap_or(b'0')));
    }
}

/// Appends a path, adding a leading slash if necessary.
pub(crate) fn push_path(out: &mut String, path: &str) {
    if !path.starts_with('/') {
        out.push('/');
    }
    for byte in path.bytes() {
        if passes(byte) { out.push(char::from(byte)) } else { push_encoded(out, byte) }
    }
}

/// Appends `?` and an unchanged query; nothing if it is empty.
pub(crate) fn push_raw_query(out: &mut String, query: &str) {
    let mut separator = Some('?');
    for byte in query.bytes() {
        out.extend(separator.take());
        if passes(byte) || byte == b'?' {
            out.push(char::from(byte));
        } else {
            push_encoded(out, byte);
        }
    }
}

/// Appends `?` and the pairs into which a gateway has split the query. `decoded` says that it has decoded them too.
pub(crate) fn push_pairs(
    out: &mut String,
    multiple: Option<&Multiple<'_>>,
    single: Option<&Single<'_>>,
    decoded: bool,
) {
    let mut separator = '?';
    let mut push = |out: &mut String, name: &Text<'_>, value: &Text<'_>| {
        out.push(separator);
        separator = '&';
        for (text, after) in [(name.as_ref(), Some('=')), (value.as_ref(), None)] {
            for byte in text.bytes() {
                let stays =
                    if decoded { is_unreserved(byte) } else { passes(byte) || byte == b'?' };
                if stays { out.push(char::from(byte)) } else { push_encoded(out, byte) }
            }
            out.extend(after);
        }
    };
    match (multiple, single) {
        (Some(multiple), _) => {
            for (name, values) in &multiple.0 {
                for value in values {
                    push(out, name, value);
                }
            }
        }
        (None, Some(single)) => single.0.iter().for_each(|(name, value)| push(out, name, value)),
        (None, None) => {}
    }
}
