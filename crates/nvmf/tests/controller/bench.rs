//! A registry with one host at it.

use std::net::IpAddr;
use std::sync::Arc;

use machine::{Nanos, Tag};
use nvmf::dhchap::DhchapChoice;
use nvmf::transport::{Transport, Transports};
use nvmf::{
    AdminOutcome, Connected, ControllerId, Env, IoCounters, Limits, ListenerSpec, Namespace,
    Refusal, Registry, RegistryConfig, Reply, Subsystem, Via,
};
use wire::nvme::fabrics::ConnectData;
use wire::nvme::property::offset;
use wire::nvme::{ConnectCommand, PropertyGet, PropertySet, Sqe, Status, admin};
use zerocopy::IntoBytes;

pub const NQN: &str = "nqn.2024-01.org.example:disk";
pub const PRIVATE_NQN: &str = "nqn.2024-01.org.example:private";
pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
pub const HOSTID: [u8; 16] = [7; 16];
pub const SECOND: Nanos = 1_000_000_000;
/// What a Linux host writes to CC to enable a controller.
pub const CC_ENABLE: u64 = 0x0046_0001;

pub fn namespace(nsid: u32, block_bytes: u32, block_count: u64) -> Namespace {
    Namespace {
        uuid: [nsid as u8; 16],
        nguid: [0x40 + nsid as u8; 16],
        ..Namespace::new(nsid, block_bytes, block_count)
    }
}

pub fn subsystem(nqn: &str, namespaces: Vec<Namespace>) -> Subsystem {
    Subsystem {
        nqn: nqn.to_owned(),
        serial: "WEFT0001".to_owned(),
        model: "weft".to_owned(),
        firmware: "0.1.0".to_owned(),
        hosts: None,
        terms: Vec::new(),
        dhchap: DhchapChoice::default(),
        listeners: None,
        namespaces: namespaces.into(),
        ana_groups: Vec::new(),
        limits: Limits {
            io_queues_max: 4,
            queue_entries_max: 128,
            io_bytes_max: 1 << 20,
            in_capsule_bytes_max: 8192,
            controllers_of_host_max: 3,
        },
        cntlids: 1..=3,
        is_drained: false,
    }
}

/// Namespaces 5 (512-byte blocks, write cache) and 2 (4096-byte blocks, read only).
pub fn disk() -> Subsystem {
    let mut cached = namespace(5, 512, 2048);
    cached.volatile_cache = true;
    cached.eui64 = Some([1, 2, 3, 4, 5, 6, 7, 8]);
    let mut fixed = namespace(2, 4096, 256);
    fixed.read_only = true;
    subsystem(NQN, vec![cached, fixed])
}

pub struct Bench {
    pub registry: Registry,
    pub now: Nanos,
    pub counters: IoCounters,
    /// Of every thin namespace.
    pub used_bytes: u64,
    /// Number of the listener where hosts come in.
    pub listener: u16,
    /// Of the TLS that hosts speak.
    pub psk_identity: Option<String>,
    /// What carries hosts' queues.
    pub transport: Transport,
    /// Where hosts come from.
    pub address: IpAddr,
    /// What of that one machine has.
    pub network: IpAddr,
    next_connection: u64,
}

pub const VIA: &str = "192.0.2.1:4420";

impl Bench {
    pub fn new() -> Self {
        let mut private = subsystem(PRIVATE_NQN, vec![]);
        private.hosts = Some(vec!["nqn.2024-01.org.example:other".to_owned()]);
        Bench::with(vec![disk(), private], &["0.0.0.0:4420"])
    }

