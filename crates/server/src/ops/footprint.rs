//! How much memory an application's workers take, and how many fit into what this machine, or its control group, has left.
//!
//! Invariants
//! - Every figure is measured: what cannot be read is `None`.

use std::path::{Path, PathBuf};

use pool::PoolStatus;
use serde::{Deserialize, Serialize};

/// Memory of one application's workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Footprint {
    /// Shared pages, and those of the zygote: taken once, however many workers there are.
    pub once_bytes: u64,
    /// For each further worker; in a model with a process for each request that is two processes.
    pub each_bytes: u64,
}

impl Footprint {
    /// Returns the footprint of the last reading. `one_shot`: each request has a process whose successor already
    /// waits.
    pub(crate) fn of(pool: &PoolStatus, one_shot: bool) -> Option<Self> {
        let all = pool.memory.pss_bytes?;
        let own: Vec<u64> = pool.workers.iter().filter_map(|worker| worker.private_bytes).collect();
        let sum: u64 = own.iter().sum();
        let each = sum / u64::try_from(own.len()).ok().filter(|workers| *workers > 0)?;
        let processes = if one_shot { 2 } else { 1 };
        Some(Self { once_bytes: all.saturating_sub(sum), each_bytes: each * processes })
    }

    /// How many workers fit.
    pub(crate) fn fit_into(self, bytes: u64) -> u64 {
        bytes.saturating_sub(self.once_bytes) / self.each_bytes.max(1)
    }
}

/// Memory that is left for processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub bytes: u64,
    /// A limit of the control group is what bounds it, not the machine.
    pub by_control_group: bool,
}

impl Room {
    /// Returns the free memory.
    pub(crate) fn here() -> Option<Self> {
        let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::of(&meminfo, &groups, Path::new("/sys/fs/cgroup"))
    }

    fn of(meminfo: &str, groups: &str, root: &Path) -> Option<Self> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        let machine = Self { bytes: kilobytes * 1024, by_control_group: false };
        let left = left_in_groups(groups, root).filter(|left| *left < machine.bytes);
        Some(left.map_or(machine, |bytes| Self { bytes, by_control_group: true }))
    }
}

/// The least that the process's control group and those above it have left (cgroups(7)). `None`: there is no limit.
fn left_in_groups(groups: &str, root: &Path) -> Option<u64> {
    let mut left: Vec<u64> = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let path = path.trim_start_matches('/');
        let (root, limit, used): (PathBuf, _, _) = match controllers {
            "" => (root.to_owned(), "memory.max", "memory.current"),
            one if one.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => continue,
        };
        let own = root.join(path);
        let above = own.ancestors().take_while(|folder| folder.starts_with(&root));
        left.extend(above.filter_map(|folder| left_in(folder, limit, used)));
    }
    left.into_iter().min()
}

fn left_in(folder: &Path, limit: &str, used: &str) -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        std::fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
    };
    let (limit, used) = (number(limit)?, number(used)?);
    // Files that were read can be dropped; version 1 has the whole of a subtree with a prefix.
    let stat = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let of = |name: &str| {
        stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    let files = of("total_inactive_file ").or_else(|| of("inactive_file ")).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(files)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_counts_once_and_the_rest_per_worker() {
        let footprint = Footprint { once_bytes: 40, each_bytes: 5 };
        assert_eq!(footprint.fit_into(100), 12);
        assert_eq!(footprint.fit_into(30), 0);
    }

    #[test]
    fn the_tightest_control_group_bounds_free_memory() {
        const MEMINFO: &str = "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n";
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let machine = Room { bytes: 8000 << 10, by_control_group: false };
        assert_eq!(Room::of(MEMINFO, "0::/a/b\n", root.path()), Some(machine));
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "7\n");
        assert_eq!(Room::of(MEMINFO, "0::/a/b\n", root.path()), Some(machine));
        write("a/memory.max", "1000\n");
        write("a/memory.current", "700\n");
        write("a/memory.stat", "anon 600\ninactive_file 100\n");
        let group = Room { bytes: 400, by_control_group: true };
        assert_eq!(Room::of(MEMINFO, "0::/a/b\n", root.path()), Some(group));
        write("memory/old/memory.limit_in_bytes", "500\n");
        write("memory/old/memory.usage_in_bytes", "400\n");
        let group = Room { bytes: 100, by_control_group: true };
        assert_eq!(Room::of(MEMINFO, "4:cpu,memory:/old\n0::/a/b\n", root.path()), Some(group));
    }
}
