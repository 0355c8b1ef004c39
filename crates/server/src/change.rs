//! Live changes: what is served changes while hosts use it. Each is checked,
//! made off the reactors, told to the hosts that it concerns and to no others,
//! and answered when it is true: no I/O that began before is left where that
//! matters.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use ::iscsi::{Auth, InitiatorAcl, Redirect, Target};
use auth::psk::PskCompat;
use engine::post::ShardMail;
use engine::{ConnectionPolicy, ConnectionRef, RateLimit, Scope};
use machine::locked;
use nvmf::command::AnaState;
use nvmf::{AnaGroup, Referral, Registry, Subsystem};
use serve_nbd::NbdExportSpec;
use serve_nfs::{ExportSpec, FileSystemSpec, KerberosSettings, QuotaSpec};
use store::fs::QuotaRefused;
use store::{EncryptionSettings, RemoteAt, ReplaceError, ResizeError, Volume};

use crate::check;
use crate::config::{
    Ana, IscsiTargetSpec, ListenerSpec, LunSpec, NamespaceSpec, SnapshotSchedule, SubsystemSpec,
};
use crate::shared::{AfterChange, Shared};

mod drain;
mod evict;
mod files;
mod iscsi;
pub(crate) mod kerberos;
mod listener;
mod namespaces;
mod nbd;
mod volume;

/// How often it is looked whether what is removed has other holders, at most.
const LOOKS_MAX: usize = 1000;

