mod simulation;

use std::cell::Cell;
use std::rc::Rc;

use super::*;

/// No limit of a scope.
const ANY: usize = usize::MAX;
const SECOND: Duration = Duration::from_secs(1);

fn limits() -> Limits {
    Limits {
        http1: 3,
        http2: 4,
        idle: 60 * SECOND,
        age: 300 * SECOND,
        cold: Duration::from_millis(500),
    }
}

/// A connection by name.
#[derive(Clone, Debug)]
struct Fake {
    name: &'static str,
    born: Instant,
    kept_for: Option<Duration>,
    room: Rc<Cell<Option<usize>>>,
    calls: Cell<u64>,
    /// Data that arrive while it is open.
    unasked: Rc<Cell<bool>>,
}

impl PartialEq for Fake {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Idle for Fake {
    fn look(&mut self) -> Condition {
        match self.room.get() {
            None => Condition::Closed,
            Some(_) if self.unasked.get() => Condition::Unasked,
            Some(_) => Condition::Open,
        }
    }
    fn probe(&mut self, _now: Instant, _repeatable: bool) -> Condition {
        self.look()
    }
    fn calls(&self) -> u64 {
        self.calls.get()
    }
    fn announced(&self) -> bool {
        false
    }
    fn born(&self) -> Instant {
        self.born
    }
    fn kept_for(&self) -> Option<Duration> {
        self.kept_for
    }
}

impl Shared for Fake {
    fn room(&mut self) -> Option<usize> {
        self.room.get()
    }
    fn born(&self) -> Instant {
        self.born
    }
}

fn fake(name: &'static str, born: Instant) -> Fake {
    let room = Rc::new(Cell::new(Some(100)));
    Fake { name, born, kept_for: None, room, calls: Cell::new(0), unasked: Rc::default() }
}

type Fakes = Plan<Fake, Fake>;

/// A plan with these HTTP/1.1 connections put back in this order.
fn http1(now: Instant, connections: &[Fake]) -> Fakes {
    let mut plan = Fakes::new(limits(), Some(Protocol::Http1));
    for connection in connections {
        plan.one_more(now);
        plan.connected_http1(now);
        assert_eq!(plan.put_back(connection.clone(), now), None);
    }
    plan
}

fn http2(now: Instant, connections: &[Fake]) -> Fakes {
    let mut plan = Fakes::new(limits(), None);
    for connection in connections {
        plan.one_more(now);
        plan.connected_http2(now, connection.clone(), now);
    }
    plan
}

fn name(taken: Option<Taken<Fake, Fake>>) -> Option<&'static str> {
    taken.map(|taken| match taken {
        Taken::Http1(connection) | Taken::Http2(_, connection) => connection.name,
    })
}

#[test]
fn until_the_protocol_is_known_one_connection_is_opened() {
    let now = Instant::now();
    let mut plan = Fakes::new(limits(), None);
    assert_eq!(plan.take(now, false, ANY), None);
    assert_eq!(plan.wanted(now, 100, ANY), 1);
    assert_eq!(plan.wanted(now, 100, ANY), 0);
    // It speaks HTTP/1.1: now everybody needs one of his own, as far as the limit goes.
    plan.connected_http1(now);
    assert_eq!(plan.wanted(now, 99, ANY), 2);
    assert_eq!(plan.wanted(now, 99, ANY), 0);
}

#[test]
fn an_origin_that_speaks_http2_gets_one_connection_for_a_cold_burst() {
    let now = Instant::now();
    let mut plan = Fakes::new(limits(), None);
    assert_eq!(plan.wanted(now, 100, ANY), 1);
    plan.connected_http2(now, fake("a", now), now);
    for _ in 0..100 {
        assert_eq!(name(plan.take(now, false, ANY)), Some("a"));
        assert_eq!(plan.wanted(now, 0, ANY), 0);
    }
    // The hundred and first would have to wait.
    assert_eq!(plan.take(now, false, ANY), None);
    assert_eq!(plan.wanted(now, 1, ANY), 1);
    assert_eq!(plan.wanted(now, 50, ANY), 0, "one at a time");
}

