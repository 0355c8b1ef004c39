//! One call of NFSv3: its steps.

use std::sync::Arc;

use link::Link;
use machine::{Nanos, Tag};
use mem::Pool;
use nfs::connection::{Connection, Credential};
use nfs::server::files::{FileKey, HolderView, READ, WRITE};
use store::fs::access::rights;
use store::fs::{
    self, Asker, Attr, Caller, FileId, FileSystem, FsOp, New, Output, Progress, Rights, Time,
};
use store::meter::IoOp;
use wire::nfs3::{nfs_proc3, nfsacl_proc3, nfsstat3, stable_how};
use wire::nfs4::nfsstat4;

use super::args::{Named, V3Asked, V3Procedure};
use super::{ExportFound, acl, convert, results};
use crate::answers::{AnswerWait, Answers};
use crate::call::{Around, CallIo, Step};
use crate::duplicate_request_cache::{AddressReplies, CallBegun, CallKey};
use crate::holder::{self, Heard, ToShow};
use crate::payload::{self, DataStep, ReadUnderWay, WriteUnderWay};
use crate::state;
use crate::{Granted, Nfsd, View};
use engine::held_back::OwnLimits;
use engine::payload::File;

/// A step of a procedure; its objects are numbered as their handles are in the
/// arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Do {
    /// Attributes of an object, to compare with.
    Before(usize),
    /// What a name in this directory leads to, of which no client may have a
    /// delegation.
    Release(usize),
    /// What a client of NFSv4 says of the object that it writes by a delegation.
    Hear,
    /// It is changed, as that client says.
    Touch,
    /// The directory that the directory lies in.
    Up,
    /// The procedure itself.
    Main,
    /// Attributes of what it has found.
    Found,
    /// Attributes of an object then.
    After(usize),
}

/// What a procedure does, and whether that changes anything.
fn steps(procedure: V3Procedure) -> (&'static [Do], bool) {
    use Do::*;
    use nfs_proc3::*;
    let procedure = match procedure {
        V3Procedure::Nfs(procedure) => procedure,
        V3Procedure::Acl(nfsacl_proc3::ACLPROC3_SETACL) => NFSPROC3_SETATTR,
        V3Procedure::Acl(_) => NFSPROC3_GETATTR,
    };
    match procedure {
        NFSPROC3_NULL => (&[], false),
        NFSPROC3_GETATTR => (&[Hear, Main, Touch], false),
        NFSPROC3_ACCESS | NFSPROC3_FSINFO | NFSPROC3_PATHCONF => (&[Main], false),
        NFSPROC3_LOOKUP => (&[Main, Found, After(0)], false),
        NFSPROC3_READLINK | NFSPROC3_READ | NFSPROC3_FSSTAT => (&[Main, After(0)], false),
        NFSPROC3_READDIR | NFSPROC3_READDIRPLUS => (&[Up, Main, After(0)], false),
        NFSPROC3_SETATTR | NFSPROC3_WRITE | NFSPROC3_COMMIT | NFSPROC3_MKDIR | NFSPROC3_SYMLINK
        | NFSPROC3_MKNOD => (&[Before(0), Main, After(0)], true),
        NFSPROC3_CREATE | NFSPROC3_REMOVE | NFSPROC3_RMDIR => {
            (&[Before(0), Release(0), Main, After(0)], true)
        }
        NFSPROC3_RENAME => {
            const RENAME: &[Do] = &[
                Before(0),
                Before(1),
                Release(0),
                Release(1),
                Main,
                After(0),
                After(1),
            ];
            (RENAME, true)
        }
        NFSPROC3_LINK => (&[Before(1), Main, After(0), After(1)], true),
    }
}

/// Whether it must not be done twice (RFC 1813, section 4.5).
fn is_once(procedure: V3Procedure) -> bool {
    let (_, changes) = steps(procedure);
    let is_data = matches!(
        procedure,
        V3Procedure::Nfs(nfs_proc3::NFSPROC3_WRITE | nfs_proc3::NFSPROC3_COMMIT)
    );
    changes && !is_data
}

