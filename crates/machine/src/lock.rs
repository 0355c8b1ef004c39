//! Locks of what threads share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what threads share. Where a reactor has panicked under the lock the process
/// stops, and the others come by it to end in order.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
