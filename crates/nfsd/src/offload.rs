//! Copies on the server (RFC 7862, sections 4 and 15.2 to 15.9), and what else
//! goes on without a call: what clients had that are gone.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use machine::{Nanos, locked};
use nfs::connection::Credential;
use nfs::server::files::{READ, Removal, State, StateKind, WRITE};
use reactor::{FileIo, Token};
use store::fs::{self, Asker, Caller, FileId, FileSystem, FsOp, Output, Progress, Task, Time};
use wire::nfs4::{
    COPY4args, COPY4resok, OFFLOAD_STATUS4resok, OFFLOAD4args, clientid4, copy_requirements4,
    nfs_argop4, nfsstat4, stable_how4, stateid4, write_response4,
};
use wire::xdr::{Encode, List};

use crate::call::{Ask, OperationOutcome, RunningCall};
use crate::callback::{Ended, Errand};
use crate::continuation::{Continuation, ThenCopy};
use crate::datagram::DatagramMount;
use crate::pseudo::PseudoPlace;
use crate::{Exports, Nfsd, state, status::status};

/// A copy of more than this goes on after its COPY was answered, where the
/// client would have it so.
const SYNCHRONOUS_BYTES_MAX: u64 = 16 << 20;
/// Copies of all clients together that go on so at most.
const COPIES_MAX: usize = 1024;
/// Bytes of the result of COPY.
const RESULT_BYTES: u32 = 64;

pub(crate) fn resume<'a>(
    run: &mut RunningCall<'a>,
    then: ThenCopy,
    result: Result<Output, fs::Error>,
) -> OperationOutcome<'a> {
    let output = run.done(result)?;
    match (then, output) {
        (ThenCopy::Size, Output::Attr(attr)) => copy_of(run, attr.size),
        (ThenCopy::Copied(verifier), Output::Copied(bytes)) => {
            let copied = response(verifier, bytes, List::Of(&[]));
            copy_answer(run, copied, true)
        }
        _ => unreachable!("each question has its answer"),
    }
}

/// What was copied.
fn response(verifier: u64, bytes: u64, callback: List<'_, stateid4, 1>) -> write_response4<'_> {
    write_response4 {
        wr_callback_id: callback,
        wr_count: bytes,
        wr_committed: stable_how4::UNSTABLE4,
        wr_writeverf: verifier.to_be_bytes(),
    }
}

fn copy_answer<'a>(
    run: &mut RunningCall<'a>,
    response: write_response4<'_>,
    is_synchronous: bool,
) -> OperationOutcome<'a> {
    let resok = COPY4resok {
        cr_response: response,
        cr_requirements: copy_requirements4 {
            cr_consecutive: true,
            cr_synchronous: is_synchronous,
        },
    };
    run.ok(|to| resok.encode(to))
}

fn copy_args<'a>(run: &RunningCall<'a>) -> COPY4args<'a> {
    match run.op() {
        nfs_argop4::OP_COPY(args) => args,
        _ => unreachable!("COPY asked"),
    }
}

/// Source and destination, which lie in one file system.
fn copy_places(run: &RunningCall<'_>) -> Result<(FileId, FileId), nfsstat4> {
    let to = run.current()?;
    match (run.saved_beside(to)?, to) {
        (PseudoPlace::File { file: from, .. }, PseudoPlace::File { file: to, .. }) => {
            Ok((from, to))
        }
        _ => Err(nfsstat4::NFS4ERR_ISDIR),
    }
}

pub(crate) fn copy<'a>(run: &mut RunningCall<'a>, args: &COPY4args<'a>) -> OperationOutcome<'a> {
    // From another server: there is no such thing here.
    if args.ca_source_server.iter().next().is_some() {
        return Err(nfsstat4::NFS4ERR_NOTSUPP);
    }
    let place = run.current()?;
    run.check_writable(place)?;
    run.reserve(RESULT_BYTES)?;
    let is_open = check_copy(run, args)?;
    let (file, _) = copy_places(run)?;
    let is_async = !args.ca_synchronous
        && (run.session()).is_some_and(|session| run.nfsd.can_call(session, run.now));
    match is_async {
        true => run.ask_file_system(Ask {
            op: FsOp::Getattr { file },
            is_open: true,
            then: Continuation::Offload(ThenCopy::Size),
        }),
        false => copy_now(run, args, is_open),
    }
}

