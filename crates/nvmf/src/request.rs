//! An admin command while it is executed: what it may look at, and how it ends.

use std::collections::BTreeMap;

use machine::Nanos;
use wire::nvme::{NSID_ALL, Sqe, Status};

use crate::controller::Controller;
use crate::discovery::DiscoveryLog;
use crate::lba_status::LbaStatus;
use crate::sanitize_status::SanitizeStatus;
use crate::subsystem::{NSID_MAX, Namespace, WriteProtect};

/// How a command completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Status.
    pub status: Status,
    /// Completion dwords 0 and 1.
    pub result: u64,
    /// Bytes of data to the host at the start of the caller's buffer.
    pub data_len: u32,
}

impl Reply {
    /// Success with completion dwords 0 and 1.
    pub fn done(result: u64) -> Self {
        Reply {
            status: Status::SUCCESS,
            result,
            data_len: 0,
        }
    }

    /// Success with data to the host.
    pub fn data(data_len: usize) -> Self {
        Reply {
            status: Status::SUCCESS,
            result: 0,
            data_len: data_len as u32,
        }
    }

    /// Failure.
    pub fn failed(status: Status) -> Self {
        Reply {
            status,
            result: 0,
            data_len: 0,
        }
    }
}

/// What becomes of an admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminOutcome {
    /// Complete it now.
    Done(Reply),
    /// It is an Asynchronous Event Request:
    /// [`Controller::take_event`] completes it later.
    Held,
    /// It is an Abort, one of those that the controller counts: find the
    /// command, end it, then call [`Controller::abort_done`] and complete with
    /// [`Reply::done`] of 0 if the command was aborted and 1 if it was not.
    Abort {
        /// The connection of the queue; `None` if there is no such queue.
        connection: Option<u64>,
        /// Command identifier on that queue.
        cid: u16,
    },
    /// It is a Get LBA Status: complete it with what the volume says, as
    /// [`LbaStatus::data`] writes it.
    LbaStatus(LbaStatus),
    /// It is a Set Features of a namespace's write protection that may be
    /// done. Where it is [`WriteProtect::Permanent`], keep that first so that
    /// it outlasts a restart; then call [`Registry::set_write_protect`] and
    /// complete it once no write begun before can land any more.
    ///
    /// [`Registry::set_write_protect`]: crate::Registry::set_write_protect
    WriteProtect {
        /// The namespace.
        nsid: u32,
        /// Its new state.
        state: WriteProtect,
    },
    /// It is a Format NVM of an encrypted namespace: complete it once its data key is destroyed.
    Erase {
        /// The namespace.
        nsid: u32,
    },
    /// It is a Sanitize that may be done, of all namespaces of the subsystem: call
    /// [`Registry::begin_sanitize`](crate::Registry::begin_sanitize), complete it, and say how it
    /// goes on.
    Sanitize {
        /// Its CDW10.
        cdw10: u32,
    },
    /// It is a Get Features or Set Features of Reservation Persistence:
    /// complete it with [`Reply::done`] of 1 if the reservations of the
    /// namespace persist through a power loss, of 0 if not or once they are
    /// set.
    ReservationPersistence {
        /// The namespace; of a Set Features also FFFFFFFFh: all that the host
        /// sees.
        nsid: u32,
        /// What is set.
        set: Option<bool>,
    },
}

/// What a volume has done, for the SMART / Health Information log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounters {
    /// Commands that read, Compare included.
    pub read_commands: u64,
    /// Bytes they read.
    pub read_bytes: u64,
    /// Commands that wrote.
    pub write_commands: u64,
    /// Bytes they wrote.
    pub write_bytes: u64,
    /// Commands that the media failed.
    pub media_errors: u64,
    /// How full what is below the volume is.
    pub taken_percent: u8,
}

/// What admin commands need from outside.
pub struct Env<'a> {
    /// The time.
    pub now: Nanos,
    /// When the target started: the last power on.
    pub started: Nanos,
    /// Counters of the namespace with this identifier.
    pub counters: &'a dyn Fn(u32) -> IoCounters,
    /// Bytes that a thin namespace takes of what is below it.
    pub used_bytes: &'a dyn Fn(u32) -> u64,
}

