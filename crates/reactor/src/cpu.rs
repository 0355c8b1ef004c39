//! Which processors we may use.

use rustix::net::sockopt;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Numbers of processors are below this: what a set of them holds.
const CPUS_MAX: usize = CpuSet::MAX_CPU;

/// Where the process might run before any of its threads was pinned.
static UNPINNED: OnceLock<Vec<usize>> = OnceLock::new();

/// Runs the calling thread on `cpu` only. Threads that it starts inherit that.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= CPUS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    UNPINNED.get_or_init(affinity);
    set_affinity(&[cpu])
}

/// Lets the calling thread run wherever the process might before a thread of
/// it was pinned. A refusal leaves it where it is, which is slower only.
pub fn unpin() {
    if let Some(cpus) = UNPINNED.get() {
        let _ = set_affinity(cpus);
    }
}

/// Every number is below [`CPUS_MAX`].
fn set_affinity(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// A list of processors in the kernel's form: `0-1,4`.
///
/// # Errors
/// In words for the user.
pub fn parse_cpus(text: &str) -> Result<Vec<usize>, String> {
    let bad = |part: &str| format!("\"{part}\" is no CPU or range; write for example \"0-1,4\"");
    let number = |part: &str, digits: &str| -> Result<usize, String> {
        let cpu = digits.trim().parse::<usize>().map_err(|_| bad(part))?;
        if cpu >= CPUS_MAX {
            return Err(format!("CPU {cpu}: numbers are below {CPUS_MAX}"));
        }
        Ok(cpu)
    };
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(part, first)?, number(part, last)?);
        if first > last {
            return Err(format!("the range \"{part}\" runs backwards"));
        }
        for cpu in first..=last {
            if cpus.contains(&cpu) {
                return Err(format!("CPU {cpu} is there twice"));
            }
            cpus.push(cpu);
        }
    }
    Ok(cpus)
}

/// The processors on which the calling thread may run, as many of them as the
/// control group's quota pays for (rounded up); at least one.
pub fn available_cpus() -> Vec<usize> {
    let mut cpus = affinity();
    if let Some(quota) = quota() {
        cpus.truncate(quota.ceil().max(1.0) as usize);
    }
    cpus
}

/// The processors on which the calling thread may run at all; at least one.
pub fn affinity() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CPUS_MAX).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => vec![0],
    }
}

/// Processors' worth of time that the control groups above us allow, if limited.
fn quota() -> Option<f64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    quota_in(&groups, Path::new("/sys/fs/cgroup"))
}

fn quota_in(groups: &str, root: &Path) -> Option<f64> {
    let mut least: Option<f64> = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let is_v2 = controllers.is_empty();
        if !is_v2 && !controllers.split(',').any(|name| name == "cpu") {
            continue;
        }
        let top = if is_v2 {
            root.to_path_buf()
        } else {
            root.join(controllers)
        };
        let relative = path.trim_start_matches('/');
        // A container sees its own group as the root; look there as well.
        let mut at: PathBuf = top.join(relative);
        loop {
            let found = if is_v2 { quota_v2(&at) } else { quota_v1(&at) };
            least = match (least, found) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            if at == top || !at.pop() {
                break;
            }
        }
    }
    least
}

fn quota_v2(group: &Path) -> Option<f64> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let mut words = text.split_whitespace();
    let quota: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next()?.parse().ok()?;
    (period > 0.0).then_some(quota / period)
}

fn quota_v1(group: &Path) -> Option<f64> {
    let number = |name| -> Option<f64> {
        let text = fs::read_to_string(group.join(name)).ok()?;
        text.trim().parse().ok()
    };
    let (quota, period) = (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

/// The processor on which the kernel last processed packets of a connection,
/// where it says so (SO_INCOMING_CPU).
pub(crate) fn incoming_cpu(socket: impl AsFd) -> Option<usize> {
    let cpu = sockopt::socket_incoming_cpu(socket).ok()?;
    // It says -1 where it does not know.
    usize::try_from(cpu.cast_signed()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_cpu_and_it_can_be_pinned_to() {
        let cpus = available_cpus();
        let last = *cpus.last().unwrap();
        std::thread::spawn(move || {
            pin_to_cpu(last).unwrap();
            assert_eq!(available_cpus(), [last]);
            assert!(pin_to_cpu(CPUS_MAX).is_err());
            unpin();
            assert!(available_cpus().len() == cpus.len());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn lists_are_read_and_mistakes_named() {
        for (text, cpus) in [
            ("3", vec![3]),
            ("0-1,4", vec![0, 1, 4]),
            ("4, 0 - 1", vec![4, 0, 1]),
            ("1023", vec![1023]),
        ] {
            assert_eq!(parse_cpus(text), Ok(cpus), "{text}");
        }
        for (text, why) in [
            ("", "0-1,4"),
            ("0xF", "\"0xF\""),
            ("1,,2", "\"\""),
            ("-1", "\"-1\""),
            ("2-1", "backwards"),
            ("0-2,1", "CPU 1 is there twice"),
            ("1024", "below 1024"),
            ("0-18446744073709551615", "below 1024"),
        ] {
            let told = parse_cpus(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
    }

    #[test]
    fn the_tightest_quota_above_us_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/cpu.max", "150000 100000\n");
        write("a/b/cpu.max", "max 100000\n");
        assert_eq!(quota_in("0::/a/b\n", root.path()), Some(1.5));
        assert_eq!(quota_in("0::/c\n", root.path()), None);
        write("cpu,cpuacct/x/cpu.cfs_quota_us", "50000\n");
        write("cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
        write("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
        write("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
        let groups = "4:memory:/x\n3:cpu,cpuacct:/x\n";
        assert_eq!(quota_in(groups, root.path()), Some(0.5));
    }
}
