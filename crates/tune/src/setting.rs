//! The settings of a machine that storage over a network feels: one table.

use crate::cpus::CpuSet;
use crate::machine::{Machine, Nic};

/// What the machine is to be good at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// Bytes and I/Os a second.
    Throughput,
    /// The time that one I/O takes.
    Latency,
}

/// What came of looking at one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is set.
    pub name: String,
    /// Its file, below the root; `None` where it is set elsewhere: by the
    /// firmware, at boot, by the program that started this process.
    pub path: Option<String>,
    /// How it is.
    pub now: String,
    /// How the profile wants it; `None` where it is fine as it is.
    pub wanted: Option<String>,
    /// What that brings.
    pub brings: &'static str,
}

/// All that is worth saying about a machine.
pub fn findings(machine: &Machine, profile: Profile) -> Vec<Finding> {
    let all = TABLE
        .iter()
        .filter(|row| row.profile.is_none_or(|own| own == profile));
    let found = all.flat_map(|row| {
        let spots = (row.look)(machine).into_iter();
        spots.map(|spot| Finding {
            name: spot.name,
            path: spot.path,
            now: spot.now,
            wanted: spot.wanted,
            brings: row.brings,
        })
    });
    found.collect()
}

/// One place where a setting stands.
struct Spot {
    name: String,
    path: Option<String>,
    now: String,
    wanted: Option<String>,
}

/// A setting.
struct SettingRow {
    /// The profile that wants it; `None`: both do.
    profile: Option<Profile>,
    brings: &'static str,
    look: fn(&Machine) -> Vec<Spot>,
}

/// Window that a connection may grow to, bytes: 100 Gbit/s over 1.3 ms.
const WINDOW_BYTES: u64 = 16 << 20;
/// Connections that may wait to be accepted.
const BACKLOG: u64 = 4096;
/// An idle state that takes longer to leave than this is felt, microseconds.
const WAKEUP_US_MAX: u64 = 10;

