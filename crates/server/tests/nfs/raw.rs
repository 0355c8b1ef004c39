//! Calls of NFSv3 byte by byte, many at a time, and calls that are none.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::common::PATIENCE;

pub const NFS: u32 = 100_003;
pub const NFS3_READ: u32 = 6;
pub const NFS3_WRITE: u32 = 7;
/// NFS3ERR_JUKEBOX and NFS4ERR_DELAY: ask again later.
pub const JUKEBOX: u32 = 10_008;

fn word(to: &mut Vec<u8>, word: u32) {
    to.extend_from_slice(&word.to_be_bytes());
}

fn opaque(to: &mut Vec<u8>, bytes: &[u8]) {
    word(to, bytes.len() as u32);
    to.extend_from_slice(bytes);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// A call by the superuser, with its record mark.
pub fn call(xid: u32, (program, version, procedure): (u32, u32, u32), args: &[u8]) -> Vec<u8> {
    let mut record = vec![0; 4];
    for part in [xid, 0, 2, program, version, procedure] {
        word(&mut record, part);
    }
    let mut credential = Vec::new();
    word(&mut credential, 0);
    opaque(&mut credential, b"test");
    for part in [0, 0, 0] {
        word(&mut credential, part);
    }
    word(&mut record, 1);
    opaque(&mut record, &credential);
    record.extend_from_slice(&[0; 8]);
    record.extend_from_slice(args);
    let mark = (record.len() as u32 - 4) | 1 << 31;
    record[..4].copy_from_slice(&mark.to_be_bytes());
    record
}

/// WRITE of version 3, UNSTABLE.
pub fn write3(xid: u32, file: &[u8], offset: u64, data: &[u8]) -> Vec<u8> {
    let mut args = Vec::new();
    opaque(&mut args, file);
    args.extend_from_slice(&offset.to_be_bytes());
    word(&mut args, data.len() as u32);
    word(&mut args, 0);
    opaque(&mut args, data);
    call(xid, (NFS, 3, NFS3_WRITE), &args)
}

/// READ of version 3.
pub fn read3(xid: u32, file: &[u8], offset: u64, len: u32) -> Vec<u8> {
    let mut args = Vec::new();
    opaque(&mut args, file);
    args.extend_from_slice(&offset.to_be_bytes());
    word(&mut args, len);
    call(xid, (NFS, 3, NFS3_READ), &args)
}

/// COMPOUND of version 4.0.
pub fn compound4(xid: u32, ops: &[Vec<u8>]) -> Vec<u8> {
    let mut args = Vec::new();
    for part in [0, 0, ops.len() as u32] {
        word(&mut args, part);
    }
    call(xid, (NFS, 4, 1), &[args, ops.concat()].concat())
}

/// PUTROOTFH.
pub fn putrootfh4() -> Vec<u8> {
    24u32.to_be_bytes().into()
}

/// PUTFH.
pub fn putfh4(file: &[u8]) -> Vec<u8> {
    let mut op = 22u32.to_be_bytes().into();
    opaque(&mut op, file);
    op
}

/// READ without a state, from the start.
pub fn read4(len: u32) -> Vec<u8> {
    let mut op = 25u32.to_be_bytes().into();
    for word_of in [0, 0, 0, 0, 0, 0, len] {
        word(&mut op, word_of);
    }
    op
}

/// LOOKUP.
pub fn lookup4(name: &[u8]) -> Vec<u8> {
    let mut op = 15u32.to_be_bytes().into();
    opaque(&mut op, name);
    op
}

/// WRITE without a state, UNSTABLE.
pub fn write4(data: &[u8]) -> Vec<u8> {
    let mut op = 38u32.to_be_bytes().into();
    for _ in 0..7 {
        word(&mut op, 0);
    }
    opaque(&mut op, data);
    op
}

pub fn open(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a listener");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// One answer: its xid, and what follows the header of RPC, which says SUCCESS.
pub fn answer(stream: &mut TcpStream) -> std::io::Result<(u32, Vec<u8>)> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let mark = u32::from_be_bytes(mark);
    assert_ne!(mark >> 31, 0, "answers have one fragment");
    let mut record = vec![0; (mark & !(1 << 31)) as usize];
    stream.read_exact(&mut record)?;
    let at = |n: usize| u32::from_be_bytes(record[4 * n..4 * n + 4].try_into().expect("4 bytes"));
    assert_eq!(
        (at(1), at(2), at(5)),
        (1, 0, 0),
        "an answer that says SUCCESS"
    );
    Ok((at(0), record[24..].to_vec()))
}

/// The status that results begin with.
pub fn status(results: &[u8]) -> u32 {
    u32::from_be_bytes(results[..4].try_into().expect("a status"))
}

/// Sends NULL and expects its answer: the connection is served.
pub fn ping(stream: &mut TcpStream) {
    stream.write_all(&call(7, (NFS, 4, 0), &[])).expect("taken");
    assert_eq!(answer(stream).expect("alive"), (7, Vec::new()));
}
