//! Commands and their data, checked before anything is done for them.

use wire::nvme::authentication::{AuthenticationCommand, SECP, SPSP};
use wire::nvme::{
    ConnectCommand, Direction, Disconnect, FABRICS, PropertyGet, PropertySet, Sgl, Sqe, Status,
    fctype,
};

use super::{InBandAuthentication, Queue, QueuePhase};
use crate::command::{Command, Need, decode_io, decode_reservation, is_io};

/// Bytes of Connect data (Base 2.0, section 6.3).
const CONNECT_DATA_LEN: u32 = 1024;
/// The most bytes of a message of authentication: as many protocols as it can name are less.
const AUTHENTICATION_BYTES_MAX: u32 = 32 << 10;

/// How the data of a command moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    None,
    In(u32),
    Out(u32),
}

/// FUSE, PSDT: not fused, SGLs. PRPs do not exist over Fabrics.
#[inline]
pub(super) fn is_plain(sqe: &Sqe) -> bool {
    sqe.flags & (Sqe::FUSE_MASK | Sqe::PSDT_MASK) == Sqe::PSDT_SGL
}

impl Queue {
    /// Everything but plain I/O commands.
    #[cold]
    pub(super) fn decode(&self, sqe: &Sqe) -> Result<(Command, Need), Status> {
        if sqe.opcode == FABRICS {
            return self.decode_fabrics(sqe);
        }
        self.check_live()?;
        if !is_plain(sqe) {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let (namespaces, io_bytes_max) = (&self.role.namespaces, self.io_bytes_max);
        if self.role.qid == 0 {
            self.decode_admin(sqe)
        } else if is_io(sqe.opcode) {
            let (io, need) = decode_io(sqe, namespaces, io_bytes_max)?;
            Ok((Command::Io(io), need))
        } else {
            decode_reservation(sqe, namespaces, io_bytes_max)
        }
    }

    /// Before there is a queue, and before its host has authenticated where it must,
    /// nothing is executed.
    fn check_live(&self) -> Result<(), Status> {
        match self.phase {
            QueuePhase::Live => Ok(()),
            QueuePhase::Authenticating => Err(Status::AUTHENTICATION_REQUIRED.dnr()),
            _ => Err(Status::COMMAND_SEQUENCE.dnr()),
        }
    }

    #[cold]
    fn decode_fabrics(&self, sqe: &Sqe) -> Result<(Command, Need), Status> {
        let kind = sqe.fctype();
        if (kind == fctype::CONNECT) != (self.phase == QueuePhase::Connect) {
            return Err(Status::COMMAND_SEQUENCE.dnr());
        }
        let admin = self.role.qid == 0;
        let authenticates = [fctype::AUTHENTICATION_SEND, fctype::AUTHENTICATION_RECEIVE];
        if kind != fctype::CONNECT && !authenticates.contains(&kind) {
            self.check_live()?;
        }
        match kind {
            fctype::CONNECT => Ok((
                Command::Connect(ConnectCommand::decode(sqe)),
                Need::Out {
                    min: CONNECT_DATA_LEN,
                    max: CONNECT_DATA_LEN,
                },
            )),
            fctype::AUTHENTICATION_SEND => {
                let len = self.authentication(sqe)?;
                let need = Need::Out { min: len, max: len };
                Ok((Command::AuthenticationSend, need))
            }
            fctype::AUTHENTICATION_RECEIVE => {
                let len = self.authentication(sqe)?;
                Ok((Command::AuthenticationReceive { len }, Need::In(len)))
            }
            fctype::PROPERTY_GET if admin => Ok((
                Command::PropertyGet(PropertyGet::decode(sqe)?),
                Need::Nothing,
            )),
            fctype::PROPERTY_SET if admin => Ok((
                Command::PropertySet(PropertySet::decode(sqe)?),
                Need::Nothing,
            )),
            fctype::DISCONNECT if admin => Err(Status::INVALID_QUEUE_TYPE.dnr()),
            fctype::DISCONNECT if Disconnect::decode(sqe).recfmt != 0 => {
                Err(Status::CONNECT_FORMAT.dnr())
            }
            fctype::DISCONNECT => Ok((Command::Disconnect, Need::Nothing)),
            _ => Err(Status::INVALID_OPCODE.dnr()),
        }
    }

    /// The bytes of a message of authentication, of hosts that have a secret (Base 2.0,
    /// sections 6.1 and 6.2).
    fn authentication(&self, sqe: &Sqe) -> Result<u32, Status> {
        let command = AuthenticationCommand::decode(sqe);
        if self.role.authentication == InBandAuthentication::None {
            return Err(Status::COMMAND_SEQUENCE.dnr());
        }
        let is_known = (command.secp, command.spsp) == (SECP, [SPSP; 2]);
        match is_known && (1..=AUTHENTICATION_BYTES_MAX).contains(&command.len) {
            true => Ok(command.len),
            false => Err(Status::INVALID_FIELD.dnr()),
        }
    }

    /// Admin commands: the opcode says which way the data goes, the SGL how
    /// much; what it means is the controller's to say.
    #[cold]
    fn decode_admin(&self, sqe: &Sqe) -> Result<(Command, Need), Status> {
        let len = sqe.sgl.length.get();
        let need = match sqe.direction() {
            Direction::Both => return Err(Status::INVALID_OPCODE.dnr()),
            Direction::None => Need::Nothing,
            _ if len == 0 => Need::Nothing,
            _ if len > self.io_bytes_max => return Err(Status::INVALID_FIELD.dnr()),
            Direction::HostToController => Need::Out { min: len, max: len },
            Direction::ControllerToHost => Need::In(len),
        };
        Ok((Command::Admin(*sqe), need))
    }
}

/// Parameter Error Location of a refusal whose status names a field (Base 2.0,
/// section 5.16.1.2).
#[cold]
pub(super) fn error_location(status: Status) -> Option<u16> {
    const LOCATIONS: [(Status, u16); 9] = [
        (Status::INVALID_OPCODE, 0),
        (Status::CID_CONFLICT, 2),
        (Status::FUSED_MISSING, 1),
        (Status::INVALID_NAMESPACE, 4),
        (Status::SGL_OFFSET_INVALID, 24),
        (Status::DATA_SGL_LENGTH_INVALID, 32),
        (Status::SGL_TYPE_INVALID, 39),
        (Status::LBA_OUT_OF_RANGE, 40),
        (Status::COMMAND_SIZE_LIMIT, 48),
    ];
    let found = LOCATIONS.iter().find(|(code, _)| *code == status.code());
    found.map(|(_, location)| *location)
}

/// Fits the data that a command needs to what its SGL and capsule offer
/// (Base 2.0, section 4.1.2; TCP Transport 1.0, section 3.3.1).
///
/// A Data Block descriptor with an offset stands for data that is in the capsule,
/// all of it, from its first byte; a Transport SGL Data Block descriptor for data
/// that the transport moves. A capsule with a descriptor of the second kind may
/// still carry the first part of that data: only the rest is asked for.
#[inline]
pub(super) fn transfer(sgl: &Sgl, need: Need, capsule_len: u32) -> Result<Transfer, Status> {
    let (min, max) = match need {
        Need::Nothing if capsule_len == 0 => return Ok(Transfer::None),
        Need::Nothing => return Err(Status::DATA_SGL_LENGTH_INVALID.dnr()),
        Need::In(len) => (len, len),
        Need::Out { min, max } => (min, max),
    };
    let len = sgl.length.get();
    let (transfer, fits) = match (sgl.id, need) {
        (Sgl::TRANSPORT, Need::In(_)) => (Transfer::In(len), capsule_len == 0),
        (Sgl::TRANSPORT, _) => (Transfer::Out(len), capsule_len <= len),
        (Sgl::IN_CAPSULE, Need::Out { .. }) => {
            if sgl.address.get() != 0 {
                return Err(Status::SGL_OFFSET_INVALID.dnr());
            }
            (Transfer::Out(len), capsule_len == len)
        }
        _ => return Err(Status::SGL_TYPE_INVALID.dnr()),
    };
    if len < min || len > max || !fits {
        return Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
    }
    Ok(transfer)
}
