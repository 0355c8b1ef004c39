use proptest::prelude::*;
use wire::scsi::{asc, key};

use super::*;
use crate::sense::Specific;

const RESERVE_TYPE: u8 = 0x05;

fn out(action: u8, list_len: usize) -> Out {
    Out::new(action, 0, RESERVE_TYPE, list_len as u32).expect("a CDB that is right")
}

/// A basic parameter list with keys 1 and 2, flags in byte 20, and what follows.
fn basic(flags: u8, rest: &[u8]) -> Vec<u8> {
    let mut list = [1_u64, 2].map(u64::to_be_bytes).concat();
    list.extend([0, 0, 0, 0, flags, 0, 0, 0]);
    list.extend(rest);
    list
}

/// A TransportID as open-iscsi's users give it to sg_persist.
fn id(format: u8, name: &str) -> Vec<u8> {
    let len = (name.len() + 1).next_multiple_of(4).max(20);
    let mut bytes = vec![format | 5, 0, 0, len as u8];
    bytes.extend(name.as_bytes());
    bytes.resize(4 + len, 0);
    bytes
}

fn with_ids(ids: &[Vec<u8>]) -> Vec<u8> {
    let ids = ids.concat();
    let mut rest = (ids.len() as u32).to_be_bytes().to_vec();
    rest.extend(ids);
    rest
}

fn ask(action: u8, list: &[u8]) -> Result<ReserveOut, Sense> {
    out(action, list.len()).request(list)
}

#[test]
fn every_service_action_is_read() {
    let list = basic(0, &[]);
    let kind = Type::WriteExclusiveRegistrantsOnly;
    let register = |current, persist, all_ports| ReserveOut::Register {
        current,
        key: 2,
        persist,
        all_ports,
        initiators: Vec::new(),
    };
    let preempt = |aborts| ReserveOut::Preempt {
        current: 1,
        victim: 2,
        kind,
        aborts,
    };
    for (action, expected) in [
        (reserve_out::REGISTER, register(Some(1), false, false)),
        (
            reserve_out::RESERVE,
            ReserveOut::Reserve { current: 1, kind },
        ),
        (
            reserve_out::RELEASE,
            ReserveOut::Release { current: 1, kind },
        ),
        (reserve_out::CLEAR, ReserveOut::Clear { current: 1 }),
        (reserve_out::PREEMPT, preempt(false)),
        (reserve_out::PREEMPT_AND_ABORT, preempt(true)),
        (
            reserve_out::REGISTER_AND_IGNORE_EXISTING_KEY,
            register(None, false, false),
        ),
    ] {
        assert_eq!(ask(action, &list), Ok(expected), "{action}");
        for wrong in [0, 23, 25] {
            let mut list = list.clone();
            list.resize(wrong, 0);
            let refused = ask(action, &list);
            assert_eq!(refused, Err(Sense::list_length()), "{action}, {wrong}");
        }
    }
    let registered = ask(reserve_out::REGISTER, &basic(0x05, &[]));
    assert_eq!(registered, Ok(register(Some(1), true, true)));
}

#[test]
fn reserved_actions_types_and_scopes_are_refused() {
    for action in 8..32 {
        let refused = Out::new(action, 0, 1, 24);
        assert_eq!(refused, Err(Sense::in_cdb(1, Some(4))));
    }
    let types: Vec<u8> = (0..16)
        .filter(|kind| Out::new(reserve_out::RESERVE, 0, *kind, 24).is_ok())
        .collect();
    assert_eq!(types, [1, 3, 5, 6, 7, 8]);
    let scope = Out::new(reserve_out::PREEMPT, 1, 1, 24);
    assert_eq!(scope, Err(Sense::in_cdb(2, Some(7))));
    // Where they have no meaning they are not looked at.
    Out::new(reserve_out::CLEAR, 1, 0, 24).unwrap();
    let long = Out::new(reserve_out::REGISTER, 0, 0, LIST_BYTES_MAX + 1);
    assert_eq!(long, Err(Sense::list_length()));
    assert_eq!(In::new(4, 8), Err(Sense::in_cdb(1, Some(4))));
}

