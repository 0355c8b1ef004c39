//! Opens: how files are made, share reservations, state ids, delegations
//! (RFC 7530, sections 9 and 16.16 to 16.19; RFC 8881, sections 8, 9, 10.4 and
//! 18.16 to 18.18).

use testkit::nfs::client::*;
use testkit::nfs::compound::*;
use wire::nfs4::*;
use wire::xdr::{Decode, Opaque, Reader};

use crate::names::{ALL, IN_0, Row, SINCE_1, ask, at, at_file};
use nfs_opnum4 as op;
use nfsstat4::*;

const R: u32 = OPEN4_SHARE_ACCESS_READ;
const W: u32 = OPEN4_SHARE_ACCESS_WRITE;
const RW: u32 = OPEN4_SHARE_ACCESS_BOTH;

/// OPEN in the folder, by a new owner.
fn open(
    case: &mut Case,
    name: &str,
    share: (u32, u32),
    how: openflag4<'_>,
) -> Result<OpenFile, nfsstat4> {
    let (owner, dir) = (case.client.owner(), case.dir.clone());
    let opened = case.client.open_as(owner, &dir, name, share, how);
    opened.map_err(|(status, _)| status)
}

fn exclusive(verifier: [u8; 8]) -> openflag4<'static> {
    openflag4::OPEN4_CREATE(createhow4::EXCLUSIVE4(verifier))
}

/// How it is called, in which minor versions, the current file handle, the
/// claim, and what may come of it.
type Claim<'a> = (
    &'a str,
    &'a [u32],
    &'a [u8],
    open_claim4<'a>,
    &'a [nfsstat4],
);

fn size_of(case: &mut Case, handle: &[u8]) -> u64 {
    let asked = ops().fh(handle).getattr(&[FATTR4_SIZE]);
    case.call(asked).ok().attribute()
}

