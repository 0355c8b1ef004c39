//! File handles and names: what moves through the tree, and what changes it.

use nfs::attributes::SetAttributes;
use nfs::server::files::FileKey;
use store::fs::{
    self, ChangeInfo, Device, Error, FsOp, New, Output, Removable, SetAttr, SetTime, Time,
    check_name,
};
use wire::nfs4::{
    CREATE4args, CREATE4resok, LINK4args, LOOKUP4args, PUTFH4args, REMOVE4args, RENAME4args,
    RENAME4resok, change_info4, createtype4, fattr4, nfs_argop4, nfs_fh4, nfsstat4, nfstime4,
    settime4, specdata4,
};
use wire::xdr::{Encode, Opaque};

use crate::call::{Ask, OperationOutcome, QuestionBegun, RunningCall, check_present};
use crate::continuation::{Continuation, ThenNames};
use crate::pseudo::{Lost, PseudoPlace};
use crate::reason::Reason;
use crate::state;
use crate::status::status;

fn ask_file_system<'a>(
    run: &mut RunningCall<'a>,
    op: FsOp<'_>,
    then: ThenNames,
) -> OperationOutcome<'a> {
    let then = Continuation::Names(then);
    run.ask_file_system(Ask {
        op,
        is_open: false,
        then,
    })
}

pub(crate) fn resume<'a>(
    run: &mut RunningCall<'a>,
    then: ThenNames,
    result: Result<Output, fs::Error>,
) -> OperationOutcome<'a> {
    match then {
        ThenNames::Lookup => looked_up(run, result),
        ThenNames::Parent => found_parent(run, result),
        ThenNames::Create => created(run, result),
        ThenNames::Link => {
            let change = change(run.done(result)?);
            run.ok(|to| change.encode(to))
        }
        ThenNames::Readlink => read_link(run, result),
        ThenNames::RemoveFound => remove_found(run, result),
        ThenNames::Remove => {
            let Output::Removed { change, .. } = run.done(result)? else {
                unreachable!("{ANSWERED}");
            };
            run.ok(|to| change_info(&change).encode(to))
        }
        ThenNames::RenameSource => rename_source(run, result),
        ThenNames::RenameTarget => rename_target(run, result),
        ThenNames::Rename => renamed(run, result),
        ThenNames::RenameKind { is_goal } => rename_kind(run, is_goal, result),
    }
}

/// A file system answers what it was asked.
pub(crate) const ANSWERED: &str = "the answer to another question";

fn change(output: Output) -> change_info4 {
    match output {
        Output::Change(change) => change_info(&change),
        _ => unreachable!("{ANSWERED}"),
    }
}

pub(crate) fn change_info(change: &ChangeInfo) -> change_info4 {
    change_info4 {
        atomic: change.is_atomic,
        before: change.before,
        after: change.after,
    }
}

impl RunningCall<'_> {
    /// What a file system answered, or its refusal in the words of NFSv4.
    #[inline]
    pub(crate) fn done(&self, result: Result<Output, Error>) -> Result<Output, nfsstat4> {
        result.map_err(|error| status(error, self.minor()))
    }

    /// Whether a place may be changed.
    ///
    /// # Errors
    /// NFS4ERR_ROFS, NFS4ERR_STALE.
    #[inline]
    pub(crate) fn check_writable(&self, place: PseudoPlace) -> Result<(), nfsstat4> {
        let PseudoPlace::File { export, .. } = place else {
            return Err(nfsstat4::NFS4ERR_ROFS);
        };
        let granted = self.peer.view.granted(export);
        match granted.ok_or(nfsstat4::NFS4ERR_STALE)?.rule.is_read_only {
            true => Err(nfsstat4::NFS4ERR_ROFS),
            false => Ok(()),
        }
    }

    /// Whether names may be removed: not while a client may still reclaim what it had
    /// open under one (RFC 8881, section 8.4.2.1).
    ///
    /// # Errors
    /// NFS4ERR_GRACE.
    fn check_grace(&self) -> Result<(), nfsstat4> {
        match self.nfsd.server.is_in_grace(self.now) {
            true => Err(nfsstat4::NFS4ERR_GRACE),
            false => Ok(()),
        }
    }

    /// What the state of a file is kept by.
    ///
    /// # Errors
    /// NFS4ERR_STALE.
    #[inline]
    pub(crate) fn key(&self, place: PseudoPlace) -> Result<FileKey, nfsstat4> {
        match place {
            PseudoPlace::Pseudo(file) => Ok((0, file.0)),
            PseudoPlace::File { export, file } => {
                let granted = self.peer.view.granted(export);
                let granted = granted.ok_or(nfsstat4::NFS4ERR_STALE)?;
                Ok((granted.fs.info().instance, file.0))
            }
            PseudoPlace::Absent(_) => Err(nfsstat4::NFS4ERR_MOVED),
        }
    }

    /// The saved file handle, which must be in the export that the current one
    /// is in.
    pub(crate) fn saved_beside(&self, current: PseudoPlace) -> Result<PseudoPlace, nfsstat4> {
        let saved = self.flow.saved.ok_or(nfsstat4::NFS4ERR_NOFILEHANDLE)?;
        self.check_security(saved.place)?;
        check_present(saved.place)?;
        match (saved.place, current) {
            (PseudoPlace::File { export: a, .. }, PseudoPlace::File { export: b, .. })
                if a == b =>
            {
                Ok(saved.place)
            }
            (PseudoPlace::Pseudo(_), PseudoPlace::Pseudo(_)) => Err(nfsstat4::NFS4ERR_ROFS),
            _ => Err(nfsstat4::NFS4ERR_XDEV),
        }
    }
}

