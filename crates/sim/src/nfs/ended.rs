//! What a client makes of the answers to its requests.

use host::nfs::Results;
use mem::BufRange;
use nfs::server::files::ANONYMOUS;
use wire::nfs4::{
    COMMIT4resok, CREATE_SESSION4resok, EXCHANGE_ID4resok, OPEN4_RESULT_NO_OPEN_STATEID,
    OPEN4resok, READ4resok, WRITE4resok, fattr4, nfs_fh4, nfs_ftype4, nfs_opnum4, nfsstat4,
    open_delegation4, stable_how4, stateid4,
};
use wire::xdr::{Decode, Reader};

use super::ask::{Ask, New, OpenShare, Range4, SimHandle};
use super::client::NfsClient;
use super::had::{Delegated, FileView, Locked, OpenFile};
use super::model::InTheWay;
use super::{Common, DATA_FILES, DELEGATED};
use crate::checker::{Verdict, Violation};

/// The results behind SEQUENCE, and the data of a READ.
type CompoundResult<'r> = (Results<'r>, Option<BufRange>);

fn take<'r, T: Decode<'r>>(results: &mut Results<'r>, number: nfs_opnum4) -> Result<T, Violation> {
    let found = results.take(number);
    found.map_err(|wrong| Violation(format!("{number:?} of NFS: {wrong}")))
}

fn done(results: &mut Results<'_>, number: nfs_opnum4) -> Verdict {
    let found = results.done(number);
    found.map_err(|wrong| Violation(format!("{number:?} of NFS: {wrong}")))
}

/// An OPEN whose answer says that there is no open.
fn check_alone(is_delegated: bool, stateid: stateid4) -> Verdict {
    match is_delegated && stateid == ANONYMOUS {
        true => Ok(()),
        false => Err(Violation(format!(
            "neither open nor delegated: {stateid:?}"
        ))),
    }
}

fn handle(results: &mut Results<'_>) -> Result<SimHandle, Violation> {
    let found: nfs_fh4<'_> = take(results, nfs_opnum4::OP_GETFH)?;
    Ok(found.0.to_vec())
}

fn object(results: &mut Results<'_>) -> Result<(u64, nfs_ftype4), Violation> {
    let found: fattr4<'_> = take(results, nfs_opnum4::OP_GETATTR)?;
    let mut from = Reader::new(found.attr_vals.0);
    let kind = nfs_ftype4::decode(&mut from);
    let fileid = u64::decode(&mut from);
    match (kind, fileid) {
        (Ok(kind), Ok(fileid)) => Ok((fileid, kind)),
        _ => Err(Violation("attributes that make no sense".into())),
    }
}

fn view(results: &mut Results<'_>) -> Result<FileView, Violation> {
    let found: fattr4<'_> = take(results, nfs_opnum4::OP_GETATTR)?;
    let mut from = Reader::new(found.attr_vals.0);
    match (u64::decode(&mut from), u64::decode(&mut from)) {
        (Ok(change), Ok(size)) => Ok(FileView { change, size }),
        _ => Err(Violation("attributes that make no sense".into())),
    }
}

fn unexpected(ask: &Ask, status: nfsstat4) -> Verdict {
    Err(Violation(format!("{ask:?} of NFS ended with {status:?}")))
}

fn lock_of(range: &Range4) -> InTheWay {
    InTheWay::Lock {
        first: range.first,
        last: range.last,
        is_exclusive: range.is_exclusive,
    }
}

/// What a disk refuses.
fn is_failure(status: nfsstat4) -> bool {
    matches!(
        status,
        nfsstat4::NFS4ERR_IO
            | nfsstat4::NFS4ERR_NOSPC
            | nfsstat4::NFS4ERR_DQUOT
            | nfsstat4::NFS4ERR_FBIG
            | nfsstat4::NFS4ERR_ROFS
    )
}

