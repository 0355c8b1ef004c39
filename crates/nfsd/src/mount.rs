//! MOUNT version 3 (RFC 1813, section 5): from the path of an export, or of a
//! directory in it, to a file handle of NFSv3.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use reactor::{FileIo, Token};
use store::fs::{self, Caller, FileId, FileSystem, FsOp, ObjectKind, Output, Progress, Task, Time};
use wire::mount3::{
    AUTH_FLAVORS_MAX, MNTNAMLEN, dirpath, groupnode, mount_proc3, mountbody, mountres3,
    mountres3_ok, mountstat3, name,
};
use wire::rpc::{AUTH_NONE, AUTH_SYS, RPC_AUTH_GSS_KRB5, RPC_AUTH_GSS_KRB5I, RPC_AUTH_GSS_KRB5P};
use wire::xdr::{Decode, Encode, List, Opaque, Reader, XdrError};

use crate::Nfsd;
use crate::exports::Clients;
use crate::handle::Handle;
use crate::peer::Peer;
use crate::pseudo::View;
use crate::reason::Reason;

/// Entries of the list of mounts: it only informs (section 5.2.2).
const MOUNTS_MAX: usize = 1024;

/// What clients have mounted, as far as they have said so.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    /// The last ones.
    list: Mutex<VecDeque<(IpAddr, String)>>,
}

impl Mounts {
    fn with<T>(&self, use_it: impl FnOnce(&mut VecDeque<(IpAddr, String)>) -> T) -> T {
        use_it(&mut self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether it is new.
    fn add(&self, client: IpAddr, path: &str) -> bool {
        self.with(|list| {
            let before = list.len();
            list.retain(|(other, known)| *other != client || known != path);
            let is_new = list.len() == before;
            if list.len() >= MOUNTS_MAX {
                list.pop_front();
            }
            list.push_back((client, path.to_owned()));
            is_new
        })
    }

    /// Whether there was any.
    fn remove(&self, client: IpAddr, path: Option<&str>) -> bool {
        self.with(|list| {
            let before = list.len();
            list.retain(|(other, known)| {
                *other != client || path.is_some_and(|path| known != path)
            });
            list.len() < before
        })
    }
}

/// What a call finds around it while it runs.
pub(crate) struct MountAround<'a> {
    /// The server.
    pub(crate) nfsd: &'a Nfsd,
    /// Its client.
    pub(crate) peer: &'a Peer,
    /// File work of its reactor.
    pub(crate) files: &'a mut dyn FileIo,
    /// What completions for it are to carry.
    pub(crate) token: Token,
    /// The time of day.
    pub(crate) time: Time,
}

/// A call under way.
pub(crate) struct MountCall {
    procedure: mount_proc3,
    /// Of MNT, where it has come to: how many names behind the export's path
    /// were looked up.
    at: usize,
    /// Of the export.
    export: u32,
    file: FileId,
    /// In its place, a directory above the exports.
    pseudo: Option<FileId>,
    /// The kind of `file`, when it is known.
    kind: Option<ObjectKind>,
    status: mountstat3,
}

/// The path that MNT and UMNT name.
fn path_of(args: &[u8]) -> Result<&[u8], XdrError> {
    dirpath::decode(&mut Reader::new(args)).map(|path| path.0)
}

impl MountCall {
    /// A call with arguments that can be read.
    pub(crate) fn new(procedure: mount_proc3, args: &[u8]) -> Result<MountCall, XdrError> {
        if let mount_proc3::MOUNTPROC3_MNT | mount_proc3::MOUNTPROC3_UMNT = procedure {
            path_of(args)?;
        }
        Ok(MountCall {
            procedure,
            at: 0,
            export: 0,
            file: FileId(0),
            pseudo: None,
            kind: None,
            status: mountstat3::MNT3_OK,
        })
    }

