//! A target that executes a few commands on a byte vector.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use iscsi::accepted::AcceptedConnection;
use iscsi::target::{AbortOutcome, ConnectionRole, Done, FatalError, RejectedPdu, TargetOp, Task};
use iscsi::{LoginAnswer, Session};
use machine::{Machine, Tag};
use testkit::End;
use wire::iscsi::{
    LoginStatus, LogoutReason, LogoutResponseCode, TAG_NONE, TaskFunction, TaskResponse, flags,
};
use wire::scsi::{SenseBytes, asc, key};

/// Bytes of a block of [`TargetDouble::media`].
pub const BLOCK: usize = 512;

/// Bytes of an INQUIRY answer: no multiple of 4, so that it is padded.
const INQUIRY_LEN: u32 = 61;

/// A target whose logical units all lie on one byte vector: READ (10), WRITE (10),
/// INQUIRY and TEST UNIT READY are all that it executes. Every login
/// succeeds with the values that it was made with.
#[derive(Debug)]
pub struct TargetDouble {
    /// The machine and its memory.
    pub end: End<AcceptedConnection>,
    /// What the logical units hold.
    pub media: Vec<u8>,
    /// Tasks that wait for memory, and how much of it.
    pub starved: Vec<(Tag, u32)>,
    /// Tasks that wait to be executed.
    pub work: Vec<(Tag, Task)>,
    /// Task management functions that wait, with their CmdSNs and the tasks that
    /// they refer to.
    pub functions: Vec<(Tag, TaskFunction, u32, Option<Tag>)>,
    /// Login texts and texts of the full feature phase that arrived.
    pub texts: Vec<Vec<u8>>,
    /// What every text is answered with.
    pub text_answer: Vec<u8>,
    /// Logouts that arrived.
    pub logouts: Vec<(LogoutReason, u16)>,
    /// PDUs that were refused.
    pub refused: Vec<RejectedPdu>,
    /// Tasks whose data was said to be staged.
    pub staged: usize,
    /// Why the connection ended.
    pub fatal: Option<FatalError>,
    /// Tags named by an operation and not released yet.
    pub named: Vec<bool>,
    role: ConnectionRole,
    checked: usize,
}

impl TargetDouble {
    /// `machine` on `media`; its login makes it `role`.
    pub fn new(machine: AcceptedConnection, role: ConnectionRole, media: Vec<u8>) -> TargetDouble {
        TargetDouble {
            end: End::new(machine),
            media,
            starved: Vec::new(),
            work: Vec::new(),
            functions: Vec::new(),
            texts: Vec::new(),
            text_answer: Vec::new(),
            logouts: Vec::new(),
            refused: Vec::new(),
            staged: 0,
            fatal: None,
            named: Vec::new(),
            role,
            checked: 0,
        }
    }

    /// The session.
    pub fn session(&self) -> &Rc<RefCell<Session>> {
        &self.role.session
    }

    /// Takes every operation there is. Memory is left for [`TargetDouble::feed`],
    /// commands for [`TargetDouble::execute`], task management for
    /// [`TargetDouble::manage`]; everything else is answered.
    pub fn take_ops(&mut self) {
        while let Some(op) = self.end.next_op() {
            match op {
                TargetOp::Login => self.login(),
                TargetOp::Text => {
                    let request = self.end.machine.take_text();
                    self.texts.push(request.text);
                    let answer = self.text_answer.clone();
                    self.end.machine.text_answer(answer, None);
                }
                TargetOp::Prepare { tag, task, staged } => {
                    self.name(tag);
                    self.staged += usize::from(staged);
                    self.starved.push((tag, wanted(&task)));
                }
                TargetOp::Execute { tag, task } => {
                    if !self.named.get(usize::from(tag)).is_some_and(|named| *named) {
                        self.name(tag);
                    }
                    self.work.push((tag, task));
                }
                TargetOp::Ping { tag, len } => {
                    self.name(tag);
                    self.starved.push((tag, len));
                }
                TargetOp::TaskManagement {
                    tag,
                    function,
                    referenced,
                    ..
                } => {
                    self.name(tag);
                    let cmd_sn = self.end.machine.task(tag).cmd_sn;
                    self.functions.push((tag, function, cmd_sn, referenced));
                }
                TargetOp::Logout { reason, cid } => {
                    self.logouts.push((reason, cid));
                    let last = reason == LogoutReason::CloseSession || cid == self.role.cid;
                    let response = LogoutResponseCode::Success;
                    self.end.machine.logout_answer(response, last, (2, 20));
                }
                TargetOp::GivenUp { tag } => {
                    assert!(self.named[usize::from(tag)], "a task without a name");
                    if let Some(index) = self.starved.iter().position(|(own, _)| *own == tag) {
                        self.starve(index);
                    }
                }
                TargetOp::Refused(refused) => self.refused.push(refused),
                TargetOp::Fatal(error) => self.fatal = Some(error),
            }
        }
    }

