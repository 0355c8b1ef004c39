//! Turns of owners: those of NFSv4.0 number what they ask, and a retransmission gets
//! the same answer again (RFC 7530, section 9.1.7).

use std::sync::Arc;

use nfs::server::files::{LastAnswer, Owner, RequestBegun};
use store::fs::FileId;
use wire::nfs4::nfsstat4;

use crate::call::{NextStep, OperationOutcome, RunningCall};
use crate::pseudo::PseudoPlace;

/// Bytes of an operation's number and status, which its body follows.
const HEAD_BYTES: usize = 8;

/// A request of an owner under way; of later minor versions, none.
#[derive(Debug, Default)]
pub(crate) struct OwnerRequest {
    owner: Option<(Arc<Owner>, u32)>,
}

/// How a request of an owner is to be taken.
pub(crate) enum TurnTaken {
    /// It is to be executed.
    Now(OwnerRequest),
    /// It is to be executed if it is an OPEN: the owner, which never confirmed anything,
    /// begins anew.
    Anew(OwnerRequest),
    /// It was: this was the answer.
    Again(LastAnswer),
}

impl OwnerRequest {
    /// The owner asks something numbered `seqid`.
    ///
    /// # Errors
    /// As [`Owner::begin`].
    pub(crate) fn take(owner: &Arc<Owner>, seqid: u32) -> Result<TurnTaken, nfsstat4> {
        let turn = || OwnerRequest {
            owner: Some((owner.clone(), seqid)),
        };
        Ok(match owner.begin(seqid)? {
            RequestBegun::New => TurnTaken::Now(turn()),
            RequestBegun::Anew => TurnTaken::Anew(turn()),
            RequestBegun::Again(kept) => TurnTaken::Again(kept),
        })
    }

    /// Whose turn it is.
    pub(crate) fn owner(&self) -> Option<&Arc<Owner>> {
        self.owner.as_ref().map(|(owner, _)| owner)
    }

    /// The request is answered by what `answer` comes to: that is kept.
    pub(crate) fn end<'a>(
        mut self,
        run: &mut RunningCall<'a>,
        answer: impl FnOnce(&mut RunningCall<'a>) -> OperationOutcome<'a>,
    ) -> OperationOutcome<'a> {
        let Some((owner, seqid)) = self.owner.take() else {
            return answer(run);
        };
        let op = run.flow.compound.number();
        let before = run.reply().bytes().len();
        let outcome = answer(run);
        let kept = match &outcome {
            Err(status) => LastAnswer {
                op,
                status: *status,
                body: Box::default(),
                file: None,
            },
            Ok(_) => {
                let bytes = &run.reply().bytes()[before..];
                LastAnswer {
                    op,
                    status: status_of(bytes),
                    body: bytes[HEAD_BYTES..].into(),
                    file: match run.flow.current.map(|current| current.place) {
                        Some(PseudoPlace::File { export, file }) => Some((export, file.0)),
                        _ => None,
                    },
                }
            }
        };
        owner.finish(seqid, kept, run.now);
        outcome
    }
}

fn status_of(result: &[u8]) -> nfsstat4 {
    use wire::xdr::{Decode, Reader};
    let from = &mut Reader::new(&result[HEAD_BYTES / 2..]);
    nfsstat4::decode(from).expect("it was written here")
}

impl Drop for OwnerRequest {
    /// The request is given up: a retransmission of it is executed.
    fn drop(&mut self) {
        if let Some((owner, _)) = self.owner.take() {
            owner.abandon();
        }
    }
}

/// An answer is given again, and what OPEN made the current file is again.
///
/// # Errors
/// NFS4ERR_BAD_SEQID to another request by the same number.
pub(crate) fn repeat_answer<'a>(
    run: &mut RunningCall<'a>,
    kept: &LastAnswer,
) -> OperationOutcome<'a> {
    if kept.op != run.flow.compound.number() {
        return Err(nfsstat4::NFS4ERR_BAD_SEQID);
    }
    if kept.status == nfsstat4::NFS4_OK
        && let Some((of, file)) = kept.file
    {
        match run.current()? {
            // In another export the number is another file's, which no LOOKUP let through.
            PseudoPlace::File { export, .. } if export == of => {
                let file = FileId(file);
                run.set_current(PseudoPlace::File { export, file });
            }
            _ => return Err(nfsstat4::NFS4ERR_BAD_SEQID),
        }
    }
    if kept.body.is_empty() && kept.status != nfsstat4::NFS4_OK {
        return Err(kept.status);
    }
    run.answer(kept.status, |to| to.extend_from_slice(&kept.body))?;
    Ok(NextStep::Done)
}
