use proptest::prelude::*;

use super::super::locks::Range;
use super::*;
use wire::nfs4::nfs_opnum4;

const A: clientid4 = 7 << 32 | 1;
const B: clientid4 = 7 << 32 | 2;
const FILE: FileKey = (1, 42);

fn files() -> Files {
    let files = Files::new(7, Secret::default(), 2);
    files.admit_client(A, false);
    files.admit_client(B, false);
    files
}

fn args(client: clientid4, owner: &[u8], access: u32, deny: u32) -> OpenArgs<'_> {
    OpenArgs {
        client,
        uid: 0,
        owner,
        file: FILE,
        share: ShareReservation { access, deny },
        delegate: None,
        open_xor_delegation: false,
        delegates_times: false,
        must_confirm: false,
        now: 0,
    }
}

fn open(files: &Files, client: clientid4, owner: &[u8], access: u32) -> Arc<State> {
    files.open(&args(client, owner, access, 0)).unwrap().state
}

fn lock(offset: u64, length: u64, is_exclusive: bool) -> LockArgs {
    let range = Range::new(offset, length).unwrap();
    LockArgs {
        range,
        is_exclusive,
    }
}

/// A client is gone with all that it had: the files that it had open.
fn forget(files: &Files, client: clientid4) -> Vec<FileKey> {
    let removal = files.forget_client(client);
    removal.map_or_else(Vec::new, |mut removal| files.take_away(&mut removal).closed)
}

fn no_trace(files: &Files) -> bool {
    let is_empty = |client| {
        let holdings = files.holdings(client);
        holdings.is_none_or(|holdings| {
            let holdings = holdings.lock().unwrap();
            holdings.states.is_empty() && holdings.owners.is_empty()
        })
    };
    files
        .shards
        .iter()
        .all(|shard| shard.lock().unwrap().is_empty())
        && files.delegations.load(Ordering::Relaxed) == 0
        && files.held.load(Ordering::Relaxed) == 0
        && is_empty(A)
        && is_empty(B)
}

#[test]
fn state_ids_are_found_only_by_their_client_and_start() {
    let files = files();
    let state = open(&files, A, b"o", READ);
    let id = stateid(7, &state);
    assert_eq!(
        (id.seqid, files.find(A, &id).unwrap().number),
        (1, state.number)
    );
    let stale = stateid(6, &state);
    assert_eq!(
        files.find(A, &stale).unwrap_err(),
        nfsstat4::NFS4ERR_STALE_STATEID
    );
    assert_eq!(
        files.find(B, &id).unwrap_err(),
        nfsstat4::NFS4ERR_BAD_STATEID
    );
    let mut other = id;
    other.other[11] ^= 1;
    assert_eq!(
        files.find(A, &other).unwrap_err(),
        nfsstat4::NFS4ERR_BAD_STATEID
    );
    // It is opened again, for more.
    let again = files.open(&args(A, b"o", WRITE, 0)).unwrap();
    assert!(!again.is_new && Arc::ptr_eq(&again.state, &state));
    assert_eq!((state.seqid(), state.share().access), (2, READ | WRITE));
    for (seqid, is_session, result) in [
        (2, false, Ok(())),
        (0, true, Ok(())),
        (0, false, Err(nfsstat4::NFS4ERR_OLD_STATEID)),
        (1, true, Err(nfsstat4::NFS4ERR_OLD_STATEID)),
        (3, true, Err(nfsstat4::NFS4ERR_BAD_STATEID)),
    ] {
        assert_eq!(state.check(seqid, is_session), result);
    }
    files.close(&state).unwrap();
    assert_eq!(state.check(0, true), Err(nfsstat4::NFS4ERR_BAD_STATEID));
    assert_eq!(files.close(&state), Err(nfsstat4::NFS4ERR_BAD_STATEID));
    assert!(no_trace(&files));
}

#[test]
fn special_state_ids_are_recognized() {
    let id = |seqid, byte| stateid4 {
        seqid,
        other: [byte; 12],
    };
    for (stateid, special) in [
        (id(0, 0), Some(Special::Anonymous)),
        (id(u32::MAX, 0xff), Some(Special::Bypass)),
        (id(1, 0), Some(Special::Current)),
        (id(u32::MAX, 0), Some(Special::Invalid)),
        (id(2, 0xff), Some(Special::Invalid)),
        (id(1, 1), None),
    ] {
        assert_eq!(Special::of(&stateid), special);
    }
}

