//! The initiator's end of an iSCSI connection (RFC 7143).
//!
//! [`InitiatorConnection`] is one connection: it logs in, then takes SCSI commands as
//! CDBs, task management, text and NOPs, and tells what became of them. A
//! [`InitiatorSession`] is what the connections of one session share.

mod carried;
mod connection;
mod login;
mod receive;
mod send;
mod session;
#[cfg(test)]
mod tests;

use iwarp::QpSettings;
use machine::Tag;
use wire::iscsi::{AsyncEvent, LoginStatus, TaskAttribute};

use crate::iser::IserError;

pub use carried::CarriedConnection;
pub use connection::InitiatorConnection;
pub use login::{Chap, RANDOM_LEN};
pub use session::InitiatorSession;

/// Whether a digest is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Digest {
    /// Offers `None`.
    #[default]
    Never,
    /// Offers `CRC32C,None`: the target chooses.
    Preferred,
    /// Offers `CRC32C` alone.
    Required,
}

/// What a session is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionType {
    /// SendTargets and nothing else.
    Discovery,
    /// SCSI commands to the target of this name.
    Normal {
        /// TargetName.
        target: String,
    },
}

/// What the initiator asks the target for.
#[derive(Clone, Debug)]
pub struct InitiatorSettings {
    /// InitiatorName.
    pub initiator: String,
    /// SessionType and TargetName.
    pub session_type: SessionType,
    /// CHAP, where the target shall know the initiator or the other way round.
    pub chap: Option<Chap>,
    /// HeaderDigest.
    pub header_digest: Digest,
    /// DataDigest.
    pub data_digest: Digest,
    /// MaxRecvDataSegmentLength declared, bytes: 512 to 2^24 - 1.
    pub max_recv_data_segment: u32,
    /// FirstBurstLength offered, bytes.
    pub first_burst: u32,
    /// MaxBurstLength offered, bytes.
    pub max_burst: u32,
    /// InitialR2T offered: all data is asked for.
    pub initial_r2t: bool,
    /// ImmediateData offered: data may ride in the command's PDU.
    pub immediate_data: bool,
    /// MaxOutstandingR2T offered.
    pub max_outstanding_r2t: u16,
    /// MaxConnections offered.
    pub max_connections: u16,
    /// SCSI commands in flight on this connection at most.
    pub queue_depth: u16,
    /// The stream of RDMA that carries the connection (RFC 7145), if it is not TCP: without
    /// digests, and with no unsolicited data but that of commands. How Sends are taken follows
    /// from iSER.
    pub rdma: Option<QpSettings>,
}

impl InitiatorSettings {
    /// A normal session of `initiator` to `target` without digests and CHAP,
    /// with what suits a fast network.
    pub fn new(initiator: &str, target: &str) -> InitiatorSettings {
        InitiatorSettings {
            initiator: initiator.to_owned(),
            session_type: SessionType::Normal {
                target: target.to_owned(),
            },
            chap: None,
            header_digest: Digest::Never,
            data_digest: Digest::Never,
            max_recv_data_segment: 256 * 1024,
            first_burst: 256 * 1024,
            max_burst: 1024 * 1024,
            initial_r2t: false,
            immediate_data: true,
            max_outstanding_r2t: 4,
            max_connections: 1,
            queue_depth: 128,
            rdma: None,
        }
    }

    /// A discovery session of `initiator`.
    pub fn discovery(initiator: &str) -> InitiatorSettings {
        InitiatorSettings {
            session_type: SessionType::Discovery,
            ..InitiatorSettings::new(initiator, "")
        }
    }
}

/// A SCSI command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The LUN field as SAM has it, 8 bytes.
    pub lun: [u8; 8],
    /// Command descriptor block, zeros behind a shorter one.
    pub cdb: [u8; 16],
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// Delivered at once, whatever came before it.
    pub is_immediate: bool,
}

impl Command {
    /// A SIMPLE command for `lun` (below 16,384; section 4.6.7 of SAM-5: the
    /// peripheral device method below 256, the flat space method above).
    #[inline]
    pub fn new(lun: u16, cdb: [u8; 16]) -> Command {
        Command {
            lun: lun_field(lun),
            cdb,
            attribute: TaskAttribute::Simple,
            is_immediate: false,
        }
    }
}

/// The LUN field of `lun`, which is below 16,384.
#[inline]
pub fn lun_field(lun: u16) -> [u8; 8] {
    assert!(lun < 1 << 14, "flat space addressing has 14 bits");
    let method = if lun < 256 { 0 } else { 0x40 };
    let [high, low] = lun.to_be_bytes();
    [high | method, low, 0, 0, 0, 0, 0, 0]
}

/// The data that a command comes with, in bytes: its Expected Data Transfer
/// Length; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedData {
    /// No data.
    None,
    /// Target to initiator: at most so many.
    In(u32),
    /// Initiator to target.
    Out(u32),
}

