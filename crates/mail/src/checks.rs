//! Properties for any replies of a server, checked by a fuzz target and by proptest.

#![cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "public for the fuzz target only"))]

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    Address, Capabilities, Credentials, Draft, Envelope, Kind, Message, Recipient, Reply, Secret,
    Session, Times, Trouble, Upgraded, Witness,
};

/// Replies do not depend on how their bytes arrive, contain nothing that could end a line of ours, and are never larger
/// than their bytes.
pub(crate) fn replies(input: &[u8]) {
    let all = read(input, usize::MAX);
    for piece in [1, 7] {
        assert_eq!(read(input, piece), all, "in pieces of {piece}");
    }
    for reply in &all.0 {
        assert!((200..600).contains(&reply.code), "{reply:?}");
        let controls = reply.text.chars().filter(|c| c.is_control() && !"\n\t".contains(*c));
        assert_eq!(controls.count(), 0, "{reply:?}");
        let can = Capabilities::of(reply);
        let words: usize = can.mechanisms.iter().map(String::len).sum();
        // A letter in upper case may be three.
        assert!(words <= reply.text.len() * 3, "{can:?}");
        if let Some(enhanced) = reply.enhanced() {
            assert!(reply.text.starts_with(enhanced));
        }
    }
}

/// Replies, whether the rest is none, and how much was left.
fn read(bytes: &[u8], piece: usize) -> (Vec<Reply>, Option<&'static str>) {
    let (mut input, mut replies) = (BytesMut::new(), Vec::new());
    for part in bytes.chunks(piece.min(bytes.len().max(1))) {
        input.extend_from_slice(part);
        loop {
            match Reply::take(&mut input) {
                Ok(Some(reply)) => replies.push(reply),
                Ok(None) => break,
                // Where the end of a line that is too long is not there yet it is told in other words.
                Err(why) => {
                    return (replies, Some(if why.contains("reply") { "long" } else { why }));
                }
            }
        }
    }
    (replies, None)
}

/// A server that says these bytes, a line at each look, and takes everything.
struct Server<'a> {
    says: &'a [u8],
    heard: Vec<u8>,
}

impl AsyncRead for Server<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let line =
            self.says.iter().position(|byte| *byte == b'\n').map_or(self.says.len(), |at| at + 1);
        let (now, later) = self.says.split_at(line.min(buffer.remaining()));
        buffer.put_slice(now);
        self.says = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Server<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.heard.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[derive(Default)]
struct Dots(Cell<u32>);

impl Witness for Dots {
    fn recipient(&self, at: usize, _reply: &Reply) {
        assert!(at < 2, "there are two recipients");
    }
    fn final_dot(&self) {
        self.0.set(self.0.get() + 1);
    }
    fn sent(&self, _bytes: usize) {}
}

fn message() -> Message {
    let address = |text| Address::parse(text).expect("an address");
    let mut draft = Draft {
        from: Some(address("a@x.test")),
        recipients: vec![
            Recipient { kind: Kind::To, address: address("b@x.test") },
            Recipient { kind: Kind::Bcc, address: address("c@x.test") },
        ],
        ..Draft::default()
    };
    draft.set_raw("A: b\n\n.\n..x\ny.".into());
    draft.compose(SystemTime::now()).expect("a message")
}

