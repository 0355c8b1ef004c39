//! What the I/Os of a job go over: one NVMe queue, one on each of several paths,
//! an iSCSI session, a connection of an NFS client, or nothing but a volume.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use host::iscsi::{self, Failure, SessionConnection};
use host::nfs::{RpcRefused, Wrong};
use host::{
    Completion, Data, Event, Memory, Multipath, PathChange, PathParams, PathReport, Policy, Queue,
    QueueParams, TOKENS_PER_QUEUE,
};
use machine::{Nanos, Tag};
use mem::BufRange;
use reactor::{Driver, Token};
use store::Volume;
use wire::nvme::{Sqe, Status, io};
use wire::scsi::{cdb, opcode};

use super::local::LocalLine;
use super::nfs::{NfsLine, NfsPlan};
use super::workload::IoDirection;

/// An I/O.
#[derive(Clone, Copy, Debug)]
pub struct LoadIo {
    /// Which way.
    pub kind: IoDirection,
    /// The first logical block.
    pub lba: u64,
    /// How many.
    pub blocks: u32,
    /// Bytes of them.
    pub len: u32,
}

/// Why an I/O failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoFailed {
    /// What an NVMe controller answered.
    Nvme(Status),
    /// What a SCSI target answered.
    Scsi(Failure),
    /// How an NFS operation ended.
    Nfs(Wrong),
    /// What RPC answered.
    Rpc(RpcRefused),
    /// How an I/O of a local volume ended.
    Local(store::Error),
    /// Fewer bytes than asked for.
    Short,
}

impl fmt::Display for IoFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IoFailed::Nvme(status) => status.fmt(f),
            IoFailed::Scsi(failure) => failure.fmt(f),
            IoFailed::Nfs(wrong) => wrong.fmt(f),
            IoFailed::Rpc(refused) => refused.fmt(f),
            IoFailed::Local(error) => error.fmt(f),
            IoFailed::Short => f.write_str("fewer bytes than asked for"),
        }
    }
}

/// What a line is to be.
#[derive(Clone)]
pub enum LinePlan {
    /// One queue; where it is lost the load ends.
    Queue(SocketAddr, Box<QueueParams>),
    /// A session of one connection; where it is lost the load ends.
    Iscsi(SocketAddr, Box<iscsi::Params>),
    /// A connection of an NFS client; where it is lost the load ends.
    Nfs(Box<NfsPlan>),
    /// A volume of this process.
    Local(Arc<dyn Volume>),
    /// A queue on each path, as they come and go.
    Paths {
        /// Which path takes an I/O.
        policy: Policy,
        /// How long I/Os wait where there is no path; `None`: for ever.
        fast_io_fail: Option<Nanos>,
        /// The paths.
        paths: Vec<PathParams>,
    },
}

impl LinePlan {
    /// How many connections it has at a time.
    pub fn connections(&self) -> usize {
        match self {
            LinePlan::Queue(..) | LinePlan::Iscsi(..) | LinePlan::Nfs(_) => 1,
            LinePlan::Local(_) => 0,
            LinePlan::Paths { paths, .. } => paths.len(),
        }
    }

    /// How many tokens it wants with so many I/Os in flight.
    pub fn tokens(&self, iodepth: u16) -> u64 {
        match self {
            LinePlan::Local(_) => u64::from(iodepth) + 1,
            _ => TOKENS_PER_QUEUE * self.connections() as u64,
        }
    }
}

/// What happened on a line.
pub enum LineEvent {
    /// An I/O came to its end.
    Completed(Tag, Result<(), IoFailed>),
    /// An I/O was not executed, but only because something is to be known
    /// first; now it is.
    Again(Tag),
    /// An I/O was not executed: its server asks for patience.
    Later(Tag),
    /// No I/O will: why, in words.
    Down(String),
}

/// What the I/Os of a job go over.
#[derive(Default)]
pub enum Line {
    /// Nothing yet.
    #[default]
    None,
    /// One queue.
    Queue(Box<Queue>, Box<Sqes>),
    /// A queue on each path.
    Paths(Box<Multipath>, Box<Sqes>),
    /// Every path was given up, and that was told.
    Severed(Box<Multipath>, Box<Sqes>),
    /// One session.
    Iscsi(Box<ScsiLine>),
    /// One connection of a session.
    Nfs(Box<NfsLine>),
    /// A volume of this process.
    Local(Box<LocalLine>),
}

/// A command of each kind on a namespace.
pub struct Sqes {
    of_kind: [Sqe; 2],
    /// Bytes that reads are to bring, by tag.
    wanted: Vec<u32>,
}