/// A READ, a WRITE or a COMMIT was refused.
fn io_failed(ask: &Ask, status: nfsstat4, common: &mut Common) -> Verdict {
    match ask {
        Ask::Write { value, .. } if common.may_fail && is_failure(status) => {
            common.model.failed(*value);
            Ok(())
        }
        Ask::Commit(_) if common.may_fail && is_failure(status) => Ok(()),
        _ => unexpected(ask, status),
    }
}

/// Whether a status says that a state is gone.
fn is_lost(status: nfsstat4) -> bool {
    matches!(
        status,
        nfsstat4::NFS4ERR_BAD_STATEID
            | nfsstat4::NFS4ERR_OLD_STATEID
            | nfsstat4::NFS4ERR_EXPIRED
            | nfsstat4::NFS4ERR_ADMIN_REVOKED
            | nfsstat4::NFS4ERR_DELEG_REVOKED
            | nfsstat4::NFS4ERR_NO_GRACE
            | nfsstat4::NFS4ERR_RECLAIM_BAD
            | nfsstat4::NFS4ERR_RECLAIM_CONFLICT
    )
}

impl NfsClient {
    /// A request without a session has ended.
    pub(super) fn alone_ended(
        &mut self,
        ask: Ask,
        mut results: Results<'_>,
        common: &mut Common,
    ) -> Verdict {
        let _ = common;
        let status = results.status;
        let is_gone = matches!(
            status,
            nfsstat4::NFS4ERR_STALE_CLIENTID
                | nfsstat4::NFS4ERR_BADSESSION
                | nfsstat4::NFS4ERR_DELAY
                | nfsstat4::NFS4ERR_SEQ_MISORDERED
        );
        match ask {
            // A restart came between: from the beginning.
            Ask::Exchange | Ask::Session if is_gone => {
                self.start_again();
                Ok(())
            }
            Ask::Exchange => {
                let found: EXCHANGE_ID4resok<'_> = take(&mut results, nfs_opnum4::OP_EXCHANGE_ID)?;
                self.id.clientid = found.eir_clientid;
                self.id.sequence = found.eir_sequenceid;
                Ok(())
            }
            Ask::Session => {
                let made: CREATE_SESSION4resok<'_> =
                    take(&mut results, nfs_opnum4::OP_CREATE_SESSION)?;
                self.made_session(&made);
                Ok(())
            }
            // The next request will see what there is to see.
            Ask::Bind | Ask::Renew => Ok(()),
            Ask::DestroySession | Ask::DestroyClient if is_gone || status == nfsstat4::NFS4_OK => {
                Ok(())
            }
            ask => unexpected(&ask, status),
        }
    }

    /// A request in a slot was executed.
    pub(super) fn ended(
        &mut self,
        ask: Ask,
        begin: u64,
        found: CompoundResult<'_>,
        common: &mut Common,
    ) -> Verdict {
        match ask {
            Ask::Renew => Ok(()),
            Ask::Secured => self.secured_ended(found.0, common),
            Ask::Root | Ask::MakeHome | Ask::FindHome | Ask::Complete => {
                self.setup_ended(ask, found.0, common)
            }
            Ask::Read(..) | Ask::Write { .. } | Ask::Commit(_) => {
                self.io_ended(ask, begin, found, common)
            }
            Ask::Make(..) | Ask::Remove(_) | Ask::Rename(..) | Ask::Look(_) => {
                common.model.checked += 1;
                if common.may_fail && is_failure(found.0.status) {
                    // It may have been done as far as its sync.
                    self.names.lost(&ask);
                    return Ok(());
                }
                self.name_ended(&ask, found.0)
            }
            Ask::Open(share) => self.opened(share, begin, found.0, common),
            Ask::Size => self.sized(begin, found.0, common),
            Ask::Flush(at) => self.flushed(at, found.0.status, common),
            Ask::Lock(range) => self.locked(range, found.0, common),
            Ask::LockWrongly(range, _) => match found.0.status {
                nfsstat4::NFS4ERR_INVAL => Ok(()),
                status if is_lost(status) => {
                    self.state_lost(range.file, &format!("{status:?}"), common)
                }
                status => unexpected(&ask, status),
            },
            Ask::Reclaim(_) | Ask::ReclaimLock(_) => self.reclaimed(&ask, found.0, common),
            Ask::Close(_) | Ask::Unlock { .. } | Ask::Return(_) => {
                self.released(&ask, found.0, common)
            }
            ask => unexpected(&ask, found.0.status),
        }
    }

