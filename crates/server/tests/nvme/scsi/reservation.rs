//! Reservations over iSCSI, alone and together with NVMe hosts.

use std::time::Duration;

use server::Running;
use wire::iscsi::TaskFunction;
use wire::nvme::log::lid;
use wire::nvme::reservation::{AcquireData, IEKEY, RegisterData, action, notice};
use wire::nvme::{Sqe, Status, io};
use wire::scsi::opcode::persistent_reserve_in as reserve_in;
use wire::scsi::opcode::persistent_reserve_out as reserve_out;
use wire::scsi::{asc, cdb, key, opcode};
use zerocopy::IntoBytes;

use super::{ALICE, BOB, DISKS, Fail, Nexus, illegal, serve, small};
use crate::common::{BLOCK, Host, Queue, stop};

const WRITE_EXCLUSIVE: u8 = 1;
pub const EXCLUSIVE_ACCESS: u8 = 3;
const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 5;
const EXCLUSIVE_ACCESS_ALL: u8 = 8;

/// SPEC_I_PT, ALL_TG_PT and APTPL.
const SPEC_I_PT: u8 = 0x08;
const ALL_TG_PT: u8 = 0x04;
const APTPL: u8 = 0x01;

/// The parameter list that most service actions have.
pub fn list(current: u64, key: u64, flags: u8) -> Vec<u8> {
    let mut list = [current, key].map(u64::to_be_bytes).concat();
    list.extend([0, 0, 0, 0, flags, 0, 0, 0]);
    list
}

/// A TransportID of an initiator port.
fn id(port: &str) -> Vec<u8> {
    let len = (port.len() + 1).next_multiple_of(4).max(20);
    let format = if port.contains(",i,0x") { 0x45 } else { 0x05 };
    let mut bytes = vec![format, 0, 0, len as u8];
    bytes.extend(port.as_bytes());
    bytes.resize(4 + len, 0);
    bytes
}

impl Nexus {
    pub fn reserve_out(&mut self, action: u8, kind: u8, list: &[u8]) -> Result<(), Fail> {
        let cdb = cdb::persistent_reserve_out(action, kind, list.len() as u32);
        self.give(cdb, list)
    }

    pub fn register(&mut self, current: u64, key: u64) -> Result<(), Fail> {
        self.reserve_out(reserve_out::REGISTER, 0, &list(current, key, 0))
    }

    pub fn reserve(&mut self, key: u64, kind: u8) -> Result<(), Fail> {
        self.reserve_out(reserve_out::RESERVE, kind, &list(key, 0, 0))
    }

    fn release(&mut self, key: u64, kind: u8) -> Result<(), Fail> {
        self.reserve_out(reserve_out::RELEASE, kind, &list(key, 0, 0))
    }

    fn reserve_in(&mut self, action: u8) -> Result<Vec<u8>, Fail> {
        self.take(cdb::persistent_reserve_in(action, 1024), 1024)
    }

    /// The keys, in order of the registrants, and the generation.
    fn keys(&mut self) -> (Vec<u64>, u32) {
        let told = self.reserve_in(reserve_in::READ_KEYS).unwrap();
        let number = |bytes: &[u8]| bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b));
        let keys: Vec<u64> = told[8..].chunks(8).map(number).collect();
        assert_eq!(number(&told[4..8]), 8 * keys.len() as u64);
        (keys, number(&told[..4]) as u32)
    }

    /// Key and type of the reservation.
    pub fn reservation(&mut self) -> Option<(u64, u8)> {
        let told = self.reserve_in(reserve_in::READ_RESERVATION).unwrap();
        let key = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("8 bytes"));
        (told.len() > 8).then(|| (key(&told[8..16]), told[21]))
    }

    /// Whether it may read and write.
    fn may(&mut self) -> (bool, bool) {
        let is_allowed = |result: Result<(), Fail>| match result {
            Ok(()) => true,
            Err(Fail::Conflict) => false,
            Err(other) => panic!("{other:?}"),
        };
        let read = self.read(BLOCK, 0, 1).map(|_| ());
        (
            is_allowed(read),
            is_allowed(self.write(BLOCK, 0, &[7; BLOCK])),
        )
    }
}

const ALL: (bool, bool) = (true, true);
const READS: (bool, bool) = (true, false);
const NOTHING: (bool, bool) = (false, false);