#[test]
fn a_burst_on_a_cold_connection_opens_more_as_it_grows() {
    let born = Instant::now();
    let mut plan = http2(born, &[fake("a", born)]);
    // Warm: however many, one is enough.
    let warm = born + Duration::from_millis(400);
    for _ in 0..20 {
        assert_eq!(name(plan.take(warm, false, ANY)), Some("a"));
        assert_eq!(plan.wanted(warm, 0, ANY), 0);
    }
    for _ in 0..20 {
        plan.release(0, warm);
    }
    let cold = warm + Duration::from_millis(501);
    let mut opened = 0;
    for call in 1..=40 {
        assert_eq!(name(plan.take(cold, false, ANY)), Some("a"));
        opened += plan.wanted(cold, 0, ANY);
        let wished = if call < BURST { 0 } else { usize::div_ceil(call, BURST).min(4) - 1 };
        assert_eq!(opened, wished, "after {call} calls");
    }
    // The limit is 4, and one exists already.
    assert_eq!((opened, plan.connecting()), (3, 3));
}

#[test]
fn calls_are_spread_over_all_connections_and_single_ones_stay_on_the_warmest() {
    let now = Instant::now();
    let mut plan = http2(now, &[fake("a", now), fake("b", now), fake("c", now)]);
    let taken: Vec<_> =
        (0..6).map(|_| name(plan.take(now, false, ANY)).expect("there is room")).collect();
    for one in ["a", "b", "c"] {
        assert_eq!(taken.iter().filter(|name| **name == one).count(), 2, "{taken:?}");
    }
    for (id, at) in [(0, 1), (0, 1), (2, 1), (2, 1), (1, 2), (1, 3)] {
        plan.release(id, now + at * SECOND);
    }
    for at in 4..8 {
        let later = now + at * SECOND;
        assert_eq!(name(plan.take(later, false, ANY)), Some("b"), "used last");
        plan.release(1, later);
    }
}

#[test]
fn a_connection_that_takes_no_more_streams_is_left_and_replaced() {
    let now = Instant::now();
    let connection = fake("a", now);
    let mut plan = http2(now, std::slice::from_ref(&connection));
    assert_eq!(name(plan.take(now, false, ANY)), Some("a"));
    connection.room.set(None);
    assert_eq!(plan.take(now, false, ANY), None);
    assert_eq!(plan.wanted(now, 1, ANY), 1);
    plan.connected_http2(now, fake("b", now), now);
    assert_eq!(name(plan.take(now, false, ANY)), Some("b"));
    // The stream of the first one ends without a trace.
    plan.release(0, now);
    assert_eq!(plan.open(), 1);
}

#[test]
fn the_most_recent_connection_is_reused_unless_expired() {
    let now = Instant::now();
    let closed = fake("closed", now);
    let mut short = fake("short", now);
    short.kept_for = Some(4 * SECOND);
    let mut plan = http1(now, &[fake("a", now), closed.clone(), short]);
    assert_eq!(name(plan.take(now, false, ANY)), Some("short"));
    closed.room.set(None);
    assert_eq!(name(plan.take(now, false, ANY)), Some("a"));
    assert_eq!(plan.take(now, false, ANY), None);
    let mut short = fake("short", now);
    short.kept_for = Some(4 * SECOND);
    assert_eq!(plan.put_back(short, now), None);
    assert_eq!(plan.put_back(fake("a", now), now), None);
    assert_eq!(name(plan.take(now + 59 * SECOND, false, ANY)), Some("a"));
    assert_eq!(plan.take(now + 59 * SECOND, false, ANY), None, "Keep-Alive said 4 s");

    let mut plan = http1(now, &[fake("a", now)]);
    assert_eq!(plan.take(now + 60 * SECOND, false, ANY), None);
    assert!(plan.empty() && plan.wanted(now, 0, ANY) == 0);
}

/// A connection that has carried this many calls.
fn used(name: &'static str, born: Instant, calls: u64) -> Fake {
    Fake { calls: Cell::new(calls), ..fake(name, born) }
}

