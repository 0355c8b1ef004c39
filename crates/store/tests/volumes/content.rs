//! What is written is read again, whatever the kind of volume and the path.

use crate::common::*;
use crate::fake::*;
use random::Random;

use crate::{file_layers, file_volume};
use mem::{BUF_BYTES_MAX, counters};
use needs::each_driver;
use reactor::Choice;
use std::os::unix::fs::MetadataExt;
use store::{Error, Io, Kind, Progress, Volume, open};

pub const SIZE: u64 = 256 << 10;

/// Random I/Os against a plain array, with short transfers where there are
/// files below.
pub fn compare_with_model(volume: &dyn Volume, files: &mut dyn Files, steps: u32, seed: u64) {
    let block = u64::from(volume.info().block_bytes);
    let mut model = vec![0; SIZE as usize];
    let mut random = Random::new(seed);
    for step in 0..steps {
        let blocks = SIZE / block;
        let first = random.below(blocks);
        let count = 1 + random.below((blocks - first).min(40));
        let (offset, len) = (first * block, count * block);
        let place = offset as usize..(offset + len) as usize;
        let context = format!("seed {seed} step {step} at {offset} len {len}");
        match random.below(8) {
            0..3 => {
                let bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
                write(volume, files, offset, &bytes, random.below(4) == 0).unwrap();
                model[place].copy_from_slice(&bytes);
            }
            3 => {
                let io = Io::Zero {
                    offset,
                    len,
                    deallocate: random.below(2) == 0,
                    durable: random.below(4) == 0,
                };
                run(volume, files, io).expect(&context);
                model[place].fill(0);
            }
            4 => {
                run(volume, files, Io::Deallocate { offset, len }).expect(&context);
                model[place].fill(0);
            }
            5 => run(volume, files, Io::Flush).expect(&context),
            _ => {
                let bytes = read(volume, files, offset, len as usize).expect(&context);
                assert!(bytes == model[place], "{context}");
            }
        }
    }
    let all = read(volume, files, 0, SIZE as usize).unwrap();
    assert!(all == model, "seed {seed}: the whole volume");
    assert_eq!(volume.stats().errors.total(), 0);
}

#[test]
fn ram_holds_what_was_written() {
    for block_bytes in [512, 4096] {
        let volume = open(&spec(Kind::RAM, SIZE, block_bytes)).unwrap();
        compare_with_model(&*volume, &mut Fake::default(), 400, 0x5eed);
    }
}

#[each_driver]
fn a_file_holds_what_was_written(choice: Choice) {
    for mut files in file_layers(choice) {
        for block_bytes in [512, 4096] {
            let folder = tempfile::tempdir().unwrap();
            let mut spec = file_spec(&folder.path().join("disk"), SIZE);
            spec.block_bytes = block_bytes;
            let volume = open(&spec).unwrap();
            compare_with_model(&*volume, &mut *files, 300, 0x5eed);
        }
    }
}

/// Everything in flight at once, through real completions in their own order.
#[each_driver]
fn many_writes_at_once_all_arrive(choice: Choice) {
    const WRITES: u64 = 128;
    for mut files in file_layers(choice) {
        let (_folder, path, volume) = file_volume(WRITES * 4096);
        let mut tasks = Vec::new();
        for i in 0..WRITES {
            let buf = buffer(4096);
            mem::copy_in(buf, &[i as u8; 4096]);
            let io = Io::Write {
                offset: i * 4096,
                buf,
                durable: i % 16 == 0,
            };
            let Progress::Pending(task) = volume.start(io, files.io(), i) else {
                panic!("a write takes a file operation");
            };
            tasks.push(Some(task));
        }
        let mut under_way = WRITES;
        while under_way > 0 {
            let (token, result) = files.completion();
            let slot = &mut tasks[token as usize];
            let task = slot.take().expect("one completion for each operation");
            match volume.resume(task, result, files.io(), token) {
                Progress::Done(result) => {
                    result.unwrap();
                    under_way -= 1;
                }
                Progress::Pending(task) => *slot = Some(task),
            }
        }
        let bytes = std::fs::read(&path).unwrap();
        for (i, block) in bytes.chunks(4096).enumerate() {
            assert!(block.iter().all(|&b| b == i as u8), "block {i}");
        }
        assert_eq!(volume.stats().writes, WRITES);
    }
}

