//! Task management: functions that end tasks before their time, answered at
//! once, whatever the tasks' volumes do.

use std::sync::Arc;

use engine::{About, Elsewhere as _, Scope};
use iscsi::SessionId;
use iscsi::target::Task;
use machine::Tag;
use reactor::Driver;
use scsi::Attention;
use scsi::lun::Lun as Address;
use store::Volume;
use wire::iscsi::{TaskFunction, TaskResponse};

use super::{CommandAnswer, IscsiConnection, OwnMail, Service};

/// Tasks to be ended on every reactor.
#[derive(Debug)]
pub struct Ending {
    /// The target that they were sent to.
    target: String,
    /// The units; `None` for all.
    luns: Option<Vec<u16>>,
    /// The session of the function, and the CmdSN that its tasks are before.
    by: (SessionId, u32),
    /// Of that nexus alone.
    only_own: bool,
}

impl Ending {
    fn concerns(&self, lun: u16) -> bool {
        self.luns.as_ref().is_none_or(|luns| luns.contains(&lun))
    }
}

impl IscsiConnection {
    /// The units that its initiator sees, where those are not all.
    pub(super) fn mask(&self) -> Option<Vec<u16>> {
        let id = self.session().id;
        let registry = self.service.registry();
        registry
            .session(id)
            .and_then(|session| session.luns.clone())
    }

    /// Whether its initiator may end the sessions of all others: where the target
    /// says so, and it sees all units.
    fn may_reset_cold(&self) -> bool {
        let registry = self.service.registry();
        let session = registry.session(self.session().id);
        session.is_some_and(|session| {
            let target = session.target.as_ref();
            let allows = target.is_some_and(|target| target.limits.target_cold_reset);
            allows && session.luns.is_none()
        })
    }

    /// A task management function, which all that was sent before it has come
    /// before.
    pub(super) fn task_management<D: Driver>(
        &mut self,
        tag: Tag,
        function: TaskFunction,
        lun: u64,
        referenced: Option<Tag>,
        driver: &mut D,
    ) {
        tracing::debug!(peer = %self.core.via.peer, %function, lun, ?referenced, "task management");
        let unit = match Address::parse(lun) {
            Address::Unit(lun) => self.bound().served.place_of(lun).map(|_| lun),
            _ => None,
        };
        let response = match (function, unit) {
            (TaskFunction::AbortTask, _) => {
                let is_aborted = referenced.is_some_and(|task| self.abort_task(task, driver));
                match is_aborted {
                    true => TaskResponse::Complete,
                    false => TaskResponse::NoTask,
                }
            }
            (TaskFunction::AbortTaskSet | TaskFunction::ClearTaskSet, Some(lun)) => {
                return self.end_tasks_everywhere(tag, Some(vec![lun]), true, driver);
            }
            (TaskFunction::LogicalUnitReset, Some(lun)) => {
                return self.end_tasks_everywhere(tag, Some(vec![lun]), false, driver);
            }
            // What it does not see is not its to reset.
            (TaskFunction::TargetWarmReset, _) => {
                let luns = self.mask();
                return self.end_tasks_everywhere(tag, luns, false, driver);
            }
            (TaskFunction::TargetColdReset, _) if self.may_reset_cold() => {
                return self.cold_reset(tag, driver);
            }
            (
                TaskFunction::AbortTaskSet
                | TaskFunction::ClearTaskSet
                | TaskFunction::LogicalUnitReset,
                None,
            ) => TaskResponse::NoLun,
            (TaskFunction::TaskReassign, _) => TaskResponse::ReassignmentNotSupported,
            _ => TaskResponse::NotSupported,
        };
        self.core.link.machine.task_management_done(tag, response);
    }

