//! The rules against a second telling of the standard, as tables, and what
//! persistence adds to them.

use std::sync::Mutex;

use proptest::prelude::*;

use super::*;
use crate::state::{Medium, State};

/// Two NVMe hosts and two SCSI nexuses, of one initiator at two ports.
const HOSTS: usize = 4;

const TYPES: [Type; 6] = [
    Type::WriteExclusive,
    Type::ExclusiveAccess,
    Type::WriteExclusiveRegistrantsOnly,
    Type::ExclusiveAccessRegistrantsOnly,
    Type::WriteExclusiveAllRegistrants,
    Type::ExclusiveAccessAllRegistrants,
];

fn host(index: usize) -> Registrant {
    match index {
        0 | 1 => Registrant::NvmeHost([index as u8 + 1; 16]),
        _ => Registrant::ScsiNexus(ScsiNexus {
            initiator: "iqn.2004-01.org.example:a,i,0x00023d000001".to_owned(),
            target: "iqn.2026-01.io.weft:disks".to_owned(),
            port: index as u16,
        }),
    }
}

/// Read and write of a non-registrant, of a registrant and of the holder under
/// each type: A(llowed) or C(onflict), as the standard's table of command
/// behavior has them.
const BEHAVIOR: [&str; 6] = [
    "AC AC AA", "CC CC AA", "AC AA AA", "CC AA AA", "AC AA AA", "CC AA AA",
];

/// Whose key the victim's key of a preemption is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    Zero,
    Holder,
    Registrant,
    NoRegistrant,
}

/// How many hold the reservation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Holders {
    None,
    One,
    All,
}

/// What a preemption does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Effect {
    /// Invalid Field in Command.
    Invalid,
    /// Reservation Conflict.
    Conflict,
    /// Unregisters all with the key, the sender too.
    Unregister,
    /// Unregisters all others with the key (all others, if it is 0) and gives
    /// the reservation to the sender.
    TakeOver,
}

const PREEMPT: [(Holders, Victim, Effect); 11] = [
    (Holders::None, Victim::Zero, Effect::Invalid),
    (Holders::None, Victim::Registrant, Effect::Unregister),
    (Holders::None, Victim::NoRegistrant, Effect::Conflict),
    (Holders::One, Victim::Zero, Effect::Invalid),
    (Holders::One, Victim::Holder, Effect::TakeOver),
    (Holders::One, Victim::Registrant, Effect::Unregister),
    (Holders::One, Victim::NoRegistrant, Effect::Conflict),
    (Holders::All, Victim::Zero, Effect::TakeOver),
    (Holders::All, Victim::Holder, Effect::Unregister),
    (Holders::All, Victim::Registrant, Effect::Unregister),
    (Holders::All, Victim::NoRegistrant, Effect::Conflict),
];

/// The reference: hosts by number, types by their place in [`TYPES`].
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    /// The holder of the unit by SCSI-2's RESERVE.
    reserved: Option<usize>,
    generation: u32,
    keys: [Option<u64>; HOSTS],
    /// Type, and its holder unless all registrants hold it.
    held: Option<(usize, Option<usize>)>,
}

/// `Ok`: the notices, each with its host; `Err`: whether it is a conflict (or invalid).
type Verdict = Result<Vec<(usize, Notice)>, bool>;

impl Model {
    fn holders(&self) -> Holders {
        match self.held {
            None => Holders::None,
            Some((kind, _)) if kind >= 4 => Holders::All,
            Some(_) => Holders::One,
        }
    }

    fn holds(&self, host: usize) -> bool {
        match self.held {
            Some((kind, holder)) => {
                self.keys[host].is_some() && (kind >= 4 || holder == Some(host))
            }
            None => false,
        }
    }

    fn access(&self, host: usize) -> Access {
        if let Some(holder) = self.reserved {
            return if holder == host {
                Access::ALL
            } else {
                Access::NONE
            };
        }
        let column = match () {
            () if self.holds(host) => 6,
            () if self.keys[host].is_some() => 3,
            () => 0,
        };
        let row = self.held.map_or("AA AA AA", |(kind, _)| BEHAVIOR[kind]);
        let at = |column: usize| row.as_bytes()[column] == b'A';
        Access {
            read: at(column),
            write: at(column + 1),
            // Every persistent reservation lets all hosts look.
            other: true,
        }
    }

