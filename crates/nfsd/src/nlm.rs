//! The Network Lock Manager, version 4 (RFC 1813, appendix II): locks and share reservations of
//! NFSv3, in one table with those of NFSv4.

mod hosts;
mod locking;

use std::sync::Arc;

use machine::Tag;
use nfs::connection::Credential;
use nfs::server::files::FileKey;
use store::fs::access::rights;
use store::fs::{
    self, Attr, Caller, FileId, FileSystem, FsOp, ObjectKind, Output, Progress, Rights, Time,
};
use wire::nlm4::{
    nlm4_cancargs, nlm4_lockargs, nlm4_notify, nlm4_proc, nlm4_res, nlm4_shareargs, nlm4_shareres,
    nlm4_stats, nlm4_testargs, nlm4_testres, nlm4_testrply, nlm4_unlockargs,
};
use wire::xdr::{Decode, Encode, Opaque, Reader, XdrError};

pub(crate) use self::hosts::NlmHosts;
pub use self::hosts::{HostCall, HostNotice, NlmGrant, NlmHostInfo};
use self::locking::{HeldLock, Locking};
use crate::Nfsd;
use crate::call::{Around, Elsewhere, Step};
use crate::peer::Peer;
use crate::pseudo::PseudoPlace;

/// A call under way.
pub(crate) struct NlmCall {
    procedure: nlm4_proc,
    /// On whose behalf it acts.
    identity: Credential,
    /// Whether its file was looked at, and what was found.
    attr: Option<Result<Attr, fs::Error>>,
    outcome: Option<LockOutcome>,
}

/// What a call came to.
enum LockOutcome {
    Stat(nlm4_stats),
    /// This is in the way.
    Held(HeldLock),
}

