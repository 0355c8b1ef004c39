//! What a sync of a file has lost: kept from the first failure on, see [`crate::file`].

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use faults::Fault;
use rustix::io::Errno;
use tracing::error;

use crate::{Error, Io};

/// The first loss of a file or a device.
pub(crate) struct Lost {
    volume: String,
    path: PathBuf,
    /// The error of the first sync that failed, or 0.
    errno: AtomicI32,
    is_told: AtomicBool,
}

impl Lost {
    /// Nothing yet.
    pub(crate) fn none(volume: String, path: PathBuf) -> Lost {
        Lost {
            volume,
            path,
            errno: AtomicI32::new(0),
            is_told: AtomicBool::new(false),
        }
    }

    /// Whether something is lost.
    pub(crate) fn is_some(&self) -> bool {
        self.errno.load(Ordering::Acquire) != 0
    }

    /// The first loss, as an error.
    pub(crate) fn errno(&self) -> Result<(), Errno> {
        match self.errno.load(Ordering::Acquire) {
            0 => Ok(()),
            lost => Err(Errno::from_raw_os_error(lost)),
        }
    }

    /// Refuses what must be durable once a sync has failed.
    pub(crate) fn check(&self, io: &Io) -> Result<(), Error> {
        match (self.errno.load(Ordering::Acquire), io) {
            (0, _) => Ok(()),
            (lost, Io::Flush) => Err(Error::FlushFailed(Errno::from_raw_os_error(lost))),
            (lost, _) => Err(Error::WriteFailed(Errno::from_raw_os_error(lost))),
        }
    }

    /// What was lost is no part of the volume any more.
    pub(crate) fn forget(&self) {
        self.is_told.store(false, Ordering::Relaxed);
        self.let_go();
    }

    /// What was lost is written anew. What is lost after that is told by who writes it.
    pub(crate) fn let_go(&self) {
        self.errno.store(0, Ordering::Release);
    }

    /// A sync has failed. The first one is told.
    pub(crate) fn keep(&self, errno: Errno) {
        let is_full = matches!(errno, Errno::NOSPC | Errno::DQUOT);
        if faults::is(Fault::ForgetLoss) || is_full && faults::is(Fault::ForgetFullSync) {
            return;
        }
        let (new, old) = (Ordering::AcqRel, Ordering::Relaxed);
        let lost = errno.raw_os_error();
        let is_first = self.errno.compare_exchange(0, lost, new, old).is_ok();
        if is_first && !self.is_told.swap(true, Ordering::Relaxed) {
            error!(
                volume = self.volume,
                path = %self.path.display(),
                error = %errno,
                "written data could not be made durable and may be lost; flushes and durable \
                 writes fail from now on: check the disk, then restart weft"
            );
        }
    }
}
