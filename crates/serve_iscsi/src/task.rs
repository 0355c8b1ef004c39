//! SCSI commands from their arrival to their status: their unit, their order,
//! what is in their way.

use std::sync::Arc;

use engine::payload;
use engine::{Connection as _, Demand, Orphans as _, Waits as _};
use faults::Fault;
use iscsi::target::{AbortOutcome, Done, TargetOp, Task};
use link::CommandMemory;
use machine::{Machine as _, Tag, work};
use mem::BufRange;
use reactor::Driver;
use scsi::lun::Lun as Address;
use scsi::{Command, IoKind, ReservationAccess, Sense, decode};
use store::Volume;
use store::meter::IoOp;

use super::IscsiConnection;

/// What a command needs of reservations.
#[inline]
fn needs(command: &Command) -> ReservationAccess {
    let is_write = matches!(command, Command::Io(io) if matches!(io.kind, IoKind::Write));
    match command.access() {
        ReservationAccess::Write if !is_write && faults::is(Fault::ChangesAreReads) => {
            ReservationAccess::Read
        }
        access => access,
    }
}

/// Most bytes of a parameter list.
pub(super) const LIST_BYTES_MAX: u32 = 64 << 10;

/// Bytes that a plain write takes, of `len` that its CDB names, where the
/// initiator announces `sent`: no more than these, and whole blocks alone. The
/// residual says that all that was announced came, so nothing of it may be left.
pub(super) fn written(len: u64, sent: u64, block_bytes: u32) -> Result<u64, Sense> {
    let bytes = len.min(sent);
    match bytes.is_multiple_of(block_bytes.into()) {
        true => Ok(bytes),
        false => Err(super::io::short_data()),
    }
}

/// Whether the initiator does not announce the data that a command writes, but data
/// of the other direction: then nothing can be written. A command that reads is GOOD
/// all the same, and moves nothing: initiators' test suites ask for that.
pub(super) fn goes_wrong_way(task: &Task, command: &Command, block_bytes: u32) -> bool {
    task.edtl > 0 && !task.write && command.data_out_len(block_bytes) > 0
}

/// Bytes that a command cannot do without, of `len` that its CDB names, where the
/// initiator announces `sent`.
fn needed(command: &Command, len: u64, sent: u64, block_bytes: u32) -> Result<u64, Sense> {
    if let Command::Io(io) = command {
        match io.kind {
            IoKind::WriteAndVerify { .. } => return written(len, sent, block_bytes),
            // The number of blocks is the field that does not fit the data.
            IoKind::CompareAndWrite if sent != len => return Err(Sense::in_cdb(13, None)),
            IoKind::WriteSame { .. } if sent != len => return Err(super::io::short_data()),
            _ => {}
        }
    }
    if sent < len {
        return Err(super::io::short_data());
    }
    Ok(len)
}

/// No unit.
const NOWHERE: u32 = u32::MAX;

/// What the target knows of a task in flight.
#[derive(Clone, Copy)]
pub(super) struct TaskSlot {
    /// The place of its unit; [`NOWHERE`] for none.
    place: u32,
    /// The unit's instance.
    instance: u32,
    /// What it leaves its unit's order with.
    epoch: u32,
    /// It has come.
    has_come: bool,
    /// Its order lets it begin.
    may_begin: bool,
    /// All of it is here, and it waits for its order.
    is_held: bool,
    /// Bytes of data that the initiator was let send.
    pub(super) want: u32,
    /// Bytes to the initiator, if it succeeds.
    pub(super) data_in_len: u32,
    /// Bytes that its CDB transfers.
    pub(super) transfer_len: u64,
    /// What it does on its volume.
    pub(super) op: IoOp,
}

impl TaskSlot {
    /// Whether it waits for tasks before it.
    pub(super) fn is_held(&self) -> bool {
        self.is_held
    }
}

