//! A front over a test application, and a client that sees every byte.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use front_http::{
    AccessLogFile, Address, AnswerCache, Application, Bound, ClientLimit, Connections, Front,
    Listen, Options, RequestBody, Switch,
};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use pool::{DispatchError, RequestContext, ResponseObserver};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;

/// Time limit of each step of a test.
pub(crate) const LONG: Duration = Duration::from_secs(10);

/// An application in PHP's place whose response depends on the path.
#[derive(Clone, Default)]
pub(crate) struct App {
    pub(crate) called: Arc<AtomicUsize>,
    /// Number of calls whose future or response body was dropped before its end.
    pub(crate) abandoned: Arc<AtomicUsize>,
    /// Number of chunks of `/endless` and `/made` that were read.
    pub(crate) taken: Arc<AtomicUsize>,
    /// Number of bodies of `/made` that were read to their end.
    pub(crate) completed: Arc<AtomicUsize>,
    /// Number of request body bytes that were read.
    pub(crate) read: Arc<AtomicUsize>,
    /// Releases the response of `/held`.
    pub(crate) release: Arc<Notify>,
    /// The observer of the last response.
    pub(crate) observer: Arc<Mutex<Option<Arc<dyn ResponseObserver>>>>,
}

#[derive(Debug, thiserror::Error)]
#[error("the answer was cut")]
pub(crate) struct Cut;

/// A body of known length, or one of chunks that arrive over time.
pub(crate) enum TestBody {
    Whole(Option<Bytes>),
    Chunks {
        chunks: mpsc::Receiver<Result<Bytes, Cut>>,
        _maker: JoinSet<()>,
    },
    Endless {
        taken: Arc<AtomicUsize>,
        _guard: Guard,
    },
    /// This many chunks, as fast as they are read.
    Made {
        next: usize,
        chunks: usize,
        app: App,
    },
}

/// The pieces of `/long`.
pub(crate) const PIECES: [&[u8]; 2] = [&[b'a'; 64 << 10], &[b'b'; 48 << 10]];

/// Returns a chunk of `/made`.
pub(crate) fn made(number: usize) -> Vec<u8> {
    format!("{number:016}").repeat(1024).into_bytes()
}