impl Queue {
    fn reserve(&mut self, opcode: u8, action: u8, kind: u32, data: &[u8]) -> Status {
        let mut sqe = Sqe::new(opcode);
        sqe.nsid = 1.into();
        sqe.cdw10 = (u32::from(action) | kind << 8).into();
        self.command(sqe, data).0
    }

    /// Whether it may read and write.
    fn may(&mut self) -> (bool, bool) {
        let is_allowed = |status: Status| match status {
            Status::SUCCESS => true,
            status if status == Status::RESERVATION_CONFLICT.dnr() => false,
            other => panic!("{other}"),
        };
        let read = self
            .read(1, 0)
            .map_or_else(|status| status, |_| Status::SUCCESS);
        (is_allowed(read), is_allowed(self.write(1, 0, 8)))
    }

    fn register(&mut self, key: u64) -> Status {
        let data = RegisterData {
            crkey: 0.into(),
            nrkey: key.into(),
        };
        let action = action::REGISTER | IEKEY as u8;
        self.reserve(io::RESERVATION_REGISTER, action, 0, data.as_bytes())
    }

    fn acquire(&mut self, key: u64, kind: u32) -> Status {
        let data = AcquireData {
            crkey: key.into(),
            prkey: 0.into(),
        };
        self.reserve(
            io::RESERVATION_ACQUIRE,
            action::ACQUIRE,
            kind,
            data.as_bytes(),
        )
    }

    /// Key and Host Identifier of each registrant, and whether it holds the
    /// reservation.
    fn registrants(&mut self) -> Vec<(u64, [u8; 16], bool)> {
        let mut sqe = Sqe::new(io::RESERVATION_REPORT);
        sqe.nsid = 1.into();
        sqe.cdw10 = (1024_u32 / 4 - 1).into();
        sqe.cdw11 = wire::nvme::reservation::EDS.into();
        let report = self.fetch(sqe, 1024).expect("a report");
        let count = u16::from_le_bytes([report[5], report[6]]).into();
        let each = report[64..].chunks(64).take(count).map(|one| {
            let key = u64::from_le_bytes(one[8..16].try_into().expect("8 bytes"));
            let hostid = one[16..32].try_into().expect("16 bytes");
            (key, hostid, one[2] & 1 != 0)
        });
        each.collect()
    }
}

fn nvme(running: &Running) -> (Queue, Queue) {
    Host::at(running.addresses()[0]).pair()
}

#[test]
fn an_nvme_host_and_a_nexus_refuse_each_other() {
    let running = serve(vec![]);
    let (mut admin, mut host) = nvme(&running);
    let mut alice = Nexus::of(&running, ALICE);
    assert!(host.register(0xa).is_success());
    assert!(host.acquire(0xa, 1).is_success());
    assert_eq!((host.may(), alice.may()), (ALL, READS));
    assert_eq!(alice.reservation(), Some((0xa, WRITE_EXCLUSIVE)));
    // The host is one of those that SCSI names.
    let told = alice.reserve_in(reserve_in::READ_FULL_STATUS).unwrap();
    let name = b"iqn.2026-01.io.weft:nvme-host:07070707070707070707070707070707\0";
    assert_eq!(told[8..16], 0xa_u64.to_be_bytes());
    assert_eq!(told[20..22], [1, WRITE_EXCLUSIVE]);
    assert_eq!(told[32..36], [0x05, 0, 0, name.len() as u8 + 1]);
    assert_eq!(told[36..36 + name.len()], name[..]);
    // And the nexus one of those that NVMe counts.
    alice.register(0, 0xb).unwrap();
    let registrants = host.registrants();
    assert_eq!(registrants.len(), 2);
    assert_eq!(registrants[0], (0xa, [7; 16], true));
    assert_eq!((registrants[1].0, registrants[1].2), (0xb, false));
    assert_ne!(registrants[1].1, [7; 16]);
    assert_eq!(alice.keys(), (vec![0xa, 0xb], 2));
    // It takes the reservation over.
    let preempt = list(0xb, 0xa, 0);
    alice
        .reserve_out(reserve_out::PREEMPT, EXCLUSIVE_ACCESS, &preempt)
        .unwrap();
    assert_eq!((host.may(), alice.may()), (NOTHING, ALL));
    assert_eq!(host.registrants().len(), 1);
    let told = admin.log_page(lid::RESERVATION_NOTIFICATION, 64);
    assert_eq!(told[8], notice::REGISTRATION_PREEMPTED);
    assert!(!host.acquire(0xa, 1).is_success());
    alice.release(0xb, EXCLUSIVE_ACCESS).unwrap();
    assert_eq!((host.may(), alice.may()), (ALL, ALL));
    // What a host takes from a nexus, the nexus is told of.
    assert!(host.register(0xa).is_success());
    assert!(host.acquire(0xa, 3).is_success());
    assert_eq!(alice.may(), ALL, "registrants write");
    let key = 0xa_u64.to_le_bytes();
    let cleared = host.reserve(io::RESERVATION_RELEASE, action::CLEAR, 0, &key);
    assert!(cleared.is_success());
    assert_eq!(alice.settle(), [asc::RESERVATIONS_PREEMPTED]);
    assert_eq!((alice.keys().0, alice.may()), (vec![], ALL));
    stop(running);
}

