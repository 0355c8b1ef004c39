//! Persistent reservations as PERSISTENT RESERVE IN and OUT say them (SPC-4,
//! sections 6.15 and 6.16). What they mean is not decided here.

use wire::scsi::opcode::persistent_reserve_in as reserve_in;
use wire::scsi::opcode::persistent_reserve_out as reserve_out;

use crate::sense::Sense;

/// Bytes of a PERSISTENT RESERVE OUT parameter list at most: room for some
/// thirty initiators by name.
pub const LIST_BYTES_MAX: u32 = 8 << 10;

/// Bytes of the basic parameter list, and of what REGISTER AND MOVE has before
/// its TransportID.
const BASIC_BYTES: usize = 24;

/// What a reservation keeps others from (SPC-4, section 6.15.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Type {
    /// Write Exclusive.
    WriteExclusive = 0x1,
    /// Exclusive Access.
    ExclusiveAccess = 0x3,
    /// Write Exclusive - Registrants Only.
    WriteExclusiveRegistrantsOnly = 0x5,
    /// Exclusive Access - Registrants Only.
    ExclusiveAccessRegistrantsOnly = 0x6,
    /// Write Exclusive - All Registrants.
    WriteExclusiveAllRegistrants = 0x7,
    /// Exclusive Access - All Registrants.
    ExclusiveAccessAllRegistrants = 0x8,
}

impl Type {
    /// All of them.
    pub const ALL: [Type; 6] = [
        Type::WriteExclusive,
        Type::ExclusiveAccess,
        Type::WriteExclusiveRegistrantsOnly,
        Type::ExclusiveAccessRegistrantsOnly,
        Type::WriteExclusiveAllRegistrants,
        Type::ExclusiveAccessAllRegistrants,
    ];

    fn of(code: u8) -> Option<Type> {
        Type::ALL.into_iter().find(|kind| *kind as u8 == code)
    }

    fn is_of_all(self) -> bool {
        self as u8 >= Type::WriteExclusiveAllRegistrants as u8
    }
}

/// What PERSISTENT RESERVE IN asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// READ KEYS.
    Keys,
    /// READ RESERVATION.
    Reservation,
    /// REPORT CAPABILITIES.
    Capabilities,
    /// READ FULL STATUS.
    FullStatus,
}

/// A PERSISTENT RESERVE IN command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct In {
    /// What is asked.
    pub question: Question,
    /// ALLOCATION LENGTH: bytes of the answer at most.
    pub allocation_len: u16,
}

impl In {
    /// From the fields of the CDB: SERVICE ACTION and ALLOCATION LENGTH.
    pub fn new(action: u8, allocation_len: u16) -> Result<In, Sense> {
        let question = match action {
            reserve_in::READ_KEYS => Question::Keys,
            reserve_in::READ_RESERVATION => Question::Reservation,
            reserve_in::REPORT_CAPABILITIES => Question::Capabilities,
            reserve_in::READ_FULL_STATUS => Question::FullStatus,
            _ => return Err(Sense::in_cdb(1, Some(4))),
        };
        Ok(In {
            question,
            allocation_len,
        })
    }
}

/// A PERSISTENT RESERVE OUT command, of which the parameter list is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Out {
    /// SERVICE ACTION, one of `persistent_reserve_out`.
    pub action: u8,
    /// TYPE, where the service action has one.
    kind: Option<Type>,
    /// PARAMETER LIST LENGTH, at most [`LIST_BYTES_MAX`].
    pub list_len: u32,
}

impl Out {
    /// From the fields of the CDB: SERVICE ACTION, SCOPE, TYPE and PARAMETER LIST
    /// LENGTH.
    pub fn new(action: u8, scope: u8, kind: u8, list_len: u32) -> Result<Out, Sense> {
        let kind = match action {
            reserve_out::RESERVE
            | reserve_out::RELEASE
            | reserve_out::PREEMPT
            | reserve_out::PREEMPT_AND_ABORT => {
                // LU_SCOPE is the only one that there is.
                if scope != 0 {
                    return Err(Sense::in_cdb(2, Some(7)));
                }
                let kind = Type::of(kind);
                Some(kind.ok_or(Sense::in_cdb(2, Some(3)))?)
            }
            reserve_out::REGISTER
            | reserve_out::CLEAR
            | reserve_out::REGISTER_AND_IGNORE_EXISTING_KEY
            | reserve_out::REGISTER_AND_MOVE => None,
            _ => return Err(Sense::in_cdb(1, Some(4))),
        };
        if list_len > LIST_BYTES_MAX {
            return Err(Sense::list_length());
        }
        Ok(Out {
            action,
            kind,
            list_len,
        })
    }

