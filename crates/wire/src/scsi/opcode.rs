//! Operation codes, and service actions beside those that have them (SPC-4,
//! annex F.3; SBC-3).

macro_rules! codes {
    ($($name:ident = $value:literal),* $(,)?) => {
        $(
            #[doc = concat!("`", stringify!($name), "`, ", stringify!($value), ".")]
            pub const $name: u8 = $value;
        )*
    };
}

codes! {
    TEST_UNIT_READY = 0x00,
    REQUEST_SENSE = 0x03,
    READ_6 = 0x08,
    WRITE_6 = 0x0a,
    INQUIRY = 0x12,
    MODE_SELECT_6 = 0x15,
    RESERVE_6 = 0x16,
    RELEASE_6 = 0x17,
    MODE_SENSE_6 = 0x1a,
    START_STOP_UNIT = 0x1b,
    SEND_DIAGNOSTIC = 0x1d,
    PREVENT_ALLOW_MEDIUM_REMOVAL = 0x1e,
    READ_CAPACITY_10 = 0x25,
    READ_10 = 0x28,
    WRITE_10 = 0x2a,
    WRITE_AND_VERIFY_10 = 0x2e,
    VERIFY_10 = 0x2f,
    PRE_FETCH_10 = 0x34,
    SYNCHRONIZE_CACHE_10 = 0x35,
    READ_DEFECT_DATA_10 = 0x37,
    WRITE_SAME_10 = 0x41,
    UNMAP = 0x42,
    SANITIZE = 0x48,
    LOG_SENSE = 0x4d,
    MODE_SELECT_10 = 0x55,
    RESERVE_10 = 0x56,
    RELEASE_10 = 0x57,
    MODE_SENSE_10 = 0x5a,
    PERSISTENT_RESERVE_IN = 0x5e,
    PERSISTENT_RESERVE_OUT = 0x5f,
    EXTENDED_COPY = 0x83,
    RECEIVE_COPY_RESULTS = 0x84,
    READ_16 = 0x88,
    COMPARE_AND_WRITE = 0x89,
    WRITE_16 = 0x8a,
    ORWRITE_16 = 0x8b,
    WRITE_AND_VERIFY_16 = 0x8e,
    VERIFY_16 = 0x8f,
    PRE_FETCH_16 = 0x90,
    SYNCHRONIZE_CACHE_16 = 0x91,
    WRITE_SAME_16 = 0x93,
    WRITE_ATOMIC_16 = 0x9c,
    SERVICE_ACTION_IN_16 = 0x9e,
    REPORT_LUNS = 0xa0,
    MAINTENANCE_IN = 0xa3,
    MAINTENANCE_OUT = 0xa4,
    READ_12 = 0xa8,
    WRITE_12 = 0xaa,
    WRITE_AND_VERIFY_12 = 0xae,
    VERIFY_12 = 0xaf,
    READ_DEFECT_DATA_12 = 0xb7,
}

/// Service actions of SANITIZE (SBC-4).
pub mod sanitize {
    /// CRYPTOGRAPHIC ERASE.
    pub const CRYPTOGRAPHIC_ERASE: u8 = 0x03;
}

/// Service actions of SERVICE ACTION IN(16) (SBC-3).
pub mod service_action_in {
    /// READ CAPACITY(16).
    pub const READ_CAPACITY_16: u8 = 0x10;
    /// GET LBA STATUS.
    pub const GET_LBA_STATUS: u8 = 0x12;
}

/// Service actions of MAINTENANCE IN (SPC-4, annex F.3.5).
pub mod maintenance_in {
    /// REPORT TARGET PORT GROUPS.
    pub const REPORT_TARGET_PORT_GROUPS: u8 = 0x0a;
    /// REPORT SUPPORTED OPERATION CODES.
    pub const REPORT_SUPPORTED_OPERATION_CODES: u8 = 0x0c;
    /// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.
    pub const REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS: u8 = 0x0d;
}

/// Service actions of MAINTENANCE OUT (SPC-4, annex F.3.5).
pub mod maintenance_out {
    /// SET TARGET PORT GROUPS.
    pub const SET_TARGET_PORT_GROUPS: u8 = 0x0a;
}

/// Service actions of PERSISTENT RESERVE IN (SPC-4).
pub mod persistent_reserve_in {
    /// READ KEYS.
    pub const READ_KEYS: u8 = 0x00;
    /// READ RESERVATION.
    pub const READ_RESERVATION: u8 = 0x01;
    /// REPORT CAPABILITIES.
    pub const REPORT_CAPABILITIES: u8 = 0x02;
    /// READ FULL STATUS.
    pub const READ_FULL_STATUS: u8 = 0x03;
}

/// Service actions of PERSISTENT RESERVE OUT (SPC-4).
pub mod persistent_reserve_out {
    /// REGISTER.
    pub const REGISTER: u8 = 0x00;
    /// RESERVE.
    pub const RESERVE: u8 = 0x01;
    /// RELEASE.
    pub const RELEASE: u8 = 0x02;
    /// CLEAR.
    pub const CLEAR: u8 = 0x03;
    /// PREEMPT.
    pub const PREEMPT: u8 = 0x04;
    /// PREEMPT AND ABORT.
    pub const PREEMPT_AND_ABORT: u8 = 0x05;
    /// REGISTER AND IGNORE EXISTING KEY.
    pub const REGISTER_AND_IGNORE_EXISTING_KEY: u8 = 0x06;
    /// REGISTER AND MOVE.
    pub const REGISTER_AND_MOVE: u8 = 0x07;
}

/// Service actions of EXTENDED COPY, in SPC-4 the third-party copy OUT commands (SPC-4; SBC-3).
pub mod third_party_copy_out {
    /// POPULATE TOKEN.
    pub const POPULATE_TOKEN: u8 = 0x10;
    /// WRITE USING TOKEN.
    pub const WRITE_USING_TOKEN: u8 = 0x11;
}

/// Service actions of RECEIVE COPY RESULTS, in SPC-4 the third-party copy IN
/// commands for LID1 (SPC-4).
pub mod receive_copy_results {
    /// RECEIVE COPY STATUS(LID1).
    pub const COPY_STATUS: u8 = 0x00;
    /// RECEIVE COPY DATA(LID1).
    pub const RECEIVE_DATA: u8 = 0x01;
    /// RECEIVE COPY OPERATING PARAMETERS.
    pub const OPERATING_PARAMETERS: u8 = 0x03;
    /// RECEIVE COPY FAILURE DETAILS(LID1).
    pub const FAILED_SEGMENT_DETAILS: u8 = 0x04;
    /// RECEIVE ROD TOKEN INFORMATION.
    pub const ROD_TOKEN_INFORMATION: u8 = 0x07;
}
