//! A call while it runs: what it has found out, what it asks file systems, what it waits
//! for, and its answer.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use engine::Demand;
use engine::held_back::OwnLimits;
use link::Link;
use machine::{Nanos, Tag};
use mem::Pool;
use nfs::attributes::AskedAttributes;
use nfs::compound::Compound;
use nfs::connection::{Connection, Credential, Mark, Reply};
use nfs::server::files::HolderView;
use nfs::server::{Client, Principal};
use reactor::{FileIo, Token};
use store::fs::{self, Asker, Caller, FileSystem, Output, Progress, Task, Time};
use store::meter::IoOp;
use wire::nfs4::{bitmap4, nfs_argop4, nfs_opnum4, nfsstat4, stateid4};
use wire::xdr::{Encode, List};

use crate::Nfsd;
use crate::client_refused::ClientRefused;
use crate::continuation::Continuation;
use crate::duplicate_request_cache::Once;
use crate::peer::{Peer, SessionUse};
use crate::pseudo::{self, Granted, PseudoPlace};
use crate::reason::Reason;

/// What a call finds around it while it runs.
pub struct Around<'a> {
    /// The server.
    pub nfsd: &'a Nfsd,
    /// What belongs to its connection.
    pub peer: &'a mut Peer,
    /// Its connection.
    pub link: &'a mut Link<Connection>,
    /// File work of its reactor.
    pub files: &'a mut dyn FileIo,
    /// Buffers of its reactor.
    pub pool: &'a Pool,
    /// How much may be read in a second, if that is limited.
    pub limits: Option<&'a OwnLimits>,
    /// Whether the client can be answered: on another connection it may have sent its call again.
    pub is_connected: bool,
    /// What completions for it are to carry, one at a time.
    pub token: Token,
    /// The monotonic clock.
    pub now: Nanos,
    /// The time of day.
    pub time: Time,
}

/// How far a call has come.
#[must_use]
pub enum Step {
    /// Its answer is in the machine: [`Link::flush`]. The execution may be used
    /// for another call.
    Sent,
    /// A completion with the token is to come: then [`Execution::resume`], even
    /// if its connection is gone.
    Pending(Arc<dyn FileSystem>, Task),
    /// Something is to be done that may block: then [`Execution::go_on`].
    Elsewhere(Elsewhere),
    /// There is no buffer: [`Execution::go_on`] when there may be one again.
    NoMemory,
    /// A limit holds this READ back: [`Execution::go_on`] when that lets it go.
    HeldBack(Demand),
    /// Its connection has used its share of the turn up ([`machine::work`]):
    /// [`Execution::go_on`] in the next one.
    Turn,
}

/// What a call waits for that is no file system's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// The records of [`nfs::server::Server::take_records`] are to be kept where a
    /// crash cannot reach them.
    Records,
    /// The groups of this user are to be looked up, which blocks:
    /// [`UserGroups::look_up`](crate::groups::UserGroups::look_up).
    Groups(u32),
    /// What the name service says of the client's address, likewise:
    /// [`Nfsd::look_up_names`].
    Names(IpAddr),
}

/// What an operation came to: an error is its result, without a body.
pub(crate) type OperationOutcome<'a> = Result<NextStep, nfsstat4>;

/// What happens next.
pub(crate) enum NextStep {
    /// The result was appended.
    Done,
    /// It goes on with [`RunningCall::answered`].
    Answered,
    /// It goes on when what [`RunningCall::wait`] names is there.
    Waits,
    /// The operation begins again when there is memory; nothing was appended.
    NoMemory,
    /// It begins again when a limit lets this READ go; nothing was appended.
    HeldBack(Demand),
    /// The operation begins again in the next turn; nothing was appended.
    Turn,
    /// There is no further operation, or all results are there.
    End,
}

/// A question to a file system.
pub(crate) struct Ask<'a> {
    pub(crate) op: fs::FsOp<'a>,
    /// See [`Caller::is_open`].
    pub(crate) is_open: bool,
    /// What becomes of the answer.
    pub(crate) then: Continuation,
}

