//! Copies by ROD tokens: POPULATE TOKEN and WRITE USING TOKEN as their parameter lists say them
//! (SBC-4, sections 5.12 and 5.59), tokens, and what RECEIVE ROD TOKEN INFORMATION tells
//! (SBC-4, section 5.25; SPC-4, section 6.25).

use wire::scsi::{SenseBytes, asc, key, status};

use crate::copy::HELD_MAX;
use crate::sense::Sense;
use crate::unit::Unit;
use crate::unmap::Range;

/// Bytes of a ROD token.
pub const TOKEN_BYTES: usize = 512;
/// Block device range descriptors of a list at most.
pub const RANGES_MAX: usize = 64;
/// Bytes that one token names, and one command copies, at most.
pub const TRANSFER_BYTES_MAX: u64 = 256 << 20;
/// How long a token lasts that is not used, where the initiator does not say.
pub const TIMEOUT_DEFAULT_S: u32 = 60;
/// The same at most.
pub const TIMEOUT_MAX_S: u32 = 600;
/// Point in time copy - default (SPC-4, table 107).
pub(crate) const POINT_IN_TIME: u32 = 0x0080_0000;
/// Block device zero ROD token (SBC-4, section 4.28.4).
pub(crate) const ZERO: u32 = 0xffff_0001;
/// ROD TOKEN LENGTH: what follows that field.
const TOKEN_LEN: u16 = 0x01f8;

const POPULATE_HEAD_BYTES: usize = 16;
const USING_HEAD_BYTES: usize = 536;
const RANGE_BYTES: usize = 16;
/// TRANSFER COUNT is of logical blocks.
const COUNTS_BLOCKS: u8 = 0xf1;

/// A ROD token. It is a secret: who has it may read what it names.
pub type Token = [u8; TOKEN_BYTES];

/// What POPULATE TOKEN is to name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Populate {
    /// INACTIVITY TIMEOUT, seconds, never 0.
    pub timeout_s: u32,
    /// In the order of the data that they name, apart from each other.
    pub ranges: Vec<Range>,
}

/// What WRITE USING TOKEN is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteUsing {
    /// IMMED: the command ends well, and failures are told by RECEIVE ROD TOKEN INFORMATION.
    pub is_immediate: bool,
    /// DEL_TKN: the token is not needed any more.
    pub deletes: bool,
    /// The first byte of the data that the token names.
    pub offset: u64,
    /// ROD TOKEN.
    pub token: Box<Token>,
    /// Where the data goes, apart from each other.
    pub ranges: Vec<Range>,
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

/// The bytes of the ranges together.
pub fn total(ranges: &[Range]) -> u64 {
    ranges.iter().map(|range| range.len).sum()
}

/// The head of a list, and its ranges, whose length stands in its last two bytes.
fn split<'a, const N: usize>(
    list: &'a [u8],
    unit: &Unit,
) -> Result<(&'a [u8; N], Vec<Range>), Sense> {
    let Some((head, rest)) = list.split_first_chunk::<N>() else {
        return Err(Sense::list_length());
    };
    if (number(&head[..2]) as usize) < N - 2 + RANGE_BYTES {
        return Err(Sense::in_list(0, None));
    }
    let len = number(&head[N - 2..]) as usize;
    if len < RANGE_BYTES {
        return Err(Sense::in_list(N as u16 - 2, None));
    }
    if len / RANGE_BYTES > RANGES_MAX {
        return Err(Sense::illegal(asc::TOO_MANY_SEGMENT_DESCRIPTORS));
    }
    let descriptors = rest[..len.min(rest.len())].chunks_exact(RANGE_BYTES);
    let mut ranges = Vec::with_capacity(descriptors.len());
    for (n, one) in descriptors.enumerate() {
        let (lba, blocks) = (number(&one[..8]), number(&one[8..12]));
        if lba
            .checked_add(blocks)
            .is_none_or(|end| end > unit.block_count)
        {
            return Err(Sense::out_of_range().with_information(lba.max(unit.block_count)));
        }
        let block = u64::from(unit.block_bytes);
        if blocks > 0 {
            ranges.push(Range {
                offset: lba * block,
                len: blocks * block,
            });
        }
        if total(&ranges) > TRANSFER_BYTES_MAX {
            return Err(Sense::in_list((N + n * RANGE_BYTES + 8) as u16, None));
        }
    }
    let mut sorted = ranges.clone();
    sorted.sort_unstable_by_key(|range| range.offset);
    let overlap = |pair: &[Range]| pair[0].offset + pair[0].len > pair[1].offset;
    match sorted.windows(2).any(overlap) {
        true => Err(Sense::in_list(N as u16, None)),
        false => Ok((head, ranges)),
    }
}

