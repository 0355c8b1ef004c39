//! The tables that pages of documents quote, as Markdown: every number a median
//! of the runs, with the least and the most of them.

use std::fmt::Write;

use super::figure::place;
use super::values::{self, Value};
use crate::catalogue::SweepSpec;
use crate::measured::{Measured, Quantity, Skipped, Sweep};
use crate::statistics::Summary;

/// One table: a row for each place of each sweep.
struct SummaryTable {
    heading: &'static str,
    sweeps: &'static [&'static str],
    columns: &'static [Column],
}

/// One column.
struct Column {
    heading: &'static str,
    series: &'static str,
    quantity: Quantity,
    /// The series that it is a share of, round by round.
    of: Option<&'static str>,
    /// What the measured number is multiplied with, and digits behind the point.
    shown: (f64, usize),
}

const HOT: &str = "ceiling, hot";
const COLD: &str = "ceiling, cold";

const fn rate(heading: &'static str, series: &'static str) -> Column {
    column(heading, series, Quantity::Iops, (1.0, 0))
}

const fn column(
    heading: &'static str,
    series: &'static str,
    quantity: Quantity,
    shown: (f64, usize),
) -> Column {
    Column {
        heading,
        series,
        quantity,
        of: None,
        shown,
    }
}

const fn share(heading: &'static str, series: &'static str, of: &'static str) -> Column {
    Column {
        of: Some(of),
        ..column(heading, series, Quantity::Iops, (1.0, 2))
    }
}

const fn p50(heading: &'static str, series: &'static str) -> Column {
    column(heading, series, Quantity::P50Us, (1.0, 1))
}

/// 10^9 bytes are 8 gigabits.
const fn cpu(heading: &'static str, series: &'static str) -> Column {
    column(heading, series, Quantity::TargetCpuSPerGbit, (8.0, 3))
}

const TABLES: &[SummaryTable] = &[
    SummaryTable {
        heading: "NVMe/TCP beside bare sockets",
        sweeps: &["nvme-shapes-read", "nvme-shapes-write"],
        columns: &[
            rate("hot ceiling, a second", HOT),
            rate("cold ceiling", COLD),
            rate("weft", "NVMe/TCP"),
            share("of hot", "NVMe/TCP", HOT),
            share("of cold", "NVMe/TCP", COLD),
            share("null volume, of hot", "null volume", HOT),
            p50("p50 us: hot", HOT),
            p50("weft", "NVMe/TCP"),
            cpu("target CPU s/GB: hot", HOT),
            cpu("weft", "NVMe/TCP"),
        ],
    },
    SummaryTable {
        heading: "iSCSI beside bare sockets and NVMe/TCP",
        sweeps: &["iscsi-shapes-read", "iscsi-shapes-write"],
        columns: &[
            rate("hot ceiling, a second", HOT),
            rate("cold ceiling", COLD),
            rate("weft", "iSCSI"),
            share("of hot", "iSCSI", HOT),
            share("of cold", "iSCSI", COLD),
            share("with digests, of without", "both digests", "iSCSI"),
            p50("p50 us: iSCSI", "iSCSI"),
            p50("NVMe/TCP", "NVMe/TCP"),
            cpu("target CPU s/GB: hot", HOT),
            cpu("weft", "iSCSI"),
        ],
    },
    SummaryTable {
        heading: "NFS beside bare sockets",
        sweeps: &["nfs-shapes-read", "nfs-shapes-write"],
        columns: &[
            rate("hot ceiling, a second", HOT),
            rate("cold ceiling", COLD),
            rate("weft", "NFS"),
            share("of hot", "NFS", HOT),
            share("of cold", "NFS", COLD),
            p50("p50 us: hot", HOT),
            p50("weft", "NFS"),
            cpu("target CPU s/GB: hot", HOT),
            cpu("weft", "NFS"),
        ],
    },
    SummaryTable {
        heading: "NFS: names and attributes",
        sweeps: &["nfs-names"],
        columns: &[
            rate("calls a second, one connection", "NFS"),
            rate("four connections", "NFS, 4 connections"),
            p50("p50 us: one", "NFS"),
            p50("four", "NFS, 4 connections"),
        ],
    },
    SummaryTable {
        heading: "NVMe/TCP digests",
        sweeps: &["digests-nvme-read", "digests-nvme-write"],
        columns: &[
            rate("without digests, a second", "no digests"),
            rate("with both", "both digests"),
            share("header, of without", "header digest", "no digests"),
            share("data, of without", "data digest", "no digests"),
            share("both, of without", "both digests", "no digests"),
        ],
    },
    SummaryTable {
        heading: "iSCSI beside others",
        sweeps: &["peers-iscsi"],
        columns: &[
            rate("weft, a second", "iSCSI"),
            rate("tgtd", "tgtd"),
            share("weft, of tgtd", "iSCSI", "tgtd"),
            cpu("target CPU s/GB: weft", "iSCSI"),
            cpu("tgtd", "tgtd"),
            rate("iscsi-perf against weft", "iscsi-perf"),
        ],
    },
    SummaryTable {
        heading: "NFS beside others",
        sweeps: &["peers-nfs"],
        columns: &[
            rate("weft, a second", "NFS"),
            rate("nfs-ganesha", "nfs-ganesha"),
            share("weft, of nfs-ganesha", "NFS", "nfs-ganesha"),
            cpu("target CPU s/GB: weft", "NFS"),
            cpu("nfs-ganesha", "nfs-ganesha"),
        ],
    },
];

