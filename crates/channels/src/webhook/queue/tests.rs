use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::webhook::intake::NoteKind;
use crate::webhook::{Endpoint, Topic, spool};

const UNIX: UnixTime = UnixTime::from_millis(1_700_000_000_000);

fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

fn endpoint(target: &str) -> Endpoint {
    Endpoint { target: target.into(), topics: vec![], channels: vec![] }
}

fn note_to(endpoints: &[Endpoint], channel: &str, kind: NoteKind) -> Note {
    Note { app: "3".into(), endpoints: endpoints.into(), channel: channel.into(), kind }
}

fn note(channel: &str, kind: NoteKind) -> Note {
    note_to(&[endpoint("a")], channel, kind)
}

fn options() -> Options {
    Options { batch_delay: Duration::ZERO, ..Options::default() }
}

fn queue(options: Options) -> Queue {
    Queue::new(options, vec![])
}

/// Returns the events of a batch as `name channel`.
fn told(batch: &Batch) -> Vec<String> {
    let body: serde_json::Value = serde_json::from_str(&batch.body).unwrap();
    assert!(body["time_ms"].as_u64() >= Some(UNIX.millis()));
    let events = body["events"].as_array().unwrap().iter();
    events
        .map(|event| {
            format!("{} {}", event["name"].as_str().unwrap(), event["channel"].as_str().unwrap())
        })
        .collect()
}

/// Returns all events sent until `until`, with each batch accepted.
fn run(queue: &mut Queue, until: Moment) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let step = queue.poll(until, UNIX);
        if step.send.is_empty() {
            return all;
        }
        for batch in step.send {
            all.extend(told(&batch));
            queue.done(batch.id, Outcome::Taken, until);
        }
    }
}

