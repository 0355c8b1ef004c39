//! How much memory there is for this process: the machine's, or less where a
//! control group bounds it (cgroups(7), of both versions).

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// How much memory this process may take, and what says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Bytes.
    pub bytes: u64,
    /// The folder of the control group that allows no more; `None`: it is what
    /// the machine has.
    pub group: Option<PathBuf>,
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes;
        match &self.group {
            None => write!(f, "this machine's memory of {bytes} bytes"),
            Some(group) => write!(
                f,
                "the {bytes} bytes of memory that the control group {} allows",
                group.display()
            ),
        }
    }
}

/// What this process may take; `None` where the system does not tell.
pub fn limit() -> Option<MemoryLimit> {
    limit_below(Path::new("/"))
}

/// What of the machine's memory can still be had.
pub(crate) fn available_bytes() -> Option<u64> {
    meminfo_bytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

fn limit_below(root: &Path) -> Option<MemoryLimit> {
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let machine = MemoryLimit {
        bytes: meminfo_bytes(&meminfo, "MemTotal:")?,
        group: None,
    };
    let groups = groups(root).into_iter().filter_map(|(group, file)| {
        let text = fs::read_to_string(root.join(group.strip_prefix("/").ok()?).join(file)).ok()?;
        // "max" where there is none.
        let bytes = text.trim().parse().ok()?;
        let group = Some(group);
        Some(MemoryLimit { bytes, group })
    });
    std::iter::once(machine)
        .chain(groups)
        .min_by_key(|limit| limit.bytes)
}

fn meminfo_bytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// The control groups that this process is in and those above them, each with
/// its file that holds the limit: each of them bounds what is below it.
fn groups(root: &Path) -> Vec<(PathBuf, &'static str)> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let (own, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    let mut groups = Vec::new();
    for line in own.lines() {
        // NUMBER:CONTROLLERS:PATH; version 2 names no controllers.
        let mut words = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (words.next(), words.next()) else {
            continue;
        };
        let is_unified = controllers.is_empty();
        if !is_unified && !controllers.split(',').any(|name| name == "memory") {
            continue;
        }
        let mounted = mounts.lines().find_map(|line| mounted(line, is_unified));
        let Some((top, at)) = mounted else {
            continue;
        };
        let file = match is_unified {
            true => "memory.max",
            false => "memory.limit_in_bytes",
        };
        // What is above a container's own group does not show there.
        let inside = Path::new(path).strip_prefix(top).unwrap_or(Path::new(""));
        let lowest = Path::new(at).join(inside);
        let all = lowest.ancestors().take_while(|group| group.starts_with(at));
        groups.extend(all.map(|group| (group.to_owned(), file)));
    }
    groups
}

/// Which group is mounted where, if a line of proc_pid_mountinfo(5) is about the
/// hierarchy that bounds memory.
fn mounted(line: &str, is_unified: bool) -> Option<(&str, &str)> {
    let (mount, source) = line.split_once(" - ")?;
    let mut source = source.split(' ');
    let (kind, options) = (source.next()?, source.nth(1)?);
    let is_it = match is_unified {
        true => kind == "cgroup2",
        false => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
    };
    let mut words = mount.split(' ').skip(3);
    is_it.then_some((words.next()?, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal: 1048576 kB\n");
    const V2: &str = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "31 1 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      32 1 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

    #[track_caller]
    fn expect(files: &[(&str, &str)], bytes: u64, group: Option<&str>) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let limit = limit_below(folder.path()).expect("a machine has memory");
        let group = group.map(PathBuf::from);
        assert_eq!(limit, MemoryLimit { bytes, group });
    }

    #[test]
    fn machine_without_groups_has_all_its_memory() {
        expect(&[MACHINE], 1 << 30, None);
        let own = ("proc/self/cgroup", "0::/a\n");
        expect(&[MACHINE, own], 1 << 30, None);
        let mounts = ("proc/self/mountinfo", V2);
        let none = ("sys/fs/cgroup/a/memory.max", "max\n");
        expect(&[MACHINE, own, mounts, none], 1 << 30, None);
    }

    #[test]
    fn lowest_limit_of_a_group_and_those_above_it_counts_in_version_2() {
        let own = ("proc/self/cgroup", "0::/weft.slice/a\n");
        let mounts = ("proc/self/mountinfo", V2);
        let outer = ("sys/fs/cgroup/weft.slice/memory.max", "4096000\n");
        let inner = ("sys/fs/cgroup/weft.slice/a/memory.max", "8192000\n");
        let group = "/sys/fs/cgroup/weft.slice";
        expect(
            &[MACHINE, own, mounts, outer, inner],
            4_096_000,
            Some(group),
        );
        let large = ("sys/fs/cgroup/weft.slice/memory.max", "99999999999\n");
        expect(&[MACHINE, own, mounts, large], 1 << 30, None);
    }

    #[test]
    fn limit_of_the_memory_hierarchy_counts_in_version_1() {
        let own = ("proc/self/cgroup", "5:cpu:/a\n4:memory:/a\n0::/\n");
        let mounts = ("proc/self/mountinfo", V1);
        let bound = ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000000\n");
        let other = ("sys/fs/cgroup/cpu/a/memory.limit_in_bytes", "1\n");
        let group = "/sys/fs/cgroup/memory/a";
        expect(
            &[MACHINE, own, mounts, bound, other],
            5_000_000,
            Some(group),
        );
    }

    /// A container sees its own group where the hierarchy is mounted.
    #[test]
    fn limit_of_a_container_is_found_where_its_group_is_mounted() {
        let own = ("proc/self/cgroup", "4:memory:/docker/abc\n");
        let text = V1.replace("0:28 / ", "0:28 /docker/abc ");
        let mounts = ("proc/self/mountinfo", &*text);
        let bound = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "6000000\n");
        expect(
            &[MACHINE, own, mounts, bound],
            6_000_000,
            Some("/sys/fs/cgroup/memory"),
        );
        let own = ("proc/self/cgroup", "4:memory:/elsewhere\n");
        expect(
            &[MACHINE, own, mounts, bound],
            6_000_000,
            Some("/sys/fs/cgroup/memory"),
        );
    }

    #[test]
    fn meminfo_is_understood() {
        let text = "Whatever: 1 kB\nMemTotal:       24576 kB\nMemFree: 3 kB\n";
        assert_eq!(meminfo_bytes(text, "MemTotal:"), Some(24576 << 10));
        assert_eq!(meminfo_bytes("MemTotal: many kB\n", "MemTotal:"), None);
        assert_eq!(meminfo_bytes("", "MemTotal:"), None);
        assert!(available_bytes().unwrap() > 1 << 20);
        assert!(limit().unwrap().bytes > 1 << 20);
    }
}
