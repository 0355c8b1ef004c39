//! What a turn of a connection costs, counted in units, so that none spends more than
//! its share before all others of its reactor had theirs.
//!
//! A unit is about one comparison in a table, one entry, or one KiB copied: some tens of
//! nanoseconds. Whoever does the work counts it, where it is done, with [`spend`]; the
//! count is the calling thread's, since a reactor gives turns to one connection at a
//! time. Reading a clock instead would make runs differ from each other.

use std::cell::Cell;

/// What a connection may spend in one turn. It stops at the first operation after that.
pub const TURN_UNITS_MAX: u64 = 8192;

/// What each operation costs besides what it counts itself.
pub const OPERATION_UNITS: u64 = 8;

thread_local! {
    static SPENT: Cell<u64> = const { Cell::new(0) };
}

/// Counts work of the connection whose turn it is.
#[inline]
pub fn spend(units: u64) {
    SPENT.set(SPENT.get().saturating_add(units));
}

/// Counts bytes that are copied, compared or summed up.
#[inline]
pub fn spend_bytes(bytes: u64) {
    spend(bytes >> 10);
}

/// What the connection has spent in its turn.
#[inline]
pub fn spent() -> u64 {
    SPENT.get()
}

/// Another connection goes on that has spent so much in its turn.
#[inline]
pub fn go_on_from(units: u64) {
    SPENT.set(units);
}

/// Whether the share of the connection is used up: what is left waits for its next turn.
#[inline]
pub fn is_used_up() -> bool {
    spent() >= TURN_UNITS_MAX
}
