//! NBD_OPT_STARTTLS on a connection: from its answer to what the client has proved.

use std::sync::Arc;

use engine::{Connection as _, RefusalKind};
use reactor::Driver;
use tls::{CertificateHandshake, ProvenPeer};

use crate::NbdConnection;

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
        let begun = match &self.service.tls {
            Some(tls) => CertificateHandshake::server(tls.side().config.clone()),
            None => Err(tls::HandshakeError::NotSpoken),
        };
        match begun {
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
        if let Some(ProvenPeer::Certificate(Some(shown))) = self.core.link.stream.proven_peer() {
            self.client.names = Arc::from(&*shown.names);
        }
    }
}