impl Default for TaskSlot {
    fn default() -> TaskSlot {
        TaskSlot {
            place: NOWHERE,
            instance: 0,
            epoch: 0,
            has_come: false,
            may_begin: false,
            is_held: false,
            want: 0,
            data_in_len: 0,
            transfer_len: 0,
            op: IoOp::Other,
        }
    }
}

impl IscsiConnection {
    #[inline]
    pub(super) fn slot(&mut self, tag: Tag) -> &mut TaskSlot {
        &mut self.slots[usize::from(tag)]
    }

    /// A task is seen for the first time: takes its place in the order of those
    /// for its unit.
    #[inline]
    pub(super) fn enter_task_set(&mut self, tag: Tag, task: &Task) {
        let index = usize::from(tag);
        if index >= self.slots.len() {
            let len = machine::Machine::tags_max(&self.core.link.machine).max(index + 1);
            self.slots.resize_with(len, TaskSlot::default);
        }
        if self.slots[index].has_come {
            return;
        }
        let mut slot = TaskSlot {
            has_come: true,
            may_begin: true,
            ..TaskSlot::default()
        };
        let id = (self.core.id(), tag);
        let bound = self.bound();
        if let Address::Unit(lun) = Address::parse(task.lun)
            && let Some(place) = bound.served.place_of(lun)
            && let Some(lun) = bound.served.at(place)
        {
            slot.place = place;
            slot.instance = lun.instance;
            let mut session = bound.session.borrow_mut();
            (slot.may_begin, slot.epoch) = session.enter(place, id, task.attribute);
        }
        self.slots[index] = slot;
    }

    /// A task is over: others may begin.
    #[inline]
    fn task_ended(&mut self, tag: Tag) {
        let slot = std::mem::take(self.slot(tag));
        if slot.place == NOWHERE {
            return;
        }
        let id = (self.core.id(), tag);
        let session = &self.bound().session;
        let begins = session.borrow_mut().leave(slot.place, slot.epoch, id);
        if begins {
            self.note_begun();
        }
    }

    /// Tasks of some connections of the session may begin.
    #[cold]
    pub(super) fn note_begun(&self) {
        let session = self.session();
        let mut due = self.local.due.borrow_mut();
        due.extend(session.beginning());
    }

    /// The machine was run: others of the session may have their turn now.
    #[inline]
    pub(super) fn note_due(&mut self) {
        let Some(session) = self.core.link.machine.session() else {
            return;
        };
        let mut session = session.borrow_mut();
        if session.connections().len() > 1 {
            while let Some(cid) = session.next_due() {
                let own = self.bound().session.borrow();
                let found = own.connections.iter().find(|(known, _)| *known == cid);
                let found = found.map(|(_, connection)| *connection);
                self.local.due.borrow_mut().extend(found);
            }
        }
    }

    /// Begins tasks of this connection that had waited for others, as far as its
    /// share of the turn goes.
    pub(super) fn begin_held<D: Driver>(&mut self, driver: &mut D) {
        if !self.core.is_open() {
            return;
        }
        let me = self.core.id();
        while !self.core.gives_way() {
            let Some(bound) = &self.bound else { return };
            let Some((_, tag)) = bound.session.borrow_mut().take_begun(me) else {
                return;
            };
            let slot = self.slot(tag);
            slot.may_begin = true;
            if !std::mem::take(&mut slot.is_held) {
                continue;
            }
            let task = *self.core.link.machine.task(tag);
            work::spend(work::OPERATION_UNITS);
            if !self.begin(tag, &task, driver) {
                self.wait(TargetOp::Execute { tag, task });
            }
        }
    }

    /// Whether reservations let the nexus do this at a place now.
    #[inline]
    pub(super) fn may_access(&self, place: u32, access: ReservationAccess) -> bool {
        let volume = &self.place(place).volume;
        self.session_mut().may_access(place, volume, access)
    }

