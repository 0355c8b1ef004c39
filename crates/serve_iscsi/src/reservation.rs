//! Reservations as SCSI asks for them, and what they let a nexus do.
//!
//! As NVMe's, changes are made by the blocking worker, since what must outlast a power
//! loss is written before it is answered.

use std::sync::Arc;

use engine::reservation::{note_unchanged, notify_hosts};
use engine::{About, Elsewhere as _, Shared};
use machine::Tag;
use reactor::Driver;
use scsi::reservation::{
    In, Initiator, LIST_BYTES_MAX, Out, Question, Registered, ReserveOut as Asked, Status,
    Type as Kind, initiator_port,
};
use scsi::{Sense, asc, key, status};
use store::Volume;
use store::reservation::{
    Registrant, ReservationRefused, ReservationReport, ReservationRequest, ScsiNexus, Type,
};

use super::{CommandAnswer, IscsiConnection, Later, Service};

/// SCSI's types and ours.
const KINDS: [(Kind, Type); 6] = [
    (Kind::WriteExclusive, Type::WriteExclusive),
    (Kind::ExclusiveAccess, Type::ExclusiveAccess),
    (
        Kind::WriteExclusiveRegistrantsOnly,
        Type::WriteExclusiveRegistrantsOnly,
    ),
    (
        Kind::ExclusiveAccessRegistrantsOnly,
        Type::ExclusiveAccessRegistrantsOnly,
    ),
    (
        Kind::WriteExclusiveAllRegistrants,
        Type::WriteExclusiveAllRegistrants,
    ),
    (
        Kind::ExclusiveAccessAllRegistrants,
        Type::ExclusiveAccessAllRegistrants,
    ),
];

fn type_of(kind: Kind) -> Type {
    let row = KINDS.iter().find(|(known, _)| *known == kind);
    row.expect("every type is in the table").1
}

fn kind_of(kind: Type) -> Kind {
    let row = KINDS.iter().find(|(_, known)| *known == kind);
    row.expect("every type is in the table").0
}

/// Begins the iSCSI name by which SCSI is told of a registered NVMe host.
const NVME_HOST: &str = "iqn.2026-01.io.weft:nvme-host:";

/// Conflicts with a reservation.
const CONFLICT: CommandAnswer = CommandAnswer::Status(status::RESERVATION_CONFLICT);

/// A port of a target at which a nexus can be.
#[derive(Clone, Debug)]
struct TargetPort {
    name: String,
    /// Relative target port identifiers.
    ports: Vec<u16>,
    /// That of the nexus that asks.
    here: u16,
}

impl IscsiConnection {
    /// PERSISTENT RESERVE IN; false while memory is short.
    pub(super) fn persistent_reserve_in(
        &mut self,
        tag: Tag,
        place: u32,
        action: u8,
        allocation_len: u16,
    ) -> bool {
        let command = match In::new(action, allocation_len) {
            Ok(command) => command,
            Err(sense) => {
                self.check(tag, &sense);
                return true;
            }
        };
        let volume = self.place(place).volume.clone();
        let Some(later) = self.later_with(tag, allocation_len.into()) else {
            return false;
        };
        // Behind the changes that were asked for before.
        self.core.shared.blocking(About::state(&volume), move || {
            later.answer(report(&*volume, command));
        });
        true
    }

    /// PERSISTENT RESERVE OUT; false while memory is short.
    pub(super) fn persistent_reserve_out<D: Driver>(
        &mut self,
        tag: Tag,
        place: u32,
        (action, scope, kind, list_len): (u8, u8, u8, u32),
        _: &mut D,
    ) -> bool {
        let asked = Out::new(action, scope, kind, list_len).and_then(|out| {
            let list = self.list(tag, list_len, LIST_BYTES_MAX);
            out.request(&list)
        });
        let asked = match asked {
            Ok(asked) => asked,
            Err(sense) => {
                self.check(tag, &sense);
                return true;
            }
        };
        let lun = self.place(place);
        let volume = lun.volume.clone();
        let groups = lun.unit.groups.iter();
        let target = TargetPort {
            name: self.target_name().to_owned(),
            ports: groups
                .flat_map(|group| group.ports.iter().copied())
                .collect(),
            here: lun.unit.here.id,
        };
        let (registrant, later) = (self.registrant(), self.later(tag));
        let service = self.service.clone();
        self.core.shared.blocking(About::state(&volume), move || {
            change(&service, &volume, &registrant, &target, asked, later);
        });
        true
    }

    /// RESERVE of SPC-2.
    pub(super) fn reserve(&mut self, tag: Tag, place: u32) {
        self.change_unit(tag, place, ReservationRequest::ReserveUnit);
    }

    /// RELEASE of SPC-2.
    pub(super) fn release(&mut self, tag: Tag, place: u32) {
        self.change_unit(tag, place, ReservationRequest::ReleaseUnit);
    }

