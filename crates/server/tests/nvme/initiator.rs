//! A host on weft's own initiator: an Admin Queue, and I/O queues with many
//! commands under way.

use std::collections::HashMap;
use std::net::SocketAddr;

use host::{Admin, Event, HostIdentity, Memory, Payload, Queue, QueueParams, Settings};
use machine::Tag;
use mem::{Budget, Pool};
use reactor::{AnyDriver, Choice, Driver, DriverConfig, Wait};
use wire::nvme::fabrics::ConnectData;
use wire::nvme::{ConnectCommand, DsmRange, Sqe, Status, admin, io as opcode};
use zerocopy::IntoBytes;

use crate::common::{HOST, NQN, PATIENCE};

fn plain() -> Settings {
    Settings::default()
}

/// Digests, and a host that aligns and asks differently.
pub fn digests() -> Settings {
    Settings {
        header_digest: true,
        data_digest: true,
        hpda: 3,
        maxr2t: 0,
        ..Settings::default()
    }
}

const MEMORY_BYTES: u64 = 64 << 20;

pub fn driver(choice: Choice) -> AnyDriver {
    let pool = Pool::new(Budget::new(MEMORY_BYTES)).expect("memory");
    let config = DriverConfig {
        sockets_max: 4,
        ..DriverConfig::default()
    };
    reactor::open(choice, &config, pool).expect("a driver")
}

/// One controller's host.
pub struct Initiator {
    pub admin: Admin<AnyDriver>,
    pub seat: Seat,
}

/// What it takes to open an I/O queue, on any thread.
#[derive(Clone)]
pub struct Seat {
    identity: HostIdentity,
    cntlid: u16,
    address: SocketAddr,
    choice: Choice,
}

impl Initiator {
    /// The usual host.
    pub fn connect(address: SocketAddr, choice: Choice) -> Initiator {
        Initiator::named(address, choice, HOST)
    }

    pub fn named(address: SocketAddr, choice: Choice, hostnqn: &str) -> Initiator {
        let identity = HostIdentity::new(Some(hostnqn)).expect("random bytes");
        let admin = Admin::connect(driver(choice), address, NQN, &identity, plain(), 0);
        let mut admin = admin.expect("admitted");
        admin.set_queue_count(16).expect("granted");
        let seat = Seat {
            identity,
            cntlid: admin.cntlid(),
            address,
            choice,
        };
        Initiator { admin, seat }
    }

    pub fn queue(&self, qid: u16) -> Io {
        self.seat.queue_with(qid, plain())
    }

    pub fn queue_with(&self, qid: u16, settings: Settings) -> Io {
        self.seat.queue_with(qid, settings)
    }

    /// Set Features without data.
    pub fn set_feature(&mut self, fid: u8, nsid: u32, cdw11: u32) -> Result<(), host::Error> {
        let mut sqe = Sqe::new(admin::SET_FEATURES);
        sqe.nsid = nsid.into();
        sqe.cdw10 = u32::from(fid).into();
        sqe.cdw11 = cdw11.into();
        let done = self.admin.command("Set Features", &sqe, Payload::None);
        done.map(|_| ())
    }
}

impl Seat {
    pub fn queue(&self, qid: u16) -> Io {
        self.queue_with(qid, plain())
    }

    pub fn queue_with(&self, qid: u16, settings: Settings) -> Io {
        self.open(qid, settings).expect("admitted")
    }