#[test]
fn each_reservation_type_allows_what_the_standard_says() {
    let running = serve(vec![]);
    let mut alice = Nexus::of(&running, ALICE);
    let mut bob = Nexus::of(&running, BOB);
    for (kind, stranger, registrant) in [
        (1, READS, READS),
        (3, NOTHING, NOTHING),
        (5, READS, ALL),
        (6, NOTHING, ALL),
        (7, READS, ALL),
        (8, NOTHING, ALL),
    ] {
        alice.register(0, 1).unwrap();
        assert_eq!(alice.reserve(2, kind), Err(Fail::Conflict), "the wrong key");
        alice.reserve(1, kind).unwrap();
        alice.reserve(1, kind).expect("again");
        let other = if kind == 5 { 6 } else { 5 };
        assert_eq!(alice.reserve(1, other), Err(Fail::Conflict));
        assert_eq!((alice.may(), bob.may()), (ALL, stranger), "{kind}");
        // Every initiator may ask whether the unit is there.
        bob.plain(cdb::plain(opcode::TEST_UNIT_READY)).unwrap();
        bob.take(cdb::read_capacity16(32), 32).unwrap();
        bob.register(0, 2).unwrap();
        assert_eq!((alice.may(), bob.may()), (ALL, registrant), "{kind}");
        let holds_too = kind >= 7;
        let key = if holds_too { 0 } else { 1 };
        assert_eq!(bob.reservation(), Some((key, kind)));
        match holds_too {
            true => bob.reserve(2, kind).expect("it holds it already"),
            false => assert_eq!(bob.reserve(2, kind), Err(Fail::Conflict)),
        }
        if !holds_too {
            bob.release(2, kind)
                .expect("nothing to release is no error");
        }
        let wrong = if kind == 1 { 3 } else { 1 };
        let refused = alice.release(1, wrong);
        assert_eq!(
            refused,
            Err(illegal(asc::INVALID_RELEASE_OF_PERSISTENT_RESERVATION))
        );
        alice.release(1, kind).unwrap();
        // Registrants that had access by it are told that it is over.
        let told = if kind >= 5 {
            vec![asc::RESERVATIONS_RELEASED]
        } else {
            vec![]
        };
        assert_eq!((bob.settle(), alice.settle()), (told, vec![]), "{kind}");
        assert_eq!(bob.reservation(), None);
        alice.register(1, 0).unwrap();
        bob.register(2, 0).unwrap();
    }
    stop(running);
}

