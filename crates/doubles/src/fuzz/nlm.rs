//! Any hosts of NFSv3 that lock one file, as the bytes of an input choose, against a model of
//! each byte.

use std::collections::BTreeMap;
use std::net::IpAddr;

use nfsd::View;
use nfsd::nlm::HostCall;
use testkit::nfs::call::call_header_of;
use wire::nfs3::{CREATE3args, CREATE3res, createhow3, diropargs3, nfs_proc3};
use wire::nfs4::NFS4_PROGRAM;
use wire::nlm4::*;
use wire::nsm::{SM_PROG, SM_VERS, sm_proc, stat_chge};
use wire::rpc::{accept_stat, accepted_body, reply_body};
use wire::xdr::{Decode, Encode, Opaque, Reader};

use super::nfs_compounds::served;
use crate::nfsd::NfsdDouble;

/// Steps of an input at most.
const STEPS_MAX: usize = 400;
/// Bytes of the file that are locked; the last one stands for all behind it.
const BYTES: u64 = 12;
const SECOND: u64 = 1_000_000_000;

/// An owner: its host, and a process of it.
type HostOwner = (usize, u32);

/// Who holds which byte, and whether exclusively.
#[derive(Default)]
struct BytesHeld(BTreeMap<(u64, HostOwner), bool>);

impl BytesHeld {
    fn is_free(&self, by: HostOwner, range: (u64, u64), exclusive: bool) -> bool {
        bytes(range).all(|byte| {
            let of_byte = self
                .0
                .range((byte, (0, 0))..=(byte, (usize::MAX, u32::MAX)));
            let mut others = of_byte.filter(|((_, owner), _)| *owner != by);
            others.all(|(_, is_exclusive)| !exclusive && !is_exclusive)
        })
    }

    fn give_up(&mut self, by: HostOwner, range: (u64, u64)) {
        for byte in bytes(range) {
            self.0.remove(&(byte, by));
        }
    }
}

/// The bytes of a range; one of no length goes to the end.
fn bytes((offset, len): (u64, u64)) -> impl Iterator<Item = u64> {
    let end = match len {
        0 => BYTES,
        len => (offset + len).min(BYTES),
    };
    offset..end
}

struct LockWorld {
    server: NfsdDouble,
    conns: Vec<usize>,
    file: Vec<u8>,
    held: BytesHeld,
    xid: u32,
    state: u32,
}

const NAMES: [&[u8]; 3] = [b"one", b"two.example.org", b"three"];

impl LockWorld {
    /// The results of a call; nothing where RPC refuses it.
    fn call(&mut self, host: usize, program: (u32, u32, u32), args: &[u8]) -> Option<Vec<u8>> {
        self.xid += 1;
        let mut record = call_header_of(self.xid, program);
        record.extend(args);
        let answer = self.server.call(self.conns[host], &record);
        let mut from = Reader::new(&answer[8..]);
        let reply = reply_body::decode(&mut from).expect("an answer");
        let reply_body::MSG_ACCEPTED(accepted) = reply else {
            return None;
        };
        let is_done = accepted.body == accepted_body::default(accept_stat::SUCCESS);
        is_done.then(|| from.rest().to_vec())
    }

    fn stat(&mut self, host: usize, procedure: nlm4_proc, args: &impl Encode) -> nlm4_stats {
        let mut bytes = Vec::new();
        args.encode(&mut bytes);
        let program = (NLM_PROG, NLM4_VERS, procedure as u32);
        let results = self.call(host, program, &bytes).expect("results");
        let mut from = Reader::new(&results);
        netobj::decode(&mut from).expect("a cookie");
        nlm4_stats::decode(&mut from).expect("a status")
    }

    /// What hosts have waited for is theirs; each may not want it any more, and then it is the
    /// next one's.
    fn take_grants(&mut self, keeps: bool) {
        let mut calls = self.server.nfsd.take_host_calls();
        while let Some(call) = calls.pop() {
            let HostCall::Granted(grant) = call else {
                continue;
            };
            let mut bytes_sent = Vec::new();
            grant.encode(&mut bytes_sent);
            let args = nlm4_testargs::decode(&mut Reader::new(&bytes_sent)).expect("arguments");
            let host = NAMES
                .iter()
                .position(|name| *name == args.alock.caller_name.0);
            let by = (host.expect("one of them"), args.alock.svid);
            let range = (args.alock.l_offset, args.alock.l_len);
            assert!(
                self.held.is_free(by, range, args.exclusive),
                "it is not free"
            );
            for byte in bytes(range) {
                self.held.0.insert((byte, by), args.exclusive);
            }
            let now = self.server.now();
            let answer = match keeps {
                true => nlm4_stats::NLM4_GRANTED,
                false => nlm4_stats::NLM4_DENIED,
            };
            self.server.nfsd.granted(&grant, Some(answer), now);
            if !keeps {
                self.held.give_up(by, range);
            }
            calls.extend(self.server.nfsd.take_host_calls());
        }
    }

    fn lock(&mut self, by: HostOwner, range: (u64, u64), (exclusive, block): (bool, bool)) {
        let file = self.file.clone();
        let args = nlm4_lockargs {
            cookie: Opaque(b"c"),
            block,
            exclusive,
            alock: alock(by, range, &file),
            reclaim: false,
            state: self.state,
        };
        let is_free = self.held.is_free(by, range, exclusive);
        let stat = self.stat(by.0, nlm4_proc::NLMPROC4_LOCK, &args);
        let expected = match (is_free, block) {
            (true, _) => nlm4_stats::NLM4_GRANTED,
            (false, true) => nlm4_stats::NLM4_BLOCKED,
            (false, false) => nlm4_stats::NLM4_DENIED,
        };
        assert_eq!(stat, expected, "{by:?} {range:?}");
        if is_free {
            for byte in bytes(range) {
                self.held.0.insert((byte, by), exclusive);
            }
        }
    }

