//! What the papers claim, what software alone makes of it here, what needs
//! hardware, and what remains to be done. Facts of the papers, not their words.

use serde::Serialize;

use super::figure::place;
use super::numbers::{NOT_MEASURED, short, shown};
use super::table::range;
use super::values::{self, Value};
use crate::catalogue::SweepSpec;
use crate::measured::{Measured, Quantity};
use crate::statistics::Summary;

/// One claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportClaim {
    /// What is claimed, of which hardware.
    pub(super) what: &'static str,
    pub(super) reach: Reach,
    /// What was measured here for it.
    pub(super) evidence: &'static [Evidence],
    /// What software alone does about it, what only hardware gives, what remains.
    pub(super) verdict: &'static str,
}

/// How far software alone comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// It is a property of the program.
    Software,
    /// Some of it, or the same in kind but not in size.
    Partly,
    /// Nothing of it.
    Hardware,
    /// It could be measured in software, and is not yet.
    Remains,
}

/// A number from a sweep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    pub(super) sweep: &'static str,
    pub(super) series: &'static str,
    pub(super) x: f64,
    pub(super) quantity: Quantity,
    /// Against what.
    pub(super) against: Against,
    /// What the claim comes to for this number, of the papers' hardware.
    pub(super) claimed: Option<f64>,
}

/// How a number stands to what is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// As much, or better, over all of the interval around the median.
    Reached,
    /// Ends of the interval are on both sides of what is claimed: it decides nothing.
    InNoise,
    Short,
}

