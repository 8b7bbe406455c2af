//! The client of the Runtime API: one connection that is kept, one request at a time.
//!
//! Invariants
//! - A request goes out in one write, head and body together, and without a task of its own: what an invocation costs is paid here.
//! - `next` has no time limit: between events the whole environment stands still, clocks included.
//! - A request is sent again only over a new connection, and only where repeating is safe: `next`, and posts, which the API takes
//!   once per invocation and refuses the second time.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::StatusCode;
use http1::{CollectError, Collector, HeadLimits, Response, put_chunk_size};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Why the Runtime API did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// It is not there, or went away before it answered.
    #[error("the Runtime API at {api} does not answer")]
    Lost {
        api: Arc<str>,
        #[source]
        cause: io::Error,
    },
    /// It took nothing, or said nothing, for as long as it may.
    #[error("the Runtime API at {api} has not taken `{call}` within {patience:?}")]
    Stalled { api: Arc<str>, call: &'static str, patience: Duration },
    /// What it says is no HTTP.
    #[error("the Runtime API at {api} speaks no HTTP")]
    Malformed {
        api: Arc<str>,
        #[source]
        cause: CollectError,
    },
    /// It understood and refused (4xx): the request was wrong, or came at the wrong time.
    #[error("the Runtime API refused `{call}` with {status}: {answer}")]
    Refused { call: &'static str, status: StatusCode, answer: String },
    /// It cannot go on (5xx), and then the runtime has to end.
    #[error("the Runtime API failed `{call}` with {status}: {answer}")]
    Platform { call: &'static str, status: StatusCode, answer: String },
}

/// Limits for a response's head. An event has a dozen fields, of which the client context may have 3583 bytes in base64.
const HEAD: HeadLimits = HeadLimits { bytes: 64 << 10, fields: 100 };
/// Limit for an event in bytes. Lambda's own limit is 6 MB; the margin is for the day it rises.
const MAX_BODY: usize = 64 << 20;

/// How often a lost connection is made again for one request, and what is waited before.
const ATTEMPTS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_millis(500),
];

/// A request to the Runtime API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'c> {
    /// For messages: `next`, `response`.
    pub(crate) name: &'static str,
    /// Request line, and header fields but for `Host` and `Content-Length`; each line ends with CR LF.
    pub(crate) head: &'c str,
    /// `None`: GET.
    pub(crate) body: Option<&'c [u8]>,
    /// How long the answer may take; `None`: any time.
    pub(crate) patience: Option<Duration>,
}

/// One connection to the Runtime API.
#[derive(Debug)]
pub(crate) struct Client {
    api: Arc<str>,
    stream: Option<TcpStream>,
    incoming: BytesMut,
    responses: Collector,
    head: Vec<u8>,
}

impl Client {
    /// `api`: host and port, as `AWS_LAMBDA_RUNTIME_API` has them. Connects with the first request.
    pub(crate) fn new(api: Arc<str>) -> Self {
        let responses = Collector::new(HEAD, MAX_BODY);
        let (incoming, head) = (BytesMut::new(), Vec::with_capacity(512));
        Self { api, stream: None, incoming, responses, head }
    }

    /// Sends a request and returns the answer, whatever its status. After an error the connection is a new one.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped half-way, the connection has to be dropped with it ([`Client::disconnect`]).
    pub(crate) async fn send(&mut self, call: Call<'_>) -> Result<Response, ApiError> {
        let mut attempts = ATTEMPTS.into_iter();
        // A connection that has been idle may be gone by now: that costs no attempt.
        let mut fresh = self.stream.is_none();
        loop {
            if fresh {
                let Some(pause) = attempts.next() else { unreachable!("the last one returns") };
                tokio::time::sleep(pause).await;
            }
            fresh = true;
            let sent = match call.patience {
                None => self.attempt(call).await,
                Some(patience) => match tokio::time::timeout(patience, self.attempt(call)).await {
                    Ok(sent) => sent,
                    Err(_elapsed) => {
                        self.disconnect();
                        let api = Arc::clone(&self.api);
                        return Err(ApiError::Stalled { api, call: call.name, patience });
                    }
                },
            };
            let lost = match sent {
                Ok(answer) => {
                    if !answer.head.keep_alive {
                        self.disconnect();
                    }
                    return Ok(answer);
                }
                Err(error) => error,
            };
            self.disconnect();
            if !matches!(lost, ApiError::Lost { .. }) || attempts.len() == 0 {
                return Err(lost);
            }
            tracing::debug!(call = call.name, error = %lost, "connection to the Runtime API lost");
        }
    }

    /// Forgets the connection.
    pub(crate) fn disconnect(&mut self) {
        self.stream = None;
        self.incoming.clear();
        self.responses.reset();
    }

