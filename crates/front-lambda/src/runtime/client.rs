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

use bytes::{Buf, BytesMut};
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::wire::{Answer, Malformed};

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
    /// What it says is no HTTP.
    #[error("the Runtime API at {api} speaks no HTTP")]
    Malformed {
        api: Arc<str>,
        #[source]
        cause: Malformed,
    },
    /// It understood and refused (4xx): the request was wrong, or came at the wrong time.
    #[error("the Runtime API refused `{call}` with {status}: {answer}")]
    Refused { call: &'static str, status: StatusCode, answer: String },
    /// It cannot go on (5xx), and then the runtime has to end.
    #[error("the Runtime API failed `{call}` with {status}: {answer}")]
    Platform { call: &'static str, status: StatusCode, answer: String },
}

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
    head: Vec<u8>,
}

impl Client {
    /// `api`: host and port, as `AWS_LAMBDA_RUNTIME_API` has them. Connects with the first request.
    pub(crate) fn new(api: Arc<str>) -> Self {
        Self { api, stream: None, incoming: BytesMut::new(), head: Vec::with_capacity(512) }
    }

    /// Sends a request and returns the answer, whatever its status. After an error the connection is a new one.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped half-way, the connection has to be dropped with it ([`Client::disconnect`]).
    pub(crate) async fn send(&mut self, call: Call<'_>) -> Result<Answer, ApiError> {
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
                        let cause = io::Error::new(
                            io::ErrorKind::TimedOut,
                            format!("no answer to `{}` within {patience:?}", call.name),
                        );
                        return Err(ApiError::Lost { api: Arc::clone(&self.api), cause });
                    }
                },
            };
            let lost = match sent {
                Ok(answer) => {
                    if answer.last {
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
    }

    async fn attempt(&mut self, call: Call<'_>) -> Result<Answer, ApiError> {
        let lost = |cause| ApiError::Lost { api: Arc::clone(&self.api), cause };
        if self.stream.is_none() {
            let stream = TcpStream::connect(&*self.api).await.map_err(lost)?;
            stream.set_nodelay(true).map_err(lost)?;
            self.stream = Some(stream);
        }
        let stream = self.stream.as_mut().expect("it was connected just now");
        let head = &mut self.head;
        head.clear();
        head.extend_from_slice(call.head.as_bytes());
        head.extend_from_slice(b"Host: ");
        head.extend_from_slice(self.api.as_bytes());
        if let Some(body) = call.body {
            head.extend_from_slice(b"\r\nContent-Length: ");
            head.extend_from_slice(body.len().to_string().as_bytes());
        }
        head.extend_from_slice(b"\r\n\r\n");
        let written = write_both(stream, head, call.body.unwrap_or_default()).await;
        loop {
            let malformed = |cause| ApiError::Malformed { api: Arc::clone(&self.api), cause };
            if let Some(answer) = Answer::read(&mut self.incoming, false).map_err(malformed)? {
                return Ok(answer);
            }
            if self.incoming.capacity() == self.incoming.len() {
                self.incoming.reserve(16 * 1024);
            }
            let lost = |cause| ApiError::Lost { api: Arc::clone(&self.api), cause };
            // Who refuses a body early closes behind the answer: what it said is worth more than how the write failed.
            let read = match stream.read_buf(&mut self.incoming).await {
                Ok(read) => read,
                Err(error) => return Err(lost(written.err().unwrap_or(error))),
            };
            if read == 0 {
                return match Answer::read(&mut self.incoming, true).map_err(malformed)? {
                    Some(answer) => Ok(answer),
                    None => Err(lost(written.err().unwrap_or_else(|| {
                        io::Error::new(io::ErrorKind::UnexpectedEof, "connection closed")
                    }))),
                };
            }
        }
    }
}

/// Writes one behind the other, in one call of the system where it takes that much.
async fn write_both(stream: &mut TcpStream, head: &[u8], body: &[u8]) -> io::Result<()> {
    let (mut head, mut body) = (head, body);
    while !head.is_empty() && !body.is_empty() {
        let written = stream.write_vectored(&[IoSlice::new(head), IoSlice::new(body)]).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let of_head = written.min(head.len());
        head.advance(of_head);
        body.advance(written - of_head);
    }
    stream.write_all(head).await?;
    stream.write_all(body).await
}
