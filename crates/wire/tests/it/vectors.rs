//! Passes every vector of `vectors/frames.txt` (format: docs/internals/frames.md, "Vectors"), decoding and encoding.

use std::collections::BTreeMap;
use std::fmt::Write;

use wire::send::{RequestWriter, ResponseWriter};
use wire::{
    AnswerHead, CallBody, FromBroker, FromCaller, FromServer, FromWorker, HEADER_LEN, Malformed,
    NO_LENGTH, NoAnswer, Sender, ToZygote,
};

/// One vector: its keys in order.
struct Vector {
    lines: Vec<(String, String)>,
}

impl Vector {
    fn get(&self, key: &str) -> &str {
        self.lines.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }

    fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(&self, key: &str) -> T {
        self.get(key)
            .parse()
            .unwrap_or_else(|error| panic!("{}: {key}: {error:?}", self.get("name")))
    }

    fn text(&self, key: &str) -> Vec<u8> {
        unescape(self.get(key))
    }

    fn texts(&self, key: &str) -> impl Iterator<Item = Vec<u8>> {
        self.lines.iter().filter(move |(name, _)| name == key).map(|(_, text)| unescape(text))
    }

    fn bytes(&self) -> Vec<u8> {
        let hex: String = self
            .lines
            .iter()
            .filter(|(key, _)| key == "hex")
            .flat_map(|(_, value)| value.chars())
            .filter(|c| !c.is_whitespace())
            .collect();
        hex.as_bytes()
            .chunks(2)
            .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
            .collect()
    }

    fn pairs(&self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        self.lines.iter().filter(|(key, _)| key == "pair").map(|(_, pair)| {
            let (name, value) = pair.split_once('=').expect("a pair has a name");
            (unescape(name), unescape(value))
        })
    }

    fn sender(&self) -> Sender {
        match self.get("from") {
            "server" => Sender::ServerToWorker,
            "worker" => Sender::Worker,
            "server-to-zygote" => Sender::ServerToZygote,
            "zygote" => Sender::Zygote,
            "caller" => Sender::Caller,
            "broker" => Sender::Broker,
            other => panic!("unknown sender {other}"),
        }
    }

    fn flags(&self) -> u8 {
        match self.get("flags") {
            "" => 0,
            "LAST" | "READY" => 1,
            "BUSY" | "WHOLE" => 2,
            "FAILED" => 4,
            "READY FAILED" => 5,
            "BUSY FAILED" => 6,
            other => panic!("unknown flags {other}"),
        }
    }
}

fn vectors() -> Vec<Vector> {
    let frames = include_str!("../../vectors/frames.txt");
    let calls = include_str!("../../vectors/calls.txt");
    let lines = frames.lines().chain([""]).chain(calls.lines());
    let lines = lines.filter(|line| !line.starts_with('#'));
    let mut vectors = Vec::new();
    let mut current = Vec::new();
    for line in lines.chain([""]) {
        if line.is_empty() {
            if !current.is_empty() {
                vectors.push(Vector { lines: std::mem::take(&mut current) });
            }
            continue;
        }
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        current.push((key.to_owned(), value.to_owned()));
    }
    vectors
}

fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'\\', [b'x', high, low, after @ ..]) => {
                let hex = [*high, *low];
                out.push(u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
                rest = after;
            }
            (b'\\', [b'\\', after @ ..]) => {
                out.push(b'\\');
                rest = after;
            }
            _ => out.push(*first),
        }
    }
    out
}

fn escape(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        match byte {
            b'\\' => text.push_str("\\\\"),
            0x20..=0x7e => text.push(char::from(*byte)),
            other => write!(text, "\\x{other:02x}").unwrap(),
        }
        text
    })
}

/// The decoded fields, as a vector lists them.
type Fields = BTreeMap<&'static str, String>;