/// How a question stands.
pub(crate) enum QuestionBegun {
    Done(Result<Output, fs::Error>),
    Pending(Arc<dyn FileSystem>, Task),
}

/// The current or the saved file handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Current {
    pub(crate) place: PseudoPlace,
    /// The state id that goes with it (RFC 8881, section 16.2.3.1.2).
    pub(crate) stateid: Option<stateid4>,
}

/// The slot of a session that a call is in.
pub(crate) struct InSlot {
    pub(crate) held: Rc<SessionUse>,
    pub(crate) slotid: u32,
    /// The results are to be kept.
    pub(crate) keeps: bool,
}

/// What a call did with data, when it has been answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallIo {
    /// Where it read or wrote, or what its last operation was about ([`Export::id`]); 0 where
    /// that is no export.
    pub export: u32,
    /// READ, WRITE and COMMIT are told apart from all else.
    pub op: IoOp,
    /// Bytes that it read or wrote.
    pub bytes: u64,
    /// An operation has failed.
    pub has_failed: bool,
}

/// What a call has found out so far.
pub(crate) struct Flow {
    pub(crate) tag: Tag,
    pub(crate) compound: Compound,
    /// On whose behalf it acts in the export that `identity_in` names, where
    /// that is not the caller.
    identity: Option<Credential>,
    identity_in: Option<u32>,
    /// The exports that it began with, and the file system of `identity_in`.
    generation: u64,
    pub(crate) instance: u64,
    pub(crate) current: Option<Current>,
    /// It is the file handle of a PUTFH of this call.
    pub(crate) is_put: bool,
    pub(crate) saved: Option<Current>,
    pub(crate) slot: Option<InSlot>,
    /// Of NFSv4.0: the client that an operation has named.
    pub(crate) client: Option<Arc<Client>>,
    /// Before the results of the COMPOUND, and of the operation under way.
    pub(crate) begin: Mark,
    pub(crate) mark: Mark,
    /// What names the data of the WRITE under way.
    pub(crate) payload: Option<Tag>,
    /// All results are there: those of the first time.
    pub(crate) is_replayed: bool,
    /// Of NFSv4.0: what a retransmission of it is known by.
    pub(crate) once: Once,
    /// What it does with data.
    pub(crate) io: CallIo,
    /// A limit has held its READ back, and does not any more.
    pub(crate) is_let_go: bool,
    /// It looks at files since then that other clients write by a delegation; what that client
    /// says of the file that the operation under way looks at, until it is told.
    pub(crate) looks_since: Option<Nanos>,
    pub(crate) view: Option<HolderView>,
}

/// What an execution goes on with.
#[derive(Default)]
pub(crate) enum Waits {
    #[default]
    Nothing,
    /// With the call, of which nothing is done yet: it has come then.
    First(Tag, Nanos),
    /// With this, when what it waits for is there.
    For(Continuation),
    /// With the operation under way, from its start.
    Again,
    /// With the next operation.
    Next,
}

/// A call while it runs.
pub(crate) struct RunningCall<'a> {
    pub(crate) waits: &'a mut Waits,
    /// How far the call has come, where it waits.
    pub(crate) step: Option<Step>,
    /// What a file system has answered at once, and how the call goes on with it.
    pub(crate) answered: Option<(Continuation, Result<Output, fs::Error>)>,
    pub(crate) nfsd: &'a Nfsd,
    pub(crate) peer: &'a mut Peer,
    pub(crate) link: &'a mut Link<Connection>,
    pub(crate) pool: &'a Pool,
    pub(crate) is_connected: bool,
    pub(crate) limits: Option<&'a OwnLimits>,
    pub(crate) files: &'a mut dyn FileIo,
    pub(crate) token: Token,
    pub(crate) now: Nanos,
    pub(crate) time: Time,
    pub(crate) args: &'a [u8],
    pub(crate) flow: &'a mut Flow,
}

