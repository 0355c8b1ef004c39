//! Many hosts at once, on two reactors: they register, write and are preempted while
//! others do the same.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};

use wire::nvme::reservation::{action, notice};
use wire::nvme::{Status, io};

use crate::ends::stop;
use crate::fabric::*;

const VICTIMS: u32 = 4;
const ROUNDS: u32 = 24;
/// Writes that a host has under way.
const DEPTH: usize = 8;
/// Writes of all hosts together before they are preempted.
const WRITES_MIN: u32 = 200;
/// Of the victims, without its number; and of the one that preempts them.
const KEY: u64 = 100;
const OWN_KEY: u64 = 1;
/// Write Exclusive, registrants only.
const RTYPE: u8 = 3;
const MARK: u8 = 0xee;

fn submit(host: &mut Host, block: u64, byte: u8) -> Pending {
    let mut sqe = command(io::WRITE, 0);
    sqe.set_blocks(block, 1);
    host.submit(&sqe, &[byte; BLOCK], 0)
}

/// Writes a block until it may no more; whatever ends then was refused or aborted.
fn write_until_preempted(host: &mut Host, block: u64, byte: u8, written: &AtomicU32) {
    let mut under_way = Vec::new();
    let mut is_preempted = false;
    while !is_preempted || !under_way.is_empty() {
        while !is_preempted && under_way.len() < DEPTH {
            under_way.push(submit(host, block, byte));
        }
        let oldest = under_way.remove(0);
        match host.wait(oldest).0 {
            Status::SUCCESS => {
                written.fetch_add(1, Ordering::Relaxed);
            }
            status => {
                let ends = [Status::RESERVATION_CONFLICT, Status::PREEMPTED];
                assert!(ends.contains(&status.code()), "{status}");
                is_preempted = true;
            }
        }
    }
    let refused = submit(host, block, byte);
    assert_eq!(host.wait(refused).0, Status::RESERVATION_CONFLICT.dnr());
}

#[test]
fn no_write_of_a_preempted_host_lands_once_the_preemption_is_answered() {
    let running = serve_ram();
    let to = running.addresses()[0];
    let mut holder = Host::connect(to, 1);
    holder.join(OWN_KEY);
    let acquired = holder.acquire(action::ACQUIRE, OWN_KEY, 0, RTYPE);
    assert_eq!(acquired, Status::SUCCESS);
    let written = AtomicU32::new(0);
    let barrier = Barrier::new(VICTIMS as usize + 1);
    std::thread::scope(|scope| {
        for number in 0..VICTIMS {
            let (written, barrier) = (&written, &barrier);
            scope.spawn(move || {
                let key = KEY + u64::from(number);
                let mut host = Host::connect(to, 2 + u128::from(number));
                for round in 0..ROUNDS {
                    host.join(key);
                    barrier.wait();
                    write_until_preempted(&mut host, round.into(), number as u8, written);
                    barrier.wait();
                    // It is told once.
                    let told = (u64::from(round) + 1, notice::REGISTRATION_PREEMPTED, 0, 1);
                    assert_eq!(host.notification(false), told);
                }
            });
        }
        for round in 0..ROUNDS {
            barrier.wait();
            let enough = written.load(Ordering::Relaxed) + WRITES_MIN;
            while written.load(Ordering::Relaxed) < enough {
                std::thread::yield_now();
            }
            let preempt = match round % 2 {
                0 => action::PREEMPT,
                _ => action::PREEMPT_AND_ABORT,
            };
            for number in 0..VICTIMS {
                let key = KEY + u64::from(number);
                let status = holder.acquire(preempt, OWN_KEY, key, RTYPE);
                assert_eq!(status, Status::SUCCESS);
            }
            let mark = submit(&mut holder, round.into(), MARK);
            assert_eq!(holder.wait(mark).0, Status::SUCCESS);
            let registrants = holder.report(512).registrants();
            assert_eq!(registrants, [(holder.hostid, OWN_KEY, true)]);
            barrier.wait();
            let mut read = command(io::READ, 0);
            read.set_blocks(round.into(), 1);
            let read = holder.submit(&read, &[], BLOCK);
            let (status, data) = holder.wait(read);
            assert_eq!((status, data), (Status::SUCCESS, vec![MARK; BLOCK]));
        }
    });
    drop(holder);
    stop(running);
}

/// Each of them preempts all others, or clears, at the same moment: one after the other
/// is served, one reservation at most is there, and its holder is registered.
#[test]
fn hosts_that_preempt_each_other_at_once_leave_one_state() {
    let running = serve_ram();
    let to = running.addresses()[0];
    let barrier = Barrier::new(VICTIMS as usize);
    std::thread::scope(|scope| {
        for number in 0..VICTIMS {
            let barrier = &barrier;
            scope.spawn(move || {
                let mut host = Host::connect(to, 2 + u128::from(number));
                let key = KEY + u64::from(number);
                for round in 0..ROUNDS {
                    host.leave();
                    host.join(key);
                    barrier.wait();
                    let other = KEY + u64::from((number + 1 + round % 3) % VICTIMS);
                    let status = match (round + number) % 4 {
                        0 => host.acquire(action::ACQUIRE, key, 0, RTYPE),
                        1 => host.acquire(action::PREEMPT, key, other, RTYPE),
                        2 => host.acquire(action::PREEMPT_AND_ABORT, key, other, RTYPE),
                        _ => host.release(action::CLEAR, key, 0),
                    };
                    let may_be = [Status::SUCCESS, Status::RESERVATION_CONFLICT];
                    assert!(may_be.contains(&status.code()), "{status}");
                    barrier.wait();
                    let report = host.report(512);
                    let all = report.registrants();
                    let holders = all.iter().filter(|(.., holds)| *holds).count();
                    assert_eq!(holders, usize::from(report.rtype() != 0));
                    let is_in = all.iter().any(|(id, ..)| *id == host.hostid);
                    let may = report.rtype() == 0 || is_in;
                    let write = submit(&mut host, 0, number as u8);
                    let expected = match may {
                        true => Status::SUCCESS,
                        false => Status::RESERVATION_CONFLICT.dnr(),
                    };
                    assert_eq!(host.wait(write).0, expected);
                    barrier.wait();
                }
            });
        }
    });
    stop(running);
}
