//! The space below thin provisioned units: what initiators are told of it, and
//! what happens when there is none left.

use needs::each_driver;
use std::sync::atomic::Ordering;

use reactor::Choice;
use server::{Limits, Running};
use store::{Errno, Error, Space};
use wire::iscsi::{TaskFunction, TaskResponse};
use wire::scsi::{asc, key};

use crate::client::{Client, Ended, InitiatorPort, read_16, write_16};
use crate::common::{BLOCK, config, pattern, portal, stop, until, with_gate, with_target};
use crate::gate::Gate;

const MIB: u64 = 1 << 20;

fn have(gate: &Gate, used_bytes: u64, available_bytes: u64) {
    let space = Space {
        used_bytes,
        available_bytes,
        total_bytes: None,
    };
    *gate.space.lock().expect("a lock") = Some(space);
}

/// MODE SELECT(10) of both thresholds, in MiB; 0: not enabled.
fn set(client: &mut Client, lun: u16, available: u32, used: u32) -> Ended {
    let mut list = vec![0; 8];
    list.extend([0x5c, 0x02, 0, 28]);
    list.extend([0; 12]);
    for (arming, resource, count) in [(0, 1, available), (1, 2, used)] {
        list.extend([u8::from(count > 0) << 7 | arming, resource, 0, 0]);
        list.extend(count.to_be_bytes());
    }
    let len = list.len() as u8;
    client.command_out(lun, &[0x55, 0x10, 0, 0, 0, 0, 0, 0, len, 0], &list)
}

/// What the next command of a unit meets: the INFORMATION of a threshold.
fn reached(client: &mut Client, lun: u16) -> Option<u32> {
    let ended = client.test_unit_ready(lun);
    let is_threshold = ended.is_attention(asc::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED);
    assert!(is_threshold || ended.is_good(), "{ended:?}");
    is_threshold.then_some(ended.information)
}

/// Waits for a threshold.
fn is_told(client: &mut Client, lun: u16) -> u32 {
    let mut found = None;
    until("a threshold is reached", || {
        found = reached(client, lun);
        found.is_some()
    });
    found.expect("waited for")
}

fn login(running: &Running, number: u8) -> Client {
    let client = Client::login(portal(running), &InitiatorPort::new(number)).expect("logged in");
    client.calm(&[0, 1])
}

#[each_driver]
fn every_initiator_is_told_once_that_space_is_short(backend: Choice) {
    with_gate(backend, |running, gate| {
        let (mut alice, mut bob) = (login(running, 1), login(running, 2));
        have(gate, 100 * MIB, 50 * MIB);
        assert!(set(&mut alice, 0, 20, 150).is_good());
        assert!(
            bob.test_unit_ready(0)
                .is_attention(asc::MODE_PARAMETERS_CHANGED)
        );
        // Nothing is reached: what is told first is what comes now.
        have(gate, 100 * MIB, 19 * MIB);
        assert_eq!(is_told(&mut alice, 0), 16, "what is available");
        assert_eq!(is_told(&mut bob, 0), 16);
        have(gate, 200 * MIB, 19 * MIB);
        assert_eq!(is_told(&mut bob, 0), 24, "what is used");
        assert_eq!(is_told(&mut alice, 0), 24);
        // It is told again when there was more meanwhile, or after a reset.
        have(gate, 100 * MIB, 50 * MIB);
        is_seen(gate);
        assert_eq!(reached(&mut alice, 0), None);
        have(gate, 100 * MIB, 0);
        assert_eq!(is_told(&mut alice, 0), 16);
        assert_eq!(is_told(&mut bob, 0), 16);
        assert!(bob.function(TaskFunction::LogicalUnitReset, 0, 0) == TaskResponse::Complete);
        for client in [&mut alice, &mut bob] {
            assert!(
                client
                    .test_unit_ready(0)
                    .is_attention(asc::BUS_DEVICE_RESET_FUNCTION_OCCURRED)
            );
            while !client.test_unit_ready(0).is_good() {}
        }
        // The reset has disabled them, and forgotten what was told.
        assert!(set(&mut alice, 0, 20, 0).is_good());
        assert_eq!(is_told(&mut alice, 0), 16);
        assert_eq!(reached(&mut alice, 1), None, "of that unit alone");
        // An initiator that logs in later is told of it too.
        let mut carol = Client::login(portal(running), &InitiatorPort::new(3)).expect("logged in");
        assert!(!carol.test_unit_ready(0).is_good(), "POWER ON");
        assert_eq!(is_told(&mut carol, 0), 16);
        assert_eq!(reached(&mut carol, 0), None);
    });
}

