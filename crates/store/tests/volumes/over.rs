//! Volumes that are made of others: what lies where, and that it is one volume.

use std::sync::Arc;

use needs::each_driver;
use proptest::prelude::*;
use reactor::Choice;
use store::{
    Errno, Error, Extent, Io, Kind, Latency, Range, ResizeError, Spec, Volume, encrypted, open,
    open_over,
};

use crate::common::*;
use crate::compare::{compare, compare_and_write, verify};
use crate::encrypted::by;
use crate::fake::*;
use crate::ranges::{Desk, meet, read_io, write_io};

const BLOCK: u64 = 512;

const LATENCY: Latency = Latency {
    fixed_us: 10,
    mean_us: 20,
    tail_us: 100,
};

/// A stack of volumes: what it is made of at the bottom, and how.
#[derive(Clone, Debug)]
enum Stack {
    Ram(u64),
    File(u64),
    /// From this byte on, so many.
    Slice(Box<Stack>, u64, u64),
    Concat(Vec<Stack>),
    Stripe(Vec<Stack>, u64),
    Mirror(Vec<Stack>),
    Delay(Box<Stack>),
    Encrypted(Box<Stack>),
}
use Stack::{Concat, Delay, Encrypted, File, Mirror, Ram, Slice, Stripe};

/// Volumes of a stack, and the files that they lie in.
struct Opened {
    volume: Arc<dyn Volume>,
    _folder: tempfile::TempDir,
}

impl Stack {
    fn open(&self) -> Opened {
        let folder = tempfile::tempdir().unwrap();
        let mut count = 0;
        let volume = self.open_in(folder.path(), &mut count);
        Opened {
            volume,
            _folder: folder,
        }
    }

    fn open_in(&self, folder: &std::path::Path, count: &mut u32) -> Arc<dyn Volume> {
        let below: Vec<_> = self
            .below()
            .iter()
            .map(|s| s.open_in(folder, count))
            .collect();
        let names: Vec<String> = below.iter().map(|v| v.info().name.clone()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if let Encrypted(_) = self {
            return encrypted(below[0].clone(), &by(1), None).unwrap();
        }
        *count += 1;
        let name = format!("v{count}");
        let (kind, size_bytes) = match self {
            Ram(size) => (Kind::RAM, *size),
            File(size) => (Kind::file(folder.join(&name)), *size),
            Slice(_, offset, size) => (Kind::slice(names[0], *offset), *size),
            Concat(_) => (Kind::concat(&names), self.size()),
            Stripe(_, chunk) => (Kind::stripe(&names, *chunk as u32), 0),
            Mirror(_) => (Kind::mirror(&names), 0),
            Delay(_) => (Kind::delay(names[0], LATENCY, LATENCY), 0),
            Encrypted(_) => unreachable!("it has a description of its own"),
        };
        let state = matches!(self, Mirror(_)).then(|| folder.join(format!("{name}.state")));
        let spec = Spec {
            state,
            ..Spec::new(name, kind, size_bytes, BLOCK as u32)
        };
        open_over(&spec, below).unwrap()
    }

    fn below(&self) -> &[Stack] {
        match self {
            Ram(_) | File(_) => &[],
            Slice(below, ..) | Delay(below) | Encrypted(below) => std::slice::from_ref(below),
            Concat(below) | Stripe(below, _) | Mirror(below) => below,
        }
    }

    fn size(&self) -> u64 {
        match self {
            Ram(size) | File(size) | Slice(_, _, size) => *size,
            Delay(below) | Encrypted(below) => below.size(),
            Concat(below) => below.iter().map(Stack::size).sum(),
            Mirror(below) => below.iter().map(Stack::size).min().unwrap(),
            Stripe(below, chunk) => {
                let least = below.iter().map(Stack::size).min().unwrap();
                least / chunk * chunk * below.len() as u64
            }
        }
    }

    fn levels(&self) -> u32 {
        1 + self.below().iter().map(Stack::levels).max().unwrap_or(0)
    }
}

/// Stacks of some levels, each volume of one chunk at least.
fn stacks() -> impl Strategy<Value = Stack> {
    let size = (8..40u64).prop_map(|blocks| blocks * BLOCK);
    let leaf = prop_oneof![size.clone().prop_map(Ram), size.prop_map(File)];
    let stack = leaf.prop_recursive(3, 12, 3, |below| {
        let slice = (below.clone(), 0..6u64, 2..34u64).prop_map(|(below, from, len)| {
            let (from, size) = (from * BLOCK, below.size());
            let len = (len * BLOCK).min(size - from);
            Slice(Box::new(below), from, len)
        });
        let delay = below.clone().prop_map(|below| Delay(Box::new(below)));
        let encrypted = below.clone().prop_map(|below| Encrypted(Box::new(below)));
        let several = prop::collection::vec(below, 2..4);
        let stripe =
            (several.clone(), 1..5u64).prop_map(|(below, chunk)| Stripe(below, chunk * BLOCK));
        let is_large = |stack: &Stack| stack.size() >= 8 * BLOCK;
        let mirror = several.clone().prop_map(Mirror);
        prop_oneof![
            slice,
            several.prop_map(Concat),
            stripe,
            mirror,
            delay,
            encrypted
        ]
        .prop_filter("something may lie over it", is_large)
    });
    stack.prop_filter("made of others", |stack| stack.levels() > 1)
}

/// An I/O, by where it begins and how long it is in blocks.
#[derive(Clone, Copy, Debug)]
enum Act {
    Read,
    Write,
    WriteDurable,
    WriteNow,
    Zero,
    Deallocate,
    Compare,
    CompareAndWrite,
    OrWrite,
    Verify,
    Mark,
    Lend,
    Commit,
}

const ACTS: [Act; 13] = [
    Act::Read,
    Act::Write,
    Act::WriteDurable,
    Act::WriteNow,
    Act::Zero,
    Act::Deallocate,
    Act::Compare,
    Act::CompareAndWrite,
    Act::OrWrite,
    Act::Verify,
    Act::Mark,
    Act::Lend,
    Act::Commit,
];

/// What a volume should hold: bytes, and blocks that cannot be read.
struct Model {
    bytes: Vec<u8>,
    marked: Vec<bool>,
}

impl Model {
    fn is_marked(&self, offset: u64, len: u64) -> bool {
        let (from, to) = (offset / BLOCK, (offset + len) / BLOCK);
        self.marked[from as usize..to as usize].contains(&true)
    }

