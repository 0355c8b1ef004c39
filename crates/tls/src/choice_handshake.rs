//! A server's handshake by a pre-shared key or by certificates, as the client offers.

use std::sync::Arc;

use rustls::ServerConfig;

use crate::certificate_handshake::CertificateHandshake;
use crate::either_handshake::Handshake;
use crate::handshake::{HandshakeError, HandshakeStep};
use crate::hello::{self, Offer};
use crate::psk_handshake::{KnownPsks, PskHandshake};

/// One handshake.
pub struct ChoiceHandshake {
    known: Arc<dyn KnownPsks>,
    certificates: Option<Arc<ServerConfig>>,
    /// What was received of the ClientHello.
    input: Vec<u8>,
    chosen: Option<Handshake>,
}

impl ChoiceHandshake {
    /// With the keys that there are, for a client that offers any; by certificates, where there
    /// are some, with others.
    #[must_use]
    pub fn server(
        known: Arc<dyn KnownPsks>,
        certificates: Option<Arc<ServerConfig>>,
    ) -> ChoiceHandshake {
        ChoiceHandshake {
            known,
            certificates,
            input: Vec::new(),
            chosen: None,
        }
    }

    /// Goes on with what was received.
    pub fn step(&mut self, input: &[u8]) -> HandshakeStep {
        if let Some(chosen) = &mut self.chosen {
            return chosen.step(input);
        }
        self.input.extend_from_slice(input);
        match self.choose() {
            Ok(None) => HandshakeStep {
                output: Vec::new(),
                end: None,
            },
            Ok(Some(chosen)) => {
                let input = std::mem::take(&mut self.input);
                self.chosen.insert(chosen).step(&input)
            }
            Err(error) => HandshakeStep {
                output: error.alert().in_the_clear().into(),
                end: Some(Err(error)),
            },
        }
    }

    /// `None`: the ClientHello is not all here.
    fn choose(&self) -> Result<Option<Handshake>, HandshakeError> {
        let Some(message) = hello::client_hello(&self.input)? else {
            return Ok(None);
        };
        let offers_keys = Offer::read(&message).is_some_and(|offer| offer.offers_keys());
        let chosen = match &self.certificates {
            Some(side) if !offers_keys => CertificateHandshake::server(side.clone())?.into(),
            _ => PskHandshake::server(self.known.clone()).into(),
        };
        Ok(Some(chosen))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    use auth::Secret;
    use auth::psk::{Derivation, PskHash, TlsPsk};

    use super::*;
    use crate::handshake::{ProvenPeer, Secured};
    use crate::{ClientPsks, Identity, RenewedPsks, SecretPlace, ServerSide, rpc_client_side};

    fn of(name: &str) -> PathBuf {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
        data.join(name)
    }

    fn private(folder: &Path, name: &str, content: &[u8]) -> SecretPlace {
        let path = folder.join(name);
        fs::write(&path, content).expect("room");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("ours");
        path.into()
    }

    /// The keys of the client "alice", whose key is of one byte.
    fn known(byte: &str) -> Arc<ClientPsks> {
        let folder = tempfile::tempdir().expect("a folder");
        let line = format!("alice:{}\n", byte.repeat(32));
        let place = private(folder.path(), "psk", line.as_bytes());
        RenewedPsks::read(&place).expect("a key").psks()
    }

    fn certificates() -> Arc<ServerConfig> {
        let folder = tempfile::tempdir().expect("a folder");
        let key = fs::read(of("server.key")).expect("there");
        let key = private(folder.path(), "key", &key);
        let identity = Identity::read(&of("server.pem"), &key).expect("they fit");
        ServerSide::for_nbd(identity, None).expect("good").config
    }

    fn with_key(name: &str) -> Handshake {
        let psk = TlsPsk {
            identity: name.to_owned(),
            secret: Secret::new(vec![7; 32]),
            hash: PskHash::Sha256,
            derivation: Derivation::Standard,
        };
        PskHandshake::client(psk).into()
    }

    fn with_certificates() -> Handshake {
        let mut side = rpc_client_side(&of("ca.pem"), None).expect("good");
        Arc::make_mut(&mut side).alpn_protocols.clear();
        let client = CertificateHandshake::client(side, "storage.example.org");
        client.expect("a name").into()
    }

    /// How the handshake ended at the server, with input in pieces of `piece` bytes.
    fn shake(
        mut client: Handshake,
        mut server: ChoiceHandshake,
        piece: usize,
    ) -> Result<Secured, HandshakeError> {
        let mut to_server = client.step(&[]).output;
        for _ in 0..4 {
            let mut to_client = Vec::new();
            for piece in std::mem::take(&mut to_server).chunks(piece) {
                let step = server.step(piece);
                to_client.extend(step.output);
                if let Some(end) = step.end {
                    return end;
                }
            }
            to_server = client.step(&to_client).output;
        }
        panic!("no end");
    }

    #[test]
    fn client_is_known_by_the_key_that_it_offers_or_by_what_it_shows() {
        for piece in [1, 7, 100_000] {
            for side in [None, Some(certificates())] {
                let server = ChoiceHandshake::server(known("07"), side);
                let secured = shake(with_key("alice"), server, piece).expect("its key");
                let ProvenPeer::Psk(psk) = secured.peer else {
                    panic!("it has offered a key");
                };
                assert_eq!(psk.identity, "alice");
            }
            let server = ChoiceHandshake::server(known("07"), Some(certificates()));
            let secured = shake(with_certificates(), server, piece).expect("good");
            assert!(matches!(secured.peer, ProvenPeer::Certificate(None)));
        }
    }

    #[test]
    fn client_without_a_key_of_the_file_is_refused_in_words_of_names() {
        for side in [None, Some(certificates())] {
            let server = |byte| ChoiceHandshake::server(known(byte), side.clone());
            let wrong = shake(with_key("alice"), server("08"), 100).err();
            assert_eq!(wrong, Some(HandshakeError::WrongKey("alice".to_owned())));
            let unknown = shake(with_key("bob"), server("07"), 100).err();
            assert_eq!(unknown, Some(HandshakeError::UnknownName("bob".to_owned())));
        }
        let server = ChoiceHandshake::server(known("07"), None);
        let none = shake(with_certificates(), server, 100).err();
        assert_eq!(none, Some(HandshakeError::NoPskOfClient));
        let mut server = ChoiceHandshake::server(known("07"), Some(certificates()));
        let told = server.step(&[0; 64]);
        assert_eq!(
            told.end.and_then(Result::err),
            Some(HandshakeError::Malformed)
        );
    }
}
