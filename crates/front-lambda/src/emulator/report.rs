//! The lines that AWS writes into the log of a function, and the end of that log for callers that request it.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::environment::{Ending, Status};

/// Size of the log that `X-Amz-Log-Type: Tail` returns.
const TAIL: usize = 4096;

/// The end of the log; clones share it. All writers of the function's log write here too.
#[derive(Clone, Debug, Default)]
pub struct LogTail(Arc<Mutex<VecDeque<u8>>>);

impl LogTail {
    /// Appends to the log. Lines include their ends.
    pub fn write(&self, bytes: &[u8]) {
        let mut tail = self.0.lock().expect("no holder panics");
        let bytes = &bytes[bytes.len().saturating_sub(TAIL)..];
        let over = (tail.len() + bytes.len()).saturating_sub(TAIL);
        tail.drain(..over);
        tail.extend(bytes);
    }

    /// Returns at most 4 KB, from the last `START` line of this invocation if that is among them.
    pub(super) fn since_start(&self, id: &str) -> Vec<u8> {
        let tail: Vec<u8> = self.0.lock().expect("no holder panics").iter().copied().collect();
        let start = format!("START RequestId: {id}");
        let at = tail.windows(start.len()).rposition(|window| window == start.as_bytes());
        tail[at.unwrap_or(0)..].to_vec()
    }
}

/// Returns `START RequestId: … Version: $LATEST`.
pub(super) fn start(id: &str, version: &str) -> String {
    format!("START RequestId: {id} Version: {version}")
}

/// Returns `END RequestId: …`.
pub(super) fn end(id: &str) -> String {
    format!("END RequestId: {id}")
}

/// The content of the `REPORT` line besides the ending.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Memory size in MB.
    pub(super) memory_size: u32,
    /// Used memory in bytes.
    pub(super) memory_used: u64,
    /// Duration of the initialization, for the first invocation.
    pub(super) init: Option<Duration>,
    /// Duration of the restore hooks, for the first invocation after a restore.
    pub(super) restore: Option<Duration>,
}

/// Returns `REPORT RequestId: …`, its parts separated by tabs. Since 2025 the initialization is billed too.
pub(super) fn report(id: &str, ending: &Ending, facts: Facts) -> String {
    let duration = milliseconds(ending.duration);
    let billed = milliseconds(ending.duration + facts.init.unwrap_or_default()).ceil();
    let used = facts.memory_used.div_ceil(1 << 20);
    let mut line = format!(
        "REPORT RequestId: {id}\tDuration: {duration:.2} ms\tBilled Duration: {billed:.0} ms\tMemory Size: {} MB\tMax Memory Used: {used} MB\t",
        facts.memory_size
    );
    let mut more = |text: std::fmt::Arguments<'_>| {
        line.write_fmt(text).expect("writing to a String cannot fail");
        line.push('\t');
    };
    if let Some(init) = facts.init {
        more(format_args!("Init Duration: {:.2} ms", milliseconds(init)));
    }
    if let Some(restore) = facts.restore {
        more(format_args!("Restore Duration: {:.2} ms", milliseconds(restore)));
    }
    match &ending.status {
        Status::Success => {}
        Status::Error(kind) => more(format_args!("Status: error\tError Type: {kind}")),
        Status::Timeout => more(format_args!("Status: timeout")),
    }
    line
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_matches_the_format_of_aws() {
        let ending = Ending { duration: Duration::from_micros(1234), status: Status::Success };
        let facts = Facts { memory_size: 128, memory_used: 47 << 20, init: None, restore: None };
        assert_eq!(
            report("id", &ending, facts),
            "REPORT RequestId: id\tDuration: 1.23 ms\tBilled Duration: 2 ms\tMemory Size: 128 MB\tMax Memory Used: 47 MB\t"
        );
        let first = Facts { init: Some(Duration::from_micros(98_760)), ..facts };
        let failed = Ending { status: Status::Error("Runtime.ExitError".into()), ..ending };
        assert_eq!(
            report("id", &failed, first),
            "REPORT RequestId: id\tDuration: 1.23 ms\tBilled Duration: 100 ms\tMemory Size: 128 MB\tMax Memory Used: 47 MB\tInit Duration: 98.76 ms\tStatus: error\tError Type: Runtime.ExitError\t"
        );
    }

    #[test]
    fn the_tail_of_the_log_is_4_kilobytes_from_the_start_of_the_invocation() {
        let tail = LogTail::default();
        tail.write(b"before\nSTART RequestId: a Version: 1\n");
        tail.write(b"hello\n");
        assert_eq!(tail.since_start("a"), b"START RequestId: a Version: 1\nhello\n");
        tail.write(&[b'x'; 10_000]);
        assert_eq!(tail.since_start("a"), [b'x'; 4096]);
    }
}