#[test]
fn locks_belong_to_opens_and_end_with_them() {
    let files = files();
    let a = open(&files, A, b"o", READ | WRITE);
    let b = open(&files, B, b"o", READ);
    let first = |open: &State, owner, args| files.lock_first(open, owner, args).map(|(s, _)| s);
    let locks = first(&a, b"p", lock(0, 10, true)).unwrap();
    assert_eq!(
        (locks.seqid(), locks.kind),
        (1, StateKind::Lock { open: a.number })
    );
    let denied = files
        .lock_first(&b, b"p", lock(9, u64::MAX, false))
        .unwrap_err();
    let StateRefused::Denied(held, client, name) = denied else {
        panic!("{denied:?}");
    };
    assert_eq!((held.range.length(), client, &name[..]), (10, A, &b"p"[..]));
    let mode = files.lock_first(&b, b"p", lock(20, 1, true)).unwrap_err();
    assert!(matches!(
        mode,
        StateRefused::Status(nfsstat4::NFS4ERR_OPENMODE)
    ));
    // What was refused has left nothing: b can still have its first.
    let mine = first(&b, b"p", lock(10, 1, false)).unwrap();
    assert!(matches!(
        files.lock(&locks, lock(10, 1, true)),
        Err(StateRefused::Denied(..))
    ));
    assert_eq!(files.lock(&locks, lock(0, 5, false)).unwrap().seqid, 2);
    let test = |client, owner: &[u8], args| files.test_lock(client, owner, FILE, args);
    assert!(test(B, b"p", lock(0, 5, false)).is_ok());
    assert!(matches!(
        test(B, b"p", lock(0, 5, true)),
        Err(StateRefused::Denied(..))
    ));
    assert!(matches!(
        test(A, b"q", lock(5, 1, false)),
        Err(StateRefused::Denied(..))
    ));
    assert!(test(A, b"p", lock(0, 10, true)).is_ok());
    let unlocked = files.unlock(&locks, Range::new(0, 9).unwrap()).unwrap();
    assert_eq!(unlocked.seqid, 3);
    assert_eq!(files.free(&locks), Err(nfsstat4::NFS4ERR_LOCKS_HELD));
    files.unlock(&locks, Range::new(9, 1).unwrap()).unwrap();
    assert_eq!(files.free(&locks), Ok(false));
    assert!(matches!(
        files.lock(&locks, lock(0, 1, true)),
        Err(StateRefused::Status(nfsstat4::NFS4ERR_BAD_STATEID))
    ));
    assert_eq!(files.free(&a), Err(nfsstat4::NFS4ERR_LOCKS_HELD));
    // An open that is downgraded lets its locks do less.
    let locks = first(&a, b"p", lock(0, 1, true)).unwrap();
    files.open(&args(A, b"o", READ, 0)).unwrap();
    files
        .downgrade(
            &a,
            ShareReservation {
                access: READ,
                deny: 0,
            },
        )
        .unwrap();
    assert_eq!(locks.check_access(WRITE), Err(nfsstat4::NFS4ERR_OPENMODE));
    assert!(files.lock(&locks, lock(1, 1, true)).is_err());
    files.close(&a).unwrap();
    assert_eq!(locks.check(0, true), Err(nfsstat4::NFS4ERR_BAD_STATEID));
    assert!(test(B, b"p", lock(0, 5, true)).is_ok());
    files.close(&b).unwrap();
    assert_eq!(mine.check(0, true), Err(nfsstat4::NFS4ERR_BAD_STATEID));
    assert!(no_trace(&files));
}

/// Which states are recalled, or none are in the way.
fn recalled<T>(result: Result<T, StateRefused>) -> Option<Vec<Arc<State>>> {
    match result {
        Ok(_) => None,
        Err(StateRefused::Recall(recalls, clients)) => {
            assert!(!clients.is_empty(), "a client is in the way");
            Some(recalls.into_iter().map(|recall| recall.state).collect())
        }
        Err(refused) => panic!("{refused:?}"),
    }
}

