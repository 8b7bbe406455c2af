//! The PROXY protocol, versions 1 and 2: client information from a balancer before the first byte of HTTP or TLS
//! (haproxy's doc/proxy-protocol.txt).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Maximum length of a version 1 line, including CRLF.
const MAX_LINE: usize = 107;
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Source and destination as the balancer saw them; `None` for the balancer's own connections (health checks).
pub(crate) type ProxiedAddresses = Option<(SocketAddr, SocketAddr)>;

/// Reads the header from `stream`; the bytes after it stay in `buffer`.
pub(crate) async fn read<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut BytesMut,
) -> io::Result<ProxiedAddresses> {
    loop {
        match parse(buffer) {
            Ok(Some((told, length))) => {
                buffer.advance(length);
                return Ok(told);
            }
            Ok(None) => {}
            Err(what) => return Err(io::Error::new(io::ErrorKind::InvalidData, what)),
        }
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Parses the header and returns it with its length; `Ok(None)` while more bytes are needed.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(ProxiedAddresses, usize)>, &'static str> {
    let known = bytes.len().min(SIGNATURE.len());
    if bytes.get(..known) == SIGNATURE.get(..known) && !bytes.is_empty() {
        return parse_binary(bytes);
    }
    let known = bytes.len().min(6);
    if bytes.get(..known) != b"PROXY ".get(..known) {
        return Err("neither version 1 nor version 2 of the PROXY protocol");
    }
    let end = bytes.iter().take(MAX_LINE).position(|byte| *byte == b'\n');
    let Some(end) = end else {
        return if bytes.len() < MAX_LINE { Ok(None) } else { Err("the line is too long") };
    };
    let line = bytes.get(..end).and_then(|line| line.strip_suffix(b"\r")).ok_or("no CRLF")?;
    let line = std::str::from_utf8(line).map_err(|_invalid| "the line is not ASCII")?;
    let fields: Vec<&str> = line.split(' ').collect();
    let told = match fields.as_slice() {
        [_, "UNKNOWN", ..] => None,
        [_, family @ ("TCP4" | "TCP6"), source, destination, source_port, destination_port] => {
            let address = |ip: &str, port: &str| -> Option<SocketAddr> {
                let ip: IpAddr = ip.parse().ok()?;
                (ip.is_ipv4() == (*family == "TCP4")).then_some(())?;
                Some(SocketAddr::new(ip, port.parse().ok()?))
            };
            let source = address(source, source_port).ok_or("not a source address")?;
            let destination =
                address(destination, destination_port).ok_or("not a destination address")?;
            Some((source, destination))
        }
        _ => return Err("the line has not the fields it should have"),
    };
    Ok(Some((told, end + 1)))
}

fn parse_binary(bytes: &[u8]) -> Result<Option<(ProxiedAddresses, usize)>, &'static str> {
    let Some(head) = bytes.first_chunk::<16>() else { return Ok(None) };
    let [.., command, family, high, low] = *head;
    if command >> 4 != 2 {
        return Err("not version 2");
    }
    let length = 16 + usize::from(u16::from_be_bytes([high, low]));
    let Some(addresses) = bytes.get(16..length) else { return Ok(None) };
    let told = match (command & 0xf, family) {
        (1, 0x11) => {
            let raw = addresses.first_chunk::<12>().ok_or("the addresses are cut")?;
            let cut = "the addresses are cut";
            let (source, rest) = raw.split_first_chunk::<4>().ok_or(cut)?;
            let (destination, ports) = rest.split_first_chunk::<4>().ok_or(cut)?;
            Some((
                with_port(Ipv4Addr::from(*source).into(), [ports[0], ports[1]]),
                with_port(Ipv4Addr::from(*destination).into(), [ports[2], ports[3]]),
            ))
        }
        (1, 0x21) => {
            let cut = "the addresses are cut";
            let raw = addresses.first_chunk::<36>().ok_or(cut)?;
            let (source, rest) = raw.split_first_chunk::<16>().ok_or(cut)?;
            let (destination, ports) = rest.split_first_chunk::<16>().ok_or(cut)?;
            Some((
                with_port(Ipv6Addr::from(*source).into(), [ports[0], ports[1]]),
                with_port(Ipv6Addr::from(*destination).into(), [ports[2], ports[3]]),
            ))
        }
        // The balancer's own connection, or unix sockets, datagrams and other unusable families.
        (0 | 1, _) => None,
        _ => return Err("neither LOCAL nor PROXY"),
    };
    Ok(Some((told, length)))
}

fn with_port(address: IpAddr, port: [u8; 2]) -> SocketAddr {
    SocketAddr::new(address, u16::from_be_bytes(port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addresses(source: &str, destination: &str) -> (SocketAddr, SocketAddr) {
        (source.parse().unwrap(), destination.parse().unwrap())
    }

    #[test]
    fn a_line_of_version_1_is_read() {
        let line = b"PROXY TCP4 192.0.2.1 192.0.2.2 5555 443\r\nGET /";
        assert_eq!(parse(line), Ok(Some((Some(addresses("192.0.2.1:5555", "192.0.2.2:443")), 41))));
        let line = b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n";
        assert_eq!(
            parse(line),
            Ok(Some((Some(addresses("[2001:db8::1]:1", "[2001:db8::2]:2")), line.len())))
        );
        assert_eq!(parse(b"PROXY UNKNOWN\r\n"), Ok(Some((None, 15))));
        for cut in 0..line.len() {
            assert_eq!(parse(&line[..cut]), Ok(None));
        }
        for wrong in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"PROXY TCP4 ::1 ::2 1 2\r\n",
            b"PROXY TCP4 1.1.1.1\r\n",
            b"PROXY UNKNOWN\n",
        ] {
            assert!(parse(wrong).is_err());
        }
        assert!(parse(&[b"PROXY ".as_slice(), &[b'x'; 200]].concat()).is_err());
    }

    #[test]
    fn a_header_of_version_2_is_read() {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([
            0x21, 0x11, 0, 15, 192, 0, 2, 1, 192, 0, 2, 2, 0x15, 0xb3, 0x01, 0xbb, 4, 0, 0,
        ]);
        let told = Some(addresses("192.0.2.1:5555", "192.0.2.2:443"));
        assert_eq!(parse(&bytes), Ok(Some((told, 31))));
        for cut in 0..bytes.len() {
            assert_eq!(parse(&bytes[..cut]), Ok(None));
        }
        let local = [SIGNATURE.as_slice(), &[0x20, 0, 0, 0]].concat();
        assert_eq!(parse(&local), Ok(Some((None, 16))));
    }

    proptest! {
        #[test]
        fn any_proxy_header_is_handled(bytes in proptest::collection::vec(any::<u8>(), 0..80), signed in any::<bool>()) {
            let bytes = if signed { [SIGNATURE.as_slice(), &bytes].concat() } else { bytes };
            if let Ok(Some((_, length))) = parse(&bytes) {
                prop_assert!(length <= bytes.len());
            }
        }
    }
}
