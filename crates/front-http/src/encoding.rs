//! Content codings and the client's preferences (RFC 9110, section 12.5.3).

use http::{HeaderMap, HeaderValue, header};

/// A supported content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Zstd,
    Brotli,
    Gzip,
}

impl Coding {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    pub(crate) const fn value(self) -> HeaderValue {
        HeaderValue::from_static(self.name())
    }

    /// Returns the suffix of precompressed files.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::Zstd => ".zst",
            Self::Brotli => ".br",
            Self::Gzip => ".gz",
        }
    }
}

/// The client's weights of codings in thousandths; zero means "not acceptable".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accepted {
    zstd: u16,
    brotli: u16,
    gzip: u16,
}

impl Accepted {
    /// Parses all `Accept-Encoding` fields of a request.
    pub(crate) fn read(headers: &HeaderMap) -> Self {
        Self::of(headers.get_all(header::ACCEPT_ENCODING))
    }

    /// Parses these values.
    pub(crate) fn of<'v>(values: impl IntoIterator<Item = &'v HeaderValue>) -> Self {
        let mut accepted = Self::default();
        let mut named = [false; 3];
        let mut star = 0;
        for value in values {
            let Ok(text) = value.to_str() else { continue };
            for item in text.split(',') {
                let mut parts = item.split(';');
                let name = parts.next().unwrap_or_default().trim();
                let weight = parts
                    .find_map(|part| {
                        let (name, value) = part.split_once('=')?;
                        name.trim().eq_ignore_ascii_case("q").then(|| weight(value.trim()))
                    })
                    .unwrap_or(1000);
                let slot = if name.eq_ignore_ascii_case("zstd") {
                    0
                } else if name.eq_ignore_ascii_case("br") {
                    1
                } else if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
                    2
                } else {
                    if name == "*" {
                        star = weight;
                    }
                    continue;
                };
                named[slot] = true;
                *accepted.slot(slot) = weight;
            }
        }
        for (slot, named) in named.into_iter().enumerate() {
            if !named {
                *accepted.slot(slot) = star;
            }
        }
        accepted
    }

    fn slot(&mut self, index: usize) -> &mut u16 {
        match index {
            0 => &mut self.zstd,
            1 => &mut self.brotli,
            _ => &mut self.gzip,
        }
    }

    fn weight(self, coding: Coding) -> u16 {
        match coding {
            Coding::Zstd => self.zstd,
            Coding::Brotli => self.brotli,
            Coding::Gzip => self.gzip,
        }
    }

    /// Returns the acceptable codings, best first; `preference` decides between equal weights.
    pub(crate) fn ranked(self, preference: [Coding; 3]) -> impl Iterator<Item = Coding> {
        let mut ranked = preference;
        ranked.sort_by_key(|coding| std::cmp::Reverse(self.weight(*coding)));
        ranked.into_iter().filter(move |coding| self.weight(*coding) > 0)
    }
}

/// Parses a quality value in thousandths; an invalid one counts as zero.
fn weight(text: &str) -> u16 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 3 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return 0;
    }
    match whole {
        "1" if fraction.bytes().all(|byte| byte == b'0') => 1000,
        "0" => fraction
            .bytes()
            .chain(*b"000")
            .take(3)
            .fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0')),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranked(accept: &str) -> Vec<&'static str> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, accept.parse().unwrap());
        Accepted::read(&headers)
            .ranked([Coding::Zstd, Coding::Brotli, Coding::Gzip])
            .map(Coding::name)
            .collect()
    }

    #[test]
    fn weights_decide_and_preference_breaks_ties() {
        assert_eq!(ranked("gzip, deflate, br, zstd"), ["zstd", "br", "gzip"]);
        assert_eq!(ranked("gzip;q=1.0, br;q=0.5"), ["gzip", "br"]);
        assert_eq!(ranked("br;q=0, gzip;q=0.001"), ["gzip"]);
        assert_eq!(ranked("*"), ["zstd", "br", "gzip"]);
        assert_eq!(ranked("*;q=0.1, gzip"), ["gzip", "zstd", "br"]);
        assert_eq!(ranked("zstd;q=0, *;q=0.5"), ["br", "gzip"]);
        assert_eq!(ranked("GZIP ; Q=0.8"), ["gzip"]);
        assert!(ranked("identity").is_empty());
        assert!(ranked("").is_empty());
        assert!(ranked("gzip;q=2, br;q=0.0001, zstd;q=x").is_empty());
    }

    proptest! {
        #[test]
        fn any_accept_encoding_is_handled(accept in "[ -~]{0,80}") {
            let _ranked = ranked(&accept);
        }
    }
}