/// What a number is compared with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Against {
    /// Nothing.
    Alone,
    /// How many times as much as another series at the same place.
    Times(&'static str),
    /// How much more than another series at the same place.
    Beyond(&'static str),
    /// How many times as much as the same series at another place.
    Elsewhere(f64),
}

use Against::{Alone, Beyond, Elsewhere, Times};
use Quantity::{
    BytesPerSecond, CopiedBytesPerIo, Iops, P50Us, P9999Us, SyscallsPerIo, TargetCpuSPerGbit,
};

const fn of(
    sweep: &'static str,
    series: &'static str,
    x: f64,
    quantity: Quantity,
    against: Against,
) -> Evidence {
    Evidence {
        sweep,
        series,
        x,
        quantity,
        against,
        claimed: None,
    }
}

const K: f64 = 1024.0;
const FAST: &str = "fast path";
const PLAIN: &str = "plain";
const LOCAL: &str = "local";

/// All of them, in the papers' order.
pub(super) const CLAIMS: &[ReportClaim] = &[
    ReportClaim {
        what: "NVMe/TCP: 99 Gbit/s, and 2.9 million I/Os a second of 4 KiB (user-space target, \
            100 GbE offload adapter, 12 cores, four hosts)",
        reach: Reach::Hardware,
        evidence: &[
            of("nvme-read", FAST, 4.0 * K, Iops, Alone).claimed(2.9e6),
            of("nvme-read", FAST, 4.0 * K, Iops, Times("ceiling, cold")),
            of("nvme-read", FAST, 256.0 * K, BytesPerSecond, Alone).claimed(99e9 / 8.0),
            of("nvme-write", FAST, 256.0 * K, BytesPerSecond, Alone).claimed(99e9 / 8.0),
        ],
        verdict: "Line rate wants an adapter and cores. What software has in its hand is the share \
            of bare sockets that it reaches on a core, and that is what is measured here.",
    },
    ReportClaim {
        what: "NVMe/TCP adds 4.98 µs to a read of 4 KiB and 4.96 µs to a write (user-space \
            target); 17.12 and 16.13 µs (kernel target); 100 GbE offload",
        reach: Reach::Partly,
        evidence: &[
            of("latency-4k", "NVMe/TCP, polling", 0.0, P50Us, Beyond(LOCAL)).claimed(4.98),
            of("latency-4k", "NVMe/TCP, polling", 1.0, P50Us, Beyond(LOCAL)).claimed(4.96),
            of(
                "latency-4k",
                "NVMe/TCP, sleeping",
                0.0,
                P50Us,
                Beyond(LOCAL),
            ),
            of("latency-4k", "ceiling, hot", 0.0, P50Us, Beyond(LOCAL)),
        ],
        verdict: "The kernel's TCP twice over and the switch from one process to the other are most \
            of what is added; what bare sockets add is the bound. There is no wire here, so the \
            papers' microseconds are of something else.",
    },
    ReportClaim {
        what: "Up to half of the CPU for each Gbit/s saved by offload, two cores a socket at 4 KiB \
            (kernel target and host, 100 GbE)",
        reach: Reach::Partly,
        evidence: &[
            of("nvme-read", FAST, 4.0 * K, TargetCpuSPerGbit, Times(PLAIN)).claimed(0.5),
            of(
                "nvme-read",
                FAST,
                256.0 * K,
                TargetCpuSPerGbit,
                Times(PLAIN),
            )
            .claimed(0.5),
            of("nvme-write", FAST, 4.0 * K, TargetCpuSPerGbit, Times(PLAIN)).claimed(0.5),
            of(
                "nvme-write",
                FAST,
                256.0 * K,
                TargetCpuSPerGbit,
                Times(PLAIN),
            )
            .claimed(0.5),
        ],
        verdict: "Batching, direct placement and one call for many PDUs are software and save CPU \
            against the plain way. TCP itself, and the kernel's copy, stay with the CPU.",
    },
    ReportClaim {
        what: "Offload keeps drops and reordering away from the host",
        reach: Reach::Remains,
        evidence: &[],
        verdict: "Retransmission is the kernel's TCP. Runs with packet loss need a kernel with \
            netem, or a guest; none is in the catalogue yet.",
    },
    ReportClaim {
        what: "Remote storage performs as local storage does",
        reach: Reach::Partly,
        evidence: &[
            of("latency-4k", "NVMe/TCP, polling", 0.0, P50Us, Times(LOCAL)).claimed(1.0),
            of(
                "latency-read",
                "NVMe/TCP, polling",
                64.0 * K,
                P50Us,
                Times(LOCAL),
            )
            .claimed(1.0),
        ],
        verdict: "True beside an SSD of 100 µs, and for large I/Os. Local here is memory, the \
            hardest thing to be compared with.",
    },
    ReportClaim {
        what: "No special switches or settings; unmodified clients",
        reach: Reach::Software,
        evidence: &[],
        verdict: "One program and one file, without root; kernel clients connect as they are. \
            There is no number to it; tests with other clients and targets stand for it.",
    },
    ReportClaim {
        what: "One network for all storage protocols",
        reach: Reach::Software,
        evidence: &[
            of("mixed", "NVMe/TCP", 1.0, Iops, Elsewhere(0.0)),
            of("mixed", "iSCSI", 1.0, Iops, Elsewhere(0.0)),
            of("mixed", "NFS", 1.0, Iops, Elsewhere(0.0)),
        ],
        verdict: "One process serves all of them on the same core. What each keeps of its rate \
            while the others run beside it is the figure; a third would be an even share.",
    },
    ReportClaim {
        what: "NVMe over iWARP: 1.2 million reads a second, line rate of 40 GbE from 4 KiB on, \
            writes limited by the number of SSDs",
        reach: Reach::Partly,
        evidence: &[
            of("iwarp-read", "NVMe/RDMA", 512.0, Iops, Alone).claimed(1.2e6),
            of("iwarp-read", "NVMe/RDMA", 4.0 * K, Iops, Times("NVMe/TCP")),
            of("iwarp-write", "NVMe/RDMA", 4.0 * K, Iops, Times("NVMe/TCP")),
        ],
        verdict: "iWARP in software, on the cores that the volumes have too: what the protocol \
            costs beside NVMe/TCP is measured; what an adapter saves is not.",
    },
    ReportClaim {
        what: "NVMe over iWARP adds less than 13 µs (40 GbE)",
        reach: Reach::Partly,
        evidence: &[of("iwarp-latency", "NVMe/RDMA", 512.0, P50Us, Beyond(LOCAL)).claimed(13.0)],
        verdict: "What iWARP in software adds over loopback, without a wire and without an \
            adapter.",
    },
    ReportClaim {
        what: "Data moves between adapter and SSD without copies and without the CPU",
        reach: Reach::Partly,
        evidence: &[
            of("nvme-read", FAST, 64.0 * K, CopiedBytesPerIo, Alone),
            of("nvme-write", FAST, 64.0 * K, CopiedBytesPerIo, Alone),
            of("nvme-write", PLAIN, 64.0 * K, CopiedBytesPerIo, Alone),
        ],
        verdict: "No copy in user space, counted by the program itself. The kernel copies once each \
            way over loopback; sends without that copy pay on real adapters. Past the CPU there is \
            no way in software.",
    },
    ReportClaim {
        what: "Scales to hundreds or thousands of SSDs",
        reach: Reach::Remains,
        evidence: &[of(
            "hosts-read",
            "iSCSI, 4 hosts, 32 LUNs",
            4.0 * K,
            Iops,
            Alone,
        )],
        verdict: "32 LUNs and 8 subsystems are measured; thousands of volumes are no figure yet.",
    },
    ReportClaim {
        what: "Five cores saturate 100 GbE at 4 KiB; placement by the adapter gives up to 33 % more \
            I/Os and 26 % less at the 99.99th percentile",
        reach: Reach::Partly,
        evidence: &[
            of(
                "cores-read",
                "incoming-cpu",
                2.0,
                Iops,
                Times("round-robin"),
            )
            .claimed(1.33),
            of(
                "cores-read",
                "incoming-cpu",
                2.0,
                P9999Us,
                Times("round-robin"),
            )
            .claimed(0.74),
            of("cores-read", "least-loaded", 2.0, Iops, Elsewhere(1.0)),
        ],
        verdict: "Placement by the kernel's hints is a setting. Queue sets of an adapter, which \
            keep a connection's interrupts on its core, have no form over loopback.",
    },
    ReportClaim {
        what: "16 connections: 15 system calls fewer in each round, by sending through io_uring",
        reach: Reach::Software,
        evidence: &[
            of("connections-read", "NVMe/TCP", 16.0, SyscallsPerIo, Alone),
            of(
                "connections-read",
                "NVMe/TCP, plain",
                16.0,
                SyscallsPerIo,
                Alone,
            ),
            of(
                "connections-read",
                "NVMe/TCP",
                16.0,
                SyscallsPerIo,
                Times("NVMe/TCP, plain"),
            )
            .claimed(1.0 / 16.0),
        ],
        verdict: "One call enters for all connections of a core. Counted, so it hardly depends on \
            the machine.",
    },
    ReportClaim {
        what: "NFS offload saves CPU: writes 60 to 40 % and reads 20 % at MTU 1500, 35 to 12 % and \
            30 to 20 % at MTU 9000 (100 GbE)",
        reach: Reach::Partly,
        evidence: &[
            of(
                "mtu-read",
                "NFS",
                1500.0,
                TargetCpuSPerGbit,
                Times("NFS, plain"),
            )
            .claimed(0.80),
            of(
                "mtu-read",
                "NFS",
                9000.0,
                TargetCpuSPerGbit,
                Times("NFS, plain"),
            )
            .claimed(0.80),
            of(
                "mtu-write",
                "NFS",
                1500.0,
                TargetCpuSPerGbit,
                Times("NFS, plain"),
            )
            .claimed(0.60),
            of(
                "mtu-write",
                "NFS",
                9000.0,
                TargetCpuSPerGbit,
                Times("NFS, plain"),
            )
            .claimed(0.88),
        ],
        verdict: "The part that batching and direct placement give. What an adapter saves of TCP \
            and of small frames it alone can save.",
    },
    ReportClaim {
        what: "Direct data placement leaves the caches clean",
        reach: Reach::Hardware,
        evidence: &[of("nfs-write", FAST, 64.0 * K, CopiedBytesPerIo, Alone)],
        verdict: "Cache misses cannot be counted where the machine has no counters for its guests. \
            Bytes copied are the nearest that software counts.",
    },
    ReportClaim {
        what: "Latency varies less with offload",
        reach: Reach::Partly,
        evidence: &[
            of("tail", FAST, 20_000.0, P9999Us, Times(PLAIN)).claimed(1.0),
            of("tail", FAST, 100_000.0, P9999Us, Times(PLAIN)).claimed(1.0),
        ],
        verdict: "Compared between modes at equal rates in an open loop. The tail of a shared \
            machine is mostly its neighbours'.",
    },
    ReportClaim {
        what: "About 30 % of a filer's price saved in CPU",
        reach: Reach::Remains,
        evidence: &[
            of("nfs-read", FAST, 64.0 * K, TargetCpuSPerGbit, Alone),
            of("nfs-read", FAST, 64.0 * K, TargetCpuSPerGbit, Times(PLAIN)),
            of("nfs-write", FAST, 64.0 * K, TargetCpuSPerGbit, Times(PLAIN)),
        ],
        verdict: "A model of prices, not a measurement. Seconds of CPU for each gigabit are \
            measured; prices are the reader's.",
    },
    ReportClaim {
        what: "Small NFS I/Os are limited by locks in the server's file system",
        reach: Reach::Software,
        evidence: &[
            of("nfs-read", FAST, 4.0 * K, Iops, Alone),
            of("nfs-read", FAST, 4.0 * K, Iops, Times("ceiling, cold")),
        ],
        verdict: "The file system in memory is served by the core of the connection. Over several \
            cores this is not in the catalogue yet.",
    },
    ReportClaim {
        what: "iSCSI: 2.8 million I/Os a second of 4 KiB and line rate of 100 GbE (PDU offload, \
            four initiators)",
        reach: Reach::Hardware,
        evidence: &[
            of("iscsi-read", FAST, 4.0 * K, Iops, Alone).claimed(2.8e6),
            of("iscsi-read", FAST, 4.0 * K, Iops, Times("ceiling, cold")),
            of("iscsi-read", FAST, 512.0 * K, BytesPerSecond, Alone).claimed(100e9 / 8.0),
        ],
        verdict: "As for NVMe/TCP: the share of bare sockets on a core is what software decides.",
    },
    ReportClaim {
        what: "iSCSI: CPU of the target below 50 %, falling with the I/O size",
        reach: Reach::Software,
        evidence: &[
            of("iscsi-read", FAST, 4.0 * K, TargetCpuSPerGbit, Alone),
            of("iscsi-read", FAST, 512.0 * K, TargetCpuSPerGbit, Alone),
            of(
                "iscsi-read",
                FAST,
                512.0 * K,
                TargetCpuSPerGbit,
                Elsewhere(4.0 * K),
            )
            .claimed(1.0),
        ],
        verdict: "CPU for each Gbit/s falls with the size as in the paper. Percent of a whole \
            machine say nothing across machines and are left out.",
    },
    ReportClaim {
        what: "iSCSI adds 15 µs to a read and 17 µs to a write of 4 KiB (PDU offload, 100 GbE)",
        reach: Reach::Partly,
        evidence: &[
            of("latency-4k", "iSCSI", 0.0, P50Us, Beyond(LOCAL)).claimed(15.0),
            of("latency-4k", "iSCSI", 1.0, P50Us, Beyond(LOCAL)).claimed(17.0),
        ],
        verdict: "Over loopback, without a wire: software's share only.",
    },
    ReportClaim {
        what: "Digests cost nothing (computed by the adapter)",
        reach: Reach::Partly,
        evidence: &[
            of(
                "digests-iscsi-read",
                "both digests",
                128.0 * K,
                BytesPerSecond,
                Times("no digests"),
            )
            .claimed(1.0),
            of(
                "digests-iscsi-write",
                "both digests",
                128.0 * K,
                BytesPerSecond,
                Times("no digests"),
            )
            .claimed(1.0),
            of(
                "digests-nvme-read",
                "both digests",
                128.0 * K,
                BytesPerSecond,
                Times("no digests"),
            )
            .claimed(1.0),
        ],
        verdict: "CRC32C by the CPU's own instructions has a price, and both ends pay it here. Only \
            an adapter makes it free.",
    },
];

/// A claim as the page shows it.
#[derive(Debug, Serialize)]
pub(super) struct ClaimRow {
    what: &'static str,
    numbers: Vec<Number>,
    verdict: String,
    reach: &'static str,
    meaning: &'static str,
}

/// A number that was measured for a claim.
#[derive(Debug, Serialize)]
struct Number {
    sweep: &'static str,
    words: String,
    found: Option<ClaimFinding>,
}

#[derive(Debug, Serialize)]
struct ClaimFinding {
    median: String,
    range: String,
    /// What is claimed for it, and how it stands to that.
    claimed: Option<String>,
}

/// Every claim, and how many stand how.
pub(super) fn rows(measured: &Measured) -> (Vec<ClaimRow>, String) {
    let standings = CLAIMS.iter().map(|claim| claim.standings(measured));
    let standings: Vec<_> = standings.collect();
    let rows = CLAIMS
        .iter()
        .zip(&standings)
        .map(|(claim, standings)| ClaimRow {
            what: claim.what,
            numbers: claim
                .evidence
                .iter()
                .map(|evidence| evidence.number_of(measured))
                .collect(),
            verdict: verdict(claim, standings),
            reach: word(claim.reach),
            meaning: claim.verdict,
        });
    (rows.collect(), totals(&standings))
}

/// How many claims stand how.
fn totals(standings: &[Vec<Option<Standing>>]) -> String {
    let count = |is_such: fn(&[Standing]) -> bool| {
        let known = standings.iter().map(|all| all.iter().flatten().copied());
        let known = known.map(Iterator::collect::<Vec<_>>);
        known.filter(|all| is_such(all)).count()
    };
    let known = count(|all| !all.is_empty());
    let all = count(|all| !all.is_empty() && all.iter().all(|one| *one == Standing::Reached));
    let none = count(|all| !all.is_empty() && !all.contains(&Standing::Reached));
    let some = known - all - none;
    let open = count(|all| all.contains(&Standing::InNoise));
    let without = standings.len() - known;
    format!(
        "Of {} claims {all} are reached in every number that they have here, {some} in some, \
         {none} in none; {without} have no number to compare, or it was not measured. In {open} a \
         number is within the noise: it counts as not reached.",
        standings.len()
    )
}

/// In words, from the numbers.
fn verdict(claim: &ReportClaim, standings: &[Option<Standing>]) -> String {
    let known: Vec<_> = standings.iter().flatten().collect();
    let count = |wanted: Standing| known.iter().filter(|one| ***one == wanted).count();
    let (reached, noise) = (count(Standing::Reached), count(Standing::InNoise));
    let all = known.len();
    let of_reached = match (all, reached) {
        (0, _) if claim.evidence.is_empty() => return "no number".into(),
        (0, _) if standings.is_empty() => return "nothing to compare".into(),
        (0, _) => return NOT_MEASURED.into(),
        (_, 0) => "not reached".to_owned(),
        (_, reached) if reached < all => format!("reached in {reached} of {all}"),
        _ => "reached".to_owned(),
    };
    match noise {
        0 => of_reached,
        _ => format!("{of_reached}; {noise} of {all} within the noise"),
    }
}

fn word(reach: Reach) -> &'static str {
    match reach {
        Reach::Software => "yes",
        Reach::Partly => "in part",
        Reach::Hardware => "needs hardware",
        Reach::Remains => "remains",
    }
}

