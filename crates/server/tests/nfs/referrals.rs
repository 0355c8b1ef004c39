//! Referrals over real sockets (RFC 8881, section 11.4; RFC 7530, section 8.3): what a client has of
//! a path whose files are on another server, and that it finds them there.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;

use needs::each_driver;
use reactor::Choice;
use server::nfs::{ExportSpec, Exported, FsLocation, LocationServer};
use server::{Change, Running};
use testkit::nfs::client::{MINORS, TestClient};
use testkit::nfs::compound::{CompoundAnswer, Ops, ServerUnderTest, numbers, ops};
use testkit::nfs::socket;
use wire::nfs4::nfsstat4::{NFS4_OK, NFS4ERR_MOVED, NFS4ERR_NOENT};
use wire::nfs4::{
    FATTR4_FS_LOCATIONS, FATTR4_FSID, FATTR4_MOUNTED_ON_FILEID, FATTR4_RDATTR_ERROR, FATTR4_TYPE,
    READDIR4resok, nfs_opnum4, nfsstat4,
};
use wire::xdr::{Decode, Opaque, Reader};

use crate::common::{address, at, config, drain, export, fill, make, stop, until};
use crate::raw::{self, call, status};

/// MNT of MOUNT 3.
const MNT: (u32, u32, u32) = (100_005, 3, 1);
const MNT3ERR_ACCES: u32 = 13;

/// The referral `/far` to a path of servers.
fn referral(servers: &[SocketAddr], path: &str) -> ExportSpec {
    let location = |server: &SocketAddr| FsLocation {
        server: LocationServer::Address(*server),
        path: path.to_owned(),
    };
    ExportSpec {
        path: "/far".to_owned(),
        what: Exported::Referral(servers.iter().map(location).collect()),
        ..export("far")
    }
}

fn client(running: &Running, minor: u32) -> TestClient {
    let address = address(running);
    let server = ServerUnderTest {
        connect: Rc::new(move || socket::connect(address)),
        advance: None,
        seen: Rc::default(),
        base: Vec::new(),
    };
    TestClient::new(&server, minor)
}

fn far() -> Ops {
    ops().root().lookup("far")
}

fn texts(from: &mut Reader<'_>) -> Vec<String> {
    let len = u32::decode(from).expect("a length");
    let text = |from: &mut Reader<'_>| {
        let text = Opaque::<1024>::decode(from).expect("a text");
        String::from_utf8(text.0.to_vec()).expect("UTF-8")
    };
    (0..len).map(|_| text(from)).collect()
}

/// What `fs_locations` has: addresses, each with a path.
fn locations(told: &CompoundAnswer) -> Vec<(SocketAddr, Vec<String>)> {
    let (told, values) = told.attributes();
    assert_eq!(told, [FATTR4_FS_LOCATIONS]);
    let from = &mut Reader::new(&values);
    assert_eq!(texts(from), ["far"], "the path here");
    let len = u32::decode(from).expect("a length");
    let location = |from: &mut Reader<'_>| {
        let [server] = &texts(from)[..] else {
            panic!("one server");
        };
        // Four bytes of an address and two of a port (RFC 5665, section 5.2.3.3).
        let bytes = server.split('.').map(|part| part.parse().expect("a byte"));
        let [a, b, c, d, high, low] = bytes.collect::<Vec<u8>>()[..] else {
            panic!("{server} has a port");
        };
        let port = u16::from_be_bytes([high, low]);
        let server = SocketAddr::from((Ipv4Addr::new(a, b, c, d), port));
        (server, texts(from))
    };
    (0..len).map(|_| location(from)).collect()
}

/// Two servers, of which one has what is tried.
fn two(backend: Choice, folder: &Path) -> (Running, Running) {
    let there = server::start(config(backend, &folder.join("there"))).expect("starts");
    let mut here = config(backend, &folder.join("here"));
    here.exports.push(referral(&[address(&there)], "/mem"));
    (server::start(here).expect("starts"), there)
}

#[each_driver]
fn client_finds_the_files_of_a_referral_at_the_server_that_it_is_told(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let (here, there) = two(backend, folder.path());
    let (mut writer, root) = at(&there, "mem");
    let file = make(&mut writer, &root, "file");
    fill(&mut writer, &file, b"there", 5);
    for minor in MINORS {
        let mut client = client(&here, minor);
        client.call(far().getfh()).is(NFS4ERR_MOVED);
        client.call(far().lookup("file")).is(NFS4ERR_MOVED);
        let told = client.call(far().getattr(&[FATTR4_FS_LOCATIONS])).ok();
        let known = [(address(&there), vec!["mem".to_owned()])];
        assert_eq!(locations(&told), known);
    }
    let (mut reader, root) = at(&there, "mem");
    let how = (host::nfs::Access::Read, host::nfs::Create::No);
    let open = reader.open((&root, "file"), how, false).expect("there");
    assert_eq!(drain(&mut reader, &open, 16), b"there");
    reader.close_file(open).expect("closed");
    stop(here);
    stop(there);
}

