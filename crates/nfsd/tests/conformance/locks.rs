//! Byte-range locks (RFC 7530, sections 9.1 and 16.10 to 16.12 and 16.37; RFC
//! 8881, sections 9 and 18.10 to 18.12).

use testkit::nfs::client::*;
use testkit::nfs::compound::*;
use wire::nfs4::*;
use wire::xdr::{Decode, Reader};

use nfs_lock_type4::{READ_LT, READW_LT, WRITE_LT, WRITEW_LT};
use nfs_opnum4 as op;
use nfsstat4::*;

const RW: u32 = OPEN4_SHARE_ACCESS_BOTH;
const ALL: u64 = u64::MAX;

/// An owner of locks of one open file.
struct Locker {
    opened: OpenFile,
    owner: TestOwner,
    /// After the first lock.
    stateid: Option<stateid4>,
}

impl Locker {
    fn new(client: &mut TestClient, dir: &[u8], access: u32) -> Locker {
        Locker {
            opened: client.open(dir, "file", access, 0),
            owner: client.owner(),
            stateid: None,
        }
    }

    fn ask(&mut self, kind: nfs_lock_type4, offset: u64, length: u64, reclaim: bool) -> Ops {
        let locker = match self.stateid {
            None => locker4::TRUE(open_to_lock_owner4 {
                open_seqid: self.opened.owner.next_seqid(),
                open_stateid: self.opened.stateid,
                lock_seqid: self.owner.next_seqid(),
                lock_owner: self.owner.wire(),
            }),
            Some(lock_stateid) => locker4::FALSE(exist_lock_owner4 {
                lock_stateid,
                lock_seqid: self.owner.next_seqid(),
            }),
        };
        ops()
            .fh(&self.opened.handle)
            .op(nfs_argop4::OP_LOCK(LOCK4args {
                locktype: kind,
                reclaim,
                offset,
                length,
                locker,
            }))
    }

    fn lock(
        &mut self,
        client: &mut TestClient,
        kind: nfs_lock_type4,
        offset: u64,
        length: u64,
    ) -> CompoundAnswer {
        let asked = self.ask(kind, offset, length, false);
        let answer = client.call(asked);
        if answer.status == NFS4_OK {
            let stateid: stateid4 = answer.get(op::OP_LOCK);
            if let Some(old) = self.stateid {
                assert_eq!((stateid.other, stateid.seqid), (old.other, old.seqid + 1));
            }
            self.stateid = Some(stateid);
        } else if self.stateid.is_none() {
            // The owner of locks is not known yet.
            self.owner.next = 0;
        }
        answer
    }

    fn unlock(&mut self, client: &mut TestClient, offset: u64, length: u64) -> CompoundAnswer {
        let asked = ops()
            .fh(&self.opened.handle)
            .op(nfs_argop4::OP_LOCKU(LOCKU4args {
                locktype: WRITE_LT,
                seqid: self.owner.next_seqid(),
                lock_stateid: self.stateid.expect("a lock"),
                offset,
                length,
            }));
        let answer = client.call(asked);
        if answer.status == NFS4_OK {
            self.stateid = Some(answer.get(op::OP_LOCKU));
        }
        answer
    }
}

fn lockt(
    client: &mut TestClient,
    handle: &[u8],
    owner: &TestOwner,
    kind: nfs_lock_type4,
    offset: u64,
    length: u64,
) -> CompoundAnswer {
    client.call(ops().fh(handle).op(nfs_argop4::OP_LOCKT(LOCKT4args {
        locktype: kind,
        offset,
        length,
        owner: owner.wire(),
    })))
}

/// Whose lock is in the way.
fn denied(answer: &CompoundAnswer, op: nfs_opnum4) -> (u64, u64, nfs_lock_type4, Vec<u8>) {
    let mut from = Reader::new(answer.body(op));
    let denied = LOCK4denied::decode(&mut from).expect("LOCK4denied");
    let owner = denied.owner.owner.0.to_vec();
    (denied.offset, denied.length, denied.locktype, owner)
}