    /// Goes on as far as it can: what it waits for, or `None` where its results are appended.
    pub(crate) fn advance(
        &mut self,
        args: &[u8],
        around: &mut MountAround<'_>,
        to: &mut Vec<u8>,
    ) -> Option<(Arc<dyn FileSystem>, Task)> {
        let client = around.peer.address.ip().to_canonical();
        let (mounts, events) = (&around.nfsd.mounts, &around.nfsd.events);
        let path = path_of(args)
            .ok()
            .and_then(|path| str::from_utf8(path).ok());
        if let mount_proc3::MOUNTPROC3_MNT = self.procedure {
            let waits = self.walk(path, around);
            if waits.is_some() {
                return waits;
            }
            if let (mountstat3::MNT3_OK, Some(path)) = (self.status, path)
                && mounts.add(client, path)
            {
                events.mount(client, Some(path), true);
            }
        }
        let gone = match self.procedure {
            mount_proc3::MOUNTPROC3_UMNT => path,
            _ => None,
        };
        if let mount_proc3::MOUNTPROC3_UMNT | mount_proc3::MOUNTPROC3_UMNTALL = self.procedure
            && mounts.remove(client, gone)
        {
            events.mount(client, gone, false);
        }
        let view = &around.peer.view;
        match self.procedure {
            mount_proc3::MOUNTPROC3_MNT => self.mounted(view, around.nfsd, to),
            mount_proc3::MOUNTPROC3_DUMP => mounts.with(|list| dump(list, client, to)),
            mount_proc3::MOUNTPROC3_EXPORT => export(view, to),
            mount_proc3::MOUNTPROC3_UMNT
            | mount_proc3::MOUNTPROC3_UMNTALL
            | mount_proc3::MOUNTPROC3_NULL => {}
        }
        None
    }

    /// Goes down the path until it is known what lies there; what it has to wait for.
    fn walk(
        &mut self,
        path: Option<&str>,
        around: &mut MountAround<'_>,
    ) -> Option<(Arc<dyn FileSystem>, Task)> {
        if around.nfsd.is_drained() {
            self.status = mountstat3::MNT3ERR_SERVERFAULT;
            let (events, peer) = (&around.nfsd.events, around.peer);
            events.refused(peer, path.unwrap_or("?"), Reason::Drained);
            return None;
        }
        let found = path.and_then(|path| around.peer.view.export_at(path));
        let Some((granted, names)) = found else {
            self.pseudo = path.and_then(|path| around.peer.view.directory_at(path));
            if self.pseudo.is_some() {
                return None;
            }
            // A client that may not mount a path does not learn whether it exists.
            self.status = mountstat3::MNT3ERR_ACCES;
            let asked = path.unwrap_or("?");
            let view = &around.peer.view;
            let reason = match view.referral_at(asked) {
                Some(_) => Reason::Referral,
                None if view.hides_path(asked) => Reason::Address,
                None => Reason::NoExport,
            };
            let nfsd = around.nfsd;
            nfsd.events.refused(around.peer, asked, reason);
            return None;
        };
        if granted.lacks_port() {
            self.status = mountstat3::MNT3ERR_ACCES;
            let (events, path) = (&around.nfsd.events, granted.export.path());
            events.refused(around.peer, path, Reason::Port);
            return None;
        }
        let fs = granted.fs;
        if self.export != granted.export.id() {
            (self.export, self.file, self.at) = (granted.export.id(), fs.root(), 0);
        }
        // As user 0: the path is the export's, and what is in it checks later callers.
        let caller = Caller {
            uid: 0,
            gid: 0,
            gids: &[],
            now: around.time,
            is_open: false,
            from: around.peer.asker(),
        };
        let mut names = names.skip(self.at);
        while self.status == mountstat3::MNT3_OK && self.kind.is_none() {
            let op = match names.next() {
                Some(name) => FsOp::Lookup {
                    dir: self.file,
                    name: name.as_bytes(),
                },
                None => FsOp::Getattr { file: self.file },
            };
            match fs.start(&caller, op, around.files, around.token) {
                Progress::Done(result) => self.take(result),
                Progress::Pending(task) => return Some((fs.clone(), task)),
            }
        }
        if self.kind.is_some_and(|kind| kind != ObjectKind::Directory) {
            self.status = mountstat3::MNT3ERR_NOTDIR;
        }
        None
    }

