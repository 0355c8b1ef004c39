//! NVM subsystems and their namespaces: what is served, as plain data.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Entries of an Admin Queue (ASQSZ).
pub(crate) const ADMIN_ENTRIES_MAX: u16 = 128;

use auth::{HostPsk, Network};
use faults::Fault;
use machine::work;
use wire::nvme::discovery::DISCOVERY_NQN;

use crate::command::AnaState;
use crate::dhchap::{DhchapChoice, DhchapKeys};
use crate::transport::{Transport, Transports};

/// A namespace of an NVM subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Namespace identifier, 1 to [`NSID_MAX`].
    pub nsid: u32,
    /// Namespace UUID; all zeros: none.
    pub uuid: [u8; 16],
    /// Namespace Globally Unique Identifier; all zeros: none.
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier.
    pub eui64: Option<[u8; 8]>,
    /// Bytes of a logical block, a power of two.
    pub block_bytes: u32,
    /// Logical blocks.
    pub block_count: u64,
    /// What is below cannot be written, whatever hosts set.
    pub read_only: bool,
    /// What hosts have set (Namespace Write Protection Config).
    pub write_protect: WriteProtect,
    /// A completed write is durable only after a flush or with FUA.
    pub volatile_cache: bool,
    /// ANA Group Identifier, 1 to [`ANA_GROUPS_MAX`].
    pub ana_group: u32,
    /// Host NQNs that see the namespace; `None` for every host of the subsystem.
    pub hosts: Option<Vec<String>>,
    /// I/Os of up to so many bytes are atomic against each other (NAWUN, NACWU).
    pub atomic_bytes: u32,
    /// Writes of up to so many bytes are whole or absent after a power failure
    /// (NAWUPF).
    pub atomic_power_fail_bytes: u32,
    /// What hosts should write and deallocate at once at least, and aligned to,
    /// bytes (NPWG, NPWA, NPDG, NPDA, NOWS).
    pub preferred_bytes: u32,
    /// Space is taken as blocks are written and given back as they are
    /// deallocated (THINP).
    pub is_thin: bool,
    /// There is where to keep reservations and permanent write protection
    /// through a restart.
    pub persists_state: bool,
    /// What is below can be read and written (NRDY).
    pub is_ready: bool,
    /// What is below is encrypted: Format NVM and Sanitize destroy the key of it.
    pub is_encrypted: bool,
}

impl Namespace {
    /// A namespace that can be written, seen by every host, in ANA group 1, and
    /// without anything optional: for struct update syntax.
    pub fn new(nsid: u32, block_bytes: u32, block_count: u64) -> Self {
        Namespace {
            nsid,
            uuid: [0; 16],
            nguid: [0; 16],
            eui64: None,
            block_bytes,
            block_count,
            read_only: false,
            write_protect: WriteProtect::Off,
            volatile_cache: false,
            ana_group: 1,
            hosts: None,
            atomic_bytes: block_bytes,
            atomic_power_fail_bytes: block_bytes,
            preferred_bytes: block_bytes.max(4096),
            is_thin: false,
            persists_state: false,
            is_ready: true,
            is_encrypted: false,
        }
    }

    /// Whether `hostnqn`, which may use the subsystem, sees the namespace.
    pub fn is_visible_to(&self, hostnqn: &str) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| {
            let mut looked = hosts.iter().inspect(|_| work::spend(1));
            looked.any(|host| host == hostnqn)
        })
    }

    /// Whether writes are refused, for whatever reason.
    pub fn refuses_writes(&self) -> bool {
        self.read_only || self.write_protect != WriteProtect::Off
    }

    /// `bytes` in logical blocks, at least one, 0's based.
    pub(crate) fn blocks_0s_based(&self, bytes: u32) -> u16 {
        let blocks = (bytes / self.block_bytes).max(1) - 1;
        u16::try_from(blocks).unwrap_or(u16::MAX)
    }
}

/// Namespace write protection states (Base 2.0, section 8.12), with the values
/// of the feature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum WriteProtect {
    /// No Write Protect.
    #[default]
    Off = 0,
    /// Write Protect.
    On = 1,
    /// Write Protect Until Power Cycle: until the target starts again.
    UntilPowerCycle = 2,
    /// Permanent Write Protect.
    Permanent = 3,
}

impl WriteProtect {
    /// The state of a value of the feature.
    pub fn from_value(value: u32) -> Option<Self> {
        [
            WriteProtect::Off,
            WriteProtect::On,
            WriteProtect::UntilPowerCycle,
            WriteProtect::Permanent,
        ]
        .into_iter()
        .find(|state| *state as u32 == value)
    }
}

