//! A mail as a caller puts it together. Each thing is judged when it is given.

use std::path::PathBuf;

use bytes::Bytes;

use crate::address::{Address, Flaw};

/// A mail that is not written yet.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// The author.
    pub from: Option<Address>,
    /// The envelope sender, which gets delivery failures.
    pub sender: Sender,
    /// The addresses for replies.
    pub reply_to: Vec<Address>,
    /// The recipient.
    pub recipients: Vec<Recipient>,
    pub(crate) subject: Option<String>,
    /// The field `Sender`, for a mail sent on behalf of its author (RFC 5322, 3.6.2).
    pub(crate) on_behalf: Option<Address>,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) parts: Vec<Part>,
    pub(crate) raw: Option<Bytes>,
}

/// The envelope's sender.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Sender {
    /// The author.
    #[default]
    Author,
    /// The null reverse-path (RFC 5321, 4.5.5): failures are not reported.
    Null,
    /// Another address.
    Other(Address),
}

/// A recipient of a mail.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Recipient {
    /// The field of the address.
    pub kind: Kind,
    /// The address.
    pub address: Address,
}

/// The field of a recipient.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// `To`
    To,
    /// `Cc`
    Cc,
    /// None: the others do not see it.
    Bcc,
}

/// A part of a mail.
#[derive(Clone, Debug)]
pub struct Part {
    /// The place of the part.
    pub place: Place,
    /// `type/subtype; parameters`
    pub content_type: String,
    /// The file's name. With one, bytes stay unchanged.
    pub name: Option<String>,
    /// `Content-ID` without brackets: `cid:…` in HTML.
    pub id: Option<String>,
    /// The content of the part.
    pub content: Content,
}

/// The place of a part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// One form of the body, the plainest first.
    Body,
    /// A part that the HTML displays.
    Related,
    /// Shown behind the body.
    Inline,
    /// A file to be taken out.
    Attachment,
}

/// The content of a part.
#[derive(Clone, Debug)]
pub enum Content {
    /// In memory.
    Bytes(Bytes),
    /// A file, read while it is sent.
    File(PathBuf),
}

/// Maximum length of a word in a field or a subject: a longer one cannot be folded (RFC 5322, 2.1.1).
const WORD: usize = 900;
const SUBJECT: usize = 16 << 10;
/// Fields that are written from the rest of the draft.
const OURS: [&str; 11] = [
    "from",
    "to",
    "cc",
    "bcc",
    "resent-bcc",
    "reply-to",
    "subject",
    "mime-version",
    "content-type",
    "content-transfer-encoding",
    "return-path",
];

impl Draft {
    /// Sets the subject.
    pub fn set_subject(&mut self, subject: &str) -> Result<(), Flaw> {
        if subject.chars().any(|c| c.is_control() && c != '\t') {
            return Err(Flaw::new("the subject holds control characters"));
        }
        if subject.len() > SUBJECT {
            return Err(Flaw::new("the subject is too long"));
        }
        self.subject = Some(subject.to_owned());
        Ok(())
    }