impl Sqes {
    fn new(nsid: u32) -> Box<Sqes> {
        Box::new(Sqes {
            of_kind: [io::READ, io::WRITE].map(|opcode| {
                let mut sqe = Sqe::new(opcode);
                sqe.nsid = nsid.into();
                sqe
            }),
            wanted: Vec::new(),
        })
    }

    /// The command of an I/O, and its data.
    #[inline]
    fn of(&mut self, io: &LoadIo) -> (&Sqe, Data) {
        let sqe = &mut self.of_kind[io.kind as usize];
        sqe.set_blocks(io.lba, io.blocks);
        let data = match io.kind {
            IoDirection::Write => Data::Out(io.len),
            IoDirection::Read | IoDirection::Metadata => Data::In(io.len),
        };
        (sqe, data)
    }

    /// An I/O was submitted.
    #[inline]
    fn submitted(&mut self, tag: Tag, io: &LoadIo) {
        let index = usize::from(tag);
        if index >= self.wanted.len() {
            self.wanted.resize(index + 1, 0);
        }
        self.wanted[index] = match io.kind {
            IoDirection::Write => 0,
            IoDirection::Read | IoDirection::Metadata => io.len,
        };
    }

    /// How an I/O has ended.
    #[inline]
    fn ended(&self, tag: Tag, completion: &Completion) -> LineEvent {
        let result = match completion.status.is_success() {
            true if completion.data_len < self.wanted[usize::from(tag)] => Err(IoFailed::Short),
            true => Ok(()),
            false => Err(IoFailed::Nvme(completion.status)),
        };
        LineEvent::Completed(tag, result)
    }
}

/// A session to a logical unit.
pub struct ScsiLine {
    connection: SessionConnection,
    lun: u16,
    /// The unit answers, with nothing left to tell before.
    is_ready: bool,
}

impl ScsiLine {
    #[inline]
    fn submit(&mut self, io: &LoadIo, memory: impl FnOnce(Tag) -> BufRange) -> Option<Tag> {
        let (cdb, data) = match io.kind {
            IoDirection::Write => (
                cdb::write16(io.lba, io.blocks),
                iscsi::ExpectedData::Out(io.len),
            ),
            IoDirection::Read | IoDirection::Metadata => (
                cdb::read16(io.lba, io.blocks),
                iscsi::ExpectedData::In(io.len),
            ),
        };
        let command = iscsi::Command::new(self.lun, cdb);
        self.connection
            .submit(&command, data, |tag| Memory::lent(memory(tag)))
    }

    #[inline]
    fn next_event<D: Driver>(&mut self, driver: &mut D) -> Option<LineEvent> {
        loop {
            match self.connection.next_event(driver)? {
                iscsi::SessionEvent::Completed(tag, completion) if self.is_ready => {
                    let sense = self.connection.sense();
                    return Some(match Failure::of(completion.outcome, sense) {
                        None => LineEvent::Completed(tag, Ok(())),
                        Some(failure) if failure.is_unit_attention() => LineEvent::Again(tag),
                        Some(failure) if failure.is_shortage() => LineEvent::Later(tag),
                        Some(mut failure) => {
                            // Failures of all blocks are to be counted as one.
                            if let Some(sense) = &mut failure.sense {
                                sense.information = None;
                            }
                            LineEvent::Completed(tag, Err(IoFailed::Scsi(failure)))
                        }
                    });
                }
                iscsi::SessionEvent::Completed(_, completion) => {
                    let sense = self.connection.sense();
                    match Failure::of(completion.outcome, sense) {
                        None => self.is_ready = true,
                        Some(failure) if failure.is_unit_attention() => self.test(driver),
                        Some(failure) => return Some(LineEvent::Down(failure.to_string())),
                    }
                }
                iscsi::SessionEvent::Live => self.test(driver),
                iscsi::SessionEvent::Down(error) => {
                    return Some(LineEvent::Down(error.to_string()));
                }
                _ => {}
            }
        }
    }

    /// TEST UNIT READY: a new session has a unit attention to be told first.
    fn test<D: Driver>(&mut self, driver: &mut D) {
        let command = iscsi::Command::new(self.lun, cdb::plain(opcode::TEST_UNIT_READY));
        let tag = self
            .connection
            .submit(&command, iscsi::ExpectedData::None, |_| Memory::default());
        tag.expect("nothing else is under way");
        self.connection.flush(driver);
    }
}

