use proptest::prelude::*;

use super::*;
use crate::socket_id::SocketId;

const HEAD: Header = Header { node: NodeId(7), number: 3, round: 2 };

fn packet(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = HEAD.write().to_vec();
    write(&mut Writer(&mut bytes));
    bytes
}

fn channel(name: &str) -> ChannelName {
    ChannelName::new(name, 200).unwrap()
}

/// Passes one update of each kind to `publish`.
fn all_updates(publish: &mut dyn FnMut(&ClusterUpdate<'_>)) {
    let (a, presence, user) = (channel("a"), channel("presence-a"), Arc::from("u\"ä"));
    let socket = SocketId::from_random(12_345_678_901);
    for author in [
        Author::Server { except: None },
        Author::Server { except: Some(socket) },
        Author::Client { socket, user_id: None },
        Author::Client { socket, user_id: Some(&user) },
    ] {
        publish(&ClusterUpdate::Published(&Publication {
            channel: &a,
            event: "n",
            data: r#"{"x":"ä"}"#,
            author,
        }));
    }
    publish(&ClusterUpdate::Last { channel: &a, message: "{}", age: Duration::from_millis(1234) });
    publish(&ClusterUpdate::Subscribers { channel: &a, count: 17 });
    for info in [None, Some("{}")] {
        publish(&ClusterUpdate::Member {
            channel: &presence,
            member: &Arc::new(Member::new("7", info)),
        });
    }
    publish(&ClusterUpdate::NoMember { channel: &presence, user_id: "7" });
    publish(&ClusterUpdate::Online { user_id: &user });
    publish(&ClusterUpdate::Offline { user_id: &user });
}

#[test]
fn all_updates_arrive_unchanged() {
    let mut told = Vec::new();
    let bytes = packet(|out| {
        all_updates(&mut |update| {
            told.push(format!("{update:?}"));
            out.update("app", update);
        });
        out.terminated("app", "7", 9, true);
    });
    told.push(String::from("Terminated { user_id: \"7\" }"));
    let packet = Packet::read(&bytes).unwrap();
    assert_eq!((packet.header, packet.apps()), (HEAD, vec!["app"]));
    let mut heard = Vec::new();
    for record in &packet.records {
        let Record::Update { update, .. } = record else { panic!("{record:?}") };
        update.with_update(|update| heard.push(format!("{update:?}")));
    }
    assert_eq!(heard, told);
}

#[test]
fn a_truncated_packet_is_rejected_and_unknown_records_are_skipped() {
    let bytes = packet(|out| all_updates(&mut |update| out.update("app", update)));
    let ends: Vec<usize> =
        (0..=bytes.len()).filter(|length| Packet::read(&bytes[..*length]).is_ok()).collect();
    // A packet may be cut only between two of its twelve records or before the first.
    assert_eq!((ends.len(), ends.last()), (12, Some(&bytes.len())));
    let more = packet(|out| {
        out.beat(true);
        out.record(b'?', |out| out.text("from a newer version"));
        out.bye();
    });
    assert!(matches!(
        &*Packet::read(&more).unwrap().records,
        [Record::Beat { ready: true }, Record::Bye]
    ));
}

#[test]
fn an_invalid_socket_id_excludes_no_socket() {
    let author = PacketAuthor::Client { socket: "no socket", user: None };
    let update = PacketUpdate::Published { channel: channel("a"), event: "n", data: "1", author };
    update.with_update(|update| {
        let ClusterUpdate::Published(publication) = update else { panic!("{update:?}") };
        assert!(matches!(publication.author, Author::Server { except: None }));
    });
}

proptest! {
    #[test]
    fn any_bytes_from_a_broker_are_handled(bytes: Vec<u8>, ours: bool) {
        let bytes = if ours { [&HEAD.write()[..], &bytes].concat() } else { bytes };
        if let Ok(packet) = Packet::read(&bytes) {
            for record in packet.records {
                if let Record::Update { update, .. } = record {
                    update.with_update(|_| {});
                }
            }
        }
    }
}
