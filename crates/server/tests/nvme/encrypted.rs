//! Encrypted volumes: what hosts of both protocols are told of one that is locked, and when it is
//! unlocked.

use auth::Secret;
use needs::each_driver;
use reactor::Choice;
use server::{Change, Config, IscsiTargetSpec, Limits, ListenerSpec, LunSpec, NamespaceSpec};
use std::net::SocketAddr;
use std::path::Path;
use store::{EncryptionSettings, Kind, Spec, WrappingKey};
use wire::nvme::identify::cns;
use wire::nvme::{Sqe, Status};
use wire::scsi::{asc, key};

use crate::common::{self, BLOCK, Host, Queue, stop};
use crate::live::{code, refuse};
use crate::scsi::{ALICE, DISKS, Fail, Nexus};

/// Notice of changed namespaces.
const NAMESPACES_CHANGED: u32 = 0x0004_0002;
const CHANGED_NAMESPACES: u8 = 0x04;

/// By a key of this byte.
pub fn by(byte: u8) -> EncryptionSettings {
    EncryptionSettings {
        key: Ok(WrappingKey::Key(Secret::new([byte; 32]))),
        former: None,
    }
}

fn locked() -> EncryptionSettings {
    EncryptionSettings {
        key: Err("no such file".to_owned()),
        former: None,
    }
}

/// A file volume "disk" in a folder.
pub fn disk(folder: &Path, settings: EncryptionSettings) -> Spec {
    let kind = Kind::file(folder.join("disk"));
    Spec {
        encryption: Some(settings),
        ..Spec::new("disk", kind, 64 * BLOCK as u64, BLOCK as u32)
    }
}

/// Namespace 1 is "ram", namespace 2 and LUN 0 are "disk"; NVMe's address is the first, iSCSI's
/// the third.
pub fn config(backend: Choice, disk: Spec) -> Config {
    let mut config = common::config(backend, Limits::default(), 64 << 20);
    config.volumes.push(disk);
    config.subsystems[0].namespaces.push(NamespaceSpec {
        nsid: 2,
        volume: "disk".into(),
        ..NamespaceSpec::default()
    });
    let mut disks = IscsiTargetSpec::new(DISKS);
    disks.luns = vec![LunSpec::new(0, "disk")];
    config.iscsi_targets = vec![disks];
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    config.listeners.push(ListenerSpec::iscsi(local));
    config
}

fn set(settings: EncryptionSettings) -> Change {
    Change::SetEncryption {
        name: "disk".into(),
        settings,
    }
}

/// NRDY of NSTAT.
fn is_ready(admin: &mut Queue, nsid: u32) -> bool {
    let data = admin.identify(cns::NAMESPACE_INDEPENDENT.into(), nsid);
    data[14] & 1 != 0
}

fn unit_is_ready(nexus: &mut Nexus) -> Result<(), Fail> {
    nexus.plain([0; 16])
}