impl Populate {
    /// Reads a parameter list that is not empty (an empty one does nothing).
    pub fn parse(list: &[u8], unit: &Unit) -> Result<Populate, Sense> {
        let (head, ranges) = split::<POPULATE_HEAD_BYTES>(list, unit)?;
        let timeout_s = match number(&head[4..8]) as u32 {
            0 => TIMEOUT_DEFAULT_S,
            asked if asked > TIMEOUT_MAX_S => return Err(Sense::in_list(4, None)),
            asked => asked,
        };
        // RTV: the initiator says which type it wants.
        let wants = number(&head[8..12]) as u32;
        if head[2] & 0x02 != 0 && wants != POINT_IN_TIME {
            return Err(Sense::in_list(8, None));
        }
        Ok(Populate { timeout_s, ranges })
    }
}

impl WriteUsing {
    /// Reads a parameter list that is not empty (an empty one does nothing).
    pub fn parse(list: &[u8], unit: &Unit) -> Result<WriteUsing, Sense> {
        let (head, ranges) = split::<USING_HEAD_BYTES>(list, unit)?;
        let offset = number(&head[8..16]).checked_mul(unit.block_bytes.into());
        let token: Box<Token> = Box::new(head[16..528].try_into().expect("512 bytes"));
        if token[6..8] != TOKEN_LEN.to_be_bytes() {
            return Err(Sense::illegal(asc::INVALID_TOKEN_LENGTH));
        }
        Ok(WriteUsing {
            is_immediate: head[2] & 0x01 != 0,
            deletes: head[2] & 0x02 != 0,
            offset: offset.ok_or(Sense::in_list(8, None))?,
            token,
            ranges,
        })
    }

    /// Whether the token stands for zeros, without end.
    pub fn is_of_zeros(&self) -> bool {
        number(&self.token[..4]) == u64::from(ZERO)
    }
}

/// The token of a number and a secret, for so many bytes of the unit with an NAA designator and
/// a block length (SPC-4, table 108).
pub fn token(
    id: u64,
    secret: &[u8; 32],
    bytes: u64,
    (naa, block_bytes): (&[u8], u32),
) -> Box<Token> {
    let mut token = Box::new([0; TOKEN_BYTES]);
    token[..4].copy_from_slice(&POINT_IN_TIME.to_be_bytes());
    token[6..8].copy_from_slice(&TOKEN_LEN.to_be_bytes());
    token[8..16].copy_from_slice(&id.to_be_bytes());
    // The creator is a logical unit that its NAA designator names.
    token[16..24].copy_from_slice(&[0xe4, 0, 0, 0, 0x01, 0x03, 0, naa.len() as u8]);
    token[24..24 + naa.len()].copy_from_slice(naa);
    token[45..48].copy_from_slice(&block_bytes.to_be_bytes()[1..]);
    token[56..64].copy_from_slice(&bytes.to_be_bytes());
    token[96..100].copy_from_slice(&block_bytes.to_be_bytes());
    token[TOKEN_BYTES - 32..].copy_from_slice(secret);
    token
}

/// The number of a token.
pub fn id_of(token: &Token) -> u64 {
    number(&token[8..16])
}

/// How an operation stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OperationState {
    UnderWay,
    Done(Option<Box<Token>>),
    Failed(SenseBytes),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct HeldOperation {
    id: u32,
    action: u8,
    is_immediate: bool,
    state: OperationState,
    /// Blocks that it was asked for, and that are done.
    asked: u64,
    done: u64,
}

