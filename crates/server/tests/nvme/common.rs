//! A target, and hosts by hand: one connection each, PDU by PDU.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpStream};

use reactor::Choice;
use server::{Config, Limits, Placement, Running};
use testkit::nvme::Pdus;
use wire::nvme::fabrics::ConnectData;
use wire::nvme::property::offset;
use wire::nvme::{ConnectCommand, PropertySet, Sgl, Sqe, Status, admin, io as opcode};
use wire::nvme_tcp::pdu_type;
use zerocopy::IntoBytes;

pub use crate::disks::{BLOCK, NQN, ram};
pub use crate::running::{PATIENCE, stop};

use crate::disks::subsystem;

pub const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:0b9b4b8e-9c0c-4a55-a3a8-0d4c9e0d7d11";

/// One namespace on the RAM volume "ram", two listeners (IPv4 and IPv6).
pub fn config(backend: Choice, limits: Limits, memory_max: u64) -> Config {
    Config {
        volumes: vec![ram("ram", 4096)],
        subsystems: vec![subsystem()],
        listeners: vec![
            SocketAddr::from(([127, 0, 0, 1], 0)).into(),
            SocketAddr::from((Ipv6Addr::LOCALHOST, 0)).into(),
        ],
        // Two reactors even on one CPU, so that connections are handed over.
        cpus: vec![reactor::available_cpus()[0]; 2],
        backend,
        spin_us_max: 0,
        placement: Placement::RoundRobin,
        memory_max,
        limits,
        ..Config::default()
    }
}

/// Runs a test with a target.
pub fn with_target(backend: Choice, limits: Limits, memory_max: u64, test: impl Fn(&mut Running)) {
    let mut running = server::start(config(backend, limits, memory_max)).expect("starts");
    test(&mut running);
    stop(running);
}

/// One queue pair by hand.
pub struct Queue {
    pub stream: TcpStream,
    pub cid: u16,
    /// Asynchronous Event Requests under way.
    armed: Vec<u16>,
    /// Dwords 0 of those that completed.
    events: VecDeque<u32>,
}

/// How a host connects.
#[derive(Clone, Copy)]
pub struct Host<'a> {
    pub address: SocketAddr,
    pub subnqn: &'a str,
    pub hostnqn: &'a str,
    pub kato_ms: u32,
    /// Entries of an I/O queue, less one.
    pub sqsize: u16,
}

impl<'a> Host<'a> {
    /// The usual host to the usual subsystem.
    pub fn at(address: SocketAddr) -> Host<'a> {
        Host {
            address,
            subnqn: NQN,
            hostnqn: HOST,
            kato_ms: 0,
            sqsize: 31,
        }
    }

    /// A host that keeps its connection to the discovery subsystem.
    pub fn discovering(address: SocketAddr) -> Host<'a> {
        Host {
            subnqn: DISCOVERY,
            kato_ms: 120_000,
            ..Host::at(address)
        }
    }

    /// ICReq and Connect; the controller's ID or why not.
    pub fn queue(self, qid: u16, cntlid: u16) -> Result<(Queue, u16), Status> {
        let (queue, (status, result)) = self.try_queue(qid, cntlid);
        match status.is_success() {
            true => Ok((queue, result as u16)),
            false => Err(status),
        }
    }

    /// The same of a host that is let in, and all that Connect is answered.
    pub fn connected(self, qid: u16, cntlid: u16) -> (Queue, u32) {
        let (queue, (status, result)) = self.try_queue(qid, cntlid);
        assert_eq!(status, Status::SUCCESS);
        (queue, result as u32)
    }

    fn try_queue(self, qid: u16, cntlid: u16) -> (Queue, (Status, u64)) {
        let mut queue = Queue::open(self.address);
        let ic_req = Pdus::default().ic_req(0);
        queue.stream.write_all(&ic_req).expect("sent");
        assert_eq!(queue.pdu()[0], pdu_type::IC_RESP);
        let command = ConnectCommand {
            recfmt: 0,
            qid,
            sqsize: if qid == 0 { 127 } else { self.sqsize },
            cattr: 0,
            kato_ms: self.kato_ms,
        };
        let data = ConnectData::new([7; 16], cntlid, self.subnqn, self.hostnqn);
        let answer = queue.command(command.encode(), data.as_bytes());
        (queue, answer)
    }

    /// An Admin Queue of an enabled controller, and the controller's ID.
    pub fn admin(self) -> (Queue, u16) {
        let (mut queue, cntlid) = self.queue(0, 0xffff).expect("admitted");
        queue.enable();
        (queue, cntlid)
    }

    /// A controller with one I/O queue.
    pub fn pair(self) -> (Queue, Queue) {
        let (admin, cntlid) = self.admin();
        let (io, _) = self.queue(1, cntlid).expect("admitted");
        (admin, io)
    }
}