    fn setup_ended(&mut self, ask: Ask, mut results: Results<'_>, common: &Common) -> Verdict {
        let status = results.status;
        let results = &mut results;
        match (&ask, status) {
            (Ask::Complete, nfsstat4::NFS4_OK | nfsstat4::NFS4ERR_COMPLETE_ALREADY) => Ok(()),
            (Ask::Root, nfsstat4::NFS4_OK) => {
                done(results, nfs_opnum4::OP_PUTROOTFH)?;
                done(results, nfs_opnum4::OP_LOOKUP)?;
                self.id.root = handle(results)?;
                Ok(())
            }
            (Ask::MakeHome, nfsstat4::NFS4_OK | nfsstat4::NFS4ERR_EXIST) => Ok(()),
            (Ask::MakeHome, status) if common.may_fail && is_failure(status) => {
                self.put_later(ask);
                Ok(())
            }
            (Ask::FindHome, nfsstat4::NFS4_OK) => {
                done(results, nfs_opnum4::OP_PUTFH)?;
                done(results, nfs_opnum4::OP_LOOKUP)?;
                self.id.home = handle(results)?;
                Ok(())
            }
            (ask, status) => unexpected(ask, status),
        }
    }

    /// The export that takes TLS alone is for those that speak it.
    fn secured_ended(&self, results: Results<'_>, common: &mut Common) -> Verdict {
        common.model.checked += 1;
        match (self.plan.tls, results.status) {
            (true, nfsstat4::NFS4_OK) | (false, nfsstat4::NFS4ERR_WRONGSEC) => Ok(()),
            (has_tls, status) => Err(Violation(format!(
                "an export that takes TLS alone answers {status:?} to a client, has TLS: {has_tls}"
            ))),
        }
    }

    fn io_ended(
        &mut self,
        ask: Ask,
        begin: u64,
        (mut results, placed): CompoundResult<'_>,
        common: &mut Common,
    ) -> Verdict {
        let status = results.status;
        let results = &mut results;
        let file = match &ask {
            Ask::Read(file, _) | Ask::Write { file, .. } | Ask::Commit(file) => *file,
            _ => unreachable!("of content"),
        };
        if is_lost(status) {
            self.state_lost(file, &format!("{status:?}"), common)?;
            self.put_later(ask);
            return Ok(());
        }
        if status != nfsstat4::NFS4_OK {
            return io_failed(&ask, status, common);
        }
        done(results, nfs_opnum4::OP_PUTFH)?;
        match ask {
            Ask::Read(file, blocks) => {
                let read: READ4resok = take(results, nfs_opnum4::OP_READ)?;
                let mut bytes = vec![0; blocks.len() * self.id.block_bytes];
                let len = read.data.len as usize;
                if let (Some(range), true) = (placed, len > 0) {
                    if range.len() as usize != len {
                        return Err(Violation("a READ without all of its data".into()));
                    }
                    mem::copy_out(range, &mut bytes[..len]);
                }
                if len < bytes.len() && !read.eof {
                    return Err(Violation("a READ that is short before the end".into()));
                }
                let end = common.model.stamp();
                for (block, bytes) in blocks.zip(bytes.chunks(self.id.block_bytes)) {
                    common.model.read((file, block), bytes, (begin, end))?;
                }
            }
            Ask::Write { .. } => {
                let wrote: WRITE4resok = take(results, nfs_opnum4::OP_WRITE)?;
                self.wrote(&ask, &wrote, common)?;
            }
            Ask::Commit(file) => {
                let committed: COMMIT4resok = take(results, nfs_opnum4::OP_COMMIT)?;
                let verifier = u64::from_be_bytes(committed.writeverf);
                let number = self.id.number;
                for blocks in common.model.committed(number, file, begin, verifier) {
                    common.rewritten += 1;
                    let ask = super::repeat_write(self, file, blocks, common);
                    self.put_later(ask);
                }
            }
            _ => unreachable!("of content"),
        }
        Ok(())
    }

