//! A conversation with a server, over any stream (RFC 5321).
//!
//! Invariants
//! - Nothing is sent while there are unexpected bytes to read: a server that replies out of turn is not trusted.
//! - The end of a message is announced to the witness before its first byte is sent, and nothing else of it is sent
//!   twice.
//! - A session can send another message only if the server's last reply was to our last command.

mod line;

use std::fmt::Write as _;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use self::line::Line;
use crate::auth::{Exchange, choose};
use crate::{Capabilities, Credentials, Phase, Reader, Reply, Trouble};

/// How long a server may be silent (RFC 5321, 4.5.3.2).
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The time until the greeting.
    pub greeting: Duration,
    /// To a command.
    pub command: Duration,
    /// To DATA.
    pub data: Duration,
    /// Taking a block of the message.
    pub block: Duration,
    /// The time after the final dot.
    pub end: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            greeting: Duration::from_mins(5),
            command: Duration::from_mins(5),
            data: Duration::from_mins(2),
            block: Duration::from_mins(3),
            end: Duration::from_mins(10),
        }
    }
}

impl Times {
    /// Returns the same limit for everything.
    pub const fn all(limit: Duration) -> Self {
        Self { greeting: limit, command: limit, data: limit, block: limit, end: limit }
    }

    const fn of(&self, phase: Phase) -> Duration {
        match phase {
            Phase::Greeting => self.greeting,
            Phase::Data => self.data,
            Phase::Message => self.block,
            Phase::End => self.end,
            _ => self.command,
        }
    }
}

/// Sender, recipients, and the parameters that the server gets before the message.
#[derive(Clone, Debug, Default)]
pub struct Envelope {
    /// `local@domain`; empty: the null reverse-path.
    pub from: String,
    /// `local@domain` each.
    pub recipients: Vec<String>,
    /// Bytes.
    pub size: u64,
    /// Whether the message contains bytes above 127.
    pub eight_bit: bool,
    /// Whether addresses or fields contain such bytes.
    pub international: bool,
    /// Whether it is sent to accepted recipients if others were rejected.
    pub allow_fails: bool,
    /// The requested delivery notifications, if the server supports them.
    pub dsn: Dsn,
}

/// Delivery status notifications (RFC 3461).
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Dsn {
    /// `NEVER`, or of `SUCCESS`, `FAILURE`, `DELAY` those wished, joined by commas; empty: as the server does.
    pub notify: String,
    /// `FULL` or `HDRS`; empty: as the server does.
    pub ret: String,
}

/// Observes how far a message was sent, as it happens.
pub trait Witness {
    /// A recipient was answered.
    fn recipient(&self, at: usize, reply: &Reply);
    /// From now on it is unknown whether the message was accepted, until the reply arrives.
    fn final_dot(&self);
    /// This number of bytes of the message was sent.
    fn sent(&self, bytes: usize);
}

/// The outcome of STARTTLS.
#[derive(Debug)]
pub enum Upgraded<S> {
    /// TLS begins on this stream.
    Ready(S),
    /// The server refuses; the session continues unchanged.
    Refused(Session<S>, Reply),
}

/// A conversation.
#[derive(Debug)]
pub struct Session<S> {
    stream: S,
    input: BytesMut,
    can: Capabilities,
    times: Times,
    /// Replies that are owed, or a fault: it is good for nothing more.
    owed: bool,
}

