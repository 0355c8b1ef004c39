//! Get and Set Features: every feature, and what is refused.

use nvmf::command::AnaState;
use nvmf::{AdminOutcome, WriteProtect};
use wire::nvme::discovery::DISCOVERY_NQN;
use wire::nvme::feature::{fid, select};
use wire::nvme::{NSID_ALL, Sqe, Status, admin};

use crate::bench::{Bench, CC_ENABLE, HOSTID, NQN, SECOND, disk, u32_at, u64_at};

#[test]
fn features_keep_what_is_set() {
    let mut bench = Bench::new();
    let id = bench.controller();
    // Feature, dword 11 to set, dword 11 to get, current value after, default value.
    let table = [
        (fid::ARBITRATION, 0x0102_0304, 0, 0x0102_0304, 7),
        (fid::POWER_MANAGEMENT, 0x40, 0, 0x40, 0),
        (fid::TEMPERATURE_THRESHOLD, 0x0150, 0, 0x0150, 0xffff),
        (fid::TEMPERATURE_THRESHOLD, 0x10_0100, 0x10_0000, 0x0100, 0),
        (
            fid::NUMBER_OF_QUEUES,
            0x0001_0002,
            0,
            0x0002_0002,
            0x0003_0003,
        ),
        (
            fid::NUMBER_OF_QUEUES,
            0x00fe_00fe,
            0,
            0x0003_0003,
            0x0003_0003,
        ),
        (fid::WRITE_ATOMICITY, 1, 0, 1, 0),
        (fid::ASYNC_EVENT_CONFIG, 0x90f, 0, 0x90f, 0x900),
        (fid::KEEP_ALIVE_TIMER, 9001, 0, 10_000, 5000),
        (fid::VOLATILE_WRITE_CACHE, 1, 0, 1, 1),
    ];
    for (fid, set, get, current, default) in table {
        assert_eq!(
            bench.set_feature(id, fid, set).status,
            Status::SUCCESS,
            "{fid:#x}"
        );
        assert_eq!(
            bench.get_feature(id, fid, select::CURRENT, get).result,
            current,
            "{fid:#x}"
        );
        for select in [select::DEFAULT, select::SAVED] {
            assert_eq!(
                bench.get_feature(id, fid, select, get).result,
                default,
                "{fid:#x}"
            );
        }
        let reply = bench.get_feature(id, fid, 4, get);
        assert_eq!(reply.status.code(), Status::INVALID_FIELD);
    }
    assert_eq!(
        bench
            .get_feature(id, fid::KEEP_ALIVE_TIMER, select::CAPABILITIES, 0)
            .result,
        4
    );
    assert_eq!(
        bench
            .get_feature(id, fid::ERROR_RECOVERY, select::CAPABILITIES, 0)
            .result,
        2
    );
    assert_eq!(
        bench
            .get_feature(id, fid::HOST_IDENTIFIER, select::CAPABILITIES, 0)
            .result,
        0
    );
}

