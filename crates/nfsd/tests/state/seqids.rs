//! What owners of version 4.0 may number what they ask (RFC 7530, sections 9.1.7 to
//! 9.1.9): each operation with each number, against a model of a few lines.

use std::sync::Arc;

use nfsd::exports::{Export, Exports, Rule, Squash};
use store::fs::{FileSystem, Memory, Time};
use wire::nfs4::*;
use wire::xdr::Opaque;

use crate::world::*;
use nfs_argop4 as arg;
use nfsstat4::*;

/// What an owner of opens, or of locks, asks by a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Open,
    /// Of a file that is not there.
    OpenAbsent,
    Confirm,
    Downgrade,
    Close,
    /// The first of a lock owner, by the number of the open owner.
    LockFirst,
    /// By the number of the lock owner.
    Lock,
    /// Of what another client has locked.
    LockDenied,
    Unlock,
}

use Asked::*;

const OF_OPENS: [Asked; 6] = [Open, OpenAbsent, Confirm, Downgrade, Close, LockFirst];
const OF_LOCKS: [Asked; 3] = [Lock, LockDenied, Unlock];

/// The number before that of the owner's last request, that request's, and what follows.
const STEPS: [u32; 4] = [u32::MAX, 0, 1, 2];

/// Numbers of last requests: also where they wrap.
const LAST: [u32; 4] = [7, u32::MAX - 1, u32::MAX, 0];

/// What is asked, other than by its number.
impl Asked {
    fn op(self) -> nfs_opnum4 {
        match self {
            Open | OpenAbsent => nfs_opnum4::OP_OPEN,
            Confirm => nfs_opnum4::OP_OPEN_CONFIRM,
            Downgrade => nfs_opnum4::OP_OPEN_DOWNGRADE,
            Close => nfs_opnum4::OP_CLOSE,
            LockFirst | Lock | LockDenied => nfs_opnum4::OP_LOCK,
            Unlock => nfs_opnum4::OP_LOCKU,
        }
    }
}

/// A client with a file open, and the owners of that open and of a lock.
struct Bench {
    world: World,
    client: Client,
    handle: Vec<u8>,
    opened: stateid4,
    locked: stateid4,
}

impl Bench {
    /// `f` is open by an owner whose last number was `last`; another client has a byte
    /// of it locked.
    fn new(last: u32, is_confirmed: bool) -> Bench {
        let mut world = World::new();
        let mut other = world.client("other", 1);
        let (held, handle) = world.create(&mut other, "o", "f");
        let lock = at(&handle).op(arg::OP_LOCK(LOCK4args {
            offset: 1000,
            length: 1,
            ..locking(&other, "m", held)
        }));
        assert_eq!(world.last(&mut other, lock), NFS4_OK);
        let client = world.client("a", 0);
        let mut bench = Bench {
            world,
            client,
            handle,
            opened: ANONYMOUS,
            locked: ANONYMOUS,
        };
        let confirmed_by = u32::from(is_confirmed);
        let answer = bench.ask(Open, last.wrapping_sub(confirmed_by));
        assert_eq!(answer.status, NFS4_OK);
        bench.take(Open, answer);
        if is_confirmed {
            let answer = bench.ask(Confirm, last);
            assert_eq!(answer.status, NFS4_OK);
            bench.take(Confirm, answer);
        }
        bench
    }

    /// The same, with a lock by an owner whose last number was `last`.
    fn locking(last: u32) -> Bench {
        let mut bench = Bench::new(1, true);
        let answer = bench.lock_first(2, last);
        assert_eq!(answer.status, NFS4_OK);
        bench.take(LockFirst, answer);
        bench
    }

    fn lock_first(&mut self, open_seqid: u32, lock_seqid: u32) -> Answer {
        let LOCK4args {
            locker: locker4::TRUE(new),
            ..
        } = locking(&self.client, "l", self.opened)
        else {
            unreachable!("a new lock owner")
        };
        let locker = locker4::TRUE(open_to_lock_owner4 {
            open_seqid,
            lock_seqid,
            ..new
        });
        let ops = at(&self.handle).op(arg::OP_LOCK(LOCK4args {
            locktype: nfs_lock_type4::READ_LT,
            reclaim: false,
            offset: 0,
            length: 10,
            locker,
        }));
        self.world.run(&mut self.client.clone(), ops)
    }