/// The object at a place, as its file system calls it.
#[inline]
pub(crate) fn file(place: PseudoPlace) -> fs::FileId {
    match place {
        PseudoPlace::Pseudo(file) | PseudoPlace::File { file, .. } => file,
        // No file system is asked there.
        PseudoPlace::Absent(_) => fs::FileId(0),
    }
}

pub(crate) fn putrootfh<'a>(run: &mut RunningCall<'a>) -> OperationOutcome<'a> {
    let (nfsd, peer) = (run.nfsd, &run.peer);
    if peer.view.hides_root() {
        nfsd.events.refused(peer, "/", Reason::Address);
    }
    run.set_current(run.peer.view.root());
    run.ok(|_| ())
}

pub(crate) fn putfh<'a>(run: &mut RunningCall<'a>, args: &PUTFH4args<'a>) -> OperationOutcome<'a> {
    let place = run
        .peer
        .view
        .find(args.object.0)
        .map_err(|lost| match lost {
            Lost::BadHandle => nfsstat4::NFS4ERR_BADHANDLE,
            Lost::Stale => nfsstat4::NFS4ERR_STALE,
        })?;
    run.set_current(place);
    run.flow.is_put = true;
    run.ok(|_| ())
}

pub(crate) fn getfh<'a>(run: &mut RunningCall<'a>) -> OperationOutcome<'a> {
    let place = run.current()?;
    let handle = run.peer.view.handle(place);
    let handle = handle.ok_or(nfsstat4::NFS4ERR_STALE)?.encode();
    let handle: nfs_fh4<'_> = Opaque(&handle);
    run.ok(|to| handle.encode(to))
}

pub(crate) fn savefh<'a>(run: &mut RunningCall<'a>) -> OperationOutcome<'a> {
    let current = run.flow.current.ok_or(nfsstat4::NFS4ERR_NOFILEHANDLE)?;
    check_present(current.place)?;
    run.flow.saved = Some(current);
    run.ok(|_| ())
}

pub(crate) fn restorefh<'a>(run: &mut RunningCall<'a>) -> OperationOutcome<'a> {
    let none = match run.minor() {
        0 => nfsstat4::NFS4ERR_RESTOREFH,
        _ => nfsstat4::NFS4ERR_NOFILEHANDLE,
    };
    let saved = run.flow.saved.ok_or(none)?;
    run.put_current(saved);
    run.ok(|_| ())
}