#[each_driver]
fn locked_volume_is_not_ready_until_its_key_is_there(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(config(backend, disk(folder.path(), by(1)))).expect("starts");
    let (_admin, mut io) = Host::at(running.addresses()[0]).pair();
    assert!(io.write(2, 3, 7).is_success());
    stop(running);
    let start = |settings| server::start(config(backend, disk(folder.path(), settings)));
    let refused = start(by(2)).err().expect("another key").to_string();
    assert!(
        refused.contains("volume 'disk': the key is another one"),
        "{refused}"
    );
    let running = start(locked()).expect("others are served");
    let addresses = running.addresses();
    let (mut admin, mut io) = Host::at(addresses[0]).pair();
    let mut nexus = Nexus::connect(addresses[2], ALICE, DISKS);
    let not_ready = Fail::Check(
        key::NOT_READY,
        asc::LOGICAL_UNIT_NOT_READY_MANUAL_INTERVENTION_REQUIRED,
        None,
    );
    admin.arm();
    assert!(is_ready(&mut admin, 1) && !is_ready(&mut admin, 2));
    assert!(io.write(1, 3, 7).is_success(), "others are served");
    assert_eq!(
        io.read(2, 3).expect_err("locked"),
        Status::NAMESPACE_NOT_READY
    );
    assert_eq!(code(io.write(2, 3, 9)), code(Status::NAMESPACE_NOT_READY));
    assert_eq!(unit_is_ready(&mut nexus), Err(not_ready));
    assert_eq!(nexus.read(BLOCK, 3, 1), Err(not_ready));
    assert_eq!(nexus.write(BLOCK, 3, &[9; BLOCK]), Err(not_ready));
    refuse(&running, set(by(2)), "the key is another one");
    running.change(set(locked())).expect("it changes nothing");
    assert_eq!(unit_is_ready(&mut nexus), Err(not_ready));
    running.change(set(by(1))).expect("its key");
    assert_eq!(admin.event(), NAMESPACES_CHANGED);
    let changed = admin.log_page(CHANGED_NAMESPACES, 4096);
    assert_eq!(changed[..8], [2, 0, 0, 0, 0, 0, 0, 0]);
    assert!(is_ready(&mut admin, 2));
    assert_eq!(io.read(2, 3).expect("unlocked"), [7; BLOCK]);
    unit_is_ready(&mut nexus).expect("unlocked");
    assert_eq!(nexus.read(BLOCK, 3, 1).expect("unlocked"), [7; BLOCK]);
    stop(running);
}

/// Namespace 2 is a part of "disk".
#[test]
fn volume_that_is_made_of_a_locked_one_is_not_ready_either() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = |settings| {
        let mut config = config(Choice::Auto, disk(folder.path(), settings));
        let part = Kind::slice("disk", 32 * BLOCK as u64);
        let part = Spec::new("part", part, 0, BLOCK as u32);
        config.volumes.push(part);
        config.subsystems[0].namespaces[1].volume = "part".into();
        config.iscsi_targets[0].luns[0].volume = "part".into();
        config
    };
    let running = server::start(config(by(1))).expect("starts");
    let (_admin, mut io) = Host::at(running.addresses()[0]).pair();
    assert!(io.write(2, 3, 7).is_success());
    stop(running);
    let running = server::start(config(locked())).expect("others are served");
    let addresses = running.addresses();
    let (mut admin, mut io) = Host::at(addresses[0]).pair();
    let mut nexus = Nexus::connect(addresses[2], ALICE, DISKS);
    admin.arm();
    assert!(is_ready(&mut admin, 1) && !is_ready(&mut admin, 2));
    assert!(matches!(
        unit_is_ready(&mut nexus),
        Err(Fail::Check(key::NOT_READY, ..))
    ));
    running.change(set(by(1))).expect("its key");
    assert_eq!(admin.event(), NAMESPACES_CHANGED);
    assert!(is_ready(&mut admin, 2));
    unit_is_ready(&mut nexus).expect("unlocked");
    assert_eq!(io.read(2, 3).expect("unlocked"), [7; BLOCK]);
    stop(running);
}

#[test]
fn key_changes_while_hosts_are_connected() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = |settings| server::start(config(Choice::Auto, disk(folder.path(), settings)));
    let running = start(by(1)).expect("starts");
    let (_admin, mut io) = Host::at(running.addresses()[0]).pair();
    assert!(io.write(2, 3, 7).is_success());
    let by_both = EncryptionSettings {
        former: Some(by(1).key),
        ..by(2)
    };
    running
        .change(set(by_both))
        .expect("the former key opens it");
    assert_eq!(io.read(2, 3).expect("as before"), [7; BLOCK]);
    refuse(&running, set(by(1)), "the key is another one");
    let of_ram = Change::SetEncryption {
        name: "ram".into(),
        settings: by(1),
    };
    refuse(&running, of_ram, "volume \"ram\" is not encrypted");
    let unknown = Change::SetEncryption {
        name: "none".into(),
        settings: by(1),
    };
    refuse(&running, unknown, "none");
    stop(running);
    assert!(start(by(1)).is_err());
    let running = start(by(2)).expect("the new key");
    let (_admin, mut io) = Host::at(running.addresses()[0]).pair();
    assert_eq!(io.read(2, 3).expect("there"), [7; BLOCK]);
    stop(running);
}

