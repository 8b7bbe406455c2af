//! WebSockets that the application handles: events reach PHP as requests, and PHP sends messages from any process.

mod limits;
mod lives;

use std::net::TcpStream;

use tungstenite::client::IntoClientRequest as _;
use tungstenite::error::Error;
use tungstenite::{Message, WebSocket};

use crate::hearth::{Hearth, LIMIT, Serve, Site, every_model};

/// Answers events by what the message says.
const HANDLER: &str = include_str!("../../../../tests/php/websocket.php");

/// A client of an application's WebSocket.
#[derive(Debug)]
struct Client(WebSocket<TcpStream>);

impl Client {
    fn open(hearth: &Hearth, target: &str) -> Self {
        Self::open_with(hearth, target, &[]).unwrap_or_else(|status| panic!("status {status}")).0
    }

    /// Opens a WebSocket. Returns it with the header of the answer, or the status of a refusal.
    fn open_with(
        hearth: &Hearth,
        target: &str,
        fields: &[(&'static str, &str)],
    ) -> Result<(Self, http::HeaderMap), u16> {
        let stream = TcpStream::connect(hearth.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        // A message waits for no acknowledgement of the one before.
        stream.set_nodelay(true).unwrap();
        let url = format!("ws://{}{target}", hearth.address);
        let mut request = url.into_client_request().unwrap();
        for (name, value) in fields {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        match tungstenite::client(request, stream) {
            Ok((socket, answer)) => Ok((Self(socket), answer.headers().clone())),
            Err(tungstenite::HandshakeError::Failure(Error::Http(answer))) => {
                Err(answer.status().as_u16())
            }
            Err(error) => panic!("no answer to the handshake: {error}"),
        }
    }

    fn send(&mut self, text: &str) {
        self.0.send(Message::text(text)).unwrap();
    }

    /// Returns the next message, as text.
    fn next(&mut self) -> String {
        loop {
            match self.0.read().unwrap() {
                Message::Text(text) => return text.to_string(),
                Message::Binary(bytes) => return format!("binary {bytes:?}"),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?} is no message"),
            }
        }
    }

    fn ask(&mut self, text: &str) -> String {
        self.send(text);
        self.next()
    }

    /// Returns the code and the reason with which the server closes the connection.
    fn closed(&mut self) -> (u16, String) {
        loop {
            match self.0.read().unwrap() {
                Message::Close(Some(frame)) => {
                    return (frame.code.into(), frame.reason.to_string());
                }
                Message::Close(None) => panic!("closed without a code"),
                _ => {}
            }
        }
    }
}

/// A site whose handler writes each event to `events`.
fn site() -> Site {
    Site::empty()
        .with_file("public/index.php", "<?php http_response_code(404);")
        .with_file("public/chat.php", HANDLER)
        .with_file(
            "worker.php",
            "<?php while (hearth_handle_request(function () {\n\
             $path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);\n\
             require __DIR__ . '/public' . ($path === '/chat.php' ? $path : '/index.php'); })) { }",
        )
}

fn serve(site: &Site, model: &str) -> Serve {
    let path = site.served_in(model, "worker.php");
    let serve = Serve::new(path).args(&["--model", model, "--websocket", "/chat=/chat.php"]);
    if is_foreign(model) { serve.ini("extension", &extension()) } else { serve }
}

/// The extension, with which PHP's own programs have the functions that send.
fn extension() -> String {
    let name = format!("hearth-{}.so", crate::hearth::php_version());
    crate::hearth::worker_folder().join(name).display().to_string()
}

fn is_foreign(model: &str) -> bool {
    pool::Model::ALL.iter().any(|one| one.name() == model && one.is_foreign())
}

#[test]
fn connect_message_and_close_are_requests_in_every_model() {
    for model in every_model() {
        let site = site();
        let hearth = serve(&site, model).workers(1).start();
        let (mut client, answer) = Client::open_with(
            &hearth,
            "/chat?name=ann",
            &[("sec-websocket-protocol", "old, talk"), ("cookie", "session=7"), ("x-test", "1")],
        )
        .unwrap();
        assert_eq!(answer["sec-websocket-protocol"], "talk", "{model}");
        assert_eq!(answer["x-from-php"], "yes", "{model}");
        assert!(answer.get("content-type").is_none(), "{model}");
        // The upgrade's query, cookies and fields are there with every message.
        assert_eq!(client.ask("who"), "message POST /chat.php?name=ann ann 7 1 talk 0", "{model}");
        client.0.send(Message::binary(vec![0xff, 0])).unwrap();
        assert_eq!(client.next(), "binary b\"\\xff\\0\"", "{model}");
        // A message without an answer, then one that PHP sends itself.
        client.send("nothing");
        assert_eq!(client.ask("push twice"), "pushed 1", "{model}");
        assert_eq!(client.next(), "pushed 2", "{model}");
        assert_eq!(client.next(), "true", "{model}");
        client
            .0
            .close(Some(tungstenite::protocol::CloseFrame {
                code: 3001.into(),
                reason: "bye".into(),
            }))
            .unwrap();
        assert_eq!(client.closed(), (3001, String::new()), "{model}");
        let events = lives::events(&site, "close");
        assert_eq!(events.last().unwrap(), "close 3001 bye", "{model}");
        assert_eq!(events.len(), 6, "{model}: {events:?}");
    }
}

#[test]
fn the_application_refuses_with_its_own_status_and_foreign_pages_are_refused_before() {
    let site = site();
    let hearth = serve(&site, "request").workers(1).start();
    assert_eq!(Client::open_with(&hearth, "/chat?refuse=401", &[]).unwrap_err(), 401);
    assert_eq!(Client::open_with(&hearth, "/chat?refuse=302", &[]).unwrap_err(), 302);
    let origin = |origin| Client::open_with(&hearth, "/chat", &[("origin", origin)]).map(|_| ());
    assert_eq!(origin("https://evil.example"), Err(403));
    assert_eq!(origin("null"), Err(403));
    assert_eq!(origin(&format!("http://{}", hearth.address)), Ok(()));
    // Without an upgrade the path is one like any other.
    assert_eq!(hearth.get("/chat").status, 404);
}
