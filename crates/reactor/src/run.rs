//! The loop of one reactor.

use crate::mailbox::Receiver;
use crate::spin::{Decision, Spin};
use crate::sys::Nanos;
use crate::trim::Trimmer;
use crate::types::{Completion, Driver, Wait};
use std::cell::Cell;
use std::io;

/// What the loop of a thread has done with its time, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopTimes {
    /// Since it began.
    pub run_ns: Nanos,
    /// It has looked for work in vain without sleeping; the look that ends work counts as
    /// work.
    pub spun_ns: Nanos,
    /// It has slept in the kernel.
    pub slept_ns: Nanos,
}

thread_local! {
    static TIMES: Cell<LoopTimes> = const {
        Cell::new(LoopTimes { run_ns: 0, spun_ns: 0, slept_ns: 0 })
    };
}

/// What the loop of the calling thread has done with its time.
pub fn loop_times() -> LoopTimes {
    TIMES.get()
}

/// A look for work takes less; what is more, others had the processor.
const SPIN_NS_MAX: Nanos = 20_000;
/// Letters and completions of one turn that fit without growing.
const TURN_EVENTS: usize = 4096;

/// What a reactor runs.
pub trait Handler<D: Driver, M> {
    /// An operation ended.
    fn on_completion(&mut self, driver: &mut D, completion: Completion);
    /// Mail came.
    fn on_mail(&mut self, driver: &mut D, letter: M);
    /// After all completions and mail of a turn that had any, or a deadline:
    /// the place to send what has gathered.
    fn on_turn(&mut self, driver: &mut D);
    /// When [`Handler::on_deadline`] wants to be called next.
    fn deadline(&self) -> Option<Nanos>;
    /// The deadline has passed; it must move.
    fn on_deadline(&mut self, driver: &mut D, now: Nanos);
    /// Whether it has work left for a turn at once: the loop looks for completions
    /// meanwhile, without sleeping.
    fn has_more(&self) -> bool {
        false
    }
    /// Whether to leave the loop.
    fn is_done(&self) -> bool;
}

/// Settings of the loop.
#[derive(Clone, Copy, Debug)]
pub struct RunConfig {
    /// Spin at most this long before sleeping, in microseconds, and only while
    /// that pays off; 0 never spins, `u64::MAX` never sleeps.
    pub spin_us_max: u64,
}

impl Default for RunConfig {
    fn default() -> RunConfig {
        RunConfig { spin_us_max: 50 }
    }
}

/// What the loop has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Turns that had something to do.
    pub turns: u64,
    /// Turns that found nothing and looked again.
    pub spins: u64,
    /// Turns that found nothing and slept.
    pub sleeps: u64,
}

/// Runs `handler` on `driver` until it is done or the driver fails.
pub fn run<D: Driver, M, H: Handler<D, M>>(
    driver: &mut D,
    mail: &Receiver<M>,
    handler: &mut H,
    config: &RunConfig,
) -> io::Result<RunStats> {
    let mut stats = RunStats::default();
    let mut spin = Spin::new(config.spin_us_max.saturating_mul(1000));
    let mut completions = Vec::with_capacity(TURN_EVENTS);
    let mut letters = Vec::new();
    let mut wait = Wait::Now;
    let mut is_spinning = false;
    let mut trimmer = Trimmer::new(driver.pool());
    let mut times = loop_times();
    while !handler.is_done() {
        let before = driver.now();
        driver.poll(wait, &mut completions)?;
        let now = driver.now();
        times.run_ns += now - before;
        if wait != Wait::Now {
            times.slept_ns += now - before;
        }
        mail.take(&mut letters);
        let is_due = handler.deadline().is_some_and(|at| at <= now);
        if completions.is_empty() && letters.is_empty() && !is_due && !handler.has_more() {
            if is_spinning {
                times.spun_ns += (now - before).min(SPIN_NS_MAX);
            }
            wait = match spin.idle(now) {
                Decision::Spin => {
                    stats.spins += 1;
                    std::hint::spin_loop();
                    Wait::Now
                }
                Decision::Sleep => {
                    stats.sleeps += 1;
                    let trim_at = trimmer.sleeps(now, || driver.give_back());
                    Wait::Until(handler.deadline().unwrap_or(Nanos::MAX).min(trim_at))
                }
            };
            is_spinning = wait == Wait::Now;
            continue;
        }
        is_spinning = false;
        TIMES.set(times);
        stats.turns += 1;
        spin.worked(now);
        for completion in completions.drain(..) {
            handler.on_completion(driver, completion);
        }
        for letter in letters.drain(..) {
            handler.on_mail(driver, letter);
        }
        if is_due {
            handler.on_deadline(driver, now);
        }
        handler.on_turn(driver);
        trimmer.worked();
        wait = Wait::Now;
    }
    Ok(stats)
}