    /// One more field. `Date` and `Message-ID` take the place of those that are made otherwise; `Sender` is an address, the last one given.
    pub fn add_field(&mut self, name: &str, value: &str) -> Result<(), Flaw> {
        let printable = |byte: u8| (33..=126).contains(&byte) && byte != b':';
        if name.is_empty() || name.len() > 76 || !name.bytes().all(printable) {
            return Err(Flaw::new(format!("{name:?} is no name of a field")));
        }
        if OURS.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(Flaw::new(format!("{name} has a call of its own")));
        }
        if value.chars().any(|c| c.is_control() && c != '\t') {
            return Err(Flaw::new(format!("the value of {name} holds control characters")));
        }
        if value.is_ascii() && value.split([' ', '\t']).any(|word| word.len() > WORD) {
            return Err(Flaw::new(format!("the value of {name} holds a word that is too long")));
        }
        if name.eq_ignore_ascii_case("sender") {
            self.on_behalf = Some(Address::parse(value.trim())?);
        } else {
            self.fields.push((name.to_owned(), value.to_owned()));
        }
        Ok(())
    }

    /// Adds a part.
    pub fn add_part(&mut self, part: Part) -> Result<(), Flaw> {
        let kind = &part.content_type;
        if !is_content_type(kind) {
            return Err(Flaw::new(format!("{kind:?} is no content type")));
        }
        let lower = kind.to_ascii_lowercase();
        if lower.starts_with("multipart/") {
            return Err(Flaw::new("parts are nested by the library"));
        }
        if lower.starts_with("message/") && matches!(part.content, Content::File(_)) {
            return Err(Flaw::new("a message in a message is given in memory"));
        }
        if let Some(name) = &part.name
            && (name.chars().any(char::is_control) || name.len() > WORD)
        {
            return Err(Flaw::new("a file's name holds control characters, or is too long"));
        }
        let in_id = |c: char| c.is_ascii_graphic() && !"<>()\\\"".contains(c);
        if let Some(id) = &part.id
            && (id.is_empty() || id.len() > WORD || !id.chars().all(in_id))
        {
            return Err(Flaw::new(format!("{id:?} is no content id")));
        }
        self.parts.push(part);
        Ok(())
    }

    /// The whole message, fields included, instead of parts, subject and fields.
    pub fn set_raw(&mut self, raw: Bytes) {
        self.raw = Some(raw);
    }
}

/// `type/subtype` with parameters, on one line (RFC 2045, 5.1).
fn is_content_type(text: &str) -> bool {
    let token = |text: &str| {
        let fits = |c: char| c.is_ascii_graphic() && !"()<>@,;:\\\"/[]?=".contains(c);
        !text.is_empty() && text.chars().all(fits)
    };
    let (kind, rest) = text.split_once(';').unwrap_or((text, ""));
    let Some((kind, subtype)) = kind.trim().split_once('/') else { return false };
    let one_line = rest.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    token(kind) && token(subtype) && one_line && text.len() <= 500
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multi_line_values_are_rejected() {
        let mut draft = Draft::default();
        for subject in ["a\r\nBcc: x@y", "a\n", "a\r", "a\0", "a\u{85}"] {
            assert!(draft.set_subject(subject).is_err(), "{subject:?}");
        }
        for (name, value) in [
            ("X-A", "a\r\nBcc: x"),
            ("X-A", "\n"),
            ("X-A\r\nBcc", "x"),
            ("X A", "x"),
            ("", "x"),
            ("X-A:", "x"),
            ("Bcc", "x@y"),
            ("bcc", "x@y"),
            ("Content-Type", "text/html"),
            ("X-A", &"a".repeat(1000)),
            ("Sender", "no address"),
            ("Sender", "a@x.test, b@x.test"),
        ] {
            assert!(draft.add_field(name, value).is_err(), "{name:?}: {value:?}");
        }
        assert!(draft.fields.is_empty() && draft.on_behalf.is_none());
        draft.add_field("X-A", "jos\u{e9}\tb").expect("one line");
        draft.add_field("Message-ID", "<a@b>").expect("one's own");
    }

    #[test]
    fn invalid_part_types_names_and_ids_are_rejected() {
        let part = |content_type: &str, name: Option<&str>, id: Option<&str>| Part {
            place: Place::Attachment,
            content_type: content_type.to_owned(),
            name: name.map(str::to_owned),
            id: id.map(str::to_owned),
            content: Content::Bytes(Bytes::new()),
        };
        let mut draft = Draft::default();
        for wrong in [
            part("text", None, None),
            part("text/", None, None),
            part("text/plain\r\nX: y", None, None),
            part("text/plain; charset=\u{fc}", None, None),
            part("multipart/mixed", None, None),
            part("text/plain", Some("a\r\nb"), None),
            part("text/plain", None, Some("a>b")),
            part("text/plain", None, Some("")),
        ] {
            assert!(draft.add_part(wrong.clone()).is_err(), "{wrong:?}");
        }
        draft
            .add_part(part("text/plain; charset=utf-8", Some("\u{fc}.txt"), Some("a@b")))
            .expect("fine");
    }
}