    pub fn with(subsystems: Vec<Subsystem>, listeners: &[&str]) -> Self {
        Bench {
            registry: Registry::new(RegistryConfig {
                subsystems: subsystems.into_iter().map(Arc::new).collect(),
                listeners: (0..)
                    .zip(listeners)
                    .map(|(n, text)| listener(n, text))
                    .collect(),
                referrals: Vec::new(),
            }),
            now: SECOND,
            counters: IoCounters::default(),
            used_bytes: 0,
            listener: 0,
            psk_identity: None,
            transport: Transport::Tcp,
            address: [192, 0, 2, 99].into(),
            network: [192, 0, 2, 99].into(),
            next_connection: 100,
        }
    }

    /// The connection of the last queue that a host tried to connect.
    pub fn last_connection(&self) -> u64 {
        self.next_connection - 1
    }

    pub fn connect_raw(
        &mut self,
        command: &ConnectCommand,
        data: &[u8],
        local: &str,
    ) -> Result<Connected, Refusal> {
        let via = Via {
            connection: self.next_connection,
            listener: self.listener,
            local: local.parse().unwrap(),
            peer: (self.address, 50000).into(),
            network: self.network,
            psk_identity: self.psk_identity.clone(),
            transport: self.transport,
        };
        self.next_connection += 1;
        self.registry.connect(command, data, &via, self.now)
    }

    pub fn connect(
        &mut self,
        command: &ConnectCommand,
        data: &ConnectData,
    ) -> Result<Connected, Refusal> {
        self.connect_raw(command, data.as_bytes(), VIA)
    }

    /// An Admin Queue to `nqn`, not yet enabled.
    pub fn admin_queue(&mut self, nqn: &str, kato_ms: u32) -> ControllerId {
        let command = command(0, 31, kato_ms);
        self.connect(&command, &data(0xffff, nqn))
            .unwrap()
            .controller
    }

    /// An enabled controller of [`NQN`].
    pub fn controller(&mut self) -> ControllerId {
        self.enabled(NQN, 5000)
    }

    /// An enabled controller of [`NQN`] for another host.
    pub fn controller_of(&mut self, hostnqn: &str) -> ControllerId {
        self.enabled_for(NQN, hostnqn, 5000)
    }

    pub fn enabled_for(&mut self, nqn: &str, hostnqn: &str, kato_ms: u32) -> ControllerId {
        let data = ConnectData::new(HOSTID, 0xffff, nqn, hostnqn);
        let connected = self.connect(&command(0, 31, kato_ms), &data).unwrap();
        assert_eq!(
            self.set_cc(connected.controller, CC_ENABLE),
            Status::SUCCESS
        );
        connected.controller
    }

    pub fn enabled(&mut self, nqn: &str, kato_ms: u32) -> ControllerId {
        let id = self.admin_queue(nqn, kato_ms);
        assert_eq!(self.set_cc(id, CC_ENABLE), Status::SUCCESS);
        id
    }

    pub fn io_queue(&mut self, cntlid: u16, qid: u16) -> Result<Connected, Refusal> {
        self.connect(&command(qid, 127, 0), &data(cntlid, NQN))
    }

    pub fn set_cc(&mut self, id: ControllerId, value: u64) -> Status {
        let set = PropertySet {
            offset: offset::CC,
            is_8_bytes: false,
            value,
        };
        self.registry.property_set(id, set, self.now).status
    }

    pub fn property(&mut self, id: ControllerId, offset: u32, is_8_bytes: bool) -> Reply {
        self.registry
            .property_get(id, PropertyGet { offset, is_8_bytes })
    }

    pub fn csts(&mut self, id: ControllerId) -> u64 {
        self.property(id, offset::CSTS, false).result
    }

    pub fn closing(&mut self, id: ControllerId) -> Vec<u64> {
        self.registry.controller(id).unwrap().take_closing()
    }

    pub fn run(
        &mut self,
        id: ControllerId,
        tag: Tag,
        sqe: &Sqe,
        data: &[u8],
        out: &mut [u8],
    ) -> AdminOutcome {
        let (counters, used_bytes) = (self.counters, self.used_bytes);
        let env = Env {
            now: self.now,
            started: 0,
            counters: &|_| counters,
            used_bytes: &|_| used_bytes,
        };
        self.registry.admin(id, tag, sqe, data, out, &env)
    }

