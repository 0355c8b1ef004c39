//! OPEN and what ends it (RFC 8881, sections 18.2, 18.16, 18.18; RFC 7530,
//! sections 16.2, 16.16, 16.18, 16.19).

use std::sync::Arc;

use faults::Fault;
use nfs::server::Client;
use nfs::server::files::{
    self, FileKey, OpenArgs, OpenOutcome, OwnerKind, ShareReservation, State, StateKind, WRITE,
};
use store::fs::{self, Error, FileId, FsOp, New, Output, SetAttr};
use wire::nfs4::{
    CLOSE4args, OPEN_CONFIRM4args, OPEN_DOWNGRADE4args, OPEN4_RESULT_CONFIRM,
    OPEN4_RESULT_LOCKTYPE_POSIX, OPEN4_RESULT_MAY_NOTIFY_LOCK, OPEN4_RESULT_NO_OPEN_STATEID,
    OPEN4args, OPEN4resok, bitmap4, change_info4, createhow4, nfs_argop4, nfs_space_limit4,
    nfsace4, nfsstat4, open_claim4, open_delegation4, open_none_delegation4, open_read_delegation4,
    open_write_delegation4, openflag4, why_no_delegation4,
};
use wire::nfs4::{
    FATTR4_SIZE, OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_WANT_ANY_DELEG,
    OPEN4_SHARE_ACCESS_WANT_DELEG_MASK, OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS,
    OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OPEN4_SHARE_ACCESS_WANT_NO_PREFERENCE,
    OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION, OPEN4_SHARE_ACCESS_WANT_READ_DELEG,
    OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG, OPEN4_SHARE_DENY_BOTH, open_delegation_type4,
};
use wire::xdr::{Encode, List, Opaque};

use crate::Nfsd;
use crate::call::{Ask, Elsewhere, NextStep, OperationOutcome, RunningCall, Step};
use crate::continuation::{Continuation, Opening, ThenOpen};
use crate::names::{change_info, file, set_mask};
use crate::owner_seqid::{self, OwnerRequest, TurnTaken};
use crate::pseudo::PseudoPlace;

/// Bytes of the result of OPEN at most.
const OPEN_BYTES: u32 = 256;
/// When a delegation is wanted: as soon as there is one, or the client is asked.
const WANT_WHEN: u32 = 0x30000;
/// What is wanted of delegations since version 4.1.
const WANTS: u32 = OPEN4_SHARE_ACCESS_WANT_DELEG_MASK | WANT_WHEN;
const ANSWERED: &str = "each question has its answer";

pub(crate) fn resume<'a>(
    run: &mut RunningCall<'a>,
    then: ThenOpen,
    result: Result<Output, Error>,
) -> OperationOutcome<'a> {
    let (then, opening): (OpenStep, _) = match then {
        ThenOpen::Directory(opening) => (look_up, opening),
        ThenOpen::Found(opening) => (found, opening),
        ThenOpen::Created(opening) => (created, opening),
        ThenOpen::Owned(opening) => (owned, opening),
        ThenOpen::Held(opening) => (held, opening),
        ThenOpen::Granted(opening) => (granted, opening),
        ThenOpen::Truncated(opening) => (truncated, opening),
        ThenOpen::Delegated(opening) => (delegated, opening),
        ThenOpen::Closed(turn) => return turn.end(run, closed),
        ThenOpen::Returned => return run.ok(|_| {}),
    };
    go_on(run, then, opening, result)
}

/// The next step of an OPEN.
fn go_on<'a>(
    run: &mut RunningCall<'a>,
    then: OpenStep,
    mut opening: Box<Opening>,
    result: Result<Output, Error>,
) -> OperationOutcome<'a> {
    match then(run, &mut opening, result) {
        Ok(Go::On(op, is_open, then)) => run.ask_file_system(Ask {
            op,
            is_open,
            then: Continuation::Open(then(opening)),
        }),
        Ok(Go::Records(then)) => run.wait(
            Step::Elsewhere(Elsewhere::Records),
            Continuation::Open(then(opening)),
        ),
        Ok(Go::Done) => answer(run, opening),
        Err(status) => opening.turn.end(run, |_| Err(status)),
    }
}

impl Opening {
    /// What holds the file.
    fn op(&self) -> FsOp<'static> {
        FsOp::Open {
            file: self.file,
            read: self.share.access & files::READ != 0,
            write: self.share.access & WRITE != 0,
        }
    }
}

/// How an OPEN goes on.
enum Go<'a> {
    /// This is asked.
    On(FsOp<'a>, bool, fn(Box<Opening>) -> ThenOpen),
    /// Records are to be safe before the answer is sent.
    Records(fn(Box<Opening>) -> ThenOpen),
    /// It is open.
    Done,
}

