//! Reads of an application's boot beside code, as its worker program reports it: request data, the clock, random numbers, the environment,
//! databases, the network and files. For a check, not for a server.
//!
//! Invariants
//! - The texts are the process's own and not trusted: they are bounded in number and size.

use std::sync::Mutex;

/// Receives the reads of a boot ([`crate::Options::boot_trace`]).
#[derive(Debug, Default)]
pub struct BootTrace(Mutex<Vec<String>>);

impl BootTrace {
    /// Maximum number of reads that are kept.
    const READS: usize = 8192;

    /// Returns the reads so far, each a JSON object with `kind`, `what`, `file`, `line`, `caller`, `caller_line` and `count`.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no holder panics"))
    }

    pub(crate) fn report(&self, read: &[u8]) {
        let mut reads = self.0.lock().expect("no holder panics");
        if reads.len() < Self::READS {
            reads.push(String::from_utf8_lossy(read).into_owned());
        }
    }
}
