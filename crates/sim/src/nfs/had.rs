//! The identity of an NFS client, and what it has: open files, locks and delegations.

use wire::nfs4::{sessionid4, stateid4};

use super::DATA_FILES;
use super::ask::{OpenShare, Range4, SimHandle};

/// An open file.
#[derive(Clone, Debug)]
pub struct OpenFile {
    pub hold: usize,
    pub share: OpenShare,
    pub handle: SimHandle,
    pub stateid: stateid4,
    pub is_busy: bool,
}

/// A lock that is held.
#[derive(Clone, Debug)]
pub struct Locked {
    pub hold: usize,
    pub range: Range4,
    pub stateid: stateid4,
    pub is_busy: bool,
}

/// A delegation.
#[derive(Clone, Debug)]
pub struct Delegated {
    pub hold: usize,
    pub handle: SimHandle,
    pub stateid: stateid4,
    pub is_busy: bool,
    /// Of a write delegation: the file as it was given.
    pub given: Option<FileView>,
    /// How long the client has made it, which the server does not know yet.
    pub size: Option<u64>,
}

/// What the server says of a file.
#[derive(Clone, Copy, Debug)]
pub struct FileView {
    pub change: u64,
    pub size: u64,
}

impl Delegated {
    /// What its client says of the file.
    pub fn view(&self) -> Option<FileView> {
        let given = self.given?;
        Some(match self.size {
            Some(size) => FileView {
                change: given.change + 1,
                size,
            },
            None => given,
        })
    }
}

/// The identity of a client, and what it has.
#[derive(Clone, Debug, Default)]
pub struct SimIdentity {
    pub number: usize,
    /// Lives of its machine.
    pub incarnation: u64,
    pub slots: u32,
    pub clientid: u64,
    pub sequence: u32,
    pub session: sessionid4,
    pub root: SimHandle,
    pub home: SimHandle,
    pub block_bytes: usize,
    /// The first are the data files.
    pub opens: Vec<Option<OpenFile>>,
    pub locks: Vec<Option<Locked>>,
    pub delegations: Vec<Option<Delegated>>,
}

impl SimIdentity {
    /// `co_ownerid`, and the name of its directory.
    pub fn name(&self) -> [u8; 2] {
        [b'c', b'0' + self.number as u8]
    }

    /// `co_verifier`.
    pub fn verifier(&self) -> [u8; 8] {
        self.incarnation.to_be_bytes()
    }

    fn data(&self, file: usize) -> &OpenFile {
        self.opens[file].as_ref().expect("data files are open")
    }

    /// Handle of a data file.
    pub fn handle(&self, file: usize) -> &SimHandle {
        &self.data(file).handle
    }

    /// State id of a data file.
    pub fn stateid(&self, file: usize) -> stateid4 {
        self.data(file).stateid
    }

    /// Whether it has a write delegation.
    pub fn writes_delegated(&self) -> bool {
        self.delegations
            .iter()
            .flatten()
            .any(|it| it.given.is_some())
    }

    /// A lock is given up, or all of it behind a byte; what is had no more.
    pub fn unlocked(&mut self, at: usize, keeps: Option<u64>) -> Option<usize> {
        let Some(last) = keeps else {
            return self.locks[at].take().map(|locked| locked.hold);
        };
        let locked = self.locks[at].as_mut()?;
        locked.range.last = last;
        locked.is_busy = false;
        None
    }

    /// It has nothing any more.
    pub fn forget(&mut self) {
        self.opens = vec![None; DATA_FILES];
        self.locks.clear();
        self.delegations.clear();
    }
}
