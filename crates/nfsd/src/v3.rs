//! NFSv3 (RFC 1813): calls under way, those of MOUNT and of the programs beside it too.
//!
//! Every procedure is a row of steps ([`call::steps`]): what is looked at before
//! the procedure proper, that itself, and what is looked at behind it, so that
//! the answer says how the object, or the directory, has changed. Each step
//! is one question to the file system at most.

mod acl;
mod args;
mod call;
mod convert;
mod pseudo;
mod results;

use std::io;
use std::sync::Arc;

use link::CommandMemory;
use machine::Tag;
use nfs::connection::{Args, Credential, Procedure, Stop};
use store::fs::{FileId, FileSystem, Progress, Task};
use wire::nfs3::nfsstat3;
use wire::rpc::{accept_stat, auth_stat};

use self::args::{V3Asked, V3Procedure};
use self::call::{V3By, V3CallState};
use crate::call::{Around, Step};
use crate::events::Events;
use crate::mount::{self, MountAround};
use crate::nlm::NlmCall;
use crate::payload;
use crate::peer::Peer;
use crate::pseudo::{Lost, PseudoPlace};
use crate::reason::Reason;
use crate::rpcbind::PortmapCall;
use crate::rquota::QuotaCall;
use crate::{nsm, rquota};

/// A call of NFSv3, MOUNT or the lock manager under way, and when it is over, the next.
#[derive(Default)]
pub(crate) struct V3Call {
    tag: Tag,
    args: Args,
    work: V3Program,
    /// Of [`V3Program::V3`]; its memory serves the next call too.
    call: Option<Box<V3CallState>>,
}

/// Which program is called.
#[derive(Default)]
enum V3Program {
    #[default]
    Nothing,
    V3,
    Mount(mount::MountCall),
    Nlm(Box<NlmCall>),
}

const UNDER_WAY: &str = "a call is under way";

