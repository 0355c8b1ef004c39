//! What a target has done so far.

use std::collections::BTreeMap;

use mem::counters::counts_allocations;
use server::Report;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// The counters that SIGUSR1 prints and the admin socket answers.
#[must_use]
pub fn counters(report: &Report) -> BTreeMap<String, Option<u64>> {
    let mut counts = counts(report);
    counts.insert("refusals".to_owned(), Some(report.refusals));
    counts
}

/// What one reactor counts, or all together.
pub(crate) fn counts(report: &Report) -> BTreeMap<String, Option<u64>> {
    let counts = server::COUNTS.iter().map(|count| {
        let is_counted = count.name != "allocations" || counts_allocations();
        let value = is_counted.then(|| count.of(*report));
        (count.name.to_owned(), value)
    });
    counts.collect()
}

/// The time, as the log writes it.
#[must_use]
pub fn now() -> String {
    let mut text = String::new();
    let written = SystemTime.format_time(&mut Writer::new(&mut text));
    written.expect("a text takes everything");
    text
}
