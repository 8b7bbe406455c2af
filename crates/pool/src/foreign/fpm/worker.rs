//! A child of php-fpm behind its connection, which carries one request at a time.
//!
//! Invariants
//! - A connection carries a request only if its child has read all that was written before: then the last script has
//!   ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{ReadHalf, WriteHalf};
use tracing::trace;

use super::Fpm;
use crate::exchange::{BoxError, Failure};
use crate::foreign::answer::Answer;
use crate::foreign::fastcgi::{self, Record, RequestWriter};
use crate::foreign::process::Process;
use crate::foreign::request::Request;
use crate::foreign::{both_ways, malformed};
use crate::info::WorkerInfo;
use crate::sys;
use crate::variables::Sink;

/// Number of bytes read at once.
const READ_AHEAD: usize = 16 * 1024;

/// A connection to a child.
#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    arrived: BytesMut,
    /// An exchange has started and was not completed.
    broken: bool,
}

/// A place for a connection, with its current or last child.
#[derive(Debug)]
pub(in crate::foreign) struct Worker {
    fpm: Arc<Fpm>,
    slot: u32,
    connection: Option<Connection>,
    /// Without a connection it may have accepted that of another slot.
    child: Option<(Process, Arc<WorkerInfo>)>,
}

impl Worker {
    pub(in crate::foreign) fn new(fpm: Arc<Fpm>, slot: u32) -> Self {
        Self { fpm, slot, connection: None, child: None }
    }

    /// Returns the record of the child, unless that serves another slot by now.
    pub(in crate::foreign) fn info(&self) -> Option<&Arc<WorkerInfo>> {
        let (process, info) = self.child.as_ref()?;
        // An open connection, or an end, leaves no doubt.
        if self.connection.is_some() || info.exit().is_some() {
            return Some(info);
        }
        self.fpm.if_still_of(process.pid, self.slot, || info)
    }

    /// Calls [`Fpm::look_at_master`].
    pub(in crate::foreign) fn unanswered(&self) {
        self.fpm.look_at_master();
    }

    pub(in crate::foreign) fn is_ready(&self) -> bool {
        let alive = self.info().is_some_and(|info| info.exit().is_none());
        let connected = self
            .connection
            .as_ref()
            .is_some_and(|connection| !connection.broken && is_silent(&connection.stream));
        alive && connected
    }

    /// Connects and asks which child has accepted the connection; waits until one is free.
    pub(in crate::foreign) async fn prepare(&mut self) -> Result<(), BoxError> {
        self.connection = None;
        let fpm = &self.fpm;
        let mut connection = Connection {
            stream: UnixStream::connect(&fpm.socket).await?,
            arrived: BytesMut::new(),
            broken: false,
        };
        let question = fpm.question.fetch_add(1, Ordering::Relaxed);
        let query = format!("full&{question}");
        let uri = format!("{}?{query}", fpm.status);
        let mut head = Vec::new();
        let mut writer = RequestWriter::new(&mut head);
        writer.pair(b"REQUEST_METHOD", b"GET");
        writer.pair(b"SCRIPT_NAME", fpm.status.as_bytes());
        writer.pair(b"SCRIPT_FILENAME", fpm.status.as_bytes());
        writer.pair(b"QUERY_STRING", query.as_bytes());
        writer.pair(b"REQUEST_URI", uri.as_bytes());
        writer.finish().map_err(|fastcgi::TooLarge| "too large")?;
        head.extend_from_slice(&fastcgi::stdin_header(0));
        connection.stream.write_all(&head).await?;
        let mut page = Vec::new();
        loop {
            match fastcgi::decode(&mut connection.arrived)? {
                Some(Record::Stdout(data)) => page.extend_from_slice(&data),
                Some(Record::Stderr(_)) => {}
                Some(Record::End { .. }) => break,
                None => {
                    if connection.stream.read_buf(&mut connection.arrived).await? == 0 {
                        return Err("php-fpm closed its connection".into());
                    }
                }
            }
        }
        let pid = pid_of(&page, &uri).ok_or_else(|| {
            format!("php-fpm's status names no process: {}", String::from_utf8_lossy(&page))
        })?;
        // It is alive: it waits for this connection's next request.
        let process = Process::open(pid)?;
        let info = fpm.accepted(pid, self.slot);
        self.child = Some((process, info));
        self.connection = Some(connection);
        Ok(())
    }

