//! Byte-range locks (RFC 8881, sections 18.10 to 18.12; RFC 7530, sections
//! 16.10 to 16.12, 16.37).

use std::sync::Arc;

use faults::Fault;
use nfs::server::Client;
use nfs::server::files::{FileKey, LockArgs, OwnerKind, READ, State, StateKind, WRITE, Waiter};
use nfs::server::locks::{Lock, Range};
use store::fs::{self, FsOp, ObjectKind as FileKind, Output};
use wire::nfs4::{
    LOCK4args, LOCK4denied, LOCKT4args, LOCKU4args, RELEASE_LOCKOWNER4args, locker4, nfs_argop4,
    nfs_lock_type4, nfsstat4, state_owner4, stateid4,
};
use wire::xdr::{Encode, Opaque};

use crate::call::{Ask, Elsewhere, NextStep, OperationOutcome, RunningCall, Step};
use crate::continuation::{Continuation, ThenLock};
use crate::open::turn_of;
use crate::owner_seqid::{self, OwnerRequest, TurnTaken};
use crate::recovery::Standing;
use crate::state::break_for;

/// Bytes of the result of a LOCK or LOCKU that changes something: a state id.
/// Where it changes nothing, a result that is too long is taken back.
const LOCK_BYTES: u32 = 24;

pub(crate) fn resume<'a>(
    run: &mut RunningCall<'a>,
    then: ThenLock,
    result: Result<Output, fs::Error>,
) -> OperationOutcome<'a> {
    match then {
        ThenLock::Recorded(open_turn, lock_turn, stateid) => {
            end(run, (open_turn, lock_turn), |run| has_lock(run, stateid))
        }
        ThenLock::Kind => {
            let Output::Attr(attr) = run.done(result)? else {
                unreachable!("each question has its answer");
            };
            match (attr.kind, run.minor()) {
                (FileKind::Regular, _) => lockt_of(run),
                (FileKind::Directory, _) => Err(nfsstat4::NFS4ERR_ISDIR),
                (FileKind::Symlink, 1..) => Err(nfsstat4::NFS4ERR_SYMLINK),
                (_, 0) => Err(nfsstat4::NFS4ERR_INVAL),
                _ => Err(nfsstat4::NFS4ERR_WRONG_TYPE),
            }
        }
    }
}

/// What is to be locked.
fn lock_args(kind: nfs_lock_type4, offset: u64, length: u64) -> Result<LockArgs, nfsstat4> {
    let mut range = Range::new(offset, length).ok_or(nfsstat4::NFS4ERR_INVAL)?;
    if faults::is(Fault::ShortLock) {
        range.end = range.start.max(range.end.saturating_sub(1));
    }
    let is_exclusive = matches!(kind, nfs_lock_type4::WRITE_LT | nfs_lock_type4::WRITEW_LT);
    Ok(LockArgs {
        range,
        is_exclusive,
    })
}

fn args<'a>(run: &RunningCall<'a>) -> LOCK4args<'a> {
    match run.op() {
        nfs_argop4::OP_LOCK(args) => args,
        _ => unreachable!("LOCK asked"),
    }
}

pub(crate) fn lock<'a>(run: &mut RunningCall<'a>, args: &LOCK4args<'a>) -> OperationOutcome<'a> {
    run.current()?;
    let (open_turn, lock_turn) = match &args.locker {
        locker4::TRUE(new) => {
            let stateid = run.stateid(&new.open_stateid)?;
            let open_turn = match turn_of(run, &stateid, new.open_seqid)? {
                Ok(turn) => turn,
                Err(kept) => return owner_seqid::repeat_answer(run, &kept),
            };
            match first_turn(run, new.lock_owner.owner.0, new.lock_seqid) {
                Ok(lock_turn) => (open_turn, lock_turn),
                Err(status) => return open_turn.end(run, |_| Err(status)),
            }
        }
        locker4::FALSE(known) => {
            let stateid = run.stateid(&known.lock_stateid)?;
            match turn_of(run, &stateid, known.lock_seqid)? {
                Ok(turn) => (OwnerRequest::default(), turn),
                Err(kept) => return owner_seqid::repeat_answer(run, &kept),
            }
        }
    };
    locked(run, open_turn, lock_turn)
}

/// The first request of a lock owner of version 4.0 in a file: it may have had
/// others. The answer is given again by the open owner's turn.
fn first_turn(
    run: &mut RunningCall<'_>,
    name: &[u8],
    seqid: u32,
) -> Result<OwnerRequest, nfsstat4> {
    if run.minor() > 0 {
        return Ok(OwnerRequest::default());
    }
    let client = run.client().ok_or(nfsstat4::NFS4ERR_BAD_STATEID)?.id;
    let nfsd = run.nfsd;
    let owner = nfsd
        .files
        .admit_owner(client, OwnerKind::Lock, name, run.now)?;
    match OwnerRequest::take(&owner, seqid)? {
        TurnTaken::Now(turn) | TurnTaken::Anew(turn) => Ok(turn),
        // What it asked for then was something else.
        TurnTaken::Again(_) => Err(nfsstat4::NFS4ERR_BAD_SEQID),
    }
}

