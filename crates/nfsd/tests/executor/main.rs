//! COMPOUNDs through a connection without a socket: what they cost, what bounds
//! their answers, how they wait, and what they find at the edges of exports.
#![allow(missing_docs)]

mod askers;
mod costs;
mod large;
mod listings;
mod verifiers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use doubles::nfsd::NfsdDouble;
use mem::counters;
use nfs::connection::{Credential, Flavor};
use nfsd::exports::{Export, Exports, Rule, Squash};
use nfsd::{Nfsd, NfsdSettings};
use store::fs::{FileSystem, Memory, Time};
use testkit::nfs::call::call_header;
use wire::nfs4::*;
use wire::rpc::RecordMark;
use wire::xdr::{Decode, Encode, List, Opaque, Payload, Reader, pad};

use nfs_argop4 as arg;
use nfsstat4::{NFS4_OK, NFS4ERR_BAD_COOKIE, NFS4ERR_ISDIR, NFS4ERR_TOOSMALL};

/// Counts for the tests that nothing is allocated.
#[global_allocator]
static ALLOCATOR: counters::CountingAllocator = counters::CountingAllocator;

const ANONYMOUS: stateid4 = stateid4 {
    seqid: 0,
    other: [0; 12],
};

/// Operations of a COMPOUND as bytes.
#[derive(Clone, Default)]
struct Ops(Vec<u8>, u32);

impl Ops {
    fn op(mut self, op: arg<'_>) -> Ops {
        op.encode(&mut self.0);
        self.1 += 1;
        self
    }

    fn fh(self, handle: &[u8]) -> Ops {
        let object = Opaque(handle);
        self.op(arg::OP_PUTFH(PUTFH4args { object }))
    }

    fn root() -> Ops {
        Ops::default().op(arg::OP_PUTROOTFH)
    }

    fn lookup(self, name: &str) -> Ops {
        let objname = Opaque(name.as_bytes());
        self.op(arg::OP_LOOKUP(LOOKUP4args { objname }))
    }

    fn getattr(self, numbers: &[u32]) -> Ops {
        let mut words = [0; 3];
        for number in numbers {
            words[*number as usize / 32] |= 1 << (number % 32);
        }
        let attr_request = List::Of(&words);
        self.op(arg::OP_GETATTR(GETATTR4args { attr_request }))
    }

    fn create(self, objtype: createtype4<'_>, name: &str) -> Ops {
        let mut mode = Vec::new();
        0o755u32.encode(&mut mode);
        self.op(arg::OP_CREATE(CREATE4args {
            objtype,
            objname: Opaque(name.as_bytes()),
            createattrs: fattr4 {
                attrmask: List::Of(&[0, 1 << (FATTR4_MODE - 32)]),
                attr_vals: Opaque(&mode),
            },
        }))
    }

    fn read(self, offset: u64, count: u32) -> Ops {
        self.op(arg::OP_READ(READ4args {
            stateid: ANONYMOUS,
            offset,
            count,
        }))
    }

    fn read_plus(self, offset: u64, count: u32) -> Ops {
        self.op(arg::OP_READ_PLUS(READ4args {
            stateid: ANONYMOUS,
            offset,
            count,
        }))
    }

    fn write(self, offset: u64, data: &[u8]) -> Ops {
        let mut ops = self.op(arg::OP_WRITE(WRITE4args {
            stateid: ANONYMOUS,
            offset,
            stable: stable_how4::UNSTABLE4,
            data: Payload {
                len: data.len() as u32,
            },
        }));
        ops.0.extend(data);
        ops.0.extend(&[0; 3][..pad(data.len())]);
        ops
    }

    fn readdir(self, cookie: u64, verifier: verifier4, maxcount: u32, words: &[u32]) -> Ops {
        self.op(arg::OP_READDIR(READDIR4args {
            cookie,
            cookieverf: verifier,
            dircount: 0,
            maxcount,
            attr_request: List::Of(words),
        }))
    }

    /// The record of a call.
    fn record(&self, minor: u32) -> Vec<u8> {
        static XID: AtomicU32 = AtomicU32::new(0);
        let xid = XID.fetch_add(1, Ordering::Relaxed);
        let mut bytes = call_header(xid, |_| {});
        compound_head {
            tag: Opaque(b"t"),
            minorversion: minor,
            ops: self.1,
        }
        .encode(&mut bytes);
        bytes.extend(&self.0);
        bytes
    }
}

/// An answer, taken apart from its begin.
struct Answer {
    bytes: Vec<u8>,
    at: usize,
    status: nfsstat4,
    results: u32,
}

