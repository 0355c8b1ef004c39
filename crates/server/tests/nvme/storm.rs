//! An NFS client asks for as many locks as it may, in as few calls as it can: others
//! pay no more for it than its share of the turns, counted in units
//! ([`machine::work`]).

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use machine::work::TURN_UNITS_MAX;
use needs::each_driver;
use reactor::Choice;
use server::nfs::{ExportSpec, Exported, FileSystemKind, FileSystemSpec, Rule, Squash};
use server::{Config, Limits, ListenerSpec, Running};
use testkit::nfs::client::{FORE, OpenFile, PLAIN, TestClient, exchange_id, sequence};
use testkit::nfs::compound::{
    Attributes, CompoundAnswer, Credential, Ops, ServerUnderTest, compound_args, header, ops,
};
use testkit::nfs::socket;
use wire::nfs4::*;
use wire::rpc::RecordMark;
use wire::xdr::{Decode, Reader};

use crate::common::{Host, config, stop};
use crate::report::report;

use nfs_lock_type4::{WRITE_LT, WRITEW_LT};
use nfs_opnum4 as op;

/// Locks of a file, as many as there may be but for a few.
const LOCKS: u64 = 16_300;
/// Owners that wait for locks of a file, at most.
const WAITERS: u64 = 256;
/// Operations of a COMPOUND at most; some of them name the file.
const OPS_MAX: u32 = 64;
const LOCKS_A_CALL: u64 = 60;
/// Calls at a time, each in its slot.
const CALLS: u32 = 48;
/// What one LOCK may cost, whatever there is in its file.
const LOCK_UNITS_MAX: u64 = 512;

/// One reactor, with a volume for NVMe and a file system for NFS.
fn start(backend: Choice) -> Running {
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let base = config(backend, Limits::default(), 128 << 20);
    server::start(Config {
        file_systems: vec![FileSystemSpec {
            name: "files".into(),
            kind: FileSystemKind::Mem {
                size_bytes: 64 << 20,
            },
        }],
        exports: vec![ExportSpec {
            path: "/".into(),
            what: Exported::FileSystem("files".into()),
            rules: vec![Rule {
                squash: Squash::None,
                ..Rule::default()
            }],
        }],
        listeners: vec![local.into(), ListenerSpec::nfs(local)],
        cpus: vec![reactor::available_cpus()[0]],
        ..base
    })
    .expect("starts")
}

fn lock(kind: nfs_lock_type4, at: u64, locker: locker4<'_>) -> Ops {
    ops().op(nfs_argop4::OP_LOCK(LOCK4args {
        locktype: kind,
        reclaim: false,
        offset: at * 4,
        length: 1,
        locker,
    }))
}

/// The first lock of a new owner of locks.
fn lock_first(client: &TestClient, opened: &OpenFile, kind: nfs_lock_type4, at: u64) -> Ops {
    let owner = client.owner();
    let locker = locker4::TRUE(open_to_lock_owner4 {
        open_seqid: 0,
        open_stateid: opened.stateid,
        lock_seqid: 0,
        lock_owner: owner.wire(),
    });
    ops().fh(&opened.handle).then(lock(kind, at, locker))
}

/// Locks of an owner that has some, as many as one call takes.
fn locks(opened: &OpenFile, lock_stateid: stateid4, from: u64) -> Ops {
    let locks = (from..from + LOCKS_A_CALL).map(|at| {
        lock(
            WRITE_LT,
            at,
            locker4::FALSE(exist_lock_owner4 {
                lock_stateid,
                lock_seqid: 0,
            }),
        )
    });
    locks.fold(ops().fh(&opened.handle), Ops::then)
}

/// A client whose session has as many slots as it takes.
fn holder(server: &ServerUnderTest) -> TestClient {
    let mut client = TestClient::unborn(server, 1);
    let asked = exchange_id(&client.owner, client.verifier, PLAIN);
    let answer = client.wire.compound(1, &asked).ok();
    let next = client.known_as(&answer);
    let fore = channel_attrs4 {
        ca_maxoperations: OPS_MAX,
        ca_maxrequests: CALLS,
        ..FORE
    };
    client.begin_session(next, fore);
    let complete = nfs_argop4::OP_RECLAIM_COMPLETE(RECLAIM_COMPLETE4args { rca_one_fs: false });
    client.call(ops().op(complete)).ok();
    client
}

