//! `mem`: files in memory of the process. Their content ends with the process.
//!
//! Attributes and entries lie in a table of objects, each under a lock of its
//! own that is held for one step of one operation; content of any size in
//! frames ([`crate::frames`]), as that of RAM volumes: reads are sent from
//! frames that no operation writes meanwhile, large writes are received into
//! frames that no reader sees. With the object's lock around it every read and
//! write, of any size that an I/O may have, is one step to all others.
//!
//! An operation that needs several objects at once locks them in one order.
//! What would take long (giving back what a large file had, copies) is done in
//! steps, with turns of others in between.
//!
//! Nothing is more durable than it is, so every write is stable at once; the
//! verifier changes with the process, and the content goes with it.

mod addresses;
mod attributes;
mod content;
mod data;
mod directory;
mod names;
mod node;
mod quotas;
mod space;
mod steps;
mod table;

pub use node::{XATTR_BYTES_MAX, XATTRS_BYTES_MAX};
pub(crate) use steps::MemorySteps;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex};

use ::mem::Loan;
use faults::Fault;

use crate::frames::{FRAME_BYTES, Frames};
use reactor::{FileIo, Token};

use super::op::Move;
use super::quota::{Quota, QuotaRefused, Quotas};
use super::{
    Attr, Caller, Device, Error, FileId, FileSystem, FsOp, HandleKey, Info, ObjectKind, Output,
    Progress, Task, Time, Written,
};
use addresses::CHUNK_BYTES_MAX;
use content::{Chunk, FILE_BYTES_MAX, Store};
use directory::Directory;
use node::{Body, NODE_BYTES, Node};
use steps::Doomed;
use table::ObjectTable;

/// Names of a file at most.
const LINKS_MAX: u32 = 65_000;
/// Addresses for each byte of the size limit: enough for one frame in each of
/// the largest chunks.
const ADDRESSES_PER_BYTE: u64 = CHUNK_BYTES_MAX / FRAME_BYTES as u64;
/// Addresses within which that is done: their table takes memory only where it
/// is used, but addresses of its own.
const ADDRESSES_MIN: u64 = 1 << 36;
const ADDRESSES_MAX: u64 = 1 << 46;
/// The least size limit: room for a few frames.
const SIZE_BYTES_MIN: u64 = 1 << 20;

/// A file system in memory.
pub struct Memory {
    inner: Arc<MemoryInner>,
}

/// What tasks point to.
struct MemoryInner {
    info: Info,
    store: Arc<Store>,
    table: ObjectTable,
    root: FileId,
    hasher: RandomState,
    /// Held while a directory goes to another parent: no other does, so that
    /// none comes to lie in itself.
    topology: Mutex<()>,
}

/// An operation's output, and content that it has left over.
type OperationOutput = Result<(Output, Vec<Chunk>), Error>;

