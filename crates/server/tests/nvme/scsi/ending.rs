//! Commands of many steps that end before their time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use server::Running;
use store::{Errno, Error};
use wire::scsi::opcode::persistent_reserve_out as reserve_out;
use wire::scsi::opcode::receive_copy_results as results;
use wire::scsi::{asc, cdb, key, opcode};

use super::copy::{SMALL, aborted, copy, cscd, naa, received, segment};
use super::reservation::{EXCLUSIVE_ACCESS, list};
use super::{ALICE, BOB, DISKS, Fail, Nexus, serve_volumes, small};
use crate::common::stop;
use crate::gate::Gate;

/// A piece of a copy in blocks, and of WRITE SAME.
const COPY_PIECE: u64 = (512 << 10) / SMALL as u64;
const PATTERN_PIECE: u64 = (256 << 10) / SMALL as u64;

/// BYTCHK of VERIFY: all are compared with the one block that comes.
const BYTCHK_ONE_BLOCK: u8 = 3 << 1;

/// LUN 1 is behind a gate.
fn gated() -> (Running, Arc<Gate>) {
    let gate = Gate::open_over(&small("gate"));
    (serve_volumes(vec![gate.clone()]), gate)
}

/// What another initiator does at LUN 1 meanwhile.
fn meanwhile<T: Send + 'static>(
    running: &Running,
    name: &'static str,
    act: impl FnOnce(Nexus) -> T + Send + 'static,
) -> JoinHandle<T> {
    let address: SocketAddr = running.addresses()[2];
    thread::spawn(move || act(Nexus::connect(address, name, DISKS).at(1)))
}

