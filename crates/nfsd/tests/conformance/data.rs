//! Content: READ, WRITE, COMMIT, and what version 4.2 adds (RFC 7862, section
//! 15).

use testkit::nfs::client::*;
use testkit::nfs::compound::*;
use wire::nfs4::*;
use wire::xdr::{Decode, List, Reader};

use crate::names::{ALL, IN_0, IN_2, Row, SINCE_1, ask, at, at_file};
use nfs_opnum4 as op;
use nfsstat4::*;
use stable_how4::{DATA_SYNC4, FILE_SYNC4, UNSTABLE4};

const RW: u32 = OPEN4_SHARE_ACCESS_BOTH;

#[rustfmt::skip]
const KINDS: &[Row] = &[
    Row("READ of a folder", ALL, |c| at(c).read(ANONYMOUS, 0, 1), &[NFS4ERR_ISDIR]),
    Row("READ of a link", IN_0, |c| at(c).lookup("link").read(ANONYMOUS, 0, 1), &[NFS4ERR_INVAL, NFS4ERR_SYMLINK]),
    Row("READ of a link", SINCE_1, |c| at(c).lookup("link").read(ANONYMOUS, 0, 1), &[NFS4ERR_SYMLINK]),
    Row("READ of a fifo", IN_0, |c| at(c).lookup("fifo").read(ANONYMOUS, 0, 1), &[NFS4ERR_INVAL]),
    Row("READ of a fifo", SINCE_1, |c| at(c).lookup("fifo").read(ANONYMOUS, 0, 1), &[NFS4ERR_WRONG_TYPE]),
    Row("WRITE to a folder", ALL, |c| at(c).write(ANONYMOUS, 0, UNSTABLE4, b"x"), &[NFS4ERR_ISDIR]),
    Row("WRITE to a link", IN_0, |c| at(c).lookup("link").write(ANONYMOUS, 0, UNSTABLE4, b"x"), &[NFS4ERR_INVAL, NFS4ERR_SYMLINK]),
    Row("WRITE to a link", SINCE_1, |c| at(c).lookup("link").write(ANONYMOUS, 0, UNSTABLE4, b"x"), &[NFS4ERR_SYMLINK]),
    Row("WRITE to a socket", SINCE_1, |c| at(c).lookup("sock").write(ANONYMOUS, 0, UNSTABLE4, b"x"), &[NFS4ERR_WRONG_TYPE]),
    Row("COMMIT of a folder", ALL, |c| at(c).commit(0, 0), &[NFS4ERR_ISDIR]),
    Row("COMMIT of a link", IN_0, |c| at(c).lookup("link").commit(0, 0), &[NFS4ERR_INVAL, NFS4ERR_SYMLINK]),
    Row("COMMIT of a fifo", SINCE_1, |c| at(c).lookup("fifo").commit(0, 0), &[NFS4ERR_WRONG_TYPE, NFS4ERR_INVAL]),
    Row("COMMIT beyond all offsets", ALL, |c| at_file(c).commit(u64::MAX - 1, 4), &[NFS4ERR_INVAL, NFS4_OK]),
    Row("a size for a folder", ALL, |c| at(c).setattr(ANONYMOUS, &Attributes::size(0)), &[NFS4ERR_ISDIR]),
    Row("a size for a fifo", ALL, |c| at(c).lookup("fifo").setattr(ANONYMOUS, &Attributes::size(0)), &[NFS4ERR_INVAL, NFS4ERR_WRONG_TYPE]),
    Row("a size beyond all", ALL, |c| at_file(c).setattr(ANONYMOUS, &Attributes::size(u64::MAX)), &[NFS4ERR_FBIG, NFS4ERR_INVAL]),
    Row("WRITE beyond all sizes", ALL, |c| at_file(c).write(ANONYMOUS, u64::MAX - 8, UNSTABLE4, b"x"), &[NFS4ERR_FBIG, NFS4ERR_INVAL]),
    Row("WRITE of a stability that is none", ALL, |c| at_file(c).raw(&[[0, 0, 0, 38].as_slice(), &[0; 24], &[0, 0, 0, 9, 0, 0, 0, 0]].concat()), &[NFS4ERR_BADXDR]),
    Row("WRITE of nothing", ALL, |c| at_file(c).write(ANONYMOUS, 0, UNSTABLE4, b""), &[NFS4_OK]),
];

