//! Clients with as much as they may have: whatever is done with it in a turn has a
//! bound, and the rest goes on in the next one.

use std::sync::Arc;

use machine::work::{self, OPERATION_UNITS_MAX, TURN_UNITS_MAX};
use nfs::server::files::{
    LockArgs, OpenArgs, OwnerKind, ShareReservation, State, StateRefused, Waiter,
};
use nfs::server::locks::Range;
use nfsd::Nfsd;
use nfsd::exports::{Export, Exports};
use store::fs::Memory;
use wire::nfs4::*;
use wire::xdr::{Decode, List, Opaque};

use crate::world::*;
use nfs_argop4 as arg;
use nfsstat4::{NFS4_OK, NFS4ERR_DELAY};

/// Lock owners in each of so many files: more than 65,000 states of one client.
const FILES: u64 = 4;
const OWNERS: u64 = 16_300;
/// What an operation costs beyond the share that its turn had left.
const STEP_UNITS_MAX: u64 = 2048;

/// An open of a file of a file system that may be none of this server's.
fn open_elsewhere(nfsd: &Nfsd, client: u64, owner: &[u8], file: (u64, u64)) -> Arc<State> {
    let opened = nfsd.files.open(&OpenArgs {
        client,
        uid: 0,
        owner,
        file,
        share: ShareReservation { access: 3, deny: 0 },
        delegate: None,
        open_xor_delegation: false,
        delegates_times: false,
        must_confirm: false,
        now: 0,
    });
    opened.expect("no open denies it").state
}

/// A file that a client has open, and its handle.
fn open(world: &mut World, client: &mut Client, name: &str) -> (Arc<State>, Vec<u8>) {
    let args = OPEN4args {
        seqid: 1,
        share_access: undelegated(client, BOTH),
        openhow: openflag4::OPEN4_CREATE(createhow4::UNCHECKED4(mode())),
        ..opening(client, name, name)
    };
    let ops = root().op(arg::OP_OPEN(args)).op(arg::OP_GETFH);
    let mut answer = world.run(client, ops);
    let opened = answer.ok(nfs_opnum4::OP_PUTROOTFH).opened();
    let handle = answer.handle();
    if client.minor == 0 {
        let confirm = at(&handle).op(arg::OP_OPEN_CONFIRM(OPEN_CONFIRM4args {
            open_stateid: opened.stateid,
            seqid: 2,
        }));
        assert_eq!(world.last(client, confirm), NFS4_OK);
    }
    let files = &world.server.nfsd.files;
    let state = files.find(client.id, &opened.stateid);
    (state.expect("it is open"), handle)
}

/// The first byte, for oneself.
fn first_range() -> LockArgs {
    LockArgs {
        range: Range::new(0, 1).expect("a range"),
        is_exclusive: true,
    }
}

fn lock(nfsd: &Nfsd, open: &State, owner: &[u8], start: u64) -> Arc<State> {
    let args = LockArgs {
        range: Range::new(start, 1).expect("a range"),
        is_exclusive: true,
    };
    let locked = nfsd.files.lock_first(open, owner, args);
    locked.expect("no owner has a lock there").0
}

/// A client has locks in some files, by very many owners. The state of the lock of the
/// first byte of the last file, and the handle of that: states are taken away in the
/// order that they were made in.
fn fill(world: &mut World, client: &mut Client) -> (Arc<State>, Vec<u8>) {
    let mut first = None;
    for file in 0..FILES {
        let (state, handle) = open(world, client, &format!("f{file}"));
        first = None;
        for owner in 0..OWNERS {
            let lock = lock(&world.server.nfsd, &state, &owner.to_be_bytes(), owner * 2);
            first.get_or_insert_with(|| (lock, handle.clone()));
        }
    }
    first.expect("a file")
}

/// From now on turns have their share.
fn watch(world: &mut World) {
    world.server.turn_units_max = TURN_UNITS_MAX;
    world.server.dearest_turn = 0;
}

