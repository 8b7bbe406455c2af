//! A scripted Runtime API of AWS Lambda: it delivers the given events, records every post, and refuses, closes or stalls
//! on request.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use http::HeaderValue;
use http1::{Decoder, EMPTY_FIELD, Field, Piece, put_field, put_status_line, strict_end};

/// A fault of the API in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Responds with this status and body.
    Answer(u16, &'static str),
    /// Closes the connection without a response.
    Close,
    /// Sends no response, and keeps the connection open.
    Stall,
    /// Responds to a post with 413 as soon as its head has arrived, and closes.
    RefuseEarly,
    /// Reads only the head of a post until [`RuntimeApi::release`].
    Hold,
}

/// An event to deliver.
#[derive(Clone, Debug)]
pub struct LambdaEvent {
    body: Vec<u8>,
    time: Duration,
    fields: Vec<(String, String)>,
}

impl LambdaEvent {
    /// An event with a time limit of ten minutes.
    pub fn new(body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), time: Duration::from_mins(10), fields: Vec::new() }
    }

    /// The time limit of its invocation.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// A header field of the response to `next`.
    #[must_use]
    pub fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A recorded post.
#[derive(Clone, Debug, Default)]
pub struct Posted {
    /// The kind: `response`, `error`, `init/error`, `restore/error`.
    pub call: String,
    /// Header fields; names in lower case.
    pub fields: BTreeMap<String, String>,
    /// The body so far.
    pub body: Vec<u8>,
    /// Trailer fields; names in lower case.
    pub trailers: BTreeMap<String, String>,
    /// True once it has arrived completely.
    pub complete: bool,
}

impl Posted {
    /// Returns the body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("{error} in {}", String::from_utf8_lossy(&self.body));
        })
    }
}

/// A running Runtime API. It ends with the test.
#[derive(Debug)]
pub struct RuntimeApi {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    handed_out: usize,
    events: VecDeque<(String, LambdaEvent)>,
    posted: Vec<(String, Posted)>,
    on_next: VecDeque<Act>,
    on_post: VecDeque<Act>,
    waiting: usize,
    connections: usize,
    extensions: Vec<String>,
    shutdown: bool,
    restore_asked: bool,
    restored: bool,
    released: bool,
    over: bool,
}

impl RuntimeApi {
    /// Listens on a free port.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if of_thread.lock().over {
                    return;
                }
                let Ok(stream) = stream else { continue };
                of_thread.lock().connections += 1;
                let shared = Arc::clone(&of_thread);
                thread::spawn(move || drop(shared.converse(&stream)));
            }
        });
        Self { address, shared }
    }

    /// Returns the value for `AWS_LAMBDA_RUNTIME_API`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Delivers an event; returns the id of its invocation.
    pub fn push(&self, event: LambdaEvent) -> String {
        let mut state = self.shared.lock();
        state.handed_out += 1;
        let id = format!("8476a536-e9f4-11e8-9739-{:012}", state.handed_out);
        state.events.push_back((id.clone(), event));
        self.shared.changed.notify_all();
        id
    }

    /// Sets the fault of the next `next`.
    pub fn on_next(&self, act: Act) {
        self.shared.lock().on_next.push_back(act);
        self.shared.changed.notify_all();
    }

    /// Sets the fault of the next post.
    pub fn on_post(&self, act: Act) {
        self.shared.lock().on_post.push_back(act);
    }

    /// Answers `extension/event/next` with SHUTDOWN.
    pub fn shut_down(&self) {
        self.shared.lock().shutdown = true;
        self.shared.changed.notify_all();
    }

    /// Answers `restore/next`.
    pub fn restore(&self) {
        self.shared.lock().restored = true;
        self.shared.changed.notify_all();
    }

    /// Reads the rest of a held post.
    pub fn release(&self) {
        self.shared.lock().released = true;
        self.shared.changed.notify_all();
    }

    /// Returns whether `restore/next` was requested.
    pub fn restore_asked(&self) -> bool {
        self.shared.lock().restore_asked
    }

    /// Returns the number of callers that wait for the next event.
    pub fn waiting(&self) -> usize {
        self.shared.lock().waiting
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.shared.lock().connections
    }

    /// Returns the posts that registered extensions.
    pub fn extensions(&self) -> Vec<String> {
        self.shared.lock().extensions.clone()
    }

    /// Returns all posts for an invocation; without one, those of `init/error` and the like.
    pub fn posted(&self, id: &str) -> Vec<Posted> {
        let state = self.shared.lock();
        let of_id = state.posted.iter().filter(|(of, _)| of == id);
        of_id.map(|(_, posted)| posted.clone()).collect()
    }

    /// Waits until a post for an invocation is complete.
    pub fn answer(&self, id: &str, limit: Duration) -> Posted {
        let mut state = self.shared.lock();
        let deadline = SystemTime::now() + limit;
        loop {
            let of_id = state.posted.iter().find(|(of, posted)| of == id && posted.complete);
            if let Some((_, posted)) = of_id {
                return posted.clone();
            }
            let left = deadline.duration_since(SystemTime::now());
            let left = left.unwrap_or_else(|_| panic!("nothing was posted for {id}: {state:?}"));
            state = self.shared.changed.wait_timeout(state, left).expect("no holder panics").0;
        }
    }

    /// Delivers an event and waits for the post.
    pub fn invoke(&self, event: LambdaEvent, limit: Duration) -> Posted {
        let id = self.push(event);
        self.answer(&id, limit)
    }
}