/// Any output of a server, from the greeting to the reply to the final dot. The session ends, each of our lines is one
/// line, and no password is sent without TLS. A message counts as accepted only if its end was announced, once.
pub(crate) fn conversation(input: &[u8]) {
    let (flags, says) = input.split_first().unwrap_or((&0, &[]));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let server = Server { says, heard: Vec::new() };
    let mut session = Session::new(server, Times::all(Duration::from_mins(1)));
    let dots = Dots::default();
    let spoken = runtime.expect("a runtime").block_on(speak(&mut session, *flags, &dots));
    let heard = String::from_utf8_lossy(&session.stream().heard).into_owned();
    assert!(heard.is_empty() || heard.ends_with("\r\n"), "{heard:?}");
    assert_eq!(heard.matches('\n').count(), heard.matches("\r\n").count(), "{heard:?}");
    for secret in ["Open Sesame", "T3BlbiBTZXNhbWU"] {
        assert!(!heard.contains(secret), "{heard:?}");
    }
    assert!(dots.0.get() <= 1);
    match spoken {
        Ok(Some(reply)) => {
            assert!((200..300).contains(&reply.code) && dots.0.get() == 1, "{reply:?} {heard:?}");
            assert!(heard.ends_with("\r\ny.\r\n.\r\n"), "{heard:?}");
        }
        Ok(None) => assert!(dots.0.get() == 0),
        Err(Trouble::Silent { .. }) => panic!("the server was not silent: {heard:?}"),
        Err(_) => {}
    }
}

async fn speak(
    session: &mut Session<Server<'_>>,
    flags: u8,
    dots: &Dots,
) -> Result<Option<Reply>, Trouble> {
    session.greet().await?;
    session.hello("me", flags & 1 == 1).await?;
    if flags & 2 == 2 {
        let rest = session.stream().says;
        let other = Session::new(Server { says: rest, heard: Vec::new() }, Times::default());
        let before = rest.len();
        return match other.start_tls().await? {
            Upgraded::Ready(stream) => {
                assert!(stream.says.len() < before, "it has said something");
                Ok(None)
            }
            Upgraded::Refused(other, reply) => {
                assert!(other.is_settled() && reply.code >= 400);
                Ok(None)
            }
        };
    }
    if flags & 4 == 4 {
        let credentials = Credentials {
            user: "ann".to_owned(),
            secret: "Open Sesame".to_owned(),
            kind: if flags & 8 == 8 { Secret::Hidden } else { Secret::Password },
            allowed: Vec::new(),
            in_plain: false,
        };
        session.log_in(&credentials, false).await?;
    }
    let message = message();
    let envelope = Envelope {
        from: "a@x.test".to_owned(),
        recipients: vec!["b@x.test".to_owned(), "c@x.test".to_owned()],
        size: message.size(),
        allow_fails: flags & 16 == 16,
        ..Envelope::default()
    };
    session.send(&envelope, message.reader(), dots, flags & 32 == 32).await.map(Some)
}

/// Checks replies and a conversation, as the fuzz target does.
pub fn server(input: &[u8]) {
    replies(input);
    conversation(input);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs what is committed for the fuzz target.
    #[test]
    fn the_committed_corpus_passes() {
        let folder =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/mail_server");
        let files: Vec<_> = std::fs::read_dir(folder).expect("a folder").collect();
        assert!(files.len() > 5, "{} inputs", files.len());
        for file in files {
            server(&std::fs::read(file.expect("a file").path()).expect("its bytes"));
        }
    }

    #[test]
    fn a_message_is_sent_when_all_steps_succeed() {
        let says = "220 x\r\n250-x\r\n250 PIPELINING\r\n250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n250 taken\r\n";
        let mut session = Session::new(
            Server { says: says.as_bytes(), heard: Vec::new() },
            Times::all(Duration::from_mins(1)),
        );
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let reply = runtime.expect("a runtime").block_on(speak(&mut session, 0, &Dots::default()));
        assert_eq!(reply.expect("no trouble").expect("a reply").text, "taken");
    }

    proptest! {
        #[test]
        fn any_bytes_are_accepted_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            server(&bytes);
        }

        #[test]
        fn conversations_that_resemble_valid_ones(
            flags in any::<u8>(),
            says in "220 x\r\n250(-x\r\n250-(AUTH CRAM-MD5 SCRAM-SHA-256 PLAIN|PIPELINING|SIZE [0-9]{1,4}|DSN)\r\n250)? x\r\n\
                (([2345][0-9]{2}|334|354|250|235)[ -]?[!-~ ]{0,12}(\r\n|\n)){0,9}",
        ) {
            server(&[&[flags], says.as_bytes()].concat());
        }
    }
}