impl<'a> RunningCall<'a> {
    /// The operation under way, once more.
    #[inline]
    pub(crate) fn op(&self) -> nfs_argop4<'a> {
        self.flow.compound.last_op(self.args)
    }

    /// The operation ends with this status and no body.
    #[cold]
    pub(crate) fn refuse(&mut self, status: nfsstat4) {
        let status = match status {
            // There is no such status any more (RFC 8881, section 15.1).
            nfsstat4::NFS4ERR_RESOURCE if self.minor() > 0 => nfsstat4::NFS4ERR_DELAY,
            status => status,
        };
        if self.reply().mark().position() > self.flow.mark.position() {
            // It had begun to succeed.
            let _ = self.replace_result(status);
            return;
        }
        let number = self.flow.compound.number();
        let reply = self.link.machine.reply(self.flow.tag);
        self.flow.compound.result(number, status, reply);
        without_body(number, reply);
    }

    /// A result was appended: is it within what was agreed?
    #[inline]
    pub(crate) fn check_result_size(&mut self) {
        let reply = self.link.machine.reply(self.flow.tag);
        let bytes = reply.record_bytes();
        if let Err(status) = self.flow.check_room(bytes, self.nfsd) {
            let _ = self.replace_result(status);
        }
    }

    /// Refuses an operation that changes something and whose result would not
    /// fit: before it does.
    ///
    /// # Errors
    /// As RFC 8881, section 2.10.6.4 says.
    #[inline]
    pub(crate) fn reserve(&mut self, result_bytes: u32) -> Result<(), nfsstat4> {
        let reply = self.link.machine.reply(self.flow.tag);
        let bytes = reply.record_bytes().saturating_add(result_bytes);
        self.flow.check_room(bytes, self.nfsd)
    }

    /// Bytes that the answer may still grow by.
    #[inline]
    pub(crate) fn room(&mut self) -> u32 {
        let max = self.flow.answer_bytes_max(self.nfsd);
        let reply = self.link.machine.reply(self.flow.tag);
        max.saturating_sub(reply.record_bytes())
    }

    /// The answer, to be appended to.
    #[inline]
    pub(crate) fn reply(&mut self) -> &mut Reply {
        self.link.machine.reply(self.flow.tag)
    }

    /// The operation succeeded: `body` appends what its result has beyond that.
    #[inline]
    pub(crate) fn ok(&mut self, body: impl FnOnce(&mut Vec<u8>)) -> OperationOutcome<'a> {
        self.answer(nfsstat4::NFS4_OK, body)
    }

    /// The operation ended with a status whose result has a body.
    #[inline]
    pub(crate) fn answer(
        &mut self,
        status: nfsstat4,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> OperationOutcome<'a> {
        let number = self.flow.compound.number();
        let reply = self.link.machine.reply(self.flow.tag);
        self.flow.compound.result(number, status, reply);
        body(reply.bytes());
        Ok(NextStep::Done)
    }

    /// The operation ends with this status instead of the result that was
    /// appended.
    #[cold]
    pub(crate) fn replace_result(&mut self, status: nfsstat4) -> OperationOutcome<'a> {
        let number = self.flow.compound.number();
        let reply = self.link.machine.reply(self.flow.tag);
        let (mark, compound) = (self.flow.mark, &mut self.flow.compound);
        compound.replace_result(mark, number, status, reply);
        without_body(number, reply);
        Ok(NextStep::Done)
    }

    /// Asks the file system of the current file handle, and goes on when it
    /// has answered.
    pub(crate) fn ask_file_system(&mut self, ask: Ask<'_>) -> OperationOutcome<'a> {
        let begun = self.begin(ask.op, ask.is_open);
        self.await_answer(begun, ask.then)
    }

    /// A file system was asked: with the answer, now or later.
    pub(crate) fn await_answer(
        &mut self,
        begun: QuestionBegun,
        then: Continuation,
    ) -> OperationOutcome<'a> {
        match begun {
            QuestionBegun::Done(result) => {
                self.answered = Some((then, result));
                Ok(NextStep::Answered)
            }
            QuestionBegun::Pending(fs, task) => self.wait(Step::Pending(fs, task), then),
        }
    }

    /// The operation goes on with `then` when what `step` waits for is there.
    pub(crate) fn wait(&mut self, step: Step, then: Continuation) -> OperationOutcome<'a> {
        *self.waits = Waits::For(then);
        self.step = Some(step);
        Ok(NextStep::Waits)
    }

    /// The call reads, writes or commits data of an export.
    #[inline]
    pub(crate) fn begin_io(&mut self, op: IoOp, export: u32) {
        let io = &mut self.flow.io;
        (io.op, io.export) = (op, export);
    }

    /// What a READ or WRITE of so many bytes of an export is to limits that hold it back now. It
    /// waits for them once.
    #[inline]
    pub(crate) fn held_back(&mut self, op: IoOp, export: u32, bytes: u32) -> Option<Demand> {
        let limits = self.limits.filter(|limits| limits.are_used())?;
        if std::mem::take(&mut self.flow.is_let_go) {
            return None;
        }
        let granted = self.peer.view.granted(export)?;
        let held_back = granted.held_back(limits, (op, bytes), self.now);
        self.flow.is_let_go = held_back.is_some();
        held_back
    }

    /// Asks the file system of the current file handle.
    #[inline]
    pub(crate) fn begin(&mut self, op: fs::FsOp<'_>, is_open: bool) -> QuestionBegun {
        let place = self.flow.current.map(|current| current.place);
        let export = match place {
            Some(PseudoPlace::File { export, .. }) => export,
            Some(PseudoPlace::Pseudo(_)) => {
                return QuestionBegun::Done(pseudo::answer(&self.peer.view, &op));
            }
            Some(PseudoPlace::Absent(_)) => return QuestionBegun::Done(Err(fs::Error::Stale)),
            None => unreachable!("the operation has checked the current file handle"),
        };
        let granted = self.peer.view.granted(export);
        let Some(granted) = granted.filter(|granted| self.is_same(granted)) else {
            // The export was removed while the call waited.
            return QuestionBegun::Done(Err(fs::Error::Stale));
        };
        let identity = identity(self.flow, self.link);
        let caller = caller(identity, self.time, is_open, self.peer.asker());
        let fs = granted.fs;
        match fs.start(&caller, op, self.files, self.token) {
            Progress::Done(result) => QuestionBegun::Done(result),
            Progress::Pending(task) => QuestionBegun::Pending(fs.clone(), task),
        }
    }

    /// Asks another file system.
    pub(crate) fn begin_at(&mut self, fs: &Arc<dyn FileSystem>, op: fs::FsOp<'_>) -> QuestionBegun {
        let identity = identity(self.flow, self.link);
        let caller = caller(identity, self.time, false, self.peer.asker());
        match fs.start(&caller, op, self.files, self.token) {
            Progress::Done(result) => QuestionBegun::Done(result),
            Progress::Pending(task) => QuestionBegun::Pending(fs.clone(), task),
        }
    }

    /// On whose behalf it acts at the current file handle.
    #[inline]
    pub(crate) fn caller(&self, is_open: bool) -> Caller<'_> {
        caller(self.identity(), self.time, is_open, self.peer.asker())
    }

    /// The same, as a credential.
    #[inline]
    pub(crate) fn identity(&self) -> &Credential {
        identity(self.flow, self.link)
    }

    /// The credential that the call carries.
    #[inline]
    pub(crate) fn credential(&self) -> &Credential {
        self.link.machine.call(self.flow.tag).credential
    }

    /// The principal that makes it.
    #[inline]
    pub(crate) fn principal(&self) -> Principal {
        Principal::new(self.credential(), self.peer.certificate_number())
    }

    /// What its client has proved to be: a name in its certificate, or its principal of Kerberos.
    pub(crate) fn proven_identity(&self) -> Option<&str> {
        let principal = || self.link.machine.principal(self.flow.tag);
        self.peer.certificate_name().or_else(principal)
    }

    /// Whether its principal may do the operation on a client, as far as that wants it enforced.
    ///
    /// # Errors
    /// NFS4ERR_WRONG_CRED, of which the operator is told.
    pub(crate) fn check_enforced(&self, client: &Arc<Client>) -> Result<(), nfsstat4> {
        let number = self.flow.compound.number();
        let checked = client.check_enforced(number, self.principal());
        checked.map_err(|status| self.client_refused(status, Some(client.clone())))
    }

    /// The operation ends with `status`: the operator is told where that is since the name of a
    /// client is another principal's. What `holder` finds is told of that client.
    #[cold]
    pub(crate) fn name_refused(
        &self,
        status: nfsstat4,
        owner: &[u8],
        holder: impl FnOnce() -> Option<Arc<Client>>,
    ) -> nfsstat4 {
        let of_principal = [nfsstat4::NFS4ERR_CLID_INUSE, nfsstat4::NFS4ERR_WRONG_CRED];
        if of_principal.contains(&status) {
            self.nfsd.events.client_refused(ClientRefused {
                peer: self.peer.address,
                identity: self.proven_identity().map(str::to_owned),
                owner: owner.into(),
                holder: holder(),
            });
        }
        status
    }

    /// The same where it is since a client, which is there, is another principal's.
    #[cold]
    pub(crate) fn client_refused(&self, status: nfsstat4, client: Option<Arc<Client>>) -> nfsstat4 {
        match client {
            Some(client) => self.name_refused(status, &client.owner, || Some(client.clone())),
            None => status,
        }
    }

    /// Its minor version.
    #[inline]
    pub(crate) fn minor(&self) -> u32 {
        self.flow.compound.minor()
    }

    /// The current file handle, if the caller may use what it leads to.
    ///
    /// # Errors
    /// NFS4ERR_NOFILEHANDLE, NFS4ERR_WRONGSEC, NFS4ERR_STALE, NFS4ERR_MOVED.
    #[inline]
    pub(crate) fn current(&self) -> Result<PseudoPlace, nfsstat4> {
        let current = self.flow.current.ok_or(nfsstat4::NFS4ERR_NOFILEHANDLE)?;
        self.check_security(current.place)?;
        check_present(current.place)?;
        Ok(current.place)
    }

    /// The same for an operation that asks for attributes: also in an absent file system, if the
    /// client wants to know where that is (RFC 8881, section 11.4.1).
    ///
    /// # Errors
    /// As [`RunningCall::current`].
    #[inline]
    pub(crate) fn current_or_absent(
        &self,
        asked: AskedAttributes,
    ) -> Result<PseudoPlace, nfsstat4> {
        match self.flow.current.map(|current| current.place) {
            Some(place @ PseudoPlace::Absent(_)) if asked.knows_of_absence() => {
                self.check_security(place)?;
                Ok(place)
            }
            _ => self.current(),
        }
    }

    /// Whether the export of a place takes the call's authentication flavor (RFC 8881,
    /// section 2.6.3) and the protection of its connection.
    #[inline]
    pub(crate) fn check_security(&self, place: PseudoPlace) -> Result<(), nfsstat4> {
        let view = &self.peer.view;
        let terms = match place {
            PseudoPlace::Pseudo(_) => return Ok(()),
            PseudoPlace::File { export, .. } => {
                let granted = view.granted(export);
                let granted = granted.filter(|granted| self.is_same(granted));
                granted.map(|granted| *granted)
            }
            PseudoPlace::Absent(export) => view.terms(export),
        };
        let terms = terms.ok_or(nfsstat4::NFS4ERR_STALE)?;
        let lacked = terms.lacks(self.credential().flavor, self.peer.xprtsec());
        let reason = match lacked {
            None => return Ok(()),
            Some(Reason::Flavor) if self.is_machine_allowed() => return Ok(()),
            Some(reason) => reason,
        };
        let path = terms.export.path();
        self.nfsd.events.refused(self.peer, path, reason);
        Err(match reason {
            // Another flavor would not help.
            Reason::Port => nfsstat4::NFS4ERR_ACCESS,
            _ => nfsstat4::NFS4ERR_WRONGSEC,
        })
    }

    /// Whether the machine's principal may do the operation for whatever user (RFC 8881,
    /// section 18.35.3).
    #[cold]
    fn is_machine_allowed(&self) -> bool {
        let number = self.flow.compound.number();
        let principal = self.principal();
        let client = self.client();
        client.is_some_and(|client| client.allows(number, principal))
    }

    /// Whether an export is that of the file system that the call has come to
    /// it for: exports may change while it waits.
    #[inline]
    fn is_same(&self, granted: &Granted<'_>) -> bool {
        self.flow.generation == self.peer.view.generation()
            || self.flow.identity_in != Some(granted.export.id())
            || self.flow.instance == granted.fs.info().instance
    }

    /// The file system of the current file handle.
    ///
    /// # Errors
    /// As [`RunningCall::current`]; NFS4ERR_STALE in the pseudo file system too.
    #[inline]
    pub(crate) fn file_system(&self) -> Result<&Arc<dyn FileSystem>, nfsstat4> {
        let granted = match self.current()? {
            PseudoPlace::File { export, .. } => self.peer.view.granted(export),
            PseudoPlace::Pseudo(_) | PseudoPlace::Absent(_) => None,
        };
        Ok(granted.ok_or(nfsstat4::NFS4ERR_STALE)?.fs)
    }

    /// This becomes the current file handle; it has no state id.
    #[inline]
    pub(crate) fn set_current(&mut self, place: PseudoPlace) {
        let stateid = None;
        self.put_current(Current { place, stateid });
    }

    #[inline]
    pub(crate) fn put_current(&mut self, current: Current) {
        self.flow.current = Some(current);
        self.flow.is_put = false;
        if let PseudoPlace::File { export, .. } = current.place
            && self.flow.identity_in != Some(export)
            && let Some(granted) = self.peer.view.granted(export)
        {
            self.flow.identity = granted.rule.acting_credential(self.credential());
            self.flow.identity_in = Some(export);
            self.flow.instance = granted.fs.info().instance;
        }
    }

    /// The state id that an operation names: the current one, if it says so.
    ///
    /// # Errors
    /// NFS4ERR_BAD_STATEID where there is no current one.
    #[inline]
    pub(crate) fn stateid(&self, named: &stateid4) -> Result<stateid4, nfsstat4> {
        self.stateid_of(named, self.flow.current)
    }

    #[inline]
    fn stateid_of(&self, named: &stateid4, of: Option<Current>) -> Result<stateid4, nfsstat4> {
        let is_current = named.seqid == 1 && named.other == [0; 12] && self.minor() > 0;
        match (is_current, of) {
            (false, _) => Ok(*named),
            (true, Some(current)) => current.stateid.ok_or(nfsstat4::NFS4ERR_BAD_STATEID),
            (true, None) => Err(nfsstat4::NFS4ERR_NOFILEHANDLE),
        }
    }

    /// Calls `with` as if the saved file handle were the current one: for state
    /// ids of the source of a copy.
    pub(crate) fn at_saved<T>(&mut self, with: impl FnOnce(&mut RunningCall<'a>) -> T) -> T {
        std::mem::swap(&mut self.flow.current, &mut self.flow.saved);
        let value = with(self);
        std::mem::swap(&mut self.flow.current, &mut self.flow.saved);
        value
    }

    /// The state id that an operation names for the saved file handle: the one
    /// that was saved with it, if it says so.
    ///
    /// # Errors
    /// NFS4ERR_BAD_STATEID where there is none.
    pub(crate) fn saved_stateid(&self, named: &stateid4) -> Result<stateid4, nfsstat4> {
        self.stateid_of(named, self.flow.saved)
    }

    /// The current file handle has this state id now.
    pub(crate) fn set_stateid(&mut self, stateid: stateid4) {
        if let Some(current) = &mut self.flow.current {
            current.stateid = Some(stateid);
        }
    }

    /// The session of the call, and its client.
    #[inline]
    pub(crate) fn session(&self) -> Option<&Arc<nfs::server::Session>> {
        self.flow.slot.as_ref().map(|slot| &slot.held.session)
    }

    /// The calling client: that of its session, or with NFSv4.0 the one that an
    /// operation has named.
    #[inline]
    pub(crate) fn client(&self) -> Option<&Arc<Client>> {
        match &self.flow.slot {
            Some(slot) => Some(&slot.held.session.client),
            None => self.flow.client.as_ref(),
        }
    }
}

