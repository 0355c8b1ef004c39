//! How often somebody over TCP was not let in.

use std::sync::atomic::{AtomicU64, Ordering};

/// What was wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WrongLogin {
    /// No handshake of TLS: no TLS at all, too slow, or a certificate that is not taken.
    Handshake,
    /// A certificate without a role.
    Certificate,
    /// A token, a session or an address to log in by.
    Secret,
}

impl WrongLogin {
    const ALL: [(WrongLogin, &str); 3] = [
        (WrongLogin::Handshake, "handshake"),
        (WrongLogin::Certificate, "certificate"),
        (WrongLogin::Secret, "secret"),
    ];
}

/// How often each was.
#[derive(Debug, Default)]
pub(crate) struct WrongLogins([AtomicU64; 3]);

impl WrongLogins {
    /// Once more.
    pub fn count(&self, wrong: WrongLogin) {
        self.0[wrong as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often each was, by its name.
    pub fn counts(&self) -> [(&'static str, u64); 3] {
        WrongLogin::ALL.map(|(wrong, name)| (name, self.0[wrong as usize].load(Ordering::Relaxed)))
    }
}
