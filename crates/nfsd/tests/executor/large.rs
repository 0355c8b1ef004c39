//! READ and WRITE of 8 MiB, which is more than one buffer holds: where memory, room in the file
//! system or the turn is not enough for all of it.

use std::io;

use machine::work::TURN_UNITS_MAX;
use reactor::{FileIo, Token};
use store::fs::{Caller, FileId, FsOp, Info, Progress, Task};
use testkit::nfs::call::{call_header_of, write3};
use wire::nfs3::{NFS_V3, READ3args, nfs_proc3};

use super::*;

const LARGE: usize = 8 << 20;
/// Bytes of one buffer.
const EACH: usize = mem::BUF_BYTES_MAX as usize;
/// What a step costs beyond the share that its turn had left.
const STEP_UNITS_MAX: u64 = 4096;

/// A file system that lends no memory: all data is copied.
struct Unlent(Arc<dyn FileSystem>);

impl FileSystem for Unlent {
    fn info(&self) -> &Info {
        self.0.info()
    }
    fn root(&self) -> FileId {
        self.0.root()
    }
    fn start(
        &self,
        caller: &Caller<'_>,
        op: FsOp<'_>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        self.0.start(caller, op, files, token)
    }
    fn resume(&self, task: Task, of: io::Result<u32>, io: &mut dyn FileIo, at: Token) -> Progress {
        self.0.resume(task, of, io, at)
    }
}

/// A server of this file system with the empty file `f`, and its handle.
fn large(fs: Arc<dyn FileSystem>) -> (World, Vec<u8>) {
    let export = Export::new("/", fs, vec![rule()]).unwrap();
    let exports = Exports::new(vec![export], Time::default()).unwrap();
    let mut settings = NfsdSettings {
        io_bytes_max: LARGE as u32,
        ..NfsdSettings::default()
    };
    let bytes_max = LARGE as u32 + (64 << 10);
    settings.server.fore.request_bytes_max = bytes_max;
    settings.server.fore.response_bytes_max = bytes_max;
    let mut server = NfsdDouble::new(Nfsd::new(settings, 1, [], exports, 0), 64 << 20);
    let conn = server.connect(([127, 0, 0, 1], 800).into());
    let mut world = World { server, conn };
    let handle = world.file("f", b"");
    (world, handle)
}

fn both() -> [Arc<dyn FileSystem>; 2] {
    [memory(1), Arc::new(Unlent(memory(1)))]
}

/// The count of a WRITE, which succeeds.
fn written(answer: &mut Answer) -> usize {
    answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_WRITE);
    let resok: WRITE4resok = answer.value();
    resok.count as usize
}

/// The data of a READ, which succeeds, and whether the file ends there.
fn read(answer: &mut Answer) -> (Vec<u8>, bool) {
    answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_READ);
    let resok: READ4resok = answer.value();
    (answer.take(resok.data.len), resok.eof)
}

#[test]
fn data_of_8_mib_is_moved_in_turns_of_which_each_has_its_bound() {
    for (index, fs) in both().into_iter().enumerate() {
        let (mut world, handle) = large(fs);
        let lent = world.server.pool().lent();
        let fh = || Ops::default().fh(&handle);
        world.server.turn_units_max = TURN_UNITS_MAX;
        for (offset, len) in [(0, LARGE), (5, LARGE - 3), (LARGE, EACH + 1), (77, EACH)] {
            let data: Vec<u8> = pattern(len).iter().map(|byte| byte ^ 0x5a).collect();
            let write = fh().write(offset as u64, &data);
            world.server.dearest_turn = 0;
            assert_eq!(written(&mut world.do_ops(&write)), len);
            let (back, _) = read(&mut world.do_ops(&fh().read(offset as u64, len as u32)));
            assert!(back == data, "file system {index}, {len} from {offset}");
            let dearest = world.server.dearest_turn;
            assert!(
                dearest <= TURN_UNITS_MAX + STEP_UNITS_MAX,
                "{dearest} units"
            );
        }
        // It was written up to there.
        let end = LARGE + EACH + 1;
        let (back, is_end) = read(&mut world.do_ops(&fh().read(end as u64 - 9, LARGE as u32)));
        assert_eq!((back.len(), is_end), (9, true));
        assert_eq!(world.server.pool().lent(), lent, "all memory goes back");
    }
}

#[test]
fn read_plus_of_8_mib_tells_of_holes_around_data_in_several_buffers() {
    for fs in both() {
        let (mut world, handle) = large(fs);
        let fh = || Ops::default().fh(&handle);
        let (from, to) = (EACH - (64 << 10), 3 * EACH + (64 << 10));
        let data: Vec<u8> = pattern(to - from).iter().map(|byte| byte | 1).collect();
        assert_eq!(
            written(&mut world.do_ops(&fh().write(from as u64, &data))),
            data.len()
        );
        assert_eq!(
            written(&mut world.do_ops(&fh().write(LARGE as u64 - 1, &[0]))),
            1
        );
        let session = &mut world.session(LARGE as u32 + (64 << 10), 4096);
        world.server.dearest_turn = 0;
        let mut answer = world.sequence(session, false, &fh().read_plus(0, LARGE as u32));
        let looked_through = (LARGE - data.len()) as u64 >> 10;
        let dearest = world.server.dearest_turn;
        assert!(dearest >= looked_through, "{dearest} units");
        sequenced(&mut answer).ok(nfs_opnum4::OP_PUTFH);
        answer.ok(nfs_opnum4::OP_READ_PLUS);
        let (eof, contents): (bool, u32) = (answer.value(), answer.value());
        assert!(eof && contents == 3);
        let hole = |answer: &mut Answer| -> (u32, u64, u64) {
            (answer.value(), answer.value(), answer.value())
        };
        assert_eq!(hole(&mut answer), (1, 0, from as u64));
        let (kind, offset): (u32, u64) = (answer.value(), answer.value());
        assert_eq!((kind, offset), (0, from as u64));
        assert!(answer.opaque() == data);
        assert_eq!(hole(&mut answer), (1, to as u64, (LARGE - to) as u64));
        assert!(answer.is_over());
    }
}

