//! Properties of every message that is read or written: checked by fuzz targets and by proptest.

#![cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "public for the fuzz targets only"))]

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Method};
use http_body::Frame;

use crate::collect::Collector;
use crate::decoder::{Decoder, Piece};
use crate::encoder::{Encoder, WriteBuffer};
use crate::request::{self, EMPTY_FIELD};
use crate::response::{HeadLimits, ResponseHead, ResponseReader};

/// The limits of egress, which are those of libcurl.
const LIMITS: HeadLimits = HeadLimits { bytes: 400 << 10, fields: 5000 };

/// How reading a response ended.
#[derive(Debug, Eq, PartialEq)]
enum End {
    /// The message was complete; this number of bytes was left.
    Whole(usize),
    /// The bytes are not a response.
    Malformed,
    /// The connection ended before it was complete.
    Cut,
}

/// A field's name and value.
type Field = (String, Vec<u8>);

/// A response that was read.
#[derive(Debug, PartialEq)]
struct Read {
    heads: Vec<(u16, Vec<Field>)>,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
    end: End,
}

/// Reads a response that arrives in pieces of these lengths, repeated.
fn read(bytes: &[u8], method: &Method, pieces: &[usize]) -> Read {
    let mut answer =
        Read { heads: Vec::new(), body: Vec::new(), trailers: None, end: End::Malformed };
    let (mut input, mut rest) = (BytesMut::new(), bytes);
    let mut reader = ResponseReader::new(LIMITS);
    let mut lengths = pieces.iter().cycle();
    let mut more = |input: &mut BytesMut| {
        let length = lengths.next().map_or(1, |length| *length).clamp(1, rest.len().max(1));
        let (now, later) = rest.split_at(length.min(rest.len()));
        input.put_slice(now);
        rest = later;
        !now.is_empty()
    };
    let last = loop {
        match reader.read(&mut input) {
            Err(_) => return answer,
            Ok(None) if more(&mut input) => {}
            Ok(None) => {
                answer.end = End::Cut;
                return answer;
            }
            Ok(Some(head)) => {
                answer.heads.push(facts(&head));
                if !head.status.is_informational() {
                    break head;
                }
            }
        }
    };
    let Ok(framing) = last.framing(method) else { return answer };
    let mut body = Decoder::new(framing);
    loop {
        match body.take(&mut input) {
            Err(_) => return answer,
            Ok(Piece::Data(data)) => {
                assert!(!data.is_empty(), "a piece of nothing");
                answer.body.extend_from_slice(&data);
            }
            Ok(Piece::Trailers(trailers)) => answer.trailers = Some(trailers),
            Ok(Piece::More) if more(&mut input) => {}
            Ok(Piece::More) if body.end() => {}
            Ok(Piece::More) => {
                answer.end = End::Cut;
                return answer;
            }
            Ok(Piece::End) => break,
        }
    }
    assert!(body.is_over() && body.left() == Some(0));
    answer.end = End::Whole(input.len() + rest.len());
    answer
}

fn facts(head: &ResponseHead) -> (u16, Vec<Field>) {
    let field = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.as_str().to_owned(), value.as_bytes().to_vec())
    };
    (head.status.as_u16(), head.headers.iter().map(field).collect())
}

