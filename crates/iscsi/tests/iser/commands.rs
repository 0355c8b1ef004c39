//! Commands with their data by RDMA.

use iscsi::iser::CrcPolicy;
use iscsi::target::FatalError;
use machine::Machine;
use testkit::iscsi::cdb;
use wire::iscsi::{NopIn, ScsiResponse, TAG_NONE, TaskFunction, TaskManagementResponse, opcode};
use wire::iser::{IserCm, IserHello, iser_cm_flags, iser_first};
use zerocopy::{FromBytes, IntoBytes};

use super::*;

const POLICIES: [CrcPolicy; 2] = [CrcPolicy::Off, CrcPolicy::Require];
const STEPS: [usize; 4] = [1, 7, 1000, usize::MAX];

/// Status of the one response that came, and the STag that it invalidated.
fn response(answers: &[Received]) -> (u8, Option<u32>) {
    assert_eq!(opcodes(answers), [opcode::SCSI_RESPONSE]);
    let header: &ScsiResponse = answers[0].bhs.cast();
    assert_eq!(header.response, 0);
    (header.status, answers[0].invalidated)
}

#[test]
fn data_of_a_read_is_written_to_its_memory_which_the_response_invalidates() {
    for (crc, step) in POLICIES
        .into_iter()
        .flat_map(|crc| STEPS.map(|step| (crc, step)))
    {
        let mut peer = Peer::live(keys(), crc, step);
        // One burst, and several.
        for (lba, blocks) in [(3, 1), (100, 20)] {
            let len = (blocks * BLOCK) as u32;
            let memory = peer.client.writable(len + 3);
            let command = peer.command(READ, cdb::read(lba as u32, blocks as u16), len, b"");
            let answers = peer.send_with(&command, &header(None, Some(memory)));
            assert_eq!(response(&answers), (0, Some(memory.handle)));
            let data = peer.client.memory(0);
            assert_eq!(data[..len as usize], *peer.media(lba, blocks));
            assert_eq!(data[len as usize..], [0xdd; 3]);
        }
        assert_eq!(peer.in_flight(), 0);
        let machine = &peer.target.end.machine;
        assert_eq!(machine.header_digest(), crc == CrcPolicy::Require);
        assert!(machine.is_rdma() && machine.rdma_counts().is_some_and(|c| c.reads == 0));
    }
}

#[test]
fn data_of_a_write_is_read_from_its_memory_in_bursts() {
    for (crc, step) in POLICIES
        .into_iter()
        .flat_map(|crc| STEPS.map(|step| (crc, step)))
    {
        let mut peer = Peer::live(keys(), crc, step);
        for (lba, blocks) in [(0, 1), (7, 8), (50, 19)] {
            let data = pattern(lba + 77, blocks * BLOCK);
            let memory = peer.client.readable(&data);
            let cdb = cdb::write(lba as u32, blocks as u16);
            let command = peer.command(WRITE, cdb, data.len() as u32, b"");
            let answers = peer.send_with(&command, &header(Some(memory), None));
            assert_eq!(response(&answers), (0, Some(memory.handle)));
            assert_eq!(peer.media(lba as usize, blocks), data);
        }
        assert_eq!(peer.in_flight(), 0);
    }
}

/// Statuses, what the disk has then, and what the initiator has read.
type Played = (Vec<u8>, Vec<u8>, Vec<u8>);

