//! Applies the log to the channels of this node, and appends this node's events to it.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::sync::Notify;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, timeout};
use tracing::{error, info, warn};

use super::Options;
use super::log::{LogEvent, LogLink, LogOptions, LogOutbox, next_event};
use super::packet::{Packet, PacketUpdate, Record};
use super::run::{Late, LocalChannels};
use crate::channels::Channels;
use crate::moment::Moment;
use crate::nodes::NodeId;
use crate::shared_log::{EVENTS, Logged, position};

/// Maximum number of entries that are applied before other work.
const AT_ONCE: usize = 256;

/// The log of this node.
pub(super) struct Shared {
    link: Option<LogLink>,
    pub(super) outbox: Arc<LogOutbox>,
    /// A packet that the link has not taken yet.
    next: Option<(u64, Bytes)>,
    /// Number of the last packet that was passed on.
    sent: u64,
    stored: u64,
    /// Sequence of the last applied entry.
    applied: u64,
    /// Sequence of the newest entry when the log was opened.
    newest: u64,
    opened: bool,
    /// Events may have been missed while the log was read for the first time.
    gap: bool,
}

impl Shared {
    /// Makes the log the source of the histories of these channels.
    pub(super) fn new(
        channels: &Channels,
        link: LogLink,
        me: NodeId,
        options: &Options,
        log: &LogOptions,
        wake: &Arc<Notify>,
        now: Moment,
    ) -> Self {
        channels.registry().shared().set_active(true);
        let shared = (Arc::clone(wake), Arc::clone(&link.largest));
        let outbox = LogOutbox::new(me, options, log.wait, shared, now);
        Self {
            link: Some(link),
            outbox: Arc::new(outbox),
            next: None,
            sent: 0,
            stored: 0,
            applied: 0,
            newest: 0,
            opened: false,
            gap: false,
        }
    }

    /// Returns whether this node has read the log up to its end once.
    pub(super) fn is_loaded(&self) -> bool {
        self.link.is_none() || (self.opened && self.applied >= self.newest)
    }

    /// Passes packets to the link, as many as it takes.
    pub(super) fn send(&mut self) {
        let Some(link) = &self.link else { return };
        while let Some((number, packet)) = self.next.take().or_else(|| self.outbox.take()) {
            match link.packets.try_send((number, packet)) {
                Ok(()) => self.sent = number,
                Err(TrySendError::Full(packet) | TrySendError::Closed(packet)) => {
                    self.next = Some(packet);
                    return;
                }
            }
        }
    }

    /// Returns the next event of the link.
    ///
    /// # Cancel safety
    /// An event that was not returned is returned by the next call.
    pub(super) async fn next(&mut self) -> LogEvent {
        next_event(self.link.as_mut()).await
    }

    /// Handles an event and all further events that are available, until `wake` at the latest.
    pub(super) async fn handle_all(
        &mut self,
        event: LogEvent,
        wake: Instant,
        channels: &Channels,
        late: &mut Late,
        clock: &(dyn Fn() -> Moment + Send + Sync),
    ) {
        let mut event = Some(event);
        for _ in 0..AT_ONCE {
            let Some(next) = event.take() else { return };
            self.handle(next, channels, late, clock()).await;
            self.send();
            event = if Instant::now() < wake { self.next().now_or_never() } else { None };
        }
        if let Some(event) = event {
            self.handle(event, channels, late, clock()).await;
        }
    }

    async fn handle(&mut self, event: LogEvent, channels: &Channels, late: &mut Late, now: Moment) {
        match event {
            LogEvent::Opened { epoch, first, last } => {
                let shared = channels.registry().shared();
                let known = shared.epoch() == Some(epoch) && first <= self.applied + 1;
                if !known {
                    self.gap |= self.opened;
                    if self.opened {
                        warn!(
                            "events of channels with history may be lost: the broker does not have all of them"
                        );
                    } else {
                        info!(
                            entries = (last + 1).saturating_sub(first),
                            "reading the log of events"
                        );
                    }
                    self.applied = first - 1;
                    let floor = if first > 1 { position(first, 0) - 1 } else { 0 };
                    channels.registry().restart_log(epoch, floor, now);
                }
                self.newest = last;
                self.opened = true;
                self.outbox.away(false, now);
                self.loaded(channels, now);
            }
            LogEvent::Entry { sequence, age, packet } => {
                self.applied = sequence;
                let Ok(packet) = Packet::read(&packet) else {
                    return error!(sequence, "invalid entry in the log");
                };
                let mut local = LocalChannels::new(channels);
                local.look_up(&packet, late).await;
                for (record, index) in packet.records.iter().zip(0..EVENTS) {
                    let position = position(sequence, index);
                    apply(channels, &local, record, Logged { position, age }, now);
                }
                channels.registry().shared().set_applied(position(sequence, EVENTS - 1));
                self.outbox.read(&packet.header);
                self.loaded(channels, now);
            }
            LogEvent::Away(away) => self.outbox.away(away, now),
            LogEvent::Stored(number) => {
                self.stored = number;
                self.outbox.stored(number);
                self.outbox.away(false, now);
            }
            LogEvent::Unsupported => {
                warn!("the broker cannot store events: each node has its own history");
                self.link = None;
                channels.registry().shared().set_active(false);
                if let Some(nodes) = channels.registry().nodes() {
                    nodes.leave_log();
                }
                self.publish_waiting(channels, late, now).await;
            }
        }
    }

    /// Starts the positions of subscribers once the log has been read. What was read until then was only kept: it is older
    /// than subscribers that came while the broker was away.
    fn loaded(&self, channels: &Channels, now: Moment) {
        if self.is_loaded() && !channels.registry().shared().is_loaded() {
            channels.registry().log_loaded(self.gap, now);
        }
    }

    /// Publishes the events that waited for a log that does not exist.
    async fn publish_waiting(&mut self, channels: &Channels, late: &mut Late, now: Moment) {
        while let Some((number, packet)) = self.next.take().or_else(|| self.outbox.take()) {
            if let Ok(packet) = Packet::read(&packet) {
                let mut local = LocalChannels::new(channels);
                local.look_up(&packet, late).await;
                for record in &packet.records {
                    let Record::Update { app, update } = record else { continue };
                    let Some(app) = local.app(app) else { continue };
                    update.with_publication(|publication| {
                        // Its rate was checked when it was accepted.
                        let _limited = channels.registry().publish(app, publication, now);
                    });
                }
                self.outbox.read(&packet.header);
            }
            self.outbox.stored(number);
        }
    }

    /// Waits until everything is stored that waits. This is the last call.
    pub(super) async fn finish(&mut self, limit: std::time::Duration) {
        let all = async {
            while self.link.is_some() && (self.stored < self.sent || !self.outbox.is_empty()) {
                self.send();
                if let LogEvent::Stored(number) = self.next().await {
                    self.stored = number;
                    self.outbox.stored(number);
                }
            }
        };
        if timeout(limit, all).await.is_err() {
            warn!("the last events of channels with history were not stored");
        }
    }
}

fn apply(
    channels: &Channels,
    local: &LocalChannels<'_>,
    record: &Record<'_>,
    logged: Logged,
    now: Moment,
) {
    let Record::Update { app: id, update } = record else { return };
    match local.app(id) {
        Some(app) => update.with_publication(|publication| {
            channels.registry().apply_logged(app, publication, logged, now);
        }),
        // It does not exist here, or cannot be looked up. Its channels are not complete before this position.
        None => {
            if let PacketUpdate::Published { channel, .. } = update {
                channels.registry().skip_logged(id, channel, logged.position, now);
            }
        }
    }
}
