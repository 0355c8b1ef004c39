//! An unmodified Linux kernel as the host by RDMA: its NVMe/RDMA on soft iWARP, which is
//! built from the same kernel's source.

use interop::guest::{Config, Guest};
use interop::scripts::{CLIENT, MACHINE, RDMA, script};
use interop::systems::SIW;
use interop::weft::{NQN, Setup, WeftProcess};
use needs::needs;

use crate::host::killed_under_load;

/// The host's whole session by RDMA; `module`: which soft iWARP it has.
fn session(name: &str, module: &str, setup: Setup) {
    let target = WeftProcess::start(name, setup);
    let port = target.address().port().to_string();
    let settings = [
        ("ADDR", MACHINE),
        ("PORT", &port),
        ("NQN", NQN),
        ("SIW", module),
        // Where the machine is busy, an emulated guest may not run for seconds.
        ("OPTIONS", "--nr-io-queues=2 --keep-alive-tmo=30"),
        ("QUEUES", "2"),
        ("COMPARE", "1"),
        ("ADVERTISED", ""),
    ];
    let mut config = Config::new(name, &script(&settings, &[RDMA, CLIENT]));
    config.system = &SIW;
    config.cpus = 2;
    let guest = Guest::start(&config).expect("a guest");
    guest.finish().expect_success();
    target.expect_orderly_end();
}

#[needs(guest, program("make"), program("gcc"))]
#[test]
fn session_by_rdma() {
    let setup = Setup {
        listener: "rdma = true",
        block_bytes: 512,
        ..Setup::default()
    };
    session("rdma", "siw", setup);
}

#[needs(guest, program("make"), program("gcc"))]
#[test]
#[ignore = "another test has one such guest: cargo xtask lab guests"]
fn session_by_rdma_with_a_stricter_peer() {
    let setup = Setup {
        listener: "rdma = \"only\"\nmpa_crc = \"off\"",
        volume: "file",
        ..Setup::default()
    };
    session("rdma-strict", "siw_strict", setup);
}

#[needs(guest, program("make"), program("gcc"))]
#[test]
#[ignore = "another test has one such guest: cargo xtask lab guests"]
fn target_killed_under_load_by_rdma() {
    let setup = Setup {
        listener: "rdma = true",
        volume: "file",
        ..Setup::default()
    };
    let more = [("SIW", "siw"), ("OPTIONS", "--nr-io-queues=2")];
    killed_under_load(("rdma-killed", setup), (&SIW, &[RDMA]), &more);
}
