//! Commands that a logical unit answers by itself.

use wire::scsi::SenseBytes;
use wire::scsi::{ReadCapacity10, ReadCapacity16};
use zerocopy::IntoBytes;

use crate::cdb::cut;
use crate::command::Command;
use crate::nexus::Nexus;
use crate::sense::Sense;
use crate::unit::{Addressed, TargetView, Unit};
use crate::{groups, inquiry, log, lun, mode, opcodes};

/// Appends the data that answers a command, cut to its ALLOCATION LENGTH: of
/// every command that transfers no logical blocks and changes nothing. Those that
/// have no data at all are answered with none.
///
/// # Panics
///
/// For the commands that the volume, the reservations or parameter lists are
/// needed for: they are not for this function.
pub fn respond(
    command: &Command,
    to: Addressed<'_>,
    nexus: &mut Nexus,
    target: &TargetView,
    out: &mut Vec<u8>,
) -> Result<(), Sense> {
    let start = out.len();
    match *command {
        Command::TestUnitReady => match to {
            Addressed::Nothing => return Err(Sense::no_unit()),
            Addressed::Unit(_) | Addressed::ReportLuns => {}
        },
        Command::StartStop { .. } | Command::SendDiagnostic | Command::PreventAllow => {}
        Command::RequestSense { descriptor, .. } => request_sense(to, nexus, descriptor, out),
        Command::Inquiry { page, .. } => inquiry::answer(page, to, target, out)?,
        Command::ReportLuns { select, .. } => report_luns(select, nexus, target, out)?,
        Command::ReadCapacity10 => read_capacity_10(to.unit()?, out),
        Command::ReadCapacity16 { .. } => read_capacity_16(to.unit()?, out),
        Command::ReadDefectData { long, lists, .. } => read_defect_data(long, lists, out),
        Command::ModeSense(command) => mode::sense(&command, to.unit()?, out)?,
        Command::LogSense { page, subpage, .. } => log::sense(page, subpage, to.unit()?, out)?,
        Command::ReportSupportedOperationCodes { .. } => {
            opcodes::operation_codes(command, to.unit()?, out)?;
        }
        Command::ReportSupportedTaskManagementFunctions { extended, .. } => {
            opcodes::task_management_functions(extended, out);
        }
        Command::ReportTargetPortGroups { extended, .. } => {
            groups::report(to.unit()?, extended, out);
        }
        Command::Io(_)
        | Command::Unmap { .. }
        | Command::CryptographicErase
        | Command::GetLbaStatus { .. }
        | Command::ProvisioningLog { .. }
        | Command::ModeSelect(_)
        | Command::SetTargetPortGroups { .. }
        | Command::PersistentReserveIn { .. }
        | Command::PersistentReserveOut { .. }
        | Command::Reserve
        | Command::Release
        | Command::ExtendedCopy { .. }
        | Command::PopulateToken { .. }
        | Command::WriteUsingToken { .. }
        | Command::ReceiveRodTokenInformation { .. }
        | Command::ReceiveCopyResults { .. } => {
            unreachable!("a unit alone cannot answer {command:?}")
        }
    }
    cut(out, start, command.data_in_len_max());
    Ok(())
}

/// The unit attention that would be reported next is reported and over; there is
/// nothing else to tell (SPC-4).
fn request_sense(to: Addressed<'_>, nexus: &mut Nexus, descriptor: bool, out: &mut Vec<u8>) {
    let sense = match to {
        Addressed::Nothing => Sense::no_unit(),
        Addressed::Unit(_) | Addressed::ReportLuns => nexus.take().unwrap_or(Sense::new(0, 0)),
    };
    let mut bytes = SenseBytes::EMPTY;
    sense.encode(descriptor, &mut bytes);
    out.extend_from_slice(bytes.as_slice());
}

/// SELECT REPORT 00h: logical units, 01h: well known ones, 02h: all (SPC-4).
/// It clears the unit attention of changed logical units.
fn report_luns(
    select: u8,
    nexus: &mut Nexus,
    target: &TargetView,
    out: &mut Vec<u8>,
) -> Result<(), Sense> {
    if select > 0x02 {
        return Err(Sense::in_cdb(2, None));
    }
    nexus.clear(crate::Attention::LUNS_CHANGED);
    let units = target.luns.iter().filter(|_| select != 0x01);
    let well_known = (select != 0x00).then_some(lun::REPORT_LUNS);
    let fields = units
        .map(|number| lun::Lun::field(*number))
        .chain(well_known);
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    fields.for_each(|field| out.extend_from_slice(&field.to_be_bytes()));
    let len = (out.len() - start - 8) as u32;
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
    Ok(())
}

fn read_capacity_10(unit: &Unit, out: &mut Vec<u8>) {
    let last_lba = u32::try_from(unit.block_count - 1).unwrap_or(u32::MAX);
    let data = ReadCapacity10 {
        last_lba: last_lba.into(),
        block_bytes: unit.block_bytes.into(),
    };
    out.extend_from_slice(data.as_bytes());
}

fn read_capacity_16(unit: &Unit, out: &mut Vec<u8>) {
    // LBPME and LBPRZ.
    let provisioning: u16 = if unit.thin { 0xc000 } else { 0 };
    let data = ReadCapacity16 {
        last_lba: (unit.block_count - 1).into(),
        block_bytes: unit.block_bytes.into(),
        protection: 0,
        exponents: unit.physical_exponent,
        provisioning: provisioning.into(),
        reserved16: [0; 16],
    };
    out.extend_from_slice(data.as_bytes());
}

/// Empty lists, in whichever format.
fn read_defect_data(long: bool, lists: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(if long { &[0; 8] } else { &[0; 4] });
    let flags = out.len() - if long { 7 } else { 3 };
    out[flags] = lists;
}

#[cfg(test)]
mod tests;
