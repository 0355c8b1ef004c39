//! The discovery log: its entries for each host and address.

use auth::HostPsk;
use auth::psk::{Psk, PskHash};
use nvmf::transport::{Transport, Transports};
use nvmf::{Advertise, ControllerChange, HostTerms, ListenerSpec, Referral, Subsystem};
use wire::nvme::discovery::DISCOVERY_NQN;
use wire::nvme::fabrics::ConnectData;
use wire::nvme::log::lid;
use zerocopy::IntoBytes;

use crate::bench::{
    Bench, CC_ENABLE, HOST, HOSTID, NQN, PRIVATE_NQN, command, disk, listener, subsystem, u16_at,
    u64_at,
};

const OTHER: &str = "nqn.2024-01.org.example:other";

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    transport: u8,
    subtype: u8,
    portid: u16,
    eflags: u16,
    family: u8,
    subnqn: String,
    address: String,
}

/// Subsystem, address family and address of each entry of an NVM subsystem
/// that `hostnqn` sees having reached `local`.
fn entries(bench: &mut Bench, hostnqn: &str, local: &str) -> Vec<(String, u8, String)> {
    all_entries(bench, hostnqn, local)
        .into_iter()
        .filter(|entry| entry.subtype == 2)
        .map(|entry| (entry.subnqn, entry.family, entry.address))
        .collect()
}

