//! Reservation commands of a queue, and what reservations let its host do.
//!
//! The commands are executed by the blocking worker, since what must outlast a power
//! loss is written before it is answered. An answer that takes access from other
//! hosts waits behind a fence: what they began is over then, and what they send is
//! refused.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use engine::reservation::{note_unchanged, notify_hosts};
use engine::{About, Elsewhere as _, Shared};
use faults::Fault;
use link::CommandMemory;
use machine::Tag;
use nvmf::command::{Io, IoKind};
use nvmf::reservation::{self as nvme, decode, report_len};
use reactor::Driver;
use store::Volume;
use store::reservation::{Access, Grant, Registrant, ReservationRefused, ReservationRequest, Type};
use wire::nvme::{NSID_ALL, Sqe, Status, io};

use super::{CommandAnswer, Later, NvmeConnection};

/// Most data of a reservation command from the host, bytes.
const KEYS_BYTES_MAX: usize = 16;

/// Types by their value in commands, from 1.
const TYPES: [Type; 6] = [
    Type::WriteExclusive,
    Type::ExclusiveAccess,
    Type::WriteExclusiveRegistrantsOnly,
    Type::ExclusiveAccessRegistrantsOnly,
    Type::WriteExclusiveAllRegistrants,
    Type::ExclusiveAccessAllRegistrants,
];

fn type_of(rtype: u8) -> Type {
    TYPES[usize::from(rtype) - 1]
}

fn rtype_of(kind: Type) -> u8 {
    let at = TYPES.iter().position(|known| *known == kind);
    at.expect("every type is in the table") as u8 + 1
}

/// A host, and what the queue found that it may do on each of its namespaces.
pub(crate) struct Rights {
    pub(crate) host: Registrant,
    grants: Vec<Grant>,
}

impl Rights {
    /// Of the host with this Host Identifier.
    pub(crate) fn new(hostid: [u8; 16]) -> Rights {
        Rights {
            host: Registrant::NvmeHost(hostid),
            grants: Vec::new(),
        }
    }

    /// What the host may do on a volume, which is behind the namespace with
    /// this index.
    #[inline]
    fn access(&mut self, namespace: u32, volume: &Arc<dyn Volume>) -> Access {
        let index = namespace as usize;
        if index >= self.grants.len() {
            self.grants.resize_with(index + 1, Grant::default);
        }
        volume
            .reservations()
            .access(&self.host, &mut self.grants[index])
    }
}

/// Whether a command may be executed: those that read, those that write, and
/// those that do both (Base 2.0, section 8.19, the table of command behavior).
/// What a Copy reads is looked at range by range.
#[inline]
fn allows(access: Access, kind: IoKind) -> bool {
    if access.read && access.write {
        return true;
    }
    match kind {
        IoKind::Read | IoKind::Compare | IoKind::Verify => access.read,
        IoKind::CompareAndWrite => false,
        IoKind::Write
        | IoKind::WriteZeroes
        | IoKind::WriteUncorrectable
        | IoKind::Deallocate
        | IoKind::Copy
        | IoKind::Flush
        | IoKind::FlushAll => access.write,
    }
}

impl NvmeConnection {
    /// Whether reservations let the host execute `io` now. To be asked when it
    /// is executed: at its arrival is too early.
    #[inline]
    pub(crate) fn may_execute(&mut self, io: &Io) -> bool {
        let is_copy = io.kind == IoKind::Copy;
        if faults::is(Fault::NoReservations) || is_copy && faults::is(Fault::CopyUnasked) {
            return true;
        }
        if io.kind == IoKind::FlushAll {
            return self.may_flush_all();
        }
        allows(self.access(io.namespace), io.kind)
    }

    /// Whether reservations let the host read a namespace now.
    pub(crate) fn may_read(&mut self, namespace: u32) -> bool {
        self.access(namespace).read
    }

    /// Whether reservations let the host erase a volume now: one that may write it.
    pub(crate) fn may_erase(&self, volume: &Arc<dyn Volume>) -> bool {
        let reservations = volume.reservations();
        let host = &self.bound().rights.host;
        reservations.access(host, &mut Grant::default()).write
    }

    #[inline]
    fn access(&mut self, namespace: u32) -> Access {
        let bound = self.bound.as_mut().expect("I/O comes after Connect");
        let volume = &bound.served.volumes[namespace as usize];
        bound.rights.access(namespace, volume)
    }

