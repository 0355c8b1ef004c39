//! The commands: one row for each, which decoding, REPORT SUPPORTED OPERATION
//! CODES and the tests go by.

use wire::scsi::opcode as op;
use wire::scsi::opcode::{
    maintenance_in, maintenance_out, persistent_reserve_in as prin,
    persistent_reserve_out as prout, receive_copy_results as rcr, sanitize,
    service_action_in as sai, third_party_copy_out as tpc,
};

use crate::cdb::Cdb;
use crate::command::Command;
use crate::sense::Sense;
use crate::unit::{AccessState, Unit};
use crate::{block, primary};

/// Which asymmetric access states let a command pass (SPC-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// All.
    Always,
    /// All but unavailable, offline and transitioning.
    Standby,
    /// Where the medium can be accessed.
    Active,
}

/// Units that a command needs, beyond being a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Any.
    Unit,
    /// One that is thin provisioned.
    Thin,
    /// One that promises atomic writes of more than a block.
    Atomic,
    /// One of which all data is encrypted.
    Encrypted,
}

/// One command.
pub(crate) struct CommandRow {
    pub name: &'static str,
    /// The standard that describes it under that name.
    pub standard: &'static str,
    pub opcode: u8,
    /// The service action, in bits 4:0 of byte 1.
    pub action: Option<u8>,
    /// Bytes of the CDB.
    pub len: u8,
    /// CDB USAGE DATA without operation code and service action: the bits that
    /// are looked at. All others must be zero.
    pub usage: [u8; 16],
    pub when: When,
    pub needs: Needs,
    /// It changes the medium: not where that is write protected.
    pub writes: bool,
    /// RECOMMENDED COMMAND TIMEOUT in seconds.
    pub timeout_s: u32,
    pub decode: fn(Cdb<'_>, &Unit) -> Result<Command, Sense>,
    /// Bits that must be zero, as one number; follows from the others.
    pub reserved: u128,
}

impl AccessState {
    #[inline]
    pub(crate) fn lets_pass(self, when: When) -> bool {
        match self {
            AccessState::ActiveOptimized | AccessState::ActiveNonOptimized => true,
            AccessState::Standby => when != When::Active,
            AccessState::Unavailable | AccessState::Offline | AccessState::Transitioning => {
                when == When::Always
            }
        }
    }
}

impl Unit {
    #[inline]
    pub(crate) fn offers(&self, needs: Needs) -> bool {
        match needs {
            Needs::Unit => true,
            Needs::Thin => self.thin,
            Needs::Atomic => self.atomic_blocks_max() > 0,
            Needs::Encrypted => self.is_encrypted,
        }
    }
}

type Decode = fn(Cdb<'_>, &Unit) -> Result<Command, Sense>;

const fn row<const N: usize>(
    name: &'static str,
    opcode: u8,
    action: Option<u8>,
    usage: [u8; N],
    when: When,
    decode: Decode,
) -> CommandRow {
    // The operation code's byte is not part of what is given.
    let mut all = [0; 16];
    let mut at = 0;
    while at < N {
        all[at + 1] = usage[at];
        at += 1;
    }
    let mut looked_at = [0xff; 16];
    at = 1;
    while at <= N {
        looked_at[at] = all[at];
        at += 1;
    }
    if action.is_some() {
        looked_at[1] |= 0x1f;
    }
    CommandRow {
        name,
        standard: "SPC-4",
        opcode,
        action,
        len: N as u8 + 1,
        usage: all,
        when,
        needs: Needs::Unit,
        writes: false,
        timeout_s: 30,
        decode,
        reserved: !u128::from_be_bytes(looked_at),
    }
}

impl CommandRow {
    const fn writes(mut self) -> CommandRow {
        self.writes = true;
        self
    }

    const fn needs(mut self, needs: Needs) -> CommandRow {
        self.needs = needs;
        self
    }

    const fn of(mut self, standard: &'static str) -> CommandRow {
        self.standard = standard;
        self
    }

    const fn timeout_s(mut self, timeout_s: u32) -> CommandRow {
        self.timeout_s = timeout_s;
        self
    }
}

use When::{Active, Always, Standby};

/// A whole byte that is looked at.
const A: u8 = 0xff;
/// DPO and FUA.
const DF: u8 = 0x18;
/// GROUP NUMBER.
const G: u8 = 0x1f;

/// By operation code, then by service action.
#[rustfmt::skip]
pub(crate) static ROWS: &[CommandRow] = &[
    row("TEST UNIT READY", op::TEST_UNIT_READY, None, [0, 0, 0, 0, 0], Active, primary::any_unit),
    row("REQUEST SENSE", op::REQUEST_SENSE, None, [0x01, 0, 0, A, 0], Always, primary::any_unit),
    row("READ(6)", op::READ_6, None, [0x1f, A, A, A, 0], Active, block::read_6).of("SBC-3"),
    row("WRITE(6)", op::WRITE_6, None, [0x1f, A, A, A, 0], Active, block::write_6).writes().of("SBC-3"),
    row("INQUIRY", op::INQUIRY, None, [0x01, A, A, A, 0], Always, primary::any_unit),
    row("MODE SELECT(6)", op::MODE_SELECT_6, None, [0x10, 0, 0, A, 0], Standby, primary::mode_select_6),
    row("RESERVE(6)", op::RESERVE_6, None, [0, 0, 0, 0, 0], Active, primary::reserve).of("SPC-2"),
    row("RELEASE(6)", op::RELEASE_6, None, [0, 0, 0, 0, 0], Active, primary::release).of("SPC-2"),
    row("MODE SENSE(6)", op::MODE_SENSE_6, None, [0x08, A, A, A, 0], Standby, primary::mode_sense_6),
    row("START STOP UNIT", op::START_STOP_UNIT, None, [0x01, 0, 0, 0x05, 0], Active, primary::start_stop).of("SBC-3"),
    row("SEND DIAGNOSTIC", op::SEND_DIAGNOSTIC, None, [0x04, 0, 0, 0, 0], Standby, primary::send_diagnostic),
    row("PREVENT ALLOW MEDIUM REMOVAL", op::PREVENT_ALLOW_MEDIUM_REMOVAL, None, [0, 0, 0, 0x03, 0], Active, primary::prevent_allow).of("SBC-3"),
    row("READ CAPACITY(10)", op::READ_CAPACITY_10, None, [0, 0, 0, 0, 0, 0, 0, 0, 0], Standby, block::read_capacity_10).of("SBC-3"),
    row("READ(10)", op::READ_10, None, [DF, A, A, A, A, G, A, A, 0], Active, block::read_10).of("SBC-3"),
    row("WRITE(10)", op::WRITE_10, None, [DF, A, A, A, A, G, A, A, 0], Active, block::write_10).writes().of("SBC-3"),
    row("WRITE AND VERIFY(10)", op::WRITE_AND_VERIFY_10, None, [0x16, A, A, A, A, G, A, A, 0], Active, block::write_and_verify_10).writes().of("SBC-3"),
    row("VERIFY(10)", op::VERIFY_10, None, [0x16, A, A, A, A, G, A, A, 0], Active, block::verify_10).of("SBC-3"),
    row("PRE-FETCH(10)", op::PRE_FETCH_10, None, [0x02, A, A, A, A, G, A, A, 0], Active, block::pre_fetch_10).of("SBC-3"),
    row("SYNCHRONIZE CACHE(10)", op::SYNCHRONIZE_CACHE_10, None, [0x06, A, A, A, A, G, A, A, 0], Active, block::synchronize_cache_10).timeout_s(60).of("SBC-3"),
    row("READ DEFECT DATA(10)", op::READ_DEFECT_DATA_10, None, [0, 0x1f, 0, 0, 0, 0, A, A, 0], Active, block::read_defect_data_10).of("SBC-3"),
    row("WRITE SAME(10)", op::WRITE_SAME_10, None, [0x08, A, A, A, A, G, A, A, 0], Active, block::write_same_10).writes().timeout_s(60).of("SBC-3"),
    row("UNMAP", op::UNMAP, None, [0, 0, 0, 0, 0, G, A, A, 0], Active, block::unmap).writes().needs(Needs::Thin).timeout_s(60).of("SBC-3"),
    row("SANITIZE, CRYPTOGRAPHIC ERASE", op::SANITIZE, Some(sanitize::CRYPTOGRAPHIC_ERASE), [0xe0, 0, 0, 0, 0, 0, A, A, 0], Active, block::cryptographic_erase).writes().needs(Needs::Encrypted).timeout_s(60).of("SBC-4"),
    row("LOG SENSE", op::LOG_SENSE, None, [0, A, A, 0, 0, 0, A, A, 0], Standby, primary::log_sense),
    row("MODE SELECT(10)", op::MODE_SELECT_10, None, [0x10, 0, 0, 0, 0, 0, A, A, 0], Standby, primary::mode_select_10),
    row("RESERVE(10)", op::RESERVE_10, None, [0, 0, 0, 0, 0, 0, 0, 0, 0], Active, primary::reserve).of("SPC-2"),
    row("RELEASE(10)", op::RELEASE_10, None, [0, 0, 0, 0, 0, 0, 0, 0, 0], Active, primary::release).of("SPC-2"),
    row("MODE SENSE(10)", op::MODE_SENSE_10, None, [0x18, A, A, 0, 0, 0, A, A, 0], Standby, primary::mode_sense_10),
    row("PERSISTENT RESERVE IN, READ KEYS", op::PERSISTENT_RESERVE_IN, Some(prin::READ_KEYS), [0, 0, 0, 0, 0, 0, A, A, 0], Standby, primary::persistent_reserve_in),
    row("PERSISTENT RESERVE IN, READ RESERVATION", op::PERSISTENT_RESERVE_IN, Some(prin::READ_RESERVATION), [0, 0, 0, 0, 0, 0, A, A, 0], Standby, primary::persistent_reserve_in),
    row("PERSISTENT RESERVE IN, REPORT CAPABILITIES", op::PERSISTENT_RESERVE_IN, Some(prin::REPORT_CAPABILITIES), [0, 0, 0, 0, 0, 0, A, A, 0], Standby, primary::persistent_reserve_in),
    row("PERSISTENT RESERVE IN, READ FULL STATUS", op::PERSISTENT_RESERVE_IN, Some(prin::READ_FULL_STATUS), [0, 0, 0, 0, 0, 0, A, A, 0], Standby, primary::persistent_reserve_in),
    row("PERSISTENT RESERVE OUT, REGISTER", op::PERSISTENT_RESERVE_OUT, Some(prout::REGISTER), [0, A, 0, 0, A, A, A, A, 0], Standby, primary::persistent_reserve_out),
    row("PERSISTENT RESERVE OUT, RESERVE", op::PERSISTENT_RESERVE_OUT, Some(prout::RESERVE), [0, A, 0, 0, A, A, A, A, 0], Standby, primary::persistent_reserve_out),
    row("PERSISTENT RESERVE OUT, RELEASE", op::PERSISTENT_RESERVE_OUT, Some(prout::RELEASE), [0, A, 0, 0, A, A, A, A, 0], Standby, primary::persistent_reserve_out),
    row("PERSISTENT RESERVE OUT, CLEAR", op::PERSISTENT_RESERVE_OUT, Some(prout::CLEAR), [0, A, 0, 0, A, A, A, A, 0], Standby, primary::persistent_reserve_out),
    row("PERSISTENT RESERVE OUT, PREEMPT", op::PERSISTENT_RESERVE_OUT, Some(prout::PREEMPT), [0, A, 0, 0, A, A, A, A, 0], Standby, primary::persistent_reserve_out),
    row("PERSISTENT RESERVE OUT, PREEMPT AND ABORT", op::PERSISTENT_RESERVE_OUT, Some(prout::PREEMPT_AND_ABORT), [0, A, 0, 0, A, A, A, A, 0], Standby, primary::persistent_reserve_out),
    row("PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY", op::PERSISTENT_RESERVE_OUT, Some(prout::REGISTER_AND_IGNORE_EXISTING_KEY), [0, A, 0, 0, A, A, A, A, 0], Standby, primary::persistent_reserve_out),
    row("PERSISTENT RESERVE OUT, REGISTER AND MOVE", op::PERSISTENT_RESERVE_OUT, Some(prout::REGISTER_AND_MOVE), [0, A, 0, 0, A, A, A, A, 0], Standby, primary::persistent_reserve_out),
    row("EXTENDED COPY(LID1)", op::EXTENDED_COPY, Some(0), [0, 0, 0, 0, 0, 0, 0, 0, 0, A, A, A, A, 0, 0], Active, primary::extended_copy).timeout_s(120),
    row("POPULATE TOKEN", op::EXTENDED_COPY, Some(tpc::POPULATE_TOKEN), [0, 0, 0, 0, 0, A, A, A, A, A, A, A, A, G, 0], Active, primary::populate_token).of("SBC-3"),
    row("WRITE USING TOKEN", op::EXTENDED_COPY, Some(tpc::WRITE_USING_TOKEN), [0, 0, 0, 0, 0, A, A, A, A, A, A, A, A, G, 0], Active, primary::write_using_token).writes().timeout_s(120).of("SBC-3"),
    row("RECEIVE COPY STATUS(LID1)", op::RECEIVE_COPY_RESULTS, Some(rcr::COPY_STATUS), [0, A, 0, 0, 0, 0, 0, 0, 0, A, A, A, A, 0, 0], Active, primary::receive_copy_results),
    row("RECEIVE COPY DATA(LID1)", op::RECEIVE_COPY_RESULTS, Some(rcr::RECEIVE_DATA), [0, A, 0, 0, 0, 0, 0, 0, 0, A, A, A, A, 0, 0], Active, primary::receive_copy_results),
    row("RECEIVE COPY OPERATING PARAMETERS", op::RECEIVE_COPY_RESULTS, Some(rcr::OPERATING_PARAMETERS), [0, A, 0, 0, 0, 0, 0, 0, 0, A, A, A, A, 0, 0], Active, primary::receive_copy_results),
    row("RECEIVE COPY FAILURE DETAILS(LID1)", op::RECEIVE_COPY_RESULTS, Some(rcr::FAILED_SEGMENT_DETAILS), [0, A, 0, 0, 0, 0, 0, 0, 0, A, A, A, A, 0, 0], Active, primary::receive_copy_results),
    row("RECEIVE ROD TOKEN INFORMATION", op::RECEIVE_COPY_RESULTS, Some(rcr::ROD_TOKEN_INFORMATION), [0, A, A, A, A, 0, 0, 0, 0, A, A, A, A, 0, 0], Active, primary::receive_rod_token_information),
    row("READ(16)", op::READ_16, None, [DF, A, A, A, A, A, A, A, A, A, A, A, A, G, 0], Active, block::read_16).of("SBC-3"),
    row("COMPARE AND WRITE", op::COMPARE_AND_WRITE, None, [DF, A, A, A, A, A, A, A, A, 0, 0, 0, A, G, 0], Active, block::compare_and_write).writes().of("SBC-3"),
    row("WRITE(16)", op::WRITE_16, None, [DF, A, A, A, A, A, A, A, A, A, A, A, A, G, 0], Active, block::write_16).writes().of("SBC-3"),
    row("ORWRITE(16)", op::ORWRITE_16, None, [DF, A, A, A, A, A, A, A, A, A, A, A, A, G, 0], Active, block::orwrite_16).writes().of("SBC-3"),
    row("WRITE AND VERIFY(16)", op::WRITE_AND_VERIFY_16, None, [0x16, A, A, A, A, A, A, A, A, A, A, A, A, G, 0], Active, block::write_and_verify_16).writes().of("SBC-3"),
    row("VERIFY(16)", op::VERIFY_16, None, [0x16, A, A, A, A, A, A, A, A, A, A, A, A, G, 0], Active, block::verify_16).of("SBC-3"),
    row("PRE-FETCH(16)", op::PRE_FETCH_16, None, [0x02, A, A, A, A, A, A, A, A, A, A, A, A, G, 0], Active, block::pre_fetch_16).of("SBC-3"),
    row("SYNCHRONIZE CACHE(16)", op::SYNCHRONIZE_CACHE_16, None, [0x06, A, A, A, A, A, A, A, A, A, A, A, A, G, 0], Active, block::synchronize_cache_16).timeout_s(60).of("SBC-3"),
    row("WRITE SAME(16)", op::WRITE_SAME_16, None, [0x09, A, A, A, A, A, A, A, A, A, A, A, A, G, 0], Active, block::write_same_16).writes().timeout_s(60).of("SBC-3"),
    row("WRITE ATOMIC(16)", op::WRITE_ATOMIC_16, None, [DF, A, A, A, A, A, A, A, A, 0, 0, A, A, G, 0], Active, block::write_atomic_16).writes().needs(Needs::Atomic).of("SBC-4"),
    row("READ CAPACITY(16)", op::SERVICE_ACTION_IN_16, Some(sai::READ_CAPACITY_16), [0, 0, 0, 0, 0, 0, 0, 0, 0, A, A, A, A, 0, 0], Standby, block::read_capacity_16).of("SBC-3"),
    row("GET LBA STATUS", op::SERVICE_ACTION_IN_16, Some(sai::GET_LBA_STATUS), [0, A, A, A, A, A, A, A, A, A, A, A, A, 0, 0], Active, block::get_lba_status).of("SBC-3"),
    row("REPORT LUNS", op::REPORT_LUNS, None, [0, A, 0, 0, 0, A, A, A, A, 0, 0], Always, primary::any_unit),
    row("REPORT TARGET PORT GROUPS", op::MAINTENANCE_IN, Some(maintenance_in::REPORT_TARGET_PORT_GROUPS), [0xe0, 0, 0, 0, 0, A, A, A, A, 0, 0], Always, primary::report_target_port_groups),
    row("REPORT SUPPORTED OPERATION CODES", op::MAINTENANCE_IN, Some(maintenance_in::REPORT_SUPPORTED_OPERATION_CODES), [0, 0x87, A, A, A, A, A, A, A, 0, 0], Standby, primary::report_supported_operation_codes),
    row("REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS", op::MAINTENANCE_IN, Some(maintenance_in::REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS), [0, 0x80, 0, 0, 0, A, A, A, A, 0, 0], Standby, primary::report_supported_task_management_functions),
    row("SET TARGET PORT GROUPS", op::MAINTENANCE_OUT, Some(maintenance_out::SET_TARGET_PORT_GROUPS), [0, 0, 0, 0, 0, A, A, A, A, 0, 0], Always, primary::set_target_port_groups),
    row("READ(12)", op::READ_12, None, [DF, A, A, A, A, A, A, A, A, G, 0], Active, block::read_12).of("SBC-3"),
    row("WRITE(12)", op::WRITE_12, None, [DF, A, A, A, A, A, A, A, A, G, 0], Active, block::write_12).writes().of("SBC-3"),
    row("WRITE AND VERIFY(12)", op::WRITE_AND_VERIFY_12, None, [0x16, A, A, A, A, A, A, A, A, G, 0], Active, block::write_and_verify_12).writes().of("SBC-3"),
    row("VERIFY(12)", op::VERIFY_12, None, [0x16, A, A, A, A, A, A, A, A, G, 0], Active, block::verify_12).of("SBC-3"),
    row("READ DEFECT DATA(12)", op::READ_DEFECT_DATA_12, None, [0x1f, A, A, A, A, A, A, A, A, 0, 0], Active, block::read_defect_data_12).of("SBC-3"),
];

/// For each operation code its first row and how many it has.
static INDEX: [(u8, u8); 256] = index();

const fn index() -> [(u8, u8); 256] {
    let mut index = [(0, 0); 256];
    let mut at = 0;
    while at < ROWS.len() {
        let opcode = ROWS[at].opcode as usize;
        if index[opcode].1 == 0 {
            index[opcode].0 = at as u8;
        }
        index[opcode].1 += 1;
        at += 1;
    }
    index
}

/// The rows of an operation code: none if it is not known, several if it has
/// service actions.
#[inline]
pub(crate) fn rows(opcode: u8) -> &'static [CommandRow] {
    let (first, count) = INDEX[usize::from(opcode)];
    &ROWS[usize::from(first)..usize::from(first) + usize::from(count)]
}

/// What the standard calls the command of a CDB, for logs; `None` if it is not
/// one that weft knows.
pub fn name(cdb: &[u8; 16]) -> Option<&'static str> {
    let action = Some(Cdb(cdb).service_action());
    let mut rows = rows(cdb[0]).iter();
    let row = rows.find(|row| row.action.is_none() || row.action == action)?;
    Some(row.name)
}