    pub(in crate::foreign) async fn exchange(
        &mut self,
        request: &mut Request,
        answer: &mut Answer,
    ) -> Result<(), Failure> {
        let Some(connection) = &mut self.connection else { return Err(Failure::NotSent) };
        let mut head = Vec::with_capacity(2048);
        let mut writer = RequestWriter::new(&mut head);
        request.write_variables(&mut writer);
        writer.finish().map_err(|fastcgi::TooLarge| Failure::TooLarge)?;
        if request.length.is_none() {
            head.extend_from_slice(&fastcgi::stdin_header(0));
        }
        let mut head = Bytes::from(head);
        // The socket is empty, so some of it is sent at once or the child is gone.
        match connection.stream.try_write(&head) {
            Ok(written) => head.advance(written),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_gone) => return Err(Failure::NotSent),
        }
        connection.broken = true;
        let (read, write) = connection.stream.split();
        let upload = upload(write, head, request);
        let download = download(read, &mut connection.arrived, answer);
        let ((), uploaded) = both_ways(upload, download).await?;
        // A script that ended its response early may have left some of the body unread; the connection is then
        // unusable.
        connection.broken = !uploaded;
        Ok(())
    }

    /// Waits until the child waits for the next request: `fastcgi_finish_request()` lets scripts continue after their
    /// response.
    pub(in crate::foreign) async fn wait_until_ready(
        &mut self,
        whole: bool,
    ) -> Result<(), BoxError> {
        let Some(connection) = self.connection.as_mut().filter(|it| whole && !it.broken) else {
            // After closing, the script is aborted at its next output. After reconnecting, the child (or its
            // successor) accepts when the script has ended.
            return self.prepare().await;
        };
        // Only a child that waits for a request skips an empty STDIN record. Once it is read, the script has ended.
        connection.stream.try_write(&fastcgi::stdin_header(0))?;
        until_read(&connection.stream).await
    }

    /// Kills the child, unless that serves another slot by now.
    pub(in crate::foreign) fn kill(&mut self) {
        if let Some((process, _)) = &self.child {
            self.fpm.if_still_of(process.pid, self.slot, || process.kill());
        }
        // Closed last: a child whose connection is closed accepts another one, possibly that of another slot.
        self.connection = None;
    }
}

/// Waits until the peer has read all bytes written to `stream`. Fails when the peer has closed it.
///
/// No timer is involved: the kernel reports a Unix socket as writable each time its peer has taken a message
/// (`sock_wfree()`, net/core/sock.c), and tokio waits for that edge. The kernel calls while it still counts one byte of
/// the message, so a count of one means that the message is read. A waiting message counts several hundred.
async fn until_read(stream: &UnixStream) -> Result<(), BoxError> {
    const BEING_READ: i32 = 1;
    let read = || {
        if sys::unread(stream)? <= BEING_READ {
            Ok(())
        } else if is_silent(stream) {
            Err(std::io::ErrorKind::WouldBlock.into())
        } else {
            Err(std::io::Error::other("php-fpm closed its connection"))
        }
    };
    Ok(stream.async_io(Interest::WRITABLE, read).await?)
}

