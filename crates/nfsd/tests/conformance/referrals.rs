//! Referrals: what is told of a file system that is absent (RFC 8881, section 11.4; RFC 7530,
//! section 8.3), and where file systems are (sections 11.16 and 11.17).

use nfs::connection::Flavor;
use nfsd::exports::{Export, Exports, Rule};
use nfsd::locations::{FsLocation, LocationServer};
use testkit::nfs::client::*;
use testkit::nfs::compound::*;
use wire::nfs4::*;
use wire::xdr::{Decode, Opaque, Reader};

use crate::machine;
use nfs_opnum4 as op;
use nfsstat4::*;

const ALL: [u32; 7] = [
    FATTR4_TYPE,
    FATTR4_SIZE,
    FATTR4_FSID,
    FATTR4_RDATTR_ERROR,
    FATTR4_FILEHANDLE,
    FATTR4_FS_LOCATIONS,
    FATTR4_MOUNTED_ON_FILEID,
];

/// The referral `/in/far` beside the export `/in/near`, and `/shut/far`, which takes another flavor.
fn serve() -> ServerUnderTest {
    let server = machine::server(nfsd::NfsdSettings::default(), Vec::new(), Vec::new());
    let location = |server, path: &str| FsLocation {
        server,
        path: path.to_owned(),
    };
    let address = |text: &str| LocationServer::Address(text.parse().expect("an address"));
    let locations = vec![
        location(LocationServer::Name("far.example.org".to_owned()), "/a/b"),
        location(address("192.0.2.7:20490"), "/"),
        location(address("[2001:db8::7]:2049"), "/c"),
    ];
    let near = Export::new("/in/near", machine::memory("near"), vec![machine::rule()]);
    let none = Rule {
        flavors: vec![Flavor::None],
        ..machine::rule()
    };
    let shut = Export::referral("/shut/far", locations.clone(), vec![none]);
    let far = Export::referral("/in/far", locations, vec![machine::rule()]);
    let exports = vec![
        near.expect("an export"),
        far.expect("a referral"),
        shut.expect("a referral"),
    ];
    let exports = Exports::new(exports, store::fs::Time::default()).expect("exports");
    server.borrow().nfsd.set_exports(exports);
    machine::tried(&server, &["in", "near"])
}

fn far() -> Ops {
    ops().root().lookup("in").lookup("far")
}

fn texts(from: &mut Reader<'_>) -> Vec<String> {
    let len = u32::decode(from).expect("a length");
    let text = |from: &mut Reader<'_>| {
        let text = Opaque::<1024>::decode(from).expect("a text");
        String::from_utf8(text.0.to_vec()).expect("UTF-8")
    };
    (0..len).map(|_| text(from)).collect()
}

/// Operations but those for attributes answer NFS4ERR_MOVED in an absent file system; to cross into
/// it is no error (RFC 8881, section 11.3).
#[test]
fn absent_file_system_answers_moved_to_what_asks_for_no_location() {
    let server = serve();
    for minor in MINORS {
        let mut case = Case::new(&server, minor);
        case.call(far().root()).ok();
        let moved: [Ops; 9] = [
            far().getfh(),
            far().getattr(&[FATTR4_TYPE, FATTR4_FSID]),
            far().access(ACCESS4_READ),
            far().lookup("below"),
            far().lookupp(),
            far().save(),
            far().secinfo("below"),
            far().readdir(0, [0; 8], 4096, &[]),
            far().mkdir("new"),
        ];
        for asked in moved {
            case.call(asked).is(NFS4ERR_MOVED);
        }
        // To find out which security the way into it takes is of the directory above.
        case.call(ops().root().lookup("in").secinfo("far")).ok();
        let wrong = Attributes::of(FATTR4_SIZE, &0u64);
        case.call(far().verify(&wrong)).is(NFS4ERR_MOVED);
        case.call(far().nverify(&wrong)).is(NFS4ERR_MOVED);
        // What is saved may be elsewhere than where the call is now, and the other way round.
        let dir = case.dir.clone();
        case.call(
            ops()
                .fh(&dir)
                .save()
                .root()
                .lookup("in")
                .lookup("far")
                .restore(),
        )
        .ok();
    }
}

