//! The controller's life: properties, reset, shutdown, keep alive.

use nvmf::{ControllerId, support};
use wire::nvme::discovery::DISCOVERY_NQN;
use wire::nvme::feature::fid;
use wire::nvme::identify::cns;
use wire::nvme::log::lid;
use wire::nvme::property::offset;
use wire::nvme::{PropertySet, Sqe, Status, admin};

use crate::bench::{Bench, CC_ENABLE, NQN, SECOND, command, data, u16_at, u32_at};

const CC_SHUTDOWN: u64 = CC_ENABLE | 1 << 14;
const RDY: u64 = 1;
const CFS: u64 = 2;

/// What a Linux 6.1 or 6.12 host does on the way to a block device, in its order.
#[test]
fn a_linux_host_connects_and_leaves() {
    let mut bench = Bench::new();
    let id = bench.admin_queue(NQN, 5000);
    let cap = bench.property(id, offset::CAP, true).result;
    assert_eq!(cap & 0xffff, 127, "MQES");
    assert_eq!(cap >> 48 & 15, 0, "MPSMIN");
    assert_eq!(bench.property(id, offset::VS, false).result, 0x2_0000);
    assert_eq!(cap >> 59 & 1, 1, "CRWMS");
    assert_eq!(
        bench.property(id, offset::CRTO, false).result,
        cap >> 24 & 0xff
    );
    assert_eq!(bench.csts(id), 0);
    assert_eq!(bench.set_cc(id, CC_ENABLE), Status::SUCCESS);
    assert_eq!(bench.csts(id), RDY);

    let controller = bench.identify(id, cns::CONTROLLER, 0).unwrap();
    assert_eq!(u16_at(&controller, 78), 1, "CNTLID matches Connect");
    assert!(
        bench
            .log(id, lid::COMMAND_EFFECTS, 0xffff_ffff, 0, 4096)
            .is_ok()
    );
    assert!(bench.identify(id, cns::CONTROLLER_CSI, 0).is_ok());
    assert!(bench.log(id, lid::SMART, 0xffff_ffff, 0, 512).is_ok());
    let queues = bench.set_feature(id, fid::NUMBER_OF_QUEUES, 1 | 1 << 16);
    assert_eq!(queues.result, 1 | 1 << 16);
    for qid in 1..=2 {
        assert_eq!(bench.io_queue(1, qid).unwrap().qid, qid);
    }
    let oaes = u32_at(&controller, 92);
    assert_eq!(
        bench.set_feature(id, fid::ASYNC_EVENT_CONFIG, oaes).status,
        Status::SUCCESS
    );
    assert_eq!(bench.hold_event_request(id, 3), nvmf::AdminOutcome::Held);
    let list = bench.identify(id, cns::ACTIVE_NAMESPACES, 0).unwrap();
    for nsid in [u32_at(&list, 0), u32_at(&list, 4)] {
        assert!(bench.identify(id, cns::DESCRIPTORS, nsid).is_ok());
        let independent = bench
            .identify(id, cns::NAMESPACE_INDEPENDENT, nsid)
            .unwrap();
        assert_eq!(independent[14] & 1, 1, "ready");
        assert!(bench.identify(id, cns::NAMESPACE, nsid).is_ok());
        assert!(bench.identify(id, cns::NAMESPACE_CSI, nsid).is_ok());
    }
    assert_eq!(
        bench
            .admin(id, &Sqe::new(admin::KEEP_ALIVE), &mut [])
            .status,
        Status::SUCCESS
    );

    assert_eq!(bench.set_cc(id, CC_SHUTDOWN), Status::SUCCESS);
    assert_eq!(
        bench.csts(id),
        RDY | 1 << 2,
        "shutdown waits for the I/O queues"
    );
    assert_eq!(bench.closing(id), [101, 102]);
    bench.registry.disconnected(id, 1);
    assert_eq!(bench.csts(id), RDY | 1 << 2);
    bench.registry.disconnected(id, 2);
    assert_eq!(bench.csts(id), RDY | 2 << 2, "complete");
    assert!(bench.registry.disconnected(id, 0).is_empty());
    assert!(bench.registry.controller(id).is_none());
}

