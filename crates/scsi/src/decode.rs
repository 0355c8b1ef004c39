//! From a CDB to a command.

use wire::scsi::{asc, opcode};

use crate::cdb::Cdb;
use crate::command::Command;
use crate::primary::without_unit;
use crate::sense::Sense;
use crate::table::{CommandRow, rows};
use crate::unit::Unit;

/// Reads a CDB for a logical unit; what is shorter than 16 bytes is padded, and
/// the padding is not looked at.
#[inline]
pub fn decode(cdb: &[u8; 16], unit: &Unit) -> Result<Command, Sense> {
    let row = find(cdb, unit)?;
    let wrong = u128::from_be_bytes(*cdb) & row.reserved;
    if wrong != 0 {
        return Err(reserved(wrong));
    }
    if !unit.state.lets_pass(row.when) {
        return Err(unit.state.refusal());
    }
    if row.writes && unit.is_write_protected() {
        return Err(write_protected(unit));
    }
    (row.decode)(Cdb(cdb), unit)
}

/// Reads a CDB for a LUN that has no logical unit (SPC-4:
/// only INQUIRY, REPORT LUNS and REQUEST SENSE are answered) or for the well
/// known logical unit of REPORT LUNS (SPC-4), which has TEST UNIT
/// READY besides.
pub fn decode_elsewhere(cdb: &[u8; 16], is_well_known: bool) -> Result<Command, Sense> {
    let no_command = match is_well_known {
        true => Sense::illegal(asc::INVALID_COMMAND_OPERATION_CODE),
        false => Sense::no_unit(),
    };
    let is_answered = match cdb[0] {
        opcode::INQUIRY | opcode::REPORT_LUNS | opcode::REQUEST_SENSE => true,
        opcode::TEST_UNIT_READY => is_well_known,
        _ => false,
    };
    let row = rows(cdb[0]).first().filter(|_| is_answered);
    let row = row.ok_or(no_command)?;
    let wrong = u128::from_be_bytes(*cdb) & row.reserved;
    if wrong != 0 {
        return Err(reserved(wrong));
    }
    without_unit(Cdb(cdb))
}

/// Its row of the table.
#[inline]
fn find(cdb: &[u8; 16], unit: &Unit) -> Result<&'static CommandRow, Sense> {
    let rows = rows(cdb[0]);
    let row = match rows {
        [row] if row.action.is_none() => row,
        _ => by_action(rows, cdb, unit)?,
    };
    if !unit.offers(row.needs) {
        return Err(unknown());
    }
    Ok(row)
}

/// An unknown service action is a wrong field, not an unknown operation code
/// (SPC-4, section 4.3.4.2).
fn by_action(
    rows: &'static [CommandRow],
    cdb: &[u8; 16],
    unit: &Unit,
) -> Result<&'static CommandRow, Sense> {
    let mut offered = rows.iter().filter(|row| unit.offers(row.needs)).peekable();
    if offered.peek().is_none() {
        return Err(unknown());
    }
    let action = Some(Cdb(cdb).service_action());
    offered
        .find(|row| row.action == action)
        .ok_or(Sense::in_cdb(1, Some(4)))
}

#[cold]
fn unknown() -> Sense {
    Sense::illegal(asc::INVALID_COMMAND_OPERATION_CODE)
}

/// Names the first bit that should be zero.
#[cold]
fn reserved(wrong: u128) -> Sense {
    let at = wrong.leading_zeros() as u16;
    Sense::in_cdb(at / 8, Some(7 - (at % 8) as u8))
}

/// Of the medium, or by SWP of the Control mode page.
#[cold]
fn write_protected(unit: &Unit) -> Sense {
    let mut sense = Sense::write_protected();
    if !unit.read_only {
        sense.code = asc::LOGICAL_UNIT_SOFTWARE_WRITE_PROTECTED;
    }
    sense
}

#[cfg(test)]
mod tests;