impl V3Call {
    /// Whether a call is under way.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        !matches!(self.work, V3Program::Nothing)
    }

    /// Begins with a call that has all arrived.
    pub(crate) fn begin(&mut self, tag: Tag, around: &mut Around<'_>) -> Step {
        let machine = &mut around.link.machine;
        let call = machine.call(tag);
        let credential = call.credential.clone();
        let begun = match call.procedure {
            Procedure::Nfs3(procedure) if call.stop == Stop::TooLarge => {
                // Its data was more than may be written at a time.
                let status = nfsstat3::NFS3ERR_INVAL;
                let procedure = V3Procedure::Nfs(procedure);
                self.set_call(V3CallState::refused(procedure, credential, status));
                Ok(V3Program::V3)
            }
            Procedure::Nfs3(procedure) => {
                self.begin_v3((V3Procedure::Nfs(procedure), credential, tag), around)
            }
            Procedure::Acl3(procedure) => {
                self.begin_v3((V3Procedure::Acl(procedure), credential, tag), around)
            }
            Procedure::Mount3(procedure) => match mount::MountCall::new(procedure, call.args) {
                Ok(call) => Ok(V3Program::Mount(call)),
                Err(_) => Err(Unfit::Garbage),
            },
            Procedure::Nlm4(procedure) => match NlmCall::new(procedure, credential, call.args) {
                Ok(call) => Ok(V3Program::Nlm(Box::new(call))),
                Err(_) => Err(Unfit::Garbage),
            },
            Procedure::Nsm(_)
            | Procedure::Pmap(_)
            | Procedure::Rpcb(_)
            | Procedure::Rquota(_)
            | Procedure::ExtRquota(_) => {
                return answer_at_once(tag, around);
            }
            Procedure::Null | Procedure::Compound => unreachable!("none of these programs"),
        };
        let machine = &mut around.link.machine;
        match begun {
            Ok(work) => {
                (self.tag, self.work) = (tag, work);
                self.args = machine.take_args(tag);
                self.run_call(around)
            }
            Err(Unfit::Garbage) => {
                machine.send_status(tag, accept_stat::GARBAGE_ARGS);
                Step::Sent
            }
            Err(Unfit::Pseudo(dir)) => self.begin_pseudo((tag, dir), around),
            Err(Unfit::Flavor) => {
                machine.send_denied(tag, auth_stat::AUTH_TOOWEAK);
                Step::Sent
            }
        }
    }

    /// A call about a directory above the exports.
    #[cold]
    fn begin_pseudo(&mut self, (tag, dir): (Tag, FileId), around: &mut Around<'_>) -> Step {
        let (call, reply) = around.link.machine.call_and_reply(tag);
        let credential = call.credential.clone();
        let (status, procedure) = match call.procedure {
            Procedure::Nfs3(procedure) => {
                let asked = V3Asked::read(V3Procedure::Nfs(procedure), call.args);
                let asked = asked.expect("it was read when it came");
                let (view, nfsd) = (&around.peer.view, around.nfsd);
                let refusal = pseudo::refusal(&asked, procedure);
                if let (None, Some(attr)) = (refusal, view.attr(dir)) {
                    let to = reply.bytes();
                    pseudo::write((&asked, procedure), (dir, &attr), (view, nfsd), to);
                    payload::send(around.link, tag);
                    return Step::Sent;
                }
                let status = refusal.unwrap_or(nfsstat3::NFS3ERR_STALE);
                (status, V3Procedure::Nfs(procedure))
            }
            // No list is on what is no object of a file system.
            Procedure::Acl3(procedure) => (nfsstat3::NFS3ERR_NOTSUPP, V3Procedure::Acl(procedure)),
            _ => unreachable!("NFSv3 has file handles"),
        };
        self.set_call(V3CallState::refused(procedure, credential, status));
        (self.tag, self.work) = (tag, V3Program::V3);
        self.args = around.link.machine.take_args(tag);
        self.run_call(around)
    }

    #[inline]
    fn begin_v3(&mut self, by: V3By, around: &mut Around<'_>) -> Result<V3Program, Unfit> {
        let (procedure, ref credential, tag) = by;
        let call = around.link.machine.call(tag);
        match V3Asked::read(procedure, call.args) {
            Ok(asked) if call.stop == Stop::End => {
                let found = find((around.peer, &around.nfsd.events), &asked, credential)?;
                self.set_call(V3CallState::new(by, found, around));
                Ok(V3Program::V3)
            }
            _ => Err(Unfit::Garbage),
        }
    }

    #[inline]
    fn set_call(&mut self, call: V3CallState) {
        match &mut self.call {
            Some(place) => **place = call,
            None => self.call = Some(Box::new(call)),
        }
    }

    #[inline]
    fn call(&mut self) -> &mut V3CallState {
        self.call.as_mut().expect(UNDER_WAY)
    }

    /// Goes on when a completion has come.
    pub(crate) fn resume(
        &mut self,
        fs: &Arc<dyn FileSystem>,
        task: Task,
        result: io::Result<u32>,
        around: &mut Around<'_>,
    ) -> Step {
        match fs.resume(task, result, around.files, around.token) {
            Progress::Pending(task) => Step::Pending(fs.clone(), task),
            Progress::Done(result) => {
                match (&mut self.work, &mut self.call) {
                    (V3Program::V3, Some(call)) => {
                        call.take(&self.args, result, fs.as_ref(), around)
                    }
                    (V3Program::Mount(call), _) => call.take(result),
                    (V3Program::Nlm(call), _) => call.take(result),
                    _ => panic!("{UNDER_WAY}"),
                }
                self.run_call(around)
            }
        }
    }

    /// Goes on when there may be memory again.
    pub(crate) fn go_on(&mut self, around: &mut Around<'_>) -> Step {
        self.run_call(around)
    }

    /// Ends a call that waits for memory: it is to be tried again.
    pub(crate) fn refuse(&mut self, around: &mut Around<'_>) -> Step {
        if let V3Program::V3 = self.work {
            self.call().refuse();
        }
        self.run_call(around)
    }

    /// The call is given up.
    pub(crate) fn abandon(&mut self) {
        if let V3Program::V3 = self.work {
            self.call().abandon();
        }
        *self = V3Call::default();
    }

    fn run_call(&mut self, around: &mut Around<'_>) -> Step {
        let step = match (&mut self.work, &mut self.call) {
            (V3Program::V3, Some(call)) => call.advance(self.tag, &self.args, around),
            (V3Program::Mount(call), _) => {
                let to = around.link.machine.reply(self.tag).bytes();
                let mut around = MountAround {
                    nfsd: around.nfsd,
                    peer: around.peer,
                    files: around.files,
                    token: around.token,
                    time: around.time,
                };
                match call.advance(&self.args, &mut around, to) {
                    Some((fs, task)) => Step::Pending(fs, task),
                    None => Step::Sent,
                }
            }
            (V3Program::Nlm(call), _) => call.advance(self.tag, &self.args, around),
            _ => panic!("{UNDER_WAY}"),
        };
        if matches!(step, Step::Sent) {
            let is_v3 = matches!(std::mem::take(&mut self.work), V3Program::V3);
            let args = std::mem::take(&mut self.args);
            let machine = &mut around.link.machine;
            machine.give_args(self.tag, args);
            match is_v3 && self.call().is_dropped {
                true => {
                    machine.drop_call(self.tag);
                    around.link.set_data(self.tag, CommandMemory::default());
                }
                false => payload::send(around.link, self.tag),
            }
        }
        step
    }
}