pub fn reads_and_writes(case: &mut Case) {
    ask(case, KINDS);
    let opened = case.open("file", RW, 0);
    let (fh, stateid) = (opened.handle.clone(), opened.stateid);
    let read = |case: &mut Case, offset, count| {
        let asked = ops().fh(&fh).read(stateid, offset, count);
        case.call(asked).ok().data()
    };
    for (offset, count, expected, is_eof) in [
        (0, 10, CONTENT, true),
        (0, 4, &CONTENT[..4], false),
        (4, 100, &CONTENT[4..], true),
        (10, 1, b"", true),
        (1 << 40, 1, b"", true),
        (u64::MAX, 1, b"", true),
    ] {
        let (data, eof) = read(case, offset, count);
        assert_eq!((&data[..], eof), (expected, is_eof), "{offset}+{count}");
    }
    // Nothing was asked for: the end is told all the same.
    let (data, eof) = read(case, 0, 0);
    assert!(data.is_empty() && !eof);
    let write = |case: &mut Case, offset, how, data: &[u8]| {
        let asked = ops().fh(&fh).write(stateid, offset, how, data);
        case.call(asked).ok().get::<WRITE4resok>(op::OP_WRITE)
    };
    let mut verifiers = Vec::new();
    for (how, offset) in [(UNSTABLE4, 0), (DATA_SYNC4, 3), (FILE_SYNC4, 6)] {
        let told = write(case, offset, how, b"abc");
        assert_eq!(told.count, 3);
        assert!(told.committed as u32 >= how as u32, "{how:?}: {told:?}");
        verifiers.push(told.writeverf);
    }
    let committed = case.call(ops().fh(&fh).commit(0, 0)).ok();
    verifiers.push(committed.get::<COMMIT4resok>(op::OP_COMMIT).writeverf);
    assert!(
        verifiers.windows(2).all(|pair| pair[0] == pair[1]),
        "no restart"
    );
    assert_eq!(read(case, 0, 99).0, b"abcabcabc9");
    // A hole, and what is behind it.
    write(case, 5000, UNSTABLE4, b"end");
    let (data, eof) = read(case, 9, 6000);
    assert_eq!(
        (data[0], &data[data.len() - 3..], eof),
        (b'9', &b"end"[..], true)
    );
    assert!(data[1..data.len() - 3].iter().all(|byte| *byte == 0));
    // Large ones, at odd places.
    let large: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
    for offset in [0, 4096, 1_048_576 - 100_000] {
        write(case, offset, FILE_SYNC4, &large);
        let (data, _) = read(case, offset, 200_000);
        assert!(data == large, "{offset}");
        let (part, _) = read(case, offset + 777, 12_345);
        assert!(part == large[777..777 + 12_345], "{offset}");
    }
    // Several in one COMPOUND.
    let many = ops().fh(&fh).write(stateid, 0, UNSTABLE4, b"1").write(
        stateid,
        1,
        UNSTABLE4,
        &[b'2'; 9000],
    );
    let many = many.read(stateid, 0, 3).getattr(&[FATTR4_CHANGE]);
    assert_eq!(case.call(many).ok().data().0, b"122");
    let change = |case: &mut Case| -> u64 {
        let asked = ops().fh(&fh).getattr(&[FATTR4_CHANGE]);
        case.call(asked).ok().attribute()
    };
    let before = change(case);
    write(case, 0, FILE_SYNC4, b"x");
    assert!(change(case) > before, "a change of the content");
    let time = |case: &mut Case, which| -> nfstime4 {
        let asked = ops().fh(&fh).getattr(&[which]);
        case.call(asked).ok().attribute()
    };
    let mtime = time(case, FATTR4_TIME_MODIFY);
    assert!(mtime.seconds > 0 && mtime.nseconds < 1_000_000_000);
    // Beyond what a call may carry, what fits is done.
    let asked = ops().fh(&fh).read(stateid, 0, u32::MAX);
    let answer = case.call(asked);
    assert!(
        [NFS4_OK, NFS4ERR_REP_TOO_BIG].contains(&answer.status),
        "{:?}",
        answer.status
    );
}

