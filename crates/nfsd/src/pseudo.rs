//! What one client sees of the exports: a tree whose upper directories are the
//! pseudo file system (RFC 8881, section 7.3), and whose branches end in
//! exports. Directories that lead to no export that the client may use are not
//! there for it.

use std::ops::{Deref, Range};
use std::sync::Arc;

use engine::held_back::OwnLimits;
use engine::{Demand, Goal};
use faults::Fault;
use machine::Nanos;
use nfs::connection::Flavor;
use store::fs::{
    Attr, Device, Error, FileId, FileSystem, FsOp, ObjectKind, Output, QuotaRoom, Statfs, Time,
};
use store::meter::IoOp;

use crate::exports::{Export, Exports, ExportsError, Live, Rule, id_of_path, names};
use crate::handle::Handle;
use crate::reason::Reason;
use crate::xprtsec::{ConnectedClient, Xprtsec};

/// A directory of the pseudo file system.
#[derive(Debug)]
pub(crate) struct Directory {
    id: FileId,
    path: String,
    /// Index of the directory that it lies in; of the root, itself.
    parent: usize,
    /// By id.
    children: Vec<Child>,
    /// Indices of the exports below.
    exports: Range<usize>,
}

/// An entry of a directory.
#[derive(Debug)]
struct Child {
    /// Of what it is here: the pseudo directory, or the one that an export is
    /// mounted on.
    id: u64,
    name: String,
    what: Below,
}

#[derive(Clone, Copy, Debug)]
enum Below {
    /// Index of a directory.
    Directory(usize),
    /// Index of an export.
    Export(usize),
}

/// The directories above `exports`, which are in the order of their names.
pub(crate) fn directories(exports: &[Export]) -> Result<Vec<Directory>, ExportsError> {
    let directory = |path: &str, parent, first| Directory {
        id: FileId(id_of_path(path)),
        path: path.to_owned(),
        parent,
        children: Vec::new(),
        exports: first..first,
    };
    let mut all = vec![directory("/", 0, 0)];
    for (index, export) in exports.iter().enumerate() {
        let mut at = 0;
        let mut end = 0;
        let mut left: Vec<&str> = names(export.path()).collect();
        let Some(last) = left.pop() else {
            // The root itself is an export, and then the only one.
            break;
        };
        for name in left {
            end += 1 + name.len();
            let path = &export.path()[..end];
            all[at].exports.end = index + 1;
            at = match all.iter().position(|known| known.path == path) {
                Some(known) => known,
                None => {
                    let id = id_of_path(path);
                    all.push(directory(path, at, index));
                    let below = Below::Directory(all.len() - 1);
                    all[at].add(id, name, below);
                    all.len() - 1
                }
            };
        }
        all[at].exports.end = index + 1;
        all[at].add(export.junction(), last, Below::Export(index));
    }
    let mut ids: Vec<(u64, &str)> = all.iter().map(|d| (d.id.0, &*d.path)).collect();
    ids.extend(
        exports
            .iter()
            .map(|export| (export.junction(), export.path())),
    );
    ids.sort_unstable();
    let alike = |pair: &&[(u64, &str)]| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1;
    if let Some(pair) = ids.windows(2).find(alike) {
        let path = |at: usize| pair[at].1.to_owned();
        return Err(ExportsError::Alike(path(0), path(1)));
    }
    Ok(all)
}

impl Directory {
    fn add(&mut self, id: u64, name: &str, what: Below) {
        let at = self.children.partition_point(|child| child.id < id);
        let name = name.to_owned();
        self.children.insert(at, Child { id, name, what });
    }
}

/// Where a client may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PseudoPlace {
    /// In a directory of the pseudo file system.
    Pseudo(FileId),
    /// At an object of an export.
    File {
        /// [`Export::id`].
        export: u32,
        /// Which object.
        file: FileId,
    },
    /// At the root of a file system that is absent here: the [`Export::id`] of a referral.
    Absent(u32),
}

/// Why a file handle leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The server never gave it out (NFS4ERR_BADHANDLE).
    BadHandle,
    /// What it names is not there any more, or not for this client
    /// (NFS4ERR_STALE).
    Stale,
}

