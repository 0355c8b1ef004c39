//! What is served changes while hosts use it: each change comes with the notice
//! that hosts act on, and costs no host anything that it does not concern.

use needs::each_driver;
use reactor::Choice;
use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nvmf::command::AnaState;
use nvmf::{Advertise, AnaGroup, Referral};
use server::{Change, ChangeError, Limits, ListenerSpec, NamespaceSpec, Running, SubsystemSpec};
use wire::nvme::{Sgl, Sqe, Status, admin, io};

use crate::commands::{serve_gates, wait_for};
use crate::common::{BLOCK, HOST, Host, NQN, Queue, ram, stop, with_target};

const OTHER_NQN: &str = "nqn.2026-01.io.weft:other";
const FRIEND: &str = "nqn.2026-01.org.example:friend";

/// Dword 0 of events (Base 2.0, section 5.2): notices, with the log to read.
const NAMESPACES_CHANGED: u32 = 0x0004_0002;
pub const ANA_CHANGED: u32 = 0x000c_0302;
const DISCOVERY_CHANGED: u32 = 0x0070_f002;

const CHANGED_NAMESPACES: u8 = 0x04;
pub const ANA: u8 = 0x0c;
const DISCOVERY_LOG: u8 = 0x70;

/// Statuses as the standard numbers them: SCT in bits 10:8, SC in 7:0.
const INVALID_FIELD: u16 = 0x002;
const LBA_OUT_OF_RANGE: u16 = 0x080;
const ANA_PERSISTENT_LOSS: u16 = 0x301;
pub const ANA_INACCESSIBLE: u16 = 0x302;
const CONNECT_INVALID_PARAMETERS: u16 = 0x182;
const CONNECT_INVALID_HOST: u16 = 0x184;

pub fn code(status: Status) -> u16 {
    status.0 & 0x7ff
}

fn namespace(nsid: u32, volume: &str) -> NamespaceSpec {
    NamespaceSpec {
        nsid,
        volume: volume.into(),
        ..NamespaceSpec::default()
    }
}

fn subsystem(nqn: &str, namespaces: Vec<NamespaceSpec>) -> SubsystemSpec {
    SubsystemSpec {
        nqn: nqn.into(),
        serial: "2".into(),
        model: "weft".into(),
        namespaces,
        ..SubsystemSpec::default()
    }
}

pub fn add_namespace(nsid: u32, volume: &str) -> Change {
    Change::AddNamespace {
        nqn: NQN.into(),
        namespace: namespace(nsid, volume),
    }
}

fn remove_namespace(nsid: u32) -> Change {
    Change::RemoveNamespace {
        nqn: NQN.into(),
        nsid,
    }
}

pub fn resize(name: &str, blocks: u64, allow_shrink: bool) -> Change {
    Change::ResizeVolume {
        name: name.into(),
        size_bytes: blocks * BLOCK as u64,
        allow_shrink,
    }
}

#[track_caller]
fn make(running: &Running, change: Change) {
    running.change(change).expect("a change that can be made");
}

#[track_caller]
pub fn refuse(running: &Running, change: Change, part: &str) -> ChangeError {
    let error = running.change(change).expect_err("an impossible change");
    assert!(error.to_string().contains(part), "{error}");
    error
}

/// The namespaces of a list: identifiers up to the first 0.
fn nsids(list: &[u8]) -> Vec<u32> {
    list.chunks_exact(4)
        .map(|bytes| u32::from_le_bytes(bytes.try_into().expect("4 bytes")))
        .take_while(|nsid| *nsid != 0)
        .collect()
}

impl Queue {
    /// Waits for the notice of changed namespaces, reads which, and asks for
    /// the next notice.
    fn changed_namespaces(&mut self) -> Vec<u32> {
        assert_eq!(self.event(), NAMESPACES_CHANGED);
        let changed = nsids(&self.log_page(CHANGED_NAMESPACES, 4096));
        self.arm();
        changed
    }

    fn active_namespaces(&mut self) -> Vec<u32> {
        nsids(&self.identify(2, 0))
    }

