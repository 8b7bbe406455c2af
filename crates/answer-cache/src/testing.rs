//! A helper of several tests.

use http::HeaderMap;

/// Returns header fields with these names and values; a name may occur several times.
pub(crate) fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}
