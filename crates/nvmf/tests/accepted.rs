//! One port for NVMe/TCP and NVMe/RDMA: what the first byte of a connection decides.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use machine::Machine;
use nvmf::accepted::{AcceptedQpair, QpairError, QpairSettings};
use nvmf::queue::Op;
use nvmf::rdma::QpSettings;
use nvmf::rdma::controller::{RdmaError, RdmaSettings};
use nvmf::tcp::controller::Settings;
use nvmf::transport::{Transport, Transports};
use testkit::End;
use testkit::iwarp::mpa_frame;
use testkit::nvme::Pdus;
use wire::iwarp::{MPA_REPLY_KEY, MPA_REQUEST_KEY, MpaFrame, mpa_flags};
use wire::nvme_rdma::{CmAccept, CmRequest};
use wire::nvme_tcp::pdu_type;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Until a host must have connected.
const TIMEOUT: u64 = 1000;
/// When it was accepted.
const ACCEPTED: u64 = 7;

fn port(transports: Transports) -> End<AcceptedQpair> {
    let settings = QpairSettings {
        transports,
        tcp: Settings {
            handshake_timeout: TIMEOUT,
            ..Settings::default()
        },
        rdma: RdmaSettings {
            stream: QpSettings {
                handshake_timeout: TIMEOUT,
                ..QpSettings::default()
            },
            ..RdmaSettings::default()
        },
    };
    End::new(AcceptedQpair::new(settings, 5, ACCEPTED))
}

/// What comes of these bytes, received one by one: what is sent, and why the connection ends.
fn answered(port: &mut End<AcceptedQpair>, bytes: &[u8]) -> (Vec<u8>, Option<QpairError>) {
    let mut stream: VecDeque<u8> = bytes.iter().copied().collect();
    let (mut sent, mut fatal) = (VecDeque::new(), None);
    while !stream.is_empty() {
        assert_eq!(port.machine.deadline(), Some(ACCEPTED + TIMEOUT));
        port.receive(&mut stream, 1);
        match port.next_op() {
            None => {}
            Some(Op::Fatal(why)) => fatal = Some(why),
            Some(other) => panic!("{other:?}"),
        }
        port.transmit(&mut sent, usize::MAX);
        if port.machine.is_finished() {
            break;
        }
    }
    (sent.into(), fatal)
}

fn mpa_request() -> Vec<u8> {
    let request = CmRequest {
        hrqsize: 32.into(),
        hsqsize: 31.into(),
        ..CmRequest::new_zeroed()
    };
    mpa_frame(MPA_REQUEST_KEY, (0, 2), Some((16, 16)), request.as_bytes())
}

#[test]
fn port_for_both_is_what_the_first_byte_says() {
    let mut by_tcp = port(Transports::Both);
    let (sent, fatal) = answered(&mut by_tcp, &Pdus::default().ic_req(0));
    assert_eq!((sent[0], fatal), (pdu_type::IC_RESP, None));
    assert_eq!(by_tcp.machine.transport(), Transport::Tcp);

    let mut by_rdma = port(Transports::Both);
    let (sent, fatal) = answered(&mut by_rdma, &mpa_request());
    let (frame, data) = MpaFrame::ref_from_prefix(&sent).expect("a Reply");
    assert_eq!((&frame.key, fatal), (MPA_REPLY_KEY, None));
    assert_eq!(frame.flags & mpa_flags::REJECT, 0);
    let accept = CmAccept::ref_from_bytes(&data[4..]).expect("behind IRD and ORD");
    assert_eq!(accept.crqsize.get(), 32);
    assert_eq!(by_rdma.machine.transport(), Transport::Rdma);
}

#[test]
fn port_for_one_transport_refuses_the_other() {
    let mut port_of_tcp = port(Transports::Tcp);
    let (sent, fatal) = answered(&mut port_of_tcp, &mpa_request());
    let (frame, _) = MpaFrame::ref_from_prefix(&sent).expect("a Reply");
    assert_ne!(frame.flags & mpa_flags::REJECT, 0);
    let why = QpairError::Rdma(RdmaError::NotServed);
    assert_eq!(fatal, Some(why));
    assert!(why.to_string().contains("`rdma = true`"));

    let mut port_of_rdma = port(Transports::Rdma);
    let (sent, fatal) = answered(&mut port_of_rdma, &Pdus::default().ic_req(0));
    assert_eq!(sent[0], pdu_type::C2H_TERM_REQ);
    assert_eq!(fatal, Some(QpairError::TcpNotServed));
    let (_, fatal) = answered(&mut port(Transports::Rdma), &mpa_request());
    assert_eq!(fatal, None);
}

#[test]
fn rdma_inside_tls_is_rejected() {
    let mut port = port(Transports::Both);
    port.machine.secured();
    let (sent, fatal) = answered(&mut port, &mpa_request());
    let (frame, _) = MpaFrame::ref_from_prefix(&sent).expect("a Reply");
    assert_ne!(frame.flags & mpa_flags::REJECT, 0);
    assert_eq!(fatal, Some(QpairError::Rdma(RdmaError::InTls)));
}

#[test]
fn host_that_says_nothing_more_than_its_first_byte_ends_in_time() {
    for first in [b'M', 0] {
        let mut port = port(Transports::Both);
        answered(&mut port, &[first]);
        port.machine.on_deadline(ACCEPTED + TIMEOUT - 1);
        assert!(!port.machine.is_finished());
        port.machine.on_deadline(ACCEPTED + TIMEOUT);
        assert!(port.machine.is_finished());
    }
}