#[each_driver]
fn directory_above_lists_a_referral_that_version_3_may_not_mount(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let (here, there) = two(backend, folder.path());
    for minor in MINORS {
        let mut client = client(&here, minor);
        let mut list = |asked: &[u32]| {
            let answer = client
                .call(ops().root().readdir(0, [0; 8], 8192, asked))
                .ok();
            let found =
                READDIR4resok::decode(&mut Reader::new(answer.body(nfs_opnum4::OP_READDIR)));
            let found = found.expect("entries").entries;
            let mut entries = found.iter();
            let far = entries
                .find(|entry| entry.name.0 == b"far")
                .expect("listed");
            (numbers(&far.attrs), far.attrs.attr_vals.0.to_vec())
        };
        let (told, values) = list(&[FATTR4_TYPE, FATTR4_RDATTR_ERROR]);
        assert_eq!(told, [FATTR4_RDATTR_ERROR]);
        assert_eq!(values, (NFS4ERR_MOVED as u32).to_be_bytes());
        let known = [FATTR4_FSID, FATTR4_FS_LOCATIONS, FATTR4_MOUNTED_ON_FILEID];
        let (told, _) = list(&[&known[..], &[FATTR4_TYPE]].concat());
        assert_eq!(told, known);
    }
    let mut stream = raw::open(address(&here));
    let mut mount = |path: &str| {
        let mut args = (path.len() as u32).to_be_bytes().to_vec();
        args.extend(path.as_bytes());
        args.resize(args.len().next_multiple_of(4), 0);
        stream.write_all(&call(1, MNT, &args)).expect("taken");
        status(&raw::answer(&mut stream).expect("an answer").1)
    };
    assert_eq!(mount("/far"), MNT3ERR_ACCES);
    assert_eq!(mount("/far/below"), MNT3ERR_ACCES);
    assert_eq!(mount("/mem"), 0);
    until("the refusal is told", || {
        let told = here.refusals();
        told.iter().any(|one| {
            one.target.as_deref() == Some("/far")
                && one.reason.contains("a referral to another server")
        })
    });
    stop(here);
    stop(there);
}

/// What a client learns changes with its next call, without a new mount.
#[each_driver]
fn referral_is_added_changed_and_removed_while_clients_are_connected(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(config(backend, folder.path())).expect("starts");
    let mut client = client(&running, 2);
    let mut told = || {
        let told = client.call(far().getattr(&[FATTR4_FS_LOCATIONS]));
        match told.status {
            NFS4_OK => Ok(locations(&told)),
            status => Err(status),
        }
    };
    let change = |change| running.change(change).map(drop);
    let servers: Vec<SocketAddr> = (1..=2).map(|n| ([192, 0, 2, n], 20490).into()).collect();
    let known = |servers: &[SocketAddr]| {
        let all = servers
            .iter()
            .map(|server| (*server, vec!["files".to_owned()]));
        Ok(all.collect::<Vec<_>>())
    };
    assert_eq!(told(), Err(NFS4ERR_NOENT));
    let add = Change::AddExport(referral(&servers[..1], "/files"));
    change(add).expect("made");
    assert_eq!(told(), known(&servers[..1]));
    change(Change::SetExport(referral(&servers, "/files"))).expect("made");
    assert_eq!(told(), known(&servers));
    let none = change(Change::SetExport(referral(&[], "/files"))).expect_err("no server");
    assert!(none.to_string().contains("one server at least"), "{none}");
    assert_eq!(told(), known(&servers), "as before");
    let path = "/far".to_owned();
    change(Change::RemoveExport { path }).expect("made");
    assert_eq!(told(), Err(NFS4ERR_NOENT));
    stop(running);
}

/// Clients keep what they have open in others, and lose what they had where the referral is now.
#[each_driver]
fn export_becomes_a_referral_after_it_was_removed(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(config(backend, folder.path())).expect("starts");
    let (mut client, root) = at(&running, "mem");
    let open = make(&mut client, &root, "file");
    fill(&mut client, &open, b"here", 4);
    let (mut other, root) = at(&running, "dir");
    let kept = make(&mut other, &root, "file");
    let moved = ExportSpec {
        path: "/mem".to_owned(),
        ..referral(&[([192, 0, 2, 1], 2049).into()], "/mem")
    };
    let refused = running.change(Change::SetExport(moved.clone()));
    let text = refused.expect_err("files are there").to_string();
    assert!(text.contains("remove it first"), "{text}");
    client.read(&open, 0, &mut [0; 4]).expect("as before");
    let path = "/mem".to_owned();
    running
        .change(Change::RemoveExport { path })
        .expect("removed");
    running.change(Change::AddExport(moved)).expect("made");
    let gone = client.read(&open, 0, &mut [0; 4]).expect_err("gone");
    assert_eq!(gone.status(), Some(nfsstat4::NFS4ERR_STALE));
    let gone = client.lookup(["mem"]).expect_err("elsewhere");
    assert_eq!(gone.status(), Some(NFS4ERR_MOVED));
    fill(&mut other, &kept, b"kept", 4);
    other.close_file(kept).expect("closed");
    stop(running);
}
