//! One volume, two protocols at the same time.

use std::net::SocketAddr;

use target::{IscsiTargetSpec, Limits, ListenerSpec, LunSpec};

use crate::common::{BLOCK, Host, backends, config, stop};
use crate::scsi::{ALICE, DISKS, Nexus};

/// Rounds of each side.
const ROUNDS: u64 = 300;
/// Blocks that each side writes.
const BLOCKS: u64 = 16;

/// What one writes the other reads, whole, while both write: a block that is
/// being written is the old one or the new one. Each side's bytes only grow.
#[test]
fn what_one_protocol_writes_the_other_reads() {
    for backend in backends() {
        let mut config = config(backend, Limits::default(), 128 << 20);
        let mut disks = IscsiTargetSpec::new(DISKS);
        disks.luns = vec![LunSpec::new(0, "ram")];
        config.iscsi_targets = vec![disks];
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        config.listeners.push(ListenerSpec::iscsi(local));
        let running = target::start(config).expect("starts");
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
}

/// A block is of one write, and of none before the last one seen.
fn look(block: &[u8], seen: &mut u8) {
    assert!(block.iter().all(|byte| *byte == block[0]), "half a write");
    assert!(block[0] >= *seen, "{} after {seen}", block[0]);
    *seen = block[0];
}