/// A retransmission waits so long for the first call to end, as if for memory.
/// Then it gets no answer: its client will send it once more.
const PATIENCE: Nanos = 300_000_000;

/// What is called, on whose behalf, and the call.
pub(super) type V3By = (V3Procedure, Credential, Tag);

/// What a call has found out so far.
pub(super) struct V3CallState {
    pub(super) procedure: V3Procedure,
    /// On whose behalf it acts.
    identity: Credential,
    /// The asker whose turn it takes.
    from: Asker,
    pub(super) export: u32,
    /// The file system that was exported so when it arrived.
    instance: u64,
    /// Its objects.
    pub(super) files: [FileId; 2],
    /// The step under way.
    at: usize,
    pub(super) status: nfsstat3,
    pub(super) before: [Option<Attr>; 2],
    pub(super) after: [Option<Attr>; 2],
    /// The object that was found or made, and its attributes.
    pub(super) found: Option<FileId>,
    pub(super) found_attr: Option<Attr>,
    /// The directory above.
    pub(super) up: Option<FileId>,
    pub(super) output: Option<Output>,
    /// What names the data of a READ.
    pub(super) data: Option<Tag>,
    /// A READ or WRITE whose first piece was asked for.
    reading: Option<ReadUnderWay>,
    writing: Option<WriteUnderWay>,
    /// Of writes, before a WRITE began: what is lost meanwhile may be its data.
    pub(super) verifier: u64,
    /// What it is known by, if it must not be done twice, and where.
    known: Option<(Arc<AddressReplies>, CallKey)>,
    /// It has not been asked yet whether it was done before.
    may_be_again: bool,
    /// When it arrived.
    since: Nanos,
    /// It gets no answer.
    pub(super) is_dropped: bool,
    /// Bytes that are reserved for its entries.
    reserved: u32,
    /// A limit has held it back, and does not any more.
    is_let_go: bool,
    /// What a client says that has a write delegation of its object.
    view: Option<HolderView>,
}

/// What a step comes to.
enum V3Next<'a> {
    /// This.
    Done(Result<Output, fs::Error>),
    /// What the file system answers.
    Ask(FsOp<'a>),
    /// The procedure ends so.
    Refused(nfsstat3),
    /// To be begun again when there is memory, or a limit lets it go.
    Waits(Step),
}

/// Where a step may look and act.
struct With<'a> {
    nfsd: &'a Nfsd,
    link: &'a mut Link<Connection>,
    pool: &'a Pool,
    limits: Option<&'a OwnLimits>,
    is_connected: bool,
    granted: Granted<'a>,
    now: Nanos,
    time: Time,
    tag: Tag,
}

impl With<'_> {
    fn fs(&self) -> &dyn FileSystem {
        self.granted.fs.as_ref()
    }
}

/// Whether nothing that clients of NFSv4 have of a file keeps others from
/// changing it, or from having `access` to its content.
fn check(nfsd: &Nfsd, now: Nanos, file: FileKey, access: u32) -> Result<(), nfsstat3> {
    let checked = match access {
        0 => state::break_old(nfsd, now, file),
        _ => state::check_old(nfsd, now, file, access),
    };
    checked.map_err(|status| match status {
        // A client that denies others a file may have it open for days.
        nfsstat4::NFS4ERR_LOCKED => nfsstat3::NFS3ERR_ACCES,
        // Delegations come back, and grace ends.
        _ => nfsstat3::NFS3ERR_JUKEBOX,
    })
}

/// Whether a name of a file may be made or removed: as with [`check`], and not while a
/// client may still reclaim what it had open under one (RFC 8881, section 8.4.2.1).
fn check_names(nfsd: &Nfsd, now: Nanos, file: FileKey) -> Result<(), nfsstat3> {
    match nfsd.server.is_in_grace(now) {
        true => Err(nfsstat3::NFS3ERR_JUKEBOX),
        false => check(nfsd, now, file, 0),
    }
}