#[track_caller]
fn check_turns(world: &World) {
    let dearest = world.server.dearest_turn;
    assert!(
        dearest <= TURN_UNITS_MAX + STEP_UNITS_MAX,
        "{dearest} units in one turn"
    );
}

fn states(world: &World, client: &Client) -> usize {
    world.server.nfsd.files.counts(client.id).iter().sum()
}

/// A lock of the first byte of a file, by an open of it.
fn first_byte(client: &Client, handle: &[u8], stateid: stateid4) -> Ops {
    at(handle).op(arg::OP_LOCK(LOCK4args {
        length: 1,
        ..locking(client, "l", stateid)
    }))
}

#[test]
fn client_that_restarts_loses_65000_states_in_steps() {
    for minor in [0, 1] {
        let mut world = World::new();
        let mut b = world.client("b", 1);
        let mut a = world.client("a", minor);
        fill(&mut world, &mut a);
        watch(&mut world);
        world.verifier = *b"came new";
        let again = world.client("a", minor);
        check_turns(&world);
        assert_ne!(a.id, again.id);
        let (stateid, handle) = world.create(&mut b, "o", "f0");
        let ops = first_byte(&b, &handle, stateid);
        assert_eq!(world.last(&mut b, ops), NFS4_OK, "nothing is left of it");
    }
}

#[test]
fn client_that_has_expired_loses_65000_states_in_steps() {
    let mut world = World::new();
    let mut a = world.client("a", 0);
    fill(&mut world, &mut a);
    watch(&mut world);
    world.server.advance(2 * 86_400 * SECOND);
    check_turns(&world);
    assert_eq!(states(&world, &a), 0);
}

#[test]
fn client_that_is_evicted_loses_65000_states_in_steps() {
    let mut world = World::new();
    let mut a = world.client("a", 1);
    fill(&mut world, &mut a);
    watch(&mut world);
    assert!(world.server.evict(a.id));
    check_turns(&world);
}

/// Else a client that restarts again and again has more and more.
#[test]
fn client_restarts_once_its_states_of_two_starts_ago_are_gone() {
    for minor in [0, 1] {
        let mut world = World::new();
        let a = world.client("a", minor);
        for file in 0..2000 {
            open_elsewhere(&world.server.nfsd, a.id, b"o", (8, file));
        }
        watch(&mut world);
        world.server.rests = true;
        world.verifier = *b"again  1";
        let a = world.client("a", minor);
        let introduce = |world: &mut World| {
            let ops = world.introduction("a", minor);
            world.plain(a.conn, minor, &ops).status
        };
        world.verifier = *b"again  2";
        assert_eq!(introduce(&mut world), NFS4ERR_DELAY);
        world.client("b", minor);
        world.server.rests = false;
        world.server.advance(1);
        assert_eq!(introduce(&mut world), NFS4_OK);
    }
}

/// In one turn they are all exported no longer.
#[test]
fn states_in_8_file_systems_are_revoked_in_steps() {
    let mut world = World::new();
    let mut a = world.client("a", 1);
    let fs = |system: u64| {
        let fs = Memory::new("one of many", 1 << 20, system, world.server.time);
        let fs = Arc::new(fs.expect("memory"));
        Export::new(&format!("/{system}"), fs, Vec::new()).expect("an export")
    };
    let all = Exports::new((20..28).map(fs).collect(), world.server.time);
    let nfsd = &world.server.nfsd;
    nfsd.set_exports(all.expect("exports"));
    for file in 0..60_000 {
        let copy = nfsd.files.begin_copy((a.id, 0), (20 + file % 8, file));
        copy.expect("there is room");
    }
    let mut units = 0;
    work::take_turn(&mut units, TURN_UNITS_MAX, || {
        nfsd.set_exports(Exports::default());
    });
    let max = TURN_UNITS_MAX + OPERATION_UNITS_MAX;
    assert!(units <= max, "{units} units in one turn");
    world.server.advance(1);
    assert_eq!(states(&world, &a), 0);
    world.run(&mut a, root());
    assert_eq!(a.flags, SEQ4_STATUS_ADMIN_STATE_REVOKED);
}

