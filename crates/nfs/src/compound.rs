//! A COMPOUND as a row of operations (RFC 8881, sections 2.10.2 and 16.2; RFC
//! 7530, section 15.2): which comes next and may stand there, and how the
//! answer is put together. What an operation does is decided elsewhere.

use machine::Tag;
use wire::nfs4::{compound_head, nfs_argop4, nfs_opnum4, nfsstat4};
use wire::xdr::{Decode, Encode, Reader};

use crate::connection::{Call, Reply, Stop};

/// The highest minor version.
pub const MINOR_MAX: u32 = 2;

/// Where a COMPOUND stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compound {
    minor: u32,
    ops: u32,
    /// Operations that were taken.
    taken: u32,
    /// WRITEs with data among them.
    writes: u32,
    /// Where the next begins in the arguments, and the one that was taken last.
    at: u32,
    op_at: u32,
    number: nfs_opnum4,
    /// Where the status stands in the answer, and the number of results.
    status_at: u32,
    count_at: u32,
    results: u32,
    status: nfsstat4,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This operation, whose arguments [`Compound::args`] reads; of a WRITE,
    /// what names its data.
    Op(nfs_opnum4, Option<Tag>),
    /// An operation that cannot be executed: its result is this status, and the
    /// last one.
    Refused(nfs_opnum4, nfsstat4),
    /// Nothing.
    End,
}

impl Compound {
    /// The beginning of a call, and of its answer.
    pub fn begin(call: &Call<'_>, reply: &mut Reply) -> Compound {
        let mut from = Reader::new(call.args);
        let head = compound_head::decode(&mut from).expect("the connection has read it");
        let to = reply.bytes();
        let status_at = to.len() as u32;
        let is_known = head.minorversion <= MINOR_MAX;
        let status = match is_known {
            true => nfsstat4::NFS4_OK,
            false => nfsstat4::NFS4ERR_MINOR_VERS_MISMATCH,
        };
        status.encode(to);
        head.tag.encode(to);
        let count_at = to.len() as u32;
        0u32.encode(to);
        Compound {
            minor: head.minorversion.min(MINOR_MAX),
            ops: if is_known { head.ops } else { 0 },
            taken: 0,
            writes: 0,
            at: from.position() as u32,
            op_at: 0,
            number: nfs_opnum4::OP_ILLEGAL,
            status_at,
            count_at,
            results: 0,
            status,
        }
    }

    /// Its minor version.
    pub fn minor(&self) -> u32 {
        self.minor
    }

    /// Operations in all.
    pub fn ops(&self) -> u32 {
        self.ops
    }

    /// Operations that were taken.
    pub fn taken(&self) -> u32 {
        self.taken
    }

    /// The number of the one that was taken last.
    #[inline]
    pub fn number(&self) -> nfs_opnum4 {
        self.number
    }

    /// The next operation of the call that it began with, which has these
    /// arguments ([`Call::args`]).
    #[inline]
    pub fn next(&mut self, args: &[u8], call: &Call<'_>) -> Next {
        if self.taken == self.ops || self.status != nfsstat4::NFS4_OK {
            return Next::End;
        }
        let rest = &args[self.at as usize..];
        let number = Call::number(rest);
        let index = self.taken;
        self.taken += 1;
        let Some(number) = number else {
            return match call.stop {
                // The record ends before the number does.
                Stop::BadXdr if rest.len() < size_of::<u32>() => {
                    Next::Refused(nfs_opnum4::OP_ILLEGAL, nfsstat4::NFS4ERR_BADXDR)
                }
                _ => Next::Refused(nfs_opnum4::OP_ILLEGAL, nfsstat4::NFS4ERR_OP_ILLEGAL),
            };
        };
        if let Err(status) = self.check(number, index) {
            let number = match status {
                nfsstat4::NFS4ERR_OP_ILLEGAL => nfs_opnum4::OP_ILLEGAL,
                _ => number,
            };
            return Next::Refused(number, status);
        }
        self.number = number;
        if index >= call.ops {
            return match call.stop {
                Stop::Unsupported => Next::Refused(number, nfsstat4::NFS4ERR_NOTSUPP),
                Stop::TooMany => Next::Refused(number, self.too_many()),
                Stop::TooLarge => Next::Refused(number, self.too_large()),
                Stop::Delay => Next::Refused(number, nfsstat4::NFS4ERR_DELAY),
                Stop::BadXdr | Stop::End => Next::Refused(number, nfsstat4::NFS4ERR_BADXDR),
            };
        }
        self.op_at = self.at;
        self.at += NUMBER_BYTES;
        let payload = match number {
            nfs_opnum4::OP_WRITE => {
                self.writes += 1;
                call.payloads[self.writes as usize - 1]
            }
            _ => None,
        };
        Next::Op(number, payload)
    }

    /// The arguments of the operation that [`Compound::next`] gave last, to be
    /// read before the next is taken; not more than once.
    #[inline]
    pub fn args<'a, T: Decode<'a>>(&mut self, args: &'a [u8]) -> T {
        let mut from = Reader::new(&args[self.at as usize..]);
        let value = T::decode(&mut from).expect("the connection has read it");
        self.at += from.position() as u32;
        value
    }