#[test]
fn a_call_that_is_not_repeatable_leaves_kept_connections_to_others_until_they_are_proven() {
    let now = Instant::now();
    let ms = |ms| now + Duration::from_millis(ms);
    let mut plan = http1(now, &[used("a", now, 1), used("b", now, 1)]);
    assert_eq!(plan.take(ms(99), false, ANY), None);
    assert!(plan.passes_over());
    assert_eq!(plan.wanted(ms(99), 1, ANY), 1, "a new one");
    assert_eq!((plan.open(), plan.connecting()), (2, 1));
    assert_eq!(name(plan.take(ms(99), true, ANY)), Some("b"));
    assert_eq!(name(plan.take(ms(100), false, ANY)), Some("a"), "it has lasted");
    // One has carried a second call.
    assert_eq!(plan.put_back(used("b", now, 2), ms(101)), None);
    assert_eq!(plan.put_back(used("c", now, 1), ms(101)), None);
    assert_eq!(name(plan.take(ms(101), false, ANY)), Some("c"));
}

#[test]
fn at_the_limit_the_newest_idle_connection_is_closed() {
    let now = Instant::now();
    let all = [used("a", now, 1), used("b", now, 1), used("c", now, 1)];
    let mut plan = http1(now, &all);
    assert_eq!(plan.take(now, false, ANY), None);
    assert_eq!(plan.wanted(now, 1, ANY), 1);
    assert_eq!((plan.open(), plan.connecting()), (2, 1));
    assert_eq!(plan.wanted(now, 9, ANY), 1);
    assert_eq!((plan.open(), plan.connecting()), (1, 2), "the oldest is to show whether it lasts");
    assert_eq!(name(plan.take(now + Duration::from_millis(100), false, ANY)), Some("a"));

    // No call waits: they stay.
    let mut plan = http1(now, &all);
    assert_eq!((plan.wanted(now, 0, ANY), plan.open()), (0, 3));
}

#[test]
fn an_origin_that_closes_after_each_answer_is_known_by_its_idle_connections() {
    let now = Instant::now();
    let (one, two) = (used("a", now, 1), used("b", now, 1));
    let mut plan = http1(now, std::slice::from_ref(&one));
    one.room.set(None);
    plan.sweep(now + SECOND);
    assert_eq!(plan.noted(), Some(Noted { closed: 1, ..Noted::default() }));
    assert_eq!(plan.noted(), None);

    plan.one_more(now + SECOND);
    plan.connected_http1(now + SECOND);
    assert_eq!(plan.put_back(two, now + SECOND), None);
    plan.sweep(now + 2 * SECOND);
    assert_eq!(plan.take(now + 3 * SECOND, false, ANY), None, "though it is open still");
    assert_eq!(name(plan.take(now + 3 * SECOND, true, ANY)), Some("b"));
}

#[test]
fn how_long_an_origin_keeps_is_known_by_when_a_connection_was_last_seen_open() {
    let now = Instant::now();
    let one = used("a", now, 7);
    let mut plan = http1(now, std::slice::from_ref(&one));
    for second in 1..=4 {
        plan.sweep(now + second * SECOND);
    }
    one.room.set(None);
    plan.sweep(now + 5 * SECOND);

    let again = now + 6 * SECOND;
    plan.one_more(again);
    plan.connected_http1(again);
    assert_eq!(plan.put_back(used("b", again, 1), again), None);
    assert_eq!(plan.take(again + 3 * SECOND, false, ANY), None, "three quarters of four seconds");
    assert_eq!(name(plan.take(again + 2 * SECOND, false, ANY)), Some("b"));
}

#[test]
fn after_unsolicited_bytes_no_connection_is_kept() {
    for sweep in [false, true] {
        let now = Instant::now();
        let (one, new) = (used("b", now, 1), fake("new", now));
        let mut plan = http1(now, &[used("a", now, 4), new, one.clone()]);
        one.unasked.set(true);
        if sweep {
            plan.sweep(now);
        } else {
            assert_eq!(name(plan.take(now, true, ANY)), Some("new"), "it has carried none");
            assert_eq!(plan.put_back(fake("new", now), now), None);
        }
        let noted = Noted { unasked: 1, unkept: true, ..Noted::default() };
        assert_eq!((plan.noted(), plan.open()), (Some(noted), 1));
        assert_eq!(name(plan.take(now, true, ANY)), Some("new"));
        assert!(plan.put_back(used("new", now, 1), now).is_some());
        assert!(plan.empty());
    }
}

#[test]
fn an_origin_that_closes_each_connection_is_learnt() {
    let now = Instant::now();
    let mut plan = http1(now, &[fake("a", now)]);
    drop(plan.take(now, false, ANY));
    let mut connection = fake("a", now);
    connection.kept_for = Some(Duration::ZERO);
    assert!(plan.put_back(connection, now).is_some());
}