fn files_free(world: &mut World, client: &mut Client) -> u64 {
    let ops = root().op(arg::OP_GETATTR(GETATTR4args {
        attr_request: List::Of(&[1 << FATTR4_FILES_FREE]),
    }));
    let mut answer = world.run(client, ops);
    answer.ok(nfs_opnum4::OP_PUTROOTFH);
    answer.ok(nfs_opnum4::OP_GETATTR).with(|from| {
        let attributes = fattr4::decode(from).expect("attributes");
        let value = attributes.attr_vals.0.try_into();
        u64::from_be_bytes(value.expect("8 bytes"))
    })
}

/// Whichever comes first, the file system gets a close for each open.
#[test]
fn files_of_an_evicted_client_are_closed_while_its_export_is_removed() {
    for is_evicted_first in [false, true] {
        let mut world = World::new();
        let (mut a, mut b) = (world.client("a", 1), world.client("b", 1));
        let before = files_free(&mut world, &mut b);
        for file in 0..1000 {
            world.create(&mut a, "o", &format!("f{file}"));
        }
        watch(&mut world);
        world.server.rests = true;
        let evict = |world: &mut World| assert!(world.server.evict(a.id));
        if is_evicted_first {
            evict(&mut world);
        }
        let nfsd = &world.server.nfsd;
        work::take_turn(&mut 0, TURN_UNITS_MAX, || {
            nfsd.set_exports(Exports::default());
        });
        if !is_evicted_first {
            evict(&mut world);
        }
        world.server.rests = false;
        world.server.advance(1);
        world.server.nfsd.set_exports(exports(&world.fs, "/"));
        for file in 0..1000 {
            let removed = world.last(&mut b, root().remove(&format!("f{file}")));
            assert_eq!(removed, NFS4_OK);
        }
        assert_eq!(files_free(&mut world, &mut b), before);
    }
}

/// What happens to a client between two steps of its CLOSE ends that, and costs no other
/// client anything.
#[test]
fn close_in_steps_ends_despite_eviction_unexport_reopen_and_close() {
    type Happens = fn(&Nfsd, &State);
    let evicted: Happens = |nfsd, open| assert!(nfsd.evict(open.client));
    let unexported: Happens = |nfsd, _| nfsd.set_exports(Exports::default());
    let opened_again: Happens = |nfsd, open| {
        let again = nfsd.files.open(&OpenArgs {
            client: open.client,
            uid: 0,
            owner: &open.owner.name,
            file: open.file,
            share: ShareReservation { access: 1, deny: 0 },
            delegate: None,
            open_xor_delegation: false,
            delegates_times: false,
            must_confirm: false,
            now: 0,
        });
        assert!(matches!(again, Err(StateRefused::Status(NFS4ERR_DELAY))));
        let locked = nfsd.files.lock_first(open, b"new", first_range());
        assert!(matches!(locked, Err(StateRefused::Status(NFS4ERR_DELAY))));
        let share = ShareReservation { access: 1, deny: 0 };
        let downgraded = nfsd.files.downgrade(open, share);
        assert_eq!(downgraded, Err(NFS4ERR_DELAY));
    };
    let closed: Happens = |nfsd, open| while nfsd.files.close(open) == Ok(false) {};
    for minor in [0, 1] {
        let gone = match minor {
            0 => nfsstat4::NFS4ERR_EXPIRED,
            _ => nfsstat4::NFS4ERR_BAD_STATEID,
        };
        for (happens, comes_to) in [
            (evicted, gone),
            (unexported, nfsstat4::NFS4ERR_STALE),
            (opened_again, NFS4_OK),
            (closed, nfsstat4::NFS4ERR_BAD_STATEID),
        ] {
            let mut world = World::new();
            let mut a = world.client("a", minor);
            let (state, handle) = open(&mut world, &mut a, "f");
            let nfsd = &world.server.nfsd;
            let stateid = nfs::server::files::stateid(nfsd.server.boot(), &state);
            for owner in 0..4000_u64 {
                lock(nfsd, &state, &owner.to_be_bytes(), owner * 2);
            }
            watch(&mut world);
            let of_step = state.clone();
            let mut once = Some(());
            world.server.after_save = Some(Box::new(move |nfsd| {
                if once.take().is_some() {
                    happens(nfsd, &of_step);
                }
            }));
            let came_to = world.last(&mut a, at(&handle).close(3, stateid));
            assert_eq!(came_to, comes_to, "version 4.{minor}");
            world.server.after_save = None;
            world.server.advance(1);
            assert_eq!(states(&world, &a), 0);
            world.server.nfsd.set_exports(exports(&world.fs, "/"));
            let mut b = world.client("b", 1);
            let (stateid, handle) = world.create(&mut b, "o", "f");
            let ops = first_byte(&b, &handle, stateid);
            assert_eq!(world.last(&mut b, ops), NFS4_OK, "version 4.{minor}");
        }
    }
}