    fn login(&mut self) {
        let step = self.end.machine.take_login();
        let mut answer = LoginAnswer::new(&step.request, LoginStatus::Success);
        self.texts.push(step.text);
        answer.response.flags = step.request.flags & !flags::CONTINUE;
        answer.text = self.text_answer.clone();
        if step.request.flags & flags::TRANSIT != 0 {
            answer.response.tsih = 7.into();
            self.end.machine.attach(self.role.clone());
        }
        self.end.machine.login_answer(answer);
    }

    fn name(&mut self, tag: Tag) {
        let index = usize::from(tag);
        if self.named.len() <= index {
            self.named.resize(index + 1, false);
        }
        assert!(!self.named[index], "a tag was used twice");
        self.named[index] = true;
    }

    fn unname(&mut self, tag: Tag) {
        let named = std::mem::replace(&mut self.named[usize::from(tag)], false);
        assert!(named, "a tag that no operation named");
    }

    /// Gives the task at `index` of [`TargetDouble::starved`] its memory.
    pub fn feed(&mut self, index: usize) {
        let (tag, wanted) = self.starved.swap_remove(index);
        self.end.set_memory(tag, vec![0xee; wanted as usize]);
        self.end.machine.prepared(tag, wanted);
        self.take_ops();
    }

    /// Refuses the task at `index` of [`TargetDouble::starved`].
    pub fn starve(&mut self, index: usize) {
        let (tag, _) = self.starved.swap_remove(index);
        self.end.machine.complete(tag, failed());
        self.take_ops();
    }

    /// Executes the task at `index` of [`TargetDouble::work`].
    pub fn execute(&mut self, index: usize) {
        let (tag, task) = self.work.swap_remove(index);
        let done = self.executed(tag, &task);
        self.end.machine.complete(tag, done);
    }

    fn executed(&mut self, tag: Tag, task: &Task) -> Done {
        let cdb = &task.cdb;
        match cdb[0] {
            0x00 => Done::good(0),
            0x12 => {
                let len = u32::from(u16::from_be_bytes([cdb[3], cdb[4]])).min(INQUIRY_LEN);
                let bytes = (0..len).map(|byte| byte as u8).collect();
                self.end.set_memory(tag, bytes);
                Done::read(sendable(task, len), len.into())
            }
            0x28 => {
                let Some(range) = self.range(cdb) else {
                    return failed();
                };
                let len = range.len() as u32;
                self.end.set_memory(tag, self.media[range].to_vec());
                Done::read(sendable(task, len), len.into())
            }
            0x2a => {
                let Some(range) = self.range(cdb) else {
                    return failed();
                };
                let len = range.len();
                let come = wanted(task) as usize;
                if come > 0 {
                    let data = &self.end.memory[usize::from(tag)][..come];
                    self.media[range][..come].copy_from_slice(data);
                }
                Done::good(len as u64)
            }
            _ => failed(),
        }
    }

    fn range(&self, cdb: &[u8; 16]) -> Option<std::ops::Range<usize>> {
        let (lba, blocks) = place(cdb);
        let (start, end) = (lba * BLOCK, (lba + blocks) * BLOCK);
        (end <= self.media.len()).then_some(start..end)
    }