/// Each way to make a file, or not.
pub fn creates(case: &mut Case) {
    let plain = openflag4::OPEN4_NOCREATE;
    assert_eq!(open(case, "new", (R, 0), plain).unwrap_err(), NFS4ERR_NOENT);
    let mode = Attributes::mode(0o600);
    let made = open(case, "new", (RW, 0), unchecked(&mode)).expect("a file");
    assert!(
        made.cinfo.after > made.cinfo.before,
        "the folder has changed"
    );
    assert_eq!(made.set, bits(&[FATTR4_MODE]));
    let asked = ops()
        .fh(&made.handle)
        .write(made.stateid, 0, stable_how4::FILE_SYNC4, b"abc");
    case.call(asked).ok();
    // There already: it is opened, and what it has stays.
    let again = open(case, "new", (RW, 0), unchecked(&Attributes::mode(0o777))).expect("a file");
    assert_eq!(again.handle, made.handle);
    assert_eq!(again.cinfo.after, again.cinfo.before);
    let found: u32 = case
        .call(ops().fh(&made.handle).getattr(&[FATTR4_MODE]))
        .ok()
        .attribute();
    assert_eq!((found, size_of(case, &made.handle)), (0o600, 3));
    // But a size of 0 empties it.
    open(case, "new", (RW, 0), unchecked(&Attributes::size(0))).expect("a file");
    assert_eq!(size_of(case, &made.handle), 0);
    assert_eq!(
        open(case, "new", (R, 0), guarded(&mode)).unwrap_err(),
        NFS4ERR_EXIST
    );
    open(case, "guarded", (R, 0), guarded(&mode)).expect("a file");
    // By a verifier: the same one finds the file that it made.
    let first = open(case, "only", (RW, 0), exclusive([7; 8])).expect("a file");
    let again = open(case, "only", (RW, 0), exclusive([7; 8])).expect("the same file");
    assert_eq!(first.handle, again.handle);
    assert_eq!(
        open(case, "only", (RW, 0), exclusive([8; 8])).unwrap_err(),
        NFS4ERR_EXIST
    );
    if case.minor > 0 {
        let mode = Attributes::mode(0o640);
        let both = |verifier: u8| {
            openflag4::OPEN4_CREATE(createhow4::EXCLUSIVE4_1(creatverfattr {
                cva_verf: [verifier; 8],
                cva_attrs: mode.fattr(),
            }))
        };
        let made = open(case, "only-1", (RW, 0), both(7)).expect("a file");
        let asked = ops().fh(&made.handle).getattr(&[FATTR4_MODE]);
        let found: u32 = case.call(asked).ok().attribute();
        assert_eq!(found, 0o640);
        open(case, "only-1", (RW, 0), both(7)).expect("the same file");
        assert_eq!(
            open(case, "only-1", (RW, 0), both(8)).unwrap_err(),
            NFS4ERR_EXIST
        );
    }
    for (name, expected) in [
        ("dir", &[NFS4ERR_ISDIR][..]),
        ("link", &[NFS4ERR_SYMLINK]),
        // Linux opens these itself after this status.
        ("fifo", &[NFS4ERR_SYMLINK]),
        ("sock", &[NFS4ERR_SYMLINK]),
        ("blk", &[NFS4ERR_SYMLINK]),
        ("chr", &[NFS4ERR_SYMLINK]),
    ] {
        let found = open(case, name, (R, 0), plain).unwrap_err();
        assert!(
            expected.contains(&found),
            "4.{} {name}: {found:?}",
            case.minor
        );
    }
    let fixed = Attributes::of(FATTR4_FILEID, &7u64);
    assert_eq!(
        open(case, "x", (R, 0), unchecked(&fixed)).unwrap_err(),
        NFS4ERR_INVAL
    );
    let none = Attributes::of(FATTR4_MIMETYPE, &0u32);
    assert_eq!(
        open(case, "x", (R, 0), unchecked(&none)).unwrap_err(),
        NFS4ERR_ATTRNOTSUPP
    );
    for share in [(0, 0), (8, 0), (R, 4)] {
        let found = open(case, "file", share, plain).unwrap_err();
        assert_eq!(found, NFS4ERR_INVAL, "4.{} {share:?}", case.minor);
    }
    let owner = case.client.owner();
    let asked = open_args(&owner, "x", R, 0, plain);
    case.call(at_file(case).open(asked)).is(NFS4ERR_NOTDIR);
    let stranger = TestOwner {
        client: !owner.client,
        ..owner
    };
    let asked = open_args(&stranger, "file", R, 0, plain);
    let status = case.call(at(case).open(asked)).status;
    match case.minor {
        0 => assert_eq!(status, NFS4ERR_STALE_CLIENTID),
        // The session names the client (RFC 8881, section 18.16.3).
        _ => assert_eq!(status, NFS4_OK),
    }
}

/// Which share reservations may stand beside each other: all pairs.
pub fn shares(case: &mut Case) {
    let server = case.server.clone();
    let mut other = TestClient::new(&server, case.minor);
    let (dir, plain) = (case.dir.clone(), openflag4::OPEN4_NOCREATE);
    for access in [R, W, RW] {
        for deny in 0..4 {
            let mut first = case.open("file", access, deny);
            for access2 in [R, W, RW] {
                for deny2 in 0..4 {
                    let owner = other.owner();
                    let share = (access2, deny2);
                    let second = other.open_as(owner, &dir, "file", share, plain);
                    let may = access & deny2 == 0 && access2 & deny == 0;
                    let what = format!("4.{} {access} {deny} {share:?}", case.minor);
                    match second {
                        Ok(mut opened) => {
                            assert!(may, "{what}");
                            other.close(&mut opened).ok();
                        }
                        Err((status, _)) => {
                            assert_eq!((status, may), (NFS4ERR_SHARE_DENIED, false), "{what}");
                        }
                    }
                }
            }
            case.client.close(&mut first).ok();
        }
    }
    // A share reservation also denies a client without an open.
    let mut denying = case.open("file", RW, OPEN4_SHARE_DENY_BOTH);
    let file = case.file.clone();
    other
        .call(ops().fh(&file).read(ANONYMOUS, 0, 1))
        .is(NFS4ERR_LOCKED);
    let write = ops()
        .fh(&file)
        .write(ANONYMOUS, 0, stable_how4::UNSTABLE4, b"x");
    other.call(write).is(NFS4ERR_LOCKED);
    other.call(ops().fh(&file).read(BYPASS, 0, 1)).ok();
    other
        .call(ops().fh(&file).setattr(ANONYMOUS, &Attributes::size(1)))
        .is(NFS4ERR_LOCKED);
    case.client.close(&mut denying).ok();
    other.call(ops().fh(&file).read(ANONYMOUS, 0, 1)).ok();
}