fn allocate(stateid: stateid4, aa_offset: u64, aa_length: u64) -> Ops {
    ops().op(nfs_argop4::OP_ALLOCATE(ALLOCATE4args {
        aa_stateid: stateid,
        aa_offset,
        aa_length,
    }))
}

fn deallocate(stateid: stateid4, aa_offset: u64, aa_length: u64) -> Ops {
    ops().op(nfs_argop4::OP_DEALLOCATE(ALLOCATE4args {
        aa_stateid: stateid,
        aa_offset,
        aa_length,
    }))
}

fn seek(stateid: stateid4, sa_offset: u64, sa_what: data_content4) -> Ops {
    ops().op(nfs_argop4::OP_SEEK(SEEK4args {
        sa_stateid: stateid,
        sa_offset,
        sa_what,
    }))
}

fn read_plus(stateid: stateid4, offset: u64, count: u32) -> Ops {
    ops().op(nfs_argop4::OP_READ_PLUS(READ4args {
        stateid,
        offset,
        count,
    }))
}

fn advise(stateid: stateid4, hints: &[u32]) -> Ops {
    ops().op(nfs_argop4::OP_IO_ADVISE(IO_ADVISE4args {
        iaa_stateid: stateid,
        iaa_offset: 0,
        iaa_count: 0,
        iaa_hints: List::Of(hints),
    }))
}

#[rustfmt::skip]
const HOLES: &[Row] = &[
    Row("ALLOCATE of nothing", IN_2, |c| at_file(c).then(allocate(ANONYMOUS, 0, 0)), &[NFS4ERR_INVAL, NFS4_OK]),
    Row("ALLOCATE beyond all", IN_2, |c| at_file(c).then(allocate(ANONYMOUS, u64::MAX - 8, 100)), &[NFS4ERR_INVAL, NFS4ERR_FBIG]),
    Row("ALLOCATE in a folder", IN_2, |c| at(c).then(allocate(ANONYMOUS, 0, 10)), &[NFS4ERR_ISDIR, NFS4ERR_WRONG_TYPE, NFS4ERR_INVAL]),
    Row("ALLOCATE of more than can be", IN_2, |c| at_file(c).then(allocate(ANONYMOUS, 0, 1 << 62)), &[NFS4ERR_NOSPC, NFS4ERR_FBIG, NFS4ERR_INVAL]),
    Row("DEALLOCATE in a folder", IN_2, |c| at(c).then(deallocate(ANONYMOUS, 0, 10)), &[NFS4ERR_ISDIR, NFS4ERR_WRONG_TYPE, NFS4ERR_INVAL]),
    Row("DEALLOCATE behind the end", IN_2, |c| at_file(c).then(deallocate(ANONYMOUS, 1 << 30, 10)), &[NFS4_OK]),
    Row("SEEK behind the end", IN_2, |c| at_file(c).then(seek(ANONYMOUS, 1 << 30, data_content4::NFS4_CONTENT_DATA)), &[NFS4ERR_NXIO]),
    Row("SEEK at the end", IN_2, |c| at_file(c).then(seek(ANONYMOUS, 10, data_content4::NFS4_CONTENT_HOLE)), &[NFS4ERR_NXIO]),
    Row("SEEK in a folder", IN_2, |c| at(c).then(seek(ANONYMOUS, 0, data_content4::NFS4_CONTENT_DATA)), &[NFS4ERR_ISDIR, NFS4ERR_WRONG_TYPE, NFS4ERR_INVAL]),
    Row("SEEK to what is none", IN_2, |c| at_file(c).raw(&[[0, 0, 0, 69].as_slice(), &[0; 24], &[0, 0, 0, 9]].concat()), &[NFS4ERR_BADXDR, NFS4ERR_UNION_NOTSUPP, NFS4ERR_INVAL]),
    Row("READ_PLUS of a folder", IN_2, |c| at(c).then(read_plus(ANONYMOUS, 0, 10)), &[NFS4ERR_ISDIR]),
    Row("IO_ADVISE", IN_2, |c| at_file(c).then(advise(ANONYMOUS, &[0b110])), &[NFS4_OK]),
    Row("IO_ADVISE of a folder", IN_2, |c| at(c).then(advise(ANONYMOUS, &[0])), &[NFS4ERR_ISDIR, NFS4ERR_WRONG_TYPE, NFS4_OK]),
    Row("WRITE_SAME", IN_2, |c| at_file(c).raw(&[[0, 0, 0, 70].as_slice(), &[0; 64]].concat()), &[NFS4ERR_NOTSUPP]),
    Row("COPY_NOTIFY", IN_2, |c| at_file(c).raw(&[[0, 0, 0, 61].as_slice(), &[0; 24]].concat()), &[NFS4ERR_NOTSUPP]),
    Row("LAYOUTERROR", IN_2, |c| at_file(c).raw(&[[0, 0, 0, 64].as_slice(), &[0; 24]].concat()), &[NFS4ERR_NOTSUPP]),
    Row("LAYOUTSTATS", IN_2, |c| at_file(c).raw(&[[0, 0, 0, 65].as_slice(), &[0; 24]].concat()), &[NFS4ERR_NOTSUPP]),
];