impl Line {
    /// Starts to connect, or to wait for paths.
    ///
    /// # Errors
    /// Where there can be no socket.
    pub fn open<D: Driver>(
        driver: &mut D,
        plan: &LinePlan,
        (unit, iodepth): (u32, u16),
        base: Token,
    ) -> std::io::Result<Line> {
        Ok(match plan {
            LinePlan::Queue(to, params) => {
                let queue = Queue::open(driver, *to, (**params).clone(), base)?;
                Line::Queue(Box::new(queue), Sqes::new(unit))
            }
            LinePlan::Iscsi(to, params) => Line::Iscsi(Box::new(ScsiLine {
                connection: SessionConnection::open(driver, *to, (**params).clone(), base)?,
                lun: unit as u16,
                is_ready: false,
            })),
            LinePlan::Nfs(plan) => Line::Nfs(Box::new(NfsLine::open(driver, plan, base)?)),
            LinePlan::Local(volume) => {
                Line::Local(Box::new(LocalLine::new(Arc::clone(volume), iodepth, base)))
            }
            LinePlan::Paths {
                policy,
                fast_io_fail,
                paths,
            } => {
                let paths = Multipath::new(*policy, paths, iodepth, *fast_io_fail, base);
                Line::Paths(Box::new(paths), Sqes::new(unit))
            }
        })
    }

    /// Whether every connection is made.
    pub fn is_live(&self) -> bool {
        match self {
            Line::None | Line::Local(_) => true,
            Line::Queue(queue, _) => queue.is_live(),
            Line::Paths(paths, _) | Line::Severed(paths, _) => paths.is_whole(),
            Line::Iscsi(line) => line.is_ready && line.connection.is_live(),
            Line::Nfs(line) => line.is_live(),
        }
    }

    /// Whether I/Os would fail at once, for want of a path.
    #[inline]
    pub fn is_failing(&self) -> bool {
        match self {
            Line::None | Line::Queue(..) | Line::Iscsi(_) | Line::Nfs(_) | Line::Local(_) => false,
            Line::Paths(paths, _) | Line::Severed(paths, _) => paths.is_failing(),
        }
    }

    /// Whether the driver is done with it and with all memory.
    pub fn is_closed(&self) -> bool {
        match self {
            Line::None => true,
            Line::Queue(queue, _) => queue.is_closed(),
            Line::Paths(paths, _) | Line::Severed(paths, _) => paths.is_closed(),
            Line::Iscsi(line) => line.connection.is_closed(),
            Line::Nfs(line) => line.is_closed(),
            Line::Local(line) => line.is_idle(),
        }
    }

    /// What became of each path, if there are several.
    pub fn paths(&self) -> Vec<PathReport> {
        match self {
            Line::Paths(paths, _) | Line::Severed(paths, _) => paths.reports().collect(),
            _ => Vec::new(),
        }
    }

    /// Names that were listed since it was opened.
    pub fn entries(&self) -> u64 {
        match self {
            Line::Nfs(line) => line.entries(),
            _ => 0,
        }
    }

    /// Submits an I/O with the memory of its tag. `None`: there is no room.
    #[inline]
    pub fn submit(&mut self, io: &LoadIo, memory: impl FnOnce(Tag) -> BufRange) -> Option<Tag> {
        match self {
            Line::None | Line::Severed(..) => None,
            Line::Queue(queue, sqes) => {
                let (sqe, data) = sqes.of(io);
                let tag = queue.submit(sqe, data, |tag| Memory::lent(memory(tag)))?;
                sqes.submitted(tag, io);
                Some(tag)
            }
            Line::Paths(paths, sqes) => {
                let (sqe, data) = sqes.of(io);
                let tag = paths.submit(sqe, data, memory)?;
                sqes.submitted(tag, io);
                Some(tag)
            }
            Line::Iscsi(line) => line.submit(io, memory),
            Line::Nfs(line) => line.submit(io, memory),
            Line::Local(line) => line.submit(io, memory),
        }
    }

    /// Sends what was submitted.
    #[inline]
    pub fn flush<D: Driver>(&mut self, driver: &mut D) {
        match self {
            Line::None => {}
            Line::Queue(queue, _) => queue.flush(driver),
            Line::Paths(paths, _) | Line::Severed(paths, _) => paths.flush(driver),
            Line::Iscsi(line) => line.connection.flush(driver),
            Line::Nfs(line) => line.flush(driver),
            Line::Local(line) => line.flush(driver),
        }
    }

