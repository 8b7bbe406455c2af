//! Repeats the login after a client's `RESET`, because clients of a connector with a login know no password. The
//! connector sends its login after each `RESET` and removes the response. It also tracks whether a disconnected
//! client stopped within a command, whose rest would be the next client's data, and whether a response was
//! outstanding: a blocking pop would take later pushes.
//!
//! Invariants
//! - Every other byte passes unchanged and in order.
//! - The removed response is the `+OK` after the `+RESET` of a client's `RESET`. Any other response ends the session,
//!   because it would be logged out.
//! - No I/O: takes bytes, returns bytes.
//!
//! <https://redis.io/docs/latest/develop/reference/protocol-spec/>

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum nesting of values; deeper ones are not tracked.
const DEPTH: usize = 32;
/// Maximum number of bytes of a line that are checked.
const LINE: usize = 32;

/// The error when the server rejects the connector's login.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LoginLost;

/// Both directions of one client.
#[derive(Debug)]
pub(crate) struct Relogin {
    pub up: Upwards,
    pub down: Downwards,
    pub due: Due,
}

/// Responses that the server still owes.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Number of `RESET`s sent.
    resets: AtomicUsize,
    /// Number of commands sent. Subscriptions cause more messages than commands; these count for nothing, because
    /// pushes are no responses. In RESP3 subscriptions get only pushes, so a client that subscribed there costs a
    /// session.
    answers: AtomicUsize,
}

/// The login command, created at the first `RESET`: most clients never send one, and the password may be in a file.
/// `None` if it cannot be read; a `RESET` then leaves the session without a login.
type LateLogin = LazyLock<Option<Vec<u8>>, Box<dyn FnOnce() -> Option<Vec<u8>> + Send>>;

/// The client's direction.
pub(crate) struct Upwards {
    login: LateLogin,
    values: Values,
    /// The command being read has one word.
    alone: bool,
    /// A command was sent whose effect `RESET` does not undo.
    stays: bool,
}

impl fmt::Debug for Upwards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The login contains a password.
        f.write_str("Upwards")
    }
}

/// The server's direction.
#[derive(Debug)]
pub(crate) struct Downwards {
    values: Values,
    /// The value being read is a push, not a response.
    pushed: bool,
    /// The received part of the response to the connector's own login, if that is next.
    own: Option<Vec<u8>>,
}

impl Relogin {
    /// Creates the filter; `login` creates the login command.
    pub(crate) fn new(login: impl FnOnce() -> Option<Vec<u8>> + Send + 'static) -> Self {
        let login: LateLogin = LazyLock::new(Box::new(login));
        Self {
            up: Upwards { login, values: Values::of_commands(), alone: false, stays: false },
            down: Downwards { values: Values::default(), pushed: false, own: None },
            due: Due::default(),
        }
    }

    /// Returns whether nothing is incomplete or outstanding, as far as that can be known.
    pub(crate) fn is_whole(&self) -> bool {
        self.up.is_whole() && self.due.answers.load(Ordering::Relaxed) == 0
    }
}

impl Upwards {
    fn is_whole(&self) -> bool {
        self.values.is_at_rest() && !self.stays
    }

    /// Returns the client's bytes as they are sent to the server.
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
                // In an array of one, or in its own line ("inline command").
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
    /// Returns the server's bytes as they are sent to the client.
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

/// Decrements a counter; returns whether it was not zero.
fn one_less(count: &AtomicUsize) -> bool {
    let less = |count: usize| count.checked_sub(1);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
}

/// The element that was read completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing relevant.
    More,
    /// The line of an outermost value that contains others.
    Opened,
    /// An outermost value.
    Value,
}

/// Command families of which `RESET` keeps some effects, in Redis 7.0. A session that debugs scripts answers any of
/// them wrongly.
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
            // The last two are Valkey's.
            Self::Client => {
                is(b"NO-EVICT") || is(b"NO-TOUCH") || is(b"CAPA") || is(b"IMPORT-SOURCE")
            }
        }
    }
}

/// The parser of one direction: values of RESP2 and RESP3, including commands.
#[derive(Debug, Default)]
struct Values {
    /// Only arrays of strings and lines, as servers parse clients' data: outside of an array everything except `*`
    /// begins a line.
    commands: bool,
    /// The beginning of the last line, without its end.
    line: Vec<u8>,
    /// Length of the line.
    line_len: usize,
    /// The line is complete: the next byte begins another one.
    ended: bool,
    /// Number of missing bytes of a string, including its end.
    skip: u64,
    /// The last string; empty if it is longer than any string of interest.
    text: Vec<u8>,
    /// Number of its missing bytes.
    wanted: usize,
    /// For a command: the number of words read, the first one, and whether `RESET` keeps its effect.
    words: usize,
    family: Option<Family>,
    stays: bool,
    /// Number of missing elements of each open value.
    open: Vec<u64>,
    /// The value boundaries are unknown.
    lost: bool,
}

impl Values {
    fn of_commands() -> Self {
        Self { commands: true, ..Self::default() }
    }

    /// Returns whether the parser is between two outermost values.
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

    /// Returns whether `RESET` keeps the effect of the last command.
    fn stays(&self) -> bool {
        let mut inline = self.line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let family = inline.next().and_then(Family::of);
        self.stays || family.zip(inline.next()).is_some_and(|(family, word)| family.stays(word))
    }

    /// Consumes at least one byte, until there is something to check. Returns the number of bytes.
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
                    // An attribute precedes the value that it belongs to, which is one more.
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
