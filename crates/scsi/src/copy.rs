//! EXTENDED COPY(LID1) as its parameter list says it, and what RECEIVE COPY
//! RESULTS tells of it (SPC-4, sections 5.17, 6.4 and 6.3).
//!
//! What can be wrong with the list as a whole is an ILLEGAL REQUEST, and nothing
//! is copied. What goes wrong with a segment is COPY ABORTED: the segments before
//! it are copied.

use wire::scsi::opcode::receive_copy_results as results;
use wire::scsi::{SenseBytes, asc, key};

use crate::sense::{Sense, Specific};
use crate::unit::UnitIdentity;

/// CSCD descriptors of a list at most.
pub const CSCDS_MAX: usize = 16;
/// Segment descriptors of a list at most.
pub const SEGMENTS_MAX: usize = 64;
/// Bytes of a parameter list at most.
pub const LIST_BYTES_MAX: u32 = (HEAD_BYTES + DESCRIPTORS_BYTES_MAX) as u32;
/// Bytes that one segment copies at most: more than its number of blocks can say.
pub const SEGMENT_BYTES_MAX: u32 = 256 << 20;
/// Copies of one nexus that are under way or remembered at most.
pub const HELD_MAX: usize = 16;

const HEAD_BYTES: usize = 16;
const DESCRIPTORS_BYTES_MAX: usize = CSCDS_MAX * CSCD_BYTES + SEGMENTS_MAX * SEGMENT_BYTES;
/// An identification descriptor CSCD descriptor.
const CSCD_IDENTIFICATION: u8 = 0xe4;
const CSCD_BYTES: usize = 32;
/// A segment from block device to block device.
const SEGMENT_BLOCK_TO_BLOCK: u8 = 0x02;
const SEGMENT_BYTES: usize = 28;
/// The CSCD descriptor ID of the logical unit that the command was sent to.
const CSCD_HERE: u16 = 0xffff;

/// A parameter list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// LIST IDENTIFIER; `None`: the copy has none (LIST ID USAGE 11b).
    pub id: Option<u8>,
    /// Whether the results are kept for RECEIVE COPY RESULTS.
    pub keeps: bool,
    /// Copy sources and copy destinations.
    pub cscds: Vec<Cscd>,
    /// What is copied, in order.
    pub segments: Vec<Segment>,
}

/// A copy source or copy destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cscd {
    /// CODE SET, ASSOCIATION and DESIGNATOR TYPE as they stand.
    code_set: u8,
    association: u8,
    kind: u8,
    designator: [u8; 20],
    len: u8,
    /// DISK BLOCK LENGTH, bytes; 0: not said.
    pub block_bytes: u32,
    /// Whether it can be reached at all: a block device, by no port in
    /// particular.
    fault: Option<u16>,
}

/// Where a segment copies from or to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyEnd {
    /// The CSCD of this index in the list.
    Cscd(usize),
    /// The logical unit that the command was sent to.
    Here,
    /// None that there is.
    Unknown,
}

/// Blocks to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The copy source.
    pub source: CopyEnd,
    /// The copy destination.
    pub destination: CopyEnd,
    /// How many blocks.
    pub blocks: u16,
    /// DC: they are counted in blocks of the destination.
    pub counts_destination: bool,
    /// First block of the source.
    pub source_lba: u64,
    /// First block of the destination.
    pub destination_lba: u64,
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

impl List {
    /// Reads a parameter list that is not empty (an empty one copies nothing).
    pub fn parse(list: &[u8]) -> Result<List, Sense> {
        if list.len() < HEAD_BYTES {
            return Err(Sense::list_length());
        }
        let (id, keeps) = match list[1] >> 3 & 0x03 {
            0b00 => (Some(list[0]), true),
            0b10 => (Some(list[0]), false),
            0b11 if list[0] == 0 => (None, false),
            0b11 => return Err(Sense::in_list(0, None)),
            _ => return Err(Sense::in_list(1, Some(4))),
        };
        let cscds_len = number(&list[2..4]) as usize;
        let segments_len = number(&list[8..12]);
        if cscds_len as u64 + segments_len > DESCRIPTORS_BYTES_MAX as u64 {
            return Err(Sense::list_length());
        }
        let segments_len = segments_len as usize;
        if number(&list[12..16]) > 0 {
            return Err(Sense::illegal(asc::INLINE_DATA_LENGTH_EXCEEDED));
        }
        let segments_at = HEAD_BYTES + cscds_len;
        let Some(segments) = list.get(segments_at..segments_at + segments_len) else {
            return Err(Sense::list_length());
        };
        let cscds = cscds(&list[HEAD_BYTES..segments_at])?;
        let segments = segments_of(segments, segments_at, cscds.len())?;
        Ok(List {
            id,
            keeps,
            cscds,
            segments,
        })
    }
}