    fn change_unit(&mut self, tag: Tag, place: u32, request: ReservationRequest) {
        let volume = self.place(place).volume.clone();
        let (registrant, later) = (self.registrant(), self.later(tag));
        let shared = self.core.shared.clone();
        self.core.shared.blocking(About::state(&volume), move || {
            apply(&shared, &volume, &registrant, &request, false, later);
        });
    }
}

/// The answer to PERSISTENT RESERVE IN, which RESERVE is in the way of, one's
/// own too (SPC-2, section 5.5.1).
fn report(volume: &dyn Volume, command: In) -> CommandAnswer {
    let reservations = volume.reservations();
    let can_persist = reservations.can_persist();
    let report = reservations.report();
    if report.reserved.is_some() {
        return CONFLICT;
    }
    let names: Vec<(String, u16)> = match command.question {
        Question::FullStatus => report
            .registrants
            .iter()
            .map(|(registrant, ..)| name(registrant))
            .collect(),
        _ => vec![(String::new(), 0); report.registrants.len()],
    };
    let ReservationReport {
        generation,
        kind,
        persist,
        registrants,
        ..
    } = &report;
    let registered = registrants.iter().zip(&names);
    let status = Status {
        generation: *generation,
        kind: kind.map(kind_of),
        persist: *persist,
        can_persist,
        registered: registered
            .map(|((_, key, is_holder), (initiator, port))| Registered {
                key: *key,
                is_holder: *is_holder,
                initiator,
                port: *port,
            })
            .collect(),
    };
    CommandAnswer::Good(status.answer(command))
}

/// What a registrant is called in a TransportID, and its relative target port.
fn name(registrant: &Registrant) -> (String, u16) {
    match registrant {
        Registrant::ScsiNexus(nexus) => (nexus.initiator.clone(), nexus.port),
        Registrant::NvmeHost(hostid) => {
            let digits = u128::from_be_bytes(*hostid);
            (format!("{NVME_HOST}{digits:032x}"), 0)
        }
    }
}

/// On the blocking worker: makes the change that was asked for.
fn change(
    service: &Service,
    volume: &Arc<dyn Volume>,
    registrant: &Registrant,
    target: &TargetPort,
    asked: Asked,
    later: Later,
) {
    match store_request(service, target, registrant, asked) {
        Ok((request, aborts)) => {
            apply(&service.shared, volume, registrant, &request, aborts, later)
        }
        Err(sense) => later.answer(sense),
    }
}

fn apply(
    shared: &Shared,
    volume: &Arc<dyn Volume>,
    registrant: &Registrant,
    request: &ReservationRequest,
    aborts: bool,
    later: Later,
) {
    match volume.reservations().change(registrant, request) {
        Ok(change) => notify_hosts(shared, volume, change, aborts, move || {
            later.answer(CommandAnswer::Good(Vec::new()));
        }),
        Err(refused) => later.answer(answer_of(shared, &**volume, request, &refused)),
    }
}

fn answer_of(
    shared: &Shared,
    volume: &dyn Volume,
    request: &ReservationRequest,
    refused: &ReservationRefused,
) -> CommandAnswer {
    if let ReservationRefused::Full | ReservationRefused::Unsaved(_) = refused {
        note_unchanged(shared, volume, refused);
    }
    refusal_of(request, refused)
}

fn refusal_of(request: &ReservationRequest, refused: &ReservationRefused) -> CommandAnswer {
    let flags = match request {
        ReservationRequest::Move { .. } => 17,
        _ => 20,
    };
    CommandAnswer::Check(match (refused, request) {
        (ReservationRefused::Conflict, _) => return CONFLICT,
        (ReservationRefused::Invalid, ReservationRequest::Release { .. }) => {
            Sense::illegal(asc::INVALID_RELEASE_OF_PERSISTENT_RESERVATION)
        }
        // SPEC_I_PT is for a nexus that is not registered yet.
        (ReservationRefused::Invalid, ReservationRequest::ScsiRegister { .. }) => {
            Sense::in_list(flags, Some(3))
        }
        (ReservationRefused::Invalid, _) => Sense::in_list(8, None),
        (ReservationRefused::Volatile, _) => Sense::in_list(flags, Some(0)),
        (ReservationRefused::Full, _) => Sense::illegal(asc::INSUFFICIENT_REGISTRATION_RESOURCES),
        (ReservationRefused::Unsaved(_), _) => {
            Sense::new(key::HARDWARE_ERROR, asc::INTERNAL_TARGET_FAILURE)
        }
    })
}

