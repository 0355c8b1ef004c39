//! Sends that leave their memory where it is, plain and from registered
//! buffers. epoll copies all of them, with the same results.

use super::*;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::thread;

const MEMORY: u64 = 64 << 20;
/// Set in a child that a test starts of itself.
const CHILD: &str = "WEFT_TEST_LOCKED_MEMORY_IS_SHORT";
const LEN: u32 = 600_000;

fn config(registered_min_bytes: Option<u32>) -> DriverConfig {
    DriverConfig {
        zero_copy_min_bytes: Some(16 << 10),
        registered_min_bytes,
        ..DriverConfig::default()
    }
}

/// With and without registered buffers.
fn both() -> [DriverConfig; 2] {
    [config(None), config(Some(64 << 10))]
}

/// A socket of the driver that takes much, and a peer that may take little
/// before it reads.
fn pair(world: &mut World, peer_takes: Option<i32>) -> (SocketId, TcpStream) {
    let set = |fd: &OwnedFd, name, size: i32| {
        // SAFETY: four bytes of ours.
        let rc = unsafe {
            let at = (&raw const size).cast();
            libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, at, 4)
        };
        assert_eq!(rc, 0);
    };
    let listener = OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
    if let Some(bytes) = peer_takes {
        set(&listener, libc::SO_RCVBUF, bytes);
    }
    let listener = TcpListener::from(listener);
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let fd = OwnedFd::from(ours);
    set(&fd, libc::SO_SNDBUF, 8 << 20);
    (world.driver.add_socket(fd.into()).unwrap(), peer)
}

/// Sends a header, `range` and a trailer, holding `held`.
fn send(world: &mut World, socket: SocketId, range: BufRange, held: Option<Buf>) {
    let mut batch = world.driver.batch();
    batch.header(b"head");
    batch.payload(range);
    batch.header(b"tail");
    if let Some(buf) = held {
        batch.hold(buf);
    }
    world.driver.send(socket, batch, 7);
}

fn read_pdu(peer: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut got = vec![0; len + 8];
    peer.read_exact(&mut got).unwrap();
    assert_eq!((&got[..4], &got[len + 4..]), (&b"head"[..], &b"tail"[..]));
    got[4..len + 4].to_vec()
}

/// One PDU that the peer reads while it is sent.
fn exchange(world: &mut World, socket: SocketId, peer: &TcpStream, range: BufRange) -> Vec<u8> {
    let mut copy = peer.try_clone().unwrap();
    let len = range.len() as usize;
    let reader = thread::spawn(move || read_pdu(&mut copy, len));
    send(world, socket, range, None);
    world.sent();
    reader.join().unwrap()
}

fn different(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i + seed * 37) % 251) as u8).collect()
}

#[each_driver]
fn zero_copy_sends_arrive_whole(choice: Choice) {
    for config in both() {
        let mut world = World::with(choice, MEMORY, config);
        // Small send buffers: every send is taken in parts.
        let (socket, mut peer) = world.pair();
        let region = Region::small_pages(4 << 20).unwrap();
        // In a block, at its end, across two; each in one piece.
        for (i, at) in [0, (2 << 20) - u64::from(LEN), (2 << 20) - 1000]
            .into_iter()
            .enumerate()
        {
            let range = region.range(at, LEN);
            let bytes = different(LEN as usize, i);
            copy_in(range, &bytes);
            assert!(exchange(&mut world, socket, &peer, range) == bytes);
        }
        let counters = world.driver.counters();
        let is_uring = choice == Choice::Uring;
        assert_eq!(counters.zero_copy_sends, if is_uring { 3 } else { 0 });
        let registered = is_uring && config.registered_min_bytes.is_some();
        assert_eq!(
            counters.zero_copy_registered,
            if registered { 2 } else { 0 }
        );
        assert_eq!(counters.buffers_registered, u64::from(registered));
        // Small pieces are copied, however many there are.
        let mut batch = world.driver.batch();
        for at in 0..20 {
            batch.payload(region.range(at * 8192, 1000));
        }
        world.driver.send(socket, batch, 7);
        world.sent();
        peer.read_exact(&mut [0; 20_000]).unwrap();
        let later = world.driver.counters().zero_copy_sends;
        assert_eq!(later, counters.zero_copy_sends);
        world.close(socket);
    }
}

#[each_driver]
fn zero_copy_memory_is_not_used_before_the_notice(choice: Choice) {
    for config in both() {
        let mut world = World::with(choice, MEMORY, config);
        let (socket, mut peer) = pair(&mut world, Some(32 << 10));
        let buf = world.buf(LEN);
        let bytes = pattern(LEN as usize);
        copy_in(buf.range(), &bytes);
        let lent = world.driver.pool().lent();
        let range = buf.range();
        send(&mut world, socket, range, Some(buf));
        world.sent();
        // The peer has not read, so most of it still lies where it was. What
        // the pool lends now must be other memory.
        let others: Vec<Buf> = (0..20).map(|_| world.buf(LEN)).collect();
        for other in &others {
            copy_in(other.range(), &vec![0xee; LEN as usize]);
        }
        assert!(read_pdu(&mut peer, LEN as usize) == bytes);
        drop(others);
        let give_up = world.driver.now() + PATIENCE_NS;
        while world.driver.pool().lent() >= lent {
            assert!(world.driver.now() < give_up, "never given back");
            world.poll_now();
        }
        if choice == Choice::Uring {
            let counters = world.driver.counters();
            assert_eq!(counters.zero_copy_sends, 1);
            let registered = u64::from(config.registered_min_bytes.is_some());
            assert_eq!(counters.zero_copy_registered, registered);
        }
        world.close(socket);
    }
}