const TABLE: &[SettingRow] = &[
    SettingRow {
        profile: None,
        brings: "the CPUs do not slow down between I/Os: a slow clock shows in every latency",
        look: |machine| {
            each_cpu(machine, "cpufreq/scaling_governor", |_| {
                "performance".into()
            })
        },
    },
    SettingRow {
        profile: Some(Profile::Latency),
        brings: "a CPU that sleeps wakes up within 10 us; costs power while idle",
        look: idle_states,
    },
    SettingRow {
        profile: None,
        brings: "memory of RAM volumes and buffers in huge pages: up to 1.7 times the random reads",
        look: |machine| {
            let path = "sys/kernel/mm/transparent_hugepage/enabled";
            let shown = machine.read(path);
            let chosen = shown
                .as_deref()
                .and_then(|all| all.split(['[', ']']).nth(1));
            let wanted = |now: &str| (now == "never").then(|| "madvise".to_owned());
            spot(path, chosen.map(str::to_owned), wanted)
        },
    },
    SettingRow {
        profile: None,
        brings: "pages of volumes are not unmapped now and then to see which node uses them",
        look: |machine| {
            let has_nodes = machine.nodes > 1;
            let wanted = move |now: &str| (has_nodes && now != "0").then(|| "0".to_owned());
            sysctl(machine, "kernel.numa_balancing", wanted)
        },
    },
    SettingRow {
        profile: None,
        brings: "a connection that paused goes on at full speed instead of ten packets a round trip",
        look: |machine| {
            let wanted = |now: &str| (now != "0").then(|| "0".to_owned());
            sysctl(machine, "net.ipv4.tcp_slow_start_after_idle", wanted)
        },
    },
    SettingRow {
        profile: None,
        brings: "payload goes when it is ready, not when a timer of BBR's pacing lets it: up to \
                 four times the large reads of a connection; BBR is for links that lose packets",
        look: |machine| {
            let wanted = |now: &str| now.starts_with("bbr").then(|| unpaced(machine));
            sysctl(machine, "net.ipv4.tcp_congestion_control", wanted)
        },
    },
    SettingRow {
        profile: Some(Profile::Throughput),
        brings: "writes of one connection fill 100 Gbit/s over a millisecond: its window may grow",
        look: |machine| sysctl(machine, "net.ipv4.tcp_rmem", raise_last),
    },
    SettingRow {
        profile: Some(Profile::Throughput),
        brings: "reads of one connection fill 100 Gbit/s over a millisecond: its buffer may grow",
        look: |machine| sysctl(machine, "net.ipv4.tcp_wmem", raise_last),
    },
    SettingRow {
        profile: None,
        brings: "thousands of hosts that come back at once are not turned away",
        look: |machine| sysctl(machine, "net.core.somaxconn", |now| at_least(now, BACKLOG)),
    },
    SettingRow {
        profile: Some(Profile::Throughput),
        brings: "packets of veth pairs, bridges and RPS are not dropped in a burst: they wait here",
        look: |machine| {
            let wanted = |now: &str| at_least(now, BACKLOG);
            sysctl(machine, "net.core.netdev_max_backlog", wanted)
        },
    },
    SettingRow {
        profile: Some(Profile::Latency),
        brings: "with `io = \"epoll\"` a reactor looks at the NIC's queue for 50 us before it \
                 sleeps: some us off each I/O, for CPU time",
        look: |machine| {
            let has_device = machine.nics.iter().any(|nic| nic.is_device);
            let wanted = move |now: &str| (has_device && now == "0").then(|| "50".to_owned());
            sysctl(machine, "net.core.busy_poll", wanted)
        },
    },
    SettingRow {
        profile: None,
        brings: "each queue of the NIC interrupts a CPU of its own; with `placement = \
                 \"incoming-cpu\"` its connections are served there",
        look: |machine| each_nic(machine, interrupts),
    },
    SettingRow {
        profile: Some(Profile::Throughput),
        brings: "a NIC with fewer queues than CPUs has TCP done on all of them (RPS)",
        look: |machine| each_nic(machine, receive_steering),
    },
    SettingRow {
        profile: None,
        brings: "a CPU sends by a queue of its own: no lock between them (XPS)",
        look: |machine| each_nic(machine, transmit_steering),
    },
    SettingRow {
        profile: Some(Profile::Throughput),
        brings: "a sixth of the packets; only if the switch and the other end have it too",
        look: |machine| each_nic(machine, mtu),
    },
    SettingRow {
        profile: None,
        brings: "interrupts stay where they were put",
        look: |machine| {
            let runs = ["not running", "running"][usize::from(machine.has_irqbalance)];
            let has_irqs = machine.nics.iter().any(|nic| !nic.irqs.is_empty());
            let wanted = machine.has_irqbalance && has_irqs;
            elsewhere("irqbalance", runs.into(), wanted.then(|| "stopped".into()))
        },
    },
    SettingRow {
        profile: None,
        brings: "io_uring: one system call for many I/Os; weft uses epoll without it",
        look: |machine| {
            let Some(now) = machine.read("proc/sys/kernel/io_uring_disabled") else {
                return Vec::new();
            };
            let wanted = (now != "0").then(|| "0, where your policy allows it".into());
            elsewhere("kernel.io_uring_disabled", now, wanted)
        },
    },
    SettingRow {
        profile: None,
        brings: "a reactor has a core to itself: name one CPU of each core in `cpus`",
        look: |machine| {
            let (cpus, cores) = (machine.cpus.to_string(), machine.cores.to_string());
            let wanted = (machine.cores.len() < machine.cpus.len()).then_some(cores);
            elsewhere("CPUs of weft", cpus, wanted)
        },
    },
    SettingRow {
        profile: None,
        brings: "reactors are not stopped in the middle of a period: tails of tens of ms go",
        look: |machine| {
            let cpus = machine.cpus.len() as f64;
            let Some(limit) = machine.cpu_limit else {
                return elsewhere("cpu.max of the control group", "no limit".into(), None);
            };
            let wanted = (limit < cpus).then(|| format!("no limit, or {limit:.0} reactors"));
            elsewhere(
                "cpu.max of the control group",
                format!("{limit:.1} CPUs"),
                wanted,
            )
        },
    },
    SettingRow {
        profile: None,
        brings: "so many connections at once",
        look: |machine| {
            let Some(now) = machine.files_max else {
                return Vec::new();
            };
            let wanted = (now < FILES).then(|| format!("{FILES} (`LimitNOFILE=`, `ulimit -n`)"));
            elsewhere("open files", now.to_string(), wanted)
        },
    },
    SettingRow {
        profile: None,
        brings: "time that the hypervisor gives to others shows as tails; nothing in the guest \
                 changes it",
        look: |machine| {
            let now = format!("{:.1} % since boot", machine.steal * 100.0);
            let wanted = (machine.steal > 0.01).then(|| "CPUs of its own".to_owned());
            elsewhere("steal", now, wanted)
        },
    },
];