    /// NSZE of Identify Namespace.
    fn blocks(&mut self, nsid: u32) -> u64 {
        let bytes = self.identify(0, nsid);
        u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))
    }

    /// Generation counter and entries (subtype, subsystem, address and port).
    fn discovery(&mut self) -> (u64, Vec<(u8, String, String)>) {
        let log = self.log_page(DISCOVERY_LOG, 16 << 10);
        let number = |at: usize| u64::from_le_bytes(log[at..at + 8].try_into().expect("8 bytes"));
        let text = |bytes: &[u8]| {
            let end = bytes
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..end]).trim_end().to_owned()
        };
        let entries = log[1024..].chunks_exact(1024).take(number(8) as usize);
        let entries = entries.map(|e| {
            let address = format!("{}:{}", text(&e[512..768]), text(&e[32..64]));
            (e[2], text(&e[256..512]), address)
        });
        (number(0), entries.collect())
    }

    /// Waits for the notice of a changed discovery log, reads it, and asks for
    /// the next notice.
    fn rediscover(&mut self) -> (u64, Vec<(u8, String, String)>) {
        assert_eq!(self.event(), DISCOVERY_CHANGED);
        let log = self.discovery();
        self.arm();
        log
    }

    /// Admin Queues ask to be told of ANA changes too.
    pub fn wants_every_notice(&mut self) {
        let mut sqe = Sqe::new(admin::SET_FEATURES);
        sqe.cdw10 = 0x0b.into();
        sqe.cdw11 = (1 << 8 | 1 << 11).into();
        assert_eq!(self.command(sqe, &[]).0, Status::SUCCESS);
    }
}

/// The NVM subsystems of a discovery log, each with how often it is there.
fn subsystems(entries: &[(u8, String, String)]) -> Vec<(&str, usize)> {
    let mut found: Vec<(&str, usize)> = Vec::new();
    for (subtype, nqn, _) in entries {
        match found.iter_mut().find(|(known, _)| known == nqn) {
            _ if *subtype != 2 => {}
            Some((_, count)) => *count += 1,
            None => found.push((nqn, 1)),
        }
    }
    found
}

#[each_driver]
fn namespaces_are_added_and_removed_under_open_queues(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let (mut admin, mut io) = Host::at(running.addresses()[0]).pair();
        admin.arm();
        assert_eq!(code(io.write(2, 0, 1)), INVALID_FIELD);
        make(running, Change::AddVolume(ram("more", 64)));
        refuse(
            running,
            Change::AddVolume(ram("more", 64)),
            "\"more\" already",
        );
        make(running, add_namespace(2, "more"));
        assert_eq!(admin.changed_namespaces(), [2]);
        assert_eq!(admin.active_namespaces(), [1, 2]);
        assert_eq!(admin.blocks(2), 64);
        assert_eq!(io.write(2, 5, 0x22), Status::SUCCESS);
        refuse(running, add_namespace(2, "ram"), "2 of nqn");
        refuse(running, add_namespace(3, "more"), "already in nqn");
        refuse(
            running,
            add_namespace(3, "nowhere"),
            "no volume \"nowhere\"",
        );
        refuse(running, add_namespace(0, "more"), "from 1 to");
        let removal = || Change::RemoveVolume {
            name: "more".into(),
        };
        refuse(running, removal(), "namespace 2 of nqn");

        make(running, remove_namespace(2));
        assert_eq!(admin.changed_namespaces(), [2]);
        assert_eq!(admin.active_namespaces(), [1]);
        assert_eq!(code(io.write(2, 5, 1)), INVALID_FIELD);
        assert_eq!(io.read(2, 5).map_err(code), Err(INVALID_FIELD));
        refuse(running, remove_namespace(2), "no namespace 2");

        // Its place is taken by another, under another identifier.
        make(running, Change::AddVolume(ram("third", 8)));
        make(running, add_namespace(7, "third"));
        assert_eq!(admin.changed_namespaces(), [7]);
        assert_eq!(io.read(7, 5).expect("reads"), [0; BLOCK]);
        assert_eq!(code(io.write(7, 8, 1)), LBA_OUT_OF_RANGE);
        make(running, add_namespace(2, "more"));
        assert_eq!(admin.changed_namespaces(), [2]);
        assert_eq!(io.read(2, 5).expect("reads"), [0x22; BLOCK]);
        make(running, remove_namespace(2));
        make(running, removal());
        refuse(running, removal(), "no volume \"more\"");
        assert!(io.is_alive());
    });
}

