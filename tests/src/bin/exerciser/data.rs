//! Content: every way to read, write and shape a few files.

use crate::{ExerciserRun, Wrong, errno, expect, must};
use rustix::fs::{Advice, FallocateFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use vmap::{Flush, MapMut};

/// Files at a time.
const FILES: usize = 3;

/// No file grows beyond this.
const BYTES_MAX: usize = 600 << 10;

/// A file, and what must be in it.
struct Model {
    name: String,
    path: PathBuf,
    bytes: Vec<u8>,
    file: File,
    appends: File,
    direct: Option<File>,
    /// Bytes were written by a map and not waited for: a read without the cache need
    /// not find them.
    is_behind: bool,
}

type DataStep = fn(&mut ExerciserRun, &mut [Model], usize) -> Result<(), Wrong>;

/// What is done, and how often.
const STEPS: &[(u32, DataStep)] = &[
    (12, read),
    (14, write),
    (5, append),
    (6, direct_read),
    (6, direct_write),
    (5, truncate),
    (6, map_read),
    (6, map_write),
    (4, allocate),
    (5, punch),
    (5, copy),
    (2, clone),
    (5, seek),
    (3, sync),
    (3, reopen),
    (2, forget),
    (3, size),
    (3, look_elsewhere),
];

pub fn run(run: &mut ExerciserRun, steps: u32) -> Result<(), Wrong> {
    let mut files = Vec::new();
    for n in 0..FILES {
        let model = open(run, &format!("data{n}"), Vec::new())?;
        must("truncate", model.file.set_len(0))?;
        files.push(model);
    }
    for _ in 0..steps {
        let which = run.number(FILES);
        let step = run.random.weighted(STEPS);
        step(run, &mut files, which)?;
    }
    for which in 0..FILES {
        reopen(run, &mut files, which)?;
        forget(run, &mut files, which)?;
        look_elsewhere(run, &mut files, which)?;
        compare(&files[which].file, 0, &files[which].bytes)?;
    }
    Ok(())
}

fn open(run: &ExerciserRun, name: &str, bytes: Vec<u8>) -> Result<Model, Wrong> {
    let path = run.dir.join(name);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = must(&path, options.open(&path))?;
    let appends = must(&path, OpenOptions::new().append(true).open(&path))?;
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let direct = options.custom_flags(direct).open(&path).ok();
    // A local file system wants whole blocks, NFS does not.
    let kind = must("fstatfs", rustix::fs::fstatfs(&file))?.f_type;
    let direct = direct.filter(|_| kind == rustix::fs::NFS_SUPER_MAGIC as _);
    Ok(Model {
        name: name.into(),
        path,
        bytes,
        file,
        appends,
        direct,
        is_behind: false,
    })
}

/// A place in a file, which may be behind its end.
fn place(run: &mut ExerciserRun, bytes: &[u8]) -> (usize, usize) {
    let near_end = run.random.one_in(4);
    let off = match near_end {
        true => bytes.len().saturating_sub(run.number(5000)) + run.number(5000),
        false => run.number(BYTES_MAX),
    };
    let max = match run.number(4) {
        0 => 64,
        1 | 2 => 9000,
        _ => 140_000,
    };
    let mut off = off.min(BYTES_MAX - 1);
    let mut len = 1 + run.number(max);
    if run.random.one_in(3) {
        off &= !4095;
        len = len.next_multiple_of(4096);
    }
    (off, len.min(BYTES_MAX - off))
}

/// A place with something in it; `None` in a file that is empty.
fn place_inside(run: &mut ExerciserRun, bytes: &[u8]) -> Option<(usize, usize)> {
    let (off, len) = place(run, bytes);
    let off = off % bytes.len().max(1);
    (!bytes.is_empty()).then(|| (off, len.min(bytes.len() - off)))
}

fn put(bytes: &mut Vec<u8>, off: usize, data: &[u8]) {
    let end = off + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[off..end].copy_from_slice(data);
}

/// The content from `off` on is `expected`, and ends there if asked for more.
fn compare(file: &File, off: usize, expected: &[u8]) -> Result<(), Wrong> {
    let mut found = vec![0xaa; expected.len()];
    let mut at = 0;
    while at < found.len() {
        let got = must("read", file.read_at(&mut found[at..], (off + at) as u64))?;
        if got == 0 {
            return Err(format!("read {off}+{}: ends at {}", found.len(), off + at));
        }
        at += got;
    }
    match found.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(format!(
            "at {}: {:02x?}, not {:02x?}; {} bytes of {} differ",
            off + at,
            &found[at..found.len().min(at + 8)],
            &expected[at..expected.len().min(at + 8)],
            found.iter().zip(expected).filter(|(a, b)| a != b).count(),
            found.len()
        )),
    }
}