impl Answer {
    fn new(mut bytes: Vec<u8>) -> Answer {
        // The number of the call, with which answers to the same are the same.
        bytes[..4].fill(0);
        // xid, REPLY, accepted, a verifier of nothing, success.
        let mut answer = Answer {
            bytes,
            at: 24,
            status: NFS4_OK,
            results: 0,
        };
        answer.status = answer.value();
        let len: u32 = answer.value();
        answer.at += len as usize + pad(len as usize);
        answer.results = answer.value();
        answer
    }

    fn value<T: for<'a> Decode<'a>>(&mut self) -> T {
        let mut from = Reader::new(&self.bytes[self.at..]);
        let value = T::decode(&mut from).expect("the answer has it");
        self.at += from.position();
        value
    }

    /// The next result is of this operation, and such.
    fn result(&mut self, number: nfs_opnum4, status: nfsstat4) -> &mut Answer {
        let got: (nfs_opnum4, nfsstat4) = (self.value(), self.value());
        assert_eq!(got, (number, status));
        self
    }

    /// The next result is a success.
    fn ok(&mut self, number: nfs_opnum4) -> &mut Answer {
        self.result(number, NFS4_OK)
    }

    /// So many bytes, and their padding.
    fn take(&mut self, len: u32) -> Vec<u8> {
        let len = len as usize;
        let bytes = self.bytes[self.at..self.at + len].to_vec();
        self.at += len + pad(len);
        bytes
    }

    fn opaque(&mut self) -> Vec<u8> {
        let len: u32 = self.value();
        self.take(len)
    }

    fn words(&mut self) -> Vec<u32> {
        let len: u32 = self.value();
        (0..len).map(|_| self.value()).collect()
    }

    fn is_over(&self) -> bool {
        self.at == self.bytes.len()
    }
}

struct World {
    server: NfsdDouble,
    conn: usize,
}

const ROOT: nfs_opnum4 = nfs_opnum4::OP_PUTROOTFH;

fn rule() -> Rule {
    Rule {
        squash: Squash::None,
        ..Rule::default()
    }
}

fn memory(instance: u64) -> Arc<dyn FileSystem> {
    Arc::new(Memory::new("mem", 256 << 20, instance, Time::default()).unwrap())
}

fn export(path: &str, instance: u64, rule: Rule) -> Export {
    Export::new(path, memory(instance), vec![rule]).unwrap()
}

impl World {
    fn with(exports: Vec<Export>, memory_max: u64) -> World {
        let exports = Exports::new(exports, Time::default()).unwrap();
        let nfsd = Nfsd::new(NfsdSettings::default(), 1, [], exports, 0);
        let mut server = NfsdDouble::new(nfsd, memory_max);
        let conn = server.connect(([127, 0, 0, 1], 800).into());
        World { server, conn }
    }

    fn new() -> World {
        World::with(vec![export("/", 1, rule())], 64 << 20)
    }

    fn call(&mut self, minor: u32, ops: &Ops) -> Answer {
        Answer::new(self.server.call(self.conn, &ops.record(minor)))
    }

    /// Version 4.0 needs no session.
    fn do_ops(&mut self, ops: &Ops) -> Answer {
        self.call(0, ops)
    }

    /// A file with this content: its handle.
    fn file(&mut self, name: &str, content: &[u8]) -> Vec<u8> {
        // OPEN needs a client; a file can also come from a link to a file
        // system's own, so it is made beside NFS.
        let fs = self.server.nfsd.exports.load();
        let fs = fs.iter().next().unwrap().fs().unwrap().clone();
        make(&*fs, name, content);
        let mut answer = self.do_ops(&Ops::root().lookup(name).op(arg::OP_GETFH));
        answer.ok(ROOT).ok(nfs_opnum4::OP_LOOKUP);
        answer.ok(nfs_opnum4::OP_GETFH).opaque()
    }
}