    /// The I/O that a task begins, on the unit that it names.
    pub(super) fn demand_of(&self, task: &Task) -> Option<Demand> {
        let bound = self.bound.as_ref()?;
        let Address::Unit(lun) = Address::parse(task.lun) else {
            return None;
        };
        let unit = bound.served.place_of(lun)?;
        let lun = bound.served.at(unit)?;
        let (op, bytes) = match decode(&task.cdb, &lun.unit).ok()? {
            Command::Io(io) => match io.kind {
                IoKind::Read | IoKind::Verify(_) => (IoOp::Read, io.len),
                IoKind::WriteSame { unmap: true, .. } => (IoOp::Write, 0),
                IoKind::Write
                | IoKind::WriteAtomic
                | IoKind::WriteAndVerify { .. }
                | IoKind::CompareAndWrite
                | IoKind::WriteSame { .. }
                | IoKind::OrWrite => (IoOp::Write, io.len),
                IoKind::Flush { .. } | IoKind::PreFetch => return None,
            },
            Command::Unmap { .. }
            | Command::WriteUsingToken { .. }
            | Command::ExtendedCopy { .. } => (IoOp::Write, 0),
            _ => return None,
        };
        Some(Demand { unit, op, bytes })
    }

    /// Provides memory for the data of a command, as far as the command wants
    /// it; false while there is none.
    #[inline]
    pub(super) fn prepare(&mut self, tag: Tag, task: &Task, staged: bool) -> bool {
        self.enter_task_set(tag, task);
        let slot = *self.slot(tag);
        let (want, medium) = self.wanted(&slot, task);
        if want > 0 {
            let data = match medium {
                // Where it stays until the next receive: too short a time for
                // one that waits for others.
                Some(_) if staged && slot.may_begin && want == task.edtl => {
                    Some(CommandMemory::staged())
                }
                medium => {
                    let medium = medium.filter(|_| !staged);
                    let volume = medium.map(|at| (&self.place(slot.place).volume, at));
                    let loan = volume.and_then(|(volume, at)| volume.borrow(at, want));
                    payload::destination(loan, &self.core.pool, want)
                }
            };
            let Some(data) = data.or_else(|| self.spare_for(tag, want)) else {
                return self.refuse_in_the_way(tag);
            };
            self.core.link.set_data(tag, data);
        }
        self.slot(tag).want = want;
        self.core.link.machine.prepared(tag, want);
        true
    }

    /// There is no memory for a command. Whether it was refused: its data stands
    /// before data of commands that have memory, which would never end and give it
    /// back. Initiators send it again when others of theirs have ended.
    #[cold]
    pub(super) fn refuse_in_the_way(&mut self, tag: Tag) -> bool {
        let is_in_the_way = self.core.link.machine.is_blocked_on(tag);
        if is_in_the_way {
            self.no_room(tag);
        }
        is_in_the_way
    }

    /// Completes a command that there is no memory for: to be sent again when
    /// another has ended, or, if there is none, later (SAM-5, section 5.3.1).
    #[cold]
    pub(super) fn no_room(&mut self, tag: Tag) {
        let place = self.slot(tag).place;
        let has_others = place != NOWHERE && self.session().tasks(place) > 1;
        self.status(
            tag,
            match has_others {
                true => scsi::status::TASK_SET_FULL,
                false => scsi::status::BUSY,
            },
        );
    }

    /// Memory that is kept for commands that keep everything behind them from
    /// being received, `None` for any other.
    #[cold]
    pub(super) fn spare_for(&self, tag: Tag, len: u32) -> Option<CommandMemory> {
        let is_in_the_way = self.core.link.machine.is_blocked_on(tag);
        let buf = is_in_the_way.then(|| self.core.pool.get_spare(len))?;
        buf.map(CommandMemory::owned)
    }