/// Errors come through the real layers as they come from the kernel.
#[each_driver]
fn a_file_cut_off_is_met_by_every_layer(choice: Choice) {
    for mut files in file_layers(choice) {
        let (_folder, path, volume) = file_volume(SIZE);
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(SIZE - 4096).unwrap();
        let result = read(&*volume, &mut *files, SIZE - 8192, 8192);
        assert_eq!(result, Err(Error::EndsEarly));
        read(&*volume, &mut *files, 0, 8192).unwrap();
    }
}

#[test]
fn short_and_interrupted_transfers_are_continued() {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut random = Random::new(0xfa17);
    let mut files = Fake::default();
    for _ in 0..4000 {
        files.faults.push_back(match random.below(3) {
            0 => Fault::Short(1 + random.below(9000) as u32),
            1 => Fault::Errno([libc::EINTR, libc::EAGAIN][random.below(2) as usize]),
            _ => Fault::None,
        });
    }
    compare_with_model(&*volume, &mut files, 400, 0x5eed);
    assert!(files.faults.len() < 3500, "faults were met");
}

#[test]
fn a_file_system_without_zero_range_or_holes_serves_the_same() {
    let (_folder, _, volume) = file_volume(SIZE);
    // The first two are refused; the volume remembers and asks no more.
    let mut files = Fake::with(&[Fault::Errno(libc::EOPNOTSUPP); 2]);
    let io = Io::Zero {
        offset: 0,
        len: SIZE,
        deallocate: true,
        durable: true,
    };
    run(&*volume, &mut files, io).unwrap();
    let write = Op::Write {
        offset: 0,
        len: SIZE as u32,
        durable: false,
    };
    let (offset, len) = (0, SIZE);
    let refused = [Op::Punch { offset, len }, Op::ZeroRange { offset, len }];
    assert_eq!(files.log, [refused[0], refused[1], write, Op::Sync]);
    files.log.clear();
    run(&*volume, &mut files, io).unwrap();
    run(&*volume, &mut files, Io::Deallocate { offset, len }).unwrap();
    assert_eq!(files.log, [write, Op::Sync]);
    let stats = volume.stats();
    assert_eq!((stats.zeroes, stats.deallocates), (2, 1));
}

#[test]
fn zeros_that_keep_their_room_are_no_hole_where_there_is_no_zero_range() {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut files = Fake::with(&[Fault::Errno(libc::EOPNOTSUPP)]);
    let io = Io::Zero {
        offset: 0,
        len: SIZE,
        deallocate: false,
        durable: false,
    };
    run(&*volume, &mut files, io).unwrap();
    let (offset, len) = (0, SIZE);
    let write = Op::Write {
        offset,
        len: SIZE as u32,
        durable: false,
    };
    assert_eq!(files.log, [Op::ZeroRange { offset, len }, write]);
}

#[test]
fn memory_is_read_and_written_in_steps_of_any_length() {
    let volume = open(&spec(Kind::RAM, 16 << 20, 512)).unwrap();
    let mut files = Fake::default();
    for len in [4096, BUF_BYTES_MAX, BUF_BYTES_MAX + 512, 3 * BUF_BYTES_MAX] {
        let data: Vec<u8> = (0..len).map(|at| (at / 512 * 7 + at) as u8).collect();
        write(&*volume, &mut files, 512, &data, false).unwrap();
        assert_eq!(read(&*volume, &mut files, 512, len as usize).unwrap(), data);
    }
    let (offset, len) = (512, 0);
    run(&*volume, &mut files, Io::Deallocate { offset, len }).unwrap();
    let zero = Io::Zero {
        offset,
        len,
        deallocate: true,
        durable: false,
    };
    run(&*volume, &mut files, zero).unwrap();
}

#[test]
fn without_holes_data_is_zeroed_but_advice_is_ignored() {
    let (_folder, _, volume) = file_volume(SIZE);
    let data = [9; 4096];
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &data, false).unwrap();
    write(&*volume, &mut files, 4096, &data, false).unwrap();
    files.faults.push_back(Fault::Errno(libc::EOPNOTSUPP));
    let advice = Io::Deallocate {
        offset: 0,
        len: 4096,
    };
    run(&*volume, &mut files, advice).unwrap();
    assert_eq!(read(&*volume, &mut files, 0, 4096).unwrap(), data);
    let zero = Io::Zero {
        offset: 4096,
        len: 4096,
        deallocate: true,
        durable: false,
    };
    files.faults.push_back(Fault::Errno(libc::EOPNOTSUPP));
    run(&*volume, &mut files, zero).unwrap();
    assert_eq!(read(&*volume, &mut files, 4096, 4096).unwrap(), [0; 4096]);
}

