//! A TCP proxy that simulates distance: it delays every byte by half a round trip in each direction.
//!
//! A connection costs its client one round trip, as a real one does: the system's handshake is immediate, so the first bytes
//! wait instead. Segments have the size that they have on Ethernet: with loopback's 64 KiB a young connection's window has room for one, so that its
//! sender now and then waits for a delayed acknowledgement, 40 ms. With slow start, no more bytes are in flight than a young connection would send (RFC 5681, RFC 6928).
//! It needs no kernel module and no privileges, unlike `netem`.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use socket2::SockRef;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Bytes per segment (RFC 6691 on Ethernet).
const SEGMENT: u32 = 1460;
/// The initial window: ten segments (RFC 6928).
const INITIAL_WINDOW: usize = 14_600;
/// Idle time after which the window is the initial one again (RFC 5681, 4.1; Linux counts in retransmission times).
const IDLE: Duration = Duration::from_millis(500);
/// Maximum number of pieces in flight per direction, of at most 16 KiB each. When it is reached, the sender waits.
const UNDER_WAY: usize = 1024;
/// Bytes per read.
const PIECE: usize = 16 << 10;

/// The simulated network path.
#[derive(Clone, Copy, Debug)]
pub struct Distance {
    /// The round-trip time.
    pub round_trip: Duration,
    /// If true, the window grows as that of a TCP connection does.
    pub slow_start: bool,
}

/// A running proxy.
#[derive(Debug)]
pub struct DelayProxy {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    end: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl DelayProxy {
    /// Starts a proxy for `target` on a free port of 127.0.0.1, in a separate thread.
    pub fn start(target: SocketAddr, distance: Distance) -> Self {
        Self::listen(SocketAddr::from(([127, 0, 0, 1], 0)), target, distance)
            .expect("a port of loopback is free")
    }

    /// Starts a proxy for `target` on this address.
    pub fn listen(address: SocketAddr, target: SocketAddr, distance: Distance) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        // Accepted connections inherit it.
        SockRef::from(&listener).set_tcp_mss(SEGMENT)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (end, ended) = watch::channel(false);
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("it is non-blocking");
                accept(listener, target, distance, ended, &count).await;
            });
        });
        Ok(Self { address, accepted, end, thread: Some(thread) })
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of accepted connections.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Blocks until a signal ends the process. For the program.
    pub fn serve_forever(mut self) {
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Drop for DelayProxy {
    fn drop(&mut self) {
        self.end.send_replace(true);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    distance: Distance,
    mut ended: watch::Receiver<bool>,
    accepted: &AtomicUsize,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = ended.wait_for(|over| *over) => return,
            Some(_) = connections.join_next() => {}
            near = listener.accept() => {
                let Ok((near, _)) = near else { continue };
                accepted.fetch_add(1, Ordering::Relaxed);
                // An error means that the peer has disconnected, which ends both directions.
                connections.spawn(async move { drop(join(near, target, distance).await) });
            }
        }
    }
}

async fn join(near: TcpStream, target: SocketAddr, distance: Distance) -> io::Result<()> {
    // The client's SYN and the answer to it.
    let established = Instant::now() + distance.round_trip;
    let far = if target.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    SockRef::from(&far).set_tcp_mss(SEGMENT)?;
    let far = far.connect(target).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    let there = carry(near_read, far_write, established, distance);
    let back = carry(far_read, near_write, established, distance);
    tokio::try_join!(there, back)?;
    Ok(())
}

