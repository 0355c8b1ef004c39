//! The figures that `weft bench` makes: what is swept, which lines are drawn,
//! and what the papers printed. Tables only; the runner and the report go by
//! them.
//!
//! Each sweep is one axis, a load that its values change, and series that take
//! turns at each value. One sweep gives several charts: rate, throughput and CPU
//! of the same runs.

mod iwarp;
mod nfs_rdma;
mod others;
mod series;
mod shapes;
mod sizes;
#[cfg(test)]
mod tests;
mod tls;
mod volumes;

use super::load::{Load, LoadProtocol, Subject};
use super::measured::{Effort, Quantity, SeriesRole};

/// All there are, in the order of the report.
pub const CATALOGUE: &[SweepSpec] = &[
    sizes::NVME_READ,
    sizes::NVME_WRITE,
    sizes::ISCSI_READ,
    sizes::ISCSI_WRITE,
    sizes::NFS_READ,
    sizes::NFS_WRITE,
    iwarp::READ,
    iwarp::WRITE,
    iwarp::LATENCY,
    iwarp::CRC,
    iwarp::FPDU,
    nfs_rdma::READ,
    nfs_rdma::WRITE,
    shapes::NVME_READ,
    shapes::NVME_WRITE,
    shapes::ISCSI_READ,
    shapes::ISCSI_WRITE,
    shapes::NFS_READ,
    shapes::NFS_WRITE,
    others::LATENCY_4K,
    sizes::LATENCY_READ,
    sizes::LATENCY_WRITE,
    sizes::DIGESTS_NVME_READ,
    sizes::DIGESTS_NVME_WRITE,
    sizes::DIGESTS_ISCSI_READ,
    sizes::DIGESTS_ISCSI_WRITE,
    tls::READ,
    tls::WRITE,
    tls::CONNECTIONS,
    volumes::SWEEP,
    others::CONNECTIONS_READ,
    others::CONNECTIONS_WRITE,
    others::CONNECTIONS_LARGE_READ,
    others::CONNECTIONS_LARGE_WRITE,
    others::DEPTH_READ,
    others::DEPTH_WRITE,
    others::CORES_READ,
    others::CORES_WRITE,
    others::TAIL,
    others::MTU_READ,
    others::MTU_WRITE,
    others::HOSTS_READ,
    others::HOSTS_WRITE,
    others::MIXED,
    others::NAMES,
    others::PEERS_NVME,
    others::PEERS_ISCSI,
    others::PEERS_NFS,
];

/// One sweep.
#[derive(Clone, Copy, Debug)]
pub struct SweepSpec {
    /// What `weft bench run` calls it; lower case and dashes.
    pub name: &'static str,
    /// Above its charts.
    pub title: &'static str,
    /// Which figure or table of which paper it answers; for some there is none
    /// in print.
    pub paper: &'static str,
    /// How the load is made, in a sentence or two.
    pub about: &'static str,
    /// What is varied.
    pub axis: Axis,
    /// Before the axis and the series change it.
    pub load: Load,
    /// Sets what the axis is of, for one of its values.
    pub vary: fn(&mut Load, f64),
    /// Lines, the first of which the others are compared with.
    pub series: &'static [SeriesSpec],
    /// What is drawn of it.
    pub charts: &'static [Chart],
    /// What papers printed, beside it.
    pub references: &'static [Reference],
    /// How often and how long each point is measured.
    pub care: Care,
}

/// One line.
#[derive(Clone, Copy, Debug)]
pub struct SeriesSpec {
    /// In the legend; means the same wherever it is used.
    pub name: &'static str,
    /// What takes part.
    pub subject: Subject,
    /// Changes the sweep's load for it, after the axis has.
    pub adjust: fn(&mut Load),
}

/// What is varied.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// Below the chart.
    pub label: &'static str,
    /// How it is divided.
    pub scale: Scale,
    /// How values are written.
    pub unit: Unit,
    /// Values of a quick run: the ends.
    pub quick: &'static [f64],
    /// Of a normal run.
    pub normal: &'static [f64],
    /// Of a full run: all that the paper has.
    pub full: &'static [f64],
}

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Doubling is as far everywhere.
    Log2,
    /// In decades.
    Log10,
    /// Equal steps, from 0 on.
    Linear,
    /// No numbers: one place each, by index.
    Category,
}

