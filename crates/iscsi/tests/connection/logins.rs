//! The Login Phase's PDUs.

use wire::iscsi::{LoginRequest, LoginResponse, LoginStatus, Stage};
use zerocopy::IntoBytes;

use super::*;

fn login(flags: u8, text: &[u8]) -> Vec<u8> {
    let request = LoginRequest {
        first: LoginRequest::OPCODE | 0x40,
        flags,
        isid: [0x80, 1, 2, 3, 4, 5],
        itt: 9.into(),
        cmd_sn: CMD_SN.into(),
        exp_stat_sn: 77.into(),
        ..LoginRequest::new()
    };
    Pdus::default().pdu(request.as_bytes(), text)
}

const SECURITY: u8 = (Stage::Security as u8) << 2;
const TO_FULL_FEATURE: u8 =
    flags::TRANSIT | (Stage::Operational as u8) << 2 | Stage::FullFeature as u8;

fn header(pdu: &Pdu) -> &LoginResponse {
    pdu.bhs.cast()
}

#[test]
fn steps_are_answered_with_the_numbers_of_the_connection() {
    let mut peer = Peer::fresh(keys());
    peer.target.text_answer = b"a=1\0".to_vec();
    let answers = peer.send(&login(SECURITY, b"InitiatorName=x\0"));
    let [answer] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(answer.data, b"a=1\0");
    assert_eq!(header(answer).stat_sn.get(), 77);
    assert_eq!(header(answer).exp_cmd_sn.get(), CMD_SN);
    assert_eq!(header(answer).tsih.get(), 0);
    assert_eq!(header(answer).itt.get(), 9);
    let answers = peer.send(&login(TO_FULL_FEATURE, b""));
    let last = header(&answers[0]);
    assert_eq!((last.stat_sn.get(), last.tsih.get()), (78, 7));
    assert_eq!(last.exp_cmd_sn.get(), CMD_SN);
    assert_eq!(last.max_cmd_sn.get(), CMD_SN.wrapping_add(7));
    assert_eq!(peer.target.texts, [&b"InitiatorName=x\0"[..], b""]);
    assert_eq!(peer.target.session().borrow().connections(), [0]);
    let answers = peer.do_command(NONE, cdb::TEST_UNIT_READY, 0, &[]);
    assert_eq!(response(&answers[0]), GOOD);
    assert_eq!(answers[0].bhs.cast::<ScsiResponse>().stat_sn.get(), 79);
}

#[test]
fn text_goes_on_in_further_requests() {
    let mut peer = Peer::fresh(keys());
    let answers = peer.send(&login(SECURITY | flags::CONTINUE, &[b'x'; 8000]));
    assert_eq!(header(&answers[0]).flags, SECURITY);
    assert!(answers[0].data.is_empty() && peer.target.texts.is_empty());
    peer.send(&login(SECURITY, &[b'y'; 301]));
    assert_eq!(peer.target.texts.len(), 1);
    let text = &peer.target.texts[0];
    assert_eq!((text.len(), text[7999], text[8000]), (8301, b'x', b'y'));

    // But not for ever.
    for _ in 0..2 {
        let answers = peer.send(&login(SECURITY | flags::CONTINUE, &[b'x'; 8192]));
        assert_eq!(header(&answers[0]).status_class, 0);
    }
    let answers = peer.send(&login(SECURITY, b"z"));
    let status = LoginStatus::OutOfResources;
    assert_eq!(header(&answers[0]).status_class, status.class());
    assert_eq!(header(&answers[0]).status_detail, status.detail());
    assert!(peer.target.end.machine.is_finished());
    assert!(
        matches!(peer.target.fatal, Some(FatalError::Login { .. })),
        "for the log"
    );
}

#[test]
fn digests_begin_behind_the_login() {
    let digests = Negotiated {
        header_digest: true,
        data_digest: true,
        ..keys()
    };
    let mut peer = Peer::fresh(digests);
    peer.target.text_answer = b"HeaderDigest=CRC32C\0".to_vec();
    // The PDUs are cut as they are meant to be: without and with.
    let answers = peer.send(&login(TO_FULL_FEATURE, b"HeaderDigest=CRC32C,None\0"));
    assert_eq!(answers[0].data, b"HeaderDigest=CRC32C\0");
    let answers = peer.do_command(READ, cdb::inquiry(61), 61, &[]);
    assert_eq!(data_in(&answers).len(), 61);
}

