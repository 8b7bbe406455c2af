//! The context of a span for other processes: `traceparent` (W3C Trace Context, 2.2) and X-Ray's header.
//!
//! Invariants
//! - A value that does not match the specification exactly is no context; nothing is guessed.

use http::header::HeaderMap;

/// Length of a `traceparent` of version 00 in bytes.
pub const TRACEPARENT_LENGTH: usize = 55;
/// The flag that the caller may have recorded the trace.
const SAMPLED: u8 = 1;

/// Id of a trace; never all zeros.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct TraceId(pub [u8; 16]);

/// Id of a span within its trace; never all zeros.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SpanId(pub [u8; 8]);

/// The context of a span.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Context {
    /// Id of the trace.
    pub trace: TraceId,
    /// Id of the span.
    pub span: SpanId,
    /// Value of `trace-flags`.
    pub flags: u8,
}

/// The text of a `traceparent`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Traceparent([u8; TRACEPARENT_LENGTH]);

impl Traceparent {
    /// Returns the text in ASCII.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Display for TraceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl std::fmt::Display for SpanId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl Context {
    /// Returns whether its spans are recorded.
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Parses a `traceparent`. Of a later version the parts of 00 are read (W3C Trace Context, 3.2.2).
    pub fn read(text: &[u8]) -> Option<Self> {
        let (text, rest) = text.split_at_checked(TRACEPARENT_LENGTH)?;
        let [version] = hex(&text[..2])?;
        let later = rest.is_empty() || (version > 0 && rest[0] == b'-');
        if version == 0xff || !later || text[2] != b'-' || text[35] != b'-' || text[52] != b'-' {
            return None;
        }
        let (trace, span) = (TraceId(hex(&text[3..35])?), SpanId(hex(&text[36..52])?));
        let [flags] = hex(&text[53..])?;
        let valid = trace.0 != [0; 16] && span.0 != [0; 8];
        valid.then_some(Self { trace, span, flags: flags & SAMPLED })
    }

    /// Returns the context of a request head; `None` if there are two.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all("traceparent").iter();
        let first = Self::read(values.next()?.as_bytes())?;
        values.next().is_none().then_some(first)
    }

    /// Formats it as `traceparent`.
    pub fn traceparent(&self) -> Traceparent {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        put_hex(&mut text[3..35], &self.trace.0);
        put_hex(&mut text[36..52], &self.span.0);
        put_hex(&mut text[53..], &[self.flags]);
        Traceparent(text)
    }

    /// Parses X-Ray's tracing header, such as
    /// `Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1` (AWS X-Ray developer guide,
    /// "Tracing header"). Returns the trace, and the parent if there is one. Without `Sampled=1` it is not sampled.
    pub fn read_xray(text: &str) -> Option<(TraceId, Option<Self>)> {
        let value = |name: &str| {
            let fields = text.split(';').map(str::trim);
            fields.filter_map(|field| field.split_once('=')).find(|(key, _)| *key == name)
        };
        let (_, root) = value("Root")?;
        let (time, unique) = root.strip_prefix("1-")?.split_once('-')?;
        if time.len() != 8 || unique.len() != 24 {
            return None;
        }
        let mut id = [0; 16];
        id[..4].copy_from_slice(&hex::<4>(time.as_bytes())?);
        id[4..].copy_from_slice(&hex::<12>(unique.as_bytes())?);
        if id == [0; 16] {
            return None;
        }
        let trace = TraceId(id);
        let span = value("Parent").and_then(|(_, parent)| hex::<8>(parent.as_bytes()));
        let flags = u8::from(value("Sampled").is_some_and(|(_, sampled)| sampled == "1"));
        let parent = span.filter(|span| *span != [0; 8]);
        Some((trace, parent.map(|span| Self { trace, span: SpanId(span), flags })))
    }
}

/// Parses exactly `N` bytes of lower-case hexadecimal.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn put_hex(out: &mut [u8], bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in out.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_parsed() {
        let context = Context::read(TEXT.as_bytes()).unwrap();
        assert_eq!(context.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.span.to_string(), "00f067aa0ba902b7");
        assert!(context.is_sampled());
        assert_eq!(context.traceparent().as_bytes(), TEXT.as_bytes());
    }

    #[test]
    fn invalid_traceparents_are_ignored() {
        for text in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
        ] {
            assert_eq!(Context::read(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_later_version_is_read_as_far_as_this_one_goes() {
        let text = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-what-comes";
        assert!(!Context::read(text.as_bytes()).unwrap().is_sampled());
    }

    #[test]
    fn duplicate_traceparents_are_ignored() {
        let mut headers = HeaderMap::new();
        headers.append("traceparent", HeaderValue::from_static(TEXT));
        assert!(Context::of(&headers).is_some());
        headers.append("traceparent", HeaderValue::from_static(TEXT));
        assert_eq!(Context::of(&headers), None);
    }

    #[test]
    fn xray_names_a_trace_and_perhaps_a_parent() {
        let text = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1;Lineage=a:0";
        let (trace, parent) = Context::read_xray(text).unwrap();
        assert_eq!(trace.to_string(), "5759e988bd862e3fe1be46a994272793");
        let parent = parent.unwrap();
        assert_eq!(parent.span.to_string(), "53995c3f42cd8ad8");
        assert!(parent.is_sampled());
        let alone = Context::read_xray("Root=1-5759e988-bd862e3fe1be46a994272793").unwrap();
        assert_eq!(alone.1, None);
        for text in
            ["", "Root=", "Root=1-5759e988-bd86", "Root=2-5759e988-bd862e3fe1be46a994272793"]
        {
            assert_eq!(Context::read_xray(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_traceparent_bytes_are_handled(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _read = (Context::read(&bytes), Context::read_xray(&String::from_utf8_lossy(&bytes)));
        }

        #[test]
        fn every_context_is_read_back(trace in 1_u128.., span in 1_u64.., sampled: bool) {
            let context = Context {
                trace: TraceId(trace.to_be_bytes()),
                span: SpanId(span.to_be_bytes()),
                flags: u8::from(sampled),
            };
            prop_assert_eq!(Context::read(context.traceparent().as_bytes()), Some(context));
        }
    }
}