/// Three commands, of which receive number `cut` of the target takes `split` bytes: what came of
/// them, and the most bytes that this receive could have had.
fn play(cut: usize, split: usize) -> (Played, usize) {
    let mut peer = Peer::live(keys(), CrcPolicy::Require, usize::MAX);
    let data = pattern(5, 3 * BLOCK);
    let (immediate, rest) = data.split_at(BLOCK);
    let written = peer.client.readable(rest);
    let read = peer.client.writable(2 * BLOCK as u32);
    let commands = [
        peer.command(WRITE, cdb::write(9, 1), BLOCK as u32, immediate),
        peer.command(WRITE, cdb::write(10, 2), 2 * BLOCK as u32, b""),
        peer.command(READ, cdb::read(3, 2), 2 * BLOCK as u32, b""),
    ];
    for (command, (write, read)) in
        commands
            .iter()
            .zip([(None, None), (Some(written), None), (None, Some(read))])
    {
        peer.post(command, &header(write, read));
        peer.client.transmit(&mut peer.there);
    }
    for _ in 0..cut {
        peer.turn();
        peer.client.transmit(&mut peer.there);
    }
    let there = peer.there.len();
    peer.step = split;
    peer.turn();
    peer.step = usize::MAX;
    peer.run();
    let answers = peer.received();
    let statuses = answers
        .iter()
        .map(|answer| answer.bhs.cast::<ScsiResponse>().status);
    let statuses = statuses.collect();
    let media = peer.media(9, 3).to_vec();
    ((statuses, media, peer.client.memory(0).to_vec()), there)
}

#[test]
fn every_split_gives_the_same() {
    for cut in 0..2 {
        let (whole, there) = play(cut, usize::MAX);
        assert_eq!(whole.0, [0; 3]);
        assert!(there > 500, "commands, or what is read for one: {there}");
        for split in 1..there {
            assert!(play(cut, split).0 == whole, "receive {cut}, at {split}");
        }
    }
}

#[test]
fn memory_of_a_write_begins_where_the_initiator_has_said_that_it_does() {
    for (solicited_only, len) in [(false, 1024), (true, 1024), (true, 1023), (false, 513)] {
        for step in STEPS {
            let keys = Negotiated {
                solicited_only: Some(solicited_only),
                ..keys()
            };
            let mut peer = Peer::live(keys, CrcPolicy::Require, step);
            let data = pattern(5, 12 * BLOCK);
            let (immediate, rest) = data.split_at(len);
            let memory = peer
                .client
                .readable(if solicited_only { rest } else { &data });
            let command = peer.command(WRITE, cdb::write(9, 12), data.len() as u32, immediate);
            let answers = peer.send_with(&command, &header(Some(memory), None));
            assert_eq!(response(&answers), (0, Some(memory.handle)));
            assert_eq!(peer.media(9, 12), data);
        }
    }
}

#[test]
fn write_that_comes_whole_with_its_command_needs_no_memory() {
    for step in STEPS {
        let mut peer = Peer::live(keys(), CrcPolicy::Require, step);
        let data = pattern(6, 2 * BLOCK);
        let command = peer.command(WRITE, cdb::write(30, 2), data.len() as u32, &data);
        assert_eq!(response(&peer.send(&command)), (0, None));
        assert_eq!(peer.media(30, 2), data);
        // More than the first burst, which the target does not take.
        let command = peer.command(WRITE, cdb::write(30, 5), 2560, &pattern(7, 2048));
        let memory = peer.client.readable(&pattern(7, 2560));
        assert_eq!(
            response(&peer.send_with(&command, &header(Some(memory), None))).0,
            0
        );
        // What is not wanted is passed over, and the command answered.
        let command = peer.command(NONE, cdb::TEST_UNIT_READY, 0, &data[..100]);
        // It has the tag of the one before, and no memory.
        assert_eq!(response(&peer.send(&command)), (2, None));
        let command = peer.command(NONE, cdb::TEST_UNIT_READY, 0, b"");
        assert_eq!(response(&peer.send(&command)), (0, None));
    }
}

