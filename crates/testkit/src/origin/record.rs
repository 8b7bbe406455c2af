//! The records of an origin: requests, connections and their handshakes.

use super::Fields;

/// A recorded request.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Number of the request, counted from 0 over the whole origin.
    pub number: usize,
    /// Number of its connection, from 0.
    pub connection: usize,
    /// The method.
    pub method: String,
    /// The target as it was sent; over HTTP/2 the path and query.
    pub target: String,
    /// `Host` or `:authority`.
    pub authority: String,
    /// The major HTTP version, 1 or 2.
    pub version: u8,
    /// Fields in order, with their names as they were sent. Without pseudo-fields.
    pub fields: Fields,
    /// The first 64 KiB of the body.
    pub body: Vec<u8>,
    /// Number of body bytes so far.
    pub length: u64,
    /// True once the body is complete.
    pub complete: bool,
    /// The request's trailers.
    pub trailers: Fields,
}

impl Seen {
    /// Returns the value of a field that occurs at most once.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        let value = values.next();
        assert!(values.next().is_none(), "{name} came more than once: {:?}", self.fields);
        value.map(|(_, value)| value.as_str())
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the path without the query.
    pub fn path(&self) -> &str {
        let path = self.target.split('?').next().unwrap_or_default();
        // A proxy's clients send absolute URLs.
        match path.split_once("://") {
            Some((_, rest)) => rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/"),
            None => path,
        }
    }

    /// Returns the request as JSON.
    pub(super) fn facts(&self) -> Vec<u8> {
        let facts = serde_json::json!({
            "connection": self.connection,
            "method": self.method,
            "target": self.target,
            "authority": self.authority,
            "version": self.version,
            "fields": self.fields,
            "length": self.length,
            "body": String::from_utf8_lossy(&self.body),
        });
        facts.to_string().into_bytes()
    }
}

/// A recorded connection.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// True while it is open.
    pub open: bool,
    /// The outcome of the TLS handshake, once it is complete.
    pub tls: Option<Handshake>,
    /// The number of requests on it.
    pub requests: usize,
}

/// The outcome of a TLS handshake.
#[derive(Clone, Debug)]
pub struct Handshake {
    /// The protocol version, e.g. `TLSv1.3`.
    pub version: String,
    /// The ALPN protocol, e.g. `h2` or `http/1.1`, if one was agreed.
    pub alpn: Option<String>,
    /// The server name that the client sent (SNI).
    pub server_name: Option<String>,
    /// True if an earlier session was resumed.
    pub resumed: bool,
    /// True if the client sent a certificate.
    pub client_certificate: bool,
}

/// Everything that was recorded.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) requests: Vec<Seen>,
    pub(super) connections: Vec<Connection>,
}
