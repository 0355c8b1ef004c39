//! One volume, two protocols at the same time.

use needs::each_driver;
use reactor::Choice;
use std::net::SocketAddr;

use iscsi::PortalGroup;
use nvmf::command::AnaState;
use server::{Ana, Change, Config, IscsiTargetSpec, Limits, ListenerSpec, LunSpec};
use store::Kind;
use wire::nvme::Status;
use wire::nvme::identify::cns;
use wire::scsi::{asc, key};

use crate::commands::wait_for;
use crate::common::{BLOCK, Host, NQN, Queue, config, stop};
use crate::live::{ANA, ANA_CHANGED, ANA_INACCESSIBLE, code, refuse};
use crate::scsi::{ALICE, BOB, DISKS, Fail, Nexus};

/// Rounds of each side.
const ROUNDS: u64 = 300;
/// Blocks that each side writes.
const BLOCKS: u64 = 16;

/// What one writes the other reads, whole, while both write: a block that is
/// being written is the old one or the new one. Each side's bytes only grow.
#[each_driver]
fn write_over_one_protocol_is_read_whole_over_the_other(backend: Choice) {
    let mut config = config(backend, Limits::default(), 128 << 20);
    let mut disks = IscsiTargetSpec::new(DISKS);
    disks.luns = vec![LunSpec::new(0, "ram")];
    config.iscsi_targets = vec![disks];
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    config.listeners.push(ListenerSpec::iscsi(local));
    let running = server::start(config).expect("starts");
    let addresses = running.addresses();
    let (nvme, iscsi) = (addresses[0], addresses[2]);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (_admin, mut queue) = Host::at(nvme).pair();
            let mut seen = [0; BLOCKS as usize];
            for round in 0..ROUNDS {
                let (at, byte) = (round % BLOCKS, (round / BLOCKS) as u8 + 1);
                assert!(queue.write(1, at, byte).is_success());
                let block = queue.read(1, BLOCKS + at).expect("reads");
                look(&block, &mut seen[at as usize]);
            }
        });
        scope.spawn(move || {
            let mut nexus = Nexus::connect(iscsi, ALICE, DISKS);
            let mut seen = [0; BLOCKS as usize];
            for round in 0..ROUNDS {
                let (at, byte) = (round % BLOCKS, (round / BLOCKS) as u8 + 1);
                let written = nexus.write(BLOCK, BLOCKS + at, &[byte; BLOCK]);
                written.expect("writes");
                let block = nexus.read(BLOCK, at, 1).expect("reads");
                look(&block, &mut seen[at as usize]);
            }
        });
    });
    // At rest both see the last of both.
    let (_admin, mut queue) = Host::at(nvme).pair();
    let mut nexus = Nexus::connect(iscsi, ALICE, DISKS);
    for at in 0..2 * BLOCKS {
        let by_nvme = queue.read(1, at).expect("reads");
        let by_iscsi = nexus.read(BLOCK, at, 1).expect("reads");
        assert!(by_nvme == by_iscsi, "block {at}");
        let writes = (ROUNDS - at % BLOCKS).div_ceil(BLOCKS);
        assert_eq!(u64::from(by_nvme[0]), writes, "block {at}");
    }
    stop(running);
}

/// A block is of one write, and of none before the last one seen.
fn look(block: &[u8], seen: &mut u8) {
    assert!(block.iter().all(|byte| *byte == block[0]), "half a write");
    assert!(block[0] >= *seen, "{} after {seen}", block[0]);
    *seen = block[0];
}

/// NVMe's listeners are 0 and 1, iSCSI's 2 and 3; portal group 1 names one of
/// either, portal group 2 the other one of iSCSI. The states are the subsystem's.
pub fn config_of_shared_states(backend: Choice) -> Config {
    let mut config = config(backend, Limits::default(), 128 << 20);
    let mut disks = IscsiTargetSpec::new(DISKS);
    disks.luns = vec![LunSpec::new(0, "ram")];
    disks.ana = Ana::Subsystem(NQN.into());
    let group = |tag, portals: &[u16]| PortalGroup {
        tag,
        portals: portals.to_vec(),
        ..PortalGroup::default()
    };
    disks.target.portal_groups = vec![group(1, &[0, 2]), group(2, &[3])];
    config.iscsi_targets = vec![disks];
    let iscsi = ListenerSpec::iscsi(SocketAddr::from(([127, 0, 0, 1], 0)));
    config.listeners.extend([iscsi.clone(), iscsi]);
    config
}