/// Makes a file with this content in the root.
fn make(fs: &dyn FileSystem, name: &str, content: &[u8]) {
    use reactor::DiskFile;
    use store::fs::{Caller, FsOp, New, Output, Progress, SetAttr};
    struct NoFiles;
    impl reactor::FileIo for NoFiles {
        fn read_at(&mut self, _: &Arc<DiskFile>, _: mem::BufRange, _: u64, _: u64) {}
        fn write_at(&mut self, _: &Arc<DiskFile>, _: mem::BufRange, _: u64, _: bool, _: u64) {}
        fn sync_data(&mut self, _: &Arc<DiskFile>, _: u64) {}
        fn fallocate(
            &mut self,
            _: &Arc<DiskFile>,
            _: reactor::FallocateMode,
            _: u64,
            _: u64,
            _: u64,
        ) {
        }
        fn ticket(&mut self, token: u64) -> reactor::Ticket {
            reactor::Bell::new(None).ticket(token)
        }
        fn cancel_file(&mut self, _: u64) {}
    }
    let caller = Caller {
        uid: 0,
        gid: 0,
        gids: &[],
        now: Time::default(),
        is_open: false,
        from: store::fs::Asker::default(),
    };
    let create = FsOp::Create {
        dir: fs.root(),
        name: name.as_bytes(),
        new: New::Guarded,
        set: SetAttr {
            mode: Some(0o644),
            ..SetAttr::default()
        },
    };
    let Progress::Done(Ok(Output::Created { attr, .. })) =
        fs.start(&caller, create, &mut NoFiles, 0)
    else {
        panic!("it is made");
    };
    for (part, at) in content.chunks(1 << 20).zip(0u64..) {
        let written = fs.write_now(&caller, attr.file, at << 20, part);
        assert_eq!(written.unwrap().unwrap().len as usize, part.len());
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

const STAT: &[u32] = &[
    FATTR4_TYPE,
    FATTR4_CHANGE,
    FATTR4_SIZE,
    FATTR4_FSID,
    FATTR4_FILEID,
    FATTR4_MODE,
    FATTR4_NUMLINKS,
    FATTR4_OWNER,
    FATTR4_OWNER_GROUP,
    FATTR4_SPACE_USED,
    FATTR4_TIME_ACCESS,
    FATTR4_TIME_METADATA,
    FATTR4_TIME_MODIFY,
    FATTR4_MOUNTED_ON_FILEID,
];

#[test]
fn data_comes_back_as_it_was_written() {
    let mut world = World::new();
    // Beside the attributes, in one piece, across pieces of a large file.
    for (name, size) in [("small", 100), ("large", 3 << 20)] {
        let handle = world.file(name, &pattern(size));
        let mut wanted = pattern(size);
        let fh = || Ops::default().fh(&handle);
        for (at, len) in [
            (0, 10),
            (50, 50),
            (size - 7, 7),
            (size / 2, 40_000),
            (13, 300_000),
        ] {
            let data: Vec<u8> = pattern(len).iter().map(|byte| byte ^ 0x5a).collect();
            let mut answer = world.do_ops(&fh().write(at as u64, &data));
            answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_WRITE);
            let resok: WRITE4resok = answer.value();
            assert_eq!(resok.count as usize, len);
            assert_eq!(resok.committed, stable_how4::FILE_SYNC4);
            wanted.resize(wanted.len().max(at + len), 0);
            wanted[at..at + len].copy_from_slice(&data);
        }
        for (at, len) in [
            (0, 1 << 20),
            (wanted.len() - 5, 100),
            (wanted.len(), 1),
            (3, 0),
        ] {
            let mut answer = world.do_ops(&fh().read(at as u64, len as u32).op(arg::OP_GETFH));
            answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_READ);
            let resok: READ4resok = answer.value();
            let end = wanted.len().min(at + len);
            assert_eq!(
                answer.take(resok.data.len),
                &wanted[at..end],
                "{name} {at} {len}"
            );
            assert_eq!(resok.eof, end == wanted.len(), "{name} {at} {len}");
            answer.ok(nfs_opnum4::OP_GETFH);
            assert_eq!(answer.opaque(), handle);
            assert!(answer.is_over());
        }
    }
}

/// A session with one slot in use.
struct Session {
    id: sessionid4,
    sequenceid: u32,
}

impl World {
    fn session(&mut self, response_max: u32, cached_max: u32) -> Session {
        let exchange = arg::OP_EXCHANGE_ID(EXCHANGE_ID4args {
            eia_clientowner: client_owner4 {
                co_verifier: [1; 8],
                co_ownerid: Opaque(b"executor"),
            },
            eia_flags: 0,
            eia_state_protect: state_protect4_a::SP4_NONE,
            eia_client_impl_id: List::Of(&[]),
        });
        let mut answer = self.call(2, &Ops::default().op(exchange));
        answer.ok(nfs_opnum4::OP_EXCHANGE_ID);
        let (clientid, sequenceid): (u64, u32) = (answer.value(), answer.value());
        let fore = channel_attrs4 {
            ca_headerpadsize: 0,
            ca_maxrequestsize: 1 << 20,
            ca_maxresponsesize: response_max,
            ca_maxresponsesize_cached: cached_max,
            ca_maxoperations: 16,
            ca_maxrequests: 4,
            ca_rdma_ird: List::Of(&[]),
        };
        let create = arg::OP_CREATE_SESSION(CREATE_SESSION4args {
            csa_clientid: clientid,
            csa_sequence: sequenceid,
            csa_flags: 0,
            csa_fore_chan_attrs: fore,
            csa_back_chan_attrs: fore,
            csa_cb_program: 0,
            csa_sec_parms: List::Of(&[]),
        });
        let mut answer = self.call(2, &Ops::default().op(create));
        answer.ok(nfs_opnum4::OP_CREATE_SESSION);
        let id = answer.value();
        Session { id, sequenceid: 0 }
    }