#[test]
fn delegations_are_given_recalled_and_taken_away() {
    const REST: Nanos = 30_000_000_000;
    let files = files();
    let wants = |client, access, now| {
        let mut args = args(client, b"o", access, 0);
        args.delegate = Some(b"handle");
        args.now = now;
        files.open(&args)
    };
    let first = wants(A, READ, 0).unwrap().delegation;
    let first = first.expect("no client writes");
    assert!(wants(A, READ, 0).unwrap().delegation.is_none(), "one each");
    let second = wants(B, READ, 0).unwrap().delegation;
    let second = second.expect("it only reads");
    assert_eq!(
        files.open(&args(A, b"x", READ, 0)).unwrap().state.seqid(),
        1
    );
    // A client wants to write: delegations of others are recalled once.
    let Err(StateRefused::Recall(recalls, clients)) = wants(A, WRITE, 1) else {
        panic!("B reads");
    };
    assert!(Arc::ptr_eq(&recalls[0].state, &second) && recalls.len() == 1);
    assert_eq!(
        (recalls[0].stateid, &recalls[0].handle[..], clients),
        (stateid(7, &second), &b"handle"[..], vec![B])
    );
    assert!(recalled(wants(A, WRITE, 1)).unwrap().is_empty());
    let breaks = |client| recalled(files.break_delegations(client, FILE, WRITE, 2));
    assert!(breaks(A).unwrap().is_empty());
    assert_eq!(files.return_delegation(&second), Ok(()));
    let again = files.return_delegation(&second);
    assert_eq!(again, Err(nfsstat4::NFS4ERR_BAD_STATEID));
    assert!(breaks(A).is_none());
    assert!(wants(A, WRITE, 2).unwrap().delegation.is_none());
    assert_eq!(breaks(B).unwrap().len(), 1);
    assert!(
        wants(B, READ, REST + 3).unwrap().delegation.is_none(),
        "a client writes"
    );
    // A does not answer: the delegation is revoked, and A must free the state id.
    assert!(files.revoke_overdue(10, 12).is_empty(), "there is time yet");
    let revoked = files.revoke_overdue(10, 13);
    assert!(Arc::ptr_eq(&revoked[0], &first) && revoked.len() == 1);
    assert!(breaks(B).is_none());
    let id = stateid(7, &first);
    let found = files.find(A, &id).unwrap();
    assert_eq!(found.check(1, true), Err(nfsstat4::NFS4ERR_DELEG_REVOKED));
    assert_eq!(files.free(&found), Ok(true), "that was all of it");
    assert_eq!(
        files.find(A, &id).unwrap_err(),
        nfsstat4::NFS4ERR_BAD_STATEID
    );
    // The writer is gone; the file rests, then there are delegations again.
    forget(&files, A);
    assert!(wants(B, READ, 3).unwrap().delegation.is_none());
    let given = wants(B, READ, REST + 3).unwrap().delegation;
    assert!(given.is_some());
    forget(&files, B);
    assert!(no_trace(&files));
}

#[test]
fn owners_of_version_4_0_are_answered_once() {
    let files = Files::new(7, Secret::default(), 2);
    files.admit_client(A, true);
    let kept = |status, body: &[u8]| LastAnswer {
        op: nfs_opnum4::OP_OPEN,
        status,
        body: body.into(),
        file: Some((0, 42)),
    };
    let ok = nfsstat4::NFS4_OK;
    let owner = files.admit_owner(A, OwnerKind::Open, b"o", 0).unwrap();
    assert_eq!(
        owner.begin(60),
        Ok(RequestBegun::New),
        "any number to begin with"
    );
    owner.finish(60, kept(nfsstat4::NFS4ERR_NOENT, b""), 0);
    assert_eq!(
        owner.begin(60),
        Ok(RequestBegun::Anew),
        "it has nothing yet"
    );
    owner.abandon();
    assert_eq!(owner.begin(50), Ok(RequestBegun::Anew));
    let busy = owner.begin(50);
    assert_eq!(busy, Err(nfsstat4::NFS4ERR_RESOURCE));
    let mut args = args(A, b"o", READ, 0);
    args.must_confirm = true;
    let opened = files.open(&args).unwrap();
    owner.finish(50, kept(ok, b"1"), 0);
    assert_eq!(owner.begin(50), Ok(RequestBegun::Again(kept(ok, b"1"))));
    // Nothing was confirmed: the owner may begin with another number.
    assert_eq!(owner.begin(9), Ok(RequestBegun::Anew));
    owner.abandon();
    assert!(!owner.is_confirmed());
    let unconfirmed = files.unconfirmed(A, &owner).unwrap();
    assert!(Arc::ptr_eq(&unconfirmed, &opened.state));
    assert_eq!(owner.begin(51), Ok(RequestBegun::New));
    assert_eq!(files.confirm(&opened.state).unwrap().seqid, 2);
    owner.finish(51, kept(ok, b"2"), 0);
    let twice = files.confirm(&opened.state);
    assert_eq!(twice, Err(nfsstat4::NFS4ERR_BAD_STATEID));
    assert!(owner.is_confirmed() && files.unconfirmed(A, &owner).is_none());
    for wrong in [50, 53, 9] {
        assert_eq!(owner.begin(wrong), Err(nfsstat4::NFS4ERR_BAD_SEQID));
    }
    // Some answers use no number up.
    assert_eq!(owner.begin(52), Ok(RequestBegun::New));
    owner.finish(52, kept(nfsstat4::NFS4ERR_BAD_STATEID, b""), 0);
    assert_eq!(owner.begin(52), Ok(RequestBegun::New));
    files.close(&opened.state).unwrap();
    owner.finish(52, kept(ok, b"3"), 10);
    // What was closed is known to a CLOSE that is sent again.
    let id = stateid(7, &opened.state);
    let closed = files.find(A, &id).unwrap();
    assert_eq!(closed.check(2, false), Err(nfsstat4::NFS4ERR_BAD_STATEID));
    assert_eq!(
        closed.owner.begin(52),
        Ok(RequestBegun::Again(kept(ok, b"3")))
    );
    assert_eq!(files.counts(A), [0; 4]);
    files.retire_owners(90, 100);
    assert!(files.find_owner(A, OwnerKind::Open, b"o").is_some());
    files.retire_owners(90, 101);
    assert!(files.find_owner(A, OwnerKind::Open, b"o").is_none());
    assert!(no_trace(&files) && files.find(A, &id).is_err());
}

