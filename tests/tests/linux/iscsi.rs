//! An unmodified Linux kernel with open-iscsi as the initiator.

use interop::guest::{Config, Guest};
use interop::scripts::{
    CRASH, ISCSI, ISCSI_CRASH, ISCSI_MULTIPATH, ISCSI_SESSION, ISCSI_TOOLS, MACHINE, script,
};
use interop::weft::{NQN, WeftProcess, free_address};
use iscsi::PortalGroup;
use needs::needs;
use nvmf::command::AnaState;
use server::{Change, IscsiTargetSpec, ListenerSpec, LunSpec, Running};
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;
use store::Spec;

use crate::changes::{Step, change, follow, ram, set_ana};
use crate::host::{KILLS, REFUSED};

pub const IQN: &str = "iqn.2026-01.org.example:interop";

/// A portal, advertised to initiators by the address that the guest reaches.
pub fn portal(address: SocketAddr) -> String {
    format!(
        "[[listener]]\naddress = \"{address}\"\nprotocol = \"iscsi\"\nadvertise = \"{MACHINE}\"\n"
    )
}

pub fn volume(name: &str, kind: &str, mib: u32, block_bytes: u32) -> String {
    let path = match kind {
        "file" => format!("path = \"{name}.img\"\n"),
        _ => String::new(),
    };
    format!(
        "[[volume]]\nname = \"{name}\"\nkind = \"{kind}\"\nsize = \"{mib}MiB\"\n\
         block_bytes = {block_bytes}\n{path}"
    )
}

/// Discovery, every way of digests, CHAP one way and both, ext4, xfs, verified
/// load, a reset.
fn session(name: &str, io: &str, kind: &str, block_bytes: u32) {
    let address = free_address();
    let config = format!(
        "{}[[iscsi.target]]\nname = \"{IQN}\"\nallow_any_initiator = true\nvolumes = [\"v\"]\n\
         [[iscsi.target]]\nname = \"{IQN}-chap\"\nallow_any_initiator = true\nvolumes = [\"v\"]\n\
         chap_algorithms = [\"sha3-256\", \"sha256\", \"md5\"]\n\
         chap = {{ user = \"guest\", secret = \"what the guest knows\" }}\n\
         mutual_chap = {{ user = \"weft\", secret = \"what weft knows too\" }}\n\
         {}[policy]\nio = \"{io}\"\n",
        volume("v", kind, 384, block_bytes),
        portal(address)
    );
    let target = WeftProcess::serve(name, &config, address);
    let port = address.port().to_string();
    let chap = format!("{IQN}-chap");
    let settings = [
        ("ADDR", MACHINE),
        ("PORT", &port),
        ("IQN", IQN),
        ("CHAP_IQN", &chap),
        ("USER", "guest"),
        ("SECRET", "what the guest knows"),
        ("USER_IN", "weft"),
        ("SECRET_IN", "what weft knows too"),
    ];
    let mut config = Config::new(name, &script(&settings, &[ISCSI, ISCSI_SESSION]));
    config.cpus = 2;
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    let output = guest.finish().expect_success();
    let last = output.lines().rfind(|line| line.starts_with("STEP"));
    assert!(last.is_some_and(|line| line.ends_with(" end")), "{output}");
    target.expect_orderly_end();
}

#[needs(guest, io_uring, ci)]
#[test]
fn iscsi_session_on_io_uring() {
    session("iscsi-io_uring", "io_uring", "ram", 512);
}

#[needs(guest)]
#[test]
#[ignore = "another test has one such guest: cargo xtask lab guests"]
fn iscsi_session_on_epoll() {
    session("iscsi-epoll", "epoll", "file", 4096);
}

/// The target dies twice, under load and right after a flush.
#[needs(guest)]
#[test]
fn iscsi_target_killed_under_load() {
    let name = "iscsi-killed";
    let address = free_address();
    let config = format!(
        "{}[[iscsi.target]]\nname = \"{IQN}\"\nallow_any_initiator = true\nvolumes = [\"v\"]\n{}",
        volume("v", "file", 256, 512),
        portal(address)
    );
    let mut target = WeftProcess::serve(name, &config, address);
    let port = address.port().to_string();
    let settings = [("ADDR", MACHINE), ("PORT", &port), ("IQN", IQN)];
    let mut config = Config::new(name, &script(&settings, &[ISCSI, ISCSI_CRASH, CRASH]));
    config.cpus = 2;
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    let guest = target.dies_at(guest, &KILLS, REFUSED);
    guest.finish().expect_success();
    target.expect_orderly_end();
}