#[test]
fn features_refuse_what_they_cannot_do() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let table = [
        (fid::POWER_MANAGEMENT, 1, Status::INVALID_FIELD),
        (fid::TEMPERATURE_THRESHOLD, 1 << 16, Status::INVALID_FIELD),
        (fid::TEMPERATURE_THRESHOLD, 2 << 20, Status::INVALID_FIELD),
        (fid::VOLATILE_WRITE_CACHE, 0, Status::FEATURE_NOT_CHANGEABLE),
        (fid::NUMBER_OF_QUEUES, 0xffff, Status::INVALID_FIELD),
        (fid::NUMBER_OF_QUEUES, 0xffff_0000, Status::INVALID_FIELD),
        (fid::ASYNC_EVENT_CONFIG, 1 << 9, Status::INVALID_FIELD),
        (fid::ASYNC_EVENT_CONFIG, 1 << 13, Status::INVALID_FIELD),
        (fid::ASYNC_EVENT_CONFIG, 1 << 31, Status::INVALID_FIELD),
        (fid::HOST_IDENTIFIER, 1, Status::COMMAND_SEQUENCE),
        (fid::HOST_BEHAVIOR, 0, Status::DATA_SGL_LENGTH_INVALID),
        (fid::ERROR_RECOVERY, 0, Status::INVALID_NAMESPACE),
        (fid::WRITE_PROTECTION, 1, Status::INVALID_NAMESPACE),
        (fid::TIMESTAMP, 0, Status::DATA_SGL_LENGTH_INVALID),
        (0x00, 0, Status::INVALID_FIELD),
        (0x08, 0, Status::INVALID_FIELD),
        (0x19, 0, Status::INVALID_FIELD),
        (0x85, 0, Status::INVALID_FIELD),
        (0xc0, 0, Status::INVALID_FIELD),
    ];
    for (fid, cdw11, expected) in table {
        let reply = bench.set_feature(id, fid, cdw11);
        assert_eq!(reply.status.code(), expected, "{fid:#x} {cdw11:#x}");
    }
    let mut sqe = Sqe::new(admin::SET_FEATURES);
    sqe.cdw10 = (1 << 31 | u32::from(fid::ARBITRATION)).into();
    assert_eq!(
        bench.admin(id, &sqe, &mut []).status.code(),
        Status::FEATURE_NOT_SAVEABLE
    );
    sqe.cdw10 = u32::from(fid::ARBITRATION).into();
    sqe.nsid = 5.into();
    assert_eq!(
        bench.admin(id, &sqe, &mut []).status.code(),
        Status::FEATURE_NOT_NS_SPECIFIC
    );
    sqe.cdw10 = u32::from(fid::ERROR_RECOVERY).into();
    assert_eq!(bench.admin(id, &sqe, &mut []).status, Status::SUCCESS);
    sqe.nsid = NSID_ALL.into();
    assert_eq!(bench.admin(id, &sqe, &mut []).status, Status::SUCCESS);
    sqe.nsid = 5.into();
    sqe.cdw11 = (1 << 16).into();
    assert_eq!(
        bench.admin(id, &sqe, &mut []).status.code(),
        Status::FEATURE_NOT_CHANGEABLE
    );
    bench.io_queue(1, 1).unwrap();
    let late = bench.set_feature(id, fid::NUMBER_OF_QUEUES, 0);
    assert_eq!(late.status.code(), Status::COMMAND_SEQUENCE);
}

#[test]
fn features_with_data() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let mut sqe = Sqe::new(admin::GET_FEATURES);
    sqe.cdw10 = u32::from(fid::HOST_IDENTIFIER).into();
    let mut out = [0; 512];
    assert_eq!(
        bench.admin(id, &sqe, &mut out).status.code(),
        Status::INVALID_FIELD,
        "64 bits"
    );
    sqe.cdw11 = 1.into();
    assert_eq!(bench.admin(id, &sqe, &mut out).data_len, 16);
    assert_eq!(out[..16], HOSTID);
    assert_eq!(
        bench.admin(id, &sqe, &mut out[..15]).status.code(),
        Status::DATA_SGL_LENGTH_INVALID
    );

    let mut data = [0; 512];
    // ACRE, ETDAS, LBAFEE, and copy formats 2h and 3h.
    data[..6].copy_from_slice(&[1, 1, 1, 0, 0b1100, 0]);
    let mut set = Sqe::new(admin::SET_FEATURES);
    set.cdw10 = u32::from(fid::HOST_BEHAVIOR).into();
    let done = bench.run(id, 0, &set, &data, &mut []);
    assert_eq!(done, AdminOutcome::Done(nvmf::Reply::done(0)));
    sqe.cdw10 = set.cdw10;
    assert_eq!(bench.admin(id, &sqe, &mut out).data_len, 512);
    assert_eq!(out, data);
    for at in [0, 1, 2, 3, 4, 5, 6, 511] {
        let mut bad = [0; 512];
        bad[at] = if at == 4 { 1 << 4 } else { 2 };
        let AdminOutcome::Done(reply) = bench.run(id, 0, &set, &bad, &mut []) else {
            panic!("held")
        };
        assert_eq!(reply.status.code(), Status::INVALID_FIELD, "byte {at}");
    }
    let short = bench.run(id, 0, &set, &data[..511], &mut []);
    let expected = Status::DATA_SGL_LENGTH_INVALID.dnr();
    assert_eq!(short, AdminOutcome::Done(nvmf::Reply::failed(expected)));
}

