//! RPC-with-TLS (RFC 9289) on a connection: from the answer to its probe to what its client has
//! proved.

use std::sync::Arc;

use engine::{Connection as _, RefusalKind};
use nfsd::xprtsec::ShownCertificate;
use reactor::Driver;
use tls::{CertificateHandshake, ProvenPeer};

use crate::NfsConnection;

impl NfsConnection {
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
        let tls = self.local.service.tls.as_ref();
        let side = tls.expect("it was offered").side();
        match CertificateHandshake::server(side.config.clone()) {
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
        let shown = match self.core.link.stream.proven_peer() {
            Some(ProvenPeer::Certificate(shown)) => shown.as_ref(),
            Some(ProvenPeer::Psk(_)) | None => None,
        };
        let shown = shown.map(|shown| ShownCertificate {
            owner: shown.owner.clone(),
            names: Arc::from(&*shown.names),
        });
        self.peer.secure(self.local.service.nfsd(), shown);
        (self.core.link.machine).set_let_in(self.peer.has_exports());
    }
}
