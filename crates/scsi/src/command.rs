//! Commands, typed: what a CDB asks for, after everything that can be wrong with
//! the CDB alone was refused.

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// TEST UNIT READY, which has no data.
    TestUnitReady,
    /// REQUEST SENSE.
    RequestSense {
        /// DESC: in descriptor format.
        descriptor: bool,
        /// ALLOCATION LENGTH.
        allocation_len: u8,
    },
    /// INQUIRY.
    Inquiry {
        /// The vital product data page, if EVPD is set.
        page: Option<u8>,
        /// ALLOCATION LENGTH.
        allocation_len: u16,
    },
    /// Everything that reads or writes logical blocks.
    Io(ScsiIo),
    /// UNMAP: the parameter list goes to [`crate::unmap::parse`].
    Unmap {
        /// PARAMETER LIST LENGTH.
        list_len: u16,
    },
    /// SANITIZE, CRYPTOGRAPHIC ERASE.
    CryptographicErase,
    /// GET LBA STATUS, answered with [`crate::unmap::lba_status`].
    GetLbaStatus {
        /// The first byte, in whole blocks; within the medium.
        offset: u64,
        /// ALLOCATION LENGTH.
        allocation_len: u32,
    },
    /// READ CAPACITY(10).
    ReadCapacity10,
    /// READ CAPACITY(16).
    ReadCapacity16 {
        /// ALLOCATION LENGTH.
        allocation_len: u32,
    },
    /// READ DEFECT DATA(10) and (12): there are no defects.
    ReadDefectData {
        /// The 12-byte command, whose header is longer.
        long: bool,
        /// REQ_PLIST, REQ_GLIST and DEFECT LIST FORMAT, as asked.
        lists: u8,
        /// ALLOCATION LENGTH.
        allocation_len: u32,
    },
    /// REPORT LUNS.
    ReportLuns {
        /// SELECT REPORT.
        select: u8,
        /// ALLOCATION LENGTH.
        allocation_len: u32,
    },
    /// MODE SENSE(6) and (10).
    ModeSense(ModeSense),
    /// MODE SELECT(6) and (10): the parameter list goes to
    /// [`crate::mode::select`].
    ModeSelect(ModeSelect),
    /// LOG SENSE.
    LogSense {
        /// PAGE CODE.
        page: u8,
        /// SUBPAGE CODE.
        subpage: u8,
        /// ALLOCATION LENGTH.
        allocation_len: u16,
    },
    /// LOG SENSE of the space below a thin unit: answered with
    /// [`crate::provisioning::log_page`].
    ProvisioningLog {
        /// ALLOCATION LENGTH.
        allocation_len: u16,
    },
    /// START STOP UNIT. There is nothing to stop, and no initiator may stop the
    /// unit for others: it stays ready.
    StartStop {
        /// Everything written must be durable before it ends: START and NO_FLUSH
        /// are clear.
        flush: bool,
        /// START.
        start: bool,
    },
    /// SEND DIAGNOSTIC, the default self-test, which passes.
    SendDiagnostic,
    /// PREVENT ALLOW MEDIUM REMOVAL: no medium can be removed.
    PreventAllow,
    /// REPORT SUPPORTED OPERATION CODES.
    ReportSupportedOperationCodes {
        /// REPORTING OPTIONS.
        options: u8,
        /// REQUESTED OPERATION CODE.
        operation_code: u8,
        /// REQUESTED SERVICE ACTION.
        service_action: u16,
        /// RCTD: with command timeouts descriptors.
        timeouts: bool,
        /// ALLOCATION LENGTH.
        allocation_len: u32,
    },
    /// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.
    ReportSupportedTaskManagementFunctions {
        /// REPD: in the extended format.
        extended: bool,
        /// ALLOCATION LENGTH.
        allocation_len: u32,
    },
    /// REPORT TARGET PORT GROUPS.
    ReportTargetPortGroups {
        /// PARAMETER DATA FORMAT 001b: with the extended header.
        extended: bool,
        /// ALLOCATION LENGTH.
        allocation_len: u32,
    },
    /// SET TARGET PORT GROUPS: the parameter list goes to
    /// [`crate::groups::parse_set`].
    SetTargetPortGroups {
        /// PARAMETER LIST LENGTH.
        list_len: u32,
    },
    /// PERSISTENT RESERVE IN.
    PersistentReserveIn {
        /// SERVICE ACTION, one of `opcode::persistent_reserve_in`.
        action: u8,
        /// ALLOCATION LENGTH.
        allocation_len: u16,
    },
    /// PERSISTENT RESERVE OUT.
    PersistentReserveOut {
        /// SERVICE ACTION, one of `opcode::persistent_reserve_out`.
        action: u8,
        /// SCOPE, as it stands.
        scope: u8,
        /// TYPE, as it stands.
        kind: u8,
        /// PARAMETER LIST LENGTH.
        list_len: u32,
    },
    /// RESERVE(6) and (10) of SPC-2.
    Reserve,
    /// RELEASE(6) and (10) of SPC-2.
    Release,
    /// EXTENDED COPY(LID1).
    ExtendedCopy {
        /// PARAMETER LIST LENGTH.
        list_len: u32,
    },
    /// RECEIVE COPY RESULTS, all service actions for LID1.
    ReceiveCopyResults {
        /// SERVICE ACTION, one of `opcode::receive_copy_results`.
        action: u8,
        /// LIST IDENTIFIER.
        list_id: u8,
        /// ALLOCATION LENGTH.
        allocation_len: u32,
    },
    /// POPULATE TOKEN: the parameter list goes to [`crate::token::Populate::parse`].
    PopulateToken {
        /// LIST IDENTIFIER.
        list_id: u32,
        /// PARAMETER LIST LENGTH.
        list_len: u32,
    },
    /// WRITE USING TOKEN: the parameter list goes to [`crate::token::WriteUsing::parse`].
    WriteUsingToken {
        /// LIST IDENTIFIER.
        list_id: u32,
        /// PARAMETER LIST LENGTH.
        list_len: u32,
    },
    /// RECEIVE ROD TOKEN INFORMATION.
    ReceiveRodTokenInformation {
        /// LIST IDENTIFIER.
        list_id: u32,
        /// ALLOCATION LENGTH.
        allocation_len: u32,
    },
}

