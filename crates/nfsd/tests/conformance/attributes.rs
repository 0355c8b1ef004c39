//! Attributes: read, compared, set; ACCESS; extended attributes (RFC 8276).

use testkit::nfs::client::*;
use testkit::nfs::compound::*;
use wire::nfs4::*;
use wire::xdr::{Decode, Encode, Opaque, Reader};

use crate::names::{ALL, IN_0, IN_2, Row, SINCE_1, ask, at, at_file};
use nfs_opnum4 as op;
use nfsstat4::*;
use setxattr_option4::{SETXATTR4_CREATE, SETXATTR4_EITHER, SETXATTR4_REPLACE};

/// Those that every server has (RFC 8881, section 5.6).
const MANDATORY: &[u32] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 19];

/// Those that can only be set.
const SET_ONLY: &[u32] = &[
    FATTR4_TIME_ACCESS_SET,
    FATTR4_TIME_MODIFY_SET,
    FATTR4_MODE_UMASK,
    FATTR4_TIME_DELEG_ACCESS,
    FATTR4_TIME_DELEG_MODIFY,
];

/// Those that cannot be compared, or change by themselves.
const UNSTEADY: &[u32] = &[
    FATTR4_RDATTR_ERROR,
    FATTR4_FILES_AVAIL,
    FATTR4_FILES_FREE,
    FATTR4_SPACE_AVAIL,
    FATTR4_SPACE_FREE,
    FATTR4_SPACE_USED,
    FATTR4_TIME_ACCESS,
];

fn supported(case: &mut Case) -> Vec<u32> {
    let told = case
        .call(at_file(case).getattr(&[FATTR4_SUPPORTED_ATTRS]))
        .ok();
    let (which, values) = told.attributes();
    assert_eq!(which, [FATTR4_SUPPORTED_ATTRS]);
    let words = bitmap4::decode(&mut Reader::new(&values)).expect("a bitmap");
    let words: Vec<u32> = words.iter().collect();
    (0..words.len() as u32 * 32)
        .filter(|n| words[*n as usize / 32] >> (n % 32) & 1 == 1)
        .collect()
}

fn set(attributes: &Attributes) -> Ops {
    ops().setattr(ANONYMOUS, attributes)
}

fn text(value: &str) -> Opaque<'_, 64> {
    Opaque(value.as_bytes())
}

const FUTURE: nfstime4 = nfstime4 {
    seconds: 4_000_000_000,
    nseconds: 999_999_999,
};