/// One owner opens a file more than once: one state that grows and shrinks.
pub fn upgrades(case: &mut Case) {
    let (dir, plain) = (case.dir.clone(), openflag4::OPEN4_NOCREATE);
    let owner = case.client.owner();
    let first = case
        .client
        .open_as(owner, &dir, "file", (R, 0), plain)
        .expect("an open");
    let write = |stateid| {
        ops()
            .fh(&first.handle)
            .write(stateid, 0, stable_how4::UNSTABLE4, b"x")
    };
    case.call(write(first.stateid)).is(NFS4ERR_OPENMODE);
    let owner = first.owner.clone();
    let second = case
        .client
        .open_as(owner, &dir, "file", (W, 0), plain)
        .expect("an open");
    assert_eq!(second.stateid.other, first.stateid.other);
    assert_eq!(second.stateid.seqid, first.stateid.seqid + 1);
    case.call(write(second.stateid)).ok();
    case.call(ops().fh(&first.handle).read(second.stateid, 0, 4))
        .ok();
    // The older one has been replaced.
    case.call(write(first.stateid)).is(NFS4ERR_OLD_STATEID);
    let newer = stateid4 {
        seqid: second.stateid.seqid + 1,
        ..second.stateid
    };
    case.call(write(newer)).is(NFS4ERR_BAD_STATEID);
    if case.minor > 0 {
        let any = stateid4 {
            seqid: 0,
            ..second.stateid
        };
        case.call(write(any)).ok();
    }
    let mut held = second;
    let downgrade = |held: &mut OpenFile, access, deny| {
        let stateid = held.stateid;
        let seqid = held.owner.next_seqid();
        ops()
            .fh(&held.handle)
            .op(nfs_argop4::OP_OPEN_DOWNGRADE(OPEN_DOWNGRADE4args {
                open_stateid: stateid,
                seqid,
                share_access: access,
                share_deny: deny,
            }))
    };
    // It never denied anything.
    let asked = downgrade(&mut held, R, OPEN4_SHARE_DENY_BOTH);
    case.call(asked).is(NFS4ERR_INVAL);
    let asked = downgrade(&mut held, 0, 0);
    case.call(asked).is(NFS4ERR_INVAL);
    let asked = downgrade(&mut held, R, 0);
    let answer = case.call(asked).ok();
    held.stateid = answer.get(op::OP_OPEN_DOWNGRADE);
    assert_eq!(held.stateid.seqid, newer.seqid);
    case.call(write(held.stateid)).is(NFS4ERR_OPENMODE);
    let asked = downgrade(&mut held, W, 0);
    case.call(asked).is(NFS4ERR_INVAL);
    case.client.close(&mut held).ok();
    let after = case
        .call(ops().fh(&held.handle).read(held.stateid, 0, 1))
        .status;
    assert!(
        [NFS4ERR_BAD_STATEID, NFS4ERR_EXPIRED].contains(&after),
        "{after:?}"
    );
    let again = case.client.close(&mut held).status;
    assert!(
        [NFS4ERR_BAD_STATEID, NFS4ERR_EXPIRED].contains(&again),
        "{again:?}"
    );
}