/// A response, arriving whole and in pieces; the first bytes select the request's method and the sizes of the pieces.
pub fn response(bytes: &[u8]) {
    let Some((&[method, first, second], text)) = bytes.split_first_chunk() else { return };
    let method = if method.is_multiple_of(4) { Method::HEAD } else { Method::GET };
    let whole = read(text, &method, &[text.len()]);
    for pieces in [&[1][..], &[usize::from(first) + 1, usize::from(second) + 1]] {
        // An error behind an end that never comes may be found sooner or later.
        let in_pieces = read(text, &method, pieces);
        assert!(
            in_pieces == whole
                || (whole.end != End::Malformed) == (in_pieces.end != End::Malformed),
            "it depends on how it arrives: {whole:?} {in_pieces:?}"
        );
        if matches!(whole.end, End::Whole(_)) {
            assert_eq!(in_pieces, whole, "it depends on how it arrives");
        }
    }
    // httparse reads the same head.
    if let Some((status, fields)) = whole.heads.first() {
        let blank = text.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let mut found = vec![httparse::EMPTY_HEADER; 5000];
        let mut response = httparse::Response::new(&mut found);
        let mut parser = httparse::ParserConfig::default();
        parser.allow_spaces_after_header_name_in_responses(true);
        parser.allow_obsolete_multiline_headers_in_responses(true);
        let parsed = parser.parse_response(&mut response, text.get(blank..).unwrap_or_default());
        assert!(matches!(parsed, Ok(httparse::Status::Complete(_))), "{parsed:?}");
        assert_eq!((response.code, response.headers.len()), (Some(*status), fields.len()));
    }
    if let (End::Whole(left), Some((_, fields))) = (&whole.end, whole.heads.last()) {
        let has = |name: &http::HeaderName| fields.iter().any(|(found, _)| found == name.as_str());
        let with_body = whole.body.len() + left <= text.len();
        assert!(with_body, "more was read than arrived");
        if has(&CONTENT_LENGTH) && !has(&TRANSFER_ENCODING) && !whole.body.is_empty() {
            let length = whole.body.len().to_string();
            let says = |value: &Vec<u8>| {
                String::from_utf8_lossy(value).contains(&length) || value.starts_with(b"0")
            };
            assert!(
                fields
                    .iter()
                    .filter(|(name, _)| name == CONTENT_LENGTH.as_str())
                    .all(|(_, value)| says(value)),
                "the body has another length than its head says"
            );
        }
    }
}

/// A body in chunks: its reader gets what was written, wherever writing pauses.
pub fn chunks(bytes: &[u8]) {
    let Some((&[size, step], data)) = bytes.split_first_chunk() else { return };
    let (mut encoder, mut out) = (Encoder::Chunked(Vec::new()), WriteBuffer::default());
    let mut written = BytesMut::from(&b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..]);
    let mut pieces = data.chunks(usize::from(size) * 64 + 1);
    loop {
        while out.has_room() && encoder != Encoder::None {
            match pieces.next() {
                Some(piece) => {
                    let frame = Frame::data(Bytes::copy_from_slice(piece));
                    assert_eq!(encoder.put(frame, &mut out), Ok(false));
                }
                None => encoder.finish(None, &mut out).expect("chunks may end anywhere"),
            }
        }
        if out.is_empty() {
            break;
        }
        let mut count = usize::from(step) + 1;
        let all: usize = out.slices().iter().map(|slice| slice.len()).sum();
        count = count.min(all);
        let mut left = count;
        for slice in out.slices() {
            let now = left.min(slice.len());
            written.put_slice(slice.get(..now).unwrap_or_default());
            left -= now;
        }
        out.advance(count);
    }
    let read = read(&written, &Method::GET, &[usize::from(step) * 3 + 1]);
    assert_eq!((&read.body[..], &read.end), (data, &End::Whole(0)));
}

/// A response that is collected whole, arriving at once and in two pieces. It is the one that is read piece by piece.
pub fn collected(bytes: &[u8]) {
    let Some((&[_, cut, ended], text)) = bytes.split_first_chunk() else { return };
    let ended = ended.is_multiple_of(2);
    let (first, second) = text.split_at(usize::from(cut).min(text.len()));
    let whole = Collector::new(LIMITS, 1 << 20).read(&mut BytesMut::from(text), ended);
    let (mut collector, mut input) = (Collector::new(LIMITS, 1 << 20), BytesMut::from(first));
    let pieces = match collector.read(&mut input, false) {
        Ok(None) => {
            input.extend_from_slice(second);
            collector.read(&mut input, ended)
        }
        done => done,
    };
    let Ok(Some(whole)) = whole else { return };
    let pieces = pieces.expect("it depends on how it arrives").expect("it is complete");
    assert_eq!((pieces.head.status, &pieces.body), (whole.head.status, &whole.body));
    let read = read(text, &Method::GET, &[text.len()]);
    if read.heads.iter().all(|(status, _)| *status != 101) {
        assert_eq!(read.body, whole.body);
    }
}

