//! From a draft to a message: fields, and parts nested as mail programs expect them.
//!
//! ```text
//! multipart/mixed
//!   multipart/alternative
//!     text/plain
//!     multipart/related
//!       text/html
//!       image/png              what the HTML shows
//!   application/pdf            what is attached
//! ```
//! A level with one thing in it is left out.

use std::fmt::Write as _;
use std::time::SystemTime;

use bytes::Bytes;
use email_encoding::body::Encoding;
use ring::rand::SecureRandom as _;

use crate::draft::{Content, Draft, Kind, Part, Place};
use crate::encode::{addresses, disposition, field, quoted_printable, subject, with_crlf};
use crate::message::{Message, Piece, base64_lines};
use crate::{Flaw, raw};

/// A part, or several in one.
enum Node<'a> {
    Leaf(&'a Part),
    Multi(&'static str, Vec<Self>),
}

impl Node<'_> {
    /// Returns whether it contains bytes above 127, which only messages in messages do.
    fn is_eight_bit(&self) -> bool {
        match self {
            Node::Leaf(Part { content: Content::Bytes(bytes), content_type, .. }) => {
                is_message(content_type) && !bytes.is_ascii()
            }
            Node::Leaf(_) => false,
            Node::Multi(_, nodes) => nodes.iter().any(Self::is_eight_bit),
        }
    }
}

fn is_message(content_type: &str) -> bool {
    content_type.to_ascii_lowercase().starts_with("message/")
}

impl Draft {
    /// Writes the message. Its files must exist, and their sizes are read now. Blocks while it reads them.
    pub fn compose(&self, now: SystemTime) -> Result<Message, Flaw> {
        let from = self.from.as_ref().ok_or_else(|| Flaw::new("there is no author"))?;
        if self.recipients.is_empty() {
            return Err(Flaw::new("there are no recipients"));
        }
        if let Some(raw) = &self.raw {
            let fields = !self.fields.is_empty() || self.on_behalf.is_some();
            if self.subject.is_some() || fields || !self.parts.is_empty() {
                let what = "a whole message has its own fields and parts: no others go with it";
                return Err(Flaw::new(what));
            }
            return raw::message(raw, from.domain(), now);
        }
        let mut writer = Writer::default();
        let id = self.head(&mut writer.text, from.domain(), now);
        writer.node(&self.tree())?;
        if !writer.text.is_empty() && !writer.text.ends_with("\r\n") {
            writer.text.push_str("\r\n");
        }
        let shown = self.recipients.iter().filter(|one| one.kind != Kind::Bcc);
        let international = from.is_international()
            || self.on_behalf.iter().chain(&self.reply_to).any(crate::Address::is_international)
            || shown.into_iter().any(|one| one.address.is_international());
        writer.flush();
        Ok(Message::new(writer.pieces, writer.eight_bit || international, international, id))
    }

    /// Writes the fields; says the message's id.
    fn head(&self, out: &mut String, domain: &str, now: SystemTime) -> String {
        let own = |wanted: &str| {
            let mut fields = self.fields.iter().rev();
            fields.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
        };
        if own("date").is_none() {
            field(out, "Date", &date(now));
        }
        addresses(out, "From", self.from.iter());
        if self.on_behalf.is_some() {
            addresses(out, "Sender", self.on_behalf.iter());
        }
        if !self.reply_to.is_empty() {
            addresses(out, "Reply-To", self.reply_to.iter());
        }
        let mut no_recipient = true;
        for (kind, name) in [(Kind::To, "To"), (Kind::Cc, "Cc")] {
            let of_kind = || self.recipients.iter().filter(move |one| one.kind == kind);
            if of_kind().next().is_some() {
                addresses(out, name, of_kind().map(|one| &one.address));
                no_recipient = false;
            }
        }
        if no_recipient {
            out.push_str("To: undisclosed-recipients:;\r\n");
        }
        let id = if let Some(own) = own("message-id") {
            own.trim().to_owned()
        } else {
            let id = message_id(domain);
            field(out, "Message-ID", &id);
            id
        };
        if let Some(about) = &self.subject {
            subject(out, about);
        }
        for (name, value) in &self.fields {
            field(out, name, value);
        }
        out.push_str("MIME-Version: 1.0\r\n");
        id
    }