#[test]
fn events_have_the_form_of_pushers() {
    let mut queue = queue(Options { debounce: Duration::ZERO, ..options() });
    let to = [Endpoint { topics: Topic::ALL.to_vec(), ..endpoint("a") }];
    let kind = [
        NoteKind::Occupied,
        NoteKind::MemberAdded("7\"".into()),
        NoteKind::CacheMiss,
        NoteKind::Client(r#","event":"client-a","data":"{}","socket_id":"1.2""#.into()),
        NoteKind::Count(3),
        NoteKind::MemberRemoved("8".into()),
        NoteKind::Vacated,
    ];
    for kind in kind {
        queue.take(vec![note_to(&to, "presence-a", kind)], at(0));
    }
    let step = queue.poll(at(0), UNIX);
    assert_eq!(
        &*step.send[0].body,
        concat!(
            r#"{"time_ms":1700000000000,"events":["#,
            r#"{"name":"channel_occupied","channel":"presence-a"},"#,
            r#"{"name":"member_added","channel":"presence-a","user_id":"7\""},"#,
            r#"{"name":"cache_miss","channel":"presence-a"},"#,
            r#"{"name":"client_event","channel":"presence-a","event":"client-a","data":"{}","socket_id":"1.2"},"#,
            r#"{"name":"subscription_count","channel":"presence-a","subscription_count":3},"#,
            r#"{"name":"member_removed","channel":"presence-a","user_id":"8"},"#,
            r#"{"name":"channel_vacated","channel":"presence-a"}"#,
            "]}"
        )
    );
}

#[test]
fn a_reloaded_page_causes_no_event() {
    let mut queue = queue(options());
    queue.take(
        vec![
            note("presence-a", NoteKind::Occupied),
            note("presence-a", NoteKind::MemberAdded("7".into())),
        ],
        at(0),
    );
    assert_eq!(run(&mut queue, at(0)), ["channel_occupied presence-a", "member_added presence-a"]);
    for reload in 1..5 {
        let gone = vec![
            note("presence-a", NoteKind::MemberRemoved("7".into())),
            note("presence-a", NoteKind::Vacated),
        ];
        queue.take(gone, at(reload * 10_000));
        assert_eq!(run(&mut queue, at(reload * 10_000 + 2999)), [""; 0]);
        let back = vec![
            note("presence-a", NoteKind::Occupied),
            note("presence-a", NoteKind::MemberAdded("7".into())),
        ];
        queue.take(back, at(reload * 10_000 + 2999));
        assert_eq!(run(&mut queue, at(reload * 10_000 + 9999)), [""; 0]);
    }
    assert!(queue.is_empty());
}

#[test]
fn absent_members_are_reported_in_the_order_of_leaving() {
    let mut queue = queue(options());
    let gone = vec![
        note("presence-a", NoteKind::MemberRemoved("7".into())),
        note("presence-a", NoteKind::MemberRemoved("8".into())),
        note("presence-a", NoteKind::Vacated),
    ];
    queue.take(gone, at(100));
    let step = queue.poll(at(100), UNIX);
    assert_eq!((step.send.len(), step.wake), (0, Some(at(3100))));
    queue.take(vec![note("presence-a", NoteKind::MemberAdded("9".into()))], at(200));
    assert_eq!(run(&mut queue, at(3099)), ["member_added presence-a"]);
    assert_eq!(
        run(&mut queue, at(3100)),
        ["member_removed presence-a", "member_removed presence-a", "channel_vacated presence-a"]
    );
}

#[test]
fn only_the_last_of_frequent_count_changes_is_sent() {
    let to = [Endpoint { topics: vec![Topic::SubscriptionCount], ..endpoint("a") }];
    let mut queue = queue(options());
    for count in 1..500 {
        queue.take(vec![note_to(&to, "a", NoteKind::Count(count))], at(count as u64));
    }
    assert_eq!(queue.poll(at(3000), UNIX).send.len(), 0);
    let step = queue.poll(at(3001), UNIX);
    assert!(
        step.send[0].body.contains(r#""subscription_count":499"#) && told(&step.send[0]).len() == 1
    );
}

#[test]
fn an_endpoint_receives_only_the_events_it_subscribes_to() {
    let to = [
        endpoint("all"),
        Endpoint { topics: vec![Topic::MemberAdded], ..endpoint("members") },
        Endpoint { channels: vec!["private-".into(), "presence-x".into()], ..endpoint("prefix") },
    ];
    let mut queue = queue(options());
    for channel in ["a", "private-a", "presence-a", "presence-x"] {
        queue.take(
            vec![
                note_to(&to, channel, NoteKind::Occupied),
                note_to(&to, channel, NoteKind::Client(String::new())),
                note_to(&to, channel, NoteKind::Count(1)),
            ],
            at(0),
        );
    }
    queue.take(vec![note_to(&to, "presence-a", NoteKind::MemberAdded("7".into()))], at(0));
    let step = queue.poll(at(9000), UNIX);
    let told: Vec<_> = step.send.iter().map(|batch| (&*batch.target, told(batch))).collect();
    let expected = [
        (
            "all",
            vec![
                "channel_occupied a",
                "channel_occupied private-a",
                "channel_occupied presence-a",
                "channel_occupied presence-x",
                "member_added presence-a",
            ],
        ),
        ("members", vec!["member_added presence-a"]),
        ("prefix", vec!["channel_occupied private-a", "channel_occupied presence-x"]),
    ];
    assert_eq!(
        told,
        expected.map(|(target, events)| (
            target,
            events.into_iter().map(String::from).collect::<Vec<_>>()
        ))
    );
}

#[test]
fn a_batch_is_bounded_in_events_bytes_and_time() {
    let mut queue = queue(Options {
        batch_delay: Duration::from_millis(50),
        batch_events: 3,
        batch_bytes: 200,
        ..Options::default()
    });
    queue.take(vec![note("a", NoteKind::Occupied)], at(0));
    queue.take(vec![note("b", NoteKind::Occupied)], at(20));
    let step = queue.poll(at(20), UNIX);
    assert_eq!((step.send.len(), step.wake), (0, Some(at(50))));
    let step = queue.poll(at(50), UNIX);
    assert_eq!(told(&step.send[0]), ["channel_occupied a", "channel_occupied b"]);
    queue.done(step.send[0].id, Outcome::Taken, at(50));

    queue.take((0..7).map(|n| note(&format!("c{n}"), NoteKind::Occupied)).collect(), at(60));
    let mut sizes = Vec::new();
    for now in [60, 61, 110] {
        for batch in queue.poll(at(now), UNIX).send {
            sizes.push((now, told(&batch).len()));
            queue.done(batch.id, Outcome::Taken, at(now));
        }
    }
    assert_eq!(sizes, [(60, 3), (61, 3), (110, 1)]);

    queue.take(
        vec![note(&"d".repeat(300), NoteKind::Occupied), note("e", NoteKind::Occupied)],
        at(200),
    );
    let step = queue.poll(at(200), UNIX);
    assert_eq!(told(&step.send[0]).len(), 1, "an event that is too large for a batch goes alone");
}

#[test]
fn a_rejected_batch_is_retried_for_five_minutes_with_pauses_that_double() {
    let mut queue = queue(options());
    queue.take(vec![note("a", NoteKind::Occupied)], at(0));
    let first = queue.poll(at(0), UNIX).send.remove(0);
    let mut now = at(0);
    let mut sent = vec![0];
    loop {
        queue.done(first.id, Outcome::Failed, now);
        let Some(next) = queue.poll(now, UNIX).wake else { break };
        now = next;
        assert_eq!(queue.poll(at(now.millis() - 1), UNIX).send, []);
        let again = queue.poll(now, UNIX).send;
        assert_eq!(again, std::slice::from_ref(&first), "the very same batch");
        sent.push(now.millis() / 1000);
    }
    assert_eq!(sent, [0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 300]);
    assert_eq!(queue.report(), Report { failures: 11, given_up: 1, ..Report::default() });
    assert!(queue.is_empty());
}

#[test]
fn a_refused_batch_delays_only_its_own_channels() {
    let mut queue = queue(options());
    queue.take(vec![note("a", NoteKind::Occupied)], at(0));
    let refused = queue.poll(at(0), UNIX).send.remove(0);
    queue.done(refused.id, Outcome::Failed, at(0));
    queue.take(vec![note("a", NoteKind::CacheMiss), note("b", NoteKind::Occupied)], at(1));
    let step = queue.poll(at(1), UNIX);
    assert_eq!(told(&step.send[0]), ["channel_occupied b"]);
    assert_eq!((step.send.len(), step.wake), (1, Some(at(1000))));
    assert_eq!(
        queue.poll(at(1000), UNIX).send,
        std::slice::from_ref(&refused),
        "beside the new batch"
    );
    queue.done(step.send[0].id, Outcome::Taken, at(1001));
    assert_eq!(queue.poll(at(1001), UNIX).send, []);
    queue.done(refused.id, Outcome::Taken, at(1002));
    assert_eq!(run(&mut queue, at(1002)), ["cache_miss a"]);
    assert_eq!(queue.report(), Report { delivered: 3, failures: 1, ..Report::default() });
    assert!(queue.is_empty() && queue.bytes() == 0);
}

#[test]
fn an_endpoint_that_is_down_receives_few_batches_and_all_of_them_once_it_is_back() {
    let mut queue = queue(Options { batch_events: 1, ..options() });
    queue.take((0..20).map(|n| note(&format!("c{n}"), NoteKind::Occupied)).collect(), at(0));
    let mut refused = 0;
    for _ in 0..20 {
        for batch in queue.poll(at(0), UNIX).send {
            refused += 1;
            queue.done(batch.id, Outcome::Failed, at(0));
        }
    }
    assert_eq!(refused, MAX_REFUSED);
    let back = queue.poll(at(1000), UNIX).send;
    assert_eq!(back.len(), 1, "one retry at a time");
    queue.done(back[0].id, Outcome::Taken, at(1000));
    assert_eq!(run(&mut queue, at(1000)).len(), 19);
    assert!(queue.is_empty());
}

#[test]
fn one_new_batch_is_sent_at_a_time_and_its_result_counts_once() {
    let mut queue = queue(options());
    queue.take(vec![note("a", NoteKind::Occupied)], at(0));
    let first = queue.poll(at(0), UNIX).send.remove(0);
    queue.take(vec![note("b", NoteKind::Occupied)], at(0));
    assert_eq!(queue.poll(at(100_000), UNIX).send, []);
    queue.done(first.id, Outcome::Taken, at(100_000));
    queue.done(first.id, Outcome::Taken, at(100_000));
    let second = queue.poll(at(100_000), UNIX).send.remove(0);
    queue.done(first.id, Outcome::Taken, at(100_000));
    assert_eq!(queue.report().delivered, 1);
    queue.done(second.id, Outcome::Gone, at(100_000));
    assert_eq!(queue.report(), Report { delivered: 1, given_up: 1, ..Report::default() });
}

#[test]
fn an_unreachable_endpoint_delays_no_other() {
    let mut queue = queue(options());
    let both = [endpoint("down"), endpoint("up")];
    queue.take(vec![note_to(&both, "a", NoteKind::Occupied)], at(0));
    for batch in queue.poll(at(0), UNIX).send {
        let outcome = if &*batch.target == "up" { Outcome::Taken } else { Outcome::Failed };
        queue.done(batch.id, outcome, at(0));
    }
    queue.take(vec![note_to(&both, "b", NoteKind::Occupied)], at(1));
    let step = queue.poll(at(1), UNIX);
    assert!(step.send.iter().any(|batch| &*batch.target == "up"));
}

#[test]
fn events_above_the_limit_replace_the_oldest_but_not_the_batch_being_sent() {
    let mut queue = queue(Options { kept: 500, batch_events: 1, ..options() });
    queue.take(vec![note("first", NoteKind::Occupied)], at(0));
    let first = queue.poll(at(0), UNIX).send.remove(0);
    queue.take((0..100).map(|n| note(&format!("c{n:02}"), NoteKind::Occupied)).collect(), at(0));
    assert!(queue.bytes() <= 500);
    let report = queue.report();
    assert_eq!(report.overflowed + report.waiting, 101);
    queue.done(first.id, Outcome::Taken, at(1));
    let rest = run(&mut queue, at(1));
    assert_eq!(rest.last().unwrap(), "channel_occupied c99");
    assert_eq!(queue.report().delivered + report.overflowed, 101);
    assert!(queue.is_empty() && queue.bytes() == 0);
}

#[test]
fn stopping_ends_debouncing_and_batching() {
    let mut queue = queue(Options::default());
    queue.take(vec![note("a", NoteKind::Vacated), note("b", NoteKind::Occupied)], at(0));
    queue.end(at(1));
    queue.take(vec![note("c", NoteKind::Vacated)], at(1));
    assert_eq!(
        run(&mut queue, at(1)),
        ["channel_occupied b", "channel_vacated a", "channel_vacated c"]
    );
    assert!(queue.is_empty());
}

/// Returns the numbers of a batch's client events.
fn numbers(batch: &Batch) -> Vec<usize> {
    let body: serde_json::Value = serde_json::from_str(&batch.body).unwrap();
    let events = body["events"].as_array().unwrap().iter();
    events
        .map(|event| {
            event["event"].as_str().unwrap().strip_prefix("client-").unwrap().parse().unwrap()
        })
        .collect()
}

#[derive(Clone, Debug)]
enum Act {
    Happen,
    Pass(u64),
    Answer(Outcome),
    /// The process crashes and restarts, with the file truncated or not.
    Crash,
    Compact,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Happen),
        3 => (0..4000_u64).prop_map(Act::Pass),
        3 => prop_oneof![3 => Just(Outcome::Taken), 1 => Just(Outcome::Failed)].prop_map(Act::Answer),
        1 => Just(Act::Crash),
        1 => Just(Act::Compact),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever fails and whenever the process crashes: each event in the spool is sent at least once, and each
    /// endpoint receives the new events of a channel in order.
    #[test]
    fn accepted_events_are_delivered_in_order_across_crashes(acts in prop::collection::vec(act(), 0..80)) {
        let both = ["a", "b"].map(|target| Endpoint { topics: vec![Topic::ClientEvent], ..endpoint(target) });
        let mut queue = queue(options());
        let mut file = Vec::new();
        let mut flying: Vec<Batch> = Vec::new();
        let mut accepted = 0;
        let mut heard: [Vec<usize>; 2] = Default::default();
        let mut now = at(0);
        let step = |queue: &mut Queue, file: &mut Vec<u8>, flying: &mut Vec<Batch>, now| {
            let step = queue.poll(now, UNIX);
            file.extend(step.append);
            flying.extend(step.send);
        };
        for act in acts.into_iter().chain([Act::Crash]) {
            match act {
                Act::Happen => {
                    let kind = NoteKind::Client(format!(r#","event":"client-{accepted}""#));
                    queue.take(vec![note_to(&both, ["x", "y", "z"][accepted % 3], kind)], now);
                    accepted += 1;
                }
                Act::Pass(millis) => now = now + Duration::from_millis(millis),
                Act::Answer(outcome) => {
                    if let Some(batch) = flying.pop() {
                        if outcome == Outcome::Taken {
                            heard[usize::from(&*batch.target == "b")].extend(numbers(&batch));
                        }
                        queue.done(batch.id, outcome, now);
                    }
                }
                Act::Crash => {
                    // A batch being sent may have arrived; here it did not. An accepted batch that was not recorded
                    // yet is sent again.
                    flying.clear();
                    let (kept, sound) = spool::read(&file);
                    prop_assert_eq!(sound, file.len());
                    queue = Queue::begun(options(), kept, now);
                    step(&mut queue, &mut file, &mut flying, now);
                    continue;
                }
                Act::Compact => file = queue.snapshot(),
            }
            if !matches!(act, Act::Compact) {
                step(&mut queue, &mut file, &mut flying, now);
            }
        }
        while let Some(batch) = flying.pop() {
            heard[usize::from(&*batch.target == "b")].extend(numbers(&batch));
            queue.done(batch.id, Outcome::Taken, now);
            step(&mut queue, &mut file, &mut flying, now);
        }
        for heard in heard {
            let mut seen = HashSet::new();
            let new: Vec<_> = heard.into_iter().filter(|event| seen.insert(*event)).collect();
            prop_assert_eq!(new.len(), accepted);
            for channel in 0..3 {
                let of_channel: Vec<_> = new.iter().filter(|number| *number % 3 == channel).collect();
                prop_assert!(of_channel.is_sorted(), "{:?}", new);
            }
        }
        prop_assert_eq!(spool::read(&file).0, vec![]);
    }
}
