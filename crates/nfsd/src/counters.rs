//! What this thread has read and written for clients: steady where times are not.

use std::cell::Cell;

thread_local! {
    static IOS: Cell<Counts> = const { Cell::new(Counts { ios: 0, io_bytes: 0 }) };
}

/// Counts of one thread since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// READs and WRITEs that succeeded, of every version.
    pub ios: u64,
    /// Bytes of those.
    pub io_bytes: u64,
}

/// The counts of the calling thread.
pub fn here() -> Counts {
    IOS.get()
}

/// A READ or WRITE of so many bytes has succeeded.
#[inline]
pub(crate) fn add(bytes: u32) {
    let Counts { ios, io_bytes } = IOS.get();
    IOS.set(Counts {
        ios: ios + 1,
        io_bytes: io_bytes + u64::from(bytes),
    });
}