/// Whether the state ids let the source be read and the destination be written;
/// then whether both are open to the caller.
fn check_copy(run: &mut RunningCall<'_>, args: &COPY4args<'_>) -> Result<bool, nfsstat4> {
    let place = run.current()?;
    let saved = run.saved_beside(place)?;
    let source = run.saved_stateid(&args.ca_src_stateid)?;
    let destination = run.stateid(&args.ca_dst_stateid)?;
    let may_read = state::check_io_at(run, saved, &source, READ)?;
    let may_write = state::check_io_at(run, place, &destination, WRITE)?;
    Ok(may_read && may_write)
}

fn copy_now<'a>(
    run: &mut RunningCall<'a>,
    args: &COPY4args<'a>,
    is_open: bool,
) -> OperationOutcome<'a> {
    let (from, to) = copy_places(run)?;
    let verifier = run.file_system()?.verifier();
    let op = FsOp::Copy {
        from,
        from_offset: args.ca_src_offset,
        to,
        to_offset: args.ca_dst_offset,
        len: args.ca_count,
    };
    run.ask_file_system(Ask {
        op,
        is_open,
        then: Continuation::Offload(ThenCopy::Copied(verifier)),
    })
}

/// The source has `size` bytes: a large copy goes on by itself.
fn copy_of<'a>(run: &mut RunningCall<'a>, size: u64) -> OperationOutcome<'a> {
    let args = copy_args(run);
    let is_open = check_copy(run, &args)?;
    let left = size.saturating_sub(args.ca_src_offset);
    let bytes = match args.ca_count {
        0 => left,
        count => count.min(left),
    };
    if bytes <= SYNCHRONOUS_BYTES_MAX {
        return copy_now(run, &args, is_open);
    }
    let (from, to) = copy_places(run)?;
    let place = run.current()?;
    let key = run.key(place)?;
    let handle = run.peer.view.handle(place);
    let handle = handle.ok_or(nfsstat4::NFS4ERR_STALE)?.encode();
    let client = run.client().ok_or(nfsstat4::NFS4ERR_SERVERFAULT)?.id;
    let fs = run.file_system()?.clone();
    let nfsd = run.nfsd;
    if !nfsd.copies.has_room() {
        return copy_now(run, &args, is_open);
    }
    let Some((state, stateid)) = nfsd.files.begin_copy((client, run.identity().uid), key) else {
        return copy_now(run, &args, is_open);
    };
    let copy = Arc::new(Copy {
        op: CopyOp {
            from,
            from_offset: args.ca_src_offset,
            to,
            to_offset: args.ca_dst_offset,
            len: args.ca_count,
        },
        credential: run.identity().clone(),
        is_open,
        from: run.peer.asker(),
        verifier: fs.verifier(),
        handle: handle[..].into(),
        client,
        state,
        stateid,
        is_cancelled: AtomicBool::new(false),
        copied: AtomicU64::new(0),
        ended: Mutex::new(None),
    });
    nfsd.copies.add(copy.clone());
    let stateids = [stateid];
    let response = response(fs.verifier(), 0, List::Of(&stateids));
    let answer = copy_answer(run, response, false);
    nfsd.work.add(CopyWork::Copy(fs, copy));
    answer
}

/// The copy that a state id names.
fn find(run: &RunningCall<'_>, stateid: &stateid4) -> Result<Arc<Copy>, nfsstat4> {
    run.current()?;
    let client = run.client().ok_or(nfsstat4::NFS4ERR_BAD_STATEID)?.id;
    let state = run.nfsd.files.find(client, stateid);
    let state = state.map_err(|_| nfsstat4::NFS4ERR_BAD_STATEID)?;
    if state.kind != StateKind::Copy {
        return Err(nfsstat4::NFS4ERR_BAD_STATEID);
    }
    state.check(stateid.seqid, true)?;
    let copy = run.nfsd.copies.find(&state);
    copy.ok_or(nfsstat4::NFS4ERR_BAD_STATEID)
}

