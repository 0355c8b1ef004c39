//! A file layer that is synchronous, obedient, and fails on demand.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use mem::BufRange;
use reactor::{Bell, Completion, DiskFile, FallocateMode, FileIo, Nanos, Ticket, Token};
use rustix::fs::{FallocateFlags, fallocate};

use crate::common::Files;

/// One file operation, as the volume asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Read {
        offset: u64,
        len: u32,
    },
    Write {
        offset: u64,
        len: u32,
        durable: bool,
    },
    Sync,
    Punch {
        offset: u64,
        len: u64,
    },
    ZeroRange {
        offset: u64,
        len: u64,
    },
}

/// What happens to one operation instead of what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// No more than this many bytes are moved.
    Short(u32),
    /// Nothing is done.
    Errno(i32),
}

struct Pending {
    op: Op,
    file: Arc<DiskFile>,
    buf: Option<BufRange>,
    token: Token,
    fault: Fault,
}

/// Carries out each operation when its completion is asked for.
#[derive(Default)]
pub struct Fake {
    /// Faults of the coming operations in their order; none when it is empty.
    pub faults: VecDeque<Fault>,
    /// All operations so far.
    pub log: Vec<Op>,
    /// How long each completion was to wait that no operation brings; none waits.
    pub pauses: Vec<Nanos>,
    pending: VecDeque<Pending>,
    bell: Option<Arc<Bell>>,
    rung: Vec<Completion>,
}

impl Fake {
    pub fn with(faults: &[Fault]) -> Fake {
        Fake {
            faults: faults.iter().copied().collect(),
            ..Fake::default()
        }
    }

    /// Tickets that were rung since the last time.
    pub fn rung(&mut self) -> Vec<Token> {
        self.take_rung();
        let token = |completion| match completion {
            Completion::File { token, .. } => token,
            other => panic!("{other:?}"),
        };
        self.rung.drain(..).map(token).collect()
    }

    fn take_rung(&mut self) {
        if let Some(bell) = &self.bell {
            bell.take(&mut self.rung);
        }
    }

    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Completes the pending operation at `index`, out of turn.
    pub fn complete(&mut self, index: usize) -> (Token, io::Result<u32>) {
        let pending = self.pending.remove(index).expect("nothing is under way");
        (pending.token, perform(&pending))
    }

    fn push(&mut self, op: Op, file: &Arc<DiskFile>, buf: Option<BufRange>, token: Token) {
        self.log.push(op);
        self.pending.push_back(Pending {
            op,
            file: file.clone(),
            buf,
            token,
            fault: self.faults.pop_front().unwrap_or(Fault::None),
        });
    }
}

impl Files for Fake {
    fn io(&mut self) -> &mut dyn FileIo {
        self
    }

    fn completion(&mut self) -> (Token, io::Result<u32>) {
        self.take_rung();
        // A ticket may be with another thread.
        while self.rung.is_empty() && self.pending.is_empty() {
            std::thread::yield_now();
            self.take_rung();
        }
        match self.rung.pop() {
            Some(Completion::File { token, result }) => (token, result),
            Some(other) => panic!("{other:?}"),
            None => self.complete(0),
        }
    }
}

impl FileIo for Fake {
    fn read_at(&mut self, file: &Arc<DiskFile>, buf: BufRange, offset: u64, token: Token) {
        let len = buf.len();
        self.push(Op::Read { offset, len }, file, Some(buf), token);
    }

    fn write_at(
        &mut self,
        file: &Arc<DiskFile>,
        buf: BufRange,
        offset: u64,
        durable: bool,
        token: Token,
    ) {
        let op = Op::Write {
            offset,
            len: buf.len(),
            durable,
        };
        self.push(op, file, Some(buf), token);
    }

    fn sync_data(&mut self, file: &Arc<DiskFile>, token: Token) {
        self.push(Op::Sync, file, None, token);
    }

    fn fallocate(
        &mut self,
        file: &Arc<DiskFile>,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        token: Token,
    ) {
        let op = match mode {
            FallocateMode::PunchHole => Op::Punch { offset, len },
            FallocateMode::ZeroRange => Op::ZeroRange { offset, len },
        };
        self.push(op, file, None, token);
    }

    fn ticket(&mut self, token: Token) -> Ticket {
        self.bell
            .get_or_insert_with(|| Bell::new(None))
            .ticket(token)
    }

    fn complete_after(&mut self, after_ns: Nanos, token: Token) {
        self.pauses.push(after_ns);
        self.ticket(token).ring();
    }

    /// What is under way ends without being done.
    fn cancel_file(&mut self, token: Token) {
        let canceled = self.pending.iter_mut().filter(|p| p.token == token);
        for pending in canceled {
            pending.fault = Fault::Errno(libc::ECANCELED);
        }
    }
}

fn perform(pending: &Pending) -> io::Result<u32> {
    let max = match pending.fault {
        Fault::Errno(errno) => return Err(io::Error::from_raw_os_error(errno)),
        Fault::Short(max) => max,
        Fault::None => u32::MAX,
    };
    let file = File::from(pending.file.as_fd().try_clone_to_owned()?);
    let flags = |mode| mode | FallocateFlags::KEEP_SIZE;
    match pending.op {
        Op::Read { offset, len } => {
            let mut bytes = vec![0; len.min(max) as usize];
            let n = file.read_at(&mut bytes, offset)?;
            let buf = pending.buf.unwrap().slice(0, n as u32);
            mem::copy_in(buf, &bytes[..n]);
            Ok(n as u32)
        }
        Op::Write {
            offset,
            len,
            durable,
        } => {
            let mut bytes = vec![0; len.min(max) as usize];
            mem::copy_out(pending.buf.unwrap().slice(0, len.min(max)), &mut bytes);
            let n = file.write_at(&bytes, offset)?;
            if durable {
                file.sync_data()?;
            }
            Ok(n as u32)
        }
        Op::Sync => file.sync_data().map(|()| 0),
        Op::Punch { offset, len } => {
            fallocate(&file, flags(FallocateFlags::PUNCH_HOLE), offset, len)?;
            Ok(0)
        }
        Op::ZeroRange { offset, len } => {
            fallocate(&file, flags(FallocateFlags::ZERO_RANGE), offset, len)?;
            Ok(0)
        }
    }
}
