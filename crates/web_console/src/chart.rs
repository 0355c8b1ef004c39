//! Charts as SVG of our own elements: their colours are those of the page's style, light and dark,
//! which a library that writes colours into each element does not leave to it; the policy
//! forbids what stands inline.

use maud::{Markup, html};
use tables::Cell;

const WIDTH: u64 = 600;
const HEIGHT: u64 = 120;

/// How much time a chart shows.
const SPAN_NS: u64 = 3_600_000_000_000;

/// Lines of one or two names over the last hour: how long ago, and what was then.
pub(crate) fn chart(
    title: &str,
    lines: &[(&str, Vec<(u64, u64)>)],
    cell: fn(u64) -> Cell,
) -> Markup {
    let all = lines.iter().flat_map(|(_, points)| points);
    let most = all.map(|(_, value)| *value).max().unwrap_or(0);
    let now = |points: &[(u64, u64)]| {
        points
            .last()
            .map_or(Cell::Nothing, |(_, value)| cell(*value))
    };
    let told: Vec<_> = lines
        .iter()
        .map(|(name, points)| format!("{name} {}", now(points)))
        .collect();
    let told = format!("last {}; most {}", told.join(", "), cell(most));
    html! {
        figure {
            figcaption { (title) }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label={ (title) ": " (told) }
                preserveAspectRatio="none"
            {
                @for (number, (_, points)) in lines.iter().enumerate() {
                    polyline class={ "line line-" (number) } points=(path(points, most)) {}
                }
            }
            p.axis { span { "an hour ago" } span { "now" } }
            p.soft { (told) }
        }
    }
}

/// Points as SVG has them: to the right with time, up with the value.
fn path(points: &[(u64, u64)], most: u64) -> String {
    let point = |(ago_ns, value): &(u64, u64)| {
        let x = WIDTH - ago_ns.min(&SPAN_NS) * WIDTH / SPAN_NS;
        let share = u128::from(*value) * u128::from(HEIGHT - 4) / u128::from(most.max(1));
        format!("{x},{}", HEIGHT - 2 - share as u64)
    };
    points.iter().map(point).collect::<Vec<_>>().join(" ")
}

/// Shares of a whole beside one another: a name, how much, and how that is told.
pub(crate) fn bar<'a>(parts: impl Iterator<Item = (&'a str, u64, String)>) -> Markup {
    let parts: Vec<_> = parts.collect();
    let whole: u128 = parts.iter().map(|(_, part, _)| u128::from(*part)).sum();
    let mut before = 0;
    let places: Vec<_> = parts
        .iter()
        .map(|(_, part, _)| {
            let at = |sum: u128| sum * u128::from(WIDTH) / whole.max(1);
            let from = at(before);
            before += u128::from(*part);
            (from, at(before) - from)
        })
        .collect();
    html! {
        svg.bar viewBox={ "0 0 " (WIDTH) " 20" } aria-hidden="true" preserveAspectRatio="none" {
            @for (number, (from, width)) in places.iter().enumerate() {
                rect class={ "part-" (number) } x=(from) y="0" width=(width) height="20" {}
            }
        }
        dl.legend {
            @for (number, (name, _, told)) in parts.iter().enumerate() {
                div {
                    dt {
                        svg.swatch viewBox="0 0 10 10" aria-hidden="true" {
                            rect class={ "part-" (number) } width="10" height="10" {}
                        }
                        (name)
                    }
                    dd { (told) }
                }
            }
        }
    }
}
