//! What a user who waits sees: a bar with the time left on a terminal, and a
//! line for each point that is done.

use std::fmt;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How far a run is, by estimates that are put right as it goes on.
pub struct RunProgress {
    bar: ProgressBar,
    began: Instant,
    /// What was estimated of what is done, and of all.
    done: Duration,
    all: Duration,
}

impl RunProgress {
    /// Of something that is estimated to take so long.
    #[must_use]
    pub fn new(all: Duration) -> RunProgress {
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %, {prefix} left  {msg}");
        let bar = ProgressBar::with_draw_target(
            Some(all.as_millis().max(1) as u64),
            ProgressDrawTarget::stderr(),
        );
        bar.set_style(style.expect("the template is right"));
        bar.set_prefix(show(all));
        RunProgress {
            bar,
            began: Instant::now(),
            done: Duration::ZERO,
            all,
        }
    }

    /// What is being measured now.
    pub fn at(&self, what: String) {
        self.bar.set_message(what);
    }

    /// Something is done whose estimate was `estimate`.
    pub fn done(&mut self, estimate: Duration) {
        self.done += estimate;
        self.bar.set_position(self.done.as_millis() as u64);
        self.bar.set_prefix(show(self.left()));
    }

    /// What is left, as fast as it went so far; at first as fast as estimated.
    fn left(&self) -> Duration {
        left(self.began.elapsed(), self.done, self.all)
    }

    /// A line that stays; where there is no terminal, with how far it is.
    pub fn line(&self, text: &str) {
        if self.bar.is_hidden() {
            let percent = 100.0 * self.done.as_secs_f64() / self.all.as_secs_f64().max(1e-9);
            tell(format_args!(
                "[{percent:3.0} %, {} left] {text}",
                show(self.left())
            ));
        } else {
            self.bar.println(text);
        }
    }

    /// The bar goes.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// A line on standard error. A reader that is gone does not end the measurement.
pub fn tell(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

fn left(elapsed: Duration, done: Duration, all: Duration) -> Duration {
    // Ten seconds of trust in the estimate: the first points say little.
    let trust = Duration::from_secs(10);
    let pace = (elapsed + trust).as_secs_f64() / (done + trust).as_secs_f64();
    all.saturating_sub(done).mul_f64(pace)
}

/// "45 s", "3 min 20 s".
#[must_use]
pub fn show(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_follows_how_it_goes() {
        let seconds = Duration::from_secs;
        assert_eq!(left(seconds(0), seconds(0), seconds(100)), seconds(100));
        // Twice as slow as estimated: (110 + 10) / (50 + 10).
        assert_eq!(left(seconds(110), seconds(50), seconds(100)), seconds(100));
        assert_eq!(left(seconds(90), seconds(100), seconds(100)), seconds(0));
        // More was done than was estimated.
        assert_eq!(left(seconds(90), seconds(110), seconds(100)), seconds(0));
        let shown = [0, 59, 60, 200].map(|time| show(seconds(time)));
        assert_eq!(shown, ["0 s", "59 s", "1 min", "3 min 20 s"]);
    }
}