#[each_driver]
fn a_resize_is_seen_at_once(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let (mut admin, mut io) = Host::at(running.addresses()[0]).pair();
        admin.arm();
        assert_eq!(admin.blocks(1), 4096);
        assert_eq!(code(io.write(1, 5000, 1)), LBA_OUT_OF_RANGE);
        let odd = Change::ResizeVolume {
            name: "ram".into(),
            size_bytes: 5000,
            allow_shrink: true,
        };
        refuse(running, odd, "multiple of the block size");
        make(running, resize("ram", 8192, false));
        assert_eq!(admin.changed_namespaces(), [1]);
        assert_eq!(admin.blocks(1), 8192);
        assert_eq!(io.read(1, 5000).expect("reads"), [0; BLOCK]);
        assert_eq!(io.write(1, 5000, 0x55), Status::SUCCESS);
        assert_eq!(io.write(1, 10, 0x11), Status::SUCCESS);

        let error = refuse(running, resize("ram", 1024, false), "");
        assert!(matches!(error, ChangeError::Resize(_)), "{error}");
        assert_eq!(admin.blocks(1), 8192);
        make(running, resize("ram", 1024, true));
        assert_eq!(admin.changed_namespaces(), [1]);
        assert_eq!(admin.blocks(1), 1024);
        assert_eq!(io.read(1, 5000).map_err(code), Err(LBA_OUT_OF_RANGE));
        assert_eq!(io.read(1, 10).expect("reads"), [0x11; BLOCK]);
        // What was cut off does not come back.
        make(running, resize("ram", 8192, false));
        assert_eq!(io.read(1, 5000).expect("reads"), [0; BLOCK]);
        refuse(running, resize("rum", 1, true), "no volume \"rum\"");
    });
}

#[each_driver]
fn a_denied_host_goes_and_the_others_stay(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let address = running.addresses()[0];
        let friend = Host {
            hostnqn: FRIEND,
            ..Host::at(address)
        };
        let mut discovering = Host {
            hostnqn: FRIEND,
            ..Host::discovering(address)
        }
        .admin()
        .0;
        discovering.arm();
        let (first, entries) = discovering.discovery();
        assert_eq!(subsystems(&entries), [(NQN, 2)]);
        let (_admin, mut io) = Host::at(address).pair();
        let (their_admin, mut their_io) = friend.pair();
        assert!(their_io.is_alive());
        let deny = |host: &str| Change::DenyHost {
            nqn: NQN.into(),
            host: host.into(),
        };
        refuse(running, deny(FRIEND), "every host may connect");
        let both = Some(vec![HOST.to_owned(), FRIEND.to_owned()]);
        let hosts = |hosts| Change::SetHosts {
            nqn: NQN.into(),
            hosts,
        };
        make(running, hosts(both));
        assert!(their_io.is_alive());
        make(running, deny(FRIEND));
        // The change is true when it returns: nothing to wait for.
        their_io.expect_end();
        their_admin.expect_end();
        assert_eq!(
            friend.queue(0, 0xffff).err().map(code),
            Some(CONNECT_INVALID_HOST)
        );
        let (second, entries) = discovering.rediscover();
        assert!(
            second > first && subsystems(&entries).is_empty(),
            "{entries:?}"
        );
        refuse(running, deny(FRIEND), "no host");
        let allow = Change::AllowHost {
            nqn: NQN.into(),
            host: FRIEND.into(),
        };
        refuse(running, hosts(Some(vec!["friend".into()])), "starts with");
        let twice = vec![HOST.to_owned(), HOST.to_owned()];
        refuse(running, hosts(Some(twice)), "already");
        make(running, allow);
        let (third, entries) = discovering.rediscover();
        assert!(third > second);
        assert_eq!(subsystems(&entries), [(NQN, 2)]);
        assert!(friend.pair().1.is_alive());
        assert!(io.is_alive());
    });
}

