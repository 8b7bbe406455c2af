//! An HTTP/1.1 client that shows every byte: requests are written byte by byte, responses are kept unchanged.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::BytesMut;
use http::Method;
use http1::{
    Decoder, Framing, HeadLimits, Piece, ResponseHead, ResponseReader, lenient_field, put_field,
    put_request_line,
};

/// Limits for the head of a response.
const HEAD: HeadLimits = HeadLimits { bytes: 4 << 20, fields: 5000 };

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    received: BytesMut,
    /// Reads the chunks of the current body one by one.
    chunks: Decoder,
}

/// A response. Names and order of its fields are unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The status line without its line end.
    pub status_line: String,
    /// The status.
    pub status: u16,
    /// Header fields.
    pub fields: Vec<(String, String)>,
    /// The body; chunks are joined.
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns the values of a field, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.fields
            .iter()
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// Returns the value of a field that occurs at most once.
    pub fn field(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() < 2, "{name} came more than once: {all:?}");
        all.first().copied()
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON.
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
        stream.set_read_timeout(Some(Duration::from_secs(90)))?;
        stream.set_write_timeout(Some(Duration::from_secs(90)))?;
        Ok(Self { stream, received: BytesMut::new(), chunks: Decoder::over() })
    }

    /// Sends bytes unchanged.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Sends a GET, and returns the whole response.
    pub fn get(&mut self, target: &str) -> Result<Answer> {
        self.request("GET", target, &[], b"")
    }

    /// Sends a request, and returns the whole response. A body gets a `Content-Length`.
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

    /// Reads the final response to a sent request; interim responses (1xx) are skipped.
    pub fn answer_to(&mut self, method: &str) -> Result<Answer> {
        loop {
            let (mut answer, head) = self.read_head()?;
            if answer.status >= 200 {
                answer.body = self.body(&head, method)?;
                return Ok(answer);
            }
        }
    }

    /// Reads the head of the next response, which may be an interim one.
    pub fn head(&mut self) -> Result<Answer> {
        Ok(self.read_head()?.0)
    }

    fn read_head(&mut self) -> Result<(Answer, ResponseHead)> {
        let mut reader = ResponseReader::new(HEAD);
        let head = loop {
            if let Some(head) = reader.read(&mut self.received).map_err(Error::other)? {
                break head;
            }
            self.more()?;
        };
        let text = String::from_utf8(head.written.to_vec()).map_err(Error::other)?;
        let text = text.strip_suffix("\r\n\r\n").ok_or_else(|| Error::other("a bare LF"))?;
        let mut lines = text.split("\r\n");
        let status_line = lines.next().unwrap_or_default().to_owned();
        let fields = lines.map(|line| {
            let (name, value) = lenient_field(line.as_bytes()).unwrap_or((line.as_bytes(), b""));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (text(name), text(value))
        });
        let (status, fields) = (head.status.as_u16(), fields.collect());
        self.chunks = Decoder::new(Framing::Chunked);
        Ok((Answer { status, fields, status_line, body: Vec::new() }, head))
    }

    fn body(&mut self, head: &ResponseHead, method: &str) -> Result<Vec<u8>> {
        let method = if method == "HEAD" { Method::HEAD } else { Method::GET };
        let mut decoder = Decoder::new(head.framing(&method).map_err(Error::other)?);
        let mut body = Vec::new();
        loop {
            match decoder.take(&mut self.received).map_err(Error::other)? {
                Piece::Data(data) => body.extend_from_slice(&data),
                Piece::Trailers(_) | Piece::End => return Ok(body),
                Piece::More => {
                    let more = self.more();
                    if more.is_err() && !decoder.end() {
                        more?;
                    }
                }
            }
        }
    }

    /// Reads the next chunk of a chunked body; `None` after the last.
    pub fn chunk(&mut self) -> Result<Option<Vec<u8>>> {
        let mut chunk = Vec::new();
        loop {
            if self.received.is_empty() {
                self.more()?;
            }
            // Byte by byte, because the decoder would continue with the next chunk.
            let mut byte = self.received.split_to(1);
            match self.chunks.take(&mut byte).map_err(Error::other)? {
                Piece::Data(data) => chunk.extend_from_slice(&data),
                Piece::Trailers(_) | Piece::End => return Ok(None),
                Piece::More if self.chunks.is_between_chunks() => return Ok(Some(chunk)),
                Piece::More => {}
            }
        }
    }

    /// Waits for more bytes.
    fn more(&mut self) -> Result<()> {
        let mut buffer = [0; 16_384];
        // The kernel does not resume reads of a socket with a time limit after a signal (signal(7)).
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

    /// Returns whether the server closes the connection without sending another byte.
    pub fn is_closed(&mut self) -> bool {
        self.received.is_empty()
            && matches!(self.more(), Err(error) if error.kind() != ErrorKind::WouldBlock)
    }

    /// Sets the time limit for reads and writes.
    pub fn set_timeout(&self, limit: Duration) {
        self.stream.set_read_timeout(Some(limit)).expect("a positive time is accepted");
        self.stream.set_write_timeout(Some(limit)).expect("a positive time is accepted");
    }

    /// Closes the sending side.
    pub fn finish_sending(&self) -> Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }
}

/// Builds a request head. `length` is that of the body; 0 sends no `Content-Length`. `Host` is taken from `fields`, else it is `example.org`.
pub fn head(method: &str, target: &str, fields: &[(&str, &str)], length: usize) -> String {
    let mut head = Vec::new();
    put_request_line(&mut head, method, target, http::Version::HTTP_11);
    if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        put_field(&mut head, "Host", "example.org");
    }
    for (name, value) in fields {
        put_field(&mut head, name, value);
    }
    if length > 0 {
        put_field(&mut head, "Content-Length", length.to_string());
    }
    head.extend_from_slice(b"\r\n");
    String::from_utf8(head).expect("it is made of text")
}