fn all_entries(bench: &mut Bench, hostnqn: &str, local: &str) -> Vec<Entry> {
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
            let tsas = &entry[768..1024];
            match entry[0] {
                // QPTYPE, PRTYPE, CMS: connected, iWARP, RDMA_CM.
                1 => assert_eq!(tsas[..3], [1, 4, 1]),
                // A secure channel is required: TLS 1.3.
                3 if entry[3] & 1 != 0 => assert_eq!(tsas[0], 2),
                other => assert_eq!((other, tsas[0]), (3, 0)),
            }
            assert!(tsas[3..].iter().all(|byte| *byte == 0));
            assert_eq!(entry[3] & !1, 4, "TREQ");
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
            Entry {
                transport: entry[0],
                subtype: entry[2],
                portid: u16_at(&entry, 4),
                eflags: u16_at(&entry, 10),
                family: entry[1],
                subnqn: text(256, 512),
                address,
            }
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
fn a_change_of_the_discovery_log_changes_its_generation_and_is_an_event() {
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
    assert!(all_entries(&mut bench, HOST, "192.0.2.1:4420").len() == 3);
}

/// The discovery subsystem itself first, where the host reached it; then NVM
/// subsystems; then referrals.
#[test]
fn the_log_in_its_order() {
    let mut bench = Bench::with(vec![disk()], &["0.0.0.0:4420", "0.0.0.0:4421"]);
    let mut referral = Referral::new("2001:db8::7", 8009);
    let change = bench.registry.set_referrals(vec![referral.clone()]);
    assert_eq!(change, ControllerChange::default());
    bench.listener = 1;
    let entry = |subtype, portid, eflags, subnqn: &str, address: &str| Entry {
        transport: 3,
        subtype,
        portid,
        eflags,
        family: 1,
        subnqn: subnqn.to_owned(),
        address: address.to_owned(),
    };
    let mut expected = vec![
        entry(3, 2, 2, DISCOVERY_NQN, "192.0.2.1 4421"),
        entry(2, 1, 0, NQN, "192.0.2.1 4420"),
        entry(2, 2, 0, NQN, "192.0.2.1 4421"),
        Entry {
            family: 2,
            ..entry(1, 0, 0, DISCOVERY_NQN, "2001:db8::7 8009")
        },
    ];
    assert_eq!(all_entries(&mut bench, HOST, "192.0.2.1:4421"), expected);
    referral.subnqn = "nqn.2024-01.org.example:finder".to_owned();
    let _ = bench.registry.set_referrals(vec![referral]);
    expected[3].subnqn = "nqn.2024-01.org.example:finder".to_owned();
    assert_eq!(all_entries(&mut bench, HOST, "192.0.2.1:4421"), expected);
}

/// What a listener advertises is what hosts are told, whatever they reached.
#[test]
fn advertised_addresses() {
    let advertise = |number, host: &str, port| ListenerSpec {
        advertise: Some(Advertise {
            host: host.to_owned(),
            port,
        }),
        ..listener(number, "0.0.0.0:4420")
    };
    let mut bench = Bench::with(vec![disk()], &[]);
    let _ = bench.registry.set_listeners(vec![
        advertise(0, "198.51.100.9", Some(14_420)),
        advertise(3, "storage.example.org", None),
        advertise(4, "2001:db8::9", None),
    ]);
    let found = entries(&mut bench, HOST, "10.0.0.1:4420");
    let found: Vec<_> = found
        .iter()
        .map(|(_, f, text)| (*f, text.as_str()))
        .collect();
    let expected = [
        (1, "198.51.100.9 14420"),
        (1, "storage.example.org 4420"),
        (2, "2001:db8::9 4420"),
    ];
    assert_eq!(found, expected);
}

/// A listener for discovery alone leads to no subsystem, and is no place of one.
#[test]
fn discovery_listeners_lead_elsewhere() {
    let mut private = subsystem(PRIVATE_NQN, vec![]);
    private.listeners = Some(vec![2]);
    let mut bench = Bench::with(vec![disk(), private], &[]);
    let only = ListenerSpec {
        discovery_only: true,
        ..listener(1, "0.0.0.0:8009")
    };
    let _ = bench.registry.set_listeners(vec![
        listener(0, "0.0.0.0:4420"),
        only,
        listener(2, "0.0.0.0:4421"),
    ]);
    bench.listener = 1;
    let all = all_entries(&mut bench, HOST, "192.0.2.1:8009");
    assert_eq!(
        (all[0].subtype, all[0].address.as_str()),
        (3, "192.0.2.1 8009")
    );
    let found: Vec<_> = all[1..]
        .iter()
        .map(|entry| (entry.subnqn.as_str(), entry.portid))
        .collect();
    assert_eq!(found, [(NQN, 1), (NQN, 3), (PRIVATE_NQN, 3)]);
}

/// An entry for each transport, each once; what the host needs TLS for is not carried by RDMA.
#[test]
fn listener_for_both_transports_is_named_twice() {
    let mut keyed = subsystem(PRIVATE_NQN, vec![]);
    keyed.terms = vec![HostTerms {
        psks: vec![HostPsk {
            key: Psk::new(PskHash::Sha256, |bytes| bytes.fill(1)),
            until: None,
        }],
        ..HostTerms::new(HOST)
    }];
    let mut bench = Bench::with(vec![disk(), keyed], &[]);
    let with = |number, address, transports| ListenerSpec {
        transports,
        ..listener(number, address)
    };
    let _ = bench.registry.set_listeners(vec![
        with(0, "0.0.0.0:4420", Transports::Both),
        with(1, "0.0.0.0:4421", Transports::Rdma),
    ]);
    bench.transport = Transport::Rdma;
    let all = all_entries(&mut bench, HOST, "192.0.2.1:4420");
    let found: Vec<_> = all
        .iter()
        .map(|entry| {
            let numbers = (entry.subtype, entry.transport, entry.portid);
            (numbers, entry.subnqn.as_str())
        })
        .collect();
    let expected = [
        ((3, 1, 1), DISCOVERY_NQN),
        ((2, 3, 1), NQN),
        ((2, 1, 1), NQN),
        ((2, 1, 2), NQN),
        ((2, 3, 1), PRIVATE_NQN),
    ];
    assert_eq!(found, expected);
}

/// Two listeners at one address are one place for a host.
#[test]
fn an_address_is_named_once() {
    let mut bench = Bench::with(vec![disk()], &["192.0.2.1:4420", "0.0.0.0:4420"]);
    bench.listener = 1;
    let all = all_entries(&mut bench, HOST, "192.0.2.1:4420");
    let ports: Vec<_> = all
        .iter()
        .map(|entry| (entry.subtype, entry.portid))
        .collect();
    assert_eq!(ports, [(3, 2), (2, 2)], "the one that was used");
}

/// A host reads the log in pieces of a page; that each looks at all subsystems again cost
/// more than everything else that the target did meanwhile.
#[test]
fn log_read_in_pieces_looks_at_each_subsystem_once() {
    const SUBSYSTEMS: u64 = 1000;
    const PIECE_BYTES: u64 = 4096;
    let nqn = |n| format!("nqn.2024-01.org.example:disk{n:04}");
    let subsystems = (0..SUBSYSTEMS).map(|n| subsystem(&nqn(n), vec![]));
    let mut bench = Bench::with(subsystems.collect(), &["0.0.0.0:4420"]);
    let of_disk = bench.enabled(&nqn(7), 0);
    let mut units = 0;
    machine::work::take_turn(&mut units, u64::MAX, || {
        bench.log(of_disk, lid::SMART, 0, 0, 512).unwrap();
    });
    assert!(units < SUBSYSTEMS, "{units} units for another log");
    let id = bench.enabled(DISCOVERY_NQN, 0);
    let mut log = Vec::new();
    let mut units = 0;
    machine::work::take_turn(&mut units, u64::MAX, || {
        // The entry of the discovery subsystem itself, and the header.
        for at in 0..(SUBSYSTEMS + 2) * 1024 / PIECE_BYTES {
            let at = at * PIECE_BYTES;
            log.extend(
                bench
                    .log(id, lid::DISCOVERY, 0, at, PIECE_BYTES as usize)
                    .unwrap(),
            );
        }
    });
    assert_eq!(u64_at(&log, 8), SUBSYSTEMS + 1);
    assert!(units < 6 * SUBSYSTEMS, "{units} units");
    // What changes is seen in the next piece.
    let before = u64_at(&log, 0);
    drop(bench.registry.remove_subsystem(&nqn(7)));
    let header = bench.log(id, lid::DISCOVERY, 0, 0, 1024).unwrap();
    assert_eq!(
        (u64_at(&header, 0), u64_at(&header, 8)),
        (before + 1, SUBSYSTEMS)
    );
}

/// Looking for a host among those of a subsystem is work, too.
#[test]
fn discovery_log_costs_what_it_looks_at() {
    const SUBSYSTEMS: u64 = 100;
    let first = |hosts: Option<Vec<String>>| {
        let subsystems = (0..SUBSYSTEMS).map(|n| Subsystem {
            hosts: hosts.clone(),
            ..subsystem(&format!("nqn.2024-01.org.example:disk{n}"), vec![])
        });
        let mut bench = Bench::with(subsystems.collect(), &["0.0.0.0:4420"]);
        let id = bench.enabled(DISCOVERY_NQN, 0);
        let mut units = 0;
        machine::work::take_turn(&mut units, u64::MAX, || {
            bench.log(id, lid::DISCOVERY, 0, 0, 1024).unwrap();
        });
        units
    };
    let others = |count| Some((0..count).map(|n| format!("{OTHER}{n}")).collect());
    let (none, any) = (first(others(0)), first(None));
    assert!(SUBSYSTEMS <= none && none <= any, "{none} and {any} units");
    for hosts in [1, 2, 50] {
        assert_eq!(first(others(hosts)), none + hosts * SUBSYSTEMS);
    }
}