/// What is there of an absent file system is told, and the rest left out without an error.
#[test]
fn getattr_with_fs_locations_tells_what_an_absent_file_system_has() {
    let server = serve();
    for minor in MINORS {
        let mut case = Case::new(&server, minor);
        let near = case
            .call(ops().root().lookup("in").getattr(&[FATTR4_FSID]))
            .ok();
        let told = case.call(far().getattr(&ALL)).ok();
        let (numbers, values) = told.attributes();
        let has = [
            FATTR4_FSID,
            FATTR4_RDATTR_ERROR,
            FATTR4_FS_LOCATIONS,
            FATTR4_MOUNTED_ON_FILEID,
        ];
        assert_eq!(numbers, has);
        let from = &mut Reader::new(&values);
        let fsid = [
            u64::decode(from).expect("major"),
            u64::decode(from).expect("minor"),
        ];
        assert_ne!(&near.attributes().1[..8], &fsid[0].to_be_bytes());
        assert_eq!(nfsstat4::decode(from), Ok(NFS4_OK));
        assert_eq!(texts(from), ["in", "far"], "the path here");
        assert_eq!(u32::decode(from), Ok(3));
        for (server, path) in [
            ("far.example.org", &["a", "b"][..]),
            ("192.0.2.7.80.10", &[]),
            ("2001:db8::7", &["c"]),
        ] {
            assert_eq!(texts(from), [server]);
            assert_eq!(texts(from), path);
        }
        let fileid = u64::decode(from).expect("mounted_on_fileid");
        assert!(from.rest().is_empty() && fileid != 0);
        let same = Attributes::of(FATTR4_FSID, &fsid[0]);
        case.call(far().verify(&same)).is(NFS4ERR_MOVED);
        // With the locations it is compared.
        let told = case.call(far().getattr(&[FATTR4_FS_LOCATIONS])).ok();
        let (_, values) = told.attributes();
        let asked = |op: fn(Ops, &Attributes) -> Ops, and: bool| {
            let mut all = Attributes::none();
            if and {
                all = all.and(FATTR4_TYPE, &2u32);
            }
            op(far(), &all.and_raw(FATTR4_FS_LOCATIONS, &values))
        };
        case.call(asked(Ops::verify, false)).ok();
        case.call(asked(Ops::nverify, false)).is(NFS4ERR_SAME);
        case.call(asked(Ops::verify, true)).is(NFS4ERR_MOVED);
    }
}

/// READDIR of the directory above (RFC 8881, section 11.4.2).
#[test]
fn readdir_lists_a_referral_with_what_it_has_or_why_not() {
    let server = serve();
    for minor in MINORS {
        let mut case = Case::new(&server, minor);
        let mut list = |asked: &[u32]| {
            let above = ops().root().lookup("in");
            let answer = case.call(above.readdir(0, [0; 8], 8192, asked));
            if answer.status != NFS4_OK {
                return Err(answer.status);
            }
            let entries = READDIR4resok::decode(&mut Reader::new(answer.body(op::OP_READDIR)));
            let entries = entries.expect("READDIR4resok").entries;
            let mut entries = entries.iter();
            let far = entries.find(|entry| entry.name.0 == b"far").expect("far");
            Ok((numbers(&far.attrs), far.attrs.attr_vals.0.to_vec()))
        };
        assert_eq!(list(&[]), Err(NFS4ERR_MOVED));
        assert_eq!(list(&[FATTR4_TYPE]), Err(NFS4ERR_MOVED));
        assert_eq!(list(&[FATTR4_FSID]), Err(NFS4ERR_MOVED));
        let asked = [FATTR4_TYPE, FATTR4_RDATTR_ERROR, FATTR4_MOUNTED_ON_FILEID];
        let (numbers, values) = list(&asked).expect("listed");
        assert_eq!(numbers, [FATTR4_RDATTR_ERROR, FATTR4_MOUNTED_ON_FILEID]);
        assert_eq!(values[..4], (NFS4ERR_MOVED as u32).to_be_bytes());
        let (numbers, values) = list(&ALL).expect("listed");
        let has = [
            FATTR4_FSID,
            FATTR4_RDATTR_ERROR,
            FATTR4_FS_LOCATIONS,
            FATTR4_MOUNTED_ON_FILEID,
        ];
        assert_eq!(numbers, has);
        assert_eq!(values[16..20], [0; 4], "no error");
    }
}

