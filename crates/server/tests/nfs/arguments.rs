//! Arguments of calls count as the data of WRITEs does.

use std::io::{self, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use host::{Admin, Caller, HostIdentity, Payload, Settings};
use needs::each_driver;
use random::Random;
use reactor::{Choice, FileIo, Ticket, Token};
use server::parts::{OpenedStore, start_with};
use server::{ListenerSpec, Running};
use store::fs::{self, FileId, FileSystem, FsOp, Info, Progress, Task, Time};
use wire::nvme::Sqe;

use crate::common::{PATIENCE, config, drain, driver, fill, make, pattern, stop, until};
use crate::disks::{BLOCK, NQN, ram, subsystem};
use crate::raw;

const MEMORY_MAX: u64 = 32 << 20;
/// A client alone has half of the memory less an eighth for stages and 8 MiB for small
/// data. A quarter is there whatever stages take.
const SHARE_MAX: u64 = 10 << 20;
const SHARE_MIN: u64 = 8 << 20;
/// Connections of one client, with a call each that is nearly all arguments: three times
/// its share.
const CALLERS: usize = 320;
/// Bytes that a connection may have of a call without asking, and the most that a buffer
/// has that grows to them; and a stage.
const OWN_BYTES: u64 = 2 * 4096 + 4096;

/// A file system that finds no name while it is shut.
struct Hanging {
    below: fs::Memory,
    is_shut: AtomicBool,
    tickets: Mutex<Vec<Ticket>>,
}

impl FileSystem for Hanging {
    fn info(&self) -> &Info {
        self.below.info()
    }

    fn root(&self) -> FileId {
        self.below.root()
    }

    fn start(
        &self,
        caller: &fs::Caller<'_>,
        op: FsOp<'_>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        if !matches!(op, FsOp::Lookup { .. }) || !self.is_shut.load(Ordering::Relaxed) {
            return self.below.start(caller, op, files, token);
        }
        let mut tickets = self.tickets.lock().expect("whole");
        tickets.push(files.ticket(token));
        Progress::Pending(Task::of_other(()))
    }

    fn resume(&self, _: Task, _: io::Result<u32>, _: &mut dyn FileIo, _: Token) -> Progress {
        Progress::Done(Err(fs::Error::NoEnt))
    }
}

impl Hanging {
    fn shut(&self) {
        self.is_shut.store(true, Ordering::Relaxed);
    }

    fn open(&self) {
        self.is_shut.store(false, Ordering::Relaxed);
        let tickets = std::mem::take(&mut *self.tickets.lock().expect("whole"));
        tickets.into_iter().for_each(Ticket::ring);
    }

    fn hanging(&self) -> u64 {
        self.tickets.lock().expect("whole").len() as u64
    }
}

/// A server with little memory.
struct World {
    _folder: tempfile::TempDir,
    running: Running,
    files: Arc<Hanging>,
    /// 60 names of 1,536 bytes, of which the first is not there.
    call: Vec<u8>,
}

