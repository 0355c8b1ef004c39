//! Each mistake of a peer, with CRCs and without, in one piece and byte by byte: the Terminate
//! says which, nothing of it is placed, and what follows is passed over.

use iwarp::{DataPart, Qp, QpError, QpOp, RegisteredMemory, RemoteAccess};
use machine::Machine;
use testkit::End;
use testkit::iwarp::Fpdus;
use wire::iwarp::{ReadRequest, TerminateCode, opcode, queue};

use crate::{BODY, HEAD, connected, feed, sent, settings};

/// Tagged Offset of what is registered.
const TO: u64 = 0x1000;
/// Bytes of it.
const LEN: u32 = 256;
/// Bytes that are being read.
const READ_LEN: usize = 64;

/// What a peer may know of a stream.
struct Known {
    peer: Fpdus,
    /// Memory that it may write, and memory that it may read.
    writable: u32,
    readable: u32,
    /// Where the response to the oldest Read Request goes.
    sink: u32,
}

impl Known {
    fn write(&self, stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
        self.peer.tagged((opcode::WRITE, true), stag, to, payload)
    }

    fn response(&self, is_last: bool, stag: u32, to: u64, len: usize) -> Vec<u8> {
        self.peer
            .tagged((opcode::READ_RESPONSE, is_last), stag, to, &vec![1; len])
    }

    fn read(&self, msn: u32, stag: u32, to: u64, size: u32) -> Vec<u8> {
        self.peer.read_request(msn, &request(stag, to, size))
    }

    /// A segment of a Send.
    fn send(&self, is_last: bool, place: (u32, u32, u32), payload: &[u8]) -> Vec<u8> {
        self.peer
            .untagged((opcode::SEND, is_last), 0, place, payload)
    }
}

fn request(stag: u32, to: u64, size: u32) -> ReadRequest {
    ReadRequest {
        sink_stag: 77.into(),
        sink_to: 0.into(),
        size: size.into(),
        source_stag: stag.into(),
        source_to: to.into(),
    }
}

/// A stream with registered memory (tags 1 and 2), a read under way (tag 3) and one receive.
fn stream(crc: bool) -> (End<Qp>, Known) {
    let (mut end, peer) = connected(settings(), crc);
    for tag in 0..4 {
        end.set_memory(tag, vec![0xee; LEN as usize]);
    }
    let memory = |tag, access| RegisteredMemory {
        tag,
        offset: 0,
        len: LEN,
        to: TO,
        access,
    };
    let mut register = |memory| end.machine.register(memory).expect("room");
    let writable = register(memory(1, RemoteAccess::WRITE));
    let readable = register(memory(2, RemoteAccess::READ));
    end.machine.post_receives(1);
    let part = DataPart {
        tag: 3,
        offset: 8,
        len: READ_LEN as u32,
    };
    end.machine.read(part, 5, 0).expect("reads");
    let requests = peer.cut(&mut sent(&mut end));
    let sink = u32::from_be_bytes(requests[0][18..22].try_into().expect("4 bytes"));
    let known = Known {
        peer,
        writable,
        readable,
        sink,
    };
    (end, known)
}

/// Which headers of the FPDU in error the Terminate has.
#[derive(Clone, Copy)]
enum Copied {
    Nothing,
    Ddp,
    Rdmap,
}

