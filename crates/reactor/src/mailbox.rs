//! Mail between cores. Off the data path: connections handed over, settings
//! changed, a shutdown. A lock around a vector is therefore good enough; the
//! reader takes the whole vector at once, and only when a flag says that there
//! is something. The queue has no bound of its own: senders are our own code,
//! and each has a bounded number of letters under way.

use crate::sync::{AtomicBool, Mutex, MutexGuard};
use crate::waker::Waker;
use faults::Fault;
use std::sync::Arc;
use std::sync::atomic::Ordering;

struct MailboxShared<M> {
    /// `None` when the receiver is dropped.
    letters: Mutex<Option<Vec<M>>>,
    has_letters: AtomicBool,
    waker: Waker,
}

impl<M> MailboxShared<M> {
    fn letters(&self) -> MutexGuard<'_, Option<Vec<M>>> {
        self.letters.lock().expect("nothing panics under this lock")
    }
}

/// Sends mail to one reactor, waking it if it sleeps.
pub struct Mailbox<M> {
    shared: Arc<MailboxShared<M>>,
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Mailbox<M> {
        Mailbox {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<M> Mailbox<M> {
    /// Sends; mail to a reactor that has ended is dropped.
    pub fn send(&self, letter: M) {
        let mut letters = self.shared.letters();
        let Some(list) = letters.as_mut() else {
            // What a letter does when it is dropped is not ours to hold up.
            drop(letters);
            return drop(letter);
        };
        list.push(letter);
        drop(letters);
        self.shared.has_letters.store(true, Ordering::Release);
        self.shared.waker.wake();
    }
}

/// The reactor's side of a [`Mailbox`].
pub struct Receiver<M> {
    shared: Arc<MailboxShared<M>>,
}

impl<M> Receiver<M> {
    /// Moves what has come, oldest first, to the end of `into`.
    #[inline]
    pub fn take(&self, into: &mut Vec<M>) {
        if self.shared.has_letters.load(Ordering::Acquire) {
            let mut letters = self.shared.letters();
            self.shared.has_letters.store(false, Ordering::Relaxed);
            into.append(letters.as_mut().expect("its reader is here"));
            drop(letters);
            if faults::is(Fault::ClearLate) {
                self.shared.has_letters.store(false, Ordering::Relaxed);
            }
        }
    }
}

impl<M> Drop for Receiver<M> {
    /// Letters may own the mailbox that they lie in: nothing else would ever
    /// drop them.
    fn drop(&mut self) {
        let unread = self.shared.letters().take();
        drop(unread);
    }
}

/// A mailbox for the reactor that `waker` wakes.
pub fn mailbox<M: Send>(waker: Waker) -> (Mailbox<M>, Receiver<M>) {
    let shared = Arc::new(MailboxShared {
        letters: Mutex::new(Some(Vec::new())),
        has_letters: AtomicBool::new(false),
        waker,
    });
    let receiver = Receiver {
        shared: Arc::clone(&shared),
    };
    (Mailbox { shared }, receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waker::Sleeper;

    #[test]
    fn letters_come_in_order_and_wake() {
        let sleeper = Sleeper::new(true).unwrap();
        let (mailbox, receiver) = mailbox(sleeper.waker());
        mailbox.send(1);
        mailbox.clone().send(2);
        assert!(!sleeper.try_sleep(), "mail did not wake");
        let mut letters = vec![0];
        receiver.take(&mut letters);
        assert_eq!(letters, [0, 1, 2]);
        receiver.take(&mut letters);
        assert_eq!(letters.len(), 3);
    }

    #[test]
    fn letters_of_a_dropped_receiver_are_dropped() {
        let sleeper = Sleeper::new(true).unwrap();
        let (mailbox, receiver) = mailbox(sleeper.waker());
        let letter = Arc::new(());
        mailbox.send(letter.clone());
        drop(receiver);
        mailbox.send(letter.clone());
        assert_eq!(Arc::strong_count(&letter), 1);
    }
}