/// Descriptors for the connections that weft takes at most, and its files.
const FILES: u64 = 16 * 1024;

/// At most one place.
fn spot(path: &str, now: Option<String>, wanted: impl FnOnce(&str) -> Option<String>) -> Vec<Spot> {
    let Some(now) = now else { return Vec::new() };
    let wanted = wanted(&now);
    vec![Spot {
        name: format!("/{path}"),
        path: Some(path.to_owned()),
        now,
        wanted,
    }]
}

/// What can only be said.
fn elsewhere(name: &str, now: String, wanted: Option<String>) -> Vec<Spot> {
    vec![Spot {
        name: name.to_owned(),
        path: None,
        now,
        wanted,
    }]
}

fn sysctl(machine: &Machine, name: &str, wanted: impl FnOnce(&str) -> Option<String>) -> Vec<Spot> {
    let path = format!("proc/sys/{}", name.replace('.', "/"));
    let mut spots = spot(&path, machine.read(&path), wanted);
    spots
        .iter_mut()
        .for_each(|spot| spot.name = name.to_owned());
    spots
}

/// The kernel's default way to control congestion, or the one that is always there.
fn unpaced(machine: &Machine) -> String {
    let available = machine.read("proc/sys/net/ipv4/tcp_available_congestion_control");
    let has_cubic = available.is_some_and(|all| all.split_whitespace().any(|one| one == "cubic"));
    if has_cubic { "cubic" } else { "reno" }.to_owned()
}

fn at_least(now: &str, least: u64) -> Option<String> {
    let now: u64 = now.parse().ok()?;
    (now < least).then(|| least.to_string())
}

/// Raises the last of three numbers: what TCP may grow to by itself.
fn raise_last(now: &str) -> Option<String> {
    let (rest, last) = now.rsplit_once(' ')?;
    Some(format!("{rest} {}", at_least(last, WINDOW_BYTES)?))
}

/// The same file of every CPU of weft.
fn each_cpu(machine: &Machine, file: &str, wanted: impl Fn(usize) -> String) -> Vec<Spot> {
    let one = |cpu| {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/{file}");
        let wanted = wanted(cpu);
        spot(&path, machine.read(&path), |now| {
            (now != wanted).then_some(wanted)
        })
    };
    machine.cpus.iter().flat_map(one).collect()
}

fn idle_states(machine: &Machine) -> Vec<Spot> {
    let mut spots = Vec::new();
    for cpu in machine.cpus.iter() {
        let dir = format!("sys/devices/system/cpu/cpu{cpu}/cpuidle");
        for state in machine.numbered(&dir, "state") {
            let latency = machine.read(&format!("{dir}/state{state}/latency"));
            let latency: u64 = latency.and_then(|us| us.parse().ok()).unwrap_or(0);
            if latency > WAKEUP_US_MAX {
                let path = format!("{dir}/state{state}/disable");
                let wanted = |now: &str| (now == "0").then(|| "1".to_owned());
                spots.extend(spot(&path, machine.read(&path), wanted));
            }
        }
    }
    spots
}

