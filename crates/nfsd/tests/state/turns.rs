//! Clients with as much as they may have: whatever is done with it in a turn has a
//! bound, and the rest goes on in the next one.

use std::sync::Arc;

use machine::work::TURN_UNITS_MAX;
use nfs::server::files::{LockArgs, OpenArgs, OwnerKind, Share, State};
use nfs::server::locks::Range;
use nfsd::Nfsd;
use wire::nfs4::*;
use wire::xdr::Opaque;

use crate::world::*;
use nfs_argop4 as arg;
use nfsstat4::{NFS4_OK, NFS4ERR_DELAY};

/// Lock owners in each of so many files: more than 65,000 states of one client.
const FILES: u64 = 4;
const OWNERS: u64 = 16_300;
/// What an operation costs beyond the share that its turn had left.
const STEP_UNITS_MAX: u64 = 2048;

/// An open of a file of a file system that is none of this server's.
fn open_elsewhere(nfsd: &Nfsd, client: u64, owner: &[u8], file: u64) -> Arc<State> {
    let opened = nfsd.files.open(&OpenArgs {
        client,
        uid: 0,
        owner,
        file: (8, file),
        share: Share { access: 3, deny: 0 },
        delegate: None,
        must_confirm: false,
        now: 0,
    });
    opened.expect("nobody denies anything").state
}

/// A file that a client has open, and its handle.
fn open(world: &mut World, client: &mut Client, name: &str) -> (Arc<State>, Vec<u8>) {
    let args = OPEN4args {
        seqid: 1,
        share_access: BOTH,
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

fn lock(nfsd: &Nfsd, open: &State, owner: &[u8], start: u64) -> Arc<State> {
    let args = LockArgs {
        range: Range::new(start, 1).expect("a range"),
        is_exclusive: true,
    };
    let locked = nfsd.files.lock_first(open, owner, args);
    locked.expect("nobody has a lock there").0
}

/// A client has locks in some files, by very many owners. The state of the lock of the
/// first byte of the first file, and the handle of that.
fn fill(world: &mut World, client: &mut Client) -> (Arc<State>, Vec<u8>) {
    let mut first = None;
    for file in 0..FILES {
        let (state, handle) = open(world, client, &format!("f{file}"));
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
fn client_that_comes_again_loses_65000_states_in_steps() {
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
fn client_whose_time_is_over_loses_65000_states_in_steps() {
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

#[test]
fn lock_in_the_way_of_which_the_lease_has_run_out_is_delayed_and_then_had() {
    let mut world = World::new();
    let mut b = world.client("b", 1);
    let mut a = world.client("a", 0);
    fill(&mut world, &mut a);
    world.server.advance(80 * SECOND);
    let (stateid, handle) = world.create(&mut b, "o", "f0");
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

/// Of what a client had before it came again, nothing lets anybody in, also where it is
/// not taken away yet.
#[test]
fn states_of_before_are_good_for_nothing_at_once() {
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
    assert_eq!(denied, NFS4_OK, "nobody denies it");
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
        let state = open_elsewhere(nfsd, a.id, b"o", file);
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
    world.open(&mut b, args).expect("nobody has it");
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
    let mut recalled = 0;
    loop {
        let called = world.called(a.conn);
        if called.is_empty() {
            break;
        }
        recalled += called.len();
        for called in called {
            world.answer(&a, &called, nfs_cb_opnum4::OP_CB_RECALL, NFS4_OK);
        }
    }
    assert_eq!(recalled, handles.len(), "without waiting for anything else");
    check_turns(&world);
}