#[each_driver]
fn listeners_are_added_and_removed_while_others_serve(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let address = running.addresses()[0];
        let mut discovering = Host::discovering(address).admin().0;
        discovering.arm();
        let (_admin, mut io) = Host::at(address).pair();
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        make(running, Change::AddListener(any_port.into()));
        let added = *running.addresses().last().expect("three listeners");
        let (first, entries) = discovering.rediscover();
        assert!(
            entries.contains(&(2, NQN.into(), added.to_string())),
            "{entries:?}"
        );
        let (there_admin, mut there) = Host::at(added).pair();
        assert!(there.is_alive());
        refuse(
            running,
            Change::AddListener(added.into()),
            &added.to_string(),
        );

        let remove = |address| Change::RemoveListener { address };
        make(running, remove(added));
        there.expect_end();
        there_admin.expect_end();
        assert!(TcpStream::connect(added).is_err());
        let (second, entries) = discovering.rediscover();
        assert!(second > first);
        assert_eq!(subsystems(&entries), [(NQN, 2)]);
        refuse(running, remove(added), &added.to_string());
        // The address is free again at once.
        make(running, Change::AddListener(added.into()));
        discovering.rediscover();
        assert!(Host::at(added).pair().1.is_alive());
        assert!(io.is_alive());
    });
}

#[each_driver]
fn discovery_log_page_has_the_advertised_addresses(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let mut discovering = Host::discovering(running.addresses()[0]).admin().0;
        discovering.arm();
        let any_port = || SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
        make(
            running,
            Change::AddListener(ListenerSpec {
                advertise: Some(Advertise {
                    host: "nas.example.org".into(),
                    port: Some(4421),
                }),
                ..any_port().into()
            }),
        );
        let (_, entries) = discovering.rediscover();
        let named = (2, NQN.to_owned(), "nas.example.org:4421".to_owned());
        assert!(entries.contains(&named), "{entries:?}");
        let unspecified = ListenerSpec {
            advertise: Some(Advertise {
                host: "0.0.0.0".into(),
                port: None,
            }),
            ..any_port().into()
        };
        refuse(
            running,
            Change::AddListener(unspecified),
            "no host can connect",
        );

        // Discovery alone is served on the next one: no way to a subsystem.
        make(
            running,
            Change::AddListener(ListenerSpec {
                discovery_only: true,
                ..any_port().into()
            }),
        );
        let only = *running.addresses().last().expect("four listeners");
        let refused = Host::at(only).queue(0, 0xffff).err();
        assert_eq!(refused.map(code), Some(CONNECT_INVALID_PARAMETERS));
        let (_, entries) = Host::discovering(only).admin().0.discovery();
        assert_eq!(subsystems(&entries), [(NQN, 3)]);
        let own = only.to_string();
        assert!(!entries.iter().any(|(kind, _, at)| *kind == 2 && *at == own));

        let (before, _) = discovering.discovery();
        let referral = Referral::new("192.0.2.7", 8009);
        make(running, Change::SetReferrals(vec![referral]));
        let (after, entries) = discovering.rediscover();
        assert!(after > before);
        let sent_on = entries.iter().find(|(kind, ..)| *kind == 1);
        assert_eq!(sent_on.map(|(_, _, at)| &**at), Some("192.0.2.7:8009"));
    });
}

