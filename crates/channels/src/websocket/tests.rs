//! Tests the codec against the MUSTs of RFC 6455, against every split of a stream, and against another
//! implementation.

use std::io::{Cursor, Read, Write};

use bytes::Bytes;
use proptest::prelude::*;
use tungstenite::protocol::{Role, WebSocket, WebSocketConfig};

use super::*;
use crate::encoded::Encoded;

const RULES: Rules = Rules { message: 1000, deflate: true };

/// A decoded message with owned data.
#[derive(Clone, Debug, PartialEq)]
enum Got {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
    Violation(Violation),
}

/// Decodes `input` in pieces of these lengths, used repeatedly.
fn decode(input: &[u8], pieces: &[usize], rules: Rules) -> Vec<Got> {
    let (mut decoder, mut inflater) = (Decoder::new(), Inflater::default());
    let mut got = Vec::new();
    let mut rest = input;
    let mut lengths = pieces.iter().cycle();
    while !rest.is_empty() {
        let length = lengths.next().map_or(rest.len(), |length| (*length).clamp(1, rest.len()));
        let (piece, after) = rest.split_at(length);
        rest = after;
        let mut piece = piece.to_vec();
        let mut at = 0;
        loop {
            let step = match decoder.next(&mut piece[at..], rules, &mut inflater) {
                Ok(step) => step,
                Err(violation) => {
                    got.push(Got::Violation(violation));
                    return got;
                }
            };
            at += step.consumed;
            let Some(message) = step.message else { break };
            got.push(match message {
                Message::Text(text) => Got::Text(text.into_owned()),
                Message::Binary(bytes) => Got::Binary(bytes.into_owned()),
                Message::Ping(bytes) => Got::Ping(bytes.into_owned()),
                Message::Pong(bytes) => Got::Pong(bytes.into_owned()),
                Message::Close { code, reason } => {
                    Got::Close(code.map(CloseCode::get), reason.into_owned())
                }
            });
        }
        assert_eq!(at, piece.len(), "without a message, all is consumed");
        assert!(decoder.held() <= rules.message * 2 + 512, "{} bytes are held", decoder.held());
    }
    got
}

/// Returns a masked frame of a client.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    masked(first, payload, [0x37, 0xfa, 0x21, 0x3d])
}

fn masked(first: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        length @ 0..126 => frame.push(0x80 | u8::try_from(length).unwrap()),
        length @ 126..65_536 => {
            frame.push(0xfe);
            frame.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        length => {
            frame.push(0x80 | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]));
    frame
}

fn whole(input: &[u8]) -> Vec<Got> {
    decode(input, &[], RULES)
}

fn text(text: &str) -> Got {
    Got::Text(text.to_owned())
}

#[test]
fn the_examples_of_rfc_6455_are_decoded() {
    let hello = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(whole(&hello), [text("Hello")]);
    let ping = [0x89, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(whole(&ping), [Got::Ping(b"Hello".to_vec())]);
    assert_eq!(*pong_frame(b"Hello"), [0x8a, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]);
}

#[test]
fn control_frames_are_returned_between_the_fragments_of_a_message() {
    let stream = [
        frame(0x01, b"Hel"),
        frame(0x89, b"1"),
        frame(0x00, b"l"),
        frame(0x8a, b"2"),
        frame(0x80, b"o"),
        frame(0x82, b"3"),
    ];
    assert_eq!(
        whole(&stream.concat()),
        [
            Got::Ping(b"1".to_vec()),
            Got::Pong(b"2".to_vec()),
            text("Hello"),
            Got::Binary(b"3".to_vec())
        ]
    );
}

#[test]
fn each_violation_is_detected_at_the_first_byte_that_shows_it() {
    let protocol = |bytes: &[u8]| {
        let got = whole(bytes);
        assert!(matches!(got[..], [Got::Violation(Violation::Protocol(_))]), "{bytes:x?}: {got:?}");
        let shorter = whole(&bytes[..bytes.len() - 1]);
        assert_eq!(shorter, [], "{bytes:x?} is wrong only with its last byte");
    };
    protocol(&[0xa1]); // RSV2
    protocol(&[0x91]); // RSV3
    protocol(&[0xc0]); // RSV1 on a continuation
    protocol(&[0xc9]); // RSV1 on a ping
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        protocol(&[0x80 | opcode]);
    }
    protocol(&[0x81, 0x05]); // not masked
    protocol(&[0x09]); // a fragmented ping
    protocol(&[0x89, 0xfe]); // a long ping
    protocol(&[0x81, 0xfe, 0, 125]); // a length of two bytes that needs none
    protocol(&[0x81, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff]); // of eight that needs two
    protocol(&[0x81, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0]); // the highest bit
    protocol(&[0x80, 0x80, 0, 0, 0, 0]); // a continuation of nothing
}