/// How values of an axis are written.
#[derive(Clone, Copy, Debug)]
pub enum Unit {
    /// Binary multiples: "4k", "1m".
    Bytes,
    /// As they are.
    Count,
    /// By index.
    Names(&'static [&'static str]),
}

/// One chart.
#[derive(Clone, Copy, Debug)]
pub struct Chart {
    /// Ends the file's name, after the sweep's and a dash.
    pub name: &'static str,
    /// Above it.
    pub title: &'static str,
    /// What is drawn.
    pub y: Quantity,
    /// How the y axis is divided: `Linear` or `Log10`.
    pub y_scale: Scale,
    /// How.
    pub kind: ChartKind,
}

/// How a chart is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartKind {
    /// A line a series over the axis.
    Lines,
    /// Groups of bars, a group for each value of the axis.
    Bars,
    /// As `Bars`, of what each series has more than the first one, round by
    /// round: what the network adds to the volume's own latency.
    Difference,
    /// A line a series over the share of I/Os, as 1 in n: 10, 100, 1000, ...; one
    /// chart for each value of the axis.
    Distribution,
}

/// A number that a paper printed. Never ours, nor of a machine like this one.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    /// What it says, of which hardware.
    pub text: &'static str,
    /// In which charts it may stand; `None`: in none, only in words.
    pub quantity: Option<Quantity>,
    /// Where on the axis; `None`: at no single place.
    pub x: Option<f64>,
    /// The number, in the quantity's unit where there is one.
    pub value: f64,
    /// Its unit, as the paper gives it.
    pub unit: &'static str,
}

/// How carefully a sweep is measured, at each effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    /// What readers will quote: more rounds.
    Main,
    /// The rest.
    Other,
    /// Rare events: fewer rounds, each much longer.
    Rare,
}

impl SweepSpec {
    /// The sweep that is called so.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static SweepSpec> {
        CATALOGUE.iter().find(|sweep| sweep.name == name)
    }

    /// The series that is called so.
    #[must_use]
    pub fn series_named(&self, name: &str) -> Option<&SeriesSpec> {
        self.series.iter().find(|series| series.name == name)
    }

    /// What a series is asked for at `x`.
    #[must_use]
    pub fn load_at(&self, series: &SeriesSpec, x: f64) -> Load {
        let mut load = self.load;
        (self.vary)(&mut load, x);
        (series.adjust)(&mut load);
        load
    }
}

impl SeriesSpec {
    /// What part it plays.
    #[must_use]
    pub fn role(&self) -> SeriesRole {
        match self.subject {
            Subject::Weft(..) => SeriesRole::Weft,
            Subject::Ceiling(..) => SeriesRole::Ceiling,
            Subject::Local(..) => SeriesRole::Local,
            Subject::Peer(_) | Subject::Client(_) => SeriesRole::Peer,
        }
    }

    /// What it speaks.
    #[must_use]
    pub fn protocol(&self) -> LoadProtocol {
        use super::load::{CLIENTS, PEERS};
        let of = |table: &[(&str, LoadProtocol)], name| {
            let found = table.iter().find(|row| row.0 == name);
            found.expect("the catalogue names what there is").1
        };
        match self.subject {
            Subject::Weft(protocol, _)
            | Subject::Ceiling(protocol, _)
            | Subject::Local(protocol) => protocol,
            Subject::Peer(name) => of(PEERS, name),
            Subject::Client(name) => of(CLIENTS, name),
        }
    }
}

impl Axis {
    /// The values that are measured.
    #[must_use]
    pub fn points(&self, effort: Effort) -> &'static [f64] {
        match effort {
            Effort::Quick => self.quick,
            Effort::Normal => self.normal,
            Effort::Full => self.full,
        }
    }

    /// A value in words.
    #[must_use]
    pub fn label_of(&self, x: f64) -> String {
        let whole = x as u64;
        match self.unit {
            Unit::Names(names) => names
                .get(whole as usize)
                .map_or_else(|| whole.to_string(), |name| (*name).to_owned()),
            Unit::Bytes if whole >= 1 << 20 && whole.is_multiple_of(1 << 20) => {
                format!("{}m", whole >> 20)
            }
            Unit::Bytes if whole >= 1 << 10 && whole.is_multiple_of(1 << 10) => {
                format!("{}k", whole >> 10)
            }
            Unit::Bytes | Unit::Count => whole.to_string(),
        }
    }
}