/// An export that a client may use, and how; also one that is a referral.
#[derive(Clone, Copy, Debug)]
pub struct AccessTerms<'a> {
    /// Which.
    pub export: &'a Export,
    /// How.
    pub rule: &'a Rule,
    /// The client comes from a port below 1024.
    has_secure_port: bool,
}

/// An export with a file system that a client may use, and how.
#[derive(Clone, Copy)]
pub struct Granted<'a> {
    terms: AccessTerms<'a>,
    /// What is exported.
    pub fs: &'a Arc<dyn FileSystem>,
}

impl<'a> Deref for Granted<'a> {
    type Target = AccessTerms<'a>;

    #[inline]
    fn deref(&self) -> &AccessTerms<'a> {
        &self.terms
    }
}

impl Granted<'_> {
    /// The file handle of an object in it.
    #[inline]
    pub fn handle(&self, file: FileId) -> Handle {
        let info = self.fs.info();
        Handle::file(self.export.id(), info.instance, file, info.handle_key)
    }

    /// Whether its objects have security labels for the client.
    #[inline]
    pub(crate) fn has_labels(&self) -> bool {
        self.rule.security_label && self.fs.info().has_labels
    }
}

impl AccessTerms<'_> {
    /// What a READ or WRITE of so many bytes is to limits that hold it back now.
    pub(crate) fn held_back(
        &self,
        limits: &OwnLimits,
        (op, bytes): (IoOp, u32),
        now: Nanos,
    ) -> Option<Demand> {
        let demand = Demand {
            unit: self.export.id(),
            op,
            bytes: bytes.into(),
        };
        let goal = Goal::Export(self.export.path());
        (!limits.try_take(demand, goal, now)).then_some(demand)
    }

    /// What a call lacks to use it with this authentication flavor on a connection that is
    /// protected so, if it lacks anything.
    #[inline]
    pub(crate) fn lacks(&self, flavor: Flavor, has: Xprtsec) -> Option<Reason> {
        let has_flavor = self.rule.takes(flavor);
        let of_flavor = (!has_flavor).then_some(Reason::Flavor);
        self.lacks_protection(has).or(of_flavor)
    }

    /// Whether the client comes from a port that the rule does not take.
    #[inline]
    pub(crate) fn lacks_port(&self) -> bool {
        self.rule.secure && !self.has_secure_port
    }

    /// What a connection that is protected so lacks, whatever its calls are.
    #[inline]
    pub(crate) fn lacks_protection(&self, has: Xprtsec) -> Option<Reason> {
        let takes = self.rule.xprtsec;
        let is_secure = takes.take(has) || faults::is(Fault::PlainExports);
        let of_port = self.lacks_port().then_some(Reason::Port);
        of_port.or((!is_secure).then_some(Reason::Xprtsec { has, takes }))
    }
}

/// What one client sees of the exports.
#[derive(Debug)]
pub struct View {
    exports: Arc<Exports>,
    generation: u64,
    client: ConnectedClient,
    /// For each export the rule for this client.
    rules: Vec<Option<u16>>,
}

impl View {
    /// What a client sees now.
    pub fn new(live: &Live, client: impl Into<ConnectedClient>) -> View {
        let client = client.into();
        // Read first: exports that are newer than their generation are looked
        // at once more, not once too seldom.
        let generation = live.generation();
        let exports = live.load();
        let rule_of = |export: &Export| {
            let rules = export.rules().iter();
            let mut matching = rules.map(|rule| rule.clients.contains(&client));
            matching.position(|matches| matches).map(|at| at as u16)
        };
        let rules = exports.iter().map(rule_of).collect();
        View {
            exports,
            generation,
            client,
            rules,
        }
    }

    /// Looks again, if exports have changed.
    #[inline]
    pub fn refresh(&mut self, live: &Live) {
        if live.generation() != self.generation {
            *self = View::new(live, self.client.clone());
        }
    }

