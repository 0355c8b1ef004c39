//! The page: everything in one file, no script, nothing from elsewhere.

use std::collections::BTreeSet;

use super::figure::{Figure, Source};
use super::markup::Markup;
use super::picture::Picture;
use super::{claims, glance, method, table};
use crate::figures::measured::{Effort, Measured, Point, Series, Skipped};

/// A sweep with its drawings.
pub(super) struct Section<'a> {
    pub(super) source: Source<'a>,
    pub(super) figures: Vec<(Figure<'a>, Picture)>,
}

/// All that the page shows.
pub(super) struct Report<'a> {
    pub(super) measured: &'a Measured,
    pub(super) sections: Vec<Section<'a>>,
    /// Who is connected with whom, and how.
    pub(super) topologies: Vec<(String, Picture)>,
    /// See [`super::missing`].
    pub(super) missing: Vec<String>,
    /// Sweeps that this version does not know.
    pub(super) unknown: Vec<&'a str>,
}

const STYLE: &str = include_str!("page.css");

impl Report<'_> {
    /// As HTML.
    pub(super) fn to_html(&self) -> String {
        let mut to = Markup::default();
        to.begin("html").attr("lang", "en");
        self.head(&mut to);
        to.begin("body");
        self.header(&mut to);
        glance::write(&mut to, self);
        claims::write(&mut to, self.measured);
        self.contents(&mut to);
        for section in &self.sections {
            self.section(&mut to, section);
        }
        self.skipped(&mut to);
        method::write(&mut to);
        self.topology(&mut to);
        self.provenance(&mut to);
        self.footer(&mut to);
        to.end().end();
        format!("<!DOCTYPE html>\n{}", to.finish())
    }

    fn head(&self, to: &mut Markup) {
        to.begin("head")
            .begin("meta")
            .attr("charset", "utf-8")
            .end();
        to.begin("meta")
            .attr("name", "viewport")
            .attr("content", "width=device-width, initial-scale=1")
            .end();
        to.leaf("title", self.title());
        to.begin("style").raw(STYLE).end().end();
    }

    fn title(&self) -> String {
        match self.fact("processor") {
            Some(processor) => format!("weft measured on {processor}"),
            None => "weft, measured".to_owned(),
        }
    }

    /// A fact about the machine, by its name in any case.
    pub(super) fn fact(&self, name: &str) -> Option<&str> {
        let machine = &self.measured.provenance.machine;
        let found = machine
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    fn header(&self, to: &mut Markup) {
        let provenance = &self.measured.provenance;
        to.begin("header").leaf("h1", self.title());
        let mut facts = vec![format!("weft {}", provenance.weft)];
        if !provenance.commit.is_empty() {
            facts.push(format!("commit {}", provenance.commit));
        }
        facts.extend(
            self.fact("CPUs of this process")
                .map(|cpus| format!("CPUs {cpus}")),
        );
        facts.extend(
            self.fact("kernel release")
                .map(|kernel| format!("kernel {kernel}")),
        );
        facts.push(provenance.began.clone());
        facts.push(format!("{} run", effort(self.measured.effort)));
        to.classed("p", "lead", facts.join(" · "));
        to.leaf(
            "p",
            "NVMe/TCP, iSCSI and NFS served by one user-space process without root, huge pages, \
             kernel modules or special adapters, measured as the papers of adapter and storage \
             vendors measure theirs: the same axes, sweeps and workloads, with weft's modes side \
             by side and the bare sockets of the same machine as the ceiling.",
        );
        to.end();
        if self.measured.effort == Effort::Quick {
            to.classed(
                "p",
                "warning",
                "A quick run: one short round at few points. It shows that everything works, and \
                 is nothing to quote.",
            );
        }
        if !self.missing.is_empty() {
            let count = self.missing.len();
            to.classed(
                "p",
                "warning",
                format!(
                    "Not complete: {count} parts of the catalogue were neither measured nor \
                     skipped with a reason. They are listed at the end."
                ),
            );
        }
    }

    fn provenance(&self, to: &mut Markup) {
        let provenance = &self.measured.provenance;
        to.begin("h2").attr("id", "provenance").attr("class", "on");
        to.text("What was measured, and on what").end();
        to.begin("div")
            .attr("class", "two")
            .begin("table")
            .attr("class", "facts")
            .begin("tbody");
        let commands = provenance.commands.iter();
        let own = [("weft", &provenance.weft), ("commit", &provenance.commit)]
            .into_iter()
            .chain(commands.map(|command| ("command", command)))
            .chain([("began", &provenance.began), ("ended", &provenance.ended)]);
        let own = own.filter(|(_, value)| !value.is_empty());
        let own = own.map(|(key, value)| (key, value.as_str()));
        let rest = provenance.machine.iter().chain(&provenance.versions);
        let rest = rest.map(|(key, value)| (key.as_str(), value.as_str()));
        let mut said = BTreeSet::new();
        for (key, value) in own.chain(rest) {
            // Two looks at a machine see the same.
            if !said.insert((key, value)) {
                continue;
            }
            to.begin("tr").leaf("th", key).leaf("td", value).end();
        }
        to.end().end().end();
    }

    fn topology(&self, to: &mut Markup) {
        to.begin("h2")
            .attr("id", "topology")
            .attr("class", "on")
            .text("Topology")
            .end();
        for (name, picture) in &self.topologies {
            to.begin("figure")
                .attr("class", "topology")
                .raw(&picture.to_svg());
            to.begin("figcaption")
                .attr("class", "aside")
                .text(name)
                .end()
                .end();
        }
    }

    fn contents(&self, to: &mut Markup) {
        to.begin("h2")
            .attr("id", "figures")
            .attr("class", "on")
            .text("Figures")
            .end();
        method::how_to_read(to);
        to.begin("nav").begin("ul");
        for section in &self.sections {
            let spec = section.source.spec;
            to.begin("li")
                .begin("a")
                .attr("href", format!("#{}", spec.name));
            to.text(spec.title).end().end();
        }
        to.end().end();
    }

    fn section(&self, to: &mut Markup, section: &Section<'_>) {
        let spec = section.source.spec;
        to.begin("section");
        to.begin("h2").attr("id", spec.name).text(spec.title).end();
        to.leaf("p", spec.about);
        if spec.paper != "none" {
            to.classed("p", "aside", format!("Beside: {}", spec.paper));
        }
        self.not_here(to, section);
        to.begin("div").attr("class", "charts");
        for (figure, picture) in &section.figures {
            if figure.is_zero() && !figure.plot.lines.is_empty() {
                zero(to, figure);
                continue;
            }
            to.begin("div")
                .attr("class", "pair")
                .attr("id", &figure.file);
            if figure.is_drawn() {
                to.begin("figure").raw(&picture.to_svg());
                printed(to, figure);
                to.end();
            }
            to.begin("div").attr("class", "screen");
            table::numbers(to, figure);
            to.end().end();
        }
        to.end();
        table::limits(to, &section.source);
        table::references(to, spec.references, spec.paper);
        commands(to, &section.source);
        to.end();
    }

    /// Series of a sweep that could not be measured.
    fn not_here(&self, to: &mut Markup, section: &Section<'_>) {
        let name = section.source.spec.name;
        let of = |skipped: &&Skipped| {
            skipped.what == name || skipped.what.starts_with(&format!("{name}/"))
        };
        let skipped: Vec<_> = self.measured.skipped.iter().filter(of).collect();
        if skipped.is_empty() {
            return;
        }
        to.begin("div")
            .attr("class", "warning")
            .leaf("b", "Not measured here");
        to.begin("ul");
        for skipped in skipped {
            let what = skipped.what.strip_prefix(name).unwrap_or(&skipped.what);
            let what = what.trim_start_matches('/');
            to.begin("li");
            if !what.is_empty() {
                to.leaf("b", what).text(": ");
            }
            to.text(&skipped.why).end();
        }
        to.end().end();
    }

    fn skipped(&self, to: &mut Markup) {
        to.begin("h2")
            .attr("id", "skipped")
            .text("Not measured, and how to")
            .end();
        let nothing = self.measured.skipped.is_empty() && self.missing.is_empty();
        if nothing && self.unknown.is_empty() {
            to.leaf("p", "Everything in the catalogue was measured.");
            return;
        }
        if !self.measured.skipped.is_empty() {
            to.begin("div")
                .attr("class", "wide")
                .begin("table")
                .begin("thead")
                .begin("tr");
            to.leaf("th", "What")
                .leaf("th", "Why, and what to do")
                .end()
                .end()
                .begin("tbody");
            for skipped in &self.measured.skipped {
                to.begin("tr")
                    .leaf("th", &skipped.what)
                    .leaf("td", &skipped.why)
                    .end();
            }
            to.end().end().end();
        }
        if !self.missing.is_empty() {
            to.leaf("h3", "Neither measured nor skipped");
            to.leaf(
                "p",
                "The run was interrupted, or it was of some sweeps only: run it again.",
            );
            to.leaf("p", self.missing.join("; "));
        }
        if !self.unknown.is_empty() {
            to.leaf("h3", "Not in this version's catalogue");
            let names = self.unknown.join("; ");
            to.leaf(
                "p",
                format!("Their numbers are in results.json and data/ alone: {names}."),
            );
        }
    }

    fn footer(&self, to: &mut Markup) {
        to.begin("footer").begin("p").text("Beside this page: ");
        to.begin("a")
            .attr("href", "results.json")
            .text("results.json")
            .end();
        to.text(
            " holds every run; data/ holds runs and medians as comma-separated tables, charts/ \
             each chart as SVG and PNG. ",
        );
        to.text("This page is made of results.json alone: ");
        to.leaf("code", "weft bench report")
            .text(" makes it again.")
            .end()
            .end();
    }
}

