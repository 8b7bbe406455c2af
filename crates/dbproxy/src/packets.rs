//! Finds packet boundaries in a client's data, to keep its closing command from the server, whose session stays open.

/// The packet format of logged-in clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Not tracked here: there is no closing command, and `redis::Relogin` tracks command boundaries.
    None,
    /// A length of three bytes, a number, and as many bytes.
    MySql,
    /// A letter, a length of four bytes that counts itself, and the rest.
    Postgres,
}

/// Tracks one client.
#[derive(Debug)]
pub(crate) struct Packets {
    packing: Packing,
    header: [u8; 5],
    /// Number of known bytes of `header`.
    known: usize,
    /// Number of bytes missing from the packet.
    missing: u64,
    /// A command was sent that makes the session unusable for others: it changed the user, prepared a transaction, or
    /// was profiled.
    spoilt: bool,
    /// The packet is a statement, whose words are checked.
    statement: Option<Statement>,
}

/// Searches SQL for statements that no reset undoes, in any notation: for words in sequence, with anything in
/// between. After
/// `COM_RESET_CONNECTION` a session of `MariaDB` that has executed `XA PREPARE` can use no `InnoDB` table any more,
/// and its locks stay forever; after a `SET` of `profiling` or
/// `optimizer_trace` it shows its last statements to others; before `MariaDB` 10.11.19 and 11.8.9 it continues the random
/// numbers of a `SET` of `rand_seed1`. After `DISCARD ALL` a session of `PostgreSQL` keeps its replication origin.
#[derive(Debug)]
struct Statement {
    packing: Packing,
    /// The word being read, in capitals and without leading digits: those of `/*!50000XA` belong to the comment.
    word: [u8; 36],
    length: usize,
    /// `XA` was found.
    xa: bool,
    /// `SET` was found anywhere: in a literal or in a block it may be a statement too.
    sets: bool,
}

impl Statement {
    fn new(packing: Packing) -> Self {
        Self { packing, word: [0; 36], length: 0, xa: false, sets: false }
    }

    /// Returns whether the statement with `bytes` is one that no reset undoes.
    fn stays(&mut self, bytes: &[u8]) -> bool {
        let mut stays = false;
        for byte in bytes {
            match byte {
                b'0'..=b'9' if self.length == 0 => {}
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'$' | 0x80.. => {
                    if let Some(place) = self.word.get_mut(self.length) {
                        *place = byte.to_ascii_uppercase();
                        self.length += 1;
                    }
                }
                _ => stays |= self.word_ends(),
            }
        }
        stays
    }

    fn word_ends(&mut self) -> bool {
        let word = &self.word[..self.length];
        let stays = match self.packing {
            Packing::Postgres => word == b"PG_REPLICATION_ORIGIN_SESSION_SETUP",
            _ => (self.xa && word == b"PREPARE") || (self.sets && KEPT_SETTINGS.contains(&word)),
        };
        self.xa |= word == b"XA";
        self.sets |= word == b"SET";
        self.length = 0;
        stays
    }
}

/// Variables of `MySQL` and `MariaDB` whose effect `COM_RESET_CONNECTION` keeps.
const KEPT_SETTINGS: [&[u8]; 4] = [b"PROFILING", b"OPTIMIZER_TRACE", b"RAND_SEED1", b"RAND_SEED2"];

/// `MySQL`: protocol documentation, "Command Phase".
const COM_QUIT: u8 = 0x01;
const COM_QUERY: u8 = 0x03;
const COM_CHANGE_USER: u8 = 0x11;
const COM_STMT_PREPARE: u8 = 0x16;

impl Packets {
    pub(crate) fn new(packing: Packing) -> Self {
        Self { packing, header: [0; 5], known: 0, missing: 0, spoilt: false, statement: None }
    }

