//! Entry points of fuzz targets: parsers of client and proxy input, which must handle any bytes.

use http::{HeaderMap, HeaderValue};

/// Routes the path of a request target in an empty tree.
pub fn path(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(clean) = crate::route::clean(text) {
        let segments: Vec<&[u8]> = clean.as_bytes().split(|byte| *byte == b'/').collect();
        assert!(!segments.contains(&&b".."[..]) && !clean.as_bytes().contains(&0));
        let _source = crate::route::is_source(clean.as_bytes());
    }
}

/// Parses a field of a trusted proxy, used or ignored.
pub fn forwarded(bytes: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(bytes) else { return };
    let trusted = ["0.0.0.0/0", "::/0"].map(|text| text.parse().expect("a network"));
    for header in crate::TrustedHeader::ALL {
        let mut headers = HeaderMap::new();
        headers.insert(header.name(), value.clone());
        for believed in
            [header, crate::TrustedHeader::Forwarded, crate::TrustedHeader::XForwardedFor]
        {
            let believed =
                crate::TrustedHeaders::new([believed]).expect("one field is of one family");
            let _told = crate::forwarded::take(&mut headers.clone(), believed, &trusted);
        }
    }
}

/// Parses a PROXY protocol header.
pub fn proxy_protocol(bytes: &[u8]) {
    if let Ok(Some((_, length))) = crate::proxy_protocol::parse(bytes) {
        assert!(length <= bytes.len());
    }
}

/// Parses a Range and an Accept-Encoding field.
pub fn fields(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _part = crate::conditional::parse_range(text, 1000);
    if let Ok(value) = HeaderValue::from_str(text) {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::ACCEPT_ENCODING, value);
        let _accepted = crate::encoding::Accepted::read(&headers);
    }
}

/// Reads packets and streams of HTTP/3.
pub fn http3(bytes: &[u8]) {
    crate::http3::fuzzing::any(bytes);
}

/// Reads rules for requests, and a request that they may be for.
pub fn rules(bytes: &[u8]) {
    crate::rules::fuzz(bytes);
}