fn read(run: &mut ExerciserRun, files: &mut [Model], which: usize) -> Result<(), Wrong> {
    let model = &files[which];
    let (off, len) = place(run, &model.bytes);
    run.tell("read", (&model.name, off, len));
    let end = (off + len).min(model.bytes.len());
    let expected = model.bytes.get(off..end).unwrap_or_default();
    compare(&model.file, off, expected)?;
    let behind = model.file.read_at(&mut [0; 9], model.bytes.len() as u64);
    expect("read at the end", must("read", behind)?, 0)
}

fn write(run: &mut ExerciserRun, files: &mut [Model], which: usize) -> Result<(), Wrong> {
    let model = &mut files[which];
    let (off, len) = place(run, &model.bytes);
    run.tell("write", (&model.name, off, len));
    let data = run.bytes(len);
    must("write", model.file.write_all_at(&data, off as u64))?;
    put(&mut model.bytes, off, &data);
    Ok(())
}

fn append(run: &mut ExerciserRun, files: &mut [Model], which: usize) -> Result<(), Wrong> {
    let model = &mut files[which];
    let len = 1 + run.number(9000);
    let off = model.bytes.len();
    if off + len > BYTES_MAX {
        return Ok(());
    }
    run.tell("append", (&model.name, off, len));
    let data = run.bytes(len);
    must(
        "append",
        std::io::Write::write_all(&mut model.appends, &data),
    )?;
    put(&mut model.bytes, off, &data);
    Ok(())
}

/// Past this client's memory.
/// As programs must that mix the two (open(2), O_DIRECT): Linux' NFS client looks
/// for such bytes only where the last access was not direct as well.
fn catch_up(model: &mut Model) -> Result<(), Wrong> {
    match std::mem::take(&mut model.is_behind) {
        true => must("sync", model.file.sync_data()),
        false => Ok(()),
    }
}

fn direct_read(run: &mut ExerciserRun, files: &mut [Model], which: usize) -> Result<(), Wrong> {
    let model = &mut files[which];
    catch_up(model)?;
    let (Some(direct), Some((off, len))) = (&model.direct, place_inside(run, &model.bytes)) else {
        return Ok(());
    };
    run.tell("direct read", (&model.name, off, len));
    compare(direct, off, &model.bytes[off..off + len])
}

fn direct_write(run: &mut ExerciserRun, files: &mut [Model], which: usize) -> Result<(), Wrong> {
    let model = &mut files[which];
    catch_up(model)?;
    let Some(direct) = &model.direct else {
        return Ok(());
    };
    let (off, len) = place(run, &model.bytes);
    run.tell("direct write", (&model.name, off, len));
    let data = run.bytes(len);
    must("direct write", direct.write_all_at(&data, off as u64))?;
    put(&mut model.bytes, off, &data);
    Ok(())
}

fn truncate(run: &mut ExerciserRun, files: &mut [Model], which: usize) -> Result<(), Wrong> {
    let model = &mut files[which];
    let len = match run.number(5) {
        0 => 0,
        1 => run.number(BYTES_MAX),
        _ => model.bytes.len() / 2 + run.number(model.bytes.len() / 2 + 5000),
    };
    let len = len.min(BYTES_MAX);
    run.tell("truncate", (&model.name, len));
    match len {
        0 => {
            let emptied = OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(&model.path);
            drop(must("truncate", emptied)?);
        }
        _ => must("truncate", model.file.set_len(len as u64))?,
    }
    model.bytes.resize(len, 0);
    Ok(())
}