    /// The next request in the slot.
    fn sequence(&mut self, session: &mut Session, keeps: bool, ops: &Ops) -> Answer {
        session.sequenceid += 1;
        self.sequence_again(session, keeps, ops)
    }

    fn sequence_again(&mut self, session: &Session, keeps: bool, ops: &Ops) -> Answer {
        let record = session.record(keeps, ops);
        Answer::new(self.server.call(self.conn, &record))
    }
}

impl Session {
    /// The record of a request in the slot.
    fn record(&self, keeps: bool, ops: &Ops) -> Vec<u8> {
        let sequence = Ops::default().op(arg::OP_SEQUENCE(SEQUENCE4args {
            sa_sessionid: self.id,
            sa_sequenceid: self.sequenceid,
            sa_slotid: 0,
            sa_highest_slotid: 0,
            sa_cachethis: keeps,
        }));
        Ops([sequence.0, ops.0.clone()].concat(), ops.1 + 1).record(2)
    }
}

/// SEQUENCE has succeeded.
fn sequenced(answer: &mut Answer) -> &mut Answer {
    let _: SEQUENCE4resok = answer.ok(nfs_opnum4::OP_SEQUENCE).value();
    answer
}

/// What a READ_PLUS says lies from `offset` on, in how many holes, and whether
/// the file ends there.
fn read_plus(
    (world, session): (&mut World, &mut Session),
    handle: &[u8],
    offset: u64,
    count: u32,
) -> (Vec<u8>, u32, bool) {
    let ops = Ops::default().fh(handle).read_plus(offset, count);
    let mut answer = world.sequence(session, false, &ops);
    sequenced(&mut answer).ok(nfs_opnum4::OP_PUTFH);
    answer.ok(nfs_opnum4::OP_READ_PLUS);
    let head: read_plus_head = answer.value();
    let mut bytes = Vec::new();
    let mut holes = 0;
    for _ in 0..head.contents {
        let content: read_plus_content = answer.value();
        let at = offset + bytes.len() as u64;
        match content {
            read_plus_content::NFS4_CONTENT_DATA(data) => {
                assert_eq!(data.d_offset, at);
                bytes.extend(answer.take(data.d_data.len));
            }
            read_plus_content::NFS4_CONTENT_HOLE(hole) => {
                assert_eq!(hole.di_offset, at);
                bytes.resize(bytes.len() + hole.di_length as usize, 0);
                holes += 1;
            }
        }
    }
    assert!(answer.is_over());
    (bytes, holes, head.rpr_eof)
}

#[test]
fn read_plus_tells_of_holes() {
    let mut world = World::new();
    let mut session = world.session(1 << 20, 4096);
    let handle = world.file("f", b"");
    let mut wanted = vec![0; 5 << 20];
    for (at, len) in [
        (1 << 20, 300_000),
        (3 << 20, 20_000),
        ((5 << 20) - 100, 100),
    ] {
        let data = pattern(len);
        wanted[at..at + len].copy_from_slice(&data);
        let mut answer = world.do_ops(&Ops::default().fh(&handle).write(at as u64, &data));
        answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_WRITE);
    }
    let mut holes = 0;
    let mut at = 0;
    while at < wanted.len() {
        let both = (&mut world, &mut session);
        let (bytes, here, is_end) = read_plus(both, &handle, at as u64, 200_000);
        assert!(!bytes.is_empty(), "it goes on at {at}");
        assert_eq!(bytes, &wanted[at..at + bytes.len()], "at {at}");
        at += bytes.len();
        assert_eq!(is_end, at == wanted.len(), "at {at}");
        holes += here;
    }
    assert!(holes >= 10, "most of it are holes: {holes}");
    let both = (&mut world, &mut session);
    assert_eq!(read_plus(both, &handle, 9 << 20, 10), (Vec::new(), 0, true));
    let both = (&mut world, &mut session);
    assert_eq!(read_plus(both, &handle, 0, 0), (Vec::new(), 0, false));
    // A file that is one hole.
    let size = 1u64 << 40;
    let mut set = Vec::new();
    size.encode(&mut set);
    let truncate = arg::OP_SETATTR(SETATTR4args {
        stateid: ANONYMOUS,
        obj_attributes: fattr4 {
            attrmask: List::Of(&[1 << FATTR4_SIZE]),
            attr_vals: Opaque(&set),
        },
    });
    let handle = world.file("hole", b"");
    let mut answer = world.do_ops(&Ops::default().fh(&handle).op(truncate));
    answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_SETATTR);
    assert_eq!(answer.words(), [1 << FATTR4_SIZE], "what was set");
    let both = (&mut world, &mut session);
    let (bytes, holes, is_end) = read_plus(both, &handle, size - 5000, 8192);
    assert_eq!((bytes.len(), holes, is_end), (5000, 1, true));
    // Few bytes are answered as data.
    let both = (&mut world, &mut session);
    let (bytes, holes, is_end) = read_plus(both, &handle, size - 1000, 8192);
    assert_eq!((bytes.len(), holes, is_end), (1000, 0, true));
}

