//! Completions that other threads ring.
//!
//! A waiter for something that is not the kernel's (a range that another reactor
//! has locked, a file that another thread writes) leaves a [`Ticket`] with it.
//! Rung, that becomes a completion of the driver that gave it out.

use crate::sync::{AtomicBool, Mutex, MutexGuard};
use crate::types::{Completion, Token};
use crate::waker::Waker;
use faults::Fault;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A driver's side: gives tickets out and takes what was rung.
#[derive(Debug)]
pub struct Bell {
    rung: Mutex<Vec<Token>>,
    any: AtomicBool,
    waker: Option<Waker>,
}

impl Bell {
    /// A bell that also wakes a sleeping driver, for drivers that sleep.
    pub fn new(waker: Option<Waker>) -> Arc<Bell> {
        Arc::new(Bell {
            rung: Mutex::new(Vec::new()),
            any: AtomicBool::new(false),
            waker,
        })
    }

    /// A ticket whose completion carries `token`.
    pub fn ticket(self: &Arc<Bell>, token: Token) -> Ticket {
        Ticket {
            bell: Arc::clone(self),
            token,
        }
    }

    fn rung(&self) -> MutexGuard<'_, Vec<Token>> {
        self.rung.lock().expect("nothing panics under this lock")
    }

    /// Whether [`Bell::take`] would find something.
    #[inline]
    pub fn is_rung(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Appends a completion for each ticket that was rung, in their order. A
    /// driver that sleeps does this after it has forgotten wakes.
    #[inline]
    pub fn take(&self, out: &mut Vec<Completion>) {
        if self.is_rung() {
            let mut rung = self.rung();
            self.any.store(false, Ordering::Relaxed);
            out.extend(rung.drain(..).map(|token| Completion::File {
                token,
                result: Ok(0),
            }));
            drop(rung);
            if faults::is(Fault::ClearLate) {
                self.any.store(false, Ordering::Relaxed);
            }
        }
    }
}

/// Rung once, from any thread, it is one [`Completion::File`] with no bytes in
/// the driver that gave it out. Dropped without, it is none.
#[derive(Debug)]
pub struct Ticket {
    bell: Arc<Bell>,
    token: Token,
}

impl Ticket {
    /// Completes, and wakes the driver if it sleeps.
    pub fn ring(self) {
        self.bell.rung().push(self.token);
        self.bell.any.store(true, Ordering::Release);
        if let Some(waker) = &self.bell.waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waker::Sleeper;

    fn tokens(bell: &Bell) -> Vec<Token> {
        let mut out = Vec::new();
        bell.take(&mut out);
        let token = |completion| match completion {
            Completion::File { token, result } => {
                assert_eq!(result.unwrap(), 0);
                token
            }
            other => panic!("{other:?}"),
        };
        out.into_iter().map(token).collect()
    }

    #[test]
    fn a_ticket_rings_once_and_wakes() {
        let sleeper = Sleeper::new(true).unwrap();
        let bell = Bell::new(Some(sleeper.waker()));
        let (first, second) = (bell.ticket(1), bell.ticket(2));
        drop(bell.ticket(3));
        assert!(!bell.is_rung());
        second.ring();
        std::thread::spawn(|| first.ring()).join().unwrap();
        assert!(!sleeper.try_sleep(), "the ring did not wake");
        assert_eq!(tokens(&bell), [2, 1]);
        assert!(!bell.is_rung());
        assert_eq!(tokens(&bell), []);
    }

    #[test]
    fn a_ticket_outlives_its_bell() {
        let ticket = Bell::new(None).ticket(1);
        ticket.ring();
    }
}
