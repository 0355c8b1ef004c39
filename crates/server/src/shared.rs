//! What the reactors of one target have in common, off the way of an I/O.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use engine::post::ShardMail;
use engine::{About, Post, Scope};
use machine::locked;
use nvmf::Registry;
use reactor::{BoundListener, Mailbox};
use serve_nfs::{FileSystemSpec, files};
use store::{Examined, Volume};

use crate::change::ChangeError;
use crate::config::{Limits, ListenerSpec};
use crate::connection_info::ConnectionsAsked;
use crate::report::Report;
use crate::state::{ServedState, own_identity};

/// What reactors tell each other.
pub enum ServerMail {
    /// Whatever is spoken there.
    Shard(ShardMail),
    /// Of NVMe.
    Nvme(serve_nvme::NvmeMail),
    /// Of iSCSI.
    Iscsi(serve_iscsi::IscsiMail),
    /// Of NFS.
    Nfs(serve_nfs::NfsMail),
    /// Of NBD.
    Nbd(serve_nbd::NbdMail),
    /// Say what you have done.
    Report(Sender<Report>),
    /// Tell of your connections, from this place of the table on.
    Connections(Arc<ConnectionsAsked>, usize),
}

impl From<ShardMail> for ServerMail {
    fn from(mail: ShardMail) -> ServerMail {
        ServerMail::Shard(mail)
    }
}

impl From<serve_nvme::NvmeMail> for ServerMail {
    fn from(mail: serve_nvme::NvmeMail) -> ServerMail {
        ServerMail::Nvme(mail)
    }
}

impl From<serve_iscsi::IscsiMail> for ServerMail {
    fn from(mail: serve_iscsi::IscsiMail) -> ServerMail {
        ServerMail::Iscsi(mail)
    }
}

impl From<serve_nfs::NfsMail> for ServerMail {
    fn from(mail: serve_nfs::NfsMail) -> ServerMail {
        ServerMail::Nfs(mail)
    }
}

impl From<serve_nbd::NbdMail> for ServerMail {
    fn from(mail: serve_nbd::NbdMail) -> ServerMail {
        ServerMail::Nbd(mail)
    }
}

/// One for each reactor; set before the first one runs.
#[derive(Default)]
pub struct Mailboxes(OnceLock<Vec<Mailbox<ServerMail>>>);

impl Mailboxes {
    /// These are the mailboxes of the reactors; whether they are the first.
    pub fn set(&self, mailboxes: Vec<Mailbox<ServerMail>>) -> Result<(), Vec<Mailbox<ServerMail>>> {
        self.0.set(mailboxes)
    }
}

impl<M: Into<ServerMail>> Post<M> for Mailboxes {
    /// Does nothing before the first reactor runs: there is no connection yet.
    fn send(&self, shard: usize, mail: M) {
        if let Some(mailboxes) = self.0.get() {
            mailboxes[shard].send(mail.into());
        }
    }
}

/// What to do with a result, once.
pub type AfterChange<T> = Box<dyn FnOnce(&Arc<Shared>, T) + Send>;

/// Listens on an address: the kernel's way, or a simulator's.
pub type Bind = Box<dyn Fn(SocketAddr) -> io::Result<BoundListener> + Send + Sync>;

/// What the reactors of one target have in common.
pub struct Shared {
    /// What one host may ask for.
    pub limits: Limits,
    /// What is so whatever is spoken.
    pub engine: Arc<engine::Shared>,
    /// The controllers, and what is behind subsystems. Its locks are taken before iSCSI's
    /// where both are held.
    pub(crate) nvme: Arc<serve_nvme::Service>,
    /// The sessions, and what is behind targets.
    pub(crate) iscsi: Arc<serve_iscsi::Service>,
    /// What serves NFS.
    pub nfs: Arc<serve_nfs::Service>,
    /// What is exported over NBD. Its lock is taken before that of the state where both are held.
    pub(crate) nbd: Arc<serve_nbd::NbdService>,
    /// One for each reactor; set before the first one runs.
    pub mailboxes: Arc<Mailboxes>,
    /// Taken after the registries, and before what is behind subsystems and targets,
    /// where both are held.
    pub(crate) state: Mutex<ServedState>,
    /// Held while a change is made, so that there is one at a time.
    pub(crate) changes: Mutex<()>,
    pub(crate) bind: Bind,
}

impl Shared {
    /// What is served, locked: off the way of an I/O.
    pub(crate) fn state(&self) -> MutexGuard<'_, ServedState> {
        locked(&self.state)
    }

    /// The controllers, locked: off the way of an I/O.
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        self.nvme.registry()
    }

    /// Mail to one reactor.
    pub(crate) fn send(&self, shard: usize, mail: impl Into<ServerMail>) {
        self.mailboxes.send(shard, mail.into());
    }

    /// Every volume that is open.
    pub fn volumes(&self) -> Vec<Arc<dyn Volume>> {
        self.state().volumes.clone()
    }

    /// The number of the listener on an address: open, or to be opened. What names it may
    /// be changed before hosts come in by it.
    ///
    /// # Errors
    /// There is none left.
    pub fn listener_number(&self, spec: &ListenerSpec) -> Result<u16, ChangeError> {
        let mut state = self.state();
        state.keep_number(spec.address, spec.protocol)
    }

    /// Whether the address of a listener that is to come is free.
    ///
    /// # Errors
    /// Why not, and what to do about it.
    pub fn can_listen(&self, address: SocketAddr) -> Result<(), ChangeError> {
        let bound = (self.bind)(address);
        bound.map(drop).map_err(|e| ChangeError::Listen(address, e))
    }

    /// Whether a volume that is to come can be opened beside those that there are: looked
    /// at, and nothing made. Blocks.
    ///
    /// # Errors
    /// Why not, and what to do about it.
    pub fn can_open(&self, spec: &store::Spec) -> Result<(), ChangeError> {
        let volumes = self.volumes();
        let find = |part: &str| volumes.iter().find(|volume| volume.info().name == part);
        // What it is made of may come with it.
        let Ok(below) = spec.parts(true, find) else {
            return Ok(());
        };
        let below = below.into_iter().map(|volume| Examined::of(&**volume));
        let below: Vec<Examined> = below.collect();
        let below: Vec<&Examined> = below.iter().collect();
        let examined = store::examine_over(spec, &below).map_err(ChangeError::Open)?;
        own_identity(&examined.info, volumes.iter().map(|volume| volume.info()))
    }

    /// Whether a file system that is to come can be opened: likewise.
    ///
    /// # Errors
    /// Why not, and what to do about it.
    pub fn can_open_files(&self, spec: &FileSystemSpec) -> Result<(), ChangeError> {
        files::examine(spec).map_err(ChangeError::FileSystem)
    }

    /// Runs `then`, on some reactor, when what is in `scope` and began before
    /// is over on all of them.
    pub fn fence(self: &Arc<Self>, scope: Scope, then: impl FnOnce(&Arc<Shared>) + Send + 'static) {
        let shared = self.clone();
        self.engine.fence(scope, move || then(&shared));
    }

    /// Has work done that may block, after all that was given before of what it is
    /// about.
    pub(crate) fn blocking(
        self: &Arc<Self>,
        about: About,
        work: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) {
        let shared = self.clone();
        self.engine.blocking(about, move || work(&shared));
    }
}