#[test]
fn a_request_is_executed_once() {
    let mut world = World::new();
    let mut session = world.session(1 << 20, 4096);
    let handle = world.file("f", &pattern(3000));
    let make = Ops::root().create(createtype4::NF4DIR, "d");
    let mut first = world.sequence(&mut session, true, &make);
    sequenced(&mut first).ok(ROOT).ok(nfs_opnum4::OP_CREATE);
    let again = world.sequence_again(&session, true, &make);
    assert_eq!(again.bytes, first.bytes, "an answer that was kept");
    // Data is kept too where it is to be.
    let read = Ops::default().fh(&handle).read(0, 4096);
    let first = world.sequence(&mut session, true, &read);
    assert_eq!(first.status, NFS4_OK);
    let mut again = world.sequence_again(&session, true, &read);
    assert_eq!(again.bytes, first.bytes);
    sequenced(&mut again)
        .ok(nfs_opnum4::OP_PUTFH)
        .ok(nfs_opnum4::OP_READ);
    let resok: READ4resok = again.value();
    assert_eq!(again.take(resok.data.len), pattern(3000));
    // And is not where it need not be.
    world.sequence(&mut session, false, &read);
    let mut again = world.sequence_again(&session, false, &read);
    again.result(
        nfs_opnum4::OP_SEQUENCE,
        nfsstat4::NFS4ERR_RETRY_UNCACHED_REP,
    );
    assert_eq!(again.results, 1);
}

#[test]
fn answers_keep_to_what_the_session_agreed_on() {
    let mut world = World::new();
    let mut session = world.session(2048, 512);
    let handle = world.file("f", &pattern(3000));
    let read = |count| Ops::default().fh(&handle).read(0, count).op(arg::OP_GETFH);
    for (count, keeps, status) in [
        (1000, false, NFS4_OK),
        (300, true, NFS4_OK),
        (3000, false, nfsstat4::NFS4ERR_REP_TOO_BIG),
        (1000, true, nfsstat4::NFS4ERR_REP_TOO_BIG_TO_CACHE),
    ] {
        let mut answer = world.sequence(&mut session, keeps, &read(count));
        assert_eq!(answer.status, status, "{count} bytes, kept: {keeps}");
        assert!(answer.bytes.len() <= if keeps { 512 } else { 2048 });
        sequenced(&mut answer).ok(nfs_opnum4::OP_PUTFH);
        answer.result(nfs_opnum4::OP_READ, status);
        assert_eq!(answer.results, if status == NFS4_OK { 4 } else { 3 });
    }
    // What cannot be answered is not done.
    let mut many = Ops::root();
    for at in 0..12 {
        many = many
            .op(arg::OP_PUTROOTFH)
            .create(createtype4::NF4DIR, &format!("d{at}"));
    }
    let many = Ops(many.0, many.1);
    let answer = world.sequence(&mut session, true, &many);
    assert_eq!(answer.status, nfsstat4::NFS4ERR_TOO_MANY_OPS);
    // That used no sequence id up.
    session.sequenceid -= 1;
    let mut many = Ops::root();
    for _ in 0..7 {
        let deeper = many.create(createtype4::NF4DIR, "d");
        many = deeper.op(arg::OP_GETFH);
    }
    let mut answer = world.sequence(&mut session, true, &many);
    assert_eq!(answer.status, nfsstat4::NFS4ERR_REP_TOO_BIG_TO_CACHE);
    sequenced(&mut answer).ok(ROOT);
    let mut look = Ops::root();
    while let (nfs_opnum4::OP_CREATE, NFS4_OK) = (answer.value(), answer.value()) {
        let _: change_info4 = answer.value();
        answer.words();
        look = look.lookup("d");
        if let (nfs_opnum4::OP_GETFH, NFS4_OK) = (answer.value(), answer.value()) {
            answer.opaque();
        } else {
            break;
        }
    }
    assert!(look.1 > 3, "some fit");
    assert_eq!(world.do_ops(&look).status, NFS4_OK);
    let deeper = world.do_ops(&look.lookup("d"));
    assert_eq!(deeper.status, nfsstat4::NFS4ERR_NOENT);
}