/// Waits until no thread holds a volume or file system that is removed: one that reads sizes, states
/// or quotas of all does so for a moment, and as long as it is there its files are taken. What an I/O of
/// its own holds up longer is freed when that is over.
fn wait_for_readers<T: ?Sized>(removed: &Arc<T>) {
    for _ in 0..LOOKS_MAX {
        if Arc::strong_count(removed) == 1 {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// A change of what is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Opens a volume.
    AddVolume(store::Spec),
    /// Flushes and closes a volume that no namespace uses.
    RemoveVolume {
        /// Its name.
        name: String,
    },
    /// Changes the capacity of a volume; hosts see it at once.
    ResizeVolume {
        /// Its name.
        name: String,
        /// The new capacity; 0: all that the device below has.
        size_bytes: u64,
        /// What lies behind a smaller capacity may be lost.
        allow_shrink: bool,
    },
    /// Says by what the keys of an encrypted volume are wrapped: it is unlocked where it was
    /// locked, and what is wrapped by the former key is wrapped anew. A key that cannot be read
    /// changes nothing.
    SetEncryption {
        /// Its name.
        name: String,
        /// By what.
        settings: EncryptionSettings,
    },
    /// Sets the legs of a mirror, and how fast what one lacks is copied to it. What stays a leg
    /// keeps what it has.
    SetMirror {
        /// Its name.
        name: String,
        /// The names of its legs, in their order.
        of: Vec<String>,
        /// Bytes in a second at most; 0: none.
        resync_rate: u64,
    },
    /// Says by which credentials the connections of a remote volume are made from now on; those
    /// that there are stay.
    SetRemote {
        /// Its name.
        name: String,
        /// Where it is, and by what it is reached.
        place: RemoteAt,
    },
    /// Sets how fast the scrub of a volume with checksums reads.
    SetScrubRate {
        /// Its name.
        name: String,
        /// Bytes in a second at most; 0: none.
        rate: u64,
    },
    /// Adds a subsystem.
    AddSubsystem(SubsystemSpec),
    /// Takes a subsystem away; its controllers end, its volumes stay.
    RemoveSubsystem {
        /// Its NQN.
        nqn: String,
    },
    /// Puts a volume under a namespace identifier.
    AddNamespace {
        /// NQN of the subsystem.
        nqn: String,
        /// What is added.
        namespace: NamespaceSpec,
    },
    /// Takes a namespace away; its volume stays.
    RemoveNamespace {
        /// NQN of the subsystem.
        nqn: String,
        /// Which.
        nsid: u32,
    },
    /// Puts a host on the list of those that may connect.
    AllowHost {
        /// NQN of the subsystem.
        nqn: String,
        /// NQN of the host.
        host: String,
    },
    /// Takes a host off the list; its controllers end.
    DenyHost {
        /// NQN of the subsystem.
        nqn: String,
        /// NQN of the host.
        host: String,
    },
    /// Says anew which hosts may connect; the controllers of others end.
    SetHosts {
        /// NQN of the subsystem.
        nqn: String,
        /// Their NQNs; `None` for any.
        hosts: Option<Vec<String>>,
    },
    /// Says anew which hosts may do what in a subsystem: its hosts, its listeners, and the
    /// hosts and the ANA group of each namespace that is named. Volumes stay where they are.
    /// What a host may do neither before nor after, it may not do meanwhile; its controllers
    /// end where it may not connect any more.
    SetSubsystem {
        /// As it is to be.
        spec: SubsystemSpec,
        /// Whether the states of its ANA groups are said anew too: hosts may have set others.
        sets_ana: bool,
    },
    /// Listens on one more address.
    AddListener(ListenerSpec),
    /// Closes a listener and every connection that came in by it.
    RemoveListener {
        /// Its address, as bound.
        address: SocketAddr,
    },
    /// Adds an iSCSI target.
    AddTarget(IscsiTargetSpec),
    /// Takes a target away; its sessions end, its volumes stay.
    RemoveTarget {
        /// Its name.
        name: String,
    },
    /// Puts a volume under a logical unit number.
    AddLun {
        /// Name of the target.
        name: String,
        /// What is added.
        lun: LunSpec,
    },
    /// Takes a logical unit away; its volume stays.
    RemoveLun {
        /// Name of the target.
        name: String,
        /// Which.
        lun: u16,
    },
    /// Replaces everything of the target of this name but its logical units; sessions
    /// that it would not let begin end. What others have negotiated holds.
    SetTarget(Target),
    /// Replaces the initiators that may use a target and the LUNs that they see; the
    /// sessions of others end.
    SetInitiators {
        /// Name of the target.
        name: String,
        /// The initiators that may: see
        /// [`Target::entry_of`](::iscsi::Target::entry_of).
        acl: Vec<InitiatorAcl>,
    },
    /// Says anew what initiators prove to a target, where their own entry does
    /// not; sessions of those that have not proved it end.
    SetAuth {
        /// Name of the target.
        name: String,
        /// What they prove.
        auth: Auth,
    },
    /// Sends initiators of a target elsewhere, those that are logged in too, or
    /// (`None`) no more.
    SetRedirect {
        /// Name of the target.
        name: String,
        /// Where to.
        redirect: Option<Redirect>,
    },
    /// Says anew what initiators prove that only ask which targets there are.
    SetDiscoveryAuth(Auth),
    /// Sets the state of an ANA group.
    SetAna {
        /// NQN of the subsystem, or the name of an iSCSI target.
        nqn: String,
        /// For hosts that come in by this listener; `None`: by any.
        listener: Option<SocketAddr>,
        /// The group.
        group: u32,
        /// Its state.
        state: AnaState,
    },
    /// Sets the states of all ANA groups of an iSCSI target at once, on all listeners.
    SetTargetAna {
        /// Name of the target, which has states of its own.
        name: String,
        /// Groups whose state is not ANA Optimized everywhere.
        groups: Vec<AnaGroup>,
    },
    /// Sets the other discovery services that this one names.
    SetReferrals(Vec<Referral>),
    /// Sets how NVMe hosts may derive their keys for TLS. Connections that there are stay.
    SetPskCompat(PskCompat),
    /// Sets how much may be read and written in a second, for what waits too. A limit of the same
    /// name goes on.
    SetRateLimits(Vec<RateLimit>),
    /// Sets what the kernel is to do with what goes over connections that are made from now on.
    SetConnectionPolicies(Vec<ConnectionPolicy>),
    /// Sets when snapshots are made by themselves. Those that there are of a schedule that goes
    /// stay.
    SetSnapshotSchedules(Vec<SnapshotSchedule>),
    /// Sets by which keys users of NFS clients prove who they are; `None`: they cannot.
    /// Contexts that there are stay.
    SetKerberos(Option<KerberosSettings>),
    /// Opens a file system.
    AddFileSystem(FileSystemSpec),
    /// Closes a file system that is not exported.
    RemoveFileSystem {
        /// Its name.
        name: String,
    },
    /// Sets how much users, groups and trees may have in file systems. What is there stays, also
    /// where it is more.
    SetQuotas(Vec<QuotaSpec>),
    /// Exports a file system under one more path.
    AddExport(ExportSpec),
    /// Takes an export away; clients lose what they had open in it, its file
    /// system stays.
    RemoveExport {
        /// Its path.
        path: String,
    },
    /// Replaces the rules of the export of this path, and where it refers to, if it is a
    /// referral. They hold for the next call of each client, without a new mount.
    SetExport(ExportSpec),
    /// Exports a volume over NBD.
    AddNbdExport(NbdExportSpec),
    /// Takes an export away; its clients' connections end, its volume stays.
    RemoveNbdExport {
        /// Its name.
        name: String,
    },
    /// Sets what an export of the same volume is: connections of clients that it lets in no more
    /// end.
    SetNbdExport(NbdExportSpec),
    /// Ends connections: of NVMe with their controllers; of iSCSI when their initiators were
    /// asked to log out. Those that have gone meanwhile are left out.
    EvictConnections(Vec<ConnectionRef>),
    /// Forgets the keys for TLS that an NVMe host has made by authentication: it makes another,
    /// or comes no more by TLS.
    ForgetGeneratedKeys {
        /// NQN of the host.
        host: String,
    },
    /// Takes away all that an NFS client has: it may begin anew.
    EvictClient {
        /// Its `clientid`, see [`Running::nfs_clients`](crate::Running::nfs_clients).
        id: u64,
    },
    /// No host is let in any more, and those that are here go by other paths: no path to a
    /// namespace or logical unit gives access, and initiators are asked to log out. Clients of
    /// NFS that there are stay. With `false`, hosts are let in again and paths have the states
    /// that were set.
    SetDrained(bool),
}

/// Why a change was not made, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// Something named is not there; what it is, and its name.
    #[error("there is no {0} {1}")]
    Unknown(&'static str, String),
    /// Something of the name is there already.
    #[error("there is a {0} {1} already")]
    Exists(&'static str, String),
    /// A value is impossible; what would be right.
    #[error("{0}")]
    Invalid(String),
    /// The volume is still used: by what.
    #[error("volume \"{0}\" is used by {1}: remove that first")]
    InUse(String, String),
    /// The first volume is part of the second.
    #[error("volume \"{0}\" is part of the volume \"{1}\": remove that first")]
    PartOf(String, String),
    /// The volume could not be opened.
    #[error("{0}")]
    Open(store::OpenError),
    /// The volume is no mirror.
    #[error("volume \"{0}\" is no mirror")]
    NoMirror(String),
    /// The legs of the mirror could not be changed.
    #[error("volume \"{0}\": {1}")]
    Mirror(String, ReplaceError),
    /// The volume could not be resized.
    #[error("{0}")]
    Resize(ResizeError),
    /// The file system could not be opened.
    #[error("{0}")]
    FileSystem(String),
    /// The file system is exported under this path.
    #[error("file system \"{0}\" is exported as {1}: remove that export first")]
    Exported(String, String),
    /// A quota could not be set: its name, and why.
    #[error("quota \"{0}\": {1}")]
    Quota(String, QuotaRefused),
    /// The keys of the service could not be used.
    #[error("[nfs.kerberos]: {0}")]
    Kerberos(::kerberos::KerberosError),
    /// The address could not be listened on.
    #[error("{}", cannot_listen(.0, .1))]
    Listen(SocketAddr, io::Error),
    /// The volume was removed, but could not be flushed before.
    #[error(
        "volume \"{0}\" is removed, but could not be flushed: {1}; what hosts had not flushed \
         themselves may be lost"
    )]
    Unsynced(String, store::Error),
    /// The change is made, but I/O that began before does not end.
    #[error(
        "the change is made and holds for every new command, but some that began before do not \
         end: what is below the volume hangs"
    )]
    Unfinished,
    /// The target is being stopped.
    #[error("the target is being stopped")]
    Stopping,
}

