//! Targets that break iSER, against the initiator's end.

use iscsi::initiator::{
    CarriedConnection, Command, ExpectedData, InitiatorFatalError, InitiatorOp, InitiatorSession,
    InitiatorSettings, RANDOM_LEN,
};
use iscsi::iser::{CrcPolicy, IserError};
use testkit::End;
use testkit::iscsi::cdb;
use testkit::iwarp::{Fpdus, mpa_frame};
use wire::iscsi::{DataIn, LoginResponse, R2t, TAG_NONE, U24};
use wire::iwarp::MPA_REPLY_KEY;

use super::*;

const ISID: [u8; 6] = [0x80, 0, 0, 1, 0, 0];
const FPDUS: Fpdus = Fpdus { crc: false };

/// What the initiator makes of all that was sent to it.
fn receive(initiator: &mut End<CarriedConnection>, bytes: Vec<u8>) -> Vec<InitiatorOp> {
    let mut stream = bytes.into();
    let mut ops = Vec::new();
    while initiator.receive(&mut stream, usize::MAX) > 0 {
        while let Some(op) = initiator.next_op() {
            ops.push(op);
        }
        initiator.transmit_some(&mut VecDeque::new(), usize::MAX);
    }
    ops
}

/// A PDU of the target in its Send.
fn sent(msn: u32, pdu: &[u8]) -> Vec<u8> {
    FPDUS.send(msn, &[header(None, None).as_bytes(), pdu].concat())
}

#[test]
fn data_and_requests_for_it_in_sends_end_the_connection() {
    let data_in = |itt: u32| {
        let header = DataIn {
            flags: flags::FINAL,
            data_segment_length: U24::new(512),
            itt: itt.into(),
            ttt: TAG_NONE.into(),
            ..DataIn::new()
        };
        [header.as_bytes(), &[7; 512]].concat()
    };
    let r2t = |itt: u32| {
        let header = R2t {
            flags: flags::FINAL,
            itt: itt.into(),
            desired_data_transfer_length: 512.into(),
            ..R2t::new()
        };
        header.as_bytes().to_vec()
    };
    let cases: [(&dyn Fn(u32) -> Vec<u8>, _, _); 2] = [
        (&data_in, cdb::read(0, 1), ExpectedData::In(512)),
        (&r2t, cdb::write(0, 1), ExpectedData::Out(512)),
    ];
    for (pdu, cdb, data) in cases {
        let settings = InitiatorSettings {
            rdma: Some(stream(CrcPolicy::Off)),
            ..InitiatorSettings::new("iqn.2026-01.io.weft:i", "iqn.2026-01.io.weft:t")
        };
        let session = InitiatorSession::new(ISID, CMD_SN);
        let machine = CarriedConnection::new(settings, session, 0, [1; RANDOM_LEN], 0);
        let mut initiator = End::new(machine);
        initiator.transmit_some(&mut VecDeque::new(), usize::MAX);
        let reply = mpa_frame(MPA_REPLY_KEY, (0, 2), Some((8, 8)), &[0; 4]);
        receive(&mut initiator, reply);
        let text = b"RDMAExtensions=Yes\0";
        let login = LoginResponse {
            flags: flags::TRANSIT | 1 << 2 | 3,
            data_segment_length: U24::new(text.len() as u32),
            isid: ISID,
            tsih: 1.into(),
            exp_cmd_sn: CMD_SN.into(),
            max_cmd_sn: CMD_SN.wrapping_add(8).into(),
            ..LoginResponse::new()
        };
        let login = [login.as_bytes(), text].concat();
        let ops = receive(&mut initiator, sent(1, &login));
        assert!(matches!(ops[..], [InitiatorOp::Ready]), "{ops:?}");
        let command = Command::new(0, cdb);
        let tag = initiator.machine.submit(&command, data).expect("room");
        initiator.set_memory(tag, vec![0; 512]);
        let mut out = VecDeque::new();
        initiator.transmit_some(&mut out, usize::MAX);
        let (headers, _) = out.make_contiguous()[20 + ISER_HEADER_LEN..].split_at(BHS_LEN);
        let itt = Bhs::ref_from_bytes(headers).expect("a header").itt.get();
        let ops = receive(&mut initiator, sent(2, &pdu(itt)));
        let why = IserError::Message("Data-In or R2T, which go by RDMA");
        let why = InitiatorOp::Fatal(InitiatorFatalError::Rdma(why));
        assert_eq!(ops, [why]);
        assert_eq!(initiator.memory[usize::from(tag)], [0; 512]);
    }
}
