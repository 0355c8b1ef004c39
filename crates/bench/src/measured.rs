//! What `weft bench run` measured, as `results.json` holds it: every run, none
//! left out. The report is made of this and of the catalogue alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// A whole `results.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Of this layout: [`FORMAT`].
    pub format: u32,
    /// How thorough it was.
    pub effort: Effort,
    /// On what, with what, when.
    pub provenance: Provenance,
    /// In the catalogue's order.
    pub sweeps: Vec<Sweep>,
    /// What could not be measured here.
    pub skipped: Vec<Skipped>,
}

/// The layout that this version writes and reads.
pub const FORMAT: u32 = 1;

/// How long runs are and how many of them there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effort {
    /// Whether everything works: few points, short runs.
    Quick,
    /// For a user who waits.
    Normal,
    /// For a report that is kept.
    Full,
}

/// One sweep of the catalogue: series over an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// The catalogue's name of it.
    pub name: String,
    /// Each line of the chart.
    pub series: Vec<Series>,
}

/// One line of a chart: one mode, client or peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What it is called, the same in every sweep that has it.
    pub name: String,
    /// What part it plays.
    pub role: SeriesRole,
    /// In the order of the axis.
    pub points: Vec<Point>,
}

/// What a series is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeriesRole {
    /// weft in one of its modes.
    Weft,
    /// Bare sockets moving the same bytes: the line that nothing passes.
    Ceiling,
    /// The volume without a network between.
    Local,
    /// Another program's client or target.
    Peer,
}

/// All runs at one place of the axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Where on the axis: bytes, a depth, a count; of a category its number.
    pub x: f64,
    /// The same in words: "4k", "8", "round-robin".
    pub label: String,
    /// One each round, in the order in which they were made; series take turns.
    pub samples: Vec<Sample>,
    /// What was the bottleneck.
    pub limit: Limit,
    /// What was run, word by word; the configuration of the target first.
    pub commands: Vec<String>,
}

/// What one run gave. What a client or peer does not tell is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// In which round, from 0: samples of one round are neighbours in time.
    pub round: u32,
    /// Quantities by name.
    pub values: BTreeMap<Quantity, f64>,
    /// I/Os completed in each tenth of the run, for whether it was steady.
    pub tenths: Vec<f64>,
    /// Latency distribution where it was asked for: (share of I/Os at most that
    /// long, in 0 to 1; microseconds), ascending.
    pub distribution: Vec<(f64, f64)>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// I/Os (or calls) a second.
    Iops,
    /// Payload bytes a second.
    BytesPerSecond,
    /// Mean latency, microseconds.
    MeanUs,
    /// 50th percentile of latency, microseconds.
    P50Us,
    /// 99th percentile.
    P99Us,
    /// 99.9th percentile.
    P999Us,
    /// 99.99th percentile.
    P9999Us,
    /// 99.999th percentile.
    P99999Us,
    /// CPU time of the target for each 10^9 bits of payload, seconds: the cores
    /// that 1 Gbit/s takes.
    TargetCpuSPerGbit,
    /// The same of the client.
    ClientCpuSPerGbit,
    /// CPU time of the target for an I/O, microseconds.
    TargetCpuUsPerIo,
    /// Share of the time in which the target's cores worked, 0 to 1: spinning
    /// without work is no work.
    TargetBusy,
    /// The same of the client.
    ClientBusy,
    /// System calls of the target for an I/O.
    SyscallsPerIo,
    /// Bytes that the target copied in user space, for an I/O.
    CopiedBytesPerIo,
    /// Times that the target was woken, for an I/O.
    WakeupsPerIo,
    /// Allocations of the target for an I/O.
    AllocationsPerIo,
    /// CPU time of the target for a connection that is made, microseconds.
    TargetCpuUsPerConnection,
    /// Memory that the target has more for a connection that is made and idle, bytes.
    TargetBytesPerConnection,
}

/// What a point could not get past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The target's cores.
    TargetCores,
    /// The client's cores.
    ClientCores,
    /// Memory: the ceiling with cold payload is no faster.
    Memory,
    /// Nothing was full: how much was outstanding.
    Outstanding,
    /// What ran did not tell.
    Unknown,
}

/// Something that was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Which sweep, or `sweep/series`.
    pub what: String,
    /// What is missing here, and how to get it.
    pub why: String,
}

/// What the papers' appendices have: enough to do it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// When it began and ended, RFC 3339.
    pub began: String,
    /// See `began`.
    pub ended: String,
    /// weft's version.
    pub weft: String,
    /// The commit it was built of; empty where that is not known.
    pub commit: String,
    /// The command lines of all runs that it consists of, in their order.
    #[serde(alias = "command", deserialize_with = "one_or_all")]
    pub commands: Vec<String>,
    /// Facts about the machine, in the order they are to be shown: processor,
    /// cores, kernel, mitigations, governor, memory, sysctls, ...
    pub machine: Vec<(String, String)>,
    /// Versions of the clients and peers that took part.
    pub versions: Vec<(String, String)>,
}

impl Provenance {
    /// The name of the fact about an agent.
    #[must_use]
    pub fn agent(name: &str) -> String {
        format!("{AGENT}{name}")
    }

    /// Whether agents on other machines ran the loads.
    #[must_use]
    pub fn has_agents(&self) -> bool {
        self.machine.iter().any(|(name, _)| name.starts_with(AGENT))
    }
}

/// What a fact about an agent begins with.
const AGENT: &str = "agent ";

/// Reports were of one command once, their last.
fn one_or_all<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Commands {
        One(String),
        All(Vec<String>),
    }
    Ok(match Commands::deserialize(from)? {
        Commands::One(command) => vec![command],
        Commands::All(commands) => commands,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_command_of_older_results_is_read() {
        let now = Provenance {
            commands: vec!["weft bench run all".into()],
            ..Provenance::default()
        };
        let text = serde_json::to_string(&now).expect("JSON");
        let older = text.replace(
            r#""commands":["weft bench run all"]"#,
            r#""command":"weft bench run all""#,
        );
        assert_ne!(older, text);
        for text in [text, older] {
            let read: Provenance = serde_json::from_str(&text).expect("provenance");
            assert_eq!(read, now);
        }
    }
}
