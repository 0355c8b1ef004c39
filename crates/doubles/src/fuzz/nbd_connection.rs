//! Any client against the machine of an NBD connection.

use std::collections::VecDeque;
use std::convert::Infallible;

use machine::{Machine as _, Tag};
use nbd::{
    BITMAPS_LISTED_MAX, BitmapsAsked, BitmapsFound, DirtyBitmap, NbdAnswer, NbdExport, NbdOp,
    NbdServer, NbdSettings, NbdTls, RequestKind,
};
use random::Random;
use testkit::End;
use wire::nbd::{OPTION_MAGIC, nbd_magic};

use super::records;

/// The export that there is.
const DISK: &str = "disk";
/// Bytes of a read that are given memory.
const READ_BYTES_MAX: u64 = 1 << 16;

/// The mode of a record behind which the client waits until TLS has begun.
const AWAITS_TLS: u8 = 0x3f;

/// The streams that `records` stand for: the next one is sent when TLS has begun.
fn streams_of(input: &[u8]) -> VecDeque<VecDeque<u8>> {
    let mut streams = VecDeque::new();
    let mut stream = VecDeque::from([0, 0, 0, 3]);
    for (mode, bytes) in records(input) {
        if mode == AWAITS_TLS {
            streams.push_back(std::mem::take(&mut stream));
        }
        match mode >> 6 {
            1 => {
                stream.extend(OPTION_MAGIC.to_be_bytes());
                stream.extend(u32::from(mode & 15).to_be_bytes());
                stream.extend((bytes.len() as u32).to_be_bytes());
            }
            2 => stream.extend(nbd_magic::REQUEST.to_be_bytes()),
            3 => stream.extend(nbd_magic::EXTENDED_REQUEST.to_be_bytes()),
            _ => {}
        }
        stream.extend(bytes);
    }
    streams.push_back(stream);
    streams
}

fn export() -> NbdExport {
    NbdExport {
        name: DISK.to_owned(),
        description: "of tests".to_owned(),
        size_bytes: 1 << 20,
        block_bytes: 512,
        is_read_only: false,
        is_fast_to_zero: true,
    }
}

/// Dirty bitmaps of names of three letters and digits: more than are listed at a time.
fn bitmaps(asked: &BitmapsAsked) -> BitmapsFound {
    let names = (0..200).map(|at| format!("b{at:02}"));
    let names = names.filter(|name| asked.has(name));
    match asked {
        BitmapsAsked::List { after, .. } => {
            let behind = names.filter(|name| Some(name) > after.as_ref());
            BitmapsFound::List(behind.take(BITMAPS_LISTED_MAX).collect())
        }
        BitmapsAsked::Set(_) => BitmapsFound::Set(
            names
                .map(|name| DirtyBitmap {
                    name,
                    identity: [7; 16],
                })
                .collect(),
        ),
    }
}

/// Any client against the machine. An input is 4 bytes of seed, then records: a mode, a length (16
/// bits, little endian) and so many bytes. The two highest bits of a mode say what stands before
/// the bytes: nothing; the header of an option, whose kind the four lowest bits are; the magic of
/// a request; that of an extended one. What stands behind a mode of 3fh is sent once TLS has
/// begun.
pub fn nbd_connection(input: &[u8]) {
    nbd_requests_executed(input);
}

/// The same: how many requests were executed.
pub fn nbd_requests_executed(input: &[u8]) -> usize {
    let Some((seed, rest)) = input.split_first_chunk::<4>() else {
        return 0;
    };
    let mut random = Random::new(u64::from(u32::from_le_bytes(*seed)));
    let mut streams = streams_of(rest);
    let mut stream = streams.pop_front().unwrap_or_default();
    let settings = NbdSettings {
        in_flight_max: 4,
        handshake_timeout: 1,
        tls: match seed[3] {
            0xff => NbdTls::Required,
            0xfe => NbdTls::Offered,
            0xfd => NbdTls::Awaited,
            _ => NbdTls::Refused,
        },
    };
    let mut end = End::new(NbdServer::new(settings, 0));
    let (mut executed, mut open, mut sent) = (0, Vec::new(), VecDeque::new());
    let mut idle = 0;
    while idle < 8 {
        let mut has_moved = end.receive(&mut stream, 1 + random.below(2000) as usize) > 0;
        while let Some(op) = end.next_op() {
            has_moved = true;
            match op {
                NbdOp::List => end.machine.list([(DISK, "of tests")].into_iter()),
                NbdOp::Find => {
                    let is_there = ["", DISK].contains(&end.machine.asked_name());
                    let _ = end.machine.found(is_there.then(export));
                }
                NbdOp::Prepare { tag, len, .. } => {
                    end.set_memory(tag, vec![0; len as usize]);
                    end.machine.prepared(tag);
                }
                NbdOp::Execute { tag } => open.push(tag),
                NbdOp::Refused(_) | NbdOp::Fatal(_) => {}
            }
        }
        if let Some(asked) = end.machine.bitmaps_asked()
            && random.one_in(2)
        {
            has_moved = true;
            let found = bitmaps(asked);
            end.machine.bitmaps(found);
        }
        if !open.is_empty() && random.one_in(2) {
            has_moved = true;
            executed += 1;
            let tag = open.swap_remove(random.below(open.len() as u64) as usize);
            complete(&mut end, tag);
        }
        if random.one_in(2) {
            has_moved |= end.transmit_some(&mut sent, 1 + random.below(3) as usize);
            sent.clear();
        }
        if end.machine.awaits_tls() && !end.machine.has_transmit() {
            has_moved = true;
            end.machine.tls_begun();
            stream.extend(streams.pop_front().unwrap_or_default());
        }
        idle = if has_moved { 0 } else { idle + 1 };
    }
    assert!(end.machine.in_flight() <= 4, "no more than that");
    executed
}

fn complete(end: &mut End<NbdServer>, tag: Tag) {
    let request = end.machine.request_of(tag);
    let data = match request.kind {
        RequestKind::Read => vec![0; request.len.min(READ_BYTES_MAX) as usize],
        RequestKind::BlockStatus { .. } => {
            let reply = end.machine.status_reply(tag);
            let parts = |_: &_, _| Ok::<_, Infallible>(vec![(4096, true), (u64::MAX, false)]);
            reply
                .chunks(64, parts)
                .unwrap_or_else(|never| match never {})
        }
        _ => Vec::new(),
    };
    let data_len = data.len() as u32;
    if data_len > 0 {
        end.set_memory(tag, data);
    }
    end.machine.complete(tag, NbdAnswer::Done { data_len });
}
