//! The page: everything in one file, no script, nothing from elsewhere. The text
//! and the markup are those of `page.html`; here is what it shows.

use std::collections::BTreeSet;

use serde::Serialize;

use super::figure::{Figure, Source};
use super::table::{self, Cell, HtmlTable};
use super::template::render;
use super::{claims, glance, numbers, topology};
use crate::catalogue::{Care, SweepSpec};
use crate::measured::{Effort, Measured, Point, Skipped};

/// All that the page shows.
#[derive(Debug, Serialize)]
struct Page<'a> {
    style: &'static str,
    title: String,
    facts: String,
    is_quick: bool,
    /// Names and pictures of the main figures.
    headline: Vec<&'a Chart<'a>>,
    rates: Vec<glance::Rate<'a>>,
    latencies: Vec<HtmlTable<Cell>>,
    claims: Vec<claims::ClaimRow>,
    totals: String,
    sections: &'a [Section<'a>],
    skipped: &'a [Skipped],
    /// See [`super::missing`].
    missing: Vec<String>,
    /// Sweeps that this version does not know.
    unknown: Vec<&'a str>,
    setups: Vec<topology::Setup>,
    provenance: Vec<(&'a str, &'a str)>,
}

/// A sweep.
#[derive(Debug, Serialize)]
pub(super) struct Section<'a> {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    /// Which figure of which paper it answers, if any.
    paper: Option<&'static str>,
    /// Series that could not be measured, and why.
    skipped: Vec<(&'a str, &'a str)>,
    pub(super) charts: Vec<Chart<'a>>,
    limits: Option<HtmlTable<&'static str>>,
    /// What papers printed.
    printed: Vec<(&'static str, String)>,
    commands: Vec<Commands<'a>>,
}

/// A chart and its numbers.
#[derive(Debug, Serialize)]
pub(super) struct Chart<'a> {
    pub(super) file: String,
    title: String,
    /// What the numbers are of.
    quantity: &'static str,
    /// What it takes to measure them, where that is not everywhere.
    needs: Option<&'static str>,
    /// As SVG; `None` where there is nothing, or nothing but 0.
    pub(super) picture: Option<String>,
    /// Series of which every number is 0.
    zeros: Option<String>,
    /// Whether a paper's number is on the scale, and whether one is beyond it.
    has_star: bool,
    is_beyond: bool,
    numbers: HtmlTable<Cell>,
    /// Series that have no number of this.
    without: String,
    #[serde(skip)]
    of: &'a SweepSpec,
}

/// What was run for a point: all for a series's first, for the others what differs.
#[derive(Debug, Serialize)]
struct Commands<'a> {
    series: &'a str,
    point: &'a str,
    has_more: bool,
    text: String,
}

/// The page as HTML.
pub(super) fn html(
    measured: &Measured,
    sources: &[Source<'_>],
    sections: &[Section<'_>],
) -> String {
    let (claims, totals) = claims::rows(measured);
    let charts = sections.iter().filter_map(|section| {
        let mut drawn = section.charts.iter();
        drawn.find(|chart| chart.of.care == Care::Main && chart.picture.is_some())
    });
    let names = measured.sweeps.iter().map(|sweep| sweep.name.as_str());
    let title = match fact(measured, "processor") {
        Some(processor) => format!("weft measured on {processor}"),
        None => "weft, measured".to_owned(),
    };
    let page = Page {
        style: include_str!("page.css"),
        title,
        facts: facts(measured),
        is_quick: measured.effort == Effort::Quick,
        headline: charts.collect(),
        rates: glance::rates(sources),
        latencies: glance::latencies(sources),
        claims,
        totals,
        sections,
        skipped: &measured.skipped,
        missing: super::missing(measured),
        unknown: names
            .filter(|name| SweepSpec::named(name).is_none())
            .collect(),
        setups: topology::setups(sources, measured.provenance.has_agents()),
        provenance: provenance(measured),
    };
    render(include_str!("page.html"), page)
}

/// A fact about the machine, by its name in any case.
fn fact<'a>(measured: &'a Measured, name: &str) -> Option<&'a str> {
    let mut machine = measured.provenance.machine.iter();
    let found = machine.find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str())
}

/// The line below the title.
fn facts(measured: &Measured) -> String {
    let provenance = &measured.provenance;
    let named = |before: &str, value: &str| format!("{before} {value}");
    let mut facts = vec![named("weft", &provenance.weft)];
    if !provenance.commit.is_empty() {
        facts.push(named("commit", &provenance.commit));
    }
    facts.extend(fact(measured, "CPUs of this process").map(|cpus| named("CPUs", cpus)));
    facts.extend(fact(measured, "kernel release").map(|kernel| named("kernel", kernel)));
    facts.push(provenance.began.clone());
    let effort = match measured.effort {
        Effort::Quick => "quick run",
        Effort::Normal => "normal run",
        Effort::Full => "full run",
    };
    facts.push(effort.to_owned());
    facts.join(" · ")
}

