//! Files that are made, written, closed and removed, each in as many calls as a
//! kernel's client would make.

use host::Memory;
use host::nfs::{CallData, Handle, Results, ServerConnection, Wrong};
use machine::Tag;
use mem::BufRange;
use wire::nfs4::{
    CLOSE4args, FATTR4_MODE, NFS4_FHSIZE, OPEN4_SHARE_ACCESS_BOTH,
    OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OPEN4_SHARE_DENY_NONE, OPEN4args, OPEN4resok, PUTFH4args,
    REMOVE4args, SEQUENCE4args, WRITE4args, WRITE4resok, change_info4, createhow4, fattr4,
    nfs_argop4, nfs_fh4, nfs_opnum4, nfsstat4, open_claim4, openflag4, stable_how4, state_owner4,
    stateid4,
};
use wire::xdr::{List, Opaque, Payload};

use crate::perf::line::IoFailed;

/// Permission bits of a file, as they go on the wire.
const MODE: [u8; 4] = 0o644u32.to_be_bytes();
/// Bytes of a name: two numbers in hexadecimal digits.
const NAME_BYTES: usize = 16;

/// What comes next for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CreateStage {
    Open,
    Write,
    Close,
    Remove,
}

/// What an answer makes of a file.
pub(super) enum CreateStep {
    /// Another call.
    Next,
    /// The same call, when the server has been left alone for a while.
    Later,
    /// It has gone all its way, or failed.
    Done(Result<(), IoFailed>),
}

/// A file on its way.
#[derive(Clone)]
struct Making {
    stage: CreateStage,
    name: [u8; NAME_BYTES],
    handle: [u8; NFS4_FHSIZE as usize],
    handle_len: usize,
    stateid: stateid4,
    memory: Option<BufRange>,
}

/// The files that are on their way on one connection.
pub(super) struct Creating {
    directory: Handle,
    /// `clientid4`.
    clientid: u64,
    job: u32,
    /// Files that were begun.
    count: u32,
    /// Bytes of each.
    len: u32,
    files: Vec<Making>,
    idle: Vec<Tag>,
    /// Files whose next call the server wants later.
    paused: Vec<Tag>,
}

impl Creating {
    pub(super) fn new(
        directory: Handle,
        (clientid, job): (u64, u32),
        len: u32,
        idle: Vec<Tag>,
    ) -> Creating {
        let nothing = Making {
            stage: CreateStage::Open,
            name: [0; NAME_BYTES],
            handle: [0; NFS4_FHSIZE as usize],
            handle_len: 0,
            stateid: stateid4 {
                seqid: 0,
                other: [0; 12],
            },
            memory: None,
        };
        Creating {
            directory,
            clientid,
            job,
            count: 0,
            len,
            files: vec![nothing; idle.len()],
            idle,
            paused: Vec::new(),
        }
    }

    /// Goes on with a file that waits, else begins one; which.
    pub(super) fn begin(&mut self, memory: impl FnOnce(Tag) -> BufRange) -> Option<Tag> {
        if let Some(which) = self.paused.pop() {
            return Some(which);
        }
        let which = self.idle.pop()?;
        let file = &mut self.files[usize::from(which)];
        file.stage = CreateStage::Open;
        file.name = name(self.job, self.count);
        file.memory = Some(memory(which));
        self.count = self.count.wrapping_add(1);
        Some(which)
    }

    /// Nothing becomes of a file.
    pub(super) fn give_up(&mut self, which: Tag) {
        self.idle.push(which);
    }

    /// Whether the next call for a file must not be executed twice.
    pub(super) fn is_once(&self, which: Tag) -> bool {
        self.files[usize::from(which)].stage != CreateStage::Write
    }

    /// Sends the next call for a file.
    pub(super) fn send(
        &mut self,
        connection: &mut ServerConnection,
        minor: u32,
        sequence: &SEQUENCE4args,
        which: Tag,
    ) -> Tag {
        let file = &self.files[usize::from(which)];
        let (data, memory) = match (file.stage, file.memory) {
            (CreateStage::Write, Some(memory)) => (CallData::Out(self.len), Memory::lent(memory)),
            _ => (CallData::None, Memory::default()),
        };
        let handle = match file.stage {
            CreateStage::Open | CreateStage::Remove => self.directory.as_bytes(),
            CreateStage::Write | CreateStage::Close => &file.handle[..file.handle_len],
        };
        let put = nfs_argop4::OP_PUTFH(PUTFH4args {
            object: Opaque(handle),
        });
        let op = self.op(file);
        let tag = connection.compound(
            minor,
            data,
            |_| memory,
            |compound| {
                compound
                    .op(&nfs_argop4::OP_SEQUENCE(*sequence))
                    .op(&put)
                    .op(&op);
                if file.stage == CreateStage::Open {
                    compound.op(&nfs_argop4::OP_GETFH);
                }
            },
        );
        tag.expect("a call for each slot")
    }