/// Bytes of the file whose first and last pieces hold something.
const APART: u64 = 1 << 20;

pub fn holes(case: &mut Case) {
    ask(case, HOLES);
    if case.server.advance.is_some() {
        // Elsewhere it would take what the machine's disk has left.
        let asked = at_file(case).then(allocate(ANONYMOUS, 0, 1 << 30));
        case.call(asked).is(NFS4ERR_NOSPC);
    }
    let opened = case.open("file", RW, 0);
    let (fh, stateid) = (opened.handle.clone(), opened.stateid);
    let size = |case: &mut Case| -> u64 {
        let asked = ops().fh(&fh).getattr(&[FATTR4_SIZE]);
        case.call(asked).ok().attribute()
    };
    case.call(ops().fh(&fh).then(allocate(stateid, 0, 5000)))
        .ok();
    assert_eq!(size(case), 5000, "ALLOCATE makes it longer");
    case.call(ops().fh(&fh).then(allocate(stateid, 0, 100)))
        .ok();
    assert_eq!(size(case), 5000);
    case.call(ops().fh(&fh).write(stateid, APART, FILE_SYNC4, b"end"))
        .ok();
    let found = |case: &mut Case, from, what| {
        let told = case
            .call(ops().fh(&fh).then(seek(stateid, from, what)))
            .ok();
        told.get::<SEEK4resok>(op::OP_SEEK)
    };
    let hole = found(case, 0, data_content4::NFS4_CONTENT_HOLE);
    assert!(
        hole.sr_offset >= 10 && hole.sr_offset < APART && !hole.sr_eof,
        "{hole:?}"
    );
    let data = found(case, hole.sr_offset, data_content4::NFS4_CONTENT_DATA);
    assert!(
        data.sr_offset > hole.sr_offset && data.sr_offset <= APART,
        "{data:?}"
    );
    let last = found(case, APART, data_content4::NFS4_CONTENT_HOLE);
    assert_eq!(last.sr_offset, APART + 3, "the end is one");
    // Together the contents of READ_PLUS are what READ answers.
    let read = |case: &mut Case, offset, count| {
        let asked = ops().fh(&fh).read(stateid, offset, count);
        case.call(asked).ok().data().0
    };
    for (offset, count) in [
        (0, 4096),
        (9, 100_000),
        (hole.sr_offset, 50),
        (APART - 5000, 9000),
        (APART + 3, 10),
    ] {
        let expected = read(case, offset, count);
        let told = case
            .call(ops().fh(&fh).then(read_plus(stateid, offset, count)))
            .ok();
        let mut whole: Vec<u8> = Vec::new();
        for (at, bytes) in &told.of(op::OP_READ_PLUS).data {
            assert_eq!(*at, offset + whole.len() as u64, "one after the other");
            whole.extend(bytes);
        }
        // It may answer less than was asked for, but not nothing, and the right end.
        let body = told.body(op::OP_READ_PLUS);
        let eof = bool::decode(&mut Reader::new(body)).expect("eof");
        assert!(
            whole.len() <= expected.len() && whole[..] == expected[..whole.len()],
            "{offset}+{count}"
        );
        assert!(!whole.is_empty() || expected.is_empty());
        // A hole has no place where a client awaits few bytes.
        let contents = u32::decode(&mut Reader::new(&body[4..])).expect("contents");
        let first = contents > 0 && body[8..12] == [0, 0, 0, 1];
        assert!(!first || expected.len() >= 4096, "{offset}+{count}: a hole");
        assert_eq!(
            eof,
            offset + whole.len() as u64 >= APART + 3,
            "{offset}+{count}"
        );
    }
    case.call(ops().fh(&fh).then(deallocate(stateid, 2, 6)))
        .ok();
    assert_eq!(read(case, 0, 10), b"01\0\0\0\0\0\089");
    case.call(ops().fh(&fh).then(deallocate(stateid, 0, u64::MAX)))
        .ok();
    assert_eq!(size(case), APART + 3, "the size stays");
    assert!(read(case, 0, 100_000).iter().all(|byte| *byte == 0));
    // An open to read makes no holes.
    let reads = case.open("file", OPEN4_SHARE_ACCESS_READ, 0);
    case.call(ops().fh(&fh).then(deallocate(reads.stateid, 0, 1)))
        .is(NFS4ERR_OPENMODE);
    case.call(ops().fh(&fh).then(allocate(reads.stateid, 0, 1)))
        .is(NFS4ERR_OPENMODE);
}

