//! The Admin Command Set (NVM Express Base Specification 2.0, section 5).

use machine::Tag;
use wire::nvme::lba_status::{Descriptor, ListHeader, atype};
use wire::nvme::log::effect;
use wire::nvme::{Sqe, Status, admin};

use crate::controller::ErrorNote;
use crate::item::NamedItem;
use crate::lba_status::{LbaStatus, LbaStatusKind};
use crate::request::{AdminOutcome, AdminRequest, Fault, Reply, at};
use crate::sanitize::sanitize;
use crate::{feature, identify, log};

/// An admin command.
pub(crate) struct AdminCommand {
    pub item: NamedItem,
    /// Scope of the command, a bit of its Commands Supported and Effects entry.
    pub scope: u32,
    run: fn(&mut AdminRequest<'_>, Tag) -> Result<AdminOutcome, Fault>,
}

const fn command(
    item: NamedItem,
    scope: u32,
    run: fn(&mut AdminRequest<'_>, Tag) -> Result<AdminOutcome, Fault>,
) -> AdminCommand {
    AdminCommand { item, scope, run }
}

/// Every admin command there is; others are Invalid Command Opcode.
pub(crate) const COMMANDS: &[AdminCommand] = &[
    command(
        NamedItem::both(admin::GET_LOG_PAGE, "Get Log Page", "5.16"),
        effect::SCOPE_CONTROLLER,
        |request, _| log::get_log_page(request).map(AdminOutcome::Done),
    ),
    command(
        NamedItem::both(admin::IDENTIFY, "Identify", "5.17"),
        effect::SCOPE_CONTROLLER,
        |request, _| identify::identify(request).map(AdminOutcome::Done),
    ),
    command(
        NamedItem::io(admin::ABORT, "Abort", "5.1"),
        effect::SCOPE_CONTROLLER,
        |request, _| abort(request),
    ),
    command(
        NamedItem::both(admin::SET_FEATURES, "Set Features", "5.27"),
        effect::SCOPE_CONTROLLER,
        |request, _| feature::set(request),
    ),
    command(
        NamedItem::both(admin::GET_FEATURES, "Get Features", "5.15"),
        effect::SCOPE_CONTROLLER,
        |request, _| feature::get(request),
    ),
    command(
        NamedItem::both(
            admin::ASYNC_EVENT_REQUEST,
            "Asynchronous Event Request",
            "5.2",
        ),
        effect::SCOPE_CONTROLLER,
        hold_event_request,
    ),
    command(
        NamedItem::both(admin::KEEP_ALIVE, "Keep Alive", "5.18"),
        effect::SCOPE_CONTROLLER,
        |request, _| {
            request.controller.keep_alive(request.env.now);
            Ok(AdminOutcome::Done(Reply::done(0)))
        },
    ),
    command(
        NamedItem::io(admin::FORMAT_NVM, "Format NVM", "5.14"),
        effect::SCOPE_NAMESPACE | effect::LBCC,
        |request, _| format_nvm(request),
    ),
    command(
        NamedItem::io(admin::SANITIZE, "Sanitize", "5.24"),
        effect::SCOPE_SUBSYSTEM | effect::LBCC,
        |request, _| sanitize(request),
    ),
    command(
        NamedItem::io(admin::GET_LBA_STATUS, "Get LBA Status", "NVM 4.2.1"),
        effect::SCOPE_NAMESPACE,
        |request, _| get_lba_status(request),
    ),
];

/// Executes one admin command and notes its error.
pub(crate) fn execute(mut request: AdminRequest<'_>, tag: Tag) -> AdminOutcome {
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
            AdminOutcome::Done(Reply::failed(fault.status))
        }
    }
}

fn dispatch(request: &mut AdminRequest<'_>, tag: Tag) -> Result<AdminOutcome, Fault> {
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
    if command.scope & (effect::SCOPE_NAMESPACE | effect::SCOPE_SUBSYSTEM) != 0 {
        request.expect_protected()?;
    }
    (command.run)(request, tag)
}