    /// Tracks `bytes`; returns how many of them are for the server. The rest, if any, is the closing command and the
    /// end of the data.
    pub(crate) fn follow(&mut self, bytes: &[u8]) -> usize {
        if self.packing == Packing::None {
            return bytes.len();
        }
        let mut at = 0;
        let mut goodbye = None;
        while at < bytes.len() {
            goodbye = None;
            if self.missing > 0 {
                let skipped =
                    usize::try_from(self.missing).unwrap_or(usize::MAX).min(bytes.len() - at);
                self.look_at(&bytes[at..at + skipped]);
                at += skipped;
                self.missing -= skipped as u64;
                continue;
            }
            self.header[self.known] = bytes[at];
            self.known += 1;
            at += 1;
            // For MySQL the first content byte is checked too; a packet may be empty.
            let empty =
                self.packing == Packing::MySql && self.known == 4 && self.header[..3] == [0; 3];
            if self.known < 5 && !empty {
                continue;
            }
            let whole = at >= self.known;
            self.known = 0;
            match self.packing {
                Packing::MySql if empty => {}
                Packing::MySql => {
                    let [a, b, c, number, first] = self.header;
                    let length = u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16;
                    self.missing = length - 1;
                    if number == 0 {
                        let is_statement = matches!(first, COM_QUERY | COM_STMT_PREPARE);
                        self.statement = is_statement.then(|| Statement::new(self.packing));
                        self.spoilt |= first == COM_CHANGE_USER;
                    } else {
                        // The rest of a statement longer than a packet, or no statement at all.
                        self.look_at(&[first]);
                    }
                    if number == 0 && first == COM_QUIT && length == 1 && whole {
                        goodbye = Some(at - 5);
                    }
                }
                _ => {
                    let [letter, length @ ..] = self.header;
                    let length = u32::from_be_bytes(length);
                    self.missing = u64::from(length).saturating_sub(4);
                    self.statement =
                        matches!(letter, b'Q' | b'P').then(|| Statement::new(self.packing));
                    if letter == b'X' && length == 4 && whole {
                        goodbye = Some(at - 5);
                    }
                }
            }
        }
        goodbye.unwrap_or(bytes.len())
    }

    fn look_at(&mut self, bytes: &[u8]) {
        if let Some(statement) = &mut self.statement {
            self.spoilt |= statement.stays(bytes);
        }
    }

    /// Returns whether no packet is incomplete, and the session can be reused.
    pub(crate) fn is_whole(&self) -> bool {
        self.known == 0 && self.missing == 0 && !self.spoilt
    }
}

/// The last bytes received from a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail([u8; 6]);

impl Tail {
    pub(crate) fn new(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }

    pub(crate) fn follow(&mut self, bytes: &[u8]) {
        let size = self.0.len();
        if let Some(last) = bytes.last_chunk::<6>() {
            self.0 = *last;
        } else {
            self.0.rotate_left(bytes.len());
            self.0[size - bytes.len()..].copy_from_slice(bytes);
        }
    }

    pub(crate) fn bytes(self) -> [u8; 6] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QUIT: &[u8] = &[1, 0, 0, 0, COM_QUIT];
    const PING: &[u8] = &[1, 0, 0, 0, 0x0e];
    const TERMINATE: &[u8] = b"X\0\0\0\x04";

    fn query(letter: u8, text: &[u8]) -> Vec<u8> {
        let length = u32::try_from(text.len() + 4).unwrap();
        [&[letter][..], &length.to_be_bytes(), text].concat()
    }

    #[test]
    fn a_final_quit_is_not_forwarded() {
        let mut packets = Packets::new(Packing::MySql);
        assert_eq!(packets.follow(&[PING, QUIT].concat()), PING.len());
        assert!(packets.is_whole());
        let mut packets = Packets::new(Packing::Postgres);
        let text = query(b'Q', b"select 1\0");
        assert_eq!(packets.follow(&[&text, TERMINATE].concat()), text.len());
        assert!(packets.is_whole());
    }

    #[test]
    fn a_quit_inside_a_packet_is_forwarded() {
        let mut packets = Packets::new(Packing::MySql);
        let sent = [&[6, 0, 0, 0, 3][..], QUIT].concat();
        assert_eq!(packets.follow(&sent), sent.len());
        // data of a file that the server has requested: the number is not 0
        assert_eq!(packets.follow(&[1, 0, 0, 3, COM_QUIT]), 5);
        assert_eq!(packets.follow(&[0, 0, 0, 4]), 4);
        assert!(packets.is_whole());
        let mut packets = Packets::new(Packing::Postgres);
        let sent = query(b'd', TERMINATE);
        assert_eq!(packets.follow(&sent), sent.len());
    }

    #[test]
    fn a_half_sent_packet_is_incomplete() {
        let mut packets = Packets::new(Packing::Postgres);
        assert_eq!(packets.follow(b"Q\0\0"), 3);
        assert!(!packets.is_whole());
        assert_eq!(packets.follow(b"\0\x05"), 2);
        assert!(!packets.is_whole());
        assert_eq!(packets.follow(b"\0"), 1);
        assert!(packets.is_whole());
    }