#[test]
fn an_expired_connection_serves_until_it_is_replaced() {
    let born = Instant::now();
    let old = born + 300 * SECOND;
    let mut plan = http1(old - SECOND, &[fake("a", born)]);
    assert_eq!(name(plan.take(old, false, ANY)), Some("a"));
    assert_eq!(plan.wanted(old, 0, ANY), 1);
    assert!(plan.put_back(fake("a", born), old).is_some(), "its successor comes");
    plan.connected_http1(old);
    assert_eq!(plan.put_back(fake("b", old), old), None);
    assert_eq!(name(plan.take(old, false, ANY)), Some("b"));
    assert_eq!(plan.wanted(old, 0, ANY), 0);

    let mut plan = http2(born, &[fake("a", born)]);
    assert_eq!(name(plan.take(old, false, ANY)), Some("a"));
    assert_eq!(plan.wanted(old, 0, ANY), 1);
    assert_eq!(name(plan.take(old, false, ANY)), Some("a"));
    assert_eq!(plan.wanted(old, 0, ANY), 0, "it is coming");
    plan.connected_http2(old, fake("b", old), old);
    assert_eq!(name(plan.take(old, false, ANY)), Some("b"));
    assert_eq!(plan.open(), 1);
}

#[test]
fn a_failure_reaches_callers_without_another_attempt() {
    let now = Instant::now();
    let mut plan = Fakes::new(limits(), Some(Protocol::Http1));
    assert_eq!(plan.wanted(now, 1, ANY), 1);
    assert_eq!(plan.failed(now, now, 1), 1);
    assert_eq!(plan.wanted(now, 4, ANY), 3, "the next may try at once");
    assert_eq!(plan.failed(now, now, 4), 1, "two are still on their way");
    assert_eq!(plan.wanted(now, 3, ANY), 0, "or there would be no end to it");
    assert_eq!(plan.failed(now, now, 1), 0, "who waits has one that is on its way");
    assert_eq!(plan.failed(now, now, 5), 5, "there is none left");
    assert_eq!(plan.wanted(now, 1, ANY), 1);
    plan.connected_http1(now);
    assert_eq!(plan.wanted(now, 3, ANY), 2);
    assert_eq!(plan.failed(now, now, 3), 1, "for those behind the first one will be free again");
    assert_eq!(plan.failed(now, now, 2), 1);
    assert_eq!(plan.wanted(now, 1, ANY), 0);
    assert_eq!(plan.wanted(now + SECOND, 1, ANY), 1);
}

#[test]
fn a_shared_attempts_failure_reaches_all_unless_streams_free_up() {
    let now = Instant::now();
    let full = fake("full", now);
    full.room.set(Some(0));
    let mut plan = http2(now, std::slice::from_ref(&full));
    assert_eq!(plan.take(now, false, ANY), None);
    assert_eq!(plan.wanted(now, 5, ANY), 1);
    assert_eq!(plan.failed(now, now, 5), 0);

    // One that is late is no comfort, one that is not is.
    let late = now + LATE;
    let mut plan = Fakes::new(limits(), None);
    assert_eq!(plan.wanted(now, 1, ANY), 1);
    assert_eq!(plan.wanted(late, 5, ANY), 1);
    assert_eq!(plan.failed(now, late, 5), 0);
    let later = late + 4 * LATE;
    assert_eq!(plan.wanted(later, 5, ANY), 1);
    assert_eq!(plan.failed(later, later, 5), 5);
}

#[test]
fn late_attempts_get_companions_after_growing_pauses() {
    for protocol in [None, Some(Protocol::Http2), Some(Protocol::Http1)] {
        let begin = Instant::now();
        let mut plan = Fakes::new(Limits { http1: 20, http2: 20, ..limits() }, protocol);
        let mut opened = Vec::new();
        for second in 0..=300 {
            let now = begin + second * SECOND;
            for _ in 0..plan.wanted(now, 1, ANY) {
                opened.push(second);
            }
            assert_eq!(plan.wanted(now, 1, ANY), 0);
            // A call that arrives while all attempts are late waits in the queue.
            assert_eq!(plan.makes_for(1, now), opened.last() == Some(&second));
        }
        assert_eq!(opened, [0, 1, 5, 21, 85], "{protocol:?}");
    }
}

