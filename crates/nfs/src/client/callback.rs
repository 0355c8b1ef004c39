//! What the server asks its client over a session's backchannel (RFC 8881,
//! sections 2.10 and 20).

use wire::nfs4::{
    CB_COMPOUND4args, CB_SEQUENCE4args, CB_SEQUENCE4resok, nfs_cb_argop4, nfs_cb_opnum4, nfsstat4,
    sessionid4, utf8str_cs,
};
use wire::xdr::{Decode, Encode, Opaque, Reader};

/// Minor versions whose callbacks are answered.
const MINORS: std::ops::RangeInclusive<u32> = 1..=2;

#[derive(Clone, Debug, Default)]
struct CallbackSlot {
    sequenceid: u32,
    /// The answer to the last request.
    kept: Vec<u8>,
}

/// The client's end of a session's backchannel.
#[derive(Clone, Debug)]
pub struct Backchannel {
    session: sessionid4,
    slots: Vec<CallbackSlot>,
}

/// One result.
struct Ended {
    number: nfs_cb_opnum4,
    status: nfsstat4,
    sequence: Option<CB_SEQUENCE4resok>,
    /// What follows the status of another operation.
    body: Vec<u8>,
}

impl Backchannel {
    /// That of a session, with so many slots (at most 64).
    pub fn new(session: sessionid4, slots: u32) -> Backchannel {
        Backchannel {
            session,
            slots: vec![CallbackSlot::default(); slots.clamp(1, 64) as usize],
        }
    }

    /// Appends to `to` the results of a CB_COMPOUND with these arguments. Each of
    /// its operations that is new goes to `take`, whose status is the answer, with what
    /// it appends to the bytes behind it: what is to be done about it is done later.
    pub fn answer(
        &mut self,
        args: &[u8],
        to: &mut Vec<u8>,
        mut take: impl FnMut(&nfs_cb_argop4<'_>, &mut Vec<u8>) -> nfsstat4,
    ) {
        let mut from = Reader::new(args);
        let Ok(call) = CB_COMPOUND4args::decode(&mut from) else {
            return write(nfsstat4::NFS4ERR_BADXDR, Opaque(b""), &[], to);
        };
        if !MINORS.contains(&call.minorversion) {
            let status = nfsstat4::NFS4ERR_MINOR_VERS_MISMATCH;
            return write(status, call.tag, &[], to);
        }
        let begin = to.len();
        let mut ended = Vec::new();
        let mut slot = None;
        for (op, index) in call.argarray.iter().zip(0..) {
            let result = match (&op, index) {
                (nfs_cb_argop4::OP_CB_SEQUENCE(args), 0) => match self.sequence(args) {
                    Ok(Some(kept)) => return to.extend_from_slice(kept),
                    Ok(None) => {
                        slot = Some(args.csa_slotid as usize);
                        let sequence = Some(self.sequenced(args));
                        let (number, status) = (nfs_cb_opnum4::OP_CB_SEQUENCE, nfsstat4::NFS4_OK);
                        Ended {
                            number,
                            status,
                            sequence,
                            body: Vec::new(),
                        }
                    }
                    Err(status) => Ended::with(nfs_cb_opnum4::OP_CB_SEQUENCE, status),
                },
                (nfs_cb_argop4::OP_CB_SEQUENCE(_), _) => Ended::with(
                    nfs_cb_opnum4::OP_CB_SEQUENCE,
                    nfsstat4::NFS4ERR_SEQUENCE_POS,
                ),
                (op, 0) => Ended::with(number(op), nfsstat4::NFS4ERR_OP_NOT_IN_SESSION),
                (nfs_cb_argop4::default(number), _) => {
                    Ended::with(*number, nfsstat4::NFS4ERR_NOTSUPP)
                }
                (op, _) => {
                    let mut body = Vec::new();
                    let status = take(op, &mut body);
                    Ended {
                        body,
                        ..Ended::with(number(op), status)
                    }
                }
            };
            let is_last = result.status != nfsstat4::NFS4_OK;
            ended.push(result);
            if is_last {
                break;
            }
        }
        let status = ended.last().map_or(nfsstat4::NFS4_OK, |last| last.status);
        write(status, call.tag, &ended, to);
        if let Some(slot) = slot {
            let kept = &mut self.slots[slot].kept;
            kept.clear();
            kept.extend_from_slice(&to[begin..]);
        }
    }

    /// CB_SEQUENCE (section 20.9): the answer that is kept, if the request was
    /// here before.
    fn sequence(&mut self, args: &CB_SEQUENCE4args<'_>) -> Result<Option<&[u8]>, nfsstat4> {
        if args.csa_sessionid != self.session {
            return Err(nfsstat4::NFS4ERR_BADSESSION);
        }
        let slots = self.slots.len();
        let slot = self.slots.get_mut(args.csa_slotid as usize);
        let slot = slot.ok_or(nfsstat4::NFS4ERR_BADSLOT)?;
        if args.csa_highest_slotid as usize >= slots {
            return Err(nfsstat4::NFS4ERR_BAD_HIGH_SLOT);
        }
        if args.csa_sequenceid == slot.sequenceid.wrapping_add(1) {
            slot.sequenceid = args.csa_sequenceid;
            return Ok(None);
        }
        match args.csa_sequenceid == slot.sequenceid && !slot.kept.is_empty() {
            true => Ok(Some(&slot.kept)),
            false => Err(nfsstat4::NFS4ERR_SEQ_MISORDERED),
        }
    }

    fn sequenced(&self, args: &CB_SEQUENCE4args<'_>) -> CB_SEQUENCE4resok {
        let highest = self.slots.len() as u32 - 1;
        CB_SEQUENCE4resok {
            csr_sessionid: self.session,
            csr_sequenceid: args.csa_sequenceid,
            csr_slotid: args.csa_slotid,
            csr_highest_slotid: highest,
            csr_target_highest_slotid: highest,
        }
    }
}

impl Ended {
    fn with(number: nfs_cb_opnum4, status: nfsstat4) -> Ended {
        Ended {
            number,
            status,
            sequence: None,
            body: Vec::new(),
        }
    }
}

fn number(op: &nfs_cb_argop4<'_>) -> nfs_cb_opnum4 {
    match op {
        nfs_cb_argop4::OP_CB_GETATTR(_) => nfs_cb_opnum4::OP_CB_GETATTR,
        nfs_cb_argop4::OP_CB_RECALL(_) => nfs_cb_opnum4::OP_CB_RECALL,
        nfs_cb_argop4::OP_CB_RECALL_SLOT(_) => nfs_cb_opnum4::OP_CB_RECALL_SLOT,
        nfs_cb_argop4::OP_CB_SEQUENCE(_) => nfs_cb_opnum4::OP_CB_SEQUENCE,
        nfs_cb_argop4::OP_CB_NOTIFY_LOCK(_) => nfs_cb_opnum4::OP_CB_NOTIFY_LOCK,
        nfs_cb_argop4::OP_CB_OFFLOAD(_) => nfs_cb_opnum4::OP_CB_OFFLOAD,
        nfs_cb_argop4::default(number) => *number,
    }
}

/// Writes a CB_COMPOUND's results.
fn write(status: nfsstat4, tag: utf8str_cs<'_>, ended: &[Ended], to: &mut Vec<u8>) {
    let head = wire::nfs4::cb_compound_res_head {
        status,
        tag,
        results: ended.len() as u32,
    };
    head.encode(to);
    for result in ended {
        result.number.encode(to);
        result.status.encode(to);
        if let Some(sequence) = &result.sequence {
            sequence.encode(to);
        }
        to.extend_from_slice(&result.body);
    }
}
