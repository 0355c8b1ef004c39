//! What operations on files cost with each table as full as it may be, in units.

use machine::work;

use super::*;
use crate::server::locks::{LOCKS_MAX, Range};

const A: clientid4 = 7 << 32 | 1;
const B: clientid4 = 7 << 32 | 2;
const FILE: FileKey = (1, 42);
/// What one operation may cost: some descents of a tree of the largest size.
const OPERATION_MAX: u64 = 256;

fn open(files: &Files, client: clientid4, owner: &[u8]) -> Arc<State> {
    let opened = files.open(&OpenArgs {
        client,
        uid: 0,
        owner,
        file: FILE,
        share: ShareReservation {
            access: READ | WRITE,
            deny: 0,
        },
        delegate: None,
        open_xor_delegation: false,
        delegates_times: false,
        must_confirm: false,
        now: 0,
    });
    opened.expect("no open denies it").state
}

fn write_lock(start: u64, length: u64) -> LockArgs {
    LockArgs {
        range: Range::new(start, length).expect("a range"),
        is_exclusive: true,
    }
}

/// What `operation` costs.
fn units_of<T>(operation: impl FnOnce() -> T) -> (T, u64) {
    let mut units = 0;
    let value = work::take_turn(&mut units, u64::MAX, operation);
    (value, units)
}

/// A holds as many locks as there may be, and as many of B as may be wait for them.
fn crowded() -> (Files, Arc<State>) {
    let files = Files::new(7, Secret::default(), 2);
    files.admit_client(A, false);
    files.admit_client(B, false);
    let opened = open(&files, A, b"o");
    open(&files, B, b"o");
    let (locks, _) = files
        .lock_first(&opened, b"l", write_lock(0, 1))
        .expect("the first");
    for at in 1..LOCKS_MAX as u64 - 2 {
        files.lock(&locks, write_lock(at * 4, 1)).expect("room");
    }
    for at in 0..locking::WAITERS_MAX as u64 {
        let waiter = Waiter {
            client: B,
            owner: at.to_be_bytes()[..].into(),
            handle: b"h"[..].into(),
        };
        files.wait_for_lock(FILE, waiter, write_lock((LOCKS_MAX as u64 - 3) * 4, 1));
    }
    (files, locks)
}

#[test]
fn lock_without_conflict_wakes_no_waiter() {
    let (files, locks) = crowded();
    let (locked, units) = units_of(|| files.lock(&locks, write_lock(u64::MAX / 2, 1)));
    assert!(locked.is_ok() && files.take_woken().is_empty());
    assert!(units < OPERATION_MAX, "{units} units for one LOCK");
}

#[test]
fn unlock_wakes_only_waiters_whose_range_overlaps() {
    let (files, locks) = crowded();
    let unlock = |start| files.unlock(&locks, Range::new(start, 1).expect("a range"));
    let (unlocked, units) = units_of(|| unlock(4));
    assert!(unlocked.is_ok() && files.take_woken().is_empty());
    assert!(units < 2 * OPERATION_MAX, "{units} units for one LOCKU");
    // Nothing was there any more.
    let (unlocked, units) = units_of(|| unlock(4));
    assert!(unlocked.is_ok() && units < 64, "{units} units for nothing");
    // All of them wait for this one.
    assert!(unlock((LOCKS_MAX as u64 - 3) * 4).is_ok());
    assert_eq!(files.take_woken().len(), locking::WAITERS_MAX);
    assert!(unlock(0).is_ok() && files.take_woken().is_empty());
}

