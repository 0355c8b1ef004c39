//! I/Os of a volume as NVMe commands (NVM RemoteCommand Set 1.0, section 3.2).

use host::Data;
use mem::BufRange;
use store::{Errno, Error, Io};
use wire::nvme::{Sqe, Status, cdw12, io};

use crate::paths::PathFound;

/// Commands under way at a time.
const DEPTH_MAX: u16 = 127;
/// Data of a command.
pub(crate) const DATA_BYTES_MAX: u64 = 1 << 20;
/// Number of Logical Blocks has 16 bits.
const BLOCKS_MAX: u64 = 1 << 16;

/// What commands must look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    nsid: u32,
    block_bytes: u64,
    /// Data of a command at most.
    pub data_bytes: u64,
    /// Bytes of a Write Zeroes at most; 0: there is no such command.
    pub zeroes_bytes: u64,
    /// Commands on a queue at a time.
    pub depth: u16,
}

impl Format {
    pub fn of(found: &PathFound) -> Format {
        let (controller, namespace) = (&found.controller, &found.known.namespace);
        let block_bytes = u64::from(namespace.block_bytes);
        let in_blocks = |bytes: u64| (bytes / block_bytes).clamp(1, BLOCKS_MAX) * block_bytes;
        let most = controller.transfer_max.unwrap_or(u64::MAX);
        Format {
            nsid: namespace.nsid,
            block_bytes,
            data_bytes: in_blocks(most.min(DATA_BYTES_MAX)),
            zeroes_bytes: match controller.write_zeroes {
                true => in_blocks(most),
                false => 0,
            },
            depth: (controller.queue_entries_max.saturating_sub(1)).min(DEPTH_MAX.into()) as u16,
        }
    }
}

/// A command that does a part of an I/O.
pub(crate) struct RemoteCommand {
    pub sqe: Sqe,
    pub data: Data,
    pub memory: Option<BufRange>,
    /// How much of the I/O it does: see [`work_of`].
    pub len: u64,
}

/// What an I/O is cut up by: its bytes; a flush is one.
pub(crate) fn work_of(io: &Io) -> u64 {
    match io {
        Io::Flush => 1,
        io => io.extent().1,
    }
}

/// The command for what of an I/O comes behind `done` of its work. `zeros` are as many as the
/// data of a command may be.
pub(crate) fn next(what: &Io, done: u64, format: &Format, zeros: BufRange) -> RemoteCommand {
    let (offset, len) = what.extent();
    let left = len.saturating_sub(done);
    let data = left.min(format.data_bytes);
    match *what {
        Io::Read { buf, .. } => {
            let sqe = on_blocks(io::READ, offset + done, data, format);
            let memory = Some(buf.slice(done as u32, data as u32));
            with_data(sqe, Data::In(data as u32), memory)
        }
        Io::Write { buf, durable, .. } => {
            let sqe = on_blocks(io::WRITE, offset + done, data, format);
            let memory = Some(buf.slice(done as u32, data as u32));
            with_data(fua(sqe, durable), Data::Out(data as u32), memory)
        }
        Io::Zero { durable, .. } if format.zeroes_bytes == 0 => {
            let sqe = on_blocks(io::WRITE, offset + done, data, format);
            let memory = Some(zeros.slice(0, data as u32));
            with_data(fua(sqe, durable), Data::Out(data as u32), memory)
        }
        Io::Zero {
            deallocate,
            durable,
            ..
        } => {
            let len = left.min(format.zeroes_bytes);
            let mut sqe = fua(
                on_blocks(io::WRITE_ZEROES, offset + done, len, format),
                durable,
            );
            if deallocate {
                sqe.cdw12 = (sqe.cdw12.get() | cdw12::DEAC).into();
            }
            RemoteCommand {
                sqe,
                data: Data::None,
                memory: None,
                len,
            }
        }
        Io::Flush => RemoteCommand {
            sqe: of_namespace(io::FLUSH, format),
            data: Data::None,
            memory: None,
            len: 1,
        },
        other => unreachable!("{other:?} is done by reads and writes"),
    }
}

fn with_data(sqe: Sqe, data: Data, memory: Option<BufRange>) -> RemoteCommand {
    let (Data::In(len) | Data::Out(len)) = data else {
        unreachable!("it has data");
    };
    RemoteCommand {
        sqe,
        data,
        memory,
        len: len.into(),
    }
}

fn of_namespace(opcode: u8, format: &Format) -> Sqe {
    Sqe {
        nsid: format.nsid.into(),
        ..Sqe::new(opcode)
    }
}

fn on_blocks(opcode: u8, offset: u64, len: u64, format: &Format) -> Sqe {
    let mut sqe = of_namespace(opcode, format);
    let blocks = len / format.block_bytes;
    sqe.set_blocks(offset / format.block_bytes, blocks as u32);
    sqe
}

fn fua(mut sqe: Sqe, durable: bool) -> Sqe {
    if durable {
        sqe.cdw12 = (sqe.cdw12.get() | cdw12::FUA).into();
    }
    sqe
}

/// Why a command failed, for the I/O that it is of.
pub(crate) fn error_of(what: &Io, status: Status) -> Error {
    let errno = match status.code() {
        Status::LBA_OUT_OF_RANGE => return Error::OutOfRange,
        Status::WRITE_PROTECTED => return Error::ReadOnly,
        Status::CAPACITY_EXCEEDED => return Error::OutOfSpace(Errno::NOSPC),
        Status::RESERVATION_CONFLICT | Status::ACCESS_DENIED => Errno::ACCESS,
        Status::HOST_PATHING_ERROR => Errno::TIMEDOUT,
        _ => Errno::IO,
    };
    failed(what, errno)
}

/// An I/O that failed with this.
pub(crate) fn failed(what: &Io, errno: Errno) -> Error {
    match what {
        Io::Flush => Error::FlushFailed(errno),
        Io::Read { .. } => Error::ReadFailed(errno),
        _ => Error::WriteFailed(errno),
    }
}
