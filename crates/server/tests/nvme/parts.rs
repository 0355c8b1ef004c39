//! Volumes that are made of others: hosts are served the whole or the parts, never both, and
//! what is missing takes what is made of it away.

use needs::each_driver;
use reactor::Choice;
use server::{Change, ChangeError, Config, Limits, NamespaceSpec, Start};
use store::{Kind, Spec};
use wire::nvme::{Sqe, io as opcode};

use crate::common::{self, Host, stop};
use crate::disks::{BLOCK, NQN, ram};
use crate::live::add_namespace;

fn over(name: &str, kind: Kind) -> Spec {
    Spec::new(name, kind, 0, BLOCK as u32)
}

fn subsystem() -> server::SubsystemSpec {
    server::SubsystemSpec {
        nqn: NQN.into(),
        serial: "1".into(),
        model: "parts".into(),
        ..server::SubsystemSpec::default()
    }
}

/// 32 volumes of 1 GiB on a stripe of five drives: what each of them holds.
#[each_driver]
fn many_volumes_on_a_few_drives_keep_their_data_apart(backend: Choice) {
    const GIB: u64 = 1 << 30;
    const CHUNK: u32 = 8 << 10;
    let folder = tempfile::tempdir().expect("a folder");
    let drive = |n| {
        let name = format!("drive{n}");
        let path = folder.path().join(&name);
        Spec::new(name, Kind::file(path), 7 * GIB, BLOCK as u32)
    };
    let drives = ["drive0", "drive1", "drive2", "drive3", "drive4"];
    let pool = over("pool", Kind::stripe(&drives, CHUNK));
    let slice = |n: u32| {
        let kind = Kind::slice("pool", u64::from(n) * GIB);
        Spec::new(format!("v{n}"), kind, GIB, BLOCK as u32)
    };
    let namespace = |n: u32| NamespaceSpec {
        nsid: n + 1,
        volume: format!("v{n}"),
        ..NamespaceSpec::default()
    };
    let volumes = (0..5).map(drive).chain([pool]).chain((0..32).map(slice));
    let mut config = common::config(backend, Limits::default(), 64 << 20);
    config.volumes = volumes.collect();
    config.subsystems[0].namespaces = (0..32).map(namespace).collect();
    let running = server::start(config).expect("it starts");
    let (_admin, mut queue) = Host::at(running.addresses()[0]).pair();
    let blocks = GIB / BLOCK as u64;
    // Each begins and ends within a chunk, on three drives.
    let places = [3, blocks / 2 + 1, blocks - 5];
    let content = |nsid: u32, at: u64| -> Vec<u8> {
        let seed = nsid as usize * 7 + at as usize;
        (0..4 * BLOCK)
            .map(|byte| (seed + byte / 100) as u8)
            .collect()
    };
    let command = |code, nsid: u32, lba| {
        let mut sqe = Sqe::new(code);
        sqe.nsid = nsid.into();
        sqe.set_blocks(lba, 4);
        sqe
    };
    // All of them are under way at a time.
    let writes = (1..=32).flat_map(|nsid| places.map(|at| (nsid, at)));
    let writes: Vec<(u32, u64)> = writes.collect();
    for some in writes.chunks(16) {
        let sent = some
            .iter()
            .map(|&(nsid, at)| queue.send(command(opcode::WRITE, nsid, at), &content(nsid, at)));
        let count = sent.count();
        queue.expect_responses(count);
    }
    for (nsid, at) in writes {
        let read = queue.fetch(command(opcode::READ, nsid, at), 4 * BLOCK as u32);
        assert!(
            read.expect("it is there") == content(nsid, at),
            "{nsid} at {at}"
        );
    }
    let (beyond, _) = queue.command(command(opcode::WRITE, 1, blocks - 3), &[0; 4 * BLOCK]);
    assert!(!beyond.is_success(), "the next one begins there");
    let volumes = running.volumes();
    let of = |name: &str| {
        let found = volumes.iter().find(|volume| volume.info().name == name);
        found.expect("it is there").stats()
    };
    assert_eq!((of("v31").writes, of("v31").reads), (3, 3));
    assert_eq!((of("pool").writes, of("pool").reads), (96, 96));
    let on_drives = drives.map(|name| of(name).writes);
    assert_eq!(on_drives.iter().sum::<u64>(), 3 * 96);
    assert!(on_drives.iter().all(|writes| *writes > 30), "{on_drives:?}");
    drop(volumes);
    stop(running);
}

fn end(running: server::Running) {
    running.stop();
    let ended = running.wait(std::time::Duration::from_secs(30));
    assert!(ended.expect("no failure").is_some());
}