fn map_read(run: &mut ExerciserRun, files: &mut [Model], which: usize) -> Result<(), Wrong> {
    let model = &files[which];
    let Some((off, len)) = place_inside(run, &model.bytes) else {
        return Ok(());
    };
    run.tell("map read", (&model.name, off, len));
    let map = vmap::Map::with_options().len(off + len).map(&model.file);
    let map = must("map", map)?;
    expect("map", map[off..] == model.bytes[off..off + len], true)
}

fn map_write(run: &mut ExerciserRun, files: &mut [Model], which: usize) -> Result<(), Wrong> {
    let model = &mut files[which];
    let Some((off, len)) = place_inside(run, &model.bytes) else {
        return Ok(());
    };
    let flush = match run.number(3) {
        0 => None,
        1 => Some(Flush::Async),
        _ => Some(Flush::Sync),
    };
    run.tell("map write", (&model.name, off, len, flush.is_some()));
    let data = run.bytes(len);
    let map = MapMut::with_options()
        .write()
        .len(off + len)
        .map(&model.file);
    let mut map = must("map", map)?;
    map[off..].copy_from_slice(&data);
    if let Some(mode) = flush {
        must("msync", map.flush(&model.file, mode))?;
    }
    model.is_behind |= !matches!(flush, Some(Flush::Sync));
    put(&mut model.bytes, off, &data);
    Ok(())
}

/// What the file system has not is not done; what it has must not fail.
fn optional(
    run: &mut ExerciserRun,
    what: &'static str,
    done: Result<(), Errno>,
) -> Result<bool, Wrong> {
    match done {
        Err(Errno::OPNOTSUPP) => {
            run.lacks(what);
            Ok(false)
        }
        other => must(what, other).map(|()| true),
    }
}

fn allocate(run: &mut ExerciserRun, files: &mut [Model], which: usize) -> Result<(), Wrong> {
    let model = &mut files[which];
    let (off, len) = place(run, &model.bytes);
    run.tell("allocate", (&model.name, off, len));
    let (from, count) = (off as u64, len as u64);
    let done = rustix::fs::fallocate(&model.file, FallocateFlags::empty(), from, count);
    if optional(run, "allocate", done)? && model.bytes.len() < off + len {
        model.bytes.resize(off + len, 0);
    }
    Ok(())
}

fn punch(run: &mut ExerciserRun, files: &mut [Model], which: usize) -> Result<(), Wrong> {
    let model = &mut files[which];
    let (off, len) = place(run, &model.bytes);
    run.tell("punch", (&model.name, off, len));
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let done = rustix::fs::fallocate(&model.file, mode, off as u64, len as u64);
    if optional(run, "punch", done)? {
        let end = (off + len).min(model.bytes.len());
        if let Some(hole) = model.bytes.get_mut(off..end) {
            hole.fill(0);
        }
    }
    Ok(())
}

/// Within a file, or from one to another.
fn copy(run: &mut ExerciserRun, files: &mut [Model], which: usize) -> Result<(), Wrong> {
    let to = run.number(FILES);
    let Some((off, len)) = place_inside(run, &files[which].bytes) else {
        return Ok(());
    };
    let (at, _) = place(run, &files[to].bytes);
    let len = len.min(BYTES_MAX - at);
    if which == to && off.abs_diff(at) < len {
        return Ok(());
    }
    run.tell("copy", (&files[which].name, off, &files[to].name, at, len));
    // Linux sends what it has of the range, but not what makes the source as long
    // as it is, and a server refuses what is behind the end (RFC 7862, 15.2.3).
    must("fsync", files[which].file.sync_all())?;
    let data = files[which].bytes[off..off + len].to_vec();
    let (mut from, mut into) = (off as u64, at as u64);
    let mut left = len;
    while left > 0 {
        let (source, target) = (&files[which].file, &files[to].file);
        let copied =
            rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut into), left);
        let copied = must("copy", copied)?;
        if copied == 0 {
            return Err(format!("copy ends with {left} bytes left"));
        }
        left -= copied;
    }
    put(&mut files[to].bytes, at, &data);
    Ok(())
}