/// State ids that are none, in each operation that takes one.
pub fn stateids(case: &mut Case) {
    let opened = case.open("file", RW, 0);
    let forged = stateid4 {
        seqid: 1,
        other: *b"never issued",
    };
    let mut flipped = opened.stateid;
    flipped.other[11] ^= 0x10;
    let elsewhere = case.make("elsewhere", b"x");
    type Take = fn(Ops, stateid4) -> Ops;
    let takers: &[(&str, u32, Take)] = &[
        ("READ", 0, |o, s| o.read(s, 0, 1)),
        ("WRITE", 0, |o, s| {
            o.write(s, 0, stable_how4::UNSTABLE4, b"x")
        }),
        ("SETATTR", 0, |o, s| o.setattr(s, &Attributes::size(5))),
        ("CLOSE", 0, |o, s| o.close(9, s)),
        ("OPEN_DOWNGRADE", 0, |o, s| {
            o.op(nfs_argop4::OP_OPEN_DOWNGRADE(OPEN_DOWNGRADE4args {
                open_stateid: s,
                seqid: 9,
                share_access: R,
                share_deny: 0,
            }))
        }),
        ("DELEGRETURN", 0, |o, s| {
            o.op(nfs_argop4::OP_DELEGRETURN(DELEGRETURN4args {
                deleg_stateid: s,
            }))
        }),
        ("LOCKU", 0, |o, s| {
            o.op(nfs_argop4::OP_LOCKU(LOCKU4args {
                locktype: nfs_lock_type4::WRITE_LT,
                seqid: 9,
                lock_stateid: s,
                offset: 0,
                length: 1,
            }))
        }),
        ("FREE_STATEID", 1, |o, s| o.free_stateid(s)),
        ("ALLOCATE", 2, |o, s| {
            o.op(nfs_argop4::OP_ALLOCATE(ALLOCATE4args {
                aa_stateid: s,
                aa_offset: 0,
                aa_length: 9,
            }))
        }),
        ("DEALLOCATE", 2, |o, s| {
            o.op(nfs_argop4::OP_DEALLOCATE(ALLOCATE4args {
                aa_stateid: s,
                aa_offset: 0,
                aa_length: 9,
            }))
        }),
        ("SEEK", 2, |o, s| {
            o.op(nfs_argop4::OP_SEEK(SEEK4args {
                sa_stateid: s,
                sa_offset: 0,
                sa_what: data_content4::NFS4_CONTENT_DATA,
            }))
        }),
        ("READ_PLUS", 2, |o, s| {
            o.op(nfs_argop4::OP_READ_PLUS(READ4args {
                stateid: s,
                offset: 0,
                count: 1,
            }))
        }),
    ];
    for (what, since, take) in takers {
        if case.minor < *since {
            continue;
        }
        for stateid in [forged, flipped] {
            let status = case.call(take(ops().fh(&case.file), stateid)).status;
            let allowed = [NFS4ERR_BAD_STATEID, NFS4ERR_STALE_STATEID, NFS4ERR_EXPIRED];
            assert!(
                allowed.contains(&status),
                "4.{} {what}: {status:?}",
                case.minor
            );
        }
        // Good, but of another file.
        if *what != "FREE_STATEID" {
            let status = case.call(take(ops().fh(&elsewhere), opened.stateid)).status;
            let is_number = case.minor == 0 && status == NFS4ERR_BAD_SEQID;
            let is_it = status == NFS4ERR_BAD_STATEID || is_number;
            assert!(is_it, "4.{} {what}: {status:?}", case.minor);
        }
    }
    // Good, but of another client.
    let server = case.server.clone();
    let mut other = TestClient::new(&server, case.minor);
    let read = ops().fh(&case.file).read(opened.stateid, 0, 1);
    let status = other.call(read).status;
    match case.minor {
        0 => assert_eq!(status, NFS4_OK, "nothing says which client it is"),
        _ => assert_eq!(status, NFS4ERR_BAD_STATEID),
    }
    if case.minor == 0 {
        return;
    }
    let tested = ops().test_stateids(&[opened.stateid, forged, flipped, ANONYMOUS]);
    let tested = case.call(tested).ok();
    let body = tested.body(op::OP_TEST_STATEID);
    let told = TEST_STATEID4resok::decode(&mut Reader::new(body)).expect("statuses");
    let told: Vec<nfsstat4> = told.tsr_status_codes.iter().collect();
    assert_eq!(told[0], NFS4_OK);
    assert!(
        told[1..].iter().all(|s| *s == NFS4ERR_BAD_STATEID),
        "{told:?}"
    );
    case.call(ops().free_stateid(opened.stateid))
        .is(NFS4ERR_LOCKS_HELD);
    // The current one is that of the operation before (section 16.2.3.1.2).
    let owner = case.client.owner();
    let asked = open_args(&owner, "file", RW, 0, openflag4::OPEN4_NOCREATE);
    let all = at(case).open(asked).read(CURRENT, 0, 4).close(0, CURRENT);
    assert_eq!(case.call(all).ok().data().0, b"0123");
    case.call(at_file(case).read(CURRENT, 0, 4))
        .is(NFS4ERR_BAD_STATEID);
}

