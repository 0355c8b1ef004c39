//! The keys by which NVMe hosts speak TLS, as handshakes ask for them: on a thread beside the
//! reactors.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use auth::psk::{Derivation, PskIdentity, TlsPsk};
use engine::HandshakeTerms;
use nvmf::HostTerms;
use tls::psk_handshake::KnownPsks;
use wire::nvme::discovery::DISCOVERY_NQN;

use crate::Service;

/// On what terms TLS is spoken at a listener, if it is.
pub fn handshake_terms(service: &Arc<Service>, requires_tls: bool) -> Option<HandshakeTerms> {
    let is_spoken = requires_tls || service.registry().has_keys();
    is_spoken.then(|| HandshakeTerms {
        known: Arc::new(HostKeys(service.clone())),
        allows_plain: !requires_tls,
    })
}

/// The keys of all hosts of all subsystems.
struct HostKeys(Arc<Service>);

impl HostKeys {
    /// What a host is held to in a subsystem. A key for any subsystem is one for discovery,
    /// too.
    fn terms_of(&self, named: &PskIdentity<'_>) -> Vec<HostTerms> {
        let registry = self.0.registry();
        let all = registry.subsystems();
        let all =
            all.filter(|subsystem| named.subnqn == DISCOVERY_NQN || subsystem.nqn == named.subnqn);
        all.filter_map(|subsystem| subsystem.terms_of(named.hostnqn).cloned())
            .collect()
    }
}

impl KnownPsks for HostKeys {
    fn psks_of(&self, identity: &str) -> Vec<TlsPsk> {
        let Some(named) = PskIdentity::parse(identity) else {
            return Vec::new();
        };
        let terms = self.terms_of(&named);
        let keys = terms.iter().flat_map(|terms| &terms.psks);
        let is_good = |until| SystemTime::now() < UNIX_EPOCH + until;
        let keys = keys.filter(|key| key.until.is_none_or(is_good));
        let mut psks: Vec<TlsPsk> = Vec::new();
        for key in keys.filter(|key| key.psk.hash() == named.hash) {
            for derivation in [Derivation::Standard, Derivation::Old] {
                let psk = match named.version {
                    0 => key
                        .psk
                        .tls_psk_version_0(named.hostnqn, named.subnqn, derivation),
                    _ => key.psk.tls_psk(named.hostnqn, named.subnqn, derivation),
                };
                if psk.identity == identity && !psks.contains(&psk) {
                    psks.push(psk);
                }
            }
        }
        psks
    }
}