impl ReportClaim {
    /// Of each number for which something is claimed; `None` where it was not
    /// measured.
    fn standings(&self, measured: &Measured) -> Vec<Option<Standing>> {
        let of = |evidence: &Evidence| {
            let claimed = evidence.claimed?;
            let found = evidence.find(measured);
            Some(found.map(|summary| evidence.standing(&summary, claimed)))
        };
        self.evidence.iter().filter_map(of).collect()
    }
}

impl Evidence {
    /// Of what the paper printed, in the quantity's own unit, or as a factor.
    const fn claimed(self, value: f64) -> Evidence {
        Evidence {
            claimed: Some(value),
            ..self
        }
    }

    fn standing(&self, summary: &Summary, claimed: f64) -> Standing {
        let is_good = |value: f64| match values::is_gain(self.quantity) {
            true => value >= claimed,
            false => value <= claimed,
        };
        let (low, high) = summary.interval;
        match (is_good(low), is_good(high)) {
            (true, true) => Standing::Reached,
            (false, false) => Standing::Short,
            _ => Standing::InNoise,
        }
    }

    /// What is claimed, and how the number stands to it.
    fn compare(&self, summary: &Summary, claimed: f64) -> String {
        let bound = match values::is_gain(self.quantity) {
            true => "or more",
            false => "or less",
        };
        let standing = match self.standing(summary, claimed) {
            Standing::Reached => "reached".to_owned(),
            Standing::InNoise => "within the noise".to_owned(),
            Standing::Short => format!("×{} of it", short(summary.median / claimed)),
        };
        format!("claimed {} {bound}: {standing}", self.number(claimed))
    }