#[test]
fn referral_that_takes_another_flavor_is_told_to_no_call_of_this_one() {
    let server = serve();
    for minor in MINORS {
        let mut case = Case::new(&server, minor);
        let above = || ops().root().lookup("shut");
        let entered = above().lookup("far").getattr(&[FATTR4_FS_LOCATIONS]);
        case.call(entered).is(NFS4ERR_WRONGSEC);
        let listed = above().readdir(0, [0; 8], 8192, &[FATTR4_FS_LOCATIONS]);
        case.call(listed).is(NFS4ERR_WRONGSEC);
        let listed = above().readdir(0, [0; 8], 8192, &ALL);
        let answer = case.call(listed).ok();
        let entries = READDIR4resok::decode(&mut Reader::new(answer.body(op::OP_READDIR)));
        let entries = entries.expect("READDIR4resok").entries;
        let far = entries.iter().next().expect("far");
        assert_eq!(numbers(&far.attrs), [FATTR4_RDATTR_ERROR]);
        let why = far.attrs.attr_vals.0;
        assert_eq!(why, (NFS4ERR_WRONGSEC as u32).to_be_bytes());
        case.call(above().secinfo("far")).ok();
    }
}

/// What `fs_locations_info` has: its root, and for each item servers with their currency and
/// `fls_info`, and a path.
type Told = (Vec<String>, Vec<(Vec<(i32, Vec<u8>, String)>, Vec<String>)>);

fn info(values: &[u8]) -> Told {
    let from = &mut Reader::new(values);
    assert_eq!(u32::decode(from), Ok(0), "no variables");
    assert_eq!(i32::decode(from), Ok(0), "no schedule");
    let root = texts(from);
    let len = u32::decode(from).expect("a length");
    let item = |from: &mut Reader<'_>| {
        let len = u32::decode(from).expect("a length");
        let server = |from: &mut Reader<'_>| {
            let currency = i32::decode(from).expect("a currency");
            let info = Opaque::<64>::decode(from).expect("bytes").0.to_vec();
            let server = Opaque::<256>::decode(from).expect("a server").0.to_vec();
            (currency, info, String::from_utf8(server).expect("UTF-8"))
        };
        let servers = (0..len).map(|_| server(from)).collect();
        (servers, texts(from))
    };
    let items = (0..len).map(|_| item(from)).collect();
    assert!(from.rest().is_empty());
    (root, items)
}

/// Section 11.17: of a file system that is here the one entry of the request, of a referral none.
#[test]
fn fs_locations_info_tells_what_is_known_of_each_location() {
    let server = serve();
    for minor in [1, 2] {
        let mut case = Case::new(&server, minor);
        let told = case.call(far().getattr(&[FATTR4_FS_LOCATIONS_INFO])).ok();
        let (root, items) = info(&told.attributes().1);
        assert_eq!(root, ["in", "far"]);
        let servers = ["far.example.org", "192.0.2.7.80.10", "2001:db8::7"];
        for (order, ((entries, _), server)) in (0..).zip(items.iter().zip(servers)) {
            let info = vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, order, order];
            assert_eq!(entries[..], [(-1, info, server.to_owned())]);
        }
        assert_eq!(items.len(), 3);
        let dir = case.dir.clone();
        let told = case
            .call(ops().fh(&dir).getattr(&[FATTR4_FS_LOCATIONS_INFO]))
            .ok();
        let (root, items) = info(&told.attributes().1);
        assert_eq!(root, ["in", "near"]);
        let flags = (FSLI4GF_WRITABLE | FSLI4GF_CUR_REQ) as u8;
        let info = vec![flags, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0];
        let here = (vec![(0, info, String::new())], root);
        assert_eq!(items, [here]);
    }
    // Version 4.0 has no such attribute.
    let mut case = Case::new(&server, 0);
    case.call(far().getattr(&[FATTR4_FS_LOCATIONS_INFO]))
        .is(NFS4ERR_MOVED);
}
