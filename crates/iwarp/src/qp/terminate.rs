//! The Terminate message (RFC 5040, section 4.8).

use machine::crc32c;
use wire::iwarp::{
    ReadRequest, TerminateCode, TerminateControl, UntaggedFpdu, ddp_control, opcode, queue,
    rdmap_control, terminate_flags,
};
use zerocopy::IntoBytes;

/// The FPDU of a Terminate, with `header` of the FPDU in error or nothing of it.
pub(super) fn encode(code: TerminateCode, header: &[u8], has_crc: bool) -> Vec<u8> {
    let flags = match header.len() {
        0 => 0,
        len => {
            let has_request = len == UntaggedFpdu::LEN + ReadRequest::LEN;
            let rdmap = if has_request {
                terminate_flags::RDMAP
            } else {
                0
            };
            terminate_flags::LENGTH | terminate_flags::DDP | rdmap
        }
    };
    let control = TerminateControl {
        layer_etype: code.layer_etype(),
        code: code.code,
        flags,
        reserved: 0,
    };
    let len = UntaggedFpdu::LEN + TerminateControl::LEN + header.len();
    let fpdu = UntaggedFpdu {
        ulpdu_len: (len as u16 - 2).into(),
        ddp: ddp_control::LAST | ddp_control::VERSION,
        rdmap: rdmap_control::VERSION | opcode::TERMINATE,
        invalidate_stag: 0.into(),
        qn: queue::TERMINATE.into(),
        msn: 1.into(),
        mo: 0.into(),
    };
    let mut bytes = [fpdu.as_bytes(), control.as_bytes(), header].concat();
    bytes.resize(len.next_multiple_of(4), 0);
    let crc = if has_crc { crc32c(&bytes, 0) } else { 0 };
    bytes.extend(crc.to_le_bytes());
    bytes
}