/// Counts as abandoned when dropped while armed.
pub(crate) struct Guard {
    armed: bool,
    abandoned: Arc<AtomicUsize>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.armed {
            self.abandoned.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Body for TestBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Chunks { chunks, .. } => {
                chunks.poll_recv(cx).map(|next| next.map(|chunk| chunk.map(Frame::data)))
            }
            Self::Endless { taken, .. } => {
                taken.fetch_add(1, Ordering::SeqCst);
                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 16 << 10])))))
            }
            Self::Made { next, chunks, app } => {
                if next == chunks {
                    app.completed.fetch_add(1, Ordering::SeqCst);
                    return Poll::Ready(None);
                }
                app.taken.fetch_add(1, Ordering::SeqCst);
                let chunk = made(*next);
                *next += 1;
                Poll::Ready(Some(Ok(Frame::data(chunk.into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            _ => SizeHint::default(),
        }
    }
}

fn whole(bytes: impl Into<Bytes>) -> Response<TestBody> {
    let mut response = Response::new(TestBody::Whole(Some(bytes.into())));
    response.headers_mut().insert("content-type", "text/html; charset=UTF-8".parse().unwrap());
    response
}

fn chunks(chunks: Vec<Result<&'static str, Cut>>, pause: Duration) -> TestBody {
    let (sender, receiver) = mpsc::channel(1);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        for chunk in chunks {
            if sender.send(chunk.map(Bytes::from)).await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    });
    TestBody::Chunks { chunks: receiver, _maker: tasks }
}

impl Application for App {
    type Body = TestBody;

    async fn call(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<TestBody>, DispatchError> {
        self.called.fetch_add(1, Ordering::SeqCst);
        let mut guard = Guard { armed: true, abandoned: Arc::clone(&self.abandoned) };
        let context =
            request.extensions().get::<RequestContext>().expect("the front gives it").clone();
        self.observer.lock().unwrap().clone_from(&context.observer);
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or("").to_owned();
        let number = self.called.load(Ordering::SeqCst);
        let outcome = match path.as_str() {
            path if path.starts_with("/made-to-order") => {
                made_to_order(self, request.headers().clone(), &context, number).await
            }
            "/describe" => Ok(whole(describe(&request, &context))),
            "/upload" => {
                let mut body = request.into_body();
                let mut length = 0;
                loop {
                    match body.frame().await {
                        None => break Ok(whole(format!("{length} bytes"))),
                        Some(Ok(frame)) => {
                            let data = frame.into_data().expect("trailers never come");
                            length += data.len();
                            self.read.fetch_add(data.len(), Ordering::SeqCst);
                        }
                        Some(Err(error)) => break Err(DispatchError::RequestBody(error.into())),
                    }
                }
            }
            "/hash" => {
                let body = request.into_body();
                let expected = body.size_hint().exact();
                match body.collect().await {
                    Ok(all) => Ok(whole(hash_of(expected, &all.to_bytes()))),
                    Err(error) => Err(DispatchError::RequestBody(error.into())),
                }
            }
            "/hint" => {
                if let Some(hints) = &context.hints {
                    let mut headers = HeaderMap::new();
                    headers.insert("link", "</app.css>; rel=preload; as=style".parse().unwrap());
                    headers.insert("connection", "close".parse().unwrap());
                    (hints.0)(StatusCode::EARLY_HINTS, &headers);
                }
                if query != "at-once" {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Ok(whole("after the hint"))
            }
            "/slow" => {
                tokio::time::sleep(Duration::from_millis(query.parse().unwrap_or(200))).await;
                Ok(whole("slow"))
            }
            "/held" => {
                self.release.notified().await;
                Ok(whole("held"))
            }
            "/hang" => std::future::pending().await,
            "/chunks" => Ok(Response::new(chunks(
                vec![Ok("one "), Ok("two "), Ok("three")],
                Duration::from_millis(5),
            ))),
            "/events" => {
                let body =
                    chunks(vec![Ok("data: 1\n\n"), Ok("data: 2\n\n")], Duration::from_millis(300));
                let mut response = Response::new(body);
                response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
                Ok(response)
            }
            "/cut" => {
                Ok(Response::new(chunks(vec![Ok("begin"), Err(Cut)], Duration::from_millis(5))))
            }
            // Two long pieces that are there at once, and the end, or `?cut`.
            "/long" => {
                let (sender, chunks) = mpsc::channel(3);
                let end = (query == "cut").then_some(Err(Cut));
                for piece in [Ok(PIECES[0].into()), Ok(PIECES[1].into())].into_iter().chain(end) {
                    sender.try_send(piece).unwrap();
                }
                Ok(Response::new(TestBody::Chunks { chunks, _maker: JoinSet::new() }))
            }
            "/endless" => {
                guard.armed = false;
                let guard = Guard { armed: true, abandoned: Arc::clone(&self.abandoned) };
                return Ok(Response::new(TestBody::Endless {
                    taken: Arc::clone(&self.taken),
                    _guard: guard,
                }));
            }
            "/made" => Ok(Response::new(TestBody::Made {
                next: 0,
                chunks: query.parse().unwrap(),
                app: self.clone(),
            })),
            // One chunk without an end.
            "/open" => {
                guard.armed = false;
                let (sender, receiver) = mpsc::channel(1);
                let guard = Guard { armed: true, abandoned: Arc::clone(&self.abandoned) };
                let mut tasks = JoinSet::new();
                tasks.spawn(async move {
                    let _guard = guard;
                    drop(sender.send(Ok(made(0).into())).await);
                    std::future::pending::<()>().await;
                });
                return Ok(Response::new(TestBody::Chunks { chunks: receiver, _maker: tasks }));
            }
            "/large" => Ok(whole("0123456789abcdef".repeat(4096))),
            "/short-of-length" => {
                let mut response = Response::new(chunks(vec![Ok("abc")], Duration::ZERO));
                response.headers_mut().insert("content-length", "10".parse().unwrap());
                Ok(response)
            }
            "/wrong-length" => {
                let mut response = whole("abc");
                response.headers_mut().insert("content-length", "10".parse().unwrap());
                Ok(response)
            }
            "/lengths" => {
                // STATUS,whole|stream,LENGTH[,LENGTH]: the announced length of a body of 5 bytes.
                let mut words = query.split(',');
                let status = words.next().expect("a status").as_bytes();
                let mut response = match words.next() {
                    Some("stream") => Response::new(chunks(vec![Ok("abcde")], Duration::ZERO)),
                    _ => whole("abcde"),
                };
                *response.status_mut() = StatusCode::from_bytes(status).unwrap();
                for said in words {
                    response.headers_mut().append("content-length", said.parse().unwrap());
                }
                Ok(response)
            }
            "/fields" => {
                let mut response = whole("fields");
                for (name, value) in [
                    ("connection", "close"),
                    ("transfer-encoding", "chunked"),
                    ("keep-alive", "timeout=5"),
                    ("set-cookie", "a=1"),
                    ("set-cookie", "b=2"),
                    ("server", "PHP"),
                ] {
                    response.headers_mut().append(name, value.parse().unwrap());
                }
                response.extensions_mut().insert(hyper::ext::ReasonPhrase::from_static(b"Fine"));
                Ok(response)
            }
            "/status" => {
                let mut response = whole("not for 204 and 304");
                *response.status_mut() = StatusCode::from_bytes(query.as_bytes()).unwrap();
                Ok(response)
            }
            "/file" => {
                let mut response = whole("");
                response.headers_mut().insert("x-sendfile", query.parse().unwrap());
                response.headers_mut().insert("content-type", "application/pdf".parse().unwrap());
                Ok(response)
            }
            "/no-transform" => {
                let mut response = whole("word ".repeat(1000));
                response.headers_mut().insert("cache-control", "no-transform".parse().unwrap());
                Ok(response)
            }
            "/words" => Ok(whole("word ".repeat(1000))),
            "/fails" => Err(match query.as_str() {
                "overloaded" => DispatchError::Overloaded { waited: Duration::from_secs(1) },
                "draining" => DispatchError::Draining,
                "died" => {
                    DispatchError::WorkerDied { pid: 7, how: "signal 11 at /srv/secret".to_owned() }
                }
                "late" => DispatchError::TimedOut { limit: Duration::from_secs(1) },
                _ => DispatchError::HeadTooLarge,
            }),
            _ => Ok(whole(format!("app {path}"))),
        };
        guard.armed = false;
        outcome
    }
}

/// Answers as the request's field `order` says: `hold`, `status=404`, `size=10`, `chunks`, `cut`, `fatal` and fields of the answer,
/// separated by `|`. The body has the number of the call.
async fn made_to_order(
    app: &App,
    headers: HeaderMap,
    context: &RequestContext,
    number: usize,
) -> Result<Response<TestBody>, DispatchError> {
    let order = headers.get("order").map(|order| order.to_str().unwrap()).unwrap_or_default();
    let mut response = whole(format!("call {number}"));
    for word in order.split('|').map(str::trim).filter(|word| !word.is_empty()) {
        match word.split_once('=') {
            _ if word == "hold" => app.release.notified().await,
            _ if word == "dies" => {
                return Err(DispatchError::WorkerDied { pid: 7, how: String::new() });
            }
            _ if word == "fatal" => {
                if let Some(observer) = &context.observer {
                    observer.failed();
                }
            }
            _ if word == "cut" => {
                *response.body_mut() = chunks(vec![Ok("begin"), Err(Cut)], Duration::ZERO);
            }
            _ if word == "chunks" => {
                *response.body_mut() = chunks(vec![Ok("one "), Ok("two")], Duration::ZERO);
            }
            Some(("status", status)) => {
                *response.status_mut() = StatusCode::from_bytes(status.as_bytes()).unwrap();
            }
            Some(("echo", name)) => {
                let value = headers.get(name).map(|value| value.as_bytes().to_vec());
                *response.body_mut() = TestBody::Whole(value.map(Into::into));
            }
            Some(("size", size)) => {
                *response.body_mut() =
                    TestBody::Whole(Some(vec![b'x'; size.parse().unwrap()].into()));
            }
            _ => {
                let (name, value) = word.split_once(':').expect("a field has a colon");
                let name = http::HeaderName::from_bytes(name.trim().as_bytes()).unwrap();
                response.headers_mut().append(name, value.trim().parse().unwrap());
            }
        }
    }
    let same = |name: &str, sent: &str| {
        let stored = response.headers().get(name);
        stored.is_some() && stored == headers.get(sent)
    };
    if same("etag", "if-none-match") || same("last-modified", "if-modified-since") {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = TestBody::Whole(None);
    }
    Ok(response)
}

/// Returns the response of `/hash` to a body with an expected length.
pub(crate) fn hash_of(expected: Option<u64>, body: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    format!("{} of {expected:?}, {:x}", body.len(), hasher.finish())
}

fn describe(request: &Request<RequestBody>, context: &RequestContext) -> String {
    let headers: Vec<(&str, &str)> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap_or("")))
        .collect();
    json!({
        "method": request.method().as_str(),
        "uri": request.uri().to_string(),
        "version": format!("{:?}", request.version()),
        "headers": headers,
        "script": &*context.script.name,
        "filename": &*context.script.filename,
        "path_info": &*context.script.path_info,
        "remote": context.remote.to_string(),
        "local_port": context.local.port(),
        "scheme": format!("{:?}", context.scheme),
        "server_name": &*context.server_name,
        "server_port": context.server_port,
        "id": &*context.id.0,
        "hints": context.hints.is_some(),
    })
    .to_string()
}

/// A running front.
pub(crate) struct Server {
    pub(crate) app: App,
    pub(crate) root: TempDir,
    pub(crate) bound: Vec<Bound>,
    pub(crate) access_log: Option<AccessLogFile>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) switch: Switch<App>,
    pub(crate) cache: Option<Arc<AnswerCache>>,
    stop: Option<oneshot::Sender<()>>,
    tasks: JoinSet<()>,
}

