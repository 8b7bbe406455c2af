//! Thousands of Pusher clients on one thread: one epoll, non-blocking sockets, frames read in place.
//!
//! Invariants
//! - A waiting client costs its socket and a few dozen bytes. The read buffer belongs to the thread, and only the start
//!   of an incomplete frame is kept.
//! - Every client is counted exactly once: as subscribed, failed before that, or dropped after that.
//! - Messages of the server are recognised, not parsed: bytes that name an event are searched for.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use memchr::memmem;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, sockopt,
};

use crate::clock;
use crate::frame::{self, Opcode};
use crate::sign::App;
use crate::stamp::Stamp;
use crate::tally::{Tally, count};

/// Bytes that one `read` may bring.
const BUFFER: usize = 256 * 1024;
/// Sockets looked at in one turn: few, so that a sender on the same thread is not kept waiting.
const EVENTS: usize = 128;
/// Loopback addresses to connect from: an address has 28,000 ports, and those of clients that left rest for a minute.
const SOURCES: u8 = 16;
/// RFC 6455, section 1.3: any nonce will do, so the one whose answer is printed there.
const NONCE: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &[u8] = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// RFC 6455, section 7.4.1: 1000.
const NORMAL_CLOSURE: [u8; 2] = [0x03, 0xe8];
const PONG: &[u8] = br#"{"event":"pusher:pong","data":{}}"#;
const READABLE: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::RDHUP);

/// Settings shared by all clients of a run.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddrV4,
    pub(crate) app: App,
    /// Names of the channels; a client has the number of its channel.
    pub(crate) channels: Vec<String>,
    /// Size of each client's socket buffer in bytes; `None` for the kernel's default.
    pub(crate) receive_buffer: Option<usize>,
    /// How long a client may take until it is subscribed.
    pub(crate) patience: Duration,
    /// How many senders number messages: a client remembers the last count of each.
    pub(crate) senders: usize,
}

/// What becomes of a client once it is subscribed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Reads what comes.
    Reader,
    /// Never reads again.
    Slow,
    /// Leaves.
    Passer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Connecting,
    Upgrading,
    Greeting,
    Subscribing,
    Live,
    Gone,
}

#[derive(Debug)]
struct Client {
    socket: Option<OwnedFd>,
    stage: Stage,
    role: Role,
    channel: u32,
    started: u64,
    /// The start of an incomplete frame.
    partial: Vec<u8>,
    /// Bytes that the kernel has not accepted yet.
    outgoing: Vec<u8>,
    /// For each sender, the last count seen plus one.
    next: Box<[u32]>,
}

/// The clients of one thread.
pub(crate) struct Clients {
    target: Arc<Target>,
    epoll: OwnedFd,
    all: Vec<Client>,
    upgrade: Vec<u8>,
    buffer: Vec<u8>,
    events: Vec<epoll::Event>,
    random: u32,
    opening: usize,
    live: usize,
    last_delivery: u64,
    pub(crate) tally: Tally,
}

/// Why a client is no more.
enum End {
    Closed(String),
    Broken(Errno),
    Wrong(&'static str),
}

impl Clients {
    pub(crate) fn new(target: Arc<Target>) -> Result<Self, Errno> {
        let upgrade = format!(
            "GET /app/{}?protocol=7&client=loadgen&version=1.0 HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {NONCE}\r\n\r\n",
            target.app.key, target.address
        );
        let [.., a, b, c, d] = clock::now().to_be_bytes();
        Ok(Self {
            target,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            all: Vec::new(),
            upgrade: upgrade.into_bytes(),
            buffer: vec![0; BUFFER],
            events: Vec::with_capacity(EVENTS),
            random: u32::from_be_bytes([a, b, c, d]) | 1,
            opening: 0,
            live: 0,
            last_delivery: 0,
            tally: Tally::new(),
        })
    }

    /// Clients on their way to a subscription.
    pub(crate) fn opening(&self) -> usize {
        self.opening
    }