/// The entries of a READDIR: cookies and names; the verifier, whether that were
/// all, and bytes of the result.
type Listed = (Vec<(u64, String)>, verifier4, bool, usize);

fn listed(answer: &mut Answer) -> Listed {
    answer.ok(nfs_opnum4::OP_READDIR);
    let begin = answer.at;
    let verifier: verifier4 = answer.value();
    let mut entries = Vec::new();
    while answer.value::<bool>() {
        let cookie: u64 = answer.value();
        let name = String::from_utf8(answer.opaque()).unwrap();
        answer.words();
        answer.opaque();
        entries.push((cookie, name));
    }
    let is_end = answer.value();
    (entries, verifier, is_end, answer.at - begin)
}

#[test]
fn directories_are_listed_in_pieces_of_any_size() {
    let mut world = World::new();
    let mut empty = world.do_ops(&Ops::root().readdir(0, [0; 8], 16, &[]));
    empty.ok(ROOT);
    assert!(matches!(listed(&mut empty), (entries, _, true, 16) if entries.is_empty()));
    let mut names: Vec<String> = (0..60)
        .map(|at| "n".repeat(1 + at % 31) + &at.to_string())
        .collect();
    for name in &names {
        let mut answer = world.do_ops(&Ops::root().create(createtype4::NF4DIR, name));
        answer.ok(ROOT).ok(nfs_opnum4::OP_CREATE);
    }
    names.sort();
    let fileid = [1 << FATTR4_FILEID];
    let stat = [
        1 << FATTR4_TYPE | 1 << FATTR4_FILEID | 1 << FATTR4_RDATTR_ERROR,
        1 << 1,
    ];
    for words in [&[][..], &fileid, &stat] {
        for maxcount in [120, 200, 333, 1000, 4096, 1 << 20] {
            let (mut got, mut cookie, mut verifier) = (Vec::new(), 0, [0; 8]);
            loop {
                let ops = Ops::root().readdir(cookie, verifier, maxcount, words);
                let mut answer = world.do_ops(&ops);
                answer.ok(ROOT);
                let (entries, of, is_end, bytes) = listed(&mut answer);
                assert!(bytes <= maxcount as usize, "{bytes} of {maxcount}");
                assert!(is_end || !entries.is_empty());
                cookie = entries.last().map_or(cookie, |entry| entry.0);
                verifier = of;
                got.extend(entries.into_iter().map(|entry| entry.1));
                if is_end {
                    break;
                }
            }
            got.sort();
            assert_eq!(got, names, "maxcount {maxcount}");
        }
    }
    for (cookie, maxcount, status) in [
        (0, 15, NFS4ERR_TOOSMALL),
        (0, 20, NFS4ERR_TOOSMALL),
        (1, 4096, NFS4ERR_BAD_COOKIE),
        (2, 4096, NFS4ERR_BAD_COOKIE),
    ] {
        let mut answer = world.do_ops(&Ops::root().readdir(cookie, [0; 8], maxcount, &[]));
        answer.ok(ROOT).result(nfs_opnum4::OP_READDIR, status);
        assert!(answer.is_over());
    }
}