/// Whether operations may act at a place: there is nothing in an absent file system, whatever they
/// ask (RFC 8881, section 11.3).
///
/// # Errors
/// NFS4ERR_MOVED.
#[inline]
pub(crate) fn check_present(place: PseudoPlace) -> Result<(), nfsstat4> {
    match place {
        PseudoPlace::Absent(_) => Err(nfsstat4::NFS4ERR_MOVED),
        PseudoPlace::Pseudo(_) | PseudoPlace::File { .. } => Ok(()),
    }
}

/// On whose behalf a call acts at its current file handle.
#[inline]
pub(crate) fn identity<'a>(flow: &'a Flow, link: &'a Link<Connection>) -> &'a Credential {
    let said = || link.machine.call(flow.tag).credential;
    flow.identity.as_ref().unwrap_or_else(said)
}

#[inline]
pub(crate) fn caller(identity: &Credential, now: Time, is_open: bool, from: Asker) -> Caller<'_> {
    Caller {
        uid: identity.uid,
        gid: identity.gid,
        gids: identity.gids(),
        now,
        is_open,
        from,
    }
}

/// What the result of an operation has even where it failed: SETATTR's
/// attributes that were set.
#[inline]
pub(crate) fn without_body(number: nfs_opnum4, reply: &mut Reply) {
    if number == nfs_opnum4::OP_SETATTR {
        let none: bitmap4<'_> = List::Of(&[]);
        none.encode(reply.bytes());
    }
}