impl V3CallState {
    /// A call that ends at once.
    pub(super) fn refused(procedure: V3Procedure, by: Credential, status: nfsstat3) -> V3CallState {
        V3CallState {
            procedure,
            identity: by,
            from: Asker::default(),
            export: 0,
            instance: 0,
            files: [FileId(0); 2],
            at: 0,
            status,
            before: [None, None],
            after: [None, None],
            found: None,
            found_attr: None,
            up: None,
            output: None,
            data: None,
            reading: None,
            writing: None,
            verifier: 0,
            known: None,
            may_be_again: false,
            since: 0,
            is_dropped: false,
            reserved: 0,
            is_let_go: false,
            view: None,
        }
    }

    /// A call about what was found.
    pub(super) fn new(
        (procedure, by, tag): V3By,
        found: ExportFound,
        around: &mut Around<'_>,
    ) -> V3CallState {
        let mut call = V3CallState::refused(procedure, by, nfsstat3::NFS3_OK);
        match found {
            Ok((export, files)) => (call.export, call.files) = (export, files),
            Err(status) => call.status = status,
        }
        let Some(granted) = around.peer.view.granted(call.export) else {
            return call;
        };
        let by = &call.identity;
        let acting = granted.rule.acting_credential(by);
        call.from = around.peer.asker();
        call.instance = granted.fs.info().instance;
        if steps(procedure).1 && granted.rule.is_read_only {
            call.status = nfsstat3::NFS3ERR_ROFS;
        } else if is_once(procedure) {
            let came = around.link.machine.call(tag);
            let known = CallKey::new(came.xid, procedure.number(), by, came.args);
            call.known = Some((around.peer.address_replies(around.nfsd).clone(), known));
            call.may_be_again = true;
        }
        call.since = around.now;
        if let Some(acting) = acting {
            call.identity = acting;
        }
        call
    }

    /// Nothing more is done.
    pub(super) fn refuse(&mut self) {
        self.status = nfsstat3::NFS3ERR_JUKEBOX;
        // If it may have been executed before, only that execution may answer it.
        self.is_dropped = self.may_be_again;
    }

    /// The call is given up: its answer is not sent.
    pub(super) fn abandon(&self) {
        if let (Some((replies, known)), false) = (&self.known, self.may_be_again) {
            replies.forget(*known);
        }
    }