/// What version 4.0 wants of the numbers of its owners (RFC 7530, section 9.1.7).
pub fn seqids(case: &mut Case) {
    let (dir, plain) = (case.dir.clone(), openflag4::OPEN4_NOCREATE);
    let mut owner = case.client.owner();
    let asked = open_args(&owner, "file", R, 0, plain);
    let first = ops().fh(&dir).open(asked).getfh();
    let answer = case.call(first.clone()).ok();
    let opened_first = opened(&answer, owner.clone(), answer.handle());
    assert_ne!(opened_first.flags & OPEN4_RESULT_CONFIRM, 0, "a new owner");
    // Asked again: the same answer.
    let again = case.call(first).ok();
    assert_eq!(again.body(op::OP_OPEN), answer.body(op::OP_OPEN));
    let read = ops().fh(&case.file).read(opened_first.stateid, 0, 1);
    let status = case.call(read).status;
    assert!(
        [NFS4ERR_BAD_STATEID, NFS4_OK].contains(&status),
        "{status:?}"
    );
    owner.next = 1;
    let confirm = |seqid, stateid| {
        ops()
            .fh(&opened_first.handle)
            .op(nfs_argop4::OP_OPEN_CONFIRM(OPEN_CONFIRM4args {
                open_stateid: stateid,
                seqid,
            }))
    };
    case.call(confirm(5, opened_first.stateid))
        .is(NFS4ERR_BAD_SEQID);
    let confirmed = case.call(confirm(1, opened_first.stateid)).ok();
    let stateid: stateid4 = confirmed.get(op::OP_OPEN_CONFIRM);
    assert_eq!(
        case.call(confirm(1, opened_first.stateid))
            .ok()
            .body(op::OP_OPEN_CONFIRM),
        confirmed.body(op::OP_OPEN_CONFIRM)
    );
    // Another request by the number that was used last.
    let other = ops().fh(&case.file).close(1, stateid);
    case.call(other).is(NFS4ERR_BAD_SEQID);
    owner.next = 7;
    let asked = open_args(&owner, "file", R, 0, plain);
    case.call(ops().fh(&dir).open(asked)).is(NFS4ERR_BAD_SEQID);
    case.call(ops().fh(&case.file).close(7, stateid))
        .is(NFS4ERR_BAD_SEQID);
    let closed = ops().fh(&case.file).close(2, stateid);
    let first = case.call(closed.clone()).ok();
    assert_eq!(
        case.call(closed).ok().body(op::OP_CLOSE),
        first.body(op::OP_CLOSE)
    );
    // A refusal moves the number on, but for those that say so (section 9.1.7).
    owner.next = 3;
    let asked = open_args(&owner, "nothing", R, 0, plain);
    case.call(ops().fh(&dir).open(asked)).is(NFS4ERR_NOENT);
    owner.next = 4;
    let asked = open_args(&owner, "file", R, 0, plain);
    let answer = case.call(ops().fh(&dir).open(asked).getfh()).ok();
    let last = opened(&answer, owner.clone(), answer.handle());
    assert_eq!(last.flags & OPEN4_RESULT_CONFIRM, 0, "it is known");
}

