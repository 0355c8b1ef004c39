//! The machine of a connection of a server, driven by hand.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use doubles::fuzz::nfs_connection;
use doubles::nfs::RpcDouble;
use machine::Machine;
use nfs::connection::*;
use proptest::prelude::*;
use random::Random;
use testkit::nfs::call::{
    CompoundPart, call_header, call_header_as, call_header_of, compound, cut, record, write3,
};
use wire::mount3::mount_proc3;
use wire::nfs3::{nfs_proc3, nfsacl_proc3};
use wire::nfs4::NFS4_PROGRAM;
use wire::rpc::{RPCSEC_GSS, accept_stat, auth_stat, call_body};
use wire::xdr::{Decode, Encode, Opaque, Reader};

fn server(settings: RpcServerSettings) -> RpcDouble {
    RpcDouble::new(Connection::new(settings, 0))
}

fn whole(bytes: &[u8]) -> Vec<u8> {
    record(bytes, || usize::MAX)
}

fn call(xid: u32, parts: &[CompoundPart]) -> Vec<u8> {
    let mut bytes = call_header(xid, |_| {});
    bytes.extend(compound(parts).0);
    bytes
}

fn drain(server: &mut RpcDouble, stream: &mut VecDeque<u8>, max: usize) {
    while server.receive(stream, max) {}
    server.take_ops();
}

fn sent(server: &mut RpcDouble) -> Vec<Vec<u8>> {
    let mut out = VecDeque::new();
    while server.end.machine.has_transmit() {
        server.end.transmit(&mut out, 1);
    }
    cut(&mut out)
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |word: &[u8]| u32::from_be_bytes(word.try_into().unwrap());
    bytes.chunks(4).map(word).collect()
}