#[each_driver]
fn subsystems_are_added_and_removed_while_others_serve(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let address = running.addresses()[0];
        let other = Host {
            subnqn: OTHER_NQN,
            ..Host::at(address)
        };
        let mut discovering = Host::discovering(address).admin().0;
        discovering.arm();
        let (_admin, mut io) = Host::at(address).pair();
        let refused = other.queue(0, 0xffff).err();
        assert_eq!(refused.map(code), Some(CONNECT_INVALID_PARAMETERS));
        let add = || Change::AddSubsystem(subsystem(OTHER_NQN, vec![namespace(4, "ram")]));
        make(running, add());
        refuse(running, add(), OTHER_NQN);
        let twice = vec![namespace(1, "ram"), namespace(2, "ram")];
        let third = "nqn.2026-01.io.weft:third";
        refuse(
            running,
            Change::AddSubsystem(subsystem(third, twice)),
            "already in",
        );
        refuse(
            running,
            Change::AddSubsystem(subsystem("third", vec![])),
            "starts with",
        );
        let (_, entries) = discovering.rediscover();
        assert_eq!(subsystems(&entries), [(OTHER_NQN, 2), (NQN, 2)]);
        let (other_admin, mut other_io) = other.pair();
        // One volume behind two subsystems.
        assert_eq!(io.write(1, 3, 0x33), Status::SUCCESS);
        assert_eq!(other_io.read(4, 3).expect("reads"), [0x33; BLOCK]);
        let remove = || Change::RemoveSubsystem {
            nqn: OTHER_NQN.into(),
        };
        make(running, remove());
        other_io.expect_end();
        other_admin.expect_end();
        refuse(running, remove(), OTHER_NQN);
        let (_, entries) = discovering.rediscover();
        assert_eq!(subsystems(&entries), [(NQN, 2)]);
        assert!(io.is_alive());
        make(running, add());
        assert_eq!(other.pair().1.read(4, 3).expect("reads"), [0x33; BLOCK]);
    });
}

#[each_driver]
fn an_ana_state_holds_for_its_listener(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let [here, there] = running.addresses()[..] else {
            panic!("two listeners");
        };
        let (mut admin, mut io) = Host::at(here).pair();
        let (mut other_admin, mut other_io) = Host::at(there).pair();
        for queue in [&mut admin, &mut other_admin] {
            queue.wants_every_notice();
            queue.arm();
        }
        // ANA log (Base 2.0, figure 217): 16 bytes of header, then descriptors;
        // change count at 8, state of the first group at 32 + ... its byte 16.
        let state = |queue: &mut Queue| queue.log_page(ANA, 56)[16 + 16] & 0xf;
        assert_eq!((state(&mut admin), state(&mut other_admin)), (1, 1));
        let set = |listener, state| Change::SetAna {
            nqn: NQN.into(),
            listener,
            group: 1,
            state,
        };
        make(running, set(Some(here), AnaState::Inaccessible));
        assert_eq!(admin.event(), ANA_CHANGED);
        assert_eq!((state(&mut admin), state(&mut other_admin)), (3, 1));
        admin.arm();
        assert_eq!(code(io.write(1, 0, 1)), ANA_INACCESSIBLE);
        assert_eq!(io.read(1, 0).map_err(code), Err(ANA_INACCESSIBLE));
        assert_eq!(other_io.write(1, 0, 0x44), Status::SUCCESS);
        assert_eq!(other_admin.events_seen(), 0);
        make(running, set(None, AnaState::NonOptimized));
        assert_eq!(
            (admin.event(), other_admin.event()),
            (ANA_CHANGED, ANA_CHANGED)
        );
        assert_eq!((state(&mut admin), state(&mut other_admin)), (2, 2));
        assert_eq!(io.read(1, 0).expect("reads"), [0x44; BLOCK]);
        let nowhere = SocketAddr::from(([192, 0, 2, 1], 1));
        refuse(running, set(Some(nowhere), AnaState::Change), "no listener");
    });
}

