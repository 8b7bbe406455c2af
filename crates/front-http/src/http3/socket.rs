//! A UDP socket that survives an upgrade of the server: the new process reads it, and passes packets of the old
//! process's connections on to that one, until it ends.
//!
//! ```text
//! client -> UDP socket -> new process -> (its own ids) quinn
//!                                     -> (ids of the old process) unix socket -> old process -> quinn
//! client <- UDP socket <- either process
//! ```
//!
//! Invariants
//! - One process reads the UDP socket: the one that has taken over last. All of them send by it.
//! - A packet with an id that no living process made is dropped, and not answered.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::unix::net::UnixDatagram;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut};
use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime as _, TokioRuntime, UdpPoller};
use tokio::io::ReadBuf;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::budget::Budgets;
use super::ids::Process;
use crate::metrics::FrontMetrics;

/// Longest packet that is passed on, with its envelope.
const LONGEST: usize = 4096;

/// Where packets of another process go.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) socket: UnixDatagram,
    /// The processes whose ids it knows: its own, and those that it passes packets on to.
    pub(crate) processes: Vec<Process>,
}

impl Relay {
    fn knows(&self, process: Option<Process>) -> bool {
        process.is_some_and(|process| self.processes.contains(&process))
    }
}

/// The socket of an endpoint.
#[derive(Debug)]
pub(super) struct Socket {
    udp: Arc<dyn AsyncUdpSocket>,
    process: Process,
    metrics: Arc<FrontMetrics>,
    budgets: Arc<Budgets>,
    /// Packets that the successor passes on.
    mailbox: tokio::net::UnixDatagram,
    mail: Mutex<Mail>,
    /// Another process reads the socket.
    handed_over: AtomicBool,
    predecessor: Mutex<Option<Relay>>,
}

struct Mail {
    buffer: Box<[u8]>,
    succeeded: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl std::fmt::Debug for Mail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mail")
    }
}

impl Socket {
    /// `mailbox` gets packets once `succeeded` is cancelled. `predecessor` is the process that read the socket before.
    pub(super) fn new(
        udp: std::net::UdpSocket,
        process: Process,
        mailbox: UnixDatagram,
        predecessor: Option<Relay>,
        succeeded: CancellationToken,
        metrics: Arc<FrontMetrics>,
        budgets: Arc<Budgets>,
    ) -> io::Result<Self> {
        mailbox.set_nonblocking(true)?;
        if let Some(relay) = &predecessor {
            relay.socket.set_nonblocking(true)?;
        }
        let buffer = vec![0; LONGEST].into_boxed_slice();
        Ok(Self {
            udp: TokioRuntime.wrap_udp_socket(udp)?,
            process,
            metrics,
            budgets,
            mailbox: tokio::net::UnixDatagram::from_std(mailbox)?,
            mail: Mutex::new(Mail { buffer, succeeded: Box::pin(succeeded.cancelled_owned()) }),
            handed_over: AtomicBool::new(false),
            predecessor: Mutex::new(predecessor),
        })
    }

    fn predecessor(&self) -> MutexGuard<'_, Option<Relay>> {
        self.predecessor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns one packet that the successor has passed on.
    fn poll_mail(
        &self,
        cx: &mut Context<'_>,
        into: &mut [u8],
        meta: &mut RecvMeta,
    ) -> Poll<io::Result<()>> {
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        let mail = &mut *mail;
        if !self.handed_over.load(Ordering::Relaxed) {
            let over = mail.succeeded.as_mut().poll(cx).is_ready();
            self.handed_over.store(over, Ordering::Relaxed);
        }
        loop {
            let mut buffer = ReadBuf::new(&mut mail.buffer);
            ready!(self.mailbox.poll_recv(cx, &mut buffer))?;
            let letter = buffer.filled();
            let Some((described, packet)) = Envelope::open(letter) else { continue };
            let process = Process::of_packet(packet);
            if process != Some(self.process) {
                let mut predecessor = self.predecessor();
                if predecessor.as_ref().is_some_and(|relay| relay.knows(process)) {
                    send(&mut predecessor, letter, &self.metrics);
                }
                continue;
            }
            let Some(into) = into.get_mut(..packet.len()) else { continue };
            into.copy_from_slice(packet);
            self.budgets.receive(described.peer, packet.len(), false);
            *meta = described.into_meta(packet.len());
            return Poll::Ready(Ok(()));
        }
    }

    /// Keeps the packets of a buffer that are for this process, and passes others on.
    fn sort(&self, buffer: &mut [u8], meta: &mut RecvMeta) {
        let mut predecessor = self.predecessor();
        let (length, stride) = (meta.len, meta.stride.max(1));
        let mut kept = 0;
        let mut at = 0;
        while at < length {
            let end = (at + stride).min(length);
            let Some(packet) = buffer.get(at..end) else { break };
            let process = Process::of_packet(packet);
            let is_long = packet.first().is_some_and(|first| first & 0x80 != 0);
            if predecessor.as_ref().is_some_and(|relay| relay.knows(process)) {
                send(&mut predecessor, &Envelope::of(meta).seal(packet), &self.metrics);
            } else if process == Some(self.process) || is_long {
                self.budgets.receive(meta.addr, end - at, is_long);
                if kept != at {
                    buffer.copy_within(at..end, kept);
                }
                kept += end - at;
            }
            at = end;
        }
        meta.len = kept;
    }
}

