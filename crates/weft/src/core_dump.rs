//! What a core dump of weft has: nothing of its memory, where keys and the data of hosts lie.

use std::fs;

/// Decides which parts of memory are in a core dump (core(5)).
const FILTER: &str = "/proc/self/coredump_filter";
/// Headers of the program's own files alone.
const HEADERS_ALONE: &str = "0x10";

/// Leaves memory out from now on.
pub fn leave_memory_out() {
    if let Err(error) = fs::write(FILTER, HEADERS_ALONE) {
        tracing::warn!("{FILTER}: {error}: a core dump has the keys that weft reads");
    }
}