/// A subsystem comes with the states of its groups, and is reached on the
/// listeners that it names and no others.
#[each_driver]
fn a_subsystem_says_where_and_how_it_is_reached(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let [here, there] = running.addresses()[..] else {
            panic!("two listeners");
        };
        let mut discovering = Host::discovering(there).admin().0;
        let group = AnaGroup {
            id: 5,
            state: AnaState::Optimized,
            on: vec![(1, AnaState::PersistentLoss)],
        };
        let spec = |nqn: &str, listeners| SubsystemSpec {
            listeners,
            ana_groups: vec![group.clone()],
            ..subsystem(
                nqn,
                vec![NamespaceSpec {
                    ana_group: 5,
                    ..namespace(1, "ram")
                }],
            )
        };
        let only_here = "nqn.2026-01.io.weft:here";
        make(
            running,
            Change::AddSubsystem(spec(only_here, Some(vec![0]))),
        );
        make(running, Change::AddSubsystem(spec(OTHER_NQN, None)));
        let (_, entries) = discovering.discovery();
        let counts = [(only_here, 1), (OTHER_NQN, 2), (NQN, 2)];
        assert_eq!(subsystems(&entries), counts);
        let to = |address, subnqn| Host {
            subnqn,
            ..Host::at(address)
        };
        assert!(to(here, only_here).pair().1.is_alive());
        let refused = to(there, only_here).queue(0, 0xffff).err();
        assert_eq!(refused.map(code), Some(CONNECT_INVALID_PARAMETERS));
        assert_eq!(to(here, OTHER_NQN).pair().1.write(1, 0, 1), Status::SUCCESS);
        let lost = to(there, OTHER_NQN).pair().1.write(1, 0, 1);
        assert_eq!(code(lost), ANA_PERSISTENT_LOSS);
    });
}

/// What a namespace's `hosts` hides is not there for the others.
#[each_driver]
fn a_namespace_may_be_for_some_hosts_only(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let address = running.addresses()[0];
        let (mut admin, mut io) = Host::at(address).pair();
        let (mut friends_admin, mut friends_io) = Host {
            hostnqn: FRIEND,
            ..Host::at(address)
        }
        .pair();
        admin.arm();
        friends_admin.arm();
        make(running, Change::AddVolume(ram("private", 16)));
        make(
            running,
            Change::AddNamespace {
                nqn: NQN.into(),
                namespace: NamespaceSpec {
                    hosts: Some(vec![FRIEND.into()]),
                    ..namespace(2, "private")
                },
            },
        );
        assert_eq!(friends_admin.changed_namespaces(), [2]);
        assert_eq!(friends_admin.active_namespaces(), [1, 2]);
        assert_eq!(friends_io.write(2, 0, 1), Status::SUCCESS);
        assert_eq!(admin.active_namespaces(), [1]);
        assert_eq!(code(io.write(2, 0, 1)), INVALID_FIELD);
        assert_eq!(admin.events_seen(), 0);
    });
}

/// A host that acts on the notice at once, on whichever of its queues, finds
/// what the notice told of.
#[each_driver]
fn host_that_acts_on_a_notice_at_once_is_not_refused(backend: Choice) {
    const TURNS: u64 = 40;
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let host = Host::at(running.addresses()[0]);
        let (mut admin, cntlid) = host.admin();
        let mut queues: Vec<Queue> = (1..=4)
            .map(|qid| host.queue(qid, cntlid).expect("admitted").0)
            .collect();
        admin.arm();
        let acting = std::thread::spawn(move || {
            let mut blocks = 4096;
            while blocks < 4096 + TURNS {
                admin.changed_namespaces();
                blocks = admin.blocks(1);
                for queue in &mut queues {
                    assert_eq!(queue.write(1, blocks - 1, 1), Status::SUCCESS);
                }
            }
        });
        for turn in 1..=TURNS {
            make(running, resize("ram", 4096 + turn, false));
        }
        acting.join().expect("never refused");
    });
}

