//! The client of the Runtime API: one persistent connection, one request at a time.
//!
//! Invariants
//! - A request is sent with one write, head and body together, and without a separate task, because this is the
//!   overhead of each invocation.
//! - `next` has no time limit: between events the whole environment is frozen, including its clocks.
//! - A request is repeated only over a new connection, and only if that is safe: `next`, and posts, which the API
//!   accepts once per invocation and then rejects.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::StatusCode;
use http1::{CollectError, Collector, HeadLimits, Response, put_chunk_size};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Reasons why a request to the Runtime API failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The API is not reachable, or the connection ended before its response.
    #[error("the Runtime API at {api} does not answer")]
    Lost {
        api: Arc<str>,
        #[source]
        cause: io::Error,
    },
    /// The API did not read or respond within the limit.
    #[error("the Runtime API at {api} has not taken `{call}` within {patience:?}")]
    Stalled { api: Arc<str>, call: &'static str, patience: Duration },
    /// The API's response is not HTTP.
    #[error("the Runtime API at {api} speaks no HTTP")]
    Malformed {
        api: Arc<str>,
        #[source]
        cause: CollectError,
    },
    /// The API rejected the request (4xx): it was wrong, or came at the wrong time.
    #[error("the Runtime API refused `{call}` with {status}: {answer}")]
    Refused { call: &'static str, status: StatusCode, answer: String },
    /// The API failed (5xx), and the runtime must exit.
    #[error("the Runtime API failed `{call}` with {status}: {answer}")]
    Platform { call: &'static str, status: StatusCode, answer: String },
}

/// Limits for a response's head. An event has a dozen fields, of which the client context may have 3583 bytes in base64.
const HEAD: HeadLimits = HeadLimits { bytes: 64 << 10, fields: 100 };
/// Limit for an event in bytes. Lambda's own limit is 6 MB; the margin is for the day it rises.
const MAX_BODY: usize = 64 << 20;

/// Delays before each reconnection attempt of one request.
const ATTEMPTS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_millis(500),
];

/// A request to the Runtime API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'c> {
    /// Name for messages: `next`, `response`.
    pub(crate) name: &'static str,
    /// Request line, and header fields except `Host` and `Content-Length`; each line ends with CR LF.
    pub(crate) head: &'c str,
    /// Body; `None` for GET.
    pub(crate) body: Option<&'c [u8]>,
    /// How long the response may take; `None` for no limit.
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
    /// Creates a client; `api` is host and port, as in `AWS_LAMBDA_RUNTIME_API`. It connects with the first request.
    pub(crate) fn new(api: Arc<str>) -> Self {
        let responses = Collector::new(HEAD, MAX_BODY);
        let (incoming, head) = (BytesMut::new(), Vec::with_capacity(512));
        Self { api, stream: None, incoming, responses, head }
    }

    /// Sends a request and returns the response, whatever its status. After an error the next request uses a new
    /// connection.
    ///
    /// # Cancel safety
    /// Not cancel safe: a dropped request requires [`Client::disconnect`].
    pub(crate) async fn send(&mut self, call: Call<'_>) -> Result<Response, ApiError> {
        let mut attempts = ATTEMPTS.into_iter();
        // An idle connection may be gone by now, which does not count as an attempt.
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

    /// Drops the connection.
    pub(crate) fn disconnect(&mut self) {
        self.stream = None;
        self.incoming.clear();
        self.responses.reset();
    }

    /// Begins a request with a chunked body: `head` is as in [`Call`], with the fields for it. `patience` limits how
    /// long the API may not read, or not respond.
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

    /// Reads until the response is complete. `written` is the result of writing. A server that rejects a body early
    /// closes after its response, so the response has precedence over the write error.
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

    /// Returns the number of bytes read; 0 at the end. Cancel safe.
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

/// A request with a chunked body (RFC 9112 section 7.1).
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

    /// Ends the body with these trailers, each line with its CR LF, and reads the response.
    pub(crate) async fn end(&mut self, trailers: &str) -> Result<Response, ApiError> {
        let end = format!("0\r\n{trailers}\r\n");
        self.timed(async |client| {
            let stream = client.connect().await?;
            let written = write_all(stream, &mut [IoSlice::new(end.as_bytes())]).await;
            client.answer_of_upload(written).await
        })
        .await
    }

    /// Waits until the API responds although the body has not ended, or closes. Cancel safe.
    pub(crate) async fn is_interrupted(&mut self) {
        // The reader of the response gets the error again.
        drop(self.client.read_more().await);
    }

    /// Reads the response without ending the body: the connection is unusable afterwards.
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

    /// Runs an operation with the time limit; if it fails, the connection is unusable.
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

/// Writes all parts, in one system call if possible.
async fn write_all(stream: &mut TcpStream, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    let mut rest = parts;
    // Skips empty parts at the front.
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
