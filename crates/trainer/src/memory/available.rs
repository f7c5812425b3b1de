//! The memory that this process may still allocate: the tightest limit of the machine, its control groups and
//! the process.

use std::fmt;
use std::fs;
use std::path::Path;

use super::{kib_of, resident};

/// Memory that this process may still allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Available {
    /// The amount in bytes.
    pub bytes: u64,
    /// The tightest limit.
    pub limit: MemoryLimit,
}

/// A limit on a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// The machine's memory: `MemAvailable` of `/proc/meminfo`.
    Machine,
    /// The limit of a control group (version 1 or 2) minus the group's usage. Cached files count as free.
    ControlGroup,
    /// The process's limit on address space or data (`ulimit -v`, `ulimit -d`) minus its resident memory.
    Process,
    /// The memory of a GPU.
    Device,
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Machine => "available on this machine",
            Self::ControlGroup => "left by the limit of its control group",
            Self::Process => "left by the limit of this process (ulimit)",
            Self::Device => "on the device",
        })
    }
}

/// The memory that this process may still allocate. `None` except on Linux.
pub fn available() -> Option<Available> {
    let of = |limit| move |bytes| Available { bytes, limit };
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let machine = kib_of("/proc/meminfo", "MemAvailable:").map(of(MemoryLimit::Machine));
    let groups = control_groups(Path::new("/sys/fs/cgroup"), &text("/proc/self/cgroup"));
    let process = process_limit(&text("/proc/self/limits"));
    let left = |limit: u64| limit.saturating_sub(resident().unwrap_or(0));
    [
        machine,
        groups.map(of(MemoryLimit::ControlGroup)),
        process.map(left).map(of(MemoryLimit::Process)),
    ]
    .into_iter()
    .flatten()
    .min_by_key(|available| available.bytes)
}

/// The files of one version of control groups.
struct Files {
    limit: &'static str,
    used: &'static str,
    /// The entries of `memory.stat` that count cached files, which the kernel drops when memory is short.
    cached: [&'static str; 2],
}

const VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: ["total_inactive_file", "total_active_file"],
};
const VERSION_2: Files = Files {
    limit: "memory.max",
    used: "memory.current",
    cached: ["inactive_file", "active_file"],
};

/// The bytes left by the control groups of a process whose `/proc/PID/cgroup` is `membership`. `None` without
/// a limit. A group's limit includes its subgroups, so every group up to `root` is read.
fn control_groups(root: &Path, membership: &str) -> Option<u64> {
    let groups = membership.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let path = path.trim_start_matches('/');
        match controllers {
            "" => Some((root.to_owned(), path, VERSION_2)),
            _ => {
                let memory = controllers.split(',').any(|name| name == "memory");
                memory.then(|| (root.join("memory"), path, VERSION_1))
            }
        }
    });
    let left = groups.flat_map(|(base, path, files)| {
        // In a container, the path may be the host's. Groups that do not exist are ignored.
        let up = Path::new(path).ancestors();
        up.filter_map(move |path| left_in(&base.join(path), &files))
            .collect::<Vec<_>>()
    });
    left.min()
}

/// The bytes left by one control group.
fn left_in(group: &Path, files: &Files) -> Option<u64> {
    let text = |name| fs::read_to_string(group.join(name)).ok();
    let number = |name| text(name)?.trim().parse::<u64>().ok();
    let limit = number(files.limit)?;
    let stat = text("memory.stat").unwrap_or_default();
    let cached: u64 = stat
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| files.cached.contains(name))
        .filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok())
        .sum();
    let used = number(files.used).unwrap_or(0).saturating_sub(cached);
    Some(limit.saturating_sub(used))
}

/// The smaller of the soft limits on address space and data in `/proc/PID/limits`. `None` without a limit.
fn process_limit(limits: &str) -> Option<u64> {
    let soft = |line: &str| {
        let rest = ["Max address space", "Max data size"]
            .into_iter()
            .find_map(|name| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    };
    limits.lines().filter_map(soft).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn write(folder: &Path, files: &[(&str, String)]) {
        fs::create_dir_all(folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    #[test]
    fn the_tightest_v2_group_counts_and_file_cache_is_free() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let group = |limit: &str, used: u64| {
            [
                ("memory.max", format!("{limit}\n")),
                ("memory.current", format!("{}\n", used * MIB)),
                (
                    "memory.stat",
                    format!(
                        "anon 5\ninactive_file {}\nactive_file {}\n",
                        10 * MIB,
                        5 * MIB
                    ),
                ),
            ]
        };
        write(&root.join("a/b"), &group("max", 100));
        assert_eq!(control_groups(root, "0::/a/b\n"), None);
        let limit = (200 * MIB).to_string();
        write(&root.join("a"), &group(&limit, 100));
        assert_eq!(control_groups(root, "0::/a/b\n"), Some(115 * MIB));
        // The path is that of the container's host. Inside, the root group has the limit.
        write(root, &group(&limit, 50));
        assert_eq!(
            control_groups(root, "0::/machine.slice/x\n"),
            Some(165 * MIB)
        );
    }

    #[test]
    fn the_memory_controller_of_version_1_is_read() {
        let root = tempfile::tempdir().unwrap();
        let group = [
            ("memory.limit_in_bytes", (64 * MIB).to_string()),
            ("memory.usage_in_bytes", (70 * MIB).to_string()),
            (
                "memory.stat",
                format!("cache 1\ntotal_inactive_file {}\n", 16 * MIB),
            ),
        ];
        write(&root.path().join("memory/job"), &group);
        let membership = "5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n";
        assert_eq!(control_groups(root.path(), membership), Some(10 * MIB));
        assert_eq!(control_groups(root.path(), "5:cpu:/job\n"), None);
    }

    #[test]
    fn the_smaller_process_limit_counts() {
        let limits = |space: &str, data: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units\n\
                 Max data size             {data}            unlimited            bytes\n\
                 Max stack size            8388608              unlimited            bytes\n\
                 Max address space         {space}            unlimited            bytes\n"
            )
        };
        assert_eq!(process_limit(&limits("unlimited", "unlimited")), None);
        assert_eq!(process_limit(&limits("unlimited", "4096")), Some(4096));
        assert_eq!(process_limit(&limits("1024", "4096")), Some(1024));
    }
}
