//! What can go wrong between an initiator and a target.

use std::fmt;
use std::io;

use ::iscsi::initiator::{CommandOutcome, InitiatorFatalError};
use wire::iscsi::{LoginStatus, RejectReason};
use wire::scsi::{key, status};

/// What sense data says, of either format (SPC-4, section 4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenseData {
    /// Sense key.
    pub key: u8,
    /// ASC in the high byte, ASCQ in the low one.
    pub code: u16,
    /// INFORMATION, if it is valid.
    pub information: Option<u64>,
}

impl SenseData {
    /// Reads sense data; `None` if it is too short to say anything.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<SenseData> {
        let at = |at: usize| bytes.get(at).copied();
        let code = |high: u8, low: u8| u16::from(high) << 8 | u16::from(low);
        match at(0)? & 0x7f {
            0x70 | 0x71 => {
                let information = bytes.get(3..7).filter(|_| bytes[0] & 0x80 != 0);
                let number = |b: &[u8]| u32::from_be_bytes(b.try_into().expect("4 bytes"));
                Some(SenseData {
                    key: at(2)? & 15,
                    code: code(at(12).unwrap_or(0), at(13).unwrap_or(0)),
                    information: information.map(|b| u64::from(number(b))),
                })
            }
            0x72 | 0x73 => Some(SenseData {
                key: at(1)? & 15,
                code: code(at(2)?, at(3)?),
                information: descriptor_information(bytes.get(8..).unwrap_or_default()),
            }),
            _ => None,
        }
    }

    /// Whether it is a unit attention: something changed, the command was not
    /// executed and may be sent again.
    #[must_use]
    pub fn is_unit_attention(&self) -> bool {
        self.key == key::UNIT_ATTENTION
    }
}

/// The information descriptor (type 00h) among sense data descriptors.
fn descriptor_information(mut descriptors: &[u8]) -> Option<u64> {
    while let [kind, len, rest @ ..] = descriptors {
        let body = rest.get(..usize::from(*len))?;
        if *kind == 0 && body.len() == 10 && body[0] & 0x80 != 0 {
            return Some(u64::from_be_bytes(body[2..].try_into().expect("8 bytes")));
        }
        descriptors = &rest[usize::from(*len)..];
    }
    None
}

impl fmt::Display for SenseData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = match self.key {
            key::NO_SENSE => "NO SENSE",
            key::RECOVERED_ERROR => "RECOVERED ERROR",
            key::NOT_READY => "NOT READY",
            key::MEDIUM_ERROR => "MEDIUM ERROR",
            key::HARDWARE_ERROR => "HARDWARE ERROR",
            key::ILLEGAL_REQUEST => "ILLEGAL REQUEST",
            key::UNIT_ATTENTION => "UNIT ATTENTION",
            key::DATA_PROTECT => "DATA PROTECT",
            key::COPY_ABORTED => "COPY ABORTED",
            key::ABORTED_COMMAND => "ABORTED COMMAND",
            key::MISCOMPARE => "MISCOMPARE",
            _ => "reserved sense key",
        };
        let [asc, ascq] = self.code.to_be_bytes();
        write!(f, "{key}, ASC/ASCQ {asc:02x}h/{ascq:02x}h")?;
        match self.information {
            Some(information) => write!(f, ", information {information}"),
            None => Ok(()),
        }
    }
}

/// Why a connection or a command did not work.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The socket failed.
    #[error("socket: {0}")]
    Socket(#[from] io::Error),
    /// The target closed the connection.
    #[error("the target closed the connection")]
    Closed,
    /// The target refused, or one side broke the protocol; the connection is over.
    #[error("{}{}", .0, remedy(.0))]
    Protocol(InitiatorFatalError),
    /// The target sends the initiator elsewhere.
    #[error("the target is at {0} now")]
    Redirected(String),
    /// A command did not end with GOOD.
    #[error("{command}: {failure}")]
    Refused {
        /// The command's name in the standard.
        command: &'static str,
        /// How it ended.
        failure: Failure,
    },
    /// A task management function or a logout was refused.
    #[error("{name} was refused (response {response:02x}h)")]
    Function {
        /// Its name.
        name: &'static str,
        /// The response.
        response: u8,
    },
    /// Nothing came for too long.
    #[error("no {waiting_for} in time")]
    TimedOut {
        /// What was waited for.
        waiting_for: &'static str,
    },
    /// The target's answers cannot be used; why, in words.
    #[error("{0}")]
    Unusable(String),
    /// `memory_max` leaves no room.
    #[error("no memory left below memory_max")]
    NoMemory,
}

impl SessionError {
    /// Whether the target let nobody in who proves no secret (CHAP).
    #[must_use]
    pub fn asks_for_secret(&self) -> bool {
        let SessionError::Protocol(InitiatorFatalError::LoginRefused { class, detail }) = self
        else {
            return false;
        };
        let status = LoginStatus::from_bytes(*class, *detail);
        status == Some(LoginStatus::AuthenticationFailure)
    }

    /// The sense data of a command that failed.
    #[must_use]
    pub fn sense(&self) -> Option<SenseData> {
        match self {
            SessionError::Refused { failure, .. } => failure.sense,
            _ => None,
        }
    }
}