/// The SCSI tools, two initiators, and an NVMe host on the same volume.
#[needs(guest)]
#[test]
fn iscsi_administrator() {
    let name = "iscsi-tools";
    let (address, nvme) = (free_address(), free_address());
    let config = format!(
        "{}{}[[iscsi.target]]\nname = \"{IQN}\"\nallow_any_initiator = true\n\
         volumes = [\"a\", \"b\"]\n[[nvme.subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         volumes = [\"a\"]\n{}[[listener]]\naddress = \"{nvme}\"\n",
        volume("a", "file", 64, 512),
        volume("b", "file", 64, 512),
        portal(address)
    );
    let target = WeftProcess::serve(name, &config, address);
    let (port, nvme_port) = (address.port().to_string(), nvme.port().to_string());
    let settings = [
        ("ADDR", MACHINE),
        ("PORT", &port),
        ("IQN", IQN),
        ("NVME_PORT", &nvme_port),
        ("NQN", NQN),
    ];
    let mut config = Config::new(name, &script(&settings, &[ISCSI, ISCSI_TOOLS]));
    config.cpus = 2;
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    guest.finish().expect_success();
    target.expect_orderly_end();
}

fn spec(name: &str, size_bytes: u64) -> Spec {
    ram(name, size_bytes, 512)
}

/// A target with one LUN, reached by two portals, each in a group of its own.
fn serve(portals: [SocketAddr; 2]) -> Running {
    let mut target = IscsiTargetSpec::new(IQN);
    target.luns = vec![LunSpec::new(0, "v0")];
    target.target.portal_groups = vec![
        PortalGroup {
            tag: 1,
            portals: vec![0],
            ..PortalGroup::default()
        },
        PortalGroup {
            tag: 2,
            portals: vec![1],
            ..PortalGroup::default()
        },
    ];
    let config = server::Config {
        volumes: vec![spec("v0", 64 << 20)],
        iscsi_targets: vec![target],
        listeners: portals.map(ListenerSpec::iscsi).to_vec(),
        ..server::Config::default()
    };
    server::start(config).expect("a target")
}

fn set_state(target: &Running, portal: SocketAddr, state: AnaState) {
    set_ana(target, IQN, portal, state);
}

/// dm-multipath over two portals: failover by ALUA and by a lost portal, a
/// resize and a LUN that comes, under a verified load that must not see an
/// error.
#[needs(guest)]
#[test]
fn iscsi_multipath() {
    let name = "iscsi-multipath";
    let portals @ [a, b] = [free_address(), free_address()];
    let target = serve(portals);
    let (first, second) = (a.port().to_string(), b.port().to_string());
    let settings = [
        ("ADDR", MACHINE),
        ("PORT", &first),
        ("SECOND", &second),
        ("IQN", IQN),
    ];
    let mut config = Config::new(name, &script(&settings, &[ISCSI, ISCSI_MULTIPATH]));
    config.cpus = 2;
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    let steps: [Step<'_>; 6] = [
        ("MARK failover", &|t| {
            for (away, here) in [(a, b), (b, a), (a, b)] {
                set_state(t, here, AnaState::Optimized);
                sleep(Duration::from_millis(500));
                set_state(t, away, AnaState::NonOptimized);
                sleep(Duration::from_millis(2000));
            }
            set_state(t, a, AnaState::Inaccessible);
        }),
        ("MARK failover ends", &|t| {
            set_state(t, a, AnaState::Optimized);
            set_state(t, b, AnaState::Optimized);
        }),
        ("MARK lose", &|t| {
            change(t, Change::RemoveListener { address: a });
        }),
        ("MARK regain", &|t| {
            change(t, Change::AddListener(ListenerSpec::iscsi(a)));
        }),
        ("MARK resize", &|t| {
            let resize = Change::ResizeVolume {
                name: "v0".into(),
                size_bytes: 128 << 20,
                allow_shrink: false,
            };
            change(t, resize);
        }),
        ("MARK lun", &|t| {
            change(t, Change::AddVolume(spec("v1", 16 << 20)));
            let add = Change::AddLun {
                name: IQN.into(),
                lun: LunSpec::new(1, "v1"),
            };
            change(t, add);
        }),
    ];
    follow(guest, target, &steps);
}
