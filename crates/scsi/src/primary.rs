//! CDBs of SPC-4, and RESERVE and RELEASE of SPC-2.

use wire::scsi::{asc, opcode};

use crate::cdb::Cdb;
use crate::command::{Command, ModeSelect, ModeSense};
use crate::provisioning;
use crate::sense::Sense;
use crate::unit::Unit;

type Decoded = Result<Command, Sense>;

/// The few commands that need no logical unit.
pub(crate) fn without_unit(cdb: Cdb<'_>) -> Decoded {
    match cdb.byte(0) {
        opcode::TEST_UNIT_READY => Ok(Command::TestUnitReady),
        opcode::REQUEST_SENSE => Ok(Command::RequestSense {
            descriptor: cdb.bit(1, 0),
            allocation_len: cdb.byte(4),
        }),
        opcode::INQUIRY => inquiry(cdb),
        opcode::REPORT_LUNS => Ok(Command::ReportLuns {
            select: cdb.byte(2),
            allocation_len: cdb.u32(6),
        }),
        _ => Err(Sense::illegal(asc::INVALID_COMMAND_OPERATION_CODE)),
    }
}

pub(crate) fn any_unit(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    without_unit(cdb)
}

/// A page code without EVPD is a mistake (SPC-4).
fn inquiry(cdb: Cdb<'_>) -> Decoded {
    let page = cdb.bit(1, 0).then(|| cdb.byte(2));
    if page.is_none() && cdb.byte(2) != 0 {
        return Err(Sense::in_cdb(2, None));
    }
    Ok(Command::Inquiry {
        page,
        allocation_len: cdb.u16(3),
    })
}

pub(crate) fn mode_sense_6(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(mode_sense(cdb, false, cdb.byte(4).into()))
}

pub(crate) fn mode_sense_10(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(mode_sense(cdb, true, cdb.u16(7)))
}

fn mode_sense(cdb: Cdb<'_>, long: bool, allocation_len: u16) -> Command {
    Command::ModeSense(ModeSense {
        long,
        long_lba: long && cdb.bit(1, 4),
        no_block_descriptor: cdb.bit(1, 3),
        control: cdb.byte(2) >> 6,
        page: cdb.byte(2) & 0x3f,
        subpage: cdb.byte(3),
        allocation_len,
    })
}

pub(crate) fn mode_select_6(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    mode_select(cdb, false, cdb.byte(4).into())
}

pub(crate) fn mode_select_10(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    mode_select(cdb, true, cdb.u16(7))
}

/// PF must be set: there are no vendor specific parameter lists.
fn mode_select(cdb: Cdb<'_>, long: bool, list_len: u16) -> Decoded {
    if !cdb.bit(1, 4) && list_len > 0 {
        return Err(Sense::in_cdb(1, Some(4)));
    }
    Ok(Command::ModeSelect(ModeSelect { long, list_len }))
}

pub(crate) fn log_sense(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    let (page, subpage) = (cdb.byte(2) & 0x3f, cdb.byte(3));
    let allocation_len = cdb.u16(7);
    Ok(match (page, subpage) {
        (provisioning::LOG_PAGE, 0) if unit.has_thresholds() => {
            Command::ProvisioningLog { allocation_len }
        }
        _ => Command::LogSense {
            page,
            subpage,
            allocation_len,
        },
    })
}

pub(crate) fn start_stop(cdb: Cdb<'_>, unit: &Unit) -> Decoded {
    let start = cdb.bit(4, 0);
    let flush = !start && !cdb.bit(4, 2) && unit.volatile_cache;
    Ok(Command::StartStop { flush, start })
}

pub(crate) fn send_diagnostic(_: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(Command::SendDiagnostic)
}

pub(crate) fn prevent_allow(_: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(Command::PreventAllow)
}

pub(crate) fn report_supported_operation_codes(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(Command::ReportSupportedOperationCodes {
        options: cdb.byte(2) & 0x07,
        operation_code: cdb.byte(3),
        service_action: cdb.u16(4),
        timeouts: cdb.bit(2, 7),
        allocation_len: cdb.u32(6),
    })
}

/// Less than four bytes are refused (SPC-4).
pub(crate) fn report_supported_task_management_functions(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    let allocation_len = cdb.u32(6);
    if allocation_len < 4 {
        return Err(Sense::in_cdb(6, None));
    }
    Ok(Command::ReportSupportedTaskManagementFunctions {
        extended: cdb.bit(2, 7),
        allocation_len,
    })
}

/// PARAMETER DATA FORMAT 000b and 001b (SPC-4).
pub(crate) fn report_target_port_groups(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    let extended = match cdb.byte(1) >> 5 {
        0b000 => false,
        0b001 => true,
        _ => return Err(Sense::in_cdb(1, Some(7))),
    };
    Ok(Command::ReportTargetPortGroups {
        extended,
        allocation_len: cdb.u32(6),
    })
}

pub(crate) fn set_target_port_groups(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(Command::SetTargetPortGroups {
        list_len: cdb.u32(6),
    })
}

pub(crate) fn persistent_reserve_in(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(Command::PersistentReserveIn {
        action: cdb.service_action(),
        allocation_len: cdb.u16(7),
    })
}

pub(crate) fn persistent_reserve_out(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(Command::PersistentReserveOut {
        action: cdb.service_action(),
        scope: cdb.byte(2) >> 4,
        kind: cdb.byte(2) & 0x0f,
        list_len: cdb.u32(5),
    })
}

pub(crate) fn reserve(_: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(Command::Reserve)
}

pub(crate) fn release(_: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(Command::Release)
}

pub(crate) fn extended_copy(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(Command::ExtendedCopy {
        list_len: cdb.u32(10),
    })
}

pub(crate) fn receive_copy_results(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(Command::ReceiveCopyResults {
        action: cdb.service_action(),
        list_id: cdb.byte(2),
        allocation_len: cdb.u32(10),
    })
}

pub(crate) fn populate_token(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(Command::PopulateToken {
        list_id: cdb.u32(6),
        list_len: cdb.u32(10),
    })
}

pub(crate) fn write_using_token(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(Command::WriteUsingToken {
        list_id: cdb.u32(6),
        list_len: cdb.u32(10),
    })
}

pub(crate) fn receive_rod_token_information(cdb: Cdb<'_>, _: &Unit) -> Decoded {
    Ok(Command::ReceiveRodTokenInformation {
        list_id: cdb.u32(2),
        allocation_len: cdb.u32(10),
    })
}