impl Memory {
    /// An empty one of `size_bytes` at most, for content and all that describes
    /// it. `instance` must be another one each time. Its root belongs to the
    /// superuser, and every user may make files in it (mode 1777).
    pub fn new(name: &str, size_bytes: u64, instance: u64, now: Time) -> io::Result<Memory> {
        if size_bytes < SIZE_BYTES_MIN {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let frames = frames_for(size_bytes)?;
        let store = Store::new(frames, size_bytes);
        let table = ObjectTable::new(size_bytes / NODE_BYTES);
        let mut attr = new_attributes(ObjectKind::Directory, now);
        (attr.mode, attr.links) = (0o1777, 2);
        let no_room = |error: Error| io::Error::other(error);
        store.space.take(NODE_BYTES).map_err(no_room)?;
        let directory = Directory::new(FileId(0));
        let charged = store.quotas.charged(0, 0, &None);
        store.quotas.force(&charged, 0, 1);
        let root = Node::new(attr, charged, Body::Directory(directory));
        let root = table.insert(root).map_err(no_room)?;
        let mut node = table.write(root).map_err(no_room)?;
        node.directory_mut().map_err(no_room)?.parent = root;
        drop(node);
        Ok(Memory {
            inner: Arc::new(MemoryInner {
                info: Info {
                    name: name.to_owned(),
                    kind: "mem",
                    instance,
                    handle_key: HandleKey::random()?,
                    verifier: instance,
                    file_bytes_max: FILE_BYTES_MAX,
                    links_max: LINKS_MAX,
                    clone_block_bytes: 1,
                    has_xattrs: true,
                    has_acls: true,
                    has_labels: true,
                    is_read_only: false,
                },
                store: Arc::new(store),
                table,
                root,
                hasher: RandomState::new(),
                topology: Mutex::new(()),
            }),
        })
    }
}

/// Frames with as many addresses as the system grants.
fn frames_for(size_bytes: u64) -> io::Result<Frames> {
    let wanted = size_bytes.saturating_mul(ADDRESSES_PER_BYTE);
    let wanted = wanted.clamp(ADDRESSES_MIN.max(4 * size_bytes), ADDRESSES_MAX);
    let mut addresses = wanted.next_multiple_of(CHUNK_BYTES_MAX);
    loop {
        match Frames::thin(addresses, size_bytes) {
            Err(_) if addresses / 4 > 4 * size_bytes && addresses / 4 > ADDRESSES_MIN => {
                addresses = (addresses / 4).next_multiple_of(CHUNK_BYTES_MAX);
            }
            made => return made,
        }
    }
}

/// Attributes of a new object that has no owner yet.
fn new_attributes(kind: ObjectKind, now: Time) -> Attr {
    Attr {
        file: FileId(0),
        kind,
        mode: 0,
        acl: None,
        label: None,
        links: 1,
        uid: 0,
        gid: 0,
        device: Device::default(),
        size: 0,
        used_bytes: 0,
        accessed: now,
        modified: now,
        changed: now,
        created: now,
        change: 1,
    }
}

impl Drop for MemoryInner {
    /// The frames go back as they came: all holes.
    fn drop(&mut self) {
        for mut node in self.table.drain() {
            drop(Doomed::new(&self.store, self.store.detach(&mut node)));
        }
    }
}

impl MemoryInner {
    fn hash(&self, name: &[u8]) -> u64 {
        self.hasher.hash_one(name)
    }

    /// An object has neither names nor opens any more: what is left of it.
    fn remove_object(&self, mut node: Box<Node>) -> Vec<Chunk> {
        let chunks = self.store.detach(&mut node);
        self.store.space.give(node.bytes());
        if !faults::is(Fault::KeepCharge) {
            self.store.quotas.give(&node.charged, node.charge(), 1);
        }
        chunks
    }

