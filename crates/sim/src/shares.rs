//! Hosts that sit on memory beside one that reads: in simulated time, how long
//! that one waits.

use std::rc::Rc;

use host::{Data, Event as QueueEvent, Memory, Queue, QueueParams, Settings};
use mem::{Budget, Buf, Pool};
use random::Random;
use reactor::{Completion, Nanos, Token};
use wire::nvme::fabrics::ConnectData;
use wire::nvme::property::offset;
use wire::nvme::{ConnectCommand, PropertySet, Sgl, Sqe, Status, io};

use crate::changes::host_nqn;
use crate::disk::{Disk, DiskSettings};
use crate::documents;
use crate::driver::SimDriver;
use crate::host::{CC_ENABLE, TOKENS};
use crate::net::{Net, NetSettings};
use crate::plan::{Lies, Plan, VolumePlan};
use crate::target::{Medium, SimTarget, address, nsid, subnqn};
use crate::world::{DriverId, MS, S, SharedWorld, US, World, WorldEvent};

/// Of the target.
const MEMORY_MAX: u64 = 256 << 20;
/// Commands of a host that sits, each of so many bytes.
const COMMANDS: usize = 1000;
const MIB: u32 = 1 << 20;
const BLOCK: u32 = 4096;
/// Default of the target.
const ENTRIES: u16 = 1024;

/// A host with an Admin Queue and an I/O queue.
struct Guest {
    id: DriverId,
    driver: SimDriver,
    queues: Vec<Queue>,
    completions: Vec<Completion>,
    /// Results of its Connects and commands that were not looked at yet.
    results: Vec<u64>,
    is_down: bool,
    /// It takes no turn any more.
    sits: bool,
    /// Where all its data goes and comes from.
    buf: Buf,
}

impl Guest {
    fn turn(&mut self) {
        self.driver.begin_turn(&mut self.completions);
        for completion in self.completions.drain(..) {
            let at = (completion.token() / TOKENS) as usize;
            let queue = &mut self.queues[at];
            queue.on_completion(&mut self.driver, completion);
            while let Some(event) = queue.next_event(&mut self.driver) {
                match event {
                    QueueEvent::Live(result) => self.results.push(result),
                    QueueEvent::Completed(tag, cqe) => {
                        assert_eq!(cqe.status, Status::SUCCESS);
                        queue.take_memory(tag);
                        self.results.push(cqe.result);
                    }
                    QueueEvent::Down(_) => self.is_down = true,
                }
            }
        }
        self.flush();
    }

    fn flush(&mut self) {
        for queue in &mut self.queues {
            queue.flush(&mut self.driver);
        }
    }

    /// Begins to connect its next queue.
    fn open(&mut self, cntlid: u16) {
        let (qid, entries) = match self.queues.len() {
            0 => (0, 32),
            _ => (1, ENTRIES),
        };
        let (hostnqn, hostid) = (host_nqn(self.id), [self.id as u8; 16]);
        let params = QueueParams {
            settings: Settings::default().into(),
            connect: ConnectCommand {
                recfmt: 0,
                qid,
                sqsize: entries - 1,
                cattr: 0,
                kato_ms: 0,
            },
            connect_data: ConnectData::new(hostid, cntlid, &subnqn(0), &hostnqn),
            in_capsule_max: 8192,
            psk: None,
            dhchap: None,
        };
        let base = self.queues.len() as Token * TOKENS;
        let queue = Queue::open(&mut self.driver, address(0), params, base);
        self.queues
            .push(queue.expect("a simulated socket can be made"));
    }

    /// Submits a read or a write of `len` bytes at `slba`.
    fn submit(&mut self, opcode: u8, slba: u64, len: u32) {
        let mut sqe = Sqe::new(opcode);
        sqe.nsid = nsid(0, 0).into();
        sqe.set_blocks(slba, len / BLOCK);
        sqe.sgl = Sgl::new(Sgl::TRANSPORT, len);
        let data = match opcode {
            io::READ => Data::In(len),
            _ => Data::Out(len),
        };
        let memory = Memory::lent(self.buf.range().slice(0, len));
        let tag = self.queues[1].submit(&sqe, data, |_| memory);
        tag.expect("the queue has room");
    }
}

