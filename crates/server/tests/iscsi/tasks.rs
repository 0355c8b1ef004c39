//! Task management, against a volume that hangs.

use needs::each_driver;
use reactor::Choice;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use server::{Config, Limits};
use store::Volume;
use wire::iscsi::{TaskFunction, TaskResponse, opcode};
use wire::scsi::opcode::RESERVE_6;
use wire::scsi::opcode::persistent_reserve_in as reserve_in;
use wire::scsi::opcode::persistent_reserve_out as reserve_out;
use wire::scsi::{asc, cdb};

use crate::client::{Client, InitiatorPort, read_16, write_16};
use crate::common::{
    BLOCK, config, pattern, portal, stop, until, with_gate, with_gate_and, with_target,
};
use crate::gate::Gate;

/// Bounded, as far as a test can say: the volume stays shut meanwhile.
const AT_ONCE: Duration = Duration::from_secs(10);

#[each_driver]
fn a_task_on_a_volume_that_hangs_is_aborted_at_once(backend: Choice) {
    with_gate(backend, |running, gate| {
        let mut client = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0]);
        gate.shut();
        let data = pattern(1, BLOCK);
        let hanging = client.start_write(0, &write_16(0, 1), &data, BLOCK);
        until("it hangs", || gate.hanging() == 1);
        let began = Instant::now();
        let response = client.function(TaskFunction::AbortTask, 0, hanging);
        assert_eq!(response, TaskResponse::Complete);
        assert!(began.elapsed() < AT_ONCE);
        let response = client.function(TaskFunction::AbortTask, 0, hanging);
        assert_eq!(response, TaskResponse::NoTask);
        assert!(
            client.command(1, &[0; 6], 0).sense.is_some(),
            "the others go on"
        );
        until("an orphan is left", || {
            crate::report::report(running).orphans == 1
        });
        gate.open();
        until("the orphan ends", || {
            crate::report::report(running).orphans == 0
        });
        assert!(client.command(0, &read_16(0, 1), BLOCK as u32).is_good());
    });
}

#[each_driver]
fn a_task_set_is_aborted_and_other_nexuses_keep_theirs(backend: Choice) {
    with_gate(backend, |running, gate| {
        let mut client = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0, 1]);
        let mut other = Client::login(portal(running), &InitiatorPort::new(2))
            .expect("in")
            .calm(&[0]);
        gate.shut();
        for n in 0..4 {
            client.start_write(0, &write_16(n, 1), &pattern(1, BLOCK), BLOCK);
        }
        let kept = other.start_read(0, &read_16(9, 1), BLOCK as u32);
        until("they hang", || gate.hanging() == 5);
        for function in [TaskFunction::AbortTaskSet, TaskFunction::ClearTaskSet] {
            let response = client.function(function, 0, u32::MAX);
            assert_eq!(response, TaskResponse::Complete);
        }
        let nowhere = client.function(TaskFunction::AbortTaskSet, 7, u32::MAX);
        assert_eq!(nowhere, TaskResponse::NoLun);
        gate.open();
        assert!(other.end_of(kept, &[]).is_good());
        assert!(client.command(0, &read_16(0, 1), BLOCK as u32).is_good());
        let unsupported = client.function(TaskFunction::ClearAca, 0, u32::MAX);
        assert_eq!(unsupported, TaskResponse::NotSupported);
    });
}

#[each_driver]
fn reset_ends_the_tasks_of_all_nexuses_with_a_unit_attention(backend: Choice) {
    with_gate(backend, |running, gate| {
        let mut client = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0, 1]);
        let mut other = Client::login(portal(running), &InitiatorPort::new(2))
            .expect("in")
            .calm(&[0, 1]);
        for (function, luns) in [
            (TaskFunction::LogicalUnitReset, &[0][..]),
            (TaskFunction::TargetWarmReset, &[0, 1]),
        ] {
            assert!(
                other.command(0, &[0x16, 0, 0, 0, 0, 0], 0).is_good(),
                "reserved"
            );
            gate.shut();
            let before = gate.hanging();
            other.start_write(0, &write_16(0, 1), &pattern(1, BLOCK), BLOCK);
            until("it hangs", || gate.hanging() > before);
            let response = client.function(function, 0, u32::MAX);
            assert_eq!(response, TaskResponse::Complete);
            gate.open();
            for client in [&mut client, &mut other] {
                for lun in luns {
                    let told = client.test_unit_ready(*lun);
                    let code = asc::BUS_DEVICE_RESET_FUNCTION_OCCURRED;
                    assert!(told.is_attention(code), "{function}: {told:?}");
                    assert!(client.test_unit_ready(*lun).is_good(), "{function}");
                }
            }
        }
    });
}

