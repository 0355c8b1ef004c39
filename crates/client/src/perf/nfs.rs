//! One connection of a load on an NFS server.

mod create;

use std::io;
use std::sync::Arc;

use host::Memory;
use host::nfs::{
    CallData, CallEvent, Compound, Handle, Params, Results, Sequenced, ServerConnection, Slot,
    Slots,
};
use host::nfs::{Template, Wrong};
use machine::Tag;
use mem::BufRange;
use reactor::{Driver, Token};
use wire::nfs4::{
    FATTR4_CHANGE, FATTR4_FILEID, FATTR4_FSID, FATTR4_MODE, FATTR4_MOUNTED_ON_FILEID,
    FATTR4_NUMLINKS, FATTR4_OWNER, FATTR4_OWNER_GROUP, FATTR4_RAWDEV, FATTR4_SIZE,
    FATTR4_SPACE_USED, FATTR4_TIME_ACCESS, FATTR4_TIME_METADATA, FATTR4_TIME_MODIFY, FATTR4_TYPE,
    GETATTR4args, PUTFH4args, READ4args, READ4resok, READDIR4args, READDIR4resok, SEQUENCE4resok,
    WRITE4args, WRITE4resok, fattr4, nfs_argop4, nfs_opnum4, nfsstat4, stable_how4, stateid4,
};
use wire::xdr::{List, Opaque, Payload};

use super::line::{IoFailed, LineEvent, LoadIo};
use super::workload::IoDirection;
use create::{CreateStep, Creating};

/// What a line is to do.
#[derive(Clone, Debug)]
pub enum NfsWork {
    /// READ and WRITE.
    File(Handle, stateid4),
    /// Files in a directory: the client's id, and what tells the names of this
    /// job.
    Create(Handle, u64, u32),
    /// GETATTR of these, one after the other.
    Getattr(Arc<[Handle]>),
    /// READDIR of this.
    Readdir(Handle),
}

/// What a connection of a load is to be.
#[derive(Clone)]
pub struct NfsPlan {
    pub to: std::net::SocketAddr,
    pub params: Params,
    /// As many as I/Os in flight, or all that one session has.
    pub slots: Slots,
    pub work: NfsWork,
    /// Bytes of one READ or WRITE.
    pub bs: u32,
}

/// What is asked of a file, as a kernel does that shows it to its users.
const ATTRIBUTES: &[u32] = &[
    bit(FATTR4_TYPE)
        | bit(FATTR4_CHANGE)
        | bit(FATTR4_SIZE)
        | bit(FATTR4_FSID)
        | bit(FATTR4_FILEID),
    bit(FATTR4_MODE)
        | bit(FATTR4_NUMLINKS)
        | bit(FATTR4_OWNER)
        | bit(FATTR4_OWNER_GROUP)
        | bit(FATTR4_RAWDEV)
        | bit(FATTR4_SPACE_USED)
        | bit(FATTR4_TIME_ACCESS)
        | bit(FATTR4_TIME_METADATA)
        | bit(FATTR4_TIME_MODIFY)
        | bit(FATTR4_MOUNTED_ON_FILEID),
];
/// The same of each name in a directory.
const ENTRY_ATTRIBUTES: &[u32] = &[bit(FATTR4_TYPE) | bit(FATTR4_FILEID)];
/// Bytes of one answer to READDIR.
const READDIR_BYTES: u32 = 64 << 10;

const fn bit(number: u32) -> u32 {
    1 << (number % 32)
}

/// What a call under way belongs to.
#[derive(Clone, Copy)]
struct Flight {
    slot: Slot,
    kind: IoDirection,
    /// Which of the files that are being made, or walks through a directory.
    which: Tag,
}

/// Where a walk through a directory stands.
#[derive(Clone, Copy, Default)]
struct Walk {
    cookie: u64,
    verifier: [u8; 8],
}

/// What the calls are.
enum Calls {
    /// A READ and a WRITE of so many bytes.
    File(Box<[Template; 2]>, u32),
    Create(Box<Creating>),
    /// Which of them is next.
    Getattr(Arc<[Handle]>, usize),
    /// Where each walk stands, and those that wait.
    Readdir(Handle, Vec<Walk>, Vec<Tag>),
}

/// One connection of a session, with slots of its own.
pub struct NfsLine {
    connection: ServerConnection,
    minor: u32,
    slots: Slots,
    /// By tag.
    flights: Vec<Flight>,
    calls: Calls,
    entries: u64,
}