    fn ask(&mut self, asked: Asked, seqid: u32) -> Answer {
        let at = at(&self.handle);
        let named = |name: &'static str| OPEN4args {
            seqid,
            share_access: BOTH,
            ..opening(&self.client, "o", name)
        };
        let lock = |offset| LOCK4args {
            locktype: nfs_lock_type4::READ_LT,
            reclaim: false,
            offset,
            length: 10,
            locker: locker4::FALSE(exist_lock_owner4 {
                lock_stateid: self.locked,
                lock_seqid: seqid,
            }),
        };
        let ops = match asked {
            Open => root().op(arg::OP_OPEN(named("f"))),
            OpenAbsent => root().op(arg::OP_OPEN(named("absent"))),
            Confirm => at.op(arg::OP_OPEN_CONFIRM(OPEN_CONFIRM4args {
                open_stateid: self.opened,
                seqid,
            })),
            Downgrade => at.op(arg::OP_OPEN_DOWNGRADE(OPEN_DOWNGRADE4args {
                open_stateid: self.opened,
                seqid,
                share_access: BOTH,
                share_deny: OPEN4_SHARE_DENY_NONE,
            })),
            Close => at.close(seqid, self.opened),
            LockFirst => return self.lock_first(seqid, 40),
            Lock => at.op(arg::OP_LOCK(lock(20))),
            LockDenied => at.op(arg::OP_LOCK(lock(995))),
            Unlock => at.op(arg::OP_LOCKU(LOCKU4args {
                locktype: nfs_lock_type4::READ_LT,
                seqid,
                lock_stateid: self.locked,
                offset: 0,
                length: 5,
            })),
        };
        self.world.run(&mut self.client.clone(), ops)
    }

    /// What follows names the state as it is now.
    fn take(&mut self, asked: Asked, mut answer: Answer) {
        let first = match asked {
            Open | OpenAbsent => nfs_opnum4::OP_PUTROOTFH,
            _ => nfs_opnum4::OP_PUTFH,
        };
        answer.ok(first);
        match asked {
            Open => self.opened = answer.opened().stateid,
            Confirm | Downgrade => self.opened = answer.ok(asked.op()).get(),
            LockFirst | Lock | Unlock => self.locked = answer.ok(asked.op()).get(),
            OpenAbsent | Close | LockDenied => {}
        }
    }

    /// What there is of the client: states, locks and so on.
    fn counts(&self) -> [usize; 4] {
        self.world.server.nfsd.files.counts(self.client.id)
    }
}

/// What a request by the next number comes to.
fn status_of(asked: Asked, is_confirmed: bool) -> nfsstat4 {
    match asked {
        Open => NFS4_OK,
        OpenAbsent => NFS4ERR_NOENT,
        // Once is enough, and before that nothing else is allowed.
        Confirm if is_confirmed => NFS4ERR_BAD_STATEID,
        Downgrade | Close | LockFirst if !is_confirmed => NFS4ERR_BAD_STATEID,
        LockDenied => NFS4ERR_DENIED,
        _ => NFS4_OK,
    }
}