/// A refused command: the standard's status and the byte of the command that
/// is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub status: Status,
    pub location: Option<u16>,
}

impl Fault {
    /// Trying again would fail again.
    pub fn new(status: Status, location: u16) -> Self {
        Fault {
            status: status.dnr(),
            location: Some(location),
        }
    }

    /// No field is at fault.
    pub fn of(status: Status) -> Self {
        Fault {
            status,
            location: None,
        }
    }

    /// Invalid Field in Command, in the dword that starts at byte `location`.
    pub fn field(location: u16) -> Self {
        Fault::new(Status::INVALID_FIELD, location)
    }
}

/// Bytes of the fields of a submission queue entry.
pub(crate) mod at {
    pub const OPCODE: u16 = 0;
    pub const FLAGS: u16 = 1;
    pub const NSID: u16 = 4;
    pub const SGL: u16 = 24;
    pub const CDW10: u16 = 40;
    pub const CDW11: u16 = 44;
    pub const CDW12: u16 = 48;
    pub const CDW13: u16 = 52;
    pub const CDW14: u16 = 56;
}

/// An admin command with everything its execution may look at.
pub(crate) struct AdminRequest<'a> {
    pub controller: &'a mut Controller,
    pub sqe: &'a Sqe,
    /// Data from the host.
    pub data: &'a [u8],
    /// Where data to the host goes.
    pub out: &'a mut [u8],
    pub env: &'a Env<'a>,
    /// Hosts of the subsystem's controllers by Controller ID, for the commands
    /// that list them.
    pub controllers: &'a BTreeMap<u16, String>,
    /// What a discovery controller's log says; empty for other commands.
    pub discovery: &'a DiscoveryLog,
    /// How the last sanitize operation of the subsystem stands.
    pub sanitize: SanitizeStatus,
}

impl AdminRequest<'_> {
    /// Writes a structure to the host, up to `len` bytes of it.
    pub fn put(&mut self, bytes: &[u8]) -> Result<Reply, Fault> {
        let out = self
            .out
            .get_mut(..bytes.len())
            .ok_or(Fault::new(Status::DATA_SGL_LENGTH_INVALID, at::SGL))?;
        out.copy_from_slice(bytes);
        Ok(Reply::data(bytes.len()))
    }

    /// The active namespace that the command names (section 3.2.1.5).
    pub fn namespace(&self) -> Result<&Namespace, Fault> {
        let nsid = self.sqe.nsid.get();
        let status = match nsid {
            1..=NSID_MAX => Status::INVALID_FIELD,
            _ => Status::INVALID_NAMESPACE,
        };
        self.controller
            .namespace(nsid)
            .ok_or(Fault::new(status, at::NSID))
    }

    /// The same, if its ANA state lets commands at what it holds (section
    /// 8.1.3): otherwise another path may.
    pub fn accessible_namespace(&self) -> Result<&Namespace, Fault> {
        let namespace = self.namespace()?;
        let ana = self.controller.ana_state(namespace);
        if ana.is_accessible() {
            Ok(namespace)
        } else {
            Err(Fault {
                status: ana.status(),
                location: Some(at::NSID),
            })
        }
    }

    /// The namespace identifier names none or all namespaces, or is a fault.
    pub fn expect_no_namespace(&self) -> Result<(), Fault> {
        match self.sqe.nsid.get() {
            0 | NSID_ALL => Ok(()),
            _ => Err(Fault::field(at::NSID)),
        }
    }

    /// A controller that is there to make a key for TLS has nothing to do with namespaces: its
    /// host has not authenticated as it must (Base 2.1, section 8.3.4.5.9).
    pub fn expect_protected(&self) -> Result<(), Fault> {
        match self.controller.only_makes_key() {
            true => Err(Fault::of(Status::AUTHENTICATION_REQUIRED.dnr())),
            false => Ok(()),
        }
    }
}