pub(crate) fn lookup<'a>(
    run: &mut RunningCall<'a>,
    args: &LOOKUP4args<'a>,
) -> OperationOutcome<'a> {
    let name = args.objname.0;
    // Where it is found says whether the caller may be there.
    let current = run.flow.current.ok_or(nfsstat4::NFS4ERR_NOFILEHANDLE)?;
    match current.place {
        PseudoPlace::Absent(_) => Err(nfsstat4::NFS4ERR_MOVED),
        PseudoPlace::Pseudo(dir) => {
            check_name(name).map_err(|error| status(error, run.minor()))?;
            let (nfsd, peer) = (run.nfsd, &run.peer);
            let Some(place) = peer.view.lookup(dir, name) else {
                if let Some((path, reason)) = peer.view.not_found(dir, name) {
                    nfsd.events.refused(peer, &path, reason);
                }
                return Err(nfsstat4::NFS4ERR_NOENT);
            };
            run.check_security(place)?;
            run.set_current(place);
            run.ok(|_| ())
        }
        PseudoPlace::File { file: dir, .. } => {
            run.check_security(current.place)?;
            match run.begin(FsOp::Lookup { dir, name }, false) {
                QuestionBegun::Done(found) => looked_up(run, found),
                begun => run.await_answer(begun, Continuation::Names(ThenNames::Lookup)),
            }
        }
    }
}

#[inline]
fn looked_up<'a>(run: &mut RunningCall<'a>, result: Result<Output, Error>) -> OperationOutcome<'a> {
    let found = run.done(result)?;
    move_to(run, found);
    run.ok(|_| ())
}

/// The current file handle becomes an object of the export that it is in.
fn move_to(run: &mut RunningCall<'_>, found: Output) {
    let current = run.flow.current.map(|current| current.place);
    let (Some(PseudoPlace::File { export, .. }), Output::File(file)) = (current, found) else {
        unreachable!("{ANSWERED}");
    };
    run.set_current(PseudoPlace::File { export, file });
}

/// The directory that the current one lies in, where no file system need be
/// asked.
pub(crate) fn parent_above(
    run: &RunningCall<'_>,
    place: PseudoPlace,
) -> Option<Result<PseudoPlace, nfsstat4>> {
    let is_root = match place {
        PseudoPlace::Absent(_) => return Some(Err(nfsstat4::NFS4ERR_MOVED)),
        PseudoPlace::Pseudo(_) => true,
        PseudoPlace::File { export, file } => match run.peer.view.granted(export) {
            Some(granted) => granted.fs.root() == file,
            None => return Some(Err(nfsstat4::NFS4ERR_STALE)),
        },
    };
    let parent = || run.peer.view.parent(place).ok_or(nfsstat4::NFS4ERR_NOENT);
    is_root.then(parent)
}

pub(crate) fn lookupp<'a>(run: &mut RunningCall<'a>) -> OperationOutcome<'a> {
    let current = run.flow.current.ok_or(nfsstat4::NFS4ERR_NOFILEHANDLE)?;
    match parent_above(run, current.place) {
        Some(parent) => {
            run.set_current(parent?);
            run.ok(|_| ())
        }
        None => {
            run.check_security(current.place)?;
            let dir = file(current.place);
            ask_file_system(run, FsOp::Parent { dir }, ThenNames::Parent)
        }
    }
}

fn found_parent<'a>(
    run: &mut RunningCall<'a>,
    result: Result<Output, Error>,
) -> OperationOutcome<'a> {
    let found = run.done(result)?;
    move_to(run, found);
    run.ok(|_| ())
}

/// Attributes to be set, as a file system takes them, but for the list.
pub(crate) fn set_attr(set: &SetAttributes<'_>) -> SetAttr {
    let time = |set: Option<settime4>, delegated: Option<nfstime4>| match (set, delegated) {
        (Some(settime4::SET_TO_SERVER_TIME4), _) => Some(SetTime::Server),
        (Some(settime4::SET_TO_CLIENT_TIME4(set)), _) => Some(SetTime::Client(time_of(set))),
        (None, delegated) => delegated.map(|time| SetTime::Delegated(time_of(time))),
    };
    SetAttr {
        mode: set.mode,
        umask: set.umask,
        acl: None,
        label: None,
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        accessed: time(set.accessed, set.delegated_accessed),
        modified: time(set.modified, set.delegated_modified),
    }
}

/// A time, as a file system takes it.
pub(crate) fn time_of(time: nfstime4) -> Time {
    Time {
        seconds: time.seconds,
        nanos: time.nseconds,
    }
}

/// Bytes of results that are known before an operation changes anything.
const CHANGE_BYTES: u32 = 8 + 20;
const CREATE_BYTES: u32 = CHANGE_BYTES + 4 + 32;
const RENAME_BYTES: u32 = 8 + 40;

