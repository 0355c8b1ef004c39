//! No two volumes of a process are one to hosts, and what is missing at a start
//! takes nothing else with it.

use server::{Change, Config, Start, StartError};

use crate::common::*;
use crate::disks::{self, NQN, ram};

/// Another volume that has this of the volume "a", and what that is called.
fn shared() -> Vec<(store::Spec, &'static str)> {
    let a = store::open(&identified()).expect("memory").info().clone();
    let mut others = Vec::new();
    let mut add = |what, edit: &dyn Fn(&mut store::Spec)| {
        let mut other = ram("b", 16);
        edit(&mut other);
        others.push((other, what));
    };
    add("UUID", &|spec| spec.uuid = Some(a.uuid));
    add("NGUID", &|spec| spec.names.nguid = Some(a.nguid));
    add("EUI-64", &|spec| spec.names.eui64 = a.eui64);
    add("NAA designator", &|spec| {
        spec.names.naa = Some(a.naa.clone())
    });
    add("serial number", &|spec| {
        spec.names.serial = Some(a.serial.clone())
    });
    others
}

fn identified() -> store::Spec {
    let mut spec = ram("a", 16);
    spec.names.eui64 = Some([2; 8]);
    spec
}

#[test]
fn volume_with_the_identity_of_another_is_refused_by_name_at_start_and_live() {
    for (other, what) in shared() {
        let config = Config {
            volumes: vec![identified(), other.clone()],
            ..Config::default()
        };
        let Err(error @ StartError::Config(_)) = server::start(config) else {
            panic!("two volumes have one {what}");
        };
        let told = format!("volume \"b\" has the {what} of the volume \"a\"");
        assert!(error.to_string().contains(&told), "{error}");
    }
    let config = Config {
        volumes: vec![identified()],
        ..Config::default()
    };
    let running = server::start(config).expect("one volume");
    for (other, what) in shared() {
        let told = format!("has the {what} of the volume \"a\"");
        let refused = running.change(Change::AddVolume(other)).expect_err(what);
        assert!(refused.to_string().contains(&told), "{refused}");
    }
    let mut wrong = ram("b", 16);
    wrong.names.vendor = Some("too long a vendor".to_owned());
    let refused = running
        .change(Change::AddVolume(wrong))
        .expect_err("too long");
    assert!(
        refused.to_string().contains("`vendor` is 1 to 8"),
        "{refused}"
    );
    running
        .change(Change::AddVolume(ram("b", 16)))
        .expect("its own");
    running.stop();
    let ended = running.wait(std::time::Duration::from_secs(30));
    assert!(ended.expect("no failure").is_some());
}

#[test]
fn volume_that_is_missing_takes_only_itself_away_where_that_is_wanted() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = store::Spec {
        kind: store::Kind::block(folder.path().join("none")),
        ..ram("none", 16)
    };
    let mut subsystem = disks::subsystem();
    subsystem.namespaces.push(server::NamespaceSpec {
        nsid: 2,
        volume: "none".into(),
        ..Default::default()
    });
    let gone = server::nfs::FileSystemSpec {
        name: "gone".into(),
        kind: server::nfs::FileSystemKind::Dir {
            path: folder.path().join("no"),
            state: folder.path().join("state"),
            read_only: false,
            acls: None,
            direct: false,
        },
    };
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let mut config = Config {
        volumes: vec![missing, ram("ram", 4096)],
        subsystems: vec![subsystem],
        iscsi_targets: vec![server::IscsiTargetSpec {
            luns: vec![
                server::LunSpec::new(0, "none"),
                server::LunSpec::new(1, "ram"),
            ],
            ..server::IscsiTargetSpec::new("iqn.2026-01.io.weft:test")
        }],
        file_systems: vec![gone],
        exports: vec![server::nfs::ExportSpec {
            path: "/".into(),
            what: server::nfs::Exported::FileSystem("gone".into()),
            rules: vec![server::nfs::Rule::default()],
        }],
        listeners: vec![any.into()],
        memory_max: 64 << 20,
        ..Config::default()
    };
    assert!(matches!(
        server::start(config.clone()),
        Err(StartError::Volume(_))
    ));
    config.start = Start::Degraded;
    let running = server::start(config).expect("the rest");
    let missing = running.missing();
    assert_eq!(missing.len(), 2, "{missing:?}");
    assert!(missing[0].contains("volume 'none'"), "{missing:?}");
    assert!(missing[1].contains("\"gone\""), "{missing:?}");
    let (_admin, mut io) = Host::at(running.addresses()[0]).pair();
    assert_eq!(io.read(1, 0).expect("what is there"), [0; disks::BLOCK]);
    assert!(io.read(2, 0).is_err(), "{NQN} has no namespace 2");
    running.stop();
    let ended = running.wait(std::time::Duration::from_secs(30));
    assert!(ended.expect("no failure").is_some());
}

#[test]
fn volume_with_the_identity_of_another_takes_only_itself_away_where_that_is_wanted() {
    let twin = |name: &str| store::Spec {
        uuid: Some(uuid::Uuid::from_u128(7)),
        ..ram(name, 4096)
    };
    let mut subsystem = disks::subsystem();
    subsystem.namespaces.push(server::NamespaceSpec {
        nsid: 2,
        volume: "twin".into(),
        ..Default::default()
    });
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let mut config = Config {
        volumes: vec![twin("ram"), twin("twin")],
        subsystems: vec![subsystem],
        listeners: vec![any.into()],
        memory_max: 64 << 20,
        ..Config::default()
    };
    let told = server::start(config.clone()).err().expect("strict");
    assert!(told.to_string().contains("has the UUID of"), "{told}");
    config.start = Start::Degraded;
    let running = server::start(config).expect("the rest");
    let missing = running.missing();
    assert_eq!(missing.len(), 1, "{missing:?}");
    let told = "volume \"twin\" has the UUID of the volume \"ram\"";
    assert!(missing[0].contains(told), "{missing:?}");
    let (_admin, mut io) = Host::at(running.addresses()[0]).pair();
    assert_eq!(io.read(1, 0).expect("the first"), [0; disks::BLOCK]);
    assert!(io.read(2, 0).is_err(), "{NQN} has no namespace 2");
    running.stop();
    let ended = running.wait(std::time::Duration::from_secs(30));
    assert!(ended.expect("no failure").is_some());
}