    /// Reads the parameter list; `list` has [`Out::list_len`] bytes.
    pub fn request(&self, list: &[u8]) -> Result<ReserveOut, Sense> {
        if list.len() < BASIC_BYTES {
            return Err(Sense::list_length());
        }
        let current = number(&list[..8]);
        let key = number(&list[8..16]);
        if self.action == reserve_out::REGISTER_AND_MOVE {
            return moved(list, current, key);
        }
        let flags = list[20];
        let (named, ports, persist) = (flags & 0x08 != 0, flags & 0x04 != 0, flags & 0x01 != 0);
        let initiators = match (named, self.action) {
            (true, reserve_out::REGISTER) => initiators(list)?,
            (true, _) => return Err(Sense::in_list(20, Some(3))),
            (false, _) if list.len() > BASIC_BYTES => return Err(Sense::list_length()),
            (false, _) => Vec::new(),
        };
        let kind = self.kind.unwrap_or(Type::WriteExclusive);
        Ok(match self.action {
            reserve_out::REGISTER | reserve_out::REGISTER_AND_IGNORE_EXISTING_KEY => {
                ReserveOut::Register {
                    current: (self.action == reserve_out::REGISTER).then_some(current),
                    key,
                    persist,
                    all_ports: ports,
                    initiators,
                }
            }
            reserve_out::RESERVE => ReserveOut::Reserve { current, kind },
            reserve_out::RELEASE => ReserveOut::Release { current, kind },
            reserve_out::CLEAR => ReserveOut::Clear { current },
            reserve_out::PREEMPT | reserve_out::PREEMPT_AND_ABORT => ReserveOut::Preempt {
                current,
                victim: key,
                kind,
                aborts: self.action == reserve_out::PREEMPT_AND_ABORT,
            },
            _ => unreachable!("other service actions are refused with their CDB"),
        })
    }
}

/// What a PERSISTENT RESERVE OUT asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReserveOut {
    /// REGISTER, and REGISTER AND IGNORE EXISTING KEY.
    Register {
        /// RESERVATION KEY; `None`: whatever it is.
        current: Option<u64>,
        /// SERVICE ACTION RESERVATION KEY; 0 unregisters.
        key: u64,
        /// APTPL.
        persist: bool,
        /// ALL_TG_PT.
        all_ports: bool,
        /// Initiators that SPEC_I_PT adds.
        initiators: Vec<Initiator>,
    },
    /// RESERVE.
    Reserve {
        /// RESERVATION KEY.
        current: u64,
        /// TYPE.
        kind: Type,
    },
    /// RELEASE.
    Release {
        /// RESERVATION KEY.
        current: u64,
        /// TYPE.
        kind: Type,
    },
    /// CLEAR.
    Clear {
        /// RESERVATION KEY.
        current: u64,
    },
    /// PREEMPT, and PREEMPT AND ABORT.
    Preempt {
        /// RESERVATION KEY.
        current: u64,
        /// SERVICE ACTION RESERVATION KEY: whose registrations go.
        victim: u64,
        /// TYPE.
        kind: Type,
        /// Their commands end.
        aborts: bool,
    },
    /// REGISTER AND MOVE.
    Move {
        /// RESERVATION KEY.
        current: u64,
        /// SERVICE ACTION RESERVATION KEY, that of the new holder.
        key: u64,
        /// UNREG.
        unregister: bool,
        /// APTPL.
        persist: bool,
        /// RELATIVE TARGET PORT IDENTIFIER.
        port: u16,
        /// The new holder.
        initiator: Initiator,
    },
}

/// An initiator as an iSCSI TransportID names it (SPC-4, section 7.6.4.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initiator {
    /// Its iSCSI name, in lower case.
    pub name: String,
    /// ISID of the port; `None`: every port of it that is known.
    pub isid: Option<[u8; 6]>,
}

/// Between the name and the ISID of an initiator port.
const ISID: &str = ",i,0x";
/// iSCSI, as a PROTOCOL IDENTIFIER.
const ISCSI: u8 = 0x05;
/// TPID FORMAT of a TransportID with an ISID.
const WITH_ISID: u8 = 0x40;
/// Bytes of a TransportID before its name, and the fewest of the name.
const HEAD_BYTES: usize = 4;
const NAME_BYTES_MIN: usize = 20;

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