    fn mark(&mut self, offset: u64, len: u64, mark: bool) {
        let (from, to) = (offset / BLOCK, (offset + len) / BLOCK);
        self.marked[from as usize..to as usize].fill(mark);
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        self.bytes[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        self.mark(offset, bytes.len() as u64, false);
    }
}

fn do_and_check(
    volume: &dyn Volume,
    files: &mut Fake,
    model: &mut Model,
    (act, offset, len, byte): (Act, u64, u64, u8),
) {
    let place = offset as usize..(offset + len) as usize;
    let old = model.bytes[place].to_vec();
    let new: Vec<u8> = (0..len)
        .map(|at| byte.wrapping_add((at / 100) as u8))
        .collect();
    let readable = match model.is_marked(offset, len) {
        true => Err(Error::Unreadable),
        false => Ok(()),
    };
    let mut other = old.clone();
    *other.last_mut().unwrap() ^= byte;
    let miscompare = Error::Miscompare { offset: len - 1 };
    let compared = match byte {
        0 => readable,
        _ => readable.and(Err(miscompare)),
    };
    match act {
        Act::Read => {
            let seen = read(volume, files, offset, len as usize);
            assert_eq!(seen.is_ok(), readable.is_ok());
            assert!(seen.is_err() || seen == Ok(old));
        }
        Act::Write | Act::WriteDurable => {
            let durable = matches!(act, Act::WriteDurable);
            write(volume, files, offset, &new, durable).unwrap();
            model.put(offset, &new);
        }
        Act::WriteNow => {
            if let Some(done) = volume.write_now(offset, &new) {
                done.unwrap();
                model.put(offset, &new);
            }
        }
        Act::Zero => {
            let (deallocate, durable) = (byte % 2 == 0, byte % 3 == 0);
            let io = Io::Zero {
                offset,
                len,
                deallocate,
                durable,
            };
            run(volume, files, io).unwrap();
            model.put(offset, &vec![0; len as usize]);
        }
        Act::Deallocate => {
            run(volume, files, Io::Deallocate { offset, len }).unwrap();
            model.put(offset, &vec![0; len as usize]);
        }
        Act::Compare => assert_eq!(run(volume, files, compare(offset, &other)), compared),
        Act::CompareAndWrite => {
            let io = compare_and_write(offset, &other, &new, byte % 2 == 0);
            assert_eq!(run(volume, files, io), compared);
            if compared.is_ok() {
                model.put(offset, &new);
            }
        }
        Act::OrWrite => {
            let buf = buffer(len as usize);
            mem::copy_in(buf, &new);
            let io = Io::OrWrite {
                offset,
                buf,
                scratch: buffer(len as usize),
                durable: false,
            };
            let done = run(volume, files, io);
            if done.is_ok() {
                let ored: Vec<u8> = old.iter().zip(&new).map(|(a, b)| a | b).collect();
                model.put(offset, &ored);
            } else {
                // A part of it may be done, on volumes that could be read.
                assert_eq!(done, readable);
                run(volume, files, Io::Deallocate { offset, len }).unwrap();
                model.put(offset, &vec![0; len as usize]);
            }
        }
        Act::Verify => assert_eq!(run(volume, files, verify(offset, len, 512)), readable),
        Act::Mark => {
            run(volume, files, Io::MarkUnreadable { offset, len }).unwrap();
            model.mark(offset, len, true);
        }
        Act::Lend => {
            if let Some(loan) = volume.lend(offset, len as u32) {
                readable.unwrap();
                let mut seen = Vec::new();
                for piece in loan.pieces() {
                    let mut bytes = vec![0; piece.len() as usize];
                    mem::copy_out(*piece, &mut bytes);
                    seen.extend(bytes);
                }
                assert!(seen == old);
            }
        }
        Act::Commit => {
            if let Some(mut loan) = volume.borrow(offset, len as u32) {
                let mut at = 0;
                for piece in loan.pieces().to_vec() {
                    mem::copy_in(piece, &new[at..at + piece.len() as usize]);
                    at += piece.len() as usize;
                }
                volume.commit(&mut loan, offset).unwrap();
                model.put(offset, &new);
            }
        }
    }
}

/// What is told of marks, against the model.
fn check_marks(volume: &dyn Volume, model: &Model) {
    let size = volume.size_bytes();
    let mut told = vec![false; model.marked.len()];
    let mut end = 0;
    for Range { offset, len } in volume.unreadable(0, size, usize::MAX) {
        assert!(offset > end || end == 0, "in order and apart");
        end = offset + len;
        told[(offset / BLOCK) as usize..(end / BLOCK) as usize].fill(true);
    }
    assert_eq!(told, model.marked);
    let all = volume.unreadable(0, size, usize::MAX);
    for max in 0..4 {
        let first = volume.unreadable(0, size, max);
        assert_eq!(first, all[..max.min(all.len())], "{max} of them");
    }
}

/// What is told of extents: all of the volume, and what is not allocated holds zeros.
fn check_extents(volume: &dyn Volume, model: &Model) {
    let size = volume.size_bytes();
    let (mut at, mut all) = (0, Vec::new());
    while at < size {
        let mut some = Vec::new();
        volume.extents(at, size - at, 2, &mut some).unwrap();
        assert!(!some.is_empty() && some.len() <= 2);
        for Extent {
            offset,
            len,
            allocated,
        } in some
        {
            assert_eq!(offset, at, "in order, without gaps");
            at += len;
            let bytes = &model.bytes[offset as usize..at as usize];
            assert!(allocated || bytes.iter().all(|byte| *byte == 0));
            all.push(allocated);
        }
    }
    assert_eq!(at, size);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_stack_is_a_volume(
        stack in stacks(),
        acts in prop::collection::vec(
            (0..ACTS.len(), any::<u64>(), any::<u64>(), any::<u8>()), 1..60),
    ) {
        let opened = stack.open();
        let volume = &*opened.volume;
        let size = stack.size();
        prop_assert_eq!(volume.size_bytes(), size);
        let mut files = Fake::default();
        let mut model = Model {
            bytes: vec![0; size as usize],
            marked: vec![false; (size / BLOCK) as usize],
        };
        for (act, offset, len, byte) in acts {
            let offset = offset % (size / BLOCK) * BLOCK;
            let len = (1 + len % 24) * BLOCK;
            let len = len.min(size - offset);
            // Half of what compares is the same.
            let byte = if byte < 128 { 0 } else { byte };
            do_and_check(volume, &mut files, &mut model, (ACTS[act], offset, len, byte));
        }
        check_marks(volume, &model);
        check_extents(volume, &model);
        run(volume, &mut files, Io::Flush).unwrap();
        let beyond = run(volume, &mut files, read_io(size - BLOCK, 1024).0);
        prop_assert_eq!(beyond, Err(Error::OutOfRange));
    }
}

/// The second step is begun where the last completion of the first came from any leg.
#[test]
fn encrypted_stripe_does_what_takes_two_steps() {
    let opened = Encrypted(Box::new(Stripe(files_of(4, 4096), 512))).open();
    let mut model = Model {
        bytes: vec![0; 16 << 10],
        marked: vec![false; 32],
    };
    for act in [Act::Write, Act::OrWrite, Act::CompareAndWrite, Act::OrWrite] {
        for offset in (0..8).map(|block| block * BLOCK) {
            let asked = (act, offset, 8 * BLOCK, 200 + act as u8);
            do_and_check(&*opened.volume, &mut Fake::default(), &mut model, asked);
        }
    }
}

fn files_of(count: usize, bytes: u64) -> Vec<Stack> {
    vec![File(bytes); count]
}

#[test]
fn ios_that_meet_on_several_volumes_happen_in_the_order_of_their_start() {
    let halves = || files_of(2, 32 << 10);
    let stacks = [
        Stripe(files_of(4, 16 << 10), 1024),
        Concat(vec![File(4096), File(60 << 10)]),
        Stripe(
            vec![Concat(vec![File(2048), File(30 << 10)]), File(32 << 10)],
            512,
        ),
        Slice(
            Box::new(Stripe(vec![Stripe(halves(), 512), File(64 << 10)], 1536)),
            1024,
            64 << 10,
        ),
    ];
    for stack in stacks {
        for seed in 1..=15 {
            meet(&*stack.open().volume, seed);
        }
    }
}

/// A stripe of two files, in chunks of 4 KiB.
fn stripe() -> Opened {
    Stripe(files_of(2, 64 << 10), 4096).open()
}

#[test]
fn concat_of_larger_blocks_ends_where_the_last_whole_one_of_each_volume_does() {
    let below = ["a", "b"].map(|name| {
        let spec = Spec::new(name, Kind::RAM, (64 << 10) + 2048, 512);
        open(&spec).unwrap()
    });
    let spec = |size| Spec::new("c", Kind::concat(&["a", "b"]), size, 4096);
    let volume = open_over(&spec(128 << 10), below.to_vec()).unwrap();
    let mut files = Fake::default();
    let data: Vec<u8> = (0..128u32 << 10).map(|at| (at / 512) as u8).collect();
    write(&*volume, &mut files, 0, &data, false).unwrap();
    assert_eq!(read(&*volume, &mut files, 0, 128 << 10), Ok(data));
    drop(volume);
    // No block of it has a half on each.
    let error = open_over(&spec((128 << 10) + 4096), below.to_vec()).err();
    let error = error
        .expect("it would have no bytes at its end")
        .to_string();
    assert!(error.contains("131072"), "{error}");
}

#[test]
fn range_that_is_alike_on_all_volumes_is_one_extent_however_many_chunks_it_has() {
    let below = ["a", "b"].map(|name| open(&Spec::new(name, Kind::NULL, 1 << 49, 512)).unwrap());
    let spec = Spec::new("s", Kind::stripe(&["a", "b"], 512), 0, 512);
    let volume = open_over(&spec, below.to_vec()).unwrap();
    let (len, allocated) = (1 << 50, false);
    let mut all = Vec::new();
    volume.extents(0, len, 4, &mut all).unwrap();
    let whole = Extent {
        offset: 0,
        len,
        allocated,
    };
    assert_eq!(all, [whole]);
    let mark = Range {
        offset: 512,
        len: 1 << 40,
    };
    let Range { offset, len } = mark;
    run(
        &*volume,
        &mut Fake::default(),
        Io::MarkUnreadable { offset, len },
    )
    .unwrap();
    assert_eq!(volume.unreadable(0, 1 << 50, 1), [mark]);
}

#[test]
fn pieces_of_an_io_are_under_way_on_all_volumes_at_once() {
    let opened = stripe();
    let mut desk = Desk::new(&*opened.volume);
    let write = desk.start(write_io(2048, 7, 16 << 10));
    // Two volumes, one piece on each at a time.
    assert_eq!(desk.files.pending(), 2);
    desk.step_at(0);
    assert_eq!(desk.files.pending(), 2);
    assert!(!desk.waits(write));
    desk.finish();
    let writes = desk.files.log.len();
    assert_eq!((desk.results[write], writes), (Some(Ok(())), 5));
    let flush = desk.start(Io::Flush);
    assert_eq!(desk.files.pending(), 2);
    desk.finish();
    assert_eq!(desk.results[flush], Some(Ok(())));
    assert_eq!(desk.files.log[writes..], [Op::Sync, Op::Sync]);
}

#[test]
fn durable_write_is_durable_on_each_volume() {
    let opened = stripe();
    let mut files = Fake::default();
    write(&*opened.volume, &mut files, 0, &[1; 8192], true).unwrap();
    let is_durable = |op: &Op| matches!(op, Op::Write { durable: true, .. });
    assert_eq!(files.log.iter().filter(|op| is_durable(op)).count(), 2);
}

#[test]
fn failure_on_one_volume_is_that_of_the_io_and_gives_its_range_back() {
    let opened = stripe();
    let mut desk = Desk::new(&*opened.volume);
    desk.files
        .faults
        .extend([Fault::None, Fault::Errno(libc::EIO)]);
    let read = desk.start(read_io(0, 8192).0);
    let next = desk.start(write_io(4096, 1, 4096));
    assert!(desk.waits(next));
    desk.finish();
    assert_eq!(desk.results[read], Some(Err(Error::ReadFailed(Errno::IO))));
    assert_eq!(desk.results[next], Some(Ok(())));
    desk.files.faults.push_back(Fault::Errno(libc::EIO));
    let flush = desk.start(Io::Flush);
    desk.finish();
    assert_eq!(
        desk.results[flush],
        Some(Err(Error::FlushFailed(Errno::IO)))
    );
}

#[test]
fn compare_and_write_over_several_volumes_writes_on_none_that_compares_otherwise() {
    let opened = stripe();
    let volume = &*opened.volume;
    let mut files = Fake::default();
    write(volume, &mut files, 0, &[1; 12288], false).unwrap();
    let mut old = [1; 12288];
    old[9000] = 2;
    old[5000] = 2;
    let done = run(
        volume,
        &mut files,
        compare_and_write(0, &old, &[3; 12288], false),
    );
    assert_eq!(done, Err(Error::Miscompare { offset: 5000 }));
    assert_eq!(read(volume, &mut files, 0, 12288).unwrap(), [1; 12288]);
}

#[test]
fn io_that_waits_for_its_range_can_be_dropped_and_one_that_reads_be_canceled() {
    let opened = stripe();
    let mut desk = Desk::new(&*opened.volume);
    desk.start(write_io(0, 1, 16 << 10));
    let dropped = desk.start(write_io(4096, 2, 8192));
    assert!(desk.waits(dropped));
    desk.tasks[dropped] = None;
    desk.finish_all();
    let canceled = desk.start(read_io(0, 16 << 10).0);
    let mut task = desk.tasks[canceled].take().unwrap();
    task.cancel(&mut desk.files, token_of(canceled as u64));
    desk.tasks[canceled] = Some(task);
    desk.finish_all();
    let gone = Error::ReadFailed(Errno::CANCELED);
    assert_eq!(desk.results[canceled], Some(Err(gone)));
    // What has begun to write goes on to its end, on all of them.
    let write = desk.start(write_io(0, 3, 16 << 10));
    let mut task = desk.tasks[write].take().unwrap();
    task.cancel(&mut desk.files, token_of(write as u64));
    desk.tasks[write] = Some(task);
    desk.finish_all();
    assert_eq!(desk.results[write], Some(Ok(())));
    let seen = read(&*opened.volume, &mut desk.files, 0, 16 << 10).unwrap();
    assert_eq!(seen, [3; 16 << 10]);
    // One that lies on one of them ends as it does there.
    let write = desk.start(write_io(0, 4, 4096));
    let mut task = desk.tasks[write].take().unwrap();
    task.cancel(&mut desk.files, token_of(write as u64));
    desk.tasks[write] = Some(task);
    desk.finish_all();
    let gone = Error::WriteFailed(Errno::CANCELED);
    assert_eq!(desk.results[write], Some(Err(gone)));
}

#[test]
fn io_of_a_slice_waits_where_it_waits_below() {
    let opened = Slice(Box::new(File(64 << 10)), 4096, 32 << 10).open();
    let mut desk = Desk::new(&*opened.volume);
    desk.start(write_io(0, 1, 4096));
    let dropped = desk.start(write_io(0, 2, 4096));
    assert!(desk.waits(dropped));
    desk.tasks[dropped] = None;
    let read = desk.start(read_io(0, 4096).0);
    assert!(desk.waits(read));
    desk.finish();
    assert_eq!(desk.files.log.len(), 2);
}

#[test]
fn delayed_io_has_not_begun_and_can_be_dropped() {
    let opened = Delay(Box::new(Stripe(files_of(2, 64 << 10), 4096))).open();
    let mut desk = Desk::new(&*opened.volume);
    let write = desk.start(write_io(0, 1, 8192));
    let dropped = desk.start(write_io(0, 2, 8192));
    assert!(desk.waits(write) && desk.waits(dropped));
    assert_eq!(desk.files.pending(), 0);
    desk.tasks[dropped] = None;
    desk.calls();
    assert_eq!(desk.files.pending(), 2);
    desk.finish();
    assert_eq!(desk.results[write], Some(Ok(())));
    assert_eq!(desk.files.log.len(), 2);
    assert!(opened.volume.lend(0, 512).is_none());
    let stats = opened.volume.stats();
    assert_eq!((stats.writes, stats.errors.total()), (1, 0));
}

#[each_driver]
fn delayed_ios_are_done_by_each_driver(choice: Choice) {
    let opened = Delay(Box::new(Ram(64 << 10))).open();
    let mut files = Real::open(choice);
    for byte in 0..50 {
        write(&*opened.volume, &mut files, 4096, &[byte; 4096], false).unwrap();
        let seen = read(&*opened.volume, &mut files, 4096, 4096).unwrap();
        assert_eq!(seen, [byte; 4096]);
    }
}

#[test]
fn memory_of_one_volume_is_lent_and_no_range_that_lies_on_several() {
    let (a, b) = (ram("a", 64 << 10), ram("b", 64 << 10));
    let (_folder, file) = file("c", 64 << 10);
    let stripe = over("s", Kind::stripe(&["a", "b"], 4096), &[&a, &b]);
    assert!(stripe.lend(4096, 4096).is_some());
    assert!(stripe.lend(2048, 4096).is_none());
    assert!(stripe.borrow(2048, 4096).is_none());
    let mixed = over("m", Kind::concat(&["s", "c"]), &[&stripe, &file]);
    assert!(mixed.lend(0, 512).is_none(), "a file is behind it");
}

#[test]
fn nothing_is_lent_of_what_is_being_changed() {
    const PART: u64 = 32 << 20;
    let opened = Stripe(vec![Ram(PART), Ram(PART)], 64 << 10).open();
    let volume = &*opened.volume;
    let mut desk = Desk::new(volume);
    let mut loan = volume.borrow(0, 64 << 10).expect("memory");
    let (offset, len) = (0, 2 * PART);
    // It takes more than a step on each.
    let zero = desk.start(Io::Deallocate { offset, len });
    assert_eq!(desk.results[zero], None);
    assert!(volume.lend(0, 4096).is_none());
    assert!(volume.write_now(0, &[1; 512]).is_none());
    assert_eq!(volume.commit(&mut loan, 0), Err(Error::Busy));
    desk.calls();
    assert_eq!(desk.results[zero], Some(Ok(())));
    volume.commit(&mut loan, 0).unwrap();
    assert!(volume.lend(0, 4096).is_some());
}

/// Its range is held for as long as one of them takes.
#[test]
fn write_to_memory_beside_a_volume_that_takes_time_waits_for_its_range() {
    const CHUNK: u32 = 64 << 10;
    let part = || Ram(1 << 20);
    let stripe = Stripe(vec![part(), Delay(Box::new(part()))], CHUNK.into());
    let opened = Slice(Box::new(stripe), 0, 1 << 20).open();
    let volume = &*opened.volume;
    let mut desk = Desk::new(volume);
    let long = desk.start(write_io(0, 1, 2 * CHUNK as usize));
    assert_eq!(desk.results[long], None);
    assert!(volume.borrow(0, CHUNK).is_none());
    let behind = desk.start(write_io(0, 2, CHUNK as usize));
    assert!(desk.waits(behind));
    desk.calls();
    assert_eq!(desk.results[behind], Some(Ok(())));
    assert!(
        volume.borrow(0, CHUNK).is_none(),
        "it may be held again by then"
    );
}

fn ram(name: &str, bytes: u64) -> Arc<dyn Volume> {
    open(&Spec::new(name, Kind::RAM, bytes, 512)).unwrap()
}

fn file(name: &str, bytes: u64) -> (tempfile::TempDir, Arc<dyn Volume>) {
    let folder = tempfile::tempdir().unwrap();
    let kind = Kind::file(folder.path().join(name));
    let volume = open(&Spec::new(name, kind, bytes, 512)).unwrap();
    (folder, volume)
}

type Below<'v> = &'v [&'v Arc<dyn Volume>];

fn try_over(
    (name, size_bytes): (&str, u64),
    kind: Kind,
    below: &[&Arc<dyn Volume>],
) -> Result<Arc<dyn Volume>, String> {
    let size_bytes = match kind.name() {
        "concat" => below.iter().map(|volume| volume.size_bytes()).sum(),
        _ => size_bytes,
    };
    let below = below.iter().map(|&volume| volume.clone()).collect();
    let spec = Spec::new(name, kind, size_bytes, 512);
    open_over(&spec, below).map_err(|error| error.to_string())
}

fn over(name: &str, kind: Kind, below: &[&Arc<dyn Volume>]) -> Arc<dyn Volume> {
    try_over((name, 0), kind, below).expect("it opens")
}

#[test]
fn volume_is_part_of_one_other_until_that_is_closed() {
    let (a, b) = (ram("a", 1 << 20), ram("b", 1 << 20));
    let stripe = over("s", Kind::stripe(&["a", "b"], 4096), &[&a, &b]);
    assert_eq!(a.base().owner().as_deref(), Some("s"));
    let Err(told) = try_over(("t", 0), Kind::concat(&["b"]), &[&b]) else {
        panic!("it is taken");
    };
    let expected = "volume 't': the volume \"b\", or the range of it that this one would have, is \
                    part of \"s\": name another volume, or a range that is free";
    assert_eq!(told, expected);
    drop(stripe);
    assert_eq!(a.base().owner(), None);
    over("t", Kind::concat(&["b"]), &[&b]);
    let twice = try_over(("t", 0), Kind::stripe(&["a", "a"], 4096), &[&a, &a]);
    assert!(twice.is_err(), "it is no part of itself");
    assert_eq!(a.base().owner(), None, "a failed open takes nothing");
}

#[test]
fn slices_of_a_volume_lie_beside_each_other() {
    let a = ram("a", 1 << 20);
    let slice =
        |name, from: u64, bytes: u64| try_over((name, bytes), Kind::slice("a", from), &[&a]);
    let first = slice("x", 0, 4096).unwrap();
    let second = slice("y", 4096, 4096).unwrap();
    assert!(slice("z", 2048, 4096).is_err());
    assert!(slice("z", 2 << 20, 4096).is_err(), "behind the end");
    assert_ne!(first.info().uuid, second.info().uuid);
    // One grows into what is free, and not into another's.
    assert!(matches!(first.resize(8192, false), Err(ResizeError::Taken(owner)) if owner == "y"));
    second.resize(8192, false).unwrap();
    assert!(slice("z", 8192, 4096).is_err());
    second.resize(4096, true).unwrap();
    let third = slice("z", 8192, 0).unwrap();
    assert_eq!(third.size_bytes(), (1 << 20) - 8192);
    // What they lie on grows, and does not shrink below them.
    assert!(matches!(a.resize(512 << 10, true), Err(ResizeError::Part(owner)) if owner == "z"));
    a.resize(2 << 20, false).unwrap();
    third.resize(0, false).unwrap();
    assert_eq!(third.size_bytes(), (2 << 20) - 8192);
}

#[test]
fn stripe_grows_with_its_volumes_and_a_concatenation_keeps_its_size() {
    let (a, b) = (ram("a", 1 << 20), ram("b", 1 << 20));
    let stripe = over("s", Kind::stripe(&["a", "b"], 4096), &[&a, &b]);
    let more = stripe.resize(3 << 20, false);
    assert!(matches!(more, Err(ResizeError::Below { has_bytes, .. }) if has_bytes == 2 << 20));
    a.resize(2 << 20, false).unwrap();
    b.resize(2 << 20, false).unwrap();
    stripe.resize(0, false).unwrap();
    assert_eq!(stripe.size_bytes(), 4 << 20);
    drop(stripe);
    let concat = over("c", Kind::concat(&["a", "b"]), &[&a, &b]);
    assert!(matches!(a.resize(3 << 20, false), Err(ResizeError::Part(owner)) if owner == "c"));
    assert!(matches!(
        concat.resize(1 << 20, true),
        Err(ResizeError::Fixed("concat"))
    ));
    drop(concat);
    // What lies behind a volume that was enlarged would be found elsewhere.
    a.resize(3 << 20, false).unwrap();
    let spec = Spec::new("c", Kind::concat(&["a", "b"]), 4 << 20, 512);
    let told = open_over(&spec, vec![a, b])
        .err()
        .expect("another size")
        .to_string();
    let expected = "volume 'c': the volumes that it is made of have room for 5242880 bytes, its \
                    size is 4194304: set it to 5242880";
    assert_eq!(told, expected);
}

#[test]
fn impossible_volume_is_refused_with_what_would_be_right() {
    let large = open(&Spec::new("l", Kind::RAM, 1 << 20, 4096)).unwrap();
    let sealed = Spec {
        read_only: true,
        ..Spec::new("r", Kind::RAM, 1 << 20, 512)
    };
    let sealed = open(&sealed).unwrap();
    let a = ram("a", 1 << 20);
    let cases: [(Kind, Below, &str); 6] = [
        (Kind::concat(&["l"]), &[&large], "blocks of 4096 bytes"),
        (Kind::concat(&["r"]), &[&sealed], "set read_only"),
        (
            Kind::stripe(&["a"], 4096),
            &[&a],
            "2 to 32 others, not of 1",
        ),
        (Kind::stripe(&["a", "b"], 1000), &[&a, &large], "blocks"),
        (
            Kind::slice("a", 100),
            &[&a],
            "`offset_bytes` (100) is no multiple",
        ),
        (Kind::slice("a", 1 << 20), &[&a], "there is no room"),
    ];
    for (kind, below, expected) in cases {
        let told = try_over(("x", 0), kind, below).err().expect(expected);
        assert!(told.contains(expected), "{told}");
    }
    // Levels are bounded.
    let mut top = a;
    let told = loop {
        let name = top.info().name.clone();
        let kind = Kind::slice(&name, 0);
        match try_over((&format!("{name}x"), 0), kind, &[&top]) {
            Ok(next) => top = next,
            Err(told) => break told,
        }
        assert!(top.info().name.len() < 20);
    };
    assert!(told.contains("make it of fewer"), "{told}");
}

#[test]
fn volume_that_a_host_has_write_protected_is_part_of_none_that_is_written() {
    let (folder, a) = file("a", 1 << 20);
    a.state().protect_permanently().unwrap();
    let kind = Kind::concat(&["a"]);
    let told = try_over(("c", 0), kind.clone(), &[&a])
        .err()
        .expect("a is protected");
    assert!(told.contains("a host has write-protected it"), "{told}");
    let sealed = Spec {
        read_only: true,
        ..Spec::new("c", kind.clone(), 1 << 20, 512)
    };
    drop(open_over(&sealed, vec![a]).unwrap());
    // The same before anything is opened.
    let below = Spec::new("a", Kind::file(folder.path().join("a")), 1 << 20, 512);
    let below = store::examine(&below).unwrap();
    assert!(below.info.read_only);
    let spec = Spec::new("c", kind, 1 << 20, 512);
    let told = store::examine_over(&spec, &[&below]).err().unwrap();
    assert!(
        told.to_string().contains("\"a\" is read only, or"),
        "{told}"
    );
    store::examine_over(&sealed, &[&below]).unwrap();
}

#[test]
fn volume_made_of_memory_of_another_process_is_another_volume() {
    let with_uuid = |n| Spec {
        uuid: Some(uuid::Uuid::from_u128(n)),
        ..Spec::new("a", Kind::RAM, 1 << 20, 512)
    };
    let uuid = |n| {
        let a = open(&with_uuid(n)).unwrap();
        over("s", Kind::slice("a", 0), &[&a]).info().uuid
    };
    assert_eq!(uuid(1), uuid(1));
    assert_ne!(uuid(1), uuid(2));
}

#[test]
fn figures_of_the_thread_count_an_io_where_it_is_done() {
    let opened = Stripe(vec![Ram(64 << 10), Ram(64 << 10)], 4096).open();
    let mut files = Fake::default();
    let before = store::counters::of_this_thread();
    write(&*opened.volume, &mut files, 0, &[1; 8192], false).unwrap();
    drop(opened.volume.lend(0, 4096).expect("memory"));
    let after = store::counters::of_this_thread();
    assert_eq!(after.ios - before.ios, 3);
    assert_eq!(after.io_bytes - before.io_bytes, 12288);
    let stats = opened.volume.stats();
    assert_eq!((stats.writes, stats.reads), (1, 1));
}