    /// `None`: refused.
    pub fn try_queue(&self, qid: u16) -> Option<Io> {
        self.open(qid, plain())
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn open(&self, qid: u16, settings: Settings) -> Option<Io> {
        let mut driver = driver(self.choice);
        let (host, cntlid) = (&self.identity, self.cntlid);
        let params = QueueParams {
            settings: settings.into(),
            connect: ConnectCommand {
                recfmt: 0,
                qid,
                sqsize: 63,
                cattr: 0,
                kato_ms: 0,
            },
            connect_data: ConnectData::new(host.hostid, cntlid, NQN, &host.hostnqn),
            in_capsule_max: 8192,
            psk: None,
            dhchap: None,
        };
        let queue = Queue::open(&mut driver, self.address, params, 0).expect("a socket");
        let mut io = Io {
            driver,
            queue,
            ended: HashMap::new(),
            is_down: false,
            out: Vec::new(),
        };
        io.until(|io| io.is_down || io.queue.is_live());
        (!io.is_down).then_some(io)
    }
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub status: Status,
    pub result: u64,
    pub data: Vec<u8>,
}

/// The data of a command.
#[derive(Clone, Copy)]
pub enum Carry<'a> {
    Nothing,
    In(usize),
    Out(&'a [u8]),
}

/// An I/O queue with a driver of its own.
pub struct Io {
    driver: AnyDriver,
    queue: Queue,
    ended: HashMap<Tag, Ended>,
    pub is_down: bool,
    out: Vec<reactor::Completion>,
}

impl Io {
    /// Puts a command on the queue; [`Io::flush`] or [`Io::wait`] sends it.
    pub fn submit(&mut self, sqe: &Sqe, carry: Carry<'_>) -> Tag {
        let pool = self.driver.pool();
        let buf = |len: usize| pool.get(len as u32).expect("memory of the host");
        let (data, memory) = match carry {
            Carry::Nothing => (host::Data::None, Memory::default()),
            Carry::In(len) => (host::Data::In(len as u32), Memory::owned(buf(len))),
            Carry::Out(bytes) => {
                let buf = buf(bytes.len());
                mem::copy_in(buf.range(), bytes);
                (host::Data::Out(bytes.len() as u32), Memory::owned(buf))
            }
        };
        let tag = self.queue.submit(sqe, data, |_| memory);
        let tag = tag.expect("room on the queue");
        let is_new = !self.ended.contains_key(&tag);
        assert!(is_new, "take the answers before you submit more");
        tag
    }

    /// Sends what was submitted and takes what has come.
    pub fn flush(&mut self) {
        self.queue.flush(&mut self.driver);
        self.turn(Wait::Now);
    }

    fn turn(&mut self, wait: Wait) {
        self.driver.poll(wait, &mut self.out).expect("polls");
        for completion in self.out.drain(..) {
            self.queue.on_completion(&mut self.driver, completion);
        }
        while let Some(event) = self.queue.next_event(&mut self.driver) {
            match event {
                Event::Live(_) => {}
                Event::Down(_) => self.is_down = true,
                Event::Completed(tag, done) => {
                    let memory = self.queue.take_memory(tag);
                    let mut data = vec![0; done.data_len as usize];
                    if let Some(range) = memory.range().filter(|_| !data.is_empty()) {
                        mem::copy_out(range.slice(0, done.data_len), &mut data);
                    }
                    let ended = Ended {
                        status: done.status,
                        result: done.result,
                        data,
                    };
                    let previous = self.ended.insert(tag, ended);
                    assert!(previous.is_none(), "a command ends once");
                }
            }
        }
        self.queue.flush(&mut self.driver);
    }

    /// Turns until `is_true`.
    pub fn until(&mut self, is_true: impl Fn(&Io) -> bool) {
        let give_up = std::time::Instant::now() + PATIENCE;
        self.flush();
        while !is_true(self) {
            assert!(std::time::Instant::now() < give_up, "nothing comes");
            let soon = self.driver.now() + 5_000_000;
            self.turn(Wait::Until(soon));
        }
    }

    /// Waits for a command.
    pub fn wait(&mut self, tag: Tag) -> Ended {
        self.until(|io| io.is_down || io.ended.contains_key(&tag));
        assert!(!self.is_down, "the connection was lost");
        self.ended.remove(&tag).expect("just seen")
    }

    /// Whether a command has ended, without waiting.
    pub fn has_ended(&mut self, tag: Tag) -> bool {
        self.flush();
        self.ended.contains_key(&tag)
    }