/// All tables of what was measured.
pub(super) fn tables(measured: &Measured) -> String {
    let provenance = &measured.provenance;
    let mut text = format!(
        "<!-- Made by `weft bench report` of results.json: {}, {}. Median (least to most). -->\n",
        provenance.commands.join("; "),
        provenance.began
    );
    for table in TABLES {
        let sweeps = table.sweeps.iter().filter_map(|name| {
            let mut all = measured.sweeps.iter();
            all.find(|sweep| sweep.name == *name)
        });
        let rows: String = sweeps.flat_map(|sweep| rows(table, sweep)).collect();
        if !rows.is_empty() {
            let headings = table.columns.iter().map(|column| column.heading);
            let headings: Vec<_> = headings.collect();
            let lines = "---|".repeat(table.columns.len());
            let heading = table.heading;
            let headings = headings.join(" | ");
            write!(
                text,
                "\n## {heading}\n\n| load | {headings} |\n|---|{lines}\n{rows}"
            )
            .expect("strings take everything");
        }
    }
    if !measured.skipped.is_empty() {
        text.push_str("\n## Not measured\n\n| what | why |\n|---|---|\n");
    }
    for Skipped { what, why } in &measured.skipped {
        let row = format!("| {} | {} |\n", cell(what), cell(why));
        text.push_str(&row);
    }
    text
}

/// Words from outside as they stand in a table: no markup, on one line.
fn cell(words: &str) -> String {
    let words: Vec<_> = words.split_whitespace().collect();
    let mut text = words.join(" ");
    for (plain, written) in [
        ("&", "&amp;"),
        ("<", "&lt;"),
        ("\\", "\\\\"),
        ("`", "\\`"),
        ("|", "\\|"),
    ] {
        text = text.replace(plain, written);
    }
    text
}

fn rows(table: &SummaryTable, sweep: &Sweep) -> Vec<String> {
    let Some(spec) = SweepSpec::named(&sweep.name) else {
        return Vec::new();
    };
    let way = ["read", "write"]
        .into_iter()
        .find(|way| spec.name.ends_with(way));
    let way = way.map_or(String::new(), |way| format!("{way} "));
    let mut places: Vec<f64> = sweep
        .series
        .iter()
        .flat_map(|s| &s.points)
        .map(|p| p.x)
        .collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let row = |x: f64| {
        let cells = table.columns.iter().map(|column| column.cell(sweep, x));
        let cells: Vec<_> = cells.collect();
        format!("| {way}{} | {} |\n", place(spec, x), cells.join(" | "))
    };
    places.into_iter().map(row).collect()
}

impl Column {
    fn cell(&self, sweep: &Sweep, x: f64) -> String {
        let (factor, digits) = self.shown;
        let number = |value: f64| format!("{:.digits$}", value * factor);
        match self.find(sweep, x) {
            None => "not measured".to_owned(),
            Some(one) if one.count == 1 => number(one.median),
            Some(all) => {
                let [least, most] = [all.min, all.max].map(number);
                format!("{} ({least} to {most})", number(all.median))
            }
        }
    }

    fn find(&self, sweep: &Sweep, x: f64) -> Option<Summary> {
        let value = |name: &str| {
            let point = values::point(values::series(sweep, name)?, x)?;
            Value::of(point, self.quantity)
        };
        let own = value(self.series)?;
        match self.of {
            None => Some(own.summary),
            Some(base) => own.ratio(&value(base)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_of_the_catalogue() {
        for table in TABLES {
            for name in table.sweeps {
                let spec = SweepSpec::named(name).expect(name);
                for column in table.columns {
                    for series in [Some(column.series), column.of].into_iter().flatten() {
                        assert!(spec.series_named(series).is_some(), "{name}: {series}");
                    }
                }
            }
        }
    }
}
