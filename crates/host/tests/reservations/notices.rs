//! What hosts are told.

use host::Payload;
use wire::nvme::feature::fid;
use wire::nvme::property::offset;
use wire::nvme::reservation::{action, mask, notice};
use wire::nvme::{NSID_ALL, PropertySet, Sqe, Status, admin};

use crate::ends::stop;
use crate::fabric::*;

/// Dword 0: I/O Command Set Specific, Reservation Log Page Available, page 80h.
const LOG_PAGE_AVAILABLE: u32 = 0x80_0006;

fn event(host: &mut Host) -> u32 {
    let request = Sqe::new(admin::ASYNC_EVENT_REQUEST);
    host.admin(&request, Payload::None).expect("an event")
}

#[test]
fn each_registrant_is_notified_of_what_happened_to_it() {
    WAYS.into_iter().for_each(each_is_notified);
}

fn each_is_notified(way: Way) {
    let running = serve_ram();
    let to = running.addresses()[0];
    let mut hosts = [1, 2, 3, 4].map(|number| Host::connect_by(way, to, NQN, number));
    let [a, b, c, stranger] = &mut hosts;
    for (host, key) in [(&mut *a, 1), (&mut *b, 2), (&mut *c, 3)] {
        host.join(key);
        assert_eq!(host.notification(false), (0, notice::EMPTY, 0, 0));
    }
    // Released: the other registrants are notified.
    assert_eq!(a.acquire(action::ACQUIRE, 1, 0, 3), Status::SUCCESS);
    assert_eq!(a.release(action::RELEASE, 1, 3), Status::SUCCESS);
    for host in [&mut *b, &mut *c] {
        assert_eq!(event(host), LOG_PAGE_AVAILABLE);
        let released = (1, notice::RESERVATION_RELEASED, 0, 1);
        assert_eq!(host.notification(true), released, "retained");
        assert_eq!(host.notification(false), released);
        assert_eq!(host.notification(false).1, notice::EMPTY);
    }
    // The release of a reservation of the holder alone is not notified.
    assert_eq!(a.acquire(action::ACQUIRE, 1, 0, 1), Status::SUCCESS);
    assert_eq!(a.release(action::RELEASE, 1, 1), Status::SUCCESS);
    assert_eq!(b.notification(false).1, notice::EMPTY);
    // Preempted, and the type changed under the third.
    assert_eq!(a.acquire(action::ACQUIRE, 1, 0, 3), Status::SUCCESS);
    assert_eq!(b.acquire(action::PREEMPT, 2, 1, 4), Status::SUCCESS);
    assert_eq!(
        a.notification(false),
        (1, notice::REGISTRATION_PREEMPTED, 0, 1)
    );
    assert_eq!(
        c.notification(false),
        (2, notice::RESERVATION_RELEASED, 0, 1)
    );
    assert_eq!(b.report(64).rtype(), 4);
    // Cleared.
    assert_eq!(c.release(action::CLEAR, 3, 0), Status::SUCCESS);
    assert_eq!(
        b.notification(false),
        (2, notice::RESERVATION_PREEMPTED, 0, 1)
    );
    for host in [c, a, stranger] {
        assert_eq!(host.notification(false).1, notice::EMPTY);
    }
    stop(running);
}

#[test]
fn several_notifications_wait_in_turn_and_each_is_an_event() {
    let running = serve_ram();
    let to = running.addresses()[0];
    let (mut a, mut b) = (Host::connect(to, 1), Host::connect(to, 2));
    a.join(1);
    b.join(2);
    for rtype in 3..=6 {
        assert_eq!(a.acquire(action::ACQUIRE, 1, 0, rtype), Status::SUCCESS);
        assert_eq!(a.release(action::RELEASE, 1, rtype), Status::SUCCESS);
    }
    for count in 1..=4 {
        assert_eq!(event(&mut b), LOG_PAGE_AVAILABLE);
        let (number, kind, left, nsid) = b.notification(false);
        assert_eq!(
            (number, kind, nsid),
            (count, notice::RESERVATION_RELEASED, 1)
        );
        assert_eq!(u64::from(left), 4 - count);
    }
    assert_eq!(b.notification(false), (0, notice::EMPTY, 0, 0));
    stop(running);
}

#[test]
fn an_async_event_request_that_waits_is_answered_by_a_notification() {
    let running = serve_ram();
    let to = running.addresses()[0];
    let (mut a, mut b) = (Host::connect(to, 1), Host::connect(to, 2));
    a.join(1);
    b.join(2);
    // An Admin Queue by hand: a second controller of b.
    let mut path = Line::open((to, by_tcp(2)), NQN, &identity(2), (0, 0xffff));
    let enable = PropertySet {
        offset: offset::CC,
        is_8_bytes: false,
        value: 1 | 6 << 16 | 4 << 20,
    };
    assert_eq!(path.run(&enable.encode(), &[]), Status::SUCCESS);
    let waits = path.submit(&Sqe::new(admin::ASYNC_EVENT_REQUEST), &[], 0);
    assert_eq!(path.run(&Sqe::new(admin::KEEP_ALIVE), &[]), Status::SUCCESS);
    assert!(!path.is_done(waits), "nothing has happened yet");
    assert_eq!(a.acquire(action::ACQUIRE, 1, 0, 5), Status::SUCCESS);
    assert_eq!(a.release(action::RELEASE, 1, 5), Status::SUCCESS);
    let (completion, _) = path.complete(waits);
    assert_eq!(completion.result as u32, LOG_PAGE_AVAILABLE);
    // Every controller of the host is told.
    assert_eq!(b.notification(false).1, notice::RESERVATION_RELEASED);
    stop(running);
}

#[test]
fn masked_notifications_are_not_sent() {
    let running = serve_ram();
    let to = running.addresses()[0];
    let (mut a, mut b) = (Host::connect(to, 1), Host::connect(to, 2));
    let mut path = Host::connect(to, 2);
    let feature = fid::RESERVATION_NOTIFICATION_MASK;
    assert_eq!(b.feature(feature), Ok(0));
    let invalid = Err(Status::INVALID_FIELD.dnr());
    assert_eq!(b.set_feature(1, feature, 1), invalid, "a reserved bit");
    let released = mask::RESERVATION_RELEASED;
    assert_eq!(b.set_feature(NSID_ALL, feature, released), Ok(0));
    assert_eq!(b.feature(feature), Ok(released));
    a.join(1);
    b.join(2);
    assert_eq!(a.acquire(action::ACQUIRE, 1, 0, 3), Status::SUCCESS);
    assert_eq!(a.release(action::RELEASE, 1, 3), Status::SUCCESS);
    assert_eq!(a.release(action::CLEAR, 1, 0), Status::SUCCESS);
    assert_eq!(
        b.notification(false),
        (1, notice::RESERVATION_PREEMPTED, 0, 1)
    );
    assert_eq!(b.notification(false).1, notice::EMPTY);
    // The mask is the controller's, not the host's.
    assert_eq!(path.notification(false).1, notice::RESERVATION_RELEASED);
    // And returns to its default with the controller's reset.
    b.admin.reset().expect("a reset");
    assert_eq!(b.feature(feature), Ok(0));
    stop(running);
}