type OpenStep = for<'r, 'a> fn(
    &'r mut RunningCall<'a>,
    &'r mut Opening,
    Result<Output, Error>,
) -> Result<Go<'a>, nfsstat4>;

fn args<'a>(run: &RunningCall<'a>) -> OPEN4args<'a> {
    match run.op() {
        nfs_argop4::OP_OPEN(args) => args,
        _ => unreachable!("OPEN asked"),
    }
}

pub(crate) fn open<'a>(run: &mut RunningCall<'a>, args: &OPEN4args<'a>) -> OperationOutcome<'a> {
    run.current()?;
    check_minor(run.minor(), args)?;
    let client = match run.minor() {
        0 => run.nfsd.server.renew(args.owner.clientid, run.now)?,
        _ => run
            .client()
            .ok_or(nfsstat4::NFS4ERR_OP_NOT_IN_SESSION)?
            .clone(),
    };
    let turn = match run.minor() {
        0 => {
            run.flow.client = Some(client.clone());
            match take_turn(run, &client, args)? {
                Ok(turn) => turn,
                Err(kept) => return owner_seqid::repeat_answer(run, &kept),
            }
        }
        _ => OwnerRequest::default(),
    };
    let opening = Box::new(Opening {
        turn,
        client,
        share: ShareReservation {
            access: args.share_access & OPEN4_SHARE_ACCESS_BOTH,
            deny: match faults::is(Fault::NoShares) {
                true => 0,
                false => args.share_deny,
            },
        },
        file: FileId(0),
        change: change_info4 {
            atomic: false,
            before: 0,
            after: 0,
        },
        is_made: false,
        truncates: false,
        opened: None,
    });
    go_on(run, find, opening, Ok(Output::Done))
}

/// What a minor version does not have cannot be read in it.
fn check_minor(minor: u32, args: &OPEN4args<'_>) -> Result<(), nfsstat4> {
    let is_new_claim = matches!(
        args.claim,
        open_claim4::CLAIM_FH
            | open_claim4::CLAIM_DELEG_CUR_FH(_)
            | open_claim4::CLAIM_DELEG_PREV_FH
    );
    let is_new_create = matches!(
        args.openhow,
        openflag4::OPEN4_CREATE(createhow4::EXCLUSIVE4_1(_))
    );
    match minor == 0 && (is_new_claim || is_new_create) {
        true => Err(nfsstat4::NFS4ERR_BADXDR),
        false => Ok(()),
    }
}

/// The turn of an open owner of version 4.0, or its last answer.
fn take_turn(
    run: &mut RunningCall<'_>,
    client: &Arc<Client>,
    args: &OPEN4args<'_>,
) -> Result<Result<OwnerRequest, files::LastAnswer>, nfsstat4> {
    let nfsd = run.nfsd;
    let name = args.owner.owner.0;
    let owner = nfsd
        .files
        .admit_owner(client.id, OwnerKind::Open, name, run.now)?;
    Ok(match OwnerRequest::take(&owner, args.seqid)? {
        // What it never confirmed makes room: an owner has one such open at most.
        TurnTaken::Now(turn) | TurnTaken::Anew(turn) => {
            if !owner.is_confirmed()
                && let Some(state) = nfsd.files.unconfirmed(client.id, &owner)
                && nfsd.files.close(&state) == Ok(true)
            {
                nfsd.close_later(state.file);
            }
            Ok(turn)
        }
        TurnTaken::Again(kept) => Err(kept),
    })
}

/// Whether the arguments make sense together.
fn check(run: &mut RunningCall<'_>, args: &OPEN4args<'_>) -> Result<(), nfsstat4> {
    let known = match run.minor() {
        0 => OPEN4_SHARE_ACCESS_BOTH,
        1 => OPEN4_SHARE_ACCESS_BOTH | WANTS,
        _ => {
            OPEN4_SHARE_ACCESS_BOTH
                | WANTS
                | OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS
                | OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION
        }
    };
    let access = args.share_access & OPEN4_SHARE_ACCESS_BOTH;
    let has_bad_share =
        access == 0 || args.share_access & !known != 0 || args.share_deny > OPEN4_SHARE_DENY_BOTH;
    let is_new_kind = matches!(
        args.claim,
        open_claim4::CLAIM_PREVIOUS(
            open_delegation_type4::OPEN_DELEGATE_READ_ATTRS_DELEG
                | open_delegation_type4::OPEN_DELEGATE_WRITE_ATTRS_DELEG
        )
    );
    if run.minor() < 2 && is_new_kind {
        return Err(nfsstat4::NFS4ERR_BADXDR);
    }
    let creates = matches!(args.openhow, openflag4::OPEN4_CREATE(_));
    let is_by_name = matches!(args.claim, open_claim4::CLAIM_NULL(_));
    if has_bad_share || creates && !is_by_name {
        return Err(nfsstat4::NFS4ERR_INVAL);
    }
    Ok(())
}