    /// How many bytes of a task's data are wanted, and where they go on the
    /// volume, of a plain write. 0 where it will be refused.
    #[inline]
    fn wanted(&self, slot: &TaskSlot, task: &Task) -> (u32, Option<u64>) {
        if slot.place == NOWHERE || !task.write {
            return (0, None);
        }
        let lun = self.place_of(slot);
        let Some(lun) = lun else { return (0, None) };
        let Ok(command) = decode(&task.cdb, &lun.unit) else {
            return (0, None);
        };
        if !self.may_access(slot.place, needs(&command)) {
            return (0, None);
        }
        let block_bytes = lun.unit.block_bytes;
        let len = command.data_out_len(block_bytes);
        match command {
            Command::Io(io) => {
                let sent = u64::from(task.edtl);
                let written = written(len, sent, block_bytes).unwrap_or(0) as u32;
                match io.kind {
                    IoKind::Write | IoKind::WriteAtomic => (written, Some(io.offset)),
                    IoKind::WriteAndVerify { .. } => (written, None),
                    _ => (len.min(sent) as u32, None),
                }
            }
            _ => (
                len.min(LIST_BYTES_MAX.into()).min(task.edtl.into()) as u32,
                None,
            ),
        }
    }

    /// The unit of a task, if it is still the one that it came for.
    #[inline]
    fn place_of(&self, slot: &TaskSlot) -> Option<&super::Lun> {
        let lun = self.bound().served.at(slot.place)?;
        (lun.instance == slot.instance).then_some(lun)
    }

    /// All of a command is here: executes it, or keeps it until those before it
    /// are over. False while memory is short.
    #[inline]
    pub(super) fn execute_task<D: Driver>(
        &mut self,
        tag: Tag,
        task: &Task,
        driver: &mut D,
    ) -> bool {
        tracing::debug!(peer = %self.core.via.peer, ?task, "execute");
        self.enter_task_set(tag, task);
        let slot = self.slot(tag);
        if !slot.may_begin {
            slot.is_held = true;
            return true;
        }
        self.begin(tag, task, driver)
    }

    /// Executes a command whose turn it is; false while memory is short.
    #[inline]
    fn begin<D: Driver>(&mut self, tag: Tag, task: &Task, driver: &mut D) -> bool {
        let slot = *self.slot(tag);
        let Some(lun) = (slot.place != NOWHERE)
            .then(|| self.place_of(&slot))
            .flatten()
        else {
            return self.execute_elsewhere(tag, task);
        };
        let place = slot.place;
        let command = decode(&task.cdb, &lun.unit);
        if let Ok(command) = &command
            && !self.may_access(place, needs(command))
        {
            self.status(tag, scsi::status::RESERVATION_CONFLICT);
            return true;
        }
        let pending = self.session_mut().nexus(place).intercept(task.cdb[0]);
        let command = match (pending, command) {
            (None, Ok(command)) => command,
            (Some(sense), _) | (None, Err(sense)) => {
                self.check(tag, &sense);
                return true;
            }
        };
        if goes_wrong_way(task, &command, lun.unit.block_bytes) {
            self.check(tag, &super::io::short_data());
            return true;
        }
        match command {
            Command::Io(io) if io.kind == IoKind::Read => self.read(tag, task, place, io, driver),
            Command::Io(io) if matches!(io.kind, IoKind::Write | IoKind::WriteAtomic) => {
                self.write(tag, task, place, io, driver)
            }
            _ => self.execute_command(tag, task, place, &command, driver),
        }
    }

