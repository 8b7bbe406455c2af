//! Publishes through the HTTP API of a Pusher server: signed `POST /apps/ID/events` over one connection that stays open.
//!
//! Invariants
//! - One request at a time; the answer is read to its end before the next one goes out.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

use crate::clock;
use crate::sign::App;

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// An answer to a published event is a few bytes.
const ANSWER: u64 = 1 << 20;

/// A connection for publishing.
#[derive(Debug)]
pub(crate) struct Publisher {
    app: App,
    address: SocketAddrV4,
    stream: BufReader<TcpStream>,
}

impl Publisher {
    pub(crate) fn connect(address: SocketAddrV4, app: App) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { app, address, stream: BufReader::new(stream) })
    }

    /// Publishes `data`, text that needs only quotes and backslashes escaped; returns the status.
    pub(crate) fn publish(&mut self, channel: &str, data: &str) -> io::Result<u16> {
        let data = data.replace('\\', r"\\").replace('"', r#"\""#);
        let body = format!(r#"{{"name":"load","channels":["{channel}"],"data":"{data}"}}"#);
        let path = format!("/apps/{}/events", self.app.id);
        let path = self.app.request("POST", &path, body.as_bytes(), clock::epoch_seconds());
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<u16> {
        let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let status = self.line()?;
        let status = status.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| wrong("no status line"))?;
        let (mut length, mut chunked, mut closes) = (None, false, false);
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) =
                line.split_once(':').ok_or_else(|| wrong("a header without a colon"))?;
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().ok(),
                "transfer-encoding" => chunked = value.trim().eq_ignore_ascii_case("chunked"),
                "connection" => closes = value.trim().eq_ignore_ascii_case("close"),
                _ => {}
            }
        }
        if chunked {
            loop {
                let size = u64::from_str_radix(&self.line()?, 16);
                let size =
                    size.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                self.skip(size)?;
                if !self.line()?.is_empty() {
                    return Err(wrong("a chunk that does not end with its line"));
                }
                if size == 0 {
                    break;
                }
            }
        } else {
            self.skip(length.ok_or_else(|| wrong("an answer without a length"))?)?;
        }
        if closes {
            *self = Self::connect(self.address, self.app.clone())?;
        }
        Ok(status)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        (&mut self.stream).take(ANSWER).read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn skip(&mut self, length: u64) -> io::Result<()> {
        let skipped = io::copy(&mut (&mut self.stream).take(length.min(ANSWER)), &mut io::sink())?;
        if skipped == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::thread;

    use super::*;

    /// A server that answers each of the requests on one connection with the next of `answers`; returns what it was asked.
    fn serve(answers: &'static [&'static str]) -> (SocketAddrV4, thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(address) = listener.local_addr().unwrap() else { unreachable!() };
        let server = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut stream = BufReader::new(stream);
            let mut asked = Vec::new();
            for answer in answers {
                let (mut request, mut length) = (String::new(), 0);
                loop {
                    let start = request.len();
                    stream.read_line(&mut request).unwrap();
                    let line = request.split_at(start).1;
                    if let Some(value) = line.strip_prefix("Content-Length: ") {
                        length = value.trim().parse().unwrap();
                    }
                    if line == "\r\n" {
                        break;
                    }
                }
                let mut body = vec![0; length];
                stream.read_exact(&mut body).unwrap();
                request.push_str(&String::from_utf8(body).unwrap());
                asked.push(request);
                stream.get_mut().write_all(answer.as_bytes()).unwrap();
            }
            asked
        });
        (address, server)
    }

    #[test]
    fn events_go_out_signed_over_one_connection_whatever_the_answers_look_like() {
        let (address, server) = serve(&[
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            "HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n",
        ]);
        let app = App::parse("7:key:secret").unwrap();
        let mut publisher = Publisher::connect(address, app).unwrap();

        let statuses: Vec<u16> =
            (0..3).map(|_| publisher.publish("news", r#"{"a":"b\c"}"#).unwrap()).collect();

        assert_eq!(statuses, [200, 200, 413]);
        let asked = server.join().unwrap();
        assert_eq!(asked.len(), 3);
        assert!(asked[0].starts_with("POST /apps/7/events?auth_key=key&auth_timestamp="));
        assert!(
            asked[0].ends_with(r#"{"name":"load","channels":["news"],"data":"{\"a\":\"b\\c\"}"}"#)
        );
    }

    #[test]
    fn an_answer_that_breaks_off_is_an_error() {
        let (address, _server) = serve(&["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"]);
        let app = App::parse("7:key:secret").unwrap();

        let published = Publisher::connect(address, app).unwrap().publish("news", "x");

        assert!(published.is_err());
    }
}