/// Begins: whether this may be opened now, and what to look for.
fn find<'a>(
    run: &mut RunningCall<'a>,
    opening: &mut Opening,
    _: Result<Output, Error>,
) -> Result<Go<'a>, nfsstat4> {
    let args = args(run);
    check(run, &args)?;
    run.reserve(OPEN_BYTES)?;
    let is_reclaim = matches!(args.claim, open_claim4::CLAIM_PREVIOUS(_));
    let server = &run.nfsd.server;
    if is_reclaim || !faults::is(Fault::NoGrace) {
        server.check_grace(&opening.client, is_reclaim, run.now)?;
    }
    if opening.client.minor == 0 {
        server.record(&opening.client);
    }
    let place = run.current()?;
    if let PseudoPlace::Pseudo(dir) = place {
        check_pseudo(run, dir, &args)?;
    }
    if opening.share.access & WRITE != 0 || matches!(args.openhow, openflag4::OPEN4_CREATE(_)) {
        run.check_writable(place)?;
    }
    let dir = file(place);
    match args.claim {
        open_claim4::CLAIM_NULL(name) => match args.openhow {
            openflag4::OPEN4_CREATE(how) => create(run, opening, (dir, name.0), &how),
            openflag4::OPEN4_NOCREATE => Ok(Go::On(
                FsOp::Getattr { file: dir },
                false,
                ThenOpen::Directory,
            )),
        },
        open_claim4::CLAIM_DELEGATE_CUR(current) => {
            check_delegation(run, &current.delegate_stateid)?;
            Ok(Go::On(
                FsOp::Getattr { file: dir },
                false,
                ThenOpen::Directory,
            ))
        }
        open_claim4::CLAIM_PREVIOUS(_) | open_claim4::CLAIM_FH => hold(run, opening, dir),
        open_claim4::CLAIM_DELEG_CUR_FH(stateid) => {
            check_delegation(run, &stateid)?;
            hold(run, opening, dir)
        }
        // Delegations do not outlive their client.
        open_claim4::CLAIM_DELEGATE_PREV(_) | open_claim4::CLAIM_DELEG_PREV_FH => {
            Err(nfsstat4::NFS4ERR_NOTSUPP)
        }
    }
}

/// In the pseudo file system there are directories, and nothing can be made.
fn check_pseudo(run: &RunningCall<'_>, dir: FileId, args: &OPEN4args<'_>) -> Result<(), nfsstat4> {
    let name = match args.claim {
        open_claim4::CLAIM_NULL(name) => name,
        _ => return Err(nfsstat4::NFS4ERR_ISDIR),
    };
    fs::check_name(name.0).map_err(|error| crate::status::status(error, run.minor()))?;
    match (run.peer.view.lookup(dir, name.0), &args.openhow) {
        (Some(_), _) => Err(nfsstat4::NFS4ERR_ISDIR),
        (None, openflag4::OPEN4_NOCREATE) => Err(nfsstat4::NFS4ERR_NOENT),
        (None, openflag4::OPEN4_CREATE(_)) => Err(nfsstat4::NFS4ERR_ROFS),
    }
}

/// The client has a delegation by this state id, and opens under it.
fn check_delegation(
    run: &mut RunningCall<'_>,
    stateid: &wire::nfs4::stateid4,
) -> Result<(), nfsstat4> {
    let known = run.find_state(stateid)?;
    known.state.check(stateid.seqid, run.minor() > 0)?;
    match known.state.kind {
        StateKind::Delegation => Ok(()),
        _ => Err(nfsstat4::NFS4ERR_BAD_STATEID),
    }
}

fn create<'a>(
    run: &mut RunningCall<'a>,
    opening: &mut Opening,
    (dir, name): (FileId, &'a [u8]),
    how: &createhow4<'a>,
) -> Result<Go<'a>, nfsstat4> {
    let read = |attrs| run.read_attributes(attrs, true);
    let (new, mut set) = match how {
        createhow4::UNCHECKED4(attrs) => (New::Unchecked, read(attrs)?),
        createhow4::GUARDED4(attrs) => (New::Guarded, read(attrs)?),
        createhow4::EXCLUSIVE4(verifier) => (New::Exclusive(*verifier), SetAttr::default()),
        createhow4::EXCLUSIVE4_1(both) => (New::Exclusive(both.cva_verf), read(&both.cva_attrs)?),
    };
    // A file that is there is emptied once no other state is in the way of that.
    if new == New::Unchecked && set.size == Some(0) {
        set.size = None;
        opening.truncates = true;
        if opening.share.access & WRITE == 0 {
            return Err(nfsstat4::NFS4ERR_INVAL);
        }
    }
    let op = FsOp::Create {
        dir,
        name,
        new,
        set,
    };
    Ok(Go::On(op, false, ThenOpen::Created))
}

