//! Small requests and answers, one at a time, to a driver that spins.

use super::{World, bytes_of};
use needs::each_driver;
use reactor::{Choice, Completion, Driver, Wait};
use std::io::{Read, Write};

/// One small request and one small answer at a time, every way of waiting in
/// turn: what a driver does by hand in a spin must not show.
#[each_driver]
fn ping_pong_while_spinning_and_sleeping(choice: Choice) {
    let mut world = World::new(choice);
    let (socket, mut peer) = world.pair();
    let direct = world.buf(50);
    for round in 0..60usize {
        // Requests of 72 bytes, every third partly direct, every fourth behind
        // an unfinished header.
        let request: Vec<u8> = (0..72).map(|at| (at * 7 + round) as u8).collect();
        let to = (round % 3 == 0).then(|| direct.range());
        let stage = (round % 4 == 0).then(|| world.stage(b"head"));
        world.driver.recv(socket, to, stage, 4096, 1);
        for _ in 0..3 {
            world.poll_now();
        }
        assert!(world.out.is_empty(), "{:?}", world.out);
        if round % 5 == 0 {
            let soon = world.driver.now() + 1_000_000;
            let wait = Wait::Until(soon);
            world.driver.poll(wait, &mut world.out).unwrap();
            assert!(world.out.is_empty(), "{:?}", world.out);
        }
        peer.write_all(&request).unwrap();
        let completion = match round % 2 {
            0 => world.spin(),
            _ => world.next(),
        };
        let Completion::Received { token: 1, result } = completion else {
            panic!("not the receive: {completion:?}");
        };
        let received = result.unwrap();
        let mut bytes = Vec::new();
        if let Some(to) = to {
            assert_eq!(received.direct, 50);
            bytes = bytes_of(to);
        }
        let staged = received.stage.unwrap();
        let head = if round % 4 == 0 { 4 } else { 0 };
        assert_eq!(&staged.bytes()[..head], &b"head"[..head]);
        bytes.extend_from_slice(&staged.bytes()[head..]);
        assert_eq!(bytes, request, "round {round}");

        world.send_bytes(socket, &request[..24]);
        assert!(matches!(world.spin(), Completion::Sent { token: 7, .. }));
        let mut answer = [0; 24];
        peer.read_exact(&mut answer).unwrap();
        assert_eq!(answer, request[..24]);
    }
    world.close(socket);
}

#[each_driver]
fn a_spin_ends_with_the_stream_or_the_close(choice: Choice) {
    // A completion of NVMe, and a COMPOUND of NFS.
    for (ends_by_close, bytes) in [(false, 24), (true, 200)] {
        let mut world = World::new(choice);
        let (socket, mut peer) = world.pair();
        for _ in 0..3 {
            world.driver.recv(socket, None, None, 4096, 1);
            world.poll_now();
            peer.write_all(&[1; 72]).unwrap();
            assert!(matches!(world.spin(), Completion::Received { .. }));
            world.send_bytes(socket, &vec![2; bytes]);
            assert!(matches!(world.spin(), Completion::Sent { .. }));
            peer.read_exact(&mut vec![0; bytes]).unwrap();
            world.poll_now();
            world.poll_now();
        }
        world.driver.recv(socket, None, None, 4096, 1);
        world.poll_now();
        if choice == Choice::Uring {
            // The receive is tried by hand, with one call every turn.
            let before = world.driver.counters().syscalls;
            (0..5).for_each(|_| world.poll_now());
            assert_eq!(world.driver.counters().syscalls - before, 5);
        }
        if !ends_by_close {
            drop(peer);
            let Completion::Received { result, .. } = world.spin() else {
                panic!("not the receive");
            };
            let received = result.unwrap();
            assert!(received.eof && received.stage.is_none());
        }
        world.close(socket);
    }
}