const FORMAT_NVM: u8 = 0x80;
const SANITIZE: u8 = 0x84;
const SANITIZE_STATUS: u8 = 0x81;
/// Sanitize Operation Completed, with the log to read.
const SANITIZED: u32 = 0x0081_0106;
const INVALID_FIELD: u16 = 0x002;
const INVALID_FORMAT: u16 = 0x10a;

/// An admin command with this CDW10.
fn ask(admin: &mut Queue, opcode: u8, nsid: u32, cdw10: u32) -> u16 {
    let mut sqe = Sqe::new(opcode);
    sqe.nsid = nsid.into();
    sqe.cdw10 = cdw10.into();
    code(admin.command(sqe, &[]).0)
}

/// What namespace 2 holds at block 3 by each protocol.
fn block_3(io: &mut Queue, nexus: &mut Nexus) -> Vec<u8> {
    let by_nvme = io.read(2, 3).expect("reads");
    assert!(nexus.read(BLOCK, 3, 1).expect("reads") == by_nvme);
    by_nvme
}

#[each_driver]
fn format_destroys_what_an_encrypted_namespace_holds(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(config(backend, disk(folder.path(), by(1)))).expect("starts");
    let addresses = running.addresses();
    let (mut admin, mut io) = Host::at(addresses[0]).pair();
    let mut nexus = Nexus::connect(addresses[2], ALICE, DISKS);
    let controller = admin.identify(1, 0);
    assert_eq!(controller[256] & 1 << 1, 1 << 1, "OACS: Format NVM");
    assert_eq!(
        controller[524],
        1 << 2 | 1 << 3,
        "FNA: by cryptography, one namespace"
    );
    let image = || std::fs::read(folder.path().join("disk")).expect("the file");
    for erase in 0..3 {
        assert!(io.write(2, 3, 7).is_success());
        assert!(image().iter().any(|byte| *byte != 0));
        let keys = std::fs::read(folder.path().join("disk.weft.keys")).expect("keys");
        assert_eq!(ask(&mut admin, FORMAT_NVM, 2, erase << 9), 0, "SES {erase}");
        assert_eq!(block_3(&mut io, &mut nexus), [0; BLOCK], "deallocated");
        assert!(image().iter().all(|byte| *byte == 0));
        let new = std::fs::read(folder.path().join("disk.weft.keys")).expect("keys");
        assert!(keys[96..176] != new[96..176] && new[..4096] == new[4096..]);
    }
    assert!(io.write(1, 3, 7).is_success());
    for (nsid, cdw10, status) in [
        (1, 2 << 9, INVALID_FIELD),
        (2, 3 << 9, INVALID_FIELD),
        (2, 2 << 9 | 1, INVALID_FORMAT),
        (2, 2 << 9 | 1 << 4, INVALID_FORMAT),
        (2, 2 << 9 | 1 << 5, INVALID_FORMAT),
        (9, 2 << 9, INVALID_FIELD),
        (u32::MAX, 2 << 9, code(Status::INVALID_NAMESPACE)),
    ] {
        assert_eq!(
            ask(&mut admin, FORMAT_NVM, nsid, cdw10),
            status,
            "{nsid} {cdw10:#x}"
        );
    }
    assert_eq!(io.read(1, 3).expect("it stays"), [7; BLOCK]);
    stop(running);
}