#[test]
fn preempt_and_clear_notify_the_other_registrants() {
    let running = serve(vec![]);
    let mut alice = Nexus::of(&running, ALICE);
    let mut bob = Nexus::of(&running, BOB);
    let register = |alice: &mut Nexus, bob: &mut Nexus| {
        let both = [(alice, 1), (bob, 2)];
        for (nexus, key) in both {
            let ignoring = list(99, key, 0);
            let action = reserve_out::REGISTER_AND_IGNORE_EXISTING_KEY;
            nexus.reserve_out(action, 0, &ignoring).unwrap();
        }
    };
    register(&mut alice, &mut bob);
    alice
        .reserve_out(reserve_out::CLEAR, 0, &list(1, 0, 0))
        .unwrap();
    assert_eq!(bob.settle(), [asc::RESERVATIONS_PREEMPTED]);
    assert!(alice.settle().is_empty());
    assert_eq!(alice.keys(), (vec![], 3));
    for action in [reserve_out::PREEMPT, reserve_out::PREEMPT_AND_ABORT] {
        register(&mut alice, &mut bob);
        alice.reserve(1, WRITE_EXCLUSIVE_REGISTRANTS).unwrap();
        bob.reserve_out(action, WRITE_EXCLUSIVE, &list(2, 1, 0))
            .unwrap();
        assert_eq!(alice.settle(), [asc::REGISTRATIONS_PREEMPTED]);
        assert!(bob.settle().is_empty());
        assert_eq!(bob.reservation(), Some((2, WRITE_EXCLUSIVE)));
        assert_eq!(alice.may(), READS);
        let unknown = bob.reserve_out(action, WRITE_EXCLUSIVE, &list(2, 77, 0));
        assert_eq!(unknown, Err(Fail::Conflict));
        let zero = bob.reserve_out(action, WRITE_EXCLUSIVE, &list(2, 0, 0));
        assert!(matches!(zero, Err(Fail::Check(5, 0x2600, _))), "{zero:?}");
        bob.register(2, 0).unwrap();
    }
    // A reservation of registrants ends with its holder.
    register(&mut alice, &mut bob);
    alice.reserve(1, WRITE_EXCLUSIVE_REGISTRANTS).unwrap();
    alice.register(1, 0).unwrap();
    assert_eq!(bob.settle(), [asc::RESERVATIONS_RELEASED]);
    // One of all registrants with the last.
    alice.register(0, 1).unwrap();
    alice.reserve(1, EXCLUSIVE_ACCESS_ALL).unwrap();
    alice.register(1, 0).unwrap();
    assert_eq!(bob.reservation(), Some((0, EXCLUSIVE_ACCESS_ALL)));
    assert_eq!((alice.may(), bob.may()), (NOTHING, ALL));
    bob.register(2, 0).unwrap();
    assert_eq!(bob.reservation(), None);
    stop(running);
}

#[test]
fn register_keeps_the_rules_of_keys() {
    let running = serve(vec![]);
    let mut alice = Nexus::of(&running, ALICE);
    alice.register(0, 0).expect("nothing to do is no error");
    assert_eq!(alice.register(5, 1), Err(Fail::Conflict));
    alice.register(0, 1).unwrap();
    assert_eq!(alice.register(0, 2), Err(Fail::Conflict));
    alice.register(1, 2).unwrap();
    assert_eq!(alice.keys(), (vec![2], 2));
    assert_eq!(alice.reserve(1, WRITE_EXCLUSIVE), Err(Fail::Conflict));
    alice.register(2, 0).unwrap();
    assert_eq!(alice.keys(), (vec![], 3));
    let ignoring = reserve_out::REGISTER_AND_IGNORE_EXISTING_KEY;
    alice.reserve_out(ignoring, 0, &list(77, 0, 0)).unwrap();
    alice.reserve_out(ignoring, 0, &list(77, 3, 0)).unwrap();
    alice.reserve_out(ignoring, 0, &list(77, 4, 0)).unwrap();
    assert_eq!(alice.keys().0, [4]);
    let short = alice.reserve_out(reserve_out::REGISTER, 0, &[0; 20]);
    assert_eq!(short, Err(illegal(asc::PARAMETER_LIST_LENGTH_ERROR)));
    let told = alice.reserve_in(reserve_in::REPORT_CAPABILITIES).unwrap();
    assert_eq!(told, [0, 8, 0x1c, 0x80, 0xea, 0x01, 0, 0]);
    stop(running);
}

