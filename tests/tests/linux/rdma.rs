//! An unmodified Linux kernel as the host by RDMA: its NVMe/RDMA and iSER on soft iWARP, which
//! is built from the same kernel's source.

use interop::guest::{Config, Guest};
use interop::scripts::{CLIENT, ISCSI, ISER_SESSION, MACHINE, RDMA, script};
use interop::systems::SIW;
use interop::weft::{NQN, Setup, WeftProcess, free_address};
use needs::needs;

use crate::host::{every_subcommand, killed_under_load};
use crate::iscsi::{IQN, portal, volume};

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

#[needs(guest, program("make"), program("gcc"))]
#[test]
#[ignore = "another test has one such guest: cargo xtask lab guests"]
fn administrator_by_rdma() {
    let name = ("administrator-rdma", "rdma = true");
    every_subcommand(name, (&SIW, &[RDMA]), &[("SIW", "siw")]);
}

/// Discovery, login, verified load, resets, CHAP and aborts of an initiator by iSER.
fn iser_session(name: &str, module: &str, rdma: &str, kind: &str) {
    let address = free_address();
    let (chap_iqn, slow_iqn) = (format!("{IQN}-chap"), format!("{IQN}-slow"));
    let target = |iqn: &str, volume: &str| {
        format!(
            "[[iscsi.target]]\nname = \"{iqn}\"\nallow_any_initiator = true\n\
             volumes = [\"{volume}\"]\n"
        )
    };
    let config = format!(
        "{}rdma = {rdma}\n{}{}[[volume]]\nname = \"slow\"\nkind = \"delay\"\n\
         of = [\"below\"]\nread_fixed_us = 3000000\nwrite_fixed_us = 3000000\n{}{}{}\
         chap_algorithms = [\"sha256\", \"md5\"]\n\
         chap = {{ user = \"guest\", secret = \"what the guest knows\" }}\n",
        portal(address),
        volume("v", kind, 128, 512),
        volume("below", "ram", 16, 4096),
        target(IQN, "v"),
        target(&slow_iqn, "slow"),
        target(&chap_iqn, "v"),
    );
    let server = WeftProcess::serve(name, &config, address);
    let port = address.port().to_string();
    let settings = [
        ("ADDR", MACHINE),
        ("PORT", &port),
        ("IQN", IQN),
        ("CHAP_IQN", &chap_iqn),
        ("USER", "guest"),
        ("SECRET", "what the guest knows"),
        ("SLOW_IQN", &slow_iqn),
        ("SIW", module),
    ];
    let mut config = Config::new(name, &script(&settings, &[RDMA, ISCSI, ISER_SESSION]));
    config.system = &SIW;
    config.cpus = 2;
    let guest = Guest::start(&config).expect("a guest");
    let output = guest.finish().expect_success();
    let last = output.lines().rfind(|line| line.starts_with("STEP"));
    assert!(last.is_some_and(|line| line.ends_with(" end")), "{output}");
    server.expect_orderly_end();
}

#[needs(guest, program("make"), program("gcc"))]
#[test]
fn iser_session_by_rdma() {
    iser_session("iser", "siw", "true", "ram");
}

#[needs(guest, program("make"), program("gcc"))]
#[test]
#[ignore = "another test has one such guest: cargo xtask lab guests"]
fn iser_session_with_a_stricter_peer() {
    iser_session("iser-strict", "siw_strict", "\"only\"", "file");
}