#[test]
fn volume_that_is_locked_or_protected_is_not_erased() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(config(Choice::Auto, disk(folder.path(), by(1)))).expect("starts");
    let (mut admin, mut io) = Host::at(running.addresses()[0]).pair();
    assert!(io.write(2, 3, 7).is_success());
    // Namespace Write Protection Config.
    let mut protect = |state: u32| {
        let mut sqe = Sqe::new(wire::nvme::admin::SET_FEATURES);
        sqe.nsid = 2.into();
        (sqe.cdw10, sqe.cdw11) = (0x84.into(), state.into());
        assert!(admin.command(sqe, &[]).0.is_success());
        ask(&mut admin, FORMAT_NVM, 2, 2 << 9)
    };
    assert_eq!(protect(1), code(Status::WRITE_PROTECTED));
    protect(0);
    assert!(io.write(2, 3, 7).is_success());
    stop(running);
    let running = server::start(config(Choice::Auto, disk(folder.path(), locked())));
    let running = running.expect("starts");
    let (mut admin, _io) = Host::at(running.addresses()[0]).pair();
    assert_eq!(
        ask(&mut admin, FORMAT_NVM, 2, 2 << 9),
        code(Status::NAMESPACE_NOT_READY)
    );
    running.change(set(by(1))).expect("its key");
    let (_admin, mut io) = Host::at(running.addresses()[0]).pair();
    assert_eq!(io.read(2, 3).expect("it is there"), [7; BLOCK]);
    stop(running);
}

/// Whichever protocol it came by.
#[each_driver]
fn erase_that_fails_leaves_a_namespace_that_is_not_ready(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(config(backend, disk(folder.path(), by(1)))).expect("starts");
    let addresses = running.addresses();
    let (mut admin, mut io) = Host::at(addresses[0]).pair();
    let mut nexus = Nexus::connect(addresses[2], ALICE, DISKS);
    assert!(io.write(2, 3, 7).is_success());
    let [keys, away] = ["disk.weft.keys", "away"].map(|name| folder.path().join(name));
    for by_scsi in [false, true] {
        std::fs::rename(&keys, &away).expect("its keys");
        std::fs::create_dir(&keys).expect("room");
        admin.arm();
        assert!(is_ready(&mut admin, 2));
        match by_scsi {
            true => {
                let refused = nexus.plain(sanitize(3, false, 0));
                assert!(matches!(refused, Err(Fail::Check(key::MEDIUM_ERROR, ..))));
            }
            false => {
                let status = ask(&mut admin, FORMAT_NVM, 2, 2 << 9);
                assert_eq!(status, code(Status::INTERNAL_ERROR));
            }
        }
        assert_eq!(admin.event(), NAMESPACES_CHANGED);
        assert_eq!(
            admin.log_page(CHANGED_NAMESPACES, 4096)[..8],
            [2, 0, 0, 0, 0, 0, 0, 0]
        );
        assert!(is_ready(&mut admin, 1) && !is_ready(&mut admin, 2));
        std::fs::remove_dir(&keys).expect("ours");
        std::fs::rename(&away, &keys).expect("its keys");
        admin.arm();
        running.change(set(by(1))).expect("its key");
        assert_eq!(admin.event(), NAMESPACES_CHANGED);
        admin.log_page(CHANGED_NAMESPACES, 4096);
        assert!(is_ready(&mut admin, 2));
    }
    assert_eq!(io.read(2, 3).expect("nothing was erased"), [7; BLOCK]);
    stop(running);
}

