//! `RESET` forgets the login, and clients of a connector that logs in know no password: behind each `RESET` of theirs the connector says its
//! own login again, and keeps the answer to itself. Of a client that has gone it is known here whether it stopped in the midst of a command, whose
//! rest would be whatever is said next, and whether it was owed an answer: a pop that waits would take for nobody what is pushed meanwhile.
//!
//! Invariants
//! - Every other byte goes through as it is, in its order.
//! - The answer that is kept back is the `+OK` behind the `+RESET` of a `RESET` that a client has sent. Another one ends the session: it would
//!   be nobody's.
//! - Without I/O: bytes in, bytes out.
//!
//! <https://redis.io/docs/latest/develop/reference/protocol-spec/>

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Values within values; deeper ones are not followed.
const DEPTH: usize = 32;
/// Of a line as much as is looked at.
const LINE: usize = 32;

/// The server does not let the connector in any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LoginLost;

/// Both ways of one client.
#[derive(Debug)]
pub(crate) struct Relogin {
    pub up: Upwards,
    pub down: Downwards,
    pub due: Due,
}

/// What the server has not answered.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// `RESET`s that were sent.
    resets: AtomicUsize,
    /// Commands that were sent. Subscriptions answer more than they are asked, which counts for none: pushes are no answers. In RESP3 nothing else
    /// answers them: who has subscribed there costs a session.
    answers: AtomicUsize,
}

/// The command that logs in, made when the first `RESET` comes: most clients never send one, and the password may lie in a file. `None`: it
/// cannot be read; a `RESET` leaves the session without a login then, as the client finds out.
type LateLogin = LazyLock<Option<Vec<u8>>, Box<dyn FnOnce() -> Option<Vec<u8>> + Send>>;

/// What the client says.
pub(crate) struct Upwards {
    login: LateLogin,
    values: Values,
    /// The command that is being read has one word.
    alone: bool,
    /// One was sent of which `RESET` leaves something.
    stays: bool,
}

impl fmt::Debug for Upwards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // There is a password in it.
        f.write_str("Upwards")
    }
}

/// What the server answers.
#[derive(Debug)]
pub(crate) struct Downwards {
    values: Values,
    /// The value that is being read is no answer.
    pushed: bool,
    /// The answer to the connector's own login is next; as much of it as has come.
    own: Option<Vec<u8>>,
}

impl Relogin {
    /// `login`: makes the command that logs in.
    pub(crate) fn new(login: impl FnOnce() -> Option<Vec<u8>> + Send + 'static) -> Self {
        let login: LateLogin = LazyLock::new(Box::new(login));
        Self {
            up: Upwards { login, values: Values::of_commands(), alone: false, stays: false },
            down: Downwards { values: Values::default(), pushed: false, own: None },
            due: Due::default(),
        }
    }

    /// Nothing is half sent or under way, as far as anybody can know.
    pub(crate) fn is_whole(&self) -> bool {
        self.up.is_whole() && self.due.answers.load(Ordering::Relaxed) == 0
    }
}

impl Upwards {
    fn is_whole(&self) -> bool {
        self.values.is_at_rest() && !self.stays
    }

    /// What of the client's bytes becomes of the server's.
    pub(crate) fn follow<'a>(&mut self, bytes: &'a [u8], due: &Due) -> Cow<'a, [u8]> {
        let mut out = Cow::Borrowed(&bytes[..0]);
        let mut from = 0;
        let mut at = 0;
        while at < bytes.len() {
            let (took, step) = self.values.take(&bytes[at..]);
            at += took;
            let is_reset = match step {
                Step::More => false,
                Step::Opened => {
                    self.values.command_begins();
                    self.alone = self.values.is_line(b"*1");
                    self.values.text.clear();
                    false
                }
                // In an array of one, or in a line of its own ("inline command").
                Step::Value => {
                    let text = &self.values.text;
                    let inline = self.values.line.trim_ascii();
                    (self.alone && text.eq_ignore_ascii_case(b"RESET"))
                        || inline.eq_ignore_ascii_case(b"RESET")
                }
            };
            if is_reset && let Some(login) = &*self.login {
                due.resets.fetch_add(1, Ordering::Relaxed);
                let out = out.to_mut();
                out.extend_from_slice(&bytes[from..at]);
                out.extend_from_slice(login);
                from = at;
            }
            if step == Step::Value {
                self.stays |= self.values.stays();
                self.values.command_begins();
                self.alone = false;
                due.answers.fetch_add(1, Ordering::Relaxed);
            }
        }
        if from == 0 {
            return Cow::Borrowed(bytes);
        }
        out.to_mut().extend_from_slice(&bytes[from..]);
        out
    }
}