    /// SPC-4's table of register behaviors: `None` is a conflict, then whether
    /// the key is set (or removed), unless nothing happens.
    fn registers(&self, host: usize, current: Option<u64>, key: u64) -> Option<Option<bool>> {
        match (self.keys[host], current) {
            (None, Some(0) | None) if key == 0 => Some(None),
            (None, Some(0) | None) => Some(Some(true)),
            (Some(own), Some(current)) if own != current => None,
            (Some(_), _) => Some(Some(key != 0)),
            (None, Some(_)) => None,
        }
    }

    /// The registration of `host` ends.
    fn leave(&mut self, host: usize) -> Vec<(usize, Notice)> {
        let held = self.holds(host);
        self.keys[host] = None;
        let is_last = self.registered().next().is_none();
        match held && (self.holders() == Holders::One || is_last) {
            true => self.lapse(host),
            false => Vec::new(),
        }
    }

    /// Whether RESERVE and RELEASE do nothing (SPC-4, section 5.13.3); `None`
    /// is a conflict.
    fn is_exempt(&self, host: usize) -> Option<bool> {
        let registered = self.keys[host].is_some();
        match self.held {
            Some((2.., _)) if registered => Some(true),
            Some((_, Some(holder))) if holder == host => Some(true),
            _ if self.registered().next().is_none() => Some(false),
            _ => None,
        }
    }

    fn scsi(&mut self, sender: usize, request: &ReservationRequest) -> Verdict {
        let index = |registrant: &Registrant| (0..HOSTS).find(|n| host(*n) == *registrant).unwrap();
        match request {
            ReservationRequest::ScsiRegister {
                current,
                key,
                ports,
                named,
                ..
            } => {
                let act = self.registers(sender, *current, *key).ok_or(true)?;
                let Some(sets) = act else {
                    return Ok(Vec::new());
                };
                if !named.is_empty() && self.keys[sender].is_some() {
                    return Err(false);
                }
                let mut told = Vec::new();
                let mut ask = vec![sender];
                ask.extend(ports.iter().map(index));
                for asked in ask {
                    match self.registers(asked, *current, *key) {
                        Some(Some(true)) if sets => self.keys[asked] = Some(*key),
                        Some(Some(false)) if !sets => told.extend(self.leave(asked)),
                        _ => {}
                    }
                }
                for other in named.iter().map(index) {
                    self.keys[other] = self.keys[other].or(Some(*key));
                }
                told.retain(|(host, _)| self.keys[*host].is_some());
                told.sort();
                told.dedup();
                self.generation += 1;
                Ok(told)
            }
            ReservationRequest::Move {
                current,
                to,
                key,
                unregister,
                ..
            } => {
                let to = index(to);
                let is_holder = matches!(self.held, Some((_, Some(holder))) if holder == sender);
                if self.keys[sender] != Some(*current) || !is_holder {
                    return Err(true);
                }
                if *key == 0 || to == sender {
                    return Err(false);
                }
                self.keys[to] = Some(*key);
                self.held = self.held.map(|(kind, _)| (kind, Some(to)));
                if *unregister {
                    self.keys[sender] = None;
                }
                self.generation += 1;
                Ok(Vec::new())
            }
            ReservationRequest::ReserveUnit => match (self.is_exempt(sender), self.reserved) {
                (None, _) => Err(true),
                (Some(false), Some(holder)) if holder != sender => Err(true),
                (Some(exempt), _) => {
                    if !exempt {
                        self.reserved = Some(sender);
                    }
                    Ok(Vec::new())
                }
            },
            ReservationRequest::ReleaseUnit => {
                if !self.is_exempt(sender).ok_or(true)? && self.reserved == Some(sender) {
                    self.reserved = None;
                }
                Ok(Vec::new())
            }
            _ => unreachable!("not SCSI's alone"),
        }
    }

    fn registered(&self) -> impl Iterator<Item = usize> {
        (0..HOSTS).filter(|host| self.keys[*host].is_some())
    }