/// A call that waits for no file system: of the port mapper, the status monitor or RQUOTA.
fn answer_at_once(tag: Tag, around: &mut Around<'_>) -> Step {
    let asked = PortmapCall {
        nfsd: around.nfsd,
        local: around.peer.local,
        peer: around.peer.address.ip(),
        time: around.time,
    };
    let (call, reply) = around.link.machine.call_and_reply(tag);
    let answered = match call.procedure {
        Procedure::Pmap(procedure) => asked.pmap(procedure, call.args, reply.bytes()),
        Procedure::Rpcb(procedure) => asked.rpcb(procedure, call.args, reply.bytes()),
        Procedure::Nsm(procedure) => {
            let (nfsd, peer) = (around.nfsd, around.peer.address.ip());
            nsm::answer((nfsd, peer), procedure, call.args, reply.bytes())
        }
        Procedure::Rquota(procedure) | Procedure::ExtRquota(procedure) => {
            let asked = QuotaCall {
                procedure,
                is_extended: matches!(call.procedure, Procedure::ExtRquota(_)),
                credential: call.credential,
                time: around.time,
            };
            rquota::answer(asked, around.peer, call.args, reply.bytes())
        }
        _ => unreachable!("of another program"),
    };
    match answered {
        Ok(()) => payload::send(around.link, tag),
        Err(_) => {
            let machine = &mut around.link.machine;
            machine.send_status(tag, accept_stat::GARBAGE_ARGS);
        }
    }
    Step::Sent
}

/// Why RPC answers a call.
enum Unfit {
    /// Its arguments are none.
    Garbage,
    /// It is about a directory above the exports.
    Pseudo(FileId),
    /// The export does not take the call's authentication flavor.
    Flavor,
}

/// The export that a call is about and its objects there, or why there are
/// none.
type ExportFound = Result<(u32, [FileId; 2]), nfsstat3>;

fn find(
    (peer, events): (&Peer, &Events),
    asked: &V3Asked<'_>,
    credential: &Credential,
) -> Result<ExportFound, Unfit> {
    let view = &peer.view;
    let place = |found| match found {
        Ok(PseudoPlace::File { export, file }) => Ok((export, file)),
        // The second of two: the first is in an export.
        Ok(PseudoPlace::Pseudo(_) | PseudoPlace::Absent(_)) => Err(nfsstat3::NFS3ERR_XDEV),
        Err(Lost::Stale) => Err(nfsstat3::NFS3ERR_STALE),
        Err(Lost::BadHandle) => Err(nfsstat3::NFS3ERR_BADHANDLE),
    };
    let (first, second) = asked.handles();
    let (export, first) = match view.find(first) {
        Ok(PseudoPlace::Pseudo(dir)) => return Err(Unfit::Pseudo(dir)),
        found => match place(found) {
            Ok(found) => found,
            Err(status) => return Ok(Err(status)),
        },
    };
    let granted = view.granted(export).expect("it was found there");
    if let Some(reason) = granted.lacks(credential.flavor, peer.xprtsec()) {
        events.refused(peer, granted.export.path(), reason);
        return match reason {
            Reason::Xprtsec { .. } | Reason::Port => Ok(Err(nfsstat3::NFS3ERR_ACCES)),
            _ => Err(Unfit::Flavor),
        };
    }
    let second = match second.map(|handle| place(view.find(handle))) {
        None => first,
        Some(Ok((other, second))) if other == export => second,
        Some(Ok(_)) => return Ok(Err(nfsstat3::NFS3ERR_XDEV)),
        Some(Err(status)) => return Ok(Err(status)),
    };
    Ok(Ok((export, [first, second])))
}
