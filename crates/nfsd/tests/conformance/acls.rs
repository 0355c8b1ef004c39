//! Access control lists (RFC 8881, section 6).

use testkit::nfs::client::*;
use testkit::nfs::compound::*;
use wire::nfs4::*;
use wire::xdr::{Encode, List, Opaque};

use crate::attributes::Raw;
use crate::names::{ALL, Row, ask, at, at_file};
use nfs_opnum4 as op;
use nfsstat4::*;

const ALLOW: u32 = ACE4_ACCESS_ALLOWED_ACE_TYPE;
const DENY: u32 = ACE4_ACCESS_DENIED_ACE_TYPE;
const USER: u32 = 1000;
const READ: u32 = ACE4_READ_DATA;
const WRITE: u32 = ACE4_WRITE_DATA;

/// Kind, flags, rights, to whom.
type Entry<'a> = (u32, u32, u32, &'a str);

type Listed<'a> = List<'a, nfsace4<'a>, { ACES_MAX as usize }>;

fn value(entries: &[Entry<'_>]) -> Vec<u8> {
    let ace = |&(type_, flag, access_mask, who)| nfsace4 {
        type_,
        flag,
        access_mask,
        who: Opaque::<{ OWNER_BYTES_MAX as usize }>(str::as_bytes(who)),
    };
    let aces: Vec<nfsace4<'_>> = entries.iter().map(ace).collect();
    let mut bytes = Vec::new();
    Listed::Of(&aces).encode(&mut bytes);
    bytes
}

fn acl(entries: &[Entry<'_>]) -> Attributes {
    Attributes::of(FATTR4_ACL, &Raw(&value(entries)))
}

fn set(case: &Case, entries: &[Entry<'_>]) -> Ops {
    at_file(case).setattr(ANONYMOUS, &acl(entries))
}

fn set_dir(case: &Case, entries: &[Entry<'_>]) -> Ops {
    at(case).setattr(ANONYMOUS, &acl(entries))
}

const FILE: u32 = ACE4_FILE_INHERIT_ACE;
const DIRECTORY: u32 = ACE4_DIRECTORY_INHERIT_ACE;
const ONLY: u32 = ACE4_INHERIT_ONLY_ACE;

#[rustfmt::skip]
const SETS: &[Row] = &[
    Row("a list", ALL, |c| set(c, &[(ALLOW, 0, READ, "OWNER@"), (DENY, 0, WRITE, "1000"), (ALLOW, 0x40, READ, "7"), (ALLOW, 0, READ, "EVERYONE@")]), &[NFS4_OK]),
    Row("the flag of a group at a special name", ALL, |c| set(c, &[(ALLOW, 0x40, READ, "GROUP@")]), &[NFS4_OK]),
    Row("an empty list", ALL, |c| set(c, &[]), &[NFS4_OK]),
    Row("AUDIT", ALL, |c| set(c, &[(2, 0, READ, "OWNER@")]), &[NFS4ERR_ATTRNOTSUPP]),
    Row("ALARM", ALL, |c| set(c, &[(3, 0, READ, "OWNER@")]), &[NFS4ERR_ATTRNOTSUPP]),
    Row("a kind that there is not", ALL, |c| set(c, &[(4, 0, READ, "OWNER@")]), &[NFS4ERR_INVAL]),
    Row("a flag that there is not", ALL, |c| set(c, &[(ALLOW, 0x100, READ, "OWNER@")]), &[NFS4ERR_INVAL]),
    Row("a flag of AUDIT", ALL, |c| set(c, &[(ALLOW, 0x10, READ, "OWNER@")]), &[NFS4ERR_INVAL]),
    Row("a right that is not kept", ALL, |c| set(c, &[(ALLOW, 0, 0x200, "OWNER@")]), &[NFS4ERR_ATTRNOTSUPP]),
    Row("a name that there is not", ALL, |c| set(c, &[(ALLOW, 0, READ, "nobody knows@this")]), &[NFS4ERR_BADOWNER]),
    Row("a special name that means nothing here", ALL, |c| set(c, &[(ALLOW, 0, READ, "DIALUP@")]), &[NFS4ERR_BADOWNER]),
    Row("no name", ALL, |c| set(c, &[(ALLOW, 0, READ, "")]), &[NFS4ERR_INVAL, NFS4ERR_BADOWNER]),
    Row("a file that hands on", ALL, |c| set(c, &[(ALLOW, DIRECTORY, READ, "OWNER@")]), &[NFS4ERR_ATTRNOTSUPP]),
    Row("handing on to none", ALL, |c| set_dir(c, &[(ALLOW, ONLY, READ, "OWNER@")]), &[NFS4ERR_ATTRNOTSUPP]),
    Row("the list of a link", ALL, |c| at(c).lookup("link").setattr(ANONYMOUS, &acl(&[(ALLOW, 0, READ, "OWNER@")])), &[NFS4ERR_ATTRNOTSUPP]),
    Row("entries that are too many", ALL, |c| set(c, &[(ALLOW, 0, READ, "OWNER@"); 200]), &[NFS4ERR_FBIG]),
    Row("entries that are cut off", ALL, |c| at_file(c).setattr(ANONYMOUS, &Attributes::of(FATTR4_ACL, &1u32)), &[NFS4ERR_BADXDR]),
    Row("VERIFY of another list", ALL, |c| at_file(c).verify(&acl(&[(DENY, 0, READ, "OWNER@")])), &[NFS4ERR_NOT_SAME]),
];

fn by(case: &mut Case, uid: u32) {
    case.client.wire.credential = Credential::user(uid);
}

fn told(case: &mut Case, handle: &[u8]) -> (u32, Vec<u8>) {
    let mode = case.call(ops().fh(handle).getattr(&[FATTR4_MODE]));
    let mode = mode.ok().attribute();
    let list = case.call(ops().fh(handle).getattr(&[FATTR4_ACL]));
    (mode, list.ok().attributes().1)
}

fn access(case: &mut Case, handle: &[u8]) -> u32 {
    let told = case.call(ops().fh(handle).access(0x3f)).ok();
    told.get::<ACCESS4resok>(op::OP_ACCESS).access
}

pub fn lists(case: &mut Case) {
    let support: u32 = (case.call(at_file(case).getattr(&[FATTR4_ACLSUPPORT])))
        .ok()
        .attribute();
    assert_eq!(support, ACL4_SUPPORT_ALLOW_ACL | ACL4_SUPPORT_DENY_ACL);
    ask(case, SETS);
    // What is set is told, and its mode with it.
    let file = case.file.clone();
    let entries = [
        (ALLOW, 0, READ | WRITE | ACE4_APPEND_DATA, "OWNER@"),
        (DENY, 0, WRITE, "1001"),
        (ALLOW, 0, READ | WRITE | ACE4_APPEND_DATA, "1000"),
        (ALLOW, 0, READ, "EVERYONE@"),
    ];
    case.call(set(case, &entries)).ok();
    assert_eq!(told(case, &file), (0o644, value(&entries)));
    case.call(at_file(case).verify(&acl(&entries))).ok();
    case.call(at_file(case).nverify(&acl(&entries)))
        .is(NFS4ERR_SAME);
    // It counts: for a user that it names, one that it denies, and others.
    let reads = ACCESS4_READ;
    let writes = ACCESS4_MODIFY | ACCESS4_EXTEND;
    for (uid, expected) in [(USER, reads | writes), (1001, reads), (1002, reads)] {
        by(case, uid);
        assert_eq!(access(case, &file), expected, "{uid}");
        let may = if uid == USER { NFS4_OK } else { NFS4ERR_ACCESS };
        let write = at_file(case).write(ANONYMOUS, 0, stable_how4::UNSTABLE4, b"x");
        case.call(write).is(may);
        case.call(set(case, &entries)).is(NFS4ERR_PERM);
    }
    ordered(case);
    // A mode limits it, and at last nothing is left of it.
    case.call(set(case, &entries)).ok();
    case.call(at_file(case).setattr(ANONYMOUS, &Attributes::mode(0o640)))
        .ok();
    by(case, USER);
    assert_eq!(access(case, &file), reads);
    by(case, 0);
    case.call(at_file(case).setattr(ANONYMOUS, &Attributes::mode(0o600)))
        .ok();
    by(case, USER);
    assert_eq!(access(case, &file), 0);
    by(case, 0);
    hidden(case);
    handed_on(case);
}

/// The first entry that mentions a right counts, and appending is no writing elsewhere.
fn ordered(case: &mut Case) {
    let file = case.file.clone();
    let changes = WRITE | ACE4_APPEND_DATA;
    let (denied, all) = (
        (DENY, 0, changes, "1001"),
        (ALLOW, 0, READ | changes, "EVERYONE@"),
    );
    for (list, expected) in [
        ([denied, all], ACCESS4_READ),
        (
            [all, denied],
            ACCESS4_READ | ACCESS4_MODIFY | ACCESS4_EXTEND,
        ),
    ] {
        by(case, 0);
        case.call(set(case, &list)).ok();
        by(case, 1001);
        assert_eq!(access(case, &file), expected);
    }
    by(case, 0);
    case.call(set(case, &[(ALLOW, 0, ACE4_APPEND_DATA, "EVERYONE@")]))
        .ok();
    let size: u64 = case
        .call(at_file(case).getattr(&[FATTR4_SIZE]))
        .ok()
        .attribute();
    by(case, 1001);
    assert_eq!(access(case, &file), ACCESS4_EXTEND);
    for (offset, expected) in [(size, NFS4_OK), (size, NFS4ERR_ACCESS)] {
        let write = at_file(case).write(ANONYMOUS, offset, stable_how4::UNSTABLE4, b"x");
        case.call(write).is(expected);
    }
    by(case, 0);
}

/// What a list denies to be seen is not told.
fn hidden(case: &mut Case) {
    let file = case.file.clone();
    let rights = ACE4_READ_ATTRIBUTES | ACE4_READ_ACL;
    case.call(set(case, &[(DENY, 0, rights, "1000")])).ok();
    by(case, USER);
    for number in [FATTR4_MODE, FATTR4_ACL] {
        case.call(ops().fh(&file).getattr(&[number]))
            .is(NFS4ERR_ACCESS);
    }
    let asked = [FATTR4_MODE];
    case.call(at(case).readdir(0, [0; 8], 4096, &asked))
        .is(NFS4ERR_ACCESS);
    let asked = [FATTR4_RDATTR_ERROR, FATTR4_MODE];
    case.call(at(case).readdir(0, [0; 8], 4096, &asked)).ok();
    by(case, 0);
    // Its owner sees it, and may set it.
    case.call(set(case, &[(DENY, 0, rights, "OWNER@")])).ok();
    let (_, list) = told(case, &file);
    assert_eq!(list, value(&[(DENY, 0, rights, "OWNER@")]));
    case.call(at_file(case).setattr(ANONYMOUS, &Attributes::mode(0o644)))
        .ok();
}

/// What is made gets a list from its directory, unless it is given one.
fn handed_on(case: &mut Case) {
    let rights = READ | WRITE | ACE4_APPEND_DATA;
    let entries = [
        (ALLOW, FILE | DIRECTORY | ONLY, rights, "1000"),
        (ALLOW, 0, 0x1f_01ff, "OWNER@"),
        (ALLOW, 0, READ | ACE4_EXECUTE, "EVERYONE@"),
    ];
    case.call(set_dir(case, &entries)).ok();
    let make = |case: &mut Case, name: &str, attributes: &Attributes| {
        let asked = at(case).create(createtype4::NF4FIFO, name, attributes);
        case.call(asked.getfh()).ok().handle()
    };
    let fifo = make(case, "heir", &Attributes::mode(0o660));
    by(case, USER);
    let all = ACCESS4_READ | ACCESS4_MODIFY | ACCESS4_EXTEND;
    assert_eq!(access(case, &fifo), all);
    by(case, 0);
    let fifo = make(case, "poor heir", &Attributes::mode(0o644));
    by(case, USER);
    assert_eq!(access(case, &fifo), ACCESS4_READ);
    by(case, 0);
    let own = [(ALLOW, 0, READ, "OWNER@"), (DENY, 0, READ, "1000")];
    let fifo = make(case, "own", &acl(&own));
    assert_eq!(told(case, &fifo), (0o400, value(&own)));
    let below = case.call(at(case).mkdir("below").getfh()).ok().handle();
    let (mode, list) = told(case, &below);
    assert_eq!(mode, 0o755);
    let handed = value(&[(ALLOW, FILE | DIRECTORY | ONLY, rights, "1000")]);
    assert!(list.ends_with(&handed[4..]), "{list:?}");
    // An OPEN may set one as well.
    let owner = case.client.owner();
    let attributes = acl(&own);
    let how = guarded(&attributes);
    let opened = case.call(
        at(case)
            .open(open_args(&owner, "opened", 1, 0, how))
            .getfh(),
    );
    let handle = opened.ok().handle();
    assert_eq!(told(case, &handle), (0o400, value(&own)));
    case.call(at(case).setattr(ANONYMOUS, &Attributes::mode(0o755)))
        .ok();
}