    fn tell(&self, sender: usize, notice: Notice) -> Vec<(usize, Notice)> {
        let others = self.registered().filter(|host| *host != sender);
        others.map(|host| (host, notice)).collect()
    }

    /// The reservation ends; told only where registrants wrote by it.
    fn lapse(&mut self, sender: usize) -> Vec<(usize, Notice)> {
        match self.held.take() {
            Some((kind, _)) if kind >= 2 => self.tell(sender, Notice::ReservationReleased),
            _ => Vec::new(),
        }
    }

    fn step(&mut self, sender: usize, request: &ReservationRequest) -> Verdict {
        let is_of_scsi_2 = matches!(
            request,
            ReservationRequest::ReserveUnit | ReservationRequest::ReleaseUnit
        );
        if self.reserved.is_some() && !is_of_scsi_2 {
            return Err(true);
        }
        let own = self.keys[sender];
        let kind_of = |kind: Type| TYPES.iter().position(|known| *known == kind).unwrap();
        let counted = matches!(
            request,
            ReservationRequest::Register { .. }
                | ReservationRequest::Replace { .. }
                | ReservationRequest::Unregister { .. }
                | ReservationRequest::Preempt { .. }
                | ReservationRequest::Clear { .. }
        );
        let told = match *request {
            ReservationRequest::Register { key: 0, .. }
            | ReservationRequest::Replace { key: 0, .. } => {
                return Err(false);
            }
            ReservationRequest::Register { key, .. } if own.is_none() || own == Some(key) => {
                self.keys[sender] = Some(key);
                Vec::new()
            }
            ReservationRequest::Replace {
                current: None, key, ..
            } => {
                self.keys[sender] = Some(key);
                Vec::new()
            }
            ReservationRequest::Replace { current, key, .. } if own.is_some() && own == current => {
                self.keys[sender] = Some(key);
                Vec::new()
            }
            ReservationRequest::Unregister { current, .. }
                if current.is_none() || own.is_some() && own == current =>
            {
                self.leave(sender)
            }
            ReservationRequest::Acquire { current, kind } if own == Some(current) => {
                let kind = kind_of(kind);
                match self.held {
                    None => self.held = Some((kind, (kind < 4).then_some(sender))),
                    Some((is, _)) if is == kind && self.holds(sender) => {}
                    Some(_) => return Err(true),
                }
                Vec::new()
            }
            ReservationRequest::Release { current, kind } if own == Some(current) => {
                match self.holds(sender) {
                    true if self.held.unwrap().0 != kind_of(kind) => return Err(false),
                    true => self.lapse(sender),
                    false => Vec::new(),
                }
            }
            ReservationRequest::Clear { current } if own == Some(current) => {
                let told = self.tell(sender, Notice::ReservationPreempted);
                self.keys = [None; HOSTS];
                self.held = None;
                told
            }
            ReservationRequest::Preempt {
                current,
                victim,
                kind,
            } if own == Some(current) => self.preempt(sender, victim, kind_of(kind))?,
            ReservationRequest::ScsiRegister { .. }
            | ReservationRequest::Move { .. }
            | ReservationRequest::ReserveUnit
            | ReservationRequest::ReleaseUnit => return self.scsi(sender, request),
            _ => return Err(true),
        };
        self.generation += u32::from(counted);
        Ok(told)
    }

