//! Waking a reactor from another thread.
//!
//! One word says what the reactor does. A wake is one exchange on it, and a
//! system call only if the reactor was asleep. Nothing is lost: a sleeper goes
//! from AWAKE to ASLEEP by compare-exchange and does not sleep if a wake came
//! before, and it forgets wakes ([`Sleeper::awake`]) before mail is looked at,
//! so mail that is pushed later finds AWAKE or ASLEEP and marks again.

use crate::sync::AtomicU32;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const WOKEN: u32 = 2;

struct WakerShared {
    state: AtomicU32,
    event: OwnedFd,
}

/// Wakes a sleeping [`crate::Driver::poll`] from any thread.
#[derive(Clone)]
pub struct Waker {
    shared: Arc<WakerShared>,
}

impl Waker {
    /// Makes the next, or the current, sleep end at once.
    pub fn wake(&self) {
        if self.shared.state.swap(WOKEN, Ordering::SeqCst) == ASLEEP {
            // It fails only if the counter is full, which wakes as well.
            let _ = rustix::io::write(&self.shared.event, &1u64.to_ne_bytes());
        }
    }
}

impl std::fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sleeper")
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waker")
    }
}

/// The reactor's side of its [`Waker`]s. Public for drivers outside of this
/// crate.
pub struct Sleeper {
    shared: Arc<WakerShared>,
}

impl Sleeper {
    /// `nonblocking`: how reads of the descriptor behave.
    pub fn new(nonblocking: bool) -> io::Result<Sleeper> {
        let mut flags = EventfdFlags::CLOEXEC;
        flags.set(EventfdFlags::NONBLOCK, nonblocking);
        Ok(Sleeper {
            shared: Arc::new(WakerShared {
                state: AtomicU32::new(AWAKE),
                event: eventfd(0, flags)?,
            }),
        })
    }

    /// One more waker of this reactor.
    pub fn waker(&self) -> Waker {
        Waker {
            shared: Arc::clone(&self.shared),
        }
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.shared.event
    }

    /// Whether to sleep: a wake writes the descriptor from now on.
    pub(crate) fn try_sleep(&self) -> bool {
        let state = &self.shared.state;
        state
            .compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Whether a wake came since the last [`Sleeper::awake`].
    pub fn is_woken(&self) -> bool {
        self.shared.state.load(Ordering::SeqCst) == WOKEN
    }

    /// Forgets wakes; what they announced must be looked at after this.
    #[inline]
    pub fn awake(&self) {
        // Spinning must not pull the line away from its readers.
        if self.shared.state.load(Ordering::SeqCst) != AWAKE {
            self.shared.state.swap(AWAKE, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(sleeper: &Sleeper) -> bool {
        rustix::io::read(sleeper.fd(), &mut [0; 8]).is_ok()
    }

    #[test]
    fn only_a_sleeper_costs_a_system_call() {
        let sleeper = Sleeper::new(true).unwrap();
        let waker = sleeper.waker();
        waker.wake();
        assert!(!pending(&sleeper));
        assert!(!sleeper.try_sleep(), "a wake before the sleep was lost");
        sleeper.awake();
        assert!(sleeper.try_sleep());
        waker.wake();
        waker.wake();
        assert!(pending(&sleeper));
        assert!(!pending(&sleeper));
        sleeper.awake();
        assert!(sleeper.try_sleep());
    }
}