    /// Begins a request whose body comes bit by bit: `head` as in [`Call`], with the fields that say so. `patience`: how long the API may
    /// take none of it, or leave it unanswered.
    pub(crate) fn upload<'c>(
        &'c mut self,
        name: &'static str,
        head: &str,
        patience: Duration,
    ) -> Upload<'c> {
        let beginning = format!("{head}Host: {}\r\n\r\n", self.api).into_bytes();
        Upload { client: self, name, beginning, patience }
    }

    async fn connect(&mut self) -> Result<&mut TcpStream, ApiError> {
        if self.stream.is_none() {
            let lost = |cause| ApiError::Lost { api: Arc::clone(&self.api), cause };
            let stream = TcpStream::connect(&*self.api).await.map_err(lost)?;
            stream.set_nodelay(true).map_err(lost)?;
            self.stream = Some(stream);
        }
        Ok(self.stream.as_mut().expect("it was connected just now"))
    }

    async fn attempt(&mut self, call: Call<'_>) -> Result<Response, ApiError> {
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        head.extend_from_slice(call.head.as_bytes());
        head.extend_from_slice(b"Host: ");
        head.extend_from_slice(self.api.as_bytes());
        if let Some(body) = call.body {
            head.extend_from_slice(b"\r\nContent-Length: ");
            head.extend_from_slice(body.len().to_string().as_bytes());
        }
        head.extend_from_slice(b"\r\n\r\n");
        let stream = self.connect().await?;
        let body = call.body.unwrap_or_default();
        let written = write_all(stream, &mut [IoSlice::new(&head), IoSlice::new(body)]).await;
        self.head = head;
        self.read_answer(written).await
    }

    /// Reads until the answer is there. `written`: how the request was written. Who refuses a body early closes behind the answer: what
    /// it said is worth more than how the write failed.
    async fn read_answer(&mut self, written: io::Result<()>) -> Result<Response, ApiError> {
        let api = Arc::clone(&self.api);
        let lost = |cause| ApiError::Lost { api: Arc::clone(&api), cause };
        let malformed = |cause| ApiError::Malformed { api: Arc::clone(&api), cause };
        loop {
            let read = self.responses.read(&mut self.incoming, false);
            if let Some(answer) = read.map_err(malformed)? {
                return Ok(answer);
            }
            match self.read_more().await {
                Ok(0) => {
                    let read = self.responses.read(&mut self.incoming, true);
                    let closed =
                        || io::Error::new(io::ErrorKind::UnexpectedEof, "connection closed");
                    return read
                        .map_err(malformed)?
                        .ok_or_else(|| lost(written.err().unwrap_or_else(closed)));
                }
                Ok(_) => {}
                Err(error) => return Err(lost(written.err().unwrap_or(error))),
            }
        }
    }

    /// Bytes read; 0 at the end. Cancel safe.
    async fn read_more(&mut self) -> io::Result<usize> {
        if self.incoming.capacity() - self.incoming.len() < 4 * 1024 {
            self.incoming.reserve(16 * 1024);
        }
        match &mut self.stream {
            Some(stream) => stream.read_buf(&mut self.incoming).await,
            None => Ok(0),
        }
    }
}

/// A request whose body comes bit by bit (RFC 9112 section 7.1).
#[derive(Debug)]
pub(crate) struct Upload<'c> {
    client: &'c mut Client,
    name: &'static str,
    beginning: Vec<u8>,
    patience: Duration,
}

impl Upload<'_> {
    /// Sends the head and the first piece of the body, if there is one already.
    pub(crate) async fn begin(&mut self, piece: &[u8]) -> Result<(), ApiError> {
        let beginning = std::mem::take(&mut self.beginning);
        self.send(&beginning, piece).await
    }

    /// Sends a piece.
    pub(crate) async fn write(&mut self, piece: &[u8]) -> Result<(), ApiError> {
        self.send(&[], piece).await
    }

    /// Ends the body with these trailers, each line with its CR LF, and reads the answer.
    pub(crate) async fn end(&mut self, trailers: &str) -> Result<Response, ApiError> {
        let end = format!("0\r\n{trailers}\r\n");
        self.timed(async |client| {
            let stream = client.connect().await?;
            let written = write_all(stream, &mut [IoSlice::new(end.as_bytes())]).await;
            client.answer_of_upload(written).await
        })
        .await
    }

    /// Waits until the API says something although the body has not ended, or closes. Cancel safe.
    pub(crate) async fn is_interrupted(&mut self) {
        // An error is found again by whoever reads the answer.
        drop(self.client.read_more().await);
    }

    /// Reads the answer without ending the body: the connection is of no more use.
    pub(crate) async fn answer(&mut self) -> Result<Response, ApiError> {
        let answer = self.timed(async |client| client.answer_of_upload(Ok(())).await).await;
        self.client.disconnect();
        answer
    }

    async fn send(&mut self, before: &[u8], piece: &[u8]) -> Result<(), ApiError> {
        if before.is_empty() && piece.is_empty() {
            return Ok(()); // a chunk without bytes would be the end
        }
        let (mut size, mut end) = (Vec::new(), "");
        if !piece.is_empty() {
            put_chunk_size(&mut size, piece.len());
            end = "\r\n";
        }
        self.timed(async |client| {
            let api = Arc::clone(&client.api);
            let stream = client.connect().await?;
            let mut parts = [before, &size, piece, end.as_bytes()].map(IoSlice::new);
            let written = write_all(stream, &mut parts).await;
            written.map_err(|cause| ApiError::Lost { api, cause })
        })
        .await
    }

    /// Does it in the time that there is; when it fails the connection is of no more use.
    async fn timed<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let done = match tokio::time::timeout(self.patience, work(self.client)).await {
            Ok(done) => done,
            Err(_elapsed) => Err(ApiError::Stalled {
                api: Arc::clone(&self.client.api),
                call: self.name,
                patience: self.patience,
            }),
        };
        if done.is_err() {
            self.client.disconnect();
        }
        done
    }
}

impl Client {
    async fn answer_of_upload(&mut self, written: io::Result<()>) -> Result<Response, ApiError> {
        let answer = self.read_answer(written).await?;
        if !answer.head.keep_alive {
            self.disconnect();
        }
        Ok(answer)
    }
}

/// Writes all of them, in one call of the system where it takes that much.
async fn write_all(stream: &mut TcpStream, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    let mut rest = parts;
    // Whatever is empty at the front goes first.
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        let written = stream.write_vectored(rest).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut rest, written);
    }
    Ok(())
}
