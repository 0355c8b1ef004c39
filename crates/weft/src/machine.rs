//! What kernel and control group give a process, for those who are to help.

use std::fs;
use std::path::Path;
use std::thread;

/// What of a file is shown at most.
const LINES_MAX: usize = 40;

/// Files of the kernel that say what the machine is.
const FILES: &[&str] = &[
    "/proc/version",
    "/proc/uptime",
    "/proc/loadavg",
    "/proc/sys/kernel/io_uring_disabled",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu/online",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/proc/meminfo",
    "/proc/pressure/cpu",
    "/proc/pressure/io",
    "/proc/pressure/memory",
    "/etc/os-release",
];

/// Files of a control group.
const OF_GROUP: &[&str] = &[
    "cpu.max",
    "cpu.stat",
    "cpuset.cpus.effective",
    "memory.current",
    "memory.max",
    "memory.events",
    "pids.max",
];

/// What there is to tell of the machine and of a process; without its number, of this one.
pub fn told(process: Option<u32>) -> String {
    let process = process.map_or_else(|| "self".to_owned(), |number| number.to_string());
    let mut text = format!(
        "processors that this process may use: {}\n",
        thread::available_parallelism().map_or_else(|error| error.to_string(), |n| n.to_string())
    );
    let uring = reactor::probe().map_or_else(|error| error.to_string(), |()| "yes".to_owned());
    text += &format!("io_uring for this process: {uring}\n");
    for (name, now) in crate::settings_of_machine() {
        text += &format!("{name}: {now}\n");
    }
    for path in FILES {
        text += &file(path);
    }
    for name in ["limits", "status", "cgroup"] {
        text += &file(&format!("/proc/{process}/{name}"));
    }
    let group = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    // The one of version 2 (cgroups(7)).
    let group = group.lines().find_map(|line| line.strip_prefix("0::"));
    for name in OF_GROUP {
        let group = group.unwrap_or("/").trim_start_matches('/');
        let path = Path::new("/sys/fs/cgroup").join(group).join(name);
        text += &file(&path.display().to_string());
    }
    text
}

fn file(path: &str) -> String {
    let content = fs::read_to_string(path).unwrap_or_else(|error| error.to_string());
    let lines = content.lines().take(LINES_MAX);
    let lines: String = lines.map(|line| format!("  {line}\n")).collect();
    format!("\n{path}\n{lines}")
}
