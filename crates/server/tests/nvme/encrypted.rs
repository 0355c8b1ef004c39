//! Encrypted volumes: what hosts of both protocols are told of one that is locked, and when it is
//! unlocked.

use auth::Secret;
use needs::each_driver;
use reactor::Choice;
use server::{Change, Config, IscsiTargetSpec, Limits, ListenerSpec, LunSpec, NamespaceSpec};
use std::net::SocketAddr;
use std::path::Path;
use store::{EncryptionSettings, Kind, Spec, WrappingKey};
use wire::nvme::Status;
use wire::nvme::identify::cns;
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
    let (_, mut io) = Host::at(running.addresses()[0]).pair();
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

#[test]
fn key_changes_while_hosts_are_connected() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = |settings| server::start(config(Choice::Auto, disk(folder.path(), settings)));
    let running = start(by(1)).expect("starts");
    let (_, mut io) = Host::at(running.addresses()[0]).pair();
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
    let (_, mut io) = Host::at(running.addresses()[0]).pair();
    assert_eq!(io.read(2, 3).expect("there"), [7; BLOCK]);
    stop(running);
}
