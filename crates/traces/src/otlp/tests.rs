//! Compares the output with that of the reference implementation (`opentelemetry-proto` for Python with Google's
//! protobuf): vectors/request.bin.

use std::time::Duration;

use super::*;
use crate::{Context, Kind, SpanId, TraceId};

fn finished() -> Vec<Finished> {
    let trace = TraceId(std::array::from_fn(|at| u8::try_from(at + 1).unwrap()));
    let id = |first: u8| SpanId(std::array::from_fn(|at| first + u8::try_from(at).unwrap()));
    let began = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let root = Finished {
        context: Context { trace, span: id(41), flags: 1 },
        parent: None,
        state: None,
        name: "GET".into(),
        kind: Kind::Client,
        began,
        took: Duration::ZERO,
        attributes: Vec::new(),
        error: None,
    };
    let child = Finished {
        context: Context { trace, span: id(17), flags: 1 },
        parent: Some(id(33)),
        state: Some("a=1".parse().unwrap()),
        kind: Kind::Server,
        began: began + Duration::from_nanos(123_456_789),
        took: Duration::from_micros(1500),
        attributes: vec![
            ("http.request.method", "GET".into()),
            ("http.response.status_code", 502_u16.into()),
            ("hearth.slow", true.into()),
            ("error.type", "502".into()),
        ],
        error: Some("worker 7 died".into()),
        ..root.clone()
    };
    vec![child, root]
}

#[test]
fn otlp_matches_the_reference_implementation() {
    let reference = include_bytes!("../../vectors/request.bin");
    let resource = Resource { attributes: vec![("service.name".into(), "shop".into())] };
    let ours = encode(&resource, finished());
    let [mut expected, ours] = [&reference[..], &ours[..]]
        .map(|bytes| ExportTraceServiceRequest::decode(bytes).expect("a request"));
    if let Some(scope) = &mut expected.resource_spans[0].scope_spans[0].scope {
        env!("CARGO_PKG_VERSION").clone_into(&mut scope.version);
    }
    assert_eq!(ours, expected);
    // Parsing dropped nothing: unknown fields would be lost.
    assert_eq!(ours.encode_to_vec(), expected.encode_to_vec());
    assert!(expected.encoded_len() >= reference.len() - 8);
}

#[test]
fn a_collectors_partial_rejection_is_parsed() {
    let answer = b"\x0a\x0b\x08\x03\x12\x07too old";
    assert_eq!(rejected(answer), Some((3, "too old".to_owned())));
    assert_eq!(rejected(b""), None);
    assert_eq!(rejected(b"<html>"), None);
}
