//! A host's key for TLS, and the identity that it is said by.

use auth::psk::{Derivation, Psk, TlsPsk};

/// A key as a host offers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedPsk {
    psk: Psk,
    /// Its identity is of version 0, else of version 1.
    by_version_0: bool,
}

impl From<Psk> for OfferedPsk {
    /// By an identity of version 1, which tells which key is meant.
    fn from(psk: Psk) -> Self {
        let by_version_0 = false;
        OfferedPsk { psk, by_version_0 }
    }
}

impl OfferedPsk {
    /// The same by an identity of version 0.
    pub(crate) fn by_version_0(self) -> Self {
        let by_version_0 = true;
        OfferedPsk {
            by_version_0,
            ..self
        }
    }

    /// What a handshake with a subsystem is made with.
    pub(crate) fn tls_psk(&self, hostnqn: &str, subnqn: &str) -> TlsPsk {
        let derive = match self.by_version_0 {
            true => Psk::tls_psk_version_0,
            false => Psk::tls_psk,
        };
        derive(&self.psk, hostnqn, subnqn, Derivation::Standard)
    }
}
