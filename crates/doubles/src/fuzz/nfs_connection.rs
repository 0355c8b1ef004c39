//! Any client against the machine of a connection of NFS.

use std::collections::VecDeque;

use machine::Machine;
use nfs::connection::{Connection, RpcServerSettings};
use random::Random;
use testkit::nfs::call::{OTHERS, call_header, call_header_of, cut, record};

use crate::nfs::RpcDouble;

/// The stream that `records` stand for.
fn stream_of(mut records: &[u8]) -> VecDeque<u8> {
    let mut stream = VecDeque::new();
    let mut xid = 0;
    while let Some((&[mode, low, high], rest)) = records.split_first_chunk::<3>() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (bytes, rest) = rest.split_at(len);
        records = rest;
        if mode & 1 == 0 {
            stream.extend(bytes);
            continue;
        }
        xid += 1;
        let mut message = match mode & 2 {
            0 => Vec::new(),
            _ => match mode >> 5 {
                which @ 1..=3 => call_header_of(xid, OTHERS[usize::from(which) - 1]),
                _ => call_header(xid, |_| {}),
            },
        };
        message.extend(bytes);
        let fragment = match mode >> 2 & 7 {
            0 => usize::MAX,
            bits => 1 << bits,
        };
        stream.extend(record(&message, || fragment));
    }
    stream
}

/// Any client against the machine. An input is 4 bytes of seed, then records:
/// a mode, a length (16 bits, little endian) and so many bytes. Mode bit 0: they
/// get a record mark; bit 1: and before them the header of a call; bits 2 to 4:
/// how long fragments are; bits 5 to 7: of which procedure, COMPOUND or another.
pub fn nfs_connection(input: &[u8]) {
    let Some((seed, records)) = input.split_first_chunk::<4>() else {
        return;
    };
    let mut random = Random::new(u64::from(u32::from_le_bytes(*seed)));
    let mut stream = stream_of(records);
    let settings = RpcServerSettings {
        calls_max: 4,
        args_bytes_max: 2048,
        args_bytes_free_max: 512,
        args_bytes_all_max: 4096,
        unsent_bytes_max: 4096,
        io_bytes_max: 4096,
        ops_max: 8,
        writes_max: 2,
        fragments_max: 64,
        handshake_timeout: 1,
        offers_tls: seed[1] & 2 != 0,
    };
    let mut server = RpcDouble::new(Connection::new(settings, 0));
    server.starves = seed[0] & 1 != 0;
    let mut out = VecDeque::new();
    let mut idle = 0;
    while idle < 64 {
        idle += 1;
        if server.receive(&mut stream, 1 + random.below(300) as usize) {
            idle = 0;
        }
        if random.one_in(2) {
            let gives = !random.one_in(4);
            server.feed(gives);
        }
        if !server.calls.is_empty() && random.one_in(2) {
            let index = random.below(server.calls.len() as u64) as usize;
            let data = vec![random.below(256) as u8; random.below(9) as usize];
            server.answer(index, &[data.clone(), data]);
        }
        if seed[1] & 1 != 0 && random.one_in(8) {
            server.end.machine.call_back((1, 1, 0), |_| {});
        }
        if random.one_in(2) && server.end.machine.has_transmit() {
            server.end.transmit(&mut out, 1 + random.below(4) as usize);
        }
        let machine = &mut server.end.machine;
        if machine.awaits_tls() && !machine.has_transmit() && random.one_in(2) {
            machine.tls_begun();
        }
        assert!(server.calls.len() <= 4, "calls are bounded");
        assert!(server.end.machine.tags_max() <= 32, "tags are bounded");
    }
    let awaits_tls = server.end.machine.awaits_tls();
    if server.fatal.is_none() && server.starved.is_none() && !awaits_tls {
        assert!(stream.is_empty(), "all bytes are taken");
    }
    if server.fatal.is_none() && !server.end.machine.has_transmit() {
        cut(&mut out);
    }
}