fn effort(effort: Effort) -> &'static str {
    match effort {
        Effort::Quick => "quick",
        Effort::Normal => "normal",
        Effort::Full => "full",
    }
}

/// Nothing but zeros.
fn zero(to: &mut Markup, figure: &Figure<'_>) {
    let names: Vec<_> = figure.plot.lines.iter().map(|line| line.name).collect();
    to.begin("p").attr("class", "zero").attr("id", &figure.file);
    to.leaf("b", format!("{}: 0", figure.plot.y.name));
    to.text(format!(
        " in every run at every point of {}.",
        names.join("; ")
    ))
    .end();
}

/// Where a paper's printed numbers are.
fn printed(to: &mut Markup, figure: &Figure<'_>) {
    let printed = figure.plot.printed();
    if printed.contains(&true) {
        let star = "A star is a paper's printed number, of its own hardware.";
        to.classed("figcaption", "aside", star);
    }
    if printed.contains(&false) {
        let beyond = "What the paper printed, of its own hardware, is beyond this scale: see the \
                      table of printed numbers.";
        to.classed("figcaption", "aside", beyond);
    }
}

/// What was run: all of a series's first point, and of the others what differs.
fn commands(to: &mut Markup, source: &Source<'_>) {
    let has_any = |series: &&Series| series.points.iter().any(|p| !p.commands.is_empty());
    let series: Vec<_> = source.sweep.series.iter().filter(has_any).collect();
    if series.is_empty() {
        return;
    }
    to.begin("details").leaf("summary", "Commands");
    for series in series {
        let mut before: Option<&Point> = None;
        for point in &series.points {
            let same = |command: &String| {
                let before = before.iter().flat_map(|point| &point.commands);
                before
                    .into_iter()
                    .any(|other| without_ports(other) == without_ports(command))
            };
            let new = point.commands.iter().filter(|command| !same(command));
            let new: Vec<_> = new.map(String::as_str).collect();
            if new.is_empty() {
                continue;
            }
            let rest = match point.commands.len() - new.len() {
                0 => String::new(),
                _ => ", the rest as before".to_owned(),
            };
            to.begin("p").leaf("b", &series.name);
            to.text(format!(", {}{rest}", point.label)).end();
            to.begin("pre").text(new.join("\n")).end();
            before = Some(point);
        }
    }
    to.end();
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