impl Downwards {
    /// What of the server's bytes the client is to hear.
    pub(crate) fn follow<'a>(
        &mut self,
        bytes: &'a [u8],
        due: &Due,
    ) -> Result<Cow<'a, [u8]>, LoginLost> {
        const OK: &[u8] = b"+OK\r\n";
        let mut out = Cow::Borrowed(&bytes[..0]);
        let mut from = 0;
        let mut at = 0;
        while at < bytes.len() {
            if let Some(own) = &mut self.own {
                let rest = bytes.len() - at;
                let more = (OK.len() - own.len()).min(rest);
                own.extend_from_slice(&bytes[at..at + more]);
                if !OK.starts_with(own) {
                    return Err(LoginLost);
                }
                if own.len() == OK.len() {
                    self.own = None;
                }
                out.to_mut().extend_from_slice(&bytes[from..at]);
                at += more;
                from = at;
                continue;
            }
            let (took, step) = self.values.take(&bytes[at..]);
            at += took;
            if step == Step::Opened {
                self.pushed = self.values.line.starts_with(b">");
            }
            if step == Step::Value && !std::mem::take(&mut self.pushed) {
                one_less(&due.answers);
            }
            let is_reset = step == Step::Value && self.values.is_line(b"+RESET");
            if is_reset && one_less(&due.resets) {
                self.own = Some(Vec::new());
            }
        }
        if from == 0 {
            return Ok(Cow::Borrowed(bytes));
        }
        out.to_mut().extend_from_slice(&bytes[from..]);
        Ok(out)
    }
}

/// Whether there was one.
fn one_less(count: &AtomicUsize) -> bool {
    let less = |count: usize| count.checked_sub(1);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
}

/// What has been read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing that anybody looks at.
    More,
    /// The line of an outermost value that has others inside.
    Opened,
    /// An outermost value.
    Value,
}

/// Commands of whose kind `RESET` leaves some, in Redis 7.0. A session that debugs scripts answers any of them wrongly.
#[derive(Clone, Copy, Debug)]
enum Family {
    Script,
    Client,
}

impl Family {
    fn of(word: &[u8]) -> Option<Self> {
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        if is(b"SCRIPT") {
            return Some(Self::Script);
        }
        is(b"CLIENT").then_some(Self::Client)
    }

    fn stays(self, word: &[u8]) -> bool {
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        match self {
            Self::Script => is(b"DEBUG"),
            Self::Client => is(b"NO-EVICT") || is(b"NO-TOUCH"),
        }
    }
}

/// One direction: values of RESP2 and RESP3, commands included.
#[derive(Debug, Default)]
struct Values {
    /// Only arrays of strings and lines, as servers read what clients send: outside of an array everything but `*` begins a line.
    commands: bool,
    /// The beginning of the line that was read last, without its end.
    line: Vec<u8>,
    /// Its length.
    line_len: usize,
    /// It is complete: the next byte begins another one.
    ended: bool,
    /// Bytes of a string that have not come, with its end.
    skip: u64,
    /// The string that was read last; of one that is longer than anything that is looked for, nothing.
    text: Vec<u8>,
    /// Bytes of it that have not come.
    wanted: usize,
    /// Of a command: how many words were read, the first, and whether `RESET` leaves what it does.
    words: usize,
    family: Option<Family>,
    stays: bool,
    /// How many values each that is open still has.
    open: Vec<u64>,
    /// Nobody knows any more where values begin.
    lost: bool,
}

impl Values {
    fn of_commands() -> Self {
        Self { commands: true, ..Self::default() }
    }