impl ChangeError {
    /// Whether the change is made all the same.
    #[must_use]
    pub fn is_of_one_made(&self) -> bool {
        matches!(self, ChangeError::Unsynced(..) | ChangeError::Unfinished)
    }
}

/// Why an address cannot be listened on, and what to do about it.
pub(crate) fn cannot_listen(address: &SocketAddr, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => "; another program does: end it, or configure another port",
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need a privilege: configure a higher one"
        }
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
        _ => "",
    };
    format!("cannot listen on {address}: {error}{remedy}")
}

/// How a change went.
pub type ChangeOutcome = Result<(), ChangeError>;

/// What is told about it.
type ChangeDone = AfterChange<ChangeOutcome>;

impl Shared {
    /// Makes a change. May block, so not for a reactor; `done` is told the
    /// outcome here, by a reactor or by the blocking worker. One change is made at a
    /// time, but the next may begin while the end of one is awaited, or while one
    /// opens a volume.
    pub fn change(self: &Arc<Self>, change: Change, done: ChangeDone) {
        let opened = match &change {
            Change::AddVolume(spec) => match self.open_volume(spec) {
                Ok(volume) => Some((spec.clone(), volume)),
                Err(error) => return done(self, Err(error)),
            },
            _ => None,
        };
        let guard = locked(&self.changes);
        if self.engine.is_stopping() {
            return done(self, Err(ChangeError::Stopping));
        }
        let paths = path_states(&change);
        let begun = match opened {
            Some((spec, volume)) => self.add_volume(&spec, volume),
            None => self.begin(change),
        };
        match begun {
            Ok(left) => {
                drop(guard);
                if let Some((target, states)) = paths {
                    tracing::info!(
                        event = "path-state",
                        target,
                        states,
                        "states of paths are set"
                    );
                }
                left.run(self, done);
            }
            Err(error) => {
                drop(guard);
                done(self, Err(error));
            }
        }
    }