    fn op<'a>(&'a self, file: &'a Making) -> nfs_argop4<'a> {
        let stateid = file.stateid;
        match file.stage {
            CreateStage::Open => nfs_argop4::OP_OPEN(OPEN4args {
                seqid: 0,
                share_access: OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
                share_deny: OPEN4_SHARE_DENY_NONE,
                owner: state_owner4 {
                    clientid: self.clientid,
                    owner: Opaque(b"weft perf"),
                },
                openhow: openflag4::OPEN4_CREATE(createhow4::GUARDED4(fattr4 {
                    attrmask: List::Of(&[0, 1 << (FATTR4_MODE - 32)]),
                    attr_vals: Opaque(&MODE),
                })),
                claim: open_claim4::CLAIM_NULL(Opaque(&file.name)),
            }),
            CreateStage::Write => nfs_argop4::OP_WRITE(WRITE4args {
                stateid,
                offset: 0,
                // What is written before a CLOSE is to last.
                stable: stable_how4::FILE_SYNC4,
                data: Payload { len: self.len },
            }),
            CreateStage::Close => nfs_argop4::OP_CLOSE(CLOSE4args {
                seqid: 0,
                open_stateid: stateid,
            }),
            CreateStage::Remove => nfs_argop4::OP_REMOVE(REMOVE4args {
                target: Opaque(&file.name),
            }),
        }
    }

    /// Takes the answer to the last call for a file, from behind SEQUENCE on.
    pub(super) fn on_answer(&mut self, which: Tag, results: &mut Results<'_>) -> CreateStep {
        let len = self.len;
        let file = &mut self.files[usize::from(which)];
        match file.take(len, results) {
            Ok(Some(next)) => {
                file.stage = next;
                CreateStep::Next
            }
            Ok(None) => {
                self.idle.push(which);
                CreateStep::Done(Ok(()))
            }
            Err(IoFailed::Nfs(wrong)) => self.failed(which, wrong),
            Err(failed) => {
                self.idle.push(which);
                CreateStep::Done(Err(failed))
            }
        }
    }

    /// A call for a file has failed.
    pub(super) fn failed(&mut self, which: Tag, wrong: Wrong) -> CreateStep {
        if wrong.status() == Some(nfsstat4::NFS4ERR_DELAY) {
            return CreateStep::Later;
        }
        self.idle.push(which);
        CreateStep::Done(Err(IoFailed::Nfs(wrong)))
    }

    /// A file goes on with the next [`Creating::begin`].
    pub(super) fn pause(&mut self, which: Tag) {
        self.paused.push(which);
    }
}

impl Making {
    /// Reads an answer; what comes next, if anything.
    fn take(
        &mut self,
        len: u32,
        results: &mut Results<'_>,
    ) -> Result<Option<CreateStage>, IoFailed> {
        results.done(nfs_opnum4::OP_PUTFH).map_err(IoFailed::Nfs)?;
        let next = match self.stage {
            CreateStage::Open => self.opened(results).map_err(IoFailed::Nfs)?,
            CreateStage::Write => {
                let written = results.take::<WRITE4resok>(nfs_opnum4::OP_WRITE);
                if written.map_err(IoFailed::Nfs)?.count != len {
                    return Err(IoFailed::Short);
                }
                CreateStage::Close
            }
            CreateStage::Close => {
                let closed = results.take::<stateid4>(nfs_opnum4::OP_CLOSE);
                closed.map_err(IoFailed::Nfs)?;
                CreateStage::Remove
            }
            CreateStage::Remove => {
                let removed = results.take::<change_info4>(nfs_opnum4::OP_REMOVE);
                return removed.map(|_| None).map_err(IoFailed::Nfs);
            }
        };
        Ok(Some(next))
    }

    fn opened(&mut self, results: &mut Results<'_>) -> Result<CreateStage, Wrong> {
        let opened: OPEN4resok<'_> = results.take(nfs_opnum4::OP_OPEN)?;
        let handle: nfs_fh4<'_> = results.take(nfs_opnum4::OP_GETFH)?;
        self.stateid = opened.stateid;
        self.handle_len = handle.0.len();
        self.handle[..self.handle_len].copy_from_slice(handle.0);
        Ok(CreateStage::Write)
    }
}

/// Two numbers as hexadecimal digits.
fn name(job: u32, count: u32) -> [u8; NAME_BYTES] {
    let number = u64::from(job) << 32 | u64::from(count);
    let mut name = [0; NAME_BYTES];
    for (at, digit) in name.iter_mut().enumerate() {
        let nibble = number >> (60 - 4 * at) & 15;
        *digit = b"0123456789abcdef"[nibble as usize];
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_by_job_and_count() {
        assert_eq!(&name(0x1f, 0xa0), b"0000001f000000a0");
        assert_ne!(name(1, 0), name(0, 1));
    }
}
