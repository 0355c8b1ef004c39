//! Copies that go on after they were answered.

use wire::nfs4::*;
use wire::xdr::{Decode, Encode, List, Opaque};

use crate::world::*;
use nfs_argop4 as arg;
use nfsstat4::NFS4_OK;

const MIB: u64 = 1 << 20;

/// A client with a file of so many MiB, and an empty one; COPY of it all.
fn large(world: &mut World, mib: u64) -> (Client, Vec<u8>, COPY4args<'static>, Ops) {
    let mut a = world.client("a", 2);
    let (source, from) = world.create(&mut a, "o", "from");
    let (target, to) = world.create(&mut a, "o", "to");
    for at_mib in 0..mib {
        let data = vec![at_mib as u8 + 1; MIB as usize];
        let ops = at(&from).write(source, at_mib * MIB, &data);
        assert_eq!(world.last(&mut a, ops), NFS4_OK);
    }
    let args = COPY4args {
        ca_src_stateid: source,
        ca_dst_stateid: target,
        ca_src_offset: 0,
        ca_dst_offset: 0,
        ca_count: 0,
        ca_consecutive: true,
        ca_synchronous: false,
        ca_source_server: List::Of(&[]),
    };
    let object = Opaque(&to);
    let places = at(&from)
        .op(arg::OP_SAVEFH)
        .op(arg::OP_PUTFH(PUTFH4args { object }));
    (a, to.clone(), args, places)
}

/// What COPY came to: its callback, and how many bytes.
#[track_caller]
fn copy(
    world: &mut World,
    client: &mut Client,
    places: &Ops,
    args: COPY4args<'_>,
) -> (Option<stateid4>, u64) {
    let mut answer = world.run(client, places.clone().op(arg::OP_COPY(args)));
    answer
        .ok(nfs_opnum4::OP_PUTFH)
        .ok(nfs_opnum4::OP_SAVEFH)
        .ok(nfs_opnum4::OP_PUTFH)
        .ok(nfs_opnum4::OP_COPY);
    answer.with(|from| {
        let resok = COPY4resok::decode(from).expect("a response");
        let callback = resok.cr_response.wr_callback_id.iter().next();
        let is_synchronous = resok.cr_requirements.cr_synchronous;
        assert_eq!(callback.is_none(), is_synchronous);
        (callback, resok.cr_response.wr_count)
    })
}

fn offload(handle: &[u8], oa_stateid: stateid4, is_cancel: bool) -> Ops {
    let args = OFFLOAD4args { oa_stateid };
    at(handle).op(match is_cancel {
        true => arg::OP_OFFLOAD_CANCEL(args),
        false => arg::OP_OFFLOAD_STATUS(args),
    })
}

#[test]
fn a_large_copy_is_told_of_when_it_has_ended() {
    let mut world = World::new();
    let (mut a, to, args, places) = large(&mut world, 20);
    let (callback, copied) = {
        world.send_quietly = true;
        copy(&mut world, &mut a, &places, args)
    };
    let callback = callback.expect("it is large");
    assert_eq!(copied, 0);
    let called = world.called_meanwhile(a.conn);
    let mut expected = Vec::new();
    nfs_cb_argop4::OP_CB_OFFLOAD(CB_OFFLOAD4args {
        coa_fh: Opaque(&to),
        coa_stateid: callback,
        coa_offload_info: offload_info4::NFS4_OK(write_response4 {
            wr_callback_id: List::Of(&[]),
            wr_count: 20 * MIB,
            wr_committed: stable_how4::UNSTABLE4,
            wr_writeverf: store::fs::FileSystem::info(&*world.fs)
                .verifier
                .to_be_bytes(),
        }),
    })
    .encode(&mut expected);
    assert_eq!((called.len(), &called[0].op), (1, &expected));
    let mut answer = world.run(&mut a, offload(&to, callback, false));
    answer
        .ok(nfs_opnum4::OP_PUTFH)
        .ok(nfs_opnum4::OP_OFFLOAD_STATUS);
    let (bytes, complete): (u64, u32) = (answer.get(), answer.get());
    assert_eq!((bytes, complete, answer.get()), (20 * MIB, 1, NFS4_OK));
    // It is known until the client has answered CB_OFFLOAD.
    world.answer(&a, &called[0], nfs_cb_opnum4::OP_CB_OFFLOAD, NFS4_OK);
    let over = world.last(&mut a, offload(&to, callback, false));
    assert_eq!(over, nfsstat4::NFS4ERR_BAD_STATEID);
    let mut answer = world.run(
        &mut a,
        at(&to).op(arg::OP_READ(READ4args {
            stateid: args.ca_dst_stateid,
            offset: 19 * MIB - 1,
            count: 2,
        })),
    );
    answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_READ);
    let (_, len, bytes): (bool, u32, [u8; 4]) = (answer.get(), answer.get(), answer.get());
    assert_eq!((len, bytes), (2, [19, 20, 0, 0]));
}

#[test]
fn a_copy_is_cancelled_once() {
    let mut world = World::new();
    let (mut a, to, args, places) = large(&mut world, 20);
    world.send_quietly = true;
    let (callback, _) = copy(&mut world, &mut a, &places, args);
    let callback = callback.expect("it is large");
    world.called_meanwhile(a.conn);
    assert_eq!(world.last(&mut a, offload(&to, callback, true)), NFS4_OK);
    for is_cancel in [true, false] {
        let over = world.last(&mut a, offload(&to, callback, is_cancel));
        assert_eq!(over, nfsstat4::NFS4ERR_BAD_STATEID);
    }
    let other = offload(&to, args.ca_dst_stateid, true);
    let bad = world.last(&mut a, other);
    assert_eq!(bad, nfsstat4::NFS4ERR_BAD_STATEID, "that is an open");
}

#[test]
fn small_or_synchronous_copies_are_answered_when_they_are_done() {
    let mut world = World::new();
    let (mut a, _, args, places) = large(&mut world, 3);
    assert_eq!(copy(&mut world, &mut a, &places, args), (None, 3 * MIB));
    let part = COPY4args {
        ca_synchronous: true,
        ca_src_offset: 2 * MIB,
        ca_count: MIB,
        ..args
    };
    assert_eq!(copy(&mut world, &mut a, &places, part), (None, MIB));
    // From another server; by an open that may not write.
    let elsewhere = [netloc4::NL4_NAME(Opaque(b"other"))];
    let from_elsewhere = COPY4args {
        ca_source_server: List::Of(&elsewhere),
        ..args
    };
    let refused = places.clone().op(arg::OP_COPY(from_elsewhere));
    let status = world.last(&mut a, refused);
    assert_eq!(status, nfsstat4::NFS4ERR_NOTSUPP);
    let opened = {
        let args = OPEN4args {
            share_access: READ | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
            ..opening(&a, "r", "to")
        };
        world.open(&mut a, args).unwrap()
    };
    let reading = COPY4args {
        ca_dst_stateid: opened.stateid,
        ..args
    };
    let status = world.last(&mut a, places.clone().op(arg::OP_COPY(reading)));
    assert_eq!(status, nfsstat4::NFS4ERR_OPENMODE);
}