impl Queue {
    pub fn open(address: SocketAddr) -> Queue {
        let stream = TcpStream::connect(address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("settable");
        stream.set_nodelay(true).expect("settable");
        Queue {
            stream,
            cid: 0,
            armed: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// ICReq and Connect; the controller's ID or why not.
    pub fn connect(
        address: SocketAddr,
        qid: u16,
        cntlid: u16,
        kato_ms: u32,
    ) -> Result<(Queue, u16), Status> {
        let host = Host::at(address);
        Host { kato_ms, ..host }.queue(qid, cntlid)
    }

    pub fn admin(address: SocketAddr, kato_ms: u32) -> (Queue, u16) {
        let host = Host::at(address);
        Host { kato_ms, ..host }.admin()
    }

    /// Enables the controller.
    pub fn enable(&mut self) {
        let enable = PropertySet {
            offset: offset::CC,
            is_8_bytes: false,
            value: 1 | 6 << 16 | 4 << 20,
        };
        assert!(self.command(enable.encode(), &[]).0.is_success());
    }

    /// Sends a command with its data in the capsule.
    pub fn send(&mut self, mut sqe: Sqe, data: &[u8]) -> u16 {
        self.cid = (self.cid + 1) % 0xff00;
        sqe.cid = self.cid.into();
        if !data.is_empty() {
            sqe.sgl = Sgl::new(Sgl::IN_CAPSULE, data.len() as u32);
        }
        let pdu = Pdus::default().capsule_cmd(&sqe, data);
        self.stream.write_all(&pdu).expect("sent");
        self.cid
    }

    /// Takes the response of a command; events that come before it are kept.
    pub fn response(&mut self, cid: u16) -> (Status, u64) {
        loop {
            let answer = self.pdu();
            assert_eq!(answer[0], pdu_type::CAPSULE_RESP);
            let got = u16::from_le_bytes([answer[20], answer[21]]);
            let status = Status(u16::from_le_bytes([answer[22], answer[23]]) >> 1);
            let result = u64::from_le_bytes(answer[8..16].try_into().expect("8 bytes"));
            if got == cid {
                return (status, result);
            }
            self.take_event(got, status, result);
        }
    }

    fn take_event(&mut self, cid: u16, status: Status, result: u64) {
        let at = self.armed.iter().position(|armed| *armed == cid);
        let at = at.expect("a response to something sent");
        self.armed.swap_remove(at);
        assert!(status.is_success(), "event request: {status}");
        self.events.push_back(result as u32);
    }

    /// Sends a command with its data in the capsule and takes its response.
    pub fn command(&mut self, sqe: Sqe, data: &[u8]) -> (Status, u64) {
        let cid = self.send(sqe, data);
        self.response(cid)
    }

    /// Asks to be told of one event.
    pub fn arm(&mut self) {
        let cid = self.send(Sqe::new(admin::ASYNC_EVENT_REQUEST), &[]);
        self.armed.push(cid);
    }

    /// Dword 0 of the next event; waits for it.
    pub fn event(&mut self) -> u32 {
        while self.events.is_empty() {
            let answer = self.pdu();
            assert_eq!(answer[0], pdu_type::CAPSULE_RESP);
            let cid = u16::from_le_bytes([answer[20], answer[21]]);
            let status = Status(u16::from_le_bytes([answer[22], answer[23]]) >> 1);
            let result = u64::from_le_bytes(answer[8..16].try_into().expect("8 bytes"));
            self.take_event(cid, status, result);
        }
        self.events.pop_front().expect("just seen")
    }

    /// Events that came while something else was awaited.
    pub fn events_seen(&self) -> usize {
        self.events.len()
    }

    /// Takes so many responses that are successes, and what is read.
    pub fn expect_responses(&mut self, count: usize) {
        let mut responses = 0;
        while responses < count {
            let pdu = self.pdu();
            if pdu[0] == pdu_type::CAPSULE_RESP {
                assert!(Status(u16::from_le_bytes([pdu[22], pdu[23]]) >> 1).is_success());
                responses += 1;
            }
        }
    }

    pub fn pdu(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        self.stream.read_exact(&mut bytes).expect("a PDU");
        let plen = u32::from_le_bytes(bytes[4..8].try_into().expect("4 bytes"));
        bytes.resize(plen as usize, 0);
        self.stream
            .read_exact(&mut bytes[8..])
            .expect("the rest of a PDU");
        bytes
    }

    /// Sends a command that reads `len` bytes: its data, or why not.
    pub fn fetch(&mut self, mut sqe: Sqe, len: u32) -> Result<Vec<u8>, Status> {
        sqe.sgl = Sgl::new(Sgl::TRANSPORT, len);
        let cid = self.send(sqe, &[]);
        self.data_of(cid)
    }

    /// Takes the data of a command that reads, or why there is none.
    pub fn data_of(&mut self, cid: u16) -> Result<Vec<u8>, Status> {
        let mut data = Vec::new();
        loop {
            let pdu = self.pdu();
            if pdu[0] == pdu_type::C2H_DATA {
                data.extend_from_slice(&pdu[usize::from(pdu[3])..]);
                continue;
            }
            assert_eq!(pdu[0], pdu_type::CAPSULE_RESP);
            let got = u16::from_le_bytes([pdu[20], pdu[21]]);
            let status = Status(u16::from_le_bytes([pdu[22], pdu[23]]) >> 1);
            if got != cid {
                let result = u64::from_le_bytes(pdu[8..16].try_into().expect("8 bytes"));
                self.take_event(got, status, result);
                continue;
            }
            return match status.is_success() {
                true => Ok(data),
                false => Err(status),
            };
        }
    }

    /// Get Log Page: the first `len` bytes of a page.
    pub fn log_page(&mut self, lid: u8, len: u32) -> Vec<u8> {
        let mut sqe = Sqe::new(admin::GET_LOG_PAGE);
        sqe.cdw10 = (u32::from(lid) | (len / 4 - 1) << 16).into();
        self.fetch(sqe, len).expect("a log page")
    }

    /// Identify with a CNS value for a namespace.
    pub fn identify(&mut self, cns: u32, nsid: u32) -> Vec<u8> {
        let mut sqe = Sqe::new(admin::IDENTIFY);
        sqe.nsid = nsid.into();
        sqe.cdw10 = cns.into();
        self.fetch(sqe, 4096).expect("an identify structure")
    }

    /// Writes one block full of `byte`.
    pub fn write(&mut self, nsid: u32, lba: u64, byte: u8) -> Status {
        let mut sqe = Sqe::new(opcode::WRITE);
        sqe.nsid = nsid.into();
        sqe.set_blocks(lba, 1);
        self.command(sqe, &[byte; BLOCK]).0
    }

    /// Reads one block.
    pub fn read(&mut self, nsid: u32, lba: u64) -> Result<Vec<u8>, Status> {
        let mut sqe = Sqe::new(opcode::READ);
        sqe.nsid = nsid.into();
        sqe.set_blocks(lba, 1);
        self.fetch(sqe, BLOCK as u32)
    }

    pub fn is_alive(&mut self) -> bool {
        let mut flush = Sqe::new(opcode::FLUSH);
        flush.nsid = 1.into();
        self.command(flush, &[]).0.is_success()
    }

    /// Waits for the target to close the connection.
    pub fn expect_end(mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
        }
    }
}
