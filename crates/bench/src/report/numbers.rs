//! How quantities are called and written.

use crate::measured::{Limit, Quantity};

/// What stands where there is no number.
pub(super) const NOT_MEASURED: &str = "not measured";

/// How a quantity is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    /// In headings.
    pub(super) name: &'static str,
    /// Behind the number, where it is not clear from the name.
    pub(super) unit: &'static str,
    /// What the measured number is multiplied with.
    pub(super) factor: f64,
    /// As it is called in `results.json` and in tables of data.
    pub(super) key: &'static str,
}

/// Of each quantity: name, unit, factor, key.
pub(super) fn shown(quantity: Quantity) -> Shown {
    let (name, unit, factor, key) = match quantity {
        Quantity::Iops => ("I/Os per second", "", 1.0, "iops"),
        Quantity::BytesPerSecond => ("Payload", "Gbit/s", 8e-9, "bytes-per-second"),
        Quantity::MeanUs => ("Mean latency", "µs", 1.0, "mean-us"),
        Quantity::P50Us => ("Median latency", "µs", 1.0, "p50-us"),
        Quantity::P99Us => ("Latency, 99th percentile", "µs", 1.0, "p99-us"),
        Quantity::P999Us => ("Latency, 99.9th percentile", "µs", 1.0, "p999-us"),
        Quantity::P9999Us => ("Latency, 99.99th percentile", "µs", 1.0, "p9999-us"),
        Quantity::P99999Us => ("Latency, 99.999th percentile", "µs", 1.0, "p99999-us"),
        Quantity::TargetCpuSPerGbit => (
            "Target CPU per Gbit/s",
            "% of a core",
            100.0,
            "target-cpu-s-per-gbit",
        ),
        Quantity::ClientCpuSPerGbit => (
            "Client CPU per Gbit/s",
            "% of a core",
            100.0,
            "client-cpu-s-per-gbit",
        ),
        Quantity::TargetCpuUsPerIo => ("Target CPU per I/O", "µs", 1.0, "target-cpu-us-per-io"),
        Quantity::TargetBusy => ("Target's cores busy", "%", 100.0, "target-busy"),
        Quantity::ClientBusy => ("Client's cores busy", "%", 100.0, "client-busy"),
        Quantity::SyscallsPerIo => ("System calls per I/O", "", 1.0, "syscalls-per-io"),
        Quantity::CopiedBytesPerIo => (
            "Bytes copied in user space per I/O",
            "",
            1.0,
            "copied-bytes-per-io",
        ),
        Quantity::WakeupsPerIo => ("Wakeups per I/O", "", 1.0, "wakeups-per-io"),
        Quantity::AllocationsPerIo => ("Allocations per I/O", "", 1.0, "allocations-per-io"),
        Quantity::TargetCpuUsPerConnection => (
            "Target CPU per connection",
            "µs",
            1.0,
            "target-cpu-us-per-connection",
        ),
        Quantity::TargetBytesPerConnection => (
            "Target memory per connection",
            "bytes",
            1.0,
            "target-bytes-per-connection",
        ),
    };
    Shown {
        name,
        unit,
        factor,
        key,
    }
}

/// What it takes to measure a quantity, where that is not everywhere.
pub(super) fn needs(quantity: Quantity) -> Option<&'static str> {
    (quantity == Quantity::AllocationsPerIo).then_some(super::ALLOCATIONS_NEED)
}

impl Shown {
    /// Name and unit, as on an axis.
    pub(super) fn label(&self) -> String {
        match self.unit {
            "" => self.name.to_owned(),
            unit => format!("{}, {unit}", self.name),
        }
    }

    /// A measured number, to be read: three digits that count.
    pub(super) fn number(&self, measured: f64) -> String {
        short(measured * self.factor)
    }
}

/// Three digits that count, with a decimal suffix from ten thousand on.
pub(super) fn short(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    let (scale, suffix) = match size {
        s if s >= 0.9995e9 => (1e9, "G"),
        s if s >= 0.9995e6 => (1e6, "M"),
        s if s >= 9.995e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let scaled = value / scale;
    let digits = match scaled.abs() {
        s if s >= 99.95 => 0,
        s if s >= 9.995 => 1,
        s if s >= 0.9995 => 2,
        s => (2 - s.log10().floor() as i32).clamp(0, 9) as usize,
    };
    format!("{scaled:.digits$}{suffix}")
}

/// A round number's digits: "200k", "1.5M", "0.25".
pub(super) fn plain(mark: f64) -> String {
    let text = short(mark);
    let (digits, suffix) = match text.find(|c: char| c.is_ascii_alphabetic()) {
        Some(at) => text.split_at(at),
        None => (&*text, ""),
    };
    match digits.contains('.') {
        true => {
            let digits = digits.trim_end_matches('0').trim_end_matches('.');
            format!("{digits}{suffix}")
        }
        false => text,
    }
}

/// A share as percent.
pub(super) fn percent(share: f64) -> String {
    match (share * 100.0).abs() {
        p if p >= 9.95 => format!("{:.0} %", share * 100.0),
        _ => format!("{:.1} %", share * 100.0),
    }
}

/// What was the bottleneck, in few words.
pub(super) fn limit(limit: Limit) -> &'static str {
    match limit {
        Limit::TargetCores => "target's cores",
        Limit::ClientCores => "client's cores",
        Limit::Memory => "memory",
        Limit::Outstanding => "what was outstanding",
        Limit::Unknown => "not known",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_with_three_digits() {
        let rows = [
            (0.0, "0"),
            (0.000_123_4, "0.000123"),
            (0.9996, "1.00"),
            (4.98, "4.98"),
            (99.96, "100"),
            (4096.0, "4096"),
            (9994.0, "9994"),
            (9999.0, "10.0k"),
            (412_345.0, "412k"),
            (999_700.0, "1.00M"),
            (2_900_000.0, "2.90M"),
            (-16.13, "-16.1"),
        ];
        for (value, text) in rows {
            assert_eq!(short(value), text, "{value}");
        }
    }

    #[test]
    fn keys_are_those_of_the_json() {
        let all = [
            Quantity::Iops,
            Quantity::BytesPerSecond,
            Quantity::MeanUs,
            Quantity::P50Us,
            Quantity::P99Us,
            Quantity::P999Us,
            Quantity::P9999Us,
            Quantity::P99999Us,
            Quantity::TargetCpuSPerGbit,
            Quantity::ClientCpuSPerGbit,
            Quantity::TargetCpuUsPerIo,
            Quantity::TargetBusy,
            Quantity::ClientBusy,
            Quantity::SyscallsPerIo,
            Quantity::CopiedBytesPerIo,
            Quantity::WakeupsPerIo,
            Quantity::AllocationsPerIo,
            Quantity::TargetCpuUsPerConnection,
            Quantity::TargetBytesPerConnection,
        ];
        for quantity in all {
            let json = serde_json::to_string(&quantity).expect("serializes");
            assert_eq!(json.trim_matches('"'), shown(quantity).key);
        }
    }
}