fn fields<const N: usize>(list: [(&'static str, String); N]) -> Fields {
    Fields::from(list)
}

fn pair_list(pairs: wire::Pairs<'_>) -> String {
    let lines = pairs.map(|(name, value)| format!("{}={}", escape(name), escape(value)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Decodes as a receiver does: the header first, then the payload when it is complete.
fn decode(bytes: &[u8], sender: Sender) -> Result<Option<Fields>, Malformed> {
    let Some(header) = wire::peek(bytes, sender)? else { return Ok(None) };
    if bytes.len() < header.frame_len() {
        return Ok(None);
    }
    assert_eq!(bytes.len(), header.frame_len(), "a vector is one frame");
    let payload = &bytes[HEADER_LEN..];
    Ok(Some(match sender {
        Sender::ServerToWorker => match FromServer::decode(header, payload)? {
            FromServer::Request { head, last: _ } => fields([
                ("type", "REQUEST".into()),
                ("protocol", head.protocol.to_string()),
                (
                    "content_length",
                    match head.content_length {
                        NO_LENGTH => "unknown".into(),
                        length => length.to_string(),
                    },
                ),
                ("pair", pair_list(head.pairs)),
            ]),
            FromServer::Body { data, last: _ } => {
                fields([("type", "BODY".into()), ("bytes", escape(data))])
            }
            FromServer::Abort => fields([("type", "ABORT".into())]),
        },
        Sender::ServerToZygote => match ToZygote::decode(header, payload)? {
            ToZygote::Spawn { slot } => {
                fields([("type", "SPAWN".into()), ("slot", slot.to_string())])
            }
            ToZygote::Kill { pid, signal } => fields([
                ("type", "KILL".into()),
                ("pid", pid.to_string()),
                ("signal", signal.to_string()),
            ]),
            ToZygote::Trace { pid } => fields([("type", "TRACE".into()), ("pid", pid.to_string())]),
        },
        Sender::Worker | Sender::Zygote => from_worker(FromWorker::decode(header, payload)?),
        Sender::Caller => from_caller(&FromCaller::decode(header, payload)?),
        Sender::Broker => from_broker(&FromBroker::decode(header, payload)?),
    }))
}

fn from_caller(frame: &FromCaller<'_>) -> Fields {
    match frame {
        FromCaller::Open { token } => fields([("type", "OPEN".into()), ("token", escape(token))]),
        FromCaller::Call { control, head, body: _ } => {
            fields([("type", "CALL".into()), ("control", escape(control)), ("head", escape(head))])
        }
        FromCaller::Body { data, last: _ } => {
            fields([("type", "BODY".into()), ("bytes", escape(data))])
        }
        FromCaller::Abort => fields([("type", "ABORT".into())]),
    }
}

fn from_broker(frame: &FromBroker<'_>) -> Fields {
    let text = |kind: &str, key, text: &[u8]| fields([("type", kind.into()), (key, escape(text))]);
    let no_answer = |kind: &str, why: &NoAnswer<'_>| {
        fields([
            ("type", kind.into()),
            ("errno", why.errno.to_string()),
            ("port", why.port.to_string()),
            ("reason", escape(why.reason)),
            ("address", escape(why.address)),
            ("message", escape(why.message)),
        ])
    };
    match frame {
        FromBroker::Want => fields([("type", "WANT".into())]),
        FromBroker::Interim(head) => text("INTERIM", "head", head),
        FromBroker::Answer(answer) => fields([
            ("type", "ANSWER".into()),
            ("resolved", answer.resolved.to_string()),
            ("connected", answer.connected.to_string()),
            ("secured", answer.secured.to_string()),
            ("first_byte", answer.first_byte.to_string()),
            ("protocol", answer.protocol.to_string()),
            ("reused", u8::from(answer.reused).to_string()),
            ("port", answer.port.to_string()),
            ("address", escape(answer.address)),
            ("head", escape(answer.head)),
        ]),
        FromBroker::Body(data) => text("BODY", "bytes", data),
        FromBroker::Trailers(lines) => text("TRAILERS", "head", lines),
        FromBroker::End => fields([("type", "END".into())]),
        FromBroker::Declined(why) => no_answer("DECLINED", why),
        FromBroker::Failed(why) => no_answer("FAILED", why),
    }
}

fn from_worker(frame: FromWorker<'_>) -> Fields {
    let head = |kind: &str, head: wire::ResponseHead<'_>| {
        fields([
            ("type", kind.into()),
            ("status", head.status.to_string()),
            ("reason", escape(head.reason)),
            ("pair", pair_list(head.pairs)),
        ])
    };
    match frame {
        FromWorker::Hello { version, pid, php_version } => fields([
            ("type", "HELLO".into()),
            ("version", version.to_string()),
            ("pid", pid.to_string()),
            ("php", escape(php_version)),
        ]),
        FromWorker::Ready => fields([("type", "READY".into())]),
        FromWorker::Inform(inform) => head("INFORM", inform),
        FromWorker::Head(final_head) => head("HEAD", final_head),
        FromWorker::Body(data) => fields([("type", "BODY".into()), ("bytes", escape(data))]),
        FromWorker::End { took, .. } => {
            fields([("type", "END".into()), ("took", took.to_string())])
        }
        FromWorker::Log(line) => fields([
            ("type", "LOG".into()),
            ("level", line.level.to_string()),
            ("source", line.source.to_string()),
            ("message", escape(line.message)),
            ("context", escape(line.context)),
        ]),
        FromWorker::Publish(publication) => fields([
            ("type", "PUBLISH".into()),
            ("event", escape(publication.event)),
            ("except", escape(publication.except)),
            ("data", escape(publication.data)),
            ("channel", publication.channels.map(escape).collect::<Vec<_>>().join("\n")),
        ]),
        FromWorker::Purge(tags) => fields([
            ("type", "PURGE".into()),
            ("tag", tags.map(escape).collect::<Vec<_>>().join("\n")),
        ]),
        FromWorker::Files(files) => fields([
            ("type", "FILES".into()),
            ("file", files.map(escape).collect::<Vec<_>>().join("\n")),
        ]),
        FromWorker::Spawned { slot, pid } => fields([
            ("type", "SPAWNED".into()),
            ("slot", slot.to_string()),
            ("pid", pid.to_string()),
        ]),
        FromWorker::Exited { pid, status, processor_time } => fields([
            ("type", "EXITED".into()),
            ("pid", pid.to_string()),
            ("wait_status", status.to_string()),
            ("processor_time", processor_time.to_string()),
        ]),
        FromWorker::Failed { slot, errno } => fields([
            ("type", "FAILED".into()),
            ("slot", slot.to_string()),
            ("errno", errno.to_string()),
        ]),
        FromWorker::Stack { pid, stack, why } => fields([
            ("type", "STACK".into()),
            ("pid", pid.to_string()),
            ("message", escape(stack)),
            ("reason", escape(why)),
        ]),
    }
}

#[test]
fn every_vector_decodes_as_described() {
    let vectors = vectors();
    assert!(vectors.len() > 90, "the vectors are there");
    for vector in vectors {
        let name = vector.get("name");
        let result = decode(&vector.bytes(), vector.sender());
        let verdict = match &result {
            Ok(Some(_)) => "ok",
            Ok(None) => "incomplete",
            Err(Malformed::Type(_)) => "type",
            Err(Malformed::Reserved) => "reserved",
            Err(Malformed::Flags { .. }) => "flags",
            Err(Malformed::Length { .. }) => "length",
            Err(Malformed::Pairs(_)) => "pairs",
            Err(_) => "payload",
        };
        assert_eq!(verdict, vector.get("expect"), "{name}: {result:?}");
        let Ok(Some(read)) = result else { continue };
        for (key, value) in &read {
            let listed: Vec<&str> = vector
                .lines
                .iter()
                .filter(|(listed, _)| listed == key)
                .map(|(_, value)| value.as_str())
                .collect();
            assert_eq!(*value, listed.join("\n"), "{name}: {key}");
        }
        let keys = vector.lines.iter().map(|(key, _)| key.as_str());
        for key in keys.filter(|key| !["name", "from", "hex", "expect", "flags"].contains(key)) {
            assert!(read.contains_key(key), "{name}: {key} was read");
        }
        let flags = wire::peek(&vector.bytes(), vector.sender()).unwrap().unwrap().flags;
        assert_eq!(flags, vector.flags(), "{name}: flags");
    }
}

#[test]
fn every_valid_vector_encodes_as_described() {
    for vector in vectors().into_iter().filter(|vector| vector.get("expect") == "ok") {
        let mut bytes = Vec::new();
        let last = vector.flags() == 1;
        let from_worker =
            matches!(vector.sender(), Sender::Worker | Sender::Zygote | Sender::Broker);
        if vector.sender() == Sender::Broker && vector.get("type") != "BODY" {
            write_for_caller(&vector, &mut bytes);
            assert_eq!(bytes, vector.bytes(), "{}", vector.get("name"));
            continue;
        }
        match vector.get("type") {
            "REQUEST" => {
                let length = match vector.get("content_length") {
                    "unknown" => NO_LENGTH,
                    _ => vector.number("content_length"),
                };
                let mut writer = RequestWriter::new(&mut bytes, vector.number("protocol"), length);
                vector.pairs().for_each(|(name, value)| writer.pair(&name, &value));
                writer.finish(last).unwrap();
            }
            "BODY" if from_worker => wire::send::response_body(&mut bytes, &vector.text("bytes")),
            "BODY" => wire::send::body(&mut bytes, &vector.text("bytes"), last),
            "OPEN" => wire::send::open(&mut bytes, &vector.text("token")),
            "CALL" => {
                let coming = match vector.get("flags") {
                    "LAST" => CallBody::None,
                    "WHOLE" => CallBody::Whole,
                    _ => CallBody::Asked,
                };
                let (control, head) = (vector.text("control"), vector.text("head"));
                wire::send::call(&mut bytes, &control, &head, coming).unwrap();
            }
            "ABORT" => wire::send::abort(&mut bytes),
            "SPAWN" => wire::send::spawn(&mut bytes, vector.number("slot")),
            "KILL" => wire::send::kill(&mut bytes, vector.number("pid"), vector.number("signal")),
            "TRACE" => wire::send::trace(&mut bytes, vector.number("pid")),
            "STACK" => wire::send::stack(
                &mut bytes,
                vector.number("pid"),
                &vector.text("message"),
                &vector.text("reason"),
            ),
            "HELLO" => wire::send::hello(
                &mut bytes,
                vector.number("version"),
                vector.number("pid"),
                vector.get("php"),
            ),
            "READY" => wire::send::ready(&mut bytes),
            "INFORM" | "HEAD" => {
                let reason = String::from_utf8(vector.text("reason")).unwrap();
                let mut writer = ResponseWriter::new(&mut bytes, vector.number("status"), &reason);
                vector.pairs().for_each(|(name, value)| writer.pair(&name, &value));
                writer.finish().unwrap();
            }
            "END" => wire::send::end(&mut bytes, vector.flags(), vector.number("took")),
            "LOG" => wire::send::log(
                &mut bytes,
                vector.number("level"),
                vector.number("source"),
                &vector.text("message"),
                &vector.text("context"),
            ),
            "PUBLISH" => {
                let channels: Vec<Vec<u8>> = vector.texts("channel").collect();
                wire::send::publish(
                    &mut bytes,
                    &vector.text("event"),
                    &vector.text("except"),
                    &vector.text("data"),
                    channels.iter().map(Vec::as_slice),
                )
                .unwrap();
            }
            "PURGE" => {
                let tags: Vec<Vec<u8>> = vector.texts("tag").collect();
                wire::send::purge(&mut bytes, tags.iter().map(Vec::as_slice)).unwrap();
            }
            "FILES" => {
                let files: Vec<Vec<u8>> = vector.texts("file").collect();
                wire::send::files(&mut bytes, files.iter().map(Vec::as_slice));
            }
            "SPAWNED" => {
                wire::send::spawned(&mut bytes, vector.number("slot"), vector.number("pid"));
            }
            "EXITED" => {
                let processor_time = vector.number("processor_time");
                let (pid, status) = (vector.number("pid"), vector.number("wait_status"));
                wire::send::exited(&mut bytes, pid, status, processor_time);
            }
            "FAILED" => {
                wire::send::failed(&mut bytes, vector.number("slot"), vector.number("errno"));
            }
            other => panic!("unknown type {other}"),
        }
        assert_eq!(bytes, vector.bytes(), "{}", vector.get("name"));
    }
}

fn write_for_caller(vector: &Vector, bytes: &mut Vec<u8>) {
    let (head, address) = (vector.text("head"), vector.text("address"));
    let (reason, message) = (vector.text("reason"), vector.text("message"));
    match vector.get("type") {
        "WANT" => wire::send::want(bytes),
        "INTERIM" => wire::send::interim(bytes, &head),
        "TRAILERS" => wire::send::trailers(bytes, &head),
        "END" => wire::send::done(bytes),
        "ANSWER" => {
            let answer = AnswerHead {
                resolved: vector.number("resolved"),
                connected: vector.number("connected"),
                secured: vector.number("secured"),
                first_byte: vector.number("first_byte"),
                protocol: vector.number("protocol"),
                reused: vector.get("reused") == "1",
                port: vector.number("port"),
                address: &address,
                head: &head,
            };
            wire::send::answer_head(bytes, &answer).unwrap();
        }
        kind => {
            let why = NoAnswer {
                errno: vector.number("errno"),
                port: vector.number("port"),
                reason: &reason,
                address: &address,
                message: &message,
            };
            wire::send::no_answer_at_all(bytes, kind == "FAILED", &why);
        }
    }
}

#[test]
fn a_call_above_the_limits_is_not_written() {
    let mut bytes = vec![1];
    let large = vec![b'x'; wire::MAX_CALL];
    assert!(wire::send::call(&mut bytes, b"", &large, CallBody::None).is_err());
    assert!(wire::send::call(&mut bytes, &large[..70_000], b"", CallBody::None).is_err());
    let head = vec![b'x'; wire::MAX_PAYLOAD];
    let answer = AnswerHead { protocol: 11, head: &head, ..Default::default() };
    assert!(wire::send::answer_head(&mut bytes, &answer).is_err());
    wire::send::interim(&mut bytes, &vec![b'x'; wire::MAX_PAYLOAD + 1]);
    assert_eq!(bytes, [1]);
}
