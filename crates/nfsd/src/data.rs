//! Content of files: what is read goes out from where it lies, what is written
//! was received where it is to lie.

use faults::Fault;
use link::CommandMemory;
use machine::{Tag, work};
use nfs::server::files::{READ, WRITE};
use store::fs::{self, Error, FileId, FsOp, Output, READ_AHEAD_BYTES_MAX, Written};
use wire::nfs4::{
    ALLOCATE4args, CLONE4args, COMMIT4args, COMMIT4resok, IO_ADVISE4args, READ4args, READ4resok,
    SEEK4args, SEEK4resok, WRITE4args, WRITE4resok, bitmap4, data_content4, data_info4, data4,
    nfs_argop4, nfs_opnum4, nfsstat4, read_plus_content, read_plus_head, stable_how4, verifier4,
};
use wire::xdr::{Encode, List, Payload, pad};

use crate::call::{self, Around, Ask, NextStep, OperationOutcome, RunningCall, Step};
use crate::continuation::{Continuation, ThenData};
use crate::names::{ANSWERED, file};
use crate::payload::{self, DataStep, ReadUnderWay, WriteUnderWay};
use crate::pseudo::PseudoPlace;
use crate::state;
use crate::status::status;
use engine::payload::File;
use store::counters;
use store::meter::IoOp;

fn ask_file_system<'a>(
    run: &mut RunningCall<'a>,
    op: FsOp<'_>,
    is_open: bool,
    then: ThenData,
) -> OperationOutcome<'a> {
    let then = Continuation::Data(then);
    run.ask_file_system(Ask { op, is_open, then })
}

pub(crate) fn resume<'a>(
    run: &mut RunningCall<'a>,
    then: ThenData,
    result: Result<Output, Error>,
) -> OperationOutcome<'a> {
    match (then, result) {
        (ThenData::Read(read, is_open), result) => resume_read(run, (read, is_open), result),
        (ThenData::Write(write, verifier, is_open), result) => {
            resume_write(run, (write, verifier, is_open), result)
        }
        (_, Err(error)) => Err(status(error, run.minor())),
        (ThenData::Commit, Ok(Output::Done)) => {
            let writeverf = verifier(run)?;
            run.ok(|to| COMMIT4resok { writeverf }.encode(to))
        }
        (ThenData::Seek, Ok(Output::Found { offset, is_end })) => {
            let resok = SEEK4resok {
                sr_eof: is_end,
                sr_offset: offset,
            };
            run.ok(|to| resok.encode(to))
        }
        (ThenData::Change, Ok(Output::Done)) => run.ok(|_| ()),
        (ThenData::ReadAhead, Ok(Output::ReadAhead(reads))) => {
            advised(run, if reads { WILLNEED } else { 0 })
        }
        _ => unreachable!("{ANSWERED}"),
    }
}

/// Memory for `len` bytes of data of a WRITE that go to `offset` of the file
/// that its call names ([`nfs::connection::ServerOp::Prepare`]), or that are all
/// staged. False: there is none now; try again, or refuse.
#[inline]
pub fn prepare(
    around: &mut Around<'_>,
    call: Tag,
    tag: Tag,
    offset: u64,
    len: u32,
    staged: bool,
) -> bool {
    let Around {
        nfsd,
        peer,
        link,
        pool,
        ..
    } = around;
    if staged {
        link.set_data(tag, CommandMemory::staged());
        link.machine.prepared(tag);
        return true;
    }
    peer.view.refresh(&nfsd.exports);
    let place = link.machine.write_handle(call, tag);
    let place = place.and_then(|handle| peer.view.find(handle).ok());
    let granted = match place {
        Some(PseudoPlace::File { export, .. }) => peer.view.granted(export),
        _ => None,
    };
    let borrow = |at: u32, len| {
        let offset = offset.checked_add(at.into())?;
        granted.as_ref()?.fs.borrow(offset, len)
    };
    let Some(data) = payload::destination(borrow, pool, len) else {
        return false;
    };
    link.set_data(tag, data);
    link.machine.prepared(tag);
    true
}

/// READ_PLUS answers zeros as a hole in units of so many bytes, or where there is
/// nothing else: fewer are sent at less cost than their place is made by the client.
const HOLE_BYTES: u32 = 64 << 10;

