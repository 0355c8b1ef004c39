//! Hosts of every protocol hold what memory they may, and do nothing: small I/O of others
//! goes on in every protocol, and needs none of those connections ended for it.

use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::path::Path;

use host::nfs::{Access, Client, Create, Params};
use mem::{Budget, Pool};
use needs::each_driver;
use reactor::{Choice, DriverConfig, EpollDriver};
use server::nfs::{ExportSpec, Exported, FileSystemKind, FileSystemSpec, Rule, Squash};
use server::{Config, IscsiTargetSpec, Limits, ListenerSpec, LunSpec};
use store::Kind;
use testkit::iscsi::{Pdus, cdb};
use testkit::nfs::call::{CompoundPart, call_header, compound, record};
use wire::iscsi::{BHS_LEN, flags};
use wire::nfs4::stable_how4;
use wire::nvme::{Sgl, Sqe, io as opcode};

use crate::common::{BLOCK, Host, Queue, config, ram, stop};
use crate::report::report;
use crate::scsi::{ALICE, DISKS, Nexus};

const MEMORY_MAX: u64 = 64 << 20;
const MIB: usize = 1 << 20;
const BLOCKS: u32 = (MIB / BLOCK) as u32;
/// Hosts of each protocol that sit on memory: half of them take nothing, half give
/// nothing.
const HOSTS: u32 = 4;
/// Commands of 1 MiB of each.
const COMMANDS: u32 = 60;
/// I/Os of each of the others.
const ROUNDS: u64 = 100;

/// Volumes and files on disk, so that everything goes through buffers.
fn serve(backend: Choice, folder: &Path) -> Config {
    let mut config = config(backend, Limits::default(), MEMORY_MAX);
    config.volumes = vec![ram("ram", 4096), ram("other", 4096)];
    for volume in &mut config.volumes {
        let path = folder.join(&volume.name);
        volume.kind = Kind::file(path);
    }
    let mut disks = IscsiTargetSpec::new(DISKS);
    disks.luns = vec![LunSpec::new(0, "other")];
    config.iscsi_targets = vec![disks];
    let path = folder.join("files");
    std::fs::create_dir(&path).expect("a folder of ours");
    config.file_systems = vec![FileSystemSpec {
        name: "files".into(),
        kind: FileSystemKind::Dir {
            path,
            state: folder.join("state"),
            read_only: false,
            acls: None,
            direct: false,
        },
    }];
    config.exports = vec![ExportSpec {
        path: "/files".into(),
        what: Exported::FileSystem("files".into()),
        rules: vec![Rule {
            squash: Squash::None,
            ..Rule::default()
        }],
    }];
    let ipv4 = SocketAddr::from(([127, 0, 0, 1], 0));
    let ipv6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let more = [
        ListenerSpec::iscsi(ipv4),
        ListenerSpec::nfs(ipv4),
        ListenerSpec::nfs(ipv6),
    ];
    config.listeners.extend(more);
    config
}

/// A host of NVMe that reads and takes nothing, or writes and gives nothing.
fn sit_by_nvme(address: SocketAddr, number: u32) -> (Queue, Queue) {
    let hostnqn = format!("nqn.2026-01.org.example:sitting{number}");
    let host = Host {
        hostnqn: &hostnqn,
        sqsize: 127,
        ..Host::at(address)
    };
    let (admin, mut io) = host.pair();
    let mut sqe = Sqe::new([opcode::READ, opcode::WRITE][number as usize % 2]);
    sqe.nsid = 1.into();
    sqe.set_blocks(0, BLOCKS);
    sqe.sgl = Sgl::new(Sgl::TRANSPORT, MIB as u32);
    for _ in 0..COMMANDS {
        io.send(sqe, &[]);
    }
    (admin, io)
}

/// The same of iSCSI.
fn sit_by_iscsi(address: SocketAddr, number: u32) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connects");
    let pdus = Pdus::default();
    let text = format!(
        "InitiatorName=iqn.2026-01.org.example:sitting{number}\0SessionType=Normal\0\
         TargetName={DISKS}\0InitialR2T=Yes\0ImmediateData=No\0"
    );
    let login = pdus.login(1, 0, text.as_bytes());
    stream.write_all(&login).expect("taken");
    let mut header = [0; BHS_LEN];
    stream.read_exact(&mut header).expect("an answer");
    assert_eq!(header[36..38], [0, 0], "logged in");
    let (way, cdb) = match number % 2 {
        0 => (flags::READ, cdb::read(0, BLOCKS as u16)),
        _ => (flags::WRITE, cdb::write(0, BLOCKS as u16)),
    };
    for n in 0..COMMANDS {
        let pdu = pdus.command((n, 1 + n), flags::FINAL | way | 1, cdb, MIB as u32, &[]);
        stream.write_all(&pdu).expect("taken");
    }
    stream
}