/// The file of a volume is flushed and free when the volume is removed; before that
/// no other volume can have it.
#[each_driver]
fn file_volume_is_flushed_and_unlocked_when_it_is_removed(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, state: Option<&str>| store::Spec {
            kind: store::Kind::file(folder.path().join(name)),
            state: state.map(|state| folder.path().join(state)),
            ..ram(name, 16)
        };
        let (_admin, mut io) = Host::at(running.addresses()[0]).pair();
        for byte in [0, 1, 2] {
            make(running, Change::AddVolume(file("a", None)));
            make(running, add_namespace(2, "a"));
            assert_eq!(io.read(2, 3).expect("reads"), [byte; BLOCK]);
            assert_eq!(io.write(2, 3, byte + 1), Status::SUCCESS);
            make(running, remove_namespace(2));
            make(running, Change::RemoveVolume { name: "a".into() });
        }
        make(running, Change::AddVolume(file("a", None)));
        let thief = Change::AddVolume(file("b", Some("a.weft")));
        refuse(running, thief, "a file of the volume \"a\" already");
        let lost = store::Spec {
            name: "b".into(),
            ..file("no/b", None)
        };
        refuse(running, Change::AddVolume(lost), "mkdir");
        make(running, Change::AddVolume(file("b", None)));
        make(running, add_namespace(2, "a"));
        make(running, resize("a", 32, false));
        assert_eq!(io.write(2, 31, 9), Status::SUCCESS);
        make(running, resize("a", 8, true));
        assert_eq!(code(io.write(2, 8, 9)), LBA_OUT_OF_RANGE);
        assert_eq!(io.read(2, 3).expect("reads"), [3; BLOCK]);
        let bytes = folder.path().join("a").metadata().expect("a file").len();
        assert_eq!(bytes, 8 * BLOCK as u64);
        assert!(io.is_alive());
    });
}

/// A host that does I/O all the while sees no error in a storm of changes.
#[each_driver]
fn many_changes_do_not_disturb_io_of_another_host(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let address = running.addresses()[1];
        let done = Arc::new(AtomicBool::new(false));
        let stop = done.clone();
        let host = std::thread::spawn(move || {
            let (mut admin, mut io) = Host::at(address).pair();
            let mut turns: u64 = 0;
            while !stop.load(Ordering::Relaxed) {
                let byte = turns as u8;
                assert_eq!(io.write(1, turns % 64, byte), Status::SUCCESS);
                let block = io.read(1, turns % 64).expect("reads");
                assert!(block.iter().all(|found| *found == byte), "turn {turns}");
                turns += 1;
            }
            assert_eq!(admin.blocks(1), 4096);
            turns
        });
        let victim = Host {
            subnqn: OTHER_NQN,
            hostnqn: FRIEND,
            ..Host::at(running.addresses()[0])
        };
        for turn in 0..12 {
            make(running, Change::AddVolume(ram("x", 64)));
            make(running, add_namespace(2, "x"));
            make(running, resize("x", 128 + turn, false));
            make(
                running,
                Change::AddSubsystem(subsystem(OTHER_NQN, vec![namespace(1, "x")])),
            );
            let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
            make(running, Change::AddListener(any_port.into()));
            let added = *running.addresses().last().expect("listeners");
            let here = Host {
                address: added,
                ..victim
            };
            let (_admin, mut io) = here.pair();
            let (_admin2, mut io2) = victim.pair();
            assert!(io.is_alive() && io2.is_alive());
            make(running, resize("x", 32, true));
            let states = [AnaState::Inaccessible, AnaState::Optimized];
            for state in states {
                let ana = Change::SetAna {
                    nqn: OTHER_NQN.into(),
                    listener: None,
                    group: 1,
                    state,
                };
                make(running, ana);
            }
            let hosts = Some(vec![HOST.into()]);
            let nqn = OTHER_NQN.to_owned();
            make(running, Change::SetHosts { nqn, hosts });
            io.expect_end();
            io2.expect_end();
            make(running, remove_namespace(2));
            let nqn = OTHER_NQN.to_owned();
            make(running, Change::RemoveSubsystem { nqn });
            make(running, Change::RemoveListener { address: added });
            make(running, Change::RemoveVolume { name: "x".into() });
        }
        done.store(true, Ordering::Relaxed);
        assert!(host.join().expect("no error") > 0);
    });
}

