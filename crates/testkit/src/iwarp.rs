//! Frames and FPDUs as a peer writes them, right or wrong.

use std::collections::VecDeque;

use wire::iwarp::{
    MpaEnhanced, MpaFrame, ReadRequest, TaggedFpdu, UntaggedFpdu, ddp_control, mpa_flags, opcode,
    queue, rdmap_control,
};
use zerocopy::{FromBytes, IntoBytes};

/// CRC32C bit by bit, as its definition has it: apart from the code under test.
pub fn crc32c_by_bits(bytes: &[u8]) -> u32 {
    let mut register = u32::MAX;
    for byte in bytes {
        for bit in 0..8 {
            let is_set = (register ^ u32::from(byte >> bit)) & 1 != 0;
            register = register >> 1 ^ if is_set { 0x82f6_3b78 } else { 0 };
        }
    }
    !register
}

/// A frame of MPA; with `enhanced`, the words of IRD and ORD, the S flag is set too.
pub fn mpa_frame(
    key: &[u8; 16],
    (flags, revision): (u8, u8),
    enhanced: Option<(u16, u16)>,
    private_data: &[u8],
) -> Vec<u8> {
    let words = enhanced.map(|(ird, ord)| MpaEnhanced {
        ird: ird.into(),
        ord: ord.into(),
    });
    let words = words.map_or(Vec::new(), |words| words.as_bytes().to_vec());
    let header = MpaFrame {
        key: *key,
        flags: flags | enhanced.map_or(0, |_| mpa_flags::ENHANCED),
        revision,
        private_data_len: ((words.len() + private_data.len()) as u16).into(),
    };
    [header.as_bytes(), &words, private_data].concat()
}

/// Bytes of the frame that stands at the start of `bytes`.
pub fn mpa_frame_len(bytes: &[u8]) -> usize {
    let (header, _) = MpaFrame::ref_from_prefix(bytes).expect("a frame");
    MpaFrame::LEN + usize::from(header.private_data_len.get())
}

/// How FPDUs are written.
#[derive(Clone, Copy, Debug)]
pub struct Fpdus {
    /// With their CRC; else it is 0.
    pub crc: bool,
}

impl Fpdus {
    /// The FPDU of `ulpdu`.
    pub fn fpdu(self, ulpdu: &[u8]) -> Vec<u8> {
        let mut bytes = (ulpdu.len() as u16).to_be_bytes().to_vec();
        bytes.extend_from_slice(ulpdu);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let crc = if self.crc { crc32c_by_bits(&bytes) } else { 0 };
        bytes.extend(crc.to_le_bytes());
        bytes
    }

    /// A tagged segment, the last of its message if `is_last`.
    pub fn tagged(
        self,
        (opcode, is_last): (u8, bool),
        stag: u32,
        to: u64,
        payload: &[u8],
    ) -> Vec<u8> {
        let header = TaggedFpdu {
            ulpdu_len: 0.into(),
            ddp: ddp_control::TAGGED | control(is_last),
            rdmap: rdmap_control::VERSION | opcode,
            stag: stag.into(),
            to: to.into(),
        };
        self.fpdu(&[&header.as_bytes()[2..], payload].concat())
    }

    /// An untagged segment, the last of its message if `is_last`.
    pub fn untagged(
        self,
        (opcode, is_last): (u8, bool),
        invalidate_stag: u32,
        (qn, msn, mo): (u32, u32, u32),
        payload: &[u8],
    ) -> Vec<u8> {
        let header = UntaggedFpdu {
            ulpdu_len: 0.into(),
            ddp: control(is_last),
            rdmap: rdmap_control::VERSION | opcode,
            invalidate_stag: invalidate_stag.into(),
            qn: qn.into(),
            msn: msn.into(),
            mo: mo.into(),
        };
        self.fpdu(&[&header.as_bytes()[2..], payload].concat())
    }

    /// A Send of one segment.
    pub fn send(self, msn: u32, payload: &[u8]) -> Vec<u8> {
        self.untagged((opcode::SEND, true), 0, (queue::SEND, msn, 0), payload)
    }

    /// An RDMA Read Request.
    pub fn read_request(self, msn: u32, request: &ReadRequest) -> Vec<u8> {
        let place = (queue::READ_REQUEST, msn, 0);
        self.untagged((opcode::READ_REQUEST, true), 0, place, request.as_bytes())
    }

    /// The ULPDUs of all FPDUs in `stream`, whose padding and CRC are right.
    pub fn cut(self, stream: &mut VecDeque<u8>) -> Vec<Vec<u8>> {
        let mut ulpdus = Vec::new();
        while !stream.is_empty() {
            let len = usize::from(u16::from_be_bytes([stream[0], stream[1]]));
            let padded = (2 + len).next_multiple_of(4);
            let bytes: Vec<u8> = stream.drain(..padded + 4).collect();
            assert!(bytes[2 + len..padded].iter().all(|byte| *byte == 0));
            let crc = if self.crc {
                crc32c_by_bits(&bytes[..padded])
            } else {
                0
            };
            assert_eq!(bytes[padded..], crc.to_le_bytes());
            ulpdus.push(bytes[2..2 + len].to_vec());
        }
        ulpdus
    }
}

fn control(is_last: bool) -> u8 {
    ddp_control::VERSION | if is_last { ddp_control::LAST } else { 0 }
}