#[test]
fn lock_held_by_an_expired_client_is_delayed_and_then_granted() {
    let mut world = World::new();
    let mut b = world.client("b", 1);
    let mut a = world.client("a", 0);
    fill(&mut world, &mut a);
    world.server.advance(80 * SECOND);
    let (stateid, handle) = world.create(&mut b, "o", "f3");
    let ops = first_byte(&b, &handle, stateid);
    assert_eq!(world.last(&mut b, ops.clone()), nfsstat4::NFS4ERR_DENIED);
    world.server.advance(80 * SECOND);
    watch(&mut world);
    world.server.rests = true;
    assert_eq!(world.last(&mut b, ops.clone()), NFS4ERR_DELAY);
    // Version 3 and others see it as it is, too.
    let renew = arg::OP_RENEW(RENEW4args { clientid: a.id });
    let expired = world.last(&mut a, Ops::default().op(renew));
    assert_eq!(expired, nfsstat4::NFS4ERR_EXPIRED);
    world.server.rests = false;
    world.server.advance(1);
    assert_eq!(world.last(&mut b, ops), NFS4_OK);
    check_turns(&world);
}

/// A state that a client had before its restart is good for no call, also where it is not
/// taken away yet.
#[test]
fn states_of_before_a_client_restart_are_expired_at_once() {
    let mut world = World::new();
    let mut b = world.client("b", 1);
    let mut a = world.client("a", 0);
    let (state, handle) = fill(&mut world, &mut a);
    let stateid = nfs::server::files::stateid(world.server.nfsd.server.boot(), &state);
    let write = at(&handle).write(stateid, 0, b"x");
    assert_eq!(world.last(&mut a, write.clone()), NFS4_OK);
    watch(&mut world);
    world.server.rests = true;
    world.verifier = *b"came new";
    let mut again = world.client("a", 0);
    assert!(!state.is_over(), "it is not taken away yet");
    // By the connection that knows the state, and by another one.
    for conn in [a.conn, again.conn] {
        again.conn = conn;
        let refused = world.last(&mut again, write.clone());
        assert_eq!(refused, nfsstat4::NFS4ERR_EXPIRED);
    }
    // What denies is in the way of others until it is gone.
    let denied = world.last(&mut b, at(&handle).write(ANONYMOUS, 0, b"y"));
    assert_eq!(denied, NFS4_OK, "no open denies it");
    world.server.rests = false;
    world.server.advance(1);
    assert!(state.is_over());
    check_turns(&world);
}