#[test]
fn zeros_longer_than_their_source_are_written_in_parts() {
    let size = 9 << 20;
    let (_folder, path, volume) = file_volume(size);
    std::fs::write(&path, vec![1; size as usize]).unwrap();
    let mut files = Fake::with(&[Fault::Errno(libc::EOPNOTSUPP), Fault::Short(1 << 20)]);
    let io = Io::Zero {
        offset: 512,
        len: size - 1024,
        deallocate: false,
        durable: false,
    };
    run(&*volume, &mut files, io).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let middle = 512..bytes.len() - 512;
    assert!(bytes[middle.clone()].iter().all(|&b| b == 0));
    assert!(bytes[..middle.start].iter().all(|&b| b == 1));
    assert!(bytes[middle.end..].iter().all(|&b| b == 1));
}

#[test]
fn ram_lends_what_is_read_and_written() {
    let volume = open(&spec(Kind::RAM, SIZE, 4096)).unwrap();
    let mut files = Fake::default();
    let data: Vec<u8> = (0..65536).map(|i| (i / 256) as u8 | 1).collect();
    let mut loan = volume.borrow(4096, 65536).unwrap();
    let mut at = 0;
    for &piece in loan.pieces() {
        mem::copy_in(piece, &data[at..at + piece.len() as usize]);
        at += piece.len() as usize;
    }
    let before = counters::here().copied_bytes;
    volume.commit(&mut loan, 4096).unwrap();
    drop(loan);
    let lent = volume.lend(4096, 65536).unwrap();
    let copied = counters::here().copied_bytes - before;
    // What lies around the write in its first and last frame may move.
    assert!(copied < 32768, "{copied} bytes were moved");
    let mut found = Vec::new();
    for &piece in lent.pieces() {
        let mut bytes = vec![0; piece.len() as usize];
        mem::copy_out(piece, &mut bytes);
        found.extend(bytes);
    }
    assert!(found == data);
    volume.write_now(8192, &[9; 4096]).unwrap().unwrap();
    let around = read(&*volume, &mut files, 4096, 12288).unwrap();
    assert!(around[..4096] == data[..4096] && around[8192..] == data[8192..12288]);
    assert!(around[4096..8192] == [9; 4096]);
    let stats = volume.stats();
    assert_eq!((stats.writes, stats.write_bytes), (2, 65536 + 4096));
    assert_eq!((stats.reads, stats.read_bytes), (2, 65536 + 12288));
    assert!(volume.lend(SIZE - 4096, 8192).is_none());
    assert!(volume.lend(u64::MAX, 1).is_none());
    assert!(volume.borrow(SIZE - 4096, 8192).is_none());
    let past = volume.write_now(SIZE - 4096, &[0; 8192]).unwrap();
    assert_eq!(past, Err(Error::OutOfRange));
    assert!(files.log.is_empty(), "memory needs no files");
}

#[test]
fn null_reads_zeros_and_lends_no_memory_for_writes() {
    let volume = open(&spec(Kind::NULL, 1 << 40, 4096)).unwrap();
    let mut files = Fake::default();
    write(&*volume, &mut files, 4096, &[5; 4096], true).unwrap();
    assert_eq!(read(&*volume, &mut files, 4096, 4096).unwrap(), [0; 4096]);
    assert!(volume.borrow(4096, 4096).is_none());
    let zeros = volume.lend(1 << 39, 1 << 20).unwrap();
    assert!(zeros.pieces().iter().all(|&piece| mem::is_zero(piece)));
    // More than there are zeros to lend: into the caller's own memory.
    let len = 8 << 20;
    assert!(volume.lend(0, len).is_none());
    assert!(
        read(&*volume, &mut files, 0, len as usize)
            .unwrap()
            .iter()
            .all(|&b| b == 0)
    );
    let (offset, len) = (0, 1 << 40);
    run(&*volume, &mut files, Io::Deallocate { offset, len }).unwrap();
    run(&*volume, &mut files, Io::Flush).unwrap();
    let stats = volume.stats();
    assert_eq!((stats.reads, stats.writes), (3, 1));
    assert_eq!((stats.flushes, stats.deallocates), (1, 1));
}

