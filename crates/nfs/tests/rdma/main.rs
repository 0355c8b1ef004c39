//! The machine of a connection of a server whose client comes by RDMA.

#![forbid(unsafe_code)]

mod answers;
mod calls;
mod connections;
mod records;

use std::collections::VecDeque;

use doubles::nfs::{RpcDouble, SeenCall};
use doubles::rdma::RdmaPair;
use iwarp::{CrcPolicy, QpError, QpSettings};
use machine::Machine;
use nfs::connection::*;
use proptest::prelude::*;
use random::Random;
use testkit::nfs::call::{CompoundPart, call_header, call_header_of, compound, cut, record};
use testkit::rpc_rdma::{Message, Segment, segment};
use wire::iwarp::{MPA_REQUEST_KEY, TerminateCode};
use wire::nfs3::nfs_proc3;
use wire::nfs4::NFS4_PROGRAM;
use wire::rpc_rdma::{RpcRdmaPrivateData, rpc_rdma_error, rpc_rdma_errvers};
use wire::xdr::{Encode, pad};

const INLINE: u32 = 4096;
const CREDITS: u16 = 8;

fn client_data() -> RpcRdmaPrivateData {
    RpcRdmaPrivateData {
        takes_invalidate: true,
        send_bytes_max: INLINE,
        receive_bytes_max: INLINE,
    }
}

fn settings() -> (RpcServerSettings, RdmaSettings) {
    let rdma = RdmaSettings {
        credits: CREDITS,
        ..RdmaSettings::default()
    };
    (RpcServerSettings::default(), rdma)
}

fn pair_with(stream: QpSettings, step: usize) -> RdmaPair {
    RdmaPair::new(settings(), stream, &client_data().encode(), step)
}

fn pair() -> RdmaPair {
    pair_with(QpSettings::default(), usize::MAX)
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 7 + seed + at / 256) as u8)
        .collect()
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    [bytes, &[0; 3][..pad(bytes.len())]].concat()
}

/// A COMPOUND, as it is without chunks.
fn call(xid: u32, parts: &[CompoundPart]) -> Vec<u8> {
    let mut bytes = call_header(xid, |_| {});
    bytes.extend(compound(parts).0);
    bytes
}

/// The answer to a COMPOUND as [`RpcDouble::answer`] gives it, before its payload.
fn answer_head(xid: u32, seen: &SeenCall) -> Vec<u8> {
    let mut bytes = Vec::new();
    [xid, 1, 0, 0, 0, 0]
        .iter()
        .for_each(|word| word.encode(&mut bytes));
    bytes.extend(&seen.args);
    bytes
}

/// Takes data out of a call: what is left of it, and where it stood.
fn reduce(call: &[u8], data: &[u8]) -> (Vec<u8>, u32) {
    let whole = padded(data);
    let at = call.windows(whole.len()).position(|bytes| bytes == whole);
    let at = at.expect("it is there");
    let rest = [&call[..at], &call[at + whole.len()..]].concat();
    (rest, at as u32)
}

fn received(pair: &mut RdmaPair) -> Vec<Result<Message, rpc_rdma_error>> {
    let all = std::mem::take(&mut pair.client.received);
    all.iter()
        .map(|(bytes, _)| Message::decode(bytes))
        .collect()
}

/// The only message that the client has got.
fn one(pair: &mut RdmaPair) -> Message {
    let mut all = received(pair);
    assert_eq!(all.len(), 1, "one message");
    all.remove(0).expect("no error")
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |word: &[u8]| u32::from_be_bytes(word.try_into().expect("4 bytes"));
    bytes.chunks(4).map(word).collect()
}

/// A READ is answered with `data`; the client has these chunks.
fn answered(pair: &mut RdmaPair, data: &[Vec<u8>], message: Message) -> SeenCall {
    let body = call(7, &[CompoundPart::Getattr(vec![1])]);
    pair.send(&Message {
        xid: 7,
        credits: 1,
        body,
        ..message
    });
    let (_, seen) = pair.server.calls[0].clone();
    pair.server.answer(0, data);
    pair.exchange();
    seen
}
