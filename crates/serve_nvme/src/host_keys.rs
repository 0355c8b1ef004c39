//! The keys by which NVMe hosts speak TLS, as handshakes ask for them: on a thread beside the
//! reactors.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use auth::HostPsk;
use auth::psk::{Derivation, Psk, PskCompat, PskIdentity, TlsPsk};
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
            has_expired == have_expired && key.key.hash() == named.hash
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
            if !keys.contains(&key.key) {
                keys.push(key.key.clone());
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
            return known.map(|key| key.psk).into_iter().collect();
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

    fn compat(&self) -> PskCompat {
        self.0.registry().psk_compat()
    }
}

#[cfg(test)]
mod tests {
    use auth::Secret;
    use auth::dhchap::{DhchapHash, DhchapKey};
    use engine::{ConnectionLimits, Post, Shared};
    use nvmf::dhchap::{DhchapChoice, DhchapKeys};
    use nvmf::transport::{Transport, Transports};
    use nvmf::{HostTerms, Limits, ListenerSpec, Registry, RegistryConfig, Via};
    use tls::HandshakeError;
    use tls::psk_handshake::PskHandshake;
    use wire::nvme::ConnectCommand;
    use wire::nvme::fabrics::ConnectData;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::Subsystems;

    const NQN: &str = "nqn.2026-01.io.weft:disk";
    const HOST: &str = "nqn.2026-01.io.weft:host";
    const ADDRESS: &str = "192.0.2.1:4420";
    const HOUR: Duration = Duration::from_secs(3600);

    /// Mail that is sent to it goes nowhere.
    struct DiscardedMail;

    impl<M> Post<M> for DiscardedMail {
        fn send(&self, _: usize, _: M) {}
    }

    /// A subsystem whose host has a secret.
    fn registry() -> Registry {
        let secret = DhchapKey::new(DhchapHash::Sha256, &mut |bytes| bytes.fill(1));
        let subsystem = Subsystem {
            nqn: NQN.to_owned(),
            serial: "WEFT0001".to_owned(),
            model: "weft".to_owned(),
            firmware: "0.1.0".to_owned(),
            hosts: None,
            terms: vec![HostTerms {
                dhchap: Some(DhchapKeys {
                    host: vec![secret.into()],
                    controller: None,
                }),
                ..HostTerms::new(HOST)
            }],
            dhchap: DhchapChoice::default(),
            listeners: None,
            namespaces: Vec::new().into(),
            ana_groups: Vec::new(),
            limits: Limits {
                io_queues_max: 1,
                queue_entries_max: 32,
                io_bytes_max: 1 << 20,
                in_capsule_bytes_max: 8192,
                controllers_of_host_max: 2,
            },
            cntlids: 1..=2,
            is_drained: false,
        };
        let listener = ListenerSpec {
            number: 0,
            address: ADDRESS.parse().expect("an address"),
            advertise: None,
            discovery_only: false,
            requires_tls: false,
            transports: Transports::Tcp,
        };
        Registry::new(RegistryConfig {
            subsystems: vec![Arc::new(subsystem)],
            listeners: vec![listener],
            referrals: Vec::new(),
        })
    }

    /// The keys of a host that has made one at each of these times; the first byte of each is
    /// its place.
    fn keys_made_at(times: &[Duration]) -> HostKeys {
        let mut registry = registry();
        let command = ConnectCommand {
            recfmt: 0,
            qid: 0,
            sqsize: 31,
            cattr: 0,
            kato_ms: 0,
        };
        let data = ConnectData::new([7; 16], 0xffff, NQN, HOST);
        let via = Via {
            connection: 1,
            listener: 0,
            local: ADDRESS.parse().expect("an address"),
            peer: "192.0.2.99:50000".parse().expect("an address"),
            network: [192, 0, 2, 99].into(),
            psk_identity: None,
            transport: Transport::Tcp,
        };
        let connected = registry.connect(&command, data.as_bytes(), &via, 0);
        let controller = connected.expect("admitted").controller;
        let (keys, _) = registry.dhchap(controller).expect("it has a secret");
        for (byte, made_at) in (0..).zip(times) {
            let psk = generated(byte);
            let taken = registry.authenticated(controller, &keys.host[0].key, Some(&psk), *made_at);
            assert_eq!(taken, Ok(()));
        }
        let limits = ConnectionLimits {
            connections_max: 1,
            connections_of_address_max: 1,
            tls_handshakes_max: 1,
            turn_units_max: 1,
        };
        let shared = Arc::new(Shared::new(limits, 1, Arc::new(DiscardedMail)));
        let nothing = store::Spec::new("", store::Kind::NULL, 512, 512);
        let nothing = store::open(&nothing).expect("a null volume needs nothing");
        let places = Subsystems::new(nothing, Vec::new());
        let post = Arc::new(DiscardedMail);
        let service = Service::new(shared, post, registry, places);
        HostKeys(Arc::new(service))
    }

    fn generated(byte: u8) -> Psk {
        Psk::generated(Secret::new([byte; 32])).expect("the length of a key")
    }

    #[test]
    fn generated_key_is_refused_as_expired_an_hour_after_it_was_made() {
        let now = since_1970();
        let keys = Arc::new(keys_made_at(&[now - HOUR, now]));
        let [expired, good, never_made] =
            [0, 1, 2].map(|byte| generated(byte).tls_psk(HOST, NQN, Derivation::Standard));
        let told = |psk: &TlsPsk| {
            let hello = PskHandshake::client(psk.clone()).step(&[]).output;
            let end = PskHandshake::server(keys.clone()).step(&hello).end;
            end.map(|end| end.err().expect("a client has more to say"))
        };
        assert_eq!(told(&good), None);
        let error = |psk: TlsPsk| told(&psk).map(|error| (error, psk.identity));
        let (why, identity) = error(expired).expect("refused");
        assert_eq!(why, HandshakeError::Expired(identity));
        let (why, identity) = error(never_made).expect("refused");
        assert_eq!(why, HandshakeError::UnknownIdentity(identity));
    }
}