    fn begin(self: &Arc<Self>, change: Change) -> Result<Left, ChangeError> {
        match change {
            Change::AddVolume(_) => unreachable!("it is opened first"),
            Change::RemoveVolume { name } => self.remove_volume(&name),
            Change::ResizeVolume {
                name,
                size_bytes,
                allow_shrink,
            } => self.resize_volume(&name, size_bytes, allow_shrink),
            Change::SetEncryption { name, settings } => self.set_encryption(&name, &settings),
            Change::SetMirror {
                name,
                of,
                resync_rate,
            } => self.set_mirror(&name, &of, resync_rate),
            Change::SetRemote { name, place } => self.set_remote(&name, &place),
            Change::SetScrubRate { name, rate } => self.set_scrub_rate(&name, rate),
            Change::AddSubsystem(spec) => self.add_subsystem(&spec),
            Change::RemoveSubsystem { nqn } => self.remove_subsystem(&nqn),
            Change::AddNamespace { nqn, namespace } => self.add_namespace(&nqn, &namespace),
            Change::RemoveNamespace { nqn, nsid } => self.remove_namespace(&nqn, nsid),
            Change::AllowHost { nqn, host } => self.allow_host(&nqn, host),
            Change::DenyHost { nqn, host } => self.deny_host(&nqn, &host),
            Change::SetHosts { nqn, hosts } => self.set_hosts(&nqn, hosts),
            Change::SetSubsystem { spec, sets_ana } => self.set_subsystem(spec, sets_ana),
            Change::AddListener(spec) => self.add_listener(spec),
            Change::RemoveListener { address } => self.remove_listener(address),
            Change::SetAna {
                nqn,
                listener,
                group,
                state,
            } => match nqn.starts_with("nqn.") {
                _ if self.is_drained() => Err(ChangeError::Invalid(
                    "weft is drained, and no path gives access: set its state when that is \
                     over (`weft drain --end`)"
                        .to_owned(),
                )),
                true => self.set_ana(&nqn, listener, group, state),
                false => self.set_target_ana(&nqn, listener, group, state),
            },
            Change::SetTargetAna { name, groups } => self.set_target_ana_groups(&name, groups),
            Change::SetReferrals(referrals) => self.set_referrals(referrals),
            Change::SetPskCompat(compat) => Ok(self.set_psk_compat(compat)),
            Change::SetRateLimits(limits) => Ok(self.set_rate_limits(limits)),
            Change::SetConnectionPolicies(list) => Ok(self.set_connection_policies(list)),
            Change::SetSnapshotSchedules(schedules) => Ok(self.set_snapshot_schedules(schedules)),
            Change::SetKerberos(settings) => self.set_kerberos(settings.as_ref()),
            Change::AddTarget(spec) => self.add_target(&spec),
            Change::RemoveTarget { name } => self.remove_target(&name),
            Change::AddLun { name, lun } => self.add_lun(&name, &lun),
            Change::RemoveLun { name, lun } => self.remove_lun(&name, lun),
            Change::SetTarget(target) => self.set_target(&target),
            Change::SetInitiators { name, acl } => self.set_initiators(&name, &acl),
            Change::SetAuth { name, auth } => self.set_auth(&name, auth),
            Change::SetRedirect { name, redirect } => self.set_redirect(&name, redirect),
            Change::SetDiscoveryAuth(auth) => self.set_discovery(auth),
            Change::AddFileSystem(spec) => self.add_file_system(&spec),
            Change::RemoveFileSystem { name } => self.remove_file_system(&name),
            Change::SetQuotas(quotas) => self.set_quotas(&quotas),
            Change::AddExport(spec) => self.add_export(spec),
            Change::RemoveExport { path } => self.remove_export(&path),
            Change::SetExport(spec) => self.set_export(spec),
            Change::AddNbdExport(spec) => self.add_nbd_export(&spec),
            Change::RemoveNbdExport { name } => self.remove_nbd_export(&name),
            Change::SetNbdExport(spec) => self.set_nbd_export(spec),
            Change::EvictConnections(connections) => Ok(self.evict_connections(&connections)),
            Change::ForgetGeneratedKeys { host } => Ok(self.forget_generated_keys(&host)),
            Change::EvictClient { id } => Ok(self.evict_client(id)),
            Change::SetDrained(is_drained) => Ok(self.set_drained(is_drained)),
        }
    }
}