#[test]
fn close_of_an_open_with_locks_of_16300_owners_goes_in_steps() {
    for minor in [0, 1] {
        let mut world = World::new();
        let mut a = world.client("a", minor);
        let mut b = world.client("b", 1);
        let (state, handle) = open(&mut world, &mut a, "f");
        let nfsd = &world.server.nfsd;
        let stateid = nfs::server::files::stateid(nfsd.server.boot(), &state);
        for owner in 0..OWNERS {
            lock(nfsd, &state, &owner.to_be_bytes(), owner * 2);
        }
        watch(&mut world);
        for _ in 0..=u32::from(minor == 0) {
            // Once more is answered as before, where owners number what they ask.
            assert_eq!(world.last(&mut a, at(&handle).close(3, stateid)), NFS4_OK);
        }
        check_turns(&world);
        assert_eq!(states(&world, &a), 0);
        let (stateid, handle) = world.create(&mut b, "o", "f");
        let ops = first_byte(&b, &handle, stateid);
        assert_eq!(world.last(&mut b, ops), NFS4_OK);
    }
}

#[test]
fn lock_owner_of_30000_files_is_released_in_steps() {
    let mut world = World::new();
    let mut a = world.client("a", 0);
    let nfsd = &world.server.nfsd;
    for file in 1000..31_000 {
        let state = open_elsewhere(nfsd, a.id, b"o", (8, file));
        let lock = lock(nfsd, &state, b"l", 0);
        nfsd.files
            .unlock(&lock, Range::new(0, 1).expect("a range"))
            .expect("held");
    }
    watch(&mut world);
    let release = Ops::default().op(arg::OP_RELEASE_LOCKOWNER(RELEASE_LOCKOWNER4args {
        lock_owner: state_owner4 {
            clientid: a.id,
            owner: Opaque(b"l"),
        },
    }));
    assert_eq!(world.last(&mut a, release), NFS4_OK);
    check_turns(&world);
    assert_eq!(world.server.nfsd.files.counts(a.id), [30_000, 0, 0, 0]);
}

#[test]
fn opens_that_were_never_confirmed_are_closed_in_steps() {
    let mut world = World::new();
    let a = world.client("a", 0);
    let mut b = world.client("b", 1);
    for n in 0..4 {
        world.file(&mut b, &format!("f{n}"));
    }
    watch(&mut world);
    for n in 0..4 {
        let name = format!("f{n}");
        let args = OPEN4args {
            seqid: n,
            ..opening(&a, "o", &name)
        };
        world.open(&mut a.clone(), args).expect("it is there");
    }
    let counts = world.server.nfsd.files.counts(a.id);
    assert_eq!(
        counts,
        [1, 0, 0, 0],
        "an owner has one open that is not confirmed"
    );
}

#[test]
fn owners_that_are_idle_are_forgotten_in_steps() {
    let mut world = World::new();
    let a = world.client("a", 0);
    let nfsd = &world.server.nfsd;
    for owner in 0..60_000_u64 {
        let name = owner.to_be_bytes();
        let owner = nfsd.files.admit_owner(a.id, OwnerKind::Open, &name, 0);
        owner.expect("there is room");
    }
    watch(&mut world);
    let renewed = world.server.nfsd.server.renew(a.id, 100 * SECOND);
    renewed.expect("it is there");
    for _ in 0..200 {
        world.server.advance(2 * SECOND);
        let now = world.server.now();
        world
            .server
            .nfsd
            .server
            .renew(a.id, now)
            .expect("it is there");
    }
    check_turns(&world);
    let found = |owner: u64| {
        let files = &world.server.nfsd.files;
        files.find_owner(a.id, OwnerKind::Open, &owner.to_be_bytes())
    };
    assert!((0..60_000).all(|owner| found(owner).is_none()));
}