    /// Clients that are subscribed and there.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// When a stamped message last arrived; 0: never.
    pub(crate) fn last_delivery(&self) -> u64 {
        self.last_delivery
    }

    /// Live readers of each channel: who a published event is for.
    pub(crate) fn readers(&self) -> Vec<u64> {
        let mut readers = vec![0; self.target.channels.len()];
        for client in &self.all {
            if client.stage == Stage::Live && client.role == Role::Reader {
                readers[index(client.channel)] += 1;
            }
        }
        readers
    }

    /// Begins to connect. The number is for [`Clients::send`].
    pub(crate) fn open(&mut self, role: Role, channel: u32) -> usize {
        let number = self.all.len();
        let started = clock::now();
        let socket = self.connect(number);
        let failed = socket.as_ref().err().copied();
        self.all.push(Client {
            socket: socket.ok(),
            stage: Stage::Connecting,
            role,
            channel,
            started,
            partial: Vec::new(),
            outgoing: Vec::new(),
            next: vec![0; self.target.senders].into(),
        });
        self.opening += 1;
        if let Some(errno) = failed {
            self.end(number, &End::Broken(errno));
        }
        number
    }

    fn connect(&self, number: usize) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket =
            net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        if let Some(size) = self.target.receive_buffer {
            sockopt::set_socket_recv_buffer_size(&socket, size)?;
        }
        sockopt::set_tcp_nodelay(&socket, true)?;
        if self.target.address.ip().is_loopback() {
            let last = u8::try_from(number % usize::from(SOURCES)).expect("below SOURCES");
            net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 2 + last), 0))?;
        }
        match net::connect(&socket, &SocketAddr::V4(self.target.address)) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno),
        }
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&self.epoll, &socket, data, READABLE | epoll::EventFlags::OUT)?;
        Ok(socket)
    }

    /// Waits for at most `wait` and does what there is to do.
    pub(crate) fn turn(&mut self, wait: Duration) -> Result<(), Errno> {
        let wait = Timespec::try_from(wait).expect("seconds, not centuries");
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        for event in &events {
            // Copied out: the kernel's structure is packed.
            let (data, flags) = (event.data, event.flags);
            let number = usize::try_from(data.u64()).expect("it was one");
            if let Err(end) = self.ready(number, flags) {
                self.end(number, &end);
            }
        }
        self.events = events;
        Ok(())
    }

    /// Gives up on clients that are not subscribed in time.
    pub(crate) fn expire(&mut self) {
        let oldest = clock::now().saturating_sub(clock::span(self.target.patience));
        for number in 0..self.all.len() {
            let client = &self.all[number];
            if client.started < oldest && !matches!(client.stage, Stage::Live | Stage::Gone) {
                let why = match client.stage {
                    Stage::Connecting => "timeout: no TCP connection",
                    Stage::Upgrading => "timeout: no answer to the upgrade",
                    Stage::Greeting => "timeout: no connection_established",
                    _ => "timeout: no subscription_succeeded",
                };
                self.end(number, &End::Wrong(why));
            }
        }
    }

    /// Sends a text frame now, or as soon as the kernel takes it; false when the client is gone.
    pub(crate) fn send(&mut self, number: usize, text: &[u8]) -> bool {
        if self.all[number].stage == Stage::Gone {
            return false;
        }
        match self.write(number, Opcode::Text, text) {
            Ok(()) => true,
            Err(end) => {
                self.end(number, &end);
                false
            }
        }
    }

    /// Lets clients that never read do so, to see which of them the server has given up. Those still there are live afterwards.
    pub(crate) fn wake_slow(&mut self) -> Result<(), Errno> {
        for (number, client) in self.all.iter_mut().enumerate() {
            if let (Role::Slow, Stage::Live, Some(socket)) =
                (client.role, client.stage, &client.socket)
            {
                epoll::modify(
                    &self.epoll,
                    socket,
                    epoll::EventData::new_u64(number as u64),
                    READABLE,
                )?;
            }
        }
        Ok(())
    }

    /// How many of the clients that never read are still connected.
    pub(crate) fn slow_left(&self) -> u64 {
        let slow = |client: &&Client| client.role == Role::Slow && client.stage == Stage::Live;
        self.all.iter().filter(slow).count() as u64
    }

    /// Closes every client without a close frame: the server must clean up.
    pub(crate) fn close_all(&mut self) {
        for client in &mut self.all {
            client.socket = None;
            client.stage = Stage::Gone;
        }
        self.live = 0;
    }

    fn ready(&mut self, number: usize, flags: epoll::EventFlags) -> Result<(), End> {
        let client = &mut self.all[number];
        let Some(socket) = &client.socket else { return Ok(()) };
        if client.stage == Stage::Connecting {
            match sockopt::socket_error(socket) {
                Ok(Ok(())) => {}
                Ok(Err(errno)) | Err(errno) => return Err(End::Broken(errno)),
            }
            if !flags.contains(epoll::EventFlags::OUT) {
                return Ok(());
            }
            self.tally.connected.record(client.started, clock::now());
            client.stage = Stage::Upgrading;
            client.outgoing.clone_from(&self.upgrade);
            self.flush(number, true)?;
        } else if flags.contains(epoll::EventFlags::OUT) {
            self.flush(number, true)?;
        }
        let came = epoll::EventFlags::IN
            | epoll::EventFlags::HUP
            | epoll::EventFlags::ERR
            | epoll::EventFlags::RDHUP;
        if flags.intersects(came) { self.receive(number) } else { Ok(()) }
    }

    fn receive(&mut self, number: usize) -> Result<(), End> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let done = self.receive_into(number, &mut buffer);
        self.buffer = buffer;
        done
    }

    /// Reads once: if more is left the socket is ready again, and other clients get their turn.
    fn receive_into(&mut self, number: usize, buffer: &mut [u8]) -> Result<(), End> {
        let client = &mut self.all[number];
        let Some(socket) = &client.socket else { return Ok(()) };
        let length = match net::recv(socket, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => return Err(End::Closed("end of stream".to_owned())),
            Ok((length, _)) => length,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(errno) => return Err(End::Broken(errno)),
        };
        let now = clock::now();
        self.tally.bytes += length as u64;
        self.tally.reads += 1;
        let read = &buffer[..length];
        if client.partial.is_empty() {
            let used = self.take(number, read, now)?;
            self.all[number].partial.extend_from_slice(&read[used..]);
        } else {
            let mut joined = std::mem::take(&mut client.partial);
            joined.extend_from_slice(read);
            let used = self.take(number, &joined, now)?;
            if used < joined.len() {
                joined.drain(..used);
                self.all[number].partial = joined;
            }
        }
        Ok(())
    }

    /// Takes everything whole from `bytes`; how much that was.
    fn take(&mut self, number: usize, bytes: &[u8], now: u64) -> Result<usize, End> {
        let mut used = 0;
        if self.all[number].stage == Stage::Upgrading {
            let Some(end) = memmem::find(bytes, b"\r\n\r\n") else { return Ok(0) };
            let head = &bytes[..end];
            if !head.starts_with(b"HTTP/1.1 101") {
                let status = head.get(9..12).map(String::from_utf8_lossy).unwrap_or_default();
                return Err(End::Closed(format!("upgrade answered with {status}")));
            }
            if memmem::find(head, ACCEPT).is_none() {
                return Err(End::Wrong("upgrade with a wrong Sec-WebSocket-Accept"));
            }
            self.all[number].stage = Stage::Greeting;
            self.tally.upgraded.record(self.all[number].started, now);
            used = end + 4;
        }
        loop {
            let rest = &bytes[used..];
            let (frame, length) = match frame::read(rest) {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(used),
                Err(_) => return Err(End::Wrong("a malformed frame")),
            };
            used += length;
            match frame.opcode {
                Opcode::Text if frame.last => self.message(number, frame.payload, now)?,
                Opcode::Text | Opcode::Continuation => {
                    self.tally.fragmented += 1;
                    self.message(number, frame.payload, now)?;
                }
                Opcode::Ping => self.write(number, Opcode::Pong, frame.payload)?,
                Opcode::Close => {
                    let code =
                        frame.payload.first_chunk::<2>().map(|code| u16::from_be_bytes(*code));
                    // Best effort: the server may have gone already.
                    let _gone = self.write(number, Opcode::Close, frame.payload);
                    return Err(End::Closed(
                        code.map_or_else(|| "close".to_owned(), |code| format!("close {code}")),
                    ));
                }
                Opcode::Pong => {}
                Opcode::Binary => return Err(End::Wrong("a binary frame")),
            }
        }
    }

    fn message(&mut self, number: usize, text: &[u8], now: u64) -> Result<(), End> {
        if let Some(stamp) = Stamp::find(text) {
            self.delivery(number, stamp, now);
            return Ok(());
        }
        let has = |word: &[u8]| memmem::find(text, word).is_some();
        if has(b"pusher:connection_established") {
            self.established(number, text, now)
        } else if has(b"pusher_internal:subscription_succeeded") {
            self.subscribed(number, now)
        } else if has(b"pusher:ping") {
            self.write(number, Opcode::Text, PONG)
        } else if has(b"pusher:error") || has(b"pusher:subscription_error") {
            let code = error_code(text).unwrap_or_default();
            let name = if has(b"pusher:subscription_error") {
                "subscription_error"
            } else {
                "pusher:error"
            };
            count(&mut self.tally.errors, format!("{name} {code}").trim_end());
            Ok(())
        } else {
            Ok(())
        }
    }

    fn established(&mut self, number: usize, text: &[u8], now: u64) -> Result<(), End> {
        let client = &mut self.all[number];
        if client.stage != Stage::Greeting {
            return Err(End::Wrong("connection_established twice"));
        }
        client.stage = Stage::Subscribing;
        let (started, channel) = (client.started, client.channel);
        self.tally.established.record(started, now);
        let name = &self.target.channels[index(channel)];
        let socket_id =
            socket_id(text).ok_or(End::Wrong("connection_established without a socket_id"))?;
        let subscribe = if name.starts_with("presence-") {
            let data = format!(r#"{{"user_id":"{number}"}}"#);
            let auth = self.target.app.channel(&socket_id, name, Some(&data));
            let data = data.replace('"', r#"\""#);
            format!(
                r#"{{"event":"pusher:subscribe","data":{{"channel":"{name}","auth":"{auth}","channel_data":"{data}"}}}}"#
            )
        } else if name.starts_with("private-") {
            let auth = self.target.app.channel(&socket_id, name, None);
            format!(
                r#"{{"event":"pusher:subscribe","data":{{"channel":"{name}","auth":"{auth}"}}}}"#
            )
        } else {
            format!(r#"{{"event":"pusher:subscribe","data":{{"channel":"{name}"}}}}"#)
        };
        self.write(number, Opcode::Text, subscribe.as_bytes())
    }

    fn subscribed(&mut self, number: usize, now: u64) -> Result<(), End> {
        let client = &mut self.all[number];
        if client.stage != Stage::Subscribing {
            return Err(End::Wrong("subscription_succeeded without a subscription"));
        }
        client.stage = Stage::Live;
        self.opening -= 1;
        self.live += 1;
        self.tally.subscribed.record(client.started, now);
        match client.role {
            Role::Reader => {}
            Role::Passer => {
                client.stage = Stage::Gone;
                self.live -= 1;
                // Best effort: a leaving client does not wait for the answer.
                let _gone = self.write(number, Opcode::Close, &NORMAL_CLOSURE);
                let client = &mut self.all[number];
                (client.socket, client.partial, client.outgoing) = (None, Vec::new(), Vec::new());
            }
            Role::Slow => {
                if let Some(socket) = &client.socket {
                    // Hang-ups and errors are reported without being asked for.
                    let data = epoll::EventData::new_u64(number as u64);
                    epoll::modify(&self.epoll, socket, data, epoll::EventFlags::empty())
                        .map_err(End::Broken)?;
                }
            }
        }
        Ok(())
    }

    fn delivery(&mut self, number: usize, stamp: Stamp, now: u64) {
        if self.all[number].role == Role::Slow {
            self.tally.kept_for_slow += 1;
            return;
        }
        self.tally.latency.record(stamp.at, now);
        self.tally.delivered += 1;
        self.last_delivery = now;
        if let Some(next) = self.all[number].next.get_mut(usize::from(stamp.sender)) {
            if stamp.count < *next {
                self.tally.out_of_order += 1;
            } else {
                self.tally.skipped += u64::from(stamp.count - *next);
                *next = stamp.count + 1;
            }
        }
    }

    fn write(&mut self, number: usize, opcode: Opcode, payload: &[u8]) -> Result<(), End> {
        let mask = self.mask();
        let client = &mut self.all[number];
        let waiting = !client.outgoing.is_empty();
        frame::write(&mut client.outgoing, opcode, payload, mask);
        // The socket is watched already when something waits.
        if waiting { Ok(()) } else { self.flush(number, false) }
    }

    /// Writes what waits; `watched`: whether epoll reports when the socket takes more.
    fn flush(&mut self, number: usize, watched: bool) -> Result<(), End> {
        let client = &mut self.all[number];
        let Some(socket) = &client.socket else { return Ok(()) };
        while !client.outgoing.is_empty() {
            match net::send(socket, &client.outgoing, SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    client.outgoing.drain(..sent);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(End::Broken(errno)),
            }
        }
        let done = client.outgoing.is_empty();
        if done {
            client.outgoing = Vec::new();
        }
        if watched == done {
            let flags = if done { READABLE } else { READABLE | epoll::EventFlags::OUT };
            epoll::modify(&self.epoll, socket, epoll::EventData::new_u64(number as u64), flags)
                .map_err(End::Broken)?;
        }
        Ok(())
    }

    fn end(&mut self, number: usize, end: &End) {
        let client = &mut self.all[number];
        let stage = std::mem::replace(&mut client.stage, Stage::Gone);
        client.socket = None;
        client.partial = Vec::new();
        client.outgoing = Vec::new();
        let why = match end {
            End::Closed(why) => why.clone(),
            End::Broken(errno) => std::io::Error::from(*errno).to_string(),
            End::Wrong(why) => (*why).to_owned(),
        };
        match stage {
            Stage::Gone => {}
            Stage::Live => {
                self.live -= 1;
                let slow = if client.role == Role::Slow { "slow: " } else { "" };
                count(&mut self.tally.dropped, &format!("{slow}{why}"));
            }
            _ => {
                self.opening -= 1;
                count(&mut self.tally.failures, &why);
            }
        }
    }

    /// Unpredictable enough for a mask's purpose (RFC 6455, section 10.3): no cache is between us and the server.
    fn mask(&mut self) -> [u8; 4] {
        // xorshift32, Marsaglia 2003.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random.to_be_bytes()
    }
}

/// `1.2` of `…"socket_id\":\"1.2\"…`, with or without the backslashes.
fn socket_id(text: &[u8]) -> Option<String> {
    let after = &text[memmem::find(text, b"socket_id")? + 9..];
    let id: String = after
        .iter()
        .copied()
        .map(char::from)
        .skip_while(|sign| matches!(sign, '"' | '\\' | ':' | ' '))
        .take_while(|sign| sign.is_ascii_digit() || *sign == '.')
        .collect();
    (!id.is_empty()).then_some(id)
}

/// Digits of `"code":4301`, escaped or not.
fn error_code(text: &[u8]) -> Option<String> {
    memmem::find_iter(text, b"code").find_map(|at| {
        let rest = &text[at + 4..];
        let rest = rest.strip_prefix(br"\").unwrap_or(rest).strip_prefix(br#"":"#)?;
        let code: String =
            rest.iter().copied().map(char::from).take_while(char::is_ascii_digit).collect();
        (!code.is_empty()).then_some(code)
    })
}

fn index(channel: u32) -> usize {
    usize::try_from(channel).expect("a number of a channel")
}

#[cfg(test)]
mod tests;
