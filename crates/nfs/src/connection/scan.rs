//! What a record is made of, as far as the way of its bytes depends on it: the
//! header of RPC, that of a COMPOUND, operations up to the data of a WRITE, also
//! that of NFSv3. Everything here is a function of bytes.

use wire::mount3::{MOUNT_PROGRAM, MOUNT_V3, mount_proc3};
use wire::nfs3::{NFS_ACL_PROGRAM, NFS_ACL_V3, NFS_V3, WRITE3args, nfs_proc3, nfsacl_proc3};
use wire::nfs4::{
    BITMAP_WORDS_MAX, COMPONENT_BYTES_MAX, NFS4_FHSIZE, nfs_argop4, nfs_opnum4, stable_how4,
};
use wire::nfs4::{NFS_V4, NFS4_PROGRAM, NFSPROC4_COMPOUND, NFSPROC4_NULL, compound_head};
use wire::nlm4::{NLM_PROG, NLM4_VERS, nlm4_proc};
use wire::nsm::{SM_PROG, SM_VERS, sm_proc};
use wire::rpc::{
    AUTH_TLS, RPC_VERSION, RPCSEC_GSS, accept_stat, auth_stat, call_body, mismatch_info, msg_type,
    rejected_reply,
};
use wire::rpcbind::{PMAP_PROG, PMAP_VERS, RPCBVERS_3, RPCBVERS_4, pmap_proc, rpcb_proc};
use wire::rquota::{EXT_RQUOTAVERS, RQUOTAPROG, RQUOTAVERS, rquota_proc};
use wire::xdr::{Decode, Reader, XdrError};

use super::credential::Credential;
use super::reply::Refusal;
use super::{Procedure, Stop, tls};

/// How a record begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Header {
    Call {
        xid: u32,
        procedure: Procedure,
        credential: Credential,
    },
    /// A call that asks for TLS.
    Probe { xid: u32 },
    /// A call that nothing more is done for than to say why.
    Refused { xid: u32, why: Refusal },
    /// A call by RPCSEC_GSS, of which nothing is believed yet.
    Gss { xid: u32 },
    /// The answer to a callback.
    Answer { xid: u32 },
}

/// Reads the header of a record and says how long it is.
pub(super) fn header(bytes: &[u8]) -> Result<(usize, Header), XdrError> {
    let mut from = Reader::new(bytes);
    let xid = u32::decode(&mut from)?;
    if msg_type::decode(&mut from)? == msg_type::REPLY {
        return Ok((from.position(), Header::Answer { xid }));
    }
    let mut version = from;
    if u32::decode(&mut version)? != RPC_VERSION {
        // What follows in other versions is not known.
        let only = mismatch_info {
            low: RPC_VERSION,
            high: RPC_VERSION,
        };
        let why = Refusal::Denied(rejected_reply::RPC_MISMATCH(only));
        return Ok((version.position(), Header::Refused { xid, why }));
    }
    let call = match call_body::decode(&mut from) {
        Err(XdrError::Short) => return Err(XdrError::Short),
        Err(_) => {
            let why = Refusal::auth(auth_stat::AUTH_BADCRED);
            return Ok((from.position(), Header::Refused { xid, why }));
        }
        Ok(call) if call.cred.flavor == RPCSEC_GSS => {
            return Ok((from.position(), Header::Gss { xid }));
        }
        Ok(call) => call,
    };
    if call.cred.flavor == AUTH_TLS {
        let header = match tls::check_probe(&call).and_then(|()| procedure(&call)) {
            Ok(_) => Header::Probe { xid },
            Err(why) => Header::Refused { xid, why },
        };
        return Ok((from.position(), header));
    }
    let header = match admit(&call) {
        Ok((procedure, credential)) => Header::Call {
            xid,
            procedure,
            credential,
        },
        Err(why) => Header::Refused { xid, why },
    };
    Ok((from.position(), header))
}

/// The procedure of a call and its credential.
fn admit(call: &call_body<'_>) -> Result<(Procedure, Credential), Refusal> {
    let credential = Credential::of(call).map_err(Refusal::auth)?;
    Ok((procedure(call)?, credential))
}

