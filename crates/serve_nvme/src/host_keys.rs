//! The keys by which NVMe hosts speak TLS, as handshakes ask for them: on a thread beside the
//! reactors.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use auth::HostPsk;
use auth::psk::{Derivation, Psk, PskIdentity, TlsPsk};
use engine::HandshakeTerms;
use faults::Fault;
use nvmf::Subsystem;
use tls::psk_handshake::KnownPsks;
use wire::nvme::discovery::DISCOVERY_NQN;

use crate::Service;

/// On what terms TLS is spoken at a listener. Where no host has a key, peers that try are told
/// so.
pub fn handshake_terms(service: &Arc<Service>, requires_tls: bool) -> HandshakeTerms {
    HandshakeTerms {
        known: Arc::new(HostKeys(service.clone())),
        allows_plain: !requires_tls || faults::is(Fault::PlainBesideTls),
    }
}

/// Keys that are tried for one identity: what a peer says in the clear costs no more.
const KEYS_MAX: usize = 8;

/// The keys of all hosts of all subsystems.
struct HostKeys(Arc<Service>);

/// The time of now, since the start of 1970, by which keys expire.
pub(crate) fn since_1970() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

impl HostKeys {
    /// The keys of a host for a subsystem that are good, or those that have expired; each once.
    /// A key for any subsystem is one for discovery, too, as far as it is one of the first
    /// [`KEYS_MAX`].
    fn keys_of(&self, named: &PskIdentity<'_>, have_expired: bool) -> Vec<Psk> {
        let now = since_1970();
        let is_meant = |key: &&HostPsk| {
            let has_expired =
                key.until.is_some_and(|until| until <= now) && !faults::is(Fault::NoExpiry);
            has_expired == have_expired && key.psk.hash() == named.hash
        };
        let registry = self.0.registry();
        let mut keys: Vec<Psk> = Vec::new();
        let of_subsystem =
            |subsystem: &Subsystem| named.subnqn == DISCOVERY_NQN || subsystem.nqn == named.subnqn;
        let all = registry
            .subsystems()
            .filter(|subsystem| of_subsystem(subsystem));
        let terms = all.filter_map(|subsystem| subsystem.terms_of(named.hostnqn));
        for key in terms.flat_map(|terms| &terms.psks).filter(is_meant) {
            if !keys.contains(&key.psk) {
                keys.push(key.psk.clone());
            }
            if keys.len() == KEYS_MAX {
                break;
            }
        }
        keys
    }

    /// The keys that an identity may mean that are good, or those that have expired.
    fn psks(&self, identity: &str, have_expired: bool) -> Vec<TlsPsk> {
        let Some(named) = PskIdentity::parse(identity) else {
            return Vec::new();
        };
        if named.is_generated {
            let registry = self.0.registry();
            let known = registry.generated_key(identity);
            let known = known.filter(|key| (key.until <= since_1970()) == have_expired);
            return known.map(|key| key.psk.clone()).into_iter().collect();
        }
        let mut psks: Vec<TlsPsk> = Vec::new();
        for key in self.keys_of(&named, have_expired) {
            for derivation in [Derivation::Standard, Derivation::Old] {
                let psk = match named.version {
                    0 => key.tls_psk_version_0(named.hostnqn, named.subnqn, derivation),
                    _ => key.tls_psk(named.hostnqn, named.subnqn, derivation),
                };
                if psk.identity == identity && !psks.contains(&psk) {
                    psks.push(psk);
                }
            }
        }
        psks
    }
}

impl KnownPsks for HostKeys {
    fn psks_of(&self, identity: &str) -> Vec<TlsPsk> {
        self.psks(identity, false)
    }

    fn has_any(&self) -> bool {
        self.0.registry().has_keys()
    }

    fn has_expired(&self, identity: &str) -> bool {
        !self.psks(identity, true).is_empty()
    }
}