    /// Ends tasks of this session or, at a reset, of all, and answers when all
    /// reactors have done so. With a task set for each nexus (Control mode page,
    /// TST 001b) CLEAR TASK SET ends those of its own, too.
    fn end_tasks_everywhere<D: Driver>(
        &mut self,
        tag: Tag,
        luns: Option<Vec<u16>>,
        only_own: bool,
        driver: &mut D,
    ) {
        let ending = self.end_tasks_of(tag, luns, only_own, driver);
        // Sense data is no answer to a function.
        let later = self.later_unless_lost(tag, TaskResponse::Rejected.into());
        let service = self.service.clone();
        self.core.shared.fence(Scope::Mail, move || {
            if only_own {
                return later.answer(TaskResponse::Complete);
            }
            let waiting = service.reset_units(&ending);
            for volume in waiting {
                service.shared.blocking(About::state(&volume), move || {
                    volume.reservations().reset(None);
                });
            }
            let done = || later.answer(TaskResponse::Complete);
            service.shared.fence(Scope::Mail, done);
        });
    }

    fn end_tasks_of<D: Driver>(
        &mut self,
        tag: Tag,
        luns: Option<Vec<u16>>,
        only_own: bool,
        driver: &mut D,
    ) -> Arc<Ending> {
        let cmd_sn = self.core.link.machine.task(tag).cmd_sn;
        let session = self.session().id;
        let ending = Arc::new(Ending {
            target: self.bound().served.view.name.clone(),
            luns,
            by: (session, cmd_sn),
            only_own,
        });
        // Before what comes behind it on this connection.
        self.end_tasks(&ending, driver);
        self.service.send_all(|| OwnMail::EndTasks(ending.clone()));
        ending
    }

    /// TARGET COLD RESET: what the warm one does, then all sessions end (RFC
    /// 7143, section 11.5.1).
    fn cold_reset<D: Driver>(&mut self, tag: Tag, driver: &mut D) {
        let ending = self.end_tasks_of(tag, None, false, driver);
        self.core
            .link
            .machine
            .task_management_done(tag, TaskResponse::Complete);
        let service = self.service.clone();
        self.core.shared.fence(Scope::Mail, move || {
            let connections = service.registry().connections_of(&ending.target);
            connections
                .into_iter()
                .for_each(|packed| service.shared.dismiss(packed));
        });
    }

    /// Ends what of this connection is meant.
    pub(crate) fn end_tasks<D: Driver>(&mut self, ending: &Ending, driver: &mut D) {
        let Some(bound) = self.bound.as_ref().filter(|_| self.core.is_open()) else {
            return;
        };
        if bound.served.view.name != ending.target {
            return;
        }
        let session = bound.session.clone();
        let (by, cmd_sn) = ending.by;
        let is_own = session.borrow().id == by;
        if ending.only_own && !is_own {
            return;
        }
        let is_meant = |task: &Task| match (&ending.luns, Address::parse(task.lun)) {
            (None, _) => true,
            (Some(_), Address::Unit(lun)) => ending.concerns(lun),
            (Some(_), _) => false,
        };
        let tags: Vec<Tag> = match is_own {
            // What came behind the function is none of its business.
            true => {
                let before = self.core.link.machine.tasks_before(cmd_sn);
                before
                    .filter(|(_, task)| is_meant(task))
                    .map(|(tag, _)| tag)
                    .collect()
            }
            false => self.tasks(is_meant),
        };
        for tag in tags {
            self.abort_task(tag, driver);
        }
        if !ending.only_own {
            let mut session = session.borrow_mut();
            session.post(Attention::RESET, |lun| ending.concerns(lun.unit.lun));
        }
    }
}

impl From<TaskResponse> for CommandAnswer {
    fn from(response: TaskResponse) -> CommandAnswer {
        CommandAnswer::TaskManagement(response)
    }
}

impl Service {
    /// Units of a target were reset: what SCSI-2's RESERVE took is free, mode
    /// parameters are what they were at first. The volumes whose reservations
    /// are being changed just now, which may take as long as a sync does: those
    /// are freed behind that change, and the function does not wait for it.
    fn reset_units(&self, ending: &Ending) -> Vec<Arc<dyn Volume>> {
        let target = &ending.target;
        let mut waiting = Vec::new();
        let luns = self.places().luns(target);
        for (number, volume, _) in luns {
            if ending.concerns(number) {
                self.places().reset_modes(target, number);
                if !volume.reservations().try_reset() {
                    waiting.push(volume);
                }
            }
        }
        self.publish(target, None);
        waiting
    }
}