impl NfsLine {
    /// Starts to connect.
    pub fn open<D: Driver>(driver: &mut D, plan: &NfsPlan, base: Token) -> io::Result<NfsLine> {
        let depth = plan.slots.count();
        let settings = plan.params.settings(depth as u16);
        let connection = plan.params.connection(driver, plan.to, settings, base)?;
        let minor = plan.params.minor;
        let idle: Vec<Tag> = (0..depth as Tag).rev().collect();
        let calls = match &plan.work {
            NfsWork::File(handle, stateid) => {
                let both = templates(&connection, plan, handle, *stateid);
                Calls::File(Box::new(both), plan.bs)
            }
            NfsWork::Create(directory, clientid, job) => {
                let creating = Creating::new(directory.clone(), (*clientid, *job), plan.bs, idle);
                Calls::Create(Box::new(creating))
            }
            NfsWork::Getattr(handles) => Calls::Getattr(Arc::clone(handles), 0),
            NfsWork::Readdir(handle) => {
                Calls::Readdir(handle.clone(), vec![Walk::default(); depth], idle)
            }
        };
        let nothing = Flight {
            slot: Slot::default(),
            kind: IoDirection::Read,
            which: 0,
        };
        Ok(NfsLine {
            connection,
            minor,
            slots: plan.slots.clone(),
            flights: vec![nothing; depth],
            calls,
            entries: 0,
        })
    }

    pub fn is_live(&self) -> bool {
        self.connection.is_live()
    }

    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Names that were listed.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    #[inline]
    pub fn flush<D: Driver>(&mut self, driver: &mut D) {
        self.connection.flush(driver);
    }

    #[inline]
    pub fn on_completion<D: Driver>(&mut self, driver: &mut D, completion: reactor::Completion) {
        self.connection.on_completion(driver, completion);
    }

    pub fn close<D: Driver>(&mut self, driver: &mut D) {
        self.connection.close(driver);
    }

    /// Submits an I/O, or begins a file, or goes on with one that was wanted
    /// later; `None`: there is no slot.
    #[inline]
    pub fn submit(&mut self, io: &LoadIo, memory: impl FnOnce(Tag) -> BufRange) -> Option<Tag> {
        if let Calls::Create(creating) = &mut self.calls {
            let which = creating.begin(memory)?;
            return self.step(which).then_some(which);
        }
        let slot = self.slots.take()?;
        let mut which = 0;
        let tag = match &mut self.calls {
            Calls::File(both, _) => {
                let template = &both[io.kind as usize];
                let memory = |tag| Memory::lent(memory(tag));
                self.connection
                    .from_template(template, slot, io.lba, memory)
            }
            Calls::Getattr(handles, next) => {
                let handle = &handles[*next];
                *next = (*next + 1) % handles.len();
                let sequence = nfs_argop4::OP_SEQUENCE(self.slots.sequence(slot, false));
                let nothing = |_| Memory::default();
                (self.connection).compound(self.minor, CallData::None, nothing, |compound| {
                    compound.op(&sequence).op(&putfh(handle));
                    compound.op(&nfs_argop4::OP_GETATTR(GETATTR4args {
                        attr_request: List::Of(ATTRIBUTES),
                    }));
                })
            }
            Calls::Readdir(handle, walks, idle) => {
                which = idle.pop().expect("a walk for each slot");
                let walk = walks[usize::from(which)];
                let sequence = nfs_argop4::OP_SEQUENCE(self.slots.sequence(slot, false));
                let nothing = |_| Memory::default();
                (self.connection).compound(self.minor, CallData::None, nothing, |compound| {
                    compound.op(&sequence).op(&putfh(handle));
                    compound.op(&nfs_argop4::OP_READDIR(READDIR4args {
                        cookie: walk.cookie,
                        cookieverf: walk.verifier,
                        dircount: READDIR_BYTES,
                        maxcount: READDIR_BYTES,
                        attr_request: List::Of(ENTRY_ATTRIBUTES),
                    }));
                })
            }
            Calls::Create(_) => unreachable!("it was looked at before"),
        };
        let tag = tag.expect("a call for each slot");
        let kind = io.kind;
        self.flights[usize::from(tag)] = Flight { slot, kind, which };
        Some(tag)
    }

    /// Sends what comes next for a file; whether there was a slot.
    fn step(&mut self, which: Tag) -> bool {
        let Calls::Create(creating) = &mut self.calls else {
            unreachable!("only files are made in steps");
        };
        let Some(slot) = self.slots.take() else {
            creating.give_up(which);
            return false;
        };
        let sequence = self.slots.sequence(slot, creating.is_once(which));
        let tag = creating.send(&mut self.connection, self.minor, &sequence, which);
        let kind = IoDirection::Metadata;
        self.flights[usize::from(tag)] = Flight { slot, kind, which };
        true
    }

    #[inline]
    pub fn next_event<D: Driver>(&mut self, driver: &mut D) -> Option<LineEvent> {
        loop {
            match self.connection.next_event(driver)? {
                CallEvent::Answered(tag) => {
                    if let Some(event) = self.on_answered(tag) {
                        return Some(event);
                    }
                }
                // Callbacks come over the connection of the client that opened.
                CallEvent::CallBack(_) => {}
                CallEvent::Down(error) => return Some(LineEvent::Down(error.to_string())),
            }
        }
    }