fn cscds(bytes: &[u8]) -> Result<Vec<Cscd>, Sense> {
    if bytes.len() > CSCDS_MAX * CSCD_BYTES {
        return Err(Sense::illegal(asc::TOO_MANY_TARGET_DESCRIPTORS));
    }
    let mut found = Vec::with_capacity(CSCDS_MAX);
    for (n, one) in bytes.chunks(CSCD_BYTES).enumerate() {
        let wrong = |byte: usize| Sense::in_list((HEAD_BYTES + n * CSCD_BYTES + byte) as u16, None);
        if one[0] != CSCD_IDENTIFICATION {
            let mut sense = wrong(0);
            sense.code = asc::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE;
            return Err(sense);
        }
        if one.len() < CSCD_BYTES {
            return Err(Sense::list_length());
        }
        let mut designator = [0; 20];
        designator.copy_from_slice(&one[8..28]);
        if usize::from(one[7]) > designator.len() {
            return Err(wrong(7));
        }
        let is_block_device = one[1] & 0x1f == 0;
        let has_port = number(&one[2..4]) != 0;
        found.push(Cscd {
            code_set: one[4] & 0x0f,
            association: one[5] >> 4 & 0x03,
            kind: one[5] & 0x0f,
            designator,
            len: one[7],
            block_bytes: number(&one[29..32]) as u32,
            fault: match (is_block_device, has_port) {
                (false, _) => Some(asc::INCORRECT_COPY_TARGET_DEVICE_TYPE),
                // There is no initiator port that could be meant.
                (true, true) => Some(asc::UNREACHABLE_COPY_TARGET),
                (true, false) => None,
            },
        });
    }
    Ok(found)
}

fn segments_of(bytes: &[u8], at: usize, cscds: usize) -> Result<Vec<Segment>, Sense> {
    if bytes.len() > SEGMENTS_MAX * SEGMENT_BYTES {
        return Err(Sense::illegal(asc::TOO_MANY_SEGMENT_DESCRIPTORS));
    }
    let place = |id: u64| match id {
        id if id == u64::from(CSCD_HERE) => CopyEnd::Here,
        id if id < cscds as u64 => CopyEnd::Cscd(id as usize),
        _ => CopyEnd::Unknown,
    };
    let mut found = Vec::with_capacity(SEGMENTS_MAX);
    for (n, one) in bytes.chunks(SEGMENT_BYTES).enumerate() {
        let wrong = |byte: usize| Sense::in_list((at + n * SEGMENT_BYTES + byte) as u16, None);
        if one[0] != SEGMENT_BLOCK_TO_BLOCK {
            let mut sense = wrong(0);
            sense.code = asc::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE;
            return Err(sense);
        }
        if one.len() < SEGMENT_BYTES {
            return Err(Sense::list_length());
        }
        if number(&one[2..4]) as usize != SEGMENT_BYTES - 4 {
            return Err(wrong(2));
        }
        found.push(Segment {
            source: place(number(&one[4..6])),
            destination: place(number(&one[6..8])),
            blocks: number(&one[10..12]) as u16,
            counts_destination: one[1] & 0x02 != 0,
            source_lba: number(&one[12..20]),
            destination_lba: number(&one[20..28]),
        });
    }
    Ok(found)
}

/// Designator types, with the code set of each (SPC-4, section 7.8.6).
const EUI_64: (u8, u8) = (0x2, 0x1);
const NAA: (u8, u8) = (0x3, 0x1);
const UUID: (u8, u8) = (0xa, 0x1);
/// What a UUID designator begins with.
const UUID_HEAD: [u8; 2] = [0x10, 0x00];

