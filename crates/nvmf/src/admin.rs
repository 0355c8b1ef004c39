//! The Admin Command Set (NVM Express Base Specification 2.0, section 5).

use std::collections::BTreeMap;

use machine::{Nanos, Tag};
use wire::nvme::log::effect;
use wire::nvme::{NSID_ALL, Sqe, Status, admin};

use crate::controller::{Controller, ErrorNote};
use crate::discovery::DiscoveryLog;
use crate::lba_status::{self, LbaStatus};
use crate::subsystem::{NSID_MAX, Namespace, WriteProtect};
use crate::support::Item;
use crate::{feature, identify, log};

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
pub enum Outcome {
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
pub(crate) struct Request<'a> {
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
}

impl Request<'_> {
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
}

/// An admin command.
pub(crate) struct Command {
    pub item: Item,
    /// Scope of the command, a bit of its Commands Supported and Effects entry.
    pub scope: u32,
    run: fn(&mut Request<'_>, Tag) -> Result<Outcome, Fault>,
}

const fn command(
    item: Item,
    scope: u32,
    run: fn(&mut Request<'_>, Tag) -> Result<Outcome, Fault>,
) -> Command {
    Command { item, scope, run }
}

/// Every admin command there is; others are Invalid Command Opcode.
pub(crate) const COMMANDS: &[Command] = &[
    command(
        Item::both(admin::GET_LOG_PAGE, "Get Log Page", "5.16"),
        effect::SCOPE_CONTROLLER,
        |request, _| log::get_log_page(request).map(Outcome::Done),
    ),
    command(
        Item::both(admin::IDENTIFY, "Identify", "5.17"),
        effect::SCOPE_CONTROLLER,
        |request, _| identify::identify(request).map(Outcome::Done),
    ),
    command(
        Item::io(admin::ABORT, "Abort", "5.1"),
        effect::SCOPE_CONTROLLER,
        |request, _| abort(request),
    ),
    command(
        Item::both(admin::SET_FEATURES, "Set Features", "5.27"),
        effect::SCOPE_CONTROLLER,
        |request, _| feature::set(request),
    ),
    command(
        Item::both(admin::GET_FEATURES, "Get Features", "5.15"),
        effect::SCOPE_CONTROLLER,
        |request, _| feature::get(request),
    ),
    command(
        Item::both(
            admin::ASYNC_EVENT_REQUEST,
            "Asynchronous Event Request",
            "5.2",
        ),
        effect::SCOPE_CONTROLLER,
        hold_event_request,
    ),
    command(
        Item::both(admin::KEEP_ALIVE, "Keep Alive", "5.18"),
        effect::SCOPE_CONTROLLER,
        |request, _| {
            request.controller.keep_alive(request.env.now);
            Ok(Outcome::Done(Reply::done(0)))
        },
    ),
    command(
        Item::io(admin::GET_LBA_STATUS, "Get LBA Status", "NVM 4.2.1"),
        effect::SCOPE_NAMESPACE,
        |request, _| lba_status::get_lba_status(request),
    ),
];

/// Executes one admin command and notes its error.
pub(crate) fn execute(mut request: Request<'_>, tag: Tag) -> Outcome {
    request.controller.note_traffic();
    match dispatch(&mut request, tag) {
        Ok(outcome) => outcome,
        Err(fault) => {
            request.controller.note_error(ErrorNote {
                qid: 0,
                cid: request.sqe.cid.get(),
                status: fault.status,
                location: fault.location,
                lba: 0,
                nsid: request.sqe.nsid.get(),
            });
            Outcome::Done(Reply::failed(fault.status))
        }
    }
}

fn dispatch(request: &mut Request<'_>, tag: Tag) -> Result<Outcome, Fault> {
    let opcode = request.sqe.opcode;
    let command = COMMANDS
        .iter()
        .find(|command| command.item.id == opcode)
        .filter(|command| command.item.is_for(request.controller.is_discovery))
        .ok_or(Fault::new(Status::INVALID_OPCODE, at::OPCODE))?;
    if !request.controller.is_ready() {
        return Err(Fault::of(Status::COMMAND_SEQUENCE.dnr()));
    }
    // There is no fused pair of admin commands, and PRPs do not exist over Fabrics.
    if request.sqe.flags & (Sqe::FUSE_MASK | Sqe::PSDT_MASK) != Sqe::PSDT_SGL {
        return Err(Fault::field(at::FLAGS));
    }
    (command.run)(request, tag)
}

fn hold_event_request(request: &mut Request<'_>, tag: Tag) -> Result<Outcome, Fault> {
    if request.controller.hold_event_request(tag) {
        Ok(Outcome::Held)
    } else {
        Err(Fault::of(Status::AER_LIMIT.dnr()))
    }
}

/// Abort (section 5.1). A queue that is not there has nothing to abort.
fn abort(request: &mut Request<'_>) -> Result<Outcome, Fault> {
    let cdw10 = request.sqe.cdw10.get();
    if !request.controller.begin_abort() {
        return Err(Fault::of(Status::ABORT_LIMIT.dnr()));
    }
    Ok(Outcome::Abort {
        connection: request.controller.connection(cdw10 as u16),
        cid: (cdw10 >> 16) as u16,
    })
}
