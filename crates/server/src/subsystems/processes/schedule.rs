//! When a command with `cron` is due, by the wall clock of a time zone.
//!
//! Invariants
//! - No clock: `now` is an argument.
//! - Each minute is decided once. Minutes that passed unseen, for example while the machine slept, are due once together.
//! - A clock put forward: what was due in the minutes left out is due right after them. One put back: it is due in the
//!   first of the two hours only. Lines that follow the clock (`*` as minute or hour) mean intervals, and are due by them.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::config::Cron;

const MINUTE: i64 = 60;
/// Beyond this, minutes that passed unseen are not looked at one by one.
const MOST_UNSEEN: i64 = 7 * 24 * 60 * MINUTE;
/// A clock that is set back by less is waited for; minutes would be decided twice otherwise.
const MOST_BACK: i64 = 3 * 60 * MINUTE;
/// How far ahead the next run is looked for.
const MOST_AHEAD: i64 = 28 * 366 * 24 * 60 * MINUTE;

/// A line of cron in a zone, and how far its minutes are decided.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    cron: Cron,
    zone: TimeZone,
    /// The last minute that was decided, in seconds.
    decided: i64,
}

impl Schedule {
    /// Starts with the minute after `now`.
    pub(super) fn new(cron: Cron, zone: TimeZone, now: Timestamp) -> Self {
        Self { cron, zone, decided: minute_of(now) }
    }

    /// Returns whether it is of this line in this zone.
    pub(super) fn is(&self, cron: &Cron, zone: &TimeZone) -> bool {
        self.cron == *cron && self.zone == *zone
    }

    /// Decides the minutes up to `now`: whether at least one of them was due.
    pub(super) fn due(&mut self, now: Timestamp) -> bool {
        let now = minute_of(now);
        if now < self.decided - MOST_BACK {
            self.decided = now;
        }
        let mut due = false;
        let mut minute = (self.decided + MINUTE).max(now - MOST_UNSEEN);
        while minute <= now && !due {
            due = self.is_due(minute);
            minute += MINUTE;
        }
        self.decided = self.decided.max(now);
        due
    }

    /// Returns the time until the next minute begins.
    pub(super) fn until_next_minute(now: Timestamp) -> Duration {
        let next = (minute_of(now) + MINUTE) * 1_000;
        let milliseconds = u64::try_from(next - now.as_millisecond()).unwrap_or_default();
        Duration::from_millis(milliseconds.clamp(1, 60_000))
    }

    /// Returns the next minute that is due after `now`.
    pub(super) fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let first = minute_of(now).max(self.decided) + MINUTE;
        let mut minute = first;
        while minute < first + MOST_AHEAD {
            if self.is_due(minute) {
                return Timestamp::from_second(minute).ok();
            }
            let local = self.local(minute)?;
            minute += MINUTE;
            if !self.cron.fits_date(local.date()) {
                // The day's last hours are looked at again: a clock may be put forward in them.
                let hours_left = i64::from(22 - local.hour()).max(0);
                minute += hours_left * 60 * MINUTE;
            }
        }
        None
    }

    fn local(&self, second: i64) -> Option<DateTime> {
        Some(self.zone.to_datetime(Timestamp::from_second(second).ok()?))
    }

    fn is_due(&self, minute: i64) -> bool {
        let (Some(local), Some(before)) = (self.local(minute), self.local(minute - MINUTE)) else {
            return false;
        };
        let fits = self.cron.fits(local);
        if self.cron.follows_clock() {
            return fits;
        }
        if fits {
            return !self.is_second(local, minute);
        }
        // Local minutes that the clock has left out.
        let mut left_out = before;
        while let Ok(next) = left_out.checked_add(jiff::Span::new().minutes(1)) {
            if next >= local {
                break;
            }
            if self.cron.fits(next) {
                return true;
            }
            left_out = next;
        }
        false
    }

    /// Returns whether this local time has been before, as the clock was put back.
    fn is_second(&self, local: DateTime, minute: i64) -> bool {
        let earlier = self.zone.to_ambiguous_timestamp(local).earlier();
        earlier.is_ok_and(|earlier| earlier.as_second() < minute)
    }
}

