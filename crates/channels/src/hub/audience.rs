//! Who of one event loop's sockets hears which channel. Joining and leaving take the same time whatever the size of the audience.
//!
//! Invariant: each listener knows its place in its socket's list, and each entry of that list its place in the audience; both are kept right
//! when another leaves.

use std::collections::HashMap;

use crate::delivery::{ChannelId, Offset};

/// One socket in one audience.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listener {
    /// Which socket.
    pub(super) slot: u32,
    /// Which entry of the socket's own list is this.
    entry: u32,
    /// Deliveries up to this one are not for it.
    pub(super) after: Offset,
}

/// What a socket knows of one channel it hears.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    audience: u32,
    listener: u32,
}

/// The channels a socket hears.
pub(super) type Places = Vec<Place>;

/// Where the lists of sockets are.
pub(super) trait Sockets {
    /// The list of the socket in this slot.
    fn places(&mut self, slot: u32) -> Option<&mut Places>;
}

#[derive(Debug)]
struct Audience {
    channel: ChannelId,
    listeners: Vec<Listener>,
}

/// All audiences of one event loop.
#[derive(Debug, Default)]
pub(super) struct Audiences {
    known: HashMap<ChannelId, u32>,
    all: Vec<Audience>,
    free: Vec<u32>,
}

impl Audiences {
    /// Adds a socket, whose list is `places`, to a channel's audience. It must not be there already.
    pub(super) fn join(
        &mut self,
        channel: ChannelId,
        slot: u32,
        after: Offset,
        places: &mut Places,
    ) {
        let Self { known, all, free } = self;
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

    /// Takes a socket out of a channel's audience. `places` is its list; those of others are found in `sockets`.
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

    /// Takes a socket out of all audiences.
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
        audience.listeners.swap_remove(place.listener as usize);
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

    /// Those who hear a channel.
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

    /// Lists of sockets; the one that is being worked on is out.
    struct Lists(BTreeMap<u32, Places>);

    impl Sockets for Lists {
        fn places(&mut self, slot: u32) -> Option<&mut Places> {
            self.0.get_mut(&slot)
        }
    }

    proptest! {
        #[test]
        fn everybody_hears_what_they_joined_and_nothing_else(
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
