//! Connections through a proxy: CONNECT (RFC 9110, 9.3.6) and SOCKS (RFC 1928, RFC 1929).
//!
//! Invariants
//! - No byte beyond the proxy's own response is read: the next one is the origin's.

use std::io;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::errors::code;
use crate::{CallError, Proxy, Reason};

/// The longest response to CONNECT.
const LONGEST: usize = 16 << 10;

/// The value `Basic …` of `Proxy-Authorization` (RFC 7617).
pub(crate) fn basic(proxy: &Proxy) -> Option<String> {
    let (user, password) = proxy.credentials.as_ref()?;
    Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
}

/// Host and port as in CONNECT and Host.
fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Asks an HTTP proxy for a tunnel.
pub(crate) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    proxy: &Proxy,
    host: &str,
    port: u16,
) -> Result<(), CallError> {
    let authority = authority(host, port);
    let mut request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n");
    if let Some(basic) = basic(proxy) {
        request.push_str("Proxy-Authorization: ");
        request.push_str(&basic);
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| broken(&error))?;
    stream.flush().await.map_err(|error| broken(&error))?;

    let head = head(stream).await.map_err(|error| broken(&error))?;
    match status(&head) {
        Some(200..=299) => Ok(()),
        Some(status) => {
            let message = format!("CONNECT tunnel failed, response {status}");
            Err(CallError::declined(Reason::Proxy, code::RECEIVE, message))
        }
        None => Err(CallError::declined(
            Reason::Proxy,
            code::RECEIVE,
            "Invalid response header from the proxy",
        )),
    }
}

/// Reads up to and including the empty line, byte by byte, once per connection.
async fn head<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(256);
    while ::http1::head_end(&head, head.len().saturating_sub(1)).is_none() {
        if head.len() >= LONGEST {
            return Err(io::Error::other("its answer has no end"));
        }
        head.push(stream.read_u8().await?);
    }
    Ok(head)
}

fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\n').next()?.strip_prefix(b"HTTP/1.")?;
    let status = line.get(1..)?;
    Some(::http1::parse_status(status)?.0.as_u16())
}

fn broken(error: &io::Error) -> CallError {
    let message = match error.kind() {
        io::ErrorKind::UnexpectedEof => "Proxy CONNECT aborted".to_owned(),
        _ => format!("Proxy CONNECT aborted: {error}"),
    };
    CallError::declined(Reason::Proxy, code::RECEIVE, message)
}

/// Asks a SOCKS 4 proxy for a connection to an address or, without one, to a name (4A).
pub(crate) async fn socks4<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    proxy: &Proxy,
    host: &str,
    address: Option<IpAddr>,
    port: u16,
) -> Result<(), CallError> {
    const GRANTED: u8 = 90;

    let user = proxy.credentials.as_ref().map_or("", |(user, _)| user);
    if user.contains('\0') || host.contains('\0') {
        return Err(refusal("There is a NUL in what the SOCKS4 proxy is told".to_owned()));
    }
    let mut request = vec![4, 1];
    request.extend_from_slice(&port.to_be_bytes());
    match address {
        Some(IpAddr::V4(v4)) => {
            request.extend_from_slice(&v4.octets());
            request.extend_from_slice(user.as_bytes());
            request.push(0);
        }
        Some(IpAddr::V6(_)) => {
            return Err(refusal("SOCKS4 does not know IPv6".to_owned()));
        }
        None => {
            request.extend_from_slice(&[0, 0, 0, 1]);
            request.extend_from_slice(user.as_bytes());
            request.push(0);
            request.extend_from_slice(host.as_bytes());
            request.push(0);
        }
    }
    let mut reply = [0; 8];
    let conversed = async {
        stream.write_all(&request).await?;
        stream.flush().await?;
        stream.read_exact(&mut reply).await
    };
    if let Err(error) = conversed.await {
        return Err(refusal(format!("The SOCKS4 proxy broke off: {error}")));
    }
    match reply {
        [0, GRANTED, ..] => Ok(()),
        [0, why, ..] => {
            Err(refusal(format!("Can't complete SOCKS4 connection to {host}. ({why})")))
        }
        _ => Err(refusal("SOCKS4 reply has wrong version, version should be 0.".to_owned())),
    }
}

