//! Maps channels to the sockets of one event loop. Subscribing and unsubscribing take constant time.
//!
//! Invariant: each listener stores its index in its socket's list, and each entry of that list stores its index in
//! the audience. Both are updated when another listener is removed.

use std::collections::HashMap;

use crate::delivery::{ChannelId, LOADED, Offset, UNTIL_LOADED, skips};

/// One socket in one audience.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listener {
    /// Slot of the socket.
    pub(super) slot: u32,
    /// Index in the socket's own list.
    entry: u32,
    /// Only deliveries with a higher offset are for this socket.
    pub(super) after: Offset,
}

/// A socket's entry for one channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    audience: u32,
    listener: u32,
}

/// The channels to which a socket is subscribed.
pub(super) type Places = Vec<Place>;

/// Access to the sockets' lists.
pub(super) trait Sockets {
    /// Returns the list of the socket in this slot.
    fn places(&mut self, slot: u32) -> Option<&mut Places>;
}

#[derive(Debug)]
struct Audience {
    channel: ChannelId,
    listeners: Vec<Listener>,
}

/// The audiences of one event loop.
#[derive(Debug, Default)]
pub(super) struct Audiences {
    known: HashMap<ChannelId, u32>,
    all: Vec<Audience>,
    free: Vec<u32>,
    /// Listeners that have events of a channel which this node has not applied yet, by channel and slot: up to this
    /// position of the shared log. It is empty nearly always; while the log is loaded it may have every listener.
    ahead: HashMap<ChannelId, HashMap<u32, u64>>,
}

impl Audiences {
    /// Sets the position up to which a listener has the channel's events; 0 for none.
    pub(super) fn set_ahead(&mut self, channel: ChannelId, slot: u32, position: u64) {
        if position > 0 {
            self.ahead.entry(channel).or_default().insert(slot, position);
        }
    }

    /// Returns whether a listener skips the delivery at this position.
    pub(super) fn skips(&self, channel: ChannelId, slot: u32, position: u64) -> bool {
        if position == 0 || (self.ahead.is_empty() && position != LOADED) {
            return false;
        }
        let ahead = self.ahead.get(&channel).and_then(|slots| slots.get(&slot));
        skips(position, ahead.copied().unwrap_or_default())
    }

    /// Removes what the delivery at this position has made useless.
    pub(super) fn passed(&mut self, channel: ChannelId, position: u64) {
        if position == 0 || self.ahead.is_empty() {
            return;
        }
        let Some(slots) = self.ahead.get_mut(&channel) else { return };
        slots.retain(|_, ahead| match position {
            LOADED => *ahead != UNTIL_LOADED,
            _ => *ahead > position,
        });
        if slots.is_empty() {
            self.ahead.remove(&channel);
        }
    }

    /// Adds a socket with the list `places` to a channel's audience. The socket must not be in it yet.
    pub(super) fn join(
        &mut self,
        channel: ChannelId,
        slot: u32,
        after: Offset,
        places: &mut Places,
    ) {
        let Self { known, all, free, .. } = self;
        let audience = *known.entry(channel).or_insert_with(|| {
            let fresh = Audience { channel, listeners: Vec::new() };
            if let Some(at) = free.pop() {
                all[at as usize] = fresh;
                return at;
            }
            all.push(fresh);
            index(all.len() - 1)
        });
        let listeners = &mut all[audience as usize].listeners;
        places.push(Place { audience, listener: index(listeners.len()) });
        listeners.push(Listener { slot, entry: index(places.len() - 1), after });
    }

    /// Removes a socket with the list `places` from a channel's audience. The lists of other sockets are found
    /// through `sockets`.
    pub(super) fn leave(
        &mut self,
        channel: ChannelId,
        places: &mut Places,
        sockets: &mut impl Sockets,
    ) {
        let Some(&audience) = self.known.get(&channel) else { return };
        if let Some(entry) = places.iter().position(|place| place.audience == audience) {
            self.remove(entry, places, sockets);
        }
        if places.is_empty() {
            *places = Places::new();
        }
    }

    /// Removes a socket from all audiences.
    pub(super) fn leave_all(&mut self, places: &mut Places, sockets: &mut impl Sockets) {
        while let Some(last) = places.len().checked_sub(1) {
            self.remove(last, places, sockets);
        }
        *places = Places::new();
    }

    fn remove(&mut self, entry: usize, places: &mut Places, sockets: &mut impl Sockets) {
        let place = places.swap_remove(entry);
        if let Some(moved) = places.get(entry) {
            self.all[moved.audience as usize].listeners[moved.listener as usize].entry =
                index(entry);
        }
        let audience = &mut self.all[place.audience as usize];
        let left = audience.listeners.swap_remove(place.listener as usize);
        if let Some(slots) = self.ahead.get_mut(&audience.channel) {
            slots.remove(&left.slot);
            if slots.is_empty() {
                self.ahead.remove(&audience.channel);
            }
        }
        if let Some(moved) = audience.listeners.get(place.listener as usize)
            && let Some(other) = sockets.places(moved.slot)
        {
            other[moved.entry as usize].listener = place.listener;
        }
        if audience.listeners.is_empty() {
            self.known.remove(&audience.channel);
            audience.listeners = Vec::new();
            self.free.push(place.audience);
        } else if audience.listeners.capacity() > 64
            && audience.listeners.len() < audience.listeners.capacity() / 4
        {
            audience.listeners.shrink_to(audience.listeners.len() * 2);
        }
    }

    /// Returns the listeners of a channel.
    pub(super) fn of(&self, channel: ChannelId) -> &[Listener] {
        self.known.get(&channel).map_or(&[], |audience| &self.all[*audience as usize].listeners)
    }
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("a socket has fewer channels, and a loop fewer sockets")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    /// Lists of sockets, without the one that is being changed.
    struct Lists(BTreeMap<u32, Places>);

    impl Sockets for Lists {
        fn places(&mut self, slot: u32) -> Option<&mut Places> {
            self.0.get_mut(&slot)
        }
    }

    proptest! {
        #[test]
        fn every_socket_receives_only_the_events_of_its_channels(
            steps in prop::collection::vec((0u32..6, 0u64..5, 0u8..8), 0..200),
        ) {
            let mut audiences = Audiences::default();
            let mut lists = Lists((0..6).map(|slot| (slot, Places::new())).collect());
            let mut model = BTreeSet::new();
            for (slot, channel, what) in steps {
                let mut places = lists.0.remove(&slot).unwrap();
                match what {
                    0 => {
                        audiences.leave_all(&mut places, &mut lists);
                        model.retain(|(_, other)| *other != slot);
                    }
                    1..4 => {
                        audiences.leave(ChannelId(channel), &mut places, &mut lists);
                        model.remove(&(channel, slot));
                    }
                    _ if model.insert((channel, slot)) => {
                        audiences.join(ChannelId(channel), slot, Offset(channel), &mut places);
                    }
                    _ => {}
                }
                lists.0.insert(slot, places);

                for channel in 0..5 {
                    let heard: BTreeSet<u32> =
                        audiences.of(ChannelId(channel)).iter().map(|listener| listener.slot).collect();
                    let expected: BTreeSet<u32> =
                        model.iter().filter(|(of, _)| *of == channel).map(|(_, slot)| *slot).collect();
                    prop_assert_eq!(heard, expected);
                }
            }
            prop_assert_eq!(audiences.known.len(), model.iter().map(|(channel, _)| channel).collect::<BTreeSet<_>>().len());
        }
    }
}