impl Cscd {
    /// Whether it names the logical unit of this identity.
    pub fn names(&self, identity: &UnitIdentity) -> bool {
        let named = &self.designator[..usize::from(self.len)];
        self.association == 0
            && match (self.kind, self.code_set) {
                EUI_64 => {
                    named == identity.nguid || (identity.eui64).is_some_and(|eui| named == eui)
                }
                NAA => named == identity.naa,
                UUID => (named.strip_prefix(&UUID_HEAD)).is_some_and(|uuid| uuid == identity.uuid),
                _ => false,
            }
    }

    /// Why it cannot be used, whomever it names.
    pub fn fault(&self) -> Option<u16> {
        self.fault
    }
}

impl Segment {
    /// How many bytes it copies between units with these block sizes, and where
    /// from and to. Refused with an additional sense code: a count that is none
    /// of the other's blocks, or no number of bytes.
    pub fn bytes(&self, source_block: u32, destination_block: u32) -> Result<Bytes, u16> {
        let unit = match self.counts_destination {
            true => destination_block,
            false => source_block,
        };
        let len = u64::from(self.blocks) * u64::from(unit);
        let is_whole = |block: u32| len.is_multiple_of(u64::from(block));
        if !is_whole(source_block) || !is_whole(destination_block) {
            return Err(asc::UNEXPECTED_INEXACT_SEGMENT);
        }
        let at = |lba: u64, block: u32| {
            let start = lba.checked_mul(u64::from(block))?;
            start.checked_add(len).map(|_| start)
        };
        let source = at(self.source_lba, source_block);
        let destination = at(self.destination_lba, destination_block);
        match (source, destination) {
            (Some(source), Some(destination)) => Ok(Bytes {
                source,
                destination,
                len,
            }),
            _ => Err(asc::NO_ADDITIONAL_SENSE_INFORMATION),
        }
    }
}

/// What a segment copies, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// First byte of the source.
    pub source: u64,
    /// First byte of the destination.
    pub destination: u64,
    /// How many.
    pub len: u64,
}

/// COPY ABORTED in a segment, those before which are copied (SPC-4, section
/// 5.17.7.4): its number is in the command-specific information.
pub fn aborted(segment: usize, code: u16) -> Sense {
    let mut sense = Sense::new(key::COPY_ABORTED, code);
    sense.command_information = Some(segment as u64);
    sense.specific = Specific::None;
    sense
}

/// RECEIVE COPY OPERATING PARAMETERS (SPC-4, section 6.20.4).
fn operating_parameters() -> Vec<u8> {
    let mut out = vec![0; 44];
    // SNLID: copies without a list identifier.
    out[4] = 0x01;
    out[8..10].copy_from_slice(&(CSCDS_MAX as u16).to_be_bytes());
    out[10..12].copy_from_slice(&(SEGMENTS_MAX as u16).to_be_bytes());
    out[12..16].copy_from_slice(&(DESCRIPTORS_BYTES_MAX as u32).to_be_bytes());
    out[16..20].copy_from_slice(&SEGMENT_BYTES_MAX.to_be_bytes());
    out[34..36].copy_from_slice(&(HELD_MAX as u16).to_be_bytes());
    out[36] = HELD_MAX as u8;
    // Data goes in blocks of 512 bytes at least.
    out[37] = 9;
    let implemented = [SEGMENT_BLOCK_TO_BLOCK, CSCD_IDENTIFICATION];
    out[43] = implemented.len() as u8;
    out.extend(implemented);
    let available = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&available.to_be_bytes());
    out
}

/// How a copy stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyState {
    UnderWay,
    Done,
    Failed(SenseBytes),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeldCopy {
    id: u8,
    keeps: bool,
    state: CopyState,
    segments: u16,
    bytes: u64,
}

/// The copies of one nexus: those under way, and what is remembered of others.
#[derive(Clone, Debug, Default)]
pub struct NexusCopies {
    /// The oldest first.
    held: Vec<HeldCopy>,
}