    #[test]
    fn a_postgresql_session_with_a_replication_origin_is_not_shared() {
        for (text, spoils) in [
            ("select pg_replication_origin_session_setup('a')\0", true),
            ("SELECT pg_catalog.\"pg_replication_origin_session_setup\" ('a')\0", true),
            ("name\0select PG_REPLICATION_ORIGIN_SESSION_SETUP('a')\0", true),
            ("select pg_replication_origin_session_reset()\0", false),
            ("update a set profiling = 'xa prepare'\0", false),
        ] {
            for letter in [b'Q', b'P', b'd'] {
                for size in [1, 7, 1000] {
                    let mut packets = Packets::new(Packing::Postgres);
                    for piece in query(letter, text.as_bytes()).chunks(size) {
                        packets.follow(piece);
                    }
                    let is_whole = !spoils || letter == b'd';
                    assert_eq!(packets.is_whole(), is_whole, "{text} {letter} {size}");
                }
            }
        }
    }

    #[test]
    fn a_session_of_another_user_is_not_shared() {
        let mut packets = Packets::new(Packing::MySql);
        packets.follow(&[2, 0, 0, 0, COM_CHANGE_USER, 0]);
        assert!(!packets.is_whole());
    }

    /// Returns a command of `MySQL` in one packet, or split into several as if they had the maximum length.
    fn command(kind: u8, text: &str, cut: usize) -> Vec<u8> {
        let content = [&[kind][..], text.as_bytes()].concat();
        let pieces = content.chunks(cut).enumerate();
        pieces
            .flat_map(|(number, piece)| {
                [
                    &[u8::try_from(piece.len()).unwrap(), 0, 0, u8::try_from(number).unwrap()][..],
                    piece,
                ]
                .concat()
            })
            .collect()
    }

    #[test]
    fn a_session_with_unresettable_state_is_not_shared() {
        for (text, spoils) in [
            ("xa prepare 'a'", true),
            ("select 1; XA\n\tPrepare 'a'", true),
            ("/*!50000XA/**/PREPARE 'a' */", true),
            ("execute immediate 'xa prepare 1'", true),
            ("xa start 'a'", false),
            ("prepare s from 'select 1'", false),
            ("select prepare from xa", false),
            ("select exxa, prepared, xa_, prepare_", false),
            ("select xa, xxprepare, preparer from t", false),
            ("set profiling=1", true),
            ("set session optimizer_trace='enabled=on'", true),
            ("select optimizer_trace from settings", false),
            ("SET sql_mode='ANSI', @@session.Profiling := 1", true),
            ("select 1; set `profiling`=1", true),
            ("/*!50000SET profiling=1*/", true),
            ("execute immediate 'set profiling=1'", true),
            ("select profiling from settings", false),
            ("SET @a = 1, @@session.Rand_Seed2 := 2", true),
            ("set rand_seed1=1", true),
            ("select @@rand_seed1, rand()", false),
            ("/* app */ SET profiling=1", true),
            ("-- one\nset profiling=1", true),
            ("begin not atomic set profiling=1; end", true),
            ("update offsets_set, my_settings profiling", false),
            ("set profiling_history_size = 0, profilings = 0, profil = 0", false),
        ] {
            for kind in [COM_QUERY, COM_STMT_PREPARE, 0x17] {
                for cut in [3, 200] {
                    let sent = command(kind, text, cut);
                    for size in [1, 7, sent.len()] {
                        let mut packets = Packets::new(Packing::MySql);
                        for piece in sent.chunks(size) {
                            packets.follow(piece);
                        }
                        packets.follow(&command(COM_QUERY, "prepare s from 'select 1'", 200));
                        let is_whole = !(spoils && kind != 0x17);
                        assert_eq!(packets.is_whole(), is_whole, "{text} {kind} {cut} {size}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_tail_is_the_last_bytes_in_any_pieces() {
        let mut tail = Tail::new(*b"abcdef");
        tail.follow(b"gh");
        assert_eq!(&tail.bytes(), b"cdefgh");
        tail.follow(b"0123456789");
        assert_eq!(&tail.bytes(), b"456789");
        tail.follow(b"");
        assert_eq!(&tail.bytes(), b"456789");
    }

    proptest! {
        /// However they are split, packets are tracked the same way, and only a closing command is held back.
        #[test]
        fn splitting_changes_nothing(texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8), cut in any::<prop::sample::Index>()) {
            for packing in [Packing::MySql, Packing::Postgres] {
                let mut bytes = Vec::new();
                for text in &texts {
                    match packing {
                        Packing::MySql => {
                            bytes.extend([u8::try_from(text.len()).unwrap(), 0, 0, 1]);
                            bytes.extend(text);
                        }
                        _ => bytes.extend(query(b'Q', text)),
                    }
                }
                let at = if bytes.is_empty() { 0 } else { cut.index(bytes.len()) };
                let mut packets = Packets::new(packing);
                prop_assert_eq!(packets.follow(&bytes[..at]), at);
                prop_assert_eq!(packets.follow(&bytes[at..]), bytes.len() - at);
                prop_assert!(packets.is_whole());
            }
        }
    }
}