fn until(what: &str, mut is_met: impl FnMut() -> bool) {
    let mut tries = 0;
    while !is_met() {
        tries += 1;
        assert!(tries < 4000, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A copy of two pieces and a half from block 0 to block 4096 of LUN 1.
fn long_copy(nexus: &mut Nexus) -> Result<(), Fail> {
    let cscds = [cscd(&naa(nexus), SMALL)];
    let blocks = (5 * COPY_PIECE / 2) as u16;
    copy(nexus, 1, &cscds, &[segment((0, 0), (0, 4096), blocks)])
}

/// First byte of a block.
fn byte(nexus: &mut Nexus, lba: u64) -> u8 {
    nexus.read(SMALL, lba, 1).unwrap()[0]
}

fn fill(nexus: &mut Nexus, blocks: u32) {
    let cdb = cdb::blocks16(opcode::WRITE_SAME_16, 0, 0, blocks);
    nexus.give(cdb, &[5; SMALL]).unwrap();
}

#[test]
fn reserve_waits_for_the_piece_under_way_and_ends_the_command() {
    let (running, gate) = gated();
    let mut bob = Nexus::of(&running, BOB).at(1);
    fill(&mut bob, 4096);
    bob.register(0, 2).unwrap();
    for command in [
        opcode::EXTENDED_COPY,
        opcode::WRITE_SAME_16,
        opcode::VERIFY_16,
    ] {
        gate.shut();
        let alice = meanwhile(&running, ALICE, move |mut alice| match command {
            opcode::EXTENDED_COPY => long_copy(&mut alice),
            opcode::WRITE_SAME_16 => {
                let same = cdb::blocks16(command, 0, 4096, 2048);
                alice.give(same, &[6; SMALL])
            }
            _ => {
                let same = cdb::blocks16(command, BYTCHK_ONE_BLOCK, 0, 4096);
                alice.give(same, &[5; SMALL])
            }
        });
        until("the first piece is under way", || gate.hanging() == 1);
        // The reservation is answered when what others began is over.
        let reserves = meanwhile(&running, "iqn.2004-01.org.example:carol", |mut carol| {
            carol.register(0, 3).unwrap();
            carol.reserve(3, EXCLUSIVE_ACCESS).unwrap();
            let there = [COPY_PIECE - 1, COPY_PIECE, PATTERN_PIECE - 1, PATTERN_PIECE]
                .map(|block| byte(&mut carol, 4096 + block));
            let clear = carol.reserve_out(reserve_out::CLEAR, 0, &list(3, 0, 0));
            clear.unwrap();
            there
        });
        until("it is taken", || bob.reservation().is_some());
        thread::sleep(Duration::from_millis(20));
        assert!(!reserves.is_finished(), "before the piece is over");
        gate.open();
        let (ended, there) = (alice.join().unwrap(), reserves.join().unwrap());
        match command {
            opcode::EXTENDED_COPY => {
                assert_eq!(ended, aborted(asc::THIRD_PARTY_DEVICE_FAILURE));
                assert_eq!(there, [5, 0, 5, 5], "one piece");
            }
            _ => {
                assert_eq!(ended, Err(Fail::Conflict), "{command:#x}");
                assert_eq!(there, [5, 0, 6, 5], "one piece");
            }
        }
        bob.settle();
        bob.register(0, 2).unwrap();
    }
    stop(running);
}

/// A hanging volume holds up neither the preemption nor what comes later.
#[test]
fn a_preempted_copy_writes_nothing_more() {
    let (running, gate) = gated();
    let mut bob = Nexus::of(&running, BOB).at(1);
    fill(&mut bob, 2048);
    bob.register(0, 2).unwrap();
    let (tell, is_registered) = std::sync::mpsc::channel();
    let (go, may_go) = std::sync::mpsc::channel();
    let alice = meanwhile(&running, ALICE, move |mut alice| {
        alice.register(0, 1).unwrap();
        tell.send(()).unwrap();
        may_go.recv().unwrap();
        // It hears no more of this; the connection ends with the target.
        let cscds = [cscd(&naa(&mut alice), SMALL)];
        let segments = [segment((0, 0), (0, 4096), 2048)].concat();
        let mut list = vec![1, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
        list.extend(cscds.concat());
        list.extend(segments);
        let mut cdb = cdb::plain(opcode::EXTENDED_COPY);
        cdb[13] = list.len() as u8;
        let lun = [0, 1, 0, 0, 0, 0, 0, 0];
        let payload = host::Payload::Out(&list);
        let ended = alice
            .session
            .command_once("EXTENDED COPY", lun, cdb, payload);
        assert!(ended.is_err(), "{ended:?}");
    });
    is_registered.recv().unwrap();
    gate.shut();
    go.send(()).unwrap();
    until("the copy is under way", || gate.hanging() == 1);
    let preempt = list(2, 1, 0);
    let action = reserve_out::PREEMPT_AND_ABORT;
    bob.reserve_out(action, EXCLUSIVE_ACCESS, &preempt).unwrap();
    gate.open();
    for _ in 0..50 {
        assert_eq!(byte(&mut bob, 4096), 0, "a write after its time");
        thread::sleep(Duration::from_millis(1));
    }
    stop(running);
    alice.join().unwrap();
}

#[test]
fn preempt_alone_lets_what_has_begun_end() {
    let (running, gate) = gated();
    let mut bob = Nexus::of(&running, BOB).at(1);
    bob.register(0, 2).unwrap();
    let (tell, is_registered) = std::sync::mpsc::channel();
    let (go, may_go) = std::sync::mpsc::channel();
    let alice = meanwhile(&running, ALICE, move |mut alice| {
        alice.register(0, 1).unwrap();
        tell.send(()).unwrap();
        may_go.recv().unwrap();
        alice.write(SMALL, 9, &[8; SMALL])
    });
    is_registered.recv().unwrap();
    gate.shut();
    go.send(()).unwrap();
    until("the write is under way", || gate.hanging() == 1);
    // Nothing is reserved: no initiator may do less, and nothing is waited for.
    let preempt = list(2, 1, 0);
    bob.reserve_out(reserve_out::PREEMPT, EXCLUSIVE_ACCESS, &preempt)
        .unwrap();
    gate.open();
    until("the write has ended", || alice.is_finished());
    assert_eq!(alice.join().unwrap(), Ok(()));
    assert_eq!(byte(&mut bob, 9), 8);
    stop(running);
}

#[test]
fn failed_reads_of_a_volume_fail_copy_and_verify() {
    let (running, gate) = gated();
    let mut alice = Nexus::of(&running, ALICE).at(1);
    fill(&mut alice, 16);
    gate.fail(Some(Error::ReadFailed(Errno::IO)));
    let failed = long_copy(&mut alice);
    assert_eq!(failed, aborted(asc::THIRD_PARTY_DEVICE_FAILURE));
    let told = received(&mut alice, results::COPY_STATUS, 1).unwrap();
    assert_eq!(told[4..7], [2, 0, 0]);
    let same = cdb::blocks16(opcode::VERIFY_16, 0b11 << 1, 8, 4);
    let unreadable = Fail::Check(key::MEDIUM_ERROR, asc::UNRECOVERED_READ_ERROR, Some(8));
    assert_eq!(alice.give(same, &[5; SMALL]), Err(unreadable));
    gate.fail(None);
    alice.give(same, &[5; SMALL]).unwrap();
    stop(running);
}