/// Fewer bytes are answered as data. A hole takes more of an answer than the head of
/// data does, and a Linux client keeps the place of the bytes for the difference:
/// where that is less, its program gets EIO.
const WITH_HOLES_BYTES_MIN: u32 = 4096;

fn is_zero(data: &CommandMemory, offset: u32, len: u32) -> bool {
    work::spend_bytes(len.into());
    let mut is_zero = true;
    data.each_part(offset, len, |part| {
        is_zero = is_zero && mem::is_zero(part);
    });
    is_zero
}

/// Where the data lies in what was read that is worth sending: holes before and behind it
/// read as zeros, and so do they.
fn worth_sending(read: &ReadUnderWay) -> (u32, u32) {
    let (mut begin, mut end) = (0, read.len);
    if end < WITH_HOLES_BYTES_MIN {
        return (begin, end);
    }
    let is_zero = |offset, len| is_zero(&read.data, offset, len);
    while begin < end && is_zero(begin, HOLE_BYTES.min(end - begin)) {
        begin += HOLE_BYTES.min(end - begin);
    }
    while end - begin > HOLE_BYTES && is_zero(end - HOLE_BYTES, HOLE_BYTES) {
        end -= HOLE_BYTES;
    }
    (begin, end)
}

/// READ and READ_PLUS.
pub(crate) fn read<'a>(run: &mut RunningCall<'a>, args: &READ4args) -> OperationOutcome<'a> {
    let place = run.current()?;
    let is_open = state::check_io(run, &args.stateid, READ)?;
    let (offset, len) = (args.offset, args.count.min(run.nfsd.settings.io_bytes_max));
    let PseudoPlace::File { export, file } = place else {
        return Err(nfsstat4::NFS4ERR_ISDIR);
    };
    run.begin_io(IoOp::Read, export);
    if let Some(demand) = run.held_back(IoOp::Read, export, len) {
        return Ok(NextStep::HeldBack(demand));
    }
    let is_protected = run.link.machine.is_protected(run.flow.tag);
    let read = ReadUnderWay::new(offset, len, is_protected);
    go_on_reading(run, (read, is_open), (export, file))
}

#[inline]
fn go_on_reading<'a>(
    run: &mut RunningCall<'a>,
    (mut read, is_open): (ReadUnderWay, bool),
    (export, file): (u32, FileId),
) -> OperationOutcome<'a> {
    let granted = run.peer.view.granted(export);
    let fs = granted.ok_or(nfsstat4::NFS4ERR_STALE)?.fs;
    let caller = run.caller(is_open);
    let from = File {
        fs: fs.as_ref(),
        caller: &caller,
        id: file,
    };
    let step = read.go_on(run.pool, from);
    match step.map_err(|error| status(error, run.minor()))? {
        DataStep::Done => give(run, read),
        DataStep::Ask(op) => ask_file_system(run, op, is_open, ThenData::Read(read, is_open)),
        DataStep::NoMemory => {
            // It has taken what it takes of limits.
            run.flow.is_let_go = true;
            Ok(NextStep::NoMemory)
        }
        DataStep::Turn => {
            let then = Continuation::Data(ThenData::Read(read, is_open));
            run.wait(Step::Turn, then)
        }
    }
}

/// A piece has been read, or it is its turn.
fn resume_read<'a>(
    run: &mut RunningCall<'a>,
    (mut read, is_open): (ReadUnderWay, bool),
    result: Result<Output, Error>,
) -> OperationOutcome<'a> {
    let resumed = read.resume(result);
    resumed.map_err(|error| status(error, run.minor()))?;
    if read.is_over {
        return give(run, read);
    }
    let place = file_place(run)?;
    may_still(run, READ)?;
    go_on_reading(run, (read, is_open), place)
}

/// Whether what let the first piece of a WRITE or READ through is there still: a lock may have been
/// lost, a delegation revoked or an export changed meanwhile.
#[cold]
fn may_still(run: &mut RunningCall<'_>, access: u32) -> Result<(), nfsstat4> {
    let stateid = match run.op() {
        nfs_argop4::OP_WRITE(args) => args.stateid,
        nfs_argop4::OP_READ(args) => args.stateid,
        nfs_argop4::OP_READ_PLUS(args) => args.stateid,
        _ => unreachable!("they alone are done in pieces"),
    };
    state::check_io(run, &stateid, access)?;
    match access {
        WRITE => run.check_writable(run.current()?),
        _ => Ok(()),
    }
}