    fn preempt(&mut self, sender: usize, victim: u64, kind: usize) -> Verdict {
        let matching: Vec<usize> = (self.registered())
            .filter(|host| self.keys[*host] == Some(victim))
            .collect();
        let victim_kind = match () {
            () if victim == 0 => Victim::Zero,
            () if matching.iter().any(|host| self.holds(*host)) => Victim::Holder,
            () if !matching.is_empty() => Victim::Registrant,
            () => Victim::NoRegistrant,
        };
        let row = |(holders, victim, _): &&(Holders, Victim, Effect)| {
            (*holders, *victim) == (self.holders(), victim_kind)
        };
        let (_, _, effect) = PREEMPT.iter().find(row).expect("a row for each case");
        match effect {
            Effect::Invalid => Err(false),
            Effect::Conflict => Err(true),
            Effect::Unregister => {
                for host in &matching {
                    self.keys[*host] = None;
                }
                if self.registered().next().is_none() {
                    self.held = None;
                }
                let others = matching.into_iter().filter(|host| *host != sender);
                Ok(others
                    .map(|host| (host, Notice::RegistrationPreempted))
                    .collect())
            }
            Effect::TakeOver => {
                let all = victim == 0;
                let mut told = Vec::new();
                let changes = self.held.unwrap().0 != kind;
                for host in (0..HOSTS).filter(|host| *host != sender) {
                    if self.keys[host].is_some() && (all || matching.contains(&host)) {
                        self.keys[host] = None;
                        told.push((host, Notice::RegistrationPreempted));
                    } else if self.keys[host].is_some() && changes {
                        told.push((host, Notice::ReservationReleased));
                    }
                }
                self.held = Some((kind, (kind < 4).then_some(sender)));
                Ok(told)
            }
        }
    }
}

fn key() -> impl Strategy<Value = u64> {
    // Few, so that hosts share keys and the wrong key is often another's.
    prop_oneof![1 => Just(0), 8 => 1..4u64]
}

fn request() -> impl Strategy<Value = ReservationRequest> {
    let kind = || prop::sample::select(&TYPES[..]);
    let current = || prop::option::weighted(0.8, key());
    prop_oneof![
        6 => key().prop_map(|key| ReservationRequest::Register { key, persist: None }),
        2 => (current(), key()).prop_map(|(current, key)| ReservationRequest::Replace {
            current,
            key,
            persist: None
        }),
        2 => current().prop_map(|current| ReservationRequest::Unregister { current, persist: None }),
        5 => (key(), kind()).prop_map(|(current, kind)| ReservationRequest::Acquire { current, kind }),
        5 => (key(), key(), kind()).prop_map(|(current, victim, kind)| ReservationRequest::Preempt {
            current,
            victim,
            kind
        }),
        2 => (key(), kind()).prop_map(|(current, kind)| ReservationRequest::Release { current, kind }),
        1 => key().prop_map(|current| ReservationRequest::Clear { current }),
        6 => scsi_register(),
        2 => (key(), any_registrant(), key(), any::<bool>()).prop_map(|(current, to, key, unregister)| {
            ReservationRequest::Move { current, to, key, unregister, persist: true }
        }),
        1 => Just(ReservationRequest::ReserveUnit),
        3 => Just(ReservationRequest::ReleaseUnit),
    ]
}

fn any_registrant() -> impl Strategy<Value = Registrant> {
    (0..HOSTS).prop_map(host)
}

fn scsi_register() -> impl Strategy<Value = ReservationRequest> {
    let some = || prop::collection::vec(any_registrant(), 0..2);
    let current = prop::option::weighted(0.7, key());
    (current, key(), some(), some()).prop_map(|(current, key, ports, named)| {
        ReservationRequest::ScsiRegister {
            current,
            key,
            persist: true,
            ports,
            named,
        }
    })
}

/// Half of the requests that name a current key name the right one.
fn with_own_key(
    model: &Model,
    sender: usize,
    mut request: ReservationRequest,
) -> ReservationRequest {
    if let Some(own) = model.keys[sender] {
        match &mut request {
            ReservationRequest::Acquire { current, .. }
            | ReservationRequest::Preempt { current, .. }
            | ReservationRequest::Move { current, .. }
            | ReservationRequest::ScsiRegister {
                current: Some(current),
                ..
            }
            | ReservationRequest::Release { current, .. }
            | ReservationRequest::Clear { current } => *current = own,
            ReservationRequest::Replace {
                current: Some(current),
                ..
            }
            | ReservationRequest::Unregister {
                current: Some(current),
                ..
            } => *current = own,
            _ => {}
        }
    }
    request
}