#[test]
fn a_reset_ends_io_queues_and_restores_defaults() {
    let mut bench = Bench::new();
    let id = bench.controller();
    bench.io_queue(1, 1).unwrap();
    bench.hold_event_request(id, 9);
    bench.set_feature(id, fid::KEEP_ALIVE_TIMER, 30_000);
    assert_eq!(bench.set_cc(id, 0x0046_0000), Status::SUCCESS);
    assert_eq!(bench.csts(id), RDY, "until the queue is gone");
    assert_eq!(bench.set_cc(id, CC_ENABLE), Status::COMMAND_SEQUENCE);
    assert_eq!(bench.closing(id), [101]);
    let (tag, reply) = bench.take_event(id).unwrap();
    assert_eq!((tag, reply.status), (9, Status::ABORTED_SQ_DELETION));
    assert!(bench.take_event(id).is_none());
    assert!(bench.registry.disconnected(id, 1).is_empty());
    assert_eq!(bench.csts(id), 0);
    assert_eq!(
        bench.io_queue(1, 1).unwrap_err().status.code(),
        Status::COMMAND_SEQUENCE
    );

    assert_eq!(bench.set_cc(id, CC_ENABLE), Status::SUCCESS);
    assert_eq!(bench.csts(id), RDY);
    assert_eq!(
        bench.get_feature(id, fid::KEEP_ALIVE_TIMER, 0, 0).result,
        5000
    );
    assert!(bench.io_queue(1, 1).is_ok());
}

#[test]
fn a_connection_is_closed_once_only() {
    let mut bench = Bench::new();
    let id = bench.controller();
    bench.io_queue(1, 1).unwrap();
    bench.set_cc(id, CC_SHUTDOWN);
    bench.set_cc(id, 0);
    assert_eq!(bench.closing(id), [101]);
    assert!(bench.registry.disconnected(id, 0).is_empty());
}

#[test]
fn shutdown_of_either_kind_and_back() {
    for notification in [1, 2] {
        let mut bench = Bench::new();
        let id = bench.controller();
        bench.set_cc(id, CC_ENABLE | notification << 14);
        assert_eq!(bench.csts(id), RDY | 2 << 2);
        assert_eq!(
            bench.io_queue(1, 1).unwrap_err().status.code(),
            Status::COMMAND_SEQUENCE
        );
        assert_eq!(
            bench.identify(id, cns::CONTROLLER, 0),
            Err(Status::COMMAND_SEQUENCE)
        );
        bench.set_cc(id, 0x0046_0000);
        assert_eq!(bench.csts(id), 0);
        bench.set_cc(id, CC_ENABLE);
        assert_eq!(bench.csts(id), RDY);
        assert!(bench.io_queue(1, 1).is_ok());
    }
    let mut bench = Bench::new();
    let id = bench.controller();
    assert_eq!(
        bench.set_cc(id, CC_ENABLE | 3 << 14).code(),
        Status::INVALID_FIELD
    );
    assert_eq!(bench.csts(id), RDY);
}

#[test]
fn enabling_with_an_unsupported_configuration_is_fatal() {
    for cc in [
        0x0000_0001,         // entry sizes 0
        CC_ENABLE | 6 << 4,  // all command sets
        CC_ENABLE | 1 << 7,  // 8 KiB pages
        CC_ENABLE | 1 << 11, // weighted round robin
    ] {
        let mut bench = Bench::new();
        let id = bench.admin_queue(NQN, 0);
        assert_eq!(bench.set_cc(id, cc), Status::SUCCESS);
        assert_eq!(bench.csts(id), CFS, "{cc:#x}");
        bench.set_cc(id, 0);
        assert_eq!(bench.csts(id), 0);
        bench.set_cc(id, CC_ENABLE);
        assert_eq!(bench.csts(id), RDY);
    }
    let mut bench = Bench::new();
    let id = bench.admin_queue(DISCOVERY_NQN, 0);
    bench.set_cc(id, 1);
    assert_eq!(
        bench.csts(id),
        RDY,
        "a discovery controller has no I/O queue entries"
    );
}

#[test]
fn properties_that_are_not_there() {
    let mut bench = Bench::new();
    let id = bench.controller();
    for (offset, is_8_bytes) in [
        (0x08, true),
        (0x14, true),
        (0x20, false),
        (0x1c, true),
        (1, false),
        (0x24, false),
    ] {
        assert_eq!(
            bench.property(id, offset, is_8_bytes).status.code(),
            Status::INVALID_FIELD,
            "{offset:#x}"
        );
    }
    let cap = bench.property(id, offset::CAP, true).result;
    assert_eq!(bench.property(id, 0, false).result, cap & 0xffff_ffff);
    assert_eq!(bench.property(id, 4, false).result, cap >> 32);
    assert_eq!(bench.property(id, offset::CC, false).result, CC_ENABLE);
    for (offset, is_8_bytes) in [
        (offset::CAP, true),
        (offset::VS, false),
        (offset::CSTS, false),
        (offset::CC, true),
    ] {
        let set = PropertySet {
            offset,
            is_8_bytes,
            value: 0,
        };
        let reply = bench.registry.property_set(id, set, 0);
        assert_eq!(reply.status.code(), Status::INVALID_FIELD, "{offset:#x}");
    }
}