    /// Takes what a file system has answered.
    pub(crate) fn take(&mut self, result: Result<Output, fs::Error>) {
        match result {
            Ok(Output::File(file)) => (self.file, self.at) = (file, self.at + 1),
            Ok(Output::Attr(attr)) => self.kind = Some(attr.kind),
            Ok(_) => unreachable!("the answer to another question"),
            Err(error) => {
                self.status = match error {
                    fs::Error::NoEnt | fs::Error::Stale => mountstat3::MNT3ERR_NOENT,
                    fs::Error::NotDir | fs::Error::Symlink => mountstat3::MNT3ERR_NOTDIR,
                    fs::Error::NameTooLong => mountstat3::MNT3ERR_NAMETOOLONG,
                    fs::Error::BadName | fs::Error::BadChar | fs::Error::Inval => {
                        mountstat3::MNT3ERR_INVAL
                    }
                    fs::Error::Io => mountstat3::MNT3ERR_IO,
                    _ => mountstat3::MNT3ERR_SERVERFAULT,
                };
            }
        }
    }

    fn mounted(&self, view: &View, nfsd: &Nfsd, to: &mut Vec<u8>) {
        if let Some(dir) = self.pseudo {
            // Every flavor: each export says which it takes.
            let all: &[u32] = match nfsd.has_gss() {
                true => &ALL_FLAVORS,
                false => &ALL_FLAVORS[..2],
            };
            return mounted_at(Handle::Pseudo(dir), all, to);
        }
        let granted = view.granted(self.export);
        let (mountstat3::MNT3_OK, Some(granted)) = (self.status, granted) else {
            let status = match self.status {
                mountstat3::MNT3_OK => mountstat3::MNT3ERR_ACCES,
                status => status,
            };
            return mountres3::default(status).encode(to);
        };
        let flavors = granted.rule.flavors.iter().map(|flavor| flavor.number());
        let flavors: Vec<u32> = flavors.take(AUTH_FLAVORS_MAX as usize).collect();
        mounted_at(granted.handle(self.file), &flavors, to);
    }
}

/// Flavors of authentication, the commonest first; the first two need no Kerberos.
const ALL_FLAVORS: [u32; 5] = [
    AUTH_SYS,
    AUTH_NONE,
    RPC_AUTH_GSS_KRB5,
    RPC_AUTH_GSS_KRB5I,
    RPC_AUTH_GSS_KRB5P,
];

fn mounted_at(handle: Handle, flavors: &[u32], to: &mut Vec<u8>) {
    mountres3::MNT3_OK(mountres3_ok {
        fhandle: Opaque(&handle.encode()),
        auth_flavors: List::Of(flavors),
    })
    .encode(to);
}

/// What a client has mounted: what others have is not for it to know.
fn dump(list: &VecDeque<(IpAddr, String)>, own: IpAddr, to: &mut Vec<u8>) {
    for (client, path) in list.iter().filter(|(client, _)| *client == own) {
        true.encode(to);
        let client = client.to_string();
        mountbody {
            ml_hostname: Opaque(client.as_bytes()),
            ml_directory: Opaque(path.as_bytes()),
        }
        .encode(to);
    }
    false.encode(to);
}

/// The exports that the client may use, each with the clients that its rules name.
fn export(view: &View, to: &mut Vec<u8>) {
    for granted in view.all_granted() {
        true.encode(to);
        let path: dirpath<'_> = Opaque(granted.export.path().as_bytes());
        path.encode(to);
        let rules = granted.export.rules();
        let is_for_all = rules.iter().any(|rule| rule.clients == Clients::Any);
        let names = rules.iter().flat_map(|rule| match &rule.clients {
            Clients::Named(names) if !is_for_all => &names[..],
            _ => &[],
        });
        for client in names {
            true.encode(to);
            let client = client.to_string();
            // Names in certificates may be longer.
            let shown = client.len().min(MNTNAMLEN as usize);
            let gr_name: name<'_> = Opaque(&client.as_bytes()[..shown]);
            groupnode { gr_name }.encode(to);
        }
        false.encode(to);
    }
    false.encode(to);
}
