//! A client for HTTP/1.1 that hides nothing: what is sent is written byte by byte, what comes is kept as it came.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

/// An answer, its field names and order as they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The status line without its end.
    pub status_line: String,
    /// The status.
    pub status: u16,
    /// Header fields.
    pub fields: Vec<(String, String)>,
    /// The body, chunks joined.
    pub body: Vec<u8>,
}

impl Answer {
    /// The values of a field, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.fields
            .iter()
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// The value of a field that comes once at most.
    pub fn field(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() < 2, "{name} came more than once: {all:?}");
        all.first().copied()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {self:?}: {}", self.text()))
    }
}

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.set_write_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self { stream, received: Vec::new() })
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// GET, and the whole answer.
    pub fn get(&mut self, target: &str) -> Result<Answer> {
        self.request("GET", target, &[], b"")
    }

    /// One request, and the whole answer. A body brings its `Content-Length`.
    pub fn request(
        &mut self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer> {
        self.send(head(method, target, fields, body.len()))?;
        self.send(body)?;
        self.answer_to(method)
    }

    /// The final answer to a request that was sent; answers of 1xx before it are skipped.
    pub fn answer_to(&mut self, method: &str) -> Result<Answer> {
        loop {
            let mut answer = self.head()?;
            if answer.status >= 200 {
                self.body(&mut answer, method)?;
                return Ok(answer);
            }
        }
    }

    /// The head of the next answer, an interim one included.
    pub fn head(&mut self) -> Result<Answer> {
        let end = loop {
            if let Some(at) = self.received.windows(4).position(|four| four == b"\r\n\r\n") {
                break at;
            }
            self.more()?;
        };
        let head: Vec<u8> = self.received.drain(..end + 4).take(end).collect();
        let head = String::from_utf8(head).map_err(Error::other)?;
        let mut lines = head.split("\r\n");
        let status_line = lines.next().unwrap_or_default().to_owned();
        let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| Error::other(format!("no status in {status_line:?}")))?;
        let fields = lines.map(|line| {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            (name.to_owned(), value.trim().to_owned())
        });
        Ok(Answer { status, fields: fields.collect(), status_line, body: Vec::new() })
    }

    fn body(&mut self, answer: &mut Answer, method: &str) -> Result<()> {
        if method == "HEAD" || matches!(answer.status, 204 | 304) {
            return Ok(());
        }
        if answer.field("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk()? {
                answer.body.extend(chunk);
            }
        } else if let Some(length) = answer.field("content-length") {
            let length: usize = length.parse().map_err(Error::other)?;
            while self.received.len() < length {
                self.more()?;
            }
            answer.body = self.received.drain(..length).collect();
        } else {
            while self.more().is_ok() {}
            answer.body = std::mem::take(&mut self.received);
        }
        Ok(())
    }

    /// The next chunk of a chunked body; `None` after the last.
    pub fn chunk(&mut self) -> Result<Option<Vec<u8>>> {
        let end = loop {
            if let Some(at) = self.received.windows(2).position(|two| two == b"\r\n") {
                break at;
            }
            self.more()?;
        };
        let line = String::from_utf8_lossy(&self.received[..end]).into_owned();
        let length = usize::from_str_radix(&line, 16).map_err(Error::other)?;
        let whole = end + 2 + length + 2;
        while self.received.len() < whole {
            self.more()?;
        }
        let chunk: Vec<u8> = self.received.drain(..whole).skip(end + 2).take(length).collect();
        Ok((length > 0).then_some(chunk))
    }

    /// Waits for more bytes.
    fn more(&mut self) -> Result<()> {
        let mut buffer = [0; 16_384];
        // A socket with a time limit is not read on by the kernel after a signal (signal(7)).
        let got = loop {
            match self.stream.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        match got {
            0 => Err(Error::new(
                ErrorKind::UnexpectedEof,
                format!("closed after {:?}", String::from_utf8_lossy(&self.received)),
            )),
            got => {
                self.received.extend_from_slice(&buffer[..got]);
                Ok(())
            }
        }
    }

    /// Whether the server closes the connection without another byte.
    pub fn is_closed(&mut self) -> bool {
        self.received.is_empty()
            && matches!(self.more(), Err(error) if error.kind() != ErrorKind::WouldBlock)
    }

    /// How long to wait for bytes, and for the server to take some.
    pub fn set_timeout(&self, limit: Duration) {
        self.stream.set_read_timeout(Some(limit)).expect("a positive time is accepted");
        self.stream.set_write_timeout(Some(limit)).expect("a positive time is accepted");
    }

    /// Says that nothing more will be sent.
    pub fn finish_sending(&self) -> Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }
}

/// A request head. `length`: of the body; 0 sends no `Content-Length`. `Host` comes from `fields`, else it is `example.org`.
pub fn head(method: &str, target: &str, fields: &[(&str, &str)], length: usize) -> String {
    let mut head = format!("{method} {target} HTTP/1.1\r\n");
    if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head.push_str("Host: example.org\r\n");
    }
    for (name, value) in fields {
        head.push_str(name);
        head.push_str(": ");
        head.push_str(value);
        head.push_str("\r\n");
    }
    if length > 0 {
        head.push_str("Content-Length: ");
        head.push_str(&length.to_string());
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    head
}