/// The state of ANA group 1 in the ANA log (Base 2.0, figure 217).
pub fn ana_state(queue: &mut Queue) -> u8 {
    queue.log_page(ANA, 56)[16 + 16] & 0xf
}

/// SET TARGET PORT GROUPS of one group.
fn set_group(nexus: &mut Nexus, tag: u16, state: u8) -> Result<(), Fail> {
    let mut list = [0; 8];
    list[4] = state;
    list[6..].copy_from_slice(&tag.to_be_bytes());
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[9]) = (0xa4, 0x0a, 8);
    nexus.give(cdb, &list)
}

/// The states of target port groups 1 and 2 by REPORT TARGET PORT GROUPS.
pub fn group_states(nexus: &mut Nexus) -> [u8; 2] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[9]) = (0xa3, 0x0a, 64);
    let data = nexus.take(cdb, 64).expect("told");
    [data[4] & 0xf, data[16] & 0xf]
}

/// A portal group may name listeners of both protocols: their states are one.
#[each_driver]
fn a_state_set_by_either_protocol_holds_for_the_whole_portal_group_alone(backend: Choice) {
    let running = server::start(config_of_shared_states(backend)).expect("starts");
    let addresses = running.addresses().to_vec();
    let (mut admin, mut io) = Host::at(addresses[0]).pair();
    let (mut other_admin, mut other_io) = Host::at(addresses[1]).pair();
    for queue in [&mut admin, &mut other_admin] {
        queue.wants_every_notice();
        queue.arm();
    }
    let mut inside = Nexus::connect(addresses[2], ALICE, DISKS);
    let mut outside = Nexus::connect(addresses[3], BOB, DISKS);
    let changed = [asc::ASYMMETRIC_ACCESS_STATE_CHANGED];

    // Standby, by SCSI: as NVMe says it, inaccessible.
    set_group(&mut outside, 1, 2).expect("set");
    assert_eq!(admin.event(), ANA_CHANGED);
    assert_eq!((ana_state(&mut admin), ana_state(&mut other_admin)), (3, 1));
    assert_eq!(code(io.write(1, 0, 1)), ANA_INACCESSIBLE);
    assert_eq!(other_io.write(1, 0, 2), Status::SUCCESS);
    assert_eq!(inside.settle(), changed);
    let refused = inside.read(BLOCK, 0, 1).expect_err("standby");
    assert!(
        matches!(refused, Fail::Check(key::NOT_READY, ..)),
        "{refused:?}"
    );
    assert_eq!(outside.settle(), [0; 0], "it has set it itself");
    assert_eq!(group_states(&mut outside), [2, 0]);

    // Back, by the NVMe listener: both hear of it.
    admin.arm();
    let set = Change::SetAna {
        nqn: NQN.into(),
        listener: Some(addresses[0]),
        group: 1,
        state: AnaState::Optimized,
    };
    running.change(set).expect("made");
    assert_eq!(admin.event(), ANA_CHANGED);
    assert_eq!(ana_state(&mut admin), 1);
    assert!(io.is_alive());
    assert_eq!(inside.settle(), changed);
    assert_eq!(inside.read(BLOCK, 0, 1).expect("reads"), [2; BLOCK]);
    assert_eq!(group_states(&mut inside), [0, 0]);

    // The other portal group names no NVMe listener.
    set_group(&mut inside, 2, 2).expect("set");
    assert_eq!(outside.settle().last(), changed.last());
    assert_eq!((ana_state(&mut admin), ana_state(&mut other_admin)), (1, 1));
    assert_eq!(other_admin.events_seen(), 0);
    stop(running);
}

