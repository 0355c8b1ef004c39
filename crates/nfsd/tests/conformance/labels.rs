//! Security labels (RFC 7862, section 9), of exports that have them and of others.

use nfsd::exports::Rule;
use store::fs::LABEL_BYTES_MAX;
use testkit::nfs::client::*;
use testkit::nfs::compound::*;
use wire::nfs4::*;
use wire::xdr::{Decode, Encode, Opaque, Reader};

use crate::attributes::Raw;
use crate::machine;
use crate::names::{at, at_file};
use nfs_opnum4 as op;
use nfsstat4::*;

const USER: u32 = 1000;

fn serve(security_label: bool, is_read_only: bool) -> ServerUnderTest {
    let rule = Rule {
        security_label,
        is_read_only,
        ..machine::rule()
    };
    let exports = vec![("/", machine::memory("all"), rule)];
    let server = machine::server(nfsd::NfsdSettings::default(), exports, Vec::new());
    machine::tried(&server, &[])
}

/// The value of a label in format 7 by policy 8.
fn value(data: &[u8]) -> Vec<u8> {
    let label = sec_label4 {
        slai_lfs: labelformat_spec4 {
            lfs_lfs: 7,
            lfs_pi: 8,
        },
        slai_data: Opaque(data),
    };
    let mut bytes = Vec::new();
    label.encode(&mut bytes);
    bytes
}

fn label(data: &[u8]) -> Attributes {
    Attributes::of(FATTR4_SEC_LABEL, &Raw(&value(data)))
}

fn set(case: &Case, data: &[u8]) -> Ops {
    at_file(case).setattr(ANONYMOUS, &label(data))
}

/// What is told where a label and the type are asked for, without the type.
fn told(case: &mut Case, handle: &[u8]) -> Option<Vec<u8>> {
    let asked = ops().fh(handle).getattr(&[FATTR4_TYPE, FATTR4_SEC_LABEL]);
    let (which, values) = case.call(asked).ok().attributes();
    match which[..] {
        [FATTR4_TYPE] => None,
        [FATTR4_TYPE, FATTR4_SEC_LABEL] => Some(values[4..].to_vec()),
        _ => panic!("{which:?}"),
    }
}

fn is_supported(case: &mut Case, number: u32) -> bool {
    let told = case.call(at_file(case).getattr(&[number])).ok();
    let (_, values) = told.attributes();
    let words = bitmap4::decode(&mut Reader::new(&values)).expect("a bitmap");
    let third = words.iter().nth(2).unwrap_or_default();
    third >> (FATTR4_SEC_LABEL % 32) & 1 == 1
}

/// Whether the answer to a CREATE or an OPEN says that a label was set.
fn was_set(mask: &bitmap4<'_>) -> bool {
    mask.iter().nth(2).unwrap_or_default() >> (FATTR4_SEC_LABEL % 32) & 1 == 1
}

#[test]
fn label_is_told_as_it_was_set_and_left_out_where_there_is_none() {
    let mut case = Case::new(&serve(true, false), 2);
    assert!(is_supported(&mut case, FATTR4_SUPPORTED_ATTRS));
    assert!(is_supported(&mut case, FATTR4_SUPPATTR_EXCLCREAT));
    let (file, dir) = (case.file.clone(), case.dir.clone());
    assert_eq!(told(&mut case, &file), None);
    case.call(at_file(&case).verify(&label(b"a")))
        .is(NFS4ERR_NOT_SAME);
    case.call(at_file(&case).nverify(&label(b"a"))).ok();
    let change = |case: &mut Case| -> u64 {
        let asked = at_file(case).getattr(&[FATTR4_CHANGE]);
        case.call(asked).ok().attribute()
    };
    let before = change(&mut case);
    for data in [&b"user:role:type:s0"[..], b"a", &[7; LABEL_BYTES_MAX]] {
        let set = case.call(set(&case, data)).ok();
        let mask = bitmap4::decode(&mut Reader::new(set.body(op::OP_SETATTR))).expect("a mask");
        assert!(was_set(&mask));
        assert_eq!(told(&mut case, &file), Some(value(data)));
        case.call(at_file(&case).verify(&label(data))).ok();
        case.call(at_file(&case).nverify(&label(data)))
            .is(NFS4ERR_SAME);
        case.call(at_file(&case).verify(&label(b"other")))
            .is(NFS4ERR_NOT_SAME);
    }
    assert!(change(&mut case) > before);
    for data in [&[][..], &[7; LABEL_BYTES_MAX + 1]] {
        case.call(set(&case, data)).is(NFS4ERR_BADLABEL);
    }
    let cut_off = Attributes::of(FATTR4_SEC_LABEL, &Raw(&value(b"abcd")[..12]));
    case.call(at_file(&case).setattr(ANONYMOUS, &cut_off))
        .is(NFS4ERR_BADXDR);
    // A listing tells it of those that have one.
    case.call(set(&case, b"abcd")).ok();
    let asked = [FATTR4_FILEID, FATTR4_SEC_LABEL];
    let listed = case
        .call(ops().fh(&dir).readdir(0, [0; 8], 8192, &asked))
        .ok();
    let listed = READDIR4resok::decode(&mut Reader::new(listed.body(op::OP_READDIR)));
    let mut labels = Vec::new();
    for entry in listed.expect("entries").entries.iter() {
        if was_set(&entry.attrs.attrmask) {
            labels.push((entry.name.0.to_vec(), entry.attrs.attr_vals.0[8..].to_vec()));
        }
    }
    assert_eq!(labels, [(b"file".to_vec(), value(b"abcd"))]);
    // It is no extended attribute, and outlives its name.
    for key in ["selinux", "security.selinux", "weft.label"] {
        case.call(at_file(&case).getxattr(key)).is(NFS4ERR_NOXATTR);
    }
    case.call(ops().fh(&dir).save().fh(&dir).rename("file", "elsewhere"))
        .ok();
    assert_eq!(told(&mut case, &file), Some(value(b"abcd")));
}

