//! A proxy between an NFS client and a server: it passes whole RPC messages on, answers
//! some calls itself and edits some answers.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use wire::nfs4::{NFS4_PROGRAM, compound_head, nfsstat4};
use wire::xdr::{Decode, Reader};

/// Given a call, the answer that the proxy gives itself; `None`: the call is passed on.
pub type Refuse = dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync;
/// Changes an answer of the server before the client gets it.
pub type Edit = dyn Fn(&mut Vec<u8>) + Send + Sync;

/// The last, and here only, fragment of a message (RFC 5531, section 11).
const LAST: u32 = 1 << 31;
/// Bytes of a message at most.
const MESSAGE_MAX: u32 = 4 << 20;

/// Starts a proxy in front of the server at `to`; it ends with the process. Returns its
/// address.
pub fn start(to: SocketAddr, refuse: Arc<Refuse>, edit: Arc<Edit>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(to)) else {
                continue;
            };
            let copy = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
            let back = Arc::new(Mutex::new(copy(&client)));
            let (mut forth, mut answers) = (copy(&server), copy(&server));
            let (refuse, edit, direct) = (refuse.clone(), edit.clone(), back.clone());
            let mut calls = copy(&client);
            std::thread::spawn(move || {
                while let Some(call) = receive(&mut calls) {
                    let sent = match refuse(&call) {
                        Some(answer) => send(&mut direct.lock().expect("whole"), &answer),
                        None => send(&mut forth, &call),
                    };
                    if sent.is_err() {
                        break;
                    }
                }
                // What has ended already cannot be ended again.
                let _ = forth.shutdown(Shutdown::Both);
            });
            std::thread::spawn(move || {
                while let Some(mut answer) = receive(&mut answers) {
                    edit(&mut answer);
                    if send(&mut back.lock().expect("whole"), &answer).is_err() {
                        break;
                    }
                }
                let _ = client.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

fn receive(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut mark = [0; 4];
    from.read_exact(&mut mark).ok()?;
    let mark = u32::from_be_bytes(mark);
    let len = mark & !LAST;
    assert!(mark & LAST != 0 && len <= MESSAGE_MAX, "{mark:#x}");
    let mut message = vec![0; len as usize];
    from.read_exact(&mut message).ok()?;
    Some(message)
}

fn send(into: &mut TcpStream, message: &[u8]) -> std::io::Result<()> {
    let mark = LAST | message.len() as u32;
    into.write_all(&[&mark.to_be_bytes(), message].concat())
}

/// The minor version of a COMPOUND.
pub fn minor(call: &[u8]) -> Option<u32> {
    let word = |at: usize| {
        let bytes = call.get(at..at + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    };
    // A call, of NFS, version 4, COMPOUND.
    if (word(4)?, word(12)?, word(16)?, word(20)?) != (0, NFS4_PROGRAM, 4, 1) {
        return None;
    }
    let credential = 32 + word(28)?.next_multiple_of(4) as usize;
    let verifier = credential + 8 + word(credential + 4)?.next_multiple_of(4) as usize;
    let head = compound_head::decode(&mut Reader::new(&call[verifier..]));
    head.ok().map(|head| head.minorversion)
}

/// The answer to a COMPOUND that is refused as a whole.
pub fn refused(call: &[u8], status: nfsstat4) -> Vec<u8> {
    let mut answer = call[..4].to_vec();
    // A reply, accepted, no verifier, success; then no tag and no result.
    for word in [1, 0, 0, 0, 0, status as u32, 0, 0] {
        answer.extend(word.to_be_bytes());
    }
    answer
}
