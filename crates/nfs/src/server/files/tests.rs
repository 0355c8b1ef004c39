use proptest::prelude::*;

use super::*;

const A: clientid4 = 7 << 32 | 1;
const B: clientid4 = 7 << 32 | 2;
const FILE: FileKey = (1, 42);

fn files() -> Files {
    let files = Files::new(7, 2);
    files.admit(A);
    files.admit(B);
    files
}

fn args(client: clientid4, owner: &[u8], access: u32, deny: u32) -> OpenArgs<'_> {
    OpenArgs {
        client,
        owner,
        file: FILE,
        share: Share { access, deny },
        wants_delegation: false,
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
        && is_empty(A)
        && is_empty(B)
}

#[test]
fn state_ids_are_found_and_told_from_others() {
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
fn some_state_ids_are_special() {
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
fn locks_belong_to_opens_and_go_with_them() {
    let files = files();
    let a = open(&files, A, b"o", READ | WRITE);
    let b = open(&files, B, b"o", READ);
    let locks = files.lock_first(&a, b"p", lock(0, 10, true)).unwrap();
    assert_eq!(
        (locks.seqid(), locks.kind),
        (1, Kind::Lock { open: a.number })
    );
    let denied = files
        .lock_first(&b, b"p", lock(9, u64::MAX, false))
        .unwrap_err();
    let Refused::Denied(held, client, name) = denied else {
        panic!("{denied:?}");
    };
    assert_eq!((held.range.length(), client, &name[..]), (10, A, &b"p"[..]));
    let mode = files.lock_first(&b, b"p", lock(20, 1, true)).unwrap_err();
    assert_eq!(mode, Refused::Status(nfsstat4::NFS4ERR_OPENMODE));
    // What was refused has left nothing: b can still have its first.
    let mine = files.lock_first(&b, b"p", lock(10, 1, false)).unwrap();
    assert!(matches!(
        files.lock(&locks, lock(10, 1, true)),
        Err(Refused::Denied(..))
    ));
    files.lock(&locks, lock(0, 5, false)).unwrap();
    assert_eq!(locks.seqid(), 2);
    let test = |client, owner: &[u8], args| files.test_lock(client, owner, FILE, args);
    assert_eq!(test(B, b"p", lock(0, 5, false)), Ok(()));
    assert!(matches!(
        test(B, b"p", lock(0, 5, true)),
        Err(Refused::Denied(..))
    ));
    assert!(matches!(
        test(A, b"q", lock(5, 1, false)),
        Err(Refused::Denied(..))
    ));
    assert_eq!(test(A, b"p", lock(0, 10, true)), Ok(()));
    files.unlock(&locks, Range::new(0, 9).unwrap()).unwrap();
    assert_eq!(locks.seqid(), 3);
    assert_eq!(files.free(&locks), Err(nfsstat4::NFS4ERR_LOCKS_HELD));
    files.unlock(&locks, Range::new(9, 1).unwrap()).unwrap();
    assert_eq!(files.free(&locks), Ok(()));
    assert_eq!(
        files.lock(&locks, lock(0, 1, true)).unwrap_err(),
        Refused::Status(nfsstat4::NFS4ERR_BAD_STATEID)
    );
    assert_eq!(files.free(&a), Err(nfsstat4::NFS4ERR_LOCKS_HELD));
    // An open that is downgraded lets its locks do less.
    let locks = files.lock_first(&a, b"p", lock(0, 1, true)).unwrap();
    files.open(&args(A, b"o", READ, 0)).unwrap();
    files
        .downgrade(
            &a,
            Share {
                access: READ,
                deny: 0,
            },
        )
        .unwrap();
    assert_eq!(locks.check_access(WRITE), Err(nfsstat4::NFS4ERR_OPENMODE));
    assert!(files.lock(&locks, lock(1, 1, true)).is_err());
    files.close(&a).unwrap();
    assert_eq!(locks.check(0, true), Err(nfsstat4::NFS4ERR_BAD_STATEID));
    assert_eq!(test(B, b"p", lock(0, 5, true)), Ok(()));
    files.close(&b).unwrap();
    assert_eq!(mine.check(0, true), Err(nfsstat4::NFS4ERR_BAD_STATEID));
    assert!(no_trace(&files));
}

#[test]
fn delegations_are_given_recalled_and_taken_away() {
    let files = files();
    let wants = |client, access| {
        let mut args = args(client, b"o", access, 0);
        args.wants_delegation = true;
        files.open(&args)
    };
    let first = wants(A, READ).unwrap().delegation.expect("nobody writes");
    assert!(wants(A, READ).unwrap().delegation.is_none(), "one each");
    let second = wants(B, READ).unwrap().delegation.expect("it only reads");
    assert_eq!(
        files.open(&args(A, b"x", READ, 0)).unwrap().state.seqid(),
        1
    );
    // Somebody else wants to write: they are recalled once.
    let Err(Refused::Recall(recalls)) = wants(A, WRITE) else {
        panic!("B reads");
    };
    assert_eq!(recalls.len(), 1);
    assert_eq!(
        (recalls[0].client, recalls[0].stateid),
        (B, stateid(7, &second))
    );
    assert_eq!(wants(A, WRITE).unwrap_err(), Refused::Recall(Vec::new()));
    assert_eq!(
        files.break_delegations(A, FILE),
        Err(Refused::Recall(Vec::new()))
    );
    assert_eq!(files.end_delegation(&second, false), Ok(()));
    assert_eq!(files.break_delegations(A, FILE), Ok(()));
    assert!(wants(A, WRITE).unwrap().delegation.is_none());
    assert!(
        matches!(files.break_delegations(B, FILE), Err(Refused::Recall(list)) if list.len() == 1)
    );
    assert!(
        wants(B, READ).unwrap().delegation.is_none(),
        "somebody writes"
    );
    // A does not hear: it is taken away, and A must say that it knows.
    files.end_delegation(&first, true).unwrap();
    let id = stateid(7, &first);
    let found = files.find(A, &id).unwrap();
    assert_eq!(found.check(1, true), Err(nfsstat4::NFS4ERR_DELEG_REVOKED));
    assert_eq!(files.free(&found), Ok(()));
    assert_eq!(
        files.find(A, &id).unwrap_err(),
        nfsstat4::NFS4ERR_BAD_STATEID
    );
    files.forget_client(A);
    files.forget_client(B);
    assert!(no_trace(&files));
}

#[test]
fn a_client_goes_with_all_that_it_has() {
    let files = files();
    let state = open(&files, A, b"o", READ | WRITE);
    open(&files, A, b"p", READ);
    files.lock_first(&state, b"l", lock(0, 1, true)).unwrap();
    let mut denying = args(B, b"o", READ, WRITE);
    let in_the_way = Refused::InTheWay(A, nfsstat4::NFS4ERR_SHARE_DENIED);
    assert_eq!(files.open(&denying).unwrap_err(), in_the_way);
    assert!(files.has_state(A) && !files.has_state(B));
    assert_eq!(files.forget_client(A), [FILE, FILE]);
    assert_eq!(state.check(0, true), Err(nfsstat4::NFS4ERR_BAD_STATEID));
    denying.share.deny = WRITE;
    files.open(&denying).unwrap();
    assert_eq!(files.check_anonymous(FILE, READ), Ok(()));
    assert_eq!(
        files.check_anonymous(FILE, WRITE),
        Err(nfsstat4::NFS4ERR_LOCKED)
    );
    // Who is gone gets nothing more.
    let late = files.open(&args(A, b"o", READ, 0)).unwrap_err();
    assert_eq!(late, Refused::Status(nfsstat4::NFS4ERR_RESOURCE));
    files.forget_client(B);
    assert!(no_trace(&files));
}

proptest! {
    /// Share reservations against a list of what was asked for.
    #[test]
    fn shares_are_those_that_are_in_force(
        steps in proptest::collection::vec((0usize..3, 0u8..4, 1u32..4, 0u32..4), 1..60),
    ) {
        let files = files();
        let owners: [(clientid4, &[u8]); 3] = [(A, b"o"), (A, b"p"), (B, b"o")];
        let mut model: [Vec<Share>; 3] = Default::default();
        let mut states: [Option<Arc<State>>; 3] = Default::default();
        let sum = |shares: &[Share]| shares.iter().fold(Share::default(), |a, &b| a.union(b));
        for (who, what, access, deny) in steps {
            let share = Share { access, deny };
            match (what, states[who].clone()) {
                (0 | 1, state) => {
                    let (client, name) = owners[who];
                    let result = files.open(&args(client, name, access, deny));
                    let in_the_way = (0..3).any(|other| {
                        let other_has = sum(&model[other]);
                        other != who && (access & other_has.deny != 0 || deny & other_has.access != 0)
                    });
                    prop_assert_eq!(result.is_err(), in_the_way);
                    let Ok(opened) = result else { continue };
                    prop_assert_eq!(opened.is_new, state.is_none());
                    model[who].push(share);
                    states[who] = Some(opened.state);
                }
                (2, Some(state)) => {
                    let seqid = state.seqid();
                    let result = files.downgrade(&state, share);
                    let within = |part: &Share| {
                        part.access & !access == 0 && part.deny & !deny == 0
                    };
                    let left: Vec<_> = model[who].iter().copied().filter(within).collect();
                    if sum(&left) == share {
                        prop_assert_eq!(result, Ok(()));
                        prop_assert_eq!(state.seqid(), seqid + 1);
                        model[who] = left;
                    } else {
                        prop_assert_eq!(result, Err(nfsstat4::NFS4ERR_INVAL));
                    }
                }
                (3, Some(state)) => {
                    files.close(&state).unwrap();
                    model[who].clear();
                    states[who] = None;
                }
                _ => {}
            }
            for (state, shares) in states.iter().zip(&model) {
                let share = state.as_ref().map_or(Share::default(), |state| state.share());
                prop_assert_eq!(share, sum(shares));
            }
        }
        files.forget_client(A);
        files.forget_client(B);
        prop_assert!(no_trace(&files));
    }
}
