//! Tickets, and file work that is not wanted any more.

use super::*;
use needs::needs;
use std::thread;

#[each_driver]
fn a_ticket_rung_elsewhere_ends_a_sleep(choice: Choice) {
    let mut world = World::new(choice);
    let tickets = [world.driver.ticket(1), world.driver.ticket(2)];
    drop(world.driver.ticket(3));
    world.poll_now();
    assert!(world.out.is_empty(), "a dropped ticket rings nothing");
    let other = thread::spawn(move || {
        for ticket in tickets {
            thread::sleep(Duration::from_millis(20));
            ticket.ring();
        }
    });
    assert_eq!(world.file(1).unwrap(), 0);
    assert_eq!(world.file(2).unwrap(), 0);
    other.join().unwrap();
    world.poll_now();
    assert!(world.out.is_empty(), "rung twice: {:?}", world.out);
}

#[each_driver]
fn a_ticket_rung_here_is_found_before_the_sleep(choice: Choice) {
    let mut world = World::new(choice);
    for token in 0..100 {
        world.driver.ticket(token).ring();
        let for_ever = Wait::Until(u64::MAX);
        world.driver.poll(for_ever, &mut world.out).unwrap();
        assert_eq!(world.file(token).unwrap(), 0);
        assert!(world.out.is_empty());
    }
}

#[each_driver]
fn completions_after_some_time_end_a_sleep_in_the_order_of_their_times(choice: Choice) {
    const MS: u64 = 1_000_000;
    let mut world = World::new(choice);
    for (after_ms, token) in [(30, 3), (0, 1), (10, 2), (30, 4)] {
        world.driver.complete_after(after_ms * MS, token);
    }
    for token in 1..=4 {
        while world.out.is_empty() {
            let for_ever = Wait::Until(u64::MAX);
            world.driver.poll(for_ever, &mut world.out).unwrap();
        }
        assert_eq!(world.out[0].token(), token);
        assert_eq!(world.file(token).unwrap(), 0);
    }
    world.poll_now();
    assert!(world.out.is_empty(), "each comes once");
}

/// Whatever a cancel meets, each operation has one completion.
#[each_driver]
fn canceled_file_work_completes_once(choice: Choice) {
    let mut world = World::new(choice);
    let file = Arc::new(DiskFile::from(tempfile::tempfile().unwrap()));
    let buf = world.buf(4096);
    world.driver.cancel_file(1);
    for round in 0..50 {
        world.driver.write_at(&file, buf.range(), 0, true, 1);
        world.driver.read_at(&file, buf.range(), 0, 2);
        if round % 2 == 0 {
            world.poll_now();
        }
        world.driver.cancel_file(1);
        let mut tokens = Vec::new();
        while tokens.len() < 2 {
            let Completion::File { token, result } = world.next() else {
                panic!("not a file operation");
            };
            match result {
                Ok(n) => assert!(n == 4096 || token == 2),
                Err(error) => {
                    assert_eq!(token, 1, "the other one was canceled: {error}");
                    let errno = error.raw_os_error().unwrap();
                    assert!([libc::ECANCELED, libc::EINTR].contains(&errno), "{error}");
                }
            }
            tokens.push(token);
        }
        tokens.sort_unstable();
        assert_eq!(tokens, [1, 2]);
    }
    thread::sleep(Duration::from_millis(5));
    world.poll_now();
    assert!(world.out.is_empty(), "{:?}", world.out);
}

/// A read that would wait for ever: io_uring takes it back. (A thread that
/// waits in the kernel cannot be stopped.)
#[needs(io_uring)]
#[test]
fn a_read_that_hangs_is_taken_back() {
    let mut world = World::new(Choice::Uring);
    let (reader, _writer) = std::io::pipe().unwrap();
    let pipe = Arc::new(DiskFile::from(OwnedFd::from(reader)));
    let bufs = [world.buf(4096), world.buf(4096)];
    for (token, buf) in (1..).zip(&bufs) {
        world.driver.read_at(&pipe, buf.range(), 0, token);
    }
    world.poll_now();
    assert!(world.out.is_empty());
    world.driver.cancel_file(1);
    let errno = world.file(1).unwrap_err().raw_os_error().unwrap();
    assert!([libc::ECANCELED, libc::EINTR].contains(&errno), "{errno}");
    world.poll_now();
    assert!(world.out.is_empty(), "the other one still waits");
    world.driver.cancel_file(2);
    world.file(2).unwrap_err();
}
