//! Fields of commands, of the report and of notifications.

use super::*;

fn sqe(opcode: u8, cdw10: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode);
    sqe.cdw10 = cdw10.into();
    sqe
}

/// Two keys as they lie in a command's data.
fn keys(first: u64, second: u64) -> [u8; 16] {
    let mut data = [0; 16];
    data[..8].copy_from_slice(&first.to_le_bytes());
    data[8..].copy_from_slice(&second.to_le_bytes());
    data
}

#[test]
fn every_action_is_read() {
    let data = keys(1, 2);
    let (current, key, victim) = (1, 2, 2);
    for (opcode, cdw10, expected) in [
        (0x0d, 0, ReservationCommand::Register { key, persist: None }),
        (
            0x0d,
            3 << 30,
            ReservationCommand::Register {
                key,
                persist: Some(true),
            },
        ),
        (
            0x0d,
            1 | 2 << 30,
            ReservationCommand::Unregister {
                current: Some(current),
                persist: Some(false),
            },
        ),
        (
            0x0d,
            1 | 1 << 3,
            ReservationCommand::Unregister {
                current: None,
                persist: None,
            },
        ),
        (
            0x0d,
            2,
            ReservationCommand::Replace {
                current: Some(current),
                key,
                persist: None,
            },
        ),
        (
            0x0d,
            2 | 1 << 3,
            ReservationCommand::Replace {
                current: None,
                key,
                persist: None,
            },
        ),
        (
            0x11,
            1 << 8,
            ReservationCommand::Acquire { current, rtype: 1 },
        ),
        (
            0x11,
            1 | 6 << 8,
            ReservationCommand::Preempt {
                current,
                victim,
                rtype: 6,
                aborts: false,
            },
        ),
        (
            0x11,
            2 | 4 << 8,
            ReservationCommand::Preempt {
                current,
                victim,
                rtype: 4,
                aborts: true,
            },
        ),
        (
            0x15,
            5 << 8,
            ReservationCommand::Release { current, rtype: 5 },
        ),
        (0x15, 1, ReservationCommand::Clear { current }),
    ] {
        let command = sqe(opcode, cdw10);
        assert_eq!(
            decode(&command, &data),
            Ok(expected),
            "{opcode:x} {cdw10:x}"
        );
    }
    let mut report = sqe(0x0e, 15);
    report.cdw11 = 1.into();
    assert_eq!(decode(&report, &[]), Ok(ReservationCommand::Report));
    assert_eq!(report_len(&report), 64);
    assert_eq!(report_len(&sqe(0x0e, u32::MAX)), 1 << 34);
    assert!(
        decode(&sqe(0x15, 5 << 8), &data[..8]).is_ok(),
        "one key is enough"
    );
}

#[test]
fn reserved_actions_and_types_are_refused() {
    let data = keys(1, 2);
    let invalid = Status::INVALID_FIELD;
    for (opcode, cdw10, status) in [
        (0x0d, 3, invalid),
        (0x0d, 7, invalid),
        (0x0d, 1 << 30, invalid),
        (0x11, 0, invalid),
        (0x11, 7 << 8, invalid),
        (0x11, 255 << 8, invalid),
        (0x11, 3 | 1 << 8, invalid),
        (0x11, 1 << 3 | 1 << 8, invalid),
        (0x15, 0, invalid),
        (0x15, 2 | 1 << 8, invalid),
        (0x15, 1 << 3 | 1 << 8, invalid),
        (0x0e, 15, Status::HOST_ID_INCONSISTENT),
        (0x01, 0, Status::INVALID_OPCODE),
    ] {
        let got = decode(&sqe(opcode, cdw10), &data);
        assert_eq!(got, Err(status.dnr()), "{opcode:x} {cdw10:x}");
    }
    for (opcode, len) in [(0x0d, 15), (0x11, 8), (0x15, 7)] {
        assert_eq!(
            decode(&sqe(opcode, 1 << 8), &data[..len]),
            Err(Status::DATA_SGL_LENGTH_INVALID.dnr()),
            "{opcode:x}"
        );
    }
}

#[test]
fn a_report_has_the_layout_of_the_standard() {
    let registrants = [([0xaa; 16], 0x0102, false), ([0xbb; 16], u64::MAX, true)];
    let bytes = report(0x0a0b_0c0d, 4, true, registrants.into_iter());
    assert_eq!(bytes.len(), 64 * 3);
    assert_eq!(
        bytes[..16],
        [0x0d, 0x0c, 0x0b, 0x0a, 4, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(
        bytes[64..80],
        [0xff, 0xff, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(bytes[80..96], [0xaa; 16]);
    assert_eq!(bytes[128..131], [0xff, 0xff, 1]);
    assert_eq!(bytes[136..144], [0xff; 8]);
    assert!(bytes[160..].iter().all(|byte| *byte == 0));
    assert_eq!((rescap(false), rescap(true)), (0xfe, 0xff));
}

#[test]
fn notifications_wait_in_turn_and_the_lost_are_counted() {
    let mut notifications = Notifications::default();
    let empty = notifications.page();
    assert_eq!(
        (empty.count.get(), empty.kind, empty.available),
        (0, 0, 0),
        "nothing to tell"
    );
    for _ in 0..NOTIFICATIONS_MAX + 10 {
        assert!(notifications.push(7, Notice::ReservationReleased));
    }
    let first = notifications.page();
    assert_eq!((first.count.get(), first.nsid.get()), (1, 7));
    assert_eq!((first.kind, first.available), (2, 255));
    notifications.queue.drain(..NOTIFICATIONS_MAX - 1);
    assert_eq!(notifications.page().available, 0);
    assert_eq!(notifications.page().count.get(), NOTIFICATIONS_MAX as u64);
    notifications.queue.clear();
    notifications.push(7, Notice::ReservationPreempted);
    let next = notifications.page();
    let lost = next.count.get() - NOTIFICATIONS_MAX as u64 - 1;
    assert_eq!((lost, next.kind), (10, 3), "the gap is what was lost");
    notifications.count = u64::MAX;
    notifications.queue.clear();
    notifications.push(7, Notice::RegistrationPreempted);
    assert_eq!(notifications.page().count.get(), 1, "0 is no number");
}

#[test]
fn masked_notifications_are_neither_kept_nor_counted() {
    let mut notifications = Notifications::default();
    notifications.set_mask(NSID_ALL, mask::RESERVATION_RELEASED);
    notifications.set_mask(
        3,
        mask::RESERVATION_PREEMPTED | mask::REGISTRATION_PREEMPTED,
    );
    assert!(!notifications.push(1, Notice::ReservationReleased));
    assert!(notifications.push(3, Notice::ReservationReleased));
    assert!(!notifications.push(3, Notice::ReservationPreempted));
    assert!(!notifications.push(3, Notice::RegistrationPreempted));
    assert!(notifications.push(1, Notice::RegistrationPreempted));
    assert_eq!((notifications.queue.len(), notifications.count), (2, 2));
    notifications.set_mask(NSID_ALL, 0);
    assert!(notifications.push(3, Notice::ReservationPreempted));
}