#[test]
fn close_wakes_waiters_once_however_many_owners_had_locks() {
    const OWNERS: u64 = 1000;
    let (files, locks) = crowded();
    // Others keep what the waiters wait for; these leave room for their locks.
    let room = Range::new(0, OWNERS * 4).expect("a range");
    files.unlock(&locks, room).expect("held");
    let opened = open(&files, A, b"of many");
    for at in 0..OWNERS {
        let locked = files.lock_first(&opened, &at.to_be_bytes(), write_lock(at * 4, 1));
        locked.expect("room");
    }
    let (closed, units) = units_of(|| files.close(&opened));
    assert!(closed == Ok(true) && files.take_woken().is_empty());
    let once = locking::WAITERS_MAX as u64 * 64;
    assert!(units < once + OWNERS * 32, "{units} units for one CLOSE");
}

#[test]
fn downgrade_of_a_lock_wakes_a_waiter_to_read() {
    let (files, locks) = crowded();
    let waiter = Waiter {
        client: B,
        owner: b"reader"[..].into(),
        handle: b"h"[..].into(),
    };
    files
        .unlock(
            &locks,
            Range::new((LOCKS_MAX as u64 - 3) * 4, 1).expect("a range"),
        )
        .expect("held");
    files.take_woken();
    let reads = LockArgs {
        is_exclusive: false,
        ..write_lock(8, 1)
    };
    files.wait_for_lock(FILE, waiter.clone(), reads);
    files.lock(&locks, write_lock(8, 1)).expect("its own");
    assert!(files.take_woken().is_empty(), "nothing has changed");
    files.lock(&locks, reads).expect("its own");
    assert_eq!(files.take_woken(), [waiter]);
}

#[test]
fn waiter_for_a_lock_that_is_free_by_now_is_woken_at_once() {
    let (files, _) = crowded();
    let waiter = Waiter {
        client: B,
        owner: b"late"[..].into(),
        handle: b"h"[..].into(),
    };
    files.wait_for_lock(FILE, waiter.clone(), write_lock(u64::MAX / 2, 1));
    assert_eq!(files.take_woken(), [waiter]);
}

#[test]
fn refused_lock_costs_the_same_however_many_there_are() {
    let (files, _) = crowded();
    let opened = open(&files, B, b"p");
    let all = LockArgs {
        range: Range::ALL,
        is_exclusive: false,
    };
    let (refused, units) = units_of(|| files.lock_first(&opened, b"x", all));
    assert!(matches!(refused, Err(StateRefused::Denied(lock, ..)) if lock.range.start == 0));
    assert!(units < OPERATION_MAX, "{units} units for a refused LOCK");
}

/// What an operation costs whose work was paid for before, lock by lock.
const WHOLE_TABLE_MAX: u64 = 4 * LOCKS_MAX as u64;

#[test]
fn unlocking_a_full_table_costs_it_once() {
    let (files, locks) = crowded();
    let (unlocked, units) = units_of(|| files.unlock(&locks, Range::ALL));
    assert!(unlocked.is_ok());
    assert!(units < WHOLE_TABLE_MAX, "{units} units for LOCKU of all");
    let (files, locks) = crowded();
    let (locked, units) = units_of(|| files.lock(&locks, write_lock(0, u64::MAX)));
    assert!(locked.is_ok());
    assert!(units < WHOLE_TABLE_MAX, "{units} units for LOCK over all");
}

#[test]
fn unlocking_half_of_a_full_table_costs_it_once() {
    let (files, locks) = crowded();
    let half = Range::new(0, 2 * LOCKS_MAX as u64).expect("a range");
    let (unlocked, units) = units_of(|| files.unlock(&locks, half));
    assert!(unlocked.is_ok());
    assert!(units < WHOLE_TABLE_MAX, "{units} units for LOCKU of half");
}

#[test]
fn waiters_beyond_the_most_of_a_file_are_not_remembered() {
    let (files, locks) = crowded();
    let waiter = Waiter {
        client: B,
        owner: b"one more"[..].into(),
        handle: b"h"[..].into(),
    };
    files.wait_for_lock(FILE, waiter, write_lock(0, 1));
    assert!(files.unlock(&locks, Range::ALL).is_ok());
    assert_eq!(files.take_woken().len(), locking::WAITERS_MAX);
}