impl World {
    fn new(backend: Choice) -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = config(backend, folder.path());
        config.memory_max = MEMORY_MAX;
        let ipv6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
        config.listeners.push(ListenerSpec::nfs(ipv6));
        let nvme = SocketAddr::from(([127, 0, 0, 1], 0));
        config.listeners.push(nvme.into());
        config.volumes = vec![ram("ram", 16)];
        config.subsystems = vec![subsystem()];
        let below = fs::Memory::new("mem", 1 << 20, 1, Time::default());
        let files = Arc::new(Hanging {
            below: below.expect("memory"),
            is_shut: AtomicBool::default(),
            tickets: Mutex::default(),
        });
        let opened = OpenedStore {
            volumes: vec![store::open(&config.volumes[0]).expect("memory")],
            file_systems: vec![files.clone()],
            ..OpenedStore::default()
        };
        let mut ops = vec![raw::putrootfh4(), raw::lookup4(b"mem")];
        ops.resize(62, raw::lookup4(&[b'n'; 1536]));
        World {
            _folder: folder,
            running: start_with(config, opened).expect("starts"),
            files,
            call: raw::compound4(1, &ops),
        }
    }

    fn open(&self) -> TcpStream {
        let mut stream = raw::open(self.running.addresses()[0]);
        raw::ping(&mut stream);
        stream
    }

    fn callers(&self, number: usize) -> Vec<TcpStream> {
        Vec::from_iter((0..number).map(|_| self.open()))
    }

    /// The call without its last byte.
    fn half(&self) -> &[u8] {
        &self.call[..self.call.len() - 1]
    }

    /// Calls of which the arguments have room within `bytes`.
    fn calls_in(&self, bytes: u64) -> u64 {
        bytes / (self.call.len() as u64 - 4)
    }

    /// Bytes that reactors have allocated.
    fn held_bytes(&self) -> i64 {
        crate::report::report(&self.running).memory.held_bytes
    }

    /// A client of another address than the callers.
    fn client(&self) -> crate::common::Caller {
        let to = self.running.addresses()[1];
        host::nfs::Client::connect(driver(), to, crate::common::params()).expect("a session")
    }

    /// Such a client, and a host of NVMe, write and read.
    fn expect_other_clients_are_served(&self) {
        let mut client = self.client();
        let root = client.lookup(["mem"]).expect("exported");
        let bytes = pattern(3, 64 << 10);
        let open = make(&mut client, &root, "file");
        fill(&mut client, &open, &bytes, 16 << 10);
        assert!(drain(&mut client, &open, 16 << 10) == bytes);
        write_and_read(self.running.addresses()[2]);
    }
}

/// A block of an NVMe namespace.
fn write_and_read(to: SocketAddr) {
    let identity = HostIdentity::new(None).expect("random bytes");
    let settings = Settings::default();
    let admin = Admin::connect(driver(), to, NQN, &identity, settings, 0);
    let mut admin = admin.expect("admitted");
    admin.set_queue_count(1).expect("granted");
    let ids = (admin.cntlid(), 16);
    let mut queue = Caller::io(driver(), to, NQN, &identity, settings, ids).expect("admitted");
    let mut sqe = Sqe {
        nsid: 1.into(),
        ..Sqe::new(wire::nvme::io::WRITE)
    };
    sqe.set_blocks(0, 1);
    let block = pattern(1, BLOCK);
    queue
        .command("Write", &sqe, Payload::Out(&block))
        .expect("written");
    sqe.opcode = wire::nvme::io::READ;
    let mut read = vec![0; BLOCK];
    queue
        .command("Read", &sqe, Payload::In(&mut read))
        .expect("read");
    assert!(read == block);
}

fn send(streams: &mut [TcpStream], bytes: &[u8]) {
    for stream in streams {
        stream.write_all(bytes).expect("taken");
    }
}

/// Whether a call is answered; else its connection has ended.
fn is_answered(stream: &mut TcpStream) -> bool {
    stream
        .set_read_timeout(Some(2 * PATIENCE))
        .expect("a socket");
    let mut first = [0];
    match stream.peek(&mut first) {
        Ok(1) => raw::answer(stream).is_ok(),
        Ok(_) => false,
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => false,
        Err(error) => panic!("neither an answer nor the end: {error}"),
    }
}

/// What is beyond a client's share stays in its sockets until other calls of it end.
#[each_driver]
fn calls_on_a_disk_that_hangs_have_no_more_than_the_share_of_their_client(backend: Choice) {
    let world = World::new(backend);
    let mut streams = world.callers(CALLERS);
    // Both reactors may find the last room at one time.
    let (least, most) = (world.calls_in(SHARE_MIN), world.calls_in(SHARE_MAX) + 1);
    // All of the share is there again for the second.
    for _ in 0..2 {
        world.files.shut();
        send(&mut streams, &world.call);
        until("the share is full", || world.files.hanging() >= least);
        world.expect_other_clients_are_served();
        let hanging = world.files.hanging();
        assert!(hanging <= most, "{hanging} calls hang, and {most} may");
        world.files.open();
        for stream in &mut streams {
            raw::answer(stream).expect("an answer");
        }
    }
    stop(world.running);
}