#[test]
fn sequence_numbers_of_owners_wrap() {
    let files = Files::new(7, Secret::default(), 2);
    files.admit_client(A, true);
    let owner = files.admit_owner(A, OwnerKind::Open, b"o", 0).unwrap();
    owner.confirm();
    for seqid in [u32::MAX, 0, 1] {
        assert_eq!(owner.begin(seqid), Ok(RequestBegun::New));
        let (status, body, file) = (nfsstat4::NFS4ERR_DENIED, [][..].into(), None);
        let op = nfs_opnum4::OP_OPEN;
        owner.finish(
            seqid,
            LastAnswer {
                op,
                status,
                body,
                file,
            },
            0,
        );
    }
    assert_eq!(owner.begin(u32::MAX), Err(nfsstat4::NFS4ERR_BAD_SEQID));
}

#[test]
fn lock_owners_are_released() {
    let files = Files::new(7, Secret::default(), 2);
    files.admit_client(A, true);
    let open = open(&files, A, b"o", READ | WRITE);
    let (locks, _) = files.lock_first(&open, b"l", lock(0, 9, true)).unwrap();
    let owner = files.find_owner(A, OwnerKind::Lock, b"l").unwrap();
    let turn = |seqid| {
        let begun = owner.begin(seqid);
        let status = nfsstat4::NFS4ERR_DENIED;
        let (body, file) = ([][..].into(), None);
        let op = nfs_opnum4::OP_OPEN;
        owner.finish(
            seqid,
            LastAnswer {
                op,
                status,
                body,
                file,
            },
            0,
        );
        begun
    };
    assert_eq!(turn(1), Ok(RequestBegun::New));
    let again = owner.begin(1);
    assert!(matches!(again, Ok(RequestBegun::Again(_))), "{again:?}");
    assert_eq!(owner.begin(9), Err(nfsstat4::NFS4ERR_BAD_SEQID));
    let held = files.release_lock_owner(A, b"l");
    assert_eq!(held, Err(nfsstat4::NFS4ERR_LOCKS_HELD));
    files.unlock(&locks, Range::new(0, 9).unwrap()).unwrap();
    assert!(files.find_owner(A, OwnerKind::Lock, b"l").is_some());
    for _ in 0..2 {
        assert_eq!(files.release_lock_owner(A, b"l"), Ok(true));
    }
    assert!(files.find_owner(A, OwnerKind::Lock, b"l").is_none());
    assert_eq!(locks.check(2, false), Err(nfsstat4::NFS4ERR_BAD_STATEID));
    assert_eq!(turn(9), Ok(RequestBegun::New), "it has no locks");
}

