//! Any datagrams for the port mapper, the status monitor, RQUOTA and MOUNT, as the bytes of an input choose.

use std::sync::{Arc, Mutex};

use nfsd::datagram::Datagram;
use nfsd::rpcbind::{RpcProgram, RpcPrograms};
use testkit::nfs::call::call_header_of;
use wire::mount3::{MOUNT_PROGRAM, MOUNT_V3};
use wire::nlm4::{NLM_PROG, NLM4_VERS};
use wire::nsm::{SM_PROG, SM_VERS};
use wire::rpcbind::PMAP_PROG;
use wire::rquota::{EXT_RQUOTAVERS, RQUOTAPROG};

use super::nfs_compounds::served;
use super::records;
use crate::nfsd::NfsdDouble;

/// An answer has so many bytes at most, beside so many times those of its call: what is sent
/// in another's name floods nothing.
const ANSWER_BYTES_MAX: usize = 320;

/// Gives it a datagram; the answers.
fn answers(server: &mut NfsdDouble, bytes: Vec<u8>) -> Vec<Vec<u8>> {
    let sent: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let to = sent.clone();
    let datagram = Datagram {
        bytes,
        from: "192.0.2.1:700".parse().expect("an address"),
        local: "198.51.100.7:111".parse().expect("an address"),
        answer: Box::new(move |answer| to.lock().expect("whole").push(answer)),
    };
    let times = (server.now(), server.time);
    server.nfsd.take_datagram(datagram, times);
    // MOUNT goes on as work.
    server.advance(1_000_000_000);
    std::mem::take(&mut *sent.lock().expect("whole"))
}

/// Runs what the input chooses; panics where the server does wrong.
pub fn portmap(input: &[u8]) {
    let mut server = served();
    let all = RpcPrograms::new(&RpcProgram::ALL);
    let at = "[::]:2049".parse().expect("an address");
    server.nfsd.set_ports(Arc::new([(at, all)]));
    for (xid, (mode, rest)) in (0..).zip(records(input).take(200)) {
        let procedure = u32::from(mode >> 3);
        let program = match mode & 7 {
            version @ 0..3 => Some((PMAP_PROG, 2 + u32::from(version))),
            3 => Some((SM_PROG, SM_VERS)),
            4 => Some((MOUNT_PROGRAM, MOUNT_V3)),
            5 => Some((NLM_PROG, NLM4_VERS)),
            6 => Some((RQUOTAPROG, EXT_RQUOTAVERS)),
            // Whatever bytes.
            _ => None,
        };
        let mut bytes = match program {
            Some((program, version)) => call_header_of(xid, (program, version, procedure)),
            None => Vec::new(),
        };
        bytes.extend(rest);
        let called = bytes.len();
        let answers = answers(&mut server, bytes.clone());
        assert!(answers.len() <= 1, "one call, one answer");
        assert!(
            answers.len() == 1 || program.is_none(),
            "a call is answered"
        );
        for answer in answers {
            assert_eq!(answer[..4], bytes[..4], "the identifier");
            assert!(
                answer.len() <= called + ANSWER_BYTES_MAX,
                "{}",
                answer.len()
            );
        }
    }
}
