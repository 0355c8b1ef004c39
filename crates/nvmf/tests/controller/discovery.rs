//! The discovery log: who sees what, at which address.

use wire::nvme::discovery::DISCOVERY_NQN;
use wire::nvme::fabrics::ConnectData;
use wire::nvme::log::lid;
use zerocopy::IntoBytes;

use crate::bench::{
    Bench, CC_ENABLE, HOST, HOSTID, NQN, PRIVATE_NQN, command, disk, subsystem, u16_at, u64_at,
};

const OTHER: &str = "nqn.2024-01.org.example:other";

/// Subsystem and address of each entry that `hostnqn` sees having reached `local`.
fn entries(bench: &mut Bench, hostnqn: &str, local: &str) -> Vec<(String, u8, String)> {
    let data = ConnectData::new(HOSTID, 0xffff, DISCOVERY_NQN, hostnqn);
    let connected = bench
        .connect_raw(&command(0, 31, 0), data.as_bytes(), local)
        .unwrap();
    let id = connected.controller;
    bench.set_cc(id, CC_ENABLE);
    let header = bench.log(id, lid::DISCOVERY, 0, 0, 1024).unwrap();
    let count = u64_at(&header, 8);
    assert_eq!(u16_at(&header, 16), 0, "record format");
    (0..count)
        .map(|index| {
            let entry = bench
                .log(id, lid::DISCOVERY, 0, 1024 * (index + 1), 1024)
                .unwrap();
            assert_eq!(
                (entry[0], entry[2], entry[3]),
                (3, 2, 4),
                "TRTYPE, SUBTYPE, TREQ"
            );
            assert_eq!(
                (u16_at(&entry, 6), u16_at(&entry, 8)),
                (0xffff, 128),
                "CNTLID, ASQSZ"
            );
            let text = |from: usize, to: usize| {
                let text = std::str::from_utf8(&entry[from..to]).unwrap();
                text.trim_end_matches(['\0', ' ']).to_owned()
            };
            let address = format!("{} {}", text(512, 768), text(32, 64));
            (text(256, 512), entry[1], address)
        })
        .collect()
}

fn addresses(bench: &mut Bench, local: &str) -> Vec<String> {
    entries(bench, HOST, local)
        .into_iter()
        .map(|(_, _, address)| address)
        .collect()
}

#[test]
fn a_host_sees_what_it_may_use() {
    let mut private = subsystem(PRIVATE_NQN, vec![]);
    private.hosts = Some(vec![OTHER.to_owned()]);
    let mut bench = Bench::with(vec![disk(), private], &["0.0.0.0:4420"]);
    let seen = |list: Vec<(String, u8, String)>| -> Vec<String> {
        list.into_iter().map(|(nqn, ..)| nqn).collect()
    };
    assert_eq!(seen(entries(&mut bench, HOST, "192.0.2.1:4420")), [NQN]);
    assert_eq!(
        seen(entries(&mut bench, OTHER, "192.0.2.1:4420")),
        [NQN, PRIVATE_NQN]
    );
}

#[test]
fn wildcards_become_the_address_reached() {
    let mut bench = Bench::with(vec![disk()], &["0.0.0.0:4420", "[::]:4421"]);
    let cases: [(&str, &[&str]); 4] = [
        ("192.0.2.1:4420", &["192.0.2.1 4420", "192.0.2.1 4421"]),
        ("[2001:db8::1]:4421", &["2001:db8::1 4421"]),
        (
            "[::ffff:192.0.2.1]:4421",
            &["192.0.2.1 4420", "192.0.2.1 4421"],
        ),
        ("127.0.0.1:4420", &["127.0.0.1 4420", "127.0.0.1 4421"]),
    ];
    for (local, expected) in cases {
        assert_eq!(addresses(&mut bench, local), expected, "{local}");
    }
}

#[test]
fn families_ports_and_loopback() {
    let listeners = [
        "192.0.2.1:4420",
        "[2001:db8::1]:4420",
        "127.0.0.1:4420",
        "0.0.0.0:4420",
    ];
    let mut bench = Bench::with(vec![disk()], &listeners);
    let remote = entries(&mut bench, HOST, "192.0.2.1:4420");
    let expected = [(1, "192.0.2.1 4420"), (2, "2001:db8::1 4420")];
    let found: Vec<_> = remote
        .iter()
        .map(|(_, family, text)| (*family, text.as_str()))
        .collect();
    assert_eq!(found, expected, "once each, no loopback");
    let local = addresses(&mut bench, "127.0.0.1:4420");
    assert_eq!(
        local,
        ["192.0.2.1 4420", "2001:db8::1 4420", "127.0.0.1 4420"]
    );
}

#[test]
fn the_generation_counts_changes_and_hosts_hear_of_them() {
    let mut bench = Bench::new();
    let id = bench.enabled(DISCOVERY_NQN, 30_000);
    let generation =
        |bench: &mut Bench| u64_at(&bench.log(id, lid::DISCOVERY, 0, 0, 1024).unwrap(), 0);
    let before = generation(&mut bench);
    assert_eq!(generation(&mut bench), before);
    bench.hold_event_request(id, 5);
    let new = subsystem("nqn.2024-01.org.example:new", vec![]);
    assert_eq!(bench.registry.replace_subsystem(new.into()).events, [100]);
    let (tag, reply) = bench.take_event(id).unwrap();
    assert_eq!((tag, reply.result), (5, 0x70_f002));
    assert_ne!(generation(&mut bench), before);
    assert_eq!(entries(&mut bench, HOST, "192.0.2.1:4420").len(), 2);
}