    /// A command for all namespaces needs the right to each of them.
    #[cold]
    fn may_flush_all(&mut self) -> bool {
        let namespaces = self.namespaces(NSID_ALL);
        (namespaces.into_iter()).all(|(index, _)| self.access(index).write)
    }

    /// Index and volume of the namespace with this identifier, or of all.
    pub(crate) fn namespaces(&self, nsid: u32) -> Vec<(u32, Arc<dyn Volume>)> {
        let served = &self.bound().served;
        let all = served.geometry.iter().zip(served.volumes.iter()).zip(0..);
        all.filter(|((geometry, _), _)| geometry.nsid != 0)
            .filter(|((geometry, _), _)| nsid == NSID_ALL || geometry.nsid == nsid)
            .map(|((_, volume), index)| (index, volume.clone()))
            .collect()
    }

    /// Completes a command that a reservation forbids.
    #[cold]
    pub(crate) fn conflict(&mut self, tag: Tag, io: &Io) {
        let status = Status::RESERVATION_CONFLICT.dnr();
        self.fail(tag, status, io.namespace, io.offset);
    }

    /// Executes a reservation command; false while memory is short.
    pub(crate) fn reserve(&mut self, tag: Tag, namespace: u32, sqe: &Sqe) -> bool {
        let mut keys = [0; KEYS_BYTES_MAX];
        let mut len = 0;
        if sqe.opcode == io::RESERVATION_REPORT {
            // Checked at its arrival: no more than one command may move.
            let Some(buf) = self.core.pool.get(report_len(sqe) as u32) else {
                return false;
            };
            self.core.link.set_data(tag, CommandMemory::owned(buf));
        } else if let Some(range) = self.core.link.range(tag) {
            len = KEYS_BYTES_MAX.min(range.len() as usize);
            mem::copy_out(range.slice(0, len as u32), &mut keys[..len]);
        }
        let request = match decode(sqe, &keys[..len]) {
            Ok(request) => request,
            Err(status) => {
                self.fail(tag, status, namespace, 0);
                return true;
            }
        };
        let bound = self.bound();
        let volume = bound.served.volumes[namespace as usize].clone();
        let host = bound.rights.host.clone();
        let later = self.later(tag);
        let shared = self.core.shared.clone();
        self.core.shared.blocking(About::state(&volume), move || {
            execute(&shared, &volume, &host, request, later);
        });
        true
    }

    /// The registrations of `hosts` on a volume were preempted: if ours is one
    /// of them, what it has under way there ends.
    pub(crate) fn preempt<D: Driver>(
        &mut self,
        volume: &Arc<dyn Volume>,
        hosts: &BTreeSet<Registrant>,
        driver: &mut D,
    ) {
        let bound = self.bound.as_ref();
        if bound.is_some_and(|bound| hosts.contains(&bound.rights.host)) {
            self.abort_volume(volume, Status::PREEMPTED.dnr(), driver);
        }
    }

    /// Get or Set Features of Reservation Persistence (Base 2.0, section
    /// 5.27.1.27).
    pub(crate) fn persistence(&mut self, tag: Tag, nsid: u32, set: Option<bool>) {
        let namespaces = self.namespaces(nsid);
        let volumes = namespaces.into_iter().map(|(_, volume)| volume).collect();
        let later = self.later(tag);
        persist(&self.core.shared, volumes, set, 0, later);
    }
}

/// Whether reservations persist, or that they do from now on, of one volume after
/// the other; then the answer, which is of the last.
fn persist(
    shared: &Arc<Shared>,
    mut volumes: VecDeque<Arc<dyn Volume>>,
    set: Option<bool>,
    result: u64,
    later: Later,
) {
    let Some(volume) = volumes.pop_front() else {
        return later.answer(CommandAnswer {
            result,
            ..CommandAnswer::default()
        });
    };
    let then = shared.clone();
    shared.blocking(About::state(&volume), move || {
        let shared = &then;
        let reservations = volume.reservations();
        let changed = match set {
            None => Ok(u64::from(reservations.persists())),
            Some(persist) => reservations.set_persist(persist).map(|_| result),
        };
        match changed {
            Ok(result) => persist(shared, volumes, set, result, later),
            Err(refused) => later.answer(status_of(shared, &*volume, &refused)),
        }
    });
}

