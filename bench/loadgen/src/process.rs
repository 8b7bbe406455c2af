//! Resources of the measured server from /proc: CPU time, current and peak resident memory; and the kernel's share.
//!
//! Several process ids make one server: their figures are added.

use std::fs;
use std::ops::Sub;

/// Looks at the same processes each time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Server {
    pids: Vec<u32>,
}

/// One reading.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    /// Seconds in user and kernel mode, in steps of 10 ms.
    pub(crate) cpu: f64,
    /// Bytes resident now.
    pub(crate) resident: u64,
    /// Bytes resident at the highest (`VmHWM`).
    pub(crate) highest: u64,
}

impl Server {
    /// Fails when one of them does not run.
    pub(crate) fn new(pids: Vec<u32>) -> Result<Self, String> {
        let server = Self { pids };
        server.look()?;
        Ok(server)
    }

    pub(crate) fn is_known(&self) -> bool {
        !self.pids.is_empty()
    }

    /// Fails when one of them has ended, which no figure may hide.
    pub(crate) fn look(&self) -> Result<Usage, String> {
        let mut sum = Usage::default();
        for pid in &self.pids {
            let read = |file: &str| {
                fs::read_to_string(format!("/proc/{pid}/{file}")).map_err(|error| {
                    format!("the server's process {pid} cannot be looked at: {error}")
                })
            };
            let ticks = ticks(&read("stat")?)
                .ok_or_else(|| format!("the server's process {pid} has ended"))?;
            let status = read("status")?;
            sum.cpu += ticks / f64::from(per_second());
            sum.resident += kilobytes(&status, "VmRSS:") * 1024;
            sum.highest += kilobytes(&status, "VmHWM:") * 1024;
        }
        Ok(sum)
    }
}

impl Sub for Usage {
    type Output = f64;

    /// CPU seconds between two looks.
    fn sub(self, before: Self) -> f64 {
        self.cpu - before.cpu
    }
}

/// Bytes in the kernel's slabs, for the whole machine. Sockets are most of an idle connection's share of them.
pub(crate) fn slab() -> u64 {
    kilobytes(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "Slab:") * 1024
}

/// Seconds of CPU that this program has used itself.
pub(crate) fn own_cpu() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    ticks(&stat).unwrap_or_default() / f64::from(per_second())
}

/// `utime` + `stime` of a line of /proc/PID/stat; none for a zombie. The name in it may hold blanks and brackets.
fn ticks(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    if fields.first() == Some(&"Z") {
        return None;
    }
    let number = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some(number(11)? + number(12)?)
}

fn kilobytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

fn per_second() -> u32 {
    u32::try_from(rustix::param::clock_ticks_per_second()).expect("100 on Linux")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_read_behind_a_name_with_brackets() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 1 2 3 4 150 50 9 9 20 0 1 0 5 6 7";

        assert_eq!(ticks(stat), Some(200.0));
        assert_eq!(ticks(&stat.replace(" S ", " Z ")), None, "a zombie has ended");
    }

    #[test]
    fn this_process_can_be_looked_at_and_has_memory() {
        let server = Server::new(vec![std::process::id()]).unwrap();

        let usage = server.look().unwrap();

        assert!(usage.resident > 0 && usage.highest >= usage.resident / 2);
        assert!(slab() > 0);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        // Above the highest that Linux gives.
        assert!(Server::new(vec![1 << 23]).is_err());
    }
}
