//! Tests the compression of PHP's responses.

use async_compression::tokio::write::{BrotliDecoder, GzipDecoder, ZstdDecoder};
use tokio::io::AsyncWriteExt;

use crate::support::{LONG, Server};

async fn decode(coding: &str, bytes: &[u8]) -> Vec<u8> {
    macro_rules! decode {
        ($decoder:ident) => {{
            let mut decoder = $decoder::new(Vec::new());
            decoder.write_all(bytes).await.unwrap();
            decoder.shutdown().await.unwrap();
            decoder.into_inner()
        }};
    }
    match coding {
        "zstd" => decode!(ZstdDecoder),
        "br" => decode!(BrotliDecoder),
        _ => decode!(GzipDecoder),
    }
}

#[tokio::test]
async fn compression_follows_accept_encoding() {
    let server = Server::start().await;
    let words = "word ".repeat(1000);
    for (accept, coding) in
        [("gzip, deflate, br, zstd", "zstd"), ("gzip, br", "br"), ("gzip", "gzip")]
    {
        let reply = server.get_with("/words", &format!("Accept-Encoding: {accept}")).await;
        assert_eq!(reply.field("content-encoding").as_deref(), Some(coding));
        assert_eq!(reply.field("vary").as_deref(), Some("accept-encoding"));
        assert!(reply.body.len() < 500, "{}", reply.body.len());
        assert_eq!(decode(coding, &reply.body).await, words.as_bytes());
    }
    for (path, accept) in [("/words", "identity"), ("/no-transform", "gzip"), ("/a", "gzip")] {
        let reply = server.get_with(path, &format!("Accept-Encoding: {accept}")).await;
        assert_eq!(reply.field("content-encoding"), None, "{path}");
        assert!(reply.field("content-length").is_some());
    }
}

#[tokio::test]
async fn an_event_reaches_the_client_before_the_next_is_sent() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    client.send("GET /events HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n").await;
    assert_eq!(client.head().await.field("content-encoding").as_deref(), Some("gzip"));
    let mut decoder = GzipDecoder::new(Vec::new());
    let first = async {
        while decoder.get_ref().is_empty() {
            let chunk = client.chunk().await.expect("more comes");
            decoder.write_all(&chunk).await.unwrap();
            decoder.flush().await.unwrap();
        }
    };
    tokio::time::timeout(LONG, first).await.unwrap();
    assert_eq!(decoder.get_ref(), b"data: 1\n\n");
}

#[tokio::test]
async fn head_matches_get_without_a_body() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    client.send("HEAD /words HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(client.head().await.status, 200);
    assert_eq!(client.reply().await.text(), "app /a");
}

#[tokio::test]
async fn compression_can_be_switched_off() {
    let server = Server::with(|options, _| options.compression = false).await;
    let reply = server.get_with("/words", "Accept-Encoding: gzip").await;
    assert_eq!((reply.field("content-encoding"), reply.field("vary")), (None, None));
}
