//! Decides which kept HTTP/1.1 connections of an origin may carry a call that must not be sent twice. No sockets, no clock: `now` is passed
//! in.
//!
//! Some origins close a connection soon after an answer without saying so (`Connection: close`). A request that is written in the meantime
//! is lost, and its sender cannot know whether the origin has read it. A repeatable call is sent again on another connection; any other
//! call has failed. So a call that is not repeatable uses a kept connection only when there is evidence that the origin reads on.
//!
//! Invariants
//! - A connection that has carried no call yet may carry any.
//! - An origin without a history gets a non-repeatable call over a kept connection only if the origin said that it keeps connections, or
//!   the connection is still open after [`SURVIVED`].
//! - What was learned is forgotten after a time that doubles each time it is learned again, up to [`LONGEST`].
//! - The memory is of fixed size: one record for each origin.

use std::time::Duration;

use tokio::time::Instant;

/// A connection that has been idle for this long and is open is not one that its origin closes right after an answer.
const SURVIVED: Duration = Duration::from_millis(100);
/// A connection closed by its origin within this idle time was closed early. The engine looks at idle connections once in a second.
const EARLY: Duration = Duration::from_secs(1);
/// How long an origin's first early close counts.
const FIRST: Duration = Duration::from_secs(10);
/// The longest time that an early close counts. An origin without early closes for as long again begins with [`FIRST`].
const LONGEST: Duration = Duration::from_hours(1);
/// How long the shortest idle time of an origin counts.
const IDLE_COUNTS: Duration = Duration::from_mins(10);
/// How long the HTTP/1.1 connections of an origin are not kept after it has sent unsolicited bytes.
const UNKEPT: Duration = Duration::from_hours(1);

/// The knowledge about an origin's habit to close kept connections.
#[derive(Debug, Default)]
pub(super) struct Reuse {
    /// A kept connection has carried another call, and none was closed after its first one since.
    proven: bool,
    early: Option<Early>,
    /// How often early closes were learned.
    lessons: u32,
    late: Option<Late>,
    unkept: Option<Instant>,
}

/// The origin has closed a connection within [`EARLY`] after an answer.
#[derive(Clone, Copy, Debug)]
struct Early {
    /// The fewest calls that such a connection had carried.
    calls: u64,
    until: Instant,
}

/// The origin has closed a connection after a longer idle time.
#[derive(Clone, Copy, Debug)]
struct Late {
    /// The idle time from which on a connection is not used.
    idle: Duration,
    until: Instant,
}

impl Reuse {
    /// Returns whether a call that is not repeatable may use a connection that has carried `calls` and has been idle
    /// for `idle`. `announced`: the origin's last answer on it said that it keeps the connection.
    pub(super) fn may_carry(
        &self,
        now: Instant,
        calls: u64,
        idle: Duration,
        announced: bool,
    ) -> bool {
        if calls == 0 {
            return true;
        }
        if self.early.is_some_and(|early| now < early.until && early.calls <= calls)
            || self.late.is_some_and(|late| now < late.until && late.idle <= idle)
        {
            return false;
        }
        // An origin that has closed early in spite of its word is not believed again.
        self.proven || idle >= SURVIVED || (announced && self.lessons == 0)
    }

    /// Returns whether a connection that stays open without a call would show that the origin keeps connections.
    pub(super) fn undecided(&self, now: Instant) -> bool {
        !self.proven && self.early.is_none_or(|early| early.until <= now)
    }

    /// A connection that had carried a call before has carried another.
    pub(super) fn carried(&mut self) {
        self.proven = true;
    }

    /// The origin has closed a connection that had carried `calls`, after it was idle for at least `idle`.
    pub(super) fn closed(&mut self, now: Instant, calls: u64, idle: Duration) {
        if calls == 0 {
            return;
        }
        if idle >= EARLY {
            let known = self.late.filter(|late| now < late.until).map(|late| late.idle);
            // The origin's clock runs since it sent its answer, ours since the answer came; the request takes its time, too.
            let safe = idle * 3 / 4;
            let idle = known.map_or(safe, |known| known.min(safe));
            self.late = Some(Late { idle, until: now + IDLE_COUNTS });
            return;
        }
        let known = self.early.filter(|early| now < early.until).map(|early| early.calls);
        if known.is_none() {
            if self.early.is_some_and(|early| early.until + LONGEST <= now) {
                self.lessons = 0;
            }
            self.lessons = self.lessons.saturating_add(1);
        }
        let counts = FIRST.saturating_mul(1 << (self.lessons - 1).min(16)).min(LONGEST);
        let fewest = known.map_or(calls, |known| known.min(calls));
        self.early = Some(Early { calls: fewest, until: now + counts });
        // An origin that restarts closes connections with several calls; this says nothing about new connections.
        self.proven &= calls > 1;
    }