/// Host Behavior Support reaches the queues, and a reset takes it back.
#[test]
fn host_behavior_is_known_to_the_queues() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let activity = bench.io_queue(1, 1).unwrap().activity;
    let busy = Status::COMMAND_INTERRUPTED;
    let allowed = |formats: [u8; 4]| formats.map(|format| activity.allows_copy_format(format));
    assert_eq!(allowed([0, 1, 2, 3]), [true, true, false, false]);
    assert_eq!(activity.delay_retry(busy), busy);
    let mut set = Sqe::new(admin::SET_FEATURES);
    set.cdw10 = u32::from(fid::HOST_BEHAVIOR).into();
    let mut data = [0; 512];
    data[0] = 1;
    data[4] = 1 << 3;
    bench.run(id, 0, &set, &data, &mut []);
    assert_eq!(allowed([0, 1, 2, 3]), [true, true, false, true]);
    assert_eq!(activity.delay_retry(busy).0, busy.0 | 1 << 11, "CRD");
    bench.set_cc(id, 0x0046_0000);
    assert_eq!(allowed([0, 1, 2, 3]), [true, true, false, false]);
    assert_eq!(activity.delay_retry(busy), busy);
}

#[test]
fn the_timestamp_goes_on_from_what_it_was_set_to() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let mut get = Sqe::new(admin::GET_FEATURES);
    get.cdw10 = u32::from(fid::TIMESTAMP).into();
    let mut read = |bench: &mut Bench, select: u32| {
        get.cdw10 = (u32::from(fid::TIMESTAMP) | select << 8).into();
        let mut out = [0xee; 8];
        assert_eq!(bench.admin(id, &get, &mut out).data_len, 8);
        let attributes = out[6];
        out[6] = 0;
        (u64_at(&out, 0), attributes)
    };
    bench.now += 3 * SECOND;
    assert_eq!(
        read(&mut bench, 0),
        (3000, 0),
        "since the controller was made"
    );
    let mut set = Sqe::new(admin::SET_FEATURES);
    set.cdw10 = u32::from(fid::TIMESTAMP).into();
    let ms: u64 = 0x0000_fedc_ba98_7654;
    let done = bench.run(id, 0, &set, &ms.to_le_bytes(), &mut []);
    assert_eq!(done, AdminOutcome::Done(nvmf::Reply::done(0)));
    assert_eq!(read(&mut bench, 0), (ms, 2), "its origin is the host");
    bench.now += SECOND / 2;
    assert_eq!(read(&mut bench, 0), (ms + 500, 2));
    assert_eq!(read(&mut bench, 1), (0, 0), "the default");
    bench.set_cc(id, 0x0046_0000);
    bench.set_cc(id, CC_ENABLE);
    assert_eq!(read(&mut bench, 0), (0, 0), "a reset begins again");
}

/// What Set Features of a namespace's write protection comes to.
fn protect(bench: &mut Bench, nsid: u32, state: u32) -> AdminOutcome {
    let id = bench.registry.controllers().next().unwrap().0;
    let mut sqe = Sqe::new(admin::SET_FEATURES);
    sqe.nsid = nsid.into();
    sqe.cdw10 = u32::from(fid::WRITE_PROTECTION).into();
    sqe.cdw11 = state.into();
    bench.run(id, 0, &sqe, &[], &mut [])
}

#[test]
fn write_protection_is_a_state_of_the_namespace() {
    let mut kept = disk();
    let mut namespaces = kept.namespaces.to_vec();
    namespaces[0].persists_state = true;
    kept.namespaces = namespaces.into();
    let mut bench = Bench::with(vec![kept], &["0.0.0.0:4420"]);
    let id = bench.controller();
    let other = bench.controller();
    let refused = |status: Status| AdminOutcome::Done(nvmf::Reply::failed(status.dnr()));
    let states = [
        WriteProtect::Off,
        WriteProtect::On,
        WriteProtect::UntilPowerCycle,
        WriteProtect::Permanent,
    ];
    for (value, state) in (0..).zip(states) {
        let expected = AdminOutcome::WriteProtect { nsid: 5, state };
        assert_eq!(protect(&mut bench, 5, value), expected);
    }
    for value in 4..8 {
        let outcome = protect(&mut bench, 5, value);
        assert_eq!(outcome, refused(Status::INVALID_FIELD), "state {value}");
    }
    assert_eq!(
        protect(&mut bench, 2, 3),
        refused(Status::INVALID_FIELD),
        "nowhere to keep it"
    );
    for nsid in [0, 1025, NSID_ALL] {
        let outcome = protect(&mut bench, nsid, 1);
        assert_eq!(outcome, refused(Status::INVALID_NAMESPACE), "{nsid:#x}");
    }
    let inactive = protect(&mut bench, 3, 1);
    assert_eq!(inactive, refused(Status::INVALID_FIELD));
    let current = |bench: &mut Bench, select| {
        bench
            .get_feature(other, fid::WRITE_PROTECTION, select, 0)
            .result
    };
    bench.hold_event_request(other, 8);
    let change = bench.registry.set_write_protect(NQN, 5, WriteProtect::On);
    assert_eq!(change.events, [101], "the other controller hears of it");
    assert_eq!(current(&mut bench, select::CURRENT), 1);
    assert_eq!(current(&mut bench, select::DEFAULT), 0);
    let data = bench.identify(id, wire::nvme::identify::cns::NAMESPACE, 5);
    assert_eq!(data.unwrap()[99], 1, "NSATTR");
    // On and off again, but not from the states that are to last.
    let off = AdminOutcome::WriteProtect {
        nsid: 5,
        state: WriteProtect::Off,
    };
    assert_eq!(protect(&mut bench, 5, 0), off);
    for state in [WriteProtect::UntilPowerCycle, WriteProtect::Permanent] {
        let _ = bench.registry.set_write_protect(NQN, 5, state);
        for value in 0..4 {
            let outcome = protect(&mut bench, 5, value);
            assert_eq!(outcome, refused(Status::FEATURE_NOT_CHANGEABLE));
        }
    }
    let nothing = bench.registry.set_write_protect(NQN, 77, WriteProtect::On);
    assert_eq!(nothing, nvmf::ControllerChange::default());
}