fn check(reservations: &Reservations, model: &Model, grants: &mut [Grant]) {
    let report = reservations.report();
    assert_eq!(report.generation, model.generation);
    assert_eq!(report.kind, model.held.map(|(kind, _)| TYPES[kind]));
    assert_eq!(report.reserved, model.reserved.map(host));
    let registrants: Vec<_> = (model.registered())
        .map(|index| (host(index), model.keys[index].unwrap(), model.holds(index)))
        .collect();
    assert_eq!(report.registrants, registrants);
    for (index, grant) in grants.iter_mut().enumerate() {
        let access = reservations.access(&host(index), grant);
        assert_eq!(access, model.access(index), "host {index} of {model:?}");
    }
}

fn run(reservations: &Reservations, steps: Vec<(usize, bool, ReservationRequest)>) -> Model {
    let mut model = Model::default();
    let mut grants = [Grant::default(); HOSTS];
    for (sender, knows_key, request) in steps {
        let request = match knows_key {
            true => with_own_key(&model, sender, request),
            false => request,
        };
        let before = model.clone();
        let expected = model.step(sender, &request);
        if expected.is_err() {
            model = before.clone();
        }
        let what = format!("{request:?} of {sender} on {before:?}");
        match (reservations.change(&host(sender), &request), expected) {
            (Ok(change), Ok(told)) => {
                let told: Vec<_> = told.into_iter().map(|(to, n)| (host(to), n)).collect();
                assert_eq!(change.notices, told, "{what}");
                let less = |was: Access, is: Access| {
                    (was.read && !is.read) || (was.write && !is.write) || (was.other && !is.other)
                };
                // One more host that never registers: the stranger.
                let stranger = |model: &Model| {
                    if model.reserved.is_some() {
                        return Access::NONE;
                    }
                    let mut model = model.clone();
                    model.keys[0] = None;
                    model.held = model.held.map(|(kind, _)| (kind, None));
                    model.access(0)
                };
                let hosts = (0..HOSTS).any(|host| less(before.access(host), model.access(host)));
                let takes = matches!(
                    request,
                    ReservationRequest::Acquire { .. }
                        | ReservationRequest::Preempt { .. }
                        | ReservationRequest::ReserveUnit
                );
                let is_held = takes && stranger(&model) != Access::ALL;
                let expected = is_held || hosts || less(stranger(&before), stranger(&model));
                assert_eq!(change.access_lost, expected, "{what}");
            }
            (Err(ReservationRefused::Conflict), Err(true))
            | (Err(ReservationRefused::Invalid), Err(false)) => {}
            (got, expected) => panic!("{got:?} instead of {expected:?}: {what}"),
        }
        check(reservations, &model, &mut grants);
    }
    model
}

fn steps(max: usize) -> impl Strategy<Value = Vec<(usize, bool, ReservationRequest)>> {
    prop::collection::vec((0..HOSTS, prop::bool::weighted(0.8), request()), 1..max)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn reservation_rules_do_what_the_model_of_the_standards_does(steps in steps(40)) {
        run(Disk::default().state().reservations(), steps);
    }

    #[test]
    fn persistent_reservations_are_all_there_after_opening_again(steps in steps(25)) {
        let disk = Disk::default();
        let state = disk.state();
        state.reservations().set_persist(true).unwrap();
        let mut model = run(state.reservations(), steps);
        drop(state);
        model.reserved = None;
        let again = disk.state();
        prop_assert!(again.reservations().persists());
        check(again.reservations(), &model, &mut [Grant::default(); HOSTS]);
    }
}

/// A medium in memory that fails when told to.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<(Option<Vec<u8>>, bool)>>);

impl Disk {
    fn state(&self) -> State {
        State::open(Box::new(self.clone()), uuid::Uuid::nil()).expect("nothing damaged")
    }

    fn fail(&self, fails: bool) {
        self.0.lock().unwrap().1 = fails;
    }
}

impl Medium for Disk {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.lock().unwrap().0.clone())
    }

    fn save(&self, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        if disk.1 {
            return Err(rustix::io::Errno::IO.into());
        }
        disk.0 = Some(bytes.to_vec());
        Ok(())
    }

    fn path(&self) -> &std::path::Path {
        std::path::Path::new("memory")
    }
}

fn register(key: u64) -> ReservationRequest {
    ReservationRequest::Register { key, persist: None }
}