/// The directory is as it is; the name in it is looked up.
fn look_up<'a>(
    run: &mut RunningCall<'a>,
    opening: &mut Opening,
    result: Result<Output, Error>,
) -> Result<Go<'a>, nfsstat4> {
    let Output::Attr(attr) = run.done(result)? else {
        unreachable!("{ANSWERED}");
    };
    opening.change = change_info4 {
        atomic: true,
        before: attr.change,
        after: attr.change,
    };
    let name = match args(run).claim {
        open_claim4::CLAIM_NULL(name) => name,
        open_claim4::CLAIM_DELEGATE_CUR(current) => current.file,
        _ => unreachable!("it names a file"),
    };
    let dir = file(run.current()?);
    let op = FsOp::Lookup { dir, name: name.0 };
    Ok(Go::On(op, false, ThenOpen::Found))
}

fn found<'a>(
    run: &mut RunningCall<'a>,
    opening: &mut Opening,
    result: Result<Output, Error>,
) -> Result<Go<'a>, nfsstat4> {
    let Output::File(file) = run.done(result)? else {
        unreachable!("{ANSWERED}");
    };
    hold(run, opening, file)
}

fn created<'a>(
    run: &mut RunningCall<'a>,
    opening: &mut Opening,
    result: Result<Output, Error>,
) -> Result<Go<'a>, nfsstat4> {
    let result = result.map_err(|error| open_status(error, run.minor()))?;
    let Output::Created {
        attr,
        is_new,
        change,
    } = result
    else {
        unreachable!("{ANSWERED}");
    };
    let is_exclusive = matches!(
        args(run).openhow,
        openflag4::OPEN4_CREATE(createhow4::EXCLUSIVE4(_) | createhow4::EXCLUSIVE4_1(_))
    );
    opening.change = change_info(&change);
    // The owner of an exclusive file that asks for it once more has made it.
    opening.is_made = is_new || is_exclusive && attr.uid == run.identity().uid;
    opening.truncates &= !is_new;
    hold(run, opening, attr.file)
}

/// The status of an OPEN that fails. A FIFO, a socket or a device is
/// NFS4ERR_SYMLINK in every minor version, as RFC 7530, section 16.16.6, has it.
/// RFC 8881, section 18.16.3, has NFS4ERR_WRONG_TYPE, after which Linux gives the
/// program EIO. After NFS4ERR_SYMLINK it looks the name up and opens the object
/// itself.
fn open_status(error: Error, minor: u32) -> nfsstat4 {
    match error {
        Error::WrongType => nfsstat4::NFS4ERR_SYMLINK,
        _ => crate::status::status(error, minor),
    }
}

/// The file is known: whether the caller may have it so, and that it stays.
fn hold<'a>(
    run: &mut RunningCall<'a>,
    opening: &mut Opening,
    file: FileId,
) -> Result<Go<'a>, nfsstat4> {
    opening.file = file;
    match args(run).claim {
        // Its client has opened it already.
        open_claim4::CLAIM_PREVIOUS(_)
        | open_claim4::CLAIM_DELEGATE_CUR(_)
        | open_claim4::CLAIM_DELEG_CUR_FH(_) => {
            Ok(Go::On(FsOp::Getattr { file }, true, ThenOpen::Owned))
        }
        _ => Ok(Go::On(opening.op(), opening.is_made, ThenOpen::Held)),
    }
}

/// A file that was open before: its owner may have made it without the bits
/// for that, or taken them away since; for all others they count.
fn owned<'a>(
    run: &mut RunningCall<'a>,
    opening: &mut Opening,
    result: Result<Output, Error>,
) -> Result<Go<'a>, nfsstat4> {
    let Output::Attr(attr) = run.done(result)? else {
        unreachable!("{ANSWERED}");
    };
    let was_allowed = attr.uid == run.identity().uid || is_delegated(run, opening);
    Ok(Go::On(opening.op(), was_allowed, ThenOpen::Held))
}