#[test]
fn exports_have_their_own_rules_below_a_read_only_root() {
    let read_only = Rule {
        is_read_only: true,
        ..rule()
    };
    let without_credential = Rule {
        flavors: vec![Flavor::None],
        ..rule()
    };
    let exports = vec![
        export("/a/one", 1, rule()),
        export("/a/two", 2, rule()),
        export("/ro", 3, read_only),
        export("/none", 4, without_credential),
    ];
    let mut world = World::with(exports, 64 << 20);
    // The directories above them.
    let mut answer = world.do_ops(&Ops::root().readdir(0, [0; 8], 4096, &[1 << FATTR4_FSID]));
    answer.ok(ROOT);
    let (entries, _, is_end, _) = listed(&mut answer);
    let mut names: Vec<&str> = entries.iter().map(|entry| &*entry.1).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "none", "ro"]);
    assert!(is_end);
    let up = Ops::root()
        .lookup("a")
        .lookup("one")
        .op(arg::OP_LOOKUPP)
        .op(arg::OP_LOOKUPP);
    let mut answer = world.do_ops(&up.op(arg::OP_GETFH).op(arg::OP_PUTROOTFH).op(arg::OP_GETFH));
    answer
        .ok(ROOT)
        .ok(nfs_opnum4::OP_LOOKUP)
        .ok(nfs_opnum4::OP_LOOKUP);
    answer.ok(nfs_opnum4::OP_LOOKUPP).ok(nfs_opnum4::OP_LOOKUPP);
    let back = answer.ok(nfs_opnum4::OP_GETFH).opaque();
    let root = answer.ok(ROOT).ok(nfs_opnum4::OP_GETFH).opaque();
    assert_eq!(back, root);
    let make = |ops: Ops| ops.create(createtype4::NF4DIR, "d");
    for (ops, status) in [
        (make(Ops::root()), nfsstat4::NFS4ERR_ROFS),
        (make(Ops::root().lookup("a")), nfsstat4::NFS4ERR_ROFS),
        (make(Ops::root().lookup("ro")), nfsstat4::NFS4ERR_ROFS),
        (make(Ops::root().lookup("a").lookup("one")), NFS4_OK),
        (Ops::root().lookup("none"), nfsstat4::NFS4ERR_WRONGSEC),
        (Ops::root().lookup("b"), nfsstat4::NFS4ERR_NOENT),
        (Ops::root().lookup(""), nfsstat4::NFS4ERR_INVAL),
        (Ops::root().op(arg::OP_LOOKUPP), nfsstat4::NFS4ERR_NOENT),
        (Ops::root().read(0, 10), NFS4ERR_ISDIR),
        (Ops::root().write(0, b"x"), nfsstat4::NFS4ERR_ROFS),
        (
            Ops::default().op(arg::OP_GETFH),
            nfsstat4::NFS4ERR_NOFILEHANDLE,
        ),
        (
            Ops::default().op(arg::OP_RESTOREFH),
            nfsstat4::NFS4ERR_RESTOREFH,
        ),
        (Ops::default().fh(b"nonsense"), nfsstat4::NFS4ERR_BADHANDLE),
    ] {
        assert_eq!(world.do_ops(&ops).status, status);
    }
    let name = |name: &'static [u8]| Opaque(name);
    let rename = arg::OP_RENAME(RENAME4args {
        oldname: name(b"d"),
        newname: name(b"e"),
    });
    let across = Ops::root().lookup("a").lookup("one").op(arg::OP_SAVEFH);
    let across = across.op(arg::OP_LOOKUPP).lookup("two").op(rename);
    assert_eq!(world.do_ops(&across).status, nfsstat4::NFS4ERR_XDEV);
    // An export whose security is not met says what it is.
    let secinfo = arg::OP_SECINFO(SECINFO4args {
        name: name(b"none"),
    });
    let mut answer = world.do_ops(&Ops::root().op(secinfo));
    answer.ok(ROOT).ok(nfs_opnum4::OP_SECINFO);
    assert_eq!(answer.words(), [0], "AUTH_NONE");
    // A caller without a credential is anonymous there.
    let identity = world.server.nfsd.exports.load();
    let identity =
        identity.iter().next().unwrap().rules()[0].acting_credential(&Credential::default());
    assert_eq!(identity.unwrap().uid, nfsd::exports::ANONYMOUS_ID);
}

/// Versions 4.1 and 4.2 use it up (RFC 8881, section 2.6.3.1.1.8).
#[test]
fn secinfo_of_version_0_leaves_the_current_file_handle() {
    let mut world = World::new();
    world.file("f", b"content");
    let secinfo = arg::OP_SECINFO(SECINFO4args { name: Opaque(b"f") });
    let ops = Ops::root().op(secinfo).op(arg::OP_GETFH);
    assert_eq!(world.do_ops(&ops).status, NFS4_OK);
    let session = &mut world.session(1 << 20, 4096);
    let answer = world.sequence(session, false, &ops);
    assert_eq!(answer.status, nfsstat4::NFS4ERR_NOFILEHANDLE);
}