#[test]
fn initiator_that_takes_no_invalidation_gets_none() {
    let none = IserCm {
        flags: iser_cm_flags::NO_ZERO_BASED | iser_cm_flags::NO_SEND_INVALIDATE,
        ..IserCm::default()
    };
    for cm in [none.as_bytes(), b""] {
        let mut peer = Peer::fresh(keys(), rdma(CrcPolicy::Off), cm, usize::MAX);
        assert_eq!(peer.client.end.machine.private_data(), none.as_bytes());
        let answers = peer.send(&PDUS.login(CMD_SN, 0, b""));
        assert_eq!(opcodes(&answers), [opcode::LOGIN_RESPONSE]);
        let memory = peer.client.writable(512);
        let command = peer.command(READ, cdb::read(0, 1), 512, b"");
        let answers = peer.send_with(&command, &header(None, Some(memory)));
        assert_eq!(response(&answers), (0, None));
    }
}

#[test]
fn task_that_is_aborted_while_its_data_is_read_leaves_its_memory_alone() {
    for (crc, step) in POLICIES
        .into_iter()
        .flat_map(|crc| STEPS.map(|step| (crc, step)))
    {
        let mut peer = Peer::live(keys(), crc, step);
        let data = pattern(8, 16 * BLOCK);
        let memory = peer.client.readable(&data);
        let command = peer.command(WRITE, cdb::write(0, 16), data.len() as u32, b"");
        peer.push(&command, &header(Some(memory), None));
        peer.target.feed(0);
        peer.target.transmit(&mut peer.back, usize::MAX);
        assert_eq!(peer.in_flight(), 1);
        // The requests are there, and no response yet.
        let before = peer.media(0, 16).to_vec();
        let abort = PDUS.function(
            (0x900, peer.cmd_sn),
            TaskFunction::AbortTask as u8,
            (peer.itt, peer.cmd_sn.wrapping_sub(1)),
        );
        // Nothing is answered before what is read has come.
        peer.push(&abort, &header(None, None));
        peer.target.manage(0);
        assert!(!peer.target.end.machine.has_transmit());
        peer.run();
        let answers = peer.received();
        assert_eq!(opcodes(&answers), [opcode::TASK_MANAGEMENT_RESPONSE]);
        assert_eq!(answers[0].bhs.cast::<TaskManagementResponse>().response, 0);
        assert_eq!(peer.in_flight(), 0);
        assert_eq!(peer.media(0, 16), before);
        // Its tag is another's now.
        let data = pattern(9, 4 * BLOCK);
        let memory = peer.client.readable(&data);
        let command = peer.command(WRITE, cdb::write(40, 4), data.len() as u32, b"");
        let answers = peer.send_with(&command, &header(Some(memory), None));
        assert_eq!(response(&answers).0, 0);
        assert_eq!(peer.media(40, 4), data);
    }
}

#[test]
fn task_that_is_aborted_before_its_immediate_data_has_memory_lets_others_go_on() {
    for step in STEPS {
        let mut peer = Peer::live(keys(), CrcPolicy::Require, step);
        let data = pattern(8, 2 * BLOCK);
        let command = peer.command(WRITE, cdb::write(0, 2), data.len() as u32, &data);
        peer.push(&command, &header(None, None));
        assert_eq!(peer.target.starved.len(), 1);
        let (tag, _) = peer.target.starved[0];
        assert!(peer.target.end.machine.is_blocked_on(tag));
        peer.target.abort(tag);
        peer.run();
        assert_eq!(peer.in_flight(), 0);
        let command = peer.command(NONE, cdb::TEST_UNIT_READY, 0, b"");
        assert_eq!(response(&peer.send(&command)), (0, None));
        // The same of one that there is no memory for.
        let command = peer.command(WRITE, cdb::write(0, 2), data.len() as u32, &data);
        peer.push(&command, &header(None, None));
        peer.target.starve(0);
        peer.run();
        assert_eq!(response(&peer.received()).0, 2);
        assert_eq!(peer.in_flight(), 0);
    }
}