/// The kernel goes on with the pages that it once registered; what lies at
/// their addresses later are others.
#[each_driver]
fn registered_memory_that_was_given_back_is_not_sent(choice: Choice) {
    let mut world = World::with(choice, MEMORY, config(Some(64 << 10)));
    let (socket, peer) = pair(&mut world, None);
    let region = Region::small_pages(2 << 20).unwrap();
    let range = region.range(0, LEN);
    for round in 0..4 {
        let bytes = different(LEN as usize, round);
        copy_in(range, &bytes);
        assert!(exchange(&mut world, socket, &peer, range) == bytes);
        region.discard(0, 2 << 20).unwrap();
    }
    let zeros = exchange(&mut world, socket, &peer, range);
    assert!(zeros.iter().all(|&byte| byte == 0));
    if choice == Choice::Uring {
        assert_eq!(world.driver.counters().buffers_registered, 5);
    }
    world.close(socket);
}

#[each_driver]
fn zero_copy_ends_where_the_kernel_copies(choice: Choice) {
    for config in both() {
        let mut world = World::with(choice, MEMORY, config);
        let (socket, peer) = pair(&mut world, None);
        let region = Region::small_pages(2 << 20).unwrap();
        let range = region.range(0, LEN);
        copy_in(range, &pattern(LEN as usize));
        for _ in 0..40 {
            assert!(exchange(&mut world, socket, &peer, range) == pattern(LEN as usize));
        }
        let counters = world.driver.counters();
        if choice == Choice::Epoll {
            assert_eq!(counters.zero_copy_sends, 0);
        } else {
            // Loopback copies all; the notices of a few are on their way.
            assert_eq!(counters.zero_copy_given_up, 1);
            assert!((16..24).contains(&counters.zero_copy_sends), "{counters:?}");
            assert!(counters.zero_copy_copied >= 16, "{counters:?}");
        }
        world.close(socket);
        // Another socket is asked anew.
        let (socket, peer) = pair(&mut world, None);
        exchange(&mut world, socket, &peer, range);
        let later = world.driver.counters().zero_copy_sends;
        let more = u64::from(choice == Choice::Uring);
        assert_eq!(later, counters.zero_copy_sends + more);
        world.close(socket);
    }
}

/// Takes the right to lock memory from this thread, and leaves it 1 MiB.
fn without_locked_memory() {
    const VERSION_3: u32 = 0x2008_0522;
    const IPC_LOCK: u32 = 14;
    let header = [VERSION_3, 0];
    let mut sets = [[0u32; 3]; 2];
    let limit = libc::rlimit {
        rlim_cur: 1 << 20,
        rlim_max: 1 << 20,
    };
    // SAFETY: header, sets and limit are ours and laid out as the kernel says.
    unsafe {
        let (header, sets_at) = (header.as_ptr(), sets.as_mut_ptr());
        assert_eq!(libc::syscall(libc::SYS_capget, header, sets_at), 0);
        for set in &mut sets[0][..2] {
            *set &= !(1 << IPC_LOCK);
        }
        assert_eq!(libc::syscall(libc::SYS_capset, header, sets.as_ptr()), 0);
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit), 0);
    }
}

/// In a process of its own, since limits are a process's.
#[each_driver]
fn zero_copy_without_locked_memory_is_copied(choice: Choice) {
    if std::env::var_os(CHILD).is_none() {
        let name = "zero_copy::zero_copy_without_locked_memory_is_copied";
        let name = test_on(choice, name);
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child
            .args(["--exact", &name, "--nocapture"])
            .env(CHILD, "1");
        let output = output.output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.signal(), None, "{told}");
        assert!(output.status.success(), "{told}");
        assert!(told.contains("1 passed"), "{told}");
        return;
    }
    without_locked_memory();
    for config in both() {
        let mut world = World::with(choice, MEMORY, config);
        let (socket, peer) = pair(&mut world, None);
        let region = Region::small_pages(2 << 20).unwrap();
        let range = region.range(0, 2 << 20);
        let bytes = pattern(2 << 20);
        copy_in(range, &bytes);
        for _ in 0..3 {
            assert!(exchange(&mut world, socket, &peer, range) == bytes);
        }
        let counters = world.driver.counters();
        let all = if choice == Choice::Uring { 3 } else { 0 };
        assert_eq!(counters.zero_copy_refused, all, "{counters:?}");
        assert_eq!(counters.zero_copy_registered, 0, "{counters:?}");
        world.close(socket);
    }
}

#[each_driver]
fn a_close_completes_after_the_notice_of_a_zero_copy_send(choice: Choice) {
    for config in both() {
        let mut world = World::with(choice, MEMORY, config);
        let (socket, peer) = pair(&mut world, Some(32 << 10));
        let lent = world.driver.pool().lent();
        let buf = world.buf(LEN);
        let range = buf.range();
        send(&mut world, socket, range, Some(buf));
        world.sent();
        world.driver.close(socket, 99);
        // What was taken still goes to the peer, and holds its memory.
        for _ in 0..10 {
            world.poll_now();
        }
        if choice == Choice::Uring {
            assert!(world.out.is_empty(), "closed before its memory was free");
            assert!(world.driver.pool().lent() > lent);
        }
        reset(peer);
        assert!(matches!(world.next(), Completion::Closed { token: 99 }));
        assert!(world.driver.pool().lent() <= lent);
    }
}
