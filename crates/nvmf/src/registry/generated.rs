//! Keys for TLS that hosts and subsystems make by authentication (secure channel concatenation:
//! Base 2.1, section 8.3.4.5.9). They live in memory alone.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use auth::dhchap::DhchapKey;
use auth::psk::{Derivation, Psk, PskIdentity, TlsPsk};

use super::{ControllerId, Registry};

/// How long a key is good for: hosts are to replace it every hour.
const LIFETIME: Duration = Duration::from_secs(3600);

/// A key that a host has made with a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedKey {
    /// The key.
    pub psk: TlsPsk,
    /// By which secret.
    secret: DhchapKey,
    /// When it is good for no connection any more, since the start of 1970.
    pub until: Duration,
}

/// The keys of a subsystem, by the NQN of the host that each is of; the oldest first.
#[derive(Debug, Default)]
pub(super) struct GeneratedKeys(BTreeMap<String, VecDeque<GeneratedKey>>);

impl GeneratedKeys {
    /// Adds a key of a host, which has `max` at most: its oldest goes.
    fn add(&mut self, hostnqn: &str, key: GeneratedKey, max: usize) {
        let keys = self.0.entry(hostnqn.to_owned()).or_default();
        keys.retain(|known| known.psk.identity != key.psk.identity);
        keys.push_back(key);
        keys.drain(..keys.len().saturating_sub(max));
    }

    /// Takes all keys of a host away.
    pub(super) fn remove_host(&mut self, hostnqn: &str) {
        self.0.remove(hostnqn);
    }

    pub(super) fn remove(&mut self, hostnqn: &str, identity: &str) {
        if let Some(keys) = self.0.get_mut(hostnqn) {
            keys.retain(|key| key.psk.identity != identity);
            if keys.is_empty() {
                self.0.remove(hostnqn);
            }
        }
    }

    /// Keeps the keys whose host has still, by `has`, the secret that made them.
    pub(super) fn retain(&mut self, has: impl Fn(&str, &DhchapKey) -> bool) {
        self.0.retain(|hostnqn, keys| {
            keys.retain(|key| has(hostnqn, &key.secret));
            !keys.is_empty()
        });
    }

    fn find(&self, hostnqn: &str, identity: &str) -> Option<&GeneratedKey> {
        let mut keys = self.0.get(hostnqn)?.iter();
        keys.find(|key| key.psk.identity == identity)
    }
}

impl Registry {
    /// Keeps the key that the host of a controller has made by a secret at `now`, since the start
    /// of 1970. It is good for an hour, in place of the one of that kind that the
    /// controller speaks TLS by.
    ///
    /// A controller that speaks TLS takes its key with it when it ends. One that does not has
    /// made the key for another, whose host comes next: its I/O queues are refused from now on.
    pub(super) fn add_generated_key(
        &mut self,
        id: ControllerId,
        (psk, secret): (&Psk, &DhchapKey),
        now: Duration,
    ) {
        let Some(controller) = self.controllers.get_mut(&id) else {
            return;
        };
        let (hostnqn, subsystem) = (&controller.hostnqn, &controller.subsystem);
        let Some(entry) = self.entries.get_mut(&subsystem.nqn) else {
            return;
        };
        let psk = psk.tls_psk(hostnqn, &subsystem.nqn, Derivation::Standard);
        if controller.arrival.is_encrypted {
            let previous = controller.generated_key.replace(psk.identity.clone());
            if let Some(previous) = previous {
                entry.generated.remove(hostnqn, &previous);
            }
        }
        controller.has_concatenated = true;
        let until = now + LIFETIME;
        // Each of a host's controllers has one.
        let max = subsystem.limits.controllers_of_host_max.into();
        let secret = secret.clone();
        let key = GeneratedKey { psk, secret, until };
        entry.generated.add(hostnqn, key, max);
    }

    /// How many keys a host has made, with all subsystems together.
    pub fn generated_keys_of(&self, hostnqn: &str) -> usize {
        let all = self.entries.values();
        let own = all.filter_map(|entry| entry.generated.0.get(hostnqn));
        own.map(VecDeque::len).sum()
    }

    /// Forgets all of them.
    pub fn forget_generated_keys(&mut self, hostnqn: &str) {
        for entry in self.entries.values_mut() {
            entry.generated.remove_host(hostnqn);
        }
    }

    /// The key that `identity` names, if it was made by authentication and is still known. It is
    /// good no longer than the secret that made it.
    pub fn generated_key(&self, identity: &str) -> Option<GeneratedKey> {
        let named = PskIdentity::parse(identity)?;
        let entry = self.entries.get(named.subnqn)?;
        let key = entry.generated.find(named.hostnqn, identity)?;
        let secrets = entry.subsystem.dhchap_keys(named.hostnqn)?.host.iter();
        let secrets = secrets.filter(|known| known.key == key.secret);
        let of_secret = secrets.map(|known| known.until.unwrap_or(Duration::MAX));
        Some(GeneratedKey {
            until: key.until.min(of_secret.max()?),
            ..key.clone()
        })
    }
}
