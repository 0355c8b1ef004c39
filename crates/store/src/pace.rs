//! How long what a volume does by itself pauses, so that hosts have the disk besides.

use reactor::Nanos;

/// No pause is longer: then it is looked whether to go on, and how fast.
const PAUSE_MAX: Nanos = 100_000_000;

/// The next pause of what has moved `len` bytes, moves `rate` bytes in a second at most and has
/// `paused` for them; `None`: it goes on.
pub(crate) fn pause_after(len: u64, rate: u64, paused: Nanos) -> Option<Nanos> {
    // What is fast enough still lets others have their turn.
    let whole = (len * 1_000_000_000 / rate).max(1);
    let rest = whole.saturating_sub(paused);
    (rest > 0).then(|| rest.min(PAUSE_MAX))
}