    /// One command to its end.
    pub fn run(&mut self, sqe: &Sqe, carry: Carry<'_>) -> Ended {
        let tag = self.submit(sqe, carry);
        self.wait(tag)
    }

    pub fn write(&mut self, nsid: u32, slba: u64, data: &[u8], block: usize) -> Status {
        let sqe = blocks(opcode::WRITE, nsid, slba, data.len() / block);
        self.run(&sqe, Carry::Out(data)).status
    }

    pub fn read(&mut self, nsid: u32, slba: u64, len: usize, block: usize) -> Vec<u8> {
        let sqe = blocks(opcode::READ, nsid, slba, len / block);
        let ended = self.run(&sqe, Carry::In(len));
        assert_eq!(ended.status, Status::SUCCESS, "read of {nsid} at {slba}");
        ended.data
    }

    /// Closes the connection as a host that is in a hurry.
    pub fn hang_up(mut self) {
        self.queue.close(&mut self.driver);
        self.until(|io| io.queue.is_closed());
    }
}

/// A command on a range of blocks.
pub fn blocks(opcode: u8, nsid: u32, slba: u64, count: usize) -> Sqe {
    let mut sqe = Sqe::new(opcode);
    sqe.nsid = nsid.into();
    sqe.set_blocks(slba, count as u32);
    sqe
}

/// A command on a namespace.
pub fn on(opcode: u8, nsid: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode);
    sqe.nsid = nsid.into();
    sqe
}

/// A Compare and its Write, fused (Base 2.0, section 3.4.2).
pub fn fused(nsid: u32, slba: u64, count: usize) -> (Sqe, Sqe) {
    let mut compare = blocks(opcode::COMPARE, nsid, slba, count);
    compare.flags = 0b01;
    let mut write = blocks(opcode::WRITE, nsid, slba, count);
    write.flags = 0b10;
    (compare, write)
}

/// Dataset Management that deallocates, and its data.
pub fn deallocate(nsid: u32, ranges: &[(u64, u32)]) -> (Sqe, Vec<u8>) {
    let mut sqe = on(opcode::DATASET_MANAGEMENT, nsid);
    sqe.cdw10 = (ranges.len() as u32 - 1).into();
    sqe.cdw11 = wire::nvme::DSM_AD.into();
    let ranges: Vec<DsmRange> = (ranges.iter())
        .map(|&(slba, count)| DsmRange {
            cattr: 0.into(),
            length_blocks: count.into(),
            slba: slba.into(),
        })
        .collect();
    (sqe, ranges.as_bytes().to_vec())
}

/// Copy of `ranges` (namespace, first block, blocks) to `slba` of `nsid`, and
/// its data: descriptors of `format` (NVM Command Set 1.0, section 3.2.2).
pub fn copy(nsid: u32, slba: u64, format: u8, ranges: &[(u32, u64, u32)]) -> (Sqe, Vec<u8>) {
    let mut sqe = on(opcode::COPY, nsid);
    sqe.cdw10 = (slba as u32).into();
    sqe.cdw11 = ((slba >> 32) as u32).into();
    sqe.cdw12 = ((ranges.len() as u32 - 1) | (u32::from(format) << 8)).into();
    let mut data = Vec::new();
    for &(source, from, count) in ranges {
        let mut entry = vec![0; if format & 1 == 0 { 32 } else { 40 }];
        if format >= 2 {
            entry[..4].copy_from_slice(&source.to_le_bytes());
        }
        entry[8..16].copy_from_slice(&from.to_le_bytes());
        entry[16..18].copy_from_slice(&(count as u16 - 1).to_le_bytes());
        data.extend_from_slice(&entry);
    }
    (sqe, data)
}

/// Bytes that tell where they belong: different in every 8 of them.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let words = (0..len as u64 / 8).map(|n| (seed << 40) ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).collect()
}