#[rustfmt::skip]
const SETS: &[Row] = &[
    Row("mode", ALL, |c| at_file(c).then(set(&Attributes::mode(0o4751))), &[NFS4_OK]),
    Row("bits beyond a mode", ALL, |c| at_file(c).then(set(&Attributes::mode(0o100_644))), &[NFS4ERR_INVAL]),
    Row("owner", ALL, |c| at_file(c).then(set(&Attributes::of(FATTR4_OWNER, &text("1234")))), &[NFS4_OK]),
    Row("group", ALL, |c| at_file(c).then(set(&Attributes::of(FATTR4_OWNER_GROUP, &text("4321")))), &[NFS4_OK]),
    Row("an owner that is none", ALL, |c| at_file(c).then(set(&Attributes::of(FATTR4_OWNER, &text("")))), &[NFS4ERR_BADOWNER, NFS4ERR_INVAL]),
    Row("an owner by a name", ALL, |c| at_file(c).then(set(&Attributes::of(FATTR4_OWNER, &text("nobody knows@this")))), &[NFS4ERR_BADOWNER]),
    Row("an owner beyond all", ALL, |c| at_file(c).then(set(&Attributes::of(FATTR4_OWNER, &text("99999999999")))), &[NFS4ERR_BADOWNER]),
    Row("size", ALL, |c| at_file(c).then(set(&Attributes::size(4))), &[NFS4_OK]),
    Row("times by the server", ALL, |c| at_file(c).then(set(&Attributes::of(FATTR4_TIME_ACCESS_SET, &settime4::SET_TO_SERVER_TIME4).and(FATTR4_TIME_MODIFY_SET, &settime4::SET_TO_SERVER_TIME4))), &[NFS4_OK]),
    Row("times by the client", ALL, |c| at_file(c).then(set(&Attributes::of(FATTR4_TIME_ACCESS_SET, &settime4::SET_TO_CLIENT_TIME4(FUTURE)).and(FATTR4_TIME_MODIFY_SET, &settime4::SET_TO_CLIENT_TIME4(FUTURE)))), &[NFS4_OK]),
    Row("a time that is none", ALL, |c| at_file(c).then(set(&Attributes::of(FATTR4_TIME_MODIFY_SET, &settime4::SET_TO_CLIENT_TIME4(nfstime4 { seconds: 1, nseconds: 1_000_000_000 })))), &[NFS4ERR_INVAL]),
    Row("what can only be read", ALL, |c| at_file(c).then(set(&Attributes::of(FATTR4_LINK_SUPPORT, &true))), &[NFS4ERR_INVAL]),
    Row("what there is not", ALL, |c| at_file(c).then(set(&Attributes::of(FATTR4_MIMETYPE, &0u32))), &[NFS4ERR_ATTRNOTSUPP]),
    Row("values that are too short", ALL, |c| at_file(c).then(set(&Attributes::of(FATTR4_SIZE, &7u32))), &[NFS4ERR_BADXDR]),
    Row("values that are too long", ALL, |c| at_file(c).then(set(&Attributes::of(FATTR4_MODE, &7u64))), &[NFS4ERR_BADXDR]),
    Row("nothing", ALL, |c| at_file(c).then(set(&Attributes::none())), &[NFS4_OK]),
    Row("mode of a link", ALL, |c| at(c).lookup("link").then(set(&Attributes::mode(0o777))), &[NFS4_OK, NFS4ERR_INVAL, NFS4ERR_NOTSUPP]),
    Row("what can only be set, asked for", ALL, |c| at_file(c).getattr(&[FATTR4_TIME_ACCESS_SET]), &[NFS4ERR_INVAL]),
    Row("what there is not, asked for", ALL, |c| at_file(c).getattr(&[FATTR4_MIMETYPE, 82, 140]), &[NFS4_OK]),
    Row("VERIFY of what there is not", ALL, |c| at_file(c).verify(&Attributes::of(FATTR4_MIMETYPE, &0u32)), &[NFS4ERR_ATTRNOTSUPP]),
    Row("NVERIFY of what there is not", ALL, |c| at_file(c).nverify(&Attributes::of(FATTR4_MIMETYPE, &0u32)), &[NFS4ERR_ATTRNOTSUPP]),
    Row("VERIFY of what can only be set", ALL, |c| at_file(c).verify(&Attributes::of(FATTR4_TIME_MODIFY_SET, &settime4::SET_TO_SERVER_TIME4)), &[NFS4ERR_INVAL]),
    Row("NVERIFY of what can only be set", ALL, |c| at_file(c).nverify(&Attributes::of(FATTR4_TIME_MODIFY_SET, &settime4::SET_TO_SERVER_TIME4)), &[NFS4ERR_INVAL]),
    Row("VERIFY of rdattr_error", ALL, |c| at_file(c).verify(&Attributes::of(FATTR4_RDATTR_ERROR, &0u32)), &[NFS4ERR_INVAL]),
    Row("VERIFY", ALL, |c| at_file(c).verify(&Attributes::of(FATTR4_TYPE, &nfs_ftype4::NF4REG)).getfh(), &[NFS4_OK]),
    Row("VERIFY of another", ALL, |c| at_file(c).verify(&Attributes::of(FATTR4_TYPE, &nfs_ftype4::NF4DIR)), &[NFS4ERR_NOT_SAME]),
    Row("NVERIFY", ALL, |c| at_file(c).nverify(&Attributes::of(FATTR4_TYPE, &nfs_ftype4::NF4REG)), &[NFS4ERR_SAME]),
    Row("NVERIFY of another", ALL, |c| at_file(c).nverify(&Attributes::of(FATTR4_TYPE, &nfs_ftype4::NF4DIR)).getfh(), &[NFS4_OK]),
    Row("a condition of SETATTR", IN_0, |c| at_file(c).verify(&Attributes::size(4)).then(set(&Attributes::size(2))), &[NFS4_OK]),
    Row("mode_umask in an OPEN only", IN_2, |c| at_file(c).then(set(&Attributes::of(FATTR4_MODE_UMASK, &[0u8; 8]))), &[NFS4ERR_INVAL, NFS4ERR_ATTRNOTSUPP]),
    Row("a time that is not delegated", IN_2, |c| at_file(c).then(set(&Attributes::of(FATTR4_TIME_DELEG_MODIFY, &FUTURE))), &[NFS4ERR_BAD_STATEID]),
    Row("the verifier's attributes", SINCE_1, |c| at_file(c).getattr(&[FATTR4_SUPPATTR_EXCLCREAT]), &[NFS4_OK]),
];

