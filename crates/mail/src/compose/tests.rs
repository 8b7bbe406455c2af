//! Compares composed messages as a whole. scripts/test-client tests how other programs read them.

use std::path::PathBuf;

use super::*;
use crate::{Address, Recipient};

fn draft() -> Draft {
    let address = |text| Address::parse(text).expect("an address");
    let to = |kind, text| Recipient { kind, address: address(text) };
    let mut draft = Draft {
        from: Some(address("Ann <ann@x.test>")),
        recipients: vec![
            to(Kind::To, "bob@x.test"),
            to(Kind::Cc, "\"Smith, Jo\u{e9}\" <cy@x.test>"),
            to(Kind::Bcc, "secret@x.test"),
        ],
        ..Draft::default()
    };
    draft.set_subject("Hello").expect("a subject");
    draft.add_field("Message-ID", "<1@x.test>").expect("a field");
    draft
}

fn part(place: Place, content_type: &str, name: Option<&str>, bytes: &'static [u8]) -> Part {
    Part {
        place,
        content_type: content_type.to_owned(),
        name: name.map(str::to_owned),
        id: None,
        content: Content::Bytes(Bytes::from_static(bytes)),
    }
}

/// The message, with edges numbered in their order.
fn written(draft: &Draft) -> String {
    let message = draft.compose(SystemTime::UNIX_EPOCH).expect("a message");
    let mut text = String::new();
    for piece in &message.pieces {
        match piece {
            Piece::Bytes(bytes) => text.push_str(str::from_utf8(bytes).expect("text")),
            Piece::File { path, length } => {
                write!(text, "[{length} bytes of {}]\r\n", path.display()).expect("written");
            }
        }
    }
    let mut edges: Vec<String> = Vec::new();
    for found in text.split("boundary=\"").skip(1) {
        edges.push(found.split('"').next().expect("its end").to_owned());
    }
    for (at, edge) in edges.iter().enumerate() {
        text = text.replace(edge, &format!("EDGE{at}"));
    }
    assert!(!text.replace("\r\n", "").contains(['\r', '\n']), "{text:?}");
    text.replace("\r\n", "\n")
}

#[test]
fn a_plain_mail_is_one_part_and_hides_its_hidden_recipient() {
    let mut draft = draft();
    draft.add_part(part(Place::Body, "text/plain", None, b"One\nTwo")).expect("a part");
    assert_eq!(
        written(&draft),
        "Date: Thu, 01 Jan 1970 00:00:00 +0000\n\
         From: Ann <ann@x.test>\n\
         To: bob@x.test\n\
         Cc: =?utf-8?b?U21pdGgsIEpvw6k=?= <cy@x.test>\n\
         Subject: Hello\n\
         Message-ID: <1@x.test>\n\
         MIME-Version: 1.0\n\
         Content-Type: text/plain; charset=utf-8\n\
         Content-Transfer-Encoding: 7bit\n\
         \n\
         One\nTwo\n"
    );
}

#[test]
fn parts_are_nested_as_mail_programs_expect_them() {
    let mut draft = draft();
    let mut picture = part(Place::Related, "image/png", None, b"png");
    picture.id = Some("logo@x".to_owned());
    for part in [
        part(Place::Attachment, "application/pdf", Some("\u{e4}.pdf"), b"pdf"),
        part(Place::Body, "text/plain", None, b"plain"),
        picture,
        part(Place::Body, "text/html", None, b"<b>"),
    ] {
        draft.add_part(part).expect("a part");
    }
    let written = written(&draft);
    let (_, body) = written.split_once("MIME-Version: 1.0\n").expect("the fields");
    assert_eq!(
        body,
        "Content-Type: multipart/mixed;\n boundary=\"EDGE0\"\n\n\
         --EDGE0\n\
         Content-Type: multipart/alternative;\n boundary=\"EDGE1\"\n\n\
         --EDGE1\n\
         Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 7bit\n\nplain\n\
         --EDGE1\n\
         Content-Type: multipart/related;\n boundary=\"EDGE2\"; type=\"text/html\"\n\n\
         --EDGE2\n\
         Content-Type: text/html; charset=utf-8\nContent-Transfer-Encoding: 7bit\n\n<b>\n\
         --EDGE2\n\
         Content-Type: image/png\nContent-ID: <logo@x>\nContent-Disposition: inline\n\
         Content-Transfer-Encoding: base64\n\ncG5n\n\n\
         --EDGE2--\n\n\
         --EDGE1--\n\n\
         --EDGE0\n\
         Content-Type: application/pdf\n\
         Content-Disposition: attachment;\n filename*0*=utf-8''%C3%A4.pdf\n\
         Content-Transfer-Encoding: base64\n\ncGRm\n\n\
         --EDGE0--\n"
    );
}

#[test]
fn a_file_is_announced_with_its_size_and_read_later() {
    let path = std::env::temp_dir().join(format!("hearth-mail-{}", random()));
    for length in [0_usize, 1, 2, 3, 57, 58, 200_000] {
        std::fs::write(&path, vec![b'x'; length]).expect("a file");
        let mut draft = draft();
        draft
            .add_part(Part {
                content: Content::File(path.clone()),
                ..part(Place::Attachment, "application/octet-stream", Some("a"), b"")
            })
            .expect("a part");
        let message = draft.compose(SystemTime::now()).expect("a message");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut read = 0;
        runtime.block_on(async {
            let mut reader = message.reader();
            while let Some(piece) = reader.next().await.expect("readable") {
                read += piece.len() as u64;
            }
        });
        assert_eq!(read, message.size(), "{length}");
        std::fs::write(&path, b"").expect("a file");
        let shorter = runtime.block_on(async {
            let mut reader = message.reader();
            loop {
                match reader.next().await {
                    Ok(None) => break false,
                    Ok(Some(_)) => {}
                    Err(_shorter) => break true,
                }
            }
        });
        assert_eq!(shorter, length > 0);
    }
    std::fs::remove_file(&path).expect("it was there");
    let mut draft = draft();
    draft
        .add_part(Part {
            content: Content::File(PathBuf::from("/nowhere/at/all")),
            ..part(Place::Attachment, "text/plain", None, b"")
        })
        .expect("a part");
    assert!(draft.compose(SystemTime::now()).is_err());
}