/// Whether the user was allowed as much by the OPEN that the delegation came with. There may be
/// no other state that says so.
fn is_delegated(run: &mut RunningCall<'_>, opening: &Opening) -> bool {
    let stateid = match args(run).claim {
        open_claim4::CLAIM_DELEGATE_CUR(current) => current.delegate_stateid,
        open_claim4::CLAIM_DELEG_CUR_FH(stateid) => stateid,
        _ => return false,
    };
    let (Ok(key), Ok(known)) = (key(run, opening), run.find_state(&stateid)) else {
        return false;
    };
    let state = &known.state;
    state.kind == StateKind::Delegation
        && !state.is_over()
        && (state.file, state.uid) == (key, run.identity().uid)
        && state.check_access(opening.share.access).is_ok()
}

fn held<'a>(
    run: &mut RunningCall<'a>,
    opening: &mut Opening,
    result: Result<Output, Error>,
) -> Result<Go<'a>, nfsstat4> {
    result.map_err(|error| open_status(error, run.minor()))?;
    grant(run, opening)
}

/// The key of the file that is being opened.
fn key(run: &RunningCall<'_>, opening: &Opening) -> Result<FileKey, nfsstat4> {
    let (system, _) = run.key(run.current()?)?;
    Ok((system, opening.file.0))
}

/// Where the file is, and its handle.
fn place(run: &RunningCall<'_>, opening: &Opening) -> Result<PseudoPlace, nfsstat4> {
    match run.current()? {
        PseudoPlace::File { export, .. } => Ok(PseudoPlace::File {
            export,
            file: opening.file,
        }),
        PseudoPlace::Pseudo(_) | PseudoPlace::Absent(_) => Err(nfsstat4::NFS4ERR_ISDIR),
    }
}

/// The file is held: now whether no other state is in the way.
fn grant<'a>(run: &mut RunningCall<'a>, opening: &mut Opening) -> Result<Go<'a>, nfsstat4> {
    // Where it is held, whatever the client may reach by now.
    let key = (run.flow.instance, opening.file.0);
    match try_grant(run, opening, key) {
        Ok(opened) => opening.opened = Some(opened),
        Err(status) => {
            run.nfsd.close_later(key);
            return Err(status);
        }
    }
    match run.nfsd.server.has_unsaved() && !faults::is(Fault::AnswerBeforeRecord) {
        true => Ok(Go::Records(ThenOpen::Granted)),
        false => granted(run, opening, Ok(Output::Done)),
    }
}

/// It is open. An owner that had the file open before holds it by that.
fn granted<'a>(
    run: &mut RunningCall<'a>,
    opening: &mut Opening,
    _: Result<Output, Error>,
) -> Result<Go<'a>, nfsstat4> {
    if let Some(opened) = &opening.opened
        && !opened.is_new
    {
        run.nfsd.close_later(opened.state.file);
    }
    truncate_if_wanted(opening)
}

/// The state.
fn try_grant(
    run: &mut RunningCall<'_>,
    opening: &Opening,
    key: FileKey,
) -> Result<OpenOutcome, nfsstat4> {
    let args = args(run);
    let handle = run.peer.view.handle(place(run, opening)?);
    let handle = handle.ok_or(nfsstat4::NFS4ERR_STALE)?.encode();
    let nfsd = run.nfsd;
    let is_reclaim = matches!(args.claim, open_claim4::CLAIM_PREVIOUS(_));
    let owner = opening.turn.owner();
    // What was open before the server started needs no confirmation.
    owner
        .filter(|_| is_reclaim)
        .inspect(|owner| owner.confirm());
    let is_confirmed = owner.is_none_or(|owner| owner.is_confirmed());
    let writes = args.share_access & WRITE != 0;
    // A client that has yet to confirm its open may never learn of a delegation.
    let watched = match is_confirmed && wants_delegation(run, &args) {
        true => run.file_system()?.watch(opening.file, writes).ok(),
        false => None,
    };
    let wanted = OpenArgs {
        client: opening.client.id,
        uid: run.identity().uid,
        owner: args.owner.owner.0,
        file: key,
        share: opening.share,
        // What local programs would change unseen is not delegated.
        delegate: watched.as_ref().map(|_| &handle[..]),
        open_xor_delegation: args.share_access & OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION != 0,
        delegates_times: wants_times(&args),
        must_confirm: !is_confirmed,
        now: run.now,
    };
    loop {
        let refused = match nfsd.files.open(&wanted) {
            Ok(opened) => {
                if let (Some(delegation), Some(watched)) = (&opened.delegation, watched.flatten()) {
                    nfsd.files.keep_watched(delegation, watched);
                }
                return Ok(opened);
            }
            Err(refused) => refused,
        };
        match nfsd.clear(refused, run.now).map_err(nfsstat4::from) {
            Ok(()) => {}
            Err(nfsstat4::NFS4ERR_SHARE_DENIED) if is_reclaim => {
                return Err(nfsstat4::NFS4ERR_RECLAIM_CONFLICT);
            }
            Err(status) => return Err(status),
        }
    }
}