    /// Everything that is done in one step.
    #[inline]
    fn run(&self, caller: &Caller<'_>, op: FsOp<'_>) -> OperationOutput {
        self.store.quotas.at(caller.now);
        let output = match op {
            FsOp::Lookup { dir, name } => Output::File(self.lookup(caller, dir, name)?),
            FsOp::Parent { dir } => Output::File(self.parent(caller, dir)?),
            FsOp::Getattr { file } => Output::Attr(self.table.read(file)?.attr.clone()),
            FsOp::Setattr { file, set, guard } => return self.setattr(caller, file, &set, guard),
            FsOp::Create {
                dir,
                name,
                new,
                set,
            } => return self.create(caller, (dir, name), new, &set),
            FsOp::Link { file, dir, name } => Output::Change(self.link(caller, file, dir, name)?),
            FsOp::Remove { dir, name, what } => return self.remove(caller, dir, name, what),
            FsOp::Rename {
                from_dir,
                from,
                to_dir,
                to,
            } => return self.rename(caller, (from_dir, from), (to_dir, to)),
            FsOp::Readlink { file } => Output::Bytes(self.readlink(caller, file)?),
            FsOp::Readdir { .. } => Output::Listing(self.readdir(caller, op)?),
            FsOp::Read { file, offset, buf } => self.read(caller, file, offset, buf)?,
            FsOp::Write {
                file, offset, buf, ..
            } => Output::Written(self.write_from(caller, file, offset, buf)?),
            FsOp::Commit { file } => {
                self.table.read(file)?.check_write(caller, u64::MAX)?;
                Output::Done
            }
            FsOp::Seek { file, offset, what } => self.seek(caller, file, offset, what)?,
            FsOp::ReadAhead { file, .. } => {
                self.table.read(file)?.check_read(caller)?;
                Output::ReadAhead(false)
            }
            FsOp::GetXattr { file, name } => Output::Bytes(self.get_xattr(caller, file, name)?),
            FsOp::SetXattr {
                file,
                name,
                value,
                how,
            } => Output::Change(self.set_xattr(caller, file, (name, value), how)?),
            FsOp::ListXattrs {
                file,
                cookie,
                name_bytes_max,
            } => Output::Listing(self.list_xattrs(caller, file, cookie, name_bytes_max)?),
            FsOp::RemoveXattr { file, name } => {
                Output::Change(self.remove_xattr(caller, file, name)?)
            }
            FsOp::Statfs { file } => Output::Statfs(self.statfs(caller, file)?),
            FsOp::Open { file, read, write } => {
                self.open(caller, file, read, write)?;
                Output::Done
            }
            FsOp::Close { file } => return Ok((Output::Done, self.close(file)?)),
            FsOp::Allocate { .. }
            | FsOp::Deallocate { .. }
            | FsOp::Clone { .. }
            | FsOp::Copy { .. } => {
                unreachable!("ranges of any length are changed in steps")
            }
        };
        Ok((output, Vec::new()))
    }
}

/// Goes on as far as one turn goes.
fn go_on(mut steps: Box<MemorySteps>, files: &mut dyn FileIo, token: Token) -> Progress {
    match steps.step() {
        Some(result) => Progress::Done(result),
        None => {
            files.ticket(token).ring();
            Progress::Pending(Task::of_memory(steps))
        }
    }
}

impl Memory {
    fn steps(&self, caller: &Caller<'_>, op: &FsOp<'_>) -> Result<MemorySteps, Error> {
        let inner = &self.inner;
        match *op {
            FsOp::Allocate { file, offset, len } => {
                MemorySteps::fill(inner, caller, (file, offset, len))
            }
            FsOp::Deallocate { file, offset, len } => {
                MemorySteps::clear(inner, caller, (file, offset, len))
            }
            _ => match Move::of(op) {
                Some(what) => {
                    MemorySteps::copy(inner, caller, what, matches!(op, FsOp::Clone { .. }))
                }
                None => unreachable!("all others are done in one step"),
            },
        }
    }
}

impl FileSystem for Memory {
    fn info(&self) -> &Info {
        &self.inner.info
    }

    #[inline]
    fn root(&self) -> FileId {
        self.inner.root
    }

    fn start(
        &self,
        caller: &Caller<'_>,
        op: FsOp<'_>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        if let FsOp::Allocate { .. }
        | FsOp::Deallocate { .. }
        | FsOp::Clone { .. }
        | FsOp::Copy { .. } = op
        {
            return match self.steps(caller, &op) {
                Ok(steps) => go_on(Box::new(steps), files, token),
                Err(error) => Progress::Done(Err(error)),
            };
        }
        let (output, chunks) = match self.inner.run(caller, op) {
            Ok(done) => done,
            Err(error) => return Progress::Done(Err(error)),
        };
        if chunks.is_empty() {
            return Progress::Done(Ok(output));
        }
        let steps = MemorySteps::free(&self.inner, caller, chunks, output);
        go_on(Box::new(steps), files, token)
    }

    /// Its turn again.
    fn resume(
        &self,
        task: Task,
        _result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        go_on(task.into_memory(), files, token)
    }

    #[inline]
    fn lend(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        len: u32,
    ) -> Option<Result<(Loan, bool), Error>> {
        self.inner.lend(caller, file, offset, len)
    }

    #[inline]
    fn borrow(&self, offset: u64, len: u32) -> Option<Loan> {
        let within = offset % u64::from(FRAME_BYTES);
        self.inner.store.frames.borrow(within, len)
    }

    fn quotas(&self) -> Option<&Quotas> {
        Some(&self.inner.store.quotas)
    }

    fn set_quotas(&self, list: &[Quota], now: Time) -> Result<(), QuotaRefused> {
        self.inner.set_quotas(list, now)
    }

    fn commit(
        &self,
        caller: &Caller<'_>,
        loan: &mut Loan,
        file: FileId,
        offset: u64,
    ) -> Result<Written, Error> {
        self.inner.commit(caller, loan, file, offset)
    }

    #[inline]
    fn write_now(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        bytes: &[u8],
    ) -> Option<Result<Written, Error>> {
        Some(self.inner.write_now(caller, file, offset, bytes))
    }
}
