//! iSCSI targets and the initiators that may use them, as plain data.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use auth::{Algorithm, Network, Secret};

use crate::discovery::domain_address;

/// An iSCSI target node: an immutable snapshot, replaced whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// iSCSI name, see [`check_target_name`](crate::check_target_name).
    pub name: String,
    /// TargetAlias: what people call it.
    pub alias: Option<String>,
    /// Where it is reached; tags are unique.
    pub portal_groups: Vec<PortalGroup>,
    /// Initiators that may use it: see [`Target::entry_of`].
    pub acl: Vec<InitiatorAcl>,
    /// What initiators prove, unless their entry says otherwise.
    pub auth: Auth,
    /// What one session may use, and how many there may be.
    pub limits: SessionLimits,
    /// Header digests.
    pub header_digest: DigestPolicy,
    /// Data digests.
    pub data_digest: DigestPolicy,
    /// Logins are sent elsewhere.
    pub redirect: Option<Redirect>,
}

impl Target {
    /// A target that every initiator may use, reached nowhere yet: for struct
    /// update syntax.
    pub fn new(name: impl Into<String>) -> Self {
        Target {
            name: name.into(),
            alias: None,
            portal_groups: Vec::new(),
            acl: vec![InitiatorAcl::default()],
            auth: Auth::default(),
            limits: SessionLimits::default(),
            header_digest: DigestPolicy::default(),
            data_digest: DigestPolicy::default(),
            redirect: None,
        }
    }

    /// The portal group that a listener belongs to, `None` if the target is not
    /// reached there.
    pub fn portal_group_of(&self, listener: u16) -> Option<&PortalGroup> {
        self.portal_groups
            .iter()
            .find(|group| group.portals.contains(&listener))
    }

    /// What holds for an initiator at the portal group of a tag: the first entry
    /// that names it and has its address, else the first without a name that has
    /// its address, of those that hold there. `None`: it may not use the target
    /// there. `name` is normalized.
    pub fn entry_of(&self, name: &str, address: IpAddr, tag: u16) -> Option<&InitiatorAcl> {
        let reaching = || {
            let entries = self.acl.iter();
            entries.filter(|entry| entry.has_address(address) && entry.holds_at(tag))
        };
        reaching()
            .find(|entry| entry.name.as_deref() == Some(name))
            .or_else(|| reaching().find(|entry| entry.name.is_none()))
    }

    /// What an initiator of `entry` proves.
    pub fn auth_of<'a>(&'a self, entry: &'a InitiatorAcl) -> &'a Auth {
        entry.auth.as_ref().unwrap_or(&self.auth)
    }
}

/// Portals of a target that sessions can span (RFC 7143, section 4.4.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortalGroup {
    /// Target Portal Group Tag.
    pub tag: u16,
    /// Numbers of the listeners.
    pub portals: Vec<u16>,
    /// Header digests of logins at this group, if not what the target says.
    pub header_digest: Option<DigestPolicy>,
    /// Data digests, likewise.
    pub data_digest: Option<DigestPolicy>,
}

/// Initiators that may use a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitiatorAcl {
    /// iSCSI name, normalized; `None` for any.
    pub name: Option<String>,
    /// Where they may come from; empty: from anywhere.
    pub networks: Vec<Network>,
    /// Tags of the portal groups that they may come in by; empty: by any.
    pub portal_groups: Vec<u16>,
    /// What they prove, if not what the target says.
    pub auth: Option<Auth>,
    /// The logical units that they see; `None` for all.
    pub luns: Option<Vec<u16>>,
}

impl InitiatorAcl {
    fn has_address(&self, address: IpAddr) -> bool {
        self.networks.is_empty() || self.networks.iter().any(|network| network.has(address))
    }

    /// Whether there is a portal group where both hold.
    pub fn meets(&self, other: &InitiatorAcl) -> bool {
        let (own, others) = (&self.portal_groups, &other.portal_groups);
        own.is_empty() || others.is_empty() || own.iter().any(|tag| others.contains(tag))
    }

    /// Whether there is an address that both have.
    pub fn shares_address(&self, other: &InitiatorAcl) -> bool {
        let (own, others) = (&self.networks, &other.networks);
        let share = |a: &Network, b: &Network| a.covers(b) || b.covers(a);
        let any = |a: &Network| others.iter().any(|b| share(a, b));
        own.is_empty() || others.is_empty() || own.iter().any(any)
    }

    /// Whether it fits all initiators that another fits, wherever they come from and in by.
    pub fn covers(&self, other: &InitiatorAcl) -> bool {
        let has = |network: &Network| self.networks.iter().any(|own| own.covers(network));
        let mut tags = other.portal_groups.iter();
        let is_name = self.name.is_none() || self.name == other.name;
        let is_address = self.networks.is_empty()
            || !other.networks.is_empty() && other.networks.iter().all(has);
        let is_group = self.portal_groups.is_empty()
            || !other.portal_groups.is_empty() && tags.all(|tag| self.portal_groups.contains(tag));
        is_name && is_address && is_group
    }

    /// Whether it holds at the portal group of a tag.
    pub fn holds_at(&self, tag: u16) -> bool {
        self.portal_groups.is_empty() || self.portal_groups.contains(&tag)
    }
}

/// What is proved at login. The default: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auth {
    /// What the initiator proves by CHAP.
    pub chap: Option<Credentials>,
    /// What the target proves to an initiator that asks for it; only with
    /// `chap`, and not with the same secret.
    pub mutual: Option<Credentials>,
    /// How; empty: the strong ones. See [`Auth::algorithms`].
    pub algorithms: Vec<Algorithm>,
}

