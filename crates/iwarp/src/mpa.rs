//! How MPA begins a connection (RFC 5044, section 7.1; RFC 6581): its frames and what both
//! ends agree on.

use wire::iwarp::{
    MPA_REPLY_KEY, MPA_REQUEST_KEY, MPA_REVISION_MAX, MpaEnhanced, MpaFrame, PEER_TO_PEER,
    PRIVATE_DATA_MAX, READ_DEPTH_MASK, READ_DEPTH_UNSET, RTR_FPDU, RTR_READ, RTR_WRITE,
    TerminateCode, mpa_flags,
};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a frame at most.
pub(crate) const FRAME_MAX: usize = MpaFrame::LEN + PRIVATE_DATA_MAX;

/// Which CRCs an end wants. They are in use where either end asks for them (RFC 5044, section
/// 7.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrcPolicy {
    /// They are asked for, and a Reply that does not ask for them too ends the connection.
    Require,
    /// They are asked for.
    Prefer,
    /// They are in use for a peer that asks for them.
    Off,
}

/// Why no connection comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MpaError {
    /// The peer does not speak MPA, or both ends are initiators.
    #[error("peer sends no MPA frame: its first bytes are another key")]
    Key,
    /// PD_Length is above 512.
    #[error("MPA frame with {0} bytes of private data, of which 512 are allowed")]
    PrivateDataLen(u16),
    /// The revision of a Request is neither 1 nor 2.
    #[error("MPA revision {0}, of which 1 and 2 are known")]
    Revision(u8),
    /// The revision of a Reply is not that of the Request, which is enhanced.
    #[error("MPA Reply of revision {0} to a Request of revision 2: the peer knows no RFC 6581")]
    ReplyRevision(u8),
    /// The peer wants markers.
    #[error("peer wants MPA markers, which are not supported: turn them off there")]
    Markers,
    /// The peer does not want the CRCs that this end requires.
    #[error("peer wants no MPA CRCs, which are required here: turn them on there")]
    NoCrc,
    /// The frame says that it is enhanced and has no IRD and ORD, or a Reply to an enhanced
    /// Request is not enhanced.
    #[error("MPA frame without the IRD and ORD that it must have")]
    NotEnhanced,
    /// Bytes stand behind the Request before it was answered.
    #[error("peer sends more than an MPA Request before the Reply")]
    EarlyData,
}

/// The first FPDU of an initiator, peer to peer: ready to receive (RFC 6581).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rtr {
    Fpdu,
    Write,
    Read,
}

/// What both ends agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// CRCs are in use.
    pub crc: bool,
    /// RDMA Reads of the peer at a time.
    pub ird: u16,
    /// RDMA Reads of this end at a time; 0: none.
    pub ord: u16,
    pub(crate) rtr: Option<Rtr>,
}

/// What this end wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wishes {
    pub(crate) crc: CrcPolicy,
    pub(crate) ird: u16,
    pub(crate) ord: u16,
    pub(crate) peer_to_peer: bool,
}

/// A whole frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParsedFrame<'a> {
    revision: u8,
    flags: u8,
    /// IRD and ORD with their flags.
    enhanced: Option<(u16, u16)>,
    pub(crate) private_data: &'a [u8],
    /// Bytes of all of it.
    pub(crate) len: usize,
}

/// The frame at the start of `bytes`; `None`: more bytes are needed.
pub(crate) fn frame<'a>(
    bytes: &'a [u8],
    key: &[u8; 16],
) -> Result<Option<ParsedFrame<'a>>, MpaError> {
    let has = bytes.len().min(key.len());
    if bytes[..has] != key[..has] {
        return Err(MpaError::Key);
    }
    let Ok((header, rest)) = MpaFrame::ref_from_prefix(bytes) else {
        return Ok(None);
    };
    let len = usize::from(header.private_data_len.get());
    if len > PRIVATE_DATA_MAX {
        return Err(MpaError::PrivateDataLen(len as u16));
    }
    let Some(data) = rest.get(..len) else {
        return Ok(None);
    };
    let is_enhanced =
        header.revision == MPA_REVISION_MAX && header.flags & mpa_flags::ENHANCED != 0;
    let (enhanced, private_data) = match MpaEnhanced::ref_from_prefix(data) {
        Ok((words, rest)) if is_enhanced => (Some((words.ird.get(), words.ord.get())), rest),
        _ if is_enhanced && header.flags & mpa_flags::REJECT == 0 => {
            return Err(MpaError::NotEnhanced);
        }
        _ => (None, data),
    };
    Ok(Some(ParsedFrame {
        revision: header.revision,
        flags: header.flags,
        enhanced,
        private_data,
        len: MpaFrame::LEN + len,
    }))
}