impl NexusCopies {
    /// A copy begins. Refused while another with the same list identifier is
    /// under way, or too many are.
    pub fn begin(&mut self, list: &List) -> Result<(), Sense> {
        let Some(id) = list.id else { return Ok(()) };
        let is_under_way = |held: &HeldCopy| held.state == CopyState::UnderWay;
        if self
            .held
            .iter()
            .any(|held| held.id == id && is_under_way(held))
        {
            return Err(Sense::illegal(asc::OPERATION_IN_PROGRESS));
        }
        self.held.retain(|held| held.id != id);
        if self.held.len() >= HELD_MAX {
            match self.held.iter().position(|held| !is_under_way(held)) {
                Some(oldest) => drop(self.held.remove(oldest)),
                None => {
                    return Err(Sense::new(
                        key::ABORTED_COMMAND,
                        asc::SYSTEM_RESOURCE_FAILURE,
                    ));
                }
            }
        }
        self.held.push(HeldCopy {
            id,
            keeps: list.keeps,
            state: CopyState::UnderWay,
            segments: 0,
            bytes: 0,
        });
        Ok(())
    }

    fn of(&mut self, id: Option<u8>) -> Option<&mut HeldCopy> {
        let id = id?;
        self.held.iter_mut().find(|held| held.id == id)
    }

    /// So many segments, and bytes of all, have been copied.
    pub fn advance(&mut self, id: Option<u8>, segments: u16, bytes: u64) {
        if let Some(held) = self.of(id) {
            (held.segments, held.bytes) = (segments, bytes);
        }
    }

    /// A copy has ended; with sense data if it failed.
    pub fn end(&mut self, id: Option<u8>, failure: Option<SenseBytes>) {
        let Some(held) = self.of(id) else { return };
        held.state = failure.map_or(CopyState::Done, CopyState::Failed);
        if !held.keeps {
            self.held.retain(|held| Some(held.id) != id);
        }
    }

    /// The copy was aborted: nothing is remembered of it.
    pub fn forget(&mut self, id: Option<u8>) {
        self.held.retain(|held| Some(held.id) != id);
    }

    /// The answer to RECEIVE COPY RESULTS with a service action of
    /// `receive_copy_results`, cut to the allocation length.
    pub fn results(
        &mut self,
        action: u8,
        list_id: u8,
        allocation_len: u32,
    ) -> Result<Vec<u8>, Sense> {
        let mut out = match action {
            results::OPERATING_PARAMETERS => operating_parameters(),
            results::COPY_STATUS => self.status(list_id)?,
            results::FAILED_SEGMENT_DETAILS => self.failure(list_id)?,
            _ => return Err(Sense::in_cdb(1, Some(4))),
        };
        out.truncate(allocation_len as usize);
        Ok(out)
    }

    /// RECEIVE COPY STATUS(LID1) (SPC-4, section 6.20.2).
    fn status(&mut self, list_id: u8) -> Result<Vec<u8>, Sense> {
        let held = self.of(Some(list_id)).ok_or(Sense::in_cdb(2, None))?;
        let state = match held.state {
            CopyState::UnderWay => 0x00,
            CopyState::Done => 0x01,
            CopyState::Failed(_) => 0x02,
        };
        // The count in the smallest unit that holds it: bytes, KiB, MiB, ...
        let mut count = held.bytes;
        let mut unit = 0;
        while count > u64::from(u32::MAX) {
            count >>= 10;
            unit += 1;
        }
        let mut out = vec![0, 0, 0, 8, state];
        out.extend(held.segments.to_be_bytes());
        out.push(unit);
        out.extend((count as u32).to_be_bytes());
        Ok(out)
    }

    /// RECEIVE COPY FAILURE DETAILS(LID1) (SPC-4, section 6.20.5), which are told
    /// once.
    fn failure(&mut self, list_id: u8) -> Result<Vec<u8>, Sense> {
        let held = self.of(Some(list_id)).ok_or(Sense::in_cdb(2, None))?;
        let CopyState::Failed(sense) = held.state else {
            return Err(Sense::in_cdb(2, None));
        };
        let sense = sense.as_slice();
        let mut out = vec![0; 60];
        out[56] = wire::scsi::status::CHECK_CONDITION;
        out[58..60].copy_from_slice(&(sense.len() as u16).to_be_bytes());
        out.extend(sense);
        let available = (out.len() - 4) as u32;
        out[..4].copy_from_slice(&available.to_be_bytes());
        self.forget(Some(list_id));
        Ok(out)
    }
}

#[cfg(test)]
mod tests;
