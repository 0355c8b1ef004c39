//! What commands wait for.

use api::{StageTime, TimeFigures};
use serde::Serialize;
use tables::{quantile, times_between};

/// What a command waits for, in the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct WaitTimes {
    /// For its data.
    pub receive_ns: u64,
    /// For its turn, for memory, for others of its order.
    pub queue_ns: u64,
    /// For its volume or file system.
    pub backend_ns: u64,
    /// For its answer to be sent.
    pub send_ns: u64,
}

/// One stage of commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct StageRow {
    pub stage: String,
    /// How often it was timed.
    pub count: u64,
    pub mean_ns: Option<u64>,
    pub p99_ns: Option<u64>,
}

impl StageRow {
    /// From an earlier look on, those that were timed.
    pub fn all(now: &[StageTime], earlier: &[StageTime], bounds: &[u64]) -> Vec<StageRow> {
        let rows = now.iter().map(|of| {
            let times = between(now, earlier, &of.stage);
            StageRow {
                stage: of.stage.clone(),
                count: times.count(),
                mean_ns: times.sum_ns.checked_div(times.count()),
                p99_ns: quantile(&times, bounds, 0.99),
            }
        });
        rows.filter(|row| row.count > 0).collect()
    }
}

/// The times of a stage from an earlier look on.
fn between(now: &[StageTime], earlier: &[StageTime], name: &str) -> TimeFigures {
    let at = |all: &[StageTime]| {
        let found = all.iter().find(|stage| stage.stage == name);
        found.map(|stage| stage.times.clone()).unwrap_or_default()
    };
    times_between(&at(earlier), &at(now))
}

impl WaitTimes {
    /// From an earlier look on.
    pub fn of(now: &[StageTime], earlier: &[StageTime]) -> WaitTimes {
        let of = |name: &str| between(now, earlier, name);
        let commands = of("backend").count().max(1);
        let ns = |names: &[&str]| {
            let sum: u64 = names.iter().map(|name| of(name).sum_ns).sum();
            sum / commands
        };
        WaitTimes {
            receive_ns: ns(&["receive"]),
            queue_ns: ns(&["parse", "queue"]),
            backend_ns: ns(&["backend"]),
            send_ns: ns(&["reply", "send"]),
        }
    }

    /// As a bar of so many letters: r, q, b and s, as long as each waits.
    pub fn bar(self, width: u64) -> String {
        let all = [
            ('r', self.receive_ns),
            ('q', self.queue_ns),
            ('b', self.backend_ns),
            ('s', self.send_ns),
        ];
        let sum: u64 = all.iter().map(|(_, ns)| ns).sum();
        let (mut bar, mut so_far) = (String::new(), 0);
        for (letter, ns) in all {
            let end = |ns: u64| (ns * width + sum / 2).checked_div(sum).unwrap_or(0);
            let length = end(so_far + ns) - end(so_far);
            so_far += ns;
            bar.extend((0..length).map(|_| letter));
        }
        bar
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_has_the_letters_of_each_wait_in_proportion_and_is_empty_without_any() {
        assert_eq!(WaitTimes::default().bar(10), "");
        let waits = WaitTimes {
            receive_ns: 10,
            queue_ns: 20,
            backend_ns: 60,
            send_ns: 10,
        };
        assert_eq!(waits.bar(10), "rqqbbbbbbs");
        let one = WaitTimes {
            send_ns: 1,
            ..WaitTimes::default()
        };
        assert_eq!(one.bar(4), "ssss");
    }
}