#[test]
fn others_can_be_registered_and_given_the_reservation() {
    let running = serve(vec![]);
    let mut alice = Nexus::of(&running, ALICE);
    let mut bob = Nexus::of(&running, BOB);
    // The same initiator port at the other portal group is another nexus.
    let mut there = Nexus::login(&running, 3, BOB, DISKS);
    let mut named = list(0, 1, SPEC_I_PT);
    let ids = id(&bob.port);
    named.extend((ids.len() as u32).to_be_bytes());
    named.extend(&ids);
    alice.reserve_out(reserve_out::REGISTER, 0, &named).unwrap();
    assert_eq!(alice.keys(), (vec![1, 1], 1));
    bob.register(1, 2).unwrap();
    alice.reserve(1, EXCLUSIVE_ACCESS).unwrap();
    assert_eq!(bob.may(), NOTHING);
    let again = alice.reserve_out(reserve_out::REGISTER, 0, &{
        let mut again = named.clone();
        again[7] = 1;
        again
    });
    assert!(matches!(again, Err(Fail::Check(5, 0x2600, _))), "{again:?}");
    // To the other portal group; the asker stays registered, then not.
    let moved = |current: u64, unregister: u8, port: u16, to: &str| {
        let mut moved = [current, 9].map(u64::to_be_bytes).concat();
        moved.extend([0, unregister << 1]);
        moved.extend(port.to_be_bytes());
        let id = id(to);
        moved.extend((id.len() as u32).to_be_bytes());
        moved.extend(id);
        moved
    };
    let to = reserve_out::REGISTER_AND_MOVE;
    let nowhere = alice.reserve_out(to, 0, &moved(1, 0, 3, &bob.port));
    assert!(
        matches!(nowhere, Err(Fail::Check(5, 0x2600, _))),
        "{nowhere:?}"
    );
    let not_its = bob.reserve_out(to, 0, &moved(2, 0, 1, &alice.port));
    assert_eq!(not_its, Err(Fail::Conflict));
    let port = there.port.clone();
    alice.reserve_out(to, 0, &moved(1, 0, 2, &port)).unwrap();
    assert_eq!(
        (alice.may(), bob.may(), there.may()),
        (NOTHING, NOTHING, ALL)
    );
    assert_eq!(alice.reservation(), Some((9, EXCLUSIVE_ACCESS)));
    let (name, first) = (alice.port.clone(), moved(9, 1, 1, &alice.port));
    there.reserve_out(to, 0, &first).unwrap();
    assert_eq!((alice.may(), there.may()), (ALL, NOTHING));
    let told = alice.reserve_in(reserve_in::READ_FULL_STATUS).unwrap();
    let text = String::from_utf8_lossy(&told).into_owned();
    assert!(text.contains(&name) && text.contains(&bob.port));
    assert!(!text.contains(&port), "unregistered");
    stop(running);
}

/// Its ports are those that are logged in, wherever that is (SPC-4, section 7.6.4.6).
#[test]
fn initiator_that_is_named_without_a_port_is_registered_with_all_of_its() {
    let running = serve(vec![]);
    let mut alice = Nexus::of(&running, ALICE);
    let mut named = list(0, 1, SPEC_I_PT);
    let ids = id(BOB);
    named.extend((ids.len() as u32).to_be_bytes());
    named.extend(&ids);
    let register = reserve_out::REGISTER;
    let nowhere = alice.reserve_out(register, 0, &named);
    assert!(
        matches!(nowhere, Err(Fail::Check(5, 0x2600, _))),
        "{nowhere:?}"
    );
    assert!(alice.keys().0.is_empty());
    let mut bobs = [2, 2].map(|listener| Nexus::login(&running, listener, BOB, DISKS));
    let mut carol = Nexus::of(&running, "iqn.2004-01.org.example:carol");
    alice.reserve_out(register, 0, &named).unwrap();
    assert_eq!(alice.keys().0, [1, 1, 1]);
    for bob in &mut bobs {
        bob.register(1, 2).expect("it is registered");
    }
    assert_eq!(carol.register(1, 2), Err(Fail::Conflict), "it is not");
    stop(running);
}

#[test]
fn one_registration_can_be_for_all_ports() {
    let running = serve(vec![]);
    let mut alice = Nexus::of(&running, ALICE);
    let all = list(0, 5, ALL_TG_PT);
    alice.reserve_out(reserve_out::REGISTER, 0, &all).unwrap();
    assert_eq!(alice.keys(), (vec![5, 5], 1));
    let told = alice.reserve_in(reserve_in::READ_FULL_STATUS).unwrap();
    let second = 8 + 24 + id(&alice.port).len();
    assert_eq!((told[8 + 19], told[second + 19]), (1, 2), "both ports");
    let none = list(5, 0, ALL_TG_PT);
    alice.reserve_out(reserve_out::REGISTER, 0, &none).unwrap();
    assert_eq!(alice.keys(), (vec![], 2));
    stop(running);
}

