//! The locks and atomics that reactors share: the standard library's, but in a model
//! of threads (`cargo xtask shuttle`) a scheduler chooses before each operation which
//! thread goes on.

#[cfg(not(all(test, shuttle)))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32},
};

#[cfg(all(test, shuttle))]
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32},
};