#[test]
fn waiters_are_woken_when_their_lock_can_be_had() {
    let files = files();
    let a = open(&files, A, b"o", READ | WRITE);
    let b = open(&files, B, b"o", READ | WRITE);
    let (locks, _) = files.lock_first(&a, b"p", lock(0, 10, true)).unwrap();
    let waiter = |owner: &[u8]| Waiter {
        client: B,
        owner: owner.into(),
        handle: b"h"[..].into(),
    };
    let wait = |owner: &[u8], args| {
        assert!(files.lock_first(&b, owner, args).is_err());
        files.wait_for_lock(FILE, waiter(owner), args);
    };
    for _ in 0..2 {
        wait(b"first", lock(0, 2, false));
    }
    wait(b"second", lock(5, 2, true));
    files.unlock(&locks, Range::new(0, 1).unwrap()).unwrap();
    assert!(files.take_woken().is_empty());
    // The rest becomes a read lock: that is enough for one of them.
    files.lock(&locks, lock(1, 9, false)).unwrap();
    assert_eq!(files.take_woken(), [waiter(b"first")]);
    assert!(files.take_woken().is_empty());
    files.close(&a).unwrap();
    assert_eq!(files.take_woken(), [waiter(b"second")]);
    // A client that goes wakes them too.
    let a = open(&files, A, b"o", READ | WRITE);
    files.lock_first(&a, b"p", lock(0, 10, true)).unwrap();
    wait(b"first", lock(0, 2, false));
    forget(&files, A);
    assert_eq!(files.take_woken(), [waiter(b"first")]);
}

#[test]
fn the_administrator_takes_a_file_system_away() {
    let files = files();
    let kept = open(&files, B, b"o", READ);
    let mut other = args(A, b"o", READ | WRITE, 0);
    other.file = (2, 1);
    other.delegate = Some(b"h");
    let opened = files.open(&other).unwrap();
    let (state, delegation) = (opened.state, opened.delegation.expect("it is alone"));
    let (locks, _) = files.lock_first(&state, b"l", lock(0, 1, true)).unwrap();
    let removed = files.take_away(&mut files.revoke_system(2));
    assert!(removed.is_done);
    assert_eq!((removed.losers, removed.closed), (vec![A], vec![(2, 1)]));
    for state in [&state, &delegation, &locks] {
        let revoked = Err(nfsstat4::NFS4ERR_ADMIN_REVOKED);
        assert_eq!(state.check(1, true), revoked);
    }
    assert_eq!(files.close(&state), Err(nfsstat4::NFS4ERR_BAD_STATEID));
    assert_eq!(kept.check(1, true), Ok(()));
    assert_eq!(files.free(&state), Ok(false));
    assert_eq!(files.free(&delegation), Ok(false));
    assert_eq!(files.free(&locks), Ok(true), "that was all of it");
    assert!(!files.has_state(A));
    files.close(&kept).unwrap();
    assert!(no_trace(&files));
}

/// Opens of A in file system 2, each by an owner of its own.
fn open_in_system_2(files: &Files, count: u64) -> Vec<Arc<State>> {
    let open = |number: u64| {
        let owner = number.to_be_bytes();
        let args = OpenArgs {
            file: (2, number),
            ..args(A, &owner, READ | WRITE, 0)
        };
        files.open(&args).unwrap().state
    };
    (0..count).map(open).collect()
}

/// As little as a turn without a share takes away.
fn take_one(files: &Files, removal: &mut Removal) -> Removed {
    work::take_turn(&mut 0, 1, || files.take_away(removal))
}

/// A file system with two paths is exported by neither any more.
#[test]
fn state_that_two_removals_take_away_is_freed_once() {
    let files = files();
    let states = open_in_system_2(&files, 3);
    let mut removals = [files.revoke_system(2), files.revoke_system(2)];
    let mut closed = Vec::new();
    let mut is_done = [false; 2];
    while is_done != [true; 2] {
        for (removal, is_done) in removals.iter_mut().zip(&mut is_done) {
            if !*is_done {
                let removed = take_one(&files, removal);
                closed.extend(removed.closed);
                *is_done = removed.is_done;
            }
        }
    }
    closed.sort_unstable();
    assert_eq!(closed, [(2, 0), (2, 1), (2, 2)]);
    let freed: Vec<_> = states.iter().map(|state| files.free(state)).collect();
    assert_eq!(freed, [Ok(false), Ok(false), Ok(true)]);
    assert!(no_trace(&files));
}