#[test]
fn register_can_name_other_initiators() {
    let ids = with_ids(&[
        id(0x40, "iqn.2004-01.ORG.example:A,i,0x00023D00000a"),
        id(0, "eui.0011223344556677"),
    ]);
    let list = basic(0x08, &ids);
    let Ok(ReserveOut::Register { initiators, .. }) = ask(reserve_out::REGISTER, &list) else {
        panic!("not read");
    };
    let expected = [
        Initiator {
            name: "iqn.2004-01.org.example:a".to_owned(),
            isid: Some([0, 2, 0x3d, 0, 0, 0x0a]),
        },
        Initiator {
            name: "eui.0011223344556677".to_owned(),
            isid: None,
        },
    ];
    assert_eq!(initiators, expected);
    let ignoring = ask(reserve_out::REGISTER_AND_IGNORE_EXISTING_KEY, &list);
    assert_eq!(ignoring, Err(Sense::in_list(20, Some(3))));
    for cut in 24..list.len() {
        let refused = ask(reserve_out::REGISTER, &list[..cut]);
        assert_eq!(refused, Err(Sense::list_length()), "{cut}");
    }
}

#[test]
fn a_malformed_transport_id_is_refused() {
    let mut unending = id(0, "iqn.2004-01.org.example:0123456");
    let end = unending.len();
    unending[4..end].fill(b'a');
    let mut odd = id(0, "eui.0011223344556677");
    odd[3] = 22;
    let mut fibre_channel = id(0, "eui.0011223344556677");
    fibre_channel[0] = 0;
    for (wrong, byte) in [
        (fibre_channel, 28),
        (id(0x80, "eui.0011223344556677"), 28),
        (odd, 30),
        (id(0, ""), 32),
        (id(0x40, "eui.0011223344556677"), 32),
        (id(0x40, "eui.0011223344556677,i,0x"), 32),
        (id(0x40, "eui.0011223344556677,i,0x0123456789abc"), 32),
        (id(0x40, "eui.0011223344556677,i,0xg"), 32),
        (unending, 32),
    ] {
        let list = basic(0x08, &with_ids(std::slice::from_ref(&wrong)));
        let refused = ask(reserve_out::REGISTER, &list).unwrap_err();
        assert_eq!(refused.code, asc::INVALID_FIELD_IN_PARAMETER_LIST);
        let at = Specific::Field {
            in_cdb: false,
            byte,
            bit: None,
        };
        assert_eq!(refused.specific, at, "{wrong:02x?}");
    }
}

#[test]
fn register_and_move_names_one_port() {
    let port = id(0x40, "iqn.2004-01.org.example:b,i,0x1");
    let list = |flags: u8, id: &[u8]| {
        let mut list = [1_u64, 2].map(u64::to_be_bytes).concat();
        list.extend([0, flags, 0x01, 0x02]);
        list.extend((id.len() as u32).to_be_bytes());
        list.extend(id);
        list
    };
    let moved = |unregister, persist| ReserveOut::Move {
        current: 1,
        key: 2,
        unregister,
        persist,
        port: 0x0102,
        initiator: Initiator {
            name: "iqn.2004-01.org.example:b".to_owned(),
            isid: Some([0, 0, 0, 0, 0, 1]),
        },
    };
    let ask = |list: &[u8]| ask(reserve_out::REGISTER_AND_MOVE, list);
    assert_eq!(ask(&list(0, &port)), Ok(moved(false, false)));
    assert_eq!(ask(&list(2, &port)), Ok(moved(true, false)));
    assert_eq!(ask(&list(1, &port)), Ok(moved(false, true)));
    let nameless = id(0, "iqn.2004-01.org.example:b");
    let twice = [port.clone(), port.clone()].concat();
    for wrong in [&nameless, &twice] {
        assert_eq!(ask(&list(0, wrong)), Err(Sense::in_list(24, None)));
    }
    let short = &list(0, &port)[..40];
    assert_eq!(ask(short), Err(Sense::list_length()));
    assert_eq!(ask(&list(0, &[])), Err(Sense::list_length()));
}