#[test]
fn reservation_change_that_cannot_be_saved_changes_nothing() {
    let disk = Disk::default();
    let state = disk.state();
    let persistent = ReservationRequest::Register {
        key: 7,
        persist: Some(true),
    };
    let reservations = state.reservations();
    assert!(reservations.can_persist());
    reservations.change(&host(0), &persistent).unwrap();
    let before = reservations.report();
    disk.fail(true);
    let refused = reservations.change(&host(1), &register(8));
    assert!(
        matches!(refused, Err(ReservationRefused::Unsaved(_))),
        "{refused:?}"
    );
    assert_eq!(reservations.report(), before);
    assert!(matches!(
        reservations.set_persist(false),
        Err(ReservationRefused::Unsaved(_))
    ));
    assert!(reservations.persists());
    assert_eq!(disk.state().reservations().report(), before);
    disk.fail(false);
    reservations.change(&host(1), &register(8)).unwrap();
    assert_eq!(disk.state().reservations().report().registrants.len(), 2);
}

#[test]
fn registrations_without_persistence_are_gone_after_a_restart() {
    let disk = Disk::default();
    let state = disk.state();
    state.reservations().change(&host(0), &register(7)).unwrap();
    assert!(disk.0.lock().unwrap().0.is_none(), "nothing to save");
    assert!(disk.state().reservations().report().registrants.is_empty());
    state.reservations().set_persist(true).unwrap();
    assert_eq!(disk.state().reservations().report().registrants.len(), 1);
    let cleared = ReservationRequest::Register {
        key: 7,
        persist: Some(false),
    };
    state.reservations().change(&host(0), &cleared).unwrap();
    let again = disk.state();
    assert!(again.reservations().report().registrants.is_empty());
    assert!(!again.reservations().persists());
}

#[test]
fn persistence_without_a_file_is_refused_and_changes_nothing() {
    let state = State::volatile();
    let reservations = state.reservations();
    assert!(!reservations.can_persist());
    let persistent = ReservationRequest::Register {
        key: 7,
        persist: Some(true),
    };
    let refused = reservations.change(&host(0), &persistent);
    assert!(
        matches!(refused, Err(ReservationRefused::Volatile)),
        "{refused:?}"
    );
    assert!(matches!(
        reservations.set_persist(true),
        Err(ReservationRefused::Volatile)
    ));
    reservations.set_persist(false).unwrap();
    assert!(reservations.report().registrants.is_empty());
}

#[test]
fn there_is_room_for_as_many_as_a_report_can_count() {
    let mut rules = Rules::default();
    for n in 0..REGISTRANTS_MAX as u128 {
        let host = Registrant::NvmeHost(n.to_be_bytes());
        rules.apply(&host, &register(1)).unwrap();
    }
    let one_more = rules.apply(&Registrant::NvmeHost([0xff; 16]), &register(1));
    assert!(matches!(one_more, Err(ReservationRefused::Full)));
    assert_eq!(rules.report().registrants.len(), REGISTRANTS_MAX);
}

#[test]
fn a_nexus_survives_its_text() {
    let text = "scsi-nexus:iqn.2004-01.org.example:a,i,0x00023d000001 \
                iqn.2026-01.io.weft:disks,t,0x0003";
    assert_eq!(host(3).to_string(), text);
    assert_eq!(text.parse(), Ok(host(3)));
    for wrong in [
        "scsi-nexus:",
        "scsi-nexus:a",
        "scsi-nexus:a b",
        "scsi-nexus:a b,t,0x001",
        "scsi-nexus:a b,t,0x00001",
        "scsi-nexus: b,t,0x0001",
        "scsi-nexus:a ,t,0x0001",
        "scsi-nexus:a b c,t,0x0001",
    ] {
        assert!(wrong.parse::<Registrant>().is_err(), "{wrong}");
    }
    // One that NVMe hosts are told of is no host's, and not another nexus'.
    assert_eq!(host(1).host_identifier(), [2; 16]);
    assert_eq!(host(3).host_identifier(), host(3).host_identifier());
    assert_ne!(host(3).host_identifier(), host(2).host_identifier());
}