/// Returns whether nothing has arrived, not even an end.
fn is_silent(stream: &UnixStream) -> bool {
    let read = stream.try_read(&mut [0]);
    matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Returns the process that answers the status query `uri`, from php-fpm's full status as text.
fn pid_of(page: &[u8], uri: &str) -> Option<u32> {
    let page = String::from_utf8_lossy(page);
    let mut pid = None;
    for line in page.lines() {
        match line.split_once(':').map(|(name, value)| (name, value.trim())) {
            Some(("pid", number)) => pid = number.parse().ok(),
            Some(("request URI", current)) if current == uri => return pid,
            _ => {}
        }
    }
    None
}

/// Writes the rest of the request as the child reads it. An error is the client's; if the child stops reading, the
/// response reader handles it.
async fn upload(
    mut stream: WriteHalf<'_>,
    mut head: Bytes,
    request: &mut Request,
) -> Result<(), BoxError> {
    if stream.write_all_buf(&mut head).await.is_err() {
        return std::future::pending().await;
    }
    if request.length.is_none() {
        return Ok(());
    }
    while let Some(piece) = request.body.next().await {
        let mut piece = piece?;
        while !piece.is_empty() {
            let part = piece.split_to(piece.len().min(fastcgi::MAX_CONTENT));
            let header = fastcgi::stdin_header(part.len());
            if stream.write_all_buf(&mut Buf::chain(&header[..], part)).await.is_err() {
                return std::future::pending().await;
            }
        }
    }
    if stream.write_all(&fastcgi::stdin_header(0)).await.is_err() {
        return std::future::pending().await;
    }
    Ok(())
}

/// Reads the response as the client reads it.
async fn download(
    mut stream: ReadHalf<'_>,
    arrived: &mut BytesMut,
    answer: &mut Answer,
) -> Result<(), Failure> {
    loop {
        match fastcgi::decode(arrived).map_err(|why| malformed(&why))? {
            Some(Record::Stdout(data)) => answer.push(data).map_err(|why| malformed(&why))?,
            // PHP's messages. They also appear on its stderr, with everything else that scripts write there, so these
            // are dropped.
            Some(Record::Stderr(data)) => trace!("STDERR: {}", String::from_utf8_lossy(&data)),
            Some(Record::End { protocol: 0, .. }) => {
                return answer.end().await.map_err(|why| malformed(&why));
            }
            Some(Record::End { protocol, .. }) => {
                return Err(malformed(&format_args!("request refused with {protocol}")));
            }
            None => {
                answer.flush().await;
                arrived.reserve(READ_AHEAD);
                match stream.read_buf(arrived).await {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => return Err(Failure::Died { pid: 0, how: String::new() }),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_written_is_waited_for_until_the_peer_has_read_it() {
        let (ours, peer) = UnixStream::pair().expect("a pair of sockets");
        until_read(&ours).await.expect("nothing is unread");
        for round in 0..1_000 {
            for _ in 0..3 {
                ours.try_write(&[0; 8]).expect("there is room");
            }
            let waits = until_read(&ours);
            let reads = async {
                tokio::task::yield_now().await;
                let mut bytes = [0; 8];
                for _ in 0..3 {
                    peer.readable().await.expect("it is open");
                    let read = peer.try_read(&mut bytes).expect("a message is there");
                    assert_eq!(read, 8, "round {round}");
                    if round % 2 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            };
            let (read, ()) = tokio::join!(waits, reads);
            read.expect("it is open");
            assert!(sys::unread(&ours).expect("a socket") == 0, "round {round}");
        }
    }

    #[tokio::test]
    async fn a_peer_that_closes_ends_the_wait() {
        let (ours, peer) = UnixStream::pair().expect("a pair of sockets");
        ours.try_write(b"never read").expect("there is room");
        let closes = async {
            tokio::task::yield_now().await;
            drop(peer);
        };
        let (waited, ()) = tokio::join!(until_read(&ours), closes);
        // A closed socket drops what it has not read: either way the next request finds it closed.
        assert!(waited.is_ok() || waited.is_err_and(|error| error.to_string().contains("closed")));
        ours.readable().await.expect("an end can be read");
        assert!(!is_silent(&ours));
    }

    #[test]
    fn a_child_is_found_by_the_question_it_answers() {
        let page = b"pool: hearth\n\n***\npid:  12\nrequest URI:   /x?full&1\n\n***\npid: 13\nrequest URI: /x?full&2\n";
        assert_eq!(pid_of(page, "/x?full&2"), Some(13));
        assert_eq!(pid_of(page, "/x?full&3"), None);
    }
}
