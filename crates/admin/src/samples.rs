//! What was measured in the last hour: a look each 10 seconds, of which the sums stay, and all of
//! the last two.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{FigureSample, Figures};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use crate::served::{ServedFile, locked};

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(10);

/// Looks of an hour, and the one before the first difference.
const KEPT_MAX: usize = 361;

/// The looks.
#[derive(Debug, Default)]
pub(crate) struct Samples(Mutex<Looks>);

#[derive(Debug, Default)]
struct Looks {
    sums: VecDeque<FigureSample>,
    before: Option<Arc<Figures>>,
    last: Option<Arc<Figures>>,
}

impl Samples {
    fn add(&self, figures: Figures) {
        let mut looks = locked(&self.0);
        if looks.sums.len() == KEPT_MAX {
            looks.sums.pop_front();
        }
        looks.sums.push_back(tables::sample_of(&figures));
        looks.before = looks.last.replace(Arc::new(figures));
    }

    /// The sums, the oldest first, and what differences of now are taken to: a look of 10 to
    /// 20 seconds ago, or the first.
    pub fn looks(&self) -> (Vec<FigureSample>, Option<Arc<Figures>>) {
        let looks = locked(&self.0);
        let before = looks.before.clone().or_else(|| looks.last.clone());
        (looks.sums.iter().cloned().collect(), before)
    }
}

/// Looks, for ever.
pub(crate) async fn take_samples(served: Arc<ServedFile>) -> Infallible {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let served = served.clone();
        // What fails is told by the requests for the same.
        let _ = spawn_blocking(move || served.samples.add(served.figures())).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_of_an_hour_stay_and_the_one_before_the_last() {
        let samples = Samples::default();
        for n in 0..1000 {
            samples.add(Figures {
                uptime_ns: n,
                ..Figures::default()
            });
        }
        let (sums, before) = samples.looks();
        assert_eq!(sums.len(), KEPT_MAX);
        assert_eq!(sums.last().map(|sample| sample.uptime_ns), Some(999));
        assert_eq!(before.map(|figures| figures.uptime_ns), Some(998));
    }
}
