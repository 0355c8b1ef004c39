//! A file system over another one, of which a test sees each operation and holds answers back.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use reactor::{FileIo, Ticket, Token};
use store::fs::{Caller, FileId, FileSystem, FsOp, Info, Progress, Task};

/// Whether the answer to an operation is held back.
type Sees = dyn Fn(&Caller<'_>, &FsOp<'_>) -> bool + Send + Sync;

/// It lends no memory: data goes through buffers.
pub struct WatchedFiles {
    below: Arc<dyn FileSystem>,
    sees: Box<Sees>,
    held: Mutex<Vec<Ticket>>,
}

impl WatchedFiles {
    /// Over `below`, which does each operation at once. `sees` is told of each before it is done,
    /// and says whether its answer is held back.
    pub fn new(
        below: Arc<dyn FileSystem>,
        sees: impl Fn(&Caller<'_>, &FsOp<'_>) -> bool + Send + Sync + 'static,
    ) -> Arc<WatchedFiles> {
        Arc::new(WatchedFiles {
            below,
            sees: Box::new(sees),
            held: Mutex::default(),
        })
    }

    /// How many answers are held back.
    pub fn held(&self) -> usize {
        self.held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Those that are held back go on, when the reactors that asked look.
    pub fn let_go(&self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.drain(..).for_each(Ticket::ring);
    }
}

impl FileSystem for WatchedFiles {
    fn info(&self) -> &Info {
        self.below.info()
    }

    fn root(&self) -> FileId {
        self.below.root()
    }

    fn start(
        &self,
        caller: &Caller<'_>,
        op: FsOp<'_>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        let is_held = (self.sees)(caller, &op);
        let progress = self.below.start(caller, op, files, token);
        let Progress::Done(result) = progress else {
            panic!("what is below does so at once");
        };
        if !is_held {
            return Progress::Done(result);
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.push(files.ticket(token));
        Progress::Pending(Task::of_other(result))
    }

    fn resume(&self, task: Task, _: io::Result<u32>, _: &mut dyn FileIo, _: Token) -> Progress {
        Progress::Done(task.into_other())
    }
}