pub fn ranges(case: &mut Case) {
    let server = case.server.clone();
    let dir = case.dir.clone();
    let mut other = TestClient::new(&server, case.minor);
    let mut a = Locker::new(&mut case.client, &dir, RW);
    let mut b = Locker::new(&mut other, &dir, RW);
    a.lock(&mut case.client, WRITE_LT, 10, 10).ok();
    let found = b.lock(&mut other, WRITE_LT, 0, 100).is(NFS4ERR_DENIED);
    assert_eq!(
        denied(&found, op::OP_LOCK),
        (10, 10, WRITE_LT, a.owner.name.clone())
    );
    b.lock(&mut other, READ_LT, 19, 1).is(NFS4ERR_DENIED);
    b.lock(&mut other, WRITE_LT, 20, ALL).ok();
    b.lock(&mut other, WRITE_LT, 0, 10).ok();
    a.lock(&mut case.client, READ_LT, 20, 1).is(NFS4ERR_DENIED);
    // Cut out of the middle, put together, made weaker.
    a.unlock(&mut case.client, 14, 2).ok();
    b.lock(&mut other, WRITE_LT, 14, 2).ok();
    b.unlock(&mut other, 0, ALL).ok();
    a.lock(&mut case.client, READ_LT, 10, 10).ok();
    b.lock(&mut other, READ_LT, 0, ALL).ok();
    a.lock(&mut case.client, WRITE_LT, 10, 1).is(NFS4ERR_DENIED);
    b.unlock(&mut other, 0, ALL).ok();
    a.lock(&mut case.client, WRITE_LT, 10, 10).ok();
    // Blocking kinds do not block here.
    b.lock(&mut other, WRITEW_LT, 10, 1).is(NFS4ERR_DENIED);
    b.lock(&mut other, READW_LT, 10, 1).is(NFS4ERR_DENIED);
    // What is not held may be unlocked too.
    a.unlock(&mut case.client, 500, 10).ok();
    for (offset, length) in [(0, 0), (ALL, 2), (5, ALL - 4)] {
        a.lock(&mut case.client, READ_LT, offset, length)
            .is(NFS4ERR_INVAL);
        a.unlock(&mut case.client, offset, length).is(NFS4ERR_INVAL);
        let owner = case.client.owner();
        lockt(
            &mut case.client,
            &a.opened.handle,
            &owner,
            READ_LT,
            offset,
            length,
        )
        .is(NFS4ERR_INVAL);
    }
    // The very last byte.
    a.lock(&mut case.client, WRITE_LT, ALL - 1, 1).ok();
    let owner = other.owner();
    let found = lockt(&mut other, &a.opened.handle, &owner, READ_LT, 12, 1).is(NFS4ERR_DENIED);
    assert_eq!(
        denied(&found, op::OP_LOCKT),
        (10, 10, WRITE_LT, a.owner.name.clone())
    );
    lockt(&mut other, &a.opened.handle, &owner, WRITE_LT, 30, 100).ok();
    let own = a.owner.clone();
    lockt(&mut case.client, &a.opened.handle, &own, WRITE_LT, 0, ALL).ok();
    let dir_test = lockt(&mut other, &dir, &owner, WRITE_LT, 0, 1).status;
    assert_eq!(dir_test, NFS4ERR_ISDIR);
}