impl Server {
    /// Starts a front with a front controller and the defaults.
    pub(crate) async fn start() -> Self {
        Self::with(|_, _| {}).await
    }

    /// Starts a front with changed options; the folder is the document root.
    pub(crate) async fn with(change: impl FnOnce(&mut Options, &Path)) -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("index.php"), "<?php").unwrap();
        let mut options = Options::new(root.path());
        options.listen = vec![Listen::plain(Address::Tcp("127.0.0.1:0".to_owned()))];
        change(&mut options, root.path());
        let app = App::default();
        let front = Front::bind(options, app.clone()).await.unwrap();
        let (bound, access_log) = (front.addresses(), front.access_log());
        let connections = front.connections();
        let (switch, cache) = (front.switch(), front.cache());
        let (stop, stopped) = oneshot::channel::<()>();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            front
                .serve(async {
                    if stopped.await.is_err() {
                        std::future::pending::<()>().await;
                    }
                })
                .await;
        });
        Self { app, root, bound, access_log, connections, switch, cache, stop: Some(stop), tasks }
    }

    pub(crate) fn write(&self, path: &str, contents: impl AsRef<[u8]>) {
        let path = self.root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match &self.bound[0] {
            Bound::Tcp { address, .. } => *address,
            Bound::Unix { .. } => panic!("the first listener is a TCP one"),
        }
    }

    pub(crate) async fn connect(&self) -> Client<TcpStream> {
        Client::new(TcpStream::connect(self.address()).await.unwrap())
    }

    /// Sends one GET on its own connection.
    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n")).await
    }

    /// Sends one GET with additional header lines.
    pub(crate) async fn get_with(&self, path: &str, fields: &str) -> Reply {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n\r\n")).await
    }

    pub(crate) async fn ask(&self, request: &str) -> Reply {
        let mut client = self.connect().await;
        client.send(request).await;
        client.reply().await
    }

    /// Returns how often a limit on clients has applied.
    pub(crate) fn limited(&self, wanted: ClientLimit) -> u64 {
        let report = self.connections.report();
        report.limited.iter().find(|(limit, _)| *limit == wanted).unwrap().1
    }

    pub(crate) fn begin_stop(&mut self) {
        self.stop.take().expect("stopped once").send(()).expect("it runs");
    }

    /// Waits for the end after [`Self::begin_stop`].
    pub(crate) async fn ended(&mut self) {
        tokio::time::timeout(LONG, self.tasks.join_next())
            .await
            .expect("it ends")
            .unwrap()
            .unwrap();
    }
}

