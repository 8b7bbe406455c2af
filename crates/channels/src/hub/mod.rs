//! The hub: event loops that move bytes between sockets and sessions. Each loop is a thread with its own listener,
//! sockets and audiences; docs/internals/realtime.md describes a turn in full.
//!
//! Invariants
//! - A socket belongs to one event loop. Other threads reach it only through that loop's inbox, and never wait for
//!   it.
//! - A turn is bounded: connections are accepted, clients read and timers checked however much there is to write.
//! - The queue of a socket is bounded, and so is the memory of an incomplete message. An idle socket has neither.
//! - Order: deliveries are processed in the order of the inbox, and each socket is written in the order of its queue.
//! - A panic in the turn of one socket closes only that socket.

mod adopted;
mod audience;
mod clock;
mod connection;
mod dirty;
mod drain;
mod event_loop;
mod event_stream;
mod figures;
mod inbox;
mod listener;
mod options;
mod queue;
mod request;
mod seats;
mod sys;
mod transport;
mod wheel;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use adopted::{Adopted, AdoptedStream, ForwardedConnection, Handover, Stream};
pub use clock::now;
pub use figures::{Figures, Reason};
pub use options::{Address, Listen, Options, StartError};

use crate::channels::Channels;
use event_loop::EventLoop;
use figures::LoopFigures;
use inbox::{Inbox, LoopCommand};

/// A set of running event loops.
#[derive(Debug)]
pub struct Hub {
    loops: Vec<Handle>,
    addresses: Vec<Option<SocketAddr>>,
    next: AtomicUsize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Handle of an event loop.
#[derive(Debug)]
struct Handle {
    inbox: Arc<Inbox>,
    figures: Arc<LoopFigures>,
}

impl Hub {
    /// Binds the addresses and starts the event loops.
    pub fn start(options: Options, channels: &Channels) -> Result<Self, StartError> {
        let count = options.event_loops.get();
        let mut listeners: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
        let mut addresses = Vec::new();
        for listen in &options.listen {
            let bound = listener::bind(&listen.address, listen.secure, count)?;
            addresses.push(bound.first().and_then(listener::Listener::local_addr));
            for (each, listener) in listeners.iter_mut().zip(bound) {
                each.push(listener);
            }
        }
        if !options.listen.is_empty() {
            listener::warn_of_low_limits();
        }

        let options = Arc::new(options);
        let sockets = Arc::new(AtomicUsize::new(0));
        let mut loops = Vec::new();
        let mut ready = Vec::new();
        for listeners in listeners {
            let event_loop = EventLoop::new(listeners, channels, &options, &sockets)?;
            loops.push(Handle { inbox: event_loop.inbox(), figures: event_loop.figures() });
            ready.push(event_loop);
        }
        // If a later step fails, dropping the hub ends the loops that have started.
        let hub = Self { loops, addresses, next: AtomicUsize::new(0), threads: Mutex::default() };
        for (number, event_loop) in ready.into_iter().enumerate() {
            let thread = std::thread::Builder::new().name(format!("channels-{number}"));
            let thread = thread.spawn(|| event_loop.run()).map_err(StartError::EventLoop)?;
            hub.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(hub)
    }

    /// Returns the listening addresses in the order of [`Options::listen`]; `None` for Unix sockets.
    pub fn addresses(&self) -> &[Option<SocketAddr>] {
        &self.addresses
    }

    /// Adds a socket whose request another front has read. Never waits. If the hub has ended, the socket is closed.
    pub fn adopt(&self, socket: Adopted) {
        self.send(LoopCommand::Adopt(Box::new(socket)));
    }

    /// Adds a socket whose event stream request another front has read.
    pub fn adopt_stream(&self, socket: AdoptedStream) {
        self.send(LoopCommand::AdoptStream(Box::new(socket)));
    }

    fn send(&self, command: LoopCommand) {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(handle) = self.loops.get(turn % self.loops.len().max(1)) {
            // A returned command is dropped, which closes its socket.
            drop(handle.inbox.send(command));
        }
    }

    /// Stops accepting connections, closes the open ones with 4200, and then ends. Closing is spread evenly over
    /// `patience`, so that clients do not all reconnect at once. Returns at once; [`Hub::wait`] waits.
    pub fn drain(&self, patience: Duration) {
        for handle in &self.loops {
            // A loop that has already ended needs no drain.
            drop(handle.inbox.send(LoopCommand::Drain(patience)));
        }
    }

    /// Waits until all event loops have ended, after [`Hub::drain`]. Blocks the thread.
    pub fn wait(&self) {
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("an event loop ended with a panic");
            }
        }
    }

    /// Returns the counters.
    pub fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        for handle in &self.loops {
            figures.add(&handle.figures);
        }
        figures
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.drain(Duration::ZERO);
    }
}
