//! Which connections of a reactor are told the time: those on which something has happened
//! since the last tick or is under way, and those whose deadline has come. The others cost
//! nothing, however many there are.

use std::collections::BTreeSet;

use machine::Nanos;

/// What a connection's place in the table has of it.
#[derive(Default)]
pub(crate) struct TickState {
    /// It is told with the next tick.
    is_ticking: bool,
    /// When it is told where nothing happens on it before.
    timer: Option<Nanos>,
}

/// The connections of a reactor, by their places.
#[derive(Default)]
pub(crate) struct Ticks {
    ticking: Vec<u32>,
    timers: BTreeSet<(Nanos, u32)>,
    /// How often a connection was told.
    pub(crate) told: u64,
}

impl Ticks {
    /// Something happens on a connection.
    #[inline]
    pub(crate) fn touch(&mut self, index: u32, state: &mut TickState) {
        if !std::mem::replace(&mut state.is_ticking, true) {
            self.ticking.push(index);
        }
    }

    /// The next connection whose deadline has come, to be touched.
    pub(crate) fn take_timer(&mut self, now: Nanos) -> Option<u32> {
        let (_, index) = *self.timers.first().filter(|(at, _)| *at <= now)?;
        self.timers.pop_first();
        Some(index)
    }

    /// Those that are told now; [`Ticks::told`] follows for each.
    pub(crate) fn take(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.ticking)
    }

    /// A connection was told the time, and is to be told next at that one.
    pub(crate) fn told(&mut self, index: u32, state: &mut TickState, next: Option<Nanos>) {
        self.told += 1;
        self.forget(index, state);
        match next {
            Some(0) => self.touch(index, state),
            Some(at) => {
                state.timer = Some(at);
                self.timers.insert((at, index));
            }
            None => {}
        }
    }

    /// A connection is gone.
    pub(crate) fn forget(&mut self, index: u32, state: &mut TickState) {
        state.is_ticking = false;
        if let Some(at) = state.timer.take() {
            self.timers.remove(&(at, index));
        }
    }
}
