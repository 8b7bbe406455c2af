//! Reads `/status` of a server at its admin address.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use http::Version;
use http1::{parse_response, put_field, put_request_line};

use super::Figures;
use crate::config::Token;
use crate::failure::Failure;

/// The time limit of one status request.
const PATIENCE: Duration = Duration::from_secs(3);
/// The largest answer in bytes; a longer one is no status.
const LARGEST: u64 = 16 << 20;

/// Asks an admin address.
pub(super) fn ask(address: &str, token: Option<&Token>) -> Result<Figures, Failure> {
    let hint = "start it with `--admin 127.0.0.1:9180`, or say where it is: `hearth top ADDR`";
    let received = call(address, token).map_err(|error| {
        Failure::caused_by(format!("no server answers at {address}"), &error, hint)
    })?;
    let answer = parse_response(&received);
    let status = answer.as_ref().map_or(0, |answer| answer.head.status.as_u16());
    let body = answer.map(|answer| answer.body).unwrap_or_default();
    match status {
        200 => serde_json::from_slice(&body).map_err(|error| {
            let what = format!("what answers at {address} is no Hearth, or another version");
            Failure::caused_by(what, &error, hint)
        }),
        401 => Err(Failure::failed(
            format!("the server at {address} wants a token"),
            "set HEARTH_ADMIN_TOKEN to its `admin.token`",
        )),
        status => Err(Failure::failed(
            format!("what answers at {address} is no Hearth's admin address (status {status})"),
            hint,
        )),
    }
}

/// Makes one HTTP/1.0 call: the answer ends with its connection.
fn call(address: &str, token: Option<&Token>) -> io::Result<Vec<u8>> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for resolved in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&resolved, PATIENCE) {
            Ok(stream) => return converse(stream, address, token),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn converse(mut stream: TcpStream, address: &str, token: Option<&Token>) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut head = Vec::new();
    put_request_line(&mut head, "GET", "/status", Version::HTTP_10);
    put_field(&mut head, "Host", address);
    if let Some(token) = token {
        put_field(&mut head, "Authorization", format!("Bearer {}", token.expose()));
    }
    head.extend_from_slice(b"\r\n");
    stream.write_all(&head)?;
    let mut received = Vec::new();
    stream.take(LARGEST).read_to_end(&mut received)?;
    Ok(received)
}