pub(crate) fn offload_cancel<'a>(
    run: &mut RunningCall<'a>,
    args: &OFFLOAD4args,
) -> OperationOutcome<'a> {
    let copy = find(run, &args.oa_stateid)?;
    copy.is_cancelled.store(true, Ordering::Release);
    run.nfsd.files.end_copy(&copy.state);
    run.nfsd.copies.remove(&copy);
    run.ok(|_| {})
}

pub(crate) fn offload_status<'a>(
    run: &mut RunningCall<'a>,
    args: &OFFLOAD4args,
) -> OperationOutcome<'a> {
    let copy = find(run, &args.oa_stateid)?;
    let ended = *copy.ended();
    let complete = ended.as_slice();
    let resok = OFFLOAD_STATUS4resok {
        osr_count: copy.copied.load(Ordering::Acquire),
        osr_complete: List::Of(complete),
    };
    run.ok(|to| resok.encode(to))
}

#[derive(Clone, Copy, Debug)]
struct CopyOp {
    from: FileId,
    from_offset: u64,
    to: FileId,
    to_offset: u64,
    len: u64,
}

impl CopyOp {
    fn op(self) -> FsOp<'static> {
        FsOp::Copy {
            from: self.from,
            from_offset: self.from_offset,
            to: self.to,
            to_offset: self.to_offset,
            len: self.len,
        }
    }
}

/// A copy that goes on after its COPY was answered.
#[derive(Debug)]
pub struct Copy {
    op: CopyOp,
    credential: Credential,
    is_open: bool,
    from: Asker,
    /// Of before.
    verifier: u64,
    handle: Box<[u8]>,
    client: clientid4,
    state: Arc<State>,
    stateid: stateid4,
    is_cancelled: AtomicBool,
    copied: AtomicU64,
    ended: Mutex<Option<nfsstat4>>,
}

impl Copy {
    fn ended(&self) -> MutexGuard<'_, Option<nfsstat4>> {
        locked(&self.ended)
    }

    /// It is over: CB_OFFLOAD says so to the client, unless the client has cancelled it.
    fn end(&self, nfsd: &Nfsd, result: Result<Output, fs::Error>, now: Nanos) {
        let outcome = match result {
            Ok(Output::Copied(bytes)) => {
                self.copied.store(bytes, Ordering::Release);
                *self.ended() = Some(nfsstat4::NFS4_OK);
                Ok(response(self.verifier, bytes, List::Of(&[])))
            }
            Ok(_) => unreachable!("each question has its answer"),
            Err(error) => {
                let status = status(error, 2);
                *self.ended() = Some(status);
                Err((status, self.copied.load(Ordering::Acquire)))
            }
        };
        let ended = Ended {
            client: self.client,
            handle: self.handle.clone(),
            stateid: self.stateid,
            state: self.state.clone(),
            outcome,
        };
        nfsd.post(Errand::Offload(Arc::new(ended)), now);
    }
}

/// Copies under way, and those that ended without an answer to CB_OFFLOAD so far.
#[derive(Debug, Default)]
pub struct OffloadedCopies {
    all: Mutex<Vec<Arc<Copy>>>,
}

impl OffloadedCopies {
    fn all(&self) -> MutexGuard<'_, Vec<Arc<Copy>>> {
        locked(&self.all)
    }

    fn has_room(&self) -> bool {
        let mut all = self.all();
        all.retain(|copy| !copy.state.is_over());
        all.len() < COPIES_MAX
    }

    fn add(&self, copy: Arc<Copy>) {
        self.all().push(copy);
    }

    fn find(&self, state: &Arc<State>) -> Option<Arc<Copy>> {
        let all = self.all();
        all.iter().find(|c| Arc::ptr_eq(&c.state, state)).cloned()
    }

    fn remove(&self, copy: &Arc<Copy>) {
        self.all().retain(|other| !Arc::ptr_eq(other, copy));
    }

    /// A client is gone.
    pub(crate) fn cancel_all(&self, client: clientid4) {
        self.all().retain(|copy| {
            let is_its = copy.client == client;
            if is_its {
                copy.is_cancelled.store(true, Ordering::Release);
            }
            !is_its
        });
    }
}