    /// Runs a command that completes at once.
    pub fn admin(&mut self, id: ControllerId, sqe: &Sqe, out: &mut [u8]) -> Reply {
        match self.run(id, 0, sqe, &[], out) {
            AdminOutcome::Done(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    pub fn identify(&mut self, id: ControllerId, cns: u8, nsid: u32) -> Result<Vec<u8>, Status> {
        let mut sqe = Sqe::new(admin::IDENTIFY);
        sqe.nsid = nsid.into();
        sqe.cdw10 = u32::from(cns).into();
        let mut out = vec![0xee; 4096];
        let reply = self.admin(id, &sqe, &mut out);
        if reply.status.is_success() {
            assert_eq!(reply.data_len, 4096);
            Ok(out)
        } else {
            Err(reply.status.code())
        }
    }

    /// Reads `len` bytes of a log page from `offset`.
    pub fn log(
        &mut self,
        id: ControllerId,
        lid: u8,
        nsid: u32,
        offset: u64,
        len: usize,
    ) -> Result<Vec<u8>, Status> {
        let mut out = vec![0xee; len];
        let reply = self.admin(id, &log_sqe(lid, nsid, offset, len), &mut out);
        if reply.status.is_success() {
            assert_eq!(reply.data_len as usize, len);
            Ok(out)
        } else {
            Err(reply.status.code())
        }
    }

    pub fn get_feature(&mut self, id: ControllerId, fid: u8, select: u8, cdw11: u32) -> Reply {
        let mut sqe = Sqe::new(admin::GET_FEATURES);
        sqe.nsid = 5.into();
        sqe.cdw10 = (u32::from(fid) | u32::from(select) << 8).into();
        sqe.cdw11 = cdw11.into();
        self.admin(id, &sqe, &mut [0; 512])
    }

    pub fn set_feature(&mut self, id: ControllerId, fid: u8, cdw11: u32) -> Reply {
        let mut sqe = Sqe::new(admin::SET_FEATURES);
        sqe.cdw10 = u32::from(fid).into();
        sqe.cdw11 = cdw11.into();
        self.admin(id, &sqe, &mut [])
    }

    pub fn hold_event_request(&mut self, id: ControllerId, tag: Tag) -> AdminOutcome {
        self.run(id, tag, &Sqe::new(admin::ASYNC_EVENT_REQUEST), &[], &mut [])
    }

    pub fn take_event(&mut self, id: ControllerId) -> Option<(Tag, Reply)> {
        self.registry.controller(id).unwrap().take_event()
    }
}

pub fn listener(number: u16, address: &str) -> ListenerSpec {
    ListenerSpec {
        number,
        address: address.parse().unwrap(),
        advertise: None,
        discovery_only: false,
        requires_tls: false,
        transports: Transports::Tcp,
    }
}

pub fn command(qid: u16, sqsize: u16, kato_ms: u32) -> ConnectCommand {
    ConnectCommand {
        recfmt: 0,
        qid,
        sqsize,
        cattr: 0,
        kato_ms,
    }
}

pub fn data(cntlid: u16, subnqn: &str) -> ConnectData {
    ConnectData::new(HOSTID, cntlid, subnqn, HOST)
}

pub fn log_sqe(lid: u8, nsid: u32, offset: u64, len: usize) -> Sqe {
    let mut sqe = Sqe::new(admin::GET_LOG_PAGE);
    let numd = (len / 4 - 1) as u32;
    sqe.nsid = nsid.into();
    sqe.cdw10 = (u32::from(lid) | numd << 16).into();
    sqe.cdw11 = (numd >> 16).into();
    sqe.cdw12 = (offset as u32).into();
    sqe.cdw13 = ((offset >> 32) as u32).into();
    sqe
}

pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}