/// The procedure of a call.
pub(super) fn procedure(call: &call_body<'_>) -> Result<Procedure, Refusal> {
    let procedure = match (call.prog, call.vers) {
        (NFS4_PROGRAM, NFS_V4) => match call.proc {
            NFSPROC4_NULL => Some(Procedure::Null),
            NFSPROC4_COMPOUND => Some(Procedure::Compound),
            _ => None,
        },
        (NFS4_PROGRAM, NFS_V3) => number_of(call.proc).map(|proc| match proc {
            nfs_proc3::NFSPROC3_NULL => Procedure::Null,
            proc => Procedure::Nfs3(proc),
        }),
        (NFS_ACL_PROGRAM, NFS_ACL_V3) => number_of(call.proc).map(|proc| match proc {
            nfsacl_proc3::ACLPROC3_NULL => Procedure::Null,
            proc => Procedure::Acl3(proc),
        }),
        (MOUNT_PROGRAM, MOUNT_V3) => number_of(call.proc).map(|proc| match proc {
            mount_proc3::MOUNTPROC3_NULL => Procedure::Null,
            proc => Procedure::Mount3(proc),
        }),
        (NLM_PROG, NLM4_VERS) => number_of(call.proc).map(|proc| match proc {
            nlm4_proc::NLMPROC4_NULL => Procedure::Null,
            proc => Procedure::Nlm4(proc),
        }),
        (SM_PROG, SM_VERS) => number_of(call.proc).map(|proc| match proc {
            sm_proc::SM_NULL => Procedure::Null,
            proc => Procedure::Nsm(proc),
        }),
        (RQUOTAPROG, version @ (RQUOTAVERS | EXT_RQUOTAVERS)) => {
            number_of(call.proc).map(|proc| match proc {
                rquota_proc::RQUOTAPROC_NULL => Procedure::Null,
                proc if version == RQUOTAVERS => Procedure::Rquota(proc),
                proc => Procedure::ExtRquota(proc),
            })
        }
        (PMAP_PROG, PMAP_VERS) => number_of(call.proc).map(|proc| match proc {
            pmap_proc::PMAPPROC_NULL => Procedure::Null,
            proc => Procedure::Pmap(proc),
        }),
        (PMAP_PROG, RPCBVERS_3 | RPCBVERS_4) => rpcb_procedure(call),
        (NFS4_PROGRAM, _) => return Err(Refusal::versions(NFS_V3, NFS_V4)),
        (NFS_ACL_PROGRAM, _) => return Err(Refusal::versions(NFS_ACL_V3, NFS_ACL_V3)),
        (MOUNT_PROGRAM, _) => return Err(Refusal::versions(MOUNT_V3, MOUNT_V3)),
        (NLM_PROG, _) => return Err(Refusal::versions(NLM4_VERS, NLM4_VERS)),
        (SM_PROG, _) => return Err(Refusal::versions(SM_VERS, SM_VERS)),
        (RQUOTAPROG, _) => return Err(Refusal::versions(RQUOTAVERS, EXT_RQUOTAVERS)),
        (PMAP_PROG, _) => return Err(Refusal::versions(PMAP_VERS, RPCBVERS_4)),
        _ => return Err(Refusal::stat(accept_stat::PROG_UNAVAIL)),
    };
    procedure.ok_or(Refusal::stat(accept_stat::PROC_UNAVAIL))
}

/// One of rpcbind, version 3 or 4: some came with version 4 (RFC 1833, section 2.2.1).
fn rpcb_procedure(call: &call_body<'_>) -> Option<Procedure> {
    use rpcb_proc::*;
    match number_of(call.proc)? {
        RPCBPROC_NULL => Some(Procedure::Null),
        RPCBPROC_GETVERSADDR | RPCBPROC_GETADDRLIST if call.vers == RPCBVERS_3 => None,
        proc => Some(Procedure::Rpcb(proc)),
    }
}

/// The procedure with this number, if there is one.
fn number_of<T: for<'a> Decode<'a>>(number: u32) -> Option<T> {
    T::decode(&mut Reader::new(&number.to_be_bytes())).ok()
}