/// The largest namespace identifier (NN), room for namespaces added later.
pub const NSID_MAX: u32 = 1024;

/// ANA groups of a subsystem, and the largest of their identifiers.
pub const ANA_GROUPS_MAX: u32 = 128;

/// Controller identifiers of the dynamic controller model (Base 2.0, figure 383).
pub const CNTLID_MAX: u16 = 0xffef;

/// What one controller may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// I/O queues of one controller.
    pub io_queues_max: u16,
    /// Entries of one submission queue.
    pub queue_entries_max: u16,
    /// Data of one command in bytes, at least 8192: what MDTS can say. Reported
    /// as the power of two below.
    pub io_bytes_max: u32,
    /// Data that fits into the capsule of an I/O queue's command, bytes, a
    /// multiple of 16 (IOCCSZ).
    pub in_capsule_bytes_max: u32,
    /// Controllers of one host in the subsystem.
    pub controllers_of_host_max: u16,
}

/// An ANA group of a subsystem and its states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnaGroup {
    /// ANA Group Identifier, 1 to [`ANA_GROUPS_MAX`].
    pub id: u32,
    /// The state on every listener that is not named below.
    pub state: AnaState,
    /// States by the number of a listener.
    pub on: Vec<(u16, AnaState)>,
}

impl AnaGroup {
    /// Its state on a listener.
    pub fn state_on(&self, listener: u16) -> AnaState {
        let known = self.on.iter().find(|(number, _)| *number == listener);
        known.map_or(self.state, |(_, state)| *state)
    }

    /// Sets its state on one listener, or (`None`) on all.
    pub fn set_state(&mut self, listener: Option<u16>, state: AnaState) {
        match listener {
            None => {
                self.state = state;
                self.on.clear();
            }
            Some(listener) => {
                self.on.retain(|(number, _)| *number != listener);
                self.on.push((listener, state));
            }
        }
    }

    /// The group of an identifier, which is added if it is not there.
    pub fn find_or_add(groups: &mut Vec<AnaGroup>, id: u32) -> &mut AnaGroup {
        let at = groups.iter().position(|known| known.id == id);
        let at = at.unwrap_or_else(|| {
            groups.push(AnaGroup {
                id,
                ..AnaGroup::default()
            });
            groups.len() - 1
        });
        &mut groups[at]
    }
}

/// What a host is held to that is more than named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTerms {
    /// Its NQN, or [`HostTerms::ANY_HOST`].
    pub nqn: String,
    /// Where it may come from; empty: anywhere.
    pub networks: Vec<Network>,
    /// Keys that it may have, of which it proves one: it connects by TLS alone. Empty: it
    /// connects without.
    pub psks: Vec<HostPsk>,
    /// The secrets that it authenticates with, if it must.
    pub dhchap: Option<DhchapKeys>,
}

/// How a host has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its address.
    pub address: IpAddr,
    /// What it sends is encrypted, by a key of its own.
    pub is_encrypted: bool,
    /// What carries its queues.
    pub transport: Transport,
}

impl HostTerms {
    /// In place of an NQN: of all hosts that have no terms of their own. No host is called so.
    pub const ANY_HOST: &str = "*";

    /// Of a host that may come from anywhere.
    pub fn new(nqn: impl Into<String>) -> Self {
        HostTerms {
            nqn: nqn.into(),
            networks: Vec::new(),
            psks: Vec::new(),
            dhchap: None,
        }
    }

    /// Whether it connects by TLS alone.
    pub fn needs_tls(&self) -> bool {
        !self.psks.is_empty()
    }

    /// Whether it may come from `address`.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.networks.is_empty() || self.networks.iter().any(|network| network.has(address))
    }
}

/// An NVM subsystem: an immutable snapshot, replaced whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystem {
    /// NVMe Qualified Name; see [`check_subsystem_nqn`](crate::check_subsystem_nqn).
    pub nqn: String,
    /// Serial Number, up to 20 ASCII characters.
    pub serial: String,
    /// Model Number, up to 40 ASCII characters.
    pub model: String,
    /// Firmware Revision, up to 8 ASCII characters.
    pub firmware: String,
    /// Host NQNs that may connect; `None` for any host.
    pub hosts: Option<Vec<String>>,
    /// What some of them are held to; no host has two.
    pub terms: Vec<HostTerms>,
    /// How those authenticate that must.
    pub dhchap: DhchapChoice,
    /// Numbers of the listeners where it is reached; `None` for all.
    pub listeners: Option<Vec<u16>>,
    /// Namespaces, in no particular order.
    pub namespaces: Arc<[Namespace]>,
    /// ANA groups whose state is not ANA Optimized everywhere.
    pub ana_groups: Vec<AnaGroup>,
    /// What one controller may use.
    pub limits: Limits,
    /// Controller identifiers to give out, within 1 to [`CNTLID_MAX`].
    pub cntlids: RangeInclusive<u16>,
    /// The target is drained: no ANA group gives access, whatever its states are.
    pub is_drained: bool,
}