/// Whether the times of the file are to be delegated with it, or were before a restart.
fn wants_times(args: &OPEN4args<'_>) -> bool {
    match args.claim {
        open_claim4::CLAIM_PREVIOUS(had) => {
            had == open_delegation_type4::OPEN_DELEGATE_WRITE_ATTRS_DELEG
        }
        _ => args.share_access & OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS != 0,
    }
}

/// Whether a delegation would be of use and can be recalled: one of reading not of a file
/// that is being made, which is about to be written.
fn wants_delegation(run: &RunningCall<'_>, args: &OPEN4args<'_>) -> bool {
    let writes = args.share_access & WRITE != 0;
    let (want, kinds) = match writes {
        true => (
            OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG,
            [
                open_delegation_type4::OPEN_DELEGATE_WRITE,
                open_delegation_type4::OPEN_DELEGATE_WRITE_ATTRS_DELEG,
            ],
        ),
        false => (
            OPEN4_SHARE_ACCESS_WANT_READ_DELEG,
            [
                open_delegation_type4::OPEN_DELEGATE_READ,
                open_delegation_type4::OPEN_DELEGATE_READ_ATTRS_DELEG,
            ],
        ),
    };
    let any = [
        OPEN4_SHARE_ACCESS_WANT_NO_PREFERENCE,
        OPEN4_SHARE_ACCESS_WANT_ANY_DELEG,
        want,
    ];
    let is_wanted = any.contains(&(args.share_access & OPEN4_SHARE_ACCESS_WANT_DELEG_MASK));
    let may_have = match args.claim {
        open_claim4::CLAIM_NULL(_) | open_claim4::CLAIM_FH => {
            writes || matches!(args.openhow, openflag4::OPEN4_NOCREATE)
        }
        open_claim4::CLAIM_PREVIOUS(had) => return kinds.contains(&had),
        _ => false,
    };
    let has_path = || match run.minor() {
        0 => run.nfsd.proves_path(args.owner.clientid, run.now),
        _ => {
            let session = run.session();
            session.is_some_and(|session| run.nfsd.can_call(session, run.now))
        }
    };
    is_wanted && may_have && has_path()
}

/// The file is open; it is emptied if that was wanted.
fn truncate_if_wanted<'a>(opening: &mut Opening) -> Result<Go<'a>, nfsstat4> {
    if !opening.truncates {
        return Ok(look_at_delegated(opening));
    }
    let set = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    let op = FsOp::Setattr {
        file: opening.file,
        set,
        guard: None,
    };
    Ok(Go::On(op, true, ThenOpen::Truncated))
}

fn truncated<'a>(
    run: &mut RunningCall<'a>,
    opening: &mut Opening,
    result: Result<Output, Error>,
) -> Result<Go<'a>, nfsstat4> {
    let result = run.done(result);
    if result.is_err() {
        undo(run.nfsd, opening);
    }
    result.map(|_| look_at_delegated(opening))
}

/// It is as if it had not been opened.
fn undo(nfsd: &Nfsd, opening: &mut Opening) {
    let Some(opened) = opening.opened.take() else {
        return;
    };
    if let Some(delegation) = &opened.delegation {
        nfsd.withdraw(delegation);
    }
    if opened.is_new && nfsd.files.close(&opened.state) == Ok(true) {
        nfsd.close_later(opened.state.file);
    }
}

impl Opening {
    /// The write delegation that comes with it.
    fn write_delegation(&self) -> Option<&Arc<State>> {
        let delegation = self.opened.as_ref()?.delegation.as_ref()?;
        (delegation.share().access & WRITE != 0).then_some(delegation)
    }
}

/// It is open. With a write delegation the attributes are looked at that its client has from
/// now on.
fn look_at_delegated<'a>(opening: &Opening) -> Go<'a> {
    let file = opening.file;
    match opening.write_delegation() {
        Some(_) => Go::On(FsOp::Getattr { file }, true, ThenOpen::Delegated),
        None => Go::Done,
    }
}

/// `change` is known. Where it is not, the file counts as changed when another client looks.
fn delegated<'a>(
    run: &mut RunningCall<'a>,
    opening: &mut Opening,
    result: Result<Output, Error>,
) -> Result<Go<'a>, nfsstat4> {
    if let (Some(delegation), Ok(Output::Attr(attr))) = (opening.write_delegation(), result) {
        run.nfsd.files.note_given(delegation, attr.change);
    }
    Ok(Go::Done)
}