/// Of what `fpdus` gives, the last is wrong.
fn check(fpdus: impl Fn(&Known) -> Vec<Vec<u8>>, code: TerminateCode, copied: Copied) {
    for (crc, step) in [
        (false, usize::MAX),
        (false, 1),
        (true, usize::MAX),
        (true, 1),
    ] {
        let (mut end, known) = stream(crc);
        let mut before = fpdus(&known);
        let wrong = before.pop().expect("the wrong one");
        for fpdu in before {
            let told = feed(&mut end, &fpdu, step);
            assert!(
                !told.iter().any(|op| matches!(op, QpOp::Fatal(_))),
                "{told:?}"
            );
        }
        let memory = end.memory.clone();
        let told = feed(&mut end, &wrong, step);
        assert_eq!(told, [QpOp::Fatal(QpError::Sent(code))], "CRC {crc}");
        let later = known.write(known.writable, TO, b"late");
        assert_eq!(feed(&mut end, &later, step), [], "passed over");
        assert_eq!(end.memory, memory, "nothing is placed");
        assert!(end.machine.is_finished());
        let terminates = known.peer.cut(&mut sent(&mut end));
        assert!(!end.machine.has_transmit(), "it is sent once");
        let [terminate] = &terminates[..] else {
            panic!("one Terminate: {terminates:?}");
        };
        let (flags, len) = match copied {
            Copied::Nothing => (0, 0),
            Copied::Ddp if wrong[2] & 0x80 != 0 => (0xc0, 16),
            Copied::Ddp => (0xc0, 20),
            Copied::Rdmap => (0xe0, 48),
        };
        let header = [0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];
        assert_eq!(terminate[..18], header);
        assert_eq!(
            terminate[18..22],
            [code.layer << 4 | code.etype, code.code, flags, 0]
        );
        assert_eq!(terminate[22..], wrong[..len]);
    }
}

macro_rules! faults {
    ($($name:ident: $copied:ident $code:ident, |$known:ident| $fpdus:expr;)*) => {
        $(#[test]
        fn $name() {
            check(|$known| $fpdus.into(), TerminateCode::$code, Copied::$copied);
        })*
    };
}