/// A command on logical blocks. The range lies within the medium and, where data
/// is transferred, within the transfer limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiIo {
    /// What is done.
    pub kind: IoKind,
    /// First byte on the medium, in whole blocks.
    pub offset: u64,
    /// Bytes on the medium, in whole blocks. 0: nothing is done nor transferred,
    /// and the command ends with GOOD.
    pub len: u64,
    /// What is written must be durable before the command ends: FUA, or a write
    /// cache that was disabled.
    pub fua: bool,
}

/// What is done to logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// READ. With FUA what is read must be durable: synchronize first.
    Read,
    /// WRITE.
    Write,
    /// WRITE AND VERIFY: durable whatever FUA says, since it is verified on the
    /// medium.
    WriteAndVerify {
        /// BYTCHK 01b: byte by byte with what was sent.
        compare: bool,
    },
    /// VERIFY.
    Verify(Check),
    /// COMPARE AND WRITE: data of `2 * len`, what is compared first.
    CompareAndWrite,
    /// WRITE SAME: one block of data, or none.
    WriteSame {
        /// UNMAP: deallocate, if the block is all zeros.
        unmap: bool,
        /// NDOB: no data is sent, the block is all zeros.
        zeros: bool,
    },
    /// ORWRITE: what is there or what was sent, one step to every other command.
    OrWrite,
    /// WRITE ATOMIC.
    WriteAtomic,
    /// SYNCHRONIZE CACHE: `len` is what is asked for, to the end of the medium
    /// for 0 blocks.
    Flush {
        /// IMMED: the command may end before it is done.
        immediate: bool,
    },
    /// PRE-FETCH: nothing needs to be done.
    PreFetch,
}

/// BYTCHK of VERIFY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// 00b: that it can be read; no data is sent.
    Medium,
    /// 01b: against as much data.
    Data,
    /// 11b: every block against one block of data.
    SameBlock,
}

/// MODE SENSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSense {
    /// The 10-byte command, whose header is longer.
    pub long: bool,
    /// LLBAA: a long block descriptor may be sent.
    pub long_lba: bool,
    /// DBD: no block descriptor.
    pub no_block_descriptor: bool,
    /// PC: 0 current, 1 changeable, 2 default, 3 saved values.
    pub control: u8,
    /// PAGE CODE.
    pub page: u8,
    /// SUBPAGE CODE.
    pub subpage: u8,
    /// ALLOCATION LENGTH.
    pub allocation_len: u16,
}

/// MODE SELECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSelect {
    /// The 10-byte command, whose header is longer.
    pub long: bool,
    /// PARAMETER LIST LENGTH.
    pub list_len: u16,
}

/// What a command needs where another nexus has reserved the unit (the
/// tables of allowed commands in SPC-4, SBC-3 and SPC-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationAccess {
    /// Nothing: no reservation is in its way.
    Free,
    /// It passes persistent reservations, not RESERVE of SPC-2.
    Inspect,
    /// It conflicts with exclusive access, and with RESERVE.
    Read,
    /// It conflicts with write exclusive too.
    Write,
    /// PERSISTENT RESERVE IN and OUT: the rules of registrations decide, not the
    /// reservation; RESERVE is in its way.
    Registration,
    /// RESERVE and RELEASE of SPC-2: a registration is in their way, apart from
    /// the exceptions for compatible reservation handling in SPC-4.
    Legacy,
}