pub(crate) fn create<'a>(
    run: &mut RunningCall<'a>,
    args: &CREATE4args<'a>,
) -> OperationOutcome<'a> {
    let place = run.current()?;
    let device = |data: &specdata4| Device {
        major: data.specdata1,
        minor: data.specdata2,
    };
    let new = match &args.objtype {
        createtype4::NF4LNK(text) => New::Symlink(text.0),
        createtype4::NF4BLK(data) => New::Block(device(data)),
        createtype4::NF4CHR(data) => New::Character(device(data)),
        createtype4::NF4SOCK => New::Socket,
        createtype4::NF4FIFO => New::Fifo,
        createtype4::NF4DIR => New::Directory,
        createtype4::default(_) => return Err(nfsstat4::NFS4ERR_BADTYPE),
    };
    let set = run.read_attributes(&args.createattrs, true)?;
    if set.size.is_some() {
        return Err(nfsstat4::NFS4ERR_INVAL);
    }
    run.check_writable(place)?;
    run.reserve(CREATE_BYTES)?;
    let op = FsOp::Create {
        dir: file(place),
        name: args.objname.0,
        new,
        set,
    };
    ask_file_system(run, op, ThenNames::Create)
}

fn created<'a>(run: &mut RunningCall<'a>, result: Result<Output, Error>) -> OperationOutcome<'a> {
    let Output::Created { attr, change, .. } = run.done(result)? else {
        unreachable!("{ANSWERED}");
    };
    let nfs_argop4::OP_CREATE(args) = run.op() else {
        unreachable!("CREATE made it");
    };
    move_to(run, Output::File(attr.file));
    let resok = CREATE4resok {
        cinfo: change_info(&change),
        attrset: set_mask(&args.createattrs),
    };
    run.ok(|to| resok.encode(to))
}

/// What was set: all that was asked for, or nothing.
pub(crate) fn set_mask<'a>(set: &fattr4<'a>) -> wire::nfs4::bitmap4<'a> {
    set.attrmask
}

pub(crate) fn link<'a>(run: &mut RunningCall<'a>, args: &LINK4args<'a>) -> OperationOutcome<'a> {
    let place = run.current()?;
    let saved = run.saved_beside(place)?;
    check_name(args.newname.0).map_err(|error| status(error, run.minor()))?;
    run.check_writable(place)?;
    run.check_grace()?;
    run.reserve(CHANGE_BYTES)?;
    let key = run.key(saved)?;
    state::break_delegations(run, key)?;
    let op = FsOp::Link {
        file: file(saved),
        dir: file(place),
        name: args.newname.0,
    };
    ask_file_system(run, op, ThenNames::Link)
}

pub(crate) fn readlink<'a>(run: &mut RunningCall<'a>) -> OperationOutcome<'a> {
    let file = file(run.current()?);
    ask_file_system(run, FsOp::Readlink { file }, ThenNames::Readlink)
}

fn read_link<'a>(run: &mut RunningCall<'a>, result: Result<Output, Error>) -> OperationOutcome<'a> {
    // Whatever else it is, it is no symbolic link (RFC 7530, section 16.25).
    let result = result.map_err(|error| match error {
        Error::IsDir | Error::WrongType => Error::Inval,
        error => error,
    });
    let Output::Bytes(text) = run.done(result)? else {
        unreachable!("{ANSWERED}");
    };
    let link: wire::nfs4::linktext4<'_> = Opaque(&text);
    let next = run.ok(|to| link.encode(to))?;
    run.reply().data_item_behind(text.len() as u32);
    Ok(next)
}

pub(crate) fn remove<'a>(
    run: &mut RunningCall<'a>,
    args: &REMOVE4args<'a>,
) -> OperationOutcome<'a> {
    let place = run.current()?;
    run.check_writable(place)?;
    run.check_grace()?;
    run.reserve(CHANGE_BYTES)?;
    let (dir, name) = (file(place), args.target.0);
    ask_file_system(run, FsOp::Lookup { dir, name }, ThenNames::RemoveFound)
}

fn remove_found<'a>(
    run: &mut RunningCall<'a>,
    result: Result<Output, Error>,
) -> OperationOutcome<'a> {
    let dir = run.current()?;
    let found = run.done(result)?;
    break_found(run, dir, &found)?;
    let nfs_argop4::OP_REMOVE(args) = run.op() else {
        unreachable!("REMOVE asked");
    };
    let op = FsOp::Remove {
        dir: file(dir),
        name: args.target.0,
        what: Removable::Any,
    };
    ask_file_system(run, op, ThenNames::Remove)
}