/// On the blocking worker: executes the command of `host`.
fn execute(
    shared: &Arc<Shared>,
    volume: &Arc<dyn Volume>,
    host: &Registrant,
    request: nvme::ReservationCommand,
    later: Later,
) {
    let Some((request, aborts)) = store_request(request) else {
        return later.answer(CommandAnswer {
            data: report(&**volume),
            ..CommandAnswer::default()
        });
    };
    // Hosts without an identifier cannot be told apart.
    let has_no_identifier = *host == Registrant::NvmeHost([0; 16]);
    let changed = match has_no_identifier {
        true => Err(ReservationRefused::Invalid),
        false => volume.reservations().change(host, &request),
    };
    match changed {
        Ok(change) => notify_hosts(shared, volume, change, aborts, move || {
            later.answer(CommandAnswer::default());
        }),
        Err(refused) => later.answer(status_of(shared, &**volume, &refused)),
    }
}

/// The change that a command asks for, and whether it ends commands of the
/// preempted hosts; `None` for a report.
fn store_request(request: nvme::ReservationCommand) -> Option<(ReservationRequest, bool)> {
    let request = match request {
        nvme::ReservationCommand::Report => return None,
        nvme::ReservationCommand::Register { key, persist } => {
            ReservationRequest::Register { key, persist }
        }
        nvme::ReservationCommand::Replace {
            current,
            key,
            persist,
        } => ReservationRequest::Replace {
            current,
            key,
            persist,
        },
        nvme::ReservationCommand::Unregister { current, persist } => {
            ReservationRequest::Unregister { current, persist }
        }
        nvme::ReservationCommand::Acquire { current, rtype } => ReservationRequest::Acquire {
            current,
            kind: type_of(rtype),
        },
        nvme::ReservationCommand::Preempt {
            current,
            victim,
            rtype,
            aborts,
        } => {
            let kind = type_of(rtype);
            let preempt = ReservationRequest::Preempt {
                current,
                victim,
                kind,
            };
            return Some((preempt, aborts));
        }
        nvme::ReservationCommand::Release { current, rtype } => ReservationRequest::Release {
            current,
            kind: type_of(rtype),
        },
        nvme::ReservationCommand::Clear { current } => ReservationRequest::Clear { current },
    };
    Some((request, false))
}

fn report(volume: &dyn Volume) -> Vec<u8> {
    let report = volume.reservations().report();
    let registrants = report.registrants.iter();
    nvme::report(
        report.generation,
        report.kind.map_or(0, rtype_of),
        report.persist,
        registrants.map(|(registrant, key, holds)| {
            let holds = *holds && !faults::is(Fault::WrongReport);
            (registrant.host_identifier(), *key, holds)
        }),
    )
}

fn status_of(shared: &Shared, volume: &dyn Volume, refused: &ReservationRefused) -> Status {
    match refused {
        ReservationRefused::Conflict => Status::RESERVATION_CONFLICT.dnr(),
        ReservationRefused::Invalid | ReservationRefused::Volatile => Status::INVALID_FIELD.dnr(),
        ReservationRefused::Full | ReservationRefused::Unsaved(_) => {
            note_unchanged(shared, volume, refused);
            Status::INTERNAL_ERROR
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which group a command belongs to, as the standard's table lists them.
    #[test]
    fn commands_need_the_right_that_the_standard_says() {
        let (read, write) = (
            Access {
                write: false,
                ..Access::ALL
            },
            Access {
                read: false,
                ..Access::ALL
            },
        );
        for (kind, reads, writes) in [
            (IoKind::Read, true, false),
            (IoKind::Compare, true, false),
            (IoKind::Verify, true, false),
            (IoKind::Write, false, true),
            (IoKind::WriteZeroes, false, true),
            (IoKind::WriteUncorrectable, false, true),
            (IoKind::Deallocate, false, true),
            (IoKind::Flush, false, true),
            (IoKind::FlushAll, false, true),
            (IoKind::Copy, false, true),
            (IoKind::CompareAndWrite, true, true),
        ] {
            assert_eq!(allows(read, kind), reads && !writes, "{kind:?}");
            assert_eq!(allows(write, kind), writes && !reads, "{kind:?}");
            assert!(allows(Access::ALL, kind), "{kind:?}");
        }
    }

    #[test]
    fn every_type_is_read_back_from_its_value() {
        for rtype in 1..=6 {
            assert_eq!(rtype_of(type_of(rtype)), rtype);
        }
        assert_eq!(rtype_of(Type::ExclusiveAccessRegistrantsOnly), 4);
    }
}