/// The file under the current file handle, and its export.
fn file_place(run: &RunningCall<'_>) -> Result<(u32, FileId), nfsstat4> {
    match run.current()? {
        PseudoPlace::File { export, file } => Ok((export, file)),
        PseudoPlace::Pseudo(_) | PseudoPlace::Absent(_) => Err(nfsstat4::NFS4ERR_STALE),
    }
}

/// Answers with data.
#[inline]
fn give<'a>(run: &mut RunningCall<'a>, read: ReadUnderWay) -> OperationOutcome<'a> {
    counters::add(read.len);
    run.flow.io.bytes += u64::from(read.len);
    if run.flow.compound.number() == nfs_opnum4::OP_READ_PLUS {
        return give_plus(run, read);
    }
    let resok = READ4resok {
        eof: read.is_end,
        data: Payload { len: read.len },
    };
    run.ok(|to| resok.encode(to))?;
    run.reply().data_item(read.len);
    send(run, read.data, 0, read.len)?;
    Ok(NextStep::Done)
}

/// Appends `len` bytes of data from `offset`, whose length stands there.
#[inline]
fn send(
    run: &mut RunningCall<'_>,
    data: CommandMemory,
    offset: u32,
    len: u32,
) -> Result<(), nfsstat4> {
    if len == 0 {
        return Ok(());
    }
    // What a slot keeps is bytes.
    let keeps = run.flow.slot.as_ref().is_some_and(|slot| slot.keeps);
    let tag = match keeps {
        // It becomes bytes beside the memory that is bounded: not what is too long to be kept.
        true => run.reserve(len).map(|()| None)?,
        false => run.link.machine.data_tag(run.flow.tag),
    };
    match tag {
        Some(tag) => {
            run.link.set_data(tag, data);
            run.reply().payload(tag, offset, len);
        }
        None => {
            let to = run.reply().bytes();
            data.append(offset, len, to);
            to.extend_from_slice(&[0; 3][..pad(len as usize)]);
        }
    }
    Ok(())
}

/// The answer to READ_PLUS (RFC 7862, section 15.10): a hole, data, a hole, as
/// far as there are any. Holes are found in what is read, all at one time.
fn give_plus<'a>(run: &mut RunningCall<'a>, read: ReadUnderWay) -> OperationOutcome<'a> {
    let nfs_argop4::OP_READ_PLUS(args) = run.op() else {
        unreachable!("READ_PLUS reads so");
    };
    let (begin, end) = worth_sending(&read);
    let hole = |from: u32, to: u32| {
        let hole = data_info4 {
            di_offset: args.offset + u64::from(from),
            di_length: (to - from).into(),
        };
        (to > from).then_some(read_plus_content::NFS4_CONTENT_HOLE(hole))
    };
    let (before, behind) = (hole(0, begin), hole(end, read.len));
    let has_data = end > begin;
    let head = read_plus_head {
        rpr_eof: read.is_end,
        contents: [before.is_some(), has_data, behind.is_some()]
            .map(u32::from)
            .iter()
            .sum(),
    };
    run.ok(|to| {
        head.encode(to);
        before.iter().for_each(|hole| hole.encode(to));
    })?;
    if has_data {
        let data = data4 {
            d_offset: args.offset + u64::from(begin),
            d_data: Payload { len: end - begin },
        };
        let to = run.reply().bytes();
        read_plus_content::NFS4_CONTENT_DATA(data).encode(to);
        send(run, read.data, begin, end - begin)?;
    }
    let to = run.reply().bytes();
    behind.iter().for_each(|hole| hole.encode(to));
    Ok(NextStep::Done)
}

/// The verifier of writes to the current file handle's file system.
fn verifier(run: &RunningCall<'_>) -> Result<verifier4, nfsstat4> {
    let verifier = run.file_system()?.verifier();
    match faults::is(Fault::SameVerifier) {
        true => Ok([0; 8]),
        false => Ok(verifier.to_be_bytes()),
    }
}

const WRITE_BYTES: u32 = 8 + 16;