/// The change that a command asks for, and whether it ends commands of the
/// preempted registrants.
fn store_request(
    service: &Service,
    target: &TargetPort,
    registrant: &Registrant,
    asked: Asked,
) -> Result<(ReservationRequest, bool), Sense> {
    let aborts = matches!(asked, Asked::Preempt { aborts: true, .. });
    let request = match asked {
        Asked::Register {
            current,
            key,
            persist,
            all_ports,
            initiators,
        } => {
            let other_ports = target.ports.iter().filter(|port| **port != target.here);
            let others: Vec<u16> = other_ports.copied().filter(|_| all_ports).collect();
            let Registrant::ScsiNexus(own) = registrant else {
                unreachable!("SCSI commands come from a nexus");
            };
            ReservationRequest::ScsiRegister {
                current,
                key,
                persist,
                ports: (others.iter())
                    .map(|port| target.nexus(&own.initiator, *port))
                    .collect(),
                named: target.named(service, &initiators, &others)?,
            }
        }
        Asked::Move {
            current,
            key,
            unregister,
            persist,
            port,
            initiator,
        } => {
            if !target.ports.contains(&port) {
                return Err(Sense::in_list(18, None));
            }
            let isid = initiator.isid.expect("a port was named");
            ReservationRequest::Move {
                current,
                to: target.nexus(&initiator_port(&initiator.name, isid), port),
                key,
                unregister,
                persist,
            }
        }
        Asked::Reserve { current, kind } => ReservationRequest::Acquire {
            current,
            kind: type_of(kind),
        },
        Asked::Release { current, kind } => ReservationRequest::Release {
            current,
            kind: type_of(kind),
        },
        Asked::Clear { current } => ReservationRequest::Clear { current },
        Asked::Preempt {
            current,
            victim,
            kind,
            ..
        } => ReservationRequest::Preempt {
            current,
            victim,
            kind: type_of(kind),
        },
    };
    Ok((request, aborts))
}

/// Names of the ports that a TransportID means: one, or all that are logged in
/// anywhere (SPC-4, section 7.6.4.6).
fn names_of(service: &Service, initiator: &Initiator) -> Result<Vec<String>, Sense> {
    if let Some(isid) = initiator.isid {
        return Ok(vec![initiator_port(&initiator.name, isid)]);
    }
    let registry = service.registry();
    let sessions = registry.sessions();
    let its = sessions.filter(|session| session.initiator.name == initiator.name);
    let mut names: Vec<String> = its
        .map(|session| initiator_port(&session.initiator.name, session.initiator.isid))
        .collect();
    names.sort();
    names.dedup();
    match names.is_empty() {
        true => Err(Sense::in_list(24, None)),
        false => Ok(names),
    }
}

impl TargetPort {
    /// The nexuses of these initiators at the port that asks and at the `others`.
    fn named(
        &self,
        service: &Service,
        initiators: &[Initiator],
        others: &[u16],
    ) -> Result<Vec<Registrant>, Sense> {
        let mut named = Vec::new();
        for initiator in initiators {
            for name in names_of(service, initiator)? {
                let ports = others.iter().chain([&self.here]);
                named.extend(ports.map(|port| self.nexus(&name, *port)));
            }
        }
        Ok(named)
    }

    /// The nexus of an initiator port at one of its ports.
    fn nexus(&self, initiator: &str, port: u16) -> Registrant {
        Registrant::ScsiNexus(ScsiNexus {
            initiator: initiator.to_owned(),
            target: self.name.clone(),
            port,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags lie elsewhere in the list of REGISTER AND MOVE.
    #[test]
    fn refusals_point_at_what_is_wrong() {
        let registrant = Registrant::NvmeHost([1; 16]);
        let moved = ReservationRequest::Move {
            current: 1,
            to: registrant,
            key: 2,
            unregister: false,
            persist: true,
        };
        let registered = ReservationRequest::ScsiRegister {
            current: Some(1),
            key: 2,
            persist: true,
            ports: Vec::new(),
            named: Vec::new(),
        };
        let release = ReservationRequest::Release {
            current: 1,
            kind: Type::WriteExclusive,
        };
        let illegal = Sense::illegal;
        for (request, refused, sense) in [
            (
                &moved,
                ReservationRefused::Volatile,
                Sense::in_list(17, Some(0)),
            ),
            (
                &registered,
                ReservationRefused::Volatile,
                Sense::in_list(20, Some(0)),
            ),
            (
                &registered,
                ReservationRefused::Invalid,
                Sense::in_list(20, Some(3)),
            ),
            (&moved, ReservationRefused::Invalid, Sense::in_list(8, None)),
            (
                &release,
                ReservationRefused::Invalid,
                illegal(asc::INVALID_RELEASE_OF_PERSISTENT_RESERVATION),
            ),
            (
                &registered,
                ReservationRefused::Full,
                illegal(asc::INSUFFICIENT_REGISTRATION_RESOURCES),
            ),
            (
                &moved,
                ReservationRefused::Unsaved(std::io::ErrorKind::StorageFull.into()),
                Sense::new(key::HARDWARE_ERROR, asc::INTERNAL_TARGET_FAILURE),
            ),
        ] {
            let told = refusal_of(request, &refused);
            assert_eq!(told, CommandAnswer::Check(sense), "{request:?}: {refused}");
        }
        assert_eq!(
            refusal_of(&release, &ReservationRefused::Conflict),
            CONFLICT
        );
    }
}
