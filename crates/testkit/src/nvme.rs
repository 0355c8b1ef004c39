//! PDUs of NVMe/TCP as a peer writes them.

use std::collections::VecDeque;

use machine::crc32c;
use wire::nvme::{Cqe, Sqe};
use wire::nvme_tcp::{
    CapsuleCmd, CapsuleResp, CommonHeader, Data, IcReq, IcResp, R2t, flags, pdu_type,
};
use zerocopy::{FromZeros, IntoBytes};

/// PDUs as a peer would write them, with the digests that were agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pdus {
    /// Header digests are in use.
    pub header_digest: bool,
    /// Data digests are in use.
    pub data_digest: bool,
}

impl Pdus {
    /// A PDU of `header`, whose flags and lengths are filled in, and `data`.
    pub fn pdu(self, header: &[u8], data: &[u8]) -> Vec<u8> {
        let mut bytes = header.to_vec();
        let hlen = bytes.len();
        let mut plen = hlen + if self.header_digest { 4 } else { 0 };
        bytes[1] |= if self.header_digest { flags::HDGST } else { 0 };
        if !data.is_empty() {
            bytes[1] |= if self.data_digest { flags::DDGST } else { 0 };
            bytes[3] = plen as u8;
            plen += data.len() + if self.data_digest { 4 } else { 0 };
        }
        bytes[4..8].copy_from_slice(&(plen as u32).to_le_bytes());
        if self.header_digest {
            bytes.extend(crc32c(&bytes[..hlen], 0).to_le_bytes());
        }
        bytes.extend(data);
        if self.data_digest && !data.is_empty() {
            bytes.extend(crc32c(data, 0).to_le_bytes());
        }
        bytes
    }

    /// DGST of ICReq and ICResp.
    pub fn dgst(self) -> u8 {
        u8::from(self.header_digest) | u8::from(self.data_digest) << 1
    }

    /// `pdu` moved to the alignment of `pda`, HPDA or CPDA: padding goes before
    /// its data.
    pub fn align(self, mut pdu: Vec<u8>, pda: u8) -> Vec<u8> {
        let pdo = usize::from(pdu[3]);
        let aligned = pdo.next_multiple_of((usize::from(pda) + 1) * 4);
        if pdo == 0 || pdo == aligned {
            return pdu;
        }
        let padding = aligned - pdo;
        pdu.splice(pdo..pdo, std::iter::repeat_n(0, padding));
        pdu[3] = aligned as u8;
        let plen = pdu.len() as u32;
        pdu[4..8].copy_from_slice(&plen.to_le_bytes());
        if self.header_digest {
            let hlen = usize::from(pdu[2]);
            let crc = crc32c(&pdu[..hlen], 0);
            pdu[hlen..hlen + 4].copy_from_slice(&crc.to_le_bytes());
        }
        pdu
    }

    /// ICReq of a host that takes one R2T at a time for a command.
    pub fn ic_req(self, hpda: u8) -> Vec<u8> {
        self.ic_req_with(hpda, 0)
    }

    /// ICReq with MAXR2T, which is 0's based.
    pub fn ic_req_with(self, hpda: u8, maxr2t: u32) -> Vec<u8> {
        let ch = CommonHeader::new(pdu_type::IC_REQ, IcReq::HLEN);
        let request = IcReq {
            ch,
            hpda,
            dgst: self.dgst(),
            maxr2t: maxr2t.into(),
            ..IcReq::new_zeroed()
        };
        request.as_bytes().to_vec()
    }

    /// ICResp.
    pub fn ic_resp(self, cpda: u8, maxh2cdata: u32) -> Vec<u8> {
        let ch = CommonHeader::new(pdu_type::IC_RESP, IcResp::HLEN);
        let maxh2cdata = maxh2cdata.into();
        let response = IcResp {
            ch,
            cpda,
            dgst: self.dgst(),
            maxh2cdata,
            ..IcResp::new_zeroed()
        };
        response.as_bytes().to_vec()
    }

    /// CapsuleCmd with in-capsule data.
    pub fn capsule_cmd(self, sqe: &Sqe, data: &[u8]) -> Vec<u8> {
        let ch = CommonHeader::new(pdu_type::CAPSULE_CMD, CapsuleCmd::HLEN);
        self.pdu(CapsuleCmd { ch, sqe: *sqe }.as_bytes(), data)
    }

    /// CapsuleResp.
    pub fn capsule_resp(self, cqe: Cqe) -> Vec<u8> {
        let ch = CommonHeader::new(pdu_type::CAPSULE_RESP, CapsuleResp::HLEN);
        self.pdu(CapsuleResp { ch, cqe }.as_bytes(), &[])
    }

    /// H2CData or C2HData with `flags`.
    pub fn data(self, kind: u8, flags: u8, ids: (u16, u16), datao: u32, data: &[u8]) -> Vec<u8> {
        let header = Data {
            ch: CommonHeader {
                flags,
                ..CommonHeader::new(kind, Data::HLEN)
            },
            cccid: ids.0.into(),
            ttag: ids.1.into(),
            datao: datao.into(),
            datal: (data.len() as u32).into(),
            reserved20: 0.into(),
        };
        self.pdu(header.as_bytes(), data)
    }

    /// R2T.
    pub fn r2t(self, cccid: u16, ttag: u16, r2to: u32, r2tl: u32) -> Vec<u8> {
        let header = R2t {
            ch: CommonHeader::new(pdu_type::R2T, R2t::HLEN),
            cccid: cccid.into(),
            ttag: ttag.into(),
            r2to: r2to.into(),
            r2tl: r2tl.into(),
            reserved20: 0.into(),
        };
        self.pdu(header.as_bytes(), &[])
    }
}

/// Cuts a stream that a machine wrote into its PDUs, each as (type, bytes).
pub fn cut(stream: &mut VecDeque<u8>) -> Vec<(u8, Vec<u8>)> {
    let mut pdus = Vec::new();
    while stream.len() >= 8 {
        let plen = u32::from_le_bytes([stream[4], stream[5], stream[6], stream[7]]) as usize;
        assert!(plen >= 8 && plen <= stream.len(), "a whole PDU");
        let bytes: Vec<u8> = stream.drain(..plen).collect();
        pdus.push((bytes[0], bytes));
    }
    assert!(stream.is_empty());
    pdus
}