/// What found room is written, and the rest is the client's to send again.
#[test]
fn write_of_8_mib_that_finds_no_room_for_all_of_it_is_done_in_part() {
    let small = || Arc::new(Memory::new("m", 5 << 20, 1, Time::default()).unwrap());
    for fs in [small() as Arc<dyn FileSystem>, Arc::new(Unlent(small()))] {
        let (mut world, handle) = large(fs);
        let data = pattern(LARGE);
        let fh = || Ops::default().fh(&handle);
        let count = written(&mut world.do_ops(&fh().write(0, &data)));
        assert!((EACH..5 << 20).contains(&count), "{count} bytes");
        let (back, is_end) = read(&mut world.do_ops(&fh().read(0, LARGE as u32)));
        assert!(back[..count] == data[..count] && is_end);
        let rest = fh().write(count as u64, &data[count..]);
        assert_eq!(world.do_ops(&rest).status, nfsstat4::NFS4ERR_NOSPC);
        // Likewise of version 3.
        let (wire, _) = write3(7, &handle, 0, &data);
        let results = world.server.call(world.conn, &wire);
        let end = results.len();
        assert_eq!(results[24..28], [0; 4], "NFS3_OK");
        assert_eq!(results[end - 16..end - 12], (count as u32).to_be_bytes());
    }
}

/// The client may have sent the call again on another connection, and other data since.
#[test]
fn write_of_8_mib_ends_behind_the_piece_in_which_its_connection_is_lost() {
    // What the file system lends is written without a pause.
    for (fs, expected) in both().into_iter().zip([LARGE, EACH]) {
        let (mut world, handle) = large(fs);
        world.server.is_connected = false;
        let data = pattern(LARGE);
        let write = Ops::default().fh(&handle).write(0, &data);
        let count = written(&mut world.do_ops(&write));
        let (wire, _) = write3(7, &handle, 0, &data);
        let results = world.server.call(world.conn, &wire);
        let count3 = &results[results.len() - 16..][..4];
        assert_eq!(count, expected);
        assert_eq!(count3, (count as u32).to_be_bytes(), "by version 3");
    }
}

/// As many buffers as there are: fewer bytes are an answer, and none is waited for with some
/// of them held.
#[test]
fn read_of_8_mib_that_finds_memory_for_a_part_is_answered_with_that() {
    let (mut world, handle) = large(Arc::new(Unlent(memory(1))));
    let data = pattern(LARGE);
    let fh = || Ops::default().fh(&handle);
    assert_eq!(written(&mut world.do_ops(&fh().write(0, &data))), LARGE);
    let mut held = all_memory(&world);
    held.remove(0);
    let lent = world.server.pool().lent();
    let (back, is_end) = read(&mut world.do_ops(&fh().read(1, LARGE as u32)));
    assert!(back == data[1..=EACH] && !is_end);
    let mut args = call_header_of(3, (NFS4_PROGRAM, NFS_V3, nfs_proc3::NFSPROC3_READ as u32));
    READ3args {
        file: Opaque(&handle),
        offset: 1,
        count: LARGE as u32,
    }
    .encode(&mut args);
    let results = world.server.call(world.conn, &args);
    assert!(results.ends_with(&data[1..=EACH]), "version 3");
    assert_eq!(world.server.pool().lent(), lent, "all memory goes back");
    drop(held);
    let (back, is_end) = read(&mut world.do_ops(&fh().read(0, LARGE as u32)));
    assert!(back == data && is_end);
}

/// It holds nothing while it waits; calls of another connection are answered meanwhile.
#[test]
fn write_of_8_mib_waits_until_there_is_memory_for_all_of_it() {
    let (mut world, handle) = large(Arc::new(Unlent(memory(1))));
    let data = pattern(LARGE);
    let fh = || Ops::default().fh(&handle);
    assert_eq!(written(&mut world.do_ops(&fh().write(0, &[7; 100]))), 100);
    let lent = world.server.pool().lent();
    let mut held = all_memory(&world);
    // One small buffer is left, and three of the four that are wanted.
    held.pop();
    held.drain(..3);
    let others = world.server.pool().lent();
    send(&mut world, &fh().write(0, &data));
    assert_eq!(
        world.server.pool().lent(),
        others + 1,
        "it holds a stage alone"
    );
    let first = world.conn;
    world.conn = world.server.connect(([127, 0, 0, 2], 800).into());
    for _ in 0..20 {
        let (back, _) = read(&mut world.do_ops(&fh().read(0, 100)));
        assert_eq!(back, [7; 100]);
    }
    world.conn = first;
    assert!(world.server.sent(world.conn).is_empty(), "it waits");
    held.remove(0);
    world.server.advance(0);
    let sent = world.server.sent(world.conn);
    assert_eq!(written(&mut Answer::new(sent[4..].to_vec())), LARGE);
    drop(held);
    let (back, _) = read(&mut world.do_ops(&fh().read(0, LARGE as u32)));
    assert!(back == data);
    assert_eq!(world.server.pool().lent(), lent, "all memory goes back");
}
