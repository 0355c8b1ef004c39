//! Writes beside syncs that fail: the verifiers of their answers.

use std::io;
use std::sync::atomic::AtomicU64;

use reactor::{FileIo, Token};
use store::fs::{Caller, FileId, FsOp, Info, Progress, Task};
use testkit::nfs::call::call_header_of;
use wire::nfs3::{WRITE3args, WRITE3res, nfs_proc3, stable_how};

use super::*;

/// A file system in which a sync fails while a WRITE or a COPY is under way.
struct Losing {
    below: Arc<dyn FileSystem>,
    verifier: AtomicU64,
}

impl FileSystem for Losing {
    fn info(&self) -> &Info {
        self.below.info()
    }
    fn root(&self) -> FileId {
        self.below.root()
    }
    fn verifier(&self) -> u64 {
        self.verifier.load(Ordering::Relaxed)
    }
    fn start(
        &self,
        caller: &Caller<'_>,
        op: FsOp<'_>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        if matches!(op, FsOp::Write { .. } | FsOp::Copy { .. }) {
            self.verifier.fetch_add(1, Ordering::Relaxed);
        }
        self.below.start(caller, op, files, token)
    }
    fn resume(
        &self,
        task: Task,
        result: io::Result<u32>,
        io: &mut dyn FileIo,
        of: Token,
    ) -> Progress {
        self.below.resume(task, result, io, of)
    }
}

fn losing() -> (World, Vec<u8>) {
    let fs = Arc::new(Losing {
        below: memory(1),
        verifier: AtomicU64::new(5),
    });
    make(&*fs.below, "f", b"");
    let export = Export::new("/", fs, vec![rule()]).unwrap();
    let mut world = World::with(vec![export], 64 << 20);
    let mut answer = world.do_ops(&Ops::root().lookup("f").op(arg::OP_GETFH));
    answer.ok(ROOT).ok(nfs_opnum4::OP_LOOKUP);
    let handle = answer.ok(nfs_opnum4::OP_GETFH).opaque();
    (world, handle)
}

#[test]
fn write_during_a_failed_sync_is_answered_with_the_verifier_of_before() {
    let (mut world, handle) = losing();
    let mut answer = world.do_ops(&Ops::default().fh(&handle).write(0, b"data"));
    answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_WRITE);
    let resok: WRITE4resok = answer.value();
    assert_eq!(u64::from_be_bytes(resok.writeverf), 5);
    let args = WRITE3args {
        file: Opaque(&handle),
        offset: 0,
        count: 4,
        stable: stable_how::UNSTABLE,
        data: Payload { len: 4 },
    };
    let mut record = call_header_of(7, (NFS4_PROGRAM, 3, nfs_proc3::NFSPROC3_WRITE as u32));
    args.encode(&mut record);
    record.extend(b"data");
    let answer = world.server.call(world.conn, &record);
    let result = WRITE3res::decode(&mut Reader::new(&answer[24..]));
    let Ok(WRITE3res::NFS3_OK(resok)) = result else {
        panic!("{result:?}");
    };
    assert_eq!(u64::from_be_bytes(resok.verf), 6);
}

#[test]
fn copy_during_a_failed_sync_is_answered_with_the_verifier_of_before() {
    let (mut world, to) = losing();
    let mut session = world.session(4096, 0);
    let args = COPY4args {
        ca_src_stateid: ANONYMOUS,
        ca_dst_stateid: ANONYMOUS,
        ca_src_offset: 0,
        ca_dst_offset: 0,
        ca_count: 0,
        ca_consecutive: true,
        ca_synchronous: true,
        ca_source_server: List::Of(&[]),
    };
    let from = Ops::default().fh(&to).op(arg::OP_SAVEFH);
    let ops = from.fh(&to).op(arg::OP_COPY(args));
    let mut answer = world.sequence(&mut session, false, &ops);
    let answer = sequenced(&mut answer).ok(nfs_opnum4::OP_PUTFH);
    answer.ok(nfs_opnum4::OP_SAVEFH).ok(nfs_opnum4::OP_PUTFH);
    answer.ok(nfs_opnum4::OP_COPY);
    let (callbacks, count): (u32, u64) = (answer.value(), answer.value());
    assert_eq!((callbacks, count), (0, 0));
    let how: stable_how4 = answer.value();
    assert_eq!(how, stable_how4::UNSTABLE4);
    assert_eq!(answer.take(8), 5u64.to_be_bytes());
}
