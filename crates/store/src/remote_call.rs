//! How an I/O that a thread elsewhere does comes to its end.

use std::sync::{Arc, OnceLock};
use std::thread;

use rustix::io::Errno;

use crate::Error;
use crate::locks::Caller;

/// What came of an I/O, once its call has ended it.
#[derive(Debug, Default)]
pub(crate) struct RemoteOutcome(OnceLock<Result<(), Error>>);

impl RemoteOutcome {
    pub(crate) fn new() -> Arc<RemoteOutcome> {
        Arc::default()
    }

    pub(crate) fn result(&self) -> Result<(), Error> {
        *self.0.get().expect("a call says what came of it first")
    }
}

/// Ends an I/O, from any thread. Dropped, it ends it as one that nothing answers.
pub struct RemoteCall {
    outcome: Arc<RemoteOutcome>,
    caller: Option<Caller>,
}

impl RemoteCall {
    pub(crate) fn new(outcome: &Arc<RemoteOutcome>, caller: Caller) -> RemoteCall {
        RemoteCall {
            outcome: Arc::clone(outcome),
            caller: Some(caller),
        }
    }

    /// It is over, and its memory is its caller's again.
    pub fn end(mut self, result: Result<(), Error>) {
        self.tell(result);
    }

    fn tell(&mut self, result: Result<(), Error>) {
        if let Some(caller) = self.caller.take() {
            // It is set once: the caller is taken.
            let _ = self.outcome.0.set(result);
            caller.call();
        }
    }
}

impl Drop for RemoteCall {
    fn drop(&mut self) {
        self.tell(Err(Error::ReadFailed(Errno::NXIO)));
    }
}

impl std::fmt::Debug for RemoteCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RemoteCall")
    }
}

/// What comes of an I/O that the calling thread waits for.
pub(crate) fn wait_for(begin: impl FnOnce(RemoteCall)) -> Result<(), Error> {
    let outcome = RemoteOutcome::new();
    begin(RemoteCall::new(&outcome, Caller::Thread(thread::current())));
    while outcome.0.get().is_none() {
        thread::park();
    }
    outcome.result()
}
