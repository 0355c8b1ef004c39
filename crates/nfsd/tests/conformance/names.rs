//! File handles and names: what each operation does, and each way in which it
//! may be refused (RFC 7530, sections 13 and 16; RFC 8881, sections 15 and 18).

use testkit::nfs::client::*;
use testkit::nfs::compound::*;
use wire::nfs4::*;
use wire::xdr::{Decode, Opaque, Reader};

use nfs_opnum4 as op;
use nfsstat4::*;

type Build = fn(&mut Case) -> Ops;

/// What is asked, by which versions, and what may come of it.
pub struct Row(
    pub &'static str,
    pub &'static [u32],
    pub Build,
    pub &'static [nfsstat4],
);

/// Asks each row that is for the version of `case`.
pub fn ask(case: &mut Case, rows: &[Row]) {
    for Row(what, minors, build, expected) in rows {
        if !minors.contains(&case.minor) {
            continue;
        }
        let asked = build(case);
        let count = asked.count as usize;
        let answer = case.call(asked);
        let is_whole = answer.status != NFS4_OK || answer.results.len() == count;
        assert!(
            expected.contains(&answer.status) && is_whole,
            "4.{} {what}: {:?}, not {expected:?}",
            case.minor,
            answer
        );
    }
}

pub const ALL: &[u32] = &[0, 1, 2];
pub const SINCE_1: &[u32] = &[1, 2];
pub const IN_0: &[u32] = &[0];
pub const IN_2: &[u32] = &[2];

pub fn at(case: &Case) -> Ops {
    ops().fh(&case.dir)
}

pub fn at_file(case: &Case) -> Ops {
    ops().fh(&case.file)
}

fn none() -> Attributes {
    Attributes::none()
}

/// With the file as the saved one and the folder as the current one.
fn both(case: &Case) -> Ops {
    ops().fh(&case.file).save().fh(&case.dir)
}

#[rustfmt::skip]
const HANDLES: &[Row] = &[
    Row("PUTROOTFH", ALL, |_| ops().root().getfh(), &[NFS4_OK]),
    Row("PUTPUBFH", ALL, |_| ops().op(nfs_argop4::OP_PUTPUBFH).getfh(), &[NFS4_OK]),
    Row("PUTFH", ALL, |c| at(c).getfh(), &[NFS4_OK]),
    Row("an empty handle", ALL, |_| ops().fh(b""), &[NFS4ERR_BADHANDLE]),
    Row("a short handle", ALL, |_| ops().fh(b"abc"), &[NFS4ERR_BADHANDLE]),
    Row("a long handle", ALL, |_| ops().fh(&[7; 128]), &[NFS4ERR_BADHANDLE]),
    Row("too long a handle", ALL, |_| ops().raw(&[[0, 0, 0, 22, 0, 0, 0, 129].as_slice(), &[1; 132]].concat()), &[NFS4ERR_BADXDR]),
    Row("a forged handle", ALL, |c| { let mut fh = c.file.clone(); *fh.last_mut().expect("bytes") ^= 0x40; ops().fh(&fh).getattr(&[FATTR4_TYPE]) }, &[NFS4ERR_BADHANDLE, NFS4ERR_STALE]),
    Row("SAVEFH, RESTOREFH", ALL, |c| at(c).save().lookup("dir").restore().lookup("file"), &[NFS4_OK]),
    Row("SAVEFH without", ALL, |_| ops().save(), &[NFS4ERR_NOFILEHANDLE]),
    Row("RESTOREFH without", IN_0, |c| at(c).restore(), &[NFS4ERR_RESTOREFH]),
    Row("RESTOREFH without", SINCE_1, |c| at(c).restore(), &[NFS4ERR_NOFILEHANDLE]),
    Row("GETFH without", ALL, |_| ops().getfh(), &[NFS4ERR_NOFILEHANDLE]),
    Row("LOOKUPP", ALL, |c| at(c).lookup("dir").lookupp().lookup("file"), &[NFS4_OK]),
    Row("LOOKUPP of a file", ALL, |c| at_file(c).lookupp(), &[NFS4ERR_NOTDIR]),
    Row("LOOKUPP of a link", ALL, |c| at(c).lookup("link").lookupp(), &[NFS4ERR_NOTDIR, NFS4ERR_SYMLINK]),
    Row("LOOKUPP of the root", ALL, |_| ops().root().lookupp(), &[NFS4ERR_NOENT]),
];