/// The operations with tokens of one nexus: those under way, and what is remembered of others.
#[derive(Clone, Debug, Default)]
pub struct NexusOperations {
    /// The oldest first.
    held: Vec<HeldOperation>,
}

impl NexusOperations {
    /// An operation begins that is asked for so many blocks. Refused while another with the
    /// same list identifier is under way, or too many are.
    pub fn begin(
        &mut self,
        id: u32,
        action: u8,
        is_immediate: bool,
        asked: u64,
    ) -> Result<(), Sense> {
        let is_under_way = |held: &HeldOperation| held.state == OperationState::UnderWay;
        let known = self.held.iter().position(|held| held.id == id);
        let place = match known {
            Some(at) if is_under_way(&self.held[at]) => {
                return Err(Sense::illegal(asc::OPERATION_IN_PROGRESS));
            }
            Some(at) => Some(at),
            None if self.held.len() < HELD_MAX => None,
            None => match self.held.iter().position(|held| !is_under_way(held)) {
                Some(oldest) => Some(oldest),
                None => {
                    let code = asc::SYSTEM_RESOURCE_FAILURE;
                    return Err(Sense::new(key::ABORTED_COMMAND, code));
                }
            },
        };
        place.map(|at| self.held.remove(at));
        self.held.push(HeldOperation {
            id,
            action,
            is_immediate,
            state: OperationState::UnderWay,
            asked,
            done: 0,
        });
        Ok(())
    }

    fn of(&mut self, id: u32) -> Option<&mut HeldOperation> {
        self.held.iter_mut().find(|held| held.id == id)
    }

    /// So many blocks are done.
    pub fn advance(&mut self, id: u32, done: u64) {
        if let Some(held) = self.of(id) {
            held.done = done;
        }
    }

    /// It has ended well, with a token if it was to make one.
    pub fn end(&mut self, id: u32, token: Option<Box<Token>>) {
        if let Some(held) = self.of(id) {
            held.state = OperationState::Done(token);
        }
    }

    /// It has failed.
    pub fn fail(&mut self, id: u32, sense: SenseBytes) {
        if let Some(held) = self.of(id) {
            held.state = OperationState::Failed(sense);
        }
    }

    /// It was aborted: nothing is remembered of it.
    pub fn forget(&mut self, id: u32) {
        self.held.retain(|held| held.id != id);
    }

    /// The answer to RECEIVE ROD TOKEN INFORMATION, cut to the allocation length.
    pub fn information(&self, id: u32, allocation_len: u32) -> Result<Vec<u8>, Sense> {
        let held = self.held.iter().find(|held| held.id == id);
        let held = held.ok_or(Sense::in_cdb(2, None))?;
        let (standing, completion, sense): (_, _, &[u8]) = match &held.state {
            OperationState::UnderWay if held.is_immediate => (0x12, status::GOOD, &[]),
            OperationState::UnderWay => (0x11, status::GOOD, &[]),
            OperationState::Done(_) if held.done < held.asked => (0x03, status::GOOD, &[]),
            OperationState::Done(_) => (0x01, status::GOOD, &[]),
            OperationState::Failed(sense) => (0x02, status::CHECK_CONDITION, sense.as_slice()),
        };
        let mut out = vec![0; 32];
        (out[4], out[5]) = (held.action, standing);
        // OPERATION COUNTER; no delay is known.
        out[7] = 1;
        out[8..12].fill(0xff);
        out[12] = completion;
        (out[13], out[14], out[15]) = (sense.len() as u8, sense.len() as u8, COUNTS_BLOCKS);
        out[16..24].copy_from_slice(&held.done.to_be_bytes());
        out.extend(sense);
        match &held.state {
            OperationState::Done(Some(token)) => {
                out.extend((TOKEN_BYTES as u32 + 2).to_be_bytes());
                out.extend([0; 2]);
                out.extend_from_slice(&token[..]);
            }
            _ => out.extend([0; 4]),
        }
        let available = (out.len() - 4) as u32;
        out[..4].copy_from_slice(&available.to_be_bytes());
        out.truncate(allocation_len as usize);
        Ok(out)
    }
}

#[cfg(test)]
mod tests;
