//! What the kernel is to do with what goes over connections, by where those come from and to.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use auth::Network;
use machine::locked;
use reactor::{ConnectedSocket, SocketOptions};

/// A rule for connections; the first that matches one holds for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionPolicy {
    /// Its name.
    pub name: String,
    /// Where connections come from; empty: anywhere.
    pub networks: Vec<Network>,
    /// The listeners that they come in by; empty: all.
    pub listeners: Vec<u16>,
    /// What is set then.
    pub options: SocketOptions,
    /// Whether payload goes by the shortest way, many PDUs to a call; `None`: as everywhere.
    pub fast_path: Option<bool>,
}

impl ConnectionPolicy {
    /// Whether it is about a connection from there by this listener.
    #[must_use]
    pub fn is_about(&self, peer: IpAddr, listener: u16) -> bool {
        let networks = &self.networks;
        (networks.is_empty() || networks.iter().any(|network| network.has(peer)))
            && (self.listeners.is_empty() || self.listeners.contains(&listener))
    }
}

/// Those that hold now.
#[derive(Default)]
pub struct ConnectionPolicies(Mutex<HeldPolicies>);

#[derive(Default)]
struct HeldPolicies {
    list: Arc<[ConnectionPolicy]>,
    /// Of which policies which options were refused: each is told once.
    told: BTreeSet<(String, &'static str)>,
}

impl ConnectionPolicies {
    /// These hold from now on, for connections that are made from now on.
    pub fn set(&self, policies: Vec<ConnectionPolicy>) {
        *locked(&self.0) = HeldPolicies {
            list: policies.into(),
            told: BTreeSet::new(),
        };
    }

    /// The first that is about a connection.
    fn first(&self, peer: SocketAddr, listener: u16) -> Option<ConnectionPolicy> {
        let list = locked(&self.0).list.clone();
        let mut about = list.iter();
        about
            .find(|policy| policy.is_about(peer.ip(), listener))
            .cloned()
    }

    /// What it says of the fast path.
    pub(crate) fn fast_path(&self, peer: SocketAddr, listener: u16) -> Option<bool> {
        self.first(peer, listener)?.fast_path
    }

    /// Sets its options on a connection. What the kernel refuses is told, and the connection goes
    /// on without.
    pub(crate) fn apply(&self, connected: &ConnectedSocket, peer: SocketAddr, listener: u16) {
        let Some(policy) = self.first(peer, listener) else {
            return;
        };
        for (option, error) in connected.set_options(&policy.options) {
            if locked(&self.0).told.insert((policy.name.clone(), option)) {
                tracing::warn!(
                    event = "connection-option-refused",
                    policy = policy.name,
                    option,
                    %peer,
                    %error,
                    "the kernel does not take an option of a connection policy: connections go on \
                     without it; this is told once"
                );
            }
        }
    }
}