/// What was written before there was SCSI.
#[test]
fn an_old_state_file_still_loads() {
    let body = r#"{
  "volume": "00000000-0000-0000-0000-000000000000",
  "reservations": {
    "generation": 3,
    "persist": true,
    "held": {
      "kind": "write-exclusive",
      "holder": "nvme-host:01010101010101010101010101010101"
    },
    "registrants": {
      "nvme-host:01010101010101010101010101010101": 7
    }
  },
  "write_protected": false,
  "unreadable": []
}
"#;
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, body.as_bytes());
    let disk = Disk::default();
    disk.save(format!("weft-state 1 {sum:08x}\n{body}").as_bytes())
        .unwrap();
    let report = disk.state().reservations().report();
    assert_eq!(report.generation, 3);
    assert_eq!(report.kind, Some(Type::WriteExclusive));
    assert_eq!(report.registrants, [(host(0), 7, true)]);
}

/// RESERVE ends with the nexus or a reset, and is in no file.
#[test]
fn a_reset_frees_what_reserve_took() {
    let disk = Disk::default();
    let state = disk.state();
    let reservations = state.reservations();
    reservations.set_persist(true).unwrap();
    let mut grant = Grant::default();
    for (holder, frees) in [(Some(host(2)), false), (Some(host(3)), true), (None, true)] {
        let change = reservations
            .change(&host(3), &ReservationRequest::ReserveUnit)
            .unwrap();
        assert_eq!(change.access_lost, reservations.report().reserved.is_some());
        assert_eq!(reservations.access(&host(2), &mut grant), Access::NONE);
        assert_eq!(disk.state().reservations().report().reserved, None);
        assert_eq!(reservations.reset(holder.as_ref()), frees);
        assert_eq!(reservations.report().reserved.is_none(), frees);
        assert_eq!(reservations.access(&host(2), &mut grant).other, frees);
        reservations.reset(None);
        assert!(!reservations.reset(None));
    }
}

#[test]
fn a_registrant_survives_its_text() {
    let registrant = Registrant::NvmeHost(core::array::from_fn(|n| n as u8 * 17));
    let text = registrant.to_string();
    assert_eq!(text, "nvme-host:00112233445566778899aabbccddeeff");
    assert_eq!(text.parse(), Ok(registrant));
    for wrong in [
        "",
        "nvme-host:",
        "nvme-host:0011",
        "scsi:00",
        "nvme-host:+0112233445566778899aabbccddeeff",
    ] {
        assert!(wrong.parse::<Registrant>().is_err(), "{wrong}");
    }
}

/// A namespace is removed and another volume takes its place in a queue's
/// table.
#[test]
fn a_grant_of_one_volume_is_worth_nothing_on_another() {
    let [open, shut] = [(); 2].map(|()| Reservations::open(None));
    let mut grant = Grant::default();
    assert!(open.access(&host(1), &mut grant).write);
    shut.change(&host(0), &register(7)).unwrap();
    let exclusive = ReservationRequest::Acquire {
        current: 7,
        kind: Type::ExclusiveAccess,
    };
    shut.change(&host(0), &exclusive).unwrap();
    for _ in 0..2 {
        open.change(&host(0), &register(7)).unwrap();
        assert!(open.access(&host(1), &mut grant).write);
        assert!(!shut.access(&host(1), &mut grant).read);
    }
}

/// The commands of a host that is only told of a reservation's end go on.
#[test]
fn preempted_lists_only_hosts_whose_registration_was_removed() {
    let reservations = Reservations::open(None);
    for (index, key) in [(0, 7), (1, 8), (2, 9)] {
        reservations.change(&host(index), &register(key)).unwrap();
    }
    let held = ReservationRequest::Acquire {
        current: 8,
        kind: Type::WriteExclusiveRegistrantsOnly,
    };
    reservations.change(&host(1), &held).unwrap();
    let preempt = ReservationRequest::Preempt {
        current: 7,
        victim: 8,
        kind: Type::WriteExclusive,
    };
    let change = reservations.change(&host(0), &preempt).unwrap();
    let told = [
        (host(1), Notice::RegistrationPreempted),
        (host(2), Notice::ReservationReleased),
    ];
    assert_eq!(change.notices, told);
    assert!(change.preempted().eq([&host(1)]), "{:?}", change.notices);
}

