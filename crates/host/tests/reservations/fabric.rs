//! A target in the same process and hosts of any number, each with an Admin
//! Queue and an I/O queue.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use host::{
    Admin, Data, Error, Event, HostIdentity, Memory, Payload, Queue, QueueParams, QueueSettings,
    RdmaHostSettings, Settings,
};
use nvmf::host::Completion;
use nvmf::transport::Transports;
use reactor::{Driver, EpollDriver, Wait};
use server::{Config, ListenerSpec, NamespaceSpec, RdmaSpec, Running, SubsystemSpec};
use store::Volume;
use wire::nvme::fabrics::ConnectData;
use wire::nvme::reservation::{IEKEY, action};
use wire::nvme::{ConnectCommand, Sqe, Status, admin, io};

use crate::ends::driver;

pub const NQN: &str = "nqn.2026-01.io.weft:test";
pub const TWIN: &str = "nqn.2026-01.io.weft:twin";
pub const BLOCK: usize = 512;
/// Reached only when a test fails.
const PATIENCE_NS: u64 = 20_000_000_000;

/// What carries the queues of the host with a number.
pub type Way = fn(u128) -> QueueSettings;

pub fn by_tcp(_: u128) -> QueueSettings {
    Settings::default().into()
}

fn by_rdma(_: u128) -> QueueSettings {
    RdmaHostSettings::default().into()
}

/// One host by TCP, the next by RDMA.
fn by_both(number: u128) -> QueueSettings {
    if number.is_multiple_of(2) {
        by_rdma(number)
    } else {
        by_tcp(number)
    }
}

pub const WAYS: [Way; 3] = [by_tcp, by_rdma, by_both];

/// A RAM volume of 1 MiB.
pub fn ram(name: &str) -> store::Spec {
    store::Spec::new(name, store::Kind::RAM, 1 << 20, BLOCK as u32)
}

/// Serves volumes as the namespaces 1, 2 and so on, and in another subsystem as
/// 11, 12 and so on, on two reactors.
pub fn serve(volumes: Vec<Arc<dyn Volume>>) -> Running {
    let subsystem = |nqn: &str, first: u32| {
        let namespaces = (first..).zip(&volumes).map(|(nsid, volume)| NamespaceSpec {
            nsid,
            volume: volume.info().name.clone(),
            ..NamespaceSpec::default()
        });
        SubsystemSpec {
            nqn: nqn.into(),
            serial: "1".into(),
            model: "weft".into(),
            namespaces: namespaces.collect(),
            ..SubsystemSpec::default()
        }
    };
    let config = Config {
        subsystems: vec![subsystem(NQN, 1), subsystem(TWIN, 11)],
        listeners: vec![ListenerSpec {
            rdma: RdmaSpec {
                transports: Transports::Both,
                ..RdmaSpec::default()
            },
            ..SocketAddr::from(([127, 0, 0, 1], 0)).into()
        }],
        cpus: vec![reactor::available_cpus()[0]; 2],
        spin_us_max: 0,
        placement: server::Placement::RoundRobin,
        memory_max: 64 << 20,
        ..Config::default()
    };
    server::parts::start_with(config, volumes).expect("the target starts")
}

/// Serves one volume in memory.
pub fn serve_ram() -> Running {
    serve(vec![store::open(&ram("ram")).expect("memory")])
}

/// One queue of a controller.
pub struct Line {
    driver: EpollDriver,
    queue: Queue,
    done: HashMap<u16, Completion>,
}

/// A command under way.
#[derive(Clone, Copy)]
pub struct Pending(u16);

impl Line {
    /// Connects queue `qid` of the controller `cntlid` of a subsystem.
    pub fn open(
        (to, settings): (SocketAddr, QueueSettings),
        subnqn: &str,
        host: &HostIdentity,
        (qid, cntlid): (u16, u16),
    ) -> Line {
        let params = QueueParams {
            settings,
            connect: ConnectCommand {
                recfmt: 0,
                qid,
                sqsize: 31,
                cattr: ConnectCommand::DISABLE_SQ_FLOW_CONTROL,
                kato_ms: 0,
            },
            connect_data: ConnectData::new(host.hostid, cntlid, subnqn, &host.hostnqn),
            in_capsule_max: 4096,
            psk: None,
            dhchap: None,
        };
        let mut driver = driver();
        let queue = Queue::open(&mut driver, to, params, 0).expect("a socket");
        let mut line = Line {
            driver,
            queue,
            done: HashMap::new(),
        };
        line.turn_until(|line| line.queue.is_live());
        line
    }

    /// Looks at what came until `is_met`.
    fn turn_until(&mut self, is_met: impl Fn(&Line) -> bool) {
        let deadline = self.driver.now() + PATIENCE_NS;
        loop {
            while let Some(event) = self.queue.next_event(&mut self.driver) {
                match event {
                    Event::Completed(tag, completion) => {
                        let before = self.done.insert(tag, completion);
                        assert!(before.is_none(), "completed twice");
                    }
                    Event::Live(_) => {}
                    other => panic!("{other:?}"),
                }
            }
            if is_met(self) {
                return;
            }
            self.turn(Wait::Until(deadline));
            assert!(self.driver.now() < deadline, "nothing came");
        }
    }