/// The memory of half a call is not there before all of the call has room.
#[each_driver]
fn half_calls_have_no_more_than_the_share_of_their_client(backend: Choice) {
    let world = World::new(backend);
    let mut streams = world.callers(CALLERS);
    for stream in &mut streams {
        stream.write_all(&world.call).expect("taken");
        raw::answer(stream).expect("an answer");
    }
    // Tables of connections are there, and what reactors keep.
    let before = world.held_bytes();
    send(&mut streams, world.half());
    let held = || (world.held_bytes() - before) as u64;
    until("the share is full", || held() >= SHARE_MIN);
    world.expect_other_clients_are_served();
    let (held, most) = (held(), SHARE_MAX + OWN_BYTES * CALLERS as u64);
    assert!(held <= most, "{held} bytes are held, and {most} may be");
    send(&mut streams, &world.call[world.call.len() - 1..]);
    for stream in &mut streams {
        raw::answer(stream).expect("an answer");
    }
    stop(world.running);
}

/// A client that does not send the rest of its calls keeps others of its own waiting for
/// a moment only, and other clients not at all.
#[each_driver]
fn half_calls_that_fill_a_share_end_where_other_calls_wait(backend: Choice) {
    let world = World::new(backend);
    let mut streams = world.callers(CALLERS / 2);
    let before = world.held_bytes();
    send(&mut streams, world.half());
    until("the share is nearly full", || {
        (world.held_bytes() - before) as u64 >= SHARE_MIN
    });
    // More of them than there may be room for.
    let number = world.calls_in(SHARE_MAX - SHARE_MIN) + 1;
    let mut others = world.callers(number as usize);
    send(&mut others, &world.call);
    world.expect_other_clients_are_served();
    for stream in &mut others {
        raw::answer(stream).expect("an answer");
    }
    assert!(
        crate::report::report(&world.running).refusals > 0,
        "some end"
    );
    stop(world.running);
}

/// Sends a call on so many connections of one client, the beginning on all of them first,
/// and expects an answer on each.
fn expect_all_are_answered(world: &World, connections: usize, call: &[u8]) {
    let mut feeders = Vec::new();
    let mut streams = world.callers(connections);
    let (begin, rest) = call.split_at(100 << 10);
    send(&mut streams, begin);
    until("the share is nearly full", || {
        crate::report::report(&world.running).pool_bytes >= SHARE_MIN
    });
    for stream in &streams {
        let (mut stream, rest) = (stream.try_clone().expect("a socket"), rest.to_vec());
        feeders.push(std::thread::spawn(move || {
            // The end of a connection is what it reads.
            let _ = stream.write_all(&rest);
        }));
    }
    let answered = streams.iter_mut().map(is_answered).filter(|is| *is);
    assert_eq!(answered.count(), connections, "some have ended");
    feeders
        .into_iter()
        .for_each(|feeder| feeder.join().expect("it ends"));
}

/// Calls that have memory for the data of a WRITE and none for the arguments behind it
/// would wait for each other.
#[each_driver]
fn calls_that_hold_data_and_find_no_room_for_arguments_are_answered(backend: Choice) {
    let world = World::new(backend);
    let mut ops = vec![raw::putrootfh4(), raw::write4(&vec![7; 1000 << 10])];
    ops.resize(60, raw::lookup4(&[b'n'; 1536]));
    expect_all_are_answered(&world, 40, &raw::compound4(1, &ops));
    stop(world.running);
}

/// The same of the data of a second WRITE.
#[each_driver]
fn calls_that_hold_data_and_find_no_memory_for_more_are_answered(backend: Choice) {
    let world = World::new(backend);
    let write = raw::write4(&vec![7; 500 << 10]);
    let ops = [raw::putrootfh4(), write.clone(), write];
    expect_all_are_answered(&world, 60, &raw::compound4(1, &ops));
    stop(world.running);
}