/// A disk on which nothing goes wrong.
fn good_disk() -> Disk {
    Disk::new(DiskSettings {
        latency: 100 * US,
        read_errors: 0,
        write_errors: 0,
        sync_errors: 0,
        short: 0,
        hangs: 0,
        writebacks: 0,
        interrupts: 0,
        punches: true,
        zeroes: true,
    })
}

struct SharesRoom {
    shards: usize,
    /// Of the reactors, then of the guests.
    pools: Vec<Pool>,
    world: SharedWorld,
    target: SimTarget,
    guests: Vec<Guest>,
    _media: Vec<Medium>,
}

impl SharesRoom {
    /// A target with so many reactors and a file of 16 MiB; nothing goes wrong.
    fn new(shards: usize, hosts: usize) -> SharesRoom {
        let plan = Plan {
            shards,
            subsystems: 1,
            listeners: 1,
            volumes: vec![VolumePlan {
                lies: Lies::File,
                made: crate::made::Made::File,
                is_checksummed: false,
                is_encrypted: false,
                block_bytes: BLOCK,
                blocks: 4096,
                hot: 0,
            }],
            io_bytes_max: MIB,
            h2c_data_max: MIB,
            in_capsule_max: 8192,
            cpda: 0,
            nfs: None,
            ..Plan::new(1)
        };
        let mut net = Net::new(NetSettings {
            latency: 20 * US,
            split_percent: 0,
            window_bytes: 256 << 10,
            zero_copy: false,
            flips: 0,
            cut: None,
        });
        let of_target = Budget::of_pools(MEMORY_MAX, shards);
        let budgets = (0..shards).map(|_| of_target.clone());
        let pools: Vec<Pool> = budgets
            .chain((0..hosts).map(|_| Budget::new(MEMORY_MAX)))
            .map(|budget| Pool::new(budget).expect("address space is left"))
            .collect();
        pools.iter().for_each(|pool| {
            net.add_driver(pool.clone());
        });
        let world = World::new(Random::new(7), net, good_disk(), false);
        let media: Vec<Medium> = plan
            .volumes
            .iter()
            .map(|v| Medium::new(&world, *v))
            .collect();
        let config = documents::base(&plan, &media);
        let target = SimTarget::start(&world, (&plan, &config), (&media, None), &pools);
        let guests = (shards..).zip(&pools[shards..]).map(|(id, pool)| Guest {
            id,
            driver: SimDriver::new(&world, id, pool.clone()),
            queues: Vec::new(),
            completions: Vec::new(),
            results: Vec::new(),
            is_down: false,
            sits: false,
            buf: pool.get(MIB).expect("it is empty"),
        });
        SharesRoom {
            shards,
            guests: guests.collect(),
            pools: pools.clone(),
            target,
            world: Rc::clone(&world),
            _media: media,
        }
    }

    fn now(&self) -> Nanos {
        self.world.borrow().now
    }

    /// Lets things happen until something is so; it must be before `limit`.
    fn until(&mut self, limit: Nanos, is_so: impl Fn(&SharesRoom) -> bool) {
        while !is_so(self) {
            let event = self.world.borrow_mut().next(limit);
            match event {
                None => panic!("not by {} ms", limit / MS),
                Some(WorldEvent::Turn(id)) if id < self.shards => self.target.turn(id, &self.world),
                Some(WorldEvent::Turn(id)) => {
                    let guest = &mut self.guests[id - self.shards];
                    if !guest.sits {
                        guest.turn();
                    }
                }
                Some(WorldEvent::Script(_)) => {
                    self.target.shared.engine.run_blocking_work();
                    self.target.call(&self.world);
                }
                Some(event) => self.world.borrow_mut().run_event(event),
            }
        }
    }

    /// Lets so much time pass.
    fn rest(&mut self, time: Nanos) {
        let end = self.now() + time;
        self.world.borrow_mut().at(end, WorldEvent::Script(0));
        self.until(end, |room| room.now() >= end);
    }

    /// Waits for the next result of a guest.
    fn result(&mut self, guest: usize) -> u64 {
        let limit = self.now() + 60 * S;
        self.until(limit, |room| !room.guests[guest].results.is_empty());
        self.guests[guest].results.remove(0)
    }

    /// Connects both queues of a guest.
    fn connect(&mut self, guest: usize) {
        let cntlid = self.connect_admin(guest);
        self.guests[guest].open(cntlid);
        self.result(guest);
    }

