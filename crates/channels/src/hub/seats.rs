//! The sockets of one event loop by slot. A reused slot has a new generation, so a delivery for a closed socket does
//! not reach its successor.

use crate::delivery::Seat;

/// Sockets by slot.
#[derive(Debug)]
pub(super) struct Seats<T> {
    event_loop: u16,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    taken: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    socket: Option<Box<T>>,
}

impl<T> Seats<T> {
    pub(super) fn new(event_loop: u16) -> Self {
        Self { event_loop, slots: Vec::new(), free: Vec::new(), taken: 0 }
    }

    /// Reserves a seat that stays empty until [`Seats::put`].
    pub(super) fn reserve(&mut self) -> Seat {
        self.taken += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, socket: None });
            u32::try_from(self.slots.len() - 1).expect("there are fewer descriptors")
        });
        let generation = self.slot(slot).generation;
        Seat { event_loop: self.event_loop, slot, generation }
    }

    /// Releases a seat whose socket was taken out; its slot is reused.
    pub(super) fn release(&mut self, seat: Seat) {
        self.taken -= 1;
        let slot = self.slot(seat.slot);
        debug_assert!(
            slot.generation == seat.generation && slot.socket.is_none(),
            "released by its holder, once"
        );
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(seat.slot);
    }

    /// Takes a socket out, to be put back or released. `None` if it is taken out already or closed.
    pub(super) fn take(&mut self, seat: Seat) -> Option<Box<T>> {
        let slot = self.slots.get_mut(seat.slot as usize)?;
        if slot.generation == seat.generation { slot.socket.take() } else { None }
    }

    /// Puts a socket into its seat.
    pub(super) fn put(&mut self, seat: Seat, socket: Box<T>) {
        let slot = self.slot(seat.slot);
        debug_assert!(slot.generation == seat.generation && slot.socket.is_none(), "its own seat");
        slot.socket = Some(socket);
    }

    pub(super) fn get_mut(&mut self, seat: Seat) -> Option<&mut T> {
        let slot = self.slots.get_mut(seat.slot as usize)?;
        if slot.generation == seat.generation { slot.socket.as_deref_mut() } else { None }
    }

    /// Returns the socket that is in the slot now.
    pub(super) fn at_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.socket.as_deref_mut()
    }

    /// Returns the seat of the socket that is in the slot now.
    pub(super) fn seat_at(&self, slot: u32) -> Option<Seat> {
        let found = self.slots.get(slot as usize)?;
        found.socket.as_ref().map(|_| Seat {
            event_loop: self.event_loop,
            slot,
            generation: found.generation,
        })
    }

    /// Returns the highest slot plus one.
    pub(super) fn slots(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("there are fewer descriptors")
    }

    pub(super) fn len(&self) -> usize {
        self.taken
    }

    fn slot(&mut self, slot: u32) -> &mut Slot<T> {
        self.slots.get_mut(slot as usize).expect("the seat is reserved")
    }
}