/// Of every NIC that is a device.
fn each_nic(machine: &Machine, look: fn(&Machine, &Nic) -> Vec<Spot>) -> Vec<Spot> {
    let devices = machine.nics.iter().filter(|nic| nic.is_device);
    devices.flat_map(|nic| look(machine, nic)).collect()
}

/// The CPU of a queue: each in turn.
fn cpu_of(machine: &Machine, queue: usize) -> Option<usize> {
    machine.cpus.iter().nth(queue % machine.cpus.len().max(1))
}

/// A NIC with as many interrupts as CPUs gives each its own.
fn interrupts(machine: &Machine, nic: &Nic) -> Vec<Spot> {
    let mut spots = Vec::new();
    for (index, irq) in nic.irqs.iter().enumerate() {
        let path = format!("proc/irq/{irq}/smp_affinity_list");
        let Some(cpu) = cpu_of(machine, index).filter(|_| nic.irqs.len() > 1) else {
            continue;
        };
        let is_own = |now: &str| CpuSet::from_list(now).is_some_and(|set| set.len() == 1);
        let wanted = |now: &str| (!is_own(now)).then(|| cpu.to_string());
        spots.extend(spot(&path, machine.read(&path), wanted));
    }
    spots
}

fn receive_steering(machine: &Machine, nic: &Nic) -> Vec<Spot> {
    let needs_it = nic.rx_queues.len() < machine.cpus.len();
    let path = |queue| format!("sys/class/net/{}/queues/rx-{queue}/rps_cpus", nic.name);
    let wanted = needs_it.then(|| machine.cpus.clone());
    queue_masks(machine, &nic.rx_queues, path, |_| wanted.clone())
}

fn transmit_steering(machine: &Machine, nic: &Nic) -> Vec<Spot> {
    let queues = nic.tx_queues.len();
    let path = |queue| format!("sys/class/net/{}/queues/tx-{queue}/xps_cpus", nic.name);
    let own = |queue: usize| -> Option<CpuSet> {
        let cpus = machine.cpus.iter().enumerate();
        let own = cpus.filter(|(index, _)| index % queues == queue % queues);
        (queues > 1).then(|| own.map(|(_, cpu)| cpu).collect())
    };
    queue_masks(machine, &nic.tx_queues, path, own)
}

/// Masks of queues; those that are set already stay.
fn queue_masks(
    machine: &Machine,
    queues: &[usize],
    path: impl Fn(usize) -> String,
    own: impl Fn(usize) -> Option<CpuSet>,
) -> Vec<Spot> {
    let one = |&queue: &usize| {
        let path = path(queue);
        let wanted = |now: &str| {
            let is_unset = CpuSet::from_mask(now).is_some_and(|set| set.is_empty());
            own(queue)
                .filter(|set| is_unset && !set.is_empty())
                .map(|set| set.mask())
        };
        spot(&path, machine.read(&path), wanted)
    };
    queues.iter().flat_map(one).collect()
}