    /// A WRITE was executed, as far as a full disk lets it.
    fn wrote(&self, ask: &Ask, wrote: &WRITE4resok, common: &mut Common) -> Verdict {
        let Ask::Write {
            blocks,
            value,
            is_stable,
            ..
        } = ask
        else {
            unreachable!("a WRITE asked");
        };
        let (bytes, block) = (wrote.count as usize, self.id.block_bytes);
        let is_part = bytes > 0 && bytes < blocks.len() * block && bytes.is_multiple_of(block);
        if is_part && common.may_fail {
            common.model.shortened(*value, bytes / block);
        } else if bytes != blocks.len() * block {
            return Err(Violation(format!("a WRITE of {bytes} bytes")));
        }
        let is_safe = wrote.committed != stable_how4::UNSTABLE4;
        if *is_stable && !is_safe {
            return Err(Violation("a WRITE that is not as stable as asked".into()));
        }
        let verifier = u64::from_be_bytes(wrote.writeverf);
        common.model.written(*value, is_safe, verifier);
        Ok(())
    }

    fn name_ended(&mut self, ask: &Ask, mut results: Results<'_>) -> Verdict {
        let status = results.status;
        let results = &mut results;
        let mut found = None;
        if status == nfsstat4::NFS4_OK {
            done(results, nfs_opnum4::OP_PUTFH)?;
            match ask {
                Ask::Make(_, New::Directory) => {
                    take::<wire::nfs4::CREATE4resok<'_>>(results, nfs_opnum4::OP_CREATE)?;
                    found = Some(object(results)?);
                }
                Ask::Make(..) => {
                    take::<OPEN4resok<'_>>(results, nfs_opnum4::OP_OPEN)?;
                    take::<stateid4>(results, nfs_opnum4::OP_CLOSE)?;
                    found = Some(object(results)?);
                }
                Ask::Look(_) => {
                    done(results, nfs_opnum4::OP_LOOKUP)?;
                    found = Some(object(results)?);
                }
                _ => {}
            }
        }
        self.names.ended(ask, status, found)
    }

    fn opened(
        &mut self,
        share: OpenShare,
        begin: u64,
        mut results: Results<'_>,
        common: &mut Common,
    ) -> Verdict {
        let status = results.status;
        let results = &mut results;
        match status {
            nfsstat4::NFS4_OK => {}
            nfsstat4::NFS4ERR_SHARE_DENIED if share.file >= DATA_FILES => return Ok(()),
            nfsstat4::NFS4ERR_NOENT if share.wants => {
                self.put_later(Ask::Open(OpenShare {
                    wants: false,
                    ..share
                }));
                return Ok(());
            }
            status if common.may_fail && is_failure(status) => {
                self.put_later(Ask::Open(share));
                return Ok(());
            }
            status => return unexpected(&Ask::Open(share), status),
        }
        done(results, nfs_opnum4::OP_PUTFH)?;
        let opened: OPEN4resok<'_> = take(results, nfs_opnum4::OP_OPEN)?;
        let handle = handle(results)?;
        let view = view(results)?;
        let (number, now) = (self.id.number, self.now());
        let what = InTheWay::Share {
            access: share.access,
            deny: share.deny,
        };
        let model = &mut common.model;
        let hold = match opened.rflags & OPEN4_RESULT_NO_OPEN_STATEID {
            0 => Some(model.granted(number, share.file, what, now)?),
            _ => None,
        };
        let given = match opened.delegation {
            open_delegation4::OPEN_DELEGATE_READ(read) => Some((read.stateid, false)),
            open_delegation4::OPEN_DELEGATE_WRITE(write) => Some((write.stateid, true)),
            _ => None,
        };
        if share.file == DELEGATED && !self.id.writes_delegated() {
            model.sized(number, view.size, begin, now)?;
        }
        if let Some(given) = given {
            self.delegated(given, (share.file, &handle), view, common)?;
        }
        let Some(hold) = hold else {
            return check_alone(given.is_some(), opened.stateid);
        };
        let it = Some(OpenFile {
            hold,
            share,
            handle,
            stateid: opened.stateid,
            is_busy: false,
        });
        match share.file < DATA_FILES {
            true => self.id.opens[share.file] = it,
            false => self.id.opens.push(it),
        }
        Ok(())
    }

