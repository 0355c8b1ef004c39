//! An unmodified Linux kernel erases an encrypted volume with its own tools.

use interop::guest::{Config, Guest};
use interop::scripts::{ERASE, ISCSI, MACHINE, script};
use interop::weft::{NQN, WeftProcess, free_address};
use needs::needs;
use std::fs;

use crate::iscsi::{IQN, portal, volume};

/// What the guest writes, which no disk may have.
const MARK: &str = "what hosts write and disks never have";

/// `nvme format`, `nvme sanitize` and `sg_sanitize` on one volume, that NVMe and SCSI see.
#[needs(guest)]
#[test]
fn host_and_initiator_erase_an_encrypted_volume() {
    let (address, nvme) = (free_address(), free_address());
    let key = tempfile::NamedTempFile::new().expect("a file that other users may not read");
    fs::write(key.path(), "5a".repeat(32)).expect("a key");
    let config = format!(
        "{}[[iscsi.target]]\nname = \"{IQN}\"\nallow_any_initiator = true\nvolumes = [\"v\"]\n\
         [[nvme.subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\nvolumes = [\"v\"]\n\
         [[listener]]\naddress = \"{nvme}\"\n{}key_file = \"{}\"\n",
        portal(address),
        volume("v", "file", 64, 4096),
        key.path().display(),
    );
    let target = WeftProcess::serve("erase", &config, address);
    let (port, nvme_port) = (address.port().to_string(), nvme.port().to_string());
    let settings = [
        ("ADDR", MACHINE),
        ("PORT", &port),
        ("IQN", IQN),
        ("NVME_PORT", &nvme_port),
        ("NQN", NQN),
        ("MARK", MARK),
    ];
    let config = Config::new("erase", &script(&settings, &[ISCSI, ERASE]));
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    guest.finish().expect_success();
    let disk = fs::read(target.home().join("v.img")).expect("the volume's file");
    assert!(
        disk.iter().any(|byte| *byte != 0),
        "the last write is on the disk"
    );
    let has_mark = disk
        .windows(MARK.len())
        .any(|bytes| bytes == MARK.as_bytes());
    assert!(!has_mark, "what was written lies on the disk as it is");
    target.expect_orderly_end();
}