/// How a command ended that did not end with GOOD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// How it ended.
    pub outcome: CommandOutcome,
    /// What the sense data says.
    pub sense: Option<SenseData>,
}

impl Failure {
    /// `outcome` with sense data as it came; `None` for GOOD.
    #[inline]
    #[must_use]
    pub fn of(outcome: CommandOutcome, sense: &[u8]) -> Option<Failure> {
        (outcome != CommandOutcome::GOOD).then(|| Failure {
            outcome,
            sense: SenseData::read(sense),
        })
    }

    /// Whether it is a unit attention: see [`SenseData::is_unit_attention`].
    #[must_use]
    pub fn is_unit_attention(&self) -> bool {
        self.outcome == CommandOutcome::Status(status::CHECK_CONDITION)
            && self.sense.is_some_and(|sense| sense.is_unit_attention())
    }

    /// Whether the target was short of something, and takes the command later (SAM-5,
    /// section 5.3.1).
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        matches!(
            self.outcome,
            CommandOutcome::Status(status::BUSY | status::TASK_SET_FULL)
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.outcome, self.sense) {
            (CommandOutcome::Status(status::CHECK_CONDITION), Some(sense)) => write!(f, "{sense}"),
            (CommandOutcome::Status(code), _) => match code {
                status::CHECK_CONDITION => f.write_str("CHECK CONDITION without sense data"),
                status::RESERVATION_CONFLICT => f.write_str(
                    "RESERVATION CONFLICT: another initiator holds a reservation on the unit",
                ),
                status::BUSY => f.write_str("BUSY"),
                status::TASK_SET_FULL => f.write_str("TASK SET FULL"),
                status::TASK_ABORTED => f.write_str("TASK ABORTED"),
                code => write!(f, "SCSI status {code:02x}h"),
            },
            (CommandOutcome::TargetFailure(code), _) => {
                write!(f, "target failure (response {code:02x}h)")
            }
            (CommandOutcome::Damaged, _) => f.write_str("data was damaged or lost on the way"),
            (CommandOutcome::Aborted, _) => f.write_str("aborted by task management"),
            (CommandOutcome::Rejected(code), _) => match RejectReason::from_value(code) {
                Some(reason) => write!(f, "rejected: {reason}"),
                None => write!(f, "rejected for reason {code:02x}h"),
            },
        }
    }
}

/// What helps against a refused login.
fn remedy(error: &InitiatorFatalError) -> &'static str {
    let status = match error {
        InitiatorFatalError::LoginRefused { class, detail } => {
            LoginStatus::from_bytes(*class, *detail)
        }
        InitiatorFatalError::Authentication(_) => {
            return "; look at --mutual-secret-file, and at the target's own secret";
        }
        _ => None,
    };
    match status {
        Some(LoginStatus::AuthenticationFailure) => {
            "; give --chap-user and --chap-secret-file as the target has them"
        }
        Some(LoginStatus::AuthorizationFailure) => {
            "; the target does not know this initiator: allow its name there, or use --initiator"
        }
        Some(LoginStatus::NotFound) => "; see which targets there are with `weft discover`",
        Some(LoginStatus::TooManyConnections | LoginStatus::OutOfResources) => {
            "; use fewer sessions, or allow more at the target"
        }
        Some(LoginStatus::ServiceUnavailable | LoginStatus::TargetError) => "; try again later",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sense_data_is_read_in_both_formats() {
        let mut fixed = [0; 18];
        fixed[0] = 0xf0;
        fixed[2] = 0x0e;
        fixed[3..7].copy_from_slice(&7u32.to_be_bytes());
        (fixed[12], fixed[13]) = (0x1d, 0);
        let miscompare = SenseData {
            key: key::MISCOMPARE,
            code: 0x1d00,
            information: Some(7),
        };
        assert_eq!(SenseData::read(&fixed), Some(miscompare));
        fixed[0] = 0x70;
        assert_eq!(SenseData::read(&fixed).expect("sense").information, None);
        // A vendor's descriptor first, then the information.
        let mut described = vec![
            0x72, 0x0e, 0x1d, 0, 0, 0, 0, 16, 0x80, 2, 1, 2, 0, 10, 0x80, 0,
        ];
        described.extend(7u64.to_be_bytes());
        assert_eq!(SenseData::read(&described), Some(miscompare));
        described.truncate(20);
        assert_eq!(
            SenseData::read(&described).expect("sense").information,
            None
        );
        for nothing in [&[][..], &[0x70], &[0x72, 1], &[0x00; 18]] {
            assert_eq!(SenseData::read(nothing), None, "{nothing:02x?}");
        }
        let text = miscompare.to_string();
        assert_eq!(text, "MISCOMPARE, ASC/ASCQ 1dh/00h, information 7");
    }

    #[test]
    fn a_refused_login_says_what_helps() {
        let refused = |class, detail| {
            SessionError::Protocol(InitiatorFatalError::LoginRefused { class, detail })
        };
        let text = refused(2, 1).to_string();
        assert!(
            text.contains("Authentication failure") && text.contains("--chap-user"),
            "{text}"
        );
        let text = refused(2, 3).to_string();
        assert!(
            text.contains("weft discover") && text.contains("0203h"),
            "{text}"
        );
        let text = refused(9, 9).to_string();
        assert!(text.contains("0909h"), "{text}");
    }
}
