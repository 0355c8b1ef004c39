//! Locks of what reactors share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what reactors share. Where one of them has panicked under the lock the
/// target stops, and the others come by it to end in order.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