pub(crate) fn write<'a>(run: &mut RunningCall<'a>, args: &WRITE4args) -> OperationOutcome<'a> {
    let place = run.current()?;
    let is_open = state::check_io(run, &args.stateid, WRITE)?;
    run.check_writable(place)?;
    run.reserve(WRITE_BYTES)?;
    // What is lost while this is under way may be its data: its client sees that the
    // verifier has changed since, and writes it again.
    let verifier = verifier(run)?;
    let PseudoPlace::File { export, file } = place else {
        return Err(nfsstat4::NFS4ERR_ROFS);
    };
    run.begin_io(IoOp::Write, export);
    // Of one whose file handle a PUTFH names, that was asked before its data was received.
    if !run.flow.is_put
        && let Some(demand) = run.held_back(IoOp::Write, export, args.data.len)
    {
        return Ok(NextStep::HeldBack(demand));
    }
    let data = (run.flow.payload, args.data.len);
    let is_stable = args.stable != stable_how4::UNSTABLE4;
    let write = WriteUnderWay::new(data, (args.offset, is_stable));
    go_on_writing(run, (write, verifier, is_open), (export, file))
}

#[inline]
fn go_on_writing<'a>(
    run: &mut RunningCall<'a>,
    (mut write, verifier, is_open): (WriteUnderWay, verifier4, bool),
    (export, file): (u32, FileId),
) -> OperationOutcome<'a> {
    let granted = run.peer.view.granted(export);
    let fs = granted.ok_or(nfsstat4::NFS4ERR_STALE)?.fs;
    let identity = run.identity().clone();
    let caller = call::caller(&identity, run.time, is_open, run.peer.asker());
    let to = File {
        fs: fs.as_ref(),
        caller: &caller,
        id: file,
    };
    let step = write.go_on(run.link, run.pool, to);
    let then = |write| ThenData::Write(write, verifier, is_open);
    match step.map_err(|error| status(error, run.minor()))? {
        DataStep::Done => wrote(run, &write.written, verifier),
        DataStep::Ask(op) => ask_file_system(run, op, is_open, then(write)),
        DataStep::NoMemory => Ok(NextStep::NoMemory),
        DataStep::Turn => run.wait(Step::Turn, Continuation::Data(then(write))),
    }
}

/// A piece has been written, or it is its turn.
fn resume_write<'a>(
    run: &mut RunningCall<'a>,
    (mut write, verifier, is_open): (WriteUnderWay, verifier4, bool),
    result: Result<Output, Error>,
) -> OperationOutcome<'a> {
    let resumed = write.resume(result);
    resumed.map_err(|error| status(error, run.minor()))?;
    if write.is_over {
        return wrote(run, &write.written, verifier);
    }
    let place = file_place(run)?;
    let may_go_on = run.is_connected && may_still(run, WRITE).is_ok();
    write.end_unless(may_go_on);
    go_on_writing(run, (write, verifier, is_open), place)
}

#[inline]
fn wrote<'a>(
    run: &mut RunningCall<'a>,
    written: &Written,
    verifier: verifier4,
) -> OperationOutcome<'a> {
    counters::add(written.len);
    run.flow.io.bytes += u64::from(written.len);
    let resok = WRITE4resok {
        count: written.len,
        committed: match written.is_stable {
            true => stable_how4::FILE_SYNC4,
            false => stable_how4::UNSTABLE4,
        },
        writeverf: verifier,
    };
    run.ok(|to| resok.encode(to))
}

/// All of the file is brought to stable storage, whatever range is meant.
pub(crate) fn commit<'a>(run: &mut RunningCall<'a>, _args: &COMMIT4args) -> OperationOutcome<'a> {
    let place = run.current()?;
    if let PseudoPlace::File { export, .. } = place {
        run.begin_io(IoOp::Flush, export);
    }
    let file = file(place);
    if faults::is(Fault::DropCommit) {
        return resume(run, ThenData::Commit, Ok(Output::Done));
    }
    ask_file_system(run, FsOp::Commit { file }, false, ThenData::Commit)
}