#[test]
fn a_frame_may_be_split_right_after_its_head() {
    let stream = [frame(0x82, b"one"), frame(0x89, b"two"), frame(0x82, b"three")].concat();
    let expected =
        [Got::Binary(b"one".to_vec()), Got::Ping(b"two".to_vec()), Got::Binary(b"three".to_vec())];
    assert_eq!(decode(&stream, &[6, 3, 6, 3, 6, 5], RULES), expected);
}

#[test]
fn a_message_inside_another_is_a_violation() {
    let got = whole(&[frame(0x01, b"a"), frame(0x81, b"b")].concat());
    assert!(matches!(got[..], [Got::Violation(Violation::Protocol(_))]), "{got:?}");
}

#[test]
fn a_compressed_message_is_rejected_unless_compression_was_negotiated() {
    let hello = frame(0xc1, &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]);
    assert_eq!(whole(&hello), [text("Hello")]);
    let fragments = [
        frame(0x41, &[0xf2, 0x48, 0xcd]),
        frame(0x89, b""),
        frame(0x80, &[0xc9, 0xc9, 0x07, 0x00]),
    ]
    .concat();
    assert_eq!(whole(&fragments), [Got::Ping(vec![]), text("Hello")]);
    let got = decode(&hello, &[], Rules { deflate: false, ..RULES });
    assert!(matches!(got[..], [Got::Violation(Violation::Protocol(_))]), "{got:?}");
}

#[test]
fn a_message_is_rejected_by_its_announced_length_before_its_payload_arrives() {
    let too_large = [Got::Violation(Violation::TooLarge { limit: 1000 })];
    assert_eq!(whole(&frame(0x81, &[b'a'; 1001])[..8]), too_large);
    assert_eq!(
        whole(&[0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]),
        too_large
    );
    assert_eq!(whole(&[frame(0x01, &[b'a'; 600]), frame(0x80, &[b'a'; 401])].concat()), too_large);
    assert_eq!(whole(&frame(0x81, &[b'a'; 1000])), [text(&"a".repeat(1000))]);
}

#[test]
fn text_that_is_not_utf8_is_rejected_before_the_message_ends() {
    let invalid = [Got::Violation(Violation::Data("a text is not UTF-8"))];
    assert_eq!(whole(&frame(0x81, b"\xff")), invalid);
    assert_eq!(
        whole(&frame(0x01, b"\xce\xba\xed\xa0\x80")),
        invalid,
        "a surrogate, and more would come"
    );
    assert_eq!(whole(&frame(0x81, &[b'a'; 900])[..900]), []);
    let mut cut = frame(0x81, &[b"\xf4\x90", &[b'a'; 900][..]].concat());
    cut.truncate(12);
    assert_eq!(whole(&cut), invalid, "above U+10FFFF, and the frame is not whole");
    assert_eq!(
        whole(&[frame(0x01, b"\xce"), frame(0x80, b"")].concat()),
        invalid,
        "half a character at the end"
    );
    assert_eq!(whole(&[frame(0x01, b"\xce"), frame(0x80, b"\xba")].concat()), [text("\u{3ba}")]);
    assert_eq!(whole(&frame(0x82, b"\xff")), [Got::Binary(vec![0xff])], "binary may be anything");
    let deflated = [0x00, 0x01, 0x00, 0xfe, 0xff, 0xff, 0x00];
    assert_eq!(whole(&frame(0xc1, &deflated)), invalid);
}

#[test]
fn malformed_close_frames_are_rejected() {
    let close = |payload: &[u8]| whole(&frame(0x88, payload));
    assert_eq!(close(b""), [Got::Close(None, String::new())]);
    assert_eq!(close(b"\x03\xe8bye"), [Got::Close(Some(1000), "bye".into())]);
    assert_eq!(close(b"\x10\x68"), [Got::Close(Some(4200), String::new())]);
    assert!(matches!(close(b"\x03")[..], [Got::Violation(Violation::Protocol(_))]));
    assert!(matches!(close(b"\x03\xe8\xff")[..], [Got::Violation(Violation::Data(_))]));
    for code in [0u16, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535] {
        let got = close(&code.to_be_bytes());
        assert!(matches!(got[..], [Got::Violation(Violation::Protocol(_))]), "{code}: {got:?}");
    }
    let after = [frame(0x88, b""), frame(0x81, b"more"), vec![0xff; 10]].concat();
    assert_eq!(
        whole(&after),
        [Got::Close(None, String::new())],
        "nothing after a close is looked at"
    );
}

#[test]
fn server_control_frames_respect_the_size_limit() {
    assert_eq!(*close_frame(None, "ignored"), [0x88, 0]);
    assert_eq!(*close_frame(Some(CloseCode::NORMAL), "ok"), [0x88, 4, 3, 0xe8, b'o', b'k']);
    let long = close_frame(Some(CloseCode::NORMAL), &"\u{20ac}".repeat(100));
    assert_eq!((long[1], long.len()), (125, 127), "41 whole characters of three bytes");
    assert_eq!(pong_frame(&[0; 200]).len(), 127);
}