impl Command {
    /// Bytes that the initiator must send for it.
    #[inline]
    pub fn data_out_len(&self, block_bytes: u32) -> u64 {
        match *self {
            Command::Io(io) => io.data_out_len(block_bytes),
            Command::Unmap { list_len } => list_len.into(),
            Command::ModeSelect(ModeSelect { list_len, .. }) => list_len.into(),
            Command::SetTargetPortGroups { list_len }
            | Command::PersistentReserveOut { list_len, .. }
            | Command::PopulateToken { list_len, .. }
            | Command::WriteUsingToken { list_len, .. }
            | Command::ExtendedCopy { list_len } => list_len.into(),
            _ => 0,
        }
    }

    /// Bytes that it can send to the initiator at most.
    #[inline]
    pub fn data_in_len_max(&self) -> u64 {
        match *self {
            Command::Io(io) => match io.kind {
                IoKind::Read => io.len,
                _ => 0,
            },
            Command::RequestSense { allocation_len, .. } => allocation_len.into(),
            Command::Inquiry { allocation_len, .. }
            | Command::LogSense { allocation_len, .. }
            | Command::ProvisioningLog { allocation_len }
            | Command::PersistentReserveIn { allocation_len, .. }
            | Command::ModeSense(ModeSense { allocation_len, .. }) => allocation_len.into(),
            Command::ReadCapacity10 => 8,
            Command::GetLbaStatus { allocation_len, .. }
            | Command::ReadCapacity16 { allocation_len }
            | Command::ReadDefectData { allocation_len, .. }
            | Command::ReportLuns { allocation_len, .. }
            | Command::ReportSupportedOperationCodes { allocation_len, .. }
            | Command::ReportSupportedTaskManagementFunctions { allocation_len, .. }
            | Command::ReportTargetPortGroups { allocation_len, .. }
            | Command::ReceiveCopyResults { allocation_len, .. }
            | Command::ReceiveRodTokenInformation { allocation_len, .. } => allocation_len.into(),
            _ => 0,
        }
    }

    /// What it needs where another nexus has reserved the unit.
    #[inline]
    pub fn access(&self) -> ReservationAccess {
        match self {
            Command::Io(io) => match io.kind {
                IoKind::Read | IoKind::Verify(_) | IoKind::PreFetch => ReservationAccess::Read,
                _ => ReservationAccess::Write,
            },
            Command::Inquiry { .. } | Command::ReportLuns { .. } | Command::RequestSense { .. } => {
                ReservationAccess::Free
            }
            Command::TestUnitReady
            | Command::ReadCapacity10
            | Command::ReadCapacity16 { .. }
            | Command::LogSense { .. }
            | Command::ProvisioningLog { .. }
            | Command::PreventAllow
            | Command::ReportTargetPortGroups { .. }
            | Command::StartStop { start: true, .. } => ReservationAccess::Inspect,
            Command::GetLbaStatus { .. }
            | Command::ReadDefectData { .. }
            | Command::ModeSense(_)
            | Command::ReceiveCopyResults { .. }
            | Command::PopulateToken { .. }
            | Command::ReceiveRodTokenInformation { .. }
            | Command::ReportSupportedOperationCodes { .. }
            | Command::ReportSupportedTaskManagementFunctions { .. } => ReservationAccess::Read,
            Command::Unmap { .. }
            | Command::CryptographicErase
            | Command::ModeSelect(_)
            | Command::StartStop { start: false, .. }
            | Command::SendDiagnostic
            | Command::SetTargetPortGroups { .. }
            | Command::WriteUsingToken { .. }
            | Command::ExtendedCopy { .. } => ReservationAccess::Write,
            Command::PersistentReserveIn { .. } | Command::PersistentReserveOut { .. } => {
                ReservationAccess::Registration
            }
            Command::Reserve | Command::Release => ReservationAccess::Legacy,
        }
    }
}

impl ScsiIo {
    /// Bytes that the initiator must send.
    #[inline]
    pub fn data_out_len(&self, block_bytes: u32) -> u64 {
        match self.kind {
            _ if self.len == 0 => 0,
            IoKind::Write
            | IoKind::WriteAndVerify { .. }
            | IoKind::OrWrite
            | IoKind::WriteAtomic
            | IoKind::Verify(Check::Data) => self.len,
            IoKind::CompareAndWrite => 2 * self.len,
            IoKind::WriteSame { zeros: false, .. } | IoKind::Verify(Check::SameBlock) => {
                block_bytes.into()
            }
            IoKind::WriteSame { zeros: true, .. }
            | IoKind::Verify(Check::Medium)
            | IoKind::Read
            | IoKind::Flush { .. }
            | IoKind::PreFetch => 0,
        }
    }
}
