//! Admin commands: events, Abort, Get LBA Status, and whatever else a host sends.

use nvmf::command::AnaState;
use nvmf::{AdminOutcome, ControllerChange, ErrorNote, LbaStatus, LbaStatusKind, WriteProtect};
use proptest::prelude::*;
use wire::nvme::discovery::DISCOVERY_NQN;
use wire::nvme::feature::fid;
use wire::nvme::identify::cns;
use wire::nvme::log::lid;
use wire::nvme::{NSID_ALL, Sqe, Status, admin};
use zerocopy::{FromBytes, IntoBytes};

use crate::bench::{Bench, NQN, disk, log_sqe, namespace, u32_at, u64_at};

#[test]
fn event_requests_are_bounded_and_answered_once_a_read() {
    let mut bench = Bench::new();
    let id = bench.controller();
    for tag in 10..14 {
        assert_eq!(bench.hold_event_request(id, tag), AdminOutcome::Held);
    }
    let AdminOutcome::Done(reply) = bench.hold_event_request(id, 14) else {
        panic!("held")
    };
    assert_eq!(reply.status.code(), Status::AER_LIMIT);
    assert!(bench.take_event(id).is_none());

    let change = |bench: &mut Bench, count| {
        let mut changed = disk();
        changed.namespaces = [namespace(5, 512, count), changed.namespaces[1].clone()].into();
        bench.registry.replace_subsystem(changed.into()).events
    };
    assert_eq!(
        change(&mut bench, 4096),
        [100],
        "the Admin Queue's connection"
    );
    let (tag, reply) = bench.take_event(id).unwrap();
    assert_eq!(
        (tag, reply.status, reply.result),
        (10, Status::SUCCESS, 0x04_0002)
    );
    assert!(bench.take_event(id).is_none());
    assert!(
        change(&mut bench, 8192).is_empty(),
        "masked until the log is read"
    );
    assert!(bench.take_event(id).is_none());
    let data = bench.identify(id, cns::NAMESPACE, 5).unwrap();
    assert_eq!(u64_at(&data, 0), 8192, "the new size is seen at once");

    let mut retaining = log_sqe(lid::CHANGED_NAMESPACES, 0, 0, 8);
    retaining.cdw10 = (retaining.cdw10.get() | 1 << 15).into();
    let mut out = [0; 8];
    bench.admin(id, &retaining, &mut out);
    assert_eq!(out, [5, 0, 0, 0, 0, 0, 0, 0]);
    assert!(bench.take_event(id).is_none(), "retained");
    let list = bench.log(id, lid::CHANGED_NAMESPACES, 0, 0, 4096).unwrap();
    assert_eq!(u32_at(&list, 0), 5);
    let list = bench.log(id, lid::CHANGED_NAMESPACES, 0, 0, 4096).unwrap();
    assert_eq!(u32_at(&list, 0), 0, "reading clears the list");
    assert_eq!(change(&mut bench, 16_384), [100]);
    assert_eq!(bench.take_event(id).unwrap().0, 11);

    bench.log(id, lid::CHANGED_NAMESPACES, 0, 0, 4096).unwrap();
    bench.set_feature(id, fid::ASYNC_EVENT_CONFIG, 0);
    change(&mut bench, 2048);
    assert!(bench.take_event(id).is_none(), "not asked for");
    bench.set_feature(id, fid::ASYNC_EVENT_CONFIG, 1 << 8);
    assert_eq!(
        bench.take_event(id).unwrap().0,
        12,
        "an event waits for being asked for"
    );
}