/// What goes on without a call, for a driver to keep until it is over.
pub enum CopyWork {
    /// A file is closed that its client had open.
    Close(Arc<dyn FileSystem>, FileId),
    /// A copy.
    Copy(Arc<dyn FileSystem>, Arc<Copy>),
    /// States are taken away, in so many turns as it takes; of files in file systems that
    /// these have.
    Remove(Box<Removal>, Vec<Arc<Exports>>),
    /// A call of MOUNT that came in a datagram.
    Mount(Box<DatagramMount>),
}

/// What work finds around it while it runs.
pub struct WorkAround<'a> {
    /// The server.
    pub nfsd: &'a Nfsd,
    /// File work of its reactor.
    pub files: &'a mut dyn FileIo,
    /// What completions for it are to carry, one at a time.
    pub token: Token,
    /// The monotonic clock.
    pub now: Nanos,
    /// The time of day.
    pub time: Time,
}

impl CopyWork {
    /// Begins. `None` if it is over; else a completion with the token is to
    /// come: then [`CopyWork::resume`].
    pub fn begin(&mut self, around: &mut WorkAround<'_>) -> Option<Task> {
        let root = Credential::default();
        let (fs, credential, is_open, from, op) = match self {
            CopyWork::Close(fs, file) => {
                let op = FsOp::Close { file: *file };
                (fs, &root, true, Asker::default(), op)
            }
            CopyWork::Copy(fs, copy) => {
                let credential = &copy.credential;
                (fs, credential, copy.is_open, copy.from, copy.op.op())
            }
            CopyWork::Remove(..) => return Some(next_turn(around)),
            CopyWork::Mount(mount) => return mount.advance(around),
        };
        let caller = Caller {
            uid: credential.uid,
            gid: credential.gid,
            gids: credential.gids(),
            now: around.time,
            is_open,
            from,
        };
        let progress = fs.start(&caller, op, around.files, around.token);
        self.settle(progress, around)
    }

    /// Goes on when its completion has come with `result`; as
    /// [`CopyWork::begin`].
    pub fn resume(
        &mut self,
        mut task: Task,
        result: io::Result<u32>,
        around: &mut WorkAround<'_>,
    ) -> Option<Task> {
        let fs = match self {
            CopyWork::Remove(removal, exports) => {
                let is_done = around.nfsd.remove_some(removal, exports);
                return (!is_done).then(|| next_turn(around));
            }
            CopyWork::Copy(fs, copy) => {
                if copy.is_cancelled.load(Ordering::Acquire) {
                    task.cancel();
                }
                fs
            }
            CopyWork::Close(fs, _) => fs,
            CopyWork::Mount(mount) => return mount.resume(task, result, around),
        };
        let progress = fs.resume(task, result, around.files, around.token);
        self.settle(progress, around)
    }

    fn settle(&mut self, progress: Progress, around: &WorkAround<'_>) -> Option<Task> {
        match (progress, self) {
            (Progress::Pending(task), CopyWork::Copy(_, copy)) => {
                copy.copied.store(task.copied_bytes(), Ordering::Release);
                Some(task)
            }
            (Progress::Pending(task), _) => Some(task),
            (Progress::Done(result), CopyWork::Copy(_, copy)) => {
                copy.end(around.nfsd, result, around.now);
                None
            }
            (Progress::Done(_), _) => None,
        }
    }
}

/// Work goes on when others have had their turn.
fn next_turn(around: &mut WorkAround<'_>) -> Task {
    around.files.ticket(around.token).ring();
    Task::of_other(())
}

/// Work that was not taken yet.
#[derive(Default)]
pub struct CopyQueue {
    all: Mutex<VecDeque<CopyWork>>,
    has_some: AtomicBool,
}

impl CopyQueue {
    pub(crate) fn add(&self, work: CopyWork) {
        let mut all = locked(&self.all);
        all.push_back(work);
        self.has_some.store(true, Ordering::Release);
    }
}

impl Nfsd {
    /// Work for the caller to begin: [`CopyWork::begin`].
    #[inline]
    pub fn take_work(&self) -> Option<CopyWork> {
        if !self.work.has_some.load(Ordering::Acquire) {
            return None;
        }
        let mut all = locked(&self.work.all);
        let work = all.pop_front();
        self.work.has_some.store(!all.is_empty(), Ordering::Release);
        work
    }
}