impl Flow {
    /// Of a call that has found out nothing yet, with the exports of `generation`.
    pub(crate) fn begin(tag: Tag, compound: Compound, generation: u64, begin: Mark) -> Flow {
        Flow {
            tag,
            compound,
            identity: None,
            identity_in: None,
            generation,
            instance: 0,
            current: None,
            is_put: false,
            saved: None,
            slot: None,
            client: None,
            begin,
            mark: begin,
            payload: None,
            is_replayed: false,
            once: Once::default(),
            io: CallIo::default(),
            is_let_go: false,
            looks_since: None,
            view: None,
        }
    }

    /// What the call did, all of whose results are there.
    #[inline]
    pub(crate) fn io(&self) -> CallIo {
        let place = self.current.map(|current| current.place);
        match (self.io.export, place) {
            (0, Some(PseudoPlace::File { export, .. })) => CallIo { export, ..self.io },
            _ => self.io,
        }
    }

    /// Where the body of the result under way begins in the answer.
    pub(crate) fn body_at(&self) -> usize {
        self.mark.position() + 8
    }

    #[inline]
    fn answer_bytes_max(&self, nfsd: &Nfsd) -> u32 {
        match &self.slot {
            Some(slot) => {
                let fore = &slot.held.session.fore;
                match slot.keeps {
                    true => fore.response_bytes_max.min(fore.cached_bytes_max),
                    false => fore.response_bytes_max,
                }
            }
            None => nfsd.settings.server.fore.response_bytes_max,
        }
    }

    #[inline]
    fn check_room(&self, bytes: u32, nfsd: &Nfsd) -> Result<(), nfsstat4> {
        match bytes <= self.answer_bytes_max(nfsd) {
            true => Ok(()),
            false => Err(self.too_big(bytes)),
        }
    }

    #[cold]
    fn too_big(&self, bytes: u32) -> nfsstat4 {
        match &self.slot {
            None => nfsstat4::NFS4ERR_RESOURCE,
            Some(slot) if bytes > slot.held.session.fore.response_bytes_max => {
                nfsstat4::NFS4ERR_REP_TOO_BIG
            }
            Some(_) => nfsstat4::NFS4ERR_REP_TOO_BIG_TO_CACHE,
        }
    }
}