/// Delegations of an object that was found beside `place` are recalled.
fn break_found(
    run: &mut RunningCall<'_>,
    place: PseudoPlace,
    found: &Output,
) -> Result<(), nfsstat4> {
    let &Output::File(found) = found else {
        unreachable!("{ANSWERED}");
    };
    let (instance, _) = run.key(place)?;
    state::break_delegations(run, (instance, found.0))
}

pub(crate) fn rename<'a>(
    run: &mut RunningCall<'a>,
    args: &RENAME4args<'a>,
) -> OperationOutcome<'a> {
    let place = run.current()?;
    let saved = run.saved_beside(place)?;
    for name in [args.oldname.0, args.newname.0] {
        check_name(name).map_err(|error| status(error, run.minor()))?;
    }
    run.check_writable(place)?;
    run.check_grace()?;
    run.reserve(RENAME_BYTES)?;
    let (dir, name) = (file(saved), args.oldname.0);
    ask_file_system(run, FsOp::Lookup { dir, name }, ThenNames::RenameSource)
}

fn rename_args<'a>(run: &RunningCall<'a>) -> RENAME4args<'a> {
    match run.op() {
        nfs_argop4::OP_RENAME(args) => args,
        _ => unreachable!("RENAME asked"),
    }
}

fn ask_rename<'a>(run: &mut RunningCall<'a>) -> OperationOutcome<'a> {
    let (place, args) = (run.current()?, rename_args(run));
    let op = FsOp::Rename {
        from_dir: file(run.saved_beside(place)?),
        from: args.oldname.0,
        to_dir: file(place),
        to: args.newname.0,
    };
    ask_file_system(run, op, ThenNames::Rename)
}

fn rename_source<'a>(
    run: &mut RunningCall<'a>,
    result: Result<Output, Error>,
) -> OperationOutcome<'a> {
    let place = run.current()?;
    let found = run.done(result)?;
    break_found(run, place, &found)?;
    let (dir, name) = (file(place), rename_args(run).newname.0);
    ask_file_system(run, FsOp::Lookup { dir, name }, ThenNames::RenameTarget)
}

fn rename_target<'a>(
    run: &mut RunningCall<'a>,
    result: Result<Output, Error>,
) -> OperationOutcome<'a> {
    let place = run.current()?;
    match result {
        Err(Error::NoEnt) => {}
        found => {
            let found = run.done(found)?;
            break_found(run, place, &found)?;
        }
    }
    ask_rename(run)
}

fn renamed<'a>(run: &mut RunningCall<'a>, result: Result<Output, Error>) -> OperationOutcome<'a> {
    let (from, to) = match result {
        Ok(Output::Renamed { from, to, .. }) => (from, to),
        Ok(_) => unreachable!("{ANSWERED}"),
        // Over something of another kind, or over a directory with entries
        // (RFC 8881, section 18.26.3).
        Err(Error::IsDir | Error::NotEmpty) => return Err(nfsstat4::NFS4ERR_EXIST),
        Err(Error::NotDir) => {
            let dir = file(run.saved_beside(run.current()?)?);
            return ask_file_system(
                run,
                FsOp::Getattr { file: dir },
                ThenNames::RenameKind { is_goal: false },
            );
        }
        Err(error) => return Err(status(error, run.minor())),
    };
    let resok = RENAME4resok {
        source_cinfo: change_info(&from),
        target_cinfo: change_info(&to),
    };
    run.ok(|to| resok.encode(to))
}

/// Something was no directory: what a name is to be put in or taken from, or
/// what it is to replace?
fn rename_kind<'a>(
    run: &mut RunningCall<'a>,
    is_goal: bool,
    result: Result<Output, Error>,
) -> OperationOutcome<'a> {
    let Output::Attr(attr) = run.done(result)? else {
        unreachable!("{ANSWERED}");
    };
    match (attr.kind == fs::ObjectKind::Directory, is_goal) {
        (false, _) => Err(nfsstat4::NFS4ERR_NOTDIR),
        (true, true) => Err(nfsstat4::NFS4ERR_EXIST),
        (true, false) => {
            let file = file(run.current()?);
            ask_file_system(
                run,
                FsOp::Getattr { file },
                ThenNames::RenameKind { is_goal: true },
            )
        }
    }
}
