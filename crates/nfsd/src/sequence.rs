//! SEQUENCE (RFC 8881, section 18.46): the slot that a call is in.

use faults::Fault;
use nfs::server::{RequestId, Sequenced};
use wire::nfs4::{SEQUENCE4args, SEQUENCE4resok, nfsstat4};
use wire::xdr::Encode;

use crate::call::{InSlot, NextStep, OperationOutcome, RunningCall};

pub(crate) fn sequence<'a>(
    run: &mut RunningCall<'a>,
    args: &SEQUENCE4args,
) -> OperationOutcome<'a> {
    let held = run.peer.session(run.nfsd, &args.sa_sessionid);
    let held = held.ok_or(nfsstat4::NFS4ERR_BADSESSION)?;
    if !held.is_bound() {
        return Err(nfsstat4::NFS4ERR_CONN_NOT_BOUND_TO_SESSION);
    }
    let request = RequestId {
        record_bytes: run.link.machine.call(run.flow.tag).record_bytes,
        ops: run.flow.compound.ops(),
        principal: run.principal(),
    };
    let sequenced = held.session.sequence(args, &request, run.now);
    if sequenced == Err(nfsstat4::NFS4ERR_RETRY_UNCACHED_REP) {
        // The answer that brought them is lost: the client asks anew.
        let lost = held.session.take_brought(args.sa_slotid);
        lost.iter().for_each(|state| run.nfsd.withdraw(state));
    }
    match sequenced? {
        Sequenced::New(resok) => {
            run.flow.slot = Some(InSlot {
                held,
                slotid: args.sa_slotid,
                keeps: args.sa_cachethis,
            });
            run.ok(|to| resok.encode(to))
        }
        Sequenced::Again(_) if faults::is(Fault::ExecuteAgain) => {
            let last_slot = held.session.fore.slots - 1;
            let resok = SEQUENCE4resok {
                sr_sessionid: args.sa_sessionid,
                sr_sequenceid: args.sa_sequenceid,
                sr_slotid: args.sa_slotid,
                sr_highest_slotid: last_slot,
                sr_target_highest_slotid: last_slot,
                sr_status_flags: 0,
            };
            run.flow.slot = Some(InSlot {
                held,
                slotid: args.sa_slotid,
                keeps: false,
            });
            run.ok(|to| resok.encode(to))
        }
        Sequenced::Again(results) => {
            run.flow.is_replayed = true;
            let begin = run.flow.begin;
            let reply = run.reply();
            reply.back_to(begin);
            reply.bytes().extend_from_slice(&results);
            Ok(NextStep::End)
        }
    }
}
