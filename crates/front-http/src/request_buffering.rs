//! Selects the request bodies that are received completely before the application gets the request.
//!
//! Invariants
//! - Forms are always among them: PHP reads forms before it runs a script, so a slow client would block its worker.

use http::{HeaderMap, HeaderValue, header};

/// The request bodies that are received before the application gets their request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBuffering {
    /// All bodies.
    All,
    /// Forms, by their content type. Other bodies are passed on as they arrive.
    Forms,
}

impl RequestBuffering {
    /// Returns whether a body with these fields is received first.
    pub(crate) fn applies(self, headers: &HeaderMap) -> bool {
        match self {
            Self::All => true,
            Self::Forms => headers.get(header::CONTENT_TYPE).is_some_and(is_form),
        }
    }
}

/// Returns whether PHP parses a body of this type as a form: `sapi_read_post_data()`, main/SAPI.c.
fn is_form(content_type: &HeaderValue) -> bool {
    let bytes = content_type.as_bytes();
    let essence = bytes.split(|byte| matches!(byte, b';' | b',' | b' ')).next().unwrap_or(bytes);
    essence.eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
        || essence.eq_ignore_ascii_case(b"multipart/form-data")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_always_received_first() {
        for (content_type, form) in [
            ("application/x-www-form-urlencoded", true),
            ("Application/X-WWW-Form-Urlencoded; charset=UTF-8", true),
            ("application/x-www-form-urlencoded,text/plain", true),
            ("multipart/form-data; boundary=b", true),
            ("multipart/form-data boundary=b", true),
            ("multipart/form-data-2", false),
            ("multipart/mixed; boundary=b", false),
            ("application/json", false),
            ("", false),
        ] {
            let value = HeaderValue::from_static(content_type);
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, value)]);
            assert_eq!(RequestBuffering::Forms.applies(&headers), form, "{content_type}");
            assert!(RequestBuffering::All.applies(&headers), "{content_type}");
        }
        assert!(!RequestBuffering::Forms.applies(&HeaderMap::new()));
        assert!(RequestBuffering::All.applies(&HeaderMap::new()));
    }
}