    /// Whether rules ask what the name service says of the client.
    #[inline]
    pub(crate) fn needs_names(&self) -> bool {
        self.exports.need_names
    }

    /// What is known of the client.
    #[inline]
    pub fn client(&self) -> &ConnectedClient {
        &self.client
    }

    /// Which exports it is a view of.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The exports that it is a view of.
    pub fn exports(&self) -> &Exports {
        &self.exports
    }

    /// The export with this id, if the client may use it and its file system is here.
    #[inline]
    pub fn granted(&self, export: u32) -> Option<Granted<'_>> {
        self.granted_at(self.exports.index(export)?)
    }

    #[inline]
    fn granted_at(&self, index: usize) -> Option<Granted<'_>> {
        let terms = self.terms_at(index)?;
        let fs = terms.export.fs()?;
        Some(Granted { terms, fs })
    }

    /// The export with this id, if the client may use it; also where it is a referral.
    #[inline]
    pub(crate) fn terms(&self, export: u32) -> Option<AccessTerms<'_>> {
        self.terms_at(self.exports.index(export)?)
    }

    #[inline]
    fn terms_at(&self, index: usize) -> Option<AccessTerms<'_>> {
        let rule = usize::from(self.rules[index]?);
        let export = &self.exports.exports[index];
        Some(AccessTerms {
            export,
            rule: &export.rules()[rule],
            has_secure_port: self.client.has_secure_port,
        })
    }

    /// The exports with a file system that the client may use, by path.
    pub fn all_granted(&self) -> impl Iterator<Item = Granted<'_>> {
        (0..self.rules.len()).filter_map(|index| self.granted_at(index))
    }

    /// Why no export lets the client in, whatever it calls, and the path of the one that it lacks
    /// least for; `None` where one does.
    pub(crate) fn bar(&self) -> Option<(&str, Reason)> {
        let mut all = Vec::new();
        for terms in (0..self.rules.len()).filter_map(|index| self.terms_at(index)) {
            let reason = terms.lacks_protection(self.client.xprtsec)?;
            all.push((terms.export.path(), reason, terms.rule.xprtsec));
        }
        let least = all
            .into_iter()
            .min_by_key(|(.., takes)| takes.named().next());
        let barred = least.map(|(path, reason, _)| (path, reason));
        let of_all = match &*self.exports.exports {
            [only] => only.path(),
            _ => "/",
        };
        barred.or(Some((of_all, Reason::AllExports)))
    }

    /// The uppermost directory.
    pub fn root(&self) -> PseudoPlace {
        let first = self.exports.exports.first();
        match first.filter(|export| export.path() == "/") {
            Some(_) if self.rules[0].is_some() => self.place(Below::Export(0)),
            _ => self.place(Below::Directory(0)),
        }
    }

    fn place(&self, what: Below) -> PseudoPlace {
        match what {
            Below::Directory(index) => PseudoPlace::Pseudo(self.exports.directories[index].id),
            Below::Export(index) => {
                let export = &self.exports.exports[index];
                match export.fs() {
                    Some(fs) => PseudoPlace::File {
                        export: export.id(),
                        file: fs.root(),
                    },
                    None => PseudoPlace::Absent(export.id()),
                }
            }
        }
    }

    /// The bytes of a file handle; there is none of what is absent.
    #[inline]
    pub fn handle(&self, place: PseudoPlace) -> Option<Handle> {
        match place {
            PseudoPlace::Pseudo(file) => Some(Handle::Pseudo(file)),
            PseudoPlace::File { export, file } => Some(self.granted(export)?.handle(file)),
            PseudoPlace::Absent(_) => None,
        }
    }

    /// Where a file handle leads. Whether there still is such an object, its
    /// file system says.
    #[inline]
    pub fn find(&self, handle: &[u8]) -> Result<PseudoPlace, Lost> {
        let handle = Handle::decode(handle).ok_or(Lost::BadHandle)?;
        match handle {
            Handle::File {
                export,
                instance,
                file,
                ..
            } => {
                let granted = self.granted(export).ok_or(Lost::Stale)?;
                let info = granted.fs.info();
                // Another instance has another key: whether the handle was its
                // cannot be checked any more.
                if info.instance != instance {
                    return Err(Lost::Stale);
                }
                match handle.is_authentic(info.handle_key) {
                    true => Ok(PseudoPlace::File { export, file }),
                    false => Err(Lost::BadHandle),
                }
            }
            Handle::Pseudo(file) => match self.directory(file) {
                Some(_) => Ok(PseudoPlace::Pseudo(file)),
                None => Err(Lost::Stale),
            },
        }
    }

    fn directory(&self, file: FileId) -> Option<&Directory> {
        let mut all = self.exports.directories.iter();
        let found = all.find(|directory| directory.id == file)?;
        let is_root = found.path == "/";
        (is_root || self.leads_on(found)).then_some(found)
    }

    /// The directory above exports that a path names, if it leads to one that the client may use.
    pub(crate) fn directory_at(&self, path: &str) -> Option<FileId> {
        fn parts(path: &str) -> impl Iterator<Item = &str> {
            path.split('/').filter(|name| !name.is_empty())
        }
        let all = self.exports.directories.iter();
        let mut named = all.filter(|directory| parts(&directory.path).eq(parts(path)));
        let found = named.find(|directory| self.leads_on(directory))?;
        path.starts_with('/').then_some(found.id)
    }

    fn leads_on(&self, directory: &Directory) -> bool {
        let below = &self.rules[directory.exports.clone()];
        below.iter().any(Option::is_some)
    }

    fn is_visible(&self, child: &Child) -> bool {
        match child.what {
            Below::Directory(index) => self.leads_on(&self.exports.directories[index]),
            Below::Export(index) => self.rules[index].is_some(),
        }
    }

    /// What an entry of a pseudo directory is.
    pub fn lookup(&self, dir: FileId, name: &[u8]) -> Option<PseudoPlace> {
        let children = &self.directory(dir)?.children;
        let named = |child: &&Child| child.name.as_bytes() == name && self.is_visible(child);
        children
            .iter()
            .find(named)
            .map(|child| self.place(child.what))
    }

    /// Why the client finds no such entry in a pseudo directory, and the path: of an
    /// export that it may not use and that the entry is or leads to, else of the entry.
    pub(crate) fn not_found(&self, dir: FileId, name: &[u8]) -> Option<(String, Reason)> {
        let directory = self.directory(dir)?;
        let mut named = directory.children.iter();
        let Some(child) = named.find(|child| child.name.as_bytes() == name) else {
            let folder = directory.path.trim_end_matches('/');
            let path = format!("{folder}/{}", String::from_utf8_lossy(name));
            return Some((path, Reason::NoExport));
        };
        let index = match child.what {
            Below::Directory(index) => self.exports.directories[index].exports.start,
            Below::Export(index) => index,
        };
        let path = self.exports.exports[index].path().to_owned();
        Some((path, Reason::Address))
    }

    /// Whether the uppermost directory is an export that the client may not use.
    pub(crate) fn hides_root(&self) -> bool {
        let first = self.exports.exports.first();
        first.is_some_and(|export| export.path() == "/") && self.rules[0].is_none()
    }

    /// Whether a path leads to or into an export that the client may not use.
    pub(crate) fn hides_path(&self, path: &str) -> bool {
        let mut all = self.exports.exports.iter().zip(&self.rules);
        all.any(|(export, rule)| rule.is_none() && rest_of(export, path).is_some())
    }

    /// The referral that a path leads to or into, of those that the client may see.
    pub(crate) fn referral_at(&self, path: &str) -> Option<&Export> {
        let mut all = (0..self.rules.len()).filter_map(|index| self.terms_at(index));
        let is_it = |terms: &AccessTerms<'_>| {
            terms.export.fs().is_none() && rest_of(terms.export, path).is_some()
        };
        all.find(is_it).map(|terms| terms.export)
    }

    /// The directory that a pseudo directory lies in, or the root of an export
    /// is mounted in; `None` for the uppermost one.
    pub fn parent(&self, place: PseudoPlace) -> Option<PseudoPlace> {
        let directories = &self.exports.directories;
        match place {
            PseudoPlace::Pseudo(file) => {
                let own = self.directory(file)?;
                let parent = &directories[own.parent];
                (parent.id != own.id).then_some(PseudoPlace::Pseudo(parent.id))
            }
            PseudoPlace::File { export, .. } | PseudoPlace::Absent(export) => {
                let index = self.exports.index(export)?;
                let is_in = |child: &Child| matches!(child.what, Below::Export(at) if at == index);
                let mut all = directories.iter();
                let found = all.find(|directory| directory.children.iter().any(is_in))?;
                Some(PseudoPlace::Pseudo(found.id))
            }
        }
    }

    /// Attributes of a pseudo directory.
    pub fn attr(&self, dir: FileId) -> Option<Attr> {
        let directory = self.directory(dir)?;
        let children = directory.children.iter();
        let visible = children.filter(|child| self.is_visible(child)).count();
        let since = self.exports.since;
        Some(Attr {
            file: dir,
            kind: ObjectKind::Directory,
            mode: 0o555,
            acl: None,
            label: None,
            links: 2 + visible as u32,
            uid: 0,
            gid: 0,
            device: Device::default(),
            size: visible as u64,
            used_bytes: 0,
            accessed: since,
            modified: since,
            changed: since,
            created: since,
            change: change_of(since),
        })
    }

    /// The entries of a pseudo directory behind `cookie`: their cookies, names
    /// and what they are. A cookie stays what it is when exports change.
    pub fn list(
        &self,
        dir: FileId,
        cookie: u64,
    ) -> Option<impl Iterator<Item = (u64, &str, PseudoPlace)>> {
        let children = self.directory(dir)?.children.iter();
        let behind = children.filter(move |child| child.id > cookie && self.is_visible(child));
        Some(behind.map(|child| (child.id, &*child.name, self.place(child.what))))
    }

    /// The export that a path leads to or into, with the names that are left;
    /// `None` if the path ends before any.
    pub fn export_at<'a>(
        &self,
        path: &'a str,
    ) -> Option<(Granted<'_>, impl Iterator<Item = &'a str>)> {
        let all = self.all_granted();
        let mut with_rest =
            all.filter_map(|granted| Some((granted, rest_of(granted.export, path)?)));
        let (granted, rest) = with_rest.next()?;
        Some((granted, rest.split('/').filter(|name| !name.is_empty())))
    }
}

