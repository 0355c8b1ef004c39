//! What the machine is, as far as it can be read without privileges.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cpus::CpuSet;

/// A network interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// Largest packet, bytes.
    pub mtu: u32,
    /// Whether a device is behind it, rather than another piece of the kernel.
    pub is_device: bool,
    /// Numbers of its receive queues.
    pub rx_queues: Vec<usize>,
    /// Numbers of its transmit queues.
    pub tx_queues: Vec<usize>,
    /// Its interrupts, in the order of their numbers.
    pub irqs: Vec<u32>,
}

/// What the machine is.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
    /// Of the kernel.
    pub release: String,
    /// That this process may run on.
    pub cpus: CpuSet,
    /// One CPU of each core among them.
    pub cores: CpuSet,
    /// NUMA nodes.
    pub nodes: usize,
    /// CPUs that this control group may use the time of; `None` without limit.
    pub cpu_limit: Option<f64>,
    /// Bytes that it may use; `None` without limit.
    pub memory_limit: Option<u64>,
    /// Descriptors that this process may have.
    pub files_max: Option<u64>,
    /// Weaknesses of the CPU that the kernel works around, and those that it
    /// does not.
    pub mitigations: (usize, usize),
    /// Share of the time since boot that the hypervisor kept for others.
    pub steal: f64,
    /// Interfaces that are up, `lo` not among them.
    pub nics: Vec<Nic>,
    /// Whether irqbalance runs, which moves interrupts.
    pub has_irqbalance: bool,
}

impl Machine {
    /// Looks at the machine whose files are below `root`. What cannot be read
    /// is taken as absent.
    pub fn look(root: &Path) -> Machine {
        let read = |path: &str| read_line(&root.join(path));
        let online = read("sys/devices/system/cpu/online").and_then(|l| CpuSet::from_list(&l));
        let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
        let allowed = field(&status, "Cpus_allowed_list:").and_then(CpuSet::from_list);
        let cpus = allowed.or(online).unwrap_or_default();
        let limits = fs::read_to_string(root.join("proc/self/limits")).unwrap_or_default();
        let files = field(&limits, "Max open files").and_then(|l| l.split_whitespace().next());
        let (cpu_limit, memory_limit) = control_group(root);
        Machine {
            release: read("proc/sys/kernel/osrelease").unwrap_or_default(),
            cores: cores(root, &cpus),
            cpus,
            nodes: entries(&root.join("sys/devices/system/node"), "node").len(),
            cpu_limit,
            memory_limit,
            files_max: files.and_then(|max| max.parse().ok()),
            mitigations: mitigations(root),
            steal: steal_share(root),
            nics: nics(root),
            has_irqbalance: runs(root, "irqbalance"),
            root: root.to_owned(),
        }
    }

    /// Where everything is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The first line of a file below the root.
    pub fn read(&self, path: &str) -> Option<String> {
        read_line(&self.root.join(path))
    }

    /// What is in a directory below the root and begins so, by number.
    pub fn numbered(&self, path: &str, prefix: &str) -> Vec<usize> {
        entries(&self.root.join(path), prefix)
    }
}

fn read_line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let words: Vec<_> = text.lines().next()?.split_whitespace().collect();
    Some(words.join(" "))
}

/// What stands behind a word that a line begins with.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut lines = text.lines();
    lines
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

/// Numbers behind a prefix, of the entries of a directory, ascending.
fn entries(dir: &Path, prefix: &str) -> Vec<usize> {
    let found = fs::read_dir(dir).into_iter().flatten().flatten();
    let number = |name: String| name.strip_prefix(prefix)?.parse().ok();
    let mut numbers: Vec<_> = found
        .filter_map(|entry| number(entry.file_name().into_string().ok()?))
        .collect();
    numbers.sort_unstable();
    numbers
}

/// The first CPU of each core.
fn cores(root: &Path, cpus: &CpuSet) -> CpuSet {
    let is_first = |cpu: &usize| {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let siblings = read_line(&root.join(path)).and_then(|list| CpuSet::from_list(&list));
        siblings.is_none_or(|siblings| {
            let own = |other: &usize| cpus.iter().any(|cpu| cpu == *other);
            siblings.iter().find(own).is_none_or(|first| first == *cpu)
        })
    };
    cpus.iter().filter(is_first).collect()
}

/// The tightest limits on the way up (control groups of version 2).
fn control_group(root: &Path) -> (Option<f64>, Option<u64>) {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let own = field(&groups, "0::").unwrap_or("/").trim_start_matches('/');
    let mut dir = root.join("sys/fs/cgroup").join(own);
    let (mut cpus, mut memory) = (None::<f64>, None::<u64>);
    while dir.starts_with(root.join("sys/fs/cgroup")) {
        let max = read_line(&dir.join("cpu.max"));
        let max = max.as_deref().and_then(|max| max.split_once(' '));
        let parse = |(quota, period): (&str, &str)| {
            Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
        };
        if let Some(limit) = max.and_then(parse) {
            cpus = Some(cpus.map_or(limit, |other| other.min(limit)));
        }
        let max = read_line(&dir.join("memory.max")).and_then(|max| max.parse().ok());
        memory = memory.into_iter().chain(max).min();
        if !dir.pop() {
            break;
        }
    }
    (cpus, memory)
}