/// The properties of the table are the ones there are.
#[test]
fn properties_are_the_ones_of_the_table() {
    let mut bench = Bench::new();
    let id = bench.controller();
    for at in 0..0x200 {
        let starts = |at: u32| support::properties().any(|one| u32::from(one.id) == at);
        let is_cap = at == offset::CAP || at == offset::CAP + 4;
        let reply = bench.property(id, at, false);
        assert_eq!(reply.status.is_success(), starts(at) || is_cap, "{at:#x}");
        let reply = bench.property(id, at, true);
        assert_eq!(reply.status.is_success(), at == offset::CAP, "{at:#x}");
    }
}

#[test]
fn admin_commands_wait_for_enable() {
    let mut bench = Bench::new();
    let id = bench.admin_queue(NQN, 0);
    assert_eq!(
        bench.identify(id, cns::CONTROLLER, 0),
        Err(Status::COMMAND_SEQUENCE)
    );
    bench.set_cc(id, CC_ENABLE);
    assert!(bench.identify(id, cns::CONTROLLER, 0).is_ok());
}

fn expires_at(bench: &mut Bench, id: ControllerId, now: u64) -> bool {
    bench.registry.controller(id).unwrap().on_deadline(now)
}

fn deadline(bench: &mut Bench, id: ControllerId) -> Option<u64> {
    bench.registry.controller(id).unwrap().deadline()
}

#[test]
fn keep_alive_expires_without_traffic_only() {
    let mut bench = Bench::new();
    let id = bench.enabled(NQN, 4500);
    let io = bench.io_queue(1, 1).unwrap();
    assert_eq!(
        bench.get_feature(id, fid::KEEP_ALIVE_TIMER, 0, 0).result,
        5000,
        "granularity"
    );
    // The Get Features counts as traffic: the timer starts again when it would expire.
    assert_eq!(deadline(&mut bench, id), Some(6 * SECOND));
    assert!(!expires_at(&mut bench, id, 6 * SECOND));
    assert_eq!(deadline(&mut bench, id), Some(11 * SECOND));
    io.activity.note();
    assert!(!expires_at(&mut bench, id, 11 * SECOND), "I/O counts too");
    bench.now = 14 * SECOND;
    bench.admin(id, &Sqe::new(admin::KEEP_ALIVE), &mut []);
    assert_eq!(
        deadline(&mut bench, id),
        Some(19 * SECOND),
        "Keep Alive starts it at once"
    );
    assert!(!expires_at(&mut bench, id, 19 * SECOND - 1));
    assert!(expires_at(&mut bench, id, 19 * SECOND));
    assert_eq!(
        bench.closing(id),
        [100, 101],
        "the Admin Queue's connection too"
    );
    assert_eq!(bench.csts(id) & CFS, CFS);
    assert_eq!(deadline(&mut bench, id), None);
    assert!(!expires_at(&mut bench, id, 60 * SECOND), "once");
    assert!(bench.registry.disconnected(id, 0).is_empty());
    assert!(bench.registry.disconnected(id, 1).is_empty());
    assert!(bench.registry.controller(id).is_none());
}

#[test]
fn keep_alive_can_be_off_and_on() {
    let mut bench = Bench::new();
    let id = bench.enabled(NQN, 0);
    assert_eq!(deadline(&mut bench, id), None);
    bench.set_feature(id, fid::KEEP_ALIVE_TIMER, 1);
    assert_eq!(
        bench.get_feature(id, fid::KEEP_ALIVE_TIMER, 0, 0).result,
        1000
    );
    assert_eq!(deadline(&mut bench, id), Some(2 * SECOND));
    bench.set_feature(id, fid::KEEP_ALIVE_TIMER, u32::MAX);
    assert_eq!(
        bench.get_feature(id, fid::KEEP_ALIVE_TIMER, 0, 0).result,
        u64::from(u32::MAX)
    );
}