    fn unlock(&mut self, by: HostOwner, range: (u64, u64)) {
        let file = self.file.clone();
        let args = nlm4_unlockargs {
            cookie: Opaque(b"c"),
            alock: alock(by, range, &file),
        };
        let stat = self.stat(by.0, nlm4_proc::NLMPROC4_UNLOCK, &args);
        assert_eq!(stat, nlm4_stats::NLM4_GRANTED);
        self.held.give_up(by, range);
    }

    fn test(&mut self, by: HostOwner, range: (u64, u64), exclusive: bool) {
        let file = self.file.clone();
        let args = nlm4_testargs {
            cookie: Opaque(b"c"),
            exclusive,
            alock: alock(by, range, &file),
        };
        let stat = self.stat(by.0, nlm4_proc::NLMPROC4_TEST, &args);
        let is_free = self.held.is_free(by, range, exclusive);
        assert_eq!(
            stat == nlm4_stats::NLM4_GRANTED,
            is_free,
            "{by:?} {range:?}"
        );
    }

    fn cancel(&mut self, by: HostOwner, range: (u64, u64), exclusive: bool) {
        let file = self.file.clone();
        let args = nlm4_cancargs {
            cookie: Opaque(b"c"),
            block: true,
            exclusive,
            alock: alock(by, range, &file),
        };
        self.stat(by.0, nlm4_proc::NLMPROC4_CANCEL, &args);
    }

    fn restart_host(&mut self, host: usize) {
        self.state += 2;
        let notice = stat_chge {
            mon_name: Opaque(NAMES[host]),
            state: self.state,
        };
        let mut bytes = Vec::new();
        notice.encode(&mut bytes);
        self.call(host, (SM_PROG, SM_VERS, sm_proc::SM_NOTIFY as u32), &bytes);
        self.held.0.retain(|(_, (other, _)), _| *other != host);
        // What it had goes in a turn of its own.
        self.server.advance(SECOND);
    }
}

fn alock<'a>((host, svid): HostOwner, range: (u64, u64), file: &'a [u8]) -> nlm4_lock<'a> {
    nlm4_lock {
        caller_name: Opaque(NAMES[host]),
        fh: Opaque(file),
        oh: Opaque(b"o"),
        svid,
        l_offset: range.0,
        l_len: range.1,
    }
}

/// Runs what the input chooses; panics where the server does wrong.
pub fn nlm(input: &[u8]) {
    let mut server = served();
    let addresses = ["192.0.2.1:700", "192.0.2.2:700", "192.0.2.3:700"];
    let connect = |address: &&str| server.connect(address.parse().expect("an address"));
    let conns: Vec<usize> = addresses.iter().map(connect).collect();
    let file = made_file(&mut server, conns[0]);
    let mut world = LockWorld {
        server,
        conns,
        file,
        held: BytesHeld::default(),
        xid: 0,
        state: 1,
    };
    for step in input.chunks_exact(4).take(STEPS_MAX) {
        let by = (usize::from(step[0] % 3), u32::from(step[0] / 3 % 3));
        let offset = u64::from(step[1]) % BYTES;
        let range = (offset, u64::from(step[2]) % (BYTES - offset));
        let exclusive = step[3] & 1 != 0;
        match step[3] >> 1 & 15 {
            0..5 => world.lock(by, range, (exclusive, false)),
            5 | 6 => world.lock(by, range, (exclusive, true)),
            7..10 => world.unlock(by, range),
            10 | 11 => world.test(by, range, exclusive),
            12 => world.cancel(by, range, exclusive),
            13 => world.restart_host(by.0),
            14 => world.server.advance(SECOND),
            // Whatever bytes as arguments of whatever procedure.
            _ => {
                let procedure = u32::from(step[1] % 24);
                let _ = world.call(by.0, (NLM_PROG, NLM4_VERS, procedure), step);
            }
        }
        world.take_grants(step[3] >> 5 != 0);
    }
    for host in 0..NAMES.len() {
        world.restart_host(host);
        world.take_grants(false);
    }
    for host in 0..NAMES.len() {
        world.restart_host(host);
    }
    world.take_grants(true);
    world.held.0.clear();
    world.test((0, 9), (0, 0), true);
}

/// The handle of a new file.
fn made_file(server: &mut NfsdDouble, conn: usize) -> Vec<u8> {
    let from = IpAddr::from([127, 0, 0, 1]);
    let view = View::new(&server.nfsd.exports, from);
    let granted = view.all_granted().next().expect("one export");
    let root = granted.handle(granted.fs.root()).encode();
    let mut record = call_header_of(1, (NFS4_PROGRAM, 3, nfs_proc3::NFSPROC3_CREATE as u32));
    CREATE3args {
        where_: diropargs3 {
            dir: Opaque(&root),
            name: Opaque(b"f"),
        },
        how: createhow3::EXCLUSIVE([0; 8]),
    }
    .encode(&mut record);
    let answer = server.call(conn, &record);
    let made = CREATE3res::decode(&mut Reader::new(&answer[24..])).expect("a result");
    let CREATE3res::NFS3_OK(made) = made else {
        panic!("{made:?}");
    };
    made.obj.expect("a handle").0.to_vec()
}
