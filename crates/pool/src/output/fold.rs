//! Repeated lines of one process: the first is logged, and a line at the end says how often it came again.
//!
//! Invariants
//! - Only a line equal to the one directly before it, of the same request, is left out; all others are logged.
//! - The number of those left out is logged before anything else of this process, and at the latest with the first repetition after
//!   [`WINDOW`].

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// The longest time that repetitions are counted without a line in the log.
const WINDOW: Duration = Duration::from_secs(10);

/// The part that two lines have in common if the second repeats the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// The level of syslog(3).
    pub(crate) level: u8,
    pub(crate) source: &'static str,
    pub(crate) request: Option<Arc<str>>,
    pub(crate) line: String,
    pub(crate) context: Option<String>,
}

/// The last line of a process, and how often it was repeated.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    last: Option<Written>,
    repeated: u64,
    since: Option<Instant>,
}

/// The lines to log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Logged {
    /// First: how often an earlier line was repeated.
    pub(crate) repeated: Option<Written>,
    /// The new line, unless it is a repetition.
    pub(crate) line: Option<Written>,
}

impl Fold {
    /// Takes a line.
    pub(crate) fn take(&mut self, written: Written, now: Instant) -> Logged {
        if self.last.as_ref() == Some(&written) {
            self.repeated += 1;
            let is_due = self.since.is_some_and(|since| now.duration_since(since) >= WINDOW);
            let repeated = if is_due { self.repetitions(now) } else { None };
            return Logged { repeated, line: None };
        }
        let repeated = self.repetitions(now);
        self.last = Some(written.clone());
        self.since = Some(now);
        Logged { repeated, line: Some(written) }
    }

    /// Returns whether there is no line that a further one could repeat.
    pub(crate) fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Returns the line about repetitions so far, and forgets the line that was repeated.
    pub(crate) fn end(&mut self, now: Instant) -> Option<Written> {
        let repeated = self.repetitions(now);
        self.last = None;
        repeated
    }

    fn repetitions(&mut self, now: Instant) -> Option<Written> {
        let last = self.last.as_ref()?;
        let (times, since) = (std::mem::take(&mut self.repeated), self.since.replace(now)?);
        let noun = if times == 1 { "time" } else { "times" };
        let seconds = now.duration_since(since).as_secs_f64();
        (times > 0).then(|| Written {
            line: format!("… repeated {times} {noun} in {seconds:.1} s: {}", beginning(&last.line)),
            context: None,
            ..last.clone()
        })
    }
}

/// The beginning of a line, to recognise it by.
fn beginning(line: &str) -> String {
    const LONGEST: usize = 80;
    let first = line.lines().next().unwrap_or_default();
    let short: String = first.chars().take(LONGEST).collect();
    if short.len() < line.len() { short + "…" } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(line: &str, request: &str) -> Written {
        let request = Some(request.into());
        Written { level: 4, source: "stderr", request, line: line.to_owned(), context: None }
    }

    fn text(logged: Logged) -> Vec<String> {
        logged.repeated.into_iter().chain(logged.line).map(|one| one.line).collect()
    }

    #[test]
    fn repeated_lines_are_counted() {
        let mut fold = Fold::default();
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        assert_eq!(text(fold.take(written("a", "1"), at(0.0))), ["a"]);
        for _ in 0..37 {
            assert_eq!(text(fold.take(written("a", "1"), at(2.0))), [""; 0]);
        }
        assert_eq!(
            text(fold.take(written("b", "1"), at(2.5))),
            ["… repeated 37 times in 2.5 s: a", "b"]
        );
        // Another request's line is no repetition.
        assert_eq!(text(fold.take(written("b", "2"), at(3.0))), ["b"]);
        assert_eq!(text(fold.take(written("b", "2"), at(4.0))), [""; 0]);
        assert_eq!(fold.end(at(5.0)).unwrap().line, "… repeated 1 time in 2.0 s: b");
        assert_eq!(fold.end(at(6.0)), None);
        assert_eq!(text(fold.take(written("b", "2"), at(7.0))), ["b"]);
        // A line that never stops is counted every ten seconds.
        assert_eq!(text(fold.take(written("b", "2"), at(8.0))), [""; 0]);
        assert_eq!(
            text(fold.take(written("b", "2"), at(17.5))),
            ["… repeated 2 times in 10.5 s: b"]
        );
        assert_eq!(fold.end(at(18.0)), None);
    }
}
