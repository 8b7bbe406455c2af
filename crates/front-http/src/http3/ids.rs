//! Connection ids of QUIC. Each names the process that made it, so that after an upgrade of the server a packet
//! reaches the process that has its connection.
//!
//! Invariants
//! - A process recognises its own ids, and no id of another one, but for one in four billion.
//! - Apart from that number an id is random: two ids of one connection have nothing else in common.

use std::time::Duration;

use quinn::{ConnectionId, ConnectionIdGenerator};
use rustls::crypto::{SecureRandom, ring};

/// Number of bytes of an id: the process, then random ones.
const LENGTH: usize = 12;
const PROCESS: usize = 4;

/// The process that made an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(pub(crate) u32);

impl Process {
    /// Returns a new number for this process.
    pub(crate) fn new() -> Self {
        let mut bytes = [0; PROCESS];
        fill(&mut bytes);
        Self(u32::from_be_bytes(bytes))
    }

    /// Returns the process that made the id in a packet; `None` if a client chose the id, or it is no packet.
    pub(crate) fn of_packet(packet: &[u8]) -> Option<Self> {
        let (&first, rest) = packet.split_first()?;
        let is_long = first & 0x80 != 0;
        let id = if is_long {
            // Version, then the id with its length (RFC 8999, section 5.1).
            let (&length, rest) = rest.get(PROCESS..)?.split_first()?;
            if usize::from(length) != LENGTH {
                return None;
            }
            rest
        } else {
            rest
        };
        let process = id.get(..LENGTH)?.first_chunk::<PROCESS>()?;
        Some(Self(u32::from_be_bytes(*process)))
    }
}

/// Makes ids that name `process`.
#[derive(Debug)]
pub(crate) struct Ids(pub(crate) Process);

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut bytes = [0; LENGTH];
        let (process, random) = bytes.split_at_mut(PROCESS);
        process.copy_from_slice(&self.0.0.to_be_bytes());
        fill(random);
        ConnectionId::new(&bytes)
    }

    fn cid_len(&self) -> usize {
        LENGTH
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

fn fill(bytes: &mut [u8]) {
    let random: &dyn SecureRandom = ring::default_provider().secure_random;
    random.fill(bytes).expect("the system has random numbers");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_recognises_its_own_ids_in_packets_of_both_forms() {
        let process = Process::new();
        let id = Ids(process).generate_cid();
        let short = [&[0x40], &id[..], b"rest"].concat();
        assert_eq!(Process::of_packet(&short), Some(process));
        let long = [&[0xe0, 0, 0, 0, 1, 12], &id[..], &[0], b"rest"].concat();
        assert_eq!(Process::of_packet(&long), Some(process));
    }

    #[test]
    fn an_id_that_a_client_chose_names_no_process() {
        let initial = [&[0xc0, 0, 0, 0, 1, 8], &[7; 8][..], &[0; 40]].concat();
        assert_eq!(Process::of_packet(&initial), None);
        for length in 0..13 {
            assert_eq!(Process::of_packet(&vec![0x40; length]), None, "{length} bytes");
            assert_eq!(Process::of_packet(&vec![0xc0; length]), None, "{length} bytes");
        }
    }

    #[test]
    fn ids_are_all_different() {
        let mut ids = Ids(Process::new());
        assert_ne!(ids.generate_cid(), ids.generate_cid());
    }
}