#[test]
fn state_that_its_client_gives_up_meanwhile_is_not_revoked() {
    let files = files();
    let states = open_in_system_2(&files, 2);
    let mut removal = files.revoke_system(2);
    let found = take_one(&files, &mut removal);
    assert!(
        found.losers.is_empty(),
        "they are found, and not taken away yet"
    );
    files.close(&states[0]).unwrap();
    while !take_one(&files, &mut removal).is_done {}
    let over = [0, 1].map(|at| states[at].check(0, true).unwrap_err());
    let (closed, revoked) = (
        nfsstat4::NFS4ERR_BAD_STATEID,
        nfsstat4::NFS4ERR_ADMIN_REVOKED,
    );
    assert_eq!(over, [closed, revoked]);
    assert_eq!(files.free(&states[1]), Ok(true), "that was all of it");
    assert!(no_trace(&files));
}

/// A client that has freed all that is gone so far learns of what is revoked later.
#[test]
fn every_step_that_revokes_names_the_client_that_loses() {
    let files = files();
    let states = open_in_system_2(&files, 3);
    let mut removal = files.revoke_system(2);
    loop {
        let before = states.iter().filter(|state| state.is_over()).count();
        let removed = take_one(&files, &mut removal);
        let has_lost = states.iter().filter(|state| state.is_over()).count() > before;
        assert_eq!(removed.losers, vec![A; usize::from(has_lost)]);
        if removed.is_done {
            return;
        }
    }
}

#[test]
fn copy_is_a_state_until_it_ends() {
    let files = files();
    let (copy, id) = files.begin_copy((A, 0), FILE).unwrap();
    assert_eq!(files.find(A, &id).unwrap().kind, StateKind::Copy);
    assert_eq!(files.counts(A), [0, 0, 0, 1]);
    assert_eq!(files.close(&copy), Err(nfsstat4::NFS4ERR_BAD_STATEID));
    files.end_copy(&copy);
    assert!(files.find(A, &id).is_err() && no_trace(&files));
}

#[test]
fn client_of_version_4_0_that_has_closed_all_has_no_state() {
    let files = files();
    files.admit_client(A, true);
    let state = open(&files, A, b"o", READ | WRITE);
    assert!(files.has_state(A));
    files.close(&state).unwrap();
    assert!(!files.has_state(A));
}

#[test]
fn a_client_that_is_forgotten_loses_all_its_state() {
    let files = files();
    let state = open(&files, A, b"o", READ | WRITE);
    open(&files, A, b"p", READ);
    files.lock_first(&state, b"l", lock(0, 1, true)).unwrap();
    let mut denying = args(B, b"o", READ, WRITE);
    assert!(matches!(
        files.open(&denying),
        Err(StateRefused::InTheWay(A, nfsstat4::NFS4ERR_SHARE_DENIED))
    ));
    assert!(files.has_state(A) && !files.has_state(B));
    assert_eq!(forget(&files, A), [FILE, FILE]);
    assert_eq!(state.check(0, true), Err(nfsstat4::NFS4ERR_BAD_STATEID));
    denying.share.deny = WRITE;
    files.open(&denying).unwrap();
    assert!(files.check_anonymous(FILE, READ).is_ok());
    assert!(matches!(
        files.check_anonymous(FILE, WRITE),
        Err(StateRefused::InTheWay(B, nfsstat4::NFS4ERR_LOCKED))
    ));
    // A client that is gone gets nothing more.
    let late = files.open(&args(A, b"o", READ, 0));
    assert!(matches!(
        late,
        Err(StateRefused::Status(nfsstat4::NFS4ERR_RESOURCE))
    ));
    forget(&files, B);
    assert!(no_trace(&files));
}

proptest! {
    /// Share reservations against a list of what was asked for.
    #[test]
    fn share_reservations_agree_with_a_model_of_opens(
        steps in proptest::collection::vec((0usize..3, 0u8..4, 1u32..4, 0u32..4), 1..60),
    ) {
        let files = files();
        let owners: [(clientid4, &[u8]); 3] = [(A, b"o"), (A, b"p"), (B, b"o")];
        let mut model: [Vec<ShareReservation>; 3] = Default::default();
        let mut states: [Option<Arc<State>>; 3] = Default::default();
        let sum = |shares: &[ShareReservation]| shares.iter().fold(ShareReservation::default(), |a, &b| a.union(b));
        for (owner, what, access, deny) in steps {
            let share = ShareReservation { access, deny };
            match (what, states[owner].clone()) {
                (0 | 1, state) => {
                    let (client, name) = owners[owner];
                    let result = files.open(&args(client, name, access, deny));
                    let in_the_way = (0..3).any(|other| {
                        let other_has = sum(&model[other]);
                        access & other_has.deny != 0 || deny & other_has.access != 0
                    });
                    prop_assert_eq!(result.is_err(), in_the_way);
                    let Ok(opened) = result else { continue };
                    prop_assert_eq!(opened.is_new, state.is_none());
                    model[owner].push(share);
                    states[owner] = Some(opened.state);
                }
                (2, Some(state)) => {
                    let seqid = state.seqid();
                    let result = files.downgrade(&state, share);
                    let within = |part: &ShareReservation| {
                        part.access & !access == 0 && part.deny & !deny == 0
                    };
                    let left: Vec<_> = model[owner].iter().copied().filter(within).collect();
                    if sum(&left) == share {
                        prop_assert_eq!(result.map(|id| id.seqid), Ok(seqid + 1));
                        model[owner] = left;
                    } else {
                        prop_assert_eq!(result, Err(nfsstat4::NFS4ERR_INVAL));
                    }
                }
                (3, Some(state)) => {
                    files.close(&state).unwrap();
                    model[owner].clear();
                    states[owner] = None;
                }
                _ => {}
            }
            for (state, shares) in states.iter().zip(&model) {
                let share = state.as_ref().map_or(ShareReservation::default(), |state| state.share());
                prop_assert_eq!(share, sum(shares));
            }
        }
        forget(&files, A);
        forget(&files, B);
        prop_assert!(no_trace(&files));
    }
}

