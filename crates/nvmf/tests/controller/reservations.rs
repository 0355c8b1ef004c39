//! What a controller keeps of reservations: the mask of its notifications, the
//! notifications, and what it lets through to the driver.

use std::collections::BTreeMap;

use nvmf::reservation::Notice;
use nvmf::{AdminOutcome, ControllerChange, ControllerId, Reply};
use wire::nvme::feature::{fid, select};
use wire::nvme::log::lid;
use wire::nvme::{NSID_ALL, Sqe, Status, admin};

use crate::bench::{Bench, HOSTID, NQN, disk, namespace, subsystem, u32_at, u64_at};

const OTHER: &str = "nqn.2024-01.org.example:other";
/// Dword 0 of the event: I/O Command Specific Status, Reservation Log Page Available.
const EVENT: u64 = 0x80_0006;

fn set(bench: &mut Bench, fid: u8, nsid: u32, cdw11: u32) -> AdminOutcome {
    let id = bench.registry.controllers().next().unwrap().0;
    let mut sqe = Sqe::new(admin::SET_FEATURES);
    sqe.nsid = nsid.into();
    sqe.cdw10 = u32::from(fid).into();
    sqe.cdw11 = cdw11.into();
    bench.run(id, 0, &sqe, &[], &mut [])
}

fn refused(status: Status) -> AdminOutcome {
    AdminOutcome::Done(Reply::failed(status.dnr()))
}

fn notify(bench: &mut Bench, uuid: u8, hostid: [u8; 16], notice: Notice) -> ControllerChange {
    let notices = BTreeMap::from([(hostid, notice)]);
    bench.registry.notify_reservation([uuid; 16], &notices)
}

/// Number, kind, how many more, and the namespace of the oldest notification.
fn read(bench: &mut Bench, id: ControllerId) -> (u64, u8, u8, u32) {
    let page = bench.log(id, lid::RESERVATION_NOTIFICATION, 0, 0, 64);
    let page = page.unwrap();
    (u64_at(&page, 0), page[8], page[9], u32_at(&page, 12))
}

#[test]
fn mask_is_a_namespaces_or_of_all() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let feature = fid::RESERVATION_NOTIFICATION_MASK;
    let done = AdminOutcome::Done(Reply::done(0));
    let mut masked = |nsid, bits| {
        let outcome = set(&mut bench, feature, nsid, bits);
        let mask = bench.get_feature(id, feature, select::CURRENT, 0).result;
        (outcome, mask)
    };
    let bits = 0b1110;
    assert_eq!(masked(5, bits), (done, u64::from(bits)));
    for wrong in [1, 1 << 4, 1 << 31, u32::MAX] {
        let expected = (refused(Status::INVALID_FIELD), u64::from(bits));
        assert_eq!(masked(5, wrong), expected, "{wrong:#x}");
    }
    assert_eq!(masked(2, 0b10), (done, u64::from(bits)));
    assert_eq!(masked(NSID_ALL, 0b100), (done, 0b100));
}

/// Persistence through power loss is the driver's to change, where there is
/// something that keeps it.
#[test]
fn persistence_is_for_namespaces_that_keep_their_state() {
    let mut kept = disk();
    let mut namespaces = kept.namespaces.to_vec();
    namespaces[0].persists_state = true;
    kept.namespaces = namespaces.into();
    let mut bench = Bench::with(vec![kept.clone()], &["0.0.0.0:4420"]);
    bench.controller();
    let persistence = |nsid, set| AdminOutcome::ReservationPersistence { nsid, set };
    let mut change = |nsid, value| set(&mut bench, fid::RESERVATION_PERSISTENCE, nsid, value);
    for (nsid, value, is_set) in [(5, 1, true), (5, 0, false), (2, 0, false)] {
        let expected = persistence(nsid, Some(is_set));
        assert_eq!(change(nsid, value), expected, "{nsid}: {value}");
    }
    assert_eq!(change(NSID_ALL, 0), persistence(NSID_ALL, Some(false)));
    let invalid = refused(Status::INVALID_FIELD);
    for (nsid, value) in [(2, 1), (NSID_ALL, 1), (5, 2), (5, u32::MAX)] {
        assert_eq!(change(nsid, value), invalid, "{nsid}: {value}");
    }
    // One that the host does not see does not matter.
    let mut namespaces = kept.namespaces.to_vec();
    namespaces[1].hosts = Some(vec![OTHER.to_owned()]);
    kept.namespaces = namespaces.into();
    let _ = bench.registry.replace_subsystem(kept.into());
    let all = set(&mut bench, fid::RESERVATION_PERSISTENCE, NSID_ALL, 1);
    assert_eq!(all, persistence(NSID_ALL, Some(true)));
}

/// A page is read once, and the next one is told by an event of its own.
#[test]
fn each_notification_is_told_and_read_once() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let connection = bench.last_connection();
    for tag in 1..=3 {
        bench.hold_event_request(id, tag);
    }
    let change = notify(&mut bench, 5, HOSTID, Notice::RegistrationPreempted);
    assert_eq!(change.events, [connection]);
    let event = |bench: &mut Bench| bench.take_event(id).map(|(tag, reply)| (tag, reply.result));
    assert_eq!(event(&mut bench), Some((1, EVENT)));
    let _ = notify(&mut bench, 2, HOSTID, Notice::ReservationReleased);
    assert_eq!(event(&mut bench), None, "one event until it is read");
    assert_eq!(read(&mut bench, id), (1, 1, 1, 5));
    assert_eq!(event(&mut bench), Some((2, EVENT)), "there is another");
    assert_eq!(read(&mut bench, id), (2, 2, 0, 2));
    assert_eq!(event(&mut bench), None, "there is none");
    assert_eq!(read(&mut bench, id), (0, 0, 0, 0));
    let _ = notify(&mut bench, 5, HOSTID, Notice::ReservationPreempted);
    assert_eq!(event(&mut bench), Some((3, EVENT)));
    assert_eq!(read(&mut bench, id), (3, 3, 0, 5));
}

#[test]
fn notifications_are_for_a_host_that_sees_the_volume() {
    let mut masked = namespace(7, 512, 8);
    masked.hosts = Some(vec![OTHER.to_owned()]);
    let shown = subsystem(NQN, vec![namespace(5, 512, 8), masked]);
    let mut bench = Bench::with(vec![shown], &["0.0.0.0:4420"]);
    let id = bench.controller();
    let connection = bench.last_connection();
    bench.hold_event_request(id, 1);
    let released = Notice::ReservationReleased;
    for (uuid, hostid, what) in [
        (5, [8; 16], "another host's"),
        (6, HOSTID, "of no namespace"),
        (7, HOSTID, "of a namespace that the host does not see"),
    ] {
        let change = notify(&mut bench, uuid, hostid, released);
        assert_eq!(change, ControllerChange::default(), "{what}");
        assert_eq!(read(&mut bench, id), (0, 0, 0, 0), "{what}");
    }
    let _ = set(&mut bench, fid::RESERVATION_NOTIFICATION_MASK, 5, 0b100);
    assert_eq!(
        notify(&mut bench, 5, HOSTID, released),
        ControllerChange::default()
    );
    let preempted = Notice::ReservationPreempted;
    assert_eq!(
        notify(&mut bench, 5, HOSTID, preempted).events,
        [connection]
    );
    assert_eq!(read(&mut bench, id), (1, 3, 0, 5));
}