/// Operations that need a current file handle.
#[rustfmt::skip]
const NEED_HANDLE: &[Row] = &[
    Row("ACCESS", ALL, |_| ops().access(1), &[NFS4ERR_NOFILEHANDLE]),
    Row("CLOSE", ALL, |_| ops().close(0, ANONYMOUS), &[NFS4ERR_NOFILEHANDLE]),
    Row("COMMIT", ALL, |_| ops().commit(0, 0), &[NFS4ERR_NOFILEHANDLE]),
    Row("CREATE", ALL, |_| ops().mkdir("x"), &[NFS4ERR_NOFILEHANDLE]),
    Row("DELEGRETURN", ALL, |_| { ops().op(nfs_argop4::OP_DELEGRETURN(DELEGRETURN4args { deleg_stateid: ANONYMOUS })) }, &[NFS4ERR_NOFILEHANDLE]),
    Row("GETATTR", ALL, |_| ops().getattr(&[1]), &[NFS4ERR_NOFILEHANDLE]),
    Row("LINK", ALL, |_| ops().link("x"), &[NFS4ERR_NOFILEHANDLE]),
    Row("LOCKT", ALL, |c| { let owner = c.client.owner(); ops().op(nfs_argop4::OP_LOCKT(LOCKT4args { locktype: nfs_lock_type4::READ_LT, offset: 0, length: 1, owner: owner.wire() })) }, &[NFS4ERR_NOFILEHANDLE]),
    Row("LOCKU", ALL, |_| { ops().op(nfs_argop4::OP_LOCKU(LOCKU4args { locktype: nfs_lock_type4::READ_LT, seqid: 0, lock_stateid: ANONYMOUS, offset: 0, length: 1 })) }, &[NFS4ERR_NOFILEHANDLE]),
    Row("LOOKUP", ALL, |_| ops().lookup("x"), &[NFS4ERR_NOFILEHANDLE]),
    Row("LOOKUPP", ALL, |_| ops().lookupp(), &[NFS4ERR_NOFILEHANDLE]),
    Row("VERIFY", ALL, |_| ops().verify(&Attributes::size(0)), &[NFS4ERR_NOFILEHANDLE]),
    Row("NVERIFY", ALL, |_| ops().nverify(&Attributes::size(0)), &[NFS4ERR_NOFILEHANDLE]),
    Row("OPEN", ALL, |c| { let owner = c.client.owner(); ops().open(open_args(&owner, "x", 1, 0, openflag4::OPEN4_NOCREATE)) }, &[NFS4ERR_NOFILEHANDLE]),
    Row("OPEN_DOWNGRADE", ALL, |_| { ops().op(nfs_argop4::OP_OPEN_DOWNGRADE(OPEN_DOWNGRADE4args { open_stateid: ANONYMOUS, seqid: 0, share_access: 1, share_deny: 0 })) }, &[NFS4ERR_NOFILEHANDLE]),
    Row("OPEN_CONFIRM", IN_0, |_| { ops().op(nfs_argop4::OP_OPEN_CONFIRM(OPEN_CONFIRM4args { open_stateid: ANONYMOUS, seqid: 0 })) }, &[NFS4ERR_NOFILEHANDLE]),
    Row("READ", ALL, |_| ops().read(ANONYMOUS, 0, 1), &[NFS4ERR_NOFILEHANDLE]),
    Row("READDIR", ALL, |_| ops().readdir(0, [0; 8], 4096, &[]), &[NFS4ERR_NOFILEHANDLE]),
    Row("READLINK", ALL, |_| ops().readlink(), &[NFS4ERR_NOFILEHANDLE]),
    Row("REMOVE", ALL, |_| ops().remove("x"), &[NFS4ERR_NOFILEHANDLE]),
    Row("RENAME", ALL, |_| ops().rename("x", "y"), &[NFS4ERR_NOFILEHANDLE]),
    Row("RENAME without a saved one", ALL, |c| at(c).rename("x", "y"), &[NFS4ERR_NOFILEHANDLE]),
    Row("LINK without a saved one", ALL, |c| at(c).link("x"), &[NFS4ERR_NOFILEHANDLE]),
    Row("SECINFO", ALL, |_| ops().secinfo("x"), &[NFS4ERR_NOFILEHANDLE]),
    Row("SETATTR", ALL, |_| ops().setattr(ANONYMOUS, &Attributes::mode(0)), &[NFS4ERR_NOFILEHANDLE]),
    Row("WRITE", ALL, |_| ops().write(ANONYMOUS, 0, stable_how4::UNSTABLE4, b"x"), &[NFS4ERR_NOFILEHANDLE]),
    Row("OPENATTR", ALL, |_| ops().op(nfs_argop4::OP_OPENATTR(OPENATTR4args { createdir: false })), &[NFS4ERR_NOFILEHANDLE, NFS4ERR_NOTSUPP]),
    Row("SECINFO_NO_NAME", SINCE_1, |_| no_name(secinfo_style4::SECINFO_STYLE4_CURRENT_FH), &[NFS4ERR_NOFILEHANDLE]),
    Row("ALLOCATE", IN_2, |_| { ops().op(nfs_argop4::OP_ALLOCATE(ALLOCATE4args { aa_stateid: ANONYMOUS, aa_offset: 0, aa_length: 1 })) }, &[NFS4ERR_NOFILEHANDLE]),
    Row("DEALLOCATE", IN_2, |_| { ops().op(nfs_argop4::OP_DEALLOCATE(ALLOCATE4args { aa_stateid: ANONYMOUS, aa_offset: 0, aa_length: 1 })) }, &[NFS4ERR_NOFILEHANDLE]),
    Row("SEEK", IN_2, |_| { ops().op(nfs_argop4::OP_SEEK(SEEK4args { sa_stateid: ANONYMOUS, sa_offset: 0, sa_what: data_content4::NFS4_CONTENT_DATA })) }, &[NFS4ERR_NOFILEHANDLE]),
    Row("READ_PLUS", IN_2, |_| { ops().op(nfs_argop4::OP_READ_PLUS(READ4args { stateid: ANONYMOUS, offset: 0, count: 1 })) }, &[NFS4ERR_NOFILEHANDLE]),
    Row("IO_ADVISE", IN_2, |_| { ops().op(nfs_argop4::OP_IO_ADVISE(IO_ADVISE4args { iaa_stateid: ANONYMOUS, iaa_offset: 0, iaa_count: 0, iaa_hints: wire::xdr::List::Of(&[]) })) }, &[NFS4ERR_NOFILEHANDLE]),
    Row("CLONE", IN_2, |_| { ops().op(nfs_argop4::OP_CLONE(CLONE4args { cl_src_stateid: ANONYMOUS, cl_dst_stateid: ANONYMOUS, cl_src_offset: 0, cl_dst_offset: 0, cl_count: 0 })) }, &[NFS4ERR_NOFILEHANDLE]),
    Row("COPY", IN_2, |_| { ops().op(nfs_argop4::OP_COPY(COPY4args { ca_src_stateid: ANONYMOUS, ca_dst_stateid: ANONYMOUS, ca_src_offset: 0, ca_dst_offset: 0, ca_count: 0, ca_consecutive: true, ca_synchronous: true, ca_source_server: wire::xdr::List::Of(&[]) })) }, &[NFS4ERR_NOFILEHANDLE]),
    Row("GETXATTR", IN_2, |_| ops().getxattr("user.x"), &[NFS4ERR_NOFILEHANDLE]),
    Row("SETXATTR", IN_2, |_| ops().setxattr(setxattr_option4::SETXATTR4_EITHER, "user.x", b""), &[NFS4ERR_NOFILEHANDLE]),
    Row("LISTXATTRS", IN_2, |_| ops().listxattrs(0, 4096), &[NFS4ERR_NOFILEHANDLE]),
    Row("REMOVEXATTR", IN_2, |_| ops().removexattr("user.x"), &[NFS4ERR_NOFILEHANDLE]),
];