/// Asks a SOCKS 5 proxy for a connection to a name, or to an address that was resolved here.
pub(crate) async fn socks5<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    proxy: &Proxy,
    host: &str,
    address: Option<IpAddr>,
    port: u16,
) -> Result<(), CallError> {
    match converse(stream, proxy, host, address, port).await {
        Ok(result) => result,
        Err(error) => Err(refusal(format!("The SOCKS5 proxy broke off: {error}"))),
    }
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    proxy: &Proxy,
    host: &str,
    address: Option<IpAddr>,
    port: u16,
) -> io::Result<Result<(), CallError>> {
    const VERSION: u8 = 5;
    const NO_AUTHENTICATION: u8 = 0;
    const PASSWORD: u8 = 2;

    let offers: &[u8] = match proxy.credentials {
        Some(_) => &[VERSION, 2, NO_AUTHENTICATION, PASSWORD],
        None => &[VERSION, 1, NO_AUTHENTICATION],
    };
    stream.write_all(offers).await?;
    stream.flush().await?;
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).await?;
    match (chosen, &proxy.credentials) {
        ([VERSION, NO_AUTHENTICATION], _) => {}
        ([VERSION, PASSWORD], Some((user, password))) => {
            let mut request = vec![1];
            for part in [user, password] {
                let Ok(length) = u8::try_from(part.len()) else {
                    return Ok(Err(refusal("The SOCKS5 credentials are too long".to_owned())));
                };
                request.push(length);
                request.extend_from_slice(part.as_bytes());
            }
            stream.write_all(&request).await?;
            stream.flush().await?;
            let mut verdict = [0; 2];
            stream.read_exact(&mut verdict).await?;
            if verdict[1] != 0 {
                return Ok(Err(refusal("User was rejected by the SOCKS5 server".to_owned())));
            }
        }
        ([VERSION, _], _) => {
            return Ok(Err(refusal("No authentication method was acceptable.".to_owned())));
        }
        _ => {
            return Ok(Err(refusal(
                "Received invalid version in initial SOCKS5 response.".to_owned(),
            )));
        }
    }

    let mut request = vec![VERSION, 1, 0];
    match address {
        Some(IpAddr::V4(v4)) => {
            request.push(1);
            request.extend_from_slice(&v4.octets());
        }
        Some(IpAddr::V6(v6)) => {
            request.push(4);
            request.extend_from_slice(&v6.octets());
        }
        None => {
            let Ok(length) = u8::try_from(host.len()) else {
                return Ok(Err(refusal("The name is too long for SOCKS5".to_owned())));
            };
            request.extend_from_slice(&[3, length]);
            request.extend_from_slice(host.as_bytes());
        }
    }
    request.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&request).await?;
    stream.flush().await?;

    let mut reply = [0; 4];
    stream.read_exact(&mut reply).await?;
    if reply[0] != VERSION {
        return Ok(Err(refusal("SOCKS5 reply has wrong version".to_owned())));
    }
    if reply[1] != 0 {
        return Ok(Err(refusal(format!(
            "Can't complete SOCKS5 connection to {host}. ({})",
            reply[1]
        ))));
    }
    // The address that the proxy calls from, which is not needed.
    let length = match reply[3] {
        1 => 4,
        4 => 16,
        3 => usize::from(stream.read_u8().await?),
        _ => return Ok(Err(refusal("SOCKS5 reply has wrong address type.".to_owned()))),
    };
    let mut bound = vec![0; length + 2];
    stream.read_exact(&mut bound).await?;
    Ok(Ok(()))
}