/// What was measured, and on what.
fn provenance(measured: &Measured) -> Vec<(&str, &str)> {
    let provenance = &measured.provenance;
    let commands = provenance.commands.iter();
    let own = [("weft", &provenance.weft), ("commit", &provenance.commit)]
        .into_iter()
        .chain(commands.map(|command| ("command", command)))
        .chain([("began", &provenance.began), ("ended", &provenance.ended)]);
    let own = own.map(|(key, value)| (key, value.as_str()));
    let rest = provenance.machine.iter().chain(&provenance.versions);
    let rest = rest.map(|(key, value)| (key.as_str(), value.as_str()));
    // Two looks at a machine see the same.
    let mut said = BTreeSet::new();
    let all = own.chain(rest);
    all.filter(|fact| !fact.1.is_empty() && said.insert(*fact))
        .collect()
}

impl<'a> Section<'a> {
    pub(super) fn of(source: &Source<'a>, measured: &'a Measured) -> Section<'a> {
        let spec = source.spec;
        let printed = spec.references.iter();
        Section {
            name: spec.name,
            title: spec.title,
            about: spec.about,
            paper: (spec.paper != "none").then_some(spec.paper),
            skipped: skipped(spec.name, &measured.skipped),
            charts: source
                .figures()
                .iter()
                .map(|figure| Chart::of(figure, spec))
                .collect(),
            limits: table::limits(source),
            printed: printed
                .map(|reference| (reference.text, table::printed(reference)))
                .collect(),
            commands: commands(source),
        }
    }
}

impl<'a> Chart<'a> {
    fn of(figure: &Figure<'_>, of: &'a SweepSpec) -> Chart<'a> {
        let plot = &figure.plot;
        let names = || {
            let names: Vec<_> = plot.lines.iter().map(|line| line.name).collect();
            names.join("; ")
        };
        let is_zero = figure.is_zero() && !plot.lines.is_empty();
        let printed = plot.printed();
        Chart {
            file: figure.file.clone(),
            title: format!("{}: {}", plot.about, plot.title),
            quantity: plot.y.name,
            needs: numbers::needs(figure.chart.y),
            picture: figure.is_drawn().then(|| plot.draw()),
            zeros: is_zero.then(names),
            has_star: printed.contains(&true),
            is_beyond: printed.contains(&false),
            numbers: table::numbers(figure),
            without: figure.without.join("; "),
            of,
        }
    }
}

/// Of a sweep: which of its series and points could not be measured, and why.
fn skipped<'a>(sweep: &str, all: &'a [Skipped]) -> Vec<(&'a str, &'a str)> {
    let of = |skipped: &'a Skipped| match skipped.what.strip_prefix(sweep)? {
        "" => Some(("", &*skipped.why)),
        rest => Some((rest.strip_prefix('/')?, &*skipped.why)),
    };
    all.iter().filter_map(of).collect()
}

fn commands<'a>(source: &Source<'a>) -> Vec<Commands<'a>> {
    let mut all = Vec::new();
    for series in &source.sweep.series {
        let mut before: Option<&Point> = None;
        for point in &series.points {
            let is_same = |command: &String| {
                let mut before = before.iter().flat_map(|point| &point.commands);
                before.any(|other| without_ports(other) == without_ports(command))
            };
            let new = point.commands.iter().filter(|command| !is_same(command));
            let new: Vec<_> = new.map(String::as_str).collect();
            if !new.is_empty() {
                all.push(Commands {
                    series: &series.name,
                    point: &point.label,
                    has_more: new.len() < point.commands.len(),
                    text: new.join("\n"),
                });
                before = Some(point);
            }
        }
    }
    all
}

/// A command without port numbers, which are others each time.
fn without_ports(command: &str) -> String {
    let mut is_port = false;
    let stays = |c: &char| {
        is_port = *c == ':' || (is_port && c.is_ascii_digit());
        *c == ':' || !is_port
    };
    command.chars().filter(stays).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_the_same_at_other_ports() {
        let one = without_ports("weft perf --bs 4096 nvme://127.0.0.1:33447/x");
        assert_eq!(one, "weft perf --bs 4096 nvme://127.0.0.1:/x");
        assert_eq!(
            one,
            without_ports("weft perf --bs 4096 nvme://127.0.0.1:1/x")
        );
        assert_ne!(
            one,
            without_ports("weft perf --bs 8192 nvme://127.0.0.1:33447/x")
        );
    }
}
