//! Task management functions (RFC 7143, section 11.5).

use machine::Tag;
use wire::iscsi::{
    Bhs, RejectReason, TAG_NONE, TaskFunction, TaskManagementRequest, TaskResponse, flags,
};

use super::tasks::{Kind, State};
use super::{Connection, TargetOp, Task};

impl Connection {
    /// Task Management Function Request. A function for many tasks waits for the
    /// commands that it may concern: those with a lower CmdSN. One for a single
    /// task does not: that came, if it did, on this connection.
    pub(super) fn task_management(&mut self, bhs: &Bhs, holds_window: bool) {
        let request: &TaskManagementRequest = bhs.cast();
        let itt = request.itt.get();
        let function = TaskFunction::from_value(request.flags & flags::FUNCTION_MASK);
        let reason = match function {
            _ if itt == TAG_NONE || self.is_discovery => Some(RejectReason::ProtocolError),
            None => Some(RejectReason::InvalidPduField),
            Some(_) if self.is_in_progress(itt) => Some(RejectReason::TaskInProgress),
            Some(_) => None,
        };
        if let Some(reason) = reason {
            return self.reject(bhs, reason, holds_window);
        }
        let Some((tag, _)) = self.tasks.take(itt, self.tasks_max()) else {
            return self.reject(bhs, RejectReason::ImmediateCommandReject, holds_window);
        };
        let slot = &mut self.tasks[tag];
        slot.kind = Kind::Function;
        slot.state = State::Waiting;
        slot.holds_window = holds_window;
        slot.status = function.map_or(0, |function| function as u8);
        // Where the answer's numbers will be, the question's are until then.
        slot.expected = request.referenced_task_tag.get();
        slot.wanted = request.ref_cmd_sn.get();
        let task = Task {
            lun: u64::from_be_bytes(request.lun),
            itt,
            cmd_sn: request.cmd_sn.get(),
            ..*self.tasks.task(tag)
        };
        self.tasks.set_task(tag, task);
        self.functions.push_back(tag);
        if !self.is_due(tag) {
            self.session.borrow_mut().wait(task.cmd_sn, self.cid);
        }
    }

    /// Whether a function's turn has come.
    #[inline]
    pub(super) fn has_function(&self) -> bool {
        !self.functions.is_empty() && self.due_function().is_some()
    }

    fn due_function(&self) -> Option<usize> {
        self.functions.iter().position(|tag| self.is_due(*tag))
    }

    fn is_due(&self, tag: Tag) -> bool {
        let function = TaskFunction::from_value(self.tasks[tag].status);
        let is_for_one = matches!(
            function,
            Some(TaskFunction::AbortTask | TaskFunction::QueryTask | TaskFunction::TaskReassign)
        );
        let cmd_sn = self.tasks.task(tag).cmd_sn;
        is_for_one || self.session.borrow().has_all_before(cmd_sn)
    }

    /// The next function for the driver; those that concern a task which is not
    /// there, or that are not supported, are answered here.
    #[cold]
    pub(super) fn next_function(&mut self) -> Option<TargetOp> {
        while let Some(at) = self.due_function() {
            let tag = self.functions.remove(at)?;
            let slot = self.tasks[tag];
            let function = TaskFunction::from_value(slot.status)?;
            let referenced = match function {
                TaskFunction::AbortTask => {
                    let found = self.referenced(slot.expected, self.tasks.task(tag).lun);
                    if found.is_none() {
                        let response = self.absent(tag);
                        self.answer_function(tag, response);
                        continue;
                    }
                    found
                }
                TaskFunction::TaskReassign => {
                    // That is what ErrorRecoveryLevel 2 would be.
                    self.answer_function(tag, TaskResponse::ReassignmentNotSupported);
                    continue;
                }
                TaskFunction::QueryTask => {
                    // It is RFC 7144's, whether or not there is such a task.
                    self.answer_function(tag, TaskResponse::NotSupported);
                    continue;
                }
                _ => None,
            };
            let slot = &mut self.tasks[tag];
            slot.state = State::Executing;
            slot.is_named = true;
            return Some(TargetOp::TaskManagement {
                tag,
                function,
                lun: self.tasks.task(tag).lun,
                referenced,
            });
        }
        None
    }

    /// The command that a function refers to, if it is not answered yet.
    fn referenced(&self, itt: u32, lun: u64) -> Option<Tag> {
        let tag = self.tasks.find(itt)?;
        let slot = &self.tasks[tag];
        let is_open = !matches!(slot.state, State::Responding | State::Kept);
        let is_it = slot.kind == Kind::Scsi && is_open && self.tasks.task(tag).lun == lun;
        is_it.then_some(tag)
    }

    /// The answer to ABORT TASK of a task that does not exist (section 11.6.1): one
    /// that has not come yet never will.
    fn absent(&mut self, tag: Tag) -> TaskResponse {
        let (ref_cmd_sn, cmd_sn) = (self.tasks[tag].wanted, self.tasks.task(tag).cmd_sn);
        let is_before = wire::iscsi::serial_distance(ref_cmd_sn, cmd_sn) > 0;
        match is_before && self.session.borrow_mut().plug_gap(ref_cmd_sn) {
            true => TaskResponse::Complete,
            false => TaskResponse::NoTask,
        }
    }

    /// The answer to [`TargetOp::TaskManagement`]: its effects are complete.
    pub fn task_management_done(&mut self, tag: Tag, response: TaskResponse) {
        if !self.is_open() {
            return;
        }
        let slot = &self.tasks[tag];
        assert!(
            slot.kind == Kind::Function && slot.state == State::Executing,
            "answered what is no function"
        );
        self.answer_function(tag, response);
    }

    fn answer_function(&mut self, tag: Tag, response: TaskResponse) {
        let slot = &mut self.tasks[tag];
        slot.state = State::Responding;
        slot.status = response as u8;
        self.queue(tag);
    }
}