impl Shared {
    fn forget_generated_keys(&self, host: &str) -> Left {
        self.nvme.registry().forget_generated_keys(host);
        Left::Nothing
    }

    fn set_psk_compat(&self, compat: PskCompat) -> Left {
        self.nvme.registry().set_psk_compat(compat);
        Left::Nothing
    }

    fn set_connection_policies(&self, policies: Vec<ConnectionPolicy>) -> Left {
        self.engine.connection_policies.set(policies);
        Left::Nothing
    }

    fn set_rate_limits(&self, limits: Vec<RateLimit>) -> Left {
        self.engine.set_rate_limits(limits);
        Left::fence(Scope::Mail)
    }
}

/// The states of paths that a change sets, and of what.
fn path_states(change: &Change) -> Option<(String, String)> {
    let told = |groups: &[AnaGroup]| {
        let states = groups.iter().map(|group| {
            let on = group.on.iter();
            let on = on.map(|(listener, state)| format!(", {state:?} on listener {listener}"));
            format!(
                "group {}: {:?}{}",
                group.id,
                group.state,
                on.collect::<String>()
            )
        });
        let states: Vec<_> = states.collect();
        match states.is_empty() {
            true => "all are Optimized".to_owned(),
            false => states.join("; "),
        }
    };
    match change {
        Change::SetAna {
            nqn,
            listener,
            group,
            state,
        } => {
            let on = listener.map(|address| format!(" on {address}"));
            let states = format!("group {group}: {state:?}{}", on.unwrap_or_default());
            Some((nqn.clone(), states))
        }
        Change::SetTargetAna { name, groups } => Some((name.clone(), told(groups))),
        Change::SetSubsystem {
            spec,
            sets_ana: true,
        } => Some((spec.nqn.clone(), told(&spec.ana_groups))),
        _ => None,
    }
}