/// One direction: bytes enter when the window permits it, and leave half a round trip later.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    established: Instant,
    distance: Distance,
) -> io::Result<()> {
    let (send, mut receive) = mpsc::channel::<(Instant, Vec<u8>)>(UNDER_WAY);
    let send_side = async move {
        let clock = Clock::new()?;
        let mut window = Window::new();
        let mut buffer = vec![0; PIECE];
        loop {
            let length = from.read(&mut buffer).await?;
            let mut rest = &buffer[..length];
            let came = Instant::now().max(established);
            if length == 0 {
                return Ok(());
            }
            let mut at = came;
            while !rest.is_empty() {
                let room = if distance.slow_start {
                    window.room(at, distance.round_trip)
                } else {
                    Ok(rest.len())
                };
                match room {
                    Ok(room) => {
                        let (piece, later) = rest.split_at(room.min(rest.len()));
                        window.sent(at, piece.len());
                        rest = later;
                        if send.send((at + distance.round_trip / 2, piece.to_vec())).await.is_err()
                        {
                            return Ok(());
                        }
                    }
                    Err(until) => {
                        clock.sleep_until(until).await?;
                        at = until.max(Instant::now());
                    }
                }
            }
        }
    };
    let receive_side = async move {
        let clock = Clock::new()?;
        while let Some((due, bytes)) = receive.recv().await {
            clock.sleep_until(due).await?;
            to.write_all(&bytes).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(send_side, receive_side).map(drop)
}

/// The sender's congestion window and the bytes in flight.
#[derive(Debug)]
struct Window {
    size: usize,
    out: usize,
    /// The time at which each piece in flight will be acknowledged.
    pieces: VecDeque<(Instant, usize)>,
    last: Option<Instant>,
}

impl Window {
    fn new() -> Self {
        Self { size: INITIAL_WINDOW, out: 0, pieces: VecDeque::new(), last: None }
    }

    /// Returns the number of bytes that may be sent at `now`, or the time at which some may be.
    fn room(&mut self, now: Instant, round_trip: Duration) -> Result<usize, Instant> {
        while let Some(&(sent, length)) = self.pieces.front()
            && sent + round_trip <= now
        {
            self.pieces.pop_front();
            self.out -= length;
            // Slow start: one more byte for each acknowledged byte, so it doubles per round trip.
            self.size += length;
        }
        if self.last.is_some_and(|last| now.duration_since(last) >= IDLE) {
            self.size = INITIAL_WINDOW;
        }
        match self.size.saturating_sub(self.out) {
            0 => {
                let (sent, _) = self.pieces.front().expect("a full window has pieces out");
                Err(*sent + round_trip)
            }
            room => Ok(room),
        }
    }

    fn sent(&mut self, now: Instant, length: usize) {
        self.out += length;
        self.pieces.push_back((now, length));
        self.last = Some(now);
    }
}

/// Sleeps with microsecond precision; tokio's timer has milliseconds.
#[derive(Debug)]
struct Clock(AsyncFd<std::os::fd::OwnedFd>);

impl Clock {
    #[expect(
        deprecated,
        reason = "its successor is unsafe; an OwnedFd is what it has to be trusted to be"
    )]
    fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?))
    }

    async fn sleep_until(&self, due: Instant) -> io::Result<()> {
        let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        else {
            return Ok(());
        };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let time = Timespec::try_from(left).map_err(io::Error::other)?;
        let once = Itimerspec { it_interval: zero, it_value: time };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        let mut ready = self.0.readable().await?;
        let mut expirations = [0; 8];
        rustix::io::read(self.0.get_ref(), &mut expirations)?;
        ready.clear_ready();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(20);

    /// Returns the number of round trips to send `length` bytes when each piece is sent as early as possible.
    fn round_trips(window: &mut Window, mut now: Instant, mut length: usize) -> u32 {
        let begun = now;
        while length > 0 {
            match window.room(now, ROUND_TRIP) {
                Ok(room) => {
                    window.sent(now, room.min(length));
                    length -= room.min(length);
                }
                Err(until) => now = until,
            }
        }
        u32::try_from((now - begun).as_millis() / ROUND_TRIP.as_millis()).unwrap()
    }

    #[test]
    fn the_window_doubles_with_each_round_trip() {
        let now = Instant::now();
        assert_eq!(round_trips(&mut Window::new(), now, INITIAL_WINDOW), 0);
        assert_eq!(round_trips(&mut Window::new(), now, INITIAL_WINDOW + 1), 1);
        assert_eq!(round_trips(&mut Window::new(), now, 3 * INITIAL_WINDOW), 1);
        assert_eq!(round_trips(&mut Window::new(), now, 7 * INITIAL_WINDOW), 2);
        assert_eq!(round_trips(&mut Window::new(), now, 7 * INITIAL_WINDOW + 1), 3);
    }

    #[test]
    fn segments_are_those_of_ethernet() {
        let target = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let distance = Distance { round_trip: ROUND_TRIP, slow_start: false };
        let proxy = DelayProxy::start(target.local_addr().unwrap(), distance);
        let near = std::net::TcpStream::connect(proxy.address()).unwrap();
        let (far, _) = target.accept().unwrap();
        for socket in [&near, &far] {
            let size = SockRef::from(socket).tcp_mss().unwrap();
            assert!(size <= SEGMENT, "{size}");
        }
    }

    #[test]
    fn an_idle_connection_begins_again() {
        let now = Instant::now();
        let mut window = Window::new();
        assert_eq!(round_trips(&mut window, now, 7 * INITIAL_WINDOW), 2);
        let soon = now + Duration::from_millis(300);
        assert_eq!(round_trips(&mut window, soon, 7 * INITIAL_WINDOW), 0);
        let later = soon + Duration::from_millis(600);
        assert_eq!(round_trips(&mut window, later, 7 * INITIAL_WINDOW), 2);
    }

    #[test]
    fn a_call_on_a_new_connection_takes_two_round_trips_and_on_a_kept_one_one() {
        use crate::http1::Client;
        use crate::origin::{Origin, routes};
        let origin = Origin::plain(routes);
        let distance = Distance { round_trip: ROUND_TRIP, slow_start: false };
        let proxy = DelayProxy::start(origin.address(), distance);
        let begun = Instant::now();
        let mut client = Client::connect(proxy.address()).unwrap();
        assert_eq!(client.get("/bytes/10").unwrap().body.len(), 10);
        let first = begun.elapsed();
        let begun = Instant::now();
        client.get("/bytes/10").unwrap();
        let second = begun.elapsed();
        // A busy machine makes them longer, never shorter.
        assert!(first >= 2 * ROUND_TRIP, "{first:?}");
        assert!(second >= ROUND_TRIP, "{second:?}");
        assert_eq!(proxy.accepted(), 1);
    }
}