fn no_name(style: secinfo_style4) -> Ops {
    ops().op(nfs_argop4::OP_SECINFO_NO_NAME(SECINFO_NO_NAME4args {
        style,
    }))
}

#[rustfmt::skip]
const NAMES: &[Row] = &[
    Row("LOOKUP", ALL, |c| at(c).lookup("dir").lookup("in").getfh(), &[NFS4_OK]),
    Row("LOOKUP of nothing", ALL, |c| at(c).lookup("nothing"), &[NFS4ERR_NOENT]),
    Row("LOOKUP below a file", ALL, |c| at_file(c).lookup("x"), &[NFS4ERR_NOTDIR]),
    Row("LOOKUP below a link", ALL, |c| at(c).lookup("link").lookup("x"), &[NFS4ERR_SYMLINK]),
    Row("LOOKUP below a fifo", ALL, |c| at(c).lookup("fifo").lookup("x"), &[NFS4ERR_NOTDIR]),
    Row("CREATE of a file", ALL, |c| at(c).create(createtype4::default(nfs_ftype4::NF4REG), "x", &none()), &[NFS4ERR_BADTYPE]),
    Row("CREATE of an attribute", ALL, |c| at(c).create(createtype4::default(nfs_ftype4::NF4NAMEDATTR), "x", &none()), &[NFS4ERR_BADTYPE]),
    Row("CREATE of an unknown kind", ALL, |c| { at(c).raw(&[0, 0, 0, 6, 0, 0, 0, 99, 0, 0, 0, 1, b'x', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]) }, &[NFS4ERR_BADXDR, NFS4ERR_BADTYPE]),
    Row("CREATE of what is there", ALL, |c| at(c).mkdir("dir"), &[NFS4ERR_EXIST]),
    Row("CREATE below a file", ALL, |c| at_file(c).mkdir("x"), &[NFS4ERR_NOTDIR]),
    Row("CREATE with an attribute that cannot be set", ALL, |c| { at(c).create(createtype4::NF4DIR, "x", &Attributes::of(FATTR4_FILEID, &1u64)) }, &[NFS4ERR_INVAL]),
    Row("CREATE with an attribute that is none", ALL, |c| { at(c).create(createtype4::NF4DIR, "x", &Attributes::of(FATTR4_MIMETYPE, &0u32)) }, &[NFS4ERR_ATTRNOTSUPP]),
    Row("CREATE with values that are too short", ALL, |c| { at(c).create(createtype4::NF4DIR, "x", &Attributes::none().and(FATTR4_MODE, &[0u8; 0])) }, &[NFS4ERR_BADXDR]),
    Row("CREATE of a link to nothing", ALL, |c| at(c).create(createtype4::NF4LNK(Opaque(b"")), "x", &none()), &[NFS4ERR_INVAL]),
    Row("LINK", ALL, |c| both(c).link("linked").lookup("linked"), &[NFS4_OK]),
    Row("LINK to what is there", ALL, |c| both(c).link("dir"), &[NFS4ERR_EXIST]),
    Row("LINK of a folder", ALL, |c| at(c).lookup("dir").save().fh(&c.dir).link("x"), &[NFS4ERR_ISDIR]),
    Row("LINK below a file", ALL, |c| at_file(c).save().link("x"), &[NFS4ERR_NOTDIR]),
    Row("LINK of a link", ALL, |c| at(c).lookup("link").save().fh(&c.dir).link("linked-link"), &[NFS4_OK]),
    Row("REMOVE", ALL, |c| at(c).remove("linked"), &[NFS4_OK]),
    Row("REMOVE of nothing", ALL, |c| at(c).remove("linked"), &[NFS4ERR_NOENT]),
    Row("REMOVE below a file", ALL, |c| at_file(c).remove("x"), &[NFS4ERR_NOTDIR]),
    Row("REMOVE of a folder that is not empty", ALL, |c| at(c).remove("dir"), &[NFS4ERR_NOTEMPTY]),
    Row("REMOVE of a folder", ALL, |c| at(c).mkdir("gone").fh(&c.dir).remove("gone"), &[NFS4_OK]),
    Row("RENAME", ALL, |c| { at(c).save().rename("linked-link", "renamed").lookup("renamed") }, &[NFS4_OK]),
    Row("RENAME of nothing", ALL, |c| at(c).save().rename("nothing", "x"), &[NFS4ERR_NOENT]),
    Row("RENAME to itself", ALL, |c| at(c).save().rename("file", "file"), &[NFS4_OK]),
    Row("RENAME of a file over a folder", ALL, |c| at(c).save().rename("file", "dir"), &[NFS4ERR_EXIST]),
    Row("RENAME of a folder over a file", ALL, |c| at(c).save().rename("dir", "file"), &[NFS4ERR_EXIST]),
    Row("RENAME of a folder over one that is not empty", ALL, |c| { at(c).mkdir("empty").fh(&c.dir).save().rename("empty", "dir") }, &[NFS4ERR_EXIST, NFS4ERR_NOTEMPTY]),
    Row("RENAME of a folder over one that is", ALL, |c| { at(c).mkdir("over").fh(&c.dir).save().rename("empty", "over").lookup("over") }, &[NFS4_OK]),
    Row("RENAME into itself", ALL, |c| at(c).save().lookup("dir").lookup("in").rename("dir", "x"), &[NFS4ERR_INVAL]),
    Row("RENAME from below a file", ALL, |c| at_file(c).save().fh(&c.dir).rename("x", "y"), &[NFS4ERR_NOTDIR]),
    Row("RENAME to below a file", ALL, |c| at(c).save().fh(&c.file).rename("file", "y"), &[NFS4ERR_NOTDIR]),
    Row("RENAME to another folder", ALL, |c| { at(c).save().lookup("over").rename("renamed", "there").lookup("there") }, &[NFS4_OK]),
    Row("READLINK", ALL, |c| at(c).lookup("link").readlink(), &[NFS4_OK]),
    Row("READLINK of a file", IN_0, |c| at_file(c).readlink(), &[NFS4ERR_INVAL]),
    Row("READLINK of a file", SINCE_1, |c| at_file(c).readlink(), &[NFS4ERR_WRONG_TYPE, NFS4ERR_INVAL]),
    Row("READLINK of a folder", ALL, |c| at(c).readlink(), &[NFS4ERR_INVAL, NFS4ERR_ISDIR, NFS4ERR_WRONG_TYPE]),
    Row("SECINFO", ALL, |c| at(c).secinfo("file"), &[NFS4_OK]),
    Row("SECINFO of nothing", ALL, |c| at(c).secinfo("nothing"), &[NFS4ERR_NOENT]),
    Row("SECINFO below a file", ALL, |c| at_file(c).secinfo("x"), &[NFS4ERR_NOTDIR]),
    Row("SECINFO takes the file handle along", SINCE_1, |c| at(c).secinfo("file").getfh(), &[NFS4ERR_NOFILEHANDLE]),
    Row("SECINFO leaves the file handle", IN_0, |c| at(c).secinfo("file").getfh(), &[NFS4_OK, NFS4ERR_NOFILEHANDLE]),
    Row("SECINFO_NO_NAME", SINCE_1, |c| at(c).then(no_name(secinfo_style4::SECINFO_STYLE4_CURRENT_FH)), &[NFS4_OK]),
    Row("SECINFO_NO_NAME of the parent", SINCE_1, |c| at(c).then(no_name(secinfo_style4::SECINFO_STYLE4_PARENT)), &[NFS4_OK]),
    Row("SECINFO_NO_NAME takes the file handle along", SINCE_1, |c| { at(c).then(no_name(secinfo_style4::SECINFO_STYLE4_CURRENT_FH)).getfh() }, &[NFS4ERR_NOFILEHANDLE]),
    Row("SECINFO_NO_NAME above the root", SINCE_1, |_| { ops().root().then(no_name(secinfo_style4::SECINFO_STYLE4_PARENT)) }, &[NFS4ERR_NOENT]),
    Row("OPENATTR", ALL, |c| at_file(c).op(nfs_argop4::OP_OPENATTR(OPENATTR4args { createdir: true })), &[NFS4ERR_NOTSUPP]),
];