fn clone(run: &mut ExerciserRun, files: &mut [Model], which: usize) -> Result<(), Wrong> {
    let to = (which + 1) % FILES;
    run.tell("clone", (&files[which].name, &files[to].name));
    // The end of the source need not be one of a block in the middle of a file.
    must("truncate", files[to].file.set_len(0))?;
    files[to].bytes.clear();
    let done = rustix::fs::ioctl_ficlone(&files[to].file, &files[which].file);
    if optional(run, "clone", done)? {
        files[to].bytes = files[which].bytes.clone();
    }
    Ok(())
}

fn seek(run: &mut ExerciserRun, files: &mut [Model], which: usize) -> Result<(), Wrong> {
    let model = &files[which];
    let Some((off, _)) = place_inside(run, &model.bytes) else {
        return Ok(());
    };
    let bytes = &model.bytes;
    if run.random.one_in(2) {
        run.tell("seek data", (&model.name, off));
        let found = match rustix::fs::seek(&model.file, SeekFrom::Data(off as u64)) {
            Err(Errno::NXIO) => bytes.len(),
            found => must("SEEK_DATA", found)? as usize,
        };
        let skipped = bytes.get(off..found).unwrap_or(&[1]);
        return expect("SEEK_DATA", skipped.iter().all(|byte| *byte == 0), true);
    }
    run.tell("seek hole", (&model.name, off));
    let found = must(
        "SEEK_HOLE",
        rustix::fs::seek(&model.file, SeekFrom::Hole(off as u64)),
    )?;
    match bytes.get(found as usize) {
        Some(byte) => expect("SEEK_HOLE", *byte, 0),
        None => expect("SEEK_HOLE", found as usize, bytes.len()),
    }
}

fn sync(run: &mut ExerciserRun, files: &mut [Model], which: usize) -> Result<(), Wrong> {
    run.tell("sync", &files[which].name);
    match run.random.one_in(2) {
        true => must("fsync", files[which].file.sync_all()),
        false => must("fdatasync", files[which].file.sync_data()),
    }
}

fn reopen(run: &mut ExerciserRun, files: &mut [Model], which: usize) -> Result<(), Wrong> {
    run.tell("reopen", &files[which].name);
    let bytes = std::mem::take(&mut files[which].bytes);
    let name = files[which].name.clone();
    files[which] = open(run, &name, bytes)?;
    Ok(())
}

/// Takes the file out of this client's memory.
fn forget(run: &mut ExerciserRun, files: &mut [Model], which: usize) -> Result<(), Wrong> {
    let model = &files[which];
    run.tell("forget", &model.name);
    must("fsync", model.file.sync_all())?;
    must(
        "forget",
        rustix::fs::fadvise(&model.file, 0, None, Advice::DontNeed),
    )
}

fn size(run: &mut ExerciserRun, files: &mut [Model], which: usize) -> Result<(), Wrong> {
    let model = &files[which];
    run.tell("size", &model.name);
    let by_file = must("fstat", model.file.metadata())?.len();
    let by_name = must("stat", std::fs::metadata(&model.path))?.len();
    expect(
        "size",
        (by_file, by_name),
        (by_name, model.bytes.len() as u64),
    )
}

/// Through the other mount, after what is here went to the server.
fn look_elsewhere(run: &mut ExerciserRun, files: &mut [Model], which: usize) -> Result<(), Wrong> {
    let model = &files[which];
    let Some(other) = &run.other else {
        return Ok(());
    };
    let path = other.join(&model.name);
    run.tell("look elsewhere", &model.name);
    must("fsync", model.file.sync_all())?;
    let opened = File::open(&path);
    if errno(&opened) != 0 {
        return must("other mount", opened).map(drop);
    }
    let file = must("other mount", opened)?;
    let len = must("stat", file.metadata())?.len();
    expect("size elsewhere", len, model.bytes.len() as u64)?;
    compare(&file, 0, &model.bytes)
}
