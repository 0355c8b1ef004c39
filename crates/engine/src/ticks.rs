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

    /// Those that are told now; [`Ticks::set_next_tick`] follows for each.
    pub(crate) fn take(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.ticking)
    }

    /// A connection was told the time, and is to be told next at that one.
    pub(crate) fn set_next_tick(&mut self, index: u32, state: &mut TickState, next: Option<Nanos>) {
        self.told += 1;
        state.is_ticking = false;
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

    /// A connection is gone. Where it was to be told with the next tick, the one that
    /// has its place by then is: once, as any other.
    pub(crate) fn forget(&mut self, index: u32, state: &mut TickState) {
        if let Some(at) = state.timer.take() {
            self.timers.remove(&(at, index));
        }
    }
}

/// When connections on which something waits for a limit are looked at: to the nanosecond, of all
/// of a reactor the earliest first.
#[derive(Default)]
pub(crate) struct Wakes(BTreeSet<(Nanos, u32)>);

impl Wakes {
    /// The first of all.
    #[inline]
    pub(crate) fn first(&self) -> Option<Nanos> {
        self.0.first().map(|(at, _)| *at)
    }

    /// A connection that was to be looked at when `state` says is to be at `next`.
    #[inline]
    pub(crate) fn set(&mut self, index: u32, state: &mut Option<Nanos>, next: Option<Nanos>) {
        if *state == next {
            return;
        }
        if let Some(at) = std::mem::replace(state, next) {
            self.0.remove(&(at, index));
        }
        self.0.extend(next.map(|at| (at, index)));
    }

    /// Those whose time has come, the earliest first; [`Wakes::set`] follows for each.
    pub(crate) fn due(&self, now: Nanos) -> Vec<u32> {
        let due = self.0.range(..=(now, u32::MAX));
        due.map(|(_, index)| *index).collect()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<u32> {
        self.due(Nanos::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that is told more often is taken for one that has been silent for
    /// longer.
    #[test]
    fn a_place_that_is_used_again_before_a_tick_is_told_once() {
        let (mut ticks, mut state) = (Ticks::default(), TickState::default());
        ticks.touch(5, &mut state);
        ticks.forget(5, &mut state);
        ticks.touch(5, &mut state);
        assert_eq!(ticks.take(), [5]);
        ticks.set_next_tick(5, &mut state, None);
        ticks.touch(5, &mut state);
        assert_eq!(ticks.take(), [5]);
        assert_eq!(ticks.told, 1);
        ticks.set_next_tick(5, &mut state, None);
        assert_eq!(ticks.told, 2);
    }

    #[test]
    fn connections_wake_in_the_order_of_their_times_however_often_those_change() {
        let (mut wakes, mut states) = (Wakes::default(), [None; 3]);
        for (index, at) in [(0, 30), (1, 10), (2, 20), (1, 40), (0, 5)] {
            wakes.set(index, &mut states[index as usize], Some(at));
        }
        assert_eq!(wakes.first(), Some(5));
        assert_eq!((wakes.due(4), wakes.due(20)), (vec![], vec![0, 2]));
        wakes.set(0, &mut states[0], None);
        assert_eq!((wakes.first(), wakes.all()), (Some(20), vec![2, 1]));
    }

    #[test]
    fn a_timer_ends_with_its_connection() {
        let (mut ticks, mut state) = (Ticks::default(), TickState::default());
        ticks.set_next_tick(5, &mut state, Some(7));
        assert_eq!(ticks.take_timer(6), None);
        ticks.forget(5, &mut state);
        assert_eq!(ticks.take_timer(7), None);
        ticks.set_next_tick(5, &mut state, Some(9));
        ticks.set_next_tick(5, &mut state, Some(8));
        assert_eq!((ticks.take_timer(8), ticks.take_timer(9)), (Some(5), None));
    }
}