pub fn handles(case: &mut Case) {
    ask(case, HANDLES);
    ask(case, NEED_HANDLE);
    // A handle of what is gone.
    let file = case.make("doomed", b"x");
    case.call(at(case).remove("doomed")).ok();
    case.call(ops().fh(&file).getattr(&[FATTR4_TYPE]))
        .is(NFS4ERR_STALE);
    // One object has one handle, wherever it was looked up.
    let (dir, sub) = (case.dir.clone(), case.handle("dir"));
    let again = case.call(ops().fh(&sub).lookupp().getfh()).ok().handle();
    assert_eq!(again, dir);
}

pub fn names(case: &mut Case) {
    ask(case, NAMES);
    let found = case.call(at(case).lookup("link").readlink()).ok();
    let text = linktext4::decode(&mut Reader::new(found.body(op::OP_READLINK))).expect("a text");
    assert_eq!(text.0, b"to/there");
    let told = case.call(at(case).secinfo("file")).ok();
    let flavors = SECINFO4resok::decode(&mut Reader::new(told.body(op::OP_SECINFO)));
    assert!(!flavors.expect("flavors").is_empty());
}

/// Names that cannot be, in each operation that takes one.
pub fn bad_names(case: &mut Case) {
    let long = "x".repeat(256);
    let fine = "x".repeat(255);
    let bad: &[(&str, &[nfsstat4])] = &[
        ("", &[NFS4ERR_INVAL]),
        (".", &[NFS4ERR_BADNAME]),
        ("..", &[NFS4ERR_BADNAME]),
        ("a/b", &[NFS4ERR_BADCHAR]),
        ("a\0b", &[NFS4ERR_BADCHAR]),
        (&long, &[NFS4ERR_NAMETOOLONG]),
    ];
    type Take = fn(Ops, &str, &TestOwner) -> Ops;
    let takers: &[(&str, Take)] = &[
        ("LOOKUP", |o, n, _| o.lookup(n)),
        ("CREATE", |o, n, _| o.mkdir(n)),
        ("LINK", |o, n, _| o.link(n)),
        ("REMOVE", |o, n, _| o.remove(n)),
        ("RENAME from", |o, n, _| o.save().rename(n, "x")),
        ("RENAME to", |o, n, _| o.save().rename("file", n)),
        ("SECINFO", |o, n, _| o.secinfo(n)),
        ("OPEN", |o, n, owner| {
            o.open(open_args(owner, n, 1, 0, openflag4::OPEN4_NOCREATE))
        }),
        ("OPEN that makes", |o, n, owner| {
            o.open(open_args(owner, n, 1, 0, guarded(&none())))
        }),
    ];
    for (what, take) in takers {
        for (name, expected) in bad {
            // An owner that no other request has left unconfirmed.
            let owner = case.client.owner();
            let answer = case.call(take(both(case), name, &owner));
            assert!(
                expected.contains(&answer.status),
                "4.{} {what} {name:.9}: {:?}, not {expected:?}",
                case.minor,
                answer.status
            );
        }
    }
    case.call(at(case).mkdir(&fine)).ok();
    case.call(at(case).remove(&fine)).ok();
    let text = vec![b't'; 5000];
    let link = createtype4::NF4LNK(Opaque(&text));
    case.call(at(case).create(link, "x", &none()))
        .is(NFS4ERR_NAMETOOLONG);
}