/// As SPC-4, section 5.13.7, has it: a registrant may not name other ports to register,
/// and with ALL_TG_PT the named are registered at all ports too.
#[test]
fn only_a_new_registrant_names_others_and_all_tg_pt_registers_them_too() {
    let running = serve(vec![]);
    let mut alice = Nexus::of(&running, ALICE);
    let bob = Nexus::of(&running, BOB);
    let named = |current: u64, flags: u8, port: &str| {
        let mut named = list(current, 1, SPEC_I_PT | flags);
        let ids = id(port);
        named.extend((ids.len() as u32).to_be_bytes());
        named.extend(&ids);
        named
    };
    let register = reserve_out::REGISTER;
    alice
        .reserve_out(register, 0, &named(0, ALL_TG_PT, &bob.port))
        .unwrap();
    assert_eq!(alice.keys(), (vec![1; 4], 1));
    let told = alice.reserve_in(reserve_in::READ_FULL_STATUS).unwrap();
    let each = 24 + id(&bob.port).len();
    let ports: Vec<u8> = told[8..].chunks(each).map(|one| one[19]).collect();
    assert_eq!(ports, [1, 2, 1, 2]);
    let own = alice.port.clone();
    let again = alice.reserve_out(register, 0, &named(1, 0, &own));
    assert!(matches!(again, Err(Fail::Check(5, 0x2600, _))), "{again:?}");
    assert_eq!(alice.keys(), (vec![1; 4], 1));
    stop(running);
}

/// What could not be kept did not happen, and the log of the target says why.
#[test]
fn registration_that_cannot_be_kept_is_refused_and_noted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let kind = store::Kind::file(path);
    let running = serve(vec![store::Spec {
        kind,
        ..small("file")
    }]);
    let mut alice = Nexus::of(&running, ALICE).at(1);
    folder.close().expect("the folder goes");
    let unkept = alice.reserve_out(reserve_out::REGISTER, 0, &list(0, 1, APTPL));
    let failed = Fail::Check(key::HARDWARE_ERROR, asc::INTERNAL_TARGET_FAILURE, None);
    assert_eq!(unkept, Err(failed));
    assert!(alice.keys().0.is_empty());
    assert_eq!(crate::report::report(&running).refusals, 1);
    alice.register(0, 1).expect("what need not last");
    stop(running);
}

#[test]
fn registrations_outlast_a_restart_where_they_can() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = store::Spec {
        kind: store::Kind::file(folder.path().join("disk")),
        uuid: Some(uuid::Uuid::from_u128(5)),
        ..small("file")
    };
    let running = serve(vec![file.clone()]);
    let mut alice = Nexus::of(&running, ALICE);
    let persistent = list(0, 1, APTPL);
    let refused = alice.reserve_out(reserve_out::REGISTER, 0, &persistent);
    assert!(
        matches!(refused, Err(Fail::Check(5, 0x2600, _))),
        "{refused:?}"
    );
    assert!(alice.keys().0.is_empty());
    let mut alice = alice.at(1);
    alice
        .reserve_out(reserve_out::REGISTER, 0, &persistent)
        .unwrap();
    alice.reserve(1, EXCLUSIVE_ACCESS).unwrap();
    let capable = alice.reserve_in(reserve_in::REPORT_CAPABILITIES).unwrap();
    assert_eq!(capable[2..4], [0x1d, 0x81]);
    let name = alice.port.clone();
    stop(running);
    let running = serve(vec![file]);
    let mut bob = Nexus::of(&running, BOB).at(1);
    assert_eq!(bob.reservation(), Some((1, EXCLUSIVE_ACCESS)));
    let told = bob.reserve_in(reserve_in::READ_FULL_STATUS).unwrap();
    assert!(String::from_utf8_lossy(&told).contains(&name));
    let refused = bob.read(512, 0, 1);
    assert_eq!(refused, Err(Fail::Conflict));
    stop(running);
}

/// RESERVE(6), RELEASE(6) and their longer forms.
fn reserve_unit(nexus: &mut Nexus) -> Result<(), Fail> {
    nexus.plain(cdb::plain(opcode::RESERVE_6))
}

