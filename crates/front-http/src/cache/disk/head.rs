//! The fields of an answer as bytes: the lengths of name and value, name, value.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Returns the fields as bytes.
pub(super) fn encode(headers: &HeaderMap) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 << 10);
    for (name, value) in headers {
        for part in [name.as_str().as_bytes(), value.as_bytes()] {
            let length = u32::try_from(part.len()).expect("a field is small");
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(part);
        }
    }
    bytes
}

/// Reads the fields. None: these are none.
pub(super) fn decode(mut bytes: &[u8]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    while !bytes.is_empty() {
        let name = HeaderName::from_bytes(part(&mut bytes)?).ok()?;
        let value = HeaderValue::from_bytes(part(&mut bytes)?).ok()?;
        headers.append(name, value);
    }
    Some(headers)
}

fn part<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (part, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    *bytes = rest;
    Some(part)
}
