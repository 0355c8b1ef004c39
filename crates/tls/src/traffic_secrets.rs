//! The application traffic secrets of a handshake. The libraries give them in no other way than
//! as lines of a key log, which is written nowhere.

use std::cell::RefCell;

use auth::Secret;
use auth::psk::PskHash;

use crate::handshake::HandshakeError;
use crate::records::{Opener, Sealer};

/// What both sides of one direction derive their keys from.
struct TrafficSecret {
    is_clients: bool,
    secret: Secret,
}

thread_local! {
    /// What a library has told of in this call of it.
    static TOLD: RefCell<Vec<TrafficSecret>> = const { RefCell::new(Vec::new()) };
}

#[cfg(test)]
thread_local! {
    /// What a client seals behind its handshake is sealed by its key of the handshake, which comes
    /// first: a test spoils messages by it.
    pub static KEEPS_HANDSHAKE_SECRET: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Notes what a library tells of under a label of the key log; of other labels nothing.
pub(crate) fn note(label: &[u8], secret: impl FnOnce() -> Option<Secret>) {
    let is_clients = match label {
        b"CLIENT_TRAFFIC_SECRET_0" => true,
        b"SERVER_TRAFFIC_SECRET_0" => false,
        #[cfg(test)]
        b"CLIENT_HANDSHAKE_TRAFFIC_SECRET" if KEEPS_HANDSHAKE_SECRET.get() => true,
        _ => return,
    };
    if let Some(secret) = secret() {
        TOLD.with_borrow_mut(|told| told.push(TrafficSecret { is_clients, secret }));
    }
}

/// Those of one handshake.
#[derive(Default)]
pub(crate) struct TrafficSecrets(Vec<TrafficSecret>);

impl TrafficSecrets {
    /// Calls a library, and takes what it tells of meanwhile.
    pub fn told_by<T>(&mut self, call: impl FnOnce() -> T) -> T {
        TOLD.take();
        let answer = call();
        self.0.extend(TOLD.take());
        answer
    }

    /// What is sent and received from now on by a server, or by a client.
    ///
    /// # Errors
    /// There are no secrets.
    pub fn keys(&self, is_server: bool) -> Result<(Sealer, Opener), HandshakeError> {
        let of = |is_clients| {
            let mut all = self.0.iter();
            let secret = &all.find(|known| known.is_clients == is_clients)?.secret;
            let mut hashes = PskHash::ALL.into_iter();
            let hash = hashes.find(|hash| hash.digest_bytes() == secret.len())?;
            Some((hash, secret.clone()))
        };
        let (Some(own), Some(theirs)) = (of(!is_server), of(is_server)) else {
            return Err(HandshakeError::Failed("it has made no keys".to_owned()));
        };
        let opener = Opener::new(theirs.0, theirs.1);
        let opener = match is_server {
            true => opener,
            false => opener.taking_tickets(),
        };
        Ok((Sealer::new(own.0, own.1), opener))
    }
}