/// OPEN has come to its end. The client may have lost its right to the file meanwhile.
fn answer<'a>(run: &mut RunningCall<'a>, mut opening: Box<Opening>) -> OperationOutcome<'a> {
    let place = match place(run, &opening) {
        Ok(place) => place,
        Err(status) => {
            undo(run.nfsd, &mut opening);
            return opening.turn.end(run, |_| Err(status));
        }
    };
    let Opening {
        turn,
        change,
        opened,
        truncates,
        is_made,
        ..
    } = *opening;
    let opened = opened.expect("it is open");
    run.set_current(place);
    run.set_stateid(opened.stateid);
    if let (Some(slot), Some(delegation)) = (&run.flow.slot, &opened.delegation) {
        slot.held.session.note_brought(slot.slotid, delegation);
    }
    turn.end(run, |run| {
        let args = args(run);
        let size = [1 << FATTR4_SIZE];
        let resok = OPEN4resok {
            // No state id of an open is all zero (RFC 9754).
            stateid: match opened.state.kind {
                StateKind::Open => opened.stateid,
                _ => files::ANONYMOUS,
            },
            cinfo: change,
            rflags: result_flags(run, &opened),
            attrset: attributes_set(&args, is_made, truncates.then_some(&size)),
            delegation: delegation(run, &args, &opened),
        };
        run.ok(|to| resok.encode(to))
    })
}

fn result_flags(run: &RunningCall<'_>, opened: &OpenOutcome) -> u32 {
    let confirm = match opened.state.is_unconfirmed() {
        true => OPEN4_RESULT_CONFIRM,
        false => 0,
    };
    let notify = match run.minor() {
        0 => 0,
        _ => OPEN4_RESULT_MAY_NOTIFY_LOCK,
    };
    let no_open = match opened.state.kind {
        StateKind::Open => 0,
        _ => OPEN4_RESULT_NO_OPEN_STATEID,
    };
    OPEN4_RESULT_LOCKTYPE_POSIX | confirm | notify | no_open
}

/// Attributes that this OPEN has set.
fn attributes_set<'a>(
    args: &OPEN4args<'a>,
    is_made: bool,
    size: Option<&'a [u32; 1]>,
) -> bitmap4<'a> {
    let openflag4::OPEN4_CREATE(how) = &args.openhow else {
        return List::Of(&[]);
    };
    match (how, is_made, size) {
        (_, false, Some(size)) => List::Of(size),
        (createhow4::UNCHECKED4(set) | createhow4::GUARDED4(set), true, _) => set_mask(set),
        (createhow4::EXCLUSIVE4_1(both), true, _) => set_mask(&both.cva_attrs),
        _ => List::Of(&[]),
    }
}

fn delegation<'a>(
    run: &RunningCall<'_>,
    args: &OPEN4args<'_>,
    opened: &OpenOutcome,
) -> open_delegation4<'a> {
    if let Some(state) = &opened.delegation {
        let stateid = files::stateid(run.nfsd.server.boot(), state);
        // One that was had before the restart, and could not be recalled (RFC 7530, section
        // 10.2.1).
        let path = run.nfsd.server.callback_path(state.client);
        let recall = path.is_some_and(|path| path.is_down());
        // An empty entry: the client asks by ACCESS what other users may do.
        let permissions = nfsace4 {
            type_: wire::nfs4::ACE4_ACCESS_ALLOWED_ACE_TYPE,
            flag: 0,
            access_mask: 0,
            who: Opaque(&[]),
        };
        return match state.share().access & WRITE {
            0 => open_delegation4::OPEN_DELEGATE_READ(open_read_delegation4 {
                stateid,
                recall,
                permissions,
            }),
            _ => {
                let write = open_write_delegation4 {
                    stateid,
                    recall,
                    // Nothing of it is left unwritten at CLOSE, for which no room is reserved: a
                    // program that closes its file learns that there is none.
                    space_limit: nfs_space_limit4::NFS_LIMIT_SIZE(0),
                    permissions,
                };
                match run.nfsd.files.delegates_times(state) {
                    true => open_delegation4::OPEN_DELEGATE_WRITE_ATTRS_DELEG(write),
                    false => open_delegation4::OPEN_DELEGATE_WRITE(write),
                }
            }
        };
    }
    match args.share_access & OPEN4_SHARE_ACCESS_WANT_DELEG_MASK {
        OPEN4_SHARE_ACCESS_WANT_NO_PREFERENCE => open_delegation4::OPEN_DELEGATE_NONE,
        OPEN4_SHARE_ACCESS_WANT_NO_DELEG => {
            let why = why_no_delegation4::WND4_NOT_WANTED;
            open_delegation4::OPEN_DELEGATE_NONE_EXT(open_none_delegation4::default(why))
        }
        _ => open_delegation4::OPEN_DELEGATE_NONE_EXT(open_none_delegation4::WND4_RESOURCE(false)),
    }
}