/// However many clients try, there is an end to what all of them have, and
/// every other client still has room.
#[test]
fn greedy_clients_leave_room_for_the_state_of_others() {
    let mut files = Files::new(7, Secret::default(), 0);
    files.held_max = 10_000;
    let greedy: Vec<clientid4> = (10..40).map(|low| 7 << 32 | low).collect();
    for &client in &greedy {
        files.admit_client(client, false);
        let opened = (0u64..).take_while(|at| {
            let owner = at.to_be_bytes();
            let file = (1, *at);
            files
                .open(&OpenArgs {
                    file,
                    ..args(client, &owner, READ, 0)
                })
                .is_ok()
        });
        assert!(opened.count() >= HELD_MIN / 2);
    }
    let held = files.held.load(Ordering::Relaxed);
    assert!(held <= 10_000 + greedy.len() * HELD_MIN, "{held}");
    files.admit_client(A, false);
    let mine = open(&files, A, b"o", READ);
    files.close(&mine).unwrap();
    for client in greedy {
        forget(&files, client);
    }
    assert!(no_trace(&files));
}

/// A client that was not given a state id cannot work it out, not from those that
/// it has either.
#[test]
fn state_ids_cannot_be_foreseen_without_the_secret() {
    let ids = |secret| -> Vec<[u8; 12]> {
        let files = Files::new(7, Secret([secret; 16]), 2);
        files.admit_client(A, false);
        let open = |owner: &[u8]| files.open(&args(A, owner, READ, 0)).unwrap().stateid;
        [b"a", b"b", b"c"].map(|owner| open(owner).other).into()
    };
    let (first, second) = (ids(1), ids(2));
    assert!(first.iter().zip(&second).all(|(a, b)| a != b));
    assert_eq!(first, ids(1), "of one secret they are known");
}

/// Reading is not writing, and one of both is not both.
#[test]
fn open_lets_its_client_do_what_it_asked_for() {
    let both = READ | WRITE;
    for access in [READ, WRITE, both] {
        let files = files();
        let state = open(&files, A, b"o", access);
        for wanted in [READ, WRITE, both] {
            let expected = match access == both || access == wanted {
                true => Ok(()),
                false => Err(nfsstat4::NFS4ERR_OPENMODE),
            };
            assert_eq!(state.check_access(wanted), expected, "{access} {wanted}");
        }
    }
}

/// What a state is marked with outlasts its changes: an open that is not confirmed is not
/// by being opened for more.
#[test]
fn changes_of_a_share_keep_the_marks_of_its_state() {
    let files = files();
    let state = open(&files, A, b"o", READ);
    state.mark(UNCONFIRMED | state::RECALLED);
    state.change(ShareReservation {
        access: WRITE,
        deny: READ,
    });
    assert!(state.is_unconfirmed() && state.is_recalled());
    assert_eq!((state.seqid(), state.share().access), (2, WRITE));
}

/// Of numbers that wrap one half is past.
#[test]
fn state_id_is_old_by_up_to_half_of_all_numbers() {
    let files = files();
    let state = open(&files, A, b"o", READ);
    let half = 1 << 31;
    let old = state.check(1_u32.wrapping_sub(half - 1), false);
    assert_eq!(old, Err(nfsstat4::NFS4ERR_OLD_STATEID));
    let bad = state.check(1_u32.wrapping_sub(half), false);
    assert_eq!(bad, Err(nfsstat4::NFS4ERR_BAD_STATEID));
}