#[test]
fn opens_and_lock_states_of_a_file_are_found_without_a_search() {
    const OPENS: u32 = 4096;
    let files = Files::new(7, Secret::default(), 2);
    files.admit_client(A, true);
    let name = |n: u32| n.to_be_bytes();
    let opens: Vec<_> = (0..OPENS).map(|n| open(&files, A, &name(n))).collect();
    let locks: Vec<_> = (0..)
        .zip(&opens)
        .map(|(n, open)| {
            let args = write_lock(u64::from(n) * 4, 1);
            files.lock_first(open, &name(n), args).expect("room").0
        })
        .collect();
    let last = OPENS as usize - 1;
    let share = ShareReservation {
        access: READ,
        deny: 0,
    };
    let cost = |what: &str, operation: &dyn Fn()| {
        let ((), units) = units_of(operation);
        assert!(units < OPERATION_MAX, "{units} units for {what}");
    };
    cost("OPEN", &|| drop(open(&files, A, b"one more")));
    cost("OPEN again", &|| drop(open(&files, A, &name(7))));
    cost("READ without a state", &|| {
        assert!(files.check_anonymous(FILE, READ).is_ok());
    });
    cost("LOCK", &|| {
        assert!(
            files
                .lock(&locks[last], write_lock(u64::MAX - 9, 1))
                .is_ok()
        );
    });
    cost("OPEN_DOWNGRADE", &|| {
        assert!(files.downgrade(&opens[last], share).is_err());
    });
    cost("LOCKU", &|| {
        let unlocked = files.unlock(&locks[last], Range::ALL);
        assert!(unlocked.is_ok());
    });
    cost("RELEASE_LOCKOWNER", &|| {
        assert_eq!(files.release_lock_owner(A, &name(OPENS - 1)), Ok(true));
    });
    cost("CLOSE", &|| assert!(files.close(&opens[0]).is_ok()));
    let states = u64::from(OPENS) * 2;
    let mut removal = files.forget_client(A).expect("it is there");
    let (removed, units) = units_of(|| files.take_away(&mut removal));
    assert!(removed.is_done);
    assert_eq!(removed.closed.len(), OPENS as usize);
    assert!(
        units < 64 * states,
        "{units} units to forget {states} states"
    );
}

/// However much a client has had, one step takes no more than its share and what one
/// state costs.
#[test]
fn client_that_is_gone_is_taken_away_in_steps() {
    let (files, locks) = crowded();
    for owner in 0..1000_u64 {
        open(&files, A, &owner.to_be_bytes());
    }
    let mut removal = files.forget_client(A).expect("it is there");
    assert!(files.forget_client(A).is_none(), "another removal is at it");
    let (mut closed, mut steps) = (0, 0);
    loop {
        let mut units = 0;
        let max = work::TURN_UNITS_MAX;
        let removed = work::take_turn(&mut units, max, || files.take_away(&mut removal));
        assert!(units < max + WHOLE_TABLE_MAX, "{units} units in one step");
        (closed, steps) = (closed + removed.closed.len(), steps + 1);
        if removed.is_done {
            break;
        }
        assert!(files.is_leaving(A) && !files.has_state(A));
        files.admit_client(A, false);
        assert!(matches!(
            files.lock(&locks, write_lock(u64::MAX / 2, 1)),
            Err(StateRefused::Status(nfsstat4::NFS4ERR_BAD_STATEID)) | Ok(_)
        ));
    }
    assert!(steps > 2, "{steps} steps");
    assert_eq!(closed, 1001);
    assert!(!files.is_leaving(A) && files.holdings(A).is_none());
    assert_eq!(
        files.take_woken().len(),
        locking::WAITERS_MAX,
        "all are told"
    );
    let held = files.held.load(Ordering::Relaxed);
    assert_eq!(held, 2, "an open of B, and its owner");
}
