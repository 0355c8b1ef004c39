//! What a target must not send.

use proptest::prelude::*;
use wire::iscsi::{TAG_NONE, opcode};

use super::*;

/// A peer with a read of 1,024 bytes and a write of 60,000 in flight, and their tags.
fn busy() -> (Peer, u32, u32) {
    let mut peer = in_full_feature();
    peer.read(1024);
    peer.write(60_000);
    let sent = peer.sent();
    let (read, write) = (sent[0].bhs.itt.get(), sent[1].bhs.itt.get());
    (peer, read, write)
}

#[test]
fn pdu_that_breaks_the_protocol_ends_the_connection() {
    type Make = fn(u32, u32) -> (Vec<u8>, usize);
    let cases: &[(&str, Make)] = &[
        ("data without a command", |_, _| {
            (data_in(77, 0, 0).as_bytes().to_vec(), 4)
        }),
        ("another connection's tag", |r, _| {
            (data_in(r | 1 << 16, 0, 0).as_bytes().to_vec(), 4)
        }),
        ("data of a write", |_, w| {
            (data_in(w, 0, 0).as_bytes().to_vec(), 4)
        }),
        ("a DataSN left out", |r, _| {
            (data_in(r, 1, 0).as_bytes().to_vec(), 4)
        }),
        ("data left out", |r, _| {
            (data_in(r, 0, 4).as_bytes().to_vec(), 4)
        }),
        ("more data than was expected", |r, _| {
            (data_in(r, 0, 0).as_bytes().to_vec(), 1028)
        }),
        ("a status before the end", |r, _| {
            let mut pdu = data_in(r, 0, 0);
            pdu.flags = flags::STATUS;
            pdu.stat_sn = 101.into();
            (pdu.as_bytes().to_vec(), 4)
        }),
        ("a StatSN left out", |r, _| {
            let mut pdu = response(r);
            pdu.stat_sn = 102.into();
            (pdu.as_bytes().to_vec(), 0)
        }),
        ("a StatSN used twice", |r, _| {
            let mut pdu = response(r);
            pdu.stat_sn = 100.into();
            (pdu.as_bytes().to_vec(), 0)
        }),
        ("R2T for a read", |r, _| {
            (r2t(r, 0, 0, 512).as_bytes().to_vec(), 0)
        }),
        ("R2T for nothing", |_, w| {
            (r2t(w, 0, 16_384, 0).as_bytes().to_vec(), 0)
        }),
        ("R2T above MaxBurstLength", |_, w| {
            (r2t(w, 0, 16_384, 65_537).as_bytes().to_vec(), 0)
        }),
        ("R2T beyond the end", |_, w| {
            (r2t(w, 0, 16_384, 43_617).as_bytes().to_vec(), 0)
        }),
        ("R2T that leaves data out", |_, w| {
            (r2t(w, 0, 16_388, 4).as_bytes().to_vec(), 0)
        }),
        ("R2T for what was sent", |_, w| {
            (r2t(w, 0, 0, 4).as_bytes().to_vec(), 0)
        }),
        ("an R2TSN left out", |_, w| {
            (r2t(w, 1, 16_384, 4).as_bytes().to_vec(), 0)
        }),
        ("R2T without a tag", |_, w| {
            let mut pdu = r2t(w, 0, 16_384, 4);
            pdu.ttt = TAG_NONE.into();
            (pdu.as_bytes().to_vec(), 0)
        }),
        ("a segment longer than declared", |r, _| {
            (response(r).as_bytes().to_vec(), 256 * 1024 + 1)
        }),
        ("an opcode of initiators", |_, _| {
            let mut pdu = response(0);
            pdu.first = opcode::SCSI_COMMAND;
            (pdu.as_bytes().to_vec(), 0)
        }),
        ("a login response", |_, _| {
            let mut pdu = response(0);
            pdu.first = opcode::LOGIN_RESPONSE;
            (pdu.as_bytes().to_vec(), 0)
        }),
        ("an answer to no text request", |r, _| {
            let mut pdu = response(r);
            pdu.first = opcode::TEXT_RESPONSE;
            pdu.stat_sn = 101.into();
            (pdu.as_bytes().to_vec(), 0)
        }),
        ("a reject of nothing", |_, _| {
            let mut pdu = response(TAG_NONE);
            pdu.first = opcode::REJECT;
            pdu.stat_sn = 101.into();
            (pdu.as_bytes().to_vec(), 4)
        }),
    ];
    for (name, make) in cases {
        let (mut peer, read, write) = busy();
        let (header, len) = make(read, write);
        peer.push(&header, &vec![0; len]);
        let ops = peer.ops();
        assert!(
            matches!(ops[..], [InitiatorOp::Fatal(InitiatorFatalError::Protocol { opcode, .. })]
                if opcode == header[0] & 0x3f),
            "{name}: {ops:?}"
        );
        assert!(peer.end.machine.is_finished());
        assert_eq!(
            (peer.sent().len(), peer.end.machine.room()),
            (0, 0),
            "{name}"
        );
    }
}