/// A target without the states of its paths would have none to tell.
#[each_driver]
fn a_subsystem_whose_states_a_target_shares_stays(backend: Choice) {
    let running = server::start(config_of_shared_states(backend)).expect("starts");
    let mut nexus = Nexus::connect(running.addresses()[2], ALICE, DISKS);
    let removal = Change::RemoveSubsystem { nqn: NQN.into() };
    refuse(&running, removal, "remove that first");
    assert_eq!(group_states(&mut nexus), [0, 0]);
    assert!(Host::at(running.addresses()[0]).pair().1.is_alive());
    stop(running);
}

/// What one protocol promises of atomic writes the other does too.
#[each_driver]
fn atomicity_is_told_alike_of_every_kind_of_volume(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = Kind::file(folder.path().join("disk"));
    for kind in [Kind::RAM, Kind::NULL, file] {
        for block_bytes in [512, 4096] {
            let mut config = config_of_shared_states(backend);
            config.volumes[0].kind = kind.clone();
            config.volumes[0].block_bytes = block_bytes;
            let running = server::start(config).expect("starts");
            let (mut admin, _) = Host::at(running.addresses()[0]).admin();
            let identify = admin.identify(cns::NAMESPACE.into(), 1);
            let field = |at: usize| u16::from_le_bytes([identify[at], identify[at + 1]]);
            let [nawun, nawupf, nacwu] = [34, 36, 38].map(|at| u32::from(field(at)) + 1);
            let mut nexus = Nexus::connect(running.addresses()[2], ALICE, DISKS);
            // INQUIRY, Block Limits.
            let mut cdb = [0; 16];
            (cdb[0], cdb[1], cdb[2], cdb[4]) = (0x12, 1, 0xb0, 64);
            let limits = nexus.take(cdb, 64).expect("told");
            let word = |at: usize| u32::from_be_bytes(limits[at..at + 4].try_into().expect("4"));
            let what = format!("{kind:?}, blocks of {block_bytes}");
            assert_eq!(nawun, nacwu, "{what}");
            let transfer = word(8);
            let promised = match nawupf {
                1 => 0,
                blocks => blocks.min(transfer),
            };
            assert_eq!(word(44), promised, "{what}: MAXIMUM ATOMIC TRANSFER LENGTH");
            let compared = nacwu.min(transfer / 2).min(255);
            assert_eq!(u32::from(limits[5]), compared, "{what}: COMPARE AND WRITE");
            stop(running);
            if folder.path().join("disk").exists() {
                std::fs::remove_file(folder.path().join("disk")).expect("removed");
            }
        }
    }
}

/// NUSE of a thin volume is what was written; it is looked at behind each Identify.
#[each_driver]
fn utilization_of_a_thin_namespace_follows_writes_and_deallocations(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = Kind::file(folder.path().join("disk"));
    for kind in [Kind::RAM, file] {
        let mut config = config_of_shared_states(backend);
        config.volumes[0].kind = kind;
        let running = server::start(config).expect("starts");
        let (mut admin, mut io) = Host::at(running.addresses()[0]).pair();
        let mut used = || {
            let identify = admin.identify(cns::NAMESPACE.into(), 1);
            let field = |at: usize| u64::from_le_bytes(identify[at..at + 8].try_into().expect("8"));
            assert_eq!((field(0), field(8)), (4096, 4096), "NSZE, NCAP");
            field(16)
        };
        assert_eq!(used(), 0, "{:?}", folder.path());
        // A frame of a RAM volume has four of these blocks.
        for lba in [0, 1, 2, 3, 400, 401, 402, 403] {
            assert!(io.write(1, lba, 7).is_success());
        }
        let mut flush = wire::nvme::Sqe::new(wire::nvme::io::FLUSH);
        flush.nsid = 1.into();
        assert!(io.command(flush, &[]).0.is_success());
        wait_for(|| used() == 8);
        stop(running);
    }
}