/// A file system that does not say where a file has data holds up the question
/// alone: neither a reset nor reservations.
#[each_driver]
fn get_lba_status_that_hangs_delays_no_reset_and_no_reservation(backend: Choice) {
    with_gate(backend, |running, gate| {
        let mut client = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0]);
        let mut other = Client::login(portal(running), &InitiatorPort::new(2))
            .expect("in")
            .calm(&[0]);
        gate.shut();
        let mut get_lba_status = [0; 16];
        (get_lba_status[0], get_lba_status[1], get_lba_status[13]) = (0x9e, 0x12, 24);
        other.start_read(0, &get_lba_status, 24);
        let response = client.function(TaskFunction::LogicalUnitReset, 0, u32::MAX);
        assert_eq!(response, TaskResponse::Complete);
        client = client.calm(&[0]);
        assert!(client.command(0, &READ_KEYS, 8).is_good());
        gate.open();
    });
}

const READ_KEYS: [u8; 10] = [0x5e, 0, 0, 0, 0, 0, 0, 0, 8, 0];

/// Reservations are kept, and extents looked up, by threads that a disk may hang.
#[each_driver]
fn a_volume_that_hangs_delays_no_reservation_and_no_question_of_another(backend: Choice) {
    with_gate(backend, |running, gate| {
        let mut other = Client::login(portal(running), &InitiatorPort::new(2))
            .expect("in")
            .calm(&[0, 1]);
        let mut client = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[1]);
        gate.holds_reservations.store(true, Ordering::Relaxed);
        gate.shut();
        let mut get_lba_status = [0; 16];
        (get_lba_status[0], get_lba_status[1], get_lba_status[13]) = (0x9e, 0x12, 24);
        for _ in 0..3 {
            other.start_read(0, &get_lba_status, 24);
            other.start_read(0, &READ_KEYS, 8);
        }
        assert!(client.command(1, &READ_KEYS, 8).is_good());
        assert!(client.command(1, &get_lba_status, 24).is_good());
        gate.open();
    });
}

/// A state file whose save waits while a test holds the lock.
#[derive(Default)]
struct SlowDisk {
    is_asked: AtomicBool,
    gate: Mutex<()>,
}

struct SlowMedium(Arc<SlowDisk>);

impl store::Medium for SlowMedium {
    fn load(&self) -> std::io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn save(&self, _: &[u8]) -> std::io::Result<()> {
        self.0.is_asked.store(true, Ordering::Relaxed);
        drop(self.0.gate.lock());
        Ok(())
    }

    fn path(&self) -> &Path {
        Path::new("slow")
    }
}

/// A reset does not wait for a change of reservations that is being kept: what RESERVE
/// took is free behind it.
#[each_driver]
fn a_reset_beside_a_change_that_is_being_kept_frees_the_unit_behind_it(backend: Choice) {
    let config = config(backend, Limits::default(), 256 << 20);
    let disk = Arc::new(SlowDisk::default());
    let medium = Box::new(SlowMedium(disk.clone()));
    let kept = store::State::open(medium, uuid::Uuid::nil()).expect("empty");
    let gate = Gate::open_with(&config.volumes[0], Some(kept));
    let other = store::open(&config.volumes[1]).expect("memory");
    let running = server::parts::start_with(config, vec![gate.clone(), other]).expect("starts");
    let login = |n| Client::login(portal(&running), &InitiatorPort::new(n)).expect("in");
    let (mut client, mut by) = (login(1).calm(&[0]), login(2).calm(&[0]));
    let reserve = [RESERVE_6, 0, 0, 0, 0, 0];
    assert!(client.command(0, &reserve, 0).is_good());
    let keeps = disk.gate.lock().expect("it is free");
    let change = {
        let gate = gate.clone();
        std::thread::spawn(move || gate.reservations().set_persist(true))
    };
    until("it is being kept", || disk.is_asked.load(Ordering::Relaxed));
    let response = by.function(TaskFunction::LogicalUnitReset, 0, u32::MAX);
    assert_eq!(response, TaskResponse::Complete);
    assert!(gate.reservations().report().reserved.is_some(), "not yet");
    drop(keeps);
    change.join().expect("it ends").expect("it is kept");
    until("the unit is free", || {
        gate.reservations().report().reserved.is_none()
    });
    stop(running);
}

/// A change of reservations is answered when its notices are on the reactors of all
/// nexuses concerned, so that their next command has them.
#[each_driver]
fn change_of_reservations_is_answered_when_its_notices_are_on_all_reactors(backend: Choice) {
    with_gate(backend, |running, gate| {
        let login = |n| Client::login(portal(running), &InitiatorPort::new(n)).expect("in");
        let (mut told, mut by) = (login(1).calm(&[0]), login(2).calm(&[0]));
        let list = |current: u64, key: u64| {
            let keys = [current, key].map(u64::to_be_bytes).concat();
            [keys, vec![0; 8]].concat()
        };
        let register = cdb::persistent_reserve_out(reserve_out::REGISTER, 0, 24);
        for (nexus, key) in [(&mut told, 1), (&mut by, 2)] {
            assert!(nexus.command_out(0, &register, &list(0, key)).is_good());
        }
        // The reactor of the nexus with the notice stands still.
        gate.stall.store(1, Ordering::Relaxed);
        let read = told.start_read(0, &read_16(0, 1), BLOCK as u32);
        until("it stands still", || {
            gate.stall.load(Ordering::Relaxed) == 2
        });
        let clear = cdb::persistent_reserve_out(reserve_out::CLEAR, 0, 24);
        let cleared = by.start_write(0, &clear, &list(2, 0), 24);
        // One blocking worker does one after the other: an answer to the first would come
        // first.
        let keys = cdb::persistent_reserve_in(reserve_in::READ_KEYS, 8);
        assert_eq!(by.command(0, &keys, 8).data, [0, 0, 0, 3, 0, 0, 0, 0]);
        gate.stall.store(0, Ordering::Relaxed);
        assert!(by.end_of(cleared, &[]).is_good());
        assert!(told.end_of(read, &[]).is_good());
        let attention = told.test_unit_ready(0);
        assert!(attention.is_attention(asc::RESERVATIONS_PREEMPTED));
    });
}