/// A step of a change; ends with `done`.
type ChangeStep = Box<dyn FnOnce(&Arc<Shared>, ChangeDone) + Send>;

/// What a change still waits for before it is true.
enum Left {
    Nothing,
    /// A fence, and what to do behind it.
    Fence(Scope, ChangeStep),
    /// Something else.
    More(ChangeStep),
}

impl Left {
    /// Only the fence.
    fn fence(scope: Scope) -> Left {
        Left::Fence(scope, Box::new(|shared, done| done(shared, Ok(()))))
    }

    /// Nothing that began before it is left on `volumes` either.
    fn then_fence(self, volumes: Vec<Arc<dyn Volume>>) -> Left {
        self.then(move |_| Left::fence(Scope::Volumes(volumes)))
    }

    /// What `next` begins, when this is over.
    fn then(self, next: impl FnOnce(&Arc<Shared>) -> Left + Send + 'static) -> Left {
        Left::More(Box::new(move |shared, done| {
            let then = |shared: &Arc<Shared>, outcome: ChangeOutcome| match outcome {
                Ok(()) => next(shared).run(shared, done),
                Err(error) => done(shared, Err(error)),
            };
            self.run(shared, Box::new(then));
        }))
    }

    fn run(self, shared: &Arc<Shared>, done: ChangeDone) {
        match self {
            Left::Nothing => done(shared, Ok(())),
            Left::Fence(scope, then) => shared.fence(scope, move |shared| then(shared, done)),
            Left::More(more) => more(shared, done),
        }
    }
}

/// How a subsystem is to be changed.
struct Edit {
    nqn: String,
    apply: Box<dyn Fn(&mut Subsystem) + Send>,
}

impl Shared {
    /// Changes subsystems so that hosts may do more than before. Every I/O
    /// queue allows it before the first host gets the notice, so that a host that
    /// acts on the notice is not refused.
    fn allow_more(&self, edits: Vec<Edit>) -> Left {
        for edit in &edits {
            let registry = self.nvme.registry();
            if let Ok(mut subsystem) = namespaces::subsystem(&registry, &edit.nqn) {
                (edit.apply)(&mut subsystem);
                self.nvme.publish(&subsystem);
            }
        }
        let tell = move |shared: &Arc<Shared>, done: ChangeDone| {
            edits.into_iter().for_each(|edit| shared.allow_less(edit));
            // Then all are told.
            shared.fence(Scope::Mail, move |shared| done(shared, Ok(())));
        };
        Left::Fence(Scope::Mail, Box::new(tell))
    }

    /// Changes a subsystem so that hosts may do less than before: they hear of
    /// it, and then are refused. A fence tells when all are.
    fn allow_less(&self, edit: Edit) {
        let mut registry = self.nvme.registry();
        if let Ok(mut subsystem) = namespaces::subsystem(&registry, &edit.nqn) {
            (edit.apply)(&mut subsystem);
            let change = registry.replace_subsystem(Arc::new(subsystem));
            self.nvme.republish(&registry, &edit.nqn);
            drop(registry);
            self.nvme.settle(change);
        }
    }
}