/// The parameter list of REGISTER AND MOVE.
fn moved(list: &[u8], current: u64, key: u64) -> Result<ReserveOut, Sense> {
    let len = number(&list[20..24]) as usize;
    if len != list.len() - BASIC_BYTES {
        return Err(Sense::list_length());
    }
    let (initiator, used) = transport_id(&list[BASIC_BYTES..], BASIC_BYTES)?;
    // One port is moved to, no more and no fewer.
    if used != len || initiator.isid.is_none() {
        return Err(Sense::in_list(BASIC_BYTES as u16, None));
    }
    Ok(ReserveOut::Move {
        current,
        key,
        unregister: list[17] & 0x02 != 0,
        persist: list[17] & 0x01 != 0,
        port: u16::from_be_bytes([list[18], list[19]]),
        initiator,
    })
}

/// The TransportIDs behind a basic parameter list.
fn initiators(list: &[u8]) -> Result<Vec<Initiator>, Sense> {
    let mut at = BASIC_BYTES + 4;
    if list.len() < at || number(&list[BASIC_BYTES..at]) != (list.len() - at) as u64 {
        return Err(Sense::list_length());
    }
    let mut found = Vec::new();
    while at < list.len() {
        let (initiator, used) = transport_id(&list[at..], at)?;
        found.push(initiator);
        at += used;
    }
    Ok(found)
}

/// Reads the TransportID at the start of `bytes`, which stand at `at` of the
/// parameter list, and says how long it is.
fn transport_id(bytes: &[u8], at: usize) -> Result<(Initiator, usize), Sense> {
    let wrong = |byte: usize| Sense::in_list((at + byte) as u16, None);
    if bytes.len() < HEAD_BYTES {
        return Err(Sense::list_length());
    }
    if bytes[0] & 0x0f != ISCSI {
        return Err(wrong(0));
    }
    let len = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
    if len < NAME_BYTES_MIN || !len.is_multiple_of(4) {
        return Err(wrong(2));
    }
    let Some(name) = bytes.get(HEAD_BYTES..HEAD_BYTES + len) else {
        return Err(Sense::list_length());
    };
    let end = name
        .iter()
        .position(|byte| *byte == 0)
        .ok_or(wrong(HEAD_BYTES))?;
    let name = std::str::from_utf8(&name[..end]).map_err(|_| wrong(HEAD_BYTES))?;
    let initiator = match bytes[0] & 0xf0 {
        0 => Some(Initiator {
            name: name.to_lowercase(),
            isid: None,
        }),
        WITH_ISID => Initiator::of_port(name),
        _ => return Err(wrong(0)),
    };
    let initiator = initiator.filter(|initiator| !initiator.name.is_empty());
    Ok((initiator.ok_or(wrong(HEAD_BYTES))?, HEAD_BYTES + len))
}

impl Initiator {
    /// The initiator port of this name, `iqn...,i,0x...`.
    fn of_port(name: &str) -> Option<Initiator> {
        let (name, isid) = name.split_once(ISID)?;
        let is_number = isid.len() <= 12 && isid.bytes().all(|byte| byte.is_ascii_hexdigit());
        let isid = is_number.then(|| u64::from_str_radix(isid, 16).ok())??;
        let mut bytes = [0; 6];
        bytes.copy_from_slice(&isid.to_be_bytes()[2..]);
        Some(Initiator {
            name: name.to_lowercase(),
            isid: Some(bytes),
        })
    }
}

/// Name of the initiator port with this iSCSI name and ISID (SAM-5; RFC 7143,
/// section 4.4.1).
pub fn initiator_port(name: &str, isid: [u8; 6]) -> String {
    let digits = isid.iter().fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
    format!("{name}{ISID}{digits:012x}")
}

/// A registration, as READ KEYS and READ FULL STATUS tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered<'a> {
    /// Its key.
    pub key: u64,
    /// Whether it holds the reservation.
    pub is_holder: bool,
    /// Name of the initiator port, or of the initiator device alone.
    pub initiator: &'a str,
    /// Relative target port identifier; 0 of a registrant without a SCSI port.
    pub port: u16,
}

/// How things stand, as PERSISTENT RESERVE IN tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status<'a> {
    /// PRGENERATION.
    pub generation: u32,
    /// The reservation, if one is held.
    pub kind: Option<Type>,
    /// Whether registrations persist through a loss of power.
    pub persist: bool,
    /// Whether they can.
    pub can_persist: bool,
    /// Every registration.
    pub registered: Vec<Registered<'a>>,
}