#[test]
fn a_controller_that_is_not_enabled_does_not_stay_for_ever() {
    let mut bench = Bench::new();
    let id = bench.admin_queue(NQN, 5000);
    assert_eq!(deadline(&mut bench, id), Some(121 * SECOND));
    assert!(expires_at(&mut bench, id, 121 * SECOND));
    let id = bench.enabled(DISCOVERY_NQN, 0);
    // Property Set to enable it was a command.
    assert!(!expires_at(&mut bench, id, 121 * SECOND));
    assert!(expires_at(&mut bench, id, 241 * SECOND));
}

/// Rounded up to the granularity, as Connect and Set Features ask for it, and told as
/// it is.
#[test]
fn keep_alive_timeouts_at_their_bounds() {
    for (asked_ms, kept_ms) in [
        (1, 1000),
        (999, 1000),
        (1000, 1000),
        (1001, 2000),
        (4_294_967_000, 4_294_967_000),
        (4_294_967_001, u32::MAX),
        (u32::MAX, u32::MAX),
    ] {
        for is_set_later in [false, true] {
            let mut bench = Bench::new();
            let id = bench.enabled(NQN, if is_set_later { 5000 } else { asked_ms });
            if is_set_later {
                bench.now += SECOND;
                bench.set_feature(id, fid::KEEP_ALIVE_TIMER, asked_ms);
            }
            let told = bench.get_feature(id, fid::KEEP_ALIVE_TIMER, 0, 0).result;
            assert_eq!(told, u64::from(kept_ms), "{asked_ms}");
            let ends = bench.now + u64::from(kept_ms) * (SECOND / 1000);
            assert_eq!(deadline(&mut bench, id), Some(ends), "{asked_ms}");
            // The commands above are traffic.
            assert!(!expires_at(&mut bench, id, ends));
            let ends = ends + u64::from(kept_ms) * (SECOND / 1000);
            assert!(!expires_at(&mut bench, id, ends - 1));
            assert!(expires_at(&mut bench, id, ends), "{asked_ms}");
        }
    }
}

/// A timeout that is set to 0 is no timeout, however late it comes; a reset returns
/// to what Connect asked for.
#[test]
fn keep_alive_that_is_set_to_0_ends_nothing() {
    let mut bench = Bench::new();
    let id = bench.enabled(NQN, 1000);
    bench.now += 10 * SECOND;
    bench.set_feature(id, fid::KEEP_ALIVE_TIMER, 0);
    assert_eq!(deadline(&mut bench, id), None);
    assert!(!expires_at(&mut bench, id, u64::MAX));
    bench.set_cc(id, 0);
    bench.set_cc(id, CC_ENABLE);
    let ends = bench.now + SECOND;
    assert_eq!(deadline(&mut bench, id), Some(ends));
}

/// A host that connects its queues one by one for longer than its timeout is there.
#[test]
fn a_queue_that_is_connected_is_traffic_and_its_timeout_is_none() {
    let mut bench = Bench::new();
    let id = bench.enabled(NQN, 1000);
    for qid in 1..=4 {
        let ends = deadline(&mut bench, id).expect("a timeout");
        bench.now = ends - 1;
        bench
            .connect(&command(qid, 127, 60_000), &data(1, NQN))
            .unwrap();
        assert!(!expires_at(&mut bench, id, ends), "queue {qid}");
        assert_eq!(deadline(&mut bench, id), Some(ends + SECOND));
    }
    // A queue that is refused is none.
    let ends = deadline(&mut bench, id).expect("a timeout");
    bench
        .connect(&command(4, 127, 0), &data(1, NQN))
        .unwrap_err();
    assert!(expires_at(&mut bench, id, ends));
}

#[test]
fn keep_alive_ends_the_queues_of_its_controller_alone() {
    let mut bench = Bench::new();
    let ids: Vec<_> = (0..3).map(|_| bench.enabled(NQN, 1000)).collect();
    for cntlid in 1..=3 {
        for qid in 1..=2 {
            bench.io_queue(cntlid, qid).unwrap();
        }
    }
    let ends = deadline(&mut bench, ids[1]).expect("a timeout") + SECOND;
    assert!(!expires_at(&mut bench, ids[1], ends - SECOND));
    assert!(expires_at(&mut bench, ids[1], ends));
    assert_eq!(bench.closing(ids[1]).len(), 3);
    let refused = bench.io_queue(2, 3).unwrap_err();
    assert_eq!(refused.status.code(), Status::CONNECT_INVALID_PARAMETERS);
    for (cntlid, id) in [(1, ids[0]), (3, ids[2])] {
        assert!(bench.closing(id).is_empty());
        assert_eq!(bench.csts(id), RDY);
        assert!(bench.io_queue(cntlid, 3).is_ok());
    }
}