/// The turn of the owner of an open that an operation names, or its last answer.
/// It is taken before the state id's `seqid` is looked at: a retransmission names
/// the state as it was.
pub(crate) fn turn_of(
    run: &mut RunningCall<'_>,
    stateid: &wire::nfs4::stateid4,
    seqid: u32,
) -> Result<Result<OwnerRequest, files::LastAnswer>, nfsstat4> {
    if run.minor() > 0 {
        return Ok(Ok(OwnerRequest::default()));
    }
    let known = run.find_state(stateid)?;
    Ok(match OwnerRequest::take(&known.state.owner, seqid)? {
        TurnTaken::Now(turn) => Ok(turn),
        // Only OPEN begins anew.
        TurnTaken::Anew(_) => return Err(nfsstat4::NFS4ERR_BAD_SEQID),
        TurnTaken::Again(kept) => Err(kept),
    })
}

pub(crate) fn open_confirm<'a>(
    run: &mut RunningCall<'a>,
    args: &OPEN_CONFIRM4args,
) -> OperationOutcome<'a> {
    let key = run.key(run.current()?)?;
    // Of one that is confirmed, before anything else: RFC 7530, section 16.18.5.
    let turn = match turn_of(run, &args.open_stateid, args.seqid)? {
        Ok(turn) => turn,
        Err(kept) => return owner_seqid::repeat_answer(run, &kept),
    };
    turn.end(run, |run| {
        let known = run.state_of(key, &args.open_stateid)?;
        let stateid = run.nfsd.files.confirm(&known.state)?;
        run.ok(|to| stateid.encode(to))
    })
}

pub(crate) fn open_downgrade<'a>(
    run: &mut RunningCall<'a>,
    args: &OPEN_DOWNGRADE4args,
) -> OperationOutcome<'a> {
    let key = run.key(run.current()?)?;
    let stateid = run.stateid(&args.open_stateid)?;
    let turn = match turn_of(run, &stateid, args.seqid)? {
        Ok(turn) => turn,
        Err(kept) => return owner_seqid::repeat_answer(run, &kept),
    };
    turn.end(run, |run| {
        let known = run.state_of(key, &stateid)?;
        let known_bits = match run.minor() {
            0 => OPEN4_SHARE_ACCESS_BOTH,
            _ => OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_DELEG_MASK,
        };
        if args.share_access & !known_bits != 0 || args.share_deny > OPEN4_SHARE_DENY_BOTH {
            return Err(nfsstat4::NFS4ERR_INVAL);
        }
        if known.state.kind != StateKind::Open || known.state.is_unconfirmed() {
            return Err(nfsstat4::NFS4ERR_BAD_STATEID);
        }
        let share = ShareReservation {
            access: args.share_access & OPEN4_SHARE_ACCESS_BOTH,
            deny: args.share_deny,
        };
        let stateid = run.nfsd.files.downgrade(&known.state, share)?;
        run.set_stateid(stateid);
        run.ok(|to| stateid.encode(to))
    })
}

pub(crate) fn close<'a>(run: &mut RunningCall<'a>, args: &CLOSE4args) -> OperationOutcome<'a> {
    let key = run.key(run.current()?)?;
    let stateid = run.stateid(&args.open_stateid)?;
    let turn = match turn_of(run, &stateid, args.seqid)? {
        Ok(turn) => turn,
        Err(kept) => return owner_seqid::repeat_answer(run, &kept),
    };
    match end_open(run, key, &stateid) {
        Ok(false) => Ok(NextStep::Turn),
        Ok(true) => run.ask_file_system(Ask {
            op: FsOp::Close {
                file: FileId(key.1),
            },
            is_open: true,
            then: Continuation::Open(ThenOpen::Closed(turn)),
        }),
        Err(status) => turn.end(run, |_| Err(status)),
    }
}

/// Whether all of an open is gone, or it takes more turns.
fn end_open(
    run: &mut RunningCall<'_>,
    key: FileKey,
    stateid: &wire::nfs4::stateid4,
) -> Result<bool, nfsstat4> {
    let known = run.state_of(key, stateid)?;
    if known.state.kind != StateKind::Open || known.state.is_unconfirmed() {
        return Err(nfsstat4::NFS4ERR_BAD_STATEID);
    }
    let is_closed = run.nfsd.files.close(&known.state)?;
    run.nfsd.wake(run.now);
    Ok(is_closed)
}

/// The file is let go; the state was gone before.
fn closed<'a>(run: &mut RunningCall<'a>) -> OperationOutcome<'a> {
    run.set_stateid(files::INVALID);
    run.ok(|to| files::INVALID.encode(to))
}
