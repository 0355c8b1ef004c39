//! 32 volumes of 1 GiB as slices of a stripe over five drives, served by NVMe/TCP.
#![allow(missing_docs)]

#[path = "shared/line.rs"]
mod line;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use client::perf::default_nqn;
use server::{Config, NamespaceSpec, Running, SubsystemSpec};
use store::{Kind, Spec};

const DRIVES: usize = 5;
const VOLUMES: u32 = 32;
const GIB: u64 = 1 << 30;
const CHUNK: u32 = 64 << 10;

/// Drives that are files, of whole chunks, with room for all volumes.
fn drives(folder: &Path) -> Vec<Spec> {
    let chunk = u64::from(CHUNK);
    let bytes = (u64::from(VOLUMES) * GIB).div_ceil(DRIVES as u64 * chunk) * chunk;
    let drive = |n| {
        let kind = Kind::file(folder.join(format!("drive{n}")));
        Spec::new(format!("drive{n}"), kind, bytes, 4096)
    };
    (0..DRIVES).map(drive).collect()
}

fn start(folder: &Path) -> Running {
    let mut volumes = drives(folder);
    let names: Vec<String> = volumes.iter().map(|drive| drive.name.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    volumes.push(Spec::new("pool", Kind::stripe(&names, CHUNK), 0, 4096));
    let slice = |n: u32| {
        let kind = Kind::slice("pool", u64::from(n) * GIB);
        Spec::new(format!("v{n}"), kind, GIB, 4096)
    };
    volumes.extend((0..VOLUMES).map(slice));
    let namespace = |n| NamespaceSpec {
        nsid: n + 1,
        volume: format!("v{n}"),
        ..NamespaceSpec::default()
    };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let running = server::start(Config {
        volumes,
        subsystems: vec![SubsystemSpec {
            nqn: default_nqn(),
            serial: "1".into(),
            model: "weft".into(),
            namespaces: (0..VOLUMES).map(namespace).collect(),
            ..SubsystemSpec::default()
        }],
        listeners: vec![any.into()],
        cpus: vec![reactor::available_cpus()[0]],
        spin_us_max: 0,
        memory_max: 128 << 20,
        ..Config::default()
    });
    running.expect("the target starts")
}

#[test]
fn volumes_on_a_stripe_over_five_drives_hold_what_hosts_write_to_each() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path());
    let address = running.addresses()[0];
    let url = |nsid| format!("nvme-tcp://{address}/{}?nsid={nsid}", default_nqn());
    let all: Vec<String> = (1..=VOLUMES).map(url).collect();
    // All volumes at once, each from its last bytes before the next one on: what is written to
    // one is read back when all of them are written.
    let words = "--rw randwrite --bs 32k --iodepth 4 --verify --ramp-time 10ms --runtime 2s";
    let line = format!("{words} --offset 1023m --size 1m {}", all.join(" "));
    let report = line::perf(&line, &AtomicBool::new(false)).unwrap();
    assert!(report.is_clean(), "{}", report.text());
    let writes = report.write.ios;
    assert!(writes >= u64::from(VOLUMES), "{writes} writes");
    let volumes = running.volumes();
    let stats = |name: &str| {
        let mut named = volumes.iter().filter(|volume| volume.info().name == name);
        named.next().unwrap().stats()
    };
    let used = (0..VOLUMES).filter(|n| stats(&format!("v{n}")).writes > 0);
    assert_eq!(used.count(), VOLUMES as usize);
    for n in 0..DRIVES {
        assert!(stats(&format!("drive{n}")).writes > 0, "drive {n}");
    }
    let sum = |names: &mut dyn Iterator<Item = String>| -> u64 {
        names.map(|name| stats(&name).write_bytes).sum()
    };
    assert_eq!(
        sum(&mut (0..DRIVES).map(|n| format!("drive{n}"))),
        sum(&mut (0..VOLUMES).map(|n| format!("v{n}")))
    );
    running.stop();
    let ended = running.wait(Duration::from_secs(10));
    if !thread::panicking() {
        ended.expect("the target ends").expect("in time");
    }
}
