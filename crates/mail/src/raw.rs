//! A message written by the caller: sent unchanged, except line ends, `Bcc`, and required fields.

use std::time::SystemTime;

use bytes::Bytes;

use crate::Flaw;
use crate::compose::{date, message_id};
use crate::encode::with_crlf;
use crate::message::{Message, Piece};

/// RFC 5322, 2.1.1.
const LINE: usize = 998;

/// Makes a message of it. `domain` is for a `Message-ID` where there is none.
pub(crate) fn message(raw: &[u8], domain: &str, now: SystemTime) -> Result<Message, Flaw> {
    if raw.contains(&0) {
        return Err(Flaw::new("the message holds a NUL"));
    }
    let mut text = with_crlf(raw);
    if !text.ends_with(b"\r\n") {
        text.extend_from_slice(b"\r\n");
    }
    let (head, body) = split(&text);
    let mut fields = fields(head)?;
    if let Some(at) = text.split(|byte| *byte == b'\n').position(|line| line.len() > LINE + 1) {
        return Err(Flaw::new(format!(
            "line {} of the message is longer than {LINE} bytes",
            at + 1
        )));
    }
    // A recipient who is hidden is not to be read by the others.
    fields.retain(|(name, _)| name != "bcc" && name != "resent-bcc");
    let found = |name: &str| fields.iter().find(|(other, _)| other == name);
    let mut out = Vec::with_capacity(text.len() + 128);
    if found("date").is_none() {
        out.extend_from_slice(format!("Date: {}\r\n", date(now)).as_bytes());
    }
    let id = if let Some((_, field)) = found("message-id") {
        let value = field.iter().skip_while(|byte| **byte != b':').skip(1).copied();
        String::from_utf8_lossy(&value.collect::<Vec<_>>()).trim().to_owned()
    } else {
        let id = message_id(domain);
        out.extend_from_slice(format!("Message-ID: {id}\r\n").as_bytes());
        id
    };
    for (_, field) in &fields {
        out.extend_from_slice(field);
    }
    let international = !out.is_ascii();
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    let eight_bit = !out.is_ascii();
    Ok(Message::new(vec![Piece::Bytes(Bytes::from(out))], eight_bit, international, id))
}

/// Fields, and the text behind the empty line.
fn split(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.windows(4).position(|four| four == b"\r\n\r\n");
    match end {
        Some(at) => {
            (text.get(..at + 2).unwrap_or_default(), text.get(at + 4..).unwrap_or_default())
        }
        None => (text, &[]),
    }
}

/// Each field with the lines that continue it, and its name in lower case.
fn fields(head: &[u8]) -> Result<Vec<(String, &[u8])>, Flaw> {
    let none = || Flaw::new("a message begins with its fields, Name: value, and an empty line");
    let mut fields: Vec<(String, &[u8])> = Vec::new();
    let mut begun = 0;
    let mut at = 0;
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        let end = at + line.len();
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            let (_, field) = fields.last_mut().ok_or_else(none)?;
            *field = head.get(begun..end).unwrap_or_default();
        } else {
            let colon = line.iter().position(|byte| *byte == b':').ok_or_else(none)?;
            let name = line.get(..colon).unwrap_or_default();
            // RFC 5322, 4.5.3: blanks before the colon are an old form.
            let name = str::from_utf8(name).map_err(|_not| none())?.trim_end();
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_graphic()) {
                return Err(none());
            }
            fields.push((name.to_ascii_lowercase(), line));
            begun = at;
        }
        at = end;
    }
    if fields.is_empty() { Err(none()) } else { Ok(fields) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(raw: &str) -> Result<String, String> {
        let message = message(raw.as_bytes(), "x.test", SystemTime::UNIX_EPOCH);
        let message = message.map_err(|flaw| flaw.0)?;
        match message.pieces.as_slice() {
            [Piece::Bytes(bytes)] => Ok(String::from_utf8(bytes.to_vec()).expect("text")),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn bcc_fields_are_removed_with_their_continuation_lines() {
        let raw = "Date: d\nMessage-ID: <i@x>\nTo: a@x\nBCC: b@x,\n\tc@x\nbcc : d@x\nSubject: s\n\nBcc: stays in the body\n.\nend";
        assert_eq!(
            written(raw).as_deref(),
            Ok(
                "Date: d\r\nMessage-ID: <i@x>\r\nTo: a@x\r\nSubject: s\r\n\r\nBcc: stays in the body\r\n.\r\nend\r\n"
            )
        );
    }

    #[test]
    fn required_fields_are_added() {
        let made = written("From: a@x\r\n\r\nb").expect("a message");
        assert!(
            made.starts_with("Date: Thu, 01 Jan 1970 00:00:00 +0000\r\nMessage-ID: <"),
            "{made}"
        );
        assert!(made.ends_with("@x.test>\r\nFrom: a@x\r\n\r\nb\r\n"), "{made}");
    }

    #[test]
    fn invalid_messages_are_rejected() {
        let long = format!("A: b\n\n{}", "x".repeat(999));
        for raw in
            ["", "hello", "\r\n\r\nbody", " folded: first\n\nx", "A: b\n\n\0", "A b: c\n\n", &long]
        {
            assert!(written(raw).is_err(), "{raw:?}");
        }
        written(&format!("A: b\n\n{}", "x".repeat(998))).expect("it just fits");
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(64))]
        #[test]
        fn no_bare_line_end_is_sent(body in "[a.\r\n]{0,60}") {
            let made = written(&format!("A: b\n\n{body}")).expect("a message");
            proptest::prop_assert!(!made.replace("\r\n", "").contains(['\r', '\n']));
            proptest::prop_assert!(made.ends_with("\r\n"));
        }
    }
}