/// Whose turn it is is known: LOCK itself.
fn locked<'a>(
    run: &mut RunningCall<'a>,
    open_turn: OwnerRequest,
    lock_turn: OwnerRequest,
) -> OperationOutcome<'a> {
    let tried = try_lock(run);
    if let Ok(Ok(stateid)) = tried
        && run.nfsd.server.has_unsaved()
    {
        let then = Continuation::Lock(ThenLock::Recorded(open_turn, lock_turn, stateid));
        return run.wait(Step::Elsewhere(Elsewhere::Records), then);
    }
    end(run, (open_turn, lock_turn), |run| match tried? {
        Ok(stateid) => has_lock(run, stateid),
        Err((held, client, owner)) => denied(run, &held, client, &owner),
    })
}

/// LOCK is answered: so are both owners.
fn end<'a>(
    run: &mut RunningCall<'a>,
    (open_turn, lock_turn): (OwnerRequest, OwnerRequest),
    answer: impl FnOnce(&mut RunningCall<'a>) -> OperationOutcome<'a>,
) -> OperationOutcome<'a> {
    lock_turn.end(run, |run| open_turn.end(run, answer))
}

fn has_lock<'a>(run: &mut RunningCall<'a>, stateid: stateid4) -> OperationOutcome<'a> {
    run.set_stateid(stateid);
    run.ok(|to| stateid.encode(to))
}

/// What LOCK came to: a state id, or the lock in the way, its client and its owner.
type Tried = Result<stateid4, (Lock, u64, Box<[u8]>)>;

/// Takes the lock, or finds the one in the way.
fn try_lock(run: &mut RunningCall<'_>) -> Result<Tried, nfsstat4> {
    let args = args(run);
    let key = run.key(run.current()?)?;
    run.reserve(LOCK_BYTES)?;
    let wanted = lock_args(args.locktype, args.offset, args.length)?;
    let named = match &args.locker {
        locker4::TRUE(new) => new.open_stateid,
        locker4::FALSE(known) => known.lock_stateid,
    };
    let stateid = run.stateid(&named)?;
    let known = run.state_of(key, &stateid)?;
    let (state, client) = (known.state, known.client);
    let is_right = match &args.locker {
        locker4::TRUE(_) => state.kind == StateKind::Open && !state.is_unconfirmed(),
        locker4::FALSE(_) => matches!(state.kind, StateKind::Lock { .. }),
    };
    if !is_right {
        return Err(nfsstat4::NFS4ERR_BAD_STATEID);
    }
    // With sessions the session names the client.
    if let locker4::TRUE(new) = &args.locker
        && run.minor() == 0
        && new.lock_owner.clientid != client.id
    {
        return Err(nfsstat4::NFS4ERR_STALE_CLIENTID);
    }
    let nfsd = run.nfsd;
    if args.reclaim || !faults::is(Fault::NoGrace) {
        nfsd.server.check_grace(&client, args.reclaim, run.now)?;
    }
    loop {
        let locked = match &args.locker {
            locker4::TRUE(new) => {
                let owner = new.lock_owner.owner.0;
                let locked = nfsd.files.lock_first(&state, owner, wanted);
                locked.map(|(_, stateid)| stateid)
            }
            locker4::FALSE(_) => nfsd.files.lock(&state, wanted),
        };
        let refused = match locked {
            Ok(stateid) => {
                nfsd.wake(run.now);
                return Ok(Ok(stateid));
            }
            Err(refused) => refused,
        };
        match nfsd.clear(refused, run.now) {
            Ok(()) => {}
            Err(Standing::Denied(..)) if args.reclaim => {
                return Err(nfsstat4::NFS4ERR_RECLAIM_CONFLICT);
            }
            Err(Standing::Denied(held, holder, owner)) => {
                wait(run, &args, &client, &state, key, wanted)?;
                return Ok(Err((held, holder, owner)));
            }
            Err(Standing::Status(status)) => return Err(status),
        }
    }
}

