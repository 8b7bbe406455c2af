//! Writes strings as JSON.

/// Appends `text` with quotes and escapes. Characters that need no escape stay as they are, including `/` and
/// non-ASCII characters.
pub fn push_string(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.bytes().position(must_be_escaped) {
        let (plain, tail) = rest.split_at(at);
        out.push_str(plain);
        let (escaped, tail) = tail.split_at(1);
        match escaped.as_bytes().first() {
            Some(b'"') => out.push_str("\\\""),
            Some(b'\\') => out.push_str("\\\\"),
            Some(b'\n') => out.push_str("\\n"),
            Some(b'\r') => out.push_str("\\r"),
            Some(b'\t') => out.push_str("\\t"),
            Some(other) => {
                out.push_str("\\u00");
                out.push(if *other < 0x10 { '0' } else { '1' });
                out.extend(char::from_digit(u32::from(other & 0xf), 16));
            }
            None => {}
        }
        rest = tail;
    }
    out.push_str(rest);
    out.push('"');
}

/// Returns `text` as a JSON string.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_string(&mut out, text);
    out
}

fn must_be_escaped(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}