impl Status<'_> {
    /// The answer, cut to the allocation length.
    pub fn answer(&self, command: In) -> Vec<u8> {
        let max = usize::from(command.allocation_len);
        let mut out = match command.question {
            Question::Keys => self.keys(max),
            Question::Reservation => self.reservation(),
            Question::Capabilities => self.capabilities(),
            Question::FullStatus => self.full_status(max),
        };
        out.truncate(max);
        out
    }

    /// PRGENERATION and ADDITIONAL LENGTH, which says how much there is, not
    /// how much of it fits.
    fn head(&self, len: usize) -> Vec<u8> {
        let mut out = self.generation.to_be_bytes().to_vec();
        out.extend((len as u32).to_be_bytes());
        out
    }

    /// READ KEYS (SPC-4, section 6.15.2); of long lists no more than `max` bytes
    /// are of use.
    fn keys(&self, max: usize) -> Vec<u8> {
        let mut out = self.head(self.registered.len() * 8);
        for registered in self.registered.iter().take(max / 8 + 1) {
            out.extend(registered.key.to_be_bytes());
        }
        out
    }

    /// READ RESERVATION (SPC-4, section 6.15.3). One that all registrants hold
    /// has no key.
    fn reservation(&self) -> Vec<u8> {
        let Some(kind) = self.kind else {
            return self.head(0);
        };
        let holder = self
            .registered
            .iter()
            .find(|registered| registered.is_holder);
        let holder = holder.filter(|_| !kind.is_of_all());
        let mut out = self.head(16);
        out.extend(holder.map_or(0, |holder| holder.key).to_be_bytes());
        out.extend([0, 0, 0, 0, 0, kind as u8, 0, 0]);
        out
    }

    /// REPORT CAPABILITIES (SPC-4, section 6.15.4): compatible reservation
    /// handling, SPEC_I_PT and ALL_TG_PT, every type.
    fn capabilities(&self) -> Vec<u8> {
        const CRH_SIP_ATP: u8 = 0x10 | 0x08 | 0x04;
        const TYPE_MASK_VALID: u8 = 0x80;
        let mut mask = [0; 2];
        for kind in Type::ALL {
            match kind as u8 {
                8 => mask[1] |= 0x01,
                code => mask[0] |= 1 << code,
            }
        }
        let can_persist = CRH_SIP_ATP | u8::from(self.can_persist);
        let persists = TYPE_MASK_VALID | u8::from(self.persist);
        vec![0, 8, can_persist, persists, mask[0], mask[1], 0, 0]
    }

    /// READ FULL STATUS (SPC-4, section 6.15.5), as far as `max` bytes go.
    fn full_status(&self, max: usize) -> Vec<u8> {
        let len = |one: &Registered<'_>| BASIC_BYTES + HEAD_BYTES + name_len(one.initiator);
        let mut out = self.head(self.registered.iter().map(len).sum());
        for registered in &self.registered {
            if out.len() >= max {
                break;
            }
            self.describe(registered, &mut out);
        }
        out
    }

    /// A full status descriptor (SPC-4, section 6.15.5).
    fn describe(&self, registered: &Registered<'_>, out: &mut Vec<u8>) {
        let scope_type = match self.kind {
            Some(kind) if registered.is_holder => kind as u8,
            _ => 0,
        };
        out.extend(registered.key.to_be_bytes());
        out.extend([0; 4]);
        // ALL_TG_PT is clear: every port has a registration of its own.
        out.extend([u8::from(registered.is_holder), scope_type, 0, 0, 0, 0]);
        out.extend(registered.port.to_be_bytes());
        let len = name_len(registered.initiator);
        out.extend(((HEAD_BYTES + len) as u32).to_be_bytes());
        let format = match registered.initiator.contains(ISID) {
            true => WITH_ISID,
            false => 0,
        };
        out.extend([format | ISCSI, 0]);
        out.extend((len as u16).to_be_bytes());
        let end = out.len() + len;
        out.extend(registered.initiator.as_bytes());
        out.resize(end, 0);
    }
}

/// Bytes of a name in a TransportID: it ends with a zero, in whole words.
fn name_len(name: &str) -> usize {
    (name.len() + 1).next_multiple_of(4).max(NAME_BYTES_MIN)
}

#[cfg(test)]
mod tests;