/// Not set here: the path is as good as its smallest link.
fn mtu(_: &Machine, nic: &Nic) -> Vec<Spot> {
    let wanted = (nic.mtu < 9000).then(|| "9000".to_owned());
    elsewhere(&format!("MTU of {}", nic.name), nic.mtu.to_string(), wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestRoot;

    fn wanted(tree: &TestRoot, profile: Profile, name: &str) -> Option<Option<String>> {
        let found = findings(&tree.machine(), profile).into_iter();
        found
            .filter(|finding| finding.name == name)
            .map(|f| f.wanted)
            .next()
    }

    #[test]
    fn windows_grow_but_never_shrink() {
        let tree = TestRoot::new();
        tree.put("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n");
        tree.put("proc/sys/net/ipv4/tcp_wmem", "4096 16384 67108864\n");
        let raised = Some("4096 131072 16777216".to_owned());
        assert_eq!(
            wanted(&tree, Profile::Throughput, "net.ipv4.tcp_rmem"),
            Some(raised)
        );
        assert_eq!(
            wanted(&tree, Profile::Throughput, "net.ipv4.tcp_wmem"),
            Some(None)
        );
        assert_eq!(wanted(&tree, Profile::Latency, "net.ipv4.tcp_rmem"), None);
    }

    #[test]
    fn congestion_control_that_paces_is_replaced_by_an_available_one() {
        let tree = TestRoot::new();
        let name = "net.ipv4.tcp_congestion_control";
        let dir = "proc/sys/net/ipv4";
        tree.put(&format!("{dir}/tcp_congestion_control"), "bbr\n");
        let wants = |what: &str| Some(Some(what.to_owned()));
        assert_eq!(wanted(&tree, Profile::Latency, name), wants("reno"));
        let available = format!("{dir}/tcp_available_congestion_control");
        tree.put(&available, "reno bbr cubic\n");
        assert_eq!(wanted(&tree, Profile::Throughput, name), wants("cubic"));
        tree.put(&format!("{dir}/tcp_congestion_control"), "dctcp\n");
        assert_eq!(wanted(&tree, Profile::Throughput, name), Some(None));
    }

    #[test]
    fn queues_are_spread_over_the_cpus_of_weft() {
        let tree = TestRoot::new();
        tree.put("proc/self/status", "Cpus_allowed_list:\t0-3\n");
        tree.nic("eth0", "up", 1500, (2, 2), &[40, 41]);
        tree.put("sys/class/net/eth0/queues/rx-1/rps_cpus", "1\n");
        let at = |path: &str| format!("/sys/class/net/eth0/queues/{path}");
        let profile = Profile::Throughput;
        assert_eq!(
            wanted(&tree, profile, &at("rx-0/rps_cpus")),
            Some(Some("f".into()))
        );
        assert_eq!(
            wanted(&tree, profile, &at("rx-1/rps_cpus")),
            Some(None),
            "set already"
        );
        assert_eq!(
            wanted(&tree, profile, &at("tx-0/xps_cpus")),
            Some(Some("5".into()))
        );
        assert_eq!(
            wanted(&tree, profile, &at("tx-1/xps_cpus")),
            Some(Some("a".into()))
        );
        let irq = "/proc/irq/41/smp_affinity_list";
        assert_eq!(wanted(&tree, profile, irq), Some(Some("1".into())));
        tree.put("proc/irq/41/smp_affinity_list", "3\n");
        assert_eq!(wanted(&tree, profile, irq), Some(None));
    }

    #[test]
    fn only_deep_idle_states_are_for_latency_to_end() {
        let tree = TestRoot::new();
        tree.put("proc/self/status", "Cpus_allowed_list:\t1\n");
        for (state, latency) in [(0, "0"), (1, "10"), (2, "80")] {
            let dir = format!("sys/devices/system/cpu/cpu1/cpuidle/state{state}");
            tree.put(&format!("{dir}/latency"), latency);
            tree.put(&format!("{dir}/disable"), "0");
        }
        let machine = tree.machine();
        let deep = |profile| {
            let found = findings(&machine, profile);
            let names = found.into_iter().map(|finding| finding.name);
            names
                .filter(|name| name.contains("cpuidle"))
                .collect::<Vec<_>>()
        };
        let path = "/sys/devices/system/cpu/cpu1/cpuidle/state2/disable";
        assert_eq!(deep(Profile::Latency), [path]);
        assert_eq!(deep(Profile::Throughput), [""; 0]);
    }

    #[test]
    fn the_word_in_brackets_is_the_one_that_holds() {
        let tree = TestRoot::new();
        let path = "sys/kernel/mm/transparent_hugepage/enabled";
        let name = format!("/{path}");
        tree.put(path, "always madvise [never]\n");
        let wants = Some(Some("madvise".to_owned()));
        assert_eq!(wanted(&tree, Profile::Latency, &name), wants);
        tree.put(path, "always [madvise] never\n");
        assert_eq!(wanted(&tree, Profile::Latency, &name), Some(None));
    }
}