    /// Sends what there is to send, and takes what came.
    fn turn(&mut self, wait: Wait) {
        let mut out = Vec::new();
        self.queue.flush(&mut self.driver);
        let polled = self.driver.poll(wait, &mut out);
        polled.expect("the driver works");
        for completion in out {
            self.queue.on_completion(&mut self.driver, completion);
        }
    }

    /// Sends a command with data for the controller, or with room for its own.
    pub fn submit(&mut self, sqe: &Sqe, out: &[u8], in_len: usize) -> Pending {
        let (data, memory) = match (out.len(), in_len) {
            (0, 0) => (Data::None, Memory::default()),
            (0, len) => {
                let buf = self.driver.pool().get(len as u32).expect("memory");
                mem::zero(buf.range());
                (Data::In(len as u32), Memory::owned(buf))
            }
            (len, _) => {
                let buf = self.driver.pool().get(len as u32).expect("memory");
                mem::copy_in(buf.range(), out);
                (Data::Out(len as u32), Memory::owned(buf))
            }
        };
        let tag = self.queue.submit(sqe, data, |_| memory).expect("room");
        self.turn(Wait::Now);
        Pending(tag)
    }

    /// Whether the completion of a command was seen.
    pub fn is_done(&self, pending: Pending) -> bool {
        self.done.contains_key(&pending.0)
    }

    /// Waits for a command; its completion and data.
    pub fn complete(&mut self, pending: Pending) -> (Completion, Vec<u8>) {
        self.turn_until(|line| line.is_done(pending));
        let completion = self.done.remove(&pending.0).expect("seen");
        let memory = self.queue.take_memory(pending.0);
        let mut data = Vec::new();
        if let Some(range) = memory.range() {
            data.resize(range.len() as usize, 0);
            mem::copy_out(range, &mut data);
        }
        (completion, data)
    }

    /// Waits for a command; its status and data.
    pub fn wait(&mut self, pending: Pending) -> (Status, Vec<u8>) {
        let (completion, data) = self.complete(pending);
        (completion.status, data)
    }

    /// Sends a command and waits for it.
    pub fn run(&mut self, sqe: &Sqe, out: &[u8]) -> Status {
        let pending = self.submit(sqe, out, 0);
        self.wait(pending).0
    }
}

/// One host, with a Host Identifier of its own.
pub struct Host {
    pub hostid: [u8; 16],
    pub admin: Admin<EpollDriver>,
    line: Line,
}

impl Deref for Host {
    type Target = Line;

    fn deref(&self) -> &Line {
        &self.line
    }
}

impl DerefMut for Host {
    fn deref_mut(&mut self) -> &mut Line {
        &mut self.line
    }
}

/// The host with this number as its Host Identifier.
pub fn identity(number: u128) -> HostIdentity {
    HostIdentity {
        hostnqn: format!("nqn.2026-01.org.example:host{number}"),
        hostid: number.to_be_bytes(),
        psk: None,
        dhchap: None,
        concatenates: false,
    }
}

impl Host {
    pub fn connect(to: SocketAddr, number: u128) -> Host {
        Host::connect_to(to, NQN, number)
    }

    pub fn connect_to(to: SocketAddr, subnqn: &str, number: u128) -> Host {
        Host::connect_by(by_tcp, to, subnqn, number)
    }

    pub fn connect_by(way: Way, to: SocketAddr, subnqn: &str, number: u128) -> Host {
        let (host, settings) = (identity(number), way(number));
        let admin = Admin::connect(driver(), to, subnqn, &host, settings, 0);
        let mut admin = admin.expect("connects");
        assert_eq!(admin.set_queue_count(1).expect("a queue"), 1);
        let line = Line::open((to, settings), subnqn, &host, (1, admin.cntlid()));
        Host {
            hostid: host.hostid,
            admin,
            line,
        }
    }

    /// Reservation Register with RREGA, IEKEY, CPTPL.
    pub fn register(&mut self, rrega: u8, crkey: u64, nrkey: u64, bits: u32) -> Status {
        let sqe = command(io::RESERVATION_REGISTER, u32::from(rrega) | bits);
        self.run(&sqe, &keys(crkey, nrkey))
    }

    /// Registers a key.
    pub fn join(&mut self, key: u64) {
        assert_eq!(self.register(action::REGISTER, 0, key, 0), Status::SUCCESS);
    }

    /// Ends the registration, whatever its key.
    pub fn leave(&mut self) -> Status {
        self.register(action::UNREGISTER, 0, 0, IEKEY)
    }

    pub fn submit_acquire(&mut self, racqa: u8, key: u64, prkey: u64, rtype: u8) -> Pending {
        let cdw10 = u32::from(racqa) | u32::from(rtype) << 8;
        let sqe = command(io::RESERVATION_ACQUIRE, cdw10);
        self.submit(&sqe, &keys(key, prkey), 0)
    }

