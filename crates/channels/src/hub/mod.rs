//! The hub: event loops that move bytes between sockets and sessions. Each is a thread with its own listener, its own sockets, its own lists of
//! who hears what; docs/internals/realtime.md has a turn in full.
//!
//! Invariants
//! - A socket belongs to one event loop. Other threads reach it through that loop's inbox only, and never wait for it.
//! - A turn is bounded: connections are taken, clients are heard and timers are kept however much there is to write.
//! - What waits for a socket is bounded, and so is what is kept of a message that is not whole. An idle socket has neither.
//! - Order: what is put into one inbox is given out in that order, and each socket is written to in the order of its queue.
//! - A panic in the turn of one socket ends that socket alone.

mod adopted;
mod audience;
mod clock;
mod connection;
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

pub use adopted::{Adopted, AdoptedStream, Handover, Stream, Visitor};
pub use clock::now;
pub use figures::{Figures, Reason};
pub use options::{Address, Listen, Options, StartError};

use crate::channels::Channels;
use event_loop::EventLoop;
use figures::LoopFigures;
use inbox::{Errand, Inbox};

/// Event loops at work.
#[derive(Debug)]
pub struct Hub {
    loops: Vec<Handle>,
    addresses: Vec<Option<SocketAddr>>,
    next: AtomicUsize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What others have of an event loop.
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
        let mut threads = Vec::new();
        for (number, event_loop) in ready.into_iter().enumerate() {
            let thread = std::thread::Builder::new().name(format!("channels-{number}"));
            threads.push(thread.spawn(|| event_loop.run()).map_err(StartError::EventLoop)?);
        }
        Ok(Self { loops, addresses, next: AtomicUsize::new(0), threads: Mutex::new(threads) })
    }

    /// The addresses it listens on, in the order of [`Options::listen`]; none for those that are no TCP.
    pub fn addresses(&self) -> &[Option<SocketAddr>] {
        &self.addresses
    }

    /// Takes a socket whose request another front has read. Never waits. When the hub has ended, the socket is closed.
    pub fn adopt(&self, socket: Adopted) {
        self.give(Errand::Adopt(Box::new(socket)));
    }

    /// The same for a request for Server-Sent Events.
    pub fn adopt_stream(&self, socket: AdoptedStream) {
        self.give(Errand::AdoptStream(Box::new(socket)));
    }

    fn give(&self, errand: Errand) {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(handle) = self.loops.get(turn % self.loops.len().max(1)) {
            // What comes back is dropped, and so closed.
            drop(handle.inbox.ask(errand));
        }
    }

    /// Takes no new connections, closes those there are with 4200, spread evenly over `patience` so that clients do not come back all at once, and then ends.
    /// Returns at once; [`Hub::wait`] waits.
    pub fn drain(&self, patience: Duration) {
        for handle in &self.loops {
            // A loop that has ended already is what is wanted.
            drop(handle.inbox.ask(Errand::Drain(patience)));
        }
    }

    /// Waits until all event loops have ended: after [`Hub::drain`]. Blocks the thread.
    pub fn wait(&self) {
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("an event loop ended with a panic");
            }
        }
    }

    /// Its numbers.
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