/// What a path has behind that of an export which it leads to or into.
fn rest_of<'a>(export: &Export, path: &'a str) -> Option<&'a str> {
    let own = export.path().trim_end_matches('/');
    let rest = path.strip_prefix(own)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// A change attribute that grows whenever exports change, also over restarts.
fn change_of(since: Time) -> u64 {
    let seconds = u64::try_from(since.seconds).unwrap_or(0);
    seconds.wrapping_mul(1_000_000_000) + u64::from(since.nanos)
}

/// What the pseudo file system answers, where moving about in it is not meant:
/// its directories have attributes, and nothing of them can be changed.
pub(crate) fn answer(view: &View, op: &FsOp<'_>) -> Result<Output, Error> {
    match *op {
        FsOp::Getattr { file } => view.attr(file).map(Output::Attr).ok_or(Error::Stale),
        FsOp::Statfs { .. } => Ok(Output::Statfs(Statfs {
            bytes: 0,
            bytes_free: 0,
            files: 0,
            files_free: 0,
            bytes_avail: 0,
            quota: QuotaRoom::default(),
        })),
        FsOp::Readlink { .. } => Err(Error::Inval),
        FsOp::Read { .. }
        | FsOp::Write { .. }
        | FsOp::Commit { .. }
        | FsOp::Seek { .. }
        | FsOp::ReadAhead { .. }
        | FsOp::Open { .. } => Err(Error::IsDir),
        FsOp::GetXattr { .. } | FsOp::ListXattrs { .. } => Err(Error::NotSupp),
        _ => Err(Error::RoFs),
    }
}

#[cfg(test)]
mod tests;