    /// The arguments of the operation that was given last may be read again.
    pub fn rewind_args(&mut self) {
        self.at = self.op_at + NUMBER_BYTES;
    }

    /// The operation that [`Compound::next`] gave last, once more.
    #[inline]
    pub fn last_op<'a>(&self, args: &'a [u8]) -> nfs_argop4<'a> {
        let mut from = Reader::new(&args[self.op_at as usize..]);
        nfs_argop4::decode(&mut from).expect("it was read before")
    }

    /// The operation behind the one that [`Compound::next`] gave last, whose arguments were read;
    /// `None` where there is none that can be read.
    pub fn following<'a>(&self, args: &'a [u8], call: &Call<'_>) -> Option<nfs_argop4<'a>> {
        let is_read = self.taken < call.ops;
        let from = &mut Reader::new(&args[self.at as usize..]);
        is_read.then(|| nfs_argop4::decode(from).ok()).flatten()
    }

    fn too_many(&self) -> nfsstat4 {
        match self.minor {
            0 => nfsstat4::NFS4ERR_RESOURCE,
            _ => nfsstat4::NFS4ERR_TOO_MANY_OPS,
        }
    }

    /// As of a request that its session does not allow (RFC 8881, section 2.10.6.4).
    fn too_large(&self) -> nfsstat4 {
        match self.minor {
            0 => nfsstat4::NFS4ERR_RESOURCE,
            _ => nfsstat4::NFS4ERR_REQ_TOO_BIG,
        }
    }

    /// Whether an operation is one of the minor version, and may stand there.
    #[inline]
    fn check(&self, number: nfs_opnum4, index: u32) -> Result<(), nfsstat4> {
        use nfs_opnum4 as op;
        let last = match self.minor {
            0 => op::OP_RELEASE_LOCKOWNER,
            1 => op::OP_RECLAIM_COMPLETE,
            _ => op::OP_REMOVEXATTR,
        };
        if number as u32 > last as u32 {
            return Err(nfsstat4::NFS4ERR_OP_ILLEGAL);
        }
        if self.minor == 0 {
            return Ok(());
        }
        if GONE_WITH_SESSIONS.contains(&number) {
            return Err(nfsstat4::NFS4ERR_NOTSUPP);
        }
        let is_alone = self.ops == 1;
        match (number, index) {
            (op::OP_SEQUENCE, 0) => Ok(()),
            (op::OP_SEQUENCE, _) => Err(nfsstat4::NFS4ERR_SEQUENCE_POS),
            (op::OP_BIND_CONN_TO_SESSION, _) if !is_alone => Err(nfsstat4::NFS4ERR_NOT_ONLY_OP),
            (_, 1..) => Ok(()),
            _ if !WITHOUT_SESSION.contains(&number) => Err(nfsstat4::NFS4ERR_OP_NOT_IN_SESSION),
            _ if !is_alone => Err(nfsstat4::NFS4ERR_NOT_ONLY_OP),
            _ => Ok(()),
        }
    }

    /// The result of the operation that was taken last begins with its number
    /// and status; what more it has is to be appended. An error ends the
    /// COMPOUND.
    #[inline]
    pub fn result(&mut self, number: nfs_opnum4, status: nfsstat4, reply: &mut Reply) {
        let to = reply.bytes();
        number.encode(to);
        status.encode(to);
        self.results += 1;
        self.status = status;
    }

    /// The result that was appended last becomes another one, taken back up to
    /// `mark`, which was made before it: an answer grew too long.
    pub fn replace_result(
        &mut self,
        mark: crate::connection::Mark,
        number: nfs_opnum4,
        status: nfsstat4,
        reply: &mut Reply,
    ) {
        reply.back_to(mark);
        self.results -= 1;
        self.result(number, status, reply);
    }

    /// All results are there.
    #[inline]
    pub fn end(&self, reply: &mut Reply) {
        let (status_at, count_at) = (self.status_at as usize, self.count_at as usize);
        let to = reply.bytes();
        to[status_at..status_at + 4].copy_from_slice(&(self.status as u32).to_be_bytes());
        to[count_at..count_at + 4].copy_from_slice(&self.results.to_be_bytes());
    }
}

/// Bytes of an operation's number.
const NUMBER_BYTES: u32 = 4;

/// What needs no SEQUENCE before it, and then stands alone.
const WITHOUT_SESSION: &[nfs_opnum4] = &[
    nfs_opnum4::OP_BIND_CONN_TO_SESSION,
    nfs_opnum4::OP_EXCHANGE_ID,
    nfs_opnum4::OP_CREATE_SESSION,
    nfs_opnum4::OP_DESTROY_SESSION,
    nfs_opnum4::OP_DESTROY_CLIENTID,
];

/// What version 4.1 must not have any more (RFC 8881, section 17).
const GONE_WITH_SESSIONS: &[nfs_opnum4] = &[
    nfs_opnum4::OP_OPEN_CONFIRM,
    nfs_opnum4::OP_RENEW,
    nfs_opnum4::OP_SETCLIENTID,
    nfs_opnum4::OP_SETCLIENTID_CONFIRM,
    nfs_opnum4::OP_RELEASE_LOCKOWNER,
];

#[cfg(test)]
mod tests;