    /// It has a delegation, of writing or not.
    fn delegated(
        &mut self,
        (stateid, writes): (stateid4, bool),
        (file, handle): (usize, &SimHandle),
        view: FileView,
        common: &mut Common,
    ) -> Verdict {
        common.delegations += 1;
        let what = InTheWay::Delegation { writes };
        let (number, now) = (self.id.number, self.now());
        let hold = common.model.granted(number, file, what, now)?;
        self.id.delegations.push(Some(Delegated {
            hold,
            handle: handle.clone(),
            stateid,
            is_busy: false,
            given: writes.then_some(view),
            size: None,
        }));
        Ok(())
    }

    /// The size of the file that may be delegated.
    fn sized(&self, begin: u64, mut results: Results<'_>, common: &mut Common) -> Verdict {
        let results = &mut results;
        match results.status {
            nfsstat4::NFS4_OK => {}
            nfsstat4::NFS4ERR_NOENT => return Ok(()),
            status if common.may_fail && is_failure(status) => return Ok(()),
            status => return unexpected(&Ask::Size, status),
        }
        done(results, nfs_opnum4::OP_PUTFH)?;
        done(results, nfs_opnum4::OP_LOOKUP)?;
        let view = view(results)?;
        let (number, now) = (self.id.number, self.now());
        common.model.sized(number, view.size, begin, now)
    }

    /// The server knows what was known by a delegation alone, or refuses it: that may be
    /// returned now.
    fn flushed(&mut self, at: usize, status: nfsstat4, common: &mut Common) -> Verdict {
        let Some(delegation) = &mut self.id.delegations[at] else {
            return Ok(());
        };
        delegation.size = None;
        match status {
            nfsstat4::NFS4_OK => common.model.flushed(delegation.hold),
            status if common.may_fail && is_failure(status) => {}
            status if is_lost(status) => {}
            status => return unexpected(&Ask::Flush(at), status),
        }
        self.put_later(Ask::Return(at));
        Ok(())
    }

    fn locked(&mut self, range: Range4, mut results: Results<'_>, common: &mut Common) -> Verdict {
        let status = results.status;
        match status {
            nfsstat4::NFS4_OK => {}
            nfsstat4::NFS4ERR_DENIED => return Ok(()),
            status if is_lost(status) => {
                return self.state_lost(range.file, &format!("{status:?}"), common);
            }
            status => return unexpected(&Ask::Lock(range), status),
        }
        done(&mut results, nfs_opnum4::OP_PUTFH)?;
        let stateid = take(&mut results, nfs_opnum4::OP_LOCK)?;
        let (number, now) = (self.id.number, self.now());
        let hold = common
            .model
            .granted(number, range.file, lock_of(&range), now)?;
        self.id.locks.push(Some(Locked {
            hold,
            range,
            stateid,
            is_busy: false,
        }));
        Ok(())
    }