impl Subsystem {
    /// Whether `hostnqn` may see and use the subsystem.
    pub fn allows(&self, hostnqn: &str) -> bool {
        self.hosts
            .as_ref()
            .is_none_or(|hosts| hosts.iter().any(|host| host == hostnqn))
    }

    /// What `hostnqn` is held to, if anything.
    pub fn terms_of(&self, hostnqn: &str) -> Option<&HostTerms> {
        let of = |nqn| self.terms.iter().find(|terms| terms.nqn == nqn);
        of(hostnqn).or_else(|| of(HostTerms::ANY_HOST))
    }

    /// The secrets that `hostnqn` authenticates with, if it must.
    pub fn dhchap_keys(&self, hostnqn: &str) -> Option<&DhchapKeys> {
        self.terms_of(hostnqn)?.dhchap.as_ref()
    }

    /// Whether `hostnqn` may see the subsystem from `address`.
    pub fn is_visible_from(&self, hostnqn: &str, address: IpAddr) -> bool {
        let terms = self.terms_of(hostnqn);
        self.allows(hostnqn) && terms.is_none_or(|terms| terms.has_address(address))
    }

    /// Whether `hostnqn` has to encrypt what it sends.
    pub fn needs_tls(&self, hostnqn: &str) -> bool {
        self.terms_of(hostnqn).is_some_and(HostTerms::needs_tls)
    }

    /// Whether `hostnqn` may use the subsystem as it has come.
    pub fn admits(&self, hostnqn: &str, arrival: Arrival) -> bool {
        self.is_visible_from(hostnqn, arrival.address)
            && (arrival.is_encrypted || !self.needs_tls(hostnqn) || faults::is(Fault::PlainHosts))
    }

    /// Whether it is reached through a listener.
    pub fn is_on(&self, listener: u16) -> bool {
        self.listeners
            .as_ref()
            .is_none_or(|listeners| listeners.contains(&listener))
    }

    /// The namespace of an identifier and its index.
    pub fn namespace(&self, nsid: u32) -> Option<(usize, &Namespace)> {
        self.namespaces
            .iter()
            .enumerate()
            .find(|(_, namespace)| namespace.nsid == nsid)
    }

    /// Whether any namespace has a volatile write cache.
    pub fn has_volatile_cache(&self) -> bool {
        self.namespaces
            .iter()
            .any(|namespace| namespace.volatile_cache)
    }

    /// State of an ANA group for hosts that come through a listener.
    pub fn ana_state(&self, listener: u16, group: u32) -> AnaState {
        let known = self.ana_groups.iter().find(|known| known.id == group);
        let state = known.map_or(AnaState::Optimized, |known| known.state_on(listener));
        state.drained(self.is_drained)
    }

    /// Sets the state of an ANA group on one listener, or (`None`) on all.
    pub fn set_ana_state(&mut self, listener: Option<u16>, group: u32, state: AnaState) {
        AnaGroup::find_or_add(&mut self.ana_groups, group).set_state(listener, state);
    }
}

/// Where hosts reach the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSpec {
    /// Its number, which it keeps: Port ID is one more.
    pub number: u16,
    /// The address as bound.
    pub address: SocketAddr,
    /// What hosts are told instead of the address.
    pub advertise: Option<Advertise>,
    /// Hosts can connect to the discovery subsystem only.
    pub discovery_only: bool,
    /// Hosts connect by TLS alone.
    pub requires_tls: bool,
    /// By which transports hosts connect.
    pub transports: Transports,
}

/// An address as hosts are to use it: behind address translation, or by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertise {
    /// An IP address, or a name for hosts to look up; at most 255 characters.
    pub host: String,
    /// The port; `None` for the listener's own.
    pub port: Option<u16>,
}

/// Another discovery service that hosts are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referral {
    /// An IP address, or a name for hosts to look up; at most 255 characters.
    pub host: String,
    /// Its port, usually 8009.
    pub port: u16,
    /// NQN of its discovery subsystem.
    pub subnqn: String,
}

impl Referral {
    /// The well-known discovery subsystem at `host` and `port`.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Referral {
            host: host.into(),
            port,
            subnqn: DISCOVERY_NQN.to_owned(),
        }
    }
}
