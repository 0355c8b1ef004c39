//! Several sessions, several connections of one, and sessions that come again.

use needs::each_driver;
use reactor::Choice;
use store::reservation::{Registrant, ReservationRequest};
use wire::scsi::{opcode as op, status};

use crate::client::{Client, InitiatorPort, read_16, write_16};
use crate::common::{BLOCK, pattern, portal, until, with_gate, with_target};

/// Connections of one session end up on one reactor, whichever took them, and
/// their commands are in one order.
#[each_driver]
fn connections_of_a_session_share_its_commands(backend: Choice) {
    with_target(backend, |running| {
        let initiator = InitiatorPort::new(1).with("MaxConnections", "4");
        let mut first = Client::login(portal(running), &initiator)
            .expect("in")
            .calm(&[0]);
        assert!(
            first.answers.contains("MaxConnections=4\0"),
            "{}",
            first.answers
        );
        let mut others: Vec<Client> = (1..4)
            .map(|cid| {
                let initiator = InitiatorPort {
                    tsih: first.tsih,
                    cid,
                    cmd_sn: first.cmd_sn,
                    ..initiator.clone()
                };
                Client::login(portal(running), &initiator).expect("joined")
            })
            .collect();
        // One after the other through the connections, sent in the wrong order:
        // the last one first.
        let mut cmd_sn = first.cmd_sn;
        for round in 0..8u8 {
            let data = pattern(round, BLOCK);
            let sns: Vec<u32> = (0..4).map(|at| cmd_sn.wrapping_add(at)).collect();
            cmd_sn = cmd_sn.wrapping_add(4);
            let (write, read) = (write_16(u64::from(round), 1), read_16(u64::from(round), 1));
            let mut reads = Vec::new();
            for (other, sn) in others.iter_mut().zip(&sns[1..]).rev() {
                other.cmd_sn = *sn;
                reads.push(other.start_read(0, &read, BLOCK as u32));
            }
            first.cmd_sn = sns[0];
            let itt = first.start_write(0, &write, &data, BLOCK);
            assert!(first.end_of(itt, &data).is_good());
            for (other, itt) in others.iter_mut().rev().zip(reads) {
                let ended = other.end_of(itt, &[]);
                assert!(ended.is_good() && ended.data == data, "round {round}");
            }
        }
        // One connection less is no matter to the others.
        assert_eq!(first.logout(1, 2), 0);
        others.remove(1).expect_end();
        first.cmd_sn = cmd_sn;
        assert!(first.command(0, &read_16(0, 1), BLOCK as u32).is_good());
        // The whole session.
        assert_eq!(first.logout(0, 0), 0);
        first.expect_end();
        others.into_iter().for_each(Client::expect_end);
    });
}

/// The same initiator port again: the session before it is over first, though
/// its volume hangs.
#[each_driver]
fn a_session_that_comes_again_takes_the_place_of_the_old_one(backend: Choice) {
    with_gate(backend, |running, gate| {
        let initiator = InitiatorPort::new(1);
        let mut old = Client::login(portal(running), &initiator)
            .expect("in")
            .calm(&[0]);
        assert!(old.command(0, &[op::RESERVE_6, 0, 0, 0, 0, 0], 0).is_good());
        gate.shut();
        old.start_write(0, &write_16(0, 1), &pattern(1, BLOCK), BLOCK);
        until("the write hangs", || gate.hanging() == 1);
        let mut new = Client::login(portal(running), &initiator).expect("in again");
        assert_ne!(new.tsih, old.tsih);
        old.expect_end();
        gate.open();
        // What the old one had reserved is free, for others too.
        new = new.calm(&[0, 1]);
        let mut other = Client::login(portal(running), &InitiatorPort::new(2))
            .expect("in")
            .calm(&[1]);
        until("the reservation is gone", || {
            other.test_unit_ready(0).is_good()
        });
        assert!(new.command(0, &read_16(8, 1), BLOCK as u32).is_good());
    });
}

/// An initiator with the answer to a logout may reserve what the session had reserved: that
/// is free though the connection has not ended.
#[each_driver]
fn a_logout_gives_the_reservation_up_before_its_connection_ends(backend: Choice) {
    with_target(backend, |running| {
        let mut first = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0, 1]);
        let reserved = first.command(0, &[op::RESERVE_6, 0, 0, 0, 0, 0], 0);
        assert!(reserved.is_good());
        // So much is on the way to the initiator, which reads nothing, that the answer to
        // the logout stays in the target, and the connection with it.
        for _ in 0..100 {
            first.start_read(1, &read_16(0, 64), 64 * BLOCK as u32);
        }
        first.start_logout(0, 0);
        let volume = &running.volumes()[0];
        until("the reservation is gone", || {
            volume.reservations().report().reserved.is_none()
        });
        assert_eq!(crate::report::report(running).connections, 1, "not ended");
        first.expect_end();
    });
}

/// What SCSI reserves keeps an NVMe host out of the same volume, and the other
/// way round; see `tests/target/scsi` for the rules.
#[each_driver]
fn a_connection_that_is_lost_gives_its_reservation_up(backend: Choice) {
    with_target(backend, |running| {
        let mut first = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0]);
        let mut other = Client::login(portal(running), &InitiatorPort::new(2))
            .expect("in")
            .calm(&[0]);
        assert!(
            first
                .command(0, &[op::RESERVE_6, 0, 0, 0, 0, 0], 0)
                .is_good()
        );
        let refused = other.command(0, &read_16(0, 1), BLOCK as u32);
        assert_eq!(refused.status, status::RESERVATION_CONFLICT);
        let refused = other.command_out(0, &write_16(0, 1), &pattern(1, BLOCK));
        assert_eq!(refused.status, status::RESERVATION_CONFLICT);
        drop(first);
        until("the reservation is gone", || {
            other.command(0, &read_16(0, 1), BLOCK as u32).is_good()
        });
        let volume = &running.volumes()[0];
        let host = Registrant::NvmeHost([7; 16]);
        let taken = volume.reservations().change(
            &host,
            &ReservationRequest::Register {
                key: 1,
                persist: None,
            },
        );
        taken.expect("no other is registered");
    });
}