/// What may be claimed.
pub fn claims(case: &mut Case) {
    let owner = case.client.owner();
    let with = |claim| OPEN4args {
        seqid: 0,
        share_access: R,
        share_deny: 0,
        owner: owner.wire(),
        openhow: openflag4::OPEN4_NOCREATE,
        claim,
    };
    let (file, dir) = (case.file.clone(), case.dir.clone());
    let none = open_delegation_type4::OPEN_DELEGATE_NONE;
    let rows: &[Claim<'_>] = &[
        (
            "PREVIOUS",
            ALL,
            &file,
            open_claim4::CLAIM_PREVIOUS(none),
            &[NFS4ERR_NO_GRACE],
        ),
        (
            "DELEGATE_CUR",
            ALL,
            &dir,
            open_claim4::CLAIM_DELEGATE_CUR(open_claim_delegate_cur4 {
                delegate_stateid: stateid4 {
                    seqid: 1,
                    other: [3; 12],
                },
                file: Opaque(b"file"),
            }),
            // Version 4.0 has none.
            &[NFS4ERR_BAD_STATEID, NFS4ERR_STALE_STATEID, NFS4ERR_NO_GRACE],
        ),
        (
            "DELEGATE_PREV",
            ALL,
            &dir,
            open_claim4::CLAIM_DELEGATE_PREV(Opaque(b"file")),
            &[NFS4ERR_NOTSUPP],
        ),
        ("FH", SINCE_1, &file, open_claim4::CLAIM_FH, &[NFS4_OK]),
        (
            "FH in 4.0",
            IN_0,
            &file,
            open_claim4::CLAIM_FH,
            &[NFS4ERR_INVAL, NFS4ERR_NOTSUPP, NFS4ERR_BADXDR],
        ),
        (
            "FH of a folder",
            SINCE_1,
            &dir,
            open_claim4::CLAIM_FH,
            &[NFS4ERR_ISDIR],
        ),
        (
            "DELEG_CUR_FH",
            SINCE_1,
            &file,
            open_claim4::CLAIM_DELEG_CUR_FH(stateid4 {
                seqid: 1,
                other: [3; 12],
            }),
            &[NFS4ERR_BAD_STATEID],
        ),
        (
            "DELEG_PREV_FH",
            SINCE_1,
            &file,
            open_claim4::CLAIM_DELEG_PREV_FH,
            &[NFS4ERR_NOTSUPP],
        ),
    ];
    for (what, minors, handle, claim, expected) in rows {
        if minors.contains(&case.minor) {
            let found = case.call(ops().fh(handle).open(with(*claim))).status;
            assert!(
                expected.contains(&found),
                "4.{} {what}: {found:?}",
                case.minor
            );
        }
    }
    if case.minor > 0 {
        let asked = Row(
            "a delegation that is none",
            SINCE_1,
            |c| {
                at_file(c).op(nfs_argop4::OP_DELEGRETURN(DELEGRETURN4args {
                    deleg_stateid: ANONYMOUS,
                }))
            },
            &[NFS4ERR_BAD_STATEID],
        );
        ask(case, &[asked]);
    }
}

/// A file that is removed while it is open can be read until it is closed.
pub fn unlinked(case: &mut Case) {
    let mut opened = case.open("file", RW, 0);
    case.call(at(case).remove("file")).ok();
    let read = case
        .call(ops().fh(&opened.handle).read(opened.stateid, 0, 99))
        .ok();
    assert_eq!(read.data(), (CONTENT.to_vec(), true));
    let links: u32 = case
        .call(ops().fh(&opened.handle).getattr(&[FATTR4_NUMLINKS]))
        .ok()
        .attribute();
    assert_eq!(links, 0);
    case.client.close(&mut opened).ok();
    case.call(ops().fh(&opened.handle).getattr(&[FATTR4_TYPE]))
        .is(NFS4ERR_STALE);
}

/// Opens with `want` for a read delegation.
fn delegated(case: &mut Case, client: &mut TestClient) -> Option<OpenFile> {
    let (owner, dir) = (client.owner(), case.dir.clone());
    let access = R | OPEN4_SHARE_ACCESS_WANT_READ_DELEG;
    let how = openflag4::OPEN4_NOCREATE;
    let opened = client.open_as(owner, &dir, "file", (access, 0), how);
    opened.ok().filter(|opened| opened.delegation.is_some())
}

