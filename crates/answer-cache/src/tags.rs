//! Tags by which stored answers are purged: `Surrogate-Key` (separated by spaces) and `Cache-Tag` (by commas).

use http::HeaderMap;

/// The most tags of one answer.
const MOST: usize = 256;
/// The longest tag.
const LONGEST: usize = 1024;

/// An answer has more tags than this cache keeps, so that purging could miss it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagError;

/// Returns the tags of an answer.
pub fn tags(headers: &HeaderMap) -> Result<Vec<&str>, TagError> {
    let mut found = Vec::new();
    for (name, separators) in
        [("surrogate-key", &[' ', '\t'][..]), ("cache-tag", &[',', ' ', '\t'])]
    {
        for value in headers.get_all(name) {
            let text = value.to_str().map_err(|_bytes| TagError)?;
            found.extend(text.split(separators).filter(|tag| !tag.is_empty()));
        }
    }
    let fits = found.len() <= MOST && found.iter().all(|tag| tag.len() <= LONGEST);
    if fits { Ok(found) } else { Err(TagError) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_fields_name_tags() {
        let mut headers = HeaderMap::new();
        headers.append("surrogate-key", "a b,c  d".parse().unwrap());
        headers.append("cache-tag", "e, f".parse().unwrap());
        headers.append("cache-tag", "g".parse().unwrap());
        assert_eq!(tags(&headers).unwrap(), ["a", "b,c", "d", "e", "f", "g"]);
        headers.append("cache-tag", "x,".repeat(300).parse().unwrap());
        assert_eq!(tags(&headers), Err(TagError));
    }
}