fn minute_of(time: Timestamp) -> i64 {
    time.as_second().div_euclid(MINUTE) * MINUTE
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Raw, Value};

    fn cron(text: &str) -> Cron {
        Cron::parse(&Raw::Text(text.into()), Path::new("/")).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// Central Europe: 2026-03-29 02:00 becomes 03:00, 2026-10-25 03:00 becomes 02:00.
    fn vienna() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
    }

    fn schedule(text: &str, zone: TimeZone, now: &str) -> Schedule {
        Schedule::new(cron(text), zone, at(now))
    }

    /// The minutes in `from..=to` (UTC) that are due, seen minute by minute.
    fn due_in(text: &str, from: &str, to: &str) -> Vec<String> {
        let mut schedule = schedule(text, vienna(), from);
        let mut now = at(from);
        let mut all = Vec::new();
        while now <= at(to) {
            if schedule.due(now) {
                all.push(now.to_string());
            }
            now = Timestamp::from_second(now.as_second() + 20).unwrap();
        }
        all
    }

    #[test]
    fn each_minute_is_decided_once() {
        let mut schedule = schedule("* * * * *", TimeZone::UTC, "2026-11-26T12:00:05Z");
        assert!(!schedule.due(at("2026-11-26T12:00:59Z")), "the minute of the start is over");
        assert!(schedule.due(at("2026-11-26T12:01:00Z")));
        assert!(!schedule.due(at("2026-11-26T12:01:30Z")));
        assert!(schedule.due(at("2026-11-26T12:02:00Z")));
        let left = |now| Schedule::until_next_minute(at(now)).as_millis();
        assert_eq!(left("2026-11-26T12:02:00Z"), 60_000);
        assert_eq!(left("2026-11-26T12:02:59.750Z"), 250);
    }

    #[test]
    fn runs_missed_in_a_pause_are_due_once() {
        let mut schedule = schedule("*/10 * * * *", TimeZone::UTC, "2026-11-26T12:01:00Z");
        assert!(schedule.due(at("2026-11-26T18:05:00Z")), "36 of them were missed");
        assert!(!schedule.due(at("2026-11-26T18:06:00Z")));
        assert!(schedule.due(at("2026-11-26T18:10:00Z")));
        assert!(schedule.due(at("2027-02-01T00:05:00Z")), "more than is looked at one by one");
        assert!(!schedule.due(at("2027-02-01T00:06:00Z")));
    }

    #[test]
    fn a_clock_that_is_set_back_a_little_repeats_nothing() {
        let mut schedule = schedule("* * * * *", TimeZone::UTC, "2026-11-26T12:00:00Z");
        assert!(schedule.due(at("2026-11-26T12:30:00Z")));
        assert!(!schedule.due(at("2026-11-26T12:10:00Z")));
        assert!(schedule.due(at("2026-11-26T12:31:00Z")));
        assert!(!schedule.due(at("2026-11-20T00:00:00Z")), "set right by days: it starts again");
        assert!(schedule.due(at("2026-11-20T00:01:00Z")));
    }

    #[test]
    fn a_clock_put_forward_leaves_out_no_run() {
        let (from, to) = ("2026-03-28T22:00:00Z", "2026-03-30T01:00:00Z");
        // 02:30 is not on that day: it is due at 03:00 summer time, and the next day at 02:30 again.
        let due = ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"];
        assert_eq!(due_in("30 2 * * *", from, to), due);
        let due = ["2026-03-29T01:15:00Z"];
        assert_eq!(due_in("15 3 29 3 *", from, to), due);
        // Intervals go on by real time.
        let due = ["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"];
        assert_eq!(due_in("*/30 * 29 3 *", "2026-03-29T00:10:00Z", "2026-03-29T01:40:00Z"), due);
        assert_eq!(due_in("0 2 29 3 *", from, to), ["2026-03-29T01:00:00Z"]);
    }

    #[test]
    fn a_clock_put_back_repeats_no_run() {
        let (from, to) = ("2026-10-24T22:30:00Z", "2026-10-25T12:00:00Z");
        assert_eq!(due_in("30 2 * * *", from, to), ["2026-10-25T00:30:00Z"]);
        let due = ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"];
        assert_eq!(due_in("30 * 25 10 *", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"), due);
        assert_eq!(due_in("0 3 * * *", from, to), ["2026-10-25T02:00:00Z"]);
    }

    #[test]
    fn the_next_run_is_found_however_far_it_is() {
        for (text, now, next) in [
            ("* * * * *", "2026-11-26T12:00:05Z", "2026-11-26T12:01:00Z"),
            ("0 4 * * *", "2026-11-26T12:00:00Z", "2026-11-27T03:00:00Z"),
            ("30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"),
            ("0 0 1 1 *", "2026-01-01T12:00:00Z", "2026-12-31T23:00:00Z"),
            ("0 12 29 2 *", "2026-01-01T12:00:00Z", "2028-02-29T11:00:00Z"),
            ("59 23 31 12 fri", "2026-11-26T12:00:00Z", "2026-12-04T22:59:00Z"),
        ] {
            let found = schedule(text, vienna(), now).next(at(now));
            assert_eq!(found, Some(at(next)), "{text}");
        }
    }
}