pub fn told(case: &mut Case) {
    let all = supported(case);
    for number in MANDATORY {
        assert!(all.contains(number), "{number}");
    }
    let last = [55, 81, 86][case.minor as usize];
    assert!(all.iter().all(|n| *n <= last), "4.{}: {all:?}", case.minor);
    for kind in ["file", "dir", "link", "fifo", "sock", "blk", "chr"] {
        let handle = case.handle(kind);
        for number in &all {
            let asked = ops().fh(&handle).getattr(&[*number]);
            if SET_ONLY.contains(number) {
                case.call(asked).is(NFS4ERR_INVAL);
                continue;
            }
            let (which, values) = case.call(asked).ok().attributes();
            assert_eq!(which, [*number], "4.{} of {kind}", case.minor);
            assert!(!values.is_empty());
            if !UNSTEADY.contains(number) {
                let same = Attributes::none().and(*number, &Raw(&values));
                let status = case.call(ops().fh(&handle).verify(&same)).status;
                assert_eq!(
                    status, NFS4_OK,
                    "4.{} VERIFY {number} of {kind}",
                    case.minor
                );
            }
        }
        // All together are in the order of their numbers.
        let readable: Vec<u32> = all
            .iter()
            .filter(|n| !SET_ONLY.contains(n))
            .copied()
            .collect();
        let (which, values) = case
            .call(ops().fh(&handle).getattr(&readable))
            .ok()
            .attributes();
        assert_eq!(which, readable);
        assert_eq!(values.len() % 4, 0);
    }
    ask(case, SETS);
    // The times that were set, to the nanosecond.
    let time = settime4::SET_TO_CLIENT_TIME4(FUTURE);
    case.call(at_file(case).then(set(&Attributes::of(FATTR4_TIME_MODIFY_SET, &time))))
        .ok();
    let found: nfstime4 = case
        .call(at_file(case).getattr(&[FATTR4_TIME_MODIFY]))
        .ok()
        .attribute();
    assert_eq!(found, FUTURE);
    let (which, values) = case
        .call(at_file(case).getattr(&[FATTR4_OWNER, FATTR4_OWNER_GROUP]))
        .ok()
        .attributes();
    assert_eq!(which.len(), 2);
    let mut expected = Vec::new();
    text("1234").encode(&mut expected);
    text("4321").encode(&mut expected);
    assert_eq!(values, expected, "numbers are told as they are");
    let root: u64 = case
        .call(ops().root().getattr(&[FATTR4_FILEID]))
        .ok()
        .attribute();
    let mounted: u64 = case
        .call(ops().root().getattr(&[FATTR4_MOUNTED_ON_FILEID]))
        .ok()
        .attribute();
    assert!(root != 0 && mounted != 0);
    let handle: Vec<u8> = {
        let told = case.call(at_file(case).getattr(&[FATTR4_FILEHANDLE])).ok();
        nfs_fh4::decode(&mut Reader::new(&told.attributes().1))
            .expect("a handle")
            .0
            .to_vec()
    };
    assert_eq!(handle, case.file);
    // A change of anything changes `change`.
    let changes: &[fn(&Case) -> Ops] = &[
        |c| at_file(c).then(set(&Attributes::mode(0o600))),
        |c| at_file(c).then(set(&Attributes::size(7))),
        |c| ops().fh(&c.file).save().fh(&c.dir).link("another"),
        |c| at(c).remove("another"),
    ];
    for change in changes {
        let before: u64 = case
            .call(at_file(case).getattr(&[FATTR4_CHANGE]))
            .ok()
            .attribute();
        let asked = change(case);
        case.call(asked).ok();
        let after: u64 = case
            .call(at_file(case).getattr(&[FATTR4_CHANGE]))
            .ok()
            .attribute();
        assert!(after > before);
    }
    let told = case.call(at_file(case).access(0x3f)).ok();
    let told: ACCESS4resok = told.get(op::OP_ACCESS);
    assert_eq!(told.access & !told.supported, 0);
    assert_ne!(told.access & ACCESS4_READ, 0);
}

/// Values as they came.
pub struct Raw<'a>(pub &'a [u8]);

impl Encode for Raw<'_> {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self.0);
    }
}