fn remove(name: &str) -> Change {
    Change::RemoveVolume { name: name.into() }
}

#[test]
fn part_of_a_volume_is_not_served_and_goes_after_it() {
    let stripe = over("s", Kind::stripe(&["a", "b"], 4096));
    let config = Config {
        volumes: vec![ram("a", 64), ram("b", 64), ram("c", 64), stripe.clone()],
        subsystems: vec![subsystem()],
        ..Config::default()
    };
    let running = server::start(config).expect("it starts");
    let refused = |change: Change| running.change(change).expect_err("refused").to_string();
    let told = "volume \"a\" is part of the volume \"s\": remove that first";
    assert_eq!(refused(add_namespace(1, "a")), told);
    assert_eq!(refused(remove("a")), told);
    let second = over("t", Kind::concat(&["a"]));
    let second = Spec {
        size_bytes: 64 * BLOCK as u64,
        ..second
    };
    assert!(refused(Change::AddVolume(second)).contains("part of \"s\""));
    running.change(add_namespace(1, "s")).expect("the whole");
    // What hosts have is made part of nothing.
    running.change(add_namespace(2, "c")).expect("it is free");
    let of_served = over("t", Kind::slice("c", 0));
    let told = "volume \"c\" is used by namespace 2 of ";
    assert!(refused(Change::AddVolume(of_served)).starts_with(told));
    let unknown = over("t", Kind::slice("d", 0));
    assert_eq!(
        refused(Change::AddVolume(unknown)),
        "there is no volume \"d\""
    );
    // The whole, then its parts, then others of them.
    let nqn = NQN.to_owned();
    let gone = Change::RemoveNamespace { nqn, nsid: 1 };
    running.change(gone).expect("it is there");
    running.change(remove("s")).expect("it is used no more");
    running.change(add_namespace(1, "a")).expect("it is free");
    let slice = over("t", Kind::slice("b", 4096));
    running
        .change(Change::AddVolume(slice))
        .expect("it is free");
    running.change(add_namespace(3, "t")).expect("it is there");
    end(running);
}

#[test]
fn volume_that_is_missing_takes_those_that_are_made_of_it_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let lost = Kind::file(folder.path().join("no/disk"));
    let config = Config {
        volumes: vec![
            ram("a", 64),
            Spec::new("b", lost, 64 * BLOCK as u64, BLOCK as u32),
            over("s", Kind::stripe(&["a", "b"], 4096)),
            over("t", Kind::slice("s", 0)),
        ],
        start: Start::Degraded,
        ..Config::default()
    };
    let (findings, served) = server::examine(&config);
    let texts: Vec<&str> = findings.iter().map(|finding| &*finding.text).collect();
    let told = "volume \"s\": the volume \"b\", which it is made of, is not there";
    assert_eq!(texts[1], told);
    assert_eq!(served.volumes.len(), 1);
    let running = server::start(config).expect("the rest");
    assert_eq!(running.missing().len(), 3);
    assert_eq!(running.missing()[1], told);
    running
        .change(add_namespace(1, "t"))
        .expect_err("it is not there");
    end(running);
}

#[test]
fn volume_changes_its_size_as_what_is_made_of_it_allows() {
    let config = Config {
        volumes: vec![ram("a", 64), over("s", Kind::slice("a", 4096))],
        ..Config::default()
    };
    let running = server::start(config).expect("it starts");
    let resize = |name: &str, size_bytes, allow_shrink| {
        running.change(Change::ResizeVolume {
            name: name.into(),
            size_bytes,
            allow_shrink,
        })
    };
    let size = |name: &str| {
        let volumes = running.volumes();
        let found = volumes.iter().find(|volume| volume.info().name == name);
        found.expect("it is there").size_bytes()
    };
    let refused = resize("a", 8192, true).expect_err("the slice is there");
    assert!(matches!(refused, ChangeError::Resize(_)), "{refused}");
    let refused = resize("s", 64 * BLOCK as u64, false).expect_err("there is no more");
    assert!(refused.to_string().contains("have room for"), "{refused}");
    resize("a", 128 * BLOCK as u64, false).expect("it grows");
    resize("s", 64 * BLOCK as u64, false).expect("there is room");
    assert_eq!(
        (size("a"), size("s")),
        (128 * BLOCK as u64, 64 * BLOCK as u64)
    );
    resize("s", 8192, true).expect("it shrinks");
    resize("a", 16384, true).expect("nothing is behind");
    assert_eq!((size("a"), size("s")), (16384, 8192));
    end(running);
}
