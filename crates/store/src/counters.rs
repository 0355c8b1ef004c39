//! What this thread has done for clients: steady where times are not. Told by the
//! thread itself, it goes together with all else that the thread counts.

use std::cell::Cell;

thread_local! {
    static IOS: Cell<Counts> = const { Cell::new(Counts { ios: 0, io_bytes: 0 }) };
}

/// Counts of one thread since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Of volumes: reads, writes, flushes and ranges made zero or deallocated.
    /// Of files: reads and writes. Those that succeeded.
    pub ios: u64,
    /// Bytes that were read and written.
    pub io_bytes: u64,
}

/// The counts of the calling thread.
pub fn of_this_thread() -> Counts {
    IOS.get()
}

/// Counts one that succeeded, with the bytes that it read or wrote. Called where
/// the I/O is done, for files where the client is answered.
#[inline]
pub fn add(bytes: u32) {
    let Counts { ios, io_bytes } = IOS.get();
    IOS.set(Counts {
        ios: ios + 1,
        io_bytes: io_bytes + u64::from(bytes),
    });
}