#[test]
fn owner_is_forgotten_with_its_last_state() {
    let files = files();
    let at = |file| {
        let file = (1, file);
        let args = args(A, b"o", READ, 0);
        files.open(&OpenArgs { file, ..args }).unwrap().state
    };
    let (first, second) = (at(1), at(2));
    let owner = || {
        files
            .find_owner(A, OwnerKind::Open, b"o")
            .map(|owner| owner.id)
    };
    let id = owner();
    files.close(&first).unwrap();
    assert_eq!(owner(), id, "it has another");
    files.close(&second).unwrap();
    assert_eq!(owner(), None);
    assert!(no_trace(&files));
}

#[test]
fn client_that_is_gone_gets_no_state() {
    let files = files();
    files.holdings(A).unwrap().lock().unwrap().is_gone = true;
    assert!(files.open(&args(A, b"o", READ, 0)).is_err());
    assert!(no_trace(&files));
}

/// A client has so much for sure, and a part of what is left.
#[test]
fn client_has_a_minimum_of_states_and_a_part_of_the_rest() {
    let mut files = files();
    files.admit_client(A, true);
    let owner = |at: usize| Owner::new(at as u64, OwnerKind::Open, &at.to_be_bytes());
    let mut holdings = Holdings::new(&Arc::default());
    for at in 0..HELD_MIN {
        assert!(holdings.has_room(0), "{at}");
        let name = Box::from(at.to_be_bytes());
        holdings
            .owners
            .insert((OwnerKind::Open, name), owner(at).into());
    }
    assert!(!holdings.has_room(4 * HELD_MIN));
    assert!(holdings.has_room(4 * (HELD_MIN + 1)));
    // Owners and states count alike.
    files.held_max = 0;
    let owners = (0..2 * HELD_MIN).take_while(|at| {
        let owner = files.admit_owner(A, OwnerKind::Open, &at.to_be_bytes(), 0);
        owner.is_ok()
    });
    assert_eq!(owners.count(), HELD_MIN);
    let states = (0..2 * HELD_MIN as u64).take_while(|at| {
        let args = args(B, b"o", READ, 0);
        let file = (1, *at);
        files.open(&OpenArgs { file, ..args }).is_ok()
    });
    assert_eq!(states.count(), HELD_MIN - 1, "one owner");
}

#[test]
fn file_that_is_open_to_write_is_not_delegated() {
    let files = files();
    let delegate = |client, access, file| {
        let args = OpenArgs {
            delegate: Some(b"handle"),
            file: (1, file),
            ..args(client, b"o", access, 0)
        };
        files.open(&args).unwrap().delegation.is_some()
    };
    assert!(!files.has_delegations());
    let writes = OpenArgs {
        file: (1, 1),
        ..args(B, b"o", WRITE, 0)
    };
    files.open(&writes).unwrap();
    assert!(
        !delegate(A, READ, 1) && !delegate(A, WRITE, 1),
        "another writes it"
    );
    assert!(!files.has_delegations());
    assert!(delegate(A, READ, 2) && delegate(A, READ, 3));
    assert!(files.has_delegations());
    assert!(!delegate(A, READ, 4), "two are the most");
}

#[test]
fn file_that_another_client_has_locked_is_not_delegated() {
    let files = files();
    open(&files, B, b"o", READ);
    let other = open(&files, B, b"o", READ | WRITE);
    files.lock_first(&other, b"l", lock(0, 9, true)).unwrap();
    let share = ShareReservation {
        access: READ,
        deny: 0,
    };
    files.downgrade(&other, share).unwrap();
    let wanted = OpenArgs {
        delegate: Some(b"handle"),
        ..args(A, b"o", READ, 0)
    };
    assert!(files.open(&wanted).unwrap().delegation.is_none());
    forget(&files, B);
    assert!(files.open(&wanted).unwrap().delegation.is_some());
}

#[test]
fn owner_that_was_used_is_not_retired() {
    let files = files();
    files.admit_client(A, true);
    let ask = |now| files.admit_owner(A, OwnerKind::Open, b"o", now).unwrap();
    let is_known = || files.find_owner(A, OwnerKind::Open, b"o").is_some();
    ask(0);
    ask(8);
    files.retire_owners(10, 18);
    assert!(is_known());
    files.retire_owners(10, 19);
    assert!(!is_known());
}
