//! What a turn of a connection costs, counted in units, so that none spends more than
//! its share before all others of its reactor had theirs.
//!
//! A unit is about one comparison in a table, one entry of a list, or one KiB copied:
//! some tens of nanoseconds. The code that does the work counts it there, with
//! [`spend`]. The count is the calling thread's: a reactor gives turns to one connection
//! at a time. A clock instead would make runs differ from each other.

use std::cell::Cell;

/// What a connection may spend in one turn. It stops before the first operation after
/// that.
pub const TURN_UNITS_MAX: u64 = 8192;

/// What each operation costs besides what it counts itself.
pub const OPERATION_UNITS: u64 = 8;

/// What one operation costs at most, with every table as full as it may be: a turn may
/// cost so much more than [`TURN_UNITS_MAX`].
pub const OPERATION_UNITS_MAX: u64 = 64 << 10;

thread_local! {
    static SPENT: Cell<u64> = const { Cell::new(0) };
    /// Outside of turns nothing is ever used up.
    static SPENT_MAX: Cell<u64> = const { Cell::new(u64::MAX) };
    /// Of all turns that are over.
    static SPENT_IN_TURNS: Cell<u64> = const { Cell::new(0) };
}

/// Counts work of the connection whose turn it is.
#[inline]
pub fn spend(units: u64) {
    SPENT.set(SPENT.get().wrapping_add(units));
}

/// Counts bytes that are copied, compared or summed up.
#[inline]
pub fn spend_bytes(bytes: u64) {
    spend(bytes >> 10);
}

/// Runs a part of a connection's turn that has cost `units` so far and may cost
/// `units_max`, and counts on.
#[inline]
pub fn take_turn<T>(units: &mut u64, units_max: u64, turn: impl FnOnce() -> T) -> T {
    SPENT.set(*units);
    SPENT_MAX.set(units_max);
    let value = turn();
    SPENT_MAX.set(u64::MAX);
    let before = std::mem::replace(units, SPENT.get());
    SPENT_IN_TURNS.set(SPENT_IN_TURNS.get() + (*units - before));
    value
}

/// What all turns on the calling thread have cost.
pub fn spent_in_turns() -> u64 {
    SPENT_IN_TURNS.get()
}

/// Whether the connection whose turn it is has used its share up: what is left waits for
/// its next turn.
#[inline]
pub fn is_used_up() -> bool {
    SPENT.get() >= SPENT_MAX.get()
}

/// Ends the share of the connection whose turn it is, and counts no more than that:
/// what it costs is not known here. Outside of a turn there is nothing to end.
#[inline]
pub fn use_up() {
    let max = SPENT_MAX.get();
    if max != u64::MAX {
        SPENT.set(SPENT.get().max(max));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_used_up_in_a_turn_and_counts_on_in_its_next_part() {
        let mut units = 0;
        take_turn(&mut units, TURN_UNITS_MAX, || {
            spend(TURN_UNITS_MAX - 1);
            assert!(!is_used_up());
        });
        take_turn(&mut units, TURN_UNITS_MAX, || {
            spend_bytes(2047);
            assert!(is_used_up());
        });
        assert_eq!(units, TURN_UNITS_MAX);
        assert_eq!(spent_in_turns(), TURN_UNITS_MAX);
    }

    #[test]
    fn turn_that_is_used_up_counts_no_more_than_its_share() {
        let mut units = 0;
        take_turn(&mut units, TURN_UNITS_MAX, || {
            spend(3);
            use_up();
            assert!(is_used_up());
            use_up();
        });
        assert_eq!(units, TURN_UNITS_MAX);
        take_turn(&mut units, TURN_UNITS_MAX, || {
            spend(5);
            use_up();
        });
        assert_eq!(units, TURN_UNITS_MAX + 5, "what it has spent stays");
        let mut endless = 7;
        take_turn(&mut endless, u64::MAX, use_up);
        assert_eq!(endless, 7, "a turn without an end has no share");
    }

    #[test]
    fn nothing_is_used_up_outside_of_a_turn() {
        use_up();
        spend(2 * TURN_UNITS_MAX);
        assert!(!is_used_up());
        let mut other = 0;
        assert!(!take_turn(&mut other, TURN_UNITS_MAX, is_used_up));
        assert_eq!(other, 0);
    }
}