/// A read delegation is recalled from its client, and gone when it is returned.
pub fn delegations(case: &mut Case) {
    let server = case.server.clone();
    let mut holder = TestClient::new(&server, case.minor);
    let not_wanted = R | OPEN4_SHARE_ACCESS_WANT_NO_DELEG;
    let opened = case.open("file", not_wanted, 0);
    assert!(opened.delegation.is_none());
    let mut held = delegated(case, &mut holder);
    for _ in 0..4 {
        if held.is_some() {
            break;
        }
        // A server may remember recalls of several files in one place: another file.
        *case = Case::new(&server, case.minor);
        held = delegated(case, &mut holder);
    }
    let held = held.expect("a delegation: no client writes");
    let delegation = held.delegation.expect("a delegation");
    let read = ops().fh(&held.handle).read(delegation, 0, 4);
    assert_eq!(holder.call(read).ok().data().0, b"0123");
    let write = ops()
        .fh(&held.handle)
        .write(delegation, 0, stable_how4::UNSTABLE4, b"x");
    holder.call(write).is(NFS4ERR_OPENMODE);
    // An open to read recalls nothing. An open to write recalls it.
    let mut reader = case.open("file", R | OPEN4_SHARE_ACCESS_WANT_NO_DELEG, 0);
    case.client.close(&mut reader).ok();
    assert_eq!(holder.wire.poll_callbacks(), 0);
    let (owner, dir) = (case.client.owner(), case.dir.clone());
    let how = openflag4::OPEN4_NOCREATE;
    let refused = case.client.open_as(owner, &dir, "file", (W, 0), how);
    assert_eq!(refused.expect_err("there is a delegation").0, NFS4ERR_DELAY);
    let recalled = (0..500).any(|_| {
        if case.server.advance.is_none() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        holder.wire.poll_callbacks() > 0
    });
    assert!(recalled, "CB_RECALL");
    let call = holder.wire.callbacks[0].clone();
    assert_eq!(recalled_stateid(&call), delegation);
    holder.wire.send(&recall_answer(&call));
    let back = nfs_argop4::OP_DELEGRETURN(DELEGRETURN4args {
        deleg_stateid: delegation,
    });
    holder.call(ops().fh(&held.handle).op(back)).ok();
    let owner = case.client.owner();
    case.client
        .open_as(owner, &dir, "file", (W, 0), how)
        .expect("an open");
    // While a client has it open to write there is none to be had.
    assert!(delegated(case, &mut holder).is_none());
}

/// The state id in a CB_COMPOUND of CB_SEQUENCE and CB_RECALL.
fn recalled_stateid(record: &[u8]) -> stateid4 {
    let args = callback_args(record);
    let found = args.argarray.iter().find_map(|op| match op {
        nfs_cb_argop4::OP_CB_RECALL(recall) => Some(recall.stateid),
        _ => None,
    });
    found.expect("CB_RECALL")
}

fn callback_args(record: &[u8]) -> CB_COMPOUND4args<'_> {
    let mut from = Reader::new(&record[8..]);
    let call = wire::rpc::call_body::decode(&mut from).expect("a call");
    assert_eq!(
        (call.prog, call.vers, call.proc),
        (CALLBACK, NFS_CB, CB_COMPOUND)
    );
    CB_COMPOUND4args::decode(&mut from).expect("CB_COMPOUND4args")
}

/// What a client says to it: both have been done.
fn recall_answer(record: &[u8]) -> Vec<u8> {
    use wire::xdr::Encode;
    let args = callback_args(record);
    let first = args.argarray.iter().next();
    let Some(nfs_cb_argop4::OP_CB_SEQUENCE(sequence)) = first else {
        panic!("CB_SEQUENCE is first");
    };
    let mut answer = record[..4].to_vec();
    for word in [1u32, 0, 0, 0, 0] {
        word.encode(&mut answer);
    }
    NFS4_OK.encode(&mut answer);
    args.tag.encode(&mut answer);
    2u32.encode(&mut answer);
    nfs_cb_opnum4::OP_CB_SEQUENCE.encode(&mut answer);
    NFS4_OK.encode(&mut answer);
    CB_SEQUENCE4resok {
        csr_sessionid: sequence.csa_sessionid,
        csr_sequenceid: sequence.csa_sequenceid,
        csr_slotid: sequence.csa_slotid,
        csr_highest_slotid: sequence.csa_highest_slotid,
        csr_target_highest_slotid: sequence.csa_highest_slotid,
    }
    .encode(&mut answer);
    nfs_cb_opnum4::OP_CB_RECALL.encode(&mut answer);
    NFS4_OK.encode(&mut answer);
    answer
}