/// How a SCSI command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    /// It completed at the target with this SAM status. What sense data came
    /// is [`InitiatorConnection::sense`] until the next step.
    Status(u8),
    /// The target could not execute it: the iSCSI service response.
    TargetFailure(u8),
    /// It completed, but data did not match its digest on the way here, or did
    /// not come at all.
    Damaged,
    /// It was aborted by a task management function.
    Aborted,
    /// The target rejected its PDU, for the reason given (section 11.17.1).
    Rejected(u8),
}

impl CommandOutcome {
    /// Status GOOD.
    pub const GOOD: CommandOutcome = CommandOutcome::Status(0);
}

/// Bytes that were not transferred as expected (section 11.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    /// The command transfers what was expected.
    None,
    /// So many bytes fewer than expected were transferred.
    Underflow(u32),
    /// The command would have transferred so many bytes more than expected.
    Overflow(u32),
}

/// The end of a SCSI command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// How.
    pub outcome: CommandOutcome,
    /// Bytes of data that came.
    pub data_len: u32,
    /// What the target says of the transfer's length.
    pub residual: Residual,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitiatorOp {
    /// Logged in: [`InitiatorConnection::agreed`] tells with what.
    Ready,
    /// A SCSI command ended; its tag and memory are free.
    Completed {
        /// The command.
        tag: Tag,
        /// How it ended.
        completion: Completion,
    },
    /// A task management function was answered. The commands that it ended
    /// have been told before.
    TaskManaged {
        /// Of [`InitiatorConnection::task_management`].
        tag: Tag,
        /// Response (section 11.6.1).
        response: u8,
    },
    /// A text request was answered; the text is [`InitiatorConnection::text_answer`]
    /// until the next one.
    Text {
        /// Of [`InitiatorConnection::text`].
        tag: Tag,
    },
    /// The target answered a NOP-Out.
    Pong {
        /// Of [`InitiatorConnection::ping`].
        tag: Tag,
    },
    /// The target answered a logout; it closes what was to be closed.
    LoggedOut {
        /// Of [`InitiatorConnection::logout`].
        tag: Tag,
        /// Response (section 11.15.1).
        response: u8,
    },
    /// The target has something to say by itself.
    Async(Async),
    /// A request other than a SCSI command was rejected and is over.
    Rejected {
        /// The request.
        tag: Tag,
        /// Why (section 11.17.1).
        reason: u8,
    },
    /// The connection ends.
    Fatal(InitiatorFatalError),
}

/// An Asynchronous Message (section 11.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Async {
    /// AsyncEvent, by number.
    pub event: u8,
    /// The LUN field, for the events that concern one.
    pub lun: [u8; 8],
    /// Parameter1 to Parameter3.
    pub parameters: [u16; 3],
}

impl Async {
    /// What the event is, if the standard has it.
    pub fn kind(&self) -> Option<AsyncEvent> {
        AsyncEvent::from_value(self.event)
    }
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitiatorFatalError {
    /// The target refused the login, or sent the initiator elsewhere: see
    /// [`InitiatorConnection::target_address`].
    #[error(
        "the target refused the login{} (status {class:02x}{detail:02x}h)",
        status_meaning(.class, .detail)
    )]
    LoginRefused {
        /// Status-Class.
        class: u8,
        /// Status-Detail.
        detail: u8,
    },
    /// The target did not prove that it knows the secret, or proved nothing.
    #[error("authentication: {0}")]
    Authentication(&'static str),
    /// An answer to this key cannot be agreed to.
    #[error("no agreement with the target on {key}")]
    Negotiation {
        /// The key.
        key: &'static str,
    },
    /// A header does not match its digest.
    #[error("a header does not match its digest")]
    HeaderDigest,
    /// The text or the sense data of a PDU does not match its digest, or the
    /// target found that of a command damaged twice.
    #[error("the data of a PDU of opcode {opcode:02x}h does not match its digest")]
    DataDigest {
        /// Of the PDU.
        opcode: u8,
    },
    /// The target rejected a request, and what was sent behind it may not be sent
    /// again: a task management function is under way.
    #[error(
        "the target rejected a request of opcode {opcode:02x}h amid a task management function: \
         what was sent behind it is neither taken nor ended for certain"
    )]
    Gap {
        /// Of the request.
        opcode: u8,
    },
    /// The stream of RDMA ends, or what comes by it breaks iSER.
    #[error(transparent)]
    Rdma(#[from] IserError),
    /// The target broke the protocol.
    #[error("the target sent a PDU of opcode {opcode:02x}h: {what}")]
    Protocol {
        /// Of the PDU in error.
        opcode: u8,
        /// What is wrong.
        what: &'static str,
    },
}

/// What a login status says, behind a colon.
fn status_meaning(class: &u8, detail: &u8) -> String {
    match LoginStatus::from_bytes(*class, *detail) {
        Some(status) => format!(": {status}"),
        None => String::new(),
    }
}
