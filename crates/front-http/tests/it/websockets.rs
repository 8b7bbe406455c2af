//! Tests WebSockets that the application handles, with clients that leave or do not read.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use front_http::{
    Address, Application, Bound, Front, Listen, Options, RequestBody, WebSocketRoute,
};
use http::{Request, Response};
use http_body_util::Full;
use pool::{DispatchError, RequestContext};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::{LONG, eventually};

/// An application that records events, and answers `connect` once it is released.
#[derive(Clone)]
struct App {
    events: Arc<Mutex<Vec<String>>>,
    connects: Arc<Semaphore>,
}

impl Application for App {
    type Body = Full<Bytes>;

    async fn call(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Full<Bytes>>, DispatchError> {
        let context = request.extensions().get::<RequestContext>().expect("the front gives it");
        let variable = |name: &str| {
            let found = context.variables.iter().find(|(known, _)| *known == name);
            found.map_or_else(String::new, |(_, value)| String::from_utf8_lossy(value).into_owned())
        };
        let event = variable("HEARTH_SOCKET_EVENT");
        let code = variable("HEARTH_SOCKET_CODE");
        self.events.lock().unwrap().push(format!("{event} {code}").trim().to_owned());
        if event == "connect" {
            self.connects.acquire().await.unwrap().forget();
        }
        Ok(Response::new(Full::default()))
    }
}

/// A front with the route `/chat`, whose application accepts this many connections at once.
struct Server {
    app: App,
    bound: Bound,
    _root: TempDir,
    _tasks: JoinSet<()>,
}

impl Server {
    async fn accepting(connects: usize) -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("index.php"), "<?php").unwrap();
        let mut options = Options::new(root.path());
        options.listen = vec![Listen::plain(Address::Tcp("127.0.0.1:0".to_owned()))];
        options.websockets.routes = vec![WebSocketRoute::new("/chat", None).unwrap()];
        let connects = Arc::new(Semaphore::new(connects));
        let app = App { events: Arc::default(), connects };
        let front = Front::bind(options, app.clone()).await.unwrap();
        let bound = front.addresses().remove(0);
        let mut tasks = JoinSet::new();
        tasks.spawn(front.serve(std::future::pending()));
        Self { app, bound, _root: root, _tasks: tasks }
    }

    /// Sends the request for a WebSocket.
    async fn upgrade(&self) -> TcpStream {
        let Bound::Tcp { address, .. } = self.bound else { panic!("it listens on TCP") };
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = "GET /chat HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\n\
            Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn until_events(&self, wanted: &[&str]) {
        eventually(&format!("the events are {wanted:?}"), || {
            *self.app.events.lock().unwrap() == wanted
        })
        .await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_during_an_accepted_connect_is_reported_as_closed() {
    let server = Server::accepting(0).await;
    let client = server.upgrade().await;
    server.until_events(&["connect"]).await;
    // A reset, which the server notices at once.
    client.set_zero_linger().unwrap();
    drop(client);
    // If the server had not noticed it by now, it would notice when it sends the 101.
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.app.connects.add_permits(1);
    server.until_events(&["connect", "close 1006"]).await;
}

#[tokio::test]
async fn pings_of_a_client_that_does_not_read_are_not_all_answered_but_the_last_one_is() {
    const PINGS: u32 = 200_000;
    let server = Server::accepting(1).await;
    let mut stream = server.upgrade().await;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(LONG, stream.read_u8()).await.expect("it is accepted").unwrap());
    }
    // More than the buffers of both sockets hold, each with its number, masked with zeros.
    let mut pings = Vec::new();
    for number in 0..PINGS {
        pings.extend([0x89, 0xfd, 0, 0, 0, 0]);
        pings.extend(number.to_be_bytes());
        pings.extend([b'x'; 121]);
    }
    timeout(LONG, stream.write_all(&pings)).await.expect("the server reads on").unwrap();
    let mut pongs = 0;
    let mut pong = [0; 127];
    loop {
        timeout(LONG, stream.read_exact(&mut pong)).await.expect("the last is answered").unwrap();
        assert_eq!(pong[..2], [0x8a, 125]);
        pongs += 1;
        if pong[2..6] == (PINGS - 1).to_be_bytes() {
            break;
        }
    }
    assert!(pongs < PINGS, "all were queued");
}