    fn number_of(&self, measured: &Measured) -> Number {
        let found = self.find(measured).map(|summary| ClaimFinding {
            median: self.number(summary.median),
            range: range(&summary, |value| self.digits(value)),
            claimed: self.claimed.map(|claimed| self.compare(&summary, claimed)),
        });
        Number {
            sweep: self.sweep,
            words: self.words(),
            found,
        }
    }

    /// What the number is.
    fn words(&self) -> String {
        let spec = SweepSpec::named(self.sweep);
        let at = |x: f64| spec.map_or_else(|| x.to_string(), |spec| place(spec, x));
        let name = shown(self.quantity).name.to_lowercase();
        let name = name
            .replace("cpu", "CPU")
            .replace("i/o", "I/O")
            .replace("gbit", "Gbit");
        let what = format!("{}, {}, {}: {name}", self.sweep, self.series, at(self.x));
        match self.against {
            Alone => what,
            Times(other) => format!("{what}, against {other}"),
            Beyond(other) => format!("{what}, beyond {other}"),
            Elsewhere(x) => format!("{what}, against {}", at(x)),
        }
    }

    /// With its unit.
    fn number(&self, value: f64) -> String {
        let digits = self.digits(value);
        match (self.against, shown(self.quantity).unit) {
            (Times(_) | Elsewhere(_), _) => format!("×{digits}"),
            (_, "") => digits,
            (_, "% of a core") => format!("{digits} %"),
            (_, unit) => format!("{digits} {unit}"),
        }
    }

