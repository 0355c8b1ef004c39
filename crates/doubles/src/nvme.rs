//! A controller's end that executes I/O on a byte vector.

use std::collections::VecDeque;
use std::sync::Arc;

use machine::{Machine, Tag};
use nvmf::command::{Command, Geometry, Io, IoKind, copy_ranges, deallocate_ranges};
use nvmf::queue::{ControllerEnd, Done, Op, RefusedCommand, Role};
use nvmf::{rdma, tcp};
use testkit::End;
use wire::nvme::Status;

/// A controller's end of any transport, with why its connection ends.
pub trait ControllerMachine: ControllerEnd + Machine<Op = Op<Self::Error>> {
    /// Why it ends.
    type Error: Copy;

    /// The host may have the controller that it asks for.
    fn grant_queue(&mut self) {
        unreachable!("of NVMe/RDMA")
    }
}

impl ControllerMachine for tcp::controller::Qpair {
    type Error = tcp::FatalError;
}

impl ControllerMachine for rdma::controller::Qpair {
    type Error = rdma::controller::RdmaError;

    fn grant_queue(&mut self) {
        self.answer_queue(true);
    }
}

/// A controller's end whose namespaces all lie on one byte vector. Connect
/// succeeds, Admin commands are answered with bytes of their opcode.
#[derive(Debug)]
pub struct ControllerDouble<M: ControllerMachine = tcp::controller::Qpair> {
    /// The machine and its memory.
    pub end: End<M>,
    /// What the namespaces hold.
    pub media: Vec<u8>,
    /// Commands that wait for memory.
    pub starved: Vec<(Tag, u32)>,
    /// Commands that wait to be executed.
    pub work: Vec<(Tag, Command)>,
    /// Fused pairs that wait to be executed: Compare, Write, what they do.
    pub fused: Vec<(Tag, Tag, Io)>,
    /// Commands that the machine refused.
    pub refused: Vec<RefusedCommand>,
    /// Event requests that the host forgot, and the events of those that had one.
    pub forgotten: Vec<(Tag, Option<u32>)>,
    /// Why the connection ended.
    pub fatal: Option<M::Error>,
    /// Tags named by an operation and not released yet.
    pub named: Vec<bool>,
    role: Role,
    checked: usize,
}

impl<M: ControllerMachine> ControllerDouble<M> {
    /// `machine` on `media`; Connect makes it `role`.
    pub fn new(machine: M, role: Role, media: Vec<u8>) -> ControllerDouble<M> {
        ControllerDouble {
            end: End::new(machine),
            media,
            starved: Vec::new(),
            work: Vec::new(),
            fused: Vec::new(),
            refused: Vec::new(),
            forgotten: Vec::new(),
            fatal: None,
            named: Vec::new(),
            role,
            checked: 0,
        }
    }

    /// Takes every operation there is; memory is left for [`ControllerDouble::feed`].
    pub fn take_ops(&mut self) {
        while let Some(op) = self.end.next_op() {
            match op {
                Op::Prepare { tag, len, .. } => {
                    self.name(tag);
                    self.starved.push((tag, len));
                }
                Op::Execute { tag } => {
                    if !self.named.get(usize::from(tag)).is_some_and(|named| *named) {
                        self.name(tag);
                    }
                    self.work.push((tag, self.command(tag)));
                }
                Op::ExecuteFused { compare, write } => {
                    let Command::Io(io) = self.command(write) else {
                        panic!("a pair is I/O");
                    };
                    self.fused.push((compare, write, io));
                }
                Op::Forgotten { tag, event } => self.forgotten.push((tag, event)),
                Op::Refused(refused) => self.refused.push(refused),
                Op::QueueAsked { .. } => self.end.machine.grant_queue(),
                Op::Fatal(error) => self.fatal = Some(error),
            }
        }
    }

    fn command(&self, tag: Tag) -> Command {
        *self.end.machine.queue().command(tag)
    }

    fn name(&mut self, tag: Tag) {
        let index = usize::from(tag);
        if self.named.len() <= index {
            self.named.resize(index + 1, false);
        }
        assert!(!self.named[index], "a tag was used twice");
        self.named[index] = true;
    }

    /// Gives the command at `index` of [`ControllerDouble::starved`] its memory.
    pub fn feed(&mut self, index: usize) {
        let (tag, len) = self.starved.swap_remove(index);
        self.end.set_memory(tag, vec![0xee; len as usize]);
        self.end.machine.prepared(tag);
        self.take_ops();
    }

    /// Executes the command at `index` of [`ControllerDouble::work`].
    pub fn execute(&mut self, index: usize) {
        let (tag, command) = self.work.swap_remove(index);
        let done = match command {
            Command::Connect(_) => {
                self.end.machine.attach(self.role.clone());
                Done {
                    result: 1,
                    ..Done::default()
                }
            }
            Command::AuthenticationSend | Command::AuthenticationReceive { .. } => {
                Status::COMMAND_SEQUENCE.into()
            }
            Command::PropertyGet(get) => Done {
                result: u64::from(get.offset),
                ..Done::default()
            },
            Command::PropertySet(_) | Command::Disconnect => Done::default(),
            Command::Admin(sqe) => {
                let mut done = Done::default();
                if sqe.direction() == wire::nvme::Direction::ControllerToHost {
                    done.data_len = sqe.sgl.length.get();
                    self.end
                        .set_memory(tag, vec![sqe.opcode; done.data_len as usize]);
                }
                done
            }
            Command::Reservation { .. } => Status::INVALID_OPCODE.dnr().into(),
            Command::Io(io) => self.execute_io(tag, &io),
        };
        self.end.machine.complete(tag, done);
    }