/// Nothing of a call is done whose arguments find no room behind its data. Sent again it is
/// done.
#[test]
fn data_before_arguments_that_find_no_room_is_not_written_before_the_call_is_sent_again() {
    let world = World::new(Choice::Epoll);
    let mut client = world.client();
    let root = client.lookup(["mem"]).expect("exported");
    let bytes = pattern(5, 4 << 10);
    let open = make(&mut client, &root, "written");
    let mut writer = world.open();
    let mut streams = world.callers(120);
    let mut small = world.callers(20);
    world.files.shut();
    send(&mut streams, &world.call);
    let least = world.calls_in(SHARE_MIN);
    until("the share is full", || world.files.hanging() >= least);
    // Smaller calls take what is left of it.
    let mut ops = vec![raw::putrootfh4(), raw::lookup4(b"mem")];
    ops.resize(8, raw::lookup4(&[b'n'; 1536]));
    send(&mut small, &raw::compound4(1, &ops));
    world.expect_other_clients_are_served();
    ops.truncate(2);
    ops.extend([raw::lookup4(b"written"), raw::write4(&bytes)]);
    ops.resize(16, raw::lookup4(&[b'n'; 1536]));
    writer.write_all(&raw::compound4(1, &ops)).expect("taken");
    let (_, results) = raw::answer(&mut writer).expect("an answer");
    assert_eq!(raw::status(&results), raw::JUKEBOX);
    assert!(drain(&mut client, &open, 16 << 10).is_empty());
    world.files.open();
    for stream in streams.iter_mut().chain(&mut small) {
        raw::answer(stream).expect("an answer");
    }
    writer.write_all(&raw::compound4(2, &ops)).expect("taken");
    raw::answer(&mut writer).expect("an answer");
    assert!(drain(&mut client, &open, 16 << 10) == bytes);
    stop(world.running);
}

/// Wherever in a call they end: in arguments that have room, that wait for it behind data,
/// or before either.
#[each_driver]
fn connections_that_end_within_a_call_leave_all_of_their_share(backend: Choice) {
    let world = World::new(backend);
    let mut random = Random::new(1);
    let mut ops = vec![raw::putrootfh4(), raw::write4(&vec![7; 100 << 10])];
    ops.resize(60, raw::lookup4(&[b'n'; 1536]));
    let call = raw::compound4(1, &ops);
    for _ in 0..10 {
        for mut stream in world.callers(CALLERS / 2) {
            let part = random.below(call.len() as u64) as usize;
            stream.write_all(&call[..part]).expect("taken");
        }
    }
    until("all of them have ended", || {
        crate::report::report(&world.running).connections == 0
    });
    let mut streams = world.callers(CALLERS);
    world.files.shut();
    send(&mut streams, &world.call);
    let least = world.calls_in(SHARE_MIN);
    until("the share is full", || world.files.hanging() >= least);
    world.files.open();
    for stream in &mut streams {
        raw::answer(stream).expect("an answer");
    }
    stop(world.running);
}

/// While a disk hangs, the connections of calls that find no room end; those of the calls
/// that hang do not.
#[test]
fn connection_whose_call_finds_no_room_for_long_ends() {
    let world = World::new(Choice::Epoll);
    let mut streams = world.callers(CALLERS / 2);
    world.files.shut();
    send(&mut streams, &world.call);
    let least = world.calls_in(SHARE_MIN);
    until("the share is full", || world.files.hanging() >= least);
    let mut last = world.open();
    last.write_all(&world.call).expect("taken");
    assert!(!is_answered(&mut last));
    let refusals = || crate::report::report(&world.running).refusals;
    let hanging = world.files.hanging();
    let beyond = CALLERS as u64 / 2 + 1 - hanging;
    until("the others end", || refusals() == beyond);
    world.files.open();
    let answered = streams.iter_mut().map(is_answered).filter(|is| *is);
    assert_eq!(answered.count() as u64, hanging);
    stop(world.running);
}
