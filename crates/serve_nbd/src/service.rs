//! What NBD connections on all reactors have in common.

use std::sync::{Arc, Mutex, MutexGuard};

use engine::{Post, Shared};
use machine::locked;
use nbd::NbdSettings;
use store::Volume;

use crate::NbdReply;
use crate::exports::NbdExports;
use crate::transport_security::NbdSecrets;

/// What reactors tell each other about NBD connections.
pub enum ExportMail {
    /// What is told of the export of this name has changed.
    Refresh(Arc<str>),
}

/// The same with answers to requests.
pub type NbdMail = engine::Mail<NbdReply, ExportMail>;

/// What NBD connections on all reactors have in common.
pub struct NbdService {
    /// What all protocols have in common.
    pub shared: Arc<Shared>,
    /// What a connection may do.
    pub(crate) settings: NbdSettings,
    /// By which TLS is offered; `None`: it is not.
    pub tls: Option<NbdSecrets>,
    pub(crate) post: Arc<dyn Post<NbdMail>>,
    exports: Mutex<NbdExports>,
}

impl NbdService {
    /// With no export yet.
    pub fn new(
        shared: Arc<Shared>,
        post: Arc<dyn Post<NbdMail>>,
        settings: NbdSettings,
        tls: Option<NbdSecrets>,
    ) -> NbdService {
        NbdService {
            shared,
            settings,
            tls,
            post,
            exports: Mutex::default(),
        }
    }

    /// The exports, locked: off the way of an I/O.
    pub fn exports(&self) -> MutexGuard<'_, NbdExports> {
        locked(&self.exports)
    }

    /// Clients of the export of a name are served it as it is now, before any fence that is begun
    /// after this.
    pub fn republish(&self, name: &str) {
        let name: Arc<str> = name.into();
        for shard in 0..self.shared.load.len() {
            let mail = NbdMail::Own(ExportMail::Refresh(name.clone()));
            self.post.send(shard, mail);
        }
    }

    /// Clients see another size of a volume, before any fence that is begun after this.
    pub fn republish_volume(&self, volume: &Arc<dyn Volume>, size_bytes: u64) {
        let names = self.exports().set_size(volume, size_bytes);
        names.iter().for_each(|name| self.republish(name));
    }
}
