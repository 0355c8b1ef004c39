//! What is done now, and was in the last hour.

use api::{FigureSample, Figures, StageTime, TimeFigures};
use maud::{Markup, html};
use tables::{
    Cell, NamedRates, RATES, host_rates, per_second, quantile, sample_of, times_between,
    volume_rates,
};

use crate::chart::{bar, chart};
use crate::layout::Page;
use crate::table::{Table, TableQuery};

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// Sums of the last hour, the oldest first.
    pub samples: &'a [FigureSample],
    /// A look some seconds ago.
    pub before: &'a Figures,
    /// A look now.
    pub now: &'a Figures,
}

impl Measured<'_> {
    fn over_ns(&self) -> u64 {
        self.now.uptime_ns.saturating_sub(self.before.uptime_ns)
    }
}

const KINDS: [(&str, &str); 3] = [
    ("/performance", "All"),
    ("/performance/volumes", "Volumes and exports"),
    ("/performance/hosts", "Hosts"),
];

/// Rates, times, stages and reactors of the whole target.
#[must_use]
pub fn performance(page: &Page<'_>, measured: &Measured<'_>) -> String {
    let content = html! {
        (page.beside("Whose figures", &KINDS))
        (tiles(measured))
        (last_hour(measured))
        h2 { "Where commands wait" }
        (stages(measured))
        h2 { "Reactors" }
        (reactors(measured))
    };
    page.whole("Performance", true, &content)
}

fn tiles(measured: &Measured<'_>) -> Markup {
    let (then, now) = (sample_of(measured.before), sample_of(measured.now));
    let over_ns = measured.over_ns();
    let rate = |of: fn(&FigureSample) -> u64| per_second(of(&then), of(&now), over_ns);
    let times = times_between(&then.times, &now.times);
    let took = |part| {
        let took = quantile(&times, &measured.now.bounds_ns, part);
        took.map_or(Cell::Nothing, Cell::Taken)
    };
    let tiles = [
        ("I/Os", Cell::PerSecond(rate(|sample| sample.ios))),
        ("bytes", Cell::BytesPerSecond(rate(|sample| sample.bytes))),
        ("failed I/Os", Cell::PerSecond(rate(|sample| sample.errors))),
        ("p50", took(0.5)),
        ("p99", took(0.99)),
        ("p99.9", took(0.999)),
    ];
    html! {
        dl.tiles {
            @for (name, cell) in &tiles {
                div { dt { (name) } dd { (cell.to_string()) } }
            }
        }
        p.soft {
            "Of the last " (over_ns / 1_000_000_000) " seconds. One in 64 commands of a connection is timed; "
            "p99: 99 of 100 took no longer, as far as the buckets of the histogram tell."
        }
    }
}

/// A figure for each pair of looks that follow one another, if there is one.
fn between(
    measured: &Measured<'_>,
    of: impl Fn(&FigureSample, &FigureSample) -> Option<u64>,
) -> Vec<(u64, u64)> {
    let pairs = measured.samples.iter().zip(measured.samples.iter().skip(1));
    let now = measured.now.uptime_ns;
    pairs
        .filter_map(|(then, later)| {
            let ago_ns = now.saturating_sub(later.uptime_ns);
            Some((ago_ns, of(then, later)?))
        })
        .collect()
}

fn last_hour(measured: &Measured<'_>) -> Markup {
    let rate = |of: fn(&FigureSample) -> u64| {
        between(measured, move |then, later| {
            let over_ns = later.uptime_ns.saturating_sub(then.uptime_ns);
            Some(per_second(of(then), of(later), over_ns))
        })
    };
    let took = |part| {
        between(measured, move |then, later| {
            let times = times_between(&then.times, &later.times);
            quantile(&times, &measured.now.bounds_ns, part)
        })
    };
    html! {
        h2 { "The last hour" }
        @if measured.samples.len() < 2 {
            p { "weft looks each 10 seconds: the first differences are there 10 seconds after the start." }
        } @else {
            div.charts {
                (chart("I/Os a second", &[("I/Os", rate(|one| one.ios))], Cell::PerSecond))
                (chart("Bytes a second", &[("bytes", rate(|one| one.bytes))], Cell::BytesPerSecond))
                (chart(
                    "Time of an I/O",
                    &[("p99", took(0.99)), ("p50", took(0.5))],
                    Cell::Taken,
                ))
            }
        }
    }
}