    /// Reservation Acquire with RACQA.
    pub fn acquire(&mut self, racqa: u8, key: u64, prkey: u64, rtype: u8) -> Status {
        let pending = self.submit_acquire(racqa, key, prkey, rtype);
        self.wait(pending).0
    }

    /// Reservation Release with RRELA.
    pub fn release(&mut self, rrela: u8, key: u64, rtype: u8) -> Status {
        let sqe = command(
            io::RESERVATION_RELEASE,
            u32::from(rrela) | u32::from(rtype) << 8,
        );
        self.run(&sqe, &key.to_le_bytes())
    }

    /// Reservation Report of `len` bytes.
    pub fn report(&mut self, len: usize) -> Report {
        let mut sqe = command(io::RESERVATION_REPORT, len as u32 / 4 - 1);
        sqe.cdw11 = 1.into();
        let pending = self.submit(&sqe, &[], len);
        let (status, bytes) = self.wait(pending);
        assert_eq!(status, Status::SUCCESS);
        Report { bytes }
    }

    pub fn read(&mut self, slba: u64) -> Status {
        let mut sqe = command(io::READ, 0);
        sqe.set_blocks(slba, 1);
        let pending = self.submit(&sqe, &[], BLOCK);
        self.wait(pending).0
    }

    pub fn submit_write(&mut self, slba: u64) -> Pending {
        let mut sqe = command(io::WRITE, 0);
        sqe.set_blocks(slba, 1);
        self.submit(&sqe, &[0; BLOCK], 0)
    }

    pub fn write(&mut self, slba: u64) -> Status {
        let pending = self.submit_write(slba);
        self.wait(pending).0
    }

    /// Get Features of namespace 1.
    pub fn feature(&mut self, fid: u8) -> Result<u32, Status> {
        let mut sqe = Sqe::new(admin::GET_FEATURES);
        sqe.nsid = 1.into();
        sqe.cdw10 = u32::from(fid).into();
        self.admin(&sqe, Payload::None)
    }

    pub fn set_feature(&mut self, nsid: u32, fid: u8, value: u32) -> Result<u32, Status> {
        let mut sqe = Sqe::new(admin::SET_FEATURES);
        sqe.nsid = nsid.into();
        sqe.cdw10 = u32::from(fid).into();
        sqe.cdw11 = value.into();
        self.admin(&sqe, Payload::None)
    }

    /// Dword 0 of an Admin command.
    pub fn admin(&mut self, sqe: &Sqe, payload: Payload<'_>) -> Result<u32, Status> {
        match self.admin.command("Admin", sqe, payload) {
            Ok(completion) => Ok(completion.result as u32),
            Err(Error::Refused { status, .. }) => Err(status),
            Err(other) => panic!("{other}"),
        }
    }

    /// The Reservation Notification log page: count, type, further pages, nsid.
    pub fn notification(&mut self, retains: bool) -> (u64, u8, u8, u32) {
        let mut page = [0; 64];
        let mut sqe = Sqe::new(admin::GET_LOG_PAGE);
        sqe.cdw10 = (0x80 | u32::from(retains) << 15 | 15 << 16).into();
        self.admin(&sqe, Payload::In(&mut page)).expect("a page");
        let count = u64::from_le_bytes(page[..8].try_into().expect("8 bytes"));
        let nsid = u32::from_le_bytes(page[12..16].try_into().expect("4 bytes"));
        (count, page[8], page[9], nsid)
    }
}

/// A command for namespace 1.
pub fn command(opcode: u8, cdw10: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode);
    sqe.nsid = 1.into();
    sqe.cdw10 = cdw10.into();
    sqe
}

/// Two keys as a command's data.
pub fn keys(first: u64, second: u64) -> [u8; 16] {
    (u128::from(first) | u128::from(second) << 64).to_le_bytes()
}

/// What Reservation Report said, read by hand.
pub struct Report {
    bytes: Vec<u8>,
}

impl Report {
    /// Everything but the registrants.
    pub fn head(&self) -> &[u8] {
        &self.bytes[..self.bytes.len().min(64)]
    }

    pub fn generation(&self) -> u32 {
        u32::from_le_bytes(self.bytes[..4].try_into().expect("4 bytes"))
    }

    pub fn rtype(&self) -> u8 {
        self.bytes[4]
    }

    pub fn count(&self) -> u16 {
        u16::from_le_bytes([self.bytes[5], self.bytes[6]])
    }

    pub fn persists(&self) -> bool {
        self.bytes[9] == 1
    }

    /// Host Identifier, key, whether it holds the reservation; as many as fit.
    pub fn registrants(&self) -> Vec<([u8; 16], u64, bool)> {
        let all = self.bytes[64..].chunks_exact(64);
        all.take(usize::from(self.count()))
            .map(|entry| {
                assert_eq!(entry[..2], [0xff, 0xff], "dynamic controller model");
                (
                    entry[16..32].try_into().expect("16 bytes"),
                    u64::from_le_bytes(entry[8..16].try_into().expect("8 bytes")),
                    entry[2] == 1,
                )
            })
            .collect()
    }
}