#[rustfmt::skip]
const READDIR: &[Row] = &[
    Row("READDIR of a file", ALL, |c| at_file(c).readdir(0, [0; 8], 4096, &[]), &[NFS4ERR_NOTDIR]),
    Row("READDIR into nothing", ALL, |c| at(c).readdir(0, [0; 8], 0, &[]), &[NFS4ERR_TOOSMALL]),
    Row("READDIR into too little", ALL, |c| at(c).readdir(0, [0; 8], 20, &[FATTR4_FILEID]), &[NFS4ERR_TOOSMALL]),
    Row("READDIR from a cookie that is none", ALL, |c| at(c).readdir(1, [0; 8], 4096, &[]), &[NFS4ERR_BAD_COOKIE, NFS4ERR_NOT_SAME]),
    Row("READDIR from a cookie that is none", ALL, |c| at(c).readdir(2, [0; 8], 4096, &[]), &[NFS4ERR_BAD_COOKIE, NFS4ERR_NOT_SAME]),
    Row("READDIR of an attribute that can only be set", ALL, |c| at(c).readdir(0, [0; 8], 4096, &[FATTR4_TIME_MODIFY_SET]), &[NFS4ERR_INVAL]),
];

/// Entries and cookies of the folder, by READDIR of so many bytes at a time.
fn listed(case: &mut Case, dir: &[u8], bytes: u32) -> Vec<(u64, String)> {
    let mut found: Vec<(u64, String)> = Vec::new();
    let (mut cookie, mut verifier) = (0, [0; 8]);
    for _ in 0..1000 {
        let asked = ops()
            .fh(dir)
            .readdir(cookie, verifier, bytes, &[FATTR4_FILEID]);
        let answer = case.call(asked).ok();
        let body = answer.body(op::OP_READDIR);
        assert!(
            body.len() + 8 <= bytes as usize,
            "{} bytes of {bytes}",
            body.len()
        );
        let told = READDIR4resok::decode(&mut Reader::new(body)).expect("READDIR4resok");
        verifier = told.cookieverf;
        for entry in told.entries.iter() {
            let name = String::from_utf8(entry.name.0.to_vec()).expect("UTF-8");
            cookie = entry.cookie;
            found.push((cookie, name));
        }
        if told.eof {
            return found;
        }
    }
    panic!("READDIR does not end");
}

