//! Moves deliveries into queues, and queues into sockets.

use super::super::connection::{Fate, Stage};
use super::super::figures::Reason;
use super::super::inbox::Losses;
use super::super::queue::{Encoding, Flushed, Form, Moved};
use super::super::transport::Transport;
use super::{EventLoop, Renewal, mark, token};
use crate::close::Close;
use crate::delivery::{AppNumber, ChannelId, Delivery, Offset, Seat, starts_positions};
use crate::encoded::Encoded;
use crate::socket_id::SocketId;

/// Maximum number of deliveries per turn: as many as one write takes. More would save nothing and wait longer.
const DELIVERIES: usize = 64;
/// Number of queued messages in a turn above which the next delivery waits.
const MESSAGES: usize = 65_536;
/// Maximum number of writes per turn.
const WRITES: usize = 1024;

impl EventLoop {
    /// Puts messages into queues, once the sockets of the previous deliveries have been written. This keeps a
    /// client's queue from filling only because the loop has not written yet. Deliveries that wait in the inbox are
    /// then handled together.
    pub(super) fn deliver(&mut self) {
        if !self.dirty.is_past_mark() {
            return;
        }
        if self.deliveries.is_empty() {
            let mut deliveries = std::mem::take(&mut self.deliveries);
            let losses = self.inbox.deliveries(&mut deliveries);
            deliveries.reverse();
            self.deliveries = deliveries;
            for (app, losses) in losses {
                self.lost(app, &losses);
            }
        }
        let mut messages = 0;
        for _ in 0..DELIVERIES {
            let Some(delivery) = self.deliveries.pop() else { break };
            messages += match delivery {
                Delivery::Channel { channel, offset, message, position, except } => {
                    let delivered =
                        self.deliver_to_channel(channel, offset, &message, position, except);
                    self.audiences.passed(channel, position);
                    if starts_positions(position) {
                        self.end_streams(channel);
                    }
                    delivered
                }
                Delivery::Seats { seats, message } => self.deliver_to_seats(&seats, &message),
                Delivery::App { id, app } => {
                    self.renewals.push_back(Renewal { id, app, slot: 0 });
                    1
                }
                Delivery::Close { seat, code, reason } => {
                    self.with(seat, |this, _, connection| {
                        if matches!(connection.stage, Stage::Open(_)) {
                            this.close(connection, Close { code, reason }, Reason::Refused);
                        }
                        Fate::Stays
                    });
                    1
                }
            };
            if messages >= MESSAGES {
                break;
            }
        }
        self.dirty.mark();
        self.figures.delivered.add(messages as u64);
        if self.deliveries.is_empty() && self.deliveries.capacity() > 1024 {
            self.deliveries = Vec::new();
        }
    }

    fn deliver_to_channel(
        &mut self,
        channel: ChannelId,
        offset: Offset,
        message: &Encoded,
        position: u64,
        except: Option<SocketId>,
    ) -> usize {
        let mut messages = 0;
        let mut overflowed = Vec::new();
        let mut application = None;
        for listener in self.audiences.of(channel) {
            if listener.after >= offset || self.audiences.skips(channel, listener.slot, position) {
                continue;
            }
            let Some(connection) = self.seats.at_mut(listener.slot) else { continue };
            if except.is_some() && connection.socket == except {
                continue;
            }
            if connection
                .queue
                .push_with(&mut self.spares, message.clone(), connection.bound)
                .is_err()
            {
                overflowed.push(listener.slot);
                continue;
            }
            messages += 1;
            application = Some(listener.slot);
            if connection.blocked.is_none() {
                mark(&mut self.dirty, listener.slot, connection);
            }
        }
        // All subscribers of a channel belong to one application.
        if let Some(connection) = application.and_then(|slot| self.seats.at_mut(slot))
            && let Stage::Open(session) = &connection.stage
        {
            session.counters().sent.add(messages as u64);
        }
        self.overflowed(&overflowed);
        messages
    }

    /// Ends the event streams of a channel: their event ids are of an epoch that has ended, so they start again.
    fn end_streams(&mut self, channel: ChannelId) {
        let slots: Vec<u32> = self.audiences.of(channel).iter().map(|one| one.slot).collect();
        for slot in slots {
            let Some(seat) = self.seats.seat_at(slot) else { continue };
            self.with(seat, |this, _, connection| {
                if connection.form == Form::EventStream {
                    this.close(connection, Close::RECONNECT, Reason::Drained);
                }
                Fate::Stays
            });
        }
    }