/// What a Reply takes from the Request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MpaAnswer {
    revision: u8,
    pub(crate) terms: Terms,
    /// IRD and ORD with their flags.
    enhanced: Option<(u16, u16)>,
}

impl MpaAnswer {
    /// To a Request that could not be taken: `bytes` begin with its header.
    pub(crate) fn to_refused(bytes: &[u8]) -> MpaAnswer {
        let revision = MpaFrame::ref_from_prefix(bytes).map_or(1, |(header, _)| header.revision);
        MpaAnswer {
            revision: revision.clamp(1, MPA_REVISION_MAX),
            ..MpaAnswer::default()
        }
    }

    /// To `request`.
    pub(crate) fn new(request: &ParsedFrame<'_>, wishes: &Wishes) -> Result<MpaAnswer, MpaError> {
        if !(1..=MPA_REVISION_MAX).contains(&request.revision) {
            return Err(MpaError::Revision(request.revision));
        }
        if request.flags & mpa_flags::MARKERS != 0 {
            return Err(MpaError::Markers);
        }
        let mut answer = MpaAnswer {
            revision: request.revision,
            terms: Terms {
                crc: wishes.crc != CrcPolicy::Off || request.flags & mpa_flags::CRC != 0,
                ird: wishes.ird,
                ord: wishes.ord,
                rtr: None,
            },
            enhanced: None,
        };
        if let Some((ird, ord)) = request.enhanced {
            let terms = &mut answer.terms;
            let (my_ird, my_ord);
            (terms.ird, my_ird) = depth(wishes.ird, ord);
            (terms.ord, my_ord) = depth(wishes.ord, ird);
            let mut words = (my_ird, my_ord);
            if ird & PEER_TO_PEER != 0 {
                let (rtr, flag) = chosen_rtr(ird, ord).unwrap_or((Rtr::Write, (0, RTR_WRITE)));
                terms.rtr = Some(rtr);
                words = (words.0 | PEER_TO_PEER | flag.0, words.1 | flag.1);
            }
            answer.enhanced = Some(words);
        }
        Ok(answer)
    }

    /// The Reply Frame.
    pub(crate) fn reply(&self, is_rejected: bool, private_data: &[u8]) -> Vec<u8> {
        let flags = if is_rejected { mpa_flags::REJECT } else { 0 }
            | if self.terms.crc { mpa_flags::CRC } else { 0 };
        encode(
            MPA_REPLY_KEY,
            flags,
            self.revision,
            self.enhanced,
            private_data,
        )
    }
}

/// What this end does and what it tells, of at most `mine` reads at a time where the peer does
/// or takes those of `theirs`.
fn depth(mine: u16, theirs: u16) -> (u16, u16) {
    match theirs & READ_DEPTH_MASK {
        READ_DEPTH_UNSET => (mine, READ_DEPTH_UNSET),
        theirs => (mine.min(theirs), mine.min(theirs)),
    }
}

/// The first RTR of those in the flags of `ird` and `ord`, and its flag in either.
fn chosen_rtr(ird: u16, ord: u16) -> Option<(Rtr, (u16, u16))> {
    let all = [
        (Rtr::Write, (0, RTR_WRITE)),
        (Rtr::Read, (0, RTR_READ)),
        (Rtr::Fpdu, (RTR_FPDU, 0)),
    ];
    all.into_iter()
        .find(|(_, flag)| (ird & flag.0) | (ord & flag.1) != 0)
}

