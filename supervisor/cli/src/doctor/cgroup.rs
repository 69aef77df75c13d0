//! The limits that the control groups of this process set: cores, memory, processes. Of a group and those above it the
//! smallest limit counts. Both versions of control groups are read.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// What may be used. None: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Limits {
    /// Cores, such as 1.5.
    pub(crate) cores: Option<f64>,
    /// Bytes of memory.
    pub(crate) memory: Option<u64>,
    /// Processes and threads.
    pub(crate) processes: Option<u64>,
}

/// A limit that the first version writes where there is none.
const V1_NO_LIMIT: u64 = i64::MAX as u64 - 0xffff;

impl Limits {
    /// Those of this process.
    pub(crate) fn of_this_process() -> Limits {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Limits::read(&groups, Path::new("/sys/fs/cgroup"))
    }

    /// Those that are set below `root`; `groups` is the content of `/proc/PID/cgroup`.
    fn read(groups: &str, root: &Path) -> Limits {
        let folders = |controller: &str| folders_of(groups, controller, root);
        Limits {
            cores: folders("cpu").iter().filter_map(|folder| cores_in(folder)).reduce(f64::min),
            memory: least(&folders("memory"), ["memory.max", "memory.limit_in_bytes"]),
            processes: least(&folders("pids"), ["pids.max", "pids.max"]),
        }
    }
}

/// For how long these groups have kept their processes from running, because their quota of cores was used up. None: no group
/// has counted.
pub(crate) fn throttled_of_this_process() -> Option<Duration> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    throttled(&groups, Path::new("/sys/fs/cgroup"))
}

/// The largest of all groups: what holds a group back holds those below it back.
fn throttled(groups: &str, root: &Path) -> Option<Duration> {
    let time = |folder: &PathBuf| {
        let text = std::fs::read_to_string(folder.join("cpu.stat")).ok()?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line?.trim().parse::<u64>().ok()
        };
        let v2 = field("throttled_usec").map(Duration::from_micros);
        v2.or_else(|| field("throttled_time").map(Duration::from_nanos))
    };
    folders_of(groups, "cpu", root).iter().filter_map(time).max()
}

/// The folders of the group that has this controller, and of those above it. Within a container, the path may be that of the
/// machine: then only the root is there.
fn folders_of(groups: &str, controller: &str, root: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let base = match controllers {
            "" => root.to_owned(),
            names if names.split(',').any(|name| name == controller) => root.join(controller),
            _ => continue,
        };
        let path = base.join(path.trim_start_matches('/'));
        folders.extend(path.ancestors().take_while(|folder| folder.starts_with(&base)).map(Path::to_owned));
    }
    folders
}

fn least(folders: &[PathBuf], [v2, v1]: [&str; 2]) -> Option<u64> {
    let number = |folder: &PathBuf| {
        let text =
            std::fs::read_to_string(folder.join(v2)).or_else(|_| std::fs::read_to_string(folder.join(v1)));
        text.ok()?.trim().parse::<u64>().ok().filter(|limit| *limit < V1_NO_LIMIT)
    };
    folders.iter().filter_map(number).min()
}

fn cores_in(folder: &Path) -> Option<f64> {
    let file = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let (quota, period) = match file("cpu.max") {
        Some(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.to_owned(), period.to_owned())
        }
        None => (file("cpu.cfs_quota_us")?, file("cpu.cfs_period_us")?),
    };
    let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = root.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        root
    }

    #[test]
    fn the_smallest_limit_of_a_group_and_those_above_it_counts() {
        let root = tree(&[
            ("a/cpu.max", "150000 100000\n"),
            ("a/b/cpu.max", "max 100000\n"),
            ("a/memory.max", "max\n"),
            ("a/b/memory.max", "1048576\n"),
            ("a/pids.max", "10\n"),
            ("a/b/pids.max", "20\n"),
        ]);
        let expected = Limits { cores: Some(1.5), memory: Some(1 << 20), processes: Some(10) };
        assert_eq!(Limits::read("0::/a/b\n", root.path()), expected);
    }

    #[test]
    fn the_first_version_has_a_folder_for_each_controller_and_large_numbers_for_none() {
        let root = tree(&[
            ("cpu/x/cpu.cfs_quota_us", "50000\n"),
            ("cpu/x/cpu.cfs_period_us", "100000\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/x/memory.limit_in_bytes", "4096\n"),
        ]);
        let groups = "5:cpu,cpuacct:/x\n4:memory:/x\n1:name=systemd:/\n";
        let expected = Limits { cores: Some(0.5), memory: Some(4096), processes: None };
        assert_eq!(Limits::read(groups, root.path()), expected);
    }

    #[test]
    fn without_groups_or_with_nonsense_nothing_is_limited() {
        let root = tree(&[("a/cpu.max", "-1 0\n"), ("a/memory.max", "much"), ("a/pids.max", "")]);
        for groups in ["", "nonsense", "0::/none/at/all", "0::/a", "::"] {
            assert_eq!(Limits::read(groups, root.path()), Limits::default(), "{groups}");
        }
    }
}