/// A LOCK that may wait is registered: its client gets CB_NOTIFY_LOCK when the lock can
/// be had.
fn wait(
    run: &RunningCall<'_>,
    args: &LOCK4args<'_>,
    client: &Arc<Client>,
    state: &State,
    key: FileKey,
    wanted: LockArgs,
) -> Result<(), nfsstat4> {
    let blocks = matches!(
        args.locktype,
        nfs_lock_type4::READW_LT | nfs_lock_type4::WRITEW_LT
    );
    if !blocks || run.minor() == 0 {
        return Ok(());
    }
    let handle = run.peer.view.handle(run.current()?);
    let handle = handle.ok_or(nfsstat4::NFS4ERR_STALE)?.encode();
    let owner = match &args.locker {
        locker4::TRUE(new) => new.lock_owner.owner.0.into(),
        locker4::FALSE(_) => state.owner.name.clone(),
    };
    let waiter = Waiter {
        client: client.id,
        owner,
        handle: handle[..].into(),
    };
    run.nfsd.files.wait_for_lock(key, waiter, wanted);
    Ok(())
}

/// A lock of another owner is in the way.
fn denied<'a>(
    run: &mut RunningCall<'a>,
    held: &Lock,
    client: u64,
    owner: &[u8],
) -> OperationOutcome<'a> {
    let denied = LOCK4denied {
        offset: held.range.start,
        length: held.range.length(),
        locktype: match held.is_exclusive {
            true => nfs_lock_type4::WRITE_LT,
            false => nfs_lock_type4::READ_LT,
        },
        owner: state_owner4 {
            clientid: client,
            owner: Opaque(owner),
        },
    };
    run.answer(nfsstat4::NFS4ERR_DENIED, |to| denied.encode(to))
}

pub(crate) fn lockt<'a>(run: &mut RunningCall<'a>, args: &LOCKT4args<'a>) -> OperationOutcome<'a> {
    let place = run.current()?;
    lock_args(args.locktype, args.offset, args.length)?;
    if run.minor() == 0 {
        let client = run.nfsd.server.renew(args.owner.clientid, run.now)?;
        run.flow.client = Some(client);
    }
    if run.nfsd.server.is_in_grace(run.now) {
        return Err(nfsstat4::NFS4ERR_GRACE);
    }
    run.ask_file_system(Ask {
        op: FsOp::Getattr {
            file: crate::names::file(place),
        },
        is_open: true,
        then: Continuation::Lock(ThenLock::Kind),
    })
}

fn lockt_of<'a>(run: &mut RunningCall<'a>) -> OperationOutcome<'a> {
    let nfs_argop4::OP_LOCKT(args) = run.op() else {
        unreachable!("LOCKT asked");
    };
    let key = run.key(run.current()?)?;
    let wanted = lock_args(args.locktype, args.offset, args.length)?;
    let client = run.client().ok_or(nfsstat4::NFS4ERR_STALE_CLIENTID)?.id;
    // A client with a delegation has locks that weft does not know.
    let access = if wanted.is_exclusive { WRITE } else { READ };
    break_for(run, key, access)?;
    let owner = args.owner.owner.0;
    while let Err(refused) = run.nfsd.files.test_lock(client, owner, key, wanted) {
        match run.nfsd.clear(refused, run.now) {
            Ok(()) => {}
            Err(Standing::Denied(held, client, owner)) => {
                return denied(run, &held, client, &owner);
            }
            Err(Standing::Status(status)) => return Err(status),
        }
    }
    run.ok(|_| {})
}

pub(crate) fn locku<'a>(run: &mut RunningCall<'a>, args: &LOCKU4args) -> OperationOutcome<'a> {
    let key = run.key(run.current()?)?;
    let stateid = run.stateid(&args.lock_stateid)?;
    let turn = match turn_of(run, &stateid, args.seqid)? {
        Ok(turn) => turn,
        Err(kept) => return owner_seqid::repeat_answer(run, &kept),
    };
    turn.end(run, |run| {
        let known = run.state_of(key, &stateid)?;
        let mut wanted = lock_args(args.locktype, args.offset, args.length)?;
        if faults::is(Fault::UnlockAll) {
            wanted.range = Range {
                start: 0,
                end: u64::MAX,
            };
        }
        if !matches!(known.state.kind, StateKind::Lock { .. }) {
            return Err(nfsstat4::NFS4ERR_BAD_STATEID);
        }
        run.reserve(LOCK_BYTES)?;
        let stateid = run.nfsd.files.unlock(&known.state, wanted.range)?;
        run.nfsd.wake(run.now);
        run.set_stateid(stateid);
        run.ok(|to| stateid.encode(to))
    })
}

pub(crate) fn release_lockowner<'a>(
    run: &mut RunningCall<'a>,
    args: &RELEASE_LOCKOWNER4args<'a>,
) -> OperationOutcome<'a> {
    let owner = &args.lock_owner;
    let client = run.nfsd.server.renew(owner.clientid, run.now)?;
    let files = &run.nfsd.files;
    match files.release_lock_owner(client.id, owner.owner.0)? {
        true => run.ok(|_| {}),
        false => Ok(NextStep::Turn),
    }
}