fn clone(from: stateid4, to: stateid4, src: u64, dst: u64, count: u64) -> Ops {
    ops().op(nfs_argop4::OP_CLONE(CLONE4args {
        cl_src_stateid: from,
        cl_dst_stateid: to,
        cl_src_offset: src,
        cl_dst_offset: dst,
        cl_count: count,
    }))
}

fn copy(from: stateid4, to: stateid4, src: u64, dst: u64, count: u64, is_sync: bool) -> Ops {
    ops().op(nfs_argop4::OP_COPY(COPY4args {
        ca_src_stateid: from,
        ca_dst_stateid: to,
        ca_src_offset: src,
        ca_dst_offset: dst,
        ca_count: count,
        ca_consecutive: true,
        ca_synchronous: is_sync,
        ca_source_server: List::Of(&[]),
    }))
}

/// Where the file system has no CLONE, it says so.
fn clones(case: &mut Case, from: &OpenFile, to: &OpenFile, content: &[u8]) {
    let both = ops().fh(&from.handle).save().fh(&to.handle);
    let ask = |case: &mut Case, source: stateid4, src, count| {
        let asked = both.clone().then(clone(source, to.stateid, src, 0, count));
        case.call(asked).status
    };
    let emptied = ops()
        .fh(&to.handle)
        .setattr(to.stateid, &Attributes::size(0));
    case.call(emptied).ok();
    let status = ask(case, from.stateid, 0, 0);
    if status == NFS4ERR_NOTSUPP && case.server.advance.is_none() {
        return;
    }
    assert_eq!(status, NFS4_OK);
    let read = ops().fh(&to.handle).read(to.stateid, 0, 300_000);
    assert!(case.call(read).ok().data().0 == content, "CLONE of all");
    let asked = ops().fh(&to.handle).getattr(&[FATTR4_CLONE_BLKSIZE]);
    let block = u64::from(case.call(asked).ok().attribute::<u32>().max(1));
    if block > 1 {
        assert_eq!(ask(case, from.stateid, 1, block), NFS4ERR_INVAL);
    }
    assert_eq!(ask(case, from.stateid, 1 << 40, block), NFS4ERR_INVAL);
    assert_eq!(ask(case, to.stateid, 0, block), NFS4ERR_BAD_STATEID);
    let same = ops().fh(&to.handle).save().fh(&to.handle);
    let asked = same.then(clone(to.stateid, to.stateid, 0, 0, block));
    case.call(asked).is(NFS4ERR_INVAL);
}

