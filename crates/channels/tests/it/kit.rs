//! A hub with one application, and a client of another implementation.

use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use channels::hub::{self, Address, Hub, Listen, Options};
use channels::{
    App, AppRef, Apps, Author, ChannelName, Channels, FixedApps, Found, Limits, NoObserver,
    Publication, Rights, Secret,
};
use serde_json::Value;
use tungstenite::{Message, WebSocket};

/// Longer than any step takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn app() -> App {
    App {
        id: "1".into(),
        key: "key".into(),
        secret: Secret::new("secret"),
        rights: Rights::default(),
        limits: Limits::default(),
        history: None,
    }
}

/// A hub that listens on its own port.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) hub: Hub,
    pub(crate) channels: Channels,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(app(), |_| {})
    }

    pub(crate) fn with(app: App, set: impl FnOnce(&mut Options)) -> Self {
        Self::of(Arc::new(FixedApps::new([app])), set)
    }

    pub(crate) fn of(apps: Arc<dyn Apps>, set: impl FnOnce(&mut Options)) -> Self {
        let channels = Channels::new(apps, Arc::new(NoObserver));
        let mut options = Options {
            event_loops: NonZeroUsize::new(2).unwrap(),
            listen: vec![Listen {
                address: Address::Tcp("127.0.0.1:0".parse().unwrap()),
                secure: false,
            }],
            ..Options::default()
        };
        set(&mut options);
        let hub = Hub::start(options, &channels).unwrap();
        let address = hub
            .addresses()
            .first()
            .copied()
            .flatten()
            .unwrap_or_else(|| "127.0.0.1:1".parse().unwrap());
        Self { hub, channels, address }
    }

    pub(crate) fn publish(&self, channel: &str, data: &str) {
        publish(&self.channels, channel, data);
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address, "/app/key?protocol=7")
    }

    /// Connects a subscribed client.
    pub(crate) fn subscriber(&self, channel: &str) -> Client {
        let mut client = self.connect();
        client.subscribe(channel);
        client
    }
}

pub(crate) fn publish(channels: &Channels, channel: &str, data: &str) {
    let Found::App(app) = channels.apps().find(AppRef::Key("key")) else {
        panic!("the application is known")
    };
    let data = Value::from(data).to_string();
    let publication = Publication {
        channel: &ChannelName::new(channel, 164).unwrap(),
        event: "event",
        data: &data,
        author: Author::Server { except: None },
    };
    channels.registry().publish(&app, &publication, hub::now()).unwrap();
}

/// A client that waits for messages.
#[derive(Debug)]
pub(crate) struct Client<S: Read + Write + Debug = TcpStream> {
    pub(crate) socket: WebSocket<S>,
}

/// The way a connection ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With a close frame.
    Closed(u16),
    /// Without a close frame.
    Cut,
}

pub(crate) fn tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

impl Client {
    /// Connects and reads the greeting.
    pub(crate) fn connect(address: SocketAddr, target: &str) -> Self {
        let mut client = Self::upgrade(tcp(address), target);
        client.greeted();
        client
    }
}

impl<S: Read + Write + Debug> Client<S> {
    pub(crate) fn upgrade(stream: S, target: &str) -> Self {
        let (socket, _) = tungstenite::client(format!("ws://localhost{target}"), stream).unwrap();
        Self { socket }
    }

    pub(crate) fn greeted(&mut self) {
        let hello = self.event();
        assert_eq!(hello["event"], "pusher:connection_established");
        let data: Value = serde_json::from_str(hello["data"].as_str().unwrap()).unwrap();
        assert!(data["socket_id"].as_str().unwrap().contains('.'), "{data}");
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.socket.send(Message::text(text)).unwrap();
    }

    pub(crate) fn subscribe(&mut self, channel: &str) {
        self.say(&format!(r#"{{"event":"pusher:subscribe","data":{{"channel":"{channel}"}}}}"#));
        let answer = self.event();
        assert_eq!(answer["event"], "pusher_internal:subscription_succeeded", "{answer}");
        assert_eq!(answer["channel"], channel);
    }

    /// Returns the next text message.
    pub(crate) fn event(&mut self) -> Value {
        loop {
            match self.socket.read().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("no event but {other:?}"),
            }
        }
    }

    /// Returns the data of the next event, which the application must have published.
    pub(crate) fn data(&mut self) -> String {
        let event = self.event();
        assert_eq!(event["event"], "event", "{event}");
        event["data"].as_str().unwrap().to_owned()
    }

    /// Returns all messages until the end, and how the connection ended.
    pub(crate) fn rest(&mut self) -> (Vec<Value>, End) {
        let mut events = Vec::new();
        let mut end = End::Cut;
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => events.push(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(frame)) => {
                    end = End::Closed(frame.map_or(1005, |frame| frame.code.into()));
                }
                Ok(_) => {}
                Err(tungstenite::Error::Io(error))
                    if error.kind() == std::io::ErrorKind::WouldBlock =>
                {
                    panic!("it did not end: {error}")
                }
                Err(_) => return (events, end),
            }
        }
    }
}

/// Returns a WebSocket request as bytes.
pub(crate) fn request(target: &str, more: &str) -> String {
    format!(
        "GET {target} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{more}\r\n"
    )
}

/// Returns a client frame with a mask of zeroes.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    if let Ok(length @ 0..126) = u8::try_from(payload.len()) {
        frame.push(0x80 | length);
    } else {
        frame.push(0xfe);
        frame.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

/// Reads a response head up to and including the empty line.
pub(crate) fn head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap() == 0 {
            break;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// Reads one server frame: its first byte and its payload.
pub(crate) fn server_frame(stream: &mut impl Read) -> (u8, Vec<u8>) {
    let mut start = [0; 2];
    stream.read_exact(&mut start).unwrap();
    let length = match start[1] {
        126 => {
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            usize::from(u16::from_be_bytes(length))
        }
        127 => {
            let mut length = [0; 8];
            stream.read_exact(&mut length).unwrap();
            usize::try_from(u64::from_be_bytes(length)).unwrap()
        }
        length => usize::from(length),
    };
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).unwrap();
    (start[0], payload)
}
