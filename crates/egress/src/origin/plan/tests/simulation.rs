//! Whatever happens to the connections of an origin, in any order: limits hold and no caller waits for nothing.

use proptest::prelude::*;

use super::*;

/// Events of an origin's connections.
#[derive(Clone, Debug)]
enum Event {
    Call,
    /// A repeatable call: it uses an existing connection, or none.
    Repeatable,
    /// A call that has one of the connections is over; with HTTP/1.1 its connection may be gone.
    Over(usize, bool),
    Connected(usize),
    Failed(usize),
    GivenUp(usize),
    /// The origin closes a living connection.
    Closed(usize),
    Passed(u64),
    Sweep,
    Evict,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        6 => Just(Event::Call),
        2 => Just(Event::Repeatable),
        5 => (any::<usize>(), any::<bool>()).prop_map(|(which, gone)| Event::Over(which, gone)),
        4 => any::<usize>().prop_map(Event::Connected),
        1 => any::<usize>().prop_map(Event::Failed),
        1 => any::<usize>().prop_map(Event::GivenUp),
        1 => any::<usize>().prop_map(Event::Closed),
        2 => (0..200_000_u64).prop_map(Event::Passed),
        1 => Just(Event::Sweep),
        1 => Just(Event::Evict),
    ];
    prop::collection::vec(event, 0..200)
}

/// The connection carries one more call.
fn carries(taken: &Taken<Fake, Fake>) {
    if let Taken::Http1(connection) = taken {
        connection.calls.set(connection.calls.get() + 1);
    }
}

proptest! {
    /// Whatever happens: limits hold, counts agree with what there is, and no call waits without a reason.
    #[test]
    fn any_sequence_of_events_keeps_the_plans_invariants(http2 in any::<bool>(), known in any::<bool>(), events in events()) {
        let mut now = Instant::now();
        let protocol = if http2 { Protocol::Http2 } else { Protocol::Http1 };
        let mut plan = Fakes::new(limits(), known.then_some(protocol));
        let mut used: Vec<Taken<Fake, Fake>> = Vec::new();
        let mut made: Vec<Fake> = Vec::new();
        let mut waiting = 0_usize;

        for event in events {
            match event {
                Event::Call => waiting += 1,
                Event::Repeatable => {
                    if let Some(taken) = plan.take(now, true, ANY) {
                        carries(&taken);
                        used.push(taken);
                    }
                }
                Event::Over(which, gone) if !used.is_empty() => {
                    match used.swap_remove(which % used.len()) {
                        Taken::Http1(connection) if gone => {
                            connection.room.set(None);
                            plan.lost();
                        }
                        Taken::Http1(connection) => drop(plan.put_back(connection, now)),
                        Taken::Http2(id, _) => plan.release(id, now),
                    }
                }
                Event::Connected(which) if plan.connecting() > 0 => {
                    let begun = plan.attempts[which % plan.attempts.len()];
                    let connection = fake("", now);
                    connection.room.set(Some(3));
                    made.push(connection.clone());
                    if http2 {
                        plan.connected_http2(begun, connection, now);
                    } else {
                        plan.connected_http1(begun);
                        drop(plan.put_back(connection, now));
                    }
                }
                Event::Failed(which) if plan.connecting() > 0 => {
                    let begun = plan.attempts[which % plan.attempts.len()];
                    let told = plan.failed(begun, now, waiting);
                    prop_assert!(told <= waiting && (told == waiting || !plan.empty()));
                    waiting -= told;
                }
                Event::GivenUp(which) if plan.connecting() > 0 => {
                    plan.given_up(plan.attempts[which % plan.attempts.len()]);
                }
                Event::Closed(which) if !made.is_empty() => {
                    made[which % made.len()].room.set(None);
                }
                Event::Passed(ms) => now += Duration::from_millis(ms),
                Event::Sweep => plan.sweep(now),
                Event::Evict => drop(plan.evict()),
                _ => {}
            }
            while waiting > 0 && let Some(taken) = plan.take(now, false, ANY) {
                if let Taken::Http1(connection) = &taken {
                    prop_assert!(connection.room.get().is_some(), "a closed connection was used");
                }
                carries(&taken);
                used.push(taken);
                waiting -= 1;
            }
            let before = plan.connecting();
            let opened = plan.wanted(now, waiting, ANY);
            if !(http2 || before < waiting) {
                prop_assert!(opened <= 1, "one beside those that are late, or for what is old");
            }

            let busy = used.iter().filter(|taken| matches!(taken, Taken::Http1(_))).count();
            prop_assert_eq!(plan.busy, busy);
            let most = if http2 { limits().http2 + 1 } else { limits().http1 };
            prop_assert!(plan.open() + plan.connecting() <= most);
            // One may be spared, to show whether it lasts.
            let spared = plan.busy > 0 && plan.busy + plan.idle.len() >= limits().http1;
            let full = spared || plan.busy == limits().http1 || plan.slots.len() >= limits().http2;
            let paused = plan.paused_until.is_some_and(|until| now < until) && plan.open() > 0;
            let coming = plan.connecting() > 0 && !plan.overdue(now);
            let most = if plan.protocol.is_none() { limits().http1 + usize::from(http2) } else { most };
            let full = full || plan.open() + plan.connecting() >= most - usize::from(http2);
            prop_assert!(waiting == 0 || coming || full || paused, "a call waits without a reason");
        }
    }
}