fn refusal(message: String) -> CallError {
    CallError::declined(Reason::Proxy, code::PROXY, message)
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;
    use crate::ProxyKind;

    fn proxy(kind: ProxyKind, credentials: Option<(&str, &str)>) -> Proxy {
        let credentials = credentials.map(|(user, password)| (user.into(), password.into()));
        Proxy { kind, host: "proxy.test".into(), port: 1080, credentials, tls: None }
    }

    /// The request that the proxy reads when it sends this answer, and the outcome. The origin's first bytes must not
    /// be lost.
    async fn tunnel(
        proxy: Proxy,
        address: Option<IpAddr>,
        says: &[&[u8]],
    ) -> (Vec<u8>, Result<(), CallError>) {
        let (mut ours, mut theirs) = duplex(4096);
        for part in says {
            theirs.write_all(part).await.expect("there is room");
        }
        theirs.write_all(b"ORIGIN").await.expect("there is room");
        let result = match proxy.kind {
            ProxyKind::Http => connect(&mut ours, &proxy, "fe80::1", 443).await,
            ProxyKind::Socks4 | ProxyKind::Socks4Hostname => {
                socks4(&mut ours, &proxy, "origin.test", address, 443).await
            }
            _ => socks5(&mut ours, &proxy, "origin.test", address, 443).await,
        };
        if result.is_ok() {
            let mut next = [0; 6];
            ours.read_exact(&mut next).await.expect("it is there");
            assert_eq!(&next, b"ORIGIN");
        }
        drop(ours);
        let mut read = Vec::new();
        theirs.read_to_end(&mut read).await.expect("it was written");
        (read, result)
    }

    #[tokio::test]
    async fn connect_asks_with_credentials_and_reads_no_further_than_the_answer() {
        let proxy = proxy(ProxyKind::Http, Some(("user", "pass word")));
        let (read, result) = tunnel(proxy, None, &[b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\n"]).await;
        result.expect("a tunnel");
        assert_eq!(
            String::from_utf8(read).expect("text"),
            "CONNECT [fe80::1]:443 HTTP/1.1\r\nHost: [fe80::1]:443\r\n\
             Proxy-Authorization: Basic dXNlcjpwYXNzIHdvcmQ=\r\n\r\n"
        );
    }

    #[tokio::test]
    async fn a_proxy_that_refuses_says_why() {
        for (says, curl, message) in [
            (&b"HTTP/1.1 407 Who?\r\n\r\n"[..], 56, "CONNECT tunnel failed, response 407"),
            (b"SSH-2.0-x\r\n\r\n", 56, "Invalid response header from the proxy"),
        ] {
            let (_, result) = tunnel(proxy(ProxyKind::Http, None), None, &[says]).await;
            let error = result.expect_err("refused");
            assert_eq!((error.reason, error.curl), (Reason::Proxy, curl));
            assert_eq!(error.message, message);
        }
    }

    #[tokio::test]
    async fn socks5_names_the_origin_or_gives_its_address() {
        let bound: &[u8] = &[5, 0, 0, 1, 127, 0, 0, 1, 0, 80];
        let (read, result) =
            tunnel(proxy(ProxyKind::Socks5Hostname, None), None, &[&[5, 0], bound]).await;
        result.expect("a tunnel");
        assert_eq!(read, [&[5, 1, 0, 5, 1, 0, 3, 11][..], b"origin.test", &[1, 187]].concat());

        let address = Some(IpAddr::from([192, 0, 2, 7]));
        let named: &[u8] = &[5, 0, 0, 3, 2, b'm', b'e', 0, 80];
        let (read, result) = tunnel(
            proxy(ProxyKind::Socks5, Some(("u", "pw"))),
            address,
            &[&[5, 2], &[1, 0], named],
        )
        .await;
        result.expect("a tunnel");
        assert_eq!(
            read,
            [&[5, 2, 0, 2][..], &[1, 1, b'u', 2, b'p', b'w'], &[5, 1, 0, 1, 192, 0, 2, 7, 1, 187]]
                .concat()
        );
    }

    #[tokio::test]
    async fn socks4_gives_an_address_and_4a_a_name() {
        let granted: &[u8] = &[0, 90, 0, 0, 0, 0, 0, 0];
        let address = Some(IpAddr::from([192, 0, 2, 7]));
        let (read, result) =
            tunnel(proxy(ProxyKind::Socks4, Some(("me", ""))), address, &[granted]).await;
        result.expect("a tunnel");
        assert_eq!(read, [&[4, 1, 1, 187, 192, 0, 2, 7][..], b"me\0"].concat());

        let (read, result) = tunnel(proxy(ProxyKind::Socks4Hostname, None), None, &[granted]).await;
        result.expect("a tunnel");
        assert_eq!(read, [&[4, 1, 1, 187, 0, 0, 0, 1, 0][..], b"origin.test\0"].concat());

        let refused: &[u8] = &[0, 91, 0, 0, 0, 0, 0, 0];
        let (_, result) = tunnel(proxy(ProxyKind::Socks4, None), address, &[refused]).await;
        let message = result.expect_err("refused").message;
        assert_eq!(message, "Can't complete SOCKS4 connection to origin.test. (91)");
    }

    #[tokio::test]
    async fn socks5_refusals_have_curls_number() {
        let cases: [(&[&[u8]], &str); 4] = [
            (&[&[5, 255]], "No authentication method was acceptable."),
            (&[&[4, 0]], "Received invalid version in initial SOCKS5 response."),
            (&[&[5, 2], &[1, 1]], "User was rejected by the SOCKS5 server"),
            (
                &[&[5, 0], &[5, 5, 0, 1, 0, 0, 0, 0, 0, 0]],
                "Can't complete SOCKS5 connection to origin.test. (5)",
            ),
        ];
        for (says, message) in cases {
            let proxy = proxy(ProxyKind::Socks5Hostname, Some(("u", "p")));
            let (_, result) = tunnel(proxy, None, says).await;
            let error = result.expect_err("refused");
            assert_eq!((error.reason, error.curl), (Reason::Proxy, 97));
            assert_eq!(error.message, message);
        }
    }
}