#[test]
fn sense_data_comes_with_the_response() {
    let mut peer = Peer::live(keys(), CrcPolicy::Off, 7);
    let mut unknown = [0; 16];
    unknown[0] = 0xff;
    let command = peer.command(NONE, unknown, 0, b"");
    let answers = peer.send(&command);
    assert_eq!(response(&answers), (2, None));
    assert_eq!(answers[0].data.len(), 20);
    assert_eq!(answers[0].data[2], 0x70);
}

#[test]
fn nop_text_and_logout_come_in_sends() {
    for step in STEPS {
        let mut peer = Peer::live(keys(), CrcPolicy::Require, step);
        let data = pattern(10, 301);
        let answers = peer.send(&PDUS.nop_out(0x55, TAG_NONE, peer.cmd_sn, &data));
        assert_eq!(opcodes(&answers), [opcode::NOP_IN]);
        assert_eq!(answers[0].bhs.cast::<NopIn>().itt.get(), 0x55);
        assert_eq!(answers[0].data, data);
        // Longer than a Send may be: in two.
        peer.target.text_answer = pattern(11, 700);
        let text = vec![b'a'; 1500];
        let ids = (0x56, peer.cmd_sn);
        let mut pdu = PDUS.text(ids, TAG_NONE, wire::iscsi::flags::FINAL, &text);
        pdu[0] |= 0x40;
        let answers = peer.send(&pdu);
        assert_eq!(opcodes(&answers), [opcode::TEXT_RESPONSE]);
        assert_eq!(answers[0].data, pattern(11, 700)[..512]);
        assert_eq!(peer.target.texts.last(), Some(&text));
        let answers = peer.send(&PDUS.logout((0x57, peer.cmd_sn), 0, 0));
        assert_eq!(opcodes(&answers), [opcode::LOGOUT_RESPONSE]);
        assert!(peer.target.end.machine.is_finished());
        assert_eq!(peer.target.fatal, None);
    }
}

#[test]
fn text_of_a_login_may_be_long_and_its_answer_too() {
    let mut peer = Peer::fresh(keys(), rdma(CrcPolicy::Require), b"", 100);
    peer.target.text_answer = pattern(12, 8000);
    let text = vec![b'x'; 8192];
    let answers = peer.send(&PDUS.login(CMD_SN, 0, &text));
    assert_eq!(opcodes(&answers), [opcode::LOGIN_RESPONSE]);
    assert_eq!(answers[0].data, pattern(12, 8000));
    assert_eq!(peer.target.texts, [text]);
}

#[test]
fn hello_is_replied_with_what_both_ends_can() {
    let mut peer = Peer::live(keys(), CrcPolicy::Off, 7);
    let hello = IserHello {
        first: iser_first::HELLO,
        versions: 0xaa,
        reads: 5.into(),
        ..IserHello::default()
    };
    peer.client.post(hello.as_bytes().to_vec());
    peer.run();
    let (reply, _) = peer.client.received.last().expect("a reply");
    let reply = IserHello::read_from_bytes(reply).expect("a HelloReply");
    let expected = IserHello {
        first: iser_first::HELLO_REPLY,
        ..hello
    };
    assert_eq!(reply, expected);
    peer.client.post(hello.as_bytes().to_vec());
    peer.run();
    assert!(matches!(peer.target.fatal, Some(FatalError::Rdma(_))));
}

#[test]
fn connection_by_tcp_is_as_before_beside_rdma() {
    let machine = AcceptedConnection::new(TargetSettings::default(), rdma(CrcPolicy::Off), 9, 5);
    let keys = Negotiated {
        rdma_extensions: false,
        ..keys()
    };
    let mut target = TargetDouble::new(machine, role(keys), pattern(1, BLOCKS * BLOCK));
    let mut out = VecDeque::new();
    target.serve(&mut PDUS.login(CMD_SN, 0, b"").into(), &mut out);
    assert_eq!(PDUS.cut(&mut out)[0].bhs.opcode(), opcode::LOGIN_RESPONSE);
    assert!(!target.end.machine.is_rdma() && target.end.machine.rdma_counts().is_none());
}
