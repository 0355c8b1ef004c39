//! On what machine, with which program and when: what the papers' appendices
//! have.

use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// Facts about the machine whose files are below `root`. What cannot be read is
/// said to be so: a reader should see that it was looked for.
#[must_use]
pub fn machine(root: &Path) -> Vec<(String, String)> {
    let mut facts = vec![
        ("processor".to_owned(), processor(root)),
        ("CPUs of this process".to_owned(), cpus()),
        ("virtualisation".to_owned(), virtualisation(root)),
        ("memory".to_owned(), memory(root)),
    ];
    let files = [
        ("kernel", "proc/sys/kernel/version"),
        ("kernel release", "proc/sys/kernel/osrelease"),
        (
            "clock source",
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
        ),
        (
            "frequency governor",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        ),
        (
            "idle driver",
            "sys/devices/system/cpu/cpuidle/current_driver",
        ),
        ("SMT", "sys/devices/system/cpu/smt/control"),
        (
            "transparent huge pages",
            "sys/kernel/mm/transparent_hugepage/enabled",
        ),
        ("CPU limit of the control group", "sys/fs/cgroup/cpu.max"),
        (
            "memory limit of the control group",
            "sys/fs/cgroup/memory.max",
        ),
        ("MTU of the loopback interface", "sys/class/net/lo/mtu"),
        ("load before (1, 5, 15 minutes)", "proc/loadavg"),
    ];
    facts.extend(files.map(|(name, path)| (name.to_owned(), first_line(root, path))));
    let mitigations = mitigations(root);
    facts.push(("mitigations".to_owned(), mitigations));
    let sysctls = SYSCTLS.iter().map(|name| {
        let path = format!("proc/sys/{}", name.replace('.', "/"));
        ((*name).to_owned(), first_line(root, &path))
    });
    facts.extend(sysctls);
    facts
}

/// The machine whose files are below `root`, in a line.
#[must_use]
pub fn in_short(root: &Path) -> String {
    let release = first_line(root, "proc/sys/kernel/osrelease");
    format!("{}, Linux {release}, {}", processor(root), memory(root))
}

/// Those that loopback, sockets and io_uring feel, and that the papers set.
const SYSCTLS: &[&str] = &[
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.rmem_default",
    "net.core.wmem_default",
    "net.core.optmem_max",
    "net.core.somaxconn",
    "net.core.netdev_max_backlog",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_congestion_control",
    "kernel.io_uring_disabled",
    "kernel.numa_balancing",
];

const UNREADABLE: &str = "not told by this kernel";

fn first_line(root: &Path, path: &str) -> String {
    let text = fs::read_to_string(root.join(path)).unwrap_or_default();
    let words: Vec<_> = text
        .lines()
        .next()
        .unwrap_or("")
        .split_whitespace()
        .collect();
    match words.is_empty() {
        true => UNREADABLE.to_owned(),
        false => words.join(" "),
    }
}

fn processor(root: &Path) -> String {
    let text = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let of = |name: &str| {
        let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = pairs.find(|(key, _)| key.trim() == name)?;
        Some(value.trim().to_owned())
    };
    match of("model name") {
        None => UNREADABLE.to_owned(),
        Some(model) => {
            let number = |name| of(name).unwrap_or_else(|| "?".into());
            let [family, number, microcode] = ["cpu family", "model", "microcode"].map(number);
            format!("{model} (family {family}, model {number}, microcode {microcode})")
        }
    }
}

fn cpus() -> String {
    let cpus = reactor::available_cpus();
    let list: Vec<_> = cpus.iter().map(ToString::to_string).collect();
    format!("{} ({})", cpus.len(), list.join(", "))
}

fn virtualisation(root: &Path) -> String {
    let text = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let flags = text
        .lines()
        .find(|line| line.starts_with("flags"))
        .unwrap_or("");
    let is_guest = flags.split_whitespace().any(|flag| flag == "hypervisor");
    let product = first_line(root, "sys/class/dmi/id/product_name");
    let vendor = first_line(root, "sys/class/dmi/id/sys_vendor");
    match is_guest {
        true => format!("virtual machine ({vendor}; {product})"),
        false => format!("none that the processor tells of ({vendor}; {product})"),
    }
}

fn memory(root: &Path) -> String {
    let text = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    line.map_or_else(|| UNREADABLE.to_owned(), |line| line.trim().to_owned())
}

/// Only those that this processor needs or lacks.
fn mitigations(root: &Path) -> String {
    let folder = root.join("sys/devices/system/cpu/vulnerabilities");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut told: Vec<_> = entries
        .filter_map(|entry| {
            let text = fs::read_to_string(entry.path()).ok()?;
            let text = text.trim();
            let name = entry.file_name().into_string().ok()?;
            (text != "Not affected").then(|| format!("{name}: {text}"))
        })
        .collect();
    told.sort();
    match told.is_empty() {
        true => UNREADABLE.to_owned(),
        false => told.join("; "),
    }
}

/// A digest of this very program, so that two builds are never mixed.
///
/// # Errors
/// Where its file cannot be read.
pub fn program() -> io::Result<String> {
    let mut hasher = DefaultHasher::new();
    hasher.write(&fs::read(std::env::current_exe()?)?);
    Ok(format!("{:016x}", hasher.finish()))
}

/// The commit that this program was built of: what `WEFT_COMMIT` said when it
/// was built, otherwise what is checked out around its file; empty where there is
/// neither.
#[must_use]
pub fn commit() -> String {
    if let Some(commit) = option_env!("WEFT_COMMIT") {
        return commit.to_owned();
    }
    let program = std::env::current_exe().ok();
    let around = program.as_deref().and_then(Path::parent);
    around.and_then(checked_out).unwrap_or_default()
}

/// What is checked out at `folder`, and how it may differ from what was built.
fn checked_out(folder: &Path) -> Option<String> {
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.arg("-C").arg(folder).args(words).stderr(Stdio::null());
        let output = git.output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no", ":/"])?;
    let note = match changes.is_empty() {
        true => "as checked out around the program",
        false => "as checked out around the program, with changes",
    };
    Some(format!("{commit} ({note})"))
}

/// The time, as RFC 3339 writes it, in UTC.
#[must_use]
pub fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described_from_its_files() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        };
        write(
            "proc/cpuinfo",
            "model name\t: Example 9000\ncpu family\t: 25\nmodel\t\t: 17\nflags\t: fpu hypervisor\n",
        );
        write("proc/meminfo", "MemTotal:  1024 kB\nMemFree: 1 kB\n");
        write("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n");
        let weak = "sys/devices/system/cpu/vulnerabilities";
        write(
            &format!("{weak}/retbleed"),
            "Mitigation: untrained return thunk\n",
        );
        write(&format!("{weak}/meltdown"), "Not affected\n");
        let facts = machine(root.path());
        let of = |name: &str| {
            let found = facts.iter().find(|fact| fact.0 == name);
            found.unwrap_or_else(|| panic!("no {name}")).1.as_str()
        };
        assert_eq!(
            of("processor"),
            "Example 9000 (family 25, model 17, microcode ?)"
        );
        assert_eq!(of("memory"), "1024 kB");
        assert_eq!(of("net.ipv4.tcp_rmem"), "4096 131072 6291456");
        assert_eq!(
            of("mitigations"),
            "retbleed: Mitigation: untrained return thunk"
        );
        assert!(of("virtualisation").starts_with("virtual machine"));
        assert_eq!(of("frequency governor"), UNREADABLE);
        assert!(facts.iter().all(|(_, value)| !value.is_empty()));
    }
}