/// Returns a message as another implementation sends it, and as it is decoded here.
fn messages() -> impl Strategy<Value = Vec<Got>> {
    let message = prop_oneof![
        ".{0,160}".prop_map(Got::Text),
        prop::collection::vec(any::<u8>(), 0..900).prop_map(Got::Binary),
        prop::collection::vec(any::<u8>(), 0..126).prop_map(Got::Ping),
    ];
    prop::collection::vec(message, 0..8)
}

/// A writer without a reader.
#[derive(Debug, Default)]
struct Sink(Vec<u8>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Read for Sink {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::WouldBlock.into())
    }
}

fn sent_by_another(messages: &[Got]) -> Vec<u8> {
    let mut client = WebSocket::from_raw_socket(Sink::default(), Role::Client, None);
    for message in messages {
        client
            .send(match message.clone() {
                Got::Text(text) => tungstenite::Message::text(text),
                Got::Binary(bytes) => tungstenite::Message::binary(bytes),
                Got::Ping(bytes) => tungstenite::Message::Ping(bytes.into()),
                other => unreachable!("{other:?} is not sent here"),
            })
            .unwrap();
    }
    client.get_ref().0.clone()
}

proptest! {
    #[test]
    fn messages_of_another_implementation_are_decoded_however_they_are_split(
        messages in messages(),
        pieces in prop::collection::vec(1usize..40, 1..6),
    ) {
        let rules = Rules { message: 4000, deflate: false };
        prop_assert_eq!(decode(&sent_by_another(&messages), &pieces, rules), messages);
    }

    #[test]
    fn fragments_with_control_frames_in_between_form_one_message(
        message in ".{0,200}",
        cuts in prop::collection::vec(0usize..60, 0..5),
        pieces in prop::collection::vec(1usize..30, 1..6),
        compressed: bool,
        mask: [u8; 4],
    ) {
        let payload = if compressed {
            let frame = Deflater::default().frame(message.as_bytes());
            let head = if frame[1] < 126 { 2 } else { 4 };
            frame.slice(head..)
        } else {
            Bytes::copy_from_slice(message.as_bytes())
        };
        let (mut stream, mut rest) = (Vec::new(), &payload[..]);
        let mut first = if compressed { 0x41 } else { 0x01 };
        for cut in &cuts {
            let (fragment, after) = rest.split_at((*cut).min(rest.len()));
            stream.extend(masked(first, fragment, mask));
            stream.extend(masked(0x89, b"between", mask));
            (first, rest) = (0, after);
        }
        stream.extend(masked(first | 0x80, rest, mask));
        let mut expected = vec![Got::Ping(b"between".to_vec()); cuts.len()];
        expected.push(Got::Text(message));
        prop_assert_eq!(decode(&stream, &pieces, RULES), expected);
    }

    #[test]
    fn any_input_gives_the_same_result_however_it_is_split(
        input in prop::collection::vec(prop_oneof![
            any::<u8>(),
            prop::sample::select(&[0x81u8, 0x01, 0x80, 0x00, 0x89, 0x88, 0xc1, 0x82, 0x84, 0x7d][..]),
        ], 0..300),
        pieces in prop::collection::vec(1usize..20, 1..6),
    ) {
        prop_assert_eq!(decode(&input, &pieces, RULES), whole(&input));
    }

    #[test]
    fn encoded_messages_are_decoded_by_another_implementation(text in ".{0,200}") {
        let frame = Encoded::new(&text).frame().to_vec();
        let config = WebSocketConfig::default();
        let mut client = WebSocket::from_raw_socket(Cursor::new(frame), Role::Client, Some(config));
        prop_assert_eq!(client.read().unwrap(), tungstenite::Message::text(text));
    }

    #[test]
    fn a_compressed_message_survives_a_round_trip_and_announces_its_length(text in "(ab|.){0,400}", limit in 0usize..600) {
        let frame = Deflater::default().frame(text.as_bytes());
        let head = match frame[1] { 127 => 10, 126 => 4, _ => 2 };
        let announced = match frame[1] {
            126 => usize::from(u16::from_be_bytes([frame[2], frame[3]])),
            short => usize::from(short),
        };
        prop_assert_eq!(frame[0], 0xc1);
        prop_assert_eq!(announced, frame.len() - head);
        let read = Inflater::default().inflate(&frame[head..], limit);
        if text.len() <= limit {
            prop_assert_eq!(read.as_deref(), Ok(text.as_bytes()));
        } else {
            prop_assert_eq!(read, Err(Violation::TooLarge { limit }));
        }
    }
}