/// The features of a namespace that cannot be reached here are elsewhere.
#[test]
fn features_of_an_inaccessible_namespace() {
    let states = [
        (AnaState::Inaccessible, Status::ANA_INACCESSIBLE),
        (AnaState::PersistentLoss, Status::ANA_PERSISTENT_LOSS),
        (AnaState::Change, Status::ANA_TRANSITION),
    ];
    for (state, expected) in states {
        let mut bench = Bench::new();
        let id = bench.controller();
        let change = bench.registry.set_ana(NQN, None, 1, state).unwrap();
        assert!(change.closing.is_empty());
        for fid in [
            fid::ERROR_RECOVERY,
            fid::RESERVATION_NOTIFICATION_MASK,
            fid::RESERVATION_PERSISTENCE,
            fid::WRITE_PROTECTION,
        ] {
            let reply = bench.get_feature(id, fid, 0, 0);
            assert_eq!(reply.status, expected, "{fid:#x}: tried on another path");
            let mut sqe = Sqe::new(admin::SET_FEATURES);
            sqe.nsid = 5.into();
            sqe.cdw10 = u32::from(fid).into();
            let reply = bench.admin(id, &sqe, &mut []);
            assert_eq!(reply.status, expected, "{fid:#x}");
        }
        let reply = bench.get_feature(id, fid::ARBITRATION, 0, 0);
        assert_eq!(reply.status, Status::SUCCESS, "no namespace's");
        let data = bench.identify(id, wire::nvme::identify::cns::NAMESPACE, 5);
        let data = data.unwrap();
        assert_eq!((u64_at(&data, 0), u64_at(&data, 8)), (2048, 2048));
        assert_eq!(u64_at(&data, 16), 0, "NUSE is not to be seen");
        assert_eq!(u32_at(&data, 92), 1, "ANAGRPID");
    }
}

#[test]
fn discovery_controllers_have_two_features() {
    let mut bench = Bench::new();
    let id = bench.enabled(DISCOVERY_NQN, 0);
    assert_eq!(
        bench.get_feature(id, fid::ASYNC_EVENT_CONFIG, 0, 0).result,
        0
    );
    assert_eq!(
        bench
            .set_feature(id, fid::ASYNC_EVENT_CONFIG, 1 << 31)
            .status,
        Status::SUCCESS
    );
    assert_eq!(
        bench
            .set_feature(id, fid::ASYNC_EVENT_CONFIG, 1 << 8)
            .status
            .code(),
        Status::INVALID_FIELD
    );
    assert_eq!(
        bench.set_feature(id, fid::KEEP_ALIVE_TIMER, 1).status,
        Status::SUCCESS
    );
    assert_eq!(
        bench
            .set_feature(id, fid::NUMBER_OF_QUEUES, 1)
            .status
            .code(),
        Status::INVALID_FIELD
    );
    assert_eq!(
        bench
            .admin(id, &Sqe::new(admin::ABORT), &mut [])
            .status
            .code(),
        Status::INVALID_OPCODE
    );
    let id = bench.enabled(DISCOVERY_NQN, 30_000);
    assert_eq!(
        bench.get_feature(id, fid::ASYNC_EVENT_CONFIG, 0, 0).result,
        1 << 31
    );
}