    /// Everything but reads and writes.
    fn execute_command<D: Driver>(
        &mut self,
        tag: Tag,
        task: &Task,
        place: u32,
        command: &Command,
        driver: &mut D,
    ) -> bool {
        let block_bytes = self.place(place).unit.block_bytes;
        let len = command.data_out_len(block_bytes);
        let sent = if task.write { u64::from(task.edtl) } else { 0 };
        self.slot(tag).transfer_len = len;
        let needed = match needed(command, len, sent, block_bytes) {
            Ok(needed) => needed,
            Err(sense) => {
                self.refuse_length(tag, &sense);
                return true;
            }
        };
        let is_list = !matches!(command, Command::Io(_));
        if is_list && len > LIST_BYTES_MAX.into() {
            self.check(tag, &Sense::list_length());
            return true;
        }
        if u64::from(self.slot(tag).want) < needed {
            // It was to be refused when its data was about to come.
            self.status(tag, scsi::status::BUSY);
            return true;
        }
        match *command {
            Command::Io(_) if needed == 0 && len > 0 => {
                self.complete_good(tag);
                true
            }
            Command::Io(io) => self.execute_steps(tag, place, io, driver),
            Command::Unmap { list_len } => self.unmap(tag, place, list_len, driver),
            Command::CryptographicErase => self.cryptographic_erase(tag, place),
            Command::GetLbaStatus {
                offset,
                allocation_len,
            } => self.get_lba_status(tag, place, offset, allocation_len),
            Command::ProvisioningLog { allocation_len } => {
                self.provisioning_log(tag, place, allocation_len)
            }
            Command::StartStop { flush: true, .. } => self.flush(tag, place, driver),
            Command::ModeSelect(select) => self.mode_select(tag, place, &select),
            Command::SetTargetPortGroups { list_len } => {
                self.set_target_port_groups(tag, place, list_len)
            }
            Command::PersistentReserveIn {
                action,
                allocation_len,
            } => self.persistent_reserve_in(tag, place, action, allocation_len),
            Command::PersistentReserveOut {
                action,
                scope,
                kind,
                list_len,
            } => self.persistent_reserve_out(tag, place, (action, scope, kind, list_len), driver),
            Command::Reserve => {
                self.reserve(tag, place);
                true
            }
            Command::Release => {
                self.release(tag, place);
                true
            }
            Command::ExtendedCopy { list_len } => self.extended_copy(tag, place, list_len, driver),
            Command::ReceiveCopyResults {
                action,
                list_id,
                allocation_len,
            } => self.receive_copy_results(tag, (action, list_id, allocation_len)),
            _ => self.execute_rod_command(tag, place, command, driver),
        }
    }

    /// The data that the initiator has sent, all that is wanted of it.
    pub(super) fn data_out(&self, tag: Tag) -> Option<BufRange> {
        self.core.link.range(tag)
    }

    /// Completes a command without data to the initiator.
    #[inline]
    pub(super) fn complete_good(&mut self, tag: Tag) {
        self.good_with(tag, 0);
    }

    /// Completes a command with so much data that it has for the initiator,
    /// from the start of its memory.
    #[inline]
    pub(super) fn good_with(&mut self, tag: Tag, len: u32) {
        let task = self.core.link.machine.task(tag);
        let takes = if task.read { task.edtl } else { 0 };
        let transfer_len = self.slot(tag).transfer_len;
        let done = match len {
            0 => Done::good(transfer_len),
            len => Done::read(len.min(takes), len.into()),
        };
        self.complete(tag, done);
    }

    /// An I/O has succeeded, and with it the command.
    #[inline]
    pub(super) fn io_succeeded(&mut self, tag: Tag) {
        let TaskSlot {
            data_in_len,
            transfer_len,
            ..
        } = *self.slot(tag);
        self.complete(tag, Done::read(data_in_len, transfer_len));
    }

    /// Completes a command with CHECK CONDITION.
    #[cold]
    pub(super) fn check(&mut self, tag: Tag, sense: &Sense) {
        let done = self.check_condition(tag, sense);
        self.complete(tag, done);
    }

    /// The same where the initiator announces less than the CDB says: the residual
    /// tells by how much.
    #[cold]
    pub(super) fn refuse_length(&mut self, tag: Tag, sense: &Sense) {
        let mut done = self.check_condition(tag, sense);
        done.transfer_len = self.slot(tag).transfer_len;
        self.complete(tag, done);
    }

