//! Processor time that PHP's processes have used.

use std::time::Duration;

use crate::process_stat;

/// Processor time of a living process without its children. `None`: it has ended, or /proc does not show it.
pub(crate) fn of_process(pid: u32) -> Option<Duration> {
    if pid == 0 {
        return None;
    }
    // The first number of schedstat is nanoseconds; kernels without CONFIG_SCHED_INFO have only the ticks in stat.
    let schedstat = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok();
    let nanoseconds =
        schedstat.and_then(|text| text.split_ascii_whitespace().next()?.parse::<u64>().ok());
    nanoseconds.map(Duration::from_nanos).or_else(|| in_ticks(pid))
}

/// User and system time by `/proc/PID/stat` (proc(5), fields 14 and 15).
fn in_ticks(pid: u32) -> Option<Duration> {
    let fields = process_stat::from_state_on(pid)?;
    let mut fields = fields.split(' ').skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    let ticks = next()? + next()?;
    let per_second = rustix::param::clock_ticks_per_second();
    Some(Duration::from_millis(ticks * 1000 / per_second.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_in_both_figures() {
        let own = std::process::id();
        let before = (of_process(own).unwrap(), in_ticks(own).unwrap());
        let began = tokio::time::Instant::now();
        while in_ticks(own).unwrap() == before.1 {
            assert!(began.elapsed() < Duration::from_secs(30), "no tick is counted");
        }
        // A scheduler's clock of the main thread alone counts less than the ticks of all threads.
        assert!(of_process(own).unwrap() >= before.0);
        assert_eq!(of_process(0), None);
    }
}