/// Reads what stands before the operations of a COMPOUND: how long it is, and
/// how many operations follow.
#[inline]
pub(super) fn compound(bytes: &[u8]) -> Result<(usize, u32), XdrError> {
    // Without a tag, as nearly all are.
    if let (Some(0), Some(ops)) = (word(bytes, 0), word(bytes, 8)) {
        return Ok((12, ops));
    }
    let mut from = Reader::new(bytes);
    let head = compound_head::decode(&mut from)?;
    Ok((from.position(), head.ops))
}

/// Reads the arguments of an NFSv3 WRITE up to its data: how long they are, and
/// what they are. The file handle lies behind its length.
#[inline]
pub(super) fn write3(bytes: &[u8]) -> Result<(usize, WRITE3args<'_>), XdrError> {
    let mut from = Reader::new(bytes);
    let args = WRITE3args::decode(&mut from)?;
    match args.count == args.data.len {
        true => Ok((from.position(), args)),
        false => Err(XdrError::Value { what: "count" }),
    }
}

/// What an operation does to the current file handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandleUse {
    Keeps,
    /// It becomes these bytes of the operation.
    Put {
        at: u32,
        len: u32,
    },
    /// What it becomes is not known here.
    Changes,
}

/// An operation as far as its bytes are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Whole(HandleUse),
    /// So many bytes for this place of a file follow.
    Write {
        offset: u64,
        len: u32,
    },
    /// Nothing behind its number is looked at.
    Stop(Stop),
}

/// Bytes of an operation's number.
const NUMBER_BYTES: usize = 4;

/// Reads an operation, and says how long it is.
#[inline]
pub(super) fn operation(bytes: &[u8]) -> Result<(usize, Operation), XdrError> {
    match common(bytes) {
        Some(operation) => Ok(operation),
        None => any_operation(bytes),
    }
}

/// The number that lies at `at`.
#[inline]
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*word))
}

/// The same of the operations that most calls consist of, by their sizes alone:
/// their values are read once, when they are executed. `None` for any other,
/// and for what is not all there, or not right.
#[inline]
pub(super) fn common(bytes: &[u8]) -> Option<(usize, Operation)> {
    const KEEPS: Operation = Operation::Whole(HandleUse::Keeps);
    const CHANGES: Operation = Operation::Whole(HandleUse::Changes);
    let (len, operation) = match word(bytes, 0)? {
        SEQUENCE if word(bytes, 32)? <= 1 => (36, KEEPS),
        PUTFH => {
            let len = word(bytes, 4).filter(|len| *len <= NFS4_FHSIZE)?;
            let put = HandleUse::Put { at: 8, len };
            (8 + len.next_multiple_of(4) as usize, Operation::Whole(put))
        }
        READ | READ_PLUS => (32, KEEPS),
        WRITE if word(bytes, 28)? <= stable_how4::FILE_SYNC4 as u32 => {
            let offset = u64::from(word(bytes, 20)?) << 32 | u64::from(word(bytes, 24)?);
            let len = word(bytes, 32)?;
            (36, Operation::Write { offset, len })
        }
        GETATTR => {
            let words = word(bytes, 4).filter(|words| *words <= BITMAP_WORDS_MAX)?;
            (8 + 4 * words as usize, KEEPS)
        }
        LOOKUP => {
            let len = word(bytes, 4).filter(|len| *len <= COMPONENT_BYTES_MAX)?;
            (8 + len.next_multiple_of(4) as usize, CHANGES)
        }
        ACCESS => (8, KEEPS),
        COMMIT => (16, KEEPS),
        CLOSE => (24, KEEPS),
        GETFH | SAVEFH => (4, KEEPS),
        PUTROOTFH | RESTOREFH => (4, CHANGES),
        _ => return None,
    };
    (bytes.len() >= len).then_some((len, operation))
}