fn stages(measured: &Measured<'_>) -> Markup {
    let of_protocol = |all: &Figures, protocol| -> Vec<StageTime> {
        let found = all.stages.iter().find(|one| one.protocol == protocol);
        found.map_or_else(Vec::new, |one| one.stages.clone())
    };
    let none = TimeFigures::default();
    let bars = measured.now.stages.iter().filter_map(|now| {
        let then = of_protocol(measured.before, now.protocol);
        let part = |stage: &StageTime| {
            let old = then.iter().find(|old| old.stage == stage.stage);
            let between = times_between(old.map_or(&none, |old| &old.times), &stage.times);
            (stage.stage.clone(), between.sum_ns, between.count())
        };
        let parts: Vec<_> = now.stages.iter().map(part).collect();
        let timed = parts.iter().map(|(.., count)| *count).max()?;
        (timed > 0).then_some((now.protocol, parts, timed))
    });
    let bars: Vec<_> = bars.collect();
    html! {
        @if bars.is_empty() {
            p { "No command was timed in the last seconds: where there is load, its stages are here." }
        }
        @for (protocol, parts, timed) in &bars {
            h3 { (protocol.name()) }
            (bar(parts.iter().map(|(name, sum_ns, count)| {
                let mean = sum_ns.checked_div(*count).unwrap_or(0);
                (&**name, *sum_ns, Cell::Taken(mean).to_string())
            })))
            p.soft { "Mean of " (timed) " commands." }
        }
    }
}

fn reactors(measured: &Measured<'_>) -> Markup {
    let all = measured.now.reactors.iter();
    let shown = all.map(|now| {
        let mut before = measured.before.reactors.iter();
        let then = before.find(|then| then.reactor == now.reactor);
        let spent = |name: &str| {
            let then = then.map_or(0, |then| then.count(name));
            now.count(name).saturating_sub(then)
        };
        let (run, spun, slept) = (spent("run_ns"), spent("spun_ns"), spent("slept_ns"));
        let busy = run.saturating_sub(spun + slept);
        (now, [("busy", busy), ("spin", spun), ("sleep", slept)])
    });
    html! {
        @for (reactor, parts) in shown {
            h3 { "Reactor " (reactor.reactor) }
            @if reactor.answers {
                @let whole: u64 = parts.iter().map(|(_, part)| part).sum();
                (bar(parts.iter().map(|(name, part)| {
                    let percent = (part * 100).checked_div(whole).unwrap_or(0);
                    (*name, *part, format!("{percent} %"))
                })))
            } @else {
                p.bad { "It does not answer." }
            }
        }
    }
}

/// What each volume and export does.
#[must_use]
pub fn volume_performance(page: &Page<'_>, measured: &Measured<'_>, query: &TableQuery) -> String {
    let rates = volume_rates(measured.before, measured.now);
    let caption = "What volumes and exports do now";
    rates_page(page, caption, measured, &rates, query)
}

/// What each host does.
#[must_use]
pub fn host_performance(page: &Page<'_>, measured: &Measured<'_>, query: &TableQuery) -> String {
    let rates = host_rates(measured.before, measured.now);
    rates_page(page, "What hosts do now", measured, &rates, query)
}

fn rates_page(
    page: &Page<'_>,
    caption: &str,
    measured: &Measured<'_>,
    rates: &[NamedRates],
    query: &TableQuery,
) -> String {
    let table = Table {
        path: page.path,
        caption,
        columns: RATES,
        action: None,
        none: html! {
            p { "Nothing has done I/O yet. " a href="/connect" { "Connect a client" } " shows the commands." }
        },
    };
    let content = html! {
        (page.beside("Whose figures", &KINDS))
        (table.of(rates, query))
        p.soft { "Of the last " (measured.over_ns() / 1_000_000_000) " seconds." }
    };
    page.whole("Performance", true, &content)
}