/// Each event has its place, its log page, and what enables it.
#[test]
fn events_of_every_kind() {
    let mut bench = Bench::new();
    let id = bench.controller();
    bench.set_feature(id, fid::ASYNC_EVENT_CONFIG, 0x900 | 1 << 2);
    let note = |status| ErrorNote {
        qid: 1,
        cid: 0,
        status,
        location: None,
        lba: 0,
        nsid: 5,
    };
    for tag in 0..4 {
        bench.hold_event_request(id, tag);
    }
    let mut told = Vec::new();
    let mut tell = |bench: &mut Bench, change: ControllerChange| {
        assert_eq!(change.events, [100]);
        told.push(bench.take_event(id).unwrap().1.result);
    };
    let change = bench.registry.note_error(id, note(Status::WRITE_FAULT));
    tell(&mut bench, change);
    let change = bench.registry.note_error(id, note(Status::INTERNAL_ERROR));
    tell(&mut bench, change);
    let change = bench.registry.set_ana(NQN, None, 1, AnaState::Change);
    tell(&mut bench, change.unwrap());
    let change = bench.registry.set_write_protect(NQN, 5, WriteProtect::On);
    tell(&mut bench, change);
    assert_eq!(told, [0x02_0001, 0x01_0400, 0x0c_0302, 0x04_0002]);

    for tag in 4..8 {
        bench.hold_event_request(id, tag);
    }
    // Masked, each until its page is read for good.
    let quiet = bench
        .registry
        .note_error(id, note(Status::UNRECOVERED_READ));
    assert_eq!(quiet, ControllerChange::default());
    let quiet = bench.registry.set_ana(NQN, None, 1, AnaState::Optimized);
    assert_eq!(quiet, Some(ControllerChange::default()));
    for (lid, result) in [(lid::SMART, 0x02_0001), (lid::ANA, 0x0c_0302)] {
        assert!(bench.take_event(id).is_none());
        let mut retaining = log_sqe(lid, 0, 0, 512);
        retaining.cdw10 = (retaining.cdw10.get() | 1 << 15).into();
        bench.admin(id, &retaining, &mut [0; 512]);
        assert!(bench.take_event(id).is_none(), "{lid:#x} retained");
        bench.log(id, lid, 0, 0, 512).unwrap();
        // What happened meanwhile was told by the page.
        assert!(bench.take_event(id).is_none(), "{lid:#x} read");
        let change = match lid {
            lid::SMART => bench.registry.note_error(id, note(Status::WRITE_FAULT)),
            _ => bench
                .registry
                .set_ana(NQN, None, 1, AnaState::Change)
                .unwrap(),
        };
        assert_eq!(change.events, [100]);
        assert_eq!(bench.take_event(id).unwrap().1.result, result);
    }
    let spoiled = note(Status::UNRECOVERED_READ.dnr());
    bench.log(id, lid::SMART, 0, 0, 512).unwrap();
    let quiet = bench.registry.note_error(id, spoiled);
    assert_eq!(
        quiet,
        ControllerChange::default(),
        "a block that a host spoiled"
    );
}

#[test]
fn little_space_below_a_volume_is_told_to_hosts_that_see_it_and_ask_for_it() {
    let mut bench = Bench::new();
    let id = bench.controller();
    bench.hold_event_request(id, 0);
    let (seen, unseen) = ([5; 16], [77; 16]);
    let told = bench.registry.space_is_low(seen);
    assert_eq!(told, ControllerChange::default(), "not asked for");
    bench.log(id, lid::SMART, 0, 0, 512).unwrap();
    bench.set_feature(id, fid::ASYNC_EVENT_CONFIG, 1);
    let told = bench.registry.space_is_low(unseen);
    assert_eq!(told, ControllerChange::default());
    for tag in [0, 1] {
        let told = bench.registry.space_is_low(seen);
        assert_eq!(told.events, [100], "{tag}");
        assert_eq!(bench.take_event(id).unwrap().1.result, 0x02_0201);
        // Masked until its page is read.
        bench.hold_event_request(id, tag + 1);
        let told = bench.registry.space_is_low(seen);
        assert_eq!(told, ControllerChange::default());
        bench.log(id, lid::SMART, 0, 0, 512).unwrap();
        assert!(bench.take_event(id).is_none());
    }
}

#[test]
fn aborts_are_handed_on_and_counted() {
    let mut bench = Bench::new();
    let id = bench.controller();
    bench.io_queue(1, 2).unwrap();
    let abort = |sqid: u32, cid: u32| {
        let mut sqe = Sqe::new(admin::ABORT);
        sqe.cdw10 = (sqid | cid << 16).into();
        sqe
    };
    let cases = [(0, Some(100)), (2, Some(101)), (1, None), (0xffff, None)];
    for (sqid, connection) in cases {
        let outcome = bench.run(id, 0, &abort(sqid, 0x1234), &[], &mut []);
        let cid = 0x1234;
        assert_eq!(
            outcome,
            AdminOutcome::Abort { connection, cid },
            "SQ {sqid}"
        );
    }
    for _ in 0..4 {
        let outcome = bench.run(id, 0, &abort(0, 1), &[], &mut []);
        assert!(matches!(outcome, AdminOutcome::Abort { .. }));
    }
    let refused = bench.admin(id, &abort(0, 1), &mut []);
    assert_eq!(refused.status, Status::ABORT_LIMIT.dnr(), "8 at once (ACL)");
    bench.registry.controller(id).unwrap().abort_done();
    let outcome = bench.run(id, 0, &abort(0, 1), &[], &mut []);
    assert!(matches!(outcome, AdminOutcome::Abort { .. }));
}