#[each_driver]
fn sanitize_destroys_what_all_namespaces_of_a_subsystem_hold(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(backend, disk(folder.path(), by(1)));
    // One that is not encrypted is in its way.
    let running = server::start(config.clone()).expect("starts");
    let (mut admin, _io) = Host::at(running.addresses()[0]).pair();
    assert_eq!(admin.identify(1, 0)[328..332], [0; 4], "SANICAP");
    assert_eq!(ask(&mut admin, SANITIZE, 0, 4), INVALID_FIELD);
    stop(running);
    config.volumes[0].encryption = Some(by(3));
    let running = server::start(config).expect("starts");
    let addresses = running.addresses();
    let (mut admin, mut io) = Host::at(addresses[0]).pair();
    let mut nexus = Nexus::connect(addresses[2], ALICE, DISKS);
    assert_eq!(admin.identify(1, 0)[328..332], [1, 0, 0, 0x60], "SANICAP");
    let log = admin.log_page(SANITIZE_STATUS, 512);
    assert_eq!(log[..8], [0xff, 0xff, 0, 0, 0, 0, 0, 0], "never");
    for (cdw10, status) in [
        (2, INVALID_FIELD),
        (3, INVALID_FIELD),
        (4 | 1 << 9, INVALID_FIELD),
        (1, 0),
    ] {
        assert_eq!(ask(&mut admin, SANITIZE, 0, cdw10), status, "{cdw10:#x}");
    }
    assert!(io.write(1, 3, 5).is_success() && io.write(2, 3, 7).is_success());
    admin.arm();
    assert_eq!(ask(&mut admin, SANITIZE, 0, 4 | 1 << 3), 0);
    assert_eq!(admin.event(), SANITIZED);
    let log = admin.log_page(SANITIZE_STATUS, 512);
    assert_eq!(log[..8], [0xff, 0xff, 1, 0, 12, 0, 0, 0], "completed");
    assert_eq!(log[8..32], [0xff; 24], "no times");
    assert_eq!(io.read(1, 3).expect("reads"), [0; BLOCK]);
    assert_eq!(block_3(&mut io, &mut nexus), [0; BLOCK]);
    // A host that does not see all of it destroys nothing of others.
    let hidden = Change::SetSubsystem {
        spec: server::SubsystemSpec {
            nqn: common::NQN.into(),
            serial: "1".into(),
            model: "weft".into(),
            namespaces: vec![NamespaceSpec {
                nsid: 2,
                volume: "disk".into(),
                hosts: Some(vec!["nqn.2026-01.org.example:other".into()]),
                ..NamespaceSpec::default()
            }],
            ..server::SubsystemSpec::default()
        },
        sets_ana: false,
    };
    running
        .change(hidden)
        .expect("a namespace is another host's");
    assert!(nexus.write(BLOCK, 3, &[7; BLOCK]).is_ok());
    assert_eq!(ask(&mut admin, SANITIZE, 0, 4), INVALID_FIELD);
    assert_eq!(nexus.read(BLOCK, 3, 1).expect("it stays"), [7; BLOCK]);
    stop(running);
}

/// SANITIZE with a service action and IMMED.
fn sanitize(action: u8, immediate: bool, len: u8) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[8]) = (0x48, action | u8::from(immediate) << 7, len);
    cdb
}

#[each_driver]
fn cryptographic_erase_destroys_what_an_encrypted_unit_holds(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(backend, disk(folder.path(), by(1)));
    config.iscsi_targets[0].luns.push(LunSpec::new(1, "ram"));
    let running = server::start(config).expect("starts");
    let addresses = running.addresses();
    let (_admin, mut io) = Host::at(addresses[0]).pair();
    let mut nexus = Nexus::connect(addresses[2], ALICE, DISKS);
    for immediate in [false, true] {
        nexus.write(BLOCK, 3, &[7; BLOCK]).expect("writes");
        nexus.plain(sanitize(3, immediate, 0)).expect("erased");
        assert_eq!(block_3(&mut io, &mut nexus), [0; BLOCK]);
    }
    nexus.write(BLOCK, 3, &[7; BLOCK]).expect("writes");
    for other in [1, 2, 0x1f] {
        let refused = nexus.plain(sanitize(other, false, 0));
        assert!(
            matches!(refused, Err(Fail::Check(key::ILLEGAL_REQUEST, ..))),
            "{refused:?}"
        );
    }
    let refused = nexus.plain(sanitize(3, false, 4));
    assert!(
        matches!(refused, Err(Fail::Check(key::ILLEGAL_REQUEST, ..))),
        "{refused:?}"
    );
    assert_eq!(block_3(&mut io, &mut nexus), [7; BLOCK]);
    let mut plain = nexus.at(1);
    let refused = plain.plain(sanitize(3, false, 0));
    assert!(
        matches!(refused, Err(Fail::Check(key::ILLEGAL_REQUEST, ..))),
        "{refused:?}"
    );
    stop(running);
}