    /// On whose behalf it acts.
    pub(super) fn caller(&self, now: Time) -> Caller<'_> {
        Caller {
            uid: self.identity.uid,
            gid: self.identity.gid,
            gids: self.identity.gids(),
            now,
            is_open: false,
            from: self.from,
        }
    }

    /// The same in a step: what another client has changed is not the caller's doing.
    fn caller_in(&self, step: Do, now: Time) -> Caller<'_> {
        Caller {
            is_open: step == Do::Touch,
            ..self.caller(now)
        }
    }

    /// Its export, if that is still what it was when the call arrived.
    fn granted<'v>(&self, view: &'v View) -> Option<Granted<'v>> {
        let granted = view.granted(self.export)?;
        let is_same = granted.fs.info().instance == self.instance;
        is_same.then_some(granted)
    }

    /// Goes on as far as it can.
    pub(super) fn advance(&mut self, tag: Tag, args: &[u8], around: &mut Around<'_>) -> Step {
        if let Some(step) = self.answer_again(tag, around) {
            return step;
        }
        if self.is_dropped {
            self.known = None;
            return Step::Sent;
        }
        let asked = V3Asked::read(self.procedure, args).expect("it was read when it came");
        while let Some(&step) = steps(self.procedure).0.get(self.at) {
            let Some(granted) = self.granted(&around.peer.view) else {
                break;
            };
            if !self.is_needed(step, &asked, around.time) {
                self.at += 1;
                continue;
            }
            let unsent = around.link.machine.unsent_bytes();
            let answers = (&mut around.peer.answers, around.pool, unsent);
            match self.reserve(step, &asked, answers) {
                Ok(()) => {}
                Err(AnswerWait::Later) => {
                    self.status = nfsstat3::NFS3ERR_JUKEBOX;
                    continue;
                }
                Err(AnswerWait::NoMemory) => return Step::NoMemory,
            }
            let mut with = With {
                nfsd: around.nfsd,
                link: around.link,
                pool: around.pool,
                limits: around.limits,
                is_connected: around.is_connected,
                granted,
                now: around.now,
                time: around.time,
                tag,
            };
            let result = match self.begin(step, &asked, &mut with) {
                V3Next::Done(result) => result,
                V3Next::Refused(status) => {
                    self.status = status;
                    continue;
                }
                V3Next::Waits(step) => {
                    payload::keep(around.link, around.pool, tag);
                    return step;
                }
                V3Next::Ask(op) => {
                    let caller = self.caller_in(step, around.time);
                    let fs = granted.fs;
                    match fs.start(&caller, op, around.files, around.token) {
                        Progress::Done(result) => result,
                        Progress::Pending(task) => {
                            payload::keep(around.link, around.pool, tag);
                            return Step::Pending(fs.clone(), task);
                        }
                    }
                }
            };
            let fs = granted.fs.as_ref();
            self.take_result(step, &asked, result, (fs, around.nfsd, around.now));
        }
        let is_granted = self.granted(&around.peer.view).is_some();
        if self.status == nfsstat3::NFS3_OK && !is_granted {
            // It was removed while the call waited, for whatever step.
            self.status = nfsstat3::NFS3ERR_STALE;
        }
        self.finish(tag, &asked, around);
        Step::Sent
    }

    /// Memory for the entries of a directory.
    fn reserve(
        &mut self,
        step: Do,
        asked: &V3Asked<'_>,
        (answers, pool, unsent): (&mut Answers, &Pool, usize),
    ) -> Result<(), AnswerWait> {
        if let (Do::Main, V3Asked::Readdir(_, args)) = (step, asked) {
            let bytes = results::listing_bytes(args);
            answers.reserve(pool, unsent, bytes)?;
            self.reserved = bytes;
        }
        Ok(())
    }

    /// Takes the answer to the step under way.
    pub(super) fn take(
        &mut self,
        args: &[u8],
        result: Result<Output, fs::Error>,
        fs: &dyn FileSystem,
        around: &Around<'_>,
    ) {
        let asked = V3Asked::read(self.procedure, args);
        let asked = asked.expect("it was read when it came");
        let step = steps(self.procedure).0[self.at];
        self.take_result(step, &asked, result, (fs, around.nfsd, around.now));
    }

    /// A retransmission has the answer of the first call; while that is under way
    /// there is none yet.
    fn answer_again(&mut self, tag: Tag, around: &mut Around<'_>) -> Option<Step> {
        let is_open = self.may_be_again && !self.is_dropped;
        let (replies, known) = self.known.as_ref().filter(|_| is_open)?;
        match replies.begin(*known, around.now) {
            CallBegun::New => {
                self.may_be_again = false;
                None
            }
            CallBegun::Again(results) => {
                let reply = around.link.machine.reply(tag);
                reply.bytes().extend_from_slice(&results);
                self.known = None;
                Some(Step::Sent)
            }
            CallBegun::UnderWay if around.now.saturating_sub(self.since) >= PATIENCE => {
                self.is_dropped = true;
                None
            }
            CallBegun::UnderWay => Some(Step::NoMemory),
        }
    }

    fn is_needed(&self, step: Do, asked: &V3Asked<'_>, now: Time) -> bool {
        let goes_on = self.status == nfsstat3::NFS3_OK;
        match (step, asked) {
            (Do::After(at), _) => self.after[at].is_none(),
            // An existing file is taken as it is, but for its size.
            (Do::Release(_), V3Asked::Create(_, new)) => {
                let cuts = |(new, set): &(New<'_>, fs::SetAttr)| {
                    matches!(new, New::Unchecked) && set.size.is_some()
                };
                goes_on && new.as_ref().is_some_and(cuts)
            }
            // The second entry of a directory names it.
            (Do::Up, V3Asked::Readdir(_, args)) => goes_on && args.cookie < 2,
            (Do::Found, _) => goes_on && self.found_attr.is_none(),
            (Do::Touch, _) => goes_on && self.to_show(now).is_some(),
            _ => goes_on,
        }
    }

    fn begin<'a>(&mut self, step: Do, asked: &V3Asked<'a>, with: &mut With<'_>) -> V3Next<'a> {
        match step {
            Do::Before(at) | Do::After(at) => V3Next::Ask(FsOp::Getattr {
                file: self.files[at],
            }),
            Do::Found => V3Next::Ask(FsOp::Getattr {
                file: self.found.unwrap_or(self.files[0]),
            }),
            Do::Release(at) => {
                let (dir, name) = (self.files[at], asked.name(at));
                V3Next::Ask(FsOp::Lookup { dir, name })
            }
            Do::Up if self.files[0] == with.fs().root() => {
                V3Next::Done(Ok(Output::File(self.files[0])))
            }
            Do::Up => V3Next::Ask(FsOp::Parent { dir: self.files[0] }),
            Do::Hear => self.hear(with),
            Do::Touch => {
                let to_show = self.to_show(with.time).expect("there is something to set");
                let attr = self.after[0].as_ref().filter(|_| !to_show.is_modified);
                let guard = attr.map(|attr| attr.changed);
                let (file, set) = (self.files[0], to_show.set);
                V3Next::Ask(FsOp::Setattr { file, set, guard })
            }
            Do::Main => match self.main(asked, with) {
                Ok(next) => next,
                Err(status) => V3Next::Refused(status),
            },
        }
    }

    /// What is set of the object, as another client says.
    fn to_show(&self, now: Time) -> Option<ToShow> {
        let (view, attr) = self.view.as_ref().zip(self.after[0].as_ref())?;
        holder::to_show(view, attr, now)
    }

    /// Whether that client has changed the object.
    fn is_modified_elsewhere(&self) -> bool {
        let both = self.view.as_ref().zip(self.after[0].as_ref());
        both.is_some_and(|(view, attr)| view.is_modified(attr.size))
    }

    /// What another client says of the object.
    fn hear<'a>(&mut self, with: &With<'_>) -> V3Next<'a> {
        let key = (with.fs().info().instance, self.files[0].0);
        let times = (self.since, with.now);
        match with.nfsd.hear_holder(state::NO_CLIENT, key, times) {
            Ok(Heard::NotYet) => return V3Next::Waits(Step::NoMemory),
            Ok(Heard::View(view)) => self.view = Some(view),
            Ok(Heard::Nothing) => {}
            Err(_) => return V3Next::Refused(nfsstat3::NFS3ERR_JUKEBOX),
        }
        V3Next::Done(Ok(Output::Done))
    }

    /// The procedure itself, or why it is refused before any file system is
    /// asked.
    fn main<'a>(
        &mut self,
        asked: &V3Asked<'a>,
        with: &mut With<'_>,
    ) -> Result<V3Next<'a>, nfsstat3> {
        let [file, dir] = self.files;
        let key = (with.fs().info().instance, file.0);
        let (nfsd, now) = (with.nfsd, with.now);
        let may = |access: u32| check(nfsd, now, key, access);
        let op = match *asked {
            V3Asked::Of(_) => match self.procedure {
                V3Procedure::Nfs(nfs_proc3::NFSPROC3_READLINK) => FsOp::Readlink { file },
                V3Procedure::Nfs(nfs_proc3::NFSPROC3_FSSTAT) => FsOp::Statfs { file },
                _ => FsOp::Getattr { file },
            },
            V3Asked::GetAcl(..) | V3Asked::SetAcl(..) => self.lists(asked, with)?,
            V3Asked::Access(..) => FsOp::Getattr { file },
            V3Asked::Setattr(_, ref set, guard) => {
                may(if set.size.is_some() { WRITE } else { 0 })?;
                let set = set.clone();
                FsOp::Setattr { file, set, guard }
            }
            V3Asked::Lookup(named) => match named.name {
                b"." => return Ok(V3Next::Done(Ok(Output::File(file)))),
                b".." if file == with.fs().root() => {
                    return Ok(V3Next::Done(Ok(Output::File(file))));
                }
                b".." => FsOp::Parent { dir: file },
                name => FsOp::Lookup { dir: file, name },
            },
            V3Asked::Read { offset, count, .. } => {
                if self.reading.is_none() {
                    may(READ)?;
                }
                return Ok(self.read((file, offset, count), with));
            }
            V3Asked::Write {
                offset,
                count,
                stable,
                ..
            } => {
                return self.write((file, offset, count, stable), may(WRITE), with);
            }
            V3Asked::Create(_, None) => return Err(nfsstat3::NFS3ERR_BADTYPE),
            V3Asked::Create(named, Some((new, ref set))) => FsOp::Create {
                dir: file,
                name: named.name,
                new,
                set: set.clone(),
            },
            V3Asked::Remove(named, what) => FsOp::Remove {
                dir: file,
                name: named.name,
                what,
            },
            V3Asked::Rename(from, to) => FsOp::Rename {
                from_dir: file,
                from: from.name,
                to_dir: dir,
                to: to.name,
            },
            V3Asked::Link(_, Named { name, .. }) => {
                check_names(nfsd, now, key)?;
                FsOp::Link { file, dir, name }
            }
            V3Asked::Readdir(_, ref args) => results::readdir(file, args),
            V3Asked::Commit(_) => FsOp::Commit { file },
        };
        Ok(V3Next::Ask(op))
    }

    /// GETACL and SETACL.
    fn lists(&self, asked: &V3Asked<'_>, with: &With<'_>) -> Result<FsOp<'static>, nfsstat3> {
        let file = self.files[0];
        match asked {
            V3Asked::SetAcl(_, lists) => {
                let set = acl::read(lists, self.before[0].as_ref())?;
                let key = (with.fs().info().instance, file.0);
                check(with.nfsd, with.now, key, 0)?;
                let guard = None;
                Ok(FsOp::Setattr { file, set, guard })
            }
            V3Asked::GetAcl(_, mask) if mask & !acl::ALL != 0 => Err(nfsstat3::NFS3ERR_INVAL),
            _ => Ok(FsOp::Getattr { file }),
        }
    }

    /// Begins a READ, or goes on with one.
    fn read<'a>(
        &mut self,
        (file, offset, count): (FileId, u64, u32),
        with: &mut With<'_>,
    ) -> V3Next<'a> {
        let reading = self.reading.take();
        let count = count.min(with.nfsd.settings.io_bytes_max);
        // It waits for limits once.
        if reading.is_none()
            && let Some(limits) = with.limits.filter(|limits| limits.are_used())
            && !std::mem::take(&mut self.is_let_go)
            && let Some(demand) = with
                .granted
                .held_back(limits, (IoOp::Read, count), with.now)
        {
            self.is_let_go = true;
            return V3Next::Waits(Step::HeldBack(demand));
        }
        let caller = self.caller(with.time);
        let from = File {
            fs: with.granted.fs.as_ref(),
            caller: &caller,
            id: file,
        };
        let is_protected = with.link.machine.is_protected(with.tag);
        let new = || ReadUnderWay::new(offset, count, is_protected);
        let mut reading = reading.unwrap_or_else(new);
        match reading.go_on(with.pool, from) {
            Err(error) => V3Next::Done(Err(error)),
            Ok(DataStep::Done) => V3Next::Done(self.give(reading, with)),
            Ok(DataStep::NoMemory) => {
                // It has taken what it takes of limits.
                self.is_let_go = true;
                V3Next::Waits(Step::NoMemory)
            }
            Ok(DataStep::Ask(op)) => {
                self.reading = Some(reading);
                V3Next::Ask(op)
            }
            Ok(DataStep::Turn) => {
                self.reading = Some(reading);
                V3Next::Waits(Step::Turn)
            }
        }
    }

    /// All is read that will be.
    fn give(&mut self, read: ReadUnderWay, with: &mut With<'_>) -> Result<Output, fs::Error> {
        let (len, is_end) = (read.len, read.is_end);
        if len > 0 {
            let tag = with.link.machine.data_tag(with.tag);
            let tag = tag.ok_or(fs::Error::Delay)?;
            with.link.set_data(tag, read.data);
            self.data = Some(tag);
        }
        Ok(Output::Read { len, is_end })
    }

    /// Begins a WRITE if that may be, or goes on with one: what let its first piece through may be
    /// gone.
    fn write<'a>(
        &mut self,
        (id, offset, len, stable): (FileId, u64, u32, stable_how),
        may_write: Result<(), nfsstat3>,
        with: &mut With<'_>,
    ) -> Result<V3Next<'a>, nfsstat3> {
        let mut writing = match self.writing.take() {
            Some(mut writing) => {
                let is_read_only = with.granted.rule.is_read_only;
                writing.end_unless(may_write.is_ok() && !is_read_only && with.is_connected);
                writing
            }
            None => {
                may_write?;
                self.verifier = with.fs().verifier();
                let payloads = with.link.machine.call(with.tag).payloads;
                let data = (payloads.first().copied().flatten(), len);
                WriteUnderWay::new(data, (offset, stable != stable_how::UNSTABLE))
            }
        };
        let fs = with.granted.fs.as_ref();
        let caller = self.caller(with.time);
        let caller = &caller;
        let to = File { fs, caller, id };
        Ok(match writing.go_on(with.link, with.pool, to) {
            Err(error) => V3Next::Done(Err(error)),
            Ok(DataStep::Done) => V3Next::Done(Ok(Output::Written(writing.written))),
            Ok(DataStep::NoMemory) => V3Next::Waits(Step::NoMemory),
            Ok(DataStep::Ask(op)) => {
                self.writing = Some(writing);
                V3Next::Ask(op)
            }
            Ok(DataStep::Turn) => {
                self.writing = Some(writing);
                V3Next::Waits(Step::Turn)
            }
        })
    }

    /// Gives what was asked for to the READ or WRITE that asked for a piece. `None`: that goes
    /// on.
    fn take_piece(
        &mut self,
        result: Result<Output, fs::Error>,
    ) -> Option<Result<Output, fs::Error>> {
        let resumed = match (&mut self.reading, &mut self.writing) {
            (Some(reading), _) => reading.resume(result),
            (_, Some(writing)) => writing.resume(result),
            _ => return Some(result),
        };
        let error = resumed.err()?;
        (self.reading, self.writing) = (None, None);
        Some(Err(error))
    }

    /// A step came to this.
    fn take_result(
        &mut self,
        step: Do,
        asked: &V3Asked<'_>,
        result: Result<Output, fs::Error>,
        (fs, nfsd, now): (&dyn FileSystem, &Nfsd, Nanos),
    ) {
        let result = match step {
            Do::Main => self.take_piece(result),
            _ => Some(result),
        };
        let Some(result) = result else {
            return;
        };
        self.at += 1;
        match (step, result) {
            (Do::Before(at), Ok(Output::Attr(attr))) => self.before[at] = Some(attr),
            (Do::After(at), Ok(Output::Attr(attr))) => self.after[at] = Some(attr),
            (Do::Found, Ok(Output::Attr(attr))) => self.found_attr = Some(attr),
            (Do::Up, Ok(Output::File(file))) => self.up = Some(file),
            (Do::Release(_), Ok(Output::File(file))) => {
                let key = (fs.info().instance, file.0);
                let checked = match asked {
                    V3Asked::Create(..) => check(nfsd, now, key, WRITE),
                    _ => check_names(nfsd, now, key),
                };
                if let Err(status) = checked {
                    self.status = status;
                }
            }
            (Do::Hear, Ok(Output::Done)) => {}
            (Do::Touch, Ok(Output::Attr(attr))) => {
                let size = self.view.as_ref().map_or(attr.size, |view| view.size);
                self.done(Output::Attr(Attr { size, ..attr }));
            }
            // It is told as the server has it.
            (Do::Touch, Err(_)) if !self.is_modified_elsewhere() => {}
            // Then the procedure itself will say so.
            (Do::Release(_), Err(_)) => {}
            // The answer has it as far as it is known.
            (Do::After(_) | Do::Found, Err(_)) => {}
            (Do::Main, Ok(Output::Attr(attr))) if self.is_hidden(asked, &attr) => {
                self.status = nfsstat3::NFS3ERR_ACCES;
            }
            (Do::Main, Ok(output)) => self.done(output),
            (_, Err(error)) => self.status = self.refusal(error, asked),
            (_, Ok(_)) => unreachable!("the answer to another question"),
        }
    }

    /// Whether a list denies its caller what GETATTR or GETACL would tell (RFC 8881, section
    /// 6.2.1.3.1).
    fn is_hidden(&self, asked: &V3Asked<'_>, attr: &Attr) -> bool {
        let right = match (asked, self.procedure) {
            (V3Asked::GetAcl(..), _) => Rights::READ_ACL,
            (_, V3Procedure::Nfs(nfs_proc3::NFSPROC3_GETATTR)) => Rights::READ_ATTRIBUTES,
            _ => return false,
        };
        attr.acl.is_some() && !rights(attr, &self.caller(Time::default())).holds(right)
    }

    /// What a file system refused, in the words of the procedure.
    fn refusal(&self, error: fs::Error, asked: &V3Asked<'_>) -> nfsstat3 {
        let is_content = matches!(
            asked,
            V3Asked::Read { .. } | V3Asked::Write { .. } | V3Asked::Commit(_)
        );
        let is_readlink = self.procedure == V3Procedure::Nfs(nfs_proc3::NFSPROC3_READLINK);
        let in_directory =
            (self.before[0].as_ref()).is_some_and(|dir| dir.kind == fs::ObjectKind::Directory);
        let is_taken = matches!(asked, V3Asked::Create(..)) && in_directory;
        match error {
            fs::Error::Symlink if is_content => nfsstat3::NFS3ERR_INVAL,
            // What is there and is no file: newer kernels of Linux (7.3) create before they
            // look up, and after this status alone open what they then find.
            fs::Error::Symlink | fs::Error::WrongType if is_taken => nfsstat3::NFS3ERR_EXIST,
            // Section 3.3.5: whatever else it is.
            fs::Error::IsDir | fs::Error::WrongType if is_readlink => nfsstat3::NFS3ERR_INVAL,
            error => convert::status(error, asked.dots()),
        }
    }

    /// The procedure itself has succeeded.
    fn done(&mut self, output: Output) {
        match output {
            Output::Attr(ref attr) => self.after[0] = Some(attr.clone()),
            Output::File(file) => self.found = Some(file),
            Output::Created { ref attr, .. } => {
                (self.found, self.found_attr) = (Some(attr.file), Some(attr.clone()));
            }
            _ => {}
        }
        self.output = Some(output);
    }

    fn io(&self, asked: &V3Asked<'_>) -> CallIo {
        let (op, bytes) = match (asked, &self.output) {
            (V3Asked::Read { .. }, Some(Output::Read { len, .. })) => (IoOp::Read, *len),
            (V3Asked::Read { .. }, _) => (IoOp::Read, 0),
            (V3Asked::Write { .. }, Some(Output::Written(written))) => (IoOp::Write, written.len),
            (V3Asked::Write { .. }, _) => (IoOp::Write, 0),
            (V3Asked::Commit(_), _) => (IoOp::Flush, 0),
            _ => (IoOp::Other, 0),
        };
        CallIo {
            export: self.export,
            op,
            bytes: bytes.into(),
            has_failed: self.status != nfsstat3::NFS3_OK,
        }
    }

    /// All is known: the answer.
    fn finish(&mut self, tag: Tag, asked: &V3Asked<'_>, around: &mut Around<'_>) {
        let granted = around.peer.view.granted(self.export);
        let machine = &mut around.link.machine;
        let reply = machine.reply(tag);
        results::write(self, asked, granted, &around.nfsd.settings, reply);
        around.peer.answers.made(std::mem::take(&mut self.reserved));
        around.peer.answered = Some(self.io(asked));
        match (&self.known, self.status) {
            (None, _) => {}
            (Some((replies, known)), nfsstat3::NFS3ERR_JUKEBOX) => replies.forget(*known),
            (Some((replies, known)), _) => replies.finish(*known, reply.results()),
        }
        // What may be large, or is counted, is dropped before the next call.
        (self.output, self.known) = (None, None);
        (self.reading, self.writing) = (None, None);
    }
}