    /// Takes a completion with one of its tokens. Call [`Line::next_event`]
    /// until it yields nothing.
    #[inline]
    pub fn on_completion<D: Driver>(
        &mut self,
        driver: &mut D,
        token: Token,
        completion: reactor::Completion,
    ) {
        match self {
            Line::None => {}
            Line::Queue(queue, _) => queue.on_completion(driver, completion),
            Line::Iscsi(line) => line.connection.on_completion(driver, completion),
            Line::Nfs(line) => line.on_completion(driver, completion),
            Line::Local(line) => line.on_completion(driver, token, completion),
            Line::Paths(paths, _) | Line::Severed(paths, _) => {
                paths.on_completion(driver, token, completion);
            }
        }
    }

    /// Takes what is told of one of its paths, as [`Line::on_completion`] does.
    pub fn on_path<D: Driver>(&mut self, driver: &mut D, path: u16, change: PathChange) {
        if let Line::Paths(paths, _) = self {
            paths.on_change(driver, path.into(), change);
        }
    }

    /// When [`Line::on_deadline`] wants to be called next.
    #[inline]
    pub fn deadline(&self) -> Option<Nanos> {
        match self {
            Line::Paths(paths, _) => paths.deadline(),
            _ => None,
        }
    }

    /// Time has passed; as [`Line::on_completion`].
    pub fn on_deadline(&mut self, now: Nanos) {
        if let Line::Paths(paths, _) = self {
            paths.on_deadline(now);
        }
    }

    /// What happened, until `None`.
    #[inline]
    pub fn next_event<D: Driver>(&mut self, driver: &mut D) -> Option<LineEvent> {
        match self {
            Line::None => None,
            Line::Iscsi(line) => line.next_event(driver),
            Line::Nfs(line) => line.next_event(driver),
            Line::Local(line) => line.next_event(),
            Line::Queue(queue, sqes) => loop {
                match queue.next_event(driver)? {
                    Event::Completed(tag, completion) => return Some(sqes.ended(tag, &completion)),
                    Event::Live(_) => {}
                    Event::Down(error) => return Some(LineEvent::Down(error.to_string())),
                }
            },
            Line::Paths(paths, sqes) | Line::Severed(paths, sqes) => {
                if let Some((tag, completion)) = paths.next_completed(driver) {
                    return Some(sqes.ended(tag, &completion));
                }
                self.report_all_paths_lost()
            }
        }
    }

    /// Tells once that every path was given up.
    fn report_all_paths_lost(&mut self) -> Option<LineEvent> {
        if !matches!(self, Line::Paths(paths, _) if paths.is_given_up()) {
            return None;
        }
        if let Line::Paths(paths, sqes) = std::mem::take(self) {
            *self = Line::Severed(paths, sqes);
        }
        Some(LineEvent::Down("every path was given up".into()))
    }

    /// Ends it, and with it every I/O under way.
    pub fn close<D: Driver>(&mut self, driver: &mut D) {
        match self {
            Line::None | Line::Local(_) => {}
            Line::Queue(queue, _) => queue.close(driver),
            Line::Paths(paths, _) | Line::Severed(paths, _) => paths.close(driver),
            Line::Iscsi(line) => line.connection.close(driver),
            Line::Nfs(line) => line.close(driver),
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::nvme::Status;

    use super::*;

    /// What comes of an I/O of 4096 bytes that ends so.
    fn ended(kind: IoDirection, status: Status, data_len: u32) -> Result<(), String> {
        let io = LoadIo {
            kind,
            lba: 0,
            blocks: 8,
            len: 4096,
        };
        let mut sqes = Sqes::new(1);
        sqes.submitted(5, &io);
        let completion = Completion {
            status,
            result: 0,
            sqhd: 0,
            data_len,
        };
        match sqes.ended(5, &completion) {
            LineEvent::Completed(5, result) => result.map_err(|failed| failed.to_string()),
            _ => panic!("an I/O has ended"),
        }
    }

    #[test]
    fn read_that_brings_less_than_it_asked_for_fails() {
        use IoDirection::{Read, Write};
        let short = Err("fewer bytes than asked for".to_owned());
        assert_eq!(ended(Read, Status::SUCCESS, 0), short);
        assert_eq!(ended(Read, Status::SUCCESS, 4095), short);
        assert_eq!(ended(Read, Status::SUCCESS, 4096), Ok(()));
        assert_eq!(ended(Write, Status::SUCCESS, 0), Ok(()));
        let wrong = Status::LBA_OUT_OF_RANGE;
        assert_eq!(
            ended(Read, wrong, 0),
            Err(IoFailed::Nvme(wrong).to_string())
        );
    }
}
