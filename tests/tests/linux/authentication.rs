//! In-band authentication: the kernel's host with weft, and weft's initiator with the kernel's
//! target.

use control::{ClientSystem, HostProof, NvmeProof, Reached, ReachedObject};
use interop::guest::{Config, Guest};
use interop::initramfs::HOST_NQN;
use interop::scripts::{
    MACHINE, SECURE, SECURE_CHAP_SERVE, SECURE_CHAP_WEFT, SECURE_KERNEL, script,
};
use interop::systems::FORKY;
use interop::weft::{NQN, WeftProcess, free_address};
use needs::needs;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::kernel_target::{KernelTarget, LOAD};

/// Secrets of the bytes 0 to 31, 200 to 231 and 100 to 131: two of the host, and the controller's.
const SECRET: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const NEXT: &str = "DHHC-1:00:yMnKy8zNzs/Q0dLT1NXW19jZ2tvc3d7f4OHi4+Tl5ufLkDyH:";
const BACK: &str = "DHHC-1:00:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOeXryU:";

/// Every hash and every group.
const WAYS: [&str; 6] = [
    "sha256-null",
    "sha384-ffdhe2048",
    "sha512-ffdhe3072",
    "sha256-ffdhe4096",
    "sha384-ffdhe6144",
    "sha512-ffdhe8192",
];

/// A subsystem for each way, all with the host's secrets of a file.
fn config(address: SocketAddr, secrets: &str) -> String {
    let subsystems = WAYS.iter().map(|way| {
        let (hash, group) = way.split_once('-').expect("a hash and a group");
        format!(
            "[[volume]]\nname = \"{way}\"\nkind = \"ram\"\nsize = \"16MiB\"\n\
             [[nvme.subsystem]]\nnqn = \"{NQN}-{way}\"\nvolumes = [\"{way}\"]\n\
             dhchap_hashes = [\"{hash}\"]\ndhchap_groups = [\"{group}\"]\n\
             [[nvme.subsystem.host]]\nnqn = \"{HOST_NQN}\"\n\
             dhchap_secret_file = \"{secrets}\"\ndhchap_ctrl_secret = \"{BACK}\"\n"
        )
    });
    let subsystems: String = subsystems.collect();
    format!("{subsystems}[[listener]]\naddress = \"{address}\"\n[admin]\nsocket = \"off\"\n")
}

/// What connects a host with a secret to the subsystem of the last way, and what it writes before.
fn lines_of_the_connect_page(port: u16) -> [String; 2] {
    let nqn = format!("{NQN}-{}", WAYS[5]);
    let proof = NvmeProof::new(&[HostProof::new(false, true)]);
    let reached = Reached {
        what: ReachedObject::Subsystem { nqn: &nqn, proof },
        address: SocketAddr::new(MACHINE.parse().expect("an address"), port),
        weft: "weft",
    };
    let steps = reached.steps(ClientSystem::Linux);
    let connect = steps[0].lines.last().expect("it is the last one");
    let by_file = steps
        .iter()
        .find(|step| step.title.starts_with("Its secret"));
    [connect.clone(), by_file.expect("a step").lines.join("\n")]
}

#[needs(guest, system(forky))]
#[test]
fn kernels_host_and_weft_authenticate_each_other_by_every_hash_and_group() {
    let name = "authentication";
    let address = free_address();
    let folder = tempfile::tempdir().expect("a folder");
    let secrets = secret_file(folder.path(), "host", SECRET);
    let target = WeftProcess::serve(name, &config(address, &secrets), address);
    let (port, ways) = (address.port().to_string(), WAYS.join(" "));
    let [connect, by_file] = lines_of_the_connect_page(address.port());
    let settings = [
        ("BY_FILE", &*by_file),
        ("CONNECT", &connect),
        ("ADDR", MACHINE),
        ("PORT", &port),
        ("NQN", NQN),
        ("SECRET", SECRET),
        ("NEXT", NEXT),
        ("BACK", BACK),
        ("WAYS", &ways),
    ];
    let mut config = Config::new(name, &script(&settings, &[SECURE, SECURE_CHAP_WEFT]));
    config.system = &FORKY;
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    let guest = guest.until("MARK rotation");
    let told = target.log();
    assert!(!told.contains("authentication failed"), "{told}");
    fs::write(&secrets, format!("{NEXT}\n{SECRET}\n")).expect("written");
    target.reload();
    let guest = guest.until("MARK expired secret");
    let old = format!("{NEXT}\n{SECRET} until 2026-01-01T00:00:00Z\n");
    fs::write(&secrets, old).expect("written");
    target.reload();
    guest.finish().expect_success();
    let told = target.log();
    for why in [
        "(`--dhchap-secret`) is not the one",
        "its `--dhchap-ctrl-secret` is not",
        "the host's secret has expired",
    ] {
        assert!(told.contains(why), "{told}");
    }
    assert!(!told.contains("DHHC"), "a secret is told");
    target.expect_orderly_end();
}

pub fn secret_file(folder: &Path, name: &str, secret: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, secret).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
    path.display().to_string()
}

#[needs(guest, system(forky))]
#[test]
fn initiator_and_the_kernels_own_target_authenticate_each_other() {
    let ways = [WAYS[0], WAYS[2], WAYS[5]];
    let settings = [
        ("SECRET", SECRET),
        ("BACK", BACK),
        ("WAYS", &ways.join(" ")),
    ];
    let pieces = [SECURE_KERNEL, SECURE_CHAP_SERVE];
    let name = "authentication-kernel-target";
    let mut target = KernelTarget::start(name, &settings, &pieces, [4420, 4421]);
    let folder = tempfile::tempdir().expect("a folder");
    let [secret, back] = [("host", SECRET), ("controller", BACK)]
        .map(|(name, secret)| secret_file(folder.path(), name, secret));
    for way in ways {
        target = target.until(&format!("MARK {way}"));
        for (arguments, is_let_in) in [
            (vec![&*secret], true),
            (vec![&*secret, "--dhchap-ctrl-secret-file", &*back], true),
            (vec![&*back], false),
            (vec![&*secret, "--dhchap-ctrl-secret-file", &*secret], false),
        ] {
            let words = [&LOAD[..], &["--dhchap-secret-file"], &arguments].concat();
            let ended = target.perf(&words);
            let said = target.output();
            assert_eq!(
                ended.is_ok(),
                is_let_in,
                "{way}: {ended:?}\n--- guest\n{said}"
            );
        }
        target.go_on();
    }
    target.finish();
}
