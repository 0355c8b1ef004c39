//! Calls, COMPOUNDs and records as they go on the wire.

use std::collections::VecDeque;

use wire::mount3::{MOUNT_PROGRAM, MOUNT_V3, mount_proc3};
use wire::nfs3::{NFS_V3, WRITE3args, nfs_proc3, stable_how};
use wire::nfs4::{
    GETATTR4args, NFS_V4, NFS4_PROGRAM, NFSPROC4_COMPOUND, PUTFH4args, WRITE4args, compound_head,
    nfs_argop4, stable_how4, stateid4,
};
use wire::rpc::{
    AUTH_NONE, AUTH_SYS, RPC_VERSION, RecordMark, authsys_parms, call_body, msg_type, opaque_auth,
};
use wire::xdr::{Encode, List, Opaque, Payload, pad};

/// The header of a call of NFSv4 by AUTH_SYS as root.
pub fn call_header(xid: u32, change: impl FnOnce(&mut call_body<'_>)) -> Vec<u8> {
    let mut sys = Vec::new();
    authsys_parms {
        stamp: 0,
        machinename: Opaque(b"client"),
        uid: 0,
        gid: 0,
        gids: List::Of(&[]),
    }
    .encode(&mut sys);
    call_header_as(xid, &sys, change)
}

/// The same by the AUTH_SYS credential that `sys` is.
pub fn call_header_as<'a>(
    xid: u32,
    sys: &'a [u8],
    change: impl FnOnce(&mut call_body<'a>),
) -> Vec<u8> {
    let mut call = call_body {
        rpcvers: RPC_VERSION,
        prog: NFS4_PROGRAM,
        vers: NFS_V4,
        proc: NFSPROC4_COMPOUND,
        cred: opaque_auth {
            flavor: AUTH_SYS,
            body: Opaque(sys),
        },
        verf: opaque_auth {
            flavor: AUTH_NONE,
            body: Opaque(&[]),
        },
    };
    change(&mut call);
    let mut bytes = Vec::new();
    xid.encode(&mut bytes);
    msg_type::CALL.encode(&mut bytes);
    call.encode(&mut bytes);
    bytes
}

/// What a COMPOUND consists of, for [`compound`].
#[derive(Clone, Debug)]
pub enum CompoundPart {
    /// PUTFH of this handle.
    Put(Vec<u8>),
    /// GETATTR of so many words.
    Getattr(Vec<u32>),
    /// LOOKUP, of anything.
    Lookup(Vec<u8>),
    /// WRITE of this to there.
    Write(u64, Vec<u8>),
    /// These bytes.
    Raw(Vec<u8>),
}

/// The arguments of a COMPOUND: as on the wire, and without the data of WRITEs.
pub fn compound(parts: &[CompoundPart]) -> (Vec<u8>, Vec<u8>) {
    let mut wire = Vec::new();
    compound_head {
        tag: Opaque(b"tag"),
        minorversion: 1,
        ops: parts.len() as u32,
    }
    .encode(&mut wire);
    let mut args = wire.clone();
    for part in parts {
        let mut op = Vec::new();
        let mut data: &[u8] = &[];
        match part {
            CompoundPart::Put(handle) => nfs_argop4::OP_PUTFH(PUTFH4args {
                object: Opaque(handle),
            })
            .encode(&mut op),
            CompoundPart::Getattr(words) => nfs_argop4::OP_GETATTR(GETATTR4args {
                attr_request: List::Of(words),
            })
            .encode(&mut op),
            CompoundPart::Lookup(name) => nfs_argop4::OP_LOOKUP(wire::nfs4::LOOKUP4args {
                objname: Opaque(name),
            })
            .encode(&mut op),
            CompoundPart::Write(offset, bytes) => {
                data = bytes;
                nfs_argop4::OP_WRITE(WRITE4args {
                    stateid: stateid4 {
                        seqid: 1,
                        other: [7; 12],
                    },
                    offset: *offset,
                    stable: stable_how4::UNSTABLE4,
                    data: Payload {
                        len: bytes.len() as u32,
                    },
                })
                .encode(&mut op);
            }
            CompoundPart::Raw(bytes) => op.extend(bytes),
        }
        args.extend(&op);
        wire.extend(&op);
        wire.extend(data);
        wire.extend(&[0; 3][..pad(data.len())]);
    }
    (wire, args)
}

/// Procedures of NFSv3 and MOUNT: WRITE, LOOKUP, MNT.
pub const OTHERS: [(u32, u32, u32); 3] = [
    (NFS4_PROGRAM, NFS_V3, nfs_proc3::NFSPROC3_WRITE as u32),
    (NFS4_PROGRAM, NFS_V3, nfs_proc3::NFSPROC3_LOOKUP as u32),
    (MOUNT_PROGRAM, MOUNT_V3, mount_proc3::MOUNTPROC3_MNT as u32),
];

/// The header of a call of another program, version and procedure by AUTH_SYS
/// as root.
pub fn call_header_of(xid: u32, (program, version, procedure): (u32, u32, u32)) -> Vec<u8> {
    call_header(xid, |call| {
        call.prog = program;
        call.vers = version;
        call.proc = procedure;
    })
}

/// A call of NFSv3's WRITE: as on the wire, and its arguments without the data.
pub fn write3(xid: u32, handle: &[u8], offset: u64, data: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut args = Vec::new();
    WRITE3args {
        file: Opaque(handle),
        offset,
        count: data.len() as u32,
        stable: stable_how::FILE_SYNC,
        data: Payload {
            len: data.len() as u32,
        },
    }
    .encode(&mut args);
    let mut wire = call_header_of(xid, OTHERS[0]);
    wire.extend(&args);
    wire.extend(data);
    wire.extend(&[0; 3][..pad(data.len())]);
    (wire, args)
}

/// A record in fragments of at most so many bytes each, in turn.
pub fn record(bytes: &[u8], mut fragment: impl FnMut() -> usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes;
    loop {
        let len = fragment().min(rest.len());
        let mark = RecordMark {
            is_last: len == rest.len(),
            len: len as u32,
        };
        out.extend(mark.encode());
        out.extend(&rest[..len]);
        rest = &rest[len..];
        if mark.is_last {
            return out;
        }
    }
}

/// Cuts what was sent into records of one fragment.
pub fn cut(stream: &mut VecDeque<u8>) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while !stream.is_empty() {
        let mark: Vec<u8> = stream.drain(..RecordMark::LEN).collect();
        let mark = RecordMark::decode(mark.try_into().expect("a mark"));
        assert!(mark.is_last, "answers are not fragmented");
        records.push(stream.drain(..mark.len as usize).collect());
    }
    records
}