/// The Request Frame of an initiator: enhanced.
pub(crate) fn request(wishes: &Wishes, private_data: &[u8]) -> Vec<u8> {
    let crc = match wishes.crc {
        CrcPolicy::Require | CrcPolicy::Prefer => mpa_flags::CRC,
        CrcPolicy::Off => 0,
    };
    let flags = match wishes.peer_to_peer {
        true => (PEER_TO_PEER | RTR_FPDU, RTR_WRITE | RTR_READ),
        false => (0, 0),
    };
    let words = (wishes.ird | flags.0, wishes.ord | flags.1);
    encode(
        MPA_REQUEST_KEY,
        crc,
        MPA_REVISION_MAX,
        Some(words),
        private_data,
    )
}

fn encode(
    key: &[u8; 16],
    flags: u8,
    revision: u8,
    enhanced: Option<(u16, u16)>,
    private_data: &[u8],
) -> Vec<u8> {
    let words = enhanced.map(|(ird, ord)| MpaEnhanced {
        ird: ird.into(),
        ord: ord.into(),
    });
    let len = words.map_or(0, |_| MpaEnhanced::LEN) + private_data.len();
    assert!(len <= PRIVATE_DATA_MAX, "too much private data");
    let header = MpaFrame {
        key: *key,
        flags: flags | words.map_or(0, |_| mpa_flags::ENHANCED),
        revision,
        private_data_len: (len as u16).into(),
    };
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(words.iter().flat_map(|words| words.as_bytes()));
    bytes.extend(private_data);
    bytes
}

/// What a Reply comes to.
pub(crate) enum ReplyOutcome {
    Rejected,
    Agreed(Terms),
    /// The Reply is well formed, and this end cannot go on with it.
    Terminated(TerminateCode),
}

/// What `reply` comes to for the initiator that wished for `wishes`.
pub(crate) fn outcome(reply: &ParsedFrame<'_>, wishes: &Wishes) -> Result<ReplyOutcome, MpaError> {
    if reply.flags & mpa_flags::REJECT != 0 {
        return Ok(ReplyOutcome::Rejected);
    }
    if reply.revision != MPA_REVISION_MAX {
        return Err(MpaError::ReplyRevision(reply.revision));
    }
    if reply.flags & mpa_flags::MARKERS != 0 {
        return Err(MpaError::Markers);
    }
    let has_crc = reply.flags & mpa_flags::CRC != 0;
    if wishes.crc == CrcPolicy::Require && !has_crc {
        return Err(MpaError::NoCrc);
    }
    let (ird, ord) = reply.enhanced.ok_or(MpaError::NotEnhanced)?;
    let their_ord = ord & READ_DEPTH_MASK;
    if their_ord != READ_DEPTH_UNSET && their_ord > wishes.ird {
        return Ok(ReplyOutcome::Terminated(TerminateCode::INSUFFICIENT_IRD));
    }
    let mut terms = Terms {
        crc: has_crc || wishes.crc != CrcPolicy::Off,
        ird: wishes.ird,
        ord: depth(wishes.ord, ird).0,
        rtr: None,
    };
    if wishes.peer_to_peer {
        let Some((rtr, _)) = chosen_rtr(ird, ord) else {
            return Ok(ReplyOutcome::Terminated(TerminateCode::NO_MATCHING_RTR));
        };
        terms.rtr = Some(rtr);
    }
    Ok(ReplyOutcome::Agreed(terms))
}

/// Most bytes of a ULPDU so that its FPDU fits into one TCP segment of `emss` bytes (RFC
/// 5044, section 4.5, without markers).
pub const fn ulpdu_max(emss: u16) -> u16 {
    emss.saturating_sub(6 + emss % 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fpdu_of_the_longest_ulpdu_fits_into_its_segment() {
        for emss in 128..=u16::MAX {
            let ulpdu = u32::from(ulpdu_max(emss));
            let fpdu = (ulpdu + 2).next_multiple_of(4) + 4;
            assert!(fpdu <= u32::from(emss));
            assert!((ulpdu + 3).next_multiple_of(4) + 4 > u32::from(emss));
        }
        assert_eq!(ulpdu_max(1460), 1454);
    }
}
