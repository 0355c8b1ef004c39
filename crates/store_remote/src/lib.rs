//! `remote` volumes: a namespace of an NVMe/TCP target, reached by weft's own initiator.
//!
//! A volume has a thread (`worker`) with a reactor of its own, on which its I/O queues live, one on
//! each path, and a thread for each path that keeps its controller (`paths`). I/Os come to the
//! first as mail, and end by a ticket of the reactor that they came from.
//!
//! What was under way on a connection that is lost is sent again, on another path or when there is
//! one again, until it is too late for that. The controller may still be at the first of two, and
//! do it after the second: that is without harm only while no later write to the blocks has come
//! to its end. So a change that was under way on a lost connection does not end before the
//! controller must have noticed the loss ([`worker::QUIESCE_NS`]), and the volume keeps others
//! from its blocks until then.
#![forbid(unsafe_code)]

mod commands;
mod paths;
mod session;
mod worker;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use host::{HostIdentity, Transport};
use store::{RemoteBlocks, RemoteInfo, RemotePlace};
use uuid::Uuid;

use session::RemoteSession;

pub use host::NamespaceUrl;

/// How long an I/O waits for a path, unless configured.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// Chosen once at random; every identity of a host hangs on it.
const NAMESPACE: Uuid = Uuid::from_u128(0x8d0e_57a1_94c3_4e6f_b1d2_7c5a_08f9_36eb);

/// A namespace, and the ways to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteTarget {
    /// Where it is, at least one place: the first that answers is used, and others with it.
    pub urls: Vec<NamespaceUrl>,
    /// Who this host is to it.
    pub host: HostIdentity,
    /// An I/O that has no answer as long as this fails, and so do all while no path was there as
    /// long.
    pub timeout: Duration,
}

/// Who weft is to targets: of this NQN, or of one that follows from the machine. Both hosts
/// are the same after a restart.
#[must_use]
pub fn host_identity(hostnqn: Option<&str>) -> HostIdentity {
    let machine = store::identity::of_machine("NVMe host");
    let of = |what: &str| Uuid::new_v5(&NAMESPACE, format!("{machine}\n{what}").as_bytes());
    let named = || {
        format!(
            "nqn.2014-08.org.nvmexpress:uuid:{}",
            of("host").hyphenated()
        )
    };
    let hostnqn = hostnqn.map_or_else(named, str::to_owned);
    HostIdentity {
        hostid: *of(&hostnqn).as_bytes(),
        hostnqn,
        psk: None,
        dhchap: None,
        concatenates: false,
    }
}

/// Reads `nvme-tcp://host[:port]/nqn[?nsid=1]`.
///
/// # Errors
/// A sentence for the user.
pub fn parse_url(text: &str) -> Result<NamespaceUrl, String> {
    if text.starts_with("iscsi://") {
        return Err(format!(
            "`{text}`: a remote volume is reached by NVMe/TCP, not by iSCSI yet: write \
             nvme-tcp://host:port/nqn?nsid=1"
        ));
    }
    let url = NamespaceUrl::parse(text)?;
    match url.transport {
        Transport::Tcp => Ok(url),
        Transport::Rdma => Err(format!(
            "`{text}`: a remote volume is reached by NVMe/TCP alone: write nvme-tcp://"
        )),
    }
}

impl RemoteTarget {
    pub(crate) fn of(place: &dyn RemotePlace) -> Option<&RemoteTarget> {
        (place as &dyn Any).downcast_ref()
    }
}

impl fmt::Display for RemoteTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, url) in self.urls.iter().enumerate() {
            let before = if number == 0 { "" } else { ", " };
            write!(f, "{before}{url}")?;
        }
        Ok(())
    }
}

impl RemotePlace for RemoteTarget {
    fn open(&self, volume: &str) -> Result<Arc<dyn RemoteBlocks>, String> {
        Ok(Arc::new(RemoteSession::open(self, volume)?))
    }

    fn examine(&self) -> Result<RemoteInfo, String> {
        session::examine(self)
    }

    fn equals(&self, other: &dyn RemotePlace) -> bool {
        RemoteTarget::of(other) == Some(self)
    }

    fn equals_but_for_credentials(&self, other: &dyn RemotePlace) -> bool {
        RemoteTarget::of(other).is_some_and(|other| {
            let host = HostIdentity {
                psk: other.host.psk.clone(),
                dhchap: other.host.dhchap.clone(),
                ..self.host.clone()
            };
            let same = RemoteTarget {
                host,
                ..self.clone()
            };
            same == *other
        })
    }
}