/// The head of a request, arriving in two pieces; the first byte says where it is cut. httparse reads a head that passes in the same way.
pub fn request(bytes: &[u8]) {
    /// The limit of the egress listener.
    const FIELDS: usize = 1000;

    let Some((&cut, text)) = bytes.split_first() else { return };
    let cut = usize::from(cut).min(text.len());
    let whole = request::strict_end(text, 0);
    let pieces = match request::strict_end(text.get(..cut).unwrap_or_default(), 0) {
        Ok(None) => request::strict_end(text, cut),
        done => done,
    };
    assert_eq!(whole, pieces, "it depends on how it arrives");

    let Ok(Some(end)) = whole else { return };
    let head = text.get(..end).unwrap_or_default();
    let Ok(facts) = request::check(head) else { return };
    if facts.fields > FIELDS {
        return;
    }
    let mut fields = vec![EMPTY_FIELD; FIELDS];
    let read = request::parse(text, &mut fields).expect("it passed").expect("it is complete");
    assert_eq!((read.length, read.target, read.minor), (end, facts.target, 1));
    assert_eq!(read.fields.len(), facts.fields);
    for field in
        read.fields.iter().filter(|field| field.name.eq_ignore_ascii_case("content-length"))
    {
        let digits = str::from_utf8(field.value).expect("digits");
        digits.parse::<i64>().expect("every reader can count it");
    }
    if let Some(parts) = request::to_parts(&Bytes::copy_from_slice(head), facts.fields) {
        assert_eq!(parts.headers.len(), facts.fields);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn got(text: &str) -> (u16, String, End) {
        let answer = read(text.as_bytes(), &Method::GET, &[text.len()]);
        let status = answer.heads.last().map_or(0, |(status, _)| *status);
        (status, String::from_utf8(answer.body).unwrap(), answer.end)
    }

    fn head_of(text: &str) -> ResponseHead {
        ResponseReader::new(LIMITS).read(&mut BytesMut::from(text)).unwrap().unwrap()
    }

    /// Split in two at every place, byte by byte, and whole.
    fn in_all_pieces(text: &str) {
        let whole = read(text.as_bytes(), &Method::GET, &[text.len()]);
        for at in 1..text.len() {
            assert_eq!(
                read(text.as_bytes(), &Method::GET, &[at, text.len()]),
                whole,
                "{text:?} {at}"
            );
        }
        assert_eq!(read(text.as_bytes(), &Method::GET, &[1]), whole, "{text:?}");
    }

    #[test]
    fn responses_are_read_the_same_however_they_arrive() {
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfourmore", (200, "four", End::Whole(4))),
            ("\r\n\nHTTP/1.0 404 No\nA: b\n\nuntil the end", (404, "until the end", End::Whole(0))),
            ("HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nfour", (204, "", End::Whole(4))),
            (
                "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
                (304, "", End::Whole(0)),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 4, 4\r\nContent-Length: 4\r\n\r\nfour",
                (200, "four", End::Whole(0)),
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
                 HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n\
                 4 \t;a=b\r\nfour\r\n00A\r\nten bytes.\r\n0\r\nX-A: 1\r\nX-B: 2\r\n\r\nmore",
                (200, "fourten bytes.", End::Whole(4)),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0;x\r\n\r\n",
                (200, "", End::Whole(0)),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nall of it",
                (200, "all of it", End::Whole(0)),
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfour", (200, "four", End::Cut)),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfour",
                (200, "four", End::Cut),
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", (200, "", End::Cut)),
            ("HTTP/1.1 200 OK\r\nContent-", (0, "", End::Cut)),
        ] {
            assert_eq!(got(text), (expected.0, expected.1.to_owned(), expected.2), "{text:?}");
            in_all_pieces(text);
        }
    }

    #[test]
    fn ambiguous_or_meaningless_heads_are_rejected() {
        let chunked =
            |chunks: &str| format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
        for text in [
            "HTTP/1.1 2x0 OK\r\n\r\n".to_owned(),
            "HTTP/1.1 099 OK\r\n\r\n".to_owned(),
            "SSH-2.0-OpenSSH_9.2\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\n A: b\r\n\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\nContent-Length:\r\n 1\r\n\r\na".to_owned(),
            "HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\na".to_owned(),
            "HTTP/1.1 200 OK\r\nA: b\r\ntransfer-encoding: gzip,\r\n\tchunked\r\n\r\n0\r\n\r\n"
                .to_owned(),
            "HTTP/1.1 200 OK\r\ntransfer-encoding\t: chunked\r\n\r\n0\r\n\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\nA: b\r\n c\r\r\n d\r\n\r\n".to_owned(),
            // A value may go on in the next line, a name may not (RFC 9112, 5.2).
            "HTTP/1.1 200 OK\r\nA\r\n :b\r\n\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\nA\r\n\tb: c\r\n\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\nA: b\rc: d\r\n\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab".to_owned(),
            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na".to_owned(),
            "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\na".to_owned(),
            "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\na".to_owned(),
            "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\na".to_owned(),
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
            chunked("\r\n"),
            chunked("g\r\n"),
            chunked("-1\r\n"),
            chunked("0x1\r\na\r\n"),
            chunked("1\na\n"),
            chunked("1 1\r\n"),
            chunked("1;a\nb\r\n"),
            chunked("1\r\nab\r\n"),
            chunked("1\r\na\n0\r\n\r\n"),
            chunked("10000000000000000\r\n"),
            chunked("0\r\nA: b\rc: d\r\n\r\n"),
            chunked("0\r\nno colon\r\n\r\n"),
            chunked("0\r\nA: b\r\n c\r\n\r\n"),
            chunked("0\r\nA: b\n\nHTTP/1.1 200 OK\r\n\r\n"),
            chunked(&format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(16 << 10))),
            chunked(&format!("0\r\nA: {}\r\n\r\n", "x".repeat(16 << 10))),
            format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(400 << 10)),
            format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(5001)),
        ] {
            assert_eq!(got(&text).2, End::Malformed, "{text:.200?}");
        }
    }

    #[test]
    fn the_field_limit_equals_libcurls() {
        for fields in [31, 32, 255, 256, 4999] {
            let fields = "A: b\r\n".repeat(fields);
            let text = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 0\r\n\r\n");
            assert_eq!(got(&text).2, End::Whole(0));
        }
    }

    #[test]
    fn fields_are_read_as_old_servers_write_them() {
        let text = "HTTP/1.1 200 OK\r\nA : b\r\nC\t :d\r\nE: f\r\n g\r\n\th\n  \ni:j\r\n\t\r\nContent-Length: 1\r\n\r\nab";
        in_all_pieces(text);
        let answer = read(text.as_bytes(), &Method::GET, &[text.len()]);
        assert_eq!((answer.end, answer.body.as_slice()), (End::Whole(1), &b"a"[..]));
        let fields = answer.heads.last().unwrap().1.iter();
        let fields: Vec<_> =
            fields.map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        assert_eq!(
            fields,
            [
                ("a", &b"b"[..]),
                ("c", b"d"),
                ("e", b"f   g  \th"),
                ("i", b"j"),
                ("content-length", b"1"),
            ]
        );
    }

    #[test]
    fn trailers_come_with_all_their_values() {
        let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 1\r\nx-sum: 2\r\n\r\n";
        let trailers = read(text.as_bytes(), &Method::GET, &[7]).trailers.unwrap();
        assert_eq!(trailers.get_all("x-sum").iter().collect::<Vec<_>>(), ["1", "2"]);
    }

    #[test]
    fn a_response_to_head_has_no_body() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
        assert_eq!(read(text, &Method::HEAD, &[text.len()]).end, End::Whole(0));
    }

    #[test]
    fn a_connection_persists_when_both_sides_say_so() {
        for (text, kept) in [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\nConnection: x, CLOSE\r\n\r\n", false),
            ("HTTP/1.1 200 OK\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n\r\n", true),
        ] {
            let head = head_of(text);
            assert_eq!(head.keep_alive, kept, "{text:?}");
            assert_eq!(head.written, text);
        }
    }

    #[test]
    fn a_custom_reason_phrase_is_kept() {
        let take = |text| head_of(text).reason;
        assert!(take("HTTP/1.1 200 OK\r\n\r\n").is_none());
        assert_eq!(take("HTTP/1.1 200 Fine\r\n\r\n").unwrap(), "Fine");
    }

    #[test]
    fn a_body_is_as_long_as_its_head_says() {
        let put = |length, data: &'static str| {
            let (mut encoder, mut out) = (Encoder::Length(length), WriteBuffer::default());
            let over = encoder.put(Frame::data(data.into()), &mut out).unwrap();
            let end = if over { Ok(()) } else { encoder.finish(None, &mut out) };
            (
                over,
                end.is_ok(),
                out.slices().iter().flat_map(|slice| slice.to_vec()).collect::<Vec<_>>(),
            )
        };
        assert_eq!(put(4, "four"), (true, true, b"four".to_vec()));
        // The rest is dropped.
        assert_eq!(put(3, "four"), (true, true, b"fou".to_vec()));
        assert_eq!(put(5, "four"), (false, false, b"four".to_vec()));
    }

    #[test]
    fn only_announced_trailers_that_frame_nothing_are_sent() {
        let announced = vec!["X-Sum, content-length".parse().unwrap(), "Host".parse().unwrap()];
        let (mut encoder, mut out) = (Encoder::Chunked(announced), WriteBuffer::default());
        let mut trailers = HeaderMap::new();
        for (name, value) in
            [("x-sum", "1"), ("content-length", "2"), ("host", "a.test"), ("x-other", "3")]
        {
            trailers.insert(name, value.parse().unwrap());
        }
        assert_eq!(encoder.put(Frame::trailers(trailers), &mut out), Ok(true));
        assert_eq!(&**out.buffer(), b"0\r\nX-Sum: 1\r\n\r\n");
    }

    /// The inputs that are committed for the fuzz targets.
    #[test]
    fn the_committed_corpora_pass() {
        for (target, checks) in
            [("http1_response", &[response, chunks, collected][..]), ("http1_request", &[request])]
        {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
            let files: Vec<_> = std::fs::read_dir(folder.join(target)).unwrap().collect();
            assert!(files.len() > 5, "{target}: {} inputs", files.len());
            for file in files {
                let bytes = std::fs::read(file.unwrap().path()).unwrap();
                for check in checks {
                    check(&bytes);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            response(&bytes);
            chunks(&bytes);
            collected(&bytes);
            request(&bytes);
        }

        #[test]
        fn requests_that_resemble_valid_ones(
            cut in any::<u8>(),
            line in "(GET|POST|CONNECT|X!) (http://|https://|/|\\*|hTTp:)[!-~]{0,20} HTTP/1.1",
            fields in proptest::collection::vec(
                "(Host|Connection|Content-Length|Transfer-Encoding|TE|[!-9A-z]{1,8}): ?\
                 (a.test|chunked|close, [a-zA-Z-]{1,9}|trailers|[0-9]{1,25}|[ -\u{ff}]{0,20})",
                0..6,
            ),
        ) {
            let mut bytes = vec![cut];
            bytes.extend_from_slice(line.as_bytes());
            for field in fields {
                bytes.extend_from_slice(b"\r\n");
                bytes.extend_from_slice(field.as_bytes());
            }
            bytes.extend_from_slice(b"\r\n\r\n");
            request(&bytes);
        }

        #[test]
        fn responses_that_resemble_valid_ones(
            cuts in any::<[u8; 3]>(),
            text in "(HTTP/1.1 10[03] X\r\n(Link: a\r\n)?\r\n){0,2}HTTP/1.[01] (200|204|304|404|9) ?[A-Za-z ]{0,9}(\r\n|\n)\
                ((Content-Length|Transfer-Encoding|Connection|X): ?(chunked|gzip|close|[0-9]{1,3}|[ -~]{0,9})(\r\n|\n)){0,4}\r\n",
            body in "([0-9a-f]{1,2}(;[a-z]{0,4})?\r\n[a-z]{0,16}\r\n|[a-z0-9\r\n]{0,20}){0,4}(0\r\n(X: y\r\n)?\r\n)?[a-z]{0,4}",
        ) {
            let bytes = [&cuts[..], text.as_bytes(), body.as_bytes()].concat();
            response(&bytes);
            collected(&bytes);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn bodies_are_sent_whole(bytes in proptest::collection::vec(any::<u8>(), 0..20_000)) {
            chunks(&bytes);
        }
    }
}