#[test]
fn an_open_owner_is_served_by_the_next_number_alone() {
    for (asked, last) in all(&OF_OPENS) {
        for (step, is_confirmed) in STEPS.into_iter().flat_map(|s| [(s, false), (s, true)]) {
            let mut bench = Bench::new(last, is_confirmed);
            let seqid = last.wrapping_add(step);
            let before = bench.counts();
            let answer = bench.ask(asked, seqid);
            let was_asked = if is_confirmed { Confirm } else { Open };
            let expected = match step {
                1 => status_of(asked, is_confirmed),
                // It gets its last answer again, whatever it names now.
                0 if asked.op() == was_asked.op() => NFS4_OK,
                // An owner that never confirmed anything begins anew.
                _ if !is_confirmed && matches!(asked, Open | OpenAbsent) => status_of(asked, false),
                _ => NFS4ERR_BAD_SEQID,
            };
            let what = format!("{asked:?} {step} after {last}, confirmed: {is_confirmed}");
            assert_eq!(answer.status, expected, "{what}");
            if expected == NFS4ERR_BAD_SEQID || step == 0 {
                assert_eq!(bench.counts(), before, "{what}");
            }
            if step == 0 || !is_confirmed {
                continue;
            }
            // A number is used up by what was done, and by errors of the file.
            let is_used = step == 1 && asked != Confirm;
            let next = last.wrapping_add(1 + u32::from(is_used));
            if is_used {
                let again = bench.ask(asked, seqid);
                assert_eq!(format!("{again:?}"), format!("{answer:?}"), "{what}, again");
            }
            let wrong = bench.ask(Open, next.wrapping_add(1)).status;
            assert_eq!(wrong, NFS4ERR_BAD_SEQID, "{what}, then");
            assert_eq!(bench.ask(Open, next).status, NFS4_OK, "{what}, then");
        }
    }
}

#[test]
fn a_lock_owner_is_served_by_the_next_number_alone() {
    for (asked, last) in all(&OF_LOCKS) {
        for step in STEPS {
            let mut bench = Bench::locking(last);
            let seqid = last.wrapping_add(step);
            let before = bench.counts();
            let answer = bench.ask(asked, seqid);
            let expected = match step {
                1 => status_of(asked, true),
                // What came last was the LOCK that made its state.
                0 if asked != Unlock => NFS4_OK,
                _ => NFS4ERR_BAD_SEQID,
            };
            let what = format!("{asked:?} {step} after {last}");
            assert_eq!(answer.status, expected, "{what}");
            let is_used = step == 1;
            if !is_used {
                assert_eq!(bench.counts(), before, "{what}");
            } else {
                let again = bench.ask(asked, seqid);
                assert_eq!(format!("{again:?}"), format!("{answer:?}"), "{what}, again");
                if answer.status == NFS4_OK {
                    bench.take(asked, answer);
                }
            }
            let next = last.wrapping_add(1 + u32::from(is_used));
            let wrong = bench.ask(Lock, next.wrapping_add(1)).status;
            assert_eq!(wrong, NFS4ERR_BAD_SEQID, "{what}, then");
            assert_eq!(bench.ask(Lock, next).status, NFS4_OK, "{what}, then");
        }
    }
}

fn all(asked: &[Asked]) -> impl Iterator<Item = (Asked, u32)> {
    asked
        .iter()
        .flat_map(|asked| LAST.map(|last| (*asked, last)))
}