faults! {
    write_to_an_unknown_stag: Ddp SINK_STAG,
        |known| [known.write(known.writable ^ 1, TO, b"x")];
    write_to_stag_0: Ddp SINK_STAG, |known| [known.write(0, TO, b"x")];
    write_to_the_highest_stag: Ddp SINK_STAG, |known| [known.write(u32::MAX, TO, b"x")];
    write_below_the_bounds: Ddp SINK_BOUNDS,
        |known| [known.write(known.writable, TO - 1, b"xy")];
    write_beyond_the_bounds: Ddp SINK_BOUNDS,
        |known| [known.write(known.writable, TO + 255, b"xy")];
    write_whose_offset_wraps: Ddp SINK_WRAP,
        |known| [known.write(known.writable, u64::MAX, b"x")];
    write_to_memory_that_is_only_readable: Ddp ACCESS_RIGHTS,
        |known| [known.write(known.readable, TO, b"x")];
    write_to_the_sink_of_a_read: Ddp ACCESS_RIGHTS,
        |known| [known.write(known.sink, 0, b"x")];
    write_to_the_sink_of_a_read_that_has_ended: Ddp SINK_STAG, |known| [
        known.response(true, known.sink, 0, READ_LEN),
        known.write(known.sink, 0, b"x"),
    ];
    write_that_goes_on_at_another_stag: Ddp SINK_STAG, |known| [
        known.peer.tagged((opcode::WRITE, false), known.writable, TO, b"x"),
        known.write(known.writable ^ 1, TO + 1, b"x"),
    ];
    write_that_goes_on_at_another_offset: Ddp SINK_BOUNDS, |known| [
        known.peer.tagged((opcode::WRITE, false), known.writable, TO, b"x"),
        known.write(known.writable, TO + 2, b"x"),
    ];
    write_that_goes_on_beyond_the_bounds: Ddp SINK_BOUNDS, |known| [
        known.peer.tagged((opcode::WRITE, false), known.writable, TO + 250, &[7; 6]),
        known.write(known.writable, TO + 256, b"x"),
    ];

    response_to_another_stag: Ddp SINK_STAG,
        |known| [known.response(true, known.sink ^ 1, 0, READ_LEN)];
    response_to_registered_memory: Ddp SINK_STAG,
        |known| [known.response(true, known.writable, TO, READ_LEN)];
    response_to_another_offset: Ddp SINK_BOUNDS,
        |known| [known.response(true, known.sink, 1, READ_LEN)];
    response_that_is_longer_than_asked: Ddp SINK_BOUNDS,
        |known| [known.response(true, known.sink, 0, READ_LEN + 1)];
    response_that_is_shorter_than_asked: Ddp SINK_BOUNDS,
        |known| [known.response(true, known.sink, 0, READ_LEN - 1)];
    response_without_the_last_flag: Ddp SINK_BOUNDS,
        |known| [known.response(false, known.sink, 0, READ_LEN)];
    response_that_repeats_bytes: Ddp SINK_BOUNDS, |known| [
        known.response(false, known.sink, 0, 8),
        known.response(false, known.sink, 0, 8),
    ];
    response_that_nothing_asked_for: Ddp UNEXPECTED_OPCODE, |known| [
        known.response(true, known.sink, 0, READ_LEN),
        known.response(true, known.sink, 0, READ_LEN),
    ];

    read_of_an_unknown_stag: Rdmap SOURCE_STAG, |known| [known.read(1, 1, TO, 8)];
    read_beyond_the_bounds: Rdmap SOURCE_BOUNDS,
        |known| [known.read(1, known.readable, TO, LEN + 1)];
    read_whose_offset_wraps: Rdmap SOURCE_WRAP,
        |known| [known.read(1, known.readable, u64::MAX - 3, 8)];
    read_of_memory_that_is_only_writable: Rdmap ACCESS_RIGHTS,
        |known| [known.read(1, known.writable, TO, 8)];
    read_beyond_the_ird: Ddp NO_BUFFER, |known| [
        known.read(1, known.readable, TO, 8),
        known.read(2, known.readable, TO, 8),
        known.read(3, known.readable, TO, 8),
    ];
    read_whose_msn_leaves_one_out: Ddp MSN_RANGE,
        |known| [known.read(2, known.readable, TO, 8)];
    read_whose_msn_comes_again: Ddp MSN_RANGE, |known| [
        known.read(1, known.readable, TO, 8),
        known.read(1, known.readable, TO, 8),
    ];
    read_request_at_an_offset: Ddp MESSAGE_OFFSET, |known| [
        known.peer.untagged((opcode::READ_REQUEST, true), 0, (queue::READ_REQUEST, 1, 4), &[0; 28]),
    ];
    read_request_that_is_too_long: Ddp MESSAGE_TOO_LONG, |known| [
        known.peer.untagged((opcode::READ_REQUEST, true), 0, (queue::READ_REQUEST, 1, 0), &[0; 29]),
    ];
    read_request_that_goes_on: Ddp MESSAGE_TOO_LONG, |known| [
        known.peer.untagged((opcode::READ_REQUEST, false), 0, (queue::READ_REQUEST, 1, 0), &[0; 28]),
    ];
    read_request_that_is_too_short: Ddp UNSPECIFIED, |known| [
        known.peer.untagged((opcode::READ_REQUEST, true), 0, (queue::READ_REQUEST, 1, 0), &[0; 27]),
    ];
    read_request_in_the_queue_of_sends: Ddp QUEUE_NUMBER, |known| [
        known.peer.untagged((opcode::READ_REQUEST, true), 0, (queue::SEND, 1, 0), &[0; 28]),
    ];

    send_in_an_unknown_queue: Ddp QUEUE_NUMBER, |known| [known.send(true, (3, 1, 0), b"x")];
    send_in_the_queue_of_reads: Ddp QUEUE_NUMBER,
        |known| [known.send(true, (queue::READ_REQUEST, 1, 0), b"x")];
    send_whose_msn_leaves_one_out: Ddp MSN_RANGE, |known| [known.send(true, (0, 2, 0), b"x")];
    send_whose_msn_is_0: Ddp MSN_RANGE, |known| [known.send(true, (0, 0, 0), b"x")];
    send_whose_msn_comes_again: Ddp MSN_RANGE, |known| [
        known.send(true, (0, 1, 0), b"x"),
        known.send(true, (0, 1, 0), b"x"),
    ];
    send_without_a_receive: Ddp NO_BUFFER, |known| [
        known.send(true, (0, 1, 0), b"x"),
        known.send(true, (0, 2, 0), b"x"),
    ];
    send_that_begins_at_an_offset: Ddp MESSAGE_OFFSET,
        |known| [known.send(true, (0, 1, 1), b"x")];
    send_that_leaves_bytes_out: Ddp MESSAGE_OFFSET, |known| [
        known.send(false, (0, 1, 0), b"abc"),
        known.send(true, (0, 1, 4), b"x"),
    ];
    send_that_repeats_bytes: Ddp MESSAGE_OFFSET, |known| [
        known.send(false, (0, 1, 0), b"abc"),
        known.send(true, (0, 1, 2), b"x"),
    ];
    send_that_is_too_long: Ddp MESSAGE_TOO_LONG,
        |known| [known.send(true, (0, 1, 0), &[0; HEAD + BODY + 1])];
    send_that_becomes_too_long: Ddp MESSAGE_TOO_LONG, |known| [
        known.send(false, (0, 1, 0), &[0; HEAD + BODY]),
        known.send(true, (0, 1, (HEAD + BODY) as u32), b"x"),
    ];
    send_that_goes_on_with_another_opcode: Ddp UNEXPECTED_OPCODE, |known| [
        known.send(false, (0, 1, 0), b"abc"),
        known.peer.untagged((opcode::SEND_SOLICITED, true), 0, (0, 1, 3), b"x"),
    ];
    send_that_invalidates_an_unknown_stag: Ddp CANNOT_INVALIDATE, |known| [
        known.peer.untagged((opcode::SEND_INVALIDATE, true), 1, (0, 1, 0), b""),
    ];
    send_that_invalidates_the_sink_of_a_read: Ddp CANNOT_INVALIDATE, |known| [
        known.peer.untagged((opcode::SEND_INVALIDATE, true), known.sink, (0, 1, 0), b""),
    ];

    write_between_the_segments_of_a_send: Ddp UNEXPECTED_OPCODE, |known| [
        known.send(false, (0, 1, 0), b"abc"),
        known.write(known.writable, TO, b"x"),
    ];
    send_between_the_segments_of_a_write: Ddp UNEXPECTED_OPCODE, |known| [
        known.peer.tagged((opcode::WRITE, false), known.writable, TO, b"x"),
        known.send(true, (0, 1, 0), b"abc"),
    ];
    response_between_the_segments_of_a_write: Ddp UNEXPECTED_OPCODE, |known| [
        known.peer.tagged((opcode::WRITE, false), known.writable, TO, b"x"),
        known.response(true, known.sink, 0, READ_LEN),
    ];
    read_request_between_the_segments_of_a_response: Ddp UNEXPECTED_OPCODE, |known| [
        known.response(false, known.sink, 0, 8),
        known.read(1, known.readable, TO, 8),
    ];

    read_request_between_those_segments_behind_another: Ddp UNEXPECTED_OPCODE, |known| [
        known.read(1, known.readable, TO, 8),
        known.response(false, known.sink, 0, 8),
        known.read(2, known.readable, TO, 8),
    ];

    terminate_in_the_queue_of_sends: Ddp QUEUE_NUMBER,
        |known| [known.peer.untagged((opcode::TERMINATE, true), 0, (0, 1, 0), &[0; 4])];
    opcode_that_is_reserved: Ddp UNEXPECTED_OPCODE,
        |known| [known.peer.untagged((15, true), 0, (0, 1, 0), b"x")];
    atomic_request: Ddp UNEXPECTED_OPCODE,
        |known| [known.peer.untagged((10, true), 0, (1, 1, 0), &[0; 52])];
    send_that_is_tagged: Ddp UNEXPECTED_OPCODE,
        |known| [known.peer.tagged((opcode::SEND, true), known.writable, TO, b"x")];
    write_that_is_untagged: Ddp UNEXPECTED_OPCODE,
        |known| [known.peer.untagged((opcode::WRITE, true), 0, (0, 1, 0), b"x")];
    rdmap_version_0: Ddp RDMAP_VERSION, |known| [
        known.peer.fpdu(&[0x41, 0x03, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]),
    ];
    ddp_version_2_of_a_tagged_segment: Nothing TAGGED_VERSION,
        |known| [known.peer.fpdu(&[0xc2, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])];
    ddp_version_0_of_an_untagged_segment: Nothing UNTAGGED_VERSION, |known| [
        known.peer.fpdu(&[0x40, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]),
    ];
    segment_of_no_bytes: Nothing DDP_CATASTROPHIC, |known| [known.peer.fpdu(b"")];
    segment_of_one_byte: Nothing DDP_CATASTROPHIC, |known| [known.peer.fpdu(&[0xc1])];
    tagged_segment_shorter_than_its_header: Nothing DDP_CATASTROPHIC,
        |known| [known.peer.fpdu(&[0xc1; 13])];
    untagged_segment_shorter_than_its_header: Nothing DDP_CATASTROPHIC,
        |known| [known.peer.fpdu(&[0x41; 17])];
}