pub fn readdir(case: &mut Case) {
    let dir = case.call(at(case).mkdir("list").getfh()).ok().handle();
    assert!(listed(case, &dir, 4096).is_empty());
    for n in 0..60 {
        case.call(ops().fh(&dir).mkdir(&format!("entry-{n:03}")))
            .ok();
    }
    let all = listed(case, &dir, 65_536);
    let mut names: Vec<&String> = all.iter().map(|(_, name)| name).collect();
    names.sort();
    let expected: Vec<String> = (0..60).map(|n| format!("entry-{n:03}")).collect();
    assert_eq!(names, expected.iter().collect::<Vec<_>>());
    assert_eq!(listed(case, &dir, 512), all, "in small pieces");
    // 0, 1 and 2 are cookies of no entry (RFC 8881, section 18.23.3).
    assert!(all.iter().all(|(cookie, _)| *cookie > 2));
    // A cookie stays good while others come and go.
    let middle = all[30].0;
    case.call(ops().fh(&dir).remove(&all[10].1)).ok();
    case.call(ops().fh(&dir).remove(&all[30].1)).ok();
    case.call(ops().fh(&dir).mkdir("late")).ok();
    let first = case
        .call(ops().fh(&dir).readdir(0, [0; 8], 65_536, &[]))
        .ok();
    let verifier = READDIR4resok::decode(&mut Reader::new(first.body(op::OP_READDIR)));
    let verifier = verifier.expect("READDIR4resok").cookieverf;
    let rest = case
        .call(ops().fh(&dir).readdir(middle, verifier, 65_536, &[]))
        .ok();
    let rest = READDIR4resok::decode(&mut Reader::new(rest.body(op::OP_READDIR))).expect("entries");
    let rest: Vec<u64> = rest.entries.iter().map(|entry| entry.cookie).collect();
    let expected: Vec<u64> = all[31..].iter().map(|(cookie, _)| *cookie).collect();
    assert_eq!(rest[..29], expected[..], "what was behind the cookie");
    ask(case, READDIR);
    let wrong = case.call(ops().fh(&dir).readdir(middle, [9; 8], 4096, &[]));
    wrong.is(NFS4ERR_NOT_SAME);
    // Both attributes that were asked for, of each entry.
    let told =
        case.call(at(case).readdir(0, [0; 8], 65_536, &[FATTR4_RDATTR_ERROR, FATTR4_FILEID]));
    let told = told.ok();
    let told = READDIR4resok::decode(&mut Reader::new(told.body(op::OP_READDIR))).expect("entries");
    for entry in told.entries.iter() {
        assert_eq!(numbers(&entry.attrs), [FATTR4_RDATTR_ERROR, FATTR4_FILEID]);
    }
}

