//! Which processors we may use.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Runs the calling thread on `cpu` only.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: a processor set of zeros is a valid, empty one; `cpu` is in it.
    let rc = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
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
    // SAFETY: the set is ours and as large as we say.
    let (rc, set) = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let rc = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        (rc, set)
    };
    if rc < 0 {
        return vec![0];
    }
    let cpus = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: every index is inside the set.
    cpus.filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect()
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
pub fn incoming_cpu(socket: &OwnedFd) -> Option<usize> {
    let mut cpu: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which `cpu` has.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_INCOMING_CPU,
            (&raw mut cpu).cast(),
            &mut len,
        )
    };
    (rc == 0).then_some(cpu)?.try_into().ok()
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
            assert!(pin_to_cpu(libc::CPU_SETSIZE as usize).is_err());
        })
        .join()
        .unwrap();
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