    /// The origin has sent unsolicited bytes, which a later request would take for its response. Returns true if that
    /// is new.
    pub(super) fn unasked(&mut self, now: Instant) -> bool {
        let new = self.keeps(now);
        self.unkept = Some(now + UNKEPT);
        new
    }

    /// Returns whether connections are kept at all.
    pub(super) fn keeps(&self, now: Instant) -> bool {
        self.unkept.is_none_or(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_origin_without_a_history_gets_a_kept_connection_only_with_evidence() {
        let (now, reuse) = (Instant::now(), Reuse::default());
        assert!(reuse.may_carry(now, 0, Duration::ZERO, false), "a new connection");
        assert!(!reuse.may_carry(now, 1, MS, false));
        assert!(reuse.may_carry(now, 1, MS, true), "the origin said that it keeps it");
        assert!(!reuse.may_carry(now, 1, 99 * MS, false));
        assert!(reuse.may_carry(now, 1, SURVIVED, false));
        let mut reuse = reuse;
        reuse.carried();
        assert!(reuse.may_carry(now, 1, Duration::ZERO, false));
    }

    #[test]
    fn an_early_close_forbids_kept_connections_for_longer_each_time() {
        let (mut now, mut reuse) = (Instant::now(), Reuse::default());
        let mut waits = Vec::new();
        for _ in 0..12 {
            reuse.carried();
            reuse.closed(now, 1, Duration::ZERO);
            let learned = now;
            while !reuse.may_carry(now, 1, SECOND, true) {
                now += SECOND;
            }
            waits.push((now - learned).as_secs());
            // Its word counts no more, and neither does what was proven before.
            assert!(!reuse.may_carry(now, 1, MS, true));
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600, 3600]);
        now += LONGEST;
        reuse.closed(now, 1, Duration::ZERO);
        assert!(reuse.may_carry(now + FIRST, 1, SECOND, false), "it begins again");
    }

    #[test]
    fn further_closes_at_a_time_are_one_lesson_and_count_on() {
        let (now, mut reuse) = (Instant::now(), Reuse::default());
        for close in 0..20 {
            reuse.closed(now + close * SECOND, 1, Duration::ZERO);
        }
        let last = now + 19 * SECOND;
        assert!(!reuse.may_carry(last + FIRST - MS, 1, SECOND, false));
        assert!(reuse.may_carry(last + FIRST, 1, SECOND, false));
    }

    #[test]
    fn connections_are_used_for_as_many_calls_as_the_origin_serves_on_one() {
        let (now, mut reuse) = (Instant::now(), Reuse::default());
        reuse.carried();
        reuse.closed(now, 7, Duration::ZERO);
        reuse.closed(now, 3, Duration::ZERO);
        reuse.closed(now, 5, Duration::ZERO);
        assert!(reuse.may_carry(now, 2, Duration::ZERO, false));
        assert!(!reuse.may_carry(now, 3, Duration::ZERO, false));
        // A connection that was closed before its first call is no evidence.
        reuse.closed(now, 0, Duration::ZERO);
        assert!(reuse.may_carry(now, 2, Duration::ZERO, false));
    }

    #[test]
    fn a_late_close_forbids_what_is_idle_for_nearly_as_long() {
        let (now, mut reuse) = (Instant::now(), Reuse::default());
        reuse.carried();
        reuse.closed(now, 1, 8 * SECOND);
        reuse.closed(now, 40, 4 * SECOND);
        reuse.closed(now, 1, 60 * SECOND);
        assert!(reuse.may_carry(now, 1, 2999 * MS, false));
        assert!(!reuse.may_carry(now, 1, 3 * SECOND, false));
        assert!(reuse.may_carry(now + IDLE_COUNTS, 1, 50 * SECOND, false));
    }

    #[test]
    fn an_origin_that_spoke_unasked_is_not_kept_for_an_hour() {
        let (now, mut reuse) = (Instant::now(), Reuse::default());
        assert!(reuse.keeps(now));
        assert!(reuse.unasked(now));
        assert!(!reuse.unasked(now + SECOND), "it is known");
        assert!(!reuse.keeps(now + UNKEPT));
        assert!(reuse.keeps(now + SECOND + UNKEPT));
    }
}