/// What a user may do who is not the owner.
pub fn permissions(case: &mut Case) {
    case.call(at(case).setattr(ANONYMOUS, &Attributes::mode(0o755)))
        .ok();
    let closed = case.call(
        at(case)
            .create(createtype4::NF4DIR, "closed", &Attributes::mode(0o700))
            .getfh(),
    );
    let closed = closed.ok().handle();
    let sticky = Attributes::mode(0o1777);
    let sticky = case
        .call(
            at(case)
                .create(createtype4::NF4DIR, "sticky", &sticky)
                .getfh(),
        )
        .ok()
        .handle();
    case.call(ops().fh(&sticky).mkdir("roots")).ok();
    let (dir, file) = (case.dir.clone(), case.file.clone());
    case.client.wire.credential = Credential::user(1000);
    type Do = fn(Ops) -> Ops;
    let refused: &[(&str, &[u8], Do, nfsstat4)] = &[
        ("LOOKUP", &closed, |o| o.lookup("x"), NFS4ERR_ACCESS),
        (
            "READDIR",
            &closed,
            |o| o.readdir(0, [0; 8], 4096, &[]),
            NFS4ERR_ACCESS,
        ),
        ("CREATE", &dir, |o| o.mkdir("x"), NFS4ERR_ACCESS),
        ("REMOVE", &dir, |o| o.remove("file"), NFS4ERR_ACCESS),
        (
            "RENAME",
            &dir,
            |o| o.save().rename("file", "x"),
            NFS4ERR_ACCESS,
        ),
        ("SECINFO", &closed, |o| o.secinfo("x"), NFS4ERR_ACCESS),
        (
            "SETATTR of a mode",
            &file,
            |o| o.setattr(ANONYMOUS, &Attributes::mode(0o777)),
            NFS4ERR_PERM,
        ),
        (
            "SETATTR of an owner",
            &file,
            |o| {
                o.setattr(
                    ANONYMOUS,
                    &Attributes::of(FATTR4_OWNER, &Opaque::<8>(b"1000")),
                )
            },
            NFS4ERR_PERM,
        ),
        (
            "WRITE",
            &file,
            |o| o.write(ANONYMOUS, 0, stable_how4::UNSTABLE4, b"x"),
            NFS4ERR_ACCESS,
        ),
        (
            "SETATTR of a size",
            &file,
            |o| o.setattr(ANONYMOUS, &Attributes::size(0)),
            NFS4ERR_ACCESS,
        ),
        (
            "REMOVE where all users may write",
            &sticky,
            |o| o.remove("roots"),
            NFS4ERR_ACCESS,
        ),
    ];
    for (what, handle, act, status) in refused {
        let answer = case.call(act(ops().fh(handle)));
        let is_it = answer.status == *status
            || (*status == NFS4ERR_ACCESS && answer.status == NFS4ERR_PERM);
        assert!(is_it, "4.{} {what}: {answer:?}, not {status:?}", case.minor);
    }
    let rights = |case: &mut Case, handle: &[u8]| {
        let told = case.call(ops().fh(handle).access(0x3f)).ok();
        told.get::<ACCESS4resok>(op::OP_ACCESS)
    };
    assert_eq!(rights(case, &closed).access, 0);
    let told = rights(case, &file);
    assert_eq!(told.access, ACCESS4_READ, "{told:?}");
    assert_eq!(rights(case, &dir).access, ACCESS4_READ | ACCESS4_LOOKUP);
    let opens = |case: &mut Case, access| {
        let owner = case.client.owner();
        let dir = case.dir.clone();
        let how = openflag4::OPEN4_NOCREATE;
        case.client
            .open_as(owner, &dir, "file", (access, 0), how)
            .map(drop)
    };
    assert!(opens(case, OPEN4_SHARE_ACCESS_READ).is_ok());
    let refused = opens(case, OPEN4_SHARE_ACCESS_BOTH).expect_err("no right");
    assert_eq!(refused.0, NFS4ERR_ACCESS);
    // A user in the folder's group.
    case.client.wire.credential = Credential::user(0);
    case.call(at(case).setattr(
        ANONYMOUS,
        &Attributes::mode(0o770).and(FATTR4_OWNER_GROUP, &Opaque::<8>(b"77")),
    ))
    .ok();
    case.client.wire.credential = Credential::Sys {
        uid: 1000,
        gid: 1000,
        gids: vec![5, 77],
    };
    case.call(at(case).mkdir("of the group")).ok();
    case.client.wire.credential = Credential::user(0);
}