fn mitigations(root: &Path) -> (usize, usize) {
    let dir = root.join("sys/devices/system/cpu/vulnerabilities");
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    let lines: Vec<_> = files.filter_map(|file| read_line(&file.path())).collect();
    let count = |word: &str| lines.iter().filter(|line| line.starts_with(word)).count();
    (count("Mitigation"), count("Vulnerable"))
}

fn steal_share(root: &Path) -> f64 {
    // user nice system idle iowait irq softirq steal: proc_stat(5).
    let line = read_line(&root.join("proc/stat")).unwrap_or_default();
    let ticks = line.split(' ').skip(1).take(8);
    let ticks: Vec<f64> = ticks.filter_map(|word| word.parse().ok()).collect();
    let all: f64 = ticks.iter().sum();
    ticks
        .get(7)
        .filter(|_| all > 0.0)
        .map_or(0.0, |steal| steal / all)
}

fn nics(root: &Path) -> Vec<Nic> {
    let found = fs::read_dir(root.join("sys/class/net"))
        .into_iter()
        .flatten()
        .flatten();
    let mut nics: Vec<_> = found
        .filter_map(|entry| nic(&entry.path(), entry.file_name().into_string().ok()?))
        .collect();
    nics.sort_by(|a, b| a.name.cmp(&b.name));
    nics
}

fn nic(dir: &Path, name: String) -> Option<Nic> {
    let is_up = read_line(&dir.join("operstate")).is_some_and(|state| state == "up");
    if name == "lo" || !is_up {
        return None;
    }
    // Of a virtio device the interrupts are its parent's.
    let device = dir.join("device");
    let mut irqs = entries(&device.join("msi_irqs"), "");
    if irqs.is_empty() {
        irqs = entries(&device.join("../msi_irqs"), "");
    }
    Some(Nic {
        mtu: read_line(&dir.join("mtu"))?.parse().ok()?,
        is_device: device.exists(),
        rx_queues: entries(&dir.join("queues"), "rx-"),
        tx_queues: entries(&dir.join("queues"), "tx-"),
        irqs: irqs
            .into_iter()
            .filter_map(|irq| irq.try_into().ok())
            .collect(),
        name,
    })
}

/// Whether a process of this name runs.
fn runs(root: &Path, name: &str) -> bool {
    let processes = entries(&root.join("proc"), "");
    let comm = |id: &usize| read_line(&root.join(format!("proc/{id}/comm")));
    processes.iter().any(|id| comm(id).as_deref() == Some(name))
}

#[cfg(test)]
mod tests {
    use crate::testing::TestRoot;

    #[test]
    fn a_machine_is_what_its_files_say() {
        let tree = TestRoot::new();
        tree.put("proc/self/status", "Name:\tweft\nCpus_allowed_list:\t0-3\n");
        tree.put("proc/self/cgroup", "0::/a/b\n");
        tree.put("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
        tree.put("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
        tree.put("sys/fs/cgroup/a/b/memory.max", "1073741824\n");
        tree.put("sys/fs/cgroup/a/memory.max", "max\n");
        tree.put(
            "proc/self/limits",
            "Limit Soft Limit Hard Limit Units\nMax open files            1024   4096   files\n",
        );
        tree.put("proc/stat", "cpu  10 0 10 70 0 0 0 10 0 0\n");
        for cpu in 0..4 {
            let siblings = format!("{},{}", cpu % 2, cpu % 2 + 2);
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            tree.put(&path, &siblings);
        }
        tree.put(
            "sys/devices/system/cpu/vulnerabilities/meltdown",
            "Mitigation: PTI\n",
        );
        tree.put(
            "sys/devices/system/cpu/vulnerabilities/mds",
            "Vulnerable; SMT\n",
        );
        tree.put(
            "sys/devices/system/cpu/vulnerabilities/l1tf",
            "Not affected\n",
        );
        tree.nic("eth1", "up", 9000, (2, 1), &[40, 41]);
        tree.nic("eth0", "down", 1500, (1, 1), &[39]);
        tree.put("proc/77/comm", "irqbalance\n");
        let machine = tree.machine();
        assert_eq!(machine.cpus.to_string(), "0-3");
        assert_eq!(machine.cores.to_string(), "0-1");
        assert_eq!(machine.cpu_limit, Some(1.5));
        assert_eq!(machine.memory_limit, Some(1 << 30));
        assert_eq!(machine.files_max, Some(1024));
        assert_eq!(machine.mitigations, (1, 1));
        assert_eq!(machine.steal, 0.1);
        assert!(machine.has_irqbalance);
        let [nic] = &machine.nics[..] else {
            panic!("one is up: {:?}", machine.nics);
        };
        assert_eq!((nic.name.as_str(), nic.mtu), ("eth1", 9000));
        assert_eq!((nic.rx_queues.len(), nic.tx_queues.len()), (2, 1));
        assert_eq!(nic.irqs, [40, 41]);
        assert!(nic.is_device);
    }

    #[test]
    fn a_machine_that_shows_nothing_has_nothing() {
        let machine = TestRoot::new().machine();
        assert!(machine.cpus.is_empty() && machine.nics.is_empty());
        assert_eq!((machine.cpu_limit, machine.memory_limit), (None, None));
        assert_eq!(machine.steal, 0.0);
    }
}