#[test]
fn a_held_event_request_can_be_aborted() {
    let mut bench = Bench::new();
    let id = bench.controller();
    bench.hold_event_request(id, 3);
    bench.hold_event_request(id, 4);
    let controller = bench.registry.controller(id).unwrap();
    assert!(controller.cancel_event_request(3));
    assert!(!controller.cancel_event_request(3), "not twice");
    assert!(!controller.cancel_event_request(9));
    let change = bench.registry.set_write_protect(NQN, 5, WriteProtect::On);
    assert_eq!(change.events, [100]);
    assert_eq!(bench.take_event(id).unwrap().0, 4);
}

fn lba_status(nsid: u32, slba: u64, dwords: u32, action: u32, blocks: u32) -> Sqe {
    let mut sqe = Sqe::new(admin::GET_LBA_STATUS);
    sqe.nsid = nsid.into();
    sqe.cdw10 = (slba as u32).into();
    sqe.cdw11 = ((slba >> 32) as u32).into();
    sqe.cdw12 = (dwords - 1).into();
    sqe.cdw13 = (action << 24 | blocks).into();
    sqe
}

#[test]
fn get_lba_status_asks_in_bytes() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let ask = |offset, len, kind, ranges_max| {
        AdminOutcome::LbaStatus(LbaStatus {
            nsid: 5,
            offset,
            len,
            block_shift: 9,
            kind,
            ranges_max,
        })
    };
    let allocated = LbaStatusKind::Allocated;
    let spoiled = LbaStatusKind::Unrecoverable;
    let cases = [
        (
            lba_status(5, 8, 1024, 0x02, 16),
            ask(4096, 8192, allocated, 255),
        ),
        (
            lba_status(5, 8, 6, 0x10, 0),
            ask(4096, 1_044_480, spoiled, 1),
        ),
        (
            lba_status(5, 2047, 5, 0x11, 1),
            ask(1_048_064, 512, spoiled, 0),
        ),
        (lba_status(5, 0, 1, 0x02, 0), ask(0, 1 << 20, allocated, 0)),
    ];
    for (sqe, expected) in cases {
        assert_eq!(bench.run(id, 0, &sqe, &[], &mut [0; 4096]), expected);
    }
    for (name, sqe, status) in [
        (
            "action",
            lba_status(5, 0, 8, 0x01, 1),
            Status::INVALID_FIELD,
        ),
        (
            "start",
            lba_status(5, 2048, 8, 0x02, 0),
            Status::LBA_OUT_OF_RANGE,
        ),
        (
            "end",
            lba_status(5, 2047, 8, 0x02, 2),
            Status::LBA_OUT_OF_RANGE,
        ),
        (
            "wrap",
            lba_status(5, u64::MAX, 8, 0x02, 2),
            Status::LBA_OUT_OF_RANGE,
        ),
        (
            "inactive",
            lba_status(3, 0, 8, 0x02, 1),
            Status::INVALID_FIELD,
        ),
        (
            "all",
            lba_status(NSID_ALL, 0, 8, 0x02, 1),
            Status::INVALID_NAMESPACE,
        ),
    ] {
        let reply = bench.admin(id, &sqe, &mut [0; 4096]);
        assert_eq!(reply.status.code(), status, "{name}");
    }
    let _ = bench.registry.set_ana(NQN, None, 1, AnaState::Inaccessible);
    let reply = bench.admin(id, &lba_status(5, 0, 8, 0x02, 1), &mut [0; 32]);
    assert_eq!(reply.status, Status::ANA_INACCESSIBLE);
}

#[test]
fn lba_status_descriptors() {
    let ask = LbaStatus {
        nsid: 1,
        offset: 4096,
        len: 1 << 20,
        block_shift: 12,
        kind: LbaStatusKind::Allocated,
        ranges_max: 2,
    };
    let list = |ranges: &[(u64, u64)]| {
        let data = ask.data(ranges.iter().copied());
        let count = u32_at(&data, 0) as usize;
        assert_eq!((data.len(), &data[5..8]), (8 + 16 * count, &[0; 3][..]));
        let descriptors: Vec<(u64, u32)> = data[8..]
            .chunks(16)
            .map(|one| (u64_at(one, 0), u32_at(one, 8)))
            .collect();
        (data[4], descriptors)
    };
    assert_eq!(list(&[]), (2, vec![]), "complete");
    assert_eq!(
        list(&[(0, 8192), (16384, 4096)]),
        (2, vec![(1, 1), (4, 1)]),
        "cut to the range"
    );
    assert_eq!(
        list(&[(8192, 4096), (16384, 4096), (32768, 4096)]),
        (1, vec![(2, 1), (4, 1)]),
        "there are more"
    );
    assert_eq!(list(&[(0, 1 << 30)]), (2, vec![(1, 256)]));
    let huge = LbaStatus {
        len: 1 << 52,
        ranges_max: 300,
        ..ask
    };
    let data = huge.data([(0, u64::MAX)]);
    assert_eq!(u32_at(&data, 0), 257, "a descriptor has 32 bits of blocks");
    assert_eq!(
        (u64_at(&data, 24), u32_at(&data, 32)),
        (u64::from(u32::MAX) + 1, u32::MAX)
    );
}