fn release_unit(nexus: &mut Nexus) -> Result<(), Fail> {
    nexus.plain(cdb::plain(opcode::RELEASE_6))
}

#[test]
fn reserve_is_for_one_nexus_alone() {
    let running = serve(vec![]);
    let (_admin, mut host) = nvme(&running);
    let mut alice = Nexus::of(&running, ALICE);
    let mut bob = Nexus::of(&running, BOB);
    reserve_unit(&mut alice).unwrap();
    reserve_unit(&mut alice).expect("again");
    assert_eq!(reserve_unit(&mut bob), Err(Fail::Conflict));
    assert_eq!(
        (alice.may(), bob.may(), host.may()),
        (ALL, NOTHING, NOTHING)
    );
    let ready = bob.plain(cdb::plain(opcode::TEST_UNIT_READY));
    assert_eq!(ready, Err(Fail::Conflict));
    bob.take(cdb::inquiry(None, 96), 96).expect("INQUIRY");
    // Both kinds exclude each other.
    assert_eq!(alice.register(0, 1), Err(Fail::Conflict));
    assert_eq!(alice.reserve_in(reserve_in::READ_KEYS), Err(Fail::Conflict));
    assert!(!host.register(1).is_success());
    release_unit(&mut bob).expect("no error, no effect");
    assert_eq!(bob.may(), NOTHING);
    alice.plain(cdb::plain(opcode::RELEASE_10)).unwrap();
    assert_eq!((bob.may(), host.may()), (ALL, ALL));
    assert!(host.register(1).is_success());
    assert_eq!(reserve_unit(&mut alice), Err(Fail::Conflict));
    // RESERVE does nothing for a nexus that has access by its registration.
    assert!(host.acquire(1, 3).is_success());
    bob.register(0, 2).unwrap();
    reserve_unit(&mut bob).expect("compatible reservation handling");
    assert_eq!(host.may(), ALL);
    assert_eq!(reserve_unit(&mut alice), Err(Fail::Conflict));
    stop(running);
}

#[test]
fn reserve_ends_when_its_nexus_is_lost() {
    let running = serve(vec![small("other")]);
    let mut bob = Nexus::of(&running, BOB);
    for logs_out in [true, false] {
        let mut alice = Nexus::of(&running, ALICE);
        reserve_unit(&mut alice).unwrap();
        assert_eq!(reserve_unit(&mut bob), Err(Fail::Conflict));
        match logs_out {
            true => {
                alice.session.logout().expect("logged out");
                reserve_unit(&mut bob).expect("before the logout is answered");
            }
            false => drop(alice),
        }
        // A connection that is simply gone is seen in a moment.
        let mut tries = 0;
        while reserve_unit(&mut bob).is_err() {
            tries += 1;
            assert!(tries < 1000, "still reserved");
            std::thread::sleep(Duration::from_millis(5));
        }
        release_unit(&mut bob).unwrap();
    }
    for function in [
        TaskFunction::LogicalUnitReset,
        TaskFunction::TargetWarmReset,
    ] {
        let mut alice = Nexus::of(&running, ALICE);
        reserve_unit(&mut alice).unwrap();
        bob.session.task_management(function, 0).expect("reset");
        assert_eq!(bob.settle().len(), 1, "a reset is told");
        reserve_unit(&mut bob).unwrap();
        release_unit(&mut bob).unwrap();
    }
    // A reset of another unit is none of this one's.
    let mut alice = Nexus::of(&running, ALICE);
    reserve_unit(&mut alice).unwrap();
    bob.session
        .task_management(TaskFunction::LogicalUnitReset, 1)
        .expect("reset");
    assert_eq!(reserve_unit(&mut bob), Err(Fail::Conflict));
    release_unit(&mut alice).unwrap();
    // Registrations and reservations stay.
    bob.register(0, 1).unwrap();
    bob.reserve(1, WRITE_EXCLUSIVE).unwrap();
    bob.session
        .task_management(TaskFunction::LogicalUnitReset, 0)
        .expect("reset");
    bob.settle();
    assert_eq!(bob.reservation(), Some((1, WRITE_EXCLUSIVE)));
    stop(running);
}