/// A file that many clients have a delegation of is written: all are asked for it in one
/// operation, and there are not more than that takes.
#[test]
fn write_of_a_file_that_2000_clients_read_recalls_a_bounded_number() {
    let mut world = World::new();
    let mut b = world.client("b", 1);
    world.file(&mut b, "f");
    let mut delegations = 0;
    for number in 0..2000 {
        let mut reader = world.client(&format!("reader {number}"), 1);
        let args = opening(&reader.clone(), "o", "f");
        let opened = world.open(&mut reader, args).expect("it is there");
        delegations += u32::from(opened.delegation.is_some());
    }
    assert_eq!(delegations, 1024);
    watch(&mut world);
    let args = OPEN4args {
        share_access: WRITE,
        ..opening(&b, "o", "f")
    };
    assert_eq!(world.open(&mut b, args).unwrap_err(), NFS4ERR_DELAY);
    assert_eq!(world.open(&mut b, args).unwrap_err(), NFS4ERR_DELAY);
    // None of them answers: they are asked again, and lose it.
    for _ in 0..300 {
        world.server.advance(SECOND);
    }
    assert!(!world.server.nfsd.files.has_delegations());
    let dearest = world.server.dearest_turn;
    let all = 1024 * 12;
    assert!(
        dearest <= TURN_UNITS_MAX + all,
        "{dearest} units in one turn"
    );
    world.open(&mut b, args).expect("no client has it");
}

/// How many recalls a client gets that answers each of them.
fn recalls_heard(world: &mut World, client: &Client) -> usize {
    let mut recalled = 0;
    loop {
        let called = world.called(client.conn);
        if called.is_empty() {
            return recalled;
        }
        recalled += called.len();
        for called in called {
            world.answer(client, &called, nfs_cb_opnum4::OP_CB_RECALL, NFS4_OK);
        }
    }
}

/// What is to be said to a client waits for a slot of its own sessions, and is said as
/// soon as there is one.
#[test]
fn client_with_3000_delegations_is_asked_for_all_as_fast_as_it_answers() {
    let mut world = World::new();
    let (mut a, mut b) = (world.client("a", 1), world.client("b", 1));
    let mut handles = Vec::new();
    for file in 0..3000 {
        let name = format!("f{file}");
        handles.push(world.file(&mut b, &name));
        let args = opening(&a, "o", &name);
        let opened = world.open(&mut a.clone(), args);
        a.sequence += 1;
        assert!(opened.expect("it is there").delegation.is_some());
    }
    watch(&mut world);
    for handle in &handles {
        let delayed = world.last(&mut b, at(handle).write(ANONYMOUS, 0, b"x"));
        assert_eq!(delayed, NFS4ERR_DELAY);
    }
    let recalled = recalls_heard(&mut world, &a);
    assert_eq!(recalled, handles.len(), "without waiting for anything else");
    check_turns(&world);
}

/// Callbacks that wait for one client do not keep those to others from going out.
#[test]
fn client_that_answers_nothing_takes_no_room_from_calls_to_others() {
    let mut world = World::new();
    let (mut a, mut b, deaf) = (
        world.client("a", 1),
        world.client("b", 1),
        world.client("deaf", 1),
    );
    let (state, handle) = open(&mut world, &mut b, "locked");
    for _ in 0..260 {
        let files = &world.server.nfsd.files;
        let held = lock(&world.server.nfsd, &state, b"holder", 0);
        for owner in 0..256_u64 {
            let waiter = Waiter {
                client: deaf.id,
                owner: owner.to_be_bytes()[..].into(),
                handle: handle[..].into(),
            };
            files.wait_for_lock(held.file, waiter, first_range());
        }
        let unlocked = files.unlock(&held, first_range().range);
        unlocked.expect("it is held");
        // The tick notifies the waiters.
        world.server.advance(1);
    }
    let mut handles = Vec::new();
    for file in 0..20 {
        let name = format!("f{file}");
        handles.push(world.file(&mut b, &name));
        let args = opening(&a, "o", &name);
        let opened = world.open(&mut a.clone(), args);
        a.sequence += 1;
        assert!(opened.expect("it is there").delegation.is_some());
    }
    for handle in &handles {
        let delayed = world.last(&mut b, at(handle).write(ANONYMOUS, 0, b"x"));
        assert_eq!(delayed, NFS4ERR_DELAY);
    }
    assert_eq!(recalls_heard(&mut world, &a), handles.len());
    assert_eq!(world.called(deaf.conn).len(), 4, "as many as it has slots");
}