#[test]
fn io_beyond_the_end_or_on_a_read_only_volume_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    drop(open(&file_spec(&path, SIZE)).unwrap());
    for kind in [Kind::NULL, Kind::RAM, Kind::file(path)] {
        let mut spec = spec(kind, SIZE, 512);
        let mut files = Fake::default();
        let buf = buffer(1024);
        let durable = false;
        {
            let volume = open(&spec).unwrap();
            let offset = SIZE - 512;
            let len = 1024;
            let deallocate = true;
            let beyond = [
                Io::Read { offset, buf },
                Io::Write {
                    offset,
                    buf,
                    durable,
                },
                Io::Zero {
                    offset,
                    len,
                    deallocate,
                    durable,
                },
                Io::Deallocate { offset, len },
                Io::Read {
                    offset: u64::MAX,
                    buf,
                },
            ];
            for io in beyond {
                assert_eq!(run(&*volume, &mut files, io), Err(Error::OutOfRange));
            }
            assert_eq!(volume.stats().errors.out_of_range, 5);
        }
        spec.read_only = true;
        let volume = open(&spec).unwrap();
        let offset = 0;
        let io = Io::Write {
            offset,
            buf,
            durable,
        };
        assert_eq!(run(&*volume, &mut files, io), Err(Error::ReadOnly));
        let len = 512;
        let io = Io::Deallocate { offset, len };
        assert_eq!(run(&*volume, &mut files, io), Err(Error::ReadOnly));
        assert!(volume.borrow(0, 512).is_none());
        assert!(files.log.is_empty(), "nothing reached the file");
        run(&*volume, &mut files, Io::Flush).unwrap();
        run(&*volume, &mut files, Io::Read { offset, buf }).unwrap();
        assert_eq!(volume.stats().errors.read_only, 2);
    }
}

#[test]
fn io_of_no_bytes_does_no_file_operation() {
    let (_folder, _, volume) = file_volume(SIZE);
    let mut files = Fake::default();
    let (offset, len) = (SIZE, 0);
    run(&*volume, &mut files, Io::Deallocate { offset, len }).unwrap();
    let buf = buffer(512).slice(0, 0);
    run(&*volume, &mut files, Io::Read { offset, buf }).unwrap();
    assert!(files.log.is_empty());
}

#[test]
fn deallocating_gives_space_back() {
    let (_folder, path, volume) = file_volume(1 << 20);
    let mut files = Fake::default();
    let blocks = || std::fs::metadata(&path).unwrap().blocks();
    assert_eq!(blocks(), 0, "created sparse");
    write(&*volume, &mut files, 0, &[1; 1 << 20], true).unwrap();
    assert!(blocks() >= 2048);
    let (offset, len) = (0, 1 << 20);
    run(&*volume, &mut files, Io::Deallocate { offset, len }).unwrap();
    run(&*volume, &mut files, Io::Flush).unwrap();
    assert_eq!(blocks(), 0);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20);
}

#[test]
fn zeros_keep_their_space_unless_it_is_to_be_given_back() {
    let (_folder, path, volume) = file_volume(1 << 20);
    let mut files = Fake::default();
    write(&*volume, &mut files, 0, &[1; 1 << 20], true).unwrap();
    files.log.clear();
    let (offset, len) = (4096, 65536);
    for deallocate in [false, true] {
        let io = Io::Zero {
            offset,
            len,
            deallocate,
            durable: true,
        };
        run(&*volume, &mut files, io).unwrap();
    }
    let ways = [Op::ZeroRange { offset, len }, Op::Punch { offset, len }];
    assert_eq!(files.log, [ways[0], Op::Sync, ways[1], Op::Sync]);
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes[..4096].iter().all(|&b| b == 1));
    assert!(bytes[4096..4096 + 65536].iter().all(|&b| b == 0));
    assert!(bytes[4096 + 65536..].iter().all(|&b| b == 1));
}

fn private_memory_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix("RssAnon:"));
    let kib = line.unwrap().trim().strip_suffix("kB").unwrap();
    kib.trim().parse().unwrap()
}

#[test]
fn deallocating_gives_memory_back() {
    // Large beside what tests that run meanwhile take and give back.
    let size = 256 << 20;
    let most_kib = 192 << 10;
    let volume = open(&spec(Kind::RAM, size, 4096)).unwrap();
    let mut files = Fake::default();
    let empty = private_memory_kib();
    let chunk = vec![1; 1 << 20];
    for offset in (0..size).step_by(chunk.len()) {
        write(&*volume, &mut files, offset, &chunk, false).unwrap();
    }
    let full = private_memory_kib();
    assert!(full.saturating_sub(empty) > most_kib);
    let (offset, len) = (0, size);
    run(&*volume, &mut files, Io::Deallocate { offset, len }).unwrap();
    assert!(full.saturating_sub(private_memory_kib()) > most_kib);
}
