//! COMPOUNDs as they are written and their answers as they are read.

use wire::nfs4::{WRITE4args, compound_head, compound_res_head, nfs_argop4, nfs_opnum4};
use wire::nfs4::{nfs_resop4, nfsstat4};
use wire::xdr::{Decode, Encode, Opaque, Payload, Reader, XdrError, pad};

/// Bytes of READ's arguments behind and with its offset.
const READ_OFFSET: usize = 8 + 4;
/// The same of WRITE's, without its data.
const WRITE_OFFSET: usize = 8 + 4 + 4;
/// Bytes of SEQUENCE's arguments behind and with its sequence id.
const SEQUENCE_ID: usize = 4 * 4;

/// The data of a call that has memory of its own, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallData {
    /// None: all of the call and of its answer lies in buffers of the connection.
    #[default]
    None,
    /// The data of the READs, one behind the other: at most so many.
    In(u32),
    /// The data of the one WRITE that has been given to [`Compound::op`]: exactly
    /// so many.
    Out(u32),
}

/// Where in a record values stand that change from call to call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    /// `sa_sequenceid` of SEQUENCE, with `sa_slotid` behind it.
    pub sequence: Option<u32>,
    /// The offset of the last READ or WRITE.
    pub offset: Option<u32>,
    /// The data of the WRITE whose data has memory of its own.
    pub payload: Option<u32>,
}

/// A COMPOUND that is being written.
#[derive(Debug)]
pub struct Compound<'a> {
    to: &'a mut Vec<u8>,
    count_at: usize,
    ops: u32,
    places: Places,
}

impl<'a> Compound<'a> {
    pub(super) fn begin(to: &'a mut Vec<u8>, minor: u32) -> Compound<'a> {
        let head = compound_head {
            tag: Opaque(b""),
            minorversion: minor,
            ops: 0,
        };
        head.encode(to);
        Compound {
            count_at: to.len() - size_of::<u32>(),
            to,
            ops: 0,
            places: Places::default(),
        }
    }

    /// Appends an operation. The data of a WRITE is in memory of its own: only
    /// one of a COMPOUND can be like that.
    pub fn op(&mut self, op: &nfs_argop4<'_>) -> &mut Self {
        op.encode(self.to);
        self.ops += 1;
        let end = self.to.len();
        match op {
            nfs_argop4::OP_SEQUENCE(_) => self.places.sequence = Some((end - SEQUENCE_ID) as u32),
            nfs_argop4::OP_READ(_) => self.places.offset = Some((end - READ_OFFSET) as u32),
            nfs_argop4::OP_WRITE(args) => {
                self.places.offset = Some((end - WRITE_OFFSET) as u32);
                if args.data.len > 0 {
                    assert!(self.places.payload.is_none(), "one WRITE has memory");
                    self.places.payload = Some(end as u32);
                }
            }
            _ => {}
        }
        self
    }

    /// Appends a WRITE whose data goes into the call's own buffer.
    pub fn write(&mut self, args: WRITE4args, data: &[u8]) -> &mut Self {
        let args = WRITE4args {
            data: Payload {
                len: data.len() as u32,
            },
            ..args
        };
        nfs_argop4::OP_WRITE(args).encode(self.to);
        self.ops += 1;
        self.to.extend_from_slice(data);
        self.to.extend_from_slice(&[0; 3][..pad(data.len())]);
        self
    }

    pub(super) fn end(self) -> Places {
        let count = self.count_at..self.count_at + size_of::<u32>();
        self.to[count].copy_from_slice(&self.ops.to_be_bytes());
        self.places
    }
}

/// Why a result is not what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// The operation ended with this status.
    #[error("{}: {:?}", format!("{:?}", .0).trim_start_matches("OP_"), .1)]
    Status(nfs_opnum4, nfsstat4),
    /// The answer cannot be read, or answers something else.
    #[error("an answer that makes no sense")]
    Answer,
}