#[each_driver]
fn a_cold_reset_that_no_setting_allows_is_not_supported_and_ends_nothing(backend: Choice) {
    with_target(backend, |running| {
        let mut client = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0, 1]);
        let mut other = Client::login(portal(running), &InitiatorPort::new(2))
            .expect("in")
            .calm(&[0, 1]);
        let response = client.function(TaskFunction::TargetColdReset, 0, u32::MAX);
        assert_eq!(response, TaskResponse::NotSupported);
        for client in [&mut client, &mut other] {
            assert!(client.test_unit_ready(0).is_good(), "no unit attention");
            assert_eq!(client.ping(b"still there"), b"still there");
        }
    });
}

#[each_driver]
fn a_cold_reset_that_a_setting_allows_ends_the_sessions_too(backend: Choice) {
    let allow = |config: &mut Config| {
        config.iscsi_targets[0].target.limits.target_cold_reset = true;
    };
    with_gate_and(backend, allow, |running, gate| {
        let mut client = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0]);
        let mut other = Client::login(portal(running), &InitiatorPort::new(2))
            .expect("in")
            .calm(&[0]);
        gate.shut();
        other.start_read(0, &read_16(0, 1), BLOCK as u32);
        until("it hangs", || gate.hanging() == 1);
        client.start_function(TaskFunction::TargetColdReset, 0, u32::MAX);
        let answer = client.receive().expect("an answer");
        assert_eq!(answer.opcode(), opcode::TASK_MANAGEMENT_RESPONSE);
        assert_eq!(answer.bhs[2], TaskResponse::Complete as u8);
        client.expect_end();
        other.expect_end();
        gate.open();
        let mut again = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0]);
        assert!(again.command(0, &read_16(0, 1), BLOCK as u32).is_good());
    });
}

/// Data that was asked for and does not come is no obstacle.
#[each_driver]
fn a_write_whose_data_does_not_come_is_aborted(backend: Choice) {
    with_gate(backend, |running, _| {
        let mut client = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0]);
        let data = pattern(3, 64 * BLOCK);
        let itt = client.start_write(0, &write_16(0, 64), &data, 0);
        let asked = client.receive().expect("an R2T");
        assert_eq!(asked.opcode(), opcode::R2T);
        let response = client.function(TaskFunction::AbortTask, 0, itt);
        assert_eq!(response, TaskResponse::Complete);
        // Of a task that is over it is dropped.
        client.answer_r2t(&asked, &data);
        assert!(client.command_out(0, &write_16(0, 64), &data).is_good());
    });
}

/// What a volume says is wrong, as SCSI says it.
#[each_driver]
fn each_error_of_a_volume_has_its_sense_data(backend: Choice) {
    use store::{Errno, Error};
    use wire::scsi::key;
    with_gate(backend, |running, gate| {
        let mut client = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0]);
        let data = pattern(1, BLOCK);
        for (error, sense) in [
            (
                Error::ReadFailed(Errno::IO),
                (key::MEDIUM_ERROR, asc::UNRECOVERED_READ_ERROR),
            ),
            (
                Error::Unreadable,
                (key::MEDIUM_ERROR, asc::UNRECOVERED_READ_ERROR),
            ),
            (
                Error::ChecksumMismatch,
                (key::MEDIUM_ERROR, asc::UNRECOVERED_READ_ERROR),
            ),
            (
                Error::WriteFailed(Errno::IO),
                (key::MEDIUM_ERROR, asc::WRITE_ERROR),
            ),
            (
                Error::OutOfSpace(Errno::NOSPC),
                (
                    key::DATA_PROTECT,
                    asc::SPACE_ALLOCATION_FAILED_WRITE_PROTECT,
                ),
            ),
            (Error::ReadOnly, (key::DATA_PROTECT, asc::WRITE_PROTECTED)),
        ] {
            gate.fail(Some(error));
            let failed = client.command(0, &read_16(3, 1), BLOCK as u32);
            assert_eq!(failed.sense, Some(sense), "{error:?}");
            assert!(failed.data.is_empty());
            let failed = client.command_out(0, &write_16(3, 1), &data);
            assert_eq!(failed.sense, Some(sense), "{error:?}");
        }
        gate.fail(None);
        assert!(client.command_out(0, &write_16(3, 1), &data).is_good());
    });
}
