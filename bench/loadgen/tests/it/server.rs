//! The part of a Pusher server that the generator needs, with a thread for each connection. It deliberately loses every
//! n-th client event.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

#[derive(Debug)]
pub(crate) struct Server(SocketAddr);

/// Subscribers by channel: the number of each connection and where to write.
type Channels = Arc<Mutex<State>>;

#[derive(Default)]
struct State {
    subscribers: HashMap<String, Vec<(usize, TcpStream)>>,
    events: usize,
    lose: usize,
}

impl Server {
    /// `lose`: every n-th client event reaches no client; 0: all arrive.
    pub(crate) fn start(lose: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let channels = Arc::new(Mutex::new(State { lose, ..State::default() }));
        thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let channels = Arc::clone(&channels);
                // A client that goes away ends its thread, whatever it was doing.
                thread::spawn(move || serve(number, stream, &channels));
            }
        });
        Self(address)
    }

    pub(crate) fn address(&self) -> String {
        self.0.to_string()
    }
}

fn serve(number: usize, stream: TcpStream, channels: &Channels) -> std::io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        if head.starts_with("GET /app/key?") {
            break;
        }
        let length =
            head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
        let Some(length) = length else {
            return writer.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        };
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let event: Value = serde_json::from_slice(&body).expect("the generator publishes JSON");
        let channel = event["channels"][0].as_str().expect("a channel");
        deliver(
            channels,
            channel,
            usize::MAX,
            &json!({"event": event["name"], "channel": channel, "data": event["data"]}),
        );
        writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")?;
    }
    writer.write_all(b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")?;
    let data = json!({"socket_id": format!("1.{number}"), "activity_timeout": 30}).to_string();
    writer.write_all(&frame(&json!({"event": "pusher:connection_established", "data": data})))?;
    while let Some(message) = message(&mut reader)? {
        let name = message["event"].as_str().expect("a name");
        if name == "pusher:subscribe" {
            let channel = message["data"]["channel"].as_str().expect("a channel").to_owned();
            let confirmed = json!({"event": "pusher_internal:subscription_succeeded", "channel": channel, "data": "{}"});
            let mut state = channels.lock().expect("no thread panics");
            writer.write_all(&frame(&confirmed))?;
            state.subscribers.entry(channel).or_default().push((number, writer.try_clone()?));
        } else if name.starts_with("client-") {
            let lost = {
                let mut state = channels.lock().expect("no thread panics");
                state.events += 1;
                state.lose > 0 && state.events.is_multiple_of(state.lose)
            };
            if !lost {
                deliver(
                    channels,
                    message["channel"].as_str().expect("a channel"),
                    number,
                    &message,
                );
            }
        }
    }
    Ok(())
}

fn deliver(channels: &Channels, channel: &str, from: usize, message: &Value) {
    let bytes = frame(message);
    let mut state = channels.lock().expect("no thread panics");
    for (number, stream) in state.subscribers.entry(channel.to_owned()).or_default() {
        if *number != from {
            // Whoever has gone hears nothing.
            let _gone = stream.write_all(&bytes);
        }
    }
}

fn frame(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    let mut frame = vec![0x81];
    match u8::try_from(text.len()) {
        Ok(length) if length < 126 => frame.push(length),
        _ => {
            frame.push(126);
            frame.extend(u16::try_from(text.len()).expect("short messages").to_be_bytes());
        }
    }
    frame.extend(text.bytes());
    frame
}

/// The next text of a client; none when it says goodbye.
fn message(reader: &mut impl Read) -> std::io::Result<Option<Value>> {
    let mut head = [0; 2];
    reader.read_exact(&mut head)?;
    let length = match head[1] & 0x7f {
        126 => {
            let mut length = [0; 2];
            reader.read_exact(&mut length)?;
            usize::from(u16::from_be_bytes(length))
        }
        length => usize::from(length),
    };
    let mut mask = [0; 4];
    reader.read_exact(&mut mask)?;
    let mut payload = vec![0; length];
    reader.read_exact(&mut payload)?;
    let payload: Vec<u8> = payload.iter().zip(mask.iter().cycle()).map(|(b, m)| b ^ m).collect();
    if head[0] & 0x0f == 8 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&payload).expect("the generator speaks JSON")))
}