    fn tree(&self) -> Node<'_> {
        let of = |place: Place| self.parts.iter().filter(move |part| part.place == place);
        let is_html = |part: &Part| {
            let kind = part.content_type.split(';').next().unwrap_or_default();
            kind.trim().eq_ignore_ascii_case("text/html")
        };
        let mut body: Vec<Node<'_>> = of(Place::Body).map(Node::Leaf).collect();
        let html = body.iter().rposition(|node| matches!(node, Node::Leaf(part) if is_html(part)));
        let mut mixed = Vec::new();
        if let Some(html) = html
            && of(Place::Related).next().is_some()
        {
            let root = body.remove(html);
            let all = std::iter::once(root).chain(of(Place::Related).map(Node::Leaf)).collect();
            body.insert(html, Node::Multi("related; type=\"text/html\"", all));
        } else {
            mixed.extend(of(Place::Related).map(Node::Leaf));
        }
        let body = match body.len() {
            0 => None,
            1 => body.pop(),
            _ => Some(Node::Multi("alternative", body)),
        };
        let further = self
            .parts
            .iter()
            .filter(|part| matches!(part.place, Place::Inline | Place::Attachment));
        mixed.extend(further.map(Node::Leaf));
        match (body, mixed.is_empty()) {
            (Some(body), true) => body,
            (body, _) => Node::Multi("mixed", body.into_iter().chain(mixed).collect()),
        }
    }
}

/// RFC 5322, 3.3.
pub(crate) fn date(now: SystemTime) -> String {
    httpdate::fmt_http_date(now).replace("GMT", "+0000")
}

/// RFC 5322, 3.6.4.
pub(crate) fn message_id(domain: &str) -> String {
    format!("<{}@{domain}>", random())
}

/// 128 random bits, as text.
fn random() -> String {
    let mut bytes = [0_u8; 16];
    ring::rand::SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    let mut out = String::with_capacity(32);
    for byte in bytes {
        write!(out, "{byte:02x}").expect("a text takes all that is written to it");
    }
    out
}

/// Writes a message: text, and files between.
#[derive(Default)]
struct Writer {
    text: String,
    pieces: Vec<Piece>,
    eight_bit: bool,
}

impl Writer {
    fn flush(&mut self) {
        if !self.text.is_empty() {
            self.pieces.push(Piece::Bytes(Bytes::from(std::mem::take(&mut self.text))));
        }
    }

    /// A text may end without a line break: the next part begins with one.
    fn node(&mut self, node: &Node<'_>) -> Result<(), Flaw> {
        match node {
            Node::Leaf(part) => self.leaf(part),
            // Without anything in it: an empty text.
            Node::Multi(_, nodes) if nodes.is_empty() => {
                self.text.push_str("Content-Type: text/plain; charset=utf-8\r\n\r\n");
                Ok(())
            }
            Node::Multi(kind, nodes) => {
                let edge = format!("hearth-{}", random());
                let (kind, parameters) = kind.split_once(';').unwrap_or((kind, ""));
                let glue = if parameters.is_empty() { "" } else { ";" };
                write!(
                    self.text,
                    "Content-Type: multipart/{kind};\r\n boundary=\"{edge}\"{glue}{parameters}\r\n"
                )
                .expect("a text takes all that is written to it");
                // The encoding of several parts together is the widest of them (RFC 2045, 6.4).
                if node.is_eight_bit() {
                    self.text.push_str("Content-Transfer-Encoding: 8bit\r\n");
                }
                self.text.push_str("\r\n");
                for node in nodes {
                    self.edge(&edge, "");
                    self.node(node)?;
                    // The line's end before an edge is the edge's (RFC 2046, 5.1.1).
                    self.text.push_str("\r\n");
                }
                self.edge(&edge, "--");
                Ok(())
            }
        }
    }