#[test]
fn a_compound_goes_on_after_a_deallocate_of_several_turns() {
    let mut world = World::new();
    let content = pattern(40 << 20);
    let handle = world.file("f", &content);
    let session = &mut world.session(1 << 20, 4096);
    let deallocate = arg::OP_DEALLOCATE(ALLOCATE4args {
        aa_stateid: ANONYMOUS,
        aa_offset: 0,
        aa_length: 40 << 20,
    });
    let ops = Ops::default().fh(&handle).op(deallocate);
    let ops = ops.write(100, &pattern(5000)).read(0, 8192);
    let mut answer = world.sequence(session, false, &ops);
    sequenced(&mut answer).ok(nfs_opnum4::OP_PUTFH);
    answer
        .ok(nfs_opnum4::OP_DEALLOCATE)
        .ok(nfs_opnum4::OP_WRITE);
    let resok: WRITE4resok = answer.value();
    assert_eq!(resok.count, 5000);
    let resok: READ4resok = answer.ok(nfs_opnum4::OP_READ).value();
    let mut wanted = vec![0; 8192];
    wanted[100..5100].copy_from_slice(&pattern(5000));
    assert_eq!(answer.take(resok.data.len), wanted);
}

/// All memory but what is kept for what arrives: large buffers leave some to small
/// ones.
fn all_memory(world: &World) -> Vec<mem::Buf> {
    let pool = world.server.pool();
    let sizes = [mem::BUF_BYTES_MAX, 4096].into_iter();
    sizes
        .flat_map(|size| std::iter::from_fn(move || pool.get(size)))
        .collect()
}

/// Sends a call that is not answered yet.
fn send(world: &mut World, ops: &Ops) {
    let record = ops.record(0);
    let mark = RecordMark {
        is_last: true,
        len: record.len() as u32,
    };
    let bytes = [&mark.encode()[..], &record].concat();
    world.server.receive(world.conn, &bytes);
    assert!(world.server.sent(world.conn).is_empty(), "it waits");
}

#[test]
fn calls_wait_for_memory_and_lose_nothing() {
    let mut world = World::new();
    let handle = world.file("f", &pattern(3000));
    let ops = Ops::default().fh(&handle).read(0, 3000);
    let ops = ops.write(10, &[7; 500]).read(0, 3000);
    let held = all_memory(&world);
    send(&mut world, &ops);
    drop(held);
    world.server.advance(0);
    let sent = world.server.sent(world.conn);
    let mut answer = Answer::new(sent[4..].to_vec());
    answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_READ);
    let resok: READ4resok = answer.value();
    assert_eq!(answer.take(resok.data.len), pattern(3000));
    let resok: WRITE4resok = answer.ok(nfs_opnum4::OP_WRITE).value();
    assert_eq!(resok.count, 500);
    let resok: READ4resok = answer.ok(nfs_opnum4::OP_READ).value();
    let mut wanted = pattern(3000);
    wanted[10..510].fill(7);
    assert_eq!(answer.take(resok.data.len), wanted);

    // What waits too long is to be tried again, whole or in its part.
    let held = all_memory(&world);
    send(&mut world, &ops);
    world.server.refuse_memory();
    let sent = world.server.sent(world.conn);
    let mut answer = Answer::new(sent[4..].to_vec());
    assert_eq!(answer.status, nfsstat4::NFS4ERR_DELAY);
    answer.ok(nfs_opnum4::OP_PUTFH);
    answer.result(nfs_opnum4::OP_READ, nfsstat4::NFS4ERR_DELAY);
    assert!(answer.is_over());
    // So is a write whose data found no memory.
    let large = Ops::root().lookup("f").write(0, &pattern(300_000));
    send(&mut world, &large);
    world.server.refuse_memory();
    let sent = world.server.sent(world.conn);
    let mut answer = Answer::new(sent[4..].to_vec());
    answer.ok(ROOT).ok(nfs_opnum4::OP_LOOKUP);
    answer.result(nfs_opnum4::OP_WRITE, nfsstat4::NFS4ERR_DELAY);
    drop(held);
    let answer = world.do_ops(&large);
    assert_eq!(answer.status, NFS4_OK);
}

#[test]
fn a_setattr_that_fails_says_that_nothing_was_set() {
    let mut world = World::new();
    let set = arg::OP_SETATTR(SETATTR4args {
        stateid: ANONYMOUS,
        obj_attributes: fattr4 {
            attrmask: List::Of(&[1 << FATTR4_SIZE]),
            attr_vals: Opaque(&[0; 8]),
        },
    });
    for (ops, status) in [
        (Ops::root().op(set), NFS4ERR_ISDIR),
        (Ops::default().op(set), nfsstat4::NFS4ERR_NOFILEHANDLE),
    ] {
        let mut answer = world.do_ops(&ops);
        if answer.results == 2 {
            answer.ok(ROOT);
        }
        answer.result(nfs_opnum4::OP_SETATTR, status);
        assert!(answer.words().is_empty());
        assert!(answer.is_over());
    }
}