/// A call by what it asks for.
#[derive(Clone, Copy)]
enum NlmAsked<'a> {
    Test(nlm4_testargs<'a>),
    Lock(nlm4_lockargs<'a>),
    Cancel(nlm4_cancargs<'a>),
    Unlock(nlm4_unlockargs<'a>),
    /// It is for clients to be told this; none of ours waits.
    Granted(nlm4_testargs<'a>),
    Share(nlm4_shareargs<'a>),
    Unshare(nlm4_shareargs<'a>),
    FreeAll(nlm4_notify<'a>),
}

/// Where a call's file lies.
struct NlmPlace<'a> {
    fs: &'a Arc<dyn FileSystem>,
    is_read_only: bool,
    file: FileId,
    identity: Credential,
}

impl NlmPlace<'_> {
    fn key(&self) -> FileKey {
        (self.fs.info().instance, self.file.0)
    }
}

impl<'a> NlmAsked<'a> {
    fn read(procedure: nlm4_proc, args: &'a [u8]) -> Result<NlmAsked<'a>, XdrError> {
        let from = &mut Reader::new(args);
        Ok(match procedure {
            nlm4_proc::NLMPROC4_TEST => NlmAsked::Test(nlm4_testargs::decode(from)?),
            nlm4_proc::NLMPROC4_LOCK | nlm4_proc::NLMPROC4_NM_LOCK => {
                NlmAsked::Lock(nlm4_lockargs::decode(from)?)
            }
            nlm4_proc::NLMPROC4_CANCEL => NlmAsked::Cancel(nlm4_cancargs::decode(from)?),
            nlm4_proc::NLMPROC4_UNLOCK => NlmAsked::Unlock(nlm4_unlockargs::decode(from)?),
            nlm4_proc::NLMPROC4_SHARE => NlmAsked::Share(nlm4_shareargs::decode(from)?),
            nlm4_proc::NLMPROC4_UNSHARE => NlmAsked::Unshare(nlm4_shareargs::decode(from)?),
            nlm4_proc::NLMPROC4_FREE_ALL => NlmAsked::FreeAll(nlm4_notify::decode(from)?),
            nlm4_proc::NLMPROC4_GRANTED | nlm4_proc::NLMPROC4_NULL => {
                NlmAsked::Granted(nlm4_testargs::decode(from)?)
            }
        })
    }

    fn handle(&self) -> Option<&'a [u8]> {
        match self {
            NlmAsked::Test(args) => Some(args.alock.fh.0),
            NlmAsked::Lock(args) => Some(args.alock.fh.0),
            NlmAsked::Cancel(args) => Some(args.alock.fh.0),
            NlmAsked::Unlock(args) => Some(args.alock.fh.0),
            NlmAsked::Share(args) | NlmAsked::Unshare(args) => Some(args.share.fh.0),
            NlmAsked::Granted(_) | NlmAsked::FreeAll(_) => None,
        }
    }

    fn cookie(&self) -> &'a [u8] {
        match self {
            NlmAsked::Test(args) | NlmAsked::Granted(args) => args.cookie.0,
            NlmAsked::Lock(args) => args.cookie.0,
            NlmAsked::Cancel(args) => args.cookie.0,
            NlmAsked::Unlock(args) => args.cookie.0,
            NlmAsked::Share(args) | NlmAsked::Unshare(args) => args.cookie.0,
            NlmAsked::FreeAll(_) => &[],
        }
    }

    /// Whether its file must be there, and its user be allowed to read or write it.
    fn looks(&self) -> bool {
        matches!(
            self,
            NlmAsked::Test(_) | NlmAsked::Lock(_) | NlmAsked::Share(_)
        )
    }
}

/// Whether a user may lock a file: one that may read it, or write it, or owns it.
fn check_file(attr: &Result<Attr, fs::Error>, by: &Credential) -> Result<(), nlm4_stats> {
    let attr = attr.as_ref().map_err(|error| match error {
        fs::Error::Stale | fs::Error::NoEnt => nlm4_stats::NLM4_STALE_FH,
        fs::Error::Delay => nlm4_stats::NLM4_DENIED_GRACE_PERIOD,
        _ => nlm4_stats::NLM4_FAILED,
    })?;
    let may = rights(attr, &caller(by, Time::default())).has_any(Rights::READ | Rights::WRITE);
    match attr.kind {
        ObjectKind::Regular if may || by.uid == attr.uid => Ok(()),
        ObjectKind::Regular => Err(nlm4_stats::NLM4_DENIED_NOLOCKS),
        _ => Err(nlm4_stats::NLM4_FAILED),
    }
}

fn caller(by: &Credential, now: Time) -> Caller<'_> {
    Caller {
        uid: by.uid,
        gid: by.gid,
        gids: by.gids(),
        now,
        is_open: false,
        from: fs::Asker::default(),
    }
}

impl NlmCall {
    /// A call with arguments that can be read.
    pub(crate) fn new(
        procedure: nlm4_proc,
        identity: Credential,
        args: &[u8],
    ) -> Result<NlmCall, XdrError> {
        NlmAsked::read(procedure, args)?;
        Ok(NlmCall {
            procedure,
            identity,
            attr: None,
            outcome: None,
        })
    }

    /// Goes on as far as it can.
    pub(crate) fn advance(&mut self, tag: Tag, args: &[u8], around: &mut Around<'_>) -> Step {
        let asked = NlmAsked::read(self.procedure, args).expect("it was read when it came");
        if self.outcome.is_none() {
            let place = self.place(&asked, around.peer, around.nfsd);
            if let (Ok(Some(place)), true, None) = (&place, asked.looks(), &self.attr) {
                let caller = Caller {
                    from: around.peer.asker(),
                    ..caller(&place.identity, around.time)
                };
                let op = FsOp::Getattr { file: place.file };
                let fs = place.fs;
                match fs.start(&caller, op, around.files, around.token) {
                    Progress::Done(result) => self.take(result),
                    Progress::Pending(task) => return Step::Pending(fs.clone(), task),
                }
            }
            let outcome = self.execute(&asked, around);
            let outcome = outcome.unwrap_or_else(LockOutcome::Stat);
            let is_done = matches!(outcome, LockOutcome::Stat(nlm4_stats::NLM4_GRANTED));
            self.outcome = Some(outcome);
            if is_done && asked.looks() && around.nfsd.server.has_unsaved() {
                return Step::Elsewhere(Elsewhere::Records);
            }
        }
        let to = around.link.machine.reply(tag).bytes();
        self.answer(&asked, to);
        Step::Sent
    }

    /// Takes what the file system has answered.
    pub(crate) fn take(&mut self, result: Result<Output, fs::Error>) {
        self.attr = Some(result.map(|output| match output {
            Output::Attr(attr) => attr,
            _ => unreachable!("the answer to another question"),
        }));
    }

    /// Where its file lies; `None` of a procedure without one.
    fn place<'v>(
        &self,
        asked: &NlmAsked<'_>,
        peer: &'v Peer,
        nfsd: &Nfsd,
    ) -> Result<Option<NlmPlace<'v>>, nlm4_stats> {
        let Some(handle) = asked.handle() else {
            return Ok(None);
        };
        let Ok(PseudoPlace::File { export, file }) = peer.view.find(handle) else {
            return Err(nlm4_stats::NLM4_STALE_FH);
        };
        let granted = peer.view.granted(export).expect("it was found there");
        // Clients say by AUTH_SYS what they lock, also where an export wants Kerberos: a lock
        // shows and changes no data.
        if let Some(reason) = granted.lacks_protection(peer.xprtsec()) {
            nfsd.events.refused(peer, granted.export.path(), reason);
            return Err(nlm4_stats::NLM4_DENIED_NOLOCKS);
        }
        let acting = granted.rule.acting_credential(&self.identity);
        Ok(Some(NlmPlace {
            fs: granted.fs,
            is_read_only: granted.rule.is_read_only,
            file,
            identity: acting.unwrap_or_else(|| self.identity.clone()),
        }))
    }

    fn execute(
        &self,
        asked: &NlmAsked<'_>,
        around: &Around<'_>,
    ) -> Result<LockOutcome, nlm4_stats> {
        let nfsd = around.nfsd;
        let stat = |stat| Ok(LockOutcome::Stat(stat));
        let Some(place) = self.place(asked, around.peer, nfsd)? else {
            if let NlmAsked::FreeAll(args) = asked {
                let address = around.peer.address.ip();
                nfsd.host_restarted(address, args.name.0, None);
            }
            return stat(nlm4_stats::NLM4_DENIED);
        };
        if let Some(attr) = &self.attr {
            check_file(attr, &place.identity)?;
        }
        let locking = Locking {
            nfsd,
            peer: around.peer.address.ip().to_canonical(),
            local: around.peer.local,
            key: place.key(),
            is_read_only: place.is_read_only,
            now: around.now,
        };
        match asked {
            NlmAsked::Test(args) => {
                let held = locking.test(args)?;
                Ok(held.map_or(
                    LockOutcome::Stat(nlm4_stats::NLM4_GRANTED),
                    LockOutcome::Held,
                ))
            }
            NlmAsked::Lock(args) => {
                let is_monitored = self.procedure == nlm4_proc::NLMPROC4_LOCK;
                stat(locking.lock(args, is_monitored)?)
            }
            NlmAsked::Cancel(args) => stat(locking.cancel(args)?),
            NlmAsked::Unlock(args) => stat(locking.unlock(args)?),
            NlmAsked::Share(args) => stat(locking.share(args)?),
            NlmAsked::Unshare(args) => stat(locking.unshare(args)),
            NlmAsked::Granted(_) | NlmAsked::FreeAll(_) => unreachable!("they have no file"),
        }
    }

    fn answer(&self, asked: &NlmAsked<'_>, to: &mut Vec<u8>) {
        let cookie = Opaque(asked.cookie());
        let stat = match self.outcome.as_ref().expect("it was executed") {
            LockOutcome::Stat(stat) => *stat,
            LockOutcome::Held(held) => {
                let test_stat = nlm4_testrply::NLM4_DENIED(held.holder());
                return nlm4_testres { cookie, test_stat }.encode(to);
            }
        };
        match asked {
            NlmAsked::Test(_) => nlm4_testres {
                cookie,
                test_stat: nlm4_testrply::default(stat),
            }
            .encode(to),
            NlmAsked::Share(_) | NlmAsked::Unshare(_) => nlm4_shareres {
                cookie,
                stat,
                sequence: 0,
            }
            .encode(to),
            NlmAsked::FreeAll(_) => {}
            _ => nlm4_res { cookie, stat }.encode(to),
        }
    }
}