    fn edge(&mut self, edge: &str, last: &str) {
        self.text.push_str("--");
        self.text.push_str(edge);
        self.text.push_str(last);
        self.text.push_str("\r\n");
    }

    fn leaf(&mut self, part: &Part) -> Result<(), Flaw> {
        let lower = part.content_type.to_ascii_lowercase();
        let text = lower.starts_with("text/") && part.name.is_none();
        let utf8 = match &part.content {
            Content::Bytes(bytes) if text && !bytes.contains(&0) => str::from_utf8(bytes).ok(),
            _ => None,
        };
        let charset =
            if utf8.is_some() && !lower.contains("charset=") { "; charset=utf-8" } else { "" };
        let out = &mut self.text;
        out.push_str("Content-Type: ");
        out.push_str(&part.content_type);
        out.push_str(charset);
        out.push_str("\r\n");
        if let Some(id) = &part.id {
            out.push_str("Content-ID: <");
            out.push_str(id);
            out.push_str(">\r\n");
        }
        match part.place {
            Place::Body => {}
            Place::Related | Place::Inline => disposition(out, "inline", part.name.as_deref()),
            Place::Attachment => disposition(out, "attachment", part.name.as_deref()),
        }
        match (&part.content, utf8) {
            (Content::File(path), _) => {
                let flaw = |error| Flaw::new(format!("{}: {error}", path.display()));
                let facts = std::fs::metadata(path).map_err(flaw)?;
                // Before it is opened: a FIFO would wait for a writer.
                if !facts.is_file() {
                    return Err(Flaw::new(format!("{} is no file", path.display())));
                }
                let _readable = std::fs::File::open(path).map_err(flaw)?;
                out.push_str("Content-Transfer-Encoding: base64\r\n\r\n");
                self.flush();
                self.pieces.push(Piece::File { path: path.clone(), length: facts.len() });
            }
            (Content::Bytes(_), Some(text)) => self.lines(text),
            // RFC 2046, 5.2.1: a message in a message stays unchanged.
            (Content::Bytes(bytes), None) if is_message(&lower) => self.inner(bytes)?,
            (Content::Bytes(bytes), None) => {
                out.push_str("Content-Transfer-Encoding: base64\r\n\r\n");
                out.push_str(&base64_lines(bytes));
            }
        }
        Ok(())
    }

    /// A text, line by line.
    fn lines(&mut self, text: &str) {
        let bytes = with_crlf(text.as_bytes());
        let text = str::from_utf8(&bytes).expect("line ends change nothing else");
        let out = &mut self.text;
        match Encoding::choose(text, false) {
            Encoding::SevenBit => {
                out.push_str("Content-Transfer-Encoding: 7bit\r\n\r\n");
                out.push_str(text);
            }
            Encoding::Base64 => {
                out.push_str("Content-Transfer-Encoding: base64\r\n\r\n");
                out.push_str(&base64_lines(&bytes));
            }
            Encoding::QuotedPrintable | Encoding::EightBit => {
                out.push_str("Content-Transfer-Encoding: quoted-printable\r\n\r\n");
                out.push_str(&quoted_printable(&bytes));
            }
        }
    }

    fn inner(&mut self, message: &[u8]) -> Result<(), Flaw> {
        let bytes = with_crlf(message);
        let flaw = || {
            Flaw::new("a message in a message is UTF-8 without NUL, in lines of at most 998 bytes")
        };
        let text = str::from_utf8(&bytes).map_err(|_not| flaw())?;
        if text.contains('\0') || text.split("\r\n").any(|line| line.len() > 998) {
            return Err(flaw());
        }
        let encoding = if text.is_ascii() { "7bit" } else { "8bit" };
        self.eight_bit |= !text.is_ascii();
        self.text.push_str("Content-Transfer-Encoding: ");
        self.text.push_str(encoding);
        self.text.push_str("\r\n\r\n");
        self.text.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
#[path = "compose/tests.rs"]
mod tests;