/// A large copy that need not be done at once goes on by itself, and CB_OFFLOAD
/// says its end.
fn offloads(case: &mut Case) {
    const BYTES: u64 = 40 << 20;
    case.make("large", b"begin");
    case.make("copied", b"");
    let from = case.open("large", RW, 0);
    let to = case.open("copied", RW, 0);
    let end = ops()
        .fh(&from.handle)
        .write(from.stateid, BYTES - 3, FILE_SYNC4, b"end");
    case.call(end).ok();
    let both = ops().fh(&from.handle).save().fh(&to.handle);
    let asked = both.then(copy(from.stateid, to.stateid, 0, 0, BYTES, false));
    let told = case.call(asked).ok();
    let told = COPY4resok::decode(&mut Reader::new(told.body(op::OP_COPY))).expect("COPY4resok");
    let id = told.cr_response.wr_callback_id.iter().next();
    let id = id.expect("a session with a backchannel and so many bytes");
    assert!(!told.cr_requirements.cr_synchronous);
    let status = || {
        let asked = nfs_argop4::OP_OFFLOAD_STATUS(OFFLOAD4args { oa_stateid: id });
        ops().fh(&to.handle).op(asked)
    };
    let is_over = (0..1000).any(|_| {
        if case.server.advance.is_none() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let told = case.call(status()).ok();
        let body = told.body(op::OP_OFFLOAD_STATUS);
        let told = OFFLOAD_STATUS4resok::decode(&mut Reader::new(body)).expect("a status");
        let ended = told.osr_complete.iter().next();
        assert!(ended.is_none_or(|status| (status, told.osr_count) == (NFS4_OK, BYTES)));
        ended.is_some()
    });
    assert!(is_over, "the copy does not end");
    let last = ops().fh(&to.handle).read(to.stateid, BYTES - 3, 9);
    assert_eq!(case.call(last).ok().data(), (b"end".to_vec(), true));
    let called = (0..1000).any(|_| {
        if case.server.advance.is_none() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        case.client.wire.poll_callbacks() > 0
    });
    assert!(called, "CB_OFFLOAD");
    let cancel = nfs_argop4::OP_OFFLOAD_CANCEL(OFFLOAD4args { oa_stateid: id });
    let status = case.call(ops().fh(&to.handle).op(cancel)).status;
    assert!(
        [NFS4_OK, NFS4ERR_BAD_STATEID].contains(&status),
        "{status:?}"
    );
}

/// RFC 7862, section 15.2.3, has NFS4ERR_INVAL where the range ends behind the end of the
/// source. Linux asks for as much as there can be and takes what the answer says was
/// copied, as its own server does: so only a beginning behind the end is an error.
fn copies_beyond_the_end(case: &mut Case, from: &OpenFile, to: &OpenFile) {
    const SIZE: u64 = 300_000;
    let both = ops().fh(&from.handle).save().fh(&to.handle);
    let mut ask = |offset, count, is_sync| {
        let asked = copy(from.stateid, to.stateid, offset, 0, count, is_sync);
        let told = case.call(both.clone().then(asked));
        (told.status == NFS4_OK).then(|| {
            let body = told.body(op::OP_COPY);
            let told = COPY4resok::decode(&mut Reader::new(body)).expect("COPY4resok");
            told.cr_response.wr_count
        })
    };
    let most = i64::MAX as u64 & !0xfff;
    for is_sync in [true, false] {
        assert_eq!(ask(0, SIZE + 1, is_sync), Some(SIZE));
        assert_eq!(ask(SIZE - 5, i32::MAX as u64, is_sync), Some(5));
        assert_eq!(ask(5, most, is_sync), Some(SIZE - 5));
        for count in [0, 1, most] {
            assert_eq!(ask(SIZE, count, is_sync), Some(0), "at the end");
            assert_eq!(ask(SIZE + 1, count, is_sync), None, "behind it");
        }
        // No number is the end of this.
        assert_eq!(ask(5, u64::MAX, is_sync), None);
    }
    let asked = both.then(copy(from.stateid, to.stateid, SIZE + 1, 0, 5, true));
    case.call(asked).is(NFS4ERR_INVAL);
}

