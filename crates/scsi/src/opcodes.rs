//! REPORT SUPPORTED OPERATION CODES and REPORT SUPPORTED TASK MANAGEMENT
//! FUNCTIONS (SPC-4).

use crate::command::Command;
use crate::sense::Sense;
use crate::table::{CommandRow, ROWS, rows};
use crate::unit::Unit;

/// Bytes of a command timeouts descriptor behind its length.
const TIMEOUTS_BYTES: u16 = 10;

/// SUPPORT 001b: not supported.
const NOT_SUPPORTED: u8 = 0x01;
/// SUPPORT 011b: as the standard has it.
const SUPPORTED: u8 = 0x03;

/// Task management functions and their bits.
pub(crate) const TASK_MANAGEMENT: [(&str, u8); 5] = [
    ("ABORT TASK", 0x80),
    ("ABORT TASK SET", 0x40),
    ("CLEAR TASK SET", 0x10),
    ("LOGICAL UNIT RESET", 0x08),
    ("TARGET RESET", 0x02),
];

pub(crate) fn operation_codes(
    command: &Command,
    unit: &Unit,
    out: &mut Vec<u8>,
) -> Result<(), Sense> {
    let Command::ReportSupportedOperationCodes {
        options,
        operation_code,
        service_action,
        timeouts,
        ..
    } = *command
    else {
        unreachable!("another command")
    };
    let has_actions = rows(operation_code).iter().any(|row| row.action.is_some());
    let is_known = !rows(operation_code).is_empty();
    let action = match options {
        0b000 => {
            all(unit, timeouts, out);
            return Ok(());
        }
        // One that has no service actions.
        0b001 if !has_actions => None,
        // One that has.
        0b010 if has_actions || !is_known => Some(service_action),
        // Either; without service actions the field must be zero.
        0b011 if has_actions || service_action != 0 => Some(service_action),
        0b011 => None,
        0b001 | 0b010 => return Err(Sense::in_cdb(3, None)),
        _ => return Err(Sense::in_cdb(2, Some(2))),
    };
    let found = rows(operation_code)
        .iter()
        .find(|row| row.action.map(u16::from) == action && unit.offers(row.needs));
    one(found, timeouts, out);
    Ok(())
}

/// The all_commands format.
fn all(unit: &Unit, timeouts: bool, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    for row in ROWS.iter().filter(|row| unit.offers(row.needs)) {
        let action = row.action.unwrap_or(0);
        // CTDP and SERVACTV.
        let flags = u8::from(timeouts) << 1 | u8::from(row.action.is_some());
        out.extend([row.opcode, 0, 0, action, 0, flags, 0, row.len]);
        if timeouts {
            row.timeouts(out);
        }
    }
    let len = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
}

/// The one_command format.
fn one(row: Option<&CommandRow>, timeouts: bool, out: &mut Vec<u8>) {
    let Some(row) = row else {
        out.extend([0, NOT_SUPPORTED, 0, 0]);
        return;
    };
    let ctdp = u8::from(timeouts) << 7;
    out.extend([0, ctdp | SUPPORTED, 0, row.len]);
    let mut usage = row.usage;
    usage[0] = row.opcode;
    usage[1] |= row.action.unwrap_or(0);
    out.extend_from_slice(&usage[..usize::from(row.len)]);
    if timeouts {
        row.timeouts(out);
    }
}

impl CommandRow {
    /// NOMINAL COMMAND PROCESSING TIMEOUT is not told.
    fn timeouts(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&TIMEOUTS_BYTES.to_be_bytes());
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&self.timeout_s.to_be_bytes());
    }
}

/// The extended format says besides that there is no timeout to choose.
pub(crate) fn task_management_functions(extended: bool, out: &mut Vec<u8>) {
    let mut data = [0; 16];
    data[0] = TASK_MANAGEMENT.iter().map(|(_, bit)| bit).sum();
    data[3] = if extended { 12 } else { 0 };
    out.extend_from_slice(if extended { &data } else { &data[..4] });
}

#[cfg(test)]
mod tests;