fn open(client: &mut TestClient) -> OpenFile {
    let root = client.call(ops().root().getfh()).ok().handle();
    let none = Attributes::none();
    let how = openflag4::OPEN4_CREATE(createhow4::UNCHECKED4(none.fattr()));
    let owner = client.owner();
    let access = (OPEN4_SHARE_ACCESS_BOTH, 0);
    let opened = client.open_as(owner, &root, "file", access, how);
    opened.expect("an open")
}

/// Fills the file with locks and with owners that wait for one; the state of the
/// locks.
fn crowd(client: &mut TestClient, server: &ServerUnderTest) -> (OpenFile, stateid4) {
    let opened = open(client);
    let asked = lock_first(client, &opened, WRITE_LT, 0);
    let mut stateid: stateid4 = client.call(asked).ok().get(op::OP_LOCK);
    // As it is, whatever it is.
    stateid.seqid = 0;
    for from in (0..LOCKS).step_by(LOCKS_A_CALL as usize) {
        client.call(locks(&opened, stateid, from)).ok();
    }
    let mut waiter = TestClient::new(server, 1);
    let its = open(&mut waiter);
    for _ in 0..WAITERS {
        let asked = lock_first(&waiter, &its, WRITEW_LT, LOCKS - 1);
        waiter.call(asked).is(nfsstat4::NFS4ERR_DENIED);
    }
    (opened, stateid)
}

/// All calls in one piece: each locks again what is locked.
fn storm(client: &TestClient, opened: &OpenFile, stateid: stateid4) -> Vec<u8> {
    let mut bytes = Vec::new();
    for slot in 0..CALLS {
        let turn = if slot == 0 { client.sequence + 1 } else { 1 };
        let asked = sequence(client.session, slot, turn, false);
        let asked = asked.then(locks(opened, stateid, u64::from(slot) * LOCKS_A_CALL));
        let mut record = header(slot, &Credential::user(0), |_| {});
        record.extend(compound_args(1, &asked));
        let mark = RecordMark {
            is_last: true,
            len: record.len() as u32,
        };
        bytes.extend(mark.encode());
        bytes.extend(record);
    }
    bytes
}

#[each_driver]
fn lock_storm_costs_nvme_hosts_no_more_than_its_turns(backend: Choice) {
    let running = start(backend);
    let addresses = running.addresses();
    let (nvme, nfs) = (addresses[0], addresses[1]);
    let server = ServerUnderTest {
        connect: Rc::new(move || socket::connect(nfs)),
        advance: None,
        seen: Rc::default(),
        base: Vec::new(),
    };
    let mut client = holder(&server);
    let (opened, stateid) = crowd(&mut client, &server);
    let calls = storm(&client, &opened, stateid);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let host = scope.spawn(|| {
            let (_admin, mut queue) = Host::at(nvme).pair();
            let mut reads = 0;
            while !is_over.load(Ordering::Relaxed) || reads == 0 {
                queue.read(1, 0).expect("it is answered");
                reads += 1;
            }
            reads
        });
        let mut stream = TcpStream::connect(nfs).expect("a connection");
        let mut answers = socket::over(stream.try_clone().expect("a descriptor"));
        stream.write_all(&calls).expect("taken");
        for _ in 0..CALLS {
            let record = answers.receive().expect("an answer");
            let mut from = Reader::new(&record);
            assert!(u32::decode(&mut from).expect("an xid") < CALLS);
            CompoundAnswer::read(&record[24..]).ok();
        }
        is_over.store(true, Ordering::Relaxed);
        let reads = host.join().expect("it ended well");
        assert!(reads > 0, "an NVMe host was served");
    });
    let units = report(&running).turn_units_max;
    assert!(units >= TURN_UNITS_MAX, "{units} units: no storm");
    assert!(
        units < TURN_UNITS_MAX + LOCK_UNITS_MAX,
        "{units} units in one turn of the client"
    );
    stop(running);
}