/// Waits until what the gate says now was seen.
fn is_seen(gate: &Gate) {
    let asked = || gate.asked.load(Ordering::Relaxed);
    let before = asked();
    until("the space is looked at twice", || asked() >= before + 2);
}

#[each_driver]
fn written_data_counts_as_used_space(backend: Choice) {
    with_target(backend, |running| {
        let mut client = login(running, 1);
        let before = log(&mut client, 0);
        assert_eq!(before.used, 0);
        assert!(before.available > 0, "the machine's memory");
        assert!(set(&mut client, 0, 0, 2).is_good());
        let data = pattern(1, 3 << 20);
        for (at, piece) in data.chunks(1 << 20).enumerate() {
            let lba = (at * piece.len() / BLOCK) as u64;
            let cdb = write_16(lba, (piece.len() / BLOCK) as u32);
            while !client.command_out(0, &cdb, piece).is_good() {}
        }
        assert_eq!(log(&mut client, 0).used, 3);
        // It may have been met by a write above.
        let mut late = Client::login(portal(running), &InitiatorPort::new(2)).expect("logged in");
        until("it is told", || reached_by(&mut late) == Some(24));
    });
}

/// The same, past other unit attentions.
fn reached_by(client: &mut Client) -> Option<u32> {
    let ended = client.test_unit_ready(0);
    let is_it = ended.is_attention(asc::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED);
    is_it.then_some(ended.information)
}

/// A threshold of the configuration, on a file, below which all file systems are.
#[test]
fn an_administrator_sets_a_threshold() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(Choice::Auto, Limits::default(), 64 << 20);
    config.volumes[1].kind = store::Kind::file(folder.path().join("other"));
    config.iscsi_targets[0].space_warning_bytes = Some(u64::MAX);
    let running = server::start(config).expect("starts");
    let mut client = login_anyhow(&running);
    assert_eq!(is_told(&mut client, 1), 16);
    let log = log(&mut client, 1);
    assert!(log.available > 0);
    assert!(log.used <= 1, "{}", log.used);
    stop(running);
}

fn login_anyhow(running: &Running) -> Client {
    let mut client = Client::login(portal(running), &InitiatorPort::new(1)).expect("logged in");
    assert!(!client.test_unit_ready(1).is_good(), "POWER ON");
    client
}

/// The space that there was is gone: what needs some is refused in the words that
/// stop a virtual machine instead of failing it, and everything else goes on.
#[each_driver]
fn write_without_space_fails_as_data_protect(backend: Choice) {
    with_gate(backend, |running, gate| {
        let mut client = login(running, 1);
        let block = pattern(1, BLOCK);
        assert!(client.command_out(0, &write_16(3, 1), &block).is_good());
        gate.fail(Some(Error::OutOfSpace(Errno::NOSPC)));
        let same = [&[0x93][..], &[0; 12], &[1, 0, 0]].concat();
        let compare = [&[0x89][..], &[0; 12], &[1, 0, 0]].concat();
        for (cdb, blocks) in [(&write_16(4, 1)[..], 1), (&same, 1), (&compare, 2)] {
            let ended = client.command_out(0, cdb, &pattern(1, blocks * BLOCK));
            let sense = Some((
                key::DATA_PROTECT,
                asc::SPACE_ALLOCATION_FAILED_WRITE_PROTECT,
            ));
            assert_eq!(ended.sense, sense, "{cdb:02x?}");
        }
        gate.fail(None);
        let read = client.command(0, &read_16(3, 1), BLOCK as u32);
        assert_eq!(read.data, block);
        assert!(client.command_out(0, &write_16(4, 1), &block).is_good());
    });
}

#[derive(Debug)]
struct Log {
    available: u32,
    used: u32,
}

/// LOG SENSE of Logical Block Provisioning, MiB.
fn log(client: &mut Client, lun: u16) -> Log {
    let log = client.command(lun, &[0x4d, 0, 0x4c, 0, 0, 0, 0, 0, 252, 0], 252);
    assert!(log.is_good(), "{log:?}");
    assert_eq!(log.data[..4], [0x0c, 0, 0, 24]);
    let count = |code: u8, at: usize, scope: u8| {
        assert_eq!(log.data[at..at + 4], [0, code, 3, 8]);
        assert_eq!(log.data[at + 8], scope);
        u32::from_be_bytes(log.data[at + 4..at + 8].try_into().expect("four bytes"))
    };
    Log {
        available: count(1, 4, 2),
        used: count(2, 16, 1),
    }
}