#[test]
fn pdu_other_than_a_login_request_ends_a_login() {
    let mut peer = Peer::fresh(keys());
    let nop = peer.pdus.nop_out(1, TAG_NONE, CMD_SN, &[]);
    assert!(peer.send(&nop).is_empty());
    assert_eq!(
        peer.target.fatal,
        Some(FatalError::NoLogin {
            opcode: opcode::NOP_OUT
        })
    );
    assert!(peer.target.end.machine.is_finished());

    let mut peer = Peer::fresh(keys());
    peer.send(&login(SECURITY, b""));
    let answers = peer.send(&nop);
    assert_eq!(opcodes(&answers), [opcode::LOGIN_RESPONSE]);
    let status = LoginStatus::InvalidDuringLogin;
    assert_eq!(header(&answers[0]).status_detail, status.detail());
    assert!(peer.target.fatal.is_some() && peer.target.end.machine.is_finished());
}

#[test]
fn a_login_does_not_become_another() {
    for at in [8, 15, 19, 21] {
        let mut peer = Peer::fresh(keys());
        peer.send(&login(SECURITY, b""));
        let mut other = login(TO_FULL_FEATURE, b"");
        other[at] ^= 1;
        let answers = peer.send(&other);
        assert_eq!(header(&answers[0]).status_class, 2, "byte {at}");
        assert!(
            matches!(peer.target.fatal, Some(FatalError::Login { .. })),
            "for the log"
        );
        assert!(peer.target.end.machine.is_finished());
        assert!(peer.target.session().borrow().connections().is_empty());
    }
}

#[test]
fn a_login_takes_no_longer_than_it_may() {
    let mut peer = Peer::fresh(keys());
    assert_eq!(peer.target.end.machine.deadline(), Some(1005));
    peer.push(&login(SECURITY, b"")[..40]);
    peer.target.end.machine.on_deadline(1004);
    assert!(!peer.target.end.machine.is_finished());
    peer.target.end.machine.on_deadline(1005);
    assert!(peer.target.end.machine.has_step());
    peer.target.take_ops();
    assert_eq!(peer.target.fatal, Some(FatalError::LoginTimeout));

    let mut peer = Peer::live(keys());
    assert_eq!(peer.target.end.machine.deadline(), None);
    peer.target.end.machine.on_deadline(u64::MAX);
    assert!(!peer.target.end.machine.is_finished());
}

#[test]
fn a_connection_moves_to_another_core_before_its_last_answer() {
    let session = Rc::new(RefCell::new(Session::new(CMD_SN, 8, false)));
    let mut machine = AcceptedConnection::new(TargetSettings::default(), None, 0, 0);
    let bytes = login(TO_FULL_FEATURE, b"k=v\0");
    let mut at = 0;
    let step = machine.poll_step(0, &bytes, &mut at);
    assert_eq!((step, at), (Some(Step::Op(TargetOp::Login)), 52));
    let step = machine.take_login();
    assert_eq!(step.text, b"k=v\0");
    let detached = machine.detach();
    assert!(machine.is_finished() && !machine.has_transmit());
    assert!(session.borrow().connections().is_empty());

    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let mut machine = AcceptedConnection::resume(is_send(detached));
    assert_eq!(machine.recv_plan().stage_max, 0);
    machine.attach(ConnectionRole {
        session: session.clone(),
        negotiated: keys(),
        cid: 4,
        nop_interval: 0,
        nop_timeout: 0,
    });
    let mut answer = iscsi::LoginAnswer::new(&step.request, LoginStatus::Success);
    answer.response.flags = step.request.flags;
    machine.login_answer(answer);
    assert_eq!(session.borrow().connections(), [4]);
    assert!(machine.has_transmit() && machine.recv_plan().stage_max > 0);
    drop(machine);
    assert!(session.borrow().connections().is_empty());
}

#[test]
fn a_refused_login_ends_the_connection_behind_its_answer() {
    let mut machine = AcceptedConnection::new(TargetSettings::default(), None, 0, 0);
    let bytes = login(SECURITY, b"");
    let mut at = 0;
    assert_eq!(
        machine.poll_step(0, &bytes, &mut at),
        Some(Step::Op(TargetOp::Login))
    );
    let step = machine.take_login();
    machine.login_answer(iscsi::LoginAnswer::new(
        &step.request,
        LoginStatus::AuthenticationFailure,
    ));
    assert!(machine.is_finished() && machine.has_transmit());
    let mut end = testkit::End::new(machine);
    let mut out = VecDeque::new();
    end.transmit(&mut out, 1);
    let answers = Pdus::default().cut(&mut out);
    assert_eq!(header(&answers[0]).status_class, 2);
    assert_eq!(header(&answers[0]).status_detail, 1);
    assert!(!end.machine.has_transmit());
}
