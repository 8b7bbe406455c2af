//! Defines the format of the packets that nodes exchange over the broker.
//!
//! A packet is `H1`, the node (`u64`), the packet number (`u64`) and the round in which it begins (`u32`), followed
//! by records. A record is a letter, the length of its body (`u32`) and the body. Integers are little-endian; strings
//! are preceded by their length (`u32`).

use std::sync::Arc;
use std::time::Duration;

use crate::name::ChannelName;
use crate::nodes::{ClusterUpdate, NodeId};
use crate::presence::Member;
use crate::registry::{Author, Publication};

const MARK: &[u8] = b"H1";

/// Length of the header in bytes.
pub(super) const HEADER: usize = 2 + 8 + 8 + 4;

/// A packet that no node of this version can have sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a packet of this version")]
pub(super) struct Malformed;

/// The header before the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) node: NodeId,
    /// Packet number; it starts at 1 and increases by one with each packet of a node.
    pub(super) number: u64,
    /// The round of the first record.
    pub(super) round: u32,
}

impl Header {
    pub(super) fn write(self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..2].copy_from_slice(MARK);
        out[2..10].copy_from_slice(&self.node.0.to_le_bytes());
        out[10..18].copy_from_slice(&self.number.to_le_bytes());
        out[18..].copy_from_slice(&self.round.to_le_bytes());
        out
    }

    /// Returns the header of a packet.
    pub(super) fn of(packet: &[u8]) -> Option<Self> {
        header(packet).ok().map(|(header, _)| header)
    }
}

/// One record of a packet.
#[derive(Debug)]
pub(super) enum Record<'a> {
    /// The node is alive; `ready` says whether it reports channel events.
    Beat { ready: bool },
    /// Requests that `to` publishes its whole state in a round after `seen`.
    Ask { to: NodeId, seen: u32 },
    /// Starts a round; the following updates contain the whole state.
    Begin { round: u32 },
    /// Ends the round; the whole state has been sent.
    End { round: u32 },
    /// The node stops.
    Bye,
    /// An update of an application.
    Update { app: &'a str, update: PacketUpdate<'a> },
}

/// An update as it stands in a packet.
#[derive(Debug)]
pub(super) enum PacketUpdate<'a> {
    Published {
        channel: ChannelName,
        event: &'a str,
        data: &'a str,
        author: PacketAuthor<'a>,
    },
    Last {
        channel: ChannelName,
        message: &'a str,
        age: Duration,
    },
    Subscribers {
        channel: ChannelName,
        count: u32,
    },
    Member {
        channel: ChannelName,
        member: Arc<Member>,
    },
    NoMember {
        channel: ChannelName,
        user: &'a str,
    },
    Online(Arc<str>),
    Offline(Arc<str>),
    /// Terminates a user's connections. `number` increases by one each time; `again` marks a repetition for nodes
    /// that may have missed it.
    Terminated {
        user: &'a str,
        number: u64,
        again: bool,
    },
}

