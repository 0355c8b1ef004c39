//! Delegations that are given back, or are recalled for what local programs do; and state ids as
//! such (RFC 8881, sections 18.5, 18.6, 18.38, 18.48).

use machine::{Nanos, work};
use nfs::server::files::{READ, Special, StateKind, WRITE};
use store::fs::{FileId, FsOp, LocalChange};
use wire::nfs4::{
    DELEGPURGE4args, DELEGRETURN4args, FREE_STATEID4args, SEQ4_STATUS_ADMIN_STATE_REVOKED,
    SEQ4_STATUS_RECALLABLE_STATE_REVOKED, TEST_STATEID4args, TEST_STATEID4resok, nfsstat4,
    stateid4,
};
use wire::xdr::{Encode, List};

use crate::Nfsd;
use crate::call::{Ask, OperationOutcome, RunningCall};
use crate::continuation::{Continuation, ThenOpen};
use crate::exports::Export;
use crate::state::NO_CLIENT;

/// The status flags that are cleared when a client has freed all that was revoked.
const REVOKED: u32 = SEQ4_STATUS_RECALLABLE_STATE_REVOKED | SEQ4_STATUS_ADMIN_STATE_REVOKED;

impl Nfsd {
    /// Recalls the delegations of files that local programs have changed, or have opened while a
    /// client may have content that it has not written back, as far as the turn's share goes.
    /// Whether there may be more.
    pub fn see_local_changes(&self, now: Nanos) -> bool {
        for fs in self.exports.load().iter().filter_map(Export::fs) {
            while let Some((file, change)) = fs.take_local_change() {
                work::spend(1);
                let access = match change {
                    LocalChange::Opened => READ,
                    LocalChange::Changed => WRITE,
                };
                let key = (fs.info().instance, file.0);
                // The local program waits for nothing.
                let _ = self.break_delegations(NO_CLIENT, key, access, now);
                if work::is_used_up() {
                    return true;
                }
            }
        }
        false
    }
}

/// Delegations do not outlive their client: there is nothing to purge.
pub(crate) fn delegpurge<'a>(
    _run: &mut RunningCall<'a>,
    _args: &DELEGPURGE4args,
) -> OperationOutcome<'a> {
    Err(nfsstat4::NFS4ERR_NOTSUPP)
}

pub(crate) fn delegreturn<'a>(
    run: &mut RunningCall<'a>,
    args: &DELEGRETURN4args,
) -> OperationOutcome<'a> {
    let key = run.key(run.current()?)?;
    let stateid = run.stateid(&args.deleg_stateid)?;
    let known = run.state_of(key, &stateid)?;
    if known.state.kind != StateKind::Delegation {
        return Err(nfsstat4::NFS4ERR_BAD_STATEID);
    }
    run.nfsd.files.return_delegation(&known.state)?;
    match known.state.holds_file() {
        false => run.ok(|_| {}),
        true => run.ask_file_system(Ask {
            op: FsOp::Close {
                file: FileId(key.1),
            },
            is_open: true,
            then: Continuation::Open(ThenOpen::Returned),
        }),
    }
}

pub(crate) fn free_stateid<'a>(
    run: &mut RunningCall<'a>,
    args: &FREE_STATEID4args,
) -> OperationOutcome<'a> {
    let stateid = run.stateid(&args.fsa_stateid)?;
    let known = run.find_state(&stateid)?;
    let state = &known.state;
    match state.check(stateid.seqid, true) {
        // What was taken away is freed.
        Ok(()) | Err(nfsstat4::NFS4ERR_DELEG_REVOKED | nfsstat4::NFS4ERR_ADMIN_REVOKED) => {}
        Err(status) => return Err(status),
    }
    if run.nfsd.files.free(state)? {
        known.client.set_status_flags(0, REVOKED);
    }
    run.ok(|_| {})
}

pub(crate) fn test_stateid<'a>(
    run: &mut RunningCall<'a>,
    args: &TEST_STATEID4args<'a>,
) -> OperationOutcome<'a> {
    let mut statuses = Vec::new();
    for stateid in args.ts_stateids.iter() {
        work::spend(1);
        statuses.push(test(run, &stateid));
    }
    let resok = TEST_STATEID4resok {
        tsr_status_codes: List::Of(&statuses),
    };
    run.ok(|to| resok.encode(to))
}

fn test(run: &mut RunningCall<'_>, stateid: &stateid4) -> nfsstat4 {
    if Special::of(stateid).is_some() {
        return nfsstat4::NFS4ERR_BAD_STATEID;
    }
    let known = run.find_state(stateid);
    match known.and_then(|known| known.state.check(stateid.seqid, true)) {
        Ok(()) => nfsstat4::NFS4_OK,
        Err(status) => status,
    }
}