fn hold_event_request(request: &mut AdminRequest<'_>, tag: Tag) -> Result<AdminOutcome, Fault> {
    if request.controller.hold_event_request(tag) {
        Ok(AdminOutcome::Held)
    } else {
        Err(Fault::of(Status::AER_LIMIT.dnr()))
    }
}

/// Abort (section 5.1). A queue that is not there has nothing to abort.
fn abort(request: &mut AdminRequest<'_>) -> Result<AdminOutcome, Fault> {
    let cdw10 = request.sqe.cdw10.get();
    if !request.controller.begin_abort() {
        return Err(Fault::of(Status::ABORT_LIMIT.dnr()));
    }
    Ok(AdminOutcome::Abort {
        connection: request.controller.connection(cdw10 as u16),
        cid: (cdw10 >> 16) as u16,
    })
}

/// Get LBA Status, checked; the volume is asked by the driver.
fn get_lba_status(request: &mut AdminRequest<'_>) -> Result<AdminOutcome, Fault> {
    let sqe = request.sqe;
    let namespace = request.accessible_namespace()?;
    let kind = match (sqe.cdw13.get() >> 24) as u8 {
        atype::ALLOCATED => LbaStatusKind::Allocated,
        atype::SCAN_UNRECOVERABLE | atype::UNRECOVERABLE => LbaStatusKind::Unrecoverable,
        _ => return Err(Fault::field(at::CDW13)),
    };
    let (slba, count) = (sqe.slba(), namespace.block_count);
    if slba >= count {
        return Err(Fault::new(Status::LBA_OUT_OF_RANGE, at::CDW10));
    }
    // Range Length 0: to the end of the namespace.
    let blocks = match u64::from(sqe.cdw13.get() & 0xffff) {
        0 => count - slba,
        blocks => blocks,
    };
    if slba.checked_add(blocks).is_none_or(|end| end > count) {
        return Err(Fault::new(Status::LBA_OUT_OF_RANGE, at::CDW10));
    }
    let block_shift = namespace.block_bytes.trailing_zeros() as u8;
    let nsid = namespace.nsid;
    // MNDW counts dwords, 0's based: what does not fit into it is not returned.
    let wanted = (u64::from(sqe.cdw12.get()) + 1) * 4;
    let bytes = wanted.min(request.out.len() as u64) as usize;
    let behind_header = bytes.saturating_sub(size_of::<ListHeader>());
    Ok(AdminOutcome::LbaStatus(LbaStatus {
        nsid,
        offset: slba << block_shift,
        len: blocks << block_shift,
        block_shift,
        kind,
        ranges_max: (behind_header / size_of::<Descriptor>()) as u32,
    }))
}

/// Format NVM (section 5.14), checked. There is one format, and whatever secure erase is asked for
/// is one by cryptography: as all user data of an encrypted namespace is.
fn format_nvm(request: &mut AdminRequest<'_>) -> Result<AdminOutcome, Fault> {
    let cdw10 = request.sqe.cdw10.get();
    let namespace = request.accessible_namespace()?;
    // LBAFU, LBAF, MSET, PI.
    if cdw10 & (0x3 << 12 | 0xff) != 0 {
        return Err(Fault::new(Status::INVALID_FORMAT, at::CDW10));
    }
    let erases = cdw10 >> 9 & 0x7;
    if erases > 2 || !namespace.is_encrypted {
        return Err(Fault::field(at::CDW10));
    }
    if namespace.refuses_writes() {
        return Err(Fault::of(Status::WRITE_PROTECTED.dnr()));
    }
    if request.sanitize.is_in_progress() {
        return Err(Fault::of(Status::SANITIZE_IN_PROGRESS));
    }
    let nsid = namespace.nsid;
    Ok(AdminOutcome::Erase { nsid })
}