/// Commands of a controller whose subsystem was taken away end.
#[test]
fn nothing_is_executed_after_the_end() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let change = bench.registry.remove_subsystem(NQN);
    assert_eq!(change.closing, [100]);
    for opcode in 0..=255 {
        let outcome = bench.run(id, 0, &Sqe::new(opcode), &[], &mut [0; 4096]);
        let ended = nvmf::Reply::failed(Status::ABORTED_SQ_DELETION);
        assert_eq!(outcome, AdminOutcome::Done(ended));
    }
}

#[test]
fn admin_commands_are_not_fused_and_use_sgls() {
    let mut bench = Bench::new();
    let id = bench.controller();
    for flags in [0x00, 0x41, 0x42, 0x80, 0xc0] {
        let mut sqe = Sqe::new(admin::IDENTIFY);
        sqe.cdw10 = u32::from(cns::CONTROLLER).into();
        sqe.flags = flags;
        let reply = bench.admin(id, &sqe, &mut [0; 4096]);
        assert_eq!(reply.status, Status::INVALID_FIELD.dnr(), "{flags:#x}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever a host sends: no panic, no data past what is reported, and the
    /// buffer is only written on success.
    #[test]
    fn arbitrary_commands(
        bytes in prop::array::uniform32(any::<u8>()),
        tail in prop::array::uniform32(any::<u8>()),
        opcode in prop::sample::select(vec![2u8, 6, 8, 9, 10, 12, 24, 0x7f, 0x86, 0xff]),
        low in 0u32..0x20,
        nsid in prop::sample::select(vec![0, 1, 2, 5, 1024, NSID_ALL]),
        data in prop::collection::vec(any::<u8>(), 0..600),
        out_len in 0usize..5000,
        is_discovery: bool,
        is_tame: bool,
    ) {
        let mut raw = [0; 64];
        raw[..32].copy_from_slice(&bytes);
        raw[32..].copy_from_slice(&tail);
        let mut sqe = Sqe::read_from_bytes(&raw).unwrap();
        sqe.opcode = opcode;
        sqe.nsid = nsid.into();
        if is_tame {
            sqe.cdw10 = (low | (out_len as u32 / 8) << 16).into();
            sqe.cdw11 = 0.into();
            sqe.cdw12 = (sqe.cdw12.get() & 0x1ffc).into();
            sqe.cdw13 = 0.into();
            sqe.cdw14 = 0.into();
        }
        let mut bench = Bench::new();
        let id = bench.enabled(if is_discovery { DISCOVERY_NQN } else { NQN }, 0);
        let mut out = vec![0xa5; out_len];
        if let AdminOutcome::Done(reply) = bench.run(id, 1, &sqe, &data, &mut out) {
            let len = reply.data_len as usize;
            prop_assert!(len <= out_len);
            prop_assert!(out[len..].iter().all(|byte| *byte == 0xa5));
            prop_assert!(reply.status.is_success() || len == 0);
        }
    }

    /// Whatever comes with Connect: no panic, and success only as it should be.
    #[test]
    fn arbitrary_connects(
        head in prop::array::uniform16(any::<u8>()),
        flips in prop::collection::vec((0usize..1024, any::<u8>()), 0..3),
        qid in 0u16..6,
        sqsize in prop::sample::select(vec![0u16, 1, 31, 127, 128, 0xffff]),
        cntlid in prop::sample::select(vec![0u16, 1, 2, 0xfffe, 0xffff]),
        len in prop::sample::select(vec![0usize, 1023, 1024, 2000]),
    ) {
        let mut bench = Bench::new();
        bench.controller();
        let good = wire::nvme::fabrics::ConnectData::new(head, cntlid, NQN, crate::bench::HOST);
        let mut bytes = good.as_bytes().to_vec();
        for (at, value) in flips {
            bytes[at] = value;
        }
        bytes.resize(len, 0);
        let command = crate::bench::command(qid, sqsize, 0);
        if let Ok(connected) = bench.connect_raw(&command, &bytes, crate::bench::VIA) {
            prop_assert!(len >= 1024 && qid <= 4);
            prop_assert_eq!(connected.entries, u32::from(sqsize) + 1);
            prop_assert!((2..=128).contains(&connected.entries));
        }
    }
}
