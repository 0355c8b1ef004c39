//! Any client of RPC-over-RDMA against the machine of a connection of NFS.
//!
//! An input is 4 bytes of configuration and seed, then messages: a mode, a length (16 bits,
//! little endian) and so many bytes. Mode bit 0: they are all of a Send. Else they are what
//! follows the fixed words of a header, which are made right: of RDMA_NOMSG with bit 1. In
//! those the words 0xffffff00 to 0xffffff02 become handles of memory that the client has
//! registered, 0xffffff03 the header of a call, 0xffffff04 all of it but its first word.

use machine::Machine;
use nfs::connection::{RdmaSettings, RpcServerSettings};
use random::Random;
use testkit::nfs::call::call_header;

use crate::rdma::RdmaPair;

/// Calls of a client at a time.
const CREDITS: u16 = 4;
/// Bytes of each region of the client.
const REGION_BYTES: u32 = 8192;
/// What stands in those at first.
const BLANK: u8 = 0xdd;

/// Any client against the machine.
pub fn rpc_rdma(input: &[u8]) {
    let Some((config, mut records)) = input.split_first_chunk::<4>() else {
        return;
    };
    let mut random = Random::new(u64::from(u32::from_le_bytes(*config)));
    let mut pair = pair(config);
    let readable = pair.client.readable(&[BLANK; REGION_BYTES as usize]);
    let handles = [
        readable.handle,
        pair.client.writable(REGION_BYTES).handle,
        pair.client.writable(REGION_BYTES).handle,
    ];
    let mut xid = 0;
    while let Some((&[mode, low, high], rest)) = records.split_first_chunk::<3>() {
        let len = usize::from(u16::from_le_bytes([low, high]) & 0x3ff).min(rest.len());
        let (bytes, rest) = rest.split_at(len);
        records = rest;
        xid += 1;
        let mut send = message(mode, xid, bytes, &handles);
        send.truncate(1024);
        pair.send_bytes(send);
        if random.one_in(2) {
            let gives = !random.one_in(4);
            pair.server.feed(gives);
            pair.exchange();
        }
        while pair.server.calls.len() >= usize::from(CREDITS)
            || !pair.server.calls.is_empty() && random.one_in(2)
        {
            let index = random.below(pair.server.calls.len() as u64) as usize;
            let data = vec![random.below(256) as u8; random.below(3000) as usize];
            pair.server.answer(index, &[data.clone(), data]);
            pair.exchange();
        }
        if config[0] & 16 != 0 && random.one_in(4) {
            pair.server.end.machine.call_back((1, 1, 0), |_| {});
        }
        if pair.server.fatal.is_some() || pair.client.fatal.is_some() {
            break;
        }
        assert!(
            pair.server.calls.len() <= usize::from(CREDITS),
            "calls are bounded"
        );
    }
    assert!(pair.server.end.machine.tags_max() <= 32, "tags are bounded");
    assert!(
        pair.client.memory(2).iter().all(|byte| *byte == BLANK),
        "it may be read alone"
    );
}

/// Both ends, as the configuration says.
fn pair(config: &[u8; 4]) -> RdmaPair {
    let rpc = RpcServerSettings {
        calls_max: CREDITS,
        args_bytes_max: 2048,
        args_bytes_free_max: 512,
        args_bytes_all_max: 4096,
        unsent_bytes_max: 4096,
        io_bytes_max: 16 << 10,
        ops_max: 8,
        writes_max: 2,
        ..RpcServerSettings::default()
    };
    let rdma = RdmaSettings {
        inline_bytes_max: 1024,
        credits: CREDITS,
        ..RdmaSettings::default()
    };
    let private_data = [
        0xf6,
        0xab,
        0x0e,
        0x18,
        1,
        config[0] & 1,
        0,
        config[0] >> 1 & 3,
    ];
    let step = match config[1] & 3 {
        0 => usize::MAX,
        step => usize::from(step) * 37,
    };
    let mut pair = RdmaPair::new((rpc, rdma), Default::default(), &private_data, step);
    pair.server.starves = config[0] & 8 != 0;
    pair
}

/// A Send of a client.
fn message(mode: u8, xid: u32, bytes: &[u8], handles: &[u32; 3]) -> Vec<u8> {
    if mode & 1 != 0 {
        return bytes.to_vec();
    }
    let kind = u32::from(mode >> 1 & 1);
    let mut send: Vec<u8> = [xid, 1, 1, kind]
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect();
    for word in bytes.chunks(4) {
        match word {
            [0xff, 0xff, 0xff, which @ 0..=2] => {
                send.extend(handles[usize::from(*which)].to_be_bytes());
            }
            [0xff, 0xff, 0xff, 3] => send.extend(call_header(xid, |_| {})),
            [0xff, 0xff, 0xff, 4] => send.extend(&call_header(xid, |_| {})[4..]),
            word => send.extend(word),
        }
    }
    send
}