    fn reclaimed(&mut self, ask: &Ask, mut results: Results<'_>, common: &mut Common) -> Verdict {
        let status = results.status;
        let now = self.now();
        let hold = match *ask {
            Ask::Reclaim(at) => self.id.opens[at].as_ref().map(|it| it.hold),
            Ask::ReclaimLock(at) => self.id.locks[at].as_ref().map(|it| it.hold),
            _ => unreachable!("of reclaims"),
        };
        let hold = hold.expect("it is there");
        if is_lost(status) {
            common
                .model
                .lost(hold, now, &format!("{ask:?}: {status:?}"))?;
            match *ask {
                Ask::ReclaimLock(at) => self.id.locks[at] = None,
                Ask::Reclaim(at) if at >= DATA_FILES => self.id.opens[at] = None,
                // The server may keep what was reclaimed before: the client gives it up.
                _ => {
                    common.model.forgets(self.id.number);
                    self.mount_anew();
                }
            }
            return Ok(());
        }
        if status != nfsstat4::NFS4_OK {
            return unexpected(ask, status);
        }
        done(&mut results, nfs_opnum4::OP_PUTFH)?;
        match *ask {
            Ask::Reclaim(at) => {
                let opened: OPEN4resok<'_> = take(&mut results, nfs_opnum4::OP_OPEN)?;
                let it = self.id.opens[at].as_mut().expect("it is there");
                it.stateid = opened.stateid;
            }
            Ask::ReclaimLock(at) => {
                let stateid = take(&mut results, nfs_opnum4::OP_LOCK)?;
                self.id.locks[at].as_mut().expect("it is there").stateid = stateid;
            }
            _ => unreachable!("of reclaims"),
        }
        common.model.reclaimed(hold, now)
    }

    fn released(&mut self, ask: &Ask, mut results: Results<'_>, common: &mut Common) -> Verdict {
        let status = results.status;
        match *ask {
            Ask::Close(at) => self.id.opens[at] = None,
            Ask::Unlock { at, keeps } => {
                self.id.unlocked(at, keeps);
                if let (Some(locked), nfsstat4::NFS4_OK) = (&mut self.id.locks[at], status) {
                    done(&mut results, nfs_opnum4::OP_PUTFH)?;
                    locked.stateid = take(&mut results, nfs_opnum4::OP_LOCKU)?;
                }
            }
            Ask::Return(at) => self.id.delegations[at] = None,
            _ => unreachable!("of what is given back"),
        }
        match status {
            nfsstat4::NFS4_OK => Ok(()),
            // Those may be taken away without a word.
            _ if matches!(ask, Ask::Return(_)) && is_lost(status) => Ok(()),
            // It had no lease for a while.
            _ if is_lost(status) && self.had_gap(common) => self.lose_all("gone", common),
            status => unexpected(ask, status),
        }
    }

    /// The state of a data file is gone: so is all else.
    fn state_lost(&mut self, file: usize, why: &str, common: &mut Common) -> Verdict {
        if let Some(opened) = &self.id.opens[file] {
            common.model.lost(opened.hold, self.now(), why)?;
        }
        self.lose_all(why, common)
    }

    /// What it had is gone, which only a silence explains: it mounts anew.
    fn lose_all(&mut self, why: &str, common: &mut Common) -> Verdict {
        let now = self.now();
        let opens = self.id.opens.iter().flatten().map(|it| it.hold);
        let locks = self.id.locks.iter().flatten().map(|it| it.hold);
        let holds: Vec<usize> = opens.chain(locks).collect();
        for hold in holds {
            common.model.lost(hold, now, why)?;
        }
        self.mount_anew();
        Ok(())
    }

    /// Whether the answers are those of a server that has forgotten it.
    fn had_gap(&self, common: &Common) -> bool {
        common.model.is_doubtful(self.id.number, self.now())
    }
}