    /// Connects the Admin Queue of a guest; its controller.
    fn connect_admin(&mut self, guest: usize) -> u16 {
        self.guests[guest].open(0xffff);
        let cntlid = self.result(guest) as u16;
        let enable = PropertySet {
            offset: offset::CC,
            is_8_bytes: false,
            value: CC_ENABLE,
        };
        let admin = &mut self.guests[guest].queues[0];
        let tag = admin.submit(&enable.encode(), Data::None, |_| Memory::default());
        tag.expect("it is live");
        self.guests[guest].flush();
        self.result(guest);
        cntlid
    }

    /// Asks for so many reads of 1 MiB.
    fn read_much(&mut self, guest: usize, count: u64) {
        for n in 0..count {
            let slba = n % 8 * u64::from(MIB / BLOCK);
            self.guests[guest].submit(io::READ, slba, MIB);
        }
        self.guests[guest].flush();
    }
}

/// The 99th percentile of so many reads of 4 KiB one after the other, of a host
/// beside two that do not read and two that do not send what they promised.
fn p99_of_reads_beside_sitting_hosts(reads: usize) -> Nanos {
    let mut room = SharesRoom::new(1, 5);
    for guest in 0..5 {
        room.connect(guest);
    }
    for (guest, opcode) in [io::READ, io::READ, io::WRITE, io::WRITE]
        .into_iter()
        .enumerate()
    {
        for n in 0..COMMANDS as u64 {
            room.guests[guest].submit(opcode, n % 8 * u64::from(MIB / BLOCK), MIB);
        }
        room.guests[guest].flush();
        room.guests[guest].sits = true;
    }
    // Their commands arrive.
    room.rest(500 * MS);
    let mut took: Vec<Nanos> = (0..reads as u64)
        .map(|n| {
            let begun = room.now();
            room.guests[4].submit(io::READ, n % 4096, BLOCK);
            room.guests[4].flush();
            room.result(4);
            room.now() - begun
        })
        .collect();
    assert!(!room.guests[4].is_down);
    took.sort_unstable();
    took[reads * 99 / 100]
}

#[test]
fn hosts_that_sit_on_memory_do_not_delay_small_reads_of_another() {
    let p99 = p99_of_reads_beside_sitting_hosts(1000);
    assert!(p99 < 100 * MS, "{} ms", p99 / MS);
}

/// Connections go to the reactors in turn: those of one host more have an Admin
/// Queue alone, so that the I/O queue of the last host is not where the others' are.
#[test]
fn memory_that_lies_idle_on_another_reactor_is_there_at_once() {
    let mut room = SharesRoom::new(2, 6);
    (0..4).for_each(|guest| room.connect(guest));
    room.connect_admin(5);
    room.connect(4);
    (0..4).for_each(|guest| room.read_much(guest, 200));
    let limit = room.now() + 60 * S;
    let has_all = |guest: &Guest| guest.results.len() == 200;
    room.until(limit, |room| room.guests[..4].iter().all(has_all));
    assert_eq!(room.pools[1].lent(), 0);
    assert!(
        room.pools[1].reserved_bytes() > MEMORY_MAX / 2,
        "it had much"
    );
    assert!(room.pools[0].reserved_bytes() < 16 << 20);
    // It takes nothing of what it asks for.
    room.read_much(4, 100);
    room.guests[4].sits = true;
    let limit = room.now() + 100 * MS;
    room.until(limit, |room| room.pools[0].reserved_bytes() >= 64 << 20);
}

/// As in its own loop: memory that was used a moment ago stays for the next use.
#[test]
fn reactor_gives_memory_back_that_no_host_has_used_for_a_while() {
    let mut room = SharesRoom::new(1, 1);
    room.connect(0);
    room.read_much(0, 100);
    let limit = room.now() + 60 * S;
    room.until(limit, |room| room.guests[0].results.len() == 100);
    let had = room.pools[0].reserved_bytes();
    assert!(had > 16 << 20, "{had} bytes");
    room.rest(3 * S);
    assert_eq!(room.pools[0].reserved_bytes(), had);
    room.rest(15 * S);
    let has = room.pools[0].reserved_bytes();
    assert!(has < had / 2, "{has} of {had} bytes");
    assert!(!room.guests[0].is_down);
}