/// Sends one request on its own connection.
pub(crate) async fn ask_at(address: SocketAddr, request: &str) -> Reply {
    let mut client = Client::new(TcpStream::connect(address).await.unwrap());
    client.send(request).await;
    client.reply().await
}

/// Waits until a counter reaches a value.
pub(crate) async fn until(count: &AtomicUsize, wanted: usize) {
    let reached = async {
        while count.load(Ordering::SeqCst) < wanted {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LONG, reached).await.expect("the count gets there");
}

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let reached = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LONG, reached).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A client with a minimal HTTP/1.1 parser.
pub(crate) struct Client<S> {
    stream: S,
    buffer: Vec<u8>,
}

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Status line and fields as received.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// Returns a field's value; several are joined by `|`.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let values: Vec<&str> = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "))
            .filter(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .collect();
        (!values.is_empty()).then(|| values.join("|"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Sends what the server accepts; the server may close in the meantime.
    pub(crate) async fn send_if_taken(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).await.is_ok()
    }

    /// Returns whether the server has sent anything, or closed, within this time.
    pub(crate) async fn is_answered_within(&mut self, time: Duration) -> bool {
        let read = tokio::time::timeout(time, self.stream.read_buf(&mut self.buffer)).await;
        read.is_ok() || !self.buffer.is_empty()
    }

    /// Closes the sending side.
    pub(crate) async fn finish_sending(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    async fn fill(&mut self) -> usize {
        tokio::time::timeout(LONG, self.stream.read_buf(&mut self.buffer))
            .await
            .expect("the server says something or closes")
            .unwrap_or(0)
    }

    /// Returns the next head, including interim ones.
    pub(crate) async fn head(&mut self) -> Reply {
        let end = loop {
            if let Some(end) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            assert!(
                self.fill().await > 0,
                "closed after {:?}",
                String::from_utf8_lossy(&self.buffer)
            );
        };
        let head = String::from_utf8(self.buffer.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head, body: Vec::new() }
    }

    /// Returns the next response with its body, as to a GET.
    pub(crate) async fn reply(&mut self) -> Reply {
        let mut reply = self.head().await;
        if reply.status < 200 || reply.status == 204 || reply.status == 304 {
            return reply;
        }
        if let Some(length) = reply.field("content-length") {
            let length: usize = length.parse().unwrap();
            while self.buffer.len() < length {
                assert!(self.fill().await > 0, "closed within a body");
            }
            reply.body = self.buffer.drain(..length).collect();
        } else if reply.field("transfer-encoding").is_some() {
            while let Some(chunk) = self.chunk().await {
                reply.body.extend(chunk);
            }
        } else {
            reply.body = self.rest().await;
        }
        reply
    }

    /// Returns the next chunk; `None` for the last.
    pub(crate) async fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = loop {
            if let Some(end) = self.buffer.windows(2).position(|window| window == b"\r\n") {
                break String::from_utf8(self.buffer.drain(..end + 2).collect()).unwrap();
            }
            assert!(self.fill().await > 0, "closed within chunks");
        };
        let length = usize::from_str_radix(line.trim(), 16).unwrap();
        while self.buffer.len() < length + 2 {
            assert!(self.fill().await > 0, "closed within a chunk");
        }
        let chunk: Vec<u8> = self.buffer.drain(..length).collect();
        self.buffer.drain(..2);
        (length > 0).then_some(chunk)
    }

    /// Returns everything until the server closes.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        while self.fill().await > 0 {}
        std::mem::take(&mut self.buffer)
    }
}
