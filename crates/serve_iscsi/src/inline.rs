//! Commands that no volume is needed for, and changes of a unit's parameters.

use engine::blocks::AfterIo;
use engine::{About, Elsewhere as _, OnVolumes as _, Protocol as _, Refusal, RefusalKind};
use iscsi::target::Task;
use link::CommandMemory;
use machine::Tag;
use reactor::Driver;
use scsi::lun::Lun as Address;
use scsi::{
    Addressed, Attention, Command, ModeSelect, Nexus, Sense, decode_elsewhere, groups, mode,
};
use store::EraseError;
use wire::scsi::{asc, key};

use super::io::short_data;
use super::task::{LIST_BYTES_MAX, goes_wrong_way};
use super::{CommandAnswer, IscsiConnection};

impl IscsiConnection {
    /// A command for a LUN that has no unit. False while memory is short.
    #[cold]
    pub(super) fn execute_elsewhere(&mut self, tag: Tag, task: &Task) -> bool {
        let is_well_known = Address::parse(task.lun) == Address::ReportLuns;
        match decode_elsewhere(&task.cdb, is_well_known) {
            Ok(command) if goes_wrong_way(task, &command, 1) => {
                self.check(tag, &short_data());
                true
            }
            Ok(command) if is_well_known => self.respond_as(tag, Addressed::ReportLuns, &command),
            Ok(command) => self.respond_as(tag, Addressed::Nothing, &command),
            Err(sense) => {
                self.check(tag, &sense);
                true
            }
        }
    }

    fn respond_as(&mut self, tag: Tag, to: Addressed<'_>, command: &Command) -> bool {
        let view = self.bound().served.view.clone();
        let mut out = Vec::new();
        match scsi::respond(command, to, &mut Nexus::new(), &view, &mut out) {
            Ok(()) => self.send_bytes(tag, &out),
            Err(sense) => {
                self.check(tag, &sense);
                true
            }
        }
    }

    /// A command that a unit answers by itself. False while memory is short.
    pub(super) fn respond(&mut self, tag: Tag, place: u32, command: &Command) -> bool {
        let (mut out, bound) = (Vec::new(), self.bound());
        let mut nexus = *bound.session.borrow_mut().nexus(place);
        let unit = Addressed::Unit(&self.place(place).unit);
        let result = match command {
            Command::TestUnitReady if self.place(place).volume.is_locked() => Err(Sense::locked()),
            _ => scsi::respond(command, unit, &mut nexus, &bound.served.view, &mut out),
        };
        let is_told = match &result {
            Ok(()) => self.send_bytes(tag, &out),
            Err(sense) => {
                self.check(tag, sense);
                true
            }
        };
        if is_told {
            let mut session = self.session_mut();
            *session.nexus(place) = nexus;
            if result.is_ok() && matches!(command, Command::ReportLuns { .. }) {
                // Which units there are is the same for all of them.
                session.clear(Attention::LUNS_CHANGED);
            }
        }
        is_told
    }

    /// Completes a command with these bytes for the initiator; false while
    /// there is no memory for them.
    pub(super) fn send_bytes(&mut self, tag: Tag, bytes: &[u8]) -> bool {
        let len = bytes.len() as u32;
        if len > 0 {
            let Some(buf) = self.core.pool.get(len) else {
                return false;
            };
            mem::copy_in(buf.range(), bytes);
            self.core.link.set_data(tag, CommandMemory::owned(buf));
        }
        self.good_with(tag, len);
        true
    }

    /// Makes what was written durable, and completes a command.
    pub(super) fn flush<D: Driver>(&mut self, tag: Tag, place: u32, driver: &mut D) -> bool {
        let then = AfterIo::Complete { data_len: 0 };
        self.start(tag, place, store::Io::Flush, then, driver);
        true
    }

    /// SANITIZE, CRYPTOGRAPHIC ERASE (SBC-4): ends when nothing of what was written can be read
    /// any more.
    pub(super) fn cryptographic_erase(&mut self, tag: Tag, place: u32) -> bool {
        let volume = self.place(place).volume.clone();
        let later = self.later(tag);
        let then = move |erased: Result<(), EraseError>| {
            later.answer(match erased {
                Ok(()) => CommandAnswer::Good(Vec::new()),
                Err(EraseError::Locked) => Sense::locked().into(),
                Err(EraseError::Busy) => CommandAnswer::Status(scsi::status::BUSY),
                Err(EraseError::Unwritten(_)) => {
                    Sense::new(key::MEDIUM_ERROR, asc::SANITIZE_COMMAND_FAILED).into()
                }
            });
        };
        let host = self.names().0.map(str::to_owned);
        self.core.shared.erase(&volume, host, Box::new(then));
        true
    }

    /// MODE SELECT: the parameters are the unit's, so that every nexus has them
    /// before the command ends.
    pub(super) fn mode_select(&mut self, tag: Tag, place: u32, select: &ModeSelect) -> bool {
        let unit = &self.place(place).unit;
        let list = self.list(tag, select.list_len.into(), LIST_BYTES_MAX);
        let modes = match mode::select(select, &list, unit) {
            Ok(modes) => modes,
            Err(sense) => {
                self.check(tag, &sense);
                return true;
            }
        };
        if modes == unit.modes {
            self.complete_good(tag);
            return true;
        }
        let lun = unit.lun;
        let own = self.session().id;
        let target = self.bound().served.view.name.clone();
        let later = self.later(tag);
        self.service.set_modes(&target, lun, modes, own, move || {
            later.answer(CommandAnswer::Good(Vec::new()));
        });
        true
    }

    /// SET TARGET PORT GROUPS: the listeners of each portal group get the state for
    /// the ANA group of the unit, as an administrator would set it.
    pub(super) fn set_target_port_groups(&mut self, tag: Tag, place: u32, list_len: u32) -> bool {
        let unit = &self.place(place).unit;
        let list = self.list(tag, list_len, LIST_BYTES_MAX);
        let set = groups::parse_set(&list, unit).and_then(|set| match self.mask() {
            None => Ok(set),
            // The states are those of units too that it does not see.
            Some(_) => Err(Sense::in_list(4, None)),
        });
        let set = match set {
            Ok(set) => set,
            Err(sense) => {
                self.check(tag, &sense);
                return true;
            }
        };
        let (target, lun) = (self.bound().served.view.name.clone(), unit.lun);
        let later = self.later(tag);
        let service = self.service.clone();
        self.core.shared.blocking(About::Target, move || {
            let shared = service.shared.clone();
            let done = Box::new(move |outcome: Result<(), String>| match outcome {
                Ok(()) => later.answer(CommandAnswer::StatesSet),
                Err(why) => {
                    let reason = format_args!("SET TARGET PORT GROUPS: {why}");
                    shared
                        .refusals
                        .note(Refusal::new(RefusalKind::CHANGE, &reason));
                    later.answer(super::io::internal_failure());
                }
            });
            service.set_states(&target, lun, &set, done);
        });
        true
    }
}
