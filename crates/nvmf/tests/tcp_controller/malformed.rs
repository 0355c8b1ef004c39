use super::*;

/// What is sent, and the FES and FEI that must come back.
type Malformed = (&'static str, Vec<u8>, u16, u32);

fn malformed_commands(pdus: Pdus) -> Vec<Malformed> {
    let read = pdus.capsule_cmd(&rw(io::READ, 1, 0, 1, Sgl::TRANSPORT), &[]);
    let write = pdus.capsule_cmd(&rw(io::WRITE, 1, 0, 1, Sgl::IN_CAPSULE), &[0; 512]);
    let with = |base: &[u8], edits: &[(usize, u8)]| {
        let mut bytes = base.to_vec();
        edits.iter().for_each(|(at, value)| bytes[*at] = *value);
        if pdus.header_digest && bytes.len() >= 76 {
            let crc = machine::crc32c(&bytes[..72], 0);
            bytes[72..76].copy_from_slice(&crc.to_le_bytes());
        }
        bytes
    };
    let large = pdus.capsule_cmd(&rw(io::WRITE, 1, 0, 17, Sgl::IN_CAPSULE), &[0; 8704]);
    let digests = pdus.dgst();
    let used = read.len() as u8;
    vec![
        ("unknown type", with(&read, &[(0, 0x0a)]), 1, 0),
        ("a controller's PDU", with(&read, &[(0, 5)]), 1, 0),
        ("ICReq again", Pdus::default().ic_req(0), 2, 0),
        ("HLEN", with(&read, &[(2, 71)]), 1, 2),
        ("HDGST flag", with(&read, &[(1, !digests & 1)]), 1, 1),
        (
            "DDGST flag",
            with(&write, &[(1, (digests & 1) | (!digests & 2))]),
            1,
            1,
        ),
        ("PLEN too short", with(&read, &[(4, 71)]), 1, 4),
        (
            "PLEN without data",
            with(&write, &[(4, used + (digests & 2) * 2), (5, 0)]),
            1,
            { if digests & 2 == 0 { u32::MAX } else { 4 } },
        ),
        ("PDO in the header", with(&write, &[(3, used - 4)]), 1, 3),
        ("PDO 0 with data", with(&write, &[(3, 0)]), 1, 3),
        ("PDO unaligned", with(&write, &[(3, used + 1)]), 1, 3),
        (
            "PDO past the end",
            with(&write, &[(3, 252), (4, 200), (5, 0)]),
            1,
            3,
        ),
        ("too much in the capsule", large, 5, 0),
        (
            "data that no R2T asked for",
            pdus.data(6, 4, (1, 0), 0, &[0; 512]),
            1,
            10,
        ),
    ]
    .into_iter()
    .filter(|case| case.3 != u32::MAX)
    .collect()
}

pub(super) fn expect_term(name: &str, answers: &[(u8, Vec<u8>)], sent: &[u8], fes: u16, fei: u32) {
    assert_eq!(answers.len(), 1, "{name}: {answers:?}");
    let bytes = &answers[0].1;
    assert_eq!(bytes[0], pdu_type::C2H_TERM_REQ, "{name}");
    let term: &TermReq = view(bytes);
    assert_eq!((term.fes.get(), term.fei.get()), (fes, fei), "{name}");
    assert_eq!(term.ch.hlen, 24, "{name}");
    let header = &bytes[24..];
    assert!(header.len() >= 8 && header.len() <= 128, "{name}");
    assert_eq!(header, &sent[..header.len()], "{name}: the PDU in error");
}

#[test]
fn malformed_pdus_end_the_connection() {
    for digests in 0..4 {
        let pdus = Pdus {
            header_digest: digests & 1 != 0,
            data_digest: digests & 2 != 0,
        };
        for (name, bytes, fes, fei) in malformed_commands(pdus) {
            let mut peer = Peer::live(1, true, pdus);
            let answers = peer.send(&bytes);
            expect_term(name, &answers, &bytes, fes, fei);
            let machine = &peer.target.end.machine;
            assert!(
                machine.is_finished() && peer.target.fatal.is_some(),
                "{name}"
            );
            assert_eq!(peer.send(&bytes), [], "{name}: nothing comes after it");
        }
    }
}

#[test]
fn malformed_ic_reqs_end_the_connection() {
    let good = Pdus::default().ic_req(0);
    for (at, value, fes, fei) in [
        (0, pdu_type::CAPSULE_CMD, 2, 0),
        (0, pdu_type::H2C_DATA, 2, 0),
        (0, pdu_type::IC_RESP, 1, 0),
        (1, flags::HDGST, 1, 1),
        (2, 127, 1, 2),
        (4, 127, 1, 4),
        (5, 1, 1, 4),
        (8, 1, 6, 8),
        (10, 32, 6, 10),
    ] {
        let mut bytes = good.clone();
        bytes[at] = value;
        let mut peer = Peer::fresh(1, true);
        let answers = peer.send(&bytes);
        expect_term(&format!("byte {at} = {value}"), &answers, &bytes, fes, fei);
    }
}

#[test]
fn malformed_data_ends_the_connection() {
    let pdus = Pdus::default();
    let piece = [0; 4096];
    let data = |flags, ids, at, data: &[u8]| pdus.data(pdu_type::H2C_DATA, flags, ids, at, data);
    let mut wrong_datal = data(0, (1, 0), 0, &piece);
    wrong_datal[16] = 1;
    let mut no_data = data(0, (1, 0), 0, &[]);
    no_data[16] = 0;
    let limit = vec![0; MAXH2CDATA as usize + 4];
    for (name, bytes, fes, fei) in [
        ("TTAG beyond", data(0, (1, 1), 0, &piece), 1, 10),
        ("CCCID", data(0, (2, 0), 0, &piece), 1, 8),
        ("DATAL", wrong_datal, 1, 16),
        ("no data", no_data, 1, 16),
        ("over MAXH2CDATA", data(0, (1, 0), 0, &limit), 5, 0),
        ("a gap", data(0, (1, 0), 4, &piece), 2, 0),
        ("beyond", data(0, (1, 0), 8192, &piece), 4, 0),
        ("far beyond", data(0, (1, 0), u32::MAX - 8, &piece), 4, 0),
        ("LAST early", data(flags::LAST_PDU, (1, 0), 0, &piece), 2, 0),
        ("LAST missing", data(0, (1, 0), 0, &[0; 8192]), 2, 0),
        (
            "again",
            [data(0, (1, 0), 0, &piece), data(0, (1, 0), 0, &piece)].concat(),
            2,
            0,
        ),
        (
            "after the last",
            [
                data(flags::LAST_PDU, (1, 0), 0, &[0; 8192]),
                data(flags::LAST_PDU, (1, 0), 0, &piece),
            ]
            .concat(),
            1,
            10,
        ),
        (
            "too much",
            data(flags::LAST_PDU, (1, 0), 0, &[0; 8196]),
            4,
            0,
        ),
    ] {
        let mut peer = Peer::io();
        let answers = peer.command(&rw(io::WRITE, 1, 0, 16, Sgl::TRANSPORT), &[]);
        assert_eq!(answers[0].0, pdu_type::R2T);
        // The PDU in error is the last one.
        let at = match name {
            "again" | "after the last" => bytes.len() - (24 + piece.len()),
            _ => 0,
        };
        expect_term(name, &peer.send(&bytes), &bytes[at..], fes, fei);
    }
    // Data for an R2T that is not sent yet.
    let mut peer = Peer::io();
    peer.push(&pdus.capsule_cmd(&rw(io::WRITE, 1, 0, 16, Sgl::TRANSPORT), &[]));
    peer.target.feed(0);
    let bytes = data(0, (1, 0), 0, &piece);
    expect_term("before R2T", &peer.send(&bytes), &bytes, 1, 10);
}

#[test]
fn a_header_digest_error_ends_the_connection() {
    let pdus = Pdus {
        header_digest: true,
        data_digest: false,
    };
    for at in [4, 5, 20, 71, 73] {
        let mut peer = Peer::live(1, true, pdus);
        let mut bytes = pdus.capsule_cmd(&rw(io::READ, 1, 0, 1, Sgl::TRANSPORT), &[]);
        bytes[at] ^= 4;
        let received = u32::from_le_bytes(bytes[72..76].try_into().unwrap());
        expect_term(
            &format!("byte {at}"),
            &peer.send(&bytes),
            &bytes,
            3,
            received,
        );
    }
}

#[test]
fn a_termination_request_is_not_answered() {
    let (term, data) = TermReq::new(pdu_type::H2C_TERM_REQ, Fes::PduSequenceError, 3, &[1; 24]);
    let bytes = [term.as_bytes(), data].concat();
    let mut peer = Peer::io();
    assert_eq!(peer.send(&bytes), []);
    assert_eq!(
        peer.target.fatal,
        Some(FatalError::Received {
            fes: 2,
            fei: 3,
            name: "PDU Sequence Error"
        })
    );
    assert!(peer.target.end.machine.is_finished());
}

/// A receive may be under way when the connection ends, and bring data afterwards.
#[test]
fn payload_that_arrives_after_the_end_is_used_up() {
    let mut peer = Peer::fresh(1, true);
    peer.send(&peer.pdus.ic_req(0));
    let connect = peer.pdus.capsule_cmd(&connect_sqe(), &[9; 1024]);
    peer.send(&connect[..72]);
    let machine = &mut peer.target.end.machine;
    assert!(machine.recv_plan().direct.is_some());
    machine.on_deadline(machine.deadline().expect("there is one"));
    assert!(machine.is_finished());
    machine.on_direct(10);
}

/// A host may go on with the data of a Write behind its Disconnect.
#[test]
fn payload_that_arrives_after_the_answer_to_a_disconnect_is_used_up() {
    let mut peer = Peer::io();
    let write = rw(io::WRITE, 1, 0, 16, Sgl::TRANSPORT);
    let r2t = peer.command(&write, &[]);
    let ttag = view::<wire::nvme_tcp::R2t>(&r2t[0].1).ttag.get();
    let mut bytes = peer
        .pdus
        .capsule_cmd(&Disconnect { recfmt: 0 }.encode(), &[]);
    let last = flags::LAST_PDU;
    let data = peer
        .pdus
        .data(pdu_type::H2C_DATA, last, (1, ttag), 0, &[7; 8192]);
    bytes.extend(&data[..24]);
    peer.push(&bytes);
    peer.target.execute(0);
    assert!(peer.target.end.machine.recv_plan().direct.is_some());
    assert_eq!(peer.transmit(9).len(), 1);
    assert!(peer.target.end.machine.is_finished());
    peer.target.end.machine.on_direct(4096);
}

#[test]
fn other_protocol_is_told_by_its_name_and_ended_as_a_wrong_pdu_is() {
    let login = [&[0x43, 0x87, 0, 0][..], &[0; 44]].concat();
    let call = [
        0x80, 0, 0, 40, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x86, 0xa3,
    ];
    let told = |bytes: &[u8]| {
        let mut peer = Peer::fresh(0, true);
        let answers = peer.send(bytes);
        expect_term("another protocol", &answers, bytes, 1, 0);
        peer.target.fatal.expect("it ends").to_string()
    };
    for (bytes, name) in [
        (&[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], "TLS"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"CONNECT a:1 HTTP/1.1\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH\r\n", "SSH"),
        (&login, "iSCSI"),
        (&call, "ONC RPC"),
        (b"MPA ID Req Frame\x40\x01\0\0", "MPA"),
    ] {
        let told = told(bytes);
        assert!(told.contains(&format!("it speaks {name}")), "{told}");
    }
    assert!(told(b"GET what is no request").contains("PDU of type 47h"));
    // Behind ICReq it is a wrong PDU.
    let mut peer = Peer::fresh(0, true);
    peer.send(&Pdus::default().ic_req(0));
    peer.send(b"GET / HTTP/1.1\r\n");
    let told = peer.target.fatal.expect("it ends").to_string();
    assert!(told.contains("PDU of type 47h"), "{told}");
}
