//! Proofs that an account controls a name: the requests that an authority makes to the server on loopback.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use rustls::ClientConnection;
use rustls_pki_types::ServerName;

use crate::credulous::credulous;

/// Time limit for the validation of a name.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

fn connect(port: u16) -> Result<TcpStream, String> {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    let socket = socket.map_err(|error| format!("no listener: {error}"))?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
    Ok(socket)
}

/// Validates a name by HTTP-01 (RFC 8555, section 8.3).
pub(super) fn by_http(port: u16, name: &str, token: &str, expected: &str) -> Result<(), String> {
    let mut socket = connect(port)?;
    let path = format!("/.well-known/acme-challenge/{token}");
    let head = crate::http1::head("GET", &path, &[("Host", name), ("Connection", "close")], 0);
    let mut answer = Vec::new();
    (socket.write_all(head.as_bytes()))
        .and_then(|()| socket.read_to_end(&mut answer))
        .map_err(|error| error.to_string())?;
    let answer = http1::parse_response(&answer).ok_or("no answer")?;
    let body = String::from_utf8_lossy(&answer.body).trim().to_owned();
    if answer.head.status == 200 && body == expected {
        return Ok(());
    }
    Err(format!("wrong answer: {}", answer.head.status))
}

/// Validates a name by TLS-ALPN-01 (RFC 8737, section 3).
pub(super) fn by_tls(port: u16, name: &str, expected: &str) -> Result<(), String> {
    let (config, shown) = credulous(&["acme-tls/1"]);
    let server = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
    let mut session = ClientConnection::new(config, server).map_err(|error| error.to_string())?;
    let mut socket = connect(port)?;
    while session.is_handshaking() {
        session.complete_io(&mut socket).map_err(|error| error.to_string())?;
    }
    if session.alpn_protocol() != Some(b"acme-tls/1") {
        return Err("another protocol".to_owned());
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, expected.as_bytes());
    // The extension id-pe-acmeIdentifier, critical, an octet string in an octet string.
    let extension = [
        &[0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x1f][..],
        &[0x01, 0x01, 0xff, 0x04, 0x22, 0x04, 0x20],
        digest.as_ref(),
    ]
    .concat();
    let certificate = shown.certificate();
    let has = |part: &[u8]| certificate.windows(part.len()).any(|window| window == part);
    if has(&extension) && has(name.as_bytes()) {
        return Ok(());
    }
    Err("another certificate".to_owned())
}