#[test]
fn new_object_has_the_label_that_it_is_made_with() {
    let mut case = Case::new(&serve(true, false), 2);
    let kinds = [
        createtype4::NF4DIR,
        createtype4::NF4FIFO,
        createtype4::NF4LNK(Opaque(b"somewhere")),
    ];
    for (name, kind) in ["made dir", "made fifo", "made link"]
        .into_iter()
        .zip(kinds)
    {
        let made = case
            .call(at(&case).create(kind, name, &label(b"abc")).getfh())
            .ok();
        let resok = CREATE4resok::decode(&mut Reader::new(made.body(op::OP_CREATE)));
        assert!(was_set(&resok.expect("a result").attrset));
        assert_eq!(told(&mut case, &made.handle()), Some(value(b"abc")));
    }
    let owner = case.client.owner();
    let attributes = label(b"opened");
    let exclusive = |verifier| {
        openflag4::OPEN4_CREATE(createhow4::EXCLUSIVE4_1(creatverfattr {
            cva_verf: verifier,
            cva_attrs: attributes.fattr(),
        }))
    };
    for (name, how) in [
        ("g", guarded(&attributes)),
        ("x", exclusive([1; 8])),
        ("x", exclusive([1; 8])),
    ] {
        let opened = case
            .call(at(&case).open(open_args(&owner, name, 1, 0, how)).getfh())
            .ok();
        let resok = OPEN4resok::decode(&mut Reader::new(opened.body(op::OP_OPEN)));
        assert!(was_set(&resok.expect("a result").attrset), "{name}");
        assert_eq!(told(&mut case, &opened.handle()), Some(value(b"opened")));
    }
    // One that is there stays as it is.
    let other = label(b"other");
    let how = openflag4::OPEN4_CREATE(createhow4::UNCHECKED4(other.fattr()));
    let opened = case
        .call(at(&case).open(open_args(&owner, "g", 1, 0, how)).getfh())
        .ok();
    let resok = OPEN4resok::decode(&mut Reader::new(opened.body(op::OP_OPEN)));
    assert!(!was_set(&resok.expect("a result").attrset));
    assert_eq!(told(&mut case, &opened.handle()), Some(value(b"opened")));
    let long = label(&[7; LABEL_BYTES_MAX + 1]);
    case.call(at(&case).create(createtype4::NF4FIFO, "long", &long))
        .is(NFS4ERR_BADLABEL);
    case.call(at(&case).lookup("long")).is(NFS4ERR_NOENT);
}

#[test]
fn owner_and_superuser_set_labels_and_others_do_not() {
    let mut case = Case::new(&serve(true, false), 2);
    let file = case.file.clone();
    let owned = Attributes::of(FATTR4_OWNER, &Opaque::<4>(b"1000"))
        .and(FATTR4_OWNER_GROUP, &Opaque::<4>(b"1000"));
    case.call(at_file(&case).setattr(ANONYMOUS, &owned)).ok();
    case.call(at_file(&case).setattr(ANONYMOUS, &Attributes::mode(0o666)))
        .ok();
    case.call(set(&case, b"root's")).ok();
    case.client.wire.credential = Credential::user(USER + 1);
    case.call(set(&case, b"another's")).is(NFS4ERR_PERM);
    assert_eq!(told(&mut case, &file), Some(value(b"root's")));
    case.client.wire.credential = Credential::user(USER);
    case.call(set(&case, b"its owner's")).ok();
    assert_eq!(told(&mut case, &file), Some(value(b"its owner's")));
}

#[test]
fn export_without_labels_and_older_versions_have_no_such_attribute() {
    for (security_label, minor) in [(false, 2), (true, 1), (true, 0)] {
        let mut case = Case::new(&serve(security_label, false), minor);
        let file = case.file.clone();
        assert!(!is_supported(&mut case, FATTR4_SUPPORTED_ATTRS));
        assert_eq!(told(&mut case, &file), None);
        case.call(set(&case, b"a")).is(NFS4ERR_ATTRNOTSUPP);
        case.call(at_file(&case).verify(&label(b"a")))
            .is(NFS4ERR_ATTRNOTSUPP);
        let made = at(&case).create(createtype4::NF4FIFO, "new", &label(b"a"));
        case.call(made).is(NFS4ERR_ATTRNOTSUPP);
        case.call(at(&case).lookup("new")).is(NFS4ERR_NOENT);
    }
}

#[test]
fn labels_are_out_of_sight_while_the_export_has_them_not_and_not_set_where_it_is_read_only() {
    let fs = machine::memory("all");
    let rule = |security_label, is_read_only| Rule {
        security_label,
        is_read_only,
        ..machine::rule()
    };
    let export = |rule| machine::exports(vec![("/", fs.clone(), rule)]);
    let exports = vec![("/", fs.clone(), rule(true, false))];
    let server = machine::server(nfsd::NfsdSettings::default(), exports, Vec::new());
    let mut case = Case::new(&machine::tried(&server, &[]), 2);
    let file = case.file.clone();
    case.call(set(&case, b"abc")).ok();
    server.borrow().nfsd.set_exports(export(rule(false, false)));
    assert_eq!(told(&mut case, &file), None);
    server.borrow().nfsd.set_exports(export(rule(true, true)));
    case.call(set(&case, b"other")).is(NFS4ERR_ROFS);
    assert_eq!(told(&mut case, &file), Some(value(b"abc")));
}