pub(crate) fn seek<'a>(run: &mut RunningCall<'a>, args: &SEEK4args) -> OperationOutcome<'a> {
    let place = run.current()?;
    let is_open = state::check_io(run, &args.sa_stateid, READ)?;
    let op = FsOp::Seek {
        file: file(place),
        offset: args.sa_offset,
        what: match args.sa_what {
            data_content4::NFS4_CONTENT_DATA => fs::Seek::Data,
            data_content4::NFS4_CONTENT_HOLE => fs::Seek::Hole,
        },
    };
    ask_file_system(run, op, is_open, ThenData::Seek)
}

/// What must be so before a range of a file changes.
fn check_change(
    run: &mut RunningCall<'_>,
    args: &ALLOCATE4args,
) -> Result<(fs::FileId, bool), nfsstat4> {
    let place = run.current()?;
    let is_open = state::check_io(run, &args.aa_stateid, WRITE)?;
    run.check_writable(place)?;
    run.reserve(8)?;
    match args.aa_length {
        0 => Err(nfsstat4::NFS4ERR_INVAL),
        _ => Ok((file(place), is_open)),
    }
}

pub(crate) fn allocate<'a>(
    run: &mut RunningCall<'a>,
    args: &ALLOCATE4args,
) -> OperationOutcome<'a> {
    let (file, is_open) = check_change(run, args)?;
    let (offset, len) = (args.aa_offset, args.aa_length);
    ask_file_system(
        run,
        FsOp::Allocate { file, offset, len },
        is_open,
        ThenData::Change,
    )
}

pub(crate) fn deallocate<'a>(
    run: &mut RunningCall<'a>,
    args: &ALLOCATE4args,
) -> OperationOutcome<'a> {
    let (file, is_open) = check_change(run, args)?;
    let (offset, len) = (args.aa_offset, args.aa_length);
    ask_file_system(
        run,
        FsOp::Deallocate { file, offset, len },
        is_open,
        ThenData::Change,
    )
}

pub(crate) fn clone<'a>(run: &mut RunningCall<'a>, args: &CLONE4args) -> OperationOutcome<'a> {
    let place = run.current()?;
    let saved = run.saved_beside(place)?;
    let of_source = run.at_saved(|run| state::check_io(run, &args.cl_src_stateid, READ))?;
    let of_target = state::check_io(run, &args.cl_dst_stateid, WRITE)?;
    run.check_writable(place)?;
    run.reserve(8)?;
    let op = FsOp::Clone {
        from: file(saved),
        from_offset: args.cl_src_offset,
        to: file(place),
        to_offset: args.cl_dst_offset,
        len: args.cl_count,
    };
    ask_file_system(run, op, of_source && of_target, ThenData::Change)
}

/// IO_ADVISE4_WILLNEED in the first word of a bitmap of hints (RFC 7862, section 15.5).
const WILLNEED: u32 = 1 << 4;

/// Hints that are not followed are left out of the answer (RFC 7862, section 15.5): all but
/// WILLNEED are about what all clients of the file share.
pub(crate) fn io_advise<'a>(
    run: &mut RunningCall<'a>,
    args: &IO_ADVISE4args<'a>,
) -> OperationOutcome<'a> {
    let place = run.current()?;
    let is_open = state::check_io(run, &args.iaa_stateid, READ)?;
    if args.iaa_hints.iter().next().unwrap_or(0) & WILLNEED == 0 {
        return advised(run, 0);
    }
    if let PseudoPlace::File { export, .. } = place {
        // It reads as READ does: without an answer that is as long, but as much of the disk.
        let bytes = match args.iaa_count {
            0 => READ_AHEAD_BYTES_MAX,
            count => count.min(READ_AHEAD_BYTES_MAX),
        };
        if let Some(demand) = run.held_back(IoOp::Read, export, bytes as u32) {
            return Ok(NextStep::HeldBack(demand));
        }
    }
    let op = FsOp::ReadAhead {
        file: file(place),
        offset: args.iaa_offset,
        len: args.iaa_count,
    };
    ask_file_system(run, op, is_open, ThenData::ReadAhead)
}

/// The answer to IO_ADVISE: the hints that are followed.
fn advised<'a>(run: &mut RunningCall<'a>, followed: u32) -> OperationOutcome<'a> {
    let words = [followed];
    let hints: bitmap4<'_> = List::Of(&words[..usize::from(followed != 0)]);
    run.ok(|to| hints.encode(to))
}