#[test]
fn wrong_call_headers_are_refused_with_the_status_of_the_standard() {
    type Change = fn(&mut call_body<'_>);
    const MOUNT: u32 = 100_005;
    fn to(call: &mut call_body<'_>, prog: u32, vers: u32, proc: u32) {
        (call.prog, call.vers, call.proc) = (prog, vers, proc);
    }
    let cases: [(Change, &[u32]); 19] = [
        (|call| call.rpcvers = 3, &[1, 0, 2, 2]),
        (|call| call.prog = 400_000, &[0, 0, 0, 1]),
        (|call| call.vers = 2, &[0, 0, 0, 2, 3, 4]),
        (|call| call.vers = 5, &[0, 0, 0, 2, 3, 4]),
        (|call| call.proc = 2, &[0, 0, 0, 3]),
        (|call| call.proc = 0, &[0, 0, 0, 0]),
        (|call| to(call, NFS4_PROGRAM, 3, 0), &[0, 0, 0, 0]),
        (|call| to(call, NFS4_PROGRAM, 3, 22), &[0, 0, 0, 3]),
        (|call| to(call, NFS4_PROGRAM, 3, u32::MAX), &[0, 0, 0, 3]),
        // A WRITE of NFSv3 that ends before its data does.
        (|call| to(call, NFS4_PROGRAM, 3, 7), &[0, 0, 0, 4]),
        (|call| to(call, MOUNT, 1, 0), &[0, 0, 0, 2, 3, 3]),
        (|call| to(call, MOUNT, 2, 1), &[0, 0, 0, 2, 3, 3]),
        (|call| to(call, MOUNT, 4, 1), &[0, 0, 0, 2, 3, 3]),
        (|call| to(call, MOUNT, 3, 0), &[0, 0, 0, 0]),
        (|call| to(call, MOUNT, 3, 6), &[0, 0, 0, 3]),
        (
            |call| call.cred.flavor = RPCSEC_GSS,
            &[1, 1, auth_stat::AUTH_BADCRED as u32],
        ),
        (
            |call| call.cred.body = Opaque(&[0; 4]),
            &[1, 1, auth_stat::AUTH_BADCRED as u32],
        ),
        (
            |call| call.verf.flavor = 1,
            &[1, 1, auth_stat::AUTH_BADVERF as u32],
        ),
        // A COMPOUND whose header is cut.
        (|_| {}, &[0, 0, 0, 4]),
    ];
    for step in [1, 7, usize::MAX] {
        let mut server = server(RpcServerSettings::default());
        let mut stream = VecDeque::new();
        for (index, (change, _)) in cases.iter().enumerate() {
            let mut bytes = call_header(index as u32, change);
            bytes.extend([0; 8]);
            stream.extend(whole(&bytes));
        }
        drain(&mut server, &mut stream, step);
        assert!(server.calls.is_empty() && server.fatal.is_none());
        let answers = sent(&mut server);
        assert_eq!(answers.len(), cases.len());
        for (index, (_, expected)) in cases.iter().enumerate() {
            let mut all = vec![index as u32, 1];
            all.extend(*expected);
            assert_eq!(words(&answers[index]), all, "case {index}");
        }
    }
}

#[test]
fn a_credential_longer_than_400_bytes_is_refused() {
    let mut bytes = call_header(9, |_| {});
    bytes[28..32].copy_from_slice(&401u32.to_be_bytes());
    let mut server = server(RpcServerSettings::default());
    drain(&mut server, &mut whole(&bytes).into(), usize::MAX);
    assert_eq!(words(&sent(&mut server)[0]), [9, 1, 1, 1, 1]);
}

#[test]
fn the_credential_of_a_call_is_read() {
    let mut sys = Vec::new();
    wire::rpc::authsys_parms {
        stamp: 1,
        machinename: Opaque(b"m"),
        uid: 1000,
        gid: 100,
        gids: wire::xdr::List::Of(&[4, 5]),
    }
    .encode(&mut sys);
    let mut bytes = call_header_as(1, &sys, |_| {});
    bytes.extend(compound(&[]).0);
    let mut server = server(RpcServerSettings::default());
    drain(&mut server, &mut whole(&bytes).into(), usize::MAX);
    let call = server.end.machine.call(server.calls[0].0);
    assert_eq!(*call.credential, Credential::sys(1000, 100, [4, 5]));
    assert_eq!(call.credential.gids(), [4, 5]);
    assert_eq!(call.record_bytes, bytes.len() as u32);
}

/// What a call has in common with the last one is not read again, and what
/// differs is: whatever the credential, however the bytes come.
#[test]
fn calls_that_begin_alike_are_told_apart() {
    let of = |xid: u32, uid: u32, gids: &[u32], parts: &[CompoundPart]| {
        let mut sys = Vec::new();
        wire::rpc::authsys_parms {
            stamp: 1,
            machinename: Opaque(b"m"),
            uid,
            gid: 7,
            gids: wire::xdr::List::Of(gids),
        }
        .encode(&mut sys);
        let mut bytes = call_header_as(xid, &sys, |_| {});
        bytes.extend(compound(parts).0);
        bytes
    };
    let put = [
        CompoundPart::Put(vec![4; 24]),
        CompoundPart::Write(8, vec![5; 9]),
        CompoundPart::Getattr(vec![1]),
    ];
    let calls: [(u32, &[u32], &[CompoundPart]); 6] = [
        (1, &[2], &put),
        (1, &[2], &put),
        (1, &[2], &[]),
        (2, &[2], &put),
        (2, &[2, 3], &put),
        (2, &[2, 3], &put),
    ];
    for step in [1, 7, 64, 200, usize::MAX] {
        let mut server = server(RpcServerSettings::default());
        let mut stream = VecDeque::new();
        for (xid, (uid, gids, parts)) in (0..).zip(calls) {
            stream.extend(whole(&of(xid, uid, gids, parts)));
        }
        drain(&mut server, &mut stream, step);
        assert_eq!(server.calls.len(), calls.len());
        for (at, (uid, gids, parts)) in calls.iter().enumerate() {
            let (tag, seen) = &server.calls[at];
            let call = server.end.machine.call(*tag);
            let expected = Credential::sys(*uid, 7, gids.iter().copied());
            assert_eq!((call.xid, call.credential), (at as u32, &expected));
            assert_eq!(call.procedure, Procedure::Compound);
            assert_eq!(seen.args, compound(parts).1);
            assert_eq!(seen.ops, (parts.len() as u32, Stop::End));
        }
    }
}

#[test]
fn other_procedures_come_with_all_their_arguments() {
    let proc3 = |number: u32| nfs_proc3::decode(&mut Reader::new(&number.to_be_bytes())).unwrap();
    let mount = |number: u32| mount_proc3::decode(&mut Reader::new(&number.to_be_bytes())).unwrap();
    let mut expected = Vec::new();
    for number in (1..=21).filter(|number| *number != 7) {
        expected.push(((NFS4_PROGRAM, 3, number), Procedure::Nfs3(proc3(number))));
    }
    for number in 1..=5 {
        expected.push(((100_005, 3, number), Procedure::Mount3(mount(number))));
    }
    for (number, procedure) in [
        (1, nfsacl_proc3::ACLPROC3_GETACL),
        (2, nfsacl_proc3::ACLPROC3_SETACL),
    ] {
        expected.push(((100_227, 3, number), Procedure::Acl3(procedure)));
    }
    for (step, fragment) in [(1, 5), (usize::MAX, usize::MAX), (7, 64)] {
        let mut server = server(RpcServerSettings::default());
        let mut stream = VecDeque::new();
        for (xid, (which, _)) in expected.iter().enumerate() {
            let mut bytes = call_header_of(xid as u32, *which);
            bytes.extend([xid as u8; 44]);
            stream.extend(record(&bytes, || fragment));
        }
        drain(&mut server, &mut stream, step);
        assert_eq!(server.calls.len(), expected.len());
        for (xid, (_, procedure)) in expected.iter().enumerate() {
            let (tag, seen) = &server.calls[xid];
            let call = server.end.machine.call(*tag);
            assert_eq!(call.procedure, *procedure);
            assert_eq!(seen.args, [xid as u8; 44]);
            assert_eq!((seen.ops, seen.data.len()), ((0, Stop::End), 0));
        }
    }
}

#[test]
fn data_of_a_write_of_version_3_goes_to_its_memory() {
    let data: Vec<u8> = (0..100_001).map(|byte| byte as u8).collect();
    for (step, fragment) in [(3, 1000), (3000, usize::MAX), (usize::MAX, usize::MAX)] {
        let mut server = server(RpcServerSettings {
            fragments_max: u32::MAX,
            ..RpcServerSettings::default()
        });
        let mut stream: VecDeque<u8> =
            record(&write3(1, b"handle", 77, &data).0, || fragment).into();
        stream.extend(whole(&write3(2, &[9; 64], 5, b"").0));
        stream.extend(whole(&call(3, &[])));
        drain(&mut server, &mut stream, step);
        let all: Vec<_> = server.calls.iter().map(|(_, seen)| seen.clone()).collect();
        assert_eq!(all[0].args, write3(1, b"handle", 77, &data).1);
        assert_eq!(
            (all[0].ops, &all[0].data),
            ((1, Stop::End), &vec![Some(data.clone())])
        );
        assert_eq!((all[1].ops, &all[1].data), ((1, Stop::End), &vec![None]));
        assert_eq!(all[2].xid, 3);
        assert_eq!(server.places, [(77, Some(b"handle".to_vec()))]);
        if step == 3000 {
            assert!(
                server.end.placed_bytes < 4 * 3000,
                "only what came with the header is copied"
            );
        }
    }
}

/// As long as what was there of it may be, but not what it says.
#[test]
fn a_write_of_version_3_with_wrong_lengths_is_answered() {
    let settings = RpcServerSettings {
        io_bytes_max: 64,
        ..RpcServerSettings::default()
    };
    let good = |len: usize| write3(1, b"handle..", 0, &vec![1; len]).0;
    let change = |at_end: usize, to: u32| {
        let mut bytes = good(8);
        let at = bytes.len() - at_end;
        bytes[at..at + 4].copy_from_slice(&to.to_be_bytes());
        bytes
    };
    // Which: data, its length before it, and before that `stable` and `count`.
    let garbage = [change(12, 7), change(16, 3), change(20, 9)];
    for bytes in garbage {
        for step in [1, usize::MAX] {
            let mut server = server(settings);
            let mut stream: VecDeque<u8> = whole(&bytes).into();
            stream.extend(whole(&call(2, &[])));
            drain(&mut server, &mut stream, step);
            assert_eq!(server.calls.len(), 1);
            assert_eq!(words(&sent(&mut server)[0]), [1, 1, 0, 0, 0, 4]);
        }
    }
    let mut long = good(8);
    let at = long.len();
    long[at - 12..at - 8].copy_from_slice(&12u32.to_be_bytes());
    long[at - 20..at - 16].copy_from_slice(&12u32.to_be_bytes());
    for (bytes, stop) in [(good(65), Stop::TooLarge), (long, Stop::BadXdr)] {
        for step in [1, usize::MAX] {
            let mut server = server(settings);
            let mut stream: VecDeque<u8> = whole(&bytes).into();
            stream.extend(whole(&call(2, &[])));
            drain(&mut server, &mut stream, step);
            assert_eq!(server.calls[0].1.ops, (0, stop));
            assert_eq!(server.calls[1].1.xid, 2);
        }
    }
}

#[test]
fn calls_may_be_refused_by_their_executor() {
    let mut server = server(RpcServerSettings::default());
    let parts = [
        CompoundPart::Write(0, vec![1; 10]),
        CompoundPart::Write(0, vec![2; 10]),
    ];
    let mut stream = VecDeque::new();
    for xid in 1..=4 {
        stream.extend(whole(&call(xid, &parts)));
    }
    drain(&mut server, &mut stream, usize::MAX);
    let tags: Vec<_> = server.calls.drain(..).map(|(tag, _)| tag).collect();
    let machine = &mut server.end.machine;
    assert_eq!(machine.executing(), 4);
    // What was appended already does not go out.
    machine.reply(tags[1]).bytes().extend([7; 100]);
    machine.send_denied(tags[1], auth_stat::AUTH_TOOWEAK);
    machine.send_status(tags[0], accept_stat::GARBAGE_ARGS);
    machine.send_status(tags[3], accept_stat::SYSTEM_ERR);
    assert_eq!(machine.executing(), 1);
    let answers = sent(&mut server);
    let expected: [&[u32]; 3] = [
        &[2, 1, 1, 1, auth_stat::AUTH_TOOWEAK as u32],
        &[1, 1, 0, 0, 0, accept_stat::GARBAGE_ARGS as u32],
        &[4, 1, 0, 0, 0, accept_stat::SYSTEM_ERR as u32],
    ];
    assert_eq!(answers.len(), expected.len());
    for (answer, expected) in answers.iter().zip(expected) {
        assert_eq!(words(answer), expected);
    }
    // All their tags are free, those of the data too, and used again.
    assert_eq!(server.end.released.len(), 6);
    let before = server.end.machine.tags_max();
    let mut stream: VecDeque<u8> = whole(&call(5, &parts)).into();
    drain(&mut server, &mut stream, usize::MAX);
    assert_eq!(server.end.machine.tags_max(), before);
    // The one that is left can still be answered, and nothing after the end.
    server
        .end
        .machine
        .send_status(tags[2], accept_stat::SYSTEM_ERR);
    assert_eq!(words(&sent(&mut server)[0])[..2], [3, 1]);
    let last = server.calls[0].0;
    drain(
        &mut server,
        &mut vec![0, 0, 0, 0, 0x80, 0, 0, 1, 0].into(),
        usize::MAX,
    );
    assert_eq!(server.fatal, Some(RpcServerFatalError::NoMessage));
    server
        .end
        .machine
        .send_denied(last, auth_stat::AUTH_TOOWEAK);
    assert!(!server.end.machine.has_transmit());
}

#[test]
fn a_call_may_be_dropped_without_an_answer() {
    let mut server = server(RpcServerSettings::default());
    let mut stream: VecDeque<u8> = whole(&call(1, &[])).into();
    stream.extend(whole(&call(2, &[])));
    drain(&mut server, &mut stream, usize::MAX);
    let machine = &mut server.end.machine;
    let (first, second) = (server.calls[0].0, server.calls[1].0);
    machine.drop_call(first);
    assert!(machine.executing() == 1 && !machine.has_transmit());
    machine.send(second);
    assert_eq!(sent(&mut server).len(), 1);
    drain(&mut server, &mut whole(&call(3, &[])).into(), usize::MAX);
    assert_eq!(server.end.machine.tags_max(), 2, "its tag is free");
}

/// Where a COMPOUND ends early, and why.
#[test]
fn operations_end_at_the_first_that_cannot_be_read() {
    let put = CompoundPart::Put(vec![1; 5]);
    let raw =
        |words: &[u32]| CompoundPart::Raw(words.iter().flat_map(|w| w.to_be_bytes()).collect());
    let settings = RpcServerSettings {
        ops_max: 3,
        writes_max: 2,
        io_bytes_max: 64,
        ..RpcServerSettings::default()
    };
    let write = |len| CompoundPart::Write(0, vec![9; len]);
    let cases = [
        (vec![put.clone(), put.clone()], (2, Stop::End)),
        (vec![put.clone(), raw(&[50, 1])], (1, Stop::Unsupported)),
        (vec![raw(&[77_777])], (0, Stop::BadXdr)),
        (vec![put.clone(), raw(&[22, 129])], (1, Stop::BadXdr)),
        // The record ends within the operation.
        (vec![put.clone(), raw(&[22, 8, 1])], (1, Stop::BadXdr)),
        (vec![put.clone(), raw(&[])], (1, Stop::BadXdr)),
        (vec![put.clone(); 4], (3, Stop::TooMany)),
        (vec![write(1), write(2), write(3)], (2, Stop::TooMany)),
        (vec![write(60), write(5)], (1, Stop::TooLarge)),
        (vec![raw(&[38, 1, 7, 7, 7, 0, 0, 0, 60])], (0, Stop::BadXdr)),
    ];
    for (index, (parts, expected)) in cases.iter().enumerate() {
        for step in [1, 5, usize::MAX] {
            for fragment in [3, usize::MAX] {
                let mut server = server(settings);
                let mut stream: VecDeque<u8> = record(&call(1, parts), || fragment).into();
                stream.extend(whole(&call(2, std::slice::from_ref(&put))));
                drain(&mut server, &mut stream, step);
                assert_eq!(server.calls[0].1.ops, *expected, "case {index}");
                // What follows is not disturbed.
                assert_eq!(server.calls[1].1.ops, (1, Stop::End), "case {index}");
            }
        }
    }
}

#[test]
fn data_cut_short_by_the_record_is_no_write() {
    let mut bytes = call(1, &[CompoundPart::Write(0, vec![5; 40])]);
    bytes.truncate(bytes.len() - 4);
    for fragment in [16, usize::MAX] {
        let mut server = server(RpcServerSettings::default());
        let mut stream: VecDeque<u8> = record(&bytes, || fragment).into();
        drain(&mut server, &mut stream, usize::MAX);
        assert_eq!(server.calls[0].1.ops, (0, Stop::BadXdr));
    }
}

#[test]
fn large_data_goes_where_it_belongs() {
    let data: Vec<u8> = (0..100_000).map(|byte| byte as u8).collect();
    let parts = [
        CompoundPart::Put(vec![4; 9]),
        CompoundPart::Write(4096, data.clone()),
        CompoundPart::Getattr(vec![1]),
    ];
    let mut server = server(RpcServerSettings::default());
    let mut stream: VecDeque<u8> = whole(&call(1, &[])).into();
    for xid in 2..6 {
        stream.extend(whole(&call(xid, &parts)));
    }
    drain(&mut server, &mut stream, 3000);
    assert_eq!(server.calls.len(), 5);
    for (_, seen) in &server.calls[1..] {
        assert_eq!(seen.data, [Some(data.clone())]);
    }
    assert_eq!(server.places, vec![(4096, Some(vec![4; 9])); 4]);
    // Only what came with the headers was copied.
    assert!(
        server.end.placed_bytes < 4 * 3000,
        "{}",
        server.end.placed_bytes
    );
    // Of later calls it is a few bytes each.
    let before = server.end.placed_bytes;
    stream.extend(whole(&call(9, &parts)));
    drain(&mut server, &mut stream, usize::MAX);
    assert!(server.end.placed_bytes - before < 512);
}

#[test]
fn the_file_of_a_write_is_named_only_right_after_putfh() {
    let write = CompoundPart::Write(1, vec![0; 3]);
    let parts = [
        CompoundPart::Put(vec![1]),
        write.clone(),
        CompoundPart::Lookup(b"name".to_vec()),
        write.clone(),
        CompoundPart::Put(vec![2; 128]),
        CompoundPart::Getattr(vec![]),
        write.clone(),
    ];
    let mut server = server(RpcServerSettings::default());
    drain(&mut server, &mut whole(&call(1, &parts)).into(), 1);
    let handles: Vec<_> = server
        .places
        .iter()
        .map(|(_, handle)| handle.clone())
        .collect();
    assert_eq!(handles, [Some(vec![1]), None, Some(vec![2; 128])]);
}

#[test]
fn data_without_memory_is_skipped_and_nothing_else() {
    let mut server = server(RpcServerSettings::default());
    server.starves = true;
    let parts = [
        CompoundPart::Write(0, vec![1; 10]),
        CompoundPart::Write(0, vec![2; 11]),
        CompoundPart::Getattr(vec![3]),
    ];
    let mut stream: VecDeque<u8> = whole(&call(1, &parts)).into();
    drain(&mut server, &mut stream, usize::MAX);
    assert!(server.calls.is_empty());
    assert_eq!(server.end.machine.recv_plan().stage_max, 0);
    server.feed(false);
    drain(&mut server, &mut stream, usize::MAX);
    server.feed(true);
    drain(&mut server, &mut stream, usize::MAX);
    let (_, seen) = &server.calls[0];
    assert_eq!(seen.ops, (3, Stop::End));
    assert_eq!(seen.data, [None, Some(vec![2; 11])]);
    server.answer(0, &[]);
    assert_eq!(sent(&mut server).len(), 1);
    // All tags of the call are free again: its own, and that of the other data.
    assert_eq!(server.end.released.len(), 2);
}

/// No byte beyond the first few KiB is taken before there is memory for all of them.
#[test]
fn large_arguments_wait_for_memory() {
    let free = RpcServerSettings::default().args_bytes_free_max as usize;
    let mut parts = vec![CompoundPart::Write(0, vec![7; 5000])];
    parts.resize(20, CompoundPart::Lookup(vec![b'n'; 2500]));
    parts.push(CompoundPart::Write(1, vec![8; 5000]));
    let bytes = call(1, &parts);
    for (fragment, wanted) in [(usize::MAX, bytes.len() - 5000), (1000, 96 << 10)] {
        for step in [100, usize::MAX] {
            let mut server = server(RpcServerSettings::default());
            server.starves = true;
            let mut stream: VecDeque<u8> = record(&bytes, || fragment).into();
            stream.extend(whole(&call(2, &[])));
            let all = stream.len();
            drain(&mut server, &mut stream, step);
            server.feed(true);
            server.take_ops();
            drain(&mut server, &mut stream, step);
            let (tag, bytes) = server.starved_args.expect("it waits");
            assert_eq!(bytes as usize, wanted);
            drain(&mut server, &mut stream, step);
            assert_eq!(server.end.machine.recv_plan().stage_max, 0);
            assert!(step > 100 || all - stream.len() <= 5000 + free + 512);
            server.starves = false;
            server.feed(true);
            server.take_ops();
            drain(&mut server, &mut stream, step);
            let seen: Vec<_> = server.calls.iter().map(|(_, seen)| seen.clone()).collect();
            assert_eq!(seen.len(), 2);
            assert_eq!((seen[0].ops, seen[0].data.len()), ((21, Stop::End), 2));
            assert_eq!(seen[0].args, compound(&parts).1);
            assert!(!server.end.released.contains(&tag));
            server.answer(0, &[]);
            sent(&mut server);
            assert!(server.end.released.contains(&tag));
        }
    }
}

/// Nothing of the call is executed then: its client sends it again.
#[test]
fn call_with_data_that_finds_no_memory_or_no_tag_for_its_arguments_is_put_off() {
    let mut parts = vec![CompoundPart::Write(0, vec![7; 40])];
    parts.resize(4, CompoundPart::Lookup(vec![b'n'; 2500]));
    for has_tag in [false, true] {
        let mut server = server(RpcServerSettings::default());
        server.starves = true;
        let mut stream: VecDeque<u8> = whole(&call(1, &[])).into();
        stream.extend(whole(&call(2, &parts)));
        stream.extend(whole(&call(3, &[])));
        drain(&mut server, &mut stream, 100);
        assert_eq!(server.calls.len(), 1);
        // The answer to a call that is worked on may name all that is left.
        let first = server.calls[0].0;
        while !has_tag && server.end.machine.data_tag(first).is_some() {}
        server.feed(true);
        server.take_ops();
        drain(&mut server, &mut stream, 100);
        assert_eq!(server.starved_args.is_some(), has_tag);
        server.feed(false);
        server.take_ops();
        drain(&mut server, &mut stream, 100);
        assert_eq!(server.fatal, None);
        let seen: Vec<_> = server.calls.iter().map(|(_, seen)| seen.ops).collect();
        assert_eq!(seen[..2], [(0, Stop::End), (0, Stop::Delay)]);
        // What follows is not disturbed.
        let mut answers = 0;
        while !server.calls.is_empty() {
            server.answer(0, &[]);
            answers += sent(&mut server).len();
            server.take_ops();
            drain(&mut server, &mut stream, 100);
        }
        assert_eq!(answers, 3);
    }
}

/// A connection has 64 KiB of arguments for which no memory was asked for.
#[test]
fn arguments_without_memory_of_their_own_have_a_bound() {
    let mut server = server(RpcServerSettings::default());
    let mut stream = VecDeque::new();
    for xid in 0..40 {
        let name = CompoundPart::Lookup(vec![b'n'; 3900]);
        stream.extend(whole(&call(xid, &[name])));
    }
    drain(&mut server, &mut stream, 512);
    assert_eq!(server.calls.len(), 17);
    for left in (0..40).rev() {
        server.answer(0, &[]);
        drain(&mut server, &mut stream, 512);
        assert_eq!(server.calls.len(), left.min(17));
        sent(&mut server);
    }
}

#[test]
fn answers_go_out_in_any_order_with_their_data() {
    let mut server = server(RpcServerSettings::default());
    let mut stream = VecDeque::new();
    for xid in 1..=3 {
        stream.extend(whole(&call(xid, &[CompoundPart::Getattr(vec![xid])])));
    }
    drain(&mut server, &mut stream, usize::MAX);
    server.answer(2, &[vec![7; 1001], vec![8; 4]]);
    server.answer(0, &[]);
    server.answer(0, &[vec![9; 2]]);
    let answers = sent(&mut server);
    let mut expected = Vec::new();
    let data: [(u32, &[&[u8]]); 3] = [(3, &[&[7; 1001], &[8; 4]]), (1, &[]), (2, &[&[9; 2]])];
    for (xid, data) in data {
        let mut bytes = Vec::new();
        for word in [xid, 1, 0, 0, 0, 0] {
            word.encode(&mut bytes);
        }
        bytes.extend(compound(&[CompoundPart::Getattr(vec![xid])]).1);
        for data in data {
            Opaque::<2000>(data).encode(&mut bytes);
        }
        expected.push(bytes);
    }
    assert_eq!(answers, expected);
    assert_eq!(server.end.released.len(), 4);
}

#[test]
fn long_results_go_out_piece_by_piece() {
    let mut server = server(RpcServerSettings::default());
    drain(&mut server, &mut whole(&call(1, &[])).into(), usize::MAX);
    let tag = server.calls[0].0;
    let results: Vec<u8> = (0..50_000).map(|byte| byte as u8).collect();
    let reply = server.end.machine.reply(tag);
    reply.bytes().extend(&results);
    let mark = reply.mark();
    reply.bytes().extend([1; 100]);
    reply.back_to(mark);
    assert_eq!(reply.results(), results);
    server.end.machine.send(tag);
    assert_eq!(sent(&mut server)[0][24..], results);
}

#[test]
fn calls_under_way_are_bounded() {
    let settings = RpcServerSettings {
        calls_max: 2,
        ..RpcServerSettings::default()
    };
    let mut server = server(settings);
    let mut stream = VecDeque::new();
    for xid in 0..20 {
        stream.extend(whole(&call(xid, &[])));
    }
    let mut seen = Vec::new();
    let mut most = 0;
    while seen.len() < 20 {
        drain(&mut server, &mut stream, usize::MAX);
        most = most.max(server.calls.len());
        seen.push(server.calls[0].1.xid);
        server.answer(0, &[]);
        if seen.len() % 3 == 0 {
            sent(&mut server);
        }
    }
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
    assert_eq!(most, 2);
    assert!(server.end.machine.tags_max() <= 5);
}

/// A client that asks for large answers and takes none gets no more than a few made.
#[test]
fn answers_that_the_client_does_not_take_are_bounded() {
    let mut server = server(RpcServerSettings::default());
    let mut stream = VecDeque::new();
    for xid in 0..40 {
        stream.extend(whole(&call(xid, &[])));
    }
    let mut made = 0;
    let mut take = |server: &mut RpcDouble, stream: &mut VecDeque<u8>| {
        while server.receive(stream, 1) {
            server.take_ops();
            while let Some((tag, _)) = server.calls.first() {
                let reply = server.end.machine.reply(*tag);
                reply.bytes().resize(300 << 10, 0);
                server.answer(0, &[]);
                made += 1;
            }
        }
        made
    };
    assert_eq!(take(&mut server, &mut stream), 4, "1 MiB and no more");
    sent(&mut server);
    assert_eq!(take(&mut server, &mut stream), 8);
    let mut last = 8;
    while last < 40 {
        sent(&mut server);
        last = take(&mut server, &mut stream);
    }
}

#[test]
fn client_that_keeps_to_no_bounds_is_cut_off() {
    let settings = RpcServerSettings {
        args_bytes_max: 1024,
        io_bytes_max: 1024,
        fragments_max: 8,
        ..RpcServerSettings::default()
    };
    let long_name = CompoundPart::Raw([&[0, 0, 0, 15, 0, 0, 4, 0][..], &[b'n'; 1024]].concat());
    let cases: [(Vec<u8>, RpcServerFatalError); 6] = [
        (vec![0x80, 0, 8, 1], RpcServerFatalError::LongRecord),
        (vec![0; 9 * 4], RpcServerFatalError::Fragments),
        (whole(&[]), RpcServerFatalError::NoMessage),
        (whole(&[0; 7]), RpcServerFatalError::NoMessage),
        (
            whole(&[0, 0, 0, 1, 0, 0, 0, 2]),
            RpcServerFatalError::NoMessage,
        ),
        (
            whole(&call(1, &[long_name])),
            RpcServerFatalError::LongArguments,
        ),
    ];
    for (bytes, error) in cases {
        for step in [1, usize::MAX] {
            let mut server = server(settings);
            let mut stream: VecDeque<u8> = bytes.clone().into();
            drain(&mut server, &mut stream, step);
            assert_eq!(server.fatal, Some(error));
            assert!(server.end.machine.is_finished());
        }
    }
}

/// Its driver walks what is staged again when the machine says that this helps.
#[test]
fn a_call_that_waits_for_another_is_a_step_when_that_is_answered() {
    let mut server = server(RpcServerSettings {
        calls_max: 1,
        ..RpcServerSettings::default()
    });
    let mut stream: VecDeque<u8> = [whole(&call(1, &[])), whole(&call(2, &[]))].concat().into();
    drain(&mut server, &mut stream, usize::MAX);
    assert_eq!((server.calls.len(), stream.len()), (1, 0));
    assert!(!server.end.machine.has_step());
    server.answer(0, &[]);
    assert!(server.end.machine.has_step());
    server.take_ops();
    assert_eq!(server.calls.len(), 1);
    assert!(!server.end.machine.has_step());
    server.answer(0, &[]);
    assert_eq!(sent(&mut server).len(), 2);
}

#[test]
fn connection_without_a_call_of_a_client_that_may_be_here_is_cut_off() {
    let mut machine = Connection::new(RpcServerSettings::default(), 5);
    let deadline = machine.deadline().unwrap();
    machine.on_deadline(deadline - 1);
    assert!(!machine.is_finished());
    assert!(machine.recv_plan().stage_max <= 2048);
    machine.on_deadline(deadline);
    assert!(machine.is_finished());
    let null = call_header(2, |call| call.proc = 0);
    for (is_let_in, record, identifies) in [
        (true, call(1, &[]), true),
        (true, null.clone(), false),
        (false, call(1, &[]), false),
        (false, null, false),
    ] {
        let mut server = server(RpcServerSettings::default());
        server.end.machine.set_let_in(is_let_in);
        drain(&mut server, &mut whole(&record).into(), usize::MAX);
        assert_eq!(server.end.machine.is_identified(), identifies);
        assert_eq!(server.end.machine.deadline().is_none(), identifies);
    }
}

#[test]
fn callbacks_go_out_on_the_connection_of_the_client() {
    let mut server = server(RpcServerSettings::default());
    let machine = &mut server.end.machine;
    let first = machine
        .call_back((0x4000_0000, 1, 1), |to| 5u32.encode(to))
        .unwrap();
    let without_credential = CallBack {
        way: nfs::server::CallbackWay::None,
        ..CallBack::from((0x4000_0000, 1, 0))
    };
    let second = machine.call_back(without_credential, |_| {}).unwrap();
    let third = machine.call_back((0x4000_0000, 1, 0), |_| {}).unwrap();
    machine.forget_call(third);
    let calls = sent(&mut server);
    // By AUTH_SYS (1), whose 20 bytes are zero.
    let header = [
        first,
        0,
        2,
        0x4000_0000,
        1,
        1,
        1,
        20,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        5,
    ];
    assert_eq!(words(&calls[0]), header);
    let header = [second, 0, 2, 0x4000_0000, 1, 0, 0, 0, 0, 0];
    assert_eq!(words(&calls[1]), header);
    let answer = |xid: u32, more: u32| {
        let words = [xid, 1, 0, 0, 0, 0, more];
        whole(
            &words
                .iter()
                .flat_map(|word| word.to_be_bytes())
                .collect::<Vec<_>>(),
        )
    };
    let mut stream = VecDeque::new();
    for (xid, more) in [(second, 1), (first, 2), (third, 3), (first, 4), (99, 5)] {
        stream.extend(answer(xid, more));
    }
    drain(&mut server, &mut stream, 3);
    let seen: Vec<_> = server
        .answers
        .iter()
        .map(|(xid, bytes)| (*xid, words(bytes)))
        .collect();
    assert_eq!(
        seen,
        [(second, vec![0, 0, 0, 0, 1]), (first, vec![0, 0, 0, 0, 2])]
    );
    let machine = &mut server.end.machine;
    let calls = std::iter::from_fn(|| machine.call_back((1, 1, 0), |_| {}))
        .take(100)
        .count();
    assert_eq!(calls, 16);
}

#[test]
fn buffers_are_used_again() {
    let mut server = server(RpcServerSettings::default());
    let mut buffers = None;
    for xid in 0..100 {
        let parts = [
            CompoundPart::Put(vec![1; 20]),
            CompoundPart::Getattr(vec![1, 2]),
        ];
        drain(
            &mut server,
            &mut whole(&call(xid, &parts)).into(),
            usize::MAX,
        );
        let tag = server.calls[0].0;
        let machine = &mut server.end.machine;
        let now = (
            machine.call(tag).args.as_ptr(),
            machine.reply(tag).bytes().capacity(),
        );
        assert!(xid < 2 || buffers == Some(now));
        buffers = Some(now);
        server.answer(0, &[]);
        sent(&mut server);
    }
    assert_eq!(server.end.machine.tags_max(), 1);
}

fn parts() -> impl Strategy<Value = Vec<CompoundPart>> {
    let bytes = |max| proptest::collection::vec(any::<u8>(), 0..max);
    let part = prop_oneof![
        bytes(129usize).prop_map(CompoundPart::Put),
        bytes(300).prop_map(CompoundPart::Lookup),
        proptest::collection::vec(any::<u32>(), 0..4).prop_map(CompoundPart::Getattr),
        (any::<u64>(), bytes(600)).prop_map(|(offset, data)| CompoundPart::Write(offset, data)),
    ];
    proptest::collection::vec(part, 0..8)
}

const CASES: u32 = 200;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// Calls are the same however they are cut.
    #[test]
    fn calls_are_read_as_they_were_sent(
        calls in proptest::collection::vec(parts(), 1..5),
        seed in any::<u64>(),
        step in 1usize..400,
        fragment in 1u32..300,
    ) {
        let mut random = Random::new(seed);
        let mut stream = VecDeque::new();
        for (xid, parts) in calls.iter().enumerate() {
            let bytes = call(xid as u32, parts);
            stream.extend(record(&bytes, || 1 + random.below(fragment.into()) as usize));
        }
        let mut server = server(RpcServerSettings { fragments_max: u32::MAX, ..RpcServerSettings::default() });
        drain(&mut server, &mut stream, step);
        prop_assert_eq!(server.fatal, None);
        prop_assert_eq!(server.calls.len(), calls.len());
        for (xid, parts) in calls.iter().enumerate() {
            let (_, seen) = &server.calls[xid];
            prop_assert_eq!(seen.xid, xid as u32);
            prop_assert_eq!(&seen.args, &compound(parts).1);
            prop_assert_eq!(seen.ops, (parts.len() as u32, Stop::End));
            let data: Vec<_> = parts.iter().filter_map(|part| match part {
                CompoundPart::Write(_, data) => Some((!data.is_empty()).then(|| data.clone())),
                _ => None,
            }).collect();
            prop_assert_eq!(&seen.data, &data);
        }
    }

    /// Writes of NFSv3 between other calls come as they were sent.
    #[test]
    fn writes_of_version_3_are_read_as_they_were_sent(
        writes in proptest::collection::vec(
            (any::<u64>(), proptest::collection::vec(any::<u8>(), 0..600), 0usize..65, any::<bool>()),
            1..6,
        ),
        seed in any::<u64>(),
        step in 1usize..400,
        fragment in 1u32..300,
    ) {
        let mut random = Random::new(seed);
        let mut stream = VecDeque::new();
        let mut expected = Vec::new();
        for (xid, (offset, data, handle, is_old)) in writes.iter().enumerate() {
            let handle = vec![xid as u8; *handle];
            let data_of = |data: &Vec<u8>| vec![(!data.is_empty()).then(|| data.clone())];
            let (bytes, args) = match is_old {
                true => write3(xid as u32, &handle, *offset, data),
                false => {
                    let parts = [CompoundPart::Put(handle), CompoundPart::Write(*offset, data.clone())];
                    (call(xid as u32, &parts), compound(&parts).1)
                }
            };
            expected.push((args, data_of(data)));
            stream.extend(record(&bytes, || 1 + random.below(fragment.into()) as usize));
        }
        let mut server = server(RpcServerSettings { fragments_max: u32::MAX, ..RpcServerSettings::default() });
        drain(&mut server, &mut stream, step);
        prop_assert_eq!(server.fatal, None);
        let seen: Vec<_> = server.calls.iter().map(|(_, seen)| (seen.args.clone(), seen.data.clone())).collect();
        prop_assert_eq!(seen, expected);
        let places: Vec<_> = server.places.iter().map(|(offset, handle)| (*offset, handle.is_some())).collect();
        let with_data = writes.iter().filter(|write| !write.1.is_empty());
        prop_assert_eq!(places, with_data.map(|write| (write.0, true)).collect::<Vec<_>>());
    }

    /// Calls with some bytes changed, cut anyhow, from clients and to servers of
    /// any mood.
    #[test]
    fn broken_calls_cost_the_connection_at_most(
        seed in any::<[u8; 4]>(),
        calls in proptest::collection::vec((parts(), any::<u8>()), 1..12),
        changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..6),
    ) {
        let mut input = seed.to_vec();
        for (parts, mode) in calls {
            let (wire, _) = compound(&parts);
            input.push(mode | 3);
            input.extend((wire.len() as u16).to_le_bytes());
            input.extend(wire);
        }
        for (at, to) in changes {
            let at = 4 + usize::from(at) % (input.len() - 4);
            input[at] = to;
        }
        nfs_connection(&input);
    }

    #[test]
    fn any_bytes_cost_the_connection_at_most(input in proptest::collection::vec(any::<u8>(), 0..600)) {
        nfs_connection(&input);
    }
}
