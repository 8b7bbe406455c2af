//! Unix streams whose owner sleeps while the peer reads.
//!
//! Linux reports that a Unix stream can be written each time its peer has read something, also if it was never full
//! (`unix_write_space()`, `net/unix/af_unix.c`); a TCP stream was full before. tokio's `UnixStream` asks for that report,
//! so that a server that waits for an answer wakes up when its request is read.
//!
//! Invariants
//! - The room for writing is waited for only after a write has found none, over a descriptor of its own.
//! - No report is lost: readiness for reading is cleared only by a read that has found less than it asked for.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{BufMut as _, BytesMut};
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A connected Unix stream. One task may read and another one write at a time.
#[derive(Debug)]
pub struct Stream {
    socket: AsyncFd<OwnedFd>,
    /// Present while a write waits.
    full: Mutex<Option<AsyncFd<OwnedFd>>>,
}

impl Stream {
    /// Takes over a connected socket.
    ///
    /// # Errors
    /// The runtime cannot watch the socket.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let socket = watch(socket.into(), Interest::READABLE)?;
        Ok(Self { socket, full: Mutex::new(None) })
    }

    /// Reads what fits behind the buffer's bytes; the buffer has room. Returns the number of bytes, zero at the end.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_read(
        &self,
        buffer: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let room = buffer.spare_capacity_mut();
        debug_assert!(!room.is_empty(), "room to read into");
        let read = ready!(self.poll_recv(room.len(), cx, |socket| {
            Ok(rustix::net::recv(socket, &mut *room, RecvFlags::empty())?.1)
        }))?;
        #[expect(unsafe_code, reason = "only so a buffer need not be filled before")]
        // SAFETY: the call has initialised that many bytes.
        unsafe {
            buffer.advance_mut(read);
        }
        Poll::Ready(Ok(read))
    }

    /// Reads into `bytes`, which are not empty. Returns the number of bytes, zero at the end.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_read_slice(
        &self,
        bytes: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.poll_recv(bytes.len(), cx, |socket| {
            Ok(rustix::net::recv(socket, &mut *bytes, RecvFlags::empty())?.1)
        })
    }

    /// Returns when the peer has disconnected or sends no more, even while nothing is read.
    pub async fn closed(&self) {
        // It wakes for the peer's close, and for urgent data, which Unix streams seldom have.
        let ready = self.socket.ready(Interest::PRIORITY).await;
        if ready.is_ok_and(|ready| ready.ready().is_read_closed()) {
            return;
        }
        // After urgent data this check stops; reading still finds the end.
        std::future::pending::<()>().await;
    }

    fn poll_recv(
        &self,
        most: usize,
        cx: &mut Context<'_>,
        mut recv: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.socket.poll_read_ready(cx))?;
            match recv(self.as_fd()) {
                Ok(read) => {
                    if (1..most).contains(&read) {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(read));
                }
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Writes the beginning of these bytes. Returns how many were written.
    ///
    /// # Errors
    /// The connection is broken, or the peer reads no more.
    pub fn poll_write(&self, bytes: &[u8], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.poll_full(cx, |socket| rustix::net::send(socket, bytes, SendFlags::NOSIGNAL))
    }

    /// Writes the beginning of these pieces, as [`Self::poll_write`].
    ///
    /// # Errors
    /// As [`Self::poll_write`].
    pub fn poll_write_vectored(
        &self,
        pieces: &[IoSlice<'_>],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.poll_full(cx, |socket| {
            let mut none = rustix::net::SendAncillaryBuffer::default();
            rustix::net::sendmsg(socket, pieces, &mut none, SendFlags::NOSIGNAL)
        })
    }

    fn poll_full(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let mut full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match write(self.as_fd()) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => {}
                written => {
                    *full = None;
                    return Poll::Ready(written.map_err(io::Error::from));
                }
            }
            let watched = match &mut *full {
                Some(watched) => watched,
                none => none.insert(watch(self.as_fd().try_clone_to_owned()?, Interest::WRITABLE)?),
            };
            // A change between the write and this is reported: a descriptor is reported as it is when its watch begins.
            ready!(watched.poll_write_ready(cx))?.clear_ready();
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().as_fd()
    }
}

#[expect(unsafe_code, reason = "tokio cannot know that a type keeps its descriptor open")]
fn watch(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: it is open until it is dropped.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, interest) };
    watched.map_err(|error| error.into_parts().1)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{Read as _, Write as _};

    use super::*;

    fn pair() -> (Stream, UnixStream) {
        let (own, peers) = UnixStream::pair().unwrap();
        (Stream::new(own).unwrap(), peers)
    }

    async fn write_all(stream: &Stream, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let written = poll_fn(|cx| stream.poll_write(bytes, cx)).await.unwrap();
            bytes = &bytes[written..];
        }
    }

    async fn read(stream: &Stream, room: usize) -> Vec<u8> {
        let mut buffer = BytesMut::with_capacity(room);
        poll_fn(|cx| stream.poll_read(&mut buffer, cx)).await.unwrap();
        buffer.to_vec()
    }

    #[tokio::test]
    async fn bytes_arrive_in_order_in_both_directions_until_the_end() {
        let (stream, mut peer) = pair();
        write_all(&stream, b"question").await;
        let mut question = [0; 8];
        peer.read_exact(&mut question).unwrap();
        assert_eq!(&question, b"question");
        peer.write_all(b"answer").unwrap();
        assert_eq!(read(&stream, 4).await, b"answ");
        assert_eq!(read(&stream, 16).await, b"er");
        let pieces = [IoSlice::new(b"one "), IoSlice::new(b"two")];
        assert_eq!(poll_fn(|cx| stream.poll_write_vectored(&pieces, cx)).await.unwrap(), 7);
        drop(stream);
        let mut rest = String::new();
        peer.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "one two");
    }

    #[tokio::test]
    async fn a_read_waits_for_bytes_and_finds_the_end() {
        let (stream, mut peer) = pair();
        let writer = std::thread::spawn(move || {
            for number in 0..100_u8 {
                std::thread::yield_now();
                peer.write_all(&[number]).unwrap();
            }
        });
        let mut all = Vec::new();
        loop {
            let bytes = read(&stream, 64).await;
            if bytes.is_empty() {
                break;
            }
            all.extend(bytes);
        }
        assert_eq!(all, (0..100).collect::<Vec<u8>>());
        writer.join().unwrap();
    }

    /// More than the socket takes, several times: each wait for room ends.
    #[tokio::test]
    async fn a_full_stream_goes_on_when_its_peer_reads() {
        let (stream, mut peer) = pair();
        let bytes: Vec<u8> = (0..4_000_000_u32).map(|number| (number % 251) as u8).collect();
        let expected = bytes.clone();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            assert!(all == expected, "{} bytes", all.len());
        });
        write_all(&stream, &bytes).await;
        drop(stream);
        reader.join().unwrap();
    }

    #[tokio::test]
    async fn writing_to_a_peer_that_has_gone_is_an_error_and_no_signal() {
        let (stream, peer) = pair();
        drop(peer);
        let error = poll_fn(|cx| stream.poll_write(b"x", cx)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn the_end_is_noticed_while_bytes_are_unread() {
        let (stream, mut peer) = pair();
        peer.write_all(b"unread").unwrap();
        drop(peer);
        stream.closed().await;
        assert_eq!(read(&stream, 64).await, b"unread");
    }
}