#[test]
fn an_attachment_must_be_a_regular_file() {
    let path = std::env::temp_dir().join(format!("hearth-mail-{}", random()));
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("coreutils");
    assert!(made.success());
    for path in [path.clone(), std::env::temp_dir(), PathBuf::from("/dev/null")] {
        let mut draft = draft();
        draft
            .add_part(Part {
                content: Content::File(path.clone()),
                ..part(Place::Attachment, "text/plain", None, b"")
            })
            .expect("a part");
        let flaw = draft.compose(SystemTime::now()).expect_err("it is none");
        assert_eq!(flaw.0, format!("{} is no file", path.display()));
    }
    std::fs::remove_file(&path).expect("it was there");
}

#[test]
fn texts_are_encoded_as_they_need_it() {
    for (text, encoding) in [
        ("plain", "7bit"),
        ("gr\u{fc}n, and much more that is plain", "quoted-printable"),
        ("\u{4e16}\u{754c}\u{4e16}\u{754c}\u{4e16}\u{754c}", "base64"),
        ("a\0b", "base64"),
    ] {
        let mut draft = draft();
        let content = Content::Bytes(Bytes::copy_from_slice(text.as_bytes()));
        draft
            .add_part(Part { content, ..part(Place::Body, "text/plain", None, b"") })
            .expect("a part");
        let written = written(&draft);
        assert!(written.contains(&format!("Content-Transfer-Encoding: {encoding}\n")), "{written}");
    }
}

#[test]
fn eight_bit_attachments_are_declared() {
    const EIGHT: &str = "Content-Transfer-Encoding: 8bit\n";
    for (inner, named) in [("A: b\n\nplain", 0), ("A: b\n\ngr\u{fc}n", 2)] {
        let mut draft = draft();
        draft
            .add_part(part(Place::Body, "text/plain", None, "gr\u{fc}n".as_bytes()))
            .expect("a part");
        draft.add_part(part(Place::Body, "text/html", None, b"<b>")).expect("a part");
        let held = part(Place::Attachment, "Message/RFC822", None, inner.as_bytes());
        draft.add_part(held).expect("a part");
        let whole = written(&draft);
        assert_eq!(whole.matches(EIGHT).count(), named, "{whole}");
        let head = format!("Content-Type: multipart/mixed;\n boundary=\"EDGE0\"\n{EIGHT}\n");
        assert_eq!(whole.contains(&head), named > 0, "{whole}");
        let message = draft.compose(SystemTime::now()).expect("a message");
        assert_eq!(message.is_eight_bit(), named > 0);
    }
}

#[test]
fn a_name_of_quotes_fits_its_line() {
    for (name, fits) in
        [("\"".repeat(449), true), ("\\".repeat(451), false), ("n".repeat(900), true)]
    {
        let address = Address::new(&name, "a@x.test");
        assert_eq!(address.is_ok(), fits, "{name}");
        let Ok(address) = address else { continue };
        let mut draft = draft();
        draft.from = Some(address.clone());
        draft.reply_to = vec![address.clone(), address];
        let longest = written(&draft).lines().map(str::len).max();
        assert!(longest.is_some_and(|longest| longest <= 998), "{longest:?}");
    }
}

#[test]
fn missing_and_duplicate_fields_are_named() {
    let empty = Draft::default();
    assert_eq!(empty.compose(SystemTime::now()).expect_err("empty").0, "there is no author");
    let without_recipients = Draft { from: draft().from, ..Draft::default() };
    assert_eq!(
        without_recipients.compose(SystemTime::now()).expect_err("no recipients").0,
        "there are no recipients"
    );
    let mut both = draft();
    both.set_raw(Bytes::from_static(b"A: b\n\n"));
    assert!(both.compose(SystemTime::now()).is_err());
}

#[test]
fn a_sender_on_behalf_of_the_author_gets_a_sender_field() {
    let mut with = draft();
    with.add_field("sender", " Desk <d@x.test>\t").expect("a field");
    assert!(written(&with).contains("\nFrom: Ann <ann@x.test>\nSender: Desk <d@x.test>\nTo: "));
    let international =
        |draft: &Draft| draft.compose(SystemTime::now()).expect("a message").is_international();
    assert!(!international(&with));
    with.add_field("Sender", "d\u{e9}@x.test").expect("a field");
    assert!(international(&with) && !written(&with).contains("Desk"));
    let mut raw =
        Draft { from: with.from.clone(), recipients: with.recipients.clone(), ..Draft::default() };
    raw.add_field("Sender", "d@x.test").expect("a field");
    raw.set_raw(Bytes::from_static(b"A: b\n\n"));
    assert!(raw.compose(SystemTime::now()).is_err());
}

#[test]
fn a_mail_with_hidden_recipients_only_gets_a_placeholder() {
    let mut draft = draft();
    draft.recipients.retain(|one| one.kind == Kind::Bcc);
    let written = written(&draft);
    assert!(written.contains("To: undisclosed-recipients:;\n") && !written.contains("secret"));
}