    #[inline]
    fn on_answered(&mut self, tag: Tag) -> Option<LineEvent> {
        let Flight { slot, kind, which } = self.flights[usize::from(tag)];
        let answer = self.connection.answer();
        let ended = |ended| Some(LineEvent::Completed(tag, ended));
        let mut results = match answer.results() {
            Ok(results) => results,
            // Whether its slot went on is not known: it is not used again.
            Err(refused) => return ended(Err(IoFailed::Rpc(refused))),
        };
        let sequence = results.take::<SEQUENCE4resok>(nfs_opnum4::OP_SEQUENCE);
        let sequenced = self.slots.ended(slot, sequence.as_ref());
        if let Calls::Create(creating) = &mut self.calls {
            let step = match sequence {
                Ok(_) => creating.on_answer(which, &mut results),
                Err(_) if sequenced == Sequenced::Again => CreateStep::Later,
                Err(wrong) => creating.failed(which, wrong),
            };
            let event = |result| Some(LineEvent::Completed(which, result));
            return match step {
                CreateStep::Done(result) => event(result),
                CreateStep::Later => {
                    creating.pause(which);
                    Some(LineEvent::Later(which))
                }
                CreateStep::Next if self.step(which) => None,
                CreateStep::Next => event(Err(IoFailed::Nfs(Wrong::Answer))),
            };
        }
        let read = match sequence {
            Ok(_) => results
                .done(nfs_opnum4::OP_PUTFH)
                .and_then(|()| self.calls.read(kind, which, &mut results)),
            Err(wrong) => Err(wrong),
        };
        if let Calls::Readdir(_, _, idle) = &mut self.calls {
            idle.push(which);
        }
        match read {
            Ok(Some(entries)) => {
                self.entries += entries;
                ended(Ok(()))
            }
            Ok(None) => ended(Err(IoFailed::Short)),
            Err(_) if sequenced == Sequenced::Again => Some(LineEvent::Later(tag)),
            Err(wrong) if wrong.status() == Some(nfsstat4::NFS4ERR_DELAY) => {
                Some(LineEvent::Later(tag))
            }
            Err(wrong) => ended(Err(IoFailed::Nfs(wrong))),
        }
    }
}

impl Calls {
    /// Reads the result behind PUTFH's: how many names it listed; `None` where it
    /// was too little.
    #[inline]
    fn read(
        &mut self,
        kind: IoDirection,
        which: Tag,
        results: &mut Results<'_>,
    ) -> Result<Option<u64>, Wrong> {
        match self {
            Calls::File(_, bs) => {
                let count = match kind {
                    IoDirection::Write => {
                        let written: WRITE4resok = results.take(nfs_opnum4::OP_WRITE)?;
                        written.count
                    }
                    IoDirection::Read | IoDirection::Metadata => {
                        let read: READ4resok = results.take(nfs_opnum4::OP_READ)?;
                        read.data.len
                    }
                };
                Ok((count == *bs).then_some(0))
            }
            Calls::Getattr(..) => {
                results.take::<fattr4<'_>>(nfs_opnum4::OP_GETATTR)?;
                Ok(Some(0))
            }
            Calls::Readdir(_, walks, _) => {
                let found: READDIR4resok<'_> = results.take(nfs_opnum4::OP_READDIR)?;
                let (mut entries, mut cookie) = (0, 0);
                for entry in found.entries.iter() {
                    entries += 1;
                    cookie = entry.cookie;
                }
                // From the beginning again, where that was the end.
                walks[usize::from(which)] = match found.eof {
                    true => Walk::default(),
                    false => Walk {
                        cookie,
                        verifier: found.cookieverf,
                    },
                };
                Ok((found.eof || entries > 0).then_some(entries))
            }
            Calls::Create(_) => unreachable!("files are made in steps"),
        }
    }
}

fn putfh(handle: &Handle) -> nfs_argop4<'_> {
    nfs_argop4::OP_PUTFH(PUTFH4args {
        object: Opaque(handle.as_bytes()),
    })
}

/// READ and WRITE of a file, by [`IoDirection`].
fn templates(
    connection: &ServerConnection,
    plan: &NfsPlan,
    handle: &Handle,
    stateid: stateid4,
) -> [Template; 2] {
    let (minor, len) = (plan.params.minor, plan.bs);
    let sequence = plan.slots.sequence(Slot::default(), false);
    let sequence = nfs_argop4::OP_SEQUENCE(sequence);
    let read = nfs_argop4::OP_READ(READ4args {
        stateid,
        offset: 0,
        count: len,
    });
    let write = nfs_argop4::OP_WRITE(WRITE4args {
        stateid,
        offset: 0,
        stable: stable_how4::UNSTABLE4,
        data: Payload { len },
    });
    [(read, CallData::In(len)), (write, CallData::Out(len))].map(|(op, data)| {
        connection.template(minor, data, |compound: &mut Compound<'_>| {
            compound.op(&sequence).op(&putfh(handle)).op(&op);
        })
    })
}
