//! NBD_OPT_STARTTLS on a connection: what a server speaks TLS by, and what a client has proved.

use std::sync::Arc;

use engine::{Connection as _, RefusalKind};
use reactor::Driver;
use tls::{
    CertificateHandshake, ChoiceHandshake, Handshake, HandshakeError, ProvenPeer, RenewedPsks,
    RenewedTls, SecretPlace, ServerSide, TlsFiles,
};

use crate::NbdConnection;
use crate::exports::name_of_key;

/// Where lies what a server speaks TLS by: one of both at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdTlsSpec {
    /// Certificates.
    pub certificates: Option<TlsFiles>,
    /// Pre-shared keys of clients, as [`tls::ClientPsks`] reads them.
    pub psk_file: Option<SecretPlace>,
}

/// What a server speaks TLS by.
pub struct NbdSecrets {
    /// By certificates.
    pub certificates: Option<Arc<RenewedTls>>,
    /// By pre-shared keys of clients.
    pub psks: Option<Arc<RenewedPsks>>,
}

impl NbdSecrets {
    /// Of files that must be good at the start.
    ///
    /// # Errors
    /// What of them cannot be used.
    pub fn read(spec: &NbdTlsSpec) -> Result<NbdSecrets, String> {
        let certificates = spec.certificates.as_ref();
        let certificates = certificates.map(|files| RenewedTls::read(files, ServerSide::for_nbd));
        let psks = spec.psk_file.as_ref().map(RenewedPsks::read);
        Ok(NbdSecrets {
            certificates: certificates.transpose()?,
            psks: psks.transpose()?.map(Arc::new),
        })
    }

    /// The handshake of the next connection.
    fn handshake(&self) -> Result<Handshake, HandshakeError> {
        let side = self.certificates.as_ref();
        let side = side.map(|tls| tls.side().config.clone());
        match (&self.psks, side) {
            (Some(psks), side) => Ok(ChoiceHandshake::server(psks.psks(), side).into()),
            (None, Some(side)) => CertificateHandshake::server(side).map(Handshake::from),
            (None, None) => Ok(Handshake::NotSpoken),
        }
    }
}

impl NbdConnection {
    /// Once everything was sent in the clear, TLS begins.
    #[cold]
    pub(crate) fn begin_tls<D: Driver>(&mut self, driver: &mut D) {
        // What ends may have closed its socket in this turn.
        if self.is_leaving || !self.core.is_open() {
            return;
        }
        let link = &mut self.core.link;
        if link.has_unsent() || link.stream.is_sending() {
            return;
        }
        let secrets = self.service.tls.as_ref();
        match secrets.map_or(Ok(Handshake::NotSpoken), NbdSecrets::handshake) {
            Ok(handshake) => {
                link.stream.begin_handshake(handshake);
                link.machine.tls_begun();
                link.receive(driver);
            }
            Err(error) => {
                self.note_refusal(RefusalKind::TLS, &error);
                self.is_leaving = true;
            }
        }
    }

    /// A handshake has ended well.
    #[cold]
    pub(crate) fn secured(&mut self) {
        self.client.names = match self.core.link.stream.proven_peer() {
            Some(ProvenPeer::Certificate(Some(shown))) => Arc::from(&*shown.names),
            Some(ProvenPeer::Psk(psk)) => Arc::from([name_of_key(&psk.identity)]),
            Some(ProvenPeer::Certificate(None)) | None => return,
        };
    }
}
