//! Tests concurrent threads, and many channels over time.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::*;
use crate::delivery::Delivery;
use crate::testing::app;
use crate::{
    AppNumber, Channels, Encoded, FixedApps, Full, History, NoObserver, Offset, Outlet, Position,
    Records, Room, Seat,
};

#[derive(Debug, Default)]
struct Inbox(Mutex<Vec<Delivery>>);

impl Outlet for Inbox {
    fn put(&self, _: AppNumber, delivery: Delivery) -> Result<(), Full> {
        self.0.lock().unwrap().push(delivery);
        Ok(())
    }
}

fn channels_of(app: App) -> (Arc<App>, Channels) {
    let apps = FixedApps::new([app]);
    let app = Arc::clone(&apps.all()[0]);
    (app, Channels::new(Arc::new(apps), Arc::new(NoObserver)))
}

fn name(text: &str) -> ChannelName {
    ChannelName::new(text, 200).unwrap()
}

/// Pseudo-random numbers (xorshift64) from a seed that a failure prints.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn seed() -> u64 {
    RandomState::new().hash_one(0) | 1
}

fn text_of(message: &Encoded) -> String {
    String::from_utf8(message.text().to_vec()).unwrap()
}

/// Returns the history offset of an event, if the application published it.
fn place_in_history(text: &str) -> Option<u64> {
    let (_, offset) = text.rsplit_once(r#","offset":"#)?;
    offset.trim_end_matches('}').parse().ok()
}

/// The state of a channel in an event loop.
struct Heard {
    after: Offset,
    /// Offset of the last delivery received.
    last: u64,
    /// Position of the last event, missed or received.
    place: Position,
}

/// Deliveries by channel and offset; all loops must see the same.
type Seen = Mutex<BTreeMap<(ChannelId, u64), String>>;

/// Runs one event loop: it reads its inbox, then subscribes or unsubscribes, repeatedly.
fn event_loop(
    registry: &Registry,
    app: &Arc<App>,
    (number, inbox): (u16, &Inbox),
    names: &[ChannelName],
    (dice, seen, done): (&mut Dice, &Seen, &AtomicBool),
) -> u64 {
    let now = Moment::from_millis(1);
    let mut heard: HashMap<ChannelId, Heard> = HashMap::new();
    let mut inside: Vec<Option<ChannelId>> = names.iter().map(|_| None).collect();
    let mut places: Vec<Option<Position>> = names.iter().map(|_| None).collect();
    let mut taken = 0;
    let mut last_turn = false;
    loop {
        let deliveries = std::mem::take(&mut *inbox.0.lock().unwrap());
        if deliveries.is_empty() && last_turn {
            break;
        }
        for delivery in deliveries {
            let Delivery::Channel { channel, offset, message, .. } = delivery else {
                panic!("unexpected {delivery:?}")
            };
            let Some(heard) = heard.get_mut(&channel) else { continue };
            if offset <= heard.after {
                continue;
            }
            assert_eq!(offset.0, heard.last + 1, "no gap and nothing twice");
            heard.last = offset.0;
            let text = text_of(&message);
            if let Some(place) = place_in_history(&text) {
                assert_eq!(place, heard.place.offset + 1, "the history has no gap either");
                heard.place.offset = place;
            }
            let mut seen = seen.lock().unwrap();
            let first = seen.entry((channel, offset.0)).or_insert_with(|| text.clone());
            assert_eq!(*first, text, "all loops see one order");
            taken += 1;
        }
        last_turn = done.load(Ordering::Acquire);
        let index = usize::try_from(dice.below(names.len() as u64)).unwrap();
        match inside[index] {
            None if !last_turn => {
                let resume = places[index].filter(|_| dice.below(2) == 0);
                let resume =
                    resume.map(|position| Resume { position, socket: None, room: Room::default() });
                let subscription = Subscription {
                    channel: &names[index],
                    event_loop: number,
                    member: None,
                    resume,
                };
                let joined = registry.subscribe(app, &subscription, now).unwrap();
                let mut place = joined.position.unwrap();
                if let (Some(missed), Some(resume)) = (&joined.missed, resume) {
                    place = resume.position;
                    for message in missed {
                        let next = place_in_history(&text_of(message)).unwrap();
                        assert_eq!(next, place.offset + 1, "what was missed has no gap");
                        place.offset = next;
                    }
                    assert_eq!(Some(place), joined.position);
                }
                inside[index] = Some(joined.channel);
                heard.insert(
                    joined.channel,
                    Heard { after: joined.after, last: joined.after.0, place },
                );
            }
            Some(id) if last_turn || dice.below(3) == 0 => {
                registry.unsubscribe(app, &names[index], number, None, now);
                inside[index] = None;
                let left = heard.remove(&id).unwrap();
                places[index] = Some(left.place);
            }
            _ => {}
        }
        if dice.below(4) == 0 {
            thread::yield_now();
        }
    }
    for (index, id) in inside.into_iter().enumerate() {
        if id.is_some() {
            registry.unsubscribe(app, &names[index], number, None, now);
        }
    }
    taken
}

#[test]
fn subscribers_on_all_event_loops_receive_each_later_delivery_once_and_in_one_order() {
    const LOOPS: usize = 4;
    const PUBLISHERS: usize = 3;
    const EVENTS: u64 = 3000;

    let seed = seed();
    println!("seed {seed}");
    let mut app = app();
    app.rights.subscription_count = true;
    app.history =
        Some(History { events: 50, age: std::time::Duration::from_mins(1), channels: Vec::new() });
    let (app, channels) = channels_of(app);
    let registry = channels.registry();
    let names: Vec<_> = (0..3).map(|index| name(&format!("channel-{index}"))).collect();
    let inboxes: Vec<_> = (0..LOOPS)
        .map(|_| {
            let inbox = Arc::new(Inbox::default());
            (channels.attach(Arc::<Inbox>::clone(&inbox)).unwrap(), inbox)
        })
        .collect();
    let (seen, done, number) = (Seen::default(), AtomicBool::new(false), AtomicU64::new(0));
    let taken: u64 = thread::scope(|scope| {
        let loops: Vec<_> = inboxes
            .iter()
            .map(|(number, inbox)| {
                let (app, names, seen, done) = (&app, &names, &seen, &done);
                let mut dice = Dice(seed ^ u64::from(*number) << 32);
                scope.spawn(move || {
                    event_loop(registry, app, (*number, inbox), names, (&mut dice, seen, done))
                })
            })
            .collect();
        let publishers: Vec<_> = (0..PUBLISHERS)
            .map(|publisher| {
                let (app, names, number) = (&app, &names, &number);
                let mut dice = Dice(seed ^ (publisher as u64 + 77));
                scope.spawn(move || {
                    for _ in 0..EVENTS {
                        let index = usize::try_from(dice.below(names.len() as u64)).unwrap();
                        let data = number.fetch_add(1, Ordering::Relaxed).to_string();
                        let author = Author::Server { except: None };
                        let publication =
                            Publication { channel: &names[index], event: "e", data: &data, author };
                        registry.publish(app, &publication, Moment::from_millis(1)).unwrap();
                    }
                })
            })
            .collect();
        for publisher in publishers {
            publisher.join().unwrap();
        }
        done.store(true, Ordering::Release);
        loops.into_iter().map(|event_loop| event_loop.join().unwrap()).sum()
    });
    assert!(taken > EVENTS, "the loops heard something: {taken}");
    channels.tick(Moment::from_millis(100_000));
    assert_eq!(channels.records(), Records::default());
}

#[test]
fn a_hundred_thousand_removed_channels_leave_no_memory_behind() {
    const CHANNELS: usize = 100_000;

    let (app, channels) = channels_of(app());
    let event_loop = channels.attach(Arc::new(Inbox::default())).unwrap();
    let registry = channels.registry();
    let names: Vec<_> = (0..CHANNELS)
        .map(|index| match index % 3 {
            0 => name(&format!("channel-{index}")),
            1 => name(&format!("cache-{index}")),
            _ => name(&format!("presence-{index}")),
        })
        .collect();
    let member = Arc::new(Member::new("ann", None));
    let member_of = |name: &ChannelName| (name.access() == Access::Presence).then_some(&member);
    for name in &names {
        let member = member_of(name);
        let subscription = Subscription { channel: name, event_loop, member, resume: None };
        registry.subscribe(&app, &subscription, Moment::from_millis(0)).unwrap();
        if name.is_cache() {
            let author = Author::Server { except: None };
            let publication = Publication { channel: name, event: "e", data: "1", author };
            registry.publish(&app, &publication, Moment::from_millis(0)).unwrap();
        }
    }
    assert_eq!(registry.len(), CHANNELS);
    assert!(registry.room() >= CHANNELS);
    for name in &names {
        let member = member_of(name).map(|member| &**member);
        registry.unsubscribe(&app, name, event_loop, member, Moment::from_millis(0));
    }
    assert_eq!(registry.len(), CHANNELS / 3, "cache channels keep their last event");
    registry.tick(Moment::default() + app.limits.cache);
    assert!(registry.is_empty());
    assert!(registry.room() <= SHARDS * 32, "{} places are kept", registry.room());
}

#[test]
fn a_hundred_thousand_removed_users_leave_no_memory_behind() {
    let (app, channels) = channels_of(app());
    let event_loop = channels.attach(Arc::new(Inbox::default())).unwrap();
    let counters = channels.statistics().of(&app.id);
    let reach = channels.reach(&app, &counters);
    let users: Vec<Arc<str>> = (0..100_000).map(|index| format!("user-{index}").into()).collect();
    let seat = |slot| Seat { event_loop, slot, generation: 0 };
    for (slot, user) in (0..).zip(&users) {
        channels.users().sign_in(&reach, user, seat(slot));
        channels.users().watch(&reach, &users[0], seat(slot));
    }
    assert_eq!(channels.records().users, users.len());
    for (slot, user) in (0..).zip(&users) {
        channels.users().unwatch(&reach, &users[0], seat(slot));
        channels.users().sign_out(&reach, user, seat(slot));
    }
    assert_eq!(channels.records().users, 0);
    assert!(channels.users().room() <= SHARDS * 32, "{} places are kept", channels.users().room());
}

#[test]
fn an_idle_channel_uses_little_memory() {
    assert!(size_of::<Channel>() <= 176, "{}", size_of::<Channel>());
}

#[test]
fn an_earlier_timer_of_a_channel_replaces_a_later_one() {
    let mut app = app();
    app.rights.subscription_count = true;
    let (app, channels) = channels_of(app);
    let inbox = Arc::new(Inbox::default());
    let event_loop = channels.attach(Arc::<Inbox>::clone(&inbox)).unwrap();
    let (registry, channel) = (channels.registry(), name("cache-a"));
    let now = Moment::from_millis(1_000_000);
    let author = Author::Server { except: None };
    let publication = Publication { channel: &channel, event: "e", data: "1", author };
    // The event is kept for half an hour, and the number of subscribers is published every five seconds.
    registry.publish(&app, &publication, now).unwrap();
    let subscription = Subscription { channel: &channel, event_loop, member: None, resume: None };
    for _ in 0..150 {
        registry.subscribe(&app, &subscription, now).unwrap();
    }
    inbox.0.lock().unwrap().clear();
    registry.tick(now + std::time::Duration::from_secs(5));
    let told = std::mem::take(&mut *inbox.0.lock().unwrap());
    let [Delivery::Channel { message, .. }] = &told[..] else { panic!("{told:?}") };
    assert!(text_of(message).contains("150"));
}

#[test]
fn timers_of_a_channel_do_not_accumulate() {
    let (app, channels) = channels_of(app());
    let event_loop = channels.attach(Arc::new(Inbox::default())).unwrap();
    let (registry, channel) = (channels.registry(), name("cache-a"));
    let author = Author::Server { except: None };
    let publication = Publication { channel: &channel, event: "e", data: "1", author };
    let subscription = Subscription { channel: &channel, event_loop, member: None, resume: None };
    let mut now = Moment::from_millis(1_000_000);
    // An event kept for half an hour, besides a number of subscribers published every five seconds.
    registry.publish(&app, &publication, now).unwrap();
    for _ in 0..300 {
        registry.subscribe(&app, &subscription, now).unwrap();
        now = now + std::time::Duration::from_secs(1);
        registry.tick(now);
        let times: usize = registry.shards.iter().map(|shard| lock(shard).due.len()).sum();
        assert!(times <= 2, "{times}");
    }
    registry.tick(now + app.limits.cache);
    assert!(
        registry.channel(&app, "cache-a", now).unwrap().cache.is_none(),
        "it was looked at in time"
    );
}

#[test]
fn a_full_inbox_is_counted_and_delays_no_publisher() {
    #[derive(Debug)]
    struct AlwaysFull;
    impl Outlet for AlwaysFull {
        fn put(&self, _: AppNumber, _: Delivery) -> Result<(), Full> {
            Err(Full)
        }
    }
    let (app, channels) = channels_of(app());
    let full = channels.attach(Arc::new(AlwaysFull)).unwrap();
    let inbox = Arc::new(Inbox::default());
    let other = channels.attach(Arc::<Inbox>::clone(&inbox)).unwrap();
    let channel = name("news");
    for event_loop in [full, other] {
        let subscription =
            Subscription { channel: &channel, event_loop, member: None, resume: None };
        channels.registry().subscribe(&app, &subscription, Moment::default()).unwrap();
    }
    let author = Author::Server { except: None };
    let publication = Publication { channel: &channel, event: "e", data: "1", author };
    channels.registry().publish(&app, &publication, Moment::default()).unwrap();
    assert_eq!(inbox.0.lock().unwrap().len(), 1);
    assert_eq!(channels.statistics().of(&app.id).inbox_full.get(), 1);
}

#[test]
fn the_number_of_event_loops_is_limited() {
    let (_, channels) = channels_of(app());
    let numbers: Vec<_> =
        (0..EVENT_LOOPS + 2).map(|_| channels.attach(Arc::new(Inbox::default()))).collect();
    assert_eq!(numbers.iter().flatten().count(), EVENT_LOOPS);
    assert_eq!(numbers[EVENT_LOOPS..], [None, None]);
}