impl Drop for RuntimeApi {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.changed.notify_all();
        drop(TcpStream::connect(self.address));
    }
}

struct Head {
    path: String,
    fields: BTreeMap<String, String>,
    body: Decoder,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `found` returns a value; `None` if the test is over or the caller has disconnected.
    fn wait<T>(
        &self,
        stream: &TcpStream,
        mut found: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(found) = found(&mut state) {
                return Some(found);
            }
            if state.over || is_gone(stream) {
                return None;
            }
            let look = Duration::from_millis(20);
            state = self.changed.wait_timeout(state, look).expect("no holder panics").0;
        }
    }

    fn converse(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = Reader { stream, received: BytesMut::new() };
        while let Some(head) = reader.head()? {
            let path = &*head.path;
            if path == "/2018-06-01/runtime/invocation/next" {
                if !self.next(stream)? {
                    return Ok(());
                }
            } else if path == "/2018-06-01/runtime/restore/next" {
                self.lock().restore_asked = true;
                if self.wait(stream, |state| state.restored.then_some(())).is_none() {
                    return Ok(());
                }
                respond(stream, 200, &[], b"")?;
            } else if path == "/2020-01-01/extension/register" {
                let mut posted = Posted::default();
                reader.body(head.body, &mut |piece| posted.body.extend_from_slice(piece))?;
                let text = String::from_utf8_lossy(&posted.body).into_owned();
                self.lock().extensions.push(text);
                let identifier = ("Lambda-Extension-Identifier".to_owned(), "ext-1".to_owned());
                respond(stream, 200, &[identifier], b"{}")?;
            } else if path == "/2020-01-01/extension/event/next" {
                if self.wait(stream, |state| state.shutdown.then_some(())).is_none() {
                    return Ok(());
                }
                respond(
                    stream,
                    200,
                    &[],
                    br#"{"eventType":"SHUTDOWN","shutdownReason":"SPINDOWN"}"#,
                )?;
            } else if !self.post(stream, &mut reader, head)? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn next(&self, stream: &TcpStream) -> io::Result<bool> {
        self.lock().waiting += 1;
        let found = self.wait(stream, |state| {
            let act = state.on_next.pop_front().map(Err);
            act.or_else(|| state.events.pop_front().map(Ok))
        });
        self.lock().waiting -= 1;
        let (id, event) = match found {
            Some(Ok(event)) => event,
            Some(Err(act)) => return self.act(stream, act),
            None => return Ok(false),
        };
        let deadline = SystemTime::now() + event.time;
        let deadline = deadline.duration_since(UNIX_EPOCH).expect("it is later").as_millis();
        let mut fields = vec![
            ("Content-Type".to_owned(), "application/json".to_owned()),
            ("Lambda-Runtime-Aws-Request-Id".to_owned(), id),
            ("Lambda-Runtime-Deadline-Ms".to_owned(), deadline.to_string()),
            (
                "Lambda-Runtime-Invoked-Function-Arn".to_owned(),
                "arn:aws:lambda:eu-west-1:123456789012:function:shop".to_owned(),
            ),
        ];
        fields.extend(event.fields);
        respond(stream, 200, &fields, &event.body)?;
        Ok(true)
    }

    fn post(&self, stream: &TcpStream, reader: &mut Reader<'_>, head: Head) -> io::Result<bool> {
        let rest = head.path.strip_prefix("/2018-06-01/runtime/").unwrap_or(&head.path);
        let (id, call) =
            match rest.strip_prefix("invocation/").and_then(|rest| rest.split_once('/')) {
                Some((id, call)) => (id.to_owned(), call.to_owned()),
                None => (String::new(), rest.to_owned()),
            };
        let act = self.lock().on_post.pop_front();
        if act == Some(Act::RefuseEarly) {
            respond(stream, 413, &[], br#"{"errorType":"RequestEntityTooLarge"}"#)?;
            return Ok(false);
        }
        let index = {
            let mut state = self.lock();
            let posted = Posted { call, fields: head.fields, ..Posted::default() };
            state.posted.push((id.clone(), posted));
            state.posted.len() - 1
        };
        let act = match act {
            Some(Act::Hold) => {
                if self.wait(stream, |state| state.released.then_some(())).is_none() {
                    return Ok(false);
                }
                None
            }
            act => act,
        };
        let trailers = reader.body(head.body, &mut |piece| {
            self.lock().posted[index].1.body.extend_from_slice(piece);
            self.changed.notify_all();
        })?;
        if let Some(act) = act {
            // A post that was not read is not recorded.
            self.lock().posted[index].0 = format!("refused {id}");
            return self.act(stream, act);
        }
        respond(stream, 202, &[], br#"{"status":"OK"}"#)?;
        let mut state = self.lock();
        state.posted[index].1.trailers = trailers;
        state.posted[index].1.complete = true;
        self.changed.notify_all();
        Ok(true)
    }

    /// Returns true if the connection stays open.
    fn act(&self, stream: &TcpStream, act: Act) -> io::Result<bool> {
        match act {
            Act::Answer(status, body) => {
                respond(stream, status, &[], body.as_bytes())?;
                Ok(true)
            }
            Act::Close | Act::RefuseEarly | Act::Hold => Ok(false),
            Act::Stall => {
                self.wait(stream, |_| None::<()>);
                Ok(false)
            }
        }
    }
}

fn is_gone(stream: &TcpStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    let gone = matches!(stream.peek(&mut [0]), Ok(0));
    stream.set_nonblocking(false).is_err() || gone
}

/// The API's side of a connection.
struct Reader<'s> {
    stream: &'s TcpStream,
    received: BytesMut,
}

impl Reader<'_> {
    /// Reads the next head; `None` if the client has closed before one.
    fn head(&mut self) -> io::Result<Option<Head>> {
        loop {
            if let Some(end) = strict_end(&self.received, 0).map_err(io::Error::other)? {
                let head = self.received.split_to(end);
                let mut fields = [EMPTY_FIELD; 100];
                let malformed = || io::Error::from(io::ErrorKind::InvalidData);
                let parsed = http1::parse(&head, &mut fields).map_err(io::Error::other)?;
                let parsed = parsed.ok_or_else(malformed)?;
                let body = Decoder::new(parsed.framing().ok_or_else(malformed)?);
                let field = |field: &Field<'_>| {
                    let value = String::from_utf8_lossy(field.value).into_owned();
                    (field.name.to_ascii_lowercase(), value)
                };
                let path = parsed.target.to_owned();
                return Ok(Some(Head {
                    path,
                    fields: parsed.fields.iter().map(field).collect(),
                    body,
                }));
            }
            if !self.more()? {
                return Ok(None);
            }
        }
    }

    /// Reads a body piece by piece; returns its trailers.
    fn body(
        &mut self,
        mut body: Decoder,
        take: &mut dyn FnMut(&[u8]),
    ) -> io::Result<BTreeMap<String, String>> {
        loop {
            match body.take(&mut self.received).map_err(io::Error::other)? {
                Piece::Data(data) => take(&data),
                Piece::End => return Ok(BTreeMap::new()),
                Piece::Trailers(trailers) => {
                    let text = |value: &HeaderValue| {
                        String::from_utf8_lossy(value.as_bytes()).into_owned()
                    };
                    let trailers = trailers.iter();
                    return Ok(trailers
                        .map(|(name, value)| (name.to_string(), text(value)))
                        .collect());
                }
                Piece::More if self.more()? => {}
                Piece::More => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    fn more(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 8 << 10];
        let length = self.stream.read(&mut buffer)?;
        self.received.extend_from_slice(&buffer[..length]);
        Ok(length > 0)
    }
}

fn respond(
    mut stream: &TcpStream,
    status: u16,
    fields: &[(String, String)],
    body: &[u8],
) -> io::Result<()> {
    let mut answer = Vec::new();
    put_status_line(&mut answer, &status.to_string(), "As told");
    put_field(&mut answer, "Content-Length", body.len().to_string());
    for (name, value) in fields {
        put_field(&mut answer, name, value);
    }
    answer.extend_from_slice(b"\r\n");
    answer.extend_from_slice(body);
    stream.write_all(&answer)
}