/// What an open file must be for which lock, and what CLOSE does.
pub fn modes(case: &mut Case) {
    let dir = case.dir.clone();
    let mut reads = Locker::new(&mut case.client, &dir, OPEN4_SHARE_ACCESS_READ);
    reads
        .lock(&mut case.client, WRITE_LT, 0, 1)
        .is(NFS4ERR_OPENMODE);
    let mut reads = Locker::new(&mut case.client, &dir, OPEN4_SHARE_ACCESS_READ);
    reads.lock(&mut case.client, READ_LT, 0, 1).ok();
    let mut writes = Locker::new(&mut case.client, &dir, OPEN4_SHARE_ACCESS_WRITE);
    writes
        .lock(&mut case.client, READ_LT, 0, 1)
        .is(NFS4ERR_OPENMODE);
    // One that reclaims where there is nothing to reclaim.
    let mut late = Locker::new(&mut case.client, &dir, RW);
    let asked = late.ask(WRITE_LT, 50, 1, true);
    case.call(asked).is(NFS4ERR_NO_GRACE);
    let mut a = Locker::new(&mut case.client, &dir, RW);
    a.lock(&mut case.client, WRITE_LT, 10, 10).ok();
    // A lock's state id reads and writes as its open does.
    let stateid = a.stateid.expect("a lock");
    let read = ops().fh(&a.opened.handle).read(stateid, 0, 4);
    assert_eq!(case.call(read).ok().data().0, b"0123");
    let write = ops()
        .fh(&a.opened.handle)
        .write(stateid, 0, stable_how4::UNSTABLE4, b"x");
    case.call(write).ok();
    // Numbers of the state id that are too new or too old.
    a.stateid = Some(stateid4 {
        seqid: stateid.seqid + 5,
        ..stateid
    });
    let new = a.unlock(&mut case.client, 10, 1);
    new.is(NFS4ERR_BAD_STATEID);
    if case.minor == 0 {
        // It does not count (RFC 7530, section 9.1.7).
        a.owner.next -= 1;
    }
    a.stateid = Some(stateid);
    a.unlock(&mut case.client, 10, 1).ok();
    a.stateid = Some(stateid);
    let old = a.unlock(&mut case.client, 11, 1);
    old.is(NFS4ERR_OLD_STATEID);
    match case.minor {
        0 => {
            let status = case.client.close(&mut a.opened).status;
            // Either it holds on, or lets go of the locks too.
            assert!(
                [NFS4ERR_LOCKS_HELD, NFS4_OK].contains(&status),
                "{status:?}"
            );
        }
        _ => {
            case.call(ops().free_stateid(stateid4 {
                seqid: 0,
                ..stateid
            }))
            .is(NFS4ERR_LOCKS_HELD);
            let status = case.client.close(&mut a.opened).status;
            assert!(
                [NFS4ERR_LOCKS_HELD, NFS4_OK].contains(&status),
                "{status:?}"
            );
        }
    }
}

/// Owners of version 4.0: their numbers, and RELEASE_LOCKOWNER.
pub fn owners(case: &mut Case) {
    let dir = case.dir.clone();
    let mut a = Locker::new(&mut case.client, &dir, RW);
    a.lock(&mut case.client, WRITE_LT, 0, 5).ok();
    // Asked again, by the number that was used last.
    a.owner.next -= 1;
    a.stateid = a.stateid.map(|stateid| stateid4 {
        seqid: 1,
        ..stateid
    });
    let asked = a.ask(WRITE_LT, 10, 5, false);
    let status = case.call(asked).status;
    assert!([NFS4ERR_BAD_SEQID, NFS4_OK].contains(&status), "{status:?}");
    a.owner.next += 4;
    let asked = a.ask(WRITE_LT, 10, 5, false);
    case.call(asked).is(NFS4ERR_BAD_SEQID);
    let release = |owner: &TestOwner| {
        ops().op(nfs_argop4::OP_RELEASE_LOCKOWNER(RELEASE_LOCKOWNER4args {
            lock_owner: owner.wire(),
        }))
    };
    let unknown = case.client.owner();
    case.call(release(&unknown)).ok();
    case.call(release(&a.owner)).is(NFS4ERR_LOCKS_HELD);
    a.owner.next = 1;
    a.unlock(&mut case.client, 0, ALL).ok();
    case.call(release(&a.owner)).ok();
    let stranger = TestOwner {
        client: !a.owner.client,
        ..a.owner.clone()
    };
    case.call(release(&stranger)).is(NFS4ERR_STALE_CLIENTID);
}

/// State ids of locks that hold nothing can be freed (RFC 8881, section 18.38).
pub fn frees(case: &mut Case) {
    let dir = case.dir.clone();
    let mut a = Locker::new(&mut case.client, &dir, RW);
    a.lock(&mut case.client, WRITE_LT, 0, 5).ok();
    case.call(ops().free_stateid(a.stateid.expect("a lock")))
        .is(NFS4ERR_LOCKS_HELD);
    a.unlock(&mut case.client, 0, ALL).ok();
    let stateid = a.stateid.expect("a state");
    case.call(ops().free_stateid(stateid)).ok();
    case.call(ops().free_stateid(stateid))
        .is(NFS4ERR_BAD_STATEID);
    case.client.close(&mut a.opened).ok();
}
