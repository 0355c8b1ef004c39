//! ONC RPC (RFC 5531): what is answered before anything is executed.

use testkit::nfs::compound::*;
use wire::nfs4::{NFS4_PROGRAM, NFSPROC4_NULL};
use wire::rpc::{AUTH_NONE, call_body, opaque_auth};
use wire::xdr::Opaque;

/// REPLY, then what an answer begins with.
fn words(answer: &[u8]) -> Vec<u32> {
    let words = answer[4..].chunks_exact(4);
    words
        .map(|word| u32::from_be_bytes(word.try_into().expect("4 bytes")))
        .collect()
}

type Change = fn(&mut call_body<'_>);

/// Calls that are not executed, and their answers: MSG_ACCEPTED with a verifier
/// of nothing and a reason, or MSG_DENIED.
const CALLS: &[(&str, Change, &[u32])] = &[
    ("RPC version 3", |call| call.rpcvers = 3, &[1, 1, 0, 2, 2]),
    ("no program", |call| call.prog = 100_099, &[1, 0, 0, 0, 1]),
    (
        "NFS version 2",
        |call| call.vers = 2,
        &[1, 0, 0, 0, 2, 3, 4],
    ),
    (
        "NFS version 5",
        |call| call.vers = 5,
        &[1, 0, 0, 0, 2, 3, 4],
    ),
    ("procedure 2", |call| call.proc = 2, &[1, 0, 0, 0, 3]),
    (
        "MOUNT version 1",
        |call| (call.prog, call.vers) = (100_005, 1),
        &[1, 0, 0, 0, 2, 3, 3],
    ),
    (
        "a procedure of MOUNT",
        |call| (call.prog, call.vers, call.proc) = (100_005, 3, 6),
        &[1, 0, 0, 0, 3],
    ),
    (
        "a procedure of version 3",
        |call| (call.vers, call.proc) = (3, 22),
        &[1, 0, 0, 0, 3],
    ),
    ("no arguments", |_| {}, &[1, 0, 0, 0, 4]),
    (
        "an unknown flavor",
        |call| {
            call.cred = opaque_auth {
                flavor: 390_007,
                body: Opaque(b""),
            }
        },
        &[1, 1, 1],
    ),
    (
        "a credential that is none",
        |call| call.cred.body = Opaque(b"four"),
        &[1, 1, 1, 1],
    ),
];

pub fn refusals(server: &ServerUnderTest) {
    let mut wire = Wire::new(server);
    for (what, change, expected) in CALLS {
        let answer = wire.exchange(change, &[]);
        let answer = answer.unwrap_or_else(|| panic!("{what}: no answer"));
        let found = words(&answer);
        assert!(found.starts_with(expected), "{what}: {found:?}");
    }
    // The connection is still good.
    for (program, version) in [(NFS4_PROGRAM, 4), (NFS4_PROGRAM, 3), (100_005, 3)] {
        let answer = wire.call(
            |call| (call.prog, call.vers, call.proc) = (program, version, NFSPROC4_NULL),
            &[],
        );
        assert!(answer.is_empty(), "NULL");
    }
    // NULL needs no credential.
    wire.credential = Credential::None;
    let null = |call: &mut call_body<'_>| {
        assert_eq!(call.cred.flavor, AUTH_NONE);
        call.proc = NFSPROC4_NULL;
    };
    assert!(wire.call(null, &[]).is_empty());
}

/// What cannot be a record ends its connection, and no other.
pub fn broken(server: &ServerUnderTest) {
    let mut good = Wire::new(server);
    for record in [&[][..], b"abc", &[0xff; 40], &[0; 7]] {
        let mut wire = Wire::new(server);
        wire.send(record);
        // It may be answered or not, but it is not taken for a call.
        let mut other = Wire::new(server);
        let null = |call: &mut call_body<'_>| call.proc = NFSPROC4_NULL;
        assert!(other.call(null, &[]).is_empty());
    }
    let null = |call: &mut call_body<'_>| call.proc = NFSPROC4_NULL;
    assert!(good.call(null, &[]).is_empty());
}