/// A host's own key is a key like others, but a host that takes the reservation over
/// keeps it.
#[test]
fn preempt_of_the_own_key_unregisters_hosts_that_do_not_take_the_reservation() {
    let reservations = Reservations::open(None);
    let preempt = |kind| ReservationRequest::Preempt {
        current: 7,
        victim: 7,
        kind,
    };
    let registrants = || reservations.report().registrants;
    let join = |key| {
        for index in [0, 1] {
            reservations.change(&host(index), &register(key)).unwrap();
        }
    };
    let told = [(host(1), Notice::RegistrationPreempted)];
    // Nothing is reserved: both go, and the host that asked is not told.
    join(7);
    let change = reservations.change(&host(0), &preempt(Type::WriteExclusive));
    assert_eq!(change.unwrap().notices, told);
    assert_eq!(registrants(), []);
    // The holder has the key: the other goes, and the host that asked holds the
    // reservation.
    for holder in [0, 1] {
        join(7);
        let acquire = ReservationRequest::Acquire {
            current: 7,
            kind: Type::WriteExclusive,
        };
        reservations.change(&host(holder), &acquire).unwrap();
        let change = reservations.change(&host(0), &preempt(Type::ExclusiveAccess));
        assert_eq!(change.unwrap().notices, told, "held by {holder}");
        assert_eq!(registrants(), [(host(0), 7, true)], "held by {holder}");
        assert_eq!(reservations.report().kind, Some(Type::ExclusiveAccess));
        reservations
            .change(&host(0), &ReservationRequest::Clear { current: 7 })
            .unwrap();
    }
}

/// A reset that may not wait does nothing while a change is made.
#[test]
fn try_reset_beside_a_change_frees_nothing() {
    let reservations = Reservations::open(None);
    assert!(reservations.try_reset(), "nothing is to be done");
    reservations
        .change(&host(3), &ReservationRequest::ReserveUnit)
        .unwrap();
    let turn = reservations.turn.lock().unwrap();
    assert!(!reservations.try_reset());
    assert_eq!(reservations.report().reserved, Some(host(3)));
    drop(turn);
    assert!(reservations.try_reset());
    assert_eq!(reservations.report().reserved, None);
}

#[test]
fn scsi_register_and_move_add_no_registrant_to_a_full_table() {
    let mut rules = Rules::default();
    for n in 1..REGISTRANTS_MAX as u128 {
        let host = Registrant::NvmeHost(n.to_be_bytes());
        rules.apply(&host, &register(1)).unwrap();
    }
    let scsi_register = |current, key| ReservationRequest::ScsiRegister {
        current,
        key,
        persist: false,
        ports: Vec::new(),
        named: Vec::new(),
    };
    rules.apply(&host(2), &scsi_register(Some(0), 7)).unwrap();
    let one_more = rules.clone().apply(&host(3), &scsi_register(Some(0), 8));
    assert!(
        matches!(one_more, Err(ReservationRefused::Full)),
        "{one_more:?}"
    );
    // A registered host may change its key, but not move the reservation to one more.
    rules.apply(&host(2), &scsi_register(Some(7), 9)).unwrap();
    let acquire = ReservationRequest::Acquire {
        current: 9,
        kind: Type::WriteExclusive,
    };
    rules.apply(&host(2), &acquire).unwrap();
    let give = |to| ReservationRequest::Move {
        current: 9,
        to,
        key: 5,
        unregister: false,
        persist: false,
    };
    let one_more = rules.clone().apply(&host(2), &give(host(3)));
    assert!(
        matches!(one_more, Err(ReservationRefused::Full)),
        "{one_more:?}"
    );
    let registered = Registrant::NvmeHost(1u128.to_be_bytes());
    rules.apply(&host(2), &give(registered.clone())).unwrap();
    let holders = rules.report().registrants;
    let holders: Vec<_> = holders.into_iter().filter(|(.., holds)| *holds).collect();
    assert_eq!(holders, [(registered, 5, true)]);
}
