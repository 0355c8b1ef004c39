//! What many clients cost: each on a connection of its own, with a session, a
//! file open, a lock in it and an answer that is kept. What connections hold that
//! say nothing.

use wire::nfs4::*;

use crate::world::*;
use mem::counters;
use nfs_argop4 as arg;

/// Of 10,000 clients that are to fit into 256 MiB, some.
const CLIENTS: u64 = 1_000;
const EACH_BYTES_MAX: u64 = (256 << 20) / 10_000;

#[test]
fn a_client_with_an_open_and_a_lock_costs_bounded_memory() {
    let mut world = World::new();
    let mut add = |number: u64| {
        let mut client = world.client(&format!("a client with a usual name, {number}"), 2);
        let (stateid, handle) = world.create(&mut client, "owner", "file");
        let ops = at(&handle).op(arg::OP_LOCK(LOCK4args {
            offset: number,
            length: 1,
            ..locking(&client, "lock owner", stateid)
        }));
        assert_eq!(world.last(&mut client, ops), nfsstat4::NFS4_OK);
        let counts = world.server.nfsd.files.counts(client.id);
        assert_eq!(counts, [1, 1, 0, 0]);
    };
    // What the first cost is of the server.
    (0..100).for_each(&mut add);
    let before = counters::here().held_bytes;
    (100..100 + CLIENTS).for_each(add);
    let each = (counters::here().held_bytes - before) as u64 / CLIENTS;
    assert!(each > 1000, "it is counted");
    assert!(each <= EACH_BYTES_MAX, "{each} bytes a client");
    println!("{each} bytes a client");
}