/// What an operation with a number fails with, and whether that uses the number up:
/// clients count so too.
#[test]
fn errors_that_use_no_number_up_are_those_of_the_standard() {
    let stale = |stateid: stateid4| {
        let mut other = stateid.other;
        other[..4].copy_from_slice(&77u32.to_be_bytes());
        stateid4 { other, ..stateid }
    };
    let unknown = |stateid: stateid4| {
        let mut other = stateid.other;
        other[11] ^= 0x40;
        stateid4 { other, ..stateid }
    };
    for number in 0..11 {
        let mut bench = Bench::new(7, true);
        let stranger = Client {
            id: bench.client.id + (5 << 32),
            ..bench.client.clone()
        };
        let (here, opened) = (at(&bench.handle), bench.opened);
        let open = OPEN4args {
            seqid: 8,
            share_access: BOTH,
            ..opening(&bench.client, "o", "f")
        };
        let downgrade = |open_stateid, share_access| {
            arg::OP_OPEN_DOWNGRADE(OPEN_DOWNGRADE4args {
                open_stateid,
                seqid: 8,
                share_access,
                share_deny: OPEN4_SHARE_DENY_NONE,
            })
        };
        let old = stateid4 { seqid: 1, ..opened };
        let bad = stateid4 { seqid: 9, ..opened };
        let by_stranger = OPEN4args {
            owner: opening(&stranger, "o", "f").owner,
            ..open
        };
        let by_handle = OPEN4args {
            claim: open_claim4::CLAIM_FH,
            ..open
        };
        let no_access = OPEN4args {
            share_access: 0,
            ..open
        };
        let name_too_long = [b'x'; 300];
        let too_long = OPEN4args {
            claim: open_claim4::CLAIM_NULL(Opaque(&name_too_long)),
            ..open
        };
        let (ops, status, is_used) = match number {
            0 => (
                root().op(arg::OP_OPEN(by_stranger)),
                NFS4ERR_STALE_CLIENTID,
                false,
            ),
            1 => (here.close(8, stale(opened)), NFS4ERR_STALE_STATEID, false),
            2 => (here.close(8, unknown(opened)), NFS4ERR_BAD_STATEID, false),
            3 => (here.close(8, bad), NFS4ERR_BAD_STATEID, false),
            4 => (root().op(arg::OP_OPEN(by_handle)), NFS4ERR_BADXDR, false),
            5 => (Ops::default().close(8, opened), NFS4ERR_NOFILEHANDLE, false),
            6 => (root().close(8, opened), NFS4ERR_BAD_STATEID, false),
            7 => (here.close(8, old), NFS4ERR_OLD_STATEID, true),
            8 => (here.op(downgrade(opened, 0)), NFS4ERR_INVAL, true),
            9 => (root().op(arg::OP_OPEN(no_access)), NFS4ERR_INVAL, true),
            _ => (root().op(arg::OP_OPEN(too_long)), NFS4ERR_NAMETOOLONG, true),
        };
        let answer = bench.world.run(&mut bench.client.clone(), ops.clone());
        assert_eq!(answer.status, status, "{number}");
        let again = bench.world.run(&mut bench.client.clone(), ops);
        assert_eq!(again.status, status, "{number}, again");
        let wrong = bench.ask(Open, 9 + u32::from(is_used)).status;
        assert_eq!(wrong, NFS4ERR_BAD_SEQID, "{number}");
        let next = bench.ask(Open, 8 + u32::from(is_used)).status;
        assert_eq!(next, NFS4_OK, "{number}");
    }
}

/// The file that an OPEN came to is one of the export where it was asked: by its
/// number in another export, another file is not had.
#[test]
fn a_retransmitted_open_in_another_export_finds_no_file() {
    let mut world = World::new();
    let export = |path: &str, id| {
        let fs = Memory::new(path, 1 << 30, id, Time::default()).expect("memory");
        let fs: Arc<dyn FileSystem> = Arc::new(fs);
        let rule = Rule {
            squash: Squash::None,
            ..Rule::default()
        };
        Export::new(path, fs, vec![rule]).expect("an export")
    };
    let both = vec![export("/one", 20), export("/two", 21)];
    let both = Exports::new(both, world.server.time).expect("exports");
    world.server.nfsd.set_exports(both);
    let mut a = world.client("a", 0);
    let named = a.clone();
    let down = |name: &'static str| {
        let objname = Opaque(name.as_bytes());
        root().op(arg::OP_LOOKUP(LOOKUP4args { objname }))
    };
    let args = |seqid, name| OPEN4args {
        seqid,
        share_access: BOTH,
        openhow: openflag4::OPEN4_CREATE(createhow4::UNCHECKED4(mode())),
        ..opening(&named, "o", name)
    };
    let ops = down("two").op(arg::OP_OPEN(args(1, "f"))).op(arg::OP_GETFH);
    let first = world.run(&mut a, ops);
    assert_eq!(first.status, NFS4_OK);
    let ops = down("one").op(arg::OP_OPEN(args(1, "f"))).op(arg::OP_GETFH);
    let answer = world.run(&mut a, ops);
    assert_eq!(answer.status, NFS4ERR_BAD_SEQID);
}