impl Wrong {
    /// The status that the operation ended with.
    #[must_use]
    pub fn status(&self) -> Option<nfsstat4> {
        match self {
            Wrong::Status(_, status) => Some(*status),
            Wrong::Answer => None,
        }
    }
}

impl From<XdrError> for Wrong {
    fn from(_: XdrError) -> Wrong {
        Wrong::Answer
    }
}

/// How nearly all answers begin: NFS4_OK, and no tag.
const COMMON: [u8; 8] = [0; 8];

/// The results of a COMPOUND, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Results<'a> {
    /// How the COMPOUND ended: as its last result.
    pub status: nfsstat4,
    from: Reader<'a>,
    left: u32,
    /// The data of READs is not here.
    is_placed: bool,
}

impl<'a> Results<'a> {
    /// What follows the header of RPC in an answer. `is_placed`: the data of READs
    /// is not among it.
    ///
    /// # Errors
    /// That it is no answer to a COMPOUND.
    #[inline]
    pub fn read(bytes: &'a [u8], is_placed: bool) -> Result<Results<'a>, XdrError> {
        let mut from = Reader::new(bytes);
        if bytes.starts_with(&COMMON) {
            from.take(COMMON.len())?;
            return Ok(Results {
                status: nfsstat4::NFS4_OK,
                left: u32::decode(&mut from)?,
                from,
                is_placed,
            });
        }
        let head = compound_res_head::decode(&mut from)?;
        Ok(Results {
            status: head.status,
            from,
            left: head.results,
            is_placed,
        })
    }

    /// How many results are left.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left
    }

    /// The next result, whatever it is; of a READ whose data is here, that is
    /// [`Results::data`]. `None`: there is none, or it makes no sense.
    pub fn any(&mut self) -> Option<nfs_resop4<'a>> {
        self.left = self.left.checked_sub(1)?;
        nfs_resop4::decode(&mut self.from).ok()
    }

    /// The result of `number`, which has nothing behind its status.
    ///
    /// # Errors
    /// It ended otherwise, or another result stands here.
    #[inline]
    pub fn done(&mut self, number: nfs_opnum4) -> Result<(), Wrong> {
        let Some(left) = self.left.checked_sub(1) else {
            // Of what was refused as a whole there is no result.
            return Err(self.wrong(number, number as u32));
        };
        self.left = left;
        let found = u32::decode(&mut self.from)?;
        let is_ok = u32::decode(&mut self.from)? == nfsstat4::NFS4_OK as u32;
        if found == number as u32 && is_ok {
            return Ok(());
        }
        Err(self.wrong(number, found))
    }

    /// What stands where a success of `number` was expected.
    #[cold]
    fn wrong(&self, number: nfs_opnum4, found: u32) -> Wrong {
        // An operation that is not known there at all is answered as another.
        if found != number as u32 && found != nfs_opnum4::OP_ILLEGAL as u32 {
            return Wrong::Answer;
        }
        match self.status {
            nfsstat4::NFS4_OK => Wrong::Answer,
            status => Wrong::Status(number, status),
        }
    }

    /// The result of `number`, behind whose status is a `T`.
    ///
    /// # Errors
    /// It ended otherwise, or another result stands here.
    #[inline]
    pub fn take<T: Decode<'a>>(&mut self, number: nfs_opnum4) -> Result<T, Wrong> {
        self.done(number)?;
        Ok(T::decode(&mut self.from)?)
    }

    /// The `len` bytes that the READ whose result was taken last has read, where
    /// they are here.
    ///
    /// # Errors
    /// They are not.
    pub fn data(&mut self, len: u32) -> Result<&'a [u8], Wrong> {
        match self.is_placed {
            true => Err(Wrong::Answer),
            false => Ok(self.from.opaque(len as usize)?),
        }
    }

    /// What follows the results that were taken.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.from.rest()
    }
}