/// Commands that are sent without waiting for replies between: those fit into any socket's buffers.
const AT_ONCE: usize = 100;
/// A command is sent with more to it only within this (RFC 5321, 4.5.3.1.4).
const COMMAND: usize = 512;
/// Steps of a login.
const STEPS: usize = 8;
/// How long a reply is awaited from a server that has closed the connection.
const LAST_WORDS: Duration = Duration::from_millis(500);

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    /// Creates a session before its first reply.
    pub fn new(stream: S, times: Times) -> Self {
        let can = Capabilities::default();
        Self { stream, input: BytesMut::with_capacity(1024), can, times, owed: true }
    }

    /// Returns the capabilities of the server.
    pub fn can(&self) -> &Capabilities {
        &self.can
    }

    /// The stream below.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Other limits from here on.
    pub fn set_times(&mut self, times: Times) {
        self.times = times;
    }

    /// Another message may be sent.
    pub fn is_settled(&self) -> bool {
        !self.owed && self.input.is_empty()
    }

    /// Returns whether the server has neither closed nor sent anything since its last reply, as far as is known here.
    pub fn is_quiet(&mut self) -> bool {
        let mut byte = [0; 1];
        let mut buffer = ReadBuf::new(&mut byte);
        let mut context = Context::from_waker(Waker::noop());
        self.is_settled()
            && Pin::new(&mut self.stream).poll_read(&mut context, &mut buffer).is_pending()
    }

    /// Hears the greeting.
    pub async fn greet(&mut self) -> Result<(), Trouble> {
        let reply = self.reply(Phase::Greeting).await?;
        if reply.code == 220 { Ok(()) } else { Err(refused(Phase::Greeting, reply)) }
    }

    /// Introduces the client and reads the capabilities. `plain`: HELO suffices if EHLO is unknown.
    pub async fn hello(&mut self, name: &str, plain: bool) -> Result<(), Trouble> {
        self.can = Capabilities::default();
        self.command(&format!("EHLO {name}\r\n"), Phase::Hello).await?;
        let reply = self.reply(Phase::Hello).await?;
        if reply.is_good() {
            self.can = Capabilities::of(&reply);
        } else if plain && (500..600).contains(&reply.code) {
            self.command(&format!("HELO {name}\r\n"), Phase::Hello).await?;
            let reply = self.reply(Phase::Hello).await?;
            if !reply.is_good() {
                return Err(refused(Phase::Hello, reply));
            }
        } else {
            return Err(refused(Phase::Hello, reply));
        }
        self.owed = false;
        Ok(())
    }

    /// Asks for TLS. Its handshake is the caller's; behind it there is a new session, and a new EHLO.
    pub async fn start_tls(mut self) -> Result<Upgraded<S>, Trouble> {
        self.command("STARTTLS\r\n", Phase::StartTls).await?;
        let reply = self.reply(Phase::StartTls).await?;
        // Bytes behind this reply were not sent under TLS, and would be taken for TLS data (CVE-2011-0411 and similar
        // ones).
        if !self.input.is_empty() {
            return Err(Trouble::Injected);
        }
        match reply.code {
            220 => Ok(Upgraded::Ready(self.stream)),
            400..600 if !reply.is_goodbye() => {
                self.owed = false;
                Ok(Upgraded::Refused(self, reply))
            }
            _ => Err(refused(Phase::StartTls, reply)),
        }
    }

    /// Logs in. `protected`: over TLS.
    pub async fn log_in(
        &mut self,
        credentials: &Credentials,
        protected: bool,
    ) -> Result<(), Trouble> {
        let mechanism = choose(credentials, &self.can.mechanisms, protected)?;
        let mut exchange = Exchange::new(mechanism, credentials)?;
        let bare = format!("AUTH {}\r\n", mechanism.word());
        let initial = exchange.initial().map(|bytes| STANDARD.encode(bytes));
        let command = match initial {
            Some(initial) if bare.len() + 1 + initial.len() <= COMMAND => {
                format!("AUTH {} {initial}\r\n", mechanism.word())
            }
            _ => {
                exchange = Exchange::new(mechanism, credentials)?;
                bare
            }
        };
        self.owed = true;
        self.command(&command, Phase::Login).await?;
        for _ in 0..STEPS {
            let reply = self.reply(Phase::Login).await?;
            match reply.code {
                334 => {
                    let challenge = STANDARD.decode(reply.text.trim());
                    let what = "a challenge that is not Base64";
                    let rubbish = |_not| Trouble::Rubbish { phase: Phase::Login, what };
                    let answer = exchange.answer(&challenge.map_err(rubbish)?)?;
                    self.command(&format!("{}\r\n", STANDARD.encode(answer)), Phase::Login).await?;
                }
                235 if exchange.is_proven() => {
                    self.owed = false;
                    return Ok(());
                }
                235 => return Err(Trouble::Impostor),
                _ => return Err(refused(Phase::Login, reply)),
            }
        }
        Err(Trouble::NoLogin("the server does not come to an end".to_owned()))
    }

    /// Sends a message. `again`: the session has carried one, which is forgotten first. The reply is the server's yes.
    pub async fn send(
        &mut self,
        envelope: &Envelope,
        message: Reader,
        witness: &impl Witness,
        again: bool,
    ) -> Result<Reply, Trouble> {
        let mut commands = Vec::with_capacity(envelope.recipients.len() + 2);
        if again {
            commands.push((Phase::Reset, "RSET\r\n".to_owned()));
        }
        commands.push((Phase::Sender, self.mail(envelope)?));
        for recipient in &envelope.recipients {
            commands.push((Phase::Recipient, self.rcpt(recipient, &envelope.dsn)));
        }
        self.owed = true;
        self.introduce(&commands, envelope, witness).await?;
        self.owed = true;
        self.command("DATA\r\n", Phase::Data).await?;
        let reply = self.reply(Phase::Data).await?;
        if reply.code != 354 {
            self.owed = reply.is_good() || reply.is_goodbye();
            return Err(refused(Phase::Data, reply));
        }
        self.body(message, witness).await?;
        let reply = self.reply(Phase::End).await?;
        self.owed = reply.is_goodbye();
        if reply.is_good() { Ok(reply) } else { Err(refused(Phase::End, reply)) }
    }

    fn mail(&self, envelope: &Envelope) -> Result<String, Trouble> {
        let mut command = format!("MAIL FROM:<{}>", envelope.from);
        if let Some(limit) = self.can.size {
            if limit > 0 && limit < envelope.size {
                return Err(Trouble::TooLarge { size: envelope.size, limit });
            }
            write!(command, " SIZE={}", envelope.size).expect("a text takes all that is written");
        }
        if envelope.eight_bit {
            if !self.can.eight_bit {
                return Err(Trouble::Unsupported("8BITMIME"));
            }
            command.push_str(" BODY=8BITMIME");
        }
        let addresses = std::iter::once(&envelope.from).chain(&envelope.recipients);
        if envelope.international || !addresses.into_iter().all(|address| address.is_ascii()) {
            if !self.can.utf8 {
                return Err(Trouble::Unsupported("SMTPUTF8"));
            }
            command.push_str(" SMTPUTF8");
        }
        if self.can.dsn && !envelope.dsn.ret.is_empty() {
            command.push_str(" RET=");
            command.push_str(&envelope.dsn.ret);
        }
        command.push_str("\r\n");
        Ok(command)
    }

    fn rcpt(&self, recipient: &str, dsn: &Dsn) -> String {
        if self.can.dsn && !dsn.notify.is_empty() {
            return format!("RCPT TO:<{recipient}> NOTIFY={}\r\n", dsn.notify);
        }
        format!("RCPT TO:<{recipient}>\r\n")
    }

    /// Sends everything before DATA. DATA waits: after it, with one recipient accepted, only closing the connection
    /// would keep the message from some recipients.
    async fn introduce(
        &mut self,
        commands: &[(Phase, String)],
        envelope: &Envelope,
        witness: &impl Witness,
    ) -> Result<(), Trouble> {
        let at_once = if self.can.pipelining { AT_ONCE } else { 1 };
        let mut answered = 0;
        let mut accepted = 0;
        // The decisive one of the refused recipients: the first permanent refusal.
        let mut worst: Option<Reply> = None;
        for group in commands.chunks(at_once) {
            let first = group.first().map_or(Phase::Sender, |(phase, _)| *phase);
            let said: String = group.iter().map(|(_, command)| command.as_str()).collect();
            self.command(&said, first).await?;
            let mut refusal = None;
            for (phase, _) in group {
                let reply = self.reply(*phase).await?;
                if reply.is_goodbye() {
                    return Err(refused(*phase, reply));
                }
                match phase {
                    // Commands after a refused sender are refused, too.
                    _ if refusal.is_some() => {}
                    Phase::Recipient => {
                        witness.recipient(answered, &reply);
                        answered += 1;
                        match reply.code {
                            200..300 => accepted += 1,
                            400..600 => {
                                if worst.as_ref().is_none_or(|worst| {
                                    worst.is_transient() && !reply.is_transient()
                                }) {
                                    worst = Some(reply);
                                }
                            }
                            _ => return Err(refused(*phase, reply)),
                        }
                    }
                    _ if reply.is_good() => {}
                    _ if (400..600).contains(&reply.code) => refusal = Some((*phase, reply)),
                    _ => return Err(refused(*phase, reply)),
                }
            }
            if let Some((phase, reply)) = refusal {
                // One that does not forget its last message is good for no other.
                self.owed = phase == Phase::Reset;
                return Err(refused(phase, reply));
            }
        }
        self.owed = false;
        match worst {
            Some(reply) if accepted == 0 || !envelope.allow_fails => {
                Err(Trouble::Recipients { reply })
            }
            _ => Ok(()),
        }
    }

    /// The message with its dots (RFC 5321, 4.5.2), and the final one.
    async fn body(&mut self, mut message: Reader, witness: &impl Witness) -> Result<(), Trouble> {
        let mut line = Line::default();
        let mut out = Vec::new();
        while let Some(piece) = message.next().await.map_err(Trouble::Source)? {
            out.clear();
            line.stuff(&piece, &mut out);
            for block in out.chunks(64 << 10) {
                self.write(block, Phase::Message).await?;
                witness.sent(block.len());
            }
        }
        let end: &[u8] = if line.at_start() { b".\r\n" } else { b"\r\n.\r\n" };
        witness.final_dot();
        self.write(end, Phase::End).await
    }

    /// Sends one or several commands.
    async fn command(&mut self, commands: &str, phase: Phase) -> Result<(), Trouble> {
        if !self.input.is_empty() {
            return Err(Trouble::Rubbish { phase, what: "an unexpected reply" });
        }
        self.write(commands.as_bytes(), phase).await
    }

    async fn write(&mut self, bytes: &[u8], phase: Phase) -> Result<(), Trouble> {
        let limit = self.times.of(phase);
        let stream = &mut self.stream;
        let write = async {
            stream.write_all(bytes).await?;
            stream.flush().await
        };
        match tokio::time::timeout(limit, write).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                // The server's reply before it closed is more informative. Not after the final dot: that reply may be
                // to another command.
                let last = tokio::time::timeout(LAST_WORDS, self.reply(phase));
                match last.await {
                    Ok(Ok(reply)) if phase != Phase::End && reply.code >= 400 => {
                        Err(Trouble::Refused { phase, reply })
                    }
                    _ => Err(Trouble::Broken { phase, error }),
                }
            }
            Err(_late) => Err(Trouble::Silent { phase, after: limit }),
        }
    }

    async fn reply(&mut self, phase: Phase) -> Result<Reply, Trouble> {
        let limit = self.times.of(phase);
        let Self { stream, input, .. } = self;
        let read = async {
            loop {
                let rubbish = |what| Trouble::Rubbish { phase, what };
                if let Some(reply) = Reply::take(input).map_err(rubbish)? {
                    return Ok(reply);
                }
                match stream.read_buf(input).await {
                    Ok(0) => return Err(Trouble::Closed { phase }),
                    Ok(_) => {}
                    // A server that closes TLS without a word has closed.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        return Err(Trouble::Closed { phase });
                    }
                    Err(error) => return Err(Trouble::Broken { phase, error }),
                }
            }
        };
        match tokio::time::timeout(limit, read).await {
            Ok(result) => result,
            Err(_late) => Err(Trouble::Silent { phase, after: limit }),
        }
    }

    /// Says goodbye, without waiting for an answer longer than this moment, and closes.
    pub async fn quit(mut self) {
        let goodbye = async {
            if self.is_settled() {
                self.stream.write_all(b"QUIT\r\n").await?;
            }
            self.stream.shutdown().await
        };
        let mut goodbye = pin!(goodbye);
        // One look: a peer that takes nothing does not hold us up.
        poll_fn(|cx| match goodbye.as_mut().poll(cx) {
            Poll::Ready(_) | Poll::Pending => Poll::Ready(()),
        })
        .await;
    }
}

/// A reply that is a refusal, or none that fits here.
fn refused(phase: Phase, reply: Reply) -> Trouble {
    if reply.code >= 400 {
        Trouble::Refused { phase, reply }
    } else {
        Trouble::Rubbish { phase, what: "a reply that does not fit" }
    }
}

#[cfg(test)]
#[path = "session/tests.rs"]
mod tests;