    fn check_condition(&mut self, tag: Tag, sense: &Sense) -> Done {
        let place = self.slot(tag).place;
        let bound = self.bound();
        let lun = (place != NOWHERE).then(|| bound.served.at(place)).flatten();
        let descriptor = lun.is_some_and(|lun| lun.unit.modes.descriptor_sense);
        let mut bytes = scsi::SenseBytes::EMPTY;
        sense.encode(descriptor, &mut bytes);
        self.core.link.take_data(tag);
        Done::check_condition(bytes)
    }

    /// Completes a command with a status that needs no sense data.
    #[cold]
    pub(super) fn status(&mut self, tag: Tag, status: u8) {
        self.core.link.take_data(tag);
        self.complete(tag, Done::status(status));
    }

    #[inline]
    fn complete(&mut self, tag: Tag, done: Done) {
        self.task_ended(tag);
        self.core.link.machine.complete(tag, done);
    }

    /// Ends a task before its time, wherever it stands: with a status, or
    /// without a response.
    pub(super) fn end_task<D: Driver>(&mut self, tag: Tag, done: Done, driver: &mut D) {
        let job = self.core.jobs.borrow().find(self.core.id(), tag);
        match job {
            Some(job) => drop(self.orphan(job, driver)),
            None => drop(self.core.take_waiting(tag)),
        }
        self.core.link.take_data(tag);
        if self
            .slots
            .get(usize::from(tag))
            .is_some_and(|slot| slot.has_come)
        {
            self.task_ended(tag);
        }
        self.core.link.machine.complete(tag, done);
    }

    /// The machine has given up on a task whose data was wrong or did not come
    /// as promised, and answers it.
    #[cold]
    pub(super) fn given_up(&mut self, tag: Tag) {
        let waited = self.core.take_waiting(tag);
        self.task_ended(tag);
        if waited.is_some() {
            self.core
                .link
                .machine
                .complete(tag, Done::status(scsi::status::BUSY));
        }
    }

    /// The connection is over: none of its tasks is in the way of others.
    pub(super) fn leave_tasks(&mut self) {
        for at in 0..self.slots.len() {
            if self.slots[at].has_come {
                self.task_ended(at as Tag);
            }
        }
    }

    /// Aborts a task, which then has no response; whether there was one.
    pub(super) fn abort_task<D: Driver>(&mut self, tag: Tag, driver: &mut D) -> bool {
        match self.core.link.machine.abort(tag) {
            AbortOutcome::Gone => false,
            AbortOutcome::Aborted => {
                self.core.take_waiting(tag);
                self.core.link.take_data(tag);
                if self
                    .slots
                    .get(usize::from(tag))
                    .is_some_and(|slot| slot.has_come)
                {
                    self.task_ended(tag);
                }
                true
            }
            AbortOutcome::Executing => {
                self.end_task(tag, Done::aborted(), driver);
                true
            }
        }
    }

    /// The tasks in flight that are `meant`.
    pub(super) fn tasks(&self, meant: impl Fn(&Task) -> bool) -> Vec<Tag> {
        let tasks = self.core.link.machine.tasks();
        tasks
            .filter(|(_, task)| meant(task))
            .map(|(tag, _)| tag)
            .collect()
    }

    /// Ends the tasks that are on a volume, or wait for it: their nexus has lost its
    /// right to them.
    pub(super) fn end_tasks_on<D: Driver>(&mut self, volume: &Arc<dyn Volume>, driver: &mut D) {
        let bound = self.bound();
        let on_volume = |task: &Task| match Address::parse(task.lun) {
            Address::Unit(lun) => {
                let lun = (bound.served.place_of(lun)).and_then(|place| bound.served.at(place));
                lun.is_some_and(|lun| Arc::ptr_eq(&lun.volume, volume))
            }
            _ => false,
        };
        for tag in self.tasks(on_volume) {
            self.abort_task(tag, driver);
        }
        self.run(driver);
    }
}