    fn deliver_to_seats(&mut self, seats: &[Seat], message: &Encoded) -> usize {
        let mut messages = 0;
        let mut overflowed = Vec::new();
        for seat in seats {
            let Some(connection) = self.seats.get_mut(*seat) else { continue };
            let Stage::Open(session) = &connection.stage else { continue };
            if connection
                .queue
                .push_with(&mut self.spares, message.clone(), connection.bound)
                .is_err()
            {
                overflowed.push(seat.slot);
                continue;
            }
            session.counters().sent.increase();
            messages += 1;
            if connection.blocked.is_none() {
                mark(&mut self.dirty, seat.slot, connection);
            }
        }
        self.overflowed(&overflowed);
        messages
    }

    fn overflowed(&mut self, slots: &[u32]) {
        for slot in slots {
            let Some(seat) = self.seats.seat_at(*slot) else { continue };
            self.with(seat, |this, _, connection| {
                this.overflow(connection);
                Fate::Stays
            });
        }
    }

    /// Handles lost events: closes the affected sockets, so that the clients reconnect and resume.
    fn lost(&mut self, app: AppNumber, losses: &Losses) {
        tracing::error!(
            channels = losses.channels.len(),
            "events are published faster than this machine can deliver them: subscribers are closed and reconnect"
        );
        let mut seats: Vec<Seat> = losses.seats.iter().copied().collect();
        if losses.all {
            seats = (0..self.seats.slots()).filter_map(|slot| self.seats.seat_at(slot)).collect();
        }
        for channel in &losses.channels {
            let listeners = self.audiences.of(*channel).iter();
            seats.extend(listeners.filter_map(|listener| self.seats.seat_at(listener.slot)));
        }
        for seat in seats {
            self.with(seat, |this, _, connection| {
                if let Stage::Open(session) = &connection.stage
                    && session.counters().app() == app
                {
                    this.close(connection, Close::RECONNECT, Reason::Lost);
                }
                Fate::Stays
            });
        }
    }

    /// Writes to the sockets with a non-empty queue, in the order in which they were marked.
    pub(super) fn flush(&mut self) {
        let mut budget = WRITES;
        while budget > 0 {
            let Some(slot) = self.dirty.pop() else { break };
            let Some(seat) = self.seats.seat_at(slot) else { continue };
            let Some(connection) = self.seats.get_mut(seat) else { continue };
            if !std::mem::take(&mut connection.dirty) {
                continue;
            }
            let mut moved = Moved::default();
            let flushed = connection.queue.flush(
                &mut connection.transport,
                &mut Encoding {
                    form: connection.form,
                    deflater: &mut self.deflater,
                    epochs: connection.epochs.as_deref().unwrap_or(&self.no_epochs),
                },
                &mut self.buffer,
                &mut self.spares,
                &mut moved,
            );
            budget = budget.saturating_sub(moved.writes.max(1));
            self.figures.writes.add(moved.writes as u64);
            self.figures.bytes_out.add(moved.bytes as u64);
            match flushed {
                Ok(Flushed::All) => {
                    connection.blocked = None;
                    if matches!(connection.stage, Stage::Closing { .. }) {
                        self.with(seat, |_, _, connection| {
                            closing(&connection.stage, &mut connection.transport)
                        });
                    }
                }
                Ok(Flushed::Blocked) => {
                    self.figures.blocked.add(1);
                    if connection.blocked.is_none() || moved.bytes > 0 {
                        connection.blocked = Some(self.now);
                    }
                    if !std::mem::replace(&mut connection.watches_room, true)
                        && connection
                            .transport
                            .watch_room(self.poll.registry(), token(seat))
                            .is_err()
                    {
                        self.with(seat, |_, _, _| Fate::Ends(Reason::OverCapacity));
                        continue;
                    }
                    // The turn updates the timer, so that a stall is detected.
                    self.with(seat, |_, _, _| Fate::Stays);
                }
                Err(_) => self.with(seat, |_, _, connection| {
                    Fate::Ends(match connection.stage {
                        Stage::Closing { reason, .. } => reason,
                        _ => Reason::Gone,
                    })
                }),
            }
        }
    }
}

/// Decides what follows when a closing connection's queue has been written.
fn closing(stage: &Stage, transport: &mut Transport) -> Fate {
    match stage {
        Stage::Closing { done: true, reason, .. } => {
            transport.close_both();
            Fate::Ends(*reason)
        }
        // The write side is shut down. Incoming bytes are still read and discarded, because the kernel would
        // otherwise reset the connection and lose what the client has not read.
        Stage::Closing { discard_input: true, .. } => {
            transport.finish();
            Fate::Stays
        }
        _ => Fate::Stays,
    }
}