#[each_driver]
fn change_of_a_target_that_stops_is_refused(backend: Choice) {
    with_target(backend, Limits::default(), 64 << 20, |running| {
        running.stop();
        let error = running.change(Change::AddVolume(ram("late", 8)));
        assert!(matches!(error, Err(ChangeError::Stopping)), "{error:?}");
    });
}

/// Each reactor has an Admin Queue of every sort, on which nothing else happens: what one
/// host's command changes is told to that of the other reactor by mail alone.
#[each_driver]
fn hosts_of_every_reactor_are_told_of_each_change(backend: Choice) {
    const PROTECTION: u32 = 0x84;
    with_target(backend, Limits::default(), 64 << 20, |running| {
        let address = running.addresses()[0];
        // In turn on two reactors.
        let mut admins = [0, 1].map(|_| Host::at(address).admin().0);
        let mut discovering = [0, 1].map(|_| Host::discovering(address).admin().0);
        for admin in &mut admins {
            admin.wants_every_notice();
            admin.arm();
        }
        for queue in &mut discovering {
            queue.discovery();
            queue.arm();
        }
        let ana = Change::SetAna {
            nqn: NQN.into(),
            listener: None,
            group: 1,
            state: AnaState::NonOptimized,
        };
        make(running, ana);
        for admin in &mut admins {
            assert_eq!(admin.event(), ANA_CHANGED);
            admin.log_page(ANA, 56);
            admin.arm();
        }
        make(running, Change::AddSubsystem(subsystem(OTHER_NQN, vec![])));
        for queue in &mut discovering {
            queue.rediscover();
        }
        for (own, other) in [(0, 1), (1, 0)] {
            let mut sqe = Sqe::new(admin::SET_FEATURES);
            sqe.nsid = 1.into();
            sqe.cdw10 = PROTECTION.into();
            sqe.cdw11 = u32::from(own == 0).into();
            assert!(admins[own].command(sqe, &[]).0.is_success());
            assert_eq!(admins[other].changed_namespaces(), [1]);
        }
    });
}

/// A host with the notice that a namespace may be written again may write by any
/// queue: no notice goes out while a reactor does not know of the change.
#[each_driver]
fn notice_that_write_protection_ended_comes_when_every_queue_allows_writes(backend: Choice) {
    const PROTECTION: u32 = 0x84;
    let (running, gate, _) = serve_gates(backend);
    // In turn on two reactors: Admin Queues on one, I/O queues on the other.
    let address = running.addresses()[0];
    let (mut own_admin, mut own_io) = Host::at(address).pair();
    let (mut their_admin, mut their_io) = Host::at(address).pair();
    their_admin.arm();
    let protect = |state: u32| {
        let mut sqe = Sqe::new(admin::SET_FEATURES);
        sqe.nsid = 1.into();
        sqe.cdw10 = PROTECTION.into();
        sqe.cdw11 = state.into();
        sqe
    };
    assert!(own_admin.command(protect(1), &[]).0.is_success());
    assert_eq!(their_admin.changed_namespaces(), [1]);
    let refused = their_io.write(1, 0, 1);
    assert_eq!(code(refused), code(Status::WRITE_PROTECTED));

    gate.stall.store(1, Ordering::Relaxed);
    let mut read = Sqe::new(io::READ);
    read.nsid = 1.into();
    read.sgl = Sgl::new(Sgl::TRANSPORT, BLOCK as u32);
    own_io.send(read, &[]);
    wait_for(|| gate.stall.load(Ordering::Relaxed) == 2);
    let lifting = own_admin.send(protect(0), &[]);
    // The other reactor is at work all the time.
    for _ in 0..20 {
        assert!(
            their_admin
                .command(Sqe::new(admin::KEEP_ALIVE), &[])
                .0
                .is_success()
        );
    }
    assert_eq!(their_admin.events_seen(), 0, "a reactor does not know");
    gate.stall.store(0, Ordering::Relaxed);
    assert_eq!(their_admin.changed_namespaces(), [1]);
    assert!(their_io.write(1, 0, 1).is_success());
    assert!(own_admin.response(lifting).0.is_success());
    stop(running);
}
