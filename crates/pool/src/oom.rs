//! Tells whether the kernel's out-of-memory killer has ended a process: the counter `oom_kill` of `/proc/vmstat` (Linux 4.13), which control groups' kills count in, too.
//!
//! The counter is the machine's: it says that the killer was at work, not which process it ended. Without it nothing is said.

use std::fs;

/// The kills that have been seen.
#[derive(Debug)]
pub(crate) struct Kills(Option<u64>);

impl Kills {
    /// Counts from now on.
    pub(crate) fn since_now() -> Self {
        Self(read())
    }

    /// Returns whether there was a kill since the last call.
    pub(crate) fn is_new(&mut self) -> bool {
        let before = std::mem::replace(&mut self.0, read());
        matches!((before, self.0), (Some(before), Some(now)) if now > before)
    }
}

fn read() -> Option<u64> {
    parse(&fs::read_to_string("/proc/vmstat").ok()?)
}

fn parse(vmstat: &str) -> Option<u64> {
    vmstat.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_counter_is_read_and_a_kernel_without_it_has_none() {
        assert_eq!(parse("pswpin 5\noom_kill 12\noom_killer 3\n"), Some(12));
        assert_eq!(parse("pswpin 5\noom_killer 3\n"), None);
    }
}