fn status() -> Status<'static> {
    Status {
        generation: 0x0102_0304,
        kind: Some(Type::WriteExclusiveRegistrantsOnly),
        persist: true,
        can_persist: true,
        registered: vec![
            Registered {
                key: 0xa1,
                is_holder: false,
                initiator: "iqn.2026-01.io.weft:nvme-host:00112233445566778899aabbccddeeff",
                port: 0,
            },
            Registered {
                key: 0xb2,
                is_holder: true,
                initiator: "iqn.2004-01.org.example:a,i,0x00023d000001",
                port: 3,
            },
        ],
    }
}

fn answer(status: &Status<'_>, question: Question, allocation_len: u16) -> Vec<u8> {
    status.answer(In {
        question,
        allocation_len,
    })
}

#[test]
fn keys_and_reservation_are_told_as_the_standard_lays_them_out() {
    let mut status = status();
    let head = |len| [[1, 2, 3, 4], [0, 0, 0, len]].concat();
    let keys = [0xa1_u64, 0xb2].map(u64::to_be_bytes).concat();
    let all = [head(16), keys].concat();
    for len in 0..40 {
        let told = answer(&status, Question::Keys, len as u16);
        assert_eq!(told, all[..len.min(24)], "{len}");
    }
    let reservation = |key: u8, kind| {
        let body = [[0, 0, 0, 0, 0, 0, 0, key], [0, 0, 0, 0, 0, kind, 0, 0]];
        [head(16), body.concat()].concat()
    };
    let told = answer(&status, Question::Reservation, 255);
    assert_eq!(told, reservation(0xb2, 5));
    status.kind = Some(Type::ExclusiveAccessAllRegistrants);
    let told = answer(&status, Question::Reservation, 255);
    assert_eq!(told, reservation(0, 8));
    status.kind = None;
    assert_eq!(answer(&status, Question::Reservation, 255), head(0));
}

#[test]
fn capabilities_are_what_is_there() {
    let mut status = status();
    let told = answer(&status, Question::Capabilities, 255);
    assert_eq!(told, [0, 8, 0x1d, 0x81, 0xea, 0x01, 0, 0]);
    (status.persist, status.can_persist) = (false, false);
    let told = answer(&status, Question::Capabilities, 4);
    assert_eq!(told, [0, 8, 0x1c, 0x80]);
}

#[test]
fn full_status_names_every_registrant() {
    let status = status();
    let told = answer(&status, Question::FullStatus, u16::MAX);
    let (first, second) = (id(0, status.registered[0].initiator), {
        id(0x40, status.registered[1].initiator)
    });
    let mut expected = vec![1, 2, 3, 4];
    expected.extend(((48 + first.len() + second.len()) as u32).to_be_bytes());
    expected.extend([
        0, 0, 0, 0, 0, 0, 0, 0xa1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ]);
    expected.extend((first.len() as u32).to_be_bytes());
    expected.extend(&first);
    expected.extend([
        0, 0, 0, 0, 0, 0, 0, 0xb2, 0, 0, 0, 0, 1, 5, 0, 0, 0, 0, 0, 3,
    ]);
    expected.extend((second.len() as u32).to_be_bytes());
    expected.extend(&second);
    assert_eq!(told, expected);
    for len in [0, 7, 8, 9, 40, 100, 150] {
        let told = answer(&status, Question::FullStatus, len);
        assert_eq!(told, expected[..usize::from(len)]);
    }
    // What is told of an initiator is what can be said of it.
    let (initiator, used) = transport_id(&second, 0).unwrap();
    assert_eq!(used, second.len());
    let name = initiator_port(&initiator.name, initiator.isid.unwrap());
    assert_eq!(name, status.registered[1].initiator);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn no_parameter_list_is_read_past_its_end(
        action in 0..8_u8,
        mut list in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 0..200),
        named in any::<bool>(),
        fits in any::<bool>(),
    ) {
        if list.len() > 32 && named {
            list[20] = 0x08;
            let rest = list.len() as u32 - 28;
            let at = if action == 7 { 20 } else { 24 };
            let rest = if action == 7 { rest + 4 } else { rest };
            if fits {
                list[at..at + 4].copy_from_slice(&rest.to_be_bytes());
            }
            list[28] = 0x45;
        }
        if let Err(sense) = ask(action, &list) {
            prop_assert_eq!(sense.key, key::ILLEGAL_REQUEST);
        }
    }
}
