//! Any client against what a connection of NFS makes of RPCSEC_GSS.

use std::collections::VecDeque;
use std::sync::Arc;

use machine::Machine;
use nfs::connection::{Connection, RpcServerSettings};
use nfs::gss::{Contexts, ContextsSettings};
use nfs::server::Secret;
use random::Random;
use testkit::nfs::call::{call_header_as, cut, record};
use wire::nfs4::{NFS_V4, NFS4_PROGRAM, NFSPROC4_COMPOUND};
use wire::rpc::{RPCSEC_GSS, rpc_gss_proc_t};

use crate::gss::{GssClient, SERVICES};
use crate::nfs::RpcDouble;

const COMPOUND: (u32, u32, u32, u32) = (1, NFS4_PROGRAM, NFS_V4, NFSPROC4_COMPOUND);
const NULL: (u32, u32, u32, u32) = (1, NFS4_PROGRAM, NFS_V4, 0);
/// Bytes of a credential at most (RFC 5531, section 8.2).
const CREDENTIAL_BYTES_MAX: usize = 400;

/// One record, and how many calls it may be at most.
fn record_of(client: &mut GssClient, last: &[u8], mode: u8, bytes: &[u8]) -> (Vec<u8>, usize) {
    let service = SERVICES[usize::from(mode >> 3) % SERVICES.len()];
    let is_protected = service != SERVICES[0];
    let credential = &bytes[..bytes.len().min(CREDENTIAL_BYTES_MAX)];
    match mode & 7 {
        // A credential of any kind, without a checksum.
        0 => {
            let header = call_header_as(1, credential, |call| {
                call.proc = u32::from(mode >> 5 & 1);
                call.cred.flavor = RPCSEC_GSS;
            });
            (header, 0)
        }
        // The same with one.
        1 => (client.header(COMPOUND, credential), 1),
        // A call as it should be,
        2 => (client.call(COMPOUND, bytes, service), 1),
        // with another bit,
        3 => {
            let mut call = client.call(COMPOUND, &[0; 12], service);
            let bit = bytes.first_chunk().map_or(0, |of| u16::from_le_bytes(*of));
            let at = usize::from(bit) % (call.len() * 8);
            call[at / 8] ^= 1 << (at % 8);
            (call, usize::from(!is_protected))
        }
        // with anything for its arguments,
        4 => {
            let of = client.credential(rpc_gss_proc_t::RPCSEC_GSS_DATA, service);
            client.number = client.number.wrapping_add(1);
            let mut call = client.header(COMPOUND, &of);
            call.extend(bytes);
            (call, usize::from(!is_protected))
        }
        // again,
        5 => (last.to_vec(), 0),
        // with another sequence number.
        6 => {
            let word = bytes
                .first_chunk()
                .map_or(0, |word| u32::from_le_bytes(*word));
            client.number = word >> (mode >> 3);
            (client.call(COMPOUND, bytes, service), 1)
        }
        // A context is made, goes on, or ends.
        _ => {
            let procedure = match mode >> 3 & 3 {
                0 => rpc_gss_proc_t::RPCSEC_GSS_INIT,
                1 => rpc_gss_proc_t::RPCSEC_GSS_CONTINUE_INIT,
                _ => rpc_gss_proc_t::RPCSEC_GSS_DESTROY,
            };
            let of = client.credential(procedure, SERVICES[0]);
            let mut call = match procedure {
                rpc_gss_proc_t::RPCSEC_GSS_DESTROY => client.header(NULL, &of),
                _ => call_header_as(1, &of, |call| {
                    call.proc = 0;
                    call.cred.flavor = RPCSEC_GSS;
                }),
            };
            call.extend(bytes);
            (call, 0)
        }
    }
}

/// Any client against the machine. An input is 4 bytes of seed, then records: a mode, a
/// length (16 bits, little endian) and so many bytes. Mode bits 0 to 2: what is made of them,
/// as [`record_of`] has it; bits 3 and 4: the service.
pub fn rpcsec_gss(input: &[u8]) {
    let Some((seed, mut records)) = input.split_first_chunk::<4>() else {
        return;
    };
    let mut random = Random::new(u64::from(u32::from_le_bytes(*seed)));
    let settings = RpcServerSettings {
        calls_max: 4,
        args_bytes_max: 2048,
        args_bytes_free_max: 512,
        io_bytes_max: 4096,
        ..RpcServerSettings::default()
    };
    let few = ContextsSettings {
        contexts_max: 4,
        contexts_of_host_max: 4,
        unfinished_max: 2,
        ..ContextsSettings::default()
    };
    let contexts = Arc::new(Contexts::new(few, Secret([3; 16])));
    let machine = Connection::new(settings, 0);
    let mut server = RpcDouble::with_contexts(machine, contexts.clone());
    let mut client = GssClient::new("user7@TEST", u64::from(u32::MAX));
    let mut out = VecDeque::new();
    let mut stream: VecDeque<u8> = record(&client.init(1), || usize::MAX).into();
    while server.receive(&mut stream, usize::MAX) {}
    server.end.transmit(&mut out, 1);
    let answer = cut(&mut out).remove(0);
    client.take_init(&answer);
    let mut last = Vec::new();
    while let Some((&[mode, low, high], rest)) = records.split_first_chunk::<3>() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (bytes, rest) = rest.split_at(len);
        records = rest;
        let (message, calls_max) = record_of(&mut client, &last, mode, bytes);
        let fragment = 1 + random.below(600) as usize;
        stream.extend(record(&message, || fragment));
        last = message;
        while server.receive(&mut stream, 1 + random.below(300) as usize) {}
        assert!(server.calls.len() <= calls_max, "no other call is executed");
        while !server.calls.is_empty() {
            server.answer(0, &[vec![1; 5]]);
        }
        while server.end.machine.has_transmit() {
            server.end.transmit(&mut out, 1 + random.below(4) as usize);
        }
        if server.fatal.is_some() {
            break;
        }
        assert!(stream.is_empty(), "all bytes are taken");
        cut(&mut out);
        assert!(contexts.len() <= 4, "contexts are bounded");
        assert!(server.end.machine.tags_max() <= 32, "tags are bounded");
    }
}