#[test]
fn a_success_ends_the_pauses() {
    let begin = Instant::now();
    let mut plan = Fakes::new(limits(), Some(Protocol::Http1));
    // Two hang; a third caller is served by the one that is opened beside them.
    assert_eq!(plan.wanted(begin, 2, ANY), 2);
    let late = begin + LATE;
    assert_eq!(plan.wanted(late, 3, ANY), 1, "the last one there may be");
    plan.connected_http1(late);
    assert_eq!((plan.beside, plan.wanted(late, 3, ANY)), (0, 0));
    assert_eq!(plan.put_back(fake("a", late), late), None);
    assert_eq!(name(plan.take(late, false, ANY)), Some("a"));

    // No call waits: none is opened, however late they are.
    let mut plan = Fakes::new(limits(), None);
    assert_eq!(plan.wanted(begin, 1, ANY), 1);
    assert_eq!(plan.wanted(begin + 9 * SECOND, 0, ANY), 0);
    plan.given_up(begin);
    assert!(plan.empty());
}

#[test]
fn a_callers_own_or_timed_out_attempt_counts_as_tried() {
    let now = Instant::now();
    let mut plan = Fakes::new(limits(), None);
    assert_eq!(plan.wanted(now, 1, ANY), 1);
    assert!(plan.tried(now, now));
    let later = now + Duration::from_millis(300);
    assert!(!plan.tried(later, later + 3 * SECOND), "it may hang since before he came");
    assert_eq!(plan.wanted(now + LATE, 2, ANY), 1);
    assert!(!plan.tried(later, now + LATE + Duration::from_millis(50)));
    assert!(plan.tried(later, now + 2 * LATE));
}

#[test]
fn sweeping_keeps_usable_connections() {
    let now = Instant::now();
    let mut plan = http1(now, &[fake("a", now), fake("b", now)]);
    plan.sweep(now + 59 * SECOND);
    assert_eq!(plan.open(), 2);
    plan.sweep(now + 60 * SECOND);
    assert!(plan.empty());

    let mut plan = http2(now, &[fake("a", now), fake("b", now), fake("c", now)]);
    assert_eq!(name(plan.take(now, false, ANY)), Some("a"));
    plan.sweep(now + 60 * SECOND);
    assert_eq!(plan.open(), 1, "the busy one");
    plan.sweep(now + 300 * SECOND);
    assert_eq!(plan.open(), 1, "still busy");
    plan.release(0, now + 301 * SECOND);
    plan.sweep(now + 301 * SECOND);
    assert!(plan.empty());
}

#[test]
fn eviction_takes_the_longest_idle_connection() {
    let now = Instant::now();
    let mut plan = http1(now, &[fake("a", now), fake("b", now)]);
    assert!(plan.evict());
    assert_eq!(name(plan.take(now, false, ANY)), Some("b"));
    assert!(!plan.evict());

    let mut plan = http2(now, &[fake("a", now)]);
    assert_eq!(name(plan.take(now, false, ANY)), Some("a"));
    assert!(!plan.evict());
    plan.release(0, now);
    assert!(plan.evict());
    assert!(plan.empty());
}

#[test]
fn for_a_scope_no_more_http2_connections_are_opened_than_it_may_have() {
    let now = Instant::now();
    let mut plan = Fakes::new(limits(), Some(Protocol::Http2));
    assert_eq!(plan.wanted(now, 1, 1), 1);
    let full = fake("a", now);
    full.room.set(Some(0));
    plan.connected_http2(now, full, now);
    assert_eq!(plan.wanted(now, 5, 1), 0, "a scope of one");
    assert_eq!(plan.wanted(now, 5, 2), 1, "a scope of two");
    plan.given_up(now);

    // A burst that meets a cold connection.
    for (most, grown) in [(1, 0), (2, 1), (ANY, 2)] {
        let mut plan = Fakes::new(limits(), Some(Protocol::Http2));
        plan.wanted(now, 1, ANY);
        plan.connected_http2(now, fake("a", now), now);
        let later = now + SECOND;
        for _ in 0..BURST * 3 {
            assert!(plan.take(later, true, most).is_some());
        }
        assert_eq!(plan.wanted(later, 0, ANY), grown, "{most}");
    }
}