pub fn copies(case: &mut Case) {
    let content: Vec<u8> = (0..300_000u32).map(|n| (n % 249) as u8 + 1).collect();
    case.make("source", &content);
    case.make("target", b"");
    let from = case.open("source", OPEN4_SHARE_ACCESS_READ, 0);
    let to = case.open("target", RW, 0);
    let both = ops().fh(&from.handle).save().fh(&to.handle);
    let read = |case: &mut Case, offset, count| {
        let asked = ops().fh(&to.handle).read(to.stateid, offset, count);
        case.call(asked).ok().data().0
    };
    let told = case
        .call(
            both.clone()
                .then(copy(from.stateid, to.stateid, 100, 7, 1000, true)),
        )
        .ok();
    let told = COPY4resok::decode(&mut Reader::new(told.body(op::OP_COPY))).expect("COPY4resok");
    assert_eq!(told.cr_response.wr_count, 1000);
    assert!(told.cr_requirements.cr_synchronous && told.cr_response.wr_callback_id.is_empty());
    let copied = read(case, 0, 2000);
    assert!(copied[..7] == [0; 7] && copied[7..] == content[100..1100]);
    // A count of 0 is all up to the end (RFC 7862, section 15.2.3).
    case.call(
        both.clone()
            .then(copy(from.stateid, to.stateid, 0, 0, 0, true)),
    )
    .ok();
    assert!(read(case, 0, 300_000) == content);
    clones(case, &from, &to, &content);
    copies_beyond_the_end(case, &from, &to);
    let same = ops().fh(&to.handle).save().fh(&to.handle);
    case.call(same.then(copy(to.stateid, to.stateid, 0, 10, 100, true)))
        .is(NFS4ERR_INVAL);
    let (dir, file) = (case.dir.clone(), case.file.clone());
    let wrong = ops().fh(&dir).save().fh(&file);
    let status = case
        .call(wrong.then(copy(ANONYMOUS, ANONYMOUS, 0, 0, 5, true)))
        .status;
    let allowed = [NFS4ERR_WRONG_TYPE, NFS4ERR_ISDIR, NFS4ERR_INVAL];
    assert!(allowed.contains(&status), "{status:?}");
    offloads(case);
    // A copy that there is not.
    let none = stateid4 {
        seqid: 1,
        other: [9; 12],
    };
    let status = nfs_argop4::OP_OFFLOAD_STATUS(OFFLOAD4args { oa_stateid: none });
    case.call(ops().fh(&to.handle).op(status))
        .is(NFS4ERR_BAD_STATEID);
    let cancel = nfs_argop4::OP_OFFLOAD_CANCEL(OFFLOAD4args { oa_stateid: none });
    case.call(ops().fh(&to.handle).op(cancel))
        .is(NFS4ERR_BAD_STATEID);
    // From another server.
    let elsewhere = nfs_argop4::OP_COPY(COPY4args {
        ca_src_stateid: from.stateid,
        ca_dst_stateid: to.stateid,
        ca_src_offset: 0,
        ca_dst_offset: 0,
        ca_count: 0,
        ca_consecutive: true,
        ca_synchronous: true,
        ca_source_server: List::Of(&[netloc4::NL4_NAME(wire::xdr::Opaque(b"elsewhere"))]),
    });
    let status = case.call(both.op(elsewhere)).status;
    assert_ne!(status, NFS4_OK);
}
