//! Tests that any input is decoded or rejected, and that encoded frames decode to the same values.

use proptest::collection::vec;
use proptest::prelude::*;
use wire::send::{RequestWriter, ResponseWriter};
use wire::{FromBroker, FromCaller, FromServer, FromWorker, HEADER_LEN, Sender, ToZygote};

fn text() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![32_u8..=255, Just(b'\t')], 0..40)
}

fn pairs() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    vec((vec(33_u8..=126, 1..20), text()), 0..20)
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused(kind in 0_u8..0x60, flags in 0_u8..4, payload in vec(any::<u8>(), 0..200)) {
        let mut bytes = u32::try_from(payload.len()).unwrap().to_le_bytes().to_vec();
        bytes.extend_from_slice(&[kind, flags, 0, 0]);
        bytes.extend_from_slice(&payload);
        for sender in [
            Sender::Worker,
            Sender::Zygote,
            Sender::ServerToWorker,
            Sender::ServerToZygote,
            Sender::Caller,
            Sender::Broker,
        ] {
            let Ok(Some(header)) = wire::peek(&bytes, sender) else { continue };
            let payload = &bytes[HEADER_LEN..];
            let pairs = match sender {
                Sender::ServerToWorker => match FromServer::decode(header, payload) {
                    Ok(FromServer::Request { head, .. }) => Some(head.pairs),
                    _ => None,
                },
                Sender::ServerToZygote => {
                    let decoded = ToZygote::decode(header, payload);
                    prop_assert!(decoded.is_err() || payload.len() <= 8);
                    None
                }
                Sender::Caller => {
                    if let Ok(FromCaller::Call { control, head, .. }) =
                        FromCaller::decode(header, payload)
                    {
                        prop_assert_eq!(control.len() + head.len() + 4, payload.len());
                    }
                    None
                }
                Sender::Broker => {
                    match FromBroker::decode(header, payload) {
                        Ok(FromBroker::Answer(answer)) => {
                            prop_assert_eq!(answer.address.len() + answer.head.len() + 24, payload.len());
                        }
                        Ok(FromBroker::Declined(why) | FromBroker::Failed(why)) => {
                            let texts = [why.reason, why.address, why.message];
                            prop_assert_eq!(texts.concat().len() + 8, payload.len());
                        }
                        _ => {}
                    }
                    None
                }
                _ => match FromWorker::decode(header, payload) {
                    Ok(FromWorker::Head(head) | FromWorker::Inform(head)) => Some(head.pairs),
                    _ => None,
                },
            };
            if let Some(pairs) = pairs {
                let announced = pairs.size_hint().0;
                prop_assert_eq!(pairs.count(), announced, "a checked head yields every pair");
            }
        }
    }

    #[test]
    fn a_request_is_read_as_it_was_written(pairs in pairs(), length in any::<Option<u64>>()) {
        let mut bytes = Vec::new();
        let mut writer = RequestWriter::new(&mut bytes, 20, length.unwrap_or(0));
        for (name, value) in &pairs {
            writer.pair(name, value);
        }
        writer.finish(length.is_none()).unwrap();
        let header = wire::peek(&bytes, Sender::ServerToWorker).unwrap().unwrap();
        prop_assert_eq!(header.frame_len(), bytes.len());
        let FromServer::Request { head, last } = FromServer::decode(header, &bytes[HEADER_LEN..]).unwrap() else {
            panic!("a request")
        };
        prop_assert_eq!(last, length.is_none());
        prop_assert_eq!(head.content_length, length.unwrap_or(0));
        let read: Vec<_> = head.pairs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        prop_assert_eq!(read, pairs);
    }

    #[test]
    fn a_head_is_read_as_it_was_written(pairs in pairs(), status in 200_u16..=999, reason in "[ -~]{0,30}") {
        let mut bytes = Vec::new();
        let mut writer = ResponseWriter::new(&mut bytes, status, &reason);
        for (name, value) in &pairs {
            writer.pair(name, value);
        }
        writer.finish().unwrap();
        let header = wire::peek(&bytes, Sender::Worker).unwrap().unwrap();
        let FromWorker::Head(head) = FromWorker::decode(header, &bytes[HEADER_LEN..]).unwrap() else {
            panic!("a head")
        };
        prop_assert_eq!(head.status, status);
        prop_assert_eq!(head.reason, reason.as_bytes());
        let read: Vec<_> = head.pairs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        prop_assert_eq!(read, pairs);
    }
}

#[test]
fn a_head_over_the_limits_is_refused_and_leaves_the_buffer_alone() {
    let mut bytes = b"before".to_vec();
    let mut writer = RequestWriter::new(&mut bytes, 11, 0);
    writer.pair(b"A", &vec![b'x'; wire::MAX_PAYLOAD]);
    assert!(writer.finish(true).is_err());
    assert_eq!(bytes, b"before");

    let mut writer = RequestWriter::new(&mut bytes, 11, 0);
    writer.pair(&vec![b'A'; 65_536], b"");
    assert!(writer.finish(true).is_err(), "the length of a name has sixteen bits");
    assert_eq!(bytes, b"before");

    let mut writer = RequestWriter::new(&mut bytes, 11, 0);
    for _ in 0..=wire::MAX_PAIRS {
        writer.pair(b"A", b"");
    }
    assert!(writer.finish(true).is_err());
    assert_eq!(bytes, b"before");
}

#[test]
fn a_large_body_is_cut_into_frames_and_only_the_last_says_so() {
    let data = vec![7; wire::MAX_BODY * 2 + 1];
    let mut bytes = Vec::new();
    wire::send::body(&mut bytes, &data, true);
    let (mut rest, mut read, mut lasts) = (&bytes[..], Vec::new(), Vec::new());
    while let Some(header) = wire::peek(rest, Sender::ServerToWorker).unwrap() {
        let (frame, after) = rest.split_at(header.frame_len());
        let Ok(FromServer::Body { data, last }) = FromServer::decode(header, &frame[HEADER_LEN..])
        else {
            panic!("a body")
        };
        read.extend_from_slice(data);
        lasts.push(last);
        rest = after;
    }
    assert_eq!(read, data);
    assert_eq!(lasts, [false, false, true]);
}