/// The author of an event.
#[derive(Debug)]
pub(super) enum PacketAuthor<'a> {
    Server { except: Option<&'a str> },
    Client { socket: &'a str, user: Option<Arc<str>> },
}

impl PacketUpdate<'_> {
    /// Passes the update's event, if it is one.
    pub(super) fn with_publication(&self, apply: impl FnOnce(&Publication<'_>)) {
        self.with_update(|update| {
            if let ClusterUpdate::Published(publication) = update {
                apply(publication);
            }
        });
    }

    /// Passes the update to `apply_remote` in the registry's form. A malformed socket id excludes no socket.
    pub(super) fn with_update(&self, apply: impl FnOnce(&ClusterUpdate<'_>)) {
        match self {
            Self::Published { channel, event, data, author } => {
                let author = match author {
                    PacketAuthor::Server { except } => {
                        Author::Server { except: except.and_then(|id| id.parse().ok()) }
                    }
                    PacketAuthor::Client { socket, user } => match socket.parse() {
                        Ok(socket) => Author::Client { socket, user_id: user.as_ref() },
                        Err(_) => Author::Server { except: None },
                    },
                };
                apply(&ClusterUpdate::Published(&Publication { channel, event, data, author }));
            }
            Self::Last { channel, message, age } => {
                apply(&ClusterUpdate::Last { channel, message, age: *age });
            }
            Self::Subscribers { channel, count } => {
                apply(&ClusterUpdate::Subscribers { channel, count: *count });
            }
            Self::Member { channel, member } => apply(&ClusterUpdate::Member { channel, member }),
            Self::NoMember { channel, user } => {
                apply(&ClusterUpdate::NoMember { channel, user_id: user });
            }
            Self::Online(user) => apply(&ClusterUpdate::Online { user_id: user }),
            Self::Offline(user) => apply(&ClusterUpdate::Offline { user_id: user }),
            Self::Terminated { user, .. } => apply(&ClusterUpdate::Terminated { user_id: user }),
        }
    }
}

/// Appends records to a packet.
pub(super) struct Writer<'a>(pub(super) &'a mut Vec<u8>);

impl Writer<'_> {
    fn record(&mut self, letter: u8, fill: impl FnOnce(&mut Self)) {
        self.0.push(letter);
        let start = self.0.len();
        self.0.extend_from_slice(&[0; 4]);
        fill(self);
        let length =
            u32::try_from(self.0.len() - start - 4).expect("messages are bounded far below 4 GiB");
        self.0[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    fn number(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.extend_from_slice(bytes.as_ref());
    }

    fn text(&mut self, text: &str) {
        let length = u32::try_from(text.len()).expect("messages are bounded far below 4 GiB");
        self.number(length.to_le_bytes());
        self.0.extend_from_slice(text.as_bytes());
    }

    fn texts(&mut self, texts: &[&str]) {
        for text in texts {
            self.text(text);
        }
    }

    pub(super) fn beat(&mut self, ready: bool) {
        self.record(b'b', |out| out.0.push(u8::from(ready)));
    }

    pub(super) fn request_state(&mut self, to: NodeId, seen: u32) {
        self.record(b'a', |out| {
            out.number(to.0.to_le_bytes());
            out.number(seen.to_le_bytes());
        });
    }

    pub(super) fn begin(&mut self, round: u32) {
        self.record(b'g', |out| out.number(round.to_le_bytes()));
    }

    pub(super) fn end(&mut self, round: u32) {
        self.record(b'e', |out| out.number(round.to_le_bytes()));
    }

    pub(super) fn bye(&mut self) {
        self.record(b'x', |_| {});
    }

    /// Writes the termination of a user's connections; `again` marks a repetition for nodes that may have missed it.
    pub(super) fn terminated(&mut self, app: &str, user: &str, number: u64, again: bool) {
        self.record(if again { b'R' } else { b'T' }, |out| {
            out.texts(&[app, user]);
            out.number(number.to_le_bytes());
        });
    }

    pub(super) fn update(&mut self, app: &str, update: &ClusterUpdate<'_>) {
        match update {
            ClusterUpdate::Published(Publication { channel, event, data, author }) => {
                self.record(b'P', |out| {
                    let (letter, socket, user) = match author {
                        Author::Server { except } => (b's', except.map(|id| id.to_string()), None),
                        Author::Client { socket, user_id } => {
                            (b'c', Some(socket.to_string()), *user_id)
                        }
                    };
                    out.texts(&[app, channel.as_str(), event, data]);
                    out.0.push(letter);
                    out.text(socket.as_deref().unwrap_or_default());
                    out.0.push(u8::from(user.is_some()));
                    out.text(user.map_or("", |user| user));
                });
            }
            ClusterUpdate::Last { channel, message, age } => self.record(b'L', |out| {
                out.texts(&[app, channel.as_str(), message]);
                out.number(u64::try_from(age.as_millis()).unwrap_or(u64::MAX).to_le_bytes());
            }),
            ClusterUpdate::Subscribers { channel, count } => self.record(b'S', |out| {
                out.texts(&[app, channel.as_str()]);
                out.number(count.to_le_bytes());
            }),
            ClusterUpdate::Member { channel, member } => self.record(b'M', |out| {
                out.texts(&[app, channel.as_str(), member.id()]);
                out.0.push(u8::from(member.info().is_some()));
                out.text(member.info().unwrap_or_default());
            }),
            ClusterUpdate::NoMember { channel, user_id } => {
                self.record(b'N', |out| out.texts(&[app, channel.as_str(), user_id]));
            }
            ClusterUpdate::Online { user_id } => {
                self.record(b'O', |out| out.texts(&[app, user_id]));
            }
            ClusterUpdate::Offline { user_id } => {
                self.record(b'F', |out| out.texts(&[app, user_id]));
            }
            // It carries a number and has its own record: [`Writer::terminated`].
            ClusterUpdate::Terminated { .. } => {}
        }
    }
}

/// Parses the header and returns it with the bytes that follow.
fn header(packet: &[u8]) -> Result<(Header, &[u8]), Malformed> {
    let mut reader = Reader(packet.strip_prefix(MARK).ok_or(Malformed)?);
    let header = Header {
        node: NodeId(u64::from_le_bytes(reader.take()?)),
        number: u64::from_le_bytes(reader.take()?),
        round: u32::from_le_bytes(reader.take()?),
    };
    Ok((header, reader.0))
}

/// Parses all records. Records of unknown kinds are skipped, because a newer version may send more.
fn records(mut bytes: &[u8]) -> Result<Vec<Record<'_>>, Malformed> {
    let mut records = Vec::new();
    while let Some((letter, rest)) = bytes.split_first() {
        let mut reader = Reader(rest);
        let length = reader.length()?;
        let (fields, rest) = reader.0.split_at_checked(length).ok_or(Malformed)?;
        records.extend(Reader(fields).record(*letter)?);
        bytes = rest;
    }
    Ok(records)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn length(&mut self) -> Result<usize, Malformed> {
        usize::try_from(u32::from_le_bytes(self.take()?)).map_err(|_too_long| Malformed)
    }

    fn text(&mut self) -> Result<&'a str, Malformed> {
        let length = self.length()?;
        let (text, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        str::from_utf8(text).map_err(|_no_text| Malformed)
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        let [flag] = self.take()?;
        Ok(flag != 0)
    }

    fn optional(&mut self) -> Result<Option<&'a str>, Malformed> {
        let is_there = self.flag()?;
        let text = self.text()?;
        Ok(is_there.then_some(text))
    }

    fn channel(&mut self) -> Result<ChannelName, Malformed> {
        // The node that accepted the name has checked its length.
        ChannelName::new(self.text()?, usize::MAX).map_err(|_no_name| Malformed)
    }

    fn record(mut self, letter: u8) -> Result<Option<Record<'a>>, Malformed> {
        let record = match letter {
            b'b' => Record::Beat { ready: self.flag()? },
            b'a' => Record::Ask {
                to: NodeId(u64::from_le_bytes(self.take()?)),
                seen: u32::from_le_bytes(self.take()?),
            },
            b'g' => Record::Begin { round: u32::from_le_bytes(self.take()?) },
            b'e' => Record::End { round: u32::from_le_bytes(self.take()?) },
            b'x' => Record::Bye,
            b'P' | b'L' | b'S' | b'M' | b'N' | b'O' | b'F' | b'T' | b'R' => {
                let app = self.text()?;
                Record::Update { app, update: self.update(letter)? }
            }
            _ => return Ok(None),
        };
        Ok(Some(record))
    }

    fn update(&mut self, letter: u8) -> Result<PacketUpdate<'a>, Malformed> {
        Ok(match letter {
            b'O' => PacketUpdate::Online(self.text()?.into()),
            b'F' => PacketUpdate::Offline(self.text()?.into()),
            b'T' | b'R' => PacketUpdate::Terminated {
                user: self.text()?,
                number: u64::from_le_bytes(self.take()?),
                again: letter == b'R',
            },
            _ => {
                let channel = self.channel()?;
                match letter {
                    b'P' => {
                        let (event, data) = (self.text()?, self.text()?);
                        let [letter] = self.take()?;
                        let socket = self.text()?;
                        let user = self.optional()?.map(Arc::from);
                        let author = match letter {
                            b's' => PacketAuthor::Server {
                                except: Some(socket).filter(|socket| !socket.is_empty()),
                            },
                            b'c' => PacketAuthor::Client { socket, user },
                            _ => return Err(Malformed),
                        };
                        PacketUpdate::Published { channel, event, data, author }
                    }
                    b'L' => {
                        let message = self.text()?;
                        PacketUpdate::Last {
                            channel,
                            message,
                            age: Duration::from_millis(u64::from_le_bytes(self.take()?)),
                        }
                    }
                    b'S' => PacketUpdate::Subscribers {
                        channel,
                        count: u32::from_le_bytes(self.take()?),
                    },
                    b'M' => {
                        let id = self.text()?;
                        PacketUpdate::Member {
                            channel,
                            member: Arc::new(Member::new(id, self.optional()?)),
                        }
                    }
                    _ => PacketUpdate::NoMember { channel, user: self.text()? },
                }
            }
        })
    }
}

/// A parsed packet.
#[derive(Debug)]
pub(super) struct Packet<'a> {
    pub(super) header: Header,
    pub(super) records: Vec<Record<'a>>,
}

impl<'a> Packet<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (header, rest) = header(bytes)?;
        Ok(Self { header, records: records(rest)? })
    }

    /// Returns the ids of the applications that the packet concerns, each once.
    pub(super) fn apps(&self) -> Vec<&'a str> {
        let mut apps: Vec<&str> = Vec::new();
        for record in &self.records {
            if let Record::Update { app, .. } = record
                && !apps.contains(app)
            {
                apps.push(app);
            }
        }
        apps
    }
}

#[cfg(test)]
mod tests;