impl Auth {
    /// The algorithms that are taken.
    pub fn algorithms(&self) -> &[Algorithm] {
        if self.algorithms.is_empty() {
            &Algorithm::STRONG
        } else {
            &self.algorithms
        }
    }
}

/// A name and the secret that goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// CHAP_N.
    pub user: String,
    /// The secret.
    pub secret: Secret,
}

/// Whether digests are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DigestPolicy {
    /// Never.
    None,
    /// As the initiator prefers.
    #[default]
    Allowed,
    /// Always: an initiator without them is refused.
    Required,
}

/// Another place where the target is (RFC 7143, section 11.13.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// From now on, or only for now.
    pub permanent: bool,
}

impl fmt::Display for Redirect {
    /// As TargetAddress has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&domain_address(&self.host, self.port))
    }
}

/// What one session may use, and how many there may be: what the target says
/// in negotiations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Commands in flight of one session: the window of CmdSN.
    pub queue_depth: u16,
    /// MaxRecvDataSegmentLength of the target, 512 to 2^24 - 1 bytes.
    pub max_recv_data_segment_bytes: u32,
    /// FirstBurstLength, 512 to 2^24 - 1 bytes.
    pub first_burst_bytes: u32,
    /// MaxBurstLength, 512 to 2^24 - 1 bytes.
    pub max_burst_bytes: u32,
    /// MaxOutstandingR2T.
    pub r2ts_max: u16,
    /// InitialR2T: no unsolicited Data-Out.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate_data: bool,
    /// ErrorRecoveryLevel, 0 or 1.
    pub error_recovery_level: u8,
    /// MaxConnections: connections of one session.
    pub connections_max: u16,
    /// Sessions of the target.
    pub sessions_max: u16,
    /// Those of them that one initiator may have.
    pub sessions_of_initiator_max: u16,
    /// DefaultTime2Wait, seconds.
    pub time2wait_s: u16,
    /// DefaultTime2Retain, seconds: how long tasks outlive their connection. 0,
    /// as weft does not move tasks to other connections.
    pub time2retain_s: u16,
    /// How often an idle initiator is asked whether it lives, milliseconds; 0:
    /// never.
    pub nop_in_interval_ms: u32,
    /// Whether TARGET COLD RESET, which ends the sessions of all initiators, is
    /// executed.
    pub target_cold_reset: bool,
}

impl Default for SessionLimits {
    fn default() -> Self {
        SessionLimits {
            queue_depth: 128,
            max_recv_data_segment_bytes: 256 << 10,
            first_burst_bytes: 256 << 10,
            max_burst_bytes: 1 << 20,
            r2ts_max: 16,
            initial_r2t: false,
            immediate_data: true,
            error_recovery_level: 1,
            connections_max: 8,
            sessions_max: 1024,
            sessions_of_initiator_max: 256,
            time2wait_s: 2,
            time2retain_s: 0,
            nop_in_interval_ms: 30_000,
            target_cold_reset: false,
        }
    }
}

/// A listener, as initiators are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// The listener's number.
    pub number: u16,
    /// Where it listens.
    pub address: SocketAddr,
    /// What initiators are told instead.
    pub advertise: Option<Advertise>,
}

/// An address as initiators are to use it: behind address translation, or by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertise {
    /// An IP address, or a name for initiators to look up.
    pub host: String,
    /// The port; `None` for the listener's own.
    pub port: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_of_an_initiator_is_the_one_that_names_it_else_the_first_without_a_name() {
        let entry = |name: Option<&str>, network: Option<&str>, lun: u16| InitiatorAcl {
            name: name.map(str::to_owned),
            networks: network
                .map(|n| n.parse().expect("a network"))
                .into_iter()
                .collect(),
            luns: Some(vec![lun]),
            ..InitiatorAcl::default()
        };
        let target = Target {
            acl: vec![
                entry(None, Some("192.0.2.0/24"), 1),
                entry(None, Some("192.0.0.0/16"), 2),
                entry(Some("iqn.a"), Some("203.0.113.0/24"), 3),
                entry(Some("iqn.b"), None, 4),
            ],
            ..Target::new("iqn.t")
        };
        let lun = |name, address: &str| {
            let entry = target.entry_of(name, address.parse().expect("an address"), 1);
            entry.map(|entry| entry.luns.as_ref().expect("each has one")[0])
        };
        assert_eq!(lun("iqn.x", "192.0.2.1"), Some(1));
        assert_eq!(lun("iqn.x", "192.0.3.1"), Some(2));
        assert_eq!(lun("iqn.x", "203.0.113.1"), None);
        assert_eq!(lun("iqn.a", "203.0.113.1"), Some(3));
        assert_eq!(lun("iqn.a", "192.0.2.1"), Some(1));
        assert_eq!(lun("iqn.a", "198.51.100.1"), None);
        assert_eq!(lun("iqn.b", "192.0.2.1"), Some(4));
        assert!(
            Target::new("iqn.t")
                .entry_of("iqn.x", IpAddr::from([1, 2, 3, 4]), 1)
                .is_some()
        );
    }

    #[test]
    fn addresses_of_redirections_are_written_as_the_standard_has_them() {
        let written = |host: &str| {
            let redirect = Redirect {
                host: host.to_owned(),
                port: 3260,
                permanent: false,
            };
            redirect.to_string()
        };
        assert_eq!(written("192.0.2.1"), "192.0.2.1:3260");
        assert_eq!(written("storage.example.org"), "storage.example.org:3260");
        assert_eq!(written("2001:db8::1"), "[2001:db8::1]:3260");
        assert_eq!(written("[2001:db8::1]"), "[2001:db8::1]:3260");
    }
}