/// Every FPDU of a peer that makes no mistake.
fn right_fpdus(known: &Known) -> Vec<Vec<u8>> {
    let invalidates = (opcode::SEND_INVALIDATE, true);
    vec![
        known.write(known.writable, TO, &[3; 21]),
        known.response(true, known.sink, 0, READ_LEN),
        known.read(1, known.readable, TO, 8),
        known
            .peer
            .untagged(invalidates, known.readable, (0, 1, 0), &[4; HEAD + 9]),
    ]
}

/// A flipped bit of the length may leave the FPDU without an end; all others are CRC errors,
/// whatever else they look like.
#[test]
fn bit_that_flips_anywhere_is_told_by_the_crc_alone() {
    for index in 0..4 {
        let (_, known) = stream(true);
        let len = right_fpdus(&known)[index].len();
        for bit in 16..len * 8 {
            let (mut end, known) = stream(true);
            let mut fpdu = right_fpdus(&known).swap_remove(index);
            fpdu[bit / 8] ^= 1 << (bit % 8);
            let mut told = feed(&mut end, &fpdu, 5);
            told.retain(|op| *op != QpOp::Body);
            let code = TerminateCode::CRC;
            assert_eq!(
                told,
                [QpOp::Fatal(QpError::Sent(code))],
                "{index}, bit {bit}"
            );
            let terminates = known.peer.cut(&mut sent(&mut end));
            assert_eq!(terminates.len(), 1);
            assert_eq!(terminates[0][18..], [0x20, 2, 0, 0]);
        }
    }
}