/// A connection of NFS with the first part of a call: of one that is all arguments all but
/// a byte, of one that writes some of the data.
fn sit_by_nfs(address: SocketAddr, number: u32) -> TcpStream {
    let mut call = call_header(number, |_| {});
    let part = match number % 2 {
        0 => {
            call.extend(compound(&vec![CompoundPart::Lookup(vec![b'n'; 1500]); 60]).0);
            call.len()
        }
        _ => {
            let parts = [
                CompoundPart::Put(vec![7; 24]),
                CompoundPart::Write(0, vec![7; MIB]),
            ];
            call.extend(compound(&parts).0);
            BLOCK
        }
    };
    let record = record(&call, || usize::MAX);
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.write_all(&record[..part]).expect("taken");
    stream
}

fn use_nvme(address: SocketAddr) {
    let (_admin, mut io) = Host::at(address).pair();
    for n in 0..ROUNDS {
        assert!(io.write(1, n, n as u8).is_success());
        assert_eq!(io.read(1, n), Ok(vec![n as u8; BLOCK]));
    }
}

fn use_iscsi(address: SocketAddr) {
    let mut nexus = Nexus::connect(address, ALICE, DISKS);
    for n in 0..ROUNDS {
        nexus.write(BLOCK, n, &[n as u8; BLOCK]).expect("written");
        assert_eq!(nexus.read(BLOCK, n, 1), Ok(vec![n as u8; BLOCK]));
    }
}

fn use_nfs(address: SocketAddr) {
    let pool = Pool::new(Budget::new(64 << 20)).expect("memory");
    let driver = EpollDriver::new(&DriverConfig::default(), pool).expect("a driver");
    let params = Params::new().expect("random bytes");
    let mut client = Client::connect(driver, address, params).expect("a session");
    let root = client.lookup(["files"]).expect("exported");
    let how = (Access::Both, Create::Unchecked);
    let open = client.open((&root, "file"), how, false).expect("room");
    for n in 0..ROUNDS {
        let (at, bytes) = (n * BLOCK as u64, [n as u8; BLOCK]);
        let data = (&bytes[..], stable_how4::UNSTABLE4);
        client.write(&open, at, data).expect("written");
        let mut read = [0; BLOCK];
        client.read(&open, at, &mut read).expect("read");
        assert!(read == bytes);
    }
}

#[each_driver]
fn small_io_of_every_protocol_goes_on_beside_hosts_of_all_that_sit_on_memory(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(serve(backend, folder.path())).expect("starts");
    let addresses = running.addresses();
    let [nvme, _, iscsi, nfs4, nfs6] = addresses[..] else {
        panic!("five listeners: {addresses:?}");
    };
    let by_nvme = Vec::from_iter((0..HOSTS).map(|n| sit_by_nvme(nvme, n)));
    let by_iscsi = Vec::from_iter((0..HOSTS).map(|n| sit_by_iscsi(iscsi, n)));
    let by_nfs = Vec::from_iter((0..HOSTS * COMMANDS).map(|n| sit_by_nfs(nfs4, n)));
    std::thread::scope(|scope| {
        scope.spawn(|| use_nvme(nvme));
        scope.spawn(|| use_iscsi(iscsi));
        scope.spawn(|| use_nfs(nfs6));
    });
    assert_eq!(report(&running).refusals, 0, "none had to end");
    drop((by_nvme, by_iscsi, by_nfs));
    stop(running);
}

#[each_driver]
fn peer_that_begins_with_tls_where_none_is_spoken_is_told_so(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(serve(backend, folder.path())).expect("starts");
    let addresses = running.addresses();
    let [_, _, iscsi, nfs, _] = addresses[..] else {
        panic!("five listeners: {addresses:?}");
    };
    for (count, address) in (1..).zip([iscsi, nfs]) {
        let mut peer = TcpStream::connect(address).expect("it listens");
        peer.write_all(&[22, 3, 1, 0, 4, 1, 0, 0, 0]).expect("sent");
        let mut answer = Vec::new();
        peer.read_to_end(&mut answer).expect("it is closed");
        assert_eq!(answer, [21, 3, 3, 0, 2, 2, 40], "handshake_failure");
        let refusals = running.refusals();
        let all: u64 = refusals.iter().map(|one| one.count).sum();
        assert_eq!((refusals.len(), all), (1, count));
        assert!(
            refusals[0].reason.contains("begins with TLS"),
            "{refusals:?}"
        );
    }
    use_iscsi(iscsi);
    use_nfs(nfs);
    stop(running);
}
