//! The host's end of a queue, apart from its transport: commands in flight under their
//! CIDs, and the entries of the submission queue (NVMe over Fabrics; Base 2.0, section 3.3).

use machine::Tag;
use wire::nvme::{Sqe, Status};

/// What Connect and Identify made of the queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRole {
    /// Entries of the submission queue (a count), at least 2; one fewer
    /// commands are in flight at most.
    pub entries: u16,
    /// In-capsule data that the controller takes, in bytes: IOCCSZ * 16 - 64 on
    /// an I/O queue; on the Admin Queue 8192 over TCP and 0 over RDMA.
    pub in_capsule_max: u32,
    /// Connect asked for no SQ flow control and the controller agreed (SQHD FFFFh).
    pub flow_control_disabled: bool,
}

/// The data that a command comes with, in bytes; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// No data.
    None,
    /// Controller to host: at most so many.
    In(u32),
    /// Host to controller.
    Out(u32),
}

/// What happened; `E` is why a connection of the transport ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostOp<E> {
    /// The connection is initialized: Connect may be submitted.
    Ready,
    /// A command ended; its tag and memory are free.
    Completed {
        /// The command.
        tag: Tag,
        /// How it ended.
        cqe: Completion,
    },
    /// The connection ends once everything was sent.
    Fatal(E),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Its status; Transient Transport Error too when data did not match its
    /// digest on the way here.
    pub status: Status,
    /// Dwords 0 and 1.
    pub result: u64,
    /// SQ head pointer; FFFFh without flow control.
    pub sqhd: u16,
    /// Bytes of data that came.
    pub data_len: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandState {
    Free,
    /// Its capsule is to be sent.
    Queued,
    /// The controller has it.
    Sent,
}

/// A command, with what its transport keeps of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCommand<T> {
    state: CommandState,
    /// CID and PSDT are right; the SGL is the transport's.
    pub(crate) sqe: Sqe,
    /// None, or more than 0 bytes.
    pub(crate) data: Data,
    pub(crate) transfer: T,
}

/// The commands of a queue pair and its submission queue. A command's CID is its tag.
#[derive(Debug)]
pub(crate) struct HostCommands<T> {
    role: HostRole,
    slots: Vec<HostCommand<T>>,
    free: Vec<Tag>,
    /// SQ tail and head as flow control counts them.
    tail: u16,
    head: u16,
}

impl<T: Copy + Default> HostCommands<T> {
    /// Before Connect: one command, with so much data in its capsule at most.
    pub(crate) fn new(in_capsule_max: u32) -> HostCommands<T> {
        HostCommands {
            role: HostRole {
                entries: 2,
                in_capsule_max,
                flow_control_disabled: true,
            },
            slots: Vec::new(),
            free: Vec::new(),
            tail: 0,
            head: 0,
        }
    }

    /// Connect succeeded: the queue has its size now.
    pub(crate) fn attach(&mut self, role: HostRole) {
        assert!(role.entries >= 2, "a queue has at least 2 entries");
        self.role = role;
        // Connect used the first entry.
        self.tail = 1;
        self.head = 1;
    }

    #[inline]
    pub(crate) fn role(&self) -> &HostRole {
        &self.role
    }

    #[inline]
    pub(crate) fn tags_max(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// How many commands [`HostCommands::submit`] would take now.
    #[inline]
    pub(crate) fn room(&self) -> u16 {
        let entries = self.role.entries;
        let room = entries - 1 - self.in_flight() as u16;
        if self.role.flow_control_disabled {
            return room;
        }
        let used = (self.tail + entries - self.head) % entries;
        room.min(entries - 1 - used)
    }

    /// Takes a command, whose SGL is to be filled in; `None`: the queue is full.
    #[inline]
    pub(crate) fn submit(&mut self, sqe: &Sqe, data: Data) -> Option<Tag> {
        if self.room() == 0 {
            return None;
        }
        if !self.role.flow_control_disabled {
            self.tail = (self.tail + 1) % self.role.entries;
        }
        let mut command = HostCommand {
            state: CommandState::Queued,
            sqe: *sqe,
            data: match data {
                Data::In(0) | Data::Out(0) => Data::None,
                data => data,
            },
            transfer: T::default(),
        };
        command.sqe.flags = sqe.flags & !Sqe::PSDT_MASK | Sqe::PSDT_SGL;
        let tag = self.free.pop().unwrap_or(self.slots.len() as Tag);
        command.sqe.cid = tag.into();
        match self.slots.get_mut(usize::from(tag)) {
            Some(slot) => *slot = command,
            None => self.slots.push(command),
        }
        Some(tag)
    }

    /// The command of `tag`, which was submitted.
    #[inline]
    pub(crate) fn of(&mut self, tag: Tag) -> &mut HostCommand<T> {
        &mut self.slots[usize::from(tag)]
    }

    /// The command that the controller calls `cid`, if it has one.
    #[inline]
    pub(crate) fn sent(&mut self, cid: u16) -> Option<&mut HostCommand<T>> {
        let command = self.slots.get_mut(usize::from(cid))?;
        (command.state == CommandState::Sent).then_some(command)
    }

    /// The capsule of `tag` goes out.
    #[inline]
    pub(crate) fn set_sent(&mut self, tag: Tag) {
        self.slots[usize::from(tag)].state = CommandState::Sent;
    }

    /// The command `tag` ended: its tag is free, and so are the entries up to `sqhd`.
    #[inline]
    pub(crate) fn end(&mut self, tag: Tag, sqhd: u16) {
        if sqhd < self.role.entries {
            self.head = sqhd;
        }
        self.slots[usize::from(tag)].state = CommandState::Free;
        self.free.push(tag);
        if self.in_flight() == 0 {
            // Every entry was taken, whatever SQHD says: nothing would put a wrong one right.
            self.head = self.tail;
        }
    }
}