#[test]
fn length_that_flips_is_never_a_message() {
    for index in 0..4 {
        for bit in 0..16 {
            let (mut end, known) = stream(true);
            let mut stream = right_fpdus(&known).swap_remove(index);
            stream[bit / 8] ^= 1 << (bit % 8);
            // So many that the end of the longest FPDU is among them.
            stream.resize(70_000, 0x55);
            let told = feed(&mut end, &stream, 1000);
            assert!(
                told.iter()
                    .all(|op| matches!(op, QpOp::Body | QpOp::Fatal(_))),
                "{told:?}"
            );
            assert!(matches!(told.last(), Some(QpOp::Fatal(_))));
        }
    }
}

#[test]
fn terminate_of_the_peer_ends_the_stream_without_an_answer() {
    for (payload, code) in [
        (&[0x12, 2, 0xc0, 0, 0, 18][..], TerminateCode::NO_BUFFER),
        (&[0x20, 2, 0, 0], TerminateCode::CRC),
        (&[0x12, 2], TerminateCode::UNSPECIFIED),
        (&[], TerminateCode::UNSPECIFIED),
    ] {
        for crc in [false, true] {
            let (mut end, known) = stream(crc);
            let place = (queue::TERMINATE, 1, 0);
            let kind = (opcode::TERMINATE, true);
            let fpdu = known.peer.untagged(kind, 0, place, payload);
            let told = feed(&mut end, &fpdu, 3);
            assert_eq!(told, [QpOp::Fatal(QpError::Received(code))]);
            assert!(end.machine.is_finished() && !end.machine.has_transmit());
        }
    }
}

#[test]
fn errors_say_what_happened() {
    let error = QpError::Sent(TerminateCode::SINK_BOUNDS).to_string();
    assert_eq!(error, "stream terminated: DDP: base or bounds violation");
    let unknown = TerminateCode {
        layer: 0,
        etype: 2,
        code: 2,
    };
    let error = QpError::Received(unknown).to_string();
    let numbers = "reserved, layer 0, error type 2, error code 0x02";
    assert_eq!(error, format!("peer terminated the stream: {numbers}"));
}
