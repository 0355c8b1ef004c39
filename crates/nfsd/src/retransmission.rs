//! Retransmitted COMPOUNDs of NFSv4.0: what changes names, or attributes, is done
//! once (RFC 7530, section 3.1.1; OPEN, LOCK and their like have numbers of their
//! own for that).

use machine::Nanos;
use wire::nfs4::nfsstat4;

use crate::call::{NextStep, OperationOutcome, RunningCall};
use crate::duplicate_request_cache::{CallBegun, CallKey};

/// A retransmission waits so long for the first call to end, as if for memory.
const PATIENCE: Nanos = 300_000_000;
/// The procedure and the version, among others that calls are known by.
const COMPOUND: u32 = 4 << 16 | 1;

/// Before the first operation that must not be done twice: if the call was
/// executed before, its answer.
pub(crate) fn answer<'a>(run: &mut RunningCall<'a>) -> Option<OperationOutcome<'a>> {
    if run.flow.once.known.is_some() {
        return None;
    }
    let xid = run.link.machine.call(run.flow.tag).xid;
    let known = CallKey::new(xid, COMPOUND, run.credential(), run.args);
    let replies = run.peer.address_replies(run.nfsd).clone();
    match replies.begin(known, run.now) {
        CallBegun::New => {
            run.flow.once.known = Some((replies, known));
            None
        }
        CallBegun::Again(results) => {
            run.flow.is_replayed = true;
            let begin = run.flow.begin;
            let reply = run.reply();
            reply.back_to(begin);
            reply.bytes().extend_from_slice(&results);
            Some(Ok(NextStep::End))
        }
        CallBegun::UnderWay => {
            let now = run.now;
            let since = *run.flow.once.waits_since.get_or_insert(now);
            Some(match now.saturating_sub(since) < PATIENCE {
                true => Ok(NextStep::NoMemory),
                false => Err(nfsstat4::NFS4ERR_DELAY),
            })
        }
    }
}