    /// The namespaces change while commands are on their way. They all stay on
    /// the same bytes.
    pub fn set_namespaces(&mut self, namespaces: Arc<[Geometry]>) {
        self.role.namespaces = Arc::clone(&namespaces);
        self.end.machine.set_namespaces(namespaces);
    }

    /// Ends a command that waits for memory or to be executed as aborted.
    pub fn forget(&mut self, tag: Tag) {
        self.starved.retain(|(starved, _)| *starved != tag);
        self.work.retain(|(waiting, _)| *waiting != tag);
        self.end
            .machine
            .complete(tag, Status::ABORT_REQUESTED.into());
        self.take_ops();
    }

    /// CIDs of the commands in [`ControllerDouble::fused`].
    pub fn fused_cids(&self) -> Vec<u16> {
        let tags = self.fused.iter().flat_map(|pair| [pair.0, pair.1]);
        tags.map(|tag| self.end.machine.queue().cid(tag)).collect()
    }

    /// Executes the pair at `index` of [`ControllerDouble::fused`].
    pub fn execute_fused(&mut self, index: usize) {
        let (compare, write, io) = self.fused.swap_remove(index);
        assert_eq!(io.kind, IoKind::CompareAndWrite);
        let range = io.offset as usize..(io.offset + io.len) as usize;
        let statuses = if self.media[range.clone()] == self.end.memory[usize::from(compare)][..] {
            self.media[range].copy_from_slice(&self.end.memory[usize::from(write)]);
            [Status::SUCCESS; 2]
        } else {
            [Status::COMPARE_FAILURE, Status::FUSED_FAILED]
        };
        self.end.machine.complete(compare, statuses[0].into());
        self.end.machine.complete(write, statuses[1].into());
    }

    fn execute_io(&mut self, tag: Tag, io: &Io) -> Done {
        let range = io.offset as usize..(io.offset + io.len) as usize;
        let data = self.end.memory.get(usize::from(tag));
        match io.kind {
            IoKind::Read => {
                let bytes = self.media[range].to_vec();
                self.end.set_memory(tag, bytes);
                return Done {
                    data_len: io.len as u32,
                    ..Done::default()
                };
            }
            IoKind::Write => self.media[range].copy_from_slice(data.expect("was prepared")),
            IoKind::Compare if self.media[range.clone()] != data.expect("was prepared")[..] => {
                return Status::COMPARE_FAILURE.into();
            }
            IoKind::Compare | IoKind::Verify | IoKind::Flush | IoKind::FlushAll => {}
            IoKind::CompareAndWrite => panic!("a fused command comes as a pair"),
            // Here only a pattern marks it.
            IoKind::WriteUncorrectable => self.media[range].fill(0xbd),
            IoKind::WriteZeroes => self.media[range].fill(0),
            IoKind::Deallocate if !io.deallocate => {}
            IoKind::Deallocate | IoKind::Copy => return self.execute_ranges(tag, io),
        }
        Done::default()
    }

    /// Commands whose data is a table of ranges.
    fn execute_ranges(&mut self, tag: Tag, io: &Io) -> Done {
        let table = &self.end.memory[usize::from(tag)][..io.len as usize];
        let namespaces = &self.role.namespaces;
        if io.kind == IoKind::Deallocate {
            for range in deallocate_ranges(table, &namespaces[io.namespace as usize]) {
                match range {
                    Ok((at, len)) => self.media[at as usize..(at + len) as usize].fill(0),
                    Err(status) => return status.into(),
                }
            }
            return Done::default();
        }
        let mut ranges = Vec::new();
        if let Err(status) = copy_ranges(table, io, namespaces, &mut ranges) {
            return status.into();
        }
        let mut to = io.offset as usize;
        for range in ranges {
            let from = range.offset as usize;
            self.media.copy_within(from..from + range.len as usize, to);
            to += range.len as usize;
        }
        Done::default()
    }

    /// Sends at most `pdus_max` PDUs and checks what was released.
    pub fn transmit(&mut self, stream: &mut VecDeque<u8>, pdus_max: usize) {
        self.end.transmit(stream, pdus_max);
        for tag in &self.end.released[self.checked..] {
            let named = std::mem::replace(&mut self.named[usize::from(*tag)], false);
            assert!(named, "released a tag that no operation named");
        }
        self.checked = self.end.released.len();
    }

    /// Receives all of `stream` at once and does everything there is to do.
    pub fn serve(&mut self, stream: &mut VecDeque<u8>, out: &mut VecDeque<u8>) {
        loop {
            let taken = self.end.receive(stream, usize::MAX);
            self.take_ops();
            let busy = taken > 0
                || !self.starved.is_empty()
                || !self.work.is_empty()
                || !self.fused.is_empty();
            while !self.starved.is_empty() {
                self.feed(0);
            }
            while !self.work.is_empty() {
                self.execute(0);
            }
            while !self.fused.is_empty() {
                self.execute_fused(0);
            }
            self.transmit(out, usize::MAX);
            if !busy {
                return;
            }
        }
    }
}