/// Sends a letter to the predecessor; a full queue loses it, as a network does.
fn send(predecessor: &mut Option<Relay>, letter: &[u8], metrics: &FrontMetrics) {
    let Some(relay) = predecessor else { return };
    match relay.socket.send(letter) {
        Ok(_) => metrics.quic_relayed.increment(1),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => {
            tracing::debug!(%error, "the previous process has ended: its QUIC connections are over");
            *predecessor = None;
        }
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.udp).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let packet = transmit.segment_size.unwrap_or(transmit.contents.len());
        let length = self.budgets.send(transmit.destination, transmit.contents.len(), packet);
        if length == transmit.contents.len() {
            return self.udp.try_send(transmit);
        }
        match transmit.contents.get(..length) {
            Some(contents) if length > 0 => self.udp.try_send(&Transmit {
                destination: transmit.destination,
                ecn: transmit.ecn,
                contents,
                segment_size: transmit.segment_size,
                src_ip: transmit.src_ip,
            }),
            _ => Ok(()),
        }
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        if let (Some(buffer), Some(meta)) = (buffers.first_mut(), metas.first_mut())
            && self.poll_mail(cx, buffer, meta)?.is_ready()
        {
            return Poll::Ready(Ok(1));
        }
        if self.handed_over.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        let count = ready!(self.udp.poll_recv(cx, buffers, metas))?;
        for (buffer, meta) in buffers.iter_mut().zip(&mut *metas).take(count) {
            self.sort(buffer, meta);
        }
        Poll::Ready(Ok(count))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.udp.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.udp.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.udp.may_fragment()
    }
}

/// The kernel's data about a packet beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    peer: SocketAddr,
    local: Option<IpAddr>,
    congestion: u8,
}

impl Envelope {
    fn of(meta: &RecvMeta) -> Self {
        let congestion = meta.ecn.map_or(0, |ecn| ecn as u8);
        Self { peer: meta.addr, local: meta.dst_ip, congestion }
    }

    fn into_meta(self, length: usize) -> RecvMeta {
        RecvMeta {
            addr: self.peer,
            len: length,
            stride: length,
            ecn: EcnCodepoint::from_bits(self.congestion),
            dst_ip: self.local,
        }
    }

    pub(super) fn seal(&self, packet: &[u8]) -> Vec<u8> {
        let mut letter = Vec::with_capacity(64 + packet.len());
        put_address(&mut letter, Some(self.peer.ip()));
        letter.put_u16(self.peer.port());
        letter.put_u32(match self.peer {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(peer) => peer.scope_id(),
        });
        put_address(&mut letter, self.local);
        letter.put_u8(self.congestion);
        letter.put(packet);
        letter
    }

    pub(super) fn open(mut letter: &[u8]) -> Option<(Self, &[u8])> {
        let peer = take_address(&mut letter)?;
        let port = letter.try_get_u16().ok()?;
        let scope = letter.try_get_u32().ok()?;
        let peer = match peer? {
            IpAddr::V4(peer) => SocketAddr::new(peer.into(), port),
            IpAddr::V6(peer) => SocketAddrV6::new(peer, port, 0, scope).into(),
        };
        let local = take_address(&mut letter)?;
        let congestion = letter.try_get_u8().ok()?;
        Some((Self { peer, local, congestion }, letter))
    }
}

fn put_address(letter: &mut Vec<u8>, address: Option<IpAddr>) {
    let (kind, bits) = match address {
        None => (0, 0),
        Some(IpAddr::V4(address)) => (4, u128::from(address.to_bits())),
        Some(IpAddr::V6(address)) => (6, address.to_bits()),
    };
    letter.put_u8(kind);
    letter.put_u128(bits);
}

/// Returns `None` if it is no address, and `Some(None)` for an unknown one.
#[expect(clippy::option_option, reason = "an address that is not there is a value")]
fn take_address(letter: &mut &[u8]) -> Option<Option<IpAddr>> {
    let kind = letter.try_get_u8().ok()?;
    let bits = letter.try_get_u128().ok()?;
    match kind {
        0 => Some(None),
        4 => Some(Some(std::net::Ipv4Addr::from_bits(u32::try_from(bits).ok()?).into())),
        6 => Some(Some(Ipv6Addr::from_bits(bits).into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_arrives_with_all_that_the_kernel_said_of_it() {
        for (peer, local, congestion) in [
            ("192.0.2.1:4433", Some("192.0.2.9"), 2),
            ("[2001:db8::1]:1", Some("2001:db8::9"), 0),
            ("[fe80::1%3]:65535", None, 3),
        ] {
            let envelope = Envelope {
                peer: peer.parse().unwrap(),
                local: local.map(|local| local.parse().unwrap()),
                congestion,
            };
            let letter = envelope.seal(b"packet");
            assert_eq!(Envelope::open(&letter), Some((envelope, &b"packet"[..])));
            for length in 0..letter.len() - 6 {
                assert_eq!(Envelope::open(&letter[..length]), None, "{length} bytes");
            }
        }
    }
}