const SEQUENCE: u32 = nfs_opnum4::OP_SEQUENCE as u32;
const PUTFH: u32 = nfs_opnum4::OP_PUTFH as u32;
const READ: u32 = nfs_opnum4::OP_READ as u32;
const READ_PLUS: u32 = nfs_opnum4::OP_READ_PLUS as u32;
const WRITE: u32 = nfs_opnum4::OP_WRITE as u32;
const GETATTR: u32 = nfs_opnum4::OP_GETATTR as u32;
const LOOKUP: u32 = nfs_opnum4::OP_LOOKUP as u32;
const ACCESS: u32 = nfs_opnum4::OP_ACCESS as u32;
const COMMIT: u32 = nfs_opnum4::OP_COMMIT as u32;
const CLOSE: u32 = nfs_opnum4::OP_CLOSE as u32;
const GETFH: u32 = nfs_opnum4::OP_GETFH as u32;
const SAVEFH: u32 = nfs_opnum4::OP_SAVEFH as u32;
const PUTROOTFH: u32 = nfs_opnum4::OP_PUTROOTFH as u32;
const RESTOREFH: u32 = nfs_opnum4::OP_RESTOREFH as u32;

/// Reads an operation of any kind.
fn any_operation(bytes: &[u8]) -> Result<(usize, Operation), XdrError> {
    let mut from = Reader::new(bytes);
    let op = match nfs_argop4::decode(&mut from) {
        Err(XdrError::Short) => return Err(XdrError::Short),
        Err(_) => return Ok((NUMBER_BYTES, Operation::Stop(Stop::BadXdr))),
        Ok(op) => op,
    };
    let position = from.position();
    let operation = match op {
        nfs_argop4::OP_PUTFH(args) => {
            let len = args.object.0.len() as u32;
            // The number of the operation and the length stand before it.
            Operation::Whole(HandleUse::Put { at: 8, len })
        }
        nfs_argop4::OP_WRITE(args) => Operation::Write {
            offset: args.offset,
            len: args.data.len,
        },
        nfs_argop4::default(_) => Operation::Stop(Stop::Unsupported),
        nfs_argop4::OP_LOOKUP(_)
        | nfs_argop4::OP_LOOKUPP
        | nfs_argop4::OP_OPEN(_)
        | nfs_argop4::OP_CREATE(_)
        | nfs_argop4::OP_OPENATTR(_)
        | nfs_argop4::OP_PUTPUBFH
        | nfs_argop4::OP_PUTROOTFH
        | nfs_argop4::OP_RESTOREFH
        | nfs_argop4::OP_SECINFO(_)
        | nfs_argop4::OP_SECINFO_NO_NAME(_) => Operation::Whole(HandleUse::Changes),
        _ => Operation::Whole(HandleUse::Keeps),
    };
    Ok((position, operation))
}

/// The number of the operation that `bytes` begin with, if there is one.
pub(super) fn number(bytes: &[u8]) -> Option<nfs_opnum4> {
    nfs_opnum4::decode(&mut Reader::new(bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is found by size alone is what reading finds.
        #[test]
        fn finding_operations_by_size_agrees_with_reading_them(
            number in prop_oneof![3u32..76, Just(10044)],
            words in proptest::collection::vec(prop_oneof![4 => 0u32..9, 1 => any::<u32>()], 0..24),
            cut in 0usize..4,
        ) {
            let mut bytes: Vec<u8> = number.to_be_bytes().to_vec();
            bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
            bytes.truncate(bytes.len() - cut);
            if let Some(found) = common(&bytes) {
                prop_assert_eq!(any_operation(&bytes), Ok(found));
            }
        }
    }

    #[test]
    fn common_operations_are_found_by_size() {
        let lens = [
            (SEQUENCE, 36),
            (READ, 32),
            (READ_PLUS, 32),
            (WRITE, 36),
            (GETATTR, 8),
            (LOOKUP, 8),
            (PUTFH, 8),
            (ACCESS, 8),
            (COMMIT, 16),
            (CLOSE, 24),
            (GETFH, 4),
            (SAVEFH, 4),
            (PUTROOTFH, 4),
            (RESTOREFH, 4),
        ];
        for (number, len) in lens {
            let mut bytes = number.to_be_bytes().to_vec();
            bytes.resize(40, 0);
            let found = common(&bytes).expect("it is common");
            assert_eq!(found.0, len, "operation {number}");
            assert_eq!(any_operation(&bytes), Ok(found));
            assert_eq!(common(&bytes[..len - 1]), None);
        }
    }
}
