//! Tests ambiguous heads: `hostile_heads.txt` contains the response to each, byte for byte.

use std::sync::atomic::Ordering;

use tokio::net::TcpStream;

use crate::support::{Client, Server};

/// A further request after each case: it must be answered if and only if the connection stays open.
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: next.example\r\n\r\n";

struct Case<'t> {
    line: usize,
    status: u16,
    ends: bool,
    request: &'t str,
}

fn cases(table: &str) -> Vec<Case<'_>> {
    let lines = table.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let read = |(number, line): (usize, &'_ str)| -> Option<(usize, u16, bool)> {
        let mut words = line.split_whitespace();
        let status = words.next()?.parse().ok()?;
        let ends = match words.next()? {
            "end" => true,
            "on" => false,
            _ => return None,
        };
        Some((number + 1, status, ends))
    };
    lines
        .map(|(number, text)| {
            let (line, status, ends) =
                read((number, text)).unwrap_or_else(|| panic!("line {} is no case", number + 1));
            let request = text.split_once("  ").unwrap().1.trim_start();
            Case { line, status, ends, request }
        })
        .collect()
}

/// Decodes `\r`, `\n`, `\t`, `\0`, `\\` and `\xNN`.
fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match bytes.next().unwrap() {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'0' => 0,
            b'\\' => b'\\',
            b'x' => {
                let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            other => panic!("no such escape: {}", char::from(other)),
        });
    }
    out
}

/// Returns the status of each response on a connection, by its status line.
fn statuses(bytes: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(bytes);
    text.split("HTTP/1.").skip(1).map(|answer| answer.get(2..5).unwrap().parse().unwrap()).collect()
}

#[tokio::test]
async fn malformed_heads_get_their_status() {
    let server = Server::start().await;
    let all = cases(include_str!("hostile_heads.txt"));
    assert!(all.len() > 60, "{} cases", all.len());
    let mut wrong = Vec::new();
    for case in all {
        let called = server.app.called.load(Ordering::SeqCst);
        let mut client = Client::new(TcpStream::connect(server.address()).await.unwrap());
        client.send([&unescape(case.request), NEXT.as_bytes()].concat()).await;
        // The last request of a connection that stays open.
        let closing = NEXT.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
        client.send_if_taken(closing).await;
        let found = statuses(&client.rest().await);
        let expected = if case.ends { vec![case.status] } else { vec![case.status, 200, 200] };
        let called = server.app.called.load(Ordering::SeqCst) - called;
        let reached = expected.iter().filter(|status| **status == 200).count();
        if found != expected || called != reached {
            wrong.push(format!(
                "line {}: {found:?}, application called {called} times: {}",
                case.line, case.request
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