    /// Does what the function at `index` of [`TargetDouble::functions`] says; those
    /// for more than one task end all.
    pub fn manage(&mut self, index: usize) {
        let (tag, function, cmd_sn, referenced) = self.functions.swap_remove(index);
        let response = match function {
            TaskFunction::AbortTask => {
                referenced.into_iter().for_each(|task| self.abort(task));
                TaskResponse::Complete
            }
            TaskFunction::QueryTask => TaskResponse::Succeeded,
            TaskFunction::ClearAca => TaskResponse::NotSupported,
            _ => {
                let concerned = self.end.machine.tasks_before(cmd_sn);
                let tags: Vec<Tag> = concerned.map(|(tag, _)| tag).collect();
                tags.into_iter().for_each(|task| self.abort(task));
                TaskResponse::Complete
            }
        };
        self.end.machine.task_management_done(tag, response);
        self.take_ops();
    }

    /// Aborts a task, in whatever state it is.
    pub fn abort(&mut self, tag: Tag) {
        match self.end.machine.abort(tag) {
            AbortOutcome::Gone => return,
            AbortOutcome::Aborted => {}
            AbortOutcome::Executing => {
                self.starved.retain(|(starved, _)| *starved != tag);
                self.work.retain(|(waiting, _)| *waiting != tag);
                self.end.machine.complete(tag, Done::aborted());
            }
        }
        self.unname(tag);
        // A write there from now on would be found out.
        self.end.set_memory(tag, Vec::new());
    }

    /// Sends at most `pdus_max` PDUs and checks what was released.
    pub fn transmit(&mut self, stream: &mut VecDeque<u8>, pdus_max: usize) {
        self.end.transmit(stream, pdus_max);
        self.take_released();
    }

    /// The same of a machine that may have nothing to send after all: whether it sent.
    pub fn transmit_some(&mut self, stream: &mut VecDeque<u8>) -> bool {
        let has_sent = self.end.transmit_some(stream, usize::MAX);
        self.take_released();
        has_sent
    }

    fn take_released(&mut self) {
        for at in self.checked..self.end.released.len() {
            self.unname(self.end.released[at]);
        }
        self.checked = self.end.released.len();
        if self.end.machine.has_step() {
            self.take_ops();
        }
    }

    /// Receives all of `stream` at once and does everything there is to do.
    pub fn serve(&mut self, stream: &mut VecDeque<u8>, out: &mut VecDeque<u8>) {
        loop {
            let mut is_busy = self.end.receive(stream, usize::MAX) > 0;
            self.take_ops();
            while !self.starved.is_empty() {
                self.feed(0);
            }
            while !self.work.is_empty() {
                self.execute(0);
            }
            while !self.functions.is_empty() {
                self.manage(0);
            }
            is_busy |= self.end.machine.has_transmit();
            self.transmit(out, usize::MAX);
            if !is_busy && !self.end.machine.has_step() {
                return;
            }
        }
    }
}

/// Bytes that a task wants from the initiator.
pub fn wanted(task: &Task) -> u32 {
    let len = match task.cdb[0] {
        0x2a => (place(&task.cdb).1 * BLOCK) as u32,
        _ => 0,
    };
    len.min(if task.write { task.edtl } else { 0 })
}

fn sendable(task: &Task, len: u32) -> u32 {
    len.min(if task.read { task.edtl } else { 0 })
}

fn place(cdb: &[u8; 16]) -> (usize, usize) {
    let lba = u32::from_be_bytes([cdb[2], cdb[3], cdb[4], cdb[5]]);
    let blocks = u16::from_be_bytes([cdb[7], cdb[8]]);
    (lba as usize, blocks.into())
}

fn failed() -> Done {
    let [asc, ascq] = asc::INVALID_COMMAND_OPERATION_CODE.to_be_bytes();
    let mut sense = [0; 18];
    (sense[0], sense[2], sense[7]) = (0x70, key::ILLEGAL_REQUEST, 10);
    (sense[12], sense[13]) = (asc, ascq);
    Done::check_condition(SenseBytes::new(&sense))
}

/// The Target Transfer Tag of unsolicited data.
pub const UNSOLICITED: u32 = TAG_NONE;