    /// Between two outermost values.
    fn is_at_rest(&self) -> bool {
        !self.lost && self.skip == 0 && self.open.is_empty() && (self.ended || self.line_len == 0)
    }

    fn is_line(&self, line: &[u8]) -> bool {
        self.line == line
    }

    fn command_begins(&mut self) {
        self.words = 0;
        self.family = None;
        self.stays = false;
    }

    fn look_at_word(&mut self) {
        match self.words {
            0 => self.family = Family::of(&self.text),
            1 => self.stays = self.family.is_some_and(|family| family.stays(&self.text)),
            _ => {}
        }
        self.words += 1;
    }

    /// Whether `RESET` leaves what the command does that was read last.
    fn stays(&self) -> bool {
        let mut inline = self.line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let family = inline.next().and_then(Family::of);
        self.stays || family.zip(inline.next()).is_some_and(|(family, word)| family.stays(word))
    }

    /// Takes bytes, at least one, until there is something to look at. How many.
    fn take(&mut self, bytes: &[u8]) -> (usize, Step) {
        if self.lost {
            return (bytes.len(), Step::More);
        }
        if self.skip > 0 {
            let took = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
            let wanted = took.min(self.wanted);
            self.text.extend_from_slice(&bytes[..wanted]);
            self.wanted -= wanted;
            self.skip -= took as u64;
            if self.skip > 0 {
                return (took, Step::More);
            }
            if self.commands {
                self.look_at_word();
            }
            return (took, self.value_ends());
        }
        if std::mem::take(&mut self.ended) {
            self.line.clear();
            self.line_len = 0;
        }
        let end = memchr::memchr(b'\n', bytes);
        let took = end.map_or(bytes.len(), |end| end + 1);
        let room = LINE.saturating_sub(self.line.len());
        self.line.extend_from_slice(&bytes[..took.min(room)]);
        self.line_len += took;
        if end.is_none() {
            return (took, Step::More);
        }
        self.ended = true;
        if self.line_len <= LINE {
            let line = self.line.trim_ascii_end().len();
            self.line.truncate(line);
        }
        (took, self.line_ends())
    }

    fn line_ends(&mut self) -> Step {
        let number = || -> Option<i64> { str::from_utf8(self.line.get(1..)?).ok()?.parse().ok() };
        match self.line.first() {
            Some(kind) if self.commands && self.open.is_empty() && *kind != b'*' => {
                self.value_ends()
            }
            Some(kind) if self.commands && !self.open.is_empty() && *kind != b'$' => self.lose(),
            Some(b'$' | b'=' | b'!') => match number() {
                Some(length @ 0..) => {
                    let length = length.cast_unsigned();
                    self.text.clear();
                    self.wanted = usize::try_from(length).ok().filter(|n| *n <= LINE).unwrap_or(0);
                    self.skip = length.saturating_add(2);
                    Step::More
                }
                Some(_) => self.value_ends(),
                None => self.lose(),
            },
            Some(kind @ (b'*' | b'~' | b'>' | b'%' | b'|')) => match number() {
                Some(count @ 1..) if self.open.len() < DEPTH => {
                    let outermost = self.open.is_empty();
                    let each = if matches!(kind, b'%' | b'|') { 2 } else { 1 };
                    // An attribute comes before the value that it belongs to, which is one more.
                    let own = u64::from(*kind == b'|');
                    let inside = count.cast_unsigned().saturating_mul(each).saturating_add(own);
                    self.open.push(inside);
                    if outermost { Step::Opened } else { Step::More }
                }
                Some(1..) | None => self.lose(),
                Some(_) => self.value_ends(),
            },
            // Everything else is a line: simple values, and inline commands. An empty one is nothing.
            Some(_) => self.value_ends(),
            None => Step::More,
        }
    }

    fn value_ends(&mut self) -> Step {
        while let Some(left) = self.open.last_mut() {
            *left -= 1;
            if *left > 0 {
                return Step::More;
            }
            self.open.pop();
        }
        Step::Value
    }

    fn lose(&mut self) -> Step {
        self.lost = true;
        Step::More
    }
}

#[cfg(test)]
mod tests;
