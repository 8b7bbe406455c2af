//! Any bytes from any peer: decoding never panics, and a decoded frame encodes to the same bytes.
//!
//! The first byte of the input chooses the sender; the rest is the stream.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::send::{self, RequestWriter, ResponseWriter};
use wire::{
    FromBroker, FromCaller, FromServer, FromWorker, Header, Kind, RequestHead, ResponseHead,
    Sender, ToZygote,
};

fuzz_target!(|input: &[u8]| {
    let Some((&who, mut stream)) = input.split_first() else { return };
    let sender = match who {
        0x80..=0xbf => Sender::Caller,
        0xc0.. => Sender::Broker,
        _ if who % 4 == 0 => Sender::Worker,
        _ if who % 4 == 1 => Sender::Zygote,
        _ if who % 4 == 2 => Sender::ServerToWorker,
        _ => Sender::ServerToZygote,
    };

    while let Ok(Some(header)) = wire::peek(stream, sender) {
        assert!(header.length <= wire::MAX_PAYLOAD);
        let Some((frame, rest)) = stream.split_at_checked(header.frame_len()) else { return };
        let payload = &frame[wire::HEADER_LEN..];
        let Some(again) = encoded_again(sender, header, payload) else { return };
        assert_eq!(again, frame, "{header:?}");
        stream = rest;
    }
});

/// The decoded frame, encoded again; none when it is malformed.
fn encoded_again(sender: Sender, header: Header, payload: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match sender {
        Sender::Worker | Sender::Zygote => {
            from_worker(FromWorker::decode(header, payload).ok()?, payload, &mut out)
        }
        Sender::ServerToWorker => match FromServer::decode(header, payload).ok()? {
            FromServer::Request { head, last } => request(&head, last, &mut out),
            FromServer::Body { data, last } => {
                out.extend_from_slice(&wire::body_header(data.len(), last));
                out.extend_from_slice(data);
            }
            FromServer::Abort => send::abort(&mut out),
        },
        Sender::ServerToZygote => match ToZygote::decode(header, payload).ok()? {
            ToZygote::Spawn { slot } => send::spawn(&mut out, slot),
            ToZygote::Kill { pid, signal } => send::kill(&mut out, pid, signal),
            ToZygote::Trace { pid } => send::trace(&mut out, pid),
        },
        Sender::Caller => match FromCaller::decode(header, payload).ok()? {
            FromCaller::Open { token } => send::open(&mut out, token),
            FromCaller::Call { control, head, body } => {
                send::call(&mut out, control, head, body)
                    .expect("what was decoded keeps the limits");
            }
            FromCaller::Body { data, last } => {
                out.extend_from_slice(&wire::body_header(data.len(), last));
                out.extend_from_slice(data);
            }
            FromCaller::Abort => send::abort(&mut out),
        },
        Sender::Broker => {
            from_broker(FromBroker::decode(header, payload).ok()?, header, payload, &mut out)
        }
    }
    Some(out)
}

fn from_broker(frame: FromBroker<'_>, header: Header, payload: &[u8], out: &mut Vec<u8>) {
    match frame {
        FromBroker::Want => send::want(out),
        FromBroker::Interim(head) => send::interim(out, head),
        FromBroker::Answer(answer) => {
            send::answer_head(out, &answer).expect("what was decoded keeps the limits");
        }
        FromBroker::Body(data) => send::response_body(out, data),
        FromBroker::Trailers(fields) => send::trailers(out, fields),
        FromBroker::End => send::done(out),
        FromBroker::Declined(why) | FromBroker::Failed(why) => {
            // Our encoder cuts long texts; other decoded frames are copied.
            if [why.reason, why.address, why.message].iter().all(|text| text.len() <= 16_384) {
                send::no_answer_at_all(out, header.kind == Kind::Lost, &why);
            } else {
                verbatim(header.kind, payload, out);
            }
        }
    }
}

fn from_worker(frame: FromWorker<'_>, payload: &[u8], out: &mut Vec<u8>) {
    match frame {
        FromWorker::Hello { php_version, pid, version } => {
            // Our encoder takes a `&str`; other decoded frames are copied.
            match str::from_utf8(php_version) {
                Ok(text) => send::hello(out, version, pid, text),
                Err(_) => verbatim(Kind::Hello, payload, out),
            }
        }
        FromWorker::Ready => send::ready(out),
        FromWorker::Inform(head) => response(&head, Kind::Inform, payload, out),
        FromWorker::Head(head) => response(&head, Kind::Head, payload, out),
        FromWorker::Body(data) => send::response_body(out, data),
        FromWorker::End { ready, busy, failed, took } => {
            assert!(!(ready && busy));
            let flags = if ready { Kind::END_READY } else { 0 }
                | if busy { Kind::END_BUSY } else { 0 }
                | if failed { Kind::END_FAILED } else { 0 };
            send::end(out, flags, took);
        }
        FromWorker::Log(line) => {
            send::log(out, line.level, line.source, line.message, line.context)
        }
        FromWorker::Publish(event) => {
            let announced = event.channels.size_hint().0;
            let channels: Vec<_> = event.channels.collect();
            assert_eq!(channels.len(), announced);
            send::publish(out, event.event, event.except, event.data, channels.into_iter())
                .expect("what was decoded keeps the limits");
        }
        FromWorker::Purge(tags) => {
            let announced = tags.size_hint().0;
            let tags: Vec<_> = tags.collect();
            assert_eq!(tags.len(), announced);
            send::purge(out, tags.into_iter()).expect("what was decoded keeps the limits");
        }
        FromWorker::Files(files) => send::files(out, files),
        FromWorker::Spawned { slot, pid } => send::spawned(out, slot, pid),
        FromWorker::Exited { pid, status, processor_time } => {
            send::exited(out, pid, status, processor_time);
        }
        FromWorker::Failed { slot, errno } => send::failed(out, slot, errno),
        FromWorker::Stack { pid, stack, why } => send::stack(out, pid, stack, why),
    }
}

fn request(head: &RequestHead<'_>, last: bool, out: &mut Vec<u8>) {
    let mut writer = RequestWriter::new(out, head.protocol, head.content_length);
    assert_eq!(head.pairs.clone().count(), head.pairs.size_hint().0);
    for (name, value) in head.pairs.clone() {
        assert!(!name.contains(&0) && !value.contains(&0));
        writer.pair(name, value);
    }
    writer.finish(last).expect("what was decoded keeps the limits");
}

fn response(head: &ResponseHead<'_>, kind: Kind, payload: &[u8], out: &mut Vec<u8>) {
    assert!((100..=999).contains(&head.status));
    assert_eq!(head.status < 200, kind == Kind::Inform);
    assert_eq!(head.pairs.clone().count(), head.pairs.size_hint().0);
    let Ok(reason) = str::from_utf8(head.reason) else { return verbatim(kind, payload, out) };
    let mut writer = ResponseWriter::new(out, head.status, reason);
    for (name, value) in head.pairs.clone() {
        assert!(!name.iter().chain(value).any(|byte| matches!(byte, 0 | b'\r' | b'\n')));
        writer.pair(name, value);
    }
    writer.finish().expect("what was decoded keeps the limits");
}

fn verbatim(kind: Kind, payload: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(payload.len()).expect("a payload is at most MAX_PAYLOAD");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&[kind as u8, 0, 0, 0]);
    out.extend_from_slice(payload);
}