    fn digits(&self, value: f64) -> String {
        match self.against {
            Times(_) | Elsewhere(_) => short(value),
            Alone | Beyond(_) => shown(self.quantity).number(value),
        }
    }

    /// The number, where it was measured.
    pub(super) fn find(&self, measured: &Measured) -> Option<Summary> {
        let sweep = measured
            .sweeps
            .iter()
            .find(|sweep| sweep.name == self.sweep)?;
        let value = |series: &str, x: f64| {
            let point = values::point(values::series(sweep, series)?, x)?;
            Value::of(point, self.quantity)
        };
        let own = value(self.series, self.x)?;
        match self.against {
            Alone => Some(own.summary),
            Times(other) => own.ratio(&value(other, self.x)?),
            Beyond(other) => Some(own.difference(&value(other, self.x)?)?.summary),
            Elsewhere(x) => own.ratio(&value(self.series, x)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::Effort;

    fn claim(what: &str) -> &'static ReportClaim {
        let found = CLAIMS.iter().find(|claim| claim.what.starts_with(what));
        found.expect("it is claimed")
    }

    /// Medians of 0.73, 0.56 and 0.60 of what is claimed, two with wide intervals.
    #[test]
    fn number_within_the_noise_is_not_reached() {
        let digests = claim("Digests cost nothing");
        let standing = |median: f64, interval: (f64, f64)| {
            let summary = Summary {
                interval,
                ..Summary::of(&[median]).expect("a number")
            };
            Some(digests.evidence[0].standing(&summary, 1.0))
        };
        let wide = [
            standing(0.73, (0.5, 1.1)),
            standing(0.56, (0.4, 1.02)),
            standing(0.60, (0.55, 0.7)),
        ];
        assert_eq!(
            verdict(digests, &wide),
            "not reached; 2 of 3 within the noise"
        );
        // No more does a median that is just above.
        let above = [standing(1.01, (0.9, 1.1)), standing(1.2, (1.1, 1.3))];
        assert_eq!(
            verdict(digests, &above),
            "reached in 1 of 2; 1 of 2 within the noise"
        );
        assert_eq!(verdict(digests, &[standing(1.2, (1.1, 1.3))]), "reached");
    }

    #[test]
    fn claim_about_iwarp_has_no_number_of_nvme_tcp() {
        let of_iwarp = CLAIMS.iter().filter(|claim| claim.what.contains("iWARP"));
        for evidence in of_iwarp.flat_map(|claim| claim.evidence) {
            assert_eq!(evidence.series, "NVMe/RDMA", "{evidence:?}");
        }
    }

    #[test]
    fn every_number_that_is_asked_for_is_in_a_full_run() {
        for evidence in CLAIMS.iter().flat_map(|claim| claim.evidence) {
            let spec = SweepSpec::named(evidence.sweep).expect(evidence.sweep);
            let other = match evidence.against {
                Times(other) | Beyond(other) => other,
                Alone | Elsewhere(_) => evidence.series,
            };
            for name in [evidence.series, other] {
                assert!(spec.series_named(name).is_some(), "{evidence:?}");
            }
            let places = spec.axis.points(Effort::Full);
            assert!(places.contains(&evidence.x), "{evidence:?}");
            if let Elsewhere(x) = evidence.against {
                assert!(places.contains(&x), "{evidence:?}");
            }
            let is_drawn = spec.charts.iter().any(|chart| chart.y == evidence.quantity);
            assert!(
                is_drawn,
                "{evidence:?} is in no chart that the number could be checked by"
            );
        }
    }
}