#[rustfmt::skip]
const EXTENDED: &[Row] = &[
    Row("GETXATTR of none", IN_2, |c| at_file(c).getxattr("none"), &[NFS4ERR_NOXATTR]),
    Row("REMOVEXATTR of none", IN_2, |c| at_file(c).removexattr("none"), &[NFS4ERR_NOXATTR]),
    Row("SETXATTR that replaces none", IN_2, |c| at_file(c).setxattr(SETXATTR4_REPLACE, "one", b"v"), &[NFS4ERR_NOXATTR]),
    Row("SETXATTR that creates", IN_2, |c| at_file(c).setxattr(SETXATTR4_CREATE, "one", b"value"), &[NFS4_OK]),
    Row("SETXATTR that creates again", IN_2, |c| at_file(c).setxattr(SETXATTR4_CREATE, "one", b"v"), &[NFS4ERR_EXIST]),
    Row("SETXATTR that replaces", IN_2, |c| at_file(c).setxattr(SETXATTR4_REPLACE, "one", b"other"), &[NFS4_OK]),
    Row("SETXATTR either way", IN_2, |c| at_file(c).setxattr(SETXATTR4_EITHER, "two", b""), &[NFS4_OK]),
    Row("GETXATTR", IN_2, |c| at_file(c).getxattr("one"), &[NFS4_OK]),
    Row("LISTXATTRS", IN_2, |c| at_file(c).listxattrs(0, 4096), &[NFS4_OK]),
    Row("LISTXATTRS into nothing", IN_2, |c| at_file(c).listxattrs(0, 0), &[NFS4ERR_TOOSMALL]),
    Row("LISTXATTRS from a cookie that is none", IN_2, |c| at_file(c).listxattrs(u64::MAX / 2, 4096), &[NFS4ERR_BAD_COOKIE, NFS4_OK]),
    Row("a name that is none", IN_2, |c| at_file(c).setxattr(SETXATTR4_EITHER, "", b""), &[NFS4ERR_INVAL]),
    Row("a value that is too large", IN_2, |c| at_file(c).setxattr(SETXATTR4_EITHER, "large", &[7; 65_536]), &[NFS4ERR_XATTR2BIG, NFS4ERR_NOSPC, NFS4_OK]),
    Row("of a folder", IN_2, |c| at(c).setxattr(SETXATTR4_EITHER, "one", b"v").getxattr("one"), &[NFS4_OK]),
    Row("of a link", IN_2, |c| at(c).lookup("link").setxattr(SETXATTR4_EITHER, "one", b"v"), &[NFS4ERR_PERM, NFS4ERR_WRONG_TYPE, NFS4ERR_INVAL, NFS4ERR_NOTSUPP, NFS4_OK]),
];

pub fn extended(case: &mut Case) {
    let has: bool = case
        .call(at_file(case).getattr(&[FATTR4_XATTR_SUPPORT]))
        .ok()
        .attribute();
    assert!(has);
    ask(case, EXTENDED);
    let told = case.call(at_file(case).getxattr("one")).ok();
    let told =
        GETXATTR4resok::decode(&mut Reader::new(told.body(op::OP_GETXATTR))).expect("a value");
    assert_eq!(told.gxr_value.0, b"other");
    for n in 0..30 {
        let name = format!("number-{n:02}");
        case.call(at_file(case).setxattr(SETXATTR4_CREATE, &name, name.as_bytes()))
            .ok();
    }
    let list = |case: &mut Case, bytes| {
        let (mut cookie, mut names) = (0, Vec::new());
        for _ in 0..100 {
            let told = case.call(at_file(case).listxattrs(cookie, bytes)).ok();
            let body = told.body(op::OP_LISTXATTRS);
            let told = LISTXATTRS4resok::decode(&mut Reader::new(body)).expect("names");
            names.extend(told.lxr_names.iter().map(|name| name.0.to_vec()));
            cookie = told.lxr_cookie;
            if told.lxr_eof {
                names.sort();
                return names;
            }
        }
        panic!("LISTXATTRS does not end");
    };
    let all = list(case, 65_536);
    assert!(
        all.len() >= 32 && all.contains(&b"number-29".to_vec()),
        "{}",
        all.len()
    );
    assert_eq!(list(case, 200), all, "in small pieces");
    let before: u64 = case
        .call(at_file(case).getattr(&[FATTR4_CHANGE]))
        .ok()
        .attribute();
    let told = case.call(at_file(case).removexattr("two")).ok();
    let told: SETXATTR4resok = told.get(op::OP_REMOVEXATTR);
    assert_eq!(told.sxr_info.before, before);
    assert!(told.sxr_info.after > before);
    // Rights of their own in ACCESS, and a user without them.
    let rights = ACCESS4_XAREAD | ACCESS4_XAWRITE | ACCESS4_XALIST;
    let told = case.call(at_file(case).access(rights)).ok();
    assert_eq!(told.get::<ACCESS4resok>(op::OP_ACCESS).access, rights);
    case.client.wire.credential = Credential::user(1000);
    let told = case.call(at_file(case).access(rights)).ok();
    assert_eq!(
        told.get::<ACCESS4resok>(op::OP_ACCESS).access,
        rights & !ACCESS4_XAWRITE
    );
    case.call(at_file(case).setxattr(SETXATTR4_EITHER, "one", b"v"))
        .is(NFS4ERR_ACCESS);
    case.call(at_file(case).removexattr("one"))
        .is(NFS4ERR_ACCESS);
    case.client.wire.credential = Credential::user(0);
    case.call(at_file(case).then(set(&Attributes::mode(0o200))))
        .ok();
    case.client.wire.credential = Credential::user(1000);
    case.call(at_file(case).getxattr("one")).is(NFS4ERR_ACCESS);
    case.client.wire.credential = Credential::user(0);
}