#[test]
fn one_r2t_too_many_ends_the_connection() {
    let (mut peer, _, write) = busy();
    for sn in 0..2 {
        peer.push(r2t(write, sn, 16_384 + sn * 512, 512).as_bytes(), b"");
        assert_eq!(peer.ops(), []);
    }
    peer.push(r2t(write, 2, 16_384 + 1024, 512).as_bytes(), b"");
    assert!(matches!(peer.ops()[..], [InitiatorOp::Fatal(_)]));
    // Where the data of the first has gone out there is room for the third.
    let (mut peer, _, write) = busy();
    for sn in 0..3 {
        peer.push(r2t(write, sn, 16_384 + sn * 512, 512).as_bytes(), b"");
        assert_eq!(peer.ops(), []);
        assert_eq!(peer.sent().len(), 1);
    }
}

#[test]
fn digests_that_do_not_match_end_the_connection() {
    let settings = InitiatorSettings {
        header_digest: Digest::Required,
        data_digest: Digest::Required,
        ..settings()
    };
    let keys = [("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")];
    for (at, error) in [
        (3, InitiatorFatalError::HeaderDigest),
        (49, InitiatorFatalError::HeaderDigest),
        (
            53,
            InitiatorFatalError::DataDigest {
                opcode: opcode::SCSI_RESPONSE,
            },
        ),
        // A bit of the padding counts as well.
        (
            57,
            InitiatorFatalError::DataDigest {
                opcode: opcode::SCSI_RESPONSE,
            },
        ),
    ] {
        let mut peer = Peer::logged_in(settings.clone(), &answer_with(&keys), 32);
        peer.plain();
        let itt = peer.sent()[0].bhs.itt.get();
        let mut failed = response(itt);
        failed.status = 2;
        failed.stat_sn = peer.stat_sn.into();
        peer.push(failed.as_bytes(), &[0, 3, 1, 2, 3]);
        peer.out[at] ^= 0x10;
        assert_eq!(peer.ops(), [InitiatorOp::Fatal(error)], "byte {at}");
    }
}

#[test]
fn the_phase_of_login_has_its_own_pdus() {
    let mut peer = Peer::new(settings());
    peer.push(response(0).as_bytes(), b"");
    assert!(matches!(
        peer.ops()[..],
        [InitiatorOp::Fatal(InitiatorFatalError::Protocol { .. })]
    ));
    let mut peer = Peer::new(settings());
    let request = peer.sent().pop().expect("a request");
    let login: &LoginRequest = request.bhs.cast();
    let mut answer = LoginResponse::new();
    answer.flags = login.flags;
    answer.isid = [1; 6];
    answer.tsih = TSIH.into();
    let ops = peer.answer(answer.as_bytes(), b"");
    assert!(
        matches!(ops[..], [InitiatorOp::Fatal(_)]),
        "another ISID: {ops:?}"
    );
    let mut peer = Peer::new(settings());
    answer.isid = ISID;
    answer.tsih = 0.into();
    let ops = peer.answer(answer.as_bytes(), b"");
    assert!(
        matches!(ops[..], [InitiatorOp::Fatal(_)]),
        "no TSIH: {ops:?}"
    );
    let mut peer = Peer::new(settings());
    answer.flags = flags::TRANSIT | 3;
    let ops = peer.answer(answer.as_bytes(), b"");
    assert!(
        matches!(ops[..], [InitiatorOp::Fatal(_)]),
        "another stage: {ops:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Bytes of any kind, with headers that look right, never panic and never
    /// leave a machine that is not finished with a fatal error behind it.
    #[test]
    fn any_bytes_are_taken_or_refused(
        pdus in proptest::collection::vec(
            (0usize..16, 0usize..48, any::<u8>(), 0usize..600), 1..12),
        chunk in 1usize..3000,
    ) {
        let (mut peer, read, write) = busy();
        peer.receive_max = chunk;
        let mut tags = [read, write, TAG_NONE, 0x1234].into_iter().cycle();
        for (kind, at, value, len) in pdus {
            let opcodes = [0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x31, 0x32, 0x3f];
            let mut header = response(tags.next().expect("a cycle")).as_bytes().to_vec();
            header[0] = opcodes[kind % opcodes.len()];
            header[24..28].copy_from_slice(&peer.stat_sn.to_be_bytes());
            header[at] = value;
            peer.push(&header, &pattern(len as u32));
            let ops = peer.ops();
            let fatal = ops.iter().position(|op| matches!(op, InitiatorOp::Fatal(_)));
            prop_assert_eq!(fatal.is_some(), peer.end.machine.is_finished() && !ops.is_empty());
            if let Some(at) = fatal {
                prop_assert_eq!(at, ops.len() - 1);
                break;
            }
            peer.stat_sn = peer.stat_sn.wrapping_add(u32::from(!ops.is_empty()));
        }
    }
}
